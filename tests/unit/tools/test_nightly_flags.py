"""The script that makes a catalogue from an engine's parser, on parsers made here."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkctl.engines import engine_flags
from tests.tools.nightly import flags

ROOT = Path(__file__).parents[3]


@dataclass
class Config:
    mode: int = 0
    made: int = field(default=0, init=False)


def wrap_optional(kind: Callable[[str], object]) -> Callable[[str], object]:
    """As vLLM wraps what may be None."""

    def _optional_type(text: str) -> object:
        return None if text == "None" else kind(text)

    return _optional_type


def read_config_flags(text: str, cls: type = Config) -> object:
    return cls(**json.loads(text))


read_config_flags.__name__ = "parse_dataclass"


def make_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("model")
    made.add_argument("-t", "--tensor-size", "--tp-size", type=int, default=1, help="Somebody's sentence.")
    made.add_argument("--share", type=float, choices=[0.5, 0.8])
    made.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("--quiet", action="store_true")
    made.add_argument("--sizes", nargs="+", type=int)
    made.add_argument("--sum", nargs="?", const="", default=None)
    made.add_argument("--config", type=json.loads, default={"a": 1})
    made.add_argument("--limit", type=wrap_optional(int))
    made.add_argument("--speculation", type=wrap_optional(read_config_flags))
    made.add_argument("--keys", nargs="*")
    made.add_argument("--old", help="[Deprecated] Use --new.")
    old = made.add_argument("--enable-x", action="store_true")
    made._option_string_actions["--no-disable-x"] = old  # as vLLM keeps old spellings
    made.add_argument("--middleware", action="append", default=[])
    return made


def test_a_parser_is_told_without_its_sentences() -> None:
    found = flags.catalogue(make_parser(), {"--config": {"keys": {"a": []}}})
    assert found == {
        "--tensor-size": {"aliases": ["-t", "--tp-size"], "type": "int", "default": "1"},
        "--share": {"type": "float", "choices": ["0.5", "0.8"]},
        "--graphs": {"aliases": ["--no-graphs"], "takes": "none", "default": "true", "negatable": True},
        "--quiet": {"takes": "none", "default": "false"},
        "--sizes": {"takes": "many", "type": "int"},
        "--sum": {"takes": "optional"},
        "--config": {"type": "json", "keys": {"a": []}},
        "--limit": {"type": "int", "nullable": True},
        "--speculation": {"type": "json", "nullable": True, "keys": {"mode": []}},
        "--keys": {"takes": "any"},
        "--old": {"deprecated": True},
        "--enable-x": {
            "aliases": ["--no-disable-x"],
            "hidden": ["--no-disable-x"],
            "takes": "none",
            "default": "false",
        },
        "--middleware": {"appends": True},
    }
    assert list(found) == sorted(found)
    assert "sentence" not in flags.render("vllm", "1.2.3", "here", found)


def test_a_file_is_read_back_and_written_the_same() -> None:
    for engine in engine_flags.list_engines_with_catalogue():
        for version in engine_flags.list_versions(engine):
            path = ROOT / "sparkctl/engines" / engine / f"flags-{version}.json"
            data = json.loads(path.read_text())
            base = path.with_name(f"flags-{data['base']}.json") if "base" in data else None
            assert flags.render(engine, version, data["origin"], flags.read_flags(path), base) == path.read_text()


HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      somebody's sentence (default: -1)
                                        (env: SOMEBODY)
-fa,   --flash-attn [on|off|auto]       somebody's sentence ('on', 'off', or 'auto', default: 'auto')
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to do it (default: enabled)
--poll <0|1>                            somebody's sentence (default: same as --threads)
--layer-range START END                 two words
-sm,   --split-mode {none,layer}
                                        somebody's sentence
-ngl,  --gpu-layers, --n-gpu-layers N   a number, 'auto', or 'all' (default: auto)


----- sampling params -----

--temp, --temperature N                 temperature (default: 0.80)
--draft, --draft-max N                  the argument has been removed. use
                                        --spec-draft-n-max
--old N                                 DEPRECATED: use --new
"""


def test_a_help_is_told_without_its_sentences() -> None:
    found = flags.of_help(HELP)
    assert found == {
        "--help": {"aliases": ["-h", "--usage"], "takes": "none"},
        "--threads": {"aliases": ["-t"], "type": "int", "default": "-1"},
        "--flash-attn": {
            "aliases": ["-fa"],
            "choices": ["on", "off", "auto", "true", "1", "enabled", "false", "0", "disabled", "-1"],
        },
        "--kv-offload": {
            "aliases": ["-kvo", "-nkvo", "--no-kv-offload"],
            "takes": "none",
            "default": "true",
            "negatable": True,
        },
        "--poll": {"choices": ["0", "1"]},
        "--layer-range": {"takes": "many"},
        "--split-mode": {"aliases": ["-sm"], "choices": ["none", "layer"]},
        "--gpu-layers": {"aliases": ["-ngl", "--n-gpu-layers"], "default": "auto"},
        "--temp": {"aliases": ["--temperature"], "type": "float", "default": "0.80"},
        "--old": {"deprecated": True},
    }
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    ("said", "version", "commit"),
    [
        ("version: 0.5.0-dev (build 1, commit 0c1e570)\nbuilt with GNU", "0.5.0", "0c1e570"),
        ("version: 6767 (5acd45546)\nbuilt with cc", "6767", "5acd45546"),
    ],
)
def test_a_program_is_asked_for_its_help_and_version(tmp_path: Path, said: str, version: str, commit: str) -> None:
    program = tmp_path / "llama-server"
    (tmp_path / "help").write_text(HELP)
    (tmp_path / "version").write_text(said)
    program.write_text(f'#!/bin/sh\ncase "$1" in --help) cat {tmp_path}/help;; *) cat {tmp_path}/version >&2;; esac\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.nightly.flags", "llamacpp", "--program", str(program)],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["engine"], data["version"], data["abbreviations"]) == ("llamacpp", version, False)
    assert commit in data["origin"]
    assert data["flags"] == flags.of_help(HELP)


def test_it_runs_alone_against_an_installed_engine(tmp_path: Path) -> None:
    """As inside of an image: through stdin, with a package that is laid out as SGLang is."""
    args = tmp_path / "sglang/srt/server_args.py"
    args.parent.mkdir(parents=True)
    args.write_text(
        "import sgl_kernel\nfrom torch.cuda import Stream\nclass ServerArgs:\n"
        "    @staticmethod\n    def add_cli_args(parser):\n        parser.add_argument('--tp-size', type=int)\n"
        "        parser.add_argument('--speculative-algorithm', type=str)\n"
    )
    (tmp_path / "sglang/srt/speculative").mkdir()
    (tmp_path / "sglang/srt/speculative/spec_info.py").write_text(
        "from enum import Enum\nclass SpeculativeAlgorithm(Enum):\n    EAGLE = 1\n    NONE = 2\n"
    )
    info = tmp_path / "sglang-0.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.9.9\n")
    script = (ROOT / "tests/tools/nightly/flags.py").read_text()
    done = subprocess.run(
        [sys.executable, "-", "sglang", "--stand-ins"],
        input=script, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["engine"], data["version"], data["underscores"]) == ("sglang", "0.9.9", False)
    assert data["flags"]["--tp-size"] == {"type": "int"}
    assert data["flags"]["--speculative-algorithm"] == {"values": ["EAGLE", "NEXTN"], "fold_case": True}


def test_a_table_is_read_from_a_package_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "broken" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "broken" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("import nothing_like_it\n\nTABLE = {'b': ('f', 'C'), 'a': ('f', 'D')}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(flags._wanted("broken.inner", "TABLE")) == [["b", "a"]]
    assert list(flags._wanted("broken.inner", "OTHER")) == []
