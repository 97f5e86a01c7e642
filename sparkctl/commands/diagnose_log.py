"""``diagnose`` of an instance: explain a failed start from a container's log, or the saved log of a removed container."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path

from sparkctl.commands.diagnose_file import DiagnosisReport, diagnose_bytes
from sparkctl.commands.show_log import find_container, find_saved_logs_of_start
from sparkctl.commands.start import node_fit
from sparkctl.commands.start.launch_plans import build_changed_plan, rebuild_launch_plan
from sparkctl.commands.start.start_request import build_start_request
from sparkctl.commands.start.start_watch import find_stop_signals
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import engine_names, find_engine
from sparkctl.errors import ContainerNotFound, DockerError, InvalidInput, LogUnreadable, NodeError, NodeUnreachable
from sparkctl.history.log_archive import SavedLog
from sparkctl.logs import rank_verdict, start_verdict, verdict_builder
from sparkctl.logs.analyzer import LogDiagnosis
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.logs.line_patterns import parse_log_time
from sparkctl.logs.log_file import open_log
from sparkctl.logs.rank_verdict import RankFailure, find_first_failure, measure_clock_offset
from sparkctl.logs.reader import read_log
from sparkctl.model.container import SIGKILL_EXIT_CODE, Container, ContainerState
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.guard_state import GuardReceipt
from sparkctl.model.launch_plan import PROVED_PROBES, ContainerLabel, LaunchPlan, ReadinessRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.text.secrets import redact
from sparkctl.model.verdict import Evidence, FieldChange, Verdict
from sparkctl.monitor import guard_client
from sparkctl.monitor.kernel_log import ask_kernel_log
from sparkctl.monitor.node_status import build_instance_view, note_tokens, note_unproved_starts
from sparkctl.profiles.container_labels import parse_rank_label, parse_rank_nodes_label, parse_start_id_label
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.setting_proof import SettingProof
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_START_FLAGS = ("--no-guard", "--again", "--force", "--keep-going", "--no-rollback")


async def diagnose_instance(
    ctx: CommandContext, instance: str, nodes: Sequence[Node], engine: str | None
) -> DiagnosisReport:
    """Diagnose the log of an instance: of its container where that exists, else the newest saved log.

    Raises `InvalidInput` for an unknown name, `NodeError` and `DockerError` where a node could not be asked.
    """
    silent: list[tuple[NodeName, NodeError | DockerError]] = []
    ended: list[tuple[float, Node]] = []  # when a container was made that has ended: a live one that fails comes first
    faultless: DiagnosisReport | None = None

    async def diagnose_on_node(node: Node, *, may_have_ended: bool) -> DiagnosisReport | None:
        try:
            async with ctx.create_session(node) as session:
                with isolate_node_failures(node):
                    await session.link.connect()
                    container = await find_container(session, instance)
                    if container is not None and (container.is_alive or may_have_ended):
                        inspected = await session.docker.inspect_container(container.id)
                        return await diagnose_ranks(ctx, session, inspected, nodes, engine)
                    if container is not None:
                        ended.append((container.created, node))
        except ContainerNotFound:
            pass
        except (NodeError, DockerError) as error:
            silent.append((node.name, error))
        return None

    for node in nodes:
        if (report := await diagnose_on_node(node, may_have_ended=len(nodes) == 1)) is not None:
            if report.diagnosis.verdict is not None or len(nodes) == 1:
                return report
            faultless = faultless or report
    for _, node in sorted(ended, key=lambda found: found[0], reverse=True):
        report = await diagnose_on_node(node, may_have_ended=True)
        if report is not None and (report.diagnosis.verdict is not None or faultless is None):
            return report
    if faultless is not None:
        return faultless
    wanted = [node.name for node in nodes] or None  # without a configured node: saved logs of any node
    logs = ctx.history.list_saved_logs(instance, wanted)
    saved = _choose_saved_log(ctx, logs)
    if saved is None:
        unknown = build_unknown_instance_error(
            ctx, instance, [node for node in nodes if node.name not in dict(silent)] or nodes
        )
        if not silent:
            raise unknown
        _, error = silent[0]
        if isinstance(error, NodeUnreachable) and len(silent) < len(nodes):  # a misspelt file is no matter of the node
            raise error.add_message(unknown)
        raise error
    return replace(_diagnose_saved_log(ctx, saved, engine), silent=tuple(silent))


async def diagnose_ranks(
    ctx: CommandContext, session: NodeSession, container: Container, nodes: Sequence[Node], engine: str | None = None
) -> DiagnosisReport:
    """Diagnose a container's whole log, and the logs of its other ranks on these nodes.

    The report is about the rank that failed first, as in `up`; where none failed, about the container itself. Raises
    `NodeError` and `DockerError` where the container's own node could not be asked.
    """
    instance = container.instance_name
    place = None if parse_rank_label(container) is None else parse_start_id_label(container)
    async with AsyncExitStack() as stack:
        ranks = [await _diagnose_container(ctx, session, container, engine)]
        silent: list[tuple[NodeName, NodeError | DockerError]] = []
        for node in _list_other_nodes(container, session.node, nodes) if place is not None else ():
            try:
                there = await stack.enter_async_context(ctx.create_session(node))
                with isolate_node_failures(node):
                    await there.link.connect()
                    found = await find_container(there, instance)
                    if found is not None and parse_start_id_label(found) == place:
                        ranks.append(
                            await _diagnose_container(
                                ctx, there, await there.docker.inspect_container(found.id), engine
                            )
                        )
            except ContainerNotFound:
                continue
            except (NodeError, DockerError) as error:
                silent.append((node.name, error))
        first = await _select_first_failure(ranks)
    where = first.session.node.name
    state = "runs" if first.container.is_alive else "has ended"
    if first.container.state is ContainerState.PAUSED:
        state = f"is paused; on {where}: docker unpause {first.container.name}"
    if place is None:
        return DiagnosisReport(
            diagnosis=first.found,
            source=f"the log of {instance} on {where}, which {state}",
            node=where,
            instance=instance,
        )
    which = f"rank {_parse_rank(first.container)[0]} of {_parse_rank(first.container)[1]} of {instance} on {where}"
    others = [rank.session.node.name for rank in ranks if rank.session.node.name != where]
    more = f"; also read: the log on {' and '.join(others)}" if others else "; no other rank's log was read"
    return DiagnosisReport(
        diagnosis=first.found,
        source=f"the log of {which}, which {state}{more}",
        node=where,
        instance=instance,
        silent=tuple(silent),
    )


def _list_other_nodes(container: Container, own: Node, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes where the other ranks may be: those in the container's label, or all where those names are not
    known here.
    """
    names = parse_rank_nodes_label(container)
    others = [node for node in nodes if node.name != own.name]
    named = [node for node in others if node.name in names]
    return named if len(named) + 1 == len(names) else others


def _parse_rank(container: Container) -> tuple[int, int]:
    rank, _, ranks = (parse_rank_label(container) or "0/1").partition("/")
    return int(rank), int(ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDiagnosis:
    """One container with what its log and its end tell.

    ``at``: when it failed, by its node's clock, unix seconds. ``is_aftermath``: the failure only follows from another
    one elsewhere. ``is_bare_exit``: only its exit code is known.
    """

    session: NodeSession
    container: Container
    found: LogDiagnosis
    at: float | None
    is_aftermath: bool
    is_bare_exit: bool

    @property
    def rank_failure(self) -> RankFailure:
        """Its failure with its time, for `find_first_failure`."""
        return RankFailure(
            node=self.session.node.name,
            cause=self.verdict.cause,
            at=self.at,
            is_aftermath=self.is_aftermath,
            is_bare_exit=self.is_bare_exit,
        )

    @property
    def verdict(self) -> Verdict:
        """Why it failed; None where it did not."""
        assert self.found.verdict is not None
        return self.found.verdict

    @property
    def verdict_with_rank(self) -> Verdict:
        here, instance = (
            self.session.node.name,
            self.container.instance_name,
        )
        named = rank_verdict.add_rank_name(self.verdict, *_parse_rank(self.container), here)
        return rank_verdict.add_peer_log_commands(named, instance, here, parse_rank_nodes_label(self.container))


async def _select_first_failure(ranks: Sequence[RankDiagnosis]) -> RankDiagnosis:
    """Return the rank that failed first, with the verdict for the whole model; the first rank where none failed."""
    failed = [rank for rank in ranks if rank.found.verdict is not None]
    if parse_rank_label(ranks[0].container) is None or not failed:
        return ranks[0]
    clocks = (
        await gather_or_cancel(*(measure_clock_offset(rank.session) for rank in failed)) if len(failed) > 1 else (None,)
    )
    offsets = {rank.session.node.name: one for rank, one in zip(failed, clocks, strict=True) if one is not None}
    first = find_first_failure([rank.rank_failure for rank in failed], offsets).node
    root = next(rank for rank in failed if rank.session.node.name == first)
    others = [rank.verdict_with_rank for rank in failed if rank is not root and not rank.is_aftermath]
    return replace(
        root, found=replace(root.found, verdict=rank_verdict.merge_rank_verdicts(root.verdict_with_rank, others))
    )


async def _add_missing_proof(
    ctx: CommandContext, session: NodeSession, container: Container, ready: ReadinessRule, found: LogDiagnosis
) -> LogDiagnosis:
    """Return what a running container's log tells with what is missing: a ready line proves no answer.

    The verdict of its start is taken again while it still gives no token; a start that was left has none.
    """
    note_unproved_starts(ctx, session, (container,))
    if container.id not in session.doubted | session.awaited and ready.probe not in PROVED_PROBES:
        return replace(found, verdict=None)  # an error in its log was not fatal
    view = await build_instance_view(session, container, None)
    note_tokens(ctx, session, (view,))
    if view is None or view.phase in (None, Phase.READY):
        return replace(found, verdict=None)
    return replace(
        found,
        verdict=_load_saved_verdict(ctx, session, container) if view.phase is Phase.UNPROVED else None,
        ready=False,
        phase=view.phase,
        step=None if view.step is None else view.step.name,
        unproved=view.detail or "no answer of its model was seen yet",
    )


async def _diagnose_container(
    ctx: CommandContext, session: NodeSession, container: Container, engine: str | None
) -> RankDiagnosis:
    """Read a container's whole log; its exit state and the guard's receipt count as evidence too."""
    start = ctx.history.load_start_command(container.instance_name, session.node.name, container.id)
    plan = rebuild_launch_plan(session.node, container, await session.docker.read_run_options(container.id)).plan
    label = container.get_label(ContainerLabel.ENGINE)
    known = engine or (label if label in engine_names() else None)
    reading = LogDiagnoser(known, plan.ready if label == known and plan.ready.line else None)
    secrets = await session.docker.read_secret_values(container.id)
    stamps: dict[int, str] = {}  # when the lines of failures were written, by their number
    try:
        async with aclosing(read_log(session, container.id, secrets=secrets)) as batches:
            async for batch in batches:
                for line in batch:
                    reading.feed_line(line)
                new = {seen.number for seen in reading.analyzer.failures} - stamps.keys()
                stamps |= {line.number: line.when for line in batch if line.number in new}
    except LogUnreadable:
        if container.is_alive:
            raise  # only the log can tell; how an ended container ended is known without it
    found = reading.build_diagnosis(plan)
    receipt = None
    if not container.is_alive:
        if container.exit_code == SIGKILL_EXIT_CODE:
            receipt = await guard_client.read_receipt(session, container.id)
        requests = await find_stop_signals(session, container)
        found = replace(
            found,
            verdict=_judge_ended_container(
                container, plan, reading=reading, secrets=secrets, start=start, receipt=receipt, requests=requests
            ),
        )
    elif reading.analyzer.fatal_line is None:
        found = await _add_missing_proof(ctx, session, container, plan.ready, found)
    found = replace(found, verdict=await ask_kernel_log(session, found.verdict, container, plan.instance))
    if found.verdict is not None and not container.is_alive:
        found = replace(found, verdict=_recall_holders(ctx, session, container, found.verdict))
    if found.verdict is not None:
        found = replace(found, verdict=await _add_proved_command(ctx, session, container, found.verdict, plan, start))
    numbers = [seen.number for seen in reading.analyzer.open_failures if seen.number in stamps]
    said_at = parse_log_time(stamps[min(numbers)], "") if numbers else None
    at = receipt.at if receipt is not None else container.finished if said_at is None else said_at.seconds
    is_aftermath = found.verdict is not None and verdict_builder.is_consequence(reading.analyzer, found.verdict)
    is_bare_exit = found.verdict is not None and start_verdict.is_bare_exit(reading.analyzer, found.verdict, container)
    return RankDiagnosis(
        session=session, container=container, found=found, at=at, is_aftermath=is_aftermath, is_bare_exit=is_bare_exit
    )


def _recall_holders(ctx: CommandContext, session: NodeSession, container: Container, verdict: Verdict) -> Verdict:
    """Return the verdict of the start itself, if it was on memory: only the start saw who held the rest of it."""
    if verdict.cause not in verdict_builder.OUT_OF_MEMORY_CAUSES or parse_rank_label(container) is not None:
        return verdict
    stored = _load_saved_verdict(ctx, session, container)
    return stored if stored is not None and stored.cause is verdict.cause else verdict


def _load_saved_verdict(ctx: CommandContext, session: NodeSession, container: Container) -> Verdict | None:
    """Return the verdict that this container's own start was given, None if it has none."""
    saved = ctx.history.list_saved_logs(container.instance_name, (session.node.name,))
    own = next((one for one in saved if container.id.startswith(one.short_container_id)), None)
    return None if own is None else ctx.history.load_verdict(own)


def _judge_ended_container(
    container: Container,
    plan: LaunchPlan,
    reading: LogDiagnoser,
    secrets: frozenset[str],
    start: str | None,
    receipt: GuardReceipt | None,
    requests: tuple[int, ...] | None,
) -> Verdict | None:
    if reading.analyzer.stopped is not None and reading.analyzer.end_cause is None and reading.analyzer.was_ready:
        return None  # it was stopped on request
    if receipt is not None:
        engine = find_engine(plan.engine)
        claim = None if engine is None else engine.memory_setting
        return start_verdict.build_guard_kill_verdict(
            plan, reading.analyzer, receipt, claim, None if claim is None else _get_memory_setting(plan, claim)
        )
    if container.error:
        container = replace(container, error=redact(container.error, secrets))  # it quotes the command
    return start_verdict.build_exit_verdict(
        plan, reading.analyzer, container, start or _build_start_command(plan), requests
    )


@dataclass(frozen=True, slots=True)
class StartCommand:
    """The command that started a container, taken apart: verb, profile and nodes; its settings; its other flags."""

    head: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> StartCommand:
        """Take a command apart."""
        words = shlex.split(text)
        first = next((at for at, word in enumerate(words) if word == "--set"), len(words))
        last = len(words)  # flags of the start itself, which are no settings, come last
        while words[last - 1] in _START_FLAGS or words[last - 1].startswith("--timeout="):
            last -= 1
        first = min(first, last)
        pairs = words[first:last]
        return cls(
            tuple(words[:first]),
            tuple(zip(pairs[::2], pairs[1::2], strict=False)),
            tuple(one for one in words[last:] if one != "--force"),
        )

    @property
    def profile_words(self) -> tuple[str, ...]:
        return (self.head[2], *(word for pair in self.pairs for word in pair))

    def build_changed_command(self, *changes: FieldChange) -> str:
        """Return the command with these fields changed and all else as it was."""
        changed = {one.field for one in changes}
        kept = [word for pair in self.pairs if pair[1].partition("=")[0] not in changed for word in pair]
        new = [word for one in changes for word in ("--set", one.set_argument)]
        return shlex.join([*self.head, *kept, *new, *self.flags])


async def _add_proved_command(
    ctx: CommandContext,
    session: NodeSession,
    container: Container,
    verdict: Verdict,
    plan: LaunchPlan,
    start: str | None,
) -> Verdict:
    """Return a verdict with the command that tries its change, where check and memory estimate accept it."""
    if verdict.edit is None or not plan.profile:
        return verdict
    command = StartCommand.from_text(start or _build_start_command(plan))
    proof = SettingProof(command.profile_words, ProfileLibrary())
    try:
        profile = proof.library.load_profile(plan.profile)
        request = build_start_request(profile, [session.node], plan.profile)
        home = ["identity", "docker"] if session.home is None else []
        containers = await session.docker.list_containers()
        inspection = await session.read_node("memory", "processes", "gpu", *home)
        alone = build_changed_plan(ctx, request, session, profile)
        models = await session.read_node(*node_fit.list_model_sections(profile, alone), "memory")
    except (InvalidInput, NodeError, DockerError):
        return proof.prove_verdict(verdict, command.build_changed_command)  # by its flags alone
    measured = node_fit.MeasuredNode(
        ctx=ctx,
        node_inspection=replace(inspection, models=models.models),
        containers=containers,
        loading_ids=frozenset(),
        node_count=profile.nodes,
        build_plan=partial(build_changed_plan, ctx, request, session),
    )
    gone = frozenset({container.id})
    measured_proof = replace(proof, evaluate_fits=lambda one: [measured.evaluate(one, gone)])
    return measured_proof.prove_verdict(verdict, command.build_changed_command)


def _build_start_command(plan: LaunchPlan) -> str:
    return shlex.join(["sparkctl", "up", plan.profile or plan.instance, "--node", plan.node])


def _get_memory_setting(plan: LaunchPlan, claim: str) -> str | None:
    return plan.get_flag_value(claim.removeprefix("args."))


def _choose_saved_log(ctx: CommandContext, logs: Sequence[SavedLog]) -> SavedLog | None:
    """Return the newest saved log; for several Sparks, that of the rank whose failure caused the others."""
    if not logs:
        return None
    ranks = [log for log, _, _ in find_saved_logs_of_start(ctx, logs[0], logs)]
    return next((log for log in ranks if ctx.history.load_verdict(log) is not None), logs[0])


def _diagnose_saved_log(ctx: CommandContext, saved: SavedLog, engine: str | None) -> DiagnosisReport:
    node = NodeName(saved.node)
    with open_log(saved.path, is_saved=True) as source:
        found = diagnose_bytes(source, str(saved.path), engine).diagnosis
    stored = ctx.history.load_verdict(saved)
    if stored is not None and engine is None:
        # What Docker and the guard knew then is gone; the log is the same.
        found = replace(found, verdict=stored)
    elif found.verdict is not None:
        command = StartCommand.from_text(shlex.join(["sparkctl", "up", saved.instance, "--node", saved.node]))
        proof = SettingProof(command.profile_words, ProfileLibrary())
        found = replace(found, verdict=proof.prove_verdict(found.verdict, command.build_changed_command))
    return DiagnosisReport(
        diagnosis=found,
        source=f"the saved log of {saved.instance} from {saved.node}: {saved.path}",
        node=node,
        instance=saved.instance,
    )


def build_unknown_instance_error(ctx: CommandContext, instance: str, nodes: Sequence[Node]) -> InvalidInput:
    """Return the error for a word that is neither a file nor an instance; it lists what exists."""
    where = ", ".join(node.name for node in nodes) or "any Spark (none is configured)"
    known = ctx.history.list_instances_with_logs()
    hint = f"saved logs are of: {', '.join(known)}" if known else "see what runs: sparkctl status"
    if Path(instance).is_dir():
        return InvalidInput(f"{instance} is a directory", "name the log file in it")
    return InvalidInput(f"no file {instance}, no instance {instance} on {where}, and no saved log of one", hint)


async def diagnose_exit(
    ctx: CommandContext, node: Node, container_id: str, known: Sequence[Node]
) -> CommandEnded | None:
    """Return the verdict on an ended container, as its start would have given it.

    None where nothing can be judged: the container still runs without a fatal line, or its engine is not known.
    ``known``: the nodes to search for other ranks, one of which may have failed first. Raises `NodeError` and
    `DockerError`.
    """
    async with ctx.create_session(node) as session:
        await session.link.connect()
        try:
            container = await session.docker.inspect_container(container_id)
            if container.get_label(ContainerLabel.ENGINE) not in engine_names():
                return None
            found = await diagnose_ranks(ctx, session, container, known)
        except ContainerNotFound:
            return None
    verdict = found.diagnosis.verdict
    if verdict is None:
        return None
    if found.node is not None and found.node != node.name:
        verdict = _label_foreign_evidence(verdict, found.node)
    if found.silent:
        silent = " and ".join(name for name, _ in found.silent)
        verdict = replace(
            verdict,
            evidence=(
                *verdict.evidence,
                Evidence(f"{silent} could not be asked: its rank may have failed first", "ssh"),
            ),
        )
    taken = None if container.started is None or container.finished is None else container.finished - container.started
    return CommandEnded(
        ts=ctx.clock.unix_time(), outcome=Outcome.FAILED, exit_code=1, seconds=max(0.0, taken or 0.0), node=node.name,
        instance=container.instance_name, verdict=verdict,
    )  # fmt: skip


def _label_foreign_evidence(verdict: Verdict, node: NodeName) -> Verdict:
    """Return a verdict whose evidence names the node of its log, because the log on screen is another one."""
    return replace(
        verdict,
        evidence=tuple(
            one if one.line is None else Evidence(f"line {one.line} on {node}: {one.text}", one.origin)
            for one in verdict.evidence
        ),
    )
