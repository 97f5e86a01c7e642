"""One truth about a Spark's memory: the figures stand in one module, and every sentence about them agrees with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkctl.model import node
from sparkctl.model.text.units import GIB, format_gib, format_size
from sparkctl.profiles.profile_library import ProfileLibrary

ROOT = Path(node.__file__).parents[2]
TOTALS = {f"{size / GIB:.1f}" for size in (node.TOTAL_BYTES, node.LEAST_TOTAL_BYTES)}
# A size of all memory: 118 to 129 GiB or GB, or such a number of KiB or bytes.
ALL_MEMORY = re.compile(
    r"\b(?P<size>11[89](?:\.\d+)?|12\d(?:\.\d+)?) ?Gi?B\b|\b12[78]_?[0-9]{3}_?[0-9]{3}(?:_?[0-9]{3})?\b"
)


def list_sizes(path: Path) -> set[str]:
    return {match["size"] or match[0] for match in ALL_MEMORY.finditer(path.read_text())}


def test_the_code_has_no_other_figure() -> None:
    files = [path for ending in ("py", "txt", "sh") for path in (ROOT / "sparkctl").rglob(f"*.{ending}")]
    files = [path for path in files if path.name != "book.txt"]  # a text of prompts
    assert len(files) > 300
    own = Path(node.__file__)
    others = {str(path): sizes for path in files if path != own and (sizes := list_sizes(path) - TOTALS - {"128"})}
    assert others == {}


def test_docs_and_profiles_say_the_figures_of_the_code() -> None:
    texts = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "profiles").glob("*.yaml")]
    said = {path.name: sizes for path in texts if (sizes := list_sizes(path) - TOTALS - {"128"})}
    # a post's own words, and weights of a model
    assert said == {"memory-fit.md": {"119", "119.2"}, "trtllm-qwen3-235b.yaml": {"124"}}


@pytest.mark.parametrize("name", ProfileLibrary().list_names())
def test_a_vllm_profile_expects_its_share_of_all_memory(name: str) -> None:
    profile = ProfileLibrary().load_profile(name)
    share = dict(profile.args).get("gpu-memory-utilization")
    if profile.engine != "vllm" or not isinstance(share, str) or profile.expected_memory is None:
        pytest.skip("no share of all memory")
    claimed = float(share) * node.TOTAL_BYTES
    assert -GIB / 4 <= profile.expected_memory - claimed <= GIB  # whole GiB


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "—"), (int(98.4 * GIB), "98.4 GiB"), (1023 * GIB, "1023.0 GiB"), (int(2273.8 * GIB), "2.2 TiB")],
)
def test_a_size_of_a_disk_is_told_in_tib(count: int | None, words: str) -> None:
    assert format_gib(count) == words
    assert count is None or format_size(count) == words
