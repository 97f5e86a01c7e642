"""What a demo finds when it begins, and that it finds the same twice."""

from __future__ import annotations

import asyncio

import pytest

from sparkctl.core.profiles import ProfileLibrary
from sparkctl.model.plan import Label
from sparkctl.sim import SimulatedSparks, background
from sparkctl.sim.launch import read_launch
from tests.sim import clients


async def test_two_stacks_are_ready_and_decode() -> None:
    async with SimulatedSparks("two-stacks", **clients.FAST) as sparks:
        for node, profile in (("spark1", "qwen36-ngram"), ("spark2", "qwen36-vllm")):
            (container,) = sparks.docker[node].containers.values()
            assert container.state == "running"
            assert container.labels[Label.PROFILE] == profile
            assert container.labels[Label.HASH] == ProfileLibrary().load(profile).digest
            assert container.status().endswith("hours")
            decoding = sparks.docker[node].running[container.id].decoding
            before = decoding.counts().generated
            await clients.eventually(lambda now=decoding, then=before: now.counts().generated > then)


async def test_the_big_model_fills_both() -> None:
    async with SimulatedSparks("big-model", **clients.FAST) as sparks:
        for node in sparks.nodes.values():
            assert node.memory.used_by_engines > 90 << 30
        names = {one.labels[Label.INSTANCE] for d in sparks.docker.values() for one in d.containers.values()}
        assert names == {"qwen3-235b"}


async def test_the_same_seed_is_the_same_world() -> None:
    seen = []
    for seed in (7, 7, 8):
        async with SimulatedSparks("big-model", seed=seed) as sparks:
            (container,) = sparks.docker["spark1"].containers.values()
            seen.append((container.id, sparks.nodes["spark1"].memory.meminfo()))
    assert seen[0] == seen[1] != seen[2]


def test_another_thread_serves_this_one() -> None:
    with background(scenario="two-stacks", **clients.FAST) as config:
        text = config.read_text()
        assert "name" in text
        assert "known_hosts" in text

        async def login() -> str:
            import asyncssh
            import yaml

            node = yaml.safe_load(text)["nodes"][1]
            async with asyncssh.connect(
                node["host"], node["port"], username=node["user"], client_keys=[node["identity"]],
                known_hosts=node["known_hosts"], config=[],
            ) as connection:  # fmt: skip
                return str((await connection.run("cat /etc/hostname")).stdout)

        assert asyncio.run(login()) == "spark2\n"
    assert not config.exists()


def test_an_unknown_scenario_is_named() -> None:
    with pytest.raises(ValueError, match="no scenario 'x'; there are empty, two-stacks, big-model, trouble"):
        SimulatedSparks("x")


def test_the_two_stacks_draft_as_owners_measure_them() -> None:
    """Qwen3.6 27B: FP8 with NGRAM 12.7 tok/s at 1.65 to 1.85 tokens a step; NVFP4 with MTP 2.5 to 3.5."""
    image, model = "scitrera/dgx-spark-sglang:0.5.12", "/models/Qwen3.6-27B-"
    words = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "12"]
    ngram = read_launch(
        image, ["python", "-m", "sglang.launch_server", "--model-path", f"{model}FP8", *words], {}, None
    )
    assert (ngram.draft_tokens, ngram.accept_length) == (11, 1.75)
    assert 11.5 < ngram.tokens_per_second < 14
    config = '{"method": "mtp", "num_speculative_tokens": 3}'
    mtp = read_launch("vllm/x", ["vllm", "serve", f"{model}NVFP4", "--speculative-config", config], {}, None)
    assert 2.5 <= mtp.accept_length <= 3.5
    for one in (ngram, mtp):
        assert one.accept_length <= 1 + one.draft_tokens
    with pytest.raises(ValueError, match=r"nosuch.*memory-runaway"):
        read_launch(image, [], {"SIM_FAULT": "nosuch"}, None)
