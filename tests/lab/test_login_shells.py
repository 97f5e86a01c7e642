"""Any login shell on the node: the lock, the guard, the probe, a look and whole verbs are the same; what does not run is named."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import USER
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import ALL, CI, LOADING, assert_ended, list_containers
from tests.lab.support.sparkctl_process import Sparkctl

SHELLS = ("tcsh", "fish", "rbash")
OTHERS = ("dash", "bash", "zsh", "bsd-csh", "nu", "mksh", "ksh", "yash", "xonsh")
GUARD = "sparkctl-guard"
# What each shell reads at every login, to be noisy and slow as the worst.
NOISE = 'echo "@@ held"; echo "@@ end"; sh -c "echo noise >&2"; sleep 0.3\n'
STARTUP = {"tcsh": ".tcshrc", "bsd-csh": ".cshrc", "bash": ".bashrc", "rbash": ".bashrc", "zsh": ".zshenv"}


@pytest.fixture
def no_guard_left(clean_nodes: Lab) -> Iterator[None]:
    yield
    for node in clean_nodes.nodes.values():
        node.signal(signal.SIGKILL, GUARD)
        node.sh("sh", "-c", "rm -rf /tmp/sparkctl-guard-*")


@pytest.fixture(params=[*SHELLS, *(OTHERS if ALL else ())])
def shell(request: pytest.FixtureRequest, spark1: LabNode, faults: Faults) -> str:
    """Make it milo's login shell on spark1, with a startup file that prints and takes its time."""
    name = str(request.param)
    if shutil.which(name) is None and not (CI and name in SHELLS):
        pytest.skip(f"{name} is not installed")
    faults.login_shell(spark1, name)
    if name in STARTUP:
        faults.startup_file(spark1, STARTUP[name], NOISE)
    return name


@pytest.mark.usefixtures("no_guard_left")
def test_every_verb_and_the_lock_and_the_guard(shell: str, spark1: LabNode, sparkctl: Sparkctl, tmp_path: Path) -> None:
    tiny = sparkctl.profile(env={"LAB_END": "hang"})
    up = sparkctl.start("up", tiny, "--node", "spark1", "--json")
    up.await_text(LOADING)
    rosa = Sparkctl(tmp_path, operator="rosa")
    rosa.profile("other", port=8102)
    refused = rosa("up", "other", "--node", "spark1", "--json")
    assert_ended(refused, 6, "refused")
    assert "milo@" in refused.result["message"]
    (guard,) = json.loads(rosa("guard", "status", "--node", "spark1", "--json").out)["nodes"]
    assert [watch["instance"] for watch in guard["guard"]["watches"]] == ["tiny"], guard
    up.interrupt()
    ran = up.end()
    assert_ended(ran, 130, "interrupted")
    result = [event["message"] for event in ran.events if event["event"] == "warning"]
    assert not [words for words in result if re.search(r"guard|\block\b|probe|python|busy", words, re.IGNORECASE)], (
        result
    )
    top = sparkctl("top", "--once", "--json", "--node", "spark1")
    assert top.code == 0, top
    assert '"uptime"' in top.out
    assert_ended(sparkctl("down", tiny, "--node", "spark1", "--json"), 0, "done")
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    sparkctl.profile("next")
    assert_ended(sparkctl("switch", "next", "--node", "spark1", "--json"), 0, "ready")
    assert_ended(sparkctl("drop-caches", "--node", "spark1", "--json"), 0, "done")
    assert list_containers(spark1) == ["sglang-next"]
    assert_ended(sparkctl("down", "next", "--node", "spark1", "--json"), 0, "done")
    assert list_containers(spark1) == []


FORCED = ("echo This account is for backups only.; exit 1", "cat", "/usr/sbin/nologin")


@pytest.mark.parametrize("command", FORCED if ALL else FORCED[:1])
def test_a_login_that_runs_something_else_is_named_and_nothing_starts_or_stops(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults, command: str
) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    faults.sshd_config(spark1, f"Match User {USER}\nForceCommand {command}\n")
    for words in (
        ("up", sparkctl.profile("other", port=8102)),
        ("status",),
        ("guard", "status"),
        ("top", "--once"),
        ("free",),
    ):
        ran = sparkctl(*words, *(() if words == ("free",) else ("--node",)), "spark1")
        assert ran.code == 3, ran
        said = ran.out + ran.err
        # `cat` waits for more where a command is held
        wanted = "did not (run|get to)" if command == "cat" else "did not run"
        assert re.search(f"the login shell of {USER} on spark1 {wanted} our command", said), ran
        assert "Python" not in said, ran
        assert "very busy" not in said or "did not get to" in said, ran
    assert list_containers(spark1) == ["sglang-tiny"]


@pytest.mark.parametrize("kind", ["mkfifo", "ln -s /home/milo/.ssh/authorized_keys", "mkdir", "touch"])
def test_what_another_user_puts_in_the_way_of_the_lock(
    spark1: LabNode, sparkctl: Sparkctl, tmp_path: Path, kind: str
) -> None:
    keys = spark1.sh("cat", f"/home/{USER}/.ssh/authorized_keys")
    spark1.sh("rm", "-rf", "/tmp/sparkctl.lock")
    spark1.sh("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *kind.split(), "/tmp/sparkctl.lock")
    try:
        up = sparkctl.start("up", sparkctl.profile(env={"LAB_END": "hang"}), "--node", "spark1", "--json")
        up.await_text(LOADING)
        rosa = Sparkctl(tmp_path, operator="rosa")
        rosa.profile("other", port=8102)
        refused = rosa("up", "other", "--node", "spark1", "--json")
        assert_ended(refused, 6, "refused")
        assert "milo@" in refused.result["message"]
        up.interrupt()
        ran = up.end()
        assert_ended(ran, 130, "interrupted")
        result = [event["message"] for event in ran.events if event["event"] == "warning"]
        assert any("/tmp/sparkctl.lock" in words and "nobody" in words for words in result) is (kind != "touch"), result
        assert spark1.sh("cat", f"/home/{USER}/.ssh/authorized_keys") == keys
    finally:
        spark1.sh("rm", "-rf", "/tmp/sparkctl.lock")


def test_a_status_during_a_switch_tells_that_it_goes_on(spark1: LabNode, sparkctl: Sparkctl) -> None:
    assert_ended(sparkctl("up", sparkctl.profile(), "--node", "spark1", "--json"), 0, "ready")
    sparkctl.profile("slow", env={"LAB_LOAD_S": "6"})
    switch = sparkctl.start("switch", "slow", "--node", "spark1", "--json")
    switch.await_text(LOADING)
    ran = sparkctl("status", "--node", "spark1")
    assert "in progress" in ran.out + ran.err, ran
    assert "was left" not in ran.out + ran.err, ran
    assert_ended(switch.end(), 0, "ready")


def test_our_own_lock_is_known_after_a_break_though_its_old_file_is_roots(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    spark1.sh("rm", "-rf", "/tmp/sparkctl.lock")
    spark1.sh("touch", "/tmp/sparkctl.lock")
    up = sparkctl.start("up", sparkctl.profile(env={"LAB_LOAD_S": "20"}), "--node", "spark1", "--json")
    up.await_text(LOADING)
    faults.unplug(spark1)
    up.await_text('"state":"unreachable"')
    faults.plug(spark1)
    ran = up.end()
    spark1.sh("rm", "-f", "/tmp/sparkctl.lock")
    assert_ended(ran, 0, "ready")
    result = [event["message"] for event in ran.events if event["event"] == "warning"]
    assert not any("somebody" in words or "lock" in words for words in result), result
