"""What `models` and `images` print on a pipe and on a narrow terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparkctl.cli.verbs.stored import _format_images, _format_models
from sparkctl.commands.images import ImageUse, NodeImages
from sparkctl.commands.stored_models import NodeModels, StoredModel
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import GIB
from sparkctl.transport.docker.docker_responses import StoredImage
from sparkctl.views.text.styled_text import TextRow, TextStyle, join_text, measure_text

NODE, NOW = NodeName("spark1"), 1_770_000_000.0
HUB = "/home/milo/.cache/huggingface/hub"
CODER = "models--saricles--Qwen3-Coder-Next-NVFP4-GB10"
IMAGE = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest"
USERS = ("qwen3-coder-next-dflash", "qwen35-35b-dflash", "qwen35-35b-mtp")


def make_lists() -> tuple[list[NodeModels], list[NodeImages]]:
    coder = StoredModel(
        node=NODE, place=f"{HUB}/{CODER}", size=40 * GIB, used=NOW - 86400, is_whole=True, profiles=USERS
    )
    image = StoredImage(
        id="sha256:ab", names=(IMAGE,), digests=(), size=20 * GIB, created=NOW - 86400 * 179, built_from=None
    )
    used = ImageUse(image=image, last_used=NOW - 18000, profiles=USERS, containers=())
    return [NodeModels(node=NODE, models=(coder,))], [NodeImages(name=NODE, images=(used,))]


def to_lines(rows: Sequence[TextRow | str]) -> list[str]:
    return [row if isinstance(row, str) else join_text(row) for row in rows]


def test_what_is_incomplete_stands_out() -> None:
    (node,), _ = make_lists()
    torn = replace(node, models=(replace(node.models[0], is_whole=False, faults=("a shard is missing",)),))
    for width in (None, 60):
        shown = _format_models([torn], NOW, width)
        assert shown[0][0].tone is TextStyle.STRONG  # type: ignore[union-attr]
        assert shown[-1][0].tone is TextStyle.ATTENTION  # type: ignore[union-attr]


def test_a_pipe_gets_a_row_for_each() -> None:
    models, images = make_lists()
    assert [len(_format_models(models, NOW, width=None)), len(_format_images(images, NOW, width=None))] == [2, 3]
    assert to_lines(_format_images(images, NOW, width=None))[1].split("  ")[-1] == "used by"


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_gets_whole_words_and_cells(width: int) -> None:
    models, images = make_lists()
    rows = to_lines([*_format_models(models, NOW, width), *_format_images(images, NOW, width)])
    assert max(map(measure_text, rows)) <= width
    text = "\n".join(rows)
    for words in (f"{HUB}/\n    {CODER}\n", "used 1 d ago", IMAGE, "created 179 d ago", "last used 5 h ago", *USERS):
        assert words in text
