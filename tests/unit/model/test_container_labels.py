"""Anybody on a node can set labels: what makes no sense there is not known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkctl.model.container import Container
from sparkctl.model.instance import parse_rank_position
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.profiles.container_labels import (
    parse_expected_memory_label,
    parse_rank_label,
    parse_rank_nodes_label,
    parse_start_id_label,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("103079215104", 96 << 30),
        ("", None),
        ("0", None),
        ("-1", None),
        ("96GiB", None),
        ("1" * 400, None),
        ("٣", None),
    ],
)
def test_expected_memory_is_a_number_of_bytes(
    container: Callable[..., Container], text: str, expected: int | None
) -> None:
    assert parse_expected_memory_label(container(labels=((ContainerLabel.EXPECTED, text),))) == expected
    assert parse_expected_memory_label(container(labels=())) is None


@pytest.mark.parametrize(
    ("text", "rank"),
    [("0/2", "0/2"), ("3/4", "3/4"), ("01/2", "1/2"), ("2/2", None), ("0/1", None), ("-1/2", None), ("0/2\n", None),
     ("٠/2", None), ("0/999", None), ("", None)],
)  # fmt: skip
def test_a_rank_is_one_of_several(container: Callable[..., Container], text: str, rank: str | None) -> None:
    assert parse_rank_label(container(labels=((ContainerLabel.RANK, text),))) == rank


def test_where_the_ranks_are_and_of_which_start_is_believed_only_where_it_is_spelled_as_we_do(
    container: Callable[..., Container],
) -> None:
    made = container(labels=((ContainerLabel.NODES, "spark1,spark2"), (ContainerLabel.RUN, "a1b2c3")))
    assert parse_rank_nodes_label(made) == ("spark1", "spark2")
    assert parse_start_id_label(made) == "a1b2c3"
    odd = container(labels=((ContainerLabel.NODES, "spark1,\x1b[2J"), (ContainerLabel.RUN, "[/INST]")))
    assert parse_rank_nodes_label(odd) == ()
    assert parse_start_id_label(odd) is None


@pytest.mark.parametrize(
    ("text", "position"),
    [("0/2", (0, 2)), ("1/2", (1, 2)), ("0/1", (0, 1)), (None, None), ("", None), ("head", None), ("2/2", None), ("1/", None),
     ("/2", None), ("-1/2", None), ("٠/٢", None), ("²/3", None), ("0" * 5000 + "/2", None), ("0/5000", None)],
)  # fmt: skip
def test_a_rank_that_is_no_number_is_not_known(text: str | None, position: tuple[int, int] | None) -> None:
    assert parse_rank_position(text) == position
