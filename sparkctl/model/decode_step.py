"""What one decode step of an instance reads from memory. Written into a container label at the start, read by `top`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sparkctl.model.profile_field import FieldKind, ProfileField


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """``weights``: bytes of all ``count`` routed experts in all layers; ``per_token``: how many experts one token uses."""

    weights: Annotated[
        int,
        ProfileField(FieldKind.MODEL_SIZE, "size of all routed experts of a mixture of experts"),
    ]
    count: Annotated[int, ProfileField(FieldKind.POSITIVE_COUNT, "how many experts there are")]
    per_token: Annotated[int, ProfileField(FieldKind.POSITIVE_COUNT, "how many experts one token uses")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStepSpec:
    """Bytes and counts of the whole model, from the profile and the engine's flags; None is "not known".

    ``draft_tokens``: tokens drafted per step and request, without the bonus token. ``draft_passes``: how often one step
    runs the draft model. ``unread``: of ``weights``, what no decode step reads: an embedding table that is not the output
    layer too, a vision tower. ``is_measured``: by the headers of the files on the node, not by the profile. ``ranks``: tensor
    parallel x pipeline parallel size.
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
    ranks: int = 1
    is_measured: bool = False
