"""What Docker tells: a container that ends and is started again and again."""

from __future__ import annotations

import shlex

from sparkctl.core.health.sight import Sight
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.finding import Figure, Finding, FindingKind, Severity


class RestartLoop:
    """Docker started it again (RestartCount grew) within the last 30 min; three times, or now *restarting*: a loop.

    An engine may take minutes to fail, so between two restarts lies a whole load. Restarts of before we looked do not
    count: the counter never goes back, and the loop may be over.
    """

    WINDOW, LOOP = 1800.0, 3

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._grown: dict[str, list[tuple[float, float, int]]] = {}  # uptime, unix time, by how many

    def judge(self, sight: Sight) -> list[Finding]:
        """Return one finding for each container that was started again."""
        found = []
        for container in sight.containers or ():
            self._count(container, sight)
            again = sum(more for _, _, more in self._grown.get(container.id, ()))
            restarting = container.state is ContainerState.RESTARTING
            if again or restarting:
                found.append(self._finding(sight, container, again, restarting))
        return found

    def _count(self, container: Container, sight: Sight) -> None:
        now, count = sight.sample.uptime, container.restart_count
        grown = [one for one in self._grown.get(container.id, ()) if 0 <= now - one[0] <= self.WINDOW]
        if count is not None:
            more = count - self._counts.get(container.id, count)
            if more > 0:
                grown.append((now, sight.sample.time, more))
            self._counts[container.id] = count
        self._grown[container.id] = grown

    def _finding(self, sight: Sight, container: Container, again: int, restarting: bool) -> Finding:
        loop = restarting or again >= self.LOOP
        evidence = [Figure("state", container.state.value, None, "docker")]
        if container.restart_count is not None:
            evidence.append(Figure("RestartCount", str(container.restart_count), None, "docker"))
        if container.exit_code is not None:
            evidence.append(Figure("exit code", str(container.exit_code), None, "docker"))
        times = "again and again" if loop else "once" if again == 1 else f"{again} times"
        grown = self._grown.get(container.id)
        name, quoted = container.instance or container.name, shlex.quote(container.name)
        return Finding(
            FindingKind.RESTART_LOOP,
            Severity.PROBLEM if loop else Severity.WARNING,
            sight.node,
            f"{name} ended and Docker started it {times}",
            f"see why in its log (sparkctl logs {shlex.quote(name)}); to end the loop: "
            f"docker update --restart=no {quoted} && docker stop {quoted}",
            instance=name,
            evidence=tuple(evidence),
            since=grown[0][1] if grown else None,
        )
