"""`tunnel` over a real sshd, through a link that is cut: the client in the middle sees an error, the next one is served."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import assert_ended, list_own_containers
from tests.lab.support.sparkctl_process import Sparkctl


def test_a_cut_link_comes_back_by_itself(spark1: LabNode, sparkctl: Sparkctl, faults: Faults) -> None:
    assert sparkctl("up", sparkctl.profile(), "--node", "spark1").code == 0
    opened = sparkctl.start("tunnel", "tiny", "--json")
    url = json.loads(opened.await_text(r'^\{.*"event": ?"tunnel".*"open".*$'))["url"]
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
        assert json.load(answer)["data"][0]["id"] == "tiny"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
        faults.unplug(spark1)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    opened.await_text(r'"event": ?"tunnel".*"lost"')
    faults.plug(spark1)
    opened.await_text(r'"lost"(.|\n)*"event": ?"tunnel".*"open"')
    with urllib.request.urlopen(f"{url}/v1/models", timeout=20) as answer:
        assert answer.status == 200
    opened.interrupt()
    ran = opened.end()
    assert (ran.code, ran.result["outcome"]) == (0, "done"), ran
    assert [event["state"] for event in ran.events if event["event"] == "tunnel"] == ["open", "lost", "open", "closed"]


def test_a_server_that_everybody_reaches_without_a_key_is_told(spark1: LabNode, sparkctl: Sparkctl) -> None:
    assert sparkctl("up", sparkctl.profile(), "--node", "spark1").code == 0
    ran = sparkctl("doctor", "--json")
    result = [event for event in ran.events if event.get("check") == "open-server"]
    assert [(one["node"], one["severity"]) for one in result] == [("spark1", "note")]
    assert f"http://{spark1.address}:" in result[0]["message"]
    spark1.sh("iptables", "-I", "INPUT", "-p", "tcp", "--dport", result[0]["message"].rpartition(":")[2].partition("/")[0],
              "!", "-i", "lo", "-j", "REJECT")  # fmt: skip
    try:
        assert "open-server" not in sparkctl("doctor", "--json").out
    finally:
        spark1.sh("iptables", "-D", "INPUT", "1")


def test_a_generated_key_is_asked_of_clients_and_stands_nowhere_on_the_node(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    profile = sparkctl.profile(engine="vllm", args={"gpu-memory-utilization": 0.3}, api_key="generate")
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert ran.code == 0, ran
    kept = next(sparkctl.home.rglob("keys/spark1/tiny"))
    key = kept.read_text().strip()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert key not in ran.out + ran.err
    container = list_own_containers(spark1)[0]
    seen = spark1.inspect_container(container)
    assert key not in json.dumps([seen["Path"], seen["Args"], seen["Config"]["Cmd"], seen["Config"]["Labels"]])
    assert key not in spark1.docker("logs", container)
    assert key not in spark1.sh("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    for words in ("logs tiny", "history --json", "status --json", "endpoints", "endpoints --json", "diagnose tiny"):
        said = sparkctl(*words.split())
        assert key not in said.out + said.err, words
    assert key in sparkctl("endpoints", "--with-key").out, "on request"
    assert [path for path in sparkctl.saved() if key.encode() in path.read_bytes()] == [kept], "nor in a file of ours"
    opened = sparkctl.start("tunnel", profile, "--json")
    url = json.loads(opened.await_text(r'^\{.*"event": ?"tunnel".*"open".*$'))["url"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}/v1/models", timeout=20)
    assert refused.value.code == 401
    asked = urllib.request.Request(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        assert answer.status == 200
    opened.interrupt()
    assert opened.end().code == 0


def test_an_engine_that_takes_the_key_and_asks_for_none_is_not_ready(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(
        engine="vllm", args={"gpu-memory-utilization": 0.3}, api_key="generate", env={"LAB_IGNORES_KEY": "1"}
    )
    for _ in range(2):  # the second finds it running
        ran = sparkctl("up", profile, "--node", "spark1", "--json")
        assert_ended(ran, 5, "unproved")
        assert "it does not refuse a request without its key" in ran.result["proof"], ran


def read_stream(url: str, count: int) -> Iterator[str]:
    """Yield the words of a streamed answer as they come; an answer that is cut off is an error."""
    body = json.dumps({"model": "tiny", "prompt": "hi", "stream": True, "max_tokens": count}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=40) as answer:
        while line := answer.readline():
            text = line.decode().removeprefix("data: ").strip()
            if text == "[DONE]":
                return
            if text:
                yield json.loads(text)["choices"][0]["delta"]["content"]
    raise http.client.IncompleteRead(b"")


def test_a_streaming_client_over_two_cuts_never_takes_half_an_answer_for_the_whole(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    name = sparkctl.profile(env={"LAB_TOKEN_S": "0.1"})
    assert sparkctl("up", name, "--node", "spark1").code == 0
    opened = sparkctl.start("tunnel", "tiny", "--json")
    url = json.loads(opened.await_text(r'^\{.*"event": ?"tunnel".*"open".*$'))["url"]
    began = time.monotonic()
    words = read_stream(url, 20)
    assert next(words) == " 0"
    assert time.monotonic() - began < 1.5, "a token comes through when it is made, not with the last one"
    assert list(words) == [f" {number}" for number in range(1, 20)]
    for cut in range(1, 3):
        words = read_stream(url, 10_000)
        got = [next(words) for _ in range(5)]
        assert got == [f" {number}" for number in range(5)]
        faults.unplug(spark1)
        with pytest.raises((OSError, http.client.HTTPException)):
            list(words)
        faults.plug(spark1)
        opened.await_text(r'(?:"lost"(?:.|\n)*?"event": ?"tunnel".*?"open"(?:.|\n)*?)' * cut)
        assert list(read_stream(url, 10)) == [f" {number}" for number in range(10)]
    opened.interrupt()
    ran = opened.end()
    states = [event["state"] for event in ran.events if event["event"] == "tunnel"]
    assert (ran.code, states) == (0, ["open", "lost", "open", "lost", "open", "closed"]), ran
