"""What an instance is, only others can say: how far a worker is says its head; what cannot work without it, its users."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.monitor.ranks import apply_dependents, apply_head_state, place_needs

NODES = (NodeName("spark1"), NodeName("spark2"))


def make_rank_view(
    index: int, phase: Phase, run: str = "r1", state: ContainerState = ContainerState.RUNNING
) -> InstanceView:
    return InstanceView(
        name="big",
        node=NODES[index],
        container="vllm-big",
        image="img:1",
        state=state,
        status="Up",
        ours=True,
        memory=None,
        phase=phase,
        rank=f"{index}/2",
        nodes=NODES,
        run=run,
    )


def show_worker(worker: InstanceView, *others: InstanceView) -> InstanceView:
    (shown,) = apply_head_state((worker,), (worker, *others))
    return shown


@pytest.mark.parametrize(
    ("its_own", "heads", "shown"),
    [
        (Phase.LOADING, Phase.LOADING, Phase.LOADING),
        (Phase.STARTING, Phase.WARMING, Phase.STARTING),
        (Phase.LOADING, Phase.READY, Phase.READY),
        (Phase.WARMING, Phase.READY, Phase.READY),
        (Phase.READY, Phase.LOADING, Phase.WARMING),
        (Phase.UNKNOWN, Phase.READY, Phase.READY),
        (Phase.FAILED, Phase.READY, Phase.FAILED),
        (Phase.STOPPING, Phase.READY, Phase.STOPPING),
        (Phase.LOADING, Phase.STOPPING, Phase.STOPPING),  # its own log never says that it was ready
    ],
)
def test_it_is_as_far_as_its_head_but_for_its_own_end(its_own: Phase, heads: Phase, shown: Phase) -> None:
    assert show_worker(make_rank_view(1, its_own), make_rank_view(0, heads)).phase is shown


def test_without_its_head_nothing_is_known_of_it() -> None:
    worker = make_rank_view(1, Phase.LOADING)
    for others in (
        (),
        (make_rank_view(0, Phase.READY, run="another"),),
        (replace(make_rank_view(0, Phase.READY), name="other"),),
    ):
        shown = show_worker(worker, *others)
        assert shown.phase is Phase.UNKNOWN
        assert "its head on spark1" in (shown.detail or "")


def test_heads_and_those_alone_are_left_as_they_are() -> None:
    head, alone = (
        make_rank_view(0, Phase.LOADING),
        replace(make_rank_view(0, Phase.READY), rank=None, nodes=(), run=None),
    )
    ended = make_rank_view(1, Phase.STOPPED, state=ContainerState.EXITED)
    assert apply_head_state((head, alone, ended), ()) == (head, alone, ended)


def make_pair_part(name: str, node: NodeName, *needs: str, **more: ContainerState) -> InstanceView:
    one = replace(make_rank_view(0, Phase.READY), name=name, node=node, needs=needs, rank=None, nodes=(), run=None)
    return replace(one, **more)


def test_what_another_needs_says_so_and_is_below_it() -> None:
    here, there = NODES
    model = make_pair_part("a-model", here)
    other, voice = make_pair_part("b-other", here), make_pair_part("c-voice", here, "a-model@spark1", "far@spark2")
    foreign = replace(make_pair_part("a-model", here), ours=False, container_id="x")
    mine = (model, foreign, other, voice)
    shown = apply_dependents(mine, (*mine, make_pair_part("far", there)))
    assert [(one.name, one.needed_by) for one in place_needs(shown)] == [
        ("a-model", ()),  # the foreign one
        ("b-other", ()),
        ("c-voice", ()),
        ("a-model", ("c-voice",)),
    ]
    (far,) = apply_dependents((make_pair_part("far", there),), mine)
    assert far.needed_by == ("c-voice",)
    assert place_needs([far]) == [far], "its user is on another Spark"


def test_a_user_that_ended_needs_nothing_and_a_circle_loses_nobody() -> None:
    model = make_pair_part("model", NODES[0])
    ended = make_pair_part("voice", NODES[0], "model@spark1", state=ContainerState.EXITED)
    assert apply_dependents((model, ended), (model, ended)) == (model, ended)
    circle = [make_pair_part("a", NODES[0], "b@spark1"), make_pair_part("b", NODES[0], "a@spark1")]
    assert [one.name for one in place_needs(apply_dependents(circle, circle))] == ["a", "b"]
