"""The simulated Docker Engine: the part of its HTTP API that sparkctl uses, in its own words and status codes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from sparkctl.sim.container import Body, SimContainer, image_id
from sparkctl.sim.http import Reply, Request, json_reply
from sparkctl.sim.journal import STREAMS, Wanted, nanoseconds
from sparkctl.sim.node import KERNEL, SimNode
from sparkctl.sim.process import EngineProcess

VERSION, API, OLDEST_API = "28.5.2", "1.51", "1.24"
LOG_STREAM = "application/vnd.docker.multiplexed-stream"
NO_GPU = 'could not select device driver "" with capabilities: [[gpu]]'
Route = Callable[["Dockerd", Request, str], Awaitable[Reply]]


class Refusal(Exception):
    """An answer that is an error: a status code and Docker's sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Dockerd:
    """The daemon of one node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.containers: dict[str, SimContainer] = {}  # by id, oldest first
        self.running: dict[str, EngineProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: set[asyncio.Queue[Body]] = set()

    async def handle(self, request: Request) -> Reply:
        """Answer one request."""
        try:
            version, path = _split_version(request.path)
            if version > tuple(map(int, API.split("."))):
                raise Refusal(
                    400,
                    f"client version {'.'.join(map(str, version))} is too new. Maximum supported API version is {API}",
                )
            for method, pattern, route in _ROUTES:
                match = pattern.fullmatch(path)
                if match and method in (request.method, "GET" if request.method == "HEAD" else ""):
                    return await route(self, request, match[1] if pattern.groups else "")
            raise Refusal(404, "page not found")
        except Refusal as refusal:
            return json_reply({"message": str(refusal)}, refusal.status)

    async def close(self) -> None:
        """End every process at once, as a power cut does."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def find(self, key: str) -> SimContainer:
        """Return a container by name, id or the beginning of its id; 404 where there is none."""
        for one in self.containers.values():
            if key.lstrip("/") == one.name or key == one.id:
                return one
        begun = [one for one in self.containers.values() if one.id.startswith(key)]
        if len(begun) != 1:
            raise Refusal(404, f"No such container: {key}")
        return begun[0]

    def create(self, name: str | None, body: Body) -> SimContainer:
        """Make a container; 404 where the image is missing, 409 where the name is taken."""
        image = str(body.get("Image", ""))
        if not has_image(image):
            raise Refusal(404, f"No such image: {image}")
        container_id = f"{self.node.random.getrandbits(256):064x}"
        name = name or f"quiet_spark_{container_id[:4]}"
        for other in self.containers.values():
            if other.name == name:
                raise Refusal(
                    409,
                    f'Conflict. The container name "/{name}" is already in use by container "{other.id}". '
                    "You have to remove (or rename) that container to be able to reuse that name.",
                )
        container = self.containers[container_id] = SimContainer(container_id, name, body)
        self.tell("create", container)
        return container

    def start(self, container: SimContainer, ready_since: float | None = None) -> None:
        """Start it; with ``ready_since`` (seconds) as something that has been up for that long."""
        if container.wants_gpu and not self.node.options.gpu_runtime:
            container.error = NO_GPU
            raise Refusal(500, NO_GPU)
        for port in container.published_ports:
            if port in self.node.ports:
                container.error = (
                    f"driver failed programming external connectivity on endpoint {container.name}: "
                    f"Bind for 0.0.0.0:{port} failed: port is already allocated"
                )
                raise Refusal(500, container.error)
        process = EngineProcess(self.node, container)
        container.mark_started(process.pid)
        self.running[container.id] = process
        if ready_since is not None:
            process.rush(ready_since)
        self._keep(asyncio.ensure_future(self._attend(container, process)))
        self.tell("start", container)

    async def _attend(self, container: SimContainer, process: EngineProcess) -> None:
        try:
            ending = await process.run()
        finally:
            self.running.pop(container.id, None)
        if ending.oom_killed:
            self.tell("oom", container)
        container.mark_ended(ending.code, oom_killed=ending.oom_killed)
        self.tell("die", container)
        self._keep(asyncio.ensure_future(self.node.reap(process.pids)))

    def _keep(self, task: asyncio.Future[None]) -> None:
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, container: SimContainer, grace: float) -> None:
        """SIGTERM, then SIGKILL after ``grace`` simulated seconds."""
        process = self.running.get(container.id)
        if process is None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(container.ended.wait(), grace / self.node.pace.speed)
        except TimeoutError:
            process.kill()
            await container.ended.wait()

    def tell(self, action: str, container: SimContainer) -> None:
        """Let everybody who listens to /events know."""
        now = time.time_ns()
        attributes = {**container.labels, "image": container.image, "name": container.name}
        if action == "die":
            attributes["exitCode"] = str(container.exit_code)
        event: Body = {"Type": "container", "Action": action, "scope": "local", "status": action, "id": container.id}
        event |= {"from": container.image, "Actor": {"ID": container.id, "Attributes": attributes}}
        event |= {"time": now // 1_000_000_000, "timeNano": now}
        for queue in self._listeners:
            queue.put_nowait(event)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield what happens from now on, one JSON object a line."""
        queue: asyncio.Queue[Body] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield json.dumps(await queue.get()).encode() + b"\n"
        finally:
            self._listeners.discard(queue)


def has_image(image: str) -> bool:
    """Every image is there, except those that say they are not."""
    return "missing" not in image


def _split_version(path: str) -> tuple[tuple[int, ...], str]:
    match = re.match(r"/v(\d+)\.(\d+)(?=/)", path)
    return ((int(match[1]), int(match[2])), path[match.end() :]) if match else ((0,), path)


async def _ping(_daemon: Dockerd, _request: Request, _key: str) -> Reply:
    headers = (
        ("Api-Version", API),
        ("Ostype", "linux"),
        ("Docker-Experimental", "false"),
        ("Cache-Control", "no-cache"),
    )
    return Reply(body=b"OK", type="text/plain; charset=utf-8", headers=headers)


async def _version(_daemon: Dockerd, _request: Request, _key: str) -> Reply:
    words = {"Version": VERSION, "ApiVersion": API, "MinAPIVersion": OLDEST_API, "Os": "linux", "Arch": "arm64"}
    return json_reply(
        {"Platform": {"Name": "Docker Engine - Community"}, **words, "KernelVersion": KERNEL, "Components": []}
    )


async def _info(daemon: Dockerd, _request: Request, _key: str) -> Reply:
    runtimes = {"runc": {"path": "runc"}}
    if daemon.node.options.gpu_runtime:
        runtimes["nvidia"] = {"path": "nvidia-container-runtime"}
    total = int(daemon.node.memory.meminfo().split(maxsplit=2)[1]) * 1024
    counts = [one.state for one in daemon.containers.values()]
    facts = {
        "Name": daemon.node.name,
        "ServerVersion": VERSION,
        "OperatingSystem": "Ubuntu 24.04.3 LTS",
        "OSType": "linux",
    }
    facts |= {
        "Architecture": "aarch64",
        "KernelVersion": KERNEL,
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
    return json_reply({"ID": daemon.node.boot_id, **facts, **numbers, **more})


async def _list(daemon: Dockerd, request: Request, _key: str) -> Reply:
    wanted = (json.loads(request.query.get("filters") or "{}") or {}).get("label", [])
    chosen = [one for one in daemon.containers.values() if request.flag("all") or one.state == "running"]
    chosen = [one for one in chosen if all(_has_label(one, label) for label in wanted)]
    return json_reply([one.summary() for one in reversed(chosen)])


def _has_label(container: SimContainer, wanted: str) -> bool:
    name, given, value = wanted.partition("=")
    return name in container.labels and (not given or container.labels[name] == value)


async def _create(daemon: Dockerd, request: Request, _key: str) -> Reply:
    container = daemon.create(request.query.get("name"), request.json())
    return json_reply({"Id": container.id, "Warnings": []}, 201)


async def _inspect(daemon: Dockerd, _request: Request, key: str) -> Reply:
    return json_reply(daemon.find(key).details())


async def _start(daemon: Dockerd, _request: Request, key: str) -> Reply:
    container = daemon.find(key)
    if container.state == "running":
        return Reply(304)
    daemon.start(container)
    return Reply(204)


async def _stop(daemon: Dockerd, request: Request, key: str) -> Reply:
    container = daemon.find(key)
    if container.state != "running":
        return Reply(304)
    await daemon.stop(container, float(request.query.get("t") or 10))
    return Reply(204)


async def _kill(daemon: Dockerd, request: Request, key: str) -> Reply:
    container = daemon.find(key)
    process = daemon.running.get(container.id)
    if process is None:
        raise Refusal(409, f"cannot kill container: {key}: container {container.id} is not running")
    if request.query.get("signal", "SIGKILL").removeprefix("SIG") in ("KILL", "9"):
        process.kill()
        await container.ended.wait()
    else:
        process.terminate()
    return Reply(204)


async def _wait(daemon: Dockerd, _request: Request, key: str) -> Reply:
    container = daemon.find(key)
    if container.state == "running":
        await container.ended.wait()
    return json_reply({"StatusCode": container.exit_code, "Error": None})


async def _remove(daemon: Dockerd, request: Request, key: str) -> Reply:
    container = daemon.find(key)
    process = daemon.running.get(container.id)
    if process is not None:
        if not request.flag("force"):
            raise Refusal(
                409,
                f'cannot remove container "{container.name}": container is running: '
                "stop the container before removing or force remove",
            )
        process.kill()
        await container.ended.wait()
    del daemon.containers[container.id]
    daemon.tell("destroy", container)
    return Reply(204)


async def _logs(daemon: Dockerd, request: Request, key: str) -> Reply:
    container = daemon.find(key)
    streams = frozenset(name for name in STREAMS if request.flag(name))
    if not streams:
        raise Refusal(400, "Bad parameters: you must choose at least one stream")
    tail, until = request.query.get("tail", "all"), request.query.get("until")
    wanted = Wanted(
        streams,
        follow=request.flag("follow"),
        timestamps=request.flag("timestamps"),
        since=nanoseconds(request.query.get("since") or "0"),
        until=nanoseconds(until) if until and until != "0" else None,
        tail=int(tail) if tail.isdigit() else None,
        tty=bool(container.body.get("Tty")),
    )
    return Reply(type=LOG_STREAM, stream=container.journal.read(wanted))


async def _image(_daemon: Dockerd, _request: Request, name: str) -> Reply:
    if not has_image(name):
        raise Refusal(404, f"No such image: {name}")
    config: Body = {"Entrypoint": None, "Cmd": ["bash"], "Env": [], "Labels": {}}
    facts = {"Architecture": "arm64", "Os": "linux", "Size": 21_474_836_480, "Created": "2026-06-01T08:00:00Z"}
    return json_reply({"Id": image_id(name), "RepoTags": [name], "RepoDigests": [], **facts, "Config": config})


async def _events(daemon: Dockerd, _request: Request, _key: str) -> Reply:
    return Reply(stream=daemon.events())


_ROUTES: tuple[tuple[str, re.Pattern[str], Route], ...] = tuple(
    (method, re.compile(pattern), route)
    for method, pattern, route in (
        ("GET", "/_ping", _ping),
        ("GET", "/version", _version),
        ("GET", "/info", _info),
        ("GET", "/events", _events),
        ("GET", "/containers/json", _list),
        ("POST", "/containers/create", _create),
        ("GET", "/containers/([^/]+)/json", _inspect),
        ("POST", "/containers/([^/]+)/start", _start),
        ("POST", "/containers/([^/]+)/stop", _stop),
        ("POST", "/containers/([^/]+)/kill", _kill),
        ("POST", "/containers/([^/]+)/wait", _wait),
        ("GET", "/containers/([^/]+)/logs", _logs),
        ("DELETE", "/containers/([^/]+)", _remove),
        ("GET", "/images/(.+)/json", _image),
    )
)
