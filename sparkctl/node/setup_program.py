"""Builds the program that changes a node as root (`setup_node.sh` with its calls), and decodes what it prints."""

from __future__ import annotations

import shlex
from base64 import b64decode, encodebytes
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.node import read_node_script

SCRIPT_MARKER = "# sparkctl setup 1"
ABSENT = "none"  # the sum of a file that is not there
STATE_DIRECTORY = "/var/lib/sparkctl/setup"
WAY_BACK_SECONDS = 3.0  # seconds that going back may take: netplan starts its backend again
_END_MARK = "@@ end of this file"


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file as root sees it: ``sum`` is its SHA-256, none or other (no plain file); ``text`` of a plain file, where bytes that
    are not UTF-8 stand as lone surrogates, so that it goes back as it came."""

    path: str
    sum: str
    text: str | None


@dataclass(slots=True, kw_only=True)
class SetupReport:
    """What the program printed. ``words``: how it ended, as "confirmed" or "changed PATH"."""

    began: bool = False
    files: dict[str, NodeFile] = field(default_factory=dict)
    records: list[str] = field(default_factory=list)  # paths that were written here before
    groups: list[str] = field(default_factory=list)  # GROUP:USER
    made_keys: list[str] = field(default_factory=list)  # public parts of the key pairs that were made here
    state: str = STATE_DIRECTORY  # where the copies are kept
    home: str = ""
    public_key: str | None = None  # of the node's user, whose private part has no passphrase
    host_key: str | None = None
    warnings: list[str] = field(default_factory=list)
    failure: str | None = None
    words: set[str] = field(default_factory=set)

    @property
    def changed_path(self) -> str | None:
        """The file that somebody else changed meanwhile."""
        return next((one.partition(" ")[2] for one in self.words if one.startswith("changed ")), None)


def build_program(*calls: str) -> bytes:
    """Return the program for the stdin of ``sh -s``."""
    return "\n".join([read_node_script("setup_node.sh").decode(), *calls, 'echo "@@ end"', ""]).encode()


def call(function: str, *words: str, text: str | None = None) -> str:
    """Return one call; ``text`` is its stdin, in base64: a file may hold anything and end with anything."""
    line = shlex.join([function, *words])
    if text is None:
        return line
    encoded = encodebytes(text.encode("utf-8", "surrogateescape")).decode("ascii")
    return f"{line} <<'{_END_MARK}'\n{encoded}{_END_MARK}"


def arm_cable(path: str, lanes: Iterable[str], limit: float) -> str:
    """Return the call that arms the way back: the node has gone back by itself when ``limit`` seconds are over."""
    program = "\n".join(
        [read_node_script("setup_node.sh").decode(), call("go_back_after", f"{limit - WAY_BACK_SECONDS:g}", path), ""]
    )
    return call("arm_cable", path, *lanes, text=program)


def decode_report(answer: bytes) -> SetupReport:
    """Return what the program printed; what a login shell or sudo prints around it is ignored."""
    found = SetupReport()
    lines = answer.decode("utf-8", "replace").splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("@@ ")]
    for at, then in pairwise([*heads, len(lines)]):
        kind, _, rest = lines[at][3:].partition(" ")
        if kind == "setup":
            found.began = True
        elif kind == "file" and " " in rest:
            path, _, digest = rest.rpartition(" ")
            found.files[path] = NodeFile(path, digest, _decode_text(lines[at + 1 : then], digest))
        elif kind == "record":
            found.records.append(rest)
        elif kind == "group":
            found.groups.append(rest)
        elif kind == "made-key":
            found.made_keys.append(rest)
        elif kind == "state":
            found.state = rest
        elif kind == "home":
            found.home = rest
        elif kind == "public":
            found.public_key = sanitize_line(rest)
        elif kind == "host":
            found.host_key = sanitize_line(rest)
        elif kind == "warning":
            found.warnings.append(sanitize_line(rest))
        elif kind == "failed":
            found.failure = sanitize_line(rest)
        else:
            found.words.add(sanitize_line(f"{kind} {rest}".strip()))
    return found


def list_kept_copies(path: str, state: str) -> tuple[str, str]:
    """Return where the node keeps what was written to a file, and what was there before."""
    return f"{state}/written{path}", f"{state}/before{path}"


def _decode_text(lines: Sequence[str], digest: str) -> str | None:
    if digest in (ABSENT, "other"):
        return None
    try:
        return b64decode("".join(lines)).decode("utf-8", "surrogateescape")
    except ValueError:
        return None
