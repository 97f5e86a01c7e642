"""What a start needs and a node does not have: an image or a model, and where `pull` can get it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from sparkctl.model.node import NodeName

_HUB_SOURCE = re.compile(r"hf:(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w][\w./-]*))?")


class PartKind(StrEnum):
    """What is missing."""

    IMAGE = "image"
    MODEL = "model"
    DRAFT_MODEL = "draft-model"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face Hub; ``revision`` None: its main branch."""

    repository: str
    revision: str | None = None


def parse_model_source(text: str) -> HubSource:
    """Return the repository of ``hf:ORG/NAME`` or ``hf:ORG/NAME@REVISION``. Raises ValueError for anything else."""
    match = _HUB_SOURCE.fullmatch(text) if len(text) <= 300 else None
    if match is None:
        raise ValueError(f"`{text[:80]}` is not a source; write for example hf:Qwen/Qwen3.6-27B-FP8")
    return HubSource(match["repository"], match["revision"])


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPart:
    """One thing that a node does not have whole.

    Attributes:
        name: the image, or the model's path on the node.
        reason: why it counts as missing, to go after the name: "is not there".
        source: where `pull` gets it; None: nothing says so.
        is_required: `up` refuses without it; False: the engine gets it itself.
    """

    kind: PartKind
    node: NodeName
    name: str
    reason: str
    source: str | None
    is_required: bool = True

    @property
    def _what(self) -> str:
        return f"the {self.kind.value.replace('-', ' ')} {self.name}"

    @property
    def origin_words(self) -> str:
        """What it is, and where it comes from."""
        return self._what if self.source in (None, self.name) else f"{self._what} from {self.source}"

    @property
    def sentence(self) -> str:
        """What is missing, and where it comes from."""
        origin = "" if self.source == self.name else f"; from {self.source}"
        if self.source is None:
            origin = "; the profile does not say where it comes from (model.source)"
        return f"{self._what} {self.reason} on {self.node}{origin}"
