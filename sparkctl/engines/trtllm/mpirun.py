"""Ranks that mpirun starts (Open MPI 4 and 5): an sshd in each worker's container, and the head's container logs in there.

The keys are those of the nodes' users, mounted read-only and copied inside, as in NVIDIA's playbook: passwordless SSH between
the Sparks is part of its set-up. A key pair made for one start would need none of that; but it would have to lie on each node,
or in the containers' environment, for as long as they are kept (a rollback starts them again), where the user's own lie anyway.
The head alone gets private keys; a worker gets the list of who may log in, and listens on its address on the link only.

A rank that is started through sshd would have sshd's environment. So its container writes down its own, for root alone to
read, and every session begins with it: what differs from Spark to Spark stays right, and no token is on a command line.
"""

from __future__ import annotations

from sparkctl.engines.base import EngineRank, Failure, FailureWeight, LineSignal
from sparkctl.engines.log_rules import failure_rule, loading_signal
from sparkctl.model.verdict import FailureCause

SSHD_PORT = 2233  # as in NVIDIA's playbook
_KEYS_MOUNT = "/tmp/.ssh"  # noqa: S108  where the mounts are
_RANK_DIRECTORY = "/run/sparkctl-ranks"

# The failure rules below match these lines.
SSHD_WAIT_TEXT = "Waiting for sshd on "
LOGIN_FAILED_TEXT = "Error: cannot log in at the worker "
PROGRAM_MISSING_TEXT = "Error: the image lacks "
RANK_ENDED_TEXT = "This rank is over: "

_INSTALL_SCRIPT = f"""\
mkdir -p {_RANK_DIRECTORY}
has() {{
  command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] && return
  echo "Installing $2, which the image lacks"
  export DEBIAN_FRONTEND=noninteractive
  {{ apt-get update && apt-get install -y --no-install-recommends "$2"; }} >{_RANK_DIRECTORY}/apt 2>&1 && return
  tail -n 3 {_RANK_DIRECTORY}/apt
  echo "{PROGRAM_MISSING_TEXT}$2, and it could not be installed"
  exit 1
}}
"""
# Ends with mpirun's session: without its head a worker is useless, and would look alive.
_WORKER_SCRIPT = f"""\
has sshd openssh-server
mkdir -p /run/sshd
umask 077
cp {_KEYS_MOUNT}/authorized_keys {_RANK_DIRECTORY}/keys
export -p >{_RANK_DIRECTORY}/env
printf '%s\\n' "$2" >{_RANK_DIRECTORY}/session
[ -f {_RANK_DIRECTORY}/host ] || ssh-keygen -q -t ed25519 -N '' -f {_RANK_DIRECTORY}/host
"$(command -v sshd || echo /usr/sbin/sshd)" -D -e -f /dev/null -o Port={SSHD_PORT} -o "ListenAddress=$1" -o HostKey={_RANK_DIRECTORY}/host \\
  -o AuthorizedKeysFile={_RANK_DIRECTORY}/keys -o AuthenticationMethods=publickey -o PermitRootLogin=prohibit-password \\
  -o DisableForwarding=yes -o PidFile=none -o "ForceCommand=sh {_RANK_DIRECTORY}/session" &
echo $! >{_RANK_DIRECTORY}/sshd
trap 'kill $!; exit 143' TERM INT
wait $!
exit 1"""
_SESSION_SCRIPT = f"""\
[ "$SSH_ORIGINAL_COMMAND" = true ] && exit
. {_RANK_DIRECTORY}/env
sh -c "$SSH_ORIGINAL_COMMAND"
echo "{RANK_ENDED_TEXT}mpirun's daemon ended with $?" >/proc/1/fd/2
kill "$(cat {_RANK_DIRECTORY}/sshd)\""""

# ssh uses the first value of an option: these come before those of the node's user.
_SSH_CONFIG_LINES = (
    "Host *",
    f"Port {SSHD_PORT}",
    "User root",
    "BatchMode yes",
    "StrictHostKeyChecking no",  # created in the container, new for each one
    "UserKnownHostsFile /dev/null",
    "LogLevel ERROR",
    "ConnectTimeout 5",
    "ControlPath none",
    "ProxyCommand none",
    "ForwardAgent no",
    "ForwardX11 no",
)
_LOGIN_ATTEMPTS = 300  # two seconds apart: a worker's container may have to install its sshd
_HEAD_SCRIPT = f"""\
has ssh openssh-client
umask 077
mkdir -p /root/.ssh
cp -R {_KEYS_MOUNT}/. /root/.ssh/ 2>/dev/null
{{ printf '%s\\n' {" ".join(f"'{line}'" for line in _SSH_CONFIG_LINES)}; cat {_KEYS_MOUNT}/config 2>/dev/null; }} >/root/.ssh/config
while [ "$1" != -- ]; do
  echo "{SSHD_WAIT_TEXT}$1 port {SSHD_PORT}"
  left={_LOGIN_ATTEMPTS}
  until why=$(ssh -n "$1" true 2>&1); do
    left=$((left - 1))
    case $why in *'Permission denied'*) left=0 ;; esac
    [ $left -gt 0 ] || {{ echo "{LOGIN_FAILED_TEXT}$1: $why"; exit 1; }}
    sleep 2
  done
  shift
done
shift
exec "$@\""""
# Each rank writes to its own container's log: mpirun would send all output to the head's.
_RANK_SCRIPT = 'exec "$@" >/proc/1/fd/1 2>/proc/1/fd/2'


def build_rank_command(words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
    """Return a worker's sshd, or the head's mpirun, which starts ``words`` on all Sparks once it reaches the workers."""
    if not rank.is_head:
        return ("sh", "-c", _INSTALL_SCRIPT + _WORKER_SCRIPT, "sh", rank.own_address, _SESSION_SCRIPT)
    # orted would leave its SSH session at once, and the worker ends with it; and with two ranks each is bound to one core.
    mpirun = ("mpirun", "--allow-run-as-root", "--leave-session-attached", "--bind-to", "none", "-np", str(rank.count))
    hosts = ("--host", ",".join(f"{address}:1" for address in rank.addresses))
    start = (*mpirun, *hosts, "sh", "-c", _RANK_SCRIPT, "sh", *words)
    return ("sh", "-c", _INSTALL_SCRIPT + _HEAD_SCRIPT, "sh", *rank.addresses[1:], "--", *start)


def list_ssh_key_mounts(rank: EngineRank) -> tuple[str, ...]:
    """Return the files of the node's user that the container needs, as a profile writes mounts."""
    own = "" if rank.is_head else "/authorized_keys"
    return (f"~/.ssh{own}:{_KEYS_MOUNT}{own}:ro",)


_CHECK_OTHER_NODE = "Look at the log of the other node and at the link between the two."
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
        _CHECK_OTHER_NODE,
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
        "mpirun needs ssh on the head and sshd on the others. Give the Sparks network access to the package server, or build {name} into "
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
        f"{_CHECK_OTHER_NODE} Signal 9 is mostly memory that ran out: sudo dmesg says who was killed. Loading takes less with "
        "env.TRT_LLM_DISABLE_LOAD_WEIGHTS_IN_PARALLEL: 1.",
        needle=" noticed that process rank ",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"\b(?:PRTE|ORTE)(?: ERROR|_ERROR_LOG): (?P<what>\S.{0,120}) in file (?P<place>\S{1,160}) at line",
        FailureCause.WORKER_LOST,
        "mpirun could not start a rank, or lost it: {what} ({place}).",
        f"{_CHECK_OTHER_NODE} The mpirun of both images has to be of the same version.",
        needle=("PRTE ERROR: ", "ORTE ERROR: ", "PRTE_ERROR_LOG: ", "ORTE_ERROR_LOG: "),
        weight=FailureWeight.DEATH,
    ),
)


def _build_worker_lost_signal(summary: str, remedy: str, weight: FailureWeight) -> LineSignal:
    return LineSignal(failure=Failure(cause=FailureCause.WORKER_LOST, summary=summary, remedy=remedy, weight=weight))


_DAEMON_NOT_STARTED = _build_worker_lost_signal(
    "mpirun could not start its daemon on the other Spark, or heard nothing of it.",
    f"orted has to be in the PATH of the image on both, and the Sparks have to reach each other on the link. {_CHECK_OTHER_NODE}",
    FailureWeight.DEATH,
)
_DAEMON_LOST = _build_worker_lost_signal(
    "mpirun lost its daemon on the other Spark.", _CHECK_OTHER_NODE, FailureWeight.DEATH
)
_COMMAND_NOT_STARTED = LineSignal(
    failure=Failure(
        cause=FailureCause.BAD_VALUE,
        summary="mpirun could not start the ranks' command.",
        remedy="The lines below it name the program and the node: take an image that has it.",
        field="image",
        weight=FailureWeight.LIKELY,
    )
)
_RANK_ABORTED = LineSignal(
    failure=Failure(
        cause=FailureCause.CRASHED,
        summary="A rank of the engine ended itself, and all the others with it.",
        remedy="The lines before this one name the reason, here or in the log of the other node.",
        weight=FailureWeight.AFTERMATH,
    )
)
_RANK_ENDED = _build_worker_lost_signal(
    "A rank ended, and mpirun ended the others.", _CHECK_OTHER_NODE, FailureWeight.AFTERMATH
)

# By their beginnings: these lines contain none of the words that mark a failure elsewhere.
MPIRUN_SIGNALS = (
    (SSHD_WAIT_TEXT, loading_signal("join")),
    (
        RANK_ENDED_TEXT,
        _build_worker_lost_signal(
            "mpirun's part on this Spark is over: a rank ended, or the head did.",
            _CHECK_OTHER_NODE,
            FailureWeight.AFTERMATH,
        ),
    ),
    *((f"{name} was unable to reliably start", _DAEMON_NOT_STARTED) for name in ("ORTE", "PRTE")),
    *((f"{name} has lost communication with a remote daemon", _DAEMON_LOST) for name in ("ORTE", "PRTE")),
    *((f"{name} was unable to", _COMMAND_NOT_STARTED) for name in ("mpirun", "prterun")),
    *((f"{name} detected that one or more processes exited", _RANK_ENDED) for name in ("mpirun", "prterun")),
    ("Primary job  terminated normally, but", _RANK_ENDED),
    ("MPI_ABORT was invoked", _RANK_ABORTED),
)
