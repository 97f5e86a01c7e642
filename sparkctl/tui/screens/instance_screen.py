"""The instance screen: state, memory, launch plan and last log lines of an instance; the verdict where it failed."""

from __future__ import annotations

import asyncio
import shlex
from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

from textual.binding import BindingType

from sparkctl.commands.actions import INSTANCE, ActionContext, ActionId
from sparkctl.commands.start.launch_plans import ContainerLaunch, read_container_launch
from sparkctl.engines.line_preparer import split_carriage_returns
from sparkctl.errors import DockerError, NodeError, SparkctlError
from sparkctl.files import user_profiles_dir
from sparkctl.model.events import CommandEnded
from sparkctl.model.instance import InstanceView
from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.tui.dialogs.base import ChoiceDialog, render_sentence
from sparkctl.tui.dialogs.base import TextDialog as Page
from sparkctl.tui.global_actions import edit_selected_profile
from sparkctl.tui.key_hints import format_key
from sparkctl.tui.log_viewer.log_subscription import LogConsumer, LogSubscription
from sparkctl.tui.screens.base import ActionHandlers, build_bindings
from sparkctl.tui.screens.scroll_screens import ScrollScreen
from sparkctl.views.instance_view import (
    InstanceScreenModel,
    find_evidence_line,
    format_profile_field,
    format_verdict_for_copy,
    render_change,
    render_instance_page,
    render_launched_plan,
)
from sparkctl.views.profiles.launch_plan_view import list_start_obstacles, render_budget_before_start
from sparkctl.views.profiles.lint_view import shorten_path
from sparkctl.views.profiles.memory_estimate_view import render_estimate_line
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row

if TYPE_CHECKING:
    from sparkctl.model.memory_fit import MemoryFit
    from sparkctl.model.profile import Profile
    from sparkctl.model.verdict import FieldChange
    from sparkctl.monitor.node_views import NodeTelemetryView
    from sparkctl.tui.controller import PanelController
    from sparkctl.tui.panel import Panel


_ONCE_ANSWER, _KEEP_ANSWER = "once", "keep"
_LABEL_COLUMNS = 6  # columns of the labels


async def ask_to_apply_remedy(panel: Panel, profile: str, node: str, edit: FieldChange, again: str | None) -> None:
    """Show the change that a verdict proposes and its effect on the node, and apply it as chosen; the default is no.

    ``again`` is the command of the failed start with the change.
    """
    library = ProfileLibrary()
    try:
        made = await asyncio.to_thread(library.load_profile, profile, [edit.set_argument])
        is_shipped = library.is_shipped(library.find_profile_file(profile))
    except SparkctlError as error:
        panel.show_error(error)
        return
    fit = None if panel.controller is None else await panel.controller.fits.compute_estimate(made, NodeName(node))
    view = next((one for one in panel.build_action_context().views if one.name == node), None)
    choices = (("cancel", "Cancel"), (_ONCE_ANSWER, "try it once"), (_KEEP_ANSWER, "keep it, and start"))
    words = tuple(shlex.split(again)[1:]) if again else ("up", profile, "--node", node, "--set", edit.set_argument)
    words = tuple(word for word in words if word != "--force")  # whether it fits is judged anew

    def build_body(columns: int) -> list[TextRow]:
        return _render_remedy_preview(columns, made, view, edit, words, fit, is_shipped=is_shipped)

    def apply_answer(answer: str | None) -> None:
        if answer == _ONCE_ANSWER:
            panel.run_command_line(words)
        elif answer == _KEEP_ANSWER:
            panel.spawn_task(_save_remedy_to_profile(panel, profile, edit, _drop_set_option(words, edit.set_argument)))

    panel.push_screen(ChoiceDialog(f"change {profile} and start it again", build_body, choices), apply_answer)


def _render_remedy_preview(
    columns: int,
    made: Profile,
    view: NodeTelemetryView | None,
    edit: FieldChange,
    command: Sequence[str],
    fit: MemoryFit | None,
    *,
    is_shipped: bool,
) -> list[TextRow]:
    """Return the change, the obstacles to a start with it, and the file that would keep it."""
    guess = "The direction is known; the value is a guess." if edit.is_first_try else ""
    rows = [render_change(edit), *([make_row(Span(guess, TextStyle.LABEL))] if guess else []), ()]
    if view is not None:
        wide = min(columns, 100)
        rows += [*render_budget_before_start(made, view, wide, fit)]
        rows += render_estimate_line(fit, wide) if fit is not None else []
        against = [
            one
            for one in list_start_obstacles(made, view, fit)
            if fit is None or not one.startswith(fit.summary_sentence)
        ]
        rows += [line for obstacle in against for line in render_sentence(obstacle, TextStyle.ATTENTION)]
        rows += [()]
    copied = ", your copy of the shipped one" if is_shipped else ""
    kept = f"{user_profiles_dir() / made.name}.yaml" if is_shipped else str(made.origin)
    for name, words in (("once", f"sparkctl {shlex.join(command)}"), ("keep", f"{shorten_path(kept)}{copied}")):
        label = make_row(Span(f"{name:<{_LABEL_COLUMNS}}", TextStyle.LABEL))
        rows += wrap_text(words, columns, TextStyle.VALUE, 2, label)
    return rows


def _drop_set_option(words: Sequence[str], setting: str) -> tuple[str, ...]:
    """Return a command without the ``--set`` that is now saved in the profile."""
    at = next((at for at, word in enumerate(words[1:], 1) if word == setting and words[at - 1] == "--set"), None)
    return tuple(words) if at is None else (*words[: at - 1], *words[at + 1 :])


async def _save_remedy_to_profile(panel: Panel, profile: str, edit: FieldChange, words: Sequence[str]) -> None:
    from sparkctl.profiles.profile_edit import save_setting

    try:
        path, copied = await asyncio.to_thread(save_setting, ProfileLibrary(), profile, edit.set_argument)
    except SparkctlError as error:
        panel.show_error(error)
    except OSError as error:
        panel.show_toast(f"{error.filename or profile}: {error.strerror or error}", severity="error")
    else:
        over = "; your copy now takes precedence over the shipped one" if copied else ""
        panel.show_toast(f"{sanitize_line(edit.field)} is {sanitize_line(edit.value)} in {path}{over}")
        panel.run_command_line(words)


_MAX_TAIL_LINES = 60
_PHASES_WITHOUT_LOG = (Phase.DROPPING_CACHES, Phase.CREATING)


class InstanceScreen(ScrollScreen):
    """Shows one instance, even after it has gone. Its launch plan is read once per container."""

    SCREEN_ID = INSTANCE
    HOLDS_FIGURES = True
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(INSTANCE)

    @classmethod
    def create(cls, now: ActionContext) -> Self:
        assert now.node is not None
        assert now.instance is not None
        return cls(now.node, now.instance)

    def __init__(self, node: NodeName, instance: str) -> None:
        super().__init__()
        self._node, self._instance = node, instance
        self._lines: deque[str] = deque(maxlen=_MAX_TAIL_LINES)
        self._is_old = False
        self._log_container: str | None = None  # whose lines these are
        self._trouble: str | None = None
        self._subscription: LogSubscription | None = None
        self._plan_container: str | None = None  # the container whose plan was read
        self._plan_task: asyncio.Task[None] | None = None
        self._launch: ContainerLaunch | None = None
        self._launch_error: str | None = None
        self._diagnosed_container: str | None = None  # the container whose exit was diagnosed
        self._diagnosis_task: asyncio.Task[None] | None = None
        self._bench: str | None = None
        self._bench_task: asyncio.Task[None] | None = None
        self._diagnosis_status: str | None = None
        self._held: InstanceScreenModel | None = None

    def toggle_freeze(self) -> None:
        """Pause the figures and the log; the page can still be scrolled."""
        super().toggle_freeze()
        self._held = None if self.frozen_at is None else deepcopy(self._build_instance_model())

    @property
    def breadcrumb(self) -> str:
        return f"{self._node} › {self._instance}"

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with this instance, whatever the overview selects."""
        end = self._start_result()
        verdict = None if end is None else end.verdict
        return replace(
            now,
            node=self._node,
            instance=self._instance,
            has_verdict=end is not None,
            proof=None if verdict is None else find_evidence_line(verdict),
            has_change=bool(verdict and verdict.edit),
        )

    def _start_result(self) -> CommandEnded | None:
        controller = self.panel.controller
        return None if controller is None else controller.store.find_start_failure(self._node, self._instance)

    def on_screen_resume(self) -> None:
        """Follow the end of the log while the screen is visible, and look for its last benchmark."""
        self._bench_task = self.panel.spawn_task(self._read_bench())
        if self._subscription is None and (controller := self.panel.controller) is not None:
            reader = LogConsumer(
                begin=self._mark_lines_old,
                take=self._append_log_lines,
                tell=self._set_log_trouble,
            )
            self._subscription = LogSubscription(controller, self._node, self._instance, reader, tail=_MAX_TAIL_LINES)

    async def _read_bench(self) -> None:
        """Read the last benchmark of this instance on its node, in a line."""
        from sparkctl.history.bench_store import BenchStore
        from sparkctl.views.bench_view import format_last_result

        last = await asyncio.to_thread(BenchStore().find_last, self._instance, self._node)
        self._bench = None if last is None else format_last_result(last)
        if self._bench is not None and (controller := self.panel.controller) is not None:
            controller.schedule_repaint()

    def on_screen_suspend(self) -> None:
        """Stop following the log while another screen covers this one."""
        self._close_subscription()

    def _close_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def on_unmount(self) -> None:
        """End all background reads."""
        self._close_subscription()
        for task in (self._plan_task, self._diagnosis_task, self._bench_task):
            if task is not None:
                task.cancel()

    def paint_body(self) -> None:
        model = self._build_instance_model() if self._held is None else self._held
        if model is None:
            self.page_surface.set_rows(())
        else:
            self.show_page(render_instance_page(model, *self.page_size, self._scroll_offset))

    def _build_instance_model(self) -> InstanceScreenModel | None:
        controller = self.panel.controller
        if controller is None or self._node not in controller.store.nodes:
            return None
        store, seen = controller.store, self.build_node_tile(controller, self._node, self._instance)
        one = controller.store.find_instance(self._node, self._instance)
        if one is not None and one.container_id not in (None, self._plan_container):
            self._read_plan(controller, str(one.container_id))
        self._diagnose_exit(controller, one)
        run = self._launch or _find_pending_plan(controller, self._node, self._instance)
        end = self._start_result()
        timeline = store.get_record(self._node).timelines.get(self._instance)
        # the log of the container before this one, whose failure is not that of this start
        is_log_of_earlier = (timeline is not None and timeline.phase in _PHASES_WITHOUT_LOG) or (
            one is not None
            and None not in (one.container_id, self._log_container)
            and one.container_id != self._log_container
        )
        return InstanceScreenModel(
            seen=seen,
            name=self._instance,
            one=one,
            timeline=timeline,
            end=end,
            run=run,
            run_trouble=self._launch_error
            or ("this recording does not contain it" if controller.is_replaying else None),
            tail=() if is_log_of_earlier else tuple(self._lines),
            tail_trouble=None if is_log_of_earlier else self._trouble,
            remedies=self._list_remedy_keys(end, run),
            end_trouble=self._diagnosis_status,
            warnings=controller.store.jobs.list_start_warnings(self._node, self._instance),
            accepts=self._find_accept_key(),
            bench=self._bench,
        )

    def _list_remedy_keys(self, end: CommandEnded | None, run: ContainerLaunch | None) -> tuple[tuple[str, str], ...]:
        """Return the keys that may fix a failure, of those that are possible now."""
        now = self.panel.build_action_context()
        field = None if end is None or end.verdict is None else end.verdict.field
        words = {
            ActionId.EDIT_ITS: "edit " + format_profile_field(field, run) if field else "edit its profile",
            ActionId.RESTART: "restart as it was",
            ActionId.UP: "another profile",
        }
        there = {one.id: one for one in self.actions if one.id in words and one.why_not(now) is None}
        return tuple((format_key(there[name].keys[0]), does) for name, does in words.items() if name in there)

    def _find_accept_key(self) -> str | None:
        """Return the key that applies the change the verdict proposes; None where that is not possible."""
        now = self.panel.build_action_context()
        accept = next((one for one in self.actions if one.id is ActionId.ACCEPT and one.why_not(now) is None), None)
        return None if accept is None else format_key(accept.keys[0])

    def _diagnose_exit(self, controller: PanelController, one: InstanceView | None) -> None:
        """Diagnose, once, a failure that this panel did not watch."""
        if (
            one is None
            or one.phase is not Phase.FAILED
            or not one.ours
            or one.container_id in (None, self._diagnosed_container)
        ):
            return
        node = controller.supervisor.get_node(self._node)
        if (
            node is None
            or self._start_result() is not None
            or controller.store.get_view(self._node).state is not NodeState.OK
        ):
            return
        self._diagnosed_container = one.container_id
        self._diagnosis_status = "reading from its log why it failed ..."
        self._diagnosis_task = self.panel.spawn_task(
            self._start_exit_diagnosis(controller, node, str(one.container_id))
        )

    async def _start_exit_diagnosis(self, controller: PanelController, node: Node, container: str) -> None:
        from sparkctl.commands.diagnose_log import diagnose_exit

        try:
            end = await diagnose_exit(controller.non_interactive_context, node, container, self.panel.config_nodes)
        except (NodeError, DockerError) as error:
            self._diagnosis_status = f"cannot read why it failed: {error.message}"
            self._diagnosed_container = None if isinstance(error, NodeError) else container  # a node may answer later
        else:
            self._diagnosis_status = None if end is not None else "its log gives no verdict"
            if end is not None:
                controller.record_diagnosis(self._node, end)
        controller.schedule_repaint()

    def action_handlers(self) -> ActionHandlers:
        return {
            **super().action_handlers(),
            ActionId.ACCEPT: self._propose_change,
            ActionId.EDIT_ITS: self._edit_profile,
            ActionId.COPY_VERDICT: self._copy_verdict,
            ActionId.PLAN: self._show_launch_plan,
        }

    def _propose_change(self) -> None:
        """Show the change that the verdict proposes, and apply it as chosen."""
        end, one = self._start_result(), self.panel.build_action_context().selected_instance
        if end is not None and end.verdict is not None and end.verdict.edit is not None:
            profile = self._instance if one is None or one.profile is None else one.profile
            verdict = end.verdict
            self.panel.spawn_dialog_task(
                ask_to_apply_remedy(self.panel, profile, self._node, end.verdict.edit, verdict.again)
            )

    def _edit_profile(self) -> None:
        """Open its profile in the editor at the field that the verdict names."""
        end = self._start_result()
        edit_selected_profile(self.panel, None if end is None or end.verdict is None else end.verdict.field)

    def _copy_verdict(self) -> None:
        """Copy the verdict as a message for others; without a failure copy the endpoint."""
        one = self.panel.build_action_context().selected_instance
        if (end := self._start_result()) is not None:
            self.panel.copy_text(format_verdict_for_copy(end), "the verdict")
        elif one is not None and one.endpoint is not None:
            self.panel.copy_text(one.endpoint, one.endpoint)

    def _show_launch_plan(self) -> None:
        model = self._build_instance_model()
        if model is None or model.run is None:
            self.panel.show_toast((model and model.run_trouble) or "the launch plan is still being read")
            return
        run = model.run
        self.panel.push_screen(
            Page(
                f"{self._instance} on {self._node} runs with",
                lambda columns: [(), *render_launched_plan(run, min(110, columns)), ()],
            )
        )

    # --- reads in the background ---

    def _read_plan(self, controller: PanelController, container: str) -> None:
        node = controller.supervisor.get_node(self._node)
        if node is None:
            return
        self._plan_container = container
        if self._plan_task is not None:
            self._plan_task.cancel()
        self._plan_task = self.panel.spawn_task(self._load_launch_plan(controller, node, container))

    async def _load_launch_plan(self, controller: PanelController, node: Node, container: str) -> None:
        try:
            self._launch, self._launch_error = (
                await read_container_launch(controller.non_interactive_context, node, container),
                None,
            )
        except (NodeError, DockerError) as error:
            self._launch, self._launch_error = None, f"not known: {error.message}"
            self._plan_container = None if isinstance(error, NodeError) else container  # a node may answer later
        controller.remember_ready_line(self._node, self._instance, self._launch)
        controller.schedule_repaint()

    def _mark_lines_old(self) -> None:
        self._is_old = True  # older lines stay until newer ones arrive
        controller = self.panel.controller
        one = None if controller is None else controller.store.find_instance(self._node, self._instance)
        container = None if one is None else one.container_id
        # lines of another container; in a recording that seeks back: the lines are from later
        if container != self._log_container or self.panel.setup.recording is not None:
            self._lines.clear()
        self._log_container = container

    def _append_log_lines(self, lines: Sequence[LogLine]) -> None:
        if self._is_old:
            self._lines.clear()
            self._is_old = False
        for line in lines[-_MAX_TAIL_LINES:]:
            text = split_carriage_returns(line.text)[-1]
            if text.strip():
                self._lines.append(text)
        self._request_repaint()

    def _set_log_trouble(self, words: str | None) -> None:
        self._trouble = words
        self._request_repaint()

    def _request_repaint(self) -> None:
        if (controller := self.panel.controller) is not None:
            controller.schedule_repaint()


def _find_pending_plan(controller: PanelController, node: NodeName, instance: str) -> ContainerLaunch | None:
    """Return the plan of a start that this panel watches, while there is no container yet."""
    plan = controller.store.get_record(node).plans.get(instance)
    return None if plan is None else ContainerLaunch(redact_launch_plan(plan), plan.ready)
