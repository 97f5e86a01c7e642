"""``sparkctl doctor``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sparkctl.cli.setup import chosen_nodes, json_option, make_context, node_option

if TYPE_CHECKING:
    from sparkctl.cli.drive import Teller

_HANG = 18  # below the words of a finding


@click.command("doctor", short_help="Say what is missing on the nodes, each with the command that mends it.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> int:
    """Examine the nodes: connection, memory, Docker, GPU access, the right to drop caches, disks.

    Exit 5 if something is a problem, 3 if a node could not be asked.
    """
    from sparkctl.cli.drive import drive
    from sparkctl.cli.tellers import JsonTeller
    from sparkctl.operations.doctor import doctor

    context = make_context(may_ask=not as_json)
    nodes = chosen_nodes(node)
    return drive(context, lambda: doctor(context, nodes), JsonTeller() if as_json else _teller())


def _teller() -> Teller:
    from sparkctl.cli import output
    from sparkctl.cli.style import ascii_only
    from sparkctl.cli.tellers import WordTeller
    from sparkctl.model.events import Event, Found
    from sparkctl.present.findings import finding_lines
    from sparkctl.present.fold import fold

    class DoctorTeller(WordTeller):
        """Findings are what was asked for: they go to stdout, under their node."""

        node: str | None = None

        def tell(self, event: Event) -> None:
            if not isinstance(event, Found):
                return super().tell(event)
            if event.node != self.node:
                self.node = event.node
                output.text(f"{event.node}")
            lines = finding_lines(event, ascii_only(sys.stdout))
            return output.texts(part for line in lines for part in fold(line, output.width(), _HANG))

    return DoctorTeller()
