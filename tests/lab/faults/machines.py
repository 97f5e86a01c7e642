"""What the node itself may be: a clock that is set, an old and a new Python, swap, a container out of memory, two users."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.lab.bed.names import FABRIC
from tests.lab.bed.shell import await_true
from tests.lab.faults.network import read_phases
from tests.lab.faults.trial import Trial, add_row, skip_row
from tests.lab.support.clear_nodes import GUARD
from tests.lab.support.command_outcomes import LOADING, get_verdict, list_own_containers
from tests.lab.test_lab_guard import GIB, ROOM, TAKES, build_floor_flags, read_container_status, read_meminfo

CLOCK, PYTHON, MEMORY, USERS = "clock of a node", "Python of a node", "memory", "users"
LIMITED = {"gpus": "none", "network": "host"}


def no_faketime() -> str | None:
    """Return why the clock of a node's programs cannot be set, None where it can."""
    return None if any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")) else "libfaketime is not installed"


def play_clock(trial: Trial, before: float, during: float) -> None:
    """Start with a node's clock ``before`` seconds ahead, set it to ``during`` in the middle, and hold what is said to the truth."""
    command = trial.operator()
    trial.faults.shift_clock(trial.spark1, before)
    profile = command.profile(env={"LAB_LOAD_S": "4", "LAB_LINES": "100"})
    began = time.monotonic()
    up = command.start("up", profile, "--node", "spark1", "--json")
    up.await_text(LOADING)
    ahead = float(trial.spark1.sh("su", "-l", "milo", "-c", "date +%s")) - time.time() if before else 0.0
    trial.faults.shift_clock(trial.spark1, during)
    ran = trial.check_end(up.end(), 0)
    took = time.monotonic() - began
    trial.check_truth(
        not [e for e in ran.events if e["event"] == "guard" and e["what"] == "killed"], "the guard ended it", ran
    )
    guard = trial.check_end(command("guard", "status", "--node", "spark1", "--json"), 0)
    document = (json.loads(guard.out)["nodes"][0]["guard"] or {"events": []})["events"]
    ends = [event["why"] for event in document]
    apart = [event["at"] - time.time() for event in document]
    trial.check_intact(
        all(abs(one - during) < 60 for one in apart), f"the guard did not see its clock set: {apart}", guard
    )
    trial.check_truth(ends in ([], ["ready"]), f"the guard's watch ended as {ends}", guard)
    status = trial.check_end(command("status", "--json"), 0)
    trial.check_truth(read_phases(status) == {"tiny": "ready"}, f"status has {read_phases(status)}", status)
    trial.check_end(command("top", "--once", "--node", "spark1"), 0, words="tiny")
    trial.check_intact(
        "numbered 0000100" in trial.check_end(command("logs", profile, "--since", "5m"), 0).out,
        "logs --since shows nothing",
    )
    trial.check_end(command("down", profile, "--node", "spark1", "--json"), 0)
    trial.check_intact(list_own_containers(trial.spark1) == [], "a container is left")
    shown = trial.check_end(command("history", "--json"), 0)
    lasted = [float(one) for one in re.findall(r'"seconds": ?(-?[0-9.e+]+)', shown.out)]
    trial.check_truth(
        bool(lasted) and all(0 <= one < 120 for one in lasted), f"the history has durations {lasted}", shown
    )
    trial.note(
        f"node {ahead:+.0f} s, then {during:+.0f} s: ready after {took:.0f} s, guard (its clock "
        f"{apart[-1] if apart else 0.0:+.0f} s) and history true, down 0"
    )


@add_row(
    "node-clock-ahead", CLOCK,
    "the clock of a node's programs is an hour ahead when `up` begins, and is set to the right time while it loads",
    "`up` ends ready (0), no duration of an hour anywhere, the guard ends its watch as *ready*, `status`, `top`, "
    "`logs --since 5m` and `down` say what is so",
    no_faketime,
)  # fmt: skip
def clock_ahead(trial: Trial) -> None:
    play_clock(trial, 3600, 0)


@add_row(
    "node-clock-back", CLOCK,
    "the clock of a node's programs goes back by two hours while `up` loads",
    "as above",
    no_faketime,
)  # fmt: skip
def clock_back(trial: Trial) -> None:
    play_clock(trial, 0, -7200)


def find_python(version: str) -> Path | None:
    """Return a Python of this version on this machine, None where there is none."""
    wanted = f"python{version}"
    found = [Path(one) for one in (shutil.which(wanted), sys.executable) if one]
    found += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{wanted}"))
    return next((one for one in found if one.name == wanted and ".pyenv/shims" not in str(one) and one.exists()), None)


def make_lack_check(version: str) -> Callable[[], str | None]:
    """Return what tells why a node cannot have this Python."""
    return lambda: None if find_python(version) else f"there is no Python {version} on this machine"


def play_python(trial: Trial, version: str) -> None:
    """Run everything that runs a program of ours on the nodes with this Python."""
    program = find_python(version)
    assert program is not None
    for node in (trial.spark1, trial.spark2):
        trial.faults.use_python(node, program)
    command = trial.operator()
    shown = trial.spark1.sh("su", "-l", "milo", "-c", "/usr/local/bin/python3 -V").strip()
    trial.check_intact(f"Python {version}." in shown, f"the node has {shown}")
    up = command.start("up", command.profile(env={"LAB_LOAD_S": "3"}), "--node", "spark1", "--json")
    up.await_text(LOADING)
    guards = trial.spark1.pids(GUARD)
    programs = {Path(f"/proc/{pid}/exe").readlink().name for pid in guards}
    trial.check_truth(programs == {f"python{version}"}, f"the guard runs on {programs or 'nothing'}")
    ran = trial.check_end(up.end(), 0)
    warnings = [event["message"] for event in ran.events if event["event"] == "warning"]
    trial.check_truth(
        not [text for text in warnings if "guard" in text or "ython" in text], f"warnings: {warnings}", ran
    )
    trial.check_end(command("guard", "status", "--node", "spark1"), 0)
    top = trial.check_end(command("top", "--once", "--node", "spark1", "--json"), 0)
    trial.check_truth('"ready"' in top.out, "top does not know it as ready", top)
    bundle = trial.home / "bundle.tar.gz"
    collected = command("doctor", "--collect", str(bundle))
    trial.check_truth(bundle.exists() and bundle.stat().st_size > 2000, "doctor --collect brought nothing", collected)
    trial.spark1.sh(
        "su", "-l", "milo", "-c", "mkdir -p models/tiny; head -c 3000000 /dev/urandom >models/tiny/model.safetensors"
    )
    command.configure(fabric=FABRIC)
    command.profile(mounts=["~/models:/models"])
    trial.check_end(command("sync", "tiny", "--from", "spark1", "--to", "spark2", "--model-only", "--json"), 0)
    sums = {node.sh("sha256sum", "/home/milo/models/tiny/model.safetensors") for node in (trial.spark1, trial.spark2)}
    for node in (trial.spark1, trial.spark2):
        node.sh("rm", "-rf", "/home/milo/models/tiny")
    trial.check_intact(len(sums) == 1, "the file that was sent differs")
    trial.check_end(command("down", "tiny", "--node", "spark1", "--json"), 0)
    trial.note(f"{shown}: guard, probe, collect, sync, up and down as with any other")


@add_row(
    "python-3.8", PYTHON, "python3 of both nodes is 3.8",
    "`up` with its guard, `top`, `doctor --collect`, `sync`, `guard status`, `down` work; the guard's process is that Python's",
    make_lack_check("3.8"),
)  # fmt: skip
def python_38(trial: Trial) -> None:
    play_python(trial, "3.8")


@add_row("python-3.13", PYTHON, "python3 of both nodes is 3.13", "as above", make_lack_check("3.13"))
def python_313(trial: Trial) -> None:
    play_python(trial, "3.13")


@add_row(
    "oom-while-loading", MEMORY, "a container with `memory: 96m` takes 400 MB while it loads under `up`",
    "exit 1, cause *host-oom-kill* with the limit, the container and its log are kept; with more memory `up` ends with 0",
)  # fmt: skip
def oom_loading(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile(
        container={**LIMITED, "options": {"memory": "96m"}}, env={"LAB_ALLOC_MB": "400", "LAB_LOAD_S": "2"}
    )
    ran = trial.check_end(command("up", profile, "--node", "spark1", "--json"), 1)
    found = get_verdict(ran)
    trial.check_truth(
        found["cause"] == "host-oom-kill" and "96m" in found["summary"], f"the cause is {found['cause']}", ran
    )
    trial.check_intact(
        trial.spark1.inspect_container("sglang-tiny")["State"]["OOMKilled"] is True, "the container was not kept"
    )
    trial.note(found["summary"][:110])
    command.profile(container={**LIMITED, "options": {"memory": "2g"}}, env={"LAB_ALLOC_MB": "100"})
    trial.check_end(command("up", profile, "--node", "spark1", "--json"), 0)


@add_row(
    "oom-while-serving", MEMORY, "a container with `memory: 160m` serves, then takes 400 MB; `logs -f` follows it",
    "`logs -f` ends by itself and says how it ended; `status` does not call it ready and names the kill; `up` starts it anew (0)",
)  # fmt: skip
def oom_serving(trial: Trial) -> None:
    command = trial.operator()
    profile = command.profile(container={**LIMITED, "options": {"memory": "160m"}}, env={"LAB_ALLOC_MB": "16"})
    trial.check_end(command("up", profile, "--node", "spark1", "--json"), 0)
    follow = command.start("logs", profile, "--node", "spark1", "-f")
    follow.await_text("fired up")
    with suppress(OSError):
        urllib.request.urlopen(f"http://{trial.spark1.address}:8101/_lab/allocate?megabytes=400", timeout=10).close()
    await_true("the kernel's kill", lambda: read_container_status(trial.spark1, "sglang-tiny") == "exited", 20.0)
    followed = follow.end(20)
    said = (followed.err or followed.out).strip().splitlines()[-1]
    trial.note(f"logs -f {followed.code}: {said[:80]}")
    status = command("status", "--node", "spark1")
    shown = next((line.strip() for line in (status.out + status.err).splitlines() if "tiny" in line), "")
    trial.check_truth("ready" not in shown, "status calls it ready", status)
    trial.check_truth(
        "memory" in status.out or "OOM" in status.out or "137" in status.out, "status does not name the kill", status
    )
    trial.note(f"status {status.code}: {' '.join(shown.split())[:90]}")
    again = trial.check_end(command("up", profile, "--node", "spark1", "--json"), 0)
    trial.check_intact(
        list_own_containers(trial.spark1) == ["sglang-tiny"], f"there are {list_own_containers(trial.spark1)}", again
    )
    trial.note("up again 0")


@add_row(
    "swap-in-use", MEMORY, "an engine of 1.4 GB has 200 MB of memory, the rest is in swap (zram)",
    "`up` ends ready (0); `status` and `top` show swap, `doctor` names it with the command that empties it; `down` frees it",
)  # fmt: skip
def swap(trial: Trial) -> None:
    if not Path("/sys/block/zram0/disksize").exists():
        skip_row("the kernel has no zram")
    trial.faults.swap(4 << 30)
    command = trial.operator()
    options = {"memory": "200m", "memory-swap": "3g"}
    profile = command.profile(
        container={**LIMITED, "options": options}, env={"LAB_ALLOC_MB": "1400", "LAB_LOAD_S": "2"}
    )
    trial.check_end(command("up", profile, "--node", "spark1", "--json"), 0)
    used = int(Path("/proc/swaps").read_text().split()[-2]) / (1 << 20)
    trial.check_intact(used > 1, f"only {used:.1f} GiB are in swap")
    status = trial.check_end(command("status", "--node", "spark1"), 0, words="swap")
    top = trial.check_end(command("top", "--once", "--node", "spark1"), 0, words=f"swap {used:.1f}")
    doctor = command("doctor", "--node", "spark1")
    trial.check_truth(
        "of swap in use" in doctor.out and "swapoff" in doctor.out, "doctor does not name the swap", doctor
    )
    trial.note(f"{used:.1f} GiB in swap: up 0, status, top and doctor name it")
    trial.check_end(command("down", profile, "--node", "spark1", "--json"), 0)
    del status, top


@add_row(
    "two-guards", USERS,
    "two users of one node, each with a guard, start a model each; memory falls under the floor of both",
    "the second `up` says that another user's guard runs there; each guard ends what its own user loads, tells it as "
    "*guard-stopped* with its curve (exit 1), and each receipt is its own user's",
)  # fmt: skip
def two_guards(trial: Trial) -> None:
    node = trial.spark1
    if read_meminfo("MemAvailable") < ROOM + 6 * GIB:
        skip_row("the machine has too little memory free to take some of it")
    trial.faults.add_user(node, "anna")
    milo, anna = trial.operator("milo"), trial.operator("anna")
    anna.configure(user="anna")
    anna.profile("other", port=8102, env={"LAB_LOAD_S": "12"})
    milo.profile("tiny", env={"LAB_LOAD_S": "5", **TAKES})
    low = build_floor_flags()
    trial.check_end(anna("up", "other", "--node", "spark1", "--detach", "--json", *low), 0)
    await_true("anna's guard", lambda: bool(node.pids(GUARD)), 15.0)
    ran = milo("up", "tiny", "--node", "spark1", "--json", *low)
    trial.check_truth("another user's guard runs on spark1" in ran.out, "the other guard is not named", ran)
    trial.check_end(ran, 1)
    trial.check_truth(
        get_verdict(ran)["cause"] in ("guard-stopped", "stopped-by-others"), f"cause {get_verdict(ran)['cause']}", ran
    )
    trial.note(
        f"the one that grew: {get_verdict(ran)['cause']}; the other one: {read_container_status(node, 'sglang-other')}"
    )
    for command, name in ((milo, "tiny"), (anna, "other")):
        shown = trial.check_end(command("guard", "status", "--node", "spark1", "--json"), 0)
        receipts = [each["instance"] for each in json.loads(shown.out)["nodes"][0]["receipts"]]
        trial.check_truth(set(receipts) <= {name}, f"{command.env['USER']} has receipts of {receipts}", shown)
        trial.note(f"{command.env['USER']} has receipts of {receipts or 'nothing'}")
        trial.check_end(command("free", "spark1", "--json"), 0)


ROWS = (clock_ahead, clock_back, python_38, python_313, oom_loading, oom_serving, swap, two_guards)
