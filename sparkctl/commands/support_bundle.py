"""Writes the files of a bug report into one tar.gz with mode 0600, completely or not at all."""

from __future__ import annotations

import io
import os
import re
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from sparkctl.errors import InvalidInput


class SupportBundle:
    """A bundle that is opened at once, so that a bad path fails before any node is asked; use it with `with`.

    An error before `write_files` has finished leaves no file behind. Raises `InvalidInput`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._done = False
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise InvalidInput(f"{path} already exists", "give another name, or none to have one made") from None
        except OSError as error:
            raise self._build_write_error(error) from error

    def write_files(self, folder: str, files: Mapping[str, str]) -> int:
        """Write all files under ``folder``; return the bundle's size in bytes."""
        now = int(time.time())
        try:
            with (
                os.fdopen(os.dup(self._fd), "wb") as out,
                tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive,
            ):
                for name in sorted(files):
                    body = files[name].encode("utf-8", "replace")
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mtime, entry.mode = len(body), now, 0o600
                    archive.addfile(entry, io.BytesIO(body))
            size = os.fstat(self._fd).st_size
        except OSError as error:
            raise self._build_write_error(error) from error
        self._done = True
        return size

    def _build_write_error(self, error: OSError) -> InvalidInput:
        return InvalidInput(
            f"cannot write {self.path}: {error.strerror or error}", "name another place: --collect FILE"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        if not self._done:
            with suppress(OSError):
                self.path.unlink()


def safe_file_name(name: str) -> str:
    """Return a name that is one valid path component on any system, whatever its source."""
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", name).lstrip(".")[:100] or "_"
