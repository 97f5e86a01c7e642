"""The simulated Docker Engine's HTTP API: the part that sparkctl uses, in Docker's own words and status codes."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable

from sparkctl.sim.container import SimContainer
from sparkctl.sim.dockerd import Dockerd, Refusal
from sparkctl.sim.http import Handler, Reply, Request, json_reply
from sparkctl.sim.journal import STREAMS, Wanted, nanoseconds
from sparkctl.sim.node import KERNEL

VERSION, OLDEST_API = "28.5.2", "1.24"
NEWEST = (1, 51)
API = ".".join(map(str, NEWEST))
LOG_STREAM = "application/vnd.docker.multiplexed-stream"
Route = Callable[[Dockerd, Request, str], Awaitable[Reply]]


def api_of(daemon: Dockerd) -> Handler:
    """Return what answers on the daemon's socket."""

    async def handle(request: Request) -> Reply:
        try:
            return await _route(daemon, request)
        except Refusal as refusal:
            return json_reply({"message": str(refusal)}, refusal.status)

    return handle


async def _route(daemon: Dockerd, request: Request) -> Reply:
    path = _without_version(request.path)
    method = "GET" if request.method == "HEAD" else request.method
    for wanted, pattern, route in _ROUTES:
        match = pattern.fullmatch(path)
        if match and wanted == method:
            return await route(daemon, request, match[1] if pattern.groups else "")
    raise Refusal(404, "page not found")


def _without_version(path: str) -> str:
    match = re.match(r"/v(\d+)\.(\d+)(?=/)", path)
    if match is None:
        return path
    if (int(match[1]), int(match[2])) > NEWEST:
        asked = f"{match[1]}.{match[2]}"
        raise Refusal(400, f"client version {asked} is too new. Maximum supported API version is {API}")
    return path[match.end() :]


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
        daemon.tell("kill", container, signal="9")
        process.kill()
        await container.ended.wait()
    else:
        daemon.tell("kill", container, signal="15")
        process.terminate()
    return Reply(204)


async def _wait(daemon: Dockerd, _request: Request, key: str) -> Reply:
    container = daemon.find(key)
    if container.state == "running":
        await container.ended.wait()
    return json_reply({"StatusCode": container.exit_code, "Error": None})


async def _rename(daemon: Dockerd, request: Request, key: str) -> Reply:
    container, name = daemon.find(key), (request.query.get("name") or "").lstrip("/")
    holder = next((one for one in daemon.containers.values() if one.name == name), None)
    if holder is not None:
        raise Refusal(
            409,
            f'Error when allocating new name: Conflict. The container name "/{name}" is already in use by container '
            f'"{holder.id}". You have to remove (or rename) that container to be able to reuse that name.',
        )
    container.name = name
    daemon.tell("rename", container)
    return Reply(204)


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


async def _image(daemon: Dockerd, _request: Request, name: str) -> Reply:
    if not daemon.node.images.has(name):
        raise Refusal(404, f"No such image: {name}")
    return json_reply(daemon.node.images.details(name))


async def _events(daemon: Dockerd, request: Request, _key: str) -> Reply:
    if "until" in request.query:  # the moment it names is over, or nearly
        wanted = json.loads(request.query.get("filters") or "{}")
        return Reply(body=daemon.past_events(wanted["container"][0], wanted["event"]), type="application/json")
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
        ("POST", "/containers/([^/]+)/rename", _rename),
        ("GET", "/containers/([^/]+)/logs", _logs),
        ("DELETE", "/containers/([^/]+)", _remove),
        ("GET", "/images/(.+)/json", _image),
    )
)
