"""Known host keys: finding, formatting and adding them. Strict: no key is trusted on first use without a question."""

from __future__ import annotations

import hmac
import os
from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from sparkctl.files import read_regular_file

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

    def for_asyncssh(self, accepted: asyncssh.SSHKey | None = None) -> tuple[Sequence[asyncssh.SSHKey], ...]:
        """Return the triple that asyncssh takes as ``known_hosts``; only ``accepted`` if that key was just confirmed."""
        if accepted is not None:
            return [accepted], [], list(self.revoked)
        return list(self.trusted_keys), list(self.authorities), list(self.revoked)

    def list_algorithms(self, accepted: asyncssh.SSHKey | None = None) -> list[str]:
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
