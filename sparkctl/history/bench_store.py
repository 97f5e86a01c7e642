"""Benchmarks on this machine: a JSON file each in the state directory, written again after every cell."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from sparkctl import paths
from sparkctl.errors import InvalidInput, OperationRefused
from sparkctl.files import read_regular_file, write_private_file
from sparkctl.history.database import make_private_directory
from sparkctl.model.bench import BenchRun
from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.node import NodeName

_MAX_FILE_BYTES = 16 << 20


class BenchStore:
    """The benchmarks below ``directory`` (None: that of the state directory)."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or paths.state_dir() / "bench"

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
        self.save(numbered)
        return numbered

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

    def is_held(self, number: int) -> bool:
        """Tell whether somebody on this machine measures it now."""
        try:
            file = os.open(self._lock_path(number), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def _lock_path(self, number: int) -> Path:
        return self.directory / f"{number}.lock"

    def save(self, run: BenchRun) -> None:
        """Write a benchmark; what was there under its number is replaced whole. Raises OSError."""
        make_private_directory(self.directory)
        text = json.dumps({"schema": 1, "run": to_json_data(run)}, indent=1)
        write_private_file(self.directory / f"{run.number}.json", text)

    def load(self, number: int) -> BenchRun:
        """Return a benchmark. Raises `InvalidInput` if there is none, or its file cannot be read."""
        path = self.directory / f"{number}.json"
        try:
            data = json.loads(read_regular_file(path, _MAX_FILE_BYTES))
            return from_json_data(BenchRun, data["run"])
        except FileNotFoundError:
            raise InvalidInput(f"there is no benchmark {number}", "sparkctl bench list") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
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
