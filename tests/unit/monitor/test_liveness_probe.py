"""When an engine counts as idle, as alive, and as one that may be asked."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparkctl.model.container import Container
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.monitor.node_monitor import is_generating, is_idle, select_probe_rule

RULE = json.dumps({"line": None, "health": "/health", "probe": "completions"})


@pytest.mark.parametrize(
    ("numbers", "idle", "alive"),
    [
        (None, False, False),
        (EngineMeter(), False, False),
        (EngineMeter(activity=EngineActivity.IDLE, running=0, waiting=0, generation_rate=0.0), True, False),
        (EngineMeter(activity=EngineActivity.IDLE, running=0), True, False),
        (EngineMeter(activity=EngineActivity.IDLE), False, False),  # by its log alone: what runs is not known
        (EngineMeter(activity=EngineActivity.IDLE, running=1), False, False),
        (EngineMeter(activity=EngineActivity.IDLE, running=0, waiting=2), False, False),
        (EngineMeter(activity=EngineActivity.PREFILL, running=1), False, False),
        (EngineMeter(activity=EngineActivity.DECODING, running=1, generation_rate=12.7), False, True),
        (EngineMeter(activity=EngineActivity.IDLE, running=0, generation_rate=0.2), True, True),
    ],
)
def test_only_what_is_known_to_be_idle_is_idle(numbers: EngineMeter | None, idle: bool, alive: bool) -> None:
    assert (is_idle(numbers), is_generating(numbers)) == (idle, alive)


def test_labels_decide_whether_it_may_be_asked(container: Callable[..., Container]) -> None:
    usual = container(labels=((ContainerLabel.READY, RULE),))
    assert select_probe_rule(usual) is not None
    assert (
        select_probe_rule(container(labels=((ContainerLabel.READY, RULE), (ContainerLabel.LIVENESS, "none")))) is None
    )
    assert select_probe_rule(container(labels=((ContainerLabel.READY, RULE.replace("completions", "none")),))) is None
    assert select_probe_rule(container(labels=())) is None
