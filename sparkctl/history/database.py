"""The SQLite file of the history: schema, transactions, and what happens when the file is locked or damaged.

WAL mode, so that readers wait for nobody. A file that cannot be used never stops the command: the entry is not stored, and
`take_warning` returns one sentence about it. A damaged file is renamed, and a new one begins.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from sparkctl.files import refuse_irregular

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

DATABASE_FILE_NAME = "history.db"
APPLICATION_ID = 0x73706B63  # "spkc", in the file's header
_BUSY_TIMEOUT_SECONDS = 0.5  # seconds for another sparkctl that writes
_WAL_RETRY_SECONDS = 0.01  # seconds between two attempts to switch a new file to WAL
_MAX_WAIT_SECONDS = 1.0  # seconds of waiting in total, until a write succeeds again
_SQLITE_CORRUPT, _SQLITE_NOTADB = 11, 26  # SQLITE_CORRUPT, SQLITE_NOTADB
_SIDE_FILE_SUFFIXES = ("-wal", "-shm")  # files that SQLite creates beside its own
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_FULL, _SQLITE_IOERR = 5, 6, 13, 10

# One entry for each version: the statements that upgrade from the version before. PRAGMA user_version counts them.
SCHEMA: tuple[str, ...] = (
    """
    CREATE TABLE operations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, parent TEXT, kind TEXT NOT NULL,
        began REAL NOT NULL, operator TEXT NOT NULL, host TEXT, pid INTEGER, nodes TEXT NOT NULL,
        profile TEXT, instance TEXT, hash TEXT, text TEXT, engine TEXT, image TEXT, alike TEXT, command TEXT,
        ended REAL, seconds REAL, outcome TEXT, exit_code INTEGER, why TEXT, hint TEXT, verdict TEXT,
        usual REAL, usual_parts TEXT, moments TEXT
    );
    CREATE TABLE shares (
        operation INTEGER NOT NULL, node TEXT NOT NULL, instance TEXT NOT NULL, container TEXT,
        image_digest TEXT, driver TEXT, kernel TEXT, engine_version TEXT,
        available_before INTEGER, peak INTEGER, settled INTEGER, estimated INTEGER, available_after INTEGER,
        freed INTEGER, missing INTEGER,
        seconds REAL, cause TEXT, has_joined INTEGER, parts TEXT, accept_length REAL, tokens_per_second REAL,
        receipt TEXT, log TEXT,
        told INTEGER, told_at REAL,  -- in which order it became known how starts ended, and when
        PRIMARY KEY (operation, node, instance)
    );
    CREATE INDEX operations_of_profile ON operations (profile);
    CREATE INDEX operations_of_hash ON operations (hash);
    CREATE INDEX shares_of_container ON shares (container);
    CREATE INDEX shares_told ON shares (told);
    CREATE TABLE taken_over (content TEXT PRIMARY KEY, at REAL NOT NULL);
    """,
    """
    ALTER TABLE shares ADD COLUMN cold_ttft REAL;
    ALTER TABLE shares ADD COLUMN cold_tokens_per_second REAL;
    ALTER TABLE shares ADD COLUMN warm_ttft REAL;
    ALTER TABLE shares ADD COLUMN warm_tokens_per_second REAL;
    """,
    "ALTER TABLE shares ADD COLUMN received INTEGER",
)
SCHEMA_VERSION = len(SCHEMA)


class DatabaseUnavailable(Exception):
    """The file can be neither read nor written now; the message says why."""


class HistoryDatabase:
    """``history.db`` in ``directory``. ``take_over`` imports an earlier sparkctl's file into the open database.

    Each problem is reported once, by `take_warning`. ``is_unreadable``: the last read failed.
    """

    def __init__(self, directory: Path, take_over: Callable[[sqlite3.Connection], None]) -> None:
        self.path = directory / DATABASE_FILE_NAME
        self.is_unreadable = False
        self._take_over = take_over
        self._said: set[str] = set()
        self._unsaid: list[str] = []
        self._waited = 0.0
        self._lock = Lock()
        self._held: sqlite3.Connection | None = None
        self._which = (0, 0)  # device and inode of that
        self._holders = 0

    def take_warning(self) -> str | None:
        """Return a problem that was not reported yet, None if there is none."""
        return self._unsaid.pop(0) if self._unsaid else None

    def write_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` as one transaction. Raises `DatabaseUnavailable`, in at most about a second."""
        return self._run_transaction(work, writes=True)

    def read_transaction(self, work: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """Return what ``work`` finds; return ``nothing`` if there is no history, or if it cannot be read."""
        self.is_unreadable = False
        try:
            return self._run_transaction(work, writes=False) if self._has_file() else nothing
        except OSError as error:
            self._report_error(error)
        except DatabaseUnavailable:
            pass
        self.is_unreadable = True
        return nothing

    def _has_file(self) -> bool:
        return _path_exists(self.path) or self.path.with_name("starts.jsonl").exists()

    def _run_transaction(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        import sqlite3  # imported late: many commands never need it

        began = time.monotonic()
        with self._lock:
            try:
                try:
                    done = self._try_transaction(work, writes=writes)
                except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                    if not _is_damage(error):
                        raise
                    self._move_damaged_file()
                    done = self._try_transaction(work, writes=writes)
            except (sqlite3.Error, UnicodeDecodeError, OSError, DatabaseUnavailable) as error:
                self._waited += time.monotonic() - began
                raise DatabaseUnavailable(self._report_error(error)) from error
        self._waited = 0.0
        return done

    def keep_open(self) -> None:
        """Keep the file open between writes, until `release_file`: closing takes ten times as long as a write."""
        with self._lock:
            self._holders += 1

    def release_file(self) -> None:
        """Close the file, if nobody else keeps it open."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._close_connection()

    def _close_connection(self) -> None:
        connection, self._held = self._held, None
        if connection is not None:
            connection.close()

    def _try_transaction(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        file = self._get_connection()
        try:
            is_ours = self._prepare_schema(file)
            if writes and not is_ours:
                raise DatabaseUnavailable(f"{self.path} is of a newer sparkctl, and this one only reads it")
            file.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            done = work(file)
            file.execute("COMMIT")
        except BaseException:
            self._held = None
            file.close()
            raise
        if self._holders == 0:
            self._close_connection()
        return done

    def _get_connection(self) -> sqlite3.Connection:
        """Return the open file; open a new one if the file was deleted or replaced meanwhile."""
        if self._held is not None:
            try:
                now = self.path.stat()
            except FileNotFoundError:
                now = None
            if now is not None and (now.st_dev, now.st_ino) == self._which:
                self._held.execute(f"PRAGMA busy_timeout = {self._remaining_wait_seconds() * 1000:.0f}")
                return self._held
            self._close_connection()
        self._held = self._open_connection()
        now = self.path.stat()
        self._which = now.st_dev, now.st_ino
        return self._held

    def _remaining_wait_seconds(self) -> float:
        return max(0.0, min(_BUSY_TIMEOUT_SECONDS, _MAX_WAIT_SECONDS - self._waited))

    def _open_connection(self) -> sqlite3.Connection:
        import sqlite3

        if not _path_exists(self.path):
            make_private_directory(self.path.parent)
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for path in (self.path, *(self.path.with_name(DATABASE_FILE_NAME + ending) for ending in _SIDE_FILE_SUFFIXES)):
            with suppress(FileNotFoundError):
                refuse_irregular(path)  # SQLite would wait forever at a FIFO
        file = sqlite3.connect(
            self.path, timeout=self._remaining_wait_seconds(), isolation_level=None, check_same_thread=False
        )
        file.row_factory = sqlite3.Row
        # damaged text is shown as far as it can be decoded
        file.text_factory = lambda text: text.decode("utf-8", "replace")
        file.execute("PRAGMA synchronous = NORMAL")
        return file

    def _prepare_schema(self, file: sqlite3.Connection) -> bool:
        """Create missing tables and import an earlier sparkctl's file; return whether this version may write to the file."""
        version, application = _read_pragma(file, "user_version"), _read_pragma(file, "application_id")
        if application == 0:
            file.execute("BEGIN")  # both of one state: another process may be making the tables
            application = _read_pragma(file, "application_id")
            tables = file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            is_foreign = application not in (0, APPLICATION_ID) or (application == 0 and tables > 0)
            file.execute("COMMIT")
        else:
            is_foreign = application != APPLICATION_ID
        if is_foreign:
            raise DatabaseUnavailable(f"{self.path} belongs to another program and is left alone")
        if version > SCHEMA_VERSION:
            return False
        if version < SCHEMA_VERSION:
            _switch_to_wal(file, self._remaining_wait_seconds())
            _migrate_schema(file)
        if self.path.with_name("starts.jsonl").exists():
            self._take_over(file)
        return True

    def _move_damaged_file(self) -> None:
        """Rename a damaged file, under a lock: a second process that saw the damage must not rename the new file."""
        import sqlite3

        with _lock_directory(self.path.parent):
            try:
                with closing(self._open_connection()) as file:
                    file.execute("SELECT count(*) FROM sqlite_master").fetchone()
                    if next(iter(file.execute("PRAGMA quick_check(1)").fetchone())) == "ok":
                        return  # another sparkctl has renamed it already
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not _is_damage(error):
                    raise
            aside = find_unused_path(
                self.path.with_name(f"{DATABASE_FILE_NAME}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            )
            for ending in _SIDE_FILE_SUFFIXES:
                with suppress(FileNotFoundError):
                    self.path.with_name(DATABASE_FILE_NAME + ending).replace(aside.with_name(aside.name + ending))
            self.path.replace(aside)
        self._queue_warning(f"{self.path} was damaged and is now {aside.name}; a new history begins")

    def _report_error(self, error: Exception) -> str:
        if isinstance(error, DatabaseUnavailable):
            what = str(error)
        elif (code := _get_error_code(error)) in (_SQLITE_BUSY, _SQLITE_LOCKED):
            what = f"{self.path} is locked by another program"
        elif code == _SQLITE_FULL or (code == _SQLITE_IOERR and not os.access(self.path, os.W_OK)):
            what = f"{self.path} could not be written: {error}"
        else:
            what = f"{getattr(error, 'filename', None) or self.path} cannot be used: {getattr(error, 'strerror', None) or error}"
        self._queue_warning(
            f"{what}; the history continues without it"
            if isinstance(error, DatabaseUnavailable)
            else f"{what}; nothing is kept"
        )
        return what

    def _queue_warning(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._unsaid.append(what)


def make_private_directory(folder: Path) -> None:
    """Create a directory and its missing parents, readable by the operator alone; existing ones stay as they are."""
    if not folder.is_dir():
        make_private_directory(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _path_exists(path: Path) -> bool:
    """Tell whether something exists there. Raises OSError if that cannot be found out, for example in a loop of links."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _switch_to_wal(file: sqlite3.Connection, wait: float) -> None:
    """Set WAL mode. SQLite does not wait for other processes here, so try again for ``wait`` seconds."""
    import sqlite3

    end = time.monotonic() + wait
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if _get_error_code(error) != _SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(_WAL_RETRY_SECONDS)
        else:
            return


def _migrate_schema(file: sqlite3.Connection) -> None:
    """Upgrade the file to this version, all steps or none; two processes wait for each other."""
    file.execute("BEGIN IMMEDIATE")
    for step in SCHEMA[_read_pragma(file, "user_version") :]:
        for statement in filter(str.strip, step.split(";")):
            file.execute(statement)
    file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    file.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    file.execute("COMMIT")


def _read_pragma(file: sqlite3.Connection, name: str) -> int:
    return int(file.execute(f"PRAGMA {name}").fetchone()[0])


def _get_error_code(error: Exception) -> int:
    """Return SQLite's primary code of an error, 0 for one that has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: Exception) -> bool:
    """Tell whether the file is damaged. SQLite's message quotes the damaged text of a schema, which Python may fail to decode."""
    return isinstance(error, UnicodeDecodeError) or _get_error_code(error) in (_SQLITE_CORRUPT, _SQLITE_NOTADB)


def find_unused_path(path: Path) -> Path:
    found, number = path, 2
    while found.exists():
        found, number = path.with_name(f"{path.name}-{number}"), number + 1
    return found


@contextmanager
def _lock_directory(folder: Path) -> Iterator[None]:
    """Hold the lock for renaming files of a directory; on a file system without locks, go on without it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
