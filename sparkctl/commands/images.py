"""``images``: what images lie on each node and who uses them, and their removal with a proof that nothing does."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from sparkctl.commands.event_stream import build_end, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.node_lock import acquire_node_lock
from sparkctl.commands.request import Request, list_flags
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import DockerError, NodeError, OperationRefused
from sparkctl.history.model import OperationKind
from sparkctl.model.container import SHORT_ID_DIGITS, Container, shorten_id
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.units import format_size
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.docker.docker_responses import StoredImage
from sparkctl.transport.node_session import NodeSession, isolate_node_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUse:
    """An image on a node, and who uses it.

    Attributes:
        last_used: when a start with it began, or a container was made of it, in unix seconds; None: not known.
        profiles: those that name it.
        containers: that were made of it, running or not; it cannot be removed while there are any.
        instances: those of them that sparkctl started, by the name of their instance.
    """

    image: StoredImage
    last_used: float | None
    profiles: tuple[str, ...]
    containers: tuple[str, ...]
    instances: tuple[str, ...] = ()

    @property
    def is_old_build(self) -> bool:
        """Tell whether `pull` built it, and a newer build has its name."""
        return self.image.built_from is not None and not self.image.names


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeImages:
    """The images of a node, the largest first; ``images`` None: not known, and ``detail`` and ``hint`` say why."""

    name: NodeName
    images: tuple[ImageUse, ...] | None
    detail: str | None = None
    hint: str | None = None


async def list_images(ctx: CommandContext, nodes: Sequence[Node]) -> tuple[NodeImages, ...]:
    profiles = list_image_profiles()
    return await gather_or_cancel(*(_list_node_images(ctx, node, profiles) for node in nodes))


def list_image_profiles() -> tuple[tuple[str, str], ...]:
    """Return each profile's name with its image; profiles with errors are left out."""
    entries = ProfileLibrary().load_all_entries()
    return tuple((one.profile.name, _complete_name(one.profile.image)) for one in entries if one.profile is not None)


async def _list_node_images(ctx: CommandContext, node: Node, profiles: Sequence[tuple[str, str]]) -> NodeImages:
    try:
        async with ctx.create_session(node) as session:
            with isolate_node_failures(node):
                return NodeImages(name=node.name, images=await read_images(ctx, session, profiles))
    except (NodeError, DockerError) as error:
        return NodeImages(name=node.name, images=None, detail=error.message, hint=error.hint)


async def read_images(
    ctx: CommandContext, session: NodeSession, profiles: Sequence[tuple[str, str]]
) -> tuple[ImageUse, ...]:
    """Return the images of one node, the largest first. Raises `NodeError`, `DockerError`."""
    await session.link.connect()
    images, containers = await gather_or_cancel(session.docker.list_images(), session.docker.list_containers())
    starts = ctx.history.list_operations(node=session.node.name, most=-1)
    began = [
        (_complete_name(one.image), one.began)
        for one in starts
        if one.image is not None and one.kind is not OperationKind.PULL
    ]
    found = []
    for image in images:
        users = [one for one in containers if _is_made_of(one, image)]
        times = [when for name, when in began if name in image.names] + [one.created for one in users]
        found.append(
            ImageUse(
                image=image,
                last_used=max(times, default=None),
                containers=tuple(sorted(one.name for one in users)),
                instances=tuple(sorted(one.instance_name for one in users if one.is_managed)),
                profiles=tuple(sorted(name for name, wanted in profiles if wanted in (*image.names, *image.digests))),
            )
        )
    return tuple(sorted(found, key=lambda one: -(one.image.size or 0)))


def _is_made_of(container: Container, image: StoredImage) -> bool:
    """Tell whether a container was made of an image. Docker names the image's id beside its name."""
    if container.image_id is not None:
        return container.image_id == image.id
    return _complete_name(container.image) in (*image.names, image.id)


def _complete_name(name: str) -> str:
    """Return an image's name with its tag, as Docker lists it."""
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in name else f"{name}:latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveImages(Request):
    """A request to remove images: exactly those that are named.

    Attributes:
        wanted: names with their tag, or ids of 12 digits and more.
        old_builds: also those that `pull` built and that have lost their name to a newer build.
    """

    nodes: tuple[Node, ...]
    wanted: tuple[str, ...] = ()
    old_builds: bool = False
    dry_run: bool = False

    def format_as_command(self) -> tuple[str, ...]:
        flags = {"--old-builds": self.old_builds, "--dry-run": self.dry_run}
        return ("images", "remove", *self.wanted, *self.format_node_options(), *list_flags(flags))

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return remove_images(ctx, self)


def remove_images(ctx: CommandContext, request: RemoveImages) -> AsyncGenerator[Event, None]:
    """Yield the end: 0 when they are gone, 6 where one is in use or not there; then nothing was removed on any node."""

    async def run_removal(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        removals: list[str] = []
        async with AsyncExitStack() as stack:
            sessions = [await open_session(stack, ctx, node, emit) for node in request.nodes]
            await gather_or_cancel(*(session.link.connect() for session in sessions))
            if not request.dry_run:
                for session in sessions:  # a start must not begin with an image that goes
                    lock = await acquire_node_lock(session, ctx, "removing images", lambda words: None)
                    stack.push_async_callback(lock.release)
            profiles = list_image_profiles()
            found = await gather_or_cancel(*(read_images(ctx, session, profiles) for session in sessions))
            chosen = [choose_images(images, request) for images in found]
            _refuse_missing(request, chosen)
            for session, uses in zip(sessions, chosen, strict=True):
                refuse_used_images(session.node.name, uses)
            for session, uses in zip(sessions, chosen, strict=True):
                for use in uses:
                    if use.profiles:
                        named = " and ".join(use.profiles)
                        words = f"{_name(use)} is the image of {named}: the next start there needs `sparkctl pull`"
                        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, words))
                    if not request.dry_run:
                        await _remove_image(session, use)
                    verb = "would remove" if request.dry_run else "removed"
                    removals.append(
                        f"{verb} {_name(use)} from {session.node.name} ({format_size(use.image.size or 0)})"
                    )
        outcome = Outcome.PLANNED if request.dry_run else Outcome.DONE
        return build_end(ctx, began, outcome, message="\n".join(removals) or "there is no old build to remove")

    def stream_removal(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(own, run_removal, on_interrupt="interrupted; some images may already be removed")

    if request.dry_run:
        return stream_removal(ctx)
    command = shlex.join(("sparkctl", *request.format_as_command()))
    subject = OperationSubject(
        kind=OperationKind.REMOVE,
        nodes=request.nodes,
        instance=" ".join(request.wanted) or "old builds",
        command=command,
    )
    return record_operation(ctx, subject, stream_removal)


def choose_images(images: Sequence[ImageUse], request: RemoveImages) -> list[ImageUse]:
    """Return the images that a request names. Raises `OperationRefused` for an id that several images begin with."""
    chosen: dict[str, ImageUse] = {}
    for wanted in request.wanted:
        digits = wanted.removeprefix("sha256:")
        name = _complete_name(wanted)
        found = [one for one in images if name in (*one.image.names, *one.image.digests)]
        if not found and len(digits) >= SHORT_ID_DIGITS:
            found = [one for one in images if one.image.id.removeprefix("sha256:").startswith(digits)]
        if len(found) > 1:
            raise OperationRefused(f"{wanted} matches {len(found)} images", "write more of the id, or its name")
        chosen |= {one.image.id: one for one in found}
    if request.old_builds:
        chosen |= {one.image.id: one for one in images if one.is_old_build and not one.containers}
    return list(chosen.values())


def _refuse_missing(request: RemoveImages, chosen: Sequence[Sequence[ImageUse]]) -> None:
    """Raise `OperationRefused` for a name that no node has."""
    known = [use for uses in chosen for use in uses]
    for wanted in request.wanted:
        if not choose_images(known, RemoveImages(nodes=request.nodes, wanted=(wanted,))):
            where = " and ".join(node.name for node in request.nodes)
            raise OperationRefused(
                f"no image {wanted} is on {where}", "see what is there: sparkctl images; an id needs 12 digits"
            )


def refuse_used_images(node: NodeName, uses: Sequence[ImageUse]) -> None:
    """Raise `OperationRefused` where a container was made of one of them."""
    for use in uses:
        if use.containers:
            way = (
                shlex.join(["sparkctl", "down", use.instances[0], "--node", node])
                if use.instances
                else f"sparkctl did not start it; on {node}: {shlex.join(['docker', 'rm', use.containers[0]])}"
            )
            raise OperationRefused(
                f"{_name(use)} is in use on {node} by {' and '.join(use.containers)}; nothing was removed", way
            )


async def _remove_image(session: NodeSession, use: ImageUse) -> None:
    """Remove an image under all its names, and prove that it is gone. Docker refuses, too, if a container uses it."""
    for ref in (*use.image.names, *(() if use.image.names else (use.image.id,))):
        await session.docker.remove_image(ref)
    if await session.docker.inspect_image(use.image.id) is not None:
        raise OperationRefused(
            f"{_name(use)} is still on {session.node.name}",
            f"on {session.node.name}: docker image inspect {shorten_id(use.image.id)}",
        )


def _name(use: ImageUse) -> str:
    return use.image.names[0] if use.image.names else shorten_id(use.image.id)
