"""``doctor --collect``: every raw reading of the nodes in one file, secrets masked, and what could not be read and why."""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkctl import __version__
from sparkctl.core.bundle import Bundle, file_name
from sparkctl.core.context import Context
from sparkctl.core.record import plain
from sparkctl.core.scrub import Scrubber, known_in
from sparkctl.core.session import Session, node_failures
from sparkctl.core.together import together
from sparkctl.errors import DockerError, ExitCode, NodeError
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, Outcome, Warned
from sparkctl.model.node import Node, NodeName
from sparkctl.model.secrets import secret_values
from sparkctl.operations import configuration
from sparkctl.operations.stream import Emit, stream
from sparkctl.probe import collection
from sparkctl.probe.collection import Collection
from sparkctl.wire import docker_json
from sparkctl.wire.link import Held

_WITHIN = 110.0  # seconds; the program on the node ends itself after 100
_CONTAINERS = 20  # of ours
FOLDER = "sparkctl-collect"
_BEFORE = "Look into it before you post it: it names your hosts, users and models"
_ABOUT = """\
What sparkctl read on these nodes. Values of variables, flags and fields named like tokens, keys or passwords are masked,
and so is what has the shape of a token. Names of hosts, users, models and containers, addresses and the kernel's log are
in it: look into it before you post it. missing.txt in each folder says what could not be read, and why.
"""


@dataclass(slots=True)
class _Node:
    """What was read of one node, unmasked until it is written: ``texts`` and decoded JSON ``data`` by file name."""

    node: NodeName
    texts: dict[str, str] = field(default_factory=dict)
    data: dict[str, object] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    error: NodeError | None = None


def collect(
    ctx: Context, nodes: Sequence[Node], path: Path, config: str | None, environ: Mapping[str, str]
) -> AsyncGenerator[Event, None]:
    """Read everything and write it to ``path``; exit 3 if a node could not be asked, which the bundle then says.

    ``config``: the text of the config file. ``environ``: its secrets are masked wherever they turn up.
    """

    async def job(emit: Emit) -> Ended:
        began = ctx.clock.monotonic()
        with Bundle(path) as bundle:
            found = await together(*(_read(ctx, node) for node in nodes))
            known = known_in(secret_values(environ), *(one.secrets for one in found))
            files = _files(found, Scrubber(known), config, ctx.clock.now())
            size = bundle.write(FOLDER, files)
        for one in found:
            if one.error is not None:
                emit(Warned(ctx.clock.now(), one.node, one.error.message, one.error.hint))
        away = next((one.error for one in found if one.error is not None), None)
        words = f"{len(files)} files, {max(1, size >> 10)} KiB. {_BEFORE}"
        return Ended(
            ctx.clock.now(), Outcome.UNREACHABLE if away else Outcome.DONE,
            int(away.exit_code if away else ExitCode.DONE), ctx.clock.monotonic() - began, message=words, file=str(path),
        )  # fmt: skip

    return stream(ctx, job, on_interrupt="interrupted; no file was written")


async def _read(ctx: Context, node: Node) -> _Node:
    """Return what can be read of a node; what cannot is missing, and why."""
    found = _Node(node.name)
    async with Session(node, ctx.asker, ctx.clock) as session:
        try:
            with node_failures(node):
                await session.link.connect()
                await together(_readings(session, found), _sample(session, found), _docker(session, found))
        except NodeError as error:
            found.error = error
            found.missing.append(("everything that is not here", error.message))
    return found


async def _readings(session: Session, found: _Node) -> None:
    start, gathered = collection.start(), Collection()
    held = await session.link.hold(start.argv)
    try:
        async with asyncio.timeout(_WITHIN):
            await held.write(start.stdin)
            await _hear(held, gathered)
    except TimeoutError:
        found.missing.append(("further readings", f"the node did not get further within {_WITHIN:.0f} s"))
    finally:
        await held.release()
        for reading in gathered.readings():
            if reading.text:
                found.texts[f"{reading.name}.txt"] = reading.text
            if reading.why is not None:
                found.missing.append((reading.name, reading.why))
            elif reading.cut:
                found.missing.append((reading.name, "it is longer than what was read of it"))
    if not gathered.whole:
        found.missing.append(("further readings", "the program that reads them ended early (python3 -V on the node?)"))


async def _hear(held: Held, gathered: Collection) -> None:
    while not gathered.whole and (line := await held.readline()):
        gathered.hear(line)


async def _sample(session: Session, found: _Node) -> None:
    asked = await configuration.ask(session)
    if asked is None:
        found.missing.append(("sample.json", "the probe does not run there, or said nothing in time"))
        return
    found.data["identity.json"], found.data["sample.json"] = (plain(part) for part in asked)


async def _docker(session: Session, found: _Node) -> None:
    """Ask Docker for what it is, what there is, and all about what is ours."""
    try:
        for name in ("info", "version"):
            found.data[f"docker/{name}.json"] = await session.docker.raw(f"/{name}")
        found.data["docker/containers.json"] = await session.docker.raw("/containers/json?all=1")
        for container in _ours(await session.docker.list()):
            about = await session.docker.raw(f"/containers/{container.id}/json")
            found.data[f"docker/inspect/{file_name(container.name)}.json"] = about
            if isinstance(about, dict):
                found.secrets |= docker_json.secrets(about)
    except DockerError as error:
        found.missing.append(("docker", error.message))


def _ours(containers: Iterable[Container]) -> list[Container]:
    return [one for one in containers if one.is_ours][:_CONTAINERS]


def _files(found: Iterable[_Node], scrubber: Scrubber, config: str | None, now: float) -> dict[str, str]:
    """Return the files of the bundle by name, masked."""
    files = {"README.txt": _ABOUT}
    if config is not None:
        files["config.yaml"] = scrubber.text(config)
    summary = []
    for one in found:
        folder = file_name(one.node)
        for name, text in one.texts.items():
            files[f"{folder}/{name}"] = scrubber.text(text)
        for name, data in one.data.items():
            files[f"{folder}/{name}"] = _json(scrubber.data(data))
        missing = "".join(f"{what}: {why}\n" for what, why in sorted(one.missing))
        files[f"{folder}/missing.txt"] = scrubber.text(missing) or "nothing is missing\n"
        summary.append({"node": one.node, "folder": folder, "error": one.error.message if one.error else None})
    about = {"sparkctl": __version__, "python": platform.python_version(), "system": platform.system(), "when": now}
    files["about.json"] = _json(scrubber.data({**about, "nodes": summary}))
    return files


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"
