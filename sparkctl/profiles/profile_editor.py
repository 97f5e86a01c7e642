"""The edit of a profile in the operator's editor, and its safe fixes, for both front ends; a shipped profile is copied first."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from sparkctl.engines.lint import LintSeverity
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.files import read_regular_file
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.profiles.profile_edit import apply_lint_fixes
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import FindTimes, LintDiagnostic, LintResult, find_no_times, lint_profile_file
from sparkctl.profiles.yaml_reader import read_yaml

_MAX_FILE_BYTES = 1 << 20
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


def build_editor_argv(words: Sequence[str], path: Path, line: int | None, column: int | None) -> list[str]:
    """Return the argv that opens a file, at a line and column where the editor is known to take them."""
    name = Path(words[0]).name
    wait = ["--wait"] if name in _WINDOW_EDITORS and not {"--wait", "-w"} & set(words) else []
    if line is None or name not in (*_PLUS_LINE_EDITORS, *_COLON_LINE_EDITORS, *_GOTO_EDITORS):
        return [*words, *wait, str(path)]
    if name in _PLUS_LINE_EDITORS:
        return [*words, f"+{line}", str(path)]
    return [*words, *wait, *(["--goto"] if name in _GOTO_EDITORS else []), f"{path}:{line}:{column or 1}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEdit:
    """A profile while its file is in the editor: run ``argv``, then `end` and `check`.

    Attributes:
        argv: the editor with the file, at its first error, else at the field that was named.
        is_copy: the file is a copy of the shipped profile, made for this edit.
        before: the file's content.
    """

    name: str
    library: ProfileLibrary
    path: Path
    argv: list[str]
    is_copy: bool
    before: bytes

    @classmethod
    def begin(cls, name: str, field: str | None = None) -> ProfileEdit:
        """Return the edit of a profile; ``field``: where it begins without errors, such as ``args.mem-fraction-static``.

        Raises `InvalidInput` where there is no editor, no such profile, or a file that cannot be read; OSError.
        """
        editor, library = find_editor(), ProfileLibrary()
        path, is_copy = library.get_or_copy_user_file(name)
        before = read_regular_file(path, _MAX_FILE_BYTES)
        errors = check_profile_file(library, path).list_by_level(LintSeverity.ERROR)
        places = ((one.place.line, one.place.column) for one in errors if one.place.file == str(path))
        line, column = next(places, (None, None))
        argv = build_editor_argv(editor, path, _find_field_line(path, field) if line is None else line, column)
        return cls(name=name, library=library, path=path, argv=argv, is_copy=is_copy, before=before)

    def end(self) -> bool:
        """Tell whether nothing was changed; an unchanged copy is removed."""
        is_same = self.path.exists() and read_regular_file(self.path, _MAX_FILE_BYTES) == self.before
        if is_same and self.is_copy:
            self.path.unlink()
        return is_same

    def check(self) -> LintResult:
        """Return what the check finds in the edited file."""
        return check_profile_file(self.library, self.path)

    def describe_end(self, status: int, *, is_same: bool) -> list[str]:
        """Return how it ended, in sentences; ``status``: of the editor, negative for a signal; ``is_same``: of `end`."""
        ended = f"exit {status}" if status > 0 else signal.Signals(-status).name if status else ""
        notes = [f"the editor ended with {ended}"] if ended else []
        if is_same:
            notes.append(f"{self.name}: nothing was changed" + ("; the shipped one stays" if self.is_copy else ""))
        elif not self.path.exists():
            notes.append(f"{self.name}: {self.path} is gone")
        elif self.is_copy:
            notes.append(describe_copy(self.path))
        return notes


def describe_copy(path: Path) -> str:
    """Return what a copy of a shipped profile means."""
    return f"your copy now takes precedence over the shipped one: {path}"


def fix_profile_file(
    library: ProfileLibrary, path: Path, version: str | None = None, find_times: FindTimes = find_no_times
) -> tuple[LintResult, tuple[LintDiagnostic, ...]]:
    """Fix in a file what is safe to fix. Return what the check finds then, and what was fixed. Raises as `apply_lint_fixes` does."""
    checked = check_profile_file(library, path, version, find_times)
    if done := apply_lint_fixes(path, checked.diagnostics):
        checked = check_profile_file(library, path, version, find_times)
    return checked, done


def fix_own_profile(name: str) -> tuple[LintResult, tuple[LintDiagnostic, ...], bool]:
    """Return the same for the operator's own file of a profile, and whether that is a copy of the shipped one made for this.

    A copy in which nothing can be fixed is removed. Raises as `apply_lint_fixes` does, and OSError.
    """
    library = ProfileLibrary()
    path, is_copy = library.get_or_copy_user_file(name)
    done: tuple[LintDiagnostic, ...] = ()
    try:
        checked, done = fix_profile_file(library, path)
    finally:
        if is_copy and not done:
            path.unlink()
    return checked, done, is_copy


def check_profile_file(
    library: ProfileLibrary, path: Path, version: str | None = None, find_times: FindTimes = find_no_times
) -> LintResult:
    """Return what the check finds in a file; nothing where it is gone."""
    return lint_profile_file(library, path, version, find_times) if path.exists() else LintResult(path, ())


def _find_field_line(path: Path, field: str | None) -> int | None:
    """Return the line of a field, or of its nearest parent in the file; None where there is none."""
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
