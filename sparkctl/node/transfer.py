"""Runs on a Spark, from stdin: prints what is at the places of a model, or the checksums of files, or is one end of a
stream of files, of an image, or of random bytes, to another Spark.

Both ends are started and controlled over SSH, one line of JSON on stdin. They connect to an address and use TLS 1.3:
each has a certificate made for this one transfer, and accepts only the other's. Each of several streams is a process:
Python decrypts 16 KiB at a time, and threads would wait for each other in between. Messages on stdout are JSON lines.
An end whose stdin closes ends at once. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import queue
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost the node a megabyte
    import ssl
    from collections.abc import Iterator
    from typing import Any

    Job = dict[str, Any]

PART_SUFFIX = ".sparkctl-part"
MAX_ENTRIES = 50_000  # maximum entries of one listed place
_SKIPPED_SUFFIXES = (".incomplete", ".lock", PART_SUFFIX)
_GGUF_PART_PATTERN = re.compile(r"^(.*)-\d{5}-of-(\d{5}\.gguf)$")
CHUNK_BYTES = 1 << 20
SEND_PIECE_BYTES = 1 << 18  # bytes that must pass within the patience
FLUSH_BYTES = 256 << 20  # bytes after which written data is flushed to the disk, and removed from the page cache
SILENCE_TIMEOUT_SECONDS = 20.0  # seconds without a byte after which a stream is broken
HASH_TIMEOUT_SECONDS = 3600.0  # seconds that the other end may take to hash its part of a file
BUSY_REPORT_SECONDS = 5.0  # seconds after which it reports that it is still hashing
PEER_WAIT_SECONDS = 20.0  # seconds within which the other end must connect
HANDSHAKE_TIMEOUT_SECONDS = 10.0  # seconds for a whole handshake
MAX_HANDSHAKES = 32  # maximum at a time; one more ends the oldest
IMAGE_LOAD_TIMEOUT_SECONDS = 900.0  # seconds that Docker may take to load a received image after the operator has gone
_STDOUT_LOCK = threading.Lock()
_children: list[subprocess.Popen[bytes]] = []
_image_loads: list[ImageLoad] = []


class TransferError(Exception):
    """A stream cannot continue. ``errno`` as of an OSError, if one fits."""

    errno: int | None = None
    kind = "broken"


class PeerDisconnected(TransferError):
    """The other end is gone; it knows the reason better."""

    kind = "lost"


class PeerTampered(TransferError):
    """Data is not from the other end, or was changed on the way."""

    kind = "tampered"


class UnsafePath(TransferError):
    """Something is in the way (a link, for instance) through which nothing is written."""

    errno = errno.ELOOP


def write_message(**words: Any) -> None:
    """Print one line for the operator."""
    line = json.dumps(words).encode() + b"\n"
    with _STDOUT_LOCK:
        while line:
            # a line that fits into the pipe is not mixed with those of other processes
            line = line[os.write(1, line) :]


def report_error(error: TransferError | OSError) -> None:
    write_message(error=str(error)[:2000], number=error.errno, kind=getattr(error, "kind", "broken"))


def exit_program(status: int) -> None:
    """End the program with its children; check first what Docker did with an image."""
    for load in _image_loads:
        load.finish_before_exit()
    for child in _children:
        with contextlib.suppress(OSError):
            child.kill()
    os._exit(status)


# --- streams ----------------------------------------------------------------------------------------------------------


class PeerStream:
    """A connection to the other end: every byte comes from it unchanged, or `PeerTampered` is raised.
    `PeerDisconnected` if it is gone.
    """

    def __init__(self, link: ssl.SSLSocket) -> None:
        self.link = link
        self.set_timeout(SILENCE_TIMEOUT_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # while an end computes checksums it sends nothing
        with contextlib.suppress(AttributeError, OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)

    def set_timeout(self, seconds: float) -> None:
        """Set how long silence may last."""
        self.link.settimeout(seconds)

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        view = memoryview(data)
        with translate_stream_errors():
            for at in range(0, len(view), SEND_PIECE_BYTES):
                self.link.sendall(view[at : at + SEND_PIECE_BYTES])

    def receive_into(self, buffer: memoryview) -> None:
        """Receive as many bytes as fit."""
        at = 0
        with translate_stream_errors():
            while at < len(buffer):
                count = self.link.recv_into(buffer[at:])
                if not count:
                    raise PeerDisconnected("the other end has gone")
                at += count

    def receive_exactly(self, count: int) -> bytes:
        """Return exactly this many bytes."""
        data = bytearray(count)
        self.receive_into(memoryview(data))
        return bytes(data)

    def unwrap_tls(self) -> socket.socket:
        """Return the plain connection, for random bytes whose speed is measured; both ends must call this."""
        with translate_stream_errors():
            return self.link.unwrap()

    def close(self) -> None:
        self.link.close()


@contextlib.contextmanager
def translate_stream_errors() -> Iterator[None]:
    """Raise connection errors as `PeerDisconnected` or `PeerTampered`."""
    import ssl

    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise PeerDisconnected("the other end has gone") from error
    except ssl.SSLError as error:
        if error.reason == "UNEXPECTED_EOF_WHILE_READING":  # before Python 3.10
            raise PeerDisconnected("the other end has gone") from error
        if isinstance(error, ssl.SSLCertVerificationError):
            raise PeerTampered(f"somebody else answers in place of the other end ({error.verify_message})") from error
        raise PeerTampered(f"what came is not as the other end sent it ({error.reason or error})") from error
    except OSError as error:
        raise PeerDisconnected(f"nothing goes over the connection any more ({error})") from error


@contextlib.contextmanager
def open_memory_file(text: str) -> Iterator[str]:
    """Yield the path of a file in memory that nobody else can open: the ssl module takes a key only from a file."""
    file: Any
    try:
        file = open(os.memfd_create("sparkctl"), "w")  # noqa: SIM115  closed below
        path = f"/proc/self/fd/{file.fileno()}"
    except (AttributeError, OSError):  # a Python built for an older C library
        import tempfile

        file = tempfile.NamedTemporaryFile("w", dir="/dev/shm")  # noqa: SIM115  closed below
        path = file.name
    with file:
        file.write(text)
        file.flush()
        yield path


class TlsHandshake:
    """Wraps connections in TLS: with our certificate, to the holder of the other certificate's key only."""

    def __init__(self, tls: dict[str, str], is_sender: bool) -> None:
        import ssl

        self.is_sender = is_sender
        self.peer = ssl.PEM_cert_to_DER_cert(tls["peer"])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if is_sender else ssl.PROTOCOL_TLS_SERVER)
        self.context.check_hostname = False  # one exact certificate is expected, not a name
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.load_verify_locations(cadata=tls["peer"])
        if not is_sender:
            self.context.num_tickets = 0
        with open_memory_file(tls["certificate"] + tls["key"]) as path:
            self.context.load_cert_chain(path)

    def wrap_socket(self, link: socket.socket) -> ssl.SSLSocket:
        """Wrap a connection whose peer is not known yet. Raises OSError."""
        return self.context.wrap_socket(link, server_side=not self.is_sender, do_handshake_on_connect=False)

    def authenticate(self, link: ssl.SSLSocket) -> PeerStream:
        """Return a stream once the other end has proved its identity. Raises `PeerTampered` for another peer, else
        `PeerDisconnected`.
        """
        link.settimeout(HANDSHAKE_TIMEOUT_SECONDS)  # the limit for the whole handshake
        with translate_stream_errors():
            link.do_handshake()
        if link.getpeercert(binary_form=True) != self.peer:
            raise PeerTampered("somebody else answers in place of the other end (another certificate)")
        return PeerStream(link)


class PeerListener:
    """Accepts one stream on a port, from one of the addresses ``peers``.

    Strangers block nobody: each gets a thread and one time limit, their number is limited, and the oldest makes room.
    """

    def __init__(self, server: socket.socket, peers: list[str], handshake: TlsHandshake) -> None:
        self.server, self.peers, self.handshake = server, set(peers), handshake
        self.found: queue.Queue[PeerStream] = queue.Queue()
        self.has_found = threading.Event()
        self.greeting: list[ssl.SSLSocket] = []
        self.lock = threading.Lock()

    def accept_peer(self, within: float) -> PeerStream:
        """Return the stream and close the port. Raises `PeerDisconnected` if the other end does not come in time."""
        threading.Thread(target=self.accept_connections, daemon=True).start()
        try:
            return self.found.get(timeout=within)
        except queue.Empty:
            raise PeerDisconnected("the other end did not come") from None
        finally:
            self.has_found.set()

    def accept_connections(self) -> None:
        """Accept connections until the right one comes."""
        self.server.settimeout(0.25)
        with self.server:
            while not self.has_found.is_set():
                try:
                    link, (host, _) = self.server.accept()
                except socket.timeout:  # noqa: UP041  another class before Python 3.10
                    continue
                except OSError:  # no file descriptor is left, or the peer has gone again: retry in a moment
                    time.sleep(0.1)
                    continue
                try:
                    if host not in self.peers:
                        raise OSError("a stranger")
                    self.start_handshake(self.handshake.wrap_socket(link))
                except OSError:
                    link.close()

    def start_handshake(self, link: ssl.SSLSocket) -> None:
        """Begin a handshake; end the oldest if there are too many."""
        with self.lock:
            self.greeting.append(link)
            oldest = self.greeting.pop(0) if len(self.greeting) > MAX_HANDSHAKES else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # its own thread closes it
        try:
            threading.Thread(target=self.finish_handshake, args=(link,), daemon=True).start()
        except RuntimeError:  # no further thread can be started
            self.remove_handshake(link)
            link.close()

    def finish_handshake(self, link: ssl.SSLSocket) -> None:
        """Accept the peer that proves to be the other end."""
        try:
            stream = self.handshake.authenticate(link)
        except (TransferError, OSError):
            link.close()
            return
        finally:
            self.remove_handshake(link)
        with self.lock:
            is_first = not self.has_found.is_set()
            self.has_found.set()
        if is_first:
            self.found.put(stream)
        else:
            stream.close()

    def remove_handshake(self, link: ssl.SSLSocket) -> None:
        with self.lock, contextlib.suppress(ValueError):
            self.greeting.remove(link)


def open_listening_socket(address: str) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, 0))
    server.listen(2 * MAX_HANDSHAKES)
    return server


def connect_stream(way: list[Any], handshake: TlsHandshake) -> PeerStream:
    """Connect by a route [own address, address, port, own interface]. Raises `PeerTampered`; if nobody is reached, it
    reports this and ends.
    """
    own, address, port, interface = way
    link = socket.socket()
    try:
        link.settimeout(5.0)
        link.bind((own, 0))
        with contextlib.suppress(AttributeError, OSError):  # two interfaces of one network: choose this one
            link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        link.connect((address, port))
        return handshake.authenticate(handshake.wrap_socket(link))
    except PeerTampered as error:
        raise PeerTampered(f"{own} to {address}:{port}: {error}") from error
    except (PeerDisconnected, OSError) as error:
        write_message(unreachable=f"{own} to {address}:{port}: {error}")
        exit_program(3)
        raise


# --- places -----------------------------------------------------------------------------------------------------------


def is_safe_name(name: str) -> bool:
    """Tell whether a relative name stays below its place, however it is written."""
    return "\0" not in name and all(word not in ("", ".", "..") for word in name.split("/"))


def is_safe_link(name: str, target: str) -> bool:
    """Tell whether a link of this name stays below its place.

    ``..`` is allowed only at the front, where it goes up through real directories: after a link it can lead anywhere.
    """
    words = target.split("/")
    ups = 0
    while ups < len(words) and words[ups] == "..":
        ups += 1
    return is_safe_name(name) and ups <= name.count("/") and is_safe_name("/".join(words[ups:]))


@contextlib.contextmanager
def open_parent(job: Job, create: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the open directory of a job's path, and the name in it.

    The base is the owner's choice, links included; below it no link is followed. Raises `UnsafePath` for one, else
    OSError.
    """
    base, name = job["base"], job["name"]
    if not is_safe_name(name):
        raise UnsafePath(f"{name} leads out of {base}")
    if create:
        os.makedirs(base, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY
    at, path = os.open(base, flags), base
    try:
        *folders, leaf = name.split("/")
        for folder in folders:
            path = os.path.join(path, folder)
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=at)
            try:
                below = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=at)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise UnsafePath(f"{path} is a link or a file, and nothing is written through it") from error
                raise
            os.close(at)
            at = below
        yield at, leaf
    finally:
        os.close(at)


def open_regular_file(name: str, flags: int, folder: int | None = None) -> int:
    """Open a file that must be a plain one, without following a link in its directory. Raises `UnsafePath`, or OSError."""
    flags |= os.O_NONBLOCK | (0 if folder is None else os.O_NOFOLLOW)
    try:
        number = os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise UnsafePath(f"{name} is not a plain file") from error
        raise
    about = os.fstat(number)
    is_shared = folder is not None and flags & os.O_RDWR and about.st_nlink > 1
    if is_shared or not stat.S_ISREG(about.st_mode):
        os.close(number)
        raise UnsafePath(f"{name} is {'a second name of another file' if is_shared else 'not a plain file'}")
    return number


def get_part_name(job: Job) -> str:
    """Return the name of an incomplete file: it identifies the state of the source that it is a part of."""
    return f".{job['name'].rpartition('/')[2]}.{job['size']}-{job['mtime'] // 10**9}{PART_SUFFIX}"


def get_part_size(job: Job) -> int:
    """Return the valid bytes of a partial file."""
    try:
        with open_parent(job) as (folder, _):
            about = os.stat(get_part_name(job), dir_fd=folder, follow_symlinks=False)
    except (UnsafePath, OSError):
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) and about.st_size <= job["size"] else 0


def remove_stale_parts(folder: int, job: Job) -> None:
    """Remove the partial files of other states of the source."""
    own = get_part_name(job)
    stale = re.compile(re.escape(f".{job['name'].rpartition('/')[2]}.") + r"\d+--?\d+" + re.escape(PART_SUFFIX))
    for name in os.listdir(folder):
        if name != own and stale.fullmatch(name):
            os.unlink(name, dir_fd=folder)


# --- files ------------------------------------------------------------------------------------------------------------


def forget_pages(file: Any, start: int, length: int) -> None:
    """Remove a file from the page cache: on a Spark that memory is the GPU's, too."""
    with contextlib.suppress(AttributeError, OSError):
        os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_DONTNEED)


def hash_prefix(file: Any, upto: int, sha: Any) -> None:
    """Add the first ``upto`` bytes to a checksum."""
    at, reported_at = 0, time.monotonic()
    while at < upto:
        data = file.read(min(CHUNK_BYTES, upto - at))
        if not data:
            raise TransferError("a file became shorter while it was read")
        sha.update(data)
        forget_pages(file, at, len(data))
        at += len(data)
        if time.monotonic() - reported_at > BUSY_REPORT_SECONDS:
            reported_at = time.monotonic()
            write_message(busy=at)


class TransferSender:
    """Sends files: each stream takes the next job number from a pipe, until none is left."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = {job["n"]: job for job in jobs}
        self.numbers, self.feed = os.pipe()

    def distribute(self) -> None:
        """Write the numbers of all jobs to the pipe; each is read by exactly one stream."""
        with open(self.feed, "wb", buffering=0) as feed:
            for number in self.jobs:
                feed.write(struct.pack(">i", number))

    def serve(self, stream: PeerStream, _number: int) -> None:
        while True:
            word = os.read(self.numbers, 4)
            if not word:
                return stream.send(struct.pack(">i", -1))
            job = self.jobs[struct.unpack(">i", word)[0]]
            stream.send(struct.pack(">i", job["n"]))
            if "image" in job:
                self._send_image(stream, job)
            elif "seconds" in job:
                return self._measure_bandwidth(stream.unwrap_tls(), job)
            elif "echoes" in job:
                return self._measure_latency(stream.unwrap_tls(), job)
            else:
                self._send_file(stream, job)

    def _measure_latency(self, link: socket.socket, job: Job) -> None:
        """Report the median time of a byte's round trip."""
        took = []
        for _ in range(job["echoes"]):
            began = time.perf_counter()
            with translate_stream_errors():
                link.sendall(b".")
                if not link.recv(1):
                    raise PeerDisconnected("the other end has gone")
            took.append(time.perf_counter() - began)
        write_message(sent=job["n"], median=sorted(took)[len(took) // 2])

    def _send_file(self, stream: PeerStream, job: Job) -> None:
        (offset,) = struct.unpack(">q", stream.receive_exactly(8))
        if not 0 <= offset <= job["size"]:
            raise TransferError("the other end asks for what a file does not have")
        sha = hashlib.sha256()
        with open(open_regular_file(job["path"], os.O_RDONLY), "rb") as file:
            about = os.fstat(file.fileno())
            if (about.st_size, about.st_mtime_ns) != (job["size"], job["mtime"]):
                raise TransferError(f"{job['path']} has changed since it was looked at")
            hash_prefix(file, offset, sha)
            stream.set_timeout(HASH_TIMEOUT_SECONDS)
            stream.receive_exactly(1)  # the other end has hashed its part, too
            stream.set_timeout(SILENCE_TIMEOUT_SECONDS)
            at = offset
            while at < job["size"]:
                data = file.read(min(CHUNK_BYTES, job["size"] - at))
                if not data:
                    raise TransferError(f"{job['path']} became shorter while it was read")
                stream.send(data)
                sha.update(data)
                forget_pages(file, at, len(data))
                at += len(data)
        write_message(sent=job["n"], sum=sha.hexdigest())

    def _send_image(self, stream: PeerStream, job: Job) -> None:
        child = subprocess.Popen(["docker", "save", job["image"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _children.append(child)
        assert child.stdout is not None
        assert child.stderr is not None
        while data := os.read(child.stdout.fileno(), CHUNK_BYTES):
            stream.send(struct.pack(">i", len(data)))
            stream.send(data)
        errors = child.stderr.read().decode("utf-8", "replace")[-400:].strip()
        status = child.wait()
        stream.send(struct.pack(">i", 0 if status == 0 else -1))
        write_message(sent=job["n"], status=status, said=errors)

    def _measure_bandwidth(self, link: socket.socket, job: Job) -> None:
        """Send random bytes for some seconds, up to a limit."""
        data, sent = bytes(1 << 20), 0
        end = time.monotonic() + job["seconds"]
        began = time.monotonic()
        with translate_stream_errors():
            while time.monotonic() < end and sent < job["most"]:
                link.sendall(data)
                sent += len(data)
            link.shutdown(socket.SHUT_WR)
        write_message(sent=job["n"], bytes=sent, took=time.monotonic() - began)


class TransferReceiver:
    """Writes what arrives to the operator's paths: the other end names jobs by number and never sends paths."""

    def __init__(self, jobs: list[Job], streams: int) -> None:
        self.jobs = {job["n"]: job for job in jobs}
        self.begun: set[int] = set()
        self.before = sum(get_part_size(job) for job in jobs if "base" in job)
        self.counts = memoryview(mmap.mmap(-1, 8 * streams)).cast("q")  # of all processes
        self.number = 0

    @property
    def received_bytes(self) -> int:
        return self.before + sum(self.counts)

    def count_received(self, count: int) -> None:
        self.counts[self.number] += count

    def serve(self, stream: PeerStream, number: int) -> None:
        self.number = number
        while True:
            (wanted,) = struct.unpack(">i", stream.receive_exactly(4))
            if wanted == -1:
                return None
            job = self.jobs.get(wanted)
            if job is None or wanted in self.begun:
                raise TransferError("the other end sends what was not requested")
            self.begun.add(wanted)
            if "image" in job:
                self._receive_image(stream, job)
            elif "seconds" in job:
                return self._measure_bandwidth(stream.unwrap_tls(), job)
            elif "echoes" in job:
                return self._echo_bytes(stream.unwrap_tls())
            else:
                self._receive_file(stream, job)

    def _echo_bytes(self, link: socket.socket) -> None:
        with translate_stream_errors():
            while data := link.recv(1):
                link.sendall(data)

    def _receive_file(self, stream: PeerStream, job: Job) -> None:
        with open_parent(job, create=True) as (folder, _):
            remove_stale_parts(folder, job)
            number = open_regular_file(get_part_name(job), os.O_RDWR | os.O_CREAT, folder)
        sha = hashlib.sha256()
        with open(number, "r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise TransferError("the other end sends a file twice at a time") from None
            have = os.fstat(file.fileno()).st_size
            if have > job["size"]:
                file.truncate(0)
                have = 0
            stream.send(struct.pack(">q", have))
            hash_prefix(file, have, sha)
            stream.send(b"g")
            stream.set_timeout(HASH_TIMEOUT_SECONDS)  # until the other end has hashed as much
            self._receive_file_data(stream, file, have, job["size"], sha)
            stream.set_timeout(SILENCE_TIMEOUT_SECONDS)
            os.fsync(file.fileno())
            forget_pages(file, 0, 0)
        write_message(got=job["n"], sum=sha.hexdigest())

    def _receive_file_data(self, stream: PeerStream, file: Any, at: int, size: int, sha: Any) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        flushed = at
        while at < size:
            data = buffer[: min(CHUNK_BYTES, size - at)]
            stream.receive_into(data)
            stream.set_timeout(SILENCE_TIMEOUT_SECONDS)
            done = 0
            while done < len(data):
                done += file.write(data[done:])
            sha.update(data)
            at += len(data)
            self.count_received(len(data))
            if at - flushed >= FLUSH_BYTES:
                os.fdatasync(file.fileno())
                forget_pages(file, flushed, at - flushed)
                flushed = at

    def _receive_image(self, stream: PeerStream, job: Job) -> None:
        load = ImageLoad(job["image"])
        buffer = memoryview(bytearray(CHUNK_BYTES))
        length = 1
        try:
            while True:
                (length,) = struct.unpack(">i", stream.receive_exactly(4))
                if length <= 0:
                    break
                for at in range(0, length, CHUNK_BYTES):
                    data = buffer[: min(CHUNK_BYTES, length - at)]
                    stream.receive_into(data)
                    load.write(data)
                    self.count_received(len(data))
        except BrokenPipeError:
            pass  # docker load has ended, and reports why
        except TransferError:
            load.finish(is_refused=True)
            raise
        status, words, refused = load.finish(is_refused=length < 0)
        write_message(got=job["n"], status=status if length >= 0 else -1, said=words, refused=refused)

    def _measure_bandwidth(self, link: socket.socket, job: Job) -> None:
        buffer = bytearray(CHUNK_BYTES)
        count, began = 0, time.monotonic()
        with translate_stream_errors():
            while got := link.recv_into(buffer):
                count += got
                self.count_received(got)
        write_message(got=job["n"], bytes=count, took=time.monotonic() - began)

    def apply_decision(self, words: dict[str, Any]) -> None:
        """Apply the operator's decision about the received files."""
        if "keep" in words:
            job = self.jobs[words["keep"]]
            with open_parent(job) as (folder, leaf):
                with open(open_regular_file(get_part_name(job), os.O_RDWR, folder), "rb") as part:
                    os.fchmod(part.fileno(), job["mode"] | 0o600)
                    os.utime(part.fileno(), ns=(job["mtime"], job["mtime"]))
                os.replace(get_part_name(job), leaf, src_dir_fd=folder, dst_dir_fd=folder)
            write_message(kept=words["keep"])
        elif "drop" in words:
            job = self.jobs[words["drop"]]
            with open_parent(job) as (folder, _):
                os.unlink(get_part_name(job), dir_fd=folder)
            write_message(dropped=words["drop"])
        elif "touch" in words:
            for each in words["touch"]:
                with open_parent(each) as (folder, leaf):
                    os.utime(leaf, ns=(each["mtime"], each["mtime"]), dir_fd=folder, follow_symlinks=False)
            write_message(touched=len(words["touch"]))
        elif "links" in words:
            for each in words["links"]:
                make_link(each)
            write_message(linked=len(words["links"]))


def make_link(link: Job) -> None:
    """Create a link in place of what has its name. Raises `UnsafePath` if it leads out of the base."""
    if not is_safe_link(link["name"], link["target"]):
        raise UnsafePath(f"the link {link['name']} leads out of {link['base']} ({link['target']})")
    with open_parent(link, create=True) as (folder, leaf):
        made = f".{leaf}.link{PART_SUFFIX}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made, dir_fd=folder)
        os.symlink(link["target"], made, dir_fd=folder)
        os.replace(made, leaf, src_dir_fd=folder, dst_dir_fd=folder)


# --- images -----------------------------------------------------------------------------------------------------------


def list_image_names() -> dict[str, str]:
    """Return the id of the image behind each name that Docker has here. Raises `TransferError`."""
    names = {}
    for line in ask_docker("images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}").splitlines():
        name, _, number = line.strip().rpartition(" ")
        if "<none>" not in name:
            names[name] = number
    return names


def ask_docker(*words: str) -> str:
    """Return a docker command's output. Raises `TransferError`."""
    try:
        done = subprocess.run(["docker", *words], capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TransferError(f"docker {words[0]}: {error}") from error
    if done.returncode:
        raise TransferError(f"docker {words[0]}: {done.stderr.decode('utf-8', 'replace')[-400:].strip()}")
    return done.stdout.decode("utf-8", "replace")


def list_foreign_image_names(since: float) -> set[str]:
    """List the names that somebody else has pulled, tagged or imported since then, apart from `docker load`."""
    names = set()
    window = ("--since", f"{since:.3f}", "--until", f"{time.time():.3f}")
    for line in ask_docker("events", *window, "--filter", "type=image", "--format", "{{json .}}").splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Action") in ("pull", "tag"):
            actor = event.get("Actor") or {}
            names |= {str(actor.get("ID")), str((actor.get("Attributes") or {}).get("name"))}
    return names


def shorten_image_name(image: str) -> str:
    """Return the name by which `docker images` lists an image."""
    for prefix in ("index.docker.io/", "docker.io/"):
        if image.startswith(prefix):
            image = image[len(prefix) :]
    if image.startswith("library/") and image.count("/") == 1:
        image = image[len("library/") :]
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


class ImageLoad:
    """``docker load`` of an archive that must contain one image with the expected name only.

    Docker applies every name in an archive. If there is an unexpected one, all names of the archive are restored to
    what they were before.
    """

    def __init__(self, image: str) -> None:
        self.wanted = shorten_image_name(image)
        self.began = time.time()
        self.before = list_image_names()
        self.child = subprocess.Popen(
            ["docker", "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.said: list[bytes] = []
        self.listening = threading.Thread(target=self._read_output, daemon=True)
        self.listening.start()
        self.is_ending = False
        self._lock = threading.Lock()
        self._result: tuple[int, str, list[str]] | None = None
        _image_loads.append(self)

    def _read_output(self) -> None:
        assert self.child.stdout is not None
        self.said.append(self.child.stdout.read())

    def write(self, data: memoryview) -> None:
        """Pass on a part of the archive. Raises BrokenPipeError if Docker has stopped reading."""
        assert self.child.stdin is not None
        self.child.stdin.write(data)

    def finish(self, is_refused: bool) -> tuple[int, str, list[str]]:
        """Let Docker finish, or stop it; return its exit status, its output, and the names that were restored."""
        self.is_ending = True
        with self._lock:
            if self._result is None:
                if is_refused:
                    self.child.kill()
                assert self.child.stdin is not None
                with contextlib.suppress(OSError):
                    self.child.stdin.close()
                status = self.child.wait()
                self.listening.join(5)
                words = b"".join(self.said).decode("utf-8", "replace").strip()
                self._result = status, words[-400:], self.restore_names(words)
            return self._result

    def restore_names(self, words: str) -> list[str]:
        """Undo the archive's changes to names if it contains an unexpected one; return the unexpected ones."""
        after = list_image_names()
        changed = {name for name in after if after[name] != self.before.get(name)}
        changed -= list_foreign_image_names(self.began) - set(re.findall(r"^Loaded image: *(\S+)", words, re.MULTILINE))
        others = sorted(changed - {self.wanted})
        for name in sorted(changed) if others else ():
            before = self.before.get(name)
            ask_docker(*(("tag", before, name) if before else ("rmi", "--force", name)))
        return others

    def finish_before_exit(self) -> None:
        """Check the names before the program ends: Docker loads a complete archive in any case."""
        worker = threading.Thread(target=self._finish_quietly, daemon=True)
        worker.start()
        worker.join(IMAGE_LOAD_TIMEOUT_SECONDS)

    def _finish_quietly(self) -> None:
        with contextlib.suppress(TransferError, OSError, ValueError):
            self.finish(is_refused=not self.is_ending)


# --- sums -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_file(job: Job) -> Iterator[Any]:
    """Yield a file for reading: one of the source by its path, one of the receiver below its base."""
    if "path" in job:
        number = open_regular_file(job["path"], os.O_RDONLY)
    else:
        with open_parent(job) as (folder, leaf):
            number = open_regular_file(leaf, os.O_RDONLY, folder)
    with open(number, "rb") as file:
        yield file


def hash_files(files: list[Job]) -> None:
    """Report the checksum of each file, two at a time."""
    work: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(files)):
        work.put(number)

    def hash_next_files() -> None:
        while True:
            try:
                number = work.get_nowait()
            except queue.Empty:
                return
            sha = hashlib.sha256()
            try:
                with open_file(files[number]) as file:
                    hash_prefix(file, os.fstat(file.fileno()).st_size, sha)
                write_message(summed=number, sum=sha.hexdigest())
            except (OSError, TransferError):
                write_message(summed=number, sum=None)

    threads = [threading.Thread(target=hash_next_files, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write_message(done=True)


# --- what is at a place -----------------------------------------------------------------------------------------------


def list_place(place: str) -> dict[str, Any]:
    """Return the entries of a place. ``base``: the directory that their names are relative to."""
    found: dict[str, Any] = {"place": place, "kind": "none", "base": place, "entries": [], "denied": [], "parts": {}}
    try:
        is_dir = stat.S_ISDIR(os.stat(place).st_mode)
        found["kind"] = "dir" if is_dir else "file"
    except PermissionError:
        found["kind"] = "denied"
    except OSError:
        pass
    if found["kind"] == "dir":
        _add_directory(place, os.path.realpath(place), "", set(), found)
    elif found["kind"] == "file" or place.endswith(".gguf"):
        found["base"] = os.path.dirname(place)
        _add_gguf_parts(place, found)
    found.update(read_disk_space(found["base"]))
    return found


def read_disk_space(path: str) -> dict[str, Any]:
    """Return the free bytes for ``path``, its filesystem's number, and whether it is writable: of its nearest existing
    parent.
    """
    there = path or "/"
    while not os.path.lexists(there) and there != "/":
        there = os.path.dirname(there)
    try:
        numbers = os.statvfs(there)
        device = os.stat(there).st_dev
    except OSError:
        return {"room": path, "there": there, "free": None, "device": None, "writable": None}
    writable = os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)
    return {
        "room": path,
        "there": there,
        "free": numbers.f_bavail * numbers.f_frsize,
        "device": device,
        "writable": writable,
    }


def _add_gguf_parts(place: str, found: dict[str, Any]) -> None:
    """Add all parts of a GGUF file in parts."""
    base, own = os.path.split(place)
    split = _GGUF_PART_PATTERN.match(own)
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return
    for name in names:
        if name == own or (
            split and _GGUF_PART_PATTERN.match(name) and _GGUF_PART_PATTERN.sub(r"\1\2", name) == split[1] + split[2]
        ):
            _add_file(os.path.join(base, name), name, found)
        elif name.endswith(PART_SUFFIX):
            _add_partial(os.path.join(base, name), name, found)


def _add_directory(directory: str, root: str, below: str, seen: set[str], found: dict[str, Any]) -> None:
    real = os.path.realpath(directory)
    if real in seen:
        return
    if len(found["entries"]) > MAX_ENTRIES:
        found["denied"].append(f"more than {MAX_ENTRIES:,} files")
        return
    seen = seen | {real}  # on the path down to here only: a directory with two names is listed under both
    is_own = real == os.path.normpath(os.path.join(root, below))  # elsewhere a link would lead to another place
    try:
        with os.scandir(directory) as listed:
            entries = sorted(listed, key=lambda one: one.name)
    except OSError:
        found["denied"].append(below or ".")
        return
    for entry in entries:
        name = os.path.join(below, entry.name)
        if entry.name.endswith(PART_SUFFIX):
            _add_partial(entry.path, name, found)
        elif entry.name.endswith(_SKIPPED_SUFFIXES) or entry.name == ".locks":
            continue
        elif entry.is_symlink():
            target = os.path.realpath(entry.path)
            if is_own and target.startswith(root + os.sep) and os.path.exists(target):
                found["entries"].append([name, "l", 0, 0, 0, os.path.relpath(target, real)])
            elif os.path.isdir(target):
                _add_directory(entry.path, root, name, seen, found)
            else:
                _add_file(entry.path, name, found)
        elif entry.is_dir():
            _add_directory(entry.path, root, name, seen, found)
        else:
            _add_file(entry.path, name, found)


def _add_file(path: str, name: str, found: dict[str, Any]) -> None:
    """Add a file; a link that leads out of the tree counts as the file that it leads to."""
    try:
        about = os.stat(path)
    except OSError:
        found["denied"].append(name)  # also a link to nothing
        return
    if stat.S_ISREG(about.st_mode):
        if not os.access(path, os.R_OK):
            found["denied"].append(name)
        found["entries"].append([name, "f", about.st_size, about.st_mtime_ns, about.st_mode & 0o777, None])


def _add_partial(path: str, name: str, found: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        found["parts"][name] = os.stat(path).st_size


# --- main -------------------------------------------------------------------------------------------------------------


def hold_receiver_lock(name: str | None) -> Any:
    """Hold a lock while the program runs, so that two receivers never write the same part."""
    if name is None:
        return None
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = os.path.join(base, "sparkctl")
    os.makedirs(folder, exist_ok=True)
    lock = open(os.path.join(folder, name), "a")  # noqa: SIM115  held until we end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        write_message(taken=True)
        exit_program(4)
    return lock


def run_transfer(request: dict[str, Any], other_words: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Run one end until everything is done."""
    is_sender, count = request["role"] == "send", request["streams"]
    lock = hold_receiver_lock(request.get("lock"))
    end: Any = TransferSender(request["jobs"]) if is_sender else TransferReceiver(request["jobs"], count)
    handshake = TlsHandshake(request["tls"], is_sender)
    servers = [open_listening_socket(address) for address in request.get("listen", ())]
    if servers:
        write_message(ports=[server.getsockname()[1] for server in servers])

    def run_stream(number: int) -> None:
        """Run one stream, from its first byte to its last."""
        try:
            if servers:
                stream = PeerListener(servers[number], request["peers"], handshake).accept_peer(
                    request.get("meeting", PEER_WAIT_SECONDS)
                )
            else:
                stream = connect_stream(request["dial"][number], handshake)
            try:
                end.serve(stream, number)
            finally:
                stream.close()
        except (TransferError, OSError) as error:
            report_error(error)
            exit_program(5)

    if count == 1:
        workers = [threading.Thread(target=run_stream, args=(0,), daemon=True)]
    else:
        pids = fork_workers(count, run_stream, servers, [end.feed] if is_sender else [])
        workers = [threading.Thread(target=await_worker, args=(pid,), daemon=True) for pid in pids]
    for worker in workers:
        worker.start()
    threading.Thread(target=forward_commands, args=(other_words,), daemon=True).start()
    if is_sender:
        end.distribute()
        for worker in workers:
            worker.join()
    else:
        _run_receiver(end, workers, other_words)
    write_message(done=True)
    del lock


def fork_workers(count: int, work: Any, servers: list[socket.socket], others: list[int]) -> list[int]:
    """Start a process for each stream before there is any thread; each ends with its parent. ``others``: descriptors
    that it does not need.
    """
    alive, ours = os.pipe()
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        try:
            for descriptor in (ours, *others):
                os.close(descriptor)
            for each in servers:
                if each is not servers[number]:
                    each.close()
            threading.Thread(target=exit_with_parent, args=(alive,), daemon=True).start()
            work(number)
            os._exit(0)
        finally:  # an unexpected error
            sys.excepthook(*sys.exc_info())
            os._exit(7)
    for server in servers:
        server.close()
    return pids


def exit_with_parent(alive: int) -> None:
    """End when the parent process ends, however it does."""
    os.read(alive, 1)
    exit_program(6)


def await_worker(pid: int) -> None:
    """Return when a stream is done; if it failed, end in the same way: it has reported why, if it could."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 7:
        report_error(TransferError(f"one of its processes was ended (status {status})"))
    if status:
        exit_program(5)


def _run_receiver(
    end: TransferReceiver, threads: list[threading.Thread], other_words: queue.SimpleQueue[dict[str, Any]]
) -> None:
    reported = -1
    while True:
        try:
            words = other_words.get(timeout=0.25)
        except queue.Empty:
            words = {}
        if "end" in words:
            break
        if words:
            end.apply_decision(words)
        if end.received_bytes != reported and (not words or end.received_bytes - reported > 64 << 20):
            reported = end.received_bytes
            write_message(at=reported)
    for thread in threads:
        thread.join()


def forward_commands(other_words: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass on the operator's commands; end when the operator has gone."""
    for line in sys.stdin.buffer:
        other_words.put(json.loads(line))
    exit_program(6)


def report_thread_failure(failure: Any) -> None:
    """Report an unexpected error and end: if only the thread died, the other end would wait."""
    write_message(error=f"{failure.exc_type.__name__}: {failure.exc_value}", number=None, kind="broken")
    exit_program(7)


def main(_words: list[str]) -> None:
    """Run the end that the first line asks for."""
    threading.excepthook = report_thread_failure
    request = json.loads(sys.stdin.buffer.readline())
    other_words: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    try:
        if request["role"] == "list":
            places = [list_place(one) for one in request["places"]]
            rooms = [read_disk_space(one) for one in request["rooms"]]
            sys.stdout.write("@@ survey " + json.dumps({"places": places, "rooms": rooms}) + "\n")
            sys.stdout.flush()
        elif request["role"] == "sum":
            threading.Thread(target=forward_commands, args=(other_words,), daemon=True).start()
            hash_files(request["files"])
        else:
            run_transfer(request, other_words)
    except (TransferError, OSError) as error:
        report_error(error)
        exit_program(5)
    exit_program(0)
