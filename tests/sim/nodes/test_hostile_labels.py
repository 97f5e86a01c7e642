"""Whoever may start a container writes its labels: none of them costs more than that container."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeState
from sparkctl.simulator import SimulatedSparks
from tests.sim.nodes.test_garbage_answers import BAD, collect_answers, list_nodes
from tests.sim.nodes.test_garbage_answers import impatient as impatient
from tests.support import sim_clients

pytestmark = pytest.mark.simulation("two-stacks", **sim_clients.FAST)

NAMES = [value for name, value in vars(ContainerLabel).items() if name.isupper() and name != "PREFIX"]
VALUES = {
    "empty": "",
    "letters": "ä\ud7ff\U0001f600",
    "path": "/ä b\r\nX: 1",
    "minus": "-1",
    "large": "9" * 5000,
    "float": "1e999",
    "infinite": "Infinity",
    "not a number": "NaN",
    "null": "null",
    "list": "[1]",
    "nested": "[" * 16_000,
    "digits": "\u0661\u0662",
    "commas": ",".join(["spark1"] * 500),
}


def _build_ready_label(health: str, line: object = None, probe: object = "none") -> str:
    return json.dumps({"line": line, "health": health, "probe": probe})


READY = {
    "letters": _build_ready_label("/ä"),
    "lines": _build_ready_label("/a\r\nX: 1"),
    "blank": _build_ready_label("/ "),
    "halves": _build_ready_label("/\ud800"),
    "long": _build_ready_label("/" + "a" * 15_000),
    "kinds": _build_ready_label("/a", {"a": 1}, ["x"]),
    "probe": _build_ready_label("/a", "(", {}),
}


@pytest.mark.parametrize("kind", [*VALUES, *(f"ready {name}" for name in READY), "key"])
async def test_a_label_costs_its_container_alone(sparks: SimulatedSparks, kind: str, tmp_path: Path) -> None:
    for container in sparks.docker[BAD].containers.values():
        labels = container.body["Labels"]
        if kind == "key":
            container.body["Env"] = [
                *container.body.get("Env", []),
                "VLLM_API_KEY=schl\u00fcssel-\u2014",
                "API_KEY=a\nb",
            ]
        elif kind in VALUES:
            labels |= {
                name: VALUES[kind] for name in NAMES if name not in (ContainerLabel.INSTANCE, ContainerLabel.OPERATOR)
            }
        else:
            labels[ContainerLabel.READY] = READY[kind.removeprefix("ready ")]
    found = await collect_answers(
        CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@laptop"),
        list_nodes(sparks),
        tmp_path,
    )
    raised = {name: answer for name, answer in found.items() if isinstance(answer, BaseException)}
    assert not {name: one for name, one in raised.items() if not name.startswith("diagnose")}
    for view in found["status"]:
        assert (view.state, view.docker_known) == (NodeState.OK, True), view.detail
    assert [one.instance for one in found["endpoints"][0] if one.node != BAD] == ["qwen36-vllm"]
