"""Runs llama-benchy as a child process, one process a cell, and reads its progress and its result.

It is never imported: which one is used is the owner's choice (`--command`, PATH, uvx, pipx). Facts about its options and
files: llama-benchy 0.4.0.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from sparkctl.errors import InvalidInput, OperationRefused, SparkctlError
from sparkctl.model.bench import BenchCell, CellResult, Measurements
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import is_secret_name

VERSION = "0.4.0"  # of llama-benchy, where it is fetched for one use
_BOOK = Path(__file__).parent / "book.txt"
_BOOK_URL = "https://sparkctl.invalid/book.txt"  # it is never fetched: the file is in llama-benchy's cache before
_LINE_LIMIT = 1 << 20
_END_SECONDS = 10.0  # seconds that a process gets to end after a signal
_VERSION_SECONDS = 120.0  # seconds that it gets to tell its version: uvx and pipx may fetch it first
_VERSION = re.compile(r"\bllama-benchy\s+v?(\d[\w.+-]*)")


class CellFailed(SparkctlError):
    """The load generator measured nothing in a cell; the message is its own last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """Where the load goes: ``url`` ends with /v1; ``tokenizer`` is a directory or a name; ``extra`` goes into each request."""

    url: str
    model: str
    tokenizer: str
    extra: tuple[tuple[str, str], ...] = ()


def _suggest_install(instance: str) -> str:
    """Return the ways to a load generator, one a line, and the measurement that needs none."""
    ways = "\n".join(f"{way} install llama-benchy" for way in ("uv tool", "pipx", "pip"))
    return f"{ways}\nsparkctl bench {instance} --by-domain        needs none: it measures by kind of text"


def find_load_generator(own: str | None, instance: str) -> tuple[str, ...]:
    """Return the words that start llama-benchy: the owner's, that on PATH, else by uvx or pipx.

    Raises `InvalidInput` for a command that is not complete, `OperationRefused` with the line that installs it.
    """
    if own:
        try:
            words = tuple(shlex.split(own))
        except ValueError as wrong:  # a quote that is not closed
            raise InvalidInput(
                f"the command of the load generator is not complete: {wrong}: {own}",
                "write it as in a shell: --command 'uvx llama-benchy'",
            ) from wrong
        if words and shutil.which(words[0]):
            return words
        raise OperationRefused(f"the load generator {own!r} is not there", _suggest_install(instance))
    own_copy = Path(sys.executable).parent / "llama-benchy"
    if found := shutil.which("llama-benchy") or (str(own_copy) if own_copy.exists() else None):
        return (found,)
    if found := shutil.which("uvx"):
        return (found, f"llama-benchy=={VERSION}")
    if found := shutil.which("pipx"):
        return (found, "run", f"llama-benchy=={VERSION}")
    raise OperationRefused("llama-benchy, which makes the load, is not on this machine", _suggest_install(instance))


async def describe_generator(words: Sequence[str]) -> str:
    """Return name and version of the load generator; its words where it does not tell a version."""
    known = " ".join(Path(word).name for word in words)
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # the first cell tells why
        return known
    try:
        async with asyncio.timeout(_VERSION_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        return known
    finally:
        await _end_process(process)
    found = _VERSION.search(output.decode("utf-8", "replace"))
    return known if found is None else f"llama-benchy {found[1]}"


def is_same_generator(recorded: str | None, now: str) -> bool:
    """Tell whether a benchmark was ``recorded`` with the load generator that is there ``now``, as far as it recorded it.

    Older benchmarks have no version of it, or nothing.
    """
    return not recorded or f"{now} ".startswith(f"{recorded} ")


def refuse_missing_tokenizer(place: str | None) -> None:
    """Raise `InvalidInput` for a directory without a tokenizer. A name of the Hub is left to the load generator."""
    directory = Path(place or "")
    if place is None or not (directory.is_dir() or place.startswith(("/", "."))):
        return
    if not any((directory / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")):
        raise InvalidInput(f"{place} has no tokenizer.json", "name the directory of the model's: --tokenizer DIR")


def hash_book(book: Path | None) -> str:
    """Return the SHA-256 of the text that prompts are cut from. Raises `InvalidInput` if it cannot be read."""
    try:
        return hashlib.sha256((book or _BOOK).read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidInput(f"{book}: {error.strerror or error}", "name a text file: --book FILE") from error


@dataclass(slots=True, kw_only=True)
class LoadGenerator:
    """llama-benchy, ready for cells. ``home``: a directory for its cache; ``timeout``: seconds for a cell; ``book``: the text
    that prompts are cut from, None: ours. Each cell is a process, and `warm_up` one of its own before the first: no request of it
    falls into what is measured.
    """

    words: Sequence[str]
    target: LoadTarget
    home: Path
    runs: int
    timeout: float | None = None
    book: Path | None = None
    is_warm: bool = field(default=False, init=False)

    async def warm_up(self, cell: BenchCell) -> CellResult | None:
        """Have the engine answer a cell once; no figure of it is for the benchmark. None: too short an answer for a figure.

        Raises `CellFailed`; a cancelled call ends the process.
        """
        talk = _ProcessTalk(expected=cell.concurrency)
        file = await self._run_process(cell, talk, 1)
        if talk.errors:
            raise CellFailed(talk.describe_failure(0))
        self.is_warm = True
        with suppress(CellFailed):
            return _parse_result(file, cell, talk)
        return None

    async def run_cell(
        self,
        cell: BenchCell,
        begin: Callable[[], None],
        end: Callable[[], None],
        report: Callable[[int, int], None] | None,
    ) -> CellResult:
        """Measure one cell; ``begin`` is called at the first measured request, ``end`` after the last, ``report`` gets how many
        of its requests have ended, and their number.

        Raises `CellFailed`; a cancelled call ends the process.
        """
        talk = _ProcessTalk(begin, end, report, expected=self.runs * cell.concurrency)
        return _parse_result(await self._run_process(cell, talk, self.runs), cell, talk)

    async def _run_process(self, cell: BenchCell, talk: _ProcessTalk, runs: int) -> Path:
        """Run llama-benchy once, and return the file of its result. Raises `CellFailed`."""
        result_file = self.home / "result.json"
        try:
            _put_book_into_cache(self.home, self.book or _BOOK)
            result_file.unlink(missing_ok=True)
            process = await asyncio.create_subprocess_exec(
                *self.words, *self._build_options(cell, result_file, runs), stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=_LINE_LIMIT,
                env=_build_environment(self.home), start_new_session=True,
            )  # fmt: skip
        except OSError as error:  # a full disk, a generator that was removed overnight: this cell's trouble alone
            raise CellFailed(f"{error.filename or self.words[0]}: {error.strerror or error}") from error
        try:
            async with asyncio.timeout(self.timeout):
                await asyncio.gather(talk.read_progress(process.stdout), talk.read_messages(process.stderr))
                status = await process.wait()
        except TimeoutError:
            raise CellFailed(f"no result within {self.timeout:g} s") from None
        finally:
            await _end_process(process)
        if status or not result_file.exists():
            raise CellFailed(talk.describe_failure(status))
        return result_file

    def _build_options(self, cell: BenchCell, result_file: Path, runs: int) -> list[str]:
        target = self.target
        options = {
            "--base-url": target.url, "--model": target.model, "--served-model-name": target.model, "--tokenizer": target.tokenizer,
            "--pp": str(cell.pp), "--tg": str(cell.tg), "--depth": str(cell.depth), "--concurrency": str(cell.concurrency),
            "--runs": str(runs), "--book-url": _BOOK_URL, "--save-result": str(result_file), "--format": "json",
            "--emit-progress": "-",
        }  # fmt: skip
        words = [word for pair in options.items() for word in pair]
        words += ["--skip-coherence", "--no-cache", "--no-warmup"]  # its own warm-up would be a run of each cell
        return words + [word for name, value in target.extra for word in ("--extra-body", f"{name}={value}")]


class _ProcessTalk:
    """What the process writes: JSON lines of its progress on stdout, sentences on stderr."""

    def __init__(
        self,
        begin: Callable[[], None] | None = None,
        end: Callable[[], None] | None = None,
        report: Callable[[int, int], None] | None = None,
        *,
        expected: int,
    ) -> None:
        self._begin, self._end, self._report = begin, end, report
        self._expected = self._left = expected
        self._has_begun = False
        self.errors: list[str] = []
        self.last_line = ""

    async def read_progress(self, stream: asyncio.StreamReader | None) -> None:
        async for line in _iterate_lines(stream):
            with suppress(ValueError, TypeError, KeyError):
                self._note_progress(json.loads(line))

    def _note_progress(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind == "request_start" and not self._has_begun:
            self._has_begun = True
            if self._begin is not None:
                self._begin()
        elif kind == "request_end":
            if event.get("error"):
                self.errors.append(sanitize_line(str(event["error"])))
            self._left -= 1
            if self._report is not None:
                self._report(self._expected - self._left, self._expected)
            if self._left == 0 and self._end is not None:
                self._end()

    async def read_messages(self, stream: asyncio.StreamReader | None) -> None:
        async for line in _iterate_lines(stream):
            if words := sanitize_line(line.decode("utf-8", "replace")).strip():
                self.last_line = words

    def describe_failure(self, status: int) -> str:
        """Return why there is no result."""
        return next(iter(self.errors), self.last_line) or f"the load generator ended with status {status}"


async def _iterate_lines(stream: asyncio.StreamReader | None) -> Any:
    assert stream is not None
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit: no line of a progress
            continue
        if not line:
            return
        yield line


def _parse_result(path: Path, cell: BenchCell, talk: _ProcessTalk) -> CellResult:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        one, latency = report["benchmarks"][-1], report.get("latency_ms")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CellFailed(f"the load generator's result cannot be read: {error}") from error
    rate = _read_values(one, "tg_throughput")
    if talk.errors:  # the rest had the engine for itself: no figure of this cell
        raise CellFailed(talk.describe_failure(0))
    if rate is None:
        raise CellFailed("no request generated more than one token")
    return CellResult(
        cell=cell,
        generation_rate=rate,
        prompt_rate=_read_values(one, "pp_throughput"),
        peak_rate=_read_values(one, "peak_throughput"),
        latency=latency / 1000 if isinstance(latency, int | float) and not isinstance(latency, bool) else None,
        ttft=_read_seconds(one, "e2e_ttft"),
        generation_rate_each=_read_values(one, "tg_req_throughput"),
        prompt_rate_each=_read_values(one, "pp_req_throughput"),
        peak_rate_each=_read_values(one, "peak_req_throughput"),
        first_response=_read_seconds(one, "ttfr"),
        prompt_seconds=_read_seconds(one, "est_ppt"),
    )


def _read_seconds(one: Mapping[str, Any], name: str) -> Measurements | None:
    """Return figures that are told in milliseconds."""
    found = _read_values(one, name)
    return None if found is None else Measurements(tuple(value / 1000 for value in found.values))


def _read_values(one: Mapping[str, Any], name: str) -> Measurements | None:
    found = one.get(name)
    values = found.get("values") if isinstance(found, dict) else None
    if not isinstance(values, list) or not values or not all(isinstance(value, int | float) for value in values):
        return None
    return Measurements(tuple(float(value) for value in values))


def _put_book_into_cache(home: Path, book: Path) -> None:
    """Put the text of the prompts where llama-benchy looks before it fetches one: every run has the same, offline."""
    name = hashlib.md5(_BOOK_URL.encode(), usedforsecurity=False).hexdigest()
    cache = home / ".cache" / "llama-benchy"
    cache.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(book, cache / f"{name}.txt")


def _build_environment(home: Path) -> dict[str, str]:
    """Return the process's environment: no proxy for the loopback, nothing from a hub, no secret but those of an own package index;
    uv's and pip's caches stay."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not is_secret_name(name) or name.startswith(("UV_INDEX_", "PIP_"))
    }
    real = environment.get("HOME", "")
    if real:
        environment.setdefault("UV_CACHE_DIR", f"{real}/.cache/uv")
        environment.setdefault("PIPX_HOME", f"{real}/.local/share/pipx")
    environment |= {"HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    return environment | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """End a process with all that it started, as uvx does: the session is its own."""
    if process.returncode is None:
        _signal_session(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
    _signal_session(process.pid, signal.SIGKILL)  # what outlived it would go on making load
    await process.wait()


def _signal_session(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
