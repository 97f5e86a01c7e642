"""Recipes with a list of services, each an engine with its settings by name (another tool that is called sparkctl)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.model.suggest import did_you_mean
from sparkctl.recipes import braces, fabric, plain
from sparkctl.recipes.draft import Draft, Kind
from sparkctl.recipes.ledger import Ledger
from sparkctl.recipes.recipe import Recipe
from sparkctl.recipes.references import literal

_SAME = ("max_model_len", "gpu_memory_utilization", "tool_call_parser", "reasoning_parser", "port", "quantization", "dtype",
         "max_num_seqs", "kv_cache_dtype")  # fmt: skip
_NAMES = {"served_name": "served_model_name", **{name: name for name in _SAME}}
_MORE = {"tool_call_parser": "--tool-call-parser", "reasoning_parser": "--reasoning-parser"}
_PARALLEL = {"tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel"}


def read(data: dict[str, Any], ledger: Ledger, service: str | None, defined: Mapping[str, str]) -> Draft:
    """Return the draft of one service. Raises `InvalidInput` where it is not said which, or no image is known for it."""
    services = [plain.mapping(one) for one in data.get("services") or [] if isinstance(one, dict)]
    body = _chosen(services, service)
    own = plain.text(body.get("name"))
    name = plain.text(data.get("name"))
    draft = Draft(Kind.SERVICES, ledger, name=name if len(services) == 1 or not own else f"{name or 'service'}-{own}")
    draft.title = " ".join((plain.text(data.get("description")) or "").split()) or None
    for key in ("name", "description"):
        if key in data:
            ledger.mapped(key, {"name": "name", "description": "title"}[key])
    for other in services:
        if other is not body:
            told = plain.text(other.get("name")) or "?"
            ledger.unsupported(f"services.{told}", f"one service is read; --service {told} reads this one")
    _take(draft, body, defined)
    for key, value in data.items():
        if key not in ("name", "description", "services"):
            ledger.kept(key, plain.data(value), "not part of the service")
    return draft


def _chosen(services: list[dict[str, Any]], service: str | None) -> dict[str, Any]:
    names = [plain.text(one.get("name")) or "?" for one in services]
    if service is None and len(services) > 1:
        # Beside one model of size these recipes list what goes with it; the first is what they are named after.
        return services[0]
    for name, one in zip(names, services, strict=True):
        if service in (None, name):
            return one
    raise InvalidInput(
        f"there is no service {service}{did_you_mean(service or '', names)}", f"there are {', '.join(names) or 'none'}"
    )


def _take(draft: Draft, body: dict[str, Any], defined: Mapping[str, str]) -> None:
    ledger = draft.ledger
    recipe = Recipe(draft, {"model": body.get("model")}, braces.by_rule)
    defaults: dict[str, Any] = {}
    engine = fabric.runtime(plain.text(body.get("engine")), None, None) or "vllm"
    draft.engine_hint, draft.model = engine, plain.text(body.get("model"))
    for key, value in body.items():
        if key in _NAMES:
            defaults[_NAMES[key]] = value
        elif key == "parallel":
            for axis, size in plain.mapping(value).items():
                if axis in _PARALLEL:
                    defaults[_PARALLEL[axis]] = size
                else:
                    ledger.unsupported(f"parallel.{axis}", "no such way to share a model is known")
        elif key in ("name", "engine", "model"):
            ledger.mapped(key, {"model": "model.path"}.get(key, key))
        elif key not in ("env", "extra_args", "container", "image"):
            ledger.kept(key, plain.data(value), "a profile has no such field")
    recipe.take_defaults(defaults, defined)
    recipe.take_env(plain.mapping(body.get("env")))
    if engine in fabric.COMMANDS:
        recipe.take_command(None, engine, _MORE)
    elif port := plain.number(body.get("port")):
        draft.port = port
        ledger.mapped("port", "port")
    extra = plain.texts(body.get("extra_args")) if body.get("extra_args") else []
    if extra:
        draft.words = [*(draft.words or []), *(literal(word) for word in extra)]
        ledger.mapped("extra_args", "args")
    image = defined.get("container") or plain.text(body.get("container")) or plain.text(body.get("image"))
    recipe.take_image("container", engine, image)
    draft.nodes = 1
    for axis in _PARALLEL.values():
        draft.nodes *= max(1, plain.number(defaults.get(axis)) or 1)
    draft.nodes = min(draft.nodes, 8)
    recipe.take_cache()
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"
