"""`exec` and `shell`: which program runs in this terminal, and what helps where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.cli.verbs.shell import run_program
from sparkctl.errors import InvalidInput


@pytest.mark.parametrize(("program", "hint"), [("ssh", "install OpenSSH"), ("docker", "put it on PATH: docker")])
def test_the_advice_names_the_program_that_is_missing(
    program: str, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match=f"{program} is not installed") as caught:
        run_program([program, "x"])
    assert hint in (caught.value.hint or "")
    assert ("OpenSSH" in (caught.value.hint or "")) == (program == "ssh")
