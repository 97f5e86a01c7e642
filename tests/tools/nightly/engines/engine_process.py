"""A real engine as a process of ours, and its log as sparkctl reads one: by the reader of every start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sparkctl import engines
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.model.launch_plan import ReadinessRule, ReadinessTarget
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.text.log_line import LogLine
from sparkctl.monitor import engine_probe
from sparkctl.transport.local_connection import LocalConnection

HERE = LocalConnection(Node(name=NodeName("here"), host="local"))
_NICE = 10
_FAREWELL = 40.0  # seconds between SIGTERM and SIGKILL
_THREADS = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(slots=True)
class RealEngine:
    """One run. ``moves``: each phase and step with the seconds after the beginning at which the log told of it."""

    process: subprocess.Popen[bytes]
    log: Path
    reader: LogAnalyzer
    port: int
    served: str
    began: float
    moves: list[tuple[float, Phase, str]] = field(default_factory=list)
    _at: int = 0
    _rest: bytes = b""
    _lines: int = 0

    @property
    def service(self) -> ReadinessTarget:
        """What asking it takes."""
        return ReadinessTarget(self.port, self.reader.ready, self.served)

    @property
    def lines(self) -> list[str]:
        """What its log holds."""
        return self.log.read_text(encoding="utf-8", errors="replace").split("\n")

    def read(self) -> None:
        """Take in what the log has got since."""
        with self.log.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        for raw in whole:
            self._lines += 1
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        if self.reader.feed_lines([LogLine(when="", text=raw.decode("utf-8", "replace"), number=self._lines)]):
            step = "" if self.reader.step is None else self.reader.step.name
            now = (self.reader.phase, step)
            if not self.moves or self.moves[-1][1:] != now:
                self.moves.append((time.monotonic() - self.began, *now))

    def until_ready(self, within: float) -> str | None:
        """Wait as ``up`` does: the ready line, then health, then a token. Return what is wrong, None where it is ready."""
        end = time.monotonic() + within
        asked = "no ready line"
        while time.monotonic() < end:
            ended = self.process.poll()
            self.read()
            if ended is not None:
                return f"it ended with {ended}"
            if self.reader.ready_line_seen:
                answers = asyncio.run(self._ask())
                if all(answer.good for answer in answers):
                    return None
                asked = "; ".join(answer.format_masked(()) for answer in answers)
            time.sleep(0.1)
        return f"not ready within {within:.0f} s: {asked}"

    async def _ask(self) -> tuple[engine_probe.ProbeResult, ...]:
        first = await engine_probe.check_health(HERE, self.service)
        return (first, await engine_probe.request_token(HERE, self.service)) if first.good else (first,)

    def until_end(self, within: float) -> int | None:
        """Wait for its end and read the log to its end; None where it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within)
        self.read()
        if self.process.poll() is not None and self._rest:
            self._lines += 1
            self._take(self._rest)
            self._rest = b""
        return self.process.poll()

    def child(self, title: str) -> psutil.Process | None:
        """Return the process of it whose title holds this."""
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if title in " ".join([one.name(), *one.cmdline()]):
                    return one
        return None

    def stop(self) -> int | None:
        """End it as ``docker stop`` would, and whatever it leaves behind."""
        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(signal.SIGTERM)
            if self.until_end(_FAREWELL) is None:
                self.process.kill()
                self.process.wait()
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        return self.until_end(0)


@contextlib.contextmanager
def run_engine(
    name: str, engine: str, command: Sequence[str], port: int, served: str, directory: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[RealEngine]:  # fmt: skip
    """Start an engine; it is ended in any case. Both its streams go to one file, as they come."""
    log = directory / f"{name}.log"
    knows = engines.load_engine(engine)
    with log.open("wb", buffering=0) as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            env=os.environ | _THREADS | dict(env or {}), preexec_fn=lambda: os.nice(_NICE) and None,
        )  # fmt: skip
    rule = ReadinessRule(line=knows.defaults.ready_line, health=knows.defaults.health, probe=knows.defaults.probe)
    real = RealEngine(process, log, LogAnalyzer(engine=knows, ready=rule), port, served, time.monotonic())
    try:
        yield real
    finally:
        real.stop()
