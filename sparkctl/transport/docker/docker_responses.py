"""Parses Docker's JSON responses. Missing values are None."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address, ip_network

from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json, truncate_text

Json = Mapping[str, object]
_ZERO_TIME = "0001-01-01"  # Go's zero time
MAX_NAME_CHARS = (
    256  # characters of a name, a status or a label: real ones are far shorter; longer ones are cut with an ellipsis
)
_MAX_IMAGE_CHARS = 512
_MAX_PORT = 65535
_PORT_PATTERN = re.compile(r"[0-9]{1,5}")
_NUMBER_LIMIT = 1 << 62  # bytes, seconds: Go's int64
_MAX_ERROR_CHARS = 4096
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "amd64": "amd64"}  # uname's word: Docker's
_LONG_LABELS = frozenset(
    {
        ContainerLabel.READY,
        ContainerLabel.PER_STEP,
        ContainerLabel.REFERENCE,
        ContainerLabel.NODES,
        ContainerLabel.BUILD,
    }
)  # they hold more than a name; after a cut they would not be readable
_MAX_LONG_LABEL_CHARS = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerInfo:
    """The Docker Engine's own description. ``insecure_registries``: those that it asks without proof of who they are, as hosts and as
    networks.
    """

    server_version: str
    api_version: str
    architecture: str | None
    root_dir: str | None
    storage_driver: str | None
    runtimes: tuple[str, ...]
    insecure_registries: tuple[str, ...] = ()

    @property
    def machine(self) -> str | None:
        """The node's processor in an image's word (arm64); None: not known."""
        return _ARCHITECTURES.get(self.architecture or "")

    def is_insecure_registry(self, registry: str) -> bool:
        """Tell whether it asks a registry, ``HOST`` or ``HOST:PORT``, without proof of who that is."""
        host = registry.rpartition(":")[0].strip("[]") or registry if ":" in registry else registry
        if registry in self.insecure_registries or host == "localhost":
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or any(
            "/" in one and address in ip_network(one, strict=False) for one in self.insecure_registries
        )

    def is_wrong_for(self, image: ImageInfo) -> bool:
        """Tell whether an image is certainly for another processor."""
        known = self.machine is not None and image.architecture in _ARCHITECTURES.values()
        return known and image.architecture != self.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image on the node. ``architecture`` in Go's spelling: arm64, amd64. ``size`` in bytes.

    ``content``: a hash of its layers and settings, equal on all nodes, whatever image store their Docker uses for ids.
    ``built_from``: of an image that `pull` built, from what.
    """

    id: str
    architecture: str | None
    size: int | None
    content: str | None = None
    built_from: str | None = None

    def is_same_image(self, other: ImageInfo) -> bool:
        """Tell whether it is the same image on another node."""
        return self.id == other.id or (self.content is not None and self.content == other.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image in the list of a node. ``names`` with their tags; none: it is dangling. ``size`` in bytes, layers that
    others share included. ``created``: when it was made, in unix seconds. ``built_from`` as in `ImageInfo`.
    """

    id: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    size: int | None
    created: float | None
    built_from: str | None


def parse_info(data: Json, api_version: str) -> DockerInfo:
    """Read ``GET /info``."""
    runtimes = data.get("Runtimes")
    return DockerInfo(
        server_version=_get_text(data, "ServerVersion") or "unknown",
        api_version=api_version,
        architecture=_get_text(data, "Architecture"),
        root_dir=_get_text(data, "DockerRootDir"),
        storage_driver=_get_text(data, "Driver"),
        runtimes=tuple(sorted(str(name) for name in runtimes)) if isinstance(runtimes, dict) else (),
        insecure_registries=_parse_insecure_registries(get_object(data, "RegistryConfig")),
    )


def _parse_insecure_registries(data: Json) -> tuple[str, ...]:
    hosts = [
        name
        for name, one in get_object(data, "IndexConfigs").items()
        if isinstance(one, dict) and one.get("Secure") is False
    ]
    networks = data.get("InsecureRegistryCIDRs")
    found = hosts
    for one in networks if isinstance(networks, list) else []:
        with suppress(ValueError):
            found.append(str(ip_network(str(one), strict=False)))
    return tuple(found)


def parse_image(data: Json) -> ImageInfo:
    """Read ``GET /images/NAME/json``."""
    layers, config = get_object(data, "RootFS").get("Layers"), get_object(data, "Config")
    content = None
    if isinstance(layers, list) and layers:
        settings = {name: config.get(name) or None for name in ("Env", "Cmd", "Entrypoint", "WorkingDir", "User")}
        text = json.dumps([layers, settings, data.get("Architecture")], sort_keys=True)
        content = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    labels = dict(_parse_labels(config.get("Labels")))
    return ImageInfo(
        id=_get_text(data, "Id") or "",
        architecture=_get_text(data, "Architecture"),
        size=_get_number(data, "Size"),
        content=content,
        built_from=labels.get(ContainerLabel.BUILD),
    )


def parse_image_entry(data: Json) -> StoredImage:
    """Read one entry of ``GET /images/json``."""
    names = (truncate_text(name, _MAX_IMAGE_CHARS) for name in _keep_texts(data.get("RepoTags")))
    created = _get_number(data, "Created")
    return StoredImage(
        id=_get_text(data, "Id") or "",
        names=tuple(sorted(name for name in names if name != "<none>:<none>")),
        digests=tuple(name for name in _keep_texts(data.get("RepoDigests")) if not name.startswith("<none>")),
        size=_get_number(data, "Size"),
        created=None if created is None or created <= 0 else float(created),
        built_from=dict(_parse_labels(data.get("Labels"))).get(ContainerLabel.BUILD),
    )


def parse_container_entry(data: Json) -> Container:
    """Read one entry of ``GET /containers/json``."""
    names = data.get("Names")
    name = str(names[0]).lstrip("/") if isinstance(names, list) and names else ""
    return Container(
        id=_get_text(data, "Id") or "",
        name=truncate_text(name, MAX_NAME_CHARS),
        image=truncate_text(_get_text(data, "Image") or "", _MAX_IMAGE_CHARS),
        state=_parse_state(_get_text(data, "State")),
        status=truncate_text(_get_text(data, "Status") or "", MAX_NAME_CHARS),
        created=float(_get_number(data, "Created") or 0),
        labels=_parse_labels(data.get("Labels")),
        image_id=_get_text(data, "ImageID"),
        ports=_parse_listed_ports(data.get("Ports")),
    )


def parse_container(data: Json) -> Container:
    """Read ``GET /containers/ID/json``. The exit code is set only for a container that has run and ended."""
    state, config, host = get_object(data, "State"), get_object(data, "Config"), get_object(data, "HostConfig")
    now = _parse_state(_get_text(state, "Status"))
    ended = now in (ContainerState.EXITED, ContainerState.DEAD, ContainerState.RESTARTING)
    failed_to_start = now is ContainerState.CREATED and bool(_get_number(state, "ExitCode"))
    code = _get_number(state, "ExitCode") if ended or failed_to_start else None
    return Container(
        id=_get_text(data, "Id") or "",
        name=truncate_text((_get_text(data, "Name") or "").lstrip("/"), MAX_NAME_CHARS),
        image=truncate_text(_get_text(config, "Image") or "", _MAX_IMAGE_CHARS),
        state=now,
        status=f"Exited ({code})" if now is ContainerState.EXITED else str(now).capitalize(),
        created=parse_docker_time(data.get("Created")) or 0.0,
        labels=_parse_labels(config.get("Labels")),
        image_id=_get_text(data, "Image"),
        started=parse_docker_time(state.get("StartedAt")),
        finished=parse_docker_time(state.get("FinishedAt")) if ended else None,
        exit_code=code,
        oom_killed=bool(state["OOMKilled"]) if "OOMKilled" in state else None,
        error=truncate_text(_get_text(state, "Error") or "", _MAX_ERROR_CHARS) or None,
        ports=_parse_inspected_ports(get_object(data, "NetworkSettings").get("Ports")),
        tty=bool(config.get("Tty")),
        restart_count=_get_number(data, "RestartCount"),
        nccl=_parse_nccl_variables(config.get("Env")),
        shares_shm=host.get("IpcMode") == "host"
        or any(one.startswith("/dev/shm:") for one in _keep_texts(host.get("Binds"))),  # noqa: S108
    )


def parse_secret_values(data: Json) -> frozenset[str]:
    """Read the secret values out of ``GET /containers/ID/json``: environment, entry point, command, log options."""
    from sparkctl.model.text.secrets import find_secret_arguments, find_secret_values  # not for a list of containers

    config, log = get_object(data, "Config"), get_object(get_object(data, "HostConfig"), "LogConfig")
    pairs = [text.partition("=")[::2] for text in _keep_texts(config.get("Env"))]
    pairs += [(key, value) for key, value in get_object(log, "Config").items() if isinstance(value, str)]
    return find_secret_values(pairs) | find_secret_arguments(
        [*_keep_texts(config.get("Entrypoint")), *_keep_texts(config.get("Cmd"))]
    )


def parse_docker_time(value: object) -> float | None:
    """Return unix seconds for Docker's RFC 3339 with nanoseconds; None for Go's zero time and for anything else."""
    if not isinstance(value, str) or value.startswith(_ZERO_TIME):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return None


def _parse_state(word: str | None) -> ContainerState:
    """Return Docker's state; an unknown word does not count as a running container."""
    return next((state for state in ContainerState if state == word), ContainerState.UNKNOWN)


def _parse_labels(value: object) -> tuple[tuple[str, str], ...]:
    """Return our labels, cut if they are too long; others are not needed, and may be many and long."""
    own = value.items() if isinstance(value, dict) else ()
    return tuple(
        sorted(
            (key, truncate_text(str(text), _MAX_LONG_LABEL_CHARS if key in _LONG_LABELS else MAX_NAME_CHARS))
            for key, text in own
            if key.startswith(ContainerLabel.PREFIX) and len(key) <= MAX_NAME_CHARS
        )
    )


def _parse_listed_ports(value: object) -> tuple[int, ...]:
    entries = value if isinstance(value, list) else []
    found = (entry.get("PublicPort") for entry in entries if isinstance(entry, dict))
    return tuple(sorted({port for port in found if type(port) is int and 0 < port <= _MAX_PORT}))


def _parse_inspected_ports(value: object) -> tuple[int, ...]:
    bindings = value.values() if isinstance(value, dict) else ()
    found = {str(one.get("HostPort")) for some in bindings for one in some or () if isinstance(one, dict)}
    return tuple(sorted(int(port) for port in found if _PORT_PATTERN.fullmatch(port) and 0 < int(port) <= _MAX_PORT))


def _parse_nccl_variables(env: object) -> tuple[tuple[str, str], ...]:
    """Return the NCCL variables; the rest of the environment is dropped."""
    pairs = (text.partition("=")[::2] for text in _keep_texts(env) if text.startswith("NCCL_IB_"))
    return tuple(sorted((name, value) for name, value in pairs))


def _keep_texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def get_object(data: Json, key: str) -> Json:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _get_text(data: Json, key: str) -> str | None:
    value = data.get(key)
    return value if isinstance(value, str) else None


def _get_number(data: Json, key: str) -> int | None:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < _NUMBER_LIMIT else None


def find_stop_signals(events: bytes) -> tuple[int, ...] | None:
    """Return the signals of a container's `kill` events; None without its `die` event, as older events may be gone, too."""
    signals: list[int] = []
    has_end = False
    for line in events.splitlines():
        try:
            event = load_json(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        actor = event.get("Actor")
        attributes = actor.get("Attributes") if isinstance(actor, dict) else None
        signal = str(attributes.get("signal", "")) if isinstance(attributes, dict) else ""
        if event.get("Action") == "kill" and signal.isdecimal() and len(signal) < 4:
            signals.append(int(signal))
        has_end = has_end or event.get("Action") == "die"
    return tuple(signals) if signals or has_end else None
