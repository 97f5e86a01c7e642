"""``pull``: get a profile's image and model onto a node: the image through Docker there, the model by the Hub's client.

On several nodes the model is downloaded once, on the first, and copied to the others over the cable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from sparkctl.commands.event_stream import forward_events, open_session, stream_events
from sparkctl.commands.pull.image_pull import pull_image
from sparkctl.commands.pull.model_download import ModelDownload, download_model, stop_download
from sparkctl.commands.request import Request, list_flags
from sparkctl.commands.start.launch_plans import build_rank_launches
from sparkctl.commands.start.missing_parts import build_missing_event, read_missing_parts
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.commands.transfer.transfer_profile import TransferProfile, transfer_profile
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import load_engine
from sparkctl.errors import ExitCode, OperationRefused, SparkctlError
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, PhaseChanged, TransferProgressed
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProfile(Request):
    """What to get and where.

    Attributes:
        stop: end the downloads of this model that go on there, and get nothing.
        words: the profile and its overrides as the operator typed them.
    """

    profile: Profile
    nodes: tuple[Node, ...]
    image: bool = True
    model: bool = True
    dry_run: bool = False
    stop: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def format_as_command(self) -> tuple[str, ...]:
        """Return the words of its command line."""
        profile, *settings = self.words or (self.profile.name,)
        flags = {
            "--image-only": not self.model, "--model-only": not self.image, "--dry-run": self.dry_run, "--stop": self.stop,
        }  # fmt: skip
        return ("pull", profile, *self.format_node_options(), *list_flags(flags), *settings)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Get it."""
        return pull_profile(ctx, self)

    def to_start_request(self) -> StartInstance:
        """Return the start that this prepares: its launch plans say what is needed."""
        return StartInstance(
            profile=self.profile, engine=load_engine(self.profile.engine), nodes=self.nodes, environ=self.environ,
            words=self.words,
        )  # fmt: skip


def pull_profile(ctx: CommandContext, request: PullProfile) -> AsyncGenerator[Event, None]:
    """Yield what is missing (`PartsMissing`), the progress, then the end: 0 when all is there, 6 if refused, 3 after a
    failure; the same command continues.
    """

    async def run_pull(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        async with AsyncExitStack() as stack:
            sessions = [await open_session(stack, ctx, node, emit) for node in request.nodes]
            plans = await _build_plans(ctx, request, sessions)
            puller = ProfilePuller(ctx, request, sessions, plans, emit)
            if request.stop:
                message = await puller.stop_downloads()
            else:
                message = await puller.pull()
        return CommandEnded(
            ts=ctx.clock.unix_time(), outcome=Outcome.PLANNED if request.dry_run else Outcome.DONE,
            exit_code=int(ExitCode.DONE), seconds=ctx.clock.monotonic() - began,
            node=request.nodes[0].name if len(request.nodes) == 1 else None, instance=request.profile.name, message=message,
        )  # fmt: skip

    stays = "interrupted; what has arrived stays. A model's download goes on there until it is whole: sparkctl pull --stop ends it"
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
        emit: Emit,
    ) -> None:
        self._ctx, self._request, self._emit = ctx, request, emit
        self._sessions, self._plans = sessions, plans
        self._began = ctx.clock.monotonic()

    async def pull(self) -> str:
        """Get everything that is missing; return what was done, as sentences. Raises `SparkctlError`."""
        missing = await self._read_missing()
        words = self._request.words or (self._request.profile.name,)
        for node, parts in missing.items():
            self._emit(replace(build_missing_event(self._ctx, words, node, parts), commands=()))  # it is being done
        wanted = [part for parts in missing.values() for part in parts]
        if not wanted:
            return f"{self._request.profile.name} has everything on {self._join_nodes()}: nothing to get"
        for part in wanted:  # refuse before the first byte
            if part.kind is not PartKind.IMAGE:
                ModelDownload.from_part(self._request.profile, part)
        if self._request.dry_run:
            return "\n".join(f"would get {part.origin_words} onto {part.node}" for part in wanted)
        done = await gather_or_cancel(*(self._pull_image(session, missing) for session in self._sessions))
        said = [sentence for sentence in done if sentence is not None]
        for kind in (PartKind.MODEL, PartKind.DRAFT_MODEL):
            said += await self._get_model(kind, missing)
        left = [part for parts in (await self._read_missing()).values() for part in parts]
        if left:
            raise OperationRefused(f"after the download {left[0].sentence}", "look at that path on the node")
        return "\n".join(said)

    async def _read_missing(self) -> dict[NodeName, tuple[MissingPart, ...]]:
        found = await gather_or_cancel(
            *(
                read_missing_parts(session, self._request.profile, plan)
                for session, plan in zip(self._sessions, self._plans, strict=True)
            )
        )
        return {
            session.node.name: tuple(part for part in parts if self._is_wanted(part))
            for session, parts in zip(self._sessions, found, strict=True)
        }

    def _is_wanted(self, part: MissingPart) -> bool:
        return self._request.image if part.kind is PartKind.IMAGE else self._request.model

    async def _pull_image(
        self, session: NodeSession, missing: Mapping[NodeName, tuple[MissingPart, ...]]
    ) -> str | None:
        part = next((one for one in missing[session.node.name] if one.kind is PartKind.IMAGE), None)
        if part is None:
            return None
        engine = await session.docker.read_info()
        return await pull_image(session, part.name, engine.machine, self._report_progress(session.node.name, "image"))

    async def _get_model(self, kind: PartKind, missing: Mapping[NodeName, tuple[MissingPart, ...]]) -> list[str]:
        lacking = [
            (session, part) for session in self._sessions for part in missing[session.node.name] if part.kind is kind
        ]
        if not lacking:
            return []
        having = [session for session in self._sessions if session not in [one for one, _ in lacking]]
        said = []
        source = having[0] if having else lacking[0][0]
        if not having:
            session, part = lacking.pop(0)
            wanted = ModelDownload.from_part(self._request.profile, part)
            progress = self._report_progress(session.node.name, "model")
            said.append(await download_model(session, wanted, self._request.environ, progress))
        for session, _ in lacking:
            said.append(await self._copy_model(source.node, session.node))
        return said

    async def _copy_model(self, source: Node, target: Node) -> str:
        transfer = TransferProfile(
            profile=self._request.profile, source=source, targets=(target,), image=False, environ=self._request.environ,
            words=self._request.words,
        )  # fmt: skip
        ended = await forward_events(transfer_profile(self._ctx, transfer), self._emit)
        if ended.exit_code:
            raise SparkctlError(ended.message or f"the copy to {target.name} failed", ended.hint)
        return ended.message or f"{self._request.profile.name} is on {target.name}"

    def _report_progress(self, node: NodeName, step: str) -> TransferReporter:
        """Return the reporter of one part; it also tells the phase, with each report."""

        def emit(event: Event) -> None:
            self._emit(event)
            if isinstance(event, TransferProgressed):
                share = event.done / event.total if event.total else None
                self._emit(
                    PhaseChanged(
                        ts=event.ts, node=node, instance=self._request.profile.name, phase=Phase.PULLING,
                        step=Step(step, fraction=share), elapsed=self._ctx.clock.monotonic() - self._began,
                    )
                )  # fmt: skip

        origin = NodeName("registry" if step == "image" else "hub")
        return TransferReporter(self._ctx.clock, emit, origin, node, self._request.profile.name)

    async def stop_downloads(self) -> str:
        """End the downloads that go on; return what was done, as sentences."""
        said = []
        for session, parts in zip(self._sessions, (await self._read_missing()).values(), strict=True):
            for part in parts:
                if part.kind is PartKind.IMAGE or part.source is None:
                    continue
                wanted = ModelDownload.from_part(self._request.profile, part)
                if await stop_download(session, wanted):
                    said.append(
                        f"the download of {wanted.source.repository} on {session.node.name} was stopped; what has arrived stays"
                    )
        return "\n".join(said) or f"no download of {self._request.profile.name} is running on {self._join_nodes()}"

    def _join_nodes(self) -> str:
        return " and ".join(session.node.name for session in self._sessions)
