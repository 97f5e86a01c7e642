"""A flag's name: is there such a flag in this version, is it whole, has it another name now, or is it another engine's."""

from __future__ import annotations

from sparkctl.engines import command_builder
from sparkctl.engines.flags.model import EngineFlag, FlagCatalogue, parse_version
from sparkctl.engines.held import LintContext
from sparkctl.engines.lint.model import LintFix, LintFixKind, LintMessage, LintRule, LintSeverity
from sparkctl.engines.profile_flags import ProfileFlag
from sparkctl.engines.reading import FlagMatch, FlagMatchKind, match_flag
from sparkctl.model.sanitize import sanitize_line, truncate_text
from sparkctl.model.suggest import find_closest_match

_LIKE = 0.8  # of a long name much is alike by chance
_SLIP = 2  # letters at the end of a name that are missing by mistake, not to write less


def check_flag_name(one: ProfileFlag, reading: FlagMatch, held: LintContext) -> LintMessage | None:
    """Return what is to be said of a flag's name, None where it is good."""
    if reading.how is FlagMatchKind.EXACT and reading.flag is not None:
        return _deprecated(one, reading.name, reading.flag, held)
    if reading.how is FlagMatchKind.ABBREVIATED:
        is_slip = _is_truncation_slip(reading.name, one.word)
        fragile = "a flag that begins alike in another version would break it"
        message = f"{format_flag(one.word)} is short for {reading.name}; {fragile}"
        if is_slip:
            message = f"{format_flag(one.word)} lacks the end of {reading.name}; {held} still takes it for that, and {fragile}"
        level = LintSeverity.WARNING if is_slip else LintSeverity.INFO
        return _remark(LintRule.ABBREVIATED_FLAG, level, one, message, _rename(one, reading.name))
    if reading.how is FlagMatchKind.AMBIGUOUS:
        return _ambiguous(one, reading, held)
    return _unknown(one, reading, held)


def _is_truncation_slip(name: str, word: str) -> bool:
    """Tell an abbreviation that looks like a slip: one or two letters are missing of a word; on purpose one leaves whole words."""
    rest = name[len(word.partition("=")[0]) :]
    return 0 < len(rest) <= _SLIP and "-" not in rest and "_" not in rest


def format_flag(word: str) -> str:
    """Return a flag for a message."""
    return truncate_text(sanitize_line(word), 60)


def _deprecated(one: ProfileFlag, name: str, flag: EngineFlag, held: LintContext) -> LintMessage | None:
    if name in flag.hidden:
        kept = [alias for alias in flag.aliases if alias not in flag.hidden]
        instead = f"; it is {kept[-1]} now" if kept else ""
        return _remark(
            LintRule.DEPRECATED_FLAG,
            LintSeverity.INFO,
            one,
            f"{name} is an old spelling{instead}, and {held} still takes it",
        )
    if not flag.deprecated:
        return None
    instead = f"; use {flag.replacement}" if flag.replacement else ""
    new = held.catalogue.by_name.get(flag.replacement or "")
    change = _rename(one, new.name) if new is not None and new.takes is flag.takes else None
    return _remark(
        LintRule.DEPRECATED_FLAG, LintSeverity.WARNING, one, f"{name} is deprecated in {held}{instead}", change
    )


def _ambiguous(one: ProfileFlag, reading: FlagMatch, held: LintContext) -> LintMessage:
    message = f"{format_flag(one.word)} could be {join_with_or(reading.matches)} in {held}, which refuses it"
    if earlier := _earlier(reading.name, held):
        message += f"; in {earlier.version} it was a flag of its own"
    new = held.lore.names.get(reading.name)
    if new in held.catalogue.by_name:
        message += f"; what it meant is {new} now"
    words = held.lore.words.get(reading.name)
    return _remark(
        LintRule.AMBIGUOUS_FLAG,
        LintSeverity.ERROR,
        one,
        message + (f"; {words}" if words else ""),
        _new_name(one, reading.name, held),
    )


def _unknown(one: ProfileFlag, reading: FlagMatch, held: LintContext) -> LintMessage:
    name, has = format_flag(reading.name), held.catalogue.by_name
    dashed = reading.name.replace("_", "-")
    if dashed != reading.name and dashed in has:
        message = f"{held} does not know {name}: its flags are written with dashes, {dashed}"
        return _remark(LintRule.UNKNOWN_FLAG, LintSeverity.ERROR, one, message, _rename(one, dashed))
    underscored = f"--{reading.name.lstrip('-').replace('-', '_')}"
    if underscored != reading.name and underscored in has:
        message = f"{held} does not know {name}: its flags are written with underscores, {underscored}"
        return _remark(LintRule.UNKNOWN_FLAG, LintSeverity.ERROR, one, message, _rename(one, underscored))
    single = reading.name[1:]
    if len(single) > 2 and single.startswith("-") and single in has and reading.name not in held.lore.names:
        message = f"{held} does not know {name}: it is {single}, with one dash, or {has[single].name}"
        return _remark(LintRule.UNKNOWN_FLAG, LintSeverity.ERROR, one, message, _rename(one, has[single].name))
    earlier, words = _earlier(reading.name, held), held.lore.words.get(reading.name)
    message = f"{held} has no flag {name}"
    if earlier:
        message += f", which {earlier.version} had"
    elif later := _known_in(reading.name, held.others):
        message += f", which {later[0].version} has"
    elif owners := [title for title, other in held.foreign if _knows(reading.name, other)]:
        message += f": it is a flag of {join_with_or(tuple(owners))}"
    new = held.lore.names.get(reading.name)
    if new in has:
        message += f"; {'it is' if earlier else 'here it is'} {new}"
    elif words is None and (near := find_closest_match(reading.name, has, _LIKE)):
        message += f"; did you mean {near}?"
    kind = LintRule.REMOVED_FLAG if earlier else LintRule.UNKNOWN_FLAG
    return _remark(
        kind, LintSeverity.ERROR, one, message + (f"; {words}" if words else ""), _new_name(one, reading.name, held)
    )


def _earlier(name: str, held: LintContext) -> FlagCatalogue | None:
    """Return the newest of the older versions that has a flag of this name."""
    older = [one for one in held.others if parse_version(one.version) < parse_version(held.catalogue.version)]
    found = _known_in(name, tuple(older))
    return found[-1] if found else None


def _known_in(name: str, catalogues: tuple[FlagCatalogue, ...]) -> list[FlagCatalogue]:
    found = [one for one in catalogues if name in one.by_name]
    return sorted(found, key=lambda one: parse_version(one.version))


def _knows(name: str, catalogue: FlagCatalogue) -> bool:
    return match_flag(name, catalogue).how is FlagMatchKind.EXACT


def _new_name(one: ProfileFlag, name: str, held: LintContext) -> LintFix | None:
    """Return the edit to the name that a flag has here, where the value means the same under both."""
    new = held.lore.names.get(name)
    return None if new not in held.catalogue.by_name or name in held.lore.not_alike else _rename(one, new or "")


def _rename(one: ProfileFlag, name: str) -> LintFix | None:
    """Return the edit of a key in ``args``, written with dashes or without as it was."""
    if not one.in_args:
        return None
    bare = name.lstrip("-")
    text = name if str(one.where[1]).startswith("-") or command_builder.flag_for_key(bare) != name else bare
    return LintFix(LintFixKind.RENAME, one.where[:2], text)


def _remark(
    kind: LintRule, level: LintSeverity, one: ProfileFlag, message: str, change: LintFix | None = None
) -> LintMessage:
    where = one.where[:2] if one.in_args else one.where
    return LintMessage(kind, level, where, message, on_key=one.in_args, flag=one.word, change=change)


def join_with_or(names: tuple[str, ...]) -> str:
    shown_names = [*names[:4], *([f"{len(names) - 4} more"] if len(names) > 4 else [])]
    return " or ".join(filter(None, (", ".join(shown_names[:-1]), shown_names[-1])))
