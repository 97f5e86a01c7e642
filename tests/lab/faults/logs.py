"""Logs that Docker rotates while they are followed, and hours of recorded events."""

from __future__ import annotations

import json
import resource
import time
from itertools import pairwise
from pathlib import Path

from tests.lab.bed.shell import await_true
from tests.lab.faults.trial import Trial, add_row
from tests.lab.support.command_outcomes import LOADING, list_own_containers, parse_numbers, read_saved_log
from tests.lab.support.tmux_screen import Screen

GROUP = "logs and recordings"
ROTATED = {"gpus": "none", "network": "host", "options": {"log-opt": ["max-size=40k", "max-file=4"]}}
LINES = 4000


@add_row(
    "log-rotation", GROUP,
    f"Docker rotates a log at 40 kB, {LINES} lines at 400 a second: followed by `up` and by `logs -f`",
    "every line is there once, in order, in both; `logs` afterwards shows what Docker has kept, without a hole",
)  # fmt: skip
def rotation(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile(container=ROTATED, env={"LAB_LINES": str(LINES), "LAB_RATE": "400"})
    up = command.start("up", profile, "--node", "spark1", "--json")
    up.await_text(LOADING)
    follow = command.start("logs", profile, "--node", "spark1", "-f")
    trial.check_end(up.end(), 0)
    follow.await_text(f"numbered {LINES:07d}", 20)
    followed = parse_numbers(follow.kill().out)
    everything = list(range(1, LINES + 1))
    for what, found in (("saved", parse_numbers(read_saved_log(command))), ("followed", followed)):
        first = everything.index(found[0]) if found else LINES
        if found != everything[first:]:
            Path(f"/tmp/fx/{what}.log").write_text(read_saved_log(command))
        trial.check_intact(found == everything[first:], f"{what}: {describe_difference(found, everything[first:])}")
        trial.note(f"{what}: {len(found)} lines once, from number {found[0]}")
        trial.check_intact(first < LINES // 4, f"{what} begins at {first + 1}")
    kept = parse_numbers(trial.check_end(command("logs", profile, "--node", "spark1"), 0).out)
    trial.check_intact(
        kept == list(range(kept[0], LINES + 1)),
        f"read anew: {describe_difference(kept, list(range(kept[0], LINES + 1)))}",
    )
    trial.note(f"read anew: {len(kept)} lines that Docker had kept")


@add_row(
    "log-rotation-and-a-cut", GROUP,
    "the same, and the link is down for 12 s meanwhile: longer than Docker keeps the lines",
    "every line is there once, or in their place it is said that lines are missing",
)  # fmt: skip
def rotation_and_cut(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile(container=ROTATED, env={"LAB_LINES": "8000", "LAB_RATE": "350"})
    up = command.start("up", profile, "--node", "spark1", "--json")
    up.await_text(LOADING)
    follow = command.start("logs", profile, "--node", "spark1", "-f")
    follow.await_text("numbered 0000100")
    trial.faults.unplug(trial.spark1)
    time.sleep(12)
    trial.faults.plug(trial.spark1)
    ran = trial.check_end(up.end(90), 0)
    follow.await_text("numbered 0008000", 40)
    ended = follow.kill()
    saved = read_saved_log(command)
    for what, text, expected in (
        ("saved", saved, saved + ran.out + ran.err),
        ("followed", ended.out, ended.out + ended.err),
    ):
        found = parse_numbers(text)
        trial.check_intact(found == sorted(set(found)), f"{what}: lines twice or out of order")
        missing = found[-1] - found[0] + 1 - len(found)
        is_said = "missing" in expected or "rotated" in expected
        trial.check_truth(not missing or is_said, f"{what}: {missing} lines are missing and nothing says so")
        trial.note(f"{what}: {len(found)} lines once, {missing} missing" + (" and that is said" if missing else ""))


def describe_difference(found: list[int], wanted: list[int]) -> str:
    """Say in what two lists of numbered lines differ."""
    lost, doubled = sorted(set(wanted) - set(found)), len(found) - len(set(found))
    back = [f"{one} after {before}" for before, one in pairwise(found) if one <= before]
    return f"{len(lost)} lines lost (from {lost[:3]}), {doubled} doubled ({', '.join(back[:4])})"


@add_row(
    "replay-of-an-hour", GROUP,
    "a recording of an hour, two nodes with a model at a sample a second, is replayed by `top --replay` and by the panel",
    "`top --replay --once` and the panel end with 0 and show its last state; less than 400 MB of memory, less than a minute",
)  # fmt: skip
def replay(trial: Trial) -> None:
    command = trial.operator()
    trial.check_end(command("up", command.profile(), "--node", "spark1", "--json"), 0)
    short = trial.home / "short.jsonl"
    record = command.start("top", "--record", str(short), "--json")
    await_true("ten seconds of events", lambda: measure_span(short) > 10, 40.0, 0.5)
    record.interrupt()
    record.end()
    hour = trial.home / "hour.jsonl"
    count = repeat_events(short, hour, 3600)
    began = time.monotonic()
    once = trial.check_end(command("top", "--replay", str(hour), "--once"), 0, words="tiny")
    took = time.monotonic() - began
    trial.check_truth("ready" in once.out, "its last state is not shown", once)
    fast = trial.check_end(command("top", "--replay", str(hour), "--speed", "100000", "--plain", timeout=120), 0)
    trial.check_truth("tiny" in fast.out, "the replay shows nothing", fast)
    screen = Screen(trial.home, command.argv("--replay", str(hour)), command.env)
    try:
        screen.until("spark1", "tiny")
        for key in ("l", "Escape", "h", "Escape"):
            screen.press(key)
            time.sleep(0.5)
        screen.press("q")
        screen.until("ended with 0")
    finally:
        screen.close()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    trial.check_truth(took < 60 and peak < 400, f"{took:.0f} s and {peak:.0f} MB")
    trial.note(
        f"{count} events, {hour.stat().st_size >> 20} MB: its end shown after {took:.1f} s, {peak:.0f} MB at most; panel 0"
    )
    trial.check_intact(list_own_containers(trial.spark1) == ["sglang-tiny"], "the replay touched a node")


def measure_span(path: Path) -> float:
    """Return how many seconds the events of a recording span."""
    times = [event["ts"] for event in read_events(path)]
    return times[-1] - times[0] if times else 0.0


def read_events(path: Path) -> list[dict[str, float]]:
    """Return the whole lines of a recording."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def repeat_events(short: Path, long: Path, seconds: float) -> int:
    """Write the events of one recording again and again until ``seconds`` are full; return how many that are."""
    some, step, count, shift = read_events(short), measure_span(short) + 0.5, 0, 0.0
    with long.open("w") as file:
        while shift < seconds:
            for event in some if not shift else [one for one in some if str(one["event"]) != "node"]:
                file.write(json.dumps({**event, "ts": event["ts"] + shift}) + "\n")
            count, shift = count + len(some), shift + step
    return count


ROWS = (rotation, rotation_and_cut, replay)
