"""A sparkctl command that a text of the code, a trap or a shipped profile names has options that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import click

from sparkctl.cli.main import VERBS, sparkctl_command
from sparkctl.cli.verbs.bench import BenchGroup
from sparkctl.files import shipped_profiles_dir
from tests.tools.docs.pages import ROOT

_COMMAND = re.compile(rf"\bsparkctl (?P<words>(?:{'|'.join(VERBS)})\b[^\n`\"',;)(]*)")
_OPTION = re.compile(r"(?<=\s)(--?[a-z][a-z-]*)(?=[\s=]|$)")
_UNKNOWN = "X"  # in place of a value that an f-string fills in


def list_texts() -> Iterator[tuple[str, str]]:
    """Yield each text that sparkctl may print, with the file that it is in."""
    for path in sorted((ROOT / "sparkctl").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield (
                    path.name,
                    "".join(str(one.value) if isinstance(one, ast.Constant) else _UNKNOWN for one in node.values),
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                yield path.name, node.value
    for path in (*(ROOT / "sparkctl").rglob("*.json"), *shipped_profiles_dir().glob("*.yaml")):
        yield path.name, re.sub(r"\n\s+", " ", path.read_text(encoding="utf-8"))


def find_command(words: list[str]) -> click.Command:
    """The command that the first words name: a verb, or a verb and its own."""
    found: click.Command = sparkctl_command
    for word in words:
        if not isinstance(found, click.Group) or (deeper := found.get_command(click.Context(found), word)) is None:
            break
        found = deeper
    if isinstance(found, BenchGroup):  # `bench INSTANCE` is `bench run INSTANCE`
        found = found.commands[found.default_command]
    return found


def test_the_options_of_every_printed_command_exist() -> None:
    printed = {(file, match["words"]) for file, text in list_texts() for match in _COMMAND.finditer(text)}
    assert len(printed) > 150
    wrong = []
    for file, text in sorted(printed):
        words = text.split()
        if words[0] == "demo":  # its options, then another command's
            continue
        command = find_command(words)
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
        wrong += [
            f"{file}: {text}: {option}"
            for option in _OPTION.findall(re.split(" (?:--|&&) ", text)[0])
            if option not in known
        ]
    assert wrong == []
