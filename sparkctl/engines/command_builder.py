"""Build a command line from a profile's ``args``. No shell is involved, so every character is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from sparkctl.engines.base import EngineDefaults
from sparkctl.engines.engine_flags import find_profile_script, find_shell_script
from sparkctl.errors import InvalidInput
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, Profile


def flag_for_key(key: str) -> str:
    """Return the flag for a key: ``tp`` → ``--tp``, ``q`` → ``-q``; a key with a dash is unchanged."""
    if key.startswith("-"):
        return key
    return f"-{key}" if len(key) == 1 else f"--{key}"


def render_args(args: tuple[tuple[str, ArgValue], ...]) -> tuple[str, ...]:
    """Return ``args`` as words, in order: True is a bare flag, False nothing, a tuple repeats the flag, `FlagValues`
    follow it.
    """
    out: list[str] = []
    for key, value in args:
        if isinstance(value, bool):
            out += [flag_for_key(key)] if value else []
        elif isinstance(value, JsonValue):
            out += [flag_for_key(key), value.text]
        elif isinstance(value, FlagValues):
            out += [flag_for_key(key), *value.words]
        elif isinstance(value, str):
            out += [flag_for_key(key), value]
        else:
            for item in value:
                out += [flag_for_key(key), item]
    return tuple(out)


def list_arg_flags(profile: Profile) -> frozenset[str]:
    """Return the names of all flags the profile sets itself, without dashes and with ``-`` for ``_``."""
    return frozenset(key.lstrip("-").replace("_", "-") for key, _ in profile.args)


def build_serving_flags(
    profile: Profile, default_port: int | None, name_flags: tuple[str, ...] = ("served-model-name",)
) -> tuple[str, ...]:
    """Return host, port and served name, without those that ``args`` sets.

    ``name_flags``: the flags that name the model to clients, the preferred one first; empty if the engine has none.
    """
    mine: list[tuple[str, ArgValue]] = [("host", "0.0.0.0"), ("port", str(profile.port or default_port))]  # noqa: S104
    own = list_arg_flags(profile)
    if profile.model.served_name is not None and name_flags and not own & set(name_flags):
        mine.append((name_flags[0], profile.model.served_name))
    return render_args(tuple((key, value) for key, value in mine if key not in own))


def build_server_command(
    profile: Profile,
    defaults: EngineDefaults,
    model: Callable[[str, tuple[str, ...]], tuple[str, ...]],
    model_flags: AbstractSet[str] = frozenset(),
    name_flags: tuple[str, ...] = ("served-model-name",),
) -> tuple[str, ...]:
    """Return a server's words: launch, model, host, port and served name, then ``args`` in order.

    ``model`` returns the words for a model's path; they are left out if ``args`` set one of ``model_flags``. A shell
    script as command gets only ``args`` added; `profiles check` warns that nothing reads them.
    """
    command = defaults.command if profile.command is None else profile.command
    if find_profile_script(profile) is not None:
        return command + render_args(profile.args)
    path = None if list_arg_flags(profile) & model_flags else profile.model.path
    named = () if path is None else model(path, command)
    return command + named + build_serving_flags(profile, defaults.port, name_flags) + render_args(profile.args)


def find_flag_value(words: Sequence[str], *flags: str) -> str | None:
    """Return the last value of these flags on a command line, ``--flag value`` or ``--flag=value``."""
    found = None
    for at, word in enumerate(words):
        name, given, own = word.partition("=")
        if name.startswith("-") and "-" + name.lstrip("-").replace("_", "-") in {"-" + f.lstrip("-") for f in flags}:
            found = own if given else words[at + 1] if at + 1 < len(words) else None
    return found


def parse_count(text: str | None) -> int | None:
    """Return the count that a flag sets, None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 5 else None


def multiply_parallel_sizes(words: Sequence[str], *flags: str) -> int:
    """Return the product of the sizes that these flags set, each flag with several names: 1 if none is set."""
    return math.prod(parse_count(find_flag_value(words, *names.split())) or 1 for names in flags)


def reject_per_rank_flags(words: Sequence[str], *flags: str) -> None:
    """Raise `InvalidInput` for a flag that differs between ranks: one value for all of them cannot work."""
    for name in flags:
        if find_flag_value(words, name) is not None or f"--{name}" in words:
            raise InvalidInput(
                f"args.{name} is for one Spark of several: sparkctl gives each its own",
                f"remove args.{name} from the profile",
            )


def reject_shell_script(command: Sequence[str]) -> None:
    """Raise `InvalidInput` for a shell script as command: the words for each rank cannot be added to it."""
    if find_shell_script(command) is not None:
        raise InvalidInput(
            "command is a shell with a script of its own, and each Spark of several needs words of its own added",
            "give the engine's own command as command:, and its flags as args:",
        )
