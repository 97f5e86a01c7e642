"""Starts of the smaller engines: llama-server, and a uvicorn application as TTS and STT servers are."""

from __future__ import annotations

from collections.abc import Callable

from sparkctl.sim.common_lines import bind_error, unknown_flag
from sparkctl.sim.launch import Launch
from sparkctl.sim.memory import GIB
from sparkctl.sim.steps import Exit, Grow, Listen, Load, Say, Script

TIME_FORMAT = "%H:%M:%S"


def start_llama(launch: Launch, _available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of llama-server: no percentage, the port answers 503 while it loads."""
    yield Say(2, "0.00.812.440 I srv  llama_server: initializing ...")
    if port_taken():
        yield Say(
            0,
            f"0.00.900.101 E srv  llama_server: couldn't bind HTTP server socket, hostname: {launch.host}, port: {launch.port}",
        )
        yield Exit(1)
    yield Listen(ready=False)
    yield Say(1, f"0.01.204.117 I srv    load_model: loading model '{launch.model}'")
    for done in range(1, launch.shards + 1):
        yield Load(5, done, launch.shards, launch.weights // launch.shards)
    yield Grow(3, gpu=4 * GIB)
    slots = f"initializing, n_slots = 4, n_ctx_slot = {launch.context}, kv_unified = 'false'"
    yield Say(0, f"1.12.330.905 I srv    load_model: {slots}")
    yield Say(1, "1.13.002.310 I srv  llama_server: model loaded")
    yield Listen(ready=True)
    yield Say(0, f"1.13.002.744 I srv  llama_server: listening on http://{launch.host}:{launch.port}")


def start_uvicorn(launch: Launch, _available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Yield a start of a FastAPI server with a small model."""
    yield Grow(0, anonymous=GIB)
    yield Say(6, f"🔥 Starting Orpheus-FASTAPI Server on {launch.host}:{launch.port}")
    yield Say(0, "INFO:     Started server process [1]")
    yield Say(0, "INFO:     Waiting for application startup.")
    for done in range(1, launch.shards + 1):
        yield Load(4, done, launch.shards, launch.weights // launch.shards)
    yield Say(3, "INFO:     Application startup complete.")
    if port_taken():
        yield Say(0, bind_error(launch))
        yield Exit(1)
    yield Listen(ready=True)
    yield Say(0, f"INFO:     Uvicorn running on http://{launch.host}:{launch.port} (Press CTRL+C to quit)")


def out_of_memory_llama(launch: Launch, wanted: int, _free: int, _held: int) -> Script:
    """Yield llama.cpp's way of saying that there is no memory."""
    yield Say(
        0,
        f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {wanted / 2**20:.2f} MiB on device 0: cudaMalloc failed: out of memory",
    )
    yield Say(0, f"0.31.120.004 E srv    load_model: failed to load model, '{launch.model}'")
    yield Say(0, "0.31.120.400 E srv  llama_server: exiting due to model loading error")
    yield Exit(1)


def bad_flag_llama(launch: Launch) -> Script:
    """Yield llama-server's answer to a flag that does not exist."""
    yield Say(1, f"error: invalid argument: {unknown_flag(launch)}")
    yield Exit(1)


def bad_flag_uvicorn(launch: Launch) -> Script:
    """Yield click's answer to an option that does not exist."""
    yield Say(
        1,
        f"Usage: uvicorn [OPTIONS] APP\nTry 'uvicorn --help' for help.\n\nError: No such option: {unknown_flag(launch)}",
    )
    yield Exit(2)


def farewell(_launch: Launch) -> Script:
    """Yield what a SIGTERM brings."""
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        yield Say(0.3, f"INFO:     {line}")
    yield Exit(0)
