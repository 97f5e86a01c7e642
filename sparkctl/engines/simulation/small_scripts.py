"""Starts of the smaller engines: llama-server, and a uvicorn application as TTS and STT servers are."""

from __future__ import annotations

from collections.abc import Callable

from sparkctl.engines.simulation.engine_launch import SimLaunch
from sparkctl.engines.simulation.rank_network import LossReason, RankLoss
from sparkctl.engines.simulation.script_steps import (
    NOW,
    Depend,
    Exit,
    Follow,
    Free,
    Grow,
    Join,
    Listen,
    Load,
    Say,
    Script,
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
LLAMA_TIME = "%M.%S.000.000"
TRTLLM_TIME = "%m/%d/%Y-%H:%M:%S"


def script_start(launch: SimLaunch, _available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of llama-server: no percentage, the port answers 503 while it loads."""
    yield Say(2, f"{NOW} I srv  llama_server: initializing ...")
    if port_taken():
        yield Say(
            0,
            f"{NOW} E srv         start: couldn't bind HTTP server socket, hostname: {launch.host}, port: {launch.port}",
        )
        yield Say(0, f"{NOW} E srv  llama_server: exiting due to HTTP server error")
        yield Exit(1)
    if launch.joining is not None:
        yield Join()
        yield Depend()
    yield Listen(ready=False)
    yield Say(1, f"{NOW} I srv    load_model: loading model '{launch.model}'")
    for done in range(1, launch.shards + 1):
        yield Load(5, done, launch.shards, launch.weights // launch.shards)
    yield Grow(3, gpu=4 * GIB, kv_tokens=launch.context)
    if launch.draft_tokens:
        kind = "ngram-simple" if launch.is_ngram else "draft-mtp"
        yield Say(0, f"{NOW} I spec common_specu: adding speculative implementation '{kind}'")
    slots = f"initializing, n_slots = 4, n_ctx_slot = {launch.context}, kv_unified = 'true'"
    yield Say(0, f"{NOW} I srv    load_model: {slots}")
    yield Say(1, f"{NOW} I srv  llama_server: model loaded")
    yield Listen(ready=True)
    yield Say(0, f"{NOW} I srv  llama_server: listening on http://{launch.host}:{launch.port}")


def alone_llama(launch: SimLaunch, _have: int, _of: int) -> Script:
    """Yield the end of a llama-server that does not reach one of its workers: it looks for them once."""
    joining = launch.joining
    assert joining is not None
    yield Say(0, f"{NOW} E Failed to connect to {format_address(joining.place)}")
    yield Say(0, 'error while handling argument "--rpc": failed to register RPC device')
    yield Exit(1)


def apart_llama(_launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield the end of a llama-server that lost a worker; nothing tells it that a cable is gone but a socket that times out."""
    yield Say(0.4 if loss.how is LossReason.DIED else 924, f"{NOW} E recv failed (bytes_recv=0, size_to_recv=8)")
    crashed = "Remote RPC server crashed or returned malformed response"
    yield Say(0, f"/app/ggml/src/ggml-rpc/ggml-rpc.cpp:519: {crashed}")
    yield Exit(134)


def script_rpc_start(launch: SimLaunch, _available: Callable[[], int], _port_taken: Callable[[], bool]) -> Script:
    """Yield the start of rpc-server: it waits for a llama-server, and holds what that sends it."""
    joining = launch.joining
    assert joining is not None
    yield Say(2, "Starting RPC server v3.6.0")
    yield Say(0, f"  endpoint       : {format_address(joining.place)}")
    yield Say(0, "  local cache    : n/a")
    yield Say(0, "Devices:")
    yield Say(0, "  CUDA0: NVIDIA GB10 (122504 MiB, 117902 MiB free)")
    yield Join()
    yield Depend()
    yield Say(0, "Accepted client connection")
    yield Follow()


def script_rpc_load(launch: SimLaunch) -> Script:
    """Yield what a llama-server puts on its worker."""
    for done in range(1, launch.shards + 1):
        yield Load(5, done, launch.shards, launch.weights // launch.shards)
    yield Grow(3, gpu=4 * GIB)


def script_rpc_peer_lost(_launch: SimLaunch, _loss: RankLoss) -> Script:
    """Yield what a worker does when its server is gone: it gives everything back and waits for the next."""
    yield Say(0.2, "Client connection closed")
    yield Free()


def bad_flag_rpc(launch: SimLaunch) -> Script:
    """Yield rpc-server's answer to an option that does not exist."""
    yield Say(0, f"error: unknown argument: {pick_unknown_flag(launch)}")
    yield Exit(1)


def start_trtllm(launch: SimLaunch, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of trtllm-serve 1.3: the port is bound before the load, and answers after it."""
    tag, total = f"[{NOW}] [TRT-LLM] [I]", launch.shards * 50
    yield from _by_mpirun(launch)
    yield Say(9, "[TensorRT-LLM] TensorRT-LLM version: 1.3.0rc13")
    if port_taken():
        where = f"{launch.host}:{launch.port}"
        yield Say(1, f"RuntimeError: Failed to bind socket to {where}: [Errno 98] Address already in use")
        yield Exit(1)
    yield Say(1, f"{tag} Using LLM with PyTorch backend")
    yield Grow(12, anonymous=3 * GIB)
    for done in range(1, launch.shards + 1):
        yield Load(4, done, launch.shards, launch.weights // launch.shards)
        seen = done * 50
        bar = (
            f"{seen * 100 // total:>3}%|{format_bar(seen, total)}| {seen}/{total} {format_bar_times(seen, total, 0.08)}"
        )
        yield Say(0, f"\rLoading weights: {bar}", end="\n" if done == launch.shards else "")
    yield Say(1, f"Model init total -- {launch.shards * 4 + 1:.2f}s")
    pool = int(launch.fraction * max(0, available() - 2 * GIB))
    tokens = max(1, pool // 73728)
    yield Say(2, f"{tag} [Autotuner] Autotuning process starts ...")
    yield Say(25, f"{tag} Creating CUDA graph instances for 11 batch sizes.")
    yield Grow(14, gpu=pool, kv_tokens=tokens)
    allocated = f"Allocated {pool / GIB:.2f} GiB for max tokens in paged KV cache ({tokens})."
    yield Say(0, f"[TensorRT-LLM][INFO] [MemUsageChange] {allocated}")
    yield Say(0, f"{tag} max_seq_len={launch.context}, max_num_requests=64, max_num_tokens=8192, max_batch_size=64")
    yield Say(4, "INFO:     Started server process [41]")
    yield Say(0, "INFO:     Waiting for application startup.")
    yield Listen(ready=True)
    yield Say(1, "INFO:     Application startup complete.")
    yield Say(0, f"INFO:     Uvicorn running on http://{launch.host}:{launch.port} (Press CTRL+C to quit)")


def _by_mpirun(launch: SimLaunch) -> Script:
    """Yield what comes before the engine itself where several Sparks carry it: a sshd of each worker."""
    if launch.joining is not None:
        for place in launch.joining.places:
            yield Say(2, f"Waiting for sshd on {place[0]} port {place[1]}")
        yield Join()
        yield Depend()


def alone_trtllm(launch: SimLaunch, _have: int, _of: int) -> Script:
    """Yield the end of a head that reaches no sshd of a worker."""
    assert launch.joining is not None
    address, port = launch.joining.place
    said = f"ssh: connect to host {address} port {port}: Connection refused"
    yield Say(0, f"Error: cannot log in at the worker {address}: {said}")
    yield Exit(1)


def apart_trtllm(_launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield mpirun's end where another Spark's daemon is gone; of a cable that is, only its keepalive tells it."""
    yield Say(0.4 if loss.how is LossReason.DIED else 480, "-" * 74)
    yield Say(0, "ORTE has lost communication with a remote daemon.")
    yield Exit(1)


def start_mpi(launch: SimLaunch, _available: Callable[[], int], _port_taken: Callable[[], bool]) -> Script:
    """Yield the sshd of a worker: mpirun logs in there, and its rank does the rest."""
    assert launch.joining is not None
    address, port = launch.joining.place
    yield Say(1, f"Server listening on {address} port {port}.")
    yield Join()
    yield Depend()
    yield Say(1, "Accepted publickey for root from 192.168.200.11 port 51122 ssh2: ED25519 SHA256:c2ltdWxhdGVk")
    yield Say(9, "[TensorRT-LLM] TensorRT-LLM version: 1.3.0rc13")
    yield Follow()


def bad_flag_mpi(launch: SimLaunch) -> Script:
    """Yield what a worker does whose head gets a flag that does not exist: it has none itself, and ends when mpirun does."""
    return start_mpi(launch, lambda: 0, lambda: False)


def follow_mpi(launch: SimLaunch) -> Script:
    """Yield what a rank that mpirun started loads."""
    for done in range(1, launch.shards + 1):
        yield Load(4, done, launch.shards, launch.weights // launch.shards)
    yield Say(1, f"Model init total -- {launch.shards * 4 + 1:.2f}s")
    yield Grow(30, gpu=8 * GIB)


def apart_mpi(_launch: SimLaunch, loss: RankLoss) -> Script:
    """Yield the end of a worker whose head is gone: its daemon of mpirun ends, and the container with it."""
    yield Say(0.4 if loss.how is LossReason.DIED else 480, "This rank is over: mpirun's daemon ended with 1")
    yield Exit(1)


def out_of_memory_trtllm(_launch: SimLaunch, wanted: int, free: int, held: int) -> Script:
    """Yield its explanation of a start that did not get ``wanted`` bytes."""
    yield Say(0, f"torch.OutOfMemoryError: {cuda_oom_message(wanted, free, held)}")
    yield Say(0, "RuntimeError: Executor creation failed due to insufficient GPU memory.")
    yield Say(0, "")
    yield Say(0, "The following component could not be created: Model")
    yield Say(1, "RuntimeError: Executor worker returned error")
    yield Exit(1)


def bad_flag_trtllm(launch: SimLaunch) -> Script:
    """Yield click's answer to an option that does not exist."""
    yield from _by_mpirun(launch)
    yield Say(9, "Usage: trtllm-serve serve [OPTIONS] MODEL")
    yield Say(0, f"Error: No such option: {pick_unknown_flag(launch)}")
    yield Exit(2)


def start_uvicorn(launch: SimLaunch, _available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of a FastAPI server with a small model."""
    yield Grow(0, anonymous=GIB)
    yield Say(6, f"🔥 Starting Orpheus-FASTAPI Server on {launch.host}:{launch.port}")
    yield Say(0, "INFO:     Started server process [1]")
    yield Say(0, "INFO:     Waiting for application startup.")
    for done in range(1, launch.shards + 1):
        yield Load(4, done, launch.shards, launch.weights // launch.shards)
    yield Say(3, "INFO:     Application startup complete.")
    if port_taken():
        yield Say(0, port_in_use_message(launch))
        yield Exit(1)
    yield Listen(ready=True)
    yield Say(0, f"INFO:     Uvicorn running on http://{launch.host}:{launch.port} (Press CTRL+C to quit)")


def out_of_memory_llama(launch: SimLaunch, wanted: int, _free: int, _held: int) -> Script:
    """Yield llama.cpp's way of saying that there is no memory."""
    yield Say(
        0,
        f"{NOW} E ggml_backend_cuda_buffer_type_alloc_buffer: allocating {wanted / 2**20:.2f} MiB on device 0: cudaMalloc failed: out of memory",
    )
    yield Say(0, f"{NOW} E alloc_tensor_range: failed to allocate CUDA0 buffer of size {wanted}")
    yield Say(0, f"{NOW} E llama_model_load: error loading model: unable to allocate CUDA0 buffer")
    yield Say(0, f"{NOW} E srv    load_model: failed to load model, '{launch.model}'")
    yield Say(0, f"{NOW} E srv  llama_server: exiting due to model loading error")
    yield Exit(1)


def bad_flag_llama(launch: SimLaunch) -> Script:
    """Yield llama-server's answer to a flag that does not exist."""
    yield Say(1, f"error: invalid argument: {pick_unknown_flag(launch)}")
    yield Exit(1)


def bad_flag_uvicorn(launch: SimLaunch) -> Script:
    """Yield click's answer to an option that does not exist."""
    yield Say(
        1,
        f"Usage: uvicorn [OPTIONS] APP\nTry 'uvicorn --help' for help.\n\nError: No such option: {pick_unknown_flag(launch)}",
    )
    yield Exit(2)


def farewell_llama(_launch: SimLaunch) -> Script:
    """Yield what a SIGTERM brings to llama-server."""
    yield Say(0.2, f"{NOW} I srv    operator(): operator(): cleaning up before exit...")
    yield Exit(0)


def farewell(_launch: SimLaunch) -> Script:
    """Yield what a SIGTERM brings."""
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        yield Say(0.3, f"INFO:     {line}")
    yield Exit(0)
