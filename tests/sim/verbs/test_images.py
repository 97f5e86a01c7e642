"""`images` on simulated Sparks: what lies there, who needs it, and a removal that refuses what is in use."""

from __future__ import annotations

import json

import pytest

from sparkctl.commands.images import RemoveImages, list_images
from sparkctl.commands.start.check_fit import CheckFit, check_fit
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.model import OperationKind
from sparkctl.model.events import PartsMissing
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support.events import collect_events, find_command_end
from tests.support.run_command import run_demo

FRESH = pytest.mark.simulation(scenario="fresh", speed=400)
IMAGE = "scitrera/dgx-spark-vllm:0.19.1"


def build_request(sparks: SimulatedSparks, *wanted: str, **more: object) -> RemoveImages:
    nodes = load_config(sparks.config_path).nodes[:1]
    return RemoveImages(nodes=nodes, wanted=wanted, **more)  # type: ignore[arg-type]


@FRESH
async def test_an_image_is_removed_only_by_its_own_name(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    images = sparks.nodes["spark1"].images
    images.add_image(IMAGE, "sha256:" + "1" * 64)
    images.add_image("own/vllm:1", "sha256:" + "2" * 64, {ContainerLabel.BUILD: "sha256:ab"})
    (found,) = await list_images(ctx, load_config(sparks.config_path).nodes[:1])
    assert found.images is not None
    assert {one.image.names[0]: one.image.built_from for one in found.images} == {
        IMAGE: None,
        "own/vllm:1": "sha256:ab",
    }
    part = find_command_end(await collect_events(build_request(sparks, "own/vllm", IMAGE).run(ctx)))
    assert part.exit_code == 6
    assert "no image own/vllm is on spark1" in (part.message or "")
    assert images.has_image(IMAGE), "nothing is removed where one name is wrong"
    shown = find_command_end(await collect_events(build_request(sparks, "2" * 12, dry_run=True).run(ctx)))
    assert "would remove own/vllm:1 from spark1" in (shown.message or "")
    gone = find_command_end(await collect_events(build_request(sparks, "2" * 12).run(ctx)))
    assert gone.exit_code == 0, gone
    assert not images.has_image("own/vllm:1")
    (kept,) = [one for one in ctx.history.list_operations() if one.has_succeeded]
    assert (kept.kind, kept.instance, kept.nodes) == (OperationKind.REMOVE, "2" * 12, ("spark1",))
    assert kept.command == f"sparkctl images remove {'2' * 12} --node spark1"
    assert images.has_image(IMAGE)
    nothing = find_command_end(await collect_events(build_request(sparks, old_builds=True).run(ctx)))
    assert "no old build to remove" in (nothing.message or "")


async def test_what_a_shipped_profile_starts_from_is_listed(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    nodes = load_config(sparks.config_path).nodes[:1]
    library = ProfileLibrary(user=shipped_profiles_dir())
    wanted = {library.load_profile(name).image for name in library.list_names()}
    (found,) = await list_images(ctx, nodes)
    assert found.images is not None
    assert {one.image.names[0] for one in found.images} == wanted
    gone = find_command_end(await collect_events(build_request(sparks, IMAGE).run(ctx)))
    assert gone.exit_code == 0, gone
    (left,) = await list_images(ctx, nodes)
    assert left.images is not None
    assert {one.image.names[0] for one in left.images} == wanted - {IMAGE}
    fit = await collect_events(check_fit(ctx, CheckFit(profile=library.load_profile("qwen36-vllm"), nodes=nodes)))
    assert [part.name for one in fit if isinstance(one, PartsMissing) for part in one.parts] == [IMAGE]


def test_an_image_that_a_container_was_made_of_stays() -> None:
    shown = json.loads(run_demo("images", "--node", "spark2", "--json", scenario="two-stacks").stdout)
    (one,) = [each for each in shown["nodes"][0]["images"] if each["image"]["names"] == [IMAGE]]
    assert "qwen36-vllm" in one["profiles"]
    assert one["containers"]
    refused = run_demo("images", "remove", IMAGE, "--node", "spark2", "--yes", scenario="two-stacks")
    assert refused.returncode == 6
    assert "is in use on spark2 by" in refused.stderr
    assert one["instances"]
    assert f"sparkctl down {one['instances'][0]} --node spark2" in refused.stderr
    unasked = run_demo("images", "remove", IMAGE, scenario="two-stacks")
    assert unasked.returncode == 2
    assert "add --yes" in unasked.stderr
    table = run_demo("images", scenario="two-stacks").stdout
    assert "last used" in table
