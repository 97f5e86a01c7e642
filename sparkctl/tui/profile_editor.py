"""Opens profiles in the operator's editor and checks them on return; a shipped profile is copied first."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.engines.lint import LintSeverity
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.files import read_regular_file
from sparkctl.profiles.profile_library import ProfileLibrary

if TYPE_CHECKING:
    from sparkctl.profiles.profile_lint import LintDiagnostic, LintResult
    from sparkctl.tui.panel import Panel


_DEFAULT_EDITORS = ("nano", "vi")
_PLUS_LINE_EDITORS = (  # +LINE FILE
    "vi", "vim", "nvim", "view", "gvim", "nano", "pico", "emacs", "emacsclient", "joe", "jed", "kak", "micro", "mg", "ne",
)  # fmt: skip
_COLON_LINE_EDITORS = ("hx", "helix", "subl", "zed")  # FILE:LINE:COLUMN
_GOTO_EDITORS = ("code", "code-insiders", "codium", "cursor", "windsurf")  # --goto FILE:LINE:COLUMN
_WINDOW_EDITORS = (
    *_GOTO_EDITORS,
    "subl",
    "zed",
)  # editors with a window of their own; they return at once without --wait


def find_editor() -> list[str]:
    """Return the editor's argv: ``$VISUAL``, ``$EDITOR`` or an installed default. Raises `InvalidInput` where there is none."""
    for name in ("VISUAL", "EDITOR"):
        try:
            if words := shlex.split(os.environ.get(name, "")):
                return words
        except ValueError as wrong:
            raise InvalidInput(f"${name}: {wrong}", f"export {name}=nano") from wrong
    found = next((path for name in _DEFAULT_EDITORS if (path := shutil.which(name))), None)
    if found is None:
        raise InvalidInput("no editor is known", "export EDITOR=nano")
    return [found]


def build_editor_argv(
    words: Sequence[str], path: Path, line: int | None = None, column: int | None = None
) -> list[str]:
    """Return the argv that opens a file, at a line and column where the editor is known to take them."""
    name = Path(words[0]).name
    wait = ["--wait"] if name in _WINDOW_EDITORS and not {"--wait", "-w"} & set(words) else []
    if line is None or name not in (*_PLUS_LINE_EDITORS, *_COLON_LINE_EDITORS, *_GOTO_EDITORS):
        return [*words, *wait, str(path)]
    if name in _PLUS_LINE_EDITORS:
        return [*words, f"+{line}", str(path)]
    return [*words, *wait, *(["--goto"] if name in _GOTO_EDITORS else []), f"{path}:{line}:{column or 1}"]


async def open_editor(panel: Panel, path: Path, line: int | None = None, column: int | None = None) -> int:
    """Open a file in the editor, at a line if given; return the editor's exit status, negative for a signal.

    Raises `InvalidInput` where there is no editor or it cannot be run.
    """
    status, _ = await panel.run_external_program(
        build_editor_argv(find_editor(), path, line, column), "set $EDITOR to your editor"
    )
    return status


_MAX_TOAST_FINDINGS = 2  # findings in a toast; the profiles screen shows all


async def edit_profile(panel: Panel, name: str, field: str | None = None) -> None:
    """Open a profile in the editor, at its first error if it has one, and show what the check finds afterwards.

    ``field``: where the editor begins in a profile without errors, such as ``args.mem-fraction-static``.
    """
    library = ProfileLibrary()
    try:
        path, copied = await asyncio.to_thread(library.get_or_copy_user_file, name)
        before = read_regular_file(path, 1 << 20)
        errors = (await asyncio.to_thread(_lint_file, library, path)).list_by_level(LintSeverity.ERROR)
        line, column = next(
            ((at.line, at.column) for at in (one.place for one in errors) if at.file == str(path)), (None, None)
        )
        status = 0
        try:
            if line is None:
                line = await asyncio.to_thread(_find_field_line, path, field)
            status = await open_editor(panel, path, line, column)
        finally:
            same = path.exists() and read_regular_file(path, 1 << 20) == before
            if copied and same:
                path.unlink()
        ended = [f"the editor ended with {_format_exit_status(status)}"] if status else []
        if not path.exists() and not copied:
            panel.show_toast("\n".join([*ended, f"{name}: {path} is gone"]), severity="warning")
            return
        checked = await asyncio.to_thread(_lint_file, library, path)
        _show_edit_result(panel, name, path, checked, ended, copied=copied, same=same)
    except (SparkctlError, OSError) as error:
        _show_edit_error(panel, name, error)


async def fix_profile(panel: Panel, name: str) -> None:
    """Apply the fixes of `profiles check --fix` and show them; a shipped profile is copied first."""

    def fix_and_lint() -> tuple[Path, bool, tuple[LintDiagnostic, ...], LintResult]:
        from sparkctl.profiles.profile_edit import apply_lint_fixes

        library = ProfileLibrary()
        path, copied = library.get_or_copy_user_file(name)
        done: tuple[LintDiagnostic, ...] = ()
        try:
            done = apply_lint_fixes(path, _lint_file(library, path).diagnostics)
        finally:
            if copied and not done:
                path.unlink()
        return path, copied, done, _lint_file(library, path)

    try:
        path, copied, done, checked = await asyncio.to_thread(fix_and_lint)
    except (SparkctlError, OSError) as error:
        _show_edit_error(panel, name, error)
    else:
        from sparkctl.views.profiles.lint_view import summarize_lint

        if not done:
            panel.show_toast(f"{name}: nothing here can be fixed safely; e edits it")
            return
        where = [f"your copy now takes precedence over the shipped one: {path}"] if copied else []
        panel.show_toast(
            "\n".join([*(f"fixed: {one.message}" for one in done), f"{name}: {summarize_lint(checked)}", *where])
        )


def _show_edit_error(panel: Panel, name: str, error: SparkctlError | OSError) -> None:
    if isinstance(error, OSError):
        panel.show_toast(f"{error.filename or name}: {error.strerror or error}", severity="error")
    else:
        panel.show_error(error, severity="error")


def _show_edit_result(
    panel: Panel, name: str, path: Path, checked: LintResult, ended: Sequence[str], *, copied: bool, same: bool
) -> None:
    """Show the editor's exit status where it failed, the summary of the check and its worst findings."""
    from sparkctl.views.profiles.lint_view import summarize_lint

    mine = [f"your copy now takes precedence over the shipped one: {path}"] if copied and not same else []
    if same and not checked.list_by_level(LintSeverity.ERROR):
        unchanged = f"{name}: nothing was changed" + (", the shipped one stays" if copied else "")
        panel.show_toast("\n".join([*ended, unchanged]), severity="warning" if ended else "information")
        return
    worst = [*checked.list_by_level(LintSeverity.ERROR), *checked.list_by_level(LintSeverity.WARNING)][
        :_MAX_TOAST_FINDINGS
    ]
    severity = (
        ("warning" if ended else "information")
        if not worst
        else "error"
        if worst[0].level is LintSeverity.ERROR
        else "warning"
    )
    panel.show_toast(
        "\n".join([*ended, f"{name}: {summarize_lint(checked)}", *map(str, worst), *mine]), severity=severity
    )


def _format_exit_status(status: int) -> str:
    return f"exit {status}" if status > 0 else signal.Signals(-status).name


def _lint_file(library: ProfileLibrary, path: Path) -> LintResult:
    """Return the check result of an edited file; an empty one where the file is gone."""
    from sparkctl.profiles import profile_lint

    return profile_lint.lint_profile_file(library, path) if path.exists() else profile_lint.LintResult(path, ())


def _find_field_line(path: Path, field: str | None) -> int | None:
    """Return the line of a field, or of its nearest parent in the file; None where there is none."""
    from sparkctl.profiles.yaml_reader import read_yaml

    try:
        item = read_yaml(path)
    except SparkctlError:
        return None  # the check after the edit reports the error
    line = None
    for name in (field or "").split("."):
        entry = item.entries.get(name)
        if entry is None:
            break
        item, line = entry.item, entry.place.line
    return line
