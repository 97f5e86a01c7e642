"""``diagnose`` of a log file: apart from `diagnose_log`, which needs the nodes, so that it starts at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl import __version__
from sparkctl.errors import DockerError, InvalidInput, NodeError
from sparkctl.logs.diagnosis import LogDiagnoser, has_engine_mark, read_line_header
from sparkctl.logs.log_file import (
    ByteSource,
    join_wrapped_lines,
    leave_out_other_services,
    open_log,
    put_oldest_first,
    read_line_blocks,
    strip_wrapping,
)
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import MASK, LineMasker

if TYPE_CHECKING:
    from sparkctl.logs.analyzer import LogDiagnosis
    from sparkctl.model.verdict import Verdict


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
    read, numbers = put_oldest_first(read_line_blocks(source, name))
    own = leave_out_other_services(read, has_engine_mark)
    whole = join_wrapped_lines(own, read_line_header)  # where a prefix was cut with its line
    blocks = strip_wrapping(whole, read_line_header)
    for block in join_wrapped_lines(blocks, read_line_header):
        reading.feed_block(block)
    found = reading.build_diagnosis()
    return DiagnosisReport(diagnosis=_number_as_in_file(found, numbers) if numbers else found, source=name)


def _number_as_in_file(found: LogDiagnosis, numbers: Sequence[int]) -> LogDiagnosis:
    """Return a diagnosis of a log that was turned round with the lines' numbers in the file; ``numbers`` has them in the order of
    reading."""

    def get(line: int) -> int:
        return numbers[line - 1] if 0 < line <= len(numbers) else line

    def renumber(verdict: Verdict) -> Verdict:
        evidence = tuple(one if one.line is None else replace(one, line=get(one.line)) for one in verdict.evidence)
        return replace(verdict, evidence=evidence, contributing=tuple(map(renumber, verdict.contributing)))

    reading = found.reading
    if reading is not None:
        by = reading.engine_line
        reading = replace(
            reading,
            is_turned=True,
            engine_line=None if by is None else (get(by[0]), by[1]),
            version_line=None if reading.version_line is None else get(reading.version_line),
            tracebacks=tuple(replace(one, first=get(one.first), last=get(one.last)) for one in reading.tracebacks),
            candidates=tuple(replace(one, line=get(one.line)) for one in reading.candidates),
            root=None if reading.root is None else get(reading.root),
        )
    return replace(
        found,
        verdict=None if found.verdict is None else renumber(found.verdict),
        before=None if found.before is None else renumber(found.before),
        took=tuple(replace(one, line=get(one.line)) for one in found.took),
        run_began=get(found.run_began),
        reading=reading,
    )


_ID_CHARS = 10  # of the hash in a stored log's name
# What users wrote and models answered, as engines log a request: prompt: '…', "content": "…", text='…', prompt_token_ids: [1, 2].
_USERS_WORDS = lazy_pattern.compile(
    r"(?P<key>(?<!\w)[\"']?(?:prompt|content|reasoning_content|text)[\"']?[:=] {0,2})(?P<mark>[\"'])(?:\\.|(?!(?P=mark)).)*+(?P=mark)?"
    r"|(?P<ids>(?<!\w)[\"']?(?:prompt_token_ids|input_ids|output_ids)[\"']?[:=] {0,2})\[[\d, ]*+\]?"
)


def store_masked_log(path: Path, report: DiagnosisReport, directory: Path) -> tuple[Path, Path]:
    """Store a log with its secrets and its users' words masked, and what was found in it, for a bug report. Return both files.

    Raises `InvalidInput` where the directory is none, cannot be written, or holds this log already: nothing is overwritten.
    """
    if not directory.is_dir():
        raise InvalidInput(f"--submit {directory}: there is no such directory", f"make it first: mkdir -p {directory}")
    import hashlib
    import json
    import shlex

    masker, masked = LineMasker(frozenset()), []
    with open_log(path) as source:
        for block in read_line_blocks(source, str(path)):
            texts = block.decode("utf-8", "replace").split("\n")[:-1]
            lines = [LogLine(when="", text=text, number=at) for at, text in enumerate(texts)]
            masked += [_mask_users_words(line.text) for line in masker.mask_batch(lines)]
    text = "\n".join([*masked, ""])
    found, verdict = report.diagnosis, report.diagnosis.verdict
    cause = "none" if verdict is None else str(verdict.cause)
    identity = hashlib.sha256(text.encode()).hexdigest()[:_ID_CHARS]
    log = directory / f"{found.engine or 'unknown'}-{cause}-{identity}.log"
    facts = {
        "schema": 1,
        "sparkctl": __version__,
        "engine": found.engine,
        "version": found.version,
        "ready": found.ready,
        "cause": None if verdict is None else cause,
        "confidence": None if verdict is None else str(verdict.confidence),
        "line": None if verdict is None else next((one.line for one in verdict.evidence if one.line is not None), None),
        "lines": found.lines,
    }
    about = log.with_suffix(".json")
    if stored := [str(one) for one in (log, about) if one.exists()]:
        raise InvalidInput(
            f"this log is already stored: {stored[0]} already exists",
            f"to store it again: {shlex.join(['rm', *stored])}",
        )
    _write_new_file(log, text)
    _write_new_file(about, json.dumps(facts, indent=2) + "\n")
    return log, about


def _mask_users_words(line: str) -> str:
    return _USERS_WORDS.sub(lambda found: f"{found['key'] or found['ids']}{MASK}", line)


def _write_new_file(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror or error}", "choose a directory that you can write to"
        ) from None
