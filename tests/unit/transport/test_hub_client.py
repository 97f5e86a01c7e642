"""What the Hub tells of a model before a byte of its weights is fetched: sizes, types of numbers, config.json."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sparkctl.errors import InvalidInput, OperationRefused, SparkctlError
from sparkctl.model.missing_part import HubSource
from sparkctl.transport.hub_client import HubClient, HubUnreachable
from tests.unit.node.hub_stand_in import HubStandIn, run_hub

REPOSITORY = "acme/tiny"
SOURCE = HubSource(REPOSITORY)


def make_safetensors(tensors: dict[str, tuple[str, int]], padding: int = 0) -> bytes:
    header, at = {}, 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + bytes(at)


@pytest.fixture
def hub() -> HubStandIn:
    one = HubStandIn()
    one.files[REPOSITORY] = {
        "config.json": b'{\n"num_hidden_layers": 2}', "tokenizer.json": b"{}", "original/x.safetensors": bytes(50_000),
        "model-00001-of-00002.safetensors": make_safetensors({"a": ("F8_E4M3", 900_000)}),
        "model-00002-of-00002.safetensors": make_safetensors({"mtp.b": ("BF16", 300_000)}, padding=300_000),
    }  # fmt: skip
    return one


@pytest.fixture
def url(hub: HubStandIn) -> Iterator[str]:
    with run_hub(hub) as found:
        yield found


async def test_a_model_is_known_before_its_weights_are_fetched(hub: HubStandIn, url: str) -> None:
    client = HubClient({"HF_ENDPOINT": url})
    model = await client.read_model(SOURCE, (), ())
    files = {name: len(data) for name, data in hub.files[REPOSITORY].items() if not name.startswith("original")}
    assert dict(model.files) == files
    assert model.size == sum(files.values())
    assert model.number_types == (("F8_E4M3", 900_000), ("BF16", 300_000))
    found = model.build_checkpoint("/home/milo/models/tiny")
    assert (found.is_there, found.config, found.has_draft_layers) == (False, '{"num_hidden_layers": 2}', True)
    assert found.origin == "hf:acme/tiny (F8_E4M3 75%, BF16 25%)"
    assert {name for name, _ in found.files} == {name for name in files if name.startswith("model-")}
    ranges = [wanted for _, path, wanted in hub.log if path.startswith("/cdn")]
    assert None not in ranges, "no file of weights is asked for whole"
    before = len(hub.log)
    await client.read_model(SOURCE, (), ())
    assert len(hub.log) == before, "the second node asks nobody"


async def test_a_header_that_is_none_leaves_the_types_unknown(hub: HubStandIn, url: str) -> None:
    hub.files[REPOSITORY]["model-00001-of-00002.safetensors"] = b"\xff" * 1000
    model = await HubClient({"HF_ENDPOINT": url}).read_model(SOURCE, (), ())
    assert (model.number_types, model.has_draft_layers) == ((), None)
    assert model.size > 600_000


@pytest.mark.parametrize(
    ("repository", "environ", "error", "words"),
    [
        ("acme/none", {}, OperationRefused, "the Hub has no acme/none"),
        ("acme/gated", {}, OperationRefused, "hf:acme/gated is gated"),
        (
            "acme/gated",
            {"HF_TOKEN": "hf_wrong"},
            OperationRefused,
            "hf:acme/gated is gated.*Access to model acme/gated",
        ),
        (REPOSITORY, {"HF_TOKEN": "hf_old"}, OperationRefused, "the Hub refuses your token .Invalid credentials"),
        ("acme/sizeless", {}, HubUnreachable, "does not report the size of m.safetensors"),
        ("acme/several", {}, OperationRefused, "it has several quantizations, name one"),
        (REPOSITORY, {"HF_HUB_OFFLINE": "1"}, HubUnreachable, "HF_HUB_OFFLINE is set"),
        (REPOSITORY, {"HF_ENDPOINT": "http://127.0.0.1:9"}, HubUnreachable, "does not answer this computer"),
        (REPOSITORY, {"HF_ENDPOINT": "https://me:secret@hub"}, InvalidInput, "HF_ENDPOINT has a password in it"),
        (REPOSITORY, {"HF_ENDPOINT": "file:///etc/passwd"}, InvalidInput, "HF_ENDPOINT is not an address"),
    ],
)
async def test_what_cannot_be_read_is_an_error_and_not_zero(
    hub: HubStandIn, url: str, repository: str, environ: dict[str, str], error: type[SparkctlError], words: str
) -> None:
    hub.files["acme/gated"] = hub.files[REPOSITORY]
    hub.gated.add("acme/gated")
    hub.old_tokens.add("hf_old")
    hub.files["acme/sizeless"] = {"m.safetensors": b"x" * 10}
    hub.sizeless.add("m.safetensors")
    hub.files["acme/several"] = {"a-Q4_K_M.gguf": b"x", "a-Q8_0.gguf": b"x"}
    with pytest.raises(error, match=words):
        await HubClient({"HF_ENDPOINT": url, **environ}).read_model(HubSource(repository), (), ())


async def test_a_gated_model_is_read_with_the_token(hub: HubStandIn, url: str) -> None:
    hub.gated.add(REPOSITORY)
    model = await HubClient({"HF_ENDPOINT": url, "HF_TOKEN": "hf_right"}).read_model(SOURCE, (), ())
    assert model.config is not None


ASK_AND_LEAVE = """
import asyncio, sys
from sparkctl.model.missing_part import HubSource
from sparkctl.transport.hub_client import HubClient

async def ask():
    asking = asyncio.ensure_future(HubClient({"HF_ENDPOINT": sys.argv[1]}).measure_model(HubSource("acme/tiny"), (), ()))
    await asyncio.to_thread(sys.stdin.readline)
    asking.cancel()
    await asyncio.wait([asking])
    print(asking.cancelled())

asyncio.run(ask())
"""


def test_a_hub_that_does_not_answer_does_not_hold_whoever_leaves() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = [sys.executable, "-c", ASK_AND_LEAVE, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                left = time.monotonic()
                out, err = process.communicate("\n", timeout=60)
                assert (process.returncode, out, err) == (0, "True\n", "")
                assert time.monotonic() - left < 10, "the request itself waits 15 s"
