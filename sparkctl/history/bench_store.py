"""Benchmarks on this machine: a JSON file each in the state directory, written again after every cell; and
the comparison of two.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path

from sparkctl import files
from sparkctl.errors import InvalidInput, OperationRefused
from sparkctl.files import read_regular_file, write_private_file
from sparkctl.history.database import make_private_directory
from sparkctl.history.start_diff import StartDifference, diff_profiles, load_recorded_reference
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, DomainKey, DomainResult, Measurements
from sparkctl.model.container import shorten_id
from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.reference import FigureRange, Reference, ReferenceFigure, name_source

_MAX_FILE_BYTES = 16 << 20
_SCHEMA = 1


class BenchStore:
    """The benchmarks below ``directory`` (None: that of the state directory)."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or files.state_dir() / "bench"

    def add(self, run: BenchRun) -> BenchRun:
        """Keep a benchmark that begins, under a number that no other has, and return it with that. Raises OSError."""
        make_private_directory(self.directory)
        number = max((each for each, _ in self._list_files()), default=0) + 1
        while True:
            try:
                os.close(os.open(self.directory / f"{number}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
            except FileExistsError:  # another began at the same moment
                number += 1
        numbered = replace(run, number=number)
        try:
            self.save(numbered)
        except OSError:
            (self.directory / f"{number}.json").unlink(missing_ok=True)
            raise
        return numbered

    def is_saved(self, run: BenchRun) -> bool:
        """Tell whether a benchmark is on disk with all that ``run`` has."""
        try:
            return to_json_data(self.load(run.number)) == to_json_data(run)  # a file has six places of a number
        except InvalidInput:
            return False

    def discard_empty(self, number: int) -> None:
        """Forget a benchmark in which nothing was measured."""
        with suppress(InvalidInput, OSError):
            run = self.load(number)
            if not run.results and not run.domains:
                (self.directory / f"{number}.json").unlink()

    @contextmanager
    def hold(self, number: int) -> Iterator[None]:
        """Keep everybody else from measuring this benchmark, until the process ends at the latest.

        Raises `OperationRefused` if somebody measures it now, OSError.
        """
        make_private_directory(self.directory)
        file = os.open(self._lock_path(number), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OperationRefused(
                    f"benchmark {number} is being measured now", f"see it: sparkctl bench show {number}"
                ) from None
            yield
            with suppress(OSError):
                self._lock_path(number).unlink()
        finally:
            os.close(file)

    def _lock_path(self, number: int) -> Path:
        return self.directory / f"{number}.lock"

    def save(self, run: BenchRun) -> None:
        """Write a benchmark; what was there under its number is replaced whole. Raises OSError."""
        make_private_directory(self.directory)
        text = json.dumps({"schema": _SCHEMA, "run": to_json_data(run)}, indent=1)
        write_private_file(self.directory / f"{run.number}.json", text)

    def load(self, number: int) -> BenchRun:
        """Return a benchmark. Raises `InvalidInput` if there is none, or its file cannot be read."""
        path = self.directory / f"{number}.json"
        try:
            data = json.loads(read_regular_file(path, _MAX_FILE_BYTES))
            schema = data.get("schema", _SCHEMA)
            if isinstance(schema, int) and schema > _SCHEMA:
                raise InvalidInput(f"{path}: a newer sparkctl wrote it (schema {schema})", "update sparkctl to read it")
            return from_json_data(BenchRun, data["run"])
        except FileNotFoundError:
            raise InvalidInput(f"there is no benchmark {number}", "sparkctl bench list") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"{path}: not a benchmark of sparkctl: {error}", "remove the file") from error

    def list_runs(self) -> tuple[BenchRun, ...]:
        """Return all benchmarks that can be read, the newest first."""
        found = []
        for number, _ in sorted(self._list_files(), reverse=True):
            try:
                found.append(self.load(number))
            except InvalidInput:
                continue
        return tuple(found)

    def find_last(self, instance: str, node: NodeName) -> BenchRun | None:
        """Return the newest benchmark of an instance on a node with a result, None without any."""
        mine = (one for one in self.list_runs() if one.instance == instance and node in one.nodes)
        return next((one for one in mine if one.results or one.domains), None)

    def _list_files(self) -> Iterator[tuple[int, Path]]:
        for path in self.directory.glob("*.json"):
            if path.stem.isdecimal():
                yield int(path.stem), path


_UNTOLD_CONTEXT = 8192  # tokens: where a source tells no sizes, it was no longer context
_RECORDED_FACTS = ("digest", "image_digest", "engine_version", "driver", "kernel")
_LEAST_PAIRS = 6  # prompts: that all are faster with the same one is chance once in 32
_HASHES = ("image_digest", "book", "prompts")  # of which twelve digits tell
_NOT_COMPARED = ("digest", "text", "runs", "served", "profile", "context", "draft_tokens")


class BenchFigure(StrEnum):
    """The compared figures; the value is the row's name."""

    GENERATION = "generation tok/s"
    PROMPT = "prompt tok/s"
    TTFT = "time to first token, s"
    ACCEPTED = "tokens per step"

    @property
    def digits(self) -> int:
        """How many are told after the point."""
        return 1 if self in (BenchFigure.GENERATION, BenchFigure.PROMPT) else 2

    @property
    def is_better_when_lower(self) -> bool:
        return self is BenchFigure.TTFT

    def get_values(self, one: CellResult | DomainResult) -> Measurements | None:
        """Return the figure of a cell."""
        return {
            BenchFigure.GENERATION: one.generation_rate,
            BenchFigure.PROMPT: None if isinstance(one, DomainResult) else one.prompt_rate,
            BenchFigure.TTFT: one.ttft,
            BenchFigure.ACCEPTED: None if one.accept_length is None else Measurements((one.accept_length,)),
        }[self]

    def get_range(self, one: ReferenceFigure) -> FigureRange | None:
        """Return the figure of a source's row."""
        ttft = None if one.ttft is None else FigureRange(one.ttft, one.ttft)
        return {
            BenchFigure.GENERATION: one.generation,
            BenchFigure.PROMPT: one.prefill,
            BenchFigure.TTFT: ttft,
            BenchFigure.ACCEPTED: one.accept_length,
        }[self]


@dataclass(frozen=True, slots=True)
class SourceFigure:
    """What a profile's source measured in the situation of a cell; ``source``: its short name."""

    figure: FigureRange
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison:
    """One figure of one cell in both runs.

    ``gain``: the share by which B is better (0.68 = +68 %; for latencies, less time is better), None where one is not
    known. ``is_distinct``: the two ranges of values do not touch; None where a run has a single value, which has no spread.
    ``is_paired``: the values are of the same prompts in the same order, which differ more than two stacks do. Each prompt is then
    compared with itself: the gain is that of the prompt in the middle, and it is distinct where it is more or less with every prompt.
    ``source_before``, ``source_after``: what the source of each run's profile measured there, None where it did not.
    """

    cell: BenchCell | DomainKey
    figure: BenchFigure
    before: Measurements | None
    after: Measurements | None
    source_before: SourceFigure | None
    source_after: SourceFigure | None
    is_paired: bool

    @property
    def gain(self) -> float | None:
        """By which share B is better."""
        if self.before is None or self.after is None or not self.before.median or not self.after.median:
            return None
        if gains := self._list_pair_gains():
            import statistics  # imported late, as in `model.bench`

            return statistics.median(gains)
        return self._compute_gain(self.before.median, self.after.median)

    def _compute_gain(self, old: float, new: float) -> float:
        return old / new - 1 if self.figure.is_better_when_lower else new / old - 1

    def _list_pair_gains(self) -> list[float]:
        """Return the gain of each prompt; none where the values are no pairs, or too few to tell."""
        if not self.is_paired or self.before is None or self.after is None or len(self.before.values) < _LEAST_PAIRS:
            return []
        pairs = list(zip(self.before.values, self.after.values, strict=True))
        return [self._compute_gain(*pair) for pair in pairs] if all(map(all, pairs)) else []

    @property
    def is_distinct(self) -> bool | None:
        """Tell whether the difference is more than the spread."""
        if self.before is None or self.after is None or min(len(self.before.values), len(self.after.values)) < 2:
            return None
        if gains := self._list_pair_gains():
            return min(gains) > 0 or max(gains) < 0
        return self.before.high < self.after.low or self.after.high < self.before.low


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchComparison:
    """Two runs side by side. ``missing``: cells that only one of them has. ``setup``: what was different; ``unknown``: what neither
    of them recorded, so that it may have been different.
    """

    before: BenchRun
    after: BenchRun
    rows: tuple[FigureComparison, ...]
    missing: tuple[BenchCell | DomainKey, ...]
    setup: tuple[StartDifference, ...]
    unknown: tuple[str, ...]

    @property
    def lettered_runs(self) -> tuple[tuple[str, BenchRun], tuple[str, BenchRun]]:
        """Both runs, each with the letter by which it is spoken of."""
        return ("A", self.before), ("B", self.after)


def compare_benches(
    before: BenchRun, after: BenchRun, find_reference: Callable[[BenchRun], Sequence[Reference]] | None = None
) -> BenchComparison:
    """Return the comparison of the cells that both have, in the order of the first.

    ``find_reference``: what the sources of a run's profile measured; default: by the profile that was recorded with the run.
    """
    old, new = _list_measured(before), _list_measured(after)
    find_reference = find_reference or (lambda run: load_recorded_reference(run.setup.text))
    sources = [find_reference(run) for run in (before, after)]
    rows = [
        FigureComparison(
            cell=cell,
            figure=figure,
            before=figure.get_values(one),
            after=figure.get_values(new[cell]),
            is_paired=before.setup.prompts == after.setup.prompts
            and _count_by_prompt(one, figure) is not None
            and _count_by_prompt(one, figure) == _count_by_prompt(new[cell], figure),
            source_before=find_source_figure(sources[0], cell, figure),
            source_after=find_source_figure(sources[1], cell, figure),
        )
        for cell, one in old.items()
        if cell in new
        for figure in BenchFigure
        if figure is not BenchFigure.PROMPT or not isinstance(cell, DomainKey)
        if figure is not BenchFigure.ACCEPTED or one.accept_length or new[cell].accept_length
    ]
    return BenchComparison(
        before=before,
        after=after,
        rows=tuple(rows),
        missing=tuple(cell for cell in (*old, *new) if (cell in old) != (cell in new)),
        setup=_compare_setups(before, after),
        unknown=tuple(
            name.replace("_", " ")
            for name in _RECORDED_FACTS
            if getattr(before.setup, name) is None and getattr(after.setup, name) is None
        ),
    )


def _count_by_prompt(one: CellResult | DomainResult, figure: BenchFigure) -> int | None:
    """Return how many prompts there were where each has its value, in their order; None else."""
    values = figure.get_values(one)
    if not isinstance(one, DomainResult) or one.failed or values is None or len(values.values) != one.prompts:
        return None
    return one.prompts


def find_source_figure(
    references: Sequence[Reference], cell: BenchCell | DomainKey, figure: BenchFigure
) -> SourceFigure | None:
    """Return what the sources measured in a cell's situation: by the rows that tell the most of its sizes. None: nothing.

    A row is of another situation where a size that it tells differs, and where it tells of another kind of text. Prompts and
    first tokens are compared at the same prompt length alone.
    """
    found: list[tuple[int, FigureRange, str]] = []
    for reference in references:
        for one in reference.figures if reference.differs is None else ():
            value, same_sizes = figure.get_range(one), _count_same_sizes(one, cell, figure)
            if value is not None and same_sizes is not None:
                found.append((same_sizes, value, reference.source))
    if not found:
        return None
    most = max(same_sizes for same_sizes, _, _ in found)
    ranges = [value for same_sizes, value, _ in found if same_sizes == most]
    sources = dict.fromkeys(name_source(source) for same_sizes, _, source in found if same_sizes == most)
    joined = FigureRange(min(one.low for one in ranges), max(one.high for one in ranges))
    return SourceFigure(joined, ", ".join(sources))


def _count_same_sizes(one: ReferenceFigure, cell: BenchCell | DomainKey, figure: BenchFigure) -> int | None:
    """Return how many sizes a source's row has in common with a cell, None where it is of another situation."""
    if isinstance(cell, DomainKey):
        is_same = (one.task or "").casefold() == cell.domain.casefold() and one.concurrency == 1
        return 1 if is_same else None
    if one.task is not None or one.concurrency != cell.concurrency:
        return None
    if figure is not BenchFigure.GENERATION and one.prompt is None:
        return None
    pairs = list(_list_size_pairs(one, cell))
    if any(declared != own for declared, own in pairs):
        return None
    if one.depth is None and cell.context > _UNTOLD_CONTEXT:
        return None
    return len(pairs)


def _list_size_pairs(one: ReferenceFigure, cell: BenchCell) -> Iterator[tuple[int, int]]:
    for declared, own in ((one.prompt, cell.pp), (one.generated, cell.tg), (one.depth, cell.depth)):
        if declared is not None:
            yield declared, own


def _list_measured(run: BenchRun) -> dict[BenchCell | DomainKey, CellResult | DomainResult]:
    """Return what was measured of a run, by cell or kind of text."""
    found: dict[BenchCell | DomainKey, CellResult | DomainResult] = {
        one.cell: one for one in run.results if one.error is None
    }
    for one in run.domains:
        if one.generation_rate is not None:
            found[one.key] = one
    return found


def _compare_setups(before: BenchRun, after: BenchRun) -> tuple[StartDifference, ...]:
    found = [] if before.nodes == after.nodes else [_describe("nodes", " ".join(before.nodes), " ".join(after.nodes))]
    for one in fields(BenchSetup):
        old, new = getattr(before.setup, one.name), getattr(after.setup, one.name)
        if one.name not in _NOT_COMPARED and old != new:
            if one.name in _HASHES:
                old, new = (None if value is None else shorten_id(value) for value in (old, new))
            found.append(_describe(one.name.replace("_", " "), old, new))
    shown = {"name", *(one.what for one in found)}  # the headings have the name; engine and image are as they ran
    profiles = diff_profiles(before.setup.text, after.setup.text) or ()
    return (*found, *(one for one in profiles if one.what not in shown))


def _describe(what: str, before: object, after: object) -> StartDifference:
    old, new = (None if value is None else str(value) for value in (before, after))
    return StartDifference(what, old, new)
