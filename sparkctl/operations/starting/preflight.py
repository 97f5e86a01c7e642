"""What is decided before anything is changed: go, attach to what runs, or refuse with the reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.errors import DiskFull, DockerDenied, ImageMissing, NameTaken, NoGpuRuntime, PortBusy, Refused
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.plan import Label, LaunchPlan
from sparkctl.model.units import GIB, MIB, gib
from sparkctl.operations.starting.request import as_switch
from sparkctl.probe.look import Look
from sparkctl.wire.docker_json import EngineInfo, ImageInfo

_LEAST_DISK = 64 * MIB  # a container's own layer and log need this much to begin at all
_SCARCE_DISK = 5 * GIB
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "amd64": "amd64"}


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that was looked at. ``image`` is None where the node does not have it."""

    look: Look
    containers: tuple[Container, ...]
    engine: EngineInfo
    image: ImageInfo | None


@dataclass(frozen=True, slots=True)
class Decision:
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


def decide(plan: LaunchPlan, scene: Scene, *, replace: bool, again: str) -> Decision:
    """Return what to do, or raise the `Refused`-like error of the first thing that stands in the way.

    ``again`` is the command that asks for the same once more, for advice.
    """
    existing = _existing(plan, scene.containers)
    sweep: list[Container] = []
    stop: Container | None = None
    for container in existing:
        if container.state in (ContainerState.REMOVING, ContainerState.UNKNOWN):
            raise Refused(
                f"{container.name} on {plan.node} is in between two states ({container.status})",
                f"try again in a moment, or look: on {plan.node}: docker ps -a",
            )
        if not container.is_alive:
            sweep.append(container)
        elif container.state is ContainerState.PAUSED and not replace:
            raise Refused(
                f"{plan.instance} is on {plan.node} already, and paused (docker pause): it answers nobody",
                f"on {plan.node}: docker unpause {container.name}; or take it away: sparkctl down {plan.instance}",
            )
        elif container.label(Label.HASH) == plan.profile_hash and container.state is not ContainerState.PAUSED:
            return Decision(attach=container)
        elif replace:
            stop = container
        else:
            raise Refused(
                f"{plan.instance} already runs on {plan.node} with other settings, from another version of the profile "
                f"(hash {container.label(Label.HASH)}, this is {plan.profile_hash})",
                f"stop that one and start this: {again} --replace",
            )
    _refuse_without_image(plan, scene)
    _refuse_without_gpu(plan, scene)
    _refuse_busy_port(plan, scene, stop, again)
    warnings = _disk(plan, scene) + tuple((one.message, one.hint) for one in judge_mounts(plan, scene))
    return Decision(stop=stop, sweep=tuple(sweep), warnings=warnings)


def _existing(plan: LaunchPlan, containers: Sequence[Container]) -> list[Container]:
    """Return our containers of this instance; a foreign one that has the name is in the way."""
    found = []
    for container in containers:
        if container.label(Label.INSTANCE) == plan.instance:
            found.append(container)
        elif container.name == plan.container_name:
            owner = container.label(Label.INSTANCE)
            raise NameTaken(
                plan.node,
                f"a container named {plan.container_name} is already on {plan.node} ({container.status}, image "
                f"{container.image}), " + (f"it belongs to {owner}" if owner else "and sparkctl did not make it"),
                f"remove it yourself (docker rm {plan.container_name}) or give the profile another container.name",
            )
    return found


def _refuse_without_image(plan: LaunchPlan, scene: Scene) -> None:
    if scene.image is None:
        raise ImageMissing(
            plan.node, f"{plan.node} does not have the image {plan.image}", f"on {plan.node}: docker pull {plan.image}"
        )
    machine = _MACHINES.get(scene.engine.architecture or "")
    if machine and scene.image.architecture in _MACHINES.values() and scene.image.architecture != machine:
        raise ImageMissing(
            plan.node,
            f"the image {plan.image} on {plan.node} is for {scene.image.architecture}, the node is {machine}",
            f"on {plan.node}: docker pull --platform linux/{machine} {plan.image}",
        )


def _refuse_without_gpu(plan: LaunchPlan, scene: Scene) -> None:
    """Refuse only on evidence: no trace of the toolkit anywhere. Where Docker still says no, the start call tells."""
    access = scene.look.docker
    if not plan.gpus or access is None:
        return
    if not access.can_give_gpu and "nvidia" not in scene.engine.runtimes:
        raise NoGpuRuntime(
            plan.node,
            f"Docker on {plan.node} cannot give a container the GPU: no NVIDIA container toolkit",
            f"on {plan.node}: sudo apt install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
            "--runtime=docker && sudo systemctl restart docker",
        )


def _refuse_busy_port(plan: LaunchPlan, scene: Scene, stop: Container | None, again: str) -> None:
    port = plan.node_port
    if port is None or scene.look.listening is None or port not in scene.look.listening:
        return
    if stop is not None and stop.label(Label.PORT) == str(port):
        return  # the one we are about to stop holds it
    holders = [c for c in scene.containers if c.is_alive and (c.label(Label.PORT) == str(port) or port in c.ports)]
    who = f"the container {holders[0].name}" if holders else "another process"
    other = f"start on another port: {again} --set port={port + 1}"
    ours = holders[0].label(Label.INSTANCE) if holders else None
    raise PortBusy(
        plan.node,
        f"port {port} on {plan.node} is in use by {who}",
        f"{as_switch(again)}   or {other}" if ours else f"stop it, or {other}",
    )


def _disk(plan: LaunchPlan, scene: Scene) -> tuple[tuple[str, str | None], ...]:
    room = next((disk for disk in scene.look.disks if disk.path == scene.engine.root_dir), None)
    if room is None or room.free is None:
        return ()
    hint = f"on {plan.node}: docker system df; docker image prune"
    if room.free < _LEAST_DISK:
        raise DiskFull(
            plan.node, f"Docker's disk on {plan.node} is full: {room.free // MIB} MiB left in {room.path}", hint
        )
    if room.free < _SCARCE_DISK:
        return ((f"only {gib(room.free)} left on Docker's disk on {plan.node} ({room.path})", hint),)
    return ()


def judge_mounts(plan: LaunchPlan, scene: Scene) -> tuple[MountCaution, ...]:
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


def refuse_without_docker(node: str, look: Look) -> None:
    """Raise the error that a look at the socket proves, so that no call has to fail first."""
    access = look.docker
    if access is None or access.access or not access.socket:
        return
    user = look.identity.user if look.identity else "$USER"
    raise DockerDenied(
        node,
        f"{user} may not use Docker on {node}"
        + (": in group docker, but this login is older than that" if access.member else ": not in group docker"),
        f"close every session to {node} and try again"
        if access.member
        else f"on {node}: sudo usermod -aG docker {user}   (then log in anew)",
    )
