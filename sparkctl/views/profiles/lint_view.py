"""Lint results of profiles, shown like compiler messages: place, message, the source line and a mark under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkctl.engines import load_engine
from sparkctl.engines.engine_flags import CatalogueChoice
from sparkctl.engines.lint import LintFixKind, LintRule, LintSeverity
from sparkctl.files import read_only_profiles_dir, shipped_profiles_dir
from sparkctl.model.finding import Severity
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact
from sparkctl.profiles.profile_lint import LintDiagnostic, LintResult
from sparkctl.profiles.yaml_reader import FileIssue, FilePosition
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_state_symbol,
    make_row,
    measure_text,
    sanitize_span,
    truncate_row,
)


def format_lint(name: str, checked: LintResult) -> list[str]:
    """Return a line for each diagnostic, ``file:line:column: level[kind]: message``, and a summary line."""
    return [*map(str, checked.diagnostics), f"{name}: {summarize_lint(checked)}"]


def summarize_lint(checked: LintResult) -> str:
    """Return the number of errors, warnings and infos, and the version whose flags were used."""
    catalogue = checked.catalogue
    against = (
        ""
        if catalogue is None
        else f" (flags of {load_engine(catalogue.catalogue.engine).title} {catalogue.catalogue.version})"
    )
    counts = [
        f"{len(found)} {level}{'' if len(found) == 1 else 's'}"
        for level in LintSeverity
        if (found := checked.list_by_level(level))
    ]
    verdict = [] if checked.list_by_level(LintSeverity.ERROR) else ["good"]
    return f"{', '.join([*verdict, *counts])}{against}"


def build_lint_json(checked: list[tuple[str, LintResult]], fixed: list[LintDiagnostic]) -> dict[str, object]:
    """Return all diagnostics as JSON. ``faults`` make the profile unusable; they are also in ``findings``."""
    every = [one for _, found in checked for one in found.diagnostics]
    return {
        "schema": 1,
        "faults": [
            {"place": _build_place_json(one), "message": redact(one.message)}
            for one in every
            if one.kind is LintRule.PROFILE
        ],
        "findings": [_build_finding_json(one) for one in every],
        "fixed": [_build_finding_json(one) for one in fixed],
        "checked": [
            {"profile": name, "file": str(found.path), "flags": _build_catalogue_json(found.catalogue)}
            for name, found in checked
        ],
    }


def _build_finding_json(one: LintDiagnostic) -> dict[str, object]:
    return {
        **_build_place_json(one),
        "level": one.level.value,
        "kind": one.kind.value,
        "message": redact(one.message),
        "setting": one.setting,
        "settings": list(one.settings),
        "fixable": one.change is not None,
    }


def _build_place_json(one: LintDiagnostic) -> dict[str, object]:
    return {"file": one.place.file, "line": one.place.line, "column": one.place.column}


def _build_catalogue_json(choice: CatalogueChoice | None) -> dict[str, object] | None:
    if choice is None:
        return None
    catalogue = choice.catalogue
    return {
        "engine": catalogue.engine,
        "version": catalogue.version,
        "asked": choice.version,
        "basis": choice.basis.value,
        "said_by": choice.said_by,
        "origin": catalogue.origin,
    }


LEVEL_STYLES = {
    LintSeverity.ERROR: (Severity.PROBLEM, TextStyle.BAD),
    LintSeverity.WARNING: (Severity.WARNING, TextStyle.ATTENTION),
    LintSeverity.INFO: (Severity.NOTE, TextStyle.LABEL),
}


def render_faults(faults: Sequence[FileIssue], sources: Mapping[FilePosition, str], columns: int) -> list[TextRow]:
    rows: list[TextRow] = []
    for fault in faults:
        rows += _render_diagnostic(fault.place, str(fault), LintSeverity.ERROR, sources, columns)
    return [*rows, ()]


def _render_diagnostic(
    place: FilePosition,
    words: str,
    level: LintSeverity,
    sources: Mapping[FilePosition, str],
    columns: int,
) -> list[TextRow]:
    """Return a diagnostic, whose text ``words`` begin with the place, and the source line below."""
    severity, tone = LEVEL_STYLES[level]
    sign, where = Span(f"{get_state_symbol(severity)} ", tone), sanitize_line(str(place))
    short, message = shorten_path(where), words.removeprefix(f"{where}: ")
    if measure_text(f"{short}: {message}") + 2 <= columns:
        rows = [make_row(sign, sanitize_span(f"{short}: ", TextStyle.LABEL), sanitize_span(message, tone))]
    else:
        rows = [make_row(sign, sanitize_span(_keep_path_end(short, columns - 2), TextStyle.LABEL))]
        rows += wrap_text(f"  {message}", columns, tone, 2)
    return [*rows, *_render_source_line(place, sources.get(place), columns, tone)]


def _render_source_line(place: FilePosition, line: str | None, columns: int, tone: TextStyle) -> list[TextRow]:
    """Return the source line with a mark under the fault."""
    if line is None or place.line is None:
        return []
    bar = "│"
    head = f"  {place.line:>4} {bar} "
    rows = [truncate_row(make_row(Span(head, TextStyle.FRAME), sanitize_span(line, TextStyle.VALUE)), columns)]
    at = measure_text(sanitize_line(line[: (place.column or 1) - 1]))
    if at + len(head) < columns:
        rows.append(make_row(Span(f"  {'':>4} {bar} ", TextStyle.FRAME), Span(" " * at), Span("^", tone)))
    return rows


def shorten_path(path: str) -> str:
    """Return a short path: a shipped profile as its file name, a path at home after ``~``. The demo has a home of its own,
    which the operator's shell does not know: there the path is whole."""
    if (name := path.removeprefix(f"{shipped_profiles_dir()}/")) != path:
        return name
    home = str(Path.home())
    is_at_home = path.startswith(f"{home}/") and read_only_profiles_dir() is None
    return f"~{path[len(home) :]}" if is_at_home else path


def _keep_path_end(words: str, columns: int) -> str:
    """Return the end of a long path, because file and line matter most."""
    return words if measure_text(words) <= columns else f"…{words[-max(1, columns - 1) :]}"


def render_lint_badge(check: LintResult | None) -> TextRow:
    """Return the number of errors and warnings with their symbols; a symbol alone for none, nothing while not known."""
    if check is None:
        return ()
    found = [(level, len(check.list_by_level(level))) for level in (LintSeverity.ERROR, LintSeverity.WARNING)]
    spans = [
        Span(f"{get_state_symbol(LEVEL_STYLES[level][0])}{count}", LEVEL_STYLES[level][1])
        for level, count in found
        if count
    ]
    return tuple(spans) or make_row(Span("✓", TextStyle.LABEL))


def count_fixable(check: LintResult) -> int:
    """Return how many diagnostics `profiles check --fix` can fix: those in the file itself."""
    mine = str(check.path)
    return sum(
        one.change is not None and (one.place.file == mine or one.change.kind is LintFixKind.ADD)
        for one in check.diagnostics
    )


def render_lint_summary(check: LintResult | None) -> TextRow:
    """Return the summary of the check, as in ``profiles check``, and the key that fixes what it can."""
    if check is None:
        return make_row(Span("checking its flags ...", TextStyle.STALE))

    worst = next(
        (level for level in (LintSeverity.ERROR, LintSeverity.WARNING) if check.list_by_level(level)),
        None,
    )
    severity, tone = (Severity.GOOD, TextStyle.GOOD) if worst is None else LEVEL_STYLES[worst]
    words = f"checked: {summarize_lint(check)}"
    spans = [
        Span(f"{get_state_symbol(severity)} ", tone),
        sanitize_span(words, TextStyle.LABEL if tone is TextStyle.GOOD else tone),
    ]
    if count := count_fixable(check):
        spans += [
            Span("   F", TextStyle.KEY),
            Span(" fixes it" if count == 1 else f" fixes {count} of them", TextStyle.LABEL),
        ]
    return tuple(spans)


def render_diagnostics(
    check: LintResult | None, source_lines: Mapping[FilePosition, str], columns: int, levels: Sequence[LintSeverity]
) -> list[TextRow]:
    """Return diagnostics of some levels, the worst first; infos without their source line."""
    rows: list[TextRow] = []
    for level in levels:
        for one in () if check is None else check.list_by_level(level):
            sources = {} if level is LintSeverity.INFO else source_lines
            rows += _render_diagnostic(one.place, str(one), level, sources, columns)
    return rows
