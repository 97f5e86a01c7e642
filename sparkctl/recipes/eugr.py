"""eugr's recipes (spark-vllm-docker, ``recipe_version: "1"``): filled in by str.format, run by a shell in the container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkctl.recipes import braces, fabric, plain
from sparkctl.recipes.draft import Draft, Kind
from sparkctl.recipes.ledger import Ledger
from sparkctl.recipes.recipe import Recipe, modifications

KEYS = ("recipe_version", "name", "description", "model", "container", "command", "defaults", "env", "mods", "build_args",
        "cluster_only", "solo_only", "pull_image")  # fmt: skip


def read(data: dict[str, Any], ledger: Ledger, defined: Mapping[str, str]) -> Draft:
    """Return the draft of a recipe. Raises `InvalidInput` where it names no image."""
    draft = Draft(Kind.EUGR, ledger, name=plain.text(data.get("name")), title=plain.text(data.get("description")))
    recipe = Recipe(draft, data, braces.by_format)
    for key, to in (("name", "name"), ("description", "title"), ("recipe_version", "nothing: how the recipe is read")):
        if key in data:
            ledger.mapped(key, to)
    recipe.take_defaults(plain.mapping(data.get("defaults")), defined)
    draft.model = plain.text(data.get("model"))
    if draft.model:
        ledger.mapped("model", "model.path")
    _env(recipe)
    command = plain.text(data.get("command"))
    engine = fabric.runtime(plain.text(data.get("runtime")), command, plain.text(data.get("container")))
    draft.engine_hint = engine or "vllm"
    recipe.take_image("container", draft.engine_hint, defined.get("container") or plain.text(data.get("container")))
    recipe.take_command(command, draft.engine_hint)
    _build(recipe)
    _nodes(recipe)
    for key in data:
        if key not in KEYS:
            recipe.keep(key, "no key of eugr's recipes")
    recipe.take_cache()
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"
    return draft


def _env(recipe: Recipe) -> None:
    """``export K="V"`` in the launch script: a shell in the container fills in what begins with a dollar sign."""
    literal: dict[str, Any] = {}
    for name, value in plain.mapping(recipe.data.get("env")).items():
        text = plain.text(value) or ""
        if "$" in text:
            known = recipe.env | {key: plain.text(one) or "" for key, one in literal.items()}
            for other, said in known.items():
                text = text.replace(f"${{{other}}}", said).replace(f"${other}", said)
        if "$" in text:
            recipe.ledger.unsupported(
                f"env.{name}", f"{text} is filled in by a shell in the container; sparkctl gives it literal values"
            )
        else:
            literal[name] = text if value is not None else None
    recipe.take_env(literal)


def _build(recipe: Recipe) -> None:
    args = plain.texts(recipe.data.get("build_args")) if recipe.data.get("build_args") else []
    if "build_args" in recipe.data:
        recipe.keep("build_args", "how eugr's build makes the image")
    modifications(recipe, plain.texts(recipe.data.get("mods")) if recipe.data.get("mods") else [])
    if "mods" in recipe.data and plain.is_empty(recipe.data["mods"]):
        recipe.ledger.mapped("mods", "nothing: it is empty")
    if "pull_image" in recipe.data:
        recipe.ledger.unsupported("pull_image", "sparkctl never pulls behind your back; `docker pull` on the node does")
    recipe.local_image(args)


def _nodes(recipe: Recipe) -> None:
    solo, cluster = (plain.truth(recipe.data.get(key)) for key in ("solo_only", "cluster_only"))
    if cluster and not solo:
        recipe.draft.nodes = max(2, ranks(recipe))
    recipe.draft.by_ranks = not solo
    for key in ("solo_only", "cluster_only"):
        if key in recipe.data:
            recipe.ledger.mapped(key, "nodes")


def ranks(recipe: Recipe) -> int:
    """Return how many Sparks the parallel sizes take: each has one GPU."""
    count = 1
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        count *= max(1, plain.number(recipe.values.get(key)) or 1)
    return min(count, 8)
