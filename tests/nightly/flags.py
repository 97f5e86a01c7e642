"""An engine's flag catalogue, from the argument parser of the engine that is installed where this runs.

``python -m tests.nightly.flags sglang > sparkctl/engines/flags/sglang-VERSION.json``; or, as it needs nothing but Python
and the engine, inside of an image: ``docker run --rm -i --entrypoint python3 IMAGE - vllm < tests/nightly/flags.py``.
``--stand-ins`` replaces what cannot be imported (no GPU, no compiled kernels) by modules that are empty.

What a flag is for is not written down: those sentences are their authors'. What an engine refuses only after parsing is
taken from its own enumerations where they can be imported; what could not be is said on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping

_SHORT = 40  # a longer default is no word
_TYPES = {
    "int": "int",
    "float": "float",
    "loads": "json",
    "parse_dataclass": "json",
    "json_list_type": "json",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size-or-auto",
}
_SWITCHES = ("BooleanOptionalAction", "EnableDisableAction")

Entry = dict[str, typing.Any]


def main() -> int:
    """Print the catalogue."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("engine", choices=("sglang", "vllm"))
    asked.add_argument("--stand-ins", action="store_true", help="replace what cannot be imported by empty modules")
    options = asked.parse_args()
    if options.stand_ins:
        sys.meta_path.append(StandIns())
    parser, after = (_sglang if options.engine == "sglang" else _vllm)()
    version = importlib.metadata.version("vllm" if options.engine == "vllm" else "sglang").partition("+")[0]
    how = f"the argument parser of {options.engine} {version}"
    if options.stand_ins:
        how += ", what could not be imported replaced by stand-ins"
    sys.stdout.write(render(options.engine, version, how, catalogue(parser, after)))
    return 0


def catalogue(parser: argparse.ArgumentParser, after: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return every flag of a parser by its name; ``after``: what is checked after parsing, by name."""
    found = {}
    for action in parser._actions:
        if action.option_strings:
            name, entry = describe(action)
            found[name] = entry | after.get(name, {})
    return dict(sorted(found.items()))


def describe(action: argparse.Action) -> tuple[str, Entry]:
    """Return a flag's name and what is known of it; what is usual is left out."""
    names = sorted(action.option_strings, key=lambda one: not one.startswith("--"))  # the long one goes first
    kind = type(action).__name__
    entry: Entry = {}
    if names[1:]:
        entry["aliases"] = [one for one in action.option_strings if one != names[0]]
    if hidden := [one for one in getattr(action, "hidden_option_strings", ()) if one in names]:
        entry["hidden"] = hidden
    if (takes := _takes(action.nargs)) != "one":
        entry["takes"] = takes
    if takes != "none" and (value := _TYPES.get(_type_name(action.type))):
        entry["type"] = value
    if action.choices is not None and takes != "none":
        entry["choices"] = [str(one) for one in action.choices]
    if (default := short(action.default)) is not None:
        entry["default"] = default
    if kind in _SWITCHES:
        entry["negatable"] = True
    if kind.startswith("Deprecated") or getattr(action, "deprecated", False):
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
    if isinstance(value, int | float | str) and len(str(value)) <= _SHORT and "<" not in str(value):
        return str(value)
    return None


def render(engine: str, version: str, origin: str, flags: Mapping[str, Entry]) -> str:
    """Return the file: one line for a flag, so that two versions can be compared."""
    is_vllm = engine == "vllm"
    head = {
        "schema": 1,
        "engine": engine,
        "version": version,
        "origin": origin,
        "abbreviations": True,
        "underscores": is_vllm,
        "dotted": is_vllm,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in flags.items())
    return "{\n" + "\n".join(lines) + '\n "flags": {\n' + body + "\n }\n}\n"


def _takes(nargs: int | str | None) -> str:
    if nargs == 0:
        return "none"
    return {None: "one", "?": "optional"}.get(nargs, "many") if not isinstance(nargs, int) else "many"


def _type_name(kind: object) -> str:
    """Return the name of the function that reads a value; of vLLM's wrappers the wrapped one's."""
    for cell in getattr(kind, "__closure__", None) or ():
        inner = cell.cell_contents
        if callable(inner):
            return _type_name(inner)
    return getattr(kind, "__name__", "")


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
    try:
        made = importlib.import_module("vllm.entrypoints.common.cli_args")
    except ImportError:
        made = importlib.import_module("vllm.entrypoints.openai.cli_args")
    parser = made.make_arg_parser(parsers.FlexibleArgumentParser())
    after: dict[str, Entry] = {}
    for kinds in _wanted("vllm.config.cache", "CacheDType"):
        after["--kv-cache-dtype"] = {"values": list(typing.get_args(kinds))}
    for methods in _wanted("vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS"):
        after["--quantization"] = {"values": list(methods)}
        for old in _wanted("vllm.model_executor.layers.quantization", "DEPRECATED_QUANTIZATION_METHODS"):
            after["--quantization"]["old_values"] = list(old)
    for config in _wanted("vllm.config.speculative", "SpeculativeConfig"):
        keys: dict[str, list[str]] = {name: [] for name in sorted(getattr(config, "__dataclass_fields__", {}))}
        for key, listed in (("method", "SpeculativeMethod"), ("rejection_sample_method", "RejectionSampleMethod")):
            for literal in _wanted("vllm.config.speculative", listed):
                keys[key] = sorted(_literals(literal))
        after["--speculative-config"] = {"type": "json", "keys": keys}
    return parser, after


def _literals(kind: object) -> Iterator[str]:
    """Yield the words of a Literal, of those in it and of unions too."""
    for one in typing.get_args(kind):
        if isinstance(one, str):
            yield one
        else:
            yield from _literals(one)


def _wanted(module: str, name: str) -> Iterator[typing.Any]:
    """Yield a name of a module, or nothing and say so."""
    try:
        yield getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        print(f"left out: {module}.{name}: {error}", file=sys.stderr)


class _StandIn(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__: typing.ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": lambda *a, **k: None, "__call__": lambda *a, **k: None})
        setattr(self, name, made)
        return made


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: what nobody else finds is empty. Of the engine itself nothing is replaced."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return a stand-in for a module that is not installed."""
        if name.partition(".")[0] in ("sglang", "vllm") or name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return the empty module."""
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


if __name__ == "__main__":
    raise SystemExit(main())
