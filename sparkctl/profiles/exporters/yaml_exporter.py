"""Export a profile as a compose file and as a sparkrun recipe, from its launch without a node (`PortableLaunch`). Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from sparkctl.engines import load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.engine_flags import find_profile_script
from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import ArgValue, JsonValue, Profile
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import Redactor, redact_word
from sparkctl.profiles.docker_options import DOCKER_OPTIONS, DockerOptionKind, is_bare_flag
from sparkctl.profiles.env_references import escape_references, has_references, map_references, resolve_defaults
from sparkctl.profiles.importers import import_policy
from sparkctl.profiles.importers.export_metadata import format_metadata_json
from sparkctl.profiles.importers.profile_draft import ImportReport, ProfileDraft, SourceFormat
from sparkctl.profiles.launch_planning import choose_container_name, choose_default_network, choose_or_default
from sparkctl.profiles.redaction import find_profile_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableLaunch:
    """Texts are in a profile's notation: ``${NAME}`` is the operator's variable, ``$${`` the text ``${``; ``~`` the
    node's home.

    ``title`` is one line. ``words`` follow the image; ``remarks`` are notes for the reader; ``beside`` holds what the
    target form cannot express.
    """

    profile: Profile
    title: str | None
    name: str
    words: tuple[str, ...]
    gpus: str | None
    network: str | None
    env: tuple[tuple[str, str], ...]
    beside: str
    remarks: tuple[str, ...]


def build_portable_launch(profile: Profile, engine: Engine) -> PortableLaunch:
    """Return the launch of a profile; its secrets come from the environment of the person who starts it."""
    draft = ProfileDraft(kind=SourceFormat.DOCKER, ledger=ImportReport(), env=dict(profile.env))
    import_policy.replace_env_secrets(draft)
    args = import_policy.replace_flag_secrets(draft, list(profile.args))
    command = profile.command and import_policy.replace_command_secrets(draft, profile.command)
    box, own = profile.container, find_profile_secrets(profile)
    scrub = Redactor(own)
    shown_box = replace(
        box,
        options=tuple((name, redact_word(value, own)) for name, value in box.options),
        entrypoint=None if box.entrypoint is None else redact_word(box.entrypoint, own),
    )
    mounts = tuple(redact_word(mount, own) for mount in profile.mounts)
    if (shown_box, mounts) != (box, profile.mounts):
        draft.ledger.add_remark(
            "Values in the container's options and mounts that look like secrets are masked; write them again there."
        )
    masked = replace(
        profile,
        title=None if profile.title is None else scrub.redact_text(profile.title),
        made_by=None if profile.made_by is None else scrub.redact_text(profile.made_by),
        notes=None if profile.notes is None else scrub.redact_text(profile.notes),
        source=None if profile.source is None else scrub.redact_text(profile.source),
        extra=tuple((key, _remove_extra_secrets(key, kept)) for key, kept in profile.extra),
        container=shown_box,
        mounts=mounts,
        args=tuple((key, _escape_json_references(value)) for key, value in args),
        command=None if command is None else tuple(escape_references(word) for word in command),
        model=replace(
            profile.model,
            path=None if profile.model.path is None else escape_references(profile.model.path),
            served_name=None if profile.model.served_name is None else escape_references(profile.model.served_name),
        ),
    )
    # Words are in a profile's notation; the texts beside them are literal.
    plain = replace(masked, args=tuple(args), command=command, model=profile.model)
    return PortableLaunch(
        profile=plain, title=_to_single_line(masked.title), name=choose_container_name(profile),
        words=engine.build_command(masked), gpus=choose_or_default(box.gpus, engine.defaults.gpus),
        network=box.network or choose_default_network(profile.port or engine.defaults.port, box.options), env=tuple(draft.env.items()),
        beside=format_metadata_json(plain), remarks=tuple(remark.text for remark in draft.ledger.remarks),
    )  # fmt: skip


def _to_single_line(text: str | None) -> str | None:
    """Return a text as one line: a second line after a comment sign would not be a comment."""
    return None if text is None else " ".join(sanitize_line(text).split()) or None


def _remove_extra_secrets(key: str, kept: JsonValue) -> JsonValue:
    value = json.loads(kept.text)
    found = import_policy.replace_data_secrets(value, key)
    return kept if found == value else JsonValue(json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def _escape_json_references(value: ArgValue) -> ArgValue:
    return JsonValue(escape_references(value.text)) if isinstance(value, JsonValue) else value


_COMPOSE_KEYS = {
    "add-host": "extra_hosts", "cap-add": "cap_add", "cap-drop": "cap_drop", "cpus": "cpus", "cpuset-cpus": "cpuset",
    "group-add": "group_add", "hostname": "hostname", "init": "init", "memory": "mem_limit", "memory-swap": "memswap_limit",
    "oom-score-adj": "oom_score_adj", "pid": "pid", "pids-limit": "pids_limit", "privileged": "privileged", "publish": "ports",
    "read-only": "read_only", "runtime": "runtime", "security-opt": "security_opt", "stop-signal": "stop_signal",
    "tmpfs": "tmpfs", "user": "user", "workdir": "working_dir",
}  # fmt: skip


def export_compose(one: PortableLaunch, *, needs_raw_env_file: bool = False) -> list[str]:
    """Return a compose file with one service that never restarts by itself. ``needs_raw_env_file``: compose would change values of
    the env_file; it has to pass them as they are, which it can from 2.30 on."""
    box = one.profile.container
    service: dict[str, Any] = {"image": one.profile.image, "container_name": one.name}
    if box.entrypoint is not None:
        service["entrypoint"] = [_double_dollars(box.entrypoint)]
    if one.words:
        service["command"] = [_escape_for_compose(word) for word in one.words]
    if one.env:
        service["environment"] = {name: _escape_for_compose(value) for name, value in one.env}
    if one.profile.env_file is not None:
        path = _double_dollars(one.profile.env_file)
        service["env_file"] = [{"path": path, "format": "raw"} if needs_raw_env_file else path]
    if one.profile.mounts:
        service["volumes"] = [_double_dollars(mount) for mount in one.profile.mounts]
    for key, value in (("shm_size", box.shm_size), ("ipc", box.ipc), ("network_mode", one.network)):
        if value is not None:
            service[key] = _double_dollars(value)
    if box.ulimits:
        service["ulimits"] = {name: _parse_ulimit(limit) for name, limit in box.ulimits}
    if box.devices:
        service["devices"] = [_double_dollars(device) for device in box.devices]
    _add_docker_options(service, box.options)
    if one.gpus is not None:
        _reserve_gpus(service, one.gpus)
    service["restart"] = "no"
    service["stop_grace_period"] = f"{one.profile.stop_grace:g}s"
    volumes = [mount.split(":")[0] for mount in one.profile.mounts if not mount.startswith(("/", "~"))]
    document: dict[str, Any] = {"services": {one.profile.name: service}}
    if volumes:
        document["volumes"] = {name: {} for name in volumes}
    document["x-sparkctl"] = one.beside
    title = [f"# {one.title}"] if one.title else []
    return [*title, *_dump_yaml_lines(document)]


def _add_docker_options(service: dict[str, Any], options: tuple[tuple[str, str], ...]) -> None:
    for name, value in options:
        if name == "log-driver":
            service.setdefault("logging", {})["driver"] = _double_dollars(value)
        elif name == "log-opt":
            key, _, text = value.partition("=")
            service.setdefault("logging", {}).setdefault("options", {})[key] = _double_dollars(text)
        elif is_bare_flag(name):
            service[_COMPOSE_KEYS[name]] = True
        elif DOCKER_OPTIONS.get(name) is DockerOptionKind.LIST:
            service.setdefault(_COMPOSE_KEYS[name], []).append(_double_dollars(value))
        else:
            service[_COMPOSE_KEYS[name]] = _double_dollars(value)


def _reserve_gpus(service: dict[str, Any], text: str) -> None:
    """Reserve GPUs in the form that every version of compose can read."""
    device: dict[str, Any] = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    bare = text.strip('"')
    if bare.isdigit():
        device["count"] = int(bare)
    elif match := re.fullmatch(r"device=([\w,-]+)", bare):
        del device["count"]
        device["device_ids"] = match[1].split(",")
    elif bare != "all":
        service["gpus"] = _double_dollars(text)
        return
    service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}


def _parse_ulimit(text: str) -> object:
    soft, colon, hard = text.partition(":")
    return {"soft": int(soft), "hard": int(hard)} if colon else int(soft)


def _double_dollars(text: str) -> str:
    return text.replace("$", "$$")


def _escape_for_compose(word: str) -> str:
    """Return a text in compose's notation: references are kept, any other dollar sign is doubled."""
    return map_references(word, lambda match: match[0], _double_dollars)


def export_sparkrun(one: PortableLaunch) -> list[str]:
    """Return a sparkrun recipe (v2). Raises `InvalidInput` for what sparkrun has no engine for."""
    profile = one.profile
    rules = load_engine(profile.engine).import_rules
    if rules is None or not rules.placeholders:
        raise InvalidInput(
            f"sparkrun has no engine for {profile.name} ({profile.engine})",
            "--as docker, compose or systemd has none to care for",
        )
    model = profile.model.path or _find_flag_value(one.words, "--model", "--model-path") or profile.model.served_name
    if model is None:
        raise InvalidInput(f"{profile.name} names no model, and a recipe has to", "model.path in the profile")
    defaults: dict[str, Any] = {}
    command, references = _build_command_template(one, model, defaults, rules.placeholders)
    left = [[name, value] for name, value in one.env if has_references(value)]
    recipe: dict[str, Any] = {
        "recipe_version": "2",
        "name": profile.name,
        "model": model,
        "runtime": rules.recipe_name,
    }
    recipe["container"] = profile.image
    recipe |= {"min_nodes": profile.nodes} if profile.nodes > 1 else {"max_nodes": 1}
    box = profile.container
    unsaid = [key for key in ("ipc", "shm_size") if getattr(box, key) is None]  # sparkrun has defaults of its own
    metadata = format_metadata_json(
        profile,
        mounts=list(profile.mounts),
        env=left,
        placeholders=references,
        unsaid=unsaid,
        env_file=profile.env_file,
    )
    recipe["metadata"] = {**({"description": profile.title} if profile.title else {}), "sparkctl": metadata}
    recipe["defaults"] = defaults
    if env := {name: _escape_config_references(value) for name, value in one.env if not has_references(value)}:
        recipe["env"] = env
    recipe["executor_config"] = _build_executor_config(one)
    if profile.mounts:
        recipe["volumes"] = list(profile.mounts)
    recipe["command"] = command
    needs = [f"# Where sparkrun has no environment of yours to take it from: -o {name}=VALUE" for name in references]
    needs += [f"# {name} comes from your own environment, which sparkrun does not hand on." for name, _ in left]
    return [*needs, *_dump_yaml_lines(recipe)]


def _escape_config_references(value: str) -> str:
    """Return a value that sparkrun fills in nothing of."""
    return re.sub(r"(\{(?:config|launch)\.\w+\})", r"{\1}", resolve_defaults(value) or "")


def _build_command_template(
    one: PortableLaunch, model: str, defaults: dict[str, Any], names: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """Return the command as a template and its placeholders for the operator's environment. ``names``: the others, by flag."""
    references = dict[str, str]()
    script = find_profile_script(one.profile) is not None
    lines: list[list[str]] = [[]]
    before = ""
    for word in one.words:
        key = names.get(before)
        if word.startswith("--") and lines[-1] and not script:
            lines.append([])
        if word == model and not script and re.fullmatch(r"[\w./:-]+", word):
            lines[-1].append("{model}")
        elif key is not None and key not in defaults and not has_references(word) and re.fullmatch(r"[\w./:-]+", word):
            defaults[key] = _parse_scalar(word)
            lines[-1].append(f"{{{key}}}")
        else:
            lines[-1].append(_quote_template_word(word, references))
        before = word
    return " \\\n  ".join(" ".join(line) for line in lines) + "\n", references


def _quote_template_word(word: str, references: dict[str, str]) -> str:
    """Return a word quoted for a shell, its braces doubled, and a placeholder for what the environment gives."""

    def name_placeholder(match: re.Match[str]) -> str:
        name = f"env_{match['name']}"
        while references.setdefault(name, match[0]) != match[0]:
            name += "_"
        return f"\0{name}\0"

    marked = map_references(word, name_placeholder)
    quoted = shlex.quote(marked)
    doubled = quoted.replace("{", "{{").replace("}", "}}")
    return re.sub("\0([^\0]*)\0", r"{\1}", doubled)


def _parse_scalar(word: str) -> object:
    """Return a number as one where that is how it is written back."""
    for kind in (int, float):
        try:
            if str(kind(word)) == word:
                return kind(word)
        except ValueError:
            continue
    return word


def _build_executor_config(one: PortableLaunch) -> dict[str, Any]:
    box = one.profile.container
    found: dict[str, Any] = {"auto_remove": False, "network": one.network, "shm_size": box.shm_size, "ipc": box.ipc}
    found |= {"entrypoint": box.entrypoint, "gpus": one.gpus}
    found |= {"ulimit": [f"{name}={limit}" for name, limit in box.ulimits], "devices": list(box.devices)}
    for name, value in box.options:
        key = {"memory": "memory_limit"}.get(name, name.replace("-", "_"))
        if DOCKER_OPTIONS.get(name) is DockerOptionKind.LIST:
            found.setdefault(key, []).append(value)
        else:
            found[key] = True if is_bare_flag(name) else value
    return {key: value for key, value in found.items() if value not in (None, [])}


def _find_flag_value(words: tuple[str, ...], *flags: str) -> str | None:
    return next((resolve_defaults(word) for flag, word in pairwise(words) if flag in flags), None)


def _dump_yaml_lines(document: dict[str, Any]) -> list[str]:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Texts of several lines as blocks, lists indented below their key."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value and not re.search(r"[ \t]\n|[^\x09\x0a\x20-\x7e\xa0-\uffff]", value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, represent_text)
    dumped: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    return dumped.rstrip("\n").split("\n")
