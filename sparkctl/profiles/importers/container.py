"""A container as Docker remembers it, back to what a person would have written."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import docker_flags
from sparkctl.profiles.importers.import_report import ImportReport
from sparkctl.profiles.importers.profile_draft import ProfileDraft, SourceFormat


def draft_from_container(run: DockerRunSpec, ledger: ImportReport, beyond: Sequence[tuple[str, str]]) -> ProfileDraft:
    """Return the draft of a container; the image's own settings are already taken out of ``run``.

    ``beyond``: further settings (a docker run flag and its value) that a profile has no field for.
    """
    draft = ProfileDraft(SourceFormat.CONTAINER, ledger, name=run.name)
    draft.image = run.image
    ledger.add_mapped("IMAGE", "image")
    own = dict(run.labels)
    if profile := own.get(ContainerLabel.PROFILE):
        ledger.remark(f"sparkctl itself started it, from the profile {profile}.")
    singles = (
        ("name", run.name), ("gpus", run.gpus), ("shm-size", run.shm_size), ("ipc", run.ipc), ("network", run.network),
        ("entrypoint", run.entrypoint),
    )  # fmt: skip
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
