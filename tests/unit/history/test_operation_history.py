"""What is kept on disk: private, never cut short, and never the reason why work stops."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.clock import SystemClock
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations, Phase, PhaseDuration
from sparkctl.model.text.log_line import LogLine
from sparkctl.views.history_view import build_history_row

ID = "0123456789ab" + "c" * 52


@contextmanager
def simulate_full_disk(size: int) -> Iterator[None]:
    """No file of this process may grow over ``size`` bytes: a write fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)


def make_log_lines(count: int, text: str = "line") -> list[LogLine]:
    return [LogLine(when=f"2026-05-01T10:00:00.{n:09d}Z", text=f"{text} {n}", number=n) for n in range(count)]


@pytest.fixture
def history(tmp_path: Path) -> OperationHistory:
    return OperationHistory(tmp_path / "above" / "state")


def save_log(history: OperationHistory, count: int, *, whole: bool, node: str = "spark1") -> Path:
    writer = history.open_log_writer("qwen36", node, ID, ())
    writer.write(make_log_lines(count))
    writer.close(whole)
    assert writer.failed is None
    return writer.path


def test_a_full_disk_turns_the_writer_off_and_raises_nothing(history: OperationHistory) -> None:
    writer = history.open_log_writer("qwen36", "spark1", ID, ())
    with simulate_full_disk(1000):
        writer.write(make_log_lines(10))
        assert writer.failed is None
        writer.write(make_log_lines(5000))
        assert isinstance(writer.failed, OSError)
        first = writer.failed
        writer.write(make_log_lines(1))
        writer.close(whole=True)
    assert writer.failed is first
    assert writer.path.read_text().startswith("2026-05-01T10:00:00.000000000Z line 0\n")


def test_a_part_never_replaces_what_is_longer(history: OperationHistory) -> None:
    path = save_log(history, 100, whole=True)
    long = path.read_text()
    assert save_log(history, 3, whole=False) == path
    assert path.read_text() == long
    with simulate_full_disk(1000):
        writer = history.open_log_writer("qwen36", "spark1", ID, ())
        writer.write(make_log_lines(500))
        writer.close(whole=True)
    assert path.read_text() == long
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_is_whole_or_longer_replaces_under_the_same_name(history: OperationHistory) -> None:
    path = save_log(history, 10, whole=False)
    assert save_log(history, 20, whole=False) == path
    assert len(path.read_text().splitlines()) == 20
    save_log(history, 15, whole=True)
    assert len(path.read_text().splitlines()) == 15
    assert [log.path for log in history.list_saved_logs("qwen36")] == [path]
    assert history.list_saved_logs("qwen36")[0].short_container_id == ID[:12]


@pytest.mark.parametrize("is_whole", [True, False])
def test_of_two_writers_of_one_log_what_is_longer_stays(history: OperationHistory, is_whole: bool) -> None:
    first, second = (history.open_log_writer("qwen36", "spark1", ID, ()) for _ in range(2))
    assert first.path == second.path
    first.write(make_log_lines(3))
    second.write(make_log_lines(5))
    second.close(whole=True)
    first.write(make_log_lines(20, "later"))
    first.close(is_whole)
    assert first.failed is None
    assert [line.split(" ", 1)[1] for line in first.path.read_text().splitlines()][-1] == "later 19"
    assert [file.name for file in first.path.parent.iterdir()] == [first.path.name]


def test_a_writer_that_has_less_leaves_the_other_ones_log(history: OperationHistory) -> None:
    first, second = (history.open_log_writer("qwen36", "spark1", ID, ()) for _ in range(2))
    first.write(make_log_lines(3))
    second.write(make_log_lines(5))
    second.close(whole=True)
    first.close()
    first.close()  # as `save_log` does in any case
    assert len(first.path.read_text().splitlines()) == 5
    assert len(list(first.path.parent.iterdir())) == 1


def test_an_unfinished_file_is_no_saved_log_and_is_cleared_away(history: OperationHistory) -> None:
    path = save_log(history, 10, whole=True)
    writer = history.open_log_writer("qwen36", "spark1", ID, ())
    writer.write(make_log_lines(50))  # and then the power goes
    assert len(history.list_saved_logs("qwen36")) == 1
    assert len(path.read_text().splitlines()) == 10
    (left,) = (file for file in path.parent.iterdir() if file != path)
    os.utime(left, (0, 0))
    history.open_log_writer("qwen36", "spark1", "f" * 64, ()).close()
    assert not left.exists()


def test_old_logs_are_pruned(history: OperationHistory) -> None:
    folder = save_log(history, 1, whole=True).parent
    for day in range(10, 31):
        (folder / f"202601{day}-000000-{'a' * 12}.log").write_text("")
    history.open_log_writer("qwen36", "spark1", "f" * 64, ()).close()
    assert len(list(folder.iterdir())) == 20
    assert (folder / f"20260130-000000-{'a' * 12}.log").exists()


def test_history_directories_are_private(history: OperationHistory, tmp_path: Path) -> None:
    path = save_log(history, 1, whole=True)
    assert save_log(history, 2, whole=True) == path
    history.record_start("qwen36", "0123", "spark1", 400.0)
    for made in (tmp_path / "above").rglob("*"):
        assert made.stat().st_mode & 0o777 == (0o700 if made.is_dir() else 0o600), made
    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o700


def test_the_logs_of_an_ad_hoc_node_with_a_port_are_found(history: OperationHistory) -> None:
    node = "milo@[fe80::1]:2222"
    path = save_log(history, 1, whole=True, node=node)
    save_log(history, 1, whole=True, node="spark2")
    assert [(log.path, log.node) for log in history.list_saved_logs("qwen36", [node])] == [(path, node)]
    assert history.list_saved_logs("qwen36", ["milo@[fe80::1]:2223"]) == []
    assert len(history.list_saved_logs("qwen36")) == 2


def test_names_that_differ_in_one_odd_character_have_folders_of_their_own(history: OperationHistory) -> None:
    nodes = ["milo@host:22", "milo@host/22"]
    paths = [save_log(history, 1, whole=True, node=node) for node in nodes]
    assert len(set(paths)) == 2
    for node, path in zip(nodes, paths, strict=True):
        assert [log.path for log in history.list_saved_logs("qwen36", [node])] == [path]
    assert save_log(history, 1, whole=True, node="milo@host").parent.name == "milo@host", (
        "what needs no change is its own"
    )


def test_what_an_earlier_version_kept_under_its_name_is_found(history: OperationHistory) -> None:
    path = save_log(history, 1, whole=True, node="milo@host_22")
    receipt = history.save_receipt("qwen36", "milo@host_22", ID, "{}")
    assert history.find_receipt("qwen36", "milo@host:22", ID) == receipt
    assert history.open_log_writer("qwen36", "milo@host:22", ID, ()).path == path


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "-3", '"40"', "null", "1" + "0" * 400])
def test_a_duration_that_is_none_is_ignored(history: OperationHistory, seconds: str) -> None:
    history.record_start("qwen36", "0123", "spark1", 400.0)
    with (history.directory / "starts.jsonl").open("a") as file:
        file.write(f'{{"profile": "qwen36", "hash": "0123", "node": "spark1", "seconds": {seconds}}}\n{{"half')
    assert history.get_expected_durations("qwen36", "0123", "spark1").seconds == 400.0


# failed starts and receipts


def record_failure(
    history: OperationHistory, when: float, how: str = "crashed", container: str = ID, node: str = "spark1"
) -> None:
    history.record_failure("qwen36", "hash", node, how, container, when)


def test_failures_without_a_container_count_each_time(history: OperationHistory) -> None:
    history.record_start("qwen36", "hash", "spark1", 400.0, when=900.0)
    record_failure(history, 1000.0)
    for when in (1001.0, 1002.0):
        record_failure(history, when, "port-in-use", container="")
    failures = history.get_failures_since_ready("qwen36", "spark1", 0.0)
    assert failures == ((1000.0, "crashed"), (1001.0, "port-in-use"), (1002.0, "port-in-use"))


def test_a_kind_of_operation_that_a_newer_version_wrote_is_shown_as_its_word(history: OperationHistory) -> None:
    history.record_start("qwen36", "hash", "spark1", 400.0)
    with sqlite3.connect(history.directory / "history.db") as file:
        file.execute("UPDATE operations SET kind = 'restart\x1b[2J'")
    (one,) = history.list_operations()
    assert one.kind == "restart\x1b[2J"
    assert build_history_row(one).what.startswith("restart")
    assert "\x1b" not in build_history_row(one).what


def test_failures_count_since_the_last_good_start_and_only_lately(history: OperationHistory) -> None:
    record_failure(history, 100.0, container="a" * 64)
    history.record_start("qwen36", "hash", "spark1", 300.0)
    record_failure(history, 200.0, "bad-flag", "b" * 64)
    record_failure(history, 300.0, "guard-stopped", "c" * 64)
    record_failure(history, 300.0, "crashed", "d" * 64, node="spark2")
    assert history.get_failures_since_ready("qwen36", "spark1", 0.0) == (
        (200.0, "unknown-flag"),
        (300.0, "guard-stopped"),
    )
    assert history.get_failures_since_ready("qwen36", "spark1", 250.0) == ((300.0, "guard-stopped"),)
    assert history.get_failures_since_ready("other", "spark1", 0.0) == ()
    assert history.get_expected_durations("qwen36", "hash", "spark1").seconds == 300.0


def test_the_same_container_fails_once_whoever_tells_it(history: OperationHistory) -> None:
    record_failure(history, 100.0, "guard-stopped")
    record_failure(history, 103.0, "guard-stopped", ID[:12])
    assert history.get_failures_since_ready("qwen36", "spark1", 0.0) == ((100.0, "guard-stopped"),)


def test_a_damaged_history_counts_what_can_be_read(history: OperationHistory) -> None:
    record_failure(history, 100.0)
    with (history.directory / "starts.jsonl").open("a") as file:
        file.write('{"profile": "qwen36", "node": "spark1", "failed": 7, "ts": 1}\n[1]\n')
        file.write('{"profile": "qwen36", "node": "spark1", "failed": "x", "ts": "soon"}\n{"prof')
    assert history.get_failures_since_ready("qwen36", "spark1", 0.0) == ((100.0, "crashed"),)


def test_a_receipt_lies_beside_the_log_it_belongs_to(history: OperationHistory) -> None:
    log = save_log(history, 3, whole=True)
    assert history.find_receipt("qwen36", "spark1", ID) is None
    path = history.save_receipt("qwen36", "spark1", ID, "{}\n")
    assert path == log.with_suffix(".guard.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert history.find_receipt("qwen36", "spark1", ID) == path
    assert history.save_receipt("qwen36", "spark1", ID, "[]\n") == path
    assert path.read_text() == "[]\n"
    assert [saved.path for saved in history.list_saved_logs("qwen36")] == [log]  # it is no log


def test_receipts_without_a_log_are_kept_and_pruned_with_the_logs(history: OperationHistory) -> None:
    for number in range(30):
        history.save_receipt("qwen36", "spark1", f"{number:012d}" + "c" * 52, "{}\n")
    save_log(history, 1, whole=True)
    folder = history.directory / "logs" / "qwen36" / "spark1"
    assert len(list(folder.glob("*.guard.json"))) == 20


def test_a_receipt_that_does_not_fit_leaves_nothing(history: OperationHistory) -> None:
    save_log(history, 1, whole=True)
    with simulate_full_disk(100), pytest.raises(OSError, match="too large"):
        history.save_receipt("qwen36", "spark1", ID, "x" * 5000)
    assert history.find_receipt("qwen36", "spark1", ID) is None


def test_the_last_start_of_each_profile_is_known_however_it_ended(history: OperationHistory) -> None:
    assert history.get_last_starts() == ()
    history.record_failure("qwen36", "h", "spark1", "cuda-oom", ID, 1_000.0)
    history.record_start("qwen36", "h", "spark2", 415.0)
    history.record_start("orpheus", "h", "spark1", 20.0)
    history.record_failure("orpheus", "h", "spark1", "port-taken", ID, 2_000.0)
    with (history.directory / "starts.jsonl").open("a") as file:
        file.write('{"profile": "qwen36", "ts": "then", "seconds": 1}\n{"profile": 3, "ts": 1}\n[]\n{"half')
    first, second = history.get_last_starts()
    assert (first.profile, first.node, first.seconds, first.failed) == ("qwen36", "spark2", 415.0, None)
    assert (second.profile, second.when, second.seconds, second.failed) == ("orpheus", 2_000.0, None, "port-taken")


# what each part of a start took


def make_durations(weights: float, compile_: float | None = None) -> list[PhaseDuration]:
    parts = [PhaseDuration(Phase.STARTING, None, 12.0), PhaseDuration(Phase.LOADING, "weights", weights)]
    return parts if compile_ is None else [*parts, PhaseDuration(Phase.LOADING, "compile", compile_)]


def record_start(
    history: OperationHistory, parts: list[PhaseDuration], digest: str = "h", node: str = "spark1", kind: str = "k",
    profile: str = "qwen36",
) -> None:  # fmt: skip
    history.record_start(profile, digest, node, sum(one.seconds for one in parts), kind=kind, parts=parts)


def test_a_part_is_expected_to_take_the_median_of_the_last_five_of_the_same_profile_there(
    history: OperationHistory,
) -> None:
    for weights in (900.0, 100.0, 110.0, 120.0, 130.0, 140.0):
        record_start(history, make_durations(weights))
    record_start(history, make_durations(10.0), digest="other")
    record_start(history, make_durations(20.0), node="spark2")
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").parts == tuple(make_durations(120.0))


def test_else_that_of_the_same_image_and_model_and_else_nothing_is_known(history: OperationHistory) -> None:
    record_start(history, make_durations(100.0), digest="with other arguments", node="spark2")
    record_start(history, make_durations(500.0), digest="of another model", kind="other")
    known = history.get_expected_durations("qwen36", "h", "spark1", "k")
    assert known == ExpectedDurations(112.0, tuple(make_durations(100.0)))
    named = history.get_expected_durations("qwen36", "h", "spark1", "nobody's")
    assert (named.seconds, named.parts) == (312.0, ()), "the name alone tells of the whole, not of its parts"
    assert history.get_expected_durations("another", "h2", "spark1", "nobody's") == ExpectedDurations()


def test_a_start_of_another_profile_tells_of_the_parts_alone(history: OperationHistory) -> None:
    """The same image and model, other settings: its weights load as long, and the whole may take longer."""
    record_start(history, make_durations(100.0), digest="o", profile="other")
    known = history.get_expected_durations("qwen36", "h", "spark1", "k")
    assert known == ExpectedDurations(None, tuple(make_durations(100.0)))
    record_start(history, make_durations(200.0), digest="older")
    record_start(history, make_durations(300.0), digest="o", profile="other")
    record_start(history, make_durations(500.0), digest="of another model", kind="other")
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").seconds == 212.0, "its own, of this model"


def test_what_most_starts_do_not_have_is_not_expected(history: OperationHistory) -> None:
    for compiled in (60.0, None, None):
        record_start(history, make_durations(100.0, compiled))
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").parts == tuple(make_durations(100.0))
    record_start(history, make_durations(100.0, 50.0))
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").parts == tuple(make_durations(100.0, 55.0))


def test_a_part_that_comes_twice_is_two_parts(history: OperationHistory) -> None:
    parts = [
        *make_durations(190.0),
        PhaseDuration(Phase.LOADING, "draft", 3.0),
        PhaseDuration(Phase.LOADING, "weights", 9.0),
    ]
    record_start(history, parts)
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").parts == tuple(parts)


def test_a_start_that_was_joined_tells_nothing_of_how_long_it_takes(history: OperationHistory) -> None:
    history.record_start("qwen36", "h", "spark1", 3.0, kind="k", has_joined=True)
    assert history.get_expected_durations("qwen36", "h", "spark1", "k") == ExpectedDurations()
    assert history.get_recent_profiles(1) == ("qwen36",)


DAMAGED = ['"parts"', "{}", '[["loading", "weights"]]', '[["dancing", null, 3]]', '[["loading", 4, 3]]', "[[]]",
           '[["loading", "weights", NaN]]', '[["loading", "weights", -1]]', '[["ready", "' + "x" * 65 + '", 1]]']  # fmt: skip


@pytest.mark.parametrize("parts", DAMAGED)
def test_damaged_parts_cost_themselves_and_files_of_before_are_read(history: OperationHistory, parts: str) -> None:
    record_start(history, make_durations(100.0))
    before = '{"ts": 1, "profile": "qwen36", "hash": "h", "node": "spark1", "seconds": 300.0}'
    with (history.directory / "starts.jsonl").open("a") as file:
        file.write(f'{before}\n{before[:-1]}, "kind": "k", "parts": {parts}}}\n{{"half')
    assert history.get_expected_durations("qwen36", "h", "spark1", "k") == ExpectedDurations(
        300.0, tuple(make_durations(100.0))
    )
    record_start(history, make_durations(101.0))
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").parts == tuple(make_durations(100.5)), (
        "only the half line is lost"
    )


@given(st.binary(max_size=300))
def test_whatever_lies_there_is_no_reason_to_fail(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    history = OperationHistory(tmp_path_factory.mktemp("state"))
    (history.directory / "starts.jsonl").write_bytes(data)
    history.get_expected_durations("qwen36", "h", "spark1", "k")
    record_start(history, make_durations(100.0))
    assert history.get_expected_durations("qwen36", "h", "spark1", "k").parts == tuple(make_durations(100.0))


def test_two_at_once_lose_nothing_of_each_other(history: OperationHistory) -> None:
    record_start(history, make_durations(1.0))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: record_start(history, make_durations(float(at)), digest=f"d{at}"), range(200)))
    assert all(history.get_expected_durations("x", f"d{at}", "spark1").parts for at in range(200))


# a start that was left, and finished by somebody else


def test_a_start_that_was_left_is_known_as_soon_as_the_switch_that_began_it_is_finished(
    history: OperationHistory,
) -> None:
    clock, nodes = SystemClock(), [NodeName("spark1"), NodeName("spark2")]
    left = history.begin_operation(OperationKind.SWITCH, clock, "milo", nodes, profile="qwen36", instance="qwen36")
    start = history.begin_operation(
        OperationKind.START, clock, "milo", nodes[:1], left, profile="qwen36", instance="qwen36"
    )
    start.record_facts()
    start.record_end("interrupted", 130, why="qwen36 keeps starting on spark1 in the background.")
    left.record_end("interrupted", 130, why="the switch to qwen36 is left at step 4 of 6 (starting)")
    assert history.get_last_starts() == ()
    again = history.begin_operation(OperationKind.SWITCH, clock, "milo", nodes, profile="qwen36", instance="qwen36")
    again.record_end("ready", 0)
    history.close_operation(
        left.operation_key, "finished by sparkctl resume: qwen36 serves on spark1", clock.unix_time()
    )
    (one,) = history.get_last_starts()
    assert (one.profile, one.node, one.seconds, one.failed) == ("qwen36", "spark1", None, None)
    (result,) = [each for each in history.list_operations() if each.kind is OperationKind.START]
    assert (result.outcome, result.why) == ("interrupted", "finished by sparkctl resume: qwen36 serves on spark1")
    history.record_start("qwen36", "h", "spark2", 415.0)
    (one,) = history.get_last_starts()
    assert (one.node, one.seconds) == ("spark2", 415.0), "a later start counts"


# a clock that is set back


class Wound:
    """A clock that shows what it is set to."""

    def __init__(self, shows: float) -> None:
        self.shows = shows

    def unix_time(self) -> float:
        return self.shows

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def set_clock(monkeypatch: pytest.MonkeyPatch, shows: float) -> None:
    monkeypatch.setattr("sparkctl.history.log_archive.time.time", lambda: shows)


def log_of(history: OperationHistory, container: str, written: float) -> Path:
    writer = history.open_log_writer("qwen36", "spark1", container * 12, ())
    writer.write(make_log_lines(1))
    writer.close(True)
    os.utime(writer.path, (written, written))
    return writer.path


def test_the_newest_log_is_the_last_one_also_where_the_clock_was_set_back(
    history: OperationHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_795_000_000.0
    paths = []
    for container, shows in (("a", now), ("b", now + 600), ("c", now - 600), ("d", now - 590)):
        set_clock(monkeypatch, shows)
        paths.append(log_of(history, container, shows))
    assert [log.path for log in history.list_saved_logs("qwen36")] == paths[::-1]
    assert sorted(paths) == paths, "names are in the order in which the logs were begun"


def test_logs_of_two_nodes_are_told_apart_by_their_times(
    history: OperationHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_795_000_000.0
    set_clock(monkeypatch, now)
    first = log_of(history, "a", now + 500)
    other = history.open_log_writer("qwen36", "spark2", "b" * 12, ())
    other.close(True)
    os.utime(other.path, (now + 100, now + 100))
    assert [log.path for log in history.list_saved_logs("qwen36")] == [first, other.path]


def test_what_is_pruned_is_what_was_begun_first(history: OperationHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_795_000_000.0
    for number in range(25):
        set_clock(monkeypatch, now - 3600.0 * number)
        writer = history.open_log_writer("qwen36", "spark1", f"{number:012d}", ())
        writer.close(True)
    left = [log.short_container_id for log in history.list_saved_logs("qwen36")]
    assert sorted(left) == [f"{number:012d}" for number in range(5, 25)]


def test_a_switch_that_came_later_is_the_last_start_whatever_the_clock_says(history: OperationHistory) -> None:
    clock, node = Wound(5000.0), [NodeName("spark1")]
    history.record_start("qwen36", "h", "spark2", 415.0, when=5000.0)
    clock.shows = 1000.0  # set back
    left = history.begin_operation(OperationKind.SWITCH, clock, "milo", node, profile="qwen36", instance="qwen36")
    left.record_end("ready", 0)
    (one,) = history.get_last_starts()
    assert (one.node, one.when) == ("spark1", 1000.0)
    clock.shows = 400.0
    again = history.begin_operation(
        OperationKind.SWITCH, clock, "milo", [NodeName("spark3")], profile="qwen36", instance="qwen36"
    )
    again.record_end("ready", 0)
    (one,) = history.get_last_starts()
    assert one.node == "spark3"
    assert [each.nodes[0] for each in history.list_operations(most=1)] == ["spark3"]


def test_failures_are_in_the_order_in_which_they_came(history: OperationHistory) -> None:
    record_failure(history, 900.0, "crashed", "a" * 64)
    record_failure(history, 300.0, "guard-stopped", "b" * 64)
    assert [how for _, how in history.get_failures_since_ready("qwen36", "spark1", 0.0)] == ["crashed", "guard-stopped"]


def test_an_instance_of_any_length_has_no_saved_logs_and_is_no_defect(tmp_path: Path) -> None:
    assert OperationHistory(tmp_path).list_saved_logs("a" * 5000, ["milo@" + "b" * 5000]) == []


def test_a_row_that_is_deleted_twice_closes_the_file_of_no_other(history: OperationHistory) -> None:
    """The file stays open while somebody writes: each row counts once."""
    clock, nodes = SystemClock(), (NodeName("spark1"),)
    one, other = (history.begin_operation(OperationKind.STOP, clock, "milo", nodes) for _ in range(2))
    for row in (one, other):
        row.record_facts(instance="qwen36")
    one.delete_row()
    one.delete_row()
    assert history._file._held is not None
    other.record_end("done", 0)
    assert history._file._held is None
    assert [row.instance for row in history.list_operations()] == ["qwen36"]


def test_how_long_a_pull_takes_is_told_by_the_last_ones_of_its_kind_on_its_node(history: OperationHistory) -> None:
    def record(received: int, seconds: float, node: str = "spark1", **facts: object) -> None:
        row = history.begin_operation(OperationKind.PULL, SystemClock(), "milo", [NodeName(node)])
        share = NodeResult(node=NodeName(node), instance="x", received=received, seconds=seconds, **facts)  # type: ignore[arg-type]
        row.record_node_result(share)
        row.record_end("done", 0)

    assert history.estimate_pull_seconds("spark1", 10**9, is_image=True) is None
    for rate in (1, 50, 100, 150, 9000, 100):  # the first is too old
        record(rate * 10**8, 100.0, image_digest="sha256:abc")
    assert history.estimate_pull_seconds("spark1", 10**9, is_image=True) == 10.0
    assert history.estimate_pull_seconds("spark2", 10**9, is_image=True) is None
    assert history.estimate_pull_seconds("spark1", 10**9, is_image=False) is None
    record(1000, 100.0)  # nearly all of it was there
    record(10**9, 2.0, has_joined=True)  # of which only the end was seen
    assert history.estimate_pull_seconds("spark1", 10**9, is_image=False) is None
    record(10**9, 2.0)
    assert history.estimate_pull_seconds("spark1", 10**9, is_image=False) == 2.0
    assert history.list_operations()[0].shares[0].received == 10**9


def test_containers_without_a_token_are_one_listing_of_a_node(history: OperationHistory) -> None:
    assert not history.list_awaited_tokens("spark1"), "no start from here"
    ids = [f"{number:012x}" + "d" * 52 for number in range(30)]
    for number, each in enumerate(ids):
        history.note_awaited_token("spark1", each)
        os.utime(history.directory / "awaited" / "spark1" / each[:12], (number, number))
    history.note_awaited_token("lena@10.0.0.2:2222", ID)
    assert history.list_awaited_tokens("spark1") == {each[:12] for each in ids[-20:]}, "old ones make room"
    (history.directory / "awaited" / "spark1" / "gone").symlink_to(
        "nowhere"
    )  # as one that is deleted while it is listed
    history.note_awaited_token("spark1", ids[-1])
    assert "gone" not in history.list_awaited_tokens("spark1")
    history.note_token("qwen36", "spark1", ids[-1])
    history.note_token("qwen36", "spark1", ids[0])
    assert ids[-1][:12] not in history.list_awaited_tokens("spark1")
    assert history.list_awaited_tokens("lena@10.0.0.2:2222") == {ID[:12]}
    assert {path.stat().st_mode & 0o077 for path in (history.directory / "awaited").rglob("*")} == {0}
