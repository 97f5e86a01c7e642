"""A flag's value: is there one, is it one of its choices, is it of its type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkctl.engines.flags.model import EngineFlag, FlagArity, FlagValueType
from sparkctl.engines.held import LintContext, has_env_reference, parse_json_value, quote_value
from sparkctl.engines.lint.model import LintFix, LintFixKind, LintMessage, LintRule, LintSeverity
from sparkctl.engines.profile_flags import ProfileFlag
from sparkctl.engines.reading import FlagMatch
from sparkctl.model.suggest import find_closest_match

_SIZE = re.compile(r"-?[0-9][0-9_]*((\.[0-9]+)?[kKmMgGtT])?")
_FEW = 10  # choices that are listed


def check_flag_value(one: ProfileFlag, reading: FlagMatch, held: LintContext) -> Iterator[LintMessage]:
    """Yield what is to be said of a flag's value."""
    flag = reading.flag
    if flag is None:
        return
    if one.left_out:
        yield from _check_omitted_flag(one, flag)
    elif flag.takes is FlagArity.NONE:
        if reading.key is None:
            yield from _check_switch(one, reading.name)
        else:
            yield _said(
                LintRule.BAD_VALUE, one, f"{flag.name} is a switch: there is nothing to set with .{reading.key}"
            )
    elif not one.values and flag.takes not in (FlagArity.OPTIONAL, FlagArity.ANY):
        yield _said(LintRule.MISSING_VALUE, one, f"{reading.name} takes a value")
    else:
        words = one.values if flag.takes in (FlagArity.MANY, FlagArity.ANY) else one.values[:1]
        for word in words:
            if not has_env_reference(word):
                yield from (
                    _check_dotted_key(one, flag, reading, word, held)
                    if reading.key
                    else _check_word(one, flag, word, held)
                )


def _check_omitted_flag(one: ProfileFlag, flag: EngineFlag) -> Iterator[LintMessage]:
    """A flag that is left out keeps its default, and that is not always off."""
    if not flag.negatable or flag.default == "false" or flag.name.startswith("--disable"):
        return
    shown = [alias for alias in flag.aliases if alias not in flag.hidden]
    off = next((alias for alias in shown if alias.startswith(("--no-", "--disable-"))), None)
    if off:
        stays = "is on by default" if flag.default == "true" else "is then for the engine to decide"
        message = f"false leaves the flag out, and it {stays}; to turn it off write {off.lstrip('-')}: true"
        yield LintMessage(LintRule.STAYS_ON, LintSeverity.WARNING, one.where, message, on_key=False, flag=one.word)


def _check_switch(one: ProfileFlag, name: str) -> Iterator[LintMessage]:
    if not one.values or not (one.in_args or one.inline):  # in a command the next word may be a model
        return
    value = one.values[0]
    message = f"{name} is a switch and takes no value, not {quote_value(value, name)}"
    change = None
    if one.in_args and value.lower() == "true" and len(one.where) == 2:
        message, change = f"{message}; write true without quotes", LintFix(LintFixKind.REPLACE, one.where, "true")
    elif value.lower() in ("false", "no", "0"):
        message += "; write false to leave it out"
    yield _said(LintRule.UNWANTED_VALUE, one, message, change=change)


def _check_word(one: ProfileFlag, flag: EngineFlag, word: str, held: LintContext) -> Iterator[LintMessage]:
    if flag.nullable and word in ("None", ""):
        return
    if flag.choices is not None and word not in flag.choices:
        yield _said(LintRule.BAD_CHOICE, one, _choice(flag.name, flag.name, word, flag.choices, held))
    elif flag.values is not None and not _is_one_of(word, flag.values, fold=flag.fold_case):
        yield _said(LintRule.BAD_CHOICE, one, _choice(flag.name, flag.name, word, flag.values, held))
    elif word in flag.old_values:
        message = f"{flag.name} {quote_value(word, flag.name)} is deprecated in {held}"
        yield _said(LintRule.DEPRECATED_FLAG, one, message, LintSeverity.WARNING)
    elif wanted := _expected_type(flag.type, word):
        yield _said(LintRule.BAD_VALUE, one, f"{flag.name} wants {wanted}, not {quote_value(word, flag.name)}")
    elif flag.keys is not None:
        yield from _check_json(one, flag, word, held)


def _check_json(one: ProfileFlag, flag: EngineFlag, word: str, held: LintContext) -> Iterator[LintMessage]:
    data = parse_json_value(word)
    if not isinstance(data, dict):
        yield _said(LintRule.BAD_VALUE, one, f"{flag.name} wants a map, not {quote_value(word, flag.name)}")
        return
    for key, value in data.items():
        yield from _check_json_key(one, flag, key, value, held, deeper=key if one.is_json else None)


def _check_dotted_key(
    one: ProfileFlag, flag: EngineFlag, reading: FlagMatch, word: str, held: LintContext
) -> Iterator[LintMessage]:
    """One key of a JSON value, set by ``--name.key value``."""
    if flag.type not in (FlagValueType.JSON, FlagValueType.JSON_OR_TEXT):
        yield _said(
            LintRule.BAD_VALUE, one, f"{flag.name} is no JSON value: there is nothing to set with .{reading.key}"
        )
    elif flag.keys is not None and reading.key is not None:
        first, dot, _ = reading.key.partition(".")
        yield from _check_json_key(one, flag, first.replace("-", "_"), None if dot else word, held)


def _check_json_key(
    one: ProfileFlag, flag: EngineFlag, key: str, value: object, held: LintContext, deeper: str | None = None
) -> Iterator[LintMessage]:
    known = dict(flag.keys or ())
    where = one.where if deeper is None else (*one.where, deeper)
    if key not in known:
        near = find_closest_match(key, known)
        meant = f"; did you mean {near}?" if near else ""
        message = f"{flag.name} of {held} has no key {quote_value(key)}{meant}"
        yield LintMessage(
            LintRule.BAD_KEY,
            LintSeverity.ERROR,
            where,
            message,
            on_key=one.in_args and deeper is not None,
            flag=one.word,
        )
    elif isinstance(value, str) and known[key] and value not in known[key] and not has_env_reference(value):
        message = _choice(f"{flag.name} {key}", key, value, known[key], held)
        yield LintMessage(LintRule.BAD_CHOICE, LintSeverity.ERROR, where, message, on_key=False, flag=one.word)


def _choice(what: str, name: str, word: str, choices: tuple[str, ...], held: LintContext) -> str:
    message = f"{what} of {held} does not take {quote_value(word, name)}"
    if len(choices) <= _FEW:
        return f"{message}; it is one of {', '.join(choices)}"
    near = find_closest_match(word, choices)
    return f"{message}; did you mean {near}?" if near else f"{message}; known are {', '.join(choices[:_FEW])} …"


def _is_one_of(word: str, values: tuple[str, ...], *, fold: bool) -> bool:
    return word in values or (fold and word.casefold() in {value.casefold() for value in values})


def _expected_type(kind: FlagValueType, word: str) -> str | None:
    """Return what is wanted where a word is not of a type, None where it is."""
    try:
        if kind is FlagValueType.INT:
            int(word)
        elif kind is FlagValueType.FLOAT:
            float(word)
        elif kind is FlagValueType.JSON:
            parse_json_value(word)
    except ValueError:
        return {
            FlagValueType.INT: "a whole number",
            FlagValueType.FLOAT: "a number",
            FlagValueType.JSON: "JSON (in args: a map)",
        }[kind]
    if kind in (FlagValueType.SIZE, FlagValueType.SIZE_OR_AUTO) and not _SIZE.fullmatch(word):
        if kind is FlagValueType.SIZE_OR_AUTO and word == "auto":
            return None
        return "a number, as in 8192 or 8k" + (", or auto" if kind is FlagValueType.SIZE_OR_AUTO else "")
    return None


def _said(
    kind: LintRule,
    one: ProfileFlag,
    message: str,
    level: LintSeverity = LintSeverity.ERROR,
    change: LintFix | None = None,
) -> LintMessage:
    return LintMessage(kind, level, one.where, message, on_key=False, flag=one.word, change=change)
