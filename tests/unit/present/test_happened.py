"""What happened lately is told once, by whoever told it, and what somebody else did is told, too."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.events import ContainersListed, LogArrived, NodeStateChanged, PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.present.happened import appeared, happened_row, happening
from sparkctl.present.spans import Tone, text

NODE = NodeName("spark1")
ONE = InstanceView(
    "qwen36", NODE, "c", "image", ContainerState.RUNNING, "Up 3 hours", ours=True, memory=None, phase=Phase.READY
)  # fmt: skip


def test_a_start_tells_how_long_it_took_and_a_node_why_it_is_away() -> None:
    ready = happening(PhaseChanged(10.0, NODE, "qwen36", Phase.READY, elapsed=239.0))
    assert ready is not None
    assert (ready.text, ready.tone) == ("qwen36: ready after 3:59", Tone.GOOD)
    away = happening(NodeStateChanged(10.0, NODE, NodeState.UNREACHABLE, "no answer"))
    assert away is not None
    assert away.text == "unreachable: no answer"
    assert text(happened_row(away, 8)).endswith("spark1    unreachable: no answer")
    assert happening(LogArrived(10.0, NODE, "qwen36", ())) is None


def test_what_docker_lists_is_news_only_where_it_is_other_than_what_was_told() -> None:
    phases: dict[tuple[NodeName, str], Phase] = {}
    first = appeared(ContainersListed(1.0, NODE, (ONE,)), phases)
    assert [one.text for one in first] == ["qwen36: ready, Up 3 hours"]
    assert appeared(ContainersListed(2.0, NODE, (ONE,)), phases) == []
    failed = appeared(ContainersListed(3.0, NODE, (replace(ONE, phase=Phase.FAILED),)), phases)
    assert [(one.text, one.tone) for one in failed] == [("qwen36: failed", Tone.BAD)]
    assert [one.text for one in appeared(ContainersListed(4.0, NODE), phases)] == ["qwen36: gone from Docker's list"]
    assert appeared(ContainersListed(5.0, NODE), phases) == []
