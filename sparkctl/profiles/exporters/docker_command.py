"""The ``docker run`` line that does by hand what a launch plan asks of Docker's API."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from sparkctl.model.json_codec import redact_launch_plan
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.text.secrets import MASK
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind


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
    groups = [["docker", "run", "-d"], *_iter_flags(shown, hidden, with_labels=with_labels)]
    groups.append([shown.image])
    groups += map(list, group_flags(shown.command))
    return " \\\n  ".join(shlex.join(group) for group in groups)


def _iter_flags(plan: LaunchPlan, hidden: Collection[str], *, with_labels: bool) -> Iterable[list[str]]:
    """Yield each flag with its value; ``hidden`` are the variables whose value comes from the shell."""
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
        yield [f"--{name}"] if DOCKER_OPTIONS.get(name) is DockerOptionKind.FLAG else [f"--{name}", value]
    for mount in plan.mounts:
        yield ["-v", str(mount)]
    for name, value in plan.env:
        yield ["-e", name if name in hidden else f"{name}={value}"]
    if with_labels:
        for name, value in plan.labels:
            yield ["--label", f"{name}={value}"]


def group_flags(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the words in groups of one flag and its values."""
    groups: list[list[str]] = []
    for word in words:
        if not groups or word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return [tuple(group) for group in groups]
