"""Profiles as text and JSON: the list, one profile in full, and the report of an import."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparkctl import engines
from sparkctl.errors import SparkctlError
from sparkctl.model.finding import Severity
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.launch_plan import PhaseTimeouts
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, Profile
from sparkctl.model.reference import (
    Reference,
    ReferenceFigure,
    find_cold_rate,
    find_context,
    find_rate_of_any_task,
    find_ready_seconds,
    list_acceptance_words,
    list_source_names,
    select_comparable,
)
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.text.secrets import MASK, is_secret_name, redact, redact_word, redact_words
from sparkctl.model.text.units import format_duration, format_gib
from sparkctl.profiles.importers.profile_draft import ImportReport, ImportResult, KeyOutcome, KeyRecord
from sparkctl.profiles.redaction import find_profile_secrets, redact_value
from sparkctl.views.text.line_wrap import align_cells, wrap_cells, wrap_line, wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_state_symbol,
    make_row,
    measure_text,
)

if TYPE_CHECKING:
    from sparkctl.commands.import_profile import ImportedProfile
    from sparkctl.profiles.profile_library import ProfileSummary
    from sparkctl.profiles.profile_lint import StartWarning

_MIN_TITLE_COLUMNS = 24  # of a title beside what stands before it
_LABEL_INDENT = 12  # below the value of a labelled line


def format_profile_list(summaries: Sequence[ProfileSummary], width: int | None) -> list[TextRow]:
    """Return a head and a row per profile: name, engine, origin and title; a broken one shows how to check it.

    In a terminal of ``width`` columns a long title goes on in its column, or below the name where that is too narrow.
    """
    if not summaries:
        return [(Span("no profiles"),)]
    rows = [(sanitize_line(s.name), s.engine or "?", _format_origin(s), _describe_summary(s)) for s in summaries]
    head, *lines = align_cells([("NAME", "ENGINE", "FROM", "TITLE"), *rows])
    styles = [TextStyle.BAD if one.faults else TextStyle.STRONG for one in summaries]
    before = measure_text("  ".join((*head[:3], "")))
    is_below = width is not None and width - before < _MIN_TITLE_COLUMNS
    indent = 4 if is_below else before
    found: list[TextRow] = [(Span("  ".join(head[:3] if is_below else head).rstrip(), TextStyle.LABEL),)]
    for style, (name, engine, origin, title) in zip(styles, lines, strict=True):
        row = (
            Span(name, style),
            Span("  ".join(("", engine, ""))),
            Span(origin.rstrip() if is_below else f"{origin}  ", TextStyle.LABEL),
        )
        first, *rest = wrap_line(title, None if width is None else width - indent, 0)
        found.append(row if is_below else (*row, Span(first)))
        found += [(Span(" " * indent + line),) for line in ([first, *rest] if is_below else rest)]
    return found


def _format_origin(summary: ProfileSummary) -> str:
    if summary.shipped:
        return "shipped"
    return "yours, replaces shipped" if summary.overrides_shipped else "yours"


def _describe_summary(summary: ProfileSummary) -> str:
    if summary.faults:
        return f"broken: sparkctl profiles check {shlex.quote(sanitize_line(summary.name))}"
    return sanitize_line(summary.title or "")


def render_profile(profile: Profile, width: int | None = None) -> list[TextRow]:
    """Return the whole profile as labelled rows, wrapped to ``width`` columns if given; secrets are masked."""
    rows: list[tuple[str, object]] = [
        ("title", profile.title),
        ("from", f"{profile.origin} ({'shipped' if profile.shipped else 'yours'})"),
        ("engine", profile.engine),
        ("image", profile.image),
        ("build", profile.build),
        ("needs", ", ".join(profile.needs) or None),
        ("probe", profile.start.probe or engines.load_engine(profile.engine).defaults.probe),
        ("model", profile.model.path),
        ("served as", profile.model.served_name),
        ("weights", None if profile.model.weights is None else format_gib(profile.model.weights)),
        ("nodes", profile.nodes),
        ("port", profile.port),
        ("container", profile.container.name),
        ("expected", None if profile.expected_memory is None else format_gib(profile.expected_memory)),
        ("stop grace", format_duration(profile.stop_grace)),
        ("hash", profile.digest),
        ("source", profile.source),
    ]
    own = find_profile_secrets(profile)
    rows += [
        (f"extra {key}", MASK if is_secret_name(key) else redact_word(kept.text, own)) for key, kept in profile.extra
    ]
    rows += [("mount", mount) for mount in profile.mounts]
    rows += [("env", f"{name}={redact_value(value, own, secret=is_secret_name(name))}") for name, value in profile.env]
    shown = ((key, _mask_argument(key, value, own)) for key, value in profile.args)
    rows += [("arg", f"{key}: {str(value).lower() if isinstance(value, bool) else value}") for key, value in shown]
    lines = [
        sanitize_line(redact(f"{label:10}  {value}", own))
        for label, value in [("name", profile.name), *rows]
        if value is not None
    ]
    if profile.start.timeouts != PhaseTimeouts():
        limits = profile.start.timeouts
        lines.append(
            f"{'timeouts':10}  loading {format_duration(limits.loading)}, warming up {format_duration(limits.warming)}"
        )
    found: list[TextRow] = [
        (Span(row[:_LABEL_INDENT], TextStyle.LABEL), Span(row[_LABEL_INDENT:], TextStyle.STRONG if not at else TextStyle.PLAIN))
        for at, line in enumerate(lines)
        for row in wrap_line(line, width, _LABEL_INDENT)
    ]  # fmt: skip
    for reference in profile.reference:
        head, *lines = (sanitize_line(redact(line, own)) for line in _format_reference(reference))
        found += [(), *((Span(row, TextStyle.STRONG),) for row in _wrap_reference_row(head, width))]
        found += [(Span(row),) for line in lines for row in _wrap_reference_row(line, width)]
    if profile.notes:
        notes = [sanitize_line(redact(line, own)) for line in profile.notes.strip().splitlines()]
        folded = notes if width is None else (row for one in join_lines(notes) for row in wrap_line(one, width, 0))
        found += [(), *((Span(row),) for row in folded)]
    return found


def _wrap_reference_row(line: str, width: int | None) -> list[str]:
    """Return a row of a reference; where it is too wide its cells go on below the first."""
    if width is None or measure_text(line) <= width:
        return [line]
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    return wrap_cells("  ", cells, width, "  ") if len(cells) > 1 else wrap_line(line, width, 4)


def join_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield each paragraph of a text as one line, and an empty one between; an indented line stays by itself."""
    words: list[str] = []
    for line in [*lines, ""]:
        if line.strip() and not line.startswith((" ", "\t", "- ", "* ")):
            words.append(line.strip())
            continue
        if words:
            yield " ".join(words)
            words = []
        yield line.rstrip()


def summarize_reference(references: Sequence[Reference]) -> str | None:
    """Return ``12.7 tok/s for one request, 43.1 for 8, 1.65–1.85 per step; ready after 90 s; up to 8,192 tokens
    of context · example.org``: what others measured with these settings, the rates in a short context. None if they
    measured nothing of this."""
    comparable, ready = select_comparable(references), find_ready_seconds(references)
    rates = () if comparable is None else tuple(comparable.rates_by_concurrency.items())
    words = [
        f"{rate.as_text()}{'' if at else ' tok/s'} for {_count_requests(count, short=at > 0)}"
        for at, (count, rate) in enumerate(rates)
    ]
    if not rates and (alone := find_rate_of_any_task(references)) is not None:
        words.append(f"{alone.as_text()} tok/s for one request, by its task")
    if comparable is not None:
        words += list_acceptance_words(comparable.accept_length, comparable.accept_rate)
    after = [] if ready is None else [f"ready after {format_duration(ready)}"]
    if (cold := find_cold_rate(references)) is not None:
        after.append(f"first request {cold.as_text()} tok/s")
    if (room := find_context(references)) is not None:
        after.append(f"up to {room:,} tokens of context")
    text = "; ".join([*([", ".join(words)] if words else []), *after])
    return f"{text} · {', '.join(list_source_names(references))}" if text else None


def _count_requests(count: int, *, short: bool = False) -> str:
    return "one request" if count == 1 else f"{count}" if short else f"{count} requests"


def _format_reference(one: Reference) -> list[str]:
    """Return what one document measured: its set-up, then a line for each figure."""
    lines = [f"measured by {one.source}"]
    lines += [f"  set-up: {one.setup}"] if one.setup else []
    lines += [f"  not compared with yours: {one.differs}"] if one.differs else []
    times = (("ready after", one.ready_cold, "cold"), ("ready after", one.ready_warm, "warm"))
    parts = [f"{name} {format_duration(seconds)} ({state})" for name, seconds, state in times if seconds is not None]
    parts += [] if one.generation_cold is None else [f"first request {one.generation_cold.as_text()} tok/s (cold)"]
    parts += [] if one.context is None else [f"up to {one.context:,} tokens of context"]
    lines += [f"  {', '.join(parts)}"] if parts else []
    timed = [figure for figure in one.figures if figure.concurrency is not None]
    rows = [_list_figure_cells(figure) for figure in timed]
    used = [at for at in range(len(rows[0]) if rows else 0) if any(row[at] for row in rows)]
    table = align_cells([tuple(row[at] for at in used) for row in rows]) if used else []
    lines += (f"  {'  '.join(cells)}".rstrip() for cells in table)
    rest = [_list_figure_cells(figure) for figure in one.figures if figure.concurrency is None]
    return [*lines, *(f"  {', '.join(cell for cell in reversed(cells) if cell)}" for cells in rest)]


def _list_figure_cells(one: ReferenceFigure) -> tuple[str, ...]:
    sizes = " + ".join(str(size) for size in (one.prompt, one.generated) if size is not None)
    accepts = list_acceptance_words(one.accept_length, one.accept_rate)
    return (
        "" if one.concurrency is None else _count_requests(one.concurrency),
        f"{sizes} tokens" if sizes else "",
        f"depth {one.depth}" if one.depth else "",
        "" if one.generation is None else f"{one.generation.as_text()} tok/s",
        "" if one.prefill is None else f"prompts {one.prefill.as_text()} tok/s",
        "" if one.ttft is None else f"first token {one.ttft * 1000:.0f} ms",
        f"accepts {', '.join(accepts)}" if accepts else "",
        one.task or "",
    )


def build_profile_json(profile: Profile) -> dict[str, object]:
    """Return the profile as JSON data, secrets masked."""
    own = find_profile_secrets(profile)
    document = _mask_secrets(to_json_data(profile), own)
    assert isinstance(document, dict)
    document["env"] = {name: redact_value(value, own, secret=is_secret_name(name)) for name, value in profile.env}
    document["args"] = {key: _mask_argument(key, value, own) for key, value in profile.args}
    document["command"] = None if profile.command is None else list(redact_words(profile.command, own))
    document["container"]["options"] = [
        [name, redact_value(value, own, secret=is_secret_name(name))] for name, value in profile.container.options
    ]
    document["extra"] = {
        key: MASK if is_secret_name(key) else _mask_secrets(json.loads(kept.text), own) for key, kept in profile.extra
    }
    return {"schema": 1, **document}


def _mask_argument(key: str, value: ArgValue, own: frozenset[str]) -> object:
    secret = is_secret_name(key)
    if isinstance(value, bool):
        return value
    if isinstance(value, JsonValue):
        return MASK if secret else redact_word(value.text, own)
    if isinstance(value, FlagValues):
        return [[redact_value(text, own, secret=secret) for text in value.words]]
    return (
        [redact_value(text, own, secret=secret) for text in value]
        if isinstance(value, tuple)
        else redact_value(value, own, secret=secret)
    )


def _mask_secrets(value: object, own: frozenset[str]) -> Any:
    """Return JSON data with secrets in all its texts masked."""
    if isinstance(value, dict):
        return {key: _mask_secrets(item, own) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_secrets(item, own) for item in value]
    return redact(value, own) if isinstance(value, str) else value


_MAX_SAME_REASON = 4  # a script has dozens of other commands: of more than this only the first is shown
_OUTCOME_WORDS = {KeyOutcome.KEPT: "kept", KeyOutcome.UNSUPPORTED: "left out", KeyOutcome.WITHHELD: "withheld"}


def format_import_report(imported: ImportResult, allows: str = " (--allow takes all of it)") -> list[str]:
    """Return how many keys were imported, each without a field, and the notes. ``allows``: tell how to import what is withheld."""
    ledger = imported.ledger
    counts = {fate: len(ledger.list_keys_by_outcome(fate)) for fate in KeyOutcome}
    parts = [f"{counts[KeyOutcome.MAPPED]} mapped"]
    parts += [f"{counts[KeyOutcome.KEPT]} kept under extra"] if counts[KeyOutcome.KEPT] else []
    parts += [f"{counts[KeyOutcome.UNSUPPORTED]} left out"] if counts[KeyOutcome.UNSUPPORTED] else []
    parts += [f"{counts[KeyOutcome.WITHHELD]} withheld{allows}"] if counts[KeyOutcome.WITHHELD] else []
    lines = [f"{_redact_text(imported.profile.name)} from {imported.kind.value}: {', '.join(parts)}"]
    for fate in (KeyOutcome.WITHHELD, KeyOutcome.UNSUPPORTED, KeyOutcome.KEPT):
        for why, accounts in _group_by_reason(ledger.list_keys_by_outcome(fate)):
            if len(accounts) > _MAX_SAME_REASON and fate is KeyOutcome.UNSUPPORTED:
                key = _redact_text(accounts[0].key)
                lines.append(
                    f"  left out  {key} and {len(accounts) - 1} more (--json has them all): {_redact_text(why)}"
                )
                continue
            lines += [
                f"  {_OUTCOME_WORDS[fate]:9} "
                + _format_key_outcome(account, _format_allow_argument(ledger, account) if allows else None)
                for account in accounts
            ]
    lines += [f"  note      {_redact_text(remark.text)}" for remark in ledger.remarks]
    return lines


def _group_by_reason(accounts: Sequence[KeyRecord]) -> list[tuple[str, list[KeyRecord]]]:
    """Return the keys by the reason why they are not in the profile, both in the order of the source."""
    groups: dict[str, list[KeyRecord]] = {}
    for account in accounts:
        groups.setdefault(account.why or "", []).append(account)
    return list(groups.items())


def build_import_json(
    imported: ImportResult, text: str, path: str | None, cautions: Sequence[StartWarning]
) -> dict[str, object]:
    """Return the report as JSON data; ``text`` is the profile's file."""
    ledger = imported.ledger
    return {
        "schema": 1,
        "kind": imported.kind.value,
        "name": imported.profile.name,
        "file": path,
        "mapped": [
            {"key": _redact_text(one.key), "to": one.to} for one in ledger.list_keys_by_outcome(KeyOutcome.MAPPED)
        ],
        "kept": [
            {"key": _redact_text(one.key), "to": one.to, "why": _redact_optional_text(one.why)}
            for one in ledger.list_keys_by_outcome(KeyOutcome.KEPT)
        ],
        "unsupported": [
            {"key": _redact_text(one.key), "why": _redact_optional_text(one.why)}
            for one in ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED)
        ],
        "withheld": [
            {
                "key": _redact_text(one.key),
                "why": _redact_optional_text(one.why),
                "allow": _format_allow_argument(ledger, one),
            }
            for one in ledger.list_keys_by_outcome(KeyOutcome.WITHHELD)
        ],
        "notes": [_redact_text(remark.text) for remark in ledger.remarks],
        "cautions": [
            {
                "message": _redact_text(one.message),
                "set": _redact_optional_text(one.setting),
                "sets": [_redact_text(setting) for setting in one.settings],
            }
            for one in cautions
        ],
        "profile": text,
    }


def _format_allow_argument(ledger: ImportReport, account: KeyRecord) -> str | None:
    """Return the ``--allow`` argument for one key; only its name if its value may not be shown."""
    argument = ledger.format_allow_argument(account)
    return argument if argument is None or _redact_text(argument) == argument else account.allow


def _format_key_outcome(account: KeyRecord, allow: str | None) -> str:
    to = f" → {account.to}" if account.to else ""
    allow = f" (--allow {shlex.quote(allow)})" if allow else ""
    # Redacted separately: together, the reason after a variable's name would look like its value.
    return f"{_redact_text(account.key)}{to}{f': {_redact_text(account.why)}' if account.why else ''}{allow}"


def _redact_text(text: str) -> str:
    return redact_word(sanitize_line(text))


def _redact_optional_text(text: str | None) -> str | None:
    return None if text is None else _redact_text(text)


_LINE_STYLES = {
    "withheld": TextStyle.ATTENTION,
    "left out": TextStyle.ATTENTION,
    "kept": TextStyle.VALUE,
    "note": TextStyle.VALUE,
}
_NAME_COLUMNS = 10  # width of the labels


def render_import_preview(found: ImportedProfile | None, fault: SparkctlError | None, columns: int) -> list[TextRow]:
    """Return the preview of the pasted source; nothing for an empty one."""
    if fault is not None:
        return _render_fault(fault, columns)
    if found is None:
        return []
    ledger = found.imported.ledger
    is_whole = not ledger.list_keys_by_outcome(KeyOutcome.UNSUPPORTED) and not ledger.list_keys_by_outcome(
        KeyOutcome.WITHHELD
    )
    sign, tone = (Severity.GOOD, TextStyle.GOOD) if is_whole else (Severity.WARNING, TextStyle.ATTENTION)
    head, *keys = format_import_report(found.imported, allows="")
    rows = wrap_text(head, columns, TextStyle.STRONG, head=make_row(Span(f"{get_state_symbol(sign)} ", tone)))
    rows += _render_label("runs", _render_profile_summary(found.profile), columns, TextStyle.VALUE)
    for line in keys:
        name, _, words = line.strip().partition("  ")
        rows += _render_label(name, words.strip(), columns, _LINE_STYLES.get(name, TextStyle.VALUE))
    for one in found.cautions:
        mends = f" ({' '.join(f'--set {redact_word(each)}' for each in one.settings)})" if one.settings else ""
        if one.setting and not one.settings:
            mends = " (`sparkctl up PROFILE --node NODE --dry-run` names the settings that fit)"
        rows += _render_label("check", redact_word(sanitize_line(one.message)) + mends, columns, TextStyle.ATTENTION)
    return rows


def _render_profile_summary(profile: Profile) -> str:
    """Return what will run: engine, port, model, image."""
    words = [
        engines.engine_title(profile.engine),
        f":{profile.port}" if profile.port is not None else "",
        profile.model.path or profile.model.served_name or "",
        profile.image,
    ]
    return sanitize_line("   ".join(each for each in words if each))


def _render_label(name: str, words: str, columns: int, tone: TextStyle) -> list[TextRow]:
    label = Span(f"  {name:<{_NAME_COLUMNS}}", TextStyle.LABEL)
    return wrap_text(words, columns, tone, head=make_row(label))


def _render_fault(fault: SparkctlError, columns: int) -> list[TextRow]:
    """Return every fault with its place, and what to do."""
    sign = make_row(Span(f"{get_state_symbol(Severity.PROBLEM)} ", TextStyle.BAD))
    rows = [row for line in sanitize_lines(fault.message) for row in wrap_text(line, columns, TextStyle.BAD, head=sign)]
    return rows + (wrap_text(fault.hint, columns, TextStyle.LABEL, head=make_row("  ")) if fault.hint else [])
