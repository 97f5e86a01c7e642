"""The steps of a node, and what an undo gives back, from what was read there."""

from __future__ import annotations

import hashlib
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from sparkctl.commands.setup.setup_plan import (
    SUDOERS_FILE,
    correct_before,
    plan_drop_right,
    plan_own_steps,
    plan_undo,
)
from sparkctl.errors import OperationRefused
from sparkctl.model.events import FileChange, SetupStepKind
from sparkctl.model.node import NodeName
from sparkctl.node.node_inspection import NodeInspection, decode_inspection
from sparkctl.node.setup_program import (
    WAY_BACK_SECONDS,
    NodeFile,
    SetupReport,
    arm_cable,
    build_program,
    call,
    decode_report,
)
from sparkctl.views.event_text import format_diff

NODE = NodeName("spark1")
LINE = "milo ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches\n"
INSPECTION_OUTPUT = """@@ identity
user milo
home /home/milo
@@ docker
socket yes
access no
member no
@@ sudo
drop denied
@@ setup
group docker:x:998:ada
netplan yes
state no
@@ end
"""


def make_inspection(text: str = INSPECTION_OUTPUT) -> NodeInspection:
    return decode_inspection(text.encode())


def test_what_is_missing_becomes_a_step_with_its_diff() -> None:
    steps, notes = plan_own_steps(NODE, make_inspection())
    assert [step.kind for step in steps] == [SetupStepKind.DOCKER_GROUP, SetupStepKind.DROP_CACHES]
    assert format_diff(steps[0].changes[0])[-2:] == ["-docker:x:998:ada", "+docker:x:998:ada,milo"]
    assert format_diff(steps[1].changes[0]) == [
        "--- /dev/null",
        f"+++ {SUDOERS_FILE}",
        "@@ -0,0 +1 @@",
        f"+{LINE.strip()}",
    ]
    assert steps[1].changes[0].mode == "0440"
    assert notes == ()
    ended = format_diff(FileChange("/x", "a\nb", "a\nb\n"))
    assert ended[3:] == [" a", "-b", "\\ No newline at end of file", "+b"], "a change of nothing but the end is shown"


@pytest.mark.parametrize(
    ("old", "new", "kinds", "noted"),
    [
        ("member no", "member yes", [SetupStepKind.DROP_CACHES], 0),
        ("access no", "access yes", [SetupStepKind.DROP_CACHES], 0),
        ("drop denied", "drop allowed", [SetupStepKind.DOCKER_GROUP], 0),
        ("drop denied", "drop none", [SetupStepKind.DOCKER_GROUP], 1),
        ("group docker:x:998:ada", "group ", [SetupStepKind.DROP_CACHES], 1),
        ("user milo", "user root", [], 0),
        ("user milo", "user milo,ALL", [], 1),
    ],
)
def test_what_is_there_is_left_and_what_cannot_be_done_is_told(
    old: str, new: str, kinds: list[SetupStepKind], noted: int
) -> None:
    steps, notes = plan_own_steps(NODE, make_inspection(INSPECTION_OUTPUT.replace(old, new)))
    assert [step.kind for step in steps] == kinds
    assert len(notes) == noted


def test_other_lines_of_the_sudoers_file_stay() -> None:
    other = "milo ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/compact_memory"
    step = correct_before(plan_drop_right("milo", None), {SUDOERS_FILE: NodeFile(SUDOERS_FILE, "ab", other)}, "milo")
    assert (step.changes[0].before, step.changes[0].after) == (other, f"{other}\n{LINE}")
    assert plan_drop_right("milo", LINE).changes[0].after == LINE
    with pytest.raises(OperationRefused, match="not a plain file"):
        correct_before(step, {SUDOERS_FILE: NodeFile(SUDOERS_FILE, "other", None)}, "milo")


def report_of(path: str, now: str | None, written: str, before: str | None) -> bytes:
    lines = ["Welcome to DGX OS", "@@ setup", f"@@ record {path}"]
    state = "/var/lib/sparkctl/setup"
    for place, text in ((path, now), (f"{state}/written{path}", written), (f"{state}/before{path}", before)):
        digest = "none" if text is None else hashlib.sha256(text.encode()).hexdigest()
        lines += [f"@@ file {place} {digest}", *([] if text is None else [b64encode(text.encode()).decode()])]
    return "\n".join([*lines, "@@ group docker:milo", "@@ end", ""]).encode()


def run_on_node(home: Path, *calls: str) -> SetupReport:
    """Run the node's program here, as a user with this home, and return what it printed."""
    ended = subprocess.run(
        ["sh", "-s"], input=build_program(*calls), capture_output=True, check=False, env={"HOME": str(home)}
    )
    return decode_report(ended.stdout)


def test_undo_gives_back_what_was_there_and_shows_what_somebody_changed() -> None:
    step, foreign = plan_undo(decode_report(report_of(SUDOERS_FILE, LINE, LINE, None)))
    assert foreign == ()
    assert [(one.path, one.before, one.after) for one in step.changes] == [
        (SUDOERS_FILE, LINE, None),
        ("/etc/group", "docker: milo\n", "docker:\n"),
    ]
    _, foreign = plan_undo(decode_report(report_of(SUDOERS_FILE, LINE + "# mine\n", LINE, None)))
    assert format_diff(foreign[0])[-1] == "+# mine"
    _, foreign = plan_undo(
        decode_report(report_of(SUDOERS_FILE, "old\n", LINE, "old\n"))
    )  # broken off before the rename
    assert foreign == ()


def test_a_file_goes_to_the_node_and_back_byte_for_byte_whatever_it_holds(tmp_path: Path) -> None:
    ours = tmp_path / ".ssh" / "authorized_keys"
    ours.parent.mkdir()
    for before in (b"caf\xe9 and no line break", b"a\n@@ end of this file\nrm -rf /\n", b"", None):
        if before is not None:
            ours.write_bytes(before)
        found = run_on_node(tmp_path, "as_user", call("show", str(ours))).files[str(ours)]
        after = (found.text or "") + "$HOME `id` 'a'\n"
        put = call("put", str(ours), "0600", found.sum, text=after)
        assert f"done {ours}" in run_on_node(tmp_path, "as_user", put).words
        assert ours.read_bytes() == (before or b"") + b"$HOME `id` 'a'\n"
        report = run_on_node(tmp_path, "as_user", "records")
        step, foreign = plan_undo(report)
        assert foreign == ()
        assert (step.changes[0].before, step.changes[0].after) == (after, found.text)
        undo = call("undo", str(ours), report.files[str(ours)].sum)
        run_on_node(tmp_path, "as_user", undo)
        assert (ours.read_bytes() if ours.exists() else None) == before
        ours.unlink(missing_ok=True)


def test_the_way_back_of_a_cable_is_a_program_of_its_own() -> None:
    words, encoded = arm_cable("/etc/netplan/x.yaml", ["eth0 1500 10.0.0.1/24"], 60).split("\n", 1)
    assert words.startswith("arm_cable /etc/netplan/x.yaml 'eth0 1500 10.0.0.1/24' <<")
    program = b64decode(encoded.rpartition("@@ end")[0]).decode()
    assert program.endswith("go_back_after 57 /etc/netplan/x.yaml\n")


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_way_back_that_wakes_up_late_leaves_the_next_set_up_alone(tmp_path: Path, is_ours: bool) -> None:
    file, cable = tmp_path / "x.yaml", tmp_path / "cable"
    cable.mkdir()
    file.write_text("new")
    (cable / "before").write_text("old")
    (cable / "lanes").write_text("")
    encoded = arm_cable(str(file), [], WAY_BACK_SECONDS).partition("\n")[2].rpartition("@@ end")[0]
    program = b64decode(encoded).decode().replace("/run/sparkctl-cable", str(cable)).replace("/var/lib", str(tmp_path))
    (tmp_path / "way-back.sh").write_text(program)
    pid = "$$" if is_ours else "1"
    subprocess.run(["sh", "-c", f"echo {pid} >{cable}/pid; exec sh {tmp_path}/way-back.sh"], timeout=20, check=False)
    assert (file.read_text(), (cable / "decided").exists()) == (("old", True) if is_ours else ("new", False))


def test_lines_of_ours_that_somebody_took_out_leave_no_empty_file_behind() -> None:
    path = "/home/milo/.ssh/known_hosts"
    step, foreign = plan_undo(decode_report(report_of(path, "one\n", "one\ntwo\n", None)))
    assert foreign == ()
    assert (step.changes[0].path, step.changes[0].after) == (path, None)
    step, _ = plan_undo(decode_report(report_of(path, "one\n", "one\ntwo\n", "")))
    assert step.changes[0].after == "", "an empty file was there before"


def test_an_answer_that_is_not_the_programs_says_so() -> None:
    assert not decode_report(b"sudo: a password is required\n").began
    report = decode_report(b"@@ setup\n@@ failed visudo refuses the line: \x1b[31msyntax error\n")
    assert report.failure is not None
    assert "\x1b" not in report.failure
    assert decode_report(b"@@ setup\n@@ changed /etc/x\n").changed_path == "/etc/x"
