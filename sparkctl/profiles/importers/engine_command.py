"""Parse a launch command into engine, model, port and flags, the fields of a profile."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkctl.model.profile import ArgValue, FlagValues, JsonValue
from sparkctl.profiles.env_references import has_references, resolve_defaults

_PYTHON_PROGRAM = re.compile(r"python[0-9.]*")
_NEGATIVE_NUMBER = re.compile(r"-(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e-?[0-9]+)?")
_FLAG_NAME = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]*")
_PORT_FLAG = re.compile(r"(?<![\w-])--port[ =]+(\d{1,5})(?!\d)")
_SERVED_NAME_FLAG = re.compile(r"(?<![\w-])--served-model-name[ =]+[\"']?([^\s\"'\\]+)")
# vLLM's short flags, with the long names from its own help.
VLLM_SHORT_FLAGS = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-q": "quantization",
}
_SWITCH_PREFIXES = (
    "--enable-",
    "--disable-",
    "--no-",
    "--trust-",
    "--enforce-",
)  # flags without a value, by their beginning
_SGLANG_MODULE = "sglang.launch_server"
_VLLM_MODULE = "vllm.entrypoints.openai.api_server"
# Engines with a start command of their own, and their names in recipes.
KNOWN_ENGINES = ("vllm", "sglang", "llamacpp", "trtllm")
_ENGINES_BY_PROGRAM = {"llama-server": "llamacpp", "trtllm-serve": "trtllm"}
_ENGINE_ALIASES = {"llama-cpp": "llamacpp"}
# llama-server's flags that a profile has fields for. `-hf` takes a repository of the hub, `-m` a file.
_LLAMA_MODEL_FLAGS = {"m": False, "model": False, "hf": True, "hfr": True, "hf-repo": True}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?")
# Servers without an engine here: the word that starts them, and the path that answers when they are ready.
_OTHER_SERVER_HEALTH = {
    "text-generation-launcher": "/health",
    "ollama": "/",
    "tritonserver": "/v2/health/ready",
}
_IMAGE_HEALTH = {"ollama/ollama": "/", "text-generation-inference": "/health"}


@dataclass(slots=True, kw_only=True)
class EngineCommand:
    """``command`` None: the engine's own launch words, else literal. ``flags`` in their order, in a profile's notation."""

    engine: str
    command: tuple[str, ...] | None = None
    model: str | None = None
    served_name: str | None = None
    port: int | None = None
    flags: list[tuple[str, ArgValue]] = field(default_factory=list)
    health: str | None = None
    program: str | None = None


def parse_engine_command(
    words: Sequence[str], image: str, hint: str | None, engines: Sequence[str], certain: str | None = None,
    model: str | None = None,
) -> EngineCommand:  # fmt: skip
    """Return what ``words`` (in a profile's notation) start in ``image``.

    ``hint``: the engine's name in the source; ``engines``: the known ones; ``certain``: the engine if it is known;
    ``model``: the model that the source names.
    """
    if certain is not None:
        return _parse_given_engine(words, certain)
    found = (
        _parse_vllm(_move_model_first(words, model))
        or _parse_sglang(words)
        or _parse_by_program(words)
        or _parse_known_server(words, engines)
    )
    if found is None and not (words and not words[0].startswith("-") and _is_program(words[0])):
        found = _parse_by_image(words, image, hint)
    return found or _add_image_health(_parse_any_command(words), image)


def _add_image_health(found: EngineCommand, image: str) -> EngineCommand:
    """Recognise a server by its image if the command does not show it."""
    found.health = found.health or next((path for name, path in _IMAGE_HEALTH.items() if name in image), None)
    return found


def _move_model_first(words: Sequence[str], model: str | None) -> Sequence[str]:
    """Move the model right after ``vllm serve``: it may come after flags without a value."""
    at = _find_word_sequence(words, "vllm", "serve")
    if model is None or at is None or not any(word.startswith("-") for word in words[at + 2 : at + 3]):
        return words
    for position in range(at + 3, len(words)):
        before = words[position - 1]
        bare = not before.startswith("-") or "=" in before or before.startswith(_SWITCH_PREFIXES)
        if words[position] == model and bare:
            return [*words[: at + 2], model, *words[at + 2 : position], *words[position + 1 :]]
    return words


def _parse_given_engine(words: Sequence[str], engine: str) -> EngineCommand:
    """Read the words of a known engine, whatever its launch words are."""
    if engine not in KNOWN_ENGINES:
        return _parse_any_command(words)
    found = {"vllm": _parse_vllm, "sglang": _parse_sglang}.get(engine, _parse_by_program)(words)
    if found is not None and found.engine == engine:
        return found
    first = _find_first_flag(words)
    launch = tuple(words[:first])
    return _read_server_flags(
        EngineCommand(engine=engine, command=launch),
        words[first:],
        launch,
        VLLM_SHORT_FLAGS if engine == "vllm" else {},
    )


def parse_script_command(script: str, command: tuple[str, ...], hint: str | None) -> EngineCommand:
    """Return what can be read from a launch that stays a shell script."""
    match = re.search(r"\bvllm serve\s+[\"']?([^\s\"'\\-][^\s\"'\\]*)", script)
    path = re.search(r"--model(?:-path)?[ =]+[\"']?([^\s\"'\\]+)", script)
    engine = "container"
    if "vllm serve" in script or _VLLM_MODULE in script:
        engine = "vllm"
    elif _SGLANG_MODULE in script or "sglang serve" in script:
        engine = "sglang"
    elif started := next(
        (one for word, one in _ENGINES_BY_PROGRAM.items() if re.search(rf"(?<![\w-]){word}(?![\w-])", script)), None
    ):
        engine = started
    elif _ENGINE_ALIASES.get(hint or "", hint) in KNOWN_ENGINES:
        engine = _ENGINE_ALIASES.get(hint or "", hint or "")
    model = (match or path) and (match or path)[1]  # type: ignore[index]
    port, name = _PORT_FLAG.search(script), _SERVED_NAME_FLAG.search(script)
    number = int(port[1]) if port and 0 < int(port[1]) < 65536 else None
    health = next(
        (path for program, path in _OTHER_SERVER_HEALTH.items() if re.search(rf"(?<![\w-]){program}(?![\w-])", script)),
        None,
    )
    return EngineCommand(
        engine=engine, command=command, model=model, served_name=name[1] if name else None, port=number, health=health
    )


def parse_flags(words: Sequence[str], aliases: dict[str, str] | None = None) -> list[tuple[str, ArgValue]] | None:
    """Return words as flags with their values, None if they are something else.

    A repeated flag becomes a list; words that cannot be written back unchanged are not flags.
    """
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


def _flag_to_key(name: str, aliases: dict[str, str]) -> str:
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
        raise ValueError("a key stands twice")
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


def _parse_vllm(words: Sequence[str]) -> EngineCommand | None:
    end = _find_launch_end(words, "vllm", _VLLM_MODULE)
    if end is None:
        return None
    launch, rest = tuple(words[:end]), list(words[end:])
    found = EngineCommand(engine="vllm", command=None if launch == ("vllm", "serve") else launch)
    return _read_server_flags(found, _take_first_word_model(found, rest), launch, VLLM_SHORT_FLAGS)


def _parse_sglang(words: Sequence[str]) -> EngineCommand | None:
    end = _find_launch_end(words, "sglang", _SGLANG_MODULE)
    if end is None:
        return None
    launch = tuple(words[:end])
    found = EngineCommand(engine="sglang", command=None if launch == ("python", "-m", _SGLANG_MODULE) else launch)
    return _read_server_flags(found, words[end:], launch, {})


def _find_launch_end(words: Sequence[str], program: str, module: str) -> int | None:
    """Return where the launch words end: ``PROGRAM serve``, or ``-m MODULE`` of a Python call; None if they are
    neither.
    """
    at = _find_word_sequence(words, program, "serve")
    return _find_python_module_end(words, module) if at is None else at + 2


def _is_vllm_launch(launch: tuple[str, ...]) -> bool:
    """Tell whether launch words are vLLM's own, including an image's entry point: the model follows them."""
    return not launch or launch[-1] == _VLLM_MODULE or _find_word_sequence(launch, "vllm", "serve") == len(launch) - 2


def _parse_by_program(words: Sequence[str]) -> EngineCommand | None:
    """Read llama-server or trtllm-serve, among the first words and perhaps as a path."""
    for at, word in enumerate(words[:4]):
        engine = _ENGINES_BY_PROGRAM.get(word.rpartition("/")[2])
        if engine is None:
            continue
        end = at + 1 + (engine == "trtllm" and tuple(words[at + 1 : at + 2]) == ("serve",))
        launch, rest = tuple(words[:end]), list(words[end:])
        found = EngineCommand(
            engine=engine, command=None if launch in (("llama-server",), ("trtllm-serve",)) else launch
        )
        if engine == "trtllm":
            if len(rest) > 2 and rest[0].startswith("-") and not any(word.startswith("-") for word in rest[-2:]):
                rest = [rest[-1], *rest[:-1]]  # after the last flag's value
            if not rest or rest[0].startswith("-") or has_references(rest[0]):
                return None  # its model is a plain word in any position
            found.model, rest = resolve_defaults(rest[0]), rest[1:]
        return _read_server_flags(found, rest, launch, {})
    return None


def _parse_by_image(words: Sequence[str], image: str, hint: str | None) -> EngineCommand | None:
    """Read a command for an image whose entry point is the engine: it begins with a model or a flag."""
    name = image.rpartition("@")[0] or image
    engine = hint if hint in ("vllm", "sglang") else None
    if engine is None:
        engine = "vllm" if re.search(r"vllm[-_]openai|/vllm(?::|$)", name) and words else None
        engine = "llamacpp" if re.search(r"/llama\.cpp:server", name) and words else engine
    if engine is None:
        return None
    rest = list(words)
    found = EngineCommand(engine=engine, command=())
    rest = _take_first_word_model(found, rest) if engine == "vllm" else rest
    return _read_server_flags(found, rest, (), VLLM_SHORT_FLAGS if engine == "vllm" else {})


def _take_first_word_model(found: EngineCommand, rest: list[str]) -> list[str]:
    """Take the model that `vllm serve` has as its first word; one from the operator's environment can only be a flag's
    value.
    """
    if not rest or rest[0].startswith("-"):
        return rest
    if has_references(rest[0]):
        return ["--model", *rest]
    found.model = resolve_defaults(rest[0])
    return rest[1:]


def _read_server_flags(
    found: EngineCommand, rest: Sequence[str], launch: tuple[str, ...], aliases: dict[str, str]
) -> EngineCommand:
    """Take model, port and name out of an engine's flags; sparkctl sets those itself."""
    flags = parse_flags(rest, aliases)
    if flags is None:
        # Words that are not all flags are kept as written; port and host are added after them.
        words = (*launch, *([found.model] if found.model else []), *rest)
        host = _find_flag_value(rest, "--host")
        return EngineCommand(
            engine=found.engine, command=words, port=_find_port(rest, "--port"), flags=[("host", host)] if host else []
        )
    names = {"sglang": ("model-path", "model"), "vllm": ("model",)}.get(found.engine, ())
    called = (
        ("alias", "a") if found.engine == "llamacpp" else ("served-model-name",) if found.engine != "trtllm" else ()
    )
    for key, value in flags:
        plain = key.lstrip("-").replace("_", "-")
        if (
            found.engine == "llamacpp"
            and plain in _LLAMA_MODEL_FLAGS
            and isinstance(value, str)
            and found.model is None
        ):
            path = resolve_defaults(value)
            is_on_hub = path is not None and _HUB_ID.fullmatch(path) is not None and not path.endswith(".gguf")
            if path is not None and is_on_hub is _LLAMA_MODEL_FLAGS[plain]:
                found.model = path
            else:
                found.flags.append((key, value))
        elif plain in names and isinstance(value, str) and found.model is None:
            found.model = resolve_defaults(value)
            if found.model is None or (found.engine == "vllm" and not _is_vllm_launch(launch)):
                found.flags.append((key, value))
        elif plain == "port" and isinstance(value, str) and value.isdigit() and 0 < int(value) < 65536:
            found.port = int(value)
        elif plain == "host" and value == "0.0.0.0":  # noqa: S104
            continue
        elif plain in called and isinstance(value, str) and not has_references(value):
            found.served_name = resolve_defaults(value)
        else:
            if plain in called and isinstance(value, FlagValues):
                found.served_name = resolve_defaults(value.words[0])
            found.flags.append((key, value))
    return found


def _parse_known_server(words: Sequence[str], engines: Sequence[str]) -> EngineCommand | None:
    for program, health in _OTHER_SERVER_HEALTH.items():
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
    found = EngineCommand(engine="container", command=tuple(words[:first]) if flags is not None else tuple(words))
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
    text = _find_flag_value(words, *names)
    return int(text) if text and text.isdigit() and 0 < int(text) < 65536 else None


def _find_flag_value(words: Sequence[str], *names: str) -> str | None:
    for at, word in enumerate(words):
        name, equals, own = word.partition("=")
        if name in names:
            if name == "-m" and at and _PYTHON_PROGRAM.fullmatch(words[at - 1].rpartition("/")[2]):
                continue
            value = own if equals else words[at + 1] if at + 1 < len(words) else None
            return None if value is None or value.startswith("-") else value
    return None
