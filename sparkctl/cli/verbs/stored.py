"""``sparkctl models`` and ``images``: what lies on each node, and the removal of a model or an image."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout, verb_runner
from sparkctl.cli.options import (
    VerbGroup,
    create_context,
    json_document_option,
    json_option,
    node_option,
    select_configured_nodes,
    select_one_node,
)
from sparkctl.errors import ExitCode
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_ago, format_size
from sparkctl.views.text.line_wrap import align_cells, wrap_cells, wrap_line, wrap_styled_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, measure_text, sanitize_span

if TYPE_CHECKING:
    from sparkctl.commands.images import ImageUse, NodeImages, RemoveImages
    from sparkctl.commands.stored_models import NodeModels, RemoveModel, StoredModel

_IMAGE_HEADINGS = ("image", "size", "created", "last used", "used by")


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

    It looks in the directories that your profiles mount, and in the Hub's cache. The time of the last use comes from the
    disk, accurate to a day. Exit 3 if a node cannot be read.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from sparkctl.commands.model_places import load_all_profiles
    from sparkctl.commands.stored_models import list_models
    from sparkctl.model.json_codec import to_json_data

    context = create_context(may_ask=not as_json)
    views = verb_runner.run_async(list_models(context, select_configured_nodes(node), load_all_profiles()))
    if as_json:
        stdout.print_json({"schema": 1, "nodes": to_json_data(views)})
    else:
        stdout.print_rows(_format_models(views, context.clock.unix_time(), stdout.get_terminal_width()))
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

    It is refused while a running container, a process of yours or a download uses the model, or may use it. A model that no
    profile names and `pull` did not get is removed only by its exact path. It asks first; scripts need --yes.

    Exit 0: removed. Exit 6: refused, nothing was changed.
    """
    from sparkctl.commands.stored_models import RemoveModel

    def build_request() -> RemoveModel:
        return RemoveModel(name=name, nodes=(select_one_node(node),))

    return _ask_and_remove(ctx, build_request, "files", dry_run=dry_run, yes=yes, as_json=as_json)


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

    A size includes layers that several images share. The time of the last use comes from this computer's history and from
    the containers on the node. Exit 3 if a node could not be read.
    """
    if ctx.invoked_subcommand is not None:
        if node or as_json:
            raise click.UsageError(f"options go after the command: sparkctl images {ctx.invoked_subcommand} ...", ctx)
        return None
    from sparkctl.commands.images import list_images
    from sparkctl.model.json_codec import to_json_data

    context = create_context(may_ask=not as_json)
    found = verb_runner.run_async(list_images(context, select_configured_nodes(node)))
    if as_json:
        stdout.print_json({"schema": 1, "nodes": to_json_data(found)})
    else:
        stdout.print_rows(_format_images(found, context.clock.unix_time(), stdout.get_terminal_width()))
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
    """Remove each IMAGE, a name with its tag or an id of 12 digits, from the nodes, or only from those that --node names.

    \b
    sparkctl images remove vllm/vllm-openai:v0.18.0 --node spark1
    sparkctl images remove --old-builds --dry-run

    It asks first; scripts need --yes. Exit 6: nothing was removed, because a container, running or not, uses one of them,
    or because no node has it. What you did not ask for is never removed.
    """
    from sparkctl.commands.images import RemoveImages

    if not images and not old_builds:
        raise click.UsageError("name an image, or use --old-builds", ctx)

    def build_request() -> RemoveImages:
        nodes = tuple(select_configured_nodes(node))
        return RemoveImages(nodes=nodes, names_nodes=bool(node), wanted=images, old_builds=old_builds)

    return _ask_and_remove(ctx, build_request, "images", dry_run=dry_run, yes=yes, as_json=as_json)


def _ask_and_remove(
    ctx: click.Context, build_request: Callable[[], RemoveModel | RemoveImages], what: str, *, dry_run: bool, yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Show what a request would remove, and remove it after a yes; at once with ``yes``."""
    from sparkctl.cli.event_printers import JsonPrinter, TextPrinter
    from sparkctl.cli.terminal_prompter import confirm

    is_asking = not (dry_run or yes)
    if is_asking and (as_json or not sys.stdin.isatty()):
        raise click.UsageError(f"this removes {what}: add --yes, or use --dry-run to see which", ctx)
    request, context = build_request(), create_context(may_ask=not as_json)
    if is_asking:
        if code := verb_runner.run_verb(context, replace(request, dry_run=True).run, TextPrinter()):
            return code
        if not verb_runner.run_async(confirm("Remove it?")):
            stderr.print_message("nothing was removed")
            return int(ExitCode.REFUSED)
    printer = JsonPrinter() if as_json else TextPrinter()
    return verb_runner.run_verb(context, replace(request, dry_run=dry_run).run, printer)


def _format_images(nodes: Sequence[NodeImages], now: float, width: int | None) -> list[TextRow | str]:
    """Return the lines of ``images``, for ``width`` columns if given. ``now``: unix seconds, for the ages."""
    lines: list[TextRow | str] = []
    for node in nodes:
        lines += ([""] if lines else []) + _format_node_images(node, now, width)
    return lines


def _format_node_images(node: NodeImages, now: float, width: int | None) -> list[TextRow | str]:
    if node.images is None:
        hint = wrap_line(f"    try: {sanitize_line(node.hint)}", width, 4) if node.hint else []
        return [*_render_node(node.name, node.detail or "not known", width, TextStyle.BAD), *hint]
    if not node.images:
        return [*_render_node(node.name, "no image", width)]
    rows = [_list_image_cells(one, now) for one in node.images]
    table = ["  " + "  ".join(cells) for cells in align_cells([_IMAGE_HEADINGS, *rows], right=(1,))]
    if width is None or all(measure_text(line) <= width for line in table):
        return [*_render_node(node.name), (Span(table[0], TextStyle.LABEL),), *table[1:]]
    lines: list[TextRow | str] = [*_render_node(node.name)]
    for name, size, created, used, users in rows:
        cells = (size, f"created {created}", f"last used {used}", f"used by {users}")
        details = wrap_cells("    ", cells, width, "  ")
        lines += [*wrap_line(f"  {name}", width, 4), *((Span(line, TextStyle.LABEL),) for line in details)]
    return lines


def _render_node(
    name: str, words: str = "", width: int | None = None, tone: TextStyle = TextStyle.PLAIN
) -> list[TextRow]:
    """Return the head of what lies on a node."""
    head = (Span(str(name), TextStyle.STRONG), *((Span("   "), sanitize_span(words, tone)) if words else ()))
    return wrap_styled_line(head, width, 4)


def _list_image_cells(one: ImageUse, now: float) -> tuple[str, ...]:
    from sparkctl.model.container import shorten_id

    name = " ".join(one.image.names) or shorten_id(one.image.id)
    what = "" if one.image.names else " (old build)" if one.is_old_build else " (dangling)"
    groups = (("container", one.containers), ("profile", one.profiles))
    users = [f"{word}{'s' if len(names) > 1 else ''} {', '.join(names)}" for word, names in groups if names]
    return (
        sanitize_line(name) + what,
        "—" if one.image.size is None else format_size(one.image.size),
        format_ago(one.image.created, now),
        format_ago(one.last_used, now),
        sanitize_line("; ".join(users)) or "nothing",
    )


def _format_models(views: Sequence[NodeModels], now: float, width: int | None) -> list[TextRow | str]:
    """Return the lines of ``models``, for ``width`` columns if given. ``now``: unix seconds, for the ages."""
    lines: list[TextRow | str] = []
    for view in views:
        lines += [""] if lines else []
        if view.trouble is not None:
            lines += _render_node(view.node, f"not known: {view.trouble}", width, TextStyle.BAD)
            continue
        whole = format_size(sum(one.size for one in view.models))
        count = f"{len(view.models)} model{'s' if len(view.models) > 1 else ''}, {whole}" if view.models else "no model"
        lines += _render_node(view.node, count)
        styles = [TextStyle.ATTENTION if one.is_whole is False else TextStyle.PLAIN for one in view.models]
        cells = [_list_model_cells(one, now, several=len(views) > 1) for one in view.models]
        table = ["  ".join(row).rstrip() for row in align_cells(cells, right=(0,))]
        if width is None or all(measure_text(line) <= width for line in table):
            lines += ((Span(line, style),) for line, style in zip(table, styles, strict=True))
            continue
        for style, (size, place, *more) in zip(styles, cells, strict=True):
            details = wrap_cells("    ", [size.strip(), *more], width, "  ")
            dim = TextStyle.LABEL if style is TextStyle.PLAIN else style
            lines += [*_wrap_path(place, width), *((Span(line, dim),) for line in details)]
    return lines


def _wrap_path(path: str, width: int) -> list[str]:
    """Return a path on one line, or where it is too wide its last part on a second one."""
    above, _, name = path.rpartition("/")
    return [f"  {path}"] if measure_text(path) + 2 <= width else [f"  {above}/", f"    {name}"]


def _list_model_cells(one: StoredModel, now: float, *, several: bool) -> list[str]:
    used = "last used ?" if one.used is None else f"used {format_ago(one.used, now)}"
    if one.is_link:
        state = "a link"
    elif one.is_whole is None:
        state = "not known whether it is complete: its files cannot be read"
    else:
        state = "complete" if one.is_whole else f"incomplete: {sanitize_line(one.faults[0])}"
    needed = ", ".join(one.profiles) or (
        "no profile uses it" if one.is_brought else "not downloaded by sparkctl, no profile uses it"
    )
    where = [f"also on {' and '.join(one.also_on)}" if one.also_on else "only here"] if several else []
    return [f"  {format_size(one.size)}", sanitize_line(one.place), used, state, *where, sanitize_line(needed)]
