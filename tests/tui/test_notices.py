"""What stands below the tiles stays as long as it is true."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.tui.toasts import NoticeBoard
from sparkctl.views.text.styled_text import TextStyle

ONE = NodeName("spark1")
WORDS = "● qwen36 serves on spark1 in place of minimax-m27"
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
WELL = NodeTelemetryView(name=ONE, state=NodeState.OK, when=1.0, instances=(SERVES,))


class KnownViews:
    """A node, as it is said to be."""

    def __init__(self) -> None:
        self.view: NodeTelemetryView | None = WELL
        self.at = 1_800_000_000.0
        self.notices = NoticeBoard(lambda name: self.view if name == ONE else None, lambda: self.at)
        self.notices.add_notice(WORDS, TextStyle.GOOD, [WELL])

    def says(self) -> list[str]:
        return [words for words, _ in self.notices.current_notices]


def test_a_serving_notice_goes_with_its_instance() -> None:
    for gone in ((), (replace(SERVES, phase=Phase.STOPPING),), (replace(SERVES, phase=Phase.FAILED),)):
        known = KnownViews()
        assert known.says() == [WORDS]
        known.view = replace(WELL, instances=gone)
        assert known.says() == []
        known.view = WELL
        assert known.says() == [], "what was over does not come back"


def test_it_stays_where_that_is_not_known_and_what_rests_on_nothing_stays() -> None:
    known = KnownViews()
    known.view = NodeTelemetryView(name=ONE, state=NodeState.UNREACHABLE, when=2.0)
    assert known.says() == [WORDS]
    known.view = replace(WELL, docker_known=False, instances=())
    assert known.says() == [WORDS]
    known.view = None
    assert known.says() == [WORDS]
    known.notices.add_notice("✕ qwen36 failed on spark1", TextStyle.BAD, [WELL])
    known.notices.add_notice("● qwen36-ngram stopped", TextStyle.GOOD, [WELL])
    known.view = replace(WELL, instances=())
    assert known.says() == ["✕ qwen36 failed on spark1", "● qwen36-ngram stopped"]
    known.notices.add_notice("a\nb", TextStyle.GOOD)
    known.notices.add_notice("c", TextStyle.GOOD)
    assert known.says() == ["● qwen36-ngram stopped", "a b", "c"], "three at most"


def test_good_news_that_rests_on_nothing_is_news_for_a_minute_and_bad_news_stays() -> None:
    known = KnownViews()
    known.notices.add_notice(
        "● everything that sparkctl started on spark2 has stopped; spark2: 115.5 GiB available", TextStyle.GOOD
    )
    known.notices.add_notice("✕ qwen36 failed on spark1", TextStyle.BAD)
    known.at += 59.0
    assert len(known.says()) == 3
    known.at += 2.0
    assert known.says() == [WORDS, "✕ qwen36 failed on spark1"]
