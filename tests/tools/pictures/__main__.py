"""Makes the pictures in ``screenshots/`` anew: ``python -m tests.tools.pictures [NAME ...]``.

It wants Debian's fonts-dejavu-core and ``pip install -e '.[test,pictures]'``.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import resvg_py
from PIL import Image

from tests.tools.pictures.panel_scenes import Scene, build_panel, enact_scene, when_there_are

os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}  # whatever terminal this is started from
PICTURES = Path(__file__).parents[3] / "screenshots"
FONTS = "/usr/share/fonts/truetype/dejavu"
FONT = "DejaVu Sans Mono"
SIZES = {"overview": ((120, 40), (80, 24))}
SIZE = ((120, 40),)
# This font is narrower and lower than the one that Textual draws for: as large as a cell is wide, lines as high as its boxes.
EM = 20.26
CLOSER = 0.95
COLOURS = 96


async def svg_of(scene: Scene, size: tuple[int, int]) -> str:
    """Return a scene as the terminal of this size shows it."""
    with tempfile.TemporaryDirectory() as state:
        os.environ["HOME"] = state
        async with build_panel(scene, Path(state)).run_test(size=size) as pilot:
            await enact_scene(pilot, scene)
            return make_svg_self_contained(pilot.app.export_screenshot(simplify=True))


def make_svg_self_contained(svg: str) -> str:
    """Return the picture in a font that every Debian has, and without anything that would be loaded from elsewhere."""
    svg = re.sub(r"@font-face\s*{[^}]*}\s*", "", svg).replace("Fira Code", FONT)
    svg = svg.replace("font-size: 20px", f"font-size: {EM}px")
    svg = re.sub(r'\b(y|height)="([\d.]+)"', lambda found: f'{found[1]}="{float(found[2]) * CLOSER:.2f}"', svg)
    return re.sub(
        r'viewBox="0 0 (\S+) ([\d.]+)"', lambda found: f'viewBox="0 0 {found[1]} {float(found[2]) * CLOSER:.1f}"', svg
    )


def make_picture(name: str, scene: Scene) -> None:
    """Write the SVG and the PNG of a scene in each of its sizes."""
    for columns, lines in SIZES.get(name, SIZE):
        svg = asyncio.run(svg_of(scene, (columns, lines)))
        stem = f"{name}-{columns}x{lines}"
        (PICTURES / f"{stem}.svg").write_text(svg, encoding="utf-8")
        png = reduce_colours(bytes(resvg_py.svg_to_bytes(svg_string=svg, font_dirs=[FONTS], skip_system_fonts=True)))
        (PICTURES / f"{stem}.png").write_bytes(png)
        print(stem, f"{len(svg) >> 10} KiB", f"{len(png) >> 10} KiB")


def reduce_colours(png: bytes) -> bytes:
    """Return the picture with the few colours that a terminal has."""
    made = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.quantize(COLOURS, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
    return made.getvalue()


def main(names: Sequence[str]) -> None:
    """Make these, or all whose screens there are."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in ("NO_COLOR", "XDG_CONFIG_HOME", "SPARKCTL_CONFIG"):
        os.environ.pop(name, None)
    PICTURES.mkdir(exist_ok=True)
    for name, scene in when_there_are().items():
        if not names or name in names:
            make_picture(name, scene)


if __name__ == "__main__":
    main(sys.argv[1:])
