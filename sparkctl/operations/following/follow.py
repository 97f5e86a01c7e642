"""One node, followed: samples, what Docker says runs, and the engines' figures, each by a task of its own.

None of them waits for another: a Docker that hangs, or an engine that does not answer, holds up no sample.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from sparkctl.core import per_step
from sparkctl.core.context import Context
from sparkctl.core.health import identity
from sparkctl.core.sampler import WHILE_LOADING, Sampler
from sparkctl.core.session import Session, node_failures
from sparkctl.core.together import together
from sparkctl.errors import DockerError, InvalidInput, NodeError
from sparkctl.model.ask import Nobody
from sparkctl.model.container import Container
from sparkctl.model.events import (
    ContainersListed,
    Event,
    Found,
    NodeStateChanged,
    NumbersArrived,
    SampleArrived,
    SwitchFound,
)
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import Node, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.plan import Label
from sparkctl.model.switch import JournalView
from sparkctl.operations.following.figures import Watching
from sparkctl.operations.following.guarding import Guarding
from sparkctl.operations.following.inspecting import Inspections
from sparkctl.operations.following.learning import Learner
from sparkctl.operations.following.liveness import Liveness
from sparkctl.operations.following.numbers import Meters, Told
from sparkctl.operations.status import instance_view
from sparkctl.operations.switching import journal
from sparkctl.probe.decode import Hello
from sparkctl.wire.link import LinkStatus, state_of

_DOCKER_EVERY = 5.0
_METRICS_EVERY = 2.0
_STEPS_EVERY = 3.0  # the same while one goes on
_SWITCH_EVERY = 10.0  # seconds between two looks for a switch that somebody does or has left: a shell on the node each
_KEPT_EVERY = 120.0  # seconds between two words to the history
_ALIVE_EVERY = 5.0  # seconds between looks at whether an engine is due to be asked for a token
_MISPLACED_AGAIN = 10.0  # seconds until a file of ours is looked for once more: no node hears of it
_LOADING = (Phase.PLANNED, Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)


@dataclass(slots=True)
class Follower:
    """Emits what happens on one node. ``run`` goes on until it is cancelled.

    ``every``: seconds between samples. While an instance of ours is loading there they come every second. ``again``:
    seconds until a node that cannot be used (a refused login, an unknown key, no Python) is tried once more; None: not. What
    is wrong on our side, as an identity file that is gone, is looked at again in any case: no node is asked for that.
    """

    ctx: Context
    node: Node
    every: float
    emit: Callable[[Event], None]
    again: float | None = None
    who: Hello | None = None  # what the node said of itself last
    _troubles: frozenset[str] = frozenset()  # kinds of findings told of ``who``
    _instances: tuple[InstanceView, ...] = ()
    session: Session | None = None  # while it is open
    _told: dict[str, Told] = field(default_factory=dict)
    _answers: asyncio.Event = field(default_factory=asyncio.Event)  # the node can be asked
    _listed: asyncio.Event = field(default_factory=asyncio.Event)  # and Docker has said what runs
    _switch: JournalView | None = None  # as it was told last
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
            asker = asker if self._is_misplaced else Nobody()  # nobody is asked twice

    async def _follow(self, opened: Session) -> float | None:
        """Follow it as long as that can be; return in how many seconds to try again, None for not at all."""
        async with opened as session:
            self.session = session
            session.link.on_status(lambda status: self._link_changed(session, status))
            sampler = Sampler(session, self.every)
            inspections = Inspections(session)
            works = (
                self._list(session, sampler, inspections), self._count(session), self._ask(session, inspections),
                Guarding(session, self.emit).run(self._answers), self._learn(session),
                self._find_switch(session),
            )  # fmt: skip
            beside = [asyncio.create_task(work) for work in works]
            try:
                with node_failures(self.node):
                    await self._sample(sampler, beside)
            except NodeError as error:
                again, self._is_misplaced = self.again, False
                self.emit(replace(failed(session, error), next_try=again))
            except InvalidInput as error:
                again, self._is_misplaced = min(self.again or _MISPLACED_AGAIN, _MISPLACED_AGAIN), True
                self.emit(replace(failed(session, error), next_try=again))
            else:
                return self.again
            finally:
                self.session = None
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
        return again

    async def _sample(self, sampler: Sampler, beside: Iterable[asyncio.Task[None]]) -> None:
        async with aclosing(sampler.samples()) as events:
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
        found = [] if self.who is None else list(identity.troubles(event.node, self.who, event.sample))
        for kind in self._troubles - {one.kind.value for one in found}:
            self.emit(Found(event.ts, event.node, kind, Severity.GOOD, "no longer so"))
        for one in found:
            self.emit(Found.of(event.ts, one))
        self._troubles = frozenset(one.kind.value for one in found)

    async def _list(self, session: Session, sampler: Sampler, inspections: Inspections) -> None:
        """Ask Docker what runs, again and again."""
        while True:
            await self._answers.wait()
            try:
                listed = await listing(session, inspections)
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

    async def _set_rate(self, sampler: Sampler) -> None:
        loading = any(one.ours and one.phase in _LOADING for one in self._instances)
        wanted = min(self.every, WHILE_LOADING) if loading else self.every
        if wanted != sampler.every:
            await sampler.set_rate(wanted)

    async def _count(self, session: Session) -> None:
        """Read the engines again and again; of a node that cannot be asked nothing is told."""
        meters, watching = Meters(session), Watching()
        kept = session.clock.monotonic()
        try:
            while True:
                await self._listed.wait()
                try:
                    await meters.read(self._instances)
                    meters.follow_logs(self._ahead)
                    self._told = meters.told(self._ahead)
                except NodeError:
                    self._told = dict.fromkeys(self._told, Told(None))  # the sampler meets it, too, and says so
                for container, told in self._told.items():
                    watching.take(container, told.numbers)
                if session.clock.monotonic() - kept > _KEPT_EVERY:
                    kept = session.clock.monotonic()
                    await asyncio.to_thread(self._keep, watching)
                if self._listed.is_set():
                    emit_told(session, self._told, self.emit)
                await self.ctx.clock.sleep(_METRICS_EVERY)
        finally:
            self._keep(watching)
            await meters.aclose()

    def _keep(self, watching: Watching) -> None:
        """Keep with its start what an engine was seen to do."""
        for container, length, rate in watching.news():
            self.ctx.history.saw(container, length, rate)

    async def _ask(self, session: Session, inspections: Inspections) -> None:
        """Ask engines that have been idle for long for a token; it may take one minutes to give none."""
        liveness = Liveness(session, inspections, self.emit, random.random)
        while True:
            await self._listed.wait()
            with suppress(NodeError, DockerError):  # the sampler meets it, too, and says so
                await liveness.look(self._instances, lambda: self._told, self._ahead)
            await self.ctx.clock.sleep(_ALIVE_EVERY)

    async def _learn(self, session: Session) -> None:
        """Read once what the log of each engine that is ready tells of how it runs."""
        learner = Learner(session, self.emit)
        while True:
            await self._listed.wait()
            with suppress(NodeError):  # the sampler meets it, too, and says so
                await learner.look(self._instances)
            await self.ctx.clock.sleep(_DOCKER_EVERY)

    async def _find_switch(self, session: Session) -> None:
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
            view = await journal.read(session)
            if self._answers.is_set() and view != self._switch:
                self._switch = view
                self.emit(SwitchFound(self.ctx.clock.now(), self.node.name, view))

    async def _why_ended(self, session: Session, listed: ContainersListed) -> None:
        """Look for a switch before something is told to have ended: it may have been stopped by one."""
        if not listed.known:
            return
        ended = {one.container_id for one in listed.instances if one.ours and not one.is_alive and one.container_id}
        if ended - self._ended:
            await self._look_for_switch(session)
        self._ended = frozenset(ended)

    def _link_changed(self, session: Session, status: LinkStatus) -> None:
        if status.state in (NodeState.OK, NodeState.UNKNOWN):
            return  # a sample will tell more
        self._answers.clear()
        self._listed.clear()  # there is nothing to ask until the node is back
        self.emit(session.state_event(status))


async def listing(session: Session, inspections: Inspections) -> ContainersListed:
    """Return what Docker says runs, or why it does not say. Raises NodeError where the node cannot be asked."""
    name, spec = session.node.name, session.node.memory_bandwidth_gb_s
    try:
        containers = await session.docker.list()
        await inspections.read(containers)
        shown = await together(*(_instance(session, one) for one in containers))
    except DockerError as error:
        return ContainersListed(
            session.clock.now(), name, known=False, detail=error.message, hint=error.hint, memory_bandwidth=spec
        )
    return ContainersListed(
        session.clock.now(), name, tuple(inspections.told(one) for one in shown if one), memory_bandwidth=spec
    )


async def _instance(session: Session, container: Container) -> InstanceView | None:
    view = await instance_view(session, container, None)
    if view is None or not view.ours:
        return view
    return replace(view, per_step=per_step.decode(container.label(Label.PER_STEP)))


def emit_told(session: Session, told: dict[str, Told], emit: Callable[[Event], None]) -> None:
    """Emit the engines' figures."""
    for container, its in told.items():
        emit(NumbersArrived(session.clock.now(), session.node.name, container, its.numbers, its.hint))


def failed(session: Session, error: NodeError | InvalidInput) -> NodeStateChanged:
    """Return the state that an error stands for, with its words; of a fault of ours, that nothing is known of the node."""
    state = state_of(error) if isinstance(error, NodeError) else NodeState.UNKNOWN
    return NodeStateChanged(session.clock.now(), session.node.name, state, error.message, hint=error.hint)
