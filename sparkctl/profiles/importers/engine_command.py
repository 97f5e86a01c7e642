"""Parse a launch command into engine, model, port and flags, the fields of a profile."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from sparkctl.engines import FALLBACK_ENGINE, load_engine, load_engines
from sparkctl.engines.base import HUB_ID_PATTERN, ImportRules, ModelWord
from sparkctl.engines.engine_flags import list_versions, load_catalogue
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue
from sparkctl.profiles.env_references import has_references, resolve_defaults

_PYTHON_PROGRAM = re.compile(r"python[0-9.]*")
_NEGATIVE_NUMBER = re.compile(r"-(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e-?[0-9]+)?")
_FLAG_NAME = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]*")
_PORT_FLAG = re.compile(r"(?<![\w-])--port[ =]+(\d{1,5})(?!\d)")
_SERVED_NAME_FLAG = re.compile(r"(?<![\w-])--served-model-name[ =]+[\"']?([^\s\"'\\]+)")
_SWITCH_PREFIXES = (
    "--enable-",
    "--disable-",
    "--no-",
    "--trust-",
    "--enforce-",
)  # flags without a value, by their beginning


_MIN_OWN_FLAGS = 2


@cache
def list_import_rules() -> dict[str, ImportRules]:
    """Return the rules of the engines with a start command of their own, by name."""
    return {one.name: one.import_rules for one in load_engines() if one.import_rules and one.import_rules.program}


@cache
def _list_other_servers() -> tuple[dict[str, str], dict[str, str]]:
    """Return the servers without an engine here, by the word that starts them and by a part of their image's name."""
    rules = [one.import_rules for one in load_engines() if one.import_rules]
    return (
        {name: path for one in rules for name, path in one.other_servers.items()},
        {name: path for one in rules for name, path in one.other_images.items()},
    )


@dataclass(slots=True, kw_only=True)
class EngineCommand:
    """``command`` None: the engine's own launch words, else literal. ``flags`` in their order, in a profile's notation."""

    engine: str
    command: tuple[str, ...] | None
    model: str | None = None
    served_name: str | None = None
    port: int | None = None
    flags: list[tuple[str, ArgValue]] = field(default_factory=list)
    health: str | None = None
    program: str | None = None


def parse_engine_command(
    words: Sequence[str], image: str, hint: str | None, certain: str | None = None, model: str | None = None
) -> EngineCommand:
    """Return what ``words`` (in a profile's notation) start in ``image``.

    ``hint``: the engine's name in the source; ``certain``: the engine if it is known; ``model``: the model that the
    source names.
    """
    if certain is not None:
        return _parse_given_engine(words, certain)
    found = (
        next(filter(None, (_parse_python_server(words, name, model) for name in list_import_rules())), None)
        or _parse_by_program(words)
        or _parse_known_server(words)
    )
    if found is None and not (words and not words[0].startswith("-") and _is_program(words[0])):
        found = _parse_by_image(words, image, hint)
    return found or _add_image_health(_parse_any_command(words), image)


def _add_image_health(found: EngineCommand, image: str) -> EngineCommand:
    """Recognise a server by its image if the command does not show it."""
    found.health = found.health or next(
        (path for name, path in _list_other_servers()[1].items() if name in image), None
    )
    return found


def _move_model_first(words: Sequence[str], rules: ImportRules, model: str | None) -> Sequence[str]:
    """Move the model right after the launch words: it may come after flags without a value."""
    at = _find_word_sequence(words, rules.program, rules.subcommand or "")
    if (
        rules.model_word is not ModelWord.FIRST
        or model is None
        or at is None
        or not any(word.startswith("-") for word in words[at + 2 : at + 3])
    ):
        return words
    for position in range(at + 3, len(words)):
        before = words[position - 1]
        bare = not before.startswith("-") or "=" in before or before.startswith(_SWITCH_PREFIXES)
        if words[position] == model and bare:
            return [*words[: at + 2], model, *words[at + 2 : position], *words[position + 1 :]]
    return words


def _parse_given_engine(words: Sequence[str], engine: str) -> EngineCommand:
    """Read the words of a known engine, whatever its launch words are."""
    rules = list_import_rules().get(engine)
    if rules is None:
        return _parse_any_command(words)
    found = _parse_python_server(words, engine, None) if rules.is_python_server else _parse_by_program(words)
    if found is not None and found.engine == engine:
        return found
    first = _find_first_flag(words)
    launch = tuple(words[:first])
    return _read_server_flags(EngineCommand(engine=engine, command=launch), words[first:], launch, rules)


def parse_script_command(script: str, command: tuple[str, ...], hint: str | None) -> EngineCommand:
    """Return what can be read from a launch that stays a shell script."""
    known = list_import_rules()
    model = re.search(r"--model(?:-path)?[ =]+[\"']?([^\s\"'\\]+)", script)
    for rules in known.values():
        if rules.model_word is ModelWord.FIRST:
            launch = rf"\b{rules.program} {rules.subcommand}"
            model = re.search(rf"{launch}\s+[\"']?([^\s\"'\\-][^\s\"'\\]*)", script) or model
    names = (
        *(name for name, one in known.items() if one.module and one.module in script),
        *(name for name, one in known.items() if one.module and f"{one.program} {one.subcommand}" in script),
        *(name for name, one in known.items() if not one.module and _has_program(script, one.program)),
        *(name for name, one in known.items() if hint in (name, one.recipe_name)),
    )
    engine = next(iter(names), FALLBACK_ENGINE)
    # What stands before the launch has flags of its own: ray start --port 6379 && vllm serve …
    begins = max((script.find(word) for one in known.values() for word in _list_launch_words(one)), default=0)
    port, name = (flag.search(script, max(begins, 0)) for flag in (_PORT_FLAG, _SERVED_NAME_FLAG))
    number = int(port[1]) if port and 0 < int(port[1]) < 65536 else None
    servers, _ = _list_other_servers()
    return EngineCommand(
        engine=engine,
        command=command,
        model=model[1] if model and "$" not in model[1] else None,
        served_name=name[1] if name else None,
        port=number,
        health=next((path for program, path in servers.items() if _has_program(script, program)), None),
    )


def _list_launch_words(rules: ImportRules) -> tuple[str, ...]:
    """Return what the launch of an engine of its own module is recognised by."""
    return (rules.module, f"{rules.program} {rules.subcommand}") if rules.module else ()


def _has_program(script: str, program: str) -> bool:
    return re.search(rf"(?<![\w-]){program}(?![\w-])", script) is not None


def parse_flags(words: Sequence[str], aliases: Mapping[str, str] | None = None) -> list[tuple[str, ArgValue]] | None:
    """Return words as flags with their values, a repeated flag as a list; None if they could not be written back unchanged."""
    found: dict[str, list[list[str]]] = {}
    at = 0
    while at < len(words):
        name, equals, own = words[at].partition("=")
        if not name.startswith("-") or not _FLAG_NAME.fullmatch(name):
            return None
        values = [own] if equals else []
        at += 1
        while not equals and at < len(words) and not _is_flag(words[at]):
            values.append(words[at])
            at += 1
        if equals and _is_flag(own):
            return None
        found.setdefault(_flag_to_key(name, aliases or {}), []).append(values)
    flags = [(key, _parse_flag_value(given)) for key, given in found.items()]
    return None if any(value is None for _, value in flags) else [(k, v) for k, v in flags if v is not None]


def _flag_to_key(name: str, aliases: Mapping[str, str]) -> str:
    if name in aliases:
        return aliases[name]
    bare = name.lstrip("-")
    return bare if name == (f"-{bare}" if len(bare) == 1 else f"--{bare}") else name


def _parse_flag_value(given: list[list[str]]) -> ArgValue | None:
    if len(given) > 1:
        return tuple(values[0] for values in given) if all(len(values) == 1 for values in given) else None
    values = given[0]
    if not values:
        return True
    if len(values) > 1:
        return FlagValues(tuple(values))
    return (None if has_references(values[0]) else parse_json_map(resolve_defaults(values[0]) or "")) or values[0]


def parse_json_map(text: str) -> JsonValue | None:
    """Return a JSON map, None for any other text, and for JSON that YAML would not return unchanged."""
    if not text.lstrip().startswith("{") or len(text) > 20_000:
        return None
    try:
        value = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except (ValueError, RecursionError):
        return None
    return JsonValue(text) if isinstance(value, dict) and _measure_depth(value) <= 12 else None


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key appears twice")
    return dict(pairs)


def _measure_depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_measure_depth(one) for one in inner), default=0)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NEGATIVE_NUMBER.fullmatch(word) and not word.startswith("- ")


def _is_program(word: str) -> bool:
    path = word.startswith("/") and ("/bin/" in word or word.endswith((".sh", ".py")))
    return path or _PYTHON_PROGRAM.fullmatch(word.rpartition("/")[2]) is not None


def _find_word_sequence(words: Sequence[str], *names: str) -> int | None:
    """Return where these words follow one another; the first may be a path."""
    for at in range(len(words) - len(names) + 1):
        first = words[at].rpartition("/")[2]
        if (first, *words[at + 1 : at + len(names)]) == names:
            return at
        if words[at].startswith("-") and "=" not in words[at] and at == 0:
            return None
    return None


def _find_python_module_end(words: Sequence[str], name: str) -> int | None:
    """Return where ``-m NAME`` of a Python call ends."""
    for at in range(len(words) - 2):
        if _PYTHON_PROGRAM.fullmatch(words[at].rpartition("/")[2]) and "-m" in words[at + 1 : at + 4]:
            minus = words.index("-m", at)
            if words[minus + 1 : minus + 2] == [name] or tuple(words[minus + 1 : minus + 2]) == (name,):
                return minus + 2
    return None


def _parse_python_server(words: Sequence[str], engine: str, model: str | None) -> EngineCommand | None:
    """Read what a Python module or its program with a subcommand starts; None if these words do not."""
    rules = list_import_rules()[engine]
    if rules.module is None:
        return None
    words = _move_model_first(words, rules, model)
    end = _find_launch_end(words, rules)
    if end is None:
        return None
    launch, rest = tuple(words[:end]), list(words[end:])
    found = EngineCommand(engine=engine, command=_omit_default_launch(engine, launch))
    if rules.model_word is ModelWord.FIRST:
        rest = _take_first_word_model(found, rest)
    return _read_server_flags(found, rest, launch, rules)


def _omit_default_launch(engine: str, launch: tuple[str, ...]) -> tuple[str, ...] | None:
    return None if launch == load_engine(engine).defaults.command else launch


def _find_launch_end(words: Sequence[str], rules: ImportRules) -> int | None:
    """Return where the launch words end: ``PROGRAM serve`` or Python's ``-m MODULE``; None if they are neither."""
    at = _find_word_sequence(words, rules.program, rules.subcommand or "")
    return _find_python_module_end(words, rules.module or "") if at is None else at + 2


def _is_own_launch(launch: tuple[str, ...], rules: ImportRules) -> bool:
    """Tell whether launch words are the engine's own, including an image's entry point: the model follows them."""
    at = _find_word_sequence(launch, rules.program, rules.subcommand or "")
    return not launch or launch[-1] == rules.module or at == len(launch) - 2


def _parse_by_program(words: Sequence[str]) -> EngineCommand | None:
    """Read a program that needs no subcommand, among the first words and perhaps as a path."""
    programs = {rules.program: name for name, rules in list_import_rules().items() if not rules.is_python_server}
    for at, word in enumerate(words[:4]):
        engine = programs.get(word.rpartition("/")[2])
        if engine is None:
            continue
        rules = list_import_rules()[engine]
        has_subcommand = rules.subcommand is not None and tuple(words[at + 1 : at + 2]) == (rules.subcommand,)
        end = at + 1 + has_subcommand
        launch, rest = tuple(words[:end]), list(words[end:])
        found = EngineCommand(engine=engine, command=_omit_default_launch(engine, launch))
        if rules.model_word is ModelWord.ANYWHERE:
            if len(rest) > 2 and rest[0].startswith("-") and not any(word.startswith("-") for word in rest[-2:]):
                rest = [rest[-1], *rest[:-1]]  # after the last flag's value
            if not rest or rest[0].startswith("-") or has_references(rest[0]):
                return None
            found.model, rest = resolve_defaults(rest[0]), rest[1:]
        return _read_server_flags(found, rest, launch, rules)
    return None


def _parse_by_image(words: Sequence[str], image: str, hint: str | None) -> EngineCommand | None:
    """Read a command for an image whose entry point is the engine: it begins with a model or a flag."""
    name, known = image.rpartition("@")[0] or image, list_import_rules()
    by_hint = (one for one in known if one == hint and known[one].is_python_server)
    by_image = (one for one, rules in known.items() if rules.image and words and re.search(rules.image, name))
    engine = next(by_hint, None) or next(by_image, None) or _find_engine_by_flags(words, name)
    if engine is None:
        return None
    rest = list(words)
    found = EngineCommand(engine=engine, command=())
    if known[engine].model_word is ModelWord.FIRST:
        rest = _take_first_word_model(found, rest)
    return _read_server_flags(found, rest, (), known[engine])


def _find_engine_by_flags(words: Sequence[str], image: str) -> str | None:
    """Return the engine that alone has several of these flags, behind a model or first; None if it is not clear.

    One flag may be another program's by chance, unless the image's name holds the engine's.
    """
    if not words or not (words[0].startswith(("-", "/")) or HUB_ID_PATTERN.fullmatch(words[0])):
        return None
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    has = {
        name: given & load_catalogue(name, versions[-1]).by_name.keys()
        for name, rules in list_import_rules().items()
        if rules.is_python_server and (versions := list_versions(name))
    }
    own = {
        name: flags - frozenset[str]().union(*(other for title, other in has.items() if title != name))
        for name, flags in has.items()
    }
    found = [name for name, flags in own.items() if flags]
    if len(found) != 1:
        return None
    is_named = found[0] in image.rpartition("/")[2].partition(":")[0].lower()
    return found[0] if is_named or len(own[found[0]]) >= _MIN_OWN_FLAGS else None


def _take_first_word_model(found: EngineCommand, rest: list[str]) -> list[str]:
    """Take the model that is the first word after the launch words; a variable there can only be a flag's value."""
    if not rest or rest[0].startswith("-"):
        return rest
    if has_references(rest[0]):
        return ["--model", *rest]
    found.model = resolve_defaults(rest[0])
    return rest[1:]


def _read_server_flags(
    found: EngineCommand, rest: Sequence[str], launch: tuple[str, ...], rules: ImportRules
) -> EngineCommand:
    """Take model, port and name out of an engine's flags; sparkctl sets those itself."""
    flags = parse_flags(rest, rules.short_flags)
    if flags is None:
        # Words that are not all flags are kept as written; port and host are added after them.
        words = (*launch, *([found.model] if found.model else []), *rest)
        host = _find_flag_value(rest, "--host")
        return EngineCommand(
            engine=found.engine, command=words, port=_find_port(rest, "--port"), flags=[("host", host)] if host else []
        )
    called = rules.name_flags
    for key, value in flags:
        plain = key.lstrip("-").replace("_", "-")
        if plain in rules.model_flags and isinstance(value, str) and found.model is None:
            path, is_hub_flag = resolve_defaults(value), rules.model_flags[plain]
            if path is not None and is_hub_flag is not None:
                is_on_hub = HUB_ID_PATTERN.fullmatch(path) is not None and not path.endswith(".gguf")
                path = path if is_on_hub is is_hub_flag else None
            found.model = path
            if path is None or (rules.model_word is ModelWord.FIRST and not _is_own_launch(launch, rules)):
                found.flags.append((key, value))
        elif plain == "port" and isinstance(value, str) and (port := _parse_port(value)) is not None:
            found.port = port
        elif plain == "host" and value == "0.0.0.0":  # noqa: S104
            continue
        elif plain in called and isinstance(value, str) and not has_references(value):
            found.served_name = resolve_defaults(value)
        else:
            if plain in called and isinstance(value, FlagValues):
                found.served_name = resolve_defaults(value.words[0])
            found.flags.append((key, value))
    return found


def _parse_known_server(words: Sequence[str]) -> EngineCommand | None:
    for program, health in _list_other_servers()[0].items():
        if any(word.rpartition("/")[2] == program for word in words[:4]):
            found = _parse_any_command(words)
            found.health, found.program = health, program
            return found
    return None


def _parse_any_command(words: Sequence[str]) -> EngineCommand:
    """Read any other command: its flags as args if they can be written so, else all of it as written."""
    first = _find_first_flag(words)
    rest = list(words[first:])
    flags = parse_flags(rest)
    found = EngineCommand(engine=FALLBACK_ENGINE, command=tuple(words[:first]) if flags is not None else tuple(words))
    if not found.command:
        found.command = None
    found.flags = flags or []
    found.port = _find_port(words, "--port")
    found.model = (
        resolve_defaults(_find_flag_value(words, "--model", "-m", "-hf", "--hf-repo", "--model-path") or "") or None
    )
    found.served_name = resolve_defaults(_find_flag_value(words, "--alias", "-a", "--served-model-name") or "") or None
    return found


def _find_first_flag(words: Sequence[str]) -> int:
    """Return where the first flag of a command is; ``-m NAME`` is how a Python module is started."""
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    is_python = first > 0 and _PYTHON_PROGRAM.fullmatch(words[first - 1].rpartition("/")[2]) is not None
    if is_python and list(words[first : first + 1]) == ["-m"]:
        first += 2
        first = next((at for at in range(first, len(words)) if words[at].startswith("-")), len(words))
    return first


def _find_port(words: Sequence[str], *names: str) -> int | None:
    return _parse_port(_find_flag_value(words, *names) or "")


def _parse_port(text: str) -> int | None:
    """Return a port; of a variable, the one it has by default."""
    number = resolve_defaults(text) or ""
    return int(number) if re.fullmatch(r"[0-9]{1,5}", number) and 0 < int(number) < 65536 else None


def _find_flag_value(words: Sequence[str], *names: str) -> str | None:
    for at, word in enumerate(words):
        name, equals, own = word.partition("=")
        if name in names:
            if name == "-m" and at and _PYTHON_PROGRAM.fullmatch(words[at - 1].rpartition("/")[2]):
                continue
            value = own if equals else words[at + 1] if at + 1 < len(words) else None
            return None if value is None or value.startswith("-") else value
    return None
