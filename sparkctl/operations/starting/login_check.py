"""Before a start whose ranks log in at each other: whether the head's keys are good for the workers, while nothing is changed.

The nodes' own sshds are asked, on the link, since the containers have the same keys and the same list of who may log in.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.engines.base import Engine, Rank
from sparkctl.errors import Refused, Starved
from sparkctl.model.fabric import End, Way
from sparkctl.model.text import clean, shorten
from sparkctl.probe import login

_LONGEST = 200  # characters of what ssh says


async def check(engine: Engine, sessions: Sequence[Session], way: Way) -> tuple[str, ...]:
    """Return cautions: what could not be asked. Nothing is asked where the engine's ranks meet in another way.

    Raises `Refused` where the head's user cannot log in at a worker's address on the link without a password.
    """
    head, *workers = sessions
    if not engine.login_mounts(Rank(0, tuple(end.address for end in way.ends))):
        return ()
    found = await together(*(_log_in(head, worker, way.end_of(worker.node.name)) for worker in workers))
    return tuple(caution for caution in found if caution is not None)


async def _log_in(head: Session, worker: Session, end: End) -> str | None:
    where = f"{worker.node.name} ({end.address})"
    try:
        entry = login.decode((await worker.run(login.COMMAND, stdin=login.SCRIPT)).stdout)
        if not entry.has_keys:
            raise Refused(
                f"{entry.user} on {worker.node.name} has no ~/.ssh/authorized_keys, by which mpirun is to log in there",
                _remedy(head, entry.user, end),
            )
        done = await head.run(login.attempt(entry, end.address))
    except (Starved, ValueError):
        return (
            f"whether {head.node.name} can log in at {where}, as mpirun will, is not known: no answer, or another one"
        )
    if done.status == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"ssh ended with {done.status}"]
    raise Refused(
        f"mpirun starts the ranks by SSH, and {head.node.name} cannot log in at {where} without a password: "
        f"{shorten(clean(lines[-1]), _LONGEST)}",
        _remedy(head, entry.user, end),
    )


def _remedy(head: Session, user: str, end: End) -> str:
    return (
        f"on {head.node.name}, without a passphrase: ssh-keygen -t ed25519 (unless there is a key), then: "
        f"ssh-copy-id {clean(user)}@{end.address}"
    )
