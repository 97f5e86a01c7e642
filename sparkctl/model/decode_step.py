"""What one decode step of an instance reads from memory. Written into a container label at the start, read by `top`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile_field import FieldKind, ProfileField


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """``weights``: bytes of all ``count`` routed experts in all layers; ``per_token``: how many experts one token uses."""

    weights: Annotated[
        int,
        ProfileField(kind=FieldKind.MODEL_SIZE, help="size of all routed experts of a mixture of experts"),
    ]
    count: Annotated[int, ProfileField(kind=FieldKind.POSITIVE_COUNT, help="how many experts there are")]
    per_token: Annotated[int, ProfileField(kind=FieldKind.POSITIVE_COUNT, help="how many experts one token uses")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStepSpec:
    """Bytes and counts of the whole model, from the profile and the engine's flags; None is "not known".

    ``draft_tokens``: tokens drafted per step and request, without the bonus token. ``draft_passes``: how often one step
    runs the draft model. ``unread``: of ``weights``, what no decode step reads: an embedding table that is not the output
    layer too, a vision tower. ``kv_per_token``: of the cache, what a step reads for each token of context. ``state_per_request``: what
    layers with linear attention keep of a request: read once a step, and written for each of its tokens. ``is_measured``: by the
    headers of the files on the node, not by the profile. ``ranks``: tensor parallel x pipeline parallel size.
    """

    weights: int | None = None
    unread: int | None = None
    parameters: int | None = None
    active_parameters: int | None = None
    experts: RoutedExperts | None = None
    draft_weights: int | None = None
    draft_passes: int | None = None
    draft_tokens: int | None = None
    kv_per_token: int | None = None
    state_per_request: int | None = None
    ranks: int = 1
    is_measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSizes:
    """The bytes of a model's tensors, by the headers of its safetensors files and the names in them.

    ``parts``: body, experts (routed ones), embedding, output, vision; with ``draft_`` before it, of a draft head in the same
    files. ``float32``: of ``whole``, what has four bytes a number. ``is_tied``: the embedding table is the output layer,
    too; None if config.json does not say. ``is_quantized``: the files are, not the engine while it loads.
    """

    whole: int
    parts: Mapping[str, int]
    float32: int = 0
    expert_count: int | None = None
    experts_per_token: int | None = None
    is_tied: bool | None = None
    is_quantized: bool = False

    @property
    def draft(self) -> int:
        """The draft head's bytes."""
        return sum(size for name, size in self.parts.items() if name.startswith("draft_"))

    @property
    def table(self) -> int:
        """The bytes of the embedding table that no step reads: 0 where it is the output layer, too."""
        embedding, output = self.parts.get("embedding", 0), self.parts.get("output", 0)
        if self.is_tied and output:
            return min(embedding, output)  # stored twice, loaded once
        return embedding if output else 0

    @property
    def output(self) -> int:
        """The bytes of the output layer."""
        return self.parts.get("output", 0) or self.parts.get("embedding", 0)
