"""``check``: ask a running instance whether its answers make sense."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from sparkctl.commands.event_stream import stream_events
from sparkctl.commands.show_log import find_container
from sparkctl.context import CommandContext
from sparkctl.engines import engine_names, load_engine
from sparkctl.errors import DockerError, ExitCode, InvalidInput, NodeError, OperationRefused
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Emit, Event, FindingReported, Outcome, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.model.launch_plan import ContainerLabel, ReadinessTarget
from sparkctl.model.node import Node
from sparkctl.monitor.answer_check import CheckTarget, build_answer_finding, check_answers
from sparkctl.profiles.container_labels import find_container_api_key, parse_port_label, parse_ready_rule_label
from sparkctl.transport.node_session import NodeSession, isolate_node_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInstance:
    """What to check. ``is_strict``: what fails ends the command with exit 5."""

    instance: str
    nodes: Sequence[Node]
    is_full: bool = True
    is_strict: bool = False


def check_instance(ctx: CommandContext, request: CheckInstance) -> AsyncGenerator[Event, None]:
    """Ask it, and stream one finding for each check. Exit 2 for an unknown instance, 3 when its node could not be asked."""
    return stream_events(
        ctx, lambda emit: _check(ctx, request, emit), request.instance, on_interrupt="interrupted; nothing was changed"
    )


async def _check(ctx: CommandContext, request: CheckInstance, emit: Emit) -> CommandEnded:
    began, failures = ctx.clock.monotonic(), []
    for node in request.nodes:
        try:
            async with ctx.create_session(node) as session:
                with isolate_node_failures(node):
                    await session.link.connect()
                    container = await find_container(session, request.instance)
                    if container is None or (container.is_managed and parse_port_label(container) is None):
                        continue  # not here, or a rank that answers no clients
                    failed = await _check_container(ctx, session, container, request, emit)
        except (NodeError, DockerError) as error:
            failures.append(error)
            emit(WarningEmitted(ctx.clock.unix_time(), node.name, error.message, error.hint))
            continue
        is_bad = failed > 0 and request.is_strict
        return CommandEnded(
            ts=ctx.clock.unix_time(), outcome=Outcome.UNHEALTHY if is_bad else Outcome.DONE,
            exit_code=int(ExitCode.UNHEALTHY if is_bad else ExitCode.DONE), seconds=ctx.clock.monotonic() - began,
            node=node.name, instance=request.instance,
        )  # fmt: skip
    if failures:
        raise failures[0]
    where = ", ".join(node.name for node in request.nodes)
    raise InvalidInput(f"no instance {request.instance} runs on {where}", "see what runs: sparkctl status")


async def _check_container(
    ctx: CommandContext, session: NodeSession, container: Container, request: CheckInstance, emit: Emit
) -> int:
    """Check one container; return how many checks failed."""
    engine, rule = container.get_label(ContainerLabel.ENGINE), parse_ready_rule_label(container)
    if not container.is_alive:
        raise OperationRefused(
            f"{request.instance} on {session.node.name} is not running", f"see why: sparkctl logs {request.instance}"
        )
    if engine is None or engine not in engine_names() or rule is None:
        raise OperationRefused(f"{request.instance} was not started by sparkctl: how to ask it is not known")
    run = await session.docker.read_run_options(container.id)
    service = ReadinessTarget(parse_port_label(container), rule, None, find_container_api_key(run))
    target = CheckTarget(service=service, engine=load_engine(engine), command=run.command)
    found = await check_answers(session.link, target, is_full=request.is_full)
    secrets = await session.docker.read_secret_values(container.id)
    for one in found:
        finding = build_answer_finding(one, session.node.name, request.instance, secrets)
        emit(FindingReported.from_finding(ctx.clock.unix_time(), finding))
    return sum(one.severity is Severity.WARNING for one in found)
