"""What ``profiles check --fix`` edits: only what is wrong, and nothing where the result would mean something else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.profiles import profile_lint
from sparkctl.profiles.profile_edit import apply_lint_fixes
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.yaml_reader import parse_yaml
from tests.support.run_command import run_in_process

HEAD = "# mine\nschema: 1\nname: mine   # as the file\nengine: sglang\nimage: x/sglang:0.5.12\n"


def fix_profile_text(path: Path, text: str, version: str | None = None) -> tuple[str, list[str]]:
    path.write_bytes(text.encode())
    library = ProfileLibrary(path.parent / "none", path.parent / "none")
    done = apply_lint_fixes(path, profile_lint.lint_profile_file(library, path, version).diagnostics)
    return path.read_bytes().decode(), [one.kind.value for one in done]


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        # comments, order and spelling stay
        (
            "args:\n  # the algorithm\n  speculative-algo: NGRAM  # by name\n\n  tp-size: 1\n# end\n",
            "args:\n  enable-metrics: true\n  # the algorithm\n  speculative-algorithm: NGRAM  # by name\n\n  tp-size: 1\n# end\n",
            ["no-metrics", "abbreviated-flag"],
        ),
        ("args: {--tp: 1}\n", "args: {enable-metrics: true, --tp-size: 1}\n", ["no-metrics", "abbreviated-flag"]),
        (
            'args:\n    "tp": 1\n',
            "args:\n    enable-metrics: true\n    tp-size: 1\n",
            ["no-metrics", "abbreviated-flag"],
        ),
        (
            "args:\n  enable-metrics: true\n  mem_fraction_static: 0.8\n  trust-remote-code: 'True'\n  stream-output: true\n",
            "args:\n  enable-metrics: true\n  mem-fraction-static: 0.8\n  trust-remote-code: true\n"
            "  incremental-streaming-output: true\n",
            ["unknown-flag", "unwanted-value", "deprecated-flag"],
        ),
        ("port: 1", "port: 1\nargs:\n  enable-metrics: true\n", ["no-metrics"]),
        (
            "args:\n  enable-metrics: true\n  speculative-model: /m\n",
            "args:\n  enable-metrics: true\n  speculative-draft-model-path: /m\n",
            ["unknown-flag"],
        ),
        # what counts otherwise, or stands there already, is left alone
        ("args:\n  enable-metrics: true\n  gpu-memory-utilization: 0.8\n", None, []),
        ("args:\n  enable-metrics: true\n  tp: 1\n  tp-size: 1\n", None, []),
        ("args:\nport: 1\n", None, []),
        ("args: {}\n", None, []),
        ('args:\n  enable-metrics: true\n  "t\\x70": 1\n', None, []),
    ],
)
def test_only_what_is_wrong_is_edited(tmp_path: Path, before: str, after: str | None, kinds: list[str]) -> None:
    text, done = fix_profile_text(tmp_path / "mine.yaml", HEAD + before)
    assert text == HEAD + (before if after is None else after)
    assert done == kinds


def test_line_ends_marks_modes_and_links_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_bytes(b"\xef\xbb\xbf" + (HEAD + "args:\n  tp: 1\n").replace("\n", "\r\n").encode())
    real.chmod(0o640)
    link = tmp_path / "mine.yaml"
    link.symlink_to(real)
    apply_lint_fixes(
        link, profile_lint.lint_profile_file(ProfileLibrary(tmp_path, tmp_path / "none"), link).diagnostics
    )
    wanted = (HEAD + "args:\n  enable-metrics: true\n  tp-size: 1\n").replace("\n", "\r\n").encode()
    assert real.read_bytes() == b"\xef\xbb\xbf" + wanted
    assert (real.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml", "real.yaml"]


def test_an_image_bump_is_mended_where_only_names_changed(tmp_path: Path) -> None:
    text, done = fix_profile_text(
        tmp_path / "mine.yaml",
        HEAD + "args:\n  enable-metrics: true\n  cuda-graph-max-bs: 8\n  nsa-decode-backend: tilelang\n",
        "0.5.23",
    )
    assert text.endswith("  cuda-graph-max-bs-decode: 8\n  dsa-decode-backend: tilelang\n")
    assert done == ["ambiguous-flag", "removed-flag"]


def test_a_short_name_keeps_its_dash(tmp_path: Path) -> None:
    head = HEAD.replace("sglang", "vllm").replace("0.5.12", "0.19.1")
    text, done = fix_profile_text(tmp_path / "mine.yaml", head + "args:\n  gpu-memory-utilization: 0.8\n  tp: 1\n")
    assert text.endswith("  -tp: 1\n")
    assert done == ["unknown-flag"]


def test_a_base_is_left_alone(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(HEAD.replace("name: mine", "name: base") + "args:\n  tp: 1\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text("schema: 1\nname: mine\nextends: base\n")
    library = ProfileLibrary(tmp_path, tmp_path / "none")
    assert [one.kind for one in apply_lint_fixes(mine, profile_lint.lint_profile_file(library, mine).diagnostics)] == [
        "no-metrics"
    ]
    assert "tp: 1" in base.read_text()
    assert mine.read_text().endswith("extends: base\nargs:\n  enable-metrics: true\n")


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["tp", "speculative-algo", "mem_fraction_static", "stream-output", "no-such", "context-len"]),
        st.one_of(st.text("ab \"'#:{}\n\u2028é", max_size=6), st.booleans(), st.integers()),
        max_size=4,
    ),
    st.sampled_from(["block", "flow", "json"]),
)
def test_any_file_means_the_same_but_for_what_was_mended(
    tmp_path_factory: pytest.TempPathFactory, args: dict[str, object], style: str
) -> None:
    import json

    import yaml

    content = {"schema": 1, "name": "mine", "engine": "sglang", "image": "x:0.5.12", "args": args}
    text = (
        json.dumps(content)
        if style == "json"
        else yaml.safe_dump(content, sort_keys=False, default_flow_style=style == "flow", allow_unicode=True)
    )
    path = tmp_path_factory.getbasetemp() / "mine.yaml"
    after, _ = fix_profile_text(path, text)
    was, now = (parse_yaml(each.encode(), "x").to_plain_data() for each in (text, after))
    names = {"tp": "tp-size", "speculative-algo": "speculative-algorithm", "mem_fraction_static": "mem-fraction-static",
             "stream-output": "incremental-streaming-output", "context-len": "context-length"}  # fmt: skip
    left = {key: value for key, value in now["args"].items() if key != "enable-metrics"}
    for key, value in was["args"].items():
        assert left.pop(key if key in left else names[key]) == value
    assert left == {}
    assert {**was, "args": 0} == {**now, "args": 0}


def run_profiles_check(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd), "SPARKCTL_CONFIG": str(cwd / "config.yaml")}
    return run_in_process("profiles", "check", *words, env=env, cwd=cwd)


def test_the_command_mends_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "args:\n  tp: 1\n  no-such: 1\n")
    ran = run_profiles_check("mine.yaml", "--fix", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.count("fixed: mine.yaml:") == 2
    assert [line for line in ran.stdout.splitlines() if "info[container-setting]" not in line] == [
        "mine.yaml:9:3: error[unknown-flag]: SGLang 0.5.12 has no flag --no-such",
        "mine.yaml: 1 error, 2 infos (flags of SGLang 0.5.12)",
    ]
    shipped = run_profiles_check("qwen36", "--fix", cwd=tmp_path)
    assert (shipped.returncode, shipped.stdout) == (2, "")
    assert "is shipped with sparkctl" in shipped.stderr
    bad = run_profiles_check("qwen36", "--engine-version", "new", cwd=tmp_path)
    assert bad.returncode == 2
    assert "`new` is not a version" in bad.stderr
