"""A line from the probe: strict about the protocol, tolerant of what is new, and nothing wrong becomes a number."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sparkctl.model.events import SampleArrived
from sparkctl.model.json_codec import decode_event as event_of
from sparkctl.model.json_codec import encode_event
from sparkctl.model.node import NodeName
from sparkctl.model.sample import Gpu, MemoryReading, Sample, build_memory_bar
from sparkctl.model.text.units import GIB
from sparkctl.monitor.sample_series import SampleSeries
from sparkctl.node.agent_decoder import AgentHello, RepeatedFields, decode_agent_line

HEAD = {"probe": 1, "kind": "sample", "sequence": 3, "time": 1.5, "uptime": 9}
MEMORY = {"total": 120, "available": 100, "free": 60, "page_cache": 38, "swap_total": 16, "swap_free": 15}


def make_agent_line(**fields: Any) -> bytes:
    return json.dumps(HEAD | fields).encode() + b"\n"


def test_what_is_new_is_passed_over_and_what_is_absent_is_unknown() -> None:
    said = decode_agent_line(make_agent_line(memory=MEMORY | {"colour": "red"}, moon={"phase": 1}, detail={"dirty": 3}))
    assert isinstance(said, Sample)
    assert (said.sequence, said.time, said.uptime) == (3, 1.5, 9.0)
    assert said.memory == MemoryReading(total=120, available=100, free=60, page_cache=38, swap_total=16, swap_free=15)
    assert said.detail is not None
    assert (said.detail.dirty, said.detail.writeback) == (3, None)
    assert (said.gpus, said.cpu, said.processes) == (None, None, None)


def test_what_is_of_another_type_is_unknown() -> None:
    said = decode_agent_line(
        make_agent_line(
            memory=MEMORY | {"free": "60"},
            gpus=[{"index": 0, "busy": "x", "power": 4, "celsius": True, "processes": None}, {"name": "no index"}, 7],
            cpu={"cores": [None, 0.5], "load": "high"},
            rdma=[{"name": "r", "errors": {"symbol_error": 2, "link_downed": None}}],
        )
    )
    assert isinstance(said, Sample)
    assert said.memory is None, "a reading without its free memory is no reading"
    assert said.gpus == (Gpu(index=0, power=4.0),)
    assert said.cpu is not None
    assert (said.cpu.cores, said.cpu.load) == ((None, 0.5), None)
    assert said.rdma is not None
    assert said.rdma[0].errors == (("symbol_error", 2), ("link_downed", None))


@pytest.mark.parametrize(
    "wrong",
    [b"", b"Welcome to DGX OS\n", b"[]\n", b'{"probe":2,"kind":"sample"}\n', b'{"probe":1,"kind":"guard"}\n',
     b'{"probe":1,"kind":"sample","sequence":1}\n', b'{"kind":"sample"}\n', b'{"probe":1,"kind":"hello","identity":3}\n',
     b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_line_of_the_protocol_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="probe"):
        decode_agent_line(wrong)


def test_a_hello() -> None:
    said = decode_agent_line(b'{"probe":1,"kind":"hello","identity":{"host":"spark1","sysctl":{"swappiness":60}}}\n')
    assert said == AgentHello(host="spark1", sysctl=(("swappiness", 60),))


def test_a_sample_survives_the_record() -> None:
    said = decode_agent_line(
        make_agent_line(
            memory=MEMORY,
            detail={"pressure": {"some": 0.25}, "blocks": [1, 2]},
            gpus=[{"index": 0, "events": {"power_cap": 4}, "processes": [{"pid": 7, "memory": 90}]}],
            cpu={
                "cores": [None, 0.5],
                "clusters": [{"capacity": 1024, "cores": [0, 1], "busy": 0.5}],
                "load": [1.0, 2.0, 3.0],
            },
            processes=[{"pid": 7, "container": "ab"}],
            rdma=[{"name": "r", "errors": {"symbol_error": 2}}],
        )
    )
    assert isinstance(said, Sample)
    event = SampleArrived(1.0, NodeName("spark1"), said)
    assert event_of(json.loads(json.dumps(encode_event(event)))) == event


def decode_sample(**fields: Any) -> Sample:
    said = decode_agent_line(make_agent_line(**fields))
    assert isinstance(said, Sample)
    return said


def test_what_a_container_holds_is_both_sides_of_the_one_memory() -> None:
    mine = [
        {"pid": 7, "container": "ab", "resident": 10, "gpu_memory": 90},
        {"pid": 8, "container": "ab", "resident": 5},
    ]
    gpus = [{"index": 0, "processes": [{"pid": 7, "memory": 90}, {"pid": 9, "memory": 3}]}]
    said = decode_sample(processes=[*mine, {"pid": 9, "container": None, "gpu_memory": 3}], gpus=gpus)
    assert (said.get_container_memory("ab"), said.get_container_memory("cd")) == (105, None)


@pytest.mark.parametrize("gpus", [None, [{"index": 0, "processes": None}], [{"index": 0, "processes": [{"pid": 7}]}]])
def test_what_a_container_holds_is_not_known_while_the_gpus_side_is_not(gpus: Any) -> None:
    said = decode_sample(processes=[{"pid": 7, "container": "ab", "resident": 1 << 30}], gpus=gpus)
    assert said.get_container_memory("ab") is None


def test_a_process_that_was_not_looked_at_yet_leaves_the_whole_unknown() -> None:
    mine = [{"pid": 7, "container": "ab", "resident": 10}, {"pid": 8, "container": "ab", "gpu_memory": 90}]
    assert decode_sample(processes=mine, gpus=[]).get_container_memory("ab") is None


@pytest.mark.parametrize("huge", ["1" + "0" * 400, "1e400", "1e308", str(1 << 64)])
def test_a_number_beyond_any_counter_is_not_known_and_ends_nothing(huge: str) -> None:
    text = json.dumps(
        {"probe": 1, "kind": "sample", "sequence": 1, "time": 1.0, "uptime": 1.0, "memory": dict(MEMORY, total=0),
         "detail": {"oom_kill": 0}, "gpus": [{"index": 0, "power": 0}]}
    )  # fmt: skip
    said = decode_agent_line(re.sub(r'("(?:total|oom_kill|power)": )0', rf"\g<1>{huge}", text).encode())
    assert isinstance(said, Sample)
    assert said.memory is None
    assert said.detail is not None
    assert said.detail.oom_kill is None
    assert said.gpus is not None
    assert said.gpus[0].power is None
    assert SampleSeries().add_sample(said, 1.0)


@pytest.mark.parametrize(
    ("gpus", "memory"),
    [
        (None, None),
        ([], 0),
        ([{"index": 0, "processes": None}], None),
        ([{"index": 0, "processes": [{"pid": 1, "memory": 5}, {"pid": 2, "memory": None}]}], None),
        ([{"index": 0, "memory_total": 80, "processes": [{"pid": 1, "memory": 5}]}], 0),  # memory of its own
        ([{"index": 0, "name": "NVIDIA GB10", "memory_total": 80, "processes": [{"pid": 1, "memory": 5}]}], 5),
    ],
)
def test_gpu_memory_is_the_machines_where_the_gpu_has_none_of_its_own(gpus: Any, memory: int | None) -> None:
    assert decode_sample(gpus=gpus).gpu_memory == memory


@pytest.mark.parametrize("gpu", [None, 0, 82 * GIB, 500 * GIB])
@pytest.mark.parametrize(("available", "free"), [(23, 4), (3, 4), (118, 60), (0, 0)])
def test_the_four_parts_add_up(available: int, free: int, gpu: int | None) -> None:
    bar = build_memory_bar(
        MemoryReading(
            total=122 * GIB,
            available=available * GIB,
            free=free * GIB,
            page_cache=19 * GIB,
            swap_total=16 * GIB,
            swap_free=15 * GIB,
        ),
        gpu,
    )
    parts = (bar.gpu_processes or 0, bar.other_used, bar.page_cache, bar.free)
    assert sum(parts) == bar.total
    assert min(parts) >= 0
    assert bar.swap_used == GIB
    assert (bar.gpu_processes is None) is (gpu is None)


def test_what_repeats_the_line_before_is_decoded_once_and_means_the_same() -> None:
    repeated: RepeatedFields = {}
    disks = [{"path": "/", "total": 9, "free": 4}]
    links = [{"name": "enp1", "received": 1}]
    first, second, third = (
        decode_agent_line(line, repeated)
        for line in (
            make_agent_line(disks=disks, links=links),
            make_agent_line(disks=disks, links=[{"name": "enp1", "received": 2}]),
            make_agent_line(sequence=5),
        )
    )
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert second.disks is first.disks
    assert second == decode_sample(disks=disks, links=[{"name": "enp1", "received": 2}])
    assert third == decode_sample(sequence=5), "what a line leaves out is not known, whatever was before"
