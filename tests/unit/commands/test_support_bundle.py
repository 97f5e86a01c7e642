"""Masking for a file that may be posted: by name, by value, by shape, in text and in Docker's JSON."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from sparkctl.commands.doctor_bundle import SupportBundle
from sparkctl.errors import InvalidInput
from sparkctl.files import safe_file_name
from sparkctl.model.text.secrets import Redactor

SECRET = "sesame-open-42"
TEXTS = [
    f"HF_TOKEN={SECRET}",
    f"  --api-key {SECRET} --port 80",
    f"api_key: {SECRET}",
    f'"password" : "{SECRET}",',
    f"Authorization: Bearer {SECRET}",
    f"proxy http://me:{SECRET}@host:3128/",
    f"[   12.5] cmdline: root=/dev/sda1 wifi_password={SECRET} quiet",
    "token hf_" + "a" * 30,
    f"password = {SECRET}",
    f"password ={SECRET} and more",
    f"vllm.conf: password = '{SECRET}'",
    f"level: error, api_key: {SECRET}",
    f"[   12.5] node: password = {SECRET}",
    f"PRIVATE_KEY: |\n  {SECRET}\n\n  {SECRET}",
    f"  - private_key: >-\n      first\n      {SECRET}",
    f"credentials:\n  name: {SECRET}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
]
DATA: list[object] = [
    {"Config": {"Env": ["PATH=/bin", f"HF_TOKEN={SECRET}"]}},
    {"Args": ["serve", "--api-key", SECRET]},
    {"Config": {"Cmd": ["sh", "-c", f"vllm serve --api-key={SECRET}"]}},
    {"Labels": {"a.token": SECRET, "b": f"http://u:{SECRET}@h/"}},
    {"Auth": {"Secret": {"deep": [SECRET, {"deeper": SECRET}]}}},
    {"Test": ["CMD-SHELL", f"curl -H 'Authorization: Bearer {SECRET}' localhost"]},
    {"LogConfig": {"Config": {"splunk-token": SECRET}}},
]


@pytest.mark.parametrize("text", TEXTS)
def test_no_line_of_a_text_keeps_it(text: str) -> None:
    masked = Redactor().redact_text(f"before\n{text}\nafter")
    assert SECRET not in masked
    assert "a" * 30 not in masked
    assert masked.startswith("before\n")
    assert masked.endswith("\nafter")
    assert Redactor().redact_text(masked) == masked


@pytest.mark.parametrize("data", DATA, ids=lambda data: next(iter(data)))
def test_no_json_of_docker_keeps_it(data: object) -> None:
    assert SECRET not in json.dumps(Redactor().redact_json(data))


def test_a_known_value_is_masked_wherever_it_turns_up() -> None:
    scrubber = Redactor(frozenset([SECRET]))
    assert SECRET not in scrubber.redact_text(f"kernel: somebody said {SECRET} here")
    assert SECRET not in json.dumps(scrubber.redact_json({"Env": [f"INNOCENT={SECRET}"], SECRET: [1, SECRET, None]}))


def test_what_stands_below_a_masked_block_stays() -> None:
    text = "PRIVATE_KEY: |\n  one\n  two\nport: 8000\nengine:\n  args: 5\nkey:\nport: 1"
    below = "port: 8000\nengine:\n  args: 5\nkey:\nport: 1"
    assert Redactor().redact_text(text).split("\n", 3)[3] == below


def test_ordinary_text_is_not_masked() -> None:
    text = "MemTotal:       127535224 kB\nmax_num_batched_tokens: 5\nmax_tokens=4096\nProduct Name : NVIDIA GB10"
    assert Redactor().redact_text(text) == text
    data = {
        "Id": "ab" * 32,
        "Env": ["PATH=/usr/bin", "MAX_TOKENS=7"],
        "State": {"Pid": 7, "Running": True},
        "Secrets": None,
    }
    assert Redactor().redact_json(data) == data


def test_a_bundle_is_for_its_owner_alone_and_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    with SupportBundle(path) as bundle:
        bundle.write_files("top", {"a/b.txt": "näh\n", "c": ""})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["top/a/b.txt", "top/c"]
        member = archive.extractfile("top/a/b.txt")
        assert member is not None
        assert member.read() == "näh\n".encode()
    with pytest.raises(InvalidInput, match="already exists"):
        SupportBundle(path)
    with pytest.raises(KeyboardInterrupt), SupportBundle(tmp_path / "c.tar.gz"):
        raise KeyboardInterrupt
    assert not (tmp_path / "c.tar.gz").exists()
    with pytest.raises(InvalidInput, match="cannot write"):
        SupportBundle(tmp_path / "no" / "such.tar.gz")


@pytest.mark.parametrize("name", ["../x", ".", "..", "/etc", "milo@host:22", "a b\n", "", "é"])
def test_any_name_is_one_component_of_a_path(name: str) -> None:
    made = safe_file_name(name)
    assert made
    assert "/" not in made
    assert not made.startswith(".")
