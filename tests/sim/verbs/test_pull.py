"""`pull` on simulated Sparks: an image by Docker's own API, a model by a container there, and what `plan` and `up` say."""

from __future__ import annotations

import asyncio
import json

import pytest

from sparkctl.commands.pull.pull_profile import PullProfile, pull_profile
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.model.events import Event, Outcome, PartsMissing, PhaseChanged, TransferProgressed
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.missing_part import PartKind
from sparkctl.model.phase import Phase
from sparkctl.paths import shipped_profiles_dir
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support.events import collect_events, find_command_end
from tests.support.run_command import parse_result, run_demo

IMAGE = "scitrera/dgx-spark-vllm:0.19.1"
MODEL = "/home/milo/models/Qwen3.6-27B-NVFP4"
FRESH = pytest.mark.simulation(scenario="fresh", speed=400)


def make_request(sparks: SimulatedSparks, *sets: str, nodes: int = 1, **more: object) -> PullProfile:
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile("qwen36-vllm", overrides=sets)
    return PullProfile(profile=profile, nodes=load_config(sparks.config_path).nodes[:nodes], **more)  # type: ignore[arg-type]


def list_missing(events: list[Event]) -> dict[str, list[PartKind]]:
    return {one.node: [part.kind for part in one.parts] for one in events if isinstance(one, PartsMissing)}


@FRESH
async def test_image_and_model_come_and_a_second_pull_gets_nothing(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    events = await collect_events(pull_profile(ctx, make_request(sparks)))
    assert find_command_end(events).outcome is Outcome.DONE
    assert list_missing(events) == {"spark1": [PartKind.IMAGE, PartKind.MODEL]}
    steps = [
        one.step.name for one in events if isinstance(one, PhaseChanged) and one.phase is Phase.PULLING and one.step
    ]
    assert set(steps) == {"image", "model"}
    moved = [one for one in events if isinstance(one, TransferProgressed) and one.what.startswith("model")]
    assert moved[-1].done == moved[-1].total == 16_740_000_000
    spark1 = sparks.nodes["spark1"]
    assert spark1.images.has_image(IMAGE)
    assert spark1.downloaded == {MODEL}
    assert not [one for one in sparks.docker["spark1"].containers.values() if ContainerLabel.DOWNLOAD in one.labels]
    again = await collect_events(pull_profile(ctx, make_request(sparks)))
    assert "nothing to get" in (find_command_end(again).message or "")
    assert not [one for one in again if isinstance(one, TransferProgressed)]


@FRESH
async def test_two_sparks_download_once(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events = await collect_events(pull_profile(ctx, make_request(sparks, nodes=2)))
    assert find_command_end(events).outcome is Outcome.DONE, find_command_end(events)
    downloads = {one.node for one in events if isinstance(one, TransferProgressed) and one.what.startswith("model ")}
    assert downloads == {"spark1"}
    assert sparks.nodes["spark2"].downloaded == {MODEL}


@FRESH
async def test_a_dry_run_changes_nothing(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events = await collect_events(pull_profile(ctx, make_request(sparks, dry_run=True)))
    end = find_command_end(events)
    assert end.outcome is Outcome.PLANNED
    assert f"would get the model {MODEL} is not there on spark1; from hf:nvidia/Qwen3.6-27B-NVFP4" in (
        end.message or ""
    )
    assert not sparks.nodes["spark1"].downloaded


@FRESH
async def test_a_model_from_nowhere_is_refused_before_anything_is_fetched(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    end = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, "model.source=null"))))
    assert end.exit_code == 6
    assert "set model.source in the profile" in (end.hint or "")
    assert not sparks.nodes["spark1"].images.has_image(IMAGE)


@FRESH
async def test_an_image_that_its_registry_does_not_have(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    end = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, "image=acme/missing:1"))))
    assert end.exit_code != 0
    assert "the registry docker.io has no acme/missing:1" in (end.message or "")
    assert not sparks.nodes["spark1"].downloaded


@pytest.mark.simulation(scenario="fresh", speed=0.2)
async def test_a_download_outlives_its_command_and_the_next_one_finds_it(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    sparks.nodes["spark1"].images.add_image(IMAGE, "sha256:1")
    request = make_request(sparks)
    watching = pull_profile(ctx, request)
    async for event in watching:
        if isinstance(event, TransferProgressed) and event.done:
            break
    await watching.aclose()
    (running,) = [one for one in sparks.docker["spark1"].containers.values() if ContainerLabel.DOWNLOAD in one.labels]
    assert running.state == "running"
    again = asyncio.create_task(collect_events(pull_profile(ctx, request)))
    await asyncio.sleep(0.5)
    assert [one.id for one in sparks.docker["spark1"].containers.values()] == [running.id], "not a second one"
    stopped = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, stop=True))))
    assert "was stopped; what has arrived stays" in (stopped.message or "")
    end = find_command_end(await again)
    assert end.exit_code != 0
    assert "broke off" in (end.message or "")


def test_plan_refuses_while_something_is_missing_and_says_what(tmp_path: object) -> None:
    ran = run_demo("plan", "qwen36-vllm", "--node", "spark1", scenario="fresh")
    assert ran.returncode == 6
    assert f"missing: the image {IMAGE} is not there on spark1" in ran.stdout
    assert f"missing: the model {MODEL} is not there on spark1; from hf:nvidia/Qwen3.6-27B-NVFP4" in ran.stdout
    assert "get it: sparkctl pull qwen36-vllm --node spark1" in ran.stdout
    (node,) = json.loads(run_demo("plan", "qwen36-vllm", "--node", "spark1", "--json", scenario="fresh").stdout)[
        "nodes"
    ]
    assert [part["kind"] for part in node["missing"]] == ["image", "model"]


def test_up_refuses_and_with_pull_gets_ready() -> None:
    refused = run_demo("up", "qwen36-vllm", "--node", "spark1", "--json", scenario="fresh")
    assert parse_result(refused)["exit_code"] == 6
    assert parse_result(refused)["hint"] == "sparkctl up qwen36-vllm --node spark1 --pull"
    ran = run_demo("up", "qwen36-vllm", "--node", "spark1", "--pull", "--json", scenario="fresh")
    assert parse_result(ran)["outcome"] == "ready"
    phases = [json.loads(line).get("phase") for line in ran.stdout.splitlines() if '"event":"phase"' in line]
    assert phases.index("pulling") < phases.index("creating")
