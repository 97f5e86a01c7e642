"""Manual pages, as the build of the wheel writes them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.golden.running import run_command

ROOT = Path(__file__).parents[3]


def test_each_verb_has_a_page_made_with_what_the_build_has(tmp_path: Path) -> None:
    code = (
        "import sys; there = set(sys.modules); from importlib.metadata import packages_distributions as dists; from pathlib import Path;"
        "from sparkctl.cli.main import sparkctl_command as root; from sparkctl.cli.verbs.help import write_man_pages;"
        "write_man_pages(root, Path(sys.argv[1])); tops = {name.partition('.')[0] for name in set(sys.modules) - there};"
        "print(' '.join(sorted({d for n, ds in dists().items() if n in tops for d in ds})))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    listed = {text.partition(">")[0] for text in build["hooks"]["custom"]["dependencies"]}
    used = {name.replace("_", "-") for name in done.stdout.split()}
    assert used - {"dgx-sparkctl"} <= listed, "name it in pyproject.toml, or import it later"
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"sparkctl.1", "sparkctl-up.1", "sparkctl-profiles-import.1"} <= pages


def test_a_page_is_roff() -> None:
    page = run_command("help down --man").stdout
    assert page.startswith('.TH "SPARKCTL-DOWN" "1"')
    assert "\\fB\\-\\-all\\fR" in page
    assert [line for line in page.splitlines() if line.startswith(".") and line.split()[0] not in (
        ".TH", ".SH", ".PP", ".TP", ".nf", ".fi")] == []  # fmt: skip
