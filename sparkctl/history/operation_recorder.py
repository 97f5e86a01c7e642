"""Writes a running operation to the history: at every change, so that a killed process loses only the last one."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.history.database import DatabaseUnavailable, HistoryDatabase
from sparkctl.history.model import NodeResult, OperationRecord
from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.text.secrets import Redactor
from sparkctl.model.verdict import Verdict

if TYPE_CHECKING:
    import sqlite3

    from sparkctl.clock import Clock


class OperationRecorder:
    """What is known of an operation so far, and its row. A history that cannot be written never stops the operation.

    The whole row is written each time, so what one write missed comes with the next.
    """

    def __init__(
        self, file: HistoryDatabase, clock: Clock, operation: OperationRecord, parent: OperationRecorder | None
    ) -> None:
        self.operation = operation
        self._file, self._clock, self._parent = file, clock, parent
        self._key = secrets.token_hex(12)
        self._secrets: frozenset[str] = frozenset()
        self._masked: dict[str, str] = {}  # results of masking, as the same text is written often
        self._is_dropped = False
        file.keep_open()

    @property
    def operation_key(self) -> str:
        """The operation's unique key: hexadecimal digits."""
        return self._key

    @property
    def is_over(self) -> bool:
        return self.operation.outcome is not None

    def redact_values(self, values: Iterable[str]) -> None:
        """Mask these secrets wherever they appear."""
        if new := frozenset(values) - self._secrets:
            self._secrets |= new
            self._masked.clear()

    def record_node_result(self, share: NodeResult) -> None:
        """Add what is known of one node's part; None changes nothing."""
        shares = self.operation.shares
        there = next((one for one in shares if (one.node, one.instance) == (share.node, share.instance)), None)
        if there is None:
            self.record_facts(shares=(*shares, share))
        else:
            both = there.merge_result(share)
            self.record_facts(shares=tuple(both if one is there else one for one in shares))

    def record_facts(self, **facts: object) -> None:
        """Add what is known of the whole: fields of `OperationRecord`; given values replace earlier ones."""
        self.operation = replace(self.operation, **facts)  # type: ignore[arg-type]
        self._write_row()

    def record_end(self, outcome: str, exit_code: int | None, **facts: object) -> None:
        """Record how it ended; the first end counts."""
        if not (self.is_over or self._is_dropped):
            self.record_facts(ended=self._clock.unix_time(), outcome=outcome, exit_code=exit_code, **facts)
            self._file.release_file()

    def delete_row(self) -> None:
        """Delete the row: nothing was done."""
        from sparkctl.history import tables

        if self._is_dropped:
            return
        if not self.is_over:
            self._file.release_file()
        self._is_dropped = True
        with suppress(DatabaseUnavailable):  # `take_warning` reports it; the same below
            self._file.write_transaction(lambda file: tables.delete_operation(file, self._key))

    def _write_row(self) -> None:
        from sparkctl.history import tables

        if self._is_dropped:
            return
        parent = None if self._parent is None else self._parent._key
        shown, where, now = self._redact_operation(), (socket.gethostname(), os.getpid()), self._clock.unix_time()

        def update_tables(file: sqlite3.Connection) -> None:
            tables.write_operation(file, self._key, parent, where, shown, now)

        with suppress(DatabaseUnavailable):
            self._file.write_transaction(update_tables)

    def _redact_operation(self) -> OperationRecord:
        one, scrub = self.operation, Redactor(self._secrets)

        def redact_field(value: str | None) -> str | None:
            if value is not None and value not in self._masked:
                self._masked[value] = scrub.redact_text(value)
            return None if value is None else self._masked[value]

        verdict = None if one.verdict is None else from_json_data(Verdict, scrub.redact_json(to_json_data(one.verdict)))
        return replace(
            one,
            text=redact_field(one.text),
            image=redact_field(one.image),
            command=redact_field(one.command),
            why=redact_field(one.why),
            hint=redact_field(one.hint),
            verdict=verdict,
            moments=tuple(replace(each, proof=redact_field(each.proof)) for each in one.moments),
            shares=tuple(
                replace(each, receipt=redact_field(each.receipt), log=redact_field(each.log)) for each in one.shares
            ),
        )
