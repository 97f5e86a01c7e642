"""Benchmarks on this machine: a JSON file each in the state directory, written again after every cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sparkctl import paths
from sparkctl.errors import InvalidInput
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

    def next_number(self) -> int:
        """Return a number that no benchmark has."""
        return max((number for number, _ in self._list_files()), default=0) + 1

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
