"""The memory rule of vLLM on unified memory.

``--gpu-memory-utilization`` is a share of *all* memory: the start is refused if less is available. Everything is inside
the share, except CUDA graphs before 0.21. From the source of 0.19.1, 0.32.0 and 0.33.0.
"""

from __future__ import annotations

from sparkctl.engines.lint.flag_combinations import MAX_MEMORY_SHARE
from sparkctl.engines.memory_estimate import (
    AvailableMemory,
    EstimateInput,
    MemoryEstimate,
    MemoryRule,
    estimate_cuda_context,
    estimate_kv_remainder,
    list_model_parts,
)
from sparkctl.engines.vllm.failures import MEMORY_UTILIZATION_FIELD
from sparkctl.model.memory_fit import EstimatePart, EstimateSource
from sparkctl.model.text.units import GIB, format_gib, parse_size

_CUDA_GRAPH_BYTES = int(0.7 * GIB)
_DFLASH_MARGIN_BYTES = 16 * GIB
DFLASH_MEMORY_SHARE = 0.6  # what owners of a Spark advise
DFLASH_SHARE_ADVICE = (
    "the draft model of DFlash and what grows while it serves come on top; 0.60 or less is what owners of a Spark advise, where "
    "0.85 ran out of memory twice (Qwen3-Coder-Next) and 0.7 held (Qwen3.5-35B-A3B in INT4; forums.developer.nvidia.com/t/366445)"
)
_CPU_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"  # in GiB
_GRAPHS_IN_SHARE_VERSION = (0, 21)


def build_memory_rule(subject: EstimateInput, _total: int) -> MemoryRule:
    words = subject.words
    fixed = words.get_value("kv-cache-memory-bytes", "kv-cache-memory")
    if fixed is not None:
        return MemoryRule(
            rule=lambda room, at: _estimate_fixed_cache(
                subject, fixed, "kv-cache-memory-bytes, whatever the share says"
            )
        )
    cpu_cache = subject.env.get(_CPU_CACHE_VARIABLE, "")
    if not subject.has_gpu and cpu_cache not in ("", "0"):  # with 0 the version decides
        size = f"{cpu_cache}g"
        return MemoryRule(
            rule=lambda room, at: _estimate_fixed_cache(
                subject, size, f"{_CPU_CACHE_VARIABLE}, as it runs without a GPU"
            )
        )
    own = words.get_fraction("gpu-memory-utilization", "gpu-memory-util", "device-memory-utilization")
    share = own or (0.9 if subject.version and subject.version < (0, 32) else 0.92)
    return MemoryRule(
        rule=lambda room, at: _estimate_by_share(subject, room, at),
        field=MEMORY_UTILIZATION_FIELD,
        share=share,
        most=DFLASH_MEMORY_SHARE if _read_speculative_method(subject) == "dflash" else 1.0,
        safe=MAX_MEMORY_SHARE,
    )


def _estimate_by_share(subject: EstimateInput, room: AvailableMemory, at: float) -> MemoryEstimate:
    share = int(at * room.total)
    inside = [*list_model_parts(subject, within=True), _mark_within(estimate_cuda_context())]
    if (one := _estimate_one_request(subject)) is not None:
        inside.append(_mark_within(one))
    is_known = all(each.size is not None for each in inside)
    size = sum(each.size or 0 for each in inside)
    if is_known:
        inside.append(estimate_kv_remainder("left for more KV cache", share - size, subject))
    whole = EstimatePart(
        name="share of vLLM",
        size=share,
        obtained=EstimateSource.FLAGS,
        words=f"gpu-memory-utilization {at:g} × {format_gib(room.total)}, all of the memory; it does not start with less available",
    )
    lacking, why = 0, ""
    if size > share:  # of what is known; the rest only adds to it
        lacking, why = (
            size - share,
            f"weights and one request need {format_gib(size)}, the share is {format_gib(share)}",
        )
    if share - room.available > lacking:
        lacking = share - room.available
        why = f"vLLM's own check: its share is {format_gib(share)}, available are {format_gib(room.available)}"
    cautions: tuple[str, ...] = ()
    # From the second bound on it is a warning of the flags' check, which stands there, too.
    if DFLASH_MEMORY_SHARE < at < MAX_MEMORY_SHARE and _read_speculative_method(subject) == "dflash":
        cautions = (f"gpu-memory-utilization {at:g}: {DFLASH_SHARE_ADVICE}",)
    parts = (whole, *inside, *_list_overhead_parts(subject))
    return MemoryEstimate(parts=parts, lacking=lacking, why=why, cautions=cautions)


def _estimate_fixed_cache(subject: EstimateInput, text: str, words: str) -> MemoryEstimate:
    try:
        size: int | None = parse_size(text)
    except ValueError:
        size = None
    pool = EstimatePart(name="KV cache", size=size, obtained=EstimateSource.FLAGS, words=words)
    return MemoryEstimate(
        parts=(estimate_cuda_context(), *list_model_parts(subject), pool, *_list_overhead_parts(subject))
    )


def _estimate_one_request(subject: EstimateInput) -> EstimatePart | None:
    """Return the KV cache for the longest request: vLLM does not start if one does not fit."""
    value = subject.words.get_value("max-model-len")
    tokens = subject.words.get_count("max-model-len")
    if value is not None and tokens is None:
        return None  # auto, or -1: as long as fits
    tokens = tokens or (subject.layout.longest if subject.layout else None)
    if tokens is None:
        return EstimatePart(
            name="KV cache for one request",
            size=None,
            obtained=EstimateSource.CONFIG,
            words="neither max-model-len nor its config.json is known",
        )
    return subject.estimate_kv_cache(tokens)


def _list_overhead_parts(subject: EstimateInput) -> list[EstimatePart]:
    found = []
    if subject.version and subject.version < _GRAPHS_IN_SHARE_VERSION and not subject.words.has_flag("enforce-eager"):
        words = "beyond the share before vLLM 0.21; such a start reported 0.62 GiB"
        found.append(
            EstimatePart(name="CUDA graphs", size=_CUDA_GRAPH_BYTES, obtained=EstimateSource.ESTIMATE, words=words)
        )
    if _read_speculative_method(subject) == "dflash":
        words = (
            "kept free: with 0.85 owners ran out of memory, 0.60 is what they advise; what DFlash takes is not known"
        )
        found.append(
            EstimatePart(
                name="margin for DFlash", size=_DFLASH_MARGIN_BYTES, obtained=EstimateSource.ESTIMATE, words=words
            )
        )
    return found


def _read_speculative_method(subject: EstimateInput) -> str:
    words = subject.words
    method = words.get_json("speculative-config", "sc").get("method") or words.get_value(
        "spec-method", "speculative-config.method"
    )
    return str(method or "").lower()


def _mark_within(one: EstimatePart) -> EstimatePart:
    return EstimatePart(name=one.name, size=one.size, obtained=one.obtained, words=one.words, within=True)
