"""Plans SSH between two Sparks for engines whose ranks log in by it: a key, its public part on the other, the host's key. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from sparkctl.commands.setup.cable_plan import CableEnd
from sparkctl.errors import OperationRefused
from sparkctl.model.node import NodeName
from sparkctl.model.setup_plan import FileChange, SetupStep, SetupStepKind
from sparkctl.node.node_inspection import NetworkReadings
from sparkctl.node.peer_checks import SshLoginTarget
from sparkctl.node.setup_program import SetupReport

_MODE = "0600"


@dataclass(frozen=True, slots=True)
class SshSide:
    """One Spark as the others see it: what its user has below ~/.ssh, how to log in there, and its addresses."""

    node: NodeName
    files: SetupReport
    login: SshLoginTarget
    addresses: tuple[IPv4Interface, ...]

    @property
    def needs_key(self) -> bool:
        """Whether its user has no key that a program can use."""
        return self.files.public_key is None

    @property
    def public_key(self) -> str:
        """The public part of its user's key; in its place a text to show, where the key is yet to be made."""
        return self.files.public_key or f"(public part of the key to be made on {self.node}) sparkctl:{self.node}"

    def get_path(self, name: str) -> str:
        """Return the path of a file in ~/.ssh."""
        return f"{self.files.home}/.ssh/{name}"


def list_addresses(seen: NetworkReadings | None, ends: Sequence[CableEnd], node: NodeName) -> tuple[IPv4Interface, ...]:
    """Return a node's addresses, those that the cable is to have first."""
    planned = [address for end in ends if end.node == node for _, address in end.lanes]
    there = [IPv4Interface(one) for lane in (seen.interfaces if seen else ()) for one in lane.addresses]
    return tuple(dict.fromkeys((*planned, *(one for one in there if not (one.ip.is_loopback or one.ip.is_link_local)))))


def plan_ssh(sides: Mapping[NodeName, SshSide]) -> dict[NodeName, SetupStep]:
    """Return the step of each node that lacks something; each one may then log in at each other one.

    Raises `OperationRefused` where a key or a file cannot be used.
    """
    steps = {}
    for node, side in sides.items():
        peers = [one for name, one in sides.items() if name != node]
        names = " and ".join(peer.node for peer in peers)
        changes = [
            *_plan_key(side),
            *_plan_lines(side, "authorized_keys", [peer.public_key for peer in peers]),
            *_plan_lines(side, "known_hosts", [line for peer in peers for line in _list_host_lines(side, peer)]),
        ]
        if changes:
            words = f"{side.login.user} may log in from here at {names}, and from there here, without a password"
            steps[node] = SetupStep(SetupStepKind.SSH, words, tuple(changes))
    return steps


def list_shared_addresses(near: SshSide, far: SshSide) -> list[str]:
    """Return the far one's addresses that the near one has a network in common with: the cable's first, where it is planned."""
    networks: set[IPv4Network] = {one.network for one in near.addresses}
    own = {one.ip for one in near.addresses}
    return list(dict.fromkeys(str(one.ip) for one in far.addresses if one.network in networks and one.ip not in own))


def _plan_key(side: SshSide) -> Iterator[FileChange]:
    if not side.needs_key:
        return
    private = side.get_path("id_ed25519")
    there = side.files.files.get(private)
    if there is None or there.sum != "none":
        raise OperationRefused(
            f"{side.node}: {private} has a passphrase or cannot be read, so no program can log in with it",
            f"on {side.node}, an additional key without a passphrase: ssh-keygen -t ecdsa -N ''",
        )
    yield FileChange(f"{private}.pub", None, f"{side.public_key}\n")


def _plan_lines(side: SshSide, name: str, wanted: Sequence[str]) -> Iterator[FileChange]:
    """Yield the file with the lines that it lacks; all others stay as they are."""
    path = side.get_path(name)
    there = side.files.files.get(path)
    if there is None or there.sum == "other" or (there.text is None and there.sum != "none"):
        raise OperationRefused(
            f"{side.node}: {path} is not a plain file that can be read, so sparkctl does not touch it",
            f"look at it: ls -l {path}",
        )
    before = there.text or ""
    known = [line.split() for line in before.splitlines()]
    lacking = [line for line in dict.fromkeys(wanted) if not any(_holds(words, name, line) for words in known)]
    if lacking:
        start = before if not before or before.endswith("\n") else f"{before}\n"
        yield FileChange(path, there.text, start + "".join(f"{line}\n" for line in lacking), _MODE)


def _holds(words: Sequence[str], name: str, line: str) -> bool:
    """Tell whether the words of a line say the same: options before a key limit it, so a line with some is another one."""
    if name == "authorized_keys":
        return list(words[:2]) == line.split()[:2]
    host, *key = line.split()[:3]
    return len(words) >= 3 and host in words[0].split(",") and list(words[1:3]) == key


def _list_host_lines(side: SshSide, peer: SshSide) -> Iterator[str]:
    if peer.files.host_key is None:
        raise OperationRefused(
            f"{peer.node} has no host key in /etc/ssh that can be read", f"on {peer.node}: sudo ssh-keygen -A"
        )
    key = " ".join(peer.files.host_key.split()[:2])
    addresses = list_shared_addresses(side, peer)
    if not addresses:
        raise OperationRefused(f"{side.node} and {peer.node} have no network in common", "docs/two-sparks.md")
    for address in addresses:
        yield f"{address if peer.login.port == '22' else f'[{address}]:{peer.login.port}'} {key}"
