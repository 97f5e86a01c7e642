"""From what Docker tells of a container back to what `docker run` was given: the other way round of `docker_body`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparkctl.model.launch_plan import DockerRunSpec, Mount
from sparkctl.model.units import GIB, MIB

Json = Mapping[str, object]
Pairs = tuple[tuple[str, str], ...]
_SHM = 64 * MIB  # what Docker gives where nothing is said
_IPC = ("", "private", "shareable")
_NETWORK = ("", "default", "bridge")


def image_id(data: Json) -> str:
    """Return the id of a container's image."""
    return _text(data, "Image")


def parse_docker_run(data: Json, image: Json | None) -> DockerRunSpec:
    """Read ``GET /containers/ID/json``; ``image`` is what Docker tells of its image, None where that is gone.

    Without the image what it sets itself cannot be told from what was asked for, and is shown as well.
    """
    config, host = _part(data, "Config"), _part(data, "HostConfig")
    own = _part(image or {}, "Config")
    entrypoint, command = _texts(config, "Entrypoint"), _texts(config, "Cmd")
    if image is not None and entrypoint == _texts(own, "Entrypoint"):
        entrypoint = []
        command = [] if command == _texts(own, "Cmd") else command
    cdi = [
        name
        for one in _entries(host, "DeviceRequests")
        if one.get("Driver") == "cdi"
        for name in _texts(one, "DeviceIDs")
    ]
    labels = tuple(sorted(set(_texts_by_name(config, "Labels")) - set(_texts_by_name(own, "Labels"))))
    shm = host.get("ShmSize")
    return DockerRunSpec(
        _text(data, "Name").lstrip("/"), _text(config, "Image"), entrypoint[0] if entrypoint else None,
        (*entrypoint[1:], *command), _env(config, own), _mounts(host), _gpus(host),
        format_docker_size(shm) if isinstance(shm, int) and shm not in (0, _SHM) else None,
        _non_default(_text(host, "IpcMode"), _IPC), _non_default(_text(host, "NetworkMode"), _NETWORK),
        tuple(_ulimits(host)), (*_devices(host), *cdi), tuple(_options(config, host, own, _text(data, "Id"))), labels,
    )  # fmt: skip


def parse_extra_options(data: Json) -> Pairs:
    """Read the settings that `DockerRun` has no field for: docker run flags with their values."""
    host, config = _part(data, "HostConfig"), _part(data, "Config")
    found: list[tuple[str, str]] = []
    if (policy := _text(_part(host, "RestartPolicy"), "Name")) not in ("", "no"):
        found.append(("restart", policy))
    if host.get("AutoRemove") is True:
        found.append(("rm", "true"))
    for flag, field in _BEYOND:
        said = host.get(field)
        if isinstance(said, list):
            found += [(flag, str(one)) for one in said]
        elif isinstance(said, dict):
            found += [(flag, f"{name}={value}") for name, value in said.items()]
        elif said and said not in _USUAL:
            found.append((flag, str(said)))
    for one in _entries(host, "Mounts"):
        parts = [f"type={_text(one, 'Type')}", f"source={_text(one, 'Source')}", f"target={_text(one, 'Target')}"]
        found.append(("mount", ",".join([*parts, *(["readonly"] if one.get("ReadOnly") is True else [])])))
    health = _part(config, "Healthcheck")
    if (test := _texts(health, "Test")) and test != ["NONE"]:
        found.append(("health-cmd", " ".join(test[1:])))
    return tuple(found)


def format_docker_size(count: int) -> str:
    """Return ``32g``, ``512m`` or the bytes."""
    for unit, letter in ((GIB, "g"), (MIB, "m")):
        if count > 0 and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def _env(config: Json, own: Json) -> Pairs:
    of_image = set(_texts(own, "Env"))
    pairs = (entry.partition("=")[::2] for entry in _texts(config, "Env") if entry not in of_image)
    return tuple((name, value) for name, value in pairs)


def _mounts(host: Json) -> tuple[Mount, ...]:
    found = []
    for bind in _texts(host, "Binds"):
        source, _, rest = bind.partition(":")
        target, _, mode = rest.partition(":")
        found.append(Mount(source, target, "ro" in mode.split(",")))
    return tuple(found)


def _gpus(host: Json) -> str | None:
    for one in _entries(host, "DeviceRequests"):
        if one.get("Driver") == "cdi":
            continue
        if devices := _texts(one, "DeviceIDs"):
            return f'"device={",".join(devices)}"'
        count = one.get("Count")
        return "all" if count == -1 else str(count)
    return None


def _ulimits(host: Json) -> Iterator[tuple[str, str]]:
    for one in _entries(host, "Ulimits"):
        soft, hard = one.get("Soft"), one.get("Hard")
        yield _text(one, "Name"), str(soft) if soft == hard else f"{soft}:{hard}"


def _devices(host: Json) -> Iterator[str]:
    for one in _entries(host, "Devices"):
        outside, inside, mode = (_text(one, key) for key in ("PathOnHost", "PathInContainer", "CgroupPermissions"))
        words = [outside] if inside in ("", outside) else [outside, inside]
        yield ":".join([*words, *([mode] if mode not in ("", "rwm") else [])])


def _options(config: Json, host: Json, own: Json, key: str) -> Iterator[tuple[str, str]]:
    """Yield what was asked for beside; what Docker says of every container is left out."""
    for option, field in (("user", "User"), ("workdir", "WorkingDir"), ("stop-signal", "StopSignal")):
        if (value := _text(config, field)) and value != _text(own, field):
            yield option, value
    if (name := _text(config, "Hostname")) and name != key[:12] and _text(host, "NetworkMode") != "host":
        yield "hostname", name
    for option, field, told in _PLAIN:
        said = host.get(field)
        if said and (words := told(said)) is not None:
            yield option, words
    for option, field in _LISTS:
        yield from ((option, one) for one in _texts(host, field))
    log = _part(host, "LogConfig")
    if (driver := _text(log, "Type")) not in ("", "json-file"):
        yield "log-driver", driver
    yield from (("log-opt", f"{name}={value}") for name, value in _texts_by_name(log, "Config"))
    yield from (("tmpfs", f"{path}:{how}" if how else path) for path, how in _texts_by_name(host, "Tmpfs"))
    for port, bindings in _part(host, "PortBindings").items():
        for one in bindings if isinstance(bindings, list) else []:
            if isinstance(one, dict):
                inside = port.removesuffix("/tcp")
                yield (
                    "publish",
                    ":".join(part for part in (_text(one, "HostIp"), _text(one, "HostPort"), inside) if part),
                )


def _boolean_flag(value: object) -> str | None:
    return "true" if value is True else None


def _bytes(value: object) -> str | None:
    return format_docker_size(value) if isinstance(value, int) else None


def _cpus(value: object) -> str | None:
    return f"{value / 1e9:g}" if isinstance(value, int) else None


def _option_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "runc" else None


_PLAIN: tuple[tuple[str, str, Callable[[object], str | None]], ...] = (
    ("cpus", "NanoCpus", _cpus), ("cpuset-cpus", "CpusetCpus", _option_text), ("init", "Init", _boolean_flag), ("memory", "Memory", _bytes),
    ("memory-swap", "MemorySwap", _bytes), ("oom-score-adj", "OomScoreAdj", _option_text), ("pid", "PidMode", _option_text),
    ("pids-limit", "PidsLimit", _option_text), ("privileged", "Privileged", _boolean_flag), ("read-only", "ReadonlyRootfs", _boolean_flag),
    ("runtime", "Runtime", _option_text),
)  # fmt: skip
_BEYOND = (
    ("dns", "Dns"), ("dns-search", "DnsSearch"), ("dns-option", "DnsOptions"), ("sysctl", "Sysctls"), ("cgroupns", "CgroupnsMode"),
    ("cpu-shares", "CpuShares"), ("cpu-period", "CpuPeriod"), ("cpu-quota", "CpuQuota"), ("cpuset-mems", "CpusetMems"),
    ("memory-reservation", "MemoryReservation"), ("blkio-weight", "BlkioWeight"), ("userns", "UsernsMode"), ("uts", "UTSMode"),
    ("volumes-from", "VolumesFrom"), ("link", "Links"), ("storage-opt", "StorageOpt"), ("device-cgroup-rule", "DeviceCgroupRules"),
    ("oom-kill-disable", "OomKillDisable"), ("cgroup-parent", "CgroupParent"),
)  # fmt: skip
_USUAL = ("private", "host:host")
_LISTS = (
    ("add-host", "ExtraHosts"), ("cap-add", "CapAdd"), ("cap-drop", "CapDrop"), ("group-add", "GroupAdd"),
    ("security-opt", "SecurityOpt"),
)  # fmt: skip


def _non_default(value: str, usual: tuple[str, ...]) -> str | None:
    return None if value in usual else value


def _text(data: Json, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _part(data: Json, key: str) -> Json:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _texts(data: Json, key: str) -> list[str]:
    value = data.get(key)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _texts_by_name(data: Json, key: str) -> Pairs:
    return tuple((name, value) for name, value in _part(data, key).items() if isinstance(value, str))


def _entries(data: Json, key: str) -> list[Json]:
    value = data.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
