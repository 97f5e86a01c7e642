"""Imports every recipe below directories, and holds the launch against the command that the recipe's own tool would run.

``python -m tests.tools.nightly.recipes DIRECTORY... [--json]``: prints a line for each recipe that does not come out the same,
and how many keys were mapped, kept, left out and withheld. Exit 1 where a recipe cannot be imported, or comes out different.

The commands to compare with are filled in here by the tools' own rules, written a second time: `str.format` for v1, and
for v2 placeholders `{name}` alone, with doubled braces collapsed where a text has an opening pair. Flags are compared, not
their order; what an engine is told in any case (host and port) may be more than the recipe said.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sparkctl import engines
from sparkctl.commands.import_profile import ImportedProfile, ImportProfile, import_from_source
from sparkctl.errors import SparkctlError

_SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
          "-dcp": "--decode-context-parallel-size", "-q": "--quantization", "-pcp": "--prefill-context-parallel-size"}  # fmt: skip
_REVISED = re.compile(r"\bvllm serve\b|\bvllm\.entrypoints|\bsglang serve\b|\bsglang\.launch_server\b")


@dataclass(frozen=True, slots=True)
class Result:
    """One recipe. ``wrong`` None: it came out as its own tool has it; ``compared``: there was a command to compare."""

    path: Path
    wrong: str | None
    compared: bool
    counts: Counter[str]


def find_recipes(directory: Path) -> Iterator[Path]:
    """Yield the recipes below a directory: YAML files that say what to run."""
    for path in sorted(directory.rglob("*.y*ml")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if re.search(r"^(model|container|command|services):", text, re.MULTILINE) and ".sparkrun" not in path.parts:
            yield path


def try_recipe(path: Path) -> Result:
    """Import one recipe and compare its launch."""
    try:
        written = import_from_source(str(path), ImportProfile(allow=True))
    except SparkctlError as error:
        return Result(path, f"cannot be imported: {error.message}", False, Counter())
    counts = Counter(str(account.fate) for account in written.imported.ledger.accounts)
    wanted = own_command(yaml.safe_load(path.read_text(encoding="utf-8-sig")))
    if wanted is None:
        return Result(path, None, False, counts)
    return Result(path, describe_difference(wanted, get_launch_words(written)), True, counts)


def own_command(data: dict[str, Any]) -> list[str] | None:
    """Return the words of a recipe's command as its own tool fills it in, None where it has none or is more than one."""
    if not isinstance(data.get("command"), str):
        return None
    values = {"model": data.get("model"), **(data.get("defaults") or {})}
    if str(data.get("recipe_version")) == "1" and "runtime" not in data:
        try:
            text = data["command"].format(**values)
        except (LookupError, ValueError):
            return None  # single braces: its own tool does not start it either
    else:
        text = fill_by_rule(data["command"], {key: fill_by_rule(str(value), {}) for key, value in values.items()})
    text = re.sub(r"\\[ \t]*\n", " ", text)
    lines = [line for line in text.strip().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) != 1 or re.search(r"&&|\|\||;|\$\(", lines[0]):
        return None
    words = shlex.split(lines[0])
    name = (data.get("defaults") or {}).get("served_model_name")
    if (
        name is not None
        and data.get("runtime")
        and not any("--served-model-name" in w or "--alias" in w for w in words)
    ):
        words += ["--served-model-name", *str(name).split()]
    revision = data.get("model_revision")
    if revision and _REVISED.search(text) and not any(word.startswith("--revision") for word in words):
        words += ["--revision", str(revision)]
    return words


def fill_by_rule(text: str, values: dict[str, str]) -> str:
    """Fill in as sparkrun does."""
    doubled = "{{" in text
    for _ in range(10):
        text = re.sub(
            r"(?<!\{)\{([A-Za-z_]\w*)\}|(?<=\{\{)\{([A-Za-z_]\w*)\}",
            lambda found: values.get(found[1] or found[2], found[0]),
            text,
        )
    return text.replace("{{", "{").replace("}}", "}") if doubled else text


def get_launch_words(written: ImportedProfile) -> list[str]:
    """Return the words of the container's command: entry point and all."""
    one = written.profile
    words = [word.replace("$${", "${") for word in engines.load_engine(one.engine).build_command(one)]
    if len(words) == 3 and words[:2] == ["bash", "-c"]:
        words = shlex.split(re.sub(r"\\[ \t]*\n", " ", words[2]))
    return [*([one.container.entrypoint] if one.container.entrypoint else []), *words]


def describe_difference(wanted: Sequence[str], got: Sequence[str]) -> str | None:
    """Return what is in one launch and not in the other, None where they mean the same."""
    own, ours = _count_flags(wanted), _count_flags(got)
    for flag, usual in (("--host", ("0.0.0.0",)), ("--port", None)):
        if not any(entry[0] == flag for entry in own):
            ours = Counter({entry: n for entry, n in ours.items() if entry[0] != flag or usual not in (None, entry[1])})
    if own == ours:
        return None
    lost, added = own - ours, ours - own
    return f"lost {[' '.join((f, *v)) for f, v in lost]}, added {[' '.join((f, *v)) for f, v in added]}"


def _count_flags(words: Sequence[str]) -> Counter[tuple[str, tuple[str, ...]]]:
    """Return each flag with its values; what stands before the first one under an empty name."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if re.match(r"--?[A-Za-z]", word) and not (
            found[-1][0] == "" and word == "-m" and "python" in (found[-1][1] or [""])[-1]
        ):
            name, equals, value = word.partition("=")
            found.append((_SHORT.get(name, name), [value] if equals else []))
        else:
            found[-1][1].append(word)
    model = next((entry for entry in found[1:] if entry[0] == "--model" and len(entry[1]) == 1), None)
    if model is not None and [word.rpartition("/")[2] for word in found[0][1][-2:]] == ["vllm", "serve"]:
        found.remove(model)  # `vllm serve --model X` is `vllm serve X`
        found[0][1].extend(model[1])
    return Counter((name, tuple(_normalize_words(value) for value in values)) for name, values in found)


def _normalize_words(value: str) -> str:
    """JSON with other blanks in it is the same JSON."""
    if not value.startswith("{"):
        return value
    try:
        return json.dumps(json.loads(value), sort_keys=True)
    except ValueError:
        return value


def main() -> int:
    """Try every recipe below the directories that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.nightly.recipes", description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    results = [try_recipe(path) for directory in options.directories for path in find_recipes(directory)]
    total = sum((result.counts for result in results), Counter[str]())
    wrong = [result for result in results if result.wrong is not None]
    summary = {
        "recipes": len(results),
        "compared": sum(result.compared for result in results),
        "wrong": len(wrong),
        **{key: total[key] for key in ("mapped", "kept", "unsupported", "withheld")},
    }
    if options.json:
        print(json.dumps(summary))
    else:
        for result in wrong:
            print(f"{result.path}: {result.wrong}")
        print(", ".join(f"{value} {key}" for key, value in summary.items()))
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
