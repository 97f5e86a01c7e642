"""Two simulated Sparks in this process, and a config for them."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncssh

from sparkctl.engines.simulation.engine_launch import EngineFault
from sparkctl.engines.simulation.simulated_clock import SimClock, SimPace
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.engine_process import EngineProcess
from sparkctl.simulator.fabric_ports import FABRIC_INTERFACES, build_rank_network, get_interface_address
from sparkctl.simulator.node_programs.sim_guard import SimGuard
from sparkctl.simulator.scenarios import SCENARIOS
from sparkctl.simulator.sim_node import USER, SimNode, SimNodeOptions
from sparkctl.simulator.ssh_server import SimSshServer

DIRECTORY_PREFIX = "sparkctl-sim-"  # of the temporary directory; the id of its process follows
_POLL_SECONDS = 0.1  # in real seconds
_REQUEST_DELAY_SECONDS = 6.0  # seconds from ready until somebody uses it


async def fast_forward_while_busy(clock: SimClock, rate: float, nodes: Sequence[SimDockerDaemon]) -> None:
    """Run the clock at ``rate`` while something starts or stops on a node, else at its normal rate; until cancelled."""
    rest = clock.rate
    while True:
        wanted = rate if any(docker.is_busy for docker in nodes) else rest
        if clock.rate != wanted:
            clock.set_rate(wanted)
        await asyncio.sleep(_POLL_SECONDS)


async def send_requests_when_ready(process: EngineProcess) -> None:
    """Send one request after the other to an engine that writes text, from soon after it is ready."""
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
    ``options`` and ``faults`` are by node name. ``clock``: the time of all of
    it, ours unless given; with ``haste`` it goes that many times as fast while something starts or stops, and engines are
    used as soon as they are ready. Keys are made for this one run and lie in a directory of mode 0700.
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
        haste: float | None = None,
    ) -> None:
        if scenario not in SCENARIOS:
            raise ValueError(f"no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
        pace = self.pace = SimPace(speed * DEMO_SPEED, decode_speed, clock or SimClock())
        self.scenario = scenario
        self.nodes = {name: SimNode(name, pace, seed, (options or {}).get(name)) for name in nodes}
        self.fabric = build_rank_network(self.nodes)
        for name, fault in (faults or {}).items():
            self.nodes[name].fault = EngineFault(fault)
        self.docker: dict[str, SimDockerDaemon] = {}
        self.guards: dict[str, SimGuard] = {}
        self.ports: dict[str, int] = {}
        self.sshd: dict[str, SimSshServer] = {}
        self._haste = haste
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
        """The config as YAML."""
        lines = ["nodes:"]
        for name, port in self.ports.items():
            entry = {"name": name, "host": "127.0.0.1", "port": port, "user": USER}
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
            self.ports[name] = await self.sshd[name].listen()
            hosts.append(f"[127.0.0.1]:{self.ports[name]} {host_key.export_public_key().decode().strip()}\n")
        self.known_hosts_path.write_text("".join(hosts), encoding="utf-8")
        self.write_config(self.directory)
        await SCENARIOS[self.scenario](list(self.docker.values()))
        if self._haste is not None:
            for docker in self.docker.values():
                docker.visitors = send_requests_when_ready
            # no TaskGroup: it runs until `__aexit__`, beside the block of whoever uses these Sparks
            self._hurrying = asyncio.create_task(
                fast_forward_while_busy(self.pace.clock, self._haste, list(self.docker.values()))
            )
        return self

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
