"""A voice behind a second container, on real parts: from nothing to sound, and what only answers."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import pytest

from tests.lab.bed.lab import Lab
from tests.lab.support.command_outcomes import assert_ended, list_containers
from tests.lab.support.sparkctl_process import Sparkctl

MODEL_URL = "http://127.0.0.1:8102/v1/completions"


def write_pair(sparkctl: Sparkctl, served: str = "voice", speech: str = MODEL_URL) -> str:
    model = {"path": "/models/tiny", "served_name": served}
    sparkctl.profile("voice-llm", port=8102, model=model)
    return sparkctl.profile(
        "voice", env={"LAB_SPEECH": speech}, needs=["voice-llm"], start={"drop_caches": False, "probe": "speech"}
    )


def test_from_nothing_to_sound(clean_nodes: Lab, sparkctl: Sparkctl, tmp_path: Path) -> None:
    write_pair(sparkctl)
    up = sparkctl("up", "voice", "--node", "spark2", "--json")
    assert_ended(up, 0, "ready")
    assert up.result["proof"].startswith("1.0 s of sound (wav) in ")
    ready = [event["instance"] for event in up.events if event.get("phase") == "ready"]
    assert ready == ["voice-llm", "voice"]
    said = sparkctl("say", "good evening", "--node", "spark2", "-o", str(tmp_path / "hello.wav"))
    assert said.code == 0, said
    with wave.open(str(tmp_path / "hello.wav")) as file:
        assert file.getnframes() == 16000
    assert sparkctl("say", "good evening", "--node", "spark2").stdout == (tmp_path / "hello.wav").read_bytes()
    assert_ended(sparkctl("down", "voice", "--node", "spark2", "--json"), 0, "done")
    assert list_containers(clean_nodes.nodes["spark2"]) == []


@pytest.mark.parametrize(
    ("served", "speech", "why"),
    [
        ("another", MODEL_URL, "without a single sample"),
        ("voice", "html", "gave HTML instead of sound"),
        ("voice", "silence", "1.0 s of silence"),
        ("voice", "http://127.0.0.1:8999/v1/completions", "without a single sample"),
    ],
    ids=["wrong-model", "html", "silence", "model-down"],
)
def test_up_and_not_proved(clean_nodes: Lab, sparkctl: Sparkctl, served: str, speech: str, why: str) -> None:
    write_pair(sparkctl, served, speech)
    up = sparkctl("up", "voice", "--node", "spark1", "--json")
    assert_ended(up, 5, "unproved")
    assert why in up.result["proof"]
    status = sparkctl("status", "--node", "spark1", "--check", "--json")
    phases = {one["name"]: one["phase"] for one in json.loads(status.out)["nodes"][0]["instances"]}
    assert (status.code, phases) == (5, {"voice": "unproved", "voice-llm": "ready"})
