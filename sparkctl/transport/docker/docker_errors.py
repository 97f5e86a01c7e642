"""Docker's refusals as our own errors: what it said, which kind that is, and what mends it. Pure."""

from __future__ import annotations

import re

from sparkctl.errors import (
    ContainerNameInUse,
    ContainerNotFound,
    ContainerUnkillable,
    DiskFull,
    DockerError,
    DockerPermissionDenied,
    GpuRuntimeMissing,
    ImageNotFound,
    LogUnreadable,
    PortInUse,
)
from sparkctl.model.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.model.secrets import redact

_LONGEST = 4096  # characters of what Docker says
_IMAGE = re.compile(r"no such image:? *(\S+)?", re.IGNORECASE)
_NO_GPU = ("could not select device driver", "unresolvable cdi devices", "unknown or invalid runtime name: nvidia")
_BUSY = ("port is already allocated", "address already in use", "ports are not available")


def error_for_response(node: str, status: int, said: str) -> DockerError:
    """Return the error for Docker's answer ``said`` (a JSON message or plain text) with an HTTP ``status``."""
    words = docker_message(said)
    low = words.lower()
    if status == 409 and "already in use by container" in low:
        return ContainerNameInUse(node, words, "see what it is: docker ps -a; then remove it, or choose another name")
    if status == 404 and (match := _IMAGE.search(words)):
        image = (match[1] or "IMAGE").rstrip(".,")
        return ImageNotFound(node, f"the image {image} is not on {node}", f"on the node: docker pull {image}")
    if "did not receive an exit event" in low or "could not be killed" in low:
        return unkillable(node, words)
    if "does not support reading" in low:
        return LogUnreadable(
            node,
            f"Docker on {node} cannot read the log: {words}",
            "its log driver keeps nothing to read. In the profile set container.options.log-driver: json-file (or, on "
            f"{node}, log-driver in /etc/docker/daemon.json), and start it anew",
        )
    if status == 404 and "no such container" in low:
        return ContainerNotFound(node, words, "list what there is: docker ps -a")
    if any(mark in low for mark in _NO_GPU):
        return GpuRuntimeMissing(
            node,
            f"Docker on {node} has no NVIDIA runtime: {words}",
            "on the node: sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
            "--runtime=docker && sudo systemctl restart docker",
        )
    if any(mark in low for mark in _BUSY):
        return PortInUse(node, words, "see who listens, on the node: sudo ss -ltnp; or give the profile another port")
    if "no space left on device" in low:
        return DiskFull(node, words, "see what fills it, on the node: df -h; docker system df")
    if status == 403 or "permission denied while trying to connect" in low:
        return DockerPermissionDenied(
            node, words, "on the node: sudo usermod -aG docker $USER (counts from the next login)"
        )
    if "exec format error" in low or "no matching manifest" in low or "does not match the specified platform" in low:
        return DockerError(node, words, "the image is made for another processor; a Spark needs linux/arm64")
    if "executable file not found" in low or "no such file or directory: unknown" in low:
        return DockerError(node, words, "the image has no such program: check the profile's entrypoint and command")
    return DockerError(node, words or f"Docker on {node} answered with status {status}")


def unkillable(node: str, words: str) -> ContainerUnkillable:
    """Return the error for a container that does not end, not even by force."""
    return ContainerUnkillable(
        node,
        f"Docker on {node} could not end the container, not even by force: {words}",
        f"on {node}: ps -eo pid,stat,wchan:20,cmd | grep -E ' [DT]'   a process in state D waits for a driver or a disk, and "
        "only a reboot ends it; else: sudo systemctl restart docker",
    )


def docker_message(said: str) -> str:
    """Return Docker's own words as one printable line, taken out of their JSON."""
    try:
        data = load_json(said)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        said = data["message"]
    return truncate_text(
        redact(" ".join(sanitize_line(line) for line in said[:_LONGEST].split("\n")).strip()), _LONGEST
    )
