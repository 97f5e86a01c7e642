"""The one table of actions: no key twice, nothing dangerous without a question, and the operator's keymap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.actions import (
    ACTIONS,
    Action,
    ActionContext,
    ActionId,
    ActionRole,
    assign_keys,
    find_action,
    find_key_conflicts,
    list_enabled_actions,
    list_footer_actions,
    list_screen_actions,
    parse_key,
    retarget_context,
)
from sparkctl.config import load_config
from sparkctl.model.container import ContainerState
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.profiles.yaml_reader import InvalidFile
from sparkctl.tui.key_hints import render_key_footer
from sparkctl.views.text.styled_text import join_text, measure_row, measure_text, to_ascii

NODE = NodeName("spark1")
ENGINE = InstanceView(
    name="a",
    node=NODE,
    container="a",
    image="i",
    state=ContainerState.RUNNING,
    status="Up 3 hours",
    ours=True,
    memory=None,
    phase=Phase.READY,
)
VIEW = NodeTelemetryView(name=NODE, state=NodeState.OK, when=0.0, instances=(ENGINE,), instances_seen=0.0)
ALL = frozenset((*(one.screen for one in ACTIONS if one.screen), *(place for one in ACTIONS for place in one.on)))

RUNS = ActionContext(names=(NODE,), views=(VIEW,), node=NODE, instance="a", screens=ALL)


def test_every_id_has_its_action_and_no_key_does_two_things() -> None:
    assert {one.id for one in ACTIONS} == set(ActionId)
    assert find_key_conflicts(()) == ()


def test_what_gives_no_tokens_is_not_offered_to_be_measured() -> None:
    measure = find_action(ActionId.BENCH_RUN)
    assert measure.why_not(RUNS) is None
    voice = replace(VIEW, instances=(replace(ENGINE, probe="speech"),))
    assert measure.why_not(replace(RUNS, views=(voice,))) == "a gives sound: there are no tokens to measure"


def test_a_letter_means_the_same_on_every_screen() -> None:
    """Also where different actions do it: what shares a key shares a sense, and a sense has one key everywhere."""
    by_key: dict[str, list[Action]] = {}
    for one in ACTIONS:
        for key in one.keys:
            by_key.setdefault(key, []).append(one)
    for key, those in by_key.items():
        if {one.id for one in those} == {ActionId.LOG_NEXT, ActionId.NODE}:
            assert key == "n", "the next match, as in less, where a log is; elsewhere the node"
            assert not those[0].on & those[1].on
        elif len(those) > 1:
            assert len({one.role for one in those}) == 1, key
            assert those[0].role is not None, f"{key} does {' and '.join(one.id for one in those)}"
    for role in ActionRole:
        assert len({one.keys[0] for one in ACTIONS if one.role is role}) == 1, role


def test_read_only_leaves_nothing_that_changes_anything() -> None:
    assert not [one for one in list_enabled_actions(ActionContext(readonly=True, screens=ALL)) if one.changes]
    assert [one for one in list_enabled_actions(ActionContext(screens=ALL)) if one.changes]


def test_no_profile_is_written_from_a_recording() -> None:
    now = ActionContext(node=NodeName("spark1"), instance="a", profile="a", replaying=True)
    for name in ("edit", "edit-its-profile"):
        assert find_action(name).changes
        assert find_action(name).why_not(now) == "this is a recording"


def test_a_key_may_mean_one_thing_on_each_screen() -> None:
    actions = list_enabled_actions(ActionContext(screens=ALL))
    at = {
        place: {key: one.id for one in list_screen_actions(actions, place) for key in one.keys}
        for place in ("overview", "doctor")
    }
    assert (at["overview"]["enter"], at["doctor"]["enter"]) == (ActionId.INSTANCE, ActionId.MEND)
    assert ActionId.PROFILES not in {one.id for one in list_screen_actions(actions, "profiles")}, "it is open already"
    assert find_key_conflicts([("copy", ("r",))]) == (("r", "switch-again", "copy"), ("r", "copy", "examine"))
    assert find_key_conflicts([("edit", ("f",))]) == (), "no log is followed on the profiles"


def test_a_line_of_a_screen_means_what_it_names() -> None:
    now = ActionContext(node=NodeName("spark1"), instance="a")
    selected, other = retarget_context(now, None, None), retarget_context(now, "b", NodeName("spark2"))
    assert (selected.node, selected.instance) == ("spark1", "a")
    assert (other.node, other.instance) == ("spark2", "b")


def test_a_screen_that_is_not_there_has_no_action() -> None:
    assert find_action("logs") not in list_enabled_actions(ActionContext())
    assert find_action("logs") in list_enabled_actions(ActionContext(screens=ALL))


@pytest.mark.parametrize("place", ["overview", "instance", "logs", "profiles", "doctor"])
def test_the_footer_has_as_many_as_fit_and_help_is_always_the_last(place: str) -> None:
    actions = list_screen_actions(list_enabled_actions(ActionContext(screens=ALL)), place)
    before: list[str] = []
    for columns in range(8, 260):
        row, places = render_key_footer(actions, ActionContext(), columns)
        assert measure_row(row) == measure_text(to_ascii(join_text(row))) == columns
        assert join_text(row).rstrip().endswith("? help")
        shown = [one.action for one in places]
        assert len(shown) >= len(before), "more room never shows less"
        before = shown
    there = [
        one
        for one in list_footer_actions(actions)
        if one.role is not ActionRole.TAKE or one.why_not(ActionContext()) is None
    ]
    assert before == [one.id for one in there], "where there is room for all, all are there"


def test_the_footer_of_the_overview_has_what_matters_first_and_leaves_away_what_means_nothing() -> None:
    actions = list_screen_actions(list_enabled_actions(ActionContext(screens=ALL)), "overview")
    assert [one.id for one in list_footer_actions(actions)][:5] == ["up", "down", "switch", "logs", "drop-caches"]
    nothing = join_text(render_key_footer(actions, ActionContext(screens=ALL), 60)[0])
    assert "x stop" not in nothing, "nothing is there to stop"
    assert "p profiles" in nothing
    serving = join_text(render_key_footer(actions, RUNS, 80)[0])
    assert " u up   x stop   s switch   l logs   c drop caches   p profiles" in serving
    wide = join_text(render_key_footer(actions, RUNS, 120)[0])
    assert all(words in wide for words in ("x stop", "! doctor", "enter open", ": command", "? help")), wide


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("x", "x"),
        ("?", "question_mark"),
        (":", "colon"),
        ("ctrl+d", "ctrl+d"),
        ("f5", "f5"),
        ("/", "slash"),
        ("ctrl+slash", "ctrl+slash"),
    ],
)
def test_keys_are_named_as_terminals_tell_them(given: str, named: str) -> None:
    assert parse_key(given) == named


@pytest.mark.parametrize("given", ["", "  ", "long", "ctrl+", "ctrl+c", "hyper+x"])
def test_an_unknown_key_name_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"key|reserved"):
        parse_key(given)


def test_a_keymap_is_read_and_its_faults_have_their_places(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("keys:\n  down: [D, ctrl+d]\n  help: f2\n")
    assert load_config(path).keys == (("down", ("D", "ctrl+d")), ("help", ("f2",)))
    keys = assign_keys(load_config(path).keys)
    assert keys[ActionId.HALF_PAGE_DOWN] == (), "it leaves its key to the operator's"
    assert keys[ActionId.HALF_PAGE_UP] == ("ctrl+u",)
    assert (
        next(one for one in list_enabled_actions(ActionContext(), load_config(path).keys) if one.id == "down").keys[0]
        == "D"
    )
    path.write_text("keys:\n  stopp: x\n  up: hyper\n")
    with pytest.raises(InvalidFile) as caught:
        load_config(path)
    assert [(fault.place.line, fault.message.split(";")[0]) for fault in caught.value.faults] == [
        (2, "keys: there is no action `stopp`"),
        (3, "keys: up: 'hyper' is not a key"),
    ]


def test_a_key_for_two_actions_is_a_fault_of_the_line_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("nodes: []\nkeys:\n  up: x\n")
    with pytest.raises(InvalidFile, match=r"config.yaml:3:3: keys: `x` would be both up and down"):
        load_config(path)
