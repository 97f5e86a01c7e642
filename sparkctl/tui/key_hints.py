"""Renders keys and their actions for the footer and the help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual import events

from sparkctl.commands import action_context as why
from sparkctl.commands.actions import Action, ActionContext, ActionId, ActionRole, list_footer_actions
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    make_row,
    measure_text,
    pad_row,
)

if TYPE_CHECKING:
    from textual.app import App

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
    placed = tuple(one for one in placed if one.role not in _SELECTION_ROLES or can[one.id])
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


_HINT_PATTERN = re.compile(r"\b(enter|esc|tab|ctrl\+s)\b.*?(?=   |,|$)")


def find_hint_key(hint: str, x: int) -> str | None:
    """Return Textual's name of the key whose hint is at a column of ``enter does it   esc leaves``; None beside them."""
    found = next((one for one in _HINT_PATTERN.finditer(hint) if one.start() <= x < one.end()), None)
    return None if found is None else {"esc": "escape"}.get(found[1], found[1])


def press_hint_key(app: App[Any], hint: str, x: int) -> bool:
    """Press the key of the hint at a column; tell whether there is one."""
    key = find_hint_key(hint, x)
    if key is not None:
        event = events.Key(key, None)
        event.set_sender(app)  # what a dialog sends does not bubble from its field to it
        app.post_message(event)
    return key is not None


_SELECTION_ROLES = (ActionRole.TAKE, ActionRole.KILL)
_MOVING_ACTIONS = frozenset(
    (ActionId.LOWER, ActionId.UPPER, ActionId.FIRST, ActionId.LAST, ActionId.FURTHER, ActionId.NEARER, ActionId.NEXT,
     ActionId.PAGE_DOWN, ActionId.PAGE_UP, ActionId.HALF_PAGE_DOWN, ActionId.HALF_PAGE_UP,
     ActionId.PREVIOUS, ActionId.BACK, ActionId.QUIT, ActionId.VIEW_OVERVIEW, ActionId.VIEW_INSTANCE)
)  # fmt: skip
_HELP_GROUPS = ("this screen", "move", "everywhere")
_HELP_COLUMN_GAP = 3
_MIN_HELP_COLUMNS = {3: 100, 2: 64}  # from which width on there are so many groups side by side
_HELP_SHARES = {3: (9, 5, 6), 2: (4, 3), 1: (1,)}  # of the width
_MAX_KEY_COLUMNS = 10  # of the keys of an action; where two take more only the first is shown


def list_help_actions(actions: Sequence[Action], now: ActionContext) -> list[Action]:
    """Return the actions of the help, without those that this kind of panel (live or recording) never offers."""
    never = {why.reason_recording} if now.replaying else {why.reason_no_recording}
    return [one for one in actions if one.why_not not in never and not (now.replaying and one.changes)]


def _format_action_keys(one: Action) -> str:
    return ", ".join(format_key(key) for key in one.keys) or f":{one.verb}"


def _get_action_title(one: Action, now: ActionContext) -> str:
    if now.own is not None and one.id is ActionId.QUIT_AT_ONCE:
        return f"end the panel and leave its switch to {sanitize_line(now.own.instance)} where it is; asks first"
    return one.title


def render_key_columns(actions: Sequence[Action], now: ActionContext, columns: int) -> list[TextRow]:
    """Return the keys in groups side by side, as many as fit: those of this screen, those that move, and the others."""
    groups: list[list[Action]] = [[], [], []]
    for one in list_help_actions(actions, now):
        groups[1 if one.id in _MOVING_ACTIONS else 0 if one.on else 2].append(one)
    count = next((count for count, least in _MIN_HELP_COLUMNS.items() if columns >= least), 1)
    free = columns - _HELP_COLUMN_GAP * (count - 1)
    shares = _HELP_SHARES[count]
    widths = [free * share // sum(shares) for share in shares]
    widths += widths[-1:] * (len(groups) - count)
    parts = [
        _render_key_group(name, group, now, wide)
        for name, group, wide in zip(_HELP_GROUPS, groups, widths, strict=True)
    ]
    stacks = parts[:count]
    for part in parts[count:]:
        stacks[-1] = [*stacks[-1], (), *part]
    high = max(map(len, stacks))
    gap = Span(" " * _HELP_COLUMN_GAP)
    rows = []
    for at in range(high):
        line = [stack[at] if at < len(stack) else () for stack in stacks]
        padded = [(*pad_row(each, wide), gap) for each, wide in zip(line[:-1], widths, strict=False)]
        rows.append(tuple(span for each in padded for span in each) + line[-1])
    return rows


def _render_key_group(name: str, actions: Sequence[Action], now: ActionContext, columns: int) -> list[TextRow]:
    """Return a group: a row per action with its keys and the first clause of its title; faint where it is not possible now."""
    from sparkctl.views.text.line_wrap import wrap_text

    keys = [
        each
        if measure_text(each := _format_action_keys(one)) <= _MAX_KEY_COLUMNS or not one.keys
        else format_key(one.keys[0])
        for one in actions
    ]
    wide = max(map(measure_text, keys), default=0)
    rows = [make_row(Span(f"{'':>{wide}}  {name}", TextStyle.TITLE))]
    for one, each in zip(actions, keys, strict=True):
        is_possible = one.why_not(now) is None
        key = Span(f"{each:>{wide}}  ", TextStyle.KEY if is_possible else TextStyle.FRAME)
        title = _CLAUSE_END_PATTERN.split(_get_action_title(one, now))[0]
        if one.id in _MOVING_ACTIONS:
            title = title.partition(",")[0]
        tone = TextStyle.VALUE if is_possible else TextStyle.STALE
        rows += wrap_text(title, columns, tone, head=make_row(key))
    return rows


_CLAUSE_END_PATTERN = re.compile(r"[;:(]|, (?=as |and |with |why)")


def render_key_help(actions: Sequence[Action], now: ActionContext, words: str, columns: int | None) -> list[TextRow]:
    """Return each action of this screen: its keys, its title, its command and why it is not possible now. ``words``: only
    actions that have all of them. Wrapped to ``columns``, below the titles."""
    from sparkctl.views.text.line_wrap import wrap_styled_line

    wanted = words.casefold().split()
    found = [
        one
        for one in list_help_actions(actions, now)
        if all(
            word in f"{_format_action_keys(one)} {_get_action_title(one, now)} :{one.verb or ''} {one.short}".casefold()
            for word in wanted
        )
    ]
    keys = [_format_action_keys(one) for one in found]
    wide = max((len(each) for each in keys), default=0)
    rows: list[TextRow] = []
    for one, each in zip(found, keys, strict=True):
        spans = make_row(
            Span(f"{each:>{wide}}", TextStyle.KEY), Span(f"   {_get_action_title(one, now)}", TextStyle.VALUE)
        )
        if one.verb and one.keys:
            spans = (*spans, Span(f"   :{one.verb}", TextStyle.LABEL))
        if because := one.why_not(now):
            spans = (*spans, Span(f"   ({sanitize_line(because)})", TextStyle.STALE))
        rows += wrap_styled_line(spans, columns, wide + 3)
    return rows
