"""Everything that lives as long as the panel: the store, who follows the nodes, what is being done.

Loaded after the first picture is painted: this is what knows nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkctl.core.clock import Clock, SystemClock
from sparkctl.core.store import LoadView
from sparkctl.model.ask import Nobody
from sparkctl.model.events import Event
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.present.glance import COMING, Glance, glance, in_order
from sparkctl.present.overview import Scene
from sparkctl.present.spans import Tone
from sparkctl.tui.bridge import Bridge
from sparkctl.tui.crew import Crew, Recording

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel


class Room:
    """One for each panel, made on its loop."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        setup = panel.setup
        self.clock: Clock = setup.clock or SystemClock()
        self.context = setup.make_context(Nobody())
        self._shown: tuple[float, float] | None = None  # a recording's last stamp, and when we had it
        self.bridge = Bridge([node.name for node in setup.nodes], self.now, panel.repaint)
        self.crew = Crew(self.context, self._take)
        self.notices: list[tuple[str, Tone]] = []

    def begin(self, nodes: Sequence[Node]) -> None:
        """Follow the nodes, or play the recording."""
        recording = self._panel.setup.recording
        if recording is not None:
            events, speed = recording()
            self.crew.play(Recording(events, speed))
        else:
            self.crew.follow(nodes)

    def now(self) -> float:
        """Return the moment that is shown: in a recording the last event's, and what has passed since."""
        if self._panel.setup.recording is None:
            return self.clock.now()
        if self._shown is None:
            return self.clock.now()
        stamp, when = self._shown
        return stamp + min(1.0, self.clock.monotonic() - when)

    def views(self, names: Sequence[NodeName]) -> tuple[LoadView, ...]:
        """Return the nodes' views, in the operator's order."""
        return tuple(self.bridge.store.view(name) for name in names if name in self.bridge.store.nodes)

    def instances(self, name: NodeName) -> list[str]:
        """Return the names of what runs on a node, as its tile has them."""
        if name not in self.bridge.store.nodes:
            return []
        return [one.name for one in in_order(self.bridge.store.last(name))]

    def scene(
        self, names: Sequence[NodeName], chosen: int, instances: Mapping[str, str], nodes: Sequence[Node], ascii_only: bool
    ) -> Scene:  # fmt: skip
        """Return what the overview shows."""
        addresses = {node.name: node.host for node in nodes}
        glances = tuple(self._glance(name, addresses.get(name), instances.get(name)) for name in names)
        loading = {one.name for seen in glances for one in seen.view.instances if one.phase in COMING}
        lines = tuple(line for line in self.bridge.lines if not loading or line.instance in loading)
        return Scene(glances, min(chosen, max(0, len(glances) - 1)), lines, tuple(self.notices), ascii_only)

    def _glance(self, name: NodeName, address: str | None, chosen: str | None) -> Glance:
        return glance(
            self.bridge.store, name, self.now(), ends=self.bridge.ends_on(name), address=address, chosen=chosen
        )

    def farewell(self, names: Sequence[NodeName]) -> tuple[str, ...]:
        """Return what goes on running, a sentence for each node that could be asked."""
        said = []
        for view in self.views(names):
            running = [one.name for one in view.instances if one.ours and one.is_alive]
            if view.state is NodeState.OK and running:
                said.append(
                    f"{' and '.join(running)} {'goes' if len(running) == 1 else 'go'} on running on {view.name}"
                )
        return tuple(said)

    async def aclose(self) -> tuple[str, ...]:
        """End everything of ours; return what is left to be said."""
        self.bridge.close()
        await self.crew.aclose()
        return ()

    def _take(self, event: Event) -> None:
        if self._panel.setup.recording is not None:
            self._shown = (event.ts, self.clock.monotonic())
        self.bridge.take(event)
