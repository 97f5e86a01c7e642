"""What has to go from one node to another, of what lies on both."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.core.moving import SPARE, Course, Link, Need, Pace, course, part_name, settled, short
from sparkctl.model.events import Moved
from sparkctl.model.node import NodeName
from sparkctl.present.moving import moved_line
from sparkctl.probe import carry
from sparkctl.probe.surveyed import Entry, Room, Surveyed

SECOND = 10**9
GIB = 1 << 30


def place(*entries: Entry, parts: dict[str, int] | None = None, base: str = "/models/m") -> Surveyed:
    return Surveyed(base, "dir", base, entries, (), parts or {}, Room(base, base, 100 * GIB, 1, True))


def file(name: str, size: int = 100, when: int = 5, **changes: object) -> Entry:
    return replace(Entry(name, size, when * SECOND, 0o644), **changes)  # type: ignore[arg-type]


def test_only_what_differs_is_sent() -> None:
    source = place(file("a"), file("b"), file("c", 7), file("d", when=9), Entry("l", 0, 0, 0, "a"), base="/x/m")
    target = place(file("a"), file("c", 8), file("d"), file("own"))
    found = course([(source, target)])
    assert [(one.name, one.source, one.target) for one in found.send] == [
        ("b", "/x/m/b", "/models/m/b"),
        ("c", "/x/m/c", "/models/m/c"),
    ]
    assert [one.name for one in found.doubtful] == ["d"]
    assert found.links == (Link("/models/m", "l", "a"),)
    assert found.same == 1
    assert not found.is_done
    assert course([(source, source)]).is_done


def test_what_differs_by_less_than_a_second_is_the_same() -> None:
    found = course([(place(file("a")), place(file("a", mtime=5 * SECOND + 999)))])
    assert found.is_done


def test_a_file_named_by_its_content_needs_no_time() -> None:
    name = "blobs/" + "ab" * 32
    assert course([(place(file(name)), place(file(name, when=8)))]).is_done
    assert course([(place(file("blobs/readme")), place(file("blobs/readme", when=8)))]).doubtful


def test_a_part_of_the_same_state_of_a_file_goes_on() -> None:
    one = file("d/model.safetensors", 1000, 77)
    name = part_name(one.name, one.size, one.mtime)
    assert name == "d/.model.safetensors.1000-77.sparkctl-part"
    job = {"base": "/m", "name": "d/model.safetensors", "size": 1000, "mtime": 77 * SECOND + 3}
    assert f"d/{carry.part_name(job)}" == name
    found = course([(place(one), place(parts={name: 400}))])
    assert (found.total, found.have, found.missing) == (1000, 400, 600)
    later = course([(place(replace(one, mtime=78 * SECOND)), place(parts={name: 400}))])
    assert later.have == 0


def test_contents_decide_about_the_doubtful() -> None:
    found = course([(place(file("a", when=1), file("b", when=1)), place(file("a"), file("b")))])
    done = settled(found, {one.number: one.name == "a" for one in found.doubtful})
    assert [one.name for one in done.send] == ["b"]
    assert [(one.target, one.mtime) for one in done.touch] == [("/models/m/a", SECOND)]
    assert (done.same, done.doubtful) == (1, ())
    assert {one.number for one in done.send}.isdisjoint({one.number for one in found.send})


def test_what_lies_on_one_disk_shares_its_room() -> None:
    room = Room("/a", "/", 10 * GIB + SPARE, 1)
    both = [Need("files", 6 * GIB, room), Need("image", 6 * GIB, replace(room, path="/b"))]
    assert [(need.what, missing) for need, missing in short(both)] == [("image", 2 * GIB)]
    assert short([both[0], Need("image", 6 * GIB, replace(room, device=2))]) == []
    assert short([Need("files", 6 * GIB, replace(room, free=None))]) == []


def test_the_rate_is_of_the_last_seconds() -> None:
    pace = Pace(1000, [])
    assert pace.at(0.0, 0) == (None, None)
    assert pace.at(1.0, 100) == (100.0, 9.0)
    for second in range(2, 10):
        pace.at(float(second), 100 + 50 * (second - 1))
    rate, left = pace.at(10.0, 550)
    assert rate == 50.0
    assert left == 9.0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1 << 40))))
def test_whatever_comes_no_rate_is_negative(steps: list[tuple[float, int]]) -> None:
    pace, now = Pace(1 << 40, []), 0.0
    for wait, done in steps:
        now += wait
        rate, left = pace.at(now, done)
        assert rate is None or rate > 0
        assert left is None or left >= 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 3)), unique_by=lambda one: one[0]))
def test_after_everything_has_gone_nothing_is_left_to_send(files: list[tuple[str, int, int]]) -> None:
    source = place(*(file(name, size, when) for name, size, when in files))
    found = course([(source, place())])
    assert len(found.send) == len(files)
    assert found.total == sum(size for _, size, _ in files)
    assert course([(source, place(*source.entries))]) == Course(same=len(files))


def test_a_line_of_progress() -> None:
    moved = Moved(0.0, NodeName("spark2"), NodeName("spark1"), "files of q", 12 * GIB, 34 * GIB, 1.21e9, 18.0)
    assert moved_line(moved) == "files of q   12.0 GiB of 34.0 GiB   35 %   1.21 GB/s   0:18 left"
    assert moved_line(replace(moved, total=None, rate=None, left=None)) == "files of q   12.0 GiB"
