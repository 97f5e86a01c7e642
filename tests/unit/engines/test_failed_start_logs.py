"""A death per cause and engine version, in a whole log: the cause is found among its echoes, with its field and value."""

from __future__ import annotations

import pytest

from sparkctl.engines.base import Failure, refine_failure
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.model.engine_metrics import EngineFact, EngineFactName
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import ChangeDirection, FailureCause
from tests.unit.engines import failed_start_logs
from tests.unit.engines.engine_log_reading import EngineLogReading, read_engine_log
from tests.unit.engines.failed_start_logs import EngineDeath

VERSIONS = {"vllm": ("0.19.1", "0.32.0", "0.33.0"), "sglang": ("0.5.12", "0.5.23")}
DEATHS = {
    "vllm": failed_start_logs.ANY + failed_start_logs.VLLM,
    "sglang": failed_start_logs.ANY + failed_start_logs.SGLANG,
}
CASES = [(engine, version, death) for engine in DEATHS for version in VERSIONS[engine] for death in DEATHS[engine]]


def build_death_log(engine: str, version: str, death: EngineDeath) -> str:
    return (
        failed_start_logs.build_vllm_log(version, death)
        if engine == "vllm"
        else failed_start_logs.build_sglang_log(version, death)
    )


@pytest.mark.parametrize(
    ("engine", "version", "death"), CASES, ids=[f"{e}-{v}-{d.cause}-{n}" for n, (e, v, d) in enumerate(CASES)]
)
def test_every_failed_log_gives_cause_field_and_proof(engine: str, version: str, death: EngineDeath) -> None:
    log = build_death_log(engine, version, death)
    reading = read_engine_log(engine, log)
    root = reading.root
    assert (root.cause, root.field, root.value) == (death.cause, death.field, death.value)
    assert death.says in root.summary
    assert "(not said)" not in root.summary + root.remedy
    result = [number for number, line in enumerate(log.split("\n"), 1) if line.endswith(reading.root_text)]
    assert result[:1] in ([], [reading.root_line])  # the first time; a joined validation error is no line of the log
    assert Phase.READY not in reading.phases


# What no line of an engine's log tells: Docker, the guard, the clock or the exit code do.
TOLD_ELSEWHERE = {
    *(
        FailureCause.GUARD_STOPPED,
        FailureCause.DOCKER_REFUSED,
        FailureCause.KILLED,
        FailureCause.EXITED,
        FailureCause.TIMED_OUT,
        FailureCause.STOPPED_BY_OTHERS,
    ),
}
NOT_IN = {
    "vllm": {FailureCause.DRAFT_WORKSPACE},
    "sglang": {FailureCause.MEMORY_CHANGED_DURING_START},
}  # its place in the log tells


@pytest.mark.parametrize("engine", sorted(DEATHS))
def test_every_cause_has_a_log(engine: str) -> None:
    assert {death.cause for death in DEATHS[engine]} == set(FailureCause) - TOLD_ELSEWHERE - NOT_IN[engine]


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 119.64 GiB of "
    "which 1.18 GiB is free."
)


@pytest.mark.parametrize(
    ("method", "left", "step", "is_serving", "cause", "says"),
    [
        (None, None, "weights", False, FailureCause.CUDA_OUT_OF_MEMORY, "At the start (weights): "),
        (None, None, None, True, FailureCause.CUDA_OUT_OF_MEMORY, "While serving: "),
        ("EAGLE", "111.87", "weights", False, FailureCause.CUDA_OUT_OF_MEMORY, "At the start"),
        ("EAGLE", "19.11", "weights", False, FailureCause.DRAFT_WORKSPACE, "19.11 GB were left for the weights"),
        ("NEXTN", None, "join", False, FailureCause.DRAFT_WORKSPACE, "NEXTN"),
        ("qwen3_5_mtp", None, "draft", False, FailureCause.DRAFT_WORKSPACE, "qwen3_5_mtp"),
        ("NGRAM", "19.11", "weights", False, FailureCause.CUDA_OUT_OF_MEMORY, "At the start"),
        ("EAGLE", "19.11", "graphs", False, FailureCause.CUDA_OUT_OF_MEMORY, "At the start (CUDA graphs)"),
        ("EAGLE", "19.11", "weights", True, FailureCause.CUDA_OUT_OF_MEMORY, "While serving"),
    ],
)
def test_where_cuda_memory_ran_out_is_said(
    method: str | None, left: str | None, step: str | None, is_serving: bool, cause: FailureCause, says: str
) -> None:
    failure = read_engine_log("sglang", OOM).root
    known = {EngineFactName.SPECULATIVE_METHOD: method, EngineFactName.AVAILABLE_AT_LOAD: left}
    found = refine_failure(failure, OOM, step, {k: v for k, v in known.items() if v is not None}, is_serving=is_serving)
    assert found.cause is cause
    assert says in found.summary
    assert "2.25 GiB" in found.summary


def test_another_failure_stays_as_it_is_wherever_it_came() -> None:
    failure = Failure(cause=FailureCause.NCCL, summary="s", remedy="r")
    assert refine_failure(failure, "", "weights", {}, is_serving=True) is failure


def test_the_other_nodes_death_does_not_hide_the_first() -> None:
    log = f"{OOM}\nRuntimeError: Connection closed by peer [10.0.0.2]:4711\nncclRemoteError: A call failed"
    assert read_engine_log("sglang", log).root.cause is FailureCause.CUDA_OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("engine", "log", "change"),
    [("sglang", OOM, ChangeDirection.LOWER), ("vllm", OOM, ChangeDirection.LOWER),
     ("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", ChangeDirection.RAISE),
     ("vllm", "ValueError: No available memory for the cache blocks.", ChangeDirection.RAISE),
     ("vllm", "vllm: error: unrecognized arguments: --howl 1", ChangeDirection.REMOVE)],
)  # fmt: skip
def test_which_way_a_setting_has_to_go_is_typed(engine: str, log: str, change: ChangeDirection) -> None:
    root = read_engine_log(engine, log).root
    assert (root.change, root.value) == (change, None)


def test_a_half_set_speculation_names_both_ways_out() -> None:
    root = read_engine_log("sglang", "TypeError: '>' not supported between instances of 'NoneType' and 'int'").root
    assert "args.speculative-num-draft-tokens: 20" in root.remedy
    assert "qwen36-ngram" in root.remedy


def test_a_share_that_nothing_would_be_left_of_is_no_advice() -> None:
    line = (
        "ValueError: Free memory on device cuda:0 (9.12/119.64 GiB) on startup is less than desired GPU memory utilization "
        "(0.8, 95.71 GiB)."
    )
    root = read_engine_log("vllm", line).root
    assert (root.value, root.change) == (None, ChangeDirection.LOWER)


HARMLESS = {
    "sglang": """\
[2026-05-02 10:00:00] server_args=ServerArgs(model_path='/m', note='CUDA out of memory', attention_backend='triton')
[2026-05-02 10:00:00] server_args={'model_path': '/m', 'error': 'RuntimeError: CUDA error: out of memory'}
[2026-05-02 10:00:01] Ignore import error when loading sglang.srt.models.x: CUDA out of memory
[2026-05-02 10:00:01] If you hit GPU OOM issue, please adjust the memory fraction
[2026-05-02 10:00:02] INFO:     Application startup complete.
[2026-05-02 10:00:02] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 812
[2026-05-02 10:00:02] retract_decode: aborted last request r-1 due to OOM
[2026-05-02 10:00:02] Available memory 1GB is less than required memory 2GB for warmup, reducing max_m to 8 to avoid out of memory
[2026-05-02 10:00:02] Multimodal preprocessing ran out of GPU memory on cuda:0; retrying on CPU
[2026-05-02 10:00:02] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.
[2026-05-02 10:00:02] Failed to get GPU memory capacity from nvidia-smi.
[2026-05-02 10:00:02] SIGTERM received. signum=None frame=None. Draining requests and shutting down...
[2026-05-02 10:00:02] KV pool holds 9000 tokens, fewer than --context-length 131072.
[2026-05-02 10:00:02] Finish: obj=GenerateReqInput(text='x'), out={'text': 'RuntimeError: CUDA error: out of memory'}
[2026-05-02 10:00:02] Receive: obj=GenerateReqInput(text='The server is fired up and ready to roll!')
[2026-05-02 10:00:02] Prompt: 'The server is fired up and ready to roll!'
[2026-05-02 10:00:02] The server is fired up and ready to roll! said the model
[2026-05-02 10:00:02] INFO:     10.0.0.9:55 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error
NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal
The program ran out of memory. torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB is what it prints then.
""",
    "vllm": """\
(APIServer pid=1) INFO 05-02 10:00:00 [utils.py:233] non-default args: {'x': 'RuntimeError: CUDA error: out of memory'}
(EngineCore pid=2) INFO 05-02 10:00:01 [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: x='out of memory error: '
(EngineCore pid=2) INFO 05-02 10:00:02 [worker.py:1] Free memory on device (110.34/121.69 GiB) on startup. Desired GPU memory \
utilization is (0.87, 105.87 GiB). Actual usage is 60.1 GiB for weight.
(EngineCore pid=2) INFO 05-02 10:00:02 [w.py:1] size. If OOM'ed, check the difference of initial free memory between runs
(EngineCore pid=2) WARNING 05-02 10:00:02 [w.py:1] lower --gpu-memory-utilization to avoid OOM. Consider re-enabling it
(EngineCore pid=2) WARNING 05-02 10:00:02 [s.py:1] Sequence group 0 is preempted because there is not enough KV cache space
(EngineCore pid=2) WARNING 05-02 10:00:02 [b.py:9] Your GPU does not have native support for FP4 computation but FP4 quantization
UserWarning: Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda capability supported by this version
(APIServer pid=1) ERROR:    Exception in ASGI application
(APIServer pid=1) vllm.exceptions.VLLMValidationError: max_tokens=999999 cannot be greater than max_model_len=2048.
(APIServer pid=1) INFO 05-02 10:00:02 [l.py:1] Received request c-1: prompt: 'torch.OutOfMemoryError: CUDA out of memory.'
(APIServer pid=1) INFO 05-02 10:00:02 [l.py:1] Generated response c-1: output: 'Application startup complete. OSError: [Errno 98]'
(APIServer pid=1) INFO:     10.0.0.9:55 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error
NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal
/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore
A model may say exec format error, or: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.
""",
}


@pytest.mark.parametrize(("engine", "line"), [(e, line) for e in HARMLESS for line in HARMLESS[e].splitlines()])
def test_a_harmless_line_is_no_failure_and_not_ready(engine: str, line: str) -> None:
    reading = read_engine_log(engine, line)
    assert reading.failures == []
    assert Phase.READY not in reading.phases


def list_facts(reading: EngineLogReading) -> dict[EngineFactName, str]:
    return {fact.name: fact.value for fact in reversed(reading.facts)}


def test_vllm_tells_how_it_runs() -> None:
    for version, attention, path, kv in (
        ("0.19.1", "Using FLASH_ATTN attention backend out of potential backends: ('FLASH_ATTN', 'FLASHINFER')",
         "Using NvFp4LinearBackend.FLASHINFER_CUTLASS for NVFP4 GEMM",
         "GPU KV cache size: 1,806,336 tokens\nMaximum concurrency for 131,072 tokens per request: 13.78x"),
        ("0.33.0", "Using AttentionBackendEnum.FLASH_ATTN backend.", "Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM",
         "GPU KV cache size: 1,806,336 tokens, Maximum concurrency for 131,072 tokens per request: 13.78x"),
    ):  # fmt: skip
        log = (
            f"(EngineCore pid=2) INFO 05-02 10:00:01 [core.py:105] Initializing a V1 LLM engine (v{version}) with config: "
            "model='/m', speculative_config=SpeculativeConfig(method='mtp', model='/m', num_spec_tokens=3), max_seq_len=131072, "
            f"quantization=modelopt_fp4, kv_cache_dtype=fp8,\n{attention}\n{path}\n{kv}\n"
        )
        found = list_facts(read_engine_log("vllm", log))
        assert found == {
            EngineFactName.ENGINE_VERSION: version,
            EngineFactName.QUANTIZATION: "modelopt_fp4",
            EngineFactName.QUANTIZATION_PATH: found[EngineFactName.QUANTIZATION_PATH],
            EngineFactName.ATTENTION_BACKEND: "FLASH_ATTN",
            EngineFactName.KV_CACHE_DTYPE: "fp8",
            EngineFactName.KV_CACHE_TOKENS: "1806336",
            EngineFactName.CONTEXT_LENGTH: "131072",
            EngineFactName.MAX_CONCURRENCY: "13.78",
            EngineFactName.SPECULATIVE_METHOD: "mtp",
            EngineFactName.DRAFT_TOKENS: "3",
        }
        assert found[EngineFactName.QUANTIZATION_PATH].startswith("native FP4 (")


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("vllm", "Using MarlinNvFp4LinearKernel for NVFP4 GEMM"),
        ("vllm", "Using NvFp4LinearBackend.MARLIN for NVFP4 GEMM"),
        ("vllm", "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['FLASHINFER_CUTLASS', 'MARLIN']."),
        ("vllm", "NVFP4 linear falling back to the slow and unoptimized emulation backend"),
        ("vllm", "Your GPU does not have native support for FP4 computation but FP4 quantization is being used."),
        ("sglang", "Your GPU does not have native support for FP8 computation but FP8 quantization is being used."),
        (
            "sglang",
            "NVFP4 w4a4 requires compute capability >= 10.0; serving this checkpoint weight-only via FP4 Marlin instead.",
        ),
    ],
)
def test_a_slow_path_is_a_fact_with_a_flag_and_no_failure(engine: str, line: str) -> None:
    reading = read_engine_log(engine, line)
    assert [(fact.name, fact.is_fallback) for fact in reading.facts] == [(EngineFactName.QUANTIZATION_PATH, True)]
    assert reading.failures == []


@pytest.mark.parametrize(
    "settings",
    [
        "ServerArgs(model_path='/m', context_length=None, quantization='fp8', kv_cache_dtype='auto', attention_backend="
        "'triton', decode_attention_backend=None, speculative_algorithm='EAGLE', speculative_num_steps=5, "
        "speculative_num_draft_tokens=20)",
        "{'model_path': '/m', 'context_length': None, 'quantization': 'fp8', 'kv_cache_dtype': 'auto', 'attention_backend': "
        "'triton', 'decode_attention_backend': None, 'speculative_algorithm': 'EAGLE', 'speculative_num_steps': 5, "
        "'speculative_num_draft_tokens': 20}",
    ],
    ids=["0.5.12", "0.5.23"],
)
def test_sglang_tells_how_it_runs(settings: str) -> None:
    log = (
        f"[2026-05-02 10:00:00] server_args={settings}\n"
        "[2026-05-02 10:00:01] Load weight begin. avail mem=111.87 GB\n"
        "[2026-05-02 10:00:01] Load weight end. elapsed=1.42 s, type=Qwen3ForCausalLM, quant=fp8, avail mem=18.67 GB\n"
        "[2026-05-02 10:00:01] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 871957, K size: 2.49 GB, V size: 2.49 GB\n"
        "[2026-05-02 10:00:01] max_total_num_tokens=871957, chunked_prefill_size=8192, max_running_requests=48, context_len=8192\n"
    )
    reading = read_engine_log("sglang", log)
    assert EngineFact(EngineFactName.ATTENTION_BACKEND, "triton") in reading.facts
    assert list_facts(reading) == {
        EngineFactName.QUANTIZATION: "fp8",
        EngineFactName.ATTENTION_BACKEND: "triton",
        EngineFactName.SPECULATIVE_METHOD: "EAGLE",
        EngineFactName.DRAFT_TOKENS: "20 verified a step",
        EngineFactName.DRAFT_STEPS: "5",
        EngineFactName.AVAILABLE_AT_LOAD: "111.87",
        EngineFactName.ARCHITECTURE: "Qwen3ForCausalLM",
        EngineFactName.KV_CACHE_DTYPE: "bfloat16",
        EngineFactName.KV_CACHE_TOKENS: "871957",
        EngineFactName.MAX_CONCURRENCY: "48",
        EngineFactName.CONTEXT_LENGTH: "8192",
    }


def test_sglang_tells_the_tokens_of_a_whole_context_and_of_its_own_drafts_only() -> None:
    # from jethac/dgx-spark-hijinks (a GB10), the settings cut
    log = (
        "SGLang Version 0.5.11+05fb6a52\n"
        "[2026-06-12 05:33:36] server_args=ServerArgs(model_path='google/gemma-4-E2B-it', speculative_algorithm=None, "
        "speculative_num_steps=5, speculative_eagle_topk=8, speculative_num_draft_tokens=64)\n"
        "[2026-06-12 04:56:17] KV Cache is allocated. dtype: torch.float4_e2m1fn_x2, #tokens: 2814460, K size: 10.57 GB\n"
    )
    pool = "[2026-06-12 04:56:15] Use sliding window memory pool. full_layer_tokens=3518075, swa_layer_tokens=2814460\n"
    end = "[2026-06-12 05:37:04] max_total_num_tokens=3515698, chunked_prefill_size=8192, context_len=131072\n"
    for more, tokens in (("", "2814460"), (pool, "3518075"), (end, "3515698")):
        found = LogDiagnoser()
        for line in (log + more).splitlines():
            found.feed_raw_line(line)
        facts = {fact.name: fact.value for fact in found.build_diagnosis().facts}
        assert facts == {
            EngineFactName.KV_CACHE_DTYPE: "float4_e2m1fn_x2",
            EngineFactName.KV_CACHE_TOKENS: tokens,
            **({EngineFactName.CONTEXT_LENGTH: "131072"} if more is end else {}),
        }
        assert found.build_diagnosis().version == "0.5.11+05fb6a52"
