"""When the log has to help the counters out, and of what there can be figures at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.monitor.meters.engine_meters import MetricsSource, has_meter, needs_log_meter

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
