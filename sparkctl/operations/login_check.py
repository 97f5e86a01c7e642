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

_WHO = b"""\
id -un
echo "${SSH_CONNECTION##* }"
[ -f ~/.ssh/authorized_keys ] && echo listed
"""
_LONGEST = 200  # characters of what ssh says
_USUAL = "22"
# The container has no agent, and none of the node's known hosts; and nothing may change on the node.
_SSH = (
    *("env", "-u", "SSH_AUTH_SOCK", "ssh", "-n", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=8", "-o", "ControlPath=none", "-o", "ProxyCommand=none"),
)


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
        said = (await worker.run(["sh", "-s"], stdin=_WHO)).stdout.decode("utf-8", "replace").split("\n")
        user, port, *more = said
        if "listed" not in more:
            raise Refused(
                f"{user} on {worker.node.name} has no ~/.ssh/authorized_keys, by which mpirun is to log in there",
                _remedy(head, user, end),
            )
        words = (*_SSH, "-p", port.strip() if port.strip().isdigit() else _USUAL, "-l", user, end.address, "true")
        done = await head.run(words)
    except (Starved, ValueError):
        return f"whether {head.node.name} can log in at {where}, as mpirun will, is not known: no answer in time"
    if done.status == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"ssh ended with {done.status}"]
    raise Refused(
        f"mpirun starts the ranks by SSH, and {head.node.name} cannot log in at {where} without a password: "
        f"{shorten(clean(lines[-1]), _LONGEST)}",
        _remedy(head, user, end),
    )


def _remedy(head: Session, user: str, end: End) -> str:
    return (
        f"on {head.node.name}, without a passphrase: ssh-keygen -t ed25519 (unless there is a key), then: "
        f"ssh-copy-id {clean(user)}@{end.address}"
    )
