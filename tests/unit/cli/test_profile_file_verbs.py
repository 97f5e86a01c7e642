"""Profiles of one's own: made, renamed and removed by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.profiles.profile_library import ProfileLibrary
from tests.golden.running import run_command


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SPARKCTL_PROFILES_BENEATH", raising=False)
    return tmp_path / "sparkctl/profiles"


def test_a_profile_is_made_renamed_and_removed(own: Path) -> None:
    made = run_command("profiles new mine --from qwen36-vllm --set args.max-model-len=32768")
    assert (made.exit_code, made.stdout.strip()) == (0, str(own / "mine.yaml"))
    assert ("max-model-len", "32768") in ProfileLibrary().load_profile("mine").args
    assert run_command("profiles new mine").exit_code == 2, "there is one"
    assert run_command("profiles rename mine qwen-long").exit_code == 0
    assert ProfileLibrary().load_profile("qwen-long").name == "qwen-long"
    assert not (own / "mine.yaml").exists()
    refused = run_command("profiles remove qwen-long")
    assert (refused.exit_code, "--yes" in refused.stderr) == (6, True)
    assert run_command("profiles remove qwen-long --yes").exit_code == 0
    assert not any(own.iterdir())


def test_an_example_is_a_good_profile(own: Path) -> None:
    assert run_command("profiles new example").exit_code == 0
    assert run_command("profiles check example").exit_code == 0


def test_what_others_extend_or_sparkctl_ships_stays(own: Path) -> None:
    run_command("profiles new base --from qwen36-vllm")
    run_command("profiles new heir --from base")
    for line in ("profiles rename base other", "profiles remove base --yes", "profiles remove qwen36-vllm --yes"):
        assert run_command(line).exit_code == 2, line
    assert (own / "base.yaml").exists()


def test_an_edit_without_a_change_leaves_no_copy(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    assert run_command("profiles edit qwen36-vllm").exit_code == 0
    assert not list(own.glob("*"))
    monkeypatch.setenv("EDITOR", "sed -i s/8192/4096/")
    assert run_command("profiles edit qwen36-vllm").exit_code == 0
    assert ("max-model-len", "4096") in ProfileLibrary().load_profile("qwen36-vllm").args
