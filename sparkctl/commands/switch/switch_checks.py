"""Checks before a switch, while the old instance still serves: images, model files, mounts, port, flags, disk,
rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

from sparkctl.commands.drop_page_cache import format_sudoers_command
from sparkctl.commands.start import connectivity_check, node_fit
from sparkctl.commands.start.connectivity_check import verify_port_access
from sparkctl.commands.start.launch_plans import build_changed_plan
from sparkctl.commands.start.missing_parts import (
    build_missing_image,
    describe_way_to_get,
    find_missing_models,
    find_missing_parts,
)
from sparkctl.commands.start.start_needs import list_chain
from sparkctl.commands.start.start_preflight import (
    PreflightInspection,
    check_mounts,
    decide_start,
    format_pull_hint,
    format_transfer_command,
    refuse_different_images,
    refuse_without_docker,
)
from sparkctl.commands.switch.switch_instance import connect_and_inspect
from sparkctl.commands.switch.switch_planner import IncomingRank, NodeInventory, is_running_need
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_transaction import SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines.base import EngineRank
from sparkctl.errors import DockerError, NodeError, NodeStarved, OperationRefused
from sparkctl.model.container import Container
from sparkctl.model.events import Emit
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import CheckpointFiles, FitOutcome, MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import format_gib
from sparkctl.monitor import switch_journal_io
from sparkctl.monitor.find_fabric_route import find_fabric_route
from sparkctl.monitor.ranks import RankContainer
from sparkctl.node import model_files_decoder
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.profiles.container_labels import parse_port_label
from sparkctl.profiles.fit_evaluation import list_checkpoint_paths
from sparkctl.profiles.launch_planning import RankPlacement, build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import StartWarning, refuse_wrong_flags
from sparkctl.profiles.setting_proof import SettingProof
from sparkctl.transport.node_session import NodeSession

_NODE_SECTIONS = ("identity", "memory", "listen", "docker", "sudo")  # what a start has to know of its node


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReadings:
    """What the checks are made by: each launch with its request and the inspection of its node, those of what is needed
    last, and the warnings about the link between the nodes.
    """

    every: tuple[tuple[SwitchInstance, IncomingRank], ...]
    scenes: tuple[PreflightInspection, ...]
    cautions: tuple[str, ...]


async def read_for_checks(
    transaction: SwitchTransaction, request: SwitchInstance, sites: Sequence[NodeInventory]
) -> CheckReadings:
    """Inspect the nodes for the checks. Raises `OperationRefused` where they do not reach each other."""
    of_needs = {one.profile.name: one for one in list_need_requests(request)}
    needed = [(of_needs[one.plan.profile], one) for site in sites for one in site.needs]
    every = (*((request, site.coming) for site in sites if site.coming is not None), *needed)
    scenes, cautions = await gather_or_cancel(
        gather_or_cancel(*(_inspect_node(transaction, of, one) for of, one in every)),
        _check_connectivity(transaction, request),
    )
    return CheckReadings(every=every, scenes=scenes, cautions=cautions)


async def run_switch_checks(
    transaction: SwitchTransaction,
    request: SwitchInstance,
    sites: Sequence[NodeInventory],
    readings: CheckReadings,
    warnings: Sequence[tuple[str, str | None]],
) -> str:
    """Return what was verified, as sentences; raise the first obstacle; emit the rest, and ``warnings``, as warnings.

    What the SSH user may not read is a warning. With ``keep_going`` so are a missing mount and an incomplete file of
    weights.
    """
    goes = frozenset(container for _, container in transaction.journal.old)
    every, scenes = readings.every, readings.scenes
    coming = [one for _, one in every]
    launches = [site.coming.plan for site in sites if site.coming is not None]
    for (of, one), inspection in zip(every, scenes, strict=True):
        _check_start_decision(transaction, of, one.plan, inspection, goes)
        _refuse_missing_mounts(transaction, of, one.plan, inspection)
        _check_drop_caches_right(transaction, one.plan, inspection)
    await gather_or_cancel(*(verify_port_access(transaction.sessions[one.plan.node], one.plan) for one in coming))
    refuse_different_images(request.words or (request.profile.name,), launches, scenes[: len(launches)])
    for message, hint in warnings:
        transaction.warn(request.nodes[0].name, message, hint)
    files = await gather_or_cancel(*(_check_model_files(transaction, of, one.model_plan) for of, one in every))
    for caution in readings.cautions:
        transaction.warn(None, caution)
    weights = max(
        (sum(size for one in inspection.node_inspection.models for _, size in one.files) for inspection in scenes),
        default=0,
    )
    proofs = [f"the image is there{'' if len(launches) == 1 else ', the same on each'}"]
    most = max(files, default=0)
    subject = "the file of weights is" if most == 1 else f"{most} files of weights are"
    proofs += [f"{subject} complete ({format_gib(weights)})"] if most else []
    return "; ".join((*proofs, "mounts, port and disk are in order"))


async def _inspect_node(
    transaction: SwitchTransaction, request: SwitchInstance, coming: IncomingRank
) -> PreflightInspection:
    session = transaction.sessions[coming.plan.node]
    models = node_fit.list_model_sections(request.profile, coming.model_plan)
    return await node_fit.inspect_for_start(session, coming.plan, *_NODE_SECTIONS, *models)


def _check_start_decision(
    transaction: SwitchTransaction,
    request: SwitchInstance,
    launch: LaunchPlan,
    inspection: PreflightInspection,
    goes: frozenset[str],
) -> None:
    """Make the decision of `up`, with the stopped containers counted as gone."""
    freed = {port for one in inspection.containers if one.id in goes for port in (parse_port_label(one), *one.ports)}
    listening = inspection.node_inspection.listening
    adjusted = replace(inspection.node_inspection, listening=None if listening is None else listening - freed, paths=())
    left = tuple(one for one in inspection.containers if one.id not in goes)
    decision = decide_start(
        launch,
        replace(inspection, node_inspection=adjusted, containers=left),
        replace=False,
        again=request.retry_command,
    )
    lacks = find_missing_parts(request.profile, launch, image=inspection.image, engine=inspection.engine, models=())
    for part in lacks:
        raise OperationRefused(part.sentence, describe_way_to_get(part, launch, request.retry_command))
    for message, hint in decision.warnings:
        transaction.warn(launch.node, message, hint)


def _refuse_missing_mounts(
    transaction: SwitchTransaction, request: SwitchInstance, launch: LaunchPlan, inspection: PreflightInspection
) -> None:
    """Refuse a missing mount source now; the engine would find no model only after the old one is stopped."""
    for caution in check_mounts(launch, inspection.node_inspection):
        if caution.is_missing and not request.keep_going:
            raise OperationRefused(
                caution.message, f"put the files there, or start without them: {request.retry_command} --keep-going"
            )
        transaction.warn(launch.node, caution.message)


def _check_drop_caches_right(
    transaction: SwitchTransaction, launch: LaunchPlan, inspection: PreflightInspection
) -> None:
    if launch.drop_caches and inspection.node_inspection.drop_right not in (None, "allowed"):
        user = inspection.node_inspection.identity.user if inspection.node_inspection.identity else None
        hint = format_sudoers_command(transaction.sessions[launch.node].node, user)
        transaction.warn(launch.node, "the page cache cannot be dropped without a password here", hint)


def _describe_way_to_complete(transaction: SwitchTransaction, request: SwitchInstance, launch: LaunchPlan) -> str:
    profile, other = request.profile, next((name for name in transaction.sessions if name != launch.node), None)
    ways = ["fetch it again there"]
    if profile.model.source is not None:
        ways = [f"fetch it again: {format_pull_hint(launch, request.retry_command)}"]
    if other is not None:
        ways.append("or copy it: " + format_transfer_command(request.words or (profile.name,), other, launch.node))
    return ", ".join(ways)


async def _check_model_files(transaction: SwitchTransaction, request: SwitchInstance, launch: LaunchPlan) -> int:
    """Return how many model files are complete; raises `OperationRefused` for those that are certainly not."""
    where = list_checkpoint_paths(request.profile, launch)
    if not where:
        return 0
    session = transaction.sessions[launch.node]
    try:
        done = await session.run(
            model_files_decoder.build_weights_check_command(where),
            timeout=model_files_decoder.WEIGHTS_CHECK_TIMEOUT_SECONDS,
        )
        found = model_files_decoder.decode_weights_check(done.stdout)
    except (NodeStarved, ValueError, KeyError, TypeError) as silent:
        transaction.warn(launch.node, f"whether the model's files are complete could not be read: {silent}")
        return 0
    unread = [one.place if name == "." else f"{one.place}/{name}" for one in found for name in one.unread]
    if unread:
        transaction.warn(
            launch.node,
            f"cannot tell whether the model's files are complete: this user may not read {_format_first(unread)}; "
            "the container may",
        )
    faults = [f"{one.place}: {fault}" for one in found for fault in one.faults]
    if faults:
        what = f"the model on {launch.node} is incomplete: {_format_first(faults)}"
        if not request.keep_going:
            raise OperationRefused(
                what,
                f"{_describe_way_to_complete(transaction, request, launch)}; or continue anyway: {request.retry_command} --keep-going",
            )
        transaction.warn(launch.node, what)
    return sum(one.files - min(one.files, len(one.unread)) for one in found if not one.faults)


def _format_first(several: Sequence[str]) -> str:
    return several[0] + (f" (and {len(several) - 1} more)" if len(several) > 1 else "")


async def _check_connectivity(transaction: SwitchTransaction, request: SwitchInstance) -> tuple[str, ...]:
    """Check from every rank's node that it reaches the others; return the warnings."""
    sessions = [transaction.sessions[node.name] for node in request.nodes]
    if len(sessions) == 1:
        return ()
    lanes = await connectivity_check.read_lanes(sessions)
    if len(lanes) < len(sessions):
        return ("not every node said what links it has: the link between them is not checked",)
    route = find_fabric_route(lanes, {node.name: node.fabric for node in request.nodes if node.fabric is not None})
    cautions = (*route.cautions, *await connectivity_check.check_fabric(sessions, route))
    return (*cautions, *await connectivity_check.check_rank_logins(request.engine, sessions, route))


def check_flags(
    request: SwitchInstance, flags: Sequence[StartWarning], sites: Sequence[NodeInventory], goes: frozenset[str]
) -> Iterator[tuple[str, str | None]]:
    """Yield each warning of the engine's flag catalogue about the profile, with the command that avoids it.

    ``goes``: the containers that the switch stops. Raises `OperationRefused` for a flag that the image's version does not have.
    """
    proof = _build_proof(request, sites, goes)
    found = [(one, proof.format_remedy(one, request.to_start_request().build_switch_command)) for one in flags]
    if not request.forced:
        remedy = next((remedy for one, remedy in found if one.refused_flag is not None), None)
        refuse_wrong_flags((one for one, _ in found), remedy, "to start it as it is: --force", request.profile.name)
    yield from ((one.message, remedy) for one, remedy in found)


def _build_proof(request: SwitchInstance, sites: Sequence[NodeInventory], goes: frozenset[str]) -> SettingProof:
    coming = [site.coming.fit_changed for site in sites if site.coming is not None]
    return SettingProof(
        request.words or (request.profile.name,),
        ProfileLibrary(),
        lambda profile: [fit(profile, goes) for fit in coming if fit is not None],
    )


def list_ways_to_fit(request: SwitchInstance, sites: Sequence[NodeInventory]) -> tuple[str, ...]:
    """Return the commands of this switch with a setting that fits, where it does not even with all of sparkctl's
    instances on the nodes stopped; only what the check and the memory estimate accept.
    """
    goes = frozenset(
        one.container.id
        for site in sites
        if site.coming is not None
        for one in site.occupants
        if one.container.is_managed
    )
    proof, again = _build_proof(request, sites, goes), request.to_start_request().build_switch_command
    fits = [site.coming.fit(goes) for site in sites if site.coming is not None]
    wanted = [each for fit in fits if fit.is_refused for each in (fit.largest, fit.least) if each is not None]
    proved = (proof.prove_changes(each) for each in wanted)
    return tuple(dict.fromkeys(again(*changes) for changes in proved if changes is not None))


_PLANNED_START_ID = "planned"  # a name for a start that is only planned


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchInspection:
    """The inspection of a node. ``launch``: what would start there, None for nothing; ``alone``: the same as a model
    on one node, whose arguments describe the model.
    """

    node_inspection: NodeInspection
    containers: tuple[Container, ...]
    launch: LaunchPlan | None
    alone: LaunchPlan | None
    loading_ids: frozenset[str]
    has_image: bool
    needs: tuple[tuple[SwitchInstance, LaunchPlan, bool], ...] = ()  # what starts first, whether its image is there


async def inspect_switch_nodes(
    ctx: CommandContext,
    request: SwitchInstance,
    sessions: Sequence[NodeSession],
    emit: Emit,
    inspections: Mapping[NodeName, Awaitable[NodeInspection]] = MappingProxyType({}),
) -> tuple[NodeInventory, ...]:
    """Inspect every node in parallel; one that does not answer is marked silent. ``inspections``: those that have begun."""
    answers = await asyncio.gather(
        *(
            _inspect_switch_node(
                ctx, request, session, emit, inspections.get(session.node.name) or connect_and_inspect(session)
            )
            for session in sessions
        ),
        return_exceptions=True,
    )
    needed = {node.name for one in list_need_requests(request) for node in one.nodes}
    found = []
    for session, answer in zip(sessions, answers, strict=True):
        if isinstance(answer, NodeError | DockerError):
            name = session.node.name
            found.append(NodeInventory(node=name, silent=answer.message, error=answer, is_needed=name in needed))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(_build_node_state(ctx, request, session, answer))
    has = next((site.node for site in found if site.coming is not None and site.coming.has_image), None)
    if has is None:
        return tuple(found)
    words = request.words or (request.profile.name,)
    return tuple(
        site
        if site.coming is None
        else replace(site, coming=replace(site.coming, image_hint=format_transfer_command(words, has, site.node)))
        for site in found
    )


async def _inspect_switch_node(
    ctx: CommandContext,
    request: SwitchInstance,
    session: NodeSession,
    emit: Emit,
    inspecting: Awaitable[NodeInspection],
) -> SwitchInspection:
    inspection = await inspecting
    refuse_without_docker(session.node.name, inspection)
    launch, alone = (_build_planned_launch(ctx, request, session, alone=one) for one in (False, True))
    home, operator, environ = session.user_home, ctx.operator, request.environ
    needed = [
        (of, build_launch_plan(of.profile, session.node, home=home, operator=operator, environ=environ))
        for of in list_need_requests(request)
        if session.node.name == of.nodes[0].name
    ]
    own = [(request, alone)] if alone is not None else []
    if not (own or needed):
        return SwitchInspection(
            node_inspection=inspection,
            containers=await session.docker.list_containers(),
            launch=None,
            alone=None,
            loading_ids=frozenset(),
            has_image=True,
        )
    emit_warning = emit if request.dry_run else None
    switch_journal_io.refuse_if_journal_found(session.node.name, ctx, inspection.journal, emit_warning)
    images, containers, models = await gather_or_cancel(
        gather_or_cancel(*(session.docker.inspect_image(one.image) for _, one in (*own, *needed))),
        session.docker.list_containers(),
        _read_model_files(session, [*own, *needed]),
    )
    inspection = replace(inspection, models=models)
    loading_ids = await node_fit.find_loading_containers(session, inspection, containers)
    return SwitchInspection(
        node_inspection=inspection,
        containers=containers,
        launch=launch,
        alone=alone,
        loading_ids=loading_ids,
        has_image=not own or images[0] is not None,
        needs=tuple((of, one, image is not None) for (of, one), image in zip(needed, images[len(own) :], strict=True)),
    )


async def _read_model_files(
    session: NodeSession, launches: Sequence[tuple[SwitchInstance, LaunchPlan]]
) -> tuple[CheckpointFiles, ...]:
    found = (node_fit.list_model_sections(of.profile, launch) for of, launch in launches)
    wanted = dict.fromkeys(section for sections in found for section in sections)
    return (await session.read_node(*wanted)).models if wanted else ()


def list_need_requests(request: SwitchInstance) -> tuple[SwitchInstance, ...]:
    """Return what the new instance needs, each on its node, as requests. Raises `InvalidInput` for an unknown node."""
    *needs, _ = list_chain(request.to_start_request())
    return tuple(replace(request, profile=one.profile, nodes=one.nodes, words=one.words) for one in needs)


def _build_planned_launch(
    ctx: CommandContext, request: SwitchInstance, session: NodeSession, *, alone: bool
) -> LaunchPlan | None:
    """Return what would start on this node, as far as known before the link between the nodes is inspected."""
    names = tuple(node.name for node in request.nodes)
    if session.node.name not in names:
        return None
    index, count = names.index(session.node.name), len(names)
    place = (
        None
        if count == 1 or alone
        else RankPlacement(
            rank=EngineRank(index, tuple(node.host for node in request.nodes)), nodes=names, run=_PLANNED_START_ID
        )
    )
    return build_launch_plan(
        request.profile, session.node, home=session.user_home, operator=ctx.operator, environ=request.environ,
        place=place,
    )  # fmt: skip


def _build_node_state(
    ctx: CommandContext, request: SwitchInstance, session: NodeSession, seen: SwitchInspection
) -> NodeInventory:
    alive = [one for one in seen.containers if one.is_alive]
    memory = seen.node_inspection.memory
    needs: list[IncomingRank] = []
    for one in seen.needs:
        needs.append(_build_need(ctx, session, seen, one, tuple(needs)))
    return NodeInventory(
        node=session.node.name,
        occupants=tuple(
            RankContainer(
                session.node.name, one, seen.node_inspection.get_container_memory(one.id), parse_port_label(one)
            )
            for one in alive
        ),
        total=None if memory is None else memory.total,
        available=None if memory is None else max(0, memory.available),
        listening=seen.node_inspection.listening,
        ended=tuple((one.name, one.is_managed) for one in seen.containers if not one.is_alive),
        coming=None if seen.launch is None else _build_new_launch(ctx, request, session, seen, seen.launch, needs),
        needs=tuple(needs),
        is_needed=bool(needs) and seen.launch is None,
    )


def _build_need(
    ctx: CommandContext,
    session: NodeSession,
    seen: SwitchInspection,
    need: tuple[SwitchInstance, LaunchPlan, bool],
    earlier: Sequence[IncomingRank],
) -> IncomingRank:
    """Return what starts on a node because it is needed, after ``earlier`` ones. One that runs already takes no more
    memory and is always there.
    """
    of, launch, has_image = need
    if any(is_running_need(one, launch) for one in seen.containers):
        nothing = MemoryFit(node=session.node.name, profile=launch.profile, answer=FitOutcome.FITS)
        return IncomingRank(plan=launch, has_image=True, fit=lambda _: nothing)
    return replace(
        _build_new_launch(ctx, of, session, seen, launch, earlier), has_image=has_image, alone=None, fit_changed=None
    )


def _build_new_launch(
    ctx: CommandContext,
    request: SwitchInstance,
    session: NodeSession,
    seen: SwitchInspection,
    launch: LaunchPlan,
    needs: Sequence[IncomingRank],
) -> IncomingRank:
    measured = node_fit.MeasuredNode(
        ctx=ctx,
        node_inspection=seen.node_inspection,
        containers=seen.containers,
        loading_ids=seen.loading_ids,
        node_count=len(request.nodes),
        build_plan=partial(build_changed_plan, ctx, request.to_start_request(), session),
    )

    @cache
    def calculate_fit_without(gone: frozenset[str]) -> MemoryFit:
        before = sum(need.fit(gone).needed_bytes or 0 for need in needs)
        return replace(measured, reserved=before).evaluate(request.profile, gone)

    profile, again = request.profile, request.retry_command
    plan = launch if seen.alone is None or launch is not seen.launch else seen.alone
    lacking = next(
        (one for one in find_missing_models(profile, plan, seen.node_inspection.models) if one.is_required), None
    )
    return IncomingRank(
        plan=launch,
        has_image=seen.has_image,
        image_hint=describe_way_to_get(build_missing_image(profile, launch, ""), launch, again),
        model_hint="" if lacking is None else describe_way_to_get(lacking, launch, again),
        fit=calculate_fit_without,
        alone=seen.alone,
        fit_changed=measured.evaluate,
    )
