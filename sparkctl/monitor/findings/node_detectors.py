"""Runs all detectors, for one node and across nodes; detects restart loops and missing ranks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import NO_GPU_PATH, EngineFact, EngineFactName
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity, sort_by_severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase
from sparkctl.model.reference import TOLERANCE, FigureRange, estimate_request_context
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.monitor.findings import (
    Detector,
    NodeSnapshot,
    PersistentCondition,
    get_container_key,
)
from sparkctl.monitor.findings.engine_detectors import (
    FullCacheDetector,
    LostPrefixDetector,
    RejectedDraftsDetector,
    StalledRequestsDetector,
    StarvedDecodeDetector,
)
from sparkctl.monitor.findings.fabric_detectors import (
    IdleLaneDetector,
    MissingRouteDetector,
    NcclGidDetector,
    detect_missing_network,
    detect_rdma_disabled,
)
from sparkctl.monitor.findings.host_detectors import (
    BusyWaitDetector,
    DiskSpaceDetector,
    KernelEventDetector,
    OrphanProcessDetector,
    PageCacheDetector,
    StuckClockDetector,
    SwapGrowthDetector,
    ThermalDetector,
)
from sparkctl.monitor.ranks import count_ranks, find_ranks

_LOW_CLOCK_SHARE = 0.7  # of the highest; a healthy GB10 runs at 2280 to 2450 of 3003 MHz under load
_MUCH_SWAP = GIB  # bytes; idle pages may lie in swap and slow nothing


class RestartLoopDetector(Detector):
    """Reports a container that Docker restarted (its RestartCount grew) within the last 30 minutes; as a loop if three times, or if
    its state is *restarting* now.

    An engine may take minutes to fail, so a whole load may lie between two restarts. Restarts before the first snapshot do not
    count: the counter never goes down, so the loop may be over.
    """

    WINDOW, LOOP = 1800.0, 3

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._grown: dict[str, list[tuple[float, float, int]]] = {}  # uptime, unix time, by how many

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        found = []
        if snapshot.instances is not None:
            here = {get_container_key(one) for one in snapshot.instances}
            self._counts = {key: count for key, count in self._counts.items() if key in here}
            self._grown = {key: grown for key, grown in self._grown.items() if key in here}
        for one in snapshot.instances or ():
            self._count_restarts(one, snapshot)
            again = sum(more for _, _, more in self._grown.get(get_container_key(one), ()))
            restarting = one.state is ContainerState.RESTARTING
            if again or restarting:
                found.append(self._build_restart_finding(snapshot, one, again, restarting))
        return found

    def _count_restarts(self, one: InstanceView, snapshot: NodeSnapshot) -> None:
        now, count = snapshot.sample.uptime, one.restarts
        grown = [grew for grew in self._grown.get(get_container_key(one), ()) if 0 <= now - grew[0] <= self.WINDOW]
        if count is not None:
            more = count - self._counts.get(get_container_key(one), count)
            if more > 0:
                grown.append((now, snapshot.sample.time, more))
            self._counts[get_container_key(one)] = count
        self._grown[get_container_key(one)] = grown

    def _build_restart_finding(
        self, snapshot: NodeSnapshot, one: InstanceView, again: int, restarting: bool
    ) -> Finding:
        loop = restarting or again >= self.LOOP
        evidence = [FindingEvidence("state", one.state.value, None, "docker")]
        if one.restarts is not None:
            evidence.append(FindingEvidence("RestartCount", str(one.restarts), None, "docker"))
        times = "again and again" if loop else "once" if again == 1 else f"{again} times"
        grown = self._grown.get(get_container_key(one))
        name, quoted = one.name, shlex.quote(one.container)
        return Finding(
            FindingKind.RESTART_LOOP,
            Severity.PROBLEM if loop else Severity.WARNING,
            snapshot.node,
            f"{name} ended and Docker started it {times}",
            remedy=f"see why in its log (sparkctl logs {shlex.quote(name)}); to end the loop: "
            f"docker update --restart=no {quoted} && docker stop {quoted}",
            instance=name,
            evidence=tuple(evidence),
            since=grown[0][1] if grown else None,
        )


class SlowGenerationDetector(Detector):
    """Reports an engine that, for three minutes, generates at least a fifth slower than its source measured in the same situation.

    It reports nothing where the situation differs: another number of requests, waiting requests, prompts that are read at the same
    time, a context of another or an unknown length.
    """

    SECONDS = 180.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        found = []
        for one in snapshot.instances or ():
            rate, numbers = one.reference_rate, one.numbers
            claim = None
            if numbers is not None and numbers.generation_rate is not None and rate is not None:
                is_alone = not numbers.prompt_rate and estimate_request_context(numbers, one.facts) is not None
                claim = numbers.generation_rate < (1 - TOLERANCE) * rate.low if is_alone else None
            standing = self._lasting.update_condition(get_container_key(one), claim, snapshot.sample)
            if standing is not None and rate is not None:
                found.append(_build_slow_generation_finding(snapshot, one, rate, standing))
        return found


def _build_slow_generation_finding(
    snapshot: NodeSnapshot, one: InstanceView, rate: FigureRange, standing: PersistentCondition
) -> Finding:
    assert one.numbers is not None
    assert one.reference is not None
    now, source = (
        one.numbers.generation_rate or 0.0,
        f"{rate.low:g}" + ("" if rate.low == rate.high else f"–{rate.high:g}"),
    )
    evidence = [
        FindingEvidence("generation", f"{now:.1f}", "tok/s", "engine"),
        FindingEvidence("source", source, "tok/s", one.reference.source),
    ]
    reasons = []
    length, wanted = one.numbers.acceptance and one.numbers.acceptance.length, one.reference.accept_length
    if length and wanted is not None:
        evidence.append(
            FindingEvidence("accept length", f"{length:.2f}, source {wanted.low:g}–{wanted.high:g}", None, "engine")
        )
        reasons += (
            ["it accepts fewer drafts than the source did: other prompts, or another draft model"]
            if length < wanted.low
            else []
        )
    for gpu in snapshot.sample.gpus or ():
        if gpu.sm_clock is not None and gpu.sm_clock_max:
            evidence.append(FindingEvidence("SM clock", f"{gpu.sm_clock} of {gpu.sm_clock_max}", "MHz", "nvml"))
            reasons += ["the GPU's clock is low"] if gpu.sm_clock < _LOW_CLOCK_SHARE * gpu.sm_clock_max else []
    memory = snapshot.sample.memory
    if memory is not None and memory.swap_used > _MUCH_SWAP:
        evidence.append(FindingEvidence("swap used", format_gib(memory.swap_used), None, "meminfo"))
        reasons.append("memory is in swap")
    if (kind := next((fact for fact in one.facts if fact.name is EngineFactName.QUANTIZATION), None)) is not None:
        evidence.append(FindingEvidence("quantization", kind.value, None, "log"))
    usual = "the usual reasons: a low clock, swap, rejected drafts, a checkpoint with another quantization"
    return Finding(
        FindingKind.BELOW_REFERENCE,
        Severity.NOTE,
        snapshot.node,
        f"{one.name} generates {now:.1f} tok/s where its source measured {source}"
        + (f"; {'; '.join(reasons)}" if reasons else ""),
        remedy=f"compare the set-up: sparkctl profiles show {shlex.quote(one.profile or one.name)}; {usual}",
        instance=one.name,
        evidence=tuple(evidence),
        since=standing.since,
    )


def detect_missing_rank(snapshots: Sequence[NodeSnapshot]) -> list[Finding]:
    """Return a finding for each ready rank while another rank is missing: a rank can get ready only with all others.

    ``snapshots`` are of all nodes: an unread node, or a model on more Sparks than these, does not prove that a rank is missing.
    """
    if any(snapshot.instances is None for snapshot in snapshots):
        return []
    there = [one for snapshot in snapshots for one in snapshot.instances or ()]
    found = []
    for one in there:
        wanted, seen = count_ranks(one), len(find_ranks(one, there))
        if one.phase is Phase.READY and one.is_alive and seen < wanted <= len(snapshots):
            found.append(
                Finding(
                    FindingKind.PARTNER,
                    Severity.PROBLEM,
                    one.node,
                    f"{one.name} runs on only {seen} of its {wanted} Sparks, and answers no requests",
                    remedy=f"sparkctl down {shlex.quote(one.name)}, then start the model again on all its Sparks",
                    instance=one.name,
                    evidence=(FindingEvidence("parts", f"{seen} of {wanted}", None, "docker"),),
                )
            )
    return found


class NodeDetectors:
    """One node's detectors. Feed it every sample, in order."""

    def __init__(self) -> None:
        self._detectors: tuple[Detector, ...] = (
            StuckClockDetector(),
            ThermalDetector(),
            BusyWaitDetector(),
            SwapGrowthDetector(),
            PageCacheDetector(),
            IdleLaneDetector(),
            MissingRouteDetector(),
            NcclGidDetector(),
            DiskSpaceDetector(),
            OrphanProcessDetector(),
            RestartLoopDetector(),
            KernelEventDetector(),
            SlowGenerationDetector(),
            StalledRequestsDetector(),
            RejectedDraftsDetector(),
            LostPrefixDetector(),
            StarvedDecodeDetector(),
            FullCacheDetector(),
        )

    def detect_all(self, snapshot: NodeSnapshot) -> tuple[Finding, ...]:
        """Return the findings as of this snapshot, worst first."""
        return sort_by_severity([finding for detector in self._detectors for finding in detector.detect(snapshot)])


def detect_once(snapshot: NodeSnapshot) -> tuple[Finding, ...]:
    """Return the findings that a single snapshot proves, worst first. Conditions that must last are left out, and ``since`` is None."""
    detectors: tuple[Detector, ...] = (
        ThermalDetector(0.0),
        IdleLaneDetector(0.0),
        MissingRouteDetector(0.0),
        NcclGidDetector(),
        DiskSpaceDetector(),
        OrphanProcessDetector(0.0),
        RestartLoopDetector(),
        KernelEventDetector(),
    )
    return sort_by_severity([finding for detector in detectors for finding in detector.detect(snapshot)])


def detect_across_nodes(snapshots: Sequence[NodeSnapshot], *, are_all: bool) -> tuple[Finding, ...]:
    """Return the findings that need several nodes, worst first. ``are_all``: no other node is configured."""
    return sort_by_severity(
        detect_missing_network(snapshots)
        + detect_rdma_disabled(snapshots)
        + (detect_missing_rank(snapshots) if are_all else [])
    )


_NATIVE_KERNEL_REMEDY = (
    "take an image whose log names a native kernel for this format; the badge shows which kernel runs"
)
_MARLIN_REMEDY = (
    "nothing, unless you measure that it is slower: owners of a Spark found Marlin as fast as the native FP4 kernels, or 10 % "
    "and more faster. VLLM_NVFP4_GEMM_BACKEND=marlin in env chooses it; without it, an image built for 12.1a "
    "(TORCH_CUDA_ARCH_LIST, FLASHINFER_CUDA_ARCH_LIST) uses the native ones"
)


_NO_GPU_REMEDY = (
    "the GPU is not in the container: set container.gpus: all, take an image that is built with CUDA, and see that nvidia-smi works on the "
    "node (after a driver update, restart it)"
)
_ALL_LAYERS_REMEDY = "leave args.gpu-layers out, or set 99: layers on the CPU save no memory on a Spark"


def suggest_for_slow_path(fact: EngineFact) -> str:
    """Return what to do about a fallback."""
    if fact.value == NO_GPU_PATH:
        return _NO_GPU_REMEDY
    if "layers on the GPU" in fact.value:
        return _ALL_LAYERS_REMEDY
    return _MARLIN_REMEDY if "Marlin" in fact.value else _NATIVE_KERNEL_REMEDY


def detect_slow_path(instances: Sequence[InstanceView]) -> list[Finding]:
    """Return a note for each instance with a fallback, naming what it uses instead."""
    return [
        Finding(
            FindingKind.SLOW_PATH, Severity.NOTE, one.node,
            f"{one.name} runs on the CPU: it finds no GPU" if fact.value == NO_GPU_PATH
            else f"{one.name} uses a fallback, {fact.value}, instead of the GPU's native arithmetic",
            remedy=suggest_for_slow_path(fact),
            instance=one.name, evidence=(FindingEvidence(fact.name.value, fact.value, origin="log"),),
        )
        for one in instances if one.ours and one.is_alive
        for fact in one.facts if fact.is_fallback
    ]  # fmt: skip
