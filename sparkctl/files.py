"""Where sparkctl's files are on the operator's machine, and opening files of the user without hanging: FIFOs, devices,
directories and link loops are refused.

Every refusal is an OSError whose ``strerror`` says what the path is, so that a caller's message can end with it.
"""

from __future__ import annotations

import errno
import io
import os
import re
import select
import stat
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

APP_NAME = "sparkctl"
_MAX_NAME_CHARS = 200  # file systems take 255 bytes


def config_dir() -> Path:
    """Return the directory of the config file and of the operator's own profiles (it may not exist)."""
    if base := _read_absolute_path("XDG_CONFIG_HOME"):
        return base / APP_NAME
    import platformdirs

    return Path(platformdirs.user_config_dir(APP_NAME))


def config_file() -> Path:
    """Return the config file: ``$SPARKCTL_CONFIG`` when set, else ``config.yaml`` in the config directory."""
    if named := os.environ.get("SPARKCTL_CONFIG"):
        return Path(named).expanduser()
    return config_dir() / "config.yaml"


def state_dir() -> Path:
    """Return the directory of history and saved logs: ``$SPARKCTL_STATE`` when set (it may not exist)."""
    if named := os.environ.get("SPARKCTL_STATE"):
        return Path(named).expanduser()
    if base := _read_absolute_path("XDG_STATE_HOME"):
        return base / APP_NAME
    import platformdirs

    return Path(platformdirs.user_state_dir(APP_NAME))


def cache_dir() -> Path:
    """Return the directory of what may be deleted at any time (it may not exist)."""
    if base := _read_absolute_path("XDG_CACHE_HOME"):
        return base / APP_NAME
    import platformdirs

    return Path(platformdirs.user_cache_dir(APP_NAME))


def user_profiles_dir() -> Path:
    """Return the directory of the operator's own profiles (it may not exist)."""
    return config_dir() / "profiles"


def is_demo() -> bool:
    """Tell whether the Sparks are the simulated ones of `sparkctl demo`, which sets that directory."""
    return read_only_profiles_dir() is not None


def read_only_profiles_dir() -> Path | None:
    """Return the directory of profiles that are only read: ``$SPARKCTL_PROFILES_BENEATH``, set by the demo."""
    return _read_absolute_path("SPARKCTL_PROFILES_BENEATH")


def shipped_profiles_dir() -> Path:
    """Return the directory of the shipped profiles: inside the wheel, or beside the package in a checkout."""
    return _find_shipped("profiles")


def docs_dir() -> Path:
    """Return the directory of the documentation's pages: inside the wheel, or beside the package in a checkout."""
    return _find_shipped("docs")


def _find_shipped(name: str) -> Path:
    package = Path(__file__).resolve().parent
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name


def _read_absolute_path(variable: str) -> Path | None:
    """Return the variable's path, None if it is relative: the XDG specification says to ignore those."""
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else None


T = TypeVar("T")
MAX_STATE_FILE_BYTES = 4 << 20  # largest size of a small file that sparkctl writes itself
_FIFO_WRITER_SECONDS = 5.0  # how long to wait for a writer of a named FIFO
_DESCRIPTOR_PATH_PATTERN = re.compile(r"/dev/stdin|/(dev|proc/self)/fd/[0-9]+")
_IRREGULAR_FILE_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def describe_irregular_file(state: os.stat_result) -> str | None:
    """Return what the file is, such as "a FIFO"; None for a regular file and for /dev/null."""
    if stat.S_ISREG(state.st_mode) or _is_dev_null(state):
        return None
    return next((words for is_kind, words in _IRREGULAR_FILE_KINDS if is_kind(state.st_mode)), "something else")


def advise_on_refused_file(path: str | Path, error: OSError) -> str | None:
    """Return the next step where this user may not read a file, None for another error."""
    if not isinstance(error, PermissionError):
        return None
    import shlex

    return f'give it to your user: sudo chown "$USER" {shlex.quote(str(path))}'


def open_regular_file(path: str | Path) -> io.BufferedReader:
    """Open a regular file (or /dev/null, which is empty) for reading. Raises OSError for anything else.

    A descriptor path (``/dev/fd/63``, from a shell's ``<(...)``) may be a pipe, because the user asked for it.
    """
    fd = _open_without_waiting(path)
    try:
        state = os.fstat(fd)
        is_substitution = stat.S_ISFIFO(state.st_mode) and _DESCRIPTOR_PATH_PATTERN.fullmatch(str(path)) is not None
        if not is_substitution and (kind := describe_irregular_file(state)) is not None:
            raise _irregular_file_error(path, kind)
        os.set_blocking(fd, True)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_regular_file(path: str | Path, most: int) -> bytes:
    """Return a regular file's content. Raises OSError for anything else, and for more than ``most`` bytes."""
    with open_regular_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 10} KiB", str(path))
    return data


def load_state_file(path: Path | None, kind: type[T]) -> T | None:
    """Return the dataclass in a state file, None for no path and for a file that is not there, damaged or too large."""
    import json

    from sparkctl.model.json_codec import from_json_data

    try:
        return None if path is None else from_json_data(kind, json.loads(read_regular_file(path, MAX_STATE_FILE_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None


def safe_file_name(name: str) -> str:
    """Return a file name for a name that may hold anything (an ad hoc node is user@host:port), and be of any length.

    Different names have different ones: what had to be changed ends with a digest.
    """
    plain = plain_file_name(name)
    if plain == name:
        return plain
    import hashlib  # rarely needed

    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def plain_file_name(name: str) -> str:
    """Return the same without a digest, as earlier versions wrote it: two names may have the same one."""
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", name).lstrip(".")[:_MAX_NAME_CHARS] or "_"


def open_user_file(path: str | Path) -> io.FileIO:
    """Open a file that the user named on the command line, unbuffered: a regular file, a pipe or a terminal.

    A named FIFO that nobody opens for writing is refused after some seconds. Raises OSError for that and for devices.
    """
    fd = _open_without_waiting(path)
    try:
        refuse_device(fd, path)
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            _wait_for_writer(fd, path)
        os.set_blocking(fd, True)
        return io.FileIO(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def refuse_device(fd: int, name: str | Path) -> None:
    """Raise OSError if an open file is a device that is no terminal: /dev/zero, for example, has no end."""
    state = os.fstat(fd)
    kind = describe_irregular_file(state)
    if kind is None or stat.S_ISFIFO(state.st_mode) or stat.S_ISSOCK(state.st_mode) or os.isatty(fd):
        return
    raise _irregular_file_error(name, kind)


def refuse_irregular(path: str | Path) -> None:
    """Raise OSError if ``path`` is no regular file; for files that a library opens itself."""
    if (kind := describe_irregular_file(os.stat(path))) is not None:  # noqa: PTH116  the same for str and Path
        raise _irregular_file_error(path, kind)


def _open_without_waiting(path: str | Path) -> int:
    """Open for reading without blocking: a normal open of a FIFO without a writer would wait for ever."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _wait_for_writer(fd: int, path: str | Path) -> None:
    """Wait for data in a named FIFO. Raises OSError if it has no writer; a process substitution always has one."""
    if not _is_named_fifo(path):
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if poll.poll(_FIFO_WRITER_SECONDS * 1000):
        return
    # The kernel reports the end of a FIFO only after a writer has closed it. So open and close it as a writer: if there is no
    # other writer, poll reports the end.
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if any(event & select.POLLHUP and not event & select.POLLIN for _, event in poll.poll(0)):
        raise OSError(errno.EPIPE, "it is a FIFO without a writer", str(path))


def _is_named_fifo(path: str | Path) -> bool:
    """Tell whether it is a FIFO with a name, not a pipe of /dev/fd or /dev/stdin."""
    real = os.path.realpath(path)
    return os.path.exists(real) and not real.startswith(("/proc/", "/dev/"))  # noqa: PTH110


def _is_dev_null(state: os.stat_result) -> bool:
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116


def _irregular_file_error(path: str | Path, kind: str) -> OSError:
    if kind == "a directory":
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))


def write_private_file(path: Path, text: str, suffix: str = ".new") -> None:
    """Write a file that its owner alone may read (0600), whole or not at all; ``suffix``: of the file until then. Raises OSError."""
    import tempfile

    handle, name = tempfile.mkstemp(suffix, f"{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_whole_file(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a file whole or not at all: what was there stays until then. Raises FileExistsError unless ``replace``, and
    OSError.
    """
    import tempfile

    if replace and path.exists() and not path.is_file():
        path.write_bytes(content)  # a device such as /dev/stdout keeps its name
        return
    real = path.resolve()
    mode = real.stat().st_mode & 0o777 if real.exists() else None
    handle, name = tempfile.mkstemp(".new", f".{real.name}.", real.parent)
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        fresh.chmod(mode)
        if replace:
            fresh.replace(real)
        else:
            real.hardlink_to(fresh)  # fails where the file exists; a rename would replace it
    finally:
        fresh.unlink(missing_ok=True)


def remove_abandoned_directories(prefix: str) -> None:
    """Remove temporary directories of this user named PREFIX, process id, dash and more, whose process was killed."""
    import shutil
    import tempfile

    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        process, dash, _ = path.name.removeprefix(prefix).partition("-")
        if not process.isdecimal() or not dash or path.is_symlink():
            continue
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            with suppress(OSError):
                if path.stat().st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
        except (OSError, OverflowError):
            continue  # somebody else's
