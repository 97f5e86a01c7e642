"""``doctor``: check each node for what is missing, what that causes, and the exact command that fixes it."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from sparkctl.commands.event_stream import build_end, stream_events
from sparkctl.commands.list_endpoints import ServedEndpoint, read_session_endpoints
from sparkctl.commands.request import Request
from sparkctl.concurrency import cancel_and_wait, gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.engines import find_engine
from sparkctl.errors import FREE_DOCKER_DISK, DockerError, DockerPermissionDenied, LoginRefused, NodeError
from sparkctl.model.events import CheckCompleted, CommandEnded, Emit, Event, FindingReported, Outcome
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.kernel_event import KernelLog
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node
from sparkctl.model.sample import Sample
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_duration, format_gib
from sparkctl.monitor import sampler
from sparkctl.monitor.findings import NodeSnapshot, node_settings
from sparkctl.monitor.findings.fabric_detectors import detect_missing_cable, detect_missing_network
from sparkctl.monitor.findings.host_detectors import KernelEventDetector, list_unclean_boot, rate_free_disk
from sparkctl.monitor.findings.node_detectors import detect_once
from sparkctl.monitor.kernel_log import READ_RIGHT_REMEDY, format_log_start, read_kernel_log
from sparkctl.monitor.node_monitor import read_container_list
from sparkctl.monitor.node_status import ContainerInspections
from sparkctl.node.agent_decoder import AgentHello
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.transport.docker.docker_responses import DockerInfo
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_NODE_SECTIONS = ("identity", "memory", "docker", "sudo", "health", "gpu")
_MAX_CLOCK_SKEW_SECONDS = 5.0
_SPARK_PRODUCT = "DGX Spark"
_NOT_REACHED = "not reached"
_DIRECT_CONNECT_SECONDS = 2.0  # seconds in which a server on the same network takes a connection
ReportFindings = Callable[[Iterable[Finding]], None]


@dataclass(frozen=True, slots=True)
class CheckNodes(Request):
    """A request to check nodes."""

    nodes: Sequence[Node]

    def format_as_command(self) -> tuple[str, ...]:
        return ("doctor", *self.format_node_options())

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return check_nodes(ctx, self.nodes)


def check_nodes(ctx: CommandContext, nodes: Sequence[Node]) -> AsyncGenerator[Event, None]:
    """Check all nodes at the same time; emit each finding as soon as it is known.

    Exit 5 if anything is a problem, 3 if a node could not be asked. Differences between nodes come last, when all have
    answered.
    """

    async def check_all_nodes(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        problems = 0

        def report_findings(found: Iterable[Finding]) -> None:
            nonlocal problems
            for check_one_node in found:
                problems += check_one_node.severity is Severity.PROBLEM
                emit(FindingReported.from_finding(ctx.clock.unix_time(), check_one_node))

        async def check_one_node(node: Node) -> tuple[AgentHello, Sample] | NodeError | None:
            result: tuple[AgentHello, Sample] | NodeError | None
            try:
                async with ctx.create_session(node) as session:
                    with isolate_node_failures(node):
                        result = await _check_node(session, ctx, report_findings)
            except NodeError as error:
                report_findings(
                    [Finding(FindingKind.CONNECTION, Severity.PROBLEM, node.name, error.message, remedy=error.hint)]
                )
                result = error
            emit(CheckCompleted(ctx.clock.unix_time(), node.name, ctx.clock.monotonic() - began))
            return result

        results = dict(
            zip([node.name for node in nodes], await gather_or_cancel(*map(check_one_node, nodes)), strict=True)
        )
        known = {name: result for name, result in results.items() if isinstance(result, tuple)}
        report_findings(node_settings.compare_node_versions({name: result for name, (result, _) in known.items()}))
        snapshots = [NodeSnapshot(name, sample, None) for name, (_, sample) in known.items()]
        report_findings([*detect_missing_cable(snapshots), *detect_missing_network(snapshots)])
        outcome = Outcome.UNHEALTHY if problems else Outcome.DONE
        if any(isinstance(result, NodeError) for result in results.values()):
            outcome = Outcome.UNREACHABLE
        return build_end(ctx, began, outcome)

    return stream_events(ctx, check_all_nodes, on_interrupt="interrupted")


async def _check_node(
    session: NodeSession, ctx: CommandContext, tell: ReportFindings
) -> tuple[AgentHello, Sample] | None:
    """Check one node, quick checks first; return its identity and, where the agent runs, a sample."""
    await session.link.connect()
    node = session.node
    inspection = await session.read_node(*_NODE_SECTIONS)
    tell(
        [
            _describe_connection(node, inspection),
            *_check_clock(node, inspection, ctx.clock.unix_time()),
            *_check_memory(node, inspection),
            *_check_drop_caches_right(node, inspection),
        ]
    )
    runs_probe = inspection.kernel_settings is None or inspection.kernel_settings.python
    # two samples take time: read them during the other checks
    # no TaskGroup: where the agent fails, what Docker's check finds is told before that error
    asking = asyncio.create_task(sampler.read_identity_and_sample(session)) if runs_probe else None
    reading_log = asyncio.create_task(read_kernel_log(session, boot_before=True)) if runs_probe else None
    try:
        has_docker = await _check_docker(session, inspection, tell)
        identified = None if asking is None else await asking
        log = None if reading_log is None else await reading_log
    finally:
        await cancel_and_wait([task for task in (asking, reading_log) if task is not None])
    tell(
        node_settings.list_setting_findings(node.name, *identified)
        if identified
        else _check_settings_without_agent(node, inspection)
    )
    tell(_check_kernel_log(node, log))
    if has_docker:
        tell(await _find_open_servers(ctx, session))
    kernel = () if log is None else log.events
    if identified is not None and log is not None:
        tell(list_unclean_boot(node.name, log.boot_before, identified[0].up or 0.0))
    if identified is not None and has_docker:
        listed = await read_container_list(session, ContainerInspections(session), ctx)
        tell(detect_once(NodeSnapshot(node.name, identified[1], listed.instances if listed.known else None, kernel)))
    elif identified is not None:
        tell(KernelEventDetector().detect(NodeSnapshot(node.name, identified[1], None, kernel)))
    return identified


async def _find_open_servers(ctx: CommandContext, session: NodeSession) -> list[Finding]:
    """Return the servers that answer without a key, and to which this machine connects without SSH: so may others."""

    async def find(one: ServedEndpoint) -> list[Finding]:
        place = urlsplit(one.url)
        try:
            async with asyncio.timeout(_DIRECT_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(place.hostname, place.port)
        except (OSError, TimeoutError):
            return []
        address = writer.get_extra_info("peername")[0]
        writer.close()
        if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            return []  # this machine, or a port forwarded to it
        words = f"{sanitize_line(one.instance)} answers anyone on the network, without a key ({one.url})"
        engine = find_engine(one.engine)
        takes_key = engine is not None and engine.api_key_variables
        remedy = "in its profile set " + ("api_key to generate, or " if takes_key else "")
        remedy += "args.host to 127.0.0.1, and reach it with sparkctl tunnel"
        return [Finding(FindingKind.OPEN_SERVER, Severity.NOTE, one.node, words, remedy=remedy)]

    try:
        answers = [] if session.node.is_local else await read_session_endpoints(ctx, session)
    except DockerError:  # told by its own check
        return []
    served = [one for one in answers if isinstance(one, ServedEndpoint)]
    return [
        each for found in await gather_or_cancel(*(find(one) for one in served if not one.needs_key)) for each in found
    ]


def _check_kernel_log(node: Node, log: KernelLog | None) -> Iterator[Finding]:
    """Yield whether the kernel's log can be read, and which right is missing."""
    if log is None:
        return
    if log.source is None:
        yield Finding(
            FindingKind.KERNEL_LOG,
            Severity.UNKNOWN,
            node.name,
            f"the kernel's log cannot be read ({log.trouble or 'no reason given'}): OOM kills, GPU faults (Xid) and the like stay unknown",
            remedy=READ_RIGHT_REMEDY,
        )
        return
    notes = sum(one.count for one in log.events)
    found = f"{notes} known line{'' if notes == 1 else 's'}" if notes else "no known problem"
    words = f"the kernel's log is read ({log.source}): {found} since {format_log_start(log)}"
    if log.skipped:
        words += f"; of a flood of lines {log.skipped:,} were skipped, and the worst of them kept"
    before = log.boot_before
    if before is not None and before.is_clean:
        words += "; the previous boot ended with a shutdown"
    elif before is not None and before.is_clean is None:
        words += f"; how the previous boot ended is not known ({before.trouble or 'no reason given'})"
    yield Finding(FindingKind.KERNEL_LOG, Severity.GOOD, node.name, words)


async def _check_docker(session: NodeSession, inspection: NodeInspection, tell: ReportFindings) -> bool:
    """Check Docker, the GPU in its containers and the disks; return whether Docker answers."""
    node = session.node
    try:
        info = await session.docker.read_info()
        words = f"Docker {info.server_version} (API {info.api_version}, {info.storage_driver})"
        tell(
            [
                Finding(FindingKind.DOCKER, Severity.GOOD, node.name, words),
                *_check_gpu(node, inspection, info),
            ]
        )
        sections = [f"disk={info.root_dir}"] if info.root_dir else []
        if node.models and node.models.startswith("/"):  # sh would not expand ``~``: it is the home of the SSH user
            sections += [f"disk={node.models}", f"path={node.models}"]
        tell(_check_disks(node, await session.read_node(*sections), info))
    except DockerError as error:
        lacks_group = (
            isinstance(error, DockerPermissionDenied) and inspection.docker is not None and not inspection.docker.member
        )
        tell(
            [
                Finding(
                    FindingKind.DOCKER,
                    Severity.PROBLEM,
                    node.name,
                    error.message,
                    remedy=f"sparkctl setup {node.name}" if lacks_group else error.hint,
                )
            ]
        )
        return False
    return True


def _describe_connection(node: Node, inspection: NodeInspection) -> Finding:
    identity = inspection.identity
    if identity is None:
        return Finding(FindingKind.CONNECTION, Severity.GOOD, node.name, "connected")
    parts = [
        identity.product or "does not identify itself as a DGX Spark",
        identity.machine,
        f"kernel {identity.kernel}",
    ]
    parts += [f"driver {identity.driver}"] if identity.driver else []
    parts += [f"DGX OS {identity.os}"] if identity.os else []
    severity = Severity.GOOD if identity.product == _SPARK_PRODUCT else Severity.NOTE
    return Finding(FindingKind.CONNECTION, severity, node.name, f"{identity.user}@{identity.host}: {', '.join(parts)}")


def _check_clock(node: Node, inspection: NodeInspection, now: float) -> Iterator[Finding]:
    if inspection.identity is None or inspection.identity.clock is None:
        return
    skew = inspection.identity.clock - now
    if abs(skew) > _MAX_CLOCK_SKEW_SECONDS:
        yield Finding(
            FindingKind.CLOCK,
            Severity.WARNING,
            node.name,
            f"its clock is {format_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine's: `logs --since` will be off",
            remedy=f"on {node.name}: timedatectl set-ntp true",
        )


def _check_memory(node: Node, inspection: NodeInspection) -> Iterator[Finding]:
    memory = inspection.memory
    if memory is None:
        yield Finding(FindingKind.MEMORY, Severity.UNKNOWN, node.name, "/proc/meminfo could not be read")
        return
    words = f"{format_gib(memory.available)} of {format_gib(memory.total)} available, page cache {format_gib(memory.reclaimable)}"
    yield Finding(FindingKind.MEMORY, Severity.GOOD, node.name, words)
    if memory.swap_total and memory.swap_used > GIB:
        yield Finding(
            FindingKind.SWAP,
            Severity.WARNING,
            node.name,
            f"{format_gib(memory.swap_used)} of swap in use: swapping slows an engine down and hides that a freeze is near",
            remedy=f"when nothing important runs, on {node.name}: sudo swapoff -a && sudo swapon -a",
        )


def _check_drop_caches_right(node: Node, inspection: NodeInspection) -> Iterator[Finding]:
    if inspection.drop_right == "allowed":
        yield Finding(FindingKind.DROP_CACHES, Severity.GOOD, node.name, "the page cache can be dropped before a start")
    elif inspection.drop_right is None:
        yield Finding(
            FindingKind.DROP_CACHES,
            Severity.UNKNOWN,
            node.name,
            "sudo did not report whether the page cache can be dropped",
        )
    else:
        yield Finding(
            FindingKind.DROP_CACHES,
            Severity.PROBLEM,
            node.name,
            "no right to drop the page cache: engines may find too little memory",
            remedy=f"sparkctl setup {node.name}",
        )


def _check_settings_without_agent(node: Node, inspection: NodeInspection) -> Iterator[Finding]:
    """Check the settings from the node inspection alone, where the agent does not run."""
    kernel_settings = inspection.kernel_settings
    if kernel_settings is None:
        return
    if not kernel_settings.python:
        words = "no python3: the live probe cannot run"
        yield Finding(FindingKind.PYTHON, Severity.WARNING, node.name, words, remedy="sudo apt install python3")
    if (
        kernel_settings.earlyoom
        and inspection.memory
        and inspection.memory.swap_total
        and "-s" not in kernel_settings.earlyoom.split()
    ):
        yield Finding(
            FindingKind.EARLYOOM,
            Severity.WARNING,
            node.name,
            "earlyoom runs at its default for swap: it acts only when memory AND swap are low, which with swap on is too late",
            remedy='in /etc/default/earlyoom: EARLYOOM_ARGS="-m 2 -s 80", then: sudo systemctl restart earlyoom',
        )
    settings = {"swappiness": kernel_settings.swappiness, "min_free_kbytes": kernel_settings.min_free_kbytes}
    yield from node_settings.check_kernel_settings(node.name, settings)


def _check_gpu(node: Node, inspection: NodeInspection, info: DockerInfo) -> Iterator[Finding]:
    access = inspection.docker
    if "nvidia" in info.runtimes or (access is not None and access.can_give_gpu):
        yield Finding(FindingKind.GPU, Severity.GOOD, node.name, "the NVIDIA container toolkit is installed")
    else:
        yield Finding(
            FindingKind.GPU,
            Severity.PROBLEM,
            node.name,
            "no NVIDIA container toolkit: containers cannot have the GPU",
            remedy="sudo apt install nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker "
            "&& sudo systemctl restart docker",
        )
    if inspection.gpu is None:
        yield Finding(
            FindingKind.NVIDIA_SMI,
            Severity.UNKNOWN,
            node.name,
            "nvidia-smi is missing or did not answer: GPU memory is not known",
        )


def _check_disks(node: Node, inspection: NodeInspection, info: DockerInfo) -> Iterator[Finding]:
    for disk in inspection.disks:
        if disk.free is None:
            yield Finding(
                FindingKind.DISK, Severity.UNKNOWN, node.name, f"{disk.path}: its free space could not be read"
            )
            continue
        scarce = rate_free_disk(disk.free)
        yield Finding(
            FindingKind.DISK,
            scarce or Severity.GOOD,
            node.name,
            f"{format_gib(disk.free)} of {format_gib(disk.total)} free for {disk.path}",
            remedy=FREE_DOCKER_DISK if scarce and disk.path == info.root_dir else None,
        )
    for path, there in inspection.paths:
        if there is None:
            what = f"cannot tell whether {path} exists: this user may not read its directory"
            yield Finding(FindingKind.MODELS, Severity.UNKNOWN, node.name, what)
        elif not there:
            yield Finding(
                FindingKind.MODELS, Severity.WARNING, node.name, f"{path} does not exist", remedy=f"mkdir -p {path}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionCheck:
    """The result of a first connection. ``problem`` is None where a start has all that it needs.

    ``is_login_refused``: the node is there, and no key opens it.
    """

    node: Node
    words: str
    problem: str | None = None
    remedy: str | None = None
    is_login_refused: bool = False

    @property
    def is_reached(self) -> bool:
        """Whether the login worked, whatever is missing there."""
        return self.problem is None or self.words != _NOT_REACHED


async def check_connection(ctx: CommandContext, node: Node) -> ConnectionCheck:
    """Connect (ask about an unknown host key), identify the node, ask Docker."""
    async with NodeSession(node, ctx.prompter, ctx.clock) as session:
        try:
            await session.link.connect()
            inspection = await session.read_node("identity", "memory")
            identity = inspection.identity
            words = (
                f"{identity.user}@{identity.host}, {identity.product or identity.machine}" if identity else "it answers"
            )
        except NodeError as error:
            return ConnectionCheck(
                node=node,
                words=_NOT_REACHED,
                problem=error.message,
                remedy=error.hint,
                is_login_refused=isinstance(error, LoginRefused),
            )
        try:
            info = await session.docker.read_info()
        except DockerError as error:
            return ConnectionCheck(node=node, words=words, problem=error.message, remedy=error.hint)
        return ConnectionCheck(node=node, words=f"{words}, Docker {info.server_version}")
