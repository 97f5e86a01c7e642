"""Export a profile as a `docker run` for a shell, and as a systemd unit that runs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind
from sparkctl.profiles.env_references import REFERENCE_PATTERN, escape_references, has_references, resolve_defaults
from sparkctl.profiles.exporters.docker_command import group_flags
from sparkctl.profiles.exporters.portable_launch import PortableLaunch
from sparkctl.profiles.importers.docker_run import METADATA_COMMENT

_FlagGroup = tuple[str, ...]


def export_docker_run(one: PortableLaunch) -> list[str]:
    """Return the `docker run` line, one flag per line; ``${VAR}`` is taken from the shell that runs it."""
    head = [f"# {one.title}"] if one.title else []
    groups: list[_FlagGroup] = [
        ("docker", "run", "-d"),
        *_iter_flag_groups(one),
        (one.profile.image,),
        *group_flags(one.words),
    ]
    body = " \\\n  ".join(" ".join(_quote_for_shell(word) for word in group) for group in groups)
    return [*head, f"{METADATA_COMMENT}{one.beside}", *body.split("\n")]


def export_systemd_unit(one: PortableLaunch) -> list[str]:
    """Return a unit that runs the container in the foreground and never restarts it."""
    defaults = {
        match["name"]: match["default"]
        for text in [*(value for _, value in one.env), *one.words]
        for match in REFERENCE_PATTERN.finditer(text)
        if match["name"] and match["default"] is not None
    }
    groups = [("/usr/bin/docker", "run"), *_iter_flag_groups(one), (one.profile.image,), *group_flags(one.words)]
    command = " \\\n  ".join(" ".join(_quote_for_systemd(word) for word in group) for group in groups)
    grace = round(one.profile.stop_grace)
    return [
        "# %h is the home of whoever systemd runs it as. Secrets: put NAME=value lines into a file that only you can read",
        "# and name it by EnvironmentFile= below; what they are called stands in ExecStart as ${NAME}.",
        f"{METADATA_COMMENT}{one.beside}",
        "[Unit]",
        f"Description={(one.title or one.profile.name).replace('%', '%%')}",
        "After=docker.service network-online.target",
        "Requires=docker.service",
        "",
        "[Service]",
        *(f'Environment="{name}={_escape_for_systemd(value)}"' for name, value in defaults.items()),
        "Restart=no",
        "TimeoutStartSec=infinity",
        f"TimeoutStopSec={grace + 15}",
        f"ExecStartPre=-/usr/bin/docker rm {one.name}",
        *f"ExecStart={command}".split("\n"),
        f"ExecStop=/usr/bin/docker stop -t {grace} {one.name}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]


def _iter_flag_groups(one: PortableLaunch) -> Iterator[_FlagGroup]:
    box = one.profile.container
    yield "--name", one.name
    for flag, value in (
        ("--gpus", one.gpus), ("--shm-size", box.shm_size), ("--network", one.network), ("--ipc", box.ipc),
        ("--entrypoint", box.entrypoint),
    ):  # fmt: skip
        if value is not None:
            yield flag, escape_references(value)
    yield from (("--ulimit", f"{name}={limit}") for name, limit in box.ulimits)
    yield from (("--device", escape_references(device)) for device in box.devices)
    for name, value in box.options:
        yield (
            (f"--{name}",)
            if DOCKER_OPTIONS.get(name) is DockerOptionKind.FLAG
            else (f"--{name}", escape_references(value))
        )
    yield from (("-v", escape_references(mount)) for mount in one.profile.mounts)
    if one.profile.env_file is not None:
        yield "--env-file", escape_references(one.profile.env_file)
    for name, value in one.env:
        yield "-e", name if value == f"${{{name}}}" else f"{name}={value}"


def _split_references(word: str, text: Callable[[str], str]) -> str:
    """Return a word with its references as ``${NAME}`` and everything else as ``text`` writes it."""
    out, end = "", 0
    for match in REFERENCE_PATTERN.finditer(word):
        out += text(word[end : match.start()]) + (text("${") if match["name"] is None else match[0])
        end = match.end()
    return out + text(word[end:])


def _quote_for_shell(word: str) -> str:
    if has_references(word):
        return '"' + _split_references(word, lambda text: re.sub(r'([\\"$`])', r"\\\1", text)) + '"'
    plain = resolve_defaults(word) or ""
    if plain == "~" or plain.startswith("~/"):
        rest = plain[2:]
        return "~" if plain == "~" else f"~/{shlex.quote(rest) if rest else ''}"
    return shlex.quote(plain)


def _quote_for_systemd(word: str) -> str:
    """Return a word of ExecStart: systemd knows ${NAME}, but no default for it, and needs some characters doubled."""
    found, end = "", 0
    for match in REFERENCE_PATTERN.finditer(word):
        found += _escape_for_systemd(word[end : match.start()]) + (
            _escape_for_systemd("${") if match["name"] is None else f"${{{match['name']}}}"
        )
        end = match.end()
    found += _escape_for_systemd(word[end:])
    if word == "~" or word.startswith(("~/", "~:")):
        found = "%h" + found[1:]
    return found if re.fullmatch(r"[A-Za-z0-9_./:=@%,{}$+-]+", found) else f'"{found}"'


def _escape_for_systemd(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return escaped.replace("%", "%%").replace("$", "$$")
