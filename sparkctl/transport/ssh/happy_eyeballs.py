"""A TCP connection to a host with several addresses, of which some may be dead: IPv4 first, the next one soon."""

from __future__ import annotations

import asyncio
import socket

_STAGGER_SECONDS = 0.25  # a .local name often has an IPv6 address that nobody answers at; waiting it out takes a minute
_FALLBACK_ERROR = "no address"

Address = tuple[int, tuple[object, ...]]


async def connect_tcp(host: str, port: int, family: int = 0, bind: tuple[str, int] | None = None) -> socket.socket:
    """Return a connected, non-blocking socket. Raises OSError (socket.gaierror where the name is not known).

    Has no time limit of its own: cancel it.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    addresses = interleave_addresses([(entry[0], tuple(entry[4])) for entry in found])
    errors: list[OSError] = []
    running: set[asyncio.Task[socket.socket]] = set()
    try:
        while addresses or running:
            if addresses:
                running.add(asyncio.create_task(_connect_address(*addresses.pop(0), bind)))
            done, running = await asyncio.wait(
                running, timeout=_STAGGER_SECONDS if addresses else None, return_when=asyncio.FIRST_COMPLETED
            )
            winner = _pick_winner(done, errors)
            if winner is not None:
                return winner
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close_late_socket)
        await asyncio.gather(*running, return_exceptions=True)
    raise _choose_specific_error(errors)


def interleave_addresses(addresses: list[Address]) -> list[Address]:
    """Order addresses IPv4, other, IPv4, other ..., each kind in the resolver's order, without doubles."""
    unique = list(dict.fromkeys(addresses))
    first = [address for address in unique if address[0] == socket.AF_INET]
    other = [address for address in unique if address[0] != socket.AF_INET]
    ordered: list[Address] = []
    while first or other:
        ordered += first[:1] + other[:1]
        first, other = first[1:], other[1:]
    return ordered


async def _connect_address(family: int, address: tuple[object, ...], bind: tuple[str, int] | None) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if bind is not None:
            sock.bind(bind)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _pick_winner(done: set[asyncio.Task[socket.socket]], errors: list[OSError]) -> socket.socket | None:
    """Return the first connected socket of ``done``, close further ones, collect the others' errors."""
    winner: socket.socket | None = None
    for task in done:
        error = task.exception()
        if error is None:
            if winner is None:
                winner = task.result()
            else:
                task.result().close()
        elif isinstance(error, OSError):
            errors.append(error)
        else:
            raise error
    return winner


def _choose_specific_error(errors: list[OSError]) -> OSError:
    """A refusal says that the machine is there; a dead second address says nothing."""
    for error in errors:
        if isinstance(error, ConnectionRefusedError):
            return error
    return errors[0] if errors else OSError(_FALLBACK_ERROR)


def _close_late_socket(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
