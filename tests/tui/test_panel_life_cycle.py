"""What happens around the panel: recordings, a config that is saved meanwhile, colours, and its own defects."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.cli import panel_launcher
from sparkctl.cli.command_line_parser import CommandLineParser
from sparkctl.cli.main import sparkctl_command
from sparkctl.cli.panel_launcher import _ConfigReloader
from sparkctl.cli.plain_mode import ChangeReporter
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.errors import InvalidInput
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import NodeStateChanged, SampleArrived
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.sample import Sample
from sparkctl.monitor import node_monitor
from sparkctl.monitor.node_monitor import NodeMonitor
from sparkctl.monitor.recording import read_recording
from sparkctl.monitor.store import Store
from sparkctl.monitor.watch_nodes import watch_load_views
from sparkctl.profiles.yaml_reader import InvalidFile
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from sparkctl.tui.key_queue import IGNORED_KEY_SECONDS
from sparkctl.tui.screens.overview_screen import OverviewScreen
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.event_log_view import describe_log_entry
from tests.support.run_command import run_in_process
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    PATIENCE,
    build_panel_options,
    open_black_hole,
    open_demo_panel,
    open_panel,
    open_panel_on,
    panel_of,
    read_screen,
    read_toasts,
    wait_for_text,
    wait_until_true,
)

# what the first frame does without: each of these costs as much as a quarter of an empty Textual app, or more
LATE = ("asyncssh", "pydantic", "sparkctl.engines", "sparkctl.model.events", "sparkctl.model.sample", "sparkctl.monitor",
        "sparkctl.transport", "sparkctl.tui.controller", "sparkctl.views.event_text", "sparkctl.views.overview")  # fmt: skip
_FIRST_FRAME = """
import sys
from sparkctl.cli.command_line_parser import CommandLineParser
from sparkctl.cli.main import sparkctl_command
from sparkctl.cli.panel_launcher import can_open_panel
from sparkctl.config import Config
from sparkctl.model.node import Node
from sparkctl.tui.app import PanelApp
from sparkctl.tui.panel_options import PanelOptions
from sparkctl.tui.text_surface import TextSurface
class FirstFrame(PanelApp):
    def post_display_hook(self):
        rows = [line for surface in self.screen.query(TextSurface) for line in surface.plain_lines]
        if any("spark2" in row for row in rows):
            self.exit(tuple(sys.modules))
config = Config(nodes=tuple(Node(name=name, host=name) for name in ("spark1", "spark2")))
options = PanelOptions(nodes=config.nodes, make_context=None, load_commands=lambda: CommandLineParser(sparkctl_command))
print(*FirstFrame(options).run(headless=True), sep="\\n")
"""

QUICK = ["demo", "--scenario", "two-stacks", "--speed", "40"]


def run_sparkctl(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_in_process(*words, env=env)


def test_the_first_frame_imports_nothing_that_it_does_without() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_FRAME], capture_output=True, text=True, timeout=60, check=True)
    there = done.stdout.split()
    assert "sparkctl.tui.screens.overview_screen" in there
    assert [name for name in there if name.startswith(LATE)] == []


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two Sparks, written down by the real command."""
    path = tmp_path / "day.jsonl"
    ran = run_sparkctl(*QUICK, "top", "--once", "--record", str(path))
    assert ran.returncode == 0, ran.stderr
    return path


def list_product_tasks() -> list[str]:
    """The tasks of the product itself that are not over: those of the simulated machines and of libraries are not its own."""
    found = []
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        code = getattr(task.get_coro(), "cr_code", None)  # None: the end of a generator that was left alone
        where = "a generator" if code is None else code.co_filename
        if code is None or ("/sparkctl/" in where and "/simulat" not in where):
            found.append(f"{task.get_name()}: {where}")
    return found


@pytest.mark.parametrize("keys", [(), ("enter",), ("enter", "l"), ("p",), ("colon",), ("u",), ("exclamation_mark",)])
async def test_however_the_panel_ends_nothing_of_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        async with open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
            await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
            await pilot.press(*keys)
            assert list_product_tasks(), "followers at least"
        assert list_product_tasks() == []


async def test_a_panel_that_is_left_before_it_knows_a_node_follows_none(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        async with open_panel_on(sparks, tmp_path) as pilot:
            panel_of(pilot).exit_panel()
            await pilot.pause(0.3)
        assert list_product_tasks() == []


async def test_a_recording_is_shown_with_the_same_screen_and_nothing_is_asked(recording: Path, tmp_path: Path) -> None:
    events = tuple(read_recording(recording))
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 50.0))) as pilot:
        shown = await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        assert "recording" in shown.splitlines()[0]
        await pilot.press("x")
        await pilot.pause(0.1)
        assert "Stop " not in read_screen(pilot)


def test_plain_tells_a_recording_as_sentences_without_a_box(recording: Path) -> None:
    ran = run_sparkctl("--plain", "--replay", str(recording))
    assert ran.returncode == 0, ran.stderr
    assert "spark1 answers" in ran.stdout
    assert "qwen36-ngram on spark1: ready, port 8003" in ran.stdout
    assert not set(ran.stdout) & set("│─╭█▒\x1b")
    assert len(set(ran.stdout.splitlines())) == len(ran.stdout.splitlines()), "nothing is told twice"


@pytest.mark.parametrize("words", [("--readonly",), ("--replay", "x")])
def test_without_a_terminal_the_panel_is_refused_and_help_is_shown_as_ever(words: tuple[str, ...]) -> None:
    ran = run_sparkctl(*words)
    assert ran.returncode == 2
    assert "the panel needs a terminal" in ran.stderr
    assert "Usage: sparkctl" in run_sparkctl().stdout


def test_options_of_the_panel_do_not_go_with_a_verb() -> None:
    ran = run_sparkctl("--readonly", "status")
    assert ran.returncode == 2
    assert "--readonly is an option of the panel" in ran.stderr


async def test_a_config_that_is_saved_is_taken_in_and_one_with_faults_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"nodes": [{"name": "one", "host": "192.0.2.1"}]}))
    made = build_panel_options(load_config(path).nodes, tmp_path, reload=_ConfigReloader(path, readonly=False))
    async with open_panel(made) as pilot:
        await wait_for_text(pilot, "one ")
        path.write_text("nodes: [{name: one, host: 192.0.2.1}, {name: two, host: 192.0.2.2}]\nkeys: {help: f2}\n")
        shown = await wait_for_text(pilot, "two ")
        assert "2 Sparks" in shown
        assert "f2 help" in shown
        await pilot.press("f2")
        await wait_for_text(pilot, "esc goes back")
        await pilot.press("escape")
        path.write_text("nodes: [{name: one}]\n")
        await wait_until_true(pilot, lambda: any("not taken in" in one for one in read_toasts(pilot)))
        assert "config has faults" in read_screen(pilot)
        assert "two " in read_screen(pilot), "the one that was read last stays"
        await pilot.press("i")
        shown = await wait_for_text(pilot, "the config is invalid; the previous one")
        assert "config.yaml:1:" in re.sub(r"[\s│]", "", shown)
        await pilot.press("escape")
        path.write_text("nodes: [{name: one, host: 192.0.2.1}]\n")
        assert "config has faults" not in await wait_for_text(pilot, lambda text: "1 Spark " in text)


async def test_a_config_that_is_gone_or_empty_for_a_while_is_no_empty_config(tmp_path: Path) -> None:
    path, aside = tmp_path / "config.yaml", tmp_path / "aside"
    path.write_text("nodes: [{name: one, host: 192.0.2.1}]\n")
    reload = _ConfigReloader(path, readonly=False)
    path.rename(aside)
    assert reload() is None, "an editor may be about to put it back"
    aside.rename(path)
    assert reload() is None
    path.rename(aside)
    assert reload() is None
    with pytest.raises(InvalidInput, match="is gone, or empty: sparkctl keeps the previous config"):
        reload()
    assert reload() is None, "that is told once"
    aside.rename(path)
    back = reload()
    assert back is not None
    assert [node.name for node in back.nodes] == ["one"]
    async with open_panel(
        build_panel_options(back.nodes, tmp_path, reload=_ConfigReloader(path, readonly=False))
    ) as pilot:
        await wait_for_text(pilot, "one ")
        path.write_text("")
        assert "one " in await wait_for_text(pilot, "config has faults")
        path.write_text("nodes: [{name: one, host: 192.0.2.1}]\n")
        assert "one " in await wait_for_text(pilot, lambda text: "config has faults" not in text)


def test_a_verb_on_a_spark_that_never_was_away_does_not_say_that_it_answers() -> None:
    one = NodeName("one")
    sample = SampleArrived(2.0, one, Sample(sequence=1, time=2.0, uptime=2.0), "boot")
    store = Store([one])
    for event in (sample, NodeStateChanged(ts=3.0, node=one, state=NodeState.OK)):
        store.apply_event(event)
    assert not store.event_log.entries
    store.apply_event(NodeStateChanged(ts=4.0, node=one, state=NodeState.UNREACHABLE, detail="no answer"))
    store.apply_event(replace(sample, ts=5.0, sample=Sample(sequence=2, time=5.0, uptime=5.0)))
    store.apply_event(NodeStateChanged(ts=6.0, node=one, state=NodeState.OK))
    texts = [describe_log_entry(each)[0] for each in store.event_log.entries]
    assert texts == ["unreachable: no answer", "answers"]


async def test_quitting_says_what_ran_on_a_spark_that_does_not_answer_any_more(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await sparks.sshd["spark2"].close()
        await wait_for_text(pilot, "unreachable")
        await pilot.press("q")
    said = pilot.app.return_value or ()
    assert said[0] == "qwen36-ngram goes on running on spark1"
    assert re.fullmatch(r"spark2 did not answer; qwen36-vllm ran there at \d\d:\d\d", said[1])


async def test_a_defect_of_one_follower_is_said_in_its_tile_and_the_other_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = NodeMonitor.run

    async def run(self: NodeMonitor) -> None:
        if self.node.name == "spark2":
            raise ZeroDivisionError("a [/red] defect")
        await whole(self)

    monkeypatch.setattr(NodeMonitor, "run", run)
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        shown = await wait_for_text(pilot, lambda text: "spark1 ● ready" in text and "spark2 ◌ not watched" in text)
        assert "a defect in sparkctl, not in spark2: ZeroDivisionError:" in shown
        assert "[/red]" in shown
        monkeypatch.setattr(NodeMonitor, "run", whole)
        await pilot.press("tab", "r")
        await wait_for_text(pilot, "spark2 ● ready")


def put_back(key: Path, identity: str) -> None:
    key.write_bytes(Path(identity).expanduser().read_bytes())
    key.chmod(0o600)


def join_lines(shown: str) -> str:
    """Return the screen's words in one line: a path of pytest's may be long enough to wrap a sentence anywhere."""
    return " ".join(shown.replace("│", " ").split())


async def test_an_identity_that_is_gone_is_the_sparks_state_and_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_monitor, "_LOCAL_ERROR_RETRY_SECONDS", 0.3)
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        first, second = load_config(sparks.config_path).nodes
        assert second.identity is not None
        key = tmp_path / "key"
        nodes = (first, replace(second, identity=str(key)))
        async with open_panel(build_panel_options(nodes, tmp_path / "state")) as pilot:
            shown = await wait_for_text(
                pilot, lambda text: "spark1 ● ready" in text and "cannot be read" in join_lines(text)
            )
            assert "defect" not in shown
            assert "name a private key" in shown
            put_back(key, second.identity)
            await wait_for_text(pilot, "spark2 ● ready")


async def test_plain_goes_on_without_a_spark_whose_identity_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_monitor, "_LOCAL_ERROR_RETRY_SECONDS", 0.3)
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        first, second = load_config(sparks.config_path).nodes
        assert second.identity is not None
        key = tmp_path / "key"
        nodes = (first, replace(second, identity=str(key)))
        lines: list[str] = []
        teller = ChangeReporter()
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(
                watch_load_views(CommandContext(history=OperationHistory(tmp_path / "state"), operator="tester"), nodes)
            ) as count,
        ):
            async for one, other in count:
                lines += teller.describe_changes(other)
                if one.state is NodeState.OK and lines and not key.exists():
                    put_back(key, second.identity)
                if other.state is NodeState.OK:
                    break
        assert "cannot be read" in lines[0]
        assert any("answers" in each for each in lines)


async def test_without_colours_nothing_on_the_screen_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path)) as pilot:
        await wait_for_text(pilot, "unreachable")
        strips = pilot.app.screen._compositor.render_strips()
        styles = [part.style for strip in strips for part in strip if part.style is not None]
        assert [style for style in styles if style.bold], "weight stands for it"
        colours = {colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None}
        assert all(colour.is_default for colour in colours), colours


async def test_ascii_has_no_other_sign(tmp_path: Path) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_panel_on(sparks, tmp_path, ascii_only=True) as pilot,
    ):
        shown = await wait_for_text(pilot, lambda text: text.count("+ ready") == 2)
        assert shown.isascii()
        await pilot.press("question_mark")
        assert (await wait_for_text(pilot, "esc goes back")).isascii()


def test_a_keymap_with_a_clash_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("nodes: []\nkeys: {up: x}\n")
    ran = run_sparkctl("status", SPARKCTL_CONFIG=str(path))
    assert ran.returncode == 2
    assert f"{path}:2:8: keys: `x` would be both up and down" in ran.stderr


async def test_an_unknown_node_name_is_no_widget_id(tmp_path: Path) -> None:
    odd = Node(name=NodeName("1.strange name-é"), host="192.0.2.1")
    async with open_panel(build_panel_options((odd,), tmp_path)) as pilot:
        await wait_for_text(pilot, "1.strange name-é")


async def test_an_unknown_host_key_is_shown_and_no_is_the_default(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST, nodes=("spark1",)) as sparks:
        node = replace(load_config(sparks.config_path).nodes[0], known_hosts=str(tmp_path / "known"))
        async with open_panel(build_panel_options((node,), tmp_path)) as pilot:
            shown = await wait_for_text(pilot, "an unknown host key")
            assert "SHA256:" in shown
            assert "[ leave it alone ]" in shown
            await pilot.press("tab", "enter")
            assert "[ leave it alone ]" in read_screen(pilot), "keys that were on their way answer nothing"
            await pilot.pause(IGNORED_KEY_SECONDS)
            await pilot.press("enter")
            await wait_for_text(pilot, "✕ untrusted")
            await pilot.press("r")
            await wait_for_text(pilot, "an unknown host key")
            await pilot.pause(IGNORED_KEY_SECONDS)
            await pilot.press("tab", "enter")
            await wait_for_text(pilot, "spark1 ● ready")


async def test_a_defect_ends_the_panel_without_a_traceback_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("in a picture")

    panel = PanelApp(build_panel_options((open_black_hole(),), tmp_path))

    async def look() -> None:
        async with panel.run_test() as pilot:
            await wait_for_text(pilot, "unreachable")
            monkeypatch.setattr(OverviewScreen, "build_node_tile", broken)
            async with asyncio.timeout(PATIENCE):
                while panel.defect is None:  # noqa: ASYNC110  the panel has no event for its own end
                    await asyncio.sleep(0.05)

    with pytest.raises(ZeroDivisionError):
        await look()
    assert isinstance(panel.defect, ZeroDivisionError)
    assert not panel._exit_renderables


async def test_the_chosen_colours_are_used_the_next_time(tmp_path: Path) -> None:
    kept: list[str] = []
    async with open_panel(
        build_panel_options((open_black_hole(),), tmp_path, theme="nord", keep_theme=kept.append)
    ) as pilot:
        await wait_for_text(pilot, "unreachable")
        assert pilot.app.theme == "nord"
        pilot.app.theme = "spark-light"
        await wait_until_true(pilot, lambda: kept == ["spark-light"])


@pytest.mark.parametrize(("name", "words"), [("purple", ""), ("spark-lite", "; did you mean `spark-light`?")])
def test_a_theme_that_there_is_not_is_a_fault_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setenv("SPARKCTL_CONFIG", str(tmp_path / "config.yaml"))
    (tmp_path / "config.yaml").write_text(f"readonly: true\ntheme: {name}\n")
    with pytest.raises(InvalidFile, match=re.escape(f"theme: there is no theme `{name}`{words}; there are ")) as raised:
        panel_launcher.open_panel(lambda: CommandLineParser(sparkctl_command))
    gc.enable()
    assert f"{tmp_path}/config.yaml:2:8: " in str(raised.value)
    assert "spark, spark-light" in str(raised.value)


async def test_a_config_may_make_the_panel_read_only_and_the_command_line_more_than_that(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    one = {"nodes": [{"name": "one", "host": "192.0.2.1"}]}
    path.write_text(json.dumps({**one, "readonly": False}))
    made = build_panel_options(load_config(path).nodes, tmp_path, reload=_ConfigReloader(path, readonly=False))
    async with open_panel(made) as pilot:
        assert "read-only" not in await wait_for_text(pilot, " one ")
        path.write_text(json.dumps({**one, "readonly": True}))
        shown = await wait_for_text(pilot, "read-only")
        assert "drop caches" not in shown
        path.write_text(json.dumps(one))
        await wait_for_text(pilot, lambda text: "read-only" not in text)
    asked = _ConfigReloader(path, readonly=True)
    path.write_text(json.dumps({**one, "readonly": False}))
    config = asked()
    assert config is not None
    assert config.readonly, "what the command line asked for stays"


def test_read_only_is_true_or_false(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("nodes: []\nreadonly: perhaps\n")
    with pytest.raises(InvalidFile, match=r"config.yaml:2:11: readonly: must be true or false, not `perhaps`"):
        load_config(path)


async def test_what_is_covered_is_painted_when_it_is_seen_again(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        await wait_for_text(pilot, lambda _: panel.controller is not None)
        head = panel.screen.query_one("#head", TextSurface)
        before = head.plain_lines
        await pilot.press("p")
        await wait_for_text(pilot, "▸ gpt-oss-120b")
        panel.setup = replace(panel.setup, readonly=True)
        panel.repaint_unless_frozen()
        await wait_for_text(pilot, "read-only")
        assert head.plain_lines[0].split("·")[0] == before[0].split("·")[0]
        await pilot.press("escape")
        await wait_for_text(pilot, lambda _: "read-only" in head.plain_lines[0])
