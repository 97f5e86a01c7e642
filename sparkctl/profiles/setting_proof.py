"""Proves the changes that a command proposes: the check of the flags and the memory estimate accept them, as `profiles
check` and `plan` will. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparkctl.engines.lint import LintMessage, LintRule, LintSeverity
from sparkctl.errors import InvalidInput
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.profile import Profile
from sparkctl.model.verdict import FieldChange, Verdict
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import StartWarning, lint_profile

_MAX_CHANGES = 4  # settings that one proposal may have

FitsOfProfile = Callable[[Profile], Sequence[MemoryFit]]
# The profile with these fields changed. Raises `InvalidInput`.
LoadWithChanges = Callable[[Sequence[FieldChange]], Profile]
# A command with these fields changed.
CommandWithChanges = Callable[..., str]


@dataclass(frozen=True, slots=True)
class SettingProof:
    """``words``: the profile and its overrides, as typed (NAME, --set, FIELD=VALUE, …). ``evaluate_fits``: the memory
    estimate of a changed profile on each node of its start; without it only the flags are checked.
    """

    words: Sequence[str]
    library: ProfileLibrary
    evaluate_fits: FitsOfProfile | None = None

    def prove_changes(self, *changes: FieldChange) -> tuple[FieldChange, ...] | None:
        """Return the changes to propose: these, and what the check or the estimate wants besides; None where no start
        with them would be accepted.
        """
        try:
            known = [one for one in _list_objections(self._load_profile(())) if not _is_mendable_trap(one)]
            return _complete_changes(changes, known, self._load_profile, self._list_fits)
        except InvalidInput:
            return None

    def format_remedy(self, warning: StartWarning, again: CommandWithChanges) -> str | None:
        """Return how to avoid what a warning says: a command, other profiles, or both; None where nothing is accepted.

        ``again``: the command of the start, with these changes.
        """
        changes = None if warning.setting is None else self.prove_changes(_parse_setting(warning.setting))
        ways = [] if changes is None else [again(*changes)]
        others = [name for name in warning.instead if self._fits_on_nodes(name)]
        ways += [f"start {' or '.join(others)} instead"] if others else []
        return ", or ".join(ways) or None

    def prove_verdict(self, verdict: Verdict, again: CommandWithChanges) -> Verdict:
        """Return a verdict with the command that tries its change; without either where no start would be accepted."""
        if verdict.edit is None:
            return verdict
        changes = self.prove_changes(verdict.edit)
        if changes is None:
            return replace(verdict, edit=None, again=None)
        own = next((one for one in changes if one.field == verdict.edit.field), verdict.edit)
        return replace(verdict, edit=replace(verdict.edit, value=own.value), again=again(*changes))

    def _fits_on_nodes(self, name: str) -> bool:
        try:
            return not any(one.is_refused for one in self._list_fits(self.library.load_profile(name)))
        except InvalidInput:
            return False

    def _list_fits(self, profile: Profile) -> Sequence[MemoryFit]:
        return () if self.evaluate_fits is None else self.evaluate_fits(profile)

    def _load_profile(self, changes: Sequence[FieldChange]) -> Profile:
        name, *pairs = self.words
        return self.library.load_profile(name, [*pairs[1::2], *(one.set_argument for one in changes)])


def list_proved_settings(setting: str, load_profile: LoadWithChanges) -> tuple[str, ...]:
    """Return what to set for one start by the ``setting`` of a diagnostic, each ``field=value``: it, and what the check
    wants besides once it is set. Empty where no such start is accepted, and where only a node can tell whether it fits.
    """
    try:
        known = lint_profile(load_profile(()))
        changes = _complete_changes((_parse_setting(setting),), known, load_profile, lambda profile: ())
        if changes is None:
            return ()
        raised = [one for one in lint_profile(load_profile(changes)) if one not in known]
    except InvalidInput:
        return ()
    if any(one.kind is LintRule.MEMORY_SHARE for one in raised):
        return ()
    return tuple(one.set_argument for one in changes)


def _complete_changes(
    changes: Sequence[FieldChange],
    known: Sequence[LintMessage],
    load_profile: LoadWithChanges,
    list_fits: FitsOfProfile,
) -> tuple[FieldChange, ...] | None:
    """Return the changes with what the check (beside what it has ``known`` before) and the estimate want besides."""
    proposed = tuple(changes)
    while len(proposed) <= _MAX_CHANGES:
        profile = load_profile(proposed)
        objection = next((one for one in _list_objections(profile) if one not in known), None)
        if objection is not None:
            wanted = None if objection.setting is None else _parse_setting(objection.setting)
        else:
            refused = next((one for one in list_fits(profile) if one.is_refused), None)
            if refused is None:
                return proposed
            is_in_the_way = refused.answer is FitOutcome.IF_STOPPED  # then no share is the answer
            wanted = None if is_in_the_way else refused.largest or refused.least
        if wanted is None or wanted.set_argument in [one.set_argument for one in proposed]:
            return None
        proposed = _replace_change(proposed, wanted)
    return None


def _list_objections(profile: Profile) -> list[LintMessage]:
    """Return what the check has against a profile: errors, warnings, and remarks that name a better value."""
    found = lint_profile(profile)
    return [one for one in found if one.level is not LintSeverity.INFO or one.setting is not None]


def _is_mendable_trap(one: LintMessage) -> bool:
    """Tell whether it is known to fail and how to avoid it: no command repeats that."""
    return one.kind is LintRule.KNOWN_TRAP and one.level is not LintSeverity.INFO and one.setting is not None


def _parse_setting(setting: str) -> FieldChange:
    field, _, value = setting.partition("=")
    return FieldChange(field, value)


def _replace_change(changes: Sequence[FieldChange], wanted: FieldChange) -> tuple[FieldChange, ...]:
    return (*(one for one in changes if one.field != wanted.field), wanted)
