"""Collects the guard's receipts from a node: what it stopped, also when no guard runs any more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparkctl.context import CommandContext
from sparkctl.errors import NodeError
from sparkctl.files import load_state_file
from sparkctl.model.guard_state import GuardReceipt, GuardRole
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.verdict import FailureCause
from sparkctl.node.guard_decoder import decode_guard_line
from sparkctl.transport.node_session import NodeSession

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

    socket: str | None = None
    receipts: tuple[GuardReceipt, ...] = ()
    others: int = 0
    ends_at_logout: bool = False
    states: tuple[str, ...] = ()

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
        said = decode_guard_line(b'{"guard":1,"kind":"receipt","receipt":' + line + b"}")
    except ValueError:
        return None
    return said if isinstance(said, GuardReceipt) else None


def save_receipt(ctx: CommandContext, session: NodeSession, receipt: GuardReceipt, warn: Callable[[str], None]) -> bool:
    """Save a receipt beside the container's log and record the failed start; return False if it was saved before."""
    instance, node = receipt.instance or receipt.container[:12], session.node.name
    try:
        if ctx.history.find_receipt(instance, node, receipt.container) is not None:
            return False
        ctx.history.save_receipt(instance, node, receipt.container, json.dumps(to_json_data(receipt)) + "\n")
        if receipt.profile is not None and receipt.role is not GuardRole.SERVING:
            ctx.history.record_failure(
                receipt.profile, "", node, FailureCause.GUARD_STOPPED, receipt.container, receipt.at
            )
    except OSError as error:
        warn(f"the guard's receipt for {instance} was not saved: {error}")
    return True


async def read_receipt(session: NodeSession, container: str) -> GuardReceipt | None:
    """Return the receipt that lies on the node for a container (its whole id), None where there is none."""
    return next((one for one in (await read_guard_directory(session)).receipts if one.container == container), None)


def load_saved_receipt(ctx: CommandContext, instance: str, node: str, container: str) -> GuardReceipt | None:
    """Return the receipt that was kept here, None without one that can be read."""
    return load_state_file(ctx.history.find_receipt(instance, node, container), GuardReceipt)
