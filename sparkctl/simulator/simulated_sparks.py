"""Two simulated Sparks in this process, a config for them, and the scenarios: what runs there at the start."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncssh

from sparkctl.engines.base import EngineRank
from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.engines.simulation.simulated_clock import SimClock, SimPace
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.fabric_route import NodeLanes
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.units import GIB
from sparkctl.monitor.find_fabric_route import build_nccl_environment, find_fabric_route
from sparkctl.node.node_inspection import decode_inspection
from sparkctl.profiles.launch_planning import RankPlacement, build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.engine_process import EngineProcess
from sparkctl.simulator.node_programs.inspection_output import format_inspection
from sparkctl.simulator.node_programs.shell_commands import LOOPBACK, SimSshServer
from sparkctl.simulator.node_programs.sim_guard import SimGuard
from sparkctl.simulator.sim_node import (
    FABRIC_INTERFACES,
    HOME,
    USER,
    NodeFault,
    SimNode,
    SimNodeOptions,
    build_rank_network,
    get_interface_address,
)
from sparkctl.transport.docker.create_request import build_create_request

DIRECTORY_PREFIX = "sparkctl-sim-"  # of the temporary directory; the id of its process follows
_SSH_PORT = 2022  # of a Spark with an address of its own: whoever has it has the address
_POLL_SECONDS = 0.1  # in real seconds
_REQUEST_DELAY_SECONDS = 6.0  # seconds from ready until somebody uses it


async def fast_forward_while_busy(clock: SimClock, rate: float, nodes: Sequence[SimDockerDaemon]) -> None:
    """Run the clock at ``rate`` while something starts or stops on a node, and at its normal rate otherwise; until cancelled."""
    rest = clock.rate
    while True:
        wanted = rate if any(docker.is_busy for docker in nodes) else rest
        if clock.rate != wanted:
            clock.set_rate(wanted)
        await asyncio.sleep(_POLL_SECONDS)


async def send_requests_when_ready(process: EngineProcess) -> None:
    """Send one request after the other to a language model, beginning a few seconds after it is ready."""
    await process.ready.wait()
    await process.node.clock.sleep(_REQUEST_DELAY_SECONDS)
    if (
        process.engine.writes_text
        and not process.launch.rank
        and not process.is_stopping
        and process.launch.fault is None
    ):
        process.add_background_load(1, since=0.0)


DEMO_SPEED = 42.0  # simulated seconds per real second at speed 1: a start of seven minutes takes ten seconds


class SimulatedSparks:
    """An async context: while it is open, each node is an SSH server on 127.0.0.1.

    ``speed`` 1 is the demo's pace (`DEMO_SPEED`), 50 a test's; ``decode_speed`` 1 generates tokens as fast as a Spark.
    ``options`` and ``faults``: by node name. ``clock``: the clock of everything here, a new one by default. ``busy_rate``: how many
    times as fast the clock runs while something starts or stops; then engines also get requests as soon as they are ready.
    ``is_reachable``: each node has its own loopback address where this machine allows it (Linux does), and its engines answer there;
    ``report_taken_port`` gets the address that another program has already.
    The keys are made for this run only, in a directory of mode 0700.
    """

    def __init__(
        self,
        scenario: str = "empty",
        seed: int = 1,
        speed: float = 1.0,
        decode_speed: float = 1.0,
        nodes: Sequence[str] = ("spark1", "spark2"),
        options: Mapping[str, SimNodeOptions] | None = None,
        faults: Mapping[str, str] | None = None,
        clock: SimClock | None = None,
        busy_rate: float | None = None,
        is_reachable: bool = False,
        report_taken_port: Callable[[str], None] | None = None,
    ) -> None:
        if scenario not in SCENARIOS:
            raise ValueError(f"no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
        pace = self.pace = SimPace(speed * DEMO_SPEED, decode_speed, clock or SimClock())
        self.scenario = scenario
        self.nodes = {name: SimNode(name, pace, seed, (options or {}).get(name)) for name in nodes}
        if report_taken_port is not None:
            for node in self.nodes.values():
                node.report_taken_port = report_taken_port
        self.fabric = build_rank_network(self.nodes)
        for name, fault in (faults or {}).items():
            self.nodes[name].fault = EngineFault(fault)
        self.docker: dict[str, SimDockerDaemon] = {}
        self.guards: dict[str, SimGuard] = {}
        self.ports: dict[str, int] = {}
        self.sshd: dict[str, SimSshServer] = {}
        self._busy_rate, self._is_reachable = busy_rate, is_reachable
        self._hurrying: asyncio.Task[None] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def directory(self) -> Path:
        """Where the keys and the config are."""
        if self._directory is None:
            raise RuntimeError("the simulated Sparks are not open")
        return Path(self._directory.name)

    @property
    def identity_path(self) -> Path:
        """The path of the client's private key."""
        return self.directory / "id_ed25519"

    @property
    def known_hosts_path(self) -> Path:
        """The file with the nodes' host keys."""
        return self.directory / "known_hosts"

    @property
    def config_path(self) -> Path:
        """The path of the config, for SPARKCTL_CONFIG."""
        return self.directory / "config.yaml"

    @property
    def config_text(self) -> str:
        lines = ["nodes:"]
        for name, port in self.ports.items():
            entry = {"name": name, "host": self.nodes[name].host or LOOPBACK, "port": port, "user": USER}
            entry |= {"identity": str(self.identity_path), "known_hosts": str(self.known_hosts_path)}
            lines.append(f"- {json.dumps(entry)}")
        return "\n".join([*lines, ""])

    def write_config(self, directory: Path) -> Path:
        """Write the config into a directory; return the file."""
        path = directory / "config.yaml"
        path.write_text(self.config_text, encoding="utf-8")
        return path

    async def __aenter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-")  # mkdtemp: mode 0700
        client = asyncssh.generate_private_key("ssh-ed25519", comment="simulated Sparks")
        client.write_private_key(str(self.identity_path))
        self.identity_path.chmod(0o600)
        hosts = []
        for name, node in self.nodes.items():
            host_key = asyncssh.generate_private_key("ssh-ed25519")
            node.address = get_interface_address(node, next(iter(FABRIC_INTERFACES.values()))) or node.address
            node.is_cabled = lambda: not self.fabric.is_cut
            self.docker[name] = SimDockerDaemon(node, self.fabric)
            node.guard = self.guards[name] = SimGuard(node, self.docker[name], self.directory / f"guard-{name}")
            self.sshd[name] = SimSshServer(node, self.docker[name], self.guards[name], host_key, client)
            address, self.ports[name] = await self._listen(self.sshd[name])
            node.host = address if self._is_reachable else None
            hosts.append(f"[{address}]:{self.ports[name]} {host_key.export_public_key().decode().strip()}\n")
        self.known_hosts_path.write_text("".join(hosts), encoding="utf-8")
        self.write_config(self.directory)
        await SCENARIOS[self.scenario](list(self.docker.values()))
        if self._busy_rate is not None:
            for docker in self.docker.values():
                docker.visitors = send_requests_when_ready
            # no TaskGroup: it runs until `__aexit__`, beside the block of whoever uses these Sparks
            self._hurrying = asyncio.create_task(
                fast_forward_while_busy(self.pace.clock, self._busy_rate, list(self.docker.values()))
            )
        return self

    async def _listen(self, sshd: SimSshServer) -> tuple[str, int]:
        """Open its port at an address that no other simulated Spark has; return both."""
        for number in range(2, 255) if self._is_reachable else ():
            address = f"127.0.0.{number}"
            try:
                return address, await sshd.listen(address, _SSH_PORT)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    break  # this machine has no such addresses
        return LOOPBACK, await sshd.listen()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hurrying is not None:
            self._hurrying.cancel()
            await asyncio.gather(self._hurrying, return_exceptions=True)
        for sshd in self.sshd.values():
            await sshd.close()
        for guard in self.guards.values():
            await guard.close()
        for docker in self.docker.values():
            await docker.close()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


@contextmanager
def run_in_background(**settings: Any) -> Iterator[Path]:
    """Run `SimulatedSparks(**settings)` in a thread; yield the path of the config, for SPARKCTL_CONFIG."""
    opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Path]] = Future()
    thread = threading.Thread(
        target=_run_sparks_in_thread, args=(opened, settings), name="simulated-sparks", daemon=True
    )
    thread.start()
    loop, leave, config = opened.result()
    try:
        yield config
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(timeout=10)


def _run_sparks_in_thread(
    opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Path]], settings: dict[str, Any]
) -> None:
    async def run_until_stopped() -> None:
        leave = asyncio.Event()
        async with SimulatedSparks(**settings) as sparks:
            opened.set_result((asyncio.get_running_loop(), leave, sparks.config_path))
            await leave.wait()

    try:
        asyncio.run(run_until_stopped())
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(error)


HOUR_SECONDS = 3600.0
PAST_LOAD_SECONDS = 600.0  # seconds of work in the log and in the counters
FATAL_AER_LINE = "pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:00:00.0"
ORPHAN_PID = 2811  # of an engine whose parent has died
# How many hours each model has been ready where a scenario begins with it.
READY_HOURS = {"qwen36-ngram": 5.2, "qwen36-vllm": 3.1, "orpheus-llm": 2.0, "orpheus-tts": 2.0, "minimax-m27": 26.0}
_BIG_MODEL = (("minimax-m27", "spark1"),)
# What runs at first, by scenario: (profile, node of its head); nothing in the others.
RUNNING_AT_FIRST = {
    "two-stacks": (("qwen36-ngram", "spark1"), ("qwen36-vllm", "spark2")),
    "speech": (("orpheus-llm", "spark2"), ("orpheus-tts", "spark2")),
    **dict.fromkeys(("story", "big-model", "trouble"), _BIG_MODEL),
}
OPERATOR = "milo@desk"
RUN_ID = "0f3b7c91"  # of the start that was a day ago


async def run_empty(_nodes: Sequence[SimDockerDaemon]) -> None:
    """Nothing runs; the page cache is full of the last model."""


async def run_fresh(nodes: Sequence[SimDockerDaemon]) -> None:
    """Two Sparks with nothing on them: no image, no model."""
    for docker in nodes:
        docker.node.make_fresh()


async def run_two_models(nodes: Sequence[SimDockerDaemon]) -> None:
    """Two models, both busy: SGLang with FP8 on the first Spark, vLLM with NVFP4 on the second."""
    for docker, name in zip(nodes, ("qwen36-ngram", "qwen36-vllm"), strict=False):
        await _start_loaded_engine(docker, _plan_shipped_profile(name), READY_HOURS[name] * HOUR_SECONDS, requests=1)


async def run_speech(nodes: Sequence[SimDockerDaemon]) -> None:
    """A speech server and the model behind it on the last Spark; the first one is free."""
    model, voice = _plan_shipped_profile("orpheus-llm"), _plan_shipped_profile("orpheus-tts")
    labels = ((ContainerLabel.STARTED_FOR, "orpheus-tts"), (ContainerLabel.NEEDS, f"orpheus-llm@{nodes[-1].node.name}"))
    for plan, label in zip((model, voice), labels, strict=True):
        plan = replace(plan, labels=(*plan.labels, label))
        await _start_ready_engine(nodes[-1], plan, READY_HOURS[plan.instance] * HOUR_SECONDS).ready.wait()


async def run_node_faults(nodes: Sequence[SimDockerDaemon]) -> None:
    """The big model and what `top` can find: stuck clock, heat, half a fabric, full disk, lost engine, PCIe error."""
    faults = (
        {NodeFault.STUCK_CLOCK, NodeFault.IDLE_FUNCTION, NodeFault.FULL_DISK},
        {NodeFault.HOT, NodeFault.IDLE_FUNCTION, NodeFault.OTHER_GID, NodeFault.ORPHAN},
    )
    for docker, troubles in zip(nodes, faults, strict=False):
        docker.node.options = replace(docker.node.options, troubles=frozenset(troubles))
        if NodeFault.ORPHAN in troubles:
            docker.node.memory.allocate(ORPHAN_PID, gpu=11 * GIB)
            docker.node.log_kernel_line(FATAL_AER_LINE)
    await run_big_model(nodes, gid_index="3")


async def run_big_model(nodes: Sequence[SimDockerDaemon], gid_index: str | None = None) -> None:
    """One model too big for one Spark, started on all of them as by `up`; the first is the head."""
    plans = _plan_ranks("minimax-m27", nodes)
    if gid_index is not None:
        plans = [replace(one, env=(*one.env, ("NCCL_IB_GID_INDEX", gid_index))) for one in plans]
    age = READY_HOURS["minimax-m27"] * HOUR_SECONDS
    begun = [_start_ready_engine(docker, made, age) for docker, made in zip(nodes, plans, strict=True)]
    for process in begun:
        await process.ready.wait()
    begun[0].add_background_load(1, since=PAST_LOAD_SECONDS)


def _plan_ranks(name: str, nodes: Sequence[SimDockerDaemon]) -> list[LaunchPlan]:
    """Return the launch plan of `sparkctl up NAME` for each of these nodes."""
    names = tuple(NodeName(docker.node.name) for docker in nodes)
    seen = [decode_inspection(format_inspection(docker.node, ["fabric"]).encode()).lanes for docker in nodes]
    lanes = [NodeLanes(name, one.lanes, one.has_devices) for name, one in zip(names, seen, strict=True) if one]
    route = find_fabric_route(lanes, {})
    addresses = tuple(end.address for end in route.ends)
    return [
        _plan_shipped_profile(
            name,
            RankPlacement(
                rank=EngineRank(index, addresses),
                nodes=names,
                run=RUN_ID,
                env=build_nccl_environment(route, each.node),
                has_devices=each.has_devices,
            ),
        )
        for index, each in enumerate(lanes)
    ]


def _plan_shipped_profile(name: str, place: RankPlacement | None = None) -> LaunchPlan:
    """Return the launch plan of `sparkctl up NAME` for a shipped profile, or for one rank of it."""
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(name)
    where = "simulated" if place is None else place.nodes[place.rank.index]
    return build_launch_plan(
        profile, Node(name=NodeName(where), host="127.0.0.1"), home=HOME, operator=OPERATOR, environ={},
        place=place,
    )  # fmt: skip


def _start_ready_engine(docker: SimDockerDaemon, made: LaunchPlan, ready_since: float) -> EngineProcess:
    """Start an engine that has been ready for this many seconds."""
    container = docker.create_container(made.container_name, build_create_request(made))
    docker.start_container(container, ready_since=ready_since)
    process = docker.running[container.id]
    assert isinstance(process, EngineProcess)
    return process


async def _start_loaded_engine(docker: SimDockerDaemon, made: LaunchPlan, ready_since: float, requests: int) -> None:
    process = _start_ready_engine(docker, made, ready_since)
    await process.ready.wait()
    process.add_background_load(requests, since=PAST_LOAD_SECONDS)


SCENARIOS: dict[str, Callable[[Sequence[SimDockerDaemon]], Awaitable[None]]] = {
    "empty": run_empty,
    "fresh": run_fresh,
    "two-stacks": run_two_models,
    "speech": run_speech,
    "story": run_big_model,  # before the two stacks of the demo's story
    "big-model": run_big_model,
    "trouble": run_node_faults,
}
