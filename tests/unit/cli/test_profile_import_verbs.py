"""``profiles import`` and ``profiles export`` as they are typed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from sparkctl.cli.invocation import invoke_command_line

LINE = "docker run -d --name mine -e HF_TOKEN=hf_aaaaaaaaaaaaaaaaaaaaaaaa --rm x/vllm:1 vllm serve o/m --max-model-len 8192"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPARKCTL_CONFIG", str(tmp_path / "config.yaml"))


def run_command_line(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = invoke_command_line(list(words))
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("words", [(LINE,), tuple(LINE.split()), ("--", *LINE.split())])
def test_a_line_may_stand_with_quotes_or_without(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command_line(capsys, "profiles", "import", *words)
    assert code == 0
    assert out.startswith("schema: 1\nname: mine\nengine: vllm\n")
    assert "left out  --rm" in err
    assert "hf_aaaa" not in out + err


def test_stdin_is_read_for_a_dash(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"\ufeff{LINE}\r\n".encode())))
    assert run_command_line(capsys, "profiles", "import", "-")[0] == 0


def test_json_tells_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command_line(capsys, "profiles", "import", LINE, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["kind"], document["file"]) == (0, 1, "docker", None)
    assert {"key": "-e HF_TOKEN", "to": "env.HF_TOKEN"} in document["mapped"]
    assert [one["key"] for one in document["unsupported"]] == ["--rm"]
    assert document["profile"].startswith("schema: 1\n")


def test_a_saved_profile_is_found_and_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command_line(capsys, "profiles", "import", LINE, "--save")
    path = tmp_path / "config" / "sparkctl" / "profiles" / "mine.yaml"
    assert (code, out) == (0, f"{path}\n")
    assert run_command_line(capsys, "profiles", "check", "mine")[0] == 0
    assert run_command_line(capsys, "profiles", "import", LINE, "--save")[0] == 6
    assert run_command_line(capsys, "profiles", "import", LINE, "--save", "--force")[0] == 0
    assert run_command_line(capsys, "profiles", "import", LINE, "--save", "--name", "other")[0] == 0
    code, out, err = run_command_line(capsys, "profiles", "import", LINE, "--save", "--name", "qwen36")
    assert code == 0
    assert "it takes precedence over the shipped profile qwen36" in err


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
        ((LINE, "--node", "spark1"), "needs --from-container"),
    ],
)
def test_impossible_arguments_are_refused(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_command_line(capsys, "profiles", "import", *words)
    assert (code, out) == (2, "")
    assert expected in err


def test_an_include_is_found_beside_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "base.yaml").write_text("model: o/m\ncontainer: x/y:1\ncommand: vllm serve {model}\n")
    (tmp_path / "top.yaml").write_text("include: base\nname: top\nmodel: o/n\n")
    code, out, _ = run_command_line(capsys, "profiles", "import", str(tmp_path / "top.yaml"))
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
    code, out, _ = run_command_line(capsys, "profiles", "export", "qwen36", "--as", form)
    assert code == 0
    assert sign in out
    file = tmp_path / ("x.yaml" if form in ("compose", "sparkrun") else "x.txt")
    file.write_text(out)
    code, out, _ = run_command_line(capsys, "profiles", "import", str(file))
    assert code == 0
    assert "\nname: qwen36\n" in out


@pytest.mark.parametrize(
    ("line", "kept"), [("A=b c", "- a.env\n"), ("A=$HOME/b", "- path: a.env\n        format: raw\n")]
)
def test_compose_is_told_to_pass_values_that_it_would_change(
    line: str, kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("schema: 1\nname: mine\nengine: container\nimage: a/b:1\nenv_file: a.env\n")
    (tmp_path / "a.env").write_text(f"{line}\n")
    code, out, _ = run_command_line(capsys, "profiles", "export", str(tmp_path / "mine.yaml"), "--as", "compose")
    assert code == 0
    assert kept in out
    file = tmp_path / "x.yaml"
    file.write_text(out)
    code, out, err = run_command_line(capsys, "profiles", "import", str(file))
    assert code == 0
    assert "\nenv_file: a.env\n" in out
    assert ("fills in $NAME" in err) is ("raw" not in kept)


DANGEROUS = "docker run --privileged -v /srv/work:/w -v /etc:/e x/vllm:1 vllm serve o/m"


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ((), ()),
        (("--allow",), ("privileged: true", "/srv/work", "/etc")),
        (("--allow", "privileged"), ("privileged: true",)),
        (("--allow=PRIVILEGED",), ("privileged: true",)),
        (("--allow", "volumes"), ("/srv/work", "/etc")),
        (("--allow", "mount=/etc"), ("/etc",)),
        (("--allow", "mount=/etc:/e", "--allow", "privileged"), ("privileged: true", "/etc")),
        (("--allow", "--allow", "mount"), ("privileged: true", "/srv/work", "/etc")),
    ],
)
def test_allowed_settings_are_imported(
    words: tuple[str, ...], taken: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "line.txt"
    file.write_text(DANGEROUS)
    for given in ((*words, str(file)), (str(file), *words), (*words, DANGEROUS), (*words, *DANGEROUS.split())):
        code, out, _ = run_command_line(capsys, "profiles", "import", *given)
        assert code == 0
        assert [one for one in ("privileged: true", "/srv/work", "/etc") if one in out] == list(taken)


def test_a_name_that_nothing_is_withheld_under_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--allow", "privilegd", LINE), ("--allow=privilegd", LINE)):
        code, out, err = run_command_line(capsys, "profiles", "import", *words)
        assert (code, out) == (2, "")
        assert "did you mean `privileged`" in err


def test_a_flag_of_the_line_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command_line(
        capsys, "profiles", "import", *["docker", "run", "--privileged", "x/vllm:1", "vllm", "serve", "m", "--allow"]
    )
    assert code == 0
    assert "allow: true" in out
    assert "withheld  --privileged" in err


def test_a_profile_that_is_saved_elsewhere_takes_no_file_of_that_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.env").write_text("A=b\n")
    file = tmp_path / "compose.yaml"
    file.write_text("services: {a: {image: 'x/y:1', env_file: a.env}}\n")
    assert "env_file: a.env" in run_command_line(capsys, "profiles", "import", str(file))[1]
    code, out, err = run_command_line(capsys, "profiles", "import", str(file), "--save")
    assert code == 0
    assert "withheld  env_file" in err
    assert "env_file" not in Path(out.strip()).read_text()


@pytest.mark.parametrize("form", ["docker", "compose", "systemd", "sparkrun"])
def test_an_export_holds_no_default_that_is_a_secret(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sec.yaml"
    file.write_text(
        "schema: 1\nname: sec\nengine: vllm\nimage: x/y:1\nmodel: {path: o/m}\ntitle: with canary111\nnotes: and canary333\n"
        "env: {HUGGING_FACE_HUB_TOKEN: '${X:-canary111}', A: '${HF_TOKEN:-canary222}', B: 'a ${DB_PASSWORD:-canary333} b', "
        "C: '${PORT:-8000}', VLLM_API_KEY: '${VLLM_API_KEY:-EMPTY}'}\n"
        "args: {api-key: '${K:-canary444}', zz: ['${A_TOKEN:-canary555}', b]}\nextra: {password: canary666}\n"
    )
    code, out, err = run_command_line(capsys, "profiles", "export", str(file), "--as", form)
    assert code == 0
    assert "canary" not in out + err
    assert "The default of HF_TOKEN in env.A looks like a secret" in err
    assert "8000" in out
    assert "EMPTY" in out


def test_several_files_are_refused_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text("services: {a: {image: 'x/y:1'}}\n")
    code, _, err = run_command_line(capsys, "profiles", "import", *map(str, files))
    assert code == 2
    assert "2 files: one is imported at a time" in err
