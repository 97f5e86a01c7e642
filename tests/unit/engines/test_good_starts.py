"""Good starts, in the engines' own words: phases in order, steps with their progress, not one failure."""

# ruff: noqa: E501  (log lines are as long as the engines write them)

from __future__ import annotations

import pytest

from sparkctl.model.phase import Phase, Step
from tests.unit.engines.engine_log_reading import read_engine_log

SGLANG = """\
[2026-06-03 09:14:01] server_args=ServerArgs(model_path='/models/Qwen', enable_memory_saver=False, bootstrap_room=None, oom='Error: OOM')
[2026-06-03 09:14:19] Init torch distributed begin.
[2026-06-03 09:14:20] Ignore import error when loading sglang.srt.models.falcon_mamba: cannot import name 'x'
[2026-06-03 09:14:21] Load weight begin. avail mem=111.87 GB
Multi-thread loading shards:   0% Completed | 0/4 [00:00<?, ?it/s]\rMulti-thread loading shards: 100% Completed | 4/4 [00:10<00:00,  2.5s/it]
[2026-06-03 09:15:31] Load weight end. elapsed=70.4 s, type=Qwen3ForCausalLM, avail mem=83.10 GB, mem usage=28.7 GB.
[2026-06-03 09:15:33] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 676574, K size: 21.94 GB, V size: 21.94 GB
[2026-06-03 09:15:35] Running FlashInfer autotune with cache: /root/.cache
[2026-06-03 09:15:40] FlashInfer extend autotune skipped: not enough free memory for it
[2026-06-03 09:15:41] Capture cuda graph begin. This can take up to several minutes. avail mem=27.40 GB
Capturing batches (bs=8 avail_mem=27.40 GB):  12%|█▏        | 1/8 [00:01<00:09,  1.40s/it]\rCapturing batches (bs=1 avail_mem=27.15 GB): 100%|██████████| 8/8 [00:11<00:00,  1.40s/it]
[2026-06-03 09:15:58] Capture draft cuda graph begin. This can take up to several minutes. avail mem=27.1 GB
[2026-06-03 09:16:02] INFO:     Started server process [1]
[2026-06-03 09:16:02] INFO:     Application startup complete.
[2026-06-03 09:16:02] INFO:     Uvicorn running on http://0.0.0.0:8003 (Press CTRL+C to quit)
[2026-06-03 09:16:03] INFO:     127.0.0.1:45156 - "GET /model_info HTTP/1.1" 200 OK
[2026-06-03 09:16:04] The server is fired up and ready to roll!
[2026-06-03 09:18:26] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 812
[2026-06-03 09:18:27] retract_decode: aborted last request 7f due to OOM
"""

VLLM = """\
(APIServer pid=1) INFO 04-14 12:41:13 [utils.py:233] non-default args: {'model': '/models/Qwen', 'note': 'Error: CUDA out of memory'}
(APIServer pid=1) WARNING 04-14 12:41:14 [model.py:2176] User-specified max_model_len (1000000) is greater than the derived max_model_len (max_position_embeddings=8192.0)
(EngineCore pid=9) INFO 04-14 12:41:20 [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='/models/Qwen', error=None
(EngineCore pid=9) INFO 04-14 12:41:21 [gpu_model_runner.py:71] Starting to load model /models/Qwen...
(EngineCore pid=9) \rLoading safetensors checkpoint shards:  67% Completed | 12/18 [00:40<00:20,  3.3s/it]
(EngineCore pid=9) INFO 04-14 12:42:40 [default_loader.py:384] Loading weights took 84.31 seconds
(EngineCore pid=9) INFO 04-14 12:42:41 [backends.py:1] Dynamo bytecode transform time: 6.82 s
(EngineCore pid=9) INFO 04-14 12:43:10 [gpu_worker.py:1] Available KV cache memory: 69.02 GiB
(EngineCore pid=9) INFO 04-14 12:43:10 [kv_cache_utils.py:1319] GPU KV cache size: 1,806,336 tokens
(EngineCore pid=9) Capturing CUDA graphs (decode, FULL):  10%|█         | 2/19 [00:01<00:09,  1.40it/s]\rCapturing CUDA graphs (decode, FULL): 100%|██████████| 19/19 [00:10<00:00,  1.90it/s]
(EngineCore pid=9) INFO 04-14 12:43:30 [gpu_worker.py:2] Free memory on device (110.34/121.69 GiB) on startup. Desired GPU memory utilization is (0.87, 105.87 GiB). Actual usage is 86.93 GiB for weight
(EngineCore pid=9) INFO 04-14 12:43:30 [core.py:283] init engine (profile, create kv cache, warmup model) took 54.63 seconds
(APIServer pid=1) INFO 04-14 12:43:31 [api_server.py:596] Starting vLLM server on http://0.0.0.0:8000
(APIServer pid=1) INFO:     Started server process [1]
(APIServer pid=1) INFO:     Waiting for application startup.
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO 04-14 12:44:31 [loggers.py:259] Engine 000: Avg prompt throughput: 71.8 tokens/s, GPU KV cache usage: 0.7%
"""


def test_sglang_starts() -> None:
    reading = read_engine_log("sglang", SGLANG)
    assert reading.phases == [Phase.LOADING, Phase.WARMING, Phase.READY]
    assert not reading.failures
    assert Step("weights", 4, 4, 1.0) in reading.steps
    assert Step("graphs", 1, 8, 0.12) in reading.steps
    names = list(dict.fromkeys(step.name for step in reading.steps))
    assert names == ["join", "weights", "profiling", "kv-cache", "autotune", "graphs", "draft", "http", "warm-up"]


def test_vllm_starts() -> None:
    reading = read_engine_log("vllm", VLLM)
    assert reading.phases == [Phase.LOADING, Phase.WARMING, Phase.READY]
    assert not reading.failures
    assert Step("weights", 12, 18, 0.67) in reading.steps
    assert Step("graphs", 19, 19, 1.0) in reading.steps
    assert list(dict.fromkeys(step.name for step in reading.steps)) == [
        "weights",
        "profiling",
        "compile",
        "kv-cache",
        "graphs",
        "http",
    ]


def test_newer_vllm_prefixes_only_its_log_records() -> None:
    log = "Loading safetensors checkpoint shards: 100% Completed | 3/3 [00:01<00:00]\nINFO:     Application startup complete."
    assert read_engine_log("vllm", log).phases == [Phase.LOADING, Phase.READY]


def test_a_container_loads_and_warms_and_never_says_ready() -> None:
    log = """\
Loading checkpoint shards:  50%|█████     | 1/2 [00:03<00:03,  3.10s/it]
INFO:     Started server process [1]
INFO:     Application startup complete.
The server is fired up and ready to roll!
"""
    assert read_engine_log("container", log).phases == [Phase.LOADING, Phase.WARMING]


HARMLESS = [
    ("sglang", "If you hit GPU OOM issue, please adjust the memory fraction"),
    (
        "sglang",
        "Available memory 3GB is less than required memory 5GB for warmup, reducing max_m to 4 to avoid out of memory",
    ),
    ("sglang", "Multimodal preprocessing ran out of GPU memory on cuda:0; retrying on CPU"),
    ("sglang", "KV pool holds 9 tokens, fewer than --context-length 10. Requests may fail."),
    ("sglang", "Failed to get GPU memory capacity from nvidia-smi."),
    ("sglang", "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."),
    ("sglang", "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."),
    ("sglang", "kill_process_tree called: parent_pid=1, include_parent=False, pid=1"),
    ("sglang", "CustomAllreduce is disabled because this process group spans across nodes."),
    ("sglang", "The memory capacity is unbalanced. Some GPUs may be occupied by other processes."),
    ("sglang", "port 8010 is in use. Waiting for 1 seconds"),
    (
        "vllm",
        "Reserved 4 GiB of KV cache size. If OOM'ed, check the difference of initial free memory between the two runs",
    ),
    ("vllm", "Lower --gpu-memory-utilization to avoid OOM. Consider re-enabling it"),
    ("vllm", "Your GPU does not have native support for FP4 computation but FP4 quantization is being used."),
    ("vllm", "UserWarning: Found GPU0 NVIDIA GB10 which is of cuda capability 12.1."),
    ("vllm", "resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown"),
    ("vllm", "Found ulimit of 1024 and failed to increase it: errors like `OSError: [Errno 24] Too many open files`."),
    ("vllm", "[Autotuner] Failed when profiling runner: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"),
    ("vllm", '    raise ValueError("No available memory for the cache blocks. Try increasing")'),
    ("vllm", "Engine 000: Avg prompt throughput: 1.0 tokens/s, Error: CUDA out of memory"),
    ("container", "Processed prompts:  50%|█████     | 1/2 [00:01<00:01,  1.40s/it]"),
]


@pytest.mark.parametrize(("engine", "line"), HARMLESS, ids=[line[:40] for _, line in HARMLESS])
def test_harmless_lines_are_no_failure(engine: str, line: str) -> None:
    reading = read_engine_log(engine, line)
    assert not reading.failures
    assert not reading.phases


def test_a_clients_bad_request_is_not_the_end() -> None:
    log = """\
(APIServer pid=1) ERROR:    Exception in ASGI application
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/opt/engine", line 1, in create
(APIServer pid=1)     raise VLLMValidationError(
(APIServer pid=1) vllm.exceptions.VLLMValidationError: max_tokens=999999 cannot be greater than max_model_len=2048.
"""
    reading = read_engine_log("vllm", log)
    assert not [failure for _, _, failure in reading.failures if failure.fatal]
