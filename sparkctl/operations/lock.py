"""One starter per node at a time: a lock on the node itself, held by an open channel.

It lives exactly as long as the connection of whoever holds it: a laptop that crashes or loses its network frees it
without anybody's help. `flock` is part of every Linux; the file tells a second operator who is at work.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import Refused
from sparkctl.model.text import clean
from sparkctl.model.units import spoken
from sparkctl.wire.link import Held

PATH = "/tmp/sparkctl.lock"  # noqa: S108  the sticky directory every user of the node can reach
# A file that another user made may be locked through a read-only descriptor; sticky directories refuse more than that.
_SCRIPT = """umask 0
if [ -e "$1" ] && ! [ -O "$1" ]; then exec 9<"$1"; else exec 9>>"$1"; fi
if ! flock -n 9; then echo "@@ taken"; cat "$1"; exit 75; fi
if [ -O "$1" ]; then { printf %s "$2"; echo; } >"$1"; fi
echo "@@ held"
exec cat >/dev/null
"""


@dataclass(frozen=True, slots=True)
class StartLock:
    """A held lock; `release` frees it, and so does the end of the connection."""

    held: Held

    async def release(self) -> None:
        """Free the lock."""
        await self.held.release()


async def acquire(session: Session, ctx: Context, doing: str) -> StartLock:
    """Take the node's lock or raise `Refused` naming who holds it, what they are doing and since when."""
    about = json.dumps({"operator": ctx.operator, "doing": doing, "since": round(ctx.clock.now())})
    held = await session.link.hold(["sh", "-c", _SCRIPT, "sparkctl-lock", PATH, about])
    answer = await _answer(held)
    if answer == "@@ held":
        return StartLock(held)
    holder = clean((await held.readline()).decode("utf-8", "replace"))
    await held.release()
    raise Refused(
        f"{session.node.name}: {_holder(holder, ctx)}",
        f"wait for it, or watch: sparkctl status --node {session.node.name} --watch",
    )


async def _answer(held: Held) -> str:
    """Return the script's own line, past whatever a login shell prints before it; "" where there is none."""
    while line := await held.readline():
        text = line.decode("utf-8", "replace").rstrip()
        if text.startswith("@@ "):
            return text
    return ""


def _holder(answer: str, ctx: Context) -> str:
    try:
        about = json.loads(answer)
        since = max(0.0, ctx.clock.now() - float(about["since"]))
        return f"{about['operator']} is {about['doing']} (for {spoken(since)})"
    except (ValueError, KeyError, TypeError):
        return "somebody else is starting or stopping something here" + (f": {answer}" if answer else f" ({PATH})")
