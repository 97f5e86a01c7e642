"""The memory rule of SGLang on unified memory.

``--mem-fraction-static`` is a share of what was *available* when it started, not of all memory: the KV cache gets
``left after the weights - available × (1 - share)``. From the source of 0.5.12 and 0.5.23.
"""

from __future__ import annotations

from sparkctl.engines.lint.flag_combinations import MAX_MEMORY_SHARE
from sparkctl.engines.memory_estimate import (
    AvailableMemory,
    DraftWorkspace,
    EstimateInput,
    MemoryEstimate,
    MemoryRule,
    estimate_cuda_context,
    estimate_kv_remainder,
    list_model_parts,
)
from sparkctl.engines.sglang.failures import MEMORY_FRACTION_FIELD
from sparkctl.model.memory_fit import EstimatePart, EstimateSource
from sparkctl.model.text.units import GIB, MIB, format_gib

_DEFAULT_CHUNK_TOKENS, _DEFAULT_GRAPH_BATCH = 8192, 256  # its default on a machine of 90 to 160 GB
_MIN_RESERVE_BYTES = 10240 * MIB
_HEAD_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP")
_HEAD_ALLOWANCE_BYTES, _STANDALONE_ALLOWANCE_BYTES = 4096 * MIB, 6144 * MIB
_WORKSPACE_FIRST_VERSION = (0, 5, 12)
# owners saw the workspace come first with all of them (https://al-engr.com/qwen3.6-ngram-vs-nvfp4-mtp.html)
_SPECULATIVE_SIZE_FLAGS = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")


def build_memory_rule(subject: EstimateInput, total: int) -> MemoryRule:
    """Return the memory estimate; ``total`` is all of the node's memory, on which the default share depends."""
    words = subject.words
    own = words.get_fraction("mem-fraction-static", "mem-fraction", "mem-frac")
    share = compute_default_share(subject, total) if own is None else own
    is_own = own is None

    def estimate_by_fraction(room: AvailableMemory, at: float) -> MemoryEstimate:
        return _estimate_by_fraction(subject, room, at, is_own)

    def estimate_with_workspace(room: AvailableMemory, at: float) -> MemoryEstimate:
        return _estimate_with_workspace(subject, room, at)

    if not drafts_with_model_head(subject) or subject.workspace is DraftWorkspace.NOT_TAKEN:
        return MemoryRule(rule=estimate_by_fraction, field=MEMORY_FRACTION_FIELD, share=share, safe=MAX_MEMORY_SHARE)
    is_of_those = subject.version[:3] == _WORKSPACE_FIRST_VERSION
    if subject.workspace is DraftWorkspace.TAKEN or (
        is_of_those and all(words.has_flag(flag) for flag in _SPECULATIVE_SIZE_FLAGS)
    ):
        return MemoryRule(rule=estimate_with_workspace, field=MEMORY_FRACTION_FIELD, share=share, safe=MAX_MEMORY_SHARE)
    doubt = None
    if is_of_those:
        name = (words.get_value("speculative-algorithm", "speculative-algo") or "").upper()
        doubt = (
            f"owners report images of SGLang 0.5.12 that take {name}'s draft workspace, mem-fraction-static × what CUDA has free, "
            "before the weights, and others that do not"
        )
    return MemoryRule(
        rule=estimate_by_fraction,
        field=MEMORY_FRACTION_FIELD,
        share=share,
        safe=MAX_MEMORY_SHARE,
        doubt=None if doubt is None else (estimate_with_workspace, doubt),
    )


def drafts_with_model_head(subject: EstimateInput) -> bool:
    """Tell whether it drafts with a head of the model's own kind, which needs the workspace."""
    return (subject.words.get_value("speculative-algorithm", "speculative-algo") or "").upper() in _HEAD_ALGORITHMS


def estimate_reserve(subject: EstimateInput) -> int:
    """Return what SGLang itself leaves outside of its share, for activations, graphs and drafts."""
    chunk = subject.words.get_count("chunked-prefill-size") or _DEFAULT_CHUNK_TOKENS
    batch = _get_graph_batch(subject)
    return max(
        512 * MIB + chunk * 3 * MIB // 2 + batch * 2 * MIB + 128 * MIB * subject.ranks, _MIN_RESERVE_BYTES
    ) + _get_draft_allowance(subject)


def compute_default_share(subject: EstimateInput, total: int) -> float:
    """Return the share it uses if the profile sets none."""
    return round(max(0.1, (total - estimate_reserve(subject)) / total), 3) if total else 0.1


def _get_graph_batch(subject: EstimateInput) -> int:
    words = subject.words
    if words.has_flag("disable-cuda-graph"):
        return 0
    return words.get_count("cuda-graph-max-bs", "cuda-graph-max-bs-decode") or _DEFAULT_GRAPH_BATCH


def _get_draft_allowance(subject: EstimateInput) -> int:
    name = (subject.words.get_value("speculative-algorithm", "speculative-algo") or "").upper()
    return (
        _HEAD_ALLOWANCE_BYTES
        if name in _HEAD_ALGORITHMS
        else _STANDALONE_ALLOWANCE_BYTES
        if name == "STANDALONE"
        else 0
    )


def _list_overhead_parts(subject: EstimateInput) -> tuple[EstimatePart, ...]:
    batch = _get_graph_batch(subject)
    size = batch * 2 * MIB
    found = [
        EstimatePart(
            name="CUDA graphs",
            size=size,
            obtained=EstimateSource.ESTIMATE,
            words=f"SGLang's own allowance: 2 MiB × batches up to {batch}",
        )
    ]
    if drafting := _get_draft_allowance(subject):
        found.append(
            EstimatePart(
                name="drafting",
                size=drafting,
                obtained=EstimateSource.ESTIMATE,
                words="SGLang's own allowance for a draft model",
            )
        )
    return tuple(found)


def _estimate_by_fraction(subject: EstimateInput, room: AvailableMemory, at: float, is_own: bool) -> MemoryEstimate:
    first = estimate_cuda_context()
    before = max(0, room.available - (first.size or 0))
    share = int(at * before)
    models = list_model_parts(subject, within=True)
    size = sum(one.size or 0 for one in models)
    source = "SGLang's own default" if is_own else "mem-fraction-static"
    whole = EstimatePart(
        name="share of SGLang",
        size=share,
        obtained=EstimateSource.FLAGS,
        words=f"{source} {at:g} × the {format_gib(before)} that are available when it starts",
    )
    is_known = all(one.size is not None for one in models)
    pool = (
        estimate_kv_remainder("of which KV cache", share - size, subject)
        if is_known
        else EstimatePart(name="of which KV cache", size=None, obtained=EstimateSource.FLAGS, words="", within=True)
    )
    lacking = max(0, size - share + (1 if is_known else 0))  # a KV cache needs room too; what is not known only adds
    cautions = [] if is_own or lacking else _list_reserve_cautions(subject, before - share)
    cautions += _list_context_cautions(subject, share - size) if is_known and not lacking else []
    why = f"the weights leave no room for a KV cache in a share of {format_gib(share)}" if lacking else ""
    return MemoryEstimate(
        parts=(first, whole, *models, pool, *_list_overhead_parts(subject)),
        lacking=lacking,
        why=why,
        cautions=tuple(cautions),
    )


def _estimate_with_workspace(subject: EstimateInput, room: AvailableMemory, at: float) -> MemoryEstimate:
    """The workspace comes first, a share of what CUDA has free then, and the KV cache is inside it. Owners saw about 92 of
    112 with 0.82 (https://al-engr.com/qwen3.6-ngram-vs-nvfp4-mtp.html): not of all memory."""
    first = estimate_cuda_context()
    before = max(0, room.available - (first.size or 0))
    space = EstimatePart(
        name="draft workspace with KV cache",
        size=int(at * before),
        obtained=EstimateSource.FLAGS,
        words=f"mem-fraction-static {at:g} × the {format_gib(before)} that CUDA has free, taken before the weights",
    )
    return MemoryEstimate(
        parts=(
            first,
            *list_model_parts(subject, within=False),
            space,
            *_list_overhead_parts(subject),
        )
    )


def _list_reserve_cautions(subject: EstimateInput, beyond: int) -> list[str]:
    wanted = estimate_reserve(subject)
    if beyond >= wanted - GIB // 2:
        return []
    return [
        f"mem-fraction-static leaves {format_gib(beyond)} for activations and graphs; SGLang itself would leave {format_gib(wanted)}"
    ]


def _list_context_cautions(subject: EstimateInput, pool: int) -> list[str]:
    tokens = subject.words.get_count("context-length", "context-len") or (
        subject.layout.longest if subject.layout else None
    )
    if tokens is None or (one := subject.estimate_kv_cache(tokens).size) is None or one <= pool:
        return []
    return [
        f"the KV cache gets {format_gib(max(0, pool))}, one request of {tokens:,} tokens takes {format_gib(one)}: a longer one is cut short"
    ]
