"""Check paths on a node as profiles write them. Pure."""

from __future__ import annotations


def find_misleading_part(path: str) -> str | None:
    """Return the first part of a path that makes it lead elsewhere than it seems (``..``, ``.``, an empty part), None
    if there is none.

    A slash at the end is allowed.
    """
    parts = path.removeprefix("/").removesuffix("/").split("/") if path not in ("", "/") else []
    return next((part or "//" for part in parts if part in ("", ".", "..")), None)
