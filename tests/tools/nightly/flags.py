"""An engine's flag catalogue, from the argument parser of the engine that is installed where this runs.

``python -m tests.tools.nightly.flags sglang > sparkctl/engines/sglang/flags-VERSION.json``; or, as it needs nothing but Python
and the engine, inside of an image: ``docker run --rm -i --entrypoint python3 IMAGE - vllm < tests/tools/nightly/flags.py``.
``--base FILE`` leaves out what a catalogue beside it has, too: the next newer version's, so that a row of versions takes little.
``--stand-ins`` replaces what cannot be imported (no GPU, no compiled kernels) by modules that are empty.

llama-server is no Python: its flags are read from its own help. ``python -m tests.tools.nightly.flags llamacpp --program
PATH/llama-server``, or of an image ``docker run --rm --entrypoint /app/llama-server IMAGE --help > help.txt`` and then
``--help-text help.txt --version 0.5.0``.

What a flag is for is not written down: those sentences are their authors'. What an engine refuses only after parsing is
taken from its own enumerations where they can be imported; what could not be is said on stderr.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_SHORT = 40  # a longer default is no word
_TYPES = {
    "int": "int",
    "float": "float",
    "loads": "json",
    "parse_dataclass": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json",
    "union_dict_and_str": "json-or-text",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size-or-auto",
}
_OTHER_DEVICES = ("npu",)  # a stand-in for torch has no such thing: SGLang would insist on it
_OTHER_PLATFORMS = (
    "amdsmi",
    "libtpu",
    "tpu_inference",
    "pathwaysutils",
)  # nor are there any: vLLM takes one that it finds
_SWITCHES = ("BooleanOptionalAction", "EnableDisableAction")

Entry = dict[str, typing.Any]


def main() -> int:
    """Print the catalogue."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("engine", choices=tuple(READ_BY))
    asked.add_argument("--stand-ins", action="store_true", help="replace what cannot be imported by empty modules")
    asked.add_argument(
        "--source", help="where the engine is from, for the catalogue's origin: the wheel vllm 0.33.0 of PyPI"
    )
    asked.add_argument("--program", help="of llama-server: the program to ask")
    asked.add_argument("--help-text", type=Path, help="of llama-server: a file with what its --help printed")
    asked.add_argument("--version", help="of a help text: the version that printed it")
    asked.add_argument(
        "--against", type=Path, help="a catalogue: print only what differs in its flags, and end with 1 if any does"
    )
    asked.add_argument("--base", type=Path, help="a catalogue: write only what differs from it")
    options = asked.parse_args()
    if options.engine == "llamacpp":
        return _given(_llamacpp(options), options.against)
    if options.stand_ins:
        sys.meta_path.append(StandIns(_PACKAGES[options.engine]))
        without_init(options.engine)
    with contextlib.redirect_stdout(sys.stderr):  # what its modules say while they are imported
        parser, after = PARSERS[options.engine]()
    version = importlib.metadata.version(_PACKAGES[options.engine]).partition("+")[0]
    how = f"the argument parser of {options.engine} {version}"
    if options.source:
        how += f", from {options.source}"
    if options.stand_ins:
        how += ", what could not be imported replaced by stand-ins"
    return _given(render(options.engine, version, how, catalogue(parser, after), options.base), options.against)


def _given(made: str, against: Path | None) -> int:
    """Print what was made, or how its flags differ from another's; return the exit status."""
    if against is None:
        sys.stdout.write(made)
        return 0
    now, before = json.loads(made)["flags"], read_flags(against)
    differing = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    for name in differing:
        print(f"{name}: {json.dumps(before.get(name))} in {against.name}, {json.dumps(now.get(name))} now")
    print(f"{len(now)} flags, {f'{len(differing)} differ' if differing else 'none differs'}")
    return int(bool(differing))


def read_flags(file: Path) -> dict[str, Entry]:
    """Return the flags of a catalogue's file, with those of its base."""
    data = json.loads(file.read_text("utf-8"))
    flags = read_flags(file.with_name(f"flags-{data['base']}.json")) if "base" in data else {}
    return {name: entry for name, entry in (flags | data["flags"]).items() if entry is not None}


def catalogue(parser: argparse.ArgumentParser, after: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return every flag of a parser by its name; ``after``: what is checked after parsing, by name."""
    found = {}
    for action in parser._actions:
        if action.option_strings:
            taken = [name for name, one in parser._option_string_actions.items() if one is action]
            name, entry = describe(action, [one for one in taken if one not in action.option_strings])
            found[name] = entry | after.get(name, {})
    return dict(sorted(found.items()))


def describe(action: argparse.Action, hidden: Sequence[str] = ()) -> tuple[str, Entry]:
    """Return a flag's name and what is known of it; what is usual is left out. ``hidden``: names it takes and does not show."""
    names = sorted(action.option_strings, key=lambda one: not one.startswith("--"))  # the long one goes first
    kind = type(action).__name__
    entry: Entry = {}
    if aliases := [one for one in (*hidden, *action.option_strings) if one != names[0]]:
        entry["aliases"] = aliases
    if hidden:
        entry["hidden"] = list(hidden)
    if (takes := _takes(action.nargs)) != "one":
        entry["takes"] = takes
    if takes != "none" and (value := _TYPES.get(_type_name(action.type))):
        entry["type"] = value
    if takes != "none" and "optional" in getattr(action.type, "__name__", ""):
        entry["nullable"] = True
    for config in _dataclasses(action.type):
        entry["keys"] = {
            one.name: [] for one in sorted(dataclasses.fields(config), key=lambda one: one.name) if one.init
        }
    if action.choices is not None and takes != "none":
        entry["choices"] = ordered(action.choices)
    if (default := short(action.default)) is not None:
        entry["default"] = default
    if kind in _SWITCHES:
        entry["negatable"] = True
    by_help = str(action.help or "").lower().lstrip("[(").startswith("deprecated")
    if kind.startswith("Deprecated") or getattr(action, "deprecated", False) or by_help:
        entry["deprecated"] = True
    if isinstance(replacement := getattr(action, "new_flag", None), str):
        entry["replacement"] = replacement
    if kind in ("AppendAction", "_AppendAction"):
        entry["appends"] = True
    return names[0], entry


def short(value: object) -> str | None:
    """Return a default as a word, None for none and for what is not a short word."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == argparse.SUPPRESS:
        return None
    if isinstance(value, int | float | str) and len(str(value)) <= _SHORT and "<" not in str(value):
        return str(value)
    return None


def ordered(choices: Iterable[object]) -> list[str]:
    """Return choices as words in an order that is the same each time: parsers make them of sets, too."""
    return sorted(map(str, choices), key=lambda one: (not one.isdecimal(), int(one) if one.isdecimal() else 0, one))


def render(engine: str, version: str, origin: str, flags: Mapping[str, Entry], base: Path | None = None) -> str:
    """Return the file: one line for a flag, so that two versions can be compared; with a base only what differs from it."""
    by = READ_BY[engine]
    head = {"schema": 1, "engine": engine, "version": version, "origin": origin}
    head |= {"partial": True} if by.partial else {}
    head |= {"abbreviations": by.abbreviations, "underscores": by.underscores, "dotted": by.dotted}
    result: Mapping[str, Entry | None] = flags
    if base is not None:
        there = read_flags(base)
        head["base"] = json.loads(base.read_text("utf-8"))["version"]
        result = {name: flags.get(name) for name in sorted(flags.keys() | there) if flags.get(name) != there.get(name)}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in result.items())
    return "{\n" + "\n".join(lines) + '\n "flags": {\n' + body + "\n }\n}\n"


def _takes(nargs: int | str | None) -> str:
    if nargs == 0:
        return "none"
    return {None: "one", "?": "optional", "*": "any"}.get(nargs, "many") if not isinstance(nargs, int) else "many"


def _type_name(kind: object) -> str:
    """Return the name of the function that reads a value; of vLLM's wrappers the wrapped one's."""
    for inner in _within(kind):
        if callable(inner) and not dataclasses.is_dataclass(inner):
            return _type_name(inner)
    return getattr(kind, "__name__", "")


def _dataclasses(kind: object) -> Iterator[typing.Any]:
    """Yield the configuration that a function makes of JSON, where it is made of one."""
    for inner in _within(kind):
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield inner
        elif callable(inner):
            yield from _dataclasses(inner)


def _within(kind: object) -> Iterator[object]:
    """Yield what a function was made with."""
    yield from (cell.cell_contents for cell in getattr(kind, "__closure__", None) or ())
    yield from getattr(kind, "__defaults__", None) or ()


def _sglang() -> tuple[argparse.ArgumentParser, dict[str, Entry]]:
    args = importlib.import_module("sglang.srt.server_args")
    parser = argparse.ArgumentParser()
    args.ServerArgs.add_cli_args(parser)
    after: dict[str, Entry] = {}
    for kind in _wanted("sglang.srt.speculative.spec_info", "SpeculativeAlgorithm"):
        names = [one.name for one in kind if one.name != "NONE"]
        after["--speculative-algorithm"] = {
            "values": [*names, "NEXTN"],
            "fold_case": True,
        }  # NEXTN is EAGLE's other name
    return parser, after


def _vllm() -> tuple[argparse.ArgumentParser, dict[str, Entry]]:
    parsers = importlib.import_module("vllm.utils.argparse_utils")
    made = _first(
        "vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"
    )
    parser = made.make_arg_parser(parsers.FlexibleArgumentParser())
    after: dict[str, Entry] = {}
    for kinds in _wanted("vllm.config.cache", "CacheDType"):
        after["--kv-cache-dtype"] = {"values": ordered(typing.get_args(kinds))}
    for kind in _wanted("vllm.v1.attention.backends.registry", "AttentionBackendEnum"):
        after["--attention-backend"] = {"values": ordered(kind.__members__), "fold_case": True}
    for methods in _wanted("vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS"):
        after["--quantization"] = {"values": ordered(methods)}
        for old in _wanted("vllm.model_executor.layers.quantization", "DEPRECATED_QUANTIZATION_METHODS"):
            after["--quantization"]["old_values"] = ordered(old)
    for flag, package, table in (
        ("--tool-call-parser", "vllm.tool_parsers", "_TOOL_PARSERS_TO_REGISTER"),
        ("--reasoning-parser", "vllm.reasoning", "_REASONING_PARSERS_TO_REGISTER"),
    ):
        for parsers_by_name in _wanted(package, table):
            plugin = flag.replace("tool-call", "tool") + "-plugin"
            after[flag] = {"values": ordered(parsers_by_name), "extended_by": plugin}
    for config in _wanted("vllm.config.speculative", "SpeculativeConfig"):
        keys: dict[str, list[str]] = {name: [] for name in sorted(getattr(config, "__dataclass_fields__", {}))}
        for key, listed in (("method", "SpeculativeMethod"), ("rejection_sample_method", "RejectionSampleMethod")):
            for literal in _wanted("vllm.config.speculative", listed):
                keys[key] = sorted(_literals(literal))
        after["--speculative-config"] = {"type": "json", "keys": keys}
    return parser, after


def without_init(package: str) -> None:
    """Have a package's modules without what its ``__init__`` does to others: stand-ins cannot be patched."""
    spec = importlib.machinery.PathFinder.find_spec(package)
    if spec is not None and spec.submodule_search_locations is not None:
        bare = types.ModuleType(package)
        bare.__path__ = list(spec.submodule_search_locations)
        bare.__getattr__ = lambda name: _find_in_package(package, name)  # type: ignore[method-assign]
        sys.modules[package] = bare


def _find_in_package(package: str, name: str) -> object:
    """Return a module of a package without its ``__init__``; what that would have taken from elsewhere is empty."""
    if name.startswith("__"):
        raise AttributeError(name)
    if importlib.machinery.PathFinder.find_spec(f"{package}.{name}", sys.modules[package].__path__):
        return importlib.import_module(f"{package}.{name}")
    return _Anything("stand_in")


def _first(*names: str) -> types.ModuleType:
    """Return the first of these modules that there is: each version keeps it elsewhere."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    return importlib.import_module(names[-1])


def _trtllm() -> tuple[argparse.ArgumentParser, dict[str, Entry]]:
    """Return the options of its click command as argparse would have them."""
    parser = argparse.ArgumentParser(add_help=False)
    for option in importlib.import_module("tensorrt_llm.commands.serve").serve.params:
        if option.param_type_name != "option":
            continue
        names = [*option.opts, *option.secondary_opts]
        if option.is_flag:
            parser.add_argument(*names, action="store_true", default=option.default)
            continue
        parser.add_argument(
            *names,
            type={"integer": int, "float": float}.get(option.type.name, str),
            default=option.default,
            choices=getattr(option.type, "choices", None),
            action="append" if option.multiple else "store",
        )
    return parser, {}


PARSERS = {"sglang": _sglang, "vllm": _vllm, "trtllm": _trtllm}
_PACKAGES = {"sglang": "sglang", "vllm": "vllm", "trtllm": "tensorrt_llm"}


@dataclasses.dataclass(frozen=True)
class ReadBy:
    """How an engine reads a command line. ``partial``: most of its settings are in a file, and not in these flags."""

    abbreviations: bool = True
    underscores: bool = False
    dotted: bool = False
    partial: bool = False


READ_BY = {
    "sglang": ReadBy(),
    "vllm": ReadBy(underscores=True, dotted=True),
    "llamacpp": ReadBy(abbreviations=False, underscores=True),
    "trtllm": ReadBy(abbreviations=False, partial=True),
}


def _llamacpp(options: argparse.Namespace) -> str:
    """Return the catalogue of llama-server, from its help."""
    version, source = options.version, f", from {options.source}" if options.source else ""
    if options.program:
        text = subprocess.run([options.program, "--help"], capture_output=True, text=True, check=True).stdout
        result = subprocess.run([options.program, "--version"], capture_output=True, text=True, check=True)
        found = re.search(
            r"version: (\d+(?:\.\d+)*)\S*(?: .*?(?:commit |\()([0-9a-f]{7,}))?", result.stdout + result.stderr
        )
        if found is None:
            raise SystemExit(f"{options.program} does not tell its version")
        version = version or found[1]
        source = f" (commit {found[2]}){source}" if found[2] else source
    elif options.help_text and version:
        text = options.help_text.read_text("utf-8")
    else:
        raise SystemExit("say --program, or --help-text and --version")
    return render("llamacpp", version, f"the help of llama-server {version}{source}", of_help(text))


_NAMES = re.compile(r"-[\w.-]+(?:, +-[\w.-]+)*")
_COLUMN = 40  # where what a flag is for begins; a longer head stands on a line of its own
_BY_DEFAULT = re.compile(r"\(default: '?(?P<value>[^\s,;')]+)'?")
_WORDS = {"on": ("true", "1", "enabled"), "off": ("false", "0", "disabled"), "auto": ("-1",)}


def of_help(text: str) -> dict[str, Entry]:
    """Return the flags of llama-server by what its ``--help`` prints. Those that it names only to say that they were removed
    are left out: it refuses them."""
    found: dict[str, Entry] = {}
    for block in re.split(r"\n(?=-(?!----))", "\n" + text.partition("\n\n-----")[0] + text.partition("\n\n-----")[2]):
        first, _, rest = block.partition("\n")
        names = _NAMES.match(first)
        if names is None:
            continue
        is_short = len(first) > _COLUMN and not first[_COLUMN - 3 : _COLUMN].strip()
        head, said = (first[:_COLUMN], first[_COLUMN:] + "\n" + rest) if is_short else (first, rest)
        about = " ".join(said.split())
        if "argument has been removed" not in about:
            name, entry = _of_line(names[0].replace(",", " ").split(), head[names.end() :].strip(), about)
            found[name] = entry
    return dict(sorted(found.items()))


def _of_line(names: list[str], hint: str, about: str) -> tuple[str, Entry]:
    ordered_names = sorted(names, key=lambda one: (not one.startswith("--"), "--no-" in one))
    name, aliases = ordered_names[0], [one for one in names if one != ordered_names[0]]
    entry: Entry = {"aliases": aliases} if aliases else {}
    default = _BY_DEFAULT.search(about)
    value = default["value"].strip('"') if default else ""
    if not hint:
        entry["takes"] = "none"
        negatable = any(one.startswith(("--no-", "-no-")) for one in aliases)
        value = {"enabled": "true", "disabled": "false"}.get(value, value)
    else:
        negatable = False
        if len(hint.split()) == 2 and hint.replace(" ", "").isupper():
            entry["takes"] = "many"
        if hint == "N" and re.fullmatch(r"-?\d+", value):
            entry["type"] = "int"
        elif hint == "N" and re.fullmatch(r"-?\d*\.\d+", value):
            entry["type"] = "float"
        if choices := _choices(hint):
            entry["choices"] = choices
    if (
        value
        and len(value) <= _SHORT
        and re.fullmatch(r"-?[\w.]+", value)
        and value not in ("same", "loaded", "unused")
    ):
        entry["default"] = value
    if negatable:
        entry["negatable"] = True
    if about.upper().startswith(("DEPRECATED", "[DEPRECATED", "(DEPRECATED")):
        entry["deprecated"] = True
    return name, entry


def _choices(hint: str) -> list[str]:
    """Return the words of ``{a,b}``, ``<0|1>`` and ``[on|off|auto]``; of the last with those that mean the same."""
    if hint[:1] == "{" and hint[-1:] == "}":
        return hint[1:-1].split(",")
    if "|" not in hint or not re.fullmatch(r"[<\[][\w|]+[>\]]", hint):
        return []
    words = hint[1:-1].split("|")
    return [*words, *(same for word in words for same in _WORDS.get(word, ()))]


def _literals(kind: object) -> Iterator[str]:
    """Yield the words of a Literal, of those in it and of unions too."""
    for one in typing.get_args(kind):
        if isinstance(one, str):
            yield one
        else:
            yield from _literals(one)


def _wanted(module: str, name: str) -> Iterator[typing.Any]:
    """Yield a name of a module, or nothing and say so. A table is read from the source of one that cannot be imported."""
    try:
        yield getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError) as error:
        if table := read_table(module, name):
            yield table
        else:
            print(f"left out: {module}.{name}: {error}", file=sys.stderr)


def read_table(module: str, name: str) -> list[str]:
    """Return the keys of a table that a package writes out in its ``__init__``, without importing it; empty if it has none."""
    for folder in map(Path, sys.path):
        source = folder.joinpath(*module.split("."), "__init__.py")
        if not source.is_file():
            continue
        for line in ast.parse(source.read_text("utf-8")).body:
            if (
                isinstance(line, ast.Assign)
                and isinstance(line.value, ast.Dict)
                and ast.unparse(line.targets[0]) == name
            ):
                return [str(ast.literal_eval(key)) for key in line.value.keys if key is not None]
    return []


class _Base:
    """What stands in for a base class."""

    def __init_subclass__(cls, **_: typing.Any) -> None:
        """Take any keyword."""


class _Anything(str):
    """Whatever a stand-in is asked for: an attribute, a call, a decorator, a base class, a word, the number 0."""

    __slots__ = ()

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("__") and name != "__func__":
            raise AttributeError(name)
        return self

    def __call__(self, *given: typing.Any, **_: typing.Any) -> typing.Any:
        return given[0] if len(given) == 1 and callable(given[0]) else self  # a decorator leaves what it decorates

    def __setattr__(self, _: str, __: object) -> None:
        """Keep nothing."""

    def __getitem__(self, _: object) -> typing.Any:
        return self

    def __setitem__(self, _: object, __: object) -> None:
        """Keep nothing."""

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (_Base,)

    def __or__(self, _: object) -> typing.Any:
        return typing.Any

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False

    def __lt__(self, _: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __index__(self) -> int:
        return 0

    __int__ = __index__


class _StandIn(types.ModuleType):
    """A module in which every name is there and none does anything."""

    __version__ = "99.0.0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("__") or name in _OTHER_DEVICES:
            raise AttributeError(name)
        return _Anything("stand_in")


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: what nobody else finds is empty. Nothing of the engine itself is replaced, nor of Python, nor what
    another package asks for: it knows what to do without, as sympy without gmpy2."""

    def __init__(self, package: str) -> None:
        """``package``: the engine's."""
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return a stand-in for a module that is not installed and that the engine asks for."""
        root = name.partition(".")[0]
        if root in _OTHER_PLATFORMS or (root == "triton" and self._package == "vllm"):  # vLLM has one of its own
            return None
        above = sys.modules.get(name.rpartition(".")[0])
        if root in sys.stdlib_module_names or not (above is None or isinstance(above, _StandIn)):
            return None
        if above is None and _find_asking_package() not in (None, self._package):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return the empty module."""
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


def _find_asking_package() -> str | None:
    """Return the package whose code imports, None if nobody's does."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and (
        "importlib" in frame.f_code.co_filename or frame.f_globals.get("__name__") == __name__
    ):
        frame = frame.f_back
    return None if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


if __name__ == "__main__":
    raise SystemExit(main())
