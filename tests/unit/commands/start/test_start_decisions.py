"""Start, attach, replace or refuse: by the state of the containers that are there, their version, port and disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkctl.commands.start.start_preflight import decide_start, refuse_partially_running
from sparkctl.errors import DiskFull, OperationRefused, PortInUse
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import GIB, MIB
from sparkctl.node.node_inspection import NodeDisk
from tests.unit.commands.start.test_start_preflight import AGAIN, ROOT, make_inspection

Make = Callable[..., Container]
S = ContainerState
SAME, OTHER = "0123456789ab", "fedcba987654"  # hashes of the profile
START, ATTACH, STOP, SWEEP, REFUSE = "start", "attach", "stop", "sweep", "refuse"

# state, version, what `up` does, what `up --replace` does
TABLE = [
    (S.RUNNING, SAME, ATTACH, ATTACH),
    (S.RUNNING, OTHER, REFUSE, STOP),
    (S.PAUSED, SAME, REFUSE, STOP),
    (S.PAUSED, OTHER, REFUSE, STOP),
    (S.RESTARTING, SAME, ATTACH, ATTACH),
    (S.RESTARTING, OTHER, REFUSE, STOP),
    (S.CREATED, SAME, SWEEP, SWEEP),
    (S.CREATED, OTHER, SWEEP, SWEEP),
    (S.EXITED, SAME, SWEEP, SWEEP),
    (S.EXITED, OTHER, SWEEP, SWEEP),
    (S.DEAD, SAME, SWEEP, SWEEP),
    (S.DEAD, OTHER, SWEEP, SWEEP),
    (S.REMOVING, SAME, REFUSE, REFUSE),
    (S.REMOVING, OTHER, REFUSE, REFUSE),
    (S.UNKNOWN, SAME, REFUSE, REFUSE),
    (S.UNKNOWN, OTHER, REFUSE, REFUSE),
]


def test_the_table_has_every_state() -> None:
    assert {(state, version) for state, version, *_ in TABLE} == {(one, each) for one in S for each in (SAME, OTHER)}


def with_labels(container: Make, *, state: S = S.RUNNING, version: str = SAME, **labels: str) -> Container:
    known = {ContainerLabel.INSTANCE: "qwen36", ContainerLabel.HASH: version, ContainerLabel.PORT: "8003", **labels}
    return container(state=state, labels=tuple(known.items()))


def name_decision(plan: LaunchPlan, *containers: Container, replaces: bool) -> str:
    try:
        made = decide_start(plan, make_inspection(*containers), replace=replaces, again=AGAIN)
    except OperationRefused:
        return REFUSE
    return ATTACH if made.attach else STOP if made.stop else SWEEP if made.sweep else START


@pytest.mark.parametrize(("state", "version", "up", "up_replace"), TABLE)
def test_what_becomes_of_a_container_of_this_instance(
    plan: LaunchPlan, container: Make, state: S, version: str, up: str, up_replace: str
) -> None:
    there = with_labels(container, state=state, version=version)
    assert name_decision(plan, there, replaces=False) == up
    assert name_decision(plan, there, replaces=True) == up_replace


def test_an_ended_container_does_not_hide_a_running_one(plan: LaunchPlan, container: Make) -> None:
    dead = replace(with_labels(container, state=S.EXITED), id="cd" * 32)
    assert name_decision(plan, dead, with_labels(container), replaces=False) == ATTACH
    made = decide_start(plan, make_inspection(dead, with_labels(container, version=OTHER)), replace=True, again=AGAIN)
    assert (made.sweep, made.stop) == ((dead,), with_labels(container, version=OTHER))


@pytest.mark.parametrize(
    ("listening", "held_port", "state", "replaces", "holder"),
    [
        (frozenset({8003}), "8003", S.RUNNING, True, None),  # held by the one that goes
        (frozenset({8003}), "9000", S.RUNNING, True, "another process"),
        (frozenset({9000}), "9000", S.RUNNING, True, None),
        (frozenset({8003}), "8003", S.EXITED, False, "another process"),  # an ended container holds no port
        (None, "8003", S.EXITED, False, None),
    ],
)
def test_a_port_is_busy_unless_its_holder_goes(
    plan: LaunchPlan,
    container: Make,
    listening: frozenset[int] | None,
    held_port: str,
    state: S,
    replaces: bool,
    holder: str | None,
) -> None:
    there = with_labels(container, state=state, version=OTHER, **{ContainerLabel.PORT: held_port})
    inspection = make_inspection(there, listening=listening)
    if holder is None:
        decide_start(plan, inspection, replace=replaces, again=AGAIN)
    else:
        with pytest.raises(PortInUse, match=holder):
            decide_start(plan, inspection, replace=replaces, again=AGAIN)


@pytest.mark.parametrize(
    ("free", "what"),
    [
        (64 * MIB - 1, "refused"),
        (64 * MIB, "warned"),
        (5 * GIB - 1, "warned"),
        (5 * GIB, "started"),
        (None, "started"),
    ],
)
def test_a_disk_is_full_scarce_or_enough(plan: LaunchPlan, free: int | None, what: str) -> None:
    inspection = make_inspection(disks=(NodeDisk(ROOT, 900 * GIB, free), NodeDisk("/other", GIB, 0)))
    if what == "refused":
        with pytest.raises(DiskFull):
            decide_start(plan, inspection, replace=False, again=AGAIN)
    else:
        made = decide_start(plan, inspection, replace=False, again=AGAIN)
        assert bool(made.warnings) is (what == "warned")


ONE, TWO = NodeName("spark1"), NodeName("spark2")


@pytest.mark.parametrize(
    ("head", "worker", "words"),
    [
        (None, None, None),
        (("run", "spark1,spark2"), ("run", "spark1,spark2"), None),
        (("run", "spark1,spark2"), None, "half of qwen36 runs: a rank of it is on spark1, but none on spark2"),
        (None, ("run", "spark1,spark2"), "half of qwen36 runs: a rank of it is on spark2, but none on spark1"),
        (("run", "spark1,spark2"), ("older", "spark1,spark2"), "different starts"),
        (("run", "spark1,spark2"), ("run", "spark2,spark1"), "different starts"),
        (("run", "spark2,spark1"), ("run", "spark2,spark1"), "in another order: spark2, spark1"),
    ],
)
def test_the_ranks_that_run_are_a_whole_model_or_in_the_way(
    plan: LaunchPlan,
    container: Make,
    head: tuple[str, str] | None,
    worker: tuple[str, str] | None,
    words: str | None,
) -> None:
    plans = [replace(plan, node=node, ranks=2, rank=rank) for rank, node in enumerate((ONE, TWO))]
    scenes = [
        make_inspection()
        if one is None
        else make_inspection(with_labels(container, **{ContainerLabel.RUN: one[0], ContainerLabel.NODES: one[1]}))
        for one in (head, worker)
    ]
    if words is None:
        refuse_partially_running(plans, scenes)
    else:
        with pytest.raises(OperationRefused, match=words):
            refuse_partially_running(plans, scenes)
