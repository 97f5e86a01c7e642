"""End one process on a node, after a look that its number still belongs to it."""

from __future__ import annotations

from sparkctl.errors import OperationRefused
from sparkctl.model.sample import NodeProcess
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.transport.node_session import NodeSession


async def kill_process(session: NodeSession, one: NodeProcess, signal: str) -> None:
    """Send ``signal`` (``TERM`` or ``KILL``) to a process. Raises `OperationRefused` if it is gone, or another one has its number now,
    or this user may not."""
    node = session.node.name
    comm = await session.run(["cat", f"/proc/{one.pid}/comm"])
    name = comm.stdout.decode("utf-8", "replace").strip()
    if comm.status != 0:
        raise OperationRefused(f"process {one.pid} is no longer on {node}")
    if one.name is not None and name != one.name[:15]:
        raise OperationRefused(
            f"process {one.pid} on {node} is now {sanitize_line(name)}, not {sanitize_line(one.name)}"
        )
    done = await session.run(["kill", "-s", signal, str(one.pid)])
    if done.status != 0:
        said = sanitize_line(done.stderr.decode("utf-8", "replace").strip()) or f"exit status {done.status}"
        raise OperationRefused(
            f"{node} did not end process {one.pid}: {said}", f"on {node}: sudo kill -s {signal} {one.pid}"
        )
