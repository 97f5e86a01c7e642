"""Import recipes with a list of services, each an engine with named settings (another tool called sparkctl)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.model.text.suggestions import format_did_you_mean
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import recipe_reader
from sparkctl.profiles.importers.foreign_yaml import (
    as_mapping,
    parse_whole_number,
    scalar_text,
    scalar_texts,
    to_json_data,
)
from sparkctl.profiles.importers.import_report import ImportReport
from sparkctl.profiles.importers.profile_draft import MAX_NODES, ProfileDraft, SourceFormat
from sparkctl.profiles.importers.recipe_reader import RecipeReader

_SAME_KEYS = ("max_model_len", "gpu_memory_utilization", "tool_call_parser", "reasoning_parser", "port", "quantization", "dtype",
         "max_num_seqs", "kv_cache_dtype")  # fmt: skip
_DEFAULT_KEYS = {"served_name": "served_model_name", **{name: name for name in _SAME_KEYS}}
_EXTRA_FLAGS = {"tool_call_parser": "--tool-call-parser", "reasoning_parser": "--reasoning-parser"}
_PARALLEL_KEYS = {"tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel"}
_TOOL_ULIMITS = {"memlock": "-1", "stack": "67108864"}


def import_services(
    data: dict[str, Any], ledger: ImportReport, service: str | None, defined: Mapping[str, str]
) -> ProfileDraft:
    """Return the draft of one service. Raises `InvalidInput` if it is not clear which, or no image is known for it."""
    services = [as_mapping(one) for one in data.get("services") or [] if isinstance(one, dict)]
    body = _select_service(services, service)
    own = scalar_text(body.get("name"))
    name = scalar_text(data.get("name"))
    draft = ProfileDraft(
        kind=SourceFormat.SERVICES,
        ledger=ledger,
        name=name if len(services) == 1 or not own else f"{name or 'service'}-{own}",
    )
    draft.title = " ".join((scalar_text(data.get("description")) or "").split()) or None
    for key in ("name", "description"):
        if key in data:
            ledger.add_mapped(key, {"name": "name", "description": "title"}[key])
    for other in services:
        if other is not body:
            told = scalar_text(other.get("name")) or "?"
            ledger.add_unsupported(f"services.{told}", f"one service is read; --service {told} reads this one")
    _read_service(draft, body, defined)
    for key, value in data.items():
        if key not in ("name", "description", "services"):
            ledger.keep_extra(key, to_json_data(value), "not part of the service")
    return draft


def _select_service(services: list[dict[str, Any]], service: str | None) -> dict[str, Any]:
    names = [scalar_text(one.get("name")) or "?" for one in services]
    if service is None and len(services) > 1:
        # Besides the main model these recipes list small helpers; the main model comes first and gives the name.
        return services[0]
    for name, one in zip(names, services, strict=True):
        if service in (None, name):
            return one
    raise InvalidInput(
        f"there is no service {service}{format_did_you_mean(service or '', names)}",
        f"there are {', '.join(names) or 'none'}",
    )


def _read_service(draft: ProfileDraft, body: dict[str, Any], defined: Mapping[str, str]) -> None:
    ledger = draft.ledger
    recipe = RecipeReader(draft, {"model": body.get("model")}, recipe_reader.fill_sparkrun_placeholders)
    defaults: dict[str, Any] = {}
    engine = recipe_reader.detect_recipe_engine(scalar_text(body.get("engine")), None, None)
    engine = engine or recipe_reader.get_default_engine()
    draft.engine_hint, draft.model = engine, scalar_text(body.get("model"))
    for key, value in body.items():
        if key in _DEFAULT_KEYS:
            defaults[_DEFAULT_KEYS[key]] = value
        elif key == "parallel":
            for axis, size in as_mapping(value).items():
                if axis in _PARALLEL_KEYS:
                    defaults[_PARALLEL_KEYS[axis]] = size
                else:
                    ledger.add_unsupported(f"parallel.{axis}", "no such way to share a model is known")
        elif key in ("name", "engine", "model"):
            ledger.add_mapped(key, {"model": "model.path"}.get(key, key))
        elif key not in ("env", "extra_args", "container", "image"):
            ledger.keep_extra(key, to_json_data(value), "a profile has no such field")
    recipe.take_defaults(defaults, defined)
    recipe.take_env(as_mapping(body.get("env")))
    rules = recipe_reader.find_recipe_rules(engine)
    if rules is not None and rules.recipe_command:
        recipe.take_command(None, engine, _EXTRA_FLAGS)
    elif port := parse_whole_number(body.get("port")):
        draft.port = port
        ledger.add_mapped("port", "port")
    extra = scalar_texts(body.get("extra_args")) if body.get("extra_args") else []
    if extra:
        draft.words = [*(draft.words or []), *(escape_references(word) for word in extra)]
        ledger.add_mapped("extra_args", "args")
    image = defined.get("container") or scalar_text(body.get("container")) or scalar_text(body.get("image"))
    recipe.take_image("container", engine, image)
    draft.nodes = 1
    for axis in _PARALLEL_KEYS.values():
        draft.nodes *= max(1, parse_whole_number(defaults.get(axis)) or 1)
    draft.nodes = min(draft.nodes, MAX_NODES)
    if draft.nodes > 1:
        ledger.add_remark(
            "Its own tool starts the ranks by Ray; sparkctl starts them by the engine's own means.", "nodes"
        )
    for name, limit in _TOOL_ULIMITS.items():
        draft.ulimits[name] = limit
        ledger.add_mapped(f"--ulimit {name}={limit} (its tool always sets it)", f"container.ulimits.{name}")
    recipe.mount_hub_cache()
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"
