"""The shell scripts of a download that runs on the node itself, run here: one begins it, and nobody takes it away."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.pull import model_download
from sparkctl.commands.start.missing_parts import read_missing_from_hub
from sparkctl.model.missing_part import MODEL_KINDS, MissingPart
from sparkctl.model.node import NodeName
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.transport.hub_client import HubClient
from tests.unit.node.hub_stand_in import HubStandIn, run_hub

PROGRAM = b"import time; print('{}', flush=True); time.sleep(60)"


@pytest.fixture
def folder() -> Iterator[str]:
    name = f"sparkctl-pull-test-{uuid.uuid4().hex[:8]}"
    yield name
    run(model_download._STOP_ON_NODE, name)


def run(script: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", script, "test", *words], input=stdin, capture_output=True, timeout=30, check=False
    )


def start_at_once(folder: str, count: int) -> list[subprocess.Popen[bytes]]:
    words = ["sh", "-c", model_download._START_ON_NODE, "test", folder, "{}", "hf:acme/tiny", "tiny", sys.executable]
    begun = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(count)
    ]
    for one in begun:
        assert one.stdin is not None
        one.stdin.write(PROGRAM)
        one.stdin.close()
    return begun


def test_of_several_starts_at_the_same_moment_one_begins_and_the_others_are_told(folder: str) -> None:
    begun = start_at_once(folder, 6)
    assert sorted(one.wait(30) for one in begun) == [0] + [model_download._RUNS_ALREADY] * 5
    for one in begun:
        assert one.stderr is not None
        one.stderr.close()
    assert run(model_download._IS_ON_NODE, folder).stdout == b"hf:acme/tiny"


def test_a_watcher_that_ends_late_leaves_the_next_download_and_its_own_goes(folder: str) -> None:
    (one,) = start_at_once(folder, 1)
    with one:
        assert one.wait(30) == 0
    run(model_download._REMOVE_ENDED, folder)
    assert run(model_download._IS_ON_NODE, folder).returncode == 0
    pid = Path("/dev/shm", folder, "pid").read_text().strip()
    subprocess.run(["kill", "-KILL", "--", f"-{pid}"], check=True)
    while run(model_download._IS_ON_NODE, folder).returncode == 0:
        pass
    run(model_download._REMOVE_ENDED, folder)
    assert not Path("/dev/shm", folder).exists()


async def test_what_a_profile_leaves_out_of_its_model_is_not_left_out_of_the_draft_and_a_tokenizer_has_no_weights() -> (
    None
):
    shipped = ProfileLibrary().load_profile("qwen36")
    profile = replace(shipped, model=replace(shipped.model, exclude=("model-*",)))
    parts = [
        MissingPart(kind=kind, node=NodeName("spark1"), name=f"/models/{kind}", reason="", source="hf:acme/tiny")
        for kind in MODEL_KINDS
    ]
    model, draft, tokenizer = (model_download.ModelDownload.from_part(profile, part, directory=None) for part in parts)
    assert (model.build_request(None, None)["exclude"], draft.build_request(None, None)["exclude"]) == (
        ("model-*",),
        (),
    )
    assert (model.origin, draft.origin) == ("hf:acme/tiny -model-*", "hf:acme/tiny")
    hub = HubStandIn()
    hub.files["acme/tiny"] = {"config.json": b"{}", "model-1.safetensors": bytes(1000)}
    with run_hub(hub) as url:
        measured, _, _ = await read_missing_from_hub(HubClient({"HF_ENDPOINT": url}), profile, parts, ())
    assert [part.size for part in measured] == [2, 1002, 2]
    assert set(tokenizer.build_request(None, None)["include"]) > {"*.json", "*.jinja", "*.model"}
