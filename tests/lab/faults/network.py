"""What a network does to a command: loss, delay, packets that are too large, names that nobody knows, a link gone for good."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

from tests.lab.bed.lab import KEYS, format_known_hosts
from tests.lab.bed.names import ADDRESSES, USER
from tests.lab.bed.shell import await_true
from tests.lab.faults.trial import Trial, add_row
from tests.lab.support.command_outcomes import AWAY, LOADING, list_own_containers, parse_numbers, read_saved_log
from tests.lab.support.rank_containers import write_two_node_profile
from tests.lab.support.sparkctl_process import Ran, Running, Sparkctl

GROUP = "network"
STEP = '"event":"switch",[^\n]*"step":"{}"'


def read_phases(ran: Ran, node: str = "spark1") -> dict[str, str]:
    """Return the phase of each instance that ``status --json`` shows on a node."""
    found = next(one for one in json.loads(ran.out)["nodes"] if one["name"] == node)
    return {one["name"]: one["phase"] for one in found["instances"]}


def assert_normal(trial: Trial, command: Sparkctl, instance: str = "tiny") -> None:
    """Once all is mended: `status` knows it as ready, and `down` leaves nothing of it."""
    await_true("the node", trial.spark1.ssh_answers, 30.0)
    status = trial.check_end(command("status", "--json"), 0)
    trial.check_truth(
        read_phases(status).get(instance) == "ready", f"status has {read_phases(status)} of a model that serves", status
    )
    trial.check_end(command("down", instance, "--node", "spark1", "--json"), 0)
    trial.check_intact(list_own_containers(trial.spark1) == [], f"down left {list_own_containers(trial.spark1)}")


@add_row(
    "loss-and-delay", GROUP,
    "30 % of the packets from a node are lost, the rest come 200 ms late, during `up`, `status`, `logs` and `down`",
    "`up` ends ready (0), every line of its log is there once, `status` and `down` end with 0; or exit 3 that names the node",
)  # fmt: skip
def loss_and_delay(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile(env={"LAB_LINES": "200"})
    trial.faults.slow_link(trial.spark1, delay=0.2, loss=0.3)
    for words in (("up", profile, "--node", "spark1", "--json"), ("status", "--node", "spark1", "--json"),
                  ("logs", profile, "--node", "spark1"), ("down", profile, "--node", "spark1", "--json")):  # fmt: skip
        began = time.monotonic()
        ran = command(*words, timeout=150)
        trial.check_end(ran, 0, 3)
        trial.check_truth(ran.code == 0 or "spark1" in ran.out + ran.err, f"{words[0]} does not name the node", ran)
        trial.note(f"{words[0]} {ran.code} after {time.monotonic() - began:.0f} s")
        if words[0] == "up" and ran.code == 0:
            trial.check_intact(
                parse_numbers(read_saved_log(command)) == list(range(1, 201)), "lines were lost or doubled", ran
            )
        if words[0] == "status" and ran.code == 0:
            trial.check_truth(read_phases(ran) == {"tiny": "ready"}, f"status has {read_phases(ran)}", ran)
    trial.faults.undo()
    trial.check_end(command("free", "spark1", "--json"), 0)
    trial.check_intact(list_own_containers(trial.spark1) == [], "a container is left")


@add_row(
    "mtu-black-hole", GROUP,
    "every packet of 600 bytes or more vanishes, with no word to the sender, before a command begins",
    "exit 3 within its time that names the node and large packets as a cause; `up` makes nothing; once mended `up` ends with 0",
)  # fmt: skip
def black_hole(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile()
    trial.faults.drop_large_packets(trial.spark1)
    for words in (("status", "--node", "spark1"), ("up", profile, "--node", "spark1")):
        began = time.monotonic()
        ran = trial.check_end(command(*words), 3, words="large packets")
        said = [line for line in (ran.err + ran.out).splitlines() if "spark1" in line]
        trial.note(f"{words[0]} 3 after {time.monotonic() - began:.0f} s: {said[-1].strip()[:90]}")
    trial.check_intact(list_own_containers(trial.spark1) == [], "a container was made all the same")
    trial.faults.undo()
    trial.check_end(command("up", profile, "--node", "spark1", "--json"), 0)
    assert_normal(trial, command)


@add_row(
    "mtu-black-hole-in-up", GROUP,
    "the same begins while `up` watches an engine that prints, and ends 15 s later",
    "`up` says that the node does not answer, goes on once it does, ends ready (0), every line is there once",
)  # fmt: skip
def black_hole_in_up(trial: Trial) -> None:
    command = trial.operator()
    up = command.start("up", command.profile(env={"LAB_LINES": "500", "LAB_RATE": "20"}), "--node", "spark1", "--json")
    up.await_text(LOADING)
    trial.faults.drop_large_packets(trial.spark1)
    began = time.monotonic()
    up.await_text(AWAY, 25)
    trial.note(f"noticed after {time.monotonic() - began:.0f} s")
    time.sleep(max(0.0, 15 - (time.monotonic() - began)))
    trial.faults.undo()
    trial.check_end(up.end(90), 0)
    trial.check_intact(parse_numbers(read_saved_log(command)) == list(range(1, 501)), "lines were lost or doubled")
    trial.note("ready, 500 of 500 lines once")
    assert_normal(trial, command)


def configure_by_name(trial: Trial, command: Sparkctl) -> tuple[Path, str]:
    """Configure both nodes by names; return the file of names that this operator's commands see as /etc/hosts, and its text."""
    names = {name: f"{name}.lab.invalid" for name in ADDRESSES}
    entries = [
        {"name": name, "host": host, "user": USER, "identity": str(KEYS / "client")} for name, host in names.items()
    ]
    command.config.write_text(json.dumps({"nodes": entries}))
    lines = format_known_hosts()
    for name, host in names.items():
        lines = lines.replace(ADDRESSES[name][0], host)
    command.know(lines)
    hosts = trial.home / "hosts"
    text = "127.0.0.1 localhost\n" + "".join(f"{ADDRESSES[name][0]} {host}\n" for name, host in names.items())
    hosts.write_text(text)
    return hosts, text


class Named(Sparkctl):
    """A command whose /etc/hosts is a file of the trial's, which may change while it runs, and that asks no name server."""

    hosts: Path

    def argv(self, *words: str) -> list[str]:
        """Return the whole command line."""
        inner = shlex.join(super().argv(*words))
        empty = shlex.quote(str(self.hosts.with_name("resolv.conf")))
        mounts = f"mount --bind {shlex.quote(str(self.hosts))} /etc/hosts && mount --bind {empty} /etc/resolv.conf"
        return ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {inner}"]


@add_row(
    "names-stop-resolving", GROUP,
    "nodes are configured by name; the names stop resolving during `up` and its connection is cut; later they are back",
    "`status` meanwhile: exit 3 that names the host; `up` waits, goes on once the name is back, ends ready (0), no line lost",
)  # fmt: skip
def names_gone(trial: Trial) -> None:
    command = Named(trial.home, "milo")
    trial.operators.append(command)
    command.hosts, text = configure_by_name(trial, command)
    command.hosts.with_name("resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    up = command.start("up", command.profile(env={"LAB_LINES": "500", "LAB_RATE": "25"}), "--node", "spark1", "--json")
    up.await_text(LOADING)
    command.hosts.write_text("127.0.0.1 localhost\n")
    trial.faults.kill_sessions(trial.spark1)
    up.await_text(AWAY, 25)
    status = trial.check_end(command("status", "--node", "spark1"), 3, words="spark1.lab.invalid")
    said = next(line for line in (status.out + status.err).splitlines() if "lab.invalid" in line)
    trial.note(f"status 3: {said.strip()[:100]}")
    time.sleep(3)
    command.hosts.write_text(text)
    trial.check_end(up.end(90), 0)
    trial.check_intact(parse_numbers(read_saved_log(command)) == list(range(1, 501)), "lines were lost or doubled")
    trial.note("up 0, 500 of 500 lines once")
    assert_normal(trial, command)


def wait_until_over(trial: Trial, running: Running, what: str, within: float) -> Ran:
    """Return a command that ended by itself though the link is gone, with its time noted."""
    began = time.monotonic()
    ran = running.end(within)
    trial.note(f"{what} {ran.code} after {time.monotonic() - began:.0f} s")
    return ran


@add_row(
    "link-gone-in-up", GROUP,
    "the link goes down for good while `up --timeout 30s` watches",
    "exit 3 within the timeout and a little, it says that the node does not answer and that the engine was left to run; "
    "with the link back `status` knows it as ready",
)  # fmt: skip
def link_gone_in_up(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile(env={"LAB_LOAD_S": "4"})
    up = command.start("up", profile, "--node", "spark1", "--json", "--timeout", "30s")
    up.await_text(LOADING)
    trial.faults.unplug(trial.spark1)
    ran = trial.check_end(wait_until_over(trial, up, "up", 60), 3, words="spark1")
    said = ran.result["message"] or ""
    trial.check_truth(
        "unreachable" in ran.out or "not answer" in said or "lost" in said, "the silence is not said", ran
    )
    trial.note(said.splitlines()[0][:120])
    trial.faults.undo()
    assert_normal(trial, command)


@add_row(
    "link-gone-in-switch", GROUP,
    "the link goes down for good while `switch --timeout 30s` is at *starting*",
    "exit 3, it says at which step it was left and how to finish; with the link back `status` says so, `resume` "
    "ends with 0, and exactly one model serves",
)  # fmt: skip
def link_gone_in_switch(trial: Trial) -> None:
    command = trial.operator()
    command.profile("old", env={"LAB_LOAD_S": "0.3"})
    command.profile("tiny", env={"LAB_LOAD_S": "4"})
    trial.check_end(command("up", "old", "--node", "spark1", "--json"), 0)
    switch = command.start("switch", "tiny", "--node", "spark1", "--json", "--timeout", "30s")
    switch.await_text(STEP.format("starting"))
    switch.await_text(LOADING)
    trial.faults.unplug(trial.spark1)
    ran = trial.check_end(wait_until_over(trial, switch, "switch", 150), 3, words="sparkctl resume")
    trial.note((ran.result["message"] or "").splitlines()[0][:120])
    trial.faults.undo()
    await_true("the node", trial.spark1.ssh_answers, 30.0)
    trial.check_end(command("status", "--node", "spark1"), 0, words="was left")
    trial.check_end(command("resume", "--node", "spark1", "--json"), 0)
    trial.check_intact(
        list_own_containers(trial.spark1) == ["sglang-tiny"],
        f"after resume there are {list_own_containers(trial.spark1)}",
    )
    trial.note("resume 0, the new one alone serves")
    assert_normal(trial, command)


@add_row(
    "link-gone-in-down", GROUP,
    "the link goes down for good while `down` waits for an engine that takes its time to end",
    "exit 3, it says that what is left is done at the next contact; with the link back the node's lock is free within 30 s, "
    "and the next command finishes it",
)  # fmt: skip
def link_gone_in_down(trial: Trial) -> None:
    command = trial.operator()
    trial.check_end(command("up", command.profile(), "--node", "spark1", "--json"), 0)
    trial.spark1.sh("sh", "-c", "kill -STOP $(docker inspect -f '{{.State.Pid}}' sglang-tiny)")
    down = command.start("down", "tiny", "--node", "spark1", "--json")
    down.await_text(r'"phase": ?"stopping"')
    time.sleep(1)
    trial.faults.unplug(trial.spark1)
    ran = trial.check_end(wait_until_over(trial, down, "down", 90), 3, words="spark1")
    trial.note((ran.result["message"] or "").splitlines()[0][:120])
    trial.faults.undo()
    await_true("the node", trial.spark1.ssh_answers, 30.0)
    command.profile("other", port=8102)
    began, refused = time.monotonic(), 0.0
    up = command("up", "other", "--node", "spark1", "--json")
    while up.code == 6 and refused < 40:  # the node frees the lock of a lost connection after 30 s
        refused = time.monotonic() - began
        trial.check_truth("connection was lost" in up.out, "that a lost connection may hold the lock is not said", up)
        time.sleep(1)
        up = command("up", "other", "--node", "spark1", "--json")
    trial.check_end(up, 0)
    trial.note(f"`up` refused for {refused:.0f} s, while the lost connection's lock lives")
    trial.check_intact(
        list_own_containers(trial.spark1) == ["sglang-other"],
        f"the owed stop was not done: {list_own_containers(trial.spark1)}",
    )
    trial.note("the next `up` finished it")


@add_row(
    "link-gone-over-two", GROUP,
    "the link of the second node goes down for good in `up --timeout 30s` of a model over both",
    "that node is said not to answer; ready (0) if the head serves by then, else exit 3; `down` with the link gone stops the first rank, owes the second, exit 3",
)  # fmt: skip
def link_gone_over_two(trial: Trial) -> None:
    command = trial.operator()
    up = command.start("up", write_two_node_profile(command, env={"LAB_LOAD_S": 6}), "--json", "--timeout", "30s")
    up.await_text(LOADING)
    trial.faults.unplug(trial.spark2)
    ran = trial.check_end(wait_until_over(trial, up, "up", 90), 0, 3, words="spark2")
    trial.check_truth(bool(re.search(AWAY, ran.out)), "that the second node does not answer is not said", ran)
    trial.note((ran.result["message"] or "ready, as its head says").splitlines()[0][:120])
    down = command.start("down", "pair", "--json")
    trial.check_end(wait_until_over(trial, down, "down", 90), 3, words="spark2")
    trial.check_intact(list_own_containers(trial.spark1) == [], "the rank that could be stopped was not")
    trial.faults.undo()
    await_true("the node", trial.spark2.ssh_answers, 30.0)
    trial.check_end(command("free", "spark2", "--json"), 0)
    trial.check_intact(list_own_containers(trial.spark2) == [], "a rank is left")


ROWS = (
    loss_and_delay, black_hole, black_hole_in_up, names_gone, link_gone_in_up, link_gone_in_switch, link_gone_in_down,
    link_gone_over_two,
)  # fmt: skip
