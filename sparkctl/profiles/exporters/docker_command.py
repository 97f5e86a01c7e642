"""The ``docker run`` line that does by hand what a launch plan asks of Docker's API, and that of a profile.

A profile's is for another shell, or for a systemd unit that runs it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.profile import ContainerOptions
from sparkctl.model.text.secrets import MASK
from sparkctl.profiles.docker_options import is_bare_flag
from sparkctl.profiles.env_references import (
    REFERENCE_PATTERN,
    escape_references,
    has_references,
    map_references,
    resolve_defaults,
)
from sparkctl.profiles.importers.profile_draft import METADATA_COMMENT

if TYPE_CHECKING:
    from sparkctl.profiles.exporters.yaml_exporter import PortableLaunch


def format_docker_run(plan: LaunchPlan, *, with_labels: bool = True, mask: bool = True) -> str:
    """Return the command for a shell, one option per line.

    With ``mask`` a secret variable is ``-e HF_TOKEN``, which takes its value from the shell that runs the line; any
    other secret is masked.
    """
    shown = redact_launch_plan(plan) if mask else plan
    pairs = zip(plan.env, shown.env, strict=True)
    hidden = frozenset(
        seen[0] for real, seen in pairs if real != seen or seen[1] == MASK
    )  # the plan may be masked already
    flags = _iter_flags(shown, hidden, with_labels=with_labels)
    groups = [("docker", "run", "-d"), *flags, (shown.image,), *group_flags(shown.command)]
    return " \\\n  ".join(shlex.join(group) for group in groups)


def _iter_flags(plan: LaunchPlan, hidden: Collection[str], *, with_labels: bool) -> Iterator[tuple[str, ...]]:
    """Yield each flag with its value; ``hidden`` are the variables whose value comes from the shell."""
    yield from _iter_container_flags(plan, plan.container_name, plan.gpus, plan.network, map(str, plan.mounts))
    for name, value in plan.env:
        yield "-e", name if name in hidden else f"{name}={value}"
    if with_labels:
        for name, value in plan.labels:
            yield "--label", f"{name}={value}"


def _iter_container_flags(
    box: LaunchPlan | ContainerOptions, name: str, gpus: str | None, network: str | None, mounts: Iterable[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the flags of a container, without those of its environment."""
    yield "--name", name
    singles = (
        ("--gpus", gpus),
        ("--shm-size", box.shm_size),
        ("--network", network),
        ("--ipc", box.ipc),
        ("--entrypoint", box.entrypoint),
    )
    yield from ((flag, value) for flag, value in singles if value is not None)
    yield from (("--ulimit", f"{key}={limit}") for key, limit in box.ulimits)
    yield from (("--device", device) for device in box.devices)
    yield from ((f"--{key}",) if is_bare_flag(key) else (f"--{key}", value) for key, value in box.options)
    yield from (("-v", mount) for mount in mounts)


def group_flags(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the words in groups of one flag and its values."""
    groups: list[list[str]] = []
    for word in words:
        if not groups or word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return [tuple(group) for group in groups]


def export_docker_run(one: PortableLaunch) -> list[str]:
    """Return the `docker run` line, one flag per line; ``${VAR}`` is taken from the shell that runs it."""
    head = [f"# {one.title}"] if one.title else []
    groups = [
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
        "# and name it by EnvironmentFile= below; ExecStart has their names as ${NAME}.",
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


def _iter_flag_groups(one: PortableLaunch) -> Iterator[tuple[str, ...]]:
    for flag, *values in _iter_container_flags(
        one.profile.container, one.name, one.gpus, one.network, one.profile.mounts
    ):
        yield flag, *map(escape_references, values)
    if one.profile.env_file is not None:
        yield "--env-file", escape_references(one.profile.env_file)
    for name, value in one.env:
        yield "-e", name if value == f"${{{name}}}" else f"{name}={value}"


def _quote_for_shell(word: str) -> str:
    if has_references(word):
        return '"' + map_references(word, lambda match: match[0], _escape_for_shell) + '"'
    plain = resolve_defaults(word) or ""
    if plain == "~" or plain.startswith("~/"):
        rest = plain[2:]
        return "~" if plain == "~" else f"~/{shlex.quote(rest) if rest else ''}"
    return shlex.quote(plain)


def _escape_for_shell(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _quote_for_systemd(word: str) -> str:
    """Return a word of ExecStart: systemd knows ${NAME}, but no default for it, and needs some characters doubled."""
    found = map_references(word, lambda match: f"${{{match['name']}}}", _escape_for_systemd)
    if word == "~" or word.startswith(("~/", "~:")):
        found = "%h" + found[1:]
    return found if re.fullmatch(r"[A-Za-z0-9_./:=@%,{}$+-]+", found) else f'"{found}"'


def _escape_for_systemd(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return escaped.replace("%", "%%").replace("$", "$$")
