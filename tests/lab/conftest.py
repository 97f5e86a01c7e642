"""Fixtures of the lab tests: two real nodes per worker, clean for every test, and the real command to run against them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import BY_HAND, Lab, hold_lab, why_not
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import BedError
from tests.lab.support.clear_nodes import clear_nodes
from tests.lab.support.command_outcomes import CI
from tests.lab.support.sparkctl_process import Sparkctl

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything here as lab, and skip it with the reason where the lab cannot run.

    In CI nothing is skipped: there a lab that cannot run is a failure.
    """
    reason = why_not()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)
            if reason and not CI:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Both nodes, up. What was brought up by hand, or with SPARKCTL_LAB_KEEP=1, is used and left up."""
    if reason := why_not():
        pytest.fail(f"CI is set and the lab cannot run: {reason}", pytrace=False)
    with hold_lab():
        keep = bool(os.environ.get("SPARKCTL_LAB_KEEP")) or BY_HAND.exists()
        bed = Lab()
        try:
            if not keep:
                bed.down()
            bed.up()
            yield bed
        except BedError as error:
            keep = False
            pytest.fail(f"the lab did not come up: {error}", pytrace=False)
        finally:  # after Ctrl-C, too
            if not keep:
                bed.down()


@pytest.fixture
def clean_nodes(lab: Lab) -> Lab:
    """The lab without a container, and without what a switch that was left has written."""
    clear_nodes(lab)
    return lab


@pytest.fixture
def faults(clean_nodes: Lab) -> Iterator[Faults]:
    """Ways to break a node; mended after the test."""
    broken = Faults()
    yield broken
    broken.undo()


@pytest.fixture
def spark1(clean_nodes: Lab) -> LabNode:
    """The node whose Docker accepts --gpus."""
    return clean_nodes.nodes["spark1"]


@pytest.fixture
def spark2(clean_nodes: Lab) -> LabNode:
    """The node whose Docker refuses --gpus."""
    return clean_nodes.nodes["spark2"]


@pytest.fixture
def sparkctl(clean_nodes: Lab, tmp_path: Path) -> Iterator[Sparkctl]:
    """The real command, with a home, keys and a config of its own that knows both nodes."""
    command = Sparkctl(tmp_path)
    yield command
    command.end_all()
