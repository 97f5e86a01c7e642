"""A voice behind a second container, on real parts: from nothing to sound, what only answers, and both as one thing."""

from __future__ import annotations

import json
import time
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.bed.lab import Lab
from tests.lab.bed.names import ADDRESSES
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import LOADING, assert_ended, get_verdict, list_containers
from tests.lab.support.sparkctl_process import Ran, Running, Sparkctl

MODEL_URL = "http://127.0.0.1:8102/v1/completions"
MODEL, VOICE = "sglang-voice-llm", "sglang-voice"  # containers


def write_pair(sparkctl: Sparkctl, served: str = "voice", speech: str = MODEL_URL, at: str = "", **fields: Any) -> str:
    """Write the voice and the model behind it; ``at``: @NODE of the model, where that is another one."""
    sparkctl.profile("voice-llm", port=8102, model={"path": "/models/tiny", "served_name": served})
    fields = {"env": {"LAB_SPEECH": speech}, **fields}
    start = {"drop_caches": False, "probe": "speech"}
    return sparkctl.profile("voice", needs=[f"voice-llm{at}"], group="speech", start=start, **fields)


def list_ended(nodes: Sequence[LabNode], since: float) -> list[str]:
    """Return the containers that ended since then, in this order, as Docker saw it."""
    form = ("--filter", "event=die", "--format", "{{.TimeNano}} {{.Actor.Attributes.name}}")
    span = ("--since", f"{since:.9f}", "--until", f"{time.time():.9f}")
    seen = [line for node in nodes for line in node.docker("events", *span, *form).splitlines()]
    return [line.partition(" ")[2] for line in sorted(seen)]


def list_running(nodes: Sequence[LabNode]) -> list[list[tuple[str, str]]]:
    """Return what runs on each node: name and id."""
    return [
        sorted(tuple(line.split()) for line in node.docker("ps", "--format", "{{.Names}} {{.ID}}").splitlines())
        for node in nodes
    ]


def read_phases(ran: Ran) -> dict[str, str]:
    """Return the phase of each instance in a `status --json` of one node."""
    return {one["name"]: one["phase"] for one in json.loads(ran.out)["nodes"][0]["instances"]}


def assert_unproved(going: Running, sparkctl: Sparkctl, node: str, why: str) -> None:
    up = going.end()
    assert_ended(up, 5, "unproved")
    assert why in up.result["proof"]
    status = sparkctl("status", "--node", node, "--check", "--json")
    assert (status.code, read_phases(status)) == (5, {"voice": "unproved", "voice-llm": "ready"})


def test_from_nothing_to_sound_and_its_model_is_stopped(
    clean_nodes: Lab, sparkctl: Sparkctl, tmp_path: Path, spark2: LabNode
) -> None:
    write_pair(sparkctl, speech="silence")
    silent = sparkctl.start("up", "voice", "--node", "spark1", "--json")  # meanwhile, on the other Spark
    silent.await_text('"connect|"phase"')
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

    spark2.docker("stop", MODEL)
    status = sparkctl("status", "--node", "spark2", "--check", "--json")
    assert (status.code, read_phases(status)["voice"]) == (5, "unproved"), status
    assert "without a single sample" in status.out
    said = sparkctl("say", "good evening", "--node", "spark2")
    assert (said.code, said.stdout, "without a single sample" in said.err) == (5, b"", True), said
    voice = spark2.inspect_container(VOICE)["Id"]
    assert_ended(sparkctl("up", "voice", "--node", "spark2", "--json"), 0, "ready")
    assert spark2.inspect_container(VOICE)["Id"] == voice, "only its model was started again"

    began = time.time()
    assert_ended(sparkctl("down", "voice", "--node", "spark2", "--json"), 0, "done")
    assert list_containers(spark2) == []
    assert list_ended([spark2], began) == [VOICE, MODEL], "the voice first"
    assert_unproved(silent, sparkctl, "spark1", "1.0 s of silence")


def test_up_and_not_proved(clean_nodes: Lab, sparkctl: Sparkctl, tmp_path: Path) -> None:
    rosa = Sparkctl(tmp_path, operator="rosa")
    write_pair(sparkctl, served="another")
    write_pair(rosa, speech="html")
    going = [
        one.start("up", "voice", "--node", node, "--json") for one, node in ((sparkctl, "spark1"), (rosa, "spark2"))
    ]
    assert_unproved(going[0], sparkctl, "spark1", "without a single sample")
    assert_unproved(going[1], rosa, "spark2", "gave HTML instead of sound")


def test_what_cannot_be_needed_starts_nothing(clean_nodes: Lab, sparkctl: Sparkctl) -> None:
    write_pair(sparkctl)
    sparkctl.profile("voice-llm", port=8102, needs=["voice"])
    cycle = sparkctl("up", "voice", "--node", "spark1")
    assert (cycle.code, "cannot need itself: voice → voice-llm → voice" in cycle.err) == (2, True), cycle
    sparkctl.profile("voice", needs=["nobody"])
    missing = sparkctl("up", "voice", "--node", "spark1")
    assert (missing.code, "no profile is called `nobody`" in missing.err) == (2, True), missing
    assert list_running(list(clean_nodes.nodes.values())) == [[], []]


def test_the_voice_here_and_its_model_there_are_one_thing(
    clean_nodes: Lab, sparkctl: Sparkctl, tmp_path: Path, spark1: LabNode, spark2: LabNode
) -> None:
    """Locked, started, stopped, switched and rolled back together, over both Sparks."""
    nodes = [spark1, spark2]
    speech = MODEL_URL.replace("127.0.0.1", ADDRESSES["spark1"][0])
    pair = {"speech": speech, "at": "@spark1"}
    fails = {"LAB_SPEECH": speech, "LAB_END": "cuda-oom"}
    rosa = Sparkctl(tmp_path, operator="rosa")
    busy = rosa.start("up", rosa.profile(port=8103, env={"LAB_LOAD_S": "30"}), "--node", "spark1", "--json")
    busy.await_text(LOADING)
    write_pair(sparkctl, **pair, env=fails)
    refused = sparkctl("up", "voice", "--node", "spark2", "--json")
    assert_ended(refused, 6, "refused")
    assert "rosa@" in refused.result["message"], "the Spark of its model is another operator's"
    assert [[name for name, _ in its] for its in list_running(nodes)] == [["sglang-tiny"], []]
    busy.kill()
    spark1.docker("rm", "-f", "sglang-tiny")

    began = time.time()
    failed = sparkctl("up", "voice", "--node", "spark2", "--json")
    assert_ended(failed, 1, "failed")
    assert (failed.result["instance"], get_verdict(failed)["cause"]) == ("voice", "cuda-out-of-memory")
    assert list_running(nodes) == [[], []], "its model was started for it alone"
    assert list_ended(nodes, began) == [VOICE, MODEL]

    write_pair(sparkctl, **pair, env={"LAB_SPEECH": speech, "LAB_LOAD_S": "12"})  # until rosa was refused twice
    starting = sparkctl.start("up", "voice", "--node", "spark2", "--json")
    starting.await_text('"phase": ?"creating"')
    for node in ("spark1", "spark2"):
        refused = rosa("up", "tiny", "--node", node, "--json")
        assert_ended(refused, 6, "refused")
        assert "milo@" in refused.result["message"], "each Spark of the pair is locked"
    assert_ended(starting.end(), 0, "ready")
    both = list_running(nodes)
    assert [[name for name, _ in its] for its in both] == [[MODEL], [VOICE]]

    began = time.time()
    sparkctl.profile("plain", port=8101, group="speech", env={"LAB_END": "cuda-oom"})
    failed = sparkctl("switch", "plain", "--node", "spark2", "--json")
    assert_ended(failed, 1, "failed")
    assert list_running(nodes) == both, "the very same containers"
    assert list_ended(nodes, began)[:2] == [VOICE, MODEL]
    assert sparkctl("say", "good evening", "--node", "spark2").stdout.startswith(b"RIFF")
    sparkctl.profile("plain", port=8101, group="speech")
    assert_ended(sparkctl("switch", "plain", "--node", "spark2", "--json"), 0, "ready")
    alone = list_running(nodes)
    assert [[name for name, _ in its] for its in alone] == [[], ["sglang-plain"]]
    write_pair(sparkctl, **pair, env=fails)
    assert_ended(sparkctl("switch", "voice", "--node", "spark2", "--json"), 1, "failed")
    assert list_running(nodes) == alone
    assert [list_containers(node) for node in nodes] == [[], ["sglang-plain"]], "nothing of the pair is left"
