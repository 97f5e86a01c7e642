"""The ``docker run`` line that does by hand what a plan asks of Docker's API."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from sparkctl.model.docker_options import DOCKER_OPTIONS, OptionKind
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.secrets import MASK, is_secret_name, redact, secret_values


def docker_line(plan: LaunchPlan, *, with_labels: bool = True, mask: bool = True) -> str:
    """Return the command for a shell, wrapped by option.

    With ``mask`` a secret variable is ``-e HF_TOKEN``, which takes its value from the shell that runs the line, and a
    secret in the command is dots.
    """
    groups = [["docker", "run", "-d"], *_options(plan, with_labels=with_labels, mask=mask)]
    groups.append([plan.image])
    groups += _by_flag(_masked(plan) if mask else plan.command)
    return " \\\n  ".join(shlex.join(group) for group in groups)


def _options(plan: LaunchPlan, *, with_labels: bool, mask: bool) -> Iterable[list[str]]:
    yield ["--name", plan.container_name]
    for flag, value in (
        ("--gpus", plan.gpus),
        ("--shm-size", plan.shm_size),
        ("--network", plan.network),
        ("--ipc", plan.ipc),
        ("--entrypoint", plan.entrypoint),
    ):
        if value is not None:
            yield [flag, value]
    for name, limit in plan.ulimits:
        yield ["--ulimit", f"{name}={limit}"]
    for device in plan.devices:
        yield ["--device", device]
    for name, value in plan.options:
        yield [f"--{name}"] if DOCKER_OPTIONS.get(name) is OptionKind.FLAG else [f"--{name}", value]
    for mount in plan.mounts:
        yield ["-v", str(mount)]
    secrets = secret_values(plan.env)
    for name, value in plan.env:
        hidden = mask and (is_secret_name(name) or redact(value, secrets) != value)
        yield ["-e", name if hidden else f"{name}={value}"]
    if with_labels:
        for name, value in plan.labels:
            yield ["--label", f"{name}={value}"]


def _masked(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the command with secrets as dots: known values, known shapes, and what follows a flag like --api-key."""
    secrets = secret_values(plan.env)
    words: list[str] = []
    for index, word in enumerate(plan.command):
        before = plan.command[index - 1] if index else ""
        if before.startswith("-") and "=" not in before and is_secret_name(before) and not word.startswith("-"):
            words.append(MASK)
        elif word.startswith("-") and "=" in word and is_secret_name(word.partition("=")[0]):
            words.append(word.partition("=")[0] + "=" + MASK)
        else:
            words.append(redact(word, secrets))
    return tuple(words)


def _by_flag(words: tuple[str, ...]) -> list[list[str]]:
    """Return the words in groups of a flag and its values."""
    groups: list[list[str]] = []
    for word in words:
        if not groups or word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return groups
