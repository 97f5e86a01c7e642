"""Start `switch_journal.sh` on a node, decode its answer, and encode the journal of a switch as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

from sparkctl.model.json_codec import from_json_data
from sparkctl.model.switch_plan import SwitchJournal
from sparkctl.model.text.sanitize import sanitize_line, truncate_text

SCRIPT_MARKER = "# sparkctl journal 1"
NO_JOURNAL = ""  # the text if there is no journal
JOURNAL_PATH = "${XDG_STATE_HOME:-~/.local/state}/sparkctl/switch.json"  # its path as shown to the operator


def read_journal_script() -> bytes:
    """Return the source, for the stdin of ``sh -s -- ...``."""
    return (Path(__file__).parent / "switch_journal.sh").read_bytes()


class JournalWriteResult(StrEnum):
    """What the script did. ``OTHER``: nothing, since something else is there."""

    DONE = "done"
    OTHER = "other"
    FAILED = "failed"


def build_write_command(text: str, over: Iterable[str] = ()) -> list[str]:
    """Return the argv that writes the journal; with ``over`` only if one of these texts, or `NO_JOURNAL`, is there."""
    return ["sh", "-s", "--", "write", text, *over]


def build_remove_command(over: Iterable[str] = ()) -> list[str]:
    """Return the argv that removes it; ``over`` as in `build_write_command`."""
    return ["sh", "-s", "--", "remove", *over]


def decode_write_result(answer: bytes) -> JournalWriteResult:
    """Return the script's result."""
    lines = answer.splitlines()
    if b"@@ written" in lines or b"@@ removed" in lines:
        return JournalWriteResult.DONE
    return JournalWriteResult.OTHER if b"@@ other" in lines else JournalWriteResult.FAILED


JOURNAL_SCHEMA_VERSION = 1
_ID_PATTERN = re.compile(r"[0-9a-f]{12,64}")
_MAX_ITEMS = 256  # maximum nodes, words and containers
_MAX_TEXT_CHARS = 4096


def encode_switch_journal(journal: SwitchJournal) -> str:
    """Return one line of JSON."""
    return json.dumps({"schema": JOURNAL_SCHEMA_VERSION, **asdict(journal)}, ensure_ascii=True, separators=(",", ":"))


def decode_switch_journal(text: str) -> SwitchJournal:
    """Return the journal in a text. Raises ValueError if it is damaged, or of another version."""
    try:
        said = json.loads(text)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep
    if not isinstance(said, dict) or said.get("schema") != JOURNAL_SCHEMA_VERSION:
        raise ValueError("not a journal that this version of sparkctl reads")
    journal = from_json_data(SwitchJournal, said)
    for name in ("words", "nodes", "stops", "old", "need_nodes", "ran_before"):
        if len(getattr(journal, name)) > _MAX_ITEMS:
            raise ValueError(f"{name} is too long")
    texts = (journal.operator, journal.instance, journal.profile_hash, *journal.words, *journal.nodes, *journal.stops)
    for text in (*texts, *journal.need_nodes, *(node for node, _ in journal.old)):
        if len(text) > _MAX_TEXT_CHARS or sanitize_line(text) != text:
            raise ValueError(f"no usable text: {truncate_text(sanitize_line(text), 40)}")
    ids = (journal.id, *journal.ran_before, *(container for _, container in journal.old))
    if not all(_ID_PATTERN.fullmatch(one) for one in ids):
        raise ValueError("no usable id")
    if not abs(journal.since) <= 1e12:  # nor NaN
        raise ValueError("since is no time")
    if journal.timeout is not None and not 0 < journal.timeout < 1e6:
        raise ValueError("timeout is no number of seconds")
    return journal
