"""What the logs of engines that run already tell of how they run: the start of each is read once, and no further."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress

from sparkctl.engines import load_engine
from sparkctl.errors import DockerError
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.model.engine_facts import EngineFact
from sparkctl.model.events import Event, FactsLearned
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.monitor.engine_meters import has_meter
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.session import Session

_LINES = 20_000  # of a log: a start that says more than that before it is ready tells nothing more of this
_PATIENCE = 20.0  # seconds for one log


class EngineFactsReader:
    """Reads each container's log once, one after the other."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session, self._emit = session, emit
        self._read: set[str] = set()

    async def read_new_logs(self, instances: Iterable[InstanceView]) -> None:
        """Read the logs of those that are new and ready. Raises NodeError."""
        wanted = {one.container_id or "": one.engine or "" for one in instances if has_meter(one)}
        self._read &= wanted.keys()
        for container, engine in wanted.items():
            if container in self._read:
                continue
            facts: tuple[EngineFact, ...] = ()
            with suppress(DockerError, TimeoutError):  # a log that cannot be read tells nothing
                async with asyncio.timeout(_PATIENCE):
                    facts = await self._facts(container, engine)
            self._read.add(container)
            if facts:
                self._emit(FactsLearned(self._session.clock.unix_time(), self._session.node.name, container, facts))

    async def _facts(self, container: str, engine: str) -> tuple[EngineFact, ...]:
        known = load_engine(engine)
        reader, left = LogAnalyzer(known, ReadinessRule(known.defaults.ready_line, None)), _LINES
        async with aclosing(ContainerLogStream(self._session.link, container).read_available()) as batches:
            async for batch in batches:
                reader.feed_lines(batch[:left])
                left -= len(batch)
                if reader.was_ready or left <= 0:
                    break
                await asyncio.sleep(0)  # a long log holds up nobody else
        return tuple(reader.facts.values())
