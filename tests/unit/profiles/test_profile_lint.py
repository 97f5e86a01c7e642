"""Profiles held against the flags of their engine: the catalogue decides what is an error, each in its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.engines import engine_flags
from sparkctl.engines.engine_flags import FlagArity
from sparkctl.engines.lint import LintRule, LintSeverity
from sparkctl.engines.lint.flag_combinations import find_draft_mismatch
from sparkctl.engines.traps import load_traps
from sparkctl.profiles import profile_lint
from sparkctl.profiles.profile_library import ProfileLibrary

HEADS = {
    "sglang": "schema: 1\nname: mine\nengine: sglang\nimage: x/sglang:0.5.12\n"
    "model: {path: /models/Qwen3.5-35B-A3B-AWQ-4bit}\nargs:\n  enable-metrics: true\n",
    "vllm": "schema: 1\nname: mine\nengine: vllm\nimage: x/vllm:0.19.1\nmodel: {path: /models/Qwen3.5-35B-A3B-FP8}\nargs:\n"
    "  gpu-memory-utilization: 0.6\n",
}
DFLASH = (
    "attention-backend: flash_attn\n"
    "  speculative-config: {method: dflash, model: x/Qwen3.5-35B-A3B-DFlash, num_speculative_tokens: 16}"
)


def is_of_catalogue(line: str) -> bool:
    """Tell whether a line is a known trap's: tests/unit/engines/test_traps.py has those."""
    return any(one.when and max(re.split(r"\{\w+\}", one.meaning), key=len) in line for one in load_traps())


def lint_profile_text(tmp_path: Path, text: str, version: str | None = None) -> list[str]:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    checked = profile_lint.lint_profile_file(ProfileLibrary(tmp_path / "none", tmp_path / "none"), path, version)
    found = [str(one).removeprefix(f"{path}:") for one in checked.diagnostics]
    found = [line for line in found if "is in no mount" not in line]  # the texts here are about flags
    return [line for line in found if " info[" not in line or not is_of_catalogue(line)]


def list_finding_kinds(lines: list[str]) -> list[str]:
    """Return what comes after the place, up to the message."""
    return [line.split(": ")[1] for line in lines]


def get_only_line(lines: list[str]) -> str:
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize(
    ("engine", "args", "expected"),
    [
        # the audit's
        (
            "sglang",
            "speculative-algorithm: HOWL",
            "8:26: error[bad-choice]: --speculative-algorithm of SGLang 0.5.12 does not take `HOWL`",
        ),
        (
            "sglang",
            "speculative-draft-device: cpu",
            "8:3: error[unknown-flag]: SGLang 0.5.12 has no flag --speculative-draft-device",
        ),
        (
            "sglang",
            "enable-prefix-caching: true",
            "8:3: error[unknown-flag]: SGLang 0.5.12 has no flag --enable-prefix-caching: it is a flag of vLLM",
        ),
        (
            "sglang",
            "speculative-model: /m",
            "8:3: error[unknown-flag]: SGLang 0.5.12 has no flag --speculative-model; here it is --speculative-draft-model-path",
        ),
        (
            "sglang",
            "speculative-algo: NGRAM",
            "8:3: info[abbreviated-flag]: --speculative-algo is short for --speculative-algorithm",
        ),
        (
            "sglang",
            "kv-cache-dtype: fp8",
            "8:19: error[bad-choice]: --kv-cache-dtype of SGLang 0.5.12 does not take `fp8`; "
            "it is one of auto, bf16, bfloat16, fp4_e2m1, fp8_e4m3",
        ),
        # names
        (
            "sglang",
            "mem_fraction_static: 0.8",
            "8:3: error[unknown-flag]: SGLang 0.5.12 does not know --mem_fraction_static: its flags are written with dashes",
        ),
        (
            "sglang",
            "gpu-memory-utilization: 0.6",
            "here it is --mem-fraction-static; it is a share of what is available",
        ),
        ("sglang", "memm-fraction-static: 0.8", "did you mean --mem-fraction-static?"),
        ("sglang", "speculative-draft: /m", "8:3: error[ambiguous-flag]: --speculative-draft could be "),
        (
            "sglang",
            "stream-output: true",
            "8:3: warning[deprecated-flag]: --stream-output is deprecated in SGLang 0.5.12; use --incremental-streaming-output",
        ),
        ("sglang", "cuda-graph-max-bs-decode: 4", "has no flag --cuda-graph-max-bs-decode, which 0.5.14 has"),
        ("vllm", "tp: 2", "8:3: error[unknown-flag]: vLLM 0.19.1 has no flag --tp; here it is -tp"),
        ("vllm", "enable-metrics: true", "/metrics is always on here: leave it out"),
        ("vllm", "disable-prefix-caching: true", "has no flag --disable-prefix-caching, which 0.33.0 has"),
        ("vllm", "mem-fraction-static: 0.8", "it is a flag of SGLang; here it is --gpu-memory-utilization"),
        # values
        ("sglang", "tp-size: two", "8:12: error[bad-value]: --tensor-parallel-size wants a whole number, not `two`"),
        ("sglang", "mem-fraction-static: much", "--mem-fraction-static wants a number, not `much`"),
        ("sglang", "context-length: long", "--context-length wants a number, as in 8192 or 8k"),
        ("sglang", "tp-size: true", "8:12: error[missing-value]: --tp-size takes a value"),
        (
            "sglang",
            'trust-remote-code: "true"',
            "is a switch and takes no value, not `true`; write true without quotes",
        ),
        ("sglang", 'trust-remote-code: "no"', "write false to leave it out"),
        ("sglang", "json-model-override-args: {a: 1}", None),
        ("sglang", 'json-model-override-args: "{a: 1}"', "wants JSON (in args: a map), not `{a: 1}`"),
        ("sglang", "quantization: awq_marlin", None),
        ("sglang", "kv-cache-dtype: fp8_e5m2", None),
        ("sglang", "speculative-algorithm: ngram", None),
        ("sglang", "context-length: 128k", None),
        ("sglang", "tp-size: ${TP:-1}", None),
        ("sglang", "cuda-graph-bs: [[1, 2, 4]]", None),
        ("sglang", "cuda-graph-bs: [[1, two]]", "--cuda-graph-bs wants a whole number, not `two`"),
        ("sglang", "cuda-graph-bs: [1, 2]", "is given twice, and SGLang 0.5.12 takes the last one; several values"),
        (
            "vllm",
            "speculative-config: {method: dflash, model: z-lab/Qwen3.5-35B-A3B-DFlash, num_speculative_tokens: 15}\n"
            "  attention-backend: flash_attn\n  max-num-seqs: 8",
            "8:32: error[bad-choice]: --speculative-config method of vLLM 0.19.1 does not take `dflash`",
        ),
        (
            "vllm",
            "speculative-config: {method: mtp, num_speculative_tokens: 3, modle: /m}",
            "8:64: error[bad-key]: --speculative-config of vLLM 0.19.1 has no key `modle`; did you mean model?",
        ),
        (
            "vllm",
            "speculative-config: not json",
            "8:23: error[bad-value]: --speculative-config wants JSON (in args: a map), not `not json`",
        ),
        ("vllm", 'speculative-config: "[1]"', "needs a map, not `[1]`"),
        (
            "vllm",
            "speculative-config.methd: mtp\n  speculative-config.num_speculative_tokens: 3",
            "error[bad-key]: --speculative-config of vLLM 0.19.1 has no key `methd`; did you mean method?",
        ),
        ("vllm", "speculative-config: {method: mtp}", "warning[missing-flag]: num_speculative_tokens is not set"),
        ("vllm", "compilation-config.mode: 3", None),
        (
            "vllm",
            "compilation-config: {level: 3}",
            "error[bad-key]: --compilation-config of vLLM 0.19.1 has no key `level`",
        ),
        ("vllm", "hf-overrides.rope.factor: 2", None),
        ("vllm", "max-log-len: None", None),
        ("vllm", "max-log-len: lots", "--max-log-len wants a whole number, not `lots`"),
        ("vllm", "disable-log-stats.x: 1", "is a switch: there is nothing to set with .x"),
        ("vllm", "max-num-seqs.deep: 3", "--max-num-seqs is no JSON value"),
        ("vllm", "max_model_len: auto", None),
        ("vllm", "tensor_parallel_size: 1", None),
        ("vllm", "attention-backend: flash_attn", None),
        (
            "vllm",
            "kv-cache-dtype: nvfp4",
            "8:19: error[bad-choice]: --kv-cache-dtype of vLLM 0.19.1 does not take `nvfp4`",
        ),
        ("vllm", "middleware: [a.b, c.d]", None),  # it is meant to be repeated
        ("vllm", "no-enable-prefix-caching: true", None),
        (
            "vllm",
            "enable-prefix-caching: false",
            "the engine then decides; to turn it off write no-enable-prefix-caching: true",
        ),
        (
            "vllm",
            "quantization: fbgemm_fp8",
            "warning[deprecated-flag]: --quantization `fbgemm_fp8` is deprecated in vLLM 0.19.1",
        ),
        # together
        (
            "sglang",
            "tp-size: 2",
            "8:12: warning[bad-combination]: 2 ranks need 2 GPUs; each Spark has one, and nodes is 1",
        ),
        ("sglang", "context-length: 262144", "8:19: info[long-context]: --context-length `262144`"),
        (
            "sglang",
            "speculative-algorithm: NEXTN\n  speculative-num-steps: 5\n  speculative-eagle-topk: 4",
            "9:3: warning[known-trap]: speculative-num-steps and -eagle-topk are set without speculative-num-draft-tokens",
        ),
        (
            "sglang",
            "speculative-algorithm: NEXTN\n  speculative-num-steps: 5",
            "(--set args.speculative-eagle-topk=1)",
        ),
        ("sglang", "speculative-algorithm: NEXTN\n  speculative-num-steps: 5\n  speculative-eagle-topk: 1", None),
        (
            "sglang",
            "speculative-num-draft-tokens: 3",
            "8:3: warning[missing-flag]: --speculative-num-draft-tokens without --speculative-algorithm drafts nothing",
        ),
        ("sglang", "cpu-offload-gb: 8", "warning[bad-combination]: --cpu-offload-gb: a Spark has one memory"),
        ("vllm", "cpu-offload-gb: 8", "(--set args.cpu-offload-gb=null)"),
        ("sglang", "cpu-offload-gb: 0", None),
        (
            "sglang",
            "speculative-algorithm: EAGLE3\n  speculative-draft-model-path: a/b-EAGLE3",
            "8:26: info[slow-drafts]: EAGLE3 on SGLang was slower than no drafts on a Spark: 16.4 tokens/s in place of 31.7",
        ),
        (
            "sglang",
            "speculative-algorithm: DFLASH",
            "8:26: error[missing-flag]: DFLASH needs a draft model: --speculative-draft-model-path",
        ),
        (
            "sglang",
            "speculative-algorithm: STANDALONE\n  speculative-draft-model-path: /m/QwQ-32B-Eagle",
            "it is of the family QwQ, the target of Qwen3.5, a mixture of experts",
        ),
        ("sglang", "speculative-algorithm: EAGLE\n  speculative-draft-model-path: z/Qwen3.5-35B-A3B-DFlash", None),
        (
            "vllm",
            "enable-auto-tool-choice: true",
            "8:3: error[missing-flag]: --enable-auto-tool-choice needs --tool-call-parser",
        ),
        (
            "vllm",
            "speculative-config: {method: eagle3, model: x/Qwen3.5-27B-eagle3, num_speculative_tokens: 3}",
            "8:47: warning[family-mismatch]: this draft model will hardly be accepted: it was made for 27B, the target is 35B-A3B",
        ),
        ("vllm", "speculative-config: {method: draft_model, model: x/Qwen3.5-0.8B, num_speculative_tokens: 3}", None),
    ],
)
def test_a_flag_is_judged_by_its_catalogue(tmp_path: Path, engine: str, args: str, expected: str | None) -> None:
    lines = lint_profile_text(tmp_path, HEADS[engine] + f"  {args}\n")
    if expected is None:
        assert lines == []
    else:
        assert expected in get_only_line(lines)


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        ("Qwen/Qwen3-30B-A3B", "Tengyunw/qwen3_30b_moe_eagle3", None),
        ("mistralai/Mistral-Small-3.2-24B-Instruct", "x/Mistral-24B-EAGLE3", None),
        ("Qwen/Qwen3-30B-A3B", "x/Qwen3-32B-eagle3", "it was made for 32B, the target is 30B-A3B"),
        ("Qwen/Qwen3.5-35B-A3B", "x/Qwen3-35B-A3B-eagle3", "it is of the family Qwen3, the target of Qwen3.5"),
        ("meta-llama/Llama-3.2-1B", "x/Llama3_2_1B_eagle", None),
        ("x/Llama-3.3-70B", "x/Llama-2-70B-eagle", "it is of the family Llama-2, the target of Llama-3.3"),
        ("zai-org/GLM-4.6", "x/glm-eagle3", None),
        ("Qwen/Qwen-72B", "Qwen/Qwen-72B-eagle", None),
    ],
)
def test_a_draft_is_of_another_family_or_size_only_where_both_names_tell(
    target: str, draft: str, expected: str | None
) -> None:
    assert find_draft_mismatch(target, draft, by_hidden_states=True) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("0.85", []),
        ("0.86", ["warning[memory-share]"]),
        ("0.9", ["warning[memory-share]"]),
        ("85", ["error[bad-value]"]),
        (None, ["warning[memory-share]"]),
    ],
)
def test_a_share_of_all_memory_leaves_something(tmp_path: Path, share: str | None, expected: list[str]) -> None:
    setting = "seed: 1" if share is None else f"gpu-memory-utilization: {share}"
    lines = lint_profile_text(tmp_path, HEADS["vllm"].replace("gpu-memory-utilization: 0.6", setting))
    assert list_finding_kinds(lines) == expected
    if share is None:
        assert "is not set, and vLLM 0.19.1 takes 0.9" in lines[0]
    assert (
        lint_profile_text(tmp_path, HEADS["vllm"].replace("gpu-memory-utilization: 0.6", "kv-cache-memory-bytes: 8G"))
        == []
    )


@pytest.mark.parametrize(
    ("share", "drafts", "expected"),
    [("0.6", "20", []), ("0.82", "20", ["info[memory-share]"]), ("0.82", None, ["warning[known-trap]"])],
)
def test_a_draft_head_of_0512_takes_its_share_before_the_weights(
    tmp_path: Path, share: str, drafts: str | None, expected: list[str]
) -> None:
    tokens = "" if drafts is None else f"  speculative-num-draft-tokens: {drafts}\n"
    text = HEADS["sglang"].replace("model: {path: ", "model: {weights: 27GB, path: ") + (
        "  speculative-algorithm: NEXTN\n  speculative-num-steps: 5\n  speculative-eagle-topk: 4\n"
        f"{tokens}  mem-fraction-static: {share}\n"
    )
    lines = lint_profile_text(tmp_path, text)
    assert list_finding_kinds(lines) == expected
    if share == "0.82" and drafts:
        assert "(--set args.mem-fraction-static=0.7)" in lines[0], "the round share that plan names"
        untold = text.replace("model: {weights: 27GB, path: ", "model: {path: ")
        (line,) = lint_profile_text(tmp_path, untold)
        assert "leaves about 12.6 GiB for those: their size, model.weights, is not in the profile" in line
        assert "--set" not in line, "no share is proposed for weights that are not known"


def test_dflash_wants_memory_and_its_backend(tmp_path: Path) -> None:
    text = (
        "schema: 1\nname: mine\nengine: vllm\nimage: x/vllm:0.33.0\nmodel: {path: Intel/Qwen3.5-35B-A3B-int4-AutoRound}\n"
        "args:\n  gpu-memory-utilization: 0.85\n"
        "  speculative-config: {method: dflash, model: z-lab/Qwen3.5-35B-A3B-DFlash, num_speculative_tokens: 15}\n"
    )
    lines = lint_profile_text(tmp_path, text)
    assert list_finding_kinds(lines) == ["warning[memory-share]", "warning[bad-combination]", "info[slow-drafts]"]
    assert "0.60 or less is what owners of a Spark advise" in lines[0]
    assert "(--set args.gpu-memory-utilization=0.6)" in lines[0]
    assert "(--set args.attention-backend=flash_attn)" in lines[1]
    assert "31 with a context" in lines[2]
    calm = text.replace("0.85", "0.6").replace("args:\n", "args:\n  attention-backend: flash_attn\n")
    assert list_finding_kinds(lint_profile_text(tmp_path, calm)) == ["info[slow-drafts]"]


@pytest.mark.parametrize(
    ("model", "args", "expected"),
    [
        ("x/Qwen3.5-27B", "gpu-memory-utilization: 0.7", ["info[memory-share]"]),
        ("x/Qwen3.5-27B", "gpu-memory-utilization: 0.84", ["info[memory-share]"]),
        ("x/Qwen3.5-27B", "gpu-memory-utilization: 0.85", ["warning[memory-share]"]),
        ("x/Qwen3.5-27B", "gpu-memory-utilization: 0.6\n  attention-backend: flashinfer", ["warning[bad-combination]"]),
        ("x/Qwen3.5-27B", "gpu-memory-utilization: 0.6\n  attention-backend: FLASH_ATTN", []),
        ("x/Qwen3-Coder-Next-int4-AutoRound", "gpu-memory-utilization: 0.6", ["warning[bad-combination]"]),
        ("x/Qwen3.5-27B-int4-AutoRound", "gpu-memory-utilization: 0.6", ["info[bad-combination]"]),
        ("openai/gpt-oss-120b", "gpu-memory-utilization: 0.6", ["info[known-trap]"]),
    ],
)
def test_dflash_by_model_share_and_backend(tmp_path: Path, model: str, args: str, expected: list[str]) -> None:
    backend = "" if "attention-backend" in args else "  attention-backend: flash_attn\n"
    text = (
        f"schema: 1\nname: mine\nengine: vllm\nimage: x/vllm:0.33.0\nmodel: {{path: {model}}}\nargs:\n  {args}\n{backend}"
        "  speculative-config: {method: dflash, model: z-lab/some-drafter, num_speculative_tokens: 15}\n"
    )
    assert list_finding_kinds(lint_profile_text(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("model", "env", "expected"),
    [
        ("x/Qwen3.5-27B-NVFP4", "", ["info[known-trap]"]),
        ("x/Qwen3.6-27B-NVFP4", "", []),
        ("x/Qwen3.6-27B-NVFP4", "env: {VLLM_NVFP4_GEMM_BACKEND: marlin}\n", ["info[container-setting]"]),
        ("x/Qwen3.6-27B-NVFP4", "env: {VLLM_NVFP4_GEMM_BACKEND: cutlass}\n", []),
    ],
)
def test_what_owners_report_of_nvfp4(tmp_path: Path, model: str, env: str, expected: list[str]) -> None:
    lines = lint_profile_text(
        tmp_path, HEADS["vllm"].replace("image:", f"{env}image:").replace("/models/Qwen3.5-35B-A3B-FP8", model)
    )
    assert list_finding_kinds(lines) == expected
    assert not [line for line in lines if "slower" in line]


def test_drafts_set_by_dotted_names_and_by_short_ones_are_the_same(tmp_path: Path) -> None:
    dotted = HEADS["vllm"] + "  speculative-config.method: mtp\n  speculative-config.num_speculative_tokens: 2\n"
    assert lint_profile_text(tmp_path, dotted) == []
    short = HEADS["vllm"].replace("0.19.1", "0.33.0") + "  spec-method: mtp\n"
    assert list_finding_kinds(lint_profile_text(tmp_path, short)) == ["warning[missing-flag]"]
    assert lint_profile_text(tmp_path, short + "  spec-tokens: 2\n") == []


def test_a_flag_twice_under_two_names(tmp_path: Path) -> None:
    lines = lint_profile_text(tmp_path, HEADS["sglang"] + "  tp-size: 1\n  tensor-parallel-size: 1\n")
    assert "9:3: warning[repeated-flag]: --tensor-parallel-size is given twice (as --tp-size)" in get_only_line(lines)


def test_an_image_bump_tells_what_it_breaks(tmp_path: Path) -> None:
    old, new = engine_flags.load_catalogue("sglang", "0.5.12"), engine_flags.load_catalogue("sglang", "0.5.23")
    gone = sorted(set(old.by_name) - set(new.by_name))
    body = "".join(f"  {name.lstrip('-')}: {'true' if old.by_name[name].takes == 'none' else '1'}\n" for name in gone)
    lines = lint_profile_text(tmp_path, HEADS["sglang"] + body, "0.5.23")
    broken = [line for line in lines if "error[removed-flag]" in line or "error[ambiguous-flag]" in line]
    assert len(gone) == len(broken) == 32
    ambiguous = [line for line in broken if "error[ambiguous-flag]" in line]
    assert len(ambiguous) == 2
    assert "in 0.5.19 it was a separate flag; what it meant is --cuda-graph-max-bs-decode now" in ambiguous[1]
    assert not [line for line in lint_profile_text(tmp_path, HEADS["sglang"] + body) if "removed-flag" in line]


@pytest.mark.parametrize(
    ("image", "args", "expected"),
    [
        # recipe qwen-38-27b-nvfp4-eagle-sglang of a user: argparse: unrecognized arguments
        ("sglang:0.5.12", "served-model-name: [[/models/Qwen3.5-35B-A3B-AWQ-4bit, b]]", "error[bad-value]: --served-model-name takes one"),
        ("vllm:0.19.1", "max-model-len: [[8192, 4]]", "error[bad-value]: --max-model-len takes one value"),
        ("vllm:0.19.1", "served-model-name: [[/models/Qwen3.5-35B-A3B-FP8, b]]", None),
        # github.com/vllm-project/recipes/issues/51: KeyError
        ("vllm:0.19.1", "tool-call-parser: opanai", "error[bad-choice]: --tool-call-parser of vLLM 0.19.1 does not take `opanai`"),
        ("vllm:0.33.0", "tool-call-parser: zzz", "error[bad-choice]: --tool-call-parser of vLLM 0.33.0 does not take `zzz`"),
        ("vllm:0.33.0", "reasoning-parser: zzz", "error[bad-choice]: --reasoning-parser of vLLM 0.33.0 does not take `zzz`"),
        ("vllm:0.33.0", "reasoning-parser: beam", None),
        ("vllm:0.33.0", "compilation-config: {cudagraph_mode: FROB}", "error[bad-choice]: --compilation-config cudagraph_mode of vLLM"),
        ("vllm:0.33.0", "compilation-config.cudagraph_mode: FROB", "error[bad-choice]: --compilation-config cudagraph_mode of vLLM"),
        ("vllm:0.19.1", "compilation-config: {cudagraph_mode: full_and_piecewise}", None),
        ("vllm:0.33.0", "attention-config: {backend: FROB}", "error[bad-choice]: --attention-config backend of vLLM 0.33.0 does not take"),
        ("vllm:0.33.0", "attention-config: {backend: flashinfer}", None),
        ("vllm:0.33.0", "attention-config: {backend: auto}", None),
        ("vllm:0.19.1", "enable-auto-tool-choice: true\n  tool-call-parser: mine\n  tool-parser-plugin: /p.py", None),
        ("vllm:0.32.0", "reasoning-parser: qwen33", "error[bad-choice]: --reasoning-parser of vLLM 0.32.0 does not take `qwen33`"),
        # github.com/vllm-project/vllm/issues/50708, on a Spark: max_num_scheduled_tokens is set to -1792
        ("vllm:0.26.0", DFLASH, "warning[bad-combination]: 16 drafts for each of 256 sequences leave -1792 of 2048 tokens"),
        ("vllm:0.26.0", f"{DFLASH}\n  max-num-seqs: 8", None),
        ("vllm:0.32.0", DFLASH, None),
        # github.com/sgl-project/sglang/issues/36528
        ("sglang:0.5.12", "speculative-algorithm: EAGLE3", "warning[missing-flag]: EAGLE3 drafts come from a model of their own"),
        ("vllm:0.19.1", "speculative-config: {method: eagle3, num_speculative_tokens: 3}", "warning[missing-flag]: eagle3 drafts come from"),
        # logs of owners of a GB10
        ("sglang:0.5.12", "language-only: true", "warning[missing-flag]: --language-only leaves"),
        ("sglang:0.5.12", "language-only: true\n  encoder-urls: [[http://a:1]]", None),
        ("sglang:0.5.12", "kv-cache-dtype: fp4_e2m1\n  attention-backend: flashinfer", "warning[bad-combination]: a KV cache of fp4_e2m1"),
        ("sglang:0.5.12", "kv-cache-dtype: fp4_e2m1\n  attention-backend: triton", None),
        # AEON-7, issue 12, on a Spark
        ("vllm:0.19.1", "no-enable-prefix-caching: true\n  mamba-block-size: 64", "warning[bad-combination]: --mamba-block-size needs"),
        ("vllm:0.20.1", "enable-prefix-caching: true\n  mamba-block-size: 64", None),
        # NVIDIA's example for Nemotron-3-Super on vLLM 0.24: its checkpoint's own method replaces the value before it is refused
        ("vllm:0.24.0", "quantization: fp4", "warning[bad-choice]: --quantization of vLLM 0.24.0 does not take `fp4`"),
        ("vllm:0.19.2", "quantization: fp4", "warning[bad-choice]: --quantization of vLLM 0.19.1 does not take `fp4`"),
        # of several formats with that word spelling prefers none: an NVFP4 checkpoint is not mxfp4
        ("sglang:0.5.12", "quantization: fp4", "does not take `fp4`; did you mean modelopt_fp4 or mxfp4 or petit_nvfp4?"),
        ("sglang:0.5.12", "quantization: modelopt_fp", "did you mean modelopt_fp4 or modelopt_fp8?"),
        ("sglang:0.5.12", "quantization: mxpf4", "did you mean mxfp4?"),
        ("vllm:0.24.0", "no-such-flag: 1", "error[unknown-flag]: vLLM 0.24.0 has no flag --no-such-flag"),
    ],
)  # fmt: skip
def test_what_owners_met_and_no_parser_says(tmp_path: Path, image: str, args: str, expected: str | None) -> None:
    engine, _, version = image.partition(":")
    text = HEADS[engine].replace("0.5.12" if engine == "sglang" else "0.19.1", version) + f"  {args}\n"
    lines = [line for line in lint_profile_text(tmp_path, text) if ": info[" not in line]
    if expected is None:
        assert lines == []
    else:
        assert expected in get_only_line(lines)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            "env: {PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}",
            "PYTORCH_CUDA_ALLOC_CONF with expandable_segments",
        ),
        ("env: {PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:False'}", None),
        ("env: {NCCL_IB_GID_INDEX: '3'}", "NCCL_IB_GID_INDEX is pinned"),
        ("env: {NCCL_IB_GID_INDEX: ' '}", None),
        ("container: {shm_size: 64g}", "shm_size `64g`: what is written there"),
        ("container: {shm_size: 64g, ipc: host}", None),
        ("container: {shm_size: 16g}", None),
    ],
)
def test_what_surrounds_the_flags_is_checked(tmp_path: Path, fields: str, expected: str | None) -> None:
    lines = lint_profile_text(tmp_path, f"{HEADS['vllm']}{fields}\n")
    assert lines == [] if expected is None else f"warning[container-setting]: {expected}" in get_only_line(lines)


@pytest.mark.parametrize(
    ("target", "draft", "is_told"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", "nm-testing/Llama3_2_1B_speculator.eagle3", False),
        ("meta-llama/Llama-3.1-8B-Instruct", "nm-testing/Llama3_2_1B_speculator.eagle3", True),
        ("meta-llama/Llama-3.2-3B-Instruct", "nm-testing/Llama3_2_1B_speculator.eagle3", True),
        ("Qwen/Qwen3-8B", "RedHatAI/Qwen3_8B_speculator.eagle3", False),
    ],
)
def test_a_family_is_known_with_underscores(tmp_path: Path, target: str, draft: str, is_told: bool) -> None:
    text = HEADS["vllm"].replace("/models/Qwen3.5-35B-A3B-FP8", target)
    text += f"  speculative-config: {{method: eagle3, model: {draft}, num_speculative_tokens: 3}}\n"
    assert ("warning[family-mismatch]" in list_finding_kinds(lint_profile_text(tmp_path, text))) is is_told


def test_what_an_unknown_version_might_take_is_no_error(tmp_path: Path) -> None:
    text = HEADS["sglang"].replace("0.5.12", "latest")
    lines = lint_profile_text(tmp_path, text + "  nsa-decode-backend: trtllm\n")
    assert list_finding_kinds(lines) == ["info[engine-version]", "warning[removed-flag]"]
    assert "does not show the version of SGLang: checked against the flags of 0.5.23, the newest known" in lines[0]
    assert lines[1].endswith("SGLang 0.5.19 takes it, and which one this image has is not known")
    assert list_finding_kinds(lint_profile_text(tmp_path, text + "  no-such-flag: 1\n")) == [
        "info[engine-version]",
        "error[unknown-flag]",
    ]
    script = 'command: [bash, -c, "sglang serve --enable-metrics --cuda-graph-bs 1 --no-such 2"]\n'
    both = lint_profile_text(tmp_path, text.partition("args:")[0] + script)
    assert list_finding_kinds(both) == ["info[engine-version]", "error[unknown-flag]", "warning[ambiguous-flag]"]
    near = lint_profile_text(tmp_path, text.replace("latest", "0.5.24"))
    assert (
        "the flags of SGLang 0.5.24 are not known; checked against those of 0.5.23, the newest known before it"
        in get_only_line(near)
    )
    assert lint_profile_text(tmp_path, text.replace("image:", "engine_version: 0.5.12\nimage:")) == []


def test_flags_in_a_command_are_read_too(tmp_path: Path) -> None:
    words = "command: [vllm, serve, /m, --gpu-memory-utilization=0.8, --enable-metrics]\n"
    text = "schema: 1\nname: mine\nengine: vllm\nimage: x/vllm:0.19.1\n"
    assert "5:58: error[unknown-flag]: vLLM 0.19.1 has no flag --enable-metrics" in get_only_line(
        lint_profile_text(tmp_path, text + words)
    )
    script = 'command: [bash, -c, "vllm serve /m --gpu-memory-utilization 0.8 --tp 1"]\nargs: {x: 1}\n'
    lines = lint_profile_text(tmp_path, text + script)
    assert list_finding_kinds(lines) == ["error[unknown-flag]", "warning[lost-flags]"]


def test_a_port_and_a_name_are_those_that_sparkctl_asks_by(tmp_path: Path) -> None:
    lines = lint_profile_text(tmp_path, HEADS["vllm"] + "  port: 9000\n  served-model-name: [[a, b]]\n")
    assert list_finding_kinds(lines) == ["warning[bad-combination]"] * 2
    assert "listens on `9000`, and sparkctl asks it on 8000: set port: instead" in lines[0]
    assert "calls the model `a`, and sparkctl asks for `/models/Qwen3.5-35B-A3B-FP8`: set model.served_name" in lines[1]
    same = HEADS["vllm"].replace("{path:", "{served_name: b, path:") + "  port: 8000\n  served-model-name: [[a, b]]\n"
    assert lint_profile_text(tmp_path, same) == []


def test_a_finding_stands_where_the_flag_was_written(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    base = user / "base.yaml"
    base.write_text(HEADS["sglang"].replace("name: mine", "name: base") + "  no-such: 1\n")
    (user / "mine.yaml").write_text("schema: 1\nname: mine\nextends: base\nargs:\n  neither: 1\n")
    checked = profile_lint.lint_profile_file(ProfileLibrary(user, tmp_path / "none"), user / "mine.yaml")
    assert [(Path(each.place.file).name, each.place.line) for each in checked.list_by_level(LintSeverity.ERROR)] == [
        ("base.yaml", 8),
        ("mine.yaml", 5),
    ]


@pytest.mark.parametrize("where", ["  api-key: sesame-open\n", "env: {MY_TOKEN: sesame-open}\n"])
def test_secrets_are_never_quoted(tmp_path: Path, where: str) -> None:
    lines = lint_profile_text(
        tmp_path,
        HEADS["vllm"] + "  seed: sesame-open\n  api-key: [[a, sesame-open]]\n" + where.replace("  api", "  --api"),
    )
    assert "--seed wants a whole number, not `••••••`" in lines[0]
    assert not [line for line in lines if "sesame" in line]


def test_a_patched_image_s_own_flags_are_not_held_against_the_catalogue(tmp_path: Path) -> None:
    head = HEADS["vllm"].replace("image:", "patched_flags: [enable-turboquant, --kv_cache_dtype, not-given]\nimage:")
    lines = lint_profile_text(
        tmp_path, head + "  enable-turboquant: true\n  kv-cache-dtype: turboquant35\n  enable-turbo: true\n"
    )
    assert list_finding_kinds(lines) == ["info[patched-flag]", "info[patched-flag]", "error[unknown-flag]"]
    assert lines[0].startswith("9:3: info[patched-flag]: --enable-turboquant is not checked against vLLM 0.19.1")


def test_what_up_says_before_a_start_is_what_could_go_wrong() -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    (said,) = profile_lint.list_start_warnings(library.load_profile("qwen36-as-posted"))
    assert said.message.endswith("dies of that with a TypeError")
    assert (said.setting, said.instead) == ("args.speculative-num-draft-tokens=20", ())
    assert profile_lint.list_start_warnings(library.load_profile("qwen36")) == ()
    assert profile_lint.list_start_warnings(library.load_profile("qwen36-ngram")) == ()
    assert profile_lint.list_start_warnings(library.load_profile("orpheus-tts")) == ()


def test_shipped_profiles_have_no_errors() -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    for name in library.list_names():
        assert (
            profile_lint.lint_profile_file(library, library.find_profile_file(name)).list_by_level(LintSeverity.ERROR)
            == ()
        )


def test_a_file_that_is_no_profile_has_its_faults_alone(tmp_path: Path) -> None:
    lines = lint_profile_text(tmp_path, "schema: 1\nname: mine\nengine: sglagn\nargs: {no-such: 1}\n")
    assert {line.split(": ")[1] for line in lines} == {f"error[{LintRule.PROFILE}]"}
    assert "3:9: error[profile]: engine: there is no engine `sglagn`" in lines[1]


WORDS = st.one_of(
    st.booleans(),
    st.integers(),
    st.text(max_size=12),
    st.lists(st.text(max_size=6), max_size=2),
    st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers(), st.none()), max_size=2),
)
NAMES = sorted(
    {
        name
        for engine in engine_flags.list_engines_with_catalogue()
        for name in engine_flags.load_catalogue(engine, engine_flags.list_versions(engine)[0]).by_name
    }
)


@settings(max_examples=50 if settings.default.derandomize else 240, deadline=None)
@given(
    st.sampled_from(["sglang", "vllm"]),
    st.sampled_from(["0.5.12", "0.33.0", "latest"]),
    st.dictionaries(
        st.one_of(st.sampled_from(NAMES), st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,12}", fullmatch=True)),
        WORDS,
        max_size=4,
    ),
)
def test_any_args_have_findings_in_their_place(
    tmp_path_factory: pytest.TempPathFactory, engine: str, tag: str, args: dict[str, object]
) -> None:
    import json

    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(json.dumps({"schema": 1, "name": "any", "engine": engine, "image": f"x:{tag}", "args": args}))
    for each in profile_lint.lint_profile_file(
        ProfileLibrary(path.parent / "none", path.parent / "none"), path
    ).diagnostics:
        assert each.place.line is not None
        assert str(each).isprintable()


def test_each_name_that_a_version_dropped_is_an_error_there(tmp_path: Path) -> None:
    old, new = engine_flags.load_catalogue("sglang", "0.5.12"), engine_flags.load_catalogue("sglang", "0.5.23")
    gone = [name for name in old.by_name if name not in new.by_name]
    flags = [flag for flag in old.flags if not any(name in new.by_name for name in flag.spellings)]
    assert len(gone) >= len(flags) > 0, "each flag has a name, and some a second one"
    assert {flag.name for flag in flags} <= set(gone)
    body = "".join(
        f"  {name.removeprefix('--')}: {'1' if old.by_name[name].takes is FlagArity.ONE else 'true'}\n" for name in gone
    )

    def refused(version: str) -> list[str]:
        lines = lint_profile_text(tmp_path, HEADS["sglang"] + body, version)
        return [line for line in lines if "error[removed-flag]" in line or "error[ambiguous-flag]" in line]

    assert refused("0.5.12") == []
    errors = refused("0.5.23")
    assert len(errors) == len(gone)
    for name in gone:
        assert sum(re.search(rf"{name}(?![\w-])", line.split("; ")[0]) is not None for line in errors) == 1, name


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("enable-prefix-cachin", LintSeverity.WARNING),
        ("enable-prefix-cach", LintSeverity.INFO),
        ("max-num-seq", LintSeverity.WARNING),
    ],
)
def test_an_abbreviation_that_looks_like_a_slip_is_a_warning(tmp_path: Path, word: str, level: LintSeverity) -> None:
    value = "8" if "seq" in word else "true"
    line = get_only_line(
        lint_profile_text(tmp_path, HEADS["vllm"].replace("Qwen3.5", "Qwen3") + f"  {word}: {value}\n")
    )
    assert f"8:3: {level}[abbreviated-flag]: --{word} " in line


@pytest.mark.parametrize("setting", ["quantization=bogus", "tool-call-parser=nope", "kv-cache-dtype=fp9"])
def test_a_version_without_a_list_of_values_is_not_said_to_take_one(setting: str) -> None:
    """0.33.0 has no list of its parsers, and a quantization that is not listed is no error: neither is a yes."""
    profile = ProfileLibrary(Path("/nonexistent")).load_profile("qwen36-vllm", [f"args.{setting}"])
    (said,) = (one for one in profile_lint.lint_profile(profile) if one.kind is LintRule.BAD_CHOICE)
    assert "takes it" not in said.message
    assert "did you mean" not in said.message


def test_a_value_that_a_later_version_takes_is_said_to_be_in_builds_after_the_release() -> None:
    """The thread's DFlash ran on 0.19.1rc1.dev241, which calls itself 0.19.1 like the release that has none."""
    profile = ProfileLibrary(Path("/nonexistent")).load_profile("qwen35-35b-dflash", ["engine_version=0.19.1"])
    (said,) = (one for one in profile_lint.lint_profile(profile) if one.kind is LintRule.BAD_CHOICE)
    assert said.level is LintSeverity.ERROR
    assert said.message.endswith(
        "vLLM 0.20.2 takes it, and so may a build made after the release of 0.19.1: list speculative-config in "
        "patched_flags then"
    )


def test_what_a_start_refuses_in_the_env_file_is_an_error_of_the_check(tmp_path: Path) -> None:
    text = "schema: 1\nname: mine\nengine: container\nimage: x/y:1\nenv_file: own.env\n"
    assert get_only_line(lint_profile_text(tmp_path, text)).startswith("5:11: error[profile]: ")  # there is no file
    (tmp_path / "own.env").write_text("export A=1\nPATH\nB=1\n")
    found = [line.removeprefix(f"{tmp_path}/") for line in lint_profile_text(tmp_path, text)]
    assert found == [
        "own.env:1:1: error[profile]: `export A` is not a variable's name",
        "own.env:2:1: error[profile]: write KEY=VALUE",
    ]
    (tmp_path / "own.env").write_text("A='q'\n")
    assert get_only_line(lint_profile_text(tmp_path, text)).startswith(
        f"{tmp_path}/own.env:1:1: warning[profile]: A gets"
    )


def test_a_model_in_no_mount_is_a_warning(tmp_path: Path) -> None:
    text = "schema: 1\nname: mine\nengine: container\nimage: x/y:1\nmodel: {path: /models/x.gguf}\n"
    path = tmp_path / "mine.yaml"
    for mounts, said in (("", 1), ("mounts: [/data:/model]\n", 1), ("mounts: [/data:/models/]\n", 0), ("mounts: [cache:/:ro]\n", 0),
                         ("mounts: [/data/x.gguf:/models/x.gguf]\n", 0)):  # fmt: skip
        path.write_text(text + mounts)
        found = profile_lint.lint_profile_file(ProfileLibrary(tmp_path / "none", tmp_path / "none"), path).diagnostics
        assert ["is in no mount" in one.message for one in found] == [True] * said, mounts
