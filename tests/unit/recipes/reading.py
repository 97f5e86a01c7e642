"""Imports a text and returns what a test looks at."""

from __future__ import annotations

from sparkctl import engines
from sparkctl.core.profile_build import build
from sparkctl.core.profile_write import profile_yaml
from sparkctl.core.yamlfile import parse_yaml
from sparkctl.model.profile import Profile
from sparkctl.operations.profile_import import Written, checked
from sparkctl.recipes.ledger import Fate
from sparkctl.recipes.read import Wishes, read_text


def imported(text: str, origin: str = "pasted", **wishes: object) -> Written:
    """Import a text; the profile has passed the check."""
    return checked(read_text(text, origin, Wishes(engines=engines.names(), **wishes)))  # type: ignore[arg-type]


def line(text: str, **wishes: object) -> Profile:
    """Return the profile of a `docker run` line."""
    return imported(text, **wishes).profile


def recipe(text: str, **wishes: object) -> Written:
    """Import a recipe's text."""
    return imported(text, "recipes/some-recipe.yaml", **wishes)


def fates(written: Written, fate: Fate) -> dict[str, str | None]:
    """Return the keys of one fate with the reason."""
    return {account.key: account.why for account in written.imported.ledger.of(fate)}


def argv(profile: Profile) -> tuple[str, ...]:
    """Return the words that the container is told."""
    return engines.load(profile.engine).argv(profile)


def read_back(profile: Profile) -> Profile:
    """Return a profile written down and read again."""
    from pathlib import Path

    return build(
        parse_yaml(profile_yaml(profile).encode(), "x.yaml").root, Path(profile.origin), shipped=profile.shipped
    )
