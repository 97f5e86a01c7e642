"""Requests to a running instance: ``check`` asks whether its answers make sense, ``say`` lets a speech server speak a text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from sparkctl.commands.event_stream import build_end, stream_events
from sparkctl.commands.show_log import find_container
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import find_engine
from sparkctl.errors import (
    DockerError,
    InvalidInput,
    NodeError,
    OperationRefused,
    ServiceUnproved,
    SparkctlError,
)
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Emit, Event, FindingReported, Outcome, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.model.launch_plan import ContainerLabel, ReadinessRule, ReadinessTarget
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.monitor.answer_check import AnswerCheck, CheckTarget, build_answer_finding, check_answers
from sparkctl.monitor.engine_probe import AudioClip, find_clip_fault, request_speech, resolve_served_model
from sparkctl.monitor.node_views import build_missing_instance_error
from sparkctl.profiles.container_labels import find_container_api_key, parse_port_label, parse_ready_rule_label
from sparkctl.transport.node_session import NodeSession, isolate_node_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInstance:
    """What to check. ``is_strict``: what fails ends the command with exit 5."""

    instance: str
    nodes: Sequence[Node]
    is_full: bool
    is_strict: bool


def check_instance(ctx: CommandContext, request: CheckInstance) -> AsyncGenerator[Event, None]:
    """Ask it, and stream one finding for each check. Exit 2 for an unknown instance, 3 when its node could not be asked."""
    return stream_events(
        ctx, lambda emit: _check(ctx, request, emit), request.instance, on_interrupt="interrupted; nothing was changed"
    )


async def _check(ctx: CommandContext, request: CheckInstance, emit: Emit) -> CommandEnded:
    began, failures = ctx.clock.monotonic(), []
    ended: NodeName | None = None  # where a container of it has ended: it may run on another node
    for node in request.nodes:
        try:
            async with ctx.create_session(node) as session:
                with isolate_node_failures(node):
                    await session.link.connect()
                    container = await find_container(session, request.instance)
                    if container is None or (container.is_managed and parse_port_label(container) is None):
                        continue  # not here, or a rank that answers no clients
                    if not container.is_alive:
                        ended = ended or node.name
                        continue
                    failed = await _check_container(ctx, session, container, request, emit)
        except (NodeError, DockerError) as error:
            failures.append(error)
            continue
        for lost in failures:  # of nodes that could not be asked before
            emit(WarningEmitted(ctx.clock.unix_time(), NodeName(lost.node), lost.message, lost.hint))
        outcome = Outcome.UNHEALTHY if failed > 0 and request.is_strict else Outcome.DONE
        return build_end(ctx, began, outcome, node=node.name, instance=request.instance)
    asked = ", ".join(node.name for node in request.nodes if node.name not in [one.node for one in failures])
    answer: SparkctlError = build_missing_instance_error(request.instance, (), asked)
    if ended is not None:
        see = f"see why: sparkctl logs {request.instance}"
        answer = OperationRefused(f"{request.instance} on {ended} is not running", see)
    if not failures:
        raise answer
    for other in (*failures[1:], *([answer] if asked else [])):
        failures[0].add_message(other)
    raise failures[0]


async def _check_container(
    ctx: CommandContext, session: NodeSession, container: Container, request: CheckInstance, emit: Emit
) -> int:
    """Check one container; return how many checks failed."""
    engine, rule = find_engine(container.get_label(ContainerLabel.ENGINE)), parse_ready_rule_label(container)
    if engine is None or rule is None:
        raise OperationRefused(f"{request.instance} was not started by sparkctl: how to ask it is not known")
    run = await session.docker.read_run_options(container.id)
    service = ReadinessTarget(parse_port_label(container), rule, None, find_container_api_key(run))
    target = CheckTarget(service=service, engine=engine, command=run.command)
    secrets = await session.docker.read_secret_values(container.id)

    def report(one: AnswerCheck) -> None:
        finding = build_answer_finding(one, session.node.name, request.instance, secrets)
        emit(FindingReported.from_finding(ctx.clock.unix_time(), finding))

    found = await check_answers(session.link, target, is_full=request.is_full, report=report)
    failed = sum(one.severity is Severity.WARNING for one in found)
    if failed:
        still = await find_container(session, request.instance)
        if still is None or still.id != container.id or not still.is_alive:
            ended = f"{request.instance} on {session.node.name} ended while it was asked"
            raise OperationRefused(ended, f"see why: sparkctl logs {request.instance}")
    return failed


_SPEECH_TIMEOUT_SECONDS = 600.0  # a page of text takes minutes
MAX_TEXT_LENGTH = 20000  # characters: what comes back is held in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenText:
    """The sound of a text, with where it was made and in how many seconds."""

    node: NodeName
    instance: str
    clip: AudioClip
    body: bytes
    took: float


async def speak_text(
    ctx: CommandContext, nodes: Sequence[Node], text: str, *, instance: str | None, voice: str | None
) -> SpokenText:
    """Speak a text on the one speech server of these nodes, or on ``instance``. Raises `SparkctlError`."""
    if not text.strip():
        raise InvalidInput("there is nothing to say: the text is empty")
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidInput(f"the text has {len(text)} characters; {MAX_TEXT_LENGTH} at most: split it")
    found = await gather_or_cancel(*(_find_servers(ctx, node, instance) for node in nodes))
    failures = [one for one in found if isinstance(one, SparkctlError)]
    servers = [(node, one) for node, here in zip(nodes, found, strict=True) if isinstance(here, list) for one in here]
    if failures and not servers:
        raise failures[0]
    if not servers:
        where = " or ".join(node.name for node in nodes)
        if instance is not None:
            raise OperationRefused(f"{instance} does not run on {where}", "see what runs: sparkctl status")
        words = f"no speech server started by sparkctl is running on {where}"
        raise OperationRefused(words, f"sparkctl up orpheus-tts --node {nodes[-1].name}")
    if len(servers) > 1:
        names = ", ".join(f"{one.instance_name} on {node.name}" for node, one in servers)
        raise InvalidInput(f"several speech servers run: {names}", "choose one: --instance NAME or --node NODE")
    node, container = servers[0]
    async with NodeSession(node, ctx.prompter, ctx.clock) as session:
        with isolate_node_failures(node):
            await session.link.connect()
            return await _request_speech(ctx, session, container, text, voice)


async def _find_servers(ctx: CommandContext, node: Node, instance: str | None) -> list[Container] | SparkctlError:
    """Return the running speech servers of a node: the one that is named, else those that say so in their labels."""
    try:
        async with NodeSession(node, ctx.prompter, ctx.clock) as session:
            with isolate_node_failures(node):
                await session.link.connect()
                there = [one for one in await session.docker.list_containers() if one.is_managed and one.is_alive]
    except (NodeError, DockerError) as error:
        return error
    if instance is not None:
        return [one for one in there if one.instance_name == instance]
    rules = [(one, parse_ready_rule_label(one, needs_line=False)) for one in there]
    return [one for one, rule in rules if rule is not None and rule.probe == "speech"]


async def _request_speech(
    ctx: CommandContext, session: NodeSession, container: Container, text: str, voice: str | None
) -> SpokenText:
    name, node = container.instance_name, session.node.name
    port = parse_port_label(container)
    if port is None:
        raise OperationRefused(f"{name} on {node} has no port that can be asked", f"sparkctl status --node {node}")
    key = find_container_api_key(await session.docker.read_run_options(container.id))
    target = ReadinessTarget(port, ReadinessRule(line=None, health=None, probe="speech"), api_key=key)
    target = await resolve_served_model(session.link, target)
    began = ctx.clock.monotonic()
    answer = await request_speech(session.link, target, text, voice=voice, timeout=_SPEECH_TIMEOUT_SECONDS)
    took = ctx.clock.monotonic() - began
    hint = f"see why: sparkctl logs {name} --node {node} --tail 30"
    if answer.clip is None:
        secrets = await session.docker.read_secret_values(container.id) if answer.result.said else ()
        raise ServiceUnproved(f"{name} on {node} gave no sound: {answer.result.format_masked(secrets)}", hint)
    fault = find_clip_fault(answer.clip)
    if fault is not None:
        raise ServiceUnproved(f"{name} on {node} gave {fault}", hint)
    return SpokenText(node=node, instance=name, clip=answer.clip, body=answer.body, took=took)
