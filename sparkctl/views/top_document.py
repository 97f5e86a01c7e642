"""``top --json``: one document, schema 1. Fields are added, never renamed or removed."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.instance import InstanceView
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.links import find_idle_lanes
from sparkctl.model.sample import RdmaLane
from sparkctl.monitor.bandwidth import (
    Bandwidth,
    estimate_instance_bandwidth,
    explain_missing_estimate,
    get_node_bandwidth,
)
from sparkctl.monitor.node_views import NodeTelemetryView


def build_top_json(views: Sequence[NodeTelemetryView]) -> dict[str, object]:
    """Return the document of ``top --json``."""
    return {
        "schema": 1,
        "nodes": [_node_to_json(view) for view in views],
        "instances": [_instance(one, view) for view in views for one in view.instances],
    }


def _node_to_json(view: NodeTelemetryView) -> dict[str, object]:
    sample = to_json_data(view.sample) if view.sample is not None else {}
    assert isinstance(sample, dict)
    head: dict[str, object] = {"name": view.name, "state": view.state.value, "detail": view.detail, "hint": view.hint}
    head |= {
        "when": round(view.when, 3),
        "docker_known": view.docker_known,
        "instances_seen": to_json_data(view.instances_seen),
    }
    if view.sample is not None:
        idle = find_idle_lanes(view.sample.rdma or ())
        sample["rdma"] = [_port(port, idle) for port in view.sample.rdma or ()]
    tail = {
        "memory": to_json_data(view.memory),
        "bandwidth": _bandwidth(get_node_bandwidth(view)),
        "findings": to_json_data(view.findings),
    }
    return head | sample | tail


def _port(port: RdmaLane, idle: dict[str, str]) -> dict[str, object]:
    body = to_json_data(port)
    assert isinstance(body, dict)
    return body | {"errors": dict(port.errors), "idle_while": idle.get(port.name)}


def _instance(one: InstanceView, view: NodeTelemetryView) -> dict[str, object]:
    body = to_json_data(one)
    assert isinstance(body, dict)
    read = estimate_instance_bandwidth(one, view)
    body |= {"seen": to_json_data(view.instances_seen), "bandwidth": _bandwidth(read), "bandwidth_blank": None}
    if one.ours and read is None:
        counted = "the GPU's own counter says it: bandwidth of the node"
        body["bandwidth_blank"] = (
            counted if get_node_bandwidth(view) is not None else explain_missing_estimate(one.numbers, one.per_step)
        )
    return body


def _bandwidth(seen: Bandwidth | None) -> dict[str, object] | None:
    """Return bytes/s from low to high, shares of what the memory can do, and how it was found."""
    if seen is None:
        return None
    shares = {"of_measured": _round_pair(seen.of_measured(), 3), "of_spec": _round_pair(seen.of_spec(), 3)}
    why = {"plausible": seen.plausible, "suspect": seen.suspect, "explanation": list(seen.explain())}
    low, high = _round_pair((seen.low, seen.high), -8) or (None, None)
    return {"low": low, "high": high, "source": seen.source.value, **shares, **why}


def _round_pair(pair: tuple[float, float] | None, places: int) -> tuple[float, float] | None:
    """Return no more digits than such a figure has; the same in a recording, whose inputs are rounded."""
    return None if pair is None else (round(pair[0], places), round(pair[1], places))
