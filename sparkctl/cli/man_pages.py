"""Manual pages, made from the help of the verbs. The build of the wheel writes them, and `sparkctl help --man` prints one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click


def format_man_page(context: click.Context) -> str:
    """Return the manual page of a command as roff."""
    command, name = context.command, context.command_path.replace(" ", "-")
    about = command.short_help or (command.help or "").split("\n\n")[0]
    synopsis = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [
        f'.TH "{name.upper()}" "1" "" "sparkctl" "sparkctl"',
        ".SH NAME", rf"{_escape(name)} \- {_escape(' '.join(about.split()))}",
        ".SH SYNOPSIS", rf"\fB{_escape(synopsis)}\fR",
        ".SH DESCRIPTION", *_format_text(command.help or ""),
    ]  # fmt: skip
    records = (one.get_help_record(context) for one in command.get_params(context))
    options = [row for row in records if row is not None and row[1]]
    if options:
        lines.append(".SH OPTIONS")
        for names, help_text in options:
            lines += [".TP", rf"\fB{_escape(names)}\fR", _escape(" ".join(help_text.split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for verb in command.list_commands(context):
            below = command.get_command(context, verb)
            if below is not None:
                lines += [".TP", rf"\fB{_escape(verb)}\fR", _escape(below.get_short_help_str(200))]
    if command.epilog:
        lines += [".SH NOTES", *_format_text(command.epilog)]
    return "\n".join(lines) + "\n"


def write_man_pages(root: click.Group, directory: Path) -> list[Path]:
    """Write the page of sparkctl and one for each verb and subcommand; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for context in _walk_commands(root, None, "sparkctl"):
        path = directory / f"{context.command_path.replace(' ', '-')}.1"
        path.write_text(format_man_page(context), encoding="utf-8")
        paths.append(path)
    return paths


def _walk_commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    context = click.Context(command, parent=parent, info_name=name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None:
                yield from _walk_commands(below, context, each)


def _format_text(text: str) -> Iterator[str]:
    """Yield the paragraphs; one that begins with \\b keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.rstrip() for line in paragraph.splitlines()]
        if lines[0].strip() == "\b":
            yield from (".PP", ".nf", *map(_escape, lines[1:]), ".fi")
        else:
            yield from (".PP", _escape(" ".join(line.strip() for line in lines)))


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
