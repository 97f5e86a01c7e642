"""A switch: what it would stop, keep and start, for the operator to say yes to; then its steps as they happen."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.core.actions import SWITCH, Action, ActionId, Situation
from sparkctl.core.parts import stands_on
from sparkctl.core.serving import is_model_answering, meant
from sparkctl.core.situation import node_silent
from sparkctl.errors import SparkctlError
from sparkctl.model.events import Ended, Outcome, SwitchPlanned, Warned
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.switch import SwitchPlan
from sparkctl.present.keys import key_words
from sparkctl.present.spans import Row, Tone
from sparkctl.present.switch_screen import SwitchScene, command_of, switch_rows
from sparkctl.present.switch_words import kept, summary
from sparkctl.tui.dialogs import Asking, Choice, paragraph
from sparkctl.tui.read_on import ReadOn, ReadOnScreen
from sparkctl.tui.screen import bound
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.core.switch_course import SwitchCourse

_DRY = "--dry-run"


def make(now: Situation) -> Switch:
    """Return the screen of the switch that goes on."""
    del now
    return Switch(())


class Switch(ReadOnScreen):
    """Of a command line, or of the switch that goes on where there is none. The plan is the verb's own dry run."""

    PLACE = SWITCH
    BINDINGS: ClassVar[list[BindingType]] = bound(SWITCH)

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self._words = tuple(word for word in words if word != _DRY)
        self._plan: SwitchPlan | None = None
        self._refusal: tuple[str, str | None] | None = None
        self._cautions: tuple[tuple[str, str | None], ...] = ()
        self._planning: asyncio.Task[None] | None = None
        self._has_begun = False
        self._further = 0

    @property
    def crumb(self) -> str:
        """What is switched to."""
        course = self._course()
        name = course.instance if course is not None else meant(self._words[1:])[0][:1]
        return f"switch › {name if isinstance(name, str) else ''.join(name)}"

    def retarget(self, words: tuple[str, ...]) -> None:
        """Plan another one."""
        self._words = tuple(word for word in words if word != _DRY)
        self._plan, self._further = None, 0
        self._look()

    def selected(self, now: Situation) -> Situation:
        """The situation with what stands against the switch that is shown, and the command that can be copied."""
        return replace(now, switch_trouble=self._why_not(now), remedy=self._command())

    def _command(self) -> str | None:
        """Return the command that is offered as a way out, else this switch's own."""
        own = f"sparkctl {shlex.join(self._words)}" if self._words else None
        return command_of(self._scene()) or own

    def _why_not(self, now: Situation) -> str | None:
        course = self._course()
        if course is not None:
            return "it is over: r plans anew" if course.is_over else "it goes on"
        if self._refusal is not None:
            return self._refusal[0].splitlines()[0]
        if self._plan is None or self._planning is not None:
            return "one moment: the Sparks are still being looked at"
        if self._plan.obstacles:
            return self._plan.obstacles[0]
        if self._plan.is_there:
            return summary(self._plan)
        silent = [node_silent(replace(now, node=name)) for name in self._plan.nodes if name in now.names]
        return next((one for one in silent if one is not None), None)

    def tells(self, message: str) -> bool:
        """Tell whether the plan has said it: what it warned of was read before it was agreed to."""
        return any(words.endswith(message) for words, _ in self._cautions)

    def body(self) -> Widget:
        """Return the one sheet."""
        return ReadOn(self.panel.tones, id="switch")

    def on_unmount(self) -> None:
        """Let a plan be that nobody waits for any more."""
        if self._planning is not None:
            self._planning.cancel()

    def picture(self) -> None:
        """Paint; the first time there is somebody to ask, ask."""
        if not self._has_begun and self.panel.room is not None:
            self._has_begun = True
            if self._words:
                self.panel.room.switches.set_aside()
                self._look()
        sheet = self.query_one("#switch", Sheet)
        wide, high = sheet.size
        if not wide or not high:
            wide, high = self.size.width, self.size.height - 2
        page = switch_rows(self._scene(), wide, high)
        self._further = page.further
        sheet.show(page.rows)

    def _scene(self) -> SwitchScene:
        panel, room = self.panel, self.panel.room
        profile, nodes = meant(self._words[1:])
        views = () if room is None else room.views(panel.names)
        trouble, hint = self._refusal or (None, None)
        bars = {} if room is None else room.bars if self._course() is None else room.switches.before
        do = next((one for one in self.actions if one.id is ActionId.SWITCH_DO), None)
        return SwitchScene(
            "".join(profile[:1]), tuple(map(NodeName, nodes)), self._plan, self._planning is not None, trouble, hint,
            bars,
            {} if room is None else {view.name: room.glance(view.name, "") for view in views},
            self._course(), panel.now(), self._further, panel.ascii_only,
            None if do is None else key_words(do.keys[0], panel.ascii_only), self._cautions,
        )  # fmt: skip

    def _course(self) -> SwitchCourse | None:
        room = self.panel.room
        return None if room is None else room.switches.shown

    # --- the plan ---

    def _look(self) -> None:
        """Ask what it would be, anew."""
        if self._planning is not None:
            self._planning.cancel()
        self._refusal, self._cautions = None, ()
        self._planning = self.panel.spawn(self._ask())
        self.repaint()

    async def _ask(self) -> None:
        room = self.panel.room
        assert room is not None
        task = asyncio.current_task()
        try:
            started = room.understood((*self._words, _DRY))
            async with aclosing(started.events()) as told:
                async for event in told:
                    if isinstance(event, SwitchPlanned):
                        self._plan = event.plan
                    elif isinstance(event, Warned):
                        where = f"{event.node}: " if event.node else ""
                        self._cautions += ((f"{where}{event.message}", event.hint),)
                    elif isinstance(event, Ended) and event.outcome is not Outcome.PLANNED:
                        self._refuse(event.message or str(event.outcome), event.hint)
        except SparkctlError as error:
            self._refuse(error.message, error.hint)
        finally:
            if self._planning is task:
                self._planning = None
        if self.is_attached:
            self.repaint()

    def _refuse(self, message: str, hint: str | None) -> None:
        """Keep why there is no plan; of one that has obstacles they are said already."""
        if self._plan is None or not self._plan.obstacles:
            self._refusal = (message, hint)

    # --- keys ---

    def do_switch_do(self, _: Action) -> None:
        """Ask, naming what stops, and do it."""
        if self._plan is not None:
            self.panel.spawn(self._ask_and_do(self._plan))

    async def _ask_and_do(self, plan: SwitchPlan) -> None:
        from sparkctl.tui.confirming import DO

        room = self.panel.room
        assert room is not None
        if await room.dialogs.ask(question(plan, self._words, self.panel.situation())) != DO:
            return
        self._further = 0
        try:
            room.switches.set_aside()
            room.run(self._words)
        except SparkctlError as error:
            self.panel.refuse(error)

    def do_interrupt(self, _: Action) -> None:
        """Ask, and leave the switch where it is."""
        room = self.panel.room
        if room is not None and (course := room.own_switch) is not None:
            self.panel.spawn(self._ask_and_interrupt(course))

    async def _ask_and_interrupt(self, course: SwitchCourse) -> None:
        from sparkctl.tui.interrupting import LEAVE, interruption

        room = self.panel.room
        assert room is not None
        if await room.dialogs.ask(interruption(course)) == LEAVE:
            room.jobs.interrupt_switch()

    def do_switch_again(self, _: Action) -> None:
        """Plan anew; of a switch that goes on there is nothing to plan."""
        room, course = self.panel.room, self._course()
        if room is None or (course is not None and not course.is_over):
            self.panel.say("it goes on")
            return
        room.switches.set_aside()
        if not self._words and course is not None and course.plan is not None:
            plan = course.plan
            self._words = ("switch", plan.profile, *(word for node in plan.nodes for word in ("--node", node)))
        if self._words:
            self._plan = None
            self._look()

    def do_copy(self, _: Action) -> None:
        """Copy the command that is offered as a way out, else this switch's own."""
        if (command := self._command()) is not None:
            self.panel.copy(command, command)

    def do_next(self, _: Action) -> None:
        """Plan it for the next Spark; of a model on several, with another head."""
        self._turn(1)

    def do_previous(self, _: Action) -> None:
        """Plan it for the Spark before."""
        self._turn(-1)

    def _turn(self, by: int) -> None:
        if self._course() is not None:
            return
        names, nodes = list(self.panel.names), meant(self._words[1:])[1]
        nodes = nodes or ([] if self._plan is None else [str(one) for one in self._plan.nodes])
        if not nodes or any(node not in names for node in nodes):
            return
        turned = [names[(names.index(NodeName(node)) + by) % len(names)] for node in nodes]
        self.retarget((*_without_nodes(self._words), *(word for node in turned for word in ("--node", node))))

    def read_on(self, by: int) -> None:
        """Read on, or back."""
        self._further = max(0, self._further + by)
        self.repaint()


def _without_nodes(words: tuple[str, ...]) -> tuple[str, ...]:
    others: list[str] = []
    rest = list(words)
    while rest:
        word, *rest = rest
        if word in ("--node", "-n"):
            rest = rest[1:]
        elif word.partition("=")[0] not in ("--node", "-n"):
            others.append(word)
    return tuple(others)


def question(plan: SwitchPlan, words: tuple[str, ...], now: Situation) -> Asking:
    """Return the dialog that names what stops; who answers somebody wants its name typed. It gives `DO` for a yes."""
    from sparkctl.tui.confirming import DO, TypedName

    body: list[Row] = paragraph(f"{summary(plan)}.", Tone.STRONG)
    going: dict[str, InstanceView] = {}
    for view in now.views:
        for one in view.instances:
            if one.ours and one.is_alive and one.name in plan.stops:
                going.setdefault(one.name, one)
    for name in plan.stops:
        where = " and ".join(stands_on(going[name], now.views)) if name in going else ""
        body += [(), *paragraph(f"{name} runs on {where}.")] if where else []
    if (way_back := kept(plan)) is not None:
        body += paragraph(f"{way_back[0].upper()}{way_back[1:]}.")
    told = {name: is_model_answering(one, now) for name, one in going.items()}
    for name, is_answering in told.items():
        if is_answering is not False:
            what = "is answering somebody right now" if is_answering else "may be answering somebody: that is not known"
            body += paragraph(f"{name} {what}.", Tone.ATTENTION)
    body += [(), *paragraph(f"sparkctl {' '.join(words)}", Tone.LABEL)]
    cut_off = [name for name, is_answering in told.items() if is_answering is not False]
    if cut_off:
        return TypedName("switch", body, cut_off[0] if len(cut_off) == 1 else "all")
    return Choice("switch", body, (("cancel", "Cancel"), (DO, "switch")), Tone.ATTENTION)
