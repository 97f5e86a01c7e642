"""The panel's controller: the store, the supervisor that follows the nodes, the running jobs and their trackers.

Imported after the first paint, since it imports everything that talks to nodes.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.screen import ModalScreen

from sparkctl.clock import Clock, SystemClock
from sparkctl.commands.actions import OVERVIEW, ActionId
from sparkctl.commands.doctor_checks import CheckNodes
from sparkctl.commands.request import Request
from sparkctl.commands.start.launch_plans import build_preview_plan
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.concurrency import cancel_and_wait
from sparkctl.context import InterruptSignal
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.model.events import (
    CheckCompleted,
    CommandEnded,
    Event,
    GuardActed,
    LaunchPlanned,
    Outcome,
    WarningEmitted,
)
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.monitor.node_supervisor import NodeSupervisor
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.recording.recording_player import RecordingPlayer
from sparkctl.monitor.switch_journal_io import format_step_number
from sparkctl.profiles.profile_library import ProfileOffer, list_startable_profiles
from sparkctl.tui.dialogs.prompts import DialogPrompter
from sparkctl.tui.estimate_cache import HomeDirectoryCache, MemoryEstimateCache
from sparkctl.tui.job_reports import report_job_end
from sparkctl.tui.job_runner import Job, JobRunner
from sparkctl.tui.key_hints import format_key
from sparkctl.tui.operation_trackers import DoctorRuns, SwitchJournalTracker, SwitchTracker, TransferTracker
from sparkctl.tui.panel_options import DemoStep, PreparedCommand
from sparkctl.tui.repaint_scheduler import RepaintScheduler
from sparkctl.tui.toasts import NoticeBoard
from sparkctl.views.command_result_view import describe_guard_action, describe_unfinished_switch, describe_warning
from sparkctl.views.finding_view import NodeProblems
from sparkctl.views.overview.overview_view import OverviewScreenModel
from sparkctl.views.overview.tile_model import TRANSITION_PHASES, NodeTileModel, build_tile_model, sort_by_urgency
from sparkctl.views.switch_view import format_transfer_short, render_switch_progress_line, render_transfer
from sparkctl.views.text.styled_text import TextRow, TextStyle

if TYPE_CHECKING:
    from sparkctl.commands.start.launch_plans import ContainerLaunch
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.launch_plan import LaunchPlan
    from sparkctl.model.profile import Profile
    from sparkctl.model.sample import MemoryBar
    from sparkctl.monitor.switch_progress import SwitchProgress
    from sparkctl.tui.panel_interface import Panel


_DEMO_POLL_SECONDS = 1.0  # seconds between two checks whether a command has ended
_DEMO_IDLE_SECONDS = 5.0  # seconds without a key before the demo goes on


async def run_demo_steps(controller: PanelController, story: Sequence[DemoStep]) -> None:
    """Play a demo step by step; wait for running commands, open dialogs and keys. A command of the operator ends it."""
    for one in story:
        await controller.clock.sleep(one.after)
        while controller.is_operator_active(_DEMO_IDLE_SECONDS) and not controller.is_taken_over:
            await controller.clock.sleep(_DEMO_POLL_SECONDS)
        if controller.is_taken_over:
            controller.show_notice(
                "the demo is yours from here on: it starts nothing by itself any more", TextStyle.ACCENT
            )
            return
        if one.says:
            controller.show_notice(one.says, TextStyle.ACCENT)
        if one.words:
            controller.start_command(controller.parse_command(one.words), by_hand=False)
            while controller.jobs.running_jobs:
                await controller.clock.sleep(_DEMO_POLL_SECONDS)


_ACTIVITY_BY_VERB = {"drop-caches": "dropping the page cache ...", "doctor": "being examined ..."}
_MAX_RECENT_PROFILES = 3
_CLOSE_SECONDS = 2.0  # seconds


class PanelController:
    """Knows the nodes and runs the commands of one panel. Create it on the panel's event loop."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        setup = panel.setup
        self.clock: Clock = setup.clock or SystemClock()
        self.dialogs = DialogPrompter(panel)
        self.context = setup.make_context(self.dialogs)
        self._shown: tuple[float, float] | None = None  # time of a recording's last event, and the clock then
        self.bridge = RepaintScheduler(
            [node.name for node in setup.nodes], self.displayed_time, self._schedule_panel_repaint
        )
        self.supervisor = NodeSupervisor(self.context, self.handle_event)
        self.non_interactive_context = replace(
            self.context, asker=NonInteractivePrompter(), lend=self.supervisor.create_background_session
        )  # background work never asks the operator
        self.jobs = JobRunner(self.handle_event, lambda *over: panel.call_later(self._handle_job_end, *over))
        self.notices = NoticeBoard(self._find_node_view, self.displayed_time)
        self.recent = self.context.history.get_recent_profiles(_MAX_RECENT_PROFILES)
        self.examinations = DoctorRuns()
        self.switches = SwitchTracker()
        self.moves = TransferTracker()
        self.journals = SwitchJournalTracker(lambda: self.bridge.store)
        self.fits = MemoryEstimateCache(self)
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._homes = HomeDirectoryCache(self, panel.spawn_task)
        self.recorded: Sequence[Event] = ()
        self.player: RecordingPlayer | None = None  # of a recording
        self.turn = asyncio.Event()  # set and replaced when the recording starts again
        self.is_taken_over = False  # the operator has started a command
        self._warned: dict[tuple[NodeName, str], tuple[WarningEmitted, ...]] = {}  # of the last start that has ended
        self._ready_lines: dict[tuple[NodeName, str], str | None] = {}

    @property
    def is_replaying(self) -> bool:
        """Whether the panel plays a recording and has no live nodes."""
        return self._panel.setup.recording is not None

    def start_monitoring(self, nodes: Sequence[Node]) -> None:
        """Start to follow the nodes, or to play the recording."""
        recording = self._panel.setup.recording
        if recording is not None:
            self.recorded, speed = recording()
            self.player = RecordingPlayer(self.clock, self.recorded, speed, self.handle_event, self.reset_state)
            self.supervisor.play_recording(self.player)
        else:
            self.supervisor.follow_nodes(nodes)
        if story := self._panel.setup.story:
            self._panel.spawn_task(run_demo_steps(self, story))

    def displayed_time(self) -> float:
        """Return the displayed time in unix seconds; in a recording the last event's plus at most a second."""
        if self._panel.setup.recording is None or self._shown is None:
            return self.clock.unix_time()
        stamp, when = self._shown
        if self.player is not None and self.player.is_paused:
            return stamp
        return stamp + min(1.0, self.clock.monotonic() - when)

    def is_operator_active(self, seconds: float) -> bool:
        """Tell whether a dialog is open, or a key was pressed within so many seconds."""
        return isinstance(self._panel.screen, ModalScreen) or not self._panel.keyboard.is_idle_for(seconds)

    def list_node_views(self, names: Sequence[NodeName]) -> tuple[NodeTelemetryView, ...]:
        """Return the nodes' views, in the operator's order."""
        return tuple(self.bridge.store.get_view(name) for name in names if name in self.bridge.store.nodes)

    @property
    def memory_bars(self) -> dict[NodeName, MemoryBar]:
        """The last memory sample of each node that has one."""
        views = self.list_node_views(self._panel.node_names)
        return {view.name: view.memory for view in views if view.memory is not None}

    def _find_node_view(self, name: NodeName) -> NodeTelemetryView | None:
        return self.bridge.store.get_view(name) if name in self.bridge.store.nodes else None

    def list_instance_names(self, name: NodeName) -> list[str]:
        """Return the names of the instances on a node, in the order of its tile."""
        if name not in self.bridge.store.nodes:
            return []
        return [one.name for one in sort_by_urgency(self.bridge.store.get_last_known_view(name))]

    def find_instance(self, name: NodeName, instance: str) -> InstanceView | None:
        """Return an instance as last known; None where it is not there."""
        if name not in self.bridge.store.nodes:
            return None
        return next(
            (one for one in self.bridge.store.get_last_known_view(name).instances if one.name == instance), None
        )

    def find_start_failure(self, name: NodeName, instance: str) -> CommandEnded | None:
        """Return how the last start that this panel watched failed; None where it did not, or was started again since."""
        one = self.find_instance(name, instance)
        end = self.bridge.start_results.get((name, instance))
        return end if end is not None and (one is None or one.phase is Phase.FAILED) else None

    def list_start_warnings(self, name: NodeName, instance: str) -> tuple[WarningEmitted, ...]:
        """Return the warnings of the last start from this panel, running or ended."""
        for job in self.jobs.running_jobs:
            if job.started.verb == "up" and job.instance == instance and name in job.started.nodes:
                return tuple(job.warnings)
        return self._warned.get((name, instance), ())

    def remember_ready_line(self, name: NodeName, instance: str, run: ContainerLaunch | None) -> None:
        """Keep the pattern of the log line that marks an instance as ready."""
        if run is not None and run.ready is not None:
            self._ready_lines[name, instance] = run.ready.line

    def find_ready_line(self, name: NodeName, instance: str) -> str | None:
        """Return the pattern of the log line that marks an instance as ready; None where it is not known."""
        plan = self.bridge.store.get_launch_plan(name, instance) if name in self.bridge.store.nodes else None
        return plan.ready.line if plan is not None else self._ready_lines.get((name, instance))

    def build_overview_model(
        self, names: Sequence[NodeName], chosen: int, instances: Mapping[NodeName, str], nodes: Sequence[Node], ascii_only: bool
    ) -> OverviewScreenModel:  # fmt: skip
        """Return the content of the overview."""
        addresses = {node.name: node.host for node in nodes}
        glances = tuple(self._build_node_tile(name, addresses.get(name), instances.get(name)) for name in names)
        loading = {one.name for seen in glances for one in seen.view.instances if one.phase in TRANSITION_PHASES}
        lines = tuple(line for line in self.bridge.lines if not loading or line.instance in loading)
        return OverviewScreenModel(
            glances=glances, chosen=min(chosen, max(0, len(glances) - 1)), lines=lines, notices=self.notices.current_notices, ascii_only=ascii_only,
            happened=tuple(self.bridge.event_log), switching=self._render_progress_lines(ascii_only),
        )  # fmt: skip

    def _render_progress_lines(self, ascii_only: bool) -> tuple[TextRow, ...]:
        """Return a row for the running or abandoned switch, and one for each transfer."""
        course = self.switches.running_switch
        switch = (
            []
            if course is None
            else [
                render_switch_progress_line(
                    course, self.displayed_time(), self._format_action_key(ActionId.SWITCH), ascii_only
                )
            ]
        )
        words = ((ActionId.RESUME, "goes on with it"), (ActionId.ABORT, "undoes it"))
        keys = [
            (key, word)
            for action, word in words
            if (key := self._format_action_key(action)) is not None and not self.is_replaying
        ]
        switch += (
            []
            if course is not None
            else self.journals.render_journal_rows(keys, ascii_only, self._panel.size.width - 2)
        )
        return (*switch, *(render_transfer(one, ascii_only) for one in self.moves.running_transfers))

    @property
    def own_switch(self) -> SwitchProgress | None:
        """The switch that this panel runs, from its first step on."""
        return None if self.jobs.switch_job is None else self.switches.get_own_switch(self.bridge.store)

    @property
    def abandoned_switch_state(self) -> bool | None:
        """True where a switch was abandoned on the nodes, False where one runs, None where none is known."""
        return False if self.switches.running_switch is not None else self.journals.has_abandoned_switch

    def _format_action_key(self, action: ActionId) -> str | None:
        """Return the key of an action; None where this panel does not have it."""
        keys = (one.keys[0] for one in self._panel.actions if one.id is action and one.keys)
        return next((format_key(key, self._panel.ascii_only) for key in keys), None)

    def build_instance_tile(self, name: NodeName, instance: str) -> NodeTileModel:
        """Return the tile model of a node for one of its instances. Raises KeyError."""
        node = self.supervisor.get_node(name)
        return self._build_node_tile(name, None if node is None else node.host, instance)

    def _build_node_tile(self, name: NodeName, address: str | None, chosen: str | None) -> NodeTileModel:
        return build_tile_model(
            self.bridge.store, name, self.displayed_time(), ends=self.bridge.start_results_on_node(name), address=address, chosen=chosen,
            jobs=self._describe_activities(name), recent=self.recent, start_key=self._start_key(),
        )  # fmt: skip

    @property
    def progress_summary(self) -> str:
        """The running switch or transfer in a few words, for screens other than the overview."""
        course, going = self.switches.running_switch, self.moves.running_transfers
        words = [] if course is None or course.current_step is None else [f"switch: {course.current_step}"]
        return ", ".join([*words, *(format_transfer_short(one) for one in going[:1])])

    def _start_key(self) -> str | None:
        """Return the key that starts a profile; None in a recording."""
        if self.is_replaying:
            return None
        return self._format_action_key(ActionId.UP)

    def collect_node_problems(
        self, name: NodeName | None, view: NodeTelemetryView | None, fault: SparkctlError | None
    ) -> NodeProblems:
        """Return the problems of a node and of the config."""
        now = view.sample.time if view is not None and view.sample is not None else self.displayed_time()
        word = re.compile(rf"(?<![\w-]){re.escape(name or '')}(?![\w-])")
        about = [one for one in self.notices.current_notices if name is not None and word.search(one[0])]
        return NodeProblems(
            view=view,
            now=now,
            ends={} if name is None else self.bridge.start_results_on_node(name),
            happened=tuple(self.bridge.event_log),
            notices=about,
            fault=None if fault is None else fault.message,
            hint=None if fault is None else fault.hint,
        )

    def _describe_activities(self, name: NodeName) -> tuple[str, ...]:
        """Return the running commands on a node, in words."""
        verbs = [job.started.verb for job in self.jobs.running_jobs if name in job.started.nodes]
        verbs = [verb for verb in verbs if verb in _ACTIVITY_BY_VERB and verb != "doctor"]
        verbs += ["doctor"] if name in self.examinations.running_nodes else []
        return tuple(_ACTIVITY_BY_VERB[verb] for verb in verbs)

    async def aclose(self) -> tuple[str, ...]:
        """End jobs, tasks and connections; return sentences about what was left unfinished."""
        own, job = self.own_switch, self.jobs.switch_job
        lines = await self.jobs.aclose()
        if own is not None and own.current_step is not None and job is not None and job.ended is None:
            lines += describe_unfinished_switch(own, format_step_number(own.current_step))
        self.bridge.close()
        await cancel_and_wait(self._background_tasks, _CLOSE_SECONDS)  # they use the supervisor's connections
        await self.supervisor.aclose()
        return lines

    def run_background_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task that ends with the controller at the latest; the caller handles its exceptions."""
        task = asyncio.create_task(work, name=name)
        self._background_tasks.add(task)  # a strong reference until it has ended
        task.add_done_callback(self._background_tasks.discard)
        return task

    # --- what the operator starts ---

    def start_command(self, request: Request, *, by_hand: bool = True) -> None:
        """Start a command."""
        self.is_taken_over = self.is_taken_over or by_hand
        started = self.prepare_command(request)
        if started.verb == "doctor" and not any(word.startswith("--collect") for word in started.words):
            started = self._record_doctor_run(started)
            self._panel.open_screen("doctor")
        if started.verb in ("resume", "abort"):
            self.switches.hide_finished()
            self._panel.open_screen("switch")
        if isinstance(request, StopInstance):
            self.jobs.detach_starts(request, started.nodes)
        self.jobs.start_job(started)
        if len(started.nodes) == 1 and started.nodes[0] in self._panel.node_names:
            self._panel.select_node(self._panel.node_names.index(NodeName(started.nodes[0])))
        self.bridge.schedule_repaint()

    def parse_command(self, words: Sequence[str]) -> Request:
        """Return what a command line asks for. Raises `SparkctlError` where it is not valid, or shows a screen."""
        commands = self._panel.setup.commands
        request = None if commands is None else commands.parse_request(words)
        if not isinstance(request, Request):
            raise InvalidInput("this panel has no commands")
        return request

    def prepare_command(self, request: Request) -> PreparedCommand:
        """Return the command with a context of its own."""
        context = replace(self.context, interrupt=InterruptSignal(), lend=self.supervisor.create_command_session)
        nodes = self._panel.config_nodes
        only_node = str(nodes[0].name) if len(nodes) == 1 else None
        return PreparedCommand(
            request=request, context=context, events=partial(request.run, context), only_node=only_node
        )

    async def load_profile_offers(self) -> list[ProfileOffer]:
        """Return the profiles that can be started; the files are read in a thread."""
        return await asyncio.to_thread(list_startable_profiles, self.recent)

    def run_doctor(self, nodes: Sequence[Node]) -> None:
        """Run `doctor` on these nodes, except where it already runs."""
        wanted = [node for node in nodes if node.name not in self.examinations.running_nodes]
        if not wanted:
            return
        self.jobs.start_job(self._record_doctor_run(self.prepare_command(CheckNodes(wanted))))
        self.bridge.schedule_repaint()

    def _record_doctor_run(self, started: PreparedCommand) -> PreparedCommand:
        """Return a `doctor` command that records its findings as they arrive."""
        names = tuple(map(NodeName, started.nodes)) or self._panel.node_names
        self.examinations.start_run(names, self.displayed_time())
        return replace(started, events=lambda: self.examinations.record_findings(started.events(), names))

    def find_home_directory(self, node: Node) -> str | None:
        """Return the user's home on a node; None while it is not known."""
        return self._homes.get_home_directory(node)

    def preview_launch_plan(self, profile: Profile, node: Node, home: str) -> LaunchPlan:
        """Return the launch that `up` would make. Raises `InvalidInput` where `up` would refuse the profile."""
        return build_preview_plan(self.context, profile, node, home, os.environ)

    def _handle_job_end(self, job: Job, defect: BaseException | None) -> None:
        """Keep the warnings of a command and report how it ended."""
        started, ended = job.started, job.ended
        if started.verb == "up" and job.instance is not None:
            self._warned.update({(NodeName(name), job.instance): tuple(job.warnings) for name in started.nodes})
        was_refused = started.verb == "up" and ended is not None and ended.outcome is Outcome.REFUSED
        if self.is_taken_over and was_refused and ended is not None and ended.message:
            self.bridge.record_refusal(ended, started.words, NodeName(started.nodes[0]) if started.nodes else None)
        report_job_end(self, self._panel, job, defect)
        self.recent = self.context.history.get_recent_profiles(_MAX_RECENT_PROFILES)
        self.bridge.schedule_repaint()

    def show_notice(self, words: str, tone: TextStyle, *, is_shown: bool = False) -> None:
        """Show a notice below the tiles until newer ones or escape remove it.

        Other screens show it as a toast, unless ``is_shown``: a dialog or the screen shows it already.
        """
        self.notices.add_notice(words, tone, self.list_node_views(self._panel.node_names))
        front = self._panel.front_screen
        if front is not None and front.frozen_at is not None:
            self._panel.call_later(self._panel.repaint_front_screen)
        if not is_shown and front is not None and front.SCREEN_ID != OVERVIEW:
            severity = {
                TextStyle.GOOD: "information",
                TextStyle.ATTENTION: "warning",
                TextStyle.ACCENT: "information",
            }.get(tone, "error")
            self._panel.show_toast(words, severity=severity)

    def reset_state(self) -> None:
        """Clear all state, because the recording starts again."""
        self._shown = None
        self.bridge.reset_store()
        self.examinations = DoctorRuns()
        self.switches, self.moves = SwitchTracker(), TransferTracker()
        self.notices.clear()
        turn, self.turn = self.turn, asyncio.Event()
        turn.set()

    def _schedule_panel_repaint(self) -> None:
        """Paint as a message of the app, so that a defect ends the panel instead of being logged by asyncio."""
        self._panel.call_later(self._panel.repaint_unless_frozen)

    def handle_event(self, event: Event) -> None:
        """Apply an event to the trackers and the store, and show the notices that it causes."""
        if self._panel.setup.recording is not None:
            self._shown = (event.ts, self.clock.monotonic())
            self.examinations.replay_event(event)
        if isinstance(event, LaunchPlanned) and not self.is_replaying:
            self._panel.select_instance(event.plan.node, event.plan.instance)  # select what is being started
        if isinstance(event, WarningEmitted) and not self.is_replaying:
            front = self._panel.front_screen  # checked now, while the message is new
            is_told = front is not None and front.already_shows(event.message)
            self.show_notice(*describe_warning(event, self._panel.ascii_only), is_shown=is_told)
        if (
            isinstance(event, GuardActed)
            and (notice := describe_guard_action(event, self._panel.ascii_only)) is not None
        ):
            self.show_notice(*notice)
        self.journals.apply_event(event)
        was_running = self.switches.running_switch is not None
        self.switches.apply_event(event, self.memory_bars)
        if was_running and self.switches.running_switch is None:
            self.journals.mark_own_switch_ended(event.ts)
        if self.moves.apply_event(event):
            self.bridge.schedule_repaint()
        self.bridge.apply_event(event)
        if isinstance(event, CheckCompleted):
            self.bridge.schedule_repaint()
