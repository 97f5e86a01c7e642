"""``sparkctl diagnose``: explain a log."""

from __future__ import annotations

import os.path
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from sparkctl.cli import stderr, stdout
from sparkctl.cli.options import (
    complete_logged_instances,
    create_context,
    json_document_option,
    node_option,
    select_configured_nodes,
)
from sparkctl.engines import engine_names, load_engine
from sparkctl.errors import ExitCode

if TYPE_CHECKING:
    from sparkctl.commands.diagnose_file import DiagnosisReport


def _complete_log_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        *(CompletionItem(name) for name in complete_logged_instances(ctx, param, incomplete)),
        CompletionItem(incomplete, type="file"),
    ]


@click.command("diagnose", short_help="Read a log and explain why the engine failed.")
@click.argument("log", required=False, metavar="[FILE|-|INSTANCE]", shell_complete=_complete_log_source)
@click.option(
    "--engine",
    type=click.Choice(["auto", *engine_names()]),
    default="auto",
    show_default=True,
    help="The engine that wrote the log; auto detects it.",
)
@node_option(many=True)
@click.option("--causes", is_flag=True, help="List the causes that a verdict can have, and what each means.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show how the log was read: its engine, its errors, what could be the cause, and the choice.",
)
@click.option(
    "--submit",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Store the log in DIR, secrets masked, with what was found in it: for a bug report.",
)
@json_document_option
@click.pass_context
def diagnose_command(
    ctx: click.Context,
    log: str | None,
    engine: str,
    node: tuple[str, ...],
    causes: bool,
    explain: bool,
    submit: Path | None,
    as_json: bool,
) -> int:
    """Read the log of an engine, and explain how far it got and why it stopped there.

    \b
    sparkctl diagnose vllm.log            a file, of any engine, gzipped or not
    docker logs vllm 2>&1 | sparkctl diagnose -
    sparkctl diagnose qwen36 --node spark1    an instance: its container's log, or the saved one

    Prefixes of docker, compose, kubectl and journald are ignored. If the log holds several runs, the last
    one counts. Exit 0 if the log could be read, whatever the verdict is.
    """
    if causes:
        return _list_causes(as_json)
    if log is None and sys.stdin.isatty():
        raise click.UsageError("name a log file, - for stdin, or an instance", ctx)
    if submit is not None and (log is None or node or not _looks_like_path(log)):
        raise click.UsageError("--submit needs a log file; an instance's log: sparkctl logs NAME > FILE", ctx)
    found = _diagnose_source(ctx, log or "-", None if engine == "auto" else engine, node, as_json=as_json)
    _print_diagnosis(found, as_json=as_json, explain=explain)
    if submit is not None:
        _store_log(Path(str(log)), found, submit)
    return int(ExitCode.UNREACHABLE if found.silent else ExitCode.DONE)


def _diagnose_source(
    ctx: click.Context, log: str, engine: str | None, node: tuple[str, ...], *, as_json: bool
) -> DiagnosisReport:
    from sparkctl.commands.diagnose_file import diagnose_bytes

    if log == "-":
        if node:
            raise click.UsageError("--node needs an instance", ctx)
        if sys.stdin.isatty():
            stderr.print_message("paste the log, then Ctrl-D on an empty line")
        from sparkctl.logs.log_file import refuse_endless_stdin

        refuse_endless_stdin(sys.stdin)
        return diagnose_bytes(
            sys.stdin.buffer.raw if hasattr(sys.stdin.buffer, "raw") else sys.stdin.buffer, "stdin", engine
        )
    if not node and _looks_like_path(log):
        from sparkctl.logs.log_file import open_log

        with open_log(Path(log)) as source:
            return diagnose_bytes(source, log, engine)
    from sparkctl.cli import verb_runner
    from sparkctl.commands.diagnose_log import diagnose_instance
    from sparkctl.config import load_config

    context = create_context(may_ask=not as_json)
    nodes = (
        select_configured_nodes(node) if node or load_config(required=False).nodes else []
    )  # saved logs need no config
    return verb_runner.run_async(diagnose_instance(context, log, nodes, engine))


def _looks_like_path(word: str) -> bool:
    """Tell whether the word is a path: it looks like one, or a file of that name exists. Other words may be instances."""
    path = Path(word)
    looks_so = "/" in word or path.suffix in (".log", ".txt", ".gz", ".out", ".err")
    return looks_so or (os.path.lexists(path) and not path.is_dir())


def _store_log(path: Path, found: DiagnosisReport, directory: Path) -> None:
    from sparkctl.commands.diagnose_file import store_masked_log

    log, about = store_masked_log(path, found, directory)
    stderr.print_message(
        f"stored {log} and {about.name}: read them before you pass them on, names and paths are in them"
    )


def _print_diagnosis(found: DiagnosisReport, *, as_json: bool, explain: bool) -> None:
    from sparkctl.views.diagnosis_view import build_diagnosis_json, build_reading_json, format_diagnosis, format_reading
    from sparkctl.views.text.line_wrap import wrap_line

    for where, error in found.silent:
        stderr.print_warning(where, error.message, error.hint)
    if as_json:
        document = build_diagnosis_json(found.diagnosis, found.source, found.instance, found.node)
        if explain and found.diagnosis.reading is not None:
            document["reading"] = build_reading_json(found.diagnosis.reading)
        stdout.print_json(document)
        return
    if found.node is not None:
        stderr.print_message(found.source)
    width = stdout.get_terminal_width()
    lines = format_diagnosis(found.diagnosis, lambda name: load_engine(name).title, found.instance)
    for line in [*lines, *(format_reading(found.diagnosis) if explain else ())]:
        stdout.print_rows(wrap_line(line, width, 10))


def _list_causes(as_json: bool) -> int:
    from sparkctl.model.verdict import CAUSE_MEANINGS
    from sparkctl.views.diagnosis_view import format_causes

    if as_json:
        stdout.print_json(
            {"schema": 1, "causes": [{"cause": str(one), "means": means} for one, means in CAUSE_MEANINGS.items()]}
        )
    else:
        stdout.print_lines(format_causes())
    return 0
