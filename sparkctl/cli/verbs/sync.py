"""``sparkctl sync``: copy an image and a model between Sparks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_nodes,
    complete_profiles,
    format_overrides,
    json_option,
    select_configured_nodes,
)

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter


@click.command("sync", cls=RequestCommand, short_help="Copy a profile's image and model from one Spark to another.")
@click.argument("profile", shell_complete=complete_profiles)
@click.option(
    "--from", "source", required=True, metavar="NODE", shell_complete=complete_nodes, help="The Spark to copy from."
)
@click.option(
    "--to", "targets", required=True, multiple=True, metavar="NODE", shell_complete=complete_nodes,
    help="The Spark to copy to (repeatable).",
)  # fmt: skip
@click.option("--image-only", is_flag=True, help="Copy only the image.")
@click.option("--model-only", is_flag=True, help="Copy only the model's files.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile, e.g. image=..."
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
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
) -> PreparedVerb:
    """Copy what PROFILE needs from one Spark to another: its image, and the files of its model.

    \b
    sparkctl sync minimax-m27 --from spark1 --to spark2
    sparkctl sync minimax-m27 --from spark1 --to spark2 --dry-run
    sparkctl sync qwen36 --from spark1 --to spark2 --model-only

    The data goes directly from Spark to Spark, over the cable between them if there is one; no SSH key is needed on
    either Spark. Only differences are sent. After Ctrl-C or a lost connection, run the same command again: the model's
    files continue where they stopped, an image starts again. Files are verified by checksum, the image by its id.

    Exit 0: equal on both, even if nothing had to be sent. Exit 6: refused before anything was sent, for example because
    there is not enough free disk space. Exit 3: a Spark could not be reached, or the transfer broke off.
    """
    from sparkctl.commands.transfer.transfer_profile import TransferProfile
    from sparkctl.profiles.profile_library import ProfileLibrary

    if image_only and model_only:
        raise click.UsageError("either --image-only or --model-only, not both", ctx)
    chosen = ProfileLibrary().load_profile(profile, overrides=overrides)
    near, *_ = select_configured_nodes([source])
    request = TransferProfile(
        profile=chosen, source=near, targets=select_configured_nodes(targets), image=not model_only, model=not image_only, dry_run=dry_run,
        environ=os.environ, words=(profile, *format_overrides(overrides)),
    )  # fmt: skip
    return PreparedVerb(request=request, printer=create_transfer_printer)


def create_transfer_printer() -> EventPrinter:
    """Return the printer of what moves."""
    from sparkctl.cli.event_printers import TextPrinter

    return TextPrinter("stopping; what has arrived is kept ...")
