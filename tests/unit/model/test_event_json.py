"""Events survive the way to JSON and back; secrets do not even set out."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import get_args

import pytest

from sparkctl.model import events
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
from sparkctl.model.finding import FindingEvidence, Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.launch_plan import LaunchPlan, Mount, PhaseTimeouts, ReadinessRule
from sparkctl.model.log_line import LogLine
from sparkctl.model.memory_fit import EstimatePart, EstimateSource, FitOutcome, MemoryBudget, MemoryFit, MemoryHolder
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import Gpu, Sample
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
from sparkctl.model.verdict import Evidence, FailureCause, FieldChange, Verdict

NODE = NodeName("spark1")
MEMORY = MemoryReading(120, 100, 60, 38, 16, 15)
CANARY = "hf_canarycanarycanarycanary"
PLAN = LaunchPlan(
    node=NODE, instance="i", profile="p", profile_hash="h", engine="sglang", container_name="c", image="x:1",
    entrypoint=None, command=("run", "--api-key", "sesame-open", "--port", "8003"), env=(("HF_TOKEN", CANARY), ("A", "b")),
    mounts=(Mount("/a", "/b", True),), gpus="all", shm_size="16g", ipc=None, network="host", ulimits=(("memlock", "-1"),),
    devices=(), options=(("init", "true"),), labels=(("k", "v"),), port=8003, served_model="m", api_key="sesame-open",
    ready=ReadinessRule("line", "/health"), timeouts=PhaseTimeouts(), drop_caches=True, stop_grace=30.0, expected_memory=5,
    floor_memory=None,
)  # fmt: skip
SAMPLES: list[events.Event] = [
    events.NodeStateChanged(1.0, NODE, NodeState.STARVED, "no banner", 3, 4.5),
    events.MemorySampled(1.0, NODE, MEMORY),
    events.SampleArrived(1.0, NODE, Sample(3, 1.5, 9.0, MEMORY, gpus=(Gpu(0, power=4.5),), gpu_silent_for=14.0)),
    events.CachesDropped(1.0, NODE, MEMORY, MEMORY, None),
    events.ContainersListed(
        1.0,
        NODE,
        (
            InstanceView(
                "i", NODE, "n", "x", ContainerState.RUNNING, "Up", True, None, Phase.LOADING, Step("weights", 3, 12)
            ),
        ),
        False,
        "d",
        "h",
    ),
    events.MeterArrived(
        1.0,
        NODE,
        "id",
        EngineMeter(
            EngineActivity.DECODING,
            10.0,
            MeterSource.COUNTERS,
            12.7,
            steps=7.26,
            ttft=Quantiles(0.1, 0.0123, 4.0),
            acceptance=DraftAcceptance(1.75, 0.2, (0.86, 0.71), MeterSource.COUNTERS),
        ),
        "args: {enable-metrics: true}",
    ),
    events.MemoryFitEvaluated(
        1.0,
        NODE,
        MemoryFit(
            NODE,
            "qwen36",
            FitOutcome.SHORT,
            (EstimatePart("weights", 27, EstimateSource.MEASURED, "7 files", within=True),),
            MemoryBudget(130, 100, 30, (MemoryHolder("other", False, None, 5, is_replaced=True),)),
            1,
            ("other",),
            FieldChange("args.mem-fraction-static", "0.60"),
            None,
            3,
            ("said",),
            110,
        ),
        ("sparkctl up qwen36",),
    ),
    events.EngineFactsReported(
        1.0, NODE, "id", (EngineFact(EngineFactName.QUANTIZATION_PATH, "Marlin fallback", is_fallback=True),)
    ),
    events.PhaseChanged(1.0, NODE, "i", Phase.LOADING, Step("weights", 3, 12, 0.25), 4.0, 400.0, "d"),
    events.LogArrived(1.0, NODE, "i", (LogLine("2026-05-01T10:00:00Z", "text \x1b[31m", 7, "stderr", 3),), True),
    events.GuardActed(1.0, NODE, GuardAction.KILLED, "w", 2.5, "i", "c", 400, 300, 9.5, 0.25),
    events.GuardStatusChanged(1.0, NODE, ("i",)),
    events.WarningEmitted(1.0, None, "m", "h"),
    events.FindingReported(
        1.0, NODE, "disk", Severity.PROBLEM, "m", "r", "i", (FindingEvidence("free", "4.0 GiB", None, "statvfs"),), 3.0
    ),
    events.TransferProgressed(1.0, NODE, NodeName("spark2"), "image", 5, 10, 2.5, 2.0),
    events.MemoryReleased(1.0, NODE, "i", 5, 1, (("process 7", 1), ("/dev/shm/x", None)), 100, 99),
    events.SwitchPlanned(
        1.0,
        None,
        SwitchPlan(
            "p",
            "i",
            (NODE,),
            (
                NodeSwitchPlan(
                    NODE,
                    130,
                    10,
                    (SwitchContainer("old", "c", "id", True, 90, (SwitchConflict.MEMORY,), "0/2", 8000),),
                    "i",
                    None,
                    40,
                ),
            ),
            ("old",),
        ),
    ),
    events.SwitchStepReported(1.0, NODE, SwitchStep.RELEASING, "i", "88 GiB came back", 4.5),
    events.SwitchJournalReported(
        1.0,
        NODE,
        SwitchJournalStatus(
            JournalFound.READ,
            SwitchJournal(
                "0123456789ab",
                "milo@desk",
                7.5,
                SwitchStep.STOPPING,
                "i",
                ("p", "--set", "a=b"),
                "h",
                (NODE,),
                ("old",),
                ((NODE, "0123456789ab"),),
                rolls_back=False,
            ),
            is_held=True,
        ),
    ),
    events.CheckCompleted(1.0, NODE, 2.5),
    events.CommandEnded(
        1.0,
        events.Outcome.FAILED,
        1,
        48.0,
        NODE,
        "i",
        None,
        "m",
        "h",
        Verdict(FailureCause.CUDA_OUT_OF_MEMORY, "s", (Evidence("t", "log", 412),), "r", "args.x"),
        "/log",
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
