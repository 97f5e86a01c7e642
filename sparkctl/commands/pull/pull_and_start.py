"""``up``: start; where image or model is missing get it first, with ``--pull`` or if the operator says yes."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sparkctl.commands.event_stream import build_end_from_error, run_in_turn
from sparkctl.commands.start.missing_parts import estimate_pull_times, read_missing_from_hub
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_needs import list_chain, start_with_needs
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.context import CommandContext
from sparkctl.errors import ExitCode, OperationRefused, SparkctlError
from sparkctl.model.events import CommandEnded, Event, MemoryFitEvaluated, Outcome, PartsMissing, WarningEmitted
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.questions import NonInteractivePrompter, PullQuestion

if TYPE_CHECKING:
    from sparkctl.transport.hub_client import HubClient


@dataclass(slots=True)
class _SourceAnswers:
    """What the Hub and the registries answered: the question, the check of the memory and the pull ask each once."""

    environ: Mapping[str, str]
    images: list[MissingPart] = field(default_factory=list)
    _hub: HubClient | None = None

    @property
    def hub(self) -> HubClient:
        """The one client of the Hub."""
        if self._hub is None:
            from sparkctl.transport.hub_client import HubClient  # imported late: most starts ask no Hub

            self._hub = HubClient(self.environ)
        return self._hub


async def start_or_pull(ctx: CommandContext, request: StartInstance) -> AsyncGenerator[Event, None]:
    """Yield the events of a start. If it is refused because something is missing, ask whether to get that first."""
    sources = _SourceAnswers(request.environ)
    missing: list[tuple[str, MissingPart]] = []  # with the profile of each
    withheld: list[PartsMissing] = []  # the question that follows names them with their sizes, and so does the pull
    if not request.pull:
        async with aclosing(_start(ctx, request)) as events:
            async for event in events:
                if isinstance(event, PartsMissing):
                    missing += ((event.instance, part) for part in event.parts)
                    withheld.append(event)
                    continue
                is_refused = isinstance(event, CommandEnded) and event.exit_code == ExitCode.REFUSED
                is_asked = is_refused and _can_ask(ctx, request, missing)
                for one in () if is_asked else withheld:
                    yield one
                withheld.clear()
                if is_asked and isinstance(event, CommandEnded):
                    try:
                        if await ctx.interrupt.run_interruptible(
                            _confirm_pull(ctx, request, missing, sources),
                            f"interrupted before {request.profile.name} was started",
                        ):
                            request = replace(request, pull=True)
                            continue
                    except SparkctlError as error:
                        event = build_end_from_error(error, ctx, event.seconds, event.instance, event.node)
                yield event
        if not request.pull:
            return
    async with aclosing(_pull_and_start(ctx, request, sources)) as events:
        async for event in events:
            yield event


def _start(ctx: CommandContext, request: StartInstance) -> AsyncGenerator[Event, None]:
    """Start it, after what it needs."""
    if not request.profile.needs or request.alone:
        return start_instance(ctx, request)
    return start_with_needs(ctx, request)


def _can_ask(ctx: CommandContext, request: StartInstance, missing: Sequence[tuple[str, MissingPart]]) -> bool:
    """Tell whether somebody can be asked to get it; ``missing``: each part with its profile."""
    if request.dry_run or not missing or not all(part.can_come for _, part in missing):
        return False
    return type(ctx.prompter) is not NonInteractivePrompter  # nobody would read the sizes


async def _confirm_pull(
    ctx: CommandContext, request: StartInstance, missing: Sequence[tuple[str, MissingPart]], sources: _SourceAnswers
) -> bool:
    sized = list[MissingPart]()
    chain = {one.profile.name: one.profile for one in list_chain(request)}
    for name, part in missing:
        parts, _, _ = await read_missing_from_hub(sources.hub, chain.get(name, request.profile), (part,), ())
        sized += parts
    parts = await _measure_images(ctx, request, sized)
    sources.images += parts
    sizes = [part.size for part in parts if part.size is not None]
    times = [part.seconds for part in parts if part.seconds is not None]
    question = PullQuestion(
        profile=request.profile.name,
        parts=tuple(part.sentence for part in parts),
        size=sum(sizes) if sizes else None,
        is_whole=len(sizes) == len(parts),
        seconds=sum(times) if len(times) == len(parts) else None,
        is_estimate=any(part.is_estimate for part in parts),
    )
    return await ctx.prompter.ask_yes_no(question)


async def _measure_images(
    ctx: CommandContext, request: StartInstance, parts: Sequence[MissingPart]
) -> tuple[MissingPart, ...]:
    """Return the parts, images with their size where their registry tells it, and how long each takes."""
    from sparkctl.commands.start.image_registry import measure_images  # imported late: most starts ask no registry

    found = list[MissingPart]()
    nodes = {one.name: one for each in list_chain(request) for one in each.nodes}
    for part in parts:
        measured: tuple[MissingPart, ...] = (part,)
        if part.kind is PartKind.IMAGE and (node := nodes.get(part.node)) is not None:
            with suppress(SparkctlError):  # then it is not known; the pull says why
                async with ctx.create_session(node) as session:
                    await session.link.connect()
                    measured, _ = await measure_images(session, (part,), await session.docker.read_info())
        found += measured
    return estimate_pull_times(ctx.history, found)


async def _find_obstacle(ctx: CommandContext, chain: Sequence[StartInstance]) -> list[Event]:
    """Return the end of a start that is refused for what no pull changes, a busy port for one, after its warnings and the
    calculation of its memory; nothing where nothing is.
    """
    for one in chain:
        looked = _expect_pulled(start_instance(ctx, replace(one, dry_run=True)))
        *seen, ended = [event async for event in looked]
        if isinstance(ended, CommandEnded) and ended.exit_code:
            return [*(event for event in seen if isinstance(event, MemoryFitEvaluated | WarningEmitted)), ended]
    return []


async def _refuse_what_does_not_fit(
    ctx: CommandContext, request: StartInstance, sources: _SourceAnswers
) -> list[Event]:
    """Return the refusal of a start that lacks something and that memory refuses once it is there, as `plan` calculates it."""
    from sparkctl.commands.start.check_fit import CheckFit, check_fit  # imported late: most starts need none

    check = CheckFit(
        profile=request.profile, nodes=request.nodes, environ=request.environ, words=request.words, known=request.known,
        hub=sources.hub, names_nodes=request.names_nodes, measured=sources.images,
    )  # fmt: skip
    events = [event async for event in check_fit(ctx, check)]
    missing = [event for event in events if isinstance(event, PartsMissing)]
    sources.images = [part for event in missing for part in event.parts]
    refused = next((event for event in events if isinstance(event, MemoryFitEvaluated) and event.fit.is_refused), None)
    if refused is None or not missing:
        return []  # what else is wrong, the pull and the start say themselves
    first = [command for event in missing for command in event.commands]
    ways = [*first, *refused.commands, f"start it anyway: {replace(request, pull=True, forced=True).retry_command}"]
    ended = build_end_from_error(
        OperationRefused(refused.fit.summary_sentence, "\n".join(ways)), ctx, 0.0, request.profile.name, refused.node
    )
    return [refused, ended]


async def _pull_and_start(
    ctx: CommandContext, request: StartInstance, sources: _SourceAnswers
) -> AsyncGenerator[Event, None]:
    """Yield the events of both, and one end: that of the pull where it failed, else that of the start."""
    from sparkctl.commands.pull.pull_profile import PullProfile  # imported late: most starts need none

    try:
        chain = list_chain(request)
    except SparkctlError as error:
        yield build_end_from_error(error, ctx, 0.0, request.profile.name)
        return
    refused = await _find_obstacle(ctx, chain)
    if not refused and not request.forced:
        refused = await _refuse_what_does_not_fit(ctx, request, sources)
    if refused:
        for event in refused:
            yield event
        return
    pulls = (
        PullProfile(
            profile=one.profile, nodes=one.nodes, environ=one.environ, words=one.words, dry_run=one.dry_run,
            names_nodes=one.names_nodes, alone=True, hub=sources.hub, measured=sources.images,
        ).run(ctx)
        for one in chain
    )  # fmt: skip
    start = _start(ctx, replace(request, pull=False))
    start = _expect_pulled(start) if request.dry_run else start
    async with aclosing(run_in_turn(itertools.chain(pulls, (start,)))) as events:
        async for event in events:
            yield event


async def _expect_pulled(start: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield the events of a start's dry run; what the pull before it would get does not refuse it."""
    lacks_something = False
    async with aclosing(start) as events:
        async for event in events:
            if isinstance(event, PartsMissing):
                lacks_something = True
                continue
            if isinstance(event, CommandEnded) and lacks_something and event.exit_code == ExitCode.REFUSED:
                words = "what is missing would be got first; the rest is checked once it is there"
                event = replace(event, outcome=Outcome.PLANNED, exit_code=int(ExitCode.DONE), message=words, hint=None)
            yield event
