"""Maps exceptions of sockets and asyncssh to our own errors, each with a message and a remedy."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import asyncssh

from sparkctl.errors import (
    ChangedHostKey,
    HostKeyUntrusted,
    LoginRefused,
    NodeError,
    NodeStarved,
    NodeUnreachable,
    UnknownHostKey,
)
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.transport.ssh import ssh_config
from sparkctl.transport.ssh.ssh_config import SshTarget

DEFAULT_KEY_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
_NO_ROUTE_ERRNOS = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
_PING_HINT = "is it switched on, and on this network? try: "


def tcp_error(node: str, route: SshTarget, error: OSError, where: str) -> NodeError:
    place = f"{where}{route.host}:{route.port}"
    if isinstance(error, socket.gaierror):
        is_local = route.host.endswith(".local")
        check = (
            "a .local name needs mDNS on this network; an IP address works without" if is_local else "check the name"
        )
        hint = f"{check}; try: getent hosts {route.host}"
        return NodeUnreachable(node, f"{where}{route.host}: no such name", hint)
    if isinstance(error, ConnectionRefusedError):
        hint = "the machine is there, no SSH server listens on that port; check the port, or start ssh on the node"
        return NodeUnreachable(node, f"{place} refuses connections", hint)
    if isinstance(error, TimeoutError):
        return NodeUnreachable(node, f"{place} does not answer", _PING_HINT + f"ping {route.host}")
    if error.errno in _NO_ROUTE_ERRNOS:
        return NodeUnreachable(node, f"{place}: no route to it", _PING_HINT + f"ping {route.host}")
    return NodeUnreachable(node, f"{place}: {error.strerror or error}", _PING_HINT + f"ping {route.host}")


def no_banner_error(node: str, route: SshTarget, where: str, closed: bool) -> NodeStarved:
    """Return the error for a TCP connection without an SSH greeting."""
    what = "closes connections before an SSH greeting" if closed else "takes connections and does not greet as SSH does"
    return NodeStarved(
        node,
        f"{where}{route.host}:{route.port} {what}: the machine is probably out of memory, or something else listens there",
        f"see what it says: {route.ssh_command}   An SSH server may come back by itself; otherwise look at the machine's "
        "console, or switch it off and on. (If several logins were made at once, sshd's MaxStartups does the same.)",
    )


def login_timeout_error(node: str, route: SshTarget, where: str, limit: float) -> NodeStarved:
    """Return the error for an SSH server that began the login and did not finish it."""
    return NodeStarved(
        node,
        f"{where}{route.host}:{route.port} began the login and did not finish it within {limit:g} s: "
        "the machine is probably out of memory, or large packets are lost on the way",
        f"see how long this takes: {route.ssh_command} true\n"
        f"whether large packets arrive (over a VPN they may not): ping -c 3 -M do -s 1400 {route.host}",
    )


def silent_agent_error(node: str, where: str) -> NodeUnreachable:
    """Return the error for a login that waited for the ssh-agent of this machine."""
    return NodeUnreachable(
        node,
        f"{where}the ssh-agent of this machine does not answer, and the login waited for it",
        "see whether it does: ssh-add -l (it may wait for a touch or a PIN); without it: env -u SSH_AUTH_SOCK sparkctl status",
    )


def unknown_key_error(node: str, route: SshTarget, where: str, key: asyncssh.SSHKey) -> UnknownHostKey:
    seen = ssh_config.format_fingerprint(key)
    return UnknownHostKey(
        node,
        f"{where}the host key of {route.host} is not known ({ssh_config.get_key_type(key)} {seen})",
        f"connect once by hand and compare the fingerprint: {route.ssh_command}",
        seen,
        ssh_config.format_known_hosts_line(route.trust, route.port, key),
    )


def changed_key_error(
    node: str, route: SshTarget, where: str, key: asyncssh.SSHKey, known: ssh_config.KnownHostKeys
) -> ChangedHostKey:
    """Return the error for a host whose key differs from the known one, with both fingerprints."""
    offered = f"{ssh_config.get_key_type(key)} {ssh_config.format_fingerprint(key)}"
    expected = ", ".join(f"{ssh_config.get_key_type(old)} {ssh_config.format_fingerprint(old)}" for old in known.exact)
    name = ssh_config.format_known_hosts_name(route.trust, route.port)
    return ChangedHostKey(
        node,
        f"{where}the host key of {route.host} has changed: known is {expected}, offered is {offered}. "
        "The node was reinstalled, or somebody is in between",
        "if you know why, and the offered fingerprint is the node's, forget the old key and connect again: "
        f"ssh-keygen -R '{name}'{_format_file_option(route)}",
    )


def revoked_key_error(node: str, route: SshTarget, where: str) -> ChangedHostKey:
    """Return the error for a key that known_hosts marks as revoked."""
    files = " or ".join(str(file) for file in route.known_hosts + route.global_known_hosts if file.is_file())
    return ChangedHostKey(
        node, f"{where}the host key of {route.host} is revoked", f"see the @revoked lines in {files or 'known_hosts'}"
    )


_CERTIFICATE_PROBLEMS = (
    ("Certificate expired", "has expired", "have the node's host key signed again: ssh-keygen -s CA -h"),
    ("Certificate not yet valid", "is not valid yet", "compare the clocks of this machine and of the node: date"),
    (
        "Certificate principal mismatch",
        "is for another name",
        "name the node as its certificate does: ssh-keygen -L -f",
    ),
    (
        "Invalid certificate type",
        "is not a host certificate",
        "have the node's host key signed with: ssh-keygen -s CA -h",
    ),
    (
        "Host CA key is not trusted",
        "is signed by a CA that is not known",
        "see the @cert-authority lines in known_hosts",
    ),
)


def unverified_key_error(node: str, route: SshTarget, where: str, reason: str) -> HostKeyUntrusted:
    """Return the error for a host key that asyncssh refused for ``reason`` before it asked about the key."""
    if "revoked" in reason:
        return revoked_key_error(node, route, where)
    for mark, what, hint in _CERTIFICATE_PROBLEMS:
        if reason.startswith(mark):
            return HostKeyUntrusted(node, f"{where}the certificate of the host key of {route.host} {what}", hint)
    message = f"{where}the host key of {route.host} cannot be verified: {sanitize_line(reason)}"
    return HostKeyUntrusted(node, message, f"see what ssh says of it: {route.ssh_command} -v")


def not_ssh_error(node: str, route: SshTarget, where: str, error: Exception) -> NodeUnreachable:
    """Return the error for a server that violates the SSH protocol."""
    what = sanitize_line(str(error)).strip() or type(error).__name__
    return NodeUnreachable(
        node,
        f"{where}{route.host}:{route.port} speaks no proper SSH ({truncate_text(what, 120)})",
        f"see what listens there: {route.ssh_command}",
    )


def unreadable_known_hosts_error(node: str, where: str, error: OSError) -> HostKeyUntrusted:
    """Return the error for a known_hosts that is not a file, or is far too large."""
    return HostKeyUntrusted(
        node,
        f"{where}{error.filename} cannot be read: {error.strerror}",
        "no host key can be checked with it: put your known_hosts back, or name another in the config",
    )


def unusable_key_file_error(node: str, where: str, error: OSError) -> LoginRefused:
    """Return the error for a key file that would block the login forever."""
    return LoginRefused(
        node, f"{where}{error.filename} cannot be used as a key: {error.strerror}", "remove it, or put a key file there"
    )


def login_refused_error(node: str, route: SshTarget, where: str, methods: tuple[str, ...]) -> LoginRefused:
    """Return the error for a server that accepted none of our keys. ``methods``: those that the server accepts."""
    tried = [path for path in route.identities or list_default_keys() if path.is_file()]
    locked = [path for path in tried if _is_encrypted_key(path)]
    agent = os.environ.get("SSH_AUTH_SOCK")
    message = f"{where}{route.host} does not let {route.user} in"
    if locked and not agent:
        names = " ".join(_shorten_home(path) for path in locked)
        return LoginRefused(
            node,
            f"{message}: the key {names} has a passphrase and no ssh-agent holds it",
            f'hand it to an agent first: eval "$(ssh-agent)"; ssh-add {names}',
        )
    keys = ", ".join(_shorten_home(path) for path in tried) or "no key file"
    if agent:
        keys += " and the keys of the ssh-agent"
    wants = f"; the server takes {', '.join(methods)}" if methods and "publickey" not in methods else ""
    port = f"-p {route.port} " if route.port != ssh_config.SSH_PORT else ""
    key = f"-i {_shorten_home(tried[0])} " if tried else ""
    first = "" if tried or agent else "make a key (ssh-keygen -t ed25519), then "
    add = f"; or hand the locked key to the agent: ssh-add {_shorten_home(locked[0])}" if locked else ""
    return LoginRefused(
        node,
        f"{message} (tried: {keys}{wants})",
        f"{first}put your key on the node: ssh-copy-id {key}{port}{route.login_name}{add}",
    )


_RECONNECT_HINT = "connect again to be asked again: `r` in the panel, or repeat the command"


def prompt_cancelled_error(node: str, route: SshTarget, where: str) -> LoginRefused:
    """Return the error for a login whose prompt the operator did not answer."""
    message = f"{where}the login was cancelled: what {route.host} asked was not answered"
    return LoginRefused(node, message, _RECONNECT_HINT)


def answer_rejected_error(node: str, route: SshTarget, where: str) -> LoginRefused:
    """Return the error for wrong answers to prompts."""
    return LoginRefused(
        node, f"{where}{route.host} does not let {route.user} in with what was answered", _RECONNECT_HINT
    )


def prompt_hangup_error(node: str, route: SshTarget, where: str) -> LoginRefused:
    """Return the error for a server that hung up during or after its prompts."""
    return LoginRefused(
        node, f"{where}{route.host} asked something and ended the login before it was through", _RECONNECT_HINT
    )


def no_prompter_error(node: str, route: SshTarget, where: str) -> LoginRefused:
    """Return the error for a server that requires a prompt where prompts are not allowed."""
    return LoginRefused(
        node,
        f"{where}{route.host} wants to ask {route.user} something (a second factor, or a password), but nobody can be asked now",
        "in the panel `r` connects again and asks; a command asks if it has a terminal",
    )


def list_default_keys() -> list[Path]:
    """Return the key files that are tried by default."""
    return [Path.home() / ".ssh" / name for name in DEFAULT_KEY_NAMES]


def _is_encrypted_key(path: Path) -> bool:
    try:
        asyncssh.read_private_key(path)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        return isinstance(error, asyncssh.KeyEncryptionError) or "passphrase" in str(error).lower()
    except (OSError, ValueError):
        return False
    return False


def _shorten_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _format_file_option(route: SshTarget) -> str:
    usual = Path.home() / ".ssh" / "known_hosts"
    if not route.known_hosts or route.known_hosts[0] == usual:
        return ""
    return f" -f '{route.known_hosts[0]}'"
