"""Runs the two ends of a transfer stream between two nodes, controlled over SSH; no key has to lie on the nodes.

The sender connects to an address of the receiver on the link between them or, where they do not reach each other, each
listens on its own loopback and this machine relays the bytes. They use TLS 1.3, each with a certificate made for this
one transfer.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any

from sparkctl.concurrency import run_in_background
from sparkctl.errors import (
    DiskFull,
    NodeError,
    NodeUnreachable,
    OperationRefused,
    SparkctlError,
    TransferTampered,
    UnreadableAnswer,
)
from sparkctl.model.fabric_route import FabricLane
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json_map, sanitize_line
from sparkctl.node import model_files_decoder
from sparkctl.transport.node_connection import ByteReader, ByteWriter, RemoteProcess
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate and its key, both PEM."""

    certificate: str
    key: str


def make_certificate() -> Certificate:
    """Return a new certificate. It is valid whatever the clock of a node shows, and used only by the two programs that
    get it.
    """
    from datetime import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sparkctl transfer")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1970, 1, 1))
        .not_valid_after(datetime(9999, 12, 31))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(certificate.public_bytes(Encoding.PEM).decode(), private.decode())


def make_certificate_pair() -> tuple[dict[str, str], dict[str, str]]:
    """Return for each end its certificate, its key, and the other end's certificate."""
    one, other = make_certificate(), make_certificate()
    return (
        {"certificate": one.certificate, "key": one.key, "peer": other.certificate},
        {"certificate": other.certificate, "key": other.key, "peer": one.certificate},
    )


_LOOPBACK = "127.0.0.1"
_START_TIMEOUT_SECONDS = 20.0  # seconds until an end has said where it listens
_SILENCE_TIMEOUT_SECONDS = 90.0  # without a message; an end that computes checksums reports every few seconds
_LAST_ERROR_SECONDS = 1.5  # seconds in which the other end may report the cause
_CHUNK_BYTES = 1 << 18
_MAX_UNREAD_MESSAGES = 256  # then an end is not read any further, which makes it wait
_LOCK_NAME = "sync.lock"


@dataclass(frozen=True, slots=True)
class TransferRoute:
    """The lanes of a transfer as (sender, receiver) pairs; none: through this machine."""

    lanes: tuple[tuple[FabricLane, FabricLane], ...] = ()


class RouteUnreachable(SparkctlError):
    """The sender did not reach the receiver at its address."""


@dataclass(slots=True)
class TransferStream:
    """Both ends of a running stream. `read_messages` yields their messages; commands go to the ``receiver``."""

    receiver: RemoteProcess
    names: dict[str, str]
    _messages: asyncio.Queue[tuple[str, dict[str, Any] | None]] = field(
        default_factory=lambda: asyncio.Queue(_MAX_UNREAD_MESSAGES)
    )

    async def send_to_receiver(self, **words: Any) -> None:
        await self.receiver.write(json.dumps(words).encode() + b"\n")

    async def read_messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (side, message) as they arrive; side is send or take. Ends when both are done.

        Raises the error that an end reports; the end that only lost its peer is not used as the source.
        """
        done: set[str] = set()
        while len(done) < 2:
            try:
                side, message = await asyncio.wait_for(self._messages.get(), _SILENCE_TIMEOUT_SECONDS)
            except TimeoutError as error:
                raise NodeUnreachable(
                    self.names["take"], "neither end of the transfer has answered for a minute"
                ) from error
            if message is None and side in done:
                continue
            if message is None:
                raise await self._find_root_error(side, {"error": "its end of the transfer has gone", "kind": "lost"})
            if "error" in message or "unreachable" in message or "taken" in message:
                raise await self._find_root_error(side, message)
            if "done" in message:
                done.add(side)
            else:
                yield side, message

    async def _find_root_error(self, side: str, message: dict[str, Any]) -> SparkctlError:
        """Return the error that explains the failure best: the other end may know more than that its peer is gone."""
        if "unreachable" in message:
            return RouteUnreachable(sanitize_line(str(message["unreachable"])))
        if "taken" in message:
            return OperationRefused(
                f"another sync to {self.names[side]} is under way", "wait for it, or end it with Ctrl-C"
            )
        best = (side, message)
        if _is_lost(message):
            try:
                async with asyncio.timeout(_LAST_ERROR_SECONDS):
                    while _is_lost(best[1]):
                        other, words = await self._messages.get()
                        if words is not None and "unreachable" in words:
                            return RouteUnreachable(sanitize_line(str(words["unreachable"])))
                        if words is not None and "error" in words:
                            best = (other, words)
            except TimeoutError:
                pass
        return _build_transfer_error(self.names[best[0]], best[1])

    async def report_failure(self, words: str) -> None:
        """Let `read_messages` raise this error as if the sender had reported it."""
        await self._messages.put(("send", {"error": words}))

    async def forward_messages(self, side: str, process: RemoteProcess) -> None:
        """Forward the messages of one end as fast as they are read; lines without JSON come from a login shell."""
        try:
            while line := await process.readline():
                await self._messages.put((side, parse_message(self.names[side], line)))
        except NodeError as lost:
            await self._messages.put((side, {"error": lost.message}))
        await self._messages.put((side, None))


def parse_message(node: str, line: bytes) -> dict[str, Any]:
    """Return the message in a line; empty where it is no JSON but a login shell's output.

    Raises `UnreadableAnswer` where a field does not have its type.
    """
    message = load_json_map(line) or {}
    for name, is_right in _FIELD_CHECKS.items():
        if name in message and not is_right(message[name]):
            raise _build_unreadable_error(node)
    return message


def _build_unreadable_error(node: str) -> UnreadableAnswer:
    return UnreadableAnswer(
        node,
        f"the transfer messages from {node} cannot be read",
        f"on {node}, check what python3 is, and who can change it",
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -_MAX_NUMBER < value < _MAX_NUMBER  # type: ignore[operator]


def _is_integer(value: object) -> bool:
    return type(value) is int and -_MAX_NUMBER < value < _MAX_NUMBER


def _are_ports(value: object) -> bool:
    return isinstance(value, list) and all(type(port) is int and 0 < port < 65536 for port in value)


_MAX_NUMBER = 1 << 62
_FIELD_CHECKS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("sent", "got", "kept", "dropped", "summed", "status"), _is_integer),
    **dict.fromkeys(("at", "bytes", "took", "median"), _is_number),
    "ports": _are_ports,
    "refused": lambda value: isinstance(value, list),
}


def _is_lost(message: dict[str, Any]) -> bool:
    """Tell whether an error only says that the other end is gone."""
    return message.get("kind") == "lost"


def _build_transfer_error(node: str, message: dict[str, Any]) -> SparkctlError:
    words = sanitize_line(str(message["error"]))
    if message.get("kind") == "tampered":
        return TransferTampered(
            node,
            f"somebody or something between the nodes changes the transfer, {node} says: {words}; it was ended",
            "see what is between them (another machine with an address of one of them? a proxy?); "
            "nothing that was changed is kept; repeat the command to continue where it stopped",
        )
    if message.get("number") in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            node, f"the disk of {node} became full: {words}", "make room there; then repeat the command to continue"
        )
    if message.get("number") in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OperationRefused(
            f"{node}: {words}", f"give its user the right to write there: on {node}: sudo chown -R $USER DIRECTORY"
        )
    if message.get("number") == errno.ELOOP:
        return OperationRefused(f"{node}: {words}", f"take it away on {node}; then repeat the command to continue")
    return NodeUnreachable(
        node, f"the transfer broke off, {node} says: {words}", "repeat the command to continue where it stopped"
    )


@asynccontextmanager
async def open_transfer_stream(
    source: NodeSession,
    target: NodeSession,
    jobs: tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]],
    route: TransferRoute,
    streams: int,
    *,
    alone: bool = True,
) -> AsyncIterator[TransferStream]:
    """Start both ends with their jobs, the sender's and the receiver's; on exit both are ended.

    ``alone``: refuse a second receiver on the target. Raises `RouteUnreachable` inside where the sender cannot
    connect.
    """
    tls = make_certificate_pair()
    ways = [route.lanes[number % len(route.lanes)] for number in range(streams)] if route.lanes else []
    own = [far.address for _, far in ways] or [_LOOPBACK] * streams
    peers = [near.address for near, _ in route.lanes] or [_LOOPBACK]  # the sender binds to one of these
    send: dict[str, Any] = {"role": "send", "tls": tls[0], "streams": streams, "jobs": list(jobs[0])}
    take = {"role": "take", "tls": tls[1], "streams": streams, "jobs": list(jobs[1]), "listen": own, "peers": peers,
            "lock": _LOCK_NAME if alone else None}  # fmt: skip
    receiver = await start_transfer_program(target, take)
    sender: RemoteProcess | None = None
    try:
        ports = await _read_ports(target, receiver, streams)
        if ways:
            pairs = zip(ways, ports, strict=True)
            send["dial"] = [[near.address, far.address, port, near.interface] for (near, far), port in pairs]
        else:
            send |= {"listen": own, "peers": peers}
        sender = await start_transfer_program(source, send)
        pair = TransferStream(receiver, {"send": source.node.name, "take": target.node.name})
        joined = [] if ways else zip(await _read_ports(source, sender, streams), ports, strict=True)
        relays = [_relay_through_client(source, target, *each, pair) for each in joined]
        async with run_in_background(
            pair.forward_messages("take", receiver), pair.forward_messages("send", sender), *relays
        ):
            yield pair
    finally:
        await asyncio.gather(*(end.release() for end in (sender, receiver) if end is not None), return_exceptions=True)


async def start_transfer_program(session: NodeSession, request: dict[str, Any]) -> RemoteProcess:
    """Start one end of a stream on a node."""
    ask = model_files_decoder.build_transfer_program(request)
    process = await session.link.start_process(ask.argv)
    await process.write(ask.stdin)
    return process


async def _read_ports(session: NodeSession, process: RemoteProcess, streams: int) -> list[int]:
    """Return the ports where an end listens, one for each stream."""
    node = session.node.name
    try:
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            while line := await process.readline():
                message = parse_message(node, line)
                if "ports" in message and len(message["ports"]) == streams:
                    return list(message["ports"])
                if "taken" in message:
                    raise OperationRefused(f"another sync to {node} is under way", "wait for it, or end it with Ctrl-C")
                if "error" in message:
                    raise _build_transfer_error(node, message)
                if "ports" in message:
                    raise _build_unreadable_error(node)
    except TimeoutError:
        pass
    raise OperationRefused(
        f"python3 cannot run on {node}, and a transfer needs it", f"on {node}: sudo apt install python3"
    )


async def _relay_through_client(
    source: NodeSession, target: NodeSession, from_port: int, to_port: int, pair: TransferStream
) -> None:
    """Relay the bytes of one stream between two nodes that do not reach each other."""
    try:
        from_source, to_source = await source.link.open_tcp(_LOOPBACK, from_port)
        from_target, to_target = await target.link.open_tcp(_LOOPBACK, to_port)
    except (OSError, SparkctlError) as error:
        return await pair.report_failure(f"no connection through this machine: {error}")
    try:
        await asyncio.gather(_copy_bytes(from_source, to_target), _copy_bytes(from_target, to_source))
    finally:
        to_source.close()
        to_target.close()


async def _copy_bytes(reader: ByteReader, writer: ByteWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
