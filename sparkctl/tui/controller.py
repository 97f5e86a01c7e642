"""The panel's controller: applies every event to the store, follows the nodes, and runs the operator's commands,
each as a job: a task that emits events.

Imported after the first paint, since it imports everything that talks to nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sparkctl.clock import Clock, SystemClock
from sparkctl.commands.request import Request
from sparkctl.concurrency import BackgroundTasks
from sparkctl.context import CommandContext, InterruptSignal
from sparkctl.errors import InvalidInput
from sparkctl.model.events import (
    CommandEnded,
    Event,
    GuardActed,
    LaunchPlanned,
    NodeStateChanged,
    Outcome,
    TunnelState,
    TunnelStateChanged,
    WarningEmitted,
)
from sparkctl.model.finding import Severity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.monitor.activity import (
    Job,
    JobEnded,
    JobStarted,
    NoticesCleared,
    NoticeShown,
    StartDiagnosed,
    SwitchHidden,
)
from sparkctl.monitor.event_log import StartRefused
from sparkctl.monitor.recording import RecordingPlayer
from sparkctl.monitor.store import Store, StoreEvent, Topic, TopicKind
from sparkctl.monitor.switch_journal_io import format_step_number
from sparkctl.monitor.watch_nodes import NodeSupervisor
from sparkctl.profiles.profile_library import ProfileOffer, list_startable_profiles
from sparkctl.tui.estimate_cache import MemoryEstimateCache, StartOfferCache
from sparkctl.tui.panel_options import DemoStep, PanelOptions
from sparkctl.views.event_log_view import (
    describe_guard_action,
    describe_running_instances,
    describe_stopped_models,
    describe_unfinished_switch,
    describe_warning,
)
from sparkctl.views.event_text import format_tunnel_state
from sparkctl.views.text.styled_text import TextStyle

if TYPE_CHECKING:
    from textual.screen import ModalScreen

    from sparkctl.commands.start.launch_plans import ContainerLaunch
    from sparkctl.commands.stop.stop_instance import StopInstance
    from sparkctl.model.profile import Profile
    from sparkctl.monitor.switch_progress import SwitchProgress
    from sparkctl.views.overview.tile_model import StartOffer


_STOP_SECONDS = 2.0  # seconds that a command has to reach a safe point


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """A request, the context that it runs in, and its events. ``only_node``: of a config with one node."""

    request: Request
    context: CommandContext
    events: Callable[[], AsyncGenerator[Event, None]]
    only_node: str | None

    @property
    def verb(self) -> str:
        return self.request.verb

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its command line, without ``sparkctl``."""
        return self.request.format_as_command()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it names; empty: all nodes."""
        return tuple(map(str, self.request.named_nodes)) or (() if self.only_node is None else (self.only_node,))


class JobRunner:
    """Runs commands. ``emit`` gets every event and its job, ``finished`` each ended job and what it raised, if anything."""

    def __init__(
        self,
        store: Store,
        emit: Callable[[Event | JobStarted | JobEnded, int], None],
        finished: Callable[[Job, BaseException | None], object],
    ) -> None:
        self._store, self._emit, self._finished = store, emit, finished
        self._commands: dict[int, tuple[PreparedCommand, asyncio.Task[None]]] = {}
        self._tasks = BackgroundTasks(lambda _: None)  # each job's end is handled
        self._last_number = 0

    def interrupt_job(self, number: int) -> None:
        """End a job at its next safe point, as Ctrl-C does."""
        if number in self._commands:
            self._commands[number][0].context.interrupt.record_press()

    def interrupt_switch(self) -> None:
        """End the switch at its next safe point, as Ctrl-C does."""
        if (job := self._store.jobs.switch_job) is not None:
            self.interrupt_job(job.started.job)

    def start_job(self, prepared: PreparedCommand, nodes: tuple[NodeName, ...]) -> None:
        """Run a command as a task; ``nodes`` are those that it is about."""
        self._last_number += 1
        number, clock = self._last_number, prepared.context.clock

        async def emit_events() -> None:
            async with aclosing(prepared.events()) as events:
                async for event in events:
                    self._emit(event, number)

        def end_job(defect: BaseException | None) -> None:
            del self._commands[number]
            job = self._store.jobs.running[number]
            self._emit(JobEnded(clock.unix_time(), number), number)
            self._finished(job, defect)

        self._emit(
            JobStarted(ts=clock.unix_time(), job=number, verb=prepared.verb, words=prepared.words, nodes=nodes), number
        )
        task = self._tasks.start_task(emit_events(), " ".join(prepared.words), end_job)
        self._commands[number] = prepared, task

    def detach_starts(self, stop: StopInstance, nodes: Sequence[str]) -> None:
        """Stop watching the starts that a stop is about to end: those that it names, on these nodes; none: on all."""
        for number, job in self._store.jobs.running.items():
            is_named = stop.instance is None or stop.instance == job.instance
            is_there = not (nodes and job.started.nodes) or set(nodes) & set(job.started.nodes)
            if job.started.verb == "up" and is_named and is_there:
                self.interrupt_job(number)

    async def end_jobs(self) -> tuple[str, ...]:
        """End every command at its next safe point; return their messages and hints, one per line."""
        jobs = list(self._store.jobs.running.values())
        tasks = [task for _, task in self._commands.values()]
        for number in self._commands:
            self.interrupt_job(number)
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        await self._tasks.aclose(_STOP_SECONDS)
        ends = [job.ended for job in jobs if job.ended is not None and job.ended.message]
        return tuple(
            line
            for one in ends
            for line in (
                *sanitize_lines(one.message or ""),
                *(f"  try: {way}" for way in sanitize_lines(one.hint or "")),
            )
        )


class DialogQueue(Protocol):
    """Shows dialogs one at a time."""

    async def show_dialog(self, dialog: ModalScreen[str], opened: Callable[[], None] = ...) -> str | None:
        """Show a dialog after those that are open and return the answer; None for no answer."""
        ...


class ControllerHost(Protocol):
    """What the controller asks of `Panel`, which says what each does; the controller imports no screen and no dialog."""

    setup: PanelOptions

    @property
    def node_names(self) -> tuple[NodeName, ...]: ...
    @property
    def config_nodes(self) -> tuple[Node, ...]: ...

    def is_operator_active(self, seconds: float) -> bool: ...
    def repaint_unless_frozen(self) -> None: ...
    def open_screen(self, name: str) -> None: ...
    def select_node(self, index: int) -> None: ...
    def select_instance(self, node: NodeName, instance: str) -> None: ...
    def announce_notice(self, words: str, severity: Severity, *, is_shown: bool) -> None: ...
    def already_shows(self, message: str) -> bool: ...
    def report_job_end(self, job: Job, defect: BaseException | None) -> None: ...
    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool: ...
    def stop_on_defect(self, defect: BaseException) -> None: ...
    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


_DEMO_POLL_SECONDS = 1.0  # seconds between two checks whether a command has ended
_DEMO_IDLE_SECONDS = 5.0  # seconds without a key before the demo goes on


async def run_demo_steps(controller: PanelController, panel: ControllerHost, story: Sequence[DemoStep]) -> None:
    """Play a demo step by step; wait for running commands, open dialogs and keys. A command of the operator ends it."""
    for one in story:
        await controller.clock.sleep(one.after)
        while panel.is_operator_active(_DEMO_IDLE_SECONDS) and not controller.is_taken_over:
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
            while controller.store.jobs.running:
                await controller.clock.sleep(_DEMO_POLL_SECONDS)


STATE_REPAINT_SECONDS = 0.2  # seconds between two paints after a change of state
SAMPLE_REPAINT_SECONDS = 0.5  # seconds between two paints while only figures change
_STATE_TOPICS = (
    TopicKind.STATE,
    TopicKind.PHASE,
    TopicKind.LOG,
    TopicKind.INSTANCES,
    TopicKind.FINDINGS,
    TopicKind.SWITCH,
)
_NOTICE_SEVERITIES = {
    TextStyle.GOOD: Severity.GOOD,
    TextStyle.ATTENTION: Severity.WARNING,
    TextStyle.ACCENT: Severity.NOTE,
}
_MAX_RECENT_PROFILES = 3
_CLOSE_SECONDS = 2.0


class PanelController:
    """Knows the nodes and runs the commands of one panel, on its event loop. ``context`` asks the operator with ``dialogs``."""

    def __init__(self, panel: ControllerHost, context: CommandContext, dialogs: DialogQueue) -> None:
        self._panel = panel
        setup = panel.setup
        self.clock: Clock = setup.clock or SystemClock()
        self.dialogs = dialogs
        self.context = context
        self._shown: tuple[float, float] | None = None  # time of a recording's last event, and the clock then
        self.store = Store([node.name for node in setup.nodes], self.clock.unix_time())
        self.supervisor = NodeSupervisor(self.context, self.handle_event, panel.stop_on_defect)
        self.non_interactive_context = replace(
            self.context, prompter=NonInteractivePrompter(), lend=self.supervisor.create_background_session
        )  # background work never asks the operator
        self.jobs = JobRunner(self.store, self.handle_event, lambda *end: panel.call_later(self._handle_job_end, *end))
        self.recent = self.context.history.get_recent_profiles(_MAX_RECENT_PROFILES)
        self._background = BackgroundTasks(panel.stop_on_defect)
        self.fits = MemoryEstimateCache(
            self.non_interactive_context,
            self.store,
            self.supervisor,
            self._background,
            self.schedule_repaint,
            is_replaying=self.is_replaying,
        )
        self._offers = StartOfferCache(
            self.non_interactive_context, self.store, self.supervisor, self._background, self.fits
        )
        self.recorded: Sequence[Event] = ()
        self.player: RecordingPlayer | None = None  # of a recording
        self.turn = asyncio.Event()  # set and replaced when the recording starts again
        self.is_taken_over = False  # the operator has started a command
        self._ready_lines: dict[tuple[NodeName, str], str | None] = {}
        self._repaint_timer: asyncio.TimerHandle | None = None
        self._painted = 0.0  # when the last repaint was due, in the event loop's seconds

    @property
    def is_replaying(self) -> bool:
        """Whether the panel plays a recording and has no live nodes."""
        return self._panel.setup.recording is not None

    def start_monitoring(self, nodes: Sequence[Node]) -> None:
        """Start to follow the nodes, or to play the recording."""
        recording = self._panel.setup.recording
        if recording is not None:
            self.recorded, speed = recording
            self.player = RecordingPlayer(self.clock, self.recorded, speed, self.handle_event, self.reset_state)
            self.supervisor.play_recording(self.player)
        else:
            self.supervisor.follow_nodes(nodes)
        if story := self._panel.setup.story:
            self._panel.spawn_task(run_demo_steps(self, self._panel, story))

    def displayed_time(self) -> float:
        """Return the displayed time in unix seconds; in a recording the last event's plus at most a second."""
        if self._panel.setup.recording is None or self._shown is None:
            return self.clock.unix_time()
        stamp, when = self._shown
        if self.player is not None and self.player.is_paused:
            return stamp
        return stamp + min(1.0, self.clock.monotonic() - when)

    # --- events and repaints ---

    def handle_event(self, event: StoreEvent, job: int | None = None) -> None:
        """Apply an event to the store, and show the notice that it causes. ``job``: by which it was emitted."""
        if self.is_replaying:
            self._shown = (event.ts, self.clock.monotonic())
        elif isinstance(event, LaunchPlanned):
            self._panel.select_instance(event.plan.node, event.plan.instance)  # select what is being started
        elif isinstance(event, WarningEmitted):
            is_shown = self._panel.already_shows(event.message)  # checked now, while the message is new
            self.show_notice(*describe_warning(event), is_shown=is_shown)
        if isinstance(event, GuardActed):
            self.store.notices.drop_naming(f"{event.node}: guard: ")  # the newest says how it is
            if (notice := describe_guard_action(event)) is not None:
                self.show_notice(*notice)
        if topics := self.store.apply_event(event, job):
            self.schedule_repaint(topics)
        if isinstance(event, TunnelStateChanged) and event.state is not TunnelState.CLOSED and not self.is_replaying:
            is_open = event.state is TunnelState.OPEN  # what was said of it before has gone from the store by now
            self.show_notice(format_tunnel_state(event), TextStyle.GOOD if is_open else TextStyle.ATTENTION)

    def schedule_repaint(self, topics: Iterable[Topic] = ()) -> None:
        """Schedule a repaint, never from within this call: sooner after a change of state than after new figures."""
        is_state = any(topic.what in _STATE_TOPICS for topic in topics)
        loop = asyncio.get_running_loop()
        due = max(loop.time(), self._painted + (STATE_REPAINT_SECONDS if is_state else SAMPLE_REPAINT_SECONDS))
        if self._repaint_timer is not None:
            if self._repaint_timer.when() <= due:
                return
            self._repaint_timer.cancel()
        self._repaint_timer = loop.call_at(due, self._repaint)

    def _repaint(self) -> None:
        self._repaint_timer = None
        self._painted = asyncio.get_running_loop().time()
        self._panel.call_later(self._panel.repaint_unless_frozen)

    def add_nodes(self, nodes: Iterable[NodeName]) -> None:
        """Add nodes of unknown state to the store."""
        for name in nodes:
            if name not in self.store.nodes:
                self.handle_event(NodeStateChanged(ts=self.displayed_time(), node=name, state=NodeState.UNKNOWN))

    def reset_state(self) -> None:
        """Clear all state, because the recording starts again."""
        self._shown = None
        self.store.clear()
        turn, self.turn = self.turn, asyncio.Event()
        turn.set()

    def show_notice(self, words: str, tone: TextStyle, *, is_shown: bool = False) -> None:
        """Show a notice below the tiles until newer ones or escape remove it; other screens show a toast unless it ``is_shown`` there."""
        severity = _NOTICE_SEVERITIES.get(tone, Severity.PROBLEM)
        self._apply_own_event(NoticeShown(ts=self.displayed_time(), text=words, severity=severity))
        self._panel.announce_notice(words, severity, is_shown=is_shown)

    def clear_notices(self) -> None:
        self._apply_own_event(NoticesCleared(self.displayed_time()))

    def hide_finished_switch(self) -> None:
        """Put a finished switch aside for a new plan; a running one stays visible."""
        self._apply_own_event(SwitchHidden(self.displayed_time()))

    def record_diagnosis(self, node: NodeName, end: CommandEnded) -> None:
        """Keep how a start ended that this panel did not watch."""
        self._apply_own_event(StartDiagnosed(self.displayed_time(), node, end))

    def _apply_own_event(self, event: StoreEvent) -> None:
        """Apply an event of the panel itself; it does not move the displayed time of a recording."""
        self.schedule_repaint(self.store.apply_event(event))

    # --- what is shown of an instance or a node ---

    def remember_ready_line(self, name: NodeName, instance: str, run: ContainerLaunch | None) -> None:
        """Keep the pattern of the log line that marks an instance as ready."""
        if run is not None and run.ready is not None:
            self._ready_lines[name, instance] = run.ready.line

    def find_ready_line(self, name: NodeName, instance: str) -> str | None:
        """Return the pattern of the log line that marks an instance as ready; None where it is not known."""
        plan = self.store.get_record(name).plans.get(instance) if name in self.store.nodes else None
        return plan.ready.line if plan is not None else self._ready_lines.get((name, instance))

    @property
    def own_switch(self) -> SwitchProgress | None:
        """The switch that this panel runs, from its first step on."""
        return None if self.store.jobs.switch_job is None else self.store.switches.build_running_with_stops()

    def build_exit_summary(self) -> tuple[str, ...]:
        """Return a sentence for each node with running instances and for each model that the panel's own switch stops.

        Of a node that does not answer, the last known instances count.
        """
        if self.is_replaying:
            return ()
        own = self.own_switch
        watched = {job.instance for job in self.store.jobs.running.values()}  # their own reports mention these
        if own is not None and own.current_step is not SwitchStep.CHECKING:
            watched |= {own.instance, *own.stops}
        sentences = []
        for name in self._panel.node_names:
            if name in self.store.nodes:
                view = self.store.get_last_known_view(name)
                others = [one for one in view.instances if one.name not in watched]
                sentences.append(describe_running_instances(view, others, self.displayed_time()))
        known = (one for one in sentences if one is not None)
        return (*known, *(() if own is None else describe_stopped_models(own)))

    async def aclose(self) -> tuple[str, ...]:
        """End jobs, tasks and connections; return sentences about what was left unfinished."""
        own, job = self.own_switch, self.store.jobs.switch_job
        lines = await self.jobs.end_jobs()
        if own is not None and own.current_step is not None and job is not None and job.ended is None:
            lines += describe_unfinished_switch(own, format_step_number(own.current_step))
        if self._repaint_timer is not None:
            self._repaint_timer.cancel()
        await self._background.aclose(_CLOSE_SECONDS)  # they use the supervisor's connections
        await self.supervisor.aclose()
        return lines

    def run_background_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task that ends with the controller at the latest; the caller handles its exceptions."""
        return self._background.start_task(work, name, lambda _: None)

    # --- what the operator starts ---

    def start_command(self, request: Request, *, by_hand: bool = True) -> None:
        from sparkctl.commands.stop.stop_instance import StopInstance

        self.is_taken_over = self.is_taken_over or by_hand
        started = self.prepare_command(request)
        if started.verb == "doctor":
            self._panel.open_screen("doctor")
        if started.verb == "bench":
            self._panel.open_screen("bench")
        if started.verb in ("resume", "abort"):
            self.hide_finished_switch()
            self._panel.open_screen("switch")
        if isinstance(request, StopInstance):
            self.jobs.detach_starts(request, started.nodes)
        self._start_job(started)
        if len(started.nodes) == 1 and started.nodes[0] in self._panel.node_names:
            self._panel.select_node(self._panel.node_names.index(NodeName(started.nodes[0])))

    def parse_command(self, words: Sequence[str]) -> Request:
        """Return what a command line asks for. Raises `SparkctlError` where it is not valid, or shows a screen."""
        load_commands = self._panel.setup.load_commands
        request = None if load_commands is None else load_commands().parse_request(words)
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

    def list_start_offers(self, node: NodeName) -> tuple[StartOffer, ...]:
        """Return what could be started on an idle node; () in a recording."""
        return () if self.is_replaying else self._offers.list_offers(node, self.recent)

    def list_missing(self, profile: Profile, node: NodeName) -> tuple[str, ...]:
        """Return what a node certainly lacks for a profile that somebody looks at, in a few words each; () in a recording."""
        return () if self.is_replaying else self._offers.list_missing(profile, node, asks_registry=True)

    async def load_profile_offers(self) -> list[ProfileOffer]:
        """Return the profiles that can be started; the files are read in a thread."""
        return await asyncio.to_thread(list_startable_profiles, self.recent)

    def run_doctor(self, nodes: Sequence[Node]) -> None:
        """Run `doctor` on these nodes, except where it already runs."""
        from sparkctl.commands.doctor_checks import CheckNodes

        wanted = [node for node in nodes if node.name not in self.store.jobs.doctor.running_nodes]
        if wanted:
            self._start_job(self.prepare_command(CheckNodes(wanted)))

    def _start_job(self, prepared: PreparedCommand) -> None:
        names = tuple(map(NodeName, prepared.nodes))
        self.jobs.start_job(prepared, names or (self._panel.node_names if prepared.verb == "doctor" else ()))

    def _handle_job_end(self, job: Job, defect: BaseException | None) -> None:
        """Report how a command ended."""
        started, ended = job.started, job.ended
        was_refused = started.verb == "up" and ended is not None and ended.outcome is Outcome.REFUSED
        if self.is_taken_over and was_refused and ended is not None and ended.message:
            node = ended.node or next(iter(started.nodes), None)
            if node is not None:
                reason = ended.message.splitlines()[0]
                self._apply_own_event(StartRefused(ts=ended.ts, node=node, words=started.words, reason=reason))
        self._panel.report_job_end(job, defect)
        self._offers.forget()
        self.recent = self.context.history.get_recent_profiles(_MAX_RECENT_PROFILES)
        self.schedule_repaint()
