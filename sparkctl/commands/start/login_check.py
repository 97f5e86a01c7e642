"""Before a start whose ranks log in at each other: whether the head's keys are good for the workers, while nothing is changed.

The nodes' own sshds are asked, on the link, since the containers have the same keys and the same list of who may log in.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.concurrency import gather_or_cancel
from sparkctl.engines.base import Engine, Rank
from sparkctl.errors import NodeStarved, OperationRefused
from sparkctl.model.fabric import FabricRoute, RouteEnd
from sparkctl.model.sanitize import sanitize_line, truncate_text
from sparkctl.node import login
from sparkctl.transport.session import Session

_LONGEST = 200  # characters of what ssh says


async def check_rank_logins(engine: Engine, sessions: Sequence[Session], way: FabricRoute) -> tuple[str, ...]:
    """Return cautions: what could not be asked. Nothing is asked where the engine's ranks meet in another way.

    Raises `Refused` where the head's user cannot log in at a worker's address on the link without a password.
    """
    head, *workers = sessions
    if not engine.ssh_key_mounts(Rank(0, tuple(end.address for end in way.ends))):
        return ()
    found = await gather_or_cancel(
        *(_try_ssh_login(head, worker, way.route_end_of(worker.node.name)) for worker in workers)
    )
    return tuple(caution for caution in found if caution is not None)


async def _try_ssh_login(head: Session, worker: Session, end: RouteEnd) -> str | None:
    where = f"{worker.node.name} ({end.address})"
    try:
        entry = login.decode_login_target((await worker.run(login.COMMAND, stdin=login.LOGIN_SCRIPT)).stdout)
        if not entry.has_keys:
            raise OperationRefused(
                f"{entry.user} on {worker.node.name} has no ~/.ssh/authorized_keys, by which mpirun is to log in there",
                _login_remedy(head, entry.user, end),
            )
        done = await head.run(login.login_test_command(entry, end.address))
    except (NodeStarved, ValueError):
        return (
            f"whether {head.node.name} can log in at {where}, as mpirun will, is not known: no answer, or another one"
        )
    if done.status == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"ssh ended with {done.status}"]
    raise OperationRefused(
        f"mpirun starts the ranks by SSH, and {head.node.name} cannot log in at {where} without a password: "
        f"{truncate_text(sanitize_line(lines[-1]), _LONGEST)}",
        _login_remedy(head, entry.user, end),
    )


def _login_remedy(head: Session, user: str, end: RouteEnd) -> str:
    return (
        f"on {head.node.name}, without a passphrase: ssh-keygen -t ed25519 (unless there is a key), then: "
        f"ssh-copy-id {sanitize_line(user)}@{end.address}"
    )
