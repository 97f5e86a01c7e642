"""What the logs of engines tell of how they run: of those that run already, and of a start that is watched."""

from __future__ import annotations

from pathlib import Path

from sparkctl.model.engine_metrics import EngineFact, EngineFactName
from sparkctl.model.events import ContainersListed, EngineFactsReported
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.node import NodeName
from sparkctl.monitor.store import Store
from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import controller_of, open_panel_on, wait_for_text


async def test_engines_that_run_already_are_told_of_by_what_they_compute(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        shown = await wait_for_text(pilot, lambda text: text.count("engine  ") == 2)
        assert "native FP4 · flash_attn · KV 1.21 M tokens" in shown
        assert "flashinfer" in shown
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, lambda text: "flash_attn" in text and "docker run" in text)
        await pilot.resize_terminal(80, 60)  # as high as the live figures and what is below them
        await wait_for_text(pilot, "native FP4 · attention flash_attn · KV 1,208,400 tokens")


async def test_a_fallback_is_a_note_of_its_instance(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        room = controller_of(pilot)
        view = room.store.find_instance(NodeName("spark2"), "qwen36-vllm")
        store = Store()
        fact = EngineFact(
            EngineFactName.QUANTIZATION_PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True
        )
        store.apply_event(room.store.get_record(NodeName("spark2")).state)
        store.apply_event(ContainersListed(ts=2e9, node=NodeName("spark2"), instances=(view,)))
        store.apply_event(EngineFactsReported(2e9, NodeName("spark2"), view.container_id, (fact,)))
        (found,) = (one for one in store.get_view(NodeName("spark2")).findings if one.kind is FindingKind.SLOW_PATH)
        assert (found.severity, found.instance) == (Severity.NOTE, "qwen36-vllm")
        assert "Marlin fallback" in found.summary
        store.apply_event(ContainersListed(ts=2e9 + 100, node=NodeName("spark2")))
        assert not store.get_view(NodeName("spark2")).findings, "gone with its container"
