"""``sync``: copy a profile's image and model files from one node to others, directly over the cable between them where
there is one.

Only differences are copied. A file has its final name only when it is complete; an incomplete one lies next to it, and
repeat the command to continue it. Checksums computed on both ends and reported over SSH verify the result.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparkctl.commands.event_stream import build_end, stream_events
from sparkctl.commands.request import Request, list_flags
from sparkctl.commands.start.start_preflight import format_making_hint, refuse_without_docker
from sparkctl.commands.transfer.transfer_files import (
    SpaceNeed,
    TransferPlan,
    TransferReporter,
    compare_checksums,
    find_disk_shortage,
    format_file_count,
    list_file_needs,
    plan_transfer,
    transfer_files,
)
from sparkctl.commands.transfer.transfer_stream import RouteUnreachable, TransferRoute, open_transfer_stream
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import (
    FREE_DOCKER_DISK,
    DiskFull,
    DockerError,
    ImageNotFound,
    OperationRefused,
)
from sparkctl.model.container import shorten_id
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.fabric_route import NodeLanes
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import MODEL_KINDS, PartKind
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact_words
from sparkctl.model.text.units import format_duration, format_gib, format_size
from sparkctl.monitor.find_fabric_route import find_fabric_route
from sparkctl.node import model_files_decoder
from sparkctl.node.model_files_decoder import FileListing, FreeSpace
from sparkctl.profiles.fit_evaluation import list_checkpoint_paths
from sparkctl.profiles.launch_planning import DefaultingEnviron, build_launch_plan
from sparkctl.transport.docker.docker_errors import error_for_response
from sparkctl.transport.docker.docker_responses import ImageInfo
from sparkctl.transport.node_session import NodeSession


async def transfer_image(
    source: NodeSession,
    target: NodeSession,
    name: str,
    image: ImageInfo,
    route: TransferRoute,
    progress: TransferReporter,
) -> str:
    """Copy an image and verify that it is the same on both nodes; return that as a sentence. Raises `DockerError`."""
    progress.begin_item(f"image {name}", image.size)
    job = {"n": 0, "image": name}
    try:
        await _stream_image(source, target, job, route, progress)
    except RouteUnreachable:
        progress.warn(
            f"{source.node.name} does not reach {target.node.name} directly: the image goes through this machine"
        )
        await _stream_image(source, target, job, TransferRoute(), progress)
    arrived = await target.docker.inspect_image(name)
    if arrived is None or not arrived.is_same_image(image):
        difference = (
            "it is not there"
            if arrived is None
            else f"there it is {shorten_id(arrived.id)}, here {shorten_id(image.id)}"
        )
        raise DockerError(
            target.node.name,
            f"{name} did not arrive on {target.node.name} as it left: {difference}",
            f"on {target.node.name}: docker pull {name}",
        )
    if image.size is not None:
        progress.report_progress(image.size, is_last=True)  # the stream itself is a little longer or shorter
    return f"the image is {shorten_id(arrived.id)} on both"


async def _stream_image(
    source: NodeSession, target: NodeSession, job: dict[str, Any], route: TransferRoute, progress: TransferReporter
) -> None:
    ended: dict[str, tuple[int, str]] = {}
    refused: list[str] = []
    async with open_transfer_stream(source, target, ([job], [job]), route, 1) as pair:
        async for side, message in pair.read_messages():
            if "at" in message:
                progress.report_progress(message["at"])
            if "status" in message:
                ended[side] = int(message["status"]), sanitize_line(str(message.get("said", "")))
                refused += [sanitize_line(str(name)) for name in message.get("refused") or ()]
            if "got" in message:
                await pair.send_to_receiver(end=True)
    for side, session, what in (("send", source, "docker save"), ("take", target, "docker load")):
        status, words = ended.get(side, (0, ""))
        if status:
            node, words = session.node.name, words or f"exit {status}"
            known = error_for_response(node, 0, words)
            raise type(known)(node, f"{what} failed on {node}: {words}", known.hint)
    if refused:
        raise DockerError(
            target.node.name,
            f"{source.node.name} sent more than the image {job['image']}: {', '.join(refused[:5])}; all of it was restored on "
            f"{target.node.name}",
            f"docker save of one image never does that: check what Docker on {source.node.name} is, and who can change it",
        )


_LISTING_TIMEOUT_SECONDS = 60.0  # seconds that a node may take to list a model's files
_NO_MODEL_MESSAGE = "the profile of {} names no model whose files its mounts lead to ({}): only the image is copied"
_IMAGE_SPACE_FACTOR = 2  # free space per byte of image: docker load unpacks before it stores


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProfile(Request):
    """What to copy and where: ``targets`` one after the other. ``environ``: the operator's, for the variables of the
    profile. ``words``: the profile and its overrides as the operator typed them. ``kinds``: which of its models, with
    ``model``.
    """

    profile: Profile
    source: Node
    targets: Sequence[Node]
    image: bool = True
    model: bool = True
    dry_run: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    kinds: Sequence[PartKind] = MODEL_KINDS

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Both ends."""
        return (self.source, *self.targets)

    @property
    def named_nodes(self) -> tuple[NodeName, ...]:
        """None: ``--node`` is no option of it."""
        return ()

    def format_as_command(self) -> tuple[str, ...]:
        profile, *settings = self.words or (self.profile.name,)
        targets = (word for node in self.targets for word in ("--to", str(node.name)))
        flags = {"--image-only": not self.model, "--model-only": not self.image, "--dry-run": self.dry_run}
        return ("sync", profile, "--from", str(self.source.name), *targets, *list_flags(flags), *settings)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return transfer_profile(ctx, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContents:
    """What one node has of the profile. ``places`` is empty where the profile names no model directory."""

    node: NodeName
    image: ImageInfo | None
    places: tuple[FileListing, ...]
    docker_room: FreeSpace | None
    lanes: NodeLanes


@dataclass(frozen=True, slots=True)
class PendingTransfer:
    """What must be copied to one node: the image's bytes (None: present already, or not requested), and the files."""

    image: ImageInfo | None
    files: TransferPlan
    pairs: tuple[tuple[FileListing, FileListing], ...]

    @property
    def is_done(self) -> bool:
        """Tell whether both nodes are equal already."""
        return self.image is None and self.files.is_done


def transfer_profile(ctx: CommandContext, request: TransferProfile) -> AsyncGenerator[Event, None]:
    """Yield `TransferProgressed` during the copy, then the end: 0 when equal, 6 if refused before the copy began, 3
    after a failure; after Ctrl-C (130) or a failure, repeat the command to continue.
    """

    async def transfer_to_targets(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        results = []
        for target in request.targets:
            results.append(await _transfer_to_target(ctx, request, target, emit))
        outcome = Outcome.PLANNED if request.dry_run else Outcome.DONE
        node = request.targets[0].name if len(request.targets) == 1 else None
        return build_end(ctx, began, outcome, node=node, instance=request.profile.name, message="\n".join(results))

    again = "interrupted; what has arrived is kept: repeat the command to continue"
    return stream_events(ctx, transfer_to_targets, request.profile.name, None, on_interrupt=again)


async def _transfer_to_target(ctx: CommandContext, request: TransferProfile, target: Node, emit: Emit) -> str:
    """Bring one target up to date with the source; return what was done, as a sentence."""
    if target.name == request.source.name:
        raise OperationRefused(f"{target.name} is both the source and the target", "name two nodes")
    began = ctx.clock.monotonic()
    async with ctx.create_session(request.source) as source, ctx.create_session(target) as destination:
        await gather_or_cancel(source.link.connect(), destination.link.connect())
        here, there = await gather_or_cancel(
            _read_node_contents(ctx, request, source), _read_node_contents(ctx, request, destination)
        )
        todo = _plan_transfer(request, here, there)
        route, words = _choose_route(
            here, there, {one.name: one.fabric for one in (request.source, target) if one.fabric}
        )
        name = request.profile.name
        if request.model and not todo.pairs and request.profile.mounts:
            emit(
                WarningEmitted(
                    ctx.clock.unix_time(),
                    target.name,
                    _NO_MODEL_MESSAGE.format(name, ", ".join(request.profile.mounts)),
                )
            )
        if todo.is_done:
            return f"{name} is on {target.name} already as it is on {request.source.name}: {_describe_present(todo, request)}"
        _refuse_full_disk(target.name, todo, there)
        if request.dry_run:
            return f"would send {_describe_pending(todo)} to {target.name} over {words}"
        if not route.lanes:
            emit(
                WarningEmitted(
                    ctx.clock.unix_time(),
                    target.name,
                    f"it goes {words}: {_describe_pending(todo)}, twice over its network",
                )
            )
        progress = TransferReporter(ctx.clock, emit, request.source.name, target.name, name)
        if todo.files.doubtful:
            todo = replace(todo, files=await compare_checksums(source, destination, todo.files, progress))
            _refuse_full_disk(target.name, todo, there)
        route = await transfer_files(source, destination, todo.files, route, progress)
        proof = []
        if todo.image is not None:
            proof.append(await transfer_image(source, destination, request.profile.image, todo.image, route, progress))
        if todo.files.touch:
            proof.insert(0, f"{len(todo.files.touch)} files with different times are equal")
        seconds = ctx.clock.monotonic() - began
        over = f"over {words}" if route.lanes else "through this machine"
        if todo.files.send:
            proof.insert(
                0,
                f"the checksums of {format_file_count(len(todo.files.send), todo.files.total_bytes)} are equal on both",
            )
        proved = ", ".join(proof) or "the links are the same"
        return (
            f"{name} is on {target.name} as on {request.source.name} after {format_duration(seconds)}, {over}: {proved}"
        )


async def _read_node_contents(ctx: CommandContext, request: TransferProfile, session: NodeSession) -> NodeContents:
    node = session.node
    inspection = await session.read_node("identity", "docker", "fabric")
    plan = build_launch_plan(
        request.profile,
        node,
        home=session.user_home,
        operator=ctx.operator,
        environ=DefaultingEnviron(request.environ),
    )
    wanted = list_checkpoint_paths(request.profile, plan, request.kinds) if request.model else ()
    image, rooms = None, []
    if request.image:
        refuse_without_docker(node.name, inspection)
        image, info = await gather_or_cancel(
            session.docker.inspect_image(request.profile.image), session.docker.read_info()
        )
        rooms = [info.root_dir] if info.root_dir else []
    program = model_files_decoder.build_listing_program(wanted, rooms)
    done = await session.run(program.argv, stdin=program.stdin, timeout=_LISTING_TIMEOUT_SECONDS)
    try:
        found, room = model_files_decoder.decode_file_listing(done.stdout)
    except ValueError as error:
        raise OperationRefused(
            f"python3 cannot run on {node.name}, and a transfer needs it ({error})",
            f"on {node.name}: sudo apt install python3",
        ) from error
    lanes = inspection.lanes
    own = NodeLanes(node.name, lanes.lanes if lanes else (), has_devices=lanes is not None and lanes.has_devices)
    return NodeContents(node=node.name, image=image, places=found, docker_room=room[0] if room else None, lanes=own)


def _plan_transfer(request: TransferProfile, here: NodeContents, there: NodeContents) -> PendingTransfer:
    """Return what differs; raises `OperationRefused` for what the source itself does not have."""
    image = None
    if request.image:
        if here.image is None:
            raise ImageNotFound(
                here.node,
                f"{here.node} does not have the image {request.profile.image}",
                _describe_way_to_get(request, here.node),
            )
        if there.image is None or not here.image.is_same_image(there.image):
            image = here.image
            if "@" in request.profile.image:
                raise OperationRefused(
                    f"the profile names its image by digest ({request.profile.image}), which docker save does not keep",
                    f"on {there.node}: docker pull {request.profile.image}",
                )
    pairs = tuple(zip(here.places, there.places, strict=True))
    if request.model and not pairs and not request.image:
        raise OperationRefused(
            f"the place of {request.profile.name}'s model is not known: no mount of the profile leads to it",
            "mount the model's directory, or Hugging Face's cache, in the profile",
        )
    for source, target in pairs:
        _refuse_unreadable(here.node, source)
        _refuse_unwritable(there.node, target)
    return PendingTransfer(image, plan_transfer(pairs), pairs)


def _describe_way_to_get(request: TransferProfile, node: NodeName) -> str:
    """Return what to do about an image that a node lacks."""
    if request.profile.image_made_by is not None:
        return format_making_hint(request.profile.image_made_by)
    profile, *settings = redact_words(request.words or (request.profile.name,))
    return shlex.join(["sparkctl", "pull", profile, "--image-only", "--node", node, *settings])


def _refuse_unreadable(node: NodeName, source: FileListing) -> None:
    if source.denied or source.kind == "denied":
        some = ", ".join(source.denied[:3])
        raise OperationRefused(
            f"{node}: {source.place} cannot be read completely" + (f" ({some})" if some else ""),
            "check its permissions",
        )
    if source.unsafe:
        raise OperationRefused(
            f"{node} lists paths outside of {source.place} ({', '.join(map(repr, source.unsafe[:3]))}): nothing was sent",
            f"no model has that: see who can change {source.place} and python3 on {node}",
        )
    if not source.entries:
        raise OperationRefused(f"{node} has nothing at {source.place}", "download the model there first")


def _refuse_unwritable(node: NodeName, target: FileListing) -> None:
    if target.room.is_writable is False:
        raise OperationRefused(
            f"the user on {node} may not write to {target.room.there}",
            f"on {node}: sudo mkdir -p {target.base} && sudo chown $USER {target.base}",
        )


def _choose_route(here: NodeContents, there: NodeContents, chosen: Mapping[NodeName, str]) -> tuple[TransferRoute, str]:
    """Return the route between the two nodes, and its name."""
    try:
        route = find_fabric_route([here.lanes, there.lanes], chosen)
    except OperationRefused as none:
        return TransferRoute(), f"through this machine ({none.message})"
    names = " and ".join(lane.interface for lane in route.head_end.lanes)
    lanes = tuple(zip(route.ends[0].lanes, route.ends[1].lanes, strict=True))
    is_meant = route.is_fast or bool(chosen)
    return TransferRoute(lanes), names if is_meant else f"{names} (no cable joins the ConnectX ports)"


def _refuse_full_disk(node: NodeName, todo: PendingTransfer, there: NodeContents) -> None:
    """Refuse before a byte is sent."""
    needs = list_file_needs(todo.files, (target for _, target in todo.pairs))
    if todo.image is not None and there.docker_room is not None and todo.image.size is not None:
        needs.append(
            SpaceNeed(
                "the image, which docker load unpacks first", _IMAGE_SPACE_FACTOR * todo.image.size, there.docker_room
            )
        )
    for need, missing in find_disk_shortage(needs):
        raise DiskFull(
            node,
            f"{node} has no room for {need.what}: {format_gib(need.room.free)} free at {need.room.there}, "
            f"{format_size(need.size)} needed, {format_size(missing)} too little; nothing was sent",
            f"on {node}: {FREE_DOCKER_DISK}; or remove an old model",
        )


def _describe_pending(todo: PendingTransfer) -> str:
    parts = []
    if todo.files.send:
        parts.append(format_file_count(len(todo.files.send), todo.files.missing_bytes))
    if todo.files.doubtful:
        parts.append(f"of {len(todo.files.doubtful)} files with different times, those whose contents differ")
    if todo.files.links and not todo.files.send:
        parts.append(f"{len(todo.files.links)} links")
    if todo.image is not None:
        parts.append(f"the image ({format_gib(todo.image.size)})")
    return " and ".join(parts)


def _describe_present(todo: PendingTransfer, request: TransferProfile) -> str:
    parts = [f"{todo.files.same} files of the same sizes and times"] if todo.files.same else []
    parts += ["the same image"] if request.image else []
    return " and ".join(parts) or "nothing to send"
