"""The simulated start of vLLM 0.19.1 on a GB10, line by line as it prints them."""

from __future__ import annotations

from collections.abc import Callable

from sparkctl.engines.simulation.engine_launch import TORCH_STORE_WAIT_SECONDS, RendezvousKind, SimLaunch
from sparkctl.engines.simulation.model_files import compute_kv_bytes_per_token, get_model_architecture
from sparkctl.engines.simulation.rank_network import LossReason, RankLoss
from sparkctl.engines.simulation.script_steps import (
    LOG_TIME,
    AllocateMemoryStep,
    ExitStep,
    JoinRanksStep,
    ListenStep,
    LoadWeightsStep,
    LogStep,
    RankBarrierStep,
    Script,
    format_bar,
    format_bar_times,
)
from sparkctl.engines.simulation.torch_messages import (
    cuda_oom_message,
    format_address,
    head_unreachable_message,
    nccl_error_messages,
    nccl_timeout_message,
    pick_unknown_flag,
    store_timeout_message,
)
from sparkctl.engines.simulation.unified_memory import GIB, TOTAL_BYTES
from sparkctl.engines.vllm import simulated_ray

TIME_FORMAT = "%m-%d %H:%M:%S"
SHARD_SECONDS = 8.0
BANNER = ("", "       █     █     █▄   ▄█", " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.19.1", "  █▄█▀ █     █     █     █  model   {model}",
          "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀", "")  # fmt: skip
STORE_PORT = 29501
API, CORE = "(APIServer pid=1)", "(EngineCore pid=214)"
OVERHEAD = int(3.2 * GIB)  # activations, graphs, CUDA contexts


def start(launch: SimLaunch, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield the start; ``available`` is MemAvailable now, which is what this version calls free memory on a GB10."""
    over_ray = launch.joining is not None and launch.joining.bond is RendezvousKind.RAY
    if over_ray:
        yield from simulated_ray.start_ray(launch)
    yield AllocateMemoryStep(0, anonymous=int(2.6 * GIB))
    if launch.rank:
        yield from _script_worker(launch, available)
        return
    for line in BANNER:
        yield _log_api(16 if line == "" else 0, "utils.py:299", line.format(model=launch.model))
    yield _log_api(0, "utils.py:233", f"non-default args: {_arguments(launch)}")
    if port_taken():
        yield from _port_in_use()
    yield _log_api(6, "model.py:549", f"Resolved architecture: {get_model_architecture(launch.model)}")
    yield _log_api(0, "model.py:1678", f"Using max model len {launch.context}")
    yield _log_api(0, "vllm.py:790", "Asynchronous scheduling is enabled.")
    yield _log_core(
        14,
        "core.py:105",
        f"Initializing a V1 LLM engine (v0.19.1) with config: model='{launch.model}', dtype=torch.bfloat16",
    )
    if over_ray:
        yield from simulated_ray.connect_workers(launch)
    elif launch.joining is not None:
        place = launch.joining.main_address[0]
        group = f"DP group leader: node_rank=0, node_rank_within_dp=0, master_addr={place}, mq_connect_ip={place} (local), world_size={launch.nodes}, local_world_size=1"
        yield _log_core(1, "multiproc_executor.py:153", group)
    yield from _script_rendezvous(launch, waits=not over_ray)
    wanted = int(TOTAL_BYTES * launch.fraction)
    if available() < wanted:
        yield from _script_kv_cache_too_small(launch, wanted, available())
    yield from _weights(launch)
    yield RankBarrierStep()
    yield from _compile_and_capture(launch, wanted)
    yield from _serve(launch)


def _script_rendezvous(launch: SimLaunch, *, waits: bool) -> Script:
    """Yield how the ranks connect: with torch's store a rank waits here for the others, without a log line."""
    joining = launch.joining
    place = "127.0.0.1:29501" if joining is None else format_address((joining.main_address[0], STORE_PORT))
    for rank in range(launch.nodes) if not waits else (launch.rank,):
        world = f"world_size={launch.nodes} rank={rank} local_rank=0 distributed_init_method=tcp://{place} backend=nccl"
        others = "(RayWorkerWrapper pid=612) " if rank and not waits else ""
        yield LogStep(2, f"{_tag(launch)} {others}INFO {LOG_TIME} [parallel_state.py:1400] {world}", "stdout")
    if waits and joining is not None:
        yield JoinRanksStep()


def _script_worker(launch: SimLaunch, available: Callable[[], int]) -> Script:
    """Yield a worker's start without Ray: it loads, and logs no more. It has no port."""
    joining = launch.joining
    place = "" if joining is None else format_address(joining.main_address)
    yield LogStep(
        18,
        f"(MainProcess pid=1) INFO {LOG_TIME} [serve.py:194] Launching vLLM (v0.19.1) headless multiproc executor, with head node address {place} for torch.distributed process group.",
        "stdout",
    )
    yield from _script_rendezvous(launch, waits=True)
    wanted = int(TOTAL_BYTES * launch.fraction)
    if available() < wanted:
        yield from _script_kv_cache_too_small(launch, wanted, available())
    yield from _weights(launch)
    yield RankBarrierStep()
    yield AllocateMemoryStep(54, gpu=max(0, wanted - launch.weights - OVERHEAD // 2))


def _tag(launch: SimLaunch) -> str:
    return f"(Worker_TP{launch.rank} pid=214)" if launch.rank else CORE


def _log_api(after: float, place: str, text: str) -> LogStep:
    return LogStep(after, f"{API} INFO {LOG_TIME} [{place}] {text}", "stdout")


def _log_core(after: float, place: str, text: str) -> LogStep:
    return _log_line(CORE, after, place, text)


def _log_line(tag: str, after: float, place: str, text: str) -> LogStep:
    return LogStep(after, f"{tag} INFO {LOG_TIME} [{place}] {text}", "stdout")


def _arguments(launch: SimLaunch) -> dict[str, object]:
    given: dict[str, object] = {
        "model_tag": launch.model,
        "host": launch.host,
        "port": launch.port,
        "model": launch.model,
    }
    given |= {
        "max_model_len": launch.context,
        "served_model_name": [launch.served],
        "gpu_memory_utilization": launch.fraction,
    }
    if launch.draft_tokens:
        given["speculative_config"] = {"method": "mtp", "num_speculative_tokens": launch.draft_tokens}
    return given


def _weights(launch: SimLaunch) -> Script:
    total, size = launch.shards, launch.weights // launch.shards
    tag = _tag(launch)
    yield _log_line(tag, 3, "gpu_model_runner.py:4735", f"Starting to load model {launch.model}...")
    backends = "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER']"
    yield _log_line(tag, 1, "cuda.py:301", backends)
    if "NVFP4" in launch.model.upper():
        yield _log_line(tag, 0, "nvfp4_utils.py:78", "Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM")
    for done in range(total + 1):
        if done:
            yield LoadWeightsStep(SHARD_SECONDS, done, total, size)
        if not launch.rank:  # the others draw no bar
            times = format_bar_times(done, total, SHARD_SECONDS)
            yield LogStep(
                0 if done else 2,
                f"{CORE} \rLoading safetensors checkpoint shards: {done * 100 // total:>3}% Completed | {done}/{total} {times}",
            )
    if not launch.rank:
        yield LogStep(0, f"{CORE} ")
    took = total * SHARD_SECONDS
    yield _log_line(tag, 1, "default_loader.py:384", f"Loading weights took {took:.2f} seconds")
    size_text = f"{launch.weights / GIB:.2f} GiB memory and {took + 2.4:.6f} seconds"
    yield _log_line(tag, 1, "gpu_model_runner.py:4820", f"Model loading took {size_text}")


def _compile_and_capture(launch: SimLaunch, wanted: int) -> Script:
    cache = "/root/.cache/vllm/torch_compile_cache/4be19bd0a2/rank_0_0/backbone"
    yield _log_core(6, "backends.py:988", f"Using cache directory: {cache} for vLLM's torch.compile")
    yield _log_core(7, "backends.py:1048", "Dynamo bytecode transform time: 6.82 s")
    yield _log_core(27, "backends.py:391", "Compiling a graph for compile range (1, 8192) takes 26.91 s")
    yield _log_core(4, "monitor.py:48", "torch.compile took 35.40 s in total")
    yield _log_core(2, "monitor.py:76", "Initial profiling/warmup run took 1.40 s")
    pool = wanted - launch.weights - OVERHEAD
    yield _log_core(2, "gpu_worker.py:456", f"Available KV cache memory: {pool / GIB:.2f} GiB")
    if pool <= 0:
        message = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
        yield from _core_failure(f"ValueError: {message}")
    tokens = pool * launch.nodes // compute_kv_bytes_per_token(launch.model) // 16 * 16
    yield _log_core(0, "kv_cache_utils.py:1319", f"GPU KV cache size: {tokens:,} tokens")
    concurrency = f"Maximum concurrency for {launch.context:,} tokens per request: {tokens / launch.context:.2f}x"
    yield _log_core(0, "kv_cache_utils.py:1324", concurrency)
    yield AllocateMemoryStep(5, gpu=pool, kv_tokens=tokens)
    for name, total in (("mixed prefill-decode, PIECEWISE", 19), ("decode, FULL", 11)):
        for done in range(total + 1):
            bar = f"{done * 100 // total:>3}%|{format_bar(done, total)}| {done}/{total} {format_bar_times(done, total, 0.9)}"
            prefix = "" if done else f"{CORE} "
            yield LogStep(0.9 if done else 0, f"{prefix}\rCapturing CUDA graphs ({name}): {bar}", end="")
        yield AllocateMemoryStep(0, gpu=OVERHEAD // 2)
        yield LogStep(0, "")
    yield _log_core(1, "gpu_model_runner.py:6018", "Graph capturing finished in 27 secs, took 0.62 GiB")
    yield _log_core(1, "core.py:283", "init engine (profile, create kv cache, warmup model) took 84.63 seconds")


def _serve(launch: SimLaunch) -> Script:
    yield _log_api(3, "api_server.py:592", "Supported tasks: ['generate']")
    yield _log_api(1, "api_server.py:596", f"Starting vLLM server on http://{launch.host}:{launch.port}")
    yield _log_api(0, "launcher.py:37", "Available routes are:")
    for path, methods in (("/openapi.json", "GET, HEAD"), ("/health", "GET"), ("/metrics", "GET"), ("/v1/models", "GET"),
                          ("/v1/completions", "POST"), ("/v1/chat/completions", "POST")):  # fmt: skip
        yield _log_api(0, "launcher.py:46", f"Route: {path}, Methods: {methods}")
    yield LogStep(1, f"{API} INFO:     Started server process [1]")
    yield LogStep(0, f"{API} INFO:     Waiting for application startup.")
    yield ListenStep(ready=True)
    yield LogStep(0, f"{API} INFO:     Application startup complete.")


def _script_kv_cache_too_small(launch: SimLaunch, wanted: int, free: int) -> Script:
    yield from _core_failure(
        f"ValueError: Free memory on device cuda:0 ({free / GIB:.2f}/121.69 GiB) on startup is less than desired GPU memory "
        f"utilization ({launch.fraction}, {wanted / GIB:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used "
        "by other processes."
    )


def _port_in_use() -> Script:
    yield LogStep(1, f"{API} Traceback (most recent call last):")
    yield LogStep(0, f'{API}   File "/usr/local/bin/vllm", line 10, in <module>')
    yield LogStep(0, f"{API}     sys.exit(main())")
    yield LogStep(0, f"{API} OSError: [Errno 98] Address already in use")
    yield ExitStep(1)


def _core_failure(*last: str) -> Script:
    yield LogStep(1, f"{CORE} ERROR {LOG_TIME} [core.py:1108] EngineCore failed to start.", "stdout")
    for line in ("Traceback (most recent call last):", *last):
        yield LogStep(0, f"{CORE} ERROR {LOG_TIME} [core.py:1108] {line}", "stdout")
    yield LogStep(
        1, f"{API} RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}"
    )
    yield ExitStep(1)


def alone(launch: SimLaunch, have: int, of: int) -> Script:
    """Yield the end of a rank whose peers did not come."""
    joining = launch.joining
    if joining is not None and joining.bond is RendezvousKind.RAY:
        yield from _core_failure(simulated_ray.report_missing_workers(launch))
    elif launch.rank:
        assert joining is not None
        yield LogStep(
            0, f"{_tag(launch)} ERROR {LOG_TIME} [multiproc_executor.py:772] WorkerProc failed to start.", "stdout"
        )
        yield LogStep(
            0,
            f"{_tag(launch)} ERROR {LOG_TIME} [multiproc_executor.py:772] {head_unreachable_message(TORCH_STORE_WAIT_SECONDS, joining.main_address)}",
            "stdout",
        )
        yield ExitStep(1)
    else:
        yield from _core_failure(store_timeout_message(TORCH_STORE_WAIT_SECONDS, have, of))


def apart(launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield the end of a rank that lost another one."""
    joining = launch.joining
    if joining is not None and joining.bond is RendezvousKind.RAY:
        if loss.how is LossReason.RAISED:
            yield from _core_failure(*simulated_ray.format_worker_error(loss))
        yield from simulated_ray.report_lost_worker(loss.address)
        yield from _core_failure(*simulated_ray.actor_died(loss.address))
    elif loss.how is LossReason.CUT:
        yield LogStep(TORCH_STORE_WAIT_SECONDS, f"{_tag(launch)} {nccl_timeout_message(launch.rank)}")
        yield from _end_of(launch, "RuntimeError: cancelled")
    else:
        yield LogStep(6, "")
        yield from _end_of(launch, *nccl_error_messages())


def _end_of(launch: SimLaunch, *lines: str) -> Script:
    if launch.rank == 0:
        yield from _core_failure(*lines)
        return
    for line in ("WorkerProc hit an exception.", *lines):
        yield LogStep(0, f"{_tag(launch)} ERROR {LOG_TIME} [multiproc_executor.py:918] {line}", "stdout")
    yield ExitStep(1)


def out_of_memory(_launch: SimLaunch, wanted: int, free: int, held: int) -> Script:
    """Yield the end of a start that could not allocate ``wanted`` bytes."""
    yield from _core_failure(f"torch.OutOfMemoryError: {cuda_oom_message(wanted, free, held)}")


def bad_flag(launch: SimLaunch) -> Script:
    """Yield argparse's answer to a flag that does not exist."""
    yield LogStep(9, "usage: vllm [-h] [-v]")
    yield LogStep(0, "            {chat,complete,serve,launch,bench,collect-env,run-batch} ...")
    yield LogStep(0, f"vllm: error: unrecognized arguments: {pick_unknown_flag(launch)}")
    yield ExitStep(2)


def farewell(_launch: SimLaunch) -> Script:
    """Yield the answer to a SIGTERM."""
    yield _log_core(0, "core.py:1210", "Shutdown initiated (timeout=0)")
    yield _log_core(2, "core.py:1233", "Shutdown complete")
    for line in (
        "Shutting down",
        "Waiting for application shutdown.",
        "Application shutdown complete.",
        "Finished server process [1]",
    ):
        yield LogStep(0, f"{API} INFO:     {line}")
    yield ExitStep(0)
