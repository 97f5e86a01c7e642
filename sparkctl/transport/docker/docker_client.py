"""Client of one node's Docker Engine, over a raw channel (fast to start); downloads go through the docker SDK.

Beside it, a directory as the context of `docker build`: the same files give the same archive and the same hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from sparkctl.errors import DockerBusy, DockerError, DockerUnavailable, InvalidInput, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.launch_plan import DockerRunSpec, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json
from sparkctl.transport import http_client
from sparkctl.transport.docker import create_request, docker_responses
from sparkctl.transport.docker.create_request import build_create_request
from sparkctl.transport.docker.docker_errors import (
    DOCKER_SOCKET,
    error_for_response,
    no_response_error,
    unkillable_error,
)
from sparkctl.transport.docker.docker_responses import DockerInfo, ImageInfo, StoredImage
from sparkctl.transport.node_connection import NodeConnection

if TYPE_CHECKING:
    import tarfile

    from docker import APIClient


MAX_API_VERSION = (1, 51)  # the newest version that we use
READ_TIMEOUT_SECONDS = 10.0
# bytes: a list of a thousand containers has a quarter of that; decoding more blocks the event loop
MAX_ANSWER_BYTES = 8 << 20
CHANGE_TIMEOUT_SECONDS = 60.0
_STOP_MARGIN_SECONDS = 20.0  # time for a stop beyond its grace period
_HTTP_NOT_MODIFIED, _HTTP_NOT_FOUND = 304, 404  # 304: it runs already, or has ended already
# Seconds after a container's end until which its events are read: a busy Docker writes them late, and answers when the time has come.
_EVENT_DELAYS = (1, 5)
_PULL_SILENCE_SECONDS = (
    600.0  # seconds without a word while an image comes: Docker says nothing while it checks a layer
)


def preload_docker_sdk() -> None:
    """Import the SDK in a thread while the nodes are read: it saves the first download a tenth of a second."""
    asyncio.get_running_loop().run_in_executor(None, import_module, "docker")


class DockerClient:
    """Calls to one Engine. Each has a time limit, as nothing else shows a hanging daemon.

    All raise `DockerError` and its subclasses, and `ConnectionLost` if the connection to the node breaks.
    """

    def __init__(self, link: NodeConnection) -> None:
        self._link = link
        self._api: str | None = None

    @property
    def node_name(self) -> str:
        return self._link.node.name

    async def ping(self) -> str:
        """Return the API version to use: the daemon's, or ours if the daemon's is newer."""
        answer = await self._send_get("/_ping")
        if not answer.is_success:
            raise error_for_response(self.node_name, answer.status, answer.body.decode("utf-8", "replace"))
        self._api = negotiate_api_version(answer.get_header("api-version"))
        return self._api

    async def read_info(self) -> DockerInfo:
        """Return the Engine's own description."""
        data = await self._read_object("/info")
        return docker_responses.parse_info(data, await self.api_version())

    async def list_containers(self) -> tuple[Container, ...]:
        """Return all containers, ours and foreign, running or not."""
        data = await self._read_json("/containers/json?all=1")
        if not isinstance(data, list):  # unknown is not empty
            raise self._unexpected_answer_error()
        return tuple(docker_responses.parse_container_entry(entry) for entry in data if isinstance(entry, dict))

    async def inspect_container(self, ref: str) -> Container:
        """Return everything about one container, by id or name. Raises ContainerNotFound."""
        return docker_responses.parse_container(await self._read_object(f"/containers/{quote(ref, safe='')}/json"))

    async def find_stop_signals(self, container: Container) -> tuple[int, ...] | None:
        """Return the signals that Docker was asked to send to a container, in order; empty if there were none.

        None if not known: Docker remembers a few hundred events, and forgets them when it restarts.
        """
        if container.started is None or container.finished is None:
            return None
        wanted = quote(json.dumps({"type": ["container"], "container": [container.id], "event": ["kill", "die"]}))
        signals = None
        for late in _EVENT_DELAYS:
            span = f"since={int(container.started)}&until={int(container.finished) + late}"
            answer = await self._send_get(f"/v{await self.api_version()}/events?{span}&filters={wanted}")
            signals = docker_responses.find_stop_signals(answer.body) if answer.is_success else None
            if signals is not None:
                break
        return signals

    async def read_secret_values(self, ref: str) -> frozenset[str]:
        """Return the secret values in a container's environment and command, for masking its output."""
        data = await self._read_object(f"/containers/{quote(ref, safe='')}/json")
        return docker_responses.parse_secret_values(data)

    async def read_run_options(self, ref: str) -> DockerRunSpec:
        """Return a container's options, without those from its image. Raises ContainerNotFound."""
        data = await self._read_object(f"/containers/{quote(ref, safe='')}/json")
        answer = await self._send_get(
            f"/v{await self.api_version()}/images/{quote(create_request.get_image_id(data), safe=':')}/json"
        )
        return create_request.parse_docker_run(
            data, None if answer.status == _HTTP_NOT_FOUND else self._decode_object(answer)
        )

    async def read_extra_options(self, ref: str) -> tuple[tuple[str, str], ...]:
        """Return a container's options without a field in `DockerRunSpec`, as docker run flags with values."""
        return create_request.parse_extra_options(await self._read_object(f"/containers/{quote(ref, safe='')}/json"))

    async def get_json(self, path: str) -> object:
        """Return the decoded answer to ``GET path``, secrets included: the caller must mask it."""
        return await self._read_json(path)

    async def inspect_image(self, name: str) -> ImageInfo | None:
        """Return the image with this name or id, None if it is not on the node."""
        answer = await self._send_get(f"/v{await self.api_version()}/images/{quote(name, safe='/:@')}/json")
        if answer.status == _HTTP_NOT_FOUND:
            return None
        return docker_responses.parse_image(self._decode_object(answer))

    async def list_images(self) -> tuple[StoredImage, ...]:
        """Return all images, also those without a name."""
        data = await self._read_json("/images/json")
        if not isinstance(data, list):  # unknown is not empty
            raise self._unexpected_answer_error()
        return tuple(docker_responses.parse_image_entry(entry) for entry in data if isinstance(entry, dict))

    async def remove_image(self, ref: str) -> None:
        """Take away one name of an image; with its last name it goes. Raises `DockerError` if a container uses it."""
        await self._send_change("DELETE", f"/images/{quote(ref, safe='/:')}")

    async def create_container(self, plan: LaunchPlan) -> str:
        """Create the plan's container, not started; return its id.

        Raises ContainerNameInUse, ImageNotFound, DiskFull. After ConnectionLost it may or may not exist: check by its labels.
        """
        return await self.create_from_body(plan.container_name, build_create_request(plan))

    async def create_from_body(self, name: str, body: create_request.Body) -> str:
        """Create a container from Docker's own JSON; raises as `rank_start`."""
        answer = await self._send_change("POST", f"/containers/create?name={quote(name)}", json.dumps(body).encode())
        return str(self._decode_object(answer).get("Id"))

    async def pull_image(
        self, name: str, platform: str, login: Mapping[str, str] | None, report: Callable[[dict[str, object]], None]
    ) -> None:
        """Download an image from its registry; ``report`` gets each of Docker's progress messages.

        ``login``: username and password, or an identity token, of the registry; None: without. Cancelled, it ends the
        download; layers that are whole stay. Raises `DockerError` with what the registry or Docker says.
        """
        loop, is_over = asyncio.get_running_loop(), threading.Event()
        repository, _, tag = name.partition("@") if "@" in name else _split_tag(name)

        def pull(api: APIClient) -> None:
            messages = api.pull(
                repository,
                tag,
                stream=True,
                decode=True,
                platform=platform,
                auth_config=dict(login) if login else None,
            )
            for message in messages:
                if is_over.is_set():
                    return
                if isinstance(message, dict) and message.get("error"):
                    raise error_for_response(self.node_name, 0, str(message["error"]))
                loop.call_soon_threadsafe(report, message if isinstance(message, dict) else {})

        try:
            await self._call_sdk(pull, limit=_PULL_SILENCE_SECONDS)
        finally:
            is_over.set()

    async def start_container(self, ref: str) -> None:
        """Start a created container. Raises GpuRuntimeMissing, PortInUse, DiskFull; it then stays in state created."""
        await self._change_container(ref, "start")

    async def stop_container(self, ref: str, grace: float) -> None:
        """Stop a container; kill it after ``grace`` seconds. A container that has ended already is no error.

        Raises ContainerUnkillable if it does not end even then.
        """
        seconds = max(0, round(grace))
        try:
            await self._change_container(ref, f"stop?t={seconds}", seconds + _STOP_MARGIN_SECONDS)
        except DockerBusy as busy:
            raise unkillable_error(
                self.node_name, f"no answer to its stop within {seconds + _STOP_MARGIN_SECONDS:g} s"
            ) from busy

    async def signal_container(self, ref: str, name: str) -> None:
        """Send a signal to a container's first process. Raises `DockerError` where it does not run."""
        await self._change_container(ref, f"kill?signal={name}")

    async def rename_container(self, ref: str, name: str) -> None:
        """Give a container another name. Raises ContainerNameInUse, ContainerNotFound."""
        await self._change_container(ref, f"rename?name={quote(name)}")

    async def remove_container(self, ref: str, force: bool = False) -> None:
        """Remove a container with its log; with ``force``, also a running one. A removal in progress is no error."""
        try:
            await self._send_change("DELETE", f"/containers/{quote(ref, safe='')}?force={int(force)}")
        except DockerError as error:
            if "already in progress" not in error.message:
                raise

    async def api_version(self) -> str:
        """Return the API version, negotiated once."""
        return self._api if self._api is not None else await self.ping()

    async def _read_object(self, path: str) -> docker_responses.Json:
        return self._decode_object(await self._send_get(f"/v{await self.api_version()}{path}"))

    async def _read_json(self, path: str) -> object:
        return self._decode_answer(await self._send_get(f"/v{await self.api_version()}{path}"))

    async def _send_get(self, path: str) -> http_client.HttpResponse:
        try:
            return await http_client.request_unix(
                self._link, DOCKER_SOCKET, "GET", path, timeout=READ_TIMEOUT_SECONDS, largest=MAX_ANSWER_BYTES
            )
        except TimeoutError as error:
            raise no_response_error(self.node_name, READ_TIMEOUT_SECONDS) from error
        except http_client.InvalidHttpResponse as error:
            raise DockerUnavailable(
                self.node_name, f"Docker on {self.node_name} broke off: {error.message}", _STATUS_HINT
            ) from error

    def _explain_refusal(self, status: int, body: str) -> DockerError:
        if "client version" in body:  # Docker was replaced meanwhile by one that does not speak this version
            self._api = None
        return error_for_response(self.node_name, status, body)

    def _decode_answer(self, answer: http_client.HttpResponse) -> object:
        if not answer.is_success:
            raise self._explain_refusal(answer.status, answer.body.decode("utf-8", "replace"))
        try:
            return load_json(answer.body.decode("utf-8", "replace"))
        except ValueError as error:
            raise DockerError(self.node_name, f"Docker on {self.node_name} answered with broken JSON") from error

    def _decode_object(self, answer: http_client.HttpResponse) -> docker_responses.Json:
        data = self._decode_answer(answer)
        if not isinstance(data, dict):
            raise self._unexpected_answer_error()
        return data

    def _unexpected_answer_error(self) -> DockerError:
        return DockerError(
            self.node_name,
            f"Docker on {self.node_name} answered with something unexpected",
            "see on the node whether it is Docker that answers there: docker version",
        )

    async def _change_container(self, ref: str, action: str, limit: float = CHANGE_TIMEOUT_SECONDS) -> None:
        await self._send_change("POST", f"/containers/{quote(ref, safe='')}/{action}", limit=limit)

    async def _send_change(
        self, method: str, path: str, body: bytes = b"", limit: float = CHANGE_TIMEOUT_SECONDS
    ) -> http_client.HttpResponse:
        """Send a change and return the answer. Raises Docker's refusal, and why it does not answer."""
        whole = f"/v{await self.api_version()}{path}"
        try:
            answer = await http_client.request_unix(
                self._link, DOCKER_SOCKET, method, whole, body=body, timeout=limit, largest=MAX_ANSWER_BYTES
            )
        except TimeoutError as error:
            raise await self._explain_timeout(limit) from error
        except http_client.InvalidHttpResponse as error:
            raise await self._explain_broken_call(error.message) from error
        if not answer.is_success and answer.status != _HTTP_NOT_MODIFIED:
            raise self._explain_refusal(answer.status, answer.body.decode("utf-8", "replace"))
        return answer

    async def _call_sdk(self, call: Callable[[APIClient], None], limit: float) -> None:
        """Run one SDK call in a thread, because it blocks, with its own client, as that is not documented as thread-safe."""
        import docker  # imported late: it takes a tenth of a second
        import docker.errors
        import requests.exceptions
        import urllib3.exceptions

        version = await self.api_version()
        path = await self._link.docker_socket()

        def run_call() -> None:
            client = docker.APIClient(base_url=f"unix://{path}", version=version, timeout=max(1, round(limit)))
            try:
                call(client)
            finally:
                client.close()

        try:
            await asyncio.to_thread(run_call)
        except docker.errors.APIError as error:
            raise self._explain_refusal(error.status_code or 0, str(error.explanation or error)) from error
        except requests.exceptions.Timeout as error:
            raise await self._explain_timeout(limit) from error
        except (  # in the middle of a stream the errors of urllib3 come as they are
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            docker.errors.DockerException,
            OSError,
        ) as error:
            raise await self._explain_broken_call(str(error)) from error

    async def _explain_timeout(self, limit: float) -> SparkctlError:
        """Return the error for a timeout: check whether the daemon hangs, or only this call."""
        try:
            await self.ping()
        except SparkctlError:
            return no_response_error(self.node_name, limit)
        what = f"Docker on {self.node_name} answers, but did not get this done within {limit:g} s"
        return DockerBusy(self.node_name, what, "on the node: sudo journalctl -u docker -u containerd -n 50")

    async def _explain_broken_call(self, words: str) -> SparkctlError:
        """Return the error for a call that broke off: check the socket again."""
        try:
            await self.ping()
        except SparkctlError as reason:
            return reason
        return DockerUnavailable(
            self.node_name, f"Docker on {self.node_name} broke off in the middle: {words}", _STATUS_HINT
        )


_STATUS_HINT = "on the node: sudo systemctl status docker"


def negotiate_api_version(offered: str | None) -> str:
    """Return the lower of the daemon's API version and ours."""
    try:
        major, _, minor = (offered or "").partition(".")
        theirs = (int(major), int(minor))
    except ValueError:
        theirs = MAX_API_VERSION
    chosen = min(theirs, MAX_API_VERSION)
    return f"{chosen[0]}.{chosen[1]}"


def _split_tag(name: str) -> tuple[str, str, str]:
    """Return repository, colon and tag of an image's name; Docker's default is ``latest``."""
    repository, colon, tag = name.rpartition(":")
    return (repository, colon, tag) if colon and "/" not in tag else (name, ":", "latest")


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
    import tarfile
    import tempfile

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
    import tarfile

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
