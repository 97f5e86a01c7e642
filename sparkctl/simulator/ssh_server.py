"""The SSH server of a simulated node: a real one on a loopback port, with the limits of a Spark's sshd."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import asyncssh

from sparkctl.simulator.docker_api import DOCKER_VERSION, build_docker_api
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.http_server import RequestHandler, serve_connection
from sparkctl.simulator.node_programs.shell_commands import CommandStreams, run_command
from sparkctl.simulator.node_programs.sim_guard import GUARD_SOCKET, SimGuard
from sparkctl.simulator.sim_node import USER, SimNode

DOCKER_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
ForwardHandler = Callable[["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class KeyboardInteractiveLogin:
    """A login without a key: prompts as (text, whether the typed text may be seen), and the right answers."""

    prompts: tuple[tuple[str, bool], ...]
    answers: tuple[str, ...]
    name: str = ""
    instructions: str = ""


class SimSshServer:
    """``client`` is the only accepted key, and only for the node's user; with a ``second_factor`` no key is accepted."""

    def __init__(
        self,
        node: SimNode,
        docker: SimDockerDaemon,
        guard: SimGuard,
        host_key: asyncssh.SSHKey,
        client: asyncssh.SSHKey,
    ) -> None:
        self.node = node
        self.docker = docker
        self.guard = guard
        self.host_key = host_key
        self.authorized = asyncssh.import_authorized_keys(client.export_public_key().decode())
        self.logins: set[asyncssh.SSHServerConnection] = set()
        self.second_factor: KeyboardInteractiveLogin | None = None
        self.forwards_tcp = True
        self.asked = 0  # how often the second factor was requested
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def listen(self) -> int:
        """Open a port on 127.0.0.1 and return it."""
        self._acceptor = await asyncssh.create_server(
            lambda: SimSshConnection(self),
            "127.0.0.1",
            0,
            server_host_keys=[self.host_key],
            process_factory=self._run_process,
            encoding=None,
            allow_pty=False,
            agent_forwarding=False,
            line_editor=False,
        )
        return int(self._acceptor.get_port())

    async def _run_process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        status = 255
        with suppress(asyncssh.Error, OSError):
            streams = CommandStreams(process.stdin, process.stdout, process.stderr)
            status = await run_command(self.node, process.command or "", streams)
        process.exit(status)

    def drop_connections(self) -> None:
        """Break every connection at once, as a lost network does; the port stays open."""
        for login in list(self.logins):
            login.abort()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._acceptor is not None:
            self._acceptor.close()
            self.drop_connections()
            await self._acceptor.wait_closed()


class SimSshConnection(asyncssh.SSHServer):
    """One connection to a node."""

    def __init__(self, sshd: SimSshServer) -> None:
        self._sshd = sshd
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._sshd.logins.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._sshd.logins.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        if self._connection is not None and username == USER and self._sshd.second_factor is None:
            self._connection.set_authorized_keys(self._sshd.authorized)
        return True

    def kbdint_auth_supported(self) -> bool:
        return self._sshd.second_factor is not None

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, Sequence[tuple[str, bool]]] | bool:
        factor = self._sshd.second_factor
        if factor is None:
            return False
        self._sshd.asked += 1
        return factor.name, factor.instructions, "", factor.prompts

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        factor = self._sshd.second_factor
        return factor is not None and username == USER and tuple(responses) == factor.answers

    def unix_connection_requested(self, dest_path: str) -> ForwardHandler:
        guard = self._sshd.guard
        if dest_path == GUARD_SOCKET and guard.is_running:
            return guard.serve_client
        if dest_path not in DOCKER_SOCKETS or not self._sshd.node.options.docker_member:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed")
        return _build_forward_handler(build_docker_api(self._sshd.docker), f"Docker/{DOCKER_VERSION} (linux)")

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> ForwardHandler:
        if not self._sshd.forwards_tcp:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed")
        handler = self._sshd.node.ports.get(dest_port)
        if handler is None or dest_host not in ("127.0.0.1", "localhost", self._sshd.node.name):
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "Connection refused")
        return _build_forward_handler(handler, "uvicorn")


def _build_forward_handler(handler: RequestHandler, server: str) -> ForwardHandler:
    async def serve_forward(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        with suppress(asyncssh.Error):
            await serve_connection(reader, writer, handler, server)

    return serve_forward
