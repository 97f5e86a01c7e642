"""``restart``, and the words of other tools, on simulated Sparks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.history.operation_history import OperationHistory
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
        assert "image scitrera" in run_command("status qwen36-ngram").stdout
        history = OperationHistory(tmp_path / "SPARKCTL_STATE").list_operations("qwen36-ngram")
        assert [one.kind for one in history][:3] == ["start", "stop", "start"]
        assert SETTING in (history[0].command or "")
        assert history[0].hash == history[2].hash
        assert run_command("rm qwen36-ngram").exit_code == 0
