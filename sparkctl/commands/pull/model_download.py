"""Downloads a model onto a node: a container there, of the profile's own image, runs `node/download.py`.

The container outlives this process and its connection; its log is the progress. The next `pull` of the same model finds it
by its label, and goes on watching.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from sparkctl.commands.start.missing_parts import list_wanted_names
from sparkctl.commands.start.start_preflight import format_making_hint
from sparkctl.commands.transfer.transfer_files import TransferReporter
from sparkctl.errors import (
    ContainerNameInUse,
    ContainerNotFound,
    DiskFull,
    DockerError,
    ImageNotFound,
    NodeError,
    OperationRefused,
    SparkctlError,
)
from sparkctl.logs.reader import LogFeed
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.missing_part import (
    KEPT_FREE_BYTES,
    SOURCE_FIELDS,
    DirectorySource,
    HubSource,
    MissingPart,
    ModelSource,
    UrlSource,
    parse_model_source,
)
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import load_json_map, sanitize_line
from sparkctl.model.text.units import format_gib, format_size
from sparkctl.node.download import PART_SUFFIX
from sparkctl.node.guard.daemon import LOADING_MARK, WAITING_PREFIX
from sparkctl.transport.hub_client import REFUSED_LOGIN_HINT, TOO_MANY_HINT, find_hub_token, get_hub_endpoint
from sparkctl.transport.node_connection import CommandResult
from sparkctl.transport.node_session import NodeSession

_MOUNTED_FOLDER = "/run/sparkctl"  # with the token, in the container
_MOUNTED_WAITING = "/run/sparkctl-waiting"  # with the mark that an engine loads, in the container
_COMMAND_TIMEOUT_SECONDS = 20.0
_IS_FOREIGN = 14  # exit code of `_PREPARE`
_RUNS_ALREADY = 15  # exit code of `_START_ON_NODE`
_REMOVE_FOLDER = 'rm -rf -- "/dev/shm/$1"'
_REMOVE_TOKENS = 'rm -rf -- "/dev/shm/$1" "/dev/shm/$1"-* "/dev/shm/$2"'
_START_SECONDS = 60.0  # seconds after which nobody starts a container any more that was created
_PREPARE = """set -e; umask 077
mkdir -p -- "$1"; [ -w "$1" ] || exit 13
id -u; id -g
# Where the guard leaves a mark while an engine loads its weights; another user's is not looked into.
w=/dev/shm/$3; mkdir -m 700 -- "$w" 2>/dev/null || :
[ -d "$w" ] && ! [ -L "$w" ] && [ -O "$w" ] && echo waiting
[ -n "$2" ] || exit 0
# Its name can be foretold: what another user put there, a folder or a link, gets no token.
cd -P /dev/shm; d=$(pwd -P)/$2; mkdir -m 700 -- "$d" 2>/dev/null || :
cd -P "$d" && [ "$(pwd -P)" = "$d" ] && [ -O . ] || exit 14
chmod 700 .; cat > token
"""
# Without a client in the image: what of the node can run the same program. A first line with its words, or nothing.
_FIND_CLIENT = """PATH=$HOME/.local/bin:$HOME/.cargo/bin:$PATH
is_enough() { "$1" -c "import sys; sys.version_info >= (3, 8) or sys.exit(1)${2:+; from $2 import HfApi}" 2>/dev/null; }
is_enough python3 "$1" && { command -v python3; exit; }
for tool in hf huggingface-cli; do
  found=$(command -v $tool) && python=$(head -n 1 "$found" | sed -n 's/^#! *\\([^ ]*python[^ ]*\\)$/\\1/p') || continue
  [ -n "$python" ] && is_enough "$python" "$1" && { echo "$python"; exit; }
done
found=$(command -v uv) && echo "$found run --no-project --quiet --with huggingface_hub python3"
"""
# One at a time looks at such folders, begins one or removes one: the lock of the directory itself leaves nothing behind.
_ALONE = "exec 9</dev/shm; flock 9; "
_IS_RUNNING = 'grep -qF "$d/program.py" "/proc/$(cat "$d/pid" 2>/dev/null)/cmdline" 2>/dev/null'
# A process of its own, which outlives the connection; its folder is in memory, for its user alone.
_START_ON_NODE = f"""{_ALONE}umask 077; d=/dev/shm/$1; request=$2 origin=$3 profile=$4; shift 4
{_IS_RUNNING} && exit {_RUNS_ALREADY}
set -e
rm -rf -- "$d"; mkdir -m 700 -- "$d"; printf '%s' "$origin" >"$d/origin"; printf '%s' "$profile" >"$d/profile"; cat >"$d/program.py"
HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_PROGRESS_BARS=1 setsid sh -c 'd=$1; shift; echo $$ >"$d/pid"; exec "$@"' sparkctl-download \
  "$d" "$@" "$d/program.py" "$request" >"$d/log" 2>&1 </dev/null 9<&- &
while ! [ -s "$d/pid" ]; do sleep 0.1; done
"""
# By its arguments: after a while its number may be another program's. Prints what it gets.
_IS_ON_NODE = f'd=/dev/shm/$1; {_IS_RUNNING} && cat "$d/origin"'
_STOP_ON_NODE = f'{_ALONE}{_IS_ON_NODE} >/dev/null && kill -s TERM -- "-$(cat "$d/pid")"; rm -rf -- "$d"'
_REMOVE_ENDED = f'{_ALONE}d=/dev/shm/$1; {_IS_RUNNING} || rm -rf -- "$d"'  # what runs is another, begun since
_FOLLOW_ON_NODE = """exec 3<&0; d=/dev/shm/$1
tail -n +1 -f --pid="$(cat "$d/pid")" "$d/log" & tail=$!
{ cat <&3; kill $tail; } >/dev/null 2>&1 &
wait $tail; kill $! 2>/dev/null
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDownload:
    """What to download and where. ``target`` is a path on the node; ``is_cache``: it is a folder of the Hub's cache.

    ``include``, ``exclude``: names of files, with ``*``; nothing included: what an engine reads. ``is_forced``: it goes on
    while an engine loads its weights there.
    """

    profile: Profile
    source: ModelSource
    target: str
    is_cache: bool
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    is_forced: bool = False

    @classmethod
    def from_part(cls, profile: Profile, part: MissingPart, directory: str | None, hint: str = "") -> ModelDownload:
        """Return the download of a missing model; ``directory``: of the node, it is copied from there.

        Raises `OperationRefused` where nothing says from where; ``hint``: another way, for its own hint.
        """
        source = None if part.source is None else parse_model_source(part.source)
        if directory is not None:
            hub = source if isinstance(source, HubSource) else HubSource("", None)
            source = DirectorySource(directory, hub.repository or None, hub.revision)
        if source is None:
            raise OperationRefused(
                f"where the {part.kind.value.replace('-', ' ')} of {profile.name} comes from is not known: {part.name} {part.reason} on {part.node}",
                (
                    format_making_hint(part.made_by)
                    if part.made_by is not None
                    else f"set {SOURCE_FIELDS[part.kind]} in the profile, for example hf:ORG/NAME"
                )
                + hint,
            )
        place = PurePosixPath(part.name)
        include, exclude = list_wanted_names(profile, part)
        if place.suffix == ".gguf":  # a file: its directory gets it, with its other parts
            place = place.parent
        return cls(
            profile=profile,
            source=source,
            target=str(place),
            include=include,
            exclude=exclude,
            is_cache=place.name.startswith("models--"),
        )

    @property
    def key(self) -> str:
        """What tells this download from others on the node: its directory, which only one at a time may write."""
        return hashlib.sha256(self.target.encode()).hexdigest()[:12]

    @property
    def origin(self) -> str:
        """What it gets, as one line: the source, and which files of it."""
        return " ".join((str(self.source), *self.include, *(f"-{each}" for each in self.exclude)))

    @property
    def title(self) -> str:
        """What it is, for its progress."""
        name = self.source.repository if isinstance(self.source, HubSource) else self.source
        return f"model {name}"

    @property
    def parent(self) -> str:
        """The directory that gets the model."""
        return str(PurePosixPath(self.target).parent)

    @property
    def name(self) -> str:
        """The name of its container; where it runs on the node itself, of its folder in memory."""
        return f"sparkctl-pull-{self.key}"

    @property
    def token_folders(self) -> str:
        """How the names of the folders in memory begin that hold the token, of each attempt, until it was read."""
        return f"sparkctl-token-{self.key}"

    @property
    def waiting_folder(self) -> str:
        """The name of the folder in memory where the guard says that an engine loads its weights."""
        return f"{WAITING_PREFIX}{self.key}"

    def build_request(self, token_file: str | None, waiting: str | None) -> dict[str, Any]:
        """Return the argument of the program on the node. ``waiting``: where it sees `waiting_folder`."""
        match self.source:
            case HubSource(repository, revision):
                origin: dict[str, Any] = {"repo": repository, "revision": revision}
            case UrlSource(url, sha256):
                origin = {"url": url, "sha256": sha256}
            case DirectorySource(path, name, revision):
                origin = {"directory": path, "repo": name, "revision": revision}
        return {
            **origin, "target": self.target, "is_cache": self.is_cache, "include": self.include,
            "exclude": self.exclude, "token_file": token_file, "kept_free": KEPT_FREE_BYTES,
            "is_forced": self.is_forced, "loading_mark": waiting and f"{waiting}/{LOADING_MARK}",
        }  # fmt: skip


async def download_model(
    session: NodeSession, wanted: ModelDownload, environ: Mapping[str, str], progress: TransferReporter
) -> tuple[str, bool]:
    """Download a model, or watch the download that goes on there; return what was done, as a sentence, and whether it had
    begun before.

    Raises `SparkctlError`; a lost connection leaves the download at work.
    """
    container = await _find_running_download(session, wanted)
    on_node = None if container is not None else await _read_origin_on_node(session, wanted)
    other = on_node if container is None else container.get_label(ContainerLabel.DOWNLOAD_SOURCE)
    if container is not None or on_node is not None:
        _refuse_other_source(session, wanted, other)
    if on_node is not None:
        report = await _watch_on_node(session, wanted, progress)
    else:
        report = await _download_in_container(session, wanted, environ, progress, container)
        if report.get("error") in ("no-client", "no-python", "no-image") and (
            client := await _find_client(session, wanted)
        ):
            await _start_on_node(session, wanted, environ, client)
            report = await _watch_on_node(session, wanted, progress)
    if report.get("done"):
        amount = f"{report.get('files')} files, {format_size(int(report.get('total') or 0))}"
        proof = ", each verified with the Hub's checksum" if isinstance(wanted.source, HubSource) else ""
        return f"{wanted.source} is in {wanted.target}: {amount}{proof}", container is not None or on_node is not None
    raise explain_download_error(report, wanted, session.node.name)


def _refuse_other_source(session: NodeSession, wanted: ModelDownload, other: str | None) -> None:
    """Raise `OperationRefused` where the download into the same directory gets something else."""
    if other != wanted.origin:
        raise OperationRefused(
            f"another download is running in {wanted.target} on {session.node.name}: {sanitize_line(other or 'not known')}",
            "wait for it, or end it: sparkctl pull PROFILE --stop",
        )


async def _download_in_container(
    session: NodeSession,
    wanted: ModelDownload,
    environ: Mapping[str, str],
    progress: TransferReporter,
    container: Container | None,
) -> dict[str, Any]:
    """Download it in a container, or watch the one that runs; return the message that says how it ended."""
    try:
        container_id = container.id if container is not None else await _start_download(session, wanted, environ)
    except ContainerNameInUse:  # another pull began it at the same moment
        container = await find_download(session, wanted)
        if container is None:
            raise
        _refuse_other_source(session, wanted, container.get_label(ContainerLabel.DOWNLOAD_SOURCE))
        container_id = container.id
    except ImageNotFound:  # it is not there yet, or nobody publishes it: the node itself may have what it takes
        return {"error": "no-image"}
    except DockerError as error:
        if "python3" not in error.message:  # its own words of a program that is not there
            raise
        return {"error": "no-python"}
    report = await _watch_container(session, container_id, wanted, progress)
    if report.get("error") == "stopped" and container is not None and await _is_whole(session, wanted):
        # The other pull saw the end and removed the container before we did: what is there is proved, not fetched again.
        container_id = await _start_download(session, wanted, environ)
        report = await _watch_container(session, container_id, wanted, progress)
    with suppress(ContainerNotFound):
        await session.docker.remove_container(container_id, force=True)
    await _remove_token_folders(session, wanted)
    return report


async def _run_script(session: NodeSession, script: str, name: str, *words: str, stdin: bytes = b"") -> CommandResult:
    """Run a shell script with these words; ``name``: under which it is listed on the node."""
    return await session.run(["sh", "-c", script, name, *words], stdin=stdin, timeout=_COMMAND_TIMEOUT_SECONDS)


async def _is_whole(session: NodeSession, wanted: ModelDownload) -> bool:
    """Tell whether the directory is there and nothing of a download that was ended; of the Hub's cache that is not known."""
    if wanted.is_cache:
        return False
    script = 'test -e "$1" && ! test -e "$2"'
    done = await _run_script(session, script, "sparkctl-is-whole", wanted.target, wanted.target + PART_SUFFIX)
    return done.status == 0


async def _read_origin_on_node(session: NodeSession, wanted: ModelDownload) -> str | None:
    """Return what a download gets that runs on the node itself into the same directory; None without one."""
    done = await _run_script(session, _IS_ON_NODE, "sparkctl-is-pulling", wanted.name)
    return done.stdout.decode("utf-8", "replace") if done.status == 0 else None


async def _find_client(session: NodeSession, wanted: ModelDownload) -> list[str] | None:
    """Return the words before the program that run it on the node, None if nothing there can."""
    module = "huggingface_hub" if isinstance(wanted.source, HubSource) else ""
    done = await _run_script(session, _FIND_CLIENT, "sparkctl-client", module)
    return shlex.split(done.stdout.decode("utf-8", "replace").partition("\n")[0]) or None


async def _start_on_node(
    session: NodeSession, wanted: ModelDownload, environ: Mapping[str, str], client: Sequence[str]
) -> None:
    """Start the program on the node itself, because the image has nothing that runs it. Raises `OperationRefused`."""
    folder, _, can_wait = await _prepare_node(session, wanted, environ)
    waiting = f"/dev/shm/{wanted.waiting_folder}" if can_wait else None  # noqa: S108
    request = json.dumps(wanted.build_request(f"/dev/shm/{folder}/token" if folder else None, waiting))  # noqa: S108
    endpoint = get_hub_endpoint(environ)
    words = [*(["env", f"HF_ENDPOINT={endpoint}"] if endpoint else []), *client]
    words = [wanted.name, request, wanted.origin, wanted.profile.name, *words]
    done = await _run_script(session, _START_ON_NODE, "sparkctl-start", *words, stdin=_read_program().encode())
    if done.status != 0 and folder:  # nobody reads its token
        await _run_script(session, _REMOVE_FOLDER, "sparkctl-download", folder)
    if done.status == _RUNS_ALREADY:  # another pull began it at the same moment
        if (other := await _read_origin_on_node(session, wanted)) is not None:
            _refuse_other_source(session, wanted, other)
    elif done.status != 0:
        why = sanitize_line(done.stderr.decode("utf-8", "replace").strip())
        raise OperationRefused(
            f"the download did not start on {session.node.name}: {why}", _format_manual_download(wanted)
        )


async def _watch_on_node(session: NodeSession, wanted: ModelDownload, progress: TransferReporter) -> dict[str, Any]:
    """Follow the program on the node to its end; return its last message."""
    last: dict[str, Any] = {}
    words: deque[str] = deque(maxlen=3)
    progress.begin_item(wanted.title, None)
    process = await session.link.start_process(["sh", "-c", _FOLLOW_ON_NODE, "sparkctl-follow", wanted.name])
    try:
        while line := await process.readline():
            last = _take_line(line.decode("utf-8", "replace").strip(), words, progress) or last
    except NodeError as error:
        raise _explain_lost_watch(error) from error
    finally:
        await process.release()
    if not last and await _read_origin_on_node(session, wanted) is not None:
        raise _explain_lost_watch(NodeError(session.node.name, "the log of the download ended", None))
    await _run_script(session, _REMOVE_ENDED, "sparkctl-download", wanted.name)
    await _remove_token_folders(session, wanted)
    return last or {"error": "ended", "message": " ".join(words)}


async def find_download(session: NodeSession, wanted: ModelDownload) -> Container | None:
    """Return the container of this download, None if there is none."""
    return next(
        (one for one in await session.docker.list_containers() if one.get_label(ContainerLabel.DOWNLOAD) == wanted.key),
        None,
    )


async def _find_running_download(session: NodeSession, wanted: ModelDownload) -> Container | None:
    """Return the container of this download where it is at work, paused or about to be started by another pull; remove one
    that has ended, or that nobody started within a minute.
    """
    waited = 0.0
    while (container := await find_download(session, wanted)) is not None:
        if container.state is not ContainerState.CREATED or waited >= _START_SECONDS:
            break
        identity = (await session.read_node("identity")).identity
        if identity is not None and identity.clock is not None and identity.clock - container.created > _START_SECONDS:
            break
        await session.clock.sleep(1.0)
        waited += 1.0
    ended = (ContainerState.CREATED, ContainerState.EXITED, ContainerState.DEAD)
    if container is None or container.state not in ended:
        return container
    with suppress(ContainerNotFound):
        await session.docker.remove_container(container.id)
    return None


async def stop_download(session: NodeSession, wanted: ModelDownload) -> bool:
    """End a download; what has arrived stays. Return whether there was one."""
    if (container := await find_download(session, wanted)) is not None:
        await session.docker.remove_container(container.id, force=True)
    elif await _read_origin_on_node(session, wanted) is not None:
        await _run_script(session, _STOP_ON_NODE, "sparkctl-stop", wanted.name)
    else:
        return False
    await _remove_token_folders(session, wanted)
    return True


async def refuse_missing_directory(session: NodeSession, source: DirectorySource) -> None:
    """Raise `OperationRefused` where the node does not have the directory that a model shall be copied from."""
    there = await session.run(["test", "-d", source.path], timeout=_COMMAND_TIMEOUT_SECONDS)
    if there.status != 0:
        node = session.node.name
        raise OperationRefused(f"{node} has no directory {source.path}", f"on {node}: ls {shlex.quote(source.path)}")


async def refuse_full_disk(session: NodeSession, wanted: ModelDownload, size: int, free: int | None) -> None:
    """Raise `DiskFull` where the disk cannot hold a model of that many bytes; one that has begun to arrive needs fewer,
    which the program on the node counts.
    """
    if free is None or size + KEPT_FREE_BYTES <= free:
        return
    words = ["ls", "-d", wanted.target, wanted.target + PART_SUFFIX]
    if not (await session.run(words, timeout=_COMMAND_TIMEOUT_SECONDS)).stdout:
        raise _build_disk_full(json.dumps({"missing": size, "free": free}), wanted, session.node.name)


async def _prepare_node(
    session: NodeSession, wanted: ModelDownload, environ: Mapping[str, str]
) -> tuple[str, list[str], bool]:
    """Make the directory, a folder with the token, of this attempt alone, and one for the guard's mark; return the name of
    that with the token, the ids of the user, and whether that for the mark is there.
    """
    node, parent = session.node.name, wanted.parent
    token = find_hub_token(environ) if isinstance(wanted.source, HubSource) else None
    if isinstance(wanted.source, DirectorySource):
        await refuse_missing_directory(session, wanted.source)  # a mount of it would make it
    folder = f"{wanted.token_folders}-{secrets.token_hex(4)}" if token else ""
    words = (parent, folder, wanted.waiting_folder)
    done = await _run_script(session, _PREPARE, "sparkctl-download", *words, stdin=(token or "").encode())
    ids = done.stdout.decode("utf-8", "replace").split()
    if done.status == _IS_FOREIGN:
        raise OperationRefused(
            f"another user of {node} made /dev/shm/{folder}: your token for the Hub is not put there",
            f"on {node}: ls -ld /dev/shm/{folder}; sudo rm -r /dev/shm/{folder}",
        )
    if done.status != 0 or len(ids) < 2:
        why = sanitize_line(done.stderr.decode("utf-8", "replace").strip()) or "no permission to write"
        raise OperationRefused(
            f"the model cannot be stored in {parent} on {node}: {why}",
            f"on {node}: sudo mkdir -p {shlex.quote(parent)} && sudo chown $USER {shlex.quote(parent)}",
        )
    return folder, ids[:2], ids[2:] == ["waiting"]


def _read_program() -> str:
    return (Path(__file__).parents[2] / "node" / "download.py").read_text()


async def _start_download(session: NodeSession, wanted: ModelDownload, environ: Mapping[str, str]) -> str:
    parent, endpoint = wanted.parent, get_hub_endpoint(environ)
    folder, words, can_wait = await _prepare_node(session, wanted, environ)
    binds = [f"{parent}:{parent}"]
    if isinstance(wanted.source, DirectorySource) and wanted.source.path != parent:
        binds.insert(0, f"{wanted.source.path}:{wanted.source.path}:ro")
    if folder:
        binds.append(f"/dev/shm/{folder}:{_MOUNTED_FOLDER}")  # noqa: S108 - in memory, for its user alone
    if can_wait:
        binds.append(f"/dev/shm/{wanted.waiting_folder}:{_MOUNTED_WAITING}:ro")  # noqa: S108
    request = wanted.build_request(
        f"{_MOUNTED_FOLDER}/token" if folder else None, _MOUNTED_WAITING if can_wait else None
    )
    body: dict[str, object] = {
        "Image": wanted.profile.image,
        "Entrypoint": ["python3"],
        "Cmd": ["-u", "-c", _read_program(), json.dumps(request)],
        "User": ":".join(words),
        "WorkingDir": "/tmp",  # noqa: S108  # the container's own
        "Env": [
            "HOME=/tmp",
            "HF_HUB_DISABLE_TELEMETRY=1",
            "HF_HUB_DISABLE_PROGRESS_BARS=1",
            *([f"HF_ENDPOINT={endpoint}"] if endpoint else []),
        ],
        "Labels": {
            ContainerLabel.DOWNLOAD: wanted.key,
            ContainerLabel.DOWNLOAD_SOURCE: wanted.origin,
            ContainerLabel.PROFILE: wanted.profile.name,
        },
        "HostConfig": {"Binds": binds, "NetworkMode": "host", "CpuShares": 128},
    }
    # Docker goes on making it where we are cancelled meanwhile: only then it is known what has to go again.
    creating = asyncio.ensure_future(session.docker.create_from_body(wanted.name, body))
    try:
        container_id = await asyncio.shield(creating)
        await session.docker.start_container(container_id)
    except BaseException:  # what this attempt made goes again, and nothing of another pull's
        is_gone = await _remove_unstarted(session, creating)
        if folder and is_gone:  # else it runs, or may run: it reads the token
            with suppress(NodeError, DockerError):
                await _run_script(session, _REMOVE_FOLDER, "sparkctl-download", folder)
        raise
    return container_id


async def _remove_unstarted(session: NodeSession, creating: asyncio.Future[str]) -> bool:
    """Remove a container, unless Docker has started it meanwhile; return whether it is certainly gone."""
    try:
        container_id = await creating
    except (NodeError, DockerError):  # there is none
        return True
    try:
        await session.docker.remove_container(container_id)
    except ContainerNotFound:
        return True
    except (NodeError, DockerError):
        return False
    return True


async def _remove_token_folders(session: NodeSession, wanted: ModelDownload) -> None:
    """Remove what held the token in memory, which a download that broke off before it read it has left there, and the
    guard's mark.
    """
    await _run_script(session, _REMOVE_TOKENS, "sparkctl-download", wanted.token_folders, wanted.waiting_folder)


async def _watch_container(
    session: NodeSession, container_id: str, wanted: ModelDownload, progress: TransferReporter
) -> dict[str, Any]:
    """Follow the program's messages; return the last one that says how it ended."""
    last: dict[str, Any] = {}
    words: deque[str] = deque(maxlen=3)  # the last ones that are no message: an interpreter's own error
    progress.begin_item(wanted.title, None)
    try:
        async with aclosing(LogFeed(session, container_id).follow_lines()) as batches:
            async for lines in batches:
                for line in lines:
                    last = _take_line(line.text, words, progress) or last
    except ContainerNotFound:  # another pull saw its end first
        pass
    except NodeError as error:
        raise _explain_lost_watch(error) from error
    if last:
        return last
    try:
        ended = await session.docker.inspect_container(container_id)
    except ContainerNotFound:
        return {"error": "stopped", "message": "its container was removed"}
    return {"error": "ended", "message": f"exit code {ended.exit_code}: {' '.join(words)}"}


def _take_line(text: str, words: deque[str], progress: TransferReporter) -> dict[str, Any]:
    """Report a message of the program; return it if it says how the download ended. Other lines go into ``words``."""
    message = load_json_map(text)
    if message is None:
        words.append(text)
        return {}
    _report_message(message, progress)
    return message if "done" in message or "error" in message else {}


def _explain_lost_watch(error: NodeError) -> NodeError:
    return type(error)(
        error.node, f"{error.message}; the download on {error.node} continues", "repeat the command to watch it again"
    )


def _report_message(message: Mapping[str, Any], progress: TransferReporter) -> None:
    total, at = message.get("total"), message.get("at", message.get("have"))
    if isinstance(total, int):
        progress.set_total(total)
    if isinstance(have := message.get("have"), int):
        progress.set_present(have)
    if isinstance(at, int):
        progress.report_progress(at)
    if message.get("held") is True:
        progress.warn(
            "the download waits while an engine loads its weights there", "download at the same time: --force"
        )
    if message.get("done") and isinstance(total, int):
        progress.report_progress(total, is_last=True)


def explain_download_error(report: Mapping[str, Any], wanted: ModelDownload, node: str) -> SparkctlError:
    """Return the error of a download that ended without its model."""
    kind, words = str(report.get("error") or "ended"), sanitize_line(str(report.get("message") or ""))
    repository, again = str(wanted.source).removeprefix("hf:").partition("@")[0], "repeat the command to continue"
    if not isinstance(wanted.source, HubSource) and kind in ("unauthorized", "nothing", "refused"):
        return OperationRefused(f"{wanted.source} was not fetched: {words}", "check model.source in the profile")
    page = f"https://huggingface.co/{repository}"
    match kind:
        case "gated":
            return OperationRefused(
                f"the terms of {repository} must be accepted first ({words})",
                f"accept them on {page}, then set HF_TOKEN and {again}; a fine-grained token needs the right to read gated repositories",
            )
        case "bad-token":
            return OperationRefused(f"the Hub refuses the token ({words})", f"{REFUSED_LOGIN_HINT}, then {again}")
        case "too-many":
            return NodeError(node, f"the Hub has had too many requests ({words})", f"{TOO_MANY_HINT}, then {again}")
        case "place":
            return OperationRefused(
                f"{wanted.source} cannot be stored in {wanted.target} on {node}: {words}",
                f"on {node}: ls -ld {shlex.quote(wanted.target)}; a link must lead to a place below a directory that the "
                "profile mounts",
            )
        case "unauthorized" | "no-repository":
            return OperationRefused(
                f"the Hub has no {repository}, or shows it only with a token ({words})",
                f"check model.source in the profile; for a private or gated model see {page} and set HF_TOKEN",
            )
        case "no-revision":
            return OperationRefused(
                f"{repository} has no revision {str(wanted.source).partition('@')[2]}", "check model.source"
            )
        case "nothing":
            return OperationRefused(f"{repository}: {words}", "set model.include in the profile")
        case "no-client" | "no-python" | "no-image":
            lacking = {
                "no-client": "has no huggingface_hub",
                "no-python": "has no python3",
                "no-image": "is not there",
            }[kind]
            return OperationRefused(
                f"the image {wanted.profile.image} {lacking} to download with",
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
        words = f"it needs {format_gib(room['missing'])}, {format_gib(room['free'])} are free, and {format_gib(KEPT_FREE_BYTES)} must stay free"
    except (ValueError, KeyError, TypeError):
        pass
    return DiskFull(
        node,
        f"{node} has no room for {wanted.source} in {wanted.parent}: {words}",
        f"on {node}: du -sh {shlex.quote(wanted.parent)}/*; docker system df",
    )


def _format_manual_download(wanted: ModelDownload) -> str:
    """Return the command that downloads the same by hand, with uv on the node."""
    match wanted.source:
        case UrlSource(url):
            return shlex.join(["curl", "-fL", "-C", "-", "--create-dirs", "-O", "--output-dir", wanted.target, url])
        case DirectorySource(path):
            return shlex.join(["cp", "-rLn", path, wanted.target])
    words = ["uvx", "hf", "download", wanted.source.repository]
    words += ["--revision", wanted.source.revision] if wanted.source.revision else []
    words += [word for each in wanted.include for word in ("--include", each)]
    words += [word for each in wanted.exclude for word in ("--exclude", each)]
    words += ["--cache-dir", wanted.parent] if wanted.is_cache else ["--local-dir", wanted.target]
    return shlex.join(words)
