"""Where a model may come from, as a profile says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.errors import InvalidInput
from sparkctl.model.missing_part import (
    DirectorySource,
    HubSource,
    MissingPart,
    PartKind,
    UrlSource,
    parse_model_source,
)
from sparkctl.model.node import NodeName
from sparkctl.profiles.profile_library import ProfileLibrary

SHA = "0" * 63 + "a"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("hf:Qwen/Qwen3-8B", HubSource("Qwen/Qwen3-8B")),
        ("hf:Qwen/Qwen3-8B@v1.0", HubSource("Qwen/Qwen3-8B", "v1.0")),
        ("https://host.example/a/b.gguf", UrlSource("https://host.example/a/b.gguf")),
        (f"https://host.example:8443/b.gguf#sha256:{SHA}", UrlSource("https://host.example:8443/b.gguf", SHA)),
        ("file:/mnt/nas/models/Qwen3-8B", DirectorySource("/mnt/nas/models/Qwen3-8B")),
    ],
)
def test_a_source_is_read_and_written_the_same(text: str, source: object) -> None:
    assert parse_model_source(text) == source
    assert str(parse_model_source(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "Qwen/Qwen3-8B", "hf:Qwen", "http://host/a.gguf", "https://me:secret@host/a.gguf", "https://host/", "https://host/dir/",
        "https://host/a.gguf#sha256:12", "file:models", "file:/", "file:/mnt/../etc", "file:/a:/b", "ftp://host/x", "https://host/a b",
    ],
)  # fmt: skip
def test_what_is_no_source_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is not a source; write for example"):
        parse_model_source(text)


@pytest.mark.parametrize(
    "text", ["https://cdn.example.org/a.gguf?X-Signature=s3cr3t", "https://h/?a/b?sig=s3cr3t#sha256:0"]
)
def test_an_address_with_a_signature_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="may hold a signature") as caught:
        parse_model_source(text)
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(InvalidInput, match="may hold a signature"):
        ProfileLibrary(Path("/nonexistent")).load_profile("qwen36", overrides=(f"model.source={text}",))


def test_how_long_a_part_takes_is_said_by_the_speed_of_earlier_pulls() -> None:
    part = MissingPart(
        kind=PartKind.MODEL,
        node=NodeName("spark1"),
        name="/m",
        reason="is not there",
        source="hf:a/b",
        size=20 << 30,
        seconds=90.0,
    )
    assert "20.0 GiB, about 1 min 30 s at the speed of earlier pulls" in part.sentence
