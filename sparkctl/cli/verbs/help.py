"""``sparkctl help`` and ``completion``: the help of a verb, a page of the documentation, a manual page, the shell completion."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from sparkctl import __version__
from sparkctl.cli import stdout
from sparkctl.cli.help_formatter import fill_words, fit_example_lines
from sparkctl.files import docs_dir

_ABBREVIATION = re.compile(r"\boom\b")  # as engines and the demo's faults write it


def _complete_subjects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [one for one in (*_list_verbs(ctx), *_list_topics()) if one.startswith(incomplete)]


@click.command("help", short_help="Explain a command or a topic.")
@click.argument("words", nargs=-1, metavar="[COMMAND|CAUSE|FINDING|TOPIC]", shell_complete=_complete_subjects)
@click.option("--man", "as_man", is_flag=True, help="Print the manual page of the command, for man.")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...], as_man: bool) -> int:
    """Explain a command as `sparkctl COMMAND --help` does, the cause of a failed start, a finding, or print a page of the documentation.
    Without words: all commands and topics.

    \b
    sparkctl help up
    sparkctl help profiles import
    sparkctl help cuda-out-of-memory
    sparkctl help memory-fit
    sparkctl help up --man > ~/.local/share/man/man1/sparkctl-up.1
    """
    root = ctx.find_root()
    words = () if words == ("topics",) else words
    if titled := _find_titled_page(words):
        words = (titled, "page")
    if as_man and (found := _find_command(root, words)) is not None:
        stdout.print_lines(format_man_page(found).splitlines())
    elif not words:
        stdout.print_lines([root.get_help(), "", *_fit_terminal([f"Topics: {', '.join(_list_topics())}"])])
    elif words == ("version",):
        stdout.print_line(f"sparkctl {__version__}")
    elif (found := _find_command(root, words)) is not None:
        stdout.print_line(found.get_help())
        if words[0] in _list_topics() and len(words) == 1:
            stdout.print_lines(["", f"The page of the documentation: sparkctl help {words[0]} page"])
    elif len(words) == 1 and (section := _find_section(words[0])):
        stdout.print_lines(_fit_terminal(section))
    elif words[0] in _list_topics() and words[1:] in ((), ("page",)):
        page = (docs_dir() / f"{words[0]}.md").read_text(encoding="utf-8")
        lines = _fit_terminal([line for line in page.splitlines() if not line.startswith("<!--")])
        if stdout.is_terminal():
            click.echo_via_pager("\n".join(lines))
        else:
            stdout.print_lines(lines)
    elif len(words) == 1 and words[0] in (findings := _list_findings()):
        stdout.print_lines(
            _fit_terminal([f"{words[0]}:", *findings[words[0]], "", "All findings: sparkctl help findings"])
        )
    elif (found := _find_command(root, words[:1])) is not None and _takes_words(found, words[1:]):
        stdout.print_line(found.get_help())  # `history show` is a word of `history`
    elif sections := _find_headings(" ".join(words)):
        page, heading, lines = sections[0]
        stdout.print_lines([f"{heading}  (sparkctl help {page})", *_fit_terminal(lines)])
        if len(sections) > 1:
            stdout.print_lines(
                ["", "See also:", *(f"  {more}  (sparkctl help {where})" for where, more, _ in sections[1:8])]
            )
    else:
        from sparkctl.cli.options import VERB_HINTS
        from sparkctl.errors import InvalidInput, find_closest_match
        from sparkctl.model.verdict import FailureCause

        subject = " ".join(words)
        if hint := VERB_HINTS.get(subject):
            raise InvalidInput(f"sparkctl has no command {subject}", hint)
        known = (*_list_verbs(root), *_list_topics(), *FailureCause, *_list_findings())
        near = find_closest_match(_ABBREVIATION.sub("out-of-memory", subject), known, cutoff=0.7)
        near = near or (words[0] if words[0] in known else None)
        meant = f"; did you mean `{near}`?" if near else ""
        raise InvalidInput(f"there is no help about {subject!r}{meant}", f"sparkctl help {near or ''}".rstrip())
    return 0


def _find_command(root: click.Context, words: Sequence[str]) -> click.Context | None:
    """Return a context of the command that the words name; a verb of another tool is taken for ours."""
    from sparkctl.cli.options import VERB_ALIASES, VerbGroup

    context = root
    first = [word for word in VERB_ALIASES.get(words[0], words[:1]) if not word.startswith("-")] if words else []
    for word in (*first, *words[1:]):
        group = context.command
        name = group.find_command_name(word) if isinstance(group, VerbGroup) else word
        below = group.get_command(context, name) if isinstance(group, click.Group) and name is not None else None
        if below is None:
            return None
        context = below.context_class(below, parent=context, info_name=name)
    return context


def _list_verbs(ctx: click.Context) -> list[str]:
    root = ctx.find_root()
    return root.command.list_commands(root) if isinstance(root.command, click.Group) else []


def _find_section(name: str) -> list[str]:
    """Return what the page of causes says of one; nothing for any other word."""
    page = (docs_dir() / "causes.md").read_text(encoding="utf-8")
    _, mark, rest = page.partition(f"\n### {name}\n")
    if not mark:
        return []
    text = re.split(r"\n(?:#|<!--)", rest)[0].strip().replace("**", "")
    return [f"{name}:", *text.splitlines(), "", "All causes: sparkctl help causes"]


def _list_findings() -> dict[str, list[str]]:
    """Return what the page of findings says of each: what it means, and what to do."""
    page = (docs_dir() / "findings.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| *")]
    return {
        name.strip("*"): [meaning, *(["", f"What to do: {remedy}"] if remedy != "—" else [])]
        for name, meaning, remedy in rows
    }


def _takes_words(found: click.Context, words: Sequence[str]) -> bool:
    """Tell whether these words may stand after a verb, as `show` after `history`."""
    usage = " ".join(found.command.collect_usage_pieces(found))
    return not isinstance(found.command, click.Group) and set(words) <= set(re.findall(r"[a-z]+", usage))


def _find_headings(words: str) -> list[tuple[str, str, list[str]]]:
    """Return the sections of all pages whose heading has these words: page, heading and lines; the shortest heading first."""
    wanted = set(re.findall(r"[a-z0-9]+", words.lower()))
    found = []
    for topic in _list_topics():
        page = (docs_dir() / f"{topic}.md").read_text(encoding="utf-8")
        text = re.sub(
            r"^```.*?^```$", lambda block: block[0].replace("\n#", "\n\0#"), page, flags=re.MULTILINE | re.DOTALL
        )
        for _, heading, body in re.findall(r"^(##+) (.+)\n((?:(?!##? ).*\n?)*)", text, re.MULTILINE):
            if wanted and wanted <= set(re.findall(r"[a-z0-9]+", heading.lower())):
                lines = [line for line in body.replace("\0#", "#").strip().splitlines() if not line.startswith("<!--")]
                found.append((topic, heading, lines))
    return sorted(found, key=lambda one: (len(one[1]), one[0]))


def _fit_terminal(lines: Sequence[str]) -> list[str]:
    """Return lines of a page (Markdown) as text that fits the terminal, its headings bold; in a pipe as they are."""
    from sparkctl.views.text.styled_text import Span, TextStyle

    if (columns := stdout.terminal_columns(sys.stdout)) is None:
        return list(lines)
    headings = {_drop_marks(line.lstrip("# ")) for line in lines if line.startswith("#")}
    found = format_page(lines, columns)
    return [stdout.format_row((Span(one, TextStyle.STRONG),), sys.stdout) if one in headings else one for one in found]


def format_page(lines: Sequence[str], columns: int) -> list[str]:
    """Return a page of the documentation as text no wider than ``columns``, as far as its words allow: paragraphs are filled
    anew, examples stay, a table that is too wide becomes one cell below the other. Code keeps its marks; pictures are left out."""
    found: list[str] = []
    for kind, block in _split_blocks(lines):
        if kind == "```sh":
            found += (f"    {line}" for line in fit_example_lines(block, columns - 4))
        elif kind.startswith("```"):
            found += (f"    {line}" for line in block)
        elif kind == "|":
            found += _format_table(block, columns)
        else:
            mark = match[0] if (match := _ITEM.match(block[0])) else ""
            text = _drop_marks(" ".join([block[0][len(mark) :], *block[1:]]))
            rows = _fill_text(text.lstrip("# ") if text.startswith("#") else text, columns, mark, " " * len(mark))
            found += rows or ([""] if found and found[-1] else [])  # no second empty line where a picture was
    return found


def _fill_text(text: str, columns: int, first: str, later: str) -> list[str]:
    """Return rows of whole words, of which a quoted command is one: ``first`` begins the first row, ``later`` the others."""
    rows = fill_words(_WORD.findall(text), columns - len(later))
    return [f"{later if number else first}{row}" for number, row in enumerate(rows)]


_WORD = re.compile(r"[^\s`]*(?:`[^`]+`[^\s`]*)+|\S+")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) +")  # the mark of a list item


def _split_blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a page: the lines of an example (its kind is its fence, ``\x60\x60\x60sh``) or of a table (``|``); those
    of a paragraph, an item or a heading, or one empty line ("")."""
    kind, block = "", list[str]()
    for line in lines:
        if line.startswith("```"):
            if block:
                yield kind, block
            kind, block = "" if kind.startswith("```") else line, []
            continue
        if not kind.startswith("```"):
            now = "|" if line.startswith("|") else ""
            begins = not now and (not line or line.startswith("#") or _ITEM.match(line) is not None)
            if block and (now != kind or begins or block[0] == "" or block[0].startswith("#")):
                yield kind, block
                block = []
            kind = now
        block.append(line)
    if block:
        yield kind, block


def _format_table(rows: Sequence[str], columns: int) -> list[str]:
    """Return a table in columns; where it is too wide, each row's first cell with the others below it."""
    from sparkctl.views.text.styled_text import measure_text, pad_text

    cells = [[_drop_marks(cell).strip() for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]] for row in rows]
    head, body = cells[0], cells[2:]
    widths = [max(measure_text(row[at]) for row in (head, *body) if at < len(row)) for at in range(len(head))]
    if sum(widths) + 2 * len(widths) <= columns:
        return [
            "  ".join(pad_text(cell, wide) for cell, wide in zip(row, widths, strict=False)).rstrip()
            for row in (head, *body)
        ]
    found: list[str] = []
    for row in body:
        found += _fill_text(row[0], columns, "", "    ")
        for name, cell in zip(head[1:], row[1:], strict=False):
            label = f"{name}: " if name and len(head) > 2 else ""
            found += _fill_text(f"{label}{cell}", columns, "    ", "      ") if cell else []
    return found


def _drop_marks(text: str) -> str:
    """Return a text without the marks of Markdown; code keeps its own, a link its words; no pictures."""
    text = re.sub(r"!\[[^][]*\]\([^()]*\)", "", text)
    return re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", text).replace("**", "").replace("\\|", "|")


def _find_titled_page(words: Sequence[str]) -> str | None:
    """Return the page whose title has just these words and differs from its name, as `quick-start`, None if there is none."""
    wanted = re.findall(r"[a-z0-9]+", " ".join(words).lower())
    topics = _list_topics() if wanted else []
    for topic in () if words and words[0] in topics else topics:
        with (docs_dir() / f"{topic}.md").open(encoding="utf-8") as page:
            if re.findall(r"[a-z0-9]+", page.readline().lower()) == wanted:
                return topic
    return None


def _list_topics() -> list[str]:
    return sorted(page.stem for page in docs_dir().glob("*.md") if page.stem != "README")


@click.command("completion", short_help="Print the shell completion for bash, zsh or fish.")
@click.argument("shell", required=False, type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str | None) -> int:
    """Print the completion script. It completes commands, options, nodes, profiles, and the instances that `status` saw last.

    \b
    eval "$(sparkctl completion bash)"          in ~/.bashrc
    eval "$(sparkctl completion zsh)"           in ~/.zshrc
    sparkctl completion fish > ~/.config/fish/completions/sparkctl.fish
    """
    if shell is None:
        raise click.UsageError("for which shell? bash, zsh or fish", ctx)
    from click.shell_completion import get_completion_class

    from sparkctl.cli.main import sparkctl_command

    kind = get_completion_class(shell)
    assert kind is not None
    stdout.print_line(kind(sparkctl_command, {}, "sparkctl", "_SPARKCTL_COMPLETE").source())
    return 0


def format_man_page(context: click.Context) -> str:
    """Return the manual page of a command as roff."""
    command, name = context.command, context.command_path.replace(" ", "-")
    about = command.short_help or (command.help or "").split("\n\n")[0]
    synopsis = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [
        f'.TH "{name.upper()}" "1" "" "sparkctl" "sparkctl"',
        ".SH NAME",
        rf"{_escape(name)} \- {_escape(' '.join(about.split()))}",
        ".SH SYNOPSIS",
        rf"\fB{_escape(synopsis)}\fR",
        ".SH DESCRIPTION",
        *_format_text(command.help or ""),
    ]
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
