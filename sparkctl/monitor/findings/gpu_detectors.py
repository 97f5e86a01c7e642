"""Detects GPU problems: a clock that is stuck low, thermal throttling, a busy wait that looks like work."""

from __future__ import annotations

from sparkctl.model.engine_metrics import EngineActivity
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.sample import Gpu, GpuEvents, Sample
from sparkctl.model.text.units import format_duration
from sparkctl.monitor.findings import ConditionTimer, NodeSnapshot, PersistentCondition

_IDLE_REASON_BIT = 0x1
THERMAL_REASONS = {0x20: "thermal (software)", 0x40: "thermal (hardware)"}
_STUCK_CLOCK_REMEDY = (
    "shut it down, unplug the adapter from the wall AND from the Spark for a minute, use the original 240 W adapter; "
    "a reboot does not help. Then: sudo fwupdmgr refresh --force && fwupdmgr get-upgrades"
)


class StuckClockDetector:
    """The GPU is stuck at 500-850 MHz and under 35 W, cool and without a reason (799 MHz, 19.5 W; healthy: 2281 MHz, 92.5 W).

    All of: SM clock below 45 % of its maximum (until 55 % once it is), utilisation at least 50 %, power under 35 W,
    below 80 degrees, no event reason but idle; for 20 s, because short kernels leave a stale clock behind. Thresholds:
    sparktop's detector, built on NVIDIA's forum reports 376039, 361294 and 366590.
    """

    LOW, HIGH = 0.45, 0.55
    BUSY, POWER, CELSIUS, SECONDS = 0.5, 35.0, 80.0, 20.0

    def __init__(self) -> None:
        self._lasting = ConditionTimer(self.SECONDS)

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each GPU that is stuck."""
        found = []
        for gpu in snapshot.sample.gpus or ():
            standing = self._lasting.update_condition(gpu.index, self._is_stuck(gpu), snapshot.sample)
            if standing is not None:
                found.append(self._build_stuck_clock_finding(snapshot, gpu, standing))
        return found

    def _is_stuck(self, gpu: Gpu) -> bool | None:
        clock, highest, busy, power, celsius = gpu.sm_clock, gpu.sm_clock_max, gpu.busy, gpu.power, gpu.celsius
        if clock is None or not highest or busy is None or power is None or celsius is None or gpu.reasons is None:
            return None
        limit = self.HIGH if self._lasting.is_active(gpu.index) else self.LOW
        cool_and_weak = power < self.POWER and celsius < self.CELSIUS and not gpu.reasons & ~_IDLE_REASON_BIT
        return clock < limit * highest and busy >= self.BUSY and cool_and_weak

    def _build_stuck_clock_finding(self, snapshot: NodeSnapshot, gpu: Gpu, standing: PersistentCondition) -> Finding:
        summary = (
            f"the GPU is stuck at {gpu.sm_clock} of {gpu.sm_clock_max} MHz although it is busy, cool and not held back"
        )
        evidence = (*build_gpu_evidence(gpu), FindingEvidence("event reasons", "none", None, "nvml"))
        return Finding(
            kind=FindingKind.STUCK_CLOCK,
            severity=Severity.PROBLEM,
            node=snapshot.node,
            summary=summary,
            remedy=_STUCK_CLOCK_REMEDY,
            evidence=evidence,
            since=standing.since,
        )


class ThermalDetector:
    """Thermal throttling: a thermal reason bit, and its counter grew within the last 30 s (it is read every 10 s).

    Without counters in the driver, the bit alone counts, after 10 s; with ``seconds`` 0 it counts at the first look.
    Throttling begins at 91-92 degrees.
    """

    RECENT, SECONDS = 30.0, 10.0

    def __init__(self, seconds: float = SECONDS) -> None:
        self._begun = ConditionTimer()
        self._bit = ConditionTimer(seconds)
        self._needs_growth = seconds > 0
        self._counts: dict[int, int] = {}
        self._grew: dict[int, float] = {}

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each GPU that heat slows down."""
        found = []
        for gpu in snapshot.sample.gpus or ():
            grew = self._has_grown_recently(gpu, snapshot.sample)
            claim = None if gpu.reasons is None else bool(gpu.reasons & sum(THERMAL_REASONS))
            bit = self._bit.update_condition(gpu.index, claim, snapshot.sample)
            standing = self._begun.update_condition(
                gpu.index, claim, snapshot.sample
            )  # heat before the first sample has no known beginning
            if standing is not None and (grew if grew is not None and self._needs_growth else bit is not None):
                found.append(self._build_thermal_finding(snapshot, gpu, standing))
        return found

    def _has_grown_recently(self, gpu: Gpu, sample: Sample) -> bool | None:
        count = _sum_thermal_counters(gpu.events)
        if count is None:
            return None
        before = self._counts.get(gpu.index)
        self._counts[gpu.index] = count
        if before is not None and count > before:
            self._grew[gpu.index] = sample.uptime
        return 0 <= sample.uptime - self._grew.get(gpu.index, float("-inf")) <= self.RECENT

    def _build_thermal_finding(self, snapshot: NodeSnapshot, gpu: Gpu, standing: PersistentCondition) -> Finding:
        reasons = ", ".join(name for bit, name in THERMAL_REASONS.items() if (gpu.reasons or 0) & bit)
        evidence = [*build_gpu_evidence(gpu), FindingEvidence("event reasons", reasons, None, "nvml")]
        if (count := _sum_thermal_counters(gpu.events)) is not None:
            evidence.append(FindingEvidence("slowed by heat so far", format_duration(count / 1e9), None, "nvml"))
        return Finding(
            kind=FindingKind.THERMAL,
            severity=Severity.WARNING,
            node=snapshot.node,
            summary="heat slows the GPU down" + ("" if gpu.celsius is None else f" at {gpu.celsius:.0f} °C"),
            remedy="give it air on all sides; a lower top clock costs little decode speed: sudo nvidia-smi -lgc 0,2100   "
            "(undo: sudo nvidia-smi -rgc)",
            evidence=tuple(evidence),
            since=standing.since,
        )


def _sum_thermal_counters(events: GpuEvents | None) -> int | None:
    known = [] if events is None else [one for one in (events.sw_thermal, events.hw_thermal) if one is not None]
    return sum(known) if known else None


class BusyWaitDetector:
    """Busy wait: a normal clock and full utilisation at the power of an idle machine (96 % at 18 W).

    All of: SM clock at least 70 % of its maximum (2300-2450 of 3003 MHz), utilisation at least 90 %, power under 30 W
    (real work takes 46-93 W), and no engine on the node known to produce tokens; for 60 s, because one rank of two
    may wait for the other for seconds.
    """

    CLOCK, BUSY, POWER, SECONDS = 0.70, 0.90, 30.0, 60.0

    def __init__(self) -> None:
        self._lasting = ConditionTimer(self.SECONDS)

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each GPU in a busy wait."""
        numbers = [one.numbers for one in snapshot.instances or () if one.numbers is not None]
        working = any(one.activity in (EngineActivity.DECODING, EngineActivity.PREFILL) for one in numbers)
        found = []
        for gpu in snapshot.sample.gpus or ():
            claim = self._is_spinning(gpu)
            standing = self._lasting.update_condition(gpu.index, claim and not working, snapshot.sample)
            if standing is not None:
                found.append(self._build_busy_wait_finding(snapshot, gpu, standing))
        return found

    def _is_spinning(self, gpu: Gpu) -> bool | None:
        clock, highest, busy, power = gpu.sm_clock, gpu.sm_clock_max, gpu.busy, gpu.power
        if clock is None or not highest or busy is None or power is None:
            return None
        return clock >= self.CLOCK * highest and busy >= self.BUSY and power < self.POWER

    def _build_busy_wait_finding(self, snapshot: NodeSnapshot, gpu: Gpu, standing: PersistentCondition) -> Finding:
        power = f"{gpu.power:.0f} W" if gpu.power is not None else ""
        return Finding(
            kind=FindingKind.BUSY_WAIT,
            severity=Severity.WARNING,
            node=snapshot.node,
            summary=f"the GPU is fully busy at only {power}: something waits in a loop, perhaps for the other Spark, or hangs",
            remedy="see the engine's log on both nodes (sparkctl logs NAME -f); if no token comes: sparkctl down NAME, up again",
            evidence=build_gpu_evidence(gpu),
            since=standing.since,
        )


def build_gpu_evidence(gpu: Gpu) -> tuple[FindingEvidence, ...]:
    """Return the known figures of the GPU's reading."""
    said = (
        ("SM clock", None if gpu.sm_clock is None else f"{gpu.sm_clock}", "MHz"),
        ("of at most", None if gpu.sm_clock_max is None else f"{gpu.sm_clock_max}", "MHz"),
        ("utilisation", None if gpu.busy is None else f"{gpu.busy * 100:.0f}", "%"),
        ("power", None if gpu.power is None else f"{gpu.power:.1f}", "W"),
        ("temperature", None if gpu.celsius is None else f"{gpu.celsius:.0f}", "°C"),
    )
    return tuple(FindingEvidence(name, value, unit, "nvml") for name, value, unit in said if value is not None)
