"""Who a node says we are, and the words of an attempt to get there from another."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkctl.node import peer_checks
from sparkctl.node.peer_checks import SshLoginTarget


def read_login_target(home: Path, **env: str) -> SshLoginTarget:
    ran = subprocess.run(
        peer_checks.LOGIN_SCRIPT_COMMAND,
        input=peer_checks.LOGIN_SCRIPT,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **env},
    )
    return peer_checks.decode_login_target(ran.stdout)


def test_a_node_says_who_we_are_by_which_port_we_came_and_whether_keys_are_listed(tmp_path: Path) -> None:
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert read_login_target(tmp_path) == SshLoginTarget(user, "22", has_keys=False), (
        "without SSH: sparkctl runs there itself"
    )
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/authorized_keys").touch()
    assert read_login_target(tmp_path, SSH_CONNECTION="10.0.0.1 50000 10.0.0.2 2022") == SshLoginTarget(
        user, "2022", has_keys=True
    )


@pytest.mark.parametrize(
    "answer", [b"", b"@@ login\nmilo\n22\n", b"@@ login\nmilo\n@@ end\n", b"milo\n22\nlisted\n@@ end\n"]
)
def test_a_cut_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match="incomplete"):
        peer_checks.decode_login_target(answer)


def test_the_attempt_asks_nobody_and_writes_nothing() -> None:
    words = peer_checks.build_login_test_command(SshLoginTarget("milo", "2022", has_keys=True), "192.168.200.12")
    assert words[-5:] == ("2022", "-l", "milo", "192.168.200.12", "true")
    assert {"BatchMode=yes", "UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no"} <= set(words)
    assert words[:3] == ("env", "-u", "SSH_AUTH_SOCK")


def test_what_a_login_shell_prints_is_not_the_answer() -> None:
    answer = b"Welcome to spark2\nfnm: using node 22\n@@ login\nmilo\n2022\nlisted\n@@ end\nbye\n"
    assert peer_checks.decode_login_target(answer) == SshLoginTarget("milo", "2022", has_keys=True)
