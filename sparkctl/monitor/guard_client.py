"""Client of the guard on one node: starts the guard if none runs, sends commands to its socket over the connection,
and decodes its lines.

It also collects the guard's receipts: what it stopped, even when no guard runs any more.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from sparkctl.context import CommandContext
from sparkctl.errors import GuardNotResponding, GuardUnavailable, NodeError
from sparkctl.files import load_state_file
from sparkctl.model.container import shorten_id
from sparkctl.model.guard_state import (
    GuardEvent,
    GuardMemoryReading,
    GuardProcess,
    GuardReceipt,
    GuardRefusal,
    GuardRole,
    GuardState,
    UnwatchReason,
)
from sparkctl.model.json_codec import from_json_data, to_json_data
from sparkctl.model.launch_plan import GuardRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import load_json, sanitize_line
from sparkctl.model.verdict import FailureCause
from sparkctl.node import bootstrap
from sparkctl.node.agent_decoder import AGENT_PROTOCOL
from sparkctl.transport.node_connection import ByteReader, ByteWriter
from sparkctl.transport.node_session import NodeSession

_START_TIMEOUT_SECONDS = 20.0  # seconds for Python, for sudo's lookups, and for Docker's socket
_ANSWER_TIMEOUT_SECONDS = 10.0
_CHUNK_BYTES = 65536
_PYTHON_HINT = "the guard needs Python 3.8 or newer on the node: python3 -V"
_FORWARDING_HINT = (
    "set `AllowStreamLocalForwarding yes` in /etc/ssh/sshd_config on the node, then: sudo systemctl reload ssh"
)

GuardEventHandler = Callable[[GuardEvent], None]


class GuardClient:
    """Sends commands to the guard, one after the other, and receives its events. Made by `start_guard` and `connect_guard`.

    Every command raises `GuardUnavailable` if the guard refuses, is silent or has ended; `ConnectionLost` if the connection broke.
    """

    def __init__(
        self, session: NodeSession, streams: tuple[ByteReader, ByteWriter], on_event: GuardEventHandler
    ) -> None:
        self._node = session.node.name
        self._reader, self._writer = streams
        self._on_event = on_event
        self._asking = asyncio.Lock()
        self._late_answers = 0  # answers to come to commands that were cancelled
        self._answers: asyncio.Queue[GuardState | GuardReceipt | GuardRefusal | Exception | None] = asyncio.Queue()
        # no TaskGroup: it reads until `close`, in no block; whatever ends it fails the command that waits for an answer
        self._listening = asyncio.create_task(self._read_guard_lines())

    @classmethod
    async def start_guard(cls, session: NodeSession, on_event: GuardEventHandler) -> GuardClient:
        """Start the guard if none runs, and connect to it."""
        started = await _start_guard_process(session)
        try:
            streams = await session.link.open_unix(started.socket)
        except OSError:
            if started.already:  # it may have ended meanwhile, as it had nothing to watch
                started = await _start_guard_process(session)
            streams = await _open_guard_socket(session, started)
        return cls(session, streams, on_event)

    @classmethod
    async def connect_guard(
        cls, session: NodeSession, socket: str, on_event: GuardEventHandler = lambda event: None
    ) -> GuardClient | None:
        """Connect to a running guard; return None if nothing answers at its socket."""
        try:
            return cls(session, await session.link.open_unix(socket), on_event)
        except OSError:
            return None

    @classmethod
    async def open_guard(cls, session: NodeSession, left: GuardDirectory, on_event: GuardEventHandler) -> GuardClient:
        """Connect to the guard that ``left`` tells of; start one if none runs."""
        running = None if left.socket is None else await cls.connect_guard(session, left.socket, on_event)
        return running or await cls.start_guard(session, on_event)

    @property
    def is_open(self) -> bool:
        return not self._listening.done()

    async def wait_closed(self) -> None:
        """Wait until the connection to the guard ends."""
        await asyncio.wait({self._listening})

    async def watch_container(
        self,
        container: str,
        instance: str,
        profile: str | None,
        operator: str,
        role: GuardRole,
        rule: GuardRule,
        port: int | None,
        health: str | None,
    ) -> GuardState:
        """Watch a container, given by its full id; a running watch of it starts again."""
        return await self._request_state(
            _ANSWER_TIMEOUT_SECONDS, do="watch", container=container, instance=instance, profile=profile, operator=operator, role=role,
            floor=rule.floor, limit=rule.limit, port=port, health=health, cache_below=rule.cache_below,
        )  # fmt: skip

    async def set_phase(self, container: str, weights: bool, within: float = _ANSWER_TIMEOUT_SECONDS) -> GuardState:
        """Tell the guard whether weights are being loaded now: this allows dropping page cache for four seconds."""
        return await self._request_state(within, do="phase", container=container, weights=weights)

    async def unwatch_container(
        self, container: str, why: UnwatchReason, within: float = _ANSWER_TIMEOUT_SECONDS
    ) -> GuardState:
        return await self._request_state(within, do="unwatch", container=container, why=why)

    async def get_state(self, within: float = _ANSWER_TIMEOUT_SECONDS) -> GuardState:
        """Return the guard's state, within so many seconds."""
        return await self._request_state(within, do="state")

    async def close(self) -> None:
        """Close the connection; the guard keeps watching."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()

    async def _request_state(self, within: float, **command: object) -> GuardState:
        answer = await self._send_command(command, within)
        if not isinstance(answer, GuardState):
            raise GuardUnavailable(f"the guard on {self._node} gave an unexpected answer to `{command['do']}`")
        return answer

    async def _send_command(self, command: dict[str, object], within: float) -> GuardState | GuardReceipt | None:
        """Send one command and return its answer: answers come in the order of the commands."""
        async with self._asking:
            if not self.is_open and self._answers.empty():
                raise GuardUnavailable(f"the guard on {self._node} has ended")
            try:
                async with asyncio.timeout(within):
                    self._writer.write(json.dumps(command, separators=(",", ":")).encode() + b"\n")
                    await self._writer.drain()
                    answer = await self._answers.get()
                    while self._late_answers and not isinstance(answer, Exception):
                        self._late_answers -= 1
                        answer = await self._answers.get()
            except TimeoutError as late:
                self._listening.cancel()  # a late answer would be taken for the next command's
                raise GuardNotResponding(
                    f"the guard on {self._node} did not answer within {within:.0f} s",
                    f"on {self._node}: ps -o pid,stat,etime,cmd -C sparkctl-guard   (stat T: somebody stopped it: kill -CONT PID)",
                ) from late
            except OSError as gone:
                raise GuardUnavailable(f"the guard on {self._node} has ended") from gone
            except asyncio.CancelledError:
                self._late_answers += 1  # it still comes, and is no answer to the next command
                raise
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, GuardRefusal):
            raise GuardUnavailable(f"the guard on {self._node} refused: {sanitize_line(answer.what)}")
        return answer

    async def _read_guard_lines(self) -> None:
        """Read lines until the socket ends, for any reason; every command that waits for an answer then fails."""
        rest = b""
        end: Exception = GuardUnavailable(f"the guard on {self._node} has ended")
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = decode_guard_line(line)
                    if isinstance(message, GuardEvent):
                        self._on_event(message)
                    else:
                        self._answers.put_nowait(message)
                if len(rest) > MAX_LINE_BYTES:
                    raise ValueError("a line without an end")
        except NodeError as lost:
            end = lost
        except OSError:
            pass  # a local guard that was killed
        except ValueError as wrong:
            end = GuardUnavailable(f"the guard on {self._node} gave an unexpected answer ({wrong})")
        except Exception as defect:  # noqa: BLE001 - a defect of sparkctl: the command that waits for an answer raises it
            end = defect
        finally:
            self._answers.put_nowait(end)


async def _open_guard_socket(session: NodeSession, started: GuardProcess) -> tuple[ByteReader, ByteWriter]:
    try:
        return await session.link.open_unix(started.socket)
    except OSError as refused:
        raise GuardUnavailable(
            f"the guard runs on {session.node.name}, and its socket cannot be reached ({refused})", _FORWARDING_HINT
        ) from refused


async def _start_guard_process(session: NodeSession) -> GuardProcess:
    """Run the command that starts the guard, and read the one line that it prints."""
    name, start = session.node.name, bootstrap.build_guard_program()
    try:
        process = await session.link.start_process(start.argv)
    except OSError as missing:
        raise GuardUnavailable(f"no guard on {name}: {missing}", _PYTHON_HINT) from missing
    try:
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            await process.write(start.stdin)
            while line := await process.readline():
                if line.startswith(b'{"probe"'):  # a login shell may greet first
                    message = decode_guard_start(line)
                    if isinstance(message, GuardRefusal):
                        raise GuardUnavailable(f"no guard on {name}: {sanitize_line(message.what)}")
                    return message
    except TimeoutError as late:
        raise GuardUnavailable(f"no guard on {name}: it did not start within {_START_TIMEOUT_SECONDS:.0f} s") from late
    except ValueError as wrong:
        raise GuardUnavailable(
            f"no guard on {name}: its start printed something unexpected ({wrong})", _PYTHON_HINT
        ) from wrong
    finally:
        await process.release()
    raise GuardUnavailable(f"no guard on {name}: its start ended without output", _PYTHON_HINT)


_GUARD_DIRECTORY_SCRIPT = r"""for c in /proc/[0-9]*/comm; do
  if read -r n 2>/dev/null <"$c" && [ "$n" = sparkctl-guard ]; then
    if ! [ -O "$c" ]; then echo "@@ other"; else
      read -r s 2>/dev/null <"${c%comm}stat" && s=${s##*) } && echo "@@ own ${s%% *}"
    fi
  fi
done 2>/dev/null
if grep -qsE '^[[:space:]]*KillUserProcesses[[:space:]]*=[[:space:]]*(yes|true|on|1)' \
  /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf; then echo "@@ logout"; fi
d=/tmp/sparkctl-guard-$(id -u)
if [ -h "$d" ] || ! [ -d "$d" ] || ! [ -O "$d" ]; then echo "@@ end"; exit 0; fi
echo "@@ dir $d"
if [ -S "$d/guard.sock" ]; then echo "@@ socket"; fi
for f in "$d"/receipt-*.json; do if [ -s "$f" ]; then cat "$f"; echo; fi; done
echo "@@ end"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDirectory:
    """``socket``: where our guard may listen, None if there is none. ``others``: number of other users' guards on the node.

    ``ends_at_logout``: the node's logind kills a user's processes when the user's last session ends. ``states``: the process
    states of our own guard, one letter each as in /proc.
    """

    socket: str | None
    receipts: tuple[GuardReceipt, ...]
    others: int
    ends_at_logout: bool
    states: tuple[str, ...]

    @property
    def is_stopped(self) -> bool:
        """Tell whether our guard is stopped (SIGSTOP, a debugger): it watches nothing until it continues."""
        return any(state in ("T", "t") for state in self.states)

    def list_warnings(self, node: str) -> Iterator[tuple[str, str | None]]:
        """Yield further warnings about guards on this node, each with its remedy."""
        if self.ends_at_logout:
            what = "ends a user's processes at logout (KillUserProcesses in logind.conf)"
            remedy = "in /etc/systemd/logind.conf: KillUserProcesses=no, then: sudo systemctl restart systemd-logind"
            yield f"{node} {what}: the guard goes with the last connection", f"on {node}, {remedy}"
        if self.others:
            yield f"another user's guard runs on {node}, too: when memory runs out, each of them ends an instance", None


async def read_guard_directory(session: NodeSession) -> GuardDirectory:
    """Return the content of the guard's directory on the node. A receipt that cannot be read is skipped.

    Raises `NodeError` if the answer is not in the expected form.
    """
    done = await session.run(["sh", "-c", _GUARD_DIRECTORY_SCRIPT, "sparkctl-guard"])
    directory, listens, others, at_logout, receipts = None, False, 0, False, []
    states: list[str] = []
    lines = done.stdout.splitlines()
    if b"@@ end" not in lines:
        name = session.node.name
        raise NodeError(
            name,
            f"{name} did not report what its guard left: unexpected output",
            "check whether `ssh` to it gives a working POSIX shell: sh -c 'echo ok'",
        )
    for line in lines:
        if line.startswith(b"@@ dir "):
            directory = line[7:].decode("utf-8", "replace")
        elif line == b"@@ socket":
            listens = True
        elif line.startswith(b"@@ own "):
            states.append(line[7:8].decode("ascii", "replace"))
        elif line == b"@@ other":
            others += 1
        elif line == b"@@ logout":
            at_logout = True
        elif line.startswith(b"{") and directory is not None:
            receipt = _decode_receipt(line)
            if receipt is not None:
                receipts.append(receipt)
    socket = f"{directory}/guard.sock" if listens and directory else None
    return GuardDirectory(
        socket=socket,
        receipts=tuple(sorted(receipts, key=lambda receipt: receipt.at)),
        others=others,
        ends_at_logout=at_logout,
        states=tuple(states),
    )


def _decode_receipt(line: bytes) -> GuardReceipt | None:
    try:
        message = decode_guard_line(b'{"guard":1,"kind":"receipt","receipt":' + line + b"}")
    except ValueError:
        return None
    return message if isinstance(message, GuardReceipt) else None


def save_receipt(ctx: CommandContext, session: NodeSession, receipt: GuardReceipt, warn: Callable[[str], None]) -> bool:
    """Save a receipt beside the container's log and record the failed start; return False if it was saved before."""
    instance, node = receipt.instance or shorten_id(receipt.container), session.node.name
    try:
        if ctx.history.find_receipt(instance, node, receipt.container) is not None:
            return False
        if receipt.profile is not None and receipt.role is not GuardRole.SERVING:
            ctx.history.record_failure(
                receipt.profile, "", node, FailureCause.GUARD_STOPPED, receipt.container, receipt.at
            )
        # last: what was saved is not looked at again
        ctx.history.save_receipt(instance, node, receipt.container, json.dumps(to_json_data(receipt)) + "\n")
    except OSError as error:
        warn(f"the guard's receipt for {instance} was not saved: {error}")
    return True


async def read_receipt(session: NodeSession, container: str) -> GuardReceipt | None:
    """Return the receipt that lies on the node for a container (its whole id), None where there is none."""
    return next((one for one in (await read_guard_directory(session)).receipts if one.container == container), None)


def load_saved_receipt(ctx: CommandContext, instance: str, node: str, container: str) -> GuardReceipt | None:
    """Return the receipt that was kept here, None without one that can be read."""
    return load_state_file(ctx.history.find_receipt(instance, node, container), GuardReceipt)


GUARD_PROTOCOL = 1
MAX_LINE_BYTES = 1 << 20  # bytes: a receipt has some hundred readings, never this many
_CONTAINER_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_SHORT_ID_PATTERN = re.compile(r"[0-9a-f]{12}")
_SOCKET_PATH_PATTERN = re.compile(r"/[\w./-]{1,100}")  # a socket's path: the kernel's own limit is 108 bytes
_MAX_EVENTS = 64  # events and receipts: the guard keeps fewer
_MAX_SAMPLES = 4096


def decode_guard_start(line: bytes) -> GuardProcess | GuardRefusal:
    """Return what the start of a guard printed. Raises ValueError if it is not such a line."""
    data = _decode_object(line, "probe", AGENT_PROTOCOL)
    if data.get("kind") == "refused":
        return _decode_refusal(data)
    started = from_json_data(GuardProcess, data, is_strict=False) if data.get("kind") == "guard" else None
    if started is None or not _SOCKET_PATH_PATTERN.fullmatch(started.socket):
        raise ValueError(f"not the start of a guard: {line[:80]!r}")
    return started


def decode_guard_line(line: bytes) -> GuardState | GuardEvent | GuardReceipt | GuardRefusal | None:
    """Return the content of a line on the guard's socket; None is the answer "there is no such receipt".

    Raises ValueError if it is not a line of this protocol.
    """
    data = _decode_object(line, "guard", GUARD_PROTOCOL)
    kind = data.get("kind")
    if kind == "refused":
        return _decode_refusal(data)
    if kind == "receipt" and data.get("receipt") is None:
        return None
    found: GuardState | GuardEvent | GuardReceipt | None = None
    if kind == "state":
        found = _limit_state(from_json_data(GuardState, data, is_strict=False))
    elif kind == "event":
        found = from_json_data(GuardEvent, data.get("event"), is_strict=False)
    elif kind == "receipt":
        found = _decode_receipt_fields(data.get("receipt"))
    if found is None:
        raise ValueError(f"not a whole {kind} of the guard: {line[:80]!r}")
    return found


def _decode_object(line: bytes, name: str, protocol: int) -> dict[str, object]:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a line of {len(line)} bytes: the guard says nothing that long")
    try:
        data = load_json(line)
    except ValueError as wrong:
        raise ValueError(f"not a line of the guard: {line[:80]!r}") from wrong
    if not isinstance(data, dict) or type(data.get(name)) is not int or data[name] != protocol:
        raise ValueError(f"not protocol {protocol} of the guard: {line[:80]!r}")
    return data


def _decode_refusal(data: dict[str, object]) -> GuardRefusal:
    return from_json_data(GuardRefusal, data, is_strict=False) or GuardRefusal("the guard refused, and did not say why")


def _limit_state(found: GuardState | None) -> GuardState | None:
    if found is None:
        return None
    return replace(
        found,
        watches=tuple(watch for watch in found.watches if _CONTAINER_ID_PATTERN.fullmatch(watch.container)),
        events=found.events[-_MAX_EVENTS:],
        receipts=tuple(one for one in found.receipts if _SHORT_ID_PATTERN.fullmatch(one))[:_MAX_EVENTS],
    )


def _decode_receipt_fields(data: object) -> GuardReceipt | None:
    """Decode a receipt; its readings come as rows, in the order of `MeminfoReading`."""
    if not isinstance(data, dict):
        return None
    rows = data.get("samples")
    names = [field.name for field in fields(GuardMemoryReading)]
    named = [
        dict(zip(names, row, strict=False)) for row in (rows if isinstance(rows, list) else ()) if isinstance(row, list)
    ]
    found = from_json_data(GuardReceipt, {**data, "samples": named[-_MAX_SAMPLES:]}, is_strict=False)
    if found is None or not _CONTAINER_ID_PATTERN.fullmatch(found.container):
        return None
    return replace(found, events=found.events[-_MAX_EVENTS:])
