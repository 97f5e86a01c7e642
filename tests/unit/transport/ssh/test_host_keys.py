"""What known_hosts says, hashed entries and ports included."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from pathlib import Path

import asyncssh
import pytest

from sparkctl.transport.ssh import ssh_config

A = asyncssh.generate_private_key("ssh-ed25519")
B = asyncssh.generate_private_key("ssh-ed25519")
RSA = asyncssh.generate_private_key("ssh-rsa", key_size=2048)


def format_public_key(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def hash_host_name(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def look_up_keys(tmp_path: Path, text: str, host: str = "spark1.local", port: int = 22) -> ssh_config.KnownHostKeys:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return ssh_config.find_known_keys([tmp_path / "missing", file], host, port)


@pytest.mark.parametrize("host", ["spark1.local", "SPARK1.local"])
@pytest.mark.parametrize("name", ["spark1.local", "a,spark1.local", hash_host_name("spark1.local"), "spark*.local"])
def test_a_name_is_found_in_every_spelling(tmp_path: Path, name: str, host: str) -> None:
    assert look_up_keys(tmp_path, f"{name} {format_public_key(A)}\n", host).exact == (A.convert_to_public(),)


@pytest.mark.parametrize("name", ["[spark1.local]:2222", hash_host_name("[spark1.local]:2222")])
def test_a_port_is_part_of_the_name(tmp_path: Path, name: str) -> None:
    assert look_up_keys(tmp_path, f"{name} {format_public_key(A)}\n", port=2222).exact == (A.convert_to_public(),)
    assert look_up_keys(tmp_path, f"{name} {format_public_key(A)}\n").trusted_keys == ()


def test_a_key_without_the_port_is_trusted_and_says_nothing_of_change(tmp_path: Path) -> None:
    known = look_up_keys(tmp_path, f"spark1.local {format_public_key(A)}\n", port=2222)
    assert (known.exact, known.loose) == ((), (A.convert_to_public(),))


def test_one_bad_line_does_not_hide_the_others(tmp_path: Path) -> None:
    known = look_up_keys(
        tmp_path, f"@nonsense x y\n|1|bad {format_public_key(B)}\n# note\nspark1.local {format_public_key(A)}\n"
    )
    assert known.exact == (A.convert_to_public(),)


def test_known_types_come_first_and_ed25519_before_rsa_otherwise(tmp_path: Path) -> None:
    assert look_up_keys(tmp_path, "").list_algorithms(accepted=None)[0] == "ssh-ed25519"
    known = look_up_keys(tmp_path, f"spark1.local {format_public_key(RSA)}\n")
    assert known.list_algorithms(accepted=None)[0].startswith("rsa-sha2-")
    assert "ssh-ed25519" in known.list_algorithms(accepted=None)


def test_a_line_is_added_after_a_file_without_a_last_newline(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("first")
    ssh_config.append_known_host(file, ssh_config.format_known_hosts_line("Spark1", 2222, A))
    assert file.read_text() == f"first\n[spark1]:2222 {format_public_key(A)}\n"


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    os.mkfifo(file)
    with pytest.raises(OSError, match="it is a FIFO"):
        ssh_config.find_known_keys([file], "spark1", 22)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="it is a device"):
        ssh_config.find_known_keys([file], "spark1", 22)


def test_a_file_that_no_ssh_writes_is_refused_by_its_size(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    with file.open("wb") as sparse:
        sparse.truncate(ssh_config.MAX_FILE_BYTES + 1)
    with pytest.raises(OSError, match="it is larger than"):
        ssh_config.find_known_keys([file], "spark1", 22)


def test_entries_of_other_hosts_are_not_decoded(tmp_path: Path) -> None:
    """A hundred thousand of them, plain and hashed, cost less than four thousand of our own."""
    other = hash_host_name("another")
    many = f"elsewhere {format_public_key(B)}\n{other} {format_public_key(B)}\n" * 50_000
    few = f"spark1.local {format_public_key(B)}\n" * 4_000
    began = time.process_time()
    assert look_up_keys(tmp_path, few).exact[0] == B.convert_to_public()
    between = time.process_time()
    assert look_up_keys(tmp_path, many + f"spark1.local {format_public_key(A)}\n").exact == (A.convert_to_public(),)
    assert time.process_time() - between < 20 * (between - began)


@pytest.mark.parametrize("key", ["AAAAMII=", "MIIAAAA= x", "ssh-ed25519 AAAA!", "\x00 AAAA"])
def test_a_key_that_is_none_costs_its_line(tmp_path: Path, key: str) -> None:
    known = look_up_keys(tmp_path, f"spark1.local {key}\nspark1.local {format_public_key(A)}\n* {key}\n")
    assert known.exact == (A.convert_to_public(),)
