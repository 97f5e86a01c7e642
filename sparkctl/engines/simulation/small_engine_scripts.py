"""Simulated starts of the smaller engines: llama-server, trtllm-serve, and a uvicorn application as in TTS and STT
servers.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkctl.engines.simulation.engine_launch import SimLaunch
from sparkctl.engines.simulation.rank_network import LossReason, RankLoss
from sparkctl.engines.simulation.script_steps import (
    LOG_TIME,
    AllocateMemoryStep,
    ExitStep,
    FollowHeadStep,
    FreeMemoryStep,
    JoinRanksStep,
    ListenStep,
    LoadWeightsStep,
    LogStep,
    Script,
    WatchPeersStep,
    format_bar,
    format_bar_times,
)
from sparkctl.engines.simulation.torch_messages import (
    cuda_oom_message,
    format_address,
    pick_unknown_flag,
    port_in_use_message,
)
from sparkctl.engines.simulation.unified_memory import GIB

TIME_FORMAT = "%H:%M:%S"
LLAMA_TIME_FORMAT = "%M.%S.000.000"
TRTLLM_TIME_FORMAT = "%m/%d/%Y-%H:%M:%S"


def script_llama_start(launch: SimLaunch, _available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of llama-server: no percentage, the port answers 503 while it loads."""
    yield LogStep(2, f"{LOG_TIME} I srv  llama_server: initializing ...")
    if port_taken():
        yield LogStep(
            0,
            f"{LOG_TIME} E srv         start: couldn't bind HTTP server socket, hostname: {launch.host}, port: {launch.port}",
        )
        yield LogStep(0, f"{LOG_TIME} E srv  llama_server: exiting due to HTTP server error")
        yield ExitStep(1)
    if launch.joining is not None:
        yield JoinRanksStep()
        yield WatchPeersStep()
    yield ListenStep(ready=False)
    yield LogStep(1, f"{LOG_TIME} I srv    load_model: loading model '{launch.model}'")
    for done in range(1, launch.shards + 1):
        yield LoadWeightsStep(5, done, launch.shards, launch.weights // launch.shards)
    yield AllocateMemoryStep(3, gpu=4 * GIB, kv_tokens=launch.context)
    if launch.draft_tokens:
        kind = "ngram-simple" if launch.is_ngram else "draft-mtp"
        yield LogStep(0, f"{LOG_TIME} I spec common_specu: adding speculative implementation '{kind}'")
    slots = f"initializing, n_slots = 4, n_ctx_slot = {launch.context}, kv_unified = 'true'"
    yield LogStep(0, f"{LOG_TIME} I srv    load_model: {slots}")
    yield LogStep(1, f"{LOG_TIME} I srv  llama_server: model loaded")
    yield ListenStep(ready=True)
    yield LogStep(0, f"{LOG_TIME} I srv  llama_server: listening on http://{launch.host}:{launch.port}")


def script_llama_peers_missing(launch: SimLaunch, _have: int, _of: int) -> Script:
    """Yield the end of a llama-server that does not reach one of its workers: it looks for them once."""
    joining = launch.joining
    assert joining is not None
    yield LogStep(0, f"{LOG_TIME} E Failed to connect to {format_address(joining.main_address)}")
    yield LogStep(0, 'error while handling argument "--rpc": failed to register RPC device')
    yield ExitStep(1)


def script_llama_peer_lost(_launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield the end of a llama-server that lost a worker; it notices a cut cable only by a socket timeout."""
    yield LogStep(
        0.4 if loss.how is LossReason.DIED else 924, f"{LOG_TIME} E recv failed (bytes_recv=0, size_to_recv=8)"
    )
    crashed = "Remote RPC server crashed or returned malformed response"
    yield LogStep(0, f"/app/ggml/src/ggml-rpc/ggml-rpc.cpp:519: {crashed}")
    yield ExitStep(134)


def script_rpc_start(launch: SimLaunch, _available: Callable[[], int], _port_taken: Callable[[], bool]) -> Script:
    """Yield the start of rpc-server: it waits for a llama-server, and holds the weights that it receives."""
    joining = launch.joining
    assert joining is not None
    yield LogStep(2, "Starting RPC server v3.6.0")
    yield LogStep(0, f"  endpoint       : {format_address(joining.main_address)}")
    yield LogStep(0, "  local cache    : n/a")
    yield LogStep(0, "Devices:")
    yield LogStep(0, "  CUDA0: NVIDIA GB10 (122504 MiB, 117902 MiB free)")
    yield JoinRanksStep()
    yield WatchPeersStep()
    yield LogStep(0, "Accepted client connection")
    yield FollowHeadStep()


def script_rpc_load(launch: SimLaunch) -> Script:
    """Yield what a llama-server puts on its worker."""
    for done in range(1, launch.shards + 1):
        yield LoadWeightsStep(5, done, launch.shards, launch.weights // launch.shards)
    yield AllocateMemoryStep(3, gpu=4 * GIB)


def script_rpc_peer_lost(_launch: SimLaunch, _loss: RankLoss) -> Script:
    """Yield what a worker does when its server is gone: it frees everything and waits for the next one."""
    yield LogStep(0.2, "Client connection closed")
    yield FreeMemoryStep()


def script_rpc_bad_flag(launch: SimLaunch) -> Script:
    """Yield rpc-server's answer to an option that does not exist."""
    yield LogStep(0, f"error: unknown argument: {pick_unknown_flag(launch)}")
    yield ExitStep(1)


def script_trtllm_start(launch: SimLaunch, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of trtllm-serve 1.3: the port is bound before the load, and answers after it."""
    tag, total = f"[{LOG_TIME}] [TRT-LLM] [I]", launch.shards * 50
    yield from _script_mpirun_wait(launch)
    yield LogStep(9, "[TensorRT-LLM] TensorRT-LLM version: 1.3.0rc13")
    if port_taken():
        where = f"{launch.host}:{launch.port}"
        yield LogStep(1, f"RuntimeError: Failed to bind socket to {where}: [Errno 98] Address already in use")
        yield ExitStep(1)
    yield LogStep(1, f"{tag} Using LLM with PyTorch backend")
    yield AllocateMemoryStep(12, anonymous=3 * GIB)
    for done in range(1, launch.shards + 1):
        yield LoadWeightsStep(4, done, launch.shards, launch.weights // launch.shards)
        seen = done * 50
        bar = (
            f"{seen * 100 // total:>3}%|{format_bar(seen, total)}| {seen}/{total} {format_bar_times(seen, total, 0.08)}"
        )
        yield LogStep(0, f"\rLoading weights: {bar}", end="\n" if done == launch.shards else "")
    yield LogStep(1, f"Model init total -- {launch.shards * 4 + 1:.2f}s")
    pool = int(launch.fraction * max(0, available() - 2 * GIB))
    tokens = max(1, pool // 73728)
    yield LogStep(2, f"{tag} [Autotuner] Autotuning process starts ...")
    yield LogStep(25, f"{tag} Creating CUDA graph instances for 11 batch sizes.")
    yield AllocateMemoryStep(14, gpu=pool, kv_tokens=tokens)
    allocated = f"Allocated {pool / GIB:.2f} GiB for max tokens in paged KV cache ({tokens})."
    yield LogStep(0, f"[TensorRT-LLM][INFO] [MemUsageChange] {allocated}")
    yield LogStep(0, f"{tag} max_seq_len={launch.context}, max_num_requests=64, max_num_tokens=8192, max_batch_size=64")
    yield LogStep(4, "INFO:     Started server process [41]")
    yield LogStep(0, "INFO:     Waiting for application startup.")
    yield ListenStep(ready=True)
    yield LogStep(1, "INFO:     Application startup complete.")
    yield LogStep(0, f"INFO:     Uvicorn running on http://{launch.host}:{launch.port} (Press CTRL+C to quit)")


def _script_mpirun_wait(launch: SimLaunch) -> Script:
    """Yield what comes before the engine itself on several Sparks: an sshd of each worker."""
    if launch.joining is not None:
        for place in launch.joining.places:
            yield LogStep(2, f"Waiting for sshd on {place[0]} port {place[1]}")
        yield JoinRanksStep()
        yield WatchPeersStep()


def script_trtllm_peers_missing(launch: SimLaunch, _have: int, _of: int) -> Script:
    """Yield the end of a head that reaches no sshd of a worker."""
    assert launch.joining is not None
    address, port = launch.joining.main_address
    said = f"ssh: connect to host {address} port {port}: Connection refused"
    yield LogStep(0, f"Error: cannot log in at the worker {address}: {said}")
    yield ExitStep(1)


def script_trtllm_peer_lost(_launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield mpirun's end if another Spark's daemon is gone; it notices a cut cable only by its keepalive."""
    yield LogStep(0.4 if loss.how is LossReason.DIED else 480, "-" * 74)
    yield LogStep(0, "ORTE has lost communication with a remote daemon.")
    yield ExitStep(1)


def script_mpi_start(launch: SimLaunch, _available: Callable[[], int], _port_taken: Callable[[], bool]) -> Script:
    """Yield the sshd of a worker: mpirun logs in there, and its rank does the rest."""
    assert launch.joining is not None
    address, port = launch.joining.main_address
    yield LogStep(1, f"Server listening on {address} port {port}.")
    yield JoinRanksStep()
    yield WatchPeersStep()
    yield LogStep(1, "Accepted publickey for root from 192.168.200.11 port 51122 ssh2: ED25519 SHA256:c2ltdWxhdGVk")
    yield LogStep(9, "[TensorRT-LLM] TensorRT-LLM version: 1.3.0rc13")
    yield FollowHeadStep()


def script_mpi_bad_flag(launch: SimLaunch) -> Script:
    """Yield what a worker does if its head gets an unknown flag: it ends when mpirun ends."""
    return script_mpi_start(launch, lambda: 0, lambda: False)


def script_mpi_load(launch: SimLaunch) -> Script:
    """Yield what a rank that mpirun started loads."""
    for done in range(1, launch.shards + 1):
        yield LoadWeightsStep(4, done, launch.shards, launch.weights // launch.shards)
    yield LogStep(1, f"Model init total -- {launch.shards * 4 + 1:.2f}s")
    yield AllocateMemoryStep(30, gpu=8 * GIB)


def script_mpi_peer_lost(_launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield the end of a worker whose head is gone: its daemon of mpirun ends, and the container with it."""
    yield LogStep(0.4 if loss.how is LossReason.DIED else 480, "This rank is over: mpirun's daemon ended with 1")
    yield ExitStep(1)


def script_trtllm_out_of_memory(_launch: SimLaunch, wanted: int, free: int, held: int) -> Script:
    """Yield its explanation of a start that could not allocate ``wanted`` bytes."""
    yield LogStep(0, f"torch.OutOfMemoryError: {cuda_oom_message(wanted, free, held)}")
    yield LogStep(0, "RuntimeError: Executor creation failed due to insufficient GPU memory.")
    yield LogStep(0, "")
    yield LogStep(0, "The following component could not be created: Model")
    yield LogStep(1, "RuntimeError: Executor worker returned error")
    yield ExitStep(1)


def script_trtllm_bad_flag(launch: SimLaunch) -> Script:
    """Yield click's answer to an option that does not exist."""
    yield from _script_mpirun_wait(launch)
    yield LogStep(9, "Usage: trtllm-serve serve [OPTIONS] MODEL")
    yield LogStep(0, f"Error: No such option: {pick_unknown_flag(launch)}")
    yield ExitStep(2)


def script_uvicorn_start(launch: SimLaunch, _available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of a FastAPI server with a small model."""
    yield AllocateMemoryStep(0, anonymous=GIB)
    yield LogStep(6, f"🔥 Starting Orpheus-FASTAPI Server on {launch.host}:{launch.port}")
    yield LogStep(0, "INFO:     Started server process [1]")
    yield LogStep(0, "INFO:     Waiting for application startup.")
    for done in range(1, launch.shards + 1):
        yield LoadWeightsStep(4, done, launch.shards, launch.weights // launch.shards)
    yield LogStep(3, "INFO:     Application startup complete.")
    if port_taken():
        yield LogStep(0, port_in_use_message(launch))
        yield ExitStep(1)
    yield ListenStep(ready=True)
    yield LogStep(0, f"INFO:     Uvicorn running on http://{launch.host}:{launch.port} (Press CTRL+C to quit)")


def script_llama_out_of_memory(launch: SimLaunch, wanted: int, _free: int, _held: int) -> Script:
    """Yield llama.cpp's messages when there is no memory."""
    yield LogStep(
        0,
        f"{LOG_TIME} E ggml_backend_cuda_buffer_type_alloc_buffer: allocating {wanted / 2**20:.2f} MiB on device 0: cudaMalloc failed: out of memory",
    )
    yield LogStep(0, f"{LOG_TIME} E alloc_tensor_range: failed to allocate CUDA0 buffer of size {wanted}")
    yield LogStep(0, f"{LOG_TIME} E llama_model_load: error loading model: unable to allocate CUDA0 buffer")
    yield LogStep(0, f"{LOG_TIME} E srv    load_model: failed to load model, '{launch.model}'")
    yield LogStep(0, f"{LOG_TIME} E srv  llama_server: exiting due to model loading error")
    yield ExitStep(1)


def script_llama_bad_flag(launch: SimLaunch) -> Script:
    """Yield llama-server's answer to a flag that does not exist."""
    yield LogStep(1, f"error: invalid argument: {pick_unknown_flag(launch)}")
    yield ExitStep(1)


def script_uvicorn_bad_flag(launch: SimLaunch) -> Script:
    """Yield click's answer to an option that does not exist."""
    yield LogStep(
        1,
        f"Usage: uvicorn [OPTIONS] APP\nTry 'uvicorn --help' for help.\n\nError: No such option: {pick_unknown_flag(launch)}",
    )
    yield ExitStep(2)


def script_llama_shut_down(_launch: SimLaunch) -> Script:
    """Yield llama-server's answer to a SIGTERM."""
    yield LogStep(0.2, f"{LOG_TIME} I srv    operator(): operator(): cleaning up before exit...")
    yield ExitStep(0)


def script_uvicorn_shut_down(_launch: SimLaunch) -> Script:
    """Yield the answer to a SIGTERM."""
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        yield LogStep(0.3, f"INFO:     {line}")
    yield ExitStep(0)
