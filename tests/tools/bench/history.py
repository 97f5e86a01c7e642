"""What a start writes into the history, against SQLite as it comes out of the box with as many words in one connection."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from sparkctl.clock import SystemClock
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import NodeName
from sparkctl.model.text import secrets
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.redaction import find_profile_secrets, render_redacted_yaml
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved

ROUNDS = 21
WORDS = 12  # that a start has for its row between its beginning and its end
OURS, THEIRS = "a start's row", f"SQLite's defaults, {WORDS + 2} updates"
SPARK1 = NodeName("spark1")


def run(rounds: int = ROUNDS) -> Report:
    """Measure all words of one start, in milliseconds, in a file that has a hundred starts already."""
    load = LoadMeter()
    profile = ProfileLibrary(shipped_profiles_dir()).load_profile("qwen36")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        history = OperationHistory(folder / "state")

        def ours() -> float:
            secrets._redact_short_line.cache_clear()  # each start is a process of its own
            began = time.perf_counter()
            entry = history.begin_operation(
                OperationKind.START, SystemClock(), "milo@desk", [SPARK1], profile="qwen36", instance="qwen36",
                hash=profile.digest, text=render_redacted_yaml(profile),
            )  # fmt: skip
            entry.redact_values(find_profile_secrets(profile))
            entry.record_facts()
            for number in range(WORDS):
                entry.record_node_result(
                    NodeResult(node=SPARK1, instance="qwen36", container="0123456789ab", peak=number)
                )
            entry.record_node_result(NodeResult(node=SPARK1, instance="qwen36", seconds=400.0))
            entry.record_end("ready", 0, seconds=400.0)
            return 1000 * (time.perf_counter() - began)

        for _ in range(100):
            ours()
        text = render_redacted_yaml(profile)
        path = folder / "plain.db"
        with closing(sqlite3.connect(path)) as plain:
            plain.execute("CREATE TABLE starts (id INTEGER PRIMARY KEY, text TEXT, peak INTEGER)")
            plain.commit()

        def theirs() -> float:
            began = time.perf_counter()
            with closing(sqlite3.connect(path)) as plain:
                number = plain.execute("INSERT INTO starts (text) VALUES (?)", (text,)).lastrowid
                plain.commit()
                for peak in range(WORDS + 1):
                    plain.execute("UPDATE starts SET peak = ? WHERE id = ?", (peak, number))
                    plain.commit()
            return 1000 * (time.perf_counter() - began)

        taken = measure_interleaved(rounds, {OURS: ours, THEIRS: theirs})
        began = time.perf_counter()
        history.get_expected_durations("qwen36", profile.digest, "spark1", "")
        asked = 1000 * (time.perf_counter() - began)
    series = tuple(Series(name, "ms", values) for name, values in taken.items())
    ratio = Goal(f"{OURS} / {THEIRS}", series[0].median / series[1].median, 1.0)
    return Report(
        "history", "what a start writes into the history", series,
        (ratio, Goal("asking what is usual", asked, unit=" ms")), load.read(),
    )  # fmt: skip
