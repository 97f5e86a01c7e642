"""The lines that engines write while they generate, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from sparkctl.sim.decoding import Counts, Decoding, by_position
from sparkctl.sim.launch import Kind, Launch
from sparkctl.sim.metrics import CONTEXT, KV_TOKENS
from sparkctl.sim.steps import NOW

VLLM_SECONDS = 10.0
SGLANG_STEPS = 40


async def decode_lines(launch: Launch, decoding: Decoding) -> AsyncIterator[tuple[str, str]]:
    """Yield lines with their stream, as long as somebody reads."""
    seconds = _stride(launch)
    before, was_idle = decoding.counts(), True
    while True:
        await asyncio.sleep(seconds / decoding.pace.decode)
        now = decoding.counts()
        done, before = now.since(before), now
        idle = done.generated < 1
        if not (idle and was_idle):
            for line in _lines(launch, decoding, done, seconds):
                yield line
        was_idle = idle


def earlier_lines(launch: Launch, decoding: Decoding, seconds: float) -> Iterator[tuple[float, str, str]]:
    """Yield (age in seconds, line, stream) of what a steady load has left in the log over the last ``seconds``."""
    stride = _stride(launch)
    tokens = decoding.rate * stride
    done = Counts(tokens, tokens * 1.7, tokens / launch.accept_length)
    for back in range(int(seconds // stride) if tokens else 0, 0, -1):
        for line, stream in _lines(launch, decoding, done, stride):
            yield (back - 1) * stride, line, stream


def _stride(launch: Launch) -> float:
    return VLLM_SECONDS if launch.kind is Kind.VLLM else SGLANG_STEPS / launch.steps_per_second


def _lines(launch: Launch, decoding: Decoding, done: Counts, seconds: float) -> Iterator[tuple[str, str]]:
    idle = done.generated < 1
    if launch.kind is Kind.SGLANG and not idle:
        yield _sglang(launch, decoding, done, seconds), "stderr"
    if launch.kind is Kind.VLLM:
        yield _vllm(decoding, done), "stdout"
        if launch.draft_tokens and not idle:
            yield _vllm_speculation(launch, done), "stdout"


def _sglang(launch: Launch, decoding: Decoding, done: Counts, seconds: float) -> str:
    tokens = decoding.running * CONTEXT
    usage = f"#token: {tokens}, token usage: {tokens / KV_TOKENS:.2f}"
    spec = ""
    if launch.draft_tokens:
        rate = (launch.accept_length - 1) / launch.draft_tokens
        spec = f"accept len: {launch.accept_length:.2f}, accept rate: {rate:.2f}, "
    speed = done.generated / seconds
    return (
        f"[{NOW}] Decode batch, #running-req: {decoding.running}, {usage}, {spec}cuda graph: True, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: 0"
    )


def _vllm(decoding: Decoding, done: Counts) -> str:
    return (
        f"(APIServer pid=1) INFO {NOW} [loggers.py:259] Engine 000: Avg prompt throughput: {done.prompt / VLLM_SECONDS:.1f} tokens/s, "
        f"Avg generation throughput: {done.generated / VLLM_SECONDS:.1f} tokens/s, Running: {decoding.running} reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {decoding.running * CONTEXT * 100 / KV_TOKENS:.1f}%, Prefix cache hit rate: 40.0%"
    )


def _vllm_speculation(launch: Launch, done: Counts) -> str:
    accepted, drafted = done.generated - done.steps, done.steps * launch.draft_tokens
    share = accepted / drafted if drafted else 0.0
    positions = ", ".join(f"{accepted:.3f}" for accepted in by_position(share, launch.draft_tokens))
    return (
        f"(APIServer pid=1) INFO {NOW} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {launch.accept_length:.2f}, "
        f"Accepted throughput: {accepted / VLLM_SECONDS:.2f} tokens/s, Drafted throughput: {drafted / VLLM_SECONDS:.2f} tokens/s, "
        f"Accepted: {accepted:.0f} tokens, Drafted: {drafted:.0f} tokens, Per-position acceptance rate: {positions}, "
        f"Avg Draft acceptance rate: {share * 100:.1f}%"
    )
