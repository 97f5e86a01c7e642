"""`docker run` flags into a draft: the one way in for lines, compose files, recipes and containers."""

from __future__ import annotations

import re
from collections.abc import Callable

from sparkctl.model.docker_options import BARE, DOCKER_OPTIONS, ELSEWHERE, VALUES, OptionKind
from sparkctl.model.units import parse_duration, parse_size
from sparkctl.recipes.draft import Draft
from sparkctl.recipes.references import is_name, reference, settled

_LONG = {"net": "network", "e": "env", "v": "volume", "p": "publish", "l": "label", "u": "user", "w": "workdir",
         "m": "memory", "h": "hostname", "d": "detach", "i": "interactive", "t": "tty"}  # fmt: skip
_NEEDLESS = {
    "interactive": "a container in the background has no terminal",
    "tty": "a container in the background has no terminal",
    "pull": "sparkctl never pulls behind your back; `docker pull` on the node does",
    "quiet": "it changes what docker prints, nothing of the container",
    "platform": "the image on the node decides",
    "sig-proxy": "a container in the background gets no keys",
}
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_CDI = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+")
_HEALTH_URL = re.compile(r"https?://[^/\s\"']{0,300}+(?P<path>/[!#-&(*-:<-{}~]{0,400}+)(?=[\"'\s|;)]|$)")


def apply(draft: Draft, flag: str, value: str, key: str) -> None:
    """Take one flag (no dashes, short or long) with its value in a profile's notation. ``key``: the source's name of it."""
    flag = _LONG.get(flag, flag)
    if flag in ("env", "env-file"):
        _env(draft, flag, value, key)
        return
    text = settled(value)
    if text is None:
        draft.ledger.unsupported(key, f"{value} is known only in the shell it is run in; write the value out")
    elif flag in _FIELDS:
        _FIELDS[flag](draft, text, key)
    elif flag in _NEEDLESS:
        draft.ledger.unsupported(key, _NEEDLESS[flag])
    elif flag in ELSEWHERE:
        draft.ledger.unsupported(key, ELSEWHERE[flag])
    elif flag in DOCKER_OPTIONS:
        _option(draft, flag, text, key)
    else:
        draft.ledger.kept(key, _grown(draft, flag, text), "sparkctl does not set this flag", name=flag)


def _grown(draft: Draft, flag: str, text: str) -> object:
    """Return the value to keep; a flag that stands twice keeps both."""
    before = draft.ledger.extra.pop(flag, None)
    return text if before is None else [*(before if isinstance(before, list) else [before]), text]


def _option(draft: Draft, flag: str, text: str, key: str) -> None:
    kind = DOCKER_OPTIONS[flag]
    if kind is OptionKind.FLAG:
        if text.lower() in ("false", "0"):
            draft.ledger.mapped(key, "nothing: it is off")
            return
        text = BARE
    if not text or ((wanted := VALUES.get(flag)) and not wanted[0].fullmatch(text)):
        draft.ledger.unsupported(key, f"{text or 'an empty value'} is not what --{flag} takes")
        return
    if flag == "publish" and draft.network == "host":
        draft.ledger.unsupported(key, "on the host's network nothing is published: every port is there already")
        return
    if kind is not OptionKind.LIST:
        draft.options = [pair for pair in draft.options if pair[0] != flag]
    if (flag, text) not in draft.options:
        draft.options.append((flag, text))
    draft.ledger.mapped(key, f"container.options.{flag}", text)


def _env(draft: Draft, flag: str, value: str, key: str) -> None:
    if flag == "env-file":
        text = settled(value)
        if text is None or draft.env_file not in (None, text):
            draft.ledger.unsupported(key, "a profile names one env file")
            return
        draft.env_file = text
        draft.ledger.mapped(key, "env_file")
        return
    name, equals, own = value.partition("=")
    if not is_name(name):
        draft.ledger.unsupported(key, "that is not a variable's name")
        return
    draft.env[name] = own if equals else reference(name)
    draft.ledger.mapped(key, f"env.{name}")


def volume(draft: Draft, text: str, key: str) -> None:
    """Take ``source:target[:options]`` or a target alone."""
    parts = re.split(r":(?![\\])", text)
    if len(parts) == 1:
        draft.ledger.unsupported(key, "a volume without a name is lost with its container; name it")
        return
    source, target, *modes = parts[0], parts[1], *[mode for part in parts[2:] for mode in part.split(",")]
    mount(draft, source, target, "ro" in modes or "readonly" in modes, key)
    if lost := [mode for mode in modes if mode not in ("ro", "rw", "readonly", "z", "Z", "")]:
        draft.ledger.unsupported(f"{key} ({','.join(lost)})", "a profile's mounts are only :ro or not")


def mount(draft: Draft, source: str, target: str, read_only: bool, key: str) -> None:
    """Take one bind mount or named volume."""
    if not target.startswith("/") or ":" in target or ":" in source:
        draft.ledger.unsupported(key, "the target is no path in the container")
        return
    if source == "." or ("/" in source and not source.startswith(("/", "~/"))):
        draft.ledger.unsupported(key, f"{source} depends on the directory it is started in; write the path on the node")
        return
    if not source.startswith(("/", "~")) and not _NAME.fullmatch(source):
        draft.ledger.unsupported(key, f"{source or 'nothing'} is neither a path nor a volume's name")
        return
    text = f"{source}:{target}:ro" if read_only else f"{source}:{target}"
    if text not in draft.mounts:
        draft.mounts.append(text)
    draft.ledger.mapped(key, "mounts", text)


def _mount_flag(draft: Draft, text: str, key: str) -> None:
    """``--mount type=bind,source=/a,target=/b,readonly``."""
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    said = dict(pairs)
    source = said.get("source", said.get("src", ""))
    target = said.get("target", said.get("destination", said.get("dst", "")))
    kind = said.get("type", "volume")
    if kind == "tmpfs" and target:
        _option(draft, "tmpfs", target, key)
        return
    if kind not in ("bind", "volume") or not source:
        draft.ledger.unsupported(key, f"a mount of type {kind} without a source is not for a profile")
        return
    known = ("type", "source", "src", "target", "destination", "dst", "readonly", "ro")
    if lost := [name for name in said if name not in known]:
        draft.ledger.unsupported(f"{key} ({','.join(lost)})", "a profile's mounts are only :ro or not")
    mount(draft, source, target, any(said.get(name, "no") in ("", "true", "1") for name in ("readonly", "ro")), key)


def _ulimit(draft: Draft, text: str, key: str) -> None:
    name, _, limit = text.partition("=")
    if not re.fullmatch(r"(-1|[0-9]+)(:(-1|[0-9]+))?", limit):
        draft.ledger.unsupported(key, f"{text} is not a limit")
        return
    draft.ulimits[name] = limit
    draft.ledger.mapped(key, f"container.ulimits.{name}")


def _device(draft: Draft, text: str, key: str) -> None:
    if not text.startswith("/") and not _CDI.fullmatch(text):
        draft.ledger.unsupported(key, f"{text} is not a device")
        return
    if text not in draft.devices:
        draft.devices.append(text)
    if _CDI.fullmatch(text) and draft.gpus is None:
        draft.gpus = "none"  # it has its GPUs by that name
    draft.ledger.mapped(key, "container.devices", text)


def _gpus(draft: Draft, text: str, key: str) -> None:
    text = text.strip()
    quoted = f'"{text}"' if text.startswith("device=") and "," in text else text
    if not re.fullmatch(r'all|[0-9]{1,3}|count=(all|[0-9]{1,3})|device=[\w-]+|".*"|.*capabilities=.*', quoted):
        draft.ledger.unsupported(key, f"{text or 'nothing'} names no GPUs")
        return
    draft.gpus = quoted
    draft.ledger.mapped(key, "container.gpus", quoted)


def _shm(draft: Draft, text: str, key: str) -> None:
    try:
        parse_size(text)
    except ValueError:
        draft.ledger.unsupported(key, f"{text} is not a size")
        return
    draft.shm_size = text
    draft.ledger.mapped(key, "container.shm_size")


def _network(draft: Draft, text: str, key: str) -> None:
    draft.network = text
    draft.ledger.mapped(key, "container.network", text)
    if text == "host":
        for name, value in [pair for pair in draft.options if pair[0] == "publish"]:
            draft.options.remove((name, value))
            draft.ledger.unsupported(f"--publish {value}", "on the host's network every port is there already")


def _field(name: str, to: str) -> Callable[[Draft, str, str], None]:
    def take(draft: Draft, text: str, key: str) -> None:
        if not text:
            draft.ledger.mapped(key, "nothing: it is empty")
            return
        setattr(draft, name, text)
        draft.ledger.mapped(key, to, text)

    return take


def _name(draft: Draft, text: str, key: str) -> None:
    if not _NAME.fullmatch(text) or len(text) > 64:
        draft.ledger.unsupported(key, f"{text} is not a container's name")
        return
    draft.container_name = text
    draft.ledger.mapped(key, "container.name")


def _health(draft: Draft, text: str, key: str) -> None:
    if path := health_path(text):
        draft.health = path
        draft.ledger.mapped(key, "start.health")
    else:
        draft.ledger.kept(key, text, "only a path that is asked over HTTP can be start.health", name="health-cmd")


def health_path(text: str) -> str | None:
    """Return the path that a health check asks for over HTTP, None where it asks otherwise."""
    match = _HEALTH_URL.search(text)
    return match["path"] if match else None


def _grace(draft: Draft, text: str, key: str) -> None:
    try:
        draft.stop_grace = parse_duration(text)
    except ValueError:
        draft.ledger.unsupported(key, f"{text} is not a duration")
        return
    draft.ledger.mapped(key, "stop.grace")


def _detached(draft: Draft, text: str, key: str) -> None:
    draft.ledger.mapped(key, "nothing: sparkctl always starts in the background")


_FIELDS: dict[str, Callable[[Draft, str, str], None]] = {
    "name": _name, "gpus": _gpus, "shm-size": _shm, "network": _network, "ipc": _field("ipc", "container.ipc"),
    "entrypoint": _field("entrypoint", "container.entrypoint"), "ulimit": _ulimit, "device": _device, "volume": volume,
    "mount": _mount_flag, "health-cmd": _health, "stop-timeout": _grace, "detach": _detached,
}  # fmt: skip
