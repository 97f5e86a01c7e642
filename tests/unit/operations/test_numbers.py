"""When the log has to help the counters out, and of what there can be figures at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.core.store import InstanceView
from sparkctl.model.container import ContainerState
from sparkctl.model.metrics import Activity, Numbers
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.operations.following.numbers import Source, is_measurable, needs_log

READY = InstanceView(
    "qwen36", NodeName("spark1"), "sglang-qwen36", "image", ContainerState.RUNNING, "Up", ours=True, memory=None,
    phase=Phase.READY, engine="sglang", container_id="ab" * 32, port=8003,
)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "counted", "needed"),
    [
        (Source.UNASKED, Numbers(), False),
        (Source.OFF, Numbers(), True),
        (Source.SILENT, Numbers(Activity.DECODING, generation_rate=12.0), True),
        (Source.ON, Numbers(), True),  # SGLang counts in strides: two readings may have none between them
        (Source.ON, Numbers(Activity.DECODING, generation_rate=None), True),
        (Source.ON, Numbers(Activity.DECODING, generation_rate=12.0), False),
        (Source.ON, Numbers(Activity.PREFILL, generation_rate=0.0), False),
        (Source.ON, Numbers(Activity.IDLE, generation_rate=0.0), False),
    ],
)
def test_the_log_helps_where_the_counters_do_not_tell(source: Source, counted: Numbers, needed: bool) -> None:
    assert needs_log(source, counted) is needed


def test_figures_are_of_ready_instances_of_ours_with_a_port_and_a_known_engine() -> None:
    assert is_measurable(READY)
    assert not is_measurable(replace(READY, ours=False))
    assert not is_measurable(replace(READY, phase=Phase.LOADING))
    assert not is_measurable(replace(READY, port=None))
    assert not is_measurable(replace(READY, engine="nobody-knows"))
    assert not is_measurable(replace(READY, container_id=None))
