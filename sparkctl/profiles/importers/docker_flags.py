"""Put `docker run` flags into a draft. All sources use this: lines, compose files, recipes and containers."""

from __future__ import annotations

import re
from collections.abc import Callable

from sparkctl.model.text.units import parse_duration, parse_size
from sparkctl.profiles.docker_options import (
    BARE_FLAG_VALUE,
    DOCKER_OPTIONS,
    FIELDS_INSTEAD_OF_OPTIONS,
    VALUE_PATTERNS,
    DockerOptionKind,
)
from sparkctl.profiles.env_references import format_reference, is_variable_name, resolve_defaults
from sparkctl.profiles.importers.profile_draft import ProfileDraft

_LONG_FLAG_NAMES = {"net": "network", "e": "env", "v": "volume", "p": "publish", "l": "label", "u": "user", "w": "workdir",
         "m": "memory", "h": "hostname", "d": "detach", "i": "interactive", "t": "tty"}  # fmt: skip
_IGNORED_FLAGS = {
    "interactive": "a container in the background has no terminal",
    "tty": "a container in the background has no terminal",
    "pull": "`sparkctl pull` and `up --pull` get the image; `up` alone never does",
    "quiet": "it changes what docker prints, not the container",
    "platform": "the image on the node decides",
    "sig-proxy": "a container in the background gets no keys",
}
_WINDOWS_SOURCE = re.compile(r"[A-Za-z]:[^:]*:/")  # a volume's name has two letters at least
_DOCKER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_CDI_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+")
_HEALTH_URL = re.compile(r"https?://[^/\s\"']{0,300}+(?P<path>/[!#-&(*-:<-{}~]{0,400}+)(?=[\"'\s|;)]|$)")


def apply_docker_flag(draft: ProfileDraft, flag: str, value: str, key: str) -> None:
    """Take one flag (no dashes, short or long) with its value in a profile's notation. ``key``: its name in the source."""
    flag = _LONG_FLAG_NAMES.get(flag, flag)
    if flag in ("env", "env-file"):
        _apply_env(draft, flag, value, key)
        return
    text = resolve_defaults(value)
    if text is None:
        draft.ledger.add_unsupported(key, f"{value} is known only in the shell that runs it; write the value itself")
    elif flag in _FLAG_HANDLERS:
        _FLAG_HANDLERS[flag](draft, text, key)
    elif flag in _IGNORED_FLAGS:
        draft.ledger.add_unsupported(key, _IGNORED_FLAGS[flag])
    elif flag in FIELDS_INSTEAD_OF_OPTIONS:
        draft.ledger.add_unsupported(key, FIELDS_INSTEAD_OF_OPTIONS[flag])
    elif flag in DOCKER_OPTIONS:
        _apply_option(draft, flag, text, key)
    else:
        draft.ledger.keep_extra(
            key, _collect_repeated_value(draft, flag, text), "sparkctl does not set this flag", name=flag
        )


def _collect_repeated_value(draft: ProfileDraft, flag: str, text: str) -> object:
    """Return the value to keep; a repeated flag keeps both values."""
    before = draft.ledger.extra.pop(flag, None)
    return text if before is None else [*(before if isinstance(before, list) else [before]), text]


def _apply_option(draft: ProfileDraft, flag: str, text: str, key: str) -> None:
    kind = DOCKER_OPTIONS[flag]
    if kind is DockerOptionKind.FLAG:
        if text.lower() in ("false", "0"):
            draft.ledger.add_mapped(key, "nothing: it is off")
            return
        text = BARE_FLAG_VALUE
    if not text or ((wanted := VALUE_PATTERNS.get(flag)) and not wanted[0].fullmatch(text)):
        draft.ledger.add_unsupported(key, f"{text or 'an empty value'} is not what --{flag} takes")
        return
    if flag == "publish" and draft.network == "host":
        draft.ledger.add_unsupported(key, "on the host's network nothing is published: every port is reachable")
        return
    if kind is not DockerOptionKind.LIST:
        draft.options = [pair for pair in draft.options if pair[0] != flag]
    if (flag, text) not in draft.options:
        draft.options.append((flag, text))
    draft.ledger.add_mapped(key, f"container.options.{flag}", text)


def _apply_env(draft: ProfileDraft, flag: str, value: str, key: str) -> None:
    if flag == "env-file":
        text = resolve_defaults(value)
        if text is None or draft.env_file not in (None, text):
            draft.ledger.add_unsupported(key, "a profile names one env file")
            return
        draft.env_file = text
        draft.ledger.add_mapped(key, "env_file")
        return
    name, equals, own = value.partition("=")
    if not is_variable_name(name):
        draft.ledger.add_unsupported(key, "that is not a variable's name")
        return
    draft.env[name] = own if equals else format_reference(name)
    draft.ledger.add_mapped(key, f"env.{name}")


def add_volume(draft: ProfileDraft, text: str, key: str) -> None:
    """Take ``source:target[:options]`` or a target alone."""
    if _WINDOWS_SOURCE.match(text):
        draft.ledger.add_unsupported(key, "it begins with a Windows drive; write the path on the node")
        return
    parts = text.split(":")
    if len(parts) == 1:
        draft.ledger.add_unsupported(key, "a volume without a name is lost with its container; name it")
        return
    source, target, *modes = parts[0], parts[1], *[mode for part in parts[2:] for mode in part.split(",")]
    add_mount(draft, source, target, "ro" in modes or "readonly" in modes, key)
    if lost := [mode for mode in modes if mode not in ("ro", "rw", "readonly", "z", "Z", "")]:
        draft.ledger.add_unsupported(f"{key} ({','.join(lost)})", "a profile's mounts are only :ro or not")
    if {"z", "Z"} & set(modes):
        draft.ledger.add_remark(f"{key}: z and Z are for SELinux, which a Spark does not use; left out")


def add_mount(draft: ProfileDraft, source: str, target: str, read_only: bool, key: str) -> None:
    """Take one bind mount or named volume."""
    if not target.startswith("/") or ":" in target or ":" in source:
        draft.ledger.add_unsupported(key, "the target is not a path in the container")
        return
    if source == "." or ("/" in source and not source.startswith(("/", "~/"))):
        draft.ledger.add_unsupported(
            key, f"{source} depends on the directory it is started in; write the path on the node"
        )
        return
    if not source.startswith(("/", "~")) and not _DOCKER_NAME.fullmatch(source):
        draft.ledger.add_unsupported(key, f"{source or 'nothing'} is neither a path nor a volume's name")
        return
    text = f"{source}:{target}:ro" if read_only else f"{source}:{target}"
    if text not in draft.mounts:
        draft.mounts.append(text)
    draft.ledger.add_mapped(key, "mounts", text)


_TMPFS_OPTIONS = ("tmpfs-size", "tmpfs-mode")


def _apply_mount_flag(draft: ProfileDraft, text: str, key: str) -> None:
    """``--mount type=bind,source=/a,target=/b,readonly``."""
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    keys = dict(pairs)
    source = keys.get("source", keys.get("src", ""))
    target = keys.get("target", keys.get("destination", keys.get("dst", "")))
    kind = keys.get("type", "volume")
    if kind == "tmpfs" and target:
        options = [f"{name.removeprefix('tmpfs-')}={value}" for name, value in pairs if name in _TMPFS_OPTIONS]
        _apply_option(draft, "tmpfs", ":".join(filter(None, (target, ",".join(options)))), key)
        if lost := [name for name in keys if name not in (*_TMPFS_OPTIONS, "type", "target", "destination", "dst")]:
            draft.ledger.add_unsupported(f"{key} ({','.join(lost)})", "container.options: tmpfs has only size and mode")
        return
    if kind not in ("bind", "volume") or not source:
        draft.ledger.add_unsupported(key, f"a mount of type {kind} without a source is not for a profile")
        return
    known = ("type", "source", "src", "target", "destination", "dst", "readonly", "ro")
    if lost := [name for name in keys if name not in known]:
        draft.ledger.add_unsupported(f"{key} ({','.join(lost)})", "a profile's mounts are only :ro or not")
    add_mount(draft, source, target, any(keys.get(name, "no") in ("", "true", "1") for name in ("readonly", "ro")), key)


def _apply_ulimit(draft: ProfileDraft, text: str, key: str) -> None:
    name, _, limit = text.partition("=")
    if not re.fullmatch(r"(-1|[0-9]+)(:(-1|[0-9]+))?", limit):
        draft.ledger.add_unsupported(key, f"{text} is not a limit")
        return
    draft.ulimits[name] = limit
    draft.ledger.add_mapped(key, f"container.ulimits.{name}")


def _apply_device(draft: ProfileDraft, text: str, key: str) -> None:
    if not text.startswith("/") and not _CDI_DEVICE.fullmatch(text):
        draft.ledger.add_unsupported(key, f"{text} is not a device")
        return
    if text not in draft.devices:
        draft.devices.append(text)
    if _CDI_DEVICE.fullmatch(text) and draft.gpus is None:
        draft.gpus = "none"  # it has its GPUs by that name
    draft.ledger.add_mapped(key, "container.devices", text)


def _apply_gpus(draft: ProfileDraft, text: str, key: str) -> None:
    text = text.strip()
    quoted = f'"{text}"' if text.startswith("device=") and "," in text else text
    if not re.fullmatch(r'all|[0-9]{1,3}|count=(all|[0-9]{1,3})|device=[\w-]+|".*"|.*capabilities=.*', quoted):
        draft.ledger.add_unsupported(key, f"{text or 'nothing'} names no GPUs")
        return
    draft.gpus = quoted
    draft.ledger.add_mapped(key, "container.gpus", quoted)


def _apply_shm_size(draft: ProfileDraft, text: str, key: str) -> None:
    try:
        parse_size(text)
    except ValueError:
        draft.ledger.add_unsupported(key, f"{text} is not a size")
        return
    draft.shm_size = text
    draft.ledger.add_mapped(key, "container.shm_size")


def _apply_network(draft: ProfileDraft, text: str, key: str) -> None:
    draft.network = text
    draft.ledger.add_mapped(key, "container.network", text)
    if text == "host":
        for name, value in [pair for pair in draft.options if pair[0] == "publish"]:
            draft.options.remove((name, value))
            draft.ledger.add_unsupported(f"--publish {value}", "on the host's network every port is reachable")


def _build_field_handler(name: str, to: str) -> Callable[[ProfileDraft, str, str], None]:
    def set_field(draft: ProfileDraft, text: str, key: str) -> None:
        if not text:
            draft.ledger.add_mapped(key, "nothing: it is empty")
            return
        setattr(draft, name, text)
        draft.ledger.add_mapped(key, to, text)

    return set_field


def _apply_name(draft: ProfileDraft, text: str, key: str) -> None:
    if not _DOCKER_NAME.fullmatch(text) or len(text) > 64:
        draft.ledger.add_unsupported(key, f"{text} is not a container's name")
        return
    draft.container_name = text
    draft.ledger.add_mapped(key, "container.name")


def _apply_health_check(draft: ProfileDraft, text: str, key: str) -> None:
    if path := find_health_check_path(text):
        draft.health = path
        draft.ledger.add_mapped(key, "start.health")
    else:
        draft.ledger.keep_extra(key, text, "only a path that is asked over HTTP can be start.health", name="health-cmd")


def find_health_check_path(text: str) -> str | None:
    """Return the path that a health check requests over HTTP, None if it checks in another way."""
    match = _HEALTH_URL.search(text)
    return match["path"] if match else None


def _apply_stop_timeout(draft: ProfileDraft, text: str, key: str) -> None:
    try:
        draft.stop_grace = parse_duration(text)
    except ValueError:
        draft.ledger.add_unsupported(key, f"{text} is not a duration")
        return
    draft.ledger.add_mapped(key, "stop.grace")


def _note_detach(draft: ProfileDraft, text: str, key: str) -> None:
    draft.ledger.add_mapped(key, "nothing: sparkctl always starts in the background")


_FLAG_HANDLERS: dict[str, Callable[[ProfileDraft, str, str], None]] = {
    "name": _apply_name,
    "gpus": _apply_gpus,
    "shm-size": _apply_shm_size,
    "network": _apply_network,
    "ipc": _build_field_handler("ipc", "container.ipc"),
    "entrypoint": _build_field_handler("entrypoint", "container.entrypoint"),
    "ulimit": _apply_ulimit,
    "device": _apply_device,
    "volume": add_volume,
    "mount": _apply_mount_flag,
    "health-cmd": _apply_health_check,
    "stop-timeout": _apply_stop_timeout,
    "detach": _note_detach,
}
