"""When an engine counts as idle, as alive, and as one that may be asked."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparkctl.model.container import Container
from sparkctl.model.metrics import Activity, Numbers
from sparkctl.model.plan import Label
from sparkctl.operations.following.liveness import is_idle, makes_tokens, rule_to_ask_by

RULE = json.dumps({"line": None, "health": "/health", "probe": "completions"})


@pytest.mark.parametrize(
    ("numbers", "idle", "alive"),
    [
        (None, False, False),
        (Numbers(), False, False),
        (Numbers(Activity.IDLE, running=0, waiting=0, generation_rate=0.0), True, False),
        (Numbers(Activity.IDLE, running=0), True, False),
        (Numbers(Activity.IDLE), False, False),  # by its log alone: what runs is not known
        (Numbers(Activity.IDLE, running=1), False, False),
        (Numbers(Activity.IDLE, running=0, waiting=2), False, False),
        (Numbers(Activity.PREFILL, running=1), False, False),
        (Numbers(Activity.DECODING, running=1, generation_rate=12.7), False, True),
        (Numbers(Activity.IDLE, running=0, generation_rate=0.2), True, True),
    ],
)
def test_only_what_is_known_to_be_idle_is_idle(numbers: Numbers | None, idle: bool, alive: bool) -> None:
    assert (is_idle(numbers), makes_tokens(numbers)) == (idle, alive)


def test_labels_decide_whether_it_may_be_asked(container: Callable[..., Container]) -> None:
    usual = container(labels=((Label.READY, RULE),))
    assert rule_to_ask_by(usual) is not None
    assert rule_to_ask_by(container(labels=((Label.READY, RULE), (Label.LIVENESS, "none")))) is None
    assert rule_to_ask_by(container(labels=((Label.READY, RULE.replace("completions", "none")),))) is None
    assert rule_to_ask_by(container(labels=())) is None
