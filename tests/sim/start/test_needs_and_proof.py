"""Several containers that are one thing, and what a service must give before it is ready, on simulated Sparks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.cli.event_printers import TextPrinter
from sparkctl.commands.ask_instance import speak_text
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.start import start_watch
from sparkctl.commands.start.check_fit import CheckFit
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.commands.switch.finish_switch import FinishSwitch
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.errors import OperationRefused, ServiceUnproved
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import (
    CommandEnded,
    Event,
    MemoryFitEvaluated,
    Outcome,
    PhaseChanged,
    SwitchPlanned,
    SwitchStepReported,
    WarningEmitted,
)
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.views.status_view import format_status_table, sort_by_owner
from sparkctl.views.text.styled_text import join_text
from tests.support.events import collect_events_and_end
from tests.support.run_command import run_demo
from tests.support.switch_scene import abort_switch

pytestmark = pytest.mark.usefixtures("own_profiles")
VOICE, MODEL = "orpheus-tts", "orpheus-llm"


class SpeechScene:
    """One operator at two empty Sparks; the voice goes to the second."""

    def __init__(self, sparks: SimulatedSparks, state: Path) -> None:
        self.sparks = sparks
        self.nodes = load_config(sparks.config_path).nodes
        self.ctx = CommandContext(history=OperationHistory(state), operator="milo@desk")

    @property
    def node(self) -> Node:
        return self.nodes[1]

    def running(self, node: str = "spark2") -> list[str]:
        """Return what runs on a Spark, by instance."""
        found = self.sparks.docker[node].containers.values()
        return sorted(one.labels[ContainerLabel.INSTANCE] for one in found if one.state == "running")

    def request(self, name: str = VOICE, *overrides: str, **more: bool) -> StartInstance:
        profile = ProfileLibrary().load_profile(name, overrides=overrides)
        words = (name, *(word for one in overrides for word in ("--set", one)))
        return StartInstance(
            profile=profile, nodes=(self.node,), words=words, guarded=False,
            environ=os.environ, known=self.nodes, **more,
        )  # fmt: skip

    async def up(self, name: str = VOICE, *overrides: str, **more: bool) -> tuple[list[Event], CommandEnded]:
        return await collect_events_and_end(self.request(name, *overrides, **more).run(self.ctx))

    async def down(self, name: str = VOICE, **more: bool) -> tuple[list[Event], CommandEnded]:
        request = StopInstance(
            instance=name, nodes=(self.node,), known=frozenset((name,)), everywhere=self.nodes, **more
        )
        return await collect_events_and_end(request.run(self.ctx))

    async def switch(self, name: str, *overrides: str) -> tuple[list[Event], CommandEnded]:
        request = SwitchInstance.from_start(self.request(name, *overrides), self.nodes)
        return await collect_events_and_end(request.run(self.ctx))


@pytest.fixture
def speech(sparks: SimulatedSparks, tmp_path: Path) -> SpeechScene:
    return SpeechScene(sparks, tmp_path / "state")


def write_profile(tmp_path: Path, name: str, base: str, *lines: str) -> None:
    folder = tmp_path / "config" / "sparkctl" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text("\n".join([f"schema: 1\nname: {name}\nextends: {base}", *lines, ""]))


def list_phases(events: Sequence[Event], phase: Phase) -> list[str]:
    return [one.instance for one in events if isinstance(one, PhaseChanged) and one.phase is phase]


def list_warnings(events: Sequence[Event]) -> str:
    return "\n".join(one.message for one in events if isinstance(one, WarningEmitted))


async def test_from_nothing_to_sound_and_back(speech: SpeechScene) -> None:
    events, ended = await speech.up()
    assert (ended.outcome, ended.exit_code, ended.instance) == (Outcome.READY, 0, VOICE)
    assert list_phases(events, Phase.READY) == [MODEL, VOICE], "what is needed is ready first"
    assert ended.proof is not None
    assert "s of sound (wav)" in ended.proof
    assert "sparkctl say hello --node spark2 -o hello.wav" in (ended.hint or "")
    views = await read_node_statuses(speech.ctx, speech.nodes)
    assert [(one.name, one.needs, one.needed_by) for one in sort_by_owner(views[1].instances)] == [
        (VOICE, (f"{MODEL}@spark2",), ()),
        (MODEL, (), (VOICE,)),
    ]
    table = [join_text(row) for row in format_status_table(views, width=None)]
    assert any(f"{MODEL} for {VOICE}" in row for row in table), table
    spoken = await speak_text(speech.ctx, speech.nodes, "good evening", voice=None, instance=None)
    assert (spoken.instance, spoken.node, spoken.clip.form) == (VOICE, "spark2", "wav")
    served, _ = await list_endpoints(speech.ctx, speech.nodes)
    assert {one.instance: (one.started_for, one.health) for one in served} == {
        MODEL: (VOICE, "/health"),
        VOICE: (None, "/docs"),
    }
    again, ended = await speech.up()
    assert ended.exit_code == 0
    assert list_phases(again, Phase.CREATING) == [], "both run already, and are used"
    events, ended = await speech.down()
    assert (ended.exit_code, speech.running()) == (0, [])
    assert list_phases(events, Phase.STOPPED) == [VOICE, MODEL], "the dependent stops first"
    with pytest.raises(OperationRefused, match="no speech server started by sparkctl is running on spark1 or spark2"):
        await speak_text(speech.ctx, speech.nodes, "good evening", voice=None, instance=None)


async def test_a_need_that_ran_before_stays(speech: SpeechScene) -> None:
    await speech.up(MODEL)
    events, ended = await speech.up(VOICE, "env.SIM_FAULT=oom-killed")
    assert ended.verdict is not None
    assert (ended.outcome, ended.instance) == (Outcome.FAILED, VOICE)
    assert ended.verdict.cause is not FailureCause.TIMED_OUT
    assert speech.running() == [MODEL]
    assert list_phases(events, Phase.CREATING) == [VOICE]
    await speech.up()
    served, _ = await list_endpoints(speech.ctx, speech.nodes)
    assert [one.started_for for one in served] == [None, None], "its owner may use it, too"
    events, _ = await speech.down()
    assert speech.running() == [MODEL]
    assert f"{MODEL}, which {VOICE} needed, stays" in list_warnings(events)
    await speech.up()
    events, _ = await speech.down(MODEL, dry_run=True)
    assert f"{VOICE} needs {MODEL} and cannot work without it" in list_warnings(events)
    await speech.down(with_needs=True)
    assert speech.running() == []


async def test_what_was_started_for_one_that_fails_stops_again(speech: SpeechScene, tmp_path: Path) -> None:
    events, ended = await speech.up(VOICE, "env.SIM_FAULT=oom-killed")
    assert (ended.outcome, ended.instance, ended.exit_code) == (Outcome.FAILED, VOICE, 1)
    assert speech.running() == []
    assert f"{MODEL} is stopped again: it was started for {VOICE}" in list_warnings(events)
    write_profile(tmp_path, "bad-llm", MODEL, "env: {SIM_FAULT: cuda-oom}")
    write_profile(tmp_path, "voice", VOICE, "needs: [bad-llm]", "container: {name: voice}")
    events, ended = await speech.up("voice")
    assert (ended.outcome, ended.instance) == (Outcome.FAILED, "bad-llm"), "the verdict is of the one that failed"
    assert ended.message == "voice was not started: bad-llm, which it needs, is not ready"
    assert "voice" not in list_phases(events, Phase.CREATING)


async def test_everything_is_looked_at_before_anything_starts(speech: SpeechScene, tmp_path: Path) -> None:
    write_profile(
        tmp_path, "big-llm", MODEL, "memory: {expected: 70GiB}", "model: {weights: 70GB, path: null, source: null}"
    )
    write_profile(tmp_path, "voice", VOICE, "needs: [big-llm]", "memory: {expected: 60GiB}")
    assert (await speech.up("big-llm", dry_run=True))[1].outcome is Outcome.PLANNED, "each alone fits"
    assert (await speech.up("voice", alone=True, dry_run=True))[1].outcome is Outcome.PLANNED
    events, ended = await speech.up("voice")
    assert (ended.exit_code, ended.instance) == (6, "voice")
    assert list_phases(events, Phase.CREATING) == []
    assert speech.sparks.docker["spark2"].containers == {}
    plan = CheckFit(
        profile=ProfileLibrary().load_profile("voice"), nodes=(speech.node,), environ=os.environ, words=("voice",)
    )
    events, ended = await collect_events_and_end(plan.run(speech.ctx))
    fits = [one.fit for one in events if isinstance(one, MemoryFitEvaluated)]
    assert [(one.profile, one.is_refused) for one in fits] == [("big-llm", False), ("voice", True)]
    assert ended.exit_code == 6
    write_profile(tmp_path, "voice", VOICE, "needs: [orpheus-llm@elsewhere]")
    _, ended = await speech.up("voice")
    assert (ended.exit_code, ended.message) == (
        2, "voice needs a profile on elsewhere, and no node is called that (configured: spark2, spark1)"
    )  # fmt: skip


async def test_up_and_not_proved(speech: SpeechScene, capsys: pytest.CaptureFixture[str]) -> None:
    """It says nothing: amber, never ready."""
    override, why = "env.SIM_FAULT=no-token", "s of silence (wav)"
    events, ended = await speech.up(VOICE, override)
    assert (ended.outcome, ended.exit_code) == (Outcome.UNPROVED, 5)
    assert ended.proof is not None
    assert why in ended.proof
    assert ended.endpoint is not None
    TextPrinter().print_event(ended)
    assert capsys.readouterr().out == "", "a script takes what stands there for a service that is ready"
    assert VOICE in list_phases(events, Phase.UNPROVED)
    assert VOICE not in list_phases(events, Phase.READY)
    assert VOICE in speech.running(), "it is left as it is"
    (view,) = await read_node_statuses(speech.ctx, [speech.node])
    phases = {one.name: (one.phase, one.detail) for one in view.instances}
    assert phases[VOICE][0] is Phase.UNPROVED
    assert why in (phases[VOICE][1] or "")
    assert not view.is_healthy
    with pytest.raises(ServiceUnproved, match=re.escape(why)):
        await speak_text(speech.ctx, speech.nodes, "hello", voice=None, instance=None)
    _, ended = await speech.up(VOICE, override)
    assert ended.outcome is Outcome.UNPROVED, "asked again, it says the same"


async def test_a_service_without_health_path_ends_with_a_clear_result(
    speech: SpeechScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, it listens on another port, or its profile names none: never a wait that says nothing."""
    monkeypatch.setattr(start_watch, "_QUIET_SECONDS", 2.0)
    folder = tmp_path / "config" / "sparkctl" / "profiles"
    folder.mkdir(parents=True)

    async def up_web(command: str, *lines: str) -> tuple[list[Event], CommandEnded]:
        text = ["schema: 1", "name: web", "engine: container", "image: own/web:1", f"command: [{command}]", *lines]
        (folder / "web.yaml").write_text("\n".join([*text, "start: {probe: http, timeouts: {warming: 12s}}", ""]))
        found = await speech.up("web")
        await speech.down("web")
        return found

    _, ended = await up_web("python3, -m, http.server, '8123'", "port: 8123")
    assert (ended.outcome, ended.proof) == (Outcome.READY, "GET / answered 200"), ended
    events, ended = await up_web("serve, --port, '9000'", "port: 8123")
    assert ended.exit_code == 4, ended
    assert "web runs and does not answer yet: port 8123 refuses connections" in list_warnings(events)
    assert ended.verdict is not None
    assert "port 8123 refuses connections" in " ".join(one.text for one in ended.verdict.evidence)
    events, ended = await up_web("serve")
    assert (ended.outcome, ended.exit_code, ended.proof) == (Outcome.UNPROVED, 5, "the profile gives no port to ask")


async def test_a_pair_is_switched_as_one(speech: SpeechScene, tmp_path: Path) -> None:
    write_profile(tmp_path, "voice", VOICE, "group: speech")
    write_profile(tmp_path, "plain", "kokoro-tts", "group: speech")
    assert (await speech.up("plain"))[1].exit_code == 0
    old = dict(speech.sparks.docker["spark2"].containers)
    _, ended = await speech.switch("voice", "env.SIM_FAULT=oom-killed")
    assert ended.exit_code == 1
    assert speech.running() == ["plain"], "the way back of the pair"
    assert set(speech.sparks.docker["spark2"].containers) == set(old)
    _, ended = await speech.switch("voice")
    assert (ended.outcome, speech.running()) == (Outcome.READY, [MODEL, "voice"])
    _, ended = await speech.switch("plain", "env.SIM_FAULT=oom-killed")
    assert (ended.exit_code, speech.running()) == (1, [MODEL, "voice"]), "both came back, the model first"
    _, ended = await speech.switch("plain")
    assert (ended.outcome, speech.running()) == (Outcome.READY, ["plain"])


@pytest.mark.parametrize("is_old_journal", [False, True])
async def test_a_need_that_ran_before_a_switch_outlives_its_rollback(
    speech: SpeechScene, tmp_path: Path, is_old_journal: bool
) -> None:
    """It was started for a model of that name once; also the kept container of what comes back needs it."""
    write_profile(tmp_path, "voice", "kokoro-tts", "group: speech", f"needs: [{MODEL}]")
    write_profile(tmp_path, "plain", "kokoro-tts", "group: speech", f"needs: [{MODEL}]")
    assert (await speech.up("voice"))[1].exit_code == 0
    await speech.down("voice", alone=True)
    assert (await speech.up("plain"))[1].exit_code == 0
    old = dict(speech.sparks.docker["spark2"].containers)
    request = replace(
        SwitchInstance.from_start(speech.request("voice", "env.SIM_FAULT=no-token"), speech.nodes), rolls_back=False
    )
    _, ended = await collect_events_and_end(request.run(speech.ctx))
    assert (ended.exit_code, speech.running()) == (1, [MODEL, "voice"]), ended
    for spark in speech.sparks.nodes.values():
        if is_old_journal and spark.journal is not None:
            said = json.loads(spark.journal)
            spark.journal = json.dumps({key: said[key] for key in said if key not in ("need_nodes", "ran_before")})
    finish = FinishSwitch(nodes=speech.nodes, known=speech.nodes, guarded=False)
    _, ended = await collect_events_and_end(abort_switch(speech.ctx, finish))
    assert ended.exit_code == 0, ended
    assert speech.running() == [MODEL, "plain"]
    assert set(speech.sparks.docker["spark2"].containers) == set(old)


async def test_a_switch_to_what_proves_nothing_says_that_it_was_up(speech: SpeechScene) -> None:
    assert (await speech.up(VOICE))[1].exit_code == 0
    events, ended = await speech.switch(VOICE, "env.SIM_FAULT=no-token")
    assert ended.message is not None
    assert ended.message.startswith(f"{VOICE} as asked for was up, not proved: ")
    assert f"{VOICE} as it ran serves again" in ended.message
    (checked,) = [one.proof for one in events if isinstance(one, SwitchStepReported) and "weights" in (one.proof or "")]
    assert checked is not None
    assert "the file of weights is complete" in checked


async def test_a_rollback_removes_what_was_started_for_it_on_the_other_spark(
    speech: SpeechScene, tmp_path: Path
) -> None:
    write_profile(tmp_path, "helper", "kokoro-tts", f"needs: [{MODEL}]", "container: {name: helper}")
    write_profile(tmp_path, "voice", "kokoro-tts", "group: speech", "needs: ['helper@spark1']")
    write_profile(tmp_path, "plain", "kokoro-tts", "group: speech")
    assert (await speech.up("plain"))[1].exit_code == 0
    old = dict(speech.sparks.docker["spark2"].containers)
    _, ended = await speech.switch("voice", "env.SIM_FAULT=no-token")
    assert (ended.exit_code, "plain serves again" in (ended.message or "")) == (1, True), ended
    assert speech.sparks.docker["spark1"].containers == {}, "also what that needs there"
    assert set(speech.sparks.docker["spark2"].containers) == set(old)
    assert [spark.journal for spark in speech.sparks.nodes.values()] == [None, None]


async def test_what_is_needed_on_the_other_spark_is_looked_at_before_anything_stops(
    speech: SpeechScene, tmp_path: Path
) -> None:
    write_profile(tmp_path, "far", MODEL, "image: missing/llama:1")
    write_profile(tmp_path, "voice", "kokoro-tts", "group: speech", "needs: ['far@spark1']")
    write_profile(tmp_path, "plain", "kokoro-tts", "group: speech")
    assert (await speech.up("plain"))[1].exit_code == 0
    old = dict(speech.sparks.docker["spark2"].containers)
    _, ended = await speech.switch("voice")
    assert (ended.exit_code, speech.running()) == (6, ["plain"])
    assert "spark1 does not have the image missing/llama:1" in (ended.message or "")
    assert speech.sparks.docker["spark2"].containers == old, "nothing was touched"

    write_profile(tmp_path, "far", MODEL, "memory: {expected: 400GiB}")
    _, ended = await speech.switch("voice")
    assert ended.exit_code == 6
    assert "far does not fit on spark1" in (ended.message or "")
    assert speech.sparks.docker["spark2"].containers == old

    write_profile(tmp_path, "voice", "kokoro-tts", "group: speech", "needs: ['far@spark9']")
    _, ended = await speech.switch("voice")
    assert (ended.exit_code, "no node is called that" in (ended.message or "")) == (2, True)
    assert speech.sparks.docker["spark2"].containers == old


async def test_what_is_in_the_way_of_a_need_on_the_other_spark_is_in_the_plan(
    speech: SpeechScene, tmp_path: Path
) -> None:
    """A model on the other Spark with the port of what is needed there stops, and comes back where the switch fails."""
    write_profile(tmp_path, "inway", MODEL)
    write_profile(tmp_path, "voice", "kokoro-tts", "group: speech", f"needs: ['{MODEL}@spark1']")
    write_profile(tmp_path, "plain", "kokoro-tts", "group: speech")
    first = speech.request("inway")
    _, ended = await collect_events_and_end(replace(first, nodes=(speech.nodes[0],)).run(speech.ctx))
    assert ended.exit_code == 0, ended
    assert (await speech.up("plain"))[1].exit_code == 0
    events, ended = await speech.switch("voice", "env.SIM_FAULT=oom-killed")
    (plan,) = [one.plan for one in events if isinstance(one, SwitchPlanned)]
    assert {one.node: one.starts for one in plan.changes} == {"spark1": MODEL, "spark2": "voice"}
    assert plan.stops == ("inway", "plain")
    assert (ended.exit_code, speech.running("spark1"), speech.running()) == (1, ["inway"], ["plain"])
    _, ended = await speech.switch("voice")
    assert (ended.outcome, speech.running("spark1"), speech.running()) == (Outcome.READY, [MODEL], ["voice"])


async def test_a_model_over_both_sparks_may_need_something_on_one_of_them(speech: SpeechScene, tmp_path: Path) -> None:
    write_profile(tmp_path, "large", "minimax-m27", f"needs: ['{MODEL}@spark2']")
    large = ProfileLibrary().load_profile("large")
    pair = tuple(speech.nodes)
    plan = CheckFit(profile=large, nodes=pair, environ=os.environ, words=("large",), known=speech.nodes)
    events, ended = await collect_events_and_end(plan.run(speech.ctx))
    fits = {(one.fit.profile, one.fit.node): one.fit for one in events if isinstance(one, MemoryFitEvaluated)}
    assert set(fits) == {("large", "spark1"), (MODEL, "spark2"), ("large", "spark2")}
    own = [fits["large", name].margin or 0 for name in ("spark1", "spark2")]
    needed = fits[MODEL, "spark2"].needed_bytes
    assert own[0] - own[1] == pytest.approx(needed, rel=0.01), "what starts first is counted on its Spark"
    assert ended.exit_code == 0
    start = replace(speech.request("large"), nodes=pair)
    _, ended = await collect_events_and_end(start.run(speech.ctx))
    assert (ended.outcome, speech.running("spark1"), speech.running()) == (Outcome.READY, ["large"], ["large", MODEL])
    _, ended = await speech.down("large")
    assert (ended.exit_code, speech.running("spark1"), speech.running()) == (0, [], [])


async def test_plan_looks_at_what_is_needed_on_the_other_spark(speech: SpeechScene, tmp_path: Path) -> None:
    write_profile(tmp_path, "far", MODEL, "memory: {expected: 400GiB}")
    write_profile(tmp_path, "voice", "kokoro-tts", "needs: ['far@spark1']")
    voice = ProfileLibrary().load_profile("voice")
    plan = CheckFit(profile=voice, nodes=(speech.node,), environ=os.environ, words=("voice",), known=speech.nodes)
    events, ended = await collect_events_and_end(plan.run(speech.ctx))
    fits = [one.fit for one in events if isinstance(one, MemoryFitEvaluated)]
    assert [(one.profile, one.node, one.is_refused) for one in fits] == [
        ("far", "spark1", True),
        ("voice", "spark2", False),
    ]
    assert ended.exit_code == 6


def test_sox_reads_what_say_writes(tmp_path: Path) -> None:
    if shutil.which("sox") is None:
        pytest.skip("no sox here")
    place = tmp_path / "hello.wav"
    done = run_demo("say", "hello", "--node", "spark2", "-o", str(place), scenario="speech")
    assert done.returncode == 0, done.stderr
    read = subprocess.run(["sox", str(place), "-n", "stat"], capture_output=True, text=True, timeout=30)
    assert read.returncode == 0, read.stderr
    lines = dict(line.split(":", 1) for line in read.stderr.splitlines() if ":" in line)
    assert float(lines["Length (seconds)"]) > 0.2
    assert float(lines["Maximum amplitude"]) > 0.01
