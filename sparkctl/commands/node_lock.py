"""The lock that lets one operator at a time change a node: held on the node by an open channel and a heartbeat.

It lasts as long as the connection of its holder, and at most 30 s after a client that disappeared. After a reconnect
it is taken again. `flock` is part of every Linux.

The lock is on the directory /run: root owns it, it exists from boot on, and every user may open it. So two operators
with two accounts exclude each other, and nobody can put a FIFO, a link or a file of his own in its place. Nothing is
written there: the arguments of the holding process name the holder. A user of the node can still hold the lock with
another program; the error then shows the command that finds it.

Older versions lock /tmp/sparkctl.lock. It is locked as well, so that old and new versions exclude each other, and
written in their format, if it is a plain file with one name; anything else there is reported and skipped.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import suppress

from sparkctl.commands.stop.pending_stops import PendingStopFiles
from sparkctl.concurrency import cancel_and_wait, run_until_first
from sparkctl.context import CommandContext, NodeLock
from sparkctl.errors import NodeError, NodeStarved, OperationRefused
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration
from sparkctl.monitor import switch_journal_io
from sparkctl.transport.node_connection import RemoteProcess
from sparkctl.transport.node_session import NodeSession

LOCK_DIRECTORY = "/run"
OLD_LOCK_FILE = "/tmp/sparkctl.lock"  # noqa: S108  see above
_HEARTBEAT_SECONDS = 10.0
_HELD_AFTER_LOSS_SECONDS = 30  # seconds after which the node releases the lock of a silent connection
_MAX_SILENCE_SECONDS = 25.0  # seconds without a heartbeat after which another may have the lock
_RECONNECT_POLL_SECONDS = 0.5
_CONFLICT_RETRY_SECONDS = 5.0  # seconds until the next attempt to get back a lost lock
_REACQUIRE_TIMEOUT_SECONDS = 45.0  # longer than our own lock can outlive a broken connection
_ANSWER_TIMEOUT_SECONDS = 40.0  # seconds for the script's answer, beyond the time of a login shell
_HOLD_SCRIPT = f"""echo "@@ held"
while [ -n "$(exec 8<&- 9<&-; timeout {_HELD_AFTER_LOSS_SECONDS} dd bs=1 count=1 2>/dev/null)" ]; do :; done
"""
# `status` holds the lock for an instant to test it, so the script tries more than once.
_LOCK_SCRIPT = r"""place=$1 old=$2 token=$3 about=$4 hold=$5
command -v flock >/dev/null || { echo "@@ missing"; exit 69; }
exec 8<"$place"
held="sparkctl-held $(stat -L -c %d:%i "$place")"  # of this very directory: a container may have one of its own
if ! [ -e "$old" ] && ! [ -h "$old" ]; then (umask 0; set -C; : >"$old") 2>/dev/null; fi
if [ -f "$old" ] && [ -r "$old" ] && ! [ -h "$old" ]; then exec 9<"$old"; fi
# what was opened is a file with one name, and that is its name
opened=$(stat -L -c %d:%i:%h /proc/self/fd/9 2>/dev/null)
[ "$opened" = "$(stat -c %d:%i:1 "$old" 2>/dev/null)" ] || opened=
[ -n "$opened" ] || echo "@@ beside $(stat -c '%F of %U' "$old" 2>/dev/null)"
tries=0
until flock -n 8 && { [ -z "$opened" ] || flock -n 9; }; do
  tries=$((tries + 1))
  if [ $tries -gt 5 ]; then
    if flock -n 8; then echo "@@ taken before"; head -c 4096 <&9; exit 75; fi
    echo "@@ taken"
    grep -shz -A 1 "^$held [0-9a-f]*\$" /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -m 1 '^{' | head -c 4096
    exit 75
  fi
  # the process that a lost connection left with a lock for this very token; nobody else's can be ended
  for left in $(grep -slz "^$held $token\$" /proc/[0-9]*/cmdline); do
    left=${left#/proc/}; kill "${left%/cmdline}"
  done 2>/dev/null
  sleep 0.1
done
[ -z "$opened" ] || printf %s "$about" | dd of=/proc/self/fd/9 conv=nocreat 2>/dev/null
exec sh -c "$hold" "$held $token" "$about"
"""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock, in the holder's own words; empty where it does not say."""

    operator: str
    doing: str
    since: float | None
    token: str


class LockConflict(OperationRefused):
    """Another process holds the lock."""

    def __init__(self, message: str, hint: str, holder: LockHolder) -> None:
        super().__init__(message, hint)
        self.holder = holder


class HeldNodeLock:
    """A held lock. Call `reacquire_if_lost` before any change after a lost connection; `release` frees it."""

    def __init__(self, session: NodeSession, ctx: CommandContext, doing: str, warn: Callable[[str], None]) -> None:
        self._session = session
        self._ctx = ctx
        self._about = {
            "operator": ctx.operator,
            "doing": doing,
            "since": round(ctx.clock.unix_time()),
            "token": uuid.uuid4().hex,
        }
        self._warn = warn
        self._held: RemoteProcess | None = None
        self._beaten = (0.0, 0.0)  # when the node last got a heartbeat, monotonic seconds
        self._taking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._is_warned = False

    async def acquire(self) -> None:
        """Take the lock now. Raises `LockConflict` where another holds it."""
        self._held = await self._try_acquire()
        self._ctx.locks.add(str(self._about["token"]))
        # no TaskGroup: the lock lives from `acquire` to `release`, in no block; each change asks for a defect of this task
        self._beating = asyncio.create_task(self._send_heartbeats())

    async def reacquire_if_lost(self) -> None:
        """Make sure that the lock is held, taking it again after a lost connection. Raises `LockConflict` if another
        has it now.
        """
        if self._beating is not None and self._beating.done():
            self._beating.result()
        async with self._taking:
            began = self._ctx.clock.monotonic()
            if self._held is not None and self._is_silent:
                stale, self._held = self._held, None
                await stale.release()
            while self._held is None:
                try:
                    self._held = await self._try_acquire()
                except LockConflict as taken:
                    waited = self._ctx.clock.monotonic() - began
                    if not is_own_leftover(taken.holder, str(self._about["token"]), waited):
                        raise
                    await self._ctx.clock.sleep(1.0)

    async def release(self) -> None:
        self._ctx.locks.discard(str(self._about["token"]))
        beating, self._beating = self._beating, None
        if beating is not None:
            await cancel_and_wait([beating])
        process, self._held = self._held, None
        if process is not None:
            await process.release()
        if beating is not None and not beating.cancelled():
            beating.result()  # it ends by itself only with a defect

    async def _try_acquire(self) -> RemoteProcess:
        words = [LOCK_DIRECTORY, OLD_LOCK_FILE, str(self._about["token"]), json.dumps(self._about), _HOLD_SCRIPT]
        process = await self._session.link.start_process(["sh", "-c", _LOCK_SCRIPT, "sparkctl-lock", *words])
        try:
            await self._read_answer(process)
        except BaseException:
            await process.release()
            raise
        self._beaten = self._read_clocks()
        return process

    async def _read_answer(self, process: RemoteProcess) -> None:
        """Return once the lock is held. Raises `LockConflict` where another holds it, and another error where that is
        not known.
        """
        node = self._session.node.name
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_SECONDS):
                while (answer := await _read_script_line(process)).startswith("@@ beside"):
                    self._warn_old_lock_file(sanitize_line(answer.removeprefix("@@ beside").strip()))
                if answer == "@@ held":
                    return
                known = (
                    sanitize_line((await process.readline()).decode("utf-8", "replace")) if "taken" in answer else ""
                )
        except TimeoutError as late:
            raise NodeStarved(
                node,
                f"{node} did not report within {_ANSWER_TIMEOUT_SECONDS:.0f} s whether another operator is changing it",
                f"it is very busy, or {OLD_LOCK_FILE} is not a plain file; on {node}: ls -l {OLD_LOCK_FILE}",
            ) from late
        if answer == "@@ missing":
            raise OperationRefused(
                f"{node} has no flock command, which keeps two operators apart", "sudo apt install util-linux"
            )
        if "taken" not in answer:
            why = f"; on {node}: ls -ld {LOCK_DIRECTORY}" if not answer else ""
            raise NodeError(node, f"{node} did not report whether another operator is changing it", f"try again{why}")
        raise _build_lock_conflict(
            node, parse_lock_holder(known), self._ctx, LOCK_DIRECTORY if answer == "@@ taken" else OLD_LOCK_FILE
        )

    def _warn_old_lock_file(self, kind: str) -> None:
        """Warn once about whatever is in the place of an older sparkctl's lock file."""
        if not self._is_warned:
            node, self._is_warned = self._session.node.name, True
            what = f"is a {kind} and" if kind else "cannot be made, so it"
            self._warn(
                f"{OLD_LOCK_FILE} on {node} {what} does not lock out an operator with an older sparkctl"
                + (f"; remove it: sudo rm -r {OLD_LOCK_FILE}" if kind else "")
            )

    def _read_clocks(self) -> tuple[float, float]:
        return self._ctx.clock.unix_time(), self._ctx.clock.monotonic()

    @property
    def _is_silent(self) -> bool:
        """Tell whether this process or its whole machine stood still so long that the node may have released the
        lock.
        """
        return is_lock_doubtful(self._read_clocks(), self._beaten)

    async def _send_heartbeats(self) -> None:
        """Keep the lock alive and get it back after a lost connection; if another has it by then, warn and go on."""
        is_another = False
        while True:
            if (process := self._held) is not None:
                await self._beat_until_lost(process)
                if self._held is process:
                    self._held = None
                    await process.release()
                continue
            if self._session.link.status.state is not NodeState.OK:
                await self._ctx.clock.sleep(_RECONNECT_POLL_SECONDS)
                continue
            try:
                await self.reacquire_if_lost()
            except (NodeError, OperationRefused) as error:
                if isinstance(error, LockConflict) and not is_another:
                    is_another = True
                    self._warn(f"the connection was lost for a while, and with it the lock; now {error.message}")
                await self._ctx.clock.sleep(_CONFLICT_RETRY_SECONDS if is_another else _RECONNECT_POLL_SECONDS)
            else:
                if is_another:
                    self._warn(f"the lock on {self._session.node.name} is held again")
                is_another = False

    async def _beat_until_lost(self, process: RemoteProcess) -> None:
        """Send heartbeats until the holding command has ended, on the node or with the connection; it prints nothing
        else.
        """

        async def beat() -> None:
            while not self._is_silent:
                await process.write(b".")
                self._beaten = self._read_clocks()
                await asyncio.sleep(_HEARTBEAT_SECONDS)

        with suppress(NodeError):
            await run_until_first(beat(), process.readline())


class BorrowedNodeLock:
    """The lock of the command that this is a step of: used here, and released there."""

    def __init__(self, lock: NodeLock) -> None:
        self._held = lock

    async def reacquire_if_lost(self) -> None:
        """Make sure that the lock is held; see `HeldNodeLock.reacquire_if_lost`."""
        await self._held.reacquire_if_lost()

    async def release(self) -> None:
        """Leave the lock to the command that owns it."""


async def acquire_node_lock(
    session: NodeSession,
    ctx: CommandContext,
    doing: str,
    warn: Callable[[str], None],
    *,
    beside_ourselves: bool = False,
    for_switch: bool = False,
) -> HeldNodeLock | BorrowedNodeLock:
    """Take the node's lock. Raises `LockConflict` with its holder, the holder's command and its start time.

    ``beside_ourselves``: a lock held by this same operator in another terminal gives a warning instead. A node with a
    running or unfinished switch is refused (`SwitchInProgress`) unless ``for_switch``.
    """
    if (own_lock := ctx.holds.get(session.node.name)) is not None:
        return BorrowedNodeLock(own_lock)
    lock, is_taken = HeldNodeLock(session, ctx, doing, warn), False
    try:
        await lock.acquire()
        is_taken = True
    except LockConflict as taken:
        await switch_journal_io.refuse_during_switch(session, is_held=True)
        if not beside_ourselves or taken.holder.operator != ctx.operator:
            raise
        if taken.holder.token not in ctx.locks:
            warn(f"you are {taken.holder.doing} in another terminal, which will see it stop")
    try:
        if is_taken and not for_switch:
            await switch_journal_io.refuse_during_switch(session, is_held=False)
        # Before a change, finish what an earlier stop had to leave on this node; a switch does so once it has all its locks.
        if not for_switch and PendingStopFiles(ctx.history.directory).list_for_node(
            session.node.name, ctx.clock.unix_time()
        ):
            from sparkctl.commands.stop.pending_stops import finish_pending_stops

            await finish_pending_stops(session, ctx, warn)
    except BaseException:
        await lock.release()
        raise
    return lock


async def _read_script_line(process: RemoteProcess) -> str:
    """Return the script's own line; "" where it ends without one."""
    while line := await process.readline():
        text = line.decode("utf-8", "replace").rstrip()
        if text.startswith("@@ "):
            return text
    return ""


def is_own_leftover(holder: LockHolder, token: str, waited: float) -> bool:
    """Tell whether a lock in our way is our own, on a connection whose end the node has not noticed yet: worth ``waited``
    seconds, up to the time after which the node would have released it."""
    return holder.token == token and waited <= _REACQUIRE_TIMEOUT_SECONDS


def is_lock_doubtful(now: tuple[float, float], beaten: tuple[float, float]) -> bool:
    """Tell whether a lock may be another's by now: by either clock, unix or monotonic, the last heartbeat is too old.

    The monotonic clock stands still while the machine sleeps, the unix clock may be set.
    """
    return any(at - then > _MAX_SILENCE_SECONDS for at, then in zip(now, beaten, strict=True))


def parse_lock_holder(text: str) -> LockHolder:
    """Return the holder from its text, with empty fields where they are missing: any user may have written it."""
    try:
        about = json.loads(text)
        since = float(about["since"])
        known = LockHolder(str(about["operator"]), str(about["doing"]), since, str(about.get("token", "")))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return LockHolder("", "", None, "")
    return known if abs(since) < 1e12 else LockHolder(known.operator, known.doing, None, known.token)


def _build_lock_conflict(node: str, holder: LockHolder, ctx: CommandContext, place: str) -> LockConflict:
    if not holder.operator:
        what = f"{node}: an unknown process holds sparkctl's lock ({place})"
        return LockConflict(what, f"wait for it, or see what it is: on {node}: sudo lslocks | grep -w {place}", holder)
    since = "" if holder.since is None else f" (for {format_duration(max(0.0, ctx.clock.unix_time() - holder.since))})"
    if holder.token in ctx.locks:
        hint = "wait for that, or stop it first (in the panel: x)"
        return LockConflict(f"{node}: you are {holder.doing} from here already", hint, holder)
    if holder.operator == ctx.operator:
        hint = (
            "end that one with Ctrl-C (the engine goes on), or stop the engine: sparkctl down. If its connection was lost, "
            f"the lock is free within {_HELD_AFTER_LOSS_SECONDS} s: try again"
        )
        what = f"{node}: another sparkctl of yours ({holder.operator}) is {holder.doing}{since}"
        return LockConflict(what, hint, holder)
    hint = f"wait for it, or watch: sparkctl status --node {node} --watch"
    return LockConflict(f"{node}: {holder.operator} is {holder.doing}{since}", hint, holder)
