"""The help of every verb and subcommand."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from sparkctl.cli.main import sparkctl_command
from tests.golden.comparison import assert_golden, assert_same_files

COLUMNS = 80


def walk_commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    """Yield a context for a command and for each one below it."""
    settings = {**command.context_settings, "terminal_width": COLUMNS, "max_content_width": COLUMNS}
    context = command.context_class(command, parent=parent, info_name=name, **settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from walk_commands(below, context, each)


CONTEXTS = {context.command_path: context for context in walk_commands(sparkctl_command, None, "sparkctl")}


def name_file(path: str) -> str:
    """Return the name of the golden file of a command."""
    return f"{path.replace(' ', '-')}.txt"


@pytest.mark.parametrize("path", list(CONTEXTS))
def test_help_is_unchanged(path: str) -> None:
    assert_golden(f"help/{name_file(path)}", CONTEXTS[path].command.get_help(CONTEXTS[path]))


def test_every_command_has_golden_help() -> None:
    assert_same_files("help", map(name_file, CONTEXTS))


def test_options_are_unchanged() -> None:
    """Options that help does not show, defaults and choices included."""
    lines = []
    for path, context in CONTEXTS.items():
        for one in context.command.params:
            names = " ".join((*one.opts, *one.secondary_opts))
            choices = f" {'|'.join(map(str, one.type.choices))}" if isinstance(one.type, click.Choice) else ""
            many = " many" if one.multiple or one.nargs == -1 else ""
            flag = " flag" if isinstance(one, click.Option) and one.is_flag else ""
            lines.append(f"{path} {names}{choices}{many}{flag}{' required' if one.required else ''}")
    assert_golden("options.txt", "\n".join(sorted(lines)))
