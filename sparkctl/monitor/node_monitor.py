"""Monitors one node: samples, containers, engine figures, guard, switch and liveness, each in a task of its own.

No task waits for another: a hanging Docker or a silent engine delays no sample. Liveness: whether a ready, idle engine can
still produce a token, asked rarely and never while it is at work. An engine can hang while its health path answers: the API
process lives, the process that generates does not.
"""

from __future__ import annotations

import asyncio
import random
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from sparkctl.concurrency import gather_or_cancel, run_in_background
from sparkctl.context import CommandContext
from sparkctl.engines import load_engine
from sparkctl.errors import DockerError, GuardUnavailable, InvalidInput, NodeError, UnreadableAnswer
from sparkctl.logs.reader import analyze_log
from sparkctl.model.container import Container
from sparkctl.model.engine_metrics import EngineActivity, EngineFact, EngineMeter
from sparkctl.model.events import (
    ContainersListed,
    EngineFactsReported,
    Event,
    FindingReported,
    GuardStatusChanged,
    MeterArrived,
    NodeStateChanged,
    SampleArrived,
    SwitchJournalReported,
)
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel, ReadinessRule, ReadinessTarget
from sparkctl.model.node import Node, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.model.reference import parse_reference_label
from sparkctl.model.switch_plan import SwitchJournalStatus
from sparkctl.monitor import engine_probe, guard_client, switch_journal_io
from sparkctl.monitor.engine_probe import QueryMarkerSupport
from sparkctl.monitor.findings import node_settings
from sparkctl.monitor.findings.host_detectors import list_unclean_boot
from sparkctl.monitor.guard_client import GuardClient
from sparkctl.monitor.kernel_log import read_kernel_log
from sparkctl.monitor.meters.engine_meters import AcceptLengths, EngineMeters, MeterReading, has_meter
from sparkctl.monitor.node_status import (
    ContainerInspections,
    build_download_view,
    build_instance_view,
    note_tokens,
    note_unproved_starts,
)
from sparkctl.monitor.sampler import LOADING_INTERVAL, NodeSampler
from sparkctl.node.agent_decoder import AgentHello
from sparkctl.profiles import container_labels
from sparkctl.profiles.container_labels import find_container_api_key, parse_ready_rule_label
from sparkctl.transport.node_connection import ConnectionStatus, node_state_for_error
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

PROBE_INTERVAL = 300.0  # seconds: the least time without a token before one is requested
PROBE_JITTER = (
    60.0  # seconds: random part of the interval, so that of two viewers one asks first and the other sees that token
)
_NO_PROBE = "none"
_TOKEN_PROBES = ("completions", "chat")


@dataclass(slots=True)
class ProbedEngine:
    """One engine: time of its last known token (monotonic), how long to wait, and whether it is reported as hung."""

    name: str
    proved: float
    patience: float
    is_reported: bool = False


class LivenessProbe:
    """The engines of one node, ``watched`` by container id. ``dice`` returns 0..1. Any client's token proves an engine alive.

    An engine is asked only if its own metrics show that it is idle, so an engine without metrics is never asked.
    """

    def __init__(
        self,
        session: NodeSession,
        inspections: ContainerInspections,
        emit: Callable[[Event], None],
        dice: Callable[[], float],
        watched: dict[str, ProbedEngine],
    ) -> None:
        self._session = session
        self._inspections = inspections
        self._emit = emit
        self._dice = dice
        self._watched = watched

    async def probe_idle_engine(
        self, instances: Iterable[InstanceView], read_meters: Callable[[], Mapping[str, MeterReading]], ahead: float
    ) -> None:
        """Note which engines made tokens, and ask the engine that is due for longest. Raises ConnectionLost, NodeError.

        ``is_reported``: the engines' current figures; ``ahead``: seconds by which the node's clock is ahead of ours.
        """
        now = self._session.clock.monotonic()
        here = {one.container_id or "": one for one in instances if has_meter(one)}
        for gone in self._watched.keys() - here.keys():
            self._clear_finding(self._watched.pop(gone))
        due: list[tuple[float, str]] = []
        for key, one in here.items():
            watched = self._watched.setdefault(key, ProbedEngine(one.name, now, self._pick_probe_delay()))
            numbers = read_meters().get(key, MeterReading(None)).numbers
            if is_generating(numbers):
                watched.proved = now
                self._clear_finding(watched)
            elif is_idle(numbers) and now - watched.proved >= watched.patience:
                due.append((watched.proved, key))
        if due:
            key = min(due)[1]
            await self._probe_engine(here[key], self._watched[key], read_meters, ahead)

    async def _probe_engine(
        self,
        one: InstanceView,
        watched: ProbedEngine,
        read_meters: Callable[[], Mapping[str, MeterReading]],
        ahead: float,
    ) -> None:
        container = self._inspections.get_container(one.container_id)
        rule = None if container is None else select_probe_rule(container)
        # whatever the result
        watched.proved, watched.patience = self._session.clock.monotonic(), self._pick_probe_delay()
        if container is None or rule is None or one.port is None:
            return
        marker_support = QueryMarkerSupport()
        run = await self._session.docker.read_run_options(container.id)
        service = ReadinessTarget(one.port, rule, None, find_container_api_key(run))
        service = await engine_probe.resolve_served_model(self._session.link, service, marker_support)
        if service.served_model is None:
            return  # the served name is not known, and a wrong one would be our own fault
        began = self._session.clock.unix_time() + ahead
        answer = await engine_probe.request_token(self._session.link, service, marker_support)
        watched.proved = self._session.clock.monotonic()
        if answer.good or answer.unproven or is_generating(read_meters().get(container.id, MeterReading(None)).numbers):
            self._clear_finding(watched)
            return
        words = answer.format_masked(await self._session.docker.read_secret_values(container.id))
        watched.is_reported = True
        self._emit(
            FindingReported.from_finding(self._session.clock.unix_time(), self._build_hung_finding(one, words, began))
        )

    def _build_hung_finding(self, one: InstanceView, words: str, since: float) -> Finding:
        name = shlex.quote(one.name)
        return Finding(
            FindingKind.NOT_GENERATING,
            Severity.PROBLEM,
            self._session.node.name,
            f"{one.name} is up and idle but generates no token when asked for one",
            remedy=f"see its log: sparkctl logs {name} --tail 50; then: sparkctl down {name}, and up again   "
            "(`liveness: none` in its profile ends this check)",
            instance=one.name,
            evidence=(
                FindingEvidence("answer", words, None, "http"),
                FindingEvidence("requests running", "0", None, "metrics"),
            ),
            since=since,
        )

    def _clear_finding(self, watched: ProbedEngine) -> None:
        if watched.is_reported:
            watched.is_reported = False
            now, node = self._session.clock.unix_time(), self._session.node.name
            words = "it makes tokens, or is gone"
            kind = FindingKind.NOT_GENERATING.value
            self._emit(
                FindingReported(
                    ts=now, node=node, check=kind, severity=Severity.GOOD, message=words, instance=watched.name
                )
            )

    def _pick_probe_delay(self) -> float:
        return PROBE_INTERVAL + PROBE_JITTER * self._dice()


def select_probe_rule(container: Container) -> ReadinessRule | None:
    """Return the rule for requesting a token; None if the labels forbid it."""
    rule = parse_ready_rule_label(container)
    if rule is None or rule.probe not in _TOKEN_PROBES or container.get_label(ContainerLabel.LIVENESS) == _NO_PROBE:
        return None
    return rule


def is_generating(numbers: EngineMeter | None) -> bool:
    """Tell whether the figures prove recent tokens."""
    return numbers is not None and (numbers.activity is EngineActivity.DECODING or bool(numbers.generation_rate))


def is_idle(numbers: EngineMeter | None) -> bool:
    """Tell whether the figures show that nothing runs and nothing waits; unknown figures do not mean idle."""
    return (
        numbers is not None and numbers.activity is EngineActivity.IDLE and numbers.running == 0 and not numbers.waiting
    )


_MAX_FACT_LINES = 20_000  # of a log: later lines before readiness have no more facts
_LOG_TIMEOUT_SECONDS = 20.0  # seconds for one log


class EngineFactsReader:
    """Reads the engine facts from each container's log once, one log after the other."""

    def __init__(self, session: NodeSession, emit: Callable[[Event], None]) -> None:
        self._session, self._emit = session, emit
        self._read: set[str] = set()

    async def read_new_logs(self, instances: Iterable[InstanceView]) -> None:
        """Read the logs of new, ready instances. Raises NodeError."""
        wanted = {one.container_id or "": one.engine or "" for one in instances if has_meter(one)}
        self._read &= wanted.keys()
        for container, engine in wanted.items():
            if container in self._read:
                continue
            facts: tuple[EngineFact, ...] = ()
            ready = ReadinessRule(line=load_engine(engine).defaults.ready_line, health=None)
            with suppress(DockerError, TimeoutError):  # an unreadable log has no facts
                async with asyncio.timeout(_LOG_TIMEOUT_SECONDS):
                    log = await analyze_log(self._session, container, engine, ready, most=_MAX_FACT_LINES)
                    facts = tuple(log.facts.values())
            self._read.add(container)
            if facts:
                self._emit(
                    EngineFactsReported(self._session.clock.unix_time(), self._session.node.name, container, facts)
                )


_GUARD_POLL_SECONDS = 10.0
_GUARD_SEARCH_SECONDS = 30.0  # seconds between two searches for a guard's socket, which run a shell on the node


class GuardPoller:
    """Emits `GuardStatusChanged` events of a node."""

    def __init__(self, session: NodeSession, emit: Callable[[Event], None]) -> None:
        self._session, self._emit = session, emit
        self._socket: str | None = None

    async def run(self, answers: asyncio.Event) -> None:
        """Poll the guard while the node answers."""
        clock = self._session.clock
        while True:
            await answers.wait()
            try:
                watched = await self._read_guarded_instances()
            except NodeError:  # the sampler reports the same error, unless only a further session is refused
                watched = None
            if answers.is_set():
                self._emit(GuardStatusChanged(clock.unix_time(), self._session.node.name, watched))
            await clock.sleep(_GUARD_SEARCH_SECONDS if self._socket is None else _GUARD_POLL_SECONDS)

    async def _read_guarded_instances(self) -> tuple[str, ...] | None:
        """Return the instances that a guard watches, empty if no guard runs; None if a running guard cannot be reached."""
        if self._socket is None:
            left = await guard_client.read_guard_directory(self._session)
            self._socket = left.socket
            if self._socket is None:
                return None if left.states else ()
        link = await GuardClient.connect_guard(self._session, self._socket)
        if link is None:  # it has ended and its socket is gone, or the node forwards no connection to it
            left = await guard_client.read_guard_directory(self._session)
            self._socket = left.socket
            return None if left.states else ()
        try:
            return tuple(watch.instance for watch in (await link.get_state()).watches)
        except GuardUnavailable:
            return None
        finally:
            await link.close()


_DOCKER_POLL_SECONDS = 5.0
_METRICS_POLL_SECONDS = 2.0
_SWITCH_POLL_SECONDS = 10.0  # seconds between two looks for a switch and for downloads; each runs a shell on the node
_ACTIVE_SWITCH_POLL_SECONDS = 3.0  # the same while one runs
_HISTORY_WRITE_SECONDS = 120.0  # seconds between two writes to the history
_LIVENESS_POLL_SECONDS = 5.0  # seconds between two checks whether an engine's liveness probe is due
_LOCAL_ERROR_RETRY_SECONDS = 10.0  # seconds until a missing local file is looked for again; this contacts no node
_BOOT_POLL_SECONDS = 5.0  # seconds between two looks whether the node has booted again, which contact no node
_UNREADABLE_RETRY_SECONDS = 15.0  # seconds until a node that answered with something unreadable is read again
_LOADING_PHASES = (Phase.PLANNED, Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(slots=True, kw_only=True)
class NodeMonitor:
    """Emits what happens on one node. ``run`` goes on until it is cancelled.

    ``every``: seconds between samples; while one of our instances is loading, they come every second. ``again``: seconds until
    an unusable node (a refused login, an unknown key, no Python) is tried again; None: never. A local problem, such as a
    missing identity file, is always checked again: this contacts no node.
    """

    ctx: CommandContext
    node: Node
    every: float
    emit: Callable[[Event], None]
    again: float | None = None
    hello: AgentHello | None = None  # the node's last identity
    _troubles: frozenset[str] = frozenset()  # kinds of findings reported about ``who``
    _instances: tuple[InstanceView, ...] = ()
    session: NodeSession | None = None  # while it is open
    _readings: dict[str, MeterReading] = field(default_factory=dict)
    # by container id; what was reported outlives a session
    _probed: dict[str, ProbedEngine] = field(default_factory=dict)
    _answers: asyncio.Event = field(default_factory=asyncio.Event)  # set while the node answers
    _listed: asyncio.Event = field(default_factory=asyncio.Event)  # set once Docker has listed containers, too
    _switch: SwitchJournalStatus | None = None  # as last reported
    _downloads: tuple[InstanceView, ...] = ()  # those that run on the node itself: Docker does not list them
    _ended: frozenset[str] = frozenset()  # our containers that exist but had ended at the last list
    _is_misplaced: bool = False  # the last error was a local one
    _boot_read: str | None = None  # the boot whose predecessor's end was looked at
    _ahead: float = 0.0  # seconds that the node's clock is ahead of ours

    async def run(self) -> None:
        """Monitor the node. Without ``again``, end when waiting does not help; the last event says why."""
        prompter = self.ctx.prompter
        while True:
            again = await self._follow_session(NodeSession(self.node, prompter, self.ctx.clock))
            if again is None:
                return
            self._answers.clear()
            self._listed.clear()
            await self.ctx.clock.sleep(again)
            prompter = prompter if self._is_misplaced else NonInteractivePrompter()  # do not prompt twice

    async def _follow_session(self, opened: NodeSession) -> float | None:
        """Monitor one session until it fails; return the seconds until the next try, None for never."""
        async with opened as session:
            self.session = session
            session.link.add_status_listener(lambda status: self._on_link_changed(session, status))
            try:
                while True:
                    again, is_unreadable = await self._read_until_failure(session)
                    if not is_unreadable or again is None or session.link.status.state is not NodeState.OK:
                        return again
                    # the connection is good: nobody has to log in, or give a second factor, once more
                    self._answers.clear()
                    self._listed.clear()
                    await self.ctx.clock.sleep(again)
            finally:
                self.session = None

    async def _read_until_failure(self, session: NodeSession) -> tuple[float | None, bool]:
        """Monitor over one session until something fails; return the seconds until the next try, None for never, and whether
        an answer could not be read."""
        sampler = NodeSampler(session, self.every)
        inspections = ContainerInspections(session)
        polls = (
            self._poll_containers(session, sampler, inspections),
            self._poll_meters(session),
            self._poll_liveness(session, inspections),
            GuardPoller(session, self.emit).run(self._answers),
            self._read_engine_facts(session),
            self._poll_switch_journal(session),
            self._report_boot_before(session),
        )
        try:
            with isolate_node_failures(self.node):
                async with run_in_background(*polls):
                    await self._emit_samples(sampler)
        except NodeError as error:
            # of an answer that nobody foresaw the next one may be as usual
            is_unreadable = isinstance(error, UnreadableAnswer)
            again = (self.again or _UNREADABLE_RETRY_SECONDS) if is_unreadable else self.again
            self._is_misplaced = False
            self.emit(replace(build_failure_state(session, error), next_try=again))
            return again, is_unreadable
        except InvalidInput as error:
            again = min(self.again or _LOCAL_ERROR_RETRY_SECONDS, _LOCAL_ERROR_RETRY_SECONDS)
            self._is_misplaced = True
            self.emit(replace(build_failure_state(session, error), next_try=again))
            return again, False
        return self.again, False

    async def _emit_samples(self, sampler: NodeSampler) -> None:
        async with aclosing(sampler.stream_samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived):
                    self._ahead = event.sample.time - event.ts
                    self._answers.set()
                self.emit(event)
                if isinstance(event, SampleArrived) and sampler.identity is not self.hello:
                    self.hello = sampler.identity
                    self._emit_setting_findings(event)

    def _emit_setting_findings(self, event: SampleArrived) -> None:
        """Report problems of the node's settings, and those that are solved."""
        found = (
            []
            if self.hello is None
            else list(node_settings.list_setting_problems(event.node, self.hello, event.sample))
        )
        for kind in self._troubles - {one.kind.value for one in found}:
            self.emit(
                FindingReported(
                    ts=event.ts, node=event.node, check=kind, severity=Severity.GOOD, message="no longer so"
                )
            )
        for one in found:
            self.emit(FindingReported.from_finding(event.ts, one))
        self._troubles = frozenset(one.kind.value for one in found)

    async def _report_boot_before(self, session: NodeSession) -> None:
        """Report how the previous boot ended: once if without a shutdown, and at each further boot."""
        while True:
            await self._answers.wait()
            if self.hello is not None and self.hello.boot_id != self._boot_read:
                with suppress(NodeError):  # the sampler reports the same error
                    await self._read_boot_before(session, self.hello)
            await self.ctx.clock.sleep(_BOOT_POLL_SECONDS)

    async def _read_boot_before(self, session: NodeSession, hello: AgentHello) -> None:
        log = await read_kernel_log(session, boot_before=True)
        is_later, self._boot_read = self._boot_read is not None, hello.boot_id
        end, now = log.boot_before if log else None, session.clock.unix_time()
        found = list_unclean_boot(self.node.name, end, hello.up or 0.0)
        for one in found:
            self.emit(FindingReported.from_finding(now, one))
        if is_later and not found:  # what was reported is of an earlier boot
            is_clean = end is not None and end.is_clean is True
            self.emit(
                FindingReported(
                    ts=now,
                    node=self.node.name,
                    check=FindingKind.LAST_BOOT.value,
                    severity=Severity.GOOD if is_clean else Severity.UNKNOWN,
                    message="the previous boot ended with a shutdown"
                    if is_clean
                    else "how the previous boot ended is not known",
                )
            )

    async def _poll_containers(
        self, session: NodeSession, sampler: NodeSampler, inspections: ContainerInspections
    ) -> None:
        """List the containers again and again."""
        while True:
            await self._answers.wait()
            try:
                listed = await read_container_list(session, inspections, self.ctx)
            except NodeError as error:
                if session.link.status.state is not NodeState.OK:  # the sampler meets the same error, and reconnects
                    self._answers.clear()
                    continue
                listed = _build_unknown_list(session, error)
            if self._answers.is_set():
                await self._refresh_switch_on_end(session, listed)
                if listed.known:
                    listed = replace(listed, instances=(*listed.instances, *self._downloads))
                self.emit(listed)
                if listed.known:
                    self._instances = listed.instances
                    self._listed.set()
                await self._adjust_sample_rate(sampler)
            await self.ctx.clock.sleep(_DOCKER_POLL_SECONDS)

    async def _adjust_sample_rate(self, sampler: NodeSampler) -> None:
        loading = any(one.ours and one.phase in _LOADING_PHASES for one in self._instances)
        wanted = min(self.every, LOADING_INTERVAL) if loading else self.every
        if wanted != sampler.every:
            await sampler.set_rate(wanted)

    async def _poll_meters(self, session: NodeSession) -> None:
        """Read the engines' figures again and again; they are not known while the node does not answer."""
        meters, watching = EngineMeters(session), AcceptLengths()
        written = session.clock.monotonic()
        try:
            while True:
                await self._listed.wait()
                try:
                    await meters.read_metrics(self._instances)
                    meters.follow_logs(self._ahead)
                    self._readings = meters.get_current_readings(self._ahead)
                except NodeError:
                    # the sampler reports the same error
                    self._readings = dict.fromkeys(self._readings, MeterReading(None))
                for container, reading in self._readings.items():
                    watching.add_reading(container, reading.numbers)
                if session.clock.monotonic() - written > _HISTORY_WRITE_SECONDS:
                    written = session.clock.monotonic()
                    await asyncio.to_thread(self._record_accept_lengths, watching)
                if self._listed.is_set():
                    emit_meter_readings(session, self._readings, self.emit)
                await self.ctx.clock.sleep(_METRICS_POLL_SECONDS)
        finally:
            self._record_accept_lengths(watching)
            await meters.aclose()

    def _record_accept_lengths(self, watching: AcceptLengths) -> None:
        """Store the measured accept lengths with the start."""
        for container, length in watching.pop_changed():
            self.ctx.history.record_accept_length(container, length)

    async def _poll_liveness(self, session: NodeSession, inspections: ContainerInspections) -> None:
        """Request a token from engines that have been idle for long; a hung engine takes minutes to fail."""
        liveness = LivenessProbe(session, inspections, self.emit, random.random, self._probed)
        while True:
            await self._listed.wait()
            with suppress(NodeError, DockerError):  # the sampler reports the same error
                await liveness.probe_idle_engine(self._instances, lambda: self._readings, self._ahead)
            await self.ctx.clock.sleep(_LIVENESS_POLL_SECONDS)

    async def _read_engine_facts(self, session: NodeSession) -> None:
        """Read the facts from the log of each ready engine, once."""
        learner = EngineFactsReader(session, self.emit)
        while True:
            await self._listed.wait()
            with suppress(NodeError):  # the sampler reports the same error
                await learner.read_new_logs(self._instances)
            await self.ctx.clock.sleep(_DOCKER_POLL_SECONDS)

    async def _poll_switch_journal(self, session: NodeSession) -> None:
        """Poll for a running or interrupted switch, and report changes; and for downloads that run on the node itself."""
        while True:
            if not self._answers.is_set():
                self._switch = None  # report it again after a lost connection
            await self._answers.wait()
            await self._read_switch_journal(session)
            goes_on = self._switch is not None and self._switch.journal is not None and self._switch.is_held
            is_short = goes_on or bool(self._downloads)
            await self.ctx.clock.sleep(_ACTIVE_SWITCH_POLL_SECONDS if is_short else _SWITCH_POLL_SECONDS)

    async def _read_switch_journal(self, session: NodeSession) -> None:
        with suppress(NodeError):  # the sampler reports the same error
            inspection = await session.read_node("journal", "downloads")
            self._downloads = tuple(build_download_view(self.node, one) for one in inspection.downloads)
            view = switch_journal_io.build_journal_view(inspection.journal)
            if self._answers.is_set() and view != self._switch:
                self._switch = view
                self.emit(SwitchJournalReported(self.ctx.clock.unix_time(), self.node.name, view))

    async def _refresh_switch_on_end(self, session: NodeSession, listed: ContainersListed) -> None:
        """Read the switch journal before an ended container is reported: a switch may have stopped it."""
        if not listed.known:
            return
        ended = {one.container_id for one in listed.instances if one.ours and not one.is_alive and one.container_id}
        if ended - self._ended:
            await self._read_switch_journal(session)
        self._ended = frozenset(ended)

    def _on_link_changed(self, session: NodeSession, status: ConnectionStatus) -> None:
        if status.state in (NodeState.OK, NodeState.UNKNOWN):
            return  # a sample follows with more
        self._answers.clear()
        self._listed.clear()  # wait until the node is back
        self.emit(session.build_state_event(status))


async def read_container_list(
    session: NodeSession, inspections: ContainerInspections, ctx: CommandContext | None = None
) -> ContainersListed:
    """Return the container list, or why Docker does not answer; ``ctx``: its history tells of starts without a token.

    Raises NodeError if the node does not answer.
    """
    name, spec = session.node.name, session.node.memory_bandwidth_gb_s
    try:
        containers = await session.docker.list_containers()
        await inspections.update_inspections(containers)
        if ctx is not None:
            note_unproved_starts(ctx, session, containers)
        shown = await gather_or_cancel(*(_build_listed_instance(session, one) for one in containers))
        if ctx is not None:
            note_tokens(ctx, session, shown)
    except DockerError as error:
        return _build_unknown_list(session, error)
    return ContainersListed(
        ts=session.clock.unix_time(),
        node=name,
        instances=tuple(inspections.add_inspection(one) for one in shown if one),
        memory_bandwidth=spec,
    )


def _build_unknown_list(session: NodeSession, error: DockerError | NodeError) -> ContainersListed:
    return ContainersListed(
        ts=session.clock.unix_time(),
        node=session.node.name,
        known=False,
        detail=error.message,
        hint=error.hint,
        memory_bandwidth=session.node.memory_bandwidth_gb_s,
    )


async def _build_listed_instance(session: NodeSession, container: Container) -> InstanceView | None:
    view = await build_instance_view(session, container, None)
    if view is None or not view.ours:
        return view
    return replace(
        view,
        per_step=container_labels.parse_decode_step_label(container.get_label(ContainerLabel.PER_STEP)),
        reference=parse_reference_label(container.get_label(ContainerLabel.REFERENCE)),
    )


def emit_meter_readings(session: NodeSession, readings: dict[str, MeterReading], emit: Callable[[Event], None]) -> None:
    for container, reading in readings.items():
        emit(
            MeterArrived(
                ts=session.clock.unix_time(),
                node=session.node.name,
                container=container,
                numbers=reading.numbers,
                metrics_hint=reading.hint,
            )
        )


def build_failure_state(session: NodeSession, error: NodeError | InvalidInput) -> NodeStateChanged:
    """Return the node state for an error, with its message; for a local fault the node's state is unknown."""
    state = node_state_for_error(error) if isinstance(error, NodeError) else NodeState.UNKNOWN
    return NodeStateChanged(
        ts=session.clock.unix_time(), node=session.node.name, state=state, detail=error.message, hint=error.hint
    )


def build_defect_state(ctx: CommandContext, node: Node, defect: BaseException, hint: str) -> NodeStateChanged:
    """Return the node state for a defect of ours that ended the monitoring of a node; ``hint`` says how to go on."""
    what = f"a defect in sparkctl, not in {node.name}: {type(defect).__name__}: {defect}"
    return NodeStateChanged(ts=ctx.clock.unix_time(), node=node.name, state=NodeState.UNKNOWN, detail=what, hint=hint)
