"""One starter per node at a time: a lock on the node itself, held by an open channel and a heartbeat.

It lives as long as the connection of whoever holds it, and 30 s at most after a laptop that vanished without a word. After
a reconnect it is taken again. `flock` is part of every Linux; the file tells a second operator who is at work.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.core.context import Context, NodeLock
from sparkctl.core.owed import OwedStops
from sparkctl.core.session import Session
from sparkctl.errors import LinkLost, NodeError, Refused
from sparkctl.model.node import NodeState
from sparkctl.model.text import clean
from sparkctl.model.units import spoken
from sparkctl.operations.switching import journal
from sparkctl.wire.link import Held

PATH = "/tmp/sparkctl.lock"  # noqa: S108  the sticky directory every user of the node can reach
_BEAT = 10.0
_SILENT = 25.0  # seconds without a heartbeat after which it may be another's: the node gives it up after 30
_RETRY = 0.5
_PATIENCE = 45.0  # longer than a lock of our own that the break left behind can live
# A file that another user made may be locked through a read-only descriptor, and be written where nothing is created.
_SCRIPT = """umask 0
if [ -e "$1" ] && ! [ -O "$1" ]; then exec 9<"$1"; else exec 9>>"$1"; fi
if ! flock -n 9; then echo "@@ taken"; cat "$1"; echo; exit 75; fi
printf %s "$2" | dd of="$1" conv=nocreat 2>/dev/null
echo "@@ held"
while [ -n "$(timeout 30 dd bs=1 count=1 2>/dev/null)" ]; do :; done
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as its file says; empty words where the file is not to be read."""

    operator: str
    doing: str
    since: float | None
    token: str


class Taken(Refused):
    """Somebody else holds the lock."""

    def __init__(self, message: str, hint: str, holder: Holder) -> None:
        super().__init__(message, hint)
        self.holder = holder


class StartLock:
    """A held lock. `ensure` before anything is created after a break; `release` frees it."""

    def __init__(self, session: Session, ctx: Context, doing: str, warn: Callable[[str], None]) -> None:
        self._session = session
        self._ctx = ctx
        self._about = {
            "operator": ctx.operator, "doing": doing, "since": round(ctx.clock.now()), "token": uuid.uuid4().hex
        }  # fmt: skip
        self._warn = warn
        self._held: Held | None = None
        self._beaten = (0.0, 0.0)  # when the node was last told that we live: time, monotonic
        self._taking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Take it now, or raise `Taken`."""
        self._held = await self._try()
        self._ctx.locks.add(str(self._about["token"]))
        self._beating = asyncio.create_task(self._beat())

    async def ensure(self) -> None:
        """Have it, taking it again where a break of the connection lost it. Raises `Taken` if another was faster."""
        async with self._taking:
            began = self._ctx.clock.monotonic()
            if self._held is not None and self._is_silent:
                stale, self._held = self._held, None
                await stale.release()
            while self._held is None:
                try:
                    self._held = await self._try()
                except Taken as taken:
                    # the node may not have noticed yet that the connection which held it for us is gone
                    ours = taken.holder.token == self._about["token"]
                    if not ours or self._ctx.clock.monotonic() - began > _PATIENCE:
                        raise
                    await self._ctx.clock.sleep(1.0)

    async def release(self) -> None:
        """Free the lock."""
        self._ctx.locks.discard(str(self._about["token"]))
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._held is not None:
            await self._held.release()
            self._held = None

    async def _try(self) -> Held:
        held = await self._session.link.hold(["sh", "-c", _SCRIPT, "sparkctl-lock", PATH, json.dumps(self._about)])
        answer = await _answer(held)
        if answer == "@@ held":
            self._beaten = self._now()
            return held
        holder = read_holder(clean((await held.readline()).decode("utf-8", "replace")))
        await held.release()
        raise _taken(self._session.node.name, holder, self._ctx)

    def _now(self) -> tuple[float, float]:
        return self._ctx.clock.now(), self._ctx.clock.monotonic()

    @property
    def _is_silent(self) -> bool:
        """Tell whether this process, or its whole machine, stood still for so long that the node may have freed the lock."""
        return any(now - then > _SILENT for now, then in zip(self._now(), self._beaten, strict=True))

    async def _beat(self) -> None:
        """Keep it alive, and get it back after a break; another who has it by then is worth a word, not an end."""
        while True:
            if (held := self._held) is not None:
                await self._beat_until_lost(held)
                if self._held is held:
                    self._held = None
                    await held.release()
                continue
            if self._session.link.status.state is not NodeState.OK:
                await self._ctx.clock.sleep(_RETRY)
                continue
            try:
                await self.ensure()
            except NodeError:
                await self._ctx.clock.sleep(_RETRY)  # it broke again
            except Taken as taken:
                self._warn(f"the connection was lost for a while, and now {taken.message}")
                return

    async def _beat_until_lost(self, held: Held) -> None:
        """Return when the holding command has ended, there or with the connection: it says nothing else any more."""
        end = asyncio.ensure_future(held.readline())
        try:
            while not end.done() and not self._is_silent:
                await held.write(b".")
                self._beaten = self._now()
                await asyncio.wait({end}, timeout=_BEAT)
        except LinkLost:
            return
        finally:
            end.cancel()
            await asyncio.gather(end, return_exceptions=True)


class StepLock:
    """The lock of the verb that this is a step of: used, and left to it."""

    def __init__(self, held: NodeLock) -> None:
        self._held = held

    async def ensure(self) -> None:
        """Have it; see `StartLock.ensure`."""
        await self._held.ensure()

    async def release(self) -> None:
        """Leave it to the verb that has it."""


async def acquire(
    session: Session,
    ctx: Context,
    doing: str,
    warn: Callable[[str], None],
    *,
    beside_ourselves: bool = False,
    for_switch: bool = False,
) -> StartLock | StepLock:
    """Take the node's lock or raise `Taken`, naming who holds it, what they are doing and since when.

    ``beside_ourselves``: a lock that this very operator holds is no obstacle; in another terminal it is worth a word.
    A node on which a switch goes on, or was left, is refused (`SwitchUnderway`) to all but those ``for_switch``.
    """
    if (held := ctx.holds.get(session.node.name)) is not None:
        return StepLock(held)
    lock, is_taken = StartLock(session, ctx, doing, warn), False
    try:
        await lock.take()
        is_taken = True
    except Taken as taken:
        await journal.refuse_during(session, is_held=True)
        if not beside_ourselves or taken.holder.operator != ctx.operator:
            raise
        if taken.holder.token not in ctx.locks:
            warn(f"you are {taken.holder.doing} in another terminal, which will see it stop")
    try:
        if is_taken and not for_switch:
            await journal.refuse_during(session, is_held=False)
        # Whoever changes a node finishes first what an earlier stop had to leave there; a switch once it has all its locks.
        if not for_switch and OwedStops(ctx.history.directory).on(session.node.name, ctx.clock.now()):
            from sparkctl.operations.stopping.owed import settle

            await settle(session, ctx, warn)
    except BaseException:
        await lock.release()
        raise
    return lock


async def _answer(held: Held) -> str:
    """Return the script's own line, past whatever a login shell prints before it; "" where there is none."""
    while line := await held.readline():
        text = line.decode("utf-8", "replace").rstrip()
        if text.startswith("@@ "):
            return text
    return ""


def read_holder(text: str) -> Holder:
    """Return what a lock's file says, with empty words for what it does not: anybody may have written it."""
    try:
        about = json.loads(text)
        since = float(about["since"])
        known = Holder(str(about["operator"]), str(about["doing"]), since, str(about.get("token", "")))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Holder("", "", None, "")
    return known if abs(since) < 1e12 else Holder(known.operator, known.doing, None, known.token)


def _taken(node: str, holder: Holder, ctx: Context) -> Taken:
    if not holder.operator:
        return Taken(f"{node}: somebody is starting or stopping something here ({PATH})", "wait for it", holder)
    since = "" if holder.since is None else f" (for {spoken(max(0.0, ctx.clock.now() - holder.since))})"
    if holder.token in ctx.locks:
        hint = "wait for that, or stop it first (in the panel: x)"
        return Taken(f"{node}: you are {holder.doing} from here already", hint, holder)
    if holder.operator == ctx.operator:
        hint = "end that one with Ctrl-C (the engine goes on), or stop the engine: sparkctl down"
        return Taken(f"{node}: you ({holder.operator}) are {holder.doing} in another terminal{since}", hint, holder)
    hint = f"wait for it, or watch: sparkctl status --node {node} --watch"
    return Taken(f"{node}: {holder.operator} is {holder.doing}{since}", hint, holder)
