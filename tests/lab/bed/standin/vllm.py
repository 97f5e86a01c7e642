"""``vllm serve MODEL``: the start of vLLM 0.19.1 as its log tells it, in a fraction of the time."""

from __future__ import annotations

import os
import sys
import time

from ranks import Ranks, ranks_of
from standin import STATE, allocate, end_of_load, extras, flags, listen, obey_sigterm, say, setting, stay

SHARDS = 4


def line(text: str, caller: str = "EngineCore", source: str = "gpu_model_runner.py:4820") -> None:
    now = time.strftime("%m-%d %H:%M:%S")
    say(f"({caller} pid={os.getpid()}) INFO {now} [{source}] {text}", 1)


def load(pause: float) -> None:
    line("Starting to load model ...")
    megabytes = int(setting("ALLOC_MB", 0))
    for shard in range(SHARDS + 1):
        state = f"\rLoading safetensors checkpoint shards: {100 * shard // SHARDS:3d}% Completed | {shard}/{SHARDS} [00:00<00:00, 1.84it/s]"
        os.write(2, state.encode())
        if megabytes:
            allocate(max(1, megabytes // SHARDS))
        time.sleep(pause / SHARDS)
    os.write(2, b"\n")
    extras()
    line(f"Loading weights took {pause:.2f} seconds", source="default_loader.py:384")
    line(f"Model loading took 18.41 GiB memory and {pause:.6f} seconds")


def lose(text: str) -> None:
    """What a worker process prints of a peer that is gone."""
    now = time.strftime("%m-%d %H:%M:%S")
    say(f"(Worker_TP pid={os.getpid()}) ERROR {now} [multiproc_executor.py:780] {text}", 1)


def end() -> None:
    """The generic last line, which is not the cause; a serving one ends with code 0, as real ones do."""
    now = time.strftime("%m-%d %H:%M:%S")
    if STATE["ready"]:
        say(
            f"(APIServer pid={os.getpid()}) ERROR {now} [async_llm.py:708] vllm.v1.engine.exceptions.EngineDeadError: "
            "EngineCore encountered an issue. See stack trace (above) for the root cause."
        )
        os._exit(0)
    say(
        f"(APIServer pid={os.getpid()}) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}"
    )
    os._exit(1)


def meet(ranks: Ranks, host: str, port: int) -> None:
    """Say what a rank of several says, and wait for the others."""
    if ranks.is_head:
        group = f"DP group leader: node_rank=0, node_rank_within_dp=0, master_addr={host}, mq_connect_ip={host} (local)"
        line(f"{group}, world_size={ranks.count}, local_world_size=1", source="multiproc_executor.py:153")
    else:
        at = f"with head node address {host}:{port} for torch.distributed process group."
        line(f"Launching vLLM (v0.19.1) headless multiproc executor, {at}", "MainProcess", "serve.py:194")
    method = f"distributed_init_method=tcp://{host}:{port} backend=nccl"
    line(f"world_size={ranks.count} rank={ranks.index} local_rank=0 {method}", source="parallel_state.py:1400")
    ranks.meet(host, port)


def main() -> None:
    obey_sigterm()
    given = flags(sys.argv[1:])
    placed = ranks_of(given, "master-addr", 29501, lose, end)
    is_worker = placed is not None and not placed[0].is_head
    if not is_worker:
        line("vLLM API server version 0.19.1", "APIServer", "utils.py:299")
        line(f"non-default args: {given}", "APIServer", "utils.py:233")
        line("Initializing a V1 LLM engine (v0.19.1) with config: ...", source="core.py:105")
        try:
            server_check(given)
        except OSError:
            say("OSError: [Errno 98] Address already in use")
            sys.exit(1)
    if placed is not None:
        meet(*placed)
    load(setting("LOAD_S", 0.5))
    end_of_load()
    if placed is not None:
        placed[0].all_loaded()
    if is_worker:
        stay()  # no port, no further line
    line("torch.compile took 0.31 s in total", source="monitor.py:48")
    line("GPU KV cache size: 412,160 tokens", source="kv_cache_utils.py:1319")
    os.write(
        2,
        b"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##########| 51/51 [00:01<00:00, 40.1it/s]\n",
    )
    line("init engine (profile, create kv cache, warmup model) took 0.92 seconds", source="core.py:283")
    listen(given, "vllm")
    say(f"(APIServer pid={os.getpid()}) INFO:     Started server process [{os.getpid()}]")
    say(f"(APIServer pid={os.getpid()}) INFO:     Waiting for application startup.")
    say(f"(APIServer pid={os.getpid()}) INFO:     Application startup complete.")
    stay()


def server_check(given: dict[str, str]) -> None:
    """vLLM takes its port before the load and serves it after."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((given.get("host", "0.0.0.0"), int(given.get("port", 8000))))


main()
