"""Ranks that mpirun started, or could not: what Open MPI, its daemons, ssh, sshd and the scripts of `_mpirun` say of it."""

from __future__ import annotations

from sparkctl.engines.base import Failure, FailureWeight, LineSignal
from sparkctl.engines.log_rules import failure_rule, loading_signal
from sparkctl.engines.trtllm.mpirun import (
    LOGIN_FAILED_TEXT,
    PROGRAM_MISSING_TEXT,
    RANK_ENDED_TEXT,
    SSHD_PORT,
    SSHD_WAIT_TEXT,
)
from sparkctl.model.verdict import FailureCause

_LOOK = "Look at the log of the other node and at the link between the two."
_KEY_REMEDY = (
    "The head's container has the keys of its node's user: ssh from there to the worker's address on the link has to work "
    "without a password (ssh-copy-id), by keys in ~/.ssh without a passphrase that ~/.ssh/config names as ~/.ssh/NAME."
)

MPIRUN_FAILURES = (
    failure_rule(
        rf"{LOGIN_FAILED_TEXT}(?P<ip>\S+): .*Permission denied \(",
        FailureCause.PERMISSION,
        "The head's container could not log in at the worker's ({ip}): its sshd takes none of the keys.",
        _KEY_REMEDY,
        needle=LOGIN_FAILED_TEXT,
        fatal=True,
    ),
    failure_rule(
        rf"{LOGIN_FAILED_TEXT}(?P<ip>\S+): (?P<why>.*)",
        FailureCause.WORKER_LOST,
        "The head's container could not reach the sshd of the worker's ({ip}): {why}",
        _LOOK,
        needle=LOGIN_FAILED_TEXT,
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Permission denied \(publickey",
        FailureCause.PERMISSION,
        "A login from the head's container at a worker's was refused.",
        _KEY_REMEDY,
        needle="Permission denied (",
    ),
    failure_rule(
        rf"{PROGRAM_MISSING_TEXT}(?P<name>\S+), and",
        FailureCause.BAD_VALUE,
        "The image has no {name}, and the container could not install it.",
        "mpirun needs ssh on the head and sshd on the others. Give the Sparks a way to the package server, or build {name} into "
        "the image.",
        needle=PROGRAM_MISSING_TEXT,
        on="image",
        fatal=True,
    ),
    failure_rule(
        rf"Bind to port (?P<port>{SSHD_PORT}) on (?P<ip>\S+) failed: Address already in use",
        FailureCause.PORT_IN_USE,
        "Something else listens on port {port} of the node, where this rank's sshd has to.",
        f"See who it is: ss -ltnp 'sport = :{SSHD_PORT}'. Another model that mpirun started has it, too.",
        needle="Bind to port",
        fatal=True,
    ),
    failure_rule(
        r"^(?:mpirun|prterun) noticed that process rank (?P<rank>\d+) .* exited on signal (?P<signal>\d+)",
        FailureCause.WORKER_LOST,
        "mpirun lost rank {rank}: signal {signal} ended it.",
        f"{_LOOK} Signal 9 is mostly memory that ran out: sudo dmesg says who was killed.",
        needle=" noticed that process rank ",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
)


def _worker_lost(summary: str, remedy: str, weight: FailureWeight) -> LineSignal:
    return LineSignal(failure=Failure(FailureCause.WORKER_LOST, summary, remedy, weight=weight))


_NOT_STARTED = _worker_lost(
    "mpirun could not start its daemon on the other Spark, or heard nothing of it.",
    f"orted has to be in the PATH of the image on both, and the Sparks have to reach each other on the link. {_LOOK}",
    FailureWeight.DEATH,
)
_LOST = _worker_lost("mpirun lost its daemon on the other Spark.", _LOOK, FailureWeight.DEATH)
_NO_COMMAND = LineSignal(
    failure=Failure(
        FailureCause.BAD_VALUE,
        "mpirun could not start the ranks' command.",
        "The lines below it name the program and the node: take an image that has it.",
        "image",
        weight=FailureWeight.LIKELY,
    )
)
_ABORTED = LineSignal(
    failure=Failure(
        FailureCause.CRASHED,
        "A rank of the engine ended itself, and all the others with it.",
        "The lines before this one name the reason, here or in the log of the other node.",
        weight=FailureWeight.AFTERMATH,
    )
)
_ONE_ENDED = _worker_lost("A rank ended, and mpirun ended the others.", _LOOK, FailureWeight.AFTERMATH)

# By their beginnings: these lines hold no word by which a failure is otherwise known.
MPIRUN_SIGNALS = (
    (SSHD_WAIT_TEXT, loading_signal("join")),
    (
        RANK_ENDED_TEXT,
        _worker_lost(
            "mpirun's part on this Spark is over: a rank ended, or the head did.", _LOOK, FailureWeight.AFTERMATH
        ),
    ),
    *((f"{name} was unable to reliably start", _NOT_STARTED) for name in ("ORTE", "PRTE")),
    *((f"{name} has lost communication with a remote daemon", _LOST) for name in ("ORTE", "PRTE")),
    *((f"{name} was unable to", _NO_COMMAND) for name in ("mpirun", "prterun")),
    *((f"{name} detected that one or more processes exited", _ONE_ENDED) for name in ("mpirun", "prterun")),
    ("Primary job  terminated normally, but", _ONE_ENDED),
    ("MPI_ABORT was invoked", _ABORTED),
)
