"""Hold a profile against the catalogue of known traps: its flags, environment, image, model, mounts and container. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkctl.engines import load_engine
from sparkctl.engines.engine_flags import FlagArity
from sparkctl.engines.lint import FieldPath, LintMessage, LintRule, LintSeverity
from sparkctl.engines.lint.profile_flags import (
    FlagSettings,
    has_env_reference,
    parse_json_value,
    parse_size_number,
    quote_value,
)
from sparkctl.engines.traps import is_version_within, load_traps, shorten_source
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import Profile
from sparkctl.model.text.units import parse_size

_COMPARISON = re.compile(r"(?P<sign>[<>]=?)(?P<number>[\d.]+)")
_SET, _UNSET, _NOT = "set", "unset", "!"
_BELOW_USUAL = "<usual"  # seconds, fewer than such a start takes


def check_traps(
    profile: Profile, settings: FlagSettings | None, version: str | None, usual: float | None
) -> Iterator[LintMessage]:
    """Yield a message for each known trap that a profile's own settings show.

    ``settings``: its flags, None for an engine without a catalogue; ``version``: the engine's, None if it is not known: then
    no trap of certain versions is named. ``usual``: seconds that such a start takes, None: what the profile expects.
    """

    usual = profile.start.expected if usual is None else usual
    for trap in load_traps():
        if not trap.when or not trap.concerns_engine(profile.engine):
            continue
        if trap.versions is not None and (version is None or not is_version_within(version, trap.versions)):
            continue
        met = (_find_sight(subject, test, usual, profile, settings) for subject, test in trap.when.items())
        sights = [sight for sight in met if sight is not None]
        if len(sights) < len(trap.when):
            continue
        if any(_find_sight(subject, test, usual, profile, settings) for subject, test in trap.unless.items()):
            continue
        first = sights[0]
        value = _quote_text(first.texts[0], next(iter(trap.when))) if first.texts else ""
        text = f"{trap.meaning}: {trap.remedy} ({shorten_source(trap.source)})"
        yield LintMessage(
            kind=LintRule(trap.rule),
            level=LintSeverity(trap.level),
            where=first.where,
            message=text.replace("{name}", str(first.where[-1])).replace("{value}", value),
            on_key=first.is_on_key,
            setting=None if trap.setting is None else _spell_as_given(trap.setting, settings),
        )


def _spell_as_given(setting: str, settings: FlagSettings | None) -> str:
    """Return a trap's ``field=value`` for the spelling of its flag in the profile: two of one flag would be given else."""
    field, _, value = setting.partition("=")
    given = None if settings is None else settings.get_setting(f"--{field.removeprefix('args.')}")
    if not field.startswith("args.") or given is None or not given.in_args or len(given.where) != 2:
        return setting
    own = ".".join(map(str, given.where))
    if own == field:
        return setting
    return f"{own}=null" if given.value is None else f"{own}={value}"  # without a value it is the flag's opposite


@dataclass(frozen=True, slots=True)
class _Sight:
    """What a profile says of one subject: its texts, none if it says nothing, and where."""

    texts: tuple[str, ...]
    where: FieldPath
    is_on_key: bool = False


def _find_sight(
    subject: str, test: str, usual: float | None, profile: Profile, settings: FlagSettings | None
) -> _Sight | None:
    """Return what the profile says of a subject if it meets the test, else None. Of several, with ``|`` between, any may meet it;
    for ``unset`` and ``!`` the first of which the profile says something decides.
    """
    sights = [_look_up_one(one, profile, settings) for one in subject.split("|")]
    if test == _UNSET or test.startswith(_NOT):
        sights = [next((sight for sight in sights if sight.texts), sights[0])]
    return next((sight for sight in sights if _meets(sight, test, usual)), None)


def _look_up_one(subject: str, profile: Profile, settings: FlagSettings | None) -> _Sight:
    if subject.startswith("-"):
        return _look_up_flag(subject, profile, settings)
    head, _, name = subject.partition(".")
    if head == "env":
        return _Sight(tuple(value for key, value in profile.env if key == name)[-1:], ("env", name))
    if head == "container":
        return _look_up_container(name, profile)
    if head == "mounts":
        return _Sight(profile.mounts, ("mounts",), is_on_key=not profile.mounts)
    if head == "command" and name == "none":
        return _Sight(("none",) if profile.command is None else (), ("image",))
    if head == "command":
        return _Sight((" ".join(profile.command),) if profile.command else (), ("command",), is_on_key=True)
    if head == "model":
        return _Sight((profile.model.path,) if profile.model.path else (), ("model", "path"))
    if head == "weights":
        weights = profile.model.weights
        return _Sight(() if weights is None else (str(weights),), ("model", "weights"))
    if head == "api_key":
        return _Sight((profile.api_key,) if profile.api_key else (), ("api_key",))
    if head == "env_file":
        return _Sight((profile.env_file,) if profile.env_file else (), ("env_file",))
    value = {"image": profile.image, "nodes": str(profile.nodes)}[head]
    return _Sight((value,), (head,))


def _look_up_container(name: str, profile: Profile) -> _Sight:
    box = profile.container
    head, _, option = name.partition(".")
    if head == "options":
        return _Sight(
            tuple(value for key, value in box.options if key == option), ("container", "options"), is_on_key=True
        )
    if head == "ulimits":
        return _Sight(
            tuple(value for key, value in box.ulimits if key == option), ("container", "ulimits"), is_on_key=True
        )
    if head == "devices":
        return _Sight(box.devices, ("container", "devices"), is_on_key=True)
    value = {
        "shm_size": box.shm_size,
        "ipc": box.ipc,
        "network": box.network,
        "entrypoint": box.entrypoint,
        "gpus": box.gpus,
    }[head]
    return _Sight(() if value is None else (value,), ("container", head))


def _look_up_flag(subject: str, profile: Profile, settings: FlagSettings | None) -> _Sight:

    name, _, key = subject.partition(".")
    nothing = _Sight((), ("args",), is_on_key=True)
    setting = None if settings is None else settings.get_setting(name)
    if settings is None:
        return nothing
    if setting is None:
        return (None if key else _look_up_flag_variable(name, profile, settings)) or nothing
    if not key:
        text = setting.value
        if text is None:
            text = "off" if setting.name.startswith(("--no-", "--disable-")) and name != setting.name else "on"
        return _Sight((text,), setting.where, is_on_key=setting.in_args and setting.value is None)
    values = settings.get_json_keys(name)
    try:
        data = parse_json_value(setting.value or "{}")
    except ValueError:
        data = {}
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    found = values.get(key) if data is None else str(data)
    where = (*setting.where, key) if setting.in_args and data is not None and "." not in key else setting.where
    return nothing if found is None else _Sight((found,), where)


def _look_up_flag_variable(name: str, profile: Profile, settings: FlagSettings) -> _Sight | None:
    """Return a flag that is given as an environment variable, for an engine that reads its flags from there, too."""
    prefix, flag = load_engine(profile.engine).flag_variable_prefix, settings.find_flag(name)
    if not prefix or flag is None:
        return None
    for key, value in profile.env:
        if not key.startswith(prefix):
            continue
        stem = key.removeprefix(prefix).lower().replace("_", "-")
        word = next((f"--{one}" for one in (stem, stem.removeprefix("n-")) if f"--{one}" in flag.spellings), None)
        if word is None:
            continue
        if flag.takes is FlagArity.NONE:
            is_off = word.startswith("--no-") or value.strip().lower() in ("0", "off", "false", "disabled")
            value = "off" if is_off else "on"
        return _Sight((value,), ("env", key))
    return None


def _meets(sight: _Sight, test: str, usual: float | None) -> bool:
    """Tell whether what is said meets a test: ``set``, ``unset``, ``>0.9``, ``>0.85,<=1``, ``<usual``, a regular expression, or ``!`` and one.

    An expression has to match a short value as a whole, and is searched for in a path, an image, a mount or a command.
    """
    if test == _BELOW_USUAL:
        return usual is not None and any(_is_number_within(text, "<", usual) for text in sight.texts)
    if test in (_SET, _UNSET):
        return bool(sight.texts) is (test == _SET)
    if test.startswith(_NOT):
        return not any(_matches(text, test.removeprefix(_NOT), sight.where) for text in sight.texts)
    return any(_matches(text, test, sight.where) for text in sight.texts)


def _matches(text: str, test: str, where: FieldPath) -> bool:

    if has_env_reference(text) and where[0] in ("env", "args"):
        return False  # known only at the start
    bounds = [found for each in test.split(",") if (found := _COMPARISON.fullmatch(each))]
    if len(bounds) > test.count(","):  # all of them: `>0.85,<=1`
        return all(_is_number_within(text, one["sign"], float(one["number"])) for one in bounds)
    pattern = re.compile(test, re.IGNORECASE)
    if where[0] in ("image", "model", "mounts", "command"):
        return pattern.search(text) is not None
    return pattern.fullmatch(text.strip()) is not None


def _is_number_within(text: str, sign: str, limit: float) -> bool:

    number = parse_size_number(text.strip())
    if number is None or text.strip()[-1:].isalpha():
        try:
            number = float(parse_size(text))
        except ValueError:
            return False
    return {"<": number < limit, "<=": number <= limit, ">": number > limit, ">=": number >= limit}[sign]


def _quote_text(text: str, subject: str) -> str:

    return quote_value(text, subject.partition(".")[2] if subject.startswith("env.") else subject)
