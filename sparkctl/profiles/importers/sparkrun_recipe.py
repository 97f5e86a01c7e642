"""Import sparkrun's recipes (v2, the keys of 0.4.2), their community variants (v3, v4, additional keys), and eugr's
(spark-vllm-docker, ``recipe_version: "1"``): filled in by str.format, run by a shell in the container.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import docker_flags, recipe_reader
from sparkctl.profiles.importers.foreign_yaml import (
    as_mapping,
    describe_kind,
    is_empty_value,
    is_truthy,
    load_foreign_yaml,
    parse_whole_number,
    scalar_text,
    scalar_texts,
    to_json_data,
)
from sparkctl.profiles.importers.profile_draft import MAX_NODES, ImportReport, ProfileDraft, SourceFormat
from sparkctl.profiles.importers.recipe_reader import RecipeReader, note_local_build, note_mods

MAX_INCLUDES = 8
_SHALLOW_SECTIONS = ("defaults", "env")  # values under these keys are not merged deeper
_ARCHITECTURES = ("arm64", "aarch64", "gb10", "sm121", "sm_121", "sm_121a", "spark", "dgx-spark", "blackwell")


def merge_included_recipes(
    data: dict[str, Any], ledger: ImportReport, lookup: Callable[[str], str | None]
) -> dict[str, Any]:
    """Return a recipe merged over the one it includes. Raises `InvalidInput` for a chain that is too long or circular."""
    chain, seen = [data], set[str]()
    while scalar_text(name := chain[-1].get("include")):
        reference = scalar_text(name) or ""
        if reference in seen:
            raise InvalidInput(f"include: {reference} leads back to here")
        if len(seen) >= MAX_INCLUDES:
            raise InvalidInput(f"include: more than {MAX_INCLUDES} recipes in a row")
        seen.add(reference)
        text = lookup(reference)
        if text is None:
            ledger.add_unsupported(
                f"include {reference}", "that recipe was not found (looked for next to this one); imported without it"
            )
            break
        base, mended = load_foreign_yaml(text, reference)
        for remark in mended:
            ledger.add_remark(f"{reference}: {remark}.")
        ledger.add_mapped(f"include {reference}", "the fields it gives")
        chain.append(base)
    found = chain[-1]
    for above in reversed(chain[:-1]):
        found = _merge_maps(found, above)
    return found


def _merge_maps(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Maps merge, lists and scalars replace, null removes, ``overrides`` are appended."""
    found = {key: value for key, value in base.items() if key not in ("include",)}
    for key, value in top.items():
        if value is None:
            found.pop(key, None)
        elif key == "overrides" and isinstance(value, list) and isinstance(found.get(key), list):
            found[key] = [*found[key], *value]
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = (
                _merge_flat_maps(found[key], value) if key in _SHALLOW_SECTIONS else _merge_maps(found[key], value)
            )
        else:
            found[key] = value
    return found


def _merge_flat_maps(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**base, **top}.items() if value is not None}


def apply_overrides(data: dict[str, Any], ledger: ImportReport, nodes: int) -> dict[str, Any]:
    """Return the recipe with those ``overrides`` applied that hold on a Spark, for this number of nodes."""
    found = dict(data)
    entries = data.get("overrides")
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries] if entries else []):
        key, body = f"overrides[{number}]", as_mapping(entry)
        when = as_mapping(body.get("when"))
        doubt = [name for name in when if name not in ("nodes", "arch", "config", "runtime", "engine")]
        if doubt:
            ledger.add_unsupported(key, f"the condition {', '.join(doubt)} is not known here: it does not match")
        elif all(_matches_condition(name, wanted, found, nodes) for name, wanted in when.items()):
            found = _merge_maps(found, {part: value for part, value in body.items() if part != "when"})
            ledger.add_mapped(key, "the fields it gives: its condition holds")
        else:
            ledger.keep_extra(key, to_json_data(body), "its condition does not hold here")
    return found


def _matches_condition(name: str, wanted: object, data: Mapping[str, Any], nodes: int) -> bool:
    if name == "nodes":
        text = (scalar_text(wanted) or "").replace(" ", "")
        for sign, test in ((">=", nodes.__ge__), ("<=", nodes.__le__), (">", nodes.__gt__), ("<", nodes.__lt__)):
            if text.startswith(sign):
                limit = parse_whole_number(text.removeprefix(sign))
                return limit is not None and bool(test(limit))
        return nodes in [parse_whole_number(one) for one in scalar_texts(wanted)]
    if name == "arch":
        return any(one.lower() in _ARCHITECTURES for one in scalar_texts(wanted))
    if name in ("runtime", "engine"):
        return scalar_text(data.get("runtime")) in scalar_texts(wanted)
    defaults = as_mapping(data.get("defaults"))
    return all(scalar_text(defaults.get(key)) == scalar_text(value) for key, value in as_mapping(wanted).items())


RecipeLookup = Callable[[str], str | None]
_CONFIG_REFERENCE = re.compile(r"\{?\{(config|launch)\.([A-Za-z_]+)\}\}?")
_EXTRA_KEYS = {
    "runtime_version": "a profile's image defines it",
    "max_nodes": "a profile is for one number of nodes",
    "mode": "the number of nodes defines it",
    "containers": "a profile has one image",
    "runtime_config": "settings of sparkrun's own launcher",
    "benchmark": "sparkctl runs no benchmark from a profile",
    "builder": "`build` in the profile says from what sparkctl builds the image",
    "builder_config": "`build` in the profile says from what sparkctl builds the image",
    "executor": "sparkctl runs containers by Docker",
    "scheduler": "you say on which node",
    "distribution_config": "`sparkctl sync PROFILE --from NODE --to NODE` copies a model between Sparks",
    "layout": "you say on which node",
    "cluster_config": "you say on which node",
    "runtime_cache": "mount the cache directory",
    "capabilities": "not asked for",
    "unsupported_capabilities": "not asked for",
    "draft_model": "the command has it, where it is used",
    "variants": "variants are profiles of their own: extends: this one",
    "patches": "sparkctl does not patch containers",
}
_FORMAT_KEYS = ("sparkrun_version", "recipe_version", "min_sparkrun_version")
_HOOK_KEYS = ("pre_exec", "post_exec", "post_commands")
_EXECUTOR_FLAGS = {
    "shm_size": "shm-size", "memory_limit": "memory", "devices": "device", "cap_add": "cap-add", "cap_drop": "cap-drop",
    "security_opt": "security-opt", "auto_remove": "rm", "restart_policy": "restart", "labels": "label",
    "ulimits": "ulimit", "volumes": "volume",
}  # fmt: skip


def import_sparkrun(
    data: dict[str, Any], ledger: ImportReport, defined: Mapping[str, str], lookup: RecipeLookup
) -> ProfileDraft:
    """Return the draft of a recipe. ``lookup`` returns the text of a recipe that ``include`` names, None if it is not
    found.

    Raises `InvalidInput` if it names no image, or includes itself.
    """
    data = merge_included_recipes(data, ledger, lookup)
    draft = ProfileDraft(kind=SourceFormat.SPARKRUN, ledger=ledger, name=scalar_text(data.get("name")))
    recipe = RecipeReader(draft, data, recipe_reader.fill_sparkrun_placeholders)
    _read_node_count(recipe, defined)
    data = apply_overrides(data, ledger, draft.nodes)
    recipe.data = data
    recipe.take_defaults(as_mapping(data.get("defaults")), defined)
    draft.model = scalar_text(data.get("model"))
    metadata = as_mapping(data.get("metadata"))
    draft.title = scalar_text(data.get("description")) or scalar_text(metadata.get("description"))
    _read_launch(recipe, defined)
    for key, value in data.items():
        before = len(ledger.accounts)
        if key in _KEY_READERS:
            _KEY_READERS[key](recipe, key, value)
        elif key in _HOOK_KEYS:
            _note_hook(recipe, key, value)
        elif key in _EXTRA_KEYS:
            recipe.keep_extra(key, _EXTRA_KEYS[key])
        elif key in _FORMAT_KEYS:
            ledger.add_mapped(key, "nothing: how the recipe is read")
        elif key not in _LAUNCH_KEYS:
            recipe.keep_extra(key, "no key of sparkrun's recipes")
        if len(ledger.accounts) == before and (
            key in _KEY_READERS or (key in ("env", "defaults") and not isinstance(value, dict))
        ):
            ledger.add_malformed(key, f"{key} cannot be {describe_kind(value)}")
    recipe.mount_hub_cache()
    draft.ipc, draft.network = draft.ipc or "host", draft.network or "host"
    draft.shm_size, draft.gpus = draft.shm_size or "10.24gb", draft.gpus or "all"
    return draft


_LAUNCH_KEYS = ("model", "command", "container", "runtime", "defaults", "env", "min_nodes", "solo_only", "cluster_only", "include",
          "overrides")  # fmt: skip


def _read_launch(recipe: RecipeReader, defined: Mapping[str, str]) -> None:
    """Read model, environment, command and image; the report covers each by its key."""
    data, draft, ledger = recipe.data, recipe.draft, recipe.ledger
    command = scalar_text(data.get("command"))
    runtime = scalar_text(data.get("runtime"))
    image = defined.get("container") or scalar_text(data.get("container"))
    engine = recipe_reader.detect_recipe_engine(runtime, command, image)
    draft.engine_hint = engine
    if draft.model:
        ledger.add_mapped("model", "model.path")
    if runtime is not None:
        ledger.add_mapped("runtime", "engine")
    recipe.take_env(
        {name: _fill_config_reference(recipe, value) for name, value in as_mapping(data.get("env")).items()}
    )
    recipe.take_image(engine, image)
    recipe.take_command(command, engine)
    _append_served_name(recipe, command, engine)


def _append_served_name(recipe: RecipeReader, command: str | None, engine: str | None) -> None:
    """Add a served name from the defaults to a command that does not have one."""
    name = recipe.placeholder_values.get("served_model_name")
    rules = recipe_reader.find_recipe_rules(engine)
    flag = f"--{rules.name_flags[0]}" if rules is not None and rules.name_flags else "--served-model-name"
    words = recipe.draft.words
    if name is None or command is None or words is None or any(flag in word for word in words):
        return
    if words[:1] == ["bash"]:
        words[-1] = f"{words[-1].rstrip()} {flag} {escape_references(name)}"
    else:
        words += [flag, *(escape_references(word) for word in name.split())]
    recipe.ledger.add_mapped("defaults.served_model_name", flag.lstrip("-"))


def _fill_config_reference(recipe: RecipeReader, value: object) -> object:
    """Fill in ``{config.NAME}`` in an environment entry from the defaults; what only `sparkrun` knows at launch stays."""
    if not isinstance(value, str):
        return value

    def replace_config_reference(match: re.Match[str]) -> str:
        if match[0].startswith("{{") and match[0].endswith("}}"):
            return match[0][1:-1]
        if match[1] == "config" and match[2] in recipe.placeholder_values:
            return recipe.placeholder_values[match[2]]
        if match[0] == "{launch.num_nodes}":
            return str(recipe.draft.nodes)
        recipe.ledger.add_unsupported(f"env {match[0]}", "only sparkrun's launcher knows it; it is kept as written")
        return match[0]

    return _CONFIG_REFERENCE.sub(replace_config_reference, value)


def _read_node_count(recipe: RecipeReader, defined: Mapping[str, str]) -> None:
    data, ledger = recipe.data, recipe.ledger
    recipe.take_defaults(as_mapping(data.get("defaults")), defined)
    count = parse_whole_number(data.get("min_nodes")) or 1
    if is_truthy(data.get("cluster_only")):
        count = max(2, count)
    if is_truthy(data.get("solo_only")) or parse_whole_number(data.get("max_nodes")) == 1:
        count = 1
    elif _has_ranks(scalar_text(data.get("runtime")), scalar_text(data.get("command"))):
        count = max(count, count_parallel_nodes(recipe))  # one GPU per Spark: each rank is a node
        recipe.draft.by_ranks = True
    recipe.draft.nodes = max(1, min(count, MAX_NODES))
    for key in ("min_nodes", "solo_only", "cluster_only"):
        if key in data:
            ledger.add_mapped(key, "nodes")


def _has_ranks(runtime: str | None, command: str | None) -> bool:
    rules = recipe_reader.find_recipe_rules(recipe_reader.detect_recipe_engine(runtime, command, None))
    return rules is not None and rules.has_ranks


def _note_hook(recipe: RecipeReader, key: str, value: object) -> None:
    if is_empty_value(value):
        recipe.ledger.add_mapped(key, "nothing: it is empty")
    elif recipe.ledger.check_permission(key, "hooks", "it runs commands of the recipe's author"):
        recipe.keep_extra(key, "sparkctl runs no hooks: what they do has to be in the image")


def _read_metadata(recipe: RecipeReader, key: str, value: object) -> None:
    rest = as_mapping(value)
    if not rest and not is_empty_value(value):
        recipe.keep_extra(key)
        return
    if (count := scalar_text(rest.get("model_params"))) and re.fullmatch(r"[0-9]+(\.[0-9]+)?\s*[KMBTkmbt]?", count):
        recipe.draft.parameters = count
        recipe.ledger.add_mapped("metadata.model_params", "model.parameters")
        del rest["model_params"]
    if scalar_text(rest.get("description")) and rest["description"] == recipe.draft.title:
        recipe.ledger.add_mapped("metadata.description", "title")
        del rest["description"]
    if "sparkctl" in rest:
        recipe.draft.beside, recipe.draft.beside_key = (
            scalar_text(rest.pop("sparkctl")) or "",
            f"{key}.sparkctl",
        )
    if rest:
        recipe.ledger.keep_extra("metadata", to_json_data(rest), "what the author says of it")


def _read_executor(recipe: RecipeReader, key: str, value: object) -> None:
    for name, one in as_mapping(value).items():
        flag = _EXECUTOR_FLAGS.get(name, name.replace("_", "-"))
        if (isinstance(one, bool) and not one) or is_empty_value(one):
            recipe.ledger.add_mapped(f"{key}.{name}", "nothing: it is off")
            continue
        values = one if isinstance(one, list) else list(as_mapping(one).items()) if isinstance(one, dict) else [one]
        for each in values:
            text = f"{each[0]}={scalar_text(each[1])}" if isinstance(each, tuple) else scalar_text(each) or ""
            docker_flags.apply_docker_flag(recipe.draft, flag, escape_references(text), f"{key}.{name}")


def _read_volumes(recipe: RecipeReader, key: str, value: object) -> None:
    """Read ``volumes``: sparkrun itself does not know the key, but people use it."""
    pairs = [f"{a}:{scalar_text(b)}" for a, b in value.items()] if isinstance(value, dict) else scalar_texts(value)
    for text in pairs:
        docker_flags.apply_docker_flag(
            recipe.draft,
            "volume",
            escape_references(recipe.fill_placeholders(text, recipe.placeholder_values).text),
            f"{key} {text}",
        )


def _read_readiness(recipe: RecipeReader, key: str, value: object) -> None:
    draft, ledger = recipe.draft, recipe.ledger
    for name, one in as_mapping(value).items():
        path, number = f"{key}.{name}", parse_whole_number(one)
        phase = {"port_timeout_s": "loading", "health_timeout_s": "warming"}.get(name)
        if phase and number is not None and number > 0:
            draft.timeouts[phase] = float(number)
            ledger.add_mapped(path, f"start.timeouts.{phase}")
        elif name == "inference":
            draft.probe = draft.probe if is_truthy(one) else "none"
            ledger.add_mapped(path, "start.probe")
        elif name == "inference_style" and scalar_text(one) in ("chat", "completions", "auto"):
            draft.probe = None if one == "auto" else draft.probe or str(one)
            ledger.add_mapped(path, "start.probe")
        elif name == "inference_prompt" and scalar_text(one):
            draft.prompt = scalar_text(one)
            ledger.add_mapped(path, "start.prompt")
        else:
            ledger.add_unsupported(path, "sparkctl has no such limit")


def _note_mapped(recipe: RecipeReader, key: str, value: object) -> None:
    recipe.ledger.add_mapped(key, {"name": "name", "description": "title"}[key])


def _read_mods(recipe: RecipeReader, key: str, value: object) -> None:
    mods = scalar_texts(value) if isinstance(value, list | str) else []
    note_mods(recipe.ledger, mods)
    if not mods:
        recipe.keep_extra(key)


def _read_build_args(recipe: RecipeReader, key: str, value: object) -> None:
    recipe.keep_extra(key, "how eugr's build makes the image")
    note_local_build(recipe.draft, scalar_texts(value))


def _read_model_revision(recipe: RecipeReader, key: str, value: object) -> None:
    text, words = scalar_text(value), recipe.draft.words
    rules = recipe_reader.find_recipe_rules(recipe.draft.engine_hint)
    if text and words and words[:1] != ["bash"] and rules is not None and rules.is_python_server:
        if not any(word.startswith("--revision") for word in words):
            words += ["--revision", escape_references(text)]
        recipe.ledger.add_mapped(key, "args.revision")
    else:
        recipe.keep_extra(key, "this engine has no flag for it")


def _note_auto_stop(recipe: RecipeReader, key: str, value: object) -> None:
    if is_truthy(value):
        recipe.ledger.add_unsupported(key, "what sparkctl starts stays until it is stopped")
    else:
        recipe.ledger.add_mapped(key, "nothing: it is off")


_KEY_READERS: dict[str, Callable[[RecipeReader, str, Any], None]] = {
    "metadata": _read_metadata, "executor_config": _read_executor, "volumes": _read_volumes, "readiness": _read_readiness,
    "name": _note_mapped, "description": _note_mapped, "mods": _read_mods, "build_args": _read_build_args,
    "model_revision": _read_model_revision, "stop_after_post": _note_auto_stop,
}  # fmt: skip


# --- eugr's ---

_EUGR_KEYS = ("recipe_version", "name", "description", "model", "container", "command", "defaults", "env", "mods", "build_args",
        "cluster_only", "solo_only", "pull_image")  # fmt: skip


def import_eugr(data: dict[str, Any], ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of a recipe. Raises `InvalidInput` where it names no image."""
    draft = ProfileDraft(
        kind=SourceFormat.EUGR,
        ledger=ledger,
        name=scalar_text(data.get("name")),
        title=scalar_text(data.get("description")),
    )
    recipe = RecipeReader(draft, data, recipe_reader.fill_eugr_placeholders)
    for key, to in (("name", "name"), ("description", "title"), ("recipe_version", "nothing: how the recipe is read")):
        if key in data:
            ledger.add_mapped(key, to)
    recipe.take_defaults(as_mapping(data.get("defaults")), defined)
    draft.model = scalar_text(data.get("model"))
    if draft.model:
        ledger.add_mapped("model", "model.path")
    _read_eugr_env(recipe)
    command = scalar_text(data.get("command"))
    engine = recipe_reader.detect_recipe_engine(
        scalar_text(data.get("runtime")), command, scalar_text(data.get("container"))
    )
    draft.engine_hint = engine or recipe_reader.get_default_engine()
    recipe.take_image(draft.engine_hint, defined.get("container") or scalar_text(data.get("container")))
    recipe.take_command(command, draft.engine_hint)
    _read_eugr_build(recipe)
    _read_eugr_nodes(recipe)
    for key in data:
        if key not in _EUGR_KEYS:
            recipe.keep_extra(key, "no key of eugr's recipes")
    recipe.mount_hub_cache()
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"
    return draft


def _read_eugr_env(recipe: RecipeReader) -> None:
    """Read ``export K="V"`` in the launch script; a shell in the container expands dollar signs there."""
    literal: dict[str, Any] = {}
    for name, value in as_mapping(recipe.data.get("env")).items():
        text = scalar_text(value) or ""
        if "$" in text:
            known = recipe.env | {key: scalar_text(one) or "" for key, one in literal.items()}
            for other, known_value in known.items():
                text = text.replace(f"${{{other}}}", known_value).replace(f"${other}", known_value)
        if "$" in text:
            recipe.ledger.add_unsupported(
                f"env.{name}", f"{text} is filled in by a shell in the container; sparkctl gives it literal values"
            )
        else:
            literal[name] = text if value is not None else None
    recipe.take_env(literal)


def _read_eugr_build(recipe: RecipeReader) -> None:
    args = scalar_texts(recipe.data.get("build_args")) if recipe.data.get("build_args") else []
    if "build_args" in recipe.data:
        recipe.keep_extra("build_args", "how eugr's build makes the image")
    note_mods(recipe.ledger, scalar_texts(recipe.data.get("mods")) if recipe.data.get("mods") else [])
    if "mods" in recipe.data and is_empty_value(recipe.data["mods"]):
        recipe.ledger.add_mapped("mods", "nothing: it is empty")
    if "pull_image" in recipe.data:
        recipe.ledger.add_unsupported(
            "pull_image", "`sparkctl pull` and `up --pull` get the image; `up` alone never does"
        )
    note_local_build(recipe.draft, args)


def _read_eugr_nodes(recipe: RecipeReader) -> None:
    solo, cluster = (is_truthy(recipe.data.get(key)) for key in ("solo_only", "cluster_only"))
    if cluster and not solo:
        recipe.draft.nodes = max(2, count_parallel_nodes(recipe))
    recipe.draft.by_ranks = not solo
    for key in ("solo_only", "cluster_only"):
        if key in recipe.data:
            recipe.ledger.add_mapped(key, "nodes")


def count_parallel_nodes(recipe: RecipeReader) -> int:
    """Return how many Sparks the parallel sizes need: each has one GPU."""
    count = 1
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        count *= max(1, parse_whole_number(recipe.placeholder_values.get(key)) or 1)
    return min(count, MAX_NODES)
