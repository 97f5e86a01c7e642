"""The history as rows: the list of what was done, and everything about one of it. For the command line and the panel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkctl.core.record import plain
from sparkctl.core.what_changed import Change, Changes
from sparkctl.model.history import Kind, Operation, Share
from sparkctl.model.phase import PartTime, Step
from sparkctl.model.switch import SwitchStep
from sparkctl.model.text import clean, clean_lines
from sparkctl.model.units import gib, spoken
from sparkctl.present.sentences import phase_word, step_name, verdict_lines
from sparkctl.present.spans import Row, Span, Tone, row, said

_UNKNOWN_END = "not known how it ended"
_LATE = 1.25  # of the usual time
_LABEL = 12  # columns
_OF_THE_NEW = (
    SwitchStep.STARTING,
    SwitchStep.UNDOING,
)  # steps of a switch; by the others something else stops, or comes back
_OWN_WORDS = {Kind.SWITCH: ("resume", "abort"), Kind.STOP: ("free",)}
_OF_THE_OLD = (SwitchStep.RESTORING, SwitchStep.RESTORED)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One operation in the list, each field a column's text, cleaned; ``tone`` is that of the outcome."""

    id: int
    when: str
    what: str
    profile: str
    nodes: str
    outcome: str
    took: str
    why: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of what is known of an operation."""

    title: str
    rows: tuple[Row, ...]


def history_row(one: Operation) -> HistoryRow:
    """Return an operation as a row of the list."""
    return HistoryRow(
        one.id, when(one.began), verb_word(one), subject_words(one),
        clean(", ".join(one.nodes)), outcome_words(one), took_words(one), why_words(one), outcome_tone(one),
    )  # fmt: skip


def verb_word(one: Operation) -> str:
    """Return by which verb it was done, where that says more than what kind it was."""
    verb = (one.command or "").removeprefix("sparkctl ").partition(" ")[0]
    return verb if verb in _OWN_WORDS.get(one.kind, ()) else str(one.kind)


def subject_words(one: Operation) -> str:
    """Return what it was done to: a profile or an instance, or all there is on the nodes that were meant."""
    if name := one.profile or one.instance:
        return clean(name)
    if one.kind is Kind.SWITCH:
        return "what was left"  # it was refused before it was known which
    freed = [word for word in (one.command or "").split()[2:] if not word.startswith("-")]
    return clean(f"everything on {' and '.join(freed)}") if freed else "everything"


def _again(one: Operation) -> str | None:
    """Return the command that asks for the same again; nothing is left to be resumed or undone where that was done."""
    return None if one.is_good and verb_word(one) in _OWN_WORDS[Kind.SWITCH] else one.command


def when(seconds: float) -> str:
    """Return a unix time as the operator's own clock shows it."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "—"


def _to_the_second(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else "—"


def outcome_words(one: Operation) -> str:
    """Return how it ended, in a word or two."""
    if one.outcome is None:
        return "under way" if one.is_running else _UNKNOWN_END
    return clean(one.outcome).replace("-", " ")


def outcome_tone(one: Operation) -> Tone:
    """Return how bad that is."""
    if one.is_running:
        return Tone.ACCENT
    if one.is_good:
        return Tone.GOOD
    return Tone.BAD if one.outcome == "failed" else Tone.ATTENTION


def took_words(one: Operation) -> str:
    """Return how long it took, and what was usual where that is known: ``6 min 55 s of about 6 min 40 s``."""
    seconds = next((share.seconds for share in one.shares if share.seconds is not None), one.seconds)
    if seconds is None:
        return ""
    usual = one.usual.seconds
    return spoken(seconds) + (f" of about {spoken(usual)}" if usual is not None and one.kind is Kind.START else "")


def why_words(one: Operation) -> str:
    """Return why it ended as it did, on one line."""
    cause = next((share.cause for share in one.shares if share.cause is not None), None)
    is_left = one.kind is Kind.SWITCH and one.outcome == "interrupted"  # where, and what became of it
    if one.verdict is not None and not (is_left and one.why):
        return clean(" ".join(one.verdict.summary.split()))
    words = one.why or (cause.replace("-", " ") if cause and not one.is_good else None) or ""
    return clean("; ".join(" ".join(line.split()).rstrip(".") for line in words.splitlines() if line.strip()))


def history_lines(found: Sequence[Operation], columns: int | None, *, has_others: bool = False) -> list[str]:
    """Return the list as a table with a head. On a terminal that is too narrow for it each reason has a line of its own, and
    the year and what was usual are left to the detail. ``has_others``: more is kept than was asked for."""
    from sparkctl.present.fold import cut

    if not found:
        if has_others:
            return ["nothing in the history is like that; all of it: sparkctl history"]
        return ["nothing was done from this machine yet; whatever up, down, free and switch do will be listed here"]
    made = [history_row(one) for one in found]
    rows = [_HEAD, *((str(r.id), r.when, r.what, r.profile, r.nodes, r.outcome, r.took, r.why) for r in made)]
    lines = _table(rows)
    if columns is None or all(len(line) <= columns for line in lines):
        return lines
    table = _table([one[:-1] for one in rows])
    if any(len(line) > columns for line in table):
        table = _table([_HEAD[:-1], *(_short(one) for one in rows[1:])])
    lines = []
    for line, one in zip(table, rows, strict=True):
        why = one[-1] if one is not _HEAD else ""
        lines += [cut(line, columns), *([cut(f"      {why}", columns)] if why else [])]
    return lines


def _short(one: tuple[str, ...]) -> tuple[str, ...]:
    return (one[0], one[1][5:], *one[2:6], one[6].partition(" of about ")[0])


_HEAD = ("id", "when", "what", "profile", "nodes", "outcome", "took", "why")


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(one[at]) for one in rows) for at in range(len(rows[0]))]
    return [
        "  ".join([f"{one[0]:>{widths[0]}}", *(f"{one[at]:{widths[at]}}" for at in range(1, len(one)))]).rstrip()
        for one in rows
    ]


def history_detail(
    one: Operation, worked: Operation | None, changes: Changes | None, parts: Sequence[Operation] = ()
) -> tuple[Section, ...]:
    """Return everything that is known of one operation. ``worked``: the last good start before it, ``changes`` since that;
    ``parts``: what a switch was made of."""
    sections = [
        Section(f"{one.id}: {verb_word(one)} of {subject_words(one)}", tuple(_head(one))),
        Section("how it ended" if one.is_good else "why", tuple(_why(one))),
        *(Section(_of(one, "phases", share), tuple(_phases(one, share))) for share in one.shares),
        Section("steps", tuple(_steps(one))),
        Section("made of", tuple(_made_of(parts))),
        Section("memory", tuple(_memory(one))),
        Section("seen", tuple(_seen(one))),
        *(Section(_of(one, "node", share), tuple(_facts(share))) for share in one.shares),
        Section("files", tuple(_files(one))),
    ]
    if one.kind is Kind.START:
        sections.append(Section("changed since it last worked", tuple(_changed(worked, changes))))
    return tuple(each for each in sections if each.rows)


def detail_lines(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the sections as text."""
    from sparkctl.present.spans import text

    for number, section in enumerate(sections):
        if number:
            yield ""
        yield section.title
        yield from ("  " + text(each) for each in section.rows)


def _of(one: Operation, title: str, share: Share) -> str:
    return title if len(one.shares) == 1 else f"{title}, {_who(one, share)}"


def _who(one: Operation, share: Share) -> str:
    """Return whose part that is: of a start the node is enough, elsewhere several instances may be on one."""
    return clean(share.node if one.kind is Kind.START else f"{share.instance} on {share.node}")


def _pair(name: str, value: str, tone: Tone = Tone.VALUE) -> Row:
    return row(Span(f"{name:{_LABEL}}" if len(name) < _LABEL else f"{name}  ", Tone.LABEL), said(value, tone))


def _head(one: Operation) -> Iterator[Row]:
    yield _pair("outcome", outcome_words(one), outcome_tone(one))
    yield _pair("began", _to_the_second(one.began) + (f" by {one.operator}" if one.operator else ""))
    if one.ended is not None:
        yield _pair(
            "ended", _to_the_second(one.ended) + (f", exit code {one.exit_code}" if one.exit_code is not None else "")
        )
    if took := took_words(one):
        yield _pair("took", took)
    yield _pair("on", ", ".join(one.nodes))
    for name, value in (("engine", one.engine), ("image", one.image), ("hash", one.hash), ("again", _again(one))):
        if value is not None:
            yield _pair(name, value)
    if one.parent is not None:
        yield _pair("part of", f"the switch {one.parent}: sparkctl history show {one.parent}")


def _why(one: Operation) -> Iterator[Row]:
    if one.verdict is not None:
        yield from (
            row(said(line)) for line in verdict_lines(one.verdict, one.instance, one.nodes[0] if one.nodes else None)
        )
        if one.kind is not Kind.SWITCH:
            return  # of a switch there is what became of the one before, too
    if one.why:
        yield from (row(said(line)) for line in clean_lines(one.why) if line.strip())
    elif words := why_words(one):
        yield row(said(words))
    if one.hint and not one.is_good:
        yield from (row(said(line, Tone.LABEL)) for line in clean_lines(one.hint))


def _phases(one: Operation, share: Share) -> Iterator[Row]:
    """Yield each part with what it took and, of the head, what was expected; of a part that comes twice, the second is the
    second."""
    left = usual_parts(one, share)
    for part in share.parts:
        usual = next((each for each in left if each.part == part.part), None)
        if usual is not None:
            left.remove(usual)
        expected = "" if usual is None else f"   usually {spoken(usual.seconds)}"
        is_late = usual is not None and part.seconds > _LATE * usual.seconds + 1.0
        yield row(
            Span(f"{part_name(part):28}", Tone.LABEL),
            Span(f"{spoken(part.seconds):>12}", Tone.ATTENTION if is_late else Tone.VALUE),
            Span(expected, Tone.LABEL),
        )


def usual_parts(one: Operation, share: Share) -> list[PartTime]:
    """Return what was usual: it is known of the head, whose parts are not those of another rank."""
    return list(one.usual.parts) if share.node in one.nodes[:1] else []


def part_name(part: PartTime) -> str:
    """Return what a part of a start is called: ``loading: weights``."""
    return phase_word(part.phase) + (f": {step_name(Step(part.step))}" if part.step else "")


def _steps(one: Operation) -> Iterator[Row]:
    for each in one.moments:
        after = "" if each.seconds is None else f"after {spoken(each.seconds)}"
        is_said = each.step in _OF_THE_NEW or (each.instance != one.instance and each.step not in _OF_THE_OLD)
        whose = each.instance if is_said else ""
        words = " ".join(clean(f"{each.step} {whose}").split())
        yield row(Span(f"{words:28}", Tone.LABEL), Span(f"{after:>18}"), said(f"   {each.proof}" if each.proof else ""))


def _made_of(parts: Sequence[Operation]) -> Iterator[Row]:
    for part in parts:
        each = history_row(part)
        yield row(
            Span(f"{each.id:>4}  {each.what} of {each.profile} on {each.nodes}: ", Tone.LABEL),
            Span(each.outcome, each.tone),
            Span(f"   {each.took}" if each.took else ""),
        )


def _memory(one: Operation) -> Iterator[Row]:
    widest = max((len(_who(one, share)) for share in one.shares), default=0)
    for share in one.shares:
        known = (
            ("available before", share.available_before if one.kind is Kind.START else None), ("at its peak", share.peak),
            ("once ready", share.settled), ("estimated", share.estimated), ("came back", share.freed),
            ("available then", share.available_after),
            ("before it was started", None if one.kind is Kind.START else share.available_before),
            ("missing", share.missing or None),
        )  # fmt: skip
        words = [f"{name} {gib(value)}" for name, value in known if value is not None]
        if words:
            yield _pair(f"{_who(one, share):{widest}}", ", ".join(words))


def _seen(one: Operation) -> Iterator[Row]:
    for share in one.shares:
        words = [] if share.accept_length is None else [f"accept length {share.accept_length:.2f}"]
        words += [] if share.tokens_per_second is None else [f"{share.tokens_per_second:.1f} tokens/s of a request"]
        if words:
            yield _pair(_who(one, share), ", ".join(words))


def _facts(share: Share) -> Iterator[Row]:
    known = (
        ("container", share.container and share.container[:12]), ("digest", share.image_digest), ("driver", share.driver),
        ("kernel", share.kernel), ("version", share.engine_version),
    )  # fmt: skip
    yield from (_pair(name, value) for name, value in known if value is not None)


def _files(one: Operation) -> Iterator[Row]:
    for share in one.shares:
        if share.log is not None:
            yield _pair("log", share.log)
        if share.receipt is not None:
            yield _pair("guard", share.receipt)


def _changed(worked: Operation | None, changes: Changes | None) -> Iterator[Row]:
    if worked is None or changes is None:
        yield row(Span("no earlier start of it that went well is known", Tone.LABEL))
        return
    yield row(Span(f"since {worked.id}, {when(worked.began)}", Tone.LABEL))
    if not changes.found:
        yield row(Span("nothing that is kept is different"))
    for each in changes.found:
        yield from change_rows(each)
    if changes.unknown:
        yield row(said(f"not kept, so not compared: {', '.join(changes.unknown)}", Tone.LABEL))


def change_rows(one: Change) -> Iterator[Row]:
    """Yield a change as a unified diff does: the old with a minus, the new with a plus."""
    if one.before is not None:
        yield row(Span("- ", Tone.BAD), said(f"{one.what}: {one.before}"))
    if one.after is not None:
        yield row(Span("+ ", Tone.GOOD), said(f"{one.what}: {one.after}"))


def history_document(found: Sequence[Operation]) -> dict[str, object]:
    """Return the list as JSON data; the profile's text is left to `operation_document`."""
    return {"schema": 1, "operations": [{k: v for k, v in _plain(one).items() if k != "text"} for one in found]}


def operation_document(
    one: Operation, worked: Operation | None, changes: Changes | None, parts: Sequence[Operation] = ()
) -> dict[str, object]:
    """Return everything of one operation as JSON data."""
    since = None if worked is None or changes is None else {"id": worked.id, "began": worked.began} | _plain(changes)
    made_of = [part.id for part in parts]
    return {"schema": 1, "operation": _plain(one), "made_of": made_of, "changed_since_it_worked": since}


def _plain(value: object) -> dict[str, object]:
    data = plain(value)
    assert isinstance(data, dict)
    return data
