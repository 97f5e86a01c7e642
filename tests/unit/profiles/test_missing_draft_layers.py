"""Drafts from layers of the model's own, and a checkpoint that has lost them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.model.memory_fit import CheckpointFiles
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.fit_evaluation import find_missing_draft_layers, list_checkpoint_paths
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary

LIBRARY = ProfileLibrary(Path("/nonexistent"))
MODEL_LACKS, MODEL_HAS, MODEL_UNKNOWN = False, True, None


@pytest.mark.parametrize(
    ("name", "settings", "layers", "unfinished", "is_told"),
    [
        ("qwen36", (), MODEL_LACKS, 0, True),
        ("qwen36", (), MODEL_HAS, 0, False),
        ("qwen36", (), MODEL_UNKNOWN, 0, False),
        ("qwen36", (), MODEL_LACKS, 1, False),  # the layers may be in the file that is still to come
        ("qwen36", ("args.speculative-draft-model-path=/models/draft",), MODEL_LACKS, 0, False),
        ("qwen36", ("args.speculative-draft-model-path=/models/Qwen3.6-27B-FP8",), MODEL_LACKS, 0, True),
        ("qwen36", ("args.speculative-algorithm=NGRAM",), MODEL_LACKS, 0, False),
        ("qwen36-ngram", (), MODEL_LACKS, 0, False),
        ("qwen35-35b-mtp", ("model.path=/models/m", "mounts=[~/models:/models]"), MODEL_LACKS, 0, True),
        ("qwen35-35b-dflash", ("model.path=/models/m", "mounts=[~/models:/models]"), MODEL_LACKS, 0, False),
    ],
)
def test_a_checkpoint_without_draft_layers_is_told_where_the_drafts_come_from_it(
    name: str, settings: tuple[str, ...], layers: bool | None, unfinished: int, is_told: bool
) -> None:
    profile = LIBRARY.load_profile(name, settings)
    node = Node(name=NodeName("s"), host="h")
    plan = build_launch_plan(profile, node, home="/home/me", operator="o", environ={})
    places = list_checkpoint_paths(profile, plan)
    assert places
    found = [
        CheckpointFiles(place=one, is_there=True, has_draft_layers=layers, unfinished=unfinished) for one in places
    ]
    result = find_missing_draft_layers(profile, plan, found)
    assert (result is not None) is is_told, result
    assert result is None or places[0] in result
    assert find_missing_draft_layers(profile, plan, ()) is None, "nothing was read"
