"""A label of 60 kB makes no output of 60 kB, whoever set it: names end in an ellipsis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparkctl.core.context import Context
from sparkctl.core.history import History
from sparkctl.core.record import plain
from sparkctl.model.node import Node
from sparkctl.operations import top
from sparkctl.operations.endpoints import endpoints
from sparkctl.operations.logs import LogsRequest, logs
from sparkctl.operations.status import status
from sparkctl.present.changes import Teller
from sparkctl.present.endpoint_forms import endpoint_text
from sparkctl.present.exposition import metrics_text
from sparkctl.present.status_table import status_lines
from sparkctl.present.top_table import top_lines
from sparkctl.sim import SimulatedSparks
from tests.sim import clients
from tests.sim.test_garbage import events_of, nodes_of

MOST = 1000  # characters of a line, of which an honest one has 130


@pytest.fixture
async def nodes() -> AsyncIterator[list[Node]]:
    async with SimulatedSparks("two-stacks", **clients.FAST) as sparks:
        for container in sparks.docker["spark1"].containers.values():
            labels = container.body["Labels"]
            for name in ("instance", "operator", "profile", "engine", "group"):
                labels[f"dev.sparkctl.{name}"] = f"{name}\x1b]0;title\x07\x1b[31m" + "n" * 60_000
        yield nodes_of(sparks)


async def test_everything_that_is_told_of_a_long_name_is_bounded(nodes: list[Node], tmp_path: Path) -> None:
    ctx = Context(History(tmp_path), "milo@laptop")
    views = await status(ctx, nodes)
    loads = await top.once(ctx, nodes)
    served, _ = await endpoints(ctx, nodes)
    told = await events_of(logs(ctx, LogsRequest(views[0].instances[0].name, nodes, tail=1)))
    teller = Teller()
    texts = {
        "status": status_lines(views, width=80),
        "top": top_lines(loads),
        "plain": [sentence for view in loads for sentence in teller.tell(view)],
        "endpoints": endpoint_text(served, "env", served[0]),
        "metrics": list(metrics_text(loads, 0.0).splitlines()),
        "logs": [str(plain(event)) for event in told],
    }
    for verb, lines in texts.items():
        assert lines, verb
        long = [line for line in lines if len(line) > MOST]
        assert not long, f"{verb}: {len(long[0])} characters"
    for verb in ("status", "top", "plain"):  # what endpoints prints is cleaned where it is printed
        assert not [line for line in texts[verb] if not line.isprintable()], verb
    assert max(len(str(plain(one))) for view in views for one in view.instances) < 4 * MOST
    assert [len(line) for line in texts["status"] if len(line) > 132] == [], "the names of a table are cut to a column"
