"""Proves the changes that a command proposes: the check of the flags and the memory estimate accept them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.profile import Profile
from sparkctl.model.verdict import FieldChange, Verdict
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import (
    FitsOfProfile,
    StartWarning,
    complete_changes,
    is_mendable_trap,
    list_objections,
    parse_setting_change,
)

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
        """Return these changes and what the check or the estimate adds; None where no start with them would be accepted."""
        try:
            known = [one for one in list_objections(self._load_profile(())) if not is_mendable_trap(one)]
            return complete_changes(changes, known, self._load_profile, self._list_fits)
        except InvalidInput:
            return None

    def format_remedy(self, warning: StartWarning, again: CommandWithChanges) -> str | None:
        """Return how to avoid a warning: a command, other profiles, or both; None where nothing helps. ``again``: the start's command."""
        changes = None if warning.setting is None else self.prove_changes(parse_setting_change(warning.setting))
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
