"""llama-server, trtllm-serve, and whatever else runs in a container."""

from __future__ import annotations

from sparkctl.core.fit.claim import Claim, Room, Subject, Sum, context, rest
from sparkctl.core.fit.weights import part
from sparkctl.model.fit import Obtained, Part
from sparkctl.model.units import GIB, gib

TRT_FIELD = "args.kv_cache_free_gpu_memory_fraction"
_BUFFERS = GIB


def _models(subject: Subject) -> list[Part]:
    found = [part("weights", subject.weights, subject.ranks)]
    if subject.draft is not None:
        found.append(part("draft model", subject.draft, subject.ranks))
    return found


def llamacpp(subject: Subject) -> Claim:
    """llama-server takes the KV cache for its whole context at its start, shared by its slots."""
    tokens = subject.words.count("c", "ctx-size") or (subject.layout.longest if subject.layout else None)
    cache = Part("KV cache", None, Obtained.CONFIG, "neither --ctx-size nor what a token takes is known")
    if tokens is not None:
        cache = subject.cache(tokens)
    buffers = Part("compute buffers", _BUFFERS, Obtained.ESTIMATE, "its log tells them")
    done = Sum((context(), *_models(subject), cache, buffers))
    return Claim(lambda room, at: done)


def trtllm(subject: Subject) -> Claim:
    """trtllm-serve gives its KV cache a share of what is free once the weights are there (0.9 where nothing is said)."""
    words = subject.words
    own = words.share("kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction")

    def rule(room: Room, at: float) -> Sum:
        first = [context(), *_models(subject)]
        if any(one.size is None for one in first):
            return Sum((*first, Part("KV cache", None, Obtained.FLAGS, "a share of what the weights leave")))
        free = max(0, room.available - sum(one.size or 0 for one in first))
        cache = rest("KV cache", int(at * free), subject)
        words = f"kv_cache_free_gpu_memory_fraction {at:g} × the {gib(free)} that are free after the weights"
        return Sum((*first, Part(cache.name, cache.size, Obtained.FLAGS, words)))

    return Claim(rule, TRT_FIELD, own or 0.9)


def container(subject: Subject) -> Claim:
    """Of any other program only the profile knows."""
    whole = Part("memory", subject.expected, Obtained.PROFILE, "memory.expected of the profile")
    if subject.expected is None:
        whole = Part("memory", None, Obtained.PROFILE, "the profile has no memory.expected")
    return Claim(lambda room, at: Sum((whole,)))
