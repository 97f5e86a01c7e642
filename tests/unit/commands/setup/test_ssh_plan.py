"""SSH between two Sparks: which lines each of them lacks, and what cannot be used."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Interface

import pytest

from sparkctl.commands.setup.setup_plan import SshSide, list_shared_addresses, plan_ssh, plan_undo
from sparkctl.errors import OperationRefused
from sparkctl.model.node import NodeName
from sparkctl.node.peer_checks import SshLoginTarget
from sparkctl.node.setup_program import NodeFile, SetupReport

HOME = "/home/milo"
KEYS, HOSTS, PRIVATE = (f"{HOME}/.ssh/{name}" for name in ("authorized_keys", "known_hosts", "id_ed25519"))


def make_side(number: int, *, keys: str | None = None, hosts: str | None = None, port: str = "22") -> SshSide:
    texts = {KEYS: keys, HOSTS: hosts, PRIVATE: None}
    files = {path: NodeFile(path, "none" if text is None else "a" * 64, text) for path, text in texts.items()}
    report = SetupReport(
        home=HOME,
        files=files,
        public_key=f"ssh-ed25519 U{number} milo@{number}",
        host_key=f"ssh-ed25519 H{number} root",
    )
    login = SshLoginTarget("milo", port, keys is not None)
    addresses = tuple(
        map(IPv4Interface, (f"192.168.200.{number}/24", f"10.0.0.{number}/24", "172.17.0.1/16", f"10.{number}.0.1/24"))
    )
    return SshSide(NodeName(f"spark{number}"), report, login, addresses)


def plan(one: SshSide, other: SshSide) -> dict[str, dict[str, str | None]]:
    steps = plan_ssh({side.node: side for side in (one, other)})
    return {node: {change.path: change.after for change in step.changes} for node, step in steps.items()}


def test_each_gets_the_other_ones_key_and_host_key_and_keeps_its_lines() -> None:
    found = plan(make_side(1, keys="# mine, without an end"), make_side(2, port="2222"))
    assert found["spark1"] == {
        KEYS: "# mine, without an end\nssh-ed25519 U2 milo@2\n",
        HOSTS: "[192.168.200.2]:2222 ssh-ed25519 H2\n[10.0.0.2]:2222 ssh-ed25519 H2\n",
    }
    assert found["spark2"][HOSTS] == "192.168.200.1 ssh-ed25519 H1\n10.0.0.1 ssh-ed25519 H1\n"


def test_twice_is_once_also_where_the_lines_differ_in_form() -> None:
    one = make_side(1, keys="ssh-ed25519 U2 another-comment\n", hosts="a,192.168.200.2,10.0.0.2 ssh-ed25519 H2 c\n")
    assert "spark1" not in plan(one, make_side(2))
    limited = make_side(1, keys='from="10.9.9.9" ssh-ed25519 U2\n', hosts="192.168.200.2,10.0.0.2 ssh-ed25519 H2\n")
    assert list(plan(limited, make_side(2))["spark1"]) == [KEYS]


def test_addresses_that_only_one_of_them_is_on_are_left_out() -> None:
    assert list_shared_addresses(make_side(1), make_side(2)) == ["192.168.200.2", "10.0.0.2"]


def test_what_cannot_be_used_is_refused_with_its_path() -> None:
    side, other = make_side(1), make_side(2)
    locked = replace(side, files=replace(side.files, public_key=None))
    assert f"{PRIVATE}.pub" in plan(locked, other)["spark1"]
    for broken, path in (
        (replace(locked.files, files={**side.files.files, PRIVATE: NodeFile(PRIVATE, "other", None)}), PRIVATE),
        (replace(side.files, files={**side.files.files, KEYS: NodeFile(KEYS, "other", None)}), KEYS),
        (replace(side.files, host_key=None), "/etc/ssh"),
    ):
        with pytest.raises(OperationRefused, match=path):
            plan(replace(side, files=broken), other)
    with pytest.raises(OperationRefused, match="no network in common"):
        plan(replace(side, addresses=(IPv4Interface("10.50.0.1/24"),)), other)


def test_an_undo_takes_our_lines_out_of_a_file_that_ssh_went_on_to_write() -> None:
    state = f"{HOME}/.local/state/sparkctl/setup"
    texts = {HOSTS: "a\nours\nlater\n", f"{state}/written{HOSTS}": "a\nours\n", f"{state}/before{HOSTS}": "a\n"}
    files = {path: NodeFile(path, f"{at}" * 64, text) for at, (path, text) in enumerate(texts.items())}
    step, foreign = plan_undo(SetupReport(files=files, records=[HOSTS], state=state))
    assert (step.changes[0].before, step.changes[0].after, foreign) == ("a\nours\nlater\n", "a\nlater\n", ())
