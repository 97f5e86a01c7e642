"""Maps Docker's errors to our own: the message, the kind of error, and the remedy."""

from __future__ import annotations

import re

from sparkctl.errors import (
    ContainerNameInUse,
    ContainerNotFound,
    ContainerUnkillable,
    DiskFull,
    DockerError,
    DockerPermissionDenied,
    DockerUnavailable,
    ForwardingForbidden,
    GpuRuntimeMissing,
    ImageNotFound,
    LogUnreadable,
    PortInUse,
)
from sparkctl.model.text.sanitize import load_json_map, sanitize_line, truncate_text
from sparkctl.transport.node_connection import NodeConnection

_MAX_MESSAGE_CHARS = 4096  # characters of Docker's message
_MISSING_IMAGE_PATTERN = re.compile(r"no such image:? *(\S+)?", re.IGNORECASE)
_NO_GPU_MARKS = (
    "could not select device driver",
    "unresolvable cdi devices",
    "unknown or invalid runtime name: nvidia",
)
_PORT_BUSY_MARKS = ("port is already allocated", "address already in use", "ports are not available")


def error_for_response(node: str, status: int, body: str) -> DockerError:
    """Return the error for Docker's answer ``body`` (a JSON message or plain text) with an HTTP ``status``."""
    words = parse_docker_message(body)
    low = words.lower()
    if status == 409 and "already in use by container" in low:
        return ContainerNameInUse(node, words, "check what it is: docker ps -a; then remove it, or choose another name")
    if status == 404 and (match := _MISSING_IMAGE_PATTERN.search(words)):
        image = (match[1] or "IMAGE").rstrip(".,")
        return ImageNotFound(node, f"the image {image} is not on {node}", f"on the node: docker pull {image}")
    if "did not receive an exit event" in low or "could not be killed" in low:
        return unkillable_error(node, words)
    if "does not support reading" in low:
        return LogUnreadable(
            node,
            f"Docker on {node} cannot read the log: {words}",
            "its log driver keeps nothing to read. In the profile set container.options.log-driver: json-file (or, on "
            f"{node}, log-driver in /etc/docker/daemon.json), and start it again",
        )
    if (status == 404 and "no such container" in low) or (status == 409 and "dead or marked for removal" in low):
        return ContainerNotFound(node, words, "list what there is: docker ps -a")
    if any(mark in low for mark in _NO_GPU_MARKS):
        return GpuRuntimeMissing(
            node,
            f"Docker on {node} has no NVIDIA runtime: {words}",
            "on the node: sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
            "--runtime=docker && sudo systemctl restart docker",
        )
    if any(mark in low for mark in _PORT_BUSY_MARKS):
        return PortInUse(node, words, "see who listens, on the node: sudo ss -ltnp; or give the profile another port")
    if "no space left on device" in low:
        return DiskFull(node, words, "see what fills it, on the node: df -h; docker system df")
    if status == 403 or "permission denied while trying to connect" in low:
        return DockerPermissionDenied(
            node,
            words,
            f"sparkctl setup {node}; or on the node: sudo usermod -aG docker $USER (counts from the next login)",
        )
    if "exec format error" in low or "no matching manifest" in low or "does not match the specified platform" in low:
        return DockerError(node, words, "the image is made for another processor; a Spark needs linux/arm64")
    if "executable file not found" in low or "no such file or directory: unknown" in low:
        return DockerError(node, words, "the image has no such program: check the profile's entrypoint and command")
    return DockerError(node, words or f"Docker on {node} answered with status {status}")


def unkillable_error(node: str, words: str) -> ContainerUnkillable:
    return ContainerUnkillable(
        node,
        f"Docker on {node} could not end the container, not even by force: {words}",
        f"on {node}: ps -eo pid,stat,wchan:20,cmd | grep -E ' [DT]'   a process in state D waits for a driver or a disk, and "
        "only a reboot ends it; else: sudo systemctl restart docker",
    )


def parse_docker_message(message: str) -> str:
    """Return Docker's message from its JSON as one printable line."""
    from sparkctl.model.text.secrets import redact

    if isinstance(words := (load_json_map(message) or {}).get("message"), str):
        message = words
    return truncate_text(
        redact(" ".join(sanitize_line(line) for line in message[:_MAX_MESSAGE_CHARS].split("\n")).strip()),
        _MAX_MESSAGE_CHARS,
    )


DOCKER_SOCKET = "/var/run/docker.sock"
_SOCKET_CHECK_SECONDS = 10.0
# Checks in this order: does it exist, may we use it, is the user in /etc/group, is there a docker command to use instead.
_SOCKET_CHECK_SCRIPT = f"""
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
_PING_REQUEST = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"


async def raise_socket_error(link: NodeConnection) -> None:
    """Raise the reason why Docker's socket is not usable. Return if only sshd blocks it and `docker system dial-stdio` works."""
    node = link.node.name
    try:
        done = await link.run(["sh", "-s"], stdin=_SOCKET_CHECK_SCRIPT.encode(), timeout=_SOCKET_CHECK_SECONDS)
    except TimeoutError as error:
        raise DockerUnavailable(
            node, f"{node} did not say within {_SOCKET_CHECK_SECONDS:g} s why Docker cannot be reached"
        ) from error
    facts = dict(line.split("=", 1) for line in done.stdout.decode("utf-8", "replace").splitlines() if "=" in line)
    raise_for_socket_facts(node, facts)
    if facts.get("cli") != "yes":
        raise _forwarding_error(node)
    await _check_dial_stdio(link)


def raise_for_socket_facts(node: str, facts: dict[str, str]) -> None:
    """Raise DockerUnavailable or DockerPermissionDenied if the check's answers prove it."""
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
            f"sparkctl setup {node}; or on the node: sudo usermod -aG docker {user} (counts from the next login)",
        )


async def _check_dial_stdio(link: NodeConnection) -> None:
    """Check Docker through its own command; raise DockerUnavailable with the command's message if that fails."""
    node = link.node.name
    try:
        done = await link.run(["docker", "system", "dial-stdio"], stdin=_PING_REQUEST, timeout=_SOCKET_CHECK_SECONDS)
    except TimeoutError as error:
        raise no_response_error(node, _SOCKET_CHECK_SECONDS) from error
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
    """Return the error for a daemon that accepts connections but does not answer."""
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
