"""A start reads what a step reads from the headers of the model's files, and `top` estimates with it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.profiles.container_labels import parse_decode_step_label
from sparkctl.simulator import SimulatedSparks
from tests.sim.start.test_start_guard import make_start_request
from tests.support.events import collect_events_and_end

pytestmark = [pytest.mark.simulation(speed=20), pytest.mark.usefixtures("own_profiles")]
MODEL = "/home/milo/models/Qwen3.6-27B-NVFP4"
SIZES = {
    "whole": 30_000,
    "float32": 0,
    "quantized": True,
    "tied": False,
    "parts": {"body": 20_000, "embedding": 4_000, "output": 4_000, "vision": 1_500, "draft_body": 500},
}


def read_label(sparks: SimulatedSparks) -> DecodeStepSpec | None:
    (container,) = sparks.docker["spark1"].containers.values()
    return parse_decode_step_label(container.labels.get(ContainerLabel.PER_STEP))


async def test_the_files_on_the_node_outrank_the_profile(sparks, ctx) -> None:  # type: ignore[no-untyped-def]
    node = sparks.nodes["spark1"]
    node.options = replace(node.options, tensors=((MODEL, json.dumps(SIZES)),))
    request = make_start_request(sparks)
    _, ended = await collect_events_and_end(start_instance(ctx, request))
    assert ended.exit_code == 0, ended
    step = read_label(sparks)
    assert step is not None
    assert (step.is_measured, step.weights, step.unread) == (True, 30_000, 4_000 + 1_500 + 500)
    assert step.draft_weights == 500 + 4_000, "its draft head is in the checkpoint and uses the model's output layer"
    assert step.draft_passes
    of_layer = 2 * 4 * 256 * 2  # keys and values of four heads, by config.json
    assert step.kv_per_token == (16 + step.draft_passes) * of_layer, (
        "each pass of its draft head reads that head's own cache"
    )
    assert step.state_per_request, "three of four layers have linear attention"


async def test_without_readable_headers_the_profile_is_the_fallback(sparks, ctx) -> None:  # type: ignore[no-untyped-def]
    request = make_start_request(sparks)
    _, ended = await collect_events_and_end(start_instance(ctx, request))
    assert ended.exit_code == 0, ended
    step = read_label(sparks)
    assert step is not None
    assert (step.is_measured, step.weights) == (False, request.profile.model.weights)


async def test_without_headers_and_without_the_profile_s_figure_the_files_size_counts(sparks, ctx) -> None:  # type: ignore[no-untyped-def]
    request = make_start_request(sparks)
    changed = replace(request.profile.model, weights=None)
    request = replace(request, profile=replace(request.profile, model=changed))
    _, ended = await collect_events_and_end(start_instance(ctx, request))
    assert ended.exit_code == 0, ended
    step = read_label(sparks)
    assert step is not None
    assert step.weights is not None, "as plan measured it"
    assert (step.is_measured, step.weights > 10 * 10**9) == (False, True)
