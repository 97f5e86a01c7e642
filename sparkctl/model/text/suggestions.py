"""What the operator probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def find_closest_match(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice nearest to ``word``, None where none is near. Case, dashes and underscores do not count.

    ``cutoff``: how alike they have to be, from 0 to 1 (difflib's ratio).
    """
    import difflib

    folded = {_normalize_word(choice): choice for choice in choices}
    if exact := folded.get(_normalize_word(word)):
        return exact
    near = difflib.get_close_matches(_normalize_word(word)[:80], folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def format_did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``; did you mean `port`?``, or an empty string where nothing is near."""
    near = find_closest_match(word, choices)
    return f"; did you mean `{near}`?" if near is not None and near != word else ""


def _normalize_word(word: str) -> str:
    return word.casefold().replace("-", "_")
