"""``sparkctl help``: the help of a verb, or a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path


def _complete_subjects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [one for one in (*_list_verbs(ctx), *_list_topics()) if one.startswith(incomplete)]


@click.command("help", short_help="Explain a command or a topic.")
@click.argument("words", nargs=-1, metavar="[VERB|CAUSE|TOPIC]", shell_complete=_complete_subjects)
@click.option("--man", "as_man", is_flag=True, help="Print the manual page of the command, for man.")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], as_man: bool) -> int:
    """Explain a verb as `sparkctl VERB --help` does, the cause of a failed start, or print a page of the documentation. Without
    words: all verbs and topics.

    \b
    sparkctl help up
    sparkctl help profiles import
    sparkctl help cuda-out-of-memory
    sparkctl help memory-fit
    sparkctl help up --man > ~/.local/share/man/man1/sparkctl-up.1
    """
    from sparkctl import __version__
    from sparkctl.cli import stdout

    root = ctx.find_root()
    if as_man and (found := _find_command(root, words)) is not None:
        from sparkctl.cli.man_pages import format_man_page

        stdout.print_lines(format_man_page(found).splitlines())
    elif not words:
        stdout.print_lines([root.get_help(), "", f"Topics: {', '.join(_list_topics())}"])
    elif words == ("version",):
        stdout.print_line(f"sparkctl {__version__}")
    elif (found := _find_command(root, words)) is not None:
        stdout.print_line(found.get_help())
    elif len(words) == 1 and (section := _find_section(words[0])):
        stdout.print_lines(section)
    elif len(words) == 1 and words[0] in _list_topics():
        page = (_docs_dir() / f"{words[0]}.md").read_text(encoding="utf-8")
        lines = [line for line in page.splitlines() if not line.startswith("<!--")]
        if stdout.is_terminal():
            click.echo_via_pager("\n".join(lines))
        else:
            stdout.print_lines(lines)
    elif sections := _find_headings(" ".join(words)):
        page, heading, lines = sections[0]
        stdout.print_lines([f"{heading}  (sparkctl help {page})", *lines])
        if len(sections) > 1:
            stdout.print_lines(
                ["", "See also:", *(f"  {more}  (sparkctl help {where})" for where, more, _ in sections[1:8])]
            )
    else:
        from sparkctl.errors import InvalidInput
        from sparkctl.model.text.suggestions import format_did_you_mean

        subject = " ".join(words)
        known = (*_list_verbs(root), *_list_topics())
        raise InvalidInput(f"there is no help about {subject!r}{format_did_you_mean(subject, known)}", "sparkctl help")
    return 0


def _find_command(root: click.Context, words: Sequence[str]) -> click.Context | None:
    """Return a context of the command that the words name; a verb of another tool is taken for ours."""
    from sparkctl.cli.options import VERB_ALIASES

    context = root
    for word in (*VERB_ALIASES.get(words[0], words[:1])[:1], *words[1:]) if words else ():
        group = context.command
        below = group.get_command(context, word) if isinstance(group, click.Group) else None
        if below is None:
            return None
        context = click.Context(below, parent=context, info_name=word)
    return context


def _list_verbs(ctx: click.Context) -> list[str]:
    root = ctx.find_root()
    return root.command.list_commands(root) if isinstance(root.command, click.Group) else []


def _find_section(name: str) -> list[str]:
    """Return what the page of causes says of one; nothing for any other word."""
    page = (_docs_dir() / "causes.md").read_text(encoding="utf-8")
    _, mark, rest = page.partition(f"\n### {name}\n")
    if not mark:
        return []
    text = re.split(r"\n(?:#|<!--)", rest)[0].strip()
    return [f"{name}:", *text.splitlines(), "", "All causes: sparkctl help causes"]


def _find_headings(words: str) -> list[tuple[str, str, list[str]]]:
    """Return the sections of all pages whose heading has these words: page, heading and lines; the shortest heading first."""
    wanted = set(re.findall(r"[a-z0-9]+", words.lower()))
    found = []
    for topic in _list_topics():
        page = (_docs_dir() / f"{topic}.md").read_text(encoding="utf-8")
        text = re.sub(
            r"^```.*?^```$", lambda block: block[0].replace("\n#", "\n\0#"), page, flags=re.MULTILINE | re.DOTALL
        )
        for _, heading, body in re.findall(r"^(##+) (.+)\n((?:(?!##? ).*\n?)*)", text, re.MULTILINE):
            if wanted and wanted <= set(re.findall(r"[a-z0-9]+", heading.lower())):
                lines = [line for line in body.replace("\0#", "#").strip().splitlines() if not line.startswith("<!--")]
                found.append((topic, heading, lines))
    return sorted(found, key=lambda one: (len(one[1]), one[0]))


def _docs_dir() -> Path:
    from sparkctl.paths import docs_dir

    return docs_dir()


def _list_topics() -> list[str]:
    return sorted(page.stem for page in _docs_dir().glob("*.md") if page.stem != "README")
