"""When the log has to help the counters out, and of what there can be figures at all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sparkctl.engines import load_engine
from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.text.log_line import LogLine
from sparkctl.monitor.meters.engine_meters import LogMeter, MetricsSource, has_meter, needs_log_meter
from sparkctl.transport.node_session import NodeSession

READY = InstanceView(
    name="qwen36",
    node=NodeName("spark1"),
    container="sglang-qwen36",
    image="image",
    state=ContainerState.RUNNING,
    status="Up",
    ours=True,
    memory=None,
    phase=Phase.READY,
    engine="sglang",
    container_id="ab" * 32,
    port=8003,
)


@pytest.mark.parametrize(
    ("source", "counted", "needed"),
    [
        (MetricsSource.UNASKED, EngineMeter(), False),
        (MetricsSource.OFF, EngineMeter(), True),
        (MetricsSource.SILENT, EngineMeter(activity=EngineActivity.DECODING, generation_rate=12.0), True),
        (MetricsSource.ON, EngineMeter(), True),  # SGLang counts in strides: two readings may have none between them
        (MetricsSource.ON, EngineMeter(activity=EngineActivity.DECODING, generation_rate=None), True),
        (MetricsSource.ON, EngineMeter(activity=EngineActivity.DECODING, generation_rate=12.0), False),
        (MetricsSource.ON, EngineMeter(activity=EngineActivity.PREFILL, generation_rate=0.0), False),
        (MetricsSource.ON, EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0), False),
    ],
)
def test_the_log_helps_where_the_counters_do_not_tell(
    source: MetricsSource, counted: EngineMeter, needed: bool
) -> None:
    assert needs_log_meter(source, counted) is needed


def test_figures_are_of_ready_instances_of_ours_with_a_port_and_a_known_engine() -> None:
    assert has_meter(READY)
    assert not has_meter(replace(READY, ours=False))
    assert not has_meter(replace(READY, phase=Phase.LOADING))
    assert not has_meter(replace(READY, port=None))
    assert not has_meter(replace(READY, engine="nobody-knows"))
    assert not has_meter(replace(READY, container_id=None))


async def test_a_line_whose_stamp_is_no_time_costs_that_line_alone() -> None:
    text = (
        "INFO 11-20 10:00:00 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 12.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.0%"
    )

    async def read_lines() -> AsyncGenerator[tuple[LogLine, ...], None]:
        stamps = ("2026-13-45T25:00:00Z", "2026-11-20T10:00:00.000000001Z")
        yield tuple(LogLine(when=when, text=text, number=at) for at, when in enumerate(stamps, 1))

    session = NodeSession(Node(name=NodeName("here"), host="local"))
    meter = LogMeter(engine=load_engine("vllm"), session=session, container="ab" * 32, since=0.0)
    await meter._consume_lines(read_lines())
    meter._whole = True
    now = datetime(2026, 11, 20, 10, 0, 1, tzinfo=UTC).timestamp()
    assert meter.compute_meter(now).generation_rate == 12.5
