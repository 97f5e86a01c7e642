"""The events of a node from its samples: an agent that starts again brings nothing new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.events import SampleArrived
from sparkctl.model.kernel_event import KernelEventKind, KernelLine, KernelReading
from sparkctl.model.node import NodeName
from sparkctl.model.sample import Sample
from sparkctl.monitor.kernel_log import KernelHistory
from sparkctl.monitor.store import Store
from sparkctl.views.event_log_view import describe_log_entry
from sparkctl.views.overview.overview_view import DrawArea
from sparkctl.views.overview.tile_model import build_tile_model
from sparkctl.views.overview.tile_rows import LABEL_COLUMNS, build_kernel_marks
from sparkctl.views.text.styled_text import TextStyle

NODE = NodeName("spark1")
OLD = KernelLine(at=100.0, text="EXT4-fs (nvme0n1p2): Remounting filesystem read-only")
NEW = KernelLine(at=5_010.0, text="NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.")


def make_sample(uptime: float, *lines: KernelLine) -> Sample:
    kernel = KernelReading(source="kmsg", oldest=0.5, skipped=0, lines=lines)
    return Sample(sequence=1, time=1_000_000.0 + uptime, uptime=uptime, kernel=kernel)


def test_old_lines_are_events_and_no_news() -> None:
    history = KernelHistory()
    assert history.add_sample(make_sample(5_000.0, OLD), "boot") == ()
    (news,) = history.add_sample(make_sample(5_012.0, NEW), "boot")
    assert (news.kind, news.at) == (KernelEventKind.XID, 1_005_010.0)
    assert history.add_sample(make_sample(5_020.0, OLD, NEW), "boot") == ()  # another agent reads all again
    assert [one.kind for one in history.events] == [KernelEventKind.FILESYSTEM, KernelEventKind.XID]


def test_many_events_do_not_make_the_latest_news_again() -> None:
    history = KernelHistory()
    history.add_sample(make_sample(5_000.0), "boot")
    for number in range(900):
        history.add_sample(
            make_sample(5_001.0 + number, KernelLine(at=5_001.0 + number, text=f"{NEW.text} ({number})")), "boot"
        )
    latest = KernelLine(at=5_900.0, text=f"{NEW.text} (899)")
    assert history.add_sample(make_sample(5_950.0, latest), "boot") == ()


def test_what_was_logged_while_nobody_was_connected_is_news_though_it_has_the_words_of_an_old_line() -> None:
    """The new agent counts all lines with the same words as one, which begins at the first of them."""
    words = "NVRM: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from x @ mem.c:1"
    history = KernelHistory()
    history.add_sample(make_sample(5_000.0, KernelLine(at=100.0, last=120.0, text=words, count=3)), "boot")
    again = KernelLine(at=100.0, last=6_030.0, text=words, count=33)
    (news,) = history.add_sample(make_sample(6_100.0, again), "boot")
    assert (news.kind, news.at, news.count) == (KernelEventKind.DRIVER_MEMORY, 1_006_030.0, 30)
    assert history.add_sample(make_sample(6_101.0, again), "boot") == ()
    assert [one.count for one in history.events] == [3, 30]


def test_another_boot_begins_anew() -> None:
    history = KernelHistory()
    history.add_sample(make_sample(5_000.0, OLD), "boot")
    history.add_sample(make_sample(20.0), "next")
    assert list(history.events) == []


def test_another_boot_of_a_node_that_tells_no_id_begins_anew() -> None:
    """Its uptime tells: a line of the new boot is at an earlier second than the last one of the old boot."""
    history = KernelHistory()
    history.add_sample(make_sample(5_000.0), None)
    history.add_sample(make_sample(5_012.0, NEW), None)
    (news,) = history.add_sample(make_sample(20.0, replace(NEW, at=15.0)), None)
    assert [one.last for one in history.events] == [news.last] == [1_000_015.0]


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_clock_that_is_set_moves_no_event(step: float) -> None:
    """By that clock it is as long ago as it was: for its finding, and for its mark under the curve."""
    history = KernelHistory()
    history.add_sample(make_sample(5_000.0, OLD), "boot")
    history.add_sample(make_sample(5_012.0, NEW), "boot")
    later = make_sample(5_014.0, replace(NEW, at=5_013.0, text=NEW.text.replace("79", "119")))
    (news,) = history.add_sample(replace(later, time=later.time + step), "boot")
    assert [later.time + step - one.last for one in history.events] == [4_914.0, 4.0, 1.0]
    assert news == history.events[-1]


def test_news_are_in_the_event_log_once_and_marked_under_the_memory_curve() -> None:
    store = Store([NODE])
    for uptime, line in ((5_000.0, OLD), (5_012.0, NEW), (5_014.0, NEW)):
        store.apply_event(SampleArrived(1_000_000.0 + uptime, NODE, make_sample(uptime, line), "boot"))
    (words,) = [describe_log_entry(entry)[0] for entry in store.event_log.entries]
    assert words == "kernel: Xid 79: the GPU has fallen off the bus: the driver cannot reach it any more"
    seen = build_tile_model(store, NODE, 1_005_014.0, chosen=None, offers=(), start_key=None, recent=(), address=None)
    block = build_kernel_marks(seen, DrawArea(100))
    assert block is not None
    (said,) = ("".join(span.text for span in row) for row in block.rows)
    assert said.startswith("kernel ")  # what it was is told by the finding
    assert said.count("▲") == 1
    block = build_kernel_marks(replace(seen, view=replace(seen.view, findings=())), DrawArea(100))
    assert block is not None
    marks, legend = ("".join(span.text for span in row) for row in block.rows)
    assert marks.rstrip().endswith("▲")
    assert marks.count("▲") == 1
    assert "▲ Xid 79" in legend


def test_a_mark_is_under_its_moment_of_the_curve_and_as_grave_as_its_event() -> None:
    store = Store([NODE])
    wifi = KernelLine(at=5_014.0, text="mt7925e 0000:01:00.0: Message 00020002 (seq 8) timeout")
    for uptime, line in ((5_000.0, OLD), (5_010.0, NEW), (5_014.0, wifi), (5_015.0, OLD)):
        store.apply_event(SampleArrived(1_000_000.0 + uptime, NODE, make_sample(uptime, line), "boot"))
    seen = build_tile_model(store, NODE, 1_005_015.0, chosen=None, offers=(), start_key=None, recent=(), address=None)
    space = DrawArea(100)
    block = build_kernel_marks(seen, space)
    assert block is not None
    for row, first, wide in ((block.rows[0], LABEL_COLUMNS, space.bar_columns - 3), (block.below[0], 0, 100)):
        text = "".join(span.text for span in row)
        assert [at for at, one in enumerate(text) if one == "▲"] == [first + int(wide * part / 15) for part in (10, 14)]
        assert [span.tone for span in row if span.text == "▲"] == [TextStyle.BAD, TextStyle.ATTENTION]


def test_a_curve_without_events_has_no_marks() -> None:
    store = Store([NODE])
    store.apply_event(SampleArrived(1_005_000.0, NODE, make_sample(5_000.0, OLD), "boot"))
    assert (
        build_kernel_marks(
            build_tile_model(store, NODE, 1_005_000.0, chosen=None, offers=(), start_key=None, recent=(), address=None),
            DrawArea(100),
        )
        is None
    )


def test_a_log_without_lines_was_read_and_one_that_no_sample_told_of_was_not() -> None:
    history = KernelHistory()
    history.add_sample(Sample(sequence=1, time=1_005_000.0, uptime=5_000.0), "boot")
    assert not history.is_read
    history.add_sample(make_sample(5_002.0), "boot")
    assert history.is_read
    assert not history.events
