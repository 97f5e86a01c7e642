"""The common part of reading eugr's recipes (v1) and sparkrun's (v2 and its successors); and recipes with a list of services,
each an engine with named settings (another tool called sparkctl).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from typing import Any

from sparkctl.engines import load_engines
from sparkctl.engines.base import HUB_CACHE, HUB_CACHE_TARGET, ImportRules
from sparkctl.errors import InvalidInput, format_did_you_mean
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import docker_flags, shell_parser
from sparkctl.profiles.importers.foreign_yaml import (
    as_mapping,
    is_empty_value,
    is_truthy,
    parse_whole_number,
    scalar_text,
    scalar_texts,
    to_compact_json,
    to_json_data,
)
from sparkctl.profiles.importers.profile_draft import MAX_NODES, ImportReport, ProfileDraft, SourceFormat

_PLACEHOLDER_PATTERN = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BLANK_CONTINUATION = re.compile(r"\\[ \t]+\n")
_MAX_DEPTH = 8  # a value may contain placeholders, even its own
_MAX_PLACEHOLDERS = 2_000  # placeholders in one command, including those in values


@dataclass(frozen=True, slots=True)
class FilledText:
    """``used``: placeholders that had a value; ``missing``: those that had none and stay as written."""

    text: str
    used: tuple[str, ...]
    missing: tuple[str, ...]


def fill_sparkrun_placeholders(text: str, values: Mapping[str, str]) -> FilledText:
    """Fill in as sparkrun does: only ``{identifier}``, also inside a value; doubled braces collapse if there are any.

    A text without a doubled opening brace stays as it is: ``}}`` closes nested JSON there.
    """
    return _PlaceholderFiller(values).fill_text(text, 0)


class _PlaceholderFiller:
    """One text while it is filled in; a limit ends values that contain each other's placeholders."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.left = _MAX_PLACEHOLDERS

    def fill_text(self, text: str, depth: int) -> FilledText:
        doubled = "{{" in text
        used: list[str] = []
        missing: list[str] = []
        parts: list[str] = []
        end = 0
        for match in _PLACEHOLDER_PATTERN.finditer(text):
            if _is_escaped_brace(match):
                continue
            parts.append(_unescape_braces(text[end : match.start()], doubled))
            end = match.end()
            name = match[1]
            self.left -= 1 + len(self.values.get(name, "")) // 100
            if name not in self.values or depth >= _MAX_DEPTH or self.left < 0:
                missing.append(name)
                parts.append(match[0])
                continue
            inner = self.fill_text(self.values[name], depth + 1)
            used += [name, *inner.used]
            missing += inner.missing
            parts.append(inner.text)
        parts.append(_unescape_braces(text[end:], doubled))
        names = (tuple(dict.fromkeys(used)), tuple(dict.fromkeys(missing)))
        return FilledText(_BLANK_CONTINUATION.sub("\\\\\n", "".join(parts)), *names)


def _unescape_braces(text: str, doubled: bool) -> str:
    return text.replace("{{", "{").replace("}}", "}") if doubled else text


def fill_eugr_placeholders(text: str, values: Mapping[str, str]) -> FilledText:
    """Fill in as eugr's script does, by Python's ``str.format``; if that fails, by sparkrun's rule."""
    used: list[str] = []
    missing: list[str] = []
    out = ""
    try:
        for before, name, spec, conversion in string.Formatter().parse(text):
            out += before
            if name is None:
                continue
            if name in values and not spec and not conversion:
                used.append(name)
                out += values[name]
            elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not spec and not conversion:
                missing.append(name)
                out += "{" + name + "}"
            else:
                return fill_sparkrun_placeholders(text, values)
    except ValueError:
        return fill_sparkrun_placeholders(text, values)
    return FilledText(
        _BLANK_CONTINUATION.sub("\\\\\n", out), *(tuple(dict.fromkeys(names)) for names in (used, missing))
    )


def _is_escaped_brace(match: re.Match[str]) -> bool:
    """``{{name}}`` is the text {name}, not a placeholder; ``{{{name}}}`` is one in braces."""
    text, start, end = match.string, match.start(), match.end()
    before = 0
    while before < start and text[start - 1 - before] == "{":
        before += 1
    return before % 2 == 1 and text[end : end + 1] == "}"


def list_recipe_rules() -> tuple[ImportRules, ...]:
    """Return the rules of the engines that recipes name."""
    return tuple(one.import_rules for one in load_engines() if one.import_rules is not None)


def find_recipe_rules(engine: str | None) -> ImportRules | None:
    """Return the rules of an engine by its name in recipes, None if it is not known."""
    return next((one for one in list_recipe_rules() if one.recipe_name == engine), None)


def get_default_engine() -> str:
    """Return the name in recipes of the engine that is meant where a recipe names none."""
    return next(one.recipe_name for one in list_recipe_rules() if one.is_recipe_default)


def detect_recipe_engine(word: str | None, command: str | None, image: str | None) -> str | None:
    """Return the name in recipes (``llama-cpp``) of the engine that the recipe's own word means, else its command or
    its image; another word in lower case; None if it is not clear.
    """
    text = (word or "").lower().replace("_", "-") or (command or "").lower() or (image or "").lower()
    found = (one.recipe_name for one in list_recipe_rules() if any(mark in text for mark in one.recipe_words))
    return next(found, text if word else None)


_BASH_WORDS = ("bash", "-c")


class RecipeReader:
    """Reads one recipe into a draft. ``fill``: how its tool fills in placeholders."""

    def __init__(
        self, draft: ProfileDraft, data: dict[str, Any], fill: Callable[[str, Mapping[str, str]], FilledText]
    ) -> None:
        self.draft, self.data, self.ledger = draft, data, draft.ledger
        self.fill_placeholders = fill
        self.defaults: dict[str, Any] = {}
        self.defined: Mapping[str, str] = {}
        self.used_defaults: set[str] = set()  # defaults that are used outside of the command
        self.env: dict[str, str] = {}  # as a shell in the container sees it

    @property
    def placeholder_values(self) -> dict[str, str]:
        """The placeholders' values; ``model`` always has one."""
        found = {key: _format_command_value(value) for key, value in self.defaults.items() if value is not None} | dict(
            self.defined
        )
        model = scalar_text(self.data.get("model"))
        return ({"model": model} if model else {}) | found

    def take_defaults(self, defaults: Mapping[str, Any], defined: Mapping[str, str]) -> None:
        """Read ``defaults``, overridden by what the operator defines."""
        self.defaults, self.defined = dict(defaults), defined

    def take_env(self, pairs: Mapping[str, Any]) -> None:
        """Read environment entries; their values are literal."""
        for name, value in pairs.items():
            text = scalar_text(value)
            if text is None:
                self.ledger.add_unsupported(f"env.{name}", 'it has no value; write "" for an empty one')
                continue
            self.env[name] = text
            docker_flags.apply_docker_flag(self.draft, "env", f"{name}={escape_references(text)}", f"env.{name}")

    def take_command(self, command: str | None, engine: str | None, more: Mapping[str, str] | None = None) -> None:
        """Fill in and parse the command, or make flags of the defaults by the tool's table. ``more``: its flags beyond sparkrun's."""
        if others := ", ".join(
            key for key, value in self.data.items() if key.startswith("command_") and scalar_text(value)
        ):
            self.ledger.add_remark(
                f"The recipe has no command, but {others}: this profile is none of them, it is made from the recipe's defaults. "
                "What they start differs; name one of them command: and import it again."
                if command is None
                else f"This profile is the recipe's command. Its other starts ({others}) differ: for one of them, name it command: and "
                "import it again.",
                "command",
            )
        if command is not None:
            filled = self.fill_placeholders(command.strip(), self.placeholder_values)
            self._report_command(filled)
            self._set_command_words(filled.text)
            return
        rules = find_recipe_rules(engine)
        if rules is None or not rules.recipe_command:
            self.ledger.add_remark(
                "The recipe has no command, and no engine that it could be made for: write command: by hand."
            )
            self._report_unused_defaults(frozenset())
            return
        values, words = self.placeholder_values, list(rules.recipe_command)
        used = {"model"}
        for key, flag in {**rules.recipe_flags, **(more or {})}.items():
            if key not in values:
                continue
            used.add(key)
            if key in rules.recipe_switches:
                words += [flag] if is_truthy(values[key]) else []
            else:
                words += [flag, values[key]]
            self.ledger.add_mapped(f"defaults.{key}", flag.lstrip("-"))
        if rules.recipe_model_flags is not None:
            model = values.get("model", "")
            words += [rules.recipe_model_flags[not (model.startswith("/") or model.endswith(".gguf"))], model]
        self.draft.words = [escape_references(values.get("model", "") if word == "{model}" else word) for word in words]
        self._report_unused_defaults(frozenset(used))

    def _report_command(self, filled: FilledText) -> None:
        self.ledger.add_mapped("command", "command, args")
        for name in filled.used:
            self.ledger.add_mapped("model" if name == "model" else f"defaults.{name}", "command, args")
        for name in filled.missing:
            self.ledger.add_unsupported(
                f"command {{{name}}}",
                f"it has no default and is kept as written (--define {name}=VALUE gives it one)",
            )
        self._report_unused_defaults(frozenset(filled.used))

    def _report_unused_defaults(self, used: frozenset[str]) -> None:
        used = used | self.used_defaults
        idle = {key: value for key, value in self.defaults.items() if key not in used and not is_empty_value(value)}
        for key, value in idle.items():
            if key == "served_model_name" and self.draft.model is not None and self.data.get("command"):
                continue  # added to the command by `_append_served_name`
            self.ledger.keep_extra(
                f"defaults.{key}",
                to_json_data(value),
                "nothing in the command asks for it"
                if self.data.get("command")
                else "its own tool makes no flag of it",
                name=f"default {key}",
            )
        for key in set(self.defaults) - set(idle) - used:
            self.ledger.add_mapped(f"defaults.{key}", "nothing: it is empty")

    def _set_command_words(self, text: str) -> None:
        """Put the command into the draft: as words if it is one command, else as a shell script."""
        found = shell_parser.unwrap_shell_command(
            text, {name: escape_references(value) for name, value in self.env.items()}
        )
        for name, value in found.env:
            docker_flags.apply_docker_flag(self.draft, "env", f"{name}={value}", f"command {name}=")
        if found.words is not None:
            self.draft.words = [escape_references(word) for word in found.words]
            return
        self.draft.words = [*_BASH_WORDS, escape_references(text)]
        self.ledger.add_remark(
            "The command is a script: its flags stay in it, and --set cannot change them.", "command"
        )

    def mount_hub_cache(self) -> None:
        """Mount the node's hub cache, as the recipe's tool does, if the model comes from the hub."""
        target = self.env.get("HF_HOME", HUB_CACHE_TARGET)
        model = self.draft.model or ""
        if model.startswith(("/", "~", ".")) or not target.startswith("/"):
            return
        if not any(mount.split(":")[1] in (target, HUB_CACHE_TARGET) for mount in self.draft.mounts):
            self.draft.mounts.append(f"{HUB_CACHE}:{target}")

    def take_image(self, engine: str | None, image: str | None) -> None:
        """Take the image; if none is named, the one that the tool would use. Raises `InvalidInput`."""
        if image:
            filled = self.fill_placeholders(image, self.placeholder_values)
            self.used_defaults |= set(filled.used)
            for name in filled.used:
                self.ledger.add_mapped(f"defaults.{name}", "image")
            self.draft.image = filled.text.strip()
            self.ledger.add_mapped("container", "image")
        elif (rules := find_recipe_rules(engine)) is not None and rules.recipe_image is not None:
            self.draft.image = rules.recipe_image
            self.ledger.add_remark(f"The recipe names no image; {self.draft.image} is a guess.", "image")
        else:
            raise InvalidInput(
                "the recipe names no image (container:), and its engine is none that an image is known for",
                "sparkctl starts containers, no programs on the node itself; --define container=IMAGE names one",
            )

    def keep_extra(self, key: str, why: str | None = None) -> None:
        """Keep a key of the recipe under ``extra:``."""
        value = self.data.get(key)
        if is_empty_value(value):
            self.ledger.add_mapped(key, "nothing: it is empty")
        else:
            self.ledger.keep_extra(key, to_json_data(value), why)


def note_local_build(draft: ProfileDraft, args: list[str]) -> None:
    """Note how an image is built that exists only after a build on the node, and what can be pulled instead."""
    image = draft.image or ""
    rules = next((one for one in list_recipe_rules() if one.built_image and re.match(one.built_image, image)), None)
    if rules is None:
        return
    flavour = next((f"-{word}" for word in ("tf5", "b12x") if word in f"{image} {' '.join(args)}"), "")
    if "--pre-tf" in args or "--pre-transformers" in args:
        flavour = "-tf5"
    build = " ".join(["./build-and-copy.sh", "-t", image, *args])
    draft.ledger.add_remark(
        f"{image} is not an image to pull: eugr's build makes it on the node ({build}, in a checkout of "
        f"eugr/spark-vllm-docker). Built every night and close to it: --set image={rules.nightly_image}{flavour}:latest",
        "image",
    )


def _format_command_value(value: object) -> str:
    """Return a value as Python's tools write it into a command."""
    return str(value) if not isinstance(value, dict | list) else to_compact_json(value)


def note_mods(ledger: ImportReport, mods: list[str]) -> None:
    """Note what eugr's mods are and that they are not applied."""
    if mods:
        ledger.keep_extra("mods", mods, "sparkctl does not patch containers")
        names = ", ".join(mod.removeprefix("mods/") for mod in mods)
        ledger.add_remark(
            f"It needs mods that sparkctl does not apply: {names}. Each is a directory with a run.sh that its tool "
            "runs in the container before the engine; bake them into an image of your own, or see whether it starts without.",
            "extra.mods",
        )


_SAME_KEYS = ("max_model_len", "gpu_memory_utilization", "tool_call_parser", "reasoning_parser", "port", "quantization", "dtype",
         "max_num_seqs", "kv_cache_dtype")  # fmt: skip
_DEFAULT_KEYS = {"served_name": "served_model_name", **{name: name for name in _SAME_KEYS}}
_EXTRA_FLAGS = {"tool_call_parser": "--tool-call-parser", "reasoning_parser": "--reasoning-parser"}
_PARALLEL_KEYS = {"tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel"}
_TOOL_ULIMITS = {"memlock": "-1", "stack": "67108864"}


def import_services(
    data: dict[str, Any], ledger: ImportReport, service: str | None, defined: Mapping[str, str]
) -> ProfileDraft:
    """Return the draft of one service. Raises `InvalidInput` if it is not clear which, or no image is known for it."""
    services = [as_mapping(one) for one in data.get("services") or [] if isinstance(one, dict)]
    body = _select_service(services, service)
    own = scalar_text(body.get("name"))
    name = scalar_text(data.get("name"))
    draft = ProfileDraft(
        kind=SourceFormat.SERVICES,
        ledger=ledger,
        name=name if len(services) == 1 or not own else f"{name or 'service'}-{own}",
    )
    draft.title = " ".join((scalar_text(data.get("description")) or "").split()) or None
    for key in ("name", "description"):
        if key in data:
            ledger.add_mapped(key, {"name": "name", "description": "title"}[key])
    for other in services:
        if other is not body:
            label = scalar_text(other.get("name")) or "?"
            ledger.add_unsupported(f"services.{label}", f"one service is read; --service {label} reads this one")
    _read_service(draft, body, defined)
    for key, value in data.items():
        if key not in ("name", "description", "services"):
            ledger.keep_extra(key, to_json_data(value), "not part of the service")
    return draft


def _select_service(services: list[dict[str, Any]], service: str | None) -> dict[str, Any]:
    names = [scalar_text(one.get("name")) or "?" for one in services]
    if service is None and len(services) > 1:
        # Besides the main model these recipes list small helpers; the main model comes first and gives the name.
        return services[0]
    for name, one in zip(names, services, strict=True):
        if service in (None, name):
            return one
    raise InvalidInput(
        f"there is no service {service}{format_did_you_mean(service or '', names)}",
        f"there are {', '.join(names) or 'none'}",
    )


def _read_service(draft: ProfileDraft, body: dict[str, Any], defined: Mapping[str, str]) -> None:
    ledger = draft.ledger
    recipe = RecipeReader(draft, {"model": body.get("model")}, fill_sparkrun_placeholders)
    defaults: dict[str, Any] = {}
    engine = detect_recipe_engine(scalar_text(body.get("engine")), None, None)
    engine = engine or get_default_engine()
    draft.engine_hint, draft.model = engine, scalar_text(body.get("model"))
    for key, value in body.items():
        if key in _DEFAULT_KEYS:
            defaults[_DEFAULT_KEYS[key]] = value
        elif key == "parallel":
            for axis, size in as_mapping(value).items():
                if axis in _PARALLEL_KEYS:
                    defaults[_PARALLEL_KEYS[axis]] = size
                else:
                    ledger.add_unsupported(f"parallel.{axis}", "no such way to share a model is known")
        elif key in ("name", "engine", "model"):
            ledger.add_mapped(key, {"model": "model.path"}.get(key, key))
        elif key not in ("env", "extra_args", "container", "image"):
            ledger.keep_extra(key, to_json_data(value), "a profile has no such field")
    recipe.take_defaults(defaults, defined)
    recipe.take_env(as_mapping(body.get("env")))
    rules = find_recipe_rules(engine)
    if rules is not None and rules.recipe_command:
        recipe.take_command(None, engine, _EXTRA_FLAGS)
    elif port := parse_whole_number(body.get("port")):
        draft.port = port
        ledger.add_mapped("port", "port")
    extra = scalar_texts(body.get("extra_args")) if body.get("extra_args") else []
    if extra:
        draft.words = [*(draft.words or []), *(escape_references(word) for word in extra)]
        ledger.add_mapped("extra_args", "args")
    image = defined.get("container") or scalar_text(body.get("container")) or scalar_text(body.get("image"))
    recipe.take_image(engine, image)
    draft.nodes = 1
    for axis in _PARALLEL_KEYS.values():
        draft.nodes *= max(1, parse_whole_number(defaults.get(axis)) or 1)
    draft.nodes = min(draft.nodes, MAX_NODES)
    if draft.nodes > 1:
        ledger.add_remark(
            "Its own tool starts the ranks by Ray; sparkctl starts them by the engine's own means.", "nodes"
        )
    for name, limit in _TOOL_ULIMITS.items():
        draft.ulimits[name] = limit
        ledger.add_mapped(f"--ulimit {name}={limit} (its tool always sets it)", f"container.ulimits.{name}")
    recipe.mount_hub_cache()
    draft.ipc, draft.network, draft.gpus = "host", "host", "all"
