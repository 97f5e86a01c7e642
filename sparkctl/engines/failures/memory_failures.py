"""Failure rules for memory that ran out, as torch, CUDA, Triton and the kernel report it."""

from __future__ import annotations

import re
from functools import partial

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, FailureRule, MatchGroups, failure_rule
from sparkctl.model.text.units import format_size, parse_size
from sparkctl.model.verdict import DROP_CACHES_REMEDY, ChangeDirection, FailureCause

CUDA_OUT_OF_MEMORY_TEXT = "CUDA ran out of memory."
_FREE_MEMORY_REMEDY = f"{DROP_CACHES_REMEDY} Stop whatever else holds memory on the node."

# What other runtimes than CUDA say for it: Vulkan, SYCL and Level Zero, OpenCL, Metal, HIP, Neuron, XLA; ggml, whatever is below it.
# A program that does without pinned memory says so in the same words.
_OTHER_DEVICES = (
    r"^(?!.{0,120}pinned memory)(?:.{0,400}?\b(?:(?:VK_)?E(?:rror|RROR_)O(?:utOfDeviceMemory|UT_OF_DEVICE_MEMORY)"
    r"|(?:UR_RESULT|ZE_RESULT|PI)_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)|CL_(?:MEM_OBJECT_ALLOCATION_FAILURE|OUT_OF_RESOURCES)"
    r"|kIOGPUCommandBufferCallbackErrorOutOfMemory|hipErrorOutOfMemory|HSA_STATUS_ERROR_OUT_OF_RESOURCES|NRT_RESOURCE\b"
    r"|(?:HIP|ROCm|MUSA) error: out of memory|(?:XPU|NPU|MUSA|HPU|MPS)(?: backend)? out of memory|Ran out of memory in memory space hbm"
    r"|(?:RESOURCE_EXHAUSTED|ResourceExhausted): (?=.{0,100}(?:[Oo]ut of memory|[Aa]llocat|OOM|HBM|hbm))"
    r"|status=4 message=\"?Allocation Failure|aclrtMalloc\w{0,20}, error code is 207001"
    r"|PT_DEVMEM Allocation failed for size::(?P<tensor>\d+)|Failed to alloc DEVICE memory: (?P<device>\d+))"
    r"|ggml_[\w()]{1,80}: (?:can't (?:malloc|allocate) (?P<wanted>\d+) Bytes\b|failed to allocate \w{1,40} buffer of size (?P<bytes>\d+)"
    r"|error: failed to allocate buffer, size = +(?P<size>[\d.]+ \w+)))"
)


_TORCH_SIZE = r"\d{1,15}(?:\.\d{1,6})? (?:[KMGT]iB|bytes)"
_HOLDER = re.compile(rf"Process (\d+) has ({_TORCH_SIZE})\b")


def format_asked_size(groups: MatchGroups) -> MatchGroups:
    """Return the bytes that were asked for as a size."""
    count = next((groups[name] for name in ("bytes", "wanted", "tensor", "device") if name in groups), None)
    return {} if count is None else {"asked": format_size(int(count))}


def _list_other_holders(groups: MatchGroups) -> MatchGroups:
    """Return the two processes that hold most of the GPU's memory, without the one that wrote the line: torch names that by its number,
    too, where a container hides it. It holds what PyTorch allocated, and little more."""
    held = {pid: (_parse_held(size), size) for pid, size in _HOLDER.findall(groups.get("holders", ""))}
    if "own" not in groups and "allocated" in groups:
        least = _parse_held(groups["allocated"])
        held.pop(min((pid for pid in held if held[pid][0] >= least), key=held.__getitem__, default=""), None)
    others = sorted(held.items(), key=lambda one: one[1], reverse=True)
    named = zip((("pid", "held"), ("other", "more")), others, strict=False)
    return {key: value for keys, (pid, (_, size)) in named for key, value in zip(keys, (pid, size), strict=True)}


def _parse_held(size: str) -> int:
    return parse_size(size.removesuffix(" bytes").replace(" ", ""))


_OUT_OF_MEMORY_NEEDLES = (
    ": out of memory",
    "ALLOC_FAILED",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "error out of memory",
    *("cudaMalloc failed", "RESOURCE_EXHAUSTED: Out of memory", "ailed to allocate ", "emory to load"),
)


def cuda_memory_rules(
    lower: str, on: str | None, *, fatal: bool, begins: str | None = None, weight: int = FailureWeight.CONCRETE
) -> tuple[FailureRule, ...]:
    """Return the rules for CUDA memory that ran out; ``lower`` is what to make smaller, ``on`` its profile field.

    ``begins``: a regex for how the engine's own line begins that says so, where it is no exception's.
    """
    first = "[Stop process {pid} on the node, which holds {held}, if it is none of this engine's own. ]"
    first += "[The same for process {other}, which holds {more}. ]"
    remedy = f"{first}{lower} {_FREE_MEMORY_REMEDY}"
    says = EXCEPTION_PREFIX if begins is None else f"(?:{EXCEPTION_PREFIX}|{begins})"
    cause, change = FailureCause.CUDA_OUT_OF_MEMORY, ChangeDirection.LOWER if on else None
    numbers = (
        r"(?:CUDA|HIP) out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)(?:.{0,200}? of which (?P<free>[\d.]+ \w+) is free"
        r"(?:\. [\d.]+ \w+ allowed;)?\.? ?(?P<holders>(?:Process \d+ has [\d.]+ \w+ memory in use\. ?){0,6})"
        r"(?:.{0,40}?(?P<own>this process has))?(?:.{0,80}?allocated memory (?P<allocated>"
        + _TORCH_SIZE
        + r") is allocated by PyTorch)?)?"
    )
    summary = (
        f"{CUDA_OUT_OF_MEMORY_TEXT[:-1]}: it tried to allocate {{size}}[ and {{free}} was free][; process {{pid}} holds {{held}}]"
        "[, process {other} {more}]."
    )
    rejected = r"CUDA out of memory\. Allocation was preemptively rejected"
    other = (
        r"CUDA (?:driver )?error: out of memory|Triton Error \[CUDA\]: out of memory|cudaErrorMemoryAllocation"
        r"|CUBLAS_STATUS_ALLOC_FAILED|cudaMalloc(?:Async)?\b.*: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
        r"|CUDA (?:failed with error|runtime error:|failure 2:) out of memory|cudaMalloc failed|RESOURCE_EXHAUSTED: Out of memory"
        r"|[Ff]ailed to allocate (?:GPU|CUDA|device) memory|Not enough (?:GPU )?memory to load"
    )

    build_rule = partial(
        failure_rule, cause=cause, remedy=remedy, on=on, weight=weight, change=change, worked_out=_list_other_holders
    )
    words, line = (
        ("CUDA out of memory", "HIP out of memory"),
        rf"^(?:Error executing \w{{1,60}} with args .{{1,400}}: )?{numbers}",
    )
    # PyTorch's other one (cudaMallocAsync), as ComfyUI has it, and CuPy's
    allocators = (
        rf"^(?:torch|cupy|c10)[\w.:]{{0,40}}OutOfMemoryError: |{says}.{{0,60}}Allocation on device ?\d{{0,2}}(?: would exceed|\s*$)"
        rf"|{says}Out of memory allocating (?P<size>[\d,]+ bytes)|{says}(?:CUDA|HIP) out of memory\.?\s*$"
    )
    asked = f"{CUDA_OUT_OF_MEMORY_TEXT[:-1]}[: it tried to allocate {{size}}]."
    parts = ("OutOfMemoryError: ", "Allocation on device", "Out of memory allocating ", *words)
    return (
        build_rule(rf"{says}.*?{numbers}", summary=summary, needle=("CUDA out of", "HIP out of"), fatal=fatal),
        build_rule(line, summary=summary, needle=words),
        build_rule(rf"{says}.*{rejected}", summary=CUDA_OUT_OF_MEMORY_TEXT, needle="preempt", fatal=fatal),
        build_rule(
            rf"{says}.*(?:{other})", summary=CUDA_OUT_OF_MEMORY_TEXT, needle=_OUT_OF_MEMORY_NEEDLES, fatal=fatal
        ),
        build_rule(allocators, summary=asked, needle=parts),
        failure_rule(
            _OTHER_DEVICES,
            cause,
            "The GPU ran out of memory[: it was asked for {size}][: it was asked for {asked}].",
            remedy,
            needle=(
                *("OutOfDeviceMemory", "_OUT_OF_", "CL_MEM_OBJECT_ALLOCATION", "ErrorOutOfMemory"),
                *("error: out of memory", "NRT_RESOURCE", " out of memory", "Ran out of memory in"),
                *("RESOURCE_EXHAUSTED: ", "ResourceExhausted: ", "Allocation Failure", "aclrtMalloc"),
                *("PT_DEVMEM Allocation failed", "Failed to alloc DEVICE", "ailed to allocate ", "can't malloc "),
                "can't allocate ",
            ),
            worked_out=format_asked_size,
            on=on,
            weight=min(weight, FailureWeight.LIKELY),
            change=change,
        ),
    )


# A shell's word on a program that a signal ended: "Killed", "sh: line 1: 7 Killed  vllm serve /m", "/run.sh: line 3:     7 Killed   x".
SHELL_PREFIX = r"^(?:(?:/\S{0,200}/)?(?:ba|da|z)?sh: {1,4}|\S{1,200}: {1,4}(?=line \d))?(?:line )?(?:\d{1,9}:? +){0,2}"
# A kernel log says it in its own time stamps; a line of an engine never begins so.
_KERNEL_LOG_PREFIX = r"^(?:<\d+>|[a-z]{2,8} {0,3}:[a-z]{2,8} {0,3}: )?(?:\[[^\]]{1,40}\] ?|(?:[\w:.+ -]{0,60} )?kernel: (?:\[[ \d.]+\] )?)?"


def tells_exit_code(code: int) -> str:
    """Return a pattern for what `docker inspect` and `docker ps -a` tell of a container that ended."""
    return rf'"ExitCode": ?{code}\b|\bExited \({code}\) .{{1,30}} ago\b'


def exit_code_needles(code: int) -> tuple[str, ...]:
    """Return what such a line contains."""
    return f'"ExitCode": {code}', f'"ExitCode":{code}', f"Exited ({code})"


HOST_MEMORY_FAILURES = (
    # accelerate, and transformers for quantized models
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?:Some modules are dispatched on the CPU or the disk|The current `?device_map`? had weights offloaded to the disk"
        r"|You are trying to offload the whole model to the disk"
        r"|You are attempting to load .{1,80} with a `?device_map`? that contains a (?:CPU|cpu) or disk device)",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "The weights do not fit into the memory that was free: a part of the model would go to the CPU or to the disk.",
        f"{_FREE_MEMORY_REMEDY} If it still does not fit, take a smaller model or another quantization of it.",
        needle=(
            " the CPU or the disk",
            "offloaded to the disk",
            "whole model to the disk",
            "CPU or disk device",
            "cpu or disk device",
        ),
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>.{{0,120}}?\b(?:free|available) (?:GPU |device |HBM |VRAM ){{0,2}}(?:memory|HBM|VRAM)\b.{{0,80}}?"
        r" (?:below|less than|lower than|smaller than) .{0,80}?\b(?:reserve|required|minimum|needed|requested)\b.{0,160})",
        FailureCause.STARTUP_MEMORY_CHECK,
        "Less memory is free than the engine wants to have: {what}",
        f"Let the engine take less of it, or lower what it reserves. {_FREE_MEMORY_REMEDY}",
        needle=("below ", "less than ", "lower than ", "smaller than "),
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\bdied with <Signals\.(?P<signal>SIGTERM|SIGINT): \d{1,2}>",
        FailureCause.STOPPED_BY_OTHERS,
        "Somebody stopped a program that this one had started ({signal}).",
        "Ask who stopped it, then start it again.",
        needle="died with <Signals.SIG",
        weight=FailureWeight.EXCEPTION,
    ),
    failure_rule(
        r"(?<!\.)\bOOMKilled[\"']? ?[:=] ?[Tt]rue\b",
        FailureCause.HOST_OOM_KILL,
        "The kernel killed a process of the container for memory, by the word of Docker (OOMKilled): it reached the container's limit, or the "
        "node had none left.",
        "Raise or remove the container's memory limit (container.options.memory), which does not count GPU memory on a Spark. Without one, the "
        "node itself ran out (`dmesg` there tells): let the model use less memory, or stop what else holds it.",
        needle="OOMKilled",
        at_any_level=True,
    ),
    failure_rule(
        rf"{SHELL_PREFIX}Killed(?: {{2,}}\S.*)?$|{EXCEPTION_PREFIX}DataLoader worker \(pid \d{{1,9}}\) is killed by signal: Killed",
        FailureCause.KILLED,
        "It was killed (SIGKILL), as the shell or its parent reports.",
        "Most likely the machine ran out of memory: dmesg -T | grep -i oom on the node shows it. Let the model use less memory, or "
        "stop what else holds memory there.",
        needle="Killed",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"{tells_exit_code(137)}|"
        r"^(?:[\w.-]{1,63} )?exited with code 137\b|\bsignal: killed\"?$|\bterminated by signal 9\b"
        r"|\b(?:exited|terminated|died|failed) (?:unexpectedly )?(?:with|on) (?:exit |return )?(?:code:? |status )-9\b"
        r"|\bdied with <Signals\.SIGKILL: 9>|: Main process exited, code=killed, status=9/KILL|\bexited on signal 9 \(Killed\)"
        r"|\bshutdown with signal 9\b|^Exit Code: {4}137\b"
        r"|\bfailed \(exitcode: -9\)|^traceback : Signal 9 \(SIGKILL\)",
        FailureCause.KILLED,
        "It was killed (SIGKILL), as the program that started it reports.",
        "Most likely the machine ran out of memory: dmesg -T | grep -i oom on the node shows it. Let the model use less memory, or "
        "stop what else holds memory there.",
        needle=(
            *("exited with code 137", *exit_code_needles(137), "signal: killed", "terminated by signal 9"),
            *("exited on signal 9", "ode -9", "ode: -9", "status -9", "Signals.SIGKILL", "status=9/KILL"),
            *("shutdown with signal 9", "Exit Code:    137", "Signal 9 (SIGKILL)"),
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        _KERNEL_LOG_PREFIX + r"(?:Memory cgroup out of memory|Out of memory): Killed process (?P<pid>\d+) "
        r"\((?P<name>(?P<compiler>cicc|ptxas|nvcc|nvlink|cc1plus|cudafe\+\+)?[^)]*)\)(?:.*?anon-rss:(?P<rss>\d+ ?kB))?",
        FailureCause.HOST_OOM_KILL,
        "The kernel's OOM killer ended {name} (process {pid}[, {rss} of its own memory]).",
        "[It was {compiler}, a compiler: let fewer of them run at once (env.MAX_JOBS: 2). ]The machine ran out of memory: let the model use less "
        "memory, or stop what else holds memory on the node.[ On a Spark the {rss} do not count CUDA memory.]",
        needle="Killed process",
        fatal=True,
    ),
    failure_rule(
        r"[Tt]he node was low on resource: memory\b(?:.{0,200}?Container (?P<name>[\w.-]{1,80}) was using (?P<used>\w{1,20}))?",
        FailureCause.HOST_MEMORY,
        "Kubernetes ended the pod: the node's memory was short[ (container {name} used {used})].",
        "CPU and GPU share one memory on a Spark: let the model use less of it, or stop what else holds it. The limit is the kubelet's "
        "eviction threshold (memory.available).",
        needle="low on resource: memory",
        at_any_level=True,
    ),
    failure_rule(
        r"^slurmstepd: error: Detected (?P<count>\d{1,6}) oom[_-]kill events? in (?P<step>\S{1,80}?)\.? ",
        FailureCause.HOST_OOM_KILL,
        "The kernel's OOM killer ended a part of this job ({step}), by the word of Slurm.",
        "The job's limit (--mem), or the machine, ran out of memory: ask for more of it, or let the model use less.",
        needle="slurmstepd: error: Detected ",
    ),
    failure_rule(
        r"(?P<unit>[\w@.\\-]{1,80}\.(?:service|scope|slice)): "
        r"(?:A process of this unit has been killed by the OOM killer|Failed with result 'oom-kill')",
        FailureCause.HOST_OOM_KILL,
        "The kernel's OOM killer ended a process of {unit}, by the word of systemd.",
        "The machine, or the unit's limit (MemoryMax=), ran out of memory: let the model use less of it, or stop what else holds it.",
        needle=("killed by the OOM killer", "result 'oom-kill'"),
    ),
    failure_rule(
        _KERNEL_LOG_PREFIX + r"oom-kill:constraint=(?P<which>\w{1,40}).*?task=(?P<name>[^,]{0,80}),pid=(?P<pid>\d+)",
        FailureCause.HOST_OOM_KILL,
        "The kernel's OOM killer ended {name} (process {pid}).",
        "The machine, or the container's limit, ran out of memory: let the model use less memory, or stop what else holds it.",
        needle="oom-kill:",
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*can't allocate memory: you tried to allocate(?: (?P<size>\d+) bytes)?|^MemoryError\b"
        rf"|{EXCEPTION_PREFIX}(?:std::bad_alloc)|terminate called after throwing an instance of 'std::bad_alloc'"
        rf"|^(?!.{{0,300}}(?:mlock|trying to connect)).{{0,400}}\bCannot allocate memory\b|^memory allocation of (?P<rust>\d+) bytes failed"
        rf"|{EXCEPTION_PREFIX}runtime: (?:out of memory|cannot allocate memory)|^(?:[\w.]+\.)?_?(?:Array)?MemoryError: "
        r"|^fatal error: runtime: (?:out of memory|cannot allocate memory)|^std::bad_alloc$|^FATAL ERROR: .{1,80} JavaScript heap out of memory"
        rf"|{EXCEPTION_PREFIX}(?:500 Internal Server Error: )?model requires more system memory \((?P<wants>[\d.]+ \w+)\) than is available"
        rf" \((?P<has>[\d.]+ \w+)\)",
        FailureCause.HOST_MEMORY,
        "The node had no memory left to give to the engine's own process[: {size} bytes were asked for][: {rust} bytes were "
        "asked for][: the model needs {wants}, and {has} is free].",
        "CPU and GPU share one memory on a Spark: stop what else holds memory, or make the model's share "
        f"smaller. {DROP_CACHES_REMEDY} If far more was free (free -h), a limit refused it: the container's (container.options.memory), the node's "
        "vm.overcommit_memory=2, a ulimit. Where RDMA registers memory, raise that: container.options.ulimit: memlock=-1.",
        needle=(
            *("Cannot allocate memory", "MemoryError", "can't allocate memory: you tried to allocate"),
            *("std::bad_alloc", "memory allocation of ", "runtime: out of memory", "runtime: cannot allocate"),
            *("JavaScript heap out of memory", "model requires more system memory"),
        ),
        weight=FailureWeight.CONCRETE,
    ),
)
