"""Every screen as it looks, from recordings and with a clock that stands still.

``pytest tests/tui/test_snapshots.py --snapshot-update`` takes what is there now for right: look at it first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.pictures.panel_scenes import SCENES, Driver, build_panel, enact_scene, when_there_are

SIZES = [(80, 24), (120, 40), (200, 50), (60, 15)]
PICTURES = Path(__file__).parents[2] / "screenshots"
SNAPSHOTS = Path(__file__).parent / "__snapshots__/test_snapshots"
Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The same hours, colours and home everywhere."""
    for name in ("NO_COLOR", "TEXTUAL_ANIMATIONS", "XDG_CONFIG_HOME", "SPARKCTL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", list(when_there_are()))
def test_a_screen_looks_as_it_did(name: str, size: tuple[int, int], tmp_path: Path, snap_compare: Compare) -> None:
    assert looks_right(name, size, tmp_path, snap_compare)


def test_without_colour_the_state_is_still_told(
    tmp_path: Path, snap_compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert looks_right("overview", (80, 24), tmp_path, snap_compare)


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_of_the_docs_is_what_the_panel_shows(picture: Path) -> None:
    taken = SNAPSHOTS / f"test_a_screen_looks_as_it_did[{picture.stem}].svg"
    again = "the panel looks otherwise now: python -m tests.tools.pictures makes the pictures anew"
    assert read_svg_words(picture) == read_svg_words(taken), again
    assert picture.with_suffix(".png").exists()


def test_there_is_a_picture_of_every_scene() -> None:
    assert {path.stem.rpartition("-")[0] for path in PICTURES.glob("*.svg")} == set(when_there_are())


def read_svg_words(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text(encoding="utf-8"))


def looks_right(name: str, size: tuple[int, int], state: Path, compare: Compare) -> bool:
    scene = SCENES[name]

    async def run(pilot: Driver) -> None:
        await enact_scene(pilot, scene)

    more: dict[str, Any] = {"terminal_size": size, "run_before": run}
    return compare(build_panel(scene, state), **more)
