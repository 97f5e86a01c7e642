"""What is known of one decode step of an instance: written into its label when it is planned, read by whoever looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """``weights``: bytes of all ``count`` routed experts together, every layer; ``per_token``: how many a token chooses."""

    weights: int
    count: int
    per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStepSpec:
    """Bytes and counts of the whole model, as the profile and the engine's flags have them; None is "not known".

    ``draft_tokens`` are drafted per step and request, beside the bonus token; ``draft_passes`` is how often a step runs
    the draft model. ``ranks`` share the model: tensor parallel x pipeline parallel size.
    """

    weights: int | None = None
    parameters: int | None = None
    active_parameters: int | None = None
    experts: RoutedExperts | None = None
    draft_weights: int | None = None
    draft_passes: int | None = None
    draft_tokens: int | None = None
    kv_per_token: int | None = None
    ranks: int = 1
