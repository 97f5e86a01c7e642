"""All rows of the table, in its order."""

from __future__ import annotations

from tests.lab.faults import logs, machines, network, operators
from tests.lab.faults.trial import Row

ROWS: tuple[Row, ...] = (*network.ROWS, *machines.ROWS, *logs.ROWS, *operators.ROWS)
