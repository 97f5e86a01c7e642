"""Why SGLang (0.5.12 to 0.5.23) fails, in its own words. It ends itself with SIGKILL: its exit code says nothing."""

from __future__ import annotations

import math

from sparkctl.engines._failures import CRASHES, KNOWN
from sparkctl.engines._failures_memory import cuda_memory
from sparkctl.engines._vocabulary import ERROR, Groups, rule
from sparkctl.engines.base import Weight
from sparkctl.model.engine_facts import FactName
from sparkctl.model.verdict import Cause, Change

FRACTION = "args.mem-fraction-static"
_MOST_FRACTION = 0.95  # a Spark needs the rest for itself
_LOWER = f"Lower {FRACTION} (it is a share of the memory that was available at the start)."

_KV = Cause.KV_CACHE_TOO_SMALL


def _viable_fraction(said: Groups) -> Groups:
    """Return a fraction to set: two hundredths above the least one, which would leave a KV cache of nothing."""
    try:
        fraction = math.ceil(float(said["least"]) * 100 + 2) / 100
    except (KeyError, ValueError):
        return {}
    return {"enough": f"{fraction:.2f}"} if fraction <= _MOST_FRACTION else {}


_MEMORY = (
    rule(
        rf"{ERROR}.*Not enough memory\. Please try to increase --mem-fraction-static\."
        r"(?:.*mem_fraction_static=(?P<now>[\d.]+\d))?",
        Cause.WEIGHTS_DO_NOT_FIT,
        "The weights left no room for the KV cache[ within a memory fraction of {now}].",
        f"Raise {FRACTION}, or take a smaller model or context. (A CUDA out-of-memory wants the opposite.)",
        needle="Not enough memory",
        on=FRACTION,
        fatal=True,
        change=Change.RAISE,
    ),
    rule(
        rf"{ERROR}.*Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=(?P<now>[\d.]*\d)"
        r"(?:.*above (?P<least>[\d.]*\d))?",
        Cause.WEIGHTS_DO_NOT_FIT,
        "The weights left no room for the KV cache within a memory fraction of {now}.",
        f"Raise {FRACTION}[ above {{least}}][: {{enough}} leaves some for the KV cache].",
        needle="leave no GPU memory",
        on=FRACTION,
        fatal=True,
        to="{enough}",
        change=Change.RAISE,
        worked_out=_viable_fraction,
    ),
    rule(
        r"leaves no room for the full KV pool within the available (?P<free>[\d.]+ \w+)",
        _KV,
        "The sliding-window pool left no room for the KV cache in {free}.",
        f"Lower args.max-running-requests or raise {FRACTION}.",
        needle="leaves no room",
        on="args.max-running-requests",
        fatal=True,
        change=Change.LOWER,
    ),
    rule(
        rf"{ERROR}The memory capacity is unbalanced",
        Cause.STARTUP_MEMORY_CHECK,
        "The nodes of this model have unequal free memory: something else holds memory on one of them.",
        "Stop what else runs there, drop the page caches on both nodes, start again.",
        needle="memory capacity is unbalanced",
        fatal=True,
    ),
    rule(
        rf"{ERROR}Capture (?:[\w-]+ )?(?:draft|MTP) [\w -]*graph failed: .*out of memory"
        rf"|{ERROR}Capture frozen-KV MTP [\w -]*graph failed: .*out of memory",
        Cause.DRAFT_WORKSPACE,
        "The draft model's CUDA graphs did not fit beside the model.",
        f"{_LOWER} Or speculate without a draft model (args.speculative-algorithm: NGRAM).",
        needle="graph failed: ",
        on=FRACTION,
        fatal=True,
        change=Change.LOWER,
    ),
    rule(
        rf"{ERROR}Capture [\w -]*graph failed: .*out of memory(?:\. Tried to allocate (?P<size>[\d.]+ \w+))?",
        Cause.CUDA_OUT_OF_MEMORY,
        "CUDA ran out of memory while graphs were captured[: it tried to allocate {size}].",
        f"{_LOWER} Or lower args.cuda-graph-max-bs (newer: cuda-graph-max-bs-decode).",
        needle="graph failed: ",
        on=FRACTION,
        fatal=True,
        change=Change.LOWER,
    ),
    *cuda_memory(_LOWER, FRACTION, fatal=True),
    rule(
        rf"{ERROR}Capture [\w -]*graph failed: (?!.*(?:kernel image|illegal instruction))(?P<what>.*)",
        Cause.CRASHED,
        "Capturing CUDA graphs failed: {what}",
        f"{_LOWER} Or lower args.cuda-graph-max-bs (newer: cuda-graph-max-bs-decode).",
        needle="graph failed: ",
        fatal=True,
        weight=Weight.LIKELY,
    ),
    rule(
        r"^(?:\w+: )?(?:Prefill |Decode )?[Oo]ut of memory\. Try to lower your batch size",
        _KV,
        "The KV cache ran full and the scheduler could not free any of it.",
        f"Lower args.max-running-requests, or raise {FRACTION}.",
        needle="ut of memory. ",
        on="args.max-running-requests",
        fatal=True,
        change=Change.LOWER,
    ),
    rule(
        r"^(?:\w+: )?alloc_req_slots runs out of memory",
        _KV,
        "The scheduler ran out of request slots.",
        "Lower args.max-running-requests.",
        needle="alloc_req_slots",
        on="args.max-running-requests",
        fatal=True,
        change=Change.LOWER,
    ),
)
_FLAGS = (
    rule(
        r"Unknown speculative algorithm name: (?P<name>\S+)",
        Cause.BAD_VALUE,
        "This image knows no speculative algorithm {name}.",
        "Correct args.speculative-algorithm (EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH).",
        needle="Unknown speculative algorithm",
        on="args.speculative-algorithm",
        fatal=True,
    ),
    rule(
        r"^TypeError: (?:'>' not supported between instances of|unsupported operand type\(s\) for \*:) "
        r"'NoneType' and 'int'",
        Cause.ENGINE_BUG,
        "Speculative decoding is set by half: of steps, top-k and draft tokens one is given and another is missing, which "
        "SGLang 0.5.12 answers with a TypeError.",
        "Either give what is missing (--set args.speculative-num-draft-tokens=20, which is steps x top-k for 5 and 4; "
        "speculative-eagle-topk, too, where it is not set), or draft without a model: NGRAM needs none of them "
        "(args.speculative-algorithm: NGRAM, as in qwen36-ngram).",
        needle="'NoneType' and 'int'",
        on="args.speculative-num-draft-tokens",
        to="20",
        needs=FactName.SPECULATIVE_METHOD,
    ),
    rule(
        rf"{ERROR}.*Only (?P<known>.*) backends are supported on Blackwell GPUs for hybrid GDN models"
        r"(?:.*attention_backend=(?P<name>\w+))?"
        rf"|{ERROR}.*requires? one of (?P<of>.*?) attention backends?, but got"
        rf"|{ERROR}One of the attention backends in (?P<among>.*?) is required for (?P<model>\w+), but got (?P<got>\w+)"
        rf"|{ERROR}Invalid attention backend: (?P<wrong>\S+)"
        rf"|{ERROR}(?P<what>.*EAGLE is not supported in (?:decode )?attention backend \w+)"
        rf"|{ERROR}(?P<said>(?:TRTLLM|TensorRT-LLM|FlashAttention) .*(?:[Bb]ackend) .*only supported.*)",
        Cause.ATTENTION_BACKEND,
        "The attention backend[ {name}][ {got}][ {wrong}] does not do what this model needs on this GPU"
        "[: one of {known}][: one of {of}][: {model} wants one of {among}][: {what}][: {said}].",
        "Set args.attention-backend to one that the line names (triton works on a GB10), or leave it out.",
        needle="ackend",
        on="args.attention-backend",
    ),
    rule(
        rf"{ERROR}.*[Uu]ser-specified context_length \((?P<asked>\d+)\) is greater than the derived "
        r"context_length \((?P<most>\d+)\)",
        Cause.BAD_VALUE,
        "The context of {asked} is longer than the model's {most}.",
        "Lower args.context-length to {most} or less.",
        needle="context_length",
        on="args.context-length",
        fatal=True,
        to="{most}",
    ),
)
_LOOK_AT_KERNEL = "Most often the machine ran out of memory: look at dmesg -T | grep -i oom on the node."
_ENDS = (
    rule(
        r"scheduler died during initialization \(exit code: -9\)",
        Cause.WORKER_LOST,
        "The scheduler was killed while it was starting.",
        f"{_LOOK_AT_KERNEL} {_LOWER}",
        needle="scheduler died",
        on=FRACTION,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"^Exit code: -9\b",  # after "Rank 0 scheduler is dead", in older versions
        Cause.WORKER_LOST,
        "The scheduler was killed while it was starting.",
        f"{_LOOK_AT_KERNEL} {_LOWER}",
        needle="Exit code: -9",
        on=FRACTION,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"^Rank \d+ scheduler is dead\.|^Exit code: -\d+",
        Cause.CRASHED,
        "The scheduler ended while it was starting.",
        "The lines before this one name the reason.",
        needle=None,
        fatal=True,
        weight=Weight.DYING,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -15\.",
        Cause.STOPPED_BY_OTHERS,
        "{name} was told to stop (SIGTERM).",
        "Start it again if that was not meant.",
        needle="exit code -15",
        weight=Weight.DYING,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -9\.",
        Cause.WORKER_LOST,
        "{name} was killed.",
        f"{_LOOK_AT_KERNEL} {_LOWER}",
        needle="exit code -9",
        on=FRACTION,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -7\.",
        Cause.CRASHED,
        "{name} died of a bus error: the container's shared memory is probably too small.",
        "Raise container.shm_size.",
        needle="exit code -7",
        on="container.shm_size",
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"^Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -4\.|scheduler died during initialization \(exit code: -4\)",
        Cause.KERNEL_UNSUPPORTED,
        "A process of the engine[ ({name})] met an instruction that this machine lacks (SIGILL).",
        "Take an image built for the Spark (linux/arm64, sm_121).",
        needle="exit code",
        on="image",
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"^Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code (?P<code>-?\d+)",
        Cause.CRASHED,
        "{name} crashed with exit code {code}.",
        "Read the log before this line.",
        needle="crashed with exit code",
        fatal=True,
        weight=Weight.DYING,
    ),
    rule(
        rf"(?:{ERROR}|^)TP rank (?P<rank>\d+) could finish the model loading, but there are other ranks",
        Cause.WORKER_LOST,
        "Another rank than {rank} did not finish loading.",
        "Look at the log of the other node.",
        needle="could finish the model loading",
        weight=Weight.DEATH,
    ),
    rule(
        r"^Scheduler watchdog timeout \((?:self\.watchdog_timeout=(?P<seconds>[\d.]+))?",
        Cause.WEDGED,
        "The scheduler stood still[ for {seconds} s] and was ended by its watchdog.",
        "Look at the log of the other node if there is one; else raise args.watchdog-timeout.",
        needle="watchdog timeout",
        on="args.watchdog-timeout",
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"^(?:\w+ )?(?:Scheduler|TpModelWorkerClient|DetokenizerManager|TokenizerManager|\w+) hit an exception"
        r"|scheduler died during initialization|^Initialization failed\. warmup error",
        Cause.CRASHED,
        "The engine ended on an exception.",
        "The lines after this one name it.",
        needle=None,
        fatal=True,
        weight=Weight.DYING,
    ),
    rule(
        r"Initialization failed\. Please see the error messages above|^SIGQUIT received\."
        r"|^Received sigquit from a child",
        Cause.CRASHED,
        "One of the engine's processes failed.",
        "The lines before this one name the reason.",
        needle=None,
        fatal=True,
        weight=Weight.AFTERMATH,
    ),
)

FAILURES = _MEMORY + _FLAGS + _ENDS + KNOWN + CRASHES
