"""Imports a text and returns what a test looks at."""

from __future__ import annotations

from sparkctl import engines
from sparkctl.commands.import_profile import ImportedProfile, check_imported_profile
from sparkctl.model.profile import Profile
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from sparkctl.profiles.importers.profile_importer import ImportOptions, import_text
from sparkctl.profiles.validation import validate_profile
from sparkctl.profiles.yaml_reader import parse_yaml
from sparkctl.profiles.yaml_writer import render_profile_yaml


def import_and_check(text: str, origin: str = "pasted", **wishes: object) -> ImportedProfile:
    """Import a text; the profile has passed the check."""
    return check_imported_profile(import_text(text, origin, ImportOptions(engines=engines.engine_names(), **wishes)))  # type: ignore[arg-type]


def import_docker_line(text: str, **wishes: object) -> Profile:
    """Return the profile of a `docker run` line."""
    return import_and_check(text, **wishes).profile


def import_recipe(text: str, **wishes: object) -> ImportedProfile:
    """Import a recipe's text."""
    return import_and_check(text, "recipes/some-recipe.yaml", **wishes)


def list_keys_of(written: ImportedProfile, fate: KeyOutcome) -> dict[str, str | None]:
    """Return the keys of one fate with the reason."""
    return {account.key: account.why for account in written.imported.ledger.list_keys_by_outcome(fate)}


def get_container_argv(profile: Profile) -> tuple[str, ...]:
    """Return the words that the container is told."""
    return engines.load_engine(profile.engine).build_command(profile)


def write_and_read(profile: Profile) -> Profile:
    """Return a profile written down and read again."""
    from pathlib import Path

    return validate_profile(
        parse_yaml(render_profile_yaml(profile).encode(), "x.yaml"), Path(profile.origin), shipped=profile.shipped
    )
