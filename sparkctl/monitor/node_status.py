"""Reads the status of nodes: all instances, ours and foreign, with their phase."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import find_health_paths
from sparkctl.errors import ContainerNotFound, DockerError, DockerUnavailable, LogUnreadable, NodeError
from sparkctl.model.container import SIGKILL_EXIT_CODE, Container, ContainerState, shorten_id
from sparkctl.model.finding import Finding, sort_by_severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import PROVED_PROBES, ContainerLabel, ReadinessRule, ReadinessTarget
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName, NodeState, format_endpoint_url
from sparkctl.model.phase import Phase, Step
from sparkctl.model.sample import MemoryReading
from sparkctl.model.switch_plan import JournalPresence
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.monitor import engine_probe
from sparkctl.monitor.engine_probe import ProbeResult, QueryMarkerSupport, request_proof
from sparkctl.monitor.node_views import NodeStatusView, list_rollback_containers, mark_rollback_containers
from sparkctl.monitor.ranks import apply_dependents, apply_head_state
from sparkctl.monitor.switch_journal_io import build_journal_view
from sparkctl.node.node_inspection import NodeDownload, NodeInspection
from sparkctl.profiles.container_labels import (
    find_container_api_key,
    parse_expected_memory_label,
    parse_needs_label,
    parse_port_label,
    parse_rank_label,
    parse_rank_nodes_label,
    parse_ready_rule_label,
    parse_start_id_label,
)
from sparkctl.transport.node_connection import node_state_for_error
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

if TYPE_CHECKING:
    from sparkctl.logs.analyzer import LogAnalyzer
    from sparkctl.model.kernel_event import KernelEvent
    from sparkctl.model.sample import Sample
    from sparkctl.monitor.meters.engine_meters import EngineMeters
    from sparkctl.node.agent_decoder import AgentHello

FindingsReader = Callable[[NodeName, tuple[Finding, ...]], None]

_TAIL_LINES, _SHORT_TAIL_LINES = 400, 60  # lines
_HEALTH_TIMEOUT = 5.0
_WATCH_SECONDS = 2.0  # between two rounds of `status --watch`
_PROOF_TIMEOUT = 10.0
_PROOF_SECONDS, _NO_PROOF_SECONDS = 900.0, 30.0  # how long a proof counts, and how long that there is none
_DOWNLOAD_TAIL_LINES = 200  # a message a second, and what the client prints between them
_FIGURES_TIMEOUT_SECONDS = 2.5  # an engine with nothing but counters is read twice, a second apart
_SAMPLE_GAP_SECONDS, _READING_TIMEOUT_SECONDS = 0.2, 3.0  # between the two samples of a look, and for all of it
_LOST_EXIT = 255  # Docker's own, for what ran when it went down itself
_SIGNAL_EXITS = (130, SIGKILL_EXIT_CODE, 143)  # 128 and SIGINT, SIGKILL or SIGTERM


async def read_node_status(
    ctx: CommandContext, session: NodeSession, on_findings: FindingsReader | None = None, measures: str | bool = False
) -> NodeStatusView:
    """Return the current status of a node; a failed node has a view with its state and the error.

    ``on_findings`` and ``measures`` as in `read_node_statuses`.
    """
    node = session.node
    try:
        with isolate_node_failures(node):
            return await _build_status_view(ctx, session, on_findings, measures)
    except NodeError as error:
        now = session.link.status
        return NodeStatusView(
            name=node.name,
            state=node_state_for_error(error),
            when=ctx.clock.unix_time(),
            detail=error.message,
            hint=error.hint,
            attempt=now.attempt,
            next_try=now.next_try,
            docker_known=False,
        )
    except DockerError as error:  # it failed between the list and the inspection of a container
        return _build_view_without_docker(ctx, node, error, None)


async def _build_status_view(
    ctx: CommandContext, session: NodeSession, on_findings: FindingsReader | None, measures: str | bool
) -> NodeStatusView:
    await session.link.connect()
    inspection, containers = await gather_or_cancel(
        session.read_node("memory", "processes", "gpu", "journal", "downloads"), _list_containers(session)
    )
    if on_findings is None:
        return await _complete_status_view(ctx, session, inspection, containers)
    # only now: sshd may open no more than one session at a time (MaxSessions)
    view, seen = await gather_or_cancel(
        _complete_status_view(ctx, session, inspection, containers), _read_node_once(session, containers)
    )
    if seen is not None:
        on_findings(session.node.name, seen.find_problems(view))
    wanted = [one for one in view.instances if measures is True or measures in (one.name, one.container)]
    if not wanted or isinstance(containers, DockerError):
        return view
    try:
        async with asyncio.timeout(_FIGURES_TIMEOUT_SECONDS if measures is True else None):
            return await _add_figures(session, view, wanted, containers, 0.0 if seen is None else seen.ahead)
    except TimeoutError:  # an engine that does not answer: the table does not wait for it
        return view


async def _add_figures(
    session: NodeSession,
    view: NodeStatusView,
    wanted: Sequence[InstanceView],
    containers: Sequence[Container],
    ahead: float = 0.0,
    kept: EngineMeters | None = None,
) -> NodeStatusView:
    """Return a node's status with the figures of the wanted instances' engines; without them where the node does not answer.

    ``ahead``: seconds by which the node's clock is ahead of ours; ``kept``: the figures of earlier readings.
    """
    from sparkctl.model.reference import parse_reference_label
    from sparkctl.monitor.meters.engine_meters import EngineMeters

    meters = EngineMeters(session) if kept is None else kept
    labels = {one.id: one.get_label(ContainerLabel.REFERENCE) for one in containers}
    try:
        readings = await meters.read_once(wanted, ahead, is_first=kept is None)
    except NodeError:
        return view

    def add_reading(one: InstanceView) -> InstanceView:
        reading = readings.get(one.container_id or "")
        if reading is None:
            return one
        return replace(
            one, numbers=reading.numbers, reference=parse_reference_label(labels.get(one.container_id or ""))
        )

    return replace(view, instances=tuple(map(add_reading, view.instances)))


async def _complete_status_view(
    ctx: CommandContext,
    session: NodeSession,
    inspection: NodeInspection,
    containers: tuple[Container, ...] | DockerError,
) -> NodeStatusView:
    node = session.node
    left = build_journal_view(inspection.journal)
    switch = None if left.found is JournalPresence.NONE else left
    if isinstance(containers, DockerError):
        return replace(_build_view_without_docker(ctx, node, containers, inspection.memory), switch=switch)
    note_unproved_starts(ctx, session, containers)
    instances = await gather_or_cancel(
        *(build_instance_view(session, c, inspection.get_container_memory(c.id)) for c in containers)
    )
    note_tokens(ctx, session, instances)
    shown = mark_rollback_containers([one for one in instances if one], list_rollback_containers(switch))
    shown = (*shown, *(build_download_view(node, one) for one in inspection.downloads))
    return NodeStatusView(
        name=node.name, state=NodeState.OK, when=ctx.clock.unix_time(), memory=inspection.memory, instances=shown, switch=switch,
    )  # fmt: skip


def note_unproved_starts(ctx: CommandContext, session: NodeSession, containers: Iterable[Container]) -> None:
    """Mark the containers whose start, from this computer, saw no token: nothing takes them as ready before one came.

    A start that is still watched asks for the token itself; one that was left is asked for by whoever looks.
    """
    session.doubted.clear()
    session.awaited.clear()
    node = session.node.name
    awaited = ctx.history.list_awaited_tokens(node)
    for one in containers:
        if one.is_managed and shorten_id(one.id) in awaited:
            recent = ctx.history.list_operations(one.instance_name, node, most=3)
            is_watched = any(each.is_running and each.kind == "start" for each in recent)
            (session.awaited if is_watched else session.doubted).add(one.id)


def note_tokens(ctx: CommandContext, session: NodeSession, instances: Iterable[InstanceView | None]) -> None:
    """Remember which of the marked containers gave a token by now."""
    for one in instances:
        if one is not None and one.phase is Phase.READY and one.container_id in session.doubted:
            ctx.history.note_token(one.name, session.node.name, one.container_id)


async def _list_containers(session: NodeSession) -> tuple[Container, ...] | DockerError:
    try:
        return await session.docker.list_containers()
    except DockerError as error:
        return error


def _build_view_without_docker(
    ctx: CommandContext, node: Node, error: DockerError, memory: MemoryReading | None
) -> NodeStatusView:
    return NodeStatusView(
        name=node.name,
        state=NodeState.OK,
        when=ctx.clock.unix_time(),
        detail=error.message,
        hint=error.hint,
        memory=memory,
        docker_known=False,
    )


async def read_node_statuses(
    ctx: CommandContext, nodes: Sequence[Node], on_findings: FindingsReader | None = None, measures: str | bool = False
) -> tuple[NodeStatusView, ...]:
    """Return a view of each node, read at the same time.

    ``on_findings`` gets what one look at a node finds, the worst first; it is not called for a node whose agent does not run.
    With it, ``measures`` names the instance whose engine's figures are read, too; True: of all, within a
    few seconds. That takes a second.
    """

    async def read_one_node(node: Node) -> NodeStatusView:
        async with NodeSession(node, ctx.prompter, ctx.clock) as session:
            return await read_node_status(ctx, session, on_findings, measures)

    return _apply_head_states(await gather_or_cancel(*(read_one_node(node) for node in nodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeReading:
    """One look at a node: its identity, a sample, what its kernel logged, and what Docker tells of its containers.

    ``ahead``: seconds by which the node's clock is ahead of ours.
    """

    hello: AgentHello
    sample: Sample
    ahead: float
    kernel: tuple[KernelEvent, ...]
    inspections: ContainerInspections

    def find_problems(self, view: NodeStatusView) -> tuple[Finding, ...]:
        """Return what it proves, the worst first; ``view``: the node's status at that time."""
        from sparkctl.monitor.findings import NodeSnapshot, node_settings
        from sparkctl.monitor.findings.node_detectors import detect_once

        is_known = view.docker_known and view.state is NodeState.OK
        instances = tuple(map(self.inspections.add_inspection, view.instances)) if is_known else None
        settings = node_settings.list_setting_problems(view.name, self.hello, self.sample)
        return sort_by_severity([*settings, *detect_once(NodeSnapshot(view.name, self.sample, instances, self.kernel))])


async def _read_node_once(session: NodeSession, containers: tuple[Container, ...] | DockerError) -> _NodeReading | None:
    """Return one look at a node that is connected; None where the agent does not run, or the node answers no more."""
    from sparkctl.monitor.kernel_log import read_kernel_log
    from sparkctl.monitor.sampler import DOCKER_ROOT, read_identity_and_sample

    disks = [DOCKER_ROOT, *([session.node.models] if session.node.models else [])]
    inspections = ContainerInspections(session)

    async def read_sample() -> tuple[AgentHello, Sample, float] | None:
        known = await read_identity_and_sample(session, disks, _SAMPLE_GAP_SECONDS)
        return None if known is None else (*known, known[1].time - session.clock.unix_time())

    try:
        with isolate_node_failures(session.node):
            async with asyncio.timeout(_READING_TIMEOUT_SECONDS):
                listed = () if isinstance(containers, DockerError) else containers
                known, _ = await gather_or_cancel(read_sample(), inspections.update_inspections(listed))
                log = await read_kernel_log(session)
    except (NodeError, TimeoutError):
        return None
    if known is None:
        return None
    hello, sample, ahead = known
    kernel = () if log is None else log.events
    return _NodeReading(hello=hello, sample=sample, ahead=ahead, kernel=kernel, inspections=inspections)


def _apply_head_states(views: Sequence[NodeStatusView]) -> tuple[NodeStatusView, ...]:
    everything = [one for view in views for one in view.instances]
    return tuple(
        replace(view, instances=apply_dependents(apply_head_state(view.instances, everything), everything))
        for view in views
    )


async def watch_node_statuses(
    ctx: CommandContext, nodes: Sequence[Node], *, measures: bool
) -> AsyncGenerator[tuple[NodeStatusView, ...], None]:
    """Yield views of all nodes again and again; lost connections reconnect by themselves, visibly. ``measures``: with the
    figures of the engines, from the second view on."""
    sessions = [NodeSession(node, ctx.prompter, ctx.clock) for node in nodes]
    returning: dict[str, asyncio.Task[None]] = {}
    meters: list[EngineMeters | None] = [None] * len(sessions)
    if measures:
        from sparkctl.monitor.meters.engine_meters import EngineMeters

        meters = [EngineMeters(session) for session in sessions]
    try:
        while True:
            pairs = zip(sessions, meters, strict=True)
            yield _apply_head_states(
                await gather_or_cancel(*(_read_or_show_reconnect(ctx, s, returning, kept) for s, kept in pairs))
            )
            await ctx.clock.sleep(_WATCH_SECONDS)
    finally:
        for task in returning.values():
            task.cancel()
        await asyncio.gather(*returning.values(), return_exceptions=True)
        for session in sessions:
            await session.__aexit__(None, None, None)


async def _read_or_show_reconnect(
    ctx: CommandContext, session: NodeSession, returning: dict[str, asyncio.Task[None]], meters: EngineMeters | None
) -> NodeStatusView:
    """Read the status, with the figures of ``meters`` if given, or show the reconnect that runs in the background."""
    task = returning.get(session.node.name)
    if task is not None and not task.done():
        now = session.link.status
        return NodeStatusView(
            name=session.node.name,
            state=now.state,
            when=ctx.clock.unix_time(),
            detail=now.detail,
            hint=None,
            attempt=now.attempt,
            next_try=now.next_try,
        )
    view = await read_node_status(ctx, session)
    if view.state in (NodeState.UNREACHABLE, NodeState.STARVED, NodeState.UNKNOWN):
        # no TaskGroup: that it does not come back is no error here; each round shows the connection's own state
        returning[session.node.name] = asyncio.ensure_future(session.link.reconnect())
    if meters is not None and view.state is NodeState.OK:
        with suppress(TimeoutError):  # an engine that does not answer: the table does not wait for it
            async with asyncio.timeout(_FIGURES_TIMEOUT_SECONDS):
                return await _add_figures(session, view, view.instances, (), kept=meters)
    return view


async def build_instance_view(session: NodeSession, container: Container, memory: int | None) -> InstanceView | None:
    """Return a container's view, ``held`` being its memory.

    None for a foreign container that has ended, and for one that disappeared meanwhile.
    """
    view = InstanceView(
        name=container.instance_name if container.is_managed else container.name,
        node=session.node.name,
        container=container.name,
        image=container.image,
        state=container.state,
        status=container.status,
        ours=container.is_managed,
        memory=memory,
        phase=None,
        container_id=container.id,
    )
    if not container.is_managed:
        if not container.is_alive:
            return None
        if container.get_label(ContainerLabel.DOWNLOAD) is None:
            return view
        step, detail = await _read_download_progress(session, container)
        profile = container.get_label(ContainerLabel.PROFILE)
        return replace(view, phase=Phase.PULLING, step=step, detail=detail, profile=profile)
    try:
        phase, step, detail = await _read_phase(session, container)
    except ContainerNotFound:
        return None
    except DockerError as error:  # of this container: the others are known
        if isinstance(error, DockerUnavailable):
            await session.docker.ping()  # raises the same if Docker answers to nothing
        phase, step, detail = Phase.UNKNOWN, None, error.message
    if phase is Phase.READY and container.id in session.awaited:
        phase, step = Phase.WARMING, Step("first token")
    rule = parse_ready_rule_label(container, needs_line=False)
    return replace(
        view,
        phase=phase,
        step=step,
        detail=detail,
        probe=None if rule is None else rule.probe,
        profile=container.get_label(ContainerLabel.PROFILE),
        engine=container.get_label(ContainerLabel.ENGINE),
        operator=container.get_label(ContainerLabel.OPERATOR),
        endpoint=format_endpoint_url(session.node, parse_port_label(container)) if container.is_alive else None,
        port=parse_port_label(container),
        expected=parse_expected_memory_label(container),
        rank=parse_rank_label(container),
        nodes=parse_rank_nodes_label(container),
        run=parse_start_id_label(container),
        needs=tuple(f"{name}@{node}" for name, node in parse_needs_label(container)),
    )


def build_download_view(node: Node, download: NodeDownload) -> InstanceView:
    """Return a download that runs on the node itself as what it is: a process without a container."""
    step, detail = _parse_download_progress(download.messages)
    return InstanceView(
        name=sanitize_line(download.name), node=node.name, container="", image="", state=ContainerState.RUNNING,
        status="runs on the node itself", ours=False, memory=None, phase=Phase.PULLING, step=step, detail=detail,
        profile=None if download.profile is None else sanitize_line(download.profile),
    )  # fmt: skip


async def _read_download_progress(session: NodeSession, container: Container) -> tuple[Step | None, str | None]:
    """Return how far the download of a model is, from the messages of its program. The imports are late: it is rare."""
    from sparkctl.logs.reader import read_log

    messages: list[str] = []
    try:
        async with (
            asyncio.timeout(_INSPECTION_PATIENCE_SECONDS),
            aclosing(read_log(session, container.id, tail=_DOWNLOAD_TAIL_LINES)) as batches,
        ):
            async for lines in batches:
                messages += [line.text for line in lines]
    except (DockerError, LogUnreadable, TimeoutError):  # it is at work, or was a moment ago
        pass  # what came until then counts
    return _parse_download_progress(messages)


def _parse_download_progress(messages: Iterable[str]) -> tuple[Step | None, str | None]:
    from sparkctl.model.text.sanitize import load_json_map
    from sparkctl.model.text.units import format_size

    done, total, waits = None, None, ""
    for text in messages:
        message = load_json_map(text) or {}
        total = message.get("total", total)
        done = message.get("at", message.get("have", done))
        waits = ", waits while an engine loads its weights" if message.get("held") is True else waits
        waits = "" if message.get("held") is False else waits
    if not isinstance(done, int):
        return Step("model"), waits.removeprefix(", ") or None
    if not isinstance(total, int) or total <= 0:
        return Step("model"), format_size(done) + waits
    return Step("model", fraction=min(1.0, done / total)), f"{format_size(done)} of {format_size(total)}{waits}"


async def _read_phase(session: NodeSession, container: Container) -> tuple[Phase, Step | None, str | None]:
    """Return the phase of our instance, by its own ready rule; the tail of its log gives the step of a load."""
    if not container.is_alive:
        ended = await session.docker.inspect_container(container.id)
        failed = ended.exit_code not in (0, None) or bool(ended.error)
        why = await _redact_container_text(session, container, ended.error)
        if why is None and ended.exit_code == SIGKILL_EXIT_CODE:
            why = await _describe_guard_stop(session, container)
        if why is None and ended.exit_code in _SIGNAL_EXITS and await _was_asked_to_stop(session, ended):
            return Phase.STOPPED, None, f"somebody stopped it (exit code {ended.exit_code})"
        if why is None and ended.exit_code in (SIGKILL_EXIT_CODE, _LOST_EXIT):
            why = await _describe_kernel_end(session, ended)
        if not failed and ended.exit_code == 0:
            why = await _describe_unasked_end(session, container)
            failed = why is not None
        return (Phase.FAILED if failed else Phase.STOPPED), None, why
    if container.state is ContainerState.PAUSED:
        where = f"on {session.node.name}: docker unpause {container.name}"
        return Phase.UNKNOWN, None, f"paused (docker pause), it answers no requests until {where}"
    rule = parse_ready_rule_label(container, needs_line=False)
    if rule is None:
        return Phase.UNKNOWN, None, "its labels have no usable rule for when it is ready"
    is_doubted = container.id in session.doubted
    quiet = None if is_doubted else await _ask_health_paths(session, container, rule)
    if quiet is not None:
        return quiet, None, None if quiet is Phase.READY else "it was asked to stop"
    target = ReadinessTarget(parse_port_label(container), rule)
    marker_support = QueryMarkerSupport()  # what the health path shows holds for the proof, too
    answer = await engine_probe.check_health(session.link, target, _HEALTH_TIMEOUT, marker_support)
    if (
        answer.good
        and (rule.probe in PROVED_PROBES or rule.requires_key or is_doubted)
        and (rule.health is not None or await _is_past_ready_line(session, container, rule))
    ):
        unproved = await _find_missing_proof(session, container, target, marker_support)
        return (Phase.READY, None, None) if unproved is None else (Phase.UNPROVED, None, unproved)
    if answer.good and rule.health is not None:
        await _remember_ready(session, container, rule)
        return Phase.READY, None, None
    # Secrets are read only if the engine's answer is shown, so that the status of ready instances stays fast.
    why_not = (
        answer.format_masked(await session.docker.read_secret_values(container.id)) if answer.said else answer.what
    )
    return await _read_phase_from_log(session, container, rule, why_not)


async def _ask_health_paths(session: NodeSession, container: Container, rule: ReadinessRule) -> Phase | None:
    """Return the phase of an engine whose health path makes it generate, by paths that do not.

    None if they prove nothing: then the health path has to be used. A version without a quiet readiness path is asked whether
    it is alive, once it was found ready; only its log shows a stop.
    """
    port = parse_port_label(container)
    paths = find_health_paths(container.get_label(ContainerLabel.ENGINE) or "", rule.health or "")
    if paths is None or port is None:
        return None
    if container.id not in session.seen_ready:
        status = await engine_probe.request_status(session.link, port, paths.ready, _HEALTH_TIMEOUT)
        return Phase.READY if status is not None and 200 <= status < 300 else None
    status = await engine_probe.request_status(session.link, port, paths.alive, _HEALTH_TIMEOUT)
    begun = (await session.docker.inspect_container(container.id)).started
    if not engine_probe.is_alive_status(status) or session.seen_ready[container.id] != begun:
        del session.seen_ready[container.id]
        return None
    log = None
    with suppress(LogUnreadable):
        log = await _read_log_tail(session, container, _SHORT_TAIL_LINES)
    if log is not None and log.fatal_line is not None:
        return None
    return Phase.STOPPING if log is not None and log.stopped is not None else Phase.READY


async def _is_past_ready_line(session: NodeSession, container: Container, rule: ReadinessRule) -> bool:
    """Tell whether a service without a health path has started, by its log."""
    if rule.line is None:
        return True
    try:
        log = await _read_log_tail(session, container)
    except LogUnreadable:
        return False
    return log is not None and log.ready_line_seen and log.stopped is None and log.fatal_line is None


async def _find_missing_proof(
    session: NodeSession, container: Container, target: ReadinessTarget, marker_support: QueryMarkerSupport
) -> str | None:
    """Return why a service is not proved, None where it is. It is asked again only now and then: proof takes work."""
    now, (asked_at, why) = session.clock.monotonic(), session.proofs.get(container.id, (None, None))
    if asked_at is not None and now - asked_at < (_PROOF_SECONDS if why is None else _NO_PROOF_SECONDS):
        return why
    if target.ready.probe in PROVED_PROBES or container.id in session.doubted:
        run = await session.docker.read_run_options(container.id)
        target = replace(target, api_key=find_container_api_key(run))
        service = await engine_probe.resolve_served_model(session.link, target, marker_support)
        try:
            async with asyncio.timeout(_PROOF_TIMEOUT):
                answer = await request_proof(session.link, service, session.clock, marker_support, _PROOF_TIMEOUT)
        except TimeoutError:
            answer = ProbeResult(good=False, what=f"it gave no answer within {_PROOF_TIMEOUT:.0f} s")
    else:  # no token is asked for here: that would disturb it
        answer = await engine_probe.check_key_required(session.link, target, marker_support, _PROOF_TIMEOUT)
    if not answer.good and not answer.unproven and asked_at is not None and why is None:
        return None  # it proved itself before, and is busy now
    if not answer.good:
        secrets = await session.docker.read_secret_values(container.id) if answer.said else ()
        why = answer.format_masked(secrets)
    session.proofs[container.id] = now, None if answer.good else why
    return None if answer.good else why


async def _remember_ready(session: NodeSession, container: Container, rule: ReadinessRule) -> None:
    """Remember that it was found ready, if another health request would make it generate again."""
    if find_health_paths(container.get_label(ContainerLabel.ENGINE) or "", rule.health or "") is not None:
        session.seen_ready[container.id] = (await session.docker.inspect_container(container.id)).started


async def _describe_guard_stop(session: NodeSession, container: Container) -> str | None:
    """Describe the guard's receipt for a container. The imports are late, as this is rare."""
    from sparkctl.logs.start_verdict import describe_guard_kill
    from sparkctl.monitor import guard_client

    try:
        receipt = await guard_client.read_receipt(session, container.id)
    except NodeError:  # a lost connection is met by whatever is read next
        return None
    return None if receipt is None else f"stopped by the guard: {describe_guard_kill(receipt)}"


async def _describe_kernel_end(session: NodeSession, container: Container) -> str | None:
    """Describe what the kernel's log tells of a container's end, read once. The imports are late, as this is rare."""
    from sparkctl.monitor.kernel_log import explain_end, read_kernel_log_if_possible

    key = (container.id, container.finished)
    if key not in session.kernel_ends:
        log = await read_kernel_log_if_possible(session)
        if log is None:
            return None  # the next look may have it
        why = explain_end(log, container)
        session.kernel_ends[key] = None if why is None else f"ended because {why}"
    return session.kernel_ends[key]


async def _redact_container_text(session: NodeSession, container: Container, text: str | None) -> str | None:
    from sparkctl.model.text.secrets import redact

    return redact(text, await session.docker.read_secret_values(container.id)) if text else None


async def _read_phase_from_log(
    session: NodeSession, container: Container, rule: ReadinessRule, why_not: str
) -> tuple[Phase, Step | None, str | None]:
    """Return the phase and step by the tail of the log."""
    try:
        log = await _read_log_tail(session, container)
    except LogUnreadable:
        return Phase.UNKNOWN, None, f"{why_not}; its log cannot be read"
    if log is None:
        return Phase.UNKNOWN, None, why_not
    if log.stopped is not None and log.fatal_line is None:
        return Phase.STOPPING, None, f"it was asked to stop; {why_not}"
    # a worker answers no clients: its head decides
    is_worker = not (parse_rank_label(container) or "0").startswith("0")
    if rule.health is None and log.ready_line_seen and not is_worker:
        return Phase.READY, None, None
    return (log.phase if log.fatal_line is None else Phase.FAILED), log.step, why_not


async def _describe_unasked_end(session: NodeSession, container: Container) -> str | None:
    """Return why an end with exit code 0 is no stop: the failure at the end of its log, as of vLLM with a killed engine core, or
    that it never was ready, as `up` says."""
    from sparkctl.engines.base import FailureWeight

    try:
        log = await _read_log_tail(session, container)
    except DockerError:
        return None  # for example, it is being removed
    root = None if log is None else log.root_failure
    if root is not None and root.failure is not None and root.failure.weight >= FailureWeight.DEATH:
        return f"it ended with exit code 0, although it was not asked to: {root.failure.summary}"
    if log is None or log.stopped is not None:
        return None
    is_whole = log.latest_line is None or log.latest_line.number < _TAIL_LINES
    saw_no_token = container.id in session.doubted | session.awaited and not log.has_served
    if saw_no_token or (is_whole and log.ready.line is not None and not log.was_ready):
        return "it ended by itself, with exit code 0, before it was ready"
    return None


async def _was_asked_to_stop(session: NodeSession, container: Container) -> bool:
    """Tell whether a container that ended by a signal was stopped: by its log, or by the signal if the log ends without error.

    SIGKILL alone proves nothing: it ends a slow orderly stop, and SGLang kills itself with it.
    """
    if container.oom_killed:
        return False
    try:
        log = await _read_log_tail(session, container)
    except DockerError:
        return False
    if log is None or log.fatal_line is not None:
        return False
    return log.stopped is not None or (container.exit_code != SIGKILL_EXIT_CODE and log.final_error is None)


async def _read_log_tail(session: NodeSession, container: Container, lines: int = _TAIL_LINES) -> LogAnalyzer | None:
    """Read the end of its log, None if its engine is not known. The imports are late, as this is rarely needed."""
    from sparkctl.engines import engine_names
    from sparkctl.logs.reader import analyze_log

    engine = container.get_label(ContainerLabel.ENGINE) or ""
    if engine not in engine_names():
        return None
    rule = parse_ready_rule_label(container) or ReadinessRule(line=None, health=None)
    # After a restart, older lines of the log do not describe the current run.
    begun = (await session.docker.inspect_container(container.id)).started
    return await analyze_log(session, container.id, engine, rule, since=begun, tail=lines)


_INSPECTION_SECONDS = 30.0  # seconds: an environment never changes, and a restart is not urgent
_INSPECTION_PATIENCE_SECONDS = 2.0  # seconds that the list of all waits for them: Docker may hang on a single container
_MAX_INSPECTIONS = 24  # containers a round
_MAX_INSPECTIONS_AT_ONCE = 4  # where sshd forwards no sockets each is a session, of which it allows ten


class ContainerInspections:
    """The inspections of one node's containers, each at most half a minute old."""

    def __init__(self, session: NodeSession) -> None:
        self._session = session
        self._known: dict[str, tuple[float, Container | None]] = {}  # None: it could not be inspected
        self._free = asyncio.Semaphore(_MAX_INSPECTIONS_AT_ONCE)

    async def update_inspections(self, containers: Iterable[Container]) -> None:
        """Inspect running containers that are due, and forget those that are gone. Raises ConnectionLost.

        Of one that Docker does not inspect, or not soon, the last inspection stays.
        """
        now = self._session.clock.monotonic()
        alive = {one.id: one for one in containers if one.is_alive}
        self._known = {key: seen for key, seen in self._known.items() if key in alive}
        due = [key for key in alive if key not in self._known or now - self._known[key][0] >= _INSPECTION_SECONDS]
        until = asyncio.get_running_loop().time() + _INSPECTION_PATIENCE_SECONDS
        await gather_or_cancel(*(self._inspect_container(key, now, until) for key in due[:_MAX_INSPECTIONS]))

    async def _inspect_container(self, key: str, now: float, until: float) -> None:
        """Inspect a container. ``until``: when the list waits no longer, by the loop's time; one whose turn has not come
        by then stays due, one that Docker hangs on is asked again half a minute later.
        """
        try:
            async with asyncio.timeout_at(until), self._free:
                self._known[key] = (now, self.get_container(key))
                self._known[key] = (now, await self._session.docker.inspect_container(key))
        except (DockerError, TimeoutError):
            return

    def get_container(self, container_id: str | None) -> Container | None:
        """Return the last inspection of a container, None if there was none."""
        seen = self._known.get(container_id or "")
        return None if seen is None else seen[1]

    def add_inspection(self, one: InstanceView) -> InstanceView:
        """Return an instance with the data of its inspection."""
        found = self.get_container(one.container_id)
        return one if found is None else replace(one, restarts=found.restart_count, nccl=found.nccl)
