"""What ping says, in its several dialects, and the real script on this machine's loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sparkctl.node import build_script_command, read_node_script
from sparkctl.node.peer_checks import PingReply, PingTarget, decode_ping_report

LANE = ("enp1s0f0np0", "192.168.200.12")


def build_ping_output(*parts: tuple[str, str], end: bool = True) -> bytes:
    text = "".join(f"@@ {head}\n{body}\n" for head, body in parts)
    return (text + ("@@ end\n" if end else "")).encode()


def decode_small_ping(said: str, tcp: str | None = None) -> PingReply:
    parts = [("ping enp1s0f0np0 192.168.200.12 0", said)]
    parts += [("tcp enp1s0f0np0 192.168.200.12", tcp)] if tcp is not None else []
    return decode_ping_report(build_ping_output(*parts)).reached[LANE]


@pytest.mark.parametrize(
    ("said", "answered", "words"),
    [
        ("1 packets transmitted, 1 received, 0% packet loss, time 0ms\nrtt min/avg/max/mdev = 0.1/0.1/0.1/0 ms", True, ""),
        ("1 packets transmitted, 1 packets received, 0% packet loss", True, ""),
        ("3 packets transmitted, 0 received, 100% packet loss, time 2031ms", False, "no answer to ping"),
        ("From 192.168.200.11 icmp_seq=1 Destination Host Unreachable\n"
         "3 packets transmitted, 0 received, +3 errors, 100% packet loss", False, "unreachable"),
        ("ping: connect: Network is unreachable", False, "no route"),
        ("ping: local error: message too long, mtu=1500\n1 packets transmitted, 0 received, +1 errors",
         False, "its own interface takes no packet of that size"),
        ("timeout: failed to run command 'ping': No such file or directory", None,
         "timeout: failed to run command 'ping': No such file or directory"),
        ("ping: unrecognized option: M", None, "ping: unrecognized option: M"),
        ("", None, "no ping command"),
    ],
)  # fmt: skip
def test_what_ping_says(said: str, answered: bool | None, words: str) -> None:
    heard = decode_small_ping(said)
    assert (heard.answered, heard.words, heard.to_ping) == (answered, words, bool(answered))


@pytest.mark.parametrize(
    ("tcp", "answered", "words"),
    [
        ("OK", True, ""),
        ("ECONNREFUSED", True, ""),
        ("EHOSTUNREACH", False, "no answer to ping, nothing there answers at that address"),
        ("EAGAIN", False, "no answer to ping, no answer on TCP either"),
        ("", False, "no answer to ping"),
    ],
)
def test_a_firewall_that_drops_pings_is_told_from_nobody(tcp: str, answered: bool, words: str) -> None:
    heard = decode_small_ping("3 packets transmitted, 0 received, 100% packet loss", tcp)
    assert (heard.answered, heard.words, heard.to_ping) == (answered, words, False)


def test_without_ping_tcp_decides() -> None:
    assert decode_small_ping("sh: ping: not found", "ECONNREFUSED").answered
    assert decode_small_ping("sh: ping: not found", "EAGAIN") == PingReply(False, "no answer on TCP either")
    assert decode_small_ping("sh: ping: not found", "").answered is None


def test_an_answer_that_was_cut_short_or_decorated() -> None:
    with pytest.raises(ValueError, match="cut short"):
        decode_ping_report(build_ping_output(("link eth0 1", ""), end=False))
    found = decode_ping_report(
        b"Welcome to DGX Spark\n"
        + build_ping_output(("link eth0 0", ""), ("link eth1 ", ""), ("rdma mlx5_0 1: DOWN", ""))
    )
    assert (found.carriers, found.rdma) == ({"eth0": False}, {"mlx5_0": "DOWN"})


@pytest.mark.skipif(shutil.which("ping") is None, reason="there is no ping on this machine")
def test_the_script_with_the_real_ping() -> None:
    targets = [
        PingTarget(interface="lo", own="127.0.0.1", peer="127.0.0.2", size=8972),
        PingTarget(interface="lo", own="127.0.0.1", peer="127.0.0.3", size=70),
    ]
    done = subprocess.run(
        build_script_command(*(one.script_argument for one in targets)),
        input=read_node_script("peer_ping.sh"),
        capture_output=True,
        timeout=10,
        check=True,
    )
    found = decode_ping_report(done.stdout)
    assert found.reached[("lo", "127.0.0.2")] == PingReply(True, to_ping=True)
    assert {key: one.answered for key, one in found.large.items()} == {
        ("lo", "127.0.0.2"): True,
        ("lo", "127.0.0.3"): True,
    }


def test_the_script_where_there_is_neither_ping_nor_python(tmp_path: Path) -> None:
    for name in ("timeout", "tail", "cut", "cat"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    there = read_node_script("peer_ping.sh").replace(b"$PATH:/usr/local/sbin:/usr/sbin:/sbin", os.fsencode(tmp_path), 1)
    words = build_script_command(
        PingTarget(interface="lo", own="127.0.0.1", peer="127.0.0.2", size=8972).script_argument
    )
    done = subprocess.run(["/bin/sh", *words[1:]], input=there, capture_output=True, timeout=10, check=True)
    found = decode_ping_report(done.stdout)
    assert found.reached[("lo", "127.0.0.2")].answered is None
    assert "No such file" in found.reached[("lo", "127.0.0.2")].words
    assert found.large[("lo", "127.0.0.2")].answered is None
