"""The images on a simulated Spark: which are there, and what each of them is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

IMAGE_SIZE = 21_474_836_480  # bytes, of any


class SimImages:
    """Every image is there and the same on all nodes, except those that were said not to be.

    ``lacking`` and ``differing`` are names. A name may say it itself: one with ``missing`` in it is nowhere, one with
    ``missing-on-spark2`` not on spark2, one with ``stale-on-spark2`` another one there.
    """

    def __init__(self, node: str, lacking: Sequence[str] = (), differing: Sequence[str] = ()) -> None:
        self._node = node
        self._lacking = set(lacking)
        self._differing = set(differing)
        self._brought: dict[str, str] = {}  # the id that came from another node
        self._names: dict[str, str] = {}  # by id

    def has(self, name: str) -> bool:
        """Tell whether an image is there, by name or id."""
        name = self._names.get(name, name)
        if name in self._brought:
            return True
        elsewhere = "missing-on-" in name and f"missing-on-{self._node}" not in name
        return name not in self._lacking and ("missing" not in name or elsewhere)

    def id_of(self, name: str) -> str:
        """Return the id of an image that is there."""
        name = self._names.get(name, name)
        differs = name in self._differing or f"stale-on-{self._node}" in name
        text = f"{name} of an earlier day" if differs else name
        found = self._brought.get(name) or "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        self._names[found] = name
        return found

    def to_inspect_json(self, name: str) -> dict[str, object]:
        """Return what inspect says of an image; one that was built on the node has no digest of a registry."""
        found, tag = self.id_of(name), self._names.get(name, name)
        repository = tag.partition("@")[0].rpartition(":")[0] or tag
        digest = hashlib.sha256(f"manifest of {found}".encode()).hexdigest()
        return {
            "Id": found,
            "RepoTags": [tag],
            "RepoDigests": [f"{repository}@sha256:{digest}"] if "/" in repository else [],
            "Architecture": "arm64",
            "Os": "linux",
            "Size": IMAGE_SIZE,
            "Created": "2026-06-01T08:00:00Z",
            "Config": {"Entrypoint": None, "Cmd": ["bash"], "Env": [], "Labels": {}},
        }

    def add_image(self, name: str, image_id: str) -> None:
        """Let an image of another node be this one's, too."""
        self._brought[name] = image_id
