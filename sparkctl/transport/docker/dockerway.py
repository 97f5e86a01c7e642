"""Why Docker's socket cannot be opened over SSH: sshd says "open failed" for every reason, so the node is asked."""

from __future__ import annotations

from sparkctl.errors import DockerPermissionDenied, DockerUnavailable, ForwardingForbidden
from sparkctl.model.sanitize import sanitize_line
from sparkctl.transport.node_connection import NodeConnection

DOCKER_SOCKET = "/var/run/docker.sock"
_LIMIT = 10.0
# Asks in this order: is it there, may we, is it in /etc/group already, is there a docker command to go through.
_PROBE = f"""
s={DOCKER_SOCKET}
if [ -S "$s" ]; then echo socket=yes; else echo socket=no; fi
if [ -r "$s" ] && [ -w "$s" ]; then echo access=yes; else echo access=no; fi
if command -v docker >/dev/null 2>&1; then echo cli=yes; else echo cli=no; fi
if command -v dockerd >/dev/null 2>&1 || [ -x /usr/bin/dockerd ] || [ -x /usr/sbin/dockerd ]
then echo daemon=yes; else echo daemon=no; fi
echo "user=$(id -un)"
if grep '^docker:' /etc/group | tr ':,' '\\n\\n' | tail -n +4 | grep -qxF "$(id -un)"
then echo member=yes; else echo member=no; fi
"""
_PING = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"


async def raise_socket_error(link: NodeConnection) -> None:
    """Raise what keeps us from Docker's socket. Returns where only sshd does and `docker system dial-stdio` works."""
    node = link.node.name
    try:
        done = await link.run(["sh", "-s"], stdin=_PROBE.encode(), timeout=_LIMIT)
    except TimeoutError as error:
        raise DockerUnavailable(node, f"{node} did not say within {_LIMIT:g} s why Docker cannot be reached") from error
    facts = dict(line.split("=", 1) for line in done.stdout.decode("utf-8", "replace").splitlines() if "=" in line)
    raise_for_socket_facts(node, facts)
    if facts.get("cli") != "yes":
        raise _forwarding_error(node)
    await _check_dial_stdio(link)


def raise_for_socket_facts(node: str, facts: dict[str, str]) -> None:
    """Raise DockerDown or DockerDenied where the probe's answers suffice to tell."""
    user = sanitize_line(facts.get("user", "your user"))
    if facts.get("socket") != "yes" and facts.get("daemon") != "yes":
        hint = "install it on the node (DGX OS has it): sudo apt-get install docker.io"
        raise DockerUnavailable(node, f"there is no Docker on {node}", hint)
    if facts.get("socket") != "yes":
        raise DockerUnavailable(node, f"Docker is not running on {node}", "on the node: sudo systemctl start docker")
    if facts.get("access") != "yes" and facts.get("member") == "yes":
        raise DockerPermissionDenied(
            node,
            f"{user} is in group docker on {node}, and this login is older than that",
            "end the user's sessions so that the next login counts, on the node: sudo loginctl terminate-user " + user,
        )
    if facts.get("access") != "yes":
        raise DockerPermissionDenied(
            node,
            f"{user} may not use Docker on {node}: not in group docker",
            f"on the node: sudo usermod -aG docker {user} (counts from the next login)",
        )


async def _check_dial_stdio(link: NodeConnection) -> None:
    """Ask Docker for a sign of life through its own command; raise DockerDown with its words where there is none."""
    node = link.node.name
    try:
        done = await link.run(["docker", "system", "dial-stdio"], stdin=_PING, timeout=_LIMIT)
    except TimeoutError as error:
        raise no_response_error(node, _LIMIT) from error
    if done.stdout.startswith(b"HTTP/"):
        return
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if words and "unknown command" in words[0]:
        raise _forwarding_error(node)
    raise DockerUnavailable(
        node,
        f"Docker does not answer on {node}" + (f": {sanitize_line(words[-1])}" if words else ""),
        "on the node: sudo systemctl status docker",
    )


def no_response_error(node: str, limit: float) -> DockerUnavailable:
    """Return the error for a daemon that takes connections and says nothing."""
    return DockerUnavailable(
        node,
        f"Docker on {node} did not answer within {limit:g} s; what runs, runs on",
        "on the node: sudo systemctl status docker",
    )


def _forwarding_error(node: str) -> ForwardingForbidden:
    return ForwardingForbidden(
        node,
        f"sshd on {node} does not forward unix sockets, and there is no docker command to go through instead",
        "set `AllowStreamLocalForwarding yes` and `AllowTcpForwarding yes` in /etc/ssh/sshd_config on the node, "
        "then: sudo systemctl reload ssh",
    )
