"""The journal of a switch in a real shell: whole or not at all, and another user's is left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkctl.probe import journal, look


def run(home: Path, argv: list[str], script: bytes) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(argv, input=script, capture_output=True, env=env, timeout=30, check=False)


def read(home: Path) -> look.JournalFile:
    found = look.decode(run(home, look.command("journal"), look.script()).stdout).journal
    assert found is not None
    return found


def write(home: Path, text: str) -> subprocess.CompletedProcess[bytes]:
    return run(home, journal.writing(text), journal.script())


def test_it_is_written_read_and_removed(tmp_path: Path) -> None:
    assert read(tmp_path).state == "none"
    for text in ('{"step": "checking", "it\'s": "$(touch x) `id` \\\\"}', '{"step": "stopping"}'):
        assert journal.was_done(write(tmp_path, text).stdout)
        assert (read(tmp_path).state, read(tmp_path).text) == ("ours", text)
    folder = tmp_path / ".local/state/sparkctl"
    assert [path.name for path in folder.iterdir()] == ["switch.json"], "no half one is left beside it"
    assert (folder / "switch.json").stat().st_mode & 0o077 == 0
    assert journal.was_done(run(tmp_path, journal.removing(), journal.script()).stdout)
    assert read(tmp_path).state == "none"


def test_where_it_cannot_be_written_the_old_one_stays(tmp_path: Path) -> None:
    write(tmp_path, "one")
    folder = tmp_path / ".local/state/sparkctl"
    (folder / "switch.json").unlink()
    (folder / "switch.json").symlink_to("/etc/hostname")
    done = write(tmp_path, "two")
    assert not journal.was_done(done.stdout)
    assert b"another user" in done.stderr
    assert read(tmp_path).state == "foreign"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_another_users_is_foreign(tmp_path: Path) -> None:
    write(tmp_path, "one")
    os.chown(tmp_path / ".local/state/sparkctl/switch.json", 65534, 65534)
    assert read(tmp_path).state == "foreign"
    assert not journal.was_done(write(tmp_path, "two").stdout)
    assert not journal.was_done(run(tmp_path, journal.removing(), journal.script()).stdout)
