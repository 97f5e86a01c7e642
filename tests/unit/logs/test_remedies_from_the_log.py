"""Where a log names what is missing, refused or to be changed, the verdict does so, too. Lines of real logs, shortened."""

from __future__ import annotations

import pytest

from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.model.verdict import FailureCause, Verdict


def diagnose_lines(log: str) -> Verdict:
    diagnoser = LogDiagnoser()
    for line in log.splitlines():
        diagnoser.feed_raw_line(line)
    verdict = diagnoser.build_diagnosis().verdict
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("line", "summary", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'pyarrow'", "module pyarrow is not installed", "pip install pyarrow,"),
        (
            "ModuleNotFoundError: No module named 'torch_directml'",
            "module torch_directml",
            "pip install torch-directml,",
        ),
        ("ModuleNotFoundError: No module named 'cv2'", "module cv2", "pip install opencv-python-headless,"),
        ("ModuleNotFoundError: No module named 'torch'", "module torch ", "--index-url https://download.pytorch.org/"),
        ("ModuleNotFoundError: No module named 'backend'", "module backend", "the program's own directory"),
        (
            "ModuleNotFoundError: No module named 'diffusers.models.autoencoders'",
            "The installed diffusers",
            "pip check",
        ),
        ("ModuleNotFoundError: No module named 'vllm._C_stable_libtorch'", "compiled part of vllm", "pip install -e ."),
        (
            "ImportError: cannot import name 'get_scheduler_metadata' from 'vllm.vllm_flash_attn' (/home/u/vllm/vllm/vllm_flash_attn/__init__.py)",
            "compiled part of vllm",
            "pip install -e .",
        ),
        (
            "/server: error while loading shared libraries: libgomp.so.1: cannot open shared object file: No such file or directory",
            "library libgomp.so.1 is not installed",
            "apt-get install -y libgomp1",
        ),
        ("ImportError: Numba needs NumPy 2.2 or less. Got NumPy 2.4.", "NumPy is too new for Numba", "'NumPy==2.2.*'"),
        (
            "AttributeError: TokenizersBackend has no attribute all_special_tokens_extended. Did you mean: 'num_special_tokens_to_add'?",
            "another version",
            "pip install 'transformers<5'",
        ),
    ],
)
def test_what_an_image_lacks_is_named_with_its_package(line: str, summary: str, remedy: str) -> None:
    verdict = diagnose_lines(line)
    assert summary in verdict.summary
    assert remedy in verdict.remedy


def test_no_package_is_named_that_only_shares_a_directory_s_name() -> None:
    assert "pip install backend" not in diagnose_lines("ModuleNotFoundError: No module named 'backend'").remedy


def test_a_library_of_nvidia_s_is_another_version_and_no_package() -> None:
    verdict = diagnose_lines("ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory")
    assert "apt-get" not in verdict.remedy


_PTXAS = """(EngineCore pid=104)   ptxas application ptx input, line 1009; error   : Unexpected instruction types specified for '_mma'
(EngineCore pid=104)   ptxas fatal   : Ptx assembly aborted due to errors"""
_TRITON = """/sgl-workspace/sglang/python/sglang/srt/layers/moe/ep_moe/kernels.py:606:42: error: Unsupported conversion from 'f8E4M3FN' to 'f16'
/sgl-workspace/sglang/python/sglang/srt/layers/moe/ep_moe/kernels.py:606:42: error: failed to legalize operation 'tt.fp_to_fp' that was"""
_NVCC = """(EngineCore pid=7242) ERROR 06-13 11:28:14 [core.py:1199] RuntimeError: Ninja build failed. Ninja output:
(EngineCore pid=7242) ERROR 06-13 11:28:14 [core.py:1199] /root/flashinfer/fastdiv.cuh(39): error: qualified name is not allowed"""
_WATCHDOG = """[rank3]:[E219 08:58:32.606 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, \
OpType=ALLREDUCE, NumelIn=117440512, NumelOut=117440512, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.
[rank3]:[E219 08:58:32.606 ProcessGroupNCCL.cpp:1834] [PG ID 2 PG GUID 3 Rank 3] Timeout at NCCL work: 31, last enqueued NCCL work: 58, \
last completed NCCL work: 30."""
_SMALL_SHARE = """(EngineCore pid=891) INFO 06-12 14:45:08 [gpu_worker.py:495] CUDA graph memory profiling is enabled (default since v0.21.0). The \
current --gpu-memory-utilization=0.3000 is equivalent to --gpu-memory-utilization=0.0201 without CUDA graph memory profiling. To maintain \
the same effective KV cache size as before, increase --gpu-memory-utilization to 0.5799. To disable, set \
VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0.
(EngineCore pid=891) ERROR 06-12 14:45:08 [core.py:1199] ValueError: No available memory for the cache blocks. Try increasing \
`gpu_memory_utilization` when initializing the engine"""
_COMPUTE_BUFFERS = """ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 181634272256
llama_new_context_with_model: failed to allocate compute buffers"""
_CACHED_GRAPH = """Traceback (most recent call last):
  File "/root/.cache/vllm/torch_compile_cache/58e26f075c/rank_15_0/inductor_cache/ep/cepq2zs3.py", line 735, in call
    arg0_1, arg1_1, arg2_1 = args
ValueError: not enough values to unpack (expected 22, got 21)"""
_GRAMMAR = """Traceback (most recent call last):
  File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/guided_decoding/xgrammar_decoding.py", line 301, in __call__
    assert self.matchers[i].accept_token(sampled_token)
AssertionError"""
_PIP_CONFLICT = """#8 159.5     The user requested rich==15.0.0
#8 159.5     instructor 1.15.4 depends on rich<15.0.0 and >=13.7.0
#8 159.5 ERROR: ResolutionImpossible: for help visit
#8 ERROR: process "/bin/sh -c pip install -r requirements.txt" did not complete successfully: exit code: 1"""
_PIP_TIMEOUT = """#9 291.8 pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='files.pythonhosted.org', port=443): \
Read timed out.
#9 ERROR: process "/bin/sh -c pip install -r requirements.txt" did not complete successfully: exit code: 2"""
_PULL_EVENTS = """      Reason:       ImagePullBackOff
  Warning  Failed     2s (x2 over 16s)  kubelet            Failed to pull image "a.azurecr.io/ubuntu2": [rpc error: code = NotFound desc = \
failed to resolve reference "a.azurecr.io/ubuntu2:latest": a.azurecr.io/ubuntu2:latest: not found"""
_CICC = "Aug 01 18:01:30 dgx-spark kernel: Out of memory: Killed process 21394 (cicc)"
_QUOTA = "OSError: [Errno 122] Disk quota exceeded: '/e/project1/a/torch_compile_cache'"


@pytest.mark.parametrize(
    ("log", "line", "summary", "remedy"),
    [
        (_PTXAS, 1, "Unexpected instruction types", "its Triton is older"),
        (_TRITON, 1, "Unsupported conversion", "its Triton is older"),
        (_NVCC, 2, "qualified name is not allowed", "args.moe-backend (triton needs no nvcc)"),
        (_WATCHDOG, 1, "(in ALLREDUCE), 600031 ms", "the log of each rank"),
        (_COMPUTE_BUFFERS, 1, "169.2 GiB", "args.ubatch-size"),
        (_CACHED_GRAPH, 4, "left in the cache", "torch_compile_cache"),
        (_GRAMMAR, 4, "structured output", "args.structured-outputs-config"),
        (_PIP_CONFLICT, 1, "rich==15.0.0", "depends on"),
        (_PIP_TIMEOUT, 1, "files.pythonhosted.org", "Build again"),
        (_PULL_EVENTS, 2, "could not be pulled: not found", "name and tag"),
        (_CICC, 1, "cicc", "env.MAX_JOBS: 2"),
        (_QUOTA, 1, "quota", "torch_compile_cache"),
        ("OSError: [Errno 98] error while attempting to bind on address ('::', 31000, 0, 0): address already in use",
         1, "The port 31000 is", "docker ps"),
        ("error while attempting to bind on address ('127.0.0.1', 8288): address already in use",
         1, "The port 8288 is", "docker ps"),
        ("error: invalid argument: /bin/sh", 1, "/bin/sh as an argument", "container.entrypoint"),
        ("  what():  this custom template is not supported", 1, "chat template", "args.jinja: true"),
        ("  what():  Invalid diff: now finding less tool calls!", 1, "tool calls", "newer build"),
        ("Unsupported ONNX data type: <UNKNOWN> (0)", 1, "the number type <UNKNOWN>", "Export the model again"),
        ("AttributeError: 'dict' object has no attribute 'is_kv_transfer_instance'", 1, "plain dict", "KVTransferConfig"),
        ("TypeError: Received a CachedWhisperTokenizerFast for argument tokenizer, but a WhisperTokenizer was expected.",
         1, "takes a WhisperTokenizer", "Take another tag"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", 1, "closed its connection", "last frames"),
        ("RuntimeError: Check failed: (status == cudaSuccess) is false: BatchPrefillWithPagedKVCache failed with error invalid argument",
         1, "BatchPrefillWithPagedKVCache failed", "choose another attention backend"),
    ],
)  # fmt: skip
def test_the_line_that_says_most_is_the_proof_and_its_remedy_is_its_own(
    log: str, line: int, summary: str, remedy: str
) -> None:
    verdict = diagnose_lines(log)
    assert verdict.evidence[0].line == line
    assert summary in verdict.summary
    assert remedy in verdict.remedy or remedy in verdict.summary


def test_a_share_that_the_graphs_take_is_named_with_the_one_that_the_engine_asks_for() -> None:
    verdict = diagnose_lines(_SMALL_SHARE)
    assert "0.5799" in verdict.summary + verdict.remedy + "".join(one.summary for one in verdict.contributing)


@pytest.mark.parametrize(
    ("says", "remedy", "edit"),
    [
        ("Tiered MoE supports max_num_seqs 1 through 4", "Set args.max-num-seqs to 4 or less.", "4"),
        ("Tiered MoE max_num_seqs > 1 requires DCP", "Correct args.max-num-seqs.", None),
        ("The moon is too bright", "Correct the setting it names.", None),
    ],
)
def test_a_setting_that_vllm_refuses_is_named_as_its_flag(says: str, remedy: str, edit: str | None) -> None:
    verdict = diagnose_lines(
        "(APIServer pid=2) INFO 05-02 10:11:12 [utils.py:233] non-default args: {'model': '/m'}\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        f"  Value error, {says} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.13/v/value_error"
    )
    assert verdict.remedy == remedy
    assert (verdict.edit.value if verdict.edit else None) == edit


_USAGE = "usage: api_server.py [-h] [--headless]"
_VLLM_USAGE = f"{_USAGE}\n                     [--uvicorn-log-level {{debug,info,warning,error,critical,trace}}]\n"


@pytest.mark.parametrize(("usage", "engine"), [(_VLLM_USAGE, "vllm"), (_USAGE, None)])
def test_the_usage_of_vllm_s_module_tells_the_engine_and_another_program_s_of_that_name_does_not(
    usage: str, engine: str | None
) -> None:
    diagnoser = LogDiagnoser()
    for line in (*usage.splitlines(), "api_server.py: error: unrecognized arguments: --howl"):
        diagnoser.feed_raw_line(line)
    assert diagnoser.build_diagnosis().engine == engine


def test_a_worker_is_no_engine_core() -> None:
    verdict = diagnose_lines(
        "(EngineCore pid=5) ERROR 01-18 22:19:25 [core.py:231] Worker proc VllmWorker-1 died unexpectedly"
    )
    assert "The engine's worker VllmWorker-1 died" in verdict.summary
    assert "core" not in verdict.summary


def test_the_parts_of_a_validation_error_keep_their_own_marks() -> None:
    verdict = diagnose_lines(
        "1 validation error for ModelConfig\n  Value error, Invalid repository ID or local directory specified: '/m'.\n"
        "Please verify the following requirements:\n1. Provide a valid Hugging Face repository ID.\n"
        "    For further information visit https://errors.pydantic.dev/2.13/v/value_error"
    )
    assert "'/m'. Please verify the following requirements: 1. Provide" in verdict.evidence[0].text


def test_a_flag_that_some_versions_lack_is_explained_where_the_image_refuses_it() -> None:
    verdict = diagnose_lines(f"{_VLLM_USAGE}api_server.py: error: unrecognized arguments: --disable-log-requests")
    assert "requests are not logged by default: leave it out" in verdict.remedy


def test_what_docker_refuses_is_quoted_from_the_line_that_is_whole() -> None:
    verdict = diagnose_lines(
        " Container mcp Error response from daemon: invalid volume specification: 'C:\\Users\\Repositori\n"
        "ies:/workspace:ro'\nError response from daemon: invalid volume specification: 'C:\\Users\\Repositories:/workspace:ro'"
    )
    assert verdict.evidence[0].line == 3


def test_odd_sizes_in_a_line_about_memory_are_not_known() -> None:
    verdict = diagnose_lines(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1.1.9 GiB of which 3.00 MiB "
        "is free. Process 12 has 1.2.3 GiB memory in use. Of the allocated memory 3 foo is allocated by PyTorch"
    )
    assert verdict.cause is FailureCause.CUDA_OUT_OF_MEMORY
    assert "Process 12" not in verdict.remedy


@pytest.mark.parametrize(
    ("line", "not_said"),
    [
        ("ValueError: FlashAttention requires head_dim 256 or less", "pip install"),
        ("ModuleNotFoundError: No module named 'mycompany_internal'", "pip install mycompany"),
        ("ModuleNotFoundError: No module named '___'", "pip install"),
    ],
)
def test_no_package_is_named_that_anybody_may_have_registered(line: str, not_said: str) -> None:
    assert not_said not in diagnose_lines(line).remedy


@pytest.mark.parametrize(
    "line",
    ["The user requested get_weather(Paris)", "INFO 05-01 10:00:00 [a.py:1] No heartbeat received from MQLLMEngine"],
)
def test_what_a_serving_engine_quotes_is_no_failure(line: str) -> None:
    diagnoser = LogDiagnoser()
    for one in (
        "(APIServer pid=1) INFO 05-01 10:00:00 [utils.py:233] non-default args: {}",
        "INFO:     Application startup complete.",
        line,
    ):
        diagnoser.feed_raw_line(one)
    assert diagnoser.build_diagnosis().verdict is None


def test_a_process_that_was_killed_before_the_first_line_of_a_run_is_another_run() -> None:
    diagnoser = LogDiagnoser()
    for line in (
        "vllm exited with code 137",
        "(APIServer pid=1) INFO 05-01 10:00:00 [utils.py:233] non-default args: {}",
    ):
        diagnoser.feed_raw_line(line)
    found = diagnoser.build_diagnosis()
    assert (found.runs, found.before and found.before.cause) == (2, FailureCause.KILLED)
