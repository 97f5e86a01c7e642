"""Our reading of command lines against the engines' own parsers, on random ones.

``python -m tests.tools.nightly.parsers vllm 0.32.0 --python ENGINE/bin/python``: an interpreter that has that engine (and, with
``--stand-ins``, not all that it needs). Exit 1 where our check calls an error what the parser takes, or where more than one
in a hundred of what it refuses is missed. What is refused only after parsing is left out: no parser tells that.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from sparkctl.engines import engine_flags
from sparkctl.engines.engine_flags import EngineFlag, FlagArity, FlagCatalogue
from sparkctl.engines.lint import LintSeverity
from sparkctl.engines.lint.flag_check import check_flags_by_catalogue
from sparkctl.engines.lint.profile_flags import LintContext, ProfileFlag

_MISSED = 0.01
_WORDS = (
    "1",
    "2.5",
    "abc",
    "auto",
    "None",
    "",
    "8k",
    "1K",
    '{"a":1}',
    "[1]",
    "true",
    "-1",
    "fp8",
    "1e3",
    "0x10",
    "1_000",
    "16",
)
_NOT_ASKED = frozenset(
    {"--help", "-h", "--config", "--lora-modules"}
)  # they print, read a file, or open what they name
_ASKING = """
import contextlib, importlib.util, io, json, sys
spec = importlib.util.spec_from_file_location("flags", sys.argv[1])
flags = importlib.util.module_from_spec(spec)
sys.modules["flags"] = flags
spec.loader.exec_module(flags)
engine, stand_ins, out = sys.argv[2], sys.argv[3] == "1", sys.stdout
sys.argv, sys.stdout = ["x"], sys.stderr
if stand_ins:
    sys.meta_path.append(flags.StandIns(engine))
    flags.without_init(engine)
parser, _ = flags.PARSERS[engine]()
takes = []
for line in json.load(sys.stdin):
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(line)
        takes.append(True)
    except (SystemExit, Exception):
        takes.append(False)
json.dump(takes, out)
"""


def main() -> int:
    """Compare, and print what differs."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("engine", choices=("sglang", "vllm"))
    asked.add_argument("version")
    asked.add_argument("--python", required=True, help="the interpreter that has the engine")
    asked.add_argument("--stand-ins", action="store_true")
    asked.add_argument("--lines", type=int, default=3000)
    asked.add_argument("--seed", type=int, default=0)
    options = asked.parse_args()
    catalogue = _parse_with_engine(engine_flags.load_catalogue(options.engine, options.version))
    chance = random.Random(options.seed)
    lines = [_draw_flag_line(catalogue, chance) for _ in range(options.lines)]
    needed = ["--model-path", "/m"] if options.engine == "sglang" else ["/m"]
    script = str(Path(__file__).with_name("flags.py"))
    ran = subprocess.run(
        [options.python, "-W", "ignore", "-c", _ASKING, script, options.engine, str(int(options.stand_ins))],
        input=json.dumps([needed + words for words, _ in lines]),
        stdout=subprocess.PIPE, text=True, check=True, timeout=600,
    )  # fmt: skip
    takes = json.loads(ran.stdout)
    wrong = missed = 0
    for (words, one), taken in zip(lines, takes, strict=True):
        errors = [
            said
            for said in check_flags_by_catalogue((one,), LintContext(title=options.engine, catalogue=catalogue))
            if said.level is LintSeverity.ERROR
        ]
        if taken and errors:
            wrong += 1
            print(f"taken, and an error here: {words}: {errors[0].message}")
        elif not taken and not errors:
            missed += 1
            print(f"refused, and nothing here: {words}")
    refused = takes.count(False)
    print(f"{options.engine} {options.version}: {len(lines)} lines, {refused} refused; {wrong} wrong, {missed} missed")
    return 1 if wrong or missed > _MISSED * max(refused, 100) else 0


def _parse_with_engine(catalogue: FlagCatalogue) -> FlagCatalogue:
    """Return a catalogue without what is refused only after parsing; keys are, but for those of vLLM's own classes."""
    flags = tuple(
        replace(flag, values=None, keys=None if flag.name == "--speculative-config" else flag.keys)
        for flag in catalogue.flags
    )
    return replace(catalogue, flags=flags, by_name={})


def _draw_flag_line(catalogue: FlagCatalogue, chance: random.Random) -> tuple[list[str], ProfileFlag]:
    """Return a flag with its values, and the same as a profile would give it."""
    name = chance.choice([name for name in catalogue.by_name if name not in _NOT_ASKED])
    flag = catalogue.by_name[name]
    word = _misspell_name(name, chance)
    values = _draw_values(flag, chance)
    inline = len(values) == 1 and chance.random() < 0.3
    words = [f"{word}={values[0]}"] if inline else [word, *values]
    return words, ProfileFlag(word=word, values=tuple(values), where=("args", word), in_args=True, inline=inline)


def _misspell_name(name: str, chance: random.Random) -> str:
    what = chance.random()
    if name.startswith("--") and what < 0.15:
        return name[: chance.randint(4, len(name))]
    if name.startswith("--") and what < 0.25:
        return "--" + name[2:].replace("-", "_")
    return name + "x" if name.startswith("--") and what < 0.3 else name


def _draw_values(flag: EngineFlag, chance: random.Random) -> list[str]:
    if flag.takes is FlagArity.NONE:
        return [chance.choice(_WORDS)] if chance.random() < 0.1 else []
    pool = (*_WORDS, *(flag.choices or ())[:3])
    some = 2 if flag.takes in (FlagArity.MANY, FlagArity.ANY) and chance.random() < 0.4 else 1
    return [] if chance.random() < 0.05 else [chance.choice(pool) for _ in range(some)]


if __name__ == "__main__":
    sys.exit(main())
