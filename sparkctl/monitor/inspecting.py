"""What Docker's list does not say of a container and its inspection does: restarts, how NCCL is set up, its labels' rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import ContainerNotFound
from sparkctl.model.container import Container
from sparkctl.model.instance import InstanceView
from sparkctl.transport.session import Session

_EVERY = 30.0  # seconds: an environment never changes, and a restart is told soon enough
_MOST = 24  # containers a round


class ContainerInspections:
    """The inspections of one node's containers, each as old as half a minute at most."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, tuple[float, Container]] = {}

    async def read(self, containers: Iterable[Container]) -> None:
        """Inspect those that live and are due, and forget those that are gone. Raises DockerError, LinkLost."""
        now = self._session.clock.monotonic()
        alive = {one.id: one for one in containers if one.is_alive}
        self._known = {key: seen for key, seen in self._known.items() if key in alive}
        due = [key for key in alive if key not in self._known or now - self._known[key][0] >= _EVERY]
        for found in await gather_or_cancel(*(self._inspect(key) for key in due[:_MOST])):
            if found is not None:
                self._known[found.id] = (now, found)

    async def _inspect(self, key: str) -> Container | None:
        try:
            return await self._session.docker.inspect_container(key)
        except ContainerNotFound:
            return None

    def get(self, container_id: str | None) -> Container | None:
        """Return a container as it was inspected last, None where it was not."""
        seen = self._known.get(container_id or "")
        return None if seen is None else seen[1]

    def add_inspection(self, one: InstanceView) -> InstanceView:
        """Return an instance with what its inspection adds."""
        found = self.get(one.container_id)
        return one if found is None else replace(one, restarts=found.restart_count, nccl=found.nccl)
