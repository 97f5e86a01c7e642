"""`bench --by-domain`, its pictures, and API keys, on simulated Sparks."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sparkctl.cli.invocation import invoke_command_line
from sparkctl.simulator import run_in_background
from tests.support import load_generator_stand_in
from tests.support.run_command import parse_result, run_demo

PROMPTS = '{"category": "coding", "turns": ["Write a loop."]}\n{"category": "prose", "turns": ["Tell a tale."]}\n'
PNG_BEGIN = b"\x89PNG\r\n\x1a\n"


def test_each_kind_of_text_has_its_speed_and_acceptance(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(PROMPTS)
    words = ("--by-domain", "--prompts", str(file), "--max-tokens", "60", "--json")
    ran = run_demo("bench", "qwen36-vllm", *words, scenario="two-stacks")
    assert parse_result(ran)["outcome"] == "done", ran
    found = [event["result"] for line in ran.stdout.splitlines() if (event := json.loads(line))["event"] == "domain"]
    assert [one["domain"] for one in found] == ["coding", "prose"]
    for one in found:
        assert one["tokens"] == 60
        assert 5 < one["generation_rate"]["values"][0] < 60
        assert 1.5 < one["accept_length"] < 4
        assert one["disturbed"] is True  # this scenario has a client of its own


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        (PROMPTS, ("--domain", "codnig"), "did you mean `coding`"),
        (PROMPTS + "{broken\n", (), "prompts.jsonl:3: this line is not JSON"),
        (PROMPTS + '{"turns": ["x"]}\n', (), "prompts.jsonl:3: category"),
        (PROMPTS + '{"category": "a", "turns": []}\n', (), "prompts.jsonl:3: turns"),
        ("\n", (), "it contains no prompt"),
        (PROMPTS, ("--depth", "9"), "--depth does not go with --by-domain"),
        (PROMPTS, ("--together",), "--together does not go with --by-domain"),
        (PROMPTS, ("--baseline", "qwen36-vllm"), "cannot be its own baseline"),
    ],
)
def test_bad_input_is_refused_before(tmp_path: Path, content: str, words: tuple[str, ...], says: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(content)
    ran = run_demo("bench", "qwen36-vllm", "--by-domain", "--prompts", str(file), *words, scenario="two-stacks")
    assert ran.returncode == 2, ran
    assert says in ran.stderr + ran.stdout


def test_a_model_that_thinks_is_measured_in_two_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    profiles, prompts = tmp_path / "config/sparkctl/profiles", tmp_path / "prompts.jsonl"
    profiles.mkdir(parents=True)
    (profiles / "thinker.yaml").write_text(
        "schema: 1\nname: thinker\nextends: qwen36-vllm\nargs: {reasoning-parser: qwen3, override-generation-config: {temperature: 0.6}}\n"
    )
    prompts.write_text(PROMPTS)
    for name, path in (("SPARKCTL_STATE", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(tmp_path / path))
    with run_in_background(scenario="empty", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        assert invoke_command_line(["up", "thinker", "--node", "spark1", "--json"]) == 0
        capfd.readouterr()
        words = ["--by-domain", "--prompts", str(prompts), "--max-tokens", "24", "--json"]
        assert invoke_command_line(["bench", "thinker", *words]) == 0
        events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        passes = [(event["thinking"], event["domain"]) for event in events if event["event"] == "domain"]
        assert passes == [(False, "coding"), (False, "prose"), (True, "coding"), (True, "prose")]
        assert invoke_command_line(["bench", "show", "1", "--json"]) == 0
        run = json.loads(capfd.readouterr().out)["run"]
        generator = shlex.join([sys.executable, load_generator_stand_in.__file__])
        cell = ("--pp", "8", "--tg", "4", "--runs", "1", "--command", generator, "--json")
        assert invoke_command_line(["bench", "thinker", *cell]) == 0
        assert invoke_command_line(["bench", "show", "2"]) == 0
        shown = capfd.readouterr().out
    assert ", temperature 0.6, thinking off" in shown, "as the launch has it, and as a question of ours was answered"
    assert run["setup"]["temperature"] == 0
    assert [one["thinking"] for one in run["domains"]] == [False, False, True, True]


def test_a_baseline_that_was_not_measured_and_does_not_run_is_refused() -> None:
    ran = run_demo("bench", "qwen36-vllm", "--by-domain", "--baseline", "qwen36", scenario="two-stacks")
    assert ran.returncode == 6, ran
    assert "the baseline qwen36 has no benchmark with these prompts" in ran.stderr


def test_a_baseline_is_started_for_its_measurement_and_what_stopped_for_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(PROMPTS)
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    words = ["--by-domain", "--prompts", str(file), "--max-tokens", "12", "--baseline", "qwen36", "--start", "--json"]
    with run_in_background(scenario="two-stacks", speed=50.0) as config:  # qwen36-vllm is on spark2, alone
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        assert invoke_command_line(["bench", "qwen36-vllm", *words]) == 0, capfd.readouterr()
        events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    seen = [
        (event["event"], event["instance"], event["node"])
        for event in events
        if event["event"] in ("domain", "released") or (event["event"] == "phase" and event["phase"] == "ready")
    ]
    assert list(dict.fromkeys(seen)) == [
        ("domain", "qwen36-vllm", "spark2"), ("released", "qwen36-vllm", "spark2"), ("phase", "qwen36", "spark2"),
        ("domain", "qwen36", "spark2"), ("released", "qwen36", "spark2"), ("phase", "qwen36-vllm", "spark2"),
    ], events  # fmt: skip
    kept = [json.loads((tmp_path / f"state/bench/{number}.json").read_text())["run"] for number in (1, 2)]
    assert [(one["instance"], one["baseline"]) for one in kept] == [("qwen36-vllm", 2), ("qwen36", None)]


def test_what_is_missing_is_measured_later_and_not_with_other_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file, kept = tmp_path / "prompts.jsonl", tmp_path / "state/bench/1.json"
    file.write_text(PROMPTS)
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, list[dict[str, Any]]]:
        code = invoke_command_line(["bench", *words, "--json"])
        return code, [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    with run_in_background(scenario="two-stacks", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        code, events = run("qwen36-vllm", "--by-domain", "--prompts", str(file), "--max-tokens", "12")
        assert code == 0, events
        whole = json.loads(kept.read_text())
        first = whole["run"]["domains"][0]
        whole["run"] |= {"domains": [first], "ended": None, "why": "the engine no longer answers"}
        kept.write_text(json.dumps(whole))
        code, events = run("--resume", "1")
        measured = [(one["domain"], one["number"], one["total"]) for one in events if one["event"] == "domain"]
        assert (code, measured) == (0, [("prose", 2, 2)]), events
        assert events[-1]["message"] == "benchmark 1 is kept"
        after = json.loads(kept.read_text())["run"]
        assert (after["domains"][0], [one["domain"] for one in after["domains"]], after["why"]) == (
            first, ["coding", "prose"], None,
        )  # fmt: skip
        code, events = run("--resume", "1")  # nothing is left
        assert (code, [one for one in events if one["event"] == "domain"]) == (0, [])
        file.write_text(PROMPTS.replace("a loop", "two loops"))
        code, events = run("--resume", "1")
        assert code == 6
        assert "had another (or unknown) prompts" in events[-1]["message"]
        file.write_text(PROMPTS)
        whole["run"]["nodes"] = ["spark1"]  # as if it had moved meanwhile
        kept.write_text(json.dumps(whole))
        code, events = run("--resume", "1")
        assert (code, "had another (or unknown) node" in events[-1]["message"]) == (6, True), events


def test_a_keyed_instance_is_measured_and_its_key_goes_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    profiles, prompts, seen = tmp_path / "config/sparkctl/profiles", tmp_path / "prompts.jsonl", tmp_path / "seen.txt"
    profiles.mkdir(parents=True)
    (profiles / "keyed.yaml").write_text("schema: 1\nname: keyed\nextends: qwen36-vllm\napi_key: generate\n")
    prompts.write_text(PROMPTS)
    spy = tmp_path / "spy.py"
    spy.write_text(
        f"import os, runpy, sys\nopen({str(seen)!r}, 'a').write(repr((sys.argv, dict(os.environ))))\n"
        f"runpy.run_path({load_generator_stand_in.__file__!r}, run_name='__main__')\n"
    )
    for name, path in (("SPARKCTL_STATE", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(tmp_path / path))
    with run_in_background(scenario="empty", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        assert invoke_command_line(["up", "keyed", "--node", "spark1", "--json"]) == 0
        key = (tmp_path / "state/keys/spark1/keyed").read_text().strip()
        cell = ["--pp", "64", "--tg", "8", "--runs", "2", "--command", f"{sys.executable} {spy}", "--json"]
        assert invoke_command_line(["bench", "keyed", *cell]) == 0, capfd.readouterr()
        by_domain = ["--by-domain", "--prompts", str(prompts), "--max-tokens", "12", "--json"]
        assert invoke_command_line(["bench", "keyed", *by_domain]) == 0, capfd.readouterr()
        for more in (["show", "1"], ["show", "2", "--plot"], ["list", "--json"]):
            assert invoke_command_line(["bench", *more]) == 0
        output = capfd.readouterr()
    assert "--served-model-name" in seen.read_text()
    assert key not in seen.read_text() + output.out + output.err
    kept = list((tmp_path / "state/bench").iterdir())
    assert len(kept) == 2
    assert all(key not in one.read_text() for one in kept)


def test_a_picture_is_drawn_and_a_wrong_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from sparkctl.history.bench_store import BenchStore
    from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, Measurements
    from sparkctl.model.node import NodeName

    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path))
    cells = tuple(BenchCell(pp=64, tg=8, concurrency=number) for number in (1, 2))
    for number, rates in ((1, (10.0, 11.0)), (2, (20.0, 22.0))):
        results = tuple(CellResult(cell=cell, generation_rate=Measurements(rates)) for cell in cells)
        BenchStore().save(
            BenchRun(
                number=number, began=0.0, instance=f"model-{number}", nodes=(NodeName("spark1"),), setup=BenchSetup(),
                wanted=cells, results=results,
            )
        )  # fmt: skip
    png, svg = tmp_path / "a.png", tmp_path / "a.svg"
    words = ["bench", "compare", "-o", "wide", "--plot", "--png", str(png), "--svg", str(svg)]
    assert invoke_command_line(words) == 0
    output = capfd.readouterr().out
    assert "100% better" in output
    assert invoke_command_line(["bench", "compare", "2", "model-2"]) == 2
    assert "2 and model-2 are the same benchmark, 2" in capfd.readouterr().err
    assert "20.0-22.0" in output
    assert "Generation by concurrency" in output
    assert png.read_bytes().startswith(PNG_BEGIN)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert invoke_command_line(["bench", "compare", "--png", str(tmp_path / "a.gif")]) == 2
    assert "does not end with .png" in capfd.readouterr().err
    assert invoke_command_line(["bench", "compare", "--png", str(tmp_path / "nowhere/a.png")]) == 2
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert invoke_command_line(["bench", "compare", "--png", str(png)]) == 6
    assert "pip install 'dgx-sparkctl[bench]'" in capfd.readouterr().err
    BenchStore().directory.joinpath("1.json").unlink()
    assert invoke_command_line(["bench", "compare"]) == 2
    assert "one benchmark alone" in capfd.readouterr().err
    assert invoke_command_line(["bench", "compare", "2", "9"]) == 2
    assert "no benchmark 9" in capfd.readouterr().err
