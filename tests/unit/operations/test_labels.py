"""Anybody on a node can set labels: what makes no sense there is not known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkctl.model.container import Container
from sparkctl.model.plan import Label
from sparkctl.operations.labels import expected_of


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
    assert expected_of(container(labels=((Label.EXPECTED, text),))) == expected
    assert expected_of(container(labels=())) is None
