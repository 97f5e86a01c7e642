"""``api_key: generate``: the key is needed, used by sparkctl, and written nowhere but in its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkctl.cli.invocation import invoke_command_line
from sparkctl.commands.start import start_watch
from sparkctl.simulator import run_in_background

PROFILE = "schema: 1\nname: keyed\nextends: qwen36-vllm\napi_key: generate\n"


def test_a_generated_key_is_needed_and_used_and_in_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profiles = tmp_path / "config/sparkctl/profiles"
    profiles.mkdir(parents=True)
    (profiles / "keyed.yaml").write_text(PROFILE)
    with run_in_background(scenario="empty", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        assert invoke_command_line(["up", "keyed", "--node", "spark1", "--dry-run", "--json"]) == 0
        assert not (tmp_path / "state/keys").exists()
        assert invoke_command_line(["up", "keyed", "--node", "spark1", "--strict", "--json"]) == 0
        key = (tmp_path / "state/keys/spark1/keyed").read_text().strip()
        for words in (
            ["up", "keyed", "--node", "spark1", "--json"],
            ["check", "keyed", "--basic", "--strict"],
            ["logs", "keyed", "--json"],
            ["top", "--once", "--json"],
            ["history", "--json"],
        ):
            assert invoke_command_line(words) == 0, words
        assert invoke_command_line(["endpoints"]) == 0
        output = capfd.readouterr()
        assert '"${KEYED_API_KEY}"' in output.out
        assert "answered correctly" in output.out
        assert key not in output.out + output.err
        assert invoke_command_line(["endpoints", "--with-key", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["endpoints"][0]["key"] == key
        assert invoke_command_line(["down", "keyed"]) == 0
    files = [one for one in (tmp_path / "state").rglob("*") if one.is_file() and "keys" not in one.parts]
    assert files
    assert [one for one in files if key.encode() in one.read_bytes()] == []


@pytest.mark.parametrize(
    ("fault", "profile", "why", "seen"),
    [
        ("open-door", "keyed", "it does not refuse a request without its key", (5, "unproved")),
        # its start saw no token, and `status`, which asks for one then, has no other key than `up` had
        ("other-key", "qwen36-vllm", "POST /v1/completions needs an API key (401)", (5, "unproved")),
    ],
)
def test_whoever_keeps_no_key_or_another_one_is_up_and_not_proved(
    fault: str, profile: str, why: str, seen: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profiles = tmp_path / "config/sparkctl/profiles"
    profiles.mkdir(parents=True)
    (profiles / "keyed.yaml").write_text(PROFILE)
    monkeypatch.setattr(start_watch, "_PROOF_PATIENCE_SECONDS", 1.0)  # the wait is real time
    up = ["up", profile, "--node", "spark1", "--set", f"env.SIM_FAULT={fault}", "--json"]
    with run_in_background(scenario="empty", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        for _ in range(2):  # the second finds it running
            assert invoke_command_line(up) == 5
            ended = json.loads(capfd.readouterr().out.splitlines()[-1])
            assert (ended["outcome"], why in ended["proof"]) == ("unproved", True), ended
        code = invoke_command_line(["status", "--node", "spark1", "--check", "--json"])
        (one,) = json.loads(capfd.readouterr().out)["nodes"][0]["instances"]
        assert (code, one["phase"]) == seen, one


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("extends: qwen36\napi_key: generate\n", "SGLang takes none that stays secret (it prints the key into its log"),
        ("extends: qwen36-vllm\napi_key: generate\nargs: {api-key: '${K}'}\n", "args.api-key gives it a key already"),
        ("extends: qwen36-vllm\napi_key: generate\nenv: {VLLM_API_KEY: '${K}'}\n", "env.VLLM_API_KEY gives it a key"),
        ("extends: qwen36-vllm\napi_key: sesame\n", "generate"),
    ],
)
def test_what_cannot_be_is_an_error_with_its_line(
    lines: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"schema: 1\nname: wrong\n{lines}")
    assert invoke_command_line(["profiles", "check", str(path)]) == 2
    output = capfd.readouterr()
    assert words in output.out + output.err
    assert f"{path}:4:" in output.out + output.err
