"""``top`` as an owner reads it: what is not known is said, what a node sends is only text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkctl.core.store import InstanceView, LoadView
from sparkctl.model.container import ContainerState
from sparkctl.model.memory import Memory
from sparkctl.model.metrics import Activity, Numbers
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Cpu, Gpu, GpuProcess, MemoryDetail, NetLink, Pressure, RdmaPort, Sample, Temperature
from sparkctl.model.units import GIB
from sparkctl.present.top_table import memory_cells, top_document, top_lines

MEMORY = Memory(122 * GIB, 23 * GIB, 4 * GIB, 19 * GIB, 16 * GIB, 15 * GIB)
SAMPLE = Sample(
    2, 1.0, 2.0, MEMORY, MemoryDetail(pressure=Pressure(0.02, 0.0)), Cpu(0.06, (0.06,), (), (1.0, 2.0, 3.0)),
    (Gpu(0, "NVIDIA GB10", busy=0.96, sm_clock=2398, sm_clock_max=3003, power=62.4, celsius=71, pstate=0, reasons=0x21,
         processes=(GpuProcess(7, 82 * GIB),)),),
    temperatures=(Temperature("acpitz", 78.2), Temperature("acpitz", 71.0)),
    links=(NetLink("enp1s0f0np0", True, "up", 200000, 9000, receive_rate=900.0, send_rate=None), NetLink("wlP9s9", False)),
    rdma=(RdmaPort("rocep1s0f0", "1", "enp1s0f0np0", receive_rate=1.25e9, send_rate=3e6, errors=(("symbol_error", 0),)),),
)  # fmt: skip
VIEW = LoadView(NodeName("spark1"), NodeState.OK, 1.0, sample=SAMPLE, instances_seen=1.0)


def text(view: LoadView, ascii_only: bool = False) -> str:
    return "\n".join(top_lines([view], ascii_only))


def test_a_node_at_work() -> None:
    shown = text(VIEW)
    assert "122.0 GiB   GPU processes 82.0   other 17.0   page cache 19.0   free 4.0" in shown
    assert "available 23.0 GiB   swap 1.0 GiB   pressure 2 %" in shown
    assert "96 %   2398 of 3003 MHz   62 W   71 °C   P0   held back by thermal (software)" in shown
    assert "6 %   load 1.00 2.00 3.00   acpitz 78 °C" in shown
    assert "enp1s0f0np0   200 Gb/s   MTU 9000   ↓ 900 B/s ↑ —   RDMA rocep1s0f0 ↓ 1.2 GB/s ↑ 3.0 MB/s" in shown
    assert "wlP9s9" not in shown


def test_the_bar_is_as_long_as_it_should_be() -> None:
    bar = VIEW.memory
    assert bar is not None
    assert memory_cells(bar, True) == "[" + "#" * 27 + "=" * 5 + "." * 7 + " " + "]"


def test_what_is_not_known_is_said() -> None:
    silent = replace(SAMPLE, gpus=None, gpu_silent_for=14.2)
    assert "GPU     no answer for 14 s" in text(replace(VIEW, sample=silent))
    assert "GPU processes —   other 99.0" in text(replace(VIEW, sample=silent))
    absent = replace(SAMPLE, gpus=None, gpu_trouble="NVML: Shared Library \x1b[31mNot Found")
    assert "\x1b" not in text(replace(VIEW, sample=absent))
    assert "Not Found" in text(replace(VIEW, sample=absent))
    nothing = text(replace(VIEW, sample=Sample(1, 1.0, 1.0)))
    assert "memory  —" in nothing
    assert "CPU     —" in nothing


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.OK])
def test_a_node_that_cannot_be_asked_has_its_state_and_no_numbers(state: NodeState) -> None:
    shown = text(LoadView(NodeName("spark1"), state, 1.0, "no route", "ping it"))
    assert f"{state}: no route" in shown
    assert "try: ping it" in shown
    assert "GiB" not in shown


def test_ascii_is_ascii() -> None:
    assert text(VIEW, ascii_only=True).isascii()


def test_the_document() -> None:
    document = json.loads(json.dumps(top_document([VIEW, LoadView(NodeName("b"), NodeState.UNREACHABLE, 1.0)])))
    first, second = document["nodes"]
    assert document["schema"] == 1
    memory = first["memory"]
    assert memory == {"total": 122 * GIB, "available": 23 * GIB, "gpu_processes": 82 * GIB, "other_used": 17 * GIB,
                      "page_cache": 19 * GIB, "free": 4 * GIB, "swap_used": GIB}  # fmt: skip
    assert first["gpus"][0]["sm_clock"] == 2398
    assert first["rdma"][0]["errors"] == {"symbol_error": 0}
    assert (second["state"], second["memory"]) == ("unreachable", None)


def test_figures_stand_under_their_instance() -> None:
    ready = InstanceView(
        "b", NodeName("spark1"), "b", "image", ContainerState.RUNNING, "Up", ours=True, memory=GIB,
        phase=Phase.READY, engine="sglang", port=8003,
    )  # fmt: skip
    foreign = replace(ready, name="a", ours=False, phase=None)
    unknown = text(replace(VIEW, instances=(foreign, ready))).splitlines()[-3:]
    assert unknown[1] == "      —"
    assert "foreign" in unknown[2]
    idle = replace(ready, numbers=Numbers(Activity.IDLE, generation_rate=0.0), metrics_hint="args.x: true")
    assert text(replace(VIEW, instances=(idle,))).endswith(
        "\n      idle   /metrics is off; in the profile: args.x: true"
    )
    assert text(
        replace(VIEW, instances=(replace(idle, numbers=Numbers(Activity.DECODING)),)), ascii_only=True
    ).isascii()
    assert json.loads(json.dumps(top_document([replace(VIEW, instances=(ready,))])))["instances"][0]["numbers"] is None


def test_what_docker_last_said_stands_with_its_age() -> None:
    one = InstanceView(
        "b", NodeName("spark1"), "b", "image", ContainerState.RUNNING, "Up", ours=True, memory=GIB, phase=Phase.READY
    )
    hung = replace(
        VIEW, when=32.0, instances=(one,), docker_known=False, detail="Docker did not answer within 10 s", hint="look"
    )
    shown = text(hung).splitlines()
    assert shown[-4:-1] == ["    Docker: Docker did not answer within 10 s", "    try: look", "    as of 31 s ago:"]
    assert "ready" in shown[-1]
    assert "ago" not in text(replace(VIEW, when=12.0, instances=(one,)))
    assert "as of 20 s ago" in text(replace(VIEW, when=21.0, instances=(one,)))
    never = text(replace(VIEW, instances_seen=None))
    assert never.endswith("what runs is not known yet")
    (document,) = top_document([hung])["instances"]  # type: ignore[misc]
    assert document["seen"] == 1.0
