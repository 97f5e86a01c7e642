"""Collect the input of the engines' memory rules: from a launch, and from the model's files on the node. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.engines import load_engine
from sparkctl.engines.flags.command_flags import CommandFlags
from sparkctl.engines.flags.model import parse_version
from sparkctl.engines.memory.kv_cache import parse_kv_layout
from sparkctl.engines.memory.memory_estimate import DraftWorkspace, EstimateInput
from sparkctl.engines.memory.model_weights import WeightsSize, map_path_to_node, measure_weights
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.model.profile import Profile

_VERSION_PATTERN = re.compile(r"(?<![\d.])(\d+\.\d+(?:\.\d+)?)")


def has_model(profile: Profile) -> bool:
    """Tell whether its engine is one that serves a model by its own command."""
    return bool(load_engine(profile.engine).defaults.command)


def find_model_paths(profile: Profile, plan: LaunchPlan) -> tuple[str | None, str | None]:
    """Return the model and the draft model of a launch, as paths in the container or hub ids."""
    if not has_model(profile):
        return None, None
    words = CommandFlags(plan.command)
    named = words.get_value("model-path", "model", "m") or words.get_served_model() or profile.model.path
    draft = words.get_value(
        "speculative-draft-model-path", "speculative-draft-model", "model-draft", "md", "spec-model"
    )
    more = words.get_json("speculative-config", "sc").get("model")
    return named or None, draft or (more if isinstance(more, str) else None)


def list_checkpoint_paths(profile: Profile, plan: LaunchPlan) -> tuple[str, ...]:
    """Return the paths on the node where its files should be, as far as the mounts tell."""
    found = (map_path_to_node(one, plan) for one in find_model_paths(profile, plan))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def find_missing_checkpoint(profile: Profile, plan: LaunchPlan, found: Sequence[CheckpointFiles]) -> str | None:
    """Return the path on the node where the model should be, if it was checked and there are no weights.

    None for a model by its hub id: the engine downloads what is missing.
    """
    named = find_model_paths(profile, plan)[0] or ""
    where = map_path_to_node(named, plan) if named.startswith("/") else None
    return where if any(one.place == where and one.is_there is not None and not one.files for one in found) else None


def build_estimate_input(
    profile: Profile,
    plan: LaunchPlan,
    found: Sequence[CheckpointFiles],
    workspace: DraftWorkspace = DraftWorkspace.UNKNOWN,
) -> EstimateInput:
    """Return the input of the memory rules. ``found``: what is at `list_checkpoint_paths` on the node."""
    by_place = {one.place: one for one in found}
    main, draft = find_model_paths(profile, plan)
    own = by_place.get(map_path_to_node(main, plan) or "")
    is_asked = draft is not None and draft != main
    drafts = by_place.get(map_path_to_node(draft, plan) or "") if is_asked else None
    told = profile.model
    return EstimateInput(
        engine=profile.engine,
        words=CommandFlags(plan.command),
        weights=measure_weights(own, told.weights),
        draft=_measure_draft(drafts, told.draft_weights) if is_asked else None,
        layout=parse_kv_layout(own.config) if own is not None else None,
        per_token=told.kv_per_token,
        version=parse_engine_version(profile),
        ranks=count_weight_shards(profile, CommandFlags(plan.command)),
        expected=profile.expected_memory,
        workspace=DraftWorkspace.TAKEN if profile.draft_workspace is not None else workspace,
        has_gpu=bool(plan.gpus),
        env=dict(plan.env),
    )


_TENSOR_PARALLEL_FLAGS = ("tensor-parallel-size", "tp", "tp-size")
_PIPELINE_PARALLEL_FLAGS = ("pipeline-parallel-size", "pp", "pp-size")


def count_weight_shards(profile: Profile, words: CommandFlags) -> int:
    """Return how many Sparks (one GPU each) share the weights: from the flags, else the profile's number of nodes."""
    tensor, pipeline = words.get_count(*_TENSOR_PARALLEL_FLAGS), words.get_count(*_PIPELINE_PARALLEL_FLAGS)
    if tensor is None and pipeline is None:
        return profile.nodes
    return max(1, tensor or 1) * max(1, pipeline or 1)


def count_nodes(profile: Profile, plan: LaunchPlan) -> int:
    """Return the number of Sparks that a launch needs."""
    return (
        max(profile.nodes, count_weight_shards(profile, CommandFlags(plan.command)))
        if has_model(profile)
        else profile.nodes
    )


def _measure_draft(found: CheckpointFiles | None, told: int | None) -> WeightsSize:
    return measure_weights(found, told, "model.draft_weights")


def parse_engine_version(profile: Profile) -> tuple[int, ...]:
    """Return the engine's version from the profile or the image's tag, an empty text if neither has it."""
    if profile.engine_version:
        return parse_version(profile.engine_version)
    _, colon, tag = profile.image.partition("@")[0].rpartition("/")[2].partition(":")
    found = _VERSION_PATTERN.findall(tag) if colon else []
    return parse_version(max(found, key=lambda one: one.count("."))) if found else ()
