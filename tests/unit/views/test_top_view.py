"""``top`` as an owner reads it: what is not known is said, what a node sends is only text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, MeterSource, Quantiles
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.reference import ComparableReference, FigureRange, ReferenceRate
from sparkctl.model.sample import (
    Cpu,
    DiskSpace,
    Gpu,
    GpuProcess,
    MemoryDetail,
    MemoryPressure,
    MemoryReading,
    NetworkInterface,
    RdmaLane,
    Sample,
    Temperature,
)
from sparkctl.model.text.units import GIB
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.text.styled_text import to_ascii
from sparkctl.views.top_view import build_top_json, format_memory_bar, format_top

MEMORY = MemoryReading(
    total=122 * GIB, available=23 * GIB, free=4 * GIB, page_cache=19 * GIB, swap_total=16 * GIB, swap_free=15 * GIB
)
SAMPLE = Sample(
    sequence=2,
    time=1.0,
    uptime=2.0,
    memory=MEMORY,
    detail=MemoryDetail(pressure=MemoryPressure(0.02, 0.0)),
    cpu=Cpu(0.06, (0.06,), (), (1.0, 2.0, 3.0)),
    gpus=(
        Gpu(
            index=0,
            name="NVIDIA GB10",
            busy=0.96,
            sm_clock=2398,
            sm_clock_max=3003,
            power=62.4,
            celsius=71,
            pstate=0,
            reasons=0x21,
            processes=(GpuProcess(7, 82 * GIB),),
        ),
    ),
    temperatures=(Temperature("acpitz", 78.2), Temperature("acpitz", 71.0)),
    links=(
        NetworkInterface(
            name="enp1s0f0np0", carrier=True, state="up", speed=200000, mtu=9000, receive_rate=900.0, send_rate=None
        ),
        NetworkInterface(name="wlP9s9", carrier=False),
    ),
    rdma=(
        RdmaLane(
            name="rocep1s0f0",
            port="1",
            interface="enp1s0f0np0",
            receive_rate=1.25e9,
            send_rate=3e6,
            errors=(("symbol_error", 0),),
        ),
    ),
)
VIEW = NodeTelemetryView(name=NodeName("spark1"), state=NodeState.OK, when=1.0, sample=SAMPLE, instances_seen=1.0)


def render_top(view: NodeTelemetryView) -> str:
    return "\n".join(format_top([view]))


def test_a_node_at_work() -> None:
    shown = render_top(VIEW)
    assert "122.0 GiB   available 23.0 GiB   swap 1.0 GiB   pressure 2 %" in shown
    assert "   GPU processes 82.0   other 17.0   page cache 19.0   free 4.0" in shown
    assert "96 %   2398 of 3003 MHz   62 W   71 °C   P0   held back by thermal (software)" in shown
    assert "6 %   load 1.00 2.00 3.00   acpitz 78 °C" in shown
    assert "enp1s0f0np0   200 Gb/s   MTU 9000   ↓ 900 B/s ↑ —   RDMA rocep1s0f0 ↓ 1.2 GB/s ↑ 3.0 MB/s" in shown
    assert "wlP9s9" not in shown


def test_the_bar_is_as_long_as_it_should_be() -> None:
    bar = VIEW.memory
    assert bar is not None
    assert to_ascii(format_memory_bar(bar)) == "[" + "#" * 27 + "=" * 5 + "-" * 7 + "." + "]"


def test_unknown_values_are_marked() -> None:
    silent = replace(SAMPLE, gpus=None, gpu_silent_for=14.2)
    assert "GPU     no answer for 14 s" in render_top(replace(VIEW, sample=silent))
    assert "GPU processes —   other 99.0" in render_top(replace(VIEW, sample=silent))
    hung = replace(SAMPLE, links=None, temperatures=None, disks=None, devices_silent_for=14.2)
    assert "device  no answer for 14 s" in render_top(replace(VIEW, sample=hung))
    broken = replace(SAMPLE, links=None, devices_trouble="ValueError: \x1b[31mnot hex")
    assert "device  ValueError: " in render_top(replace(VIEW, sample=broken))
    assert "\x1b" not in render_top(replace(VIEW, sample=broken))
    absent = replace(SAMPLE, gpus=None, gpu_trouble="NVML: Shared Library \x1b[31mNot Found")
    assert "\x1b" not in render_top(replace(VIEW, sample=absent))
    assert "Not Found" in render_top(replace(VIEW, sample=absent))
    nothing = render_top(replace(VIEW, sample=Sample(sequence=1, time=1.0, uptime=1.0)))
    assert "memory  —" in nothing
    assert "CPU     —" in nothing


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.OK])
def test_a_node_that_cannot_be_asked_has_its_state_and_no_numbers(state: NodeState) -> None:
    shown = render_top(
        NodeTelemetryView(name=NodeName("spark1"), state=state, when=1.0, detail="no route", hint="ping it")
    )
    assert f"{state}: no route" in shown
    assert "try: ping it" in shown
    assert "GiB" not in shown


def test_ascii_is_ascii() -> None:
    assert to_ascii(render_top(VIEW)).isascii()


def test_the_document() -> None:
    document = json.loads(
        json.dumps(build_top_json([VIEW, NodeTelemetryView(name=NodeName("b"), state=NodeState.UNREACHABLE, when=1.0)]))
    )
    first, second = document["nodes"]
    assert document["schema"] == 1
    memory = first["memory"]
    assert memory == {"total": 122 * GIB, "available": 23 * GIB, "gpu_processes": 82 * GIB, "other_used": 17 * GIB,
                      "page_cache": 19 * GIB, "free": 4 * GIB, "swap_used": GIB, "processes": None,
                      "unaccounted": None}  # fmt: skip
    assert first["gpus"][0]["sm_clock"] == 2398
    assert first["rdma"][0]["errors"] == {"symbol_error": 0}
    assert (second["state"], second["memory"]) == ("unreachable", None)


def test_figures_stand_under_their_instance() -> None:
    ready = InstanceView(
        name="b", node=NodeName("spark1"), container="b", image="image", state=ContainerState.RUNNING, status="Up", ours=True, memory=GIB,
        phase=Phase.READY, engine="sglang", port=8003,
    )  # fmt: skip
    foreign = replace(ready, name="a", ours=False, phase=None)
    unknown = render_top(replace(VIEW, instances=(foreign, ready))).splitlines()[-3:]
    assert unknown[1] == "      no figures: neither /metrics nor its log has any"
    assert "foreign" in unknown[2]
    idle = replace(
        ready, numbers=EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0), metrics_hint="args.x: true"
    )
    assert render_top(replace(VIEW, instances=(idle,))).endswith(
        "\n      idle · /metrics is off; in the profile: args.x: true"
    )
    decoding = replace(idle, numbers=EngineMeter(activity=EngineActivity.DECODING))
    assert to_ascii(render_top(replace(VIEW, instances=(decoding,)))).isascii()
    assert (
        json.loads(json.dumps(build_top_json([replace(VIEW, instances=(ready,))])))["instances"][0]["numbers"] is None
    )


def test_what_docker_last_said_stands_with_its_age() -> None:
    one = InstanceView(
        name="b",
        node=NodeName("spark1"),
        container="b",
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        ours=True,
        memory=GIB,
        phase=Phase.READY,
    )
    hung = replace(
        VIEW, when=32.0, instances=(one,), docker_known=False, detail="Docker did not answer within 10 s", hint="look"
    )
    shown = render_top(hung).splitlines()
    assert shown[-4:-1] == ["    Docker: Docker did not answer within 10 s", "    try: look", "    as of 31 s ago:"]
    assert "ready" in shown[-1]
    assert "ago" not in render_top(replace(VIEW, when=12.0, instances=(one,)))
    assert "as of 20 s ago" in render_top(replace(VIEW, when=21.0, instances=(one,)))
    never = render_top(replace(VIEW, instances_seen=None))
    assert never.endswith("what runs is not known yet")
    (document,) = build_top_json([hung])["instances"]  # type: ignore[misc]
    assert document["seen"] == 1.0


def test_what_nobody_is_known_to_hold_is_said_and_folded_into_nothing() -> None:
    detail = MemoryDetail(anonymous=11 * GIB, shared=2 * GIB)
    changed = replace(VIEW, sample=replace(SAMPLE, detail=detail))
    assert "other 17.0 (processes 13.0, unaccounted 4.0)   page cache" in render_top(changed)
    memory = build_top_json([changed])["nodes"][0]["memory"]  # type: ignore[index]
    assert (memory["processes"], memory["unaccounted"], memory["other_used"]) == (13 * GIB, 4 * GIB, 17 * GIB)
    silent = replace(changed, sample=replace(SAMPLE, detail=detail, gpus=None, gpu_silent_for=14.2))
    assert "other 99.0 (processes 13.0, unaccounted —)" in render_top(silent), "the GPU's part is among it"
    swollen = replace(changed, sample=replace(SAMPLE, detail=replace(detail, anonymous=40 * GIB)))
    assert "(processes 17.0, unaccounted 0.0)" in render_top(swollen), "two readings of one moment need not agree"


def test_a_function_that_idles_while_the_other_works_is_called_out() -> None:
    two = (
        RdmaLane(name="rocep1s0f0", port="1", interface="enp1s0f0np0", receive_rate=1.7e9, send_rate=0.0),
        RdmaLane(name="roceP2p1s0f0", port="1", interface="enP2p1s0f0np0", receive_rate=0.0, send_rate=0.0),
    )
    links = (
        *(SAMPLE.links or ())[:1],
        NetworkInterface(name="enP2p1s0f0np0", carrier=True, state="up", speed=200000, mtu=9000),
    )
    view = replace(VIEW, sample=replace(SAMPLE, rdma=two, links=links))
    (row,) = [line for line in render_top(view).splitlines() if "IDLE" in line]
    assert row.endswith("RDMA roceP2p1s0f0 ↓ 0 B/s ↑ 0 B/s   IDLE while rocep1s0f0 works: half of the link is unused")
    rdma = build_top_json([view])["nodes"][0]["rdma"]  # type: ignore[index]
    assert [port["idle_while"] for port in rdma] == [None, "rocep1s0f0"]
    for other in (replace(two[1], receive_rate=1.6e9), replace(two[1], receive_rate=None)):
        assert "IDLE" not in render_top(replace(view, sample=replace(SAMPLE, rdma=(two[0], other), links=links)))
    quiet = (replace(two[0], receive_rate=1e6), two[1])
    assert "IDLE" not in render_top(replace(view, sample=replace(SAMPLE, rdma=quiet, links=links)))


BUSY = InstanceView(
    name="qwen36",
    node=NodeName("spark1"),
    container="sglang-qwen36",
    image="image",
    state=ContainerState.RUNNING,
    status="Up 3 hours",
    ours=True,
    memory=98 * GIB,
    phase=Phase.READY,
    engine="sglang",
    port=8003,
    endpoint="http://spark-2a60.local:8003",
    expected=96 * GIB,
    per_step=DecodeStepSpec(weights=27_000_000_000, draft_passes=3, draft_tokens=3),
    numbers=EngineMeter(
        activity=EngineActivity.DECODING,
        seconds=10,
        estimator=MeterSource.COUNTERS,
        generation_rate=12.7,
        prompt_rate=400.0,
        steps=12.7 / 1.75,
        running=1,
        waiting=2,
        batch=1,
        kv_usage=0.14,
        prefix_hit_rate=0.4,
        acceptance=DraftAcceptance(1.75, 0.25, (0.5, 0.2, 0.05), MeterSource.COUNTERS),
        ttft=Quantiles(0.31, 1.2, 9),
        inter_token=Quantiles(0.075, 0.09, 100),
    ),
)


def render_instance(one: InstanceView, width: int | None = None, explain: bool = False, **changes: object) -> list[str]:
    view = replace(VIEW, instances=(one,), **changes)  # type: ignore[arg-type]
    lines = format_top([view], width, explain)
    return [line.strip() for line in lines[next(at for at, line in enumerate(lines) if "Up 3" in line) + 1 :]]


def test_an_instance_tells_what_it_does_accepts_reads_and_holds() -> None:
    assert render_instance(BUSY) == [
        "12.7 tok/s · 1 running, 2 waiting · KV 14 % · prompts 400 tok/s · prefix cache 40 %",
        "accepts 1.75 per step · 25 % of 3 drafts · by position 50 · 20 · 5 %",
        "bandwidth ≈ 196 GB/s est. · 85 % of 230 measured, 72 % of 273 spec",
        "TTFT 310 ms p50, 1.20 s p95 · ITL 75 ms p50, 90 ms p95 between steps",
        "holds 98.0 GiB · its profile expects 96.0 GiB",
    ]


def test_what_others_measured_stands_beside_the_live_figure_of_the_same_situation() -> None:
    post = ComparableReference("https://example.org/post", (ReferenceRate(1, FigureRange(23.0, 27.0), 640),))
    assert BUSY.numbers is not None
    alone = replace(BUSY, reference=post, numbers=replace(BUSY.numbers, waiting=0))
    assert render_instance(alone)[0].startswith("12.7 tok/s · published 23–27 · 1 running · KV")
    (document,) = build_top_json([replace(VIEW, instances=(alone,))])["instances"]  # type: ignore[misc]
    assert document["reference_rate"] == {"low": 23.0, "high": 27.0}
    assert document["reference"]["source"] == "https://example.org/post"
    two = replace(alone, numbers=replace(BUSY.numbers, waiting=0, running=2))
    assert "source" not in render_instance(two)[0]
    assert "source" not in render_instance(BUSY)[0].replace(post.source, "")


def test_the_explanation_has_formula_and_inputs_or_why_not() -> None:
    said = render_instance(BUSY, explain=True)[5:]
    assert said[0].startswith("GB/s = decode steps/s x")
    assert "weights        27.00 GB" in said
    assert "draft model    not counted: set model.draft_weights in the profile" in said
    idle = replace(BUSY, numbers=EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0))
    assert render_instance(idle) == ["idle", "holds 98.0 GiB · its profile expects 96.0 GiB"], "blank: nothing is read"
    assert render_instance(idle, explain=True)[-1] == "no bandwidth: no decode step: nothing is read"
    unknown = replace(BUSY, per_step=None)
    assert "bandwidth — · set model.weights in the profile" in render_instance(unknown)
    assert "bytes of the checkpoint" in render_instance(unknown, explain=True)[-1]
    (document,) = build_top_json([replace(VIEW, instances=(idle,))])["instances"]  # type: ignore[misc]
    assert (document["bandwidth"], document["bandwidth_blank"]) == (None, "no decode step: nothing is read")


def test_a_gpu_that_counts_is_believed_and_nothing_estimated() -> None:
    gpus = (Gpu(index=0, name="NVIDIA H200", bandwidth_share=0.44, bandwidth_peak=4_814_000_000_000),)
    sample = replace(SAMPLE, gpus=gpus)
    view = replace(VIEW, sample=sample, instances=(BUSY,))
    assert "memory 2118 GB/s measured · 44 % of 4814 spec" in render_top(view)
    assert " est. " not in render_top(view)
    document = build_top_json([view])
    assert document["nodes"][0]["bandwidth"]["source"] == "counter"  # type: ignore[index]
    assert "counter" in document["instances"][0]["bandwidth_blank"]  # type: ignore[index]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    detail = MemoryDetail(anonymous=11 * GIB, pressure=MemoryPressure(0.02, 0.0))
    odd = replace(BUSY, name="qwen–日本", detail="läuft noch")
    views = [
        replace(
            VIEW, sample=replace(SAMPLE, detail=detail), instances=(odd, replace(BUSY, memory=None, per_step=None))
        ),
        replace(
            VIEW, docker_known=False, when=90.0, detail="Docker did not answer within 10 s", hint="sudo systemctl x"
        ),
        NodeTelemetryView(
            name=NodeName("b"), state=NodeState.UNREACHABLE, when=1.0, detail="no route to host; " * 8, hint="ping it"
        ),
    ]
    lines = format_top(views, width, explain=True)
    assert max(len(line) for line in lines) <= width
    assert to_ascii("\n".join(lines)).isascii()


def test_a_low_window_leaves_out_what_is_in_order_and_says_so() -> None:
    disks = (DiskSpace("/full", 100 * GIB, GIB), DiskSpace("/roomy", 100 * GIB, 60 * GIB))
    idle = (
        RdmaLane(name="rocep1s0f0", port="1", interface="enp1s0f0np0", receive_rate=0.0, send_rate=0.0),
        RdmaLane(name="roceP2p1s0f0", port="1", interface="enP2p1s0f0np0", receive_rate=1e9, send_rate=0.0),
    )
    view = replace(VIEW, sample=replace(SAMPLE, disks=disks, rdma=idle), instances=(BUSY,))
    whole = format_top([view])
    assert format_top([view], height=len(whole)) == whole
    brief = format_top([view], height=len(whole) - 3)
    shown = "\n".join(brief)
    assert brief[-1] == "(left out: details of instances, CPU, healthy disks; a taller window shows them)"
    for kept in ("GPU processes", "held back by", "/full", "IDLE while", "12.7 tok/s", "accepts 1.75", "196 GB/s"):
        assert kept in shown
    for gone in ("/roomy", "CPU     ", "TTFT", "holds 98.0"):
        assert gone in "\n".join(whole)
        assert gone not in shown
    swollen = replace(BUSY, memory=110 * GIB)
    assert "holds 110.0 GiB · its profile expects 96.0 GiB" in "\n".join(
        format_top([replace(view, instances=(swollen,))], height=len(whole) - 2)
    )


def make_view_with_findings(name: str, *severities: Severity) -> NodeTelemetryView:
    findings = tuple(
        Finding(kind=FindingKind.DISK, severity=severity, node=NodeName(name), summary=f"{name} has trouble {index}", remedy=f"mend {name} {index}",
                evidence=(FindingEvidence("free", "1", "GiB"),))
        for index, severity in enumerate(severities)
    )  # fmt: skip
    return replace(VIEW, name=NodeName(name), findings=findings)


def test_a_window_is_filled_with_the_remedy_of_the_worst_first() -> None:
    views = [
        make_view_with_findings("spark1", Severity.WARNING),
        make_view_with_findings("spark2", Severity.PROBLEM, Severity.WARNING),
    ]
    whole = format_top(views)
    least = next(height for height in range(5, 40) if format_top(views, height=height)[-1].startswith("(left out"))
    for height in range(1, len(whole) + 2):
        lines = format_top(views, height=height)
        assert len(lines) <= max(height, 2), "the picture never scrolls"
        said = "\n".join(lines)
        if height >= least:
            assert all(f"trouble {index}" in said for index in (0, 1))
        assert "mend spark2 0" in said or "mend" not in said, "the worst one's remedy comes first"
    assert "mend spark2 0" in "\n".join(format_top(views, height=least + 1))
    assert "mend spark1 0" not in "\n".join(format_top(views, height=least + 1))


@pytest.mark.parametrize("width", [60, 80])
def test_where_even_the_brief_picture_is_too_long_every_node_has_its_findings(width: int) -> None:
    views = [
        make_view_with_findings("spark1", Severity.WARNING),
        make_view_with_findings("spark2", Severity.PROBLEM, Severity.WARNING, Severity.WARNING),
    ]
    lines = format_top(views, width=width, height=9)
    assert len(lines) <= 9
    assert all(len(line) <= width for line in lines)
    assert "spark2 has trouble 0" in "\n".join(lines)
    lines = format_top(views, width, height=5)
    assert "spark2: " in "\n".join(lines), lines
    assert len(lines) <= 5
