"""The guard as a process: how it comes up, outlives us and ends; whom it listens to."""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparkctl.model.guard_state import GuardProcess, GuardRefusal, GuardState
from sparkctl.model.launch_plan import REQUEST_MARK
from sparkctl.model.text.units import GIB, MIB
from sparkctl.monitor.guard_client import decode_guard_start
from sparkctl.node import bootstrap
from sparkctl.node.guard.container_watch import CLIENT_SILENCE_SECONDS, ContainerWatch
from sparkctl.node.guard.daemon import LOADING_MARK, WAITING_PREFIX
from sparkctl.node.guard.guard_sockets import GuardConnection
from tests.unit.node.agent_process import list_pythons
from tests.unit.node.guard.guard_process import LOADING, SERVING, THIRD, GuardedMachine, run_guard, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")
SOURCES = [Path(bootstrap.__file__).parent / f"{name.replace('.', '/')}.py" for name in bootstrap.GUARD_MODULES]


def test_everything_of_the_guard_travels() -> None:
    here = set(Path(bootstrap.__file__).parent.glob("guard/[!_]*.py"))
    beside = {Path(bootstrap.__file__).with_name(name) for name in ("kernel_log.py", "agent.py")}
    assert here | beside == set(SOURCES)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_what_travels_is_python_3_8_and_imports_the_standard_library_and_what_travels_with_it(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    own = {f"sparkctl.node.{name}" for name in bootstrap.GUARD_MODULES}
    assert {name for name in imported - own if name.split(".")[0] not in sys.stdlib_module_names} == set()
    assert "subprocess" not in imported


@pytest.mark.parametrize("python", list_pythons())
def test_it_comes_up_and_says_what_it_knows(python: str, tmp_path: Path) -> None:
    with run_guard(tmp_path, python=python) as machine:
        assert not machine.said.already
        state = machine.client().state()
        assert (state.pid, state.watches, state.events, state.receipts) == (machine.said.pid, (), (), ())
        assert (state.available, state.swap_free) == (60 * GIB, 16 * GIB)
        wait_until("Docker to answer", lambda: machine.client().state().docker)
        assert oct(Path(machine.said.socket).stat().st_mode & 0o777) == "0o600"
        assert oct((tmp_path / "g").stat().st_mode & 0o777) == "0o700"


def test_it_goes_on_without_its_starter_and_its_session(tmp_path: Path) -> None:
    with run_guard(tmp_path, start=False) as machine:
        start = bootstrap.build_guard_program(root=str(machine.proc.root), nvml=b"", options=machine.options)
        shell = subprocess.Popen(
            ["sh", "-c", shlex.join(start.argv)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert shell.stdin
        assert shell.stdout
        assert shell.stderr
        shell.stdin.write(start.stdin)
        shell.stdin.flush()  # and stays open, as over a connection
        said = decode_guard_start(shell.stdout.readline())
        assert isinstance(said, GuardProcess)
        assert said.pid
        machine.said = said
        machine.pids.add(said.pid)
        assert shell.stdout.read() == b"", "it holds no stream of ours"
        assert shell.stderr.read() == b""
        assert shell.wait(5) == 0
        shell.stdin.close()
        shell.stdout.close()
        shell.stderr.close()
        assert os.getsid(said.pid) == said.pid != shell.pid
        os.kill(said.pid, signal.SIGHUP)
        machine.client().watch()
        machine.proc.set(0.3)
        assert [container for _, container in machine.killed()] == [LOADING]


def test_a_second_one_says_already_and_two_at_once_are_one(tmp_path: Path) -> None:
    with run_guard(tmp_path, start=False) as machine:
        start = bootstrap.build_guard_program(root=str(machine.proc.root), nvml=b"", options=machine.options)
        three = [
            subprocess.Popen(start.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(3)
        ]
        said = [decode_guard_start(one.communicate(start.stdin, timeout=20)[0]) for one in three]
        assert all(isinstance(one, GuardProcess) for one in said), said
        started = [one for one in said if isinstance(one, GuardProcess)]
        machine.pids.update(one.pid for one in started if one.pid)
        assert sorted(one.already for one in started) == [False, True, True]
        assert len({(one.pid, one.socket) for one in started}) == 1


def test_a_directory_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    with run_guard(tmp_path, start=False) as machine:
        (tmp_path / "g").mkdir(mode=0o755)
        said = machine.start()
        assert isinstance(said, GuardRefusal)
        assert f"{tmp_path}/g" in said.what
        (tmp_path / "g").rmdir()
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / "g").symlink_to(tmp_path / "elsewhere")
        assert isinstance(machine.start(), GuardRefusal)
        (tmp_path / "g").unlink()
        if os.geteuid() == 0:
            (tmp_path / "g").mkdir(mode=0o700)
            os.chown(tmp_path / "g", 12345, 12345)
            assert isinstance(machine.start(), GuardRefusal)
            (tmp_path / "g").rmdir()
        assert isinstance(machine.start(), GuardProcess)


def test_it_ends_when_nobody_has_had_a_watch_for_a_while(tmp_path: Path) -> None:
    with run_guard(tmp_path, options=["--linger", "1"]) as machine:
        client = machine.client()
        client.watch(limit=1.5)
        time.sleep(1.2)
        assert machine.lives, "a watch keeps it"
        wait_until("the end of the watch", lambda: client.state().watches == ())
        time.sleep(2.2)
        assert machine.lives, "and so does a client: one that is about to say what is to be watched"
        assert [event.why for event in client.events] == ["its time limit of 2 s"]
        client.close()
        wait_until("the guard to end", lambda: not machine.lives)
        assert not Path(machine.said.socket).exists()
        assert isinstance(machine.start(), GuardProcess), "and another one can be had"


def test_a_watch_ends_as_it_was_told_or_as_docker_tells(tmp_path: Path) -> None:
    with run_guard(tmp_path, options=["--ask", "0.2"]) as machine:
        client = machine.client()
        states = machine.docker.states
        states[LOADING] = {"Status": "created", "Running": False}
        state = client.watch()
        assert [(one.container, one.role, one.level, one.weights) for one in state.watches] == [
            (LOADING, "loading", "calm", False)]  # fmt: skip
        client.watch(SERVING, "serving", instance="other", profile=None)
        wait_until("questions", lambda: machine.docker.questions(LOADING) > 1 < machine.docker.questions(SERVING))
        assert len(client.state().watches) == 2, "one that is only created has not ended"
        assert client.state().docker is True
        state = client.watch(role="serving", floor=9)
        assert [(one.role, one.floor) for one in state.watches if one.container == LOADING] == [("serving", 9)]
        states[LOADING] = {"Status": "exited", "Running": False, "ExitCode": 3}
        wait_until("the first to end", lambda: len(client.state().watches) == 1)
        del states[SERVING]
        wait_until("the second to end", lambda: client.state().watches == ())
        assert [event.why for event in client.events] == [
            "the container ended with exit code 3",
            "the container is gone",
        ]
        machine.docker.runs(LOADING)
        client.watch()
        after = client.ask(do="unwatch", container=LOADING, why="ready")
        assert isinstance(after, GuardState)
        assert (after.watches, after.events[-1].why) == ((), "ready")
        assert isinstance(client.ask(do="unwatch", container=LOADING, why="ready"), GuardState), "it may have ended"


def test_a_docker_that_does_not_answer_ends_nothing(tmp_path: Path) -> None:
    with run_guard(tmp_path, options=["--ask", "0.2"]) as machine:
        client = machine.client()
        machine.docker.is_mute = True
        client.watch()
        wait_until("Docker to be known as silent", lambda: client.state().docker is False)
        machine.docker.stop()
        time.sleep(0.5)
        assert len(client.state().watches) == 1
        machine.docker.is_mute = False
        machine.docker.start()
        wait_until("Docker to be back", lambda: client.state().docker)


def test_it_ends_when_the_engine_is_ready_and_nobody_is_attached(tmp_path: Path) -> None:
    with run_guard(tmp_path, options=["--ask", "0.2"]) as machine, socket.create_server(("127.0.0.1", 0)) as engine:
        engine.settimeout(8)
        client, other = machine.client(), machine.client()
        other.watch(SERVING)
        client.watch(port=engine.getsockname()[1], health="/health")
        engine.settimeout(1.5)
        with pytest.raises(TimeoutError):
            engine.accept()
        engine.settimeout(8)
        client.close()
        path = f"/health?{REQUEST_MARK}".encode()
        for answer in (b"503 Loading", b"200 OK", b"404 With a query", b"200 OK", b"204 No Content"):
            connection, _ = engine.accept()
            with connection:
                assert connection.recv(999).startswith(b"GET " + path + b" HTTP/1.1\r\n")
                path = b"/health" if answer.startswith(b"404") else path
                connection.sendall(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n")
        wait_until("the end of the watch", lambda: len(other.state().watches) == 1)
        assert other.state().events[-1].why == "it is ready, and nobody is attached", "another one's client is nobody"


def test_downloads_are_told_while_an_engine_loads_weights_also_when_nobody_is_attached(tmp_path: Path) -> None:
    memory, public = tmp_path / "shm", tmp_path / "public"
    own, link = memory / f"{WAITING_PREFIX}1", memory / f"{WAITING_PREFIX}2"
    own.mkdir(parents=True)
    public.mkdir()
    link.symlink_to(public)
    mark = own / LOADING_MARK
    with run_guard(tmp_path, options=["--waiting", str(memory)]) as machine:
        client, other = machine.client(), machine.client()
        other.watch(SERVING, "serving", instance="other")
        client.watch(port=9, health="/health")
        client.ask(do="phase", container=LOADING, weights=False)
        time.sleep(1.5)
        assert not mark.exists(), "its client says that it does not load weights now"
        client.ask(do="phase", container=LOADING, weights=True)
        wait_until("the mark", mark.exists)
        client.ask(do="phase", container=LOADING, weights=False)
        client.close()
        mark.unlink()
        wait_until("the mark of an engine that nobody watches", mark.exists)
        os.utime(mark, (1.0, 1.0))
        wait_until("it to be touched again", lambda: mark.stat().st_mtime > 1.0)
        assert not list(public.iterdir()), "a link is not followed"


def test_a_client_that_is_silent_for_long_looks_after_nothing() -> None:
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

        time = monotonic

    clock = Clock()
    said = {"container": SERVING, "instance": "q", "role": "loading", "floor": 1, "limit": 1}
    watch = ContainerWatch(said, clock)
    assert not watch.is_attended()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch.client = GuardConnection(ours)
        watch.client.heard_at = clock.now
        clock.now += CLIENT_SILENCE_SECONDS - 1
        assert watch.is_attended()
        clock.now += 2  # the laptop is gone, and the node does not know it yet
        assert not watch.is_attended()


@pytest.mark.parametrize(
    ("command", "what"),
    [(b"GET / HTTP/1.1", "not JSON"), (b"[1]", "object"), (b"[" * 60_000, "not JSON"), (b'{"do":"sing"}', "sing"),
     (b'{"do":"watch","container":"x"}', "64 hex"), (b'{"do":"receipt","container":"../../etc/pw"}', "12 hex"),
     (b'{"do":"phase","container":"ab","weights":true}', "no such watch"), (b"\xff\xfe", "JSON"),
     (b'{"do":"watch","container":"%s","instance":"q","role":"loading","floor":NaN,"limit":1}' % (b"a" * 64), "floor"),
     (b'{"do":"watch","container":"%s","instance":"q","role":"loading","floor":1,"limit":true}' % (b"a" * 64), "limit"),
     (b'{"do":"watch","container":"%s","instance":"q","role":"eating","floor":1,"limit":1}' % (b"a" * 64), "role"),
     (b'{"do":"watch","container":"%s","instance":"q","role":"loading","floor":1,"limit":1,"health":"/ x\\r\\n"}'
      % (b"a" * 64), "health")],
)  # fmt: skip
def test_what_is_no_command_is_refused_and_harms_nobody(command: bytes, what: str, machine: GuardedMachine) -> None:
    client = machine.client()
    client.socket.sendall(command + b"\n")
    said = client.read()
    assert isinstance(said, GuardRefusal)
    assert what in said.what
    assert client.state().watches == ()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with run_guard(tmp_path_factory.mktemp("guard")) as one:
        yield one


def flood_socket(connection: socket.socket) -> None:
    """Send commands until nobody takes any more."""
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        while True:
            connection.send(b'{"do":"state"}\n' * 2000)


def test_long_lines_floods_and_crowds_delay_nothing(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        endless = machine.client()
        endless.socket.sendall(b"x" * 70_000)
        assert isinstance(endless.read(), GuardRefusal)
        assert endless._file.readline() == b""
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(30)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(machine.said.socket)
        for one in crowd[:8]:  # none of them reads
            flood_socket(one)
        begun = machine.proc.set(0.3)
        killed_at, container = machine.killed()[0]
        assert container == LOADING
        assert killed_at - begun < 1.0
        for one in crowd:
            one.close()
        assert "killed" in wait_until(
            "the kill to be told", lambda: "killed" in client.happened() and client.happened()
        )
        memory = Path(f"/proc/{machine.said.pid}/status").read_text()
        assert int(memory.split("VmRSS:")[1].split()[0]) < 64 * MIB >> 10


def test_a_directory_that_is_cleaned_away_costs_the_receipt_and_not_the_guard(tmp_path: Path) -> None:
    with run_guard(tmp_path) as machine:
        client = machine.client()
        client.watch()
        shutil.rmtree(tmp_path / "g")
        assert client.state().receipts == ()
        machine.proc.set(0.3)
        assert [one for _, one in machine.killed()] == [LOADING]
        machine.proc.set(60.0)
        time.sleep(4.5)  # settled
        client.watch(THIRD)
        machine.proc.set(0.3)
        assert [one for _, one in machine.killed(2)] == [LOADING, THIRD]
        assert machine.lives


def test_memory_that_could_not_be_read_is_read_as_soon_as_it_can_be(tmp_path: Path) -> None:
    with run_guard(tmp_path, start=False) as machine:
        memory = tmp_path / "root/proc/meminfo"
        memory.rename(tmp_path / "away")
        machine.start()
        machine.client().watch()
        time.sleep(0.3)
        (tmp_path / "away").rename(memory)
        time.sleep(0.3)
        begun = machine.proc.set(0.3)
        assert machine.killed()[0][0] - begun < 1.0
