"""Reading, checking and writing the config file: the list of nodes and how to reach them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from sparkctl import files
from sparkctl.errors import InvalidInput, format_did_you_mean
from sparkctl.files import read_regular_file
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import GB10_BANDWIDTH_GB_S, LOCAL_HOST, Node, NodeName
from sparkctl.profiles.yaml_reader import (
    EMPTY_FILE_TEXT,
    FileIssue,
    InvalidFile,
    YamlEntry,
    YamlValue,
    describe_value,
    quote_source,
    read_yaml,
    resolve_scalar,
)

NODE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HOST_PATTERN = re.compile(
    r"[A-Za-z0-9:_\[][^\s@/]{0,252}"
)  # a name, an alias or an address; never a word that looks like an option
_USER_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]{0,63}")
_USER_AT_HOST_PATTERN = re.compile(
    r"(?P<user>[^@\s]+)@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:@\s]+)(?::(?P<port>[0-9]{1,5}))?"
)
_INTERFACE_PATTERN = re.compile(r"[^\s/]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The content of the config file. ``path`` is None without a file; ``warnings`` are sentences."""

    nodes: tuple[Node, ...]
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of the panel: (action, keys), replacing the defaults
    readonly: bool = False  # the panel changes nothing on any node
    theme: str | None = None  # of the panel
    bench_command: str | None = None  # the words that start llama-benchy, as a shell takes them


def load_config(path: Path | None = None, *, required: bool = True) -> Config:
    """Read the config. Raises `InvalidFile` with every fault, `InvalidInput` without a file.

    With ``required=False`` a missing file is a config without nodes: ``user@host`` and ``local`` work without one.
    """
    path = path or files.config_file()
    if _is_missing(path):
        if required:
            raise InvalidInput(f"no config exists yet ({path})", hint="sparkctl init")
        return Config(nodes=())
    try:
        root = read_yaml(path)
    except InvalidFile as error:
        if error.message.endswith(EMPTY_FILE_TEXT):
            error.hint = "sparkctl init --replace"
        raise
    faults: list[FileIssue] = []
    nodes = _parse_nodes(root, faults)
    keys = _parse_keymap(root, faults)
    readonly = _parse_readonly(root, faults)
    theme = _parse_theme(root, faults)
    bench_command = _parse_bench_command(root, faults)
    if faults:
        raise InvalidFile(faults)
    return Config(
        nodes=nodes, path=path, warnings=_list_permission_warnings(path), keys=keys, readonly=readonly, theme=theme,
        bench_command=bench_command,
    )  # fmt: skip


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # it may exist: reading it reports what is wrong
    return False


def find_node(config: Config, text: str) -> Node:
    """Return the node that ``--node`` names: a configured name, ``user@host[:port]``, ``local``, or an SSH alias.

    Raises `InvalidInput` with the known names.
    """
    for node in config.nodes:
        if node.name == text:
            return node
    if "@" in text:
        return _parse_user_at_host(text)
    if text == LOCAL_HOST:
        return Node(name=NodeName(LOCAL_HOST), host=LOCAL_HOST)

    aliases = list_ssh_aliases()
    if text in aliases:
        return Node(name=NodeName(text), host=text)
    names = [node.name for node in config.nodes]
    known = f"configured: {', '.join(names)}" if names else "no node is configured"
    near = format_did_you_mean(text, [*names, *aliases])
    if text.isdecimal():  # -n is a number of lines for docker, tail and journalctl
        hint = f"-n names a node; so many lines: sparkctl logs NAME --tail {text}; one look: sparkctl top --once"
        raise InvalidInput(f"no node is called {quote_source(text)} ({known}){near}", hint)
    raise InvalidInput(
        f"no node is called {quote_source(text)} ({known}){near}",
        hint="name a node of the config, an alias of ~/.ssh/config, or user@host" if names else "sparkctl init",
    )


def parse_node_address(text: str) -> Node:
    """Return the node at ``[user@]host[:port]``, an SSH alias or ``local``, named like its host.

    Raises `InvalidInput` if it is no address.
    """
    if "@" in text:
        return _parse_user_at_host(text)
    match = _USER_AT_HOST_PATTERN.fullmatch(f"user@{text}")
    if match is None or not _HOST_PATTERN.fullmatch(match["host"]):
        raise InvalidInput(
            f"{quote_source(text)} is not a host, an SSH alias or user@host", hint="milo@spark-2a60.local"
        )
    return replace(_parse_user_at_host(f"user@{text}"), name=NodeName(match["host"]), user=None)


def get_only_node(config: Config) -> Node:
    """Return the only configured node. Raises `InvalidInput` if there is none, or more than one."""
    if not config.nodes:
        raise InvalidInput("no node is configured", hint="sparkctl init")
    if len(config.nodes) > 1:
        names = ", ".join(node.name for node in config.nodes)
        raise InvalidInput(
            f"which node? {len(config.nodes)} are configured: {names}",
            hint="\n".join(f"--node {node.name}" for node in config.nodes[:4]),
        )
    return config.nodes[0]


def _parse_user_at_host(text: str) -> Node:
    match = _USER_AT_HOST_PATTERN.fullmatch(text)
    if match is None or not _USER_PATTERN.fullmatch(match["user"]) or not _HOST_PATTERN.fullmatch(match["host"]):
        raise InvalidInput(
            f"{quote_source(text)} is not user@host or user@host:port", hint="--node milo@spark-2a60.local:22"
        )
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise InvalidInput(f"{quote_source(text)}: a port is 1 to 65535")
    return Node(name=NodeName(text), host=match["host"].strip("[]"), user=match["user"], port=port)


# --- checking: one rule per key; all faults are reported ---------------------------------------------------------------


def _make_text_rule(what: str, pattern: re.Pattern[str] | None = None) -> Callable[[YamlValue], str]:
    def check_text(item: YamlValue) -> str:
        text = item.raw
        if text is None or isinstance(item.value, bool) or not text.strip():
            raise ValueError(f"must be {what}")
        if pattern and not pattern.fullmatch(text):
            raise ValueError(f"{quote_source(text)} is not {what}")
        return text

    return check_text


def _parse_port(item: YamlValue) -> int:
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise ValueError(f"must be a whole number, not {describe_value(item)}")
    if not 1 <= item.value <= 65535:
        raise ValueError(f"{item.value} is not a port; ports are 1 to 65535")
    return item.value


def _parse_bandwidth(item: YamlValue) -> float:
    if isinstance(item.value, bool) or not isinstance(item.value, int | float):
        raise ValueError(f"must be a number of GB/s, not {describe_value(item)}")
    if not 0 < item.value <= 100_000:
        raise ValueError(f"{item.raw} GB/s is out of range: above 0, at most 100000")
    return float(item.value)


_NODE_FIELD_RULES: dict[str, Callable[[YamlValue], Any]] = {
    "name": _make_text_rule("a name (letters, digits, dot, dash and underscore)", NODE_NAME_PATTERN),
    "host": _make_text_rule("a host name, an address, an SSH alias or `local`", _HOST_PATTERN),
    "user": _make_text_rule("a user name", _USER_PATTERN),
    "port": _parse_port,
    "identity": _make_text_rule("a path to a private key"),
    "jump": _make_text_rule("a host to jump through"),
    "memory_bandwidth_gb_s": _parse_bandwidth,
    "models": _make_text_rule("a directory on the node"),
    "fabric": _make_text_rule("a network interface", _INTERFACE_PATTERN),
    "known_hosts": _make_text_rule("a path to a known_hosts file"),
}
_REQUIRED_NODE_FIELDS = ("name", "host")
_TOP_LEVEL_KEYS = ("nodes", "keys", "readonly", "theme", "bench")
_THEME_PATTERN = re.compile(r"[a-z0-9-]{1,40}")


def _parse_nodes(root: YamlValue, faults: list[FileIssue]) -> tuple[Node, ...]:
    if not isinstance(root.value, dict):
        faults.append(FileIssue(root.place, "the config is a map with the key `nodes`"))
        return ()
    for key, entry in root.value.items():
        if key not in _TOP_LEVEL_KEYS:
            faults.append(
                FileIssue(entry.place, f"unknown key {quote_source(key)}{format_did_you_mean(key, _TOP_LEVEL_KEYS)}")
            )
    listed = root.value.get("nodes")
    if listed is None or listed.item.value is None:
        return ()
    if not isinstance(listed.item.value, tuple):
        faults.append(
            FileIssue(listed.item.place, f"nodes: must be a list of nodes, not {describe_value(listed.item)}")
        )
        return ()
    found = [(item, _parse_node(item, index, faults)) for index, item in enumerate(listed.item.value)]
    _reject_duplicate_names((item for item, _ in found), faults)
    return tuple(node for _, node in found if node is not None)


def _parse_node(item: YamlValue, index: int, faults: list[FileIssue]) -> Node | None:
    if not isinstance(item.value, dict):
        faults.append(
            FileIssue(item.place, f"nodes[{index}]: must be a map, as in {{name: spark1, host: spark.local}}")
        )
        return None
    before = len(faults)
    values: dict[str, Any] = {}
    for key, entry in item.value.items():
        if (rule := _NODE_FIELD_RULES.get(key)) is None:
            near = format_did_you_mean(key, _NODE_FIELD_RULES)
            faults.append(FileIssue(entry.place, f"unknown key {quote_source(key)} in a node{near}"))
        elif entry.item.value is not None:
            _apply_field_rule(key, entry, rule, values, faults)
    for key in _REQUIRED_NODE_FIELDS:
        if item.value.get(key) is None or item.value[key].item.value is None:
            faults.append(FileIssue(item.place, f"nodes[{index}]: `{key}` is missing"))
    return Node(**values) if len(faults) == before else None


def _apply_field_rule(
    key: str, entry: YamlEntry, rule: Callable[[YamlValue], Any], values: dict[str, Any], faults: list[FileIssue]
) -> None:
    try:
        values[key] = rule(entry.item)
    except ValueError as error:
        faults.append(FileIssue(entry.item.place, f"{key}: {error}"))


def _reject_duplicate_names(items: Iterable[YamlValue], faults: list[FileIssue]) -> None:
    first: dict[str, int] = {}
    for item in items:
        entry = item.entries.get("name")
        if entry is None or entry.item.raw is None:
            continue
        name, line = entry.item.raw, entry.item.place.line or 0
        if name in first:
            faults.append(
                FileIssue(entry.item.place, f"name: {quote_source(name)} is taken by the node in line {first[name]}")
            )
        first.setdefault(name, line)


def _parse_keymap(root: YamlValue, faults: list[FileIssue]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read the panel's keymap: an action's id and its key, or a list of keys."""
    entry = root.value.get("keys") if isinstance(root.value, dict) else None
    if entry is None or entry.item.value is None:
        return ()
    from sparkctl.commands.actions import ActionId, find_key_conflicts, parse_key

    if not isinstance(entry.item.value, dict):
        faults.append(
            FileIssue(entry.item.place, f"keys: must be a map of actions and keys, not {describe_value(entry.item)}")
        )
        return ()
    found: dict[str, tuple[str, ...]] = {}
    before = len(faults)
    for name, one in entry.item.value.items():
        if name not in list(ActionId):
            near = format_did_you_mean(name, list(ActionId))
            faults.append(FileIssue(one.place, f"keys: there is no action {quote_source(name)}{near}"))
            continue
        items = one.item.value if isinstance(one.item.value, tuple) else (one.item,)
        keys = []
        for item in items:
            try:
                keys.append(parse_key(item.raw or ""))
            except ValueError as error:
                faults.append(FileIssue(item.place, f"keys: {name}: {error}"))
        found[name] = tuple(keys)
    if len(faults) == before:
        for key, action, other in find_key_conflicts(found.items()):
            mine = other if other in found else action
            place = entry.item.value[mine].place
            faults.append(FileIssue(place, f"keys: {quote_source(key)} would be both {action} and {other}"))
    return tuple(found.items())


def _parse_readonly(root: YamlValue, faults: list[FileIssue]) -> bool:
    entry = root.value.get("readonly") if isinstance(root.value, dict) else None
    if entry is None or entry.item.value is None:
        return False
    if not isinstance(entry.item.value, bool):
        faults.append(FileIssue(entry.item.place, f"readonly: must be true or false, not {describe_value(entry.item)}"))
    return entry.item.value is True


def _parse_theme(root: YamlValue, faults: list[FileIssue]) -> str | None:
    """Read the name of the panel's theme; the panel knows which there are."""
    entry = root.value.get("theme") if isinstance(root.value, dict) else None
    if entry is None or entry.item.value is None:
        return None
    if not isinstance(entry.item.value, str) or not _THEME_PATTERN.fullmatch(entry.item.value):
        faults.append(
            FileIssue(entry.item.place, f"theme: must be a name as spark-light, not {describe_value(entry.item)}")
        )
        return None
    return entry.item.value


def build_theme_error(path: Path, name: str, themes: Sequence[str]) -> InvalidFile:
    """Return the error of a theme in the config that is none of the panel's ``themes``."""
    place = read_yaml(path).entries["theme"].item.place
    what = f"theme: there is no theme {quote_source(name)}{format_did_you_mean(name, themes)}"
    return InvalidFile([FileIssue(place, f"{what}; there are {', '.join(themes)}")])


def _parse_bench_command(root: YamlValue, faults: list[FileIssue]) -> str | None:
    """Read ``bench: {command: WORDS}``."""
    entry = root.value.get("bench") if isinstance(root.value, dict) else None
    if entry is None or entry.item.value is None:
        return None
    if not isinstance(entry.item.value, dict):
        faults.append(
            FileIssue(entry.item.place, f"bench: must be a map with `command`, not {describe_value(entry.item)}")
        )
        return None
    for key, one in entry.item.value.items():
        if key != "command":
            near = format_did_you_mean(key, ("command",))
            faults.append(FileIssue(one.place, f"unknown key {quote_source(key)} in bench{near}"))
    command = entry.item.value.get("command")
    if command is None or command.item.value is None:
        return None
    try:
        if isinstance(command.item.value, str) and shlex.split(command.item.value):
            return command.item.value
    except ValueError:  # a quote that is not closed
        pass
    words = "must be the command that starts llama-benchy, as you would type it in a shell"
    faults.append(FileIssue(command.item.place, f"bench.command: {words}, not {describe_value(command.item)}"))
    return None


def _list_permission_warnings(path: Path) -> tuple[str, ...]:
    mode = path.stat().st_mode
    if mode & 0o022:
        return (f"{path} can be changed by others (mode {mode & 0o777:03o}): chmod go-w {path}",)
    return ()


NODE_FIELDS = tuple(_NODE_FIELD_RULES)
if set(NODE_FIELDS) != {field.name for field in fields(Node)}:  # a field without a rule could never be configured
    raise TypeError("_NODE_FIELD_RULES and model.node.Node have different fields")


_CONFIG_HEADER = """\
# sparkctl: your Sparks and how to reach them. Written by `sparkctl init`; edit it as you like.
# Per node: name and host, then as needed user, port, identity, jump, known_hosts (if absent, ~/.ssh/config decides),
# models (directory of the models on the node), fabric (interface of the link to the other Spark),
# memory_bandwidth_gb_s (273 unless you know better). `host: local` is the machine sparkctl runs on.
"""
_WRITTEN_NODE_FIELDS = ("name", "host", "user", "port", "identity", "jump", "known_hosts", "models", "fabric")
_PLAIN_SCALAR_PATTERN = re.compile(r"[A-Za-z0-9_~/][A-Za-z0-9_~/.@+-]*")


def render_config(nodes: Iterable[Node]) -> str:
    """Return the text of a config file for these nodes, with comments; the result is deterministic."""
    lines = [_CONFIG_HEADER, "nodes:"]
    for node in nodes:
        pairs = [(key, getattr(node, key)) for key in _WRITTEN_NODE_FIELDS]
        if node.memory_bandwidth_gb_s != GB10_BANDWIDTH_GB_S:
            pairs.append(("memory_bandwidth_gb_s", node.memory_bandwidth_gb_s))
        written = [f"{key}: {_format_scalar(value)}" for key, value in pairs if value is not None]
        lines += [f"  {'-' if index == 0 else ' '} {text}" for index, text in enumerate(written)]
    if len(lines) == 2:
        lines[-1] = "nodes: []"
    return "\n".join(lines) + "\n"


def write_config(nodes: Iterable[Node], path: Path | None = None, *, replace: bool = False) -> Path:
    """Write the config atomically with mode 0600, and return its path.

    Raises `InvalidInput` if one exists and ``replace`` is False, or if the file cannot be written.
    """
    path = path or files.config_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_atomically(render_config(nodes), path, replace=replace)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _write_atomically(text: str, path: Path, *, replace: bool) -> None:
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        if replace:
            fresh.replace(path)
        else:
            path.hardlink_to(fresh)  # fails if the file exists; a rename would replace it
    except FileExistsError as error:
        raise InvalidInput(
            f"a config exists already ({path}); it is unchanged", hint="sparkctl init --replace"
        ) from error
    finally:
        fresh.unlink(missing_ok=True)


def _format_scalar(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if not isinstance(value, str):
        return text
    if _PLAIN_SCALAR_PATTERN.fullmatch(text) and isinstance(resolve_scalar(text), str):
        return text
    escaped = "".join(_escape_char(char) for char in text)
    return f'"{escaped}"'


def _escape_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\U{ord(char):08x}"


_LINE_PATTERN = re.compile(r"(?P<word>[A-Za-z]++)(?:\s*+=|\s)(?P<rest>.*)")
_WORD_PATTERN = re.compile(r'"([^"]*)"|(\S+)')
_MAX_INCLUDE_DEPTH = 4
_MAX_CONFIG_BYTES = 1 << 20


def list_ssh_aliases(path: Path | None = None) -> tuple[str, ...]:
    """Return every ``Host`` that is a plain name, from included files too, in the order of the files.

    An unreadable file has no names: connecting reports its error.
    """
    found: dict[str, None] = {}
    _collect_aliases(path or Path.home() / ".ssh" / "config", 0, found)
    return tuple(found)


def _collect_aliases(path: Path, depth: int, found: dict[str, None]) -> None:
    try:
        lines = read_regular_file(path, _MAX_CONFIG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        match = _LINE_PATTERN.fullmatch(line.strip())
        if match is None:
            continue
        words = [first or second for first, second in _WORD_PATTERN.findall(match["rest"])]
        if match["word"].lower() == "host":
            found.update((word, None) for word in words if not re.search(r"[*?!]", word))
        elif match["word"].lower() == "include" and depth < _MAX_INCLUDE_DEPTH:
            for word in words:
                for included in _list_included_files(word):
                    _collect_aliases(included, depth + 1, found)


def _list_included_files(pattern: str) -> list[Path]:
    """Return the files of an Include; relative paths are in ~/.ssh, as in ssh."""
    home = str(Path.home())
    absolute = Path(home + pattern[1:]) if pattern.startswith("~/") else Path(home, ".ssh", pattern)
    return sorted(Path("/").glob(str(absolute.relative_to("/"))))
