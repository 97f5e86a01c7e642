"""`tunnel` over a real sshd, through a link that is cut: the client in the middle sees an error, the next one is served."""

from __future__ import annotations

import json
import socket
import urllib.request

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.node import LabNode
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
