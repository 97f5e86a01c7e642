"""What can fail is tried while the old one still serves: images, the model's files, mounts, port, flags, disk, rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparkctl.core.fabric import find_way
from sparkctl.core.fit.subject import places
from sparkctl.core.linting import cautions
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.core.switching import Coming, Site
from sparkctl.core.together import together
from sparkctl.errors import Refused, Starved
from sparkctl.model.fabric import NodeLanes
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.units import gib
from sparkctl.operations.drop_caches import sudoers_hint
from sparkctl.operations.labels import port_of
from sparkctl.operations.starting import fabric_check, fitting, login_check
from sparkctl.operations.starting.port_check import verify_port_access
from sparkctl.operations.starting.preflight import Scene, decide, judge_mounts
from sparkctl.operations.starting.ranks_preflight import sync_command
from sparkctl.operations.switching.crew import Crew
from sparkctl.operations.switching.request import SwitchRequest
from sparkctl.probe import whole


async def check(crew: Crew, request: SwitchRequest, sites: Sequence[Site]) -> str:
    """Return what was proved, in words; raises the first thing that stands in the way. Cautions are told.

    What the SSH user may not look at is a caution. With ``keep_going`` so is a mount that is not there yet, and a file of
    weights that is not whole.
    """
    coming = [site.coming for site in sites if site.coming is not None]
    launches = [one.plan for one in coming]
    goes = frozenset(container for _, container in crew.journal.old)
    scenes = await together(*(_scene(crew, request, one) for one in coming))
    for launch, scene in zip(launches, scenes, strict=True):
        _decide(crew, request, launch, scene, goes)
        _mounts(crew, request, launch, scene)
        _right(crew, launch, scene)
    await together(*(verify_port_access(crew.sessions[launch.node], launch) for launch in launches))
    _refuse_other_image(request.words or (request.profile.name,), launches, scenes)
    _flags(crew, request)
    files = await together(*(_whole(crew, request, one.words) for one in coming))
    if len(launches) > 1:
        await _way(crew, request)
    weights = max((sum(size for one in scene.look.models for _, size in one.files) for scene in scenes), default=0)
    told = [f"the image is there{'' if len(launches) == 1 else ', the same on each'}"]
    told += [f"{max(files)} files of weights are whole ({gib(weights)})"] if any(files) else []
    return "; ".join((*told, "mounts, port and disk are in order"))


async def _scene(crew: Crew, request: SwitchRequest, coming: Coming) -> Scene:
    launch = coming.plan
    session = crew.sessions[launch.node]
    engine, containers, image = await together(
        session.docker.info(), session.docker.list(), session.docker.image(launch.image)
    )
    paths = [f"path={mount.source}" for mount in launch.mounts if mount.source.startswith("/")]
    disk = [f"disk={engine.root_dir}"] if engine.root_dir else []
    wanted = fitting.sections(request.profile, coming.words)
    look = await session.look("identity", "memory", "listen", "docker", "sudo", *disk, *paths, *wanted)
    return Scene(look, containers, engine, image)


def _decide(crew: Crew, request: SwitchRequest, launch: LaunchPlan, scene: Scene, goes: frozenset[str]) -> None:
    """Let the decision be made that `up` makes, with what goes counted as gone."""
    freed = {port for one in scene.containers if one.id in goes for port in (port_of(one), *one.ports)}
    listening = scene.look.listening
    look = replace(scene.look, listening=None if listening is None else listening - freed, paths=())
    left = tuple(one for one in scene.containers if one.id not in goes)
    decision = decide(launch, replace(scene, look=look, containers=left), replace=False, again=request.again)
    for message, hint in decision.warnings:
        crew.warn(launch.node, message, hint)


def _mounts(crew: Crew, request: SwitchRequest, launch: LaunchPlan, scene: Scene) -> None:
    """Refuse a source that is missing: the model in it would be missed only after the old one is gone."""
    for caution in judge_mounts(launch, scene):
        if caution.is_missing and not request.keep_going:
            raise Refused(caution.message, f"put the files there, or start without them: {request.again} --keep-going")
        crew.warn(launch.node, caution.message)


def _right(crew: Crew, launch: LaunchPlan, scene: Scene) -> None:
    if launch.drop_caches and scene.look.drop_right not in (None, "allowed"):
        user = scene.look.identity.user if scene.look.identity else None
        hint = sudoers_hint(crew.sessions[launch.node].node, user)
        crew.warn(launch.node, "the page cache cannot be dropped without a password here", hint)


def _refuse_other_image(words: Sequence[str], launches: Sequence[LaunchPlan], scenes: Sequence[Scene]) -> None:
    """Two images behind one name: ranks of different versions do not meet."""
    found = {
        scene.image.id: launch.node for launch, scene in zip(launches, scenes, strict=True) if scene.image is not None
    }
    if len(found) > 1:
        (one, here), (other, there), *_ = found.items()
        raise Refused(
            f"{launches[0].image} is another image on {there} ({_short(other)}) than on {here} ({_short(one)})",
            sync_command(words, here, there),
        )


def _short(image: str) -> str:
    return image.removeprefix("sha256:")[:12]


def _flags(crew: Crew, request: SwitchRequest) -> None:
    for message, hint in of_flags(request):
        crew.warn(request.nodes[0].name, message, hint)


async def _whole(crew: Crew, request: SwitchRequest, launch: LaunchPlan) -> int:
    """Return how many files of the model were found whole; raises `Refused` for those that surely are not."""
    where = places(request.profile, launch)
    if not where:
        return 0
    session = crew.sessions[launch.node]
    try:
        done = await session.run(whole.command(where), timeout=whole.TIMEOUT)
        found = whole.decode(done.stdout)
    except (Starved, ValueError, KeyError, TypeError) as silent:
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
            raise Refused(
                what,
                f"fetch it again there, or from another Spark: sparkctl sync {launch.profile}; "
                f"or go on all the same: {request.again} --keep-going",
            )
        crew.warn(launch.node, what)
    return sum(one.files - min(one.files, len(one.unread)) for one in found if not one.faults)


def _first(several: Sequence[str]) -> str:
    return several[0] + (f" (and {len(several) - 1} more)" if len(several) > 1 else "")


async def _way(crew: Crew, request: SwitchRequest) -> None:
    """Have every rank's node say whether it reaches the others."""
    sessions = [crew.sessions[node.name] for node in request.nodes]
    looks = await together(*(session.look("fabric") for session in sessions))
    lanes = [
        NodeLanes(session.node.name, look.lanes.lanes, look.lanes.has_devices)
        for session, look in zip(sessions, looks, strict=True)
        if look.lanes is not None
    ]
    if len(lanes) < len(sessions):
        return crew.warn(
            request.nodes[0].name, "not every node said what links it has: the way between them is not checked"
        )
    way = find_way(lanes, {node.name: node.fabric for node in request.nodes if node.fabric is not None})
    cautions = (*way.cautions, *await fabric_check.check(sessions, way))
    for caution in (*cautions, *await login_check.check(request.engine, sessions, way)):
        crew.warn(None, caution)
    return None


def of_flags(request: SwitchRequest) -> Iterator[tuple[str, str | None]]:
    """Yield what the engine's catalogue says against the profile's flags, each with the command that does without."""
    for one in cautions(request.profile, ProfileLibrary()):
        yield one.message, one.way(request.again)
