"""Start `switch_journal.sh` on a node, decode its answer, and encode the journal of a switch as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TypeGuard

from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchJournal, SwitchStep
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
MAX_JOURNAL_BYTES = 65536  # maximum bytes of a journal
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
    since = said.get("since")
    if not _is_number(since) or abs(since) > 1e12:
        raise ValueError("since is no time")
    timeout = said.get("timeout")
    if timeout is not None and not (_is_number(timeout) and 0 < timeout < 1e6):
        raise ValueError("timeout is no number of seconds")
    return SwitchJournal(
        id=_check_id(said.get("id")),
        operator=_decode_text_field(said, "operator"),
        since=float(since),
        step=SwitchStep(_decode_text_field(said, "step")),
        instance=_decode_text_field(said, "instance"),
        words=_check_texts(said.get("words")),
        profile_hash=_decode_text_field(said, "profile_hash"),
        nodes=tuple(NodeName(one) for one in _check_texts(said.get("nodes"))),
        stops=_check_texts(said.get("stops")),
        old=tuple(_decode_old_container(one) for one in _check_list(said.get("old"))),
        rolls_back=_decode_flag(said, "rolls_back", unsaid=True),
        guarded=_decode_flag(said, "guarded", unsaid=True),
        timeout=timeout,
        keep_going=_decode_flag(said, "keep_going", unsaid=False),
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _decode_flag(said: dict[str, object], name: str, *, unsaid: bool) -> bool:
    value = said.get(name, unsaid)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value


def _check_list(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) > _MAX_ITEMS:
        raise ValueError("a list is missing, or too long")
    return value


def _decode_text_field(said: dict[str, object], name: str) -> str:
    return _check_text(said.get(name))


def _check_text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT_CHARS or sanitize_line(value) != value:
        raise ValueError(f"no usable text: {truncate_text(sanitize_line(str(value)), 40)}")
    return value


def _check_texts(value: object) -> tuple[str, ...]:
    return tuple(_check_text(one) for one in _check_list(value))


def _check_id(value: object) -> str:
    if not isinstance(value, str) or not _ID_PATTERN.fullmatch(value):
        raise ValueError("no usable id")
    return value


def _decode_old_container(value: object) -> tuple[NodeName, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("no node with a container")
    return NodeName(_check_text(value[0])), _check_id(value[1])
