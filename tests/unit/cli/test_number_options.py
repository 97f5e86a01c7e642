"""What is said of an option whose value should be a number."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from sparkctl.cli.main import sparkctl_command

NUMBERS = (click.IntRange, click.FloatRange, type(click.INT), type(click.FLOAT))


def list_number_options(command: click.Command, path: str = "sparkctl") -> Iterator[tuple[str, click.Parameter]]:
    context = click.Context(command)
    yield from ((f"{path} {one.name}", one) for one in command.params if isinstance(one.type, NUMBERS))
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        if (child := command.get_command(context, name)) is not None:
            yield from list_number_options(child, f"{path} {name}")


def test_a_wrong_number_is_said_in_the_words_of_the_other_options() -> None:
    options = list(list_number_options(sparkctl_command))
    assert "sparkctl logs tail" in [path for path, _ in options]
    for path, option in options:
        for value in ("x", "-1"):
            with pytest.raises(click.BadParameter, match=rf"^'{value}' is not a (whole )?number from [\d.]+ ") as wrong:
                option.type.convert(value, option, None)
            assert "range" not in wrong.value.message, path
