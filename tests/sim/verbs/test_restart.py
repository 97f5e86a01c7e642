"""``restart``, and the words of other tools, on simulated Sparks."""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import aclosing, redirect_stdout
from pathlib import Path

import pytest

from sparkctl.cli.invocation import invoke_command_line
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.operation_history import OperationHistory
from sparkctl.monitor.node_status import watch_node_statuses
from sparkctl.monitor.node_views import NodeStatusView
from sparkctl.simulator import run_in_background
from tests.golden.running import run_command

SETTING = "args.mem-fraction-static=0.7"


def test_restart_starts_what_ran_with_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARKCTL_STATE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with run_in_background(scenario="empty", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        wrong = run_command("start qwen36-ngram --node spark1 --set args.mem-fraction-statc=0.5")
        assert (wrong.exit_code, wrong.stdout, "--mem-fraction-statc" in wrong.stderr) == (6, "", True)
        assert run_command("ps -q").stdout == "", "nothing was touched"
        assert run_command("restart qwen36-ngram").exit_code == 2, "what does not run is not started"
        started = run_command(f"start qwen36-ngram --node spark1 --set {SETTING} -q")
        assert (started.exit_code, started.stderr) == (0, "")
        again = run_command("restart qwen36-ngram --json")
        assert again.exit_code == 0
        assert run_command("ls -q").stdout.split() == ["qwen36-ngram"]
        wrong = run_command("up qwen36 --node spark1 --set args.mem-fraction-statc=0.5")
        assert "--mem-fraction-statc" in wrong.stderr, "not that its port is in use"
        assert "image scitrera" in run_command("status qwen36-ngram").stdout
        history = OperationHistory(tmp_path / "SPARKCTL_STATE").list_operations("qwen36-ngram")
        assert [one.kind for one in history][:3] == ["start", "stop", "start"]
        assert SETTING in (history[0].command or "")
        assert history[0].hash == history[2].hash
        which = run_command("restart").stderr
        assert "try: sparkctl restart qwen36-ngram\n" in which
        first, last = history[-1].id, history[0].id
        missing = run_command(f"history show {last + 5}")
        assert re.search(
            rf"has no entry {last + 5}; its entries are 1 to \d\n  try: sparkctl history\n", missing.stderr
        )
        assert first < last
        assert run_command("down qwen36 --node spark2").exit_code == 0, "nothing runs there"
        run_command(f"start qwen36-ngram --node spark1 --set {SETTING} -q")
        assert run_command("restart qwen36-ngram -q").exit_code == 0
        newest = OperationHistory(tmp_path / "SPARKCTL_STATE").list_operations()[0].id
        left_out = set(range(first, newest)) - {
            one.id for one in OperationHistory(tmp_path / "SPARKCTL_STATE").list_operations()
        }
        gap = run_command(f"history {max(left_out)}")
        assert f"has no entry {max(left_out)}: a command that had nothing to do leaves none\n" in gap.stderr
        armed = run_command("guard arm")
        assert "guards every running instance that sparkctl started, for 24 h;" in armed.stderr
        assert "try: sparkctl history --last 2\n" in run_command("history -n 2").stderr
        monkeypatch.setenv("SPARKCTL_PROFILES_BENEATH", str(tmp_path))  # as the demo does
        for line in ("shell spark1", "shell qwen36-ngram", "exec qwen36-ngram -- ls"):
            refused = run_command(line)
            assert (refused.exit_code, "the demo's Sparks are simulated" in refused.stderr) == (2, True)
        assert run_command("rm qwen36-ngram").exit_code == 0


def test_a_profile_that_was_edited_meanwhile_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARKCTL_STATE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    profile = tmp_path / "XDG_CONFIG_HOME/sparkctl/profiles/qwen36-ngram.yaml"
    with run_in_background(scenario="empty", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        assert run_command(f"start qwen36-ngram --node spark1 --set {SETTING} -q").exit_code == 0
        profile.parent.mkdir(parents=True)
        text = (shipped_profiles_dir() / "qwen36-ngram.yaml").read_text()
        profile.write_text(text.replace("draft-tokens: 12", "draft-tokens: 8"))
        changes = r"args\.speculative-num-draft-tokens: 12 -> 8$"
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text('{"category": "qa", "turns": ["Who?"]}\n')
        refused = run_command("up qwen36-ngram --node spark1 --set args.mem-fraction-static=0.7")
        assert refused.exit_code == 6
        assert re.search(rf"already runs on spark1 with other settings: {changes}", refused.stderr, re.M)
        bench = run_command(f"bench qwen36-ngram --by-domain --prompts {prompts} --max-tokens 4")
        assert re.search(
            rf"is measured as it runs; its profile here has other settings now: {changes}", bench.stderr, re.M
        )
        history = OperationHistory(tmp_path / "SPARKCTL_STATE").list_operations("qwen36-ngram")
        assert [(one.kind, one.nodes, one.outcome) for one in history if one.kind == "bench"] == [
            ("bench", ("spark1",), "done")
        ]
        assert re.search(r"bench +qwen36-ngram +spark1 +done .*is kept", run_command("history").stdout)
        other = run_command("bench qwen36-as-posted --start --node spark1 --by-domain --prompts " + str(prompts))
        assert other.exit_code == 6, "what stops for it would not start again with the same"
        assert "qwen36-ngram has to stop for qwen36-as-posted, and would not start again with the same" in other.stderr
        again = run_command("restart qwen36-ngram")
        assert re.search(rf"has changed since it was started, and applies as it is now: {changes}", again.stderr, re.M)
        assert SETTING in (
            OperationHistory(tmp_path / "SPARKCTL_STATE").list_operations("qwen36-ngram")[0].command or ""
        )


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def _watch_twice(config: Path) -> list[tuple[NodeStatusView, ...]]:
    ctx = CommandContext(history=OperationHistory(config.parent / "state"), operator="milo@laptop")
    async with aclosing(watch_node_statuses(ctx, load_config(config).nodes, measures=True)) as updates:
        return [await anext(updates) for _ in range(2)]


def test_the_table_on_a_terminal_has_the_rates_and_a_pipe_does_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARKCTL_STATE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "80")
    with run_in_background(scenario="two-stacks", speed=50.0) as config:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
        with redirect_stdout(_Terminal()) as shown:
            assert invoke_command_line(["status", "--color=never"]) == 0
        piped = run_command("status").stdout
        _, watched = asyncio.run(_watch_twice(config))
    assert all(one.numbers is not None and one.numbers.generation_rate for node in watched for one in node.instances)
    head, *rows = shown.getvalue().splitlines()
    assert "TOK/S" in head
    assert [len(row) for row in rows if len(row) > 80] == []
    assert sum(bool(re.search(r"GiB +\d+\.\d  127.0.0.1:\d+ ", row)) for row in rows) == 2, rows
    assert sum(bool(re.search(r"GiB +[—-]  http", row)) for row in piped.splitlines()) == 2, piped
