"""``drop-caches``: drop the page cache of a node and report memory before and after; needs one narrow sudo right."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from sparkctl.commands.event_stream import build_end, run_on_each_node, stream_events
from sparkctl.commands.model_places import find_model_places, load_all_profiles
from sparkctl.commands.request import Request
from sparkctl.context import CommandContext, CommandInterrupted
from sparkctl.errors import OperationRefused, SparkctlError
from sparkctl.model.events import CachesDropped, CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node
from sparkctl.model.profile import Profile
from sparkctl.model.questions import SudoPasswordQuestion
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import format_gib
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.transport.node_session import NodeSession

TEE_COMMAND = ("/usr/bin/tee", "/proc/sys/vm/drop_caches")
_DROP_ALL_CACHES = b"3"  # page cache and reclaimable slab
_SYNC_TIMEOUT_SECONDS = 120.0  # seconds: writing back to a slow disk or NFS takes long


@dataclass(frozen=True, slots=True)
class DropCaches(Request):
    """A request to drop the page cache of nodes."""

    nodes: Sequence[Node]

    def format_as_command(self) -> tuple[str, ...]:
        return ("drop-caches", *self.format_node_options())

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return drop_page_cache(ctx, self.nodes)


class MissingSudoRight(OperationRefused):
    """This user may not drop caches on this node; ``hint`` is the sudoers line that allows exactly that."""


def format_sudoers_command(node: Node, user: str | None) -> str:
    """Return what adds the sudo right to drop caches and nothing else: `setup`, or the command by hand."""
    line = f"{user or '$USER'} ALL=(root) NOPASSWD: {' '.join(TEE_COMMAND)}"
    where = "" if node.is_local else f" on {node.name}"
    file = "/etc/sudoers.d/sparkctl"  # it may hold lines of others, too
    return f"sparkctl setup {node.name}; or once{where}: echo '{line}' | sudo tee -a {file} && sudo chmod 440 {file}"


async def drop_node_caches(
    session: NodeSession, ctx: CommandContext, emit: Emit, profiles: Sequence[Profile]
) -> CachesDropped:
    """Drop page cache and slab on one node; emit memory before and after.

    Tries the narrow sudo right first, then the operator's password where a prompt is possible (used once, never
    stored), then without a right the files of the models where those of ``profiles`` lie. Raises `MissingSudoRight` where
    all fail; nothing has changed then.
    """
    before = await session.read_node("identity", "memory")
    await session.run(["sync"], timeout=_SYNC_TIMEOUT_SECONDS)
    done = await session.run(["sudo", "-n", *TEE_COMMAND], stdin=_DROP_ALL_CACHES, timeout=_SYNC_TIMEOUT_SECONDS)
    if done.status != 0 and not await _drop_with_password(session, ctx):
        user = before.identity.user if before.identity else session.node.user
        refusal = MissingSudoRight(
            f"{user or 'this user'} may not drop the page cache on {session.node.name}",
            format_sudoers_command(session.node, user),
        )
        if not (count := await _drop_model_files(session, ctx, profiles)):
            raise refusal
        return await _report_model_drop(session, ctx, emit, before, count, refusal)
    after = await session.read_node("memory")
    event = CachesDropped(
        ts=ctx.clock.unix_time(),
        node=session.node.name,
        before=_require_memory(before, session),
        after=_require_memory(after, session),
        proven=is_drop_confirmed(before.drops, after.drops),
    )
    emit(event)
    return event


async def try_drop_node_caches(
    session: NodeSession, ctx: CommandContext, emit: Emit, profiles: Sequence[Profile]
) -> SparkctlError | None:
    """Drop it before something that also works without; return why it was not possible, None where it was."""
    try:
        await drop_node_caches(session, ctx, emit, profiles)
    except CommandInterrupted:
        raise
    except SparkctlError as error:
        return error
    return None


async def _drop_model_files(session: NodeSession, ctx: CommandContext, profiles: Sequence[Profile]) -> int:
    """Drop the models' own files from the page cache, which needs no right; return how many were."""
    if not profiles:
        return 0
    try:
        answer = await find_model_places(ctx, session, profiles).run_program(session, "drop", _SYNC_TIMEOUT_SECONDS)
    except OperationRefused:  # no python3 there
        return 0
    return int(answer.get("files") or 0)


async def _report_model_drop(
    session: NodeSession, ctx: CommandContext, emit: Emit, before: NodeInspection, count: int, refusal: MissingSudoRight
) -> CachesDropped:
    inspection = await session.read_node("memory")
    event = CachesDropped(
        ts=ctx.clock.unix_time(),
        node=session.node.name,
        before=_require_memory(before, session),
        after=_require_memory(inspection, session),
        proven=None,
    )
    emit(event)
    back = max(0, event.before.reclaimable - event.after.reclaimable)
    words = (
        f"without the right to drop the page cache only the pages of {count} model files were dropped on {event.node}"
    )
    rest = f"{format_gib(back)} came back, {format_gib(event.after.reclaimable)} of page cache stay"
    emit(WarningEmitted(event.ts, event.node, f"{words}: {rest}; the sudoers line would drop them, too", refusal.hint))
    return event


async def _drop_with_password(session: NodeSession, ctx: CommandContext) -> bool:
    """Drop the page cache with a sudo password. ``-k`` forgets cached credentials, so that sudo always reads the first
    line itself and tee never sees it.
    """
    password = await ctx.prompter.ask_password(SudoPasswordQuestion(session.node.name, "drop the page cache"))
    if not password:
        return False
    done = await session.run(
        ["sudo", "-S", "-k", "-p", "", *TEE_COMMAND],
        stdin=password.encode() + b"\n" + _DROP_ALL_CACHES,
        timeout=_SYNC_TIMEOUT_SECONDS,
    )
    return done.status == 0


def _require_memory(inspection: NodeInspection, session: NodeSession) -> MemoryReading:
    if inspection.memory is None:
        raise SparkctlError(f"{session.node.name} has no readable /proc/meminfo", "is it a Linux machine?")
    return inspection.memory


def is_drop_confirmed(before: int | None, after: int | None) -> bool | None:
    """Tell whether the kernel's own count of drops has risen; None where it does not have one."""
    if before is None or after is None:
        return None
    return after > before


def drop_page_cache(ctx: CommandContext, nodes: Sequence[Node]) -> AsyncGenerator[Event, None]:
    """Drop caches on each node in turn. Refused if a node lacks the right, unreachable if a node does not answer."""

    async def drop_on_all_nodes(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()

        async def drop_on_node(session: NodeSession) -> None:
            await drop_node_caches(session, ctx, emit, load_all_profiles())

        failure = await run_on_each_node(ctx, nodes, emit, drop_on_node)
        if failure is not None:
            raise failure
        return build_end(ctx, began, Outcome.DONE)

    return stream_events(ctx, drop_on_all_nodes, on_interrupt="interrupted")
