"""``doctor --collect``: write every raw reading of the nodes to one file, secrets masked, with a list of what could not be read."""

from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Self

from sparkctl import __version__
from sparkctl.commands.event_stream import build_end, stream_events
from sparkctl.commands.request import Request
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import DockerError, InvalidInput, NodeError
from sparkctl.files import safe_file_name
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.sanitize import load_json_map
from sparkctl.model.text.secrets import Redactor, find_secret_values
from sparkctl.monitor import sampler
from sparkctl.node.bootstrap import RemoteProgram, build_program, pack_pynvml
from sparkctl.transport.docker import docker_responses
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_COLLECT_TIMEOUT_SECONDS = 110.0  # seconds; the program on the node ends itself after 100
_MAX_CONTAINERS = 20  # sparkctl's own
BUNDLE_FOLDER = "sparkctl-collect"
_PRIVACY_NOTE = "Check it before you post it: it names your hosts, users and models"
_README_TEXT = """\
What sparkctl read on these nodes. Values of variables, flags and fields named like tokens, keys or passwords are masked,
and so is what has the shape of a token. Names of hosts, users, models and containers, addresses and the kernel's log are
in it: check it before you post it. missing.txt in each folder says what could not be read, and why.
"""


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


@dataclass(slots=True, kw_only=True)
class NodeReadings:
    """The readings of one node, unmasked until they are written: ``texts`` and decoded JSON ``data`` by file name."""

    node: NodeName
    texts: dict[str, str] = field(default_factory=dict)
    data: dict[str, object] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    error: NodeError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSupportBundle(Request):
    """A request to write all readings of nodes to a file; see `collect_support_bundle`."""

    nodes: Sequence[Node]
    path: Path
    config: str | None
    environ: Mapping[str, str]

    def format_as_command(self) -> tuple[str, ...]:
        return ("doctor", f"--collect={self.path}", *self.format_node_options())

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        """Read them and write the file."""
        return collect_support_bundle(ctx, self.nodes, self.path, self.config, self.environ)


def collect_support_bundle(
    ctx: CommandContext, nodes: Sequence[Node], path: Path, config: str | None, environ: Mapping[str, str]
) -> AsyncGenerator[Event, None]:
    """Read everything and write it to ``path``. Exit 3 if a node could not be asked; the bundle says so.

    ``config``: the text of the config file. ``environ``: the values of its secrets are masked wherever they appear.
    """

    async def read_and_write(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        with SupportBundle(path) as bundle:
            found = await gather_or_cancel(*(_read_node(ctx, node) for node in nodes))
            known = frozenset(find_secret_values(environ)).union(*(one.secrets for one in found))
            files = _build_bundle_files(found, Redactor(known), config, ctx.clock.unix_time())
            size = bundle.write_files(BUNDLE_FOLDER, files)
        for one in found:
            if one.error is not None:
                emit(WarningEmitted(ctx.clock.unix_time(), one.node, one.error.message, one.error.hint))
        failure = next((one.error for one in found if one.error is not None), None)
        words = f"{len(files)} files, {max(1, size >> 10)} KiB. {_PRIVACY_NOTE}"
        ended = build_end(ctx, began, Outcome.UNREACHABLE if failure else Outcome.DONE, message=words)
        return replace(ended, file=str(path))

    return stream_events(ctx, read_and_write, on_interrupt="interrupted; no file was written")


async def _read_node(ctx: CommandContext, node: Node) -> NodeReadings:
    """Return the readings of a node; each missing one has a reason."""
    found = NodeReadings(node=node.name)
    async with NodeSession(node, ctx.prompter, ctx.clock) as session:
        try:
            with isolate_node_failures(node):
                await session.link.connect()
                await gather_or_cancel(
                    _run_collector(session, found), _read_sample(session, found), _read_docker(session, found)
                )
        except NodeError as error:
            found.error = error
            found.missing.append(("everything that is not here", error.message))
    return found


async def _run_collector(session: NodeSession, found: NodeReadings) -> None:
    start, gathered = build_collect_program(), ReadingCollector()
    process = await session.link.start_process(start.argv)
    try:
        async with asyncio.timeout(_COLLECT_TIMEOUT_SECONDS):
            await process.write(start.stdin)
            while not gathered.whole and (line := await process.readline()):
                gathered.add_line(line)
    except TimeoutError:
        found.missing.append(("further readings", f"the node did not finish within {_COLLECT_TIMEOUT_SECONDS:.0f} s"))
    finally:
        await process.release()
        for reading in gathered.list_readings():
            if reading.text:
                found.texts[f"{reading.name}.txt"] = reading.text
            if reading.why is not None:
                found.missing.append((reading.name, reading.why))
            elif reading.cut:
                found.missing.append((reading.name, "it is longer than the part that was read"))
    if not gathered.whole:
        found.missing.append(("further readings", "the program that reads them ended early (python3 -V on the node?)"))


async def _read_sample(session: NodeSession, found: NodeReadings) -> None:
    answer = await sampler.read_identity_and_sample(session)
    if answer is None:
        found.missing.append(("sample.json", "the agent is not running there, or did not answer in time"))
        return
    found.data["identity.json"], found.data["sample.json"] = (to_json_data(part) for part in answer)


async def _read_docker(session: NodeSession, found: NodeReadings) -> None:
    """Ask Docker for its version, its containers and images, and the details of sparkctl's containers."""
    try:
        for name in ("info", "version"):
            found.data[f"docker/{name}.json"] = await session.docker.get_json(f"/{name}")
        found.data["docker/containers.json"] = await session.docker.get_json("/containers/json?all=1")
        managed = [one for one in await session.docker.list_containers() if one.is_managed]
        for container in managed[:_MAX_CONTAINERS]:
            about = await session.docker.get_json(f"/containers/{container.id}/json")
            found.data[f"docker/inspect/{safe_file_name(container.name)}.json"] = about
            if isinstance(about, dict):
                found.secrets |= docker_responses.parse_secret_values(about)
    except DockerError as error:
        found.missing.append(("docker", error.message))


def _build_bundle_files(
    found: Iterable[NodeReadings], scrubber: Redactor, config: str | None, now: float
) -> dict[str, str]:
    """Return the files of the bundle by name, masked."""
    files = {"README.txt": _README_TEXT}
    if config is not None:
        files["config.yaml"] = scrubber.redact_text(config)
    summary = []
    for one in found:
        folder = safe_file_name(one.node)
        for name, text in one.texts.items():
            files[f"{folder}/{name}"] = scrubber.redact_text(text)
        for name, data in one.data.items():
            files[f"{folder}/{name}"] = _format_json(scrubber.redact_json(data))
        missing = "".join(f"{what}: {why}\n" for what, why in sorted(one.missing))
        files[f"{folder}/missing.txt"] = scrubber.redact_text(missing) or "nothing is missing\n"
        summary.append({"node": one.node, "folder": folder, "error": one.error.message if one.error else None})
    about = {"sparkctl": __version__, "python": platform.python_version(), "system": platform.system(), "when": now}
    files["about.json"] = _format_json(scrubber.redact_json({**about, "nodes": summary}))
    return files


def _format_json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


END_NAME = "end"
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,8}")
_MAX_NAME_CHARS = 200
_MAX_READINGS = 500
_MAX_READING_CHARS = 1 << 20  # maximum characters of one reading


@dataclass(frozen=True, slots=True)
class CollectedReading:
    """One reading by its name (a path without its first slash, or a name of sparkctl). ``why``: why it is incomplete."""

    name: str
    text: str
    why: str | None = None
    cut: bool = False


def build_collect_program(root: str = "", nvml: bytes | None = None, python: str = "python3") -> RemoteProgram:
    """Return the program's start command. ``root``: where the node's /proc and /sys are; ``nvml``: as for the agent."""
    packed = pack_pynvml(nvml, "collect")
    return build_program(
        "sparkctl-collect", ["kernel_log", "agent", "collect"], [str(len(packed)), root], packed, python
    )


@dataclass(slots=True)
class ReadingCollector:
    """Collects lines. ``whole``: the end was received."""

    whole: bool = False
    _pieces: dict[str, list[str]] = field(default_factory=dict)
    _ended: dict[str, tuple[str | None, bool]] = field(default_factory=dict)

    def add_line(self, line: bytes) -> None:
        """Add a line; a foreign line (a login shell's greeting) is ignored."""
        message = load_json_map(line) or {}
        name = message.get("name")
        if not isinstance(name, str) or len(name) > _MAX_NAME_CHARS or not _NAME_PATTERN.fullmatch(name):
            return
        if name == END_NAME:
            self.whole = True
        elif name in self._pieces or len(self._pieces) < _MAX_READINGS:
            pieces = self._pieces.setdefault(name, [])
            text = message.get("text")
            if isinstance(text, str) and sum(map(len, pieces)) + len(text) <= _MAX_READING_CHARS:
                pieces.append(text)
            if message.get("end") is True:
                why = message.get("why")
                self._ended[name] = (why if isinstance(why, str) else None, message.get("cut") is True)

    def list_readings(self) -> tuple[CollectedReading, ...]:
        """Return the readings; one without its end is marked as incomplete."""
        unfinished = ("the node went silent in the middle of it", False)
        return tuple(
            CollectedReading(name, "".join(pieces), *self._ended.get(name, unfinished))
            for name, pieces in self._pieces.items()
        )
