"""Simulated `node/transfer.py`: models that exist by name, and bytes that are only counted."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import zlib
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from sparkctl.concurrency import run_until_first
from sparkctl.engines.simulation.engine_launch import build_model_config, list_model_files
from sparkctl.node.models import ANSWER_MARK
from sparkctl.simulator.http_server import ReadStream
from sparkctl.simulator.sim_node import (
    FULL_DISK_FREE_BYTES,
    LINK_MEGABITS,
    ByteSink,
    NodeFault,
    SimNode,
    get_interface_address,
)
from sparkctl.simulator.sim_node import IMAGE_BYTES as IMAGE_BYTES

_FILE_MTIME_NANOSECONDS = 1_780_000_000 * 10**9  # the time at which every model was downloaded
_PROGRESS_SECONDS = 0.1  # seconds between two progress messages
_COPY_BYTES_PER_SECOND = 4.6e9  # bytes/s at the demo's pace, faster than a real Spark's disk
_DEMO_SPEED = 42.0
_LANE_BITS_PER_SECOND = {"enp1s0f0np0": 42.6e9, "enP2p1s0f0np0": 44.1e9}  # bits/s by TCP over a function
_LAN_BITS_PER_SECOND = 9.3e9
_FILE_LINE_PATTERN = re.compile(r"^file (\d+) (.*)$", re.MULTILINE)
Json = dict[str, Any]


class ReceivedFiles:
    """The files that a node has received: bytes by path, for models that it did not have at the start."""

    def __init__(self) -> None:
        self.whole: dict[str, int] = {}
        self.parts: dict[str, int] = {}  # by the path of the file

    @staticmethod
    def for_node(node: SimNode) -> ReceivedFiles:
        """Return a node's own record."""
        return _RECEIVED_FILES_BY_NODE.setdefault(node, ReceivedFiles())


_RECEIVED_FILES_BY_NODE: WeakKeyDictionary[SimNode, ReceivedFiles] = WeakKeyDictionary()


class TransferRendezvous:
    """Two ends that have exchanged their certificates."""

    def __init__(self) -> None:
        self.sender: asyncio.Future[tuple[SimNode, str]] = asyncio.get_running_loop().create_future()
        self.done = asyncio.Event()
        self.gone = False


_RENDEZVOUS_BY_CERTIFICATE: dict[str, TransferRendezvous] = {}


async def run_survey(node: SimNode, stdin: ReadStream, stdout: ByteSink) -> int:
    """Answer one request."""
    request = await _read_json_line(stdin)
    places = [_survey_place(node, place) for place in request["places"]]
    rooms = [{"room": path, "there": path, **_build_space_json(node)} for path in request["rooms"]]
    stdout.write(b"@@ survey " + json.dumps({"places": places, "rooms": rooms}).encode() + b"\n")
    return 0


async def run_model_program(node: SimNode, stdin: ReadStream) -> bytes:
    """Answer as `node/models.py` does: the models that profiles name are there by name, no others are."""
    request = await _read_json_line(stdin)
    entries = {place: place.rpartition("/")[0] if place.endswith(".gguf") else place for place in request["places"]}
    sizes = {entry: sum(_list_present_files(node, place).values()) for place, entry in entries.items()}
    answer: Json = {}
    if request["role"] == "remove":
        node.downloaded.discard(request["place"])
    elif request["role"] == "list":
        answer = {"entries": entries, "models": [
            {"place": entry, "size": size, "used": _find_last_use(node, entry), "faults": [], "unread": False,
             "brought": entry in node.downloaded, "link": False}
            for entry, size in sizes.items() if size
        ]}  # fmt: skip
    else:
        answer = {"files": node.memory.drop_model_files({entry.rpartition("/")[2] for entry in entries.values()})}
    return ANSWER_MARK.encode() + json.dumps(answer).encode() + b"\n"


def _find_last_use(node: SimNode, place: str) -> float:
    """Return the last start of a container with the model, else when it came: now, or days before the boot."""
    name = place.rpartition("/")[2]
    names = {name, name.removeprefix("models--").replace("--", "/", 1)}
    starts = [
        one.started / 1e9
        for one in node.containers.values()
        if one.started is not None and any(each in word for each in names for word in one.command)
    ]
    is_new = place in node.downloaded
    old = node.unix_time() - node.uptime - 86_400.0 * (zlib.crc32(place.encode()) % 20)
    return max(starts, default=node.unix_time() if is_new else old)


def _survey_place(node: SimNode, place: str) -> Json:
    base = place.rpartition("/")[0] if place.endswith(".gguf") else place
    files = _list_present_files(node, place)
    entries = [[path[len(base) + 1 :], "f", size, _FILE_MTIME_NANOSECONDS, 0o644, None] for path, size in files.items()]
    own = ReceivedFiles.for_node(node)
    parts = {
        f".{path[len(base) + 1 :]}.{size}-{_FILE_MTIME_NANOSECONDS // 10**9}.sparkctl-part": own.parts[path]
        for path, size in _list_all_files(place).items()
        if path in own.parts
    }
    kind = "none" if not entries else "file" if place.endswith(".gguf") else "dir"
    return {"place": place, "kind": kind, "base": base, "entries": entries, "denied": [], "parts": parts, "room": place,
            "there": place if entries else base.rpartition("/")[0], **_build_space_json(node)}  # fmt: skip


def _build_space_json(node: SimNode) -> Json:
    free = FULL_DISK_FREE_BYTES if NodeFault.FULL_DISK in node.options.troubles else 2_384_206_868 << 10
    return {"free": free, "device": 1, "writable": True}


def _list_present_files(node: SimNode, place: str) -> dict[str, int]:
    """Return the files at a place by path: all of the model, or as many as have been received."""
    found = _list_all_files(place)
    if not node.lacks_path(place):
        return found
    there = ReceivedFiles.for_node(node).whole
    return {path: size for path, size in found.items() if path in there}


def _list_all_files(place: str) -> dict[str, int]:
    files = {path: int(size) for size, path in _FILE_LINE_PATTERN.findall("\n".join(list_model_files(place)))}
    if place.endswith(".gguf"):
        return files
    return {**files, f"{place}/config.json": len(json.dumps(build_model_config(place)))}


async def run_transfer(node: SimNode, stdin: ReadStream, stdout: ByteSink) -> int:
    """Run one end of a transfer until it is done, or its stdin closes."""
    request = await _read_json_line(stdin)

    def send_message(**words: Any) -> None:
        stdout.write(json.dumps(words).encode() + b"\n")

    if request["role"] == "sum":
        for number, one in enumerate(request["files"]):
            send_message(summed=number, sum=_compute_checksum(_get_job_path(one)))
        send_message(done=True)
        return 0
    if "listen" in request:
        send_message(ports=[40_000 + number for number, _ in enumerate(request["listen"])])
    work = _run_sender if request["role"] == "send" else _run_receiver
    return await work(node, request, stdin, send_message)


def _get_rendezvous(certificate: str) -> TransferRendezvous:
    """Return the rendezvous of the receiver with this certificate."""
    return _RENDEZVOUS_BY_CERTIFICATE.setdefault(certificate, TransferRendezvous())


async def _run_sender(node: SimNode, request: Json, stdin: ReadStream, tell: Any) -> int:
    meeting = _get_rendezvous(request["tls"]["peer"])
    own = request["dial"][0][0] if "dial" in request else ""
    meeting.sender.set_result((node, ",".join(dict.fromkeys(way[0] for way in request.get("dial", []))) or own))
    await run_until_first(_wait_for_eof(stdin), meeting.done.wait())
    if not meeting.done.is_set():
        meeting.gone = True
        return 6
    for job in request["jobs"]:
        if "echoes" in job:
            tell(sent=job["n"], median=8.7e-5)
        elif "image" in job:
            tell(sent=job["n"], status=0, said="")
        elif "seconds" not in job:
            tell(sent=job["n"], sum=_compute_checksum(job["path"]))
    tell(done=True)
    return 0


async def _run_receiver(node: SimNode, request: Json, stdin: ReadStream, tell: Any) -> int:
    certificate = request["tls"]["certificate"]
    meeting = _get_rendezvous(certificate)
    words: asyncio.Queue[Json | None] = asyncio.Queue()
    hearing = asyncio.ensure_future(_read_messages(stdin, words))
    try:
        sender, over = await meeting.sender
        jobs = request["jobs"]
        if not await _simulate_bytes(node, sender, over=over, jobs=jobs, meeting=meeting, hearing=hearing, tell=tell):
            return 6
        meeting.done.set()
        return await _place_files(node, {job["n"]: job for job in jobs}, words, tell)
    finally:
        hearing.cancel()
        _RENDEZVOUS_BY_CERTIFICATE.pop(certificate, None)


async def _simulate_bytes(
    node: SimNode,
    sender: SimNode,
    over: str,
    jobs: list[Json],
    meeting: TransferRendezvous,
    hearing: asyncio.Future[None],
    tell: Any,
) -> bool:
    """Wait as long as the bytes take, and report progress; False if an end has gone."""
    at, own = 0, ReceivedFiles.for_node(node)
    for job in jobs:
        if "echoes" in job:
            continue
        if "seconds" in job:
            rate = sum(_link_rate(sender, one) for one in over.split(",")) / 8
            tell(got=job["n"], bytes=job["most"], took=job["most"] * len(jobs) / rate)
            continue
        if "image" in job:
            size = IMAGE_BYTES
        else:
            size = job["size"]
            at += own.parts.get(_get_job_path(job), 0)
        came = 0 if "image" in job else own.parts.get(_get_job_path(job), 0)
        while came < size:
            if hearing.done() or meeting.gone:
                return False
            await node.pace.clock.sleep(_PROGRESS_SECONDS)
            step = min(
                size - came, int(_COPY_BYTES_PER_SECOND * _PROGRESS_SECONDS * max(1.0, node.pace.speed / _DEMO_SPEED))
            )
            came, at = came + step, at + step
            if "base" in job:
                own.parts[_get_job_path(job)] = came
            tell(at=at)
        if "image" in job:
            node.images.add_image(job["image"], sender.images.get_image_id(job["image"]))
            tell(got=job["n"], status=0, said="")
        else:
            tell(got=job["n"], sum=_compute_checksum(_get_job_path(job)))
    return True


def _link_rate(node: SimNode, own: str) -> float:
    """Return the bits a second over the interface with this address."""
    name = next((name for name in LINK_MEGABITS if get_interface_address(node, name) == own), "")
    return _LANE_BITS_PER_SECOND.get(name, _LAN_BITS_PER_SECOND)


async def _place_files(node: SimNode, jobs: dict[int, Json], words: asyncio.Queue[Json | None], tell: Any) -> int:
    own = ReceivedFiles.for_node(node)
    while (message := await words.get()) is not None:
        if "keep" in message:
            job = jobs[message["keep"]]
            own.whole[_get_job_path(job)] = own.parts.pop(_get_job_path(job), job["size"])
            _mark_complete_models(node, own)
            tell(kept=message["keep"])
        elif "touch" in message:
            tell(touched=len(message["touch"]))
        elif "links" in message:
            tell(linked=len(message["links"]))
        elif "end" in message:
            tell(done=True)
            return 0
    return 6


def _mark_complete_models(node: SimNode, own: ReceivedFiles) -> None:
    """Record a completely received model as present."""
    left = tuple(place for place in node.options.missing if not _list_all_files(place).keys() <= own.whole.keys())
    node.options = replace(node.options, missing=left)
    places = {path.rpartition("/")[0] for path in own.whole}
    node.downloaded |= {place for place in places if _list_all_files(place).keys() <= own.whole.keys()}


def _get_job_path(job: Json) -> str:
    """Return the path of a job's file: the receiver's are below a base."""
    return str(job["path"]) if "path" in job else f"{job['base'].rstrip('/')}/{job['name']}"


def _compute_checksum(path: str) -> str:
    """Return a checksum: the same file is the same on every node."""
    return hashlib.sha256(path.rpartition("/")[2].encode()).hexdigest()


async def _read_messages(stdin: ReadStream, words: asyncio.Queue[Json | None]) -> None:
    rest = b""
    while data := await stdin.read(65536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            words.put_nowait(json.loads(line))
    words.put_nowait(None)


async def _wait_for_eof(stdin: ReadStream) -> None:
    while await stdin.read(65536):
        pass


async def _read_json_line(stdin: ReadStream) -> Json:
    line = b""
    while not line.endswith(b"\n"):
        data = await stdin.read(1)
        if not data:
            break
        line += data
    found = json.loads(line or b"{}")
    assert isinstance(found, dict)
    return found
