"""``plan``: check whether a profile fits on a node, with the same memory estimate as `up`. Changes nothing.

Beside it, the profile that ``plan hf:ORG/NAME`` assumes for a model that no profile has, and a profile for a first start.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from sparkctl.commands.event_stream import build_end, stream_events
from sparkctl.commands.request import Request
from sparkctl.commands.start import node_fit
from sparkctl.commands.start.image_registry import measure_images
from sparkctl.commands.start.launch_plans import RankLaunch, build_changed_plan, build_rank_launches
from sparkctl.commands.start.missing_parts import (
    build_missing_event,
    describe_full_disk,
    describe_missing_mounts,
    estimate_pull_times,
    find_missing_parts,
    mark_copied_images,
    measure_free_space,
    read_missing_from_hub,
    reuse_image_sizes,
)
from sparkctl.commands.start.start_preflight import find_busy_port, list_mount_sections, refuse_wrong_node_count
from sparkctl.commands.start.start_request import StartInstance, list_need_nodes
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import engine_names, load_engine
from sparkctl.errors import InvalidInput, NodeError, PortInUse, SparkctlError
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.events import CommandEnded, Emit, Event, MemoryFitEvaluated, Outcome, PartsMissing, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.missing_part import HubSource, MissingPart, PartKind, parse_model_source
from sparkctl.model.node import Node
from sparkctl.model.profile import Profile
from sparkctl.profiles.profile_library import ProfileLibrary, list_startable_profiles, suggest_profile_name
from sparkctl.profiles.profile_lint import list_start_warnings, refuse_wrong_flags
from sparkctl.profiles.setting_proof import CommandWithChanges, SettingProof
from sparkctl.profiles.validation import merge_profile_layer, parse_setting, validate_profile
from sparkctl.profiles.yaml_reader import parse_yaml
from sparkctl.transport.hub_client import HubClient
from sparkctl.transport.node_session import NodeSession, SharedSession, isolate_node_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFit(Request):
    """A request to check whether a profile fits.

    ``nodes``: for a profile for several Sparks, exactly its nodes in the order of its ranks, checked together; for a
    profile for one Spark, the candidates, each checked alone. ``words``: the profile and its overrides as the operator
    typed them. ``is_proposal``: no file has this profile, it was assumed for a model of the Hub. ``hub``: who is asked for
    models that are not on the node; None: nobody. ``known``: every node where something that it needs may run.
    ``measured``: images whose registry was asked before.
    """

    profile: Profile
    nodes: Sequence[Node]
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    is_proposal: bool = False
    hub: HubClient | None = None
    known: Sequence[Node] = ()
    measured: Sequence[MissingPart] = ()

    def format_as_command(self) -> tuple[str, ...]:
        profile, *settings = self.words or (self.profile.name,)
        return ("plan", profile, *self.format_node_options(), *settings)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return check_fit(ctx, self)

    def to_start_request(self, node: Node) -> StartInstance:
        """Return the `up` request for this check: on this node, or on all nodes of a profile for several."""
        nodes = tuple(self.nodes) if self.profile.nodes > 1 else (node,)
        return StartInstance(
            profile=self.profile,
            nodes=nodes,
            words=self.words,
            environ=self.environ,
            known=self.known,
        )


def check_fit(ctx: CommandContext, request: CheckFit) -> AsyncGenerator[Event, None]:
    """Yield a `MemoryFitEvaluated` for each node, then the end: exit 0 where `up` would start it, 6 where it would
    refuse, 3 where no node could be asked.
    """

    async def run_check(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        if request.profile.nodes > 1:
            checked = await _check_nodes_jointly(ctx, request, emit)
        else:
            checked = await _check_nodes_separately(ctx, request, emit)
        _report_flag_warnings(ctx, request, checked, emit)
        good = [one for one in checked if one.can_start or (request.is_proposal and one.could_start)]
        wanted = max((one.fit.sparks for one in checked), default=1)
        outcome = Outcome.PLANNED if len(good) >= wanted else Outcome.REFUSED
        node = request.nodes[0].name if len(request.nodes) == 1 else None
        return build_end(ctx, began, outcome, node=node, instance=request.profile.name)

    return stream_events(ctx, run_check, request.profile.name, None, on_interrupt="interrupted; nothing was changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """The answer for one node, and what it rests on. ``missing``: what of image and model is not there. ``busy``: the
    error of its port, where another has it. ``needs``: the answers for what starts before it.
    """

    fit: MemoryFit
    measured: node_fit.MeasuredNode
    missing: tuple[MissingPart, ...]
    busy: PortInUse | None = None
    needs: tuple[tuple[CheckFit, CheckedNode], ...] = ()

    @property
    def lacks_something(self) -> bool:
        """Tell whether something is missing that the start requires."""
        return any(part.is_required for part in self.missing)

    @property
    def could_start(self) -> bool:
        """Tell whether it fits once it is there, and its models can come: their source tells their size, the disk holds them."""
        models = [part for part in self.missing if part.kind is not PartKind.IMAGE]
        return not self.fit.is_refused and all(part.size is not None and not part.is_too_large for part in models)

    @property
    def can_start(self) -> bool:
        """Tell whether `up` would start it, with what it needs."""
        own = not self.fit.is_refused and not self.lacks_something and self.busy is None
        return own and all(need.can_start for _, need in self.needs)


async def _check_nodes_separately(ctx: CommandContext, request: CheckFit, emit: Emit) -> list[CheckedNode]:
    """Check each node alone; a silent node gives a warning, and an error only where no node fits."""
    answers = await gather_or_cancel(*(_check_node_alone(ctx, request, node) for node in request.nodes))
    for node_count, one in zip(request.nodes, answers, strict=True):  # in the order of the config, not of the answers
        _report_fit(ctx, request, node_count, one, emit)
    checked = [one for one in answers if isinstance(one, CheckedNode)]
    silent = [one for one in answers if isinstance(one, NodeError)]
    if silent and not any(one.can_start for one in checked):
        raise silent[0]
    return checked


async def _check_node_alone(ctx: CommandContext, request: CheckFit, node: Node) -> CheckedNode | NodeError:
    try:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(ctx.create_session(node))
            needs, reserved = await _check_needs(ctx, request, session, node)
            for other in list_need_nodes(request.to_start_request(node)):
                if other.name != node.name:
                    elsewhere = await stack.enter_async_context(ctx.create_session(other))
                    needs += (await _check_needs(ctx, request, elsewhere, node))[0]
            whole = await _check_launch(ctx, request, session, reserved, is_need=False)
            assert whole is not None
            return replace(whole, needs=tuple(needs))
    except NodeError as error:
        return error


async def _check_needs(
    ctx: CommandContext, request: CheckFit, session: NodeSession, head: Node
) -> tuple[list[tuple[CheckFit, CheckedNode]], int]:
    """Check what starts first on a connected node because it is needed; return the answers, and their bytes together."""
    node, needs, reserved = session.node, list[tuple[CheckFit, CheckedNode]](), 0
    for need in ProfileLibrary().load_needs(request.profile):
        if (need.node or head.name) != node.name:
            continue
        of = replace(request, profile=need.profile, nodes=(node,), words=(need.profile.name,))
        checked = await _check_launch(ctx, of, session, reserved)
        if checked is not None:
            needs.append((of, checked))
            reserved += checked.fit.needed_bytes or 0
    return needs, reserved


async def _check_launch(
    ctx: CommandContext, request: CheckFit, session: NodeSession, reserved: int, *, is_need: bool = True
) -> CheckedNode | None:
    """Check one profile on a connected node; None for a need that runs there already."""
    launches, _ = await build_rank_launches(ctx, request.to_start_request(session.node), [session])
    launch = launches[0]
    if is_need:
        here = await session.docker.list_containers()
        wanted = {(ContainerLabel.INSTANCE, launch.plan.instance), (ContainerLabel.HASH, launch.plan.profile_hash)}
        if any(one.is_alive and all(one.get_label(name) == value for name, value in wanted) for one in here):
            return None
    return await _check_node(ctx, request, session, launch, reserved)


async def _check_nodes_jointly(ctx: CommandContext, request: CheckFit, emit: Emit) -> list[CheckedNode]:
    """Check the nodes together: all of them must answer and reach each other, as for `up`."""
    start = request.to_start_request(request.nodes[0])
    refuse_wrong_node_count(request.profile, start.nodes)
    list_need_nodes(start)  # refuses a node that nobody knows
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(ctx.create_session(node)) for node in start.nodes]
        launches, route = await build_rank_launches(ctx, start, sessions)

        async def check_rank(session: NodeSession, launch: RankLaunch) -> CheckedNode:
            needs, reserved = await _check_needs(ctx, request, session, start.head_node)
            return replace(await _check_node(ctx, request, session, launch, reserved), needs=tuple(needs))

        answers = await gather_or_cancel(
            *(check_rank(session, one) for session, one in zip(sessions, launches, strict=True))
        )
    missing = mark_copied_images({one.fit.node: one.missing for one in answers})
    checked = [replace(one, missing=missing[one.fit.node]) for one in answers]
    fits = [one.fit for one in checked]
    for node, one in zip(start.nodes, checked, strict=True):
        worse = any(_is_harder_to_fix(other, one.fit) for other in fits)
        _report_fit(ctx, request, node, one, emit, on_nodes=checked, is_waited_for=worse)
    for caution in () if route is None else route.cautions:
        emit(WarningEmitted(ctx.clock.unix_time(), None, caution))
    return checked


def _report_flag_warnings(ctx: CommandContext, request: CheckFit, checked: Sequence[CheckedNode], emit: Emit) -> None:
    """Warn about the profile's flags as `up` would; raise `OperationRefused` for a flag that the image's version lacks."""
    took = ctx.history.find_longest_phases(request.profile, request.nodes[0].name)
    found = list_start_warnings(request.profile, ProfileLibrary(), took)
    refuse_wrong_flags(found, None, "to start it as it is: up --force", request.profile.name)
    if not checked:
        return
    places = checked if request.profile.nodes > 1 else checked[:1]
    proof = _build_proof(request, places)
    node = next(one for one in request.nodes if one.name == places[0].fit.node)
    again = request.to_start_request(node).build_retry_command
    for one in found:
        remedy = None if request.is_proposal else proof.format_remedy(one, again)
        emit(WarningEmitted(ctx.clock.unix_time(), None, one.message, remedy))


def _build_proof(request: CheckFit, places: Sequence[CheckedNode]) -> SettingProof:
    return SettingProof(
        request.words or (request.profile.name,),
        ProfileLibrary(),
        lambda profile: [place.measured.evaluate_in_place(profile) for place in places],
    )


def _is_harder_to_fix(one: MemoryFit, than: MemoryFit) -> bool:
    """Tell whether one node needs more changes than the other: fixing only the other would not let the model start."""
    return one.is_refused and (not than.is_refused or (than.answer is FitOutcome.IF_STOPPED is not one.answer))


def _report_fit(
    ctx: CommandContext,
    request: CheckFit,
    node: Node,
    one: CheckedNode | NodeError,
    emit: Emit,
    *,
    on_nodes: Sequence[CheckedNode] = (),
    is_waited_for: bool = False,
) -> None:
    """``on_nodes``: all nodes of the start, where there are several. ``is_waited_for``: the model fits here, but not on
    another Spark of the same start.
    """
    if isinstance(one, CheckedNode):
        for of, need in one.needs:
            _report_fit(ctx, of, of.nodes[0], need, emit, is_waited_for=True)
        places = on_nodes or (one,)
        proof = _build_proof(request, places)
        busy = next((each.busy for each in places if each.busy is not None), None)
        stops = [name for each in places for name in each.fit.stops]
        again = node_fit.avoid_busy_port(busy, stops, request.to_start_request(node).build_retry_command)
        is_running = one.fit.standing is not None and any(each.is_replaced for each in one.fit.standing.holders)
        has_wrong_flag = any(warning.refused_flag for warning in list_start_warnings(request.profile))
        waits_for_pull = request.is_proposal or (one.lacks_something and not one.fit.is_refused)
        ways = (
            ()
            if is_waited_for or waits_for_pull or has_wrong_flag
            else (shlex.join(["sparkctl", "restart", request.profile.name, "--node", node.name]),)
            if is_running and not one.fit.is_refused and len(request.words) < 2  # `up` says that it runs
            else node_fit.suggest_switch_or_commands(one.fit, again, proof)
        )
        emit(MemoryFitEvaluated(ctx.clock.unix_time(), node.name, one.fit, ways))
        if one.busy is not None:
            hint = None if one.fit.is_refused else one.busy.hint  # else the commands change the port, too
            emit(WarningEmitted(ctx.clock.unix_time(), node.name, one.busy.message, hint))
        if one.missing:
            words, together = request.words or (request.profile.name,), [node.name]
            if on_nodes:  # one command for all: what they lack is downloaded once
                together = [each.name for each in request.nodes]
            missing = build_missing_event(ctx, words, node.name, one.missing, together)
            is_last = not on_nodes or one is [each for each in on_nodes if each.missing][-1]
            can_help = not any(_is_hopeless(each, again, proof) for each in places)
            emit(missing if is_last and can_help and not request.is_proposal else replace(missing, commands=()))
    elif len(request.nodes) > 1:
        emit(WarningEmitted(ctx.clock.unix_time(), node.name, one.message, one.hint))


def _is_hopeless(one: CheckedNode, again: CommandWithChanges, proof: SettingProof) -> bool:
    """Tell whether no download lets it start: it fits with no change that is known, or the disk cannot hold it."""
    if one.fit.answer is FitOutcome.SHORT and not node_fit.suggest_commands(one.fit, again, proof):
        return True
    return any(part.is_too_large for part in one.missing if part.kind is not PartKind.IMAGE)


async def _check_node(
    ctx: CommandContext, request: CheckFit, session: NodeSession, launch: RankLaunch, reserved: int = 0
) -> CheckedNode:
    """Estimate the fit on one node. Raises `NodeError`, `DockerError`."""
    plan = launch.alone
    with isolate_node_failures(session.node):
        containers, image, engine, inspection = await gather_or_cancel(
            session.docker.list_containers(),
            session.docker.inspect_image(plan.image),
            session.docker.read_info(),
            session.read_node(
                "memory",
                "processes",
                "gpu",
                "listen",
                *node_fit.list_model_sections(request.profile, plan),
                *list_mount_sections(plan),
            ),
        )
        loading_ids = await node_fit.find_loading_containers(session, inspection, containers)
    measured = node_fit.MeasuredNode(
        ctx=ctx,
        node_inspection=inspection,
        containers=containers,
        loading_ids=loading_ids,
        node_count=len(request.nodes) if request.profile.nodes > 1 else 1,
        build_plan=partial(build_changed_plan, ctx, request.to_start_request(session.node), session),
        reserved=reserved,
    )
    in_place = node_fit.find_containers_in_place(plan, containers)
    is_running = bool(in_place)  # then image and model are there
    missing = find_missing_parts(request.profile, plan, image=image, engine=engine, models=inspection.models)
    if is_running:
        missing = ()
    cautions = describe_missing_mounts(request.profile, plan, inspection)
    if request.hub is not None:
        missing, models, untold = await read_missing_from_hub(request.hub, request.profile, missing, inspection.models)
        measured = replace(measured, node_inspection=replace(inspection, models=models))
        missing, unknown = await measure_images(session, reuse_image_sizes(missing, request.measured), engine)
        cautions += (*untold, *unknown)
    missing = estimate_pull_times(ctx.history, await measure_free_space(session, missing, engine))
    cautions += tuple(words for one in missing if (words := describe_full_disk(one)) is not None)
    fit = measured.evaluate_in_place(request.profile)
    ends = next((one for one in containers if one.id in in_place), None)
    again = request.to_start_request(session.node).retry_command
    # the start on a free port is the command that follows, so it is no hint
    busy = find_busy_port(launch.plan, inspection, containers, ends, again=again, propose=lambda _: None)
    fit = replace(fit, cautions=(*fit.cautions, *cautions))
    return CheckedNode(fit=fit, measured=measured, missing=missing, busy=busy)


_SEARCH_SECONDS = 20.0  # seconds; what was found by then is the answer


async def suggest_profile(ctx: CommandContext, nodes: Sequence[Node], environ: Mapping[str, str]) -> str | None:
    """Return the command that starts it, None where no profile fits. A node that does not answer is passed over."""
    pullable: str | None = None
    async with AsyncExitStack() as stack:
        sessions: dict[str, NodeSession] = {}
        for node in nodes:
            with suppress(SparkctlError):
                session = await stack.enter_async_context(ctx.create_session(node))
                await session.link.connect()
                sessions[node.name] = session
        there = [node for node in nodes if node.name in sessions]
        shared = replace(ctx, lend=lambda node: SharedSession(sessions[node.name]))
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEARCH_SECONDS):
                for offer in list_startable_profiles(ctx.history.get_recent_profiles(3)):
                    profile = offer.profile
                    if profile is None or profile.nodes > 1 or not there:
                        continue
                    fits: list[str] = []
                    missing: dict[str, PartsMissing] = {}
                    async for event in check_fit(
                        shared, CheckFit(profile=profile, nodes=there, environ=environ, words=(offer.name,))
                    ):
                        if isinstance(event, MemoryFitEvaluated) and not event.fit.is_refused:
                            fits.append(event.node)
                        elif isinstance(event, PartsMissing):
                            missing[event.node] = event
                    for name in fits:
                        if name not in missing:
                            return f"sparkctl up {offer.name} --node {name}"
                        if missing[name].commands and pullable is None:
                            pullable = f"sparkctl up {offer.name} --node {name} --pull"
    return pullable


def propose_profile(text: str, overrides: Sequence[str]) -> Profile:
    """Return a profile for ``hf:ORG/NAME`` by the engine that reads GGUF files, if the name says so, or else the other one.

    ``overrides`` are ``--set`` texts. Raises `InvalidInput`, `InvalidFile`.
    """
    try:
        source = parse_model_source(text)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    assert isinstance(source, HubSource)  # by its `hf:`
    title = source.repository.partition("/")[2]
    engines = [load_engine(name) for name in engine_names()]
    engine = next(one for one in engines if one.proposed_like and one.reads_gguf == ("gguf" in title.casefold()))
    like = ProfileLibrary(user=shipped_profiles_dir()).load_profile(engine.proposed_like or "")
    name = suggest_profile_name(source.repository)
    tree = parse_yaml(
        f"schema: 1\nname: {name}\nengine: {like.engine}\nimage: {like.image}\nport: {like.port}\n"
        f"model: {{path: /models/{title}, source: '{source}'}}\nmounts: ['~/models:/models']\n{engine.proposed_settings}\n".encode(),
        "plan",
    )
    for one in overrides:
        tree = merge_profile_layer(tree, parse_setting(one))
    return validate_profile(tree, Path(f"{name}.yaml"), shipped=False)
