"""Plans what `setup` changes on a node, from what was read there: Docker's group, the cable, SSH between the Sparks. Pure.

The cable: both functions of the port, MTU 9000, networks of their own. SSH, for engines whose ranks log in by it: a key, its
public part on the other Spark, the host's key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Interface, IPv4Network, ip_interface, ip_network

from sparkctl.commands.drop_page_cache import TEE_COMMAND
from sparkctl.errors import OperationRefused
from sparkctl.model.events import FileChange, SetupStep, SetupStepKind
from sparkctl.model.fabric_route import ConfiguredInterface, FabricLane, FabricRoute, RouteEnd, parse_port_number
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.node.node_inspection import NetworkReadings, NodeInspection
from sparkctl.node.peer_checks import SshLoginTarget
from sparkctl.node.setup_program import ABSENT, NodeFile, SetupReport, list_kept_copies

NETPLAN_FILE = "/etc/netplan/90-sparkctl.yaml"
JUMBO_MTU = 9000
_DOMAIN_PATTERN = re.compile(r"P(\d+)p\d+s\d+f\d+")  # in enP2p1s0f0np0 and roceP2p1s0f0; without it the domain is 0
_CONNECTX_NAME_PATTERN = re.compile(r"p\d+s\d+f(\d+)np\d+$")  # enp1s0f0np0 and enP2p1s0f0np0
_SAFE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
NO_LINK_HINT = "on that Spark bring it up (sudo ip link set NAME up), then again: sparkctl setup"
_LINK_LOCAL = ip_network("169.254.0.0/16")
_FIRST_HOST = 11  # spark1 gets .11, spark2 .12


@dataclass(frozen=True, slots=True)
class CableEnd:
    """One Spark's end: its interfaces of the port, as they are now, each with the address that it is to have."""

    node: NodeName
    lanes: tuple[tuple[ConfiguredInterface, IPv4Interface], ...]

    def format_lanes_now(self) -> tuple[str, ...]:
        """Return a line for each interface: its name, its MTU and its addresses, as they are now."""
        return tuple(f"{one.name} {one.mtu or 1500} {' '.join(one.addresses)}".rstrip() for one, _ in self.lanes)


def plan_cable(
    nodes: Mapping[NodeName, NetworkReadings], chosen: Mapping[NodeName, str]
) -> tuple[tuple[CableEnd, CableEnd] | None, tuple[str, ...]]:
    """Return both ends as they are to be, None where they are so already; and what of the port is left out, in words: a
    function that has no link at one end. ``chosen``: interfaces that the config names.

    Raises `OperationRefused` where there is no cable to set up.
    """
    (one, near), (other, far) = nodes.items()
    ports = {node: _list_ports(node, seen, chosen.get(node)) for node, seen in nodes.items()}
    common = [number for number in ports[one] if number in ports[other]]
    number, twin = (common[0], common[0]) if common else (next(iter(ports[one])), next(iter(ports[other])))
    lanes = {one: ports[one][number], other: ports[other][twin]}
    pairs, left_out = _pair_functions(*lanes.values()), _list_left_out(lanes)
    if not pairs:
        words = f"no function of the port has a link on both Sparks ({'; '.join(left_out)})"
        raise OperationRefused(words, NO_LINK_HINT)
    used = [*_list_networks(near), *_list_networks(far)]
    taken: list[IPv4Network] = []
    ends: tuple[list[tuple[ConfiguredInterface, IPv4Interface]], ...] = ([], [])
    is_complete = True
    for pair in pairs:
        shared = _find_shared_addresses(pair, taken)
        is_complete = is_complete and shared is not None and all((lane.mtu or 0) >= JUMBO_MTU for lane in pair)
        if shared is None:
            network = next(new for new in _propose_networks() if not any(new.overlaps(old) for old in (*used, *taken)))
            shared = tuple(IPv4Interface((network[_FIRST_HOST + at], network.prefixlen)) for at in range(2))
        taken.append(shared[0].network)
        for end, lane, address in zip(ends, pair, shared, strict=True):
            end.append((lane, address))
    return None if is_complete else (CableEnd(one, tuple(ends[0])), CableEnd(other, tuple(ends[1]))), left_out


def format_netplan(end: CableEnd, peer: NodeName) -> str:
    lines = [
        f"# Written by `sparkctl setup`: the cable from {end.node} to {peer}. `sparkctl setup --undo` takes it back.",
        "network:",
        "  version: 2",
        "  ethernets:",
    ]
    for lane, address in end.lanes:
        lines += [
            f"    {lane.name}:",
            "      optional: true",
            "      dhcp4: false",
            "      dhcp6: false",
            "      link-local: [ipv6]",
            f"      mtu: {JUMBO_MTU}",
            f"      addresses: [{address}]",
        ]
    return "\n".join([*lines, ""])


def build_cable_route(ends: Sequence[CableEnd]) -> FabricRoute:
    """Return the ends as a route that can be checked."""
    return FabricRoute(
        tuple(
            RouteEnd(
                end.node,
                tuple(
                    FabricLane(
                        interface=lane.name,
                        address=str(address.ip),
                        network=str(address.network),
                        device=lane.device,
                        mtu=JUMBO_MTU,
                    )
                    for lane, address in end.lanes
                ),
            )
            for end in ends
        ),
        True,
    )


def find_wrong_lanes(end: CableEnd, now: NetworkReadings | None) -> list[str]:
    """Return what of an end is not yet as planned, in words."""
    if now is None:
        return [f"{end.node} did not report its addresses"]
    by_name = {one.name: one for one in now.interfaces}
    wrong = []
    for lane, address in end.lanes:
        seen = by_name.get(lane.name)
        if seen is None or not seen.has_carrier:
            wrong.append(f"{lane.name} has no link")
        elif str(address) not in seen.addresses:
            wrong.append(f"{lane.name} does not have {address}")
        elif seen.mtu != JUMBO_MTU:
            wrong.append(f"the MTU of {lane.name} is {seen.mtu}")
    return [f"{end.node}: {words}" for words in wrong]


def _list_ports(node: NodeName, seen: NetworkReadings, chosen: str | None) -> dict[str, list[ConfiguredInterface]]:
    """Return the ports with a link, by number; of each its functions, in the order of their PCI domains."""
    lanes = [one for one in seen.interfaces if _get_port(one) is not None and _SAFE_NAME_PATTERN.fullmatch(one.name)]
    if chosen is not None:
        named = next((one for one in seen.interfaces if one.name == chosen), None)
        if named is None or not _SAFE_NAME_PATTERN.fullmatch(chosen):
            there = ", ".join(one.name for one in seen.interfaces)
            raise OperationRefused(
                f"{node} has no interface {chosen}, which the config names as its cable (it has: {there})",
                f"correct fabric: of {node} in the config",
            )
        lanes = [one for one in lanes if _get_port(one) == _get_port(named)] if _get_port(named) else [named]
    ports: dict[str, list[ConfiguredInterface]] = {}
    for lane in sorted(lanes, key=_rank_lane):
        ports.setdefault(_get_port(lane) or "", []).append(lane)
    ports = {number: its for number, its in ports.items() if any(lane.has_carrier for lane in its)}
    if not ports:
        there = ", ".join(one.name for one in lanes)
        raise OperationRefused(
            f"no ConnectX port of {node} has a link" + (f" ({there})" if there else ""),
            "plug the cable in on both Sparks, then: sparkctl setup. If it is plugged in, bring the port up: "
            + (
                f"sudo ip link set {lanes[0].name} up"
                if lanes
                else "without a cable the port is powered off, which is normal"
            ),
        )
    return ports


def _get_port(one: ConfiguredInterface) -> str | None:
    if one.device is not None and (number := parse_port_number(one.device)) is not None:
        return number
    match = _CONNECTX_NAME_PATTERN.search(one.name)
    return None if match is None else match[1]


def _get_domain(one: ConfiguredInterface) -> int | None:
    """Return the PCI domain of a port's function; None for an interface that is none."""
    if _get_port(one) is None:
        return None
    match = _DOMAIN_PATTERN.search(one.device or "") or _DOMAIN_PATTERN.search(one.name)
    return int(match[1]) if match else 0


def _rank_lane(one: ConfiguredInterface) -> tuple[str, int, str]:
    return (_get_port(one) or "", _get_domain(one) or 0, one.name)


def _pair_functions(
    near: Sequence[ConfiguredInterface], far: Sequence[ConfiguredInterface]
) -> list[tuple[ConfiguredInterface, ConfiguredInterface]]:
    """Return the functions of one PCI domain that have a link at both ends: data passes between these only."""
    near, far = ([lane for lane in lanes if lane.has_carrier] for lanes in (near, far))
    if any(_get_domain(lane) is None for lane in (*near, *far)):
        return list(zip(near, far, strict=False))  # the config names an interface of another kind
    peers = {_get_domain(lane): lane for lane in far}
    return [(lane, peers[domain]) for lane in near if (domain := _get_domain(lane)) in peers]


def _list_left_out(lanes: Mapping[NodeName, Sequence[ConfiguredInterface]]) -> tuple[str, ...]:
    """Return why a function of the port cannot be used, in words."""
    found = []
    for (node, its), (peer, theirs) in zip(lanes.items(), reversed(list(lanes.items())), strict=True):
        domains = {_get_domain(lane) for lane in theirs}
        for lane in its:
            if not lane.has_carrier:
                found.append(f"{lane.name} of {node} has no link")
            elif None not in domains and _get_domain(lane) not in (None, *domains):
                found.append(f"{peer} has nothing that belongs to {lane.name} of {node}")
    return tuple(found)


def _find_shared_addresses(
    pair: Sequence[ConfiguredInterface], taken: Sequence[IPv4Network]
) -> tuple[IPv4Interface, ...] | None:
    """Return an address of each end in one network, if the lane has such addresses of its own already."""
    near, far = ([IPv4Interface(address) for address in lane.addresses] for lane in pair)
    for one in near:
        for other in far:
            if one.network == other.network and one.ip != other.ip and not one.network.overlaps(_LINK_LOCAL):
                return None if any(one.network.overlaps(old) for old in taken) else (one, other)
    return None


def _list_networks(seen: NetworkReadings) -> Iterator[IPv4Network]:
    """Yield every network that a node is on or has a route to."""
    for one in seen.interfaces:
        for address in one.addresses:
            yield IPv4Interface(address).network
    for route in seen.routes:
        try:
            network = ip_interface(route).network
        except ValueError:
            continue
        if isinstance(network, IPv4Network) and network.prefixlen:
            yield network


def _propose_networks() -> Iterator[IPv4Network]:
    """Yield networks for a lane, those of NVIDIA's instructions first."""
    for number in (*range(200, 255), *range(100, 200)):
        yield IPv4Network(f"192.168.{number}.0/24")
    for number in range(256):
        yield IPv4Network(f"10.77.{number}.0/24")
    for number in range(256):
        yield IPv4Network(f"172.29.{number}.0/24")
    raise OperationRefused(
        "every private network that could serve for the cable is in use on these Sparks",
        "give both ends addresses by hand: docs/two-sparks.md",
    )


SUDOERS_FILE = "/etc/sudoers.d/sparkctl"
GROUP_FILE = "/etc/group"
DOCKER_GROUP = "docker"
_USER_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def plan_own_steps(node: NodeName, inspection: NodeInspection) -> tuple[tuple[SetupStep, ...], tuple[str, ...]]:
    """Return the steps of one node without the cable, and what cannot be set up, in words."""
    user = "" if inspection.identity is None else inspection.identity.user
    if not user or user == "root":
        return (), ()
    if not _USER_PATTERN.fullmatch(user):
        return (), (f"{user!r} on {node} is a name that sudoers cannot hold: set it up by hand",)
    steps, notes = [], []
    if inspection.docker is not None and not inspection.docker.access and not inspection.docker.member:
        step = _plan_docker_group(user, inspection)
        if step is None:
            notes.append(f"{node} has no group docker: is Docker installed? (sudo apt install docker.io)")
        else:
            steps.append(step)
    if inspection.drop_right == "none":
        notes.append(f"{node} has no sudo: the right to drop the page cache cannot be given")
    elif inspection.drop_right == "denied":
        steps.append(plan_drop_right(user, None))
    return tuple(steps), tuple(notes)


def list_fine_parts(inspection: NodeInspection) -> tuple[str, ...]:
    """Return what of a node needs no set-up, in sentences; what could not be read is not among them."""
    user = "" if inspection.identity is None else inspection.identity.user
    if user == "root":
        return ("Docker and the page cache: root needs no set-up",)
    fine = []
    if inspection.docker is not None and inspection.docker.access:
        fine.append(f"Docker: {user} may use it")
    elif inspection.docker is not None and inspection.docker.member:
        fine.append(f"Docker: {user} is in group docker, which takes effect at the next login there")
    if inspection.drop_right == "allowed":
        fine.append(f"page cache: {user} may drop it without a password")
    return tuple(fine)


def plan_drop_right(user: str, before: str | None) -> SetupStep:
    """Return the step that lets a user drop the page cache, and nothing else."""
    line = f"{user} ALL=(root) NOPASSWD: {' '.join(TEE_COMMAND)}\n"
    others = before or ""
    if others and not others.endswith("\n"):
        others += "\n"
    change = FileChange(SUDOERS_FILE, before, others if line in others.splitlines(True) else others + line, "0440")
    return SetupStep(
        SetupStepKind.DROP_CACHES, f"{user} may drop the page cache (this very command, nothing else)", (change,)
    )


def plan_cable_step(end: CableEnd, peer: NodeName, inspection: NodeInspection) -> SetupStep:
    """Return the step of one end of the cable."""
    words = ", ".join(f"{lane.name} {address}" for lane, address in end.lanes)
    after = format_netplan(end, peer)
    before = None if inspection.setup is None else inspection.setup.written.get(NETPLAN_FILE)
    change = FileChange(NETPLAN_FILE, None if before == after else before, after, "0600")
    return SetupStep(SetupStepKind.CABLE, f"the cable to {peer}: {words}, MTU 9000", (change,))


def correct_before(step: SetupStep, files: Mapping[str, NodeFile], user: str) -> SetupStep:
    """Return the step of a node's user with the files as root sees them. Raises `OperationRefused` where one is not a plain file."""
    changes = []
    for change in step.changes:
        seen = files.get(change.path)
        if seen is not None and seen.sum == "other":
            raise OperationRefused(
                f"{change.path} is not a plain file, so sparkctl does not touch it",
                f"look at it: sudo ls -l {change.path}",
            )
        changes.append(change if seen is None or change.path == GROUP_FILE else replace(change, before=seen.text))
    if step.kind is SetupStepKind.DROP_CACHES:
        return plan_drop_right(user, changes[0].before)  # other lines in the file stay
    return replace(step, changes=tuple(changes))


def plan_undo(report: SetupReport) -> tuple[SetupStep, tuple[FileChange, ...]]:
    """Return the step that takes a set-up back, and the files that somebody has changed since: none of them is touched."""
    changes, foreign = [], []
    for path in report.records:
        now = report.files.get(path)
        written, before = (report.files.get(copy) for copy in list_kept_copies(path, report.state))
        if now is None or written is None or before is None:
            continue
        if now.sum not in (written.sum, before.sum) and "/.ssh/" in path and now.text is not None:
            # ssh itself adds lines to these: ours are taken out, and the others stay
            kept = set((before.text or "").splitlines(True))
            ours = set((written.text or "").splitlines(True)) - kept
            text = "".join(line for line in now.text.splitlines(True) if line not in ours)
            changes.append(FileChange(path, now.text, text if text or before.sum != ABSENT else None))
            continue
        if now.sum not in (written.sum, before.sum):
            foreign.append(FileChange(path, written.text, now.text))
        changes.append(FileChange(path, now.text, before.text))
    for path in report.made_keys:
        now = report.files.get(path)
        if now is not None and now.text is not None:
            changes.append(FileChange(path, now.text, None))
    groups = [one.partition(":") for one in report.groups]
    changes += [FileChange(GROUP_FILE, f"{group}: {user}\n", f"{group}:\n") for group, _, user in groups]
    return SetupStep(SetupStepKind.UNDO, "what was there before sparkctl set it up", tuple(changes)), tuple(foreign)


def _plan_docker_group(user: str, inspection: NodeInspection) -> SetupStep | None:
    line = None if inspection.setup is None else inspection.setup.group
    if line is None or line.count(":") != 3:
        return None
    joined = f"{line}{',' if not line.endswith(':') else ''}{user}\n"
    return SetupStep(
        SetupStepKind.DOCKER_GROUP,
        f"{user} may use Docker (which gives root on the node)",
        (FileChange(GROUP_FILE, f"{line}\n", joined),),
    )


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
