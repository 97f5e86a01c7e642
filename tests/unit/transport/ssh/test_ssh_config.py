"""Where a name leads, and how jump hosts are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.errors import InvalidInput
from sparkctl.transport.ssh.ssh_config import parse_jump_host, resolve_target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("door", ("door", None, None)),
        ("milo@door", ("door", "milo", None)),
        ("milo@door:2222", ("door", "milo", 2222)),
        ("[::1]:22", ("::1", None, 22)),
        ("fe80::1", ("fe80::1", None, None)),
    ],
)
def test_a_jump_is_user_host_port(text: str, words: tuple[str, str | None, int | None]) -> None:
    assert parse_jump_host(text) == words


@pytest.mark.parametrize("text", ["", "milo@", "door:ssh", "door:0", "door:65536"])
def test_what_is_no_jump_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="jump host"):
        parse_jump_host(text)


def test_ours_wins_over_the_config_and_the_config_over_nothing(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(
        "Host spark\n  HostName 10.0.0.7\n  User nvidia\n  Port 2200\n  ProxyJump door\n  HostKeyAlias spark-one\n"
    )
    route = resolve_target("spark")
    assert (route.host, route.user, route.port, route.jump) == ("10.0.0.7", "nvidia", 2200, "door")
    assert route.trust == "spark-one"
    assert route.known_hosts[0] == home / ".ssh" / "known_hosts"
    ours = resolve_target("spark", user="milo", port=22, jump="none")
    assert (ours.user, ours.port, ours.jump, ours.ssh_command) == ("milo", 22, None, "ssh milo@10.0.0.7")


def test_a_broken_config_is_said_to_be_so(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host spark\n  Port twentytwo\n")
    with pytest.raises(InvalidInput, match="ssh config"):
        resolve_target("spark")
