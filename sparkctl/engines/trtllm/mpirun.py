"""Ranks that mpirun starts (Open MPI 4 and 5): an sshd in each worker's container, and the head's container logs in there.

The keys are those of the nodes' users, mounted read-only and copied inside, as in NVIDIA's playbook: passwordless SSH between
the Sparks is part of its set-up. A key pair made for one start would need none of that; but it would have to lie on each node,
or in the containers' environment, for as long as they are kept (a rollback starts them again), where the user's own lie anyway.
The head alone gets private keys; a worker gets the list of who may log in, and listens on its address on the link only.

A rank that is started through sshd would have sshd's environment. So its container writes down its own, for root alone to
read, and every session begins with it: what differs from Spark to Spark stays right, and no token is on a command line.
"""

from __future__ import annotations

from sparkctl.engines.base import Rank

SSHD_PORT = 2233  # as in NVIDIA's playbook
_KEYS = "/tmp/.ssh"  # noqa: S108  where the mounts are
_HERE = "/run/sparkctl-ranks"

# What `_failures_mpirun` reads.
SSHD_WAIT_TEXT = "Waiting for sshd on "
LOGIN_FAILED_TEXT = "Error: cannot log in at the worker "
PROGRAM_MISSING_TEXT = "Error: the image lacks "
RANK_ENDED_TEXT = "This rank is over: "

_INSTALL = f"""\
mkdir -p {_HERE}
has() {{
  command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] && return
  echo "Installing $2, which the image lacks"
  export DEBIAN_FRONTEND=noninteractive
  {{ apt-get update && apt-get install -y --no-install-recommends "$2"; }} >{_HERE}/apt 2>&1 && return
  tail -n 3 {_HERE}/apt
  echo "{PROGRAM_MISSING_TEXT}$2, and it could not be installed"
  exit 1
}}
"""
# Ends with the session that mpirun holds: without its head a worker is of no use, and would look alive.
_WORKER_SCRIPT = f"""\
has sshd openssh-server
mkdir -p /run/sshd
umask 077
cp {_KEYS}/authorized_keys {_HERE}/keys
export -p >{_HERE}/env
printf '%s\\n' "$2" >{_HERE}/session
[ -f {_HERE}/host ] || ssh-keygen -q -t ed25519 -N '' -f {_HERE}/host
"$(command -v sshd || echo /usr/sbin/sshd)" -D -e -f /dev/null -o Port={SSHD_PORT} -o "ListenAddress=$1" -o HostKey={_HERE}/host \\
  -o AuthorizedKeysFile={_HERE}/keys -o AuthenticationMethods=publickey -o PermitRootLogin=prohibit-password \\
  -o DisableForwarding=yes -o PidFile=none -o "ForceCommand=sh {_HERE}/session" &
echo $! >{_HERE}/sshd
trap 'kill $!; exit 143' TERM INT
wait $!
exit 1"""
_SESSION = f"""\
[ "$SSH_ORIGINAL_COMMAND" = true ] && exit
. {_HERE}/env
sh -c "$SSH_ORIGINAL_COMMAND"
echo "{RANK_ENDED_TEXT}mpirun's daemon ended with $?" >/proc/1/fd/2
kill "$(cat {_HERE}/sshd)\""""

# The first value that ssh reads of an option is the one that counts: ours stand before those of the node's user.
_CONFIG = (
    "Host *",
    f"Port {SSHD_PORT}",
    "User root",
    "BatchMode yes",
    "StrictHostKeyChecking no",  # they are made in the container, anew with each
    "UserKnownHostsFile /dev/null",
    "LogLevel ERROR",
    "ConnectTimeout 5",
    "ControlPath none",
    "ProxyCommand none",
    "ForwardAgent no",
    "ForwardX11 no",
)
_TRIES = 300  # two seconds apart: a worker's container may have to install its sshd
_HEAD_SCRIPT = f"""\
has ssh openssh-client
umask 077
mkdir -p /root/.ssh
cp -R {_KEYS}/. /root/.ssh/ 2>/dev/null
{{ printf '%s\\n' {" ".join(f"'{line}'" for line in _CONFIG)}; cat {_KEYS}/config 2>/dev/null; }} >/root/.ssh/config
while [ "$1" != -- ]; do
  echo "{SSHD_WAIT_TEXT}$1 port {SSHD_PORT}"
  left={_TRIES}
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
# Each rank writes to its own container's log: mpirun would bring the words of all into the head's.
_RANK = 'exec "$@" >/proc/1/fd/1 2>/proc/1/fd/2'


def build_rank_command(words: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
    """Return a worker's sshd; of the head the mpirun that starts ``words`` on every Spark once all the others can be reached."""
    if not rank.is_head:
        return ("sh", "-c", _INSTALL + _WORKER_SCRIPT, "sh", rank.own_address, _SESSION)
    # orted would leave its SSH session at once, and a worker that ends with it; and with two ranks each is bound to one core.
    mpirun = ("mpirun", "--allow-run-as-root", "--leave-session-attached", "--bind-to", "none", "-np", str(rank.count))
    hosts = ("--host", ",".join(f"{address}:1" for address in rank.addresses))
    start = (*mpirun, *hosts, "sh", "-c", _RANK, "sh", *words)
    return ("sh", "-c", _INSTALL + _HEAD_SCRIPT, "sh", *rank.addresses[1:], "--", *start)


def ssh_key_mounts(rank: Rank) -> tuple[str, ...]:
    """Return what the container needs of its node's user, as a profile writes mounts."""
    own = "" if rank.is_head else "/authorized_keys"
    return (f"~/.ssh{own}:{_KEYS}{own}:ro",)
