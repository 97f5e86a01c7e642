"""Running one command line: the panel, or click's commands; errors become messages and exit codes. Imports little."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, NoReturn

from sparkctl.cli import stderr, stdout
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.text.sanitize import sanitize_line

if TYPE_CHECKING:
    import click

    from sparkctl.cli.command_line_parser import CommandLineParser

_INTERNAL_ERROR_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_BROKEN_PIPE_EXIT_CODE = 141  # what a shell makes of SIGPIPE


def run_and_exit() -> NoReturn:
    """Run the command line and exit with its exit code."""
    os.environ.setdefault("PYTHONUTF8", "1")
    stdout.wrap_streams()
    try:
        code = invoke_command_line(sys.argv[1:])
    except Exception as defect:  # the last resort: whatever arrives here is a defect in sparkctl
        if os.environ.get("SPARKCTL_DEBUG"):
            raise
        detail = f"{type(defect).__name__}: {defect}"
        stderr.print_error(
            f"this is a bug in sparkctl, not in your Spark: {detail}", "SPARKCTL_DEBUG=1 shows where; please report it"
        )
        code = _INTERNAL_ERROR_EXIT_CODE
    stderr.flush_stderr()
    # Everything is written and closed. Tearing down a thousand modules would take a tenth of a short verb's time.
    os._exit(code)


def invoke_command_line(arguments: list[str]) -> int:
    """Run one command line and return its exit code. ``demo`` runs its verb with it, too."""
    try:
        try:
            code = _run_words(arguments)
        except SparkctlError as error:
            if isinstance(error, stdout.StdoutWriteFailed):
                raise
            code = _report_error(
                arguments, error.message, error.hint, int(error.exit_code), getattr(error, "node", None)
            )
        except OSError as error:
            if error.errno not in _DISK_FULL_ERRNOS:
                raise
            import tempfile

            place = f" ({sanitize_line(str(error.filename))})" if error.filename else ""
            hint = f"free some space (df -h); temporary files are in {tempfile.gettempdir()}, set TMPDIR to use another directory"
            code = _report_error(arguments, f"a disk of this machine is full{place}", hint, int(ExitCode.USAGE))
        stdout.flush_stdout()
        return code
    except stdout.StdoutClosed:
        stdout.discard_buffer(sys.stdout)  # like any other filter, without a message
        return _BROKEN_PIPE_EXIT_CODE
    except stdout.StdoutWriteFailed as error:
        stdout.discard_buffer(sys.stdout)
        stderr.print_error(error.message, error.hint)
        return int(error.exit_code)


def load_commands() -> CommandLineParser:
    """Return what reads the panel's command line."""
    from sparkctl.cli.command_line_parser import CommandLineParser
    from sparkctl.cli.main import sparkctl_command

    return CommandLineParser(sparkctl_command)


def _run_words(arguments: list[str]) -> int:
    """Open the panel where there are no words, without click: that would take a twentieth of the first picture's time."""
    if not arguments:
        from sparkctl.cli.panel_launcher import can_open_panel, open_panel

        if can_open_panel():
            try:
                return open_panel(load_commands)
            except KeyboardInterrupt:
                return _report_error([], "interrupted", None, int(ExitCode.INTERRUPTED))
    return _invoke_click(arguments)


def _invoke_click(arguments: list[str]) -> int:
    import click

    from sparkctl.cli.main import sparkctl_command

    try:
        result = sparkctl_command.main(arguments, prog_name="sparkctl", standalone_mode=False)
        return int(result) if isinstance(result, int) else int(ExitCode.DONE)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as help_:
        stdout.print_line(help_.format_message())
        return int(ExitCode.USAGE)
    except click.ClickException as wrong:
        more = stderr.print_usage_error(wrong, suggest_usage(wrong, arguments))
        _print_json_result(arguments, wrong.format_message(), more, int(ExitCode.USAGE))
        return int(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        from sparkctl.cli import verb_runner

        message = "interrupted" if verb_runner.has_begun() else "interrupted before anything was done"
        return _report_error(arguments, message, None, int(ExitCode.INTERRUPTED))


def suggest_usage(wrong: click.ClickException, arguments: list[str]) -> str | None:
    """Return the command line that is meant where a node stands among the names, as in `up qwen36 spark1`, or where an option
    or a verb is another tool's; None for all else."""
    import click

    from sparkctl.cli.options import COPY_HINT, OPTION_HINTS, is_configured_node

    ctx = getattr(wrong, "ctx", None)
    if isinstance(wrong, click.NoSuchOption) and ctx is not None:
        return OPTION_HINTS.get((ctx.command.name, wrong.option_name))
    if isinstance(wrong, click.MissingParameter) and arguments[0] in ("cp", "copy"):
        return COPY_HINT
    if (
        ctx is None
        or not any("--node" in param.opts for param in ctx.command.params)
        or type(wrong) is not click.UsageError
    ):
        return None
    for at, word in enumerate(arguments):
        if at and not arguments[at - 1].startswith("-") and is_configured_node(word):
            words = [*arguments[:at], *arguments[at + 1 :], "--node", word]
            return f"{word} is a node: {shlex.join(['sparkctl', *words])}"
    return None


def _report_error(arguments: list[str], message: str, hint: str | None, code: int, node: str | None = None) -> int:
    if hint is not None and hint.startswith("--node ") and "--" not in arguments:  # the whole command can be pasted
        hint = "\n".join(shlex.join(["sparkctl", *arguments, *line.split()]) for line in hint.splitlines())
    stderr.print_error(message, hint)
    _print_json_result(arguments, message, hint, code, node)
    return code


def find_document_format(arguments: list[str]) -> str | None:
    """Return ``json`` or ``yaml``, which a command line asks for even if it could not be parsed; None for text."""
    if "--" in arguments:  # what follows is the command of `exec`
        arguments = arguments[: arguments.index("--")]
    named = re.findall(r"(?<!\S)(?:-o ?|--(?:output|format)[= ])(json|yaml)(?!\S)", " ".join(arguments))
    return named[-1] if named else "json" if "--json" in arguments else None


def _print_json_result(
    arguments: list[str], message: str, hint: str | None, code: int, node: str | None = None
) -> None:
    """Print the final JSON line that scripts wait for, even if the verb never began."""
    wanted = find_document_format(arguments)
    if wanted is None:
        return
    import time

    from sparkctl.model.events import CommandEnded, Outcome
    from sparkctl.model.json_codec import encode_event
    from sparkctl.model.node import NodeName

    outcomes = {int(ExitCode.UNREACHABLE): Outcome.UNREACHABLE, int(ExitCode.INTERRUPTED): Outcome.INTERRUPTED}
    outcome = outcomes.get(code, Outcome.REFUSED)
    where = NodeName(node) if node else None
    stdout.print_json(
        encode_event(
            CommandEnded(
                ts=time.time(), outcome=outcome, exit_code=code, seconds=0.0, node=where, message=message, hint=hint
            )
        ),
        as_yaml=wanted == "yaml",
    )
