"""What can fail is tried while the old one still serves: images, the model's files, mounts, port, flags, disk, rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparkctl.commands.drop_caches import format_sudoers_command
from sparkctl.commands.fabric.route import find_fabric_route
from sparkctl.commands.start import connectivity_check, login_check, node_fit
from sparkctl.commands.start.port_check import verify_port_access
from sparkctl.commands.start.ranks_preflight import format_transfer_command
from sparkctl.commands.start.start_preflight import PreflightInspection, decide_start, judge_mounts
from sparkctl.commands.switch.planner import IncomingRank, NodeInventory
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_transaction import SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import NodeStarved, OperationRefused
from sparkctl.model.container_labels import parse_port_label
from sparkctl.model.fabric import NodeLanes
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.units import format_gib
from sparkctl.node import whole
from sparkctl.profiles.library import ProfileLibrary
from sparkctl.profiles.memory_fit.estimate_input import list_checkpoint_paths
from sparkctl.profiles.profile_lint import list_start_warnings


async def run_switch_checks(crew: SwitchTransaction, request: SwitchInstance, sites: Sequence[NodeInventory]) -> str:
    """Return what was proved, in words; raises the first thing that stands in the way. Cautions are told.

    What the SSH user may not look at is a caution. With ``keep_going`` so is a mount that is not there yet, and a file of
    weights that is not whole.
    """
    coming = [site.coming for site in sites if site.coming is not None]
    launches = [one.plan for one in coming]
    goes = frozenset(container for _, container in crew.journal.old)
    scenes = await gather_or_cancel(*(_inspect_node(crew, request, one) for one in coming))
    for launch, scene in zip(launches, scenes, strict=True):
        _decide(crew, request, launch, scene, goes)
        _mounts(crew, request, launch, scene)
        _check_drop_caches_right(crew, launch, scene)
    await gather_or_cancel(*(verify_port_access(crew.sessions[launch.node], launch) for launch in launches))
    _refuse_other_image(request.words or (request.profile.name,), launches, scenes)
    _flags(crew, request)
    files = await gather_or_cancel(*(_check_model_files(crew, request, one.words) for one in coming))
    if len(launches) > 1:
        await _check_connectivity(crew, request)
    weights = max((sum(size for one in scene.look.models for _, size in one.files) for scene in scenes), default=0)
    told = [f"the image is there{'' if len(launches) == 1 else ', the same on each'}"]
    told += [f"{max(files)} files of weights are whole ({format_gib(weights)})"] if any(files) else []
    return "; ".join((*told, "mounts, port and disk are in order"))


async def _inspect_node(crew: SwitchTransaction, request: SwitchInstance, coming: IncomingRank) -> PreflightInspection:
    launch = coming.plan
    session = crew.sessions[launch.node]
    engine, containers, image = await gather_or_cancel(
        session.docker.info(), session.docker.list_containers(), session.docker.inspect_image(launch.image)
    )
    paths = [f"path={mount.source}" for mount in launch.mounts if mount.source.startswith("/")]
    disk = [f"disk={engine.root_dir}"] if engine.root_dir else []
    wanted = node_fit.list_model_sections(request.profile, coming.words)
    look = await session.read_node("identity", "memory", "listen", "docker", "sudo", *disk, *paths, *wanted)
    return PreflightInspection(look, containers, engine, image)


def _decide(
    crew: SwitchTransaction,
    request: SwitchInstance,
    launch: LaunchPlan,
    scene: PreflightInspection,
    goes: frozenset[str],
) -> None:
    """Let the decision be made that `up` makes, with what goes counted as gone."""
    freed = {port for one in scene.containers if one.id in goes for port in (parse_port_label(one), *one.ports)}
    listening = scene.look.listening
    look = replace(scene.look, listening=None if listening is None else listening - freed, paths=())
    left = tuple(one for one in scene.containers if one.id not in goes)
    decision = decide_start(
        launch, replace(scene, look=look, containers=left), replace=False, again=request.retry_command
    )
    for message, hint in decision.warnings:
        crew.warn(launch.node, message, hint)


def _mounts(crew: SwitchTransaction, request: SwitchInstance, launch: LaunchPlan, scene: PreflightInspection) -> None:
    """Refuse a source that is missing: the model in it would be missed only after the old one is gone."""
    for caution in judge_mounts(launch, scene):
        if caution.is_missing and not request.keep_going:
            raise OperationRefused(
                caution.message, f"put the files there, or start without them: {request.retry_command} --keep-going"
            )
        crew.warn(launch.node, caution.message)


def _check_drop_caches_right(crew: SwitchTransaction, launch: LaunchPlan, scene: PreflightInspection) -> None:
    if launch.drop_caches and scene.look.drop_right not in (None, "allowed"):
        user = scene.look.identity.user if scene.look.identity else None
        hint = format_sudoers_command(crew.sessions[launch.node].node, user)
        crew.warn(launch.node, "the page cache cannot be dropped without a password here", hint)


def _refuse_other_image(
    words: Sequence[str], launches: Sequence[LaunchPlan], scenes: Sequence[PreflightInspection]
) -> None:
    """Two images behind one name: ranks of different versions do not meet."""
    found = {
        scene.image.id: launch.node for launch, scene in zip(launches, scenes, strict=True) if scene.image is not None
    }
    if len(found) > 1:
        (one, here), (other, there), *_ = found.items()
        raise OperationRefused(
            f"{launches[0].image} is another image on {there} ({_short_image_id(other)}) than on {here} ({_short_image_id(one)})",
            format_transfer_command(words, here, there),
        )


def _short_image_id(image: str) -> str:
    return image.removeprefix("sha256:")[:12]


def _flags(crew: SwitchTransaction, request: SwitchInstance) -> None:
    for message, hint in check_flags(request):
        crew.warn(request.nodes[0].name, message, hint)


async def _check_model_files(crew: SwitchTransaction, request: SwitchInstance, launch: LaunchPlan) -> int:
    """Return how many files of the model were found whole; raises `Refused` for those that surely are not."""
    where = list_checkpoint_paths(request.profile, launch)
    if not where:
        return 0
    session = crew.sessions[launch.node]
    try:
        done = await session.run(whole.weights_check_command(where), timeout=whole.TIMEOUT)
        found = whole.decode_weights_check(done.stdout)
    except (NodeStarved, ValueError, KeyError, TypeError) as silent:
        crew.warn(launch.node, f"whether the model's files are whole could not be read: {silent}")
        return 0
    unread = [one.place if name == "." else f"{one.place}/{name}" for one in found for name in one.unread]
    if unread:
        crew.warn(
            launch.node,
            f"cannot tell whether the model's files are complete: this user may not read {_first(unread)}; "
            "the container may",
        )
    faults = [f"{one.place}: {fault}" for one in found for fault in one.faults]
    if faults:
        what = f"the model on {launch.node} is not whole: {_first(faults)}"
        if not request.keep_going:
            raise OperationRefused(
                what,
                f"fetch it again there, or from another Spark: sparkctl sync {launch.profile}; "
                f"or go on all the same: {request.retry_command} --keep-going",
            )
        crew.warn(launch.node, what)
    return sum(one.files - min(one.files, len(one.unread)) for one in found if not one.faults)


def _first(several: Sequence[str]) -> str:
    return several[0] + (f" (and {len(several) - 1} more)" if len(several) > 1 else "")


async def _check_connectivity(crew: SwitchTransaction, request: SwitchInstance) -> None:
    """Have every rank's node say whether it reaches the others."""
    sessions = [crew.sessions[node.name] for node in request.nodes]
    looks = await gather_or_cancel(*(session.read_node("fabric") for session in sessions))
    lanes = [
        NodeLanes(session.node.name, look.lanes.lanes, look.lanes.has_devices)
        for session, look in zip(sessions, looks, strict=True)
        if look.lanes is not None
    ]
    if len(lanes) < len(sessions):
        return crew.warn(
            request.nodes[0].name, "not every node said what links it has: the way between them is not checked"
        )
    way = find_fabric_route(lanes, {node.name: node.fabric for node in request.nodes if node.fabric is not None})
    cautions = (*way.cautions, *await connectivity_check.check_fabric(sessions, way))
    for caution in (*cautions, *await login_check.check_rank_logins(request.engine, sessions, way)):
        crew.warn(None, caution)
    return None


def check_flags(request: SwitchInstance) -> Iterator[tuple[str, str | None]]:
    """Yield what the engine's catalogue says against the profile's flags, each with the command that does without."""
    for one in list_start_warnings(request.profile, ProfileLibrary()):
        yield one.message, one.format_remedy(request.retry_command)
