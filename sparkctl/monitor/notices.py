"""What was said below the tiles: kept until there is more to say, and no longer than it is true."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.text.styled_text import TextStyle

_MAX_NOTICES = 3
_GOOD_NEWS_SECONDS = 60.0  # seconds in which good news that rests on nothing is news
_GONE_PHASES = (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)

InstanceKey = tuple[NodeName, str]
"""An instance, and on which Spark."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What was said ``when`` (unix seconds), and on what it ``rests``."""

    words: str
    tone: TextStyle
    rests: frozenset[InstanceKey]
    when: float


class NoticeBoard:
    """The last few. ``view`` gives what is known of a node now, None where nothing is; ``now`` the moment, unix seconds."""

    def __init__(self, view: Callable[[NodeName], NodeTelemetryView | None], now: Callable[[], float]) -> None:
        self._view, self._now = view, now
        self._kept: list[Notice] = []

    def add_notice(self, words: str, tone: TextStyle, views: Sequence[NodeTelemetryView] = ()) -> None:
        """Keep one. Of a good one what it names and what is ready in these views is what it rests on."""
        said = sanitize_line(words.replace("\n", " "))
        rests = frozenset(
            (view.name, one.name)
            for view in views if tone is TextStyle.GOOD
            for one in view.instances
            if one.ours and one.phase is Phase.READY and re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", said)
        )  # fmt: skip
        self._kept[:] = [*self._kept[1 - _MAX_NOTICES :], Notice(said, tone, rests, self._now())]

    @property
    def current_notices(self) -> tuple[tuple[str, TextStyle], ...]:
        """What still holds, the latest last."""
        self._kept[:] = [
            one for one in self._kept if not any(map(self._is_outdated, one.rests)) and not self._is_old(one)
        ]
        return tuple((one.words, one.tone) for one in self._kept)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def _is_old(self, one: Notice) -> bool:
        """Tell whether it is good news of a moment that is past: what was done goes on to be true, what it left does not."""
        return one.tone is TextStyle.GOOD and not one.rests and self._now() - one.when > _GOOD_NEWS_SECONDS

    def _is_outdated(self, serving: InstanceKey) -> bool:
        node, name = serving
        view = self._view(node)
        if view is None or view.state is not NodeState.OK or not view.docker_known:
            return False  # not known
        return all(one.phase in _GONE_PHASES for one in view.instances if one.name == name)
