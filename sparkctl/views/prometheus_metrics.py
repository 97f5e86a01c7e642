"""Nodes and instances as Prometheus metrics. A value that is not known has no series and is never zero.

Base units: bytes, seconds, hertz, watts, degrees Celsius, ratios 0..1. Names and texts from a node become label
values, which the library escapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from sparkctl.model.engine_metrics import Quantiles
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Gpu, MemoryBar, MemoryPressure
from sparkctl.monitor.meters.bandwidth import BandwidthSource, estimate_instance_bandwidth, get_node_bandwidth
from sparkctl.monitor.node_views import NodeTelemetryView

_HERTZ_PER_MHZ = 1e6
_BYTES_PER_MEGABIT = 1e6 / 8
MetricLabels = tuple[str, ...]
MetricValue = float | int | bool | None
_SOURCE_LABELS = {BandwidthSource.ESTIMATE: "estimate", BandwidthSource.COUNTER: "hardware"}
_INSTANCE_LABEL_NAMES = ("node", "instance", "container", "engine")


class NodeCollector(Collector):
    """Collects what ``views`` returns at each scrape; ``now`` returns this machine's Unix time in seconds."""

    def __init__(self, views: Callable[[], Sequence[NodeTelemetryView]], now: Callable[[], float]) -> None:
        self._views = views
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics with their series."""
        views, now = self._views(), self._now()
        for part in (
            _collect_node_state,
            _collect_memory,
            _collect_gpus,
            _collect_devices,
            _collect_traffic,
            _collect_instances,
            _collect_engines,
            _collect_bandwidth,
        ):
            for family in part(views, now):
                yield family.metric


def build_registry(views: Callable[[], Sequence[NodeTelemetryView]], now: Callable[[], float]) -> CollectorRegistry:
    """Return a registry with only these metrics."""
    found = CollectorRegistry(auto_describe=False)
    found.register(NodeCollector(views, now))
    return found


def render_metrics(views: Sequence[NodeTelemetryView], now: float) -> str:
    return generate_latest(build_registry(lambda: views, lambda: now)).decode()


class _MetricFamily:
    """One metric while its series are collected; of two series with the same labels the first wins."""

    def __init__(self, name: str, about: str, labels: MetricLabels, *, counter: bool = False) -> None:
        kind = CounterMetricFamily if counter else GaugeMetricFamily
        self.metric = kind(f"sparkctl_{name}", about, labels=labels)
        self._seen: set[MetricLabels] = set()

    def add_series(self, labels: Sequence[str | None], value: MetricValue) -> None:
        texts = tuple(label or "" for label in labels)
        if value is None or not math.isfinite(value) or texts in self._seen:
            return
        self._seen.add(texts)
        self.metric.add_metric(list(texts), float(value))


def _collect_node_state(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    up = _MetricFamily("node_up", "1 if the node answers and its state is known.", ("node",))
    state = _MetricFamily("node_state", "The node's state: 1 for the one it is in.", ("node", "state"))
    age = _MetricFamily("node_sample_age_seconds", "Time since the last reading arrived.", ("node",))
    docker = _MetricFamily("node_docker_up", "1 if Docker reports what is running.", ("node",))
    wrong = _MetricFamily(
        "finding", "1 for each thing that is wrong, by its kind.", ("node", "kind", "severity", "instance")
    )
    spent = _MetricFamily("probe_cpu_seconds", "CPU time that the probe has cost the node.", ("node",), counter=True)
    for view in views:
        ok = view.state is NodeState.OK
        up.add_series((view.name,), ok)
        for one in NodeState:
            state.add_series((view.name, one.value), one is view.state)
        if not ok:
            continue
        docker.add_series((view.name,), view.docker_known)
        age.add_series((view.name,), None if view.sampled is None else max(0.0, now - view.sampled))
        spent.add_series((view.name,), view.sample.spent if view.sample else None)
        for finding in view.findings:
            wrong.add_series((view.name, finding.kind.value, finding.severity.value, finding.instance), 1)
    yield from (up, state, age, docker, spent, wrong)


_MEMORY_METRICS: tuple[tuple[str, str, Callable[[MemoryBar], MetricValue]], ...] = (
    ("total", "All memory.", lambda bar: bar.total),
    ("available", "Memory available without swapping.", lambda bar: bar.available),
    ("gpu_processes", "Memory that the driver reports for GPU processes.", lambda bar: bar.gpu_processes),
    ("other_used", "Used by others; where the driver is silent, by GPU processes too.", lambda bar: bar.other_used),
    ("processes", "Part of other_used: CPU memory of processes.", lambda bar: bar.processes),
    ("unaccounted", "Part of other_used that no known process accounts for.", lambda bar: bar.unaccounted),
    ("page_cache", "What the kernel would give back: available - free.", lambda bar: bar.page_cache),
    ("free", "Unused.", lambda bar: bar.free),
    ("swap_used", "Swap in use.", lambda bar: bar.swap_used),
)


def _collect_memory(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    for name, about, read in _MEMORY_METRICS:
        family = _MetricFamily(f"node_memory_{name}_bytes", about, ("node",))
        for view in views:
            family.add_series((view.name,), read(view.memory) if view.memory else None)
        yield family
    share = _MetricFamily(
        "node_memory_pressure_ratio",
        "Share of the last 10 s that some, or all, tasks waited for memory.",
        ("node", "tasks"),
    )
    waited = _MetricFamily(
        "node_memory_pressure_seconds",
        "Time that some, or all, tasks waited for memory.",
        ("node", "tasks"),
        counter=True,
    )
    kills = _MetricFamily(
        "node_oom_kills", "Processes that the kernel killed for lack of memory.", ("node",), counter=True
    )
    for view in views:
        detail = view.sample.detail if view.sample else None
        kills.add_series((view.name,), detail.oom_kill if detail else None)
        pressure = (detail.pressure if detail else None) or MemoryPressure()
        for tasks, recent, total in (
            ("some", pressure.some, pressure.some_total),
            ("all", pressure.full, pressure.full_total),
        ):
            share.add_series((view.name, tasks), recent)
            waited.add_series((view.name, tasks), None if total is None else total / 1e6)
    yield from (share, waited, kills)


_GPU_METRICS: tuple[tuple[str, str, Callable[[Gpu], MetricValue]], ...] = (
    ("utilization_ratio", "Share of the time that a kernel ran.", lambda gpu: gpu.busy),
    ("sm_clock_hertz", "Clock of the SMs.", lambda gpu: gpu.sm_clock and gpu.sm_clock * _HERTZ_PER_MHZ),
    (
        "sm_clock_max_hertz",
        "Highest clock of the SMs.",
        lambda gpu: gpu.sm_clock_max and gpu.sm_clock_max * _HERTZ_PER_MHZ,
    ),
    ("power_watts", "Power that the GPU draws.", lambda gpu: gpu.power),
    ("temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.celsius),
)


def _collect_gpus(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    for name, about, read in _GPU_METRICS:
        family = _MetricFamily(f"gpu_{name}", about, ("node", "gpu"))
        for view in views:
            for gpu in (view.sample.gpus if view.sample else None) or ():
                family.add_series((view.name, str(gpu.index)), read(gpu))
        yield family
    silent = _MetricFamily(
        "gpu_silent_seconds", "How long the driver has not answered; absent while it answers.", ("node",)
    )
    for view in views:
        silent.add_series((view.name,), view.sample.gpu_silent_for if view.sample else None)
    yield silent
    owing = _MetricFamily(
        "devices_silent_seconds",
        "How long drives, links and sensors have not answered; absent while they answer.",
        ("node",),
    )
    for view in views:
        owing.add_series((view.name,), view.sample.devices_silent_for if view.sample else None)
    yield owing


def _collect_devices(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    busy = _MetricFamily("node_cpu_utilization_ratio", "Share of all cores' time that was used.", ("node",))
    heat = _MetricFamily("node_temperature_celsius", "Temperature by sensor.", ("node", "chip", "label", "device"))
    size = _MetricFamily("disk_size_bytes", "Size of the filesystem of a path.", ("node", "path"))
    free = _MetricFamily("disk_free_bytes", "Room on the filesystem of a path.", ("node", "path"))
    for view in views:
        if view.sample is None:
            continue
        busy.add_series((view.name,), view.sample.cpu.busy if view.sample.cpu else None)
        for sensor in view.sample.temperatures or ():
            heat.add_series((view.name, sensor.chip, sensor.label, sensor.device), sensor.celsius)
        for disk in view.sample.disks or ():
            size.add_series((view.name, disk.path), disk.total)
            free.add_series((view.name, disk.path), disk.free)
    yield from (busy, heat, size, free)


def _collect_traffic(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    names, ports = ("node", "interface"), ("node", "device", "port", "interface")
    up = _MetricFamily("link_up", "1 if the interface has a carrier.", names)
    speed = _MetricFamily("link_speed_bytes_per_second", "Speed that the interface claims.", names)
    received = _MetricFamily("link_receive_bytes", "Received through the kernel, so without RDMA.", names, counter=True)
    sent = _MetricFamily("link_transmit_bytes", "Sent through the kernel, so without RDMA.", names, counter=True)
    errors = _MetricFamily("link_errors", "Errors of the interface.", names, counter=True)
    took = _MetricFamily("rdma_receive_bytes", "Received by RDMA.", ports, counter=True)
    gave = _MetricFamily("rdma_transmit_bytes", "Sent by RDMA.", ports, counter=True)
    wrong = _MetricFamily("rdma_errors", "Error counters by the driver's names.", (*ports, "counter"), counter=True)
    for view in views:
        for link in (view.sample.links if view.sample else None) or ():
            key = (view.name, link.name)
            up.add_series(key, link.carrier)
            speed.add_series(key, None if link.speed is None else link.speed * _BYTES_PER_MEGABIT)
            received.add_series(key, link.received)
            sent.add_series(key, link.sent)
            errors.add_series(key, link.errors)
        for port in (view.sample.rdma if view.sample else None) or ():
            function = (view.name, port.name, port.port, port.interface)
            took.add_series(function, port.received)
            gave.add_series(function, port.sent)
            for counter, count in port.errors:
                wrong.add_series((*function, counter), count)
    yield from (up, speed, received, sent, errors, took, gave, wrong)


def _list_instance_labels(instance: InstanceView) -> tuple[str | None, ...]:
    return (instance.node, instance.name, instance.container, instance.engine)


def _collect_instances(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    phase = _MetricFamily(
        "instance_phase",
        "The phase of an instance that sparkctl started: 1 for the one it is in.",
        (*_INSTANCE_LABEL_NAMES, "phase"),
    )
    memory = _MetricFamily(
        "instance_held_bytes", "Memory of its processes, including GPU memory.", _INSTANCE_LABEL_NAMES
    )
    expected = _MetricFamily("instance_expected_bytes", "Memory that its profile expects.", _INSTANCE_LABEL_NAMES)
    drafts = _MetricFamily(
        "instance_draft_tokens", "Tokens drafted per step and request, as configured.", _INSTANCE_LABEL_NAMES
    )
    for one in (each for view in views for each in view.instances):
        memory.add_series(_list_instance_labels(one), one.memory)
        expected.add_series(_list_instance_labels(one), one.expected)
        drafts.add_series(_list_instance_labels(one), one.per_step.draft_tokens if one.per_step else None)
        if one.phase is not None:
            for each in Phase:
                phase.add_series((*_list_instance_labels(one), each.value), each is one.phase)
    yield from (phase, memory, expected, drafts)


_ENGINE_METRICS: tuple[tuple[str, str, str], ...] = (
    ("generation_tokens_per_second", "Tokens generated, over the last seconds.", "generation_rate"),
    ("prompt_tokens_per_second", "Prompt tokens computed, over the last seconds.", "prompt_rate"),
    ("decode_steps_per_second", "Decode steps, each serving all running requests.", "steps"),
    ("requests_running", "Requests that are being served.", "running"),
    ("requests_waiting", "Waiting requests.", "waiting"),
    ("kv_cache_usage_ratio", "Share of the KV cache in use.", "kv_usage"),
    ("prefix_hit_ratio", "Share of prompt tokens found in the prefix cache.", "prefix_hit_rate"),
)


def _collect_engines(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    meters = [(one, one.numbers) for view in views for one in view.instances if one.numbers is not None]
    for name, about, field in _ENGINE_METRICS:
        family = _MetricFamily(f"instance_{name}", about, _INSTANCE_LABEL_NAMES)
        for one, numbers in meters:
            family.add_series(_list_instance_labels(one), getattr(numbers, field))
        yield family
    by = (*_INSTANCE_LABEL_NAMES, "estimator")
    length = _MetricFamily(
        "instance_accept_length_tokens", "Tokens per verification step, the bonus token counted.", by
    )
    rate = _MetricFamily("instance_accept_ratio", "Draft tokens accepted / drafted.", by)
    for one, numbers in meters:
        if numbers.acceptance is not None:
            key = (*_list_instance_labels(one), numbers.acceptance.estimator.value)
            length.add_series(key, numbers.acceptance.length)
            rate.add_series(key, numbers.acceptance.rate)
    yield from (length, rate)
    yield _build_quantiles(
        "instance_time_to_first_token_seconds", "Time to the first token.", [(o, n.ttft) for o, n in meters]
    )
    yield _build_quantiles(
        "instance_inter_token_seconds",
        "Time between tokens; with speculation, between steps.",
        [(o, n.inter_token) for o, n in meters],
    )


def _collect_bandwidth(views: Sequence[NodeTelemetryView], now: float) -> Iterator[_MetricFamily]:
    """Yield the estimated bandwidth of each instance, and the counted one of a GPU that has a counter."""
    about = "end of the range of memory bandwidth that decoding needs; blank while prompts are read and while it idles."
    low = _MetricFamily(
        "instance_memory_bandwidth_low_bytes_per_second", f"Lower {about}", (*_INSTANCE_LABEL_NAMES, "source")
    )
    high = _MetricFamily(
        "instance_memory_bandwidth_high_bytes_per_second", f"Upper {about}", (*_INSTANCE_LABEL_NAMES, "source")
    )
    whole = _MetricFamily("node_memory_bandwidth_bytes_per_second", "Measured memory bandwidth.", ("node", "source"))
    for view in views:
        if (counted := get_node_bandwidth(view)) is not None:
            whole.add_series((view.name, _SOURCE_LABELS[counted.source]), counted.low)
        for one in view.instances:
            if (read := estimate_instance_bandwidth(one, view)) is not None and read.is_plausible:
                low.add_series((*_list_instance_labels(one), _SOURCE_LABELS[read.source]), read.low)
                high.add_series((*_list_instance_labels(one), _SOURCE_LABELS[read.source]), read.high)
    yield from (low, high, whole)


def _build_quantiles(name: str, about: str, found: Iterable[tuple[InstanceView, Quantiles | None]]) -> _MetricFamily:
    family = _MetricFamily(name, f"{about} Quantiles over the last seconds.", (*_INSTANCE_LABEL_NAMES, "quantile"))
    for one, quantiles in found:
        if quantiles is not None:
            family.add_series((*_list_instance_labels(one), "0.5"), quantiles.p50)
            family.add_series((*_list_instance_labels(one), "0.95"), quantiles.p95)
    return family
