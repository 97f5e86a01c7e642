"""A launch plan as the JSON that Docker's ``containers/create`` takes. Pure; what `docker run` would send."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping

from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.units import parse_size

Body = dict[str, object]


def build_create_request(plan: LaunchPlan) -> Body:
    """Return the create request's body.

    Never asks for auto-remove or a restart policy: a container that crashed keeps its log and stays crashed.
    Raises ValueError for an option, size or port that is none (profiles are checked before they get here).
    """
    host: Body = {"Binds": [str(mount) for mount in plan.mounts]}
    body: Body = {
        "Image": plan.image,
        "Cmd": list(plan.command) or None,
        "Env": [f"{name}={value}" for name, value in plan.env],
        "Labels": dict(plan.labels),
        "HostConfig": host,
    }
    if plan.entrypoint is not None:
        body["Entrypoint"] = [plan.entrypoint]
    _set_value(host, "ShmSize", plan.shm_size, parse_size)
    _set_value(host, "IpcMode", plan.ipc, str)
    _set_value(host, "NetworkMode", plan.network, str)
    if plan.ulimits:
        host["Ulimits"] = [_ulimit(name, value) for name, value in plan.ulimits]
    plain = [device for device in plan.devices if not _is_cdi(device)]
    if plain:
        host["Devices"] = [_device(device) for device in plain]
    requests = [_cdi_request([device for device in plan.devices if _is_cdi(device)])]
    requests.insert(0, _gpu_request(plan.gpus) if plan.gpus else None)
    if any(requests):
        host["DeviceRequests"] = [request for request in requests if request]
    _apply_options(body, host, plan.options)
    return body


def _apply_options(body: Body, host: Body, options: tuple[tuple[str, str], ...]) -> None:
    for name, value in options:
        if name in _CONFIG:
            key, convert = _CONFIG[name]
            body[key] = convert(value)
        elif name in _HOST:
            key, convert = _HOST[name]
            host[key] = convert(value)
        elif name in _HOST_LISTS:
            _append_value(host, _HOST_LISTS[name], value)
        elif name in _SPECIAL:
            _SPECIAL[name](body, host, value)
        else:
            raise ValueError(f"--{name} is not supported here")


def _set_value(target: Body, key: str, value: str | None, convert: Callable[[str], object]) -> None:
    if value is not None:
        target[key] = convert(value)


def _append_value(target: Body, key: str, value: object) -> None:
    values = target.setdefault(key, [])
    assert isinstance(values, list)
    values.append(value)


def _sub_object(target: Body, key: str) -> Body:
    entry = target.setdefault(key, {})
    assert isinstance(entry, dict)
    return entry


def _size(value: str) -> int:
    return -1 if value == "-1" else parse_size(value)


def _flag(value: str) -> bool:
    return value == "true"


def _ulimit(name: str, value: str) -> Body:
    """``1024:2048`` is soft and hard, a single number both; -1 is no limit."""
    soft, _, hard = value.partition(":")
    return {"Name": name, "Soft": int(soft), "Hard": int(hard or soft)}


def _device(text: str) -> Body:
    """``/dev/a``, ``/dev/a:/dev/b`` or ``/dev/a:/dev/b:rwm``; the daemon opens directories itself."""
    parts = text.split(":")
    permissions = "rwm"
    if len(parts) > 1 and set(parts[-1]) <= set("rwm"):
        permissions = parts.pop()
    inside = parts[1] if len(parts) > 1 and parts[1] else parts[0]
    return {"PathOnHost": parts[0], "PathInContainer": inside, "CgroupPermissions": permissions}


def _is_cdi(device: str) -> bool:
    """CDI names look like ``nvidia.com/gpu=all``."""
    return not device.startswith("/") and "=" in device and "/" in device.partition("=")[0]


def _cdi_request(devices: list[str]) -> Body | None:
    return {"Driver": "cdi", "DeviceIDs": devices} if devices else None


def _gpu_request(text: str) -> Body:
    """``all``, ``2``, ``device=0`` or ``"device=0,1",capabilities=utility``, as `docker run --gpus` reads them."""
    request: Body = {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
    for field in next(csv.reader([text])):
        key, given, value = field.partition("=")
        if not given:
            request["Count"] = -1 if key == "all" else int(key)
        elif key == "count":
            request["Count"] = -1 if value == "all" else int(value)
        elif key == "device":
            request["DeviceIDs"] = value.split(",")
        elif key == "driver":
            request["Driver"] = value
        elif key == "capabilities":
            request["Capabilities"] = [list(dict.fromkeys(["gpu", *value.split(",")]))]
        else:
            raise ValueError(f"--gpus {text}: {key} is not known")
    return request


def _log_driver(_: Body, host: Body, value: str) -> None:
    _sub_object(host, "LogConfig")["Type"] = value


def _log_opt(_body: Body, host: Body, value: str) -> None:
    key, _, text = value.partition("=")
    _sub_object(_sub_object(host, "LogConfig"), "Config")[key] = text


def _tmpfs(_body: Body, host: Body, value: str) -> None:
    path, _, options = value.partition(":")
    _sub_object(host, "Tmpfs")[path] = options


def _publish(body: Body, host: Body, value: str) -> None:
    """``8000``, ``8000:80``, ``127.0.0.1:8000:80/tcp``; one number alone leaves the node's port to Docker."""
    ports, _, protocol = value.partition("/")
    rest, _, inside = ports.rpartition(":")
    address, _, outside = rest.rpartition(":")
    key = f"{int(inside)}/{protocol or 'tcp'}"
    _sub_object(body, "ExposedPorts")[key] = {}
    binding = {"HostIp": address.strip("[]"), "HostPort": str(int(outside)) if outside else ""}
    _append_value(_sub_object(host, "PortBindings"), key, binding)


_Converter = Callable[[str], object]
_CONFIG: Mapping[str, tuple[str, _Converter]] = {
    "hostname": ("Hostname", str),
    "stop-signal": ("StopSignal", str),
    "user": ("User", str),
    "workdir": ("WorkingDir", str),
}
_HOST: Mapping[str, tuple[str, _Converter]] = {
    "cpus": ("NanoCpus", lambda value: round(float(value) * 1e9)),
    "cpuset-cpus": ("CpusetCpus", str),
    "init": ("Init", _flag),
    "memory": ("Memory", _size),
    "memory-swap": ("MemorySwap", _size),
    "oom-score-adj": ("OomScoreAdj", int),
    "pid": ("PidMode", str),
    "pids-limit": ("PidsLimit", int),
    "privileged": ("Privileged", _flag),
    "read-only": ("ReadonlyRootfs", _flag),
    "runtime": ("Runtime", str),
}
_HOST_LISTS: Mapping[str, str] = {
    "add-host": "ExtraHosts",
    "cap-add": "CapAdd",
    "cap-drop": "CapDrop",
    "group-add": "GroupAdd",
    "security-opt": "SecurityOpt",
}
_SPECIAL: Mapping[str, Callable[[Body, Body, str], None]] = {
    "log-driver": _log_driver,
    "log-opt": _log_opt,
    "publish": _publish,
    "tmpfs": _tmpfs,
}
