"""What is decided before anything is changed: go, attach to what runs, or refuse with the reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.commands.start.start_request import to_switch_command
from sparkctl.errors import (
    ContainerNameInUse,
    DiskFull,
    DockerPermissionDenied,
    GpuRuntimeMissing,
    ImageNotFound,
    OperationRefused,
    PortInUse,
)
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.units import GIB, MIB, format_gib
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.transport.docker.docker_responses import DockerInfo, ImageInfo

_LEAST_DISK = 64 * MIB  # a container's own layer and log need this much to begin at all
_SCARCE_DISK = 5 * GIB
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "amd64": "amd64"}


@dataclass(frozen=True, slots=True)
class PreflightInspection:
    """Everything that was looked at. ``image`` is None where the node does not have it."""

    look: NodeInspection
    containers: tuple[Container, ...]
    engine: DockerInfo
    image: ImageInfo | None


@dataclass(frozen=True, slots=True)
class StartDecision:
    """``attach``: watch this running container instead of starting one. ``stop``: stop and remove it first (another
    version of the same instance). ``sweep``: ended containers of ours to remove first. ``warnings``: (what, what to do)."""

    attach: Container | None = None
    stop: Container | None = None
    sweep: tuple[Container, ...] = ()
    warnings: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MountCaution:
    """A mount's source that was not seen. ``is_missing``: it is surely not there."""

    message: str
    hint: str | None
    is_missing: bool


def decide_start(plan: LaunchPlan, scene: PreflightInspection, *, replace: bool, again: str) -> StartDecision:
    """Return what to do, or raise the `Refused`-like error of the first thing that stands in the way.

    ``again`` is the command that asks for the same once more, for advice.
    """
    existing = _find_containers_of_instance(plan, scene.containers)
    sweep: list[Container] = []
    stop: Container | None = None
    for container in existing:
        if container.state in (ContainerState.REMOVING, ContainerState.UNKNOWN):
            raise OperationRefused(
                f"{container.name} on {plan.node} is in between two states ({container.status})",
                f"try again in a moment, or look: on {plan.node}: docker ps -a",
            )
        if not container.is_alive:
            sweep.append(container)
        elif container.state is ContainerState.PAUSED and not replace:
            raise OperationRefused(
                f"{plan.instance} is on {plan.node} already, and paused (docker pause): it answers nobody",
                f"on {plan.node}: docker unpause {container.name}; or take it away: sparkctl down {plan.instance}",
            )
        elif container.label(ContainerLabel.HASH) == plan.profile_hash and container.state is not ContainerState.PAUSED:
            return StartDecision(attach=container)
        elif replace:
            stop = container
        else:
            raise OperationRefused(
                f"{plan.instance} already runs on {plan.node} with other settings, from another version of the profile "
                f"(hash {container.label(ContainerLabel.HASH)}, this is {plan.profile_hash})",
                f"stop that one and start this: {again} --replace",
            )
    _refuse_without_image(plan, scene)
    _refuse_without_gpu(plan, scene)
    _refuse_busy_port(plan, scene, stop, again)
    warnings = _warn_low_disk(plan, scene) + tuple((one.message, one.hint) for one in judge_mounts(plan, scene))
    return StartDecision(stop=stop, sweep=tuple(sweep), warnings=warnings)


def _find_containers_of_instance(plan: LaunchPlan, containers: Sequence[Container]) -> list[Container]:
    """Return our containers of this instance; a foreign one that has the name is in the way."""
    found = []
    for container in containers:
        if container.label(ContainerLabel.INSTANCE) == plan.instance:
            found.append(container)
        elif container.name == plan.container_name:
            owner = container.label(ContainerLabel.INSTANCE)
            raise ContainerNameInUse(
                plan.node,
                f"a container named {plan.container_name} is already on {plan.node} ({container.status}, image "
                f"{container.image}), " + (f"it belongs to {owner}" if owner else "and sparkctl did not make it"),
                f"remove it yourself (docker rm {plan.container_name}) or give the profile another container.name",
            )
    return found


def _refuse_without_image(plan: LaunchPlan, scene: PreflightInspection) -> None:
    if scene.image is None:
        raise ImageNotFound(
            plan.node, f"{plan.node} does not have the image {plan.image}", f"on {plan.node}: docker pull {plan.image}"
        )
    machine = _MACHINES.get(scene.engine.architecture or "")
    if machine and scene.image.architecture in _MACHINES.values() and scene.image.architecture != machine:
        raise ImageNotFound(
            plan.node,
            f"the image {plan.image} on {plan.node} is for {scene.image.architecture}, the node is {machine}",
            f"on {plan.node}: docker pull --platform linux/{machine} {plan.image}",
        )


def _refuse_without_gpu(plan: LaunchPlan, scene: PreflightInspection) -> None:
    """Refuse only on evidence: no trace of the toolkit anywhere. Where Docker still says no, the start call tells."""
    access = scene.look.docker
    if not plan.gpus or access is None:
        return
    if not access.can_give_gpu and "nvidia" not in scene.engine.runtimes:
        raise GpuRuntimeMissing(
            plan.node,
            f"Docker on {plan.node} cannot give a container the GPU: no NVIDIA container toolkit",
            f"on {plan.node}: sudo apt install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
            "--runtime=docker && sudo systemctl restart docker",
        )


def _refuse_busy_port(plan: LaunchPlan, scene: PreflightInspection, stop: Container | None, again: str) -> None:
    port = plan.node_port
    if port is None or scene.look.listening is None or port not in scene.look.listening:
        return
    if stop is not None and stop.label(ContainerLabel.PORT) == str(port):
        return  # the one we are about to stop holds it
    holders = [
        c for c in scene.containers if c.is_alive and (c.label(ContainerLabel.PORT) == str(port) or port in c.ports)
    ]
    who = f"the container {holders[0].name}" if holders else "another process"
    other = f"start on another port: {again} --set port={port + 1}"
    ours = holders[0].label(ContainerLabel.INSTANCE) if holders else None
    raise PortInUse(
        plan.node,
        f"port {port} on {plan.node} is in use by {who}",
        f"{to_switch_command(again)}   or {other}" if ours else f"stop it, or {other}",
    )


def _warn_low_disk(plan: LaunchPlan, scene: PreflightInspection) -> tuple[tuple[str, str | None], ...]:
    room = next((disk for disk in scene.look.disks if disk.path == scene.engine.root_dir), None)
    if room is None or room.free is None:
        return ()
    hint = f"on {plan.node}: docker system df; docker image prune"
    if room.free < _LEAST_DISK:
        raise DiskFull(
            plan.node, f"Docker's disk on {plan.node} is full: {room.free // MIB} MiB left in {room.path}", hint
        )
    if room.free < _SCARCE_DISK:
        return ((f"only {format_gib(room.free)} left on Docker's disk on {plan.node} ({room.path})", hint),)
    return ()


def judge_mounts(plan: LaunchPlan, scene: PreflightInspection) -> tuple[MountCaution, ...]:
    """Return what is to be said of the sources that were not seen, for `up` and `switch` alike.

    Docker makes a missing source itself, empty and owned by root: the engine then misses its model. Docker is root, the SSH
    user mostly is not: what that user may not see is not missing.
    """
    seen = dict(scene.look.paths)
    user = scene.look.identity.user if scene.look.identity else "the SSH user"
    found = []
    for source in dict.fromkeys(mount.source for mount in plan.mounts if mount.source in seen):
        if seen[source] is False:
            message = f"{source} does not exist on {plan.node}: Docker will make it, empty"
            found.append(MountCaution(message, "put the model there first", is_missing=True))
        elif seen[source] is None:
            message = f"cannot tell whether {source} exists on {plan.node}: {user} may not read its directory"
            found.append(MountCaution(message, None, is_missing=False))
    return tuple(found)


def refuse_without_docker(node: str, look: NodeInspection) -> None:
    """Raise the error that a look at the socket proves, so that no call has to fail first."""
    access = look.docker
    if access is None or access.access or not access.socket:
        return
    user = look.identity.user if look.identity else "$USER"
    raise DockerPermissionDenied(
        node,
        f"{user} may not use Docker on {node}"
        + (": in group docker, but this login is older than that" if access.member else ": not in group docker"),
        f"close every session to {node} and try again"
        if access.member
        else f"on {node}: sudo usermod -aG docker {user}   (then log in anew)",
    )
