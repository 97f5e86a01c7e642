"""``sparkctl models`` and ``images``: what lies on each node, and the removal of a model or an image."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from sparkctl.cli import verb_runner
from sparkctl.cli.options import (
    VerbGroup,
    create_context,
    json_document_option,
    json_option,
    node_option,
    select_configured_nodes,
)


@click.group(
    "models", cls=VerbGroup, invoke_without_command=True, short_help="Show the models on each node; remove one."
)
@node_option(many=True)
@json_document_option
@click.pass_context
def models_command(ctx: click.Context, node: tuple[str, ...], as_json: bool) -> int | None:
    """Show the models on each node: size, last use, whether complete, on which nodes, and which profiles name them.

    \b
    sparkctl models
    sparkctl models --node spark1 --json
    sparkctl models remove Qwen3.6-27B-NVFP4 --node spark1

    It looks where the mounts of your profiles lead, and into the Hub's cache. The time of the last use comes from the disk, exact to
    a day. Exit 3 if a node cannot be read.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from sparkctl.cli import stdout
    from sparkctl.commands.model_places import load_all_profiles
    from sparkctl.commands.stored_models import list_models
    from sparkctl.errors import ExitCode
    from sparkctl.views.stored_view import build_models_json, format_models

    context = create_context(may_ask=not as_json)
    views = verb_runner.run_async(list_models(context, select_configured_nodes(node), load_all_profiles()))
    if as_json:
        stdout.print_json(build_models_json(views))
    else:
        stdout.print_lines(format_models(views, context.clock.unix_time(), stdout.get_terminal_width()))
    return int(ExitCode.UNREACHABLE if any(view.trouble is not None for view in views) else ExitCode.DONE)


@models_command.command("remove")
@click.argument("name")
@node_option(many=False)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask. A script needs it.")
@json_option
@click.pass_context
def remove_command(ctx: click.Context, name: str, node: str | None, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove the model NAME from a node, if nothing uses it.

    \b
    sparkctl models remove Qwen3.6-27B-NVFP4 --node spark1 --dry-run
    sparkctl models remove /home/me/models/old --node spark1

    It is refused while a running container, a process of yours or a download uses the model, or may use it. What sparkctl did
    not bring and no profile names is removed only by its exact path. It asks before; in a script say --yes.

    Exit 0: removed. Exit 6: refused, nothing was changed.
    """
    from sparkctl.cli import stderr
    from sparkctl.cli.event_printers import JsonPrinter, TextPrinter
    from sparkctl.cli.options import select_one_node
    from sparkctl.cli.terminal_prompter import read_line
    from sparkctl.commands.stored_models import RemoveModel, remove_model
    from sparkctl.errors import ExitCode

    is_asking = not (dry_run or yes)
    if is_asking and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("this removes files: add --yes, or use --dry-run to see which", ctx)
    target = select_one_node(node)
    context = create_context(may_ask=not as_json)
    if is_asking:
        planned = RemoveModel(name=name, nodes=(target,), dry_run=True)
        code = verb_runner.run_verb(context, lambda one: remove_model(one, planned), TextPrinter())
        if code:
            return code
        answer = verb_runner.run_async(read_line("Remove it? [y/N] "))
        if answer.strip().lower() not in ("y", "yes"):
            stderr.print_message("nothing was removed")
            return int(ExitCode.REFUSED)
    request = RemoveModel(name=name, nodes=(target,), dry_run=dry_run)
    return verb_runner.run_verb(
        context, lambda one: remove_model(one, request), JsonPrinter() if as_json else TextPrinter()
    )


@click.group(
    "images",
    cls=VerbGroup,
    invoke_without_command=True,
    short_help="List the images on each node; remove one that nothing uses.",
)
@node_option(many=True)
@json_document_option
@click.pass_context
def images_command(ctx: click.Context, node: tuple[str, ...], as_json: bool) -> int | None:
    """List the images on each node: size, when it was made and last used, and which containers and profiles need it.

    \b
    sparkctl images --node spark1
    sparkctl images remove vllm/vllm-openai:v0.19.1 --node spark1

    A size includes layers that several images share. Last used is what the history of this computer and the containers on
    the node tell. Exit 3 if a node could not be read.
    """
    if ctx.invoked_subcommand is not None:
        if node or as_json:
            raise click.UsageError(f"options go after the command: sparkctl images {ctx.invoked_subcommand} ...", ctx)
        return None
    from sparkctl.cli import stdout
    from sparkctl.commands.images import list_images
    from sparkctl.errors import ExitCode
    from sparkctl.model.json_codec import to_json_data
    from sparkctl.views.stored_view import format_images

    context = create_context(may_ask=not as_json)
    found = verb_runner.run_async(list_images(context, select_configured_nodes(node)))
    if as_json:
        stdout.print_json({"schema": 1, "nodes": to_json_data(found)})
    else:
        stdout.print_rows(format_images(found, context.clock.unix_time(), stdout.get_terminal_width()))
    return int(ExitCode.DONE if all(one.images is not None for one in found) else ExitCode.UNREACHABLE)


@images_command.command("remove")
@click.argument("images", nargs=-1, metavar="IMAGE...")
@node_option(many=True)
@click.option("--old-builds", is_flag=True, help="Also remove images that `pull` built and a newer build has replaced.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def images_remove_command(
    ctx: click.Context, images: tuple[str, ...], node: tuple[str, ...], old_builds: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:  # fmt: skip
    """Remove each IMAGE, a name with its tag or an id of 12 digits, from the nodes; with --node from these alone.

    \b
    sparkctl images remove vllm/vllm-openai:v0.18.0 --node spark1
    sparkctl images remove --old-builds --dry-run

    It asks before; in a script say --yes. Exit 6, and nothing is removed: a container was made of one of them, running or
    not, or no node has it. Nothing else is removed: sparkctl never tidies up what nobody named.
    """
    from sparkctl.cli import stderr
    from sparkctl.cli.event_printers import JsonPrinter, TextPrinter
    from sparkctl.cli.terminal_prompter import read_line
    from sparkctl.commands.images import RemoveImages
    from sparkctl.errors import ExitCode

    if not images and not old_builds:
        raise click.UsageError("name an image, or use --old-builds", ctx)
    is_asking = not (dry_run or yes)
    if is_asking and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("this removes images: add --yes, or use --dry-run to see which", ctx)
    context = create_context(may_ask=not as_json)
    request = RemoveImages(
        nodes=tuple(select_configured_nodes(node)), names_nodes=bool(node), wanted=images, old_builds=old_builds,
        dry_run=dry_run or is_asking,
    )  # fmt: skip
    code = verb_runner.run_verb(context, request.run, JsonPrinter() if as_json else TextPrinter())
    if code or not is_asking:
        return code
    answer = verb_runner.run_async(read_line("Remove it? [y/N] "))
    if answer.strip().lower() not in ("y", "yes"):
        stderr.print_message("nothing was removed")
        return int(ExitCode.REFUSED)
    return verb_runner.run_verb(context, replace(request, dry_run=False).run, TextPrinter())
