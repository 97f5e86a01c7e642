"""Check a profile's flags before it starts, against the flag catalogue of its engine's version, and the environment and the
container around them. Pure.

The catalogue decides what is an error; an engine's own ``lint`` module adds what no argument parser checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparkctl.engines import engine_flags, load_engine_part
from sparkctl.engines.base import Engine
from sparkctl.engines.engine_flags import EngineFlag, FlagArity, FlagCatalogue, FlagValueType, parse_version
from sparkctl.engines.lint import (
    FieldPath,
    LintFix,
    LintFixKind,
    LintMessage,
    LintRule,
    LintSeverity,
    flag_combinations,
)
from sparkctl.engines.lint.profile_flags import (
    FlagAdvice,
    FlagMatch,
    FlagMatchKind,
    FlagSettings,
    LintContext,
    ProfileFlag,
    collect_profile_flags,
    has_env_reference,
    has_ignored_args,
    match_flag,
    parse_json_value,
    quote_value,
)
from sparkctl.errors import find_closest_match
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line, truncate_text

_SIZE_PATTERN = re.compile(r"-?[0-9][0-9_]*((\.[0-9]+)?[kKmMgGtT])?")
_MAX_LISTED_CHOICES = 10  # the number of choices in a message
_MIN_VALUE_SIMILARITY = 0.7  # of a misspelled value: `nope` is not openai


def check_flag_value(one: ProfileFlag, reading: FlagMatch, context: LintContext) -> Iterator[LintMessage]:
    """Yield diagnostics of a flag's value."""
    flag = reading.flag
    if flag is None:
        return
    if one.left_out:
        yield from _check_omitted_flag(one, flag)
    elif flag.takes is FlagArity.NONE:
        if reading.key is None:
            yield from _check_switch(one, reading.name)
        else:
            yield _build_value_message(
                LintRule.BAD_VALUE, one, f"{flag.name} is a switch: there is nothing to set with .{reading.key}"
            )
    elif not one.values and flag.takes not in (FlagArity.OPTIONAL, FlagArity.ANY):
        yield _build_value_message(LintRule.MISSING_VALUE, one, f"{reading.name} takes a value")
    else:
        takes_many = flag.takes in (FlagArity.MANY, FlagArity.ANY)
        if one.in_args and len(one.values) > 1 and not takes_many:
            first = quote_value(one.values[0], reading.name)
            rest = "the word" if len(one.values) == 2 else f"the {len(one.values) - 1} words"
            message = f"{reading.name} takes one value: the engine refuses {rest} after {first}"
            yield _build_value_message(LintRule.BAD_VALUE, one, message)
        words = one.values if takes_many else one.values[:1]
        for word in words:
            if not has_env_reference(word):
                yield from (
                    _check_dotted_key(one, flag, reading, word, context)
                    if reading.key
                    else _check_word(one, flag, word, context)
                )


def _check_omitted_flag(one: ProfileFlag, flag: EngineFlag) -> Iterator[LintMessage]:
    """Check a flag set to false: it keeps its default, which is not always off."""
    if not flag.negatable or flag.default == "false" or flag.name.startswith("--disable"):
        return
    shown = [alias for alias in flag.aliases if alias not in flag.hidden]
    off = next((alias for alias in shown if alias.startswith(("--no-", "--disable-"))), None)
    if off:
        stays = "it is on by default" if flag.default == "true" else "the engine then decides"
        message = f"false leaves the flag out, and {stays}; to turn it off write {off.lstrip('-')}: true"
        yield LintMessage(
            kind=LintRule.STAYS_ON,
            level=LintSeverity.WARNING,
            where=one.where,
            message=message,
            on_key=False,
            flag=one.word,
        )


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
    yield _build_value_message(LintRule.UNWANTED_VALUE, one, message, change=change)


def _check_word(one: ProfileFlag, flag: EngineFlag, word: str, context: LintContext) -> Iterator[LintMessage]:
    if flag.nullable and word in ("None", ""):
        return
    if flag.choices is not None and word not in flag.choices:
        yield _build_value_message(
            LintRule.BAD_CHOICE, one, _describe_bad_choice(flag.name, flag.name, word, flag.choices, context)
        )
    elif flag.values is not None and not _is_one_of(word, flag.values, fold=flag.fold_case):
        message, level = _describe_bad_choice(flag.name, flag.name, word, flag.values, context), LintSeverity.ERROR
        if flag.name in context.lore.replaceable:
            message, level = (
                f"{message}; {context.title} starts only where the checkpoint names its own, which replaces it",
                LintSeverity.WARNING,
            )
        found = _build_value_message(LintRule.BAD_CHOICE, one, message, level)
        is_misspelt = find_closest_match(word, flag.values, _MIN_VALUE_SIMILARITY) is not None
        # another name may be one that a plug-in of the image brings
        yield found if flag.extended_by is None or is_misspelt else replace(found, ends_start=False)
    elif word in flag.old_values:
        message = f"{flag.name} {quote_value(word, flag.name)} is deprecated in {context}"
        yield _build_value_message(LintRule.DEPRECATED_FLAG, one, message, LintSeverity.WARNING)
    elif wanted := _expected_type(flag.type, word):
        yield _build_value_message(
            LintRule.BAD_VALUE, one, f"{flag.name} wants {wanted}, not {quote_value(word, flag.name)}"
        )
    elif flag.keys is not None:
        yield from _check_json(one, flag, word, context)


def _check_json(one: ProfileFlag, flag: EngineFlag, word: str, context: LintContext) -> Iterator[LintMessage]:
    data = parse_json_value(word)
    if not isinstance(data, dict):
        yield _build_value_message(
            LintRule.BAD_VALUE, one, f"{flag.name} needs a map, not {quote_value(word, flag.name)}"
        )
        return
    for key, value in data.items():
        yield from _check_json_key(one, flag, key, value, context, deeper=key if one.is_json else None)


def _check_dotted_key(
    one: ProfileFlag, flag: EngineFlag, reading: FlagMatch, word: str, context: LintContext
) -> Iterator[LintMessage]:
    """Check one key of a JSON value, set by ``--name.key value``."""
    if flag.type not in (FlagValueType.JSON, FlagValueType.JSON_OR_TEXT):
        yield _build_value_message(
            LintRule.BAD_VALUE, one, f"{flag.name} is no JSON value: there is nothing to set with .{reading.key}"
        )
    elif flag.keys is not None and reading.key is not None:
        first, dot, _ = reading.key.partition(".")
        yield from _check_json_key(one, flag, first.replace("-", "_"), None if dot else word, context)


def _check_json_key(
    one: ProfileFlag, flag: EngineFlag, key: str, value: object, context: LintContext, deeper: str | None = None
) -> Iterator[LintMessage]:
    known = dict(flag.keys or ())
    where = one.where if deeper is None else (*one.where, deeper)
    if key not in known:
        near = find_closest_match(key, known)
        hint = f"; did you mean {near}?" if near else ""
        message = f"{flag.name} of {context} has no key {quote_value(key)}{hint}"
        yield LintMessage(
            kind=LintRule.BAD_KEY,
            level=LintSeverity.ERROR,
            where=where,
            message=message,
            on_key=one.in_args and deeper is not None,
            flag=one.word,
        )
    elif (
        isinstance(value, str)
        and (values := known[key] or _list_key_values(flag, key, context))
        and not _is_one_of(value, values, fold=not known[key])
        and not has_env_reference(value)
    ):
        message = _describe_bad_choice(f"{flag.name} {key}", key, value, values, context)
        yield LintMessage(
            kind=LintRule.BAD_CHOICE,
            level=LintSeverity.ERROR,
            where=where,
            message=message,
            on_key=False,
            flag=one.word,
        )


def _list_key_values(flag: EngineFlag, key: str, context: LintContext) -> tuple[str, ...]:
    """Return the values that one key of a JSON flag takes beside those of the catalogue; empty if they are not known."""
    values = context.lore.key_values.get(f"{flag.name}.{key}", ())
    if not isinstance(values, str):
        return values
    same = context.catalogue.by_name.get(values)
    return () if same is None or not same.values else (*same.values, "auto")


def _describe_bad_choice(what: str, name: str, word: str, choices: tuple[str, ...], context: LintContext) -> str:
    message = f"{what} of {context} does not take {quote_value(word, name)}"
    if len(choices) <= _MAX_LISTED_CHOICES:
        return f"{message}; it is one of {', '.join(choices)}"
    # Of several formats that contain the word, spelling prefers none.
    longer = [one for one in choices if len(word) > 2 and word.casefold() in one]
    near = " or ".join(longer) if len(longer) > 1 else find_closest_match(word, choices, _MIN_VALUE_SIMILARITY)
    return (
        f"{message}; did you mean {near}?"
        if near
        else f"{message}; known are {', '.join(choices[:_MAX_LISTED_CHOICES])} …"
    )


def _is_one_of(word: str, values: tuple[str, ...], *, fold: bool) -> bool:
    return word in values or (fold and word.casefold() in {value.casefold() for value in values})


def _expected_type(kind: FlagValueType, word: str) -> str | None:
    """Return the expected type if a word does not have it, None if it does."""
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
    if kind in (FlagValueType.SIZE, FlagValueType.SIZE_OR_AUTO) and not _SIZE_PATTERN.fullmatch(word):
        if kind is FlagValueType.SIZE_OR_AUTO and word == "auto":
            return None
        return "a number, as in 8192 or 8k" + (", or auto" if kind is FlagValueType.SIZE_OR_AUTO else "")
    return None


def _build_value_message(
    kind: LintRule,
    one: ProfileFlag,
    message: str,
    level: LintSeverity = LintSeverity.ERROR,
    change: LintFix | None = None,
) -> LintMessage:
    return LintMessage(
        kind=kind,
        level=level,
        where=one.where,
        message=message,
        on_key=False,
        flag=one.word,
        ends_start=True,
        change=change,
    )


_MIN_NAME_SIMILARITY = 0.8  # long names resemble each other by chance
_MAX_MISSING_LETTERS = 2  # at most so many letters missing at the end are a slip and not an intended abbreviation


def check_flag_name(one: ProfileFlag, reading: FlagMatch, context: LintContext) -> LintMessage | None:
    """Return a diagnostic of a flag's name, None if it is valid."""
    if reading.how is FlagMatchKind.EXACT and reading.flag is not None:
        return _check_deprecated_name(one, reading.name, reading.flag, context)
    if reading.how is FlagMatchKind.ABBREVIATED:
        is_slip = _is_truncation_slip(reading.name, one.word)
        fragile = "a flag that begins alike in another version would break it"
        message = f"{format_flag(one.word)} is short for {reading.name}; {fragile}"
        if is_slip:
            message = f"{format_flag(one.word)} lacks the end of {reading.name}; {context} still takes it for that, and {fragile}"
        level = LintSeverity.WARNING if is_slip else LintSeverity.INFO
        return _build_name_message(LintRule.ABBREVIATED_FLAG, level, one, message, _plan_key_rename(one, reading.name))
    if reading.how is FlagMatchKind.AMBIGUOUS:
        return _describe_ambiguous_flag(one, reading, context)
    return _describe_unknown_flag(one, reading, context)


def _is_truncation_slip(name: str, word: str) -> bool:
    """Tell whether an abbreviation lacks one or two letters of a word; intended ones keep whole words."""
    rest = name[len(word.partition("=")[0]) :]
    return 0 < len(rest) <= _MAX_MISSING_LETTERS and "-" not in rest and "_" not in rest


def format_flag(word: str) -> str:
    return truncate_text(sanitize_line(word), 60)


def _check_deprecated_name(one: ProfileFlag, name: str, flag: EngineFlag, context: LintContext) -> LintMessage | None:
    if name in flag.hidden:
        kept = [alias for alias in flag.aliases if alias not in flag.hidden]
        instead = f"; it is {kept[-1]} now" if kept else ""
        return _build_name_message(
            LintRule.DEPRECATED_FLAG,
            LintSeverity.INFO,
            one,
            f"{name} is an old spelling{instead}, and {context} still takes it",
        )
    if not flag.deprecated:
        return None
    instead = f"; use {flag.replacement}" if flag.replacement else ""
    new = context.catalogue.by_name.get(flag.replacement or "")
    change = _plan_key_rename(one, new.name) if new is not None and new.takes is flag.takes else None
    return _build_name_message(
        LintRule.DEPRECATED_FLAG, LintSeverity.WARNING, one, f"{name} is deprecated in {context}{instead}", change
    )


def _describe_ambiguous_flag(one: ProfileFlag, reading: FlagMatch, context: LintContext) -> LintMessage:
    message = f"{format_flag(one.word)} could be {join_with_or(reading.matches)} in {context}, which refuses it"
    if earlier := _find_older_catalogue(reading.name, context):
        message += f"; in {earlier.version} it was a separate flag"
    new = context.lore.names.get(reading.name)
    if new in context.catalogue.by_name:
        message += f"; what it meant is {new} now"
    words = context.lore.words.get(reading.name)
    return _build_name_message(
        LintRule.AMBIGUOUS_FLAG,
        LintSeverity.ERROR,
        one,
        message + (f"; {words}" if words else ""),
        _plan_replacement_name(one, reading.name, context),
    )


def _describe_unknown_flag(one: ProfileFlag, reading: FlagMatch, context: LintContext) -> LintMessage:
    name, has = format_flag(reading.name), context.catalogue.by_name
    dashed = reading.name.replace("_", "-")
    if dashed != reading.name and dashed in has:
        message = f"{context} does not know {name}: its flags are written with dashes, {dashed}"
        return _build_name_message(
            LintRule.UNKNOWN_FLAG, LintSeverity.ERROR, one, message, _plan_key_rename(one, dashed)
        )
    underscored = f"--{reading.name.lstrip('-').replace('-', '_')}"
    if underscored != reading.name and underscored in has:
        message = f"{context} does not know {name}: its flags are written with underscores, {underscored}"
        return _build_name_message(
            LintRule.UNKNOWN_FLAG, LintSeverity.ERROR, one, message, _plan_key_rename(one, underscored)
        )
    single = reading.name[1:]
    if len(single) > 2 and single.startswith("-") and single in has and reading.name not in context.lore.names:
        message = f"{context} does not know {name}: it is {single}, with one dash, or {has[single].name}"
        return _build_name_message(
            LintRule.UNKNOWN_FLAG, LintSeverity.ERROR, one, message, _plan_key_rename(one, has[single].name)
        )
    earlier, words = _find_older_catalogue(reading.name, context), context.lore.words.get(reading.name)
    message = f"{context} has no flag {name}"
    if earlier:
        message += f", which {earlier.version} had"
    elif later := _list_catalogues_with_flag(reading.name, context.others):
        message += f", which {later[0].version} has"
    elif owners := [
        title for title, other in context.foreign if match_flag(reading.name, other).how is FlagMatchKind.EXACT
    ]:
        message += f": it is a flag of {join_with_or(tuple(owners))}"
    new = context.lore.names.get(reading.name)
    if new in has:
        message += f"; {'it is' if earlier else 'here it is'} {new}"
    elif words is None and (near := find_closest_match(reading.name, has, _MIN_NAME_SIMILARITY)):
        message += f"; did you mean {near}?"
    kind = LintRule.REMOVED_FLAG if earlier else LintRule.UNKNOWN_FLAG
    return _build_name_message(
        kind,
        LintSeverity.ERROR,
        one,
        message + (f"; {words}" if words else ""),
        _plan_replacement_name(one, reading.name, context),
    )


def _find_older_catalogue(name: str, context: LintContext) -> FlagCatalogue | None:
    """Return the newest older version that has a flag of this name."""
    older = [one for one in context.others if parse_version(one.version) < parse_version(context.catalogue.version)]
    found = _list_catalogues_with_flag(name, tuple(older))
    return found[-1] if found else None


def _list_catalogues_with_flag(name: str, catalogues: tuple[FlagCatalogue, ...]) -> list[FlagCatalogue]:
    found = [one for one in catalogues if name in one.by_name]
    return sorted(found, key=lambda one: parse_version(one.version))


def _plan_replacement_name(one: ProfileFlag, name: str, context: LintContext) -> LintFix | None:
    """Return the edit to the flag's name in this version, if the value means the same under both."""
    new = context.lore.names.get(name)
    return (
        None
        if new not in context.catalogue.by_name or name in context.lore.not_alike
        else _plan_key_rename(one, new or "")
    )


def _plan_key_rename(one: ProfileFlag, name: str) -> LintFix | None:
    """Return the edit of a key in ``args``, with or without dashes as it was."""
    if not one.in_args:
        return None
    bare = name.lstrip("-")
    text = name if str(one.where[1]).startswith("-") or engine_flags.flag_for_key(bare) != name else bare
    return LintFix(LintFixKind.RENAME, one.where[:2], text)


def _build_name_message(
    kind: LintRule, level: LintSeverity, one: ProfileFlag, message: str, change: LintFix | None = None
) -> LintMessage:
    return LintMessage(
        kind=kind,
        level=level,
        where=one.where[:2] if one.in_args else one.where,
        message=message,
        on_key=one.in_args,
        flag=one.word,
        ends_start=True,
        change=change,
    )


def join_with_or(names: tuple[str, ...]) -> str:
    shown_names = [*names[:4], *([f"{len(names) - 4} more"] if len(names) > 4 else [])]
    return " or ".join(filter(None, (", ".join(shown_names[:-1]), shown_names[-1])))


__all__ = ["check_flags", "check_flags_by_catalogue", "collect_profile_flags"]


def check_flags(
    profile: Profile,
    engine: Engine,
    catalogue: FlagCatalogue,
    others: tuple[FlagCatalogue, ...] = (),
    foreign: tuple[tuple[str, FlagCatalogue], ...] = (),
    *,
    is_certain: bool = True,
    version: str | None = None,
) -> tuple[LintMessage, ...]:
    """Return the diagnostics of a profile's flags.

    ``others``: the engine's other versions; ``foreign``: other engines' flags, by title. ``is_certain``: the catalogue
    is that of the running version; otherwise only a flag that no known version takes is an error, and nothing is if
    only this version is known. A value that no known version takes is a warning where ``version``, the running one, is
    between others. A partial catalogue only informs.
    """
    module = load_engine_part(engine.name, "lint")  # without it only the catalogue decides
    context = LintContext(
        title=engine.title,
        catalogue=catalogue,
        others=others,
        foreign=foreign,
        lore=module.FLAG_ADVICE if module else FlagAdvice(),
        version=version,
    )
    flags = collect_profile_flags(profile)
    found = list(_allow_patched_flags(check_flags_by_catalogue(flags, context), profile, context))
    if is_certain:
        found = _name_newer_versions(found, flags, context)
    else:
        for other in reversed(others):  # the newest that takes it is named
            if not any(map(_is_error, found)):
                break
            rest = (catalogue, *(one for one in others if one is not other))
            there = check_flags_by_catalogue(flags, replace(context, catalogue=other, others=rest))
            refused = {(one.where, one.flag) for one in there if _is_error(one)}
            found = [
                _downgrade_uncertain(one, other, context)
                if _is_error(one) and (one.where, one.flag) not in refused
                else one
                for one in found
            ]
        if version is not None and _is_far_from_known(version, (catalogue, *others)):
            found = [
                _downgrade_unknown_choice(one, version, context)
                if _is_error(one) and one.kind is LintRule.BAD_CHOICE
                else one
                for one in found
            ]
        if not others:
            found = [_warn_unknown_version(one, context) if _is_error(one) else one for one in found]
    if catalogue.partial:
        found = [_downgrade_partial(one) if _is_error(one) else one for one in found]
    readings = _match_flags(flags, catalogue)
    found += flag_combinations.check_repeated_flags(readings, context)
    settings = FlagSettings(readings, catalogue)
    if has_ignored_args(profile):
        found.append(flag_combinations.build_ignored_args_message(profile))
    if module:
        found += module.check_engine_flags(profile, settings, context)
    found += flag_combinations.check_port_and_name(profile, settings, engine.defaults.port)
    size = settings.get_setting("--tensor-parallel-size") or settings.get_setting("--pipeline-parallel-size")
    if size is not None:
        found += flag_combinations.check_rank_count(
            profile, engine.read_decoding_settings(engine.build_command(profile)).ranks, size.where
        )
    if has_ignored_args(profile):
        found = [_drop_lost_edit(one) for one in found]
    return tuple(found)


def read_flag_settings(profile: Profile, catalogue: FlagCatalogue) -> FlagSettings:
    """Return the settings of a profile's flags; none of those that no engine reads."""
    return FlagSettings(_match_flags(collect_profile_flags(profile), catalogue), catalogue)


def check_flags_by_catalogue(flags: tuple[ProfileFlag, ...], context: LintContext) -> Iterator[LintMessage]:
    """Yield what the parser alone decides, and values that an engine refuses soon after."""
    named: set[object] = set()
    readings = _match_flags(flags, context.catalogue)
    given = {reading.flag.name for one, reading in readings if reading.flag is not None and not one.left_out}
    for one, reading in readings:
        if not one.left_out and one.where[:2] not in named:
            if remark := check_flag_name(one, reading, context):
                yield remark
            if one.in_args:
                named.add(one.where[:2])  # a list repeats the flag; report its wrong name once
        if reading.flag is None or reading.flag.extended_by not in given:
            yield from check_flag_value(one, reading, context)


def _match_flags(flags: tuple[ProfileFlag, ...], catalogue: FlagCatalogue) -> list[tuple[ProfileFlag, FlagMatch]]:
    level = "-O" if catalogue.dotted else None  # vLLM's -O3: the level is part of the word
    return [(one, match_flag(one.word, catalogue)) for one in flags if level is None or not one.word.startswith(level)]


def _allow_patched_flags(found: Iterable[LintMessage], profile: Profile, context: LintContext) -> Iterator[LintMessage]:
    """Skip flags that the profile lists in ``patched_flags``: they belong to the image."""
    own = {engine_flags.flag_for_key(name).lstrip("-").replace("_", "-") for name in profile.patched_flags}
    named: set[str] = set()
    for one in found:
        name = one.flag.lstrip("-").replace("_", "-")
        whole = name_whole_flag(one.flag, context.catalogue).lstrip("-")
        if not {name, whole} & own or not _is_error(one):
            yield one
        elif name not in named:
            named.add(name)
            message = f"{one.flag} is not checked against {context}: the profile declares that its image differs"
            yield LintMessage(
                kind=LintRule.PATCHED_FLAG, level=LintSeverity.INFO, where=one.where[:2], message=message, flag=one.flag
            )


def name_whole_flag(word: str, catalogue: FlagCatalogue) -> str:
    """Return the name of the flag that ``word`` is short for, with dashes; the word itself for no flag, or a part of its value."""
    reading = match_flag(word, catalogue)
    return word if reading.flag is None or reading.key is not None else reading.flag.name


def _is_error(one: LintMessage) -> bool:
    return one.level is LintSeverity.ERROR


def _downgrade_uncertain(one: LintMessage, other: FlagCatalogue, context: LintContext) -> LintMessage:
    takes = "takes it" if one.kind is not LintRule.BAD_CHOICE or _has_choices(one, other) else "may take it"
    message = f"{one.message}; {context.title} {other.version} {takes}, and which one this image has is not known"
    return replace(one, level=LintSeverity.WARNING, message=message, change=None)


def _name_newer_versions(
    found: list[LintMessage], flags: tuple[ProfileFlag, ...], context: LintContext
) -> list[LintMessage]:
    """Name the later versions that list a refused value: a build after the release, with its number, may take it."""
    release = parse_version(context.catalogue.version)
    wrong = [one for one in found if one.kind is LintRule.BAD_CHOICE]
    takers: dict[tuple[FieldPath, str], str] = {}
    for other in sorted(context.others, key=lambda each: parse_version(each.version)):
        if parse_version(other.version) <= release or len(takers) == len(wrong):
            continue
        there = check_flags_by_catalogue(flags, replace(context, catalogue=other))
        refused = {(each.where, each.flag) for each in there if _is_error(each) or each.kind is LintRule.BAD_CHOICE}
        taken = [(one.where, one.flag) for one in wrong if _has_choices(one, other)]
        takers = dict.fromkeys((each for each in taken if each not in refused), other.version) | takers
    return [
        replace(
            one,
            message=f"{one.message}; {context.title} {taker} takes it, and so may a build made after the release of "
            f"{context.catalogue.version}: list {one.flag.lstrip('-')} in patched_flags then",
            ends_start=False,
        )
        if one.kind is LintRule.BAD_CHOICE and (taker := takers.get((one.where, one.flag)))
        else one
        for one in found
    ]


def _has_choices(one: LintMessage, catalogue: FlagCatalogue) -> bool:
    """Tell whether a catalogue lists the values of what a message is about: where it does not, it takes none and refuses none."""
    reading = match_flag(one.flag, catalogue)
    if reading.flag is None:
        return False
    if reading.flag.keys is None:
        return reading.flag.choices is not None or reading.flag.values is not None
    return bool(dict(reading.flag.keys).get((reading.key or str(one.where[-1])).replace("-", "_")))


def _warn_unknown_version(one: LintMessage, context: LintContext) -> LintMessage:
    """Turn an error into a warning: no flags are known of the running version, nor of another one that might take the flag."""
    which = "" if context.version else f"; which version of {context.title} this image has is not known"
    return replace(one, level=LintSeverity.WARNING, message=one.message + which)


def _is_far_from_known(version: str, known: Iterable[FlagCatalogue]) -> bool:
    """Tell whether no catalogue is of the same major and minor version: the values of a flag change from one to another."""
    return all(parse_version(one.version)[:2] != parse_version(version)[:2] for one in known)


def _downgrade_unknown_choice(one: LintMessage, version: str, context: LintContext) -> LintMessage:
    message = f"{one.message}; the values that {context.title} {version} takes are not known, it may have this one"
    return replace(one, level=LintSeverity.WARNING, message=message, change=None)


def _downgrade_partial(one: LintMessage) -> LintMessage:
    message = f"{one.message}; the list of its flags here is partial"
    return replace(one, level=LintSeverity.INFO, message=message, change=None)


def _drop_lost_edit(one: LintMessage) -> LintMessage:
    """Remove the fix if an added flag would have no effect in ``args`` either."""
    change: LintFix | None = one.change
    return replace(one, change=None) if change is not None and change.kind is LintFixKind.ADD else one
