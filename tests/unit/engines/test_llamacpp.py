"""llama-server: its starts, old and new, what it dies of, and what its command line is."""

from __future__ import annotations

import re

import pytest

from sparkctl import engines
from sparkctl.engines.base import DecodingSettings
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.model.engine_metrics import EngineFact, EngineFactName
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import ModelSpec, Profile
from sparkctl.model.verdict import FailureCause
from tests.unit.engines.engine_log_reading import read_engine_log

ENGINE = engines.load_engine("llamacpp")

NEW = """\
0.00.004.120 I srv  llama_server: initializing ...
0.00.009.310 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
0.00.009.552 W srv  llama_server: security: no API key is set and CORS allows all origins
0.00.011.870 I srv    load_model: loading model '/models/gpt-oss-120b.gguf'
0.48.310.004 I common_speculative_init_result: loading draft model '/models/small.gguf'
0.52.007.441 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 131072, kv_unified = 'true'
0.53.118.200 I srv  llama_server: model loaded
0.53.118.911 I srv  llama_server: listening on http://0.0.0.0:8080
0.55.001.002 I slot print_timing: id  1 | task 0 | n_gen =    100, tg =  55.10 t/s, tg_3s =  54.88 t/s
"""

OLD = f"""\
ggml_cuda_init: found 1 CUDA devices:
build: 6767 (5acd45546) with cc (Ubuntu 13.3.0) for aarch64-linux-gnu
main: loading model
llama_model_loader: loaded meta data with 37 key-value pairs and 687 tensors from /models/m.gguf (version GGUF V3 (latest))
llama_model_loader: - kv   0:                       general.architecture str              = gpt-oss
print_info: file type   = MXFP4 MoE
print_info: arch             = gpt-oss
load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors: offloaded 37/37 layers to GPU
load_tensors:        CUDA0 model buffer size = 59853.66 MiB
{"." * 40}
{"." * 100}
llama_context: constructing llama_context
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 65536
llama_context: n_ctx_per_seq = 16384
llama_context: flash_attn    = auto
llama_kv_cache: size = 2304.00 MiB ( 65536 cells,  18 layers,  4/1 seqs), K (f16): 1152.00 MiB, V (f16): 1152.00 MiB
llama_context: Flash Attention was auto, set to enabled
common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)
main: model loaded
main: server is listening on http://0.0.0.0:8080 - starting the main loop
srv  update_slots: all slots are idle
"""


def list_facts(log: str) -> dict[EngineFactName, EngineFact]:
    preparer = LinePreparer()
    lines = [line for raw in log.split("\n") for line in preparer.prepare_lines(raw)]
    signals = [signal for line in lines if (signal := ENGINE.classify_line(line))]
    return {fact.name: fact for signal in signals for fact in signal.facts}


def test_a_new_build_starts() -> None:
    reading = read_engine_log("llamacpp", NEW)
    assert reading.phases == [Phase.LOADING, Phase.WARMING, Phase.READY]
    assert list(dict.fromkeys(step.name for step in reading.steps)) == ["weights", "draft", "warm-up", "http"]
    assert not reading.failures


def test_an_older_build_starts_and_tells_its_progress() -> None:
    reading = read_engine_log("llamacpp", OLD)
    assert reading.phases == [Phase.LOADING, Phase.WARMING, Phase.READY]
    assert Step("weights", fraction=0.4) in reading.steps
    assert Step("weights", fraction=1.0) in reading.steps
    assert list(dict.fromkeys(step.name for step in reading.steps)) == ["weights", "kv-cache", "warm-up", "http"]
    assert not reading.failures


def test_terminal_output_reads_like_the_log() -> None:
    coloured = re.sub(r"(?m)^(\d\S+) (\w) ", "\x1b[34m\\1\x1b[0m \x1b[32m\\2 \x1b[0m", NEW).replace("\n", "\r\n")
    assert coloured != NEW
    assert read_engine_log("llamacpp", coloured).phases == read_engine_log("llamacpp", NEW).phases
    assert list_facts(coloured) == list_facts(NEW)


def test_facts_of_a_new_build() -> None:
    found = list_facts(NEW)
    assert {name: fact.value for name, fact in found.items()} == {
        EngineFactName.KV_CACHE_TOKENS: "131072",
        EngineFactName.CONTEXT_LENGTH: "131072",
        EngineFactName.MAX_CONCURRENCY: "4",
    }


def test_slots_with_a_cache_of_their_own_hold_as_much_each() -> None:
    found = list_facts(NEW.replace("'true'", "'false'"))
    assert found[EngineFactName.KV_CACHE_TOKENS].value == str(4 * 131072)


def test_facts_of_an_older_build() -> None:
    assert {name: fact.value for name, fact in list_facts(OLD).items()} == {
        EngineFactName.ENGINE_VERSION: "b6767",
        EngineFactName.QUANTIZATION: "MXFP4 MoE",
        EngineFactName.ARCHITECTURE: "gpt-oss",
        EngineFactName.QUANTIZATION_PATH: "all layers on the GPU",
        EngineFactName.MAX_CONCURRENCY: "4",
        EngineFactName.KV_CACHE_TOKENS: "65536",
        EngineFactName.CONTEXT_LENGTH: "16384",
        EngineFactName.KV_CACHE_DTYPE: "f16",
        EngineFactName.ATTENTION_BACKEND: "flash attention",
    }
    assert not any(fact.is_fallback for fact in list_facts(OLD).values())


def test_what_a_newer_build_tells_when_asked_for_more() -> None:
    found = list_facts(
        "0.00.017.584 I resolve_fused_ops: Flash Attention enabled\n"
        "0.00.276.038 I spec common_specu: adding speculative implementation 'ngram-simple'\n"
    )
    assert {name: fact.value for name, fact in found.items()} == {
        EngineFactName.ATTENTION_BACKEND: "flash attention",
        EngineFactName.SPECULATIVE_METHOD: "ngram-simple",
    }


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("load_tensors: offloaded 20/37 layers to GPU", "20 of 37 layers on the GPU"),
        ("warning: no usable GPU found, --gpu-layers option will be ignored", "CPU"),
    ],
)
def test_an_image_without_cuda_is_told_as_a_slower_path(line: str, value: str) -> None:
    assert list_facts(line) == {
        EngineFactName.QUANTIZATION_PATH: EngineFact(EngineFactName.QUANTIZATION_PATH, value, is_fallback=True)
    }


END = """\
E srv    load_model: failed to load model, '/models/m.gguf'
E srv  llama_server: exiting due to model loading error
"""


@pytest.mark.parametrize(
    ("log", "cause", "field"),
    [
        ("error: invalid argument: --no-mmap", FailureCause.UNKNOWN_FLAG, "args.no-mmap"),
        (
            'error while handling argument "--draft-max": the argument has been removed. use --spec-draft-n-max\n\nusage:',
            FailureCause.UNKNOWN_FLAG,
            "args.draft-max",
        ),
        (
            'error while handling argument "--flash-attn": error: unknown value',
            FailureCause.BAD_VALUE,
            "args.flash-attn",
        ),
        (
            'error while handling argument "-fa": error: unknown value for --flash-attn',
            FailureCause.BAD_VALUE,
            "args.-fa",
        ),
        ('error while handling argument "-c": stoi', FailureCause.BAD_VALUE, "args.c"),
        (
            "E llama_model_load_from_file_impl: exactly one out metadata, path_model, and file must be defined",
            FailureCause.HUB_UNREACHABLE,
            "model.path",
        ),
        (
            'error while handling environment variable "LLAMA_ARG_PORT": stoi',
            FailureCause.BAD_VALUE,
            "env.LLAMA_ARG_PORT",
        ),
        (
            "gguf_init_from_file: failed to open GGUF file '/models/m.gguf' (No such file or directory)\n"
            "llama_model_load: error loading model: llama_model_loader: failed to load model from /models/m.gguf",
            FailureCause.MODEL_NOT_FOUND,
            "model.path",
        ),
        (
            "gguf_init_from_file: failed to open GGUF file '/models/m.gguf' (Permission denied)",
            FailureCause.PERMISSION,
            "model.path",
        ),
        (
            "gguf_init_from_reader: invalid magic characters: '<!DO', expected 'GGUF'\n"
            "llama_model_load: error loading model: llama_model_loader: failed to load model from /models/m.gguf",
            FailureCause.MODEL_FILES,
            "model.path",
        ),
        (
            "llama_model_load: error loading model: tensor 'blk.3.ffn_down.weight' data is not within the file bounds, "
            "model is corrupted or incomplete",
            FailureCause.TRUNCATED_WEIGHTS,
            "model.path",
        ),
        ("gguf_init_from_reader: failed to read key-value pairs", FailureCause.TRUNCATED_WEIGHTS, "model.path"),
        (
            "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'qwen9'",
            FailureCause.MODEL_UNSUPPORTED,
            "image",
        ),
        (
            "llama_model_load: error loading model: missing tensor 'output_norm.weight'",
            FailureCause.MODEL_FILES,
            "model.path",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 59853.66 MiB on device 0: cudaMalloc failed: out of "
            "memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 62761234432\n"
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
            FailureCause.WEIGHTS_DO_NOT_FIT,
            None,
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 36864.00 MiB on device 0: cudaMalloc failed: out of "
            "memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 38654705664\n"
            "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
            FailureCause.KV_CACHE_TOO_SMALL,
            "args.ctx-size",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 279356.51 MiB on device 0: cudaMalloc failed: out of "
            "memory\nggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 292926534144",
            FailureCause.CUDA_OUT_OF_MEMORY,
            "args.ubatch-size",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory",
            FailureCause.CUDA_OUT_OF_MEMORY,
            "args.ctx-size",
        ),
        (
            "llama_init_from_model: failed to initialize the context: std::bad_alloc",
            FailureCause.KV_CACHE_TOO_SMALL,
            "args.ctx-size",
        ),
        (
            "graph_reserve: failed to allocate compute buffers\n"
            "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers",
            FailureCause.CUDA_OUT_OF_MEMORY,
            "args.ubatch-size",
        ),
        (
            "/app/ggml/src/ggml-cuda/ggml-cuda.cu:98: CUDA error: no kernel image is available for execution on the device",
            FailureCause.KERNEL_UNSUPPORTED,
            "image",
        ),
        ("CUDA error: out of memory", FailureCause.CUDA_OUT_OF_MEMORY, "args.ctx-size"),
        ("/app/ggml/src/ggml.c:3519: GGML_ASSERT(a->ne[2] == b->ne[0]) failed", FailureCause.CRASHED, None),
        (
            "E srv  start: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8080",
            FailureCause.PORT_IN_USE,
            "port",
        ),
        (
            "llama_init_from_model: failed to initialize the context: quantized V cache was requested, but this requires Flash Attention\n"
            "common_init_from_params: failed to create context with model '/m/x.gguf'\nmain: exiting due to model loading error",
            FailureCause.BAD_VALUE,
            "args.flash-attn",
        ),
        (
            "llama_init_from_model: V cache quantization requires flash_attn",
            FailureCause.BAD_VALUE,
            "args.flash-attn",
        ),
        (
            "common_download_file_single: download failed: Forbidden (status: 403)\n"
            "srv  llama_server: failed to download model: https://huggingface.co/x",
            FailureCause.MODEL_GATED,
            "env.HF_TOKEN",
        ),
        ("get_hf_plan: no GGUF files found in repository o/m", FailureCause.MODEL_NOT_FOUND, "model.path"),
        ("srv  llama_server: failed to download model: timeout", FailureCause.HUB_UNREACHABLE, "model.path"),
        (
            "srv    load_model: failed to load draft model, '/models/d.gguf'",
            FailureCause.MODEL_FILES,
            "args.model-draft",
        ),
        ("nothing that says why", FailureCause.CRASHED, None),
        ("llama_init_from_model: SPLIT_MODE_TENSOR requires flash_attn to be enabled", FailureCause.BAD_VALUE, None),
        (
            "llama_init_from_model: K cache type q4_0 with block size 32 does not divide n_embd_head_k=80",
            FailureCause.BAD_VALUE,
            None,
        ),
        ("llama_model_load: invalid value for main_gpu: 1 (available devices: 1)", FailureCause.BAD_VALUE, None),
        ("srv          init: the server is built without SSL support", FailureCause.BAD_VALUE, None),
        (
            "srv    load_model: load_model: please consider disabling jinja via --no-jinja, or use a custom chat template",
            FailureCause.BAD_VALUE,
            "args.chat-template-file",
        ),
        (
            "gguf_init_from_reader: tensor 'blk.1.attn_q.weight' has offset 17, expected 16",
            FailureCause.MODEL_FILES,
            "model.path",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_llamacpp_failures_are_recognized(log: str, cause: FailureCause, field: str | None) -> None:
    reading = read_engine_log("llamacpp", f"{log}\n{END}")
    assert (reading.root.cause, reading.root.field) == (cause, field)
    assert "(not said)" not in reading.root.summary + reading.root.remedy
    assert any(failure.fatal for _, _, failure in reading.failures)


def test_what_the_line_on_the_context_says_is_the_proof() -> None:
    line = "llama_init_from_model: failed to initialize the context: the cache needs seven slots"
    after = "common_init_from_params: failed to create context with model '/m/x.gguf'"
    root = read_engine_log("llamacpp", f"{line}\n{after}\n{END}").root
    assert (root.cause, root.rule) == (FailureCause.CRASHED, "failed to initialize the context: ")
    assert root.summary.endswith(": the cache needs seven slots")


@pytest.mark.parametrize(
    "line",
    [
        "0.01.2 W srv  llama_server: security: no API key is set and CORS allows all origins",
        "llama_context: n_ctx_seq (8192) < n_ctx_train (131072) -- the full capacity of the model will not be utilized",
        "W find_slot: failed to find free space in the KV cache, retrying with smaller batch size, n_batch = 1024, ret = 1",
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
        "0.00.1 W slot   operator(): id  1 | task 121 | need to evaluate at least 1 token for each active slot",
        "slot update_slots: id 0 | task 3 | error: CUDA error: out of memory",
        "srv  log_server_r: request: POST /v1/chat/completions 10.0.0.2 500 error: invalid argument: --x",
        "srv  llama_server: notice: server default port will be changed to :9931 in a future release",
    ],
)
def test_harmless_llamacpp_lines_are_no_failure(line: str) -> None:
    assert not read_engine_log("llamacpp", line).failures


def make_profile(path: str | None, command: tuple[str, ...] | None = None, **fields: object) -> Profile:
    known: dict[str, object] = {"name": "p", "engine": "llamacpp", "image": "i", "origin": "p.yaml", "shipped": False}
    return Profile(**known, command=command, model=ModelSpec(path=path, served_name="oss"), **fields)  # type: ignore[arg-type]


def test_llamacpp_command_line() -> None:
    words = ENGINE.build_command(
        make_profile("/models/m.gguf", port=8090, args=(("ctx-size", "8192"), ("-ngl", "99"), ("metrics", True)))
    )
    assert words == (
        *("llama-server", "-m", "/models/m.gguf", "--host", "0.0.0.0", "--port", "8090", "--alias", "oss"),
        *("--ctx-size", "8192", "-ngl", "99", "--metrics"),
    )


@pytest.mark.parametrize(
    ("path", "flag"),
    [
        ("ggml-org/gpt-oss-120b-GGUF", "-hf"),
        ("unsloth/Qwen3.6-35B-A3B-MTP-GGUF:UD-Q4_K_XL", "-hf"),
        ("models/m.gguf", "-m"),
        ("/models/gpt-oss", "-m"),
        ("m.gguf", "-m"),
    ],
)
def test_a_repository_of_the_hub_is_not_a_file(path: str, flag: str) -> None:
    assert ENGINE.build_command(make_profile(path))[1:3] == (flag, path)


def test_flags_in_args_are_not_repeated() -> None:
    words = ENGINE.build_command(make_profile("/m.gguf", args=(("-hf", "o/m"), ("-a", "name"), ("port", "1"))))
    assert words == ("llama-server", "--host", "0.0.0.0", "-hf", "o/m", "-a", "name", "--port", "1")


def test_an_image_that_starts_it_itself_gets_flags_alone() -> None:
    assert ENGINE.build_command(make_profile("/m.gguf", command=()))[:2] == ("-m", "/m.gguf")


@pytest.mark.parametrize(
    ("words", "decoding"),
    [
        ("", DecodingSettings()),
        ("-md /d.gguf --spec-draft-n-max 8", DecodingSettings(8, 8)),
        ("--model-draft /d.gguf --draft-max 16", DecodingSettings(16, 16)),
        ("--spec-type draft-mtp", DecodingSettings(3, 3)),
        ("--spec-type ngram-mod --spec-ngram-mod-n-max 8", DecodingSettings(8, 0)),
        ("--spec-type ngram-simple,draft-mtp", DecodingSettings()),
        ("--spec-type none -md /d.gguf", DecodingSettings()),
    ],
)
def test_llamacpp_decoding_settings(words: str, decoding: DecodingSettings) -> None:
    assert ENGINE.read_decoding_settings(("llama-server", *words.split())) == decoding


SYSTEM_INFO = "system_info: n_threads = 20 (n_threads_batch = 20) / 20 | CUDA : ARCHS = {} | USE_GRAPHS = 1 | PEER_MAX_BATCH_SIZE = 128 |\n"


@pytest.mark.parametrize(
    ("archs", "is_told"), [("500,610,890,900", True), ("890,1000", True), ("750,1200", False), ("1210", False)]
)
def test_a_build_without_code_for_a_gb10_is_told(archs: str, is_told: bool) -> None:
    assert (EngineFactName.GPU_CODE in list_facts(SYSTEM_INFO.format(archs))) is is_told


def test_a_context_beyond_the_trained_one_is_told() -> None:
    line = "llama_context: n_ctx_seq (200000) > n_ctx_train (40960) -- possible training context overflow\n"
    assert list_facts(line)[EngineFactName.TRAINED_CONTEXT].value == "40960, and it runs with 200000"
    assert EngineFactName.TRAINED_CONTEXT not in list_facts(line.replace("> n_ctx", "< n_ctx"))


def test_a_check_of_its_own_is_named_with_its_place() -> None:
    line = "/home/me/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:3927: GGML_ASSERT(ok) failed"
    summary = read_engine_log("llamacpp", line).root.summary
    assert summary == "llama.cpp failed its own check in ggml-cuda.cu:3927: GGML_ASSERT(ok)"
