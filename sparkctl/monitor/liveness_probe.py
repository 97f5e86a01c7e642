"""Checks whether a ready, idle engine can still produce a token: rarely, and never while it is at work.

An engine can hang while its health path answers: the API process lives, the process that generates does not.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sparkctl.model.container import Container
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.events import Event, FindingReported
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import ContainerLabel, ReadinessRule, ReadinessTarget
from sparkctl.monitor import engine_probe
from sparkctl.monitor.engine_probe import QueryMarkerSupport
from sparkctl.monitor.meters.engine_meters import MeterReading, has_meter
from sparkctl.monitor.node_status import ContainerInspections
from sparkctl.profiles.container_labels import find_container_api_key, parse_ready_rule_label
from sparkctl.transport.node_session import NodeSession

PROBE_INTERVAL = 300.0  # seconds: the least time without a token before one is requested
PROBE_JITTER = (
    60.0  # seconds: random part of the interval, so that of two viewers one asks first and the other sees that token
)
_NO_PROBE = "none"
_TOKEN_PROBES = ("completions", "chat")


@dataclass(slots=True)
class ProbedEngine:
    """One engine: time of its last known token (monotonic), how long to wait, and whether it is reported as hung."""

    name: str
    proved: float
    patience: float
    told: bool = False


class LivenessProbe:
    """The engines of one node. ``dice`` returns 0..1. Any client's token proves an engine alive, not only ours.

    An engine is asked only if its own metrics show that it is idle, so an engine without metrics is never asked.
    """

    def __init__(
        self,
        session: NodeSession,
        inspections: ContainerInspections,
        emit: Callable[[Event], None],
        dice: Callable[[], float],
    ) -> None:
        self._session = session
        self._inspections = inspections
        self._emit = emit
        self._dice = dice
        self._watched: dict[str, ProbedEngine] = {}

    async def probe_idle_engine(
        self, instances: Iterable[InstanceView], told: Callable[[], Mapping[str, MeterReading]], ahead: float
    ) -> None:
        """Note which engines made tokens, and ask the engine that is due for longest. Raises ConnectionLost, NodeError.

        ``told``: the engines' current figures; ``ahead``: seconds by which the node's clock is ahead of ours.
        """
        now = self._session.clock.monotonic()
        here = {one.container_id or "": one for one in instances if has_meter(one)}
        for gone in self._watched.keys() - here.keys():
            self._clear_finding(self._watched.pop(gone))
        due: list[tuple[float, str]] = []
        for key, one in here.items():
            watched = self._watched.setdefault(key, ProbedEngine(one.name, now, self._pick_probe_delay()))
            numbers = told().get(key, MeterReading(None)).numbers
            if is_generating(numbers):
                watched.proved = now
                self._clear_finding(watched)
            elif is_idle(numbers) and now - watched.proved >= watched.patience:
                due.append((watched.proved, key))
        if due:
            key = min(due)[1]
            await self._probe_engine(here[key], self._watched[key], told, ahead)

    async def _probe_engine(
        self, one: InstanceView, watched: ProbedEngine, told: Callable[[], Mapping[str, MeterReading]], ahead: float
    ) -> None:
        container = self._inspections.get_container(one.container_id)
        rule = None if container is None else select_probe_rule(container)
        watched.proved, watched.patience = (
            self._session.clock.monotonic(),
            self._pick_probe_delay(),
        )  # whatever the result
        if container is None or rule is None or one.port is None:
            return
        manners = QueryMarkerSupport()
        run = await self._session.docker.read_run_options(container.id)
        service = ReadinessTarget(one.port, rule, None, find_container_api_key(run))
        service = await engine_probe.resolve_served_model(self._session.link, service, manners)
        if service.served_model is None:
            return  # the served name is not known, and a wrong one would be our own fault
        began = self._session.clock.unix_time() + ahead
        answer = await engine_probe.request_token(self._session.link, service, manners)
        watched.proved = self._session.clock.monotonic()
        if answer.good or is_generating(told().get(container.id, MeterReading(None)).numbers):
            self._clear_finding(watched)
            return
        words = answer.format_masked(await self._session.docker.read_secret_values(container.id))
        watched.told = True
        self._emit(
            FindingReported.from_finding(self._session.clock.unix_time(), self._build_hung_finding(one, words, began))
        )

    def _build_hung_finding(self, one: InstanceView, words: str, since: float) -> Finding:
        name = shlex.quote(one.name)
        return Finding(
            kind=FindingKind.NOT_GENERATING,
            severity=Severity.PROBLEM,
            node=self._session.node.name,
            summary=f"{one.name} is up and idle but generates no token when asked for one",
            remedy=f"see its log: sparkctl logs {name} --tail 50; then: sparkctl down {name}, and up again   "
            "(`liveness: none` in its profile ends this check)",
            instance=one.name,
            evidence=(
                FindingEvidence("answer", words, None, "http"),
                FindingEvidence("requests running", "0", None, "metrics"),
            ),
            since=since,
        )

    def _clear_finding(self, watched: ProbedEngine) -> None:
        if watched.told:
            watched.told = False
            now, node = self._session.clock.unix_time(), self._session.node.name
            words = "it makes tokens, or is gone"
            kind = FindingKind.NOT_GENERATING.value
            self._emit(
                FindingReported(
                    ts=now, node=node, check=kind, severity=Severity.GOOD, message=words, instance=watched.name
                )
            )

    def _pick_probe_delay(self) -> float:
        return PROBE_INTERVAL + PROBE_JITTER * self._dice()


def select_probe_rule(container: Container) -> ReadinessRule | None:
    """Return the rule for requesting a token; None if the labels forbid it."""
    rule = parse_ready_rule_label(container)
    if rule is None or rule.probe not in _TOKEN_PROBES or container.get_label(ContainerLabel.LIVENESS) == _NO_PROBE:
        return None
    return rule


def is_generating(numbers: EngineMeter | None) -> bool:
    """Tell whether the figures prove recent tokens."""
    return numbers is not None and (numbers.activity is EngineActivity.DECODING or bool(numbers.generation_rate))


def is_idle(numbers: EngineMeter | None) -> bool:
    """Tell whether the figures show that nothing runs and nothing waits; unknown figures do not mean idle."""
    return (
        numbers is not None and numbers.activity is EngineActivity.IDLE and numbers.running == 0 and not numbers.waiting
    )
