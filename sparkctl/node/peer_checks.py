"""Check whether a node reaches others over given interfaces: the script (`peer_ping.sh`), and the decoder of its
output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line

PING_TIMEOUT_SECONDS = 8.0  # seconds; the script itself ends within 5
_SECTION_HEADER = "@@ "
_PACKET_COUNT_PATTERN = re.compile(r"(?<!\d)(\d{1,12}) packets transmitted, (\d{1,12}) (?:packets )?received")
_REACHED_CODES = ("OK", "ECONNREFUSED")  # a refusal also comes from the other end
_UNREACHABLE_REASONS = {
    "EHOSTUNREACH": "nothing there answers at that address",
    "ENETUNREACH": "no route",
    "EAGAIN": "no answer on TCP either",
    "ETIMEDOUT": "no answer on TCP either",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PingTarget:
    """The address to reach and the interface; ``size``: bytes of a packet that must pass unfragmented, 0 for no such
    test.
    """

    interface: str
    own: str
    peer: str
    size: int
    device: str | None = None

    @property
    def script_argument(self) -> str:
        return f"{self.interface} {self.own} {self.peer} {self.size} {self.device or '-'}"


@dataclass(frozen=True, slots=True)
class PingReply:
    """Whether a peer answered; None: not known, and ``words`` say why. ``to_ping``: it answered a ping."""

    answered: bool | None
    words: str = ""
    to_ping: bool = False


@dataclass(frozen=True, slots=True)
class PingReport:
    """The result of one node. By (interface, peer); carriers by interface, RDMA states by device."""

    reached: dict[tuple[str, str], PingReply] = field(default_factory=dict)
    large: dict[tuple[str, str], PingReply] = field(default_factory=dict)
    carriers: dict[str, bool] = field(default_factory=dict)
    rdma: dict[str, str] = field(default_factory=dict)


def decode_ping_report(answer: bytes) -> PingReport:
    """Return the content of the script's output. Raises ValueError if it is incomplete."""
    found = PingReport()
    tcp: dict[tuple[str, str], str] = {}
    complete = False
    for words, body in _split_sections(answer.decode("utf-8", "replace")):
        match words:
            case ["ping", interface, peer, size]:
                (found.reached if size == "0" else found.large)[interface, peer] = _parse_ping_output(body)
            case ["tcp", interface, peer]:
                tcp[interface, peer] = body
            case ["link", interface, ("0" | "1") as carrier]:
                found.carriers[interface] = carrier == "1"
            case ["rdma", device, _, state]:
                found.rdma[device] = state
            case ["end"]:
                complete = True
    if not complete:
        raise ValueError("the answer was cut short")
    for key, word in tcp.items():
        found.reached[key] = _combine_with_tcp(found.reached.get(key, PingReply(None)), word)
    return found


def _split_sections(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield each header's words with the lines below it; what a login shell prints before the first is ignored."""
    for part in re.split(rf"^{_SECTION_HEADER}", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        yield sanitize_line(head).split(), body.strip()


def _parse_ping_output(output: str) -> PingReply:
    last = sanitize_line(output.splitlines()[-1].strip()) if output else ""
    if "essage too long" in output:
        return PingReply(False, "its own interface takes no packet of that size")
    if "nreachable" in output and not re.search(r"(?<!\d)[1-9]\d{0,11} (?:packets )?received", output):
        return PingReply(False, "unreachable" if "ost" in output else "no route")
    if count := _PACKET_COUNT_PATTERN.search(output):
        return PingReply(True, to_ping=True) if int(count[2]) else PingReply(False, "no answer to ping")
    return PingReply(None, last or "no ping command")


def _combine_with_tcp(ping: PingReply, word: str) -> PingReply:
    """Combine the results of ping and a TCP connection: one answer of either is enough."""
    if word in _REACHED_CODES:
        return PingReply(True)
    if word in _UNREACHABLE_REASONS:
        return PingReply(
            False,
            _UNREACHABLE_REASONS[word] if ping.answered is None else f"{ping.words}, {_UNREACHABLE_REASONS[word]}",
        )
    return ping


LOGIN_SCRIPT_MARKER = "# sparkctl login 1"
LOGIN_SCRIPT_COMMAND = ("sh", "-s", "--")
LOGIN_SCRIPT = f"""\
{LOGIN_SCRIPT_MARKER}
echo "@@ login"
id -un
echo "${{SSH_CONNECTION##* }}"
[ -f ~/.ssh/authorized_keys ] && echo listed
echo "@@ end"
""".encode()
_DEFAULT_SSH_PORT = "22"
_SSH_COMMAND = (
    *("env", "-u", "SSH_AUTH_SOCK", "ssh", "-n", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=8", "-o", "ControlPath=none", "-o", "ProxyCommand=none"),
)


@dataclass(frozen=True, slots=True)
class SshLoginTarget:
    """The user's login on a node, and the port of the sshd in use; ``has_keys``: an authorized_keys file exists."""

    user: str
    port: str
    has_keys: bool


def decode_login_target(answer: bytes) -> SshLoginTarget:
    """Return the node's answer, whatever its login shell prints around it. Raises ValueError if it is incomplete."""
    lines = [sanitize_line(line) for line in answer.decode("utf-8", "replace").splitlines()]
    if "@@ login" not in lines or "@@ end" not in (lines := lines[lines.index("@@ login") + 1 :]):
        raise ValueError("the answer is incomplete")
    lines = lines[: lines.index("@@ end")]
    if len(lines) < 2:
        raise ValueError("the answer is incomplete")
    return SshLoginTarget(lines[0], lines[1] if lines[1].isdigit() else _DEFAULT_SSH_PORT, "listed" in lines[2:])


def build_login_test_command(entry: SshLoginTarget, address: str, *, knows_host: bool = False) -> tuple[str, ...]:
    """Return the command that logs in there and does nothing. ``knows_host``: only where known_hosts holds its key.

    As in a container it uses no ssh-agent and accepts an unknown host; the node's known_hosts stay unchanged.
    """
    # of an option given twice ssh takes the first
    known = ("StrictHostKeyChecking=yes", "UserKnownHostsFile=~/.ssh/known_hosts", "UpdateHostKeys=no")
    strict = [word for option in known for word in ("-o", option)] if knows_host else []
    env, ssh = _SSH_COMMAND[:4], _SSH_COMMAND[4:]
    return (*env, *strict, *ssh, "-p", entry.port, "-l", entry.user, address, "true")
