"""Adds the manual pages to the wheel, made from the help of the verbs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):
    """Writes share/man/man1/sparkctl*.1."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages and name them as shared data; an editable install needs none."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from sparkctl.cli.main import sparkctl_command
        from sparkctl.cli.verbs.help import write_man_pages

        for path in write_man_pages(sparkctl_command, Path(tempfile.mkdtemp(prefix="sparkctl-man-"))):
            build_data["shared_data"][str(path)] = f"share/man/man1/{path.name}"
