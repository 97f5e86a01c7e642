"""`sync` and `doctor --fabric` between simulated Sparks."""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.doctor_fabric import measure_fabric
from sparkctl.commands.transfer.transfer_profile import TransferProfile, transfer_profile
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event, FindingReported, Outcome, TransferProgressed, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimNodeOptions, SimulatedSparks
from sparkctl.simulator.sim_node import NodeFault
from tests.support import sim_clients
from tests.support.events import collect_events, find_command_end
from tests.support.run_command import run_demo

PLACE = "/home/milo/models/MiniMax-M2.7-MXFP4"


async def run_sync(sparks: SimulatedSparks, tmp_path: Path, **changes: object) -> list[Event]:
    nodes = load_config(sparks.config_path).nodes
    ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop")
    request = TransferProfile(
        profile=ProfileLibrary().load_profile("minimax-m27"), source=nodes[0], targets=nodes[1:], **changes
    )  # type: ignore[arg-type]
    async with aclosing(transfer_profile(ctx, request)) as events:
        return [event async for event in events]


async def test_a_model_that_is_missing_there_comes_over_the_cable(tmp_path: Path) -> None:
    async with SimulatedSparks(options={"spark2": SimNodeOptions(missing=(PLACE,))}, **sim_clients.FAST) as sparks:
        events = await run_sync(sparks, tmp_path, dry_run=True)
        assert find_command_end(events).outcome is Outcome.PLANNED
        assert "over enp1s0f0np0 and enP2p1s0f0np0" in (find_command_end(events).message or "")
        events = await run_sync(sparks, tmp_path)
        end = find_command_end(events)
        assert (end.outcome, end.exit_code) == (Outcome.DONE, 0), end
        moved = [event for event in events if isinstance(event, TransferProgressed)]
        assert moved[-1].done == moved[-1].total
        assert not any(isinstance(event, WarningEmitted) for event in events)
        assert sparks.nodes["spark2"].options.missing == ()
        assert "already" in (find_command_end(await run_sync(sparks, tmp_path)).message or "")


async def test_after_ctrl_c_it_goes_on_where_it_was(tmp_path: Path) -> None:
    async with SimulatedSparks(options={"spark2": SimNodeOptions(missing=(PLACE,))}, speed=4.0) as sparks:
        nodes = load_config(sparks.config_path).nodes
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop")
        request = TransferProfile(
            profile=ProfileLibrary().load_profile("minimax-m27"), source=nodes[0], targets=nodes[1:]
        )
        done, last = 0, None
        async with aclosing(transfer_profile(ctx, request)) as events:
            async for event in events:
                last = event
                if isinstance(event, TransferProgressed):
                    done = event.done
                    if done > 5e9:
                        ctx.interrupt.record_press()
        assert isinstance(last, CommandEnded)
        assert (last.outcome, last.exit_code) == (Outcome.INTERRUPTED, 130)
        sparks.nodes["spark2"].pace.clock.set_rate(20.0)
        again = await run_sync(sparks, tmp_path)
        first = next(event for event in again if isinstance(event, TransferProgressed))
        assert first.done > 4e9
        assert find_command_end(again).outcome is Outcome.DONE


@pytest.mark.parametrize("kind", ["lacking_images", "other_images"])
async def test_an_image_that_is_missing_or_another_there(tmp_path: Path, kind: str) -> None:
    options = SimNodeOptions(**{kind: ("eugr-vllm:latest",)})  # type: ignore[arg-type]
    async with SimulatedSparks(options={"spark2": options}, **sim_clients.FAST) as sparks:
        events = await run_sync(sparks, tmp_path)
        assert find_command_end(events).outcome is Outcome.DONE
        assert re.search("the image is [0-9a-f]{12} on both", find_command_end(events).message or "")
        assert {event.what for event in events if isinstance(event, TransferProgressed)} == {"image eugr-vllm:latest"}
        one, two = (node.images.get_image_id("eugr-vllm:latest") for node in sparks.nodes.values())
        assert one == two


@pytest.mark.parametrize(
    ("made_by", "way"),
    [
        ("./make.sh", "nobody publishes it; make it there, then repeat the command: ./make.sh"),
        ("null", "sparkctl pull minimax-m27 --image-only --node spark1 --set made_by=null"),
    ],
)
async def test_an_image_that_the_source_lacks_comes_with_the_way_to_get_it(
    tmp_path: Path, made_by: str, way: str
) -> None:
    change = f"made_by={made_by}"
    profile = ProfileLibrary().load_profile("minimax-m27", overrides=(change,))
    options = {"spark1": SimNodeOptions(lacking_images=("eugr-vllm:latest",))}
    async with SimulatedSparks(options=options, **sim_clients.FAST) as sparks:
        nodes = load_config(sparks.config_path).nodes
        request = TransferProfile(
            profile=profile, source=nodes[0], targets=nodes[1:], words=("minimax-m27", "--set", change)
        )
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop")
        end = find_command_end(await collect_events(transfer_profile(ctx, request)))
    assert (end.exit_code, end.hint) == (6, way)


async def test_a_full_disk_there_is_refused(tmp_path: Path) -> None:
    options = SimNodeOptions(missing=(PLACE,), troubles=frozenset({NodeFault.FULL_DISK}))
    async with SimulatedSparks(options={"spark2": options}, **sim_clients.FAST) as sparks:
        events = await run_sync(sparks, tmp_path)
    assert find_command_end(events).outcome is Outcome.REFUSED
    assert "no room for the files" in (find_command_end(events).message or "")
    assert len(events) == 1


async def test_several_targets_and_variables_that_nobody_has_set(tmp_path: Path) -> None:
    options = {name: SimNodeOptions(missing=(PLACE,)) for name in ("spark2", "spark3")}
    async with SimulatedSparks(nodes=("spark1", "spark2", "spark3"), options=options, **sim_clients.FAST) as sparks:
        nodes = load_config(sparks.config_path).nodes
        profile = ProfileLibrary().load_profile("minimax-m27", overrides=("env.HF_TOKEN=${NOBODY_SET_THIS}",))
        request = TransferProfile(profile=profile, source=nodes[0], targets=nodes[1:])
        async with aclosing(
            transfer_profile(CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop"), request)
        ) as events:
            end = find_command_end([event async for event in events])
        assert end.outcome is Outcome.DONE
        assert [line.split(" after ")[0] for line in (end.message or "").splitlines()] == [
            "minimax-m27 is on spark2 as on spark1",
            "minimax-m27 is on spark3 as on spark1",
        ]
        assert all(node.options.missing == () for node in sparks.nodes.values())


async def test_a_profile_whose_model_lies_nowhere_that_is_known(tmp_path: Path) -> None:
    async with SimulatedSparks(**sim_clients.FAST) as sparks:
        nodes = load_config(sparks.config_path).nodes
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop")
        profile = ProfileLibrary().load_profile(
            "qwen36", overrides=("model.path=somebody/model", "mounts=[/data:/data]")
        )
        profile = replace(profile, args=tuple(one for one in profile.args if one[0] != "model-path"))
        async with aclosing(
            transfer_profile(ctx, TransferProfile(profile=profile, source=nodes[0], targets=nodes[1:]))
        ) as events:
            seen = [event async for event in events]
        assert find_command_end(seen).outcome is Outcome.DONE
        assert any(isinstance(one, WarningEmitted) and "only the image" in one.message for one in seen)
        async with aclosing(
            transfer_profile(ctx, TransferProfile(profile=profile, source=nodes[0], targets=nodes[1:], image=False))
        ) as events:
            assert find_command_end([event async for event in events]).outcome is Outcome.REFUSED


@pytest.mark.parametrize("names", [("spark1", "spark2"), ("spark1", "spark2", "spark3")])
async def test_the_lanes_between_them_are_measured(tmp_path: Path, names: tuple[str, ...]) -> None:
    async with SimulatedSparks(nodes=names, **sim_clients.FAST) as sparks:
        ctx = CommandContext(history=OperationHistory(tmp_path), operator="milo@laptop")
        async with aclosing(measure_fabric(ctx, load_config(sparks.config_path).nodes)) as events:
            seen = [event async for event in events]
    assert find_command_end(seen).outcome is Outcome.DONE
    pairs = len(names) * (len(names) - 1) // 2
    rates = [
        one
        for one in seen
        if isinstance(one, FindingReported) and any(figure.name == "rate" for figure in one.evidence)
    ]
    assert len(rates) == 5 * pairs
    assert all(one.severity is Severity.GOOD for one in rates), rates
    note = next(one.message for one in seen if isinstance(one, FindingReported) and one.severity is Severity.NOTE)
    assert f"{5 * pairs} measurements" in note


def test_the_command_that_a_refused_start_offers_brings_the_image_that_was_asked_for() -> None:
    other = ("--set", "image=eugr-vllm-missing-on-spark2:latest")
    refused = run_demo("up", "minimax-m27", "--dry-run", *other)
    assert refused.returncode != 0
    assert f"sparkctl sync minimax-m27 --from spark1 --to spark2 {' '.join(other)}" in refused.stderr
    planned = run_demo("sync", "minimax-m27", "--from", "spark1", "--to", "spark2", "--dry-run", *other)
    assert planned.returncode == 0, planned.stderr
    assert "would send the image" in planned.stderr
