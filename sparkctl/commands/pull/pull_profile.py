"""``pull``: get a profile's image and model onto a node: the image through Docker there, the model by the Hub's client.

On several nodes the model is downloaded once, on the first, and copied to the others over the cable.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import PurePosixPath

from sparkctl.commands.event_stream import (
    build_end,
    build_end_from_error,
    build_error_from_end,
    deduplicate_warnings,
    forward_events,
    open_session,
    run_in_turn,
    stream_events,
)
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.pull.image_pull import (
    ImageBuild,
    build_image,
    pull_image,
    resolve_build,
)
from sparkctl.commands.pull.model_download import (
    ModelDownload,
    download_model,
    refuse_full_disk,
    refuse_missing_directory,
    stop_download,
)
from sparkctl.commands.request import Request, list_flags
from sparkctl.commands.start.image_registry import get_registry, measure_images, read_own_login
from sparkctl.commands.start.launch_plans import build_rank_launches
from sparkctl.commands.start.missing_parts import (
    build_missing_event,
    build_missing_image,
    describe_full_disk,
    estimate_pull_times,
    estimate_size,
    find_missing_models,
    mark_copied_images,
    measure_free_space,
    read_missing_parts,
    reuse_image_sizes,
)
from sparkctl.commands.start.node_fit import find_loading_containers
from sparkctl.commands.start.start_preflight import format_making_hint, format_transfer_command
from sparkctl.commands.start.start_request import StartInstance, find_need_node
from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import OperationRefused, SparkctlError
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.model.events import CommandEnded, Emit, Event, LogArrived, Outcome, PhaseChanged, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import MODEL_KINDS, DirectorySource, HubSource, MissingPart, PartKind
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import redact_words
from sparkctl.profiles.fit_evaluation import list_checkpoint_paths
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.docker.docker_client import preload_docker_sdk
from sparkctl.transport.docker.docker_responses import DockerInfo
from sparkctl.transport.hub_client import HubClient, HubUnreachable
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProfile(Request):
    """What to get and where.

    Attributes:
        own_login: the image with the login that the operator has on this computer; it is stored nowhere.
        stop: end the downloads of this model that go on there, and get nothing.
        words: the profile and its overrides as the operator typed them.
        from_directory: of each node; the model is copied from there.
        from_node: a Spark that has the model; it comes over the cable.
        forced: download although an engine loads its weights there.
        known: every node of the config: something that the profile needs may run there, and a model may be there.
        alone: without what it needs.
        hub: the client of the Hub that was asked before; None: a new one.
        measured: images whose registry was asked before.
    """

    profile: Profile
    nodes: tuple[Node, ...]
    image: bool = True
    model: bool = True
    dry_run: bool = False
    stop: bool = False
    own_login: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    from_directory: str | None = None
    from_node: Node | None = None
    forced: bool = False
    known: tuple[Node, ...] = ()
    alone: bool = False
    hub: HubClient | None = None
    measured: Sequence[MissingPart] = ()

    def format_as_command(self) -> tuple[str, ...]:
        profile, *settings = self.words or (self.profile.name,)
        flags = {
            "--image-only": not self.model,
            "--model-only": not self.image,
            "--dry-run": self.dry_run,
            "--stop": self.stop,
            "--login": self.own_login,
            "--force": self.forced,
        }
        place = self.from_directory or (None if self.from_node is None else str(self.from_node.name))
        origin = () if place is None else ("--from-cache", place)
        return ("pull", profile, *self.format_node_options(), *origin, *list_flags(flags), *settings)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Get it, after what it needs."""
        if self.alone or not self.profile.needs:
            return pull_profile(ctx, self)
        return _pull_with_needs(ctx, self)

    def list_chain(self) -> Iterator[PullProfile]:
        """Yield a request for each profile that it needs, and its own: a need without a node goes where the head goes.

        Raises `InvalidInput` for a need on a node that nobody knows.
        """
        heads = self.nodes if self.profile.nodes == 1 else self.nodes[:1]
        for need in ProfileLibrary().load_needs(self.profile):
            nodes = (
                heads if need.node is None else (find_need_node(need.node, self.profile, (*self.nodes, *self.known)),)
            )
            name = need.profile.name
            yield replace(self, profile=need.profile, nodes=nodes, words=(name,), from_directory=None, from_node=None)
        yield self

    def to_start_request(self) -> StartInstance:
        """Return the start that this prepares: its launch plans say what is needed."""
        return StartInstance(
            profile=self.profile,
            nodes=self.nodes,
            environ=self.environ,
            words=self.words,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProfiles(Request):
    """Several pulls onto the same nodes, one after the other; one that fails does not keep the others back."""

    pulls: tuple[PullProfile, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.pulls[0].nodes

    def format_as_command(self) -> tuple[str, ...]:
        verb, _, *options = self.pulls[0].format_as_command()
        return (verb, *((one.words or (one.profile.name,))[0] for one in self.pulls), *options)

    async def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Get them; one end: with the exit code of the first that failed, and the message of each."""
        ends: list[CommandEnded] = []
        for one in self.pulls:
            async with aclosing(one.run(ctx)) as events:
                async for event in events:
                    if isinstance(event, CommandEnded):
                        ends.append(event)
                    else:
                        yield event
            if ends[-1].outcome is Outcome.INTERRUPTED:
                break
        bad = [end for end in ends if end.exit_code]
        sentences = [f"{end.instance}: {end.message}" for end in bad] or [end.message or "" for end in ends]
        if bad and (good := [str(end.instance) for end in ends if not end.exit_code]):
            sentences.append(f"done: {', '.join(good)}")
        yield replace(
            (bad or ends)[0],
            instance=None,
            message=("; " if bad else "\n").join(sentences),
            ts=ends[-1].ts,
            seconds=sum(end.seconds for end in ends),
        )


async def _pull_with_needs(ctx: CommandContext, request: PullProfile) -> AsyncGenerator[Event, None]:
    """Get what a profile needs, then its own; one end: of the first that failed, else of the last."""
    try:
        chain = tuple(request.list_chain())
    except SparkctlError as error:
        yield build_end_from_error(error, ctx, 0.0, request.profile.name)
        return
    async with aclosing(run_in_turn(pull_profile(ctx, one) for one in chain)) as events:
        async for event in events:
            yield event


def pull_profile(ctx: CommandContext, request: PullProfile) -> AsyncGenerator[Event, None]:
    """Yield what is missing (`PartsMissing`), the progress, then the end: 0 when all is there, 6 if refused, 3 after a
    failure; repeat the command to continue. What was done is in the history.
    """

    def stream_pull(own: CommandContext) -> AsyncGenerator[Event, None]:
        return _stream_pull(own, request)

    if request.dry_run:
        return stream_pull(ctx)
    command = shlex.join(("sparkctl", *redact_words(request.format_as_command())))
    subject = OperationSubject(kind=OperationKind.PULL, nodes=request.nodes, profile=request.profile, command=command)
    return record_operation(ctx, subject, stream_pull)


def _stream_pull(ctx: CommandContext, request: PullProfile) -> AsyncGenerator[Event, None]:
    async def run_pull(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        async with AsyncExitStack() as stack:
            resources = stack.enter_context(ExitStack())
            sessions = [await open_session(stack, ctx, node, emit) for node in request.nodes]
            if not request.stop:
                preload_docker_sdk()
            plans = await _build_plans(ctx, request, sessions)
            build = None
            if request.profile.build is not None and request.image and not request.stop:
                build = await resolve_build(sessions[0], request.profile, resources)
            puller = ProfilePuller(ctx, request, sessions, plans, build, emit)
            if request.stop:
                message = await puller.stop_downloads()
            else:
                message = await puller.pull()
        return build_end(
            ctx,
            began,
            Outcome.PLANNED if request.dry_run else Outcome.DONE,
            node=request.nodes[0].name if len(request.nodes) == 1 else None,
            instance=request.profile.name,
            message=message,
        )

    stays = "interrupted; Docker keeps an image when it is whole"
    if request.stop:
        stays = "interrupted; some downloads may go on"
    elif request.model:
        stopping = replace(
            request, stop=True, image=True, own_login=False, forced=False, from_directory=None, from_node=None
        )
        words = shlex.join(("sparkctl", *redact_words(stopping.format_as_command())))
        stays += f", and what has arrived of a model is kept. A model's download that has begun continues there; to stop it: {words}"
    return stream_events(ctx, run_pull, request.profile.name, None, on_interrupt=stays)


async def _build_plans(
    ctx: CommandContext, request: PullProfile, sessions: Sequence[NodeSession]
) -> tuple[LaunchPlan, ...]:
    """Return the launch plan on each node; each alone, because a pull needs no cable between them."""
    start = request.to_start_request()
    found = await gather_or_cancel(*(build_rank_launches(ctx, start, [session]) for session in sessions))
    return tuple(launches[0].alone for launches, _ in found)


class ProfilePuller:
    """Gets what is missing onto the nodes of a profile."""

    def __init__(
        self,
        ctx: CommandContext,
        request: PullProfile,
        sessions: Sequence[NodeSession],
        plans: Sequence[LaunchPlan],
        build: ImageBuild | None,
        emit: Emit,
    ) -> None:
        self._ctx, self._request, self._emit = ctx, request, deduplicate_warnings(emit)
        self._sessions, self._plans, self._build = sessions, plans, build
        self._began = ctx.clock.monotonic()
        self._engines: dict[NodeName, DockerInfo] = {}
        self._own_login: dict[str, str] | None = None

    async def pull(self) -> str:
        """Get everything that is missing; return what was done, as sentences. Raises `SparkctlError`."""
        missing, unavailable = await self._measure(await self._read_missing())
        words = self._request.words or (self._request.profile.name,)
        for node, parts in missing.items():
            self._emit(replace(build_missing_event(self._ctx, words, node, parts), commands=()))  # it is being done
        wanted = [part for parts in missing.values() for part in parts]
        if not wanted:
            return f"{self._request.profile.name} has everything on {self._join_nodes()}: nothing to get"
        source = self._request.from_node
        for part in wanted:  # refuse before the first byte
            if part.kind is not PartKind.IMAGE and source is not None and part.node == source.name:
                raise OperationRefused(
                    f"{part.node} does not have {part.name} itself, so it cannot come from there",
                    "name another Spark in --from-cache, or leave it out",
                )
            if part.kind is PartKind.IMAGE and not part.can_come:
                raise OperationRefused(part.sentence, self._describe_way_to_make(part, wanted))
            if part.kind is not PartKind.IMAGE and source is None:
                ours = [session.node.name for session in self._sessions]
                other = next((node.name for node in self._request.known if node.name not in ours), None)
                copy = "" if other is None else format_transfer_command(words, other, part.node)
                ModelDownload.from_part(
                    self._request.profile,
                    part,
                    self._request.from_directory,
                    f"; or, where {other} has it: {copy}" if copy else "",
                )
        if unavailable is not None:
            raise unavailable
        await self._refuse_what_cannot_come([part for part in wanted if part.kind is not PartKind.IMAGE])
        for part in wanted:
            if (part.kind is PartKind.IMAGE or part.is_estimate) and (full := describe_full_disk(part)) is not None:
                self._emit(WarningEmitted(self._ctx.clock.unix_time(), part.node, full, None))
        if self._request.dry_run:
            return "\n".join(f"would get {part.origin_words} onto {part.node}" for part in wanted)
        if not self._request.forced:
            await self._refuse_while_loading({part.node for part in wanted if part.kind is not PartKind.IMAGE})
        sentences = await self._get_image(missing)
        sentences += await self._get_models(missing)
        left = [part for parts in (await self._read_missing()).values() for part in parts]
        if left:
            raise OperationRefused(f"after the download {left[0].sentence}", "look at that path on the node")
        return "\n".join(sentences)

    async def _read_missing(self) -> dict[NodeName, tuple[MissingPart, ...]]:
        found = await gather_or_cancel(
            *(self._read_node(session, plan) for session, plan in zip(self._sessions, self._plans, strict=True))
        )
        missing = {}
        for session, (parts, engine) in zip(self._sessions, found, strict=True):
            self._engines[session.node.name] = engine
            missing[session.node.name] = tuple(
                part for part in parts if (self._request.image if part.kind is PartKind.IMAGE else self._request.model)
            )
        return mark_copied_images(missing) if self._copies_image else missing

    @property
    def _copies_image(self) -> bool:
        """Tell whether an image that one of the nodes has goes from there to the others: the ranks of one start need the
        same, and of some no registry has it.
        """
        profile = self._request.profile
        return profile.nodes > 1 or profile.build is not None or profile.image_made_by is not None

    async def _read_node(self, session: NodeSession, plan: LaunchPlan) -> tuple[tuple[MissingPart, ...], DockerInfo]:
        """Return what a node lacks; an image that `pull` built of something that has changed since is lacking, too."""
        parts, engine, others = await read_missing_parts(session, self._request.profile, plan)
        for words in others:
            self._emit(WarningEmitted(self._ctx.clock.unix_time(), session.node.name, words, None))
        if self._build is None or any(part.kind is PartKind.IMAGE for part in parts):
            return parts, engine
        image = await session.docker.inspect_image(plan.image)
        if image is None or image.built_from in (None, self._build.origin):  # None: somebody else made it
            return parts, engine
        part = build_missing_image(self._request.profile, plan, "was built from an older state of it")
        return (part, *parts), engine

    def _describe_way_to_make(self, part: MissingPart, wanted: Sequence[MissingPart]) -> str:
        models = [one for one in wanted if one.kind is not PartKind.IMAGE]
        if not self._request.model or not models or any(one.source is None for one in models):
            return format_making_hint(part.made_by or "")  # there is no model, or nobody publishes it either
        words = redact_words(list(replace(self._request, image=False).format_as_command()))
        return f"{format_making_hint(part.made_by or '')}; the model alone: {shlex.join(['sparkctl', *words])}"

    async def _refuse_what_cannot_come(self, models: Sequence[MissingPart]) -> None:
        """Raise `SparkctlError` where a model's source certainly does not give it, or the disk cannot hold it: the image
        before it takes minutes.
        """
        if models and self._request.from_node is not None:
            await self._refuse_lacking_source(self._request.from_node, {part.kind for part in models})
            return
        for session in self._sessions:
            parts = [
                part
                for part in models
                if part.node == session.node.name and part.size is not None and not part.is_estimate
            ]
            placed = await measure_free_space(session, parts, self._engines[session.node.name])
            for part in placed:
                wanted = ModelDownload.from_part(self._request.profile, part, self._request.from_directory)
                await refuse_full_disk(session, wanted, (part.size or 0) + part.beside, part.free)

    async def _measure(
        self, missing: Mapping[NodeName, tuple[MissingPart, ...]]
    ) -> tuple[dict[NodeName, tuple[MissingPart, ...]], SparkctlError | None]:
        """Return the parts with their sizes as far as their sources tell them, and why one of them certainly cannot come."""
        hub = self._request.hub or HubClient(self._request.environ)

        async def measure_on_node(session: NodeSession) -> tuple[tuple[MissingPart, ...], SparkctlError | None]:
            sized, unavailable = list[MissingPart](), None
            for part in reuse_image_sizes(missing[session.node.name], self._request.measured):
                try:
                    part = estimate_size(self._request.profile, await self._measure_part(session, part, hub))
                except SparkctlError as error:
                    unavailable = unavailable or error
                sized.append(part)
            placed = await measure_free_space(session, sized, self._engines[session.node.name])
            return estimate_pull_times(self._ctx.history, placed), unavailable

        found = await gather_or_cancel(*(measure_on_node(session) for session in self._sessions))
        errors = [error for _, error in found if error is not None]
        by_node = {session.node.name: parts for session, (parts, _) in zip(self._sessions, found, strict=True)}
        return by_node, errors[0] if errors else None

    async def _measure_part(self, session: NodeSession, part: MissingPart, hub: HubClient) -> MissingPart:
        if part.kind is PartKind.IMAGE:
            if part.source is None or part.is_built or part.copied_from is not None:  # no registry is asked for it
                return part
            if self._request.own_login:
                self._own_login = await read_own_login(self._request.environ, get_registry(part.name))
            # what the registry refuses now it refuses to Docker, which says why
            (part,), _ = await measure_images(session, (part,), self._engines[part.node], self._own_login)
            return part
        if self._request.from_node is not None or (part.source is None and self._request.from_directory is None):
            return part
        wanted = ModelDownload.from_part(self._request.profile, part, self._request.from_directory)
        if isinstance(wanted.source, DirectorySource):
            await refuse_missing_directory(session, wanted.source)
        elif isinstance(wanted.source, HubSource):
            with suppress(HubUnreachable):  # by this computer: the node may reach it
                measured = await hub.measure_model(wanted.source, wanted.include, wanted.exclude)
                return replace(part, size=measured.size)
        return part

    async def _refuse_lacking_source(self, node: Node, kinds: set[PartKind]) -> None:
        """Raise `OperationRefused` where another Spark certainly does not have the model that shall come from there."""
        async with self._ctx.create_session(node) as session:
            ((launch,), _) = await build_rank_launches(
                self._ctx, replace(self._request.to_start_request(), nodes=(node,)), [session]
            )
            places = list_checkpoint_paths(self._request.profile, launch.alone)
            inspection = await session.read_node("identity", *(f"model={place}" for place in places))
        for part in find_missing_models(self._request.profile, launch.alone, inspection.models):
            if part.kind in kinds:
                raise OperationRefused(
                    f"{part.state_words} on {node.name}, so it cannot come from there",
                    "name another Spark in --from-cache, or leave it out",
                )

    async def _get_image(self, missing: Mapping[NodeName, tuple[MissingPart, ...]]) -> list[str]:
        lacking = [
            session
            for session in self._sessions
            if any(part.kind is PartKind.IMAGE for part in missing[session.node.name])
        ]
        having = [session for session in self._sessions if session not in lacking]
        if not lacking or (self._build is None and not (having and self._copies_image)):
            done = await gather_or_cancel(*(self._pull_image(session, missing) for session in self._sessions))
            return [sentence for sentence in done if sentence is not None]
        source, targets = (having[0], lacking) if having else (lacking[0], lacking[1:])
        sentences = []
        if not having and self._build is not None:
            progress = self._report_progress(source.node.name, "build")
            log = partial(self._report_build, source.node.name)
            sentences.append(await build_image(source, self._build, progress, log))
        for session in targets:  # one build: every rank needs the same image
            sentences.append(await self._copy_parts(source.node, session.node, (PartKind.IMAGE,)))
        return sentences

    def _report_build(self, node: NodeName, number: int, line: str, step: Step | None) -> None:
        """Report a line of a build's log, and the step that it begins."""
        if step is not None:
            self._report_step(node, step)
        row = LogLine(when="", text=line, number=number)
        self._emit(
            LogArrived(ts=self._ctx.clock.unix_time(), node=node, instance=self._request.profile.name, lines=(row,))
        )

    async def _pull_image(
        self, session: NodeSession, missing: Mapping[NodeName, tuple[MissingPart, ...]]
    ) -> str | None:
        part = next((one for one in missing[session.node.name] if one.kind is PartKind.IMAGE), None)
        if part is None:
            return None
        machine, began = self._engines[session.node.name].machine, self._ctx.clock.monotonic()
        progress = self._report_progress(session.node.name, "image")
        sentence, digest = await pull_image(session, part.name, machine, progress, self._own_login, part.size)
        self._record_arrival(part, progress.received, self._ctx.clock.monotonic() - began, digest=digest)
        return sentence

    def _record_arrival(
        self, part: MissingPart, received: int, seconds: float, *, digest: str | None = None, has_joined: bool = False
    ) -> None:
        self._ctx.record_node_result(
            NodeResult(
                node=part.node,
                instance=part.name,
                image_digest=digest,
                received=received,
                seconds=seconds,
                has_joined=has_joined or None,
            )
        )

    async def _refuse_while_loading(self, names: set[NodeName]) -> None:
        """Raise `OperationRefused` where an engine loads its weights: a download would take its disk and memory."""
        for session in self._sessions:
            if session.node.name not in names:
                continue
            inspection, containers = await gather_or_cancel(
                session.read_node("memory", "processes", "gpu"), session.docker.list_containers()
            )
            loading = await find_loading_containers(session, inspection, containers)
            for one in containers:
                if one.id in loading:
                    raise OperationRefused(
                        f"{one.get_label(ContainerLabel.INSTANCE)} loads its weights on {session.node.name}: a download would take its "
                        "disk and its memory",
                        "wait until it is ready; or download anyway with --force",
                    )

    async def _get_models(self, missing: Mapping[NodeName, tuple[MissingPart, ...]]) -> list[str]:
        """Download on one node what none has, the model and its draft; then copy onto each only what it lacks."""
        sentences, copies = [], dict[tuple[Node, Node], list[PartKind]]()
        for kind in MODEL_KINDS:
            lacking = [
                (session, part)
                for session in self._sessions
                for part in missing[session.node.name]
                if part.kind is kind
            ]
            if not lacking:
                continue
            having = [session for session in self._sessions if session not in [one for one, _ in lacking]]
            source = having[0].node if having else lacking[0][0].node
            if self._request.from_node is not None:
                source = self._request.from_node
            elif not having:
                session, part = lacking.pop(0)
                wanted = ModelDownload.from_part(self._request.profile, part, self._request.from_directory)
                wanted = replace(wanted, is_forced=self._request.forced)
                progress, began = self._report_progress(session.node.name, "model"), self._ctx.clock.monotonic()
                sentence, had_begun = await download_model(session, wanted, self._request.environ, progress)
                self._record_arrival(part, progress.received, self._ctx.clock.monotonic() - began, has_joined=had_begun)
                sentences.append(sentence)
            for session, _ in lacking:
                copies.setdefault((source, session.node), []).append(kind)
        for (source, target), kinds in copies.items():
            sentences.append(await self._copy_parts(source, target, kinds))
        return sentences

    async def _copy_parts(self, source: Node, target: Node, kinds: Sequence[PartKind]) -> str:
        # imported late, for two nodes
        from sparkctl.commands.transfer.transfer_profile import TransferProfile, transfer_profile

        transfer = TransferProfile(
            profile=self._request.profile, source=source, targets=(target,), image=PartKind.IMAGE in kinds,
            model=PartKind.IMAGE not in kinds, kinds=kinds, environ=self._request.environ, words=self._request.words,
        )  # fmt: skip
        ended = await forward_events(transfer_profile(self._ctx, transfer), self._emit)
        if ended.exit_code:
            raise build_error_from_end(ended)
        return ended.message or f"{self._request.profile.name} is on {target.name}"

    def _report_progress(self, node: NodeName, step: str) -> TransferReporter:
        """Say that a part begins; return the reporter of its progress."""
        self._report_step(node, Step(step))
        origin = NodeName({"image": "registry", "build": "here"}.get(step, "hub"))
        return TransferReporter(self._ctx.clock, self._emit, origin, node, self._request.profile.name)

    def _report_step(self, node: NodeName, step: Step) -> None:
        self._emit(
            PhaseChanged(
                ts=self._ctx.clock.unix_time(),
                node=node,
                instance=self._request.profile.name,
                phase=Phase.PULLING,
                step=step,
                elapsed=self._ctx.clock.monotonic() - self._began,
            )
        )

    async def stop_downloads(self) -> str:
        """End the downloads that go on; return what was done, as sentences."""
        sentences = []
        for session, parts in zip(self._sessions, (await self._read_missing()).values(), strict=True):
            for part in parts:
                if part.kind is PartKind.IMAGE:
                    continue
                # where it goes tells which download it is; what it gets, only the one who began it knows
                wanted = ModelDownload.from_part(self._request.profile, part, str(PurePosixPath(part.name).parent))
                if await stop_download(session, wanted):
                    self._ctx.record_node_result(NodeResult(node=part.node, instance=part.name))
                    sentences.append(
                        f"the download into {wanted.target} on {session.node.name} was stopped; what has arrived is kept"
                    )
        return "\n".join(sentences) or f"no download of {self._request.profile.name} is running on {self._join_nodes()}"

    def _join_nodes(self) -> str:
        return " and ".join(session.node.name for session in self._sessions)
