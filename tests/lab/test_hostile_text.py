"""Text from profiles, engines and nodes is data: to shells, to terminals, to files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import (
    assert_ended,
    list_containers,
    list_own_containers,
    parse_numbers,
)
from tests.lab.support.sparkctl_process import Sparkctl

NASTY = "$(touch /tmp/pwned) `touch /tmp/pwned`; \"double\" 'single' \\ & | > < * ? ~ # ! é"
LEADING = "-rf --help"


def test_shell_metacharacters_in_every_field_arrive_as_they_are(spark1: LabNode, sparkctl: Sparkctl) -> None:
    mount = "/home/milo/$(touch pwned) ;`x` 'y'"
    profile = sparkctl.profile(
        title=NASTY,
        notes=NASTY,
        model={"path": f"/models/{NASTY}", "served_name": NASTY},
        args={"nasty": NASTY, "several": [NASTY, LEADING], "as-json": {"key": NASTY}},
        env={"NASTY": NASTY, "LEADING": LEADING},
        mounts=[f"{mount}:/data:ro"],
        start={"drop_caches": False, "prompt": NASTY},
    )
    line = sparkctl("up", profile, "--node", "spark1", "--dry-run", "--format", "docker")
    assert line.code == 0, line
    assert_ended(sparkctl("up", profile, "--node", "spark1", "--json"), 0, "ready")
    made = spark1.inspect_container(list_own_containers(spark1)[0])
    command = made["Config"]["Cmd"]
    assert command.count(NASTY) >= 3, command
    assert f"/models/{NASTY}" in command
    assert LEADING in command
    assert f"NASTY={NASTY}" in made["Config"]["Env"]
    assert made["Mounts"][0]["Source"] == mount
    assert sparkctl("status", "--node", "spark1").code == 0
    assert sparkctl("logs", profile, "--node", "spark1").code == 0
    assert_ended(sparkctl("down", profile, "--node", "spark1", "--json"), 0, "done")
    pwned = "ls /tmp/pwned /home/milo/pwned /pwned /root/pwned 2>/dev/null; true"
    assert spark1.sh("sh", "-c", pwned) == ""
    assert not Path("/tmp/pwned").exists()


@pytest.mark.parametrize("field", ["name", "image", "engine", "container"])
def test_a_field_that_cannot_hold_them_is_refused_as_a_file_fault(
    spark1: LabNode, sparkctl: Sparkctl, field: str
) -> None:
    value = {"name": NASTY, "network": "host"} if field == "container" else NASTY
    path = sparkctl.home / f"config/sparkctl/profiles/{sparkctl.profile()}.yaml"
    sparkctl.profile("good")
    text = path.read_text()
    path.write_text(json.dumps({**json.loads(text), field: value}))
    ran = sparkctl("up", "tiny", "--node", "spark1")
    assert ran.code in (2, 6), ran
    assert "Traceback" not in ran.err
    assert list_containers(spark1) == []
    assert not Path("/tmp/pwned").exists()


def test_a_line_of_a_megabyte(spark1: LabNode, sparkctl: Sparkctl) -> None:
    profile = sparkctl.profile(env={"LAB_BIG_LINE": str(1 << 20), "LAB_LINES": "10"})
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    logs = sparkctl("logs", profile, "--node", "spark1")
    assert parse_numbers(logs.out) == list(range(1, 11))
    big = [line for line in logs.out.splitlines() if "xxxx" in line]
    assert len(big) == 1, [len(line) for line in big]  # one line, however Docker has split it
    assert "big x" in big[0]
    assert "x end" in big[0]


def test_invalid_utf8_costs_neither_the_connection_nor_a_line(spark1: LabNode, sparkctl: Sparkctl) -> None:
    bad = [
        b"begin \xff\xfe\x80 end",
        b"half of an emoji \xf0\x9f\x98",
        b"lone surrogate \xed\xa0\x80",
        b"overlong \xc0\xaf",
    ]
    profile = sparkctl.profile(env={"LAB_SAY": escape_lines(bad), "LAB_LINES": "10"})
    ran = sparkctl("up", profile, "--node", "spark1", "--json")
    assert_ended(ran, 0, "ready")
    logs = sparkctl("logs", profile, "--node", "spark1")
    assert parse_numbers(logs.out) == list(range(1, 11)), logs
    assert "begin \N{REPLACEMENT CHARACTER}" in logs.out
    assert "half of an emoji" in logs.out
    logs.stdout.decode()  # strictly


PROBES = {
    "clipboard": b"\x1b]52;c;aGFja2Vk\x07",
    "title": b"\x1b]0;owned\x07",
    "clear screen": b"\x1b[2J\x1b[H",
    "cursor report": b"\x1b[6n",
    "device control string": b'\x1bP$q"p\x1b\\',
    "C1 control as UTF-8": b"\xc2\x9b2J",
    "C1 control as a byte": b"\x9b2J\x9d0;owned\x9c",
    "bidi override": "\u202egnp.exe\u202c".encode(),
    "hyperlink": b"\x1b]8;;file:///etc/passwd\x1b\\click\x1b]8;;\x1b\\",
    "bell, backspace, NUL, shift out": b"\x07\x08\x08\x00\x0e\x0f",
    "full reset and an unfinished string": b"\x1bc\x1b_Gf=100;\x1b]0;never ends",
}
OWN = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[[0-9]*[KAG]|\x1b\[\?25[lh]|\r")  # colour, redrawing its own line, the cursor
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]")


def escape_lines(lines: list[bytes]) -> str:
    """Return lines as LAB_SAY takes them."""
    return "\\n".join(line.decode("latin-1").encode("unicode_escape").decode() for line in lines)


def test_not_one_control_byte_from_a_log_reaches_anything(spark1: LabNode, sparkctl: Sparkctl) -> None:
    lines = [b"probe %d %s tail" % (number, probe) for number, probe in enumerate(PROBES.values())]
    say = escape_lines([*lines, *(b"RuntimeError: error " + probe for probe in PROBES.values())])
    failing = sparkctl.profile("failing", env={"LAB_SAY": say, "LAB_END": "exit:3"})
    good = sparkctl.profile("good", env={"LAB_SAY": say}, port=8103)
    commands = [
        ("up", failing, "--node", "spark1"),
        ("up", failing, "--node", "spark1", "--json"),
        ("up", good, "--node", "spark1"),
        ("logs", good, "--node", "spark1"),
        ("logs", good, "--node", "spark1", "--json"),
        ("logs", failing, "--node", "spark1"),
        ("status", "--node", "spark1"),
        ("status", "--node", "spark1", "--json"),
        ("down", "--all", "--node", "spark1"),
        ("logs", good),
    ]
    for command in commands:
        ran = sparkctl(*command)
        for stream in (ran.stdout, ran.stderr):
            assert not CONTROLS.search(stream.decode()), (command, ran)
        if command[0] == "logs":
            assert ran.out.count("probe") >= len(PROBES), ran  # made harmless, not left out


def test_not_one_control_byte_reaches_a_terminal(spark1: LabNode, sparkctl: Sparkctl) -> None:
    lines = [b"probe %d %s tail" % (number, probe) for number, probe in enumerate(PROBES.values())]
    say = escape_lines([*lines, *(b"RuntimeError: error " + probe for probe in PROBES.values())])
    failing = sparkctl.profile("failing", env={"LAB_SAY": say, "LAB_END": "exit:3"})
    commands = [
        ("up", failing, "--node", "spark1"),
        ("logs", failing, "--node", "spark1"),
        ("status", "--node", "spark1"),
    ]
    for command in commands:
        _, seen = sparkctl.on_terminal(*command)
        assert seen, command
        for name, probe in PROBES.items():
            assert probe not in seen, (command, name, seen)
        left = OWN.sub(b"", seen).decode()
        assert not CONTROLS.search(left.replace("\x1b[?2026h", "")), (command, left)


CANARIES = {"HF_TOKEN": "hf_canaryCANARYcanary0123456789", "SPEECH_API_KEY": "plain-canary-98765"}


@pytest.mark.parametrize("end", ["ready", "exit:3"])
def test_a_secret_appears_nowhere(spark1: LabNode, sparkctl: Sparkctl, end: str) -> None:
    env = {name: f"${{{name}}}" for name in CANARIES}
    profile = sparkctl.profile(env={**env, "LAB_SHOW": " ".join(CANARIES), "LAB_END": end})
    commands = [
        ("up", profile, "--node", "spark1", "--dry-run", "--format", "docker"),
        ("up", profile, "--node", "spark1", "--dry-run", "--json"),
        ("up", profile, "--node", "spark1"),
        ("up", profile, "--node", "spark1", "--replace", "--json"),
        ("logs", profile, "--node", "spark1"),
        ("logs", profile, "--node", "spark1", "--json"),
        ("status", "--node", "spark1", "--json"),
        ("profiles", "show", profile),
        ("down", profile, "--node", "spark1", "--json"),
        ("logs", profile),
        ("up", profile, "--node", "spark9"),
    ]
    for index, command in enumerate(commands):
        ran = sparkctl(*command, env=CANARIES)
        for canary in CANARIES.values():
            assert canary.encode() not in ran.stdout + ran.stderr, (command, ran)
        if index == 3:
            got = spark1.inspect_container(list_own_containers(spark1)[0])["Config"]["Env"]
            assert f"HF_TOKEN={CANARIES['HF_TOKEN']}" in got  # the engine did get it
    files = sparkctl.saved()
    assert files
    for path in files:
        for canary in CANARIES.values():
            assert canary not in path.read_text(errors="replace"), path
    for path in sparkctl.saved():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_foreign_container_cannot_speak_through_status(spark1: LabNode, sparkctl: Sparkctl) -> None:
    label = "com.docker.compose.project=\x1b]0;owned\x07"
    spark1.docker("run", "-d", "--name", "speaker", "--label", label, "--network", "host", "-e", "LAB_END=hang", IMAGE)
    for words in (("status", "--node", "spark1"), ("status", "--node", "spark1", "--json")):
        ran = sparkctl(*words)
        assert ran.code == 0, ran
        assert not CONTROLS.search(ran.stdout.decode() + ran.stderr.decode()), ran
