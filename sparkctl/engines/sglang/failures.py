"""Failure rules of SGLang (0.5.12 to 0.5.23). It ends itself with SIGKILL, so its exit code says nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from sparkctl.engines.base import Failure, FailureWeight
from sparkctl.engines.failures import COMMON_CAUSES, CRASH_FAILURES, SIGNAL_DEATHS
from sparkctl.engines.failures.memory_failures import cuda_memory_rules
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, MatchGroups, failure_rule
from sparkctl.engines.remedies import adapt_rules
from sparkctl.engines.traps import build_trap_rules
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.verdict import DROP_CACHES_REMEDY, ChangeDirection, FailureCause

# What failed stands behind the colon. (Memory has rules of its own.)
WRAPPED_ERROR = re.compile(r"^\w+: Capture [\w -]*graph failed: (?!.*out of memory)(?P<what>.+)")
MEMORY_FRACTION_FIELD = "args.mem-fraction-static"
_MAX_FRACTION = 0.95  # a Spark needs the rest for itself
_LOWER_FRACTION_REMEDY = f"Lower {MEMORY_FRACTION_FIELD} (it is a share of the memory that was available at the start)."

_KV_CACHE_CAUSE = FailureCause.KV_CACHE_TOO_SMALL


def _suggest_fraction(groups: MatchGroups) -> MatchGroups:
    """Return a fraction to set: two hundredths above the least one, which would leave no KV cache."""
    try:
        fraction = math.ceil(float(groups["least"]) * 100 + 2) / 100
    except (KeyError, ValueError):
        return {}
    return {"enough": f"{fraction:.2f}"} if fraction <= _MAX_FRACTION else {}


_EXAMPLE_SIZES = "args.speculative-num-draft-tokens: 20, which is steps x top-k for 5 and 4"
_TOP_K_HINT = "; speculative-eagle-topk, too, where it is not set"
UNSET_TOP_K = "not set"


def _name_missing_size(failure: Failure, facts: Mapping[EngineFactName, str]) -> Failure:
    """Return a half-set speculation with the size that is missing by the engine's own settings, if the log has them."""
    steps, wide = (facts.get(name) for name in (EngineFactName.DRAFT_STEPS, EngineFactName.DRAFT_TOP_K))
    if steps is None or wide is None or EngineFactName.DRAFT_TOKENS in facts:
        return failure
    if wide == UNSET_TOP_K:
        field, value = "args.speculative-eagle-topk", "1"
        missing = f"{field}: 1, or a wider one with speculative-num-draft-tokens"
    else:
        field, value = "args.speculative-num-draft-tokens", str(int(steps) * int(wide))
        missing = f"{field}: {value}, which is steps x top-k"
    remedy = failure.remedy.replace(_EXAMPLE_SIZES, missing).replace(_TOP_K_HINT, "")
    return replace(failure, field=field, value=value, remedy=remedy)


_MEMORY_FAILURES = (
    failure_rule(
        r"Not enough host memory available\. Requesting (?P<wants>[\d.]{1,12} GB) but only have (?P<has>[\d.]{1,12} GB) free",
        FailureCause.HOST_MEMORY,
        "The hierarchical KV cache wants {wants} of the node's memory, and {has} is free.",
        "CPU and GPU share one memory on a Spark: leave out args.enable-hierarchical-cache, or lower args.hicache-size (args.hicache-ratio).",
        needle="Not enough host memory available",
        on="args.hicache-size",
        change=ChangeDirection.LOWER,
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Not enough memory\. Please try to increase --mem-fraction-static\."
        r"(?:.*mem_fraction_static=(?P<now>[\d.]+\d))?",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "The weights left no room for the KV cache[ within a memory fraction of {now}].",
        f"Raise {MEMORY_FRACTION_FIELD}, or take a smaller model or context. (A CUDA out-of-memory error needs the opposite.)",
        needle="Not enough memory",
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        change=ChangeDirection.RAISE,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=(?P<now>[\d.]*\d)"
        r"(?:.*above (?P<least>[\d.]*\d))?",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "The weights left no room for the KV cache within a memory fraction of {now}.",
        f"Raise {MEMORY_FRACTION_FIELD}[ above {{least}}][: {{enough}} leaves some for the KV cache].",
        needle="leave no GPU memory",
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        to="{enough}",
        change=ChangeDirection.RAISE,
        worked_out=_suggest_fraction,
    ),
    failure_rule(
        r"leaves no room for the full KV pool within the available (?P<free>[\d.]+ \w+)",
        _KV_CACHE_CAUSE,
        "The sliding-window pool left no room for the KV cache in {free}.",
        f"Lower args.max-running-requests or raise {MEMORY_FRACTION_FIELD}.",
        needle="leaves no room",
        on="args.max-running-requests",
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}The memory capacity is unbalanced",
        FailureCause.STARTUP_MEMORY_CHECK,
        "The nodes of this model have unequal free memory: something else holds memory on one of them.",
        f"{DROP_CACHES_REMEDY} Stop what else runs there, start again.",
        needle="memory capacity is unbalanced",
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Capture (?:[\w-]+ )?(?:draft|MTP) [\w -]*graph failed: .*out of memory"
        rf"|{EXCEPTION_PREFIX}Capture frozen-KV MTP [\w -]*graph failed: .*out of memory",
        FailureCause.DRAFT_WORKSPACE,
        "The draft model's CUDA graphs did not fit next to the model.",
        f"{_LOWER_FRACTION_REMEDY} Or speculate without a draft model (args.speculative-algorithm: NGRAM).",
        needle="graph failed: ",
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Capture [\w -]*graph failed: .*out of memory(?:\. Tried to allocate (?P<size>[\d.]+ \w+))?",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "CUDA ran out of memory while graphs were captured[: it tried to allocate {size}].",
        f"{_LOWER_FRACTION_REMEDY} Or lower args.cuda-graph-max-bs (newer: cuda-graph-max-bs-decode).",
        needle="graph failed: ",
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    *cuda_memory_rules(_LOWER_FRACTION_REMEDY, MEMORY_FRACTION_FIELD, fatal=True),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Capture [\w -]*graph failed: (?!.*(?:kernel image|illegal instruction))(?P<what>.*)",
        FailureCause.CRASHED,
        "Capturing CUDA graphs failed: {what}",
        "The reason is the text after the colon. Without graphs it starts, slower: args.disable-cuda-graph.",
        needle="graph failed: ",
        fatal=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:\w+: )?(?:Prefill |Decode )?[Oo]ut of memory\. Try to lower your batch size",
        _KV_CACHE_CAUSE,
        "The KV cache ran full and the scheduler could not free any of it.",
        f"Lower args.max-running-requests, or raise {MEMORY_FRACTION_FIELD}.",
        needle="ut of memory. ",
        on="args.max-running-requests",
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
    failure_rule(
        r"^(?:\w+: )?alloc_req_slots runs out of memory",
        _KV_CACHE_CAUSE,
        "The scheduler ran out of request slots.",
        "Lower args.max-running-requests.",
        needle="alloc_req_slots",
        on="args.max-running-requests",
        fatal=True,
        change=ChangeDirection.LOWER,
    ),
)
_FLAG_FAILURES = (
    failure_rule(
        r"^ValueError: (?P<what>DSpark (?:could not resolve|draft requires|speculative_num_draft_tokens must).{1,200})",
        FailureCause.DRAFT_MISMATCH,
        "The draft is none for DSPARK, or its block size does not fit: {what}",
        "Take the DSpark draft that was made for exactly this model. If it is that one, set args.speculative-dspark-block-size to the block "
        "size of its config.json, and leave out args.speculative-num-draft-tokens.",
        needle="DSpark ",
        on="args.speculative-draft-model-path",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"Unknown speculative algorithm name: (?P<name>\S+)",
        FailureCause.BAD_VALUE,
        "This image has no speculative algorithm named {name}.",
        "Correct args.speculative-algorithm (EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH).",
        needle="Unknown speculative algorithm",
        on="args.speculative-algorithm",
        fatal=True,
    ),
    failure_rule(
        r"^TypeError: (?:'>' not supported between instances of|unsupported operand type\(s\) for \*:) "
        r"'NoneType' and 'int'",
        FailureCause.ENGINE_BUG,
        "Speculative decoding is only half set: of steps, top-k and draft tokens, one is given and another is missing, which "
        "SGLang 0.5.12 answers with a TypeError.",
        f"Give what is missing ({_EXAMPLE_SIZES}{_TOP_K_HINT}), and lower args.mem-fraction-static: the drafts take that share "
        "of what CUDA has free before the weights (qwen36 has 0.6). Or draft without a model: NGRAM needs none of them "
        "(args.speculative-algorithm: NGRAM, as in qwen36-ngram).",
        needle="'NoneType' and 'int'",
        on="args.speculative-num-draft-tokens",
        to="20",
        needs=EngineFactName.SPECULATIVE_METHOD,
        refine=_name_missing_size,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Only (?P<known>.*) backends are supported on Blackwell GPUs for hybrid GDN models"
        r"(?:.*attention_backend=(?P<name>\w+))?"
        rf"|{EXCEPTION_PREFIX}.*requires? one of (?P<of>.*?) attention backends?, but got"
        rf"|{EXCEPTION_PREFIX}One of the attention backends in (?P<among>.*?) is required for (?P<model>\w+), but got (?P<got>\w+)"
        rf"|{EXCEPTION_PREFIX}Invalid attention backend: (?P<wrong>\S+)"
        rf"|{EXCEPTION_PREFIX}(?P<what>.*EAGLE is not supported in (?:decode )?attention backend \w+)"
        rf"|{EXCEPTION_PREFIX}(?P<said>(?:TRTLLM|TensorRT-LLM|FlashAttention) .*(?:[Bb]ackend) .*only supported.*)",
        FailureCause.ATTENTION_BACKEND,
        "The attention backend[ {name}][ {got}][ {wrong}] does not do what this model needs on this GPU"
        "[: one of {known}][: one of {of}][: {model} wants one of {among}][: {what}][: {said}].",
        "Set args.attention-backend to one that the line names (triton works on a GB10), or leave it out.",
        needle="ackend",
        on="args.attention-backend",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*[Uu]ser-specified context_length \((?P<asked>\d+)\) is greater than the derived "
        r"context_length \((?P<most>\d+)\)",
        FailureCause.BAD_VALUE,
        "The context of {asked} is longer than the model's {most}.",
        "Lower args.context-length to {most} or less.",
        needle="context_length",
        on="args.context-length",
        fatal=True,
        to="{most}",
    ),
)
_QUANTIZATION_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*ModelOptFp8Config only supports static FP8 quantization",
        FailureCause.BAD_VALUE,
        "The weights are not FP8, as args.quantization says: the model's own files name another format.",
        "For NVFP4 weights set args.quantization: modelopt_fp4, or leave it out.",
        needle="ModelOptFp8Config only supports",
        on="args.quantization",
        to="modelopt_fp4",
    ),
)
_KERNEL_LOG_REMEDY = "Most often the machine ran out of memory: look at dmesg -T | grep -i oom on the node."
# A process of the engine prints its own error before it ends.
_CHILD_LOG_REMEDY = (
    "The first error above says why: look for it; if this log is an excerpt, diagnose the whole one. Where the model runs on several "
    "nodes, the log of another node may hold it."
)
_EXIT_FAILURES = (
    failure_rule(
        r"scheduler died during initialization \(exit code: -9\)",
        FailureCause.WORKER_LOST,
        "The scheduler was killed while it was starting.",
        f"{_KERNEL_LOG_REMEDY} {_LOWER_FRACTION_REMEDY}",
        needle="scheduler died",
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^Exit code: (?:-9|137)\b",  # after "Rank 0 scheduler is dead", in older versions
        FailureCause.WORKER_LOST,
        "The scheduler was killed while it was starting.",
        f"{_KERNEL_LOG_REMEDY} {_LOWER_FRACTION_REMEDY}",
        needle=("Exit code: -9", "Exit code: 137"),
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^Rank \d+ scheduler is dead\.|^Exit code: -\d+"
        r"|scheduler died during initialization(?: \(exit code: (?P<code>\d+)\))?",
        FailureCause.WORKER_LOST,  # any line that names a reason has more weight
        "The scheduler's process ended[ with exit code {code}] before it was ready, and no line says why.",
        _CHILD_LOG_REMEDY,
        needle=("scheduler is dead.", "Exit code: -", "scheduler died during initialization"),
        fatal=True,
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -15\.",
        FailureCause.STOPPED_BY_OTHERS,
        "{name} was told to stop (SIGTERM).",
        "Start it again if that was not meant.",
        needle="exit code -15",
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code -9\.",
        FailureCause.WORKER_LOST,
        "{name} was killed.",
        f"{_KERNEL_LOG_REMEDY} {_LOWER_FRACTION_REMEDY}",
        needle="exit code -9",
        on=MEMORY_FRACTION_FIELD,
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code (?P<code>-?\d+)",
        FailureCause.WORKER_LOST,
        "The engine's process {name} ended with exit code {code}, and no line says why.",
        _CHILD_LOG_REMEDY,
        needle="crashed with exit code",
        fatal=True,
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        rf"(?:{EXCEPTION_PREFIX}|^)TP rank (?P<rank>\d+) could finish the model loading, but there are other ranks",
        FailureCause.WORKER_LOST,
        "A rank other than {rank} did not finish loading.",
        "Look at the log of the other node.",
        needle="could finish the model loading",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^(?:Scheduler watchdog|Watchdog) timeout \((?!.{0,80}self\.soft=True)(?:self\.watchdog_timeout=(?P<seconds>[\d.]+))?",
        FailureCause.WEDGED,
        "The scheduler made no progress[ for {seconds} s], and its watchdog ended it.",
        "Look at the log of the other node if there is one; else raise args.watchdog-timeout.",
        needle="atchdog timeout (",
        on="args.watchdog-timeout",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^(?:\w+ )?(?:Scheduler|TpModelWorkerClient|DetokenizerManager|TokenizerManager|\w+) hit an exception"
        r"|^Initialization failed\. warmup error",
        FailureCause.CRASHED,
        "The engine ended on an exception.",
        "The lines after this one name it.",
        needle=("hit an exception", "Initialization failed. warmup error"),
        fatal=True,
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"Initialization failed\. Please see the error messages above|^SIGQUIT received\."
        r"|^Received sigquit from a child",
        FailureCause.CRASHED,
        "One of the engine's processes failed.",
        "The lines before this one name the reason.",
        needle=(
            "Initialization failed. Please see the error messages above",
            "Received sigquit from a child",
            "SIGQUIT received.",
        ),
        fatal=True,
        weight=FailureWeight.AFTERMATH,
    ),
)

FAILURES = (
    build_trap_rules("sglang")
    + _MEMORY_FAILURES
    + _FLAG_FAILURES
    + _QUANTIZATION_FAILURES
    + SIGNAL_DEATHS
    + _EXIT_FAILURES
    + adapt_rules(COMMON_CAUSES + CRASH_FAILURES, "sglang")
)
