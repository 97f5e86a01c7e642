"""Who is at the other end of a cable is told where addresses tell it, and is not asserted where they do not."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.events import NodeStateChanged
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.sample import NetworkInterface, RdmaLane, Sample
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.overview.fabric_view import render_fabric
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.text.styled_text import join_text


def make_tile(name: str, *networks: str | None, carrier: bool = True) -> NodeTileModel:
    """A Spark with a fast port for each of these networks; None: which it has is not known."""
    links = tuple(
        NetworkInterface(
            name=f"fast{at}", carrier=carrier, speed=200_000, send_rate=1e9, receive_rate=2e9,
            networks=None if one is None else tuple(one.split()),
        )
        for at, one in enumerate(networks)
    )  # fmt: skip
    rdma = tuple(RdmaLane(name=f"roce{at}", interface=one.name, send_rate=1e9) for at, one in enumerate(links))
    office = NetworkInterface(name="eth0", carrier=True, speed=10_000, networks=("192.168.0.0/24",))
    sample = Sample(sequence=1, time=10.0, uptime=10.0, memory=2.0, links=(*links, office), rdma=rdma)
    view = NodeTelemetryView(name=NodeName(name), state=NodeState.OK, when=10.0, sample=sample)
    return NodeTileModel(
        view=view, connection=NodeStateChanged(ts=10.0, node=NodeName(name), state=NodeState.OK), now=10.0
    )


def render_fabric_rows(*glances: NodeTileModel) -> list[str]:
    return [join_text(one).strip() for one in render_fabric(glances)]


def test_two_with_a_network_in_common_are_linked() -> None:
    found = render_fabric_rows(
        make_tile("one", "10.0.1.0/24", "10.0.2.0/24"), make_tile("two", "10.0.1.0/24", "10.0.2.0/24")
    )
    assert found == ["one ══ 200G ══ two   ↑   4.0  ↓   4.0 GB/s   2 functions up"]


def test_neighbours_in_the_config_without_one_are_not_said_to_be_linked() -> None:
    assert render_fabric_rows(make_tile("one", "10.0.1.0/24"), make_tile("two", "10.9.9.0/24")) == [
        "one   200G up: fast0   no address in common with another Spark",
        "two   200G up: fast0   no address in common with another Spark",
    ]
    assert (
        render_fabric_rows(make_tile("one", None), make_tile("two", "10.0.1.0/24"))[0]
        == "one   200G up: fast0   the other end is not known"
    )


def test_of_one_that_does_not_answer_nothing_is_said_about_its_addresses() -> None:
    away = make_tile("two", "10.0.1.0/24")
    away = replace(away, connection=replace(away.connection, state=NodeState.UNREACHABLE))
    assert render_fabric_rows(make_tile("one", "10.0.1.0/24"), away) == [
        "one   200G up: fast0   the other end is not known"
    ]


def test_the_peer_is_found_wherever_it_stands_in_the_config() -> None:
    found = render_fabric_rows(
        make_tile("one", "10.0.1.0/24"),
        make_tile("two", "10.0.2.0/24"),
        make_tile("three", "10.0.1.0/24"),
        make_tile("four", "10.0.2.0/24"),
    )
    assert [one.partition("   ")[0] for one in found] == ["one ══ 200G ══ three", "two ══ 200G ══ four"]


def test_behind_a_switch_all_are_in_one_row_without_a_claim_about_who_sends_to_whom() -> None:
    net = "10.0.1.0/24"
    assert render_fabric_rows(make_tile("one", net), make_tile("two", net), make_tile("three", net)) == [
        "══ 200G ══ all 3   in 10.0.1.0/24"
    ]
    found = render_fabric_rows(
        make_tile("one", net), make_tile("two", net), make_tile("three", net), make_tile("four", carrier=False)
    )
    assert found == ["══ 200G ══ one, two, three   in 10.0.1.0/24"]


def test_a_network_of_the_office_and_a_port_without_a_carrier_link_nothing() -> None:
    assert render_fabric_rows(make_tile("one"), make_tile("two")) == []
    assert render_fabric_rows(make_tile("one", "10.0.1.0/24"), make_tile("two", "10.0.1.0/24", carrier=False)) == [
        "one   200G up: fast0   no address in common with another Spark"
    ]
    assert render_fabric_rows(make_tile("one", "10.0.1.0/24")) == []
