"""Decides before anything changes: start, attach to what runs, or refuse with the reason. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise

from sparkctl.commands.start.start_request import to_switch_command
from sparkctl.errors import (
    FREE_DOCKER_DISK,
    ContainerNameInUse,
    DiskFull,
    DockerPermissionDenied,
    GpuRuntimeMissing,
    ImageNotFound,
    InvalidInput,
    OperationRefused,
    PortInUse,
)
from sparkctl.model.container import Container, ContainerState, shorten_id
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node
from sparkctl.model.profile import Profile
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import GIB, MIB, format_gib
from sparkctl.model.verdict import FieldChange
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.profiles.container_labels import parse_rank_nodes_label, parse_start_id_label
from sparkctl.transport.docker.docker_responses import DockerInfo, ImageInfo

_MIN_DISK_BYTES = 64 * MIB  # the minimum for a container's own layer and log
_LOW_DISK_BYTES = 5 * GIB
_PORT_LIMIT = 65536


@dataclass(frozen=True, slots=True)
class PreflightInspection:
    """The results of the inspection. ``image`` is None where the node does not have it."""

    node_inspection: NodeInspection
    containers: tuple[Container, ...]
    engine: DockerInfo
    image: ImageInfo | None


@dataclass(frozen=True, slots=True)
class StartDecision:
    """What to do.

    ``attach``: watch this running container instead of a new start. ``stop``: stop and remove it first (another
    version of the same instance). ``sweep``: sparkctl's ended containers to remove first. ``warnings``: (message,
    hint).
    """

    attach: Container | None = None
    stop: Container | None = None
    sweep: tuple[Container, ...] = ()
    warnings: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MountCaution:
    """A mount's source that was not found. ``is_missing``: it certainly does not exist."""

    message: str
    hint: str | None
    is_missing: bool


def decide_start(
    plan: LaunchPlan,
    inspection: PreflightInspection,
    *,
    replace: bool,
    again: str,
    describe_changes: Callable[[Container], str | None] = lambda _: None,
    propose: Callable[[FieldChange], str | None] | None = None,
) -> StartDecision:
    """Return what to do, or raise the error of the first obstacle. What is missing is none of them: it may be got, and
    that takes long, so everything else is told before it.

    ``again``: the command that repeats the start, for hints. ``describe_changes``: what this start has otherwise than a
    container that runs, in words; None: not known. ``propose``: the command that starts it with a change, None where that
    would be refused.
    """
    existing = _find_containers_of_instance(plan, inspection.containers)
    sweep: list[Container] = []
    stop: Container | None = None
    for container in existing:
        if container.state in (ContainerState.REMOVING, ContainerState.UNKNOWN):
            raise OperationRefused(
                f"{container.name} on {plan.node} is changing state ({container.status})",
                f"try again in a moment, or look: on {plan.node}: docker ps -a",
            )
        if not container.is_alive:
            sweep.append(container)
        elif container.state is ContainerState.PAUSED and not replace:
            raise OperationRefused(
                f"{plan.instance} is on {plan.node} already, and paused (docker pause): it answers no requests",
                f"on {plan.node}: docker unpause {container.name}; or remove it: sparkctl down {plan.instance}",
            )
        elif (
            container.get_label(ContainerLabel.HASH) == plan.profile_hash
            and container.state is not ContainerState.PAUSED
        ):
            return StartDecision(attach=container)
        elif replace:
            stop = container
        else:
            changes = describe_changes(container)
            raise OperationRefused(
                f"{plan.instance} already runs on {plan.node} with other settings: {changes}"
                if changes is not None
                else f"{plan.instance} already runs on {plan.node} with other settings, from another version of the profile "
                f"(hash {container.get_label(ContainerLabel.HASH)}, this is {plan.profile_hash})",
                f"stop that one and start this: {again} --replace",
            )
    _refuse_without_gpu(plan, inspection)
    busy = find_busy_port(plan, inspection.node_inspection, inspection.containers, stop, again=again, propose=propose)
    if busy is not None:
        raise busy
    warnings = _warn_low_disk(plan, inspection) + tuple(
        (one.message, one.hint) for one in check_mounts(plan, inspection.node_inspection)
    )
    return StartDecision(stop=stop, sweep=tuple(sweep), warnings=warnings)


def _find_containers_of_instance(plan: LaunchPlan, containers: Sequence[Container]) -> list[Container]:
    """Return sparkctl's containers of this instance; a foreign one of that name is an obstacle."""
    found = []
    for container in containers:
        if container.get_label(ContainerLabel.INSTANCE) == plan.instance:
            found.append(container)
        elif container.name == plan.container_name:
            owner = container.get_label(ContainerLabel.INSTANCE)
            raise ContainerNameInUse(
                plan.node,
                f"a container named {plan.container_name} is already on {plan.node} ({container.status}, image "
                f"{container.image}), " + (f"it belongs to {owner}" if owner else "and sparkctl did not make it"),
                f"stop it first: sparkctl down {owner} --node {plan.node}"
                if owner
                else f"remove it yourself (docker rm {plan.container_name}) or give the profile another container.name",
            )
    return found


def format_making_hint(made_by: str) -> str:
    """Return what to do about a part that nobody publishes."""
    return f"nobody publishes it; make it there, then repeat the command: {made_by}"


def format_pull_hint(plan: LaunchPlan, again: str) -> str:
    """Return the command that gets what a launch lacks. ``again``: the command that repeats the start."""
    if again.startswith("sparkctl up "):
        return f"{again} --pull"
    words = shlex.split(again)  # the profile as it was typed, which may be a file: its name alone finds nothing
    options = [word for flag, value in pairwise(words) if flag in ("--node", "--set") for word in (flag, value)]
    options = options if "--node" in options else ["--node", plan.node, *options]
    return shlex.join(["sparkctl", "pull", words[2], *options])


def _refuse_without_gpu(plan: LaunchPlan, inspection: PreflightInspection) -> None:
    """Refuse only on evidence: no trace of the toolkit anywhere. Otherwise the start itself shows whether Docker has a
    GPU.
    """
    access = inspection.node_inspection.docker
    if not plan.gpus or access is None:
        return
    if not access.can_give_gpu and "nvidia" not in inspection.engine.runtimes:
        raise GpuRuntimeMissing(
            plan.node,
            f"Docker on {plan.node} cannot give a container the GPU: no NVIDIA container toolkit",
            f"on {plan.node}: sudo apt install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
            "--runtime=docker && sudo systemctl restart docker",
        )


def find_busy_port(
    plan: LaunchPlan,
    inspection: NodeInspection,
    containers: Sequence[Container],
    ends: Container | None,
    *,
    again: str,
    propose: Callable[[FieldChange], str | None] | None = None,
) -> PortInUse | None:
    """Return the error of a port that another has, None where it is free or not known. ``ends``: what is stopped before
    the start; ``again`` and ``propose`` as for `decide_start`.
    """
    port, listening = plan.node_port, inspection.listening
    if port is None or listening is None or port not in listening:
        return None
    if ends is not None and ends.get_label(ContainerLabel.PORT) == str(port):
        return None
    holder = next(
        (
            one
            for one in containers
            if one.is_alive and (one.get_label(ContainerLabel.PORT) == str(port) or port in one.ports)
        ),
        None,
    )
    name = "another process" if holder is None else f"the container {holder.name}"
    free = next((one for one in range(port + 1, _PORT_LIMIT) if one not in listening), None)
    change = None if free is None else FieldChange("port", str(free))
    moved = None if change is None else f"{again} --set {change.set_argument}" if propose is None else propose(change)
    is_ours = holder is not None and holder.is_managed
    ways = [to_switch_command(again) if is_ours else f"stop what uses port {port}"]
    ways += [] if moved is None else [f"start on another port: {moved}"]
    return PortInUse(
        plan.node, f"port {port} on {plan.node} is in use by {name}", "\n".join(ways),
        holder=None if holder is None else holder.instance_name, free_port=free,
    )  # fmt: skip


def _warn_low_disk(plan: LaunchPlan, inspection: PreflightInspection) -> tuple[tuple[str, str | None], ...]:
    room = next((disk for disk in inspection.node_inspection.disks if disk.path == inspection.engine.root_dir), None)
    if room is None or room.free is None:
        return ()
    hint = f"on {plan.node}: {FREE_DOCKER_DISK}"
    if room.free < _MIN_DISK_BYTES:
        raise DiskFull(
            plan.node, f"Docker's disk on {plan.node} is full: {room.free // MIB} MiB left in {room.path}", hint
        )
    if room.free < _LOW_DISK_BYTES:
        return ((f"only {format_gib(room.free)} left on Docker's disk on {plan.node} ({room.path})", hint),)
    return ()


def list_mount_sections(plan: LaunchPlan) -> list[str]:
    """Return what to read on the node for `check_mounts`."""
    return [f"path={mount.source}" for mount in plan.mounts if mount.source.startswith("/")]


def check_mounts(plan: LaunchPlan, inspection: NodeInspection) -> tuple[MountCaution, ...]:
    """Return warnings about mount sources that were not found, for `up` and `switch` alike.

    Docker creates a missing source itself, empty and owned by root, so the engine finds no model. Docker runs as root
    and the SSH user usually does not: a path that this user may not see is not missing.
    """
    found_paths = dict(inspection.paths)
    user = inspection.identity.user if inspection.identity else "the SSH user"
    found = []
    for source in dict.fromkeys(mount.source for mount in plan.mounts if mount.source in found_paths):
        if found_paths[source] is False:
            message = f"{source} does not exist on {plan.node}: Docker will create it empty"
            found.append(MountCaution(message, "put the model there first", is_missing=True))
        elif found_paths[source] is None:
            message = f"cannot tell whether {source} exists on {plan.node}: {user} may not read its directory"
            found.append(MountCaution(message, None, is_missing=False))
    return tuple(found)


def refuse_without_docker(node: str, inspection: NodeInspection) -> None:
    """Raise the error that the inspection of the socket proves, so that no call has to fail first."""
    access = inspection.docker
    if access is None or access.access or not access.socket:
        return
    user = inspection.identity.user if inspection.identity else "$USER"
    raise DockerPermissionDenied(
        node,
        f"{user} may not use Docker on {node}"
        + (": in group docker, but this login is older than that" if access.member else ": not in group docker"),
        f"close every session to {node} and try again"
        if access.member
        else f"sparkctl setup {node}; or on {node}: sudo usermod -aG docker {user}   (then log in again)",
    )


def assign_nodes_to_ranks(profile: Profile, named: Sequence[Node], configured: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of a profile for several in the order of their ranks: the named ones, else all configured.

    Raises `InvalidInput` where their number is not the profile's.
    """
    chosen = tuple(named or configured)
    if len(chosen) == profile.nodes:
        return chosen
    some = [str(node.name) for node in configured][: profile.nodes]
    some += ["NODE"] * (profile.nodes - len(some))
    hint = f"the first one answers clients: {' '.join(f'--node {name}' for name in some)}"
    wanted = f"{profile.name} is for {profile.nodes} Sparks"
    if named:
        raise InvalidInput(f"{wanted}, but {_format_node_count(named)} named", hint)
    if len(chosen) < profile.nodes:
        raise InvalidInput(
            f"{wanted}, but {_format_node_count(chosen)} configured", f"add the others: sparkctl init; or {hint}"
        )
    raise InvalidInput(f"{wanted}; which of the {len(chosen)} that are configured?", hint)


def _format_node_count(nodes: Sequence[Node]) -> str:
    return f"{len(nodes)} {'is' if len(nodes) == 1 else 'are'}"


def refuse_wrong_node_count(profile: Profile, nodes: Sequence[Node]) -> None:
    """Raise `InvalidInput` where the number of nodes is not the profile's."""
    if profile.nodes > 1:
        assign_nodes_to_ranks(profile, nodes, nodes)
    elif len(nodes) > 1:
        raise InvalidInput(
            f"{profile.name} is for one Spark, but {' and '.join(node.name for node in nodes)} are named",
            f"name one: --node {nodes[0].name}",
        )


def format_transfer_command(words: Sequence[str], source: str, target: str) -> str:
    """Return the command that copies what a start needs to another Spark. ``words``: the profile and its overrides;
    those that choose image or model are kept.
    """
    profile, *rest = words
    pairs = zip(rest[::2], rest[1::2], strict=False)
    options = [
        word for pair in pairs if pair[1].partition("=")[0].partition(".")[0] in ("image", "model") for word in pair
    ]
    return shlex.join(["sparkctl", "sync", profile, "--from", source, "--to", target, *redact_words(options)])


def refuse_different_images(
    words: Sequence[str], plans: Sequence[LaunchPlan], scenes: Sequence[PreflightInspection]
) -> None:
    """Raise where the image is missing on some nodes or differs between them. ``words`` as in `format_transfer_command`."""
    if all(
        _find_running_container(plan, inspection) is not None for plan, inspection in zip(plans, scenes, strict=True)
    ):
        return
    having = [
        (plan, inspection.image) for plan, inspection in zip(plans, scenes, strict=True) if inspection.image is not None
    ]
    if not having:
        return
    source, image = having[0]
    for plan, inspection in zip(plans, scenes, strict=True):
        hint = format_transfer_command(words, source.node, plan.node)
        if inspection.image is None:
            raise ImageNotFound(plan.node, f"{plan.node} does not have the image {plan.image}; {source.node} has", hint)
        if not inspection.image.is_same_image(image):
            raise OperationRefused(
                f"{plan.image} is another image on {plan.node} ({shorten_id(inspection.image.id)}) than on {source.node} "
                f"({shorten_id(image.id)}): the ranks of one model need the same",
                hint,
            )


def refuse_partially_running(
    plans: Sequence[LaunchPlan], scenes: Sequence[PreflightInspection], typed: str | None = None
) -> None:
    """Raise `OperationRefused` where this version of the model runs on some of its nodes only, with ranks of
    different starts, or in another order. ``typed``: the profile as the operator named it.
    """
    found = [(plan, _find_running_container(plan, inspection)) for plan, inspection in zip(plans, scenes, strict=True)]
    there = [(plan, one) for plan, one in found if one is not None]
    if not there:
        return
    instance, down = plans[0].instance, f"sparkctl down {plans[0].instance}"
    if len(there) < len(plans):
        standing, missing = (
            " and ".join([plan.node for plan, _ in there]),
            " and ".join([plan.node for plan, one in found if not one]),
        )
        raise OperationRefused(
            f"half of {instance} runs: a rank of it is on {standing}, but none on {missing}",
            f"stop what is left of it: {down}; then start it again",
        )
    if not all(_is_of_one_start(one, other) for (_, one), (_, other) in pairwise(there)):
        raise OperationRefused(f"the running ranks of {instance} come from different starts", f"stop them: {down}")
    nodes = parse_rank_nodes_label(there[0][1])
    if nodes and nodes != tuple(plan.node for plan in plans):
        again = shlex.join(
            ["sparkctl", "up", typed or plans[0].profile, *(word for name in nodes for word in ("--node", name))]
        )
        raise OperationRefused(
            f"{instance} already runs with its ranks in another order: {', '.join(nodes)}",
            f"watch that one: {again}; or stop it: {down}",
        )


def refuse_partial_stop(plans: Sequence[LaunchPlan], stops: Sequence[Container | None]) -> None:
    """Raise `OperationRefused` where what would be stopped has ranks on other nodes, too: half a model must not be
    left.
    """
    own = {plan.node for plan in plans}
    for plan, one in zip(plans, stops, strict=True):
        elsewhere = [] if one is None else [name for name in parse_rank_nodes_label(one) if name not in own]
        if elsewhere:
            raise OperationRefused(
                f"the {plan.instance} that runs on {plan.node} has a rank on {' and '.join(elsewhere)}, too",
                f"stop all of it first: sparkctl down {plan.instance}",
            )


def _find_running_container(plan: LaunchPlan, inspection: PreflightInspection) -> Container | None:
    """Return the running container of this very version on the node, None where there is none."""
    return next(
        (
            one
            for one in inspection.containers
            if one.is_alive
            and one.get_label(ContainerLabel.INSTANCE) == plan.instance
            and one.get_label(ContainerLabel.HASH) == plan.profile_hash
        ),
        None,
    )


def _is_of_one_start(one: Container, other: Container) -> bool:
    return parse_start_id_label(one) == parse_start_id_label(other) and one.get_label(
        ContainerLabel.NODES
    ) == other.get_label(ContainerLabel.NODES)
