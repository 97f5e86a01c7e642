"""The simulated Docker Engine: the daemon that runs containers and downloads images and models, and the part of its HTTP API
that sparkctl uses, with Docker's messages and status codes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from sparkctl.engines.simulation.engine_launch import list_model_files
from sparkctl.engines.simulation.rank_network import RankNetwork
from sparkctl.engines.simulation.script_player import ExitStep
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.simulator.engine_process import EngineProcess
from sparkctl.simulator.http_server import ReadStream, RequestHandler, SimHttpReply, SimHttpRequest, build_json_reply
from sparkctl.simulator.sim_container import STREAM_NUMBERS, JsonBody, LogQuery, SimContainer, parse_nanoseconds
from sparkctl.simulator.sim_node import IMAGE_BYTES, KERNEL_VERSION, ByteSink, NodeFault, SimNode

BYTES_PER_SECOND = 300e6  # bytes/s, a good line
_PACKED_BYTES = 9 << 30  # bytes of an image as its registry keeps it
_LAYER_SHARES = (0.02, 0.08, 0.55, 0.3, 0.05)
_TICK_SECONDS = 2.0
_BUILD_STEP_SECONDS = 20.0
_HELD_SECONDS = 15.0


async def pull_layers(node: SimNode, name: str, tag: str) -> AsyncIterator[bytes]:
    """Yield what Docker says while it pulls an image; at the end the image exists."""
    layers = [
        (hashlib.sha256(f"{name} {at}".encode()).hexdigest()[:12], int(share * _PACKED_BYTES))
        for at, share in enumerate(_LAYER_SHARES)
    ]
    yield _encode({"status": f"Pulling from {name.partition(':')[0]}", "id": tag})
    yield b"".join(_encode({"status": "Pulling fs layer", "progressDetail": {}, "id": layer}) for layer, _ in layers)
    with node.count_arrival():
        for layer, size in layers:
            done = 0
            while done < size:
                await node.pace.sleep(_TICK_SECONDS)
                done = min(size, done + int(BYTES_PER_SECOND * _TICK_SECONDS))
                detail = {"current": done, "total": size}
                yield _encode({"status": "Downloading", "progressDetail": detail, "id": layer})
            yield _encode({"status": "Download complete", "progressDetail": {}, "id": layer})
            yield _encode({"status": "Pull complete", "progressDetail": {}, "id": layer})
    node.images.add_image(name, "sha256:" + hashlib.sha256(name.encode()).hexdigest())
    yield _encode({"status": f"Status: Downloaded newer image for {name}"})


def build_registry_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as `node/registry.py` does: how large the image is that a pull brings."""
    if "missing" in f"{request['repository']}:{request['reference']}":
        return {"error": "not-found", "message": "HTTP 404"}
    size = sum(int(share * _PACKED_BYTES) for share in _LAYER_SHARES)
    return {"digest": None, "size": size, "unpacked": IMAGE_BYTES}


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\r\n"


_BUILD_STEPS = (
    "FROM nvidia/cuda:13.0.1-devel-ubuntu24.04",
    "RUN pip install --no-cache-dir vllm",
    "COPY patches /patches",
)


async def run_build(node: SimNode, words: Sequence[str], size: int, stdin: ReadStream, stdout: ByteSink) -> int:
    """Answer as the script that runs `docker build`: its steps, then how it ended; then the image exists."""
    while size > 0 and (taken := await stdin.read(min(size, 1 << 16))):
        size -= len(taken)
    with node.count_arrival():
        for at, step in enumerate(_BUILD_STEPS, 1):
            stdout.write(f"#{at + 4} [{at}/{len(_BUILD_STEPS)}] {step}\n".encode())
            await node.pace.sleep(_BUILD_STEP_SECONDS)
            stdout.write(f"#{at + 4} DONE {_BUILD_STEP_SECONDS:.1f}s\n".encode())
    given = dict(zip(words[::2], words[1::2], strict=False))
    name, label = given["--tag"], given["--label"]
    node.images.add_image(
        name, "sha256:" + hashlib.sha256(f"{name} {label}".encode()).hexdigest(), dict([label.split("=", 1)])
    )
    stdout.write(b"@@ ended 0\n")
    return 0


class SimDownload:
    """The one process of a container that downloads a model."""

    def __init__(self, node: SimNode, container: SimContainer) -> None:
        self.node, self.container = node, container
        self.pids = [node.spawn_process(container.id)]
        self.ready = asyncio.Event()
        self.ready.set()
        self._signal: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._held_until = 0.0

    @property
    def main_pid(self) -> int:
        return self.pids[0]

    @property
    def is_stopping(self) -> bool:
        """Tell whether it was asked to end."""
        return self._signal.done()

    def hold_back(self) -> None:
        """Send SIGUSR1: it waits for a quarter of a minute."""
        if not json.loads(self.container.command[-1]).get("is_forced"):
            self._held_until = self.node.clock.monotonic() + _HELD_SECONDS

    def terminate(self) -> None:
        """Send SIGTERM."""
        if not self._signal.done():
            self._signal.set_result(143)

    def kill(self) -> None:
        """Send SIGKILL."""
        if not self._signal.done():
            self._signal.set_result(137)

    async def run(self) -> ExitStep:
        """Download until it is whole, or a signal comes."""
        request = json.loads(self.container.command[-1])
        place, done, is_held = str(request["target"]), 0, False
        total = sum(int(line.split()[1]) for line in list_model_files(place) if line.startswith("file "))
        self._say(files=9, total=total, have=0, revision="0" * 40)
        while done < total:
            sleeping = asyncio.ensure_future(self.node.pace.sleep(_TICK_SECONDS))
            waiting: set[asyncio.Future[Any]] = {sleeping, self._signal}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._signal.done():
                sleeping.cancel()
                return ExitStep(self._signal.result())
            is_held, was_held = self.node.clock.monotonic() < self._held_until, is_held
            if is_held is not was_held:
                self._say(held=is_held)
            if is_held or self.container.state == "paused":
                continue
            done = min(total, done + int(BYTES_PER_SECOND * _TICK_SECONDS))
            self._say(at=done, total=total)
        self.node.downloaded.add(place)
        self._say(done=True, files=9, total=total, revision="0" * 40)
        return ExitStep(0)

    def _say(self, **message: object) -> None:
        self.container.journal.write(json.dumps(message) + "\n", "stdout")


SIGKILL_EXIT_CODE = 137
_MAX_PAST_EVENTS = 256  # events that a daemon remembers
GPU_RUNTIME_MISSING_MESSAGE = 'could not select device driver "" with capabilities: [[gpu]]'


class DockerApiError(Exception):
    """An error answer: a status code and Docker's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SimDockerDaemon:
    """The daemon of one node."""

    def __init__(self, node: SimNode, fabric: RankNetwork) -> None:
        self.node = node
        self.fabric = fabric
        self.containers: dict[str, SimContainer] = {}  # by id, oldest first
        node.containers = self.containers
        self.running: dict[str, EngineProcess | SimDownload] = {}
        self.start_seconds = 0.0  # how long it takes to start a container
        self._tasks: set[asyncio.Task[None]] = set()
        self._past_events: list[JsonBody] = []
        self._listeners: set[asyncio.Queue[JsonBody]] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self.visitors: Callable[[EngineProcess], Awaitable[None]] | None = (
            None  # callbacks for an engine that becomes ready
        )

    def hold_downloads_back(self) -> None:
        """Have every download wait, unless it was forced."""
        for process in self.running.values():
            if isinstance(process, SimDownload):
                process.hold_back()

    async def close(self) -> None:
        """End every process at once, as a power cut does."""
        while self._tasks:  # one that was about to end frees its memory in another task
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def find_container(self, key: str) -> SimContainer:
        """Return a container by name, id or the beginning of its id; 404 if there is none."""
        for one in self.containers.values():
            if key.lstrip("/") == one.name or key == one.id:
                return one
        begun = [one for one in self.containers.values() if one.id.startswith(key)]
        if len(begun) != 1:
            raise DockerApiError(404, f"No such container: {key}")
        return begun[0]

    def create_container(self, name: str | None, body: JsonBody) -> SimContainer:
        """Create a container; 404 if the image is missing, 409 if the name is taken."""
        image = str(body.get("Image", ""))
        if not self.node.images.has_image(image):
            raise DockerApiError(404, f"No such image: {image}")
        container_id = f"{self.node.random.getrandbits(256):064x}"
        name = name or f"quiet_spark_{container_id[:4]}"
        for other in self.containers.values():
            if other.name == name:
                raise DockerApiError(
                    409,
                    f'Conflict. The container name "/{name}" is already in use by container "{other.id}". '
                    "You have to remove (or rename) that container to be able to reuse that name.",
                )
        container = self.containers[container_id] = SimContainer(
            container_id, name, body, self.node.images.get_image_id(image), self.node.now_ns
        )
        self.publish_event("create", container)
        return container

    def start_container(self, container: SimContainer, ready_since: float | None = None) -> None:
        """Start it; with ``ready_since`` (seconds) as one that has been ready for that long."""
        if container.wants_gpu and not self.node.options.gpu_runtime:
            container.error = GPU_RUNTIME_MISSING_MESSAGE
            raise DockerApiError(500, GPU_RUNTIME_MISSING_MESSAGE)
        for port in container.published_ports:
            if port in self.node.ports:
                container.error = (
                    f"driver failed programming external connectivity on endpoint {container.name}: "
                    f"Bind for 0.0.0.0:{port} failed: port is already allocated"
                )
                raise DockerApiError(500, container.error)
        try:
            process = (
                SimDownload(self.node, container)
                if ContainerLabel.DOWNLOAD in container.labels
                else EngineProcess(self.node, container, self.fabric)
            )
        except ValueError as error:
            raise DockerApiError(500, f"the simulation cannot read this command: {error}") from error
        container.mark_started(process.main_pid)
        self.running[container.id] = process
        if container.host_config.get("IpcMode") == "host":
            self.node.remains.add_shared_memory(container.id, process.pids, self.node.unix_time())
        if ready_since is not None and isinstance(process, EngineProcess):
            process.start_as_running_since(ready_since)
        self._track_task(asyncio.ensure_future(self._wait_for_exit(container, process)))
        if self.visitors is not None and isinstance(process, EngineProcess):
            self._track_task(asyncio.ensure_future(self.visitors(process)))
        self.publish_event("start", container)

    async def _wait_for_exit(self, container: SimContainer, process: EngineProcess | SimDownload) -> None:
        try:
            ending = await process.run()
        finally:
            self.running.pop(container.id, None)
        if ending.oom_killed:
            self.publish_event("oom", container)
            self.node.log_oom_kill(process.main_pid, container.id)
        litters = ending.code == SIGKILL_EXIT_CODE and NodeFault.LITTERS in self.node.options.troubles
        self.node.remains.remove_shared_memory(container.id, litters=litters)
        container.mark_ended(ending.code, oom_killed=ending.oom_killed)
        self.publish_event("die", container)
        reaping = asyncio.ensure_future(self.node.end_processes(process.pids))
        self._track_task(reaping)
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)

    @property
    def is_busy(self) -> bool:
        """Tell whether something arrives, starts, stops, or is freeing its memory."""
        return bool(self._reaping or self.node.arrivals) or any(
            isinstance(one, SimDownload) or not one.ready.is_set() or one.is_stopping for one in self.running.values()
        )

    def _track_task(self, task: asyncio.Future[None]) -> None:
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)  # no TaskGroup: a container runs until its own end, or that of the daemon
        task.add_done_callback(self._tasks.discard)

    async def stop_container(self, container: SimContainer, grace: float) -> None:
        """SIGTERM, then SIGKILL after ``grace`` simulated seconds."""
        process = self.running.get(container.id)
        if process is None:
            return
        self.publish_event("kill", container, signal="15")
        process.terminate()
        try:
            await asyncio.wait_for(container.ended.wait(), grace / self.node.pace.speed / self.node.clock.rate)
        except TimeoutError:
            self.publish_event("kill", container, signal="9")
            process.kill()
            await container.ended.wait()

    def publish_event(self, action: str, container: SimContainer, **more: str) -> None:
        """Publish an event to all followers of /events, and keep it."""
        now = self.node.now_ns()
        attributes = {**container.labels, "image": container.image, "name": container.name, **more}
        if action == "die":
            attributes["exitCode"] = str(container.exit_code)
        event: JsonBody = {
            "Type": "container",
            "Action": action,
            "scope": "local",
            "status": action,
            "id": container.id,
        }
        event |= {"from": container.image, "Actor": {"ID": container.id, "Attributes": attributes}}
        event |= {"time": now // 1_000_000_000, "timeNano": now}
        self._past_events = [*self._past_events, event][-_MAX_PAST_EVENTS:]
        for queue in self._listeners:
            queue.put_nowait(event)

    def encode_past_events(self, container: str, actions: Sequence[str]) -> bytes:
        """Return a container's past events, one JSON object per line."""
        found = [event for event in self._past_events if event["id"] == container and event["Action"] in actions]
        return b"".join(json.dumps(event).encode() + b"\n" for event in found)

    async def stream_events(self) -> AsyncIterator[bytes]:
        """Yield events from now on, one JSON object per line."""
        queue: asyncio.Queue[JsonBody] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield json.dumps(await queue.get()).encode() + b"\n"
        finally:
            self._listeners.discard(queue)


DOCKER_VERSION, MIN_API_VERSION = "28.5.2", "1.24"
MAX_API_VERSION = (1, 51)
API_VERSION = ".".join(map(str, MAX_API_VERSION))
LOG_STREAM_TYPE = "application/vnd.docker.multiplexed-stream"
RouteHandler = Callable[[SimDockerDaemon, SimHttpRequest, str], Awaitable[SimHttpReply]]


def build_docker_api(daemon: SimDockerDaemon) -> RequestHandler:
    """Return the handler for the daemon's socket."""

    async def handle_request(request: SimHttpRequest) -> SimHttpReply:
        try:
            return await _dispatch_request(daemon, request)
        except DockerApiError as refusal:
            return build_json_reply({"message": str(refusal)}, refusal.status)

    return handle_request


async def _dispatch_request(daemon: SimDockerDaemon, request: SimHttpRequest) -> SimHttpReply:
    path = _strip_api_version(request.path)
    method = "GET" if request.method == "HEAD" else request.method
    for wanted, pattern, route in _ROUTES:
        match = pattern.fullmatch(path)
        if match and wanted == method:
            return await route(daemon, request, match[1] if pattern.groups else "")
    raise DockerApiError(404, "page not found")


def _strip_api_version(path: str) -> str:
    match = re.match(r"/v(\d+)\.(\d+)(?=/)", path)
    if match is None:
        return path
    if (int(match[1]), int(match[2])) > MAX_API_VERSION:
        given = f"{match[1]}.{match[2]}"
        raise DockerApiError(400, f"client version {given} is too new. Maximum supported API version is {API_VERSION}")
    return path[match.end() :]


async def _handle_ping(_daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
    headers = (
        ("Api-Version", API_VERSION),
        ("Ostype", "linux"),
        ("Docker-Experimental", "false"),
        ("Cache-Control", "no-cache"),
    )
    return SimHttpReply(body=b"OK", type="text/plain; charset=utf-8", headers=headers)


async def _handle_version(_daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
    words = {
        "Version": DOCKER_VERSION,
        "ApiVersion": API_VERSION,
        "MinAPIVersion": MIN_API_VERSION,
        "Os": "linux",
        "Arch": "arm64",
    }
    return build_json_reply(
        {"Platform": {"Name": "Docker Engine - Community"}, **words, "KernelVersion": KERNEL_VERSION, "Components": []}
    )


async def _handle_info(daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
    runtimes = {"runc": {"path": "runc"}}
    if daemon.node.options.gpu_runtime:
        runtimes["nvidia"] = {"path": "nvidia-container-runtime"}
    total = int(daemon.node.memory.format_meminfo().split(maxsplit=2)[1]) * 1024
    counts = [one.state for one in daemon.containers.values()]
    facts = {
        "Name": daemon.node.name,
        "ServerVersion": DOCKER_VERSION,
        "OperatingSystem": "Ubuntu 24.04.3 LTS",
        "OSType": "linux",
    }
    facts |= {
        "Architecture": "aarch64",
        "KernelVersion": KERNEL_VERSION,
        "Driver": "overlay2",
        "DockerRootDir": "/var/lib/docker",
    }
    numbers = {"NCPU": 20, "MemTotal": total, "Containers": len(counts), "ContainersRunning": counts.count("running")}
    more = {
        "Runtimes": runtimes,
        "DefaultRuntime": "runc",
        "CgroupVersion": "2",
        "LoggingDriver": "json-file",
        "Warnings": None,
    }
    return build_json_reply({"ID": daemon.node.boot_id, **facts, **numbers, **more})


async def _handle_list(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    wanted = (json.loads(request.query.get("filters") or "{}") or {}).get("label", [])
    chosen = [one for one in daemon.containers.values() if request.is_flag_set("all") or one.state == "running"]
    chosen = [one for one in chosen if all(_has_label(one, label) for label in wanted)]
    return build_json_reply([one.to_list_json() for one in reversed(chosen)])


def _has_label(container: SimContainer, wanted: str) -> bool:
    name, given, value = wanted.partition("=")
    return name in container.labels and (not given or container.labels[name] == value)


async def _handle_create(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    container = daemon.create_container(request.query.get("name"), request.parse_json_body())
    return build_json_reply({"Id": container.id, "Warnings": []}, 201)


async def _handle_inspect(daemon: SimDockerDaemon, _request: SimHttpRequest, key: str) -> SimHttpReply:
    return build_json_reply(daemon.find_container(key).to_inspect_json())


async def _handle_start(daemon: SimDockerDaemon, _request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find_container(key)
    if container.state == "running":
        return SimHttpReply(status=304)
    await asyncio.sleep(daemon.start_seconds)
    daemon.start_container(container)
    return SimHttpReply(status=204)


async def _handle_stop(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find_container(key)
    if container.state != "running":
        return SimHttpReply(status=304)
    await daemon.stop_container(container, float(request.query.get("t") or 10))
    return SimHttpReply(status=204)


async def _handle_kill(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find_container(key)
    process = daemon.running.get(container.id)
    if process is None:
        raise DockerApiError(409, f"cannot kill container: {key}: container {container.id} is not running")
    if request.query.get("signal", "SIGKILL").removeprefix("SIG") in ("KILL", "9"):
        daemon.publish_event("kill", container, signal="9")
        process.kill()
        await container.ended.wait()
    elif request.query["signal"] == "SIGUSR1" and isinstance(process, SimDownload):
        process.hold_back()
    else:
        daemon.publish_event("kill", container, signal="15")
        process.terminate()
    return SimHttpReply(status=204)


async def _handle_wait(daemon: SimDockerDaemon, _request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find_container(key)
    if container.state == "running":
        await container.ended.wait()
    return build_json_reply({"StatusCode": container.exit_code, "Error": None})


async def _handle_rename(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container, name = daemon.find_container(key), (request.query.get("name") or "").lstrip("/")
    holder = next((one for one in daemon.containers.values() if one.name == name), None)
    if holder is not None:
        raise DockerApiError(
            409,
            f'Error when allocating new name: Conflict. The container name "/{name}" is already in use by container '
            f'"{holder.id}". You have to remove (or rename) that container to be able to reuse that name.',
        )
    container.name = name
    daemon.publish_event("rename", container)
    return SimHttpReply(status=204)


async def _handle_remove(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find_container(key)
    process = daemon.running.get(container.id)
    if process is not None:
        if not request.is_flag_set("force"):
            raise DockerApiError(
                409,
                f'cannot remove container "{container.name}": container is running: '
                "stop the container before removing or force remove",
            )
        process.kill()
        await container.ended.wait()
    del daemon.containers[container.id]
    daemon.publish_event("destroy", container)
    return SimHttpReply(status=204)


async def _handle_logs(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find_container(key)
    streams = frozenset(name for name in STREAM_NUMBERS if request.is_flag_set(name))
    if not streams:
        raise DockerApiError(400, "Bad parameters: you must choose at least one stream")
    tail, until = request.query.get("tail", "all"), request.query.get("until")
    wanted = LogQuery(
        streams=streams,
        follow=request.is_flag_set("follow"),
        timestamps=request.is_flag_set("timestamps"),
        since=parse_nanoseconds(request.query.get("since") or "0"),
        until=parse_nanoseconds(until) if until and until != "0" else None,
        tail=int(tail) if tail.isdigit() else None,
        tty=bool(container.body.get("Tty")),
    )
    return SimHttpReply(type=LOG_STREAM_TYPE, stream=container.journal.read_records(wanted))


async def _handle_image(daemon: SimDockerDaemon, _request: SimHttpRequest, name: str) -> SimHttpReply:
    if not daemon.node.images.has_image(name):
        raise DockerApiError(404, f"No such image: {name}")
    return build_json_reply(daemon.node.images.to_inspect_json(name))


async def _handle_image_list(daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
    used = [str(one.body.get("Image", "")) for one in daemon.containers.values()]
    return build_json_reply(daemon.node.images.list_json(used))


async def _handle_image_removal(daemon: SimDockerDaemon, _request: SimHttpRequest, name: str) -> SimHttpReply:
    images = daemon.node.images
    if not images.has_image(name):
        raise DockerApiError(404, f"No such image: {name}")
    found = images.get_image_id(name)
    if any(one.image_id == found for one in daemon.containers.values()):
        raise DockerApiError(409, f"conflict: unable to remove repository reference {name} (must force)")
    images.remove_image(name)
    return build_json_reply([{"Deleted": found}])


async def _handle_pull(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    repository, tag = request.query.get("fromImage", ""), request.query.get("tag", "latest")
    name = f"{repository}{'@' if tag.startswith('sha256:') else ':'}{tag}"
    if "/" not in repository:  # a name of this node alone, such as a build's
        raise DockerApiError(
            404,
            f"pull access denied for {repository}, repository does not exist or may require 'docker login': "
            "denied: requested access to the resource is denied",
        )
    if "missing" in name:
        raise DockerApiError(404, f"manifest for {name} not found: manifest unknown: manifest unknown")
    return SimHttpReply(type="application/json", stream=pull_layers(daemon.node, name, tag))


async def _handle_events(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    if "until" in request.query:  # the requested time is over, or nearly
        wanted = json.loads(request.query.get("filters") or "{}")
        return SimHttpReply(
            body=daemon.encode_past_events(wanted["container"][0], wanted["event"]), type="application/json"
        )
    return SimHttpReply(stream=daemon.stream_events())


_ROUTES: tuple[tuple[str, re.Pattern[str], RouteHandler], ...] = tuple(
    (method, re.compile(pattern), route)
    for method, pattern, route in (
        ("GET", "/_ping", _handle_ping),
        ("GET", "/version", _handle_version),
        ("GET", "/info", _handle_info),
        ("GET", "/events", _handle_events),
        ("GET", "/containers/json", _handle_list),
        ("POST", "/containers/create", _handle_create),
        ("GET", "/containers/([^/]+)/json", _handle_inspect),
        ("POST", "/containers/([^/]+)/start", _handle_start),
        ("POST", "/containers/([^/]+)/stop", _handle_stop),
        ("POST", "/containers/([^/]+)/kill", _handle_kill),
        ("POST", "/containers/([^/]+)/wait", _handle_wait),
        ("POST", "/containers/([^/]+)/rename", _handle_rename),
        ("GET", "/containers/([^/]+)/logs", _handle_logs),
        ("DELETE", "/containers/([^/]+)", _handle_remove),
        ("GET", "/images/json", _handle_image_list),
        ("GET", "/images/(.+)/json", _handle_image),
        ("DELETE", "/images/(.+)", _handle_image_removal),
        ("POST", "/images/create", _handle_pull),
    )
)
