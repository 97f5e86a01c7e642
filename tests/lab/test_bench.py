"""`bench` over a real sshd and real containers: a cut link, an engine that dies, a guard that acts; what was measured stays."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.clear_nodes import end_guards
from tests.lab.support.command_outcomes import assert_ended, list_own_containers
from tests.lab.support.sparkctl_process import Running, Sparkctl
from tests.support import load_generator_stand_in

GENERATOR = shlex.join([sys.executable, load_generator_stand_in.__file__])
SIZES = ("--pp", "8", "--tg", "20", "--concurrency", "1,2,3", "--runs", "1")
FIRST_CELL, SECOND_CELL = (rf'"event": ?"cell".*"number": ?{number}' for number in (1, 2))


def build_tools(sparkctl: Sparkctl) -> tuple[str, ...]:
    """The load generator, and a tokenizer: the stand-in's model has none."""
    tokenizer = sparkctl.home / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "tokenizer.json").write_text("{}")
    return ("--command", GENERATOR, "--tokenizer", str(tokenizer))


def start_bench(sparkctl: Sparkctl, *more: str) -> Running:
    """Start an engine that makes ten tokens a second, and a benchmark of it; return when its first cell is measured."""
    name = sparkctl.profile(env={"LAB_TOKEN_S": "0.1"})
    assert_ended(sparkctl("up", name, "--node", "spark1", "--json"), 0, "ready")
    bench = sparkctl.start("bench", name, *SIZES, *build_tools(sparkctl), *more, "--json")
    bench.await_text(FIRST_CELL)
    return bench


def list_cells(events: list[dict[str, Any]]) -> list[tuple[int, bool]]:
    """Return the concurrency of each cell event, and whether it was measured."""
    cells = [event for event in events if event["event"] == "cell"]
    return [(cell["cell"]["concurrency"], cell["tokens_per_second"] is not None) for cell in cells]


def assert_kept_once(sparkctl: Sparkctl, *measured: int) -> None:
    """The benchmark on disk has each of these cells once, and no other with figures."""
    run = sparkctl("bench", "show", "1", "--json").events[0]["run"]
    kept = [one["cell"]["concurrency"] for one in run["results"] if one["error"] is None]
    assert sorted(kept) == list(measured), run


def test_a_cut_link_costs_its_cell_and_resume_measures_that_alone(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    bench = start_bench(sparkctl)
    faults.unplug(spark1)
    bench.await_text(SECOND_CELL)
    faults.plug(spark1)
    ran = bench.end()
    assert list_cells(ran.events) == [(1, True), (2, False), (3, True)], ran
    assert (ran.code, ran.result["outcome"]) == (1, "failed")
    assert "2 of 3 cells are measured and saved" in ran.result["message"]
    assert_kept_once(sparkctl, 1, 3)
    again = sparkctl("bench", "--resume", "1", *build_tools(sparkctl), "--json")
    assert list_cells(again.events) == [(2, True)], again
    assert_ended(again, 0, "done")
    assert_kept_once(sparkctl, 1, 2, 3)


def test_an_engine_that_dies_ends_the_run_and_after_a_new_start_the_rest_is_measured(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    bench = start_bench(sparkctl, "--tg", "50")  # a cell takes longer than a busy machine takes to kill
    spark1.docker("kill", list_own_containers(spark1)[0])
    ran = bench.end()
    assert list_cells(ran.events) == [(1, True), (2, False)], ran
    assert (ran.code, ran.result["outcome"]) == (1, "failed")
    assert "tiny has ended" in ran.result["message"]
    assert "1 of 3 cells" in ran.result["message"]
    early = sparkctl("bench", "--resume", "1", *build_tools(sparkctl), "--json")
    assert early.code == 2, early
    assert "tiny is a profile, and it is not running" in early.result["message"]
    assert_ended(sparkctl("up", "tiny", "--node", "spark1", "--json"), 0, "ready")
    again = sparkctl("bench", "--resume", "1", *build_tools(sparkctl), "--json")
    assert list_cells(again.events) == [(2, True), (3, True)], again
    assert_kept_once(sparkctl, 1, 2, 3)


def test_by_domain_an_engine_that_dies_ends_the_run_and_the_rest_is_measured_later(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    prompts = sparkctl.home / "prompts.jsonl"
    kinds = ("coding", "prose", "math")
    prompts.write_text("".join(f'{{"category": "{kind}", "turns": ["Tell me."]}}\n' for kind in kinds))
    name = sparkctl.profile(env={"LAB_TOKEN_S": "0.1"})
    assert_ended(sparkctl("up", name, "--node", "spark1", "--json"), 0, "ready")
    words = ("--by-domain", "--prompts", str(prompts), "--max-tokens", "20", "--json")
    bench = sparkctl.start("bench", name, *words)
    bench.await_text(r'"event": ?"domain".*"number": ?1')
    spark1.docker("kill", list_own_containers(spark1)[0])
    ran = bench.end()
    assert (ran.code, ran.result["outcome"]) == (1, "failed"), ran
    assert "tiny has ended, see why: sparkctl logs tiny" in ran.result["message"]
    assert "1 of 3 kinds of text are measured and saved" in ran.result["message"]
    assert ran.result["hint"] == "measure the rest: sparkctl bench --resume 1"
    assert_ended(sparkctl("up", name, "--node", "spark1", "--json"), 0, "ready")
    again = sparkctl("bench", "--resume", "1", "--json")
    assert_ended(again, 0, "done")
    assert [event["domain"] for event in again.events if event["event"] == "domain"] == ["prose", "math"]
    run = sparkctl("bench", "show", "1", "--json").events[0]["run"]
    assert [one["domain"] for one in run["domains"]] == list(kinds)


def test_what_the_models_files_tell_cannot_be_measured_is_refused_before_anything_starts(
    spark1: LabNode, sparkctl: Sparkctl
) -> None:
    model = "/home/milo/models/bare"
    spark1.sh("sh", "-c", f"mkdir -p {model}; echo '{{\"max_position_embeddings\": 2048}}' >{model}/config.json")
    name = sparkctl.profile(mounts=["/home/milo/models:/models"], model={"path": "/models/bare", "served_name": "bare"})
    words = ("bench", name, "--node", "spark1", "--start", "--json", "--pp", "8", "--tg", "4")
    cells = sparkctl(*words, "--depth", "2048", *build_tools(sparkctl))
    bare = sparkctl(*words, "--command", GENERATOR)
    for ran, says in (
        (cells, "pp8 tg4 @ d2048 c1 needs 2060 tokens, and tiny takes 2048"),
        (bare, f"there is no {model}/tokenizer.json on spark1"),
    ):
        assert [event["event"] for event in ran.events] == ["result"], ran
        assert (ran.code, says in ran.result["message"]) == (6, True), ran
    assert list_own_containers(spark1) == []


def test_a_guard_that_stops_the_model_ends_the_run_and_is_named(
    clean_nodes: Lab, spark1: LabNode, sparkctl: Sparkctl
) -> None:
    end_guards(clean_nodes)
    bench = start_bench(sparkctl, "--tg", "70")
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    if available < 8 << 30:
        pytest.skip("the machine has too little memory free to take some of it")
    armed = sparkctl("guard", "arm", "tiny", "--floor", str(available - (1 << 30)), "--node", "spark1", "--json")
    assert_ended(armed, 0, "done")
    hog = "import mmap,time\nm=mmap.mmap(-1,2<<30)\nfor at in range(0,2<<30,4096): m[at]=1\ntime.sleep(60)"
    spark1.docker("run", "-d", "--network", "host", "--name", "hog", "--entrypoint", "python3", IMAGE, "-c", hog)
    ran = bench.end()
    end_guards(clean_nodes)
    assert (ran.code, ran.result["outcome"]) == (1, "failed"), ran
    assert "the guard stopped tiny: MemAvailable" in ran.result["message"]
    assert re.search(r"[12] of 3 cells are measured and saved", ran.result["message"])
    kept = sparkctl("bench", "show", "1", "--json").events[0]["run"]
    assert kept["why"].startswith("the guard stopped tiny")
