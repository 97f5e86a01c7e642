"""What Docker tells: a container that ends and is started again and again."""

from __future__ import annotations

import shlex

from sparkctl.model.container import ContainerState
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.monitor.findings.base import NodeSnapshot


class RestartLoopDetector:
    """Docker started it again (RestartCount grew) within the last 30 min; three times, or now *restarting*: a loop.

    An engine may take minutes to fail, so between two restarts lies a whole load. Restarts of before we looked do not
    count: the counter never goes back, and the loop may be over.
    """

    WINDOW, LOOP = 1800.0, 3

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._grown: dict[str, list[tuple[float, float, int]]] = {}  # uptime, unix time, by how many

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return one finding for each container that was started again."""
        found = []
        if sight.instances is not None:
            here = {_container_key(one) for one in sight.instances}
            self._counts = {key: count for key, count in self._counts.items() if key in here}
            self._grown = {key: grown for key, grown in self._grown.items() if key in here}
        for one in sight.instances or ():
            self._count_restarts(one, sight)
            again = sum(more for _, _, more in self._grown.get(_container_key(one), ()))
            restarting = one.state is ContainerState.RESTARTING
            if again or restarting:
                found.append(self._build_restart_finding(sight, one, again, restarting))
        return found

    def _count_restarts(self, one: InstanceView, sight: NodeSnapshot) -> None:
        now, count = sight.sample.uptime, one.restarts
        grown = [grew for grew in self._grown.get(_container_key(one), ()) if 0 <= now - grew[0] <= self.WINDOW]
        if count is not None:
            more = count - self._counts.get(_container_key(one), count)
            if more > 0:
                grown.append((now, sight.sample.time, more))
            self._counts[_container_key(one)] = count
        self._grown[_container_key(one)] = grown

    def _build_restart_finding(self, sight: NodeSnapshot, one: InstanceView, again: int, restarting: bool) -> Finding:
        loop = restarting or again >= self.LOOP
        evidence = [FindingEvidence("state", one.state.value, None, "docker")]
        if one.restarts is not None:
            evidence.append(FindingEvidence("RestartCount", str(one.restarts), None, "docker"))
        times = "again and again" if loop else "once" if again == 1 else f"{again} times"
        grown = self._grown.get(_container_key(one))
        name, quoted = one.name, shlex.quote(one.container)
        return Finding(
            kind=FindingKind.RESTART_LOOP,
            severity=Severity.PROBLEM if loop else Severity.WARNING,
            node=sight.node,
            summary=f"{name} ended and Docker started it {times}",
            remedy=f"see why in its log (sparkctl logs {shlex.quote(name)}); to end the loop: "
            f"docker update --restart=no {quoted} && docker stop {quoted}",
            instance=name,
            evidence=tuple(evidence),
            since=grown[0][1] if grown else None,
        )


def _container_key(one: InstanceView) -> str:
    return one.container_id or one.container
