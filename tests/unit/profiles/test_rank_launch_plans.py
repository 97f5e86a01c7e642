"""The launch of each rank of a model over several Sparks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.engines.base import EngineRank
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import ContainerOptions, ModelSpec, Profile
from sparkctl.profiles.launch_planning import RankPlacement, build_launch_plan

PAIR = ("192.168.200.11", "192.168.200.12")
WAY = (("NCCL_IB_HCA", "rocep1s0f0,roceP2p1s0f0"), ("NCCL_SOCKET_IFNAME", "enp1s0f0np0"))
PROFILE = Profile(
    name="big",
    engine="sglang",
    image="img:1",
    origin="big.yaml",
    shipped=False,
    model=ModelSpec(path="/models/big"),
    port=8000,
    args=(("tp", "2"),),
    nodes=2,
)


def plan_rank(index: int, profile: Profile = PROFILE, **more: object) -> LaunchPlan:
    place = replace(
        RankPlacement(
            rank=EngineRank(index, PAIR),
            nodes=(NodeName("spark1"), NodeName("spark2")),
            run="a1b2c3",
            env=WAY,
            has_devices=True,
        ),
        **more,
    )  # type: ignore[arg-type]
    node = Node(name=NodeName(f"spark{index + 1}"), host="10.0.0.1")
    return build_launch_plan(profile, node, home="/home/milo", operator="milo@desk", environ={}, place=place)


def test_the_head_answers_and_the_worker_does_not() -> None:
    head, worker = plan_rank(0), plan_rank(1)
    assert (head.port, head.ready.health, head.ready.probe) == (8000, "/health", "completions")
    assert (worker.port, worker.ready.line, worker.ready.health, worker.ready.probe) == (None, None, None, "none")
    assert (head.rank, worker.rank, head.ranks) == (0, 1, 2)
    labels = dict(worker.labels)
    assert (labels[ContainerLabel.RANK], labels[ContainerLabel.NODES], labels[ContainerLabel.RUN]) == (
        "1/2",
        "spark1,spark2",
        "a1b2c3",
    )
    assert ContainerLabel.PORT not in labels
    assert '"probe":"none"' in labels[ContainerLabel.READY]
    assert dict(head.labels)[ContainerLabel.PORT] == "8000"
    assert head.profile_hash == worker.profile_hash


def test_each_rank_gets_route_and_devices() -> None:
    worker = plan_rank(1)
    assert dict(worker.env) == dict(WAY)
    assert (worker.devices, worker.ipc, worker.network) == (("/dev/infiniband",), "host", "host")
    assert ("memlock", "-1") in worker.ulimits
    assert worker.command[-6:] == ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "192.168.200.11:25000")
    assert plan_rank(1, has_devices=False).devices == ()


def test_what_the_profile_sets_goes_before_what_was_found() -> None:
    own = replace(
        PROFILE,
        env=(("NCCL_IB_HCA", "mlx5_0"),),
        container=ContainerOptions(ipc="private", ulimits=(("memlock", "1024"),), devices=("/dev/infiniband",)),
    )
    worker = plan_rank(1, own)
    assert [value for name, value in worker.env if name == "NCCL_IB_HCA"] == ["mlx5_0"]
    assert (worker.ipc, worker.devices, worker.ulimits) == ("private", ("/dev/infiniband",), (("memlock", "1024"),))


def test_a_container_network_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"container\.network is bridge"):
        plan_rank(0, replace(PROFILE, container=ContainerOptions(network="bridge")))


def test_what_mpirun_logs_in_with_is_mounted_from_the_users_home() -> None:
    own = replace(PROFILE, engine="trtllm", mounts=("~/models:/models",), args=(("tp_size", "2"),))
    assert [str(one) for one in plan_rank(0, own).mounts] == [
        "/home/milo/models:/models",
        "/home/milo/.ssh:/tmp/.ssh:ro",
    ]
    assert [str(one) for one in plan_rank(1, own).mounts] == [
        "/home/milo/models:/models",
        "/home/milo/.ssh/authorized_keys:/tmp/.ssh/authorized_keys:ro",
    ]
    assert plan_rank(0).mounts == ()
