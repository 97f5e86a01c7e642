"""Import a service of a compose file: its keys become the docker run flags with the same meaning."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.errors import InvalidInput, format_did_you_mean
from sparkctl.profiles.env_references import convert_compose_references, resolve_defaults
from sparkctl.profiles.importers import docker_flags
from sparkctl.profiles.importers.engine_command import parse_engine_command
from sparkctl.profiles.importers.foreign_yaml import (
    as_mapping,
    describe_kind,
    is_empty_value,
    is_truthy,
    scalar_text,
    scalar_texts,
    to_json_data,
)
from sparkctl.profiles.importers.profile_draft import ImportReport, ProfileDraft, SourceFormat
from sparkctl.profiles.importers.shell_parser import find_sole_shell_script, parse_shell

_DOCKER_FLAGS = {  # keys with one value, or a list of values, and the docker run flag of the same meaning
    "container_name": "name", "shm_size": "shm-size", "ipc": "ipc", "network_mode": "network", "devices": "device",
    "cap_add": "cap-add", "cap_drop": "cap-drop", "security_opt": "security-opt", "user": "user",
    "working_dir": "workdir", "hostname": "hostname", "extra_hosts": "add-host", "tmpfs": "tmpfs", "init": "init",
    "privileged": "privileged", "read_only": "read-only", "runtime": "runtime", "pid": "pid", "mem_limit": "memory",
    "memswap_limit": "memory-swap", "cpus": "cpus", "cpuset": "cpuset-cpus", "pids_limit": "pids-limit",
    "oom_score_adj": "oom-score-adj", "group_add": "group-add", "stop_signal": "stop-signal", "env_file": "env-file",
    "stop_grace_period": "stop-timeout", "restart": "restart", "platform": "platform", "tty": "tty", "stdin_open": "interactive",
    "pull_policy": "pull", "userns_mode": "userns",
}  # fmt: skip
_SPREAD_DEFAULT = re.compile(r"(?<!\$)\$\{(?P<name>[A-Za-z_]\w*):?-(?P<default>|[^{}\s]*\s[^{}]*)\}")
_TOP_LEVEL_KEYS = ("version", "name", "services", "volumes", "networks", "configs", "secrets")


def is_compose_file(data: Mapping[str, Any]) -> bool:
    services = data.get("services")
    return isinstance(services, dict) and any(
        isinstance(one, dict) and ("image" in one or "build" in one or "extends" in one) for one in services.values()
    )


def import_compose(
    data: dict[str, Any], ledger: ImportReport, service: str | None, defined: Mapping[str, str]
) -> ProfileDraft:
    """Return the draft of one service. Raises `InvalidInput` if it is not clear which, or the service has no image."""
    services = as_mapping(data.get("services"))
    name = _select_service(services, service)
    body = as_mapping(services[name])
    draft = ProfileDraft(kind=SourceFormat.COMPOSE, ledger=ledger, name=name)
    reader = _ComposeReader(draft, defined)
    reader.read_service(body)
    for other in services:
        if other != name:
            ledger.add_unsupported(f"services.{other}", f"one service is read; --service {other} reads this one")
    for key, value in data.items():
        if key == "x-sparkctl":
            draft.beside, draft.beside_key = scalar_text(value) or "", key
        elif key not in _TOP_LEVEL_KEYS and not is_empty_value(value):
            ledger.keep_extra(key, to_json_data(value), "not part of the service")
        elif key in ("configs", "secrets") and not is_empty_value(value):
            ledger.add_unsupported(key, "a profile has no such files; mount them")
        elif key in ("volumes", "networks"):
            for one, body in as_mapping(value).items():
                if is_empty_value(body):
                    ledger.add_mapped(f"{key}.{one}", "nothing: Docker's own settings")
                else:
                    ledger.add_unsupported(
                        f"{key}.{one}", "Docker makes it with its own settings, or it is there already"
                    )
        elif key != "services":
            ledger.add_mapped(key, "nothing: how the file is read")
    if draft.image is None:
        raise InvalidInput(f"the service {name} names no image", "build it first, and write its image: into the file")
    return draft


def _select_service(services: Mapping[str, Any], service: str | None) -> str:
    if service is not None:
        if service not in services:
            raise InvalidInput(
                f"there is no service {service}{format_did_you_mean(service, services)}",
                f"there are {', '.join(services)}",
            )
        return service
    with_image = [
        name for name, body in services.items() if isinstance(body, dict) and ("image" in body or "build" in body)
    ]
    engines = [name for name in with_image if len(with_image) > 1 and _starts_engine(services[name])]
    if len(choice := engines or with_image) == 1:
        return choice[0]
    raise InvalidInput(
        f"the file has {len(with_image)} services: {', '.join(with_image)}",
        " or ".join(f"--service {name}" for name in choice[:3]) or "--service NAME",
    )


def _starts_engine(body: Mapping[str, Any]) -> bool:
    """Tell whether a service starts an engine that sparkctl knows."""
    words: list[str] = []
    for key in ("entrypoint", "command"):
        value = body.get(key)
        words += scalar_texts(value) if isinstance(value, list) else _split_words(scalar_text(value) or "")
    script = find_sole_shell_script(words) if words else None
    commands = [[word.text for word in one.words] for one in parse_shell(script or "")]
    image = scalar_text(body.get("image")) or ""
    return any(parse_engine_command(one, image, None).engine != FALLBACK_ENGINE for one in (words, *commands))


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote left open: told where the command is read
        return text.split()


class _ComposeReader:
    def __init__(self, draft: ProfileDraft, defined: Mapping[str, str]) -> None:
        self.draft, self.defined = draft, defined
        self.ledger = draft.ledger

    def read_service(self, body: dict[str, Any]) -> None:
        for key, value in body.items():
            before = len(self.ledger.accounts)
            if is_empty_value(value) and key not in ("command", "entrypoint"):
                self.ledger.add_mapped(key, "nothing: it is empty")
            elif key in _KEY_READERS:
                _KEY_READERS[key](self, key, value)
            elif key in _DOCKER_FLAGS:
                self._read_flag(key, value)
            elif key.startswith("x-"):
                self.ledger.keep_extra(key, to_json_data(value), "a private extension of the file")
            else:
                self.ledger.keep_extra(key, to_json_data(value), "a profile has no such field")
            if len(self.ledger.accounts) == before:
                self.ledger.add_malformed(key, f"{key} cannot be {describe_kind(value)}")

    def to_profile_text(self, value: object) -> str:
        """Return a scalar in a profile's notation: ``${NAME}`` is an environment variable, ``$$`` a dollar sign."""
        return convert_compose_references(scalar_text(value) or "", self.defined)

    def apply_flag(self, flag: str, value: str, key: str) -> None:
        docker_flags.apply_docker_flag(self.draft, flag, value, key)

    def _read_flag(self, key: str, value: object) -> None:
        pairs = as_mapping(value) if isinstance(value, dict) else None
        if pairs is not None:
            for name, one in pairs.items():
                self.apply_flag(
                    _DOCKER_FLAGS[key],
                    self.to_profile_text(f"{name}:{scalar_text(one) or ''}"),
                    f"{key}.{name}",
                )
            return
        values = value if isinstance(value, list) else [value]
        for one in values:
            is_raw = key != "env_file"
            if isinstance(one, dict) and key == "env_file":
                mapping = as_mapping(one)
                one, is_raw = mapping.get("path"), scalar_text(mapping.get("format")) == "raw"
            self.apply_flag(
                _DOCKER_FLAGS[key],
                self.to_profile_text(one),
                f"{key} {scalar_text(one)}" if len(values) > 1 else key,
            )
            if not is_raw:
                self.ledger.add_remark(
                    "env_file: compose takes off quotes and comments and fills in $NAME; a profile passes the values as they "
                    "are. `sparkctl profiles check FILE` names such lines.",
                    "env_file",
                )

    def read_image(self, key: str, value: object) -> None:
        image = resolve_defaults(self.to_profile_text(value))
        if image is None:
            raise InvalidInput(f"the image {scalar_text(value)} depends on a variable", "--define NAME=VALUE gives it")
        self.draft.image = image
        self.ledger.add_mapped(key, "image")

    def read_command(self, key: str, value: object) -> None:
        found = self._split_command_words(value)
        if key == "entrypoint":
            if found:
                self.draft.entrypoint = found[0]
                self.draft.words = [*found[1:], *(self.draft.words or [])]
            self.ledger.add_mapped(key, "container.entrypoint")
            return
        self.draft.words = [*(self.draft.words or []), *found] or None
        self.ledger.add_mapped(key, "command, args")

    def _split_command_words(self, value: object) -> list[str]:
        if value is None:
            return []
        if isinstance(value, list):
            return [self.to_profile_text(one) for one in value]
        text = _SPREAD_DEFAULT.sub(self._spread_default, (scalar_text(value) or "").replace("\\\n", " "))
        try:
            return [self.to_profile_text(word) for word in shlex.split(text)]
        except ValueError as error:
            raise InvalidInput(f"the command cannot be read: {error}", "is a quote left open?") from error

    def _spread_default(self, match: re.Match[str]) -> str:
        """Return what a default of no word, or of several, adds to a command: compose inserts it before it splits words."""
        name, default = match["name"], match["default"]
        if name in self.defined:
            return self.defined[name]
        self.ledger.add_remark(
            f"{name}: not set in the text; the default stands, or nothing; --define {name}=VALUE gives it."
        )
        return default

    def read_environment(self, key: str, value: object) -> None:
        for name, one in as_mapping(value).items():
            text = scalar_text(one)
            if text is None and one is not None:
                self.ledger.add_malformed(f"{key}.{name}", f"a variable cannot be {describe_kind(one)}")
                continue
            self.apply_flag("env", name if text is None else f"{name}={self.to_profile_text(text)}", f"{key}.{name}")

    def read_volumes(self, key: str, value: object) -> None:
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                self.apply_flag("volume", self._shorten_home(self.to_profile_text(one)), f"{key} {scalar_text(one)}")
                continue
            mapping = as_mapping(one)
            kind, source = (
                scalar_text(mapping.get("type")) or "volume",
                self._shorten_home(self.to_profile_text(mapping.get("source"))),
            )
            mode = ",readonly" if is_truthy(mapping.get("read_only")) else ""
            named = f"{key} {source}"
            self.apply_flag(
                "mount",
                f"type={kind},source={source},target={self.to_profile_text(mapping.get('target'))}{mode}",
                named,
            )
            for more in mapping:
                if more not in ("type", "source", "target", "read_only"):
                    self.ledger.add_unsupported(f"{named}.{more}", "a profile's mounts are only :ro or not")

    def _shorten_home(self, text: str) -> str:
        return "~" + text[len("${HOME}") :] if text.startswith("${HOME}") else text

    def read_ports(self, key: str, value: object) -> None:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                mapping = as_mapping(one)
                text = f"{self.to_profile_text(mapping.get('published'))}:{self.to_profile_text(mapping.get('target'))}".lstrip(
                    ":"
                )
                if scalar_text(mapping.get("host_ip")):
                    text = f"{scalar_text(mapping['host_ip'])}:{text}"
                text += f"/{scalar_text(mapping['protocol'])}" if scalar_text(mapping.get("protocol")) else ""
            else:
                text = self.to_profile_text(one)
            self.apply_flag("publish", text, f"{key} {text}")

    def read_ulimits(self, key: str, value: object) -> None:
        for name, one in as_mapping(value).items():
            limits = as_mapping(one)
            text = (
                f"{scalar_text(limits.get('soft'))}:{scalar_text(limits.get('hard'))}" if limits else scalar_text(one)
            )
            self.apply_flag("ulimit", f"{name}={text}", f"{key}.{name}")

    def read_gpus(self, key: str, value: object) -> None:
        if not isinstance(value, list):
            self.apply_flag("gpus", self.to_profile_text(value), key)
            return
        self._read_gpu_reservations(key, value)

    def _read_gpu_reservations(self, key: str, value: object) -> None:
        """A reservation of GPUs: ``{driver: nvidia, count: all, capabilities: [gpu]}``."""
        for one in value if isinstance(value, list) else []:
            mapping = as_mapping(one)
            if scalar_text(mapping.get("driver")) == "cdi":
                for name in scalar_texts(mapping.get("device_ids")):
                    self.apply_flag("device", name, f"{key} {name}")
            elif ids := scalar_texts(mapping.get("device_ids")):
                self.apply_flag("gpus", f"device={','.join(ids)}", key)
            else:
                self.apply_flag("gpus", scalar_text(mapping.get("count")) or "all", key)
            for more in mapping:
                if more not in ("driver", "count", "device_ids", "capabilities"):
                    self.ledger.add_unsupported(f"{key}.{more}", "a profile names GPUs, nothing more")

    def read_deploy(self, key: str, value: object) -> None:
        for name, one in as_mapping(value).items():
            resources = as_mapping(one) if name == "resources" else {}
            if not resources:
                self.ledger.add_unsupported(f"{key}.{name}", "there is no swarm here")
            for part, limits in resources.items():
                for field, what in as_mapping(limits).items():
                    path = f"{key}.{name}.{part}.{field}"
                    if field == "devices":
                        self._read_gpu_reservations(path, what)
                    elif part == "limits" and field in ("memory", "cpus", "pids"):
                        self.apply_flag(
                            {"memory": "memory", "cpus": "cpus", "pids": "pids-limit"}[field],
                            self.to_profile_text(what),
                            path,
                        )
                    else:
                        self.ledger.add_unsupported(path, "a profile only limits, it reserves nothing")

    def read_healthcheck(self, key: str, value: object) -> None:
        for name, one in as_mapping(value).items():
            if name == "test":
                self.apply_flag("health-cmd", self.to_profile_text(" ".join(scalar_texts(one))), f"{key}.test")
            else:
                self.ledger.add_unsupported(
                    f"{key}.{name}", "sparkctl asks at its own pace; start.timeouts say how long"
                )

    def read_logging(self, key: str, value: object) -> None:
        mapping = as_mapping(value)
        for name, one in mapping.items():
            if name == "driver":
                self.apply_flag("log-driver", self.to_profile_text(one), f"{key}.driver")
            elif name == "options":
                for option, what in as_mapping(one).items():
                    self.apply_flag("log-opt", f"{option}={self.to_profile_text(what)}", f"{key}.options.{option}")
            else:
                self.ledger.add_unsupported(f"{key}.{name}", "docker run has no such option")

    def read_networks(self, key: str, value: object) -> None:
        names = scalar_texts(value) if isinstance(value, list) else list(as_mapping(value))
        if names == ["host"]:
            self.apply_flag("network", "host", key)
        else:
            self.ledger.add_unsupported(
                key, "a network of the file's own is not made; the engine is reached by its port"
            )

    def read_labels(self, key: str, value: object) -> None:
        for name in as_mapping(value):
            self.ledger.add_unsupported(f"{key}.{name}", "labels are how sparkctl knows its containers")

    def note_unsupported_key(self, key: str, value: object) -> None:
        why = {
            "depends_on": "what has to run first is `needs` in a profile: import those, and name them there",
            "build": "write where its Dockerfile is as `build` in the profile, and `sparkctl pull` builds it on the node",
            "links": "a network of the file's own is not made",
            "expose": "a port is reached as it is, or published",
            "scale": "one container a node",
            "profiles": "compose's own profiles choose services",
            "secrets": "a profile has no such files; mount them",
            "configs": "a profile has no such files; mount them",
        }[key]
        self.ledger.add_unsupported(key, why)


_KEY_READERS: dict[str, Callable[[_ComposeReader, str, Any], None]] = {
    "image": _ComposeReader.read_image,
    "command": _ComposeReader.read_command,
    "entrypoint": _ComposeReader.read_command,
    "environment": _ComposeReader.read_environment,
    "volumes": _ComposeReader.read_volumes,
    "ports": _ComposeReader.read_ports,
    "ulimits": _ComposeReader.read_ulimits,
    "gpus": _ComposeReader.read_gpus,
    "deploy": _ComposeReader.read_deploy,
    "healthcheck": _ComposeReader.read_healthcheck,
    "logging": _ComposeReader.read_logging,
    "networks": _ComposeReader.read_networks,
    "labels": _ComposeReader.read_labels,
    **dict.fromkeys(
        ("depends_on", "build", "links", "expose", "scale", "profiles", "secrets", "configs"),
        _ComposeReader.note_unsupported_key,
    ),
}
