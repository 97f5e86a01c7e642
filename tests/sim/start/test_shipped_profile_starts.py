"""Every profile that sparkctl comes with, asked for on a simulated Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkctl.cli.invocation import invoke_command_line
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import run_in_background

LIBRARY = ProfileLibrary(Path("/nonexistent"))
ON_ONE = [name for name in LIBRARY.list_names() if LIBRARY.load_profile(name).nodes == 1]
ON_TWO = [name for name in LIBRARY.list_names() if LIBRARY.load_profile(name).nodes > 1]


@pytest.fixture(scope="module")
def config() -> Iterator[str]:
    with run_in_background(scenario="empty", speed=0.05) as written:
        yield str(written)


@pytest.fixture(autouse=True)
def operator(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKCTL_CONFIG", config)
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize("name", ON_ONE)
def test_a_dry_run_prints_the_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke_command_line(["up", name, "--node", "spark1", "--dry-run", "--format", "docker"]) == 0
    output = capfd.readouterr()
    assert output.out.startswith("docker run -d")
    assert LIBRARY.load_profile(name).image in output.out


@pytest.mark.parametrize("name", ON_TWO)
def test_what_wants_both_sparks_is_refused_on_one_before_anything_is_touched(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert invoke_command_line(["up", name, "--node", "spark1"]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert f"{name} is for 2 Sparks, but 1 is named" in output.err
    assert "--node spark1 --node spark2" in output.err


def test_up_says_the_trap_before_the_start_and_both_ways_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke_command_line(["up", "qwen36-as-posted", "--node", "spark1", "--detach"]) == 0
    output = capfd.readouterr().err.splitlines()
    trap = next(at for at, line in enumerate(output) if "dies of that with a TypeError" in line)
    assert (
        "sparkctl up qwen36-as-posted --node spark1 --set args.speculative-num-draft-tokens=20 --set"
        in output[trap + 1]
    )
    assert "or start qwen36 or qwen36-ngram instead" in output[trap + 1]
    assert trap < next(at for at, line in enumerate(output) if "creating" in line or "caches" in line)
