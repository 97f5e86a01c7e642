"""The profile that `plan hf:ORG/NAME` assumes for a model that no profile has yet: an engine with plain settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sparkctl.engines import engine_names, load_engine
from sparkctl.errors import InvalidInput
from sparkctl.model.missing_part import HubSource, parse_model_source
from sparkctl.model.profile import Profile
from sparkctl.paths import shipped_profiles_dir
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.validation import merge_profile_layer, parse_setting, validate_profile
from sparkctl.profiles.yaml_reader import parse_yaml


def propose_profile(text: str, overrides: Sequence[str] = ()) -> Profile:
    """Return a profile for ``hf:ORG/NAME`` by the engine that reads GGUF files, if the name says so, or else the other one.

    ``overrides`` are ``--set`` texts. Raises `InvalidInput`, `InvalidFile`.
    """
    try:
        source = parse_model_source(text)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    assert isinstance(source, HubSource)  # by its `hf:`
    title = source.repository.partition("/")[2]
    engines = [load_engine(name) for name in engine_names()]
    engine = next(one for one in engines if one.proposed_like and one.reads_gguf == ("gguf" in title.casefold()))
    like = ProfileLibrary(user=shipped_profiles_dir()).load_profile(engine.proposed_like or "")
    name = re.sub(r"[^a-z0-9-]+", "-", title.casefold()).strip("-")[:40].strip("-")
    tree = parse_yaml(
        f"schema: 1\nname: {name}\nengine: {like.engine}\nimage: {like.image}\nport: {like.port}\n"
        f"model: {{path: /models/{title}, source: '{source}'}}\nmounts: ['~/models:/models']\n{engine.proposed_settings}\n".encode(),
        "plan",
    )
    for one in overrides:
        tree = merge_profile_layer(tree, parse_setting(one))
    return validate_profile(tree, Path(f"{name}.yaml"), shipped=False)
