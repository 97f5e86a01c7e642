"""What a stop chooses, in which order it takes its locks, and what it leaves for the next contact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sparkctl.commands.stop.pending_stops import PendingStop, was_started_since
from sparkctl.commands.stop.stop_instance import (
    OpenStart,
    choose_instances,
    choose_last_known_starts,
    drop_busy_instances,
    list_nodes_in_lock_order,
    list_stops_to_save,
)
from sparkctl.errors import NodeUnreachable, OperationRefused, SparkctlError
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName

ONE, TWO, THREE = (NodeName(f"spark{number}") for number in (1, 2, 3))
NOW = 1_800_000_000.0


def make_container(
    name: str, *, rank: str | None = None, nodes: Sequence[NodeName] = (ONE, TWO), managed: bool = True
) -> Container:
    """Return a container; its id begins with its name and rank."""
    labels = {ContainerLabel.INSTANCE: name} if managed else {}
    if rank is not None:
        labels |= {ContainerLabel.RANK: rank, ContainerLabel.RUN: f"run-{name}", ContainerLabel.NODES: ",".join(nodes)}
    return Container(
        id=f"{name}{(rank or '')[:1]}".ljust(64, "0"),
        name=name,
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        created=NOW,
        labels=tuple(labels.items()),
    )


HEAD, WORKER = make_container("big", rank="0/2"), make_container("big", rank="1/2")
SMALL, FOREIGN = make_container("small"), make_container("small", managed=False)


@pytest.mark.parametrize(
    ("containers", "instance", "requested", "failed", "chosen"),
    [
        ({}, None, [ONE], [], []),
        ({ONE: [SMALL]}, None, [ONE], [], [("small", [ONE])]),
        ({ONE: [SMALL]}, "small", [ONE], [], [("small", [ONE])]),
        ({ONE: [SMALL]}, "other", [ONE], [], []),
        ({ONE: [FOREIGN]}, None, [ONE], [], []),
        ({ONE: [FOREIGN]}, "small", [ONE], [], []),
        ({ONE: [SMALL], TWO: [make_container("tts")]}, None, [ONE], [], [("small", [ONE])]),
        ({ONE: [SMALL], TWO: [SMALL]}, "small", [ONE, TWO], [], [("small", [ONE]), ("small", [TWO])]),
        # one rank on a requested node takes the whole model
        ({ONE: [HEAD], TWO: [WORKER]}, None, [TWO], [], [("big", [ONE, TWO])]),
        ({ONE: [HEAD], TWO: [WORKER]}, None, [THREE], [], []),
        # a silent requested node counts by the labels of the other ranks; a node that was only asked besides does not
        ({ONE: [HEAD]}, "big", [TWO], [TWO], [("big", [ONE])]),
        ({ONE: [HEAD]}, "big", [TWO], [], []),
        ({ONE: [HEAD]}, "big", [THREE], [TWO], []),
        ({ONE: [HEAD]}, "big", [THREE], [THREE], []),
    ],
)
def test_whole_instances_with_a_rank_on_a_requested_node_are_chosen(
    containers: Mapping[NodeName, Sequence[Container]],
    instance: str | None,
    requested: Sequence[NodeName],
    failed: Sequence[NodeName],
    chosen: list[tuple[str, list[NodeName]]],
) -> None:
    found = choose_instances(containers, instance, requested, failed)
    assert [(one.name, list(one.nodes)) for one in found] == chosen


@pytest.mark.parametrize(
    ("containers", "order"),
    [
        ({}, []),
        ({TWO: [SMALL], ONE: [SMALL]}, [ONE, TWO]),
        ({TWO: [HEAD], ONE: [WORKER]}, [ONE, TWO]),
        ({THREE: [SMALL], TWO: [HEAD, make_container("tts")], ONE: [WORKER]}, [ONE, TWO, THREE]),
    ],
)
def test_locks_are_taken_once_each_in_the_order_of_the_names(
    containers: Mapping[NodeName, Sequence[Container]], order: list[NodeName]
) -> None:
    """The head's node is not first: two commands with different heads would wait for each other."""
    assert list_nodes_in_lock_order(choose_instances(containers, None, [ONE, TWO, THREE], [])) == order


BUSY, AWAY = OperationRefused("ada is starting it"), NodeUnreachable(TWO, "spark2 does not answer")


@pytest.mark.parametrize(
    ("failures", "left"),
    [
        ({}, ["big", "small"]),
        ({TWO: BUSY}, ["small"]),
        ({ONE: BUSY}, []),
        ({TWO: AWAY}, ["big", "small"]),
        ({THREE: BUSY}, ["big", "small"]),
    ],
)
def test_of_a_model_with_a_locked_rank_no_rank_is_stopped(
    failures: Mapping[NodeName, SparkctlError], left: list[str]
) -> None:
    chosen = choose_instances({ONE: [HEAD, SMALL], TWO: [WORKER]}, None, [ONE], [])
    assert [one.name for one in drop_busy_instances(chosen, failures)] == left


def make_stop(instance: str, *containers: str, run: str | None = None) -> PendingStop:
    return PendingStop(node=TWO, instance=instance, since=NOW, containers=containers, run=run)


@pytest.mark.parametrize(
    ("containers", "done", "last_known", "saved"),
    [
        ({}, [], [], []),
        # seen there, then lost: by its id, and by the start that its ranks share
        ({TWO: [SMALL]}, [], [], [make_stop("small", SMALL.id)]),
        ({TWO: [SMALL]}, [SMALL.id], [], []),
        ({ONE: [HEAD], TWO: [WORKER]}, [HEAD.id], [], [make_stop("big", WORKER.id, run="run-big")]),
        # never seen: its head names the node
        ({ONE: [HEAD]}, [HEAD.id], [], [make_stop("big", run="run-big")]),
        ({ONE: [make_container("big", rank="0/2", nodes=(ONE, THREE))]}, [], [], []),
        ({ONE: [SMALL]}, [], [], []),
        # nobody was seen: what was started from here last; what is known already is not named twice
        ({}, [], [OpenStart("old", ((ONE, "x" * 12), (TWO, "y" * 12)))], [make_stop("old", "y" * 12)]),
        ({}, [], [OpenStart("old", ((ONE, "x" * 12),))], []),
        ({ONE: [HEAD]}, [], [OpenStart("big", ((TWO, "y" * 12),))], [make_stop("big", run="run-big")]),
    ],
)
def test_what_could_not_be_stopped_is_saved_for_the_next_contact(
    containers: Mapping[NodeName, Sequence[Container]],
    done: Sequence[str],
    last_known: Sequence[OpenStart],
    saved: list[PendingStop],
) -> None:
    chosen = choose_instances(containers, None, [ONE, TWO], [TWO])
    assert list_stops_to_save(TWO, NOW, chosen, done, last_known) == saved


NEW, OLD = OpenStart("big", ((ONE, "new1"), (TWO, "new2"))), OpenStart("big", ((ONE, "old1"), (TWO, "old2")))
TTS = OpenStart("tts", ((TWO, "tts2"),))


@pytest.mark.parametrize(
    ("started", "silent", "running", "chosen"),
    [
        ([], [TWO], [], []),
        ([NEW], [], [], []),
        ([NEW], [THREE], [], []),
        ([NEW], [TWO], [], [NEW]),
        ([NEW], [ONE, TWO], [], [NEW]),
        ([NEW, OLD], [TWO], [], [NEW]),
        ([TTS, NEW], [TWO], [], [NEW, TTS]),
        ([NEW, TTS], [TWO], ["new1"], [TTS]),  # it is seen running, so the labels of that rank decide
        ([NEW], [TWO], ["old1"], [NEW]),
    ],
)
def test_of_a_node_that_was_never_seen_the_latest_whole_start_counts(
    started: list[OpenStart], silent: list[NodeName], running: list[str], chosen: list[OpenStart]
) -> None:
    assert choose_last_known_starts(started, silent, running) == chosen


@pytest.mark.parametrize(
    ("started", "ahead", "was"),
    [
        (None, 0.0, None),
        (NOW - 1, 0.0, False),
        (NOW, 0.0, False),
        (NOW + 1, 0.0, True),
        (NOW + 1, None, None),  # the node's clock is not known: nor is this
        (NOW + 30, 60.0, False),  # by our clock it was started before
        (NOW - 30, -60.0, True),
    ],
)
def test_a_container_that_was_started_again_since_the_request_keeps_running(
    started: float | None, ahead: float | None, was: bool | None
) -> None:
    assert was_started_since(started, ahead, NOW) is was
