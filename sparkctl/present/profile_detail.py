"""The selected profile in full: what the check says, where it would stand, its command. Pure."""

from __future__ import annotations

from sparkctl.core.profiles import ProfileEntry
from sparkctl.model.finding import Severity
from sparkctl.model.fit import Fit
from sparkctl.model.lint import Level
from sparkctl.model.profile import Profile
from sparkctl.model.text import clean
from sparkctl.model.units import gib, spoken
from sparkctl.present.check_rows import check_row, check_rows, fault_rows
from sparkctl.present.fit_signs import fit_legend, fit_line, fit_sign, fit_sum, share_lines
from sparkctl.present.fold import fold
from sparkctl.present.frame import framed
from sparkctl.present.scrolled import Page, scrolled
from sparkctl.present.shelf import Preview, Shelf, ago
from sparkctl.present.shelf_order import running_of
from sparkctl.present.spans import Row, Span, Tone, cells, cut, row, said, text, width
from sparkctl.present.starting import for_several, standing_rows
from sparkctl.present.symbols import symbol

_ROOMY = 14  # lines from which on all that is said of memory has room above the command
_SUM_HEAD = [row(Span("what it takes: the figures on the left add up; · is a part of the one above it", Tone.STALE))]
_NOTE = ("--label dev.sparkctl.", "--label 'dev.sparkctl.")


def detail(shelf: Shelf, one: ProfileEntry, columns: int, lines: int) -> Page:
    """Return the selected one in full, in a frame of exactly ``lines`` rows."""
    summary = one.summary
    whose = "shipped" if summary.shipped else "yours, over the shipped one" if summary.overrides_shipped else "yours"
    title = row(said(summary.name, Tone.TITLE), Span(f"  {whose}", Tone.LABEL))
    inner = max(8, columns - 4)
    body = _whole(shelf, one.profile, inner, lines - 2) if one.profile is not None else _wrong(shelf, one, inner)
    page = scrolled(body, shelf.further, lines - 2, shelf.ascii_only)
    return Page(framed(title, page.rows, columns, lines, chosen=False, ascii_only=shelf.ascii_only), page.further)


def _wrong(shelf: Shelf, one: ProfileEntry, columns: int) -> list[Row]:
    """Return the faults as a compiler shows them, how to get to them, and what of the profile runs all the same."""
    rows = fault_rows(one.summary.faults, shelf.sources, columns, shelf.ascii_only)
    rows += [row(Span("e", Tone.KEY), Span(" edits it, at the first of them; it is checked on return", Tone.LABEL))]
    for each in running_of(one.summary.name, shelf.views):
        words = f"{each.name} runs on {each.node} all the same: what was started goes on as it was"
        rows += [row(said(line, Tone.LABEL)) for line in fold(clean(words), columns, 0)]
    return [*rows, *_last_row(one.summary.name, shelf)]


def _last_row(name: str, shelf: Shelf) -> list[Row]:
    """Return how the last start of a profile went, in words; nothing where there was none."""
    one = next((each for each in shelf.last if each.profile == name), None)
    if one is None:
        return []
    label, when = Span("last start ", Tone.LABEL), ago(one.when, shelf.now)
    if one.failed is not None:
        return [row(label, said(f"failed on {one.node}, {when}: {one.failed}", Tone.BAD))]
    after = "" if one.seconds is None else f" after {spoken(one.seconds)}"
    return [row(label, said(f"ready on {one.node}{after}, {when}", Tone.LABEL))]


def _whole(shelf: Shelf, profile: Profile, columns: int, lines: int) -> list[Row]:
    rows: list[Row] = []
    later: list[Row] = []  # of what memory would be, what comes after the command where there is little room
    if profile.title:
        rows.append(row(said(profile.title, Tone.VALUE)))
    check, last = check_row(shelf), _last_row(profile.name, shelf)
    one = (*check, Span(" · ", Tone.LABEL), *last[0]) if last else check
    rows += [one] if width(one) <= columns else [cut(check, columns), *last]
    rows += check_rows(shelf, columns, (Level.ERROR, Level.WARNING))
    rows += _warning_rows(shelf, columns)
    if profile.nodes != 1:
        rows.append(row(Span(for_several(profile), Tone.ATTENTION)))
    rows.append(_nodes_row(shelf, profile, columns))
    fit = None if shelf.node is None else shelf.fits.get((profile.name, shelf.node))
    is_fitted = (profile.name, shelf.node) in shelf.fits
    if is_fitted and 1 < profile.nodes <= len(shelf.names):
        rows += share_lines(_shares(shelf, profile), columns, shelf.ascii_only)
    elif is_fitted:
        rows += fit_line(fit, columns, shelf.ascii_only)
    view = next((view for view in shelf.views if view.name == shelf.node), None)
    if view is not None:
        standing = [
            cut(each, columns)
            for each in standing_rows(profile, view, shelf.ascii_only, columns, fit, is_counting=is_fitted)
        ]
        if is_fitted and lines < _ROOMY:
            rows, later = [*rows, *standing[-1:]], standing[:-1]
        else:
            rows += standing
        is_counted = fit is not None and fit.need is not None
        if view.memory is not None and profile.expected_memory is None and not is_counted:
            rows.append(
                row(Span("then ", Tone.LABEL), Span("not known: the profile has no expected_memory", Tone.STALE))
            )
    elif profile.expected_memory is not None:
        rows.append(
            row(
                Span("holds ", Tone.LABEL),
                Span(f"≈ {gib(profile.expected_memory)}", Tone.VALUE),
                Span(" est.", Tone.UNIT),
            )
        )
    infos = check_rows(shelf, columns, (Level.INFO,))
    sums = fit_sum(fit, columns)
    command = _command(shelf.preview, columns)
    legend = [] if _has_legend(shelf, profile, columns) else [cut(fit_legend(shelf.ascii_only), columns)]
    blocks = [[*later, *legend], [*_SUM_HEAD, *sums] if sums else [], infos]
    return [*rows, *command, *(each for block in blocks if block for each in ((), *block))]


def _shares(shelf: Shelf, profile: Profile) -> list[Fit | None]:
    """Return the answers for the Sparks on which its ranks would be: the selected one and the next ones."""
    at = shelf.names.index(shelf.node) if shelf.node in shelf.names else 0
    there = [shelf.names[(at + each) % len(shelf.names)] for each in range(profile.nodes)]
    return [shelf.fits.get((profile.name, name)) for name in there]


def _warning_rows(shelf: Shelf, columns: int) -> list[Row]:
    sign = symbol(Severity.WARNING, shelf.ascii_only)
    return [
        row(said(line, Tone.ATTENTION))
        for words in shelf.warnings
        for line in fold(f"{sign} {clean(words)}", columns, 2)
    ]


def _nodes_row(shelf: Shelf, profile: Profile, columns: int) -> Row:
    """Return the Sparks, the selected one in brackets, each with whether it fits there; what the signs mean where there is
    room."""
    if not shelf.names:
        return row(Span("no Spark is configured", Tone.STALE))
    spans = _sparks(shelf, profile)
    return (*spans, *fit_legend(shelf.ascii_only)) if shelf.fits and _has_legend(shelf, profile, columns) else spans


def _has_legend(shelf: Shelf, profile: Profile, columns: int) -> bool:
    """Tell whether the row of the Sparks has room for what the signs mean, or there is no sign."""
    return not shelf.fits or width(_sparks(shelf, profile)) + width(fit_legend(shelf.ascii_only)) <= columns


def _sparks(shelf: Shelf, profile: Profile) -> Row:
    spans: list[Span] = [Span("on   ", Tone.LABEL)]
    for name in shelf.names:
        mine = name == shelf.node
        tone = Tone.KEY if mine else Tone.LABEL
        spans.append(said(f"[ {name} ]" if mine else f"  {name}  ", tone))
        if (profile.name, name) in shelf.fits:
            spans += [Span(" "), fit_sign(shelf.fits[profile.name, name], shelf.ascii_only), Span(" ")]
    return tuple(spans)


def _command(preview: Preview, columns: int) -> list[Row]:
    rows: list[Row] = []
    if preview.trouble is not None:
        words = preview.trouble + (f"\n{preview.hint}" if preview.hint else "")
        rows += [
            row(said(part, Tone.ATTENTION)) for line in words.splitlines() for part in fold(clean(line), columns, 2)
        ]
        rows += [()] if preview.lines else []
    if preview.note is not None:
        rows += [row(said(part, Tone.STALE)) for part in fold(clean(preview.note), columns, 0)]
    notes = [line for line in preview.lines if line.strip().startswith(_NOTE)]
    for line in preview.lines:
        if line in notes:
            if line == notes[0]:
                words = f"  --label ...   {len(notes)} of them, by which sparkctl knows its own; y copies all"
                rows.append(cut(row(Span(words, Tone.STALE)), columns))
            continue
        flag, _, rest = clean(line).strip().partition(" ")
        indent = "" if line.startswith("docker") else "  "
        made = row(
            indent, Span(flag, Tone.ACCENT if flag.startswith("-") else Tone.VALUE), Span(f" {rest}" if rest else "")
        )
        rows += _wrapped(made, columns)
    return rows


def _wrapped(made: Row, columns: int) -> list[Row]:
    """Return a line of a command on as many rows as it takes, cut wherever the row ends: it is not broken between words."""
    if cells(text(made)) <= columns:
        return [made]
    rows, words, hang = [cut(made, columns, "")], text(made)[len(text(cut(made, columns, ""))) :], "      "
    while words:
        piece = cut((Span(words),), max(4, columns - len(hang)), "")
        rows.append(row(hang, *piece))
        words = words[max(1, len(text(piece))) :]
    return rows
