"""Endpoints of running models in the configuration formats of clients."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from sparkctl.commands.list_endpoints import ServedEndpoint
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration

_KEY_PLACEHOLDER = "none"  # placeholder: clients need a key even if the server needs none
# prefixes of well-known services, whose clients read *_API_KEY and *_BASE_URL
_WELL_KNOWN_SERVICES = frozenset({
    "OPENAI", "ANTHROPIC", "AZURE", "AZURE_OPENAI", "GEMINI", "GOOGLE", "MISTRAL", "GROQ", "COHERE", "DEEPSEEK", "OPENROUTER",
    "TOGETHER", "XAI", "PERPLEXITY", "HUGGINGFACE", "HF", "NVIDIA", "REPLICATE", "FIREWORKS", "CEREBRAS", "LITELLM",
})  # fmt: skip
_MIN_START_PATIENCE = 600  # seconds that a client waits for a start
_MAX_ANSWER_TOKENS = 8192  # tokens of one answer, if a client needs a limit and the engine reports none


def format_endpoint_config(
    served: Sequence[ServedEndpoint], form: str, default: ServedEndpoint | None = None
) -> list[str]:
    """Return the configuration of a client; ``form`` is one that `sparkctl endpoints --as` takes.

    ``default`` is the endpoint of OPENAI_BASE_URL; None if there is no default. A key is written where the endpoint has it.
    What was started only because another instance needs it is left out: a client asks that one.
    """
    of_all = form in ("env", "litellm", "llama-swap", "open-webui")  # the others know language models alone
    return _WRITERS[form]([one for one in served if one.is_model or (of_all and one.started_for is None)], default)


def build_endpoints_json(served: Sequence[ServedEndpoint]) -> dict[str, object]:
    """Return the endpoints as JSON data; with their keys where they have them."""
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
            | ({} if one.service is None else {"service": one.service})
            | ({} if one.started_for is None else {"needed_by": one.started_for})
            | ({} if one.key is None else {"key": one.key})
            for one in served
        ],
    }


def caution_local_names(served: Sequence[ServedEndpoint]) -> str | None:
    """Return what a client may meet at a name of mDNS, None where no endpoint has one."""
    if not any(".local:" in one.url for one in served):
        return None
    return (
        "if a client waits half a minute before each answer: the .local name may also lead to an IPv6 address that is dead; "
        "give it the IPv4 address"
    )


def _write_key(one: ServedEndpoint, reference: str) -> str:
    """Return the key, else what refers to it in the client's format, else the placeholder."""
    return one.key or (reference if one.needs_key else _KEY_PLACEHOLDER)


def api_key_variable(one: ServedEndpoint) -> str:
    """Return the environment variable from which clients take the key."""
    return f"{_make_variable_prefix(one)}_API_KEY"


def _make_variable_prefix(one: ServedEndpoint) -> str:
    """Return the prefix of an endpoint's variables, never a known service's: its clients would send their keys there."""
    own = _to_variable_name(one.instance)
    return f"{own}_{_to_variable_name(one.node)}" if own in _WELL_KNOWN_SERVICES else own


def _to_variable_name(text: str) -> str:
    name = re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")
    return name if name[:1].isalpha() else f"_{name}"


def _format_env(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    """Return all endpoints as shell variables with own prefixes; the default one also as OPENAI_*. The first of a name gets it."""
    lines: list[str] = []
    taken: set[str] = set()
    for one in served:
        lines.append(f"# {one.instance} on {one.node}" + (f" ({one.service})" if one.service else ""))
        key = _write_key(one, f'"${{{api_key_variable(one)}}}"')
        key = shlex.quote(key) if one.key else key
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
        lines += [f"export {own}_API_KEY={key}"] if one.key else []
        lines += [f"export {own}_MODEL={model}"] if model else []
    return lines


def _format_litellm(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    import yaml

    models: list[dict[str, Any]] = []
    own = _assign_model_names(served)
    notes = [
        f"# {_format_comment_name(name)}: its instances take contexts of different lengths, and one name for all would spread requests"
        f" over them; each has its own name: {', '.join(_format_comment_name(given) for given in names)}"
        for name, names in _group_by_model(own).items()
    ]
    for position, one in enumerate(served):
        for model in one.models:
            key = _write_key(one, f"os.environ/{api_key_variable(one)}")
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
        key = _write_key(one, f"${{{api_key_variable(one)}}}")
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
        key = _write_key(one, f"{{env:{api_key_variable(one)}}}")
        providers[name] = {
            "npm": "@ai-sdk/openai-compatible",
            "name": f"{one.instance} on {one.node}",
            "options": {"baseURL": one.url, "apiKey": key},
            "models": models,
        }
    document = {"$schema": "https://opencode.ai/config.json", "provider": providers}
    return json.dumps(document, indent=2, ensure_ascii=False).split("\n")


def _format_claude_code(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    """Return a settings.json: one server, whose root gets /v1/messages, and a model's name for each tier."""
    one = default
    if one is None or not one.models:
        return ["{}"]
    model = one.models[0].name
    tiers = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in ("OPUS", "SONNET", "HAIKU")))
    env = {"ANTHROPIC_BASE_URL": one.url.removesuffix("/v1")} | dict.fromkeys(tiers, model)
    if one.key or not one.needs_key:
        env["ANTHROPIC_AUTH_TOKEN"] = one.key or _KEY_PLACEHOLDER
    env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    return json.dumps({"env": env}, indent=2, ensure_ascii=False).split("\n")


def _format_open_webui(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    """Return a file for `docker run --env-file`: Docker takes the values as they are, without quotes."""
    lines = [
        "# read at Open WebUI's first start; later it uses what its admin panel has (ENABLE_PERSISTENT_CONFIG=false: these)"
    ]
    missing = [one for one in served if one.needs_key and one.key is None]
    lines += [
        f"# in place of {api_key_variable(one)}: the key of {_format_comment_name(one.instance)}" for one in missing
    ]
    models = [one for one in served if one.service is None]
    keys = ";".join(_write_key(one, api_key_variable(one)) for one in models)
    lines += (
        [f"OPENAI_API_BASE_URLS={';'.join(one.url for one in models)}", f"OPENAI_API_KEYS={keys}"] if models else []
    )
    voice = next((one for one in served if one.service == "speech"), None)  # it takes one
    if voice is not None:
        lines += ["AUDIO_TTS_ENGINE=openai", f"AUDIO_TTS_OPENAI_API_BASE_URL={voice.url}"]
        lines.append(f"AUDIO_TTS_OPENAI_API_KEY={_write_key(voice, api_key_variable(voice))}")
        lines += [f"AUDIO_TTS_MODEL={voice.models[0].name}"] if voice.models else []
    return lines


def _format_llama_swap(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    """Return a llama-swap file of sparkctl's own instances. Its ``cmd`` must last as long as the model: after `up` it
    follows the log. Models that run together now are in one group that does not swap. Without ``checkEndpoint`` llama-swap
    asks for /health, which not every server has."""
    import yaml

    models: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    ours = [
        (one, name) for one, name in zip(served, _assign_unique_names(served), strict=True) if one.ours and one.profile
    ]
    usual = [one.ready_seconds for one, _ in ours if one.ready_seconds is not None]
    for one, name in ours:
        where = " ".join(f"--node {shlex.quote(node)}" for node in one.nodes or (one.node,))
        start = f"sparkctl up {shlex.quote(one.profile or '')} {where} && exec sparkctl logs {shlex.quote(one.instance)} {where} -f --tail 0"
        models[name] = {
            "cmd": f"sh -c {shlex.quote(start)}",
            "cmdStop": f"sparkctl down {shlex.quote(one.instance)} {where}",
            "proxy": one.url.removesuffix("/v1"),
        }
        if one.health is not None:
            models[name]["checkEndpoint"] = one.health
        if one.models:
            models[name]["useModelName"] = one.models[0].name
        groups.setdefault(one.node, {"swap": False, "exclusive": False, "members": []})["members"].append(name)
    patience = _MIN_START_PATIENCE if not usual else max(_MIN_START_PATIENCE, round(2 * max(usual)))
    notes = [
        f"# {_format_comment_name(name)}: ready after {format_duration(one.ready_seconds)} as a rule"
        for one, name in ours
        if one.ready_seconds is not None
    ]
    document = {"healthCheckTimeout": patience, "models": models, "groups": groups}
    text = str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000))
    return [*notes, *text.rstrip("\n").split("\n")]


def _format_continue(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> list[str]:
    import yaml

    models: list[dict[str, Any]] = []
    for one in served:
        for model in one.models:
            key = _write_key(one, f"${{{{ secrets.{api_key_variable(one)} }}}}")
            entry: dict[str, Any] = {"name": f"{model.name} on {one.node}", "provider": "openai", "model": model.name}
            entry |= {"apiBase": one.url, "apiKey": key, "roles": ["chat", "edit", "apply"]}
            if model.context is not None:
                limit = _limit_answer_tokens(model.context)
                entry["defaultCompletionOptions"] = {"contextLength": model.context, "maxTokens": limit}
            models.append(entry)
    document = {"name": "Sparks", "version": "1.0.0", "schema": "v1", "models": models}
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).rstrip("\n").split("\n")


def _assign_unique_names(served: Sequence[ServedEndpoint]) -> list[str]:
    """Return a name for each endpoint: the instance's, with the node if two nodes have that instance."""
    twice = {one.instance for one in served if sum(other.instance == one.instance for other in served) > 1}
    return [f"{one.instance}-{one.node}" if one.instance in twice else one.instance for one in served]


_WRITERS: dict[str, Callable[[Sequence[ServedEndpoint], ServedEndpoint | None], list[str]]] = {
    "env": _format_env,
    "claude-code": _format_claude_code,
    "continue": _format_continue,
    "litellm": _format_litellm,
    "llama-swap": _format_llama_swap,
    "open-webui": _format_open_webui,
    "openclaw": _format_openclaw,
    "opencode": _format_opencode,
}
