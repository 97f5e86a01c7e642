"""What each rank of a model over several Sparks is started with, word for word."""

from __future__ import annotations

import subprocess

import pytest

from sparkctl import engines
from sparkctl.engines.base import EngineRank
from sparkctl.errors import InvalidInput

PAIR = ("192.168.200.11", "192.168.200.12")
HEAD, WORKER = EngineRank(0, PAIR), EngineRank(1, PAIR)


def test_sglang_meets_at_the_head() -> None:
    words = ("python", "-m", "sglang.launch_server", "--tp", "2")
    sglang = engines.load_engine("sglang")
    meeting = ("--dist-init-addr", "192.168.200.11:25000")
    assert sglang.build_rank_command(words, HEAD) == (*words, "--nnodes", "2", "--node-rank", "0", *meeting)
    assert sglang.build_rank_command(words, WORKER) == (*words, "--nnodes", "2", "--node-rank", "1", *meeting)
    assert not sglang.must_start_head_first(words)


def test_vllm_of_its_own_leaves_the_worker_headless() -> None:
    words = ("vllm", "serve", "/models/m", "-tp", "2")
    vllm = engines.load_engine("vllm")
    assert vllm.build_rank_command(words, HEAD) == (
        *words,
        "--nnodes",
        "2",
        "--node-rank",
        "0",
        "--master-addr",
        PAIR[0],
    )
    assert vllm.build_rank_command(words, WORKER)[-7:] == (
        "--nnodes", "2", "--node-rank", "1", "--master-addr", PAIR[0], "--headless",
    )  # fmt: skip
    assert not vllm.must_start_head_first(words)


def test_vllm_over_ray_begins_with_the_head() -> None:
    words = ("vllm", "serve", "/models/a b", "--distributed-executor-backend", "ray")
    vllm = engines.load_engine("vllm")
    assert vllm.must_start_head_first(words)
    head = vllm.build_rank_command(words, HEAD)
    assert head[:2] == ("sh", "-c")
    assert head[3:] == ("sh", *words), "the words stay words: no shell reads them"
    assert "--head --port=46379 --node-ip-address=192.168.200.11" in head[2]
    assert (
        "--address=192.168.200.11:46379 --node-ip-address=192.168.200.12" in vllm.build_rank_command(words, WORKER)[2]
    )


def test_llama_reaches_its_workers() -> None:
    llama = engines.load_engine("llamacpp")
    trio = (*PAIR, "192.168.200.13")
    assert llama.build_rank_command(("llama-server",), EngineRank(0, trio))[-2:] == (
        "--rpc",
        "192.168.200.12:50052,192.168.200.13:50052",
    )
    assert llama.build_rank_command(("llama-server",), EngineRank(2, trio)) == (
        "rpc-server",
        "--host",
        trio[2],
        "--port",
        "50052",
    )


def test_trtllm_is_started_by_mpirun_on_the_head() -> None:
    trtllm = engines.load_engine("trtllm")
    words = ("trtllm-serve", "/models/a b; $(reboot)", "--tp_size", "3")
    trio = (*PAIR, "192.168.200.13")
    head = trtllm.build_rank_command(words, EngineRank(0, trio))
    assert head[:2] == ("sh", "-c")
    assert head[3:7] == ("sh", *trio[1:], "--"), "the workers are words: no shell reads them"
    assert head[-5:] == ("trtllm-llmapi-launch", *words)
    mpirun = head[7:-5]
    assert mpirun[0] == "mpirun"
    assert mpirun[5:] == ("-np", "3", "--host", "192.168.200.11:1,192.168.200.12:1,192.168.200.13:1", *mpirun[9:])
    assert mpirun[9:11] == ("sh", "-c")
    assert "-x" not in mpirun, "what is named there would be seen in a list of processes, and is the head's own"
    assert not trtllm.must_start_head_first(words)


def test_a_worker_of_mpirun_is_an_sshd_on_the_link_alone() -> None:
    trtllm = engines.load_engine("trtllm")
    worker = trtllm.build_rank_command(("trtllm-serve", "m"), WORKER)
    assert worker[3:5] == ("sh", PAIR[1])
    assert '"ListenAddress=$1"' in worker[2]
    assert "AuthenticationMethods=publickey" in worker[2]
    assert not any("trtllm" in word for word in worker), "its command comes by mpirun"


def test_only_the_head_of_mpirun_gets_private_keys() -> None:
    trtllm = engines.load_engine("trtllm")
    assert trtllm.list_ssh_key_mounts(HEAD) == ("~/.ssh:/tmp/.ssh:ro",)
    assert trtllm.list_ssh_key_mounts(WORKER) == ("~/.ssh/authorized_keys:/tmp/.ssh/authorized_keys:ro",)
    assert [engines.load_engine(name).list_ssh_key_mounts(HEAD) for name in ("sglang", "vllm", "llamacpp")] == [
        (),
        (),
        (),
    ]


@pytest.mark.parametrize("rank", [HEAD, WORKER])
def test_the_scripts_of_mpirun_are_of_any_posix_shell(rank: EngineRank) -> None:
    words = engines.load_engine("trtllm").build_rank_command(("trtllm-serve", "m"), rank)
    scripts = [words[2], *([] if rank.is_head else [words[5]])]
    for script in scripts:
        read = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
        assert (read.returncode, read.stderr) == (0, "")


def test_an_engine_without_ranks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Spark") as refused:
        engines.load_engine("container").build_rank_command(("x",), HEAD)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("engine", "own"),
    [
        ("sglang", "--node-rank=0"),
        ("sglang", "--dist_init_addr=h:1"),
        ("vllm", "--headless"),
        ("llamacpp", "--rpc=h:1"),
    ],
)
def test_what_differs_from_rank_to_rank_is_not_the_profiles(engine: str, own: str) -> None:
    with pytest.raises(InvalidInput, match="gives each its own"):
        engines.load_engine(engine).build_rank_command(("x", own), WORKER)


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llamacpp", "trtllm"])
def test_a_script_cannot_be_joined(engine: str) -> None:
    with pytest.raises(InvalidInput, match="script"):
        engines.load_engine(engine).build_rank_command(("bash", "-c", "exec something"), HEAD)
