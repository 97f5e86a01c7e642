"""A label of 60 kB makes no output of 60 kB, whoever set it: names end in an ellipsis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparkctl.cli.plain_mode import ChangeReporter
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.node import Node
from sparkctl.monitor import watch_nodes
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.simulator import SimulatedSparks
from sparkctl.views.endpoint_config import format_endpoint_config
from sparkctl.views.prometheus_metrics import render_metrics
from sparkctl.views.status_view import format_status, format_status_table
from sparkctl.views.text.styled_text import join_text
from sparkctl.views.top_view import format_top
from tests.sim.nodes.test_garbage_answers import collect_events, list_nodes
from tests.support import sim_clients

MOST = 1000  # characters of a line, of which an honest one has 130


@pytest.fixture
async def nodes() -> AsyncIterator[list[Node]]:
    async with SimulatedSparks("two-stacks", **sim_clients.FAST) as sparks:
        for container in sparks.docker["spark1"].containers.values():
            labels = container.body["Labels"]
            for name in ("instance", "operator", "profile", "engine", "group"):
                labels[f"dev.sparkctl.{name}"] = f"{name}\x1b]0;title\x07\x1b[31m" + "n" * 60_000
        yield list_nodes(sparks)


async def test_everything_that_is_told_of_a_long_name_is_bounded(nodes: list[Node], tmp_path: Path) -> None:
    ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop")
    views = await read_node_statuses(ctx, nodes)
    loads = await watch_nodes.read_load_views(ctx, nodes)
    served, _ = await list_endpoints(ctx, nodes)
    events = await collect_events(show_log(ctx, ShowLog(instance=views[0].instances[0].name, nodes=nodes, tail=1)))
    teller = ChangeReporter()
    texts = {
        "status": format_status(views, width=80),
        "table": [join_text(row) for row in format_status_table(views, width=80)],
        "top": format_top(loads),
        "plain": [sentence for view in loads for sentence in teller.describe_changes(view)],
        "endpoints": format_endpoint_config(served, "env", served[0]),
        "metrics": list(render_metrics(loads, 0.0).splitlines()),
        "logs": [str(to_json_data(event)) for event in events],
    }
    for verb, lines in texts.items():
        assert lines, verb
        long = [line for line in lines if len(line) > MOST]
        assert not long, f"{verb}: {len(long[0])} characters"
    for verb in ("status", "table", "top", "plain"):  # what endpoints prints is cleaned where it is printed
        assert not [line for line in texts[verb] if not line.isprintable()], verb
    assert max(len(str(to_json_data(one))) for view in views for one in view.instances) < 4 * MOST
    assert [len(line) for line in texts["status"] if len(line) > 132] == [], "the names of a table are cut to a column"
