"""What a check of profiles found, as a compiler says it, and as JSON data."""

from __future__ import annotations

from sparkctl.engines import load_engine
from sparkctl.engines.flag_catalogue import CatalogueChoice
from sparkctl.engines.lint.model import LintRule, LintSeverity
from sparkctl.model.secrets import redact
from sparkctl.profiles.profile_lint import Diagnostic, LintResult


def format_lint(name: str, checked: LintResult) -> list[str]:
    """Return a line for each thing that was found, ``file:line:column: level[kind]: message``, and one that sums up."""
    return [*map(str, checked.diagnostics), f"{name}: {summarize_lint(checked)}"]


def summarize_lint(checked: LintResult) -> str:
    """Return how many errors, warnings and infos there are, and the flags of which version decided."""
    held = checked.held
    against = "" if held is None else f" (flags of {load_engine(held.catalogue.engine).title} {held.catalogue.version})"
    counts = [_count(len(found), level) for level in LintSeverity if (found := checked.of(level))]
    verdict = [] if checked.of(LintSeverity.ERROR) else ["good"]
    return f"{', '.join([*verdict, *counts])}{against}"


def _count(number: int, level: LintSeverity) -> str:
    return f"{number} {level}{'' if number == 1 else 's'}"


def build_lint_json(checked: list[tuple[str, LintResult]], fixed: list[Diagnostic]) -> dict[str, object]:
    """Return everything as one document. ``faults`` are what keeps a file from being a profile, also among ``findings``."""
    every = [one for _, found in checked for one in found.diagnostics]
    return {
        "schema": 1,
        "faults": [
            {"place": _place(one), "message": redact(one.message)} for one in every if one.kind is LintRule.PROFILE
        ],
        "findings": [_finding(one) for one in every],
        "fixed": [_finding(one) for one in fixed],
        "checked": [
            {"profile": name, "file": str(found.path), "flags": _describe_catalogue(found.held)}
            for name, found in checked
        ],
    }


def _finding(one: Diagnostic) -> dict[str, object]:
    return {
        **_place(one),
        "level": one.level.value,
        "kind": one.kind.value,
        "message": redact(one.message),
        "setting": one.setting,
        "fixable": one.change is not None,
    }


def _place(one: Diagnostic) -> dict[str, object]:
    return {"file": one.place.file, "line": one.place.line, "column": one.place.column}


def _describe_catalogue(held: CatalogueChoice | None) -> dict[str, object] | None:
    if held is None:
        return None
    catalogue = held.catalogue
    return {
        "engine": catalogue.engine,
        "version": catalogue.version,
        "asked": held.version,
        "basis": held.basis.value,
        "said_by": held.said_by,
        "origin": catalogue.origin,
    }
