"""A worker answers nobody: how far it is, only its head can say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.monitor.ranks import apply_head_state

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
