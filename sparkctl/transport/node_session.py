"""A session with one node during a command: the connection, its Docker, and inspections of the machine."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sparkctl.clock import Clock, SystemClock
from sparkctl.errors import (
    LocalStall,
    NodeError,
    NodeStarved,
    NodeUnreachable,
    OperationRefused,
    ProtocolViolation,
    SparkctlError,
    UnreadableAnswer,
    raise_if_debugging,
)
from sparkctl.model.node import Node, NodeState
from sparkctl.model.questions import NonInteractivePrompter, Prompter
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.node import build_script_command, read_node_script
from sparkctl.node import node_inspection as probe
from sparkctl.transport.docker.docker_client import DockerClient
from sparkctl.transport.node_connection import CommandResult, ConnectionStatus, NodeConnection

if TYPE_CHECKING:
    from sparkctl.model.events import NodeStateChanged
    from sparkctl.model.sample import NodeProcess


_X509_MODULE = "asyncssh.crypto.x509"
_OQS_LIBRARY_FILES = ("liboqs.so", "liboqs.so.9", "liboqs.so.8", "liboqs.so.7", "liboqs.so.5", "liboqs.dylib")


def import_asyncssh_fast() -> None:
    """Import asyncssh quickly: without X.509 and without the slow search for liboqs and nettle.

    asyncssh 2.18 to 2.24 do both at their import and have no setting for it: X.509 takes a third of the import of
    cryptography, and the search runs ldconfig and a compiler. OpenSSH has no X.509 either. tests/unit/test_private_names.py
    fails where a version no longer imports that way.
    """
    if "asyncssh" in sys.modules:
        return
    find_library = ctypes.util.find_library
    without_x509 = _X509_MODULE not in sys.modules
    ctypes.util.find_library = _find_oqs_library
    if without_x509:
        sys.modules[_X509_MODULE] = None  # type: ignore[assignment]  # Python's own way to refuse an import
    try:
        importlib.import_module("asyncssh")
    finally:
        ctypes.util.find_library = find_library
        if without_x509:
            sys.modules.pop(_X509_MODULE, None)


def _find_oqs_library(name: str) -> str | None:
    if name != "oqs":
        return None
    for file in _OQS_LIBRARY_FILES:
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return file
    return None


def open_connection(node: Node, prompter: Prompter | None = None) -> NodeConnection:
    """Return a connection that is not connected yet. asyncssh is imported only for a node that needs it."""
    if node.is_local:
        from sparkctl.transport.local_connection import LocalConnection

        return LocalConnection(node)

    import_asyncssh_fast()
    from sparkctl.transport.ssh.ssh_connection import SshConnection

    return SshConnection(node, prompter if prompter is not None else NonInteractivePrompter())


_STALL_SECONDS = 3.0  # seconds: a time limit is exceeded by this much only if this process did not run


class NodeSession:
    """A session, opened with ``async with``; closing leaves nothing on either side."""

    def __init__(
        self,
        node: Node,
        prompter: Prompter | None = None,
        clock: Clock | None = None,
        *,
        owner: NodeSession | None = None,
    ) -> None:
        self.node = node
        self.clock = clock or SystemClock()
        self.link: NodeConnection = open_connection(node, prompter) if owner is None else owner.link
        self.docker: DockerClient = DockerClient(self.link) if owner is None else owner.docker
        self.is_over = False
        # of the node's user, once an inspection returned it
        self.home: str | None = None if owner is None else owner.home
        # container id -> start time of the container when it was found ready
        self.seen_ready: dict[str, float | None] = {} if owner is None else owner.seen_ready
        # container id -> when it was last asked for a proof of its work (by `clock`), and why it gave none
        self.proofs: dict[str, tuple[float | None, str | None]] = {} if owner is None else owner.proofs
        # ids of containers whose start was left without a token: before they count as ready, they are asked for one again
        self.doubted: set[str] = set() if owner is None else owner.doubted
        # ids of containers whose start is still watched from here, and has seen no token
        self.awaited: set[str] = set() if owner is None else owner.awaited
        # container id and its end -> why it ended by the kernel's log, None where that does not tell
        self.kernel_ends: dict[tuple[str, float | None], str | None] = {} if owner is None else owner.kernel_ends
        self._reporting: list[Callable[[], None]] = []

    def report_state_changes(self, emit: Callable[[NodeStateChanged], None]) -> None:
        """Emit every change of the connection's state, reconnect attempts included."""

        def report_status(status: ConnectionStatus) -> None:
            if status.state is not NodeState.UNKNOWN:  # closing it ourselves is no news
                emit(self.build_state_event(status))

        self._reporting.append(self.link.add_status_listener(report_status))

    def build_state_event(self, status: ConnectionStatus | None = None) -> NodeStateChanged:
        """Return the connection's state (or ``status``) as an event."""
        from sparkctl.model.events import NodeStateChanged  # imported late: `status` needs no events

        status = status or self.link.status
        return NodeStateChanged(
            ts=self.clock.unix_time(),
            node=self.node.name,
            state=status.state,
            detail=status.detail,
            attempt=status.attempt,
            next_try=status.next_try,
        )

    @property
    def user_home(self) -> str:
        """The home of the node's user; ``~`` if no inspection returned it."""
        return "~" if self.home is None else self.home

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 20.0) -> CommandResult:
        """Run a command to its end; raises `NodeStarved` if the connection lives but the command does not finish in time, and
        `LocalStall` if that is not the node's fault."""
        began = self.clock.monotonic()
        try:
            return await self.link.run(argv, stdin=stdin, timeout=timeout)
        except TimeoutError as late:
            if self.clock.monotonic() - began > timeout + _STALL_SECONDS:
                raise LocalStall(
                    self.node.name,
                    f"sparkctl itself stood still while it waited for {self.node.name}",
                    "was it stopped (Ctrl-Z, kill -STOP), or is this machine out of memory?",
                ) from late
            raise NodeStarved(
                self.node.name,
                f"{self.node.name} did not finish `{argv[0]}` within {timeout:.0f} s",
                "it is there but very busy or out of memory; wait, or look at its screen",
            ) from late

    async def read_node(self, *sections: str, timeout: float = 20.0) -> probe.NodeInspection:
        """Run one inspection of the node and return the result.

        Raises `NodeError` if the answer is not in the expected form, `NodeStarved` if it does not answer in time.
        """
        argv, script = build_script_command(*sections), read_node_script("node_inspection.sh")
        try:
            done = await self.run(argv, stdin=script, timeout=timeout)
        except LocalStall:
            done = await self.run(argv, stdin=script, timeout=timeout)
        try:
            seen = probe.decode_inspection(done.stdout)
        except ValueError as wrong:
            why = done.last_error
            raise NodeError(
                self.node.name,
                f"{self.node.name} gave an unexpected answer ({wrong})" + (f": {why}" if why else ""),
                "check whether `ssh` to it gives a working POSIX shell: sh -c 'echo ok'",
            ) from wrong
        if seen.identity is not None:
            self.home = seen.identity.home
        return seen

    async def kill_process(self, one: NodeProcess, signal: str) -> None:
        """Send ``signal`` (``TERM`` or ``KILL``) to a process. Raises `OperationRefused` if it is gone, or another one
        has its number now, or this user may not.

        It is the same process if it began at the same moment; where that is not known, if it has the same name."""
        node = self.node.name
        began = "-" if one.start_ticks is None else str(one.start_ticks)
        argv = build_script_command(signal, str(one.pid), began, (one.name or "-")[:15])
        done = await self.run(argv, stdin=read_node_script("end_process.sh"))
        answer, _, rest = sanitize_line(done.stdout.decode("utf-8", "replace").strip()).partition(" ")
        if done.status == 0 and answer == "sent":
            return
        if answer == "gone":
            raise OperationRefused(f"process {one.pid} is no longer on {node}")
        if answer == "other":
            raise OperationRefused(f"process {one.pid} on {node} is now another one, {rest}: nothing was sent to it")
        reason = rest or sanitize_line(done.stderr.decode("utf-8", "replace").strip()) or f"exit status {done.status}"
        raise OperationRefused(
            f"{node} did not end process {one.pid}: {reason}", f"on {node}: sudo kill -s {signal} {one.pid}"
        )

    async def __aenter__(self) -> Self:
        return self

    async def wait_reconnected(self) -> None:
        """Wait until a lost connection is back; raises errors that waiting does not fix."""
        await self.link.reconnect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over = True
        await self.link.close()


@contextmanager
def isolate_node_failures(node: Node) -> Iterator[None]:
    """Turn any exception while one node is read into an error of that node, so that other nodes are not affected.

    Errors of sparkctl pass unchanged. Others are unexpected: invalid data of a node that no parser refused, or a defect of
    sparkctl. SPARKCTL_DEBUG lets them pass unchanged.
    """
    try:
        yield
    except ProtocolViolation as error:
        raise UnreadableAnswer(node.name, f"{node.name}: {error.message}", error.hint) from error
    except SparkctlError:
        raise
    except Exception as error:
        raise_if_debugging(error)
        what = truncate_text(sanitize_line(f"{type(error).__name__}: {error}"), 160)
        raise UnreadableAnswer(
            node.name,
            f"{node.name} answered with something that sparkctl cannot read ({what})",
            "SPARKCTL_DEBUG=1 shows where; if nothing is wrong with the node, please report it",
        ) from error


class SharedSession(NodeSession):
    """A session over the connection of another session; leaving it closes nothing.

    Once the owner has closed the connection, it stays lost: `wait_reconnected` raises `NodeUnreachable`.
    """

    def __init__(self, owner: NodeSession) -> None:
        super().__init__(owner.node, clock=owner.clock, owner=owner)
        self._owner = owner

    async def wait_reconnected(self) -> None:
        """Wait until the connection is back; all waiting callers share one series of attempts."""
        if not self._owner.is_over:
            try:
                return await self.link.reconnect()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._owner.is_over or (task is not None and task.cancelling()):
                    raise  # this task itself is cancelled
        raise NodeUnreachable(self.node.name, f"the connection to {self.node.name} was ended")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over = True
        while self._reporting:
            self._reporting.pop()()
