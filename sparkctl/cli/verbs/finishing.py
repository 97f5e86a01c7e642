"""What ``resume`` and ``abort`` do alike: they look for a switch that was left, and end it one way or the other."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable

from sparkctl.cli.event_printers import JsonPrinter
from sparkctl.cli.options import add_other_nodes, create_context, select_configured_nodes
from sparkctl.cli.switch_teller import SwitchPrinter
from sparkctl.cli.verb_runner import run_verb
from sparkctl.commands.context import CommandContext
from sparkctl.commands.switch.finish_switch import FinishSwitch
from sparkctl.model.events import Event

FinishOperation = Callable[[CommandContext, FinishSwitch], AsyncGenerator[Event, None]]


def finish_switch(way: FinishOperation, names: tuple[str, ...], *, as_json: bool) -> int:
    """Run either verb for the switch that lies on the named nodes, or on any; return its exit code."""
    nodes = select_configured_nodes(names)
    request = FinishSwitch(nodes, add_other_nodes(nodes), os.environ)
    context = create_context(may_ask=not as_json)
    return run_verb(context, lambda: way(context, request), JsonPrinter() if as_json else SwitchPrinter())
