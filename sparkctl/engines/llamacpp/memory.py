"""The memory rule of llama-server."""

from __future__ import annotations

from sparkctl.engines.memory_estimate import (
    EstimateInput,
    MemoryEstimate,
    MemoryRule,
    estimate_cuda_context,
    list_model_parts,
)
from sparkctl.model.memory_fit import EstimatePart, EstimateSource
from sparkctl.model.text.units import GIB

_COMPUTE_BUFFER_BYTES = GIB


def build_memory_rule(subject: EstimateInput, _total: int) -> MemoryRule:
    """llama-server allocates the KV cache for its whole context at the start; its slots share it."""
    tokens = subject.words.get_count("c", "ctx-size") or (subject.layout.longest if subject.layout else None)
    cache = EstimatePart(
        name="KV cache",
        size=None,
        obtained=EstimateSource.CONFIG,
        words="neither --ctx-size nor what a token takes is known",
    )
    if tokens is not None:
        cache = subject.estimate_kv_cache(tokens)
    buffers = EstimatePart(
        name="compute buffers",
        size=_COMPUTE_BUFFER_BYTES,
        obtained=EstimateSource.ESTIMATE,
        words="its log reports them",
    )
    done = MemoryEstimate(parts=(estimate_cuda_context(), *list_model_parts(subject), cache, buffers))
    return MemoryRule(rule=lambda room, at: done)
