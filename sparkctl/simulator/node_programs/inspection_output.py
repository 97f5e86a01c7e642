"""The output of `node/node_inspection.sh` for a simulated node."""

from __future__ import annotations

import json

from sparkctl.engines.simulation.engine_launch import list_model_files
from sparkctl.model.text.units import KIB
from sparkctl.simulator import sim_node
from sparkctl.simulator.sim_node import (
    FABRIC_INTERFACES,
    FULL_DISK_FREE_BYTES,
    HOME,
    KERNEL_VERSION,
    LINK_MEGABITS,
    USER,
    NodeFault,
    SimNode,
    SudoRule,
    get_interface_address,
    get_interface_mtu,
    list_gids,
    list_interface_networks,
    list_link_speeds,
)

INSPECTION_SCRIPT_MARKER = "# sparkctl look 1"


def format_inspection(node: SimNode, sections: list[str]) -> str:
    """Return the output for the requested sections, in their order."""
    lines: list[str] = []
    for section in sections:
        name, _, argument = section.partition("=")
        if name in _ARGUMENT_SECTIONS and "=" in section:
            lines += [f"@@ {name} {argument}", *_ARGUMENT_SECTIONS[name](node, argument)]
        elif section in _SECTIONS:
            lines += _SECTIONS[section](node)
    return "\n".join([*lines, "@@ end", ""])


def _format_identity(node: SimNode) -> list[str]:
    return [
        "@@ identity",
        f"user {USER}",
        f"home {HOME}",
        f"host {node.name}",
        f"kernel {KERNEL_VERSION}",
        "machine aarch64",
        f"time {int(node.unix_time())}",
        "product DGX Spark",
        f"driver {node.options.driver}",
        "os 7.3.1",
    ]


def _format_memory(node: SimNode) -> list[str]:
    return ["@@ memory", *node.memory.format_meminfo().splitlines(), *node.format_vmstat().splitlines()]


def _format_processes(node: SimNode) -> list[str]:
    cgroups = sorted(f"/proc/{pid}/cgroup:{container}" for pid, container in node.processes.items())
    resident: list[str] = []
    for pid in sorted(node.processes):
        resident.append(f"/proc/{pid}/status:RssAnon:\t{node.memory.anonymous.get(pid, 0) // KIB:>8} kB")
        resident.append(f"/proc/{pid}/status:RssShmem:\t{0:>8} kB")
    return ["@@ cgroups", *cgroups, "@@ resident", *resident]


def _format_gpu(node: SimNode) -> list[str]:
    holders = [f"{pid}, {size >> 20}" for pid, size in sorted(node.memory.gpu.items()) if size]
    return ["@@ gpu", *holders, "status 0"]


def _format_listening_ports(node: SimNode) -> list[str]:
    rest = "00000000:00000000 00:00000000 00000000     0        0 21034 1 0000000000000000 100 0 0 10 0"
    ports = sorted({22, *node.ports})
    return ["@@ listen", *(f"{n:>4}: 00000000:{port:04X} 00000000:0000 0A {rest}" for n, port in enumerate(ports))]


def _format_docker(node: SimNode) -> list[str]:
    member = "yes" if node.options.docker_member else "no"
    gpu = node.options.gpu_runtime
    return [
        "@@ docker",
        "socket yes",
        f"access {member}",
        f"hook {'/usr/bin/nvidia-container-runtime-hook' if gpu else ''}",
        f"toolkit {'/usr/bin/nvidia-ctk' if gpu else ''}",
        f"cdi {'nvidia.yaml' if gpu else ''}",
        f"member {member}",
    ]


def _format_sudo(node: SimNode) -> list[str]:
    return ["@@ sudo", "drop allowed" if node.options.sudo is SudoRule.ALLOWED else "drop denied"]


def _format_health(node: SimNode) -> list[str]:
    return ["@@ health", "python 3.12.3", f"earlyoom {node.options.earlyoom}", "swappiness 60", "min_free_kbytes 45056"]


def encode_file_check(node: SimNode, places: list[str]) -> bytes:
    """Return the output of `node/weights_check.py` for the models in these places."""
    lines = []
    for place in places:
        there = [] if node.lacks_path(place) else [line for line in list_model_files(place) if line.startswith("file ")]
        message = {
            "place": place,
            "files": 0 if place in node.options.hidden else len(there),
            "faults": ["model-00001.safetensors: it is cut off: 4096 of 8192 bytes are there"]
            if place in node.options.cut
            else [],
            "unread": ["."] if place in node.options.hidden else [],
            "tensors": json.loads(dict(node.options.tensors).get(place, "null")),
        }
        lines.append(f"@@ {json.dumps(message)}")
    return "\n".join([*lines, '@@ "end"', ""]).encode()


def _format_journal(node: SimNode) -> list[str]:
    there = ["file none"] if node.journal is None else ["file ours", f"text {node.journal}"]
    return ["@@ journal", *there, f"held {'yes' if node.locks else 'no'}"]


def _format_fabric(node: SimNode) -> list[str]:
    """Return the fabric's lanes; RoCE v2 addresses have the same indexes as in the agent's report."""
    lines = ["@@ fabric", "devices yes"]
    for name, speed in list_link_speeds(node).items():
        lines.append(f"link {name} {get_interface_mtu(name)} {speed}")
        if (own := get_interface_address(node, name)) is not None:
            lines.append(f"address {name} {own}/24")
    for device, name in FABRIC_INTERFACES.items():
        lines.append(f"device {device} {name}")
        own = get_interface_address(node, name)
        index = next(
            (one["index"] for one in list_gids(node, name) if one["address"] == own and one["type"] == "RoCE v2"), None
        )
        if own is not None and index is not None:
            high, low = (f"{int(a):02x}{int(b):02x}" for a, b in (own.split(".")[:2], own.split(".")[2:]))
            lines.append(f"gid {device} {index} 0000:0000:0000:0000:0000:ffff:{high}:{low}")
    return lines


def _format_network(node: SimNode) -> list[str]:
    """Return all interfaces of a node, as `ip` prints them as JSON; those without a cable, too."""
    links, routes = [], [{"dst": "default", "gateway": "192.168.1.1", "dev": "enP7s7"}]
    speeds = list_link_speeds(node)
    for name in LINK_MEGABITS:
        own = get_interface_address(node, name)
        found = [] if own is None else [{"family": "inet", "local": own, "prefixlen": 24, "scope": "global"}]
        flags = ["BROADCAST", "MULTICAST", "UP", *(["LOWER_UP"] if name in speeds else [])]
        links.append({"ifname": name, "flags": flags, "mtu": get_interface_mtu(name), "addr_info": found})
        routes += [{"dst": network, "dev": name} for network in list_interface_networks(node, name)]
    devices = [f"device {device} {name}" for device, name in FABRIC_INTERFACES.items()]
    return ["@@ network", f"addresses {json.dumps(links)}", f"routes {json.dumps(routes)}", *devices]


def _format_setup(node: SimNode) -> list[str]:
    members = USER if node.options.docker_member else ""
    return ["@@ setup", f"group docker:x:998:{members}", "netplan yes", "state no"]


def _format_disk(node: SimNode, path: str) -> list[str]:
    if node.lacks_path(path):
        return [f"df: {path}: No such file or directory"]
    if NodeFault.FULL_DISK in node.options.troubles:
        return [
            f"/dev/nvme0n1p2     3780636740 {3780636740 - (FULL_DISK_FREE_BYTES // KIB)} {FULL_DISK_FREE_BYTES // KIB}     100% /"
        ]
    return ["/dev/nvme0n1p2     3780636740 1204311480 2384206868      34% /"]


def _format_path(node: SimNode, path: str) -> list[str]:
    if path in node.options.hidden:
        return ["hidden"]
    return ["missing" if node.lacks_path(path) else "exists"]


def _format_model(node: SimNode, place: str) -> list[str]:
    if place in node.options.hidden:
        return ["there unknown"]
    return ["there no"] if node.lacks_path(place) else list_model_files(place)[1:]


_ARGUMENT_SECTIONS = {"disk": _format_disk, "path": _format_path, "model": _format_model}
_SECTIONS = {
    "identity": _format_identity,
    "memory": _format_memory,
    "processes": _format_processes,
    "procs": sim_node.format_processes,
    "shm": sim_node.format_shared_memory,
    "gpu": _format_gpu,
    "listen": _format_listening_ports,
    "docker": _format_docker,
    "sudo": _format_sudo,
    "health": _format_health,
    "fabric": _format_fabric,
    "journal": _format_journal,
    "network": _format_network,
    "setup": _format_setup,
}
