"""What is decided before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkctl.commands.start.missing_parts import describe_way_to_get, find_missing_parts
from sparkctl.commands.start.start_preflight import (
    PreflightInspection,
    decide_start,
    refuse_without_docker,
)
from sparkctl.errors import (
    ContainerNameInUse,
    DiskFull,
    DockerPermissionDenied,
    GpuRuntimeMissing,
    OperationRefused,
    PortInUse,
)
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan, Mount
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import GIB, MIB
from sparkctl.node.node_inspection import DockerAccess, NodeDisk, NodeInspection
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.docker.docker_responses import DockerInfo, ImageInfo

Make = Callable[..., Container]
ROOT = "/var/lib/docker"
AGAIN = "sparkctl up qwen36 --node spark1"
ACCESS = DockerAccess(socket=True, access=True, member=True, hook=True, toolkit=True, cdi=False)
MEMORY = MemoryReading(
    total=120 * GIB, available=100 * GIB, free=60 * GIB, page_cache=38 * GIB, swap_total=16 * GIB, swap_free=16 * GIB
)


def make_inspection(*containers: Container, **changes: object) -> PreflightInspection:
    inspection = NodeInspection(
        memory=MEMORY, docker=ACCESS, listening=frozenset({22}), resident={}, pids={}, gpu={},
        disks=(NodeDisk(ROOT, 3600 * GIB, 900 * GIB),),
    )  # fmt: skip
    return PreflightInspection(
        node_inspection=replace(
            inspection, **{k: v for k, v in changes.items() if k in NodeInspection.__dataclass_fields__}
        ),
        containers=containers,
        engine=changes.get("engine", make_docker_info()),
        image=changes.get("image", ImageInfo(id="sha256:1", architecture="arm64", size=1)),
    )


def make_docker_info(**changes: object) -> DockerInfo:
    info = DockerInfo(
        server_version="29.2.1", api_version="1.51", architecture="aarch64", root_dir=ROOT, storage_driver="overlay2",
        runtimes=("runc",),
    )  # fmt: skip
    return replace(info, **changes)


def test_an_empty_node_is_a_plain_start(plan: LaunchPlan) -> None:
    decision = decide_start(plan, make_inspection(), replace=False, again=AGAIN)
    assert (decision.attach, decision.stop, decision.sweep, decision.warnings) == (None, None, (), ())


def test_the_same_hash_is_watched_and_another_wants_replace(plan: LaunchPlan, container: Make) -> None:
    running = container()
    assert decide_start(plan, make_inspection(running), replace=False, again=AGAIN).attach is running
    other = container(
        labels=(
            (ContainerLabel.INSTANCE, "qwen36"),
            (ContainerLabel.HASH, "fedcba987654"),
            (ContainerLabel.PORT, "8003"),
        )
    )
    with pytest.raises(OperationRefused, match="another version") as refused:
        decide_start(plan, make_inspection(other), replace=False, again=AGAIN)
    assert "--replace" in (refused.value.hint or "")
    with pytest.raises(OperationRefused, match=r"with other settings: args.tp: 1 -> 2$"):
        decide_start(
            plan, make_inspection(other), replace=False, again=AGAIN, describe_changes=lambda _: "args.tp: 1 -> 2"
        )
    # the port it holds is no obstacle: it is the one that goes
    assert (
        decide_start(plan, make_inspection(other, listening=frozenset({8003})), replace=True, again=AGAIN).stop is other
    )


def test_an_ended_container_is_removed(plan: LaunchPlan, container: Make) -> None:
    dead = container(state=ContainerState.EXITED)
    assert decide_start(plan, make_inspection(dead), replace=False, again=AGAIN).sweep == (dead,)


def test_a_foreign_container_with_the_name_is_in_the_way(plan: LaunchPlan, container: Make) -> None:
    foreign = container(labels=())
    with pytest.raises(ContainerNameInUse, match="sparkctl did not make it"):
        decide_start(plan, make_inspection(foreign), replace=True, again=AGAIN)


def test_a_busy_port_names_its_holder(plan: LaunchPlan, container: Make) -> None:
    other = container(name="vllm-other", labels=((ContainerLabel.INSTANCE, "other"), (ContainerLabel.PORT, "8003")))
    with pytest.raises(PortInUse, match="vllm-other"):
        decide_start(plan, make_inspection(other, listening=frozenset({8003})), replace=False, again=AGAIN)
    with pytest.raises(PortInUse, match="another process"):
        decide_start(plan, make_inspection(listening=frozenset({8003})), replace=False, again=AGAIN)
    decide_start(plan, make_inspection(listening=None), replace=False, again=AGAIN)  # not known is not busy


def test_no_image_and_the_wrong_image(plan: LaunchPlan) -> None:
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile("qwen36")

    def describe(again: str, image: ImageInfo | None = None) -> tuple[str, str]:
        (part,) = find_missing_parts(profile, plan, image=image, engine=make_docker_info(), models=())
        return part.sentence, describe_way_to_get(part, plan, again)

    assert describe(AGAIN) == (f"the image {plan.image} is not there on {plan.node}", f"{AGAIN} --pull")
    switch = f"sparkctl switch {plan.profile} --node a --set image=x:1 --node b --keep-going"
    assert describe(switch)[1] == f"sparkctl pull {plan.profile} --node a --set image=x:1 --node b"
    of_file = describe("sparkctl switch ./out.yaml --set x=1")[1]
    assert of_file == f"sparkctl pull ./out.yaml --node {plan.node} --set x=1", "as it was typed"
    assert "amd64" in describe(AGAIN, ImageInfo(id="x", architecture="amd64", size=1))[0]


def test_no_gpu_toolkit_is_refused_only_on_evidence(plan: LaunchPlan) -> None:
    bare = replace(ACCESS, hook=False, toolkit=False)
    with pytest.raises(GpuRuntimeMissing):
        decide_start(plan, make_inspection(docker=bare), replace=False, again=AGAIN)
    decide_start(plan, make_inspection(docker=None), replace=False, again=AGAIN)
    decide_start(
        plan,
        make_inspection(docker=bare, engine=make_docker_info(runtimes=("nvidia", "runc"))),
        replace=False,
        again=AGAIN,
    )
    decide_start(replace(plan, gpus=None), make_inspection(docker=bare), replace=False, again=AGAIN)


def test_a_full_disk_is_refused_and_a_scarce_one_warned_of(plan: LaunchPlan) -> None:
    with pytest.raises(DiskFull):
        decide_start(plan, make_inspection(disks=(NodeDisk(ROOT, GIB, 3 * MIB),)), replace=False, again=AGAIN)
    assert decide_start(
        plan, make_inspection(disks=(NodeDisk(ROOT, GIB, 900 * MIB),)), replace=False, again=AGAIN
    ).warnings
    assert not decide_start(
        plan, make_inspection(disks=(NodeDisk(ROOT, None, None),)), replace=False, again=AGAIN
    ).warnings


def test_a_missing_mount_is_warned_of(plan: LaunchPlan) -> None:
    mounted = replace(plan, mounts=(Mount("/home/milo/models", "/models"),))
    warnings = decide_start(
        mounted, make_inspection(paths=(("/home/milo/models", False),)), replace=False, again=AGAIN
    ).warnings
    assert "/home/milo/models does not exist" in warnings[0][0]


def test_a_mount_that_cannot_be_seen_is_not_called_missing(plan: LaunchPlan) -> None:
    mounted = replace(plan, mounts=(Mount("/root/models", "/models"), Mount("/root/models", "/again")))
    (warning,) = decide_start(
        mounted, make_inspection(paths=(("/root/models", None),)), replace=False, again=AGAIN
    ).warnings
    assert warning[0].startswith("cannot tell whether /root/models exists on")
    assert "does not exist" not in warning[0]


def test_not_in_group_docker_and_in_it_since_the_login() -> None:
    with pytest.raises(DockerPermissionDenied, match="not in group") as denied:
        refuse_without_docker("spark1", NodeInspection(docker=replace(ACCESS, access=False, member=False)))
    assert "usermod -aG docker" in (denied.value.hint or "")
    with pytest.raises(DockerPermissionDenied, match="older than that"):
        refuse_without_docker("spark1", NodeInspection(docker=replace(ACCESS, access=False)))
    refuse_without_docker("spark1", NodeInspection())
