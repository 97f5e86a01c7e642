"""The rollback of a switch: remove the new containers, start the old ones again and check that they serve."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sparkctl.commands.drop_page_cache import try_drop_node_caches
from sparkctl.commands.guard_session import stop_watching_containers
from sparkctl.commands.start.launch_plans import rebuild_launch_plan
from sparkctl.commands.start.rank_watch import InstanceWatchResult, RankWatch, measure_clock_offsets, watch_ranks
from sparkctl.commands.stop.stop_containers import StoppedContainer, resolve_stop_grace, stop_instance_container
from sparkctl.commands.switch.forward_steps import list_old_containers, original_name, save_pending_stops
from sparkctl.commands.switch.switch_transaction import OwnershipLost, SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.engines import FALLBACK_ENGINE, find_engine, load_engine
from sparkctl.errors import ContainerNotFound, DockerError, DockerUnavailable, OperationRefused, SparkctlError
from sparkctl.history.model import OperationKind
from sparkctl.history.operation_recorder import OperationRecorder
from sparkctl.model.container import Container, shorten_id
from sparkctl.model.events import Outcome
from sparkctl.model.launch_plan import PROVED_PROBES, ContainerLabel, GuardRule, PhaseTimeouts
from sparkctl.model.node import NodeName
from sparkctl.model.profile import Profile
from sparkctl.model.switch_plan import SwitchStep, distinguish_names
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration
from sparkctl.model.verdict import Verdict
from sparkctl.monitor import engine_probe
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_proof
from sparkctl.monitor.ranks import RankContainer, group_by_instance
from sparkctl.monitor.switch_journal_io import list_start_commands
from sparkctl.profiles.container_labels import find_container_api_key, parse_needs_label, parse_rank_label
from sparkctl.profiles.launch_planning import build_guard_rule
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.node_session import NodeSession

_PHASE_TIMEOUTS = PhaseTimeouts()
_GUARD_LIMIT_SECONDS = _PHASE_TIMEOUTS.starting + _PHASE_TIMEOUTS.loading + _PHASE_TIMEOUTS.warming

NodeContainer = tuple[NodeName, Container]


class RollbackFailed(SparkctlError):
    """The old instance does not serve again. ``verdict``: about the ``instance`` whose log was watched, None without
    one.
    """

    def __init__(
        self, message: str, hint: str | None = None, verdict: Verdict | None = None, instance: str | None = None
    ) -> None:
        super().__init__(message, hint)
        self.verdict, self.instance = verdict, instance


async def find_rollback_obstacle(transaction: SwitchTransaction) -> RollbackFailed | None:
    """Return why not everything can be started again: a container was removed by somebody, or its node did not answer
    during the stop. None where everything can.
    """
    try:
        old = [
            await _inspect_old_container(transaction, node, container) for node, container in transaction.journal.old
        ]
    except RollbackFailed as lost:
        return lost
    for one in group_by_instance(RankContainer(node, container) for node, container in old):
        if one.missing:
            where = f" on {' and '.join(map(sanitize_line, one.elsewhere))}" if one.elsewhere else ""
            return RollbackFailed(
                f"{one.name} cannot be started again: its rank{where} was not seen running when the model was stopped, and half a "
                "model answers no requests"
            )
    return None


async def list_new_containers(transaction: SwitchTransaction) -> list[NodeContainer]:
    """Return the containers that the switch started: those of that profile, and after it those that were started for it
    and nothing else needs, without the old ones and those that ran before.
    """
    journal = transaction.journal
    old, its = {container for _, container in journal.old}, (journal.instance, journal.profile_hash)
    nodes = tuple(dict.fromkeys((*journal.nodes, *journal.need_nodes)))
    found = await gather_or_cancel(*(transaction.sessions[node].docker.list_containers() for node in nodes))
    everything = [(node, one) for node, here in zip(nodes, found, strict=True) for one in here]
    rest = [(node, one) for node, one in everything if one.id not in old and one.id not in journal.ran_before]
    own = [
        (node, one)
        for node, one in rest
        if node in journal.nodes and (one.get_label(ContainerLabel.INSTANCE), one.get_label(ContainerLabel.HASH)) == its
    ]
    started = [each for each in rest if each[1].get_label(ContainerLabel.STARTED_FOR) == journal.instance]
    started = [each for each in started if each not in own]
    coming_back = {(node, one.instance_name) for node, one in everything if one.id in old}
    while True:
        users = [each for each in everything if each not in own and each not in started]
        users = [(node, one) for node, one in users if one.is_alive or one.id in old]
        wanted = {(at, name) for node, one in users for name, where in parse_needs_label(one) for at in (node, where)}
        stays = [(node, one) for node, one in started if (node, one.instance_name) in wanted - coming_back]
        if not stays:
            return [*own, *started]
        started = [each for each in started if each not in stays]


async def remove_container(transaction: SwitchTransaction, node: NodeName, one: Container) -> StoppedContainer:
    """Stop a container and remove it; its log is saved."""
    await transaction.reacquire_if_lost(node)
    await stop_watching_containers(transaction.sessions[node], transaction.step_context, transaction.emit, [one.id])
    return await stop_instance_container(
        transaction.sessions[node], transaction.step_context, transaction.emit, one, resolve_stop_grace(one, None)
    )


async def remove_new_containers(transaction: SwitchTransaction) -> str | None:
    """Stop and remove the new containers, their logs saved; return the names of those that stayed."""
    logs, kept = [], []
    for node, one in await list_new_containers(transaction):
        stopped = await remove_container(transaction, node, one)
        logs += [stopped.log] if stopped.log else []
        kept += [f"{sanitize_line(stopped.kept_name)} on {node}"] if stopped.kept_name is not None else []
    left = f"{' and '.join(kept)} stayed: the log could not be saved completely" if kept else None
    for proof in (left or f"nothing of {transaction.journal.instance} is left", *(f"log: {path}" for path in logs)):
        transaction.report_step(SwitchStep.UNDOING, proof)
    return left


async def remove_partial_start(transaction: SwitchTransaction) -> None:
    """Remove the ranks of the new instance where the others are missing: a sparkctl that was killed created only some
    of them, and half a model is never ready.
    """
    found = [
        (node, one)
        for node, one in await list_new_containers(transaction)
        if one.is_alive and one.get_label(ContainerLabel.INSTANCE) == transaction.journal.instance
    ]
    there = {node for node, _ in found}
    if not there or there == set(transaction.journal.nodes):
        return
    for node, one in found:
        await remove_container(transaction, node, one)
        transaction.warn(node, f"the rank of {transaction.journal.instance} here ran without the others: removed")


async def restart_old_containers(transaction: SwitchTransaction) -> str:
    """Start the old containers again in their order, and watch each model as `up` does, until it is ready and gave a
    token; one that gave none before the switch is not waited for.

    Returns a sentence about the result. Raises `RollbackFailed` where one does not serve again.
    """
    began = transaction.ctx.clock.monotonic()
    old = [await _inspect_old_container(transaction, node, container) for node, container in transaction.journal.old]
    nodes = dict.fromkeys(node for node, _ in old)
    undropped = {node for node in nodes if not await _drop_node_cache(transaction, node, old)}
    rows, ranks = _begin_history_rows(transaction, old), list[RankWatch]()
    running = frozenset(container.id for _, container in old if container.is_alive)
    try:
        for node, container in old:
            ranks.append(
                await _create_rank_watch(transaction, node, container, began, drop_was_reported=node in undropped)
            )
            await _restart_container(transaction, container, ranks[-1])
        needy = {container.id for _, container in old if parse_needs_label(container)}
        models = _group_by_model(ranks)
        for later in (False, True):  # what needs another proves nothing before that is ready
            some = [model for model in models if (model[0].container_id in needy) is later]
            some = [model for model in some if model[0].plan.instance not in transaction.journal.unproved]
            await gather_or_cancel(*(_watch_until_ready(transaction, model, running) for model in some))
    except SparkctlError as why:
        for row in rows:
            is_it = isinstance(why, RollbackFailed) and why.instance == row.operation.instance
            row.record_end(
                str(Outcome.FAILED),
                int(why.exit_code),
                why=why.message,
                hint=why.hint,
                verdict=why.verdict if isinstance(why, RollbackFailed) and is_it else None,
            )
        raise
    finally:
        for rank in ranks:
            await rank.detach_guard()  # its guard stays armed where it still loads
        seconds = transaction.ctx.clock.monotonic() - began
        for row in rows:
            is_waited_for = row.operation.instance not in transaction.journal.unproved
            outcome = Outcome.DONE if is_waited_for else Outcome.UNPROVED
            outcome = outcome if sys.exc_info()[0] is None else Outcome.INTERRUPTED
            row.record_end(
                str(outcome),
                0 if outcome is Outcome.DONE else None,
                why=f"the same containers, started again{'' if is_waited_for else '; not proved'}",
                seconds=seconds if outcome is Outcome.DONE else None,
            )
    journal, took = transaction.journal, format_duration(seconds)
    unproved, is_one = " and ".join(journal.unproved), len(journal.stops) == 1
    transaction.report_step(SwitchStep.RESTORING, f"started again{'' if unproved else f' and ready after {took}'}")
    names = " and ".join(distinguish_names(journal.instance, journal.stops)[1])
    if unproved:
        return (
            f"{names} {'runs' if is_one else 'run'} again; nobody waited for {unproved}, not proved before the switch"
        )
    return f"{names} {'serves' if is_one else 'serve'} again after {took}"


async def _inspect_old_container(transaction: SwitchTransaction, node: NodeName, container: str) -> NodeContainer:
    try:
        return node, await transaction.sessions[node].docker.inspect_container(container)
    except ContainerNotFound as gone:
        names_ = " and ".join(transaction.journal.stops)
        raise RollbackFailed(
            f"the container {shorten_id(container)} of {names_} is no longer on {node}",
            list_start_commands(transaction.journal),
        ) from gone


async def _drop_node_cache(transaction: SwitchTransaction, node: NodeName, old: Sequence[NodeContainer]) -> bool:
    """Drop a node's page cache, without the right to do so the files of the failed model and of those that come back;
    return whether that was possible.
    """
    names = [one.get_label(ContainerLabel.PROFILE) for where, one in old if where == node]
    found = (_load_profile(name) for name in dict.fromkeys((transaction.journal.words[0], *names)))
    profiles = [one for one in found if one is not None]
    session = transaction.sessions[node]
    failure = await try_drop_node_caches(session, transaction.step_context, transaction.emit, profiles)
    if failure is not None:
        transaction.warn(node, f"page cache not dropped: {failure.message}", failure.hint)
    return failure is None


def _begin_history_rows(transaction: SwitchTransaction, old: Sequence[NodeContainer]) -> list[OperationRecorder]:
    """Begin a history row for each model that is started again. Its duration does not count for later estimates."""
    ctx, where = transaction.ctx, dict[str, list[NodeName]]()
    for node, container in old:
        where.setdefault(container.get_label(ContainerLabel.INSTANCE) or original_name(container.name), []).append(node)
    rows = []
    for name, nodes in where.items():
        row = ctx.history.begin_operation(
            OperationKind.START, ctx.clock, ctx.operator, nodes, ctx.operation, instance=name
        )
        row.record_facts()
        rows.append(row)
    return rows


async def _create_rank_watch(
    transaction: SwitchTransaction, node: NodeName, container: Container, began: float, *, drop_was_reported: bool
) -> RankWatch:
    """Return the watch of a container that is started again. Its command comes from the container, its time limits and
    guard rule from the profile of that name, if there is one here.
    """
    session, profile = transaction.sessions[node], _load_profile(container.get_label(ContainerLabel.PROFILE))
    index, _, count = (parse_rank_label(container) or "0/1").partition("/")
    run = await session.docker.read_run_options(container.id)
    made = rebuild_launch_plan(session.node, container, run).plan
    made = replace(
        made, api_key=find_container_api_key(run), container_name=original_name(container.name), rank=int(index), ranks=int(count),
        timeouts=_PHASE_TIMEOUTS if profile is None else profile.start.timeouts,
        guard=None if not transaction.guarded else GuardRule(limit=_GUARD_LIMIT_SECONDS) if profile is None else build_guard_rule(profile),
        secrets=tuple(await session.docker.read_secret_values(container.id)),
    )  # fmt: skip
    again = f"sparkctl resume --node {transaction.journal.affected_nodes[0]}"
    engine = find_engine(made.engine) or load_engine(FALLBACK_ENGINE)
    rank = RankWatch(
        transaction.step_context, session, engine=engine, plan=made, emit=transaction.emit, began=began, again=again
    )
    rank.container_id, rank.drop_was_reported = container.id, drop_was_reported
    return rank


def _load_profile(name: str | None) -> Profile | None:
    try:
        return ProfileLibrary().load_profile(name or "")
    except SparkctlError:
        return None


async def _restart_container(transaction: SwitchTransaction, container: Container, rank: RankWatch) -> None:
    """Start the container under a guard where possible; its earlier log is ignored."""
    session, node = rank.session, rank.plan.node
    await transaction.reacquire_if_lost(node)
    try:
        await rank.arm_guard()
    except OperationRefused as failure:
        transaction.warn(node, f"{failure.message}; {rank.plan.instance} loads without one", failure.hint)
    try:
        if rank.plan.container_name != container.name:
            await session.docker.rename_container(container.id, rank.plan.container_name)
        if not container.is_alive:
            await session.docker.start_container(container.id)
        rank.since = (await session.docker.inspect_container(container.id)).started
        await rank.guard_container(container.id)
    except DockerError as refused:
        raise RollbackFailed(
            f"{rank.plan.container_name} on {node} could not be started again: {refused.message}", refused.hint
        ) from refused


def _group_by_model(ranks: Sequence[RankWatch]) -> list[list[RankWatch]]:
    found: dict[str, list[RankWatch]] = {}
    for rank in ranks:
        found.setdefault(dict(rank.plan.labels).get(ContainerLabel.RUN) or rank.container_id, []).append(rank)
    return [sorted(model, key=lambda rank: rank.plan.rank) for model in found.values()]


async def _watch_until_ready(
    transaction: SwitchTransaction, model: Sequence[RankWatch], running: Collection[str]
) -> None:
    """Watch one model until it is ready. One that is ``running`` since an earlier attempt is first checked at once,
    because its log may no longer show its start. Raises `RollbackFailed` with its verdict.
    """
    is_running = all(rank.container_id in running for rank in model)
    end = (
        None
        if is_running and await _check_serving(model[0])
        else await watch_ranks(transaction.step_context, model, await measure_clock_offsets(model))
    )
    if end is not None and end.unproved is not None:
        for rank in model:
            await rank.record_unproved(end.unproved)
        plan = end.rank.plan
        what = f"{plan.instance} is up again, not proved: {end.unproved}"
        see = f"see why: sparkctl logs {plan.instance} --node {plan.node}"
        if plan.ready.probe not in PROVED_PROBES and not plan.ready.requires_key:
            transaction.warn(plan.node, what, see)  # its key is not known here, and was not before the switch
            return
        raise RollbackFailed(what, see, None, plan.instance)
    if end is None or end.verdict is None:
        for rank in model:
            await rank.record_ready(None if end is None else end.proof)
        return
    raise _build_rollback_error(end, end.verdict)


async def _check_serving(head: RankWatch) -> bool:
    """Check a model's health and a token once; False where its profile defines no such check."""
    link, service = head.session.link, head.plan.readiness_target
    if service.ready.health is None and service.ready.probe == "none":
        return False
    marker_support = QueryMarkerSupport()
    if not (await engine_probe.check_health(link, service, marker_support=marker_support)).good:
        return False
    service = await engine_probe.resolve_served_model(link, service, marker_support)
    return (await request_proof(link, service, head.ctx.clock, marker_support)).good


def _build_rollback_error(end: InstanceWatchResult, verdict: Verdict) -> RollbackFailed:
    plan = end.rank.plan
    proof = "".join(f"\n  {one.text}" for one in verdict.evidence[:1])
    see = f"see why: sparkctl diagnose {plan.instance} --node {plan.node}"
    paths = [*filter(None, (end.log,)), *(path for _, path in end.more_logs)]
    log = f"{'its log' if len(paths) == 1 else 'the logs of its ranks'}: {' '.join(paths)}" if paths else None
    return RollbackFailed(
        f"{plan.instance} did not come back: {verdict.summary}{proof}",
        "\n".join(filter(None, (verdict.remedy, see, log))),
        verdict,
        plan.instance,
    )


async def order_restarts(
    sessions: Mapping[NodeName, NodeSession], old: Sequence[NodeContainer]
) -> tuple[NodeContainer, ...]:
    """Return containers in the order of their restart: models on one node first, in the order of their start, then the
    ranks of each model as its engine needs them.
    """
    alone = [one for one in old if one[1].get_label(ContainerLabel.RANK) is None]
    times = await gather_or_cancel(*(_read_start_time(sessions[node], container) for node, container in alone))
    ordered = [alone[at] for at in sorted(range(len(alone)), key=lambda at: times[at])]
    runs = dict.fromkeys(
        one[1].get_label(ContainerLabel.RUN) for one in old if one[1].get_label(ContainerLabel.RANK) is not None
    )
    for run in runs:
        ranks = [
            one
            for one in old
            if one[1].get_label(ContainerLabel.RANK) is not None and one[1].get_label(ContainerLabel.RUN) == run
        ]
        ranks.sort(key=_get_rank_index)
        head_first = await _must_start_head_first(sessions[ranks[0][0]], ranks[0][1])
        ordered += ranks if head_first else [*ranks[1:], ranks[0]]
    return tuple(ordered)


async def _read_start_time(session: NodeSession, container: Container) -> float:
    return (await session.docker.inspect_container(container.id)).started or container.created


def _get_rank_index(one: NodeContainer) -> int:
    index, _, _ = (one[1].get_label(ContainerLabel.RANK) or "").partition("/")
    return int(index) if index.isascii() and index.isdigit() and len(index) < 9 else 0


async def _must_start_head_first(session: NodeSession, head: Container) -> bool:
    """Ask the engine with the head's command, because a worker's does not say how the ranks meet."""
    engine = find_engine(head.get_label(ContainerLabel.ENGINE))
    if engine is None:
        return False
    return engine.must_start_head_first((await session.docker.read_run_options(head.id)).command)


async def remove_both_sides(transaction: SwitchTransaction) -> tuple[str, ...]:
    """Stop and remove the containers of both sides; return those that stayed or still hold something.

    A container that cannot be removed does not prevent the others, so that every switch can be ended. Raises
    `OwnershipLost`, `NodeError` and `DockerUnavailable`.
    """
    old = [(node, one) for node, one in await list_old_containers(transaction) if one is not None and one.is_managed]
    new = await list_new_containers(transaction)
    save_pending_stops(transaction, old)

    async def remove_on_node(node: NodeName) -> list[str]:
        there = [one for where, one in (*new, *old) if where == node]
        return [
            f"{sanitize_line(one.name)} on {node}"
            for one in there
            if not await _remove_and_verify(transaction, node, one)
        ]

    stayed = [
        each
        for names in await gather_or_cancel(*(remove_on_node(node) for node in transaction.journal.affected_nodes))
        for each in names
    ]
    if not stayed:
        transaction.report_step(SwitchStep.UNDOING, "the rest of both is removed, the logs are saved")
    return tuple(stayed)


async def _remove_and_verify(transaction: SwitchTransaction, node: NodeName, one: Container) -> bool:
    """Remove a container; tell whether it and its memory are gone. Problems were emitted as warnings."""
    try:
        stopped = await remove_container(transaction, node, one)
    except (OwnershipLost, DockerUnavailable):
        raise
    except (OperationRefused, DockerError) as why:
        transaction.warn(node, why.message, why.hint)
        return False
    return stopped.removed and stopped.is_proved
