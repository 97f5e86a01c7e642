"""End one process on a node, which looks itself that its number still belongs to it."""

from __future__ import annotations

from pathlib import Path

from sparkctl import node as node_programs
from sparkctl.errors import OperationRefused
from sparkctl.model.sample import NodeProcess
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.transport.node_session import NodeSession


async def kill_process(session: NodeSession, one: NodeProcess, signal: str) -> None:
    """Send ``signal`` (``TERM`` or ``KILL``) to a process. Raises `OperationRefused` if it is gone, or another one has its number now,
    or this user may not.

    It is the same process if it began at the same moment; where that is not known, if it has the same name."""
    node = session.node.name
    began = "-" if one.start_ticks is None else str(one.start_ticks)
    script = (Path(node_programs.__file__).parent / "end_process.sh").read_bytes()
    done = await session.run(["sh", "-s", "--", signal, str(one.pid), began, (one.name or "-")[:15]], stdin=script)
    answer, _, rest = sanitize_line(done.stdout.decode("utf-8", "replace").strip()).partition(" ")
    if done.status == 0 and answer == "sent":
        return
    if answer == "gone":
        raise OperationRefused(f"process {one.pid} is no longer on {node}")
    if answer == "other":
        raise OperationRefused(f"process {one.pid} on {node} is now another one, {rest}: nothing was sent to it")
    said = rest or sanitize_line(done.stderr.decode("utf-8", "replace").strip()) or f"exit status {done.status}"
    raise OperationRefused(
        f"{node} did not end process {one.pid}: {said}", f"on {node}: sudo kill -s {signal} {one.pid}"
    )
