"""Files of the user: nothing hangs on what lies there in place of one, and everybody says what it is."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkctl import files
from sparkctl.commands.import_profile import ImportProfile, import_from_source
from sparkctl.commands.stop.pending_stops import PendingStopFiles
from sparkctl.config import list_ssh_aliases, load_config
from sparkctl.errors import InvalidInput
from sparkctl.history.operation_history import OperationHistory
from sparkctl.logs.log_file import open_log
from sparkctl.monitor.meters.engine_meters import average_accept_length
from sparkctl.monitor.recording import EventRecorder, read_recording
from sparkctl.profiles.env_references import resolve_engine_env
from sparkctl.profiles.profile_edit import read_source as read_for_editing
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.yaml_reader import FilePosition, read_source_lines
from sparkctl.transport.ssh import ssh_config

ID = "0123456789ab" + "c" * 52


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_directory(path: Path) -> None:
    path.mkdir()


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a FIFO": (make_fifo, "it is a FIFO"),
    "a device": (make_device, "it is a device"),
    "a directory": (make_directory, "[Ii]s a directory"),
    "a loop of links": (make_loop, "symbolic links"),
}


@pytest.fixture(autouse=True)
def alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a writer that never comes."""
    monkeypatch.setattr(files, "_FIFO_WRITER_SECONDS", 0.2)


@pytest.fixture(params=KINDS)
def lies_there(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Something that is no file, and what it is called."""
    make, words = KINDS[request.param]
    path = tmp_path / "config.yaml"
    make(path)
    return path, words


def test_what_is_no_file_is_refused_by_its_kind(lies_there: tuple[Path, str]) -> None:
    path, words = lies_there
    for reader in (files.open_regular_file, files.open_user_file, files.refuse_irregular):
        with pytest.raises(OSError, match=words):
            reader(path)


def test_readers_of_what_the_user_writes_say_what_lies_there(lies_there: tuple[Path, str]) -> None:
    path, words = lies_there
    for read_it in (
        load_config,
        read_for_editing,
        lambda place: list(read_recording(place)),
        lambda place: ProfileLibrary().load_profile(str(place)),
    ):
        with pytest.raises(InvalidInput, match=words):
            read_it(path)
    with pytest.raises(InvalidInput, match=words), open_log(path):
        pass
    with pytest.raises(InvalidInput, match=words), open_log(path, is_saved=True):
        pass
    with pytest.raises(InvalidInput, match=words):
        import_from_source(str(path), ImportProfile())


def test_readers_of_what_is_kept_do_without(lies_there: tuple[Path, str], tmp_path: Path) -> None:
    path, _ = lies_there
    assert average_accept_length(path, None) is None  # type: ignore[arg-type]  # nothing is read, so no engine reads it
    assert list_ssh_aliases(path) == ()
    assert read_source_lines([FilePosition(str(path), 1, 1)]) == {}
    stops = tmp_path / "unfinished-stops"
    stops.mkdir()
    path.rename(stops / "x.json")
    assert PendingStopFiles(tmp_path).list_all(0.0) == ()


def test_a_profile_s_env_file_is_a_file(lies_there: tuple[Path, str], tmp_path: Path) -> None:
    path, words = lies_there
    profile = tmp_path / "pp.yaml"
    profile.write_text(f"schema: 1\nname: pp\nengine: container\nimage: a/b:1\nenv_file: {path.name}\n")
    found = ProfileLibrary(tmp_path).load_profile(str(profile))
    with pytest.raises(InvalidInput, match=words):
        resolve_engine_env(found, {})


@pytest.mark.parametrize("suffix", [".verdict.json", ".start.txt", ".before.json", ".guard.json"])
def test_a_file_beside_a_log_is_a_file(suffix: str, tmp_path: Path) -> None:
    history = OperationHistory(tmp_path)
    folder = tmp_path / "logs" / "qwen36" / "spark1"
    folder.mkdir(parents=True)
    (folder / "20261120-101010-0123456789ab.log").write_text("2026-11-20T10:10:10.000000000Z hello\n")
    os.mkfifo(folder / f"20261120-101010-0123456789ab{suffix}")
    (saved,) = history.list_saved_logs("qwen36")
    assert history.load_verdict(saved) is None
    assert history.load_start_command("qwen36", "spark1", ID) is None
    assert history.load_memory_before("qwen36", "spark1", ID) is None


@pytest.mark.parametrize("name", ["history.db", "history.db-wal", "history.db-shm", "starts.jsonl"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_history_that_is_no_file_is_said_and_never_empty(name: str, kind: str, tmp_path: Path) -> None:
    if name != "history.db":
        OperationHistory(tmp_path).record_start("qwen36", "h", "spark1", 10.0)
        (tmp_path / name).unlink(missing_ok=True)
    KINDS[kind][0](tmp_path / name)
    history = OperationHistory(tmp_path)
    found = history.list_operations()
    if name == "history.db" or history.is_unreadable:
        assert (found, history.is_unreadable) == ((), True)
        assert "cannot be used" in (history.take_warning() or "")
    else:
        assert len(found) == 1, "it goes on without what lies there"


def test_an_ssh_config_that_is_no_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    config = tmp_path / ".ssh" / "config"
    os.mkfifo(config)
    with pytest.raises(InvalidInput, match=r"ssh config cannot be used.*it is a FIFO"):
        ssh_config.resolve_target("spark1")
    config.unlink()
    config.write_text("Include config\n")
    with pytest.raises(InvalidInput, match="ssh config cannot be used"):
        ssh_config.resolve_target("spark1")
    config.unlink()
    os.mkfifo(tmp_path / ".ssh" / "key")
    with pytest.raises(InvalidInput, match="identity"):
        ssh_config.resolve_target("spark1", identity="~/.ssh/key")
    config.write_text("Host *\n  IdentityFile ~/.ssh/key\n")
    assert ssh_config.resolve_target("spark1").identities == ()


def test_a_pipe_that_is_named_with_its_writer_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"x" * 100_000))
    writer.start()
    with files.open_user_file(path) as file:
        assert len(b"".join(iter(lambda: file.read(4096), b""))) == 100_000
    writer.join()


def test_a_writer_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    may_write, opens = threading.Event(), threading.Event()

    def write() -> None:
        with path.open("wb") as file:
            opens.set()
            may_write.wait(30)
            file.write(b"late")

    writer = threading.Thread(target=write)
    writer.start()
    with files.open_user_file(path) as file:  # the writer holds it open, and says nothing for longer than is waited
        assert opens.is_set()
        may_write.set()
        assert file.read() == b"late"
    writer.join()


@pytest.mark.parametrize("spelling", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_process_substitution_is_read_wherever_a_file_is_named(spelling: str) -> None:
    def given(text: bytes) -> Path:
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        return Path(spelling.format(reader))

    with open_log(given(b"a log\n")) as source:
        assert source.read(100) == b"a log\n"
    assert files.read_regular_file(given(b"a: 1\n"), 100) == b"a: 1\n"
    recipe = given(b"docker run --gpus all vllm/vllm-openai:v0.19.1 --model Qwen/Qwen3-8B\n")
    assert import_from_source(str(recipe), ImportProfile()).profile.engine == "vllm"


def test_an_empty_device_is_an_empty_file() -> None:
    """``UserKnownHostsFile /dev/null`` stands in many ssh configs."""
    assert files.read_regular_file("/dev/null", 10) == b""


def test_more_than_was_asked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 2048)
    assert len(files.read_regular_file(path, 2048)) == 2048
    with pytest.raises(OSError, match="larger than 1 KiB"):
        files.read_regular_file(path, 1024)


def test_a_recording_into_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InvalidInput, match="cannot write"):
        EventRecorder(path, lambda words: None, force=True)


def test_a_directory_of_profiles_that_is_none_is_said(tmp_path: Path) -> None:
    place = tmp_path / "profiles"
    os.mkfifo(place)
    library = ProfileLibrary(place)
    assert "not a directory, but a FIFO" in (library.find_directory_fault() or "")
    with pytest.raises(InvalidInput, match="not a directory, but a FIFO"):
        library.find_profile_file("mine")
    assert ProfileLibrary(tmp_path / "missing").find_directory_fault() is None


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("old")
    path.chmod(0o640)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # as a full disk: the write fails in the middle
    try:
        for target, replace in ((path, True), (tmp_path / "new.yaml", False)):
            with pytest.raises(OSError, match="too large"):
                files.write_whole_file(target, b"x" * 100_000, replace=replace)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.yaml"]
    assert path.read_text() == "old"
    with pytest.raises(FileExistsError):
        files.write_whole_file(path, b"new")
    files.write_whole_file(path, b"new", replace=True)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_file_of_another_user_is_refused_with_the_command_that_gives_it() -> None:
    refused = PermissionError(13, "Permission denied")
    assert (
        files.advise_on_refused_file("my model.yaml", refused)
        == "give it to your user: sudo chown \"$USER\" 'my model.yaml'"
    )
    assert files.advise_on_refused_file("m.yaml", IsADirectoryError(21, "Is a directory")) is None
