"""Each shipped profile against its source's own command: what differs stands in the profile's notes."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from sparkctl.engines import load_engine
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.profile import Profile
from sparkctl.profiles.importers.engine_command import parse_flags
from sparkctl.profiles.profile_library import ProfileLibrary
from tests.unit.profiles.source_commands import DIFFERENCES, SOURCE_COMMANDS, SOURCES_WITHOUT_A_COMMAND

LIBRARY = ProfileLibrary(user=shipped_profiles_dir() / "none")
# Where a profile puts what is its own, whatever the source has: where the server listens, and what clients call the model.
_OWN_PLACE = ("host", "port", "served-model-name", "alias")


def read_flags(words: list[str] | tuple[str, ...]) -> dict[str, str]:
    """The flags of a command with their values as text; the words before the first one are the program and the model."""
    first = next((at for at, word in enumerate(words) if word.startswith("-") and word != "-m"), len(words))
    found = parse_flags([word.replace("--model=", "--model ") for word in words[first:]])
    assert found is not None, words
    return {name.replace("_", "-"): str(getattr(value, "text", value)).replace(" ", "") for name, value in found}


def list_differences(profile: Profile) -> dict[str, str | None]:
    """The flags, variables and the image that are not the source's, with what the profile has: None where it leaves one out."""
    source = SOURCE_COMMANDS[profile.name]
    ours = read_flags(load_engine(profile.engine).build_command(profile))
    theirs = read_flags(shlex.split(source.command))
    differs = {name for name in ours.keys() | theirs.keys() if normalize(ours.get(name)) != normalize(theirs.get(name))}
    differs -= {name for name in _OWN_PLACE if name not in theirs or name == "host"}
    env = dict(profile.env)
    differs |= {name for name, value in source.env.items() if env.get(name) != value}
    differs |= {name for name in env.keys() - source.env.keys() if name != "HF_TOKEN"}
    if source.image is not None and profile.image.removesuffix(":latest") != source.image:
        differs.add("image")
    own = {**env, **ours, "image": profile.image}
    return {name: own.get(name) for name in differs}


def normalize(value: str | None) -> str | None:
    """0.60 and 0.6 are the same, and so are two texts of one map."""
    if value is not None and value.startswith("{"):
        return json.dumps(json.loads(value), sort_keys=True)
    try:
        return None if value is None else f"{float(value):g}"
    except ValueError:
        return value


def test_every_shipped_profile_has_its_source_s_command_or_says_that_there_is_none() -> None:
    assert not SOURCE_COMMANDS.keys() & SOURCES_WITHOUT_A_COMMAND.keys()
    assert SOURCE_COMMANDS.keys() | SOURCES_WITHOUT_A_COMMAND.keys() == set(LIBRARY.list_names())


@pytest.mark.parametrize("name", sorted(SOURCE_COMMANDS))
def test_what_differs_from_the_source_stands_in_the_notes(name: str) -> None:
    profile = LIBRARY.load_profile(name)
    notes = profile.notes or ""
    # The flag itself, --flag or flag_name, and no part of another word; the image by its name.
    result = set(re.findall(r"(?<![\w-])(?:--)?([A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9])(?![\w-])", notes))
    untold = {one for one in list_differences(profile) if not {one, one.replace("-", "_")} & result}
    assert untold == set()


@pytest.mark.parametrize("name", sorted(SOURCE_COMMANDS))
def test_what_differs_is_meant(name: str) -> None:
    """Notes that name a flag would hide that its value was changed."""
    assert list_differences(LIBRARY.load_profile(name)) == DIFFERENCES[name]


def test_a_changed_argument_is_a_difference() -> None:
    for name in SOURCE_COMMANDS:
        plain = LIBRARY.load_profile(name)
        for flag, value in plain.args:
            if flag not in _OWN_PLACE and not isinstance(value, bool):
                changed = LIBRARY.load_profile(name, [f"args.{flag}=null"])
                assert list_differences(changed) != DIFFERENCES[name], f"{name}: {flag}"


@pytest.mark.parametrize("name", sorted(SOURCES_WITHOUT_A_COMMAND))
def test_where_a_source_gives_no_command_the_notes_say_whose_flags_they_are(name: str) -> None:
    assert SOURCES_WITHOUT_A_COMMAND[name] in " ".join((LIBRARY.load_profile(name).notes or "").split())
