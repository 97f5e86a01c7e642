"""How a node is entered by SSH from another, and the attempt itself: no agent, no prompt, nothing written."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.sanitize import sanitize_line

FIRST_LINE = "# sparkctl login 1"
COMMAND = ("sh", "-s", "--")
LOGIN_SCRIPT = f"""\
{FIRST_LINE}
echo "@@ login"
id -un
echo "${{SSH_CONNECTION##* }}"
[ -f ~/.ssh/authorized_keys ] && echo listed
echo "@@ end"
""".encode()
_USUAL = "22"
_SSH = (
    *("env", "-u", "SSH_AUTH_SOCK", "ssh", "-n", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=8", "-o", "ControlPath=none", "-o", "ProxyCommand=none"),
)


@dataclass(frozen=True, slots=True)
class SshLoginTarget:
    """Who we are on a node, and the port of the sshd by which we came; ``has_keys``: there is a list of who may log in."""

    user: str
    port: str
    has_keys: bool


def decode_login_target(answer: bytes) -> SshLoginTarget:
    """Return what a node said, whatever its login shell prints around it; raises ValueError for anything else."""
    lines = [sanitize_line(line) for line in answer.decode("utf-8", "replace").splitlines()]
    if "@@ login" not in lines or "@@ end" not in (lines := lines[lines.index("@@ login") + 1 :]):
        raise ValueError("the answer is not whole")
    lines = lines[: lines.index("@@ end")]
    if len(lines) < 2:
        raise ValueError("the answer is not whole")
    return SshLoginTarget(lines[0], lines[1] if lines[1].isdigit() else _USUAL, "listed" in lines[2:])


def login_test_command(entry: SshLoginTarget, address: str) -> tuple[str, ...]:
    """Return the command that logs in there and does nothing. As in a container of ours no agent helps it, and a host that was
    never seen is taken; what the node knows of hosts is left as it is."""
    return (*_SSH, "-p", entry.port, "-l", entry.user, address, "true")
