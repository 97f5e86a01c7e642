"""A simulated Spark whose answers are spoilt on their way: its shell's, its Docker's, its engines', its probe's."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import asyncssh

from sparkctl.simulator.node_programs.shell_commands import SimSshConnection, SimSshServer
from sparkctl.simulator.simulated_sparks import SimulatedSparks

Spoil = Callable[[bytes, random.Random], bytes]
_NUMBER, _STRING = re.compile(rb"(?<=[:\[,])-?[0-9][0-9.]*"), re.compile(rb'(?<=[:\[,])"[^"]*"')


def _truncate_bytes(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _make_noise(data: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(len(data))


def _flip_bits(data: bytes, chance: random.Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(max(1, len(data) // 40)):
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
    return bytes(spoilt)


def _change_json_types(data: bytes, chance: random.Random) -> bytes:
    """Other types where numbers and texts were: valid JSON that nobody expects."""
    others = [
        b"null",
        b"[]",
        b"{}",
        b'""',
        b"-1",
        b"1e400",
        b"true",
        b'"x"',
        b"9" * 400,
        b"[[[[]]]]",
        b'{"a":{}}',
        b"0.5",
    ]
    for pattern in (_NUMBER, _STRING):
        data = pattern.sub(lambda found: chance.choice(others) if chance.random() < 0.4 else found[0], data)
    return data


def _shuffle_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


SPOILS: dict[str, Spoil] = {
    "nothing": lambda data, chance: b"",
    "truncated": _truncate_bytes,
    "noise": _make_noise,
    "latin": lambda data, chance: data.replace(b"e", b"\xe9").replace(b"1", b"\xff\xfe"),
    "flipped": _flip_bits,
    "retyped": _change_json_types,
    "numbers": lambda data, chance: re.sub(rb"[0-9]+", b"9" * 400, data),
    "negative": lambda data, chance: re.sub(rb"(?<![0-9-])([0-9]+)", rb"-\1", data),
    "long line": lambda data, chance: b"x" * (3 << 20) + data,
    "nested": lambda data, chance: b"[" * 200_000,
    "a list": lambda data, chance: b"[1, 2, 3]",
    "half a list": lambda data, chance: (
        b'[{"Id": "a", "Labels": {"dev.sparkctl.instance": "x"}, "State": "running"}, {"Id'
    ),
    "objects": lambda data, chance: b'{"data": 1, "Labels": [], "Config": 3, "State": [], "Id": {}, "message": {}}',
    "page": lambda data, chance: b"<html>\x1b[31m<title>502 Bad Gateway</title></html>\r\n",
    "shuffled": _shuffle_lines,
    "controls": lambda data, chance: data.replace(b" ", b"\x1b]0;title\x07"),
}


class _Writer:
    """Spoils what is written. The length that an HTTP head tells is made to fit the body, so that the body is read."""

    def __init__(self, writer: Any, spoil: Spoil, chance: random.Random) -> None:
        self._writer, self._spoil, self._chance = writer, spoil, chance
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.") and b"Content-Length: 0" not in data and b"Content-Length" in data:
            self._head = data
            return
        spoilt = self._spoil(data, self._chance) if data else data
        if self._head is not None:
            head, self._head = self._head, None
            self._writer.write(re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(spoilt), head))
        if spoilt:
            self._writer.write(spoilt)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class _Process:
    def __init__(self, process: Any, stdout: _Writer) -> None:
        self._process, self.stdout = process, stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


class _GarbageLogin(SimSshConnection):
    def unix_connection_requested(self, dest_path: str) -> Any:
        return self._spoilt(
            "docker" if "docker" in dest_path else "guard", super().unix_connection_requested(dest_path)
        )

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        return self._spoilt("engine", super().connection_requested(dest_host, dest_port, orig_host, orig_port))

    def _spoilt(self, part: str, attend: Any) -> Any:
        sshd = self._sshd
        assert isinstance(sshd, GarbageSshd)
        if sshd.part != part:
            return attend

        async def spoilt(reader: Any, writer: Any) -> None:
            await attend(reader, _Writer(writer, sshd.spoil, sshd.chance))

        return spoilt


class GarbageSshd(SimSshServer):
    """``part``: of what the answers are spoilt: shell, docker, guard or engine."""

    part: str
    spoil: Spoil
    chance: random.Random

    async def listen(self) -> int:
        """Open a port on 127.0.0.1 and return it."""
        self._acceptor = await asyncssh.create_server(
            lambda: _GarbageLogin(self), "127.0.0.1", 0, server_host_keys=[self.host_key], process_factory=self._run_process,
            encoding=None, allow_pty=False, agent_forwarding=False, line_editor=False,
        )  # fmt: skip
        return int(self._acceptor.get_port())

    async def _run_process(self, process: Any) -> None:
        if self.part == "shell":
            process = _Process(process, _Writer(process.stdout, self.spoil, self.chance))
        await super()._run_process(process)


async def serve_garbage_for(sparks: SimulatedSparks, name: str, part: str, kind: str, seed: int = 0) -> GarbageSshd:
    """Put a server with spoilt answers in front of a simulated node; its port takes the place of the node's."""
    usual = sparks.sshd[name]
    client = asyncssh.read_private_key(str(sparks.identity_path))
    spoilt = GarbageSshd(usual.node, usual.docker, usual.guard, usual.host_key, client)
    spoilt.part, spoilt.spoil, spoilt.chance = part, SPOILS[kind], random.Random(f"{part} {kind} {seed}")
    port = await spoilt.listen()
    with sparks.known_hosts_path.open("a") as file:
        file.write(f"[127.0.0.1]:{port} {usual.host_key.export_public_key().decode().strip()}\n")
    sparks.ports[name] = port
    return spoilt
