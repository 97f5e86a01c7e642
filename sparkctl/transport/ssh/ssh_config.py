"""The operator's ~/.ssh: its config for one SSH server (host, user, keys, jump hosts, known_hosts), and the known host keys.

Strict: no key is trusted on first use without a question.
"""

from __future__ import annotations

import hmac
import os
import shlex
from binascii import a2b_base64
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from sparkctl.errors import InvalidInput
from sparkctl.files import read_regular_file, refuse_irregular
from sparkctl.model.lazy_dataclass import dataclass

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


SSH_PORT = 22
_KEY_PREFIX = "AAAA"  # base64 of the length of an algorithm's name
MAX_FILE_BYTES = 32 << 20  # bytes of known_hosts; a hundred thousand hosts need a third of that
GLOBAL_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))


@dataclass(frozen=True, slots=True)
class KnownHostKeys:
    """The entries of the known_hosts files for one host.

    ``exact``: keys under its name and port. ``loose``: keys under its name without the port, enough to trust a key
    (as in OpenSSH), but not to report another key as changed. ``authorities`` sign host certificates.
    """

    exact: tuple[asyncssh.SSHKey, ...] = ()
    loose: tuple[asyncssh.SSHKey, ...] = ()
    authorities: tuple[asyncssh.SSHKey, ...] = ()
    revoked: tuple[asyncssh.SSHKey, ...] = ()

    @property
    def trusted_keys(self) -> tuple[asyncssh.SSHKey, ...]:
        """All keys that are accepted."""
        return (*self.exact, *self.loose)

    def for_asyncssh(self, accepted: asyncssh.SSHKey | None) -> tuple[Sequence[asyncssh.SSHKey], ...]:
        """Return the triple that asyncssh takes as ``known_hosts``; only ``accepted`` if that key was just confirmed."""
        if accepted is not None:
            return [accepted], [], list(self.revoked)
        return list(self.trusted_keys), list(self.authorities), list(self.revoked)

    def list_algorithms(self, accepted: asyncssh.SSHKey | None) -> list[str]:
        """Return host key algorithms, those of known keys first.

        A server may have keys of several types. It must offer the known one, or an unchanged node would look changed.
        """
        everything = sorted(get_default_public_key_algs(), key=_rank_algorithm)
        wanted = [accepted] if accepted is not None else list(self.trusted_keys)
        known = [algorithm for key in wanted for algorithm in key.sig_algorithms if algorithm in everything]
        certificates = list(get_default_certificate_algs()) if self.authorities and accepted is None else []
        ordered = dict.fromkeys([*certificates, *known, *everything])
        return [algorithm.decode("ascii") for algorithm in ordered]


def format_known_hosts_name(host: str, port: int) -> str:
    """Return how known_hosts spells a host: ``spark1.local`` or ``[spark1.local]:2222``."""
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


def find_known_keys(files: Sequence[Path], host: str, port: int) -> KnownHostKeys:
    """Return what ``files`` say of ``host``, hashed entries included; missing and unreadable files are skipped.

    Raises OSError if it is not a file (a FIFO, a device, a loop of links) or far too large.
    """
    names = (format_known_hosts_name(host, port), host.lower())
    known = [asyncssh.import_known_hosts(text) for text in (_read_host_entries(file, names) for file in files) if text]
    exact = _match_host(known, format_known_hosts_name(host, port))
    loose = _match_host(known, host.lower()) if port != SSH_PORT else KnownHostKeys()
    return KnownHostKeys(
        exact=exact.exact,
        loose=loose.exact,
        authorities=exact.authorities + loose.authorities,
        revoked=exact.revoked + loose.revoked,
    )


def format_fingerprint(key: asyncssh.SSHKey) -> str:
    """Return ``SHA256:...`` as OpenSSH prints it."""
    return str(key.get_fingerprint("sha256"))


def get_key_type(key: asyncssh.SSHKey) -> str:
    """Return the key's type as ssh-keygen names it: ED25519, ECDSA, RSA."""
    name = key.get_algorithm()
    for mark, word in (("ed25519", "ED25519"), ("ecdsa", "ECDSA"), ("rsa", "RSA")):
        if mark in name:
            return word
    return str(name)


def format_known_hosts_line(host: str, port: int, key: asyncssh.SSHKey) -> str:
    """Return the line that accepting ``key`` adds, without a newline."""
    words = key.export_public_key("openssh").decode("ascii").split()
    return f"{format_known_hosts_name(host, port)} {words[0]} {words[1]}"


def append_known_host(file: Path, line: str) -> None:
    """Append ``line`` to a known_hosts file; creates it (0600) and its directory (0700) if they are missing."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        ragged = False
        if size:
            stream.seek(size - 1)
            ragged = stream.read(1) != b"\n"
        stream.write((b"\n" if ragged else b"") + line.encode("utf-8") + b"\n")


def _rank_algorithm(algorithm: bytes) -> int:
    """Return a sort key: the first key shown should be the one that ssh and ssh-keygen show first."""
    return next(
        (rank for rank, mark in enumerate((b"ssh-ed25519", b"ecdsa-", b"rsa-")) if algorithm.startswith(mark)), 3
    )


def _match_host(known: Sequence[asyncssh.SSHKnownHosts], name: str) -> KnownHostKeys:
    keys: list[asyncssh.SSHKey] = []
    authorities: list[asyncssh.SSHKey] = []
    revoked: list[asyncssh.SSHKey] = []
    for file in known:
        # The address does not count: it may have belonged to another machine before.
        found = file.match(name, "", None)
        keys += found[0]
        authorities += found[1]
        revoked += found[2]
    return KnownHostKeys(tuple(keys), (), tuple(authorities), tuple(revoked))


def _read_host_entries(file: Path, names: tuple[str, str]) -> str:
    """Return the lines of ``file`` that may be about a host; a bad line must not hide the others.

    Lines about other hosts are skipped before any key is decoded, so that a large file costs little.
    """
    try:
        text = read_regular_file(file, MAX_FILE_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    lines = [line for line in text.splitlines() if _KEY_PREFIX in line and _may_match_host(line, names)]
    whole = "\n".join(lines)
    return whole if _is_parseable(whole) else "\n".join(line for line in lines if _is_parseable(line))


def _may_match_host(line: str, names: tuple[str, str]) -> bool:
    """Tell whether an entry may be for one of ``names``, with and without port; patterns are left to asyncssh."""
    words = line.split(None, 2)
    if len(words) < 2:
        return False
    hosts = words[1] if words[0].startswith("@") else words[0]
    if hosts.startswith("|1|"):
        return any(_is_hash_of(hosts, name) for name in names)
    return names[1] in hosts.lower() or any(sign in hosts for sign in "*?!/")


def _is_hash_of(hashed: str, name: str) -> bool:
    """Tell whether ``|1|SALT|HASH`` is the hash of a name."""
    try:
        _, _, salt, digest = hashed.split("|")
        return hmac.digest(a2b_base64(salt), name.encode(), "sha1") == a2b_base64(digest)
    except ValueError:
        return False


def _is_parseable(text: str) -> bool:
    try:
        asyncssh.import_known_hosts(text)
    except (ValueError, NameError):  # NameError: a possible X.509 key, as asyncssh is imported without X.509
        return False
    return True
