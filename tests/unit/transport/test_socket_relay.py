"""The relay of a local port: no client's socket stays open after its end, whatever the far side does."""

from __future__ import annotations

import asyncio
import gc
import warnings
from contextlib import suppress

from sparkctl.transport.node_connection import ByteReader, ByteWriter
from sparkctl.transport.socket_relay import SocketRelay


async def test_a_client_whose_node_never_answers_is_closed_with_the_relay() -> None:
    asked = asyncio.Event()

    async def open_never() -> tuple[ByteReader, ByteWriter]:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        relay = await SocketRelay.listen_tcp(open_never, 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        await asked.wait()
        await relay.close()
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await asyncio.sleep(0)
        del relay, reader, writer
        gc.collect()
    assert [str(one.message) for one in caught] == []
