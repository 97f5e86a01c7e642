"""What has to go from one node to another, of what lies on both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.commands.transfer.transfer_files import (
    RESERVED_BYTES,
    SpaceNeed,
    SymbolicLink,
    TransferPlan,
    TransferRate,
    find_disk_shortage,
    list_file_needs,
    part_name,
    plan_transfer,
    resolve_doubtful_files,
)
from sparkctl.model.events import TransferPart, TransferProgressed
from sparkctl.model.node import NodeName
from sparkctl.node import transfer
from sparkctl.node.model_files_decoder import FileListing, FreeSpace, ModelFile
from sparkctl.views.event_text import format_transfer, render_transfer_bars

SECOND = 10**9
GIB = 1 << 30


def make_listing(*entries: ModelFile, parts: dict[str, int] | None = None, base: str = "/models/m") -> FileListing:
    return FileListing(
        place=base,
        kind="dir",
        base=base,
        entries=entries,
        denied=(),
        parts=parts or {},
        room=FreeSpace(path=base, there=base, free=100 * GIB, device=1, is_writable=True),
    )


def make_model_file(name: str, size: int = 100, when: int = 5, **changes: object) -> ModelFile:
    return replace(ModelFile(name=name, size=size, mtime=when * SECOND, mode=0o644), **changes)  # type: ignore[arg-type]


def test_only_changed_files_are_sent() -> None:
    source = make_listing(
        make_model_file("a"),
        make_model_file("b"),
        make_model_file("c", 7),
        make_model_file("d", when=9),
        ModelFile(name="l", size=0, mtime=0, mode=0, link="a"),
        base="/x/m",
    )
    target = make_listing(make_model_file("a"), make_model_file("c", 8), make_model_file("d"), make_model_file("own"))
    found = plan_transfer([(source, target)])
    assert [(one.name, one.source, one.base) for one in found.send] == [
        ("b", "/x/m/b", "/models/m"),
        ("c", "/x/m/c", "/models/m"),
    ]
    assert [one.name for one in found.doubtful] == ["d"]
    assert found.links == (SymbolicLink("/models/m", "l", "a"),)
    assert found.same == 1
    assert not found.is_done
    assert plan_transfer([(source, source)]).is_done


def test_what_differs_by_less_than_a_second_is_the_same() -> None:
    found = plan_transfer(
        [(make_listing(make_model_file("a")), make_listing(make_model_file("a", mtime=5 * SECOND + 999)))]
    )
    assert found.is_done


def test_a_file_named_by_its_content_needs_no_time() -> None:
    name = "blobs/" + "ab" * 32
    assert plan_transfer([(make_listing(make_model_file(name)), make_listing(make_model_file(name, when=8)))]).is_done
    assert plan_transfer(
        [(make_listing(make_model_file("blobs/readme")), make_listing(make_model_file("blobs/readme", when=8)))]
    ).doubtful


def test_a_part_of_the_same_state_of_a_file_goes_on() -> None:
    one = make_model_file("d/model.safetensors", 1000, 77)
    name = part_name(one.name, one.size, one.mtime)
    assert name == "d/.model.safetensors.1000-77.sparkctl-part"
    job = {"base": "/m", "name": "d/model.safetensors", "size": 1000, "mtime": 77 * SECOND + 3}
    assert f"d/{transfer.get_part_name(job)}" == name
    found = plan_transfer([(make_listing(one), make_listing(parts={name: 400}))])
    assert (found.total_bytes, found.present_bytes, found.missing_bytes) == (1000, 400, 600)
    later = plan_transfer([(make_listing(replace(one, mtime=78 * SECOND)), make_listing(parts={name: 400}))])
    assert later.present_bytes == 0


def test_checksums_decide_about_doubtful_files() -> None:
    found = plan_transfer(
        [
            (
                make_listing(make_model_file("a", when=1), make_model_file("b", when=1)),
                make_listing(make_model_file("a"), make_model_file("b")),
            )
        ]
    )
    done = resolve_doubtful_files(found, {one.number: one.name == "a" for one in found.doubtful})
    assert [one.name for one in done.send] == ["b"]
    assert [(one.base, one.name, one.mtime) for one in done.touch] == [("/models/m", "a", SECOND)]
    assert (done.same, done.doubtful) == (1, ())
    assert {one.number for one in done.send}.isdisjoint({one.number for one in found.send})


def test_what_lies_on_one_disk_shares_its_room() -> None:
    room = FreeSpace(path="/a", there="/", free=10 * GIB + RESERVED_BYTES, device=1)
    both = [SpaceNeed("files", 6 * GIB, room), SpaceNeed("image", 6 * GIB, replace(room, path="/b"))]
    assert [(need.what, missing) for need, missing in find_disk_shortage(both)] == [("image", 2 * GIB)]
    assert find_disk_shortage([both[0], SpaceNeed("image", 6 * GIB, replace(room, device=2))]) == []
    assert find_disk_shortage([SpaceNeed("files", 6 * GIB, replace(room, free=None))]) == []


def test_the_rate_is_of_the_last_seconds() -> None:
    pace = TransferRate(1000)
    assert pace.add_sample(0.0, 0) == (None, None)
    assert pace.add_sample(1.0, 100) == (100.0, 9.0)
    for second in range(2, 10):
        pace.add_sample(float(second), 100 + 50 * (second - 1))
    rate, left = pace.add_sample(10.0, 550)
    assert rate == 50.0
    assert left == 9.0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1 << 40))))
def test_whatever_comes_no_rate_is_negative(steps: list[tuple[float, int]]) -> None:
    pace, now = TransferRate(1 << 40), 0.0
    for wait, done in steps:
        now += wait
        rate, left = pace.add_sample(now, done)
        assert rate is None or rate > 0
        assert left is None or left >= 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 3)), unique_by=lambda one: one[0]))
def test_after_everything_has_gone_nothing_is_left_to_send(files: list[tuple[str, int, int]]) -> None:
    source = make_listing(*(make_model_file(name, size, when) for name, size, when in files))
    found = plan_transfer([(source, make_listing())])
    assert len(found.send) == len(files)
    assert found.total_bytes == sum(size for _, size, _ in files)
    assert plan_transfer([(source, make_listing(*source.entries))]) == TransferPlan(same=len(files))


def test_a_line_of_progress() -> None:
    moved = TransferProgressed(
        ts=0.0,
        node=NodeName("spark2"),
        source=NodeName("spark1"),
        what="files of q",
        done=12 * GIB,
        total=34 * GIB,
        rate=1.21e9,
        left=18.0,
    )
    assert format_transfer(moved, columns=None) == "files of q   12.0 GiB of 34.0 GiB   35 %   1.21 GB/s   0:18 left"
    assert format_transfer(replace(moved, total=None, rate=None, left=None), columns=None) == "files of q   12.0 GiB"


@pytest.mark.parametrize("columns", [72, 79, 90, 119])
def test_a_narrow_terminal_shortens_the_bar_and_the_name_and_never_the_figures(columns: int) -> None:
    coming = TransferProgressed(
        ts=0.0, node=NodeName("spark1"), source=NodeName("spark1"), what="image scitrera/dgx-spark-vllm:0.19.1",
        done=20 * GIB, total=21 * GIB, rate=1.2e10, left=18.0,
        parts=(TransferPart("model-00001-of-00012.safetensors", "Downloading", 3 * GIB, 4 * GIB),),
    )  # fmt: skip
    head, part = ("".join(span.text for span in row) for row in render_transfer_bars(coming, columns))
    assert max(len(head), len(part)) <= columns
    assert head.split("  ")[-4:] == ["20.0 GiB of 21.0 GiB", "95 %", "12.00 GB/s", "0:18 left"] or columns == 119
    assert part.endswith("3.0 GiB of 4.0 GiB")
    assert ("━━━━━" in head) is (columns >= 79)
    assert ("scitrera/dgx-spark-vllm" in head) is (columns == 119)
    whole = replace(coming, done=21 * GIB, left=None, parts=())
    assert len(format_transfer(whole, columns)) <= columns


def test_each_directory_needs_the_room_of_its_own_files_on_its_own_disk() -> None:
    small, large = make_listing(base="/data/m"), make_listing(base="/mnt/draft")
    small = replace(small, room=replace(small.room, path="/data/m", free=6 * GIB, device=1))
    large = replace(large, room=replace(large.room, path="/mnt/draft", free=40 * GIB, device=2))
    pairs = [
        (make_listing(make_model_file("a", GIB)), small),
        (make_listing(make_model_file("b", 20 * GIB)), large),
        (make_listing(make_model_file("c")), make_listing(make_model_file("c"))),
    ]
    needs = list_file_needs(plan_transfer(pairs), [target for _, target in pairs])
    assert [(need.what, need.size, need.room.path) for need in needs] == [
        ("the files in /data/m", GIB, "/data/m"), ("the files in /mnt/draft", 20 * GIB, "/mnt/draft"),
    ]  # fmt: skip
    assert find_disk_shortage(needs) == []
