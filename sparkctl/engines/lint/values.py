"""A flag's value: is there one, is it one of its choices, is it of its type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkctl.engines.lint.given import Given
from sparkctl.engines.lint.held import Held, is_reference, parsed, quoted
from sparkctl.engines.lint.reading import Reading
from sparkctl.model.flags import Flag, Takes, ValueType
from sparkctl.model.lint import Change, ChangeKind, Level, Lint, Remark
from sparkctl.model.suggest import closest

_SIZE = re.compile(r"-?[0-9][0-9_]*((\.[0-9]+)?[kKmMgGtT])?")
_FEW = 10  # choices that are listed


def value_remarks(one: Given, reading: Reading, held: Held) -> Iterator[Remark]:
    """Yield what is to be said of a flag's value."""
    flag = reading.flag
    if flag is None:
        return
    if one.left_out:
        yield from _left_out(one, flag)
    elif flag.takes is Takes.NONE:
        if reading.key is None:
            yield from _switch(one, reading.name)
        else:
            yield _said(Lint.BAD_VALUE, one, f"{flag.name} is a switch: there is nothing to set with .{reading.key}")
    elif not one.values and flag.takes not in (Takes.OPTIONAL, Takes.ANY):
        yield _said(Lint.MISSING_VALUE, one, f"{reading.name} takes a value")
    else:
        words = one.values if flag.takes in (Takes.MANY, Takes.ANY) else one.values[:1]
        for word in words:
            if not is_reference(word):
                yield from _keyed(one, flag, reading, word, held) if reading.key else _word(one, flag, word, held)


def _left_out(one: Given, flag: Flag) -> Iterator[Remark]:
    """A flag that is left out keeps its default, and that is not always off."""
    if not flag.negatable or flag.default == "false" or flag.name.startswith("--disable"):
        return
    shown = [alias for alias in flag.aliases if alias not in flag.hidden]
    off = next((alias for alias in shown if alias.startswith(("--no-", "--disable-"))), None)
    if off:
        stays = "is on by default" if flag.default == "true" else "is then for the engine to decide"
        message = f"false leaves the flag out, and it {stays}; to turn it off write {off.lstrip('-')}: true"
        yield Remark(Lint.STAYS_ON, Level.WARNING, one.where, message, on_key=False, flag=one.word)


def _switch(one: Given, name: str) -> Iterator[Remark]:
    if not one.values or not (one.in_args or one.inline):  # in a command the next word may be a model
        return
    value = one.values[0]
    message = f"{name} is a switch and takes no value, not {quoted(value, name)}"
    change = None
    if one.in_args and value.lower() == "true" and len(one.where) == 2:
        message, change = f"{message}; write true without quotes", Change(ChangeKind.REPLACE, one.where, "true")
    elif value.lower() in ("false", "no", "0"):
        message += "; write false to leave it out"
    yield _said(Lint.UNWANTED_VALUE, one, message, change=change)


def _word(one: Given, flag: Flag, word: str, held: Held) -> Iterator[Remark]:
    if flag.nullable and word in ("None", ""):
        return
    if flag.choices is not None and word not in flag.choices:
        yield _said(Lint.BAD_CHOICE, one, _choice(flag.name, flag.name, word, flag.choices, held))
    elif flag.values is not None and not _is_one_of(word, flag.values, fold=flag.fold_case):
        yield _said(Lint.BAD_CHOICE, one, _choice(flag.name, flag.name, word, flag.values, held))
    elif word in flag.old_values:
        message = f"{flag.name} {quoted(word, flag.name)} is deprecated in {held}"
        yield _said(Lint.DEPRECATED_FLAG, one, message, Level.WARNING)
    elif wanted := _wanted(flag.type, word):
        yield _said(Lint.BAD_VALUE, one, f"{flag.name} wants {wanted}, not {quoted(word, flag.name)}")
    elif flag.keys is not None:
        yield from _keys(one, flag, word, held)


def _keys(one: Given, flag: Flag, word: str, held: Held) -> Iterator[Remark]:
    data = parsed(word)
    if not isinstance(data, dict):
        yield _said(Lint.BAD_VALUE, one, f"{flag.name} wants a map, not {quoted(word, flag.name)}")
        return
    for key, value in data.items():
        yield from _key(one, flag, key, value, held, deeper=key if one.is_json else None)


def _keyed(one: Given, flag: Flag, reading: Reading, word: str, held: Held) -> Iterator[Remark]:
    """One key of a JSON value, set by ``--name.key value``."""
    if flag.type not in (ValueType.JSON, ValueType.JSON_OR_TEXT):
        yield _said(Lint.BAD_VALUE, one, f"{flag.name} is no JSON value: there is nothing to set with .{reading.key}")
    elif flag.keys is not None and reading.key is not None:
        first, dot, _ = reading.key.partition(".")
        yield from _key(one, flag, first.replace("-", "_"), None if dot else word, held)


def _key(one: Given, flag: Flag, key: str, value: object, held: Held, deeper: str | None = None) -> Iterator[Remark]:
    known = dict(flag.keys or ())
    where = one.where if deeper is None else (*one.where, deeper)
    if key not in known:
        near = closest(key, known)
        meant = f"; did you mean {near}?" if near else ""
        message = f"{flag.name} of {held} has no key {quoted(key)}{meant}"
        yield Remark(
            Lint.BAD_KEY, Level.ERROR, where, message, on_key=one.in_args and deeper is not None, flag=one.word
        )
    elif isinstance(value, str) and known[key] and value not in known[key] and not is_reference(value):
        message = _choice(f"{flag.name} {key}", key, value, known[key], held)
        yield Remark(Lint.BAD_CHOICE, Level.ERROR, where, message, on_key=False, flag=one.word)


def _choice(what: str, name: str, word: str, choices: tuple[str, ...], held: Held) -> str:
    message = f"{what} of {held} does not take {quoted(word, name)}"
    if len(choices) <= _FEW:
        return f"{message}; it is one of {', '.join(choices)}"
    near = closest(word, choices)
    return f"{message}; did you mean {near}?" if near else f"{message}; known are {', '.join(choices[:_FEW])} …"


def _is_one_of(word: str, values: tuple[str, ...], *, fold: bool) -> bool:
    return word in values or (fold and word.casefold() in {value.casefold() for value in values})


def _wanted(kind: ValueType, word: str) -> str | None:
    """Return what is wanted where a word is not of a type, None where it is."""
    try:
        if kind is ValueType.INT:
            int(word)
        elif kind is ValueType.FLOAT:
            float(word)
        elif kind is ValueType.JSON:
            parsed(word)
    except ValueError:
        return {ValueType.INT: "a whole number", ValueType.FLOAT: "a number", ValueType.JSON: "JSON (in args: a map)"}[
            kind
        ]
    if kind in (ValueType.SIZE, ValueType.SIZE_OR_AUTO) and not _SIZE.fullmatch(word):
        if kind is ValueType.SIZE_OR_AUTO and word == "auto":
            return None
        return "a number, as in 8192 or 8k" + (", or auto" if kind is ValueType.SIZE_OR_AUTO else "")
    return None


def _said(kind: Lint, one: Given, message: str, level: Level = Level.ERROR, change: Change | None = None) -> Remark:
    return Remark(kind, level, one.where, message, on_key=False, flag=one.word, change=change)
