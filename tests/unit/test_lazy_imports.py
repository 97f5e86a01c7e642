"""Start-up is a feature: what a command does not need, it does not load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sparkctl.cli.verbs

HEAVY = ("textual", "docker", "asyncssh", "pydantic", "yaml", "asyncio", "prometheus_client", "sqlite3")
LISTING = "import json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"


def list_loaded_modules(program: str, tmp_path: Path) -> set[str]:
    """Return the top-level and dotted names of the modules that a fresh process has loaded after ``program``."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "SPARKCTL_CONFIG": str(tmp_path / "config.yaml"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{LISTING}"],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def run_python(*words: str) -> str:
    return f"from sparkctl.cli.invocation import invoke_command_line; code = invoke_command_line({list(words)!r})"


def test_the_list_sees_what_is_loaded(tmp_path: Path) -> None:
    assert {"asyncio", "yaml"} <= list_loaded_modules("import asyncio, yaml", tmp_path)


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("--version",), ()])
def test_help_loads_nothing_heavy(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert list_loaded_modules(run_python(*words) + "; assert code == 0", tmp_path).isdisjoint(HEAVY)


def test_help_imports_no_verb(tmp_path: Path) -> None:
    modules = list_loaded_modules(run_python("--help"), tmp_path)
    assert "sparkctl.cli.main" in modules
    assert not {name for name in modules if name.startswith("sparkctl.cli.verbs")}


def test_the_modules_of_status_leave_out_what_changes_nodes(tmp_path: Path) -> None:
    modules = list_loaded_modules(
        "import sparkctl.cli.verbs.status, sparkctl.monitor.node_status, sparkctl.transport.node_session, "
        "sparkctl.transport.ssh.ssh_connection",
        tmp_path,
    )
    assert "asyncssh" in modules
    assert modules.isdisjoint({"docker", "requests", "pydantic", "textual"})


def test_status_as_it_runs_leaves_them_out_too(tmp_path: Path) -> None:
    """A node whose port is closed: the whole way to the connection and back to the table."""
    node = {"name": "closed", "host": "127.0.0.1", "port": 1, "user": "nobody"}
    (tmp_path / "config.yaml").write_text(json.dumps({"nodes": [node]}))
    modules = list_loaded_modules(run_python("status") + "; assert code == 3, code", tmp_path)
    assert {"asyncssh", "sparkctl.monitor.node_status"} <= modules
    assert modules.isdisjoint({"docker", "requests", "pydantic", "textual", "sqlite3"})


def test_a_start_and_a_switch_leave_out_what_downloads_and_what_only_a_bench_computes_with(tmp_path: Path) -> None:
    modules = list_loaded_modules(
        "import sparkctl.cli.verbs.switch, sparkctl.commands.switch.switch_run, sparkctl.commands.pull.pull_and_start",
        tmp_path,
    )
    assert modules.isdisjoint({"urllib.request", "sparkctl.transport.hub_client", "statistics"})


def test_the_way_to_the_nodes_of_a_switch_leaves_out_what_it_does_there(tmp_path: Path) -> None:
    """That is imported while the nodes answer."""
    modules = list_loaded_modules(
        "import sparkctl.cli.verbs.switch, sparkctl.commands.switch.switch_instance, sparkctl.transport.ssh.ssh_connection",
        tmp_path,
    )
    assert "asyncssh" in modules
    assert modules.isdisjoint(
        {"sparkctl.commands.switch.switch_run", "sparkctl.commands.start.rank_start", "sparkctl.logs.analyzer"}
    )


def test_logs_leaves_out_what_reads_meaning_into_lines(tmp_path: Path) -> None:
    modules = list_loaded_modules(
        "import sparkctl.cli.verbs.logs, sparkctl.cli.event_printers, sparkctl.commands.show_log", tmp_path
    )
    assert modules.isdisjoint({"sparkctl.logs.analyzer", "sparkctl.logs.start_verdict", "sparkctl.views.bench_view"})


def test_the_first_picture_leaves_out_what_it_does_not_show(tmp_path: Path) -> None:
    modules = list_loaded_modules("import sparkctl.cli.panel_launcher, sparkctl.config, sparkctl.tui.app", tmp_path)
    assert "sparkctl.tui.screens.overview_screen" in modules
    assert modules.isdisjoint(
        {"click", "yaml", "sparkctl.commands.request", "sparkctl.tui.controller", "sparkctl.tui.search_prompt",
         "sparkctl.tui.screens.scroll_screens", "sparkctl.views.text.line_wrap", "sparkctl.views.text.charts",
         "sparkctl.model.events", "sparkctl.model.launch_plan"}
    )  # fmt: skip


def test_a_panel_at_rest_leaves_out_what_only_a_command_needs(tmp_path: Path) -> None:
    """What it imports it keeps, for days."""
    modules = list_loaded_modules(
        "import sparkctl.tui.app, sparkctl.tui.controller\n"
        "from sparkctl.cli.panel_launcher import create_panel_context\n"
        "from sparkctl.model.questions import NonInteractivePrompter\n"
        "create_panel_context(None, NonInteractivePrompter())",
        tmp_path,
    )
    assert {"sparkctl.monitor.store", "sparkctl.history.operation_history"} <= modules
    assert modules.isdisjoint(
        {"click", "sparkctl.commands.doctor_checks", "sparkctl.commands.stop.stop_instance",
         "sparkctl.commands.start.launch_plans", "sparkctl.profiles.importers.engine_command"}
    )  # fmt: skip


def test_diagnose_leaves_out_what_runs_on_nodes(tmp_path: Path) -> None:
    (tmp_path / "some.log").write_text("INFO: started\n")
    modules = list_loaded_modules(run_python("diagnose", str(tmp_path / "some.log"), "--json"), tmp_path)
    assert "sparkctl.views.diagnosis_view" in modules
    assert modules.isdisjoint({*HEAVY, "sparkctl.model.events", "sparkctl.model.sample"})


def test_a_verb_is_imported_without_what_only_running_it_needs(tmp_path: Path) -> None:
    """Its module is loaded for its help and for each completion of its arguments."""
    verbs = Path(sparkctl.cli.verbs.__file__).parent.glob("[a-z]*.py")
    names = sorted(f"sparkctl.cli.verbs.{path.stem}" for path in verbs if path.stem != "demo")
    modules = list_loaded_modules(f"import {', '.join(names)}", tmp_path)
    assert set(names) <= modules
    assert modules.isdisjoint(
        {*HEAVY, "sparkctl.model.events", "sparkctl.model.profile", "sparkctl.cli.event_printers"}
    )


@pytest.mark.parametrize("words", ["plan ", "up ", "guard arm ", "down ", "profiles show ", "metrics --node "])
def test_completing_a_word_loads_nothing_that_only_running_needs(tmp_path: Path, words: str) -> None:
    program = (
        f"import os; os.environ |= {{'_SPARKCTL_COMPLETE': 'bash_complete', 'COMP_WORDS': 'sparkctl {words}', "
        f"'COMP_CWORD': '{len(words.split()) + 1}'}}\n"
        "from sparkctl.cli.invocation import invoke_command_line\n"
        "try: invoke_command_line([])\n"
        "except SystemExit: pass"
    )
    modules = list_loaded_modules(program, tmp_path)
    assert "click.shell_completion" in modules
    assert any(name.startswith("sparkctl.cli.verbs.") for name in modules)
    assert modules.isdisjoint(
        {*HEAVY, "sparkctl.model.events", "sparkctl.model.profile", "sparkctl.profiles.field_types"}
    )
