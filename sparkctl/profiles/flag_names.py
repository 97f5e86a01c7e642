"""What a flag that an engine refused may have been meant as: by the flag catalogue of the version that refused it. Pure."""

from __future__ import annotations

from sparkctl.engines import flag_catalogue
from sparkctl.engines.lint.model import LintRule
from sparkctl.model.profile import Profile
from sparkctl.profiles import profile_lint

_NAMES = frozenset({LintRule.UNKNOWN_FLAG, LintRule.REMOVED_FLAG, LintRule.AMBIGUOUS_FLAG})


def suggest_flag_name(engine: str, flag: str, version: str | None, image: str = "") -> str | None:
    """Return a sentence on a flag's name, without dashes as in ``args``: the near one, the new one, whose it is instead.

    ``version``: the engine's, None where nobody knows it: then the ``image``'s tag is asked, and without it the newest known
    one. None: nothing is to be said.
    """
    chosen = flag_catalogue.choose_catalogue(engine, image, version)
    if chosen is None:
        return None
    asked = Profile(name="asked", engine=engine, image="", origin="", shipped=False, args=((flag, True),))
    found = next((one for one in profile_lint.lint_profile(asked, chosen) if one.kind in _NAMES), None)
    if found is None:
        return None
    if chosen.basis is flag_catalogue.CatalogueMatch.EXACT:
        return found.message
    which = "the newest that is known" if chosen.version is None else f"the nearest to {chosen.version} that is known"
    return f"{found.message}: by the flags of {chosen.catalogue.version}, {which}"
