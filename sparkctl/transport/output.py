"""A command's input and output, with an end to how much we take."""

from __future__ import annotations

import asyncio

from sparkctl.errors import ConnectionLost, ProtocolViolation
from sparkctl.transport.node_connection import ByteReader, ByteWriter

MAX_OUTPUT_BYTES = 16 << 20  # bytes of stdout and of stderr each
_CHUNK = 1 << 16


class OutputTooLong(ProtocolViolation):
    """A command said more than anybody wants to hold in memory."""


async def communicate(
    writer: ByteWriter, stdout: ByteReader, stderr: ByteReader, stdin: bytes, name: str
) -> tuple[bytes, bytes]:
    """Feed ``stdin`` and read both outputs to their end. Raises OutputTooLong over 16 MiB."""
    tasks = (
        asyncio.create_task(_read_all(stdout, name)),
        asyncio.create_task(_read_all(stderr, name)),
    )
    feeding = asyncio.create_task(_feed(writer, stdin))
    try:
        out, err = await asyncio.gather(*tasks)  # not a TaskGroup: callers expect LinkLost, not a group of it
        return out, err
    finally:
        for task in (*tasks, feeding):
            task.cancel()
        await asyncio.gather(*tasks, feeding, return_exceptions=True)


async def _feed(writer: ByteWriter, data: bytes) -> None:
    """Write ``data`` and the end. A command that does not read all of it is no error of ours."""
    try:
        for start in range(0, len(data), _CHUNK):
            writer.write(data[start : start + _CHUNK])
            await writer.drain()
        writer.write_eof()
    except (ConnectionError, ConnectionLost):
        return


async def _read_all(reader: ByteReader, name: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MAX_OUTPUT_BYTES:
            raise OutputTooLong(f"{name} wrote more than {MAX_OUTPUT_BYTES >> 20} MiB")
    return b"".join(parts)
