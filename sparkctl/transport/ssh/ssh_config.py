"""Reads ~/.ssh/config for one SSH server: host, user, keys, jump hosts, known_hosts."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import asyncssh

from sparkctl.errors import InvalidInput
from sparkctl.files import refuse_irregular
from sparkctl.transport.ssh.host_keys import GLOBAL_KNOWN_HOSTS, SSH_PORT

MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """How to reach one SSH server. ``alias`` is the name as written, ``host`` the real one.

    ``jump`` is the jump host (``user@host:port``, several with commas), ``proxy`` a proxy command.
    ``trust`` is the name of its key in ``known_hosts``; new keys go to the first of those files.
    ``identities`` are the key files named in the ssh config or in ours; empty means the default ones.
    """

    alias: str
    host: str
    port: int
    user: str
    trust: str
    family: int
    bind: str | None
    jump: str | None
    proxy: tuple[str, ...]
    known_hosts: tuple[Path, ...]
    global_known_hosts: tuple[Path, ...]
    identities: tuple[Path, ...]
    identities_only: bool
    own_ciphers: bool  # the ssh config sets ciphers: use those

    @property
    def login_name(self) -> str:
        """``milo@spark1.local``, as in an ssh command."""
        return f"{self.user}@{self.host}"

    @property
    def ssh_command(self) -> str:
        """The ssh command for the same connection."""
        words = ["ssh"]
        if self.known_hosts and self.known_hosts[0] != Path.home() / ".ssh" / "known_hosts":
            words += ["-o", f"UserKnownHostsFile={self.known_hosts[0]}"]
        words += [word for path in self.identities for word in ("-i", str(path))]
        words += ["-J", self.jump] if self.jump else []
        words += ["-p", str(self.port)] if self.port != SSH_PORT else []
        return shlex.join([*words, self.login_name])


def list_ssh_config_files() -> list[Path]:
    """Return the ssh configs that exist, the user's first: the first value counts.

    Raises InvalidInput if one is a FIFO or similar: reading it would never end.
    """
    candidates = (Path.home() / ".ssh" / "config", Path("/etc/ssh/ssh_config"))
    return [file for file in candidates if _is_readable_config(file)]


def resolve_target(
    alias: str,
    *,
    user: str | None = None,
    port: int | None = None,
    identity: str | None = None,
    jump: str | None = None,
    known_hosts: str | None = None,
) -> SshTarget:
    """Return the route to ``alias``; arguments win over the ssh config. It reads files, but connects to nothing.

    Raises InvalidInput if the ssh config or a named key file cannot be read.
    """
    try:
        options = asyncssh.SSHClientConnectionOptions(
            config=[str(file) for file in list_ssh_config_files()],
            host=alias,
            port=port if port is not None else (),
            username=user if user is not None else (),
            client_keys=None,
            known_hosts=None,
        )
    except (ValueError, OSError, RecursionError) as error:  # a file may include itself
        raise InvalidInput(f"the ssh config cannot be used: {error}", "check it with: ssh -G " + alias) from error
    config = options.config
    via = jump if jump is not None else cast("str | None", config.get("ProxyJump"))
    proxy = () if jump is not None else tuple(options.proxy_command or ())
    host = str(options.host)
    return SshTarget(
        alias=alias,
        host=host,
        port=int(options.port),
        user=str(options.username),
        trust=str(options.host_key_alias or host),
        family=int(options.family),
        bind=cast("str | None", config.get("BindAddress")),
        jump=None if via in (None, "", "none") else via,
        proxy=() if proxy in (("none",), ()) else proxy,
        known_hosts=_resolve_user_known_hosts(known_hosts, config.get("UserKnownHostsFile")),
        global_known_hosts=() if known_hosts else _resolve_global_known_hosts(config.get("GlobalKnownHostsFile")),
        identities=_resolve_identities(identity, config.get("IdentityFile")),
        identities_only=bool(config.get("IdentitiesOnly")),
        own_ciphers=config.get("Ciphers") is not None,
    )


def _is_readable_config(config: Path) -> bool:
    try:
        refuse_irregular(config)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except OSError as error:
        raise InvalidInput(
            f"the ssh config cannot be used: {config}: {error.strerror}", "put your ssh config back"
        ) from error
    return os.access(config, os.R_OK)


def _is_key_file(path: Path) -> bool:
    try:
        refuse_irregular(path)
    except OSError:
        return False
    return os.access(path, os.R_OK)


def parse_jump_host(text: str) -> tuple[str, str | None, int | None]:
    """Split ``user@host:port`` of a jump into host, user and port. ``[::1]:22`` and a bare IPv6 address are accepted.

    Raises InvalidInput for an invalid port.
    """
    user, _, rest = text.rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT)):
        raise InvalidInput(f"{text!r} is not a jump host", "write it as user@host or user@host:port")
    return host, user or None, int(port) if port else None


def _resolve_user_known_hosts(ours: str | None, configured: object) -> tuple[Path, ...]:
    if ours is not None:
        return (Path(ours).expanduser(),)
    if isinstance(configured, list):
        return tuple(Path(str(name)).expanduser() for name in configured if str(name) != "none")
    return (Path.home() / ".ssh" / "known_hosts", Path.home() / ".ssh" / "known_hosts2")


def _resolve_global_known_hosts(configured: object) -> tuple[Path, ...]:
    if isinstance(configured, list):
        return tuple(Path(str(name)).expanduser() for name in configured if str(name) != "none")
    return GLOBAL_KNOWN_HOSTS


def _resolve_identities(ours: str | None, configured: object) -> tuple[Path, ...]:
    """Return the key files to try. One from our config must exist; of the ssh config's, those that exist, as in OpenSSH."""
    if ours is not None:
        path = Path(ours).expanduser()
        if not _is_key_file(path):
            raise InvalidInput(f"the identity {ours} cannot be read", "name a private key file, or leave it out")
        return (path,)
    names = configured if isinstance(configured, list) else []
    paths = (Path(str(name)).expanduser() for name in names)
    return tuple(path for path in paths if _is_key_file(path))
