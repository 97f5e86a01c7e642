"""Import a systemd unit whose ExecStart is a `docker run`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkctl.errors import InvalidInput
from sparkctl.profiles.docker_options import FIELDS_INSTEAD_OF_OPTIONS
from sparkctl.profiles.env_references import escape_references, format_reference
from sparkctl.profiles.importers import docker_run
from sparkctl.profiles.importers.import_report import ImportReport
from sparkctl.profiles.importers.profile_draft import ProfileDraft, SourceFormat
from sparkctl.profiles.importers.shell_parser import ShellWord

_UNIT_SECTION = re.compile(r"^\[(Unit|Service|Install|Container)\]\s*$", re.MULTILINE)
_IGNORED_KEYS = frozenset({
    "Description", "ExecStart", "ExecStop", "Type", "Restart", "TimeoutStartSec", "TimeoutStopSec", "After", "Requires",
    "Wants", "WantedBy", "RestartSec", "RemainAfterExit",
})  # fmt: skip
_UNIT_VARIABLE = re.compile(r"\$\$\{|\$\$|%%|%h|\$\{(?P<name>[A-Za-z_]\w*)\}|\$(?P<bare>[A-Za-z_]\w*)")
_UNIT_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "s": " "}


def is_unit_file(text: str) -> bool:
    """Tell whether a text is a unit file."""
    return _UNIT_SECTION.search(text) is not None and "ExecStart" in text


def import_systemd(text: str, ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of the `docker run` in a unit. Raises `InvalidInput` if there is none."""
    joined = re.sub(r"\\[ \t]*\n[ \t]*", " ", text.replace("\r\n", "\n"))
    pairs = [
        line.partition("=")[::2] for line in joined.splitlines() if "=" in line and not line.startswith(("#", ";"))
    ]
    starts = [re.sub(r"^[-@:+!]+", "", value.strip()) for key, value in pairs if key.strip() == "ExecStart"]
    line = next((value for value in starts if docker_run.has_docker_run(value)), None)
    if line is None:
        raise InvalidInput("the unit starts no `docker run`", "ExecStart= is read")
    known = {**_parse_environment(pairs), **defined}
    found = docker_run.find_docker_run_words(
        [ShellWord(_convert_unit_variables(word, known)) for word in split_unit_words(line)]
    )
    if found is None:
        raise InvalidInput("the unit starts no `docker run`", "a shell around it is not looked into")
    draft = ProfileDraft(kind=SourceFormat.SYSTEMD, ledger=ledger, beside=docker_run.find_metadata(text))
    docker_run.read_docker_run_words(draft, found)
    for raw, value in pairs:
        key = raw.strip()
        if key == "Description":
            draft.title = value.strip().replace("%%", "%") or None
            ledger.add_mapped(key, "title")
        elif key == "EnvironmentFile":
            ledger.add_unsupported(key, "the profile takes its variables from your environment, or names an env_file")
        elif key == "Environment":
            ledger.add_mapped(key, "where ExecStart asks for it")
        elif key == "Restart" and value.strip() != "no":
            ledger.add_unsupported(key, FIELDS_INSTEAD_OF_OPTIONS["restart"])
        elif key in _IGNORED_KEYS:
            ledger.add_mapped(key, "nothing: how systemd runs it")
        else:
            ledger.add_unsupported(key, "how systemd runs it; sparkctl starts and stops in its own way")
    return draft


def split_unit_words(line: str) -> list[str]:
    """Return the words of a command line by systemd's rules: quotes around words, C escapes inside."""
    found: list[str] = []
    for match in re.finditer(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|[^\s"'\\])+""", line):
        parts = re.findall(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|[^"'\\]+""", match[0])
        found.append("".join(_unquote_part(part) for part in parts))
    return found


def _unquote_part(part: str) -> str:
    inner = part[1:-1] if part[0] in "\"'" else part
    return re.sub(r"\\(.)", lambda escape: _UNIT_ESCAPES.get(escape[1], escape[0]), inner, flags=re.DOTALL)


def _convert_unit_variables(word: str, known: Mapping[str, str]) -> str:
    """Return a word in a profile's notation; a variable that the unit sets becomes a default."""
    out, end = "", 0
    for match in _UNIT_VARIABLE.finditer(word):
        out += escape_references(word[end : match.start()])
        name = match["name"] or match["bare"]
        if name is not None:
            out += format_reference(name, known.get(name))
        else:
            out += {"$${": "$${", "$$": "$", "%%": "%", "%h": "~" if match.start() == 0 else "${HOME}"}[match[0]]
        end = match.end()
    out += escape_references(word[end:])
    return out.replace("${HOME}", "~", 1) if out.startswith("${HOME}") else re.sub(r"=\$\{HOME\}(?=/)", "=~", out)


def _parse_environment(pairs: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in pairs:
        if key.strip() == "Environment":
            for word in split_unit_words(value):
                name, equals, text = word.partition("=")
                if equals:
                    found[name] = text.replace("$$", "$").replace("%%", "%")
    return found
