"""``--record`` and ``--replay`` as an operator uses them: what was seen is seen again, and no node is asked."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_command import run_demo, run_in_process


def run_sparkctl(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """The command with no config and nobody to ask."""
    env = {"HOME": str(home), "SPARKCTL_CONFIG": str(home / "none.yaml"), "XDG_CONFIG_HOME": str(home)}
    return run_in_process(*words, env=env)


def parse_document(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


def test_one_look_is_seen_again_as_it_was(tmp_path: Path) -> None:
    file = str(tmp_path / "look.jsonl")
    live = parse_document(run_demo("top", "--once", "--json", "--record", file, scenario="two-stacks"))
    again = parse_document(run_sparkctl("top", "--replay", file, "--once", "--json", home=tmp_path))
    assert again == live
    assert [one["numbers"] is not None for one in again["instances"]] == [True, True]


def test_a_doctor_is_written_down_with_all_that_it_found(tmp_path: Path) -> None:
    file = tmp_path / "doctor.jsonl"
    ran = run_demo("doctor", "--json", "--record", str(file), scenario="trouble")
    document = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [json.loads(line) for line in file.read_text().splitlines()] == document
    assert {one["node"] for one in document if one["event"] == "examined"} == {"spark1", "spark2"}
    again = run_sparkctl("doctor", "--collect", "--record", str(tmp_path / "other"), home=tmp_path)
    assert again.returncode == 2
    assert "not both" in again.stderr


def test_a_watch_is_seen_again_step_by_step(tmp_path: Path) -> None:
    file = tmp_path / "watch.jsonl"
    running = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "--scenario", "two-stacks", "top", "--json", "--record", str(file)],
        stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert running.stdout is not None
    shown = []
    deadline = time.monotonic() + 50
    for line in running.stdout:
        shown.append(line)
        if len(shown) == 8 or time.monotonic() > deadline:
            running.send_signal(signal.SIGINT)
            break
    running.stdout.read()
    assert running.wait(20) == 0
    again = run_sparkctl("top", "--replay", str(file), "--json", "--speed", "1000", home=tmp_path)
    assert again.returncode == 0, again.stderr
    views = [json.loads(line) for line in again.stdout.splitlines()]
    assert len(views) >= len(shown)  # live, what came at once was shown at once
    assert {node["state"] for node in views[-1]["nodes"]} == {"ok"}
    assert [node["name"] for node in views[0]["nodes"]] == ["spark1", "spark2"]


def test_a_start_is_recorded_without_its_secrets(tmp_path: Path) -> None:
    file, token = tmp_path / "up.jsonl", "hf_" + "canary" * 5
    words = ("up", "qwen36", "-n", "spark1", "--record", str(file), "--set", "env.HF_TOKEN=${HF_TOKEN}")
    assert run_demo(*words, env={"HF_TOKEN": token}, speed="8").returncode == 0  # slow enough to see it load
    assert token not in file.read_text()
    again = run_sparkctl("top", "--replay", str(file), "--speed", "1000", home=tmp_path)
    assert again.returncode == 0
    assert re.search(r"qwen36 +loading", again.stdout)
    assert re.search(r"qwen36 +ready", again.stdout.splitlines()[-3])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--speed", "2"), "--speed needs --replay"),
        (("--force", "--once"), "--overwrite needs --record"),
        (("--replay", "x", "--record", "y"), "either --record or --replay"),
        (("--replay", "x", "--once", "--speed", "2"), "or --speed, not both"),
        (("--replay", "absent"), "cannot read absent"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("nodes: [{name: a, host: 127.0.0.1, port: 1}]")
    ran = run_sparkctl("top", *words, home=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stderr


def test_a_damaged_recording_says_where(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"ts": 1, "event": "node", "node": "a", "state": "ok"}\n{"ts": 2, "event": "node"}\n')
    ran = run_sparkctl("top", "--replay", str(file), "--once", home=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{file}:2: not a whole node event" in ran.stderr.replace("~", str(tmp_path))


def test_a_cut_or_foreign_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"ts": 1, "event": "node", "node": "a", "state": "ok"}\n{"ts": 2, "eve')
    ran = run_sparkctl("top", "--replay", str(file), "--once", home=tmp_path)
    assert ran.returncode == 0
    assert "ends in the middle of line 2" in ran.stderr
    for name in ("nope.rec", "empty"):
        (tmp_path / "empty").touch()
        ran = run_sparkctl("top", "--replay", str(tmp_path / name), "--once", home=tmp_path)
        assert ran.returncode == 2
        assert "top --record FILE" in ran.stderr
        assert "editor" not in ran.stderr


def test_only_overwrite_writes_over_a_file_and_a_start_s_force_does_not(tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    file.write_text("mine")
    words = ("up", "qwen36", "--node", "spark1", "--dry-run", "--record", str(file))
    for more in ((), ("--force",)):
        refused = run_demo(*words, *more)
        assert (refused.returncode, file.read_text()) == (2, "mine")
        assert "another name, or --overwrite" in refused.stderr
    assert run_demo(*words, "--overwrite").returncode == 0
    assert '"event"' in file.read_text()


def test_a_disk_that_is_full_ends_the_recording_and_not_the_look() -> None:
    ran = run_demo("top", "--once", "--record", "/dev/full", "--force", scenario="two-stacks")
    assert ran.returncode == 74  # a script that goes on with the recording has none
    assert ran.stderr.count("ends here: No space left on device") == 1
    assert "qwen36-vllm" in ran.stdout
