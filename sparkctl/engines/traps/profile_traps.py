"""Hold a profile against the catalogue of known traps: its flags, environment, image, model, mounts and container. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sparkctl.engines import load_engine
from sparkctl.engines.engine_flags import FlagArity, find_profile_script
from sparkctl.engines.lint import FieldPath, LintMessage, LintRule, LintSeverity
from sparkctl.engines.lint.profile_flags import (
    FlagSettings,
    has_env_reference,
    parse_json_value,
    parse_size_number,
    quote_value,
    split_shell_words,
)
from sparkctl.engines.remedies import adapt_remedy
from sparkctl.engines.traps import EngineCache, is_version_within, load_traps, shorten_source
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import Profile
from sparkctl.model.text.units import parse_size

_COMPARISON = re.compile(r"(?P<sign>[<>]=?)(?P<number>[\d.]+)")
_SET, _UNSET, _NOT = "set", "unset", "!"
_BELOW_USUAL = "<usual"  # seconds, fewer than such a start takes


def check_traps(
    profile: Profile,
    settings: FlagSettings | None,
    version: str | None,
    usual: float | None,
    file_variables: Sequence[tuple[str, str]] = (),
) -> Iterator[LintMessage]:
    """Yield a message for each known trap that a profile's own settings show.

    ``settings``: its flags, None for an engine without a catalogue; ``version``: the engine's, None if it is not known: then
    no trap of certain versions is named. ``usual``: seconds that such a start takes, None: what the profile expects.
    ``file_variables``: what its ``env_file`` sets.
    """

    usual = profile.start.expected if usual is None else usual
    given = _GivenProfile(profile, settings, _collect_variables(profile, file_variables), usual)
    for trap in load_traps():
        if not trap.when or not trap.concerns_engine(profile.engine):
            continue
        if trap.versions is not None and (version is None or not is_version_within(version, trap.versions)):
            continue
        met = (_find_sight(subject, test, given) for subject, test in trap.when.items())
        sights = [sight for sight in met if sight is not None]
        if len(sights) < len(trap.when):
            continue
        if any(_find_sight(subject, test, given) for subject, test in trap.unless.items()):
            continue
        missing = [one for one in trap.caches if not _is_kept(one, given)]
        if trap.caches and not missing:
            continue
        first = sights[0]
        value = _quote_text(first.texts[0], next(iter(trap.when))) if first.texts else ""
        text = (
            f"{trap.meaning}: {adapt_remedy(trap.remedy, profile.engine).rstrip('.')} ({shorten_source(trap.source)})"
        )
        yield LintMessage(
            kind=LintRule(trap.rule),
            level=LintSeverity(trap.level),
            where=first.where,
            message=text.replace("{name}", first.name or str(first.where[-1]))
            .replace("{value}", value)
            .replace("{missing}", _join_words([one.path for one in missing]))
            .replace("{mounts}", _join_words([one.mount for one in missing])),
            on_key=first.is_on_key,
            setting=None
            if trap.setting is None
            or (first.name and first.where[0] == "command")  # a script's own word is the last one
            else _spell_as_given(trap.setting, settings),
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
    name: str = ""  # of a variable


# By name: the value that the engine gets, and where it is set.
_Variables = Mapping[str, tuple[str, FieldPath]]


@dataclass(frozen=True, slots=True)
class _GivenProfile:
    """What the traps are compared with: a profile, its flags (None for an engine without a catalogue), the variables that the
    engine gets, and the seconds that such a start usually takes (None: not known)."""

    profile: Profile
    settings: FlagSettings | None
    variables: _Variables
    usual: float | None


_ASSIGNMENT = re.compile(r"(?P<name>[A-Z_][A-Z0-9_]*)=(?P<value>.*)", re.DOTALL)


def _collect_variables(profile: Profile, file_variables: Sequence[tuple[str, str]]) -> _Variables:
    """Return the engine's environment: of the file, overridden by the profile's, overridden by its own command's."""
    found: dict[str, tuple[str, FieldPath]] = {name: (value, ("env_file",)) for name, value in file_variables}
    found |= {name: (value, ("env", name)) for name, value in profile.env}
    command = profile.command or ()
    script = find_profile_script(profile)
    words: Sequence[str] = () if script is None else split_shell_words(command[script])
    if script is None and command and "env" in (command[0].rpartition("/")[2], profile.container.entrypoint):
        words = command
    for word in words:
        if (given := _ASSIGNMENT.fullmatch(word)) is not None:
            found[given["name"]] = given["value"], ("command",) if script is None else ("command", script)
    return found


def _is_kept(cache: EngineCache, given: _GivenProfile) -> bool:
    """Tell whether what an engine compiles outlives the container: in a mount that may be written, or where a variable puts it."""
    if any(given.variables.get(name, ("",))[0] for name in cache.moved_by):
        return True
    for text in given.profile.mounts:
        _, target, *options = text.split(":")
        place = f"{target.rstrip('/')}/"
        if options == ["ro"]:
            continue
        # a part of it, too: vLLM's torch_compile_cache; a home that is not root's has the same folders
        if place.startswith(cache.path + "/") or (cache.path + "/").startswith(place) or f"{cache.tail}/" in place:
            return True
        is_home = place.startswith("/home/") and place.count("/") == 3
        if is_home or (cache.tail.startswith("/.cache/") and place.endswith("/.cache/")):
            return True
    return False


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def _find_sight(subject: str, test: str, given: _GivenProfile) -> _Sight | None:
    """Return what the profile says of a subject if it meets the test, else None. Of several, with ``|`` between, any may meet it;
    for ``unset`` and ``!`` the first of which the profile says something decides.
    """
    sights = [_look_up_one(one, given) for one in subject.split("|")]
    if test == _UNSET or test.startswith(_NOT):
        sights = [next((sight for sight in sights if sight.texts), sights[0])]
    return next((sight for sight in sights if _meets(sight, test, given.usual)), None)


def _look_up_one(subject: str, given: _GivenProfile) -> _Sight:
    profile = given.profile
    if subject.startswith("-"):
        return _look_up_flag(subject, profile, given.settings)
    head, _, name = subject.partition(".")
    if head == "env":
        value, where = given.variables.get(name, (None, ("env", name)))
        return _Sight(() if value is None else (value,), where, name=name)
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


_SHM_TMPFS = re.compile(r"/dev/shm/?(?::(?P<options>.*))?")  # noqa: S108  in the container
_TMPFS_SIZE = re.compile(r"(?:^|,)size=([^,]+)")
_LOCAL_PUBLISH = re.compile(r"(?:127\.[\d.]+|\[?::1\]?):.*")


def _is_reached_on_node_alone(profile: Profile) -> bool:
    """Tell whether the container has a network of its own and publishes nothing beyond the node."""
    box = profile.container
    published = [value for key, value in box.options if key == "publish"]
    has_own_network = box.network != "host" and (box.network is not None or bool(published))
    return has_own_network and all(map(_LOCAL_PUBLISH.fullmatch, published))


def _look_up_container(name: str, profile: Profile) -> _Sight:
    box = profile.container
    head, _, option = name.partition(".")
    if head == "reach":
        return _Sight(("node",) if _is_reached_on_node_alone(profile) else (), ("container",))
    # a file system of memory there takes the place of Docker's own, without a size it is half of the memory
    over = [found for key, value in box.options if key == "tmpfs" and (found := _SHM_TMPFS.fullmatch(value))]
    if head == "shm_size" and over:
        sizes = tuple(size for found in over for size in _TMPFS_SIZE.findall(found["options"] or ""))
        return _Sight(sizes, ("container", "options"), is_on_key=True)
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
