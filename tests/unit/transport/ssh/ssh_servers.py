"""Servers to connect to: a real SSH server in this process, and TCP listeners that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import asyncssh

from sparkctl.model.questions import HostKeyQuestion, LoginQuestion, SudoPasswordQuestion
from sparkctl.transport.local_connection import kill_process_group
from sparkctl.transport.node_connection import ByteReader, ByteWriter
from sparkctl.transport.ssh.ssh_login import LoginTimeouts

QUICK = LoginTimeouts(connect=2.0, login=0.6, keepalive=2.0, begin=10.0)


class Gate(asyncssh.SSHServer):
    """Lets ``milo`` in with one key; forwards what it is asked to."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        self._server.logins += 1
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "milo" and key == self._server.client.convert_to_public()

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True

    def unix_connection_requested(self, dest_path: str) -> bool:
        return self._server.opens


@dataclass
class Server:
    """One running SSH server. ``connections`` grows with every one made."""

    client: asyncssh.SSHKey
    keys: list[asyncssh.SSHKey]
    port: int = 0
    logins: int = 0
    opens: bool = True  # sessions and sockets, for who is logged in
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])  # whose next word is the command line
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)

    def cut(self) -> None:
        """Drop every connection as a killed sshd does."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()


async def _run_in_shell(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run the command line in a shell of this machine, as sshd would in the login shell."""
    child = await asyncio.create_subprocess_exec(
        *server.shell, process.command or "",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    feeding = asyncio.create_task(_pump_stream(process.stdin, child.stdin, eof=True))
    try:
        await asyncio.gather(_pump_stream(child.stdout, process.stdout), _pump_stream(child.stderr, process.stderr))
        process.exit(await child.wait())
    finally:
        feeding.cancel()
        await kill_process_group(child)


async def _pump_stream(reader: ByteReader, writer: ByteWriter, eof: bool = False) -> None:
    with suppress(OSError, asyncssh.Error):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if eof:  # of a channel there is one, for both outputs: its end says it
            writer.write_eof()


@asynccontextmanager
async def serve_ssh(
    client: asyncssh.SSHKey, *keys: asyncssh.SSHKey, port: int = 0, opens: bool = True
) -> AsyncIterator[Server]:
    """Listen on 127.0.0.1 with these host keys until the block ends."""
    server = Server(client, list(keys), opens=opens)
    listener = await asyncssh.listen(
        "127.0.0.1",
        port,
        server_factory=lambda: Gate(server),
        server_host_keys=server.keys,
        process_factory=(lambda process: _run_in_shell(server, process)) if opens else None,
        encoding=None,
    )
    server.port = listener.get_port()
    try:
        yield server
    finally:
        server.cut()
        listener.close()
        await listener.wait_closed()


@asynccontextmanager
async def listen_silently(banner: bytes = b"", close: bool = False) -> AsyncIterator[int]:
    """Take connections on a port, say ``banner``, and then nothing more, or hang up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(banner)
        if not close:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Operator:
    """Answers questions and remembers them."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[HostKeyQuestion] = []

    async def ask_yes_no(self, question: HostKeyQuestion) -> bool:
        """Return the answer given beforehand."""
        self.asked.append(question)
        return self.answer

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        """Know none."""
        return None

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Know none."""
        return None
