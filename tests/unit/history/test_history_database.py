"""The history's file in whatever state it is: it never stops the work, never makes it wait for long, and is never lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.clock import SystemClock
from sparkctl.history.database import SCHEMA, SCHEMA_VERSION
from sparkctl.history.model import REQUEST_FIGURES, NodeResult, OperationKind, OperationRecord
from sparkctl.history.operation_history import OperationHistory
from sparkctl.history.operation_recorder import OperationRecorder
from sparkctl.model.node import NodeName
from sparkctl.model.verdict import Evidence, FailureCause, FieldChange, Verdict
from tests.unit.history.test_operation_history import simulate_full_disk

SPARK1 = NodeName("spark1")
ID = "0123456789ab" + "c" * 52


def begin_operation(history: OperationHistory, profile: str = "qwen36", **facts: object) -> OperationRecorder:
    entry = history.begin_operation(
        OperationKind.START, SystemClock(), "milo@desk", [SPARK1], profile=profile, instance=profile, **facts
    )
    entry.record_facts()
    return entry


def record_operation(history: OperationHistory, profile: str = "qwen36", seconds: float = 300.0) -> None:
    entry = begin_operation(history, profile, hash="h")
    entry.record_node_result(NodeResult(node=SPARK1, instance=profile, seconds=seconds))
    entry.record_end("ready", 0, seconds=seconds)


@contextmanager
def hold_write_lock(path: Path) -> Iterator[None]:
    """Another program writes, and does not come to an end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.fixture
def history(tmp_path: Path) -> OperationHistory:
    return OperationHistory(tmp_path / "state")


def test_a_row_is_there_from_the_beginning_and_says_what_is_known_by_then(history: OperationHistory) -> None:
    entry = begin_operation(history)
    (one,) = OperationHistory(history.directory).list_operations()
    assert (one.outcome, one.is_running, one.profile, one.nodes) == (None, True, "qwen36", ("spark1",))
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", container=ID, available_before=5))
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", peak=7))
    entry.record_end("failed", 1, why="it did not")
    entry.record_end("ready", 0)
    (one,) = history.list_operations()
    assert (one.id, one.outcome, one.exit_code, one.why, one.is_running) == (1, "failed", 1, "it did not", False)
    assert one.shares == (NodeResult(node=SPARK1, instance="qwen36", container=ID, available_before=5, peak=7),)
    assert history.take_warning() is None


def test_numbers_count_operations_and_a_row_in_which_nothing_was_done_goes(history: OperationHistory) -> None:
    for _ in range(3):
        record_operation(history)
    entry = begin_operation(history)
    entry.delete_row()
    entry.record_end("ready", 0)
    assert [one.id for one in history.list_operations()] == [3, 2, 1]


def test_of_a_process_that_was_killed_nobody_knows_how_it_ended(history: OperationHistory) -> None:
    program = (
        "import os, sys, signal; from pathlib import Path; from sparkctl.clock import SystemClock\n"
        "from sparkctl.history.operation_history import OperationHistory; from sparkctl.history.model import OperationKind\n"
        "entry = OperationHistory(Path(sys.argv[1])).begin_operation("
        "OperationKind.START, SystemClock(), 'milo@desk', ['spark1'], profile='qwen36')\n"
        "entry.record_facts(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(history.directory)], timeout=60)
    assert ran.returncode == -9
    (one,) = history.list_operations()
    assert (one.outcome, one.is_running, one.has_failed) == (None, False, True)
    assert [each.id for each in history.list_operations(failed=True)] == [one.id]


def test_a_locked_file_costs_the_row_a_second_at_most_and_one_sentence(history: OperationHistory) -> None:
    record_operation(history)
    with hold_write_lock(history.directory / "history.db"):
        began = time.monotonic()
        entry = begin_operation(history)
        for step in range(20):
            entry.record_facts(why=str(step))
        assert time.monotonic() - began < 2.0
        assert history.get_expected_durations("qwen36", "h", "spark1").seconds == 300.0, (
            "whoever reads waits for nobody"
        )
        word = history.take_warning()
        assert word is not None
        assert "locked" in word
        assert history.take_warning() is None
    entry.record_end("ready", 0)
    assert [one.outcome for one in history.list_operations()] == ["ready", "ready"], (
        "the next word brings the whole row"
    )


def test_a_direct_word_into_a_locked_file_says_so(history: OperationHistory) -> None:
    record_operation(history)
    with hold_write_lock(history.directory / "history.db"), pytest.raises(OSError, match="locked"):
        history.record_start("qwen36", "h", "spark1", 1.0)


def test_a_damaged_file_is_set_aside_whole_and_the_history_begins_anew(history: OperationHistory) -> None:
    path = history.directory / "history.db"
    history.directory.mkdir()
    path.write_bytes(b"this is no database" * 500)
    record_operation(history)
    assert [one.outcome for one in history.list_operations()] == ["ready"]
    (aside,) = history.directory.glob("history.db.damaged-*")
    assert aside.read_bytes() == b"this is no database" * 500
    word = history.take_warning()
    assert word is not None
    assert aside.name in word


def test_a_file_that_was_torn_in_the_middle_is_set_aside_too(history: OperationHistory) -> None:
    for number in range(15):
        entry = begin_operation(history, text="words " * 700)
        entry.record_end("ready", 0, why=str(number))
    path = history.directory / "history.db"
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 8192))
    assert history.list_operations(most=100) == ()
    record_operation(history)
    assert [one.outcome for one in history.list_operations()] == ["ready"]
    assert len(list(history.directory.glob("history.db.damaged-*"))) == 1


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=20)
@given(st.binary(min_size=1, max_size=3000), st.integers(0, 9000))
def test_whatever_bytes_lie_there_work_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, place: int
) -> None:
    history = OperationHistory(tmp_path_factory.mktemp("state"))
    record_operation(history)
    path = history.directory / "history.db"
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)
    history.list_operations()
    history.get_expected_durations("qwen36", "h", "spark1", "k")
    record_operation(history)
    history.get_last_starts()


def test_a_schema_that_is_no_text_is_damage(history: OperationHistory) -> None:
    record_operation(history)
    path = history.directory / "history.db"
    whole = path.read_bytes()
    at = whole.index(b"CREATE INDEX operations_of_profile")
    path.write_bytes(whole[:at] + b"\xf1+\xea\xfc7H" + whole[at + 6 :])
    record_operation(history)
    assert "was damaged" in (history.take_warning() or "")
    assert len(history.list_operations()) == 1


def test_another_program_s_database_is_left_alone(history: OperationHistory) -> None:
    history.directory.mkdir()
    path = history.directory / "history.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (what TEXT)")
        other.commit()
    before = path.read_bytes()
    record_operation(history)
    assert path.read_bytes() == before
    assert history.list_operations() == ()
    assert history.is_unreadable
    word = history.take_warning()
    assert word is not None
    assert "belongs to another program" in word
    assert history.take_warning() is None


def test_a_newer_sparkctl_s_file_is_read_and_not_written(history: OperationHistory) -> None:
    record_operation(history)
    with closing(sqlite3.connect(history.directory / "history.db")) as newer:
        newer.execute("ALTER TABLE operations ADD COLUMN colour TEXT")
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        newer.commit()
    record_operation(history)
    assert len(history.list_operations()) == 1
    assert history.get_expected_durations("qwen36", "h", "spark1").seconds == 300.0
    word = history.take_warning()
    assert word is not None
    assert "newer sparkctl" in word


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_file_costs_the_row_alone(history: OperationHistory) -> None:
    record_operation(history)
    (history.directory / "history.db").chmod(0o400)
    record_operation(history)
    assert len(history.list_operations()) == 1
    assert history.take_warning() is not None


def test_a_directory_that_cannot_be_made_costs_the_row_alone(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory would be")
    history = OperationHistory(tmp_path / "state")
    record_operation(history)
    assert history.list_operations() == ()
    assert history.take_warning() is not None


def test_a_full_disk_costs_the_row_alone_and_damages_nothing(history: OperationHistory) -> None:
    record_operation(history)
    with simulate_full_disk(1000):
        record_operation(history)
    assert history.take_warning() is not None
    assert [one.outcome for one in history.list_operations()] == ["ready"]
    record_operation(history)
    assert len(history.list_operations()) == 2
    assert not list(history.directory.glob("*.damaged*"))


def test_a_file_that_is_deleted_meanwhile_is_begun_anew(history: OperationHistory) -> None:
    entry = begin_operation(history)
    (history.directory / "history.db").unlink()
    entry.record_end("ready", 0)
    assert [one.outcome for one in history.list_operations()] == ["ready"]


def test_the_history_file_is_private(history: OperationHistory) -> None:
    entry = begin_operation(history)
    assert {file.stat().st_mode & 0o777 for file in history.directory.iterdir()} == {0o600}
    assert {"history.db", "history.db-wal"} <= {file.name for file in history.directory.iterdir()}
    entry.record_end("ready", 0)
    assert [file.name for file in history.directory.iterdir()] == ["history.db"]


def test_two_processes_at_once_lose_nothing_of_each_other(history: OperationHistory) -> None:
    program = (
        "import sys; from pathlib import Path; from sparkctl.clock import SystemClock\n"
        "from sparkctl.history.operation_history import OperationHistory; from sparkctl.history.model import OperationKind, NodeResult\n"
        "history = OperationHistory(Path(sys.argv[1]))\n"
        "for number in range(20):\n"
        "    entry = history.begin_operation(OperationKind.START, SystemClock(), sys.argv[2], ['spark1'], profile=sys.argv[2])\n"
        "    entry.record_facts(); entry.record_node_result(NodeResult(node='spark1', instance=sys.argv[2], seconds=float(number)))\n"
        "    entry.record_end('ready', 0)\n"
        "assert history.take_warning() is None"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(history.directory), name]) for name in ("one", "other")
    ]
    assert [ran.wait(120) for ran in both] == [0, 0]
    found = history.list_operations(most=-1)
    assert len(found) == 40
    for name in ("one", "other"):
        assert [one.shares[0].seconds for one in reversed(found) if one.profile == name] == [
            float(n) for n in range(20)
        ]


# what an earlier sparkctl kept

OLD = (
    '{"ts": 1000, "profile": "qwen36", "hash": "h", "node": "spark1", "seconds": 300.0, "kind": "k", '
    '"parts": [["loading", "weights", 200.0]], "peak": 5000, "estimated": 4000}\n'
    '{"ts": 2000, "profile": "qwen36", "hash": "h", "node": "spark1", "failed": "bad-flag", "container": "abc"}\n{"half'
)


def test_an_earlier_file_is_taken_over_once_and_kept(history: OperationHistory) -> None:
    history.directory.mkdir()
    (history.directory / "starts.jsonl").write_text(OLD)
    assert history.get_expected_durations("qwen36", "h", "spark1").seconds == 300.0
    seen = history.get_measured_peak("h", "spark1")
    assert seen is not None
    assert (seen.peak, seen.estimated) == (5000, 4000)
    assert history.last_start_failed_for("h", "bad-flag")
    assert [(one.outcome, one.began) for one in history.list_operations()] == [("failed", 2000.0), ("ready", 700.0)]
    assert (history.directory / "starts.jsonl.migrated").read_text() == OLD
    assert not (history.directory / "starts.jsonl").exists()


def test_the_same_file_again_adds_nothing_and_one_of_an_old_sparkctl_run_since_does(history: OperationHistory) -> None:
    history.directory.mkdir()
    (history.directory / "starts.jsonl").write_text(OLD)
    assert len(history.list_operations()) == 2
    (history.directory / "starts.jsonl").write_text(OLD)  # the name could not be changed that time
    assert len(history.list_operations()) == 2
    (history.directory / "starts.jsonl").write_text(OLD.replace("300.0", "400.0"))
    assert len(history.list_operations()) == 4
    assert len(list(history.directory.glob("starts.jsonl.migrated*"))) == 3


def test_two_processes_take_it_over_together_once(history: OperationHistory) -> None:
    directories = [history.directory / str(number) for number in range(20)]
    for directory in directories:
        directory.mkdir(parents=True)
        (directory / "starts.jsonl").write_text(OLD)
    program = (
        "import sys; from pathlib import Path; from sparkctl.history import tables\n"
        "from sparkctl.history.operation_history import OperationHistory\n"
        "for name in sys.stdin:\n"
        "    history = OperationHistory(Path(name.strip()))\n"
        "    history.get_last_starts()\n"
        "    print(history.take_warning() or 'imported', flush=True)"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for directory in directories:  # both begin each one at the same moment
        for process in both:
            assert process.stdin is not None
            process.stdin.write(f"{directory}\n")
            process.stdin.flush()
        assert [process.stdout.readline() for process in both if process.stdout is not None] == ["imported\n"] * 2
        assert len(OperationHistory(directory).list_operations()) == 2
        assert [one.read_text() for one in directory.glob("starts.jsonl*")] == [OLD]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0


# failures that come to be known later


def test_what_the_guard_did_to_a_start_that_nobody_watched_is_added_to_its_row(history: OperationHistory) -> None:
    entry = begin_operation(history)
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", container=ID))
    entry.record_end("detached", 0)
    history.record_failure("qwen36", "", "spark1", "guard-stopped", ID, 500.0)
    (one,) = history.list_operations()
    assert one.shares[0].cause == "guard-stopped"
    assert history.get_failures_since_ready("qwen36", "spark1", 0.0) == ((500.0, "guard-stopped"),)


# no secret is written

CANARY = "sesame-4711-canary"
OTHER = "another-0815-canary"


def test_no_secret_gets_into_the_file(history: OperationHistory) -> None:
    entry = begin_operation(
        history, text=f"env:\n  HF_TOKEN: {CANARY}\n", command=f"sparkctl up qwen36 --set env.API_KEY={CANARY}"
    )
    entry.redact_values({OTHER})
    verdict = Verdict(
        cause=FailureCause.CRASHED, summary=f"it said {OTHER}", evidence=(Evidence(f"api_key='{CANARY}' {OTHER}", "log", 3),), remedy=f"use {OTHER}",
        edit=FieldChange("env.PLAIN", OTHER, OTHER), contributing=(Verdict(cause=FailureCause.EXITED, summary=OTHER, evidence=(), remedy=OTHER),),
    )  # fmt: skip
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", receipt=f"token {OTHER}", log=f"/logs/{OTHER}"))
    written = b"".join(file.read_bytes() for file in history.directory.iterdir())
    entry.record_end("failed", 1, why=f"{OTHER} was refused", hint=f"--api-key {CANARY}", verdict=verdict)
    written += b"".join(file.read_bytes() for file in history.directory.iterdir())
    assert b"qwen36" in written
    assert CANARY.encode() not in written
    assert OTHER.encode() not in written
    (one,) = history.list_operations()
    assert one.verdict is not None
    assert one.verdict.evidence[0].line == 3


def test_a_profile_that_asks_for_a_key_is_kept_as_it_is(history: OperationHistory) -> None:
    begin_operation(history, text="schema: 1\napi_key: generate\n").record_end("ready", 0)
    assert history.list_operations()[0].text == "schema: 1\napi_key: generate\n"


def test_one_more_figure_writes_no_more_than_the_row_that_it_is_in(history: OperationHistory) -> None:
    entry = begin_operation(history, hash="h", text="text " * 1000)
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", container=ID, peak=1))
    log = history.directory / "history.db-wal"
    before = log.stat().st_size
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", container=ID, peak=2))
    assert log.stat().st_size - before == 4096 + 24  # bytes: a page, and its header


# what is asked of it


def test_the_list_is_of_a_profile_of_a_node_of_failures(history: OperationHistory) -> None:
    record_operation(history, "qwen36")
    record_operation(history, "orpheus")
    entry = history.begin_operation(OperationKind.STOP, SystemClock(), "milo@desk", [NodeName("spark2")])
    entry.record_node_result(NodeResult(node=NodeName("spark2"), instance="orpheus", freed=5))
    entry.record_end("unhealthy", 5)
    assert [one.id for one in history.list_operations("qwen36")] == [1]
    assert [one.id for one in history.list_operations("orpheus")] == [3, 2]
    assert [one.id for one in history.list_operations(node="spark2")] == [3]
    assert [one.id for one in history.list_operations(failed=True)] == [3]
    assert [one.id for one in history.list_operations(most=2)] == [3, 2]
    assert history.get_operation(2) == history.list_operations("orpheus")[1]
    assert history.get_operation(4) is None


def test_a_part_of_a_switch_knows_whose_part_it_is(history: OperationHistory) -> None:
    whole = history.begin_operation(OperationKind.SWITCH, SystemClock(), "milo@desk", [SPARK1], profile="qwen36")
    whole.record_facts()
    part = history.begin_operation(OperationKind.START, SystemClock(), "milo@desk", [SPARK1], whole, profile="qwen36")
    part.record_end("ready", 0)
    whole.record_end("done", 0)
    assert [(one.id, one.parent) for one in history.list_operations()] == [(2, 1), (1, None)]


def test_the_last_start_that_worked_is_of_the_same_nodes_if_there_was_one(history: OperationHistory) -> None:
    def start(nodes: list[str], outcome: str) -> OperationRecord:
        entry = history.begin_operation(
            OperationKind.START,
            SystemClock(),
            "me",
            [NodeName(one) for one in nodes],
            profile="qwen36",
            instance="qwen36",
        )
        entry.record_end(outcome, 0)
        return history.list_operations(most=1)[0]

    first, second = start(["spark1"], "ready"), start(["spark2"], "ready")
    start(["spark1"], "refused")
    assert history.find_last_good_start(start(["spark1"], "failed")) == first
    assert history.find_last_good_start(second) == first
    assert history.find_last_good_start(first) is None


@given(st.lists(st.floats(0.1, 5000.0), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=10)
def test_a_start_is_expected_to_take_the_median_of_the_last_five(
    tmp_path_factory: pytest.TempPathFactory, took: list[float]
) -> None:
    from statistics import median

    history = OperationHistory(tmp_path_factory.mktemp("state"))
    for seconds in took:
        record_operation(history, seconds=seconds)
    expected = history.get_expected_durations("qwen36", "h", "spark1").seconds
    assert expected == pytest.approx(median(took[-5:]))


def test_only_so_many_are_kept(history: OperationHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkctl.history.tables._MAX_OPERATIONS", 5)
    for number in range(12):
        record_operation(history, seconds=float(number))
    assert [one.id for one in history.list_operations(most=-1)] == [12, 11, 10, 9, 8]
    assert history.get_expected_durations("qwen36", "h", "spark1").seconds == 9.0


def test_what_was_seen_of_an_engine_is_kept_with_its_start(history: OperationHistory) -> None:
    entry = begin_operation(history)
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", container=ID))
    entry.record_end("ready", 0)
    history.record_accept_length(ID, 3.1)
    (one,) = history.list_operations()
    assert one.shares[0].accept_length == 3.1


def test_the_speed_of_a_request_is_that_of_the_first_request_asked_again(history: OperationHistory) -> None:
    for warm in (None, 23.4):
        entry = begin_operation(history)
        entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", warm_tokens_per_second=warm))
        entry.record_end("ready", 0)
    with closing(sqlite3.connect(history.directory / "history.db")) as file, file:
        file.execute("UPDATE shares SET tokens_per_second = 0.1")  # as of a probe's few tokens in a log's ten seconds
    assert [one.shares[0].tokens_per_second for one in history.list_operations()] == [23.4, None]


def test_a_file_of_an_older_sparkctl_is_brought_up_with_all_that_is_in_it(
    history: OperationHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_operation(history)
    newer = (*SCHEMA, "ALTER TABLE operations ADD COLUMN colour TEXT; CREATE INDEX colours ON operations (colour)")
    monkeypatch.setattr("sparkctl.history.database.SCHEMA", newer)
    monkeypatch.setattr("sparkctl.history.database.SCHEMA_VERSION", len(newer))
    record_operation(history)
    assert [one.outcome for one in history.list_operations()] == ["ready", "ready"]
    with closing(sqlite3.connect(history.directory / "history.db")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
        assert file.execute("SELECT count(colour), count(*) FROM operations").fetchone() == (0, 2)


def test_a_file_from_before_the_first_requests_were_kept_is_read_and_goes_on(history: OperationHistory) -> None:
    record_operation(history)
    with closing(sqlite3.connect(history.directory / "history.db")) as file, file:
        for name in (*REQUEST_FIGURES, "received"):
            file.execute(f"ALTER TABLE shares DROP COLUMN {name}")
        file.execute("PRAGMA user_version = 1")
    older = OperationHistory(history.directory)
    entry = begin_operation(older)
    entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", cold_ttft=4.5, warm_tokens_per_second=35.9))
    entry.record_end("ready", 0)
    new, old = older.list_operations()
    assert [getattr(new.shares[0], name) for name in REQUEST_FIGURES] == [4.5, None, None, 35.9]
    assert all(getattr(share, name) is None for share in old.shares for name in REQUEST_FIGURES)


def test_a_step_up_that_fails_leaves_the_file_as_it_was(
    history: OperationHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_operation(history)
    with monkeypatch.context() as patched:
        patched.setattr("sparkctl.history.database.SCHEMA", (*SCHEMA, "CREATE TABLE half (a); CREATE TABLE half (a)"))
        patched.setattr("sparkctl.history.database.SCHEMA_VERSION", SCHEMA_VERSION + 1)
        record_operation(history)
        assert history.take_warning() is not None
    assert [one.outcome for one in history.list_operations()] == ["ready"]
    record_operation(history)
    assert len(history.list_operations()) == 2


def test_of_a_model_over_two_sparks_the_head_stands_for_the_start_and_any_rank_for_its_failure(
    history: OperationHistory,
) -> None:
    both = [SPARK1, NodeName("spark2")]
    for seconds in (400.0, None):
        entry = history.begin_operation(
            OperationKind.START, SystemClock(), "milo", both, profile="minimax", instance="minimax", hash="m"
        )
        for node in both:
            entry.record_node_result(
                NodeResult(
                    node=node,
                    instance="minimax",
                    container=f"{node}-{seconds}",
                    seconds=seconds and seconds + len(entry.operation.shares),
                )
            )
        if seconds is None:
            entry.record_node_result(NodeResult(node=both[1], instance="minimax", cause="worker-lost"))
        else:
            (one,) = history.get_last_starts()
            assert (one.node, one.seconds) == ("spark1", 400.0)
        entry.record_end("ready" if seconds else "failed", 0 if seconds else 1)
    assert [how for _, how in history.get_failures_since_ready("minimax", "spark1", 0.0)] == ["worker-lost"]
    assert [how for _, how in history.get_failures_since_ready("minimax", "spark2", 0.0)] == ["worker-lost"]
    assert history.get_failures_since_ready("minimax", "spark3", 0.0) == ()
    (one,) = history.get_last_starts()
    assert one.failed == "worker-lost"
