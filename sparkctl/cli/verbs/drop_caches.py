"""``sparkctl drop-caches``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli.setup import chosen_nodes, json_option, make_context, node_option

if TYPE_CHECKING:
    from sparkctl.cli.drive import Teller


@click.command("drop-caches", short_help="Drop the page cache, with memory before and after.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> int:
    """Drop the page cache on the nodes: MemFree, page cache and MemAvailable before and after.

    It needs the right to `sudo tee /proc/sys/vm/drop_caches`; without it you are asked for the password, or told the
    sudoers line.
    """
    from sparkctl.cli.drive import drive
    from sparkctl.cli.tellers import JsonTeller
    from sparkctl.operations.drop_caches import drop_caches

    context = make_context(may_ask=not as_json)
    nodes = chosen_nodes(node)
    return drive(context, lambda: drop_caches(context, nodes), JsonTeller() if as_json else _teller())


def _teller() -> Teller:
    from sparkctl.cli import output
    from sparkctl.cli.tellers import WordTeller
    from sparkctl.model.events import CachesDropped, Event
    from sparkctl.present.sentences import caches_table

    class CachesTeller(WordTeller):
        """The figures are what was asked for: they go to stdout."""

        def tell(self, event: Event) -> None:
            if isinstance(event, CachesDropped):
                output.texts(caches_table(event))
            else:
                super().tell(event)

    return CachesTeller()
