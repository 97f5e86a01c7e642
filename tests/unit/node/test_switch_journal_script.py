"""The journal of a switch in a real shell: whole or not at all, and another user's is left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkctl.monitor import switch_journal_io
from sparkctl.node import build_script_command, node_inspection, read_node_script

DONE, OTHER, FAILED = (
    switch_journal_io.JournalWriteResult.DONE,
    switch_journal_io.JournalWriteResult.OTHER,
    switch_journal_io.JournalWriteResult.FAILED,
)


def run_script(home: Path, argv: list[str], script: bytes) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(argv, input=script, capture_output=True, env=env, timeout=30, check=False)


def read_journal(home: Path) -> node_inspection.JournalFile:
    found = node_inspection.decode_inspection(
        run_script(home, build_script_command("journal"), read_node_script("node_inspection.sh")).stdout
    ).journal
    assert found is not None
    return found


def write_journal(home: Path, text: str, over: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    return run_script(home, build_script_command("write", text, *over), read_node_script("switch_journal.sh"))


def remove_journal(home: Path, over: tuple[str, ...]) -> switch_journal_io.JournalWriteResult:
    return switch_journal_io.decode_write_result(
        run_script(home, build_script_command("remove", *over), read_node_script("switch_journal.sh")).stdout
    )


def test_a_journal_is_written_read_and_removed(tmp_path: Path) -> None:
    assert read_journal(tmp_path).state == "none"
    for text in ('{"step": "checking", "it\'s": "$(touch x) `id` \\\\"}', '{"step": "stopping"}'):
        assert switch_journal_io.decode_write_result(write_journal(tmp_path, text).stdout) is DONE
        assert (read_journal(tmp_path).state, read_journal(tmp_path).text) == ("ours", text)
    folder = tmp_path / ".local/state/sparkctl"
    assert [path.name for path in folder.iterdir()] == ["switch.json"], "no half one is left beside it"
    assert (folder / "switch.json").stat().st_mode & 0o077 == 0
    assert (
        switch_journal_io.decode_write_result(
            run_script(tmp_path, build_script_command("remove"), read_node_script("switch_journal.sh")).stdout
        )
        is DONE
    )
    assert read_journal(tmp_path).state == "none"


def test_where_it_cannot_be_written_the_old_one_stays(tmp_path: Path) -> None:
    write_journal(tmp_path, "one")
    folder = tmp_path / ".local/state/sparkctl"
    (folder / "switch.json").unlink()
    (folder / "switch.json").symlink_to("/etc/hostname")
    done = write_journal(tmp_path, "two")
    assert switch_journal_io.decode_write_result(done.stdout) is FAILED
    assert b"another user" in done.stderr
    assert read_journal(tmp_path).state == "foreign"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_journal_of_another_user_is_foreign(tmp_path: Path) -> None:
    write_journal(tmp_path, "one")
    os.chown(tmp_path / ".local/state/sparkctl/switch.json", 65534, 65534)
    assert read_journal(tmp_path).state == "foreign"
    assert switch_journal_io.decode_write_result(write_journal(tmp_path, "two").stdout) is FAILED
    assert (
        switch_journal_io.decode_write_result(
            run_script(tmp_path, build_script_command("remove"), read_node_script("switch_journal.sh")).stdout
        )
        is FAILED
    )


def test_it_is_written_and_removed_only_over_what_may_lie_there(tmp_path: Path) -> None:
    mine, next_, theirs = '{"id": "a*b", "x": "$(y) \\\\"}', '{"id": "a", "step": 2}', '{"id": "b"}'
    assert switch_journal_io.decode_write_result(write_journal(tmp_path, next_, (mine,)).stdout) is OTHER, (
        "none lies there"
    )
    assert read_journal(tmp_path).state == "none"
    assert (
        switch_journal_io.decode_write_result(write_journal(tmp_path, mine, (switch_journal_io.NO_JOURNAL,)).stdout)
        is DONE
    )
    assert (
        switch_journal_io.decode_write_result(
            write_journal(tmp_path, theirs, (switch_journal_io.NO_JOURNAL, next_)).stdout
        )
        is OTHER
    )
    assert read_journal(tmp_path).text == mine
    assert (
        switch_journal_io.decode_write_result(
            write_journal(tmp_path, next_, (switch_journal_io.NO_JOURNAL, mine)).stdout
        )
        is DONE
    )
    assert remove_journal(tmp_path, (mine, switch_journal_io.NO_JOURNAL)) is OTHER
    assert read_journal(tmp_path).text == next_
    assert remove_journal(tmp_path, (mine, next_)) is DONE
    assert remove_journal(tmp_path, (mine,)) is OTHER
    assert remove_journal(tmp_path, (mine, switch_journal_io.NO_JOURNAL)) is DONE, "it is as it is to be"
