"""``sparkctl pull`` and ``sync``: get a profile's image and model onto a node, from outside or from another Spark."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_nodes,
    complete_profiles,
    format_overrides,
    json_option,
    list_nodes,
    node_option,
    select_configured_nodes,
)

if TYPE_CHECKING:
    from sparkctl.cli.verb_runner import EventPrinter


@click.command("pull", cls=RequestCommand, short_help="Get a profile's image and model onto a node.")
@click.argument("profile", nargs=-1, required=True, shell_complete=complete_profiles)
@node_option(many=True, about=" (repeatable; without it every node of the config)")
@click.option("--image-only", is_flag=True, help="Get only the image.")
@click.option("--model-only", is_flag=True, help="Get only the model's files.")
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile.")
@click.option(
    "--stop", is_flag=True, help="Stop the downloads of this model that are running there; what has arrived is kept."
)
@click.option(
    "--login",
    "own_login",
    is_flag=True,
    help="Use this computer's registry login for this download; it is not stored on the node.",
)
@click.option(
    "--from-cache",
    "from_cache",
    metavar="DIR|NODE",
    help="Copy the model from a directory on the node (a mounted NAS), or from another Spark.",
)
@click.option("--force", "forced", is_flag=True, help="Download even while an engine loads its weights there.")
@click.option("--dry-run", is_flag=True, help="Show what is missing; get nothing.")
@json_option
@click.pass_context
def pull_command(
    ctx: click.Context, profile: tuple[str, ...], node: tuple[str, ...], image_only: bool, model_only: bool,
    overrides: tuple[str, ...], stop: bool, own_login: bool, from_cache: str | None, forced: bool, dry_run: bool, as_json: bool,
) -> PreparedVerb:  # fmt: skip
    """Get what each PROFILE needs onto a node: its image from the registry, its model from where model.source says.

    \b
    sparkctl pull qwen36 --node spark1
    sparkctl pull qwen36 --node spark1 --dry-run
    sparkctl pull qwen36 --node spark2 --from-cache spark1       the other Spark has the model
    sparkctl pull qwen36 --node spark1 --from-cache /mnt/nas/hub
    sparkctl up qwen36 --node spark1 --pull        get what is missing, then start

    The image comes through Docker on the node, with the login that the node's user has (docker login),
    or yours with --login. The model comes from
    model.source of the profile, by the Hub's own client in a container of that image: nothing is installed. For a gated
    model set HF_TOKEN; it reaches the node in memory, never in a command line, an environment or a log.

    What the profile needs (`needs`) is fetched first, each onto its node. Several profiles are fetched one after the other;
    if one fails, the others are still fetched.

    For several nodes the model is downloaded once and copied over the cable. A download goes on without this computer; the
    same command finds it again, and continues one that broke off. Files are checked against the Hub's checksums, and a
    model gets its name only when it is complete.

    Exit 0: everything is there, even if nothing had to be fetched. Exit 6: refused, for example because the disk is too
    small or the profile does not say where its model comes from. Exit 3: a node or the network failed; repeat the command
    to continue.
    """
    from sparkctl.commands.pull.pull_profile import PullProfile, PullProfiles
    from sparkctl.profiles.profile_library import ProfileLibrary

    if image_only and model_only:
        raise click.UsageError("either --image-only or --model-only, not both", ctx)
    if from_cache and (stop or image_only):
        raise click.UsageError("--from-cache gets a model: leave out --stop and --image-only", ctx)
    directory = from_cache if from_cache and "/" in from_cache else None
    if directory is not None and (not re.match("/+[^/]", directory) or ".." in directory.split("/")):
        raise click.UsageError("--from-cache takes an absolute path on the node, without ..", ctx)
    origin = select_configured_nodes([from_cache])[0] if from_cache and directory is None else None
    library, nodes = ProfileLibrary(), tuple(select_configured_nodes(node))
    chosen = {name: library.load_profile(name, overrides=overrides) for name in profile}
    known = tuple(list_nodes())
    pulls = tuple(
        PullProfile(
            profile=one, nodes=nodes, names_nodes=bool(node), image=not model_only,
            model=not image_only, dry_run=dry_run, stop=stop, own_login=own_login, environ=os.environ,
            words=(name, *format_overrides(overrides)),
            from_directory=None if directory is None else directory.rstrip("/"), from_node=origin, forced=forced,
            known=known,
        )
        for name, one in chosen.items()
    )  # fmt: skip
    request = pulls[0] if len(pulls) == 1 else PullProfiles(pulls=pulls, names_nodes=bool(node))
    return PreparedVerb(request=request, printer=create_pull_printer)


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
def sync_command(
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


def create_pull_printer() -> EventPrinter:
    from sparkctl.cli.event_printers import TextPrinter

    return TextPrinter("stopping ...")


def create_transfer_printer() -> EventPrinter:
    from sparkctl.cli.event_printers import TextPrinter

    return TextPrinter("stopping; what has arrived is kept ...")
