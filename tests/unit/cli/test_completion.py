"""What the shell offers: from files alone, no node is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.cli.instance_cache import add_instance, read_instances, save_instances
from sparkctl.cli.main import VERBS, sparkctl_command
from sparkctl.cli.options import VERB_ALIASES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "sparkctl/instances.json"


def offer(*words: str) -> list[str]:
    from click.shell_completion import ShellComplete

    items = ShellComplete(sparkctl_command, {}, "sparkctl", "_SPARKCTL_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [one.value for one in items]


def test_what_was_seen_last_is_offered_for_what_runs() -> None:
    assert read_instances() is None
    assert "qwen36-vllm" in offer("down", ""), "nothing was ever seen: profiles"
    save_instances({"spark1": ["qwen36-ngram"], "spark2": []})
    add_instance("spark2", "minimax-m27")
    for verb in ("down", "logs", "restart", "exec", "status"):
        assert offer(verb, "") == ["minimax-m27", "qwen36-ngram"], verb
    save_instances({"spark2": []})
    assert offer("down", "") == ["qwen36-ngram"]
    assert "qwen36-vllm" in offer("up", "qwen36")


def test_a_broken_cache_offers_profiles(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    for text in ("[1", "[]", '{"spark1": 1, "spark2": [1]}'):
        cache.write_text(text)
        assert "qwen36-vllm" in offer("down", ""), text


def test_a_config_that_was_read_before_is_not_read_again(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    config = cache.parent.parent / "nodes.yaml"
    monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
    assert offer("status", "--node", "") == []
    config.write_text("nodes:\n- {name: one, host: 192.0.2.1}\n")
    assert offer("status", "--node", "") == ["one"]
    with monkeypatch.context() as unreadable:
        unreadable.setattr("sparkctl.config.load_config", None)
        assert offer("status", "--node", "") == ["one"]
    config.write_text("nodes:\n- {name: one, host: 192.0.2.1}\n- {name: two, host: 192.0.2.2}\n")
    assert offer("status", "--node", "") == ["one", "two"]
    config.write_text("nodes: [")
    assert offer("status", "--node", "") == []
    (cache.parent / "nodes.json").write_text("[1")
    config.write_text("nodes:\n- {name: one, host: 192.0.2.1}\n")
    assert offer("status", "--node", "o") == ["one"]


def test_aliases_are_in_no_list() -> None:
    assert not set(VERB_ALIASES) & set(offer(""))
    assert all(words[0] in VERBS for words in VERB_ALIASES.values())


def test_completion_imports_neither_yaml_nor_ssh() -> None:
    code = (
        "import sys; from click.shell_completion import ShellComplete; from sparkctl.cli.main import sparkctl_command as c;"
        "s = ShellComplete(c, {}, 'sparkctl', 'X');"
        "items = s.get_completions([], '');"
        "assert {one.value: one.help for one in items}['up'].startswith('Start a profile'), items;"
        "assert not [name for name in sys.modules if name.startswith('sparkctl.cli.verbs.')], 'verbs complete from a table';"
        "[s.get_completions([verb], '') for verb in ('down', 'logs', 'restart', 'up', 'check')];"
        "heavy = {'yaml', 'asyncssh', 'docker', 'textual', 'sqlite3', 'sparkctl.model.profile', 'sparkctl.cli.event_printers'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
