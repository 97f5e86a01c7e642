"""``python -m sglang.launch_server``: the start of SGLang 0.5.12 as its log tells it, in a fraction of the time."""

from __future__ import annotations

import os
import sys
import time

from ranks import ranks_of, serve_dummy_health
from standin import allocate, end_of_load, extras, flags, listen, obey_sigterm, say, setting, stamp, stay

SHARDS, BATCHES = 8, (160, 128, 96, 64, 32, 16, 8, 4, 2, 1)


def bar(begin: str, done: int, total: int, completed: bool) -> bytes:
    """One state of a tqdm bar; the states of one bar are separated by carriage returns, not newlines."""
    percent = 100 * done // total
    middle = (
        f"{percent:3d}% Completed | {done}/{total}"
        if completed
        else f"{percent:3d}%|{'█' * (percent // 10):<10}| {done}/{total}"
    )
    return f"\r{begin}: {middle} [00:0{done % 10}<00:0{total - done}, 1.24it/s]".encode()


def load(pause: float) -> None:
    say(f"{stamp()} Load weight begin. avail mem=111.87 GB")
    megabytes = int(setting("ALLOC_MB", 0))
    for shard in range(SHARDS + 1):
        os.write(2, bar("Multi-thread loading shards", shard, SHARDS, completed=True))
        if megabytes:
            allocate(max(1, megabytes // SHARDS))
        time.sleep(pause / SHARDS)
    os.write(2, b"\n")
    extras()
    say(
        f"{stamp()} Load weight end. elapsed={pause:.2f} s, type=Qwen3_5ForConditionalGeneration, quant=fp8, "
        "avail mem=82.30 GB, mem usage=29.57 GB."
    )


def capture() -> None:
    say(f"{stamp()} Using KV cache dtype: torch.bfloat16")
    say(f"{stamp()} KV Cache is allocated. #tokens: 676574, K size: 20.65 GB, V size: 20.65 GB")
    say(f"{stamp()} Memory pool end. avail mem=19.93 GB")
    say(f"{stamp()} Capture cuda graph begin. This can take up to several minutes. avail mem=19.74 GB")
    say(f"{stamp()} Capture cuda graph bs {sorted(BATCHES)}")
    for done, size in enumerate(BATCHES, 1):
        os.write(2, bar(f"Capturing batches (bs={size} avail_mem=18.40 GB)", done, len(BATCHES), completed=False))
        time.sleep(0.02)
    os.write(2, b"\n")
    say(f"{stamp()} Capture cuda graph end. Time elapsed: 0.21 s. mem usage=1.29 GB. avail mem=18.45 GB.")
    say(
        f"{stamp()} max_total_num_tokens=676574, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=48, context_len=262144, available_gpu_mem=18.45 GB"
    )


def stay_silent(given: dict[str, str]) -> None:
    """A worker's end of the start: no line that says ready."""
    host, port = given.get("host", "0.0.0.0"), int(given.get("port", 30000))
    serve_dummy_health(host, port)
    say(f"{stamp()} Dummy health check server started in background thread at {host}:{port}")
    stay()


def lose(line: str) -> None:
    """What the scheduler prints of a peer that is gone."""
    say(f"{stamp()} Scheduler hit an exception: Traceback (most recent call last):")
    say('  File "/opt/sglang/srt/managers/scheduler.py", line 3204, in run_scheduler_process')
    say(line)


def end() -> None:
    """The launcher kills all of its processes and itself."""
    say(f"{stamp()} Received sigquit from a child process. It usually means the child failed.")
    os._exit(137)


def main() -> None:
    obey_sigterm()
    given = flags(sys.argv[1:])
    placed = ranks_of(given, "dist-init-addr", 25000, lose, end)
    say(
        f"{stamp()} server_args=ServerArgs(model_path={given.get('model-path')!r}, port={given.get('port')}, device='cuda')"
    )
    say(f"{stamp()} Init torch distributed begin.")
    if placed is not None:
        placed[0].meet(*placed[1:])
    say(f"{stamp()} Init torch distributed ends. elapsed=0.61 s, mem usage=0.31 GB")
    say(f"{stamp()} Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'")
    load(setting("LOAD_S", 0.5))
    end_of_load()
    if placed is not None:
        placed[0].all_loaded()
        if not placed[0].is_head:
            stay_silent(given)
    capture()
    say(f"{stamp()} INFO:     Started server process [1]")
    say(f"{stamp()} INFO:     Waiting for application startup.")
    say(f"{stamp()} INFO:     Application startup complete.")
    try:
        listen(given, "sglang")
    except OSError as error:
        address = (given.get("host"), int(given.get("port", 30000)))
        say(
            f"{stamp()} ERROR:    [Errno {error.errno}] error while attempting to bind on address {address}: address already in use"
        )
        stay()  # the real one prints this and does not exit
    say(f"{stamp()} INFO:     Uvicorn running on http://{given.get('host')}:{given.get('port')} (Press CTRL+C to quit)")
    say(
        f"{stamp()} Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0"
    )
    say(f"{stamp()} The server is fired up and ready to roll!")
    stay()


main()
