"""Where the token for the Hub waits on a node: a folder with a known name, in a directory that every user can write."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkctl.commands.pull import model_download

pytestmark = pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no directory in memory")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path("/dev/shm", f"sparkctl-token-test-{os.getpid()}")
    yield path
    if path.is_symlink():
        path.unlink()
    subprocess.run(["rm", "-rf", path, f"{path}-waiting"], check=True)


def prepare(models: Path, folder: Path) -> int:
    words = [
        "sh",
        "-c",
        model_download._PREPARE,
        "sparkctl-download",
        str(models),
        folder.name,
        f"{folder.name}-waiting",
    ]
    return subprocess.run(words, input=b"hf_secret", capture_output=True, check=False).returncode


def test_the_token_lies_where_its_user_alone_reads_it(tmp_path: Path, folder: Path) -> None:
    for _ in range(2):  # of two pulls at the same moment the second finds the folder of the first
        assert prepare(tmp_path, folder) == 0
        assert (folder / "token").read_text() == "hf_secret"
        assert (folder.stat().st_mode & 0o777, (folder / "token").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_link_that_somebody_put_there_gets_no_token(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "public").mkdir(mode=0o755)
    folder.symlink_to(tmp_path / "public")
    assert prepare(tmp_path, folder) == model_download._IS_FOREIGN
    assert not list((tmp_path / "public").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_gets_no_token(tmp_path: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "token").touch()
    for path in (folder, folder / "token"):
        path.chmod(0o777)
        os.chown(path, 12345, 12345)
    assert prepare(tmp_path, folder) == model_download._IS_FOREIGN
    assert (folder / "token").read_text() == ""
