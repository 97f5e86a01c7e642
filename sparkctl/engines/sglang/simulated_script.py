"""The simulated start of SGLang 0.5.12 on a GB10, line by line as it prints them."""

from __future__ import annotations

from collections.abc import Callable, Generator

from sparkctl.engines.simulation.engine_launch import TORCH_STORE_WAIT_SECONDS, SimLaunch
from sparkctl.engines.simulation.rank_network import LossReason, RankLoss
from sparkctl.engines.simulation.script_steps import (  # fmt: skip
    LOG_TIME,
    AllocateMemoryStep,
    ExitStep,
    JoinRanksStep,
    ListenStep,
    LoadWeightsStep,
    LogStep,
    RankBarrierStep,
    Script,
    ScriptStep,
    format_bar,
    format_bar_times,
    write_lines,
)
from sparkctl.engines.simulation.torch_messages import (
    cuda_oom_message,
    gloo_closed_message,
    head_unreachable_message,
    nccl_timeout_message,
    pick_unknown_flag,
    port_in_use_message,
    store_timeout_message,
)
from sparkctl.engines.simulation.unified_memory import GIB

TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
SHARD_SECONDS = 11.0
BATCH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
GRAPHS = int(1.4 * GIB)
WORKSPACE = int(0.6 * GIB)  # of the attention of each draft step, beside the pool that the memory fraction pays for


def script_start(launch: SimLaunch, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield the start; ``available`` is MemAvailable now (on a GB10 SGLang prints it as "avail mem")."""

    def avail() -> str:
        return f"avail mem={available() / GIB:.2f} GB"

    before = available()
    yield AllocateMemoryStep(0, anonymous=int(2.1 * GIB))
    yield LogStep(14, "/usr/local/lib/python3.12/dist-packages/torch/cuda/__init__.py:283: UserWarning:")
    yield LogStep(0, "    Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.")
    yield LogStep(9, f"[{LOG_TIME}] server_args={_server_args(launch)}")
    yield LogStep(0, f"[{LOG_TIME}] Attention backend not specified. Use flashinfer backend by default.")
    yield LogStep(4, f"[{LOG_TIME}] Using default HuggingFace chat template with detected content format: openai")
    yield LogStep(7, f"{_tag(launch)} Init torch distributed begin.")
    if launch.nodes > 1:
        yield JoinRanksStep()
        yield LogStep(9, f"{_tag(launch)} CustomAllreduce is disabled because this process group spans across nodes.")
    yield LogStep(3, f"{_tag(launch)} Init torch distributed ends. elapsed=0.61 s, mem usage=0.31 GB")
    yield LogStep(
        2,
        f"{_tag(launch)} Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'",
    )
    yield from _weights(launch, avail)
    yield RankBarrierStep()
    tokens = yield from _script_kv_pool(launch, before, available, avail)
    yield from _script_cuda_graphs(launch, avail)
    if launch.draft_tokens and not launch.is_ngram:
        yield from _script_draft_model(launch, avail)
    if launch.rank > 0:
        yield LogStep(
            3, f"{_tag(launch)} Dummy health check server started in background thread at {launch.host}:{launch.port}"
        )
        return
    yield from _serve(launch, tokens, available, port_taken)


def _tag(launch: SimLaunch) -> str:
    return f"[{LOG_TIME}]" if launch.nodes == 1 else f"[{LOG_TIME} TP{launch.rank}]"


def _server_args(launch: SimLaunch) -> str:
    spec = "None"
    if launch.draft_tokens:
        spec = "'NGRAM'" if launch.is_ngram else f"'EAGLE', speculative_num_steps={launch.draft_tokens}"
    return (
        f"ServerArgs(model_path='{launch.model}', tokenizer_path='{launch.model}', host='{launch.host}', port={launch.port}, "
        f"mem_fraction_static={launch.fraction}, tp_size={launch.nodes}, nnodes={launch.nodes}, node_rank={launch.rank}, "
        f"served_model_name='{launch.served}', disaggregation_bootstrap_port=8998, speculative_algorithm={spec})"
    )


def _weights(launch: SimLaunch, avail: Callable[[], str]) -> Script:
    yield LogStep(4, f"{_tag(launch)} Load weight begin. {avail()}")
    size, total = launch.weights // launch.shards, launch.shards
    if launch.rank == 0:
        yield LogStep(1, f"\rMulti-thread loading shards:   0% Completed | 0/{total} [00:00<?, ?it/s]", end="")
    for done in range(1, total + 1):
        yield LoadWeightsStep(SHARD_SECONDS, done, total, size)
        if launch.rank == 0:
            times = format_bar_times(done, total, SHARD_SECONDS)
            yield LogStep(
                0,
                f"\rMulti-thread loading shards: {done * 100 // total:>3}% Completed | {done}/{total} {times}",
                end="",
            )
    if launch.rank == 0:
        yield LogStep(0, "")
    took, used = total * SHARD_SECONDS, launch.weights / GIB
    kind = "Qwen3_5ForConditionalGeneration" if "Qwen3." in launch.model else "Qwen3MoeForCausalLM"
    quant = "quant=fp8, " if "FP8" in launch.model else ""
    yield LogStep(
        2,
        f"{_tag(launch)} Load weight end. elapsed={took:.2f} s, type={kind}, {quant}{avail()}, mem usage={used:.2f} GB.",
    )


def _script_kv_pool(
    launch: SimLaunch, before: int, available: Callable[[], int], avail: Callable[[], str]
) -> Generator[ScriptStep, None, int]:
    """Yield the allocation of the cache; return how many tokens it holds."""
    pool = available() - int(before * (1 - launch.fraction))
    if pool <= 0:
        yield LogStep(1, f"{_tag(launch)} Scheduler hit an exception: Traceback (most recent call last):")
        yield LogStep(
            0,
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={launch.fraction}",
        )
        yield ExitStep(137)
    tokens = max(1, pool // 65536)
    yield LogStep(1, f"{_tag(launch)} Using KV cache dtype: torch.bfloat16")
    yield AllocateMemoryStep(5, gpu=pool, kv_tokens=tokens)
    half = pool / 2 / GIB
    yield LogStep(
        0, f"{_tag(launch)} KV Cache is allocated. #tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB"
    )
    yield LogStep(0, f"{_tag(launch)} Memory pool end. {avail()}")
    return tokens


def _script_cuda_graphs(launch: SimLaunch, avail: Callable[[], str]) -> Script:
    tag = _tag(launch)
    yield LogStep(6, f"{tag} Capture cuda graph begin. This can take up to several minutes. {avail()}")
    yield LogStep(0, f"{tag} Capture cuda graph bs {list(BATCH_SIZES)}")
    total = len(BATCH_SIZES)
    for done in range(total + 1):
        yield AllocateMemoryStep(6.5 if done else 0, gpu=GRAPHS // total if done else 0)
        if launch.rank == 0:
            size, free = BATCH_SIZES[max(0, total - 1 - done)], avail().removeprefix("avail mem=")
            bar = f"{done * 100 // total:>3}%|{format_bar(done, total)}| {done}/{total} {format_bar_times(done, total, 6.5)}"
            yield LogStep(0, f"\rCapturing batches (bs={size} avail_mem={free}): {bar}", end="")
    if launch.rank == 0:
        yield LogStep(0, "")
    yield LogStep(1, f"{tag} Capture cuda graph end. Time elapsed: {6.5 * total:.2f} s. mem usage=1.40 GB. {avail()}.")


def _script_draft_model(launch: SimLaunch, avail: Callable[[], str]) -> Script:
    tag = _tag(launch)
    yield LogStep(2, f"{tag} Load weight begin. {avail()}")
    yield AllocateMemoryStep(9, gpu=int(0.5 * GIB))
    yield LogStep(
        0, f"{tag} Load weight end. elapsed=9.02 s, type=Qwen3_5ForCausalLMMTP, {avail()}, mem usage=0.50 GB."
    )
    yield AllocateMemoryStep(2, gpu=launch.draft_tokens * WORKSPACE)
    yield LogStep(3, f"{tag} Capture draft cuda graph begin. This can take up to several minutes. {avail()}")
    yield LogStep(14, f"{tag} Capture draft cuda graph end. Time elapsed: 14.11 s. mem usage=0.21 GB. {avail()}.")
    yield LogStep(1, f"{tag} Capture draft extend cuda graph begin. This can take up to several minutes. {avail()}")
    yield LogStep(
        12, f"{tag} Capture draft extend cuda graph end. Time elapsed: 12.30 s. mem usage=0.18 GB. {avail()}."
    )


def _serve(launch: SimLaunch, tokens: int, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    free = available() / GIB
    yield LogStep(
        4,
        f"[{LOG_TIME}] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests=48, context_len={launch.context}, available_gpu_mem={free:.2f} GB",
    )
    yield from write_lines(
        4,
        [
            f"[{LOG_TIME}] INFO:     Started server process [1]",
            f"[{LOG_TIME}] INFO:     Waiting for application startup.",
            f"[{LOG_TIME}] INFO:     Application startup complete.",
        ],
    )
    if port_taken():
        yield LogStep(1, f"[{LOG_TIME}] {port_in_use_message(launch)}")
        yield ExitStep(1)
    yield ListenStep(ready=False)
    yield LogStep(
        0, f"[{LOG_TIME}] INFO:     Uvicorn running on http://{launch.host}:{launch.port} (Press CTRL+C to quit)"
    )
    yield LogStep(1, f'[{LOG_TIME}] INFO:     127.0.0.1:41218 - "GET /get_model_info HTTP/1.1" 200 OK', "stdout")
    pools = "full token usage: 0.00, mamba usage: 0.00" if launch.is_hybrid else "token usage: 0.00"
    usage = f"{pools}, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False"
    yield LogStep(
        6,
        f"[{LOG_TIME}] Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, {usage}, input throughput (token/s): 0.00",
    )
    yield LogStep(14, f'[{LOG_TIME}] INFO:     127.0.0.1:41226 - "POST /generate HTTP/1.1" 200 OK', "stdout")
    yield ListenStep(ready=True)
    yield LogStep(0, f"[{LOG_TIME}] The server is fired up and ready to roll!")


def script_out_of_memory(launch: SimLaunch, wanted: int, free: int, held: int) -> Script:
    """Yield the end of a start that could not allocate ``wanted`` bytes."""
    yield LogStep(0, "")  # tqdm leaves its bar
    yield LogStep(1, f"{_tag(launch)} Scheduler hit an exception: Traceback (most recent call last):")
    yield LogStep(
        0, '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process'
    )
    yield LogStep(0, "    scheduler = Scheduler(")
    yield LogStep(0, f"torch.OutOfMemoryError: {cuda_oom_message(wanted, free, held)}")
    yield LogStep(0, "")
    yield LogStep(1, f"[{LOG_TIME}] Received sigquit from a child process. It usually means the child failed.")
    yield ExitStep(1)


def script_peers_missing(launch: SimLaunch, have: int, of: int) -> Script:
    """Yield the end of a rank whose peers did not come: torch's store gives up."""
    joining = launch.joining
    assert joining is not None
    yield from _scheduler_failure(
        launch,
        head_unreachable_message(TORCH_STORE_WAIT_SECONDS, joining.main_address)
        if launch.rank
        else store_timeout_message(TORCH_STORE_WAIT_SECONDS, have, of),
    )


def script_peer_lost(launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield the end of a rank that lost another one."""
    if loss.how is LossReason.CUT:
        yield LogStep(TORCH_STORE_WAIT_SECONDS, nccl_timeout_message(launch.rank))
        yield LogStep(
            1,
            f"{_tag(launch)} Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        )
        yield LogStep(1, f"[{LOG_TIME}] Received sigquit from a child process. It usually means the child failed.")
        yield ExitStep(137)
    else:
        yield LogStep(2, "")
        yield from _scheduler_failure(launch, gloo_closed_message(loss.address))


def _scheduler_failure(launch: SimLaunch, last: str) -> Script:
    yield LogStep(0, f"{_tag(launch)} Scheduler hit an exception: Traceback (most recent call last):")
    yield LogStep(
        0, '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process'
    )
    yield LogStep(0, last)
    yield LogStep(0, "")
    yield LogStep(1, f"[{LOG_TIME}] Received sigquit from a child process. It usually means the child failed.")
    yield ExitStep(137)


def script_bad_flag(launch: SimLaunch) -> Script:
    """Yield argparse's answer to a flag that does not exist."""
    yield LogStep(11, "usage: sglang serve [-h] --model-path MODEL_PATH [--tokenizer-path TOKENIZER_PATH]")
    yield LogStep(0, "                    [--host HOST] [--port PORT] [--tp-size TENSOR_PARALLEL_SIZE]")
    yield LogStep(0, f"sglang serve: error: unrecognized arguments: {pick_unknown_flag(launch)}")
    yield ExitStep(2)


def script_shut_down(launch: SimLaunch) -> Script:
    """Yield what a SIGTERM brings: this version ends itself with SIGKILL, so a clean stop has exit code 137."""
    yield LogStep(0, f"{_tag(launch)} SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    yield LogStep(
        3, f"{_tag(launch)} Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]."
    )
    yield ExitStep(137)
