"""Import eugr's recipes (spark-vllm-docker, ``recipe_version: "1"``): filled in by str.format, run by a shell in the
container.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkctl.profiles.importers import foreign_yaml, recipe_reader
from sparkctl.profiles.importers.import_report import ImportReport
from sparkctl.profiles.importers.profile_draft import ProfileDraft, SourceFormat
from sparkctl.profiles.importers.recipe_reader import RecipeReader, note_mods

EUGR_KEYS = ("recipe_version", "name", "description", "model", "container", "command", "defaults", "env", "mods", "build_args",
        "cluster_only", "solo_only", "pull_image")  # fmt: skip


def import_eugr(data: dict[str, Any], ledger: ImportReport, defined: Mapping[str, str]) -> ProfileDraft:
    """Return the draft of a recipe. Raises `InvalidInput` where it names no image."""
    draft = ProfileDraft(
        kind=SourceFormat.EUGR,
        ledger=ledger,
        name=foreign_yaml.scalar_text(data.get("name")),
        title=foreign_yaml.scalar_text(data.get("description")),
    )
    recipe = RecipeReader(draft, data, recipe_reader.fill_eugr_placeholders)
    for key, to in (("name", "name"), ("description", "title"), ("recipe_version", "nothing: how the recipe is read")):
        if key in data:
            ledger.add_mapped(key, to)
    recipe.take_defaults(foreign_yaml.as_mapping(data.get("defaults")), defined)
    draft.model = foreign_yaml.scalar_text(data.get("model"))
    if draft.model:
        ledger.add_mapped("model", "model.path")
    _read_env(recipe)
    command = foreign_yaml.scalar_text(data.get("command"))
    engine = recipe_reader.detect_recipe_engine(
        foreign_yaml.scalar_text(data.get("runtime")), command, foreign_yaml.scalar_text(data.get("container"))
    )
    draft.engine_hint = engine or recipe_reader.get_default_engine()
    recipe.take_image(
        "container", draft.engine_hint, defined.get("container") or foreign_yaml.scalar_text(data.get("container"))
    )
    recipe.take_command(command, draft.engine_hint)
    _read_build(recipe)
    _read_node_limits(recipe)
    for key in data:
        if key not in EUGR_KEYS:
            recipe.keep_extra(key, "no key of eugr's recipes")
    recipe.mount_hub_cache()
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"
    return draft


def _read_env(recipe: RecipeReader) -> None:
    """Read ``export K="V"`` in the launch script; a shell in the container expands dollar signs there."""
    literal: dict[str, Any] = {}
    for name, value in foreign_yaml.as_mapping(recipe.data.get("env")).items():
        text = foreign_yaml.scalar_text(value) or ""
        if "$" in text:
            known = recipe.env | {key: foreign_yaml.scalar_text(one) or "" for key, one in literal.items()}
            for other, said in known.items():
                text = text.replace(f"${{{other}}}", said).replace(f"${other}", said)
        if "$" in text:
            recipe.ledger.add_unsupported(
                f"env.{name}", f"{text} is filled in by a shell in the container; sparkctl gives it literal values"
            )
        else:
            literal[name] = text if value is not None else None
    recipe.take_env(literal)


def _read_build(recipe: RecipeReader) -> None:
    args = foreign_yaml.scalar_texts(recipe.data.get("build_args")) if recipe.data.get("build_args") else []
    if "build_args" in recipe.data:
        recipe.keep_extra("build_args", "how eugr's build makes the image")
    note_mods(recipe, foreign_yaml.scalar_texts(recipe.data.get("mods")) if recipe.data.get("mods") else [])
    if "mods" in recipe.data and foreign_yaml.is_empty_value(recipe.data["mods"]):
        recipe.ledger.add_mapped("mods", "nothing: it is empty")
    if "pull_image" in recipe.data:
        recipe.ledger.add_unsupported("pull_image", "sparkctl never pulls images; run `docker pull` on the node")
    recipe.note_local_build(args)


def _read_node_limits(recipe: RecipeReader) -> None:
    solo, cluster = (foreign_yaml.is_truthy(recipe.data.get(key)) for key in ("solo_only", "cluster_only"))
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
        count *= max(1, foreign_yaml.parse_whole_number(recipe.placeholder_values.get(key)) or 1)
    return min(count, 8)
