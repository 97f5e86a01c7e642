"""What stands below the tiles stays as long as it is true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.events import ContainersListed, NodeStateChanged, TunnelState, TunnelStateChanged
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.activity import JobEnded, JobStarted, NoticesCleared, NoticeShown
from sparkctl.monitor.store import Store

ONE = NodeName("spark1")
WORDS = "● qwen36 serves on spark1 in place of minimax-m27"
NOW = 1_800_000_000.0
SERVES = InstanceView(
    name="qwen36",
    node=ONE,
    container="sglang-qwen36",
    image="image",
    state=ContainerState.RUNNING,
    status="Up",
    ours=True,
    memory=None,
    phase=Phase.READY,
)


class NoticedNode:
    """A node whose qwen36 serves, as a notice says."""

    def __init__(self) -> None:
        self.store, self.now = Store([ONE]), NOW
        self.store.apply_event(NodeStateChanged(ts=NOW, node=ONE, state=NodeState.OK))
        self.list_instances(SERVES)
        self.show(WORDS, Severity.GOOD)

    def list_instances(self, *instances: InstanceView, known: bool = True) -> None:
        self.store.apply_event(ContainersListed(ts=self.now, node=ONE, instances=instances, known=known))

    def show(self, text: str, severity: Severity) -> None:
        self.store.apply_event(NoticeShown(ts=self.now, text=text, severity=severity))

    def read(self) -> list[str]:
        return [one.text for one in self.store.notices.list_current(self.now)]


def test_a_serving_notice_goes_with_its_instance() -> None:
    for gone in ((), (replace(SERVES, phase=Phase.STOPPING),), (replace(SERVES, phase=Phase.FAILED),)):
        node = NoticedNode()
        assert node.read() == [WORDS]
        node.list_instances(*gone)
        assert node.read() == []
        node.list_instances(SERVES)
        assert node.read() == [], "what was over does not come back"


def test_it_stays_where_that_is_not_known_and_what_rests_on_nothing_stays() -> None:
    node = NoticedNode()
    node.store.apply_event(NodeStateChanged(ts=NOW, node=ONE, state=NodeState.UNREACHABLE))
    node.list_instances()
    assert node.read() == [WORDS]
    node = NoticedNode()
    node.list_instances(known=False)
    assert node.read() == [WORDS]
    node.show("✕ qwen36 failed on spark1", Severity.PROBLEM)
    node.show("● qwen36-ngram stopped", Severity.GOOD)
    node.list_instances()
    assert node.read() == ["✕ qwen36 failed on spark1", "● qwen36-ngram stopped"]
    node.show("a\nb", Severity.GOOD)
    node.show("c", Severity.GOOD)
    assert node.read() == ["● qwen36-ngram stopped", "a b", "c"], "three at most"
    node.store.apply_event(NoticesCleared(NOW))
    assert node.read() == []


@pytest.mark.parametrize("end", ["closed", "failed"])
def test_what_is_said_of_a_tunnel_goes_with_its_state(end: str) -> None:
    node, url = NoticedNode(), "http://127.0.0.1:8000"
    node.store.apply_event(
        JobStarted(ts=NOW, job=1, verb="tunnel", words=("tunnel", "qwen36", "--node", "spark1"), nodes=(ONE,))
    )
    for state, words in (("open", "is open"), ("lost", "is cut")):
        node.store.apply_event(
            TunnelStateChanged(ts=NOW, node=ONE, instance="qwen36", state=TunnelState(state), url=url), 1
        )
        node.show(f"tunnel to qwen36 {words}: {url}", Severity.GOOD)
        assert node.read() == [WORDS, f"tunnel to qwen36 {words}: {url}"]
    node.show(f"tunnel to qwen36-ngram is open: {url}1", Severity.GOOD)
    if end == "closed":
        closed = TunnelStateChanged(ts=NOW, node=ONE, instance="qwen36", state=TunnelState.CLOSED, url=url)
        node.store.apply_event(closed, 1)
    else:
        node.store.apply_event(JobEnded(NOW, 1))
    assert node.read() == [WORDS, f"tunnel to qwen36-ngram is open: {url}1"]


def test_good_news_that_rests_on_nothing_is_news_for_a_minute_and_bad_news_stays() -> None:
    node = NoticedNode()
    node.show("● everything that sparkctl started on spark2 has stopped; spark2: 115.5 GiB available", Severity.GOOD)
    node.show("✕ qwen36 failed on spark1", Severity.PROBLEM)
    node.now += 59.0
    assert len(node.read()) == 3
    node.now += 2.0
    assert node.read() == [WORDS, "✕ qwen36 failed on spark1"]


def test_a_hint_goes_by_itself_and_bad_news_when_its_cause_is_over() -> None:
    node = NoticedNode()
    node.show("a hint about nothing that runs", Severity.NOTE)
    failed = replace(SERVES, name="other", phase=Phase.FAILED, state=ContainerState.EXITED)
    node.list_instances(SERVES, failed)
    node.show("✕ other failed on spark1: out of memory", Severity.PROBLEM)
    node.show("✕ spark1: the disk is slow", Severity.WARNING)
    node.now += 61
    assert node.read() == ["✕ other failed on spark1: out of memory", "✕ spark1: the disk is slow"]
    node.list_instances(SERVES, replace(failed, phase=Phase.LOADING, state=ContainerState.RUNNING))
    assert node.read() == ["✕ spark1: the disk is slow"], "it is being started again"
