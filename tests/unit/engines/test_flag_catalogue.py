"""Which catalogue is a profile's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparkctl.engines import engine_flags
from sparkctl.engines.engine_flags import CatalogueMatch


@pytest.mark.parametrize(
    ("engine", "image", "said", "asked", "expected"),
    [
        ("sglang", "scitrera/dgx-spark-sglang:0.5.12", None, None, ("0.5.12", CatalogueMatch.EXACT, "the image's tag")),
        ("sglang", "lmsysorg/sglang:v0.5.23-cu130", None, None, ("0.5.23", CatalogueMatch.EXACT, "the image's tag")),
        ("sglang", "host:5000/sglang", None, None, ("0.5.23", CatalogueMatch.NEWEST, "nothing")),
        ("sglang", "x/sglang:latest", None, None, ("0.5.23", CatalogueMatch.NEWEST, "nothing")),
        ("sglang", "x/sglang:0.5.14", None, None, ("0.5.14", CatalogueMatch.EXACT, "the image's tag")),
        ("sglang", "x/sglang:0.5.9", None, None, ("0.5.12", CatalogueMatch.NEAREST, "the image's tag")),
        ("sglang", "x/sglang:0.5.30", None, None, ("0.5.23", CatalogueMatch.NEAREST, "the image's tag")),
        ("sglang", "x/sglang:latest", "0.5.12", None, ("0.5.12", CatalogueMatch.EXACT, "engine_version")),
        ("sglang", "x/sglang:0.5.12", "0.5.12", "0.5.23", ("0.5.23", CatalogueMatch.EXACT, "--engine-version")),
        ("vllm", "vllm/vllm-openai:v0.19.1", None, None, ("0.19.1", CatalogueMatch.EXACT, "the image's tag")),
        ("vllm", "nvcr.io/nvidia/vllm:26.04-py3", None, None, ("0.33.0", CatalogueMatch.NEWEST, "nothing")),
        ("vllm", "x/vllm:cu12.9-0.32.0", None, None, ("0.32.0", CatalogueMatch.EXACT, "the image's tag")),
        ("vllm", "x/vllm:0.19.2rc1", None, None, ("0.19.1", CatalogueMatch.NEAREST, "the image's tag")),
        ("vllm", "x/vllm:v0.25.0", None, None, ("0.24.0", CatalogueMatch.NEAREST, "the image's tag")),
        ("vllm", "x/vllm:v0.28.1", None, None, ("0.28.0", CatalogueMatch.NEAREST, "the image's tag")),
        ("vllm", "x/vllm@sha256:0.19", None, None, ("0.33.0", CatalogueMatch.NEWEST, "nothing")),
    ],
)
def test_the_version_is_the_newest_known_that_is_not_newer(
    engine: str, image: str, said: str | None, asked: str | None, expected: tuple[str, CatalogueMatch, str]
) -> None:
    chosen = engine_flags.choose_catalogue(engine, image, said, asked)
    assert chosen is not None
    assert (chosen.catalogue.version, chosen.basis, chosen.said_by) == expected


def test_an_engine_without_a_catalogue_has_none() -> None:
    assert engine_flags.choose_catalogue("container", "x/y:0.5.12", declared=None) is None


def test_a_catalogue_on_a_base_holds_what_differs() -> None:
    """vLLM 0.30 has a flag that 0.31 dropped, lacks one that came with 0.31, and shares the others with it."""
    older, newer = engine_flags.load_catalogue("vllm", "0.30.0"), engine_flags.load_catalogue("vllm", "0.31.0")
    assert "--enable-mamba-fine-grained-prefix-cache" in older.by_name.keys() - newer.by_name.keys()
    assert len(newer.by_name.keys() - older.by_name.keys()) >= 10
    assert older.by_name["--max-model-len"] is newer.by_name["--max-model-len"]


def test_they_are_read_when_one_is_asked_for() -> None:
    code = (
        "import pathlib; read = pathlib.Path.read_text; seen = [];"
        "pathlib.Path.read_text = lambda self, *a: (seen.append(self.name), read(self, *a))[1];"
        "from sparkctl.engines import engine_flags as f; f.list_versions('vllm'); assert seen == [];"
        "f.choose_catalogue('vllm', 'x:0.19.1', None); print(seen)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['flags-0.19.1.json']"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_each_version_names_its_parsers(engine: str) -> None:
    for version in engine_flags.list_versions(engine):
        flags = engine_flags.load_catalogue(engine, version).by_name
        for flag in (flags["--tool-call-parser"], flags["--reasoning-parser"]):
            assert len(flag.values or flag.choices or ()) > 15, (version, flag.name)
