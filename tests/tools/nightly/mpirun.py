"""TensorRT-LLM over two Sparks on a real Open MPI: mpirun logs in at a real sshd, and starts the ranks on both nodes.

``python -m tests.tools.nightly.mpirun`` runs `sparkctl up` of a two-node profile of engine trtllm in the lab, with this machine's
openmpi-bin and openssh-server in the containers. In place of ``trtllm-llmapi-launch`` and ``trtllm-serve`` small programs meet
by MPI: the head serves once rank 1 has sent it its address. Then each way in which it can end. Exit 0: all was as it should be,
or it cannot be run here, which is said.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time

from tests.lab.bed.lab import Lab, why_not
from tests.lab.bed.names import ADDRESSES, FABRIC, IMAGE, USER
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.command_outcomes import list_own_containers
from tests.lab.support.rank_containers import exchange_keys
from tests.lab.support.sparkctl_process import Sparkctl
from tests.tools.nightly.lab_job import WITHIN, expect_outcome, judge_play, on_lab, print_step

_PLACE = "/opt/ranks"
_TOKEN = "hf_aTokenThatNobodyMaySee"
_PROCESSES = ("mpirun", "orted", "trtllm-serve")
_LAUNCH = '#!/bin/sh\nexec "$@"\n'
_SERVE = """\
#!/usr/bin/python3
import ctypes, os, subprocess, sys
from standin import flags, listen, say, stay

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, whole = (ctypes.addressof(ctypes.c_char.in_dll(mpi, name)) for name in ("ompi_mpi_comm_world", "ompi_mpi_char"))
world, whole = ctypes.c_void_p(world), ctypes.c_void_p(whole)
mpi.MPI_Init(None, None)
rank, size, words = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(64)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
own = os.environ["VLLM_HOST_IP"]
cable, token = os.environ["NCCL_SOCKET_IFNAME"], os.environ["HF_TOKEN"]
say(f"rank {rank.value} of {size.value} on {own} over {cable}, token of {len(token)}", 1)
say(f"cores: {len(os.sched_getaffinity(0)) == os.cpu_count()}", 1)
if rank.value:
    if os.environ.get("LAB_END") == "cuda-oom":
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                 "119.70 GiB of which 1.21 GiB is free.")
    if os.environ.get("LAB_END") == "killed":
        os.kill(os.getpid(), 9)
    words.value = own.encode()
    mpi.MPI_Send(words, 64, whole, 0, 7, world)
    while True:
        subprocess.run(["sleep", "1000"])
mpi.MPI_Recv(words, 64, whole, 1, 7, world, None)
say(f"the ranks stand on {own} {words.value.decode()}", 1)
listen(flags(sys.argv[1:]) | {"model": sys.argv[1]}, "vllm")
say("INFO:     Application startup complete.")
stay()
"""


def main() -> int:
    """Start, look, break, stop."""
    argparse.ArgumentParser(prog="python -m tests.tools.nightly.mpirun", description=__doc__).parse_args()
    if reason := why_not_here():
        print(f"SKIPPED: mpirun over two nodes, {reason}")
        return 0
    with on_lab() as (bed, command):
        command.configure(fabric=FABRIC)
        command.env["HF_TOKEN"] = _TOKEN
        return judge_play(command, lambda: play_scenes(bed, command))


def why_not_here() -> str | None:
    """Return why it cannot be run on this machine, None where it can."""
    missing = [name for name in ("mpirun", "sshd") if shutil.which(name) is None]
    return why_not() or (f"there is no {' and no '.join(missing)}: openmpi-bin, openssh-server" if missing else None)


def play_scenes(bed: Lab, command: Sparkctl) -> None:
    """Refused without keys; started; ended by the head's death; started again by Docker; stopped; failed. Raises `Wrong`."""
    head, worker = bed.nodes.values()
    for node in (head, worker):
        install_programs(node)
    check_without_keys(bed, command)
    exchange_keys(head, worker)
    check_started(bed, command)
    head_dies(head, worker)
    check_kept(head, worker)
    check_stopped(bed, command)
    rank_fails(command)
    rank_killed(command)


def install_programs(node: LabNode) -> None:
    """Put the programs on a node."""
    node.sh("mkdir", "-p", _PLACE)
    for name, text in (("trtllm-llmapi-launch", _LAUNCH), ("trtllm-serve", _SERVE)):
        node.put(f"{_PLACE}/{name}", text)
        node.sh("chmod", "755", f"{_PLACE}/{name}")


def check_without_keys(bed: Lab, command: Sparkctl) -> None:
    """It is refused while nothing has changed."""
    began = time.monotonic()
    ran = command("up", write_profile(command), "--json", timeout=WITHIN)
    said = ran.out + ran.err
    expect_outcome(ran.code == 6 and "ssh-copy-id milo@10.80.0.12" in said, "not refused for want of keys", ran)
    expect_outcome(
        not any(list_own_containers(node) for node in bed.nodes.values()), "a container was made all the same", ran
    )
    print_step("up: refused, as the head cannot log in at the worker", began)


def check_started(bed: Lab, command: Sparkctl) -> None:
    """Both ranks are there, each with its own Spark's environment, and the token is nowhere to be seen."""
    began = time.monotonic()
    shown = command("up", write_profile(command), "--dry-run", timeout=WITHIN)
    expect_outcome(
        f"/home/{USER}/.ssh/authorized_keys:/tmp/.ssh/authorized_keys:ro" in shown.out, "keys are not shown", shown
    )
    ran = command("up", write_profile(command), "--json", timeout=WITHIN)
    expect_outcome(ran.code == 0 and ran.result["outcome"] == "ready", "up is not ready", ran)
    cables = [cable for _, cable in ADDRESSES.values()]
    for rank, node in enumerate(bed.nodes.values()):
        log = read_words(node)
        place = f"rank {rank} of 2 on {cables[rank]} over {FABRIC}, token of {len(_TOKEN)}"
        expect_outcome(place in log and "cores: True" in log, f"{node.name} did not say: {place}\n{log}", ran)
        expect_outcome(f"rank {1 - rank} of" not in log, f"{node.name} has the other's words\n{log}", ran)
        lines = node.sh("sh", "-c", "cat /proc/[0-9]*/cmdline", check=False)
        expect_outcome(_TOKEN not in lines, f"the token is on a command line on {node.name}", ran)
    expect_outcome(
        f"the ranks stand on {' '.join(cables)}" in read_words(bed.nodes["spark1"]), "rank 1 has not joined", ran
    )
    for one in (shown, ran):
        expect_outcome(_TOKEN not in one.out + one.err, "the token is shown", one)
    status = command("status", "--json")
    phases = [one["phase"] for node in json.loads(status.out)["nodes"] for one in node["instances"]]
    expect_outcome(phases == ["ready", "ready"], f"status says {phases}", status)
    print_step(f"up: mpirun's ranks on {' and '.join(cables)}, ready when rank 1 had joined", began)


def head_dies(head: LabNode, worker: LabNode) -> None:
    """The worker's container ends by itself where the head's is killed."""
    began = time.monotonic()
    head.docker("kill", *list_own_containers(head))
    await_true("the worker's end", lambda: read_state(worker) == "exited 1", 30.0, 0.1)
    print_step("the head was killed: the worker's container ended by itself", began)


def check_kept(head: LabNode, worker: LabNode) -> None:
    """The very same containers serve again, as after a switch that is taken back."""
    began = time.monotonic()
    for node in (worker, head):
        node.docker("start", *list_own_containers(node))
    await_true("both ranks, again", lambda: read_words(head).count("Application startup complete") == 2, 60.0, 0.2)
    print_step("docker start of both: the ranks met again", began)


def check_stopped(bed: Lab, command: Sparkctl) -> None:
    """Nothing is left of it."""
    began = time.monotonic()
    down = command("down", "mpi-pair", "--json", timeout=WITHIN)
    expect_outcome(down.code == 0, "down did not end well", down)
    expect_outcome(time.monotonic() - began < 20, "a rank did not heed the request to end", down)
    for node in bed.nodes.values():
        await_true(f"nothing left on {node.name}", lambda node=node: not any(map(node.pids, _PROCESSES)))  # type: ignore[misc]
        expect_outcome(
            not node.sh("ss", "-Hltn", "sport = :2233").strip(), f"a port of ours is open on {node.name}", down
        )
    print_step("down: no container, no rank and no sshd of ours on either node", began)


def rank_fails(command: Sparkctl) -> None:
    """A rank that fails is named with its Spark, though mpirun ends both."""
    began = time.monotonic()
    ran = command("up", write_profile(command, LAB_END="cuda-oom"), "--json", timeout=WITHIN)
    verdict = ran.result["verdict"]
    expect_outcome(
        ran.code == 1 and "Rank 1 of 2, on spark2" in verdict["summary"], "not the worker's own failure", ran
    )
    expect_outcome(verdict["cause"] == "cuda-out-of-memory", f"cause {verdict['cause']}", ran)
    print_step(f"a rank that ran out of memory: {verdict['summary'][:60]}...", began)


def rank_killed(command: Sparkctl) -> None:
    """Of a rank that SIGKILL ends alone mpirun's own word is told, not that its Spark's part is over."""
    began = time.monotonic()
    ran = command("up", write_profile(command, LAB_END="killed"), "--json", "--replace", timeout=WITHIN)
    verdict = ran.result["verdict"]
    said = "Rank 0 of 2, on spark1: mpirun lost rank 1: signal 9 ended it."
    expect_outcome(
        ran.code == 1 and verdict["summary"] == said, f"told of a rank that was killed: {verdict['summary']}", ran
    )
    print_step(f"a rank that was killed: {verdict['summary'][:60]}...", began)


def write_profile(command: Sparkctl, **env: str) -> str:
    """Write the profile: trtllm's, with small programs in their place."""
    return command.profile(
        "mpi-pair",
        engine="trtllm",
        nodes=2,
        image=IMAGE,
        model={"path": "stand-in"},
        args={"tp_size": 2},
        env={"PATH": f"{_PLACE}:/usr/sbin:/usr/bin", "PYTHONPATH": "/opt/engine", "HF_TOKEN": "${HF_TOKEN}", **env},
        mounts=[
            *(f"{path}:{path}:ro" for path in ("/usr", _PLACE, "/etc/alternatives", "/etc/openmpi")),
            *(f"{path}:{path}:ro" for path in ("/etc/passwd", "/etc/group")),
        ],
        container={"gpus": "none", "network": "host"},
    )


def read_words(node: LabNode) -> str:
    """Return the log of the one container of ours on a node, both streams."""
    return node.sh("sh", "-c", f"docker logs {' '.join(list_own_containers(node))} 2>&1", check=False)


def read_state(node: LabNode) -> str:
    """Return how it is, with its exit code."""
    return node.docker("inspect", "-f", "{{.State.Status}} {{.State.ExitCode}}", *list_own_containers(node))


if __name__ == "__main__":
    sys.exit(main())
