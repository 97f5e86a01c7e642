"""A simulated node's real SSH server on a loopback port, and the commands that sparkctl runs there; there is no real shell."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import asyncssh

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.monitor import switch_journal_io
from sparkctl.node import collect, kernel_log, peer_checks
from sparkctl.node.registry import ANSWER_MARK
from sparkctl.simulator.docker_daemon import (
    DOCKER_VERSION,
    SimDockerDaemon,
    build_docker_api,
    build_registry_answer,
    run_build,
)
from sparkctl.simulator.http_server import ReadStream, RequestHandler, serve_connection
from sparkctl.simulator.node_programs.inspection_output import (
    INSPECTION_SCRIPT_MARKER,
    encode_file_check,
    format_inspection,
)
from sparkctl.simulator.node_programs.sim_agent import run_agent
from sparkctl.simulator.node_programs.sim_guard import GUARD_SOCKET, SimGuard
from sparkctl.simulator.node_programs.sim_transfer import run_model_program, run_survey, run_transfer
from sparkctl.simulator.sim_node import (
    KERNEL_VERSION,
    KILL_SCRIPT_MARKER,
    PING_SCRIPT_MARKER,
    SUDO_PASSWORD,
    UNLINK_SCRIPT_MARKER,
    USER,
    ByteSink,
    SimNode,
    SudoRule,
    answer_pings,
    end_process,
    open_sim_kernel_log,
    remove_shared_files,
)
from sparkctl.transport.ssh.login_shell import BEGIN_MARK


def run_collector(node: SimNode) -> bytes:
    lines: list[dict[str, object]] = []
    for path in collect.FILE_PATHS:
        content = node.read_file(path)
        if content is not None:
            lines.append({"name": path[1:], "text": content.decode()})
        lines.append(
            {"name": path[1:], "end": True, "why": None if content is not None else "No such file or directory"}
        )
    lines += [{"name": f"commands/{name}", "end": True, "why": "not simulated"} for name in collect.COMMANDS]
    lines.append({"name": "end", "end": True})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def read_sim_kernel_log(node: SimNode, words: list[str]) -> bytes:
    """Return the output of the program that reads the kernel's log once."""
    reader = open_sim_kernel_log(node)
    reader.collect(lambda _: None)
    before = None
    if "--boot-before" in words:
        end = node.unix_time() - node.uptime - 40.0
        lines = [f"{end + number / 10:.6f} {line}".encode() for number, line in enumerate(node.options.boot_end)]
        before = {
            **kernel_log.summarize_boot_end(lines, node.options.kernel_log_trouble),
            "lines": kernel_log.read_old_kernel_lines(lines),
        }
    clock = {"now": node.unix_time(), "uptime": node.uptime, "since_boot": node.uptime, "kernel": KERNEL_VERSION}
    message = {"kernel_log": kernel_log.KERNEL_LOG_PROTOCOL, **clock, "log": reader.build_message(), "before": before}
    return json.dumps(message).encode() + b"\n"


LOOPBACK = "127.0.0.1"
DROP_CACHES_COMMAND = ("/usr/bin/tee", "/proc/sys/vm/drop_caches")
LOCK_HELD_STATUS = 75
CONNECTION_REFUSED_STATUS = 111  # ECONNREFUSED
LOCK_SILENCE_SECONDS = 30.0  # seconds by the node's clock after which a lock's holder counts as gone
NO_SHELL_STATUS = 255  # the exit status of ssh for a failed connection
_STDIN_COMMAND_PATTERN = re.compile(r"sh -c 's=\$\(dd bs=(\d+) ")


@dataclass(frozen=True, slots=True)
class CommandStreams:
    """A command's three streams, in bytes."""

    stdin: ReadStream
    stdout: ByteSink
    stderr: ByteSink

    async def read_all_input(self) -> bytes:
        """Return everything up to the end of stdin."""
        read = b""
        while data := await self.stdin.read(65536):
            read += data
        return read


CommandHandler = Callable[[SimNode, list[str], CommandStreams], Awaitable[int]]


@lru_cache(maxsize=256)  # sparkctl sends the same programs again and again, and they are long
def _split_line(line: str) -> tuple[str, ...]:
    return tuple(shlex.split(line))


async def run_command(node: SimNode, line: str, streams: CommandStreams) -> int:
    """Run one command line as sshd would pass it on; return its exit status."""
    if from_stdin := _STDIN_COMMAND_PATTERN.match(line):
        line = await _read_command(int(from_stdin[1]), streams)
    try:
        argv = list(_split_line(line))
    except ValueError as error:
        return _report_failure(streams, f"sh: {error}", 2)
    if not argv:
        return _report_failure(streams, f"{node.name} is simulated: there is no shell on it", NO_SHELL_STATUS)
    command = _COMMAND_HANDLERS.get(argv[0].rpartition("/")[2])
    return await (command or _reject_command)(node, argv, streams)


async def _read_command(size: int, streams: CommandStreams) -> str:
    """Return the command that comes on stdin in ``size`` bytes of a script of `transport.ssh.login_shell`."""
    script = b""
    while len(script) < size and (more := await streams.stdin.read(size - len(script))):
        script += more
    for output in (streams.stdout, streams.stderr):
        output.write(BEGIN_MARK)
    return script.decode("utf-8", "replace").partition("\nexec ")[2]


def _report_failure(streams: CommandStreams, message: str, status: int) -> int:
    streams.stderr.write(f"{message}\n".encode())
    return status


async def _reject_command(_node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    return _report_failure(streams, f"not simulated: {shlex.join(argv)}", 127)


async def _run_sh(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    if argv[1:3] == ["-s", "--"]:
        script = (await streams.read_all_input()).decode("utf-8", "replace")
        answer = _SCRIPT_HANDLERS.get(script.split("\n", 1)[0].strip())
        if answer is None:
            return await _reject_command(node, argv, streams)
        streams.stdout.write(answer(node, argv[3:]).encode())
        return 0
    if len(argv) == 9 and argv[1] == "-c" and argv[3] == "sparkctl-lock":
        return await _hold_lock(node, argv[4], argv[7], streams)
    if argv[1:2] == ["-c"] and argv[3:4] == ["sparkctl-login"]:
        streams.stdout.write(b"{}\n")
        return 0
    if argv[1:2] == ["-c"] and argv[3:4] == ["sparkctl-download"]:
        await streams.read_all_input()
        streams.stdout.write(b"1000\n1000\n")
        return 0
    if argv[1:2] == ["-c"] and argv[3:4] == ["sparkctl-ref"]:
        streams.stdout.write(f"{node.git_commit}\trefs/heads/{argv[5]}\n{node.git_commit}\tHEAD\n".encode())
        return 0
    if argv[1:2] == ["-c"] and argv[3:4] == ["sparkctl-build"]:
        return await run_build(node, argv[5:], int(argv[4]), streams.stdin, streams.stdout)
    if len(argv) == 4 and argv[1] == "-c" and argv[3] == "sparkctl-guard" and node.guard is not None:
        streams.stdout.write(node.guard.list_directory())
        return 0
    return await _reject_command(node, argv, streams)


def _format_login(node: SimNode, _words: list[str]) -> str:
    return f"@@ login\n{USER}\n22\nlisted\n@@ end\n"


async def _run_test(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    """Simulate a NAS at /mnt/nas: it has every directory; nothing else is tested here."""
    if argv[1:2] != ["-d"] or len(argv) != 3:
        return await _reject_command(node, argv, streams)
    return 0 if argv[2].startswith("/mnt/nas") else 1


async def _run_env(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    """Simulate a login to another node, whose sshd knows the keys; nothing else is run with `env` here."""
    if "ssh" not in argv or argv[-1] != "true":
        return await _reject_command(node, argv, streams)
    return 0


def _write_journal(node: SimNode, words: list[str]) -> str:
    text, over = (words[1], words[2:]) if words[0] == "write" else (None, words[1:])
    if over and (node.journal or switch_journal_io.NO_JOURNAL) not in over:
        return "@@ other\n"
    if text is not None and node.is_home_full:
        return ""
    node.journal = text
    return "@@ removed\n" if text is None else "@@ written\n"


async def _run_python(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    """Run the agent, the guard or the collector, sent over stdin, with their options after the lengths."""
    if argv[1:2] == ["-ISc"]:
        return 0  # whether Python exists and is new enough
    if argv[1:3] == ["-IS", "-c"] and "sparkctl-whole" in argv[3]:
        streams.stdout.write(encode_file_check(node, argv[4:]))
        return 0
    if argv[1:3] == ["-IS", "-c"] and "socket" in argv[3]:
        return await _query_port(node, int(argv[4]), streams)
    if argv[1:3] != ["-ISu", "-c"]:
        return await _reject_command(node, argv, streams)
    mark, words = argv[3].rpartition("# ")[2], argv[5:]
    left = sum(int(part.rpartition(":")[2]) for part in argv[4].split(","))  # the modules, and the source of pynvml
    left += int(words[0]) if words and words[0].isdigit() else 0
    while left > 0 and (taken := await streams.stdin.read(min(left, 65536))):
        left -= len(taken)
    if left:
        return 0
    if mark == "sparkctl-guard" and node.guard is not None:
        node.guard.start(streams.stdout)
    elif mark == "sparkctl-collect":
        streams.stdout.write(run_collector(node))
    elif mark == "sparkctl-kernel-log":
        streams.stdout.write(read_sim_kernel_log(node, words))
    elif mark == "sparkctl-probe":
        await run_agent(node, words[1:], streams.stdin, streams.stdout)
    elif mark == "sparkctl-models":
        streams.stdout.write(await run_model_program(node, streams.stdin))
    elif mark == "sparkctl-registry":
        request = json.loads(await streams.stdin.read(1 << 16))
        node.registry_requests.append(request["repository"])
        streams.stdout.write(ANSWER_MARK.encode() + json.dumps(build_registry_answer(request)).encode() + b"\n")
    elif mark in ("sparkctl-survey", "sparkctl-carry"):
        work = run_survey if mark == "sparkctl-survey" else run_transfer
        return await work(node, streams.stdin, streams.stdout)
    else:
        return await _reject_command(node, argv, streams)
    return 0


class _PortClient:
    """A client of a port that has sent everything and waits for the answer, which goes to ``stdout``."""

    def __init__(self, data: bytes, stdout: ByteSink) -> None:
        self._data, self._stdout = data, stdout

    async def read(self, n: int = -1) -> bytes:
        if not self._data:
            await asyncio.Event().wait()
        data, self._data = self._data, b""
        return data

    def write(self, data: bytes) -> None:
        self._stdout.write(data)

    async def drain(self) -> None:
        """Do nothing: all data is accepted."""

    def close(self) -> None:
        """Do nothing: the end of the command closes it."""


async def _query_port(node: SimNode, port: int, streams: CommandStreams) -> int:
    handler = node.ports.get(port)
    if handler is None:
        return CONNECTION_REFUSED_STATUS
    question = _PortClient(await streams.read_all_input(), streams.stdout)
    await serve_connection(question, question, handler, "uvicorn")
    return 0


async def _hold_lock(node: SimNode, path: str, info: str, streams: CommandStreams) -> int:
    """Hold a lock until stdin ends or is silent for 30 s; a second holder gets the first one's words and status 75."""
    if path in node.locks:
        streams.stdout.write(f"@@ taken\n{node.locks[path]}\n".encode())
        return LOCK_HELD_STATUS
    node.locks[path] = info
    try:
        streams.stdout.write(b"@@ held\n")
        while await _wait_for_heartbeat(node, streams.stdin):
            pass
    finally:
        del node.locks[path]
    return 0


async def _wait_for_heartbeat(node: SimNode, stdin: ReadStream) -> bool:
    """Wait for the holder's next keepalive; False if none comes in time, or none can come any more."""
    beat, silence = asyncio.ensure_future(stdin.read(1)), asyncio.ensure_future(node.clock.sleep(LOCK_SILENCE_SECONDS))
    waits: tuple[asyncio.Future[Any], ...] = (beat, silence)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return beat.done() and beat.exception() is None and bool(beat.result())
    finally:
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _run_sync(node: SimNode, _argv: list[str], _streams: CommandStreams) -> int:
    if node.is_disk_stuck:
        await asyncio.Event().wait()
    await asyncio.sleep(0.01)
    node.memory.dirty = 0
    return 0


async def _run_sudo(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    flags, command = _split_sudo_options(argv[1:])
    if tuple(command) != DROP_CACHES_COMMAND:
        return _report_failure(streams, "sudo: a password is required", 1)
    given = await streams.read_all_input()
    if node.options.sudo is not SudoRule.ALLOWED or "-k" in flags:
        if "-S" not in flags:
            return _report_failure(streams, "sudo: a password is required", 1)
        password, _, given = given.partition(b"\n")
        if password.decode("utf-8", "replace") != SUDO_PASSWORD:
            return _report_failure(
                streams, "Sorry, try again.\nsudo: no password was provided\nsudo: 1 incorrect password attempt", 1
            )
        if node.options.sudo is SudoRule.DENIED:
            return _report_failure(streams, f"milo is not in the sudoers file on {node.name}.", 1)
    return _drop_caches(node, given, streams)


def _split_sudo_options(words: list[str]) -> tuple[set[str], list[str]]:
    flags: set[str] = set()
    while words and words[0].startswith("-"):
        flag, *words = words
        flags.add(flag)
        if flag == "-p":
            words = words[1:]
        if flag == "--":
            break
    return flags, words


def _drop_caches(node: SimNode, given: bytes, streams: CommandStreams) -> int:
    number = given.strip()
    if number not in (b"1", b"2", b"3"):
        return _report_failure(streams, "/usr/bin/tee: /proc/sys/vm/drop_caches: Invalid argument", 1)
    node.memory.drop_caches(int(number))
    streams.stdout.write(given)
    return 0


async def _run_cat(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    status = 0
    for path in (word for word in argv[1:] if word != "--"):
        content = node.read_file(path)
        if content is None:
            status = _report_failure(streams, f"cat: {path}: No such file or directory", 1)
        else:
            streams.stdout.write(content)
    return status


async def _run_head(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    if argv[1:2] != ["-c"] or len(argv) != 4:
        return await _reject_command(node, argv, streams)
    content = node.read_file(argv[3])
    if content is None:
        return _report_failure(streams, f"head: cannot open '{argv[3]}' for reading: No such file or directory", 1)
    streams.stdout.write(content[: int(argv[2])])
    return 0


async def _run_date(node: SimNode, argv: list[str], streams: CommandStreams) -> int:
    if argv[1:] != ["+%s.%N"]:
        return await _reject_command(node, argv, streams)
    streams.stdout.write(f"{node.clock.unix_time() + node.clock_ahead:.9f}\n".encode())
    return 0


async def _run_true(_node: SimNode, _argv: list[str], _streams: CommandStreams) -> int:
    return 0


_SCRIPT_HANDLERS = {
    INSPECTION_SCRIPT_MARKER: format_inspection,
    PING_SCRIPT_MARKER: answer_pings,
    UNLINK_SCRIPT_MARKER: remove_shared_files,
    KILL_SCRIPT_MARKER: end_process,
    switch_journal_io.SCRIPT_MARKER: _write_journal,
    peer_checks.LOGIN_SCRIPT_MARKER: _format_login,
}
_COMMAND_HANDLERS: dict[str, CommandHandler] = {
    "sh": _run_sh,
    "python3": _run_python,
    "sync": _run_sync,
    "sudo": _run_sudo,
    "cat": _run_cat,
    "head": _run_head,
    "date": _run_date,
    "true": _run_true,
    "env": _run_env,
    "test": _run_test,
}


DOCKER_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
ForwardHandler = Callable[["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class KeyboardInteractiveLogin:
    """A login without a key: prompts as (text, whether the typed text may be seen), and the right answers."""

    prompts: tuple[tuple[str, bool], ...]
    answers: tuple[str, ...]
    name: str = ""
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class _TerminalSink:
    """Writes to the terminal of an ssh client, which shows lines as they come."""

    stream: ByteSink

    def write(self, data: bytes) -> None:
        """Write lines that begin at the left."""
        self.stream.write(data.replace(b"\n", b"\r\n"))


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

    async def listen(self, address: str = LOOPBACK, port: int = 0) -> int:
        """Open a port of this machine, 0: any that is free, and return it. Raises OSError."""
        self._acceptor = await asyncssh.create_server(
            lambda: SimSshConnection(self),
            address,
            port,
            server_host_keys=[self.host_key],
            process_factory=self._run_process,
            encoding=None,
            agent_forwarding=False,
            line_editor=False,
        )
        return int(self._acceptor.get_port())

    async def _run_process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        status = 255
        # a signal ends the command alone; what passes from here ends the connection
        with suppress(asyncssh.Error, asyncssh.SignalReceived, OSError):
            stderr = process.stderr if process.term_type is None else _TerminalSink(process.stderr)
            streams = CommandStreams(process.stdin, process.stdout, stderr)
            status = await run_command(self.node, process.command or "", streams)
        process.exit(status)

    def drop_connections(self) -> None:
        """Break every connection at once, as a lost network does; the port stays open."""
        for login in list(self.logins):
            login.abort()

    def stop_listening(self) -> None:
        """Let nobody new in until `listen`."""
        if self._acceptor is not None:
            self._acceptor.close()

    def unplug(self) -> None:
        """Break every connection at once, and let nobody in until `listen`."""
        self.stop_listening()
        self.drop_connections()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        self.unplug()
        if self._acceptor is not None:
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
