"""Is a draft model one for this target? Judged by what both are called, and only where both names say enough."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FAMILY = re.compile(
    r"(?<![a-z])(?:(?P<qwq>qwq)|(?P<name>qwen|llama|gemma|glm|minimax-m|mistral|nemotron|deepseek-[vr]|kimi-k|gpt-oss|phi|mimo)"
    r"-?(?P<version>\d+(?:\.\d+)?)?)",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?<![a-z0-9.])(?P<all>\d+(?:\.\d+)?)b(?:-a(?P<active>\d+(?:\.\d+)?)b)?(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelName:
    """``family`` as one says it (``Qwen3.5``), ``size`` with active parameters (``35B-A3B``); None: the name does not tell."""

    family: str | None
    size: str | None

    @classmethod
    def from_path(cls, path: str) -> ModelName:
        """Return what the last part of a path or hub id tells."""
        name = path.rstrip("/").rpartition("/")[2]
        found, size = _FAMILY.search(name), _SIZE.search(name)
        return cls(None if found is None else found[0], None if size is None else size[0].upper())

    @property
    def is_mixture_of_experts(self) -> bool:
        """Says whether the name tells of active parameters."""
        return self.size is not None and "-A" in self.size


def find_draft_mismatch(target: str, draft: str, *, by_hidden_states: bool) -> str | None:
    """Return why a draft model cannot be for this target, None where nothing shows that.

    ``by_hidden_states``: EAGLE and DFlash heads read the target's own layers, so the size has to be the same, too.
    """
    ours, its = ModelName.from_path(target), ModelName.from_path(draft)
    if ours.family is None or its.family is None:
        return None
    if _fold(ours.family) != _fold(its.family):
        kind = ", a mixture of experts" if ours.is_mixture_of_experts and not its.is_mixture_of_experts else ""
        return f"it is of the family {its.family}, the target of {ours.family}{kind}"
    if by_hidden_states and ours.size and its.size and ours.size != its.size:
        return f"it was made for {its.size}, the target is {ours.size}"
    return None


def _fold(family: str) -> str:
    return family.casefold().replace("-", "")
