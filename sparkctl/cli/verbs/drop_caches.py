"""``sparkctl drop-caches``: drop the page cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import PreparedVerb, RequestCommand, json_option, node_option, select_configured_nodes

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter


@click.command("drop-caches", cls=RequestCommand, short_help="Drop the page cache, and show memory before and after.")
@node_option(many=True)
@json_option
def command(node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Drop the page cache on the nodes, and show MemFree, page cache and MemAvailable before and after.

    \b
    sparkctl drop-caches
    sparkctl drop-caches --node spark1

    It needs the right to `sudo tee /proc/sys/vm/drop_caches`. Without it sparkctl asks for the password. Without that it drops
    only the files of your models, which needs no right, and prints the sudoers line to add and what it would bring.
    """
    from sparkctl.commands.drop_page_cache import DropCaches

    request = DropCaches(select_configured_nodes(node), names_nodes=bool(node))
    return PreparedVerb(request=request, printer=_create_cache_drop_printer)


def _create_cache_drop_printer() -> EventPrinter:
    from sparkctl.cli import stdout
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.model.events import CachesDropped, Event
    from sparkctl.views.event_text import format_cache_table

    class CacheDropPrinter(TextPrinter):
        """Prints the figures on stdout."""

        def print_event(self, event: Event) -> None:
            if isinstance(event, CachesDropped):
                stdout.print_lines(format_cache_table(event))
            else:
                super().print_event(event)

    return CacheDropPrinter()
