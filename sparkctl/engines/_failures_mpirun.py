"""Ranks that mpirun started, or could not: what Open MPI, its daemons, ssh, sshd and the scripts of `_mpirun` say of it."""

from __future__ import annotations

from sparkctl.engines._mpirun import NO_LOGIN, NO_PROGRAM, OVER, PORT, WAITING
from sparkctl.engines._vocabulary import loading, rule
from sparkctl.engines.base import Failure, Signal, Weight
from sparkctl.model.verdict import Cause

_LOOK = "Look at the log of the other node and at the link between the two."
_KEYS = (
    "The head's container has the keys of its node's user: ssh from there to the worker's address on the link has to work "
    "without a password (ssh-copy-id), by keys in ~/.ssh without a passphrase that ~/.ssh/config names as ~/.ssh/NAME."
)

MPIRUN = (
    rule(
        rf"{NO_LOGIN}(?P<ip>\S+): .*Permission denied \(",
        Cause.PERMISSION,
        "The head's container could not log in at the worker's ({ip}): its sshd takes none of the keys.",
        _KEYS,
        needle=NO_LOGIN,
        fatal=True,
    ),
    rule(
        rf"{NO_LOGIN}(?P<ip>\S+): (?P<why>.*)",
        Cause.WORKER_LOST,
        "The head's container could not reach the sshd of the worker's ({ip}): {why}",
        _LOOK,
        needle=NO_LOGIN,
        fatal=True,
        weight=Weight.DEATH,
    ),
    rule(
        r"Permission denied \(publickey",
        Cause.PERMISSION,
        "A login from the head's container at a worker's was refused.",
        _KEYS,
        needle="Permission denied (",
    ),
    rule(
        rf"{NO_PROGRAM}(?P<name>\S+), and",
        Cause.BAD_VALUE,
        "The image has no {name}, and the container could not install it.",
        "mpirun needs ssh on the head and sshd on the others. Give the Sparks a way to the package server, or build {name} into "
        "the image.",
        needle=NO_PROGRAM,
        on="image",
        fatal=True,
    ),
    rule(
        rf"Bind to port (?P<port>{PORT}) on (?P<ip>\S+) failed: Address already in use",
        Cause.PORT_IN_USE,
        "Something else listens on port {port} of the node, where this rank's sshd has to.",
        f"See who it is: ss -ltnp 'sport = :{PORT}'. Another model that mpirun started has it, too.",
        needle="Bind to port",
        fatal=True,
    ),
    rule(
        r"^(?:mpirun|prterun) noticed that process rank (?P<rank>\d+) .* exited on signal (?P<signal>\d+)",
        Cause.WORKER_LOST,
        "mpirun lost rank {rank}: signal {signal} ended it.",
        f"{_LOOK} Signal 9 is mostly memory that ran out: sudo dmesg says who was killed.",
        needle=" noticed that process rank ",
        fatal=True,
        weight=Weight.DEATH,
    ),
)


def _lost(summary: str, remedy: str, weight: Weight) -> Signal:
    return Signal(failure=Failure(Cause.WORKER_LOST, summary, remedy, weight=weight))


_NOT_STARTED = _lost(
    "mpirun could not start its daemon on the other Spark, or heard nothing of it.",
    f"orted has to be in the PATH of the image on both, and the Sparks have to reach each other on the link. {_LOOK}",
    Weight.DEATH,
)
_LOST = _lost("mpirun lost its daemon on the other Spark.", _LOOK, Weight.DEATH)
_NO_COMMAND = Signal(
    failure=Failure(
        Cause.BAD_VALUE,
        "mpirun could not start the ranks' command.",
        "The lines below it name the program and the node: take an image that has it.",
        "image",
        weight=Weight.LIKELY,
    )
)
_ABORTED = Signal(
    failure=Failure(
        Cause.CRASHED,
        "A rank of the engine ended itself, and all the others with it.",
        "The lines before this one name the reason, here or in the log of the other node.",
        weight=Weight.AFTERMATH,
    )
)
_ONE_ENDED = _lost("A rank ended, and mpirun ended the others.", _LOOK, Weight.AFTERMATH)

# By their beginnings: these lines hold no word by which a failure is otherwise known.
SAID = (
    (WAITING, loading("join")),
    (OVER, _lost("mpirun's part on this Spark is over: a rank ended, or the head did.", _LOOK, Weight.AFTERMATH)),
    *((f"{name} was unable to reliably start", _NOT_STARTED) for name in ("ORTE", "PRTE")),
    *((f"{name} has lost communication with a remote daemon", _LOST) for name in ("ORTE", "PRTE")),
    *((f"{name} was unable to", _NO_COMMAND) for name in ("mpirun", "prterun")),
    *((f"{name} detected that one or more processes exited", _ONE_ENDED) for name in ("mpirun", "prterun")),
    ("Primary job  terminated normally, but", _ONE_ENDED),
    ("MPI_ABORT was invoked", _ABORTED),
)
