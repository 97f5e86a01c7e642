"""Failure rules of vLLM (0.19 to 0.33). The root is in the middle of the log, a generic line at the end."""

from __future__ import annotations

import re

from sparkctl.engines.base import FailureWeight, suspect_drafts
from sparkctl.engines.engine_flags import list_versions, load_catalogue
from sparkctl.engines.failures import COMMON_CAUSES, CRASH_FAILURES, SIGNAL_DEATHS
from sparkctl.engines.failures.library_failures import quote_asked
from sparkctl.engines.failures.memory_failures import cuda_memory_rules
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, MatchGroups, failure_rule
from sparkctl.engines.remedies import adapt_rules
from sparkctl.engines.traps import build_trap_rules
from sparkctl.model.verdict import DROP_CACHES_REMEDY, ChangeDirection, FailureCause

MEMORY_UTILIZATION_FIELD = "args.gpu-memory-utilization"
_CONTEXT_LENGTH_FIELD = "args.max-model-len"
_SPECULATION_FIELD = "args.speculative-config"
_LOWER_SHARE_REMEDY = f"Lower {MEMORY_UTILIZATION_FIELD} (it is a share of all of the node's memory)."
_SETTING_NAME = re.compile(r"\b[a-z]{1,20}(?:_[a-z\d]{1,20})+\b")
_MIN_SHARE = 0.3  # below this a smaller share does not help: something else holds the memory


def _suggest_utilization(groups: MatchGroups) -> MatchGroups:
    """Return the share that would have passed: the free memory over the total, less 0.1 GiB for fluctuation."""
    try:
        share = int((float(groups["free"]) - 0.1) / float(groups["total"]) * 100) / 100
    except (ValueError, ZeroDivisionError):
        return {}
    return {"fits": f"{share:.2f}"} if _MIN_SHARE <= share < 1 else {}


def _name_setting(groups: MatchGroups) -> MatchGroups:
    """Return the first flag of vLLM's that a message names as its setting (max_num_seqs), and what the message asks for."""
    flags = load_catalogue("vllm", list_versions("vllm")[-1]).by_name
    names = (word.replace("_", "-") for word in _SETTING_NAME.findall(groups.get("what", "")))
    flag = next((name for name in names if f"--{name}" in flags), None)
    known = {"other": ""} if flag is None else {"flag": flag} | ({} if "most" in groups else {"alone": ""})
    return {**quote_asked(groups), **known}


def _compare_free_memory(groups: MatchGroups) -> MatchGroups:
    """Return how much was free before and after, or the figure that is the same."""
    before, after = groups.get("before", ""), groups.get("after", "")
    return {"same": before} if before == after else {"freed": f"{before} free before, {after} after"}


MEMORY_FAILURES = (
    failure_rule(
        r"Free memory on device ?\S* \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than desired "
        r"GPU memory utilization \((?P<share>[\d.]+), (?P<want>[\d.]+) GiB\)",
        FailureCause.STARTUP_MEMORY_CHECK,
        "{free} of {total} GiB were free at the start, and a share of {share} needs {want} GiB.",
        "Stop what else holds memory on the node (also an engine core that an earlier start left there: sparkctl doctor finds it), "
        f"or lower {MEMORY_UTILIZATION_FIELD}[ to {{fits}}]. {DROP_CACHES_REMEDY}",
        needle="is less than desired",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        to="{fits}",
        change=ChangeDirection.LOWER,
        worked_out=_suggest_utilization,
    ),
    failure_rule(  # the same, cut off
        r"Free memory on device ?\S* \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less",
        FailureCause.STARTUP_MEMORY_CHECK,
        "{free} of {total} GiB were free at the start, less than the engine was set to take.",
        f"Stop what else holds memory on the node, or lower {MEMORY_UTILIZATION_FIELD}. {DROP_CACHES_REMEDY}",
        needle=" GiB) on startup is less",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        r"^Available KV cache memory: -(?P<short>[\d.]+ \w+)",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        f"Weights and working memory take {{short}} more than {MEMORY_UTILIZATION_FIELD} allows: nothing is left for the KV cache.",
        f"Raise {MEMORY_UTILIZATION_FIELD}, or take a smaller model or another quantization of it.",
        needle="memory: -",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        change=ChangeDirection.RAISE,
    ),
    failure_rule(  # it tells so of every start; of one whose own share is nearly all for the graphs it is why
        r"gpu-memory-utilization=(?P<share>[\d.]{1,8}) is equivalent to \S{1,40}=0\.0\d{0,6} without CUDA graph memory profiling\."
        r".*?increase --gpu-memory-utilization to (?P<more>0\.\d{1,6})",
        FailureCause.KV_CACHE_TOO_SMALL,
        f"vLLM reserves nearly all of the share {{share}} for CUDA graphs: it says to raise {MEMORY_UTILIZATION_FIELD} to {{more}}, or to set "
        "env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: 0.",
        f"Set {MEMORY_UTILIZATION_FIELD} to {{more}}, or env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: 0.",
        needle="without CUDA graph memory profiling",
        on=MEMORY_UTILIZATION_FIELD,
        to="{more}",
        at_any_level=True,
        warning=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*No available memory for the cache blocks",
        FailureCause.KV_CACHE_TOO_SMALL,
        "The weights left no room for the KV cache.",
        f"Raise {MEMORY_UTILIZATION_FIELD}, or take a smaller model.",
        needle="No available memory for the cache blocks",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        change=ChangeDirection.RAISE,
    ),
    failure_rule(
        r"To serve at least one request with the model\S* max seq len \((?P<asked>\d+)\), "
        r"\(?(?P<need>[\d.]+ GiB) KV cache is needed.*?"
        r"available KV cache memory \((?P<have>[\d.]+ GiB)\)(?:.*?maximum model length is (?P<most>\d+))?",
        FailureCause.KV_CACHE_TOO_SMALL,
        "A context of {asked} needs {need} of KV cache, and {have} is available.",
        f"Lower {_CONTEXT_LENGTH_FIELD}[ to {{most}} or less], or raise {MEMORY_UTILIZATION_FIELD}.",
        needle="To serve at least one request",
        on=_CONTEXT_LENGTH_FIELD,
        fatal=True,
        to="{most}",
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:To serve at least one request with the model|Cannot auto-fit max_model_len)",
        FailureCause.KV_CACHE_TOO_SMALL,
        "The KV cache does not hold one request of the full context.",
        f"Lower {_CONTEXT_LENGTH_FIELD}, or raise {MEMORY_UTILIZATION_FIELD}.",
        needle=("Cannot auto-fit max_model_len", "To serve at least one request with the model"),
        on=_CONTEXT_LENGTH_FIELD,
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        r"Available memory on node \d+ \((?P<free>[\d./]+) GiB\) on kv cache allocation is less than requested "
        r"memory for kv \((?P<want>[\d.]+ GiB)\)",
        FailureCause.STARTUP_MEMORY_CHECK,
        "{want} of KV cache was requested, {free} GiB was available.",
        "Ask for less KV cache, or stop what else holds memory on the node.",
        needle="on kv cache allocation is less than",
        fatal=True,
    ),
    failure_rule(
        r"Error in memory profiling\. Initial free memory (?P<before>[\d.]+ \w+), "
        r"current free memory (?P<after>[\d.]+ \w+)",
        FailureCause.MEMORY_CHANGED_DURING_START,
        "[Memory was freed by something else while vLLM measured it ({freed}).]"
        "[vLLM saw no memory taken while it measured ({same} free before and after): something else gave back as much meanwhile.]",
        "Start it again. While it starts, stop no other engine and drop no caches.",
        needle="Error in memory profiling",
        worked_out=_compare_free_memory,
        fatal=True,
    ),
    failure_rule(
        r"CUDA out of memory occurred when warming up (?P<part>\w+) with (?P<count>\d+) dummy requests",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "CUDA ran out of memory while the {part} was warmed up with {count} requests.",
        f"Lower args.max-num-seqs or {MEMORY_UTILIZATION_FIELD}.",
        needle="when warming up",
        on="args.max-num-seqs",
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    *cuda_memory_rules(_LOWER_SHARE_REMEDY, MEMORY_UTILIZATION_FIELD, fatal=True),
)
_ARGUMENT_FAILURES = (
    failure_rule(  # the same words as for the model itself
        r"validation errors? for SpeculativeConfig: .{0,200}?(?:Invalid repository ID or local directory specified|Repo id must"
        r" (?:be in the form|use alphanumeric)[^']{0,200}(?:'[^']{0,200}' or '[^']{0,200}')?)[^']{0,200}'(?P<path>[^']{0,4096}+)'",
        FailureCause.MODEL_FILES,
        "The draft model {path} is not a model: it has no config.json that the engine can read.",
        f"Correct the model in {_SPECULATION_FIELD}, or finish its download.",
        needle="for SpeculativeConfig: ",
        on=_SPECULATION_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"^(?:[\w.]+: )?KeyError: '(?P<id>(?:chat)?cmpl-[\w-]{1,80})'$",
        FailureCause.ENGINE_BUG,
        "The engine lost track of a request ({id}) and ended.",
        "A fault of this version, seen with several requests at once: take a newer or an older image.",
        needle="cmpl-",
        weight=FailureWeight.LIKELY,
        refine=suspect_drafts,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Unsupported speculative method: '(?P<method>[^']*)'",
        FailureCause.BAD_VALUE,
        "This image does not know the speculative method {method}, or not for this model.",
        f"Take a newer image; or start without drafts: remove {_SPECULATION_FIELD}.",
        needle="Unsupported speculative method",
        on=_SPECULATION_FIELD,
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested"
        rf"|{EXCEPTION_PREFIX}'\w{{1,80}}' object has no attribute '[gs]et_(?:eagle3_)?aux_hidden_state_layers'",
        FailureCause.ENGINE_BUG,
        "The model's class in this image does not hand its hidden states to the drafts (EAGLE3, DFlash).",
        "Take an image with a newer vLLM. Or patch two lines of the model's file in this one: SupportsEagle3 among the imports "
        "and the bases of its class, and mount the patched file over it (qwen3-coder-next-dflash shows how). Without drafts "
        f"it starts: leave out {_SPECULATION_FIELD}.",
        needle=("does not support EAGLE3 interface", "aux_hidden_state_layers'"),
        on=_SPECULATION_FIELD,
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}[Ss]pec(?:ulative)? decod(?:e|ing) is not supported",
        FailureCause.BAD_VALUE,
        "This model or this backend cannot be run with speculative decoding.",
        f"Remove {_SPECULATION_FIELD}.",
        needle=" is not supported",
        on=_SPECULATION_FIELD,
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*invalid (?P<kind>tool call) parser: (?P<name>\S+)",
        FailureCause.BAD_VALUE,
        "This image has no {kind} parser named {name}.",
        "Correct args.tool-call-parser; the line lists the known ones.",
        needle="invalid tool call parser: ",
        on="args.tool-call-parser",
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*invalid (?P<kind>reasoning) parser: (?P<name>\S+)",
        FailureCause.BAD_VALUE,
        "This image has no {kind} parser named {name}.",
        "Correct args.reasoning-parser; the line lists the known ones.",
        needle="invalid reasoning parser: ",
        on="args.reasoning-parser",
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*User-specified max_model_len \((?P<asked>\d+)\) is greater than the "
        r"derived max_model_len \(\w{1,60}=(?P<most>\d+)",
        FailureCause.BAD_VALUE,
        "A context of {asked} is longer than the model's {most}.",
        f"Lower {_CONTEXT_LENGTH_FIELD} to {{most}} or less.",
        needle="User-specified max_model_len",
        on=_CONTEXT_LENGTH_FIELD,
        fatal=True,
        to="{most}",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:World size|[Tt]ensor parallel size|tensor_parallel_size) \((?P<size>\d+)\) "
        r"(?:is larger than|exceeds) the number of available \w+ \((?P<have>\d+)\)",
        FailureCause.BAD_VALUE,
        "{size} GPUs are asked for, and the node has {have}.",
        "A Spark has one GPU: set args.tensor-parallel-size: 1, or name both nodes.",
        needle="the number of available ",
        on="args.tensor-parallel-size",
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Selected backend (?:AttentionBackendEnum\.)?(?P<name>\w+) is not valid for this configuration|"
        r"No valid attention backend found for).*non-causal attention not supported",
        FailureCause.ATTENTION_BACKEND,
        "DFlash drafts look ahead as well as back, which the attention backend[ {name}] does not do.",
        "Set args.attention-backend to flash_attn, which does; where the image has none, take a newer one.",
        needle="non-causal attention not supported",
        on="args.attention-backend",
        fatal=True,
        to="flash_attn",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*No valid attention backend found for \w+ with (?P<what>.*?)\. Reasons: (?P<why>.*)",
        FailureCause.ATTENTION_BACKEND,
        "No attention backend does what this model asks for on this GPU: {why}",
        "Leave out args.kv-cache-dtype and args.attention-backend, or take a newer image; the line names each backend's reason.",
        needle="No valid attention backend",
        on="args.attention-backend",
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Selected backend (?:AttentionBackendEnum\.)?(?P<name>\w+) is not valid for this configuration\. "
        r"Reason: (?P<why>(?:.*?(?P<cache>kv_cache_dtype))?.*)",
        FailureCause.ATTENTION_BACKEND,
        "The attention backend {name} does not do what is asked of it: {why}",
        "Leave out args.attention-backend: the engine then chooses.[ Or leave out args.kv-cache-dtype, its {cache}.]",
        needle="Selected backend",
        on="args.attention-backend",
        fatal=True,
        change=ChangeDirection.REMOVE,
    ),
)
_SETTING_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}'(?P<kind>dict|str)' object has no attribute '(?:is_)?kv_(?:transfer|connector|role|buffer)\w{{0,40}}'",
        FailureCause.BAD_VALUE,
        "The settings of the KV connector came as a plain {kind}.",
        "On the command line args.kv-transfer-config takes them as JSON. A program of your own gives LLM() a "
        "vllm.config.KVTransferConfig.",
        needle="' object has no attribute '",
        on="args.kv-transfer-config",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}\W?(?:[Rr]easoning (?:parser|helper):? '(?P<name>[^']{{1,80}})' not found)",
        FailureCause.BAD_VALUE,
        "This image has no reasoning parser named {name}.",
        "Correct args.reasoning-parser; a parser that comes with the model wants its file in args.reasoning-parser-plugin.",
        needle="' not found",
        on="args.reasoning-parser",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}\W?(?:[Tt]ool (?:call )?(?:parser|helper):? '(?P<name>[^']{{1,80}})' not found)",
        FailureCause.BAD_VALUE,
        "This image has no tool call parser named {name}.",
        "Correct args.tool-call-parser.",
        needle="' not found",
        on="args.tool-call-parser",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}VLLM_PORT '(?P<value>[^']{{1,200}})' appears to be a URI",
        FailureCause.BAD_VALUE,
        "VLLM_PORT is no number: {value}. Kubernetes sets it for a service that is named vllm.",
        "Give the service another name, or set enableServiceLinks: false in the pod.",
        needle="VLLM_PORT '",
        on="env.VLLM_PORT",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Cannot re-initialize (?P<what>CUDA|HIP|XPU|NPU) in forked subprocess",
        FailureCause.BAD_VALUE,
        "{what} was used before vLLM started its processes as copies (fork) of its own, and they cannot use it.",
        "Set env.VLLM_WORKER_MULTIPROC_METHOD: spawn.",
        needle="in forked subprocess",
        on="env.VLLM_WORKER_MULTIPROC_METHOD",
        to="spawn",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Hybrid KV cache manager is disabled but failed to convert",
        FailureCause.BAD_VALUE,
        "The model has layers with different kinds of KV cache, and what keeps them together is switched off.",
        "Leave out args.disable-hybrid-kv-cache-manager; a KV connector (args.kv-transfer-config) may switch it off, too.",
        needle="Hybrid KV cache manager is disabled",
        on="args.disable-hybrid-kv-cache-manager",
        change=ChangeDirection.REMOVE,
    ),
)
# The one-line form of pydantic's error (see engines.line_preparer). Matched after the common rules, which are more exact.
_VALIDATION_FAILURES = (
    failure_rule(
        r"validation errors? for SpeculativeConfig: (?:Value error, )?(?P<what>num_speculative_tokens must be provided\b.*?)"
        r"(?: \[type=.*)?$",
        FailureCause.BAD_VALUE,
        "The speculative configuration is refused: {what}",
        f"Add num_speculative_tokens to {_SPECULATION_FIELD}: begin with 1 to 3.",
        needle="for SpeculativeConfig: ",
        on=_SPECULATION_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"validation errors? for SpeculativeConfig: (?:Value error, )?(?P<what>.*?)"
        r"(?: \[type=.*?input_value=(?!ArgsKwargs)(?P<given>[^,]*).*| \[type=.*)?$",
        FailureCause.BAD_VALUE,
        "The speculative configuration is refused: {what}[ (given: {given})]",
        f"Correct {_SPECULATION_FIELD}.",
        needle="for SpeculativeConfig: ",
        on=_SPECULATION_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"validation errors? for \w+: gpu_memory_utilization: (?P<what>.*?)"
        r"(?: \[type=.*?input_value=(?P<given>[^,]*).*)?$",
        FailureCause.BAD_VALUE,
        "The memory share is refused: {what}[ (given: {given})]",
        f"Set {MEMORY_UTILIZATION_FIELD} to a share between 0 and 1.",
        needle=": gpu_memory_utilization: ",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
    ),
    failure_rule(
        r"validation errors? for \w+: (?:Value error, )?(?P<what>.*?(?: (?:\d+ through|at most|no more than) (?P<most>\d+))?)(?: \[type=.*)?$",
        FailureCause.BAD_VALUE,
        "The engine refused its settings: {what}",
        "[Set args.{flag} to {most} or less.][Correct args.{flag}{alone}.][Correct the setting it names{other}.][ The message says: {asks}]",
        needle="validation error",
        worked_out=_name_setting,
        on="args.{flag}",
        to="{most}",
        fatal=True,
    ),
    failure_rule(
        r"validation errors? for (?P<model>\w+)$",
        FailureCause.BAD_VALUE,
        "The engine refused its settings ({model}).",
        "The lines after this one name the setting.",
        needle="validation error",
        weight=FailureWeight.DYING,
    ),
)
_SILENT_WORKER_REMEDY = (
    "If there is none: dmesg -T on the node tells of the GPU (Xid) and of memory that ran out; drafts and a kernel that hangs are the other "
    "suspects (start without drafts, or with args.enforce-eager)."
)
_KERNEL_LOG_REMEDY = (
    f"Most often the machine ran out of memory: look at dmesg -T | grep -i oom on the node. {_LOWER_SHARE_REMEDY}"
)
_EXIT_FAILURES = (
    failure_rule(
        r"^Worker proc (?P<worker>\S+) died unexpectedly \(exit code: None\)",  # it was torn down: what came before counts
        FailureCause.WORKER_LOST,
        "The engine's worker {worker} is gone, and its exit code is not known.",
        _KERNEL_LOG_REMEDY,
        needle="(exit code: None)",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        weight=FailureWeight.LOST,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        r"^(?:Engine core proc (?P<name>\S+) died unexpectedly|MPClient: engine core exited unexpectedly"
        r"|(?:ERROR: |[\w.]*Error: )?Worker proc (?P<worker>\S+) died unexpectedly(?: \(exit code: (?P<code>-?\d+)\))?)"
        r"|\bFailed core proc\(s\): \{'(?P<core>\w{1,40})': (?P<end>-9)\b",
        FailureCause.WORKER_LOST,
        "The engine[{part}][ {name}][ {core}]['s worker {worker}] died without a message"
        "[ (exit code {code})][ (exit code {end})], as a killed process does.",
        _KERNEL_LOG_REMEDY,
        worked_out=lambda groups: {} if "worker" in groups else {"part": " core"},
        needle=("unexpectedly", "': -9"),
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        weight=FailureWeight.DEATH,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*RPC call to (?P<call>\w+) timed out|^RPC call to (?P<other>\w+) timed out",
        FailureCause.WEDGED,
        "The engine's worker did not answer[ ({call})][ ({other})], and this line does not say why.",
        f"The first error above it says why, or the log of another rank. {_SILENT_WORKER_REMEDY}",
        needle="RPC call to",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^TimeoutError(?:\(['\"]|: )No heartbeat received from MQLLMEngine",
        FailureCause.WEDGED,
        "The engine's process did not answer the API server in time.",
        "Raise env.VLLM_RPC_TIMEOUT (milliseconds; 10000 without it): a long prompt may keep the engine that long. If that does not help, look "
        f"for an error above. {_SILENT_WORKER_REMEDY}",
        needle="No heartbeat received from MQLLMEngine",
        on="env.VLLM_RPC_TIMEOUT",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^Engine iteration timed out\b|^(?:[\w.]+: )?Execution of the model timed out after (?P<seconds>[\d.]{1,10}) ?s",
        FailureCause.WEDGED,
        "A step of the engine did not end in time[ ({seconds} s)], and the engine gave up.",
        f"With several ranks, look at the other ones' logs and at the link between the nodes. {_SILENT_WORKER_REMEDY}",
        needle=("Engine iteration timed out", "of the model timed out after "),
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^(?:EngineCore (?:encountered a fatal error|failed to start|hit an exception)|Engine background task failed)",
        FailureCause.CRASHED,
        "The engine core ended on an error.",
        "The lines after this one name it.",
        needle=(
            "EngineCore encountered",
            "EngineCore failed",
            "EngineCore hit an exception",
            "Engine background task failed",
        ),
        fatal=True,
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"^(?:WorkerProc failed to start|WorkerProc hit an exception)",
        FailureCause.CRASHED,
        "A worker of the engine ended on an error.",
        "The lines after this one name it.",
        needle="WorkerProc",
        fatal=True,
        weight=FailureWeight.LOST,
    ),
    failure_rule(  # the core reports its workers; one that failed on an error has logged it before, one that was killed has not
        rf"{EXCEPTION_PREFIX}.*WorkerProc initialization failed",
        FailureCause.WORKER_LOST,
        "A worker of the engine ended while it started, and no line says why: it was probably killed.",
        _KERNEL_LOG_REMEDY,
        needle="WorkerProc initialization failed",
        on=MEMORY_UTILIZATION_FIELD,
        fatal=True,
        weight=FailureWeight.LOST,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Did not receive response from front-end process within (?P<time>[\w ]{{1,20}})",
        FailureCause.WORKER_LOST,
        "The engine core waited {time} for the API server, which did not answer.",
        "The API server's own lines say why: on another node, look at its log and at the link between the two.",
        needle="response from front-end process",
        fatal=True,
        weight=FailureWeight.LOST,
    ),
    failure_rule(
        r"\bFailed core proc\(s\): \{'(?P<core>\w{1,40})': (?P<code>[1-9]\d{0,2})\b",
        FailureCause.WORKER_LOST,
        "The engine core {core} ended by itself with exit code {code}, and no line says why.",
        "The first error above says why: look for it; if this log is an excerpt, diagnose the whole one.",
        needle="Failed core proc(s): {'",
        fatal=True,
        weight=FailureWeight.AFTERMATH,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Engine core initialization failed|EngineCore encountered an issue"
        r"|Engine process failed to start|(?:Engine|Background) loop (?:is not running|has errored already|is stopped))"
        r"|^(?:[\w.]+\.)?(?:Async)?EngineDeadError\b|^AsyncLLM output_handler failed|^\w{0,30}(?:Engine|LLM) is already dead, terminating"
        r"|^Got fatal signal from worker processes|^RuntimeError\('Engine process \(pid \d{1,9}\) died\b",
        FailureCause.WORKER_LOST,  # any line that names a reason has more weight
        "The engine core ended, and no line says why.",
        "The first error above says why: look for it; if this log is an excerpt, diagnose the whole one. If there is none, the process was "
        "killed, as the kernel does for memory: dmesg -T | grep -i oom on the node.",
        needle=(
            "core initialization failed",
            "RuntimeError('Engine process (pid",
            "loop is not running",
            "loop has errored already",
            "loop is stopped",
            " is already dead, terminating",
            "Got fatal signal from worker",
            "process failed to start",
            "AsyncLLM output_handler failed",
            "Core encountered an issue",
            "EngineDeadError",
        ),
        fatal=True,
        weight=FailureWeight.AFTERMATH,
    ),
)
# In 0.19.1 a worker's own error reaches the core as text: the same cause, reported again. CUDA's errors have several
# lines, and only the first is here.
_WORKER_ERROR_PATTERN = (
    rf"{EXCEPTION_PREFIX}Worker failed with error '(?P<what>.*?)(?:', please check the stack trace above.*|'?$)"
)
QUOTED_WORKER_ERROR = re.compile(_WORKER_ERROR_PATTERN)
_WORKER_ERROR_FAILURES = (
    failure_rule(
        _WORKER_ERROR_PATTERN,
        FailureCause.CRASHED,
        "A worker of the engine failed: {what}",
        "The lines before this one say where.",
        needle="Worker failed with error",
        fatal=True,
        weight=FailureWeight.DYING,
    ),
)

FAILURES = (
    build_trap_rules("vllm")
    + MEMORY_FAILURES
    + _ARGUMENT_FAILURES
    + _SETTING_FAILURES
    + SIGNAL_DEATHS
    + _EXIT_FAILURES
    + _WORKER_ERROR_FAILURES
    + adapt_rules(COMMON_CAUSES, "vllm")
    + _VALIDATION_FAILURES
    + adapt_rules(CRASH_FAILURES, "vllm")
)
