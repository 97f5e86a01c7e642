"""The lines that engines write while they generate, and only then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from sparkctl.engines.simulation.decode_model import CACHED, PREFILL, PROMPT, DecodeCounts, DecodeModel
from sparkctl.engines.simulation.engine_launch import SimEngineKind, SimLaunch
from sparkctl.engines.simulation.script_steps import NOW

VLLM_SECONDS = 10.0
LLAMA_SECONDS = 3.0
SGLANG_STEPS = 40
MOST_REQUESTS = 48  # that SGLang lets run at once here


async def stream_decode_lines(launch: SimLaunch, decoding: DecodeModel) -> AsyncIterator[tuple[str, str]]:
    """Yield lines with their stream, as long as somebody reads."""
    stride = _log_interval(launch)
    was_idle = True
    decoding.take_report()
    while True:
        await decoding.pace.decode_for(stride)
        done = decoding.take_report()
        idle = done.generated < 1
        if not (idle and was_idle):
            for line in _lines(launch, decoding, done, max(done.seconds, 1e-3)):
                yield line
        if not idle:
            decoding.stride = done
        was_idle = idle


def build_past_decode_lines(
    launch: SimLaunch, decoding: DecodeModel, seconds: float
) -> Iterator[tuple[float, str, str]]:
    """Yield (age in seconds, line, stream) of what a steady load has left in the log over the last ``seconds``."""
    stride = _log_interval(launch)
    for back in range(int(seconds // stride) if decoding.background else 0, 0, -1):
        done = decoding.past_counts(back * stride, stride)
        decoding.stride = done
        for line, stream in _lines(launch, decoding, done, stride):
            yield (back - 1) * stride, line, stream


def _log_interval(launch: SimLaunch) -> float:
    if launch.kind is SimEngineKind.LLAMA:
        return LLAMA_SECONDS
    return VLLM_SECONDS if launch.kind is SimEngineKind.VLLM else SGLANG_STEPS / launch.steps_per_second


def _lines(launch: SimLaunch, decoding: DecodeModel, done: DecodeCounts, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield what one stride leaves in the log; only the first rank counts."""
    if launch.rank:
        return
    idle = done.generated < 1
    if launch.kind is SimEngineKind.SGLANG and not idle:
        if done.requests:
            yield _sglang_prompt(launch), "stderr"
        yield _sglang(launch, decoding, done, seconds), "stderr"
    if launch.kind is SimEngineKind.LLAMA and not idle:
        yield from ((line, "stderr") for line in _llama(decoding, done, seconds))
    if launch.kind is SimEngineKind.VLLM:
        yield _vllm(decoding, done, seconds), "stdout"
        if launch.draft_tokens and not idle:
            yield _vllm_speculation(launch, done, seconds), "stdout"


def _llama(decoding: DecodeModel, done: DecodeCounts, seconds: float) -> Iterator[str]:
    """Yield a line for each slot at work; nothing tells of all of them."""
    for slot in range(decoding.running):
        pace = done.generated / seconds / decoding.running
        yield (
            f"{NOW} I slot print_timing: id  {slot} | task {slot} | n_gen = {pace * seconds:6.0f}, tg = {pace:6.2f} t/s, "
            f"tg_3s = {pace:6.2f} t/s"
        )


def format_cache_usage(launch: SimLaunch, tokens: int, running: int, capacity: int) -> str:
    """Return how SGLang tells what its cache holds: of a hybrid model, as Qwen3.5 and 3.6 are, both of its pools."""
    used = tokens / capacity
    if not launch.is_hybrid:
        return f"#token: {tokens}, token usage: {used:.2f}"
    states = f"mamba num: {running}, mamba usage: {running / MOST_REQUESTS:.2f}"
    return f"#full token: {tokens}, full token usage: {used:.2f}, {states}"


def _sglang_prompt(launch: SimLaunch) -> str:
    """Return the line of a request that begins: what of its prompt was not there yet."""
    new = PROMPT - CACHED
    usage = "full token usage: 0.00, mamba usage: 0.02" if launch.is_hybrid else "token usage: 0.00"
    return (
        f"[{NOW}] Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {CACHED}, {usage}, #running-req: 0, "
        f"#queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): {PREFILL:.2f}"
    )


def _sglang(launch: SimLaunch, decoding: DecodeModel, done: DecodeCounts, seconds: float) -> str:
    usage = format_cache_usage(launch, decoding.context, decoding.running, decoding.kv_tokens)
    spec = ""
    if launch.draft_tokens:
        rate = (done.length - 1) / launch.draft_tokens
        spec = f"accept len: {done.length:.2f}, accept rate: {rate:.2f}, "
    return (
        f"[{NOW}] Decode batch, #running-req: {decoding.running}, {usage}, {spec}cuda graph: True, "
        f"gen throughput (token/s): {done.generated / seconds:.2f}, #queue-req: 0"
    )


def _vllm(decoding: DecodeModel, done: DecodeCounts, seconds: float) -> str:
    hits = f"{CACHED / PROMPT * 100:.1f}" if decoding.background else "0.0"
    return (
        f"(APIServer pid=1) INFO {NOW} [loggers.py:259] Engine 000: Avg prompt throughput: "
        f"{(done.prompt - done.cached) / seconds:.1f} tokens/s, "
        f"Avg generation throughput: {done.generated / seconds:.1f} tokens/s, Running: {decoding.running} reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {decoding.context * 100 / decoding.kv_tokens:.1f}%, Prefix cache hit rate: {hits}%"
    )


def _vllm_speculation(launch: SimLaunch, done: DecodeCounts, seconds: float) -> str:
    accepted, drafted = sum(done.accepted), done.steps * launch.draft_tokens
    positions = ", ".join(f"{count / done.steps:.3f}" for count in done.accepted)
    return (
        f"(APIServer pid=1) INFO {NOW} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {1 + accepted / done.steps:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted:.0f} tokens, Drafted: {drafted:.0f} tokens, Per-position acceptance rate: {positions}, "
        f"Avg Draft acceptance rate: {accepted / drafted * 100:.1f}%"
    )
