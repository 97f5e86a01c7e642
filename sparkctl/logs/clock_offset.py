"""How far a node's clock is from ours, asked over its connection."""

from __future__ import annotations

from sparkctl.errors import NodeError
from sparkctl.logs.first_failure import ClockOffset, compute_clock_offset, pick_most_precise
from sparkctl.transport.session import Session

_TIMES = 3  # the first may wait for a shell to be loaded; the quickest counts
_PATIENCE = 5.0


async def measure_clock_offset(session: Session) -> ClockOffset | None:
    """Return a node's offset, None where it does not say; takes three round trips."""
    found = []
    for _ in range(_TIMES):
        asked = session.clock.unix_time()
        try:
            done = await session.run(["date", "+%s.%N"], timeout=_PATIENCE)
            heard = session.clock.unix_time()
            found.append(compute_clock_offset(asked, float(done.stdout.decode("ascii").strip()), heard))
        except (NodeError, ValueError):
            break
    return pick_most_precise(found)
