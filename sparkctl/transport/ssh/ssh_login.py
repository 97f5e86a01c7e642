"""Logs in over SSH: jump hosts, time limits, strict host keys, and errors that name the failing hop.

Keyboard-interactive login passes a server's prompts (second factor, password) to the operator.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import asyncssh

from sparkctl.errors import (
    InvalidInput,
    LoginRefused,
    NodeError,
    NodeUnreachable,
    SparkctlError,
    UnknownHostKey,
    raise_if_debugging,
)
from sparkctl.files import refuse_irregular
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.questions import HostKeyQuestion, LoginPrompt, LoginQuestion, NonInteractivePrompter, Prompter
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.transport.ssh import ssh_config, ssh_errors
from sparkctl.transport.ssh.ssh_config import SshTarget, list_ssh_config_files, parse_jump_host, resolve_target

_STAGGER_SECONDS = 0.25  # a .local name often has a dead IPv6 address; its timeout takes a minute
_FALLBACK_ERROR = "no address"

Address = tuple[int, tuple[object, ...]]


async def connect_tcp(host: str, port: int, family: int, bind: tuple[str, int] | None) -> socket.socket:
    """Return a connected, non-blocking socket. Raises OSError (socket.gaierror for an unknown name).

    It has no time limit of its own: cancel it.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    addresses = interleave_addresses([(entry[0], tuple(entry[4])) for entry in found])
    errors: list[OSError] = []
    running: set[asyncio.Task[socket.socket]] = set()
    try:
        while addresses or running:
            if addresses:  # no TaskGroup: that an address fails is no error while another may answer
                running.add(asyncio.create_task(_connect_address(*addresses.pop(0), bind)))
            done, running = await asyncio.wait(
                running, timeout=_STAGGER_SECONDS if addresses else None, return_when=asyncio.FIRST_COMPLETED
            )
            winner = _pick_winner(done, errors)
            if winner is not None:
                return winner
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close_late_socket)
        await asyncio.gather(*running, return_exceptions=True)
    raise _choose_specific_error(errors)


def interleave_addresses(addresses: list[Address]) -> list[Address]:
    """Order addresses IPv4, other, IPv4, other ..., each kind in the resolver's order, without duplicates."""
    unique = list(dict.fromkeys(addresses))
    first = [address for address in unique if address[0] == socket.AF_INET]
    other = [address for address in unique if address[0] != socket.AF_INET]
    ordered: list[Address] = []
    while first or other:
        ordered += first[:1] + other[:1]
        first, other = first[1:], other[1:]
    return ordered


async def _connect_address(family: int, address: tuple[object, ...], bind: tuple[str, int] | None) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if bind is not None:
            sock.bind(bind)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _pick_winner(done: set[asyncio.Task[socket.socket]], errors: list[OSError]) -> socket.socket | None:
    """Return the first connected socket of ``done``, close further ones, collect the others' errors."""
    winner: socket.socket | None = None
    for task in done:
        error = task.exception()
        if error is None:
            if winner is None:
                winner = task.result()
            else:
                task.result().close()
        elif isinstance(error, OSError):
            errors.append(error)
        else:
            raise error
    return winner


def _choose_specific_error(errors: list[OSError]) -> OSError:
    """Return the most specific error: a refusal proves that the machine is there, a dead second address proves nothing."""
    for error in errors:
        if isinstance(error, ConnectionRefusedError):
            return error
    return errors[0] if errors else OSError(_FALLBACK_ERROR)


def _close_late_socket(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


CONNECT_TIMEOUT_SECONDS = 8.0  # seconds for name and TCP
LOGIN_TIMEOUT_SECONDS = 8.0  # seconds from TCP to logged in
BEGIN_TIMEOUT_SECONDS = 30.0  # seconds from opening a session to the mark of its command
KEEPALIVE_SECONDS = 2.0
KEEPALIVE_COUNT = 3  # a dead peer is seen after interval * (count + 1) = 8 s
# Preferred over asyncssh's first choice, which is computed partly in Python: a quarter less processor time for a log line.
FAST_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
_MAX_HOPS = 8
_AGENT_TIMEOUT_SECONDS = 1.0  # seconds for this machine's agent to list its keys

OnLost = Callable[[Exception | None], None]


@dataclass(slots=True)
class JumpChain:
    """A logged-in connection and its jump connections, nearest to us first."""

    ssh: asyncssh.SSHClientConnection
    under: list[asyncssh.SSHClientConnection]

    def abort_jumps(self) -> None:
        """End the jump connections at once: the connection through them is lost."""
        for ssh in reversed(self.under):
            ssh.abort()

    async def close(self) -> None:
        """Close all of them, the outermost first."""
        for ssh in (self.ssh, *reversed(self.under)):
            ssh.close()
            await ssh.wait_closed()


@dataclass(frozen=True, slots=True)
class LoginTimeouts:
    """Time limits in seconds; tests use shorter ones."""

    connect: float = CONNECT_TIMEOUT_SECONDS
    login: float = LOGIN_TIMEOUT_SECONDS
    keepalive: float = KEEPALIVE_SECONDS
    begin: float = BEGIN_TIMEOUT_SECONDS


async def connect_through_jumps(
    node: Node, questions: LoginPrompter, on_lost: OnLost, limits: LoginTimeouts
) -> JumpChain:
    """Return a connection to ``node``, through its jump hosts. Raises the NodeError that says what is wrong."""
    questions.begin_login()
    route = resolve_target(
        node.host,
        user=node.user,
        port=node.port,
        identity=node.identity,
        jump=node.jump,
        known_hosts=node.known_hosts,
    )
    under: list[asyncssh.SSHClientConnection] = []
    try:
        via = await _connect_jump_hosts(node, route, questions, limits, under)
        ssh = await _SshHop(node=node, route=route, questions=questions, limits=limits, where="").connect(via, on_lost)
    except BaseException:
        for jump in reversed(under):
            jump.abort()
        raise
    return JumpChain(ssh, under)


async def _connect_jump_hosts(
    node: Node,
    route: SshTarget,
    questions: LoginPrompter,
    limits: LoginTimeouts,
    under: list[asyncssh.SSHClientConnection],
) -> asyncssh.SSHClientConnection | None:
    """Open the jump hosts of ``route``, each through the one before, adding them to ``under``; return the last."""
    if route.jump is None:
        return None
    via: asyncssh.SSHClientConnection | None = None
    for text in route.jump.split(","):
        host, user, port = parse_jump_host(text.strip())
        hop = resolve_target(host, user=user, port=port, known_hosts=node.known_hosts)
        if len(under) >= _MAX_HOPS:
            raise InvalidInput(f"{node.name}: more than {_MAX_HOPS} jump hosts", "does ProxyJump lead in a circle?")
        if via is None:
            via = await _connect_jump_hosts(node, hop, questions, limits, under)
        via = await _SshHop(
            node=node, route=replace(hop, jump=None), questions=questions, limits=limits, where=f"jump host {host}: "
        ).connect(via, _ignore_lost_hop)
        under.append(via)
    return via


class _LoginClient(asyncssh.SSHClient):
    """Records how far a login came and which key was offered; passes the server's prompts on."""

    def __init__(self, on_lost: OnLost, questioning: KeyboardInteractive, limit: float) -> None:
        self.connection: asyncssh.SSHClientConnection | None = None
        self.offered: asyncssh.SSHKey | None = None
        self.logged_in = False
        self.questioning = questioning
        self._limit = limit
        self._on_lost = on_lost

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connection = conn
        self.questioning.extend_timeout(self._limit)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False

    def password_auth_requested(self) -> str | None:
        return self.questioning.take_password()

    def kbdint_auth_requested(self) -> str | None:
        return self.questioning.offer_submethods()

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        return await self.questioning.answer_prompts(name, instructions, prompts)

    def auth_completed(self) -> None:
        self.logged_in = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self.logged_in:
            self._on_lost(exc)

    @property
    def has_banner(self) -> bool:
        return self.connection is not None and self.connection.get_extra_info("server_version") is not None

    @property
    def auth_methods(self) -> tuple[str, ...]:
        return tuple(self.connection.get_server_auth_methods()) if self.connection is not None else ()


@dataclass(slots=True, kw_only=True)
class _SshHop:
    """One server of the route. ``where`` begins every message about it; empty for the node itself."""

    node: Node
    route: SshTarget
    questions: LoginPrompter
    limits: LoginTimeouts
    where: str

    async def connect(self, via: asyncssh.SSHClientConnection | None, on_lost: OnLost) -> asyncssh.SSHClientConnection:
        """Connect; ask once about an unknown key, then accept exactly that key."""
        try:
            return await self._attempt_login(via, on_lost, None)
        except _UnknownKeyOffered as unknown:
            key, error = unknown.key, unknown.error
        question = HostKeyQuestion(self.node.name, self.route.host, ssh_config.format_fingerprint(key))
        if not await self.questions.prompter.ask_yes_no(question):
            raise error
        if self.route.known_hosts:
            # at the yes, as ssh does: the login may fail for another reason
            self._save_host_key(error.known_hosts_line)
        return await self._attempt_login(via, on_lost, key)

    async def _attempt_login(
        self, via: asyncssh.SSHClientConnection | None, on_lost: OnLost, accepted: asyncssh.SSHKey | None
    ) -> asyncssh.SSHClientConnection:
        files = self.route.known_hosts + self.route.global_known_hosts
        try:
            known = ssh_config.find_known_keys(files, self.route.trust, self.route.port)
        except OSError as error:
            raise ssh_errors.unreadable_known_hosts_error(self.node.name, self.where, error) from error
        try:
            _refuse_irregular_keys(self.route)
        except OSError as error:
            raise ssh_errors.unusable_key_file_error(self.node.name, self.where, error) from error
        questioning = KeyboardInteractive(self.questions, self.route.host, self.limits.login, is_node=not self.where)
        greeter = _LoginClient(on_lost, questioning, self.limits.login)
        sock = await self._open_socket() if via is None and not self.route.proxy else None
        try:
            return await self._authenticate(greeter, sock, via, known, accepted)
        except asyncssh.HostKeyNotVerifiable as error:
            raise self._host_key_error(greeter.offered, known, accepted, error) from error
        except asyncssh.PermissionDenied as error:
            raise self._login_refused_error(greeter) from error
        except asyncssh.ChannelOpenError as error:
            reason = f"{self.where}the jump host cannot reach {self.route.host}:{self.route.port} ({error.reason})"
            raise NodeUnreachable(self.node.name, reason, "check the address as the jump host sees it") from error
        except asyncssh.KeyExchangeFailed as error:
            raise self._algorithm_error(error) from error
        except (asyncssh.DisconnectError, TimeoutError, OSError) as error:
            if greeter.has_banner and isinstance(error, TimeoutError) and await _is_agent_silent():
                raise ssh_errors.silent_agent_error(self.node.name, self.where) from error
            raise self._silence_error(greeter, error) from error
        except asyncssh.KeyImportError as error:
            raise LoginRefused(self.node.name, f"{self.where}a key cannot be read: {error}") from error
        except SparkctlError:
            raise
        except Exception as error:  # asyncssh passes on any decoding error
            if not isinstance(error, (asyncssh.Error, ValueError)):
                raise_if_debugging(error)
            raise ssh_errors.not_ssh_error(self.node.name, self.route, self.where, error) from error

    async def _open_socket(self) -> socket.socket:
        route = self.route
        bind = (route.bind, 0) if route.bind else None
        try:
            async with asyncio.timeout(self.limits.connect):
                return await connect_tcp(route.host, route.port, route.family, bind)
        except OSError as error:
            raise ssh_errors.tcp_error(self.node.name, route, error, self.where) from error

    async def _authenticate(
        self,
        greeter: _LoginClient,
        sock: socket.socket | None,
        via: asyncssh.SSHClientConnection | None,
        known: ssh_config.KnownHostKeys,
        accepted: asyncssh.SSHKey | None,
    ) -> asyncssh.SSHClientConnection:
        route = self.route
        through: dict[str, object] = {"sock": sock} if sock is not None else {}
        if not route.proxy:
            through["proxy_command"] = None
        # asyncssh's own login timer does not wait for answers to prompts; this limit also covers a jump or a proxy
        async with asyncio.timeout(self.limits.connect + self.limits.login) as greeter.questioning.login_timeout:
            return await asyncssh.connect(
                route.alias,
                route.port,
                username=route.user,
                config=[str(file) for file in list_ssh_config_files()],
                tunnel=via,
                client_factory=lambda: greeter,
                known_hosts=known.for_asyncssh(accepted),
                server_host_key_algs=known.list_algorithms(accepted),
                login_timeout=0,
                keepalive_interval=self.limits.keepalive,
                keepalive_count_max=KEEPALIVE_COUNT,
                encryption_algs=() if route.own_ciphers else FAST_CIPHERS,
                agent_forwarding=False,
                x11_forwarding=False,
                request_pty=False,
                command=None,
                encoding=None,
                **_build_key_options(route),
                **through,
            )

    def _host_key_error(
        self,
        offered: asyncssh.SSHKey | None,
        known: ssh_config.KnownHostKeys,
        accepted: asyncssh.SSHKey | None,
        error: asyncssh.HostKeyNotVerifiable,
    ) -> Exception:
        name = self.node.name
        if offered is None:
            return ssh_errors.unverified_key_error(name, self.route, self.where, error.reason)
        if accepted is not None:
            known = replace(known, exact=(accepted,))
        if known.exact:
            return ssh_errors.changed_key_error(name, self.route, self.where, offered, known)
        return _UnknownKeyOffered(offered, ssh_errors.unknown_key_error(name, self.route, self.where, offered))

    def _login_refused_error(self, greeter: _LoginClient) -> LoginRefused:
        name, methods, questioning = self.node.name, greeter.auth_methods, greeter.questioning
        if questioning.was_cancelled:
            return ssh_errors.prompt_cancelled_error(name, self.route, self.where)
        if questioning.was_asked:
            return ssh_errors.answer_rejected_error(name, self.route, self.where)
        if questioning.is_refused and "publickey" not in methods:
            return ssh_errors.no_prompter_error(name, self.route, self.where)
        return ssh_errors.login_refused_error(name, self.route, self.where, methods)

    def _silence_error(self, greeter: _LoginClient, error: Exception) -> NodeError:
        if greeter.questioning.was_asked and not isinstance(error, TimeoutError):
            return ssh_errors.prompt_hangup_error(self.node.name, self.route, self.where)
        proxy_failed = bool(self.route.proxy) and not greeter.has_banner
        if greeter.connection is None or proxy_failed:
            hint = f"try it by hand: {self.route.ssh_command}"
            return NodeUnreachable(
                self.node.name, f"{self.where}{self.route.host}: no connection: {error or 'it took too long'}", hint
            )
        if not greeter.has_banner:
            if isinstance(error, (asyncssh.ProtocolError, asyncssh.ProtocolNotSupported)):
                return ssh_errors.not_ssh_error(self.node.name, self.route, self.where, error)
            closed = "timeout" not in str(error).lower() and not isinstance(error, TimeoutError)
            return ssh_errors.no_banner_error(self.node.name, self.route, self.where, closed)
        if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
            return ssh_errors.login_timeout_error(self.node.name, self.route, self.where, self.limits.login)
        hint = f"try it by hand: {self.route.ssh_command}"
        reason = truncate_text(sanitize_line(str(error)), 200)
        return NodeUnreachable(self.node.name, f"{self.where}{self.route.host} broke off the login: {reason}", hint)

    def _algorithm_error(self, error: Exception) -> NodeUnreachable:
        hint = f"see what both sides offer: {self.route.ssh_command} -v"
        return NodeUnreachable(self.node.name, f"{self.where}{self.route.host}: no common SSH algorithm: {error}", hint)

    def _save_host_key(self, line: str) -> None:
        file = self.route.known_hosts[0]
        try:
            ssh_config.append_known_host(file, line)
        except OSError as error:
            raise InvalidInput(f"{file} cannot be written: {error.strerror}", f"add this line to it: {line}") from error


class _UnknownKeyOffered(Exception):
    """Carries the offered key out of a login attempt."""

    def __init__(self, key: asyncssh.SSHKey, error: UnknownHostKey) -> None:
        super().__init__(error.message)
        self.key = key
        self.error = error


def _build_key_options(route: SshTarget) -> dict[str, object]:
    """Return the options for the keys to try. Encrypted key files are left to the agent."""
    options: dict[str, object] = {"client_keys": [str(path) for path in route.identities], "ignore_encrypted": True}
    if route.identities_only:
        public = [str(path) + ".pub" for path in route.identities if path.with_name(path.name + ".pub").is_file()]
        options |= {"agent_identities": public} if public else {"agent_path": None}
    return options


async def _is_agent_silent() -> bool:
    """Tell whether this machine's ssh-agent does not answer: a login would wait for it."""
    if not os.environ.get("SSH_AUTH_SOCK"):
        return False
    try:
        async with asyncio.timeout(_AGENT_TIMEOUT_SECONDS), asyncssh.connect_agent() as agent:
            await agent.get_keys()
    except TimeoutError:
        return True
    except (OSError, ValueError, asyncssh.Error):
        return False
    return False


def _refuse_irregular_keys(route: SshTarget) -> None:
    """Raise OSError if a key file, or one beside it that asyncssh reads too, is a FIFO or similar."""
    for path in route.identities or ssh_errors.list_default_keys():
        for beside in ("", ".pub", "-cert.pub"):
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                refuse_irregular(f"{path}{beside}")


def _ignore_lost_hop(_: Exception | None) -> None:
    """Do nothing: if a jump host is lost, the connection through it reports the loss."""


_MAX_TRIES = 3  # rounds of prompts by one server in one login, as in ssh
_MAX_PROMPTS = 10
_MAX_PROMPT_CHARS = 500  # characters of a prompt
_MAX_INSTRUCTION_CHARS = 2000  # characters of the instruction above the prompts


class LoginPrompter:
    """Prompts the operator in one login of a connection. Later logins never prompt, so that reconnects in the background do
    not ask again and again."""

    def __init__(self, node: NodeName, prompter: Prompter, password: str | None) -> None:
        self.node, self.prompter = node, prompter
        self.password = password  # of the user on the node, for a login without a key; None: no such login
        self._asked = False
        self.may_ask = False

    def begin_login(self) -> None:
        """Decide whether the login that begins may prompt."""
        self.may_ask = not self._asked and not isinstance(self.prompter, NonInteractivePrompter)

    async def ask_operator(
        self, host: str, name: str, instructions: str, prompts: Sequence[LoginPrompt]
    ) -> Sequence[str] | None:
        """Return the operator's answers, None for no answer."""
        self._asked = self._asked or bool(prompts)
        shown = tuple(LoginPrompt(one.text[:_MAX_PROMPT_CHARS], one.is_echoed) for one in prompts)
        return await self.prompter.ask_login(
            LoginQuestion(node=self.node, host=host, name=name[:_MAX_PROMPT_CHARS], instructions=instructions[:_MAX_INSTRUCTION_CHARS], prompts=shown)
        )  # fmt: skip


class KeyboardInteractive:
    """The prompts of one server in one login. ``limit``: seconds for the login, which pause while the operator types.
    ``is_node``: it is the node itself, and no jump host, which must not get the node's password.
    """

    def __init__(self, questions: LoginPrompter, host: str, limit: float, *, is_node: bool) -> None:
        self._is_node = is_node
        self._questions, self._host, self._limit = questions, host, limit
        self.login_timeout: asyncio.Timeout | None = None
        self._tries = 0
        self.is_refused = False  # the server wanted to prompt, but prompts are not allowed
        self.was_cancelled = False
        self.was_asked = False

    def take_password(self) -> str | None:
        """Return the password for a login without a key, once; None: there is none for this server, or it was wrong."""
        if not self._is_node:
            return None
        password, self._questions.password = self._questions.password, None
        return password

    def offer_submethods(self) -> str | None:
        """Return the submethods: empty for the server's choice; None to skip the method: no more prompts."""
        if not self._questions.may_ask:
            self.is_refused = True
            return None
        self._tries += 1
        return None if self.was_cancelled or self._tries > _MAX_TRIES else ""

    async def answer_prompts(
        self, name: str, instructions: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """Return an answer for each prompt (the text, whether what is typed may be seen), None for no answer."""
        if len(prompts) > _MAX_PROMPTS:
            return None
        if not prompts and not (name.strip() or instructions.strip()):
            return ()
        self.was_asked = self.was_asked or bool(prompts)
        self.extend_timeout(None)
        try:
            found = await self._questions.ask_operator(
                self._host, name, instructions, [LoginPrompt(text, echoed) for text, echoed in prompts]
            )
        finally:
            self.extend_timeout(self._limit)
        self.was_cancelled = found is None
        return found

    def extend_timeout(self, seconds: float | None) -> None:
        """Set the login's time limit from now on; None: no limit."""
        if self.login_timeout is not None:
            with suppress(RuntimeError):  # the login is over
                loop = asyncio.get_running_loop()
                self.login_timeout.reschedule(None if seconds is None else loop.time() + seconds)
