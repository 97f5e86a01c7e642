"""From one model to another on real parts, the old one kept until the new one has proved itself; killed at every step."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import IMAGE, JOURNAL
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.command_outcomes import (
    ALL,
    assert_ended,
    get_verdict,
    list_containers,
    list_own_containers,
    list_running,
)
from tests.lab.support.rank_containers import list_container_ids, write_two_node_profile
from tests.lab.support.sparkctl_process import Ran, Sparkctl

QUICK: dict[str, object] = {"LAB_LOAD_S": 0.3}


@pytest.fixture(scope="module")
def milo(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sparkctl]:
    """One operator for all tests here, so that what still serves after a test need not be started for the next."""
    command = Sparkctl(tmp_path_factory.mktemp("switch"))
    yield command
    command.end_all()


@pytest.fixture
def sparkctl(milo: Sparkctl, lab: Lab) -> Iterator[Sparkctl]:
    """The command without a past, on nodes without a journal."""
    shutil.rmtree(milo.state, ignore_errors=True)
    write_two_node_profile(milo, env=QUICK)
    milo.profile(env=keep_text_values(QUICK))
    for node in lab.nodes.values():
        node.remove_journal()
    yield milo
    milo.end_all()
    for node in lab.nodes.values():
        node.remove_journal()


@pytest.fixture
def clean_nodes(lab: Lab) -> Lab:
    """The lab as the test before has left it: `pair` and `empty` see to it."""
    return lab


@pytest.fixture
def empty(lab: Lab) -> Lab:
    """Both nodes without a container."""
    for node in lab.nodes.values():
        node.remove_containers()
    return lab


@pytest.fixture
def pair(lab: Lab, sparkctl: Sparkctl, request: pytest.FixtureRequest) -> dict[str, str]:
    """A model over both nodes, serving and alone; another profile is for one of them, at the same port. Returns its ids."""
    whole = {node.name: list_containers(node) for node in lab.nodes.values()} == PAIR
    if not (whole and len(list_container_ids(lab)) == 2 and is_serving(lab.nodes["spark1"], "pair")):
        request.getfixturevalue("empty")
        assert_ended(sparkctl("up", "pair", "--json"), 0, "ready")
    return list_container_ids(lab)


PAIR = {"spark1": ["sglang-pair"], "spark2": ["sglang-pair"]}


def keep_text_values(env: dict[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in env.items()}


def list_journal_nodes(lab: Lab) -> list[str]:
    """Return the nodes on which a journal lies."""
    return [node.name for node in lab.nodes.values() if node.sh("ls", JOURNAL, check=False)]


def is_serving(node: LabNode, model: str) -> bool:
    """Tell whether a model answers with a token at the port that all of them have here."""
    asked = json.dumps({"model": model, "prompt": "x", "max_tokens": 1}).encode()
    request = urllib.request.Request(
        f"http://{node.address}:8101/v1/completions", asked, {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(json.load(answer)["model"] == model)
    except OSError:
        return False


def find_serving_model(lab: Lab) -> str:
    """Return which model serves, whole and alone on its nodes: fails for two halves, for remains, for none."""
    spark1, spark2 = lab.nodes["spark1"], lab.nodes["spark2"]
    running = {node.name: list_running(node) for node in (spark1, spark2)}
    standing = {node.name: list_containers(node) for node in (spark1, spark2)}
    assert running == standing, "nothing kept or half made is left"
    assert list_journal_nodes(lab) == []
    if standing == PAIR:
        assert is_serving(spark1, "pair")
        return "pair"
    assert standing == {"spark1": ["sglang-tiny"], "spark2": []}
    assert is_serving(spark1, "tiny")
    return "tiny"


def list_steps(ran: Ran, proved: bool = True) -> list[str]:
    """Return the steps that were begun, or proved."""
    result = [event for event in ran.events if event["event"] == "switch"]
    return [event["step"] for event in result if (event.get("proof") is not None) is proved]


def test_the_story_two_sparks_to_one_and_the_other_one_free(
    lab: Lab, spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, pair: dict[str, str]
) -> None:
    planned = sparkctl("switch", "tiny", "--node", "spark1", "--dry-run", "--json")
    assert_ended(planned, 0, "planned")
    assert list_container_ids(lab) == pair, "planning changes nothing"
    (plan,) = [event["plan"] for event in planned.events if event["event"] == "switch-plan"]
    assert plan["stops"] == ["pair"]
    conflicts = {one["node"]: one["tenants"][0]["conflicts"] for one in plan["changes"]}
    assert "port" in conflicts["spark1"]
    assert conflicts["spark2"] == ["nodes"]
    ran = sparkctl("switch", "tiny", "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    assert list_steps(ran) == ["checking", "stopping", "releasing", "starting", "clearing", "done"], ran
    assert find_serving_model(lab) == "tiny"
    sparkctl.profile("tts", model={"path": "/models/tts", "served_name": "tts"}, env=keep_text_values(QUICK))
    assert_ended(sparkctl("up", "tts", "--node", "spark2", "--json"), 0, "ready")
    assert list_own_containers(spark1) == ["sglang-tiny"]
    assert list_own_containers(spark2) == ["sglang-tts"]


def test_a_new_one_that_fails_gives_way_to_the_old_one_again(
    lab: Lab, spark1: LabNode, sparkctl: Sparkctl, pair: dict[str, str]
) -> None:
    sparkctl.profile(env={"LAB_END": "cuda-oom"})
    ran = sparkctl("switch", "tiny", "--node", "spark1", "--json")
    assert_ended(ran, 1, "failed")
    assert get_verdict(ran)["cause"] == "cuda-out-of-memory"
    assert "tiny" in ran.result["message"], "both stories are told"
    assert "pair serves again" in ran.result["message"], ran
    assert list_container_ids(lab) == pair, "the very same containers"
    assert find_serving_model(lab) == "pair"
    assert "torch.OutOfMemoryError" in Path(ran.result["log"]).read_text()


def test_a_wreck_is_left_for_study_where_that_is_asked_for(
    lab: Lab, spark1: LabNode, sparkctl: Sparkctl, pair: dict[str, str]
) -> None:
    sparkctl.profile(env={"LAB_END": "exit:3"})
    ran = sparkctl("switch", "tiny", "--node", "spark1", "--no-rollback", "--json")
    assert_ended(ran, 1, "failed")
    assert "sglang-tiny" in list_containers(spark1), "the wreck"
    assert list_container_ids(lab) == {}
    refused = sparkctl("up", "pair", "--json")
    assert_ended(refused, 6, "refused")
    assert "sparkctl abort" in refused.result["hint"], refused
    assert_ended(sparkctl("abort", "--node", "spark1", "--json"), 0, "done")
    assert list_container_ids(lab) == pair
    assert find_serving_model(lab) == "pair"


def test_what_can_be_known_before_is_said_while_the_old_one_serves(
    lab: Lab, sparkctl: Sparkctl, pair: dict[str, str]
) -> None:
    for fields, said in (
        ({"image": "nobody/has-this:1"}, "nobody/has-this:1"),
        ({"mounts": ["/nowhere:/models"]}, "/nowhere"),
    ):
        sparkctl.profile(**fields)
        ran = sparkctl("switch", "tiny", "--node", "spark1", "--json")
        assert_ended(ran, 6, "refused")
        assert said in ran.result["message"], ran
    assert list_container_ids(lab) == pair
    assert find_serving_model(lab) == "pair"


def test_two_ranks_with_different_images_never_begin(
    empty: Lab, spark2: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    assert_ended(sparkctl("up", "tiny", "--node", "spark1", "--json"), 0, "ready")
    before = list_container_ids(empty)
    faults.another_image(spark2, IMAGE)
    ran = sparkctl("switch", "pair", "--json")
    assert_ended(ran, 6, "refused")
    assert "spark2" in ran.result["message"], ran
    assert list_container_ids(empty) == before


def test_a_foreign_container_that_holds_the_memory_is_named_and_left(
    empty: Lab, spark1: LabNode, sparkctl: Sparkctl
) -> None:
    spark1.docker("run", "-d", "--name", "comfyui", "--network", "host", "-e", "LAB_ALLOC_MB=2048", IMAGE)
    await_true("it to be ready", lambda: "Server is ready" in spark1.read_container_log("comfyui"))
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if "MemAvailable" in line)
    sparkctl.profile(memory={"expected": f"{(available >> 10) + 1024}m"})
    ran = sparkctl("switch", "tiny", "--node", "spark1", "--json")
    assert_ended(ran, 6, "refused")
    assert "comfyui" in ran.result["message"] + (ran.result["hint"] or ""), ran
    assert list_containers(spark1) == ["comfyui"]


def test_two_operators_at_once(lab: Lab, sparkctl: Sparkctl, tmp_path: Path, pair: dict[str, str]) -> None:
    """The second one is told who, which step and since when; and may finish it once the first one is gone."""
    sparkctl.profile(env={"LAB_LOAD_S": "20"})
    switching = sparkctl.start("switch", "tiny", "--node", "spark1", "--json")
    switching.await_text(STEP.format("starting"))
    rosa = Sparkctl(tmp_path, operator="rosa")
    write_two_node_profile(rosa)
    rosa.profile()
    for words in (
        ("switch", "tiny", "--node", "spark1"),
        ("down", "pair"),
        ("up", "pair"),
        ("abort", "--node", "spark1"),
    ):
        refused = rosa(*words, "--json")
        assert_ended(refused, 6, "refused")
        said = refused.result["message"]
        assert "milo@" in said, refused
    assert "step" in said or "starting" in said, said
    switching.kill()
    assert_ended(rosa("abort", "--node", "spark1", "--json"), 0, "done")
    assert list_container_ids(lab) == pair
    assert find_serving_model(lab) == "pair"


# What the event stream shows when a step has just begun, or is half done.
STEP = '"event":"switch",[^\n]*"step":"{}"'
PHASE = '"event":"phase",[^\n\\[]*"phase":"{}"'  # not in the list of expected parts
MOMENTS = {
    **{step: STEP.format(step) for step in ("checking", "stopping", "releasing", "starting")},
    **{phase: PHASE.format(phase) for phase in ("creating", "loading")},
    "clearing": STEP.format("clearing"),
}
TURNS = {"resume": ("checking", "stopping", "starting", "loading"), "abort": ("releasing", "creating", "clearing")}
WAYS = {"pair": ("switch", "tiny", "--node", "spark1"), "tiny": ("switch", "pair")}
OTHER = {"pair": "tiny", "tiny": "pair"}


def kill_switch_at(sparkctl: Sparkctl, moment: str, *words: str) -> Ran:
    """Start a switch, kill sparkctl with SIGKILL as soon as its events say that it is there, and return what it said."""
    running = sparkctl.start(*words, "--json")
    running.await_text(moment)
    return running.kill()


def finish_switch(sparkctl: Sparkctl, verb: str, moment: str) -> None:
    """Let ``resume`` or ``abort`` do what is left. The new one serves while the old one is cleared away: no way back then."""
    ran = sparkctl(verb, "--node", "spark1", "--json")
    if verb == "abort" and moment == "clearing":
        assert_ended(ran, 6, "refused")
        assert "sparkctl resume" in ran.result["hint"], ran
        ran = sparkctl("resume", "--node", "spark1", "--json")
    assert ran.code == 0, ran


@pytest.mark.timeout(250)
@pytest.mark.parametrize("verb", TURNS)
def test_killed_at_every_step_there_is_one_whole_model_in_the_end(
    lab: Lab, sparkctl: Sparkctl, pair: dict[str, str], verb: str
) -> None:
    """Each time from what the last one left: from two Sparks to one, from one to two."""
    serving, story = "pair", []
    for moment in MOMENTS if ALL else TURNS[verb]:
        before, begun = list_container_ids(lab), time.monotonic()
        kill_switch_at(sparkctl, MOMENTS[moment], *WAYS[serving])
        if was_left := bool(list_journal_nodes(lab)):
            finish_switch(sparkctl, verb, moment)
        is_new = was_left and (verb == "resume" or moment == "clearing")
        now = find_serving_model(lab)
        story.append(f"{verb} at {moment}: {serving} to {now}, {time.monotonic() - begun:.1f} s")
        assert now == (OTHER[serving] if is_new else serving), story
        assert was_left or moment == "checking", story
        assert is_new or list_container_ids(lab) == before, "the very same containers"
        serving = now
    print("\n".join(story))


@pytest.mark.parametrize(("step", "verb"), [("undoing", "abort"), ("restoring", "resume")])
def test_killed_on_the_way_back_the_old_one_serves_in_the_end(
    lab: Lab, sparkctl: Sparkctl, pair: dict[str, str], step: str, verb: str
) -> None:
    sparkctl.profile(env={"LAB_END": "exit:3", "LAB_LOAD_S": "0.1"})
    kill_switch_at(sparkctl, STEP.format(step), "switch", "tiny", "--node", "spark1")
    ran = sparkctl(verb, "--node", "spark1", "--json")
    assert ran.code in (0, 1), ran
    assert find_serving_model(lab) == "pair"
    assert list_container_ids(lab) == pair


def test_the_connection_cut_in_the_middle_is_no_end(
    lab: Lab, spark1: LabNode, spark2: LabNode, sparkctl: Sparkctl, pair: dict[str, str], faults: Faults
) -> None:
    sparkctl.profile(env={"LAB_LOAD_S": "3"})
    switching = sparkctl.start("switch", "tiny", "--node", "spark1", "--json")
    switching.await_text(PHASE.format("loading"))
    for node in (spark1, spark2):
        faults.kill_sessions(node)
    assert_ended(switching.end(), 0, "ready")
    assert find_serving_model(lab) == "tiny"
