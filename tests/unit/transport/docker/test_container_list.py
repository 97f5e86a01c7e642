"""What is no list of containers is not taken for an empty one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparkctl.errors import DockerError
from sparkctl.model.node import Node, NodeName
from sparkctl.transport.docker.docker_client import DockerClient
from sparkctl.transport.local_connection import LocalConnection


@pytest.mark.parametrize("body", [b"null", b"{}", b'{"message":"no"}', b'"x"', b"0"])
async def test_what_is_no_list_of_containers_is_not_known(tmp_path: Path, body: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "docker.sock"):
        with pytest.raises(DockerError, match="unexpected"):
            await DockerClient(
                LocalConnection(Node(name=NodeName("here"), host="local"), str(tmp_path / "docker.sock"))
            ).list_containers()
