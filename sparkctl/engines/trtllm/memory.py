"""The memory rule of trtllm-serve."""

from __future__ import annotations

from sparkctl.engines.memory_estimate import (
    AvailableMemory,
    EstimateInput,
    MemoryEstimate,
    MemoryRule,
    estimate_cuda_context,
    estimate_kv_remainder,
    list_model_parts,
)
from sparkctl.engines.trtllm import ENGINE, FRACTION_FIELD
from sparkctl.model.memory_fit import EstimatePart, EstimateSource
from sparkctl.model.text.units import format_gib


def build_memory_rule(subject: EstimateInput, _total: int) -> MemoryRule:
    """trtllm-serve gives its KV cache a share of what is free after the weights are loaded (default 0.9)."""
    words = subject.words
    own = words.get_fraction(*ENGINE.share_flags)

    def estimate_at_share(room: AvailableMemory, at: float) -> MemoryEstimate:
        first = [estimate_cuda_context(), *list_model_parts(subject)]
        if any(one.size is None for one in first):
            return MemoryEstimate(
                parts=(
                    *first,
                    EstimatePart(
                        name="KV cache",
                        size=None,
                        obtained=EstimateSource.FLAGS,
                        words="a share of what the weights leave",
                    ),
                )
            )
        free = max(0, room.available - sum(one.size or 0 for one in first))
        cache = estimate_kv_remainder("KV cache", int(at * free), subject)
        words = f"kv_cache_free_gpu_memory_fraction {at:g} × the {format_gib(free)} that are free after the weights"
        return MemoryEstimate(
            parts=(*first, EstimatePart(name=cache.name, size=cache.size, obtained=EstimateSource.FLAGS, words=words))
        )

    return MemoryRule(rule=estimate_at_share, field=FRACTION_FIELD, share=own or 0.9)
