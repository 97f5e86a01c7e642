"""What people do: two at once, a terminal that is closed, files of ours that are damaged."""

from __future__ import annotations

import json
import random
import time
from collections import Counter

from tests.lab.bed.names import JOURNAL
from tests.lab.bed.shell import await_true
from tests.lab.faults.network import STEP, read_phases
from tests.lab.faults.trial import Trial, add_row
from tests.lab.support.command_outcomes import list_containers, list_own_containers
from tests.lab.support.sparkctl_process import Ran, Sparkctl
from tests.lab.support.tmux_screen import Screen

RACES, FILES, TERMINAL = "races", "damaged files", "terminal"
QUICK = {"LAB_LOAD_S": "0.2"}


def two_operators(trial: Trial) -> tuple[Sparkctl, Sparkctl]:
    """Return two people with a home each and the same two profiles at the same port."""
    both = trial.operator("milo"), trial.operator("rosa")
    for one in both:
        for name in ("tiny", "other", "third"):
            one.profile(name, env=QUICK)
    return both


def assert_one_serves(trial: Trial) -> list[str]:
    """Return the containers of ours; fails where one does not run, or a journal lies."""
    here = list_own_containers(trial.spark1)
    running = trial.spark1.docker("ps", "--format", "{{.Names}}").split()
    trial.check_intact(sorted(running) == here, f"of {here} only {running} run")
    trial.check_intact(not trial.spark1.sh("ls", JOURNAL, check=False), "a journal is left")
    return here


def start_at_once(trial: Trial, ways: tuple[tuple[Sparkctl, tuple[str, ...]], ...], pause: float = 0.0) -> list[Ran]:
    """Start two commands at once, or one a little later, and return both."""
    started = []
    for command, words in ways:
        started.append(command.start(*words, "--json"))
        time.sleep(pause)
    return [one.end(90) for one in started]


def note_outcomes(trial: Trial, seen: Counter[str]) -> None:
    """Note how the rounds ended."""
    trial.note(f"{sum(seen.values())} rounds: " + ", ".join(f"{count} x {what}" for what, count in seen.most_common(6)))


@add_row(
    "race-of-two-up", RACES, "two operators `up` the same profile at the same moment",
    "exactly one container, ready; each is told ready (0), or refused (6) with the other's name",
)  # fmt: skip
def two_ups(trial: Trial) -> None:
    milo, rosa = two_operators(trial)
    seen: Counter[str] = Counter()
    for _ in range(trial.rounds):
        up = ("up", "tiny", "--node", "spark1")
        both = start_at_once(trial, ((milo, up), (rosa, up)), random.choice((0.0, 0.0, 0.1, 0.5)))
        for ran in both:
            trial.check_end(ran, 0, 6)
            trial.check_truth(
                ran.code == 0 or "@" in ran.result["message"] + (ran.result["hint"] or ""), "nobody is named", ran
            )
        trial.check_intact(any(ran.code == 0 for ran in both), "nobody started it")
        trial.check_intact(
            assert_one_serves(trial) == ["sglang-tiny"], f"there are {list_own_containers(trial.spark1)}"
        )
        seen["/".join(str(ran.code) for ran in both)] += 1
        trial.check_end(milo("down", "tiny", "--node", "spark1", "--json"), 0)
    note_outcomes(trial, seen)


@add_row(
    "race-of-up-and-down", RACES, "one operator `up`s what serves, or what does not, while another `down`s it",
    "one whole container or none; who was told ready had it ready; a stop of the other's is named as such",
)  # fmt: skip
def up_and_down(trial: Trial) -> None:
    milo, rosa = two_operators(trial)
    seen: Counter[str] = Counter()
    for turn in range(trial.rounds):
        if turn % 2:
            trial.check_end(milo("up", "tiny", "--node", "spark1", "--json"), 0)
        up, down = ("up", "tiny", "--node", "spark1"), ("down", "tiny", "--node", "spark1")
        ways = ((milo, up), (rosa, down)) if random.random() < 0.5 else ((rosa, down), (milo, up))
        both = start_at_once(trial, ways, random.choice((0.0, 0.2, 0.8, 1.5)))
        started, stopped = (both[[words[0] for _, words in ways].index(verb)] for verb in ("up", "down"))
        trial.check_end(started, 0, 1, 6)
        trial.check_end(stopped, 0, 2, 6)
        here = list_own_containers(trial.spark1)
        status = trial.check_end(milo("status", "--json"), 0)
        phase = read_phases(status).get("tiny", "gone")
        if started.code == 0 and stopped.code == 6:
            trial.check_intact(here == ["sglang-tiny"], f"ready, the stop refused, and there is {here}", started)
        if started.code == 1:
            cause = (started.result["verdict"] or {}).get("cause", "none")
            trial.check_truth(cause in ("stopped-by-others", "killed", "exited"), f"a stop is told as {cause}", started)
        trial.check_truth(
            phase in ("gone", "ready", "stopped", "exited", "failed"), f"it is {phase} afterwards", status
        )
        seen[f"up {started.code}, down {stopped.code}, {phase}"] += 1
        milo("free", "spark1", "--json")
        trial.check_intact(list_own_containers(trial.spark1) == [], "a wreck that `free` does not take away")
    note_outcomes(trial, seen)


@add_row(
    "race-of-two-switches", RACES, "two operators `switch` to different profiles at the same moment, while a third one serves",
    "exactly one model is whole and alone, no journal is left; each is told ready (0), or refused (6)",
)  # fmt: skip
def two_switches(trial: Trial) -> None:
    milo, rosa = two_operators(trial)
    seen: Counter[str] = Counter()
    trial.check_end(milo("up", "third", "--node", "spark1", "--json"), 0)
    for turn in range(trial.rounds):
        names = ("tiny", "other") if turn % 2 else ("third", "other") if turn % 3 else ("third", "tiny")
        ways = tuple((one, ("switch", name, "--node", "spark1")) for one, name in zip((milo, rosa), names, strict=True))
        both = start_at_once(trial, ways, random.choice((0.0, 0.0, 0.3, 1.0)))
        for ran in both:
            trial.check_end(ran, 0, 6)
        here = assert_one_serves(trial)
        trial.check_intact(len(here) == 1, f"there are {here}", both[0])
        winners = [name for name, ran in zip(names, both, strict=True) if ran.code == 0]
        trial.check_intact(
            not winners or here[0].removeprefix("sglang-") in winners, f"{winners} were told ready, {here} serves"
        )
        seen["/".join(str(ran.code) for ran in both)] += 1
    note_outcomes(trial, seen)


@add_row(
    "race-of-switch-and-abort", RACES, "one operator switches, another `abort`s at a random moment of it",
    "`abort` is refused (6) while the switch goes on, or has nothing to undo; the switch ends with 0, the new one alone serves",
)  # fmt: skip
def switch_and_abort(trial: Trial) -> None:
    milo, rosa = two_operators(trial)
    seen: Counter[str] = Counter()
    trial.check_end(milo("up", "other", "--node", "spark1", "--json"), 0)
    serves, wanted = "other", "tiny"
    for _ in range(trial.rounds):
        switching = milo.start("switch", wanted, "--node", "spark1", "--json")
        time.sleep(random.uniform(0.0, 3.0))
        abort = rosa("abort", "--node", "spark1", "--json")
        ran = switching.end(90)
        trial.check_end(abort, 0, 6)
        trial.check_end(ran, 0, 6)
        here = assert_one_serves(trial)
        now = wanted if ran.code == 0 else serves
        trial.check_intact(here == [f"sglang-{now}"], f"the switch ended with {ran.code}, and there is {here}", ran)
        seen[f"switch {ran.code}, abort {abort.code}"] += 1
        if ran.code == 0:
            serves, wanted = wanted, serves
    note_outcomes(trial, seen)


@add_row(
    "panel-closed-in-its-switch", TERMINAL,
    "the terminal of the panel is closed (SIGHUP) while the switch that it does is at *starting*",
    "the panel's process ends; `status` says that the switch was left and how to go on; `resume` ends with 0, one model serves",
)  # fmt: skip
def panel_closed(trial: Trial) -> None:
    command = trial.operator()
    command.profile("old", env=QUICK)
    command.profile("tiny", env={"LAB_LOAD_S": "6"})
    trial.check_end(command("up", "old", "--node", "spark1", "--json"), 0)
    pid = trial.home / "panel.pid"
    inner = command.argv()
    screen = Screen(trial.home, ["sh", "-c", f'echo $$ >{pid}; exec "$@"', "sh", *inner], command.env)
    try:
        screen.until("spark1 ● ready", "old")
        screen.press(":")
        screen.type("switch tiny --node spark1")
        screen.press("Enter")
        screen.until("tiny", "old", "enter")
        screen.press("Enter")
        screen.until("Type old to do it")
        screen.type("old")
        screen.press("Enter")
        await_true("the new one", lambda: "sglang-tiny" in list_own_containers(trial.spark1), 30.0, 0.2)
    finally:
        screen.close()
    panel = int(pid.read_text())
    began = time.monotonic()
    await_true("the panel's end", lambda: not is_alive(panel), 30.0, 0.1)
    trial.note(f"the panel ended after {time.monotonic() - began:.1f} s")
    status = trial.check_end(command("status", "--node", "spark1"), 0, words="was left")
    trial.check_truth("sparkctl resume" in status.out + status.err, "how to go on is not said", status)
    trial.check_end(command("resume", "--node", "spark1", "--json"), 0)
    trial.check_intact(assert_one_serves(trial) == ["sglang-tiny"], f"there are {list_own_containers(trial.spark1)}")
    trial.note("resume 0, one model serves")


def is_alive(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@add_row(
    "journal-damaged", FILES,
    "the journal of a switch that was killed is cut at several lengths, garbled, emptied, and replaced by zeros",
    "`status` says so (0); `up`, `switch`, `resume`, `abort` are refused (6) and name its place; nothing is stopped; "
    "with the whole one back `abort` ends with 0",
)  # fmt: skip
def journal_damaged(trial: Trial) -> None:
    command = trial.operator()
    command.profile("old", env=QUICK)
    command.profile("tiny", env={"LAB_LOAD_S": "20"})
    trial.check_end(command("up", "old", "--node", "spark1", "--json"), 0)
    switch = command.start("switch", "tiny", "--node", "spark1", "--json")
    switch.await_text(STEP.format("starting"))
    switch.kill()
    whole = trial.spark1.sh("cat", JOURNAL)
    before = list_containers(trial.spark1)
    tried = {
        "empty": "", "1 byte": whole[:1], "half": whole[: len(whole) // 2], "all but 2": whole[:-2], "zeros": "\0" * 64,
        "garbled": whole[:40] + "\x07\x07" + whole[42:], "another version": whole.replace('"schema":1', '"schema":9'),
    }  # fmt: skip
    for what, text in tried.items():
        trial.spark1.put(JOURNAL, text)
        status = command("status", "--node", "spark1")
        trial.check_end(status, 0)
        trial.check_truth("journal" in status.out + status.err, f"{what}: status does not tell of it", status)
        for words in (("up", "tiny", "--node", "spark1"), ("switch", "tiny", "--node", "spark1"),
                      ("resume", "--node", "spark1"), ("abort", "--node", "spark1")):  # fmt: skip
            ran = trial.check_end(command(*words, "--json"), 6)
            said = ran.result["message"] + (ran.result["hint"] or "")
            trial.check_truth("switch.json" in said, f"{what}: {words[0]} does not name its place", ran)
        trial.check_intact(trial.spark1.sh("cat", JOURNAL) == text, f"{what}: the journal was written over")
        trial.check_intact(list_containers(trial.spark1) == before, f"{what}: a container went")
    trial.note(f"{len(tried)} kinds of damage, 5 commands each: all refused with its place, nothing stopped")
    trial.spark1.put(JOURNAL, whole)
    trial.check_end(command("abort", "--node", "spark1", "--json"), 0)
    trial.check_intact(assert_one_serves(trial) == ["sglang-old"], "the old one does not serve again")


@add_row(
    "receipts-damaged", FILES,
    "receipts of the guard are cut, garbled, empty, of 2 MB, or a directory",
    "`guard status`, `status` and `up` go on (0) without them, and the one that is whole is still told",
)  # fmt: skip
def receipts_damaged(trial: Trial) -> None:
    command = trial.operator()
    trial.check_end(command("up", command.profile(env=QUICK), "--node", "spark1", "--json"), 0)
    place = trial.spark1.sh("sh", "-c", "ls -d /tmp/sparkctl-guard-1000").strip()
    whole = json.dumps({
        "container": "ab" * 32, "at": time.time() - 60, "did": "killed", "why": "MemAvailable fell from 2.0 to 0.4 GiB in 3 s",
        "available": 1 << 29, "floor": 1 << 29, "instance": "lost", "profile": "lost", "operator": "milo@laptop",
        "role": "loading", "samples": [], "events": [],
    })  # fmt: skip
    texts = {"a": whole, "b": whole[:-20], "c": whole[:1], "d": "", "e": "{" * 5000, "f": whole.replace('"at":', '"at":1e999,"x":'),
             "0": json.dumps({"why": "x" * (2 << 20)})}  # fmt: skip
    for digit, text in texts.items():
        trial.spark1.put(f"{place}/receipt-{digit * 12}.json", text)
    trial.spark1.sh("mkdir", f"{place}/receipt-{'9' * 12}.json")
    trial.spark1.sh("chown", "-R", "milo:", place)
    for words in (("guard", "status", "--node", "spark1"), ("status", "--node", "spark1")):
        trial.check_end(command(*words), 0)
    shown = trial.check_end(command("guard", "status", "--node", "spark1"), 0, words="lost")
    command.profile("other", port=8102, env=QUICK)
    trial.check_end(command("up", "other", "--node", "spark1", "--json"), 0)
    trial.note(
        f"guard status, status, up 0; told: {next(line for line in shown.out.splitlines() if 'lost' in line).strip()[:80]}"
    )


ROWS = (two_ups, up_and_down, two_switches, switch_and_abort, panel_closed, journal_damaged, receipts_damaged)
