"""The Prometheus page: well formed, named by convention, and silent about what is not known."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Point

from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, MeterSource, Quantiles
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import (
    DiskSpace,
    Gpu,
    MemoryDetail,
    MemoryPressure,
    MemoryReading,
    NetworkInterface,
    RdmaLane,
    Sample,
    Temperature,
)
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.prometheus_metrics import render_metrics

NODE = NodeName("spark1")
NUMBERS = EngineMeter(
    activity=EngineActivity.DECODING,
    seconds=10.0,
    estimator=MeterSource.COUNTERS,
    generation_rate=12.7,
    steps=7.26,
    running=2,
    waiting=0,
    kv_usage=0.31,
    acceptance=DraftAcceptance(1.75, 0.2, None, MeterSource.COUNTERS),
    ttft=Quantiles(0.25, 0.9, 12),
)
OURS = InstanceView(
    name="qwen36",
    node=NODE,
    container="sglang-qwen36",
    image="image",
    state=ContainerState.RUNNING,
    status="Up",
    ours=True,
    memory=41,
    phase=Phase.READY,
    engine="sglang",
    container_id="ab" * 32,
    port=8003,
    numbers=NUMBERS,
    expected=44,
    per_step=DecodeStepSpec(weights=27_000_000_000, draft_tokens=3),
)
SAMPLE = Sample(
    sequence=1,
    time=5.0,
    uptime=5.0,
    memory=MemoryReading(total=120, available=90, free=60, page_cache=30, swap_total=16, swap_free=15),
    detail=MemoryDetail(oom_kill=2, pressure=MemoryPressure(0.25, 0.1, 1_500_000, 0)),
    gpus=(Gpu(index=0, busy=0.96, sm_clock=2411, power=61.0, celsius=71.0),),
    spent=0.5,
    temperatures=(Temperature("mlx5", 57.0, "asic", "0000:01:00.0"), Temperature("mlx5", 58.0, "asic", "0000:01:00.1")),
    disks=(DiskSpace("/var/lib/docker", 100, 40),),
    links=(NetworkInterface(name="enp1s0f0np0", carrier=True, speed=200_000, received=7, sent=8, errors=0),),
    rdma=(
        RdmaLane(
            name="rocep1s0f0", port="1", interface="enp1s0f0np0", received=700, sent=800, errors=(("symbol_error", 3),)
        ),
    ),
)
BARE = replace(OURS, memory=None, numbers=None, phase=None, expected=None, per_step=None)
SWAP = Finding(kind=FindingKind.SWAP, severity=Severity.WARNING, node=NODE, summary="swap grows")
VIEW = NodeTelemetryView(
    name=NODE,
    state=NodeState.OK,
    when=5.0,
    sample=SAMPLE,
    instances=(OURS,),
    instances_seen=5.0,
    sampled=5.0,
    findings=(SWAP,),
)
AWAY = NodeTelemetryView(name=NodeName("spark2"), state=NodeState.STARVED, when=5.0, detail="no banner")


def parse_page(*views: NodeTelemetryView, now: float = 7.5) -> list[Point]:
    return [point for family in text_string_to_metric_families(render_metrics(views, now)) for point in family.samples]


def read_value(name: str, views: tuple[NodeTelemetryView, ...] = (VIEW, AWAY), **labels: str) -> float:
    (found,) = [
        point.value for point in parse_page(*views) if point.name == name and labels.items() <= point.labels.items()
    ]
    return found


def test_the_page_is_what_prometheus_wants() -> None:
    text = render_metrics((VIEW, AWAY), 7.5)
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        assert family.documentation
        assert family.type in ("gauge", "counter")
        assert re.fullmatch(r"sparkctl_[a-z0-9_]+", family.name)
        for point in family.samples:
            assert point.name.endswith("_total") == (family.type == "counter"), point.name
        keys = [(point.name, tuple(sorted(point.labels.items()))) for point in family.samples]
        assert len(keys) == len(set(keys))
    assert text.count("# HELP ") == text.count("# TYPE ") == len(families)
    assert not [name for name in names if re.search(r"_(mhz|gib|kb|mb|ms|percent|celcius)(_|$)", name)]


def test_values_are_in_base_units() -> None:
    assert read_value("sparkctl_node_memory_available_bytes") == 90
    assert read_value("sparkctl_node_memory_page_cache_bytes") == 30
    assert read_value("sparkctl_node_memory_pressure_seconds_total", tasks="some") == 1.5
    assert read_value("sparkctl_gpu_sm_clock_hertz") == 2.411e9
    assert read_value("sparkctl_gpu_utilization_ratio") == 0.96
    assert read_value("sparkctl_link_speed_bytes_per_second") == 25e9
    assert read_value("sparkctl_rdma_receive_bytes_total", device="rocep1s0f0", interface="enp1s0f0np0") == 700
    assert read_value("sparkctl_node_temperature_celsius", device="0000:01:00.1") == 58
    assert read_value("sparkctl_instance_generation_tokens_per_second", instance="qwen36", engine="sglang") == 12.7
    assert read_value("sparkctl_instance_accept_length_tokens", estimator="counters") == 1.75
    assert read_value("sparkctl_instance_time_to_first_token_seconds", quantile="0.95") == 0.9
    assert read_value("sparkctl_node_sample_age_seconds") == 2.5


def test_bandwidth_says_where_it_comes_from() -> None:
    for end in ("low", "high"):
        name = f"sparkctl_instance_memory_bandwidth_{end}_bytes_per_second"
        assert read_value(name, source="estimate", instance="qwen36") == 27e9 * 7.26
    counted = replace(
        VIEW, sample=replace(SAMPLE, gpus=(Gpu(index=0, bandwidth_share=0.5, bandwidth_peak=4_000_000_000_000),))
    )
    assert read_value("sparkctl_node_memory_bandwidth_bytes_per_second", (counted,), source="hardware") == 2e12
    idle = replace(OURS, numbers=EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0, steps=0.0))
    assert not [p for p in parse_page(replace(VIEW, instances=(idle,))) if "bandwidth" in p.name]


def test_expected_durations_drafts_and_findings_have_series() -> None:
    assert read_value("sparkctl_instance_expected_bytes") == 44
    assert read_value("sparkctl_instance_draft_tokens") == 3
    assert read_value("sparkctl_finding", kind="swap", severity="warning", instance="") == 1


def test_states_are_sets_with_one_member() -> None:
    for name, label, wanted in (("node_state", "state", "starved"), ("instance_phase", "phase", "ready")):
        found = [p for p in parse_page(VIEW, AWAY) if p.name == f"sparkctl_{name}" and p.labels["node"] != "spark1"]
        found = found or [p for p in parse_page(VIEW) if p.name == f"sparkctl_{name}"]
        assert [point.labels[label] for point in found if point.value == 1] == [wanted]
        assert len(found) == len(NodeState if name == "node_state" else Phase)


def test_of_a_node_that_is_away_only_that_is_told() -> None:
    found = {point.name for point in parse_page(VIEW, AWAY) if point.labels["node"] == "spark2"}
    assert found == {"sparkctl_node_up", "sparkctl_node_state"}
    assert read_value("sparkctl_node_up", node="spark2") == 0
    assert read_value("sparkctl_node_up", node="spark1") == 1


def test_unknown_values_have_no_series() -> None:
    bare = replace(VIEW, sample=Sample(sequence=1, time=5.0, uptime=5.0), findings=(), instances=(BARE,))
    names = {point.name for point in parse_page(bare)}
    assert names == {
        "sparkctl_node_up", "sparkctl_node_state", "sparkctl_node_docker_up", "sparkctl_node_sample_age_seconds",
    }  # fmt: skip
    idle = replace(OURS, numbers=EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0, acceptance=None))
    found = {point.name: point.value for point in parse_page(replace(VIEW, instances=(idle,)))}
    assert found["sparkctl_instance_generation_tokens_per_second"] == 0  # known to be idle
    assert "sparkctl_instance_accept_length_tokens" not in found


@given(st.text(), st.text(max_size=30), st.floats())
def test_no_name_from_a_node_breaks_the_page(name: str, path: str, clock: float) -> None:
    hostile = replace(OURS, name=name, container=name, image=name)
    sample = replace(SAMPLE, disks=(DiskSpace(path, 1, 1), DiskSpace(path, 2, 2)), gpus=(Gpu(index=0, power=clock),))
    text = render_metrics((replace(VIEW, instances=(hostile, hostile), sample=sample),), 7.5)
    lines = [line for line in text.split("\n") if line and not line.startswith("# ")]
    assert all(line.startswith("sparkctl_") for line in lines)
    assert "nan" not in text.lower().split()


def test_two_of_the_same_labels_are_one_series() -> None:
    found = [p for p in parse_page(replace(VIEW, instances=(OURS, OURS))) if p.name == "sparkctl_instance_held_bytes"]
    assert len(found) == 1


def test_devices_that_owe_an_answer_are_told_and_their_old_figures_are_not() -> None:
    hung = replace(SAMPLE, links=None, rdma=None, temperatures=None, disks=None, devices_silent_for=14.0)
    by_name = {p.name: p.value for p in parse_page(replace(VIEW, sample=hung))}
    assert by_name["sparkctl_devices_silent_seconds"] == 14.0
    assert not {"sparkctl_disk_free_bytes", "sparkctl_node_temperature_celsius", "sparkctl_link_up"} & set(by_name)
