"""The simulated Docker Engine's HTTP API: the part that sparkctl uses, in Docker's own words and status codes."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable

from sparkctl.simulator.container_log import STREAMS, LogQuery, parse_nanoseconds
from sparkctl.simulator.docker_daemon import DockerApiError, SimDockerDaemon
from sparkctl.simulator.http_server import RequestHandler, SimHttpReply, SimHttpRequest, build_json_reply
from sparkctl.simulator.sim_container import SimContainer
from sparkctl.simulator.sim_node import KERNEL

VERSION, OLDEST_API = "28.5.2", "1.24"
MAX_API_VERSION = (1, 51)
API = ".".join(map(str, MAX_API_VERSION))
LOG_STREAM = "application/vnd.docker.multiplexed-stream"
RouteHandler = Callable[[SimDockerDaemon, SimHttpRequest, str], Awaitable[SimHttpReply]]


def build_docker_api(daemon: SimDockerDaemon) -> RequestHandler:
    """Return what answers on the daemon's socket."""

    async def handle(request: SimHttpRequest) -> SimHttpReply:
        try:
            return await _route(daemon, request)
        except DockerApiError as refusal:
            return build_json_reply({"message": str(refusal)}, refusal.status)

    return handle


async def _route(daemon: SimDockerDaemon, request: SimHttpRequest) -> SimHttpReply:
    path = _without_version(request.path)
    method = "GET" if request.method == "HEAD" else request.method
    for wanted, pattern, route in _ROUTES:
        match = pattern.fullmatch(path)
        if match and wanted == method:
            return await route(daemon, request, match[1] if pattern.groups else "")
    raise DockerApiError(404, "page not found")


def _without_version(path: str) -> str:
    match = re.match(r"/v(\d+)\.(\d+)(?=/)", path)
    if match is None:
        return path
    if (int(match[1]), int(match[2])) > MAX_API_VERSION:
        asked = f"{match[1]}.{match[2]}"
        raise DockerApiError(400, f"client version {asked} is too new. Maximum supported API version is {API}")
    return path[match.end() :]


async def _ping(_daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
    headers = (
        ("Api-Version", API),
        ("Ostype", "linux"),
        ("Docker-Experimental", "false"),
        ("Cache-Control", "no-cache"),
    )
    return SimHttpReply(body=b"OK", type="text/plain; charset=utf-8", headers=headers)


async def _version(_daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
    words = {"Version": VERSION, "ApiVersion": API, "MinAPIVersion": OLDEST_API, "Os": "linux", "Arch": "arm64"}
    return build_json_reply(
        {"Platform": {"Name": "Docker Engine - Community"}, **words, "KernelVersion": KERNEL, "Components": []}
    )


async def _info(daemon: SimDockerDaemon, _request: SimHttpRequest, _key: str) -> SimHttpReply:
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
    return build_json_reply({"ID": daemon.node.boot_id, **facts, **numbers, **more})


async def _list(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    wanted = (json.loads(request.query.get("filters") or "{}") or {}).get("label", [])
    chosen = [one for one in daemon.containers.values() if request.flag("all") or one.state == "running"]
    chosen = [one for one in chosen if all(_has_label(one, label) for label in wanted)]
    return build_json_reply([one.to_list_json() for one in reversed(chosen)])


def _has_label(container: SimContainer, wanted: str) -> bool:
    name, given, value = wanted.partition("=")
    return name in container.labels and (not given or container.labels[name] == value)


async def _create(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    container = daemon.create(request.query.get("name"), request.json())
    return build_json_reply({"Id": container.id, "Warnings": []}, 201)


async def _inspect(daemon: SimDockerDaemon, _request: SimHttpRequest, key: str) -> SimHttpReply:
    return build_json_reply(daemon.find(key).to_inspect_json())


async def _start(daemon: SimDockerDaemon, _request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find(key)
    if container.state == "running":
        return SimHttpReply(304)
    daemon.start(container)
    return SimHttpReply(204)


async def _stop(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find(key)
    if container.state != "running":
        return SimHttpReply(304)
    await daemon.stop(container, float(request.query.get("t") or 10))
    return SimHttpReply(204)


async def _kill(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find(key)
    process = daemon.running.get(container.id)
    if process is None:
        raise DockerApiError(409, f"cannot kill container: {key}: container {container.id} is not running")
    if request.query.get("signal", "SIGKILL").removeprefix("SIG") in ("KILL", "9"):
        daemon.publish_event("kill", container, signal="9")
        process.kill()
        await container.ended.wait()
    else:
        daemon.publish_event("kill", container, signal="15")
        process.terminate()
    return SimHttpReply(204)


async def _wait(daemon: SimDockerDaemon, _request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find(key)
    if container.state == "running":
        await container.ended.wait()
    return build_json_reply({"StatusCode": container.exit_code, "Error": None})


async def _rename(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container, name = daemon.find(key), (request.query.get("name") or "").lstrip("/")
    holder = next((one for one in daemon.containers.values() if one.name == name), None)
    if holder is not None:
        raise DockerApiError(
            409,
            f'Error when allocating new name: Conflict. The container name "/{name}" is already in use by container '
            f'"{holder.id}". You have to remove (or rename) that container to be able to reuse that name.',
        )
    container.name = name
    daemon.publish_event("rename", container)
    return SimHttpReply(204)


async def _remove(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find(key)
    process = daemon.running.get(container.id)
    if process is not None:
        if not request.flag("force"):
            raise DockerApiError(
                409,
                f'cannot remove container "{container.name}": container is running: '
                "stop the container before removing or force remove",
            )
        process.kill()
        await container.ended.wait()
    del daemon.containers[container.id]
    daemon.publish_event("destroy", container)
    return SimHttpReply(204)


async def _logs(daemon: SimDockerDaemon, request: SimHttpRequest, key: str) -> SimHttpReply:
    container = daemon.find(key)
    streams = frozenset(name for name in STREAMS if request.flag(name))
    if not streams:
        raise DockerApiError(400, "Bad parameters: you must choose at least one stream")
    tail, until = request.query.get("tail", "all"), request.query.get("until")
    wanted = LogQuery(
        streams,
        follow=request.flag("follow"),
        timestamps=request.flag("timestamps"),
        since=parse_nanoseconds(request.query.get("since") or "0"),
        until=parse_nanoseconds(until) if until and until != "0" else None,
        tail=int(tail) if tail.isdigit() else None,
        tty=bool(container.body.get("Tty")),
    )
    return SimHttpReply(type=LOG_STREAM, stream=container.journal.read(wanted))


async def _image(daemon: SimDockerDaemon, _request: SimHttpRequest, name: str) -> SimHttpReply:
    if not daemon.node.images.has(name):
        raise DockerApiError(404, f"No such image: {name}")
    return build_json_reply(daemon.node.images.to_inspect_json(name))


async def _events(daemon: SimDockerDaemon, request: SimHttpRequest, _key: str) -> SimHttpReply:
    if "until" in request.query:  # the moment it names is over, or nearly
        wanted = json.loads(request.query.get("filters") or "{}")
        return SimHttpReply(body=daemon.past_events(wanted["container"][0], wanted["event"]), type="application/json")
    return SimHttpReply(stream=daemon.events())


_ROUTES: tuple[tuple[str, re.Pattern[str], RouteHandler], ...] = tuple(
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
