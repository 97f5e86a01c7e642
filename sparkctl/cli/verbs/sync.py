"""``sparkctl sync``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import complete_nodes, complete_profiles, create_context, json_option, select_configured_nodes

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter


@click.command("sync", short_help="Bring a profile's image and model from one Spark to another.")
@click.argument("profile", shell_complete=complete_profiles)
@click.option(
    "--from", "source", required=True, metavar="NODE", shell_complete=complete_nodes, help="the Spark that has them"
)
@click.option(
    "--to", "targets", required=True, multiple=True, metavar="NODE", shell_complete=complete_nodes,
    help="the Spark that gets them (repeatable)",
)  # fmt: skip
@click.option("--image-only", is_flag=True, help="The image alone.")
@click.option("--model-only", is_flag=True, help="The model's files alone.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile, e.g. image=..."
)
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    profile: str,
    source: str,
    targets: tuple[str, ...],
    image_only: bool,
    model_only: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Bring what PROFILE needs from one Spark to another: its image, and the files of its model.

    \b
    sparkctl sync minimax-m27 --from spark1 --to spark2
    sparkctl sync minimax-m27 --from spark1 --to spark2 --dry-run
    sparkctl sync qwen36 --from spark1 --to spark2 --model-only

    It goes straight from Spark to Spark, over the cable between them where there is one; no key has to lie on either.
    Only what differs is sent. After Ctrl-C or a break the same command goes on: the model's files where they were, an
    image from its beginning. What arrived is compared by its sums, the image by its id.

    Exit 0: equal on both, also where nothing had to be sent. Exit 6: refused before anything was sent, as where the disk
    cannot hold it. Exit 3: a Spark could not be reached, or the transfer broke off.
    """
    from sparkctl.cli.event_printers import JsonPrinter
    from sparkctl.cli.verb_runner import run_verb
    from sparkctl.commands.transfer.transfer_profile import TransferProfile, transfer_profile
    from sparkctl.profiles.profile_library import ProfileLibrary

    if image_only and model_only:
        raise click.UsageError("either --image-only or --model-only, not both", ctx)
    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    near, *_ = select_configured_nodes([source])
    request = TransferProfile(
        profile=chosen, source=near, targets=select_configured_nodes(targets), image=not model_only, model=not image_only, dry_run=dry_run,
        environ=os.environ,
    )  # fmt: skip
    context = create_context(may_ask=not as_json)
    teller = JsonPrinter() if as_json else _create_transfer_printer()
    return run_verb(context, lambda: transfer_profile(context, request), teller)


def _create_transfer_printer() -> EventPrinter:
    import sys
    import time

    from sparkctl.cli import stderr
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.cli.terminal_style import colour_text, is_ascii_only
    from sparkctl.model.events import Event, TransferProgressed
    from sparkctl.model.phase import Phase
    from sparkctl.views.text.state_symbols import get_state_symbol, to_ascii
    from sparkctl.views.transfer_view import format_transfer

    class TransferPrinter(TextPrinter):
        """A live line for what is on its way; without a terminal a line now and then."""

        def __init__(self) -> None:
            super().__init__("stopping; what has come stays ...")
            self.what = ""
            self.said_at = 0.0

        def print_event(self, event: Event) -> None:
            super().print_event(event)
            if not isinstance(event, TransferProgressed):
                return
            plain = is_ascii_only(sys.stderr)
            words = format_transfer(event)
            line = f"{event.node}  {colour_text(get_state_symbol(Phase.LOADING, plain), 'attention', self.colour)} "
            line += to_ascii(words) if plain else words
            is_whole = event.total is not None and event.done >= event.total
            if self.live.on and not is_whole:
                self.live.update(line)
            elif event.what != self.what or is_whole or time.monotonic() - self.said_at > 10.0:
                self.live.clear()
                stderr.print_message(line)
                self.said_at = time.monotonic()
            self.what = event.what

    return TransferPrinter()
