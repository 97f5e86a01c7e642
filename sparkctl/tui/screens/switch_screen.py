"""The switch screen: what a switch stops, keeps and starts, to be confirmed; then its steps as they happen."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.commands.action_context import reason_node_silent
from sparkctl.commands.actions import SWITCH, Action, ActionContext, ActionId
from sparkctl.commands.stop.stop_impact import is_instance_serving, parse_names_and_nodes
from sparkctl.errors import SparkctlError
from sparkctl.model.events import CommandEnded, Outcome, SwitchPlanned, WarningEmitted
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchPlan
from sparkctl.monitor.ranks import list_nodes_of_instance
from sparkctl.tui.dialogs.base import ChoiceDialog, RefreshingDialog, wrap_paragraph
from sparkctl.tui.key_hints import format_key
from sparkctl.tui.screens.base import ScrollScreen, ScrollSurface, build_bindings
from sparkctl.tui.widgets.text_surface import TextSurface
from sparkctl.views.switch_plan_view import describe_rollback_window, summarize_switch_plan
from sparkctl.views.switch_view import SwitchScreenModel, find_offered_command, render_switch
from sparkctl.views.text.styled_text import TextRow, TextStyle

if TYPE_CHECKING:
    from sparkctl.monitor.switch_progress import SwitchProgress

_DRY_RUN_FLAG = "--dry-run"


def create_switch_screen(now: ActionContext) -> SwitchScreen:
    """Return the screen of the running switch."""
    del now
    return SwitchScreen(())


class SwitchScreen(ScrollScreen):
    """Shows the plan of a command line, or the running switch where ``words`` is empty. The plan is a dry run."""

    SCREEN_ID = SWITCH
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(SWITCH)

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self._words = tuple(word for word in words if word != _DRY_RUN_FLAG)
        self._plan: SwitchPlan | None = None
        self._refusal: tuple[str, str | None] | None = None
        self._cautions: tuple[tuple[str, str | None], ...] = ()
        self._planning: asyncio.Task[None] | None = None
        self._has_begun = False
        self._further = 0

    @property
    def breadcrumb(self) -> str:
        """The profile that is switched to."""
        course = self._get_switch_progress()
        name = course.instance if course is not None else parse_names_and_nodes(self._words[1:])[0][:1]
        return f"switch › {name if isinstance(name, str) else ''.join(name)}"

    def set_command(self, words: tuple[str, ...]) -> None:
        """Plan another switch."""
        self._words = tuple(word for word in words if word != _DRY_RUN_FLAG)
        self._plan, self._further = None, 0
        self._replan_switch()

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the obstacle to the shown switch and the command that can be copied."""
        return replace(now, switch_trouble=self._why_not(now), remedy=self._find_shown_command())

    def _find_shown_command(self) -> str | None:
        """Return the command that the screen offers as a remedy, else this switch's own command."""
        own = f"sparkctl {shlex.join(self._words)}" if self._words else None
        return find_offered_command(self._build_model()) or own

    def _why_not(self, now: ActionContext) -> str | None:
        course = self._get_switch_progress()
        if course is not None:
            return "it has ended: r plans again" if course.is_over else "it is running"
        if self._refusal is not None:
            return self._refusal[0].splitlines()[0]
        if self._plan is None or self._planning is not None:
            return "one moment: the state of the Sparks is still being read"
        if self._plan.obstacles:
            return self._plan.obstacles[0]
        if self._plan.is_there:
            return summarize_switch_plan(self._plan)
        silent = [reason_node_silent(replace(now, node=name)) for name in self._plan.nodes if name in now.names]
        return next((one for one in silent if one is not None), None)

    def already_shows(self, message: str) -> bool:
        """Tell whether the plan shows this warning already."""
        return any(words.endswith(message) for words, _ in self._cautions)

    def create_body(self) -> Widget:
        """Return the text surface."""
        return ScrollSurface(self.panel.tones, id="switch")

    def on_unmount(self) -> None:
        """Cancel a plan that is still being computed."""
        if self._planning is not None:
            self._planning.cancel()

    def paint_body(self) -> None:
        """Paint; the first time that the controller exists, compute the plan."""
        if not self._has_begun and self.panel.controller is not None:
            self._has_begun = True
            if self._words:
                self.panel.controller.hide_finished_switch()
                self._replan_switch()
        surface = self.query_one("#switch", TextSurface)
        wide, high = surface.size
        if not wide or not high:
            wide, high = self.size.width, self.size.height - 2
        page = render_switch(self._build_model(), wide, high)
        self._further = page.further
        surface.set_rows(page.rows)

    def _build_model(self) -> SwitchScreenModel:
        panel, controller = self.panel, self.panel.controller
        profile, nodes = parse_names_and_nodes(self._words[1:])
        views = () if controller is None else controller.store.get_views(panel.node_names)
        trouble, hint = self._refusal or (None, None)
        bars = (
            {}
            if controller is None
            else controller.store.list_memory_bars()
            if self._get_switch_progress() is None
            else controller.store.switches.memory_at_start
        )
        do = next((one for one in self.actions if one.id is ActionId.SWITCH_DO), None)
        return SwitchScreenModel(
            profile="".join(profile[:1]),
            nodes=tuple(map(NodeName, nodes)),
            plan=self._plan,
            is_planning=self._planning is not None,
            trouble=trouble,
            hint=hint,
            bars=bars,
            glances={}
            if controller is None
            else {view.name: self.build_node_tile(controller, view.name, "") for view in views},
            course=self._get_switch_progress(),
            now=panel.displayed_time(),
            further=self._further,
            ascii_only=panel.ascii_only,
            do_key=None if do is None else format_key(do.keys[0], panel.ascii_only),
            cautions=self._cautions,
        )

    def _get_switch_progress(self) -> SwitchProgress | None:
        controller = self.panel.controller
        return None if controller is None else controller.store.switches.visible

    # --- the plan ---

    def _replan_switch(self) -> None:
        """Compute the plan again."""
        if self._planning is not None:
            self._planning.cancel()
        self._refusal, self._cautions = None, ()
        self._planning = self.panel.spawn_task(self._request_plan())
        self.repaint()

    async def _request_plan(self) -> None:
        controller = self.panel.controller
        assert controller is not None
        task = asyncio.current_task()
        try:
            started = controller.parse_command((*self._words, _DRY_RUN_FLAG))
            async with aclosing(started.events()) as events:
                async for event in events:
                    if isinstance(event, SwitchPlanned):
                        self._plan = event.plan
                    elif isinstance(event, WarningEmitted):
                        where = f"{event.node}: " if event.node else ""
                        self._cautions += ((f"{where}{event.message}", event.hint),)
                    elif isinstance(event, CommandEnded) and event.outcome is not Outcome.PLANNED:
                        self._set_refusal(event.message or str(event.outcome), event.hint)
        except SparkctlError as error:
            self._set_refusal(error.message, error.hint)
        finally:
            if self._planning is task:
                self._planning = None
        if self.is_attached:
            self.repaint()

    def _set_refusal(self, message: str, hint: str | None) -> None:
        """Keep why there is no plan; a plan with obstacles shows them itself."""
        if self._plan is None or not self._plan.obstacles:
            self._refusal = (message, hint)

    # --- keys ---

    def do_switch_do(self, _: Action) -> None:
        """Ask for a confirmation that names what stops, and start the switch."""
        if self._plan is not None:
            self.panel.spawn_task(self._confirm_and_switch(self._plan))

    async def _confirm_and_switch(self, plan: SwitchPlan) -> None:
        from sparkctl.tui.dialogs.confirmations import CONFIRM_ANSWER

        controller = self.panel.controller
        assert controller is not None
        if (
            await controller.dialogs.show_dialog(
                build_switch_confirmation(plan, self._words, self.panel.build_action_context())
            )
            != CONFIRM_ANSWER
        ):
            return
        self._further = 0
        try:
            controller.hide_finished_switch()
            controller.start_command(self._words)
        except SparkctlError as error:
            self.panel.show_error(error)

    def do_interrupt(self, _: Action) -> None:
        """Ask for a confirmation and interrupt the switch."""
        controller = self.panel.controller
        if controller is not None and (course := controller.own_switch) is not None:
            self.panel.spawn_task(self._confirm_and_interrupt(course))

    async def _confirm_and_interrupt(self, course: SwitchProgress) -> None:
        from sparkctl.tui.dialogs.confirmations import LEAVE_ANSWER, build_interrupt_dialog

        controller = self.panel.controller
        assert controller is not None
        if await controller.dialogs.show_dialog(build_interrupt_dialog(course)) == LEAVE_ANSWER:
            controller.jobs.interrupt_switch()

    def do_switch_again(self, _: Action) -> None:
        """Plan again, unless a switch is running."""
        controller, course = self.panel.controller, self._get_switch_progress()
        if controller is None or (course is not None and not course.is_over):
            self.panel.show_toast("the switch is running")
            return
        controller.hide_finished_switch()
        if not self._words and course is not None and course.plan is not None:
            plan = course.plan
            self._words = ("switch", plan.profile, *(word for node in plan.nodes for word in ("--node", node)))
        if self._words:
            self._plan = None
            self._replan_switch()

    def do_copy(self, _: Action) -> None:
        """Copy the command of the remedy, else this switch's own command."""
        if (command := self._find_shown_command()) is not None:
            self.panel.copy_text(command, command)

    def do_next(self, _: Action) -> None:
        """Plan it for the next node; a model on several nodes gets another head."""
        self._move_target_node(1)

    def do_previous(self, _: Action) -> None:
        """Plan it for the previous node."""
        self._move_target_node(-1)

    def _move_target_node(self, by: int) -> None:
        if self._get_switch_progress() is not None:
            return
        names, nodes = list(self.panel.node_names), parse_names_and_nodes(self._words[1:])[1]
        nodes = nodes or ([] if self._plan is None else [str(one) for one in self._plan.nodes])
        if not nodes or any(node not in names for node in nodes):
            return
        turned = [names[(names.index(NodeName(node)) + by) % len(names)] for node in nodes]
        self.set_command((*_drop_node_options(self._words), *(word for node in turned for word in ("--node", node))))

    def scroll_rows(self, by: int) -> None:
        """Scroll by so many rows."""
        self._further = max(0, self._further + by)
        self.repaint()


def _drop_node_options(words: tuple[str, ...]) -> tuple[str, ...]:
    others: list[str] = []
    rest = list(words)
    while rest:
        word, *rest = rest
        if word in ("--node", "-n"):
            rest = rest[1:]
        elif word.partition("=")[0] not in ("--node", "-n"):
            others.append(word)
    return tuple(others)


def build_switch_confirmation(plan: SwitchPlan, words: tuple[str, ...], now: ActionContext) -> RefreshingDialog:
    """Return the dialog that names what stops; `CONFIRM_ANSWER` is its yes. A serving model needs its name typed."""
    from sparkctl.tui.dialogs.confirmations import CONFIRM_ANSWER, TypeNameDialog

    body: list[TextRow] = wrap_paragraph(f"{summarize_switch_plan(plan)}.", TextStyle.STRONG)
    going: dict[str, InstanceView] = {}
    for view in now.views:
        for one in view.instances:
            if one.ours and one.is_alive and one.name in plan.stops:
                going.setdefault(one.name, one)
    for name in plan.stops:
        where = " and ".join(list_nodes_of_instance(going[name], now.views)) if name in going else ""
        body += [(), *wrap_paragraph(f"{name} runs on {where}.")] if where else []
    if (way_back := describe_rollback_window(plan)) is not None:
        body += wrap_paragraph(f"{way_back[0].upper()}{way_back[1:]}.")
    serving = {name: is_instance_serving(one, now) for name, one in going.items()}
    for name, is_answering in serving.items():
        if is_answering is not False:
            what = "is answering somebody right now" if is_answering else "may be answering somebody: that is not known"
            body += wrap_paragraph(f"{name} {what}.", TextStyle.ATTENTION)
    body += [(), *wrap_paragraph(f"sparkctl {' '.join(words)}", TextStyle.LABEL)]
    cut_off = [name for name, is_answering in serving.items() if is_answering is not False]
    if cut_off:
        return TypeNameDialog("switch", body, cut_off[0] if len(cut_off) == 1 else "all")
    return ChoiceDialog("switch", body, (("cancel", "Cancel"), (CONFIRM_ANSWER, "switch")), TextStyle.ATTENTION)
