"""Downloads a model onto a node: a container there, of the profile's own image, runs `node/download.py`.

The container outlives this process and its connection; its log is the progress. The next `pull` of the same model finds it
by its label, and goes on watching.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.errors import ContainerNotFound, DiskFull, InvalidInput, NodeError, OperationRefused, SparkctlError
from sparkctl.logs.reader import LogFeed
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.missing_part import HubSource, MissingPart, PartKind, parse_model_source
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import load_json, sanitize_line
from sparkctl.model.text.units import GIB, format_gib, format_size
from sparkctl.transport.node_session import NodeSession

_MOUNTED_FOLDER = "/run/sparkctl"  # with the token, in the container
_GGUF_NUMBER = re.compile(r"-\d{5}-of-")
_KEPT_FREE_BYTES = 5 * GIB  # that a download leaves on the disk
_COMMAND_TIMEOUT_SECONDS = 20.0
_REMOVE_FOLDER = 'rm -rf -- "/dev/shm/$1"'
_PREPARE = """set -e; umask 077
mkdir -p -- "$1"; [ -w "$1" ] || exit 13
id -u; id -g
if [ -n "$2" ]; then d=/dev/shm/$2; rm -rf -- "$d"; mkdir -m 700 -- "$d"; cat > "$d/token"; fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDownload:
    """What to download and where. ``target`` is a path on the node; ``is_cache``: it is a folder of the Hub's cache.

    ``include``: names of files, with ``*``; empty: what an engine reads.
    """

    profile: Profile
    source: HubSource
    target: str
    is_cache: bool
    include: tuple[str, ...] = ()

    @classmethod
    def from_part(cls, profile: Profile, part: MissingPart) -> ModelDownload:
        """Return the download of a missing model. Raises `OperationRefused` where nothing says from where."""
        if part.source is None:
            raise OperationRefused(
                f"where the model of {profile.name} comes from is not known: {part.name} {part.reason} on {part.node}",
                "set model.source in the profile, for example hf:ORG/NAME; or copy it: "
                f"sparkctl sync {profile.name} --from NODE --to {part.node}",
            )
        place = PurePosixPath(part.name)
        include = profile.model.include if part.kind is PartKind.MODEL else ()
        if place.suffix == ".gguf":  # a file: its directory gets it, with its other parts
            include = include or (_GGUF_NUMBER.sub("-*-of-", place.name),)
            place = place.parent
        return cls(
            profile=profile, source=parse_model_source(part.source), target=str(place), include=include,
            is_cache=place.name.startswith("models--"),
        )  # fmt: skip

    @property
    def key(self) -> str:
        """What tells this download from others on the node."""
        return hashlib.sha256(f"{self.source.repository}@{self.source.revision} {self.target}".encode()).hexdigest()[
            :12
        ]

    @property
    def parent(self) -> str:
        """The directory that gets the model."""
        return str(PurePosixPath(self.target).parent)

    @property
    def container_name(self) -> str:
        """The name of its container."""
        return f"sparkctl-pull-{self.key}"

    @property
    def token_folder(self) -> str:
        """The name of the folder in memory that holds the token until the download has read it."""
        return f"sparkctl-token-{self.key}"

    def build_request(self, token_file: str | None) -> dict[str, Any]:
        """Return the argument of the program on the node."""
        return {
            "repo": self.source.repository, "revision": self.source.revision, "target": self.target,
            "is_cache": self.is_cache, "include": self.include, "exclude": self.profile.model.exclude,
            "token_file": token_file, "kept_free": _KEPT_FREE_BYTES,
        }  # fmt: skip


async def download_model(
    session: NodeSession, wanted: ModelDownload, environ: Mapping[str, str], progress: TransferReporter
) -> str:
    """Download a model, or watch the download that goes on there; return what was done, as a sentence.

    Raises `SparkctlError`; a lost connection leaves the download at work.
    """
    container = await find_download(session, wanted)
    if container is not None and container.state is not ContainerState.RUNNING:
        await session.docker.remove_container(container.id, force=True)
        container = None
    container_id = container.id if container is not None else await _start_download(session, wanted, environ)
    said = await _watch_download(session, container_id, wanted, progress)
    await _remove_quietly(session, container_id)
    await _remove_token_folder(session, wanted)
    if said.get("done"):
        amount = f"{said.get('files')} files, {format_size(int(said.get('total') or 0))}"
        return f"{wanted.source.repository} is in {wanted.target}: {amount}, each proved by the Hub's checksum"
    raise explain_download_error(said, wanted, session.node.name)


async def find_download(session: NodeSession, wanted: ModelDownload) -> Container | None:
    """Return the container of this download, None if there is none."""
    return next(
        (one for one in await session.docker.list_containers() if one.get_label(ContainerLabel.DOWNLOAD) == wanted.key),
        None,
    )


async def stop_download(session: NodeSession, wanted: ModelDownload) -> bool:
    """End a download; what has arrived stays. Return whether there was one."""
    container = await find_download(session, wanted)
    if container is None:
        return False
    await session.docker.remove_container(container.id, force=True)
    await _remove_token_folder(session, wanted)
    return True


async def _start_download(session: NodeSession, wanted: ModelDownload, environ: Mapping[str, str]) -> str:
    node, parent = session.node.name, wanted.parent
    token = _find_token(environ)
    folder = wanted.token_folder if token else ""
    done = await session.run(
        ["sh", "-c", _PREPARE, "sparkctl-download", parent, folder],
        stdin=(token or "").encode(),
        timeout=_COMMAND_TIMEOUT_SECONDS,
    )
    words = done.stdout.decode("utf-8", "replace").split()
    if done.status != 0 or len(words) != 2:
        why = sanitize_line(done.stderr.decode("utf-8", "replace").strip()) or "it may not be written"
        raise OperationRefused(
            f"{parent} on {node} cannot take the model: {why}",
            f"on {node}: sudo mkdir -p {shlex.quote(parent)} && sudo chown $USER {shlex.quote(parent)}",
        )
    binds = [f"{parent}:{parent}"]
    if folder:
        binds.append(f"/dev/shm/{folder}:{_MOUNTED_FOLDER}")  # noqa: S108 - in memory, for its user alone
    request = wanted.build_request(f"{_MOUNTED_FOLDER}/token" if folder else None)
    program = (Path(__file__).parents[2] / "node" / "download.py").read_text()
    body: dict[str, object] = {
        "Image": wanted.profile.image,
        "Entrypoint": ["python3"],
        "Cmd": ["-u", "-c", program, json.dumps(request)],
        "User": ":".join(words),
        "WorkingDir": "/tmp",  # noqa: S108  # the container's own
        "Env": [
            "HOME=/tmp",
            "HF_HUB_DISABLE_TELEMETRY=1",
            "HF_HUB_DISABLE_PROGRESS_BARS=1",
            *_list_hub_variables(environ),
        ],
        "Labels": {ContainerLabel.DOWNLOAD: wanted.key, ContainerLabel.PROFILE: wanted.profile.name},
        "HostConfig": {"Binds": binds, "NetworkMode": "host", "CpuShares": 128},
    }
    try:
        container_id = await session.docker.create_from_body(wanted.container_name, body)
        await session.docker.start_container(container_id)
    except BaseException:
        with suppress(NodeError):  # the error that ended it says more
            await _remove_token_folder(session, wanted)
        raise
    return container_id


async def _remove_token_folder(session: NodeSession, wanted: ModelDownload) -> None:
    """Remove what held the token in memory; a download that broke off before it read it has left it there."""
    words = ["sh", "-c", _REMOVE_FOLDER, "sparkctl-download", wanted.token_folder]
    await session.run(words, timeout=_COMMAND_TIMEOUT_SECONDS)


def _find_token(environ: Mapping[str, str]) -> str | None:
    """Return the operator's own token for the Hub."""
    return environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN") or None


def _list_hub_variables(environ: Mapping[str, str]) -> list[str]:
    """Return where the operator's Hub is, if it is another one. Raises `InvalidInput` for an address with a password in it."""
    endpoint = environ.get("HF_ENDPOINT") or ""
    if "@" in endpoint.partition("://")[2].partition("/")[0]:
        raise InvalidInput(
            "HF_ENDPOINT has a password in it, which every user of the node could read", "set HF_TOKEN for it"
        )
    return [f"HF_ENDPOINT={endpoint}"] if endpoint else []


async def _watch_download(
    session: NodeSession, container_id: str, wanted: ModelDownload, progress: TransferReporter
) -> dict[str, Any]:
    """Follow the program's messages; return the last one that says how it ended."""
    last: dict[str, Any] = {}
    words: deque[str] = deque(maxlen=3)  # the last ones that are no message: an interpreter's own error
    progress.begin_item(f"model {wanted.source.repository}", None)
    try:
        async with aclosing(LogFeed(session, container_id).follow_lines()) as batches:
            async for lines in batches:
                for line in lines:
                    message = _parse_message(line.text)
                    if message is None:
                        words.append(line.text)
                        continue
                    _report_message(message, progress)
                    if "done" in message or "error" in message:
                        last = message
    except NodeError as error:
        raise type(error)(
            error.node, f"{error.message}; the download on {error.node} goes on", "the same command watches it again"
        ) from error
    if last:
        return last
    try:
        ended = await session.docker.inspect_container(container_id)
    except ContainerNotFound:
        return {"error": "stopped", "message": "its container was removed"}
    return {"error": "ended", "message": f"exit code {ended.exit_code}: {' '.join(words)}"}


def _parse_message(text: str) -> dict[str, Any] | None:
    try:
        data = load_json(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _report_message(message: Mapping[str, Any], progress: TransferReporter) -> None:
    total, at = message.get("total"), message.get("at", message.get("have"))
    if isinstance(total, int):
        progress.set_total(total)
    if isinstance(at, int):
        progress.report_progress(at)
    if message.get("done") and isinstance(total, int):
        progress.report_progress(total, is_last=True)


async def _remove_quietly(session: NodeSession, container_id: str) -> None:
    with suppress(ContainerNotFound):
        await session.docker.remove_container(container_id, force=True)


def explain_download_error(said: Mapping[str, Any], wanted: ModelDownload, node: str) -> SparkctlError:
    """Return the error of a download that ended without its model."""
    kind, words = str(said.get("error") or "ended"), sanitize_line(str(said.get("message") or ""))
    repository, again = wanted.source.repository, "the same command continues"
    page = f"https://huggingface.co/{repository}"
    match kind:
        case "gated":
            return OperationRefused(
                f"{repository} wants its terms accepted first", f"accept them on {page}, then set HF_TOKEN and {again}"
            )
        case "unauthorized" | "no-repository":
            return OperationRefused(
                f"the Hub has no {repository}, or shows it only with a token ({words})",
                f"check model.source in the profile; for a private or gated model see {page} and set HF_TOKEN",
            )
        case "no-revision":
            return OperationRefused(f"{repository} has no revision {wanted.source.revision}", "check model.source")
        case "nothing":
            return OperationRefused(f"{repository}: {words}", "set model.include in the profile")
        case "no-client":
            return OperationRefused(
                f"the image {wanted.profile.image} has no huggingface_hub to download with",
                f"on {node}: {_format_manual_download(wanted)}",
            )
        case "disk-full":
            return _build_disk_full(words, wanted, node)
        case "damaged":
            return OperationRefused(
                f"{repository} arrived damaged on {node}: {words}", "see the node's disk and memory; " + again
            )
    return NodeError(node, f"the download of {repository} on {node} broke off: {words}", again)


def _build_disk_full(words: str, wanted: ModelDownload, node: str) -> SparkctlError:
    try:
        room = json.loads(words)
        words = f"it needs {format_gib(room['missing'])}, {format_gib(room['free'])} are free, and {format_gib(_KEPT_FREE_BYTES)} must stay free"
    except (ValueError, KeyError, TypeError):
        pass
    return DiskFull(
        node, f"{node} has no room for {wanted.source.repository} in {wanted.parent}: {words}",
        f"on {node}: du -sh {shlex.quote(wanted.parent)}/*; docker system df",
    )  # fmt: skip


def _format_manual_download(wanted: ModelDownload) -> str:
    """Return the command that downloads the same by hand, with uv on the node."""
    words = ["uvx", "hf", "download", wanted.source.repository]
    words += ["--revision", wanted.source.revision] if wanted.source.revision else []
    words += [word for each in wanted.include for word in ("--include", each)]
    words += [word for each in wanted.profile.model.exclude for word in ("--exclude", each)]
    words += ["--cache-dir", wanted.parent] if wanted.is_cache else ["--local-dir", wanted.target]
    return shlex.join(words)
