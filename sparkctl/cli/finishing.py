"""What ``resume`` and ``abort`` do alike: they look for a switch that was left, and end it one way or the other."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable

from sparkctl.cli.drive import drive
from sparkctl.cli.setup import chosen_nodes, known_nodes, make_context
from sparkctl.cli.switch_teller import SwitchTeller
from sparkctl.cli.tellers import JsonTeller
from sparkctl.core.context import Context
from sparkctl.model.events import Event
from sparkctl.operations.switch_finish import FinishRequest

Way = Callable[[Context, FinishRequest], AsyncGenerator[Event, None]]


def finish(way: Way, names: tuple[str, ...], *, as_json: bool) -> int:
    """Run either verb for the switch that lies on the named nodes, or on any; return its exit code."""
    nodes = chosen_nodes(names)
    request = FinishRequest(nodes, known_nodes(nodes), os.environ)
    context = make_context(may_ask=not as_json)
    return drive(context, lambda: way(context, request), JsonTeller() if as_json else SwitchTeller())
