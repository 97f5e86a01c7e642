"""The addresses of the cable: from what two Sparks say of their interfaces to the netplan file of each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.setup.setup_nodes import plan_setup
from sparkctl.commands.setup.setup_plan import (
    CableEnd,
    build_cable_route,
    find_wrong_lanes,
    format_netplan,
    plan_cable,
)
from sparkctl.errors import OperationRefused
from sparkctl.model.fabric_route import ConfiguredInterface
from sparkctl.model.node import Node, NodeName
from sparkctl.node.node_inspection import NetworkReadings, NodeInspection

ONE, OTHER = NodeName("spark1"), NodeName("spark2")
LAN = ConfiguredInterface(name="enP7s7", has_carrier=True, addresses=("192.168.1.11/24",), mtu=1500)


def lane(
    name: str, *addresses: str, mtu: int = 1500, has_carrier: bool = True, device: str | None = None
) -> ConfiguredInterface:
    return ConfiguredInterface(name=name, has_carrier=has_carrier, addresses=addresses, mtu=mtu, device=device)


def port(
    number: int, *, first: str = "", second: str = "", mtu: int = 1500, has_carrier: bool = True
) -> list[ConfiguredInterface]:
    """Return both functions of a ConnectX port, in the order in which `ip` lists them."""
    return [
        lane(
            f"enp1s0f{number}np{number}",
            *filter(None, [first]),
            mtu=mtu,
            has_carrier=has_carrier,
            device=f"rocep1s0f{number}",
        ),
        lane(f"enP2p1s0f{number}np{number}", *filter(None, [second]), mtu=mtu, has_carrier=has_carrier),
    ]


def seen(*interfaces: ConfiguredInterface, routes: tuple[str, ...] = ()) -> NetworkReadings:
    return NetworkReadings((LAN, *interfaces), ("192.168.1.0/24", *routes))


def plan(one: NetworkReadings, other: NetworkReadings, **chosen: str) -> tuple[CableEnd, CableEnd] | None:
    ends, left_out = plan_cable({ONE: one, OTHER: other}, {NodeName(name): its for name, its in chosen.items()})
    assert left_out == ()
    return ends


def list_addresses(ends: tuple[CableEnd, CableEnd] | None) -> list[list[str]]:
    assert ends is not None
    return [[f"{interface.name} {address}" for interface, address in end.lanes] for end in ends]


def test_a_bare_cable_gets_a_network_for_each_function() -> None:
    ends = plan(seen(*port(0), *port(1, has_carrier=False)), seen(*port(0), *port(1, has_carrier=False)))
    assert list_addresses(ends) == [
        ["enp1s0f0np0 192.168.200.11/24", "enP2p1s0f0np0 192.168.201.11/24"],
        ["enp1s0f0np0 192.168.200.12/24", "enP2p1s0f0np0 192.168.201.12/24"],
    ]


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        (seen(*port(0), routes=("192.168.200.0/23",)), seen(*port(0)), "192.168.202.11/24"),
        (seen(*port(0)), seen(*port(0), lane("wg0", "192.168.200.7/24")), "192.168.201.11/24"),
        (seen(*port(0), routes=("192.168.0.0/16",)), seen(*port(0)), "10.77.0.11/24"),
        (seen(*port(0), routes=("192.168.0.0/16", "10.0.0.0/8")), seen(*port(0)), "172.29.0.11/24"),
    ],
)
def test_the_addresses_collide_with_nothing_on_either_node(
    one: NetworkReadings, other: NetworkReadings, first: str
) -> None:
    assert list_addresses(plan(one, other))[0][0] == f"enp1s0f0np0 {first}"


def test_a_complete_cable_is_left_alone() -> None:
    one = seen(*port(0, first="192.168.177.1/24", second="192.168.178.1/24", mtu=9000))
    other = seen(*port(0, first="192.168.177.2/24", second="192.168.178.2/24", mtu=9000))
    assert plan(one, other) is None


def test_addresses_that_both_share_stay_and_the_rest_is_completed() -> None:
    one = seen(*port(0, first="192.168.177.1/24", mtu=1500))
    other = seen(*port(0, first="192.168.177.2/24", mtu=9000))
    assert list_addresses(plan(one, other)) == [
        ["enp1s0f0np0 192.168.177.1/24", "enP2p1s0f0np0 192.168.200.11/24"],
        ["enp1s0f0np0 192.168.177.2/24", "enP2p1s0f0np0 192.168.200.12/24"],
    ]


@pytest.mark.parametrize("shared", ["169.254.3.4/16", "192.168.177.1/24"])
def test_link_local_addresses_and_one_network_for_both_functions_do_not_count(shared: str) -> None:
    peer = shared.replace(".4/", ".5/").replace(".1/", ".2/")
    ends = plan(
        seen(*port(0, first=shared, second=shared, mtu=9000)), seen(*port(0, first=peer, second=peer, mtu=9000))
    )
    networks = {address.network for _, address in (ends or ())[0].lanes}
    assert len(networks) == 2
    assert not any(network.is_link_local for network in networks)


def test_the_ports_at_both_ends_may_differ_and_the_config_may_choose() -> None:
    crossed = plan(seen(*port(1)), seen(*port(0)))
    assert list_addresses(crossed)[0][0].startswith("enp1s0f1np1 ")
    assert list_addresses(crossed)[1][0].startswith("enp1s0f0np0 ")
    both = seen(*port(0), *port(1))
    assert list_addresses(plan(both, both, spark1="enp1s0f1np1", spark2="enP2p1s0f1np1"))[0][0].startswith(
        "enp1s0f1np1 "
    )
    other = plan(seen(lane("eth5")), seen(lane("eth6")), spark1="eth5", spark2="eth6")
    assert [len(end.lanes) for end in other or ()] == [1, 1]


def test_a_function_without_a_link_at_one_end_is_left_out_and_named() -> None:
    near, far = port(0), port(0)
    far[1] = replace(far[1], has_carrier=False)
    ends, left_out = plan_cable({ONE: seen(*near), OTHER: seen(*far)}, {})
    assert list_addresses(ends) == [["enp1s0f0np0 192.168.200.11/24"], ["enp1s0f0np0 192.168.200.12/24"]]
    assert left_out == ("enP2p1s0f0np0 of spark2 has no link",)
    ends, left_out = plan_cable({ONE: seen(*near), OTHER: seen(far[0])}, {})
    assert left_out == ("spark2 has nothing that belongs to enP2p1s0f0np0 of spark1",)
    assert len((ends or ())[0].lanes) == 1


def test_functions_of_different_domains_are_never_paired() -> None:
    near, far = port(0), port(0)
    near[1], far[0] = replace(near[1], has_carrier=False), replace(far[0], has_carrier=False)
    with pytest.raises(
        OperationRefused, match="enP2p1s0f0np0 of spark1 has no link; enp1s0f0np0 of spark2 has no link"
    ):
        plan_cable({ONE: seen(*near), OTHER: seen(*far)}, {})


def test_half_a_cable_is_not_called_complete() -> None:
    near = port(0, first="192.168.177.1/24", second="192.168.178.1/24", mtu=9000)
    far = port(0, first="192.168.177.2/24", second="192.168.178.2/24", mtu=9000)
    far[1] = replace(far[1], has_carrier=False)
    count = {node: NodeInspection(network=seen(*its)) for node, its in ((ONE, near), (OTHER, far))}
    state = plan_setup(count, [Node(name=node, host=str(node)) for node in count])
    assert (state.ends, state.fine) == ((), [])
    assert [words for _, words, _ in state.notes] == [
        "half of the cable is not used: enP2p1s0f0np0 of spark2 has no link"
    ]


@pytest.mark.parametrize(
    ("one", "chosen", "words"),
    [
        (seen(), {}, "no ConnectX port of spark1 has a link"),
        (seen(*port(0, has_carrier=False)), {}, "enp1s0f0np0"),
        (seen(*port(0)), {"spark1": "eth9"}, "no interface eth9"),
        (seen(lane("x;reboot")), {"spark1": "x;reboot"}, "no interface x;reboot"),
    ],
)
def test_without_a_cable_it_is_refused_with_what_is_there(
    one: NetworkReadings, chosen: dict[str, str], words: str
) -> None:
    with pytest.raises(OperationRefused, match=words):
        plan(one, seen(*port(0)), **chosen)


def test_the_file_names_both_functions_and_the_proof_names_what_is_missing() -> None:
    ends = plan(seen(*port(0)), seen(*port(0)))
    assert ends is not None
    text = format_netplan(ends[0], OTHER)
    assert text.splitlines()[1:5] == ["network:", "  version: 2", "  ethernets:", "    enp1s0f0np0:"]
    assert text.count("      mtu: 9000\n") == 2
    assert "      addresses: [192.168.201.11/24]\n" in text
    assert ends[0].format_lanes_now() == ("enp1s0f0np0 1500", "enP2p1s0f0np0 1500")
    now = seen(lane("enp1s0f0np0", "192.168.200.11/24", mtu=1500), lane("enP2p1s0f0np0", mtu=9000))
    assert find_wrong_lanes(ends[0], now) == [
        "spark1: the MTU of enp1s0f0np0 is 1500",
        "spark1: enP2p1s0f0np0 does not have 192.168.201.11/24",
    ]
    done = seen(*port(0, first="192.168.200.11/24", second="192.168.201.11/24", mtu=9000))
    assert find_wrong_lanes(ends[0], done) == []
    assert [one.network for one in build_cable_route(ends).head_end.lanes] == ["192.168.200.0/24", "192.168.201.0/24"]


@pytest.mark.parametrize("manager", ["networkd", "NetworkManager"])
def test_netplan_itself_takes_the_file(tmp_path: Path, manager: str) -> None:
    """The real netplan makes files for either of its renderers of it, with both addresses and the large MTU."""
    if (netplan := shutil.which("netplan", path=f"{os.environ['PATH']}:/usr/sbin")) is None:
        pytest.skip("no netplan here")
    (end, _) = plan(seen(*port(0)), seen(*port(0))) or pytest.fail("no plan")
    place = tmp_path / "etc/netplan"
    place.mkdir(parents=True)
    files = {
        "01-all.yaml": f"network:\n  version: 2\n  renderer: {manager}\n",
        "90-sparkctl.yaml": format_netplan(end, OTHER),
    }
    for name, text in files.items():
        (place / name).touch(0o600)
        (place / name).write_text(text)
    done = subprocess.run(
        [netplan, "generate", "--root-dir", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    made = {one.name: one.read_text() for one in tmp_path.glob("run/*/*/*") if one.is_file()}
    suffix, mtu = {"networkd": (".network", "MTUBytes=9000"), "NetworkManager": (".nmconnection", "mtu=9000")}[manager]
    for lane_, address in end.lanes:
        (text,) = [text for name, text in made.items() if name.endswith(f"-{lane_.name}{suffix}")]
        assert re.search(rf"^(Address|address1)={re.escape(str(address))}$", text, re.MULTILINE)
        assert mtu in text
