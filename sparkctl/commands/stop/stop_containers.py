"""Stops several containers in parallel, over open sessions and under locks that the caller holds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sparkctl.commands.guard_session import stop_watching_containers
from sparkctl.commands.stop.release_check import MIN_AWAITED_BYTES, ReleaseCheck, ReleaseResult, build_leftover_warning
from sparkctl.concurrency import gather_or_cancel, run_until_first
from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound, NodeError, OperationRefused, SparkctlError
from sparkctl.history.model import NodeResult
from sparkctl.logs.reader import SaveLogResult, save_log
from sparkctl.model.container import Container
from sparkctl.model.events import Emit, MemoryReleased, PhaseChanged, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_gib
from sparkctl.monitor.guard_client import GuardDirectory, read_guard_directory
from sparkctl.monitor.meters import engine_meters
from sparkctl.profiles.container_labels import parse_rank_label, parse_start_id_label, parse_stop_grace_label
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedContainer:
    """The result for one container. ``removed`` is False where it was kept, ended: on request, or because its log
    could not be saved completely.
    """

    proof: ReleaseResult
    log: str | None
    removed: bool
    node: NodeName
    container_id: str
    container_name: str

    @property
    def is_proved(self) -> bool:
        """Tell whether it is known to hold nothing any more."""
        return self.proof.is_complete

    @property
    def kept_name(self) -> str | None:
        """Its container's name where that still exists, ended."""
        return None if self.removed else self.container_name


async def stop_instance_container(
    session: NodeSession,
    ctx: CommandContext,
    emit: Emit,
    container: Container,
    grace: float,
    *,
    keep: bool = False,
    release: ReleaseCheck | None = None,
    ended: Callable[[], None] = lambda: None,
    on_asked: Callable[[str], object] = lambda _: None,
) -> StoppedContainer:
    """Stop one container of sparkctl, save its log and remove it. ``keep``: do not remove it.

    ``release``: a release check that was measured already. ``on_asked`` is called with its id when Docker is asked to
    stop it, ``ended`` once it has stopped, before the wait for its memory.
    """
    instance = container.instance_name
    began = ctx.clock.monotonic()

    def emit_phase(now: Phase, detail: str | None = None) -> None:
        elapsed = ctx.clock.monotonic() - began
        emit(
            PhaseChanged(
                ts=ctx.clock.unix_time(),
                node=session.node.name,
                instance=instance,
                phase=now,
                step=None,
                elapsed=elapsed,
                expected=None,
                detail=detail,
            )
        )

    if release is None:
        release = ReleaseCheck(session, ctx, emit, container)
        await release.measure_before()
    emit_phase(Phase.STOPPING)
    is_counted = await engine_meters.record_counted_accept_length(session, ctx, container)
    if container.is_alive:
        on_asked(container.id)
        with contextlib.suppress(ContainerNotFound):
            await session.docker.stop_container(container.id, grace)
    ended()

    async def await_memory() -> ReleaseResult | SparkctlError:
        try:
            return await release.wait_until_released(lambda words: emit_phase(Phase.STOPPING, words))
        except SparkctlError as error:  # raised once the log is saved: an error here must not cancel that
            return error

    saved, proof = await gather_or_cancel(
        _save_and_remove(session, ctx, emit, container, keep=keep, is_counted=is_counted), await_memory()
    )
    if isinstance(proof, SparkctlError):
        raise proof
    freed = proof.freed
    emit_phase(
        Phase.STOPPED, f"{format_gib(freed)} came back" if freed is not None and freed > MIN_AWAITED_BYTES else None
    )
    left = tuple((one.what, one.size) for one in proof.left)
    removed = saved.whole and not keep
    stopped = StoppedContainer(
        proof=proof,
        log=saved.path,
        removed=removed,
        node=session.node.name,
        container_id=container.id,
        container_name=container.name,
    )
    now = ctx.clock.unix_time()
    emit(
        MemoryReleased(
            ts=now,
            node=session.node.name,
            instance=instance,
            freed=freed,
            missing=proof.missing,
            holders=left,
            before_start=proof.before_start,
            available=proof.available_bytes,
            kept=sanitize_line(container.name) if not removed else None,
        )
    )
    if left or not proof.is_complete:
        emit(build_leftover_warning(session, ctx, instance, proof))
    return stopped


async def _save_and_remove(
    session: NodeSession, ctx: CommandContext, emit: Emit, container: Container, *, keep: bool, is_counted: bool
) -> SaveLogResult:
    """Save the log of a container that has ended, and remove it unless it is to be kept or its log is not whole.

    ``is_counted``: its averages are recorded already, so they are not taken from the log.
    """
    saved = await save_log(session, ctx, emit, container)
    ctx.record_node_result(
        NodeResult(node=session.node.name, instance=container.instance_name, container=container.id, log=saved.path)
    )
    if not is_counted:
        await engine_meters.record_logged_accept_length(session, ctx, container, saved.path)
    if saved.whole and not keep:
        await remove_if_there(session, container)
    elif not keep:
        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, *_describe_kept_container(session, container)))
    return saved


def _describe_kept_container(session: NodeSession, container: Container) -> tuple[str, str]:
    """Return message and hint where Docker has the only complete log of a container."""
    instance = container.instance_name
    return (
        f"the log of {instance} could not be saved completely, so its container was kept",
        f"on {session.node.name}: docker rm {container.name}   when you do not need it",
    )


async def remove_ended_container(session: NodeSession, ctx: CommandContext, emit: Emit, container: Container) -> None:
    """Remove an ended container of sparkctl to free its name; refused where its log cannot be saved first."""
    await save_ended_log(session, ctx, emit, container)
    await remove_if_there(session, container)


async def remove_if_there(session: NodeSession, container: Container) -> None:
    """Remove an ended container; one that somebody else has removed is gone, as requested."""
    with contextlib.suppress(ContainerNotFound):
        await session.docker.remove_container(container.id)


async def save_ended_log(session: NodeSession, ctx: CommandContext, emit: Emit, container: Container) -> None:
    """Save the log of an ended container, so that it can be removed. Raises `OperationRefused` where that is not possible."""
    if container.is_alive:
        raise SparkctlError(f"{container.name} runs: it is stopped, never swept away", None)
    if not (await save_log(session, ctx, emit, container)).whole:
        raise OperationRefused(*_describe_kept_container(session, container))


DEFAULT_GRACE_SECONDS = 30.0
_HEAD_START_SECONDS = 5.0  # seconds that the head has before its workers are asked to end


@dataclass(frozen=True, slots=True)
class StopResult:
    """The result of stopping several: each stopped container, and the error of each node that failed."""

    stopped: tuple[StoppedContainer, ...] = ()
    failures: tuple[tuple[NodeName, SparkctlError], ...] = ()


@dataclass(frozen=True, slots=True)
class BeforeStop:
    """What was read on a node before its first stop: what that container holds, and the guard's directory."""

    container: str
    release: ReleaseCheck
    guard: GuardDirectory | None


async def read_before_stop(session: NodeSession, ctx: CommandContext, emit: Emit, container: Container) -> BeforeStop:
    """Read what a stop wants to know first; changes nothing."""

    async def read_guard() -> GuardDirectory | None:
        with contextlib.suppress(NodeError):
            return await read_guard_directory(session)
        return None

    release = ReleaseCheck(session, ctx, emit, container)
    _, guard = await gather_or_cancel(release.measure_before(), read_guard())
    return BeforeStop(container.id, release, guard)


async def stop_containers(
    sessions: Mapping[NodeName, NodeSession],
    ctx: CommandContext,
    emit: Emit,
    containers_by_node: Mapping[NodeName, Sequence[Container]],
    grace: float | None = None,
    keep: bool = False,
    on_asked: Callable[[str], object] = lambda _: None,
    before: Mapping[NodeName, BeforeStop] = MappingProxyType({}),
) -> StopResult:
    """Stop containers on several nodes in parallel, those of one node in their order; the caller has the locks.

    ``grace`` None: as each profile says. ``keep``: do not remove them. ``on_asked`` is called with the id of each that
    Docker is asked to stop. ``before``: what was read already. A failed node does not prevent the others.

    The head of a model is asked first: it takes no more requests and finishes the current ones without losing its
    workers. The workers follow as soon as it has ended, or after 5 s: a hanging head uses up its whole grace period,
    and the workers need not wait for that.
    """
    turns: dict[str, StopOrder] = {}
    for one in (one for containers in containers_by_node.values() for one in containers):
        if (run := parse_start_id_label(one)) is not None and parse_rank_label(one) is not None:
            turns.setdefault(run, StopOrder(ctx)).add_rank(is_head=_rank_index(one) == 0)
    stopped: list[StoppedContainer] = []

    async def stop_on_node(node: NodeName) -> None:
        session, containers = sessions[node], containers_by_node[node]
        try:
            read = before.get(node)
            if read is None or read.container != containers[0].id:
                read = await read_before_stop(session, ctx, emit, containers[0])
            await stop_watching_containers(session, ctx, emit, [one.id for one in containers], read.guard)
            for one in containers:
                release = read.release
                if one.id != read.container:
                    release = ReleaseCheck(session, ctx, emit, one)
                    await release.measure_before()
                turn, ended = turns.get(parse_start_id_label(one) or ""), _do_nothing
                if turn is not None:
                    await turn.wait_for_turn(is_head=_rank_index(one) == 0)
                    ended = turn.head_ended.set if _rank_index(one) == 0 else _do_nothing
                seconds = resolve_stop_grace(one, grace)
                stopped.append(
                    await stop_instance_container(
                        session, ctx, emit, one, seconds, keep=keep, release=release, ended=ended, on_asked=on_asked
                    )
                )
        finally:
            for one in containers:
                if (turn := turns.get(parse_start_id_label(one) or "")) is not None:
                    turn.release_waiting_ranks(is_head=_rank_index(one) == 0)

    nodes = list(containers_by_node)
    outcomes = await asyncio.gather(*(stop_on_node(node) for node in nodes), return_exceptions=True)
    failures = []
    for node, outcome in zip(nodes, outcomes, strict=True):
        if isinstance(outcome, SparkctlError):
            failures.append((node, outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
    return StopResult(tuple(stopped), tuple(failures))


def resolve_stop_grace(container: Container, requested: float | None) -> float:
    """Return the grace period in seconds: as requested now, else as the profile said at the start."""
    if requested is not None:
        return requested
    own = parse_stop_grace_label(container)
    return DEFAULT_GRACE_SECONDS if own is None else own


def _rank_index(container: Container) -> int:
    """Return the container's rank; the head, and a container without ranks, is 0."""
    return int((parse_rank_label(container) or "0/1").partition("/")[0])


def _do_nothing() -> None:
    return None


class StopOrder:
    """The order in which the ranks of each model are asked to end. All ranks are measured first, because a worker ends
    with its head.
    """

    def __init__(self, ctx: CommandContext) -> None:
        self._ctx = ctx
        self._workers = 0
        self._looked = asyncio.Event()
        self.head_ended = asyncio.Event()
        self.head_ended.set()
        self._looked.set()

    def add_rank(self, *, is_head: bool) -> None:
        if is_head:
            self.head_ended.clear()
        else:
            self._workers += 1
            self._looked.clear()

    async def wait_for_turn(self, *, is_head: bool) -> None:
        """Return when this rank, measured already, is to be asked to end; 5 s at most."""
        if not is_head:
            self._workers -= 1
            if self._workers <= 0:
                self._looked.set()
        awaited = self._looked if is_head else self.head_ended
        await run_until_first(awaited.wait(), self._ctx.clock.sleep(_HEAD_START_SECONDS))

    def release_waiting_ranks(self, *, is_head: bool) -> None:
        """Let no other rank wait for this one any more."""
        (self.head_ended if is_head else self._looked).set()
