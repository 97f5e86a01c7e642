"""The selected profile in full: what the check says, where it would stand, its command. Pure."""

from __future__ import annotations

from sparkctl.engines.lint.model import LintSeverity
from sparkctl.model.finding import Severity
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.profile import Profile
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_duration, format_gib
from sparkctl.profiles.library import ProfileEntry
from sparkctl.views.profiles.fit_signs import (
    estimate_symbol,
    format_symbol_legend,
    render_estimate_detail,
    render_estimate_line,
    render_rank_estimates,
)
from sparkctl.views.profiles.lint_view import render_diagnostics, render_faults, render_lint_summary
from sparkctl.views.profiles.profiles_screen_model import ProfilePreview, ProfilesScreenModel, format_ago
from sparkctl.views.profiles.shelf_order import find_running_instances
from sparkctl.views.profiles.starting import describe_rank_nodes, render_budget_before_start
from sparkctl.views.text.frame_layout import draw_frame
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.scrolled import ScrollPage, scroll_rows
from sparkctl.views.text.state_symbols import state_symbol
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    make_row,
    plain_text,
    row_width,
    sanitized,
    text_width,
    truncate_row,
)

_WIDE_DETAIL = 14  # lines from which on all that is said of memory has room above the command
_SUM_HEAD = [
    make_row(Span("what it takes: the figures on the left add up; · is a part of the one above it", TextStyle.STALE))
]
_NOTE = ("--label dev.sparkctl.", "--label 'dev.sparkctl.")


def render_profile_detail(shelf: ProfilesScreenModel, one: ProfileEntry, columns: int, lines: int) -> ScrollPage:
    """Return the selected one in full, in a frame of exactly ``lines`` rows."""
    summary = one.summary
    whose = "shipped" if summary.shipped else "yours, over the shipped one" if summary.overrides_shipped else "yours"
    title = make_row(sanitized(summary.name, TextStyle.TITLE), Span(f"  {whose}", TextStyle.LABEL))
    inner = max(8, columns - 4)
    body = (
        _render_loaded_profile(shelf, one.profile, inner, lines - 2)
        if one.profile is not None
        else _render_profile_errors(shelf, one, inner)
    )
    page = scroll_rows(body, shelf.further, lines - 2, shelf.ascii_only)
    return ScrollPage(
        draw_frame(title, page.rows, columns, lines, chosen=False, ascii_only=shelf.ascii_only), page.further
    )


def _render_profile_errors(shelf: ProfilesScreenModel, one: ProfileEntry, columns: int) -> list[TextRow]:
    """Return the faults as a compiler shows them, how to get to them, and what of the profile runs all the same."""
    rows = render_faults(one.summary.faults, shelf.sources, columns, shelf.ascii_only)
    rows += [
        make_row(
            Span("e", TextStyle.KEY), Span(" edits it, at the first of them; it is checked on return", TextStyle.LABEL)
        )
    ]
    for each in find_running_instances(one.summary.name, shelf.views):
        words = f"{each.name} runs on {each.node} all the same: what was started goes on as it was"
        rows += [make_row(sanitized(line, TextStyle.LABEL)) for line in wrap_line(sanitize_line(words), columns, 0)]
    return [*rows, *_last_row(one.summary.name, shelf)]


def _last_row(name: str, shelf: ProfilesScreenModel) -> list[TextRow]:
    """Return how the last start of a profile went, in words; nothing where there was none."""
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return []
    label, when = Span("last start ", TextStyle.LABEL), format_ago(one.when, shelf.now)
    if one.failed is not None:
        return [make_row(label, sanitized(f"failed on {one.node}, {when}: {one.failed}", TextStyle.BAD))]
    after = "" if one.seconds is None else f" after {format_duration(one.seconds)}"
    return [make_row(label, sanitized(f"ready on {one.node}{after}, {when}", TextStyle.LABEL))]


def _render_loaded_profile(shelf: ProfilesScreenModel, profile: Profile, columns: int, lines: int) -> list[TextRow]:
    rows: list[TextRow] = []
    later: list[TextRow] = []  # of what memory would be, what comes after the command where there is little room
    if profile.title:
        rows.append(make_row(sanitized(profile.title, TextStyle.VALUE)))
    check, last = render_lint_summary(shelf), _last_row(profile.name, shelf)
    one = (*check, Span(" · ", TextStyle.LABEL), *last[0]) if last else check
    rows += [one] if row_width(one) <= columns else [truncate_row(check, columns), *last]
    rows += render_diagnostics(shelf, columns, (LintSeverity.ERROR, LintSeverity.WARNING))
    rows += _warning_rows(shelf, columns)
    if profile.nodes != 1:
        rows.append(make_row(Span(describe_rank_nodes(profile), TextStyle.ATTENTION)))
    rows.append(_nodes_row(shelf, profile, columns))
    fit = None if shelf.node is None else shelf.fits.get((profile.name, shelf.node))
    is_fitted = (profile.name, shelf.node) in shelf.fits
    if is_fitted and 1 < profile.nodes <= len(shelf.names):
        rows += render_rank_estimates(_rank_estimates(shelf, profile), columns, shelf.ascii_only)
    elif is_fitted:
        rows += render_estimate_line(fit, columns, shelf.ascii_only)
    view = next((view for view in shelf.views if view.name == shelf.node), None)
    if view is not None:
        standing = [
            truncate_row(each, columns)
            for each in render_budget_before_start(profile, view, shelf.ascii_only, columns, fit, is_counting=is_fitted)
        ]
        if is_fitted and lines < _WIDE_DETAIL:
            rows, later = [*rows, *standing[-1:]], standing[:-1]
        else:
            rows += standing
        is_counted = fit is not None and fit.need is not None
        if view.memory is not None and profile.expected_memory is None and not is_counted:
            rows.append(
                make_row(
                    Span("then ", TextStyle.LABEL),
                    Span("not known: the profile has no expected_memory", TextStyle.STALE),
                )
            )
    elif profile.expected_memory is not None:
        rows.append(
            make_row(
                Span("holds ", TextStyle.LABEL),
                Span(f"≈ {format_gib(profile.expected_memory)}", TextStyle.VALUE),
                Span(" est.", TextStyle.UNIT),
            )
        )
    infos = render_diagnostics(shelf, columns, (LintSeverity.INFO,))
    sums = render_estimate_detail(fit, columns)
    command = _command(shelf.preview, columns)
    legend = (
        [] if _has_legend(shelf, profile, columns) else [truncate_row(format_symbol_legend(shelf.ascii_only), columns)]
    )
    blocks = [[*later, *legend], [*_SUM_HEAD, *sums] if sums else [], infos]
    return [*rows, *command, *(each for block in blocks if block for each in ((), *block))]


def _rank_estimates(shelf: ProfilesScreenModel, profile: Profile) -> list[MemoryFit | None]:
    """Return the answers for the Sparks on which its ranks would be: the selected one and the next ones."""
    at = shelf.names.index(shelf.node) if shelf.node in shelf.names else 0
    there = [shelf.names[(at + each) % len(shelf.names)] for each in range(profile.nodes)]
    return [shelf.fits.get((profile.name, name)) for name in there]


def _warning_rows(shelf: ProfilesScreenModel, columns: int) -> list[TextRow]:
    sign = state_symbol(Severity.WARNING, shelf.ascii_only)
    return [
        make_row(sanitized(line, TextStyle.ATTENTION))
        for words in shelf.warnings
        for line in wrap_line(f"{sign} {sanitize_line(words)}", columns, 2)
    ]


def _nodes_row(shelf: ProfilesScreenModel, profile: Profile, columns: int) -> TextRow:
    """Return the Sparks, the selected one in brackets, each with whether it fits there; what the signs mean where there is
    room."""
    if not shelf.names:
        return make_row(Span("no Spark is configured", TextStyle.STALE))
    spans = _candidate_nodes(shelf, profile)
    return (
        (*spans, *format_symbol_legend(shelf.ascii_only))
        if shelf.fits and _has_legend(shelf, profile, columns)
        else spans
    )


def _has_legend(shelf: ProfilesScreenModel, profile: Profile, columns: int) -> bool:
    """Tell whether the row of the Sparks has room for what the signs mean, or there is no sign."""
    return (
        not shelf.fits
        or row_width(_candidate_nodes(shelf, profile)) + row_width(format_symbol_legend(shelf.ascii_only)) <= columns
    )


def _candidate_nodes(shelf: ProfilesScreenModel, profile: Profile) -> TextRow:
    spans: list[Span] = [Span("on   ", TextStyle.LABEL)]
    for name in shelf.names:
        mine = name == shelf.node
        tone = TextStyle.KEY if mine else TextStyle.LABEL
        spans.append(sanitized(f"[ {name} ]" if mine else f"  {name}  ", tone))
        if (profile.name, name) in shelf.fits:
            spans += [Span(" "), estimate_symbol(shelf.fits[profile.name, name], shelf.ascii_only), Span(" ")]
    return tuple(spans)


def _command(preview: ProfilePreview, columns: int) -> list[TextRow]:
    rows: list[TextRow] = []
    if preview.trouble is not None:
        words = preview.trouble + (f"\n{preview.hint}" if preview.hint else "")
        rows += [
            make_row(sanitized(part, TextStyle.ATTENTION))
            for line in words.splitlines()
            for part in wrap_line(sanitize_line(line), columns, 2)
        ]
        rows += [()] if preview.lines else []
    if preview.note is not None:
        rows += [
            make_row(sanitized(part, TextStyle.STALE)) for part in wrap_line(sanitize_line(preview.note), columns, 0)
        ]
    notes = [line for line in preview.lines if line.strip().startswith(_NOTE)]
    for line in preview.lines:
        if line in notes:
            if line == notes[0]:
                words = f"  --label ...   {len(notes)} of them, by which sparkctl knows its own; y copies all"
                rows.append(truncate_row(make_row(Span(words, TextStyle.STALE)), columns))
            continue
        flag, _, rest = sanitize_line(line).strip().partition(" ")
        indent = "" if line.startswith("docker") else "  "
        made = make_row(
            indent,
            Span(flag, TextStyle.ACCENT if flag.startswith("-") else TextStyle.VALUE),
            Span(f" {rest}" if rest else ""),
        )
        rows += _wrapped(made, columns)
    return rows


def _wrapped(made: TextRow, columns: int) -> list[TextRow]:
    """Return a line of a command on as many rows as it takes, cut wherever the row ends: it is not broken between words."""
    if text_width(plain_text(made)) <= columns:
        return [made]
    rows, words, hang = (
        [truncate_row(made, columns, "")],
        plain_text(made)[len(plain_text(truncate_row(made, columns, ""))) :],
        "      ",
    )
    while words:
        piece = truncate_row((Span(words),), max(4, columns - len(hang)), "")
        rows.append(make_row(hang, *piece))
        words = words[max(1, len(plain_text(piece))) :]
    return rows
