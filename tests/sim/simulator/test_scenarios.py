"""What a demo finds when it begins, and that it finds the same twice."""

from __future__ import annotations

import asyncio
import shlex
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.engines.simulation.decode_model import DecodeModel, compute_position_acceptance
from sparkctl.engines.simulation.simulated_clock import SimClock, SimPace
from sparkctl.engines.simulation.simulated_engine import parse_launch
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks, run_in_background
from sparkctl.simulator.http_server import SimHttpReply, SimHttpRequest
from tests.support import sim_clients


async def test_two_stacks_are_ready_and_decode() -> None:
    async with SimulatedSparks("two-stacks", **sim_clients.FAST) as sparks:
        for node, profile in (("spark1", "qwen36-ngram"), ("spark2", "qwen36-vllm")):
            (container,) = sparks.docker[node].containers.values()
            assert container.state == "running"
            assert container.labels[ContainerLabel.PROFILE] == profile
            assert container.labels[ContainerLabel.HASH] == ProfileLibrary().load_profile(profile).digest
            assert container.format_status().endswith("hours")
            decoding = sparks.docker[node].running[container.id].decoding
            before = decoding.update_counts().generated
            await sim_clients.wait_until_true(lambda now=decoding, then=before: now.update_counts().generated > then)


async def test_the_big_model_fills_both() -> None:
    async with SimulatedSparks("big-model", **sim_clients.FAST) as sparks:
        for node in sparks.nodes.values():
            assert node.memory.engine_bytes > 90 << 30
            assert node.gpu_busy_share > 0.9, "each computes its half of every token"
        names = {one.labels[ContainerLabel.INSTANCE] for d in sparks.docker.values() for one in d.containers.values()}
        assert names == {"minimax-m27"}


async def test_the_same_seed_is_the_same_world() -> None:
    seen = []
    for seed in (7, 7, 8):
        async with SimulatedSparks("big-model", seed=seed) as sparks:
            (container,) = sparks.docker["spark1"].containers.values()
            seen.append((container.id, sparks.nodes["spark1"].memory.format_meminfo()))
    assert seen[0] == seen[1] != seen[2]


def test_simulated_sparks_serve_from_another_thread() -> None:
    with run_in_background(scenario="two-stacks", **sim_clients.FAST) as config:
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
    with pytest.raises(
        ValueError, match="no scenario 'x'; there are empty, fresh, two-stacks, speech, story, big-model, trouble"
    ):
        SimulatedSparks("x")


NGRAM = shlex.split("--speculative-algorithm NGRAM --speculative-num-draft-tokens 12")
MTP = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
SGLANG, VLLM = (
    "python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8",
    "vllm serve /models/Qwen3.6-27B-NVFP4",
)


@pytest.mark.parametrize(
    ("words", "drafts", "rate", "range_"),
    [((SGLANG, *NGRAM), 11, 12.7, (1.65, 1.85)), ((VLLM, *MTP), 3, 23.3, (2.5, 3.5))],
)
async def test_the_two_stacks_are_as_fast_as_an_owner_measured(
    words: tuple[str, ...], drafts: int, rate: float, range_: tuple[float, float]
) -> None:
    """Qwen3.6 27B on a GB10: FP8 with NGRAM on SGLang, NVFP4 with MTP on vLLM; tok/s and tokens a step."""
    launch = parse_launch("an-image", [*words[0].split(), *words[1:]], {}, None)
    assert launch.draft_tokens == drafts
    decoding = DecodeModel(launch, SimPace())
    decoding.background = 1
    over = decoding.compute_past_counts(0.0, 0.0)
    lengths = [decoding.compute_past_counts(float(ago), 1.0).accept_length for ago in range(600)]
    assert range_[0] <= min(lengths) < max(lengths) <= range_[1]
    assert max(lengths) - min(lengths) > 0.6 * (range_[1] - range_[0]), "it wanders, as text does"
    assert over.generated == 0
    decoding.add_past_load(600.0)
    counts = decoding.update_counts()
    assert counts.generated / 600 == pytest.approx(rate, rel=0.01)
    assert counts.accept_length == pytest.approx(1 + sum(counts.accepted) / counts.steps)
    bytes_read = counts.steps / 600 * (launch.active + (0 if launch.is_ngram else drafts * launch.head))
    assert bytes_read == pytest.approx(196e9, rel=0.01), "both read as much as a GB10 can"


@given(length=st.floats(1.0, 5.9), drafted=st.integers(1, 11))
def test_what_is_accepted_at_each_place_adds_up(length: float, drafted: int) -> None:
    length = min(length, 0.99 * drafted + 1)
    shares = compute_position_acceptance(length, drafted)
    assert 1 + sum(shares) == pytest.approx(length, abs=1e-6)
    assert all(0 <= after <= before <= 1 for before, after in pairwise(shares))


async def test_one_clock_tells_the_time_of_everything() -> None:
    clock = SimClock(begin=1_777_000_000.0, rate=20.0)
    async with SimulatedSparks("two-stacks", speed=50 / 20, decode_speed=1.0, clock=clock) as sparks:
        for name, hours in (("spark1", 5.2), ("spark2", 3.1)):
            (container,) = sparks.docker[name].containers.values()
            started = (container.started or 0) / 1e9
            assert clock.unix_time() - started == pytest.approx(hours * 3600, abs=60)
            assert clock.unix_time() - sparks.nodes[name].uptime < started, "the node was up before its container"
            newest = container.journal._records[-1].stamp / 1e9
            assert clock.unix_time() - 60 < newest <= clock.unix_time()
    before, real = clock.monotonic(), time.monotonic()
    await clock.sleep(1.0)
    assert 0.9 < clock.monotonic() - before < 20 * (time.monotonic() - real + 0.1)


async def test_whoever_sleeps_hears_that_time_goes_faster() -> None:
    clock = SimClock(elastic=True)
    began = time.monotonic()
    asyncio.get_running_loop().call_later(0.05, clock.set_rate, 1000.0)
    await clock.sleep(100.0)
    assert time.monotonic() - began < 10


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(ValueError, match=r"nosuch.*memory-runaway"):
        parse_launch("scitrera/dgx-spark-sglang:0.5.12", [], {"SIM_FAULT": "nosuch"}, None)


@pytest.mark.parametrize(
    ("argv", "kind", "port"),
    [
        (["/bin/bash", "-c", "cd /w && vllm serve /models/Q-8B --port 8005"], "vllm", 8005),
        (["bash", "-lc", "source a;\nexec vllm serve /models/Q-8B \\\n --port 8005 2>&1 | tee x"], "vllm", 8005),
        (["sh", "-c", "python -m sglang.launch_server --model-path /models/Q-8B --port 8006"], "sglang", 8006),
        (["llama-server", "-m", "/models/Q-8B.gguf", "-c", "4096", "--port", "8007"], "llama", 8007),
    ],
)
def test_the_command_in_a_shell_script_is_what_runs(argv: list[str], kind: str, port: int) -> None:
    launch = parse_launch("an-image", argv, {}, None)
    assert (launch.kind, launch.port) == (kind, port)
    assert launch.model.startswith("/models/Q-8B")


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="the port is `banana`, which is not a whole number"):
        parse_launch("an-image", ["vllm", "serve", "/models/Q-8B", "--port", "banana"], {}, None)


async def test_a_port_that_another_program_has_is_told() -> None:
    lines: list[str] = []

    async def answer(_request: SimHttpRequest) -> SimHttpReply:
        return SimHttpReply()

    async with await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        async with SimulatedSparks("empty", speed=50.0, report_taken_port=lines.append) as sparks:
            node = sparks.nodes["spark1"]
            node.host = "127.0.0.1"
            await node.open_port(port, answer)
    assert lines == [f"127.0.0.1:{port}"]
