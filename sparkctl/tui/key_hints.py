"""Renders keys and their actions for the footer and the help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.commands import action_context as why
from sparkctl.commands.actions import Action, ActionContext, ActionId, ActionRole, list_footer_actions
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, measure_text, pad_row

_KEY_SYMBOLS = {
    "up": "↑", "down": "↓", "left": "←", "right": "→", "escape": "esc", "question_mark": "?", "colon": ":",
    "exclamation_mark": "!", "slash": "/",
}  # fmt: skip
_LOW_PRIORITY_ACTIONS = (ActionId.DROP_CACHES, ActionId.PROFILES)  # footer keys that come after the key for problems
_GAP_COLUMNS = 3  # columns between two keys of the footer


@dataclass(frozen=True, slots=True)
class FooterKey:
    """The columns of the footer, from ``start`` to before ``stop``, that belong to an action."""

    action: str
    start: int
    stop: int


def format_key(key: str) -> str:
    """Return a key as the footer and the help show it."""
    return _KEY_SYMBOLS.get(key, key)


def render_key_footer(
    actions: Sequence[Action], now: ActionContext, columns: int
) -> tuple[TextRow, tuple[FooterKey, ...]]:
    """Return the footer and the columns of each of its keys.

    Actions that are not possible now are faint, and go first where the line is full. Actions that change something are left
    out in a recording, and actions on the selection where it has nothing for them. The last one, help, always stays.
    """
    placed = list_footer_actions([one for one in actions if not (now.replaying and one.changes)])
    can = {one.id: one.why_not(now) is None for one in placed}
    placed = tuple(one for one in placed if one.sense is not ActionRole.TAKE or can[one.id])
    if can.get(ActionId.WRONG):  # a problem is more important than the actions that are always possible
        wrong = next(one for one in placed if one.id is ActionId.WRONG)
        others = [one for one in placed if one is not wrong]
        at = next((at for at, one in enumerate(others) if one.id in _LOW_PRIORITY_ACTIONS), len(others))
        placed = (*others[:at], wrong, *others[at:])
    wide = {one.id: measure_text(format_key(one.keys[0])) + 1 + measure_text(one.short) for one in placed}
    kept = {placed[-1].id} if placed else set()
    taken = 1 + sum(wide[one] for one in kept)
    for one in sorted(placed[:-1], key=lambda each: not can[each.id]):
        taken += wide[one.id] + _GAP_COLUMNS
        if taken > columns:
            break
        kept.add(one.id)
    spans: list[Span] = [Span(" ")]
    places: list[FooterKey] = []
    start = 1
    for one in placed:
        if one.id in kept:
            if places:
                spans.append(Span(" " * _GAP_COLUMNS))
            spans.append(Span(format_key(one.keys[0]), TextStyle.KEY if can[one.id] else TextStyle.FRAME))
            spans.append(Span(f" {one.short}", TextStyle.VALUE if can[one.id] else TextStyle.FRAME))
            places.append(FooterKey(one.id, start, start + wide[one.id]))
            start += wide[one.id] + _GAP_COLUMNS
    line = tuple(spans)
    return pad_row(line, columns), tuple(places)


def render_key_help(actions: Sequence[Action], now: ActionContext) -> list[TextRow]:
    """Return a row per action of this screen: its keys, its title, its command and why it is not possible now.

    Actions that this kind of panel (live or recording) never offers are left out.
    """
    never = {why.reason_recording} if now.replaying else {why.reason_no_recording}  # not in this kind of panel
    actions = [one for one in actions if one.why_not not in never and not (now.replaying and one.changes)]
    keys = [", ".join(format_key(key) for key in one.keys) or f":{one.verb}" for one in actions]
    wide = max((len(each) for each in keys), default=0)
    rows = []
    for one, each in zip(actions, keys, strict=True):
        title = one.title
        if now.own is not None and one.id is ActionId.QUIT_AT_ONCE:
            title = f"end the panel and leave its switch to {sanitize_line(now.own.instance)} where it is; asks first"
        spans = make_row(Span(f"{each:>{wide}}", TextStyle.KEY), Span(f"   {title}", TextStyle.VALUE))
        if one.verb and one.keys:
            spans = (*spans, Span(f"   :{one.verb}", TextStyle.LABEL))
        if because := one.why_not(now):
            spans = (*spans, Span(f"   ({sanitize_line(because)})", TextStyle.STALE))
        rows.append(spans)
    return rows
