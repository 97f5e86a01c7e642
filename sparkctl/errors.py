"""Every way sparkctl can refuse or fail, as one tree: what happened, what to do about it, and the exit code."""

from __future__ import annotations

import os
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says to a script. Documented in ``sparkctl --help`` and docs/scripting.md."""

    DONE = 0
    ENGINE_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    UNHEALTHY = 5
    REFUSED = 6
    INTERRUPTED = 130


class SparkctlError(Exception):
    """Base of all. ``message`` says what is, ``hint`` what to do (a command where there is one)."""

    exit_code = ExitCode.ENGINE_FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInput(SparkctlError):
    """A file, flag or name that the operator wrote is wrong."""

    exit_code = ExitCode.USAGE


class OperationRefused(SparkctlError):
    """Looked, and did not act: nothing was changed on any node."""

    exit_code = ExitCode.REFUSED


class ProtocolViolation(SparkctlError):
    """A server's answer breaks its protocol. The caller, which knows the node, makes a `NodeError` of it."""


class MetricsUnreadable(ProtocolViolation):
    """An engine's /metrics page is not what Prometheus' format allows. Says nothing about the engine's health."""

    exit_code = ExitCode.UNHEALTHY


class NodeError(SparkctlError):
    """A node cannot be used now. ``node`` is its configured name."""

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, node: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.node = node


class NodeUnreachable(NodeError):
    """No TCP connection, no route, no such name, or the connection was lost and did not come back."""


class NodeStarved(NodeError):
    """TCP opens but the SSH server does not speak: a machine out of memory, not one that is switched off."""


class LocalStall(NodeError):
    """This process itself was suspended for longer than a time limit, which says nothing about the node."""


class ConnectionLost(NodeError):
    """An established connection broke. Whoever was using it may reconnect and go on."""


class AgentFailed(NodeError):
    """The node is there, and the probe does not run on it: nothing is known of what the node does."""


class GuardUnavailable(OperationRefused):
    """The guard of a node cannot be had, or does not do what it was told. No start fails for it."""


class UnreadableAnswer(NodeError):
    """The node, or something on it, answered with what sparkctl cannot read. It costs this node alone."""


class GuardNotResponding(GuardUnavailable):
    """A guard runs, but does not answer: whether it acts is not known."""


class HostKeyUntrusted(NodeError):
    """The node's host key is not the one we know, or we know none."""


class UnknownHostKey(HostKeyUntrusted):
    """No key is known for this host. ``fingerprint`` is SHA256:..., ``known_hosts_line`` what accepting adds."""

    def __init__(self, node: str, message: str, hint: str, fingerprint: str, known_hosts_line: str) -> None:
        super().__init__(node, message, hint)
        self.fingerprint = fingerprint
        self.known_hosts_line = known_hosts_line


class ChangedHostKey(HostKeyUntrusted):
    """Another key than the known one: a reinstalled node, or somebody in between. Never accepted from here."""


class TransferTampered(NodeError):
    """Bytes between two nodes are not from the node that they should be from, or were changed on their way."""


class LoginRefused(NodeError):
    """The node is there and trusted, and does not let this user in. Never retried in a loop."""


class DockerError(SparkctlError):
    """The Docker Engine refused or failed. ``node`` is the configured name."""

    def __init__(self, node: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.node = node


class DockerPermissionDenied(DockerError):
    """The user may not use the socket: not in group docker (or not yet, until the next login)."""

    exit_code = ExitCode.REFUSED


class DockerUnavailable(DockerError):
    """The socket is missing, refuses, or does not answer in time. Says nothing about the containers."""

    exit_code = ExitCode.UNREACHABLE


class DockerBusy(DockerUnavailable):
    """Docker answers, but did not get one thing done in time."""


class ContainerUnkillable(DockerError):
    """Docker could not end a container, not even by force: it still holds what it held."""

    exit_code = ExitCode.UNHEALTHY


class ForwardingForbidden(DockerError):
    """sshd does not allow socket forwarding and there is no docker command to go through instead."""

    exit_code = ExitCode.REFUSED


class ImageNotFound(DockerError):
    exit_code = ExitCode.REFUSED


class ContainerNameInUse(DockerError):
    exit_code = ExitCode.REFUSED


class PortInUse(DockerError):
    exit_code = ExitCode.REFUSED


class GpuRuntimeMissing(DockerError):
    """The engine was to get the GPU and this Docker has no NVIDIA toolkit."""

    exit_code = ExitCode.REFUSED


class DiskFull(DockerError):
    exit_code = ExitCode.REFUSED


class LogUnreadable(DockerError):
    """The container's log driver keeps nothing that Docker could read: `none`, for one. Asking again changes nothing."""


class ContainerNotFound(DockerError):
    exit_code = ExitCode.REFUSED


def raise_if_debugging(error: Exception) -> None:
    """Raise an error of an unexpected class as it is where SPARKCTL_DEBUG is set: a defect of ours is to be found then."""
    if os.environ.get("SPARKCTL_DEBUG"):
        raise error
