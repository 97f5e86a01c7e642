"""``profiles import`` and ``profiles export`` as they are typed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from sparkctl.cli.app import invoke

LINE = "docker run -d --name mine -e HF_TOKEN=hf_aaaaaaaaaaaaaaaaaaaaaaaa --rm x/vllm:1 vllm serve o/m --max-model-len 8192"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPARKCTL_CONFIG", str(tmp_path / "config.yaml"))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = invoke(list(words))
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize("words", [(LINE,), tuple(LINE.split()), ("--", *LINE.split())])
def test_a_line_may_stand_with_quotes_or_without(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "profiles", "import", *words)
    assert code == 0
    assert out.startswith("schema: 1\nname: mine\nengine: vllm\n")
    assert "left out  --rm" in err
    assert "hf_aaaa" not in out + err


def test_stdin_is_read_for_a_dash(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"\ufeff{LINE}\r\n".encode())))
    assert run(capsys, "profiles", "import", "-")[0] == 0


def test_json_tells_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "profiles", "import", LINE, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["kind"], document["file"]) == (0, 1, "docker", None)
    assert {"key": "-e HF_TOKEN", "to": "env.HF_TOKEN"} in document["mapped"]
    assert [one["key"] for one in document["unsupported"]] == ["--rm"]
    assert document["profile"].startswith("schema: 1\n")


def test_a_saved_profile_is_found_and_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "profiles", "import", LINE, "--save")
    path = tmp_path / "config" / "sparkctl" / "profiles" / "mine.yaml"
    assert (code, out) == (0, f"{path}\n")
    assert run(capsys, "profiles", "check", "mine")[0] == 0
    assert run(capsys, "profiles", "import", LINE, "--save")[0] == 6
    assert run(capsys, "profiles", "import", LINE, "--save", "--force")[0] == 0
    assert run(capsys, "profiles", "import", LINE, "--save", "--name", "other")[0] == 0
    code, out, err = run(capsys, "profiles", "import", LINE, "--save", "--name", "qwen36")
    assert code == 0
    assert "over the shipped profile qwen36" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "name a file"),
        (("",), "there is nothing to import"),
        (('docker run --gpus all "unterminated',), 'a quote is not closed: "unterminated'),
        (("x.yaml",), "no such file"),
        ((LINE, "-o", "a", "--save"), "not both"),
        ((LINE, "--name", "a/b"), "is not a name"),
        ((LINE, "--define", "x"), "NAME=VALUE"),
        ((LINE, "--node", "spark1"), "belongs to --from-container"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "profiles", "import", *words)
    assert (code, out) == (2, "")
    assert expected in err


def test_an_include_is_found_beside_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "base.yaml").write_text("model: o/m\ncontainer: x/y:1\ncommand: vllm serve {model}\n")
    (tmp_path / "top.yaml").write_text("include: base\nname: top\nmodel: o/n\n")
    code, out, _ = run(capsys, "profiles", "import", str(tmp_path / "top.yaml"))
    assert code == 0
    assert "name: top" in out
    assert "path: o/n" in out


@pytest.mark.parametrize(("form", "sign"), [
    ("docker", "docker run -d \\"), ("compose", "services:"), ("systemd", "ExecStart=/usr/bin/docker run"),
    ("sparkrun", 'recipe_version: \'2\''),
])  # fmt: skip
def test_an_export_is_a_file_that_imports(
    form: str, sign: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "profiles", "export", "qwen36", "--as", form)
    assert code == 0
    assert sign in out
    file = tmp_path / ("x.yaml" if form in ("compose", "sparkrun") else "x.txt")
    file.write_text(out)
    code, out, _ = run(capsys, "profiles", "import", str(file))
    assert code == 0
    assert "\nname: qwen36\n" in out
