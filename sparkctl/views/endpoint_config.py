"""Endpoints of running models in the configuration formats of clients: env, litellm, openclaw, opencode."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from sparkctl.commands.list_endpoints import ServedEndpoint
from sparkctl.model.text.sanitize import sanitize_line

_KEY_PLACEHOLDER = "none"  # placeholder: clients need a key even if the server needs none
# prefixes of well-known services, whose clients read *_API_KEY and *_BASE_URL
_WELL_KNOWN_SERVICES = frozenset({
    "OPENAI", "ANTHROPIC", "AZURE", "AZURE_OPENAI", "GEMINI", "GOOGLE", "MISTRAL", "GROQ", "COHERE", "DEEPSEEK", "OPENROUTER",
    "TOGETHER", "XAI", "PERPLEXITY", "HUGGINGFACE", "HF", "NVIDIA", "REPLICATE", "FIREWORKS", "CEREBRAS", "LITELLM",
})  # fmt: skip
_MAX_ANSWER_TOKENS = 8192  # tokens of one answer, if a client needs a limit and the engine reports none


def format_endpoint_config(
    served: Sequence[ServedEndpoint], form: str, default: ServedEndpoint | None = None
) -> list[str]:
    """Return the configuration of a client; ``form`` is env, litellm, openclaw or opencode.

    ``default`` is the endpoint of OPENAI_BASE_URL; None if there is no default.
    """
    return _WRITERS[form](served, default)


def build_endpoints_json(served: Sequence[ServedEndpoint]) -> dict[str, object]:
    """Return the endpoints as JSON data."""
    return {
        "schema": 1,
        "endpoints": [
            {
                "node": one.node,
                "instance": one.instance,
                "base_url": one.url,
                "models": [{"name": model.name, "context": model.context} for model in one.models],
                "needs_key": one.needs_key,
                "ours": one.ours,
                "engine": one.engine,
            }
            for one in served
        ],
    }


def api_key_variable(one: ServedEndpoint) -> str:
    """Return the environment variable from which clients take the key."""
    return f"{_make_variable_prefix(one)}_API_KEY"


def _make_variable_prefix(one: ServedEndpoint) -> str:
    """Return the prefix of an endpoint's variables. Prefixes of well-known services are never used for a container of
    that name: their clients would send their keys to it."""
    own = _to_variable_name(one.instance)
    return f"{own}_{_to_variable_name(one.node)}" if own in _WELL_KNOWN_SERVICES else own


def _to_variable_name(text: str) -> str:
    name = re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")
    return name if name[:1].isalpha() else f"_{name}"


def _format_env(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    """Return all endpoints as shell variables, each with its own prefix; the default one also as OPENAI_*. The first
    endpoint of a name gets the name."""
    lines: list[str] = []
    taken: set[str] = set()
    for one in served:
        lines.append(f"# {one.instance} on {one.node}")
        key = f'"${{{api_key_variable(one)}}}"' if one.needs_key else _KEY_PLACEHOLDER
        model = shlex.quote(one.models[0].name) if one.models else None
        if one is default:
            lines += [f"export OPENAI_BASE_URL={shlex.quote(one.url)}", f"export OPENAI_API_KEY={key}"]
            lines += [f"export OPENAI_MODEL={model}"] if model else []
        own = _make_variable_prefix(one)
        if own in taken:
            own = f"{own}_{_to_variable_name(one.node)}"
        if own in taken:
            continue
        taken.add(own)
        lines.append(f"export {own}_BASE_URL={shlex.quote(one.url)}")
        lines += [f"export {own}_MODEL={model}"] if model else []
    return lines


def _format_litellm(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    import yaml

    models: list[dict[str, Any]] = []
    own = _assign_model_names(served)
    notes = [
        f"# {_format_comment_name(name)}: its instances take contexts of different lengths, and one name for all would spread requests"
        f" over them; each has a name of its own: {', '.join(_format_comment_name(given) for given in names)}"
        for name, names in _group_by_model(own).items()
    ]
    for position, one in enumerate(served):
        for model in one.models:
            key = f"os.environ/{api_key_variable(one)}" if one.needs_key else _KEY_PLACEHOLDER
            entry: dict[str, Any] = {"model_name": own.get((position, model.name), model.name)}
            entry["litellm_params"] = {"model": f"openai/{model.name}", "api_base": one.url, "api_key": key}
            if model.context is not None:
                entry["model_info"] = {"max_input_tokens": model.context}
            models.append(entry)
    text = str(yaml.safe_dump({"model_list": models}, sort_keys=False, allow_unicode=True))
    return [*notes, *text.rstrip("\n").split("\n")]


def _format_comment_name(name: str) -> str:
    """Return a name for a comment of one line."""
    return " ".join(sanitize_line(name).split())


def _assign_model_names(served: Sequence[ServedEndpoint]) -> dict[tuple[int, str], str]:
    """Return a name for each model, by the endpoint's position and the model, if endpoints serve it with different
    context lengths.

    LiteLLM balances requests over entries of one name, so that a long request could go to an endpoint with a short
    context.
    """
    contexts: dict[str, list[int | None]] = {}
    for one in served:
        for model in one.models:
            contexts.setdefault(model.name, []).append(model.context)
    uneven = {name for name, found in contexts.items() if len(set(found)) > 1}
    taken = set(contexts)
    own: dict[tuple[int, str], str] = {}
    for position, (one, instance) in enumerate(zip(served, _assign_unique_names(served), strict=True)):
        for name in dict.fromkeys(model.name for model in one.models if model.name in uneven):
            own[position, name] = instance if instance not in taken else f"{instance}/{name}"
            taken.add(own[position, name])
    return own


def _group_by_model(own: dict[tuple[int, str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for (_, name), given in own.items():
        found.setdefault(name, []).append(given)
    return found


def _format_openclaw(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    providers: dict[str, Any] = {}
    names = _assign_unique_names(served)
    for one, name in zip(served, names, strict=True):
        models = [
            {"id": model.name, "name": f"{model.name} on {one.node}", "input": ["text"]}
            | _build_token_limits(model.context)
            for model in one.models
        ]
        key = f"${{{api_key_variable(one)}}}" if one.needs_key else _KEY_PLACEHOLDER
        providers[name] = {"baseUrl": one.url, "api": "openai-completions", "apiKey": key, "models": models}
    document: dict[str, Any] = {"models": {"mode": "merge", "providers": providers}}
    may_be = [
        (name, one) for one, name in zip(served, names, strict=True) if default is not None and one.ours == default.ours
    ]
    first = next(((name, one.models[0].name) for name, one in may_be if one.models), None)
    if first is not None:
        document["agents"] = {"defaults": {"model": {"primary": "/".join(first)}}}
    return json.dumps(document, indent=2, ensure_ascii=False).split("\n")


def _build_token_limits(context: int | None) -> dict[str, int]:
    return {} if context is None else {"contextWindow": context, "maxTokens": _limit_answer_tokens(context)}


def _limit_answer_tokens(context: int) -> int:
    return min(_MAX_ANSWER_TOKENS, max(1, context // 2))


def _format_opencode(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    providers: dict[str, Any] = {}
    for one, name in zip(served, _assign_unique_names(served), strict=True):
        models: dict[str, Any] = {}
        for model in one.models:
            limit = (
                {}
                if model.context is None
                else {"limit": {"context": model.context, "output": _limit_answer_tokens(model.context)}}
            )
            models[model.name] = {"name": f"{model.name} on {one.node}"} | limit
        key = f"{{env:{api_key_variable(one)}}}" if one.needs_key else _KEY_PLACEHOLDER
        providers[name] = {
            "npm": "@ai-sdk/openai-compatible",
            "name": f"{one.instance} on {one.node}",
            "options": {"baseURL": one.url, "apiKey": key},
            "models": models,
        }
    document = {"$schema": "https://opencode.ai/config.json", "provider": providers}
    return json.dumps(document, indent=2, ensure_ascii=False).split("\n")


def _assign_unique_names(served: Sequence[ServedEndpoint]) -> list[str]:
    """Return a unique name for each endpoint: the instance's name, with the node if two nodes have an instance of
    that name."""
    twice = {one.instance for one in served if sum(other.instance == one.instance for other in served) > 1}
    return [f"{one.instance}-{one.node}" if one.instance in twice else one.instance for one in served]


_WRITERS: dict[str, Callable[[Sequence[ServedEndpoint], ServedEndpoint | None], list[str]]] = {
    "env": _format_env,
    "litellm": _format_litellm,
    "openclaw": _format_openclaw,
    "opencode": _format_opencode,
}
