"""The shape of JSON documents whatever there is to show: every field filled, each empty, each word of a closed set."""

from __future__ import annotations

import json

from sparkctl.commands.arm_guard import GuardStatus
from sparkctl.commands.images import NodeImages
from sparkctl.commands.list_endpoints import ServedEndpoint
from sparkctl.commands.stop.pending_stops import PendingStop
from sparkctl.history.model import OperationRecord
from sparkctl.history.start_diff import StartDiff
from sparkctl.logs.analyzer import LogDiagnosis
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.node import NodeName
from sparkctl.monitor.node_views import NodeStatusView, NodeTelemetryView
from sparkctl.views.diagnosis_view import build_diagnosis_json
from sparkctl.views.endpoint_config import build_endpoints_json
from sparkctl.views.history_view import build_history_json, build_operation_json
from sparkctl.views.profiles.memory_estimate_view import build_estimate_json
from sparkctl.views.top_view import build_top_json
from tests.golden.comparison import assert_golden
from tests.golden.samples import make_samples_of
from tests.golden.shapes import shape_of, write_shape


def assert_shape(name: str, values: list[object], words: set[str]) -> None:
    """Compare the merged shape of documents with its golden file."""
    printed = [json.loads(json.dumps(value)) for value in values]
    assert_golden(f"json/documents/{name}.txt", write_shape(shape_of(printed, words)))


def test_status_is_unchanged() -> None:
    words: set[str] = set()
    views = tuple(make_samples_of(NodeStatusView, words))
    stops = tuple(make_samples_of(PendingStop, words))
    assert_shape(
        "status", [{"schema": 1, "nodes": to_json_data(views), "unfinished_stops": to_json_data(stops)}], words
    )


def test_top_is_unchanged() -> None:
    words: set[str] = set()
    assert_shape("top", [build_top_json([one]) for one in make_samples_of(NodeTelemetryView, words)], words)


def test_plan_is_unchanged() -> None:
    words: set[str] = set()
    assert_shape(
        "plan", [to_json_data(build_estimate_json(one, ("text",))) for one in make_samples_of(MemoryFit, words)], words
    )


def test_guard_status_is_unchanged() -> None:
    words: set[str] = set()
    assert_shape("guard-status", [to_json_data(one) for one in make_samples_of(GuardStatus, words)], words)


def test_images_are_unchanged() -> None:
    words: set[str] = set()
    assert_shape("images", [to_json_data(one) for one in make_samples_of(NodeImages, words)], words)


def test_endpoints_are_unchanged() -> None:
    words: set[str] = set()
    assert_shape("endpoints", [build_endpoints_json(tuple(make_samples_of(ServedEndpoint, words)))], words)


def test_diagnosis_is_unchanged() -> None:
    words: set[str] = set()
    found = list(make_samples_of(LogDiagnosis, words))
    documents = [build_diagnosis_json(one, "text", "text", NodeName("text")) for one in found]
    assert_shape("diagnose", [*documents, build_diagnosis_json(found[0], "text", None, None)], words)


def test_history_is_unchanged() -> None:
    words: set[str] = set()
    operations = tuple(make_samples_of(OperationRecord, words))
    assert_shape("history", [build_history_json(operations)], words)
    shown = [
        build_operation_json(one, one, changes, (one,))
        for one in operations
        for changes in make_samples_of(StartDiff, words)
    ]
    assert_shape("history-show", [*shown, build_operation_json(operations[0], None, None, ())], words)
