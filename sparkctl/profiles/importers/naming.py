"""Names and titles for profiles that come from elsewhere."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^a-z0-9._-]+")
LONGEST = 56


def profile_name_from_text(text: str | None) -> str | None:
    """Return a profile's name made of a text, None where nothing of it can be one."""
    if not text:
        return None
    found = _WORD.sub("-", text.lower()).strip("-._")
    found = re.sub(r"-{2,}", "-", found)[:LONGEST].rstrip("-._")
    return found if len(found) >= 2 else None


def profile_name_from_model(model: str | None) -> str | None:
    """Return a name made of the model's own, without its publisher and its directories."""
    if not model:
        return None
    tail = model.rstrip("/").rpartition("/")[2]
    return profile_name_from_text(tail.partition(":")[0].removesuffix(".gguf"))


def profile_name_from_image(image: str | None) -> str | None:
    """Return a name made of the image's, without registry and tag."""
    if not image:
        return None
    return profile_name_from_text(image.rpartition("/")[2].partition("@")[0].partition(":")[0])


def shorten_title(text: str | None) -> str | None:
    """Return one line of at most 100 characters, cut at a word."""
    line = " ".join((text or "").split())
    if len(line) <= 100:
        return line or None
    return line[:99].rpartition(" ")[0].rstrip(",;:-") + "…"
