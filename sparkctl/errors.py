"""The error tree of sparkctl: each error has a message (what happened), a hint (what to do) and an exit code; and "did you mean"."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of sparkctl. Documented in ``sparkctl --help`` and docs/scripting.md."""

    DONE = 0
    ENGINE_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    UNHEALTHY = 5
    REFUSED = 6
    WRITE_FAILED = 74  # EX_IOERR of sysexits.h
    INTERRUPTED = 130


class SparkctlError(Exception):
    """Base class of all errors. ``message`` says what happened, ``hint`` what to do (a command if there is one)."""

    exit_code = ExitCode.ENGINE_FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def add_message(self, other: SparkctlError) -> SparkctlError:
        """Append another error's message. Return this error, so that the caller can raise it."""
        self.message = f"{self.message}; {other.message}"
        self.args = (self.message,)
        return self


class InvalidInput(SparkctlError):
    """A file, option or name given by the operator is invalid."""

    exit_code = ExitCode.USAGE


class OperationRefused(SparkctlError):
    """The operation was refused after a check; nothing was changed on any node."""

    exit_code = ExitCode.REFUSED


class ServiceUnproved(SparkctlError):
    """A service answers, and its answer is not what it is there for: no sound from a speech server."""

    exit_code = ExitCode.UNHEALTHY


class ProtocolViolation(SparkctlError):
    """A server's answer breaks its protocol. The caller, which knows the node, turns it into a `NodeError`."""


class MetricsUnreadable(ProtocolViolation):
    """An engine's /metrics page is not valid Prometheus text. It does not mean that the engine is unhealthy."""

    exit_code = ExitCode.UNHEALTHY


class NodeError(SparkctlError):
    """A node cannot be used now. ``node`` is its configured name."""

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, node: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.node = node


class NodeUnreachable(NodeError):
    """The node cannot be reached: no TCP connection, no route, an unknown name, or a lost connection."""


class NodeStarved(NodeError):
    """TCP connects but the SSH server does not answer: the node is out of memory, not switched off."""


class LocalStall(NodeError):
    """This process itself was suspended for longer than a time limit; the node may be fine."""


class ConnectionLost(NodeError):
    """An established connection broke. The caller may reconnect and continue."""


class AgentFailed(NodeError):
    """The node answers, but the agent does not run on it, so that its state is not known."""


class GuardUnavailable(OperationRefused):
    """The guard of a node is not available or does not obey. No start fails because of it."""


class UnreadableAnswer(NodeError):
    """The node, or a service on it, gave an answer that sparkctl cannot read. Only this node is affected."""


class GuardNotResponding(GuardUnavailable):
    """The guard runs but does not answer, so that it is not known whether it acts."""


class HostKeyUntrusted(NodeError):
    """The node's host key is unknown or differs from the known one."""


class UnknownHostKey(HostKeyUntrusted):
    """No key is known for this host. ``fingerprint`` is SHA256:..., ``known_hosts_line`` is the line that accepting adds."""

    def __init__(self, node: str, message: str, hint: str, fingerprint: str, known_hosts_line: str) -> None:
        super().__init__(node, message, hint)
        self.fingerprint = fingerprint
        self.known_hosts_line = known_hosts_line


class ChangedHostKey(HostKeyUntrusted):
    """The host key differs from the known one: a reinstalled node, or an attack. sparkctl never accepts it."""


class TransferTampered(NodeError):
    """Data between two nodes comes from a wrong sender or was changed on the way."""


class LoginRefused(NodeError):
    """The node is reachable and trusted, but refuses the login. Never retried in a loop."""


class DockerError(SparkctlError):
    """The Docker Engine refused or failed. ``node`` is the configured name."""

    def __init__(self, node: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.node = node


class DockerPermissionDenied(DockerError):
    """The user may not use the socket: not in group docker (or not yet, until the next login)."""

    exit_code = ExitCode.REFUSED


class DockerUnavailable(DockerError):
    """The socket is missing, refuses, or does not answer in time. The containers may be fine."""

    exit_code = ExitCode.UNREACHABLE


class DockerBusy(DockerUnavailable):
    """Docker answers, but did not finish a request in time."""


class ContainerUnkillable(DockerError):
    """Docker could not end a container, not even with SIGKILL; it still holds its memory and devices."""

    exit_code = ExitCode.UNHEALTHY


class ForwardingForbidden(DockerError):
    """sshd does not allow socket forwarding, and the node has no docker command to use instead."""

    exit_code = ExitCode.REFUSED


class ImageNotFound(DockerError):
    """A node does not have an image, or its registry does not give it one: none of that name, none for a Spark, no login."""

    exit_code = ExitCode.REFUSED


class ContainerNameInUse(DockerError):
    exit_code = ExitCode.REFUSED


class PortInUse(DockerError):
    """``holder``: the instance or container that has the port, as far as known; ``free_port``: one to take instead."""

    exit_code = ExitCode.REFUSED

    def __init__(
        self, node: str, message: str, hint: str | None = None, holder: str | None = None, free_port: int | None = None
    ) -> None:
        super().__init__(node, message, hint)
        self.holder, self.free_port = holder, free_port


class GpuRuntimeMissing(DockerError):
    """The engine needs the GPU, but this Docker has no NVIDIA container toolkit."""

    exit_code = ExitCode.REFUSED


FREE_DOCKER_DISK = (
    "docker system df; docker builder prune; docker image prune"  # what to run on a node whose disk is full
)


class DiskFull(DockerError):
    exit_code = ExitCode.REFUSED


class LogUnreadable(DockerError):
    """Docker cannot read logs of the container's log driver, for example `none`. Retrying does not help."""


class ContainerNotFound(DockerError):
    exit_code = ExitCode.REFUSED


def raise_if_debugging(error: Exception) -> None:
    """Raise the error unchanged if SPARKCTL_DEBUG is set, so that its traceback shows the defect."""
    if os.environ.get("SPARKCTL_DEBUG"):
        raise error


def find_closest_match(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice nearest to ``word``, None where none is near. Case, dashes and underscores do not count.

    ``cutoff``: how alike they have to be, from 0 to 1 (difflib's ratio).
    """
    import difflib

    folded = {_normalize_word(choice): choice for choice in choices}
    if exact := folded.get(_normalize_word(word)):
        return exact
    typed = _normalize_word(word)[:80]
    near = difflib.get_close_matches(typed, folded, n=5, cutoff=cutoff)
    swapped = [one for one in near if sorted(one) == sorted(typed)]  # two letters in the wrong order
    return folded[(swapped or near)[0]] if near else None


def format_did_you_mean(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean `port`?``, or an empty string where nothing is near."""
    near = find_closest_match(word, choices, cutoff)
    return f"; did you mean `{near}`?" if near is not None and near != word else ""


def _normalize_word(word: str) -> str:
    return word.casefold().replace("-", "_")
