"""A relayed request gets the headers, whatever pieces it comes in; its body passes as it is."""

from __future__ import annotations

import pytest

from sparkctl.transport.socket_relay import HeaderWriter

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nauthorization: Bearer EMPTY\r\nConnection: keep-alive\r\nContent-Length: 9\r\n\r\n"
SENT = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nAuthorization: Bearer k\r\nConnection: close\r\n\r\n"


class Recorder:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def write_eof(self) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_head_gets_the_key_and_the_body_passes(size: int) -> None:
    body, recorder = b"a\r\n\r\nbc\r\n", Recorder()
    writer = HeaderWriter(recorder, (("Authorization", "Bearer k"),))
    whole = HEAD + body
    for at in range(0, len(whole), size):
        writer.write(whole[at : at + size])
    assert recorder.data == SENT + body


def test_an_endless_head_is_refused() -> None:
    writer = HeaderWriter(Recorder(), ())
    with pytest.raises(ConnectionError, match="64 KiB"):
        writer.write(b"x" * 70000)
