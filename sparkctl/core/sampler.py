"""The probe on one node, kept running: its samples as events, through lost connections, ended probes and silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from sparkctl.core.session import Session
from sparkctl.errors import LinkLost, ProbeFailed, Starved, Unreachable
from sparkctl.model.events import NodeStateChanged, SampleArrived
from sparkctl.model.node import NodeState
from sparkctl.model.sample import Sample
from sparkctl.probe import travel
from sparkctl.probe.decode import Hello, decode
from sparkctl.wire.link import Held

IN_FRONT_OF_AN_OPERATOR = 2.0
WHILE_LOADING = 1.0
IN_THE_BACKGROUND = 5.0
DOCKER_ROOT = "/var/lib/docker"
_PATIENCE = 5.0  # seconds without a sample, beyond its rate, after which the node's state is unknown
_STALLED = 30.0  # seconds of silence after which a probe is given up and another one started
_PAUSE = 1.0  # before another probe, so that one that ends at once does not keep the node busy
_UNFIT = 3  # probes in a row that ended without a single sample


class Sampler:
    """`samples` runs the probe for as long as it is iterated; closing it ends the probe.

    ``identity`` is what the node said of itself, None before the first answer.
    """

    def __init__(
        self,
        session: Session,
        every: float = IN_FRONT_OF_AN_OPERATOR,
        disks: Sequence[str] | None = None,
        *,
        patience: float = _PATIENCE,
        stalled: float = _STALLED,
        pause: float = _PAUSE,
    ) -> None:
        self.session = session
        self.every = every
        models = [session.node.models] if session.node.models else []
        self.disks = list(disks) if disks is not None else [DOCKER_ROOT, *models]
        self.identity: Hello | None = None
        self._patience = patience
        self._stalled = stalled
        self._pause = pause
        self._held: Held | None = None
        self._silent = False
        self._barren = 0

    async def set_rate(self, every: float) -> None:
        """Sample every so many seconds from now on."""
        self.every = every
        if self._held is not None:
            with contextlib.suppress(LinkLost):  # the next probe starts at this rate
                await self._held.write(f"every {every:g}\n".encode())

    async def samples(self) -> AsyncGenerator[SampleArrived | NodeStateChanged, None]:
        """Yield each sample, and the node's state where it becomes unknown by silence and where it is known again.

        A lost connection is waited for and the probe started anew. Raises `NodeError` where waiting does not help: the
        node is not to be had by this user, or cannot run the probe (`ProbeFailed`).
        """
        while True:
            try:
                await self.session.link.connect()
                async with contextlib.aclosing(self._one_probe()) as events:
                    async for event in events:
                        yield event
            except (LinkLost, Starved, Unreachable):
                await self.session.link.reconnect()  # at once where the link lives and only the session was refused
            await self.session.clock.sleep(self._pause)

    async def _one_probe(self) -> AsyncGenerator[SampleArrived | NodeStateChanged, None]:
        """Run one probe until it ends or says nothing for too long."""
        here = self.session.node.is_local
        start = (travel.start_here if here else travel.start)(self.every, self.disks)
        held = self._held = await self.session.link.hold(start.argv)
        self._barren += 1
        feeding: asyncio.Task[None] | None = None
        try:
            await held.write(start.stdin)
            feeding = asyncio.create_task(_feed(held))
            async with contextlib.aclosing(self._read(held)) as events:
                async for event in events:
                    yield event
        finally:
            self._held = None
            if feeding is not None:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            await held.release()
        if self._barren >= _UNFIT:
            name = self.session.node.name
            raise ProbeFailed(
                name,
                f"the probe does not run on {name}: it ended {_UNFIT} times without a sample",
                "it needs Python 3.8 or newer on the node: python3 -V",
            )

    async def _read(self, held: Held) -> AsyncGenerator[SampleArrived | NodeStateChanged, None]:
        clock, name = self.session.clock, self.session.node.name
        heard, greeted = clock.monotonic(), False
        while True:
            try:
                async with asyncio.timeout(self._patience + self.every):
                    line = await held.readline()
            except TimeoutError:
                silence = clock.monotonic() - heard
                if not self._silent:
                    self._silent = True
                    yield NodeStateChanged(clock.now(), name, NodeState.UNKNOWN, f"no sample for {silence:.0f} s")
                if silence > self._stalled:
                    return
                continue
            if not line:
                return
            heard = clock.monotonic()
            if not greeted and not line.startswith(b'{"probe"'):
                continue  # a login shell that greets
            said = self._decoded(line)
            if isinstance(said, Hello):
                greeted, self.identity = True, said
                continue
            self._barren = 0
            if self._silent:
                self._silent = False
                yield self.session.state_event()
            boot = None if self.identity is None else self.identity.boot_id
            yield SampleArrived(clock.now(), name, said, boot)

    def _decoded(self, line: bytes) -> Hello | Sample:
        try:
            return decode(line)
        except ValueError as wrong:
            name = self.session.node.name
            raise ProbeFailed(
                name,
                f"the probe on {name} says something else ({wrong})",
                "this is a defect of sparkctl, or of the Python there: python3 -V",
            ) from wrong


async def _feed(held: Held) -> None:
    """Keep the probe's dead-man switch from firing; a broken link is the reader's to tell."""
    with contextlib.suppress(LinkLost):
        while True:
            await asyncio.sleep(travel.FED_WITHIN / 4)
            await held.write(b"\n")
