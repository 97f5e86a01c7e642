"""One node, followed: samples, what Docker says runs, and the engines' figures, each by a task of its own.

None of them waits for another: a Docker that hangs, or an engine that does not answer, holds up no sample.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import decode_step_estimate, load_engine
from sparkctl.errors import DockerError, GuardUnavailable, InvalidInput, NodeError
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.model.container import Container
from sparkctl.model.engine_metrics import EngineFact
from sparkctl.model.events import (
    ContainersListed,
    Event,
    FactsLearned,
    FindingReported,
    GuardStatusChanged,
    MeterArrived,
    NodeStateChanged,
    SampleArrived,
    SwitchFound,
)
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel, ReadinessRule
from sparkctl.model.node import Node, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.model.switch_plan import SwitchJournalStatus
from sparkctl.monitor import guard_receipts, switch_journal
from sparkctl.monitor.engine_averages import EngineAverages
from sparkctl.monitor.engine_meters import EngineMeters, MeterReading, has_meter
from sparkctl.monitor.findings import node_settings
from sparkctl.monitor.guard_client import GuardClient
from sparkctl.monitor.liveness_probe import LivenessProbe
from sparkctl.monitor.node_status import ContainerInspections, build_instance_view
from sparkctl.monitor.sampler import LOADING_INTERVAL, NodeSampler
from sparkctl.node.agent_decoder import AgentHello
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.node_connection import ConnectionStatus, node_state_for_error
from sparkctl.transport.session import Session, node_failures

_LINES = 20_000  # of a log: a start that says more than that before it is ready tells nothing more of this
_PATIENCE = 20.0  # seconds for one log


class EngineFactsReader:
    """Reads each container's log once, one after the other."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session, self._emit = session, emit
        self._read: set[str] = set()

    async def read_new_logs(self, instances: Iterable[InstanceView]) -> None:
        """Read the logs of those that are new and ready. Raises NodeError."""
        wanted = {one.container_id or "": one.engine or "" for one in instances if has_meter(one)}
        self._read &= wanted.keys()
        for container, engine in wanted.items():
            if container in self._read:
                continue
            facts: tuple[EngineFact, ...] = ()
            with suppress(DockerError, TimeoutError):  # a log that cannot be read tells nothing
                async with asyncio.timeout(_PATIENCE):
                    facts = await self._facts(container, engine)
            self._read.add(container)
            if facts:
                self._emit(FactsLearned(self._session.clock.unix_time(), self._session.node.name, container, facts))

    async def _facts(self, container: str, engine: str) -> tuple[EngineFact, ...]:
        known = load_engine(engine)
        reader, left = LogAnalyzer(known, ReadinessRule(known.defaults.ready_line, None)), _LINES
        async with aclosing(ContainerLogStream(self._session.link, container).read_available()) as batches:
            async for batch in batches:
                reader.feed_lines(batch[:left])
                left -= len(batch)
                if reader.was_ready or left <= 0:
                    break
                await asyncio.sleep(0)  # a long log holds up nobody else
        return tuple(reader.facts.values())


_EVERY = 10.0
_SOUGHT_EVERY = 30.0  # seconds between two looks for a guard's socket, which run a shell on the node


class GuardPoller:
    """Emits `GuardStood` of a node."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session, self._emit = session, emit
        self._socket: str | None = None

    async def run(self, answers: asyncio.Event) -> None:
        """Ask again and again while the node answers."""
        clock = self._session.clock
        while True:
            await answers.wait()
            with suppress(NodeError):  # the sampler meets it, too, and says so
                watched = await self._ask()
                if answers.is_set():
                    self._emit(GuardStatusChanged(clock.unix_time(), self._session.node.name, watched))
            await clock.sleep(_SOUGHT_EVERY if self._socket is None else _EVERY)

    async def _ask(self) -> tuple[str, ...] | None:
        """Return the instances that a guard watches, none where none runs; None where one may run that cannot be asked."""
        if self._socket is None:
            left = await guard_receipts.read_guard_directory(self._session)
            self._socket = left.socket
            if self._socket is None:
                return None if left.states else ()
        link = await GuardClient.connect_guard(self._session, self._socket)
        if link is None:  # it has gone, and its socket with it; or the node lets nobody through to it
            left = await guard_receipts.read_guard_directory(self._session)
            self._socket = left.socket
            return None if left.states else ()
        try:
            return tuple(watch.instance for watch in (await link.get_state()).watches)
        except GuardUnavailable:
            return None
        finally:
            await link.close()


_DOCKER_EVERY = 5.0
_METRICS_EVERY = 2.0
_STEPS_EVERY = 3.0  # the same while one goes on
_SWITCH_EVERY = 10.0  # seconds between two looks for a switch that somebody does or has left: a shell on the node each
_KEPT_EVERY = 120.0  # seconds between two words to the history
_ALIVE_EVERY = 5.0  # seconds between looks at whether an engine is due to be asked for a token
_MISPLACED_AGAIN = 10.0  # seconds until a file of ours is looked for once more: no node hears of it
_LOADING = (Phase.PLANNED, Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(slots=True)
class NodeMonitor:
    """Emits what happens on one node. ``run`` goes on until it is cancelled.

    ``every``: seconds between samples. While an instance of ours is loading there they come every second. ``again``:
    seconds until a node that cannot be used (a refused login, an unknown key, no Python) is tried once more; None: not. What
    is wrong on our side, as an identity file that is gone, is looked at again in any case: no node is asked for that.
    """

    ctx: CommandContext
    node: Node
    every: float
    emit: Callable[[Event], None]
    again: float | None = None
    who: AgentHello | None = None  # what the node said of itself last
    _troubles: frozenset[str] = frozenset()  # kinds of findings told of ``who``
    _instances: tuple[InstanceView, ...] = ()
    session: Session | None = None  # while it is open
    _told: dict[str, MeterReading] = field(default_factory=dict)
    _answers: asyncio.Event = field(default_factory=asyncio.Event)  # the node can be asked
    _listed: asyncio.Event = field(default_factory=asyncio.Event)  # and Docker has said what runs
    _switch: SwitchJournalStatus | None = None  # as it was told last
    _ended: frozenset[str] = frozenset()  # containers of ours that are there, and had ended when they were listed last
    _is_misplaced: bool = False  # what was wrong last is on our side
    _ahead: float = 0.0  # seconds that the node's clock is ahead of ours

    async def run(self) -> None:
        """Follow the node; without ``again`` ends where waiting does not help, the last event saying why."""
        asker = self.ctx.asker
        while True:
            again = await self._follow(Session(self.node, asker, self.ctx.clock))
            if again is None:
                return
            self._answers.clear()
            self._listed.clear()
            await self.ctx.clock.sleep(again)
            asker = asker if self._is_misplaced else NonInteractivePrompter()  # nobody is asked twice

    async def _follow(self, opened: Session) -> float | None:
        """Follow it as long as that can be; return in how many seconds to try again, None for not at all."""
        async with opened as session:
            self.session = session
            session.link.add_status_listener(lambda status: self._link_changed(session, status))
            sampler = NodeSampler(session, self.every)
            inspections = ContainerInspections(session)
            works = (
                self._list(session, sampler, inspections), self._poll_meters(session), self._poll_liveness(session, inspections),
                GuardPoller(session, self.emit).run(self._answers), self._read_engine_facts(session),
                self._poll_switch_journal(session),
            )  # fmt: skip
            beside = [asyncio.create_task(work) for work in works]
            try:
                with node_failures(self.node):
                    await self._sample(sampler, beside)
            except NodeError as error:
                again, self._is_misplaced = self.again, False
                self.emit(replace(build_failure_state(session, error), next_try=again))
            except InvalidInput as error:
                again, self._is_misplaced = min(self.again or _MISPLACED_AGAIN, _MISPLACED_AGAIN), True
                self.emit(replace(build_failure_state(session, error), next_try=again))
            else:
                return self.again
            finally:
                self.session = None
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
        return again

    async def _sample(self, sampler: NodeSampler, beside: Iterable[asyncio.Task[None]]) -> None:
        async with aclosing(sampler.stream_samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived):
                    self._ahead = event.sample.time - event.ts
                    self._answers.set()
                self.emit(event)
                if isinstance(event, SampleArrived) and sampler.identity is not self.who:
                    self.who = sampler.identity
                    self._tell_identity(event)
                for task in beside:
                    if task.done():
                        task.result()  # a defect is not to be hidden

    def _tell_identity(self, event: SampleArrived) -> None:
        """Tell what is wrong with how the node is set up, and what no longer is."""
        found = (
            [] if self.who is None else list(node_settings.list_setting_problems(event.node, self.who, event.sample))
        )
        for kind in self._troubles - {one.kind.value for one in found}:
            self.emit(FindingReported(event.ts, event.node, kind, Severity.GOOD, "no longer so"))
        for one in found:
            self.emit(FindingReported.of(event.ts, one))
        self._troubles = frozenset(one.kind.value for one in found)

    async def _list(self, session: Session, sampler: NodeSampler, inspections: ContainerInspections) -> None:
        """Ask Docker what runs, again and again."""
        while True:
            await self._answers.wait()
            try:
                listed = await read_container_list(session, inspections)
            except NodeError:  # the sampler meets it next, and brings the link back
                self._answers.clear()
                continue
            if self._answers.is_set():
                await self._why_ended(session, listed)
                self.emit(listed)
                if listed.known:
                    self._instances = listed.instances
                    self._listed.set()
                await self._set_rate(sampler)
            await self.ctx.clock.sleep(_DOCKER_EVERY)

    async def _set_rate(self, sampler: NodeSampler) -> None:
        loading = any(one.ours and one.phase in _LOADING for one in self._instances)
        wanted = min(self.every, LOADING_INTERVAL) if loading else self.every
        if wanted != sampler.every:
            await sampler.set_rate(wanted)

    async def _poll_meters(self, session: Session) -> None:
        """Read the engines again and again; of a node that cannot be asked nothing is told."""
        meters, watching = EngineMeters(session), EngineAverages()
        kept = session.clock.monotonic()
        try:
            while True:
                await self._listed.wait()
                try:
                    await meters.read(self._instances)
                    meters.follow_logs(self._ahead)
                    self._told = meters.current_readings(self._ahead)
                except NodeError:
                    self._told = dict.fromkeys(self._told, MeterReading(None))  # the sampler meets it, too, and says so
                for container, told in self._told.items():
                    watching.take(container, told.numbers)
                if session.clock.monotonic() - kept > _KEPT_EVERY:
                    kept = session.clock.monotonic()
                    await asyncio.to_thread(self._keep, watching)
                if self._listed.is_set():
                    emit_meter_readings(session, self._told, self.emit)
                await self.ctx.clock.sleep(_METRICS_EVERY)
        finally:
            self._keep(watching)
            await meters.aclose()

    def _keep(self, watching: EngineAverages) -> None:
        """Keep with its start what an engine was seen to do."""
        for container, length, rate in watching.take_changed():
            self.ctx.history.record_engine_figures(container, length, rate)

    async def _poll_liveness(self, session: Session, inspections: ContainerInspections) -> None:
        """Ask engines that have been idle for long for a token; it may take one minutes to give none."""
        liveness = LivenessProbe(session, inspections, self.emit, random.random)
        while True:
            await self._listed.wait()
            with suppress(NodeError, DockerError):  # the sampler meets it, too, and says so
                await liveness.probe_idle_engine(self._instances, lambda: self._told, self._ahead)
            await self.ctx.clock.sleep(_ALIVE_EVERY)

    async def _read_engine_facts(self, session: Session) -> None:
        """Read once what the log of each engine that is ready tells of how it runs."""
        learner = EngineFactsReader(session, self.emit)
        while True:
            await self._listed.wait()
            with suppress(NodeError):  # the sampler meets it, too, and says so
                await learner.read_new_logs(self._instances)
            await self.ctx.clock.sleep(_DOCKER_EVERY)

    async def _poll_switch_journal(self, session: Session) -> None:
        """Look again and again whether a switch goes on there, or was left; told when it is other than before."""
        while True:
            if not self._answers.is_set():
                self._switch = None  # who was away is told anew
            await self._answers.wait()
            await self._look_for_switch(session)
            goes_on = self._switch is not None and self._switch.journal is not None and self._switch.is_held
            await self.ctx.clock.sleep(_STEPS_EVERY if goes_on else _SWITCH_EVERY)

    async def _look_for_switch(self, session: Session) -> None:
        with suppress(NodeError):  # the sampler meets it, too, and says so
            view = await switch_journal.read_journal(session)
            if self._answers.is_set() and view != self._switch:
                self._switch = view
                self.emit(SwitchFound(self.ctx.clock.unix_time(), self.node.name, view))

    async def _why_ended(self, session: Session, listed: ContainersListed) -> None:
        """Look for a switch before something is told to have ended: it may have been stopped by one."""
        if not listed.known:
            return
        ended = {one.container_id for one in listed.instances if one.ours and not one.is_alive and one.container_id}
        if ended - self._ended:
            await self._look_for_switch(session)
        self._ended = frozenset(ended)

    def _link_changed(self, session: Session, status: ConnectionStatus) -> None:
        if status.state in (NodeState.OK, NodeState.UNKNOWN):
            return  # a sample will tell more
        self._answers.clear()
        self._listed.clear()  # there is nothing to ask until the node is back
        self.emit(session.build_state_event(status))


async def read_container_list(session: Session, inspections: ContainerInspections) -> ContainersListed:
    """Return what Docker says runs, or why it does not say. Raises NodeError where the node cannot be asked."""
    name, spec = session.node.name, session.node.memory_bandwidth_gb_s
    try:
        containers = await session.docker.list_containers()
        await inspections.read(containers)
        shown = await gather_or_cancel(*(_instance(session, one) for one in containers))
    except DockerError as error:
        return ContainersListed(
            session.clock.unix_time(), name, known=False, detail=error.message, hint=error.hint, memory_bandwidth=spec
        )
    return ContainersListed(
        session.clock.unix_time(),
        name,
        tuple(inspections.add_inspection(one) for one in shown if one),
        memory_bandwidth=spec,
    )


async def _instance(session: Session, container: Container) -> InstanceView | None:
    view = await build_instance_view(session, container, None)
    if view is None or not view.ours:
        return view
    return replace(view, per_step=decode_step_estimate.decode_label(container.label(ContainerLabel.PER_STEP)))


def emit_meter_readings(session: Session, told: dict[str, MeterReading], emit: Callable[[Event], None]) -> None:
    """Emit the engines' figures."""
    for container, its in told.items():
        emit(MeterArrived(session.clock.unix_time(), session.node.name, container, its.numbers, its.hint))


def build_failure_state(session: Session, error: NodeError | InvalidInput) -> NodeStateChanged:
    """Return the state that an error stands for, with its words; of a fault of ours, that nothing is known of the node."""
    state = node_state_for_error(error) if isinstance(error, NodeError) else NodeState.UNKNOWN
    return NodeStateChanged(session.clock.unix_time(), session.node.name, state, error.message, hint=error.hint)
