"""Import a ``docker run ...``: pasted, with any text around it, of a systemd unit or a Podman quadlet. Or a container that runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec
from sparkctl.profiles.docker_options import FIELDS_INSTEAD_OF_OPTIONS
from sparkctl.profiles.env_references import escape_references, format_reference, resolve_defaults
from sparkctl.profiles.importers import docker_flags, shell_parser
from sparkctl.profiles.importers.engine_command import parse_engine_command
from sparkctl.profiles.importers.profile_draft import METADATA_COMMENT, ImportReport, ProfileDraft, SourceFormat
from sparkctl.profiles.importers.shell_parser import ShellWord

DOCKER_PROGRAMS = ("docker", "podman", "nerdctl", "nvidia-docker")
_DOCKER_OPTIONS_WITH_VALUE = (
    "-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey", "-n", "--namespace",
)  # fmt: skip
_BARE_FLAGS = frozenset({
    "detach", "interactive", "tty", "rm", "init", "privileged", "read-only", "no-healthcheck", "oom-kill-disable",
    "publish-all", "sig-proxy", "disable-content-trust", "quiet", "help", "use-api-socket", "replace", "rmi", "tls-verify",
})  # fmt: skip
_VALUE_FLAGS = frozenset({
    "add-host", "annotation", "attach", "blkio-weight", "blkio-weight-device", "cap-add", "cap-drop", "cgroup-parent",
    "cgroupns", "cidfile", "cpu-count", "cpu-percent", "cpu-period", "cpu-quota", "cpu-rt-period", "cpu-rt-runtime",
    "cpu-shares", "cpus", "cpuset-cpus", "cpuset-mems", "detach-keys", "device", "device-cgroup-rule",
    "device-read-bps", "device-read-iops", "device-write-bps", "device-write-iops", "dns", "dns-opt", "dns-option",
    "dns-search", "domainname", "entrypoint", "env", "env-file", "expose", "gpus", "group-add", "health-cmd",
    "health-interval", "health-retries", "health-start-interval", "health-start-period", "health-timeout", "hostname",
    "io-maxbandwidth", "io-maxiops", "ip", "ip6", "ipc", "isolation", "kernel-memory", "label", "label-file", "link",
    "link-local-ip", "log-driver", "log-opt", "mac-address", "memory", "memory-reservation", "memory-swap",
    "memory-swappiness", "mount", "name", "net", "net-alias", "network", "network-alias", "oom-score-adj", "pid",
    "pids-limit", "platform", "publish", "pull", "restart", "runtime", "security-opt", "shm-size", "stop-signal",
    "stop-timeout", "storage-opt", "sysctl", "tmpfs", "ulimit", "user", "userns", "uts", "volume", "volume-driver",
    "volumes-from", "workdir",
})  # fmt: skip
_SHORT_BARE_FLAGS = {"d": "detach", "i": "interactive", "t": "tty", "P": "publish-all", "q": "quiet"}
_SHORT_VALUE_FLAGS = {"e": "env", "v": "volume", "p": "publish", "l": "label", "u": "user", "w": "workdir", "m": "memory",
                 "h": "hostname", "a": "attach", "c": "cpu-shares"}  # fmt: skip
_IMAGE_REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/:@-]*+[A-Za-z0-9._-]*+(?::[\w.-]++)?(?:@sha256:[0-9a-f]++)?")


def has_docker_run(text: str) -> bool:
    return (
        re.search(
            rf"(?<![\w.-])({'|'.join(DOCKER_PROGRAMS)})\s(?!(model|compose)\b)[^\n]{{0,200}}?\b(run|create)\b",
            shell_parser.clean_pasted_text(text),
        )
        is not None
    )


def import_docker_run(text: str, ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of the `docker run` in a text that starts an engine. ``defined``: values of variables that the text does not
    set.

    Raises `InvalidInput` if there is none, or it has no image.
    """
    if len(text) > shell_parser.MAX_CHARS:
        raise InvalidInput(f"a text of {len(text)} characters is no `docker run` line")
    draft = ProfileDraft(kind=SourceFormat.DOCKER, ledger=ledger, beside=find_metadata(text))
    if draft.beside:
        commands = shell_parser.parse_shell(text, defined)
    else:
        commands = shell_parser.parse_script(text, defined, lambda words: find_docker_run_words(words) is not None)
    chosen = _find_engine_run(commands)
    found: list[ShellWord] | None = None
    exported = dict(defined)
    for command in commands:
        words = find_docker_run_words(command.words)
        if words is not None and command is chosen:
            if command.unclosed is not None:
                raise InvalidInput(
                    f"a quote is not closed: {command.unclosed}", "is the line cut off? Paste all of it, quotes and all"
                )
            found = words
            for redirection in command.redirections:
                ledger.add_unsupported(redirection, "what it prints is in `sparkctl logs`")
            for doubt in command.list_doubts():
                ledger.add_remark(doubt)
            read_docker_run_words(draft, found, exported)
        elif assignments := shell_parser.list_exports(command):
            exported |= assignments
        elif command.words and not _is_assignment(command):
            _report_other_command(draft, command, second=words is not None)
    unclosed = commands[-1].unclosed if commands else None
    if found is None and unclosed is not None:
        raise InvalidInput(
            f"a quote is not closed: {unclosed}", "everything after it, including `docker run`, is read as one text"
        )
    if found is None:
        raise InvalidInput("there is no `docker run` in it", "paste the whole line, or name a file")
    return draft


def _find_engine_run(commands: Sequence[shell_parser.ShellCommand]) -> shell_parser.ShellCommand | None:
    """Return the first `docker run` that starts an engine: scripts start helpers before it. If none does, the first."""
    runs = [(command, words) for command in commands if (words := find_docker_run_words(command.words)) is not None]
    for command, words in runs if len(runs) > 1 else ():
        draft = ProfileDraft(kind=SourceFormat.DOCKER, ledger=ImportReport())
        with suppress(InvalidInput):
            read_docker_run_words(draft, words)
            if parse_engine_command(draft.words or (), draft.image or "", None).engine != FALLBACK_ENGINE:
                return command
    return runs[0][0] if runs else None


def _is_assignment(command: shell_parser.ShellCommand) -> bool:
    words = command.words[1:] if command.words[0].text in ("export", "local", "readonly") else command.words
    return all(shell_parser.parse_assignment(word) for word in words)


def find_metadata(text: str) -> str | None:
    """Return the metadata that an export of sparkctl wrote in a comment."""
    line = next((line for line in text.splitlines() if line.startswith(METADATA_COMMENT)), None)
    return None if line is None else line.removeprefix(METADATA_COMMENT)


def _report_other_command(draft: ProfileDraft, command: shell_parser.ShellCommand, *, second: bool) -> None:
    line = command.as_text()[:100]
    why = "another `docker run` is read" if second else "only the `docker run` is read"
    draft.ledger.add_unsupported(f"`{line}`", why)


def find_docker_run_words(words: Sequence[ShellWord]) -> list[ShellWord] | None:
    """Return the words after ``docker [container] run``, None for any other command."""
    start = shell_parser.skip_prefix(words)
    texts = [word.text for word in words[start : start + 8]]
    if not texts or texts[0].rpartition("/")[2] not in DOCKER_PROGRAMS:
        return None
    at = 1
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if texts[at] in _DOCKER_OPTIONS_WITH_VALUE else 1
    if at < len(texts) and texts[at] == "container":
        at += 1
    return list(words[start + at + 1 :]) if at < len(texts) and texts[at] in ("run", "create") else None


def read_docker_run_words(
    draft: ProfileDraft, words: list[ShellWord], exported: Mapping[str, str] | None = None
) -> None:
    """Read the words after ``docker run``: flags, image, command. Raises `InvalidInput` if there is no image.

    ``exported``: variables that the text sets before, which ``-e NAME`` takes.
    """
    at = 0
    unknown: list[tuple[str, str]] = []  # flags that docker's help does not list, and the word after each
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or text == "-":
            break
        at += (
            _read_long_flag(draft, words, at, unknown) if text.startswith("--") else _read_short_flags(draft, words, at)
        )
    for name, value in (exported or {}).items():
        if draft.env.get(name) == format_reference(name):
            draft.env[name] = value
    if at >= len(words):
        raise InvalidInput("the `docker run` names no image", "is the line cut off? lines continue after a backslash")
    image = resolve_defaults(words[at].text)
    shell_parser.refuse_placeholder(words[at:])
    if image is None or words[at].unknown:
        raise InvalidInput(f"the image {words[at].text} depends on a variable", "--define NAME=VALUE gives it")
    draft.image = image
    if draft.network is None and not any(flag == "publish" for flag, _ in draft.options) and not draft.beside:
        draft.ledger.add_remark(
            "it has no -p and no --network, so nothing could reach its port; the profile takes the host's network"
        )
    draft.ledger.add_mapped("IMAGE", "image")
    rest = words[at + 1 :]
    for word in rest:
        for piece in word.unknown:
            draft.ledger.add_unsupported(piece, "only the shell that runs it knows its value; it is kept as written")
    draft.words = [word.text for word in rest] or None
    if draft.words:
        draft.ledger.add_mapped("COMMAND", "command, args")


def _read_long_flag(draft: ProfileDraft, words: list[ShellWord], at: int, unknown: list[tuple[str, str]]) -> int:
    """Take one ``--flag``; return how many words it is."""
    name, equals, value = words[at].text[2:].partition("=")
    if equals:
        _apply_flag(draft, name, value, words[at])
        return 1
    if name in _BARE_FLAGS:
        _apply_flag(draft, name, "true", words[at])
        return 1
    if name not in _VALUE_FLAGS and (at + 1 >= len(words) or not _takes_value(words, at)):
        _apply_flag(draft, name, "true", words[at])
        return 1
    if at + 1 >= len(words):
        draft.ledger.add_unsupported(f"--{name}", "its value is missing")
        return 1
    _apply_flag(draft, name, words[at + 1].text, words[at + 1])
    return 2


def _takes_value(words: list[ShellWord], at: int) -> bool:
    """Guess whether an unknown flag has a value: not if the image would be lost by it."""
    value = words[at + 1].text
    if value.startswith("-"):
        return False
    behind = next((word.text for word in words[at + 2 :] if not word.text.startswith("-")), "")
    inspections = re.search(r"[/:]", value) is not None and _IMAGE_REFERENCE.fullmatch(value) is not None
    return not (inspections and not re.search(r"[a-z0-9][/:][a-z0-9]", behind))


def _read_short_flags(draft: ProfileDraft, words: list[ShellWord], at: int) -> int:
    """Take ``-it``, ``-p 80:80``, ``-eK=V`` and the like; return how many words it is."""
    letters = words[at].text[1:]
    for position, letter in enumerate(letters):
        if letter in _SHORT_BARE_FLAGS:
            _apply_flag(draft, _SHORT_BARE_FLAGS[letter], "true", words[at], f"-{letter}")
        elif letter in _SHORT_VALUE_FLAGS:
            own = letters[position + 1 :].removeprefix("=")
            if own:
                _apply_flag(draft, _SHORT_VALUE_FLAGS[letter], own, words[at], f"-{letter}")
                return 1
            if at + 1 >= len(words):
                draft.ledger.add_unsupported(f"-{letter}", "its value is missing")
                return 1
            _apply_flag(draft, _SHORT_VALUE_FLAGS[letter], words[at + 1].text, words[at + 1], f"-{letter}")
            return 2
        else:
            draft.ledger.keep_extra(f"-{letters[position:]}", letters[position:], "docker run has no such flag")
            return 1
    return 1


def _apply_flag(draft: ProfileDraft, flag: str, value: str, word: ShellWord, shown: str | None = None) -> None:
    key = shown or f"--{flag}"
    if flag in ("env", "volume", "publish", "ulimit", "device", "cap-add", "security-opt", "mount", "label"):
        key = f"{key} {value.partition('=')[0] if flag in ('env', 'label') else value}"
    if word.unknown:
        is_placeholder = word.unknown[0].startswith("<")
        why = (
            "is a placeholder; write the value itself" if is_placeholder else "is known only to the shell it is run in"
        )
        draft.ledger.add_unsupported(key, f"{word.unknown[0]} {why}")
        return
    if flag == "volume":
        value = _shorten_home(value)
    if flag == "mount":
        value = ",".join(_shorten_home_in_mount(part) for part in value.split(","))
    docker_flags.apply_docker_flag(draft, flag, value, key)


def _shorten_home(text: str) -> str:
    return re.sub(r"^(\$\{HOME\}|\$\{HOME:-[^}]*\}|/home/\$\{USER\})(?=/|:|$)", "~", text)


def _shorten_home_in_mount(part: str) -> str:
    name, equals, value = part.partition("=")
    return f"{name}={_shorten_home(value)}" if equals else part


# --- a systemd unit whose ExecStart is a `docker run` ---

_UNIT_SECTION = re.compile(r"^\[(Unit|Service|Install|Container|Quadlet)\]\s*$", re.MULTILINE)
_IGNORED_KEYS = frozenset({
    "Description", "ExecStart", "ExecStop", "Type", "Restart", "TimeoutStartSec", "TimeoutStopSec", "After", "Requires",
    "Wants", "WantedBy", "RestartSec", "RemainAfterExit",
})  # fmt: skip
_UNIT_VARIABLE = re.compile(r"\$\$\{|\$\$|%%|%h|\$\{(?P<name>[A-Za-z_]\w*)\}|\$(?P<bare>[A-Za-z_]\w*)")
_UNIT_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "s": " "}


def is_unit_file(text: str) -> bool:
    return _UNIT_SECTION.search(text) is not None and "ExecStart" in text


def import_systemd(text: str, ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of the `docker run` in a unit. Raises `InvalidInput` if there is none."""
    pairs = _list_unit_pairs(text)
    line = next((value for value in _list_unit_starts(pairs) if has_docker_run(value)), None)
    if line is None:
        raise InvalidInput("the unit starts no `docker run`", "ExecStart= is read")
    known = {**_parse_environment(pairs), **defined}
    found = find_docker_run_words([ShellWord(_convert_unit_variables(word, known)) for word in split_unit_words(line)])
    if found is None:
        raise InvalidInput("the unit starts no `docker run`", "commands inside a shell are not read")
    draft = ProfileDraft(kind=SourceFormat.SYSTEMD, ledger=ledger, beside=find_metadata(text))
    read_docker_run_words(draft, found)
    record_unit_keys(text, draft, defined)
    return draft


def record_unit_keys(text: str, draft: ProfileDraft, defined: Mapping[str, str]) -> None:
    """Record what becomes of a unit's keys, beside the command that it starts."""
    pairs, ledger = _list_unit_pairs(text), draft.ledger
    known = {"HOME", *_parse_environment(pairs), *defined}
    used = [
        found["name"] or found["bare"] for line in _list_unit_starts(pairs) for found in _UNIT_VARIABLE.finditer(line)
    ]
    needed = [name for name in dict.fromkeys(used) if name is not None and name not in known]
    for raw, value in pairs:
        key = raw.strip()
        if key == "Description":
            draft.title = value.strip().replace("%%", "%") or None
            ledger.add_mapped(key, "title")
        elif key == "EnvironmentFile":
            wanted = f"set {', '.join(needed)} in your own environment, or by --define NAME=VALUE what is no secret"
            wanted = wanted if needed else "the command names none of its variables"
            ledger.add_unsupported(f"{key} {value.strip().removeprefix('-')}", f"it is not read: {wanted}")
        elif key == "Environment":
            ledger.add_mapped(key, "where ExecStart asks for it")
        elif key == "Restart" and value.strip() != "no":
            ledger.add_unsupported(key, FIELDS_INSTEAD_OF_OPTIONS["restart"])
        elif key in _IGNORED_KEYS:
            ledger.add_mapped(key, "nothing: how systemd runs it")
        else:
            ledger.add_unsupported(key, "how systemd runs it; sparkctl starts and stops in its own way")


def _list_unit_pairs(text: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\\[ \t]*\n(?:[ \t]*[#;][^\n]*\n)*[ \t]*", " ", text.replace("\r\n", "\n"))
    lines = (line for line in joined.splitlines() if "=" in line and not line.startswith(("#", ";")))
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def _list_unit_starts(pairs: list[tuple[str, str]]) -> list[str]:
    return [re.sub(r"^[-@:+!]+", "", value.strip()) for key, value in pairs if key.strip() == "ExecStart"]


def find_unit_script(text: str) -> str | None:
    """Return a unit as a shell script, with its variables exported; None if it starts nothing, or a `docker run`."""
    pairs = _list_unit_pairs(text)
    starts = _list_unit_starts(pairs)
    if not starts or any(has_docker_run(line) for line in starts):
        return None
    exports = [f"export {name}={shlex.quote(value)}" for name, value in _parse_environment(pairs).items()]
    line = re.sub(r"%h(?=/|$)", "~", starts[0]).replace("%%", "%")
    return "\n".join([*exports, line])


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


# --- a Podman quadlet: a unit whose [Container] section says what `podman run` is told ---

_QUADLET = re.compile(r"^\[Container\][ \t]*$(?:\n(?!\[).*)*?\n[ \t]*Image[ \t]*=", re.MULTILINE)
_QUADLET_FLAGS = {
    "AddCapability": "cap-add", "AddDevice": "device", "AddHost": "add-host", "ContainerName": "name", "DropCapability": "cap-drop",
    "Entrypoint": "entrypoint", "Environment": "env", "EnvironmentFile": "env-file", "GroupAdd": "group-add", "HostName": "hostname",
    "Label": "label", "Memory": "memory", "Mount": "mount", "Network": "network", "PidsLimit": "pids-limit", "PublishPort": "publish",
    "ReadOnly": "read-only", "RunInit": "init", "ShmSize": "shm-size", "StopSignal": "stop-signal", "StopTimeout": "stop-timeout",
    "Sysctl": "sysctl", "Tmpfs": "tmpfs", "Ulimit": "ulimit", "User": "user", "Volume": "volume", "WorkingDir": "workdir",
}  # fmt: skip
_QUADLET_WORD_LISTS = ("AddCapability", "DropCapability", "Environment", "Label", "Sysctl")


def is_quadlet(text: str) -> bool:
    """Tell whether a text is a Podman quadlet of a container."""
    return _QUADLET.search(text.replace("\r\n", "\n")) is not None


def import_quadlet(text: str, ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of a Podman quadlet. Raises `InvalidInput` if another unit makes its image."""
    before, *parts = _UNIT_SECTION.split(text.replace("\r\n", "\n"))
    sections = list(zip(parts[::2], parts[1::2], strict=True))
    around = before + "".join(body for name, body in sections if name != "Container")
    known = {**_parse_environment(_list_unit_pairs(around)), **defined}
    flags: list[str] = []
    image, command = "", list[str]()
    for raw, given in _list_unit_pairs("".join(body for name, body in sections if name == "Container")):
        key, value = raw.strip(), given.strip()
        words = [_convert_unit_variables(word, known) for word in split_unit_words(value)]
        if key == "Image":
            image = _convert_unit_variables(value, known)
        elif key == "Exec":
            command = words
        elif key == "PodmanArgs":
            flags += words
        elif key in _QUADLET_FLAGS:
            several = words if key in _QUADLET_WORD_LISTS else [_convert_unit_variables(value, known)]
            flags += [f"--{_QUADLET_FLAGS[key]}={one}" for one in several]
        else:
            ledger.add_unsupported(key, "a profile has no such setting")
    if not image or image.endswith((".image", ".build")):
        raise InvalidInput("the quadlet names no image: another unit makes it", "write the image's name in Image=")
    draft = ProfileDraft(kind=SourceFormat.QUADLET, ledger=ledger, beside=find_metadata(text))
    read_docker_run_words(draft, [ShellWord(word) for word in (*flags, image, *command)])
    record_unit_keys(around, draft, defined)
    return draft


# --- a container ---


def build_container_draft(run: DockerRunSpec, ledger: ImportReport, beyond: Sequence[tuple[str, str]]) -> ProfileDraft:
    """Return the draft of a container; the image's own settings are already removed from ``run``.

    ``beyond``: further settings (a docker run flag and its value) that a profile has no field for.
    """
    draft = ProfileDraft(kind=SourceFormat.CONTAINER, ledger=ledger, name=run.name)
    draft.image = run.image
    ledger.add_mapped("IMAGE", "image")
    own = dict(run.labels)
    if profile := own.get(ContainerLabel.PROFILE):
        ledger.add_remark(f"sparkctl itself started it, from the profile {profile}.")
    singles = (
        ("name", run.name),
        ("gpus", run.gpus),
        ("shm-size", run.shm_size),
        ("ipc", run.ipc),
        ("network", run.network),
        ("entrypoint", run.entrypoint),
    )
    for flag, value in singles:
        if value:
            docker_flags.apply_docker_flag(draft, flag, escape_references(value), f"--{flag}")
    for name, limit in run.ulimits:
        docker_flags.apply_docker_flag(draft, "ulimit", escape_references(f"{name}={limit}"), f"--ulimit {name}")
    for device in run.devices:
        docker_flags.apply_docker_flag(draft, "device", escape_references(device), f"--device {device}")
    for mount in run.mounts:
        docker_flags.add_mount(draft, mount.source, mount.target, mount.read_only, f"--volume {mount}")
    for name, value in run.env:
        docker_flags.apply_docker_flag(draft, "env", f"{name}={escape_references(value)}", f"--env {name}")
    for flag, value in run.options:
        docker_flags.apply_docker_flag(draft, flag, escape_references(value), f"--{flag}")
    for name, _ in run.labels:
        if not name.startswith(ContainerLabel.PREFIX):
            ledger.add_unsupported(f"--label {name}", "labels are how sparkctl knows its containers")
    for flag, value in beyond:
        docker_flags.apply_docker_flag(draft, flag, escape_references(value), f"--{flag}")
    draft.words = [escape_references(word) for word in run.command] or None
    if draft.words:
        ledger.add_mapped("COMMAND", "command, args")
    if draft.gpus is None and ("runtime", "nvidia") not in draft.options:
        draft.gpus = "none"
    return draft
