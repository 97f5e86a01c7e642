"""The lab's network: a namespace per node on one bridge with the host, and a fabric link between the two nodes.

The host reaches the LAN addresses only; the fabric belongs to the two nodes alone, as in life.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tests.lab.bed.names import ADDRESSES, BRIDGE, FABRIC, GATEWAY, LAN, NAMESPACE
from tests.lab.bed.shell import ip, run

MOUNTED = Path("/run/netns")


def get_namespace_name(node: str) -> str:
    """Return the name of the node's network namespace."""
    return f"{NAMESPACE}-{node}"


def get_namespace_path(node: str) -> Path:
    """Return the file that holds the namespace."""
    return MOUNTED / get_namespace_name(node)


def create_network() -> None:
    """Make namespaces, bridge and links; what is already there stays."""
    if BRIDGE not in _list_links():
        ip(f"link add {BRIDGE} type bridge forward_delay 0", f"addr add {GATEWAY}/24 dev {BRIDGE}")
    ip(f"link set {BRIDGE} up")
    for node, (address, _) in ADDRESSES.items():
        netns = get_namespace_name(node)
        if not get_namespace_path(node).exists():
            ip(f"netns add {netns}")
        if LAN not in _list_links(netns):
            ip(f"link add v-{netns} type veth peer name {LAN} netns {netns}", f"link set v-{netns} master {BRIDGE} up")
        ip("link set lo up", f"addr replace {address}/24 dev {LAN}", f"link set {LAN} up", netns=netns)
    _create_fabric()


def _create_fabric() -> None:
    one, two = (get_namespace_name(node) for node in ADDRESSES)
    if FABRIC not in _list_links(one):
        peer = f"type veth peer name {FABRIC} netns {two} mtu 9000"
        ip(f"link add {FABRIC} netns {one} mtu 9000 {peer}")
    for node, (_, address) in ADDRESSES.items():
        ip(f"addr replace {address}/24 dev {FABRIC}", f"link set {FABRIC} up", netns=get_namespace_name(node))


def remove_network() -> None:
    """Remove everything `up` made; nothing there is no error."""
    for node in ADDRESSES:
        run("ip", "link", "del", f"v-{get_namespace_name(node)}", check=False)
        if get_namespace_path(node).exists():
            run("ip", "netns", "del", get_namespace_name(node))
    run("ip", "link", "del", BRIDGE, check=False)
    if MOUNTED.is_dir() and not any(MOUNTED.iterdir()):  # ip netns leaves its own mount point behind
        run("umount", str(MOUNTED), check=False)
        with contextlib.suppress(OSError):
            MOUNTED.rmdir()


def _list_links(netns: str | None = None) -> set[str]:
    listed = run("ip", *(("-n", netns) if netns else ()), "-j", "link", "show")
    return {link["ifname"] for link in json.loads(listed or "[]")}
