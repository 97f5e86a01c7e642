"""Write and read the label that says what a decode step reads from memory.

Anybody on a node can set labels, so each field is checked and an implausible one becomes "not known".
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from sparkctl.engines.base import DecodingSettings
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts
from sparkctl.model.profile import ModelSpec

_MAX_BYTES = 1 << 50  # bytes or parameters: more than any model has
_MAX_PIECES = 100_000  # things that are counted: experts, drafts, ranks
_OTHER_FIELDS = ("experts", "ranks", "is_measured")
_PIECE_FIELDS = ("draft_passes", "draft_tokens", "ranks")


def build_decode_step_spec(model: ModelSpec, decoding: DecodingSettings) -> DecodeStepSpec:
    """Return the decode step by a profile's ``model`` and the engine's flags."""
    return DecodeStepSpec(
        weights=model.weights,
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        experts=model.experts,
        draft_weights=model.draft_weights,
        draft_passes=decoding.draft_passes,
        draft_tokens=decoding.draft_tokens,
        kv_per_token=model.kv_per_token,
        ranks=decoding.ranks,
    )


def format_decode_step_label(facts: DecodeStepSpec) -> str | None:
    """Return the label's text, None if nothing is known."""
    if facts == DecodeStepSpec():
        return None
    known = {name: value for name, value in asdict(facts).items() if value is not None}
    if facts.ranks == 1:
        del known["ranks"]
    if not facts.is_measured:
        del known["is_measured"]
    return json.dumps(known, separators=(",", ":"))


def parse_decode_step_label(text: str | None) -> DecodeStepSpec | None:
    """Return the content of a label, None if it is not valid."""
    try:
        said = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    found: dict[str, int | None] = {}
    for name in (field.name for field in fields(DecodeStepSpec) if field.name not in _OTHER_FIELDS):
        found[name] = _parse_bounded_int(
            said.get(name), 0 if name in _PIECE_FIELDS else 1, _MAX_PIECES if name in _PIECE_FIELDS else _MAX_BYTES
        )
    if (found["unread"] or 0) > (found["weights"] or 0):
        found["unread"] = None
    ranks = _parse_bounded_int(said.get("ranks", 1), 1, _MAX_PIECES)
    if ranks is None:
        return None  # otherwise every figure would be wrong by an unknown factor
    return DecodeStepSpec(
        **found, experts=_parse_routed_experts(said.get("experts"), found["weights"]), ranks=ranks, is_measured=said.get("is_measured") is True,
    )  # fmt: skip


def _parse_routed_experts(said: object, weights: int | None) -> RoutedExperts | None:
    if not isinstance(said, dict):
        return None
    count = _parse_bounded_int(said.get("count"), 1, _MAX_PIECES)
    per_token = _parse_bounded_int(said.get("per_token"), 1, count or 0)
    routed = _parse_bounded_int(said.get("weights"), 1, weights or _MAX_BYTES)
    if count is None or per_token is None or routed is None:
        return None
    return RoutedExperts(routed, count, per_token)


def _parse_bounded_int(value: object, least: int, most: int) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    return value if known and isinstance(value, int) else None
