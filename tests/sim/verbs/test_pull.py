"""`pull` on simulated Sparks: an image by Docker's own API, a model by a container there, and what `plan` and `up` say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkctl.commands.pull import model_download
from sparkctl.commands.pull.pull_profile import PullProfile, pull_profile
from sparkctl.commands.start.check_fit import CheckFit, check_fit, propose_profile
from sparkctl.commands.start.missing_parts import measure_free_space
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stored_models import list_models
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.engines.simulation.engine_launch import build_model_config
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.model import OperationKind
from sparkctl.model.events import (
    CommandEnded,
    Event,
    LogArrived,
    MemoryFitEvaluated,
    Outcome,
    PartsMissing,
    PhaseChanged,
    TransferProgressed,
    WarningEmitted,
)
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.memory_fit import EstimateSource
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.questions import NonInteractivePrompter, PullQuestion, YesNoQuestion
from sparkctl.model.text.units import format_size
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.validation import validate_profile
from sparkctl.profiles.yaml_reader import parse_yaml
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_container import SimContainer
from sparkctl.simulator.sim_node import FULL_DISK_FREE_BYTES, NodeFault, SimNodeOptions
from sparkctl.transport.hub_client import HubClient
from sparkctl.transport.node_session import NodeSession
from sparkctl.views.status_view import format_status
from tests.support.events import collect_events, find_command_end
from tests.support.run_command import parse_result, run_demo
from tests.support.sim_clients import wait_until_true
from tests.unit.node.hub_stand_in import HubStandIn, run_hub
from tests.unit.transport.test_hub_client import make_safetensors

IMAGE = "scitrera/dgx-spark-vllm:0.19.1"
MODEL = "/home/milo/models/Qwen3.6-27B-NVFP4"
FRESH = pytest.mark.simulation(scenario="fresh", speed=400)


def make_request(sparks: SimulatedSparks, *sets: str, nodes: int = 1, **more: object) -> PullProfile:
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile("qwen36-vllm", overrides=sets)
    more.setdefault("environ", {"HF_HUB_OFFLINE": "1"})
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
    assert moved[-1].done == moved[-1].total == 21_900_000_000, "as the profile says"
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
async def test_a_tokenizer_that_a_flag_names_has_a_source_of_its_own(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    sparks.nodes["spark1"].images.add_image(IMAGE, "sha256:1")
    named, place = "args.tokenizer=/models/tokenizer", "/home/milo/models/tokenizer"
    without = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, named))))
    assert without.exit_code == 6
    assert f"where the tokenizer of qwen36-vllm comes from is not known: {place}" in (without.message or "")
    assert "set model.tokenizer_source in the profile" in (without.hint or "")
    request = make_request(sparks, named, "model.tokenizer_source=hf:acme/tokenizer", nodes=2)
    nodes = request.nodes
    sparks.nodes["spark2"].images.add_image(IMAGE, "sha256:1")
    fit = await collect_events(check_fit(ctx, CheckFit(profile=request.profile, nodes=nodes[:1])))
    assert list_missing(fit) == {"spark1": [PartKind.MODEL, PartKind.TOKENIZER]}
    events = await collect_events(pull_profile(ctx, request))
    assert find_command_end(events).outcome is Outcome.DONE, find_command_end(events)
    assert [node.downloaded for node in sparks.nodes.values()] == [{MODEL, place}] * 2
    assert list_missing(await collect_events(check_fit(ctx, CheckFit(profile=request.profile, nodes=nodes[:1])))) == {}
    stored = await list_models(ctx, nodes[:1], (request.profile,))
    assert {one.place: one.is_whole for one in stored[0].models} == {MODEL: True, place: True}


@pytest.mark.simulation(scenario="fresh", options={"spark1": SimNodeOptions(missing=("/home/milo/mods",))})
async def test_what_else_the_mounts_name_is_told_before_a_start(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    request = make_request(sparks, 'mounts=["~/models:/models", "~/mods:/mods"]')
    nodes, wanted = request.nodes, "/home/milo/mods does not exist on spark1: Docker will create it empty"
    fits = await collect_events(check_fit(ctx, CheckFit(profile=request.profile, nodes=nodes)))
    (fit,) = [one.fit for one in fits if isinstance(one, MemoryFitEvaluated)]
    assert [words for words in fit.cautions if "does not exist" in words] == [wanted], "the model is told by itself"
    pulled = await collect_events(pull_profile(ctx, request))
    assert [one.message for one in pulled if isinstance(one, WarningEmitted)] == [wanted]


@FRESH
async def test_a_program_of_no_known_engine_has_the_model_that_its_profile_names(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    text = (
        "schema: 1\nname: thing\nengine: container\nimage: acme/thing:1\nport: 9000\nmounts: ['~/models:/models']\n"
        "model: {path: /models/thing, source: 'hf:acme/thing'}\nmemory: {expected: 2GiB}\n"
    )
    profile = validate_profile(parse_yaml(text.encode(), "thing"), Path("thing.yaml"), shipped=False)
    request, place = replace(make_request(sparks, nodes=2), profile=profile), "/home/milo/models/thing"
    events = await collect_events(pull_profile(ctx, request))
    assert find_command_end(events).outcome is Outcome.DONE, find_command_end(events)
    assert list_missing(events)["spark1"] == [PartKind.IMAGE, PartKind.MODEL]
    assert [node.downloaded for node in sparks.nodes.values()] == [{place}, {place}]
    (stored,) = (await list_models(ctx, request.nodes[:1], (profile,)))[0].models
    assert (stored.place, stored.profiles) == (place, ("thing",))


DFLASH = "qwen3-coder-next-dflash"
CACHE = "/home/milo/.cache/huggingface/hub/models--"
MODEL_PLACE = CACHE + "saricles--Qwen3-Coder-Next-NVFP4-GB10"
DRAFT_PLACE = CACHE + "z-lab--Qwen3-Coder-Next-DFlash"


def make_draft_request(sparks: SimulatedSparks, nodes: int = 2) -> PullProfile:
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile(DFLASH)
    return replace(make_request(sparks, nodes=nodes), profile=profile, image=False)


@FRESH
async def test_model_and_draft_come_once_and_are_copied_together(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    sparks.nodes["spark1"].images.add_image("ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest", "sha256:1")
    events = await collect_events(pull_profile(ctx, make_draft_request(sparks)))
    end = find_command_end(events)
    assert end.exit_code == 0, end
    assert {one.node for one in events if isinstance(one, TransferProgressed) and one.source == "hub"} == {"spark1"}
    for node in sparks.nodes.values():
        assert node.downloaded == {MODEL_PLACE, DRAFT_PLACE}
    assert (end.message or "").count("is on spark2") == 1


@FRESH
@pytest.mark.parametrize("is_named", [False, True])
async def test_each_spark_gives_what_the_other_lacks(
    sparks: SimulatedSparks, ctx: CommandContext, is_named: bool
) -> None:
    sparks.nodes["spark1"].downloaded, sparks.nodes["spark2"].downloaded = {MODEL_PLACE}, {DRAFT_PLACE}
    first, second = load_config(sparks.config_path).nodes
    request = make_draft_request(sparks)
    if is_named:
        request = replace(request, nodes=(first,), from_node=second)
    end = find_command_end(await collect_events(pull_profile(ctx, request)))
    assert end.exit_code == 0, end
    assert sparks.nodes["spark1"].downloaded == {MODEL_PLACE, DRAFT_PLACE}
    assert sparks.nodes["spark2"].downloaded == ({DRAFT_PLACE} if is_named else {MODEL_PLACE, DRAFT_PLACE})


@pytest.mark.simulation(scenario="fresh", options={"spark2": SimNodeOptions(troubles=frozenset({NodeFault.FULL_DISK}))})
async def test_a_copy_that_fails_ends_the_pull_as_it_ended(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    sparks.nodes["spark1"].downloaded = {MODEL}
    end = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, nodes=2, image=False))))
    assert (end.exit_code, end.node, end.outcome) == (6, "spark2", Outcome.REFUSED)
    assert "spark2 has no room for" in (end.message or "")


@FRESH
async def test_a_dry_run_changes_nothing(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events = await collect_events(pull_profile(ctx, make_request(sparks, dry_run=True)))
    end = find_command_end(events)
    assert end.outcome is Outcome.PLANNED
    assert f"would get the model {MODEL} from hf:nvidia/Qwen3.6-27B-NVFP4 onto spark1" in (end.message or "")
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
    assert end.exit_code == 6
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
    (view,) = await read_node_statuses(ctx, request.nodes)
    (shown,) = view.instances
    assert (shown.phase, shown.profile, shown.ours) == (Phase.PULLING, "qwen36-vllm", False)
    assert shown.step is not None
    assert shown.step.fraction
    assert "of 20.4 GiB" in "\n".join(format_status([view]))
    other = make_request(sparks, "model.source=hf:nvidia/Qwen3.6-27B-NVFP4@v2")
    refused = find_command_end(await collect_events(pull_profile(ctx, other)))
    assert refused.exit_code == 6
    assert f"another download is running in {MODEL} on spark1: hf:nvidia/Qwen3.6-27B-NVFP4" in (refused.message or "")
    again = asyncio.create_task(collect_events(pull_profile(ctx, request)))
    await asyncio.sleep(0.5)
    assert [one.id for one in sparks.docker["spark1"].containers.values()] == [running.id], "not a second one"
    stopped = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, stop=True))))
    assert "was stopped; what has arrived is kept" in (stopped.message or "")
    end = find_command_end(await again)
    assert end.exit_code != 0
    assert "broke off" in (end.message or "")


@pytest.mark.simulation(scenario="fresh", speed=5)
async def test_a_second_pull_waits_for_the_container_that_the_first_is_about_to_start(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    """Docker takes its time between create and start: the second does not take the container away."""
    sparks.nodes["spark1"].images.add_image(IMAGE, "sha256:1")
    daemon, request = sparks.docker["spark1"], make_request(sparks)
    daemon.start_seconds = 5.0
    first = asyncio.create_task(collect_events(pull_profile(ctx, request)))
    await wait_until_true(lambda: bool(daemon.containers))
    (created,) = daemon.containers.values()
    second = asyncio.create_task(collect_events(pull_profile(ctx, request)))
    ends = [find_command_end(await one) for one in (first, second)]
    assert [end.exit_code for end in ends] == [0, 0], ends
    begun = [one for one in daemon._past_events if one["Action"] == "create"]
    assert [one["id"] for one in begun] == [created.id]


@pytest.mark.simulation(scenario="fresh", speed=2)
async def test_a_download_that_somebody_paused_is_watched_and_not_begun_anew(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    sparks.nodes["spark1"].images.add_image(IMAGE, "sha256:1")
    daemon, request = sparks.docker["spark1"], make_request(sparks)
    async with aclosing(pull_profile(ctx, request)) as events:
        async for event in events:
            if isinstance(event, TransferProgressed) and event.done:
                (paused,) = daemon.containers.values()
                assert paused.state == "running"
                paused.state = "paused"
                break
    async with aclosing(pull_profile(ctx, request)) as events:
        async for event in events:
            if isinstance(event, TransferProgressed):
                assert list(daemon.containers) == [paused.id]
                paused.state = "running"
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 0, event
    assert [one["id"] for one in daemon._past_events if one["Action"] == "create"] == [paused.id]


async def cut_off_download(sparks: SimulatedSparks, ctx: CommandContext, *, is_started: bool = False) -> SimContainer:
    """Cancel a pull while Docker starts its container, or has done so without having said it; return that container."""
    sparks.nodes["spark1"].images.add_image(IMAGE, "sha256:1")
    daemon = sparks.docker["spark1"]
    daemon.start_seconds = 1e6
    request = make_request(sparks, environ={"HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_secret"})
    first = asyncio.create_task(collect_events(pull_profile(ctx, request)))
    await wait_until_true(lambda: bool(daemon.containers))
    (begun,) = daemon.containers.values()
    if is_started:
        daemon.start_container(begun)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    return begun


@FRESH
async def test_a_container_that_nobody_starts_gives_way_after_a_minute(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    daemon, begun = sparks.docker["spark1"], await cut_off_download(sparks, ctx)
    assert daemon.containers == {}
    left, daemon.start_seconds = daemon.create_container(begun.name, begun.body), 0.0
    assert find_command_end(await collect_events(pull_profile(ctx, make_request(sparks)))).exit_code == 0
    assert left.id not in daemon.containers
    created = [one["id"] for one in daemon._past_events if one["Action"] == "create"]
    assert created[:2] == [begun.id, left.id]
    assert len(created) == 3


@pytest.mark.parametrize("is_started", [False, True])
@pytest.mark.simulation(scenario="fresh", speed=0.2)
async def test_an_attempt_that_is_cut_off_takes_its_token_along_unless_docker_went_on(
    sparks: SimulatedSparks, ctx: CommandContext, monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    scripts, run = list[str](), NodeSession.run

    async def run_and_note(session: NodeSession, argv: Sequence[str], **more: Any) -> Any:
        scripts.extend(argv[2:3])
        return await run(session, argv, **more)

    monkeypatch.setattr(NodeSession, "run", run_and_note)
    daemon = sparks.docker["spark1"]
    begun = await cut_off_download(sparks, ctx, is_started=is_started)
    assert model_download._PREPARE in scripts
    assert (list(daemon.containers.values()) == [begun]) is is_started
    assert (model_download._REMOVE_FOLDER in scripts) is not is_started


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


@pytest.mark.simulation(scenario="fresh", speed=0.2)
async def test_a_download_from_a_directory_of_a_model_without_a_source_is_stopped(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    sparks.nodes["spark1"].images.add_image(IMAGE, "sha256:1")
    request = make_request(sparks, "model.source=null", from_directory="/mnt/nas")
    async with aclosing(pull_profile(ctx, request)) as watching:
        async for event in watching:
            assert not isinstance(event, CommandEnded), event
            if isinstance(event, TransferProgressed):
                break
    stop = make_request(sparks, "model.source=null", stop=True)
    stopped = find_command_end(await collect_events(pull_profile(ctx, stop)))
    assert f"the download into {MODEL} on spark1 was stopped" in (stopped.message or "")
    assert not [one for one in sparks.docker["spark1"].containers.values() if ContainerLabel.DOWNLOAD in one.labels]


def test_several_profiles_come_one_after_the_other_and_one_that_fails_keeps_no_other_back() -> None:
    both = run_demo("pull", "qwen36-vllm", "kokoro-tts", "--node", "spark1", "--json", scenario="fresh")
    lacking = [json.loads(line)["instance"] for line in both.stdout.splitlines() if '"event":"missing"' in line]
    assert lacking == ["qwen36-vllm", "kokoro-tts"]
    assert (parse_result(both)["exit_code"], both.stdout.count('"event":"result"')) == (0, 1)
    assert "kokoro-fastapi-gpu" in parse_result(both)["message"]
    assert "hf:nvidia/Qwen3.6-27B-NVFP4 is in" in parse_result(both)["message"]
    ran = run_demo("pull", "minimax-m27", "kokoro-tts", "--node", "spark1", "--json", scenario="fresh")
    ended = parse_result(ran)
    assert (ran.returncode, ended["exit_code"]) == (6, 6)
    assert ended["message"].startswith("minimax-m27: the image eugr-vllm:latest is not there on spark1")
    assert ended["message"].endswith("; done: kokoro-tts")


def test_plan_of_a_profile_for_two_sparks_names_one_command_for_both() -> None:
    where = ("--node", "spark1", "--node", "spark2")
    ran = run_demo("plan", "qwen36-tp2", *where, scenario="fresh")
    assert ran.returncode == 6
    output = [line for line in ran.stdout.splitlines() if line.startswith("get it:")]
    assert output == ["get it: sparkctl pull qwen36-tp2 --node spark1 --node spark2"]


def test_an_image_that_nobody_publishes_is_not_offered_to_be_pulled() -> None:
    where = ("minimax-m27", "--node", "spark1", "--node", "spark2")
    planned = run_demo("plan", *where, scenario="fresh")
    assert planned.returncode == 6
    script = "./build-and-copy.sh -t eugr-vllm:latest"
    assert "the image eugr-vllm:latest is not there on spark1; nobody publishes it: " + script in " ".join(
        planned.stdout.split()
    )
    assert "get it: sparkctl pull" not in planned.stdout
    for words in (("up", *where), ("up", *where, "--pull"), ("pull", *where), ("pull", *where, "--dry-run")):
        ended = parse_result(run_demo(*words, "--json", scenario="fresh"))
        assert (ended["exit_code"], script in ended["hint"]) == (6, True), words
        assert "--pull" not in ended["hint"]


@FRESH
async def test_an_image_that_one_spark_made_is_copied_to_the_other(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    sets = ("image=own-vllm:1", "made_by=./make-it.sh")
    sparks.nodes["spark2"].images.add_image("own-vllm:1", "sha256:1")
    events = await collect_events(pull_profile(ctx, make_request(sparks, *sets, nodes=2, model=False)))
    assert find_command_end(events).outcome is Outcome.DONE, find_command_end(events)
    assert sparks.nodes["spark1"].images.has_image("own-vllm:1")


@pytest.mark.parametrize("profile", ["minimax-m27", "qwen36-tp2"])  # made by its owner, and published
def test_an_image_that_only_one_of_two_sparks_has_is_named_and_copied(profile: str) -> None:
    words = (profile, "--node", "spark1", "--node", "spark2", "--set", "image=x:missing-on-spark2")
    missing = (
        "missing: the image x:missing-on-spark2 is not there on spark2; spark1 has it, and it is copied from there"
    )
    dry = run_demo("up", *words, "--dry-run")
    assert dry.returncode == 6
    assert missing in dry.stderr.splitlines()
    assert dry.stdout.count("docker run") == 2, "the lines of what is still to be got, too"
    copying = f"sparkctl sync {profile} --from spark1 --to spark2 --set image=x:missing-on-spark2"
    assert f"try: {copying}" in dry.stderr
    assert f"try: {copying}" in run_demo("switch", *words, "--dry-run").stderr
    planned = run_demo("plan", *words)
    assert missing in " ".join(planned.stdout.split())
    assert f"get it: sparkctl pull {' '.join(words)}" in planned.stdout.splitlines()
    got = run_demo("pull", *words)
    assert got.returncode == 0
    assert f"{profile} is on spark2 as on spark1" in got.stderr


def test_a_dry_run_with_pull_takes_what_would_be_got_as_there() -> None:
    ran = run_demo("up", "qwen36", "--node", "spark1", "--pull", "--dry-run", scenario="fresh")
    assert ran.returncode == 0
    assert "docker run" in ran.stdout
    assert ran.stderr.count("missing: the image") == 1
    assert "--pull" not in ran.stderr, "no advice to do what was asked for"


@FRESH
async def test_the_registry_does_not_have_what_only_a_node_has(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    end = find_command_end(await collect_events(pull_profile(ctx, make_request(sparks, "image=own-vllm:1"))))
    assert end.exit_code != 0
    assert "the registry docker.io refuses own-vllm:1 to spark1" in (end.message or "")


def test_up_refuses_and_with_pull_gets_ready() -> None:
    refused = run_demo("up", "qwen36-vllm", "--node", "spark1", "--json", scenario="fresh")
    assert parse_result(refused)["exit_code"] == 6
    assert parse_result(refused)["hint"] == "sparkctl up qwen36-vllm --node spark1 --pull"
    ran = run_demo("up", "qwen36-vllm", "--node", "spark1", "--pull", "--json", scenario="fresh")
    assert parse_result(ran)["outcome"] == "ready"
    phases = [json.loads(line).get("phase") for line in ran.stdout.splitlines() if '"event":"phase"' in line]
    assert phases.index("pulling") < phases.index("creating")


@FRESH
async def test_an_image_is_built_once_and_again_when_its_source_changes(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    sets = ("build=https://example.org/vllm.git#main:docker", "image=own/vllm:1")
    events = await collect_events(pull_profile(ctx, make_request(sparks, *sets, nodes=2, model=False)))
    assert find_command_end(events).outcome is Outcome.DONE, find_command_end(events)
    (part,) = next(one for one in events if isinstance(one, PartsMissing) and one.node == "spark1").parts
    assert part.sentence.endswith("to build from https://example.org/vllm.git#main:docker; 2.2 TiB free there")
    steps = [one.step for one in events if isinstance(one, PhaseChanged) and one.step is not None]
    assert [(one.done, one.total) for one in steps if one.name == "build"] == [(None, None), (1, 3), (2, 3), (3, 3)]
    lines = [line.text for one in events if isinstance(one, LogArrived) for line in one.lines]
    assert "#6 [2/3] RUN pip install --no-cache-dir vllm" in lines
    ids = {node.images.get_image_id("own/vllm:1") for node in sparks.nodes.values()}
    assert len(ids) == 1, "one build, copied to the other Spark"
    again = make_request(sparks, *sets, model=False)
    assert "nothing to get" in (find_command_end(await collect_events(pull_profile(ctx, again))).message or "")
    for node in sparks.nodes.values():
        node.git_commit = "a0" * 20
    moved = await collect_events(pull_profile(ctx, again))
    (part,) = next(one for one in moved if isinstance(one, PartsMissing)).parts
    assert "was built from an older state" in part.sentence
    assert "a0a0a0" in (find_command_end(moved).message or "")


class Accepting(NonInteractivePrompter):
    """An operator who says yes, and what was asked."""

    def __init__(self) -> None:
        self.questions: list[YesNoQuestion] = []

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        self.questions.append(question)
        return True


@FRESH
async def test_up_on_a_terminal_offers_to_get_what_is_missing(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    prompter = Accepting()
    request = make_request(sparks, nodes=1).to_start_request()
    events = await collect_events(request.run(replace(ctx, prompter=prompter)))
    (question,) = prompter.questions
    assert isinstance(question, PullQuestion)
    assert [part.partition(" is not there")[0] for part in question.parts] == [
        f"the image {IMAGE}",
        f"the model {MODEL}",
    ]
    assert [one.outcome for one in events if isinstance(one, CommandEnded)] == [Outcome.READY]


class Waiting(NonInteractivePrompter):
    """Somebody presses Ctrl-C where a question waits for its answer."""

    def __init__(self, ctx: CommandContext) -> None:
        self.ctx = ctx

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        self.ctx.interrupt.record_press()
        await asyncio.Event().wait()
        raise AssertionError("nobody answers")


@FRESH
async def test_the_demos_clock_hurries_while_something_arrives(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    docker, seen = sparks.docker["spark1"], set[str]()
    pulling = asyncio.ensure_future(collect_events(make_request(sparks, nodes=1).run(ctx)))
    while not pulling.done():
        coming = {"image": bool(docker.node.arrivals), "model": bool(docker.running)}
        seen |= {what for what, is_coming in coming.items() if is_coming}
        assert docker.is_busy or not any(coming.values())
        await asyncio.sleep(0.001)
    assert seen == {"image", "model"}


@FRESH
async def test_without_the_hub_the_profile_tells_about_how_much_comes(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    prompter = Accepting()
    request = make_request(sparks, nodes=1)
    events = await collect_events(request.to_start_request().run(replace(ctx, prompter=prompter)))
    (question,) = prompter.questions
    assert isinstance(question, PullQuestion)
    assert question.parts[1].endswith(
        f"from hf:nvidia/Qwen3.6-27B-NVFP4, about {format_size(request.profile.model.weights or 0)}"
    )
    assert (question.size or 0) > (request.profile.model.weights or 0) > 0
    assert (question.amount_words or "").startswith("about ")
    (lacking,) = [
        one for one in events if isinstance(one, PartsMissing)
    ]  # the pull's: the question stood for the start's
    assert [part.is_estimate for part in lacking.parts] == [False, True]


@FRESH
async def test_ctrl_c_at_the_question_ends_up(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    request = make_request(sparks, nodes=1).to_start_request()
    async with asyncio.timeout(10):
        events = await collect_events(request.run(replace(ctx, prompter=Waiting(ctx))))
    (end,) = [one for one in events if isinstance(one, CommandEnded)]
    assert (end.exit_code, end.outcome, end.node) == (130, Outcome.INTERRUPTED, "spark1")
    assert not sparks.nodes["spark1"].images.has_image(IMAGE)


@FRESH
async def test_the_question_says_how_much_is_to_come_and_the_plan_what_is_free(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    hub = HubStandIn()
    hub.files["nvidia/Qwen3.6-27B-NVFP4"] = {
        "config.json": b"{}",
        "model.safetensors": make_safetensors({"mtp.a": ("F8_E4M3", 3_000_000)}),
    }
    prompter = Accepting()
    with run_hub(hub) as url:
        environ = {"HF_ENDPOINT": url}
        start = replace(make_request(sparks, nodes=1).to_start_request(), environ=environ)
        await collect_events(start.run(replace(ctx, prompter=prompter)))
        (question,) = prompter.questions
        assert isinstance(question, PullQuestion)
        assert (9 << 30) + 3_000_000 - 5 < (question.size or 0) < (9 << 30) + 3_010_000
        assert (question.is_whole, question.seconds) == (True, None)
        assert question.parts[0].endswith(", 9.0 GiB packed and 20.0 GiB unpacked")
        assert "from hf:nvidia/Qwen3.6-27B-NVFP4, 3 MiB" in question.parts[1]
        sparks.nodes["spark2"].options = replace(
            sparks.nodes["spark2"].options, troubles=frozenset({NodeFault.FULL_DISK})
        )
        profile = make_request(sparks).profile
        spark2 = load_config(sparks.config_path).nodes[1:]
        events = await collect_events(check_fit(ctx, CheckFit(profile=profile, nodes=spark2, hub=HubClient(environ))))
        (lacking,) = [one for one in events if isinstance(one, PartsMissing)]
        assert [part.free for part in lacking.parts] == [FULL_DISK_FREE_BYTES, FULL_DISK_FREE_BYTES]
        large = replace(lacking.parts[1], size=FULL_DISK_FREE_BYTES + (1 << 30))
        assert large.is_too_large
        assert lacking.parts[0].is_too_large
        assert lacking.parts[1].beside == (lacking.parts[0].size or 0) + (20 << 30), (
            "the image comes packed, and is unpacked"
        )
        assert not replace(lacking.parts[1], beside=0).is_too_large
        cautions = [word for one in events if isinstance(one, MemoryFitEvaluated) for word in one.fit.cautions]
        assert f"the disk of spark2 may not hold {IMAGE}, unless many of its layers are there already" in cautions
        unknown = replace(lacking.parts[0], size=None, unpacked=None)
        assert ", size not known; " in unknown.sentence
        room = FULL_DISK_FREE_BYTES - (6 << 30)
        assert not replace(large, size=room, beside=0).is_too_large
        assert replace(large, size=room, beside=2 << 30).is_too_large, "with what comes beside it"
        assert replace(large, size=FULL_DISK_FREE_BYTES - (4 << 30), beside=0).is_too_large, "5 GiB stay free"
        assert large.sentence.endswith(f"; only {format_size(FULL_DISK_FREE_BYTES)} free there")


@FRESH
@pytest.mark.parametrize("is_asked", [True, False])
async def test_hub_and_registry_are_asked_once_for_question_check_and_pull(
    sparks: SimulatedSparks, ctx: CommandContext, is_asked: bool
) -> None:
    hub = HubStandIn()
    hub.files["nvidia/Qwen3.6-27B-NVFP4"] = {
        "config.json": b"{}",
        "model.safetensors": make_safetensors({"mtp.a": ("F8_E4M3", 3_000_000)}),
    }
    with run_hub(hub) as url:
        request = make_request(sparks, nodes=1, environ={"HF_ENDPOINT": url})
        start = replace(request.to_start_request(), pull=not is_asked)
        events = await collect_events(start.run(replace(ctx, prompter=Accepting())))
    assert any(isinstance(one, PhaseChanged) and one.phase is Phase.PULLING for one in events)
    by_this_computer = [path for _, path, _ in hub.log if path.startswith("/api/models/")]
    assert len(by_this_computer) == 1, by_this_computer
    assert len(sparks.nodes["spark1"].registry_requests) == 1


@pytest.mark.simulation(scenario="fresh", options={"spark1": SimNodeOptions(troubles=frozenset({NodeFault.FULL_DISK}))})
async def test_what_goes_onto_one_disk_is_summed(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    model, draft = (
        MissingPart(kind=kind, node=NodeName("spark1"), name=f"{MODEL}/{kind}", reason="", source=None, size=size << 30)
        for kind, size in ((PartKind.MODEL, 4), (PartKind.DRAFT_MODEL, 7))
    )
    async with ctx.create_session(load_config(sparks.config_path).nodes[0]) as session:
        await session.link.connect()
        engine = await session.docker.read_info()
        together = await measure_free_space(session, (model, draft), engine)
        alone = [
            *await measure_free_space(session, (model,), engine),
            *await measure_free_space(session, (draft,), engine),
        ]
    assert [part.free for part in together] == [FULL_DISK_FREE_BYTES, FULL_DISK_FREE_BYTES]
    assert [part.beside >> 30 for part in together] == [7, 4]
    assert [part.is_too_large for part in (*together, *alone)] == [True, True, False, False]


@FRESH
async def test_a_plan_asks_the_hub_for_what_is_not_there(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    hub, repository = HubStandIn(), "nvidia/Qwen3.6-27B-NVFP4"
    hub.files[repository] = {
        "config.json": json.dumps(build_model_config("Qwen3.6-27B")).encode(),
        "model.safetensors": make_safetensors({"mtp.a": ("F8_E4M3", 3_000_000)}),
    }
    nodes = load_config(sparks.config_path).nodes[:1]
    with run_hub(hub) as url:
        environ = {"HF_ENDPOINT": url}
        profile = make_request(sparks, "model.weights=null").profile
        events = await collect_events(check_fit(ctx, CheckFit(profile=profile, nodes=nodes, hub=HubClient(environ))))
        proposed = propose_profile(f"hf:{repository}", ("args.gpu-memory-utilization=0.5",))
        request = CheckFit(profile=proposed, nodes=nodes, is_proposal=True, hub=HubClient(environ))
        proposal = await collect_events(check_fit(ctx, request))
        unknown = replace(request, profile=propose_profile("hf:nvidia/misspelt", overrides=()))
        unknown_end = find_command_end(await collect_events(check_fit(ctx, unknown)))
        hub.gated.add(repository)
        gated = await collect_events(check_fit(ctx, CheckFit(profile=profile, nodes=nodes, hub=HubClient(environ))))
    assert find_command_end(events).exit_code == 6, "it is not there"
    (fit,) = [one.fit for one in events if isinstance(one, MemoryFitEvaluated)]
    (weights,) = [part for part in fit.parts if part.name == "weights"]
    assert (weights.size, weights.obtained) == (len(hub.files[repository]["model.safetensors"]), EstimateSource.HUB)
    assert "hf:nvidia/Qwen3.6-27B-NVFP4 (F8_E4M3 100%), not here yet" in weights.words
    (missing,) = [one for one in events if isinstance(one, PartsMissing)]
    assert missing.parts[1].size == sum(map(len, hub.files[repository].values()))
    assert find_command_end(proposal).exit_code == 0, "a model without a profile: does it fit?"
    assert unknown_end.exit_code == 6, "nobody can get it"
    (fit,) = [one.fit for one in gated if isinstance(one, MemoryFitEvaluated)]
    assert [part.size for part in fit.parts if part.name == "weights"] == [None]
    assert any("is gated" in caution for caution in fit.cautions)


def test_models_are_listed_and_one_in_use_stays() -> None:
    shown = run_demo("models", "--json", scenario="two-stacks")
    nodes = {one["node"]: one["models"] for one in json.loads(shown.stdout)["nodes"]}
    (tiny,) = [one for one in nodes["spark1"] if one["place"] == "/home/milo/models/gpt-oss-120b-GGUF"]
    assert (tiny["profiles"], tiny["is_whole"], tiny["also_on"]) == (["llamacpp-gpt-oss-120b"], True, ["spark2"])
    ran = run_demo("models", "remove", "Qwen3.6-27B-FP8", "--node", "spark1", "--yes", "--json", scenario="two-stacks")
    assert parse_result(ran)["exit_code"] == 6
    assert "names /home/milo/models/Qwen3.6-27B-FP8" in parse_result(ran)["message"]
    ran = run_demo(
        "models", "remove", "gpt-oss-120b-GGUF", "--node", "spark1", "--yes", "--json", scenario="two-stacks"
    )
    assert parse_result(ran)["message"].startswith("removed /home/milo/models/gpt-oss-120b-GGUF on spark1")


@pytest.mark.simulation(scenario="empty", speed=400, options={"spark2": SimNodeOptions(missing=(MODEL,))})
async def test_a_model_comes_from_the_other_spark(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    first, second = load_config(sparks.config_path).nodes
    request = replace(make_request(sparks, "model.source=null"), nodes=(second,), from_node=first)
    assert request.format_as_command() == (
        "pull", "qwen36-vllm", "--node", "spark2", "--from-cache", "spark1"
    )  # fmt: skip
    events = await collect_events(pull_profile(ctx, request))
    moved = {(one.source, one.node) for one in events if isinstance(one, TransferProgressed)}
    assert moved == {("spark1", "spark2")}, find_command_end(events)


@FRESH
async def test_a_spark_is_no_source_of_what_it_lacks(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    """It is told before the image comes, which takes minutes."""
    (first,) = load_config(sparks.config_path).nodes[:1]
    events = await collect_events(pull_profile(ctx, replace(make_request(sparks), from_node=first)))
    assert find_command_end(events).exit_code == 6
    assert "spark1 does not have /home/milo/models" in (find_command_end(events).message or "")
    assert not [one for one in events if isinstance(one, TransferProgressed)]


@FRESH
async def test_the_other_spark_is_asked_before_the_image_comes(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    second = load_config(sparks.config_path).nodes[1]
    request = replace(make_request(sparks), from_node=second)
    end = find_command_end(await collect_events(pull_profile(ctx, request)))
    assert (end.exit_code, end.message) == (
        6, f"the model {MODEL} is not there on spark2, so it cannot come from there"
    )  # fmt: skip
    assert not sparks.nodes["spark1"].images.has_image(IMAGE)


@FRESH
async def test_what_the_hub_does_not_give_is_refused_before_the_image_comes(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    hub, repository = HubStandIn(), "nvidia/Qwen3.6-27B-NVFP4"
    weights = make_safetensors({"mtp.a": ("F8_E4M3", 3_000_000)})
    hub.files[repository] = {"config.json": b"{}", "model.safetensors": weights}

    async def read_end(*sets: str) -> tuple[int, str]:
        request = make_request(sparks, *sets, environ={"HF_ENDPOINT": url})
        end = find_command_end(await collect_events(pull_profile(ctx, request)))
        assert not sparks.nodes["spark1"].images.has_image(IMAGE)
        return end.exit_code, end.message or ""

    with run_hub(hub) as url:
        hub.gated.add(repository)
        code, message = await read_end()
        assert (code, message) == (
            6,
            f"hf:{repository} is gated: the Hub shows it only to who accepted its terms (Access to model {repository} is restricted.)",
        )
        hub.gated.clear()
        code, message = await read_end("model.source=hf:acme/none")
        assert (code, message) == (6, "the Hub has no acme/none, or shows it only with a token")
        assert await read_end(f"model.source=hf:{repository}@v9") == (6, f"{repository} has no revision v9")
        code, message = await read_end('model.include=["*.gguf"]')
        assert (code, "no file of the repository is wanted" in message) == (6, True)
        assert not [path for _, path, _ in hub.log if path.startswith("/cdn")], "no weights are asked for"


@FRESH
async def test_a_directory_that_is_not_there_is_told_before_the_image_comes(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    events = await collect_events(pull_profile(ctx, make_request(sparks, "model.source=file:/mnt/gone/models")))
    end = find_command_end(events)
    assert (end.exit_code, end.message) == (6, "spark1 has no directory /mnt/gone/models")
    assert not sparks.nodes["spark1"].images.has_image(IMAGE)


@FRESH
@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_own_directory_that_is_not_there_is_told_before_the_image_comes(
    sparks: SimulatedSparks, ctx: CommandContext, dry_run: bool
) -> None:
    request = make_request(sparks, "model.source=null", from_directory="/mnt/gone/models", dry_run=dry_run)
    end = find_command_end(await collect_events(pull_profile(ctx, request)))
    assert (end.exit_code, end.message) == (6, "spark1 has no directory /mnt/gone/models")
    assert not sparks.nodes["spark1"].images.has_image(IMAGE)


@FRESH
async def test_an_image_that_no_registry_gives_needs_no_login(
    sparks: SimulatedSparks, ctx: CommandContext, tmp_path: Path
) -> None:
    environ = {"DOCKER_CONFIG": str(tmp_path), "HF_HUB_OFFLINE": "1"}  # without any login
    for sets in (
        ("image=built/here:1", "build=https://git.example/recipes.git#main"),
        ("image=own:1", "made_by=./make-it.sh"),
    ):
        request = make_request(sparks, *sets, environ=environ, own_login=True, dry_run=True)
        end = find_command_end(await collect_events(pull_profile(ctx, request)))
        assert "login" not in (end.message or ""), sets


@pytest.mark.simulation(scenario="empty", speed=3, options={"spark1": SimNodeOptions(missing=(MODEL,))})
async def test_nothing_is_downloaded_while_an_engine_loads(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    profile = ProfileLibrary(user=shipped_profiles_dir()).load_profile("qwen36")
    nodes = load_config(sparks.config_path).nodes[:1]
    start = StartInstance(profile=profile, nodes=nodes, detach=True)
    assert find_command_end(await collect_events(start.run(ctx))).outcome is Outcome.DETACHED
    events = await collect_events(pull_profile(ctx, make_request(sparks)))
    assert find_command_end(events).exit_code == 6
    assert "qwen36 loads its weights on spark1" in (find_command_end(events).message or "")
    assert not [one for one in events if isinstance(one, TransferProgressed)]
    async with aclosing(pull_profile(ctx, make_request(sparks, forced=True))) as forced:
        async for event in forced:
            assert not isinstance(event, CommandEnded), event
            if isinstance(event, TransferProgressed):
                break


@FRESH
async def test_what_a_profile_needs_is_fetched_first_each_on_its_spark(
    sparks: SimulatedSparks, ctx: CommandContext, own_profiles: None, tmp_path: Path
) -> None:
    nodes = tuple(load_config(sparks.config_path).nodes)
    by_name = {str(node.name): node for node in nodes}
    folder = tmp_path / "config" / "sparkctl" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "voice.yaml").write_text("schema: 1\nname: voice\nextends: kokoro-tts\nneeds: [orpheus-llm@spark1]\n")
    library = ProfileLibrary()
    request = PullProfile(
        profile=library.load_profile("voice"), nodes=(by_name["spark2"],), words=("voice",), known=nodes
    )
    events = await collect_events(request.run(ctx))
    assert find_command_end(events).exit_code == 0
    order = list(list_missing(events))
    assert order == ["spark1", "spark2"]
    assert sparks.nodes["spark1"].images.has_image(library.load_profile("orpheus-llm").image)
    assert sparks.nodes["spark2"].images.has_image(library.load_profile("kokoro-tts").image)
    again = await collect_events(request.run(ctx))
    assert (find_command_end(again).exit_code, list_missing(again)) == (0, {"spark1": [], "spark2": []})
    unknown = replace(request, known=())
    ended = find_command_end(await collect_events(unknown.run(ctx)))
    assert (ended.exit_code, "no node is called that" in (ended.message or "")) == (2, True)


@FRESH
async def test_a_pull_is_in_the_history_with_what_came(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    request = make_request(sparks, nodes=1)
    await collect_events(pull_profile(ctx, replace(request, dry_run=True)))
    assert ctx.history.list_operations() == ()
    events = await collect_events(pull_profile(ctx, request))
    assert find_command_end(events).exit_code == 0
    (row,) = ctx.history.list_operations()
    assert (row.kind, row.outcome, row.operator, row.nodes) == (OperationKind.PULL, "done", ctx.operator, ("spark1",))
    assert (row.command or "").startswith("sparkctl pull qwen36-vllm")
    image, model = row.shares
    assert (image.instance, model.instance) == (IMAGE, MODEL)
    assert image.image_digest
    assert image.received == sum(int(share * (9 << 30)) for share in (0.02, 0.08, 0.55, 0.3, 0.05))
    assert image.seconds
    assert model.received
    await collect_events(pull_profile(ctx, request))
    assert len(ctx.history.list_operations()) == 1, "one that had nothing to get is no row"


GIANT = """\
schema: 1
name: giant
engine: vllm
image: vllm/vllm-openai:v0.21.0
model: {path: /models/Giant, source: "hf:Qwen/Giant", weights: 300GB}
mounts: ["~/models:/models"]
port: 8010
command: []
args: {gpu-memory-utilization: 0.8}
"""


def test_what_can_never_fit_is_refused_before_anything_is_got_and_no_pull_is_offered(tmp_path: Path) -> None:
    file = tmp_path / "giant.yaml"
    file.write_text(GIANT)
    words = (str(file), "--node", "spark1")
    planned = run_demo("plan", *words, scenario="fresh")
    assert (planned.returncode, "does not fit" in planned.stdout, "get it:" in planned.stdout) == (6, True, False)
    for flags in ((), ("--pull",)):
        ran = run_demo("up", *words, *flags, scenario="fresh")
        assert (ran.returncode, ran.stdout) == (6, "")
        assert "giant does not fit on spark1: short by" in ran.stderr
        assert "getting image" not in ran.stderr
        assert f"start it anyway: sparkctl up {file} --node spark1" in ran.stderr
        assert ("--pull" in ran.stderr) is bool(flags), "what would be refused is not offered"


def test_the_pull_comes_before_the_switch_and_a_dry_run_prints_the_line_all_the_same() -> None:
    missing = ("qwen36-vllm", "--node", "spark1", "--set", "image=missing/vllm:1", "--set", "command=[]")
    steps = [
        line.split(": ")[0]
        for line in run_demo("plan", *missing, scenario="two-stacks").stdout.splitlines()
        if line.startswith(("get it: ", "then: "))
    ]
    assert steps == ["get it", "then"]
    ran = run_demo("up", *missing, "--set", "port=8011", "--dry-run", "--format", "docker")
    assert ran.returncode == 6
    assert ran.stdout.startswith("docker run ")
    assert "the image missing/vllm:1 is not there on spark1" in ran.stderr


@pytest.mark.parametrize("flags", [(), ("--pull",)], ids=["asked", "pull"])
@pytest.mark.parametrize(
    ("words", "obstacle"),
    [
        (("kokoro-tts", "--node", "spark1", "--set", "port=8003"), "port 8003 on spark1 is in use by the container"),
        (("qwen36-tp2", "--set", "port=8003"), "port 8003 on spark1 is in use by the container"),
        (("qwen36-vllm", "--node", "spark1", "--set", "args.max-modle-len=8"), "vLLM 0.19.1 has no flag --max-modle-len"),
    ],
    ids=["port", "port-of-two", "flag"],
)  # fmt: skip
def test_what_no_download_changes_is_told_before_one(
    words: tuple[str, ...], obstacle: str, flags: tuple[str, ...]
) -> None:
    image = "image=missing/vllm:0.19.1" if "qwen36-vllm" in words else "image=missing/x:1"
    ran = run_demo("up", *words, "--set", image, *flags, scenario="two-stacks")
    assert (ran.returncode, ran.stderr.splitlines()[0][: len(obstacle) + 10]) == (6, f"sparkctl: {obstacle}"), (
        ran.stderr
    )
    assert "missing: " not in ran.stderr
    assert all("--pull" in line for line in ran.stderr.splitlines() if flags and "sparkctl up" in line)
    assert not [line for line in ran.stderr.splitlines() if "sparkctl switch" in line and "--pull" in line]


def test_a_misfit_is_told_before_a_busy_port() -> None:
    words = ("qwen36-vllm", "--node", "spark1", "--set", "port=8003", "--set", "args.gpu-memory-utilization=0.1")
    ran = run_demo("up", *words, scenario="two-stacks")
    assert ran.returncode == 6
    assert "does not fit" in ran.stderr.partition("port 8003")[0]
    assert "port 8003 on spark1 is in use" in ran.stderr


@pytest.mark.parametrize("flags", [("--pull",), ("--pull", "--dry-run"), ()], ids=" ".join)
def test_a_misfit_is_told_with_its_calculation(flags: tuple[str, ...]) -> None:
    words = ("qwen36-vllm", "--node", "spark1", "--set", "args.gpu-memory-utilization=0.1", *flags)
    ran = run_demo("up", *words, "--json", scenario="two-stacks")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (ran.returncode, [one["event"] for one in events][-2:]) == (6, ["fit", "result"])
    assert events[-2]["fit"]["parts"]
    assert "does not fit on spark1" in events[-1]["message"]
