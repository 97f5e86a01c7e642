"""``models``: what lies on each node, and the removal of one model after a proof that nothing uses it."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import field, replace
from pathlib import PurePosixPath

from sparkctl.commands.event_stream import build_end, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.model_places import ModelPlaces, find_model_places, load_all_profiles
from sparkctl.commands.node_lock import acquire_node_lock
from sparkctl.commands.request import Request, list_flags
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound, OperationRefused, SparkctlError
from sparkctl.history.model import OperationKind
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel, DockerRunSpec
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_size
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """Where it lies, how large it is, and who needs it.

    Attributes:
        size: bytes on the disk.
        used: when its weights were last read, as the disk remembers it (to a day); None: not known.
        is_whole: None: its files may not be read.
        faults: what is wrong with it, sentences.
        profiles: the profiles that name it.
        is_brought: `pull` got it.
        is_link: the place is a link to another one.
        also_on: the other nodes that have it, by its place.
    """

    node: NodeName
    place: str
    size: int
    used: float | None = None
    is_whole: bool | None = None
    faults: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    is_brought: bool = False
    is_link: bool = False
    also_on: tuple[NodeName, ...] = ()

    @property
    def name(self) -> str:
        """Its name without the directories before it."""
        last = self.place.rstrip("/").rpartition("/")[2]
        return last.removeprefix("models--").replace("--", "/") if last.startswith("models--") else last

    @property
    def is_ours(self) -> bool:
        """Tell whether sparkctl has to do with it: it brought it, or a profile names it."""
        return self.is_brought or bool(self.profiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModels:
    """The models of a node; ``trouble``: why it could not be asked."""

    node: NodeName
    models: tuple[StoredModel, ...] = ()
    trouble: str | None = None


_LIST_TIMEOUT_SECONDS = 120.0
_REMOVE_TIMEOUT_SECONDS = 600.0


async def list_models(
    ctx: CommandContext, nodes: Sequence[Node], profiles: Sequence[Profile]
) -> tuple[NodeModels, ...]:
    """Return the models of each node, the largest first; a node that cannot be asked with its trouble."""

    async def ask(node: Node) -> NodeModels:
        try:
            async with ctx.create_session(node) as session:
                await session.link.connect()
                await session.read_node("identity")
                return NodeModels(
                    node=node.name, models=await read_models(session, find_model_places(ctx, session, profiles))
                )
        except SparkctlError as error:
            return NodeModels(node=node.name, trouble=error.message)

    found = await gather_or_cancel(*(ask(node) for node in nodes))
    homes = {(one.place, view.node) for view in found for one in view.models}
    return tuple(
        replace(view, models=tuple(
            replace(one, also_on=tuple(node for place, node in sorted(homes) if place == one.place and node != view.node))
            for one in view.models
        ))
        for view in found
    )  # fmt: skip


async def read_models(session: NodeSession, places: ModelPlaces) -> tuple[StoredModel, ...]:
    """Return the models on one node, the largest first. Raises `SparkctlError`."""
    answer = await places.run_program(session, "list", _LIST_TIMEOUT_SECONDS)
    names: dict[str, list[str]] = {}
    try:
        for place, entry in answer["entries"].items():
            names.setdefault(str(entry), []).extend(places.places.get(place, ()))
        found = [
            StoredModel(
                node=session.node.name,
                place=str(one["place"]),
                size=int(one["size"]),
                used=one["used"],
                is_whole=False if one["faults"] else None if one["unread"] else True,
                faults=tuple(sanitize_line(str(each)) for each in one["faults"]),
                profiles=tuple(dict.fromkeys(names.get(str(one["place"]), ()))),
                is_brought=bool(one["brought"]),
                is_link=bool(one["link"]),
            )
            for one in answer["models"]
        ]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise OperationRefused(
            f"what {session.node.name} said of its models cannot be read ({sanitize_line(str(error))})", None
        ) from error
    return tuple(sorted(found, key=lambda one: (-one.size, one.place)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveModel(Request):
    """Which model to remove from which node. ``name``: its name, or its exact path on the node."""

    name: str
    nodes: tuple[Node, ...]
    dry_run: bool = False
    profiles: Sequence[Profile] = field(default_factory=load_all_profiles)

    def format_as_command(self) -> tuple[str, ...]:
        return ("models", "remove", self.name, *self.format_node_options(), *list_flags({"--dry-run": self.dry_run}))

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return remove_model(ctx, self)


def remove_model(ctx: CommandContext, request: RemoveModel) -> AsyncGenerator[Event, None]:
    """Yield the end: 0 removed, 6 refused because something uses it, or nothing says that it may go."""

    async def run_removal(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        (node,) = request.nodes

        def warn(message: str) -> None:
            emit(WarningEmitted(ctx.clock.unix_time(), node.name, message))

        async with AsyncExitStack() as stack:
            session = await open_session(stack, ctx, node, emit)
            await session.link.connect()
            await session.read_node("identity")
            places = find_model_places(ctx, session, request.profiles)
            if not request.dry_run:
                lock = await acquire_node_lock(session, ctx, " ".join(request.format_as_command()), warn)
                stack.push_async_callback(lock.release)
            model = choose_model(await read_models(session, places), request.name, node.name)
            await _refuse_used_model(session, model)
            verb = "names" if len(model.profiles) == 1 else "name"
            named = (
                f"; {' and '.join(model.profiles)} {verb} it: `sparkctl pull` gets it again" if model.profiles else ""
            )
            what = f"{model.place} on {node.name}, {format_size(model.size)}"
            if not request.dry_run:
                answer = await places.run_program(session, "remove", _REMOVE_TIMEOUT_SECONDS, place=model.place)
                if error := answer.get("error"):
                    raise OperationRefused(f"{model.place} on {node.name} stays: {sanitize_line(str(error))}", None)
        return build_end(
            ctx,
            began,
            Outcome.PLANNED if request.dry_run else Outcome.DONE,
            node=node.name,
            message=f"{'would remove' if request.dry_run else 'removed'} {what}{named}",
        )

    stays = "interrupted; what is left of it has the ending .sparkctl-removed: the same command removes it"

    def stream_removal(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(own, run_removal, None, None, on_interrupt=stays)

    if request.dry_run:
        return stream_removal(ctx)
    command = shlex.join(("sparkctl", *request.format_as_command()))
    subject = OperationSubject(kind=OperationKind.REMOVE, nodes=request.nodes, instance=request.name, command=command)
    return record_operation(ctx, subject, stream_removal)


def choose_model(models: Sequence[StoredModel], name: str, node: str) -> StoredModel:
    """Return the one that is meant. Raises `OperationRefused` for none, several, or a stranger that is not named by path."""
    exact = [one for one in models if one.place == name.rstrip("/")]
    found = exact or [one for one in models if name in (one.name, one.name.rpartition("/")[2])]
    if not found:
        raise OperationRefused(f"{node} has no model {sanitize_line(name)}", f"sparkctl models --node {node}")
    if len(found) > 1:
        raise OperationRefused(
            f"{node} has {len(found)} models of this name: {', '.join(one.place for one in found)}",
            "name one by its path",
        )
    (model,) = found
    if model.is_link:
        raise OperationRefused(
            f"{model.place} on {node} is a link: sparkctl removes no links", f"on {node}: rm {model.place}"
        )
    if not exact and not model.is_ours:
        raise OperationRefused(
            f"sparkctl did not bring {model.place}, and no profile names it",
            f"if you are sure, name it by its path: sparkctl models remove {model.place} --node {node}",
        )
    return model


async def _refuse_used_model(session: NodeSession, model: StoredModel) -> None:
    """Raise `OperationRefused` unless no container on the node uses the model."""
    for container in await session.docker.list_containers():
        if not container.is_alive:
            continue
        name = sanitize_line(container.instance_name)
        try:
            spec = await session.docker.read_run_options(container.id)
        except ContainerNotFound:
            continue
        why = explain_use(model.place, container, spec)
        if why is not None:
            raise OperationRefused(
                f"{name} on {session.node.name} {why} {model.place}",
                f"stop it first: sparkctl down {name} --node {session.node.name}"
                if container.is_managed
                else f"on {session.node.name}: docker stop {name}",
            )


def explain_use(place: str, container: Container, spec: DockerRunSpec) -> str | None:
    """Return how a running container uses a model, None if certainly not. What cannot be told counts as used."""
    mounts = [one for one in spec.mounts if one.source.startswith("/")]
    inside = next((one for one in mounts if f"{one.source.rstrip('/')}/".startswith(place.rstrip("/") + "/")), None)
    if inside is not None:
        return "has a mount of"
    above = [one for one in mounts if place.startswith(one.source.rstrip("/") + "/")]
    if not above:
        return None
    if container.get_label(ContainerLabel.DOWNLOAD) is not None:
        try:
            target = str(json.loads(spec.command[-1])["target"])
        except (LookupError, TypeError, ValueError):
            return "downloads, perhaps,"
        return "downloads" if f"{target}/".startswith(place.rstrip("/") + "/") else None
    words = " ".join((spec.entrypoint or "", *spec.command, *(value for _, value in spec.env)))
    last = PurePosixPath(place).name
    name = last.removeprefix("models--").replace("--", "/", 1) if last.startswith("models--") else last
    if name in words or last in words:
        return "names"
    targets = [one.target.rstrip("/") + "/" for one in above]
    is_named_elsewhere = any(target in words for target in targets) or (last.startswith("models--") and "/" in words)
    return None if is_named_elsewhere else "sees, and may use,"
