"""Builds the JSON of Docker's ``containers/create`` from a launch plan, as `docker run` does, and reads it back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparkctl.model.container import shorten_id
from sparkctl.model.launch_plan import DockerRunSpec, LaunchPlan, Mount
from sparkctl.model.text.units import GIB, MIB, parse_size
from sparkctl.transport.docker.docker_responses import Json, get_object

Body = dict[str, object]


def build_create_request(plan: LaunchPlan) -> Body:
    """Return the create request's body.

    Never sets auto-remove or a restart policy: a crashed container keeps its log and stays stopped.
    Raises ValueError for an invalid option, size or port (profiles are checked before).
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
        host["Ulimits"] = [_build_ulimit(name, value) for name, value in plan.ulimits]
    plain = [device for device in plan.devices if not _is_cdi(device)]
    if plain:
        host["Devices"] = [_build_device(device) for device in plain]
    requests = [_build_gpu_request(plan.gpus)] if plan.gpus else []
    if named := [device for device in plan.devices if _is_cdi(device)]:
        requests.append({"Driver": "cdi", "DeviceIDs": named})
    if requests:
        host["DeviceRequests"] = requests
    _apply_options(body, host, plan.options)
    return body


def _apply_options(body: Body, host: Body, options: tuple[tuple[str, str], ...]) -> None:
    for name, value in options:
        if name in _CONFIG_OPTIONS:
            key, convert = _CONFIG_OPTIONS[name]
            body[key] = convert(value)
        elif name in _HOST_OPTIONS:
            key, convert = _HOST_OPTIONS[name]
            host[key] = convert(value)
        elif name in _HOST_LIST_OPTIONS:
            _append_value(host, _HOST_LIST_OPTIONS[name], value)
        elif name in _OPTION_HANDLERS:
            _OPTION_HANDLERS[name](body, host, value)
        else:
            raise ValueError(f"--{name} is not supported here")


def _set_value(target: Body, key: str, value: str | None, convert: Callable[[str], object]) -> None:
    if value is not None:
        target[key] = convert(value)


def _append_value(target: Body, key: str, value: object) -> None:
    values = target.setdefault(key, [])
    assert isinstance(values, list)
    values.append(value)


def _ensure_object(target: Body, key: str) -> Body:
    entry = target.setdefault(key, {})
    assert isinstance(entry, dict)
    return entry


def _parse_memory_size(value: str) -> int:
    return -1 if value == "-1" else parse_size(value)


def _parse_flag(value: str) -> bool:
    return value == "true"


def _build_ulimit(name: str, value: str) -> Body:
    """Build a ulimit: ``1024:2048`` is soft and hard, a single number both; -1 is no limit."""
    soft, _, hard = value.partition(":")
    return {"Name": name, "Soft": int(soft), "Hard": int(hard or soft)}


def _build_device(text: str) -> Body:
    """Build a device from ``/dev/a``, ``/dev/a:/dev/b`` or ``/dev/a:/dev/b:rwm``; the daemon expands directories itself."""
    parts = text.split(":")
    permissions = "rwm"
    if len(parts) > 1 and set(parts[-1]) <= set("rwm"):
        permissions = parts.pop()
    inside = parts[1] if len(parts) > 1 and parts[1] else parts[0]
    return {"PathOnHost": parts[0], "PathInContainer": inside, "CgroupPermissions": permissions}


def _is_cdi(device: str) -> bool:
    """Tell whether it is a CDI name, like ``nvidia.com/gpu=all``."""
    return not device.startswith("/") and "=" in device and "/" in device.partition("=")[0]


def _build_gpu_request(text: str) -> Body:
    """Build a GPU request from ``all``, ``2``, ``device=0`` or ``"device=0,1",capabilities=utility``, like `docker run --gpus`."""
    import csv  # few starts need it

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


def _apply_log_driver(_: Body, host: Body, value: str) -> None:
    _ensure_object(host, "LogConfig")["Type"] = value


def _apply_log_opt(_body: Body, host: Body, value: str) -> None:
    key, _, text = value.partition("=")
    _ensure_object(_ensure_object(host, "LogConfig"), "Config")[key] = text


def _apply_tmpfs(_body: Body, host: Body, value: str) -> None:
    path, _, options = value.partition(":")
    _ensure_object(host, "Tmpfs")[path] = options


def _apply_publish(body: Body, host: Body, value: str) -> None:
    """Add a port: ``8000``, ``8000:80``, ``127.0.0.1:8000:80/tcp``; with one number alone, Docker chooses the node's port."""
    ports, _, protocol = value.partition("/")
    rest, _, inside = ports.rpartition(":")
    address, _, outside = rest.rpartition(":")
    key = f"{int(inside)}/{protocol or 'tcp'}"
    _ensure_object(body, "ExposedPorts")[key] = {}
    binding = {"HostIp": address.strip("[]"), "HostPort": str(int(outside)) if outside else ""}
    _append_value(_ensure_object(host, "PortBindings"), key, binding)


_Converter = Callable[[str], object]
_CONFIG_OPTIONS: Mapping[str, tuple[str, _Converter]] = {
    "hostname": ("Hostname", str),
    "stop-signal": ("StopSignal", str),
    "user": ("User", str),
    "workdir": ("WorkingDir", str),
}
_HOST_OPTIONS: Mapping[str, tuple[str, _Converter]] = {
    "cpus": ("NanoCpus", lambda value: round(float(value) * 1e9)),
    "cpuset-cpus": ("CpusetCpus", str),
    "init": ("Init", _parse_flag),
    "memory": ("Memory", _parse_memory_size),
    "memory-swap": ("MemorySwap", _parse_memory_size),
    "oom-score-adj": ("OomScoreAdj", int),
    "pid": ("PidMode", str),
    "pids-limit": ("PidsLimit", int),
    "privileged": ("Privileged", _parse_flag),
    "read-only": ("ReadonlyRootfs", _parse_flag),
    "runtime": ("Runtime", str),
}
_HOST_LIST_OPTIONS: Mapping[str, str] = {
    "add-host": "ExtraHosts",
    "cap-add": "CapAdd",
    "cap-drop": "CapDrop",
    "group-add": "GroupAdd",
    "security-opt": "SecurityOpt",
}
_OPTION_HANDLERS: Mapping[str, Callable[[Body, Body, str], None]] = {
    "log-driver": _apply_log_driver,
    "log-opt": _apply_log_opt,
    "publish": _apply_publish,
    "tmpfs": _apply_tmpfs,
}


Pairs = tuple[tuple[str, str], ...]
_DEFAULT_SHM_BYTES = 64 * MIB  # Docker's default
_DEFAULT_IPC_MODES = ("", "private", "shareable")
_DEFAULT_NETWORK_MODES = ("", "default", "bridge")


def get_image_id(data: Json) -> str:
    """Return the id of a container's image."""
    return _get_text(data, "Image")


def parse_docker_run(data: Json, image: Json | None) -> DockerRunSpec:
    """Read ``GET /containers/ID/json``; ``image`` is the response for its image, None if the image is gone.

    Without the image, its own settings cannot be told from the requested ones, and are shown as well.
    """
    config, host = get_object(data, "Config"), get_object(data, "HostConfig")
    own = get_object(image or {}, "Config")
    entrypoint, command = _get_texts(config, "Entrypoint"), _get_texts(config, "Cmd")
    if image is not None and entrypoint == _get_texts(own, "Entrypoint"):
        entrypoint = []
        command = [] if command == _get_texts(own, "Cmd") else command
    cdi = [
        name
        for one in _get_objects(host, "DeviceRequests")
        if one.get("Driver") == "cdi"
        for name in _get_texts(one, "DeviceIDs")
    ]
    labels = tuple(sorted(set(_get_text_pairs(config, "Labels")) - set(_get_text_pairs(own, "Labels"))))
    shm = host.get("ShmSize")
    return DockerRunSpec(
        name=_get_text(data, "Name").lstrip("/"),
        image=_get_text(config, "Image"),
        entrypoint=entrypoint[0] if entrypoint else None,
        command=(*entrypoint[1:], *command),
        env=_parse_env(config, own),
        mounts=_parse_mounts(host),
        gpus=_parse_gpus(host),
        shm_size=format_docker_size(shm) if isinstance(shm, int) and shm not in (0, _DEFAULT_SHM_BYTES) else None,
        ipc=_drop_default(_get_text(host, "IpcMode"), _DEFAULT_IPC_MODES),
        network=_drop_default(_get_text(host, "NetworkMode"), _DEFAULT_NETWORK_MODES),
        ulimits=tuple(_parse_ulimits(host)),
        devices=(*_parse_devices(host), *cdi),
        options=tuple(_parse_options(config, host, own, _get_text(data, "Id"))),
        labels=labels,
    )


def parse_extra_options(data: Json) -> Pairs:
    """Read the settings without a field in `DockerRunSpec`: docker run flags with their values."""
    host, config = get_object(data, "HostConfig"), get_object(data, "Config")
    found: list[tuple[str, str]] = []
    if (policy := _get_text(get_object(host, "RestartPolicy"), "Name")) not in ("", "no"):
        found.append(("restart", policy))
    if host.get("AutoRemove") is True:
        found.append(("rm", "true"))
    for flag, field in _EXTRA_HOST_FIELDS:
        current = host.get(field)
        if isinstance(current, list):
            found += [(flag, str(one)) for one in current]
        elif isinstance(current, dict):
            found += [(flag, f"{name}={value}") for name, value in current.items()]
        elif current and current not in _DEFAULT_FIELD_VALUES:
            found.append((flag, str(current)))
    for one in _get_objects(host, "Mounts"):
        parts = [
            f"type={_get_text(one, 'Type')}",
            f"source={_get_text(one, 'Source')}",
            f"target={_get_text(one, 'Target')}",
        ]
        found.append(("mount", ",".join([*parts, *(["readonly"] if one.get("ReadOnly") is True else [])])))
    health = get_object(config, "Healthcheck")
    if (test := _get_texts(health, "Test")) and test != ["NONE"]:
        found.append(("health-cmd", " ".join(test[1:])))
    return tuple(found)


def format_docker_size(count: int) -> str:
    """Return ``32g``, ``512m`` or the bytes."""
    for unit, letter in ((GIB, "g"), (MIB, "m")):
        if count > 0 and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def _parse_env(config: Json, own: Json) -> Pairs:
    of_image = set(_get_texts(own, "Env"))
    pairs = (entry.partition("=")[::2] for entry in _get_texts(config, "Env") if entry not in of_image)
    return tuple((name, value) for name, value in pairs)


def _parse_mounts(host: Json) -> tuple[Mount, ...]:
    found = []
    for bind in _get_texts(host, "Binds"):
        source, _, rest = bind.partition(":")
        target, _, mode = rest.partition(":")
        found.append(Mount(source, target, "ro" in mode.split(",")))
    return tuple(found)


def _parse_gpus(host: Json) -> str | None:
    for one in _get_objects(host, "DeviceRequests"):
        if one.get("Driver") == "cdi":
            continue
        if devices := _get_texts(one, "DeviceIDs"):
            return f'"device={",".join(devices)}"'
        count = one.get("Count")
        return "all" if count == -1 else str(count)
    return None


def _parse_ulimits(host: Json) -> Iterator[tuple[str, str]]:
    for one in _get_objects(host, "Ulimits"):
        soft, hard = one.get("Soft"), one.get("Hard")
        yield _get_text(one, "Name"), str(soft) if soft == hard else f"{soft}:{hard}"


def _parse_devices(host: Json) -> Iterator[str]:
    for one in _get_objects(host, "Devices"):
        outside, inside, mode = (_get_text(one, key) for key in ("PathOnHost", "PathInContainer", "CgroupPermissions"))
        words = [outside] if inside in ("", outside) else [outside, inside]
        yield ":".join([*words, *([mode] if mode not in ("", "rwm") else [])])


def _parse_options(config: Json, host: Json, own: Json, key: str) -> Iterator[tuple[str, str]]:
    """Yield the other requested options, without Docker's defaults."""
    for option, field in (("user", "User"), ("workdir", "WorkingDir"), ("stop-signal", "StopSignal")):
        if (value := _get_text(config, field)) and value != _get_text(own, field):
            yield option, value
    if (name := _get_text(config, "Hostname")) and name != shorten_id(key) and _get_text(host, "NetworkMode") != "host":
        yield "hostname", name
    for option, field, format_value in _HOST_FIELD_FORMATS:
        current = host.get(field)
        if current and (words := format_value(current)) is not None:
            yield option, words
    for option, field in _HOST_LIST_FIELDS:
        yield from ((option, one) for one in _get_texts(host, field))
    log = get_object(host, "LogConfig")
    if (driver := _get_text(log, "Type")) not in ("", "json-file"):
        yield "log-driver", driver
    yield from (("log-opt", f"{name}={value}") for name, value in _get_text_pairs(log, "Config"))
    yield from (("tmpfs", f"{path}:{how}" if how else path) for path, how in _get_text_pairs(host, "Tmpfs"))
    for port, bindings in get_object(host, "PortBindings").items():
        for one in bindings if isinstance(bindings, list) else []:
            if isinstance(one, dict):
                inside = port.removesuffix("/tcp")
                yield (
                    "publish",
                    ":".join(part for part in (_get_text(one, "HostIp"), _get_text(one, "HostPort"), inside) if part),
                )


def _format_boolean(value: object) -> str | None:
    return "true" if value is True else None


def _format_bytes(value: object) -> str | None:
    return format_docker_size(value) if isinstance(value, int) else None


def _format_cpus(value: object) -> str | None:
    return f"{value / 1e9:g}" if isinstance(value, int) else None


def _format_option(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "runc" else None


_HOST_FIELD_FORMATS: tuple[tuple[str, str, Callable[[object], str | None]], ...] = (
    ("cpus", "NanoCpus", _format_cpus),
    ("cpuset-cpus", "CpusetCpus", _format_option),
    ("init", "Init", _format_boolean),
    ("memory", "Memory", _format_bytes),
    ("memory-swap", "MemorySwap", _format_bytes),
    ("oom-score-adj", "OomScoreAdj", _format_option),
    ("pid", "PidMode", _format_option),
    ("pids-limit", "PidsLimit", _format_option),
    ("privileged", "Privileged", _format_boolean),
    ("read-only", "ReadonlyRootfs", _format_boolean),
    ("runtime", "Runtime", _format_option),
)
_EXTRA_HOST_FIELDS = (
    ("dns", "Dns"), ("dns-search", "DnsSearch"), ("dns-option", "DnsOptions"), ("sysctl", "Sysctls"), ("cgroupns", "CgroupnsMode"),
    ("cpu-shares", "CpuShares"), ("cpu-period", "CpuPeriod"), ("cpu-quota", "CpuQuota"), ("cpuset-mems", "CpusetMems"),
    ("memory-reservation", "MemoryReservation"), ("blkio-weight", "BlkioWeight"), ("userns", "UsernsMode"), ("uts", "UTSMode"),
    ("volumes-from", "VolumesFrom"), ("link", "Links"), ("storage-opt", "StorageOpt"), ("device-cgroup-rule", "DeviceCgroupRules"),
    ("oom-kill-disable", "OomKillDisable"), ("cgroup-parent", "CgroupParent"),
)  # fmt: skip
_DEFAULT_FIELD_VALUES = ("private", "host:host")
_HOST_LIST_FIELDS = (
    ("add-host", "ExtraHosts"),
    ("cap-add", "CapAdd"),
    ("cap-drop", "CapDrop"),
    ("group-add", "GroupAdd"),
    ("security-opt", "SecurityOpt"),
)


def _drop_default(value: str, usual: tuple[str, ...]) -> str | None:
    return None if value in usual else value


def _get_text(data: Json, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _get_texts(data: Json, key: str) -> list[str]:
    value = data.get(key)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _get_text_pairs(data: Json, key: str) -> Pairs:
    return tuple((name, value) for name, value in get_object(data, key).items() if isinstance(value, str))


def _get_objects(data: Json, key: str) -> list[Json]:
    value = data.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
