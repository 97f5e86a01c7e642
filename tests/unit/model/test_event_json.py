"""Events survive the way to JSON and back; secrets do not even set out."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import get_args

import pytest

from sparkctl.model import events
from sparkctl.model.bench import BenchCell, CellResult, DomainResult, Measurements
from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineFact,
    EngineFactName,
    EngineMeter,
    MeterSource,
    Quantiles,
)
from sparkctl.model.events import FileChange, SetupStep, SetupStepKind
from sparkctl.model.finding import FindingEvidence, Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.json_codec import decode_event, encode_event, from_json_data, to_json_data
from sparkctl.model.launch_plan import LaunchPlan, Mount, PhaseTimeouts, ReadinessRule
from sparkctl.model.memory_fit import EstimatePart, EstimateSource, FitOutcome, MemoryBudget, MemoryFit, MemoryHolder
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import Gpu, MemoryReading, Sample
from sparkctl.model.switch_plan import JournalPresence as JournalFound
from sparkctl.model.switch_plan import (
    NodeSwitchPlan,
    SwitchConflict,
    SwitchContainer,
    SwitchJournal,
    SwitchJournalStatus,
    SwitchPlan,
    SwitchStep,
)
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.verdict import Evidence, FailureCause, FieldChange, Verdict

NODE = NodeName("spark1")
MEMORY = MemoryReading(total=120, available=100, free=60, page_cache=38, swap_total=16, swap_free=15)
CANARY = "hf_canarycanarycanarycanary"
PLAN = LaunchPlan(
    node=NODE, instance="i", profile="p", profile_hash="h", engine="sglang", container_name="c", image="x:1",
    entrypoint=None, command=("run", "--api-key", "sesame-open", "--port", "8003"), env=(("HF_TOKEN", CANARY), ("A", "b")),
    mounts=(Mount("/a", "/b", True),), gpus="all", shm_size="16g", ipc=None, network="host", ulimits=(("memlock", "-1"),),
    devices=(), options=(("init", "true"),), labels=(("k", "v"),), port=8003, served_model="m", api_key="sesame-open",
    ready=ReadinessRule(line="line", health="/health"), timeouts=PhaseTimeouts(), drop_caches=True, stop_grace=30.0, expected_memory=5,
    floor_memory=None,
)  # fmt: skip
SAMPLES: list[events.Event] = [
    events.NodeStateChanged(ts=1.0, node=NODE, state=NodeState.STARVED, detail="no banner", attempt=3, next_try=4.5),
    events.MemorySampled(1.0, NODE, MEMORY),
    events.SampleArrived(
        1.0,
        NODE,
        Sample(sequence=3, time=1.5, uptime=9.0, memory=MEMORY, gpus=(Gpu(index=0, power=4.5),), gpu_silent_for=14.0),
    ),
    events.CachesDropped(ts=1.0, node=NODE, before=MEMORY, after=MEMORY, proven=None),
    events.ContainersListed(
        ts=1.0,
        node=NODE,
        instances=(
            InstanceView(
                name="i",
                node=NODE,
                container="n",
                image="x",
                state=ContainerState.RUNNING,
                status="Up",
                ours=True,
                memory=None,
                phase=Phase.LOADING,
                step=Step("weights", 3, 12),
            ),
        ),
        known=False,
        detail="d",
        hint="h",
    ),
    events.MeterArrived(
        ts=1.0,
        node=NODE,
        container="id",
        numbers=EngineMeter(
            activity=EngineActivity.DECODING,
            seconds=10.0,
            estimator=MeterSource.COUNTERS,
            generation_rate=12.7,
            steps=7.26,
            ttft=Quantiles(0.1, 0.0123, 4.0),
            acceptance=DraftAcceptance(1.75, 0.2, (0.86, 0.71), MeterSource.COUNTERS),
        ),
        metrics_hint="args: {enable-metrics: true}",
    ),
    events.MemoryFitEvaluated(
        1.0,
        NODE,
        MemoryFit(
            node=NODE,
            profile="qwen36",
            answer=FitOutcome.SHORT,
            parts=(
                EstimatePart(name="weights", size=27, obtained=EstimateSource.MEASURED, words="7 files", within=True),
            ),
            standing=MemoryBudget(
                total=130,
                available=100,
                droppable=30,
                holders=(MemoryHolder(name="other", ours=False, held=None, coming=5, is_replaced=True),),
            ),
            floor=1,
            stops=("other",),
            largest=FieldChange("args.mem-fraction-static", "0.60"),
            least=None,
            lacking=3,
            cautions=("said",),
            estimated=110,
        ),
        ("sparkctl up qwen36",),
    ),
    events.EngineFactsReported(
        1.0, NODE, "id", (EngineFact(EngineFactName.QUANTIZATION_PATH, "Marlin fallback", is_fallback=True),)
    ),
    events.PartsMissing(
        ts=1.0,
        node=NODE,
        instance="tiny",
        parts=(
            MissingPart(kind=PartKind.MODEL, node=NODE, name="/m", reason="is not there", source="hf:a/b"),
            MissingPart(
                kind=PartKind.IMAGE, node=NODE, name="a:1", reason="is not there", source=None, is_required=False
            ),
        ),
        commands=("sparkctl pull tiny --node spark1",),
    ),
    events.PhaseChanged(
        ts=1.0,
        node=NODE,
        instance="i",
        phase=Phase.LOADING,
        step=Step("weights", 3, 12, 0.25),
        elapsed=4.0,
        expected=400.0,
        detail="d",
    ),
    events.LogArrived(
        ts=1.0,
        node=NODE,
        instance="i",
        lines=(LogLine(when="2026-05-01T10:00:00Z", text="text \x1b[31m", number=7, stream="stderr", cut=3),),
        gap=True,
    ),
    events.BenchCellProgressed(
        ts=1.0,
        node=NODE,
        instance="i",
        cell=BenchCell(pp=128, tg=16),
        number=2,
        total=8,
        done=3,
        requests=8,
        tokens_per_second=12.5,
        remaining=90.0,
    ),
    events.BenchDomainMeasured.from_result(
        1.0,
        NODE,
        "i",
        DomainResult(domain="prose", prompts=6, generation_rate=Measurements((11.0, 12.5)), accept_length=1.4),
        number=1,
        total=9,
    ),
    events.BenchCellMeasured.from_result(
        1.0,
        NODE,
        "i",
        CellResult(
            cell=BenchCell(pp=128, tg=16),
            generation_rate=Measurements((11.0, 12.5)),
            ttft=Measurements((0.25,)),
            accept_length=2.5,
            accept_positions=(0.75, 0.5),
            memory_peak=5,
            power=62.5,
            clock=2400.0,
            disturbed=False,
        ),
        number=1,
        total=2,
        remaining=30.0,
    ),
    events.GuardActed(
        ts=1.0,
        node=NODE,
        what=GuardAction.KILLED,
        why="w",
        at=2.5,
        instance="i",
        container="c",
        available=400,
        free=300,
        rate=9.5,
        to_zero=0.25,
    ),
    events.GuardStatusChanged(1.0, NODE, ("i",)),
    events.WarningEmitted(1.0, None, "m", "h"),
    events.FindingReported(
        ts=1.0,
        node=NODE,
        check="disk",
        severity=Severity.PROBLEM,
        message="m",
        remedy="r",
        instance="i",
        evidence=(FindingEvidence("free", "4.0 GiB", None, "statvfs"),),
        since=3.0,
    ),
    events.TransferProgressed(
        ts=1.0, node=NODE, source=NodeName("spark2"), what="image", done=5, total=10, rate=2.5, left=2.0
    ),
    events.MemoryReleased(
        ts=1.0,
        node=NODE,
        instance="i",
        freed=5,
        missing=1,
        holders=(("process 7", 1), ("/dev/shm/x", None)),
        before_start=100,
        available=99,
    ),
    events.SwitchPlanned(
        1.0,
        None,
        SwitchPlan(
            profile="p",
            instance="i",
            nodes=(NODE,),
            changes=(
                NodeSwitchPlan(
                    node=NODE,
                    total=130,
                    available=10,
                    tenants=(
                        SwitchContainer(
                            instance="old",
                            container="c",
                            container_id="id",
                            ours=True,
                            held=90,
                            conflicts=(SwitchConflict.MEMORY,),
                            rank="0/2",
                            port=8000,
                        ),
                    ),
                    starts="i",
                    fit=None,
                    available_after=40,
                ),
            ),
            stops=("old",),
        ),
    ),
    events.SwitchStepReported(
        ts=1.0, node=NODE, step=SwitchStep.RELEASING, instance="i", proof="88 GiB came back", elapsed=4.5
    ),
    events.SwitchJournalReported(
        1.0,
        NODE,
        SwitchJournalStatus(
            JournalFound.READ,
            SwitchJournal(
                id="0123456789ab",
                operator="milo@desk",
                since=7.5,
                step=SwitchStep.STOPPING,
                instance="i",
                words=("p", "--set", "a=b"),
                profile_hash="h",
                nodes=(NODE,),
                stops=("old",),
                old=((NODE, "0123456789ab"),),
                rolls_back=False,
            ),
            is_held=True,
        ),
    ),
    events.SetupPlanned(
        1.0,
        NodeName("spark1"),
        (SetupStep(SetupStepKind.CABLE, "the cable", (FileChange("/etc/netplan/x.yaml", None, "a\n", "0600"),)),),
        ("Docker: milo may use it",),
    ),
    events.SetupStepDone(ts=1.0, node=NodeName("spark1"), step=SetupStepKind.CABLE, is_back=True, detail="no link"),
    events.TunnelStateChanged(
        ts=1.0, node=NodeName("spark1"), instance="qwen36", state=events.TunnelState.OPEN, url="http://127.0.0.1:8000"
    ),
    events.CheckCompleted(1.0, NODE, 2.5),
    events.CommandEnded(
        ts=1.0,
        outcome=events.Outcome.FAILED,
        exit_code=1,
        seconds=48.0,
        node=NODE,
        instance="i",
        endpoint=None,
        message="m",
        hint="h",
        verdict=Verdict(
            cause=FailureCause.CUDA_OUT_OF_MEMORY,
            summary="s",
            evidence=(Evidence("t", "log", 412),),
            remedy="r",
            field="args.x",
        ),
        log="/log",
    ),
]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_event_comes_back_as_it_was(event: events.Event) -> None:
    assert decode_event(json.loads(json.dumps(encode_event(event)))) == event


def test_every_event_of_the_closed_set_is_written() -> None:
    covered = {type(event) for event in SAMPLES} | {events.LaunchPlanned}
    assert covered == set(get_args(events.Event))


def test_a_plan_comes_back_without_its_secrets() -> None:
    text = json.dumps(encode_event(events.LaunchPlanned(1.0, NODE, PLAN)))
    assert CANARY not in text
    assert "sesame-open" not in text
    back = decode_event(json.loads(text))
    assert isinstance(back, events.LaunchPlanned)
    changed = {f.name for f in fields(PLAN) if getattr(back.plan, f.name) != getattr(PLAN, f.name)}
    assert changed == {"env", "command", "api_key"}
    assert is_dataclass(back.plan.mounts[0])


def test_the_head_of_a_line_is_ts_event_node() -> None:
    assert list(encode_event(SAMPLES[0]))[:3] == ["ts", "event", "node"]
    assert encode_event(SAMPLES[-1])["event"] == "result"


@pytest.mark.parametrize("data", [{}, {"event": "no-such"}, {"event": "phase", "ts": 1}])
def test_json_that_is_no_event_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="event"):
        decode_event(data)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_json_does_not_have_is_not_known(value: float) -> None:
    assert to_json_data(value) is None
    text = json.dumps(encode_event(events.NodeStateChanged(ts=1.0, node=NODE, state=NodeState.OK, next_try=value)))
    assert json.loads(text, parse_constant=pytest.fail)["next_try"] is None


@dataclass(frozen=True, slots=True)
class Reading:
    """One field of each kind."""

    name: str
    size: int | None = None
    share: float | None = None
    state: NodeState | None = None
    parts: tuple[int, ...] = ()
    holes: tuple[int | None, ...] = ()
    pair: tuple[str, int] | None = None
    inner: Reading | None = None


@pytest.mark.parametrize(
    ("data", "lenient"),
    [
        ({"name": "a", "size": "1"}, Reading("a")),
        ({"name": "a", "size": True}, Reading("a")),
        ({"name": "a", "size": 1.0}, Reading("a")),
        ({"name": "a", "share": "1"}, Reading("a")),
        ({"name": "a", "state": "fine"}, Reading("a")),
        ({"name": "a", "state": ["ok"]}, Reading("a")),
        ({"name": "a", "parts": 5}, Reading("a")),
        ({"name": "a", "parts": [1, "x", 2]}, Reading("a", parts=(1, 2))),
        ({"name": "a", "holes": [1, "x"]}, Reading("a", holes=(1, None))),
        ({"name": "a", "inner": {"size": 1}}, Reading("a")),
        ({"name": "a", "inner": {"name": "b", "size": "x"}}, Reading("a", inner=Reading("b"))),
        ({"name": 5}, None),
        ({"size": 1}, None),
        ([], None),
        (None, None),
    ],
)
def test_what_does_not_fit_is_an_error_or_not_known(data: object, lenient: Reading | None) -> None:
    with pytest.raises(ValueError, match="not a whole Reading"):
        from_json_data(Reading, data)
    assert from_json_data(Reading, data, is_strict=False) == lenient


def test_what_fits_reads_the_same_either_way() -> None:
    whole = Reading("a", 1, 2.0, NodeState.OK, (1, 2), (1, None), ("x", 1), Reading("b"))
    data = {**json.loads(json.dumps(to_json_data(whole))), "newer": 1, "share": 2}
    assert from_json_data(Reading, data) == from_json_data(Reading, data, is_strict=False) == whole


@pytest.mark.parametrize(("size", "read"), [((1 << 64) - 1, True), (1 << 64, False), (-(1 << 64), False)])
def test_a_node_has_no_number_of_more_than_64_bits(size: int, read: bool) -> None:
    assert from_json_data(Reading, {"name": "a", "size": size}, is_strict=False) == Reading("a", size if read else None)
    assert from_json_data(Reading, {"name": "a", "size": size}) == Reading("a", size)
