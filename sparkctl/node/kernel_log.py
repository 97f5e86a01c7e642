"""Follows the kernel's log on a Spark, and reads the end of the boot before. Sent with the agent and the guard, or run
alone: standard library only, Python 3.8 or newer.

``python3 -ISu -c BOOT LENGTHS OPTIONS`` prints one JSON line: what the log of this boot holds, with ``--boot-before`` also how the
one before ended. Which lines matter is decided here by words alone; what they mean, `monitor/kernel_log.py` says.

It is read where the user may read it: /dev/kmsg, else the journal, else the kernel's buffer by dmesg. Each reading is
bounded: a flood of messages costs no more than a quiet hour, and what was left out is counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]

KERNEL_LOG_PROTOCOL = 1
PCI_PLACE = "/sys/bus/pci/devices"
MAX_FIRST_RECORDS, MAX_RECORDS = 16384, 512  # of one reading: the first one is of all that the kernel still has
MAX_FLOOD_RECORDS = 8192  # that are looked through after those: a record takes three microseconds
MAX_WAITING_LINES = 64  # lines that matter and wait for the next message
MAX_LINE_CHARS = 400
READ_BYTES = 1 << 16
MAX_READ_BYTES = 1 << 18  # of one reading from a pipe
DMESG_PAUSE_SECONDS = 10
PRINT_END = b"--"  # after each print of dmesg
JOURNAL_LINES, BOOT_END_LINES, BOOT_END_SHOWN = 5000, 60, 6
JOURNAL_TIMEOUT_SECONDS = 20.0
JOURNAL_FORMAT = ("--no-pager", "--quiet", "--no-hostname")
# A line without one of these words is not looked at any further.
NEEDLES = (
    rb"NVRM: |[Oo]ut of memory|oom-kill:|AER: |PCIe Bus Error|mlx5_|ibv_reg_mr|ib_umem|infiniband"
    rb"|nvme|EXT4-fs|XFS |BTRFS|[Rr]ead-only|I/O error|mt79|mt76|[Tt]hrottl|[Tt]hermal|temperature"
    rb"|blocked for more than|soft lockup|hard LOCKUP|rcu: .{0,200}stall|Oops|Kernel panic|BUG: |Unable to handle kernel"
    rb"|Internal error: |SError Interrupt|DPC: |NETDEV WATCHDOG|\[Hardware Error\]: event severity|EDAC \S{1,20}: \d{1,9} UE |page allocation failure"
    rb"|arm-smmu.{0,80}(?:event|fault)|\]: (?:segfault at |unhandled )"
)
NEEDLE_PATTERN = re.compile(NEEDLES)
# what is kept of a flood of other lines
WORST_PATTERN = re.compile(rb"NVRM: |oom-kill:|Killed process|Kernel panic|Oops|[Rr]ead-only|controller is down")
DRIVER_REFUSAL_PATTERN = re.compile(
    rb"NVRM: .{0,1000}(?:NV_ERR_NO_MEMORY|failed to allocate 0x[0-9a-f]+ bytes for IOVA)"
)
KMSG_PATTERN = re.compile(rb"(\d{1,6}),(\d{1,19}),(\d{1,19}),[^;]{0,80};(.*)", re.DOTALL)
JOURNAL_PATTERN = re.compile(rb"\[ *(\d{1,12}\.\d{1,9})\] (?:[^ :]{1,80} )?kernel: (.*)", re.DOTALL)
DMESG_PATTERN = re.compile(rb"<\d{1,6}>\[ *(\d{1,12}\.\d{1,9})\] (.*)", re.DOTALL)
UNIX_PATTERN = re.compile(rb"(\d{1,12}\.\d{1,9}) (?:[^ :]{1,80} )??([^:]{1,80}): (.*)", re.DOTALL)
CONTAINER_PATTERN = re.compile(rb"(?:^|[^0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
OOM_CGROUP_PATTERN = re.compile(rb"task_memcg=([^,]{1,400}),")
PCI_PATTERN = re.compile(r"(?<![0-9a-f:])[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?!\d)")
FIGURES_PATTERN = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")  # in which lines with the same words differ
PID_PATTERN = re.compile(rb"(?:pid=|Killed process |\[(?=\d{1,10}\]: (?:segfault|unhandled)))(\d{1,10})")
# A boot that ended in order leaves such a line among its last ones.
SHUTDOWN_PATTERN = re.compile(
    rb"Journal stopped|systemd-shutdow|Shutting down\.|System is (?:rebooting|powering down|halted)"
    rb"|Reached target .{0,120}?(?:[Pp]ower-?[Oo]ff|[Rr]eboot|[Ss]hutdown|Halt)"
)


class KmsgFile:
    """/dev/kmsg, or a file in its place: records with a sequence number, by which the number of lost ones is known."""

    name = "kmsg"

    def __init__(self, path: str) -> None:
        """Raises OSError where this user may not read it."""
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.left = b""
        self.sequence: int | None = None
        self.lost = 0
        try:
            self.take(b"" if not os.fstat(self.fd).st_mode & 0o020000 else self.read_record())
        except OSError:
            os.close(self.fd)
            raise

    def read_record(self) -> bytes:
        """Return the next record; of a file, the next piece. Raises OSError."""
        while True:
            try:
                return os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return b""
            except BrokenPipeError:  # records were overwritten before they were read: their numbers are missing
                continue

    def take(self, piece: bytes) -> None:
        """Keep a piece until it is parsed."""
        self.left += piece

    def read_lines(self, most: int) -> list[tuple[float, bytes]]:
        """Return at most so many new records, each with seconds since boot; of a flood after them the worst alone."""
        found: list[tuple[float, bytes]] = []
        while len(found) < most:
            with contextlib.suppress(OSError):
                self.take(self.read_record())
            *lines, self.left = self.left.split(b"\n")
            if not lines:
                return found
            found += [parsed for parsed in map(self.parse_record, lines) if parsed is not None]
        for _ in range(MAX_FLOOD_RECORDS):
            with contextlib.suppress(OSError):
                self.take(self.read_record())
            *lines, self.left = self.left.split(b"\n")
            if not lines:
                return found
            found += [parsed for parsed in map(self.parse_record, filter(WORST_PATTERN.search, lines)) if parsed]
        self.skip_to_end()
        return found

    def skip_to_end(self) -> None:
        """Skip what is there; the number of the next record tells how much that was."""
        with contextlib.suppress(OSError):
            os.lseek(self.fd, 0, os.SEEK_END)
            self.left = b""

    def parse_record(self, line: bytes) -> tuple[float, bytes] | None:
        """Return a record's time and text; None for a line of its details."""
        match = KMSG_PATTERN.fullmatch(line)
        if match is None:
            return None
        sequence = int(match.group(2))
        if self.sequence is not None and sequence > self.sequence + 1:
            self.lost += sequence - self.sequence - 1
        self.sequence = sequence
        return int(match.group(3)) / 1e6, match.group(4)


class LogPipe:
    """The output of a program that prints the kernel's log. ``repeats``: it prints everything again and again, with `PRINT_END`
    after each print; ``skips_first``: what the first print holds is old; ``follows``: it must not end.
    """

    def __init__(
        self,
        name: str,
        argv: list[str],
        pattern: re.Pattern[bytes],
        repeats: bool = False,
        skips_first: bool = False,
        follows: bool = True,
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.repeats = repeats
        self.follows = follows
        self.is_skipping = skips_first
        self.newest = self.printed = -1.0  # the latest line of the prints before, and of all
        self.lost = 0  # what is not read yet stays in the pipe
        self.left = b""
        self.has_ended = False
        self.fd = start_log_program(argv)

    def read_lines(self, _most: int) -> list[tuple[float, bytes]]:
        """Return new lines, each with seconds since boot, of at most `MAX_READ_BYTES`."""
        taken = 0
        while taken < MAX_READ_BYTES and not self.has_ended:
            try:
                piece = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self.has_ended = not piece
            self.left += piece
            taken += len(piece)
        *lines, self.left = self.left.split(b"\n")
        self.left = self.left[:READ_BYTES]
        found = []
        for line in lines:
            if self.repeats and line == PRINT_END:
                self.newest, self.is_skipping = self.printed, False
                continue
            match = self.pattern.fullmatch(line)
            at = float(match.group(1)) if match else 0.0
            if match is None or (self.repeats and at <= self.newest):
                continue
            self.printed = max(self.printed, at)
            if not self.is_skipping:
                found.append((at, match.group(2)))
        return found


def start_log_program(argv: list[str]) -> int:
    """Fork a program that ends with this process; return the pipe of its output. Call it before there is a thread."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.set_blocking(reader, False)
        return reader
    try:
        import ctypes

        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd, target in ((nowhere, 0), (writer, 1), (nowhere, 2)):
            os.dup2(fd, target)
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
        os.nice(10)
        os.execvpe(argv[0], argv, dict(os.environ, LC_ALL="C"))  # noqa: S606  # a fixed program of the node
    finally:
        os._exit(127)


class KernelLogReader:
    """The kernel's log as this user may read it. ``trouble``: why not, None where it is read."""

    def __init__(self, source: KmsgFile | LogPipe | None, trouble: str | None) -> None:
        self.source = source
        self.trouble = trouble
        self.pci_place: str | None = None  # where the machine's PCI devices are described
        self.oldest: float | None = None
        self.skipped = 0
        self.waiting: list[Json] = []
        self.killed: dict[int, str | None] = {}  # container of each process that the OOM killer names

    def read_new(self) -> list[tuple[float, bytes]]:
        """Return all new lines, of a flood only the first."""
        if self.source is None:
            return []
        found = self.source.read_lines(MAX_FIRST_RECORDS if self.oldest is None else MAX_RECORDS)
        if isinstance(self.source, LogPipe) and self.source.has_ended and self.source.follows:
            self.trouble = f"{self.source.name} ended"
            self.source = None
            return found
        self.skipped += self.source.lost
        self.source.lost = 0
        if self.oldest is None and found:
            self.oldest = found[0][0]
        return found

    def collect(self, find_container: Callable[[int], str | None]) -> None:
        """Keep the new lines that matter. ``find_container``: the container of a process, None if not known."""
        for at, text in self.read_new():
            if NEEDLE_PATTERN.search(text):
                self.keep_line(at, text, find_container)

    def keep_line(self, at: float, text: bytes, find_container: Callable[[int], str | None]) -> None:
        """Keep a line; one that is already kept but for its figures is counted instead.

        The line before the one about a kill names its container, and is not kept.
        """
        container = self.find_line_container(text, find_container)
        if text.startswith(b"oom-kill:"):
            return
        line = text[:MAX_LINE_CHARS].decode("utf-8", "replace")
        shape = FIGURES_PATTERN.sub("0", line)
        for other in self.waiting:
            if other["shape"] == shape and other["container"] == container and "Killed process" not in line:
                other["count"] += 1
                other["last"] = round(at, 6)
                return
        if len(self.waiting) >= MAX_WAITING_LINES:
            self.skipped += 1
            self.waiting.pop(0)
        self.waiting.append(
            {"at": round(at, 6), "last": round(at, 6), "text": line, "container": container, "count": 1, "shape": shape}
        )
        if self.pci_place is not None and (devices := self.list_pci_devices(line)):
            self.waiting[-1]["devices"] = devices

    def list_pci_devices(self, line: str) -> list[str]:
        """Return what the PCI devices are that a line names: address, class in hex, and the name of the driver."""
        found = []
        for address in sorted(set(PCI_PATTERN.findall(line)))[:4]:
            driver = ""
            try:
                with open(f"{self.pci_place}/{address}/class", encoding="ascii") as file:  # noqa: PTH123
                    number = file.read(16).strip()
                with contextlib.suppress(OSError):
                    driver = os.path.basename(os.readlink(f"{self.pci_place}/{address}/driver"))  # noqa: PTH115, PTH119
            except (OSError, ValueError):
                continue
            found.append(f"{address} {number} {driver}".strip())
        return found

    def find_line_container(self, text: bytes, find_container: Callable[[int], str | None]) -> str | None:
        """Return the container of the process that a line is about."""
        match = PID_PATTERN.search(text)
        if match is None:
            return None
        pid = int(match.group(1))
        group = OOM_CGROUP_PATTERN.search(text) if text.startswith(b"oom-kill:") else None
        if group:
            named = CONTAINER_PATTERN.search(group.group(1))
            if len(self.killed) > MAX_WAITING_LINES:
                self.killed.clear()
            self.killed[pid] = named.group(1).decode() if named else None
        return self.killed[pid] if pid in self.killed else find_container(pid)

    def build_message(self) -> Json:
        """Return what waits, and whether the log can be read."""
        lines = [{name: value for name, value in line.items() if name != "shape"} for line in self.waiting]
        return {
            "source": None if self.source is None else self.source.name,
            "trouble": self.trouble,
            "oldest": self.oldest,
            "skipped": self.skipped,
            "lines": lines,
        }

    def forget_sent(self) -> None:
        self.waiting, self.skipped = [], 0


def open_kernel_log(root: str, history: bool = True, follows: bool = True) -> KernelLogReader:
    """Return the reader of this machine; without ``history`` of what is logged from now on, without ``follows`` of what
    there is now.

    ``root``: where its files are; elsewhere than at "" only /dev/kmsg is read.
    """
    try:
        source = KmsgFile(root + "/dev/kmsg")
        if not history:
            source.skip_to_end()
        return KernelLogReader(source, None)
    except OSError as error:
        trouble = f"/dev/kmsg: {error.strerror or error}"
    if root:
        return KernelLogReader(None, trouble)
    if can_read_journal():
        most = str(JOURNAL_LINES if history else 0)
        argv = ["journalctl", "-k", "-b", "-n", most, "-o", "short-monotonic", *JOURNAL_FORMAT]
        pipe = LogPipe("journal", [*argv, "-f"] if follows else argv, JOURNAL_PATTERN, follows=follows)
        return KernelLogReader(pipe, None)
    if can_read_buffer():
        return KernelLogReader(open_dmesg(history, follows), None)
    return KernelLogReader(None, trouble + "; the journal: none, or not readable for this user")


def open_dmesg(history: bool, follows: bool) -> LogPipe:
    """Return the kernel's buffer as dmesg prints it, again and again if it ``follows``.

    Without ``history`` the first print is skipped. No time of ours tells what is old: the kernel's clock drifts against it, by
    a minute a month.
    """
    command = (
        f"while dmesg -r; do echo {PRINT_END.decode()}; sleep {DMESG_PAUSE_SECONDS}; done" if follows else "dmesg -r"
    )
    return LogPipe(
        "dmesg", ["sh", "-c", command], DMESG_PATTERN, repeats=True, skips_first=not history, follows=follows
    )


def has_program(name: str) -> bool:
    return any(os.access(f"{place}/{name}", os.X_OK) for place in os.environ.get("PATH", "/usr/bin:/bin").split(":"))


def can_read_journal() -> bool:
    """Tell whether this user may read the system's journal: journalctl itself only shows less."""
    if not has_program("journalctl"):
        return False
    for place in ("/var/log/journal", "/run/log/journal"):
        with contextlib.suppress(OSError):
            for machine in os.listdir(place):  # noqa: PTH208  # pathlib costs the node a megabyte
                if os.access(f"{place}/{machine}/system.journal", os.R_OK):
                    return True
    return False


def can_read_buffer() -> bool:
    """Tell whether dmesg works for this user."""
    if not has_program("dmesg"):
        return False
    import ctypes

    with contextlib.suppress(AttributeError):
        return bool(ctypes.CDLL(None).klogctl(10, None, 0) >= 0)  # SYSLOG_ACTION_SIZE_BUFFER: allowed as reading is
    return False


# -- the boot before


def run_journalctl(words: list[str]) -> tuple[list[bytes], str | None]:
    """Return the lines that journalctl prints in limited time, and what is wrong with them."""
    pipe = start_log_program(["journalctl", *words, *JOURNAL_FORMAT])
    deadline, text = time.monotonic() + JOURNAL_TIMEOUT_SECONDS, b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return text.split(b"\n"), f"journalctl took longer than {JOURNAL_TIMEOUT_SECONDS:.0f} s"
        piece = os.read(pipe, READ_BYTES)
        if not piece:
            return text.split(b"\n"), None
        text += piece


def read_boot_before() -> Json:
    """Return how the boot before ended: ``clean`` null and ``trouble`` where that is not known."""
    if not can_read_journal():
        return {"clean": None, "trouble": "the journal: none, or not readable for this user"}
    end, trouble = run_journalctl(["-b", "-1", "-n", str(BOOT_END_LINES), "-o", "short-unix"])
    summary = summarize_boot_end(end, trouble)
    if summary["clean"] is None or summary["ended"] > time.time() - time.monotonic() + 60.0:
        return {"clean": None, "trouble": summary["trouble"] or "the journal has nothing of the previous boot"}
    if summary["clean"]:
        return summary
    lines, _ = run_journalctl(["-k", "-b", "-1", "-n", str(JOURNAL_LINES), "-o", "short-unix"])
    return dict(summary, lines=read_old_kernel_lines(lines))


def summarize_boot_end(lines: list[bytes], trouble: str | None) -> Json:
    """Return how a boot ended by the last lines of its journal."""
    parsed = [match for match in map(UNIX_PATTERN.fullmatch, lines) if match]
    if trouble or not parsed:
        return {"clean": None, "trouble": trouble or "the journal has nothing of the previous boot"}
    last = [match.group(2) + b": " + match.group(3) for match in parsed]
    return {
        "clean": any(SHUTDOWN_PATTERN.search(text) for text in last),
        "trouble": None,
        "ended": float(parsed[-1].group(1)),
        "last": [text[:MAX_LINE_CHARS].decode("utf-8", "replace") for text in last[-BOOT_END_SHOWN:]],
    }


def read_old_kernel_lines(lines: list[bytes]) -> list[Json]:
    """Return the kernel's lines of an earlier boot that matter; ``at`` is a unix time."""
    reader = KernelLogReader(None, None)
    for line in lines:
        match = UNIX_PATTERN.fullmatch(line)
        if match and match.group(2) == b"kernel" and NEEDLE_PATTERN.search(match.group(3)):
            reader.keep_line(float(match.group(1)), match.group(3), lambda _: None)
    return list(reader.build_message()["lines"])


def read_everything(reader: KernelLogReader) -> None:
    """Collect what the log holds now: a program needs a moment until it has printed all."""
    deadline = time.monotonic() + JOURNAL_TIMEOUT_SECONDS / 2
    reader.collect(lambda _: None)
    pipe = reader.source
    while isinstance(pipe, LogPipe) and not pipe.has_ended and time.monotonic() < deadline:
        select.select([pipe.fd], [], [], max(0.0, deadline - time.monotonic()))
        reader.collect(lambda _: None)
    if isinstance(pipe, LogPipe) and reader.oldest is None:  # a kernel has always logged something
        reader.source, reader.trouble = None, f"{pipe.name}: it printed nothing"


def main(words: list[str]) -> None:
    """Print what the log holds. ``--root PATH``: where the machine's files are."""
    root = words[words.index("--root") + 1].rstrip("/") if "--root" in words else ""
    reader = open_kernel_log(root, follows=False)
    reader.pci_place = root + PCI_PLACE
    read_everything(reader)
    message: Json = {"kernel_log": KERNEL_LOG_PROTOCOL, "now": time.time(), "uptime": time.monotonic()}
    # the time asleep is in it, as in no line of the log
    message["since_boot"] = time.clock_gettime(time.CLOCK_BOOTTIME)
    message["kernel"] = os.uname().release
    message["log"] = reader.build_message()
    message["before"] = read_boot_before() if "--boot-before" in words and not root else None
    line = json.dumps(message, separators=(",", ":")).encode("ascii", "replace") + b"\n"
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    main(sys.argv[1:])
