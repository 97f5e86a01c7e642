"""What is decided of the ranks of one model together: how many nodes, one image, whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.errors import ImageMissing, InvalidInput, Refused
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label, LaunchPlan
from sparkctl.model.profile import Profile
from sparkctl.operations.starting.preflight import Scene
from sparkctl.operations.starting.ranks_preflight import (
    nodes_for,
    refuse_count,
    refuse_half,
    refuse_part,
    refuse_unequal_images,
)
from sparkctl.wire.docker_json import ImageInfo
from tests.unit.operations.test_preflight import scene

TWO = Profile(name="big", engine="sglang", image="img:1", origin="big.yaml", shipped=False, nodes=2)
ONE = replace(TWO, nodes=1)
SPARKS = tuple(Node(NodeName(f"spark{number}"), f"10.0.0.{number}") for number in (1, 2, 3))
IMAGE = ImageInfo("sha256:aa", "arm64", 1)


@pytest.fixture
def plans(plan: LaunchPlan) -> list[LaunchPlan]:
    return [replace(plan, node=NodeName(name)) for name in ("spark1", "spark2")]


def rank(plan: LaunchPlan, run: str = "r1", nodes: str = "spark1,spark2") -> Container:
    labels = {Label.INSTANCE: plan.instance, Label.HASH: plan.profile_hash, Label.RUN: run, Label.NODES: nodes}
    return Container(
        "c" * 64, plan.container_name, plan.image, ContainerState.RUNNING, "Up", 0.0, tuple(labels.items())
    )


def scenes(*there: Container | None, images: tuple[ImageInfo | None, ...] = (IMAGE, IMAGE)) -> list[Scene]:
    found = [tuple(one for one in (each,) if one) for each in there or (None, None)]
    return [scene(*each, image=image) for each, image in zip(found, images, strict=True)]


def test_without_names_all_nodes_are_taken_where_there_are_as_many() -> None:
    assert nodes_for(TWO, (), SPARKS[:2]) == SPARKS[:2]
    assert nodes_for(TWO, SPARKS[1::-1], SPARKS) == (SPARKS[1], SPARKS[0]), "the order of ranks is the order given"
    assert nodes_for(replace(TWO, nodes=3), (), SPARKS) == SPARKS


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
        nodes_for(TWO, [SPARKS[at] for at in named], SPARKS[:configured])
    assert "--node spark1" in (refused.value.hint or "")


def test_a_profile_for_one_spark_is_not_started_on_two() -> None:
    refuse_count(ONE, SPARKS[:1])
    refuse_count(TWO, SPARKS[:2])
    with pytest.raises(InvalidInput, match="is for one Spark, and spark1 and spark2 are named"):
        refuse_count(ONE, SPARKS[:2])


def test_the_image_has_to_be_one_and_the_same_on_all(plans: list[LaunchPlan]) -> None:
    refuse_unequal_images(("big",), plans, scenes())
    refuse_unequal_images(("big",), plans, scenes(images=(None, None)))  # each node's own refusal tells it better
    with pytest.raises(ImageMissing, match="spark2 does not have the image") as missing:
        refuse_unequal_images(("big",), plans, scenes(images=(IMAGE, None)))
    assert missing.value.hint == "sparkctl sync big --from spark1 --to spark2"
    with pytest.raises(ImageMissing) as missing:
        refuse_unequal_images(("big",), plans, scenes(images=(None, IMAGE)))
    assert missing.value.hint == "sparkctl sync big --from spark2 --to spark1"
    words = ("big", "--set", "image=other:1", "--set", "port=9001", "--set", "model.path=/models/big")
    with pytest.raises(ImageMissing) as missing:
        refuse_unequal_images(words, plans, scenes(images=(None, IMAGE)))
    asked = "sparkctl sync big --from spark2 --to spark1 --set image=other:1 --set model.path=/models/big"
    assert missing.value.hint == asked, "what is to be brought is what was to be started"
    other = replace(IMAGE, id="sha256:bb")
    with pytest.raises(Refused, match=r"another image on spark2 \(bb\) than on spark1 \(aa\)"):
        refuse_unequal_images(("big",), plans, scenes(images=(IMAGE, other)))


def test_what_has_the_same_content_is_the_same_image(plans: list[LaunchPlan]) -> None:
    pulled = [replace(IMAGE, id=name, content="c") for name in ("sha256:aa", "sha256:bb")]
    refuse_unequal_images(("big",), plans, scenes(images=(pulled[0], pulled[1])))


def test_half_a_model_is_refused_with_what_mends_it(plans: list[LaunchPlan]) -> None:
    whole = scenes(rank(plans[0]), rank(plans[1]))
    refuse_half(plans, whole)
    refuse_half(plans, scenes(None, None))
    for there in ((rank(plans[0]), None), (None, rank(plans[1]))):
        with pytest.raises(Refused, match="half of") as half:
            refuse_half(plans, scenes(*there))
        assert f"sparkctl down {plans[0].instance}" in (half.value.hint or "")
    with pytest.raises(Refused, match="different starts"):
        refuse_half(plans, scenes(rank(plans[0]), rank(plans[1], run="r2")))


def test_a_model_that_runs_the_other_way_round_is_named_as_it_runs(plans: list[LaunchPlan]) -> None:
    turned = scenes(*(rank(plan, nodes="spark2,spark1") for plan in plans))
    with pytest.raises(Refused, match="another order: spark2, spark1") as refused:
        refuse_half(plans, turned)
    assert "--node spark2 --node spark1" in (refused.value.hint or "")


def test_a_part_of_a_model_is_not_stopped_alone(plans: list[LaunchPlan]) -> None:
    refuse_part(plans, [rank(plan) for plan in plans])
    refuse_part(plans[:1], [None])
    with pytest.raises(Refused, match="has a rank on spark2, too") as refused:
        refuse_part(plans[:1], [rank(plans[0])])
    assert "sparkctl down" in (refused.value.hint or "")
