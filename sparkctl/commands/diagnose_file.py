"""``diagnose`` of a log file: apart from `diagnose_log`, which needs the nodes, so that it starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkctl.errors import DockerError, NodeError
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.logs.log_file import ByteSource, read_line_blocks
from sparkctl.model.node import NodeName

if TYPE_CHECKING:
    from sparkctl.logs.analyzer import LogDiagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisReport:
    """``source``: a sentence that says which log was read. ``silent``: each node that could not be asked, with the
    reason.
    """

    diagnosis: LogDiagnosis
    source: str
    node: NodeName | None = None
    instance: str | None = None
    silent: tuple[tuple[NodeName, NodeError | DockerError], ...] = ()


def diagnose_bytes(source: ByteSource, name: str, engine: str | None) -> DiagnosisReport:
    """Diagnose a log from its bytes. Raises `InvalidInput` where they are not text."""
    reading = LogDiagnoser(engine)
    for block in read_line_blocks(source, name):
        reading.feed_block(block)
    return DiagnosisReport(diagnosis=reading.build_diagnosis(), source=name)
