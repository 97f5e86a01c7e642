"""``down`` and ``free``: stop whole instances, all ranks of them, and prove that what they held is back."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from sparkctl.core.context import Context
from sparkctl.core.last_known import Started, last_known
from sparkctl.core.owed import SETTLED_BY, Owed, OwedStops
from sparkctl.core.session import Session
from sparkctl.core.wholes import Occupant, Whole, wholes
from sparkctl.errors import (
    DockerDown,
    DockerError,
    ExitCode,
    InvalidInput,
    LinkLost,
    NodeError,
    Refused,
    SparkctlError,
    Starved,
    Unreachable,
)
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, Outcome, Warned
from sparkctl.model.history import Kind
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label
from sparkctl.model.suggest import did_you_mean
from sparkctl.model.switch import Found
from sparkctl.model.text import clean
from sparkctl.operations.chronicled import Subject, chronicled
from sparkctl.operations.labels import port_of
from sparkctl.operations.lock import StartLock, StepLock, acquire
from sparkctl.operations.stopping import freed
from sparkctl.operations.stopping.halting import Halt, stop_all
from sparkctl.operations.stream import Emit, ended_by, opened, stream
from sparkctl.operations.switching import journal as journals

_LOG_FIRST = (
    "find out why (is this disk full? df -h), then repeat the command: it saves the log and removes the container"
)
_AWAY = (Unreachable, Starved, LinkLost, DockerDown)  # whatever runs there is not known, and runs on


@dataclass(frozen=True, slots=True)
class DownRequest:
    """``instance`` None means every instance of ours on these nodes. ``grace`` is seconds between TERM and KILL.

    ``known`` are the names that are not misspelt: profiles, and whatever was started before. ``everywhere`` are all nodes
    there are: where the other ranks of a model are looked for. ``frees``: the nodes are to be free, so what stays is told.
    """

    instance: str | None
    nodes: Sequence[Node]
    grace: float | None = None
    known: frozenset[str] = frozenset()
    everywhere: Sequence[Node] = ()
    frees: bool = False
    dry_run: bool = False

    @property
    def again(self) -> str | None:
        """The command that frees the same nodes again; None of a stop, which asks for what is gone."""
        if not self.frees:
            return None
        grace = [] if self.grace is None else [f"--grace={self.grace:g}s"]
        return shlex.join(["sparkctl", "free", *(node.name for node in self.nodes), *grace])


def down(ctx: Context, request: DownRequest) -> AsyncGenerator[Event, None]:
    """Stop what was asked. Nothing running is success; a node that could not be asked never counts as stopped."""

    def run(own: Context) -> AsyncGenerator[Event, None]:
        return stream(
            own,
            _Down(own, request).run,
            request.instance,
            on_interrupt="interrupted; what was told to stop goes on stopping: sparkctl status",
        )

    if request.dry_run:
        return run(ctx)
    return chronicled(ctx, Subject(Kind.STOP, request.nodes, request.instance, command=request.again), run)


class _Down:
    """One run of the verb: what each node has, why one could not be asked, and what came of it."""

    def __init__(self, ctx: Context, request: DownRequest) -> None:
        self.ctx, self.request = ctx, request
        self.emit: Emit = lambda event: None
        self.began = ctx.clock.monotonic()
        self.asked = [node.name for node in request.nodes]
        self.sessions: dict[NodeName, Session] = {}
        self.containers: dict[NodeName, tuple[Container, ...]] = {}
        self.failures: dict[NodeName, SparkctlError] = {}
        self.unmatched: list[str] = []
        self.owed = OwedStops(ctx.history.directory)

    async def run(self, emit: Emit) -> Ended:
        """Look everywhere first, then stop everything at once."""
        self.emit = emit
        async with AsyncExitStack() as stack:
            await self._visit(self.request.nodes, stack)
            await self._follow(stack)
            chosen = self._chosen()
            if self.request.dry_run:
                self._tell(chosen)
                return await self._planned(chosen)
            if not chosen:
                self._refuse_foreign()
                return await self._end(Halt(), chosen)
            with self._taken_over(chosen):
                return await self._stop(chosen)

    async def _stop(self, chosen: Sequence[Whole]) -> Ended:
        locks = await self._lock(chosen)
        try:
            chosen = self._whole_ones(await self._look_again(locks))
            self._tell(chosen)
            by_node = {
                node: [part.container for whole in chosen for part in whole.on(node)]
                for node in locks
                if any(whole.on(node) for whole in chosen)
            }
            halt = await stop_all(self.sessions, self.ctx, self.emit, by_node, self.request.grace)
        finally:
            for lock in locks.values():
                await lock.release()
        self.failures |= dict(halt.failures)
        return await self._end(halt, chosen)

    @contextlib.contextmanager
    def _taken_over(self, chosen: Sequence[Whole]) -> Iterator[None]:
        """What was owed of these is what is done now; where it is not, it is owed as before."""
        own = [
            one
            for one in self.owed.all(self.ctx.clock.now())
            if any(one.is_meant(part.container) for whole in chosen for part in whole.on(one.node))
        ]
        for one in own:
            self.owed.drop(one)
        is_through = False
        try:
            yield
            is_through = True
        finally:
            for one in own:
                if not is_through or one.node in self.failures:
                    with contextlib.suppress(OSError):
                        self.owed.keep(one)

    # looking

    async def _visit(self, nodes: Iterable[Node], stack: AsyncExitStack) -> None:
        """Ask nodes what stands there, all at once."""
        new = [node for node in nodes if node.name not in self.sessions]
        for node in new:
            self.sessions[node.name] = await opened(stack, self.ctx, node, self.emit)

        async def ask(session: Session) -> tuple[Container, ...]:
            await session.link.connect()
            return await session.docker.list()

        answers = await asyncio.gather(*(ask(self.sessions[node.name]) for node in new), return_exceptions=True)
        for node, answer in zip(new, answers, strict=True):
            if isinstance(answer, SparkctlError):
                self.failures[node.name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self.containers[node.name] = answer

    async def _follow(self, stack: AsyncExitStack) -> None:
        """Ask where the other ranks are: by the names that whoever started them gave, else all nodes there are."""
        if any(node in self.failures for node in self.asked):
            await self._visit(self.request.everywhere, stack)  # what it does not say, its other ranks may
        for whole in self._chosen():
            await self._visit([n for n in self.request.everywhere if n.name in whole.elsewhere], stack)
        if any(whole.missing and (self._strangers(whole) or not whole.elsewhere) for whole in self._chosen()):
            await self._visit(self.request.everywhere, stack)  # this operator may call them otherwise
        for whole in self._chosen():
            self.unmatched += [f"{whole.name} on {name}" for name in self._strangers(whole)]

    def _strangers(self, whole: Whole) -> list[str]:
        """Return the names of nodes with a rank that was not found, and that no node here is called."""
        return [name for name in whole.elsewhere if name not in self.sessions] if whole.missing else []

    def _chosen(self) -> list[Whole]:
        """Return what is to be stopped: whole instances of which any part is where it was asked.

        Also where its other ranks say that a part is there, and that node does not answer.
        """
        silent = [node for node in self.asked if node in self.failures]
        occupants = [
            Occupant(node, one, None, port_of(one))
            for node, containers in self.containers.items()
            for one in containers
            if one.is_ours and self.request.instance in (None, one.label(Label.INSTANCE))
        ]
        return [
            whole
            for whole in wholes(occupants)
            if any(node in self.asked for node in whole.nodes) or any(node in silent for node in whole.elsewhere)
        ]

    def _tell(self, chosen: Sequence[Whole]) -> None:
        """Say what goes with what was asked for."""
        for whole in chosen:
            if all(node in self.asked for node in whole.nodes):
                continue
            silent = [NodeName(node) for node in whole.elsewhere if node in self.failures]
            what = "would be stopped" if self.request.dry_run else "is stopped"
            where = (
                f"on {_both(whole.nodes)} now, and on {_both(silent)} at the next contact"
                if silent
                else "on all of them"
            )
            self._warn(
                whole.nodes[0], f"{whole.name} is one model on {_both((*whole.nodes, *silent))}: it {what} {where}"
            )
        for words in self.unmatched:
            hint = "look there with: sparkctl status --node USER@HOST, or give it that name in the config"
            self._warn(None, f"a rank of {words} was not found: no node is called so here", hint)

    def _refuse_foreign(self) -> None:
        """A running container of that name which is not ours is never stopped, and not passed over in silence either."""
        for node, containers in self.containers.items():
            for one in containers:
                if one.name == self.request.instance and one.is_alive and node in self.asked:
                    raise Refused(
                        f"{one.name} on {node} was not started by sparkctl and is left alone",
                        f"on {node}: docker stop {one.name}",
                    )

    # changing

    async def _lock(self, chosen: Sequence[Whole]) -> dict[NodeName, StartLock | StepLock]:
        """Take the locks of all nodes that are touched, in the order of their names, so that two never wait for each other."""
        locks: dict[NodeName, StartLock | StepLock] = {}
        doing = f"stopping {self.request.instance or 'everything'}"
        for node in sorted({node for whole in chosen for node in whole.nodes}):
            warn = partial(self._warn, node)
            try:
                locks[node] = await acquire(self.sessions[node], self.ctx, doing, warn, beside_ourselves=True)
            except SparkctlError as error:
                self.failures[node] = error
        return locks

    async def _look_again(self, locks: Iterable[NodeName]) -> list[Whole]:
        """Return what is to be stopped now: somebody may have stopped it while we waited."""
        for node in locks:
            try:
                self.containers[node] = await self.sessions[node].docker.list()
            except (NodeError, DockerError) as error:
                self.failures[node] = error
        return self._chosen()

    def _whole_ones(self, chosen: Sequence[Whole]) -> list[Whole]:
        """Leave out what somebody else is at work on anywhere: stopping the rest of it would leave a half."""
        busy = {node for node, error in self.failures.items() if isinstance(error, Refused)}
        return [whole for whole in chosen if not busy.intersection(whole.nodes)]

    async def _refuse_during_switch(self, chosen: Sequence[Whole]) -> None:
        """Have the refusal that stopping them would end with, where a switch goes on or was left."""
        for node in sorted({node for whole in chosen for node in whole.nodes}):
            try:
                view = await journals.read(self.sessions[node])
            except NodeError as error:
                self.failures[node] = error
                continue
            if view.found is not Found.NONE and node not in self.ctx.holds:
                self.failures[node] = journals.underway(node, view, is_held=view.is_held)

    # saying

    async def _planned(self, chosen: Sequence[Whole]) -> Ended:
        await self._refuse_during_switch(chosen)
        lines = [f"would stop {whole.name} on {_both(whole.nodes)}" for whole in chosen]
        stays = await freed.stays(self.ctx, self._asked_sessions(), self.emit)
        if (failure := self._told_failure()) is not None:
            return ended_by(failure, self.ctx, self._seconds)
        message = "\n".join([*(lines or ["nothing that sparkctl started runs there"]), *stays])
        return Ended(self.ctx.clock.now(), Outcome.PLANNED, int(ExitCode.DONE), self._seconds, message=message)

    async def _end(self, halt: Halt, chosen: Sequence[Whole]) -> Ended:
        self._owe(halt, chosen)
        if (failure := self._told_failure()) is not None:
            return ended_by(failure, self.ctx, self._seconds, self.request.instance)
        asked, done = self.request.instance, halt.stopped
        if not done and asked is not None and asked not in self.request.known:
            raise InvalidInput(
                f"no instance and no profile is called {asked}{did_you_mean(asked, self.request.known)}",
                "see what runs: sparkctl status",
            )
        kept = [f"{clean(one.kept)} on {one.node}" for one in done if one.kept is not None]
        is_good = all(one.is_proved for one in done) and not self.unmatched and not kept
        lines: list[str] = []
        if not done:
            what = f"{asked} does not run" if asked else "nothing that sparkctl started runs"
            lines.append(f"{what} on {' or '.join(self.asked)}; nothing to stop")
        if self.request.frees:
            lines += await freed.stays(self.ctx, self._asked_sessions(), self.emit)
        if self.unmatched:
            lines = [f"stopped here, but a rank may still run: {', '.join(self.unmatched)}"]
        elif not all(one.is_proved for one in done):
            lines = ["stopped, but not everything that it held is back"]
        elif kept:
            lines = [
                f"stopped, but {' and '.join(kept)} {'was' if len(kept) == 1 else 'were'} kept: the log could not be saved"
            ]
        return Ended(
            self.ctx.clock.now(),
            Outcome.DONE if is_good else Outcome.UNHEALTHY,
            int(ExitCode.DONE if is_good else ExitCode.UNHEALTHY),
            self._seconds,
            instance=asked,
            message="\n".join(lines) or None,
            hint=_LOG_FIRST if kept else None,
            log=next((one.log for one in done if one.log), None),
        )

    def _asked_sessions(self) -> list[Session]:
        return [self.sessions[node] for node in self.asked if node not in self.failures]

    def _told_failure(self) -> SparkctlError | None:
        """Return the failure that decides the end, where there is any; tell of every other one."""
        order = [node for node in self.sessions if node in self.failures]
        told = {self.failures[order[0]].message} if order else set()
        for node in order[1:]:
            if self.failures[node].message not in told:
                told.add(self.failures[node].message)
                self._warn(node, self.failures[node].message, self.failures[node].hint)
        return self.failures[order[0]] if order else None

    def _owe(self, halt: Halt, chosen: Sequence[Whole]) -> None:
        """Keep what is still to be done on nodes that could not be asked, for the next contact with them."""
        now, done = self.ctx.clock.now(), {one.container_id for one in halt.stopped}
        unseen = self._unseen(done)
        for node, error in self.failures.items():
            if not isinstance(error, _AWAY):
                continue
            left = [
                Owed(node, whole.name, now, (part.container.id,), whole.label(Label.RUN))
                for whole in chosen
                for part in whole.on(node)
                if part.container.id not in done
            ]
            left += [
                Owed(node, whole.name, now, (), whole.label(Label.RUN))
                for whole in chosen
                if whole.missing and node in whole.elsewhere and whole.label(Label.RUN)
            ]
            if node not in self.containers:
                told = {one.instance for one in left}
                left += [
                    Owed(node, one.instance, now, one.on(node))
                    for one in unseen
                    if one.on(node) and one.instance not in told
                ]
            with contextlib.suppress(OSError):
                for one in left:
                    self.owed.keep(one)
                if left:
                    names = ", ".join(dict.fromkeys(one.instance for one in left))
                    self._warn(
                        node,
                        f"what may still run there of {names} is stopped at the next contact with {node}",
                        f"that is {SETTLED_BY} there within a day; until then status tells of it",
                    )

    def _unseen(self, done: Collection[str]) -> list[Started]:
        """Return what was started last from here on the nodes that were asked and do not say what they have: the whole of it,
        and nothing of which another rank is seen to run on."""
        silent = [node for node in self.asked if node in self.failures and node not in self.containers]
        if not silent:
            return []
        history, named = self.ctx.history, self.request.instance
        operations = history.operations(named, most=-1)
        started = [one for one in last_known(operations) if named in (None, one.instance)]
        if named is not None and not operations:  # the history is lost, or too old
            logs = [one for node in silent for one in history.saved_logs(named, [node])[:1]]
            started = [Started(named, ((NodeName(one.node), one.container),)) for one in logs]
        runs = {
            one.id[:12]
            for containers in self.containers.values()
            for one in containers
            if one.is_alive and one.id not in done
        }
        latest = {(one.instance, node): one for one in reversed(started) for node in silent if one.on(node)}
        return [
            one for one in dict.fromkeys(latest.values()) if not any(container in runs for _, container in one.parts)
        ]

    @property
    def _seconds(self) -> float:
        return self.ctx.clock.monotonic() - self.began

    def _warn(self, node: NodeName | None, message: str, hint: str | None = None) -> None:
        self.emit(Warned(self.ctx.clock.now(), node, message, hint))


def _both(nodes: Sequence[NodeName]) -> str:
    return " and ".join(dict.fromkeys(nodes))
