"""Acceptance and throughput as sparkctl computes them from /metrics, against vLLM's own log lines over the same stretch.

``python -m tests.tools.nightly.acceptance --url http://127.0.0.1:8000 --log FILE``: a server that runs with speculative
decoding, and the file that its output goes to. Or ``-- vllm serve MODEL ...`` instead of ``--log``: it is started, and
ended. ``--load N`` sends N requests at a time meanwhile; without it somebody else has to. Exit 1 where a figure of the
whole time is more than 2 % from the log's, or the middle one of the stretches' is, or where there was nothing to compare.

vLLM logs every ten seconds what happened since the line before. The page is read as soon as a line is in the file, so a
stretch from line to line is the same for both, but for what the engine did until it answered: hundredths of a second, half a
second on a machine that has other work. What one stretch has too much of its neighbour lacks, so the whole is held tightest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median_low

from sparkctl import engines
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.model.engine_metrics import EngineMeter, EngineMetrics, StatsLine, StatsLineKind
from sparkctl.monitor.engine_probe import mark_request_path
from sparkctl.monitor.meters.metrics_window import MetricsWindow

TOLERANCE = 0.02
FEWEST = 3  # stretches, or it proves nothing
_TOGETHER = 1.0  # seconds: the two lines of one report come at once
_NEIGHBOURS = 13.0  # seconds: a longer stretch between two reports had idle time in it
_READY_WITHIN = 600.0
_ENGINE = engines.load_engine("vllm")


@dataclass(frozen=True, slots=True)
class Report:
    """One of the engine's reports: both lines, and the page as it was just after."""

    when: float
    decode: StatsLine
    speculation: StatsLine
    page: EngineMetrics


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of one stretch by the log and by us."""

    stretch: int | None  # None: the whole time
    what: str
    seconds: float
    theirs: float
    ours: float | None

    @property
    def apart(self) -> float | None:
        """How far we are from the log, as a share; None where we know nothing."""
        return None if self.ours is None else abs(self.ours - self.theirs) / self.theirs

    @property
    def holds(self) -> bool:
        """Tell whether we are near enough."""
        return self.apart is not None and self.apart <= TOLERANCE


def compare_figures(
    reports: Sequence[Report], pages: Sequence[tuple[float, EngineMetrics]] = ()
) -> list[ComparedFigure]:
    """Return every figure of every stretch between two neighbouring reports in which the engine drafted all the time.

    ``pages``: readings in between, as sparkctl has them.
    """
    found: list[ComparedFigure] = []
    for stretch, (before, now) in enumerate(pairwise(reports)):
        seconds = now.when - before.when
        if seconds > _NEIGHBOURS:
            continue
        inner = [(when, page) for when, page in pages if before.when < when < now.when]
        numbers = _build_meter([(before.when, before.page), *inner, (now.when, now.page)])
        acceptance = numbers.acceptance
        pairs = [
            ("accept length", now.speculation.accept_length, None if acceptance is None else acceptance.length),
            ("accept rate", now.speculation.accept_rate, None if acceptance is None else acceptance.rate),
            ("generated tokens/s", now.decode.generation_rate, numbers.generation_rate),
        ]
        found += [ComparedFigure(stretch, what, seconds, theirs, ours) for what, theirs, ours in pairs if theirs]
    return found + _compare_longest(reports, pages)


def _compare_longest(reports: Sequence[Report], pages: Sequence[tuple[float, EngineMetrics]]) -> list[ComparedFigure]:
    """Return the figures of the longest time without a break; the log's are summed up from its own tokens."""
    run: list[Report] = []
    longest: list[Report] = []
    for report in reports:
        if run and report.when - run[-1].when > _NEIGHBOURS:
            run = []
        run.append(report)
        longest = max(longest, run, key=len)
    if len(longest) <= FEWEST:
        return []
    first, *rest = longest
    seconds = rest[-1].when - first.when
    inner = [(when, page) for when, page in pages if first.when < when < rest[-1].when]
    numbers = _build_meter([(first.when, first.page), *inner, (rest[-1].when, rest[-1].page)])
    said = [one.speculation for one in rest]
    accepted, drafted = sum(one.accepted or 0.0 for one in said), sum(one.drafted or 0.0 for one in said)
    steps = sum(
        (one.accepted or 0.0) / ((one.accept_length or 0.0) - 1) for one in said if (one.accept_length or 0) > 1
    )
    spans = [now.when - before.when for before, now in pairwise(longest)]
    generated = sum((one.decode.generation_rate or 0.0) * span for one, span in zip(rest, spans, strict=True))
    acceptance = numbers.acceptance
    pairs = [
        ("accept length", 1 + accepted / steps if steps else None, None if acceptance is None else acceptance.length),
        ("accept rate", accepted / drafted if drafted else None, None if acceptance is None else acceptance.rate),
        ("generated tokens/s", generated / seconds, numbers.generation_rate),
    ]
    return [ComparedFigure(None, what, seconds, theirs, ours) for what, theirs, ours in pairs if theirs]


def _build_meter(readings: Sequence[tuple[float, EngineMetrics]]) -> EngineMeter:
    window = MetricsWindow(readings[-1][0] - readings[0][0])
    for when, page in readings:
        window.add_reading(when, page)
    return window.compute_meter(readings[-1][0])


class Listener:
    """Makes reports of log lines as they come. ``read`` reads the page."""

    def __init__(self, read: Callable[[], EngineMetrics | None]) -> None:
        self.reports: list[Report] = []
        self._read = read
        self._preparer = LinePreparer()
        self._decode: tuple[float, StatsLine] | None = None

    def hear(self, when: float, text: str) -> None:
        """Take one line of the log."""
        for line in self._preparer.prepare_lines(text):
            said = _ENGINE.parse_stats_line(line)
            if said is None:
                continue
            if said.kind is StatsLineKind.DECODE:
                self._decode = (when, said)
            elif said.kind is StatsLineKind.SPECULATION and self._decode is not None:
                at, decode = self._decode
                page = self._read()
                if when - at <= _TOGETHER and page is not None:
                    self.reports.append(Report(time.monotonic(), decode, said, page))


def format_table(found: Sequence[ComparedFigure]) -> Iterator[str]:
    """Yield a line for every figure, then the verdict."""
    for one in found:
        what = f"{one.what}, whole" if one.stretch is None else one.what
        ours = "not known" if one.ours is None or one.apart is None else f"{one.ours:10.3f}  {100 * one.apart:5.2f} %"
        yield f"{what:25} {one.seconds:5.1f} s  log {one.theirs:10.3f}  ours {ours}  {'' if one.holds else 'APART'}"
    parts = [one for one in found if one.stretch is not None]
    apart = sum(not one.holds for one in parts)
    yield f"{count_stretches(found)} stretches, {apart} of {len(parts)} figures apart by over 2 %"


def count_stretches(found: Sequence[ComparedFigure]) -> int:
    """Return how many stretches were compared."""
    return len({one.stretch for one in found} - {None})


def find_worst(found: Sequence[ComparedFigure], *, whole: bool) -> float | None:
    """Return the largest distance of a figure: over the whole time, or of the stretches' middle one. None: not known."""
    apart: dict[str, list[float]] = {}
    for one in found:
        if (one.stretch is None) is whole:
            apart.setdefault(one.what, []).append(float("inf") if one.apart is None else one.apart)
    return max((median_low(values) for values in apart.values()), default=None)


def is_agreement(found: Sequence[ComparedFigure]) -> bool:
    """Tell whether there was enough to compare and all of it agrees."""
    figures = [find_worst(found, whole=whole) for whole in (True, False)]
    return count_stretches(found) >= FEWEST and all(one is not None and one <= TOLERANCE for one in figures)


def watch_server(url: str, log: Path, seconds: float) -> tuple[list[Report], list[tuple[float, EngineMetrics]]]:
    """Follow the log's new lines for so long, reading the page every two seconds and at every report."""
    listener = Listener(lambda: read_page(url))
    pages: list[tuple[float, EngineMetrics]] = []
    left, end, due = "", time.monotonic() + seconds, 0.0
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(0, os.SEEK_END)
        while (now := time.monotonic()) < end:
            *lines, left = (left + file.read()).split("\n")
            for line in lines:
                listener.hear(now, line)
            if now >= due:
                due = now + 2.0
                if (page := read_page(url)) is not None:
                    pages.append((time.monotonic(), page))
            time.sleep(0.01)
    return listener.reports, pages


def read_page(url: str) -> EngineMetrics | None:
    """Return what /metrics says, None where it cannot be read now."""
    try:
        with urllib.request.urlopen(
            url + mark_request_path("/metrics"), timeout=5
        ) as answer:  # the operator's own server
            return _ENGINE.parse_metrics(answer.read().decode())
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None


@contextlib.contextmanager
def keep_loaded(url: str, workers: int) -> Iterator[None]:
    """Keep so many requests under way: text that repeats itself, so that drafts have something to find.

    Every other one is not quite greedy: of a model with random weights drafts would all be accepted, or none.
    """
    over = threading.Event()

    def work(number: int) -> None:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            model = json.load(answer)["data"][0]["id"]
        count = 0
        while not over.is_set():
            count += 1
            prompt = f"# file {number}-{count}\n" + "def read(self, size): return self._buffer.read(size)\n" * 12
            heat = 0.01 * (count % 2)
            asked = {"model": model, "prompt": prompt, "max_tokens": 128, "temperature": heat, "ignore_eos": True}
            request = urllib.request.Request(
                f"{url}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
            )
            with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
                urllib.request.urlopen(request, timeout=120).read()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def run_server(command: Sequence[str], url: str, log: Path) -> Iterator[None]:
    """Run a server until the end; its output goes to ``log``. Raises RuntimeError where it does not get ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        end = time.monotonic() + _READY_WITHIN
        while read_page(url) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"it did not get ready: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(1.0)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Watch, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.nightly.acceptance", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--log", type=Path, help="where the running server's output goes")
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--load", type=int, default=0, metavar="N", help="requests at a time to send meanwhile")
    parser.add_argument("command", nargs="*", help="a server to start instead, after --")
    options = parser.parse_args()
    if bool(options.command) == (options.log is not None):
        parser.error("either --log FILE of a running server, or -- COMMAND that starts one")
    with contextlib.ExitStack() as stack:
        log = options.log
        if log is None:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkctl-nightly-"))) / "engine.log"
            stack.enter_context(run_server(options.command, options.url, log))
        if options.load:
            stack.enter_context(keep_loaded(options.url, options.load))
        found = compare_figures(*watch_server(options.url, log, options.seconds))
    print("\n".join(format_table(found)), flush=True)
    return 0 if is_agreement(found) else 1


if __name__ == "__main__":
    sys.exit(main())
