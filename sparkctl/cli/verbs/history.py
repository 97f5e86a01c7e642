"""``sparkctl history``: show past operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout
from sparkctl.cli.options import WholeNumber, complete_nodes, complete_profiles, json_document_option
from sparkctl.errors import InvalidInput, SparkctlError, format_did_you_mean

if TYPE_CHECKING:
    from sparkctl.history.model import OperationRecord
    from sparkctl.history.operation_history import OperationHistory

_SHOW_WORD = "show"
_LIST_ONLY_OPTIONS = ("--node", "--failed", "--refused", "--last")


def _complete_arguments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete ``show`` and profile names; after ``show``, the numbers of the latest operations."""
    given = ctx.params.get("words") or ()
    if not given:
        return [
            *([_SHOW_WORD] if _SHOW_WORD.startswith(incomplete) else []),
            *complete_profiles(ctx, param, incomplete),
        ]
    if given[0] != _SHOW_WORD or len(given) > 1:
        return []
    found = _open_history().list_operations(most=50)
    return [str(one.id) for one in found if str(one.id).startswith(incomplete)]


@click.command("history", short_help="Show past starts, stops and switches, and their results.")
@click.argument("words", nargs=-1, metavar="[PROFILE | [show] ID]", shell_complete=_complete_arguments)
@click.option("-n", "--node", metavar="NODE", help="Show only operations on this node.", shell_complete=complete_nodes)
@click.option("--failed", is_flag=True, help="Show only operations that failed; a refusal is not a failure.")
@click.option("--refused", is_flag=True, help="Show only operations that were refused: they changed nothing.")
@click.option("--last", type=WholeNumber(min=1), metavar="N", help="Show the latest N operations (default: 20).")
@json_document_option
@click.pass_context
def history_command(
    ctx: click.Context,
    words: tuple[str, ...],
    node: str | None,
    failed: bool,
    refused: bool,
    last: int | None,
    as_json: bool,
) -> int:
    """Show what was done from this machine, or only with PROFILE, the latest first: starts, stops, switches, removals, downloads
    and benchmarks.

    \b
    sparkctl history                     the latest operations
    sparkctl history qwen36 --failed     when it did not start, and why
    sparkctl history 12                  one in detail: times, memory, verdict, what changed since it worked

    The history is stored only on this machine and contains no secrets. Exit 2 if the file cannot be read.
    """
    history = _open_history()
    words = words[1:] if words in (("list",), ("ls",)) else words
    if len(words) == 1 and words[0].isascii() and words[0].isdigit():
        words = (_SHOW_WORD, *words)  # a number is that of an operation
    if words[:1] == (_SHOW_WORD,):
        if idle := next(
            (name for name, value in zip(_LIST_ONLY_OPTIONS, (node, failed, refused, last), strict=True) if value), None
        ):
            raise click.UsageError(f"{idle} is an option of the list, not of `show`", ctx)
        if len(words) != 2 or not words[1].isascii() or not words[1].isdigit():
            raise InvalidInput("show takes one number, from the first column of the list", "sparkctl history")
        if len(words[1]) > 18:
            raise InvalidInput(f"the history has no entry {words[1][:40]}", "sparkctl history")
        return _print_operation(history, int(words[1]), as_json)
    if len(words) > 1:
        raise click.UsageError("name one profile, or: show ID", ctx)
    return _print_history(
        history, words[0] if words else None, node, last or 20, as_json, failed=failed, refused=refused
    )


def _open_history() -> OperationHistory:
    from sparkctl.files import state_dir
    from sparkctl.history.operation_history import OperationHistory

    return OperationHistory(state_dir())


def _print_history(
    history: OperationHistory,
    profile: str | None,
    node: str | None,
    last: int,
    as_json: bool,
    *,
    failed: bool,
    refused: bool,
) -> int:
    from sparkctl.views.history_view import build_history_json, render_history

    found = history.list_operations(profile, node, failed=failed, refused=refused, most=last)
    _report_file_errors(history)
    if not found and profile is not None:
        _check_profile_name(history, profile)
    if not found and node is not None:
        _check_node_name(history, node)
    if as_json:
        stdout.print_json(build_history_json(found))
    else:
        has_others = not found and bool(history.list_operations(most=1))
        stdout.print_rows(render_history(found, stdout.get_terminal_width(), has_others=has_others))
    return 0


def _print_operation(history: OperationHistory, number: int, as_json: bool) -> int:
    from sparkctl.history.start_diff import diff_starts
    from sparkctl.views.history_view import build_operation_json, build_operation_sections, render_sections
    from sparkctl.views.text.line_wrap import wrap_styled_line

    one: OperationRecord | None = history.get_operation(number)
    _report_file_errors(history)
    if one is None:
        numbers = [each.id for each in history.list_operations(most=-1)]
        known = "" if not numbers else f"; its only entry is {numbers[0]}"
        if len(numbers) > 1:
            known = f"; its entries are {min(numbers)} to {max(numbers)}"
            if min(numbers) < number < max(numbers):
                known = ": a command that had nothing to do leaves none"
        raise InvalidInput(f"the history has no entry {number}{known}", "sparkctl history")
    worked = history.find_last_good_start(one)
    changes = None if worked is None else diff_starts(worked, one)
    parts = history.list_switch_parts(one)
    if as_json:
        stdout.print_json(build_operation_json(one, worked, changes, parts))
        return 0
    width = stdout.get_terminal_width()
    for row in render_sections(build_operation_sections(one, worked, changes, parts)):
        stdout.print_rows(wrap_styled_line(row, width))
    return 0


def _report_file_errors(history: OperationHistory) -> None:
    """Print what is wrong with the history file. Raises `InvalidInput` if nothing in it can be read."""
    word = history.take_warning()
    if word is not None and history.is_unreadable:
        raise InvalidInput(word, "the file is kept; move it away and sparkctl begins a new history")
    if word is not None:
        stderr.print_warning(None, word, None)


def _check_profile_name(history: OperationHistory, profile: str) -> None:
    from sparkctl.profiles.profile_library import ProfileLibrary

    names = ProfileLibrary().list_names()
    known = {*names, *(name for one in history.list_operations(most=-1) if (name := one.profile or one.instance))}
    if profile not in known:
        raise InvalidInput(
            f"no profile is called {profile}, and the history has no entry for it{format_did_you_mean(profile, known)}",
            "sparkctl history",
        )


def _check_node_name(history: OperationHistory, node: str) -> None:
    from sparkctl.config import load_config

    try:
        known = {str(one.name) for one in load_config().nodes}
    except SparkctlError:  # the history is shown without a config, too
        known = set()
    known |= {name for one in history.list_operations(most=-1) for name in one.nodes}
    if known and node not in known:
        if node.isascii() and node.isdigit():
            raise InvalidInput(f"-n takes a node, and none is called {node}", f"sparkctl history --last {node}")
        raise InvalidInput(
            f"no node is called {node}, and the history has no entry for it{format_did_you_mean(node, known)}",
            "sparkctl history",
        )
