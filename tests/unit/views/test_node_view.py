"""The node page: what a link moves by RDMA is there in any width."""

from __future__ import annotations

import pytest

from sparkctl.views.node_view import _list_link_forms

CELLS = ["200 Gb/s", "MTU 9000", "↓ 1.2 kB/s ↑ 1.2 kB/s", "RDMA roceP2p1s0f0 ↓ 11.4 GB/s ↑ 0.3 GB/s"]


@pytest.mark.parametrize("idle", [[], ["IDLE while rocep1s0f0 works: half of the link is unused"]])
def test_what_a_link_moves_by_rdma_stays_in_each_form(idle: list[str]) -> None:
    forms = _list_link_forms([*CELLS, *idle])
    assert forms[0].startswith("200 Gb/s  ↓ 1.2 kB/s")
    assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)
    assert all("↓ 11.4 GB/s ↑ 0.3 GB/s" in form for form in forms)
    assert forms[-1].startswith("RDMA ↓ 11.4 GB/s")
    assert _list_link_forms(CELLS[:3])[-1] == "↓ 1.2 kB/s ↑ 1.2 kB/s", "a link without RDMA has its traffic"
