"""Runs the sampling agent on one node and yields its samples, through lost connections, ended agents and silence."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from sparkctl.errors import AgentFailed, ConnectionLost, NodeStarved, NodeUnreachable
from sparkctl.model.node import NodeState, NodeStateChanged
from sparkctl.model.sample import Sample, SampleArrived
from sparkctl.node import bootstrap
from sparkctl.node.agent_decoder import AgentHello, RepeatedFields, decode_agent_line
from sparkctl.transport.node_connection import OutputTooLong, RemoteProcess
from sparkctl.transport.node_session import NodeSession

INTERACTIVE_INTERVAL = 2.0
LOADING_INTERVAL = 1.0
BACKGROUND_INTERVAL = 5.0
DOCKER_ROOT = "/var/lib/docker"
_SILENCE_SECONDS = 5.0  # seconds without a sample, beyond its rate, after which the node's state is unknown
_STALL_SECONDS = 30.0  # seconds of silence after which a new agent replaces the old one
_MIN_PAUSE_SECONDS = 1.0  # before a new agent, so that one that ends at once does not keep the node busy
_MAX_PAUSE_SECONDS = 30.0  # the longest pause while no agent sends a sample
_MAX_FAILED_PROBES = 3  # agents in a row without a sample, after which the node's Python is checked
_OLD_PYTHON_EXIT = 42
_PYTHON_CHECK = ("python3", "-ISc", f"import sys; sys.exit({_OLD_PYTHON_EXIT} if sys.version_info < (3, 8) else 0)")
_NOT_FOUND_EXITS = (126, 127)  # a shell's exit codes for a command that does not exist or cannot run


class NodeSampler:
    """Samples one node: `stream_samples` runs the agent as long as it is iterated; closing it ends the agent.

    ``identity`` is the node's own description, None before the first answer. ``foreign``: number of skipped lines that
    something else wrote among the agent's.
    """

    def __init__(
        self,
        session: NodeSession,
        every: float = INTERACTIVE_INTERVAL,
        disks: Sequence[str] | None = None,
        *,
        patience: float = _SILENCE_SECONDS,
        stalled: float = _STALL_SECONDS,
        pause: float = _MIN_PAUSE_SECONDS,
    ) -> None:
        self.session = session
        self.every = every
        models = [session.node.models] if session.node.models else []
        self.disks = list(disks) if disks is not None else [DOCKER_ROOT, *models]
        self.identity: AgentHello | None = None
        self._patience = patience
        self._stalled = stalled
        self._pause = pause
        self._held: RemoteProcess | None = None
        self._silent = False
        self._consecutive_failures = 0
        self.foreign = 0

    async def set_rate(self, every: float) -> None:
        """Set the seconds between two samples, from now on."""
        self.every = every
        if self._held is not None:
            with contextlib.suppress(ConnectionLost):  # the next agent starts at this rate
                await self._held.write(f"every {every:g}\n".encode())

    async def stream_samples(self) -> AsyncGenerator[SampleArrived | NodeStateChanged, None]:
        """Yield each sample, and the node's state when it becomes unknown by silence and when it is known again.

        After a lost connection, or when the agent ends for any reason, the agent is started again, with pauses that grow
        while no sample comes: a node short of memory kills agents, too. Raises `NodeError` if waiting does not help: this
        user may not log in, or the node has no Python for the agent (`AgentFailed`).
        """
        while True:
            try:
                await self.session.link.connect()
                async with contextlib.aclosing(self._run_probe()) as events:
                    async for event in events:
                        yield event
                if self._consecutive_failures:
                    yield await self._build_no_sample_state()
            except (ConnectionLost, NodeStarved, NodeUnreachable):
                # returns at once if the connection lives and only the session was refused
                await self.session.link.reconnect()
            await self.session.clock.sleep(self._next_pause())

    def _next_pause(self) -> float:
        return min(_MAX_PAUSE_SECONDS, self._pause * 2.0 ** min(10, max(0, self._consecutive_failures - 1)))

    async def _build_no_sample_state(self) -> NodeStateChanged:
        """Return the state after agents that ended without a sample. Raises AgentFailed if none can ever run."""
        name, clock = self.session.node.name, self.session.clock
        if self._consecutive_failures >= _MAX_FAILED_PROBES and await self._has_no_python():
            raise AgentFailed(
                name, f"the probe cannot run on {name}: no Python 3.8 or newer there", "look there: python3 -V"
            )
        self._silent = True
        ended = (
            "ended without a sample"
            if self._consecutive_failures == 1
            else f"ended {self._consecutive_failures} times without a sample"
        )
        return NodeStateChanged(
            ts=clock.unix_time(),
            node=name,
            state=NodeState.UNKNOWN,
            detail=f"the probe {ended}{self._describe_foreign_lines()}",
            attempt=self._consecutive_failures,
            next_try=self._next_pause(),
            hint="a node that is short of memory may kill it; if this continues, look there: python3 -V, dmesg",
        )

    async def _has_no_python(self) -> bool:
        """Tell whether the node certainly has no Python for the agent; a killed check proves nothing."""
        python = sys.executable if self.session.node.is_local else _PYTHON_CHECK[0]
        try:
            result = await self.session.link.run((python, *_PYTHON_CHECK[1:]), timeout=self._patience)
        except (TimeoutError, OutputTooLong):
            return False
        return result.status in (*_NOT_FOUND_EXITS, _OLD_PYTHON_EXIT)

    def _describe_foreign_lines(self) -> str:
        """Return a note about lines that something else wrote."""
        if not self.foreign:
            return ""
        return f"; {self.foreign} line{'s' if self.foreign > 1 else ''} on its stdout came from another program"

    async def _run_probe(self) -> AsyncGenerator[SampleArrived | NodeStateChanged, None]:
        """Run one agent until it ends or is silent for too long."""
        here = self.session.node.is_local
        start = (bootstrap.build_local_agent_program if here else bootstrap.build_agent_program)(self.every, self.disks)
        process = self._held = await self.session.link.start_process(start.argv)
        self._consecutive_failures += 1
        feeding: asyncio.Task[None] | None = None
        try:
            await process.write(start.stdin)
            # no TaskGroup: in a generator it would cancel whoever asks for the next sample
            feeding = asyncio.create_task(_send_keepalives(process))
            async with contextlib.aclosing(self._read_samples(process)) as events:
                async for event in events:
                    if feeding.done():
                        feeding.result()
                    yield event
            if feeding.done():  # without keepalives the agent ends
                feeding.result()
        finally:
            self._held = None
            if feeding is not None:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            await process.release()

    async def _read_samples(self, process: RemoteProcess) -> AsyncGenerator[SampleArrived | NodeStateChanged, None]:
        clock, name = self.session.clock, self.session.node.name
        heard = patient = clock.monotonic()  # the last sample; the last sample or silence report
        greeted = False
        repeated: RepeatedFields = {}
        while True:
            try:
                async with asyncio.timeout(max(0.0, patient + self._patience + self.every - clock.monotonic())):
                    line = await process.readline()
            except TimeoutError:
                patient = clock.monotonic()
                silence = patient - heard
                if not self._silent:
                    self._silent = True
                    detail = f"no sample for {silence:.0f} s{self._describe_foreign_lines()}"
                    yield NodeStateChanged(ts=clock.unix_time(), node=name, state=NodeState.UNKNOWN, detail=detail)
                if silence > self._stalled:
                    return
                continue
            if not line:
                return
            try:
                message = decode_agent_line(line, repeated)
            except ValueError:
                if not greeted:
                    continue  # a login shell's greeting
                self.foreign += 1
                if self.foreign == 1 and not self._silent:
                    yield replace(
                        self.session.build_state_event(), detail=self._describe_foreign_lines().removeprefix("; ")
                    )
                continue
            if isinstance(message, AgentHello):
                greeted, self.identity = True, message
                continue
            heard = patient = clock.monotonic()
            self._consecutive_failures = 0
            if self._silent:
                self._silent = False
                yield self.session.build_state_event()
            boot = None if self.identity is None else self.identity.boot_id
            yield SampleArrived(clock.unix_time(), name, message, boot)


async def _send_keepalives(process: RemoteProcess) -> None:
    """Send keepalives so that the agent does not end itself; the reader reports a broken connection."""
    with contextlib.suppress(ConnectionLost):
        while True:
            await asyncio.sleep(bootstrap.KEEPALIVE_SECONDS / 4)
            await process.write(b"\n")


_IDENTITY_TIMEOUT_SECONDS = 10.0


async def read_identity_and_sample(
    session: NodeSession, disks: Sequence[str] = (), every: float = 0.5
) -> tuple[AgentHello, Sample] | None:
    """Return a node's identity and its second sample: the first does not know yet which container a GPU process is in.

    ``disks``: paths whose free space it reads; ``every``: seconds between the two. None if the agent does not run there or sends nothing in time.
    """
    sampler = NodeSampler(session, every=every, disks=disks)
    try:
        async with asyncio.timeout(_IDENTITY_TIMEOUT_SECONDS), aclosing(sampler.stream_samples()) as events:
            async for event in events:
                if isinstance(event, SampleArrived) and event.sample.sequence >= 2 and sampler.identity is not None:
                    return sampler.identity, event.sample
    except (TimeoutError, AgentFailed):
        return None
    return None
