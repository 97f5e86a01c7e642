"""Plans what `setup` changes on a node, from what was read there. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from sparkctl.commands.drop_page_cache import TEE_COMMAND
from sparkctl.commands.setup.cable_plan import NETPLAN_FILE, CableEnd, format_netplan
from sparkctl.errors import OperationRefused
from sparkctl.model.node import NodeName
from sparkctl.model.setup_plan import FileChange, SetupStep, SetupStepKind
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.node.setup_program import NodeFile, SetupReport, list_kept_copies

SUDOERS_FILE = "/etc/sudoers.d/sparkctl"
GROUP_FILE = "/etc/group"
DOCKER_GROUP = "docker"
_USER_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def plan_own_steps(node: NodeName, look: NodeInspection) -> tuple[tuple[SetupStep, ...], tuple[str, ...]]:
    """Return the steps of one node without the cable, and what cannot be set up, in words."""
    user = "" if look.identity is None else look.identity.user
    if not user or user == "root":
        return (), ()
    if not _USER_PATTERN.fullmatch(user):
        return (), (f"{user!r} on {node} is a name that sudoers cannot hold: set it up by hand",)
    steps, notes = [], []
    if look.docker is not None and not look.docker.access and not look.docker.member:
        step = _plan_docker_group(user, look)
        if step is None:
            notes.append(f"{node} has no group docker: is Docker installed? (sudo apt install docker.io)")
        else:
            steps.append(step)
    if look.drop_right == "none":
        notes.append(f"{node} has no sudo: the right to drop the page cache cannot be given")
    elif look.drop_right == "denied":
        steps.append(plan_drop_right(user, None))
    return tuple(steps), tuple(notes)


def list_fine_parts(look: NodeInspection) -> tuple[str, ...]:
    """Return what of a node needs no set-up, in sentences; what could not be read is not among them."""
    user = "" if look.identity is None else look.identity.user
    if user == "root":
        return ("Docker and the page cache: root needs no set-up",)
    fine = []
    if look.docker is not None and look.docker.access:
        fine.append(f"Docker: {user} may use it")
    elif look.docker is not None and look.docker.member:
        fine.append(f"Docker: {user} is in group docker, which takes effect at the next login there")
    if look.drop_right == "allowed":
        fine.append(f"page cache: {user} may drop it without a password")
    return tuple(fine)


def plan_drop_right(user: str, before: str | None) -> SetupStep:
    """Return the step that lets a user drop the page cache, and nothing else."""
    line = f"{user} ALL=(root) NOPASSWD: {' '.join(TEE_COMMAND)}\n"
    others = before or ""
    if others and not others.endswith("\n"):
        others += "\n"
    change = FileChange(SUDOERS_FILE, before, others if line in others.splitlines(True) else others + line, "0440")
    return SetupStep(
        SetupStepKind.DROP_CACHES, f"{user} may drop the page cache (this very command, nothing else)", (change,)
    )


def plan_cable_step(end: CableEnd, peer: NodeName, look: NodeInspection) -> SetupStep:
    """Return the step of one end of the cable."""
    words = ", ".join(f"{lane.name} {address}" for lane, address in end.lanes)
    after = format_netplan(end, peer)
    before = _get_written(look, NETPLAN_FILE)
    change = FileChange(NETPLAN_FILE, None if before == after else before, after, "0600")
    return SetupStep(SetupStepKind.CABLE, f"the cable to {peer}: {words}, MTU 9000", (change,))


def correct_before(step: SetupStep, files: Mapping[str, NodeFile], user: str) -> SetupStep:
    """Return the step of a node's user with the files as root sees them. Raises `OperationRefused` where one is not a plain file."""
    changes = []
    for change in step.changes:
        seen = files.get(change.path)
        if seen is not None and seen.sum == "other":
            raise OperationRefused(
                f"{change.path} is not a plain file, so sparkctl does not touch it",
                f"look at it: sudo ls -l {change.path}",
            )
        changes.append(change if seen is None or change.path == GROUP_FILE else replace(change, before=seen.text))
    if step.kind is SetupStepKind.DROP_CACHES:
        return plan_drop_right(user, changes[0].before)  # other lines in the file stay
    return replace(step, changes=tuple(changes))


def plan_undo(report: SetupReport) -> tuple[SetupStep, tuple[FileChange, ...]]:
    """Return the step that takes a set-up back, and the files that somebody has changed since: none of them is touched."""
    changes, foreign = [], []
    for path in report.records:
        now = report.files.get(path)
        written, before = (report.files.get(copy) for copy in list_kept_copies(path, report.state))
        if now is None or written is None or before is None:
            continue
        if now.sum not in (written.sum, before.sum) and "/.ssh/" in path and now.text is not None:
            # ssh itself adds lines to these: ours are taken out, and the others stay
            kept = set((before.text or "").splitlines(True))
            ours = set((written.text or "").splitlines(True)) - kept
            text = "".join(line for line in now.text.splitlines(True) if line not in ours)
            changes.append(FileChange(path, now.text, text))
            continue
        if now.sum not in (written.sum, before.sum):
            foreign.append(FileChange(path, written.text, now.text))
        changes.append(FileChange(path, now.text, before.text))
    for path in report.made_keys:
        now = report.files.get(path)
        if now is not None and now.text is not None:
            changes.append(FileChange(path, now.text, None))
    groups = [one.partition(":") for one in report.groups]
    changes += [FileChange(GROUP_FILE, f"{group}: {user}\n", f"{group}:\n") for group, _, user in groups]
    return SetupStep(SetupStepKind.UNDO, "what was there before sparkctl set it up", tuple(changes)), tuple(foreign)


def _plan_docker_group(user: str, look: NodeInspection) -> SetupStep | None:
    line = None if look.setup is None else look.setup.group
    if line is None or line.count(":") != 3:
        return None
    joined = f"{line}{',' if not line.endswith(':') else ''}{user}\n"
    return SetupStep(
        SetupStepKind.DOCKER_GROUP, f"{user} may use Docker (which gives root on the node)",
        (FileChange(GROUP_FILE, f"{line}\n", joined),),
    )  # fmt: skip


def _get_written(look: NodeInspection, path: str) -> str | None:
    return None if look.setup is None else look.setup.written.get(path)
