"""llama-server's and trtllm-serve's flags: what is said of them, how surely, and what is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.profiles import profile_lint
from sparkctl.profiles.profile_library import ProfileLibrary

HEADS = {
    "llamacpp": "schema: 1\nname: mine\nengine: llamacpp\nengine_version: 0.5.0\nimage: i\nmodel: {path: /m.gguf}\n"
    "args:\n  metrics: true\n",
    "trtllm": "schema: 1\nname: mine\nengine: trtllm\nimage: x/release:1.3.0rc13\nmodel: {path: o/m}\n"
    "args:\n  config: /c.yaml\n",
}


def lint_profile_text(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    checked = profile_lint.lint_profile_file(ProfileLibrary(tmp_path / "none", tmp_path / "none"), path)
    found = [str(one).removeprefix(f"{path}:") for one in checked.diagnostics]
    return [
        line
        for line in found
        if not line.partition(" ")[2].startswith(
            ("info[container-setting]", "warning[container-setting]", "warning[known-trap]")
        )
    ]


@pytest.mark.parametrize(
    ("engine", "args", "expected"),
    [
        (
            "llamacpp",
            "ngl: 99",
            "9:3: error[unknown-flag]: llama.cpp 0.5.0 does not know --ngl: it is -ngl, with one dash",
        ),
        ("llamacpp", "-ngl: all", None),
        ("llamacpp", "ctx_size: 8192", None),
        ("llamacpp", "ctx-siz: 8192", "did you mean --ctx-size?"),
        ("llamacpp", "ctx-size: much", "9:13: error[bad-value]: --ctx-size wants a whole number"),
        ("llamacpp", "flash-attn: maybe", "9:15: error[bad-choice]: --flash-attn"),
        ("llamacpp", "flash-attn: enabled", None),
        ("llamacpp", "flash-attn: true", "error[missing-value]: --flash-attn takes a value"),
        (
            "llamacpp",
            "no-mmap: true",
            "error[unknown-flag]: llama.cpp 0.5.0 has no flag --no-mmap; how a model gets into memory",
        ),
        ("llamacpp", "draft-max: 8", "llama.cpp 0.5.0 has no flag --draft-max; here it is --spec-draft-n-max"),
        (
            "llamacpp",
            "max-model-len: 8192",
            "it is a flag of vLLM; here it is --ctx-size; it is for all slots together",
        ),
        ("llamacpp", "gpu-memory-utilization: 0.8", "it is a flag of vLLM; it takes no share of the memory"),
        ("llamacpp", "api-key-file: /k", "9:3: info[no-metrics]: llama-server shows /metrics only with a key"),
        ("llamacpp", "api-key: k", None),
        (
            "llamacpp",
            'cache-type-v: q8_0\n  flash-attn: "off"',
            "9:17: error[bad-combination]: a quantized V cache needs",
        ),
        ("llamacpp", 'cache-type-v: f16\n  flash-attn: "off"', None),
        ("llamacpp", "alias: other", "the engine calls the model `other`, and sparkctl asks for `/m.gguf`"),
        ("trtllm", "max-batch-size: 8", "8:3: info[unknown-flag]: TensorRT-LLM 1.3.0 does not know --max-batch-size"),
        (
            "trtllm",
            "made-up: 8",
            "8:3: info[unknown-flag]: TensorRT-LLM 1.3.0 has no flag --made-up; the list of its flags",
        ),
        ("trtllm", "max_batch_size: many", "8:19: info[bad-value]: --max_batch_size wants a whole number"),
        (
            "trtllm",
            "kv_cache_free_gpu_memory_fraction: 0.9",
            "warning[memory-share]: --free_gpu_memory_fraction 0.9: the KV",
        ),
        ("trtllm", "kv_cache_free_gpu_memory_fraction: 0.7", None),
        ("trtllm", "tp_size: 2", "8:12: warning[bad-combination]: 2 ranks need 2 GPUs"),
    ],
)
def test_a_flag_is_judged(tmp_path: Path, engine: str, args: str, expected: str | None) -> None:
    lines = lint_profile_text(tmp_path, HEADS[engine] + f"  {args}\n")
    if expected is None:
        assert lines == []
    else:
        assert len(lines) == 1, lines
        assert expected in lines[0]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("max_batch_size: 4", None),  # it may be in the file
        ("tp_size: 1", "9:12: warning[bad-combination]: mpirun starts a rank on each of 2 Sparks"),
        ("tp_size: 2", None),
        ("pp_size: 2", None),
    ],
)
def test_mpirun_wants_as_many_ranks_as_sparks(tmp_path: Path, args: str, expected: str | None) -> None:
    lines = lint_profile_text(
        tmp_path, HEADS["trtllm"].replace("name: mine\n", "name: mine\nnodes: 2\n") + f"  {args}\n"
    )
    if expected is None:
        assert lines == []
    else:
        assert len(lines) == 1, lines
        assert expected in lines[0]


def test_mpirun_wants_ranks_where_no_file_may_say_them(tmp_path: Path) -> None:
    text = HEADS["trtllm"].replace("name: mine\n", "name: mine\nnodes: 2\n")
    lines = lint_profile_text(tmp_path, text.replace("  config: /c.yaml\n", "  max_batch_size: 8\n"))
    assert any("mpirun starts a rank on each of 2 Sparks, and tp_size times pp_size is 1" in line for line in lines)


def test_of_a_build_that_nobody_knows_only_warnings_are_said(tmp_path: Path) -> None:
    text = HEADS["llamacpp"].replace("engine_version: 0.5.0\n", "") + "  made-up: 1\n"
    unknown, inexact = sorted(lint_profile_text(tmp_path, text), key=lambda line: "made-up" not in line)
    assert "warning[unknown-flag]: llama.cpp 0.5.0 has no flag --made-up; which version" in unknown
    assert "info[engine-version]" in inexact


def test_without_figures_the_panel_is_blind_and_it_is_said(tmp_path: Path) -> None:
    text = HEADS["llamacpp"].replace("  metrics: true\n", "  ctx-size: 8192\n")
    (line,) = lint_profile_text(tmp_path, text)
    assert "info[no-metrics]: without --metrics llama-server has no /metrics" in line
    lines = lint_profile_text(tmp_path, HEADS["trtllm"].replace("  config: /c.yaml\n", "  max_batch_size: 8\n"))
    assert [line.split(": ")[1] for line in lines] == ["warning[memory-share]", "info[no-metrics]"]
