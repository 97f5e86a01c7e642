"""``up`` of a profile with needs: all nodes are locked and everything is checked first; then each need starts and proves
itself before the next. Where one fails, those that were started for it stop again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from sparkctl.commands.event_stream import deduplicate_warnings, forward_events, open_session, stream_events
from sparkctl.commands.node_lock import acquire_node_lock
from sparkctl.commands.start.start_instance import start_instance, wait_for_turn
from sparkctl.commands.start.start_request import StartInstance, find_need_node
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext, NodeLock
from sparkctl.model.events import CommandEnded, Emit, Event, MemoryFitEvaluated, Outcome, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.node_session import NodeSession, SharedSession, isolate_node_failures

_UNCHANGED_MESSAGE = "interrupted before anything was changed"
# outcomes after which a container may still start or run, and so may need what was started for it
_OPEN_OUTCOMES = (Outcome.TIMED_OUT, Outcome.INTERRUPTED, Outcome.UNREACHABLE)
_GOOD_OUTCOMES = (Outcome.READY, Outcome.DETACHED, Outcome.UNPROVED, Outcome.PLANNED)


def start_with_needs(ctx: CommandContext, request: StartInstance) -> AsyncGenerator[Event, None]:
    """Start a profile after what it needs; the last event is the `CommandEnded` of the start that decided."""

    async def run_chain(emit: Emit) -> CommandEnded:
        return await _ChainRun(ctx, list_chain(request)).run(emit)

    return stream_events(ctx, run_chain, request.profile.name, request.head_node.name, on_interrupt=None)


def list_chain(request: StartInstance) -> tuple[StartInstance, ...]:
    """Return the starts that a start consists of, in their order; the last is its own. Raises `InvalidInput` for a need
    on a node that nobody knows.
    """
    own, chain = request.profile, []
    for need in ProfileLibrary().load_needs(own):
        node = (
            request.head_node if need.node is None else find_need_node(need.node, own, (*request.nodes, *request.known))
        )
        labels = (*_build_needs_label(need.profile.needs, node), (ContainerLabel.STARTED_FOR, own.name))
        one = StartInstance(
            profile=need.profile, nodes=(node,), names_nodes=True,
            dry_run=request.dry_run, timeout=request.timeout, environ=request.environ, words=(need.profile.name,),
            guarded=request.guarded, once_more=request.once_more, forced=request.forced, kept=request.kept,
            switch_flags=request.switch_flags, alone=True, labels=labels,
        )  # fmt: skip
        chain.append(one)
    return (*chain, replace(request, alone=True, labels=_build_needs_label(own.needs, request.head_node)))


def _build_needs_label(needs: Sequence[str], node: Node) -> tuple[tuple[str, str], ...]:
    """Return the label that names what a container needs, and where."""
    named = [text if "@" in text else f"{text}@{node.name}" for text in needs]
    return ((ContainerLabel.NEEDS, ",".join(named)),) if named else ()


def add_reserved(reserved: dict[NodeName, int], fits: Sequence[MemoryFit]) -> None:
    """Count what a start that was only looked at will take on its nodes, for those that follow it."""
    for fit in fits:
        reserved[fit.node] = reserved.get(fit.node, 0) + (fit.needed_bytes or 0)


@dataclass(slots=True)
class _ChainRun:
    """One run of the command over ``chain``, the starts in their order."""

    ctx: CommandContext
    chain: tuple[StartInstance, ...]

    async def run(self, emit: Emit) -> CommandEnded:
        """Lock, look, then start one after the other."""
        emit = deduplicate_warnings(emit)
        nodes = {node.name: node for one in self.chain for node in one.nodes}
        async with AsyncExitStack() as stack:
            sessions = {name: await open_session(stack, self.ctx, node, emit) for name, node in nodes.items()}
            if self.chain[-1].dry_run:
                return await self._check_everything(self._share(sessions, {}), emit, emit)
            locks: dict[NodeName, NodeLock] = {}

            async def lock_nodes(taken: AsyncExitStack) -> None:
                # The same order for everyone: two starts over the same Sparks never wait for each other.
                for name in sorted(nodes):
                    locks[name] = await self.ctx.interrupt.run_interruptible(
                        self._lock_node(taken, sessions[name], emit), _UNCHANGED_MESSAGE
                    )

            await wait_for_turn(self.ctx, self.chain[-1], emit, stack, lock_nodes, tuple(nodes))
            own = self._share(sessions, locks)
            seen: list[Event] = []
            looked = await self._check_everything(own, emit, seen.append)
            if looked.outcome is not Outcome.PLANNED:
                for event in seen:
                    emit(event)
                return looked
            there = await self._list_running(sessions)
            return await self._start_all(own, there, emit)

    def _share(self, sessions: dict[NodeName, NodeSession], locks: dict[NodeName, NodeLock]) -> CommandContext:
        return replace(
            self.ctx, lend=lambda node: SharedSession(sessions[node.name]), holds={**self.ctx.holds, **locks}
        )

    async def _lock_node(self, stack: AsyncExitStack, session: NodeSession, emit: Emit) -> NodeLock:
        def warn(message: str) -> None:
            emit(WarningEmitted(self.ctx.clock.unix_time(), session.node.name, message))

        with isolate_node_failures(session.node):
            await session.link.connect()
            lock = await acquire_node_lock(session, self.ctx, f"starting {self.chain[-1].profile.name}", warn)
        stack.push_async_callback(lock.release)
        return lock

    async def _check_everything(self, own: CommandContext, emit: Emit, show: Emit) -> CommandEnded:
        """Look at every start as `--dry-run` does, with the memory of those before it counted; changes nothing."""
        reserved: dict[NodeName, int] = {}
        ended: CommandEnded | None = None
        for one in self.chain:
            fits: list[MemoryFit] = []
            looked = replace(one, dry_run=True, reserved=dict(reserved))
            ended = await forward_events(start_instance(own, looked), partial(_collect_fit, show, fits))
            if ended.outcome is not Outcome.PLANNED:
                return ended
            add_reserved(reserved, fits)
        assert ended is not None
        return ended

    async def _list_running(self, sessions: dict[NodeName, NodeSession]) -> frozenset[tuple[str, NodeName]]:
        """Return what ran before, by instance and node."""
        names = list(sessions)
        found = await gather_or_cancel(*(sessions[name].docker.list_containers() for name in names))
        return frozenset(
            (one.get_label(ContainerLabel.INSTANCE) or "", name)
            for name, here in zip(names, found, strict=True)
            for one in here
            if one.is_alive
        )

    async def _start_all(self, own: CommandContext, there: frozenset[tuple[str, NodeName]], emit: Emit) -> CommandEnded:
        started: list[StartInstance] = []
        *needs, last = self.chain
        for one in needs:
            ended = await forward_events(start_instance(own, one), emit)
            is_new = (one.profile.name, one.head_node.name) not in there
            if ended.outcome is Outcome.READY:
                started += [one] if is_new else []
                continue
            what = f"{last.profile.name} was not started: {one.profile.name}, which it needs, is not ready"
            if ended.outcome not in _OPEN_OUTCOMES:
                failed = [one] if is_new and ended.outcome is Outcome.UNPROVED else []
                await self._stop_again(own, [*started, *failed], emit)
            return replace(ended, message="; ".join(filter(None, (what, ended.message))))
        ended = await forward_events(start_instance(own, last), emit)
        if ended.outcome not in (*_GOOD_OUTCOMES, *_OPEN_OUTCOMES):
            await self._stop_again(own, started, emit)
        return ended

    async def _stop_again(self, own: CommandContext, started: Sequence[StartInstance], emit: Emit) -> None:
        """Stop what was started for a start that failed, the last first; what ran before goes on."""
        for one in reversed(started):
            name, node = one.profile.name, one.head_node
            request = StopInstance(instance=name, nodes=(node,), known=frozenset((name,)), alone=True)
            ended = await forward_events(stop_instance(own, request), emit)
            words = f"{name} is stopped again: it was started for {self.chain[-1].profile.name}"
            hint = None
            if ended.exit_code:
                words = f"{name} was started for {self.chain[-1].profile.name}, and is not stopped: {ended.message}"
                hint = f"sparkctl down {name} --node {node.name}"
            emit(WarningEmitted(self.ctx.clock.unix_time(), node.name, words, hint))


def _collect_fit(show: Emit, fits: list[MemoryFit], event: Event) -> None:
    if isinstance(event, MemoryFitEvaluated):
        fits.append(event.fit)
    show(event)
