"""A container as Docker remembers it, back to what a person would have written."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.plan import DockerRun, Label
from sparkctl.recipes import options
from sparkctl.recipes.draft import Draft, Kind
from sparkctl.recipes.ledger import Ledger
from sparkctl.recipes.references import literal


def read_container(run: DockerRun, ledger: Ledger, beyond: Sequence[tuple[str, str]]) -> Draft:
    """Return the draft of a container; the image's own settings are already taken out of ``run``.

    ``beyond``: further settings (a docker run flag and its value) that a profile has no field for.
    """
    draft = Draft(Kind.CONTAINER, ledger, name=run.name)
    draft.image = run.image
    ledger.mapped("IMAGE", "image")
    own = dict(run.labels)
    if profile := own.get(Label.PROFILE):
        ledger.remark(f"sparkctl itself started it, from the profile {profile}.")
    singles = (
        ("name", run.name), ("gpus", run.gpus), ("shm-size", run.shm_size), ("ipc", run.ipc), ("network", run.network),
        ("entrypoint", run.entrypoint),
    )  # fmt: skip
    for flag, value in singles:
        if value:
            options.apply(draft, flag, literal(value), f"--{flag}")
    for name, limit in run.ulimits:
        options.apply(draft, "ulimit", literal(f"{name}={limit}"), f"--ulimit {name}")
    for device in run.devices:
        options.apply(draft, "device", literal(device), f"--device {device}")
    for mount in run.mounts:
        options.mount(draft, mount.source, mount.target, mount.read_only, f"--volume {mount}")
    for name, value in run.env:
        options.apply(draft, "env", f"{name}={literal(value)}", f"--env {name}")
    for flag, value in run.options:
        options.apply(draft, flag, literal(value), f"--{flag}")
    for name, _ in run.labels:
        if not name.startswith(Label.PREFIX):
            ledger.unsupported(f"--label {name}", "labels are how sparkctl knows its containers")
    for flag, value in beyond:
        options.apply(draft, flag, literal(value), f"--{flag}")
    draft.words = [literal(word) for word in run.command] or None
    if draft.words:
        ledger.mapped("COMMAND", "command, args")
    if draft.gpus is None and ("runtime", "nvidia") not in draft.options:
        draft.gpus = "none"
    return draft
