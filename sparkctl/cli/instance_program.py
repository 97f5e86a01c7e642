"""Programs of this machine that take over the terminal: ssh to a node or into a container."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from sparkctl.cli import verb_runner
from sparkctl.cli.options import create_context, select_configured_nodes
from sparkctl.errors import InvalidInput
from sparkctl.model.node import Node


def find_container(instance: str, node: str | None) -> tuple[Node, str]:
    """Return the node and the container of a running instance; of several ranks that of the head, unless ``node`` names one."""
    from sparkctl.monitor.node_status import read_node_statuses
    from sparkctl.monitor.node_views import choose_instance

    nodes = select_configured_nodes([node] if node else ())
    found = choose_instance(verb_runner.run_async(read_node_statuses(create_context(), nodes)), instance)
    return next(one for one in nodes if one.name == found.node), found.container


def run_program(words: Sequence[str]) -> int:
    """Run a program in this terminal and return its exit status, by the rule of shells; Ctrl-C is its own."""
    from sparkctl.tui.global_actions import suggest_install

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = subprocess.run(words, check=False, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    except FileNotFoundError as missing:
        raise InvalidInput(f"{words[0]} is not installed on this machine", suggest_install(words[0])) from missing
    finally:
        signal.signal(signal.SIGINT, before)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
