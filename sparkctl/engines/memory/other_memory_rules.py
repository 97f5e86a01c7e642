"""The memory rules of llama-server, trtllm-serve, and any other program in a container."""

from __future__ import annotations

from sparkctl.engines.memory.memory_estimate import (
    AvailableMemory,
    EstimateInput,
    MemoryEstimate,
    MemoryRule,
    estimate_cuda_context,
    estimate_kv_remainder,
)
from sparkctl.engines.memory.model_weights import build_weights_part
from sparkctl.model.memory_fit import EstimatePart, EstimateSource
from sparkctl.model.text.units import GIB, format_gib

TRTLLM_SHARE_FIELD = "args.kv_cache_free_gpu_memory_fraction"
_COMPUTE_BUFFER_BYTES = GIB


def _list_model_parts(subject: EstimateInput) -> list[EstimatePart]:
    found = [build_weights_part("weights", subject.weights, subject.ranks)]
    if subject.draft is not None:
        found.append(build_weights_part("draft model", subject.draft, subject.ranks))
    return found


def build_llamacpp_rule(subject: EstimateInput) -> MemoryRule:
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
        name="compute buffers", size=_COMPUTE_BUFFER_BYTES, obtained=EstimateSource.ESTIMATE, words="its log tells them"
    )
    done = MemoryEstimate(parts=(estimate_cuda_context(), *_list_model_parts(subject), cache, buffers))
    return MemoryRule(lambda room, at: done)


def build_trtllm_rule(subject: EstimateInput) -> MemoryRule:
    """trtllm-serve gives its KV cache a share of what is free after the weights are loaded (default 0.9)."""
    words = subject.words
    own = words.get_fraction("kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction")

    def estimate_at_share(room: AvailableMemory, at: float) -> MemoryEstimate:
        first = [estimate_cuda_context(), *_list_model_parts(subject)]
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

    return MemoryRule(estimate_at_share, TRTLLM_SHARE_FIELD, own or 0.9)


def build_container_rule(subject: EstimateInput) -> MemoryRule:
    """For any other program only the profile knows."""
    whole = EstimatePart(
        name="memory", size=subject.expected, obtained=EstimateSource.PROFILE, words="memory.expected of the profile"
    )
    if subject.expected is None:
        whole = EstimatePart(
            name="memory", size=None, obtained=EstimateSource.PROFILE, words="the profile has no memory.expected"
        )
    return MemoryRule(lambda room, at: MemoryEstimate(parts=(whole,)))
