"""Whether a start fits on a node: its memory, as inspected, against the profile's memory estimate."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from sparkctl.commands.start.missing_parts import find_missing_models
from sparkctl.commands.start.start_preflight import PreflightInspection, list_mount_sections
from sparkctl.commands.start.start_request import to_switch_command
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import (
    DraftWorkspace,
    find_invalid_memory_flag,
    find_memory_rule,
    find_unresolved_flag,
)
from sparkctl.errors import InvalidInput, OperationRefused, PortInUse
from sparkctl.model.container import Container
from sparkctl.model.launch_plan import DEFAULT_FLOOR_BYTES, ContainerLabel, LaunchPlan, ReadinessTarget
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import CheckpointFiles, FitOutcome, MemoryBudget, MemoryFit, MemoryHolder
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.text.secrets import redact
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import FailureCause, FieldChange
from sparkctl.monitor import engine_probe
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.node.node_inspection import NodeDisk, NodeInspection
from sparkctl.profiles.container_labels import parse_expected_memory_label, parse_port_label, parse_ready_rule_label
from sparkctl.profiles.fit_evaluation import (
    build_estimate_input,
    count_nodes,
    evaluate_memory_fit,
    find_missing_draft_layers,
    list_checkpoint_paths,
)
from sparkctl.profiles.profile_lint import (
    complete_changes,
    is_mendable_trap,
    list_objections,
)
from sparkctl.profiles.setting_proof import CommandWithChanges, SettingProof
from sparkctl.transport.docker.docker_responses import DockerInfo
from sparkctl.transport.node_session import NodeSession

_READY_TOLERANCE_BYTES = 2 * GIB  # an instance that lacks less of its expected memory counts as ready
_LOADING_PHASES = (Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
_HEALTH_TIMEOUT_SECONDS = 3.0


async def inspect_for_start(session: NodeSession, plan: LaunchPlan, *sections: str) -> PreflightInspection:
    """Inspect a node and its Docker for a start: these sections, the mounts, and the disk where Docker says that it keeps its
    files. Raises `NodeError`, `DockerError`.
    """

    async def read_engine() -> tuple[DockerInfo, tuple[NodeDisk, ...]]:
        engine = await session.docker.read_info()
        return engine, (await session.read_node(f"disk={engine.root_dir}")).disks if engine.root_dir else ()

    (engine, disks), containers, image, inspection = await gather_or_cancel(
        read_engine(),
        session.docker.list_containers(),
        session.docker.inspect_image(plan.image),
        session.read_node(*sections, *list_mount_sections(plan)),
    )
    return PreflightInspection(replace(inspection, disks=(*inspection.disks, *disks)), containers, engine, image)


def list_model_sections(profile: Profile, plan: LaunchPlan) -> list[str]:
    """Return what else to inspect on the node: the model's files."""
    return [f"model={place}" for place in list_checkpoint_paths(profile, plan)]


async def find_loading_containers(
    session: NodeSession, inspection: NodeInspection, containers: Sequence[Container]
) -> frozenset[str]:
    """Return the ids of instances that still start, and so need more memory than they hold now.

    Only an instance that holds much less than expected is asked for its health; without an answer it counts as
    loading.
    """
    candidates = []
    for one in containers:
        expected, memory, rule = (
            parse_expected_memory_label(one),
            inspection.get_container_memory(one.id),
            parse_ready_rule_label(one),
        )
        holds_too_little = expected is not None and memory is not None and memory < expected - _READY_TOLERANCE_BYTES
        if holds_too_little and one.is_managed and one.is_alive and rule is not None and rule.health is not None:
            candidates.append((one.id, ReadinessTarget(parse_port_label(one), rule)))
    answers = await gather_or_cancel(
        *(engine_probe.check_health(session.link, service, _HEALTH_TIMEOUT_SECONDS) for _, service in candidates)
    )
    return frozenset(one for (one, _), answer in zip(candidates, answers, strict=True) if not answer.good)


def read_memory_budget(
    inspection: NodeInspection, containers: Sequence[Container], replaced: frozenset[str], loading_ids: frozenset[str]
) -> MemoryBudget | None:
    """Return the memory budget of the node, None where it did not report its memory."""
    if inspection.memory is None:
        return None
    holders = []
    for one in containers:
        if not one.is_alive:
            continue
        own_memory = inspection.get_container_memory(one.id)
        coming = (
            max(0, (parse_expected_memory_label(one) or 0) - own_memory)
            if one.id in loading_ids and own_memory is not None
            else 0
        )
        name = one.instance_name
        holders.append(
            MemoryHolder(name=name, ours=one.is_managed, held=own_memory, coming=coming, is_replaced=one.id in replaced)
        )
    memory = inspection.memory
    return MemoryBudget(
        total=memory.total,
        available=max(0, memory.available),
        droppable=min(memory.reclaimable, max(0, memory.available)),
        holders=tuple(holders),
    )


async def read_other_holders(session: NodeSession, container: str) -> MemoryBudget | None:
    """Return the node's memory now, with what holds it beside a container: other containers, and processes on the GPU outside
    of any; None where it did not report it.

    Raises `DockerError`, `NodeError`.
    """
    inspection = await session.read_node("memory", "processes", "gpu", "procs")
    others = [one for one in await session.docker.list_containers() if one.id != container]
    budget = read_memory_budget(inspection, others, frozenset(), frozenset())
    return None if budget is None else replace(budget, holders=(*budget.holders, *list_loose_processes(inspection)))


def list_loose_processes(inspection: NodeInspection) -> tuple[MemoryHolder, ...]:
    """Return the processes on the GPU that are in no container. One that has ended, and that the driver still lists, holds nothing."""
    owned, alive = inspection.pids or {}, {one.pid for one in inspection.procs or () if one.is_alive}
    return tuple(
        MemoryHolder(name=f"process {pid}", ours=False, held=memory)
        for pid, memory in (inspection.gpu or {}).items()
        if pid not in owned and pid in alive
    )


def memory_budget_of_view(view: NodeTelemetryView, instance: str) -> MemoryBudget | None:
    """Return the memory budget of a monitored node for a start of ``instance``; None where its memory is not known."""
    memory = (view.sample.memory if view.sample is not None else None) or view.reading
    if memory is None:
        return None
    holders = []
    for one in view.instances:
        if not one.is_alive:
            continue
        is_coming = one.ours and one.phase in _LOADING_PHASES and one.memory is not None
        coming = max(0, (one.expected or 0) - (one.memory or 0)) if is_coming else 0
        holders.append(
            MemoryHolder(
                name=one.name,
                ours=one.ours,
                held=one.memory,
                coming=coming,
                is_replaced=one.ours and one.name == instance,
            )
        )
    available = max(0, memory.available)
    return MemoryBudget(
        total=memory.total, available=available, droppable=min(memory.reclaimable, available), holders=tuple(holders)
    )


class InvalidMemoryFlag(InvalidInput):
    """A flag that decides about memory has an impossible value. ``change``: what to set in its place."""

    def __init__(self, message: str, change: FieldChange) -> None:
        super().__init__(message, _format_settings((change,)))
        self.change = change


def _format_settings(changes: Sequence[FieldChange]) -> str:
    return " ".join(f"--set {one.set_argument}" for one in changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNode:
    """The inspection of one node, for the estimate of a profile and of changes to it.

    ``build_plan``: the launch of a profile as the model of this node alone. ``node_count``: how many share the model.
    """

    ctx: CommandContext
    node_inspection: NodeInspection
    containers: Sequence[Container]
    loading_ids: frozenset[str]
    node_count: int
    build_plan: Callable[[Profile], LaunchPlan]
    reserved: int = 0  # bytes for what starts there before it

    def evaluate(self, profile: Profile, replaced: frozenset[str]) -> MemoryFit:
        """Return whether a profile fits. Raises `InvalidInput` where it cannot be launched."""
        try:
            return self._calculate(profile, replaced)
        except InvalidMemoryFlag as error:
            error.hint = _format_settings(self._choose_accepted_changes(profile, error.change, replaced))
            raise

    def _calculate(self, profile: Profile, replaced: frozenset[str]) -> MemoryFit:
        return calculate_fit(
            self.ctx, profile, plan=self.build_plan(profile), inspection=self.node_inspection, containers=self.containers,
            replaced=replaced, loading_ids=self.loading_ids, node_count=self.node_count, reserved=self.reserved,
        )  # fmt: skip

    def _choose_accepted_changes(
        self, profile: Profile, change: FieldChange, replaced: frozenset[str]
    ) -> Sequence[FieldChange]:
        """Return what to set in place of an impossible value that the check and the estimate accept: no second advice follows."""

        def set_flags(changes: Sequence[FieldChange]) -> Profile:
            values = {one.field.removeprefix("args."): one.value for one in changes}
            return replace(profile, args=tuple((name, values.get(name, old)) for name, old in profile.args))

        known = [one for one in list_objections(profile) if not is_mendable_trap(one)]
        with suppress(InvalidInput):
            accepted = complete_changes((change,), known, set_flags, lambda one: [self._calculate(one, replaced)])
            return accepted or (change,)
        return (change,)

    def evaluate_in_place(self, profile: Profile) -> MemoryFit:
        """Return whether it fits where the running instance of its name has ended."""
        plan = self.build_plan(profile)
        return self.evaluate(profile, find_containers_in_place(plan, self.containers))


def find_containers_in_place(plan: LaunchPlan, containers: Sequence[Container]) -> frozenset[str]:
    """Return the containers of the running instance of the same name, which a new start replaces."""
    return frozenset(
        one.id for one in containers if one.is_alive and one.get_label(ContainerLabel.INSTANCE) == plan.instance
    )


def calculate_fit(
    ctx: CommandContext, profile: Profile, plan: LaunchPlan, inspection: NodeInspection, containers: Sequence[Container],
    replaced: frozenset[str], loading_ids: frozenset[str], node_count: int,
    reserved: int,
) -> MemoryFit:  # fmt: skip
    """Return whether the launch fits with what runs there. Raises `InvalidInput` for an impossible flag value."""
    if (wrong := find_invalid_memory_flag(profile.engine, CommandFlags(plan.command, plan.entrypoint))) is not None:
        raise InvalidMemoryFlag(redact(wrong[0], plan.secret_values), wrong[1])
    budget = read_memory_budget(inspection, containers, replaced, loading_ids)
    if budget is not None and reserved:
        budget = replace(budget, reserved=reserved)
    return calculate_fit_from_budget(ctx, profile, plan, inspection.models, budget, node_count)


def calculate_fit_from_budget(
    ctx: CommandContext,
    profile: Profile,
    plan: LaunchPlan,
    models: Sequence[CheckpointFiles],
    there: MemoryBudget | None,
    node_count: int,
) -> MemoryFit:
    """Return whether the launch fits into a memory budget; reads the history.

    ``models``: the model files found there. ``node_count``: how many Sparks share the model.
    """
    if (why := _explain_unreadable_flags(profile, plan)) is not None:
        return MemoryFit(
            node=plan.node,
            profile=plan.profile,
            answer=FitOutcome.UNKNOWN,
            standing=there,
            cautions=(redact(why, plan.secret_values),),
        )
    history = ctx.history
    workspace = DraftWorkspace.UNKNOWN
    if history.last_start_failed_for(plan.profile_hash, FailureCause.DRAFT_WORKSPACE):
        workspace = DraftWorkspace.TAKEN
    elif history.was_ready(plan.profile_hash):
        workspace = DraftWorkspace.NOT_TAKEN
    claim = find_memory_rule(build_estimate_input(profile, plan, models, workspace), there.total if there else 0)
    floor = (
        plan.floor_memory if plan.floor_memory is not None else plan.guard.floor if plan.guard else DEFAULT_FLOOR_BYTES
    )
    measured_peak = history.get_measured_peak(plan.profile_hash, plan.node)
    missing = next((part for part in find_missing_models(profile, plan, models) if part.is_required), None)
    fit = evaluate_memory_fit(
        plan.node,
        plan.profile,
        claim=claim,
        standing=there,
        floor=floor,
        expected=plan.expected_memory,
        seen=measured_peak,
    )
    secrets = plan.secret_values
    cautions = fit.cautions if missing is None else (*fit.cautions, missing.state_words)
    if (lacking := find_missing_draft_layers(profile, plan, models)) is not None:
        cautions = (*cautions, lacking)
    parts = tuple(replace(part, words=redact(part.words, secrets)) for part in fit.parts)
    cautions = tuple(redact(one, secrets) for one in cautions)
    wanted = count_nodes(profile, plan)
    fit = replace(fit, parts=parts, cautions=cautions, absent=None if missing is None else missing.name, sparks=wanted)
    if wanted <= node_count:
        return fit
    return replace(fit, answer=FitOutcome.SEVERAL, stops=(), largest=None, least=None)


def _explain_unreadable_flags(profile: Profile, plan: LaunchPlan) -> str | None:
    """Return why no estimate is possible: a flag that decides has no value yet, or an impossible one."""
    words = CommandFlags(plan.command, plan.entrypoint)
    if (wrong := find_invalid_memory_flag(profile.engine, words)) is not None:
        return wrong[0]
    if (flag := find_unresolved_flag(profile.engine, words)) is not None:
        return f"{flag[0]} is {flag[1]}, which only the container's shell can expand"
    return None


def suggest_commands(one: MemoryFit, again: CommandWithChanges, proof: SettingProof) -> tuple[str, ...]:
    """Return the commands that follow: the start itself, or each way to make it fit that ``proof`` accepts. ``again``
    gives the start command, with these fields changed.
    """
    if not one.is_refused:
        return (again(),)
    ours = {each.name for each in one.standing.holders if each.ours} if one.standing is not None else set()
    found = [
        shlex.join(["sparkctl", "down", name, "--node", one.node])
        if name in ours
        else f"on {one.node}: {shlex.join(['docker', 'stop', name])}"
        for name in one.stops
    ]
    proved = (proof.prove_changes(each) for each in (one.largest, one.least) if each is not None)
    return tuple(dict.fromkeys([*found, *(again(*changes) for changes in proved if changes is not None)]))


def suggest_switch_or_commands(one: MemoryFit, again: CommandWithChanges, proof: SettingProof) -> tuple[str, ...]:
    """Return a single switch command where only instances of sparkctl are in the way; otherwise as
    `suggest_commands`.
    """
    if not _can_switch(one):
        return suggest_commands(one, again, proof)
    return (to_switch_command(again()), *suggest_commands(one, again, proof)[len(one.stops) :])


def _can_switch(one: MemoryFit) -> bool:
    ours = {each.name for each in one.standing.holders if each.ours} if one.standing is not None else set()
    return one.answer is FitOutcome.IF_STOPPED and ours.issuperset(one.stops)


def build_fit_refusal(
    one: MemoryFit, again: CommandWithChanges, proof: SettingProof, busy: PortInUse | None = None
) -> OperationRefused:
    """Return the error of a start that does not fit. ``busy``: its port, where another has it."""
    why = f" ({one.cautions[0]})" if one.lacking and one.cautions else ""
    why += "" if busy is None else f"; and {busy.message}"
    again = avoid_busy_port(busy, one.stops, again)
    switch = [to_switch_command(again())] if _can_switch(one) else []
    all_the_same = f"start it anyway: {avoid_busy_port(busy, (), again)()} --force"  # then nothing stops
    return OperationRefused(
        one.summary_sentence + why, "\n".join([*switch, *suggest_commands(one, again, proof), all_the_same])
    )


def avoid_busy_port(busy: PortInUse | None, stops: Sequence[str], again: CommandWithChanges) -> CommandWithChanges:
    """Return the start command on a free port, unless the port gets free by what ``stops`` for the memory."""
    if busy is None or busy.free_port is None or busy.holder in stops:
        return again
    moved = FieldChange("port", str(busy.free_port))
    return lambda *changes: again(*(change for change in changes if change.field != "port"), moved)
