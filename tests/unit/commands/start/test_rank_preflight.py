"""What is decided of the ranks of one model together: how many nodes, one image, whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.start.start_preflight import (
    PreflightInspection,
    assign_nodes_to_ranks,
    refuse_different_images,
    refuse_partial_stop,
    refuse_partially_running,
    refuse_wrong_node_count,
)
from sparkctl.errors import ImageNotFound, InvalidInput, OperationRefused
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.transport.docker.docker_responses import ImageInfo
from tests.unit.commands.start.test_start_preflight import make_inspection

TWO = Profile(name="big", engine="sglang", image="img:1", origin="big.yaml", shipped=False, nodes=2)
ONE = replace(TWO, nodes=1)
SPARKS = tuple(Node(name=NodeName(f"spark{number}"), host=f"10.0.0.{number}") for number in (1, 2, 3))
IMAGE = ImageInfo(id="sha256:aa", architecture="arm64", size=1)


@pytest.fixture
def plans(plan: LaunchPlan) -> list[LaunchPlan]:
    return [replace(plan, node=NodeName(name)) for name in ("spark1", "spark2")]


def make_rank_container(plan: LaunchPlan, run: str = "r1", nodes: str = "spark1,spark2") -> Container:
    labels = {
        ContainerLabel.INSTANCE: plan.instance,
        ContainerLabel.HASH: plan.profile_hash,
        ContainerLabel.RUN: run,
        ContainerLabel.NODES: nodes,
    }
    return Container(
        id="c" * 64,
        name=plan.container_name,
        image=plan.image,
        state=ContainerState.RUNNING,
        status="Up",
        created=0.0,
        labels=tuple(labels.items()),
    )


def make_rank_inspections(
    *there: Container | None, images: tuple[ImageInfo | None, ...] = (IMAGE, IMAGE)
) -> list[PreflightInspection]:
    found = [tuple(one for one in (each,) if one) for each in there or (None, None)]
    return [make_inspection(*each, image=image) for each, image in zip(found, images, strict=True)]


def test_without_names_all_nodes_are_taken_where_there_are_as_many() -> None:
    assert assign_nodes_to_ranks(TWO, (), SPARKS[:2]) == SPARKS[:2]
    assert assign_nodes_to_ranks(TWO, SPARKS[1::-1], SPARKS) == (SPARKS[1], SPARKS[0]), (
        "the order of ranks is the order given"
    )
    assert assign_nodes_to_ranks(replace(TWO, nodes=3), (), SPARKS) == SPARKS


@pytest.mark.parametrize(
    ("named", "configured", "words"),
    [
        ((), 3, "which of the 3"),
        ((), 1, "1 is configured"),
        ((0,), 2, "1 is named"),
        ((0, 1, 2), 3, "3 are named"),
    ],
)
def test_another_number_of_nodes_is_bad_input_that_says_what_to_give(
    named: tuple[int, ...], configured: int, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        assign_nodes_to_ranks(TWO, [SPARKS[at] for at in named], SPARKS[:configured])
    assert "--node spark1" in (refused.value.hint or "")


def test_a_profile_for_one_spark_is_not_started_on_two() -> None:
    refuse_wrong_node_count(ONE, SPARKS[:1])
    refuse_wrong_node_count(TWO, SPARKS[:2])
    with pytest.raises(InvalidInput, match="is for one Spark, but spark1 and spark2 are named"):
        refuse_wrong_node_count(ONE, SPARKS[:2])


def test_the_image_has_to_be_one_and_the_same_on_all(plans: list[LaunchPlan]) -> None:
    refuse_different_images(("big",), plans, make_rank_inspections())
    refuse_different_images(
        ("big",), plans, make_rank_inspections(images=(None, None))
    )  # each node's own refusal tells it better
    with pytest.raises(ImageNotFound, match="spark2 does not have the image") as missing:
        refuse_different_images(("big",), plans, make_rank_inspections(images=(IMAGE, None)))
    assert missing.value.hint == "sparkctl sync big --from spark1 --to spark2"
    with pytest.raises(ImageNotFound) as missing:
        refuse_different_images(("big",), plans, make_rank_inspections(images=(None, IMAGE)))
    assert missing.value.hint == "sparkctl sync big --from spark2 --to spark1"
    words = ("big", "--set", "image=other:1", "--set", "port=9001", "--set", "model.path=/models/big")
    with pytest.raises(ImageNotFound) as missing:
        refuse_different_images(words, plans, make_rank_inspections(images=(None, IMAGE)))
    asked = "sparkctl sync big --from spark2 --to spark1 --set image=other:1 --set model.path=/models/big"
    assert missing.value.hint == asked, "what is to be brought is what was to be started"
    other = replace(IMAGE, id="sha256:bb")
    with pytest.raises(OperationRefused, match=r"another image on spark2 \(bb\) than on spark1 \(aa\)"):
        refuse_different_images(("big",), plans, make_rank_inspections(images=(IMAGE, other)))


def test_what_has_the_same_content_is_the_same_image(plans: list[LaunchPlan]) -> None:
    pulled = [replace(IMAGE, id=name, content="c") for name in ("sha256:aa", "sha256:bb")]
    refuse_different_images(("big",), plans, make_rank_inspections(images=(pulled[0], pulled[1])))


def test_half_a_model_is_refused_with_what_mends_it(plans: list[LaunchPlan]) -> None:
    whole = make_rank_inspections(make_rank_container(plans[0]), make_rank_container(plans[1]))
    refuse_partially_running(plans, whole)
    refuse_partially_running(plans, make_rank_inspections(None, None))
    for there in ((make_rank_container(plans[0]), None), (None, make_rank_container(plans[1]))):
        with pytest.raises(OperationRefused, match="half of") as half:
            refuse_partially_running(plans, make_rank_inspections(*there))
        assert f"sparkctl down {plans[0].instance}" in (half.value.hint or "")
    with pytest.raises(OperationRefused, match="different starts"):
        refuse_partially_running(
            plans, make_rank_inspections(make_rank_container(plans[0]), make_rank_container(plans[1], run="r2"))
        )


def test_a_model_that_runs_the_other_way_round_is_named_as_it_runs(plans: list[LaunchPlan]) -> None:
    turned = make_rank_inspections(*(make_rank_container(plan, nodes="spark2,spark1") for plan in plans))
    with pytest.raises(OperationRefused, match="another order: spark2, spark1") as refused:
        refuse_partially_running(plans, turned)
    assert "--node spark2 --node spark1" in (refused.value.hint or "")


def test_a_part_of_a_model_is_not_stopped_alone(plans: list[LaunchPlan]) -> None:
    refuse_partial_stop(plans, [make_rank_container(plan) for plan in plans])
    refuse_partial_stop(plans[:1], [None])
    with pytest.raises(OperationRefused, match="has a rank on spark2, too") as refused:
        refuse_partial_stop(plans[:1], [make_rank_container(plans[0])])
    assert "sparkctl down" in (refused.value.hint or "")
