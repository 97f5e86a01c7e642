"""The switch screen: what a switch stops, keeps and starts, to be confirmed; then its steps as they happen."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import aclosing
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from sparkctl.commands.action_context import reason_node_silent
from sparkctl.commands.actions import SWITCH, ActionContext, ActionId
from sparkctl.commands.stop.stop_impact import is_instance_serving
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.errors import SparkctlError
from sparkctl.model.events import CommandEnded, Outcome, SwitchPlanned, WarningEmitted
from sparkctl.model.instance import InstanceView
from sparkctl.model.switch_plan import SwitchPlan
from sparkctl.monitor.event_log import RecentLogLine
from sparkctl.monitor.ranks import list_nodes_of_instance
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.tui.dialogs.base import ChoiceDialog, RefreshingDialog, render_sentence
from sparkctl.tui.key_hints import format_key
from sparkctl.tui.screens.base import ActionHandlers, build_bindings
from sparkctl.tui.screens.scroll_screens import ScrollScreen
from sparkctl.views.switch_plan_view import describe_rollback_window, summarize_switch_plan
from sparkctl.views.switch_view import SwitchScreenModel, find_offered_command, render_switch
from sparkctl.views.text.styled_text import TextRow, TextStyle

_NOTICE_SECONDS = 60.0  # for which a notice is shown


class SwitchScreen(ScrollScreen):
    """Shows the plan of a switch, or the running switch where no other is asked for. The plan is a dry run."""

    SCREEN_ID = SWITCH
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(SWITCH)

    def __init__(self, request: SwitchInstance | None = None) -> None:
        super().__init__()
        self._request = None if request is None else replace(request, dry_run=False)
        self._plan: SwitchPlan | None = None
        self._refusal: tuple[str, str | None] | None = None
        self._cautions: tuple[tuple[str, str | None], ...] = ()
        self._planning: asyncio.Task[None] | None = None
        self._has_begun = False

    @property
    def breadcrumb(self) -> str:
        progress = self._get_switch_progress()
        return f"switch › {self._profile_name if progress is None else progress.instance}"

    @property
    def _profile_name(self) -> str:
        return "" if self._request is None else self._request.format_as_command()[1]

    def set_request(self, request: SwitchInstance) -> None:
        """Plan another switch."""
        self._request = replace(request, dry_run=False)
        self._plan, self._scroll_offset = None, 0
        self._replan_switch()

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the obstacle to the shown switch and the command that can be copied."""
        return replace(now, switch_trouble=self._why_not(now), remedy=self._find_shown_command())

    def _find_shown_command(self) -> str | None:
        """Return the command that the screen offers as a remedy, else this switch's own command."""
        own = None if self._request is None else shlex.join(("sparkctl", *self._request.format_as_command()))
        return find_offered_command(self._build_switch_model()) or own

    def _why_not(self, now: ActionContext) -> str | None:
        progress = self._get_switch_progress()
        if progress is not None:
            return "it has ended: r plans again" if progress.is_over else "it is running"
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

    @property
    def shows_notices(self) -> bool:
        """Whether notices are rows here: until the switch has ended."""
        progress = self._get_switch_progress()
        return progress is None or not progress.is_over

    def already_shows(self, message: str) -> bool:
        return any(words.endswith(message) for words, _ in self._cautions)

    def on_unmount(self) -> None:
        """Cancel a plan that is still being computed."""
        if self._planning is not None:
            self._planning.cancel()

    def paint_body(self) -> None:
        """Paint; the first time that the controller exists, compute the plan."""
        if not self._has_begun and self.panel.controller is not None:
            self._has_begun = True
            if self._request is not None:
                self.panel.controller.hide_finished_switch()
                self._replan_switch()
        self.show_page(render_switch(self._build_switch_model(), *self.page_size))

    def _build_switch_model(self) -> SwitchScreenModel:
        panel, controller = self.panel, self.panel.controller
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
            profile=self._profile_name,
            nodes=() if self._request is None else self._request.named_nodes,
            plan=self._plan,
            is_planning=self._planning is not None,
            trouble=trouble,
            hint=hint,
            bars=bars,
            glances={}
            if controller is None
            else {view.name: self.build_node_tile(controller, view.name, "") for view in views},
            progress=self._get_switch_progress(),
            now=panel.displayed_time(),
            further=self._scroll_offset,
            do_key=None if do is None else format_key(do.keys[0]),
            cautions=self._cautions,
            log=self._list_log_lines(),
            notices=self._list_recent_notices(),
        )

    def _list_recent_notices(self) -> tuple[tuple[str, TextStyle], ...]:
        """Return the notices of the last minute that are not a warning of the plan; nothing once the switch has ended."""
        if not self.shows_notices:
            return ()
        recent = self.list_styled_notices(self.panel.displayed_time() - _NOTICE_SECONDS)
        return tuple(one for one in recent if not any(words in one[0] for words, _ in self._cautions))

    def _list_log_lines(self) -> tuple[RecentLogLine, ...]:
        """Return the last log lines of what the switch starts: the new one, and what it needs."""
        progress, controller = self._get_switch_progress(), self.panel.controller
        if progress is None or controller is None:
            return ()
        new = (progress.instance, *progress.needs)
        return tuple(one for one in controller.store.log_lines.lines if one.instance in new)

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
        assert self._request is not None
        task = asyncio.current_task()
        try:
            started = controller.prepare_command(replace(self._request, dry_run=True))
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

    def action_handlers(self) -> ActionHandlers:
        """Return the handlers that scroll and its own; another node: a model on several nodes gets another head."""
        return {
            **super().action_handlers(),
            ActionId.SWITCH_DO: self._confirm_switch,
            ActionId.INTERRUPT: self._interrupt_switch,
            ActionId.SWITCH_AGAIN: self._plan_again,
            ActionId.COPY: self._copy_command,
            ActionId.NEXT: lambda: self._move_target_node(1),
            ActionId.PREVIOUS: lambda: self._move_target_node(-1),
        }

    def _confirm_switch(self) -> None:
        """Ask for a confirmation that names what stops, and start the switch."""
        if self._plan is not None and self._request is not None:
            self.panel.spawn_task(self._confirm_and_switch(self._plan, self._request))

    async def _confirm_and_switch(self, plan: SwitchPlan, request: SwitchInstance) -> None:
        from sparkctl.tui.dialogs.prompts import CONFIRM_ANSWER

        controller = self.panel.controller
        assert controller is not None
        if (
            await controller.dialogs.show_dialog(
                build_switch_confirmation(plan, request, self.panel.build_action_context())
            )
            != CONFIRM_ANSWER
        ):
            return
        self._scroll_offset = 0
        controller.hide_finished_switch()
        controller.start_command(request)

    def _interrupt_switch(self) -> None:
        """Ask for a confirmation and interrupt the switch."""
        controller = self.panel.controller
        if controller is not None and (progress := controller.own_switch) is not None:
            self.panel.spawn_task(self._confirm_and_interrupt(progress))

    async def _confirm_and_interrupt(self, progress: SwitchProgress) -> None:
        from sparkctl.tui.dialogs.prompts import LEAVE_ANSWER, build_interrupt_dialog

        controller = self.panel.controller
        assert controller is not None
        if await controller.dialogs.show_dialog(build_interrupt_dialog(progress)) == LEAVE_ANSWER:
            controller.jobs.interrupt_switch()

    def _plan_again(self) -> None:
        """Plan again, unless a switch is running."""
        controller, progress = self.panel.controller, self._get_switch_progress()
        if controller is None or (progress is not None and not progress.is_over):
            self.panel.show_toast("the switch is running")
            return
        controller.hide_finished_switch()
        if self._request is None and progress is not None and progress.plan is not None:
            try:
                profile = ProfileLibrary().load_profile(progress.plan.profile)
                self._request = self.panel.dispatcher.build_switch(profile, progress.plan.profile, progress.plan.nodes)
            except SparkctlError as error:
                self.panel.show_error(error)
                return
        if self._request is not None:
            self._plan = None
            self._replan_switch()

    def _copy_command(self) -> None:
        """Copy the command of the remedy, else this switch's own command."""
        if (command := self._find_shown_command()) is not None:
            self.panel.copy_text(command, command)

    def _move_target_node(self, by: int) -> None:
        if self._get_switch_progress() is not None or self._request is None:
            return
        names, nodes = list(self.panel.node_names), [node.name for node in self._request.nodes]
        if any(node not in names for node in nodes):
            return
        turned = [names[(names.index(node) + by) % len(names)] for node in nodes]
        found = self.panel.build_action_context().find_nodes(*turned)
        self.set_request(replace(self._request, nodes=found, names_nodes=True))


def build_switch_confirmation(plan: SwitchPlan, request: SwitchInstance, now: ActionContext) -> RefreshingDialog:
    """Return the dialog that names what stops; `CONFIRM_ANSWER` is its yes. A serving model needs its name typed."""
    from sparkctl.tui.dialogs.prompts import CONFIRM_ANSWER, TypeNameDialog

    body: list[TextRow] = render_sentence(f"{summarize_switch_plan(plan)}.", TextStyle.STRONG)
    going: dict[str, InstanceView] = {}
    for view in now.views:
        for one in view.instances:
            if one.ours and one.is_alive and one.name in plan.stops:
                going.setdefault(one.name, one)
    body.append(())
    for name in plan.stops:
        where = " and ".join(list_nodes_of_instance(going[name], now.views)) if name in going else ""
        body += render_sentence(f"{name} runs on {where}.") if where else []
    if (way_back := describe_rollback_window(plan)) is not None:
        body += render_sentence(f"{way_back[0].upper()}{way_back[1:]}.")
    serving = {name: is_instance_serving(one, now) for name, one in going.items()}
    for name, is_answering in serving.items():
        if is_answering is not False:
            what = "is answering somebody right now" if is_answering else "may be answering somebody: that is not known"
            body += render_sentence(f"{name} {what}.", TextStyle.ATTENTION)
    body += [(), *render_sentence(f"sparkctl {' '.join(request.format_as_command())}", TextStyle.LABEL)]
    cut_off = [name for name, is_answering in serving.items() if is_answering is not False]
    if cut_off:
        return TypeNameDialog("switch", body, cut_off[0] if len(cut_off) == 1 else "all")
    return ChoiceDialog("switch", body, (("cancel", "Cancel"), (CONFIRM_ANSWER, "switch")), TextStyle.ATTENTION)
