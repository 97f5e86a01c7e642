"""A directory as the context of `docker build`: the same files give the same archive and the same hash."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sparkctl.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class BuildContext:
    """An archive that `docker build -` reads. ``digest``: the hash of its files, names, modes and links."""

    archive: IO[bytes]
    size: int
    digest: str


def pack_build_context(base: Path, text: str) -> BuildContext:
    """Return a directory with a Dockerfile as an archive, without what its .dockerignore names. Raises `InvalidInput`.

    ``text``: its path, as a profile has it: relative to ``base``, or from the home directory.

    It reads the whole directory: call it in a thread.
    """
    from docker.utils.build import exclude_paths  # imported late: it takes a tenth of a second

    directory = base / Path(text).expanduser()
    if not (directory / "Dockerfile").is_file():
        raise InvalidInput(
            f"{directory} has no Dockerfile", "check build: in the profile; a relative path starts there"
        )
    archive = tempfile.TemporaryFile()  # noqa: SIM115  # its reader closes it
    try:
        ignored = directory / ".dockerignore"
        lines = ignored.read_text("utf-8", "replace").splitlines() if ignored.is_file() else []
        patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as target:
            for name in sorted(exclude_paths(str(directory), patterns)):
                _add_file(target, directory / name, name)
        size, summed = archive.tell(), hashlib.sha256()
        archive.seek(0)
        while part := archive.read(1 << 20):
            summed.update(part)
        archive.seek(0)
    except OSError as error:
        archive.close()
        raise InvalidInput(f"{error.filename or directory} cannot be read for the build: {error.strerror}") from error
    return BuildContext(archive, size, f"sha256:{summed.hexdigest()}")


def _add_file(target: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file without what differs from checkout to checkout: its time, its owner, and all of its mode but `x`."""
    entry = target.gettarinfo(str(path), arcname=name)
    if entry is None:  # a socket
        return
    if entry.islnk():  # a second name of a file that is in the archive: the file again
        entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
    if entry.isfile():
        with path.open("rb") as file:
            target.addfile(entry, file)
    else:
        target.addfile(entry)
