"""The lock's script in real shells: who excludes whom, what lies in its way, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sparkctl.commands import node_lock
from sparkctl.context import CommandContext
from sparkctl.errors import NodeError, NodeStarved, OperationRefused
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import Node, NodeName
from sparkctl.node import build_script_command, node_inspection, read_node_script
from sparkctl.transport.node_session import NodeSession
from sparkctl.transport.ssh.login_shell import build_remote_command

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
# What a sparkctl before this lock runs, word for word.
OLDER = """umask 0
if [ -e "$1" ] && ! [ -O "$1" ]; then exec 9<"$1"; else exec 9>>"$1"; fi
if ! flock -n 9; then echo "@@ taken"; cat "$1"; echo; exit 75; fi
printf %s "$2" | dd of="$1" conv=nocreat 2>/dev/null
echo "@@ held"
while [ -n "$(timeout 30 dd bs=1 count=1 2>/dev/null)" ]; do :; done
"""
SHELLS = [one for one in ("dash", "bash", "busybox sh") if shutil.which(one.split()[0])]


class LockProcess:
    """One attempt to hold the lock; it is ended after a minute, so that no test waits for ever."""

    def __init__(self, argv: Sequence[str], user: int | None = None) -> None:
        self.process = subprocess.Popen(
            ["timeout", "60", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, bufsize=0
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


Take = Callable[..., LockProcess]


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the lock is on, and ``tmp``, a sticky directory, where the older one would be; open to every user."""
    with TemporaryDirectory(prefix="sparkctl-lock-") as directory:
        found = Path(directory)
        found.chmod(0o755)
        (found / "run").mkdir()
        (found / "tmp").mkdir()
        (found / "tmp").chmod(0o1777)
        yield found


@pytest.fixture
def take(place: Path) -> Iterator[Take]:
    """Start the lock's script, or an ``older`` one."""
    started: list[LockProcess] = []

    def begin(
        token: str = "a1", shell: str = "sh", *, older: bool = False, user: int | None = None, on: Path = place
    ) -> LockProcess:
        about = json.dumps({"operator": f"{token}@laptop", "doing": "testing", "since": 1, "token": token})
        old = str(on / "tmp/lock")
        words = [old, about] if older else [str(on / "run"), old, token, about, node_lock._HOLD_SCRIPT]
        script = OLDER if older else node_lock._LOCK_SCRIPT
        started.append(LockProcess([*shell.split(), "-c", script, "sparkctl-lock", *words], user))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def wait_for_answer(one: LockProcess, wanted: str, within: float = 20.0) -> None:
    """Wait for this answer."""
    end = time.monotonic() + within
    while (said := one.line()) != wanted:
        assert said.startswith("@@ beside"), said
        assert time.monotonic() < end


@pytest.mark.parametrize("shell", SHELLS)
def test_one_at_a_time_and_the_second_is_told_who(take: Take, shell: str) -> None:
    first = take("a1", shell)
    assert first.line() == "@@ held"
    second = take("b2", shell)
    assert second.line() == "@@ taken"
    assert node_lock.parse_lock_holder(second.line()) == node_lock.LockHolder("a1@laptop", "testing", 1.0, "a1")
    assert second.process.wait(10) == 75
    first.end()
    assert take("b2", shell).line() == "@@ held"


@pytest.mark.parametrize("login", ["tcsh", "fish", "rbash", "zsh", "nu"])
def test_it_excludes_under_any_login_shell(place: Path, login: str) -> None:
    if shutil.which(login) is None:
        pytest.skip(f"{login} is not installed")
    both: list[LockProcess] = []
    for token, answer in (("a1", "@@ held"), ("b2", "@@ taken")):
        about = json.dumps({"operator": f"it's {token}@laptop", "doing": "testing", "since": 1, "token": token})
        words = [str(place / "run"), str(place / "tmp/lock"), token, about, node_lock._HOLD_SCRIPT]
        line, script = build_remote_command(["sh", "-c", node_lock._LOCK_SCRIPT, "sparkctl-lock", *words])
        both.append(LockProcess([login, "-c", line]))
        assert both[-1].process.stdin is not None
        both[-1].process.stdin.write(script)
        assert both[-1].line() == "@@ sparkctl runs"
        assert both[-1].line() == answer
    assert node_lock.parse_lock_holder(both[1].line()).operator == "it's a1@laptop"
    for one in both:
        one.end()


@pytest.mark.skipif(not IS_ROOT, reason="needs two accounts")
@pytest.mark.parametrize("first_is_root", [True, False])
def test_two_operators_with_two_accounts_exclude_each_other(take: Take, first_is_root: bool) -> None:
    accounts = (None, NOBODY) if first_is_root else (NOBODY, None)
    first = take("a1", user=accounts[0])
    assert first.line() == "@@ held"
    second = take("b2", user=accounts[1])
    assert second.line() == "@@ taken"
    assert node_lock.parse_lock_holder(second.line()).operator == "a1@laptop"
    first.end()
    assert take("b2", user=accounts[1]).line() == "@@ held"


@pytest.mark.parametrize("older_first", [True, False])
def test_an_older_sparkctl_is_excluded_too_and_both_are_told_who(take: Take, older_first: bool) -> None:
    first = take("a1", older=older_first)
    assert first.line() == "@@ held"
    second = take("b2", older=not older_first)
    assert second.line() == ("@@ taken before" if older_first else "@@ taken")
    assert node_lock.parse_lock_holder(second.line()).operator == "a1@laptop"


def put_fifo(path: Path, _other: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path, _other: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


PUT: dict[str, Callable[[Path, Path], object]] = {
    "fifo": put_fifo,
    "symbolic link": lambda path, other: path.symlink_to(other),
    "dangling link": lambda path, other: path.symlink_to(other.with_name("none")),
    "hard link": lambda path, other: path.hardlink_to(other),
    "loop": lambda path, _: path.symlink_to(path),
    "directory": lambda path, _: path.mkdir(),
    "socket": put_socket,
}


@pytest.mark.parametrize("kind", PUT)
def test_what_another_user_puts_there_neither_hangs_it_nor_is_written_through(
    place: Path, take: Take, kind: str
) -> None:
    other = place / "authorized_keys"
    other.write_text("ssh-ed25519 AAAA\n")
    PUT[kind](place / "tmp/lock", other)
    before = sorted((place / "tmp").iterdir())
    first = take("a1")
    said = first.line()
    assert said.startswith("@@ beside ")
    assert said.endswith(" of root" if IS_ROOT else f" of {Path.home().owner()}")
    assert first.line() == "@@ held"
    assert other.read_text() == "ssh-ed25519 AAAA\n"
    assert not other.with_name("none").exists()
    assert sorted((place / "tmp").iterdir()) == before
    second = take("b2")
    wait_for_answer(second, "@@ taken")
    assert node_lock.parse_lock_holder(second.line()).operator == "a1@laptop", "it locks all the same"


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a file to another user")
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_our_own_lock_is_ours_where_its_file_is_another_users(place: Path, take: Take, mode: int) -> None:
    file = place / "tmp/lock"
    file.touch()
    file.chmod(mode)
    first = take("a1", user=NOBODY)
    wait_for_answer(first, "@@ held")
    assert file.read_text() == ""
    began = time.monotonic()
    wait_for_answer(take("a1", user=NOBODY), "@@ held")
    assert time.monotonic() - began < 15, "a lost connection's process is ended, not waited for"
    assert first.process.wait(10) != 0
    wait_for_answer(second := take("b2", user=NOBODY), "@@ taken")
    assert node_lock.parse_lock_holder(second.line()).operator == "a1@laptop"


@contextmanager
def hold_foreign_lock(directory: Path) -> Iterator[None]:
    """Hold the lock on a directory without a word of who does."""
    squatter = subprocess.Popen(
        ["sh", "-c", 'exec 8<"$1"; flock 8; echo held; exec sleep 60', "squatter", str(directory)],
        stdout=subprocess.PIPE,
    )
    assert squatter.stdout
    assert squatter.stdout.readline() == b"held\n"
    try:
        yield
    finally:
        squatter.kill()
        squatter.wait(10)
        squatter.stdout.close()


def test_another_programs_lock_is_waited_out_for_an_instant_and_then_named(place: Path, take: Take) -> None:
    instant = subprocess.Popen(["flock", "-s", str(place / "run"), "sleep", "0.2"])
    time.sleep(0.05)
    one = take("a1")
    assert one.line() == "@@ held", "as of a status that looks"
    instant.wait(10)
    one.end()
    with hold_foreign_lock(place / "run"):
        one = take("b2")
        assert (one.line(), one.line()) == ("@@ taken", "")


def test_a_lock_of_another_place_is_neither_named_nor_ended(place: Path, take: Take) -> None:
    """A container, or a node of the lab, has a /run of its own, and processes that are seen from outside."""
    other = place / "container"
    for name in ("run", "tmp"):
        (other / name).mkdir(parents=True)
    apart = take("a1", on=other)
    wait_for_answer(apart, "@@ held")
    with hold_foreign_lock(place / "run"):
        one = take("a1")
        assert (one.line(), one.line()) == ("@@ taken", "")
        assert apart.process.poll() is None


@pytest.fixture
async def session() -> NodeSession:
    return NodeSession(Node(name=NodeName("here"), host="local"))


def make_context(tmp_path: Path) -> CommandContext:
    return CommandContext(history=OperationHistory(tmp_path / "state"), operator="milo@laptop")


async def test_a_lock_that_does_not_answer_is_said_and_not_waited_for(
    place: Path, session: NodeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(place / "fifo")  # as if it were swapped in between the look and the opening
    monkeypatch.setattr(node_lock, "LOCK_DIRECTORY", str(place / "fifo"))
    monkeypatch.setattr(node_lock, "OLD_LOCK_FILE", str(place / "tmp/lock"))
    monkeypatch.setattr(node_lock, "_ANSWER_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(NodeStarved, match="here did not report within"):
        await node_lock.acquire_node_lock(session, make_context(place), "testing", lambda words: None)


async def test_a_failing_lock_script_is_not_read_as_a_lock(
    place: Path, session: NodeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_lock, "OLD_LOCK_FILE", str(place / "tmp/lock"))
    monkeypatch.setattr(node_lock, "LOCK_DIRECTORY", str(place / "none"))
    with pytest.raises(NodeError, match="did not report whether another operator is changing it"):
        await node_lock.acquire_node_lock(session, make_context(place), "testing", lambda words: None)
    monkeypatch.setattr(node_lock, "LOCK_DIRECTORY", str(place / "run"))
    (place / "bin").mkdir()
    for name in ("sh", "stat"):
        (place / "bin" / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(place / "bin"))
    with pytest.raises(OperationRefused, match="no flock"):
        await node_lock.acquire_node_lock(session, make_context(place), "testing", lambda words: None)


async def test_what_lies_where_an_older_one_looks_is_told_once(
    place: Path, session: NodeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "tmp/lock").mkdir()
    monkeypatch.setattr(node_lock, "OLD_LOCK_FILE", str(place / "tmp/lock"))
    monkeypatch.setattr(node_lock, "LOCK_DIRECTORY", str(place / "run"))
    lines: list[str] = []
    one = node_lock.HeldNodeLock(session, make_context(place), "testing", lines.append)
    await one.acquire()
    [words] = lines
    assert "is a directory of " in words
    assert "sudo rm -r" in words
    with pytest.raises(node_lock.LockConflict, match=r"another sparkctl of yours .milo@laptop. is testing") as caught:
        await node_lock.HeldNodeLock(session, make_context(place), "testing", lines.append).acquire()
    assert caught.value.holder.operator == "milo@laptop"
    assert "If its connection was lost, the lock is free within 30 s" in (caught.value.hint or "")
    await one.release()


def test_a_look_tells_whether_it_is_held() -> None:
    """The look's own place, /run, held by a process that /proc/locks shows as ended: as in another PID namespace."""

    def is_held() -> bool:
        done = subprocess.run(
            build_script_command("journal"),
            input=read_node_script("node_inspection.sh"),
            capture_output=True,
            timeout=30,
        )
        found = node_inspection.decode_inspection(done.stdout).journal
        assert found is not None
        return found.is_held

    holder = subprocess.Popen(
        ["sh", "-c", "exec 8</run; flock -w 20 8; echo held; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    assert is_held()
    holder.stdin.close()
    holder.wait(10)
    holder.stdout.close()
    assert not is_held()


NOW = (1_800_000_000.0, 5_000.0)


@pytest.mark.parametrize(
    ("unix", "monotonic", "is_doubtful"),
    [
        (0.0, 0.0, False),
        (25.0, 25.0, False),
        (25.1, 25.1, True),
        (25.1, 0.0, True),  # the machine slept: its monotonic clock stood still
        (0.0, 25.1, True),  # the unix clock was set back
        (-3600.0, 1.0, False),
    ],
)
def test_after_a_silence_the_lock_may_be_anothers_by_either_clock(
    unix: float, monotonic: float, is_doubtful: bool
) -> None:
    assert node_lock.is_lock_doubtful((NOW[0] + unix, NOW[1] + monotonic), NOW) is is_doubtful


@pytest.mark.parametrize(
    ("token", "waited", "is_ours"),
    [("mine", 0.0, True), ("mine", 45.0, True), ("mine", 45.1, False), ("other", 0.0, False), ("", 0.0, False)],
)
def test_only_our_own_lock_on_a_dead_connection_is_waited_for(token: str, waited: float, is_ours: bool) -> None:
    holder = node_lock.LockHolder("milo@laptop", "starting qwen36", None, token)
    assert node_lock.is_own_leftover(holder, "mine", waited) is is_ours
