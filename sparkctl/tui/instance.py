"""One instance: what it does, what it holds, what it runs with, what it just said; and why, when it failed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.core.actions import INSTANCE, Action, ActionId, Situation
from sparkctl.core.record import masked
from sparkctl.engines.lines import states
from sparkctl.errors import DockerError, NodeError
from sparkctl.model.events import Ended
from sparkctl.model.instance import InstanceView
from sparkctl.model.log import LogLine
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.operations.starting.launched import Launched, launched
from sparkctl.present.instance_parts import evidence_line, field_words, plan_rows, verdict_text
from sparkctl.present.instance_screen import InstanceScene, instance_page
from sparkctl.present.keys import key_words
from sparkctl.present.spans import Row, Tone
from sparkctl.tui.at_hand import edit_its
from sparkctl.tui.log_feed import LogFeed, Reader
from sparkctl.tui.read_on import ReadOn, ReadOnScreen
from sparkctl.tui.room import Room
from sparkctl.tui.screen import PanelScreen, bound
from sparkctl.tui.sheet import Sheet

_TAIL = 60  # lines


def instance_screen(now: Situation) -> PanelScreen:
    """Return the screen for the selected instance."""
    assert now.node is not None
    assert now.instance is not None
    return Instance(now.node, now.instance)


class Instance(ReadOnScreen):
    """Stays with its instance, also when that is gone. Its plan is read back once for each container."""

    PLACE = INSTANCE
    BINDINGS: ClassVar[list[BindingType]] = bound(INSTANCE)

    def __init__(self, node: NodeName, instance: str) -> None:
        super().__init__()
        self._node, self._instance = node, instance
        self._lines: deque[str] = deque(maxlen=_TAIL)
        self._is_old = False
        self._trouble: str | None = None
        self._feed: LogFeed | None = None
        self._read: str | None = None  # the container whose plan was asked for
        self._reading: asyncio.Task[None] | None = None
        self._run: Launched | None = None
        self._run_trouble: str | None = None
        self._judged: str | None = None  # the container of which it was asked why it ended
        self._judging: asyncio.Task[None] | None = None
        self._judge_trouble: str | None = None
        self._further = 0  # rows of it that were read already

    @property
    def crumb(self) -> str:
        """Which instance this is."""
        return f"{self._node} › {self._instance}"

    def selected(self, now: Situation) -> Situation:
        """This instance, whatever is selected on the overview."""
        end = self._end()
        verdict = None if end is None else end.verdict
        return replace(
            now, node=self._node, instance=self._instance, has_verdict=end is not None,
            proof=None if verdict is None else evidence_line(verdict), has_change=bool(verdict and verdict.edit),
        )  # fmt: skip

    def _end(self) -> Ended | None:
        room = self.panel.room
        return None if room is None else room.failure(self._node, self._instance)

    def body(self) -> Widget:
        """Return the one sheet."""
        return ReadOn(self.panel.tones, id="instance")

    def on_screen_resume(self) -> None:
        """Read the end of the log while it is seen."""
        if self._feed is None and (room := self.panel.room) is not None:
            reader = Reader(self._begin, self._take, self._tell, is_to_wait=self.panel.keyboard.is_ahead)
            self._feed = LogFeed(room, self._node, self._instance, reader, tail=_TAIL)

    def on_screen_suspend(self) -> None:
        """Let the log be: behind another screen nobody reads it."""
        self._end_reading()

    def _end_reading(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def on_unmount(self) -> None:
        """End reading."""
        self._end_reading()
        for task in (self._reading, self._judging):
            if task is not None:
                task.cancel()

    def picture(self) -> None:
        """Paint what is known now."""
        sheet, scene = self.query_one("#instance", Sheet), self._scene()
        wide, high = sheet.size
        if not wide or not high:
            wide, high = self.size.width, self.size.height - 2
        if scene is None:
            sheet.show(())
            return
        page = instance_page(scene, wide, high, self._further)
        self._further = page.further
        sheet.show(page.rows)

    def _scene(self) -> InstanceScene | None:
        room = self.panel.room
        if room is None or self._node not in room.bridge.store.nodes:
            return None
        store, seen = room.bridge.store, room.glance(self._node, self._instance)
        one = room.instance(self._node, self._instance)
        if one is not None and one.container_id not in (None, self._read):
            self._read_plan(room, str(one.container_id))
        self._judge(room, one)
        run = self._run or _planned(room, self._node, self._instance)
        end = self._end()
        return InstanceScene(
            seen, self._instance, one, store.course(self._node, self._instance), end, run,
            self._run_trouble or _why_no_plan(room), tuple(self._lines), self._trouble, self.panel.ascii_only,
            self._remedies(end, run), self._judge_trouble, room.warnings(self._node, self._instance), self._accepts(),
        )  # fmt: skip

    def _remedies(self, end: Ended | None, run: Launched | None) -> tuple[tuple[str, str], ...]:
        """Return the keys that may mend a failure, of those that mean something now."""
        now = self.panel.situation()
        field = None if end is None or end.verdict is None else end.verdict.field
        words = {
            ActionId.EDIT_ITS: "edit " + field_words(field, run) if field else "edit its profile",
            ActionId.RESTART: "restart as it was", ActionId.UP: "another profile",
        }  # fmt: skip
        there = {one.id: one for one in self.actions if one.id in words and one.why_not(now) is None}
        return tuple(
            (key_words(there[name].keys[0], self.panel.ascii_only), does)
            for name, does in words.items()
            if name in there
        )

    def _accepts(self) -> str | None:
        """Return the key that does what the verdict proposes, where it can be done."""
        now = self.panel.situation()
        accept = next((one for one in self.actions if one.id is ActionId.ACCEPT and one.why_not(now) is None), None)
        return None if accept is None else key_words(accept.keys[0], self.panel.ascii_only)

    def _judge(self, room: Room, one: InstanceView | None) -> None:
        """Ask once, of a failure that was not watched here, why it ended."""
        if one is None or one.phase is not Phase.FAILED or not one.ours or one.container_id in (None, self._judged):
            return
        node = room.crew.node(self._node)
        if node is None or self._end() is not None or room.bridge.store.view(self._node).state is not NodeState.OK:
            return
        self._judged = one.container_id
        self._judge_trouble = "why it failed is being read from its log ..."
        self._judging = self.panel.spawn(self._hold_inquest(room, node, str(one.container_id)))

    async def _hold_inquest(self, room: Room, node: Node, container: str) -> None:
        from sparkctl.operations.following.inquest import inquest

        try:
            end = await inquest(room.unasked, node, container, self.panel.sparks)
        except (NodeError, DockerError) as error:
            self._judge_trouble = f"why it failed could not be read: {error.message}"
            self._judged = None if isinstance(error, NodeError) else container  # a node may answer later
        else:
            self._judge_trouble = None if end is not None else "its log gives no verdict"
            if end is not None:
                room.bridge.learn(end)
        room.bridge.changed()

    def do_restart(self, one: Action) -> None:
        """Start it once more, when the operator has said yes."""
        assert one.words is not None
        self.panel.orders.ask_and_give(one, one.words(self.panel.situation()))

    def do_accept(self, _: Action) -> None:
        """Show the change that the verdict proposes, and do it when the operator has said how."""
        from sparkctl.tui.accepting import accept

        end, one = self._end(), self.panel.situation().selected
        if end is not None and end.verdict is not None and end.verdict.edit is not None:
            profile = self._instance if one is None or one.profile is None else one.profile
            verdict = end.verdict
            self.panel.opening(accept(self.panel, profile, self._node, end.verdict.edit, verdict.again))

    def do_edit_its(self, _: Action) -> None:
        """Open its profile in the editor, at the field that the verdict names."""
        end = self._end()
        edit_its(self.panel, None if end is None or end.verdict is None else end.verdict.field)

    def do_copy_verdict(self, _: Action) -> None:
        """Copy why it failed, as a message to somebody else; of one that did not, where it answers."""
        one = self.panel.situation().selected
        if (end := self._end()) is not None:
            self.panel.copy(verdict_text(end), "the verdict")
        elif one is not None and one.endpoint is not None:
            self.panel.copy(one.endpoint, one.endpoint)

    def do_plan(self, _: Action) -> None:
        """Show all of what it runs with."""
        from sparkctl.tui.dialogs import Reader as Page

        scene = self._scene()
        if scene is None or scene.run is None:
            self.panel.say((scene and scene.run_trouble) or "what it runs with is still being read")
            return
        rows: list[Row] = [(), *plan_rows(scene.run, min(110, self.size.width - 10)), ()]
        self.panel.push_screen(Page(f"{self._instance} on {self._node} runs with", rows, Tone.ACCENT))

    def read_on(self, by: int) -> None:
        """Read on, or back."""
        self._further = max(0, self._further + by)
        self.repaint()

    # --- what is read beside ---

    def _read_plan(self, room: Room, container: str) -> None:
        node = room.crew.node(self._node)
        if node is None:
            return
        self._read = container
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self.panel.spawn(self._look(room, node, container))

    async def _look(self, room: Room, node: Node, container: str) -> None:
        try:
            self._run, self._run_trouble = await launched(room.unasked, node, container), None
        except (NodeError, DockerError) as error:
            self._run, self._run_trouble = None, f"not known: {error.message}"
            self._read = None if isinstance(error, NodeError) else container  # a node may answer later
        room.remember_ready(self._node, self._instance, self._run)
        room.bridge.changed()

    def _begin(self) -> None:
        self._is_old = True  # what was said before stands until there is something newer
        if self.panel.setup.recording is not None:  # but for a recording that goes back: it was said later
            self._lines.clear()

    def _take(self, lines: Sequence[LogLine]) -> None:
        if self._is_old:
            self._lines.clear()
            self._is_old = False
        for line in lines[-_TAIL:]:
            text = states(line.text)[-1]
            if text.strip():
                self._lines.append(text)
        self._changed()

    def _tell(self, words: str | None) -> None:
        self._trouble = words
        self._changed()

    def _changed(self) -> None:
        if (room := self.panel.room) is not None:
            room.bridge.changed()


def _planned(room: Room, node: NodeName, instance: str) -> Launched | None:
    """Return the plan of a start that is watched here, while there is no container to ask."""
    plan = room.bridge.store.plan(node, instance)
    return None if plan is None else Launched(masked(plan), plan.ready, None)


def _why_no_plan(room: Room) -> str | None:
    return "this recording does not hold it" if room.is_replaying else None
