"""The terminal that the panel is painted on: stdout, as for any program; stderr may well go to a file."""

from __future__ import annotations

import sys
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class Terminal(LinuxDriver):
    """Textual's driver, painting on stdout in place of stderr."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._file = sys.__stdout__
