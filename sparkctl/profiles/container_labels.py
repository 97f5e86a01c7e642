"""Container labels: reading them, and writing the one of a decode step. Anybody on the node can set labels, so each value is
checked before use, and an implausible one is "not known".
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, fields

from sparkctl.engines import collect_engine_words, find_engine
from sparkctl.engines.base import DecodingSettings
from sparkctl.errors import SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts
from sparkctl.model.launch_plan import PROBE_KINDS, ContainerLabel, DockerRunSpec, ReadinessRule
from sparkctl.model.node import NodeName
from sparkctl.model.profile import ModelSpec
from sparkctl.model.text.sanitize import load_json, load_json_map

_MAX_STOP_GRACE_SECONDS = 3600.0
_MAX_RANKS = 64
_RANK_PATTERN = re.compile(r"([0-9]{1,2})/([0-9]{1,2})")
_RANK_NODES_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}(,[A-Za-z0-9._-]{1,64}){0,63}")
_NEED_NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
_START_ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PLAIN_LINE_PATTERN = re.compile(
    r"\^?(?:[^\\^$*+?{}\[\]|()\x00-\x1f]|\\[^A-Za-z0-9]){1,1000}+"
)  # no repetition, no alternation
_HEALTH_PATH_PATTERN = re.compile(r"/[!-~]{0,1000}")  # a path that can be requested over HTTP


def find_container_api_key(run: DockerRunSpec) -> str | None:
    """Return the API key that a server was started with; it is used for requests and never shown."""
    for at, word in enumerate(run.command):
        name, equals, own = word.partition("=")
        if name in ("--api-key", "--api_key"):
            return own if equals else next(iter(run.command[at + 1 : at + 2]), None)
    return next((value for name, value in run.env if is_api_key_variable(name)), None)


def is_api_key_variable(name: str) -> bool:
    """Tell whether a server requires the key in this environment variable from its clients."""
    return name.endswith("_API_KEY") and name in collect_engine_words("api_key_variables")


def parse_port_label(container: Container) -> int | None:
    """Return the port on the node, None if it is not a valid port."""
    text = container.get_label(ContainerLabel.PORT) or ""
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return port if 0 < port < 65536 else None


def parse_stop_grace_label(container: Container) -> float | None:
    """Return the seconds between SIGTERM and SIGKILL, None if it is not a valid number."""
    try:
        grace = float(container.get_label(ContainerLabel.GRACE) or "")
    except ValueError:
        return None
    return grace if math.isfinite(grace) and 0 <= grace <= _MAX_STOP_GRACE_SECONDS else None


def parse_expected_memory_label(container: Container) -> int | None:
    """Return the bytes of memory the instance is expected to hold, None if it is not a valid number."""
    text = container.get_label(ContainerLabel.EXPECTED) or ""
    return (int(text) or None) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def parse_rank_label(container: Container) -> str | None:
    """Return its rank and the number of ranks as "0/2"; None for a model on one Spark, and if it is not a valid rank."""
    found = _RANK_PATTERN.fullmatch(container.get_label(ContainerLabel.RANK) or "")
    if found is None or not int(found[1]) < int(found[2]) <= _MAX_RANKS or int(found[2]) < 2:
        return None
    return f"{int(found[1])}/{int(found[2])}"


def parse_rank_nodes_label(container: Container) -> tuple[NodeName, ...]:
    """Return the nodes of its ranks as the operator who started it names them, the head's first; empty if not given."""
    text = container.get_label(ContainerLabel.NODES) or ""
    return tuple(map(NodeName, text.split(","))) if _RANK_NODES_PATTERN.fullmatch(text) else ()


def parse_needs_label(container: Container) -> tuple[tuple[str, NodeName], ...]:
    """Return what it needs, as (instance, node); empty if nothing, and for text that is no list of such."""
    parts = [one.partition("@") for one in (container.get_label(ContainerLabel.NEEDS) or "").split(",")]
    if not all(_NEED_NAME_PATTERN.fullmatch(name) and _NEED_NAME_PATTERN.fullmatch(node) for name, _, node in parts):
        return ()
    return tuple((name, NodeName(node)) for name, _, node in parts)


def parse_started_for_label(container: Container) -> str | None:
    """Return the instance for which `up` started it as a need, None if it was started for itself."""
    text = container.get_label(ContainerLabel.STARTED_FOR) or ""
    return text if _NEED_NAME_PATTERN.fullmatch(text) else None


def parse_start_id_label(container: Container) -> str | None:
    """Return what all ranks of one start share, None if there is no usable value."""
    text = container.get_label(ContainerLabel.RUN) or ""
    return text if _START_ID_PATTERN.fullmatch(text) else None


def parse_ready_rule_label(container: Container, *, needs_line: bool = True) -> ReadinessRule | None:
    """Return when the instance counts as ready, None if the label has no usable rule.

    A regular expression from a label is used only if it is known: the engine's own, that of the local profile, or plain
    text. Otherwise the engine's own line is used, or only the rest of the rule: a stranger's expression can be written
    so that it never ends.

    Without ``needs_line``, a rule that has a health path comes without its line: to check one takes loading the engine.
    """
    try:
        fields = load_json(container.get_label(ContainerLabel.READY) or "")
        line, health, probe = fields["line"], fields["health"], fields.get("probe", "none")
        is_keyed = fields.get("requires_key") is True
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not (health is None or (isinstance(health, str) and _HEALTH_PATH_PATTERN.fullmatch(health))):
        return None
    if not isinstance(probe, str) or probe not in PROBE_KINDS:
        return None
    if line is None or (not needs_line and isinstance(line, str) and health is not None):
        return ReadinessRule(line=None, health=health, probe=probe, requires_key=is_keyed)
    if not isinstance(line, str):
        return None
    default = _find_engine_ready_line(container)
    if line == default or _PLAIN_LINE_PATTERN.fullmatch(line) or line == _find_profile_ready_line(container):
        return ReadinessRule(line=line, health=health, probe=probe, requires_key=is_keyed)
    if default is None and health is None:
        return None
    return ReadinessRule(line=default, health=health, probe=probe, requires_key=is_keyed)


def _find_engine_ready_line(container: Container) -> str | None:
    engine = find_engine(container.get_label(ContainerLabel.ENGINE))
    return None if engine is None else engine.defaults.ready_line


def _find_profile_ready_line(container: Container) -> str | None:
    """Return the ready line of the local profile of that name, None if it cannot be read."""
    from sparkctl.profiles.profile_library import ProfileLibrary

    name, library = container.get_label(ContainerLabel.PROFILE) or "", ProfileLibrary()
    try:
        return library.load_profile(name).start.ready_line if name in library.list_names() else None
    except (SparkctlError, OSError):
        return None


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
    if (data := load_json_map(text)) is None:
        return None
    found: dict[str, int | None] = {}
    for name in (field.name for field in fields(DecodeStepSpec) if field.name not in _OTHER_FIELDS):
        found[name] = _parse_bounded_int(
            data.get(name), 0 if name in _PIECE_FIELDS else 1, _MAX_PIECES if name in _PIECE_FIELDS else _MAX_BYTES
        )
    if (found["unread"] or 0) > (found["weights"] or 0):
        found["unread"] = None
    ranks = _parse_bounded_int(data.get("ranks", 1), 1, _MAX_PIECES)
    if ranks is None:
        return None  # otherwise every figure would be wrong by an unknown factor
    return DecodeStepSpec(
        **found,
        experts=_parse_routed_experts(data.get("experts"), found["weights"]),
        ranks=ranks,
        is_measured=data.get("is_measured") is True,
    )


def _parse_routed_experts(data: object, weights: int | None) -> RoutedExperts | None:
    if not isinstance(data, dict):
        return None
    count = _parse_bounded_int(data.get("count"), 1, _MAX_PIECES)
    per_token = _parse_bounded_int(data.get("per_token"), 1, count or 0)
    routed = _parse_bounded_int(data.get("weights"), 1, weights or _MAX_BYTES)
    if count is None or per_token is None or routed is None:
        return None
    return RoutedExperts(routed, count, per_token)


def _parse_bounded_int(value: object, least: int, most: int) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    return value if known and isinstance(value, int) else None
