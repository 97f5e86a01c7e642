"""Check a whole profile: the faults of its file, its flags against the engine's flag catalogue, and known traps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkctl import engines
from sparkctl.engines import engine_flags
from sparkctl.engines.engine_flags import CatalogueChoice, CatalogueMatch
from sparkctl.engines.lint import FieldPath, LintFix, LintMessage, LintRule, LintSeverity, flag_check
from sparkctl.engines.traps.profile_traps import check_traps
from sparkctl.errors import InvalidInput, OperationRefused
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import FitOutcome, MemoryFit
from sparkctl.model.phase import Phase
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import find_secret_arguments, find_secret_values, list_secret_spellings, redact
from sparkctl.model.text.units import format_duration
from sparkctl.model.verdict import FieldChange
from sparkctl.profiles import yaml_reader
from sparkctl.profiles.env_references import find_engine_secrets, list_literal_values, read_env_file_pairs
from sparkctl.profiles.yaml_reader import FileIssue, FilePosition, InvalidFile, YamlValue

if TYPE_CHECKING:
    from sparkctl.profiles.profile_library import ProfileLibrary


_MAX_CHANGES = 4  # settings that one proposal may have

TimeOfPhases = Mapping[Phase, float]
_NOT_MEASURED: TimeOfPhases = MappingProxyType({})
# The longest seconds of each phase of such a start, as `OperationHistory.find_longest_phases` reads them.
FindTimes = Callable[[Profile], TimeOfPhases]
FitsOfProfile = Callable[[Profile], Sequence[MemoryFit]]
# The profile with these fields changed. Raises `InvalidInput`.
LoadWithChanges = Callable[[Sequence[FieldChange]], Profile]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintDiagnostic:
    """One diagnostic with its position in a file. ``setting``: the ``field=value`` that fixes it; ``settings``: all that
    one start with it wants, empty where only the start's own check tells (`list_proved_settings`).
    """

    place: FilePosition
    level: LintSeverity
    kind: LintRule
    message: str
    setting: str | None = None
    settings: tuple[str, ...] = ()
    change: LintFix | None = None

    def __str__(self) -> str:
        mends = f" ({' '.join(f'--set {one}' for one in self.settings)})" if self.settings else ""
        if self.setting and not self.settings:
            mends = " (`sparkctl up PROFILE --node NODE --dry-run` names the settings that fit)"
        return redact(sanitize_line(f"{self.place}: {self.level}[{self.kind}]: {self.message}{mends}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWarning:
    """A warning before a start. ``setting``: the ``field=value`` that fixes it; ``instead``: profiles to start instead.

    ``settings``: of an import, as those of `LintDiagnostic`; a start proves them on its nodes.
    ``refused_flag``: the flag that the very version of the image does not take so, by its catalogue; None for all else.
    ``is_patchable``: whether a patched image may take that flag so.
    """

    message: str
    setting: str | None
    instead: tuple[str, ...]
    refused_flag: str | None
    is_patchable: bool = False
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LintResult:
    """``catalogue``: the flag catalogue that was used, None for an engine without one and for a file that is not a profile."""

    path: Path
    diagnostics: tuple[LintDiagnostic, ...]
    catalogue: CatalogueChoice | None = None

    def list_by_level(self, level: LintSeverity) -> tuple[LintDiagnostic, ...]:
        return tuple(one for one in self.diagnostics if one.level is level)


def find_no_times(profile: Profile) -> TimeOfPhases:
    """Return no time: nothing was measured."""
    return _NOT_MEASURED


def lint_profile_file(
    library: ProfileLibrary,
    path: Path,
    version: str | None = None,
    find_times: FindTimes = find_no_times,
) -> LintResult:
    """Return all diagnostics of a profile's file, from top to bottom.

    ``version``: check against the flags of this engine version instead of the image's; ``find_times``: what `lint_profile` calls
    ``took``. Raises `InvalidInput` for a file
    that cannot be read.
    """

    def load_changed(changes: Sequence[FieldChange]) -> Profile:
        return library.load_with_positions(path, [one.set_argument for one in changes])[0]

    try:
        profile, tree = library.load_with_positions(path)
    except InvalidFile as error:
        return LintResult(path, tuple(_issue_to_diagnostic(fault) for fault in error.faults))
    chosen = engine_flags.choose_catalogue(profile.engine, profile.image, profile.engine_version, version)
    secrets = _find_lint_secrets(profile)
    found = [
        replace(one, settings=list_proved_settings(one.setting, load_changed)) if one.setting else one
        for one in (
            _build_diagnostic(message, tree, secrets) for message in lint_profile(profile, chosen, find_times(profile))
        )
    ]
    if chosen is not None and chosen.basis is not CatalogueMatch.EXACT:
        found.append(_build_diagnostic(_build_version_message(profile, chosen), tree, secrets))
    found += _check_env_file(profile, tree)
    found += [_build_diagnostic(one, tree, secrets) for one in _check_model_mount(profile)]
    return LintResult(path, _sort_diagnostics(found), chosen)


def _check_model_mount(profile: Profile) -> Iterator[LintMessage]:
    """Yield a warning for a model's path that only the image itself could hold."""
    path = profile.model.path or ""
    targets = [mount.split(":")[1].rstrip("/") for mount in profile.mounts]
    if path.startswith("/") and not any(f"{path}/".startswith(f"{target}/") for target in targets):
        message = f"{path} is in no mount of the profile: the engine finds it only if the image holds it"
        yield LintMessage(
            kind=LintRule.CONTAINER_SETTING,
            level=LintSeverity.WARNING,
            where=("model", "path"),
            message=message,
            on_key=False,
        )


def _check_env_file(profile: Profile, tree: YamlValue) -> list[LintDiagnostic]:
    """Return what a start refuses in the env_file, or else the values that its reader may not expect."""
    try:
        return [replace(_issue_to_diagnostic(one), level=LintSeverity.WARNING) for one in list_literal_values(profile)]
    except InvalidFile as error:
        return [_issue_to_diagnostic(fault) for fault in error.faults]
    except InvalidInput as error:
        place = _find_field_position(("env_file",), tree, on_key=False)
        return [_issue_to_diagnostic(FileIssue(place, error.message))]


def lint_profile(
    profile: Profile, chosen: CatalogueChoice | None = None, took: TimeOfPhases = _NOT_MEASURED
) -> tuple[LintMessage, ...]:
    """Return the diagnostics of a profile: its flags, where the engine has a catalogue, the known traps that it shows, and
    limits that such a start has exceeded.

    ``took``: the longest seconds of each phase of such a start, as far as it was measured.
    """
    loading = took.get(Phase.LOADING)
    chosen = chosen or engine_flags.choose_catalogue(profile.engine, profile.image, profile.engine_version)
    variables = _read_file_variables(profile)
    if chosen is None:
        traps = check_traps(profile, None, profile.engine_version, loading, variables)
        return (*traps, *_check_time_limits(profile, took))
    settings = flag_check.read_flag_settings(profile, chosen.catalogue)
    traps = check_traps(profile, settings, chosen.version, loading, variables)
    around = (*traps, *_check_time_limits(profile, took))
    flags = flag_check.check_flags(
        profile,
        engines.load_engine(profile.engine),
        chosen.catalogue,
        engine_flags.load_other_versions(chosen.catalogue),
        tuple((engines.load_engine(one.engine).title, one) for one in engine_flags.load_other_engines(profile.engine)),
        is_certain=chosen.basis is CatalogueMatch.EXACT,
        version=chosen.version,
    )
    return _join_same_places(flags, around)


def _read_file_variables(profile: Profile) -> list[tuple[str, str]]:
    """Return what the profile's env_file sets; nothing where it cannot be read: a check of the file says so, a start refuses it."""
    try:
        return read_env_file_pairs(profile)
    except InvalidInput:
        return []


def _check_time_limits(profile: Profile, took: TimeOfPhases) -> Iterator[LintMessage]:
    """Yield a warning for each limit that such a start has exceeded."""
    limits = profile.start.timeouts
    for field in fields(limits):
        limit, seconds = getattr(limits, field.name), took.get(Phase(field.name), 0.0)
        if seconds > limit:
            name = f"start.timeouts.{field.name}"
            yield LintMessage(
                kind=LintRule.TIME_LIMIT,
                level=LintSeverity.WARNING,
                where=tuple(name.split(".")),
                message=f"{name} {format_duration(limit)} is shorter than such a start took: {format_duration(seconds)}",
                on_key=False,
                setting=f"{name}={math.ceil(2 * seconds / 60)}m",  # twice the time: the next start may take longer
            )


def _join_same_places(flags: tuple[LintMessage, ...], traps: tuple[LintMessage, ...]) -> tuple[LintMessage, ...]:
    """Return both, with one message for a value that the catalogue refuses and a trap explains: the trap knows what was meant."""
    refused = {one.where for one in flags if one.kind is LintRule.BAD_CHOICE}
    # a trap that changes another setting is for a value that the engine takes
    known = {
        one.where: one
        for one in traps
        if one.where in refused
        and (one.setting is None or one.setting.partition("=")[0] == ".".join(map(str, one.where)))
    }
    joined = [
        replace(one, message=f"{one.message.partition('; ')[0]}: {trap.message}", setting=trap.setting)
        if one.kind is LintRule.BAD_CHOICE and (trap := known.get(one.where))
        else one
        for one in flags
    ]
    return (*joined, *(one for one in traps if one.where not in refused))


def list_start_warnings(
    profile: Profile, library: ProfileLibrary | None = None, took: TimeOfPhases = _NOT_MEASURED
) -> tuple[StartWarning, ...]:
    """Return the warnings before a start: each error and warning, with its possible fixes.

    ``library``: where to look for relatives of the profile without this trap; ``took`` as in `lint_profile`.
    """
    secrets = _find_lint_secrets(profile)
    chosen = engine_flags.choose_catalogue(profile.engine, profile.image, profile.engine_version)
    is_certain = chosen is not None and chosen.basis is CatalogueMatch.EXACT
    found = [one for one in lint_profile(profile, chosen, took) if one.level is not LintSeverity.INFO]
    has_trap = any(one.kind is LintRule.KNOWN_TRAP for one in found)
    others = _list_trap_free_relatives(profile, library) if library is not None and has_trap else ()
    return tuple(
        StartWarning(
            message=redact(sanitize_line(one.message), secrets),
            setting=one.setting,
            instead=others if one.kind is LintRule.KNOWN_TRAP else (),
            refused_flag=sanitize_line(flag_check.name_whole_flag(one.flag, chosen.catalogue))
            if chosen is not None and is_certain and one.ends_start and one.level is LintSeverity.ERROR
            else None,
            is_patchable=one.kind in _PATCHABLE_RULES,
        )
        for one in found
    )


def refuse_wrong_flags(found: Iterable[StartWarning], remedy: str | None, way_out: str, profile: str) -> None:
    """Raise `OperationRefused` where the image's version does not take a flag. ``remedy``: the command
    without it; ``way_out``: the one that starts it as it is; ``profile``: its name.
    """
    wrong = [one for one in found if one.refused_flag is not None]
    if wrong:
        names = ", ".join(dict.fromkeys((one.refused_flag or "").lstrip("-") for one in wrong if one.is_patchable))
        patched = f"if your image is patched and takes it: patched_flags: [{names}] in the profile" if names else ""
        correct = f"correct it; if it stands in a file, its line: sparkctl profiles check {profile}"
        hints = (remedy, correct, "; ".join(filter(None, (patched, way_out))))
        raise OperationRefused(
            "\n".join(dict.fromkeys(one.message for one in wrong)), "\n".join(filter(None, hints)) or None
        )


_PATCHABLE_RULES = frozenset({LintRule.UNKNOWN_FLAG, LintRule.BAD_CHOICE, LintRule.BAD_KEY})


def list_patchable_flags(profile: Profile) -> tuple[str, ...]:
    """Return the flags that the catalogue refuses and a patched image may take (`Profile.patched_flags`), with dashes."""
    refused = (one for one in lint_profile(profile) if one.kind in _PATCHABLE_RULES and one.level is LintSeverity.ERROR)
    return tuple(dict.fromkeys(sanitize_line(one.flag) for one in refused if one.flag.startswith("--")))


def _list_trap_free_relatives(profile: Profile, library: ProfileLibrary) -> tuple[str, ...]:
    """Return the relatives that need as many nodes and have no known trap."""
    found = [library.load_entry(name).profile for name in library.list_relatives(profile.name)]
    return tuple(one.name for one in found if one and one.nodes == profile.nodes and not _has_trap(one))


def _has_trap(profile: Profile) -> bool:
    return any(one.kind is LintRule.KNOWN_TRAP for one in lint_profile(profile))


def _build_version_message(profile: Profile, chosen: CatalogueChoice) -> LintMessage:
    """Say which version's flags were used, if it is not the version that runs."""
    used, title = chosen.catalogue.version, engines.load_engine(profile.engine).title
    if chosen.basis is CatalogueMatch.NEAREST:
        is_before = engine_flags.parse_version(used) < engine_flags.parse_version(chosen.version or "")
        which = "the newest known before it" if is_before else "the oldest known"
        message = f"the flags of {title} {chosen.version} are not known; checked against those of {used}, {which}"
        return LintMessage(
            kind=LintRule.ENGINE_VERSION, level=LintSeverity.INFO, where=("image",), message=message, on_key=False
        )
    message = (
        f"the image's tag does not show the version of {title}: checked against the flags of {used}, the newest known; "
        "say engine_version: to be sure"
    )
    return LintMessage(
        kind=LintRule.ENGINE_VERSION, level=LintSeverity.INFO, where=("image",), message=message, on_key=False
    )


def _build_diagnostic(one: LintMessage, tree: YamlValue, secrets: frozenset[str]) -> LintDiagnostic:
    return LintDiagnostic(
        place=_find_field_position(one.where, tree, on_key=one.on_key),
        level=one.level,
        kind=one.kind,
        message=redact(sanitize_line(one.message), secrets),
        setting=one.setting,
        change=one.change,
    )


def _find_lint_secrets(profile: Profile) -> frozenset[str]:
    """Return the profile's secrets, so that no message repeats them: one flag's secret may be in another's value."""
    given = [(one.word, value) for one in flag_check.collect_profile_flags(profile) for value in one.values]
    return (
        list_secret_spellings(find_engine_secrets(profile, {}))
        | find_secret_values([*profile.env, *given])
        | find_secret_arguments(profile.command or ())
    )


def _find_field_position(where: FieldPath, tree: YamlValue, *, on_key: bool) -> FilePosition:
    return yaml_reader.find_position(tree, where, key=on_key)


def _issue_to_diagnostic(fault: FileIssue) -> LintDiagnostic:
    return LintDiagnostic(place=fault.place, level=LintSeverity.ERROR, kind=LintRule.PROFILE, message=fault.message)


def _sort_diagnostics(found: list[LintDiagnostic]) -> tuple[LintDiagnostic, ...]:
    """Return diagnostics in the order of the files, from top to bottom in each, the worst first at the same position."""
    files = {one.place.file: index for index, one in reversed(list(enumerate(found)))}
    levels = list(LintSeverity)

    def diagnostic_sort_key(one: LintDiagnostic) -> tuple[int, int, int, int]:
        return files[one.place.file], one.place.line or 0, one.place.column or 0, levels.index(one.level)

    return tuple(sorted(dict.fromkeys(found), key=diagnostic_sort_key))


def list_proved_settings(setting: str, load_profile: LoadWithChanges) -> tuple[str, ...]:
    """Return what to set for one start by the ``setting`` of a diagnostic, each ``field=value``: it, and what the check
    wants besides once it is set. Empty where no such start is accepted, and where only a node can tell whether it fits.
    """
    try:
        known = lint_profile(load_profile(()))
        changes = complete_changes((parse_setting_change(setting),), known, load_profile, lambda profile: ())
        if changes is None:
            return ()
        raised = [one for one in lint_profile(load_profile(changes)) if one not in known]
    except InvalidInput:
        return ()
    if any(one.kind is LintRule.MEMORY_SHARE for one in raised):
        return ()
    return tuple(one.set_argument for one in changes)


def complete_changes(
    changes: Sequence[FieldChange],
    known: Sequence[LintMessage],
    load_profile: LoadWithChanges,
    list_fits: FitsOfProfile,
) -> tuple[FieldChange, ...] | None:
    """Return the changes with what the check (beside what it has ``known`` before) and the estimate want besides.

    A field that a change removes is not set again: the engine may not know it.
    """
    removed = {one.field for one in changes if one.removes}
    proposed = tuple(changes)
    while len(proposed) <= _MAX_CHANGES:
        profile = load_profile(proposed)
        objection = next((one for one in list_objections(profile) if one not in known), None)
        if objection is not None:
            wanted = None if objection.setting is None else parse_setting_change(objection.setting)
        else:
            refused = next((one for one in list_fits(profile) if one.is_refused), None)
            if refused is None:
                return proposed
            is_in_the_way = refused.answer is FitOutcome.IF_STOPPED  # then no share is the answer
            wanted = None if is_in_the_way else refused.largest or refused.least
        if wanted is None or wanted.field in removed or wanted.set_argument in [one.set_argument for one in proposed]:
            return None
        proposed = (*(one for one in proposed if one.field != wanted.field), wanted)
    return None


def list_objections(profile: Profile) -> list[LintMessage]:
    """Return what the check has against a profile: errors, warnings, and remarks that name a better value."""
    found = lint_profile(profile)
    return [one for one in found if one.level is not LintSeverity.INFO or one.setting is not None]


def is_mendable_trap(one: LintMessage) -> bool:
    """Tell whether it is known to fail and how to avoid it: no command repeats that."""
    return one.kind is LintRule.KNOWN_TRAP and one.level is not LintSeverity.INFO and one.setting is not None


def parse_setting_change(setting: str) -> FieldChange:
    field, _, value = setting.partition("=")
    return FieldChange(field, value)


_FLAG_NAME_RULES = frozenset({LintRule.UNKNOWN_FLAG, LintRule.REMOVED_FLAG, LintRule.AMBIGUOUS_FLAG})


def _find_flag_name(profile: Profile, chosen: engine_flags.CatalogueChoice) -> LintMessage | None:
    return next((one for one in lint_profile(profile, chosen) if one.kind in _FLAG_NAME_RULES), None)


def suggest_flag_name(engine: str, flag: str, version: str | None, image: str = "") -> str | None:
    """Return a sentence on an unknown flag (no dashes, as in ``args``): a similar one, its new name, or the engine it
    belongs to.

    ``version``: the engine's; if None, the ``image``'s tag decides, else the newest known one. None: there is nothing
    to say.
    """
    chosen = engine_flags.choose_catalogue(engine, image, version)
    if chosen is None:
        return None
    profile = Profile(name="asked", engine=engine, image="", origin="", shipped=False, args=((flag, True),))
    found = _find_flag_name(profile, chosen)
    if (
        found is None and chosen.basis is not engine_flags.CatalogueMatch.EXACT
    ):  # the image, which refused it, is of another version
        others = (replace(chosen, catalogue=one) for one in engine_flags.load_other_versions(chosen.catalogue))
        found = next((one for other in others if (one := _find_flag_name(profile, other)) is not None), None)
        return None if found is None else found.message
    if found is None:
        return None
    if chosen.basis is engine_flags.CatalogueMatch.EXACT:
        return found.message
    which = "the newest that is known" if chosen.version is None else f"the nearest to {chosen.version} that is known"
    if chosen.catalogue.version in found.message:
        return f"{found.message}; that version is {which}"
    return f"{found.message}: by the flags of {chosen.catalogue.version}, {which}"
