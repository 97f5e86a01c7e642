"""Simulated Ray 2.54 for vLLM: `ray start` on the head and its workers, and a driver's messages when it loses a worker."""

from __future__ import annotations

from collections.abc import Callable

from sparkctl.engines.simulation.engine_launch import SimLaunch
from sparkctl.engines.simulation.rank_network import RankLoss
from sparkctl.engines.simulation.script_steps import (
    LOG_DATETIME,
    LOG_TIME,
    AllocateMemoryStep,
    ExitStep,
    FollowHeadStep,
    FreeMemoryStep,
    JoinRanksStep,
    LoadWeightsStep,
    LogStep,
    OpenGroupStep,
    RankBarrierStep,
    RankErrorStep,
    Script,
    WatchPeersStep,
)
from sparkctl.engines.simulation.torch_messages import cuda_oom_message, format_address
from sparkctl.engines.simulation.unified_memory import GIB, TOTAL_BYTES

TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
SHARD_SECONDS = 8.0
NODE_ID = "5f0a3c1be2d94e77a1c06b9d8f4e2b3713a9c5d0e8f76b24"
HEARTBEATS = 30.0  # seconds without a sign of life until a node counts as dead
RECONNECT = 60.0  # seconds for which a raylet looks for a lost head
HELD = int(0.5 * GIB)  # by Ray's own processes
BACKWARD = (10, 30, 70, 150, 310, 630, 1270)  # seconds at which vLLM logs that it still waits for GPUs


def start_ray(launch: SimLaunch) -> Script:
    """Yield `ray start` of either side."""
    joining = launch.joining
    assert joining is not None
    yield AllocateMemoryStep(0, anonymous=HELD)
    yield _ray(4, "INFO usage_lib.py:447 -- Usage stats collection is disabled.")
    yield _ray(0, f"INFO scripts.py:914 -- Local node IP: {joining.own}")
    yield _ray(3, "SUCC scripts.py:950 -- --------------------")
    yield _ray(0, "SUCC scripts.py:951 -- Ray runtime started.")
    yield _ray(0, "SUCC scripts.py:952 -- --------------------")
    if joining.is_head:
        yield OpenGroupStep()
        yield _ray(0, "INFO scripts.py:954 -- Next steps")
        yield _ray(0, "INFO scripts.py:957 -- To add another node to this Ray cluster, run")
        yield _ray(0, f"INFO scripts.py:960 --   ray start --address='{format_address(joining.main_address)}'")


def start_worker(launch: SimLaunch, _available: Callable[[], int], _port_taken: Callable[[], bool]) -> Script:
    """Yield a worker's start: its own log does not mention the model, whose lines appear in the head's."""
    joining = launch.joining
    assert joining is not None
    waits = f"Failed to connect to GCS at address {format_address(joining.main_address)} within 5 seconds."
    yield JoinRanksStep(tuple(LogStep(5, f"[{LOG_DATETIME},114 E 1 1] gcs_client.cc:172: {waits}") for _ in range(5)))
    yield WatchPeersStep()
    yield from start_ray(launch)
    yield _ray(1, "INFO scripts.py:1103 -- --block")
    yield _ray(0, "INFO scripts.py:1104 -- This command will now block forever until terminated by a signal.")
    yield _ray(
        0, "INFO scripts.py:1107 -- Running subprocesses are monitored and a message will be printed if any of them "
        "terminate unexpectedly. Subprocesses exit with SIGTERM will be treated as graceful, thus NOT reported."
    )  # fmt: skip
    yield FollowHeadStep()


def follow(launch: SimLaunch) -> Script:
    """Yield what a worker's process does for the head: the same as the head, without log lines."""
    yield AllocateMemoryStep(40, anonymous=int(2.1 * GIB))
    for done in range(1, launch.shards + 1):
        yield LoadWeightsStep(SHARD_SECONDS, done, launch.shards, launch.weights // launch.shards)
    yield RankBarrierStep()
    yield AllocateMemoryStep(54, gpu=max(0, int(TOTAL_BYTES * launch.fraction) - launch.weights - int(1.6 * GIB)))


def connect_workers(launch: SimLaunch) -> Script:
    """Yield the head's connection to its workers; the last step waits for them."""
    joining = launch.joining
    assert joining is not None
    yield _ray(
        2,
        f"INFO worker.py:1810 -- Connecting to existing Ray cluster at address: {format_address(joining.main_address)}...",
        "stderr",
    )
    yield _ray(1, "INFO worker.py:1997 -- Connected to Ray cluster.", "stderr")
    yield _utils(0, "No current placement group found. Creating a new placement group.")
    specs = [{f"node:{joining.own}": 0.001, "GPU": 1.0}, *[{"GPU": 1.0}] * (launch.nodes - 1)]
    told = (
        "Waiting for creating a placement group of specs for {} seconds. specs=" + str(specs).replace("{", "{{").replace("}", "}}")
        + ". Check `ray status` and `ray list nodes` to see if you have enough resources, and make sure the IP addresses used "
        "by ray cluster are the same as VLLM_HOST_IP environment variable specified in each node if you are running on a "
        "multi-node."
    )  # fmt: skip
    before = (0, *BACKWARD)
    yield JoinRanksStep(
        tuple(_utils(now - then, told.format(now)) for then, now in zip(before, BACKWARD, strict=False))
    )
    yield WatchPeersStep()


def report_missing_workers(launch: SimLaunch) -> str:
    """Return the error of a head whose workers did not come."""
    joining = launch.joining
    specs = [{f"node:{joining.own if joining else ''}": 0.001, "GPU": 1.0}, *[{"GPU": 1.0}] * (launch.nodes - 1)]
    return (
        f"ValueError: Cannot provide a placement group of placement_group_specs={specs} within 1800 seconds. See "
        "`ray status` and `ray list nodes` to make sure the cluster has enough resources."
    )


def report_missing_head(launch: SimLaunch, _have: int, _of: int) -> Script:
    """Yield the end of a worker that finds no head."""
    joining = launch.joining
    assert joining is not None
    yield LogStep(
        0, f"[{LOG_DATETIME},204 W 1 1] gcs_rpc_client.h:151: Unable to connect to GCS at {format_address(joining.main_address)}. Check that (1) Ray GCS "
        "with matching version started successfully at the specified address, and (2) there is no firewall setting "
        "preventing access."
    )  # fmt: skip
    yield LogStep(1, "Traceback (most recent call last):")
    yield LogStep(0, '  File "/usr/local/bin/ray", line 8, in <module>')
    yield LogStep(0, f"RuntimeError: Failed to connect to GCS at {format_address(joining.main_address)}.")
    yield ExitStep(1)


def report_lost_worker(address: str) -> Script:
    """Yield what the head's raylet and its driver log about a lost worker; the engine's own end follows."""
    yield LogStep(
        HEARTBEATS, f"(raylet) The node with node id: {NODE_ID} and address: {address} and node name: {address} has been marked "
        "dead because the detector has missed too many heartbeats from it. This can happen when a \t(1) raylet crashes "
        "unexpectedly (OOM, etc.) \n\t(2) raylet has lagging heartbeats due to slow network or busy workload."
    )  # fmt: skip


def actor_died(address: str) -> tuple[str, ...]:
    """Return the lines of the exception that a call to a lost worker raises."""
    return (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "\tclass_name: RayWorkerWrapper",
        "\tactor_id: 3b1f0c5a9e7d24c8f01b2a6701000000",
        f"\tip: {address}",
        f"The actor died because its node has died. Node Id: {NODE_ID}",
        "\tthe actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats",
    )


def format_worker_error(loss: RankLoss) -> tuple[str, ...]:
    """Return the lines of the exception that a call raises if its worker raised one."""
    where = f"(pid=612, ip={loss.address}, actor_id=3b1f0c5a9e7d24c8f01b2a6701000000)"
    return f"ray.exceptions.RayTaskError(OutOfMemoryError): ray::RayWorkerWrapper.execute_method() {where}", loss.said


def out_of_memory(_launch: SimLaunch, wanted: int, free: int, held: int) -> Script:
    """Yield what a worker does whose process got no memory: its own log does not mention it."""
    yield RankErrorStep(f"torch.OutOfMemoryError: {cuda_oom_message(wanted, free, held)}")
    yield FreeMemoryStep()


def report_lost_head(_launch: SimLaunch, _loss: RankLoss) -> Script:
    """Yield the end of a worker whose head is gone: it looks for it for a while."""
    yield _ray(RECONNECT, "ERR scripts.py:1121 -- Some Ray subprocesses exited unexpectedly:")
    yield _ray(0, "ERR scripts.py:1125 --   raylet [exit code=1]")
    yield _ray(0, "ERR scripts.py:1130 -- Remaining processes will be killed.")
    yield ExitStep(1)


def shut_down(_launch: SimLaunch) -> Script:
    """Yield how `ray start --block` answers a SIGTERM: it ends what it started, with an error's code."""
    yield LogStep(1.5, "", "stdout")
    yield ExitStep(1)


def _ray(after: float, text: str, stream: str = "stdout") -> LogStep:
    level, _, rest = text.partition(" ")
    return LogStep(after, f"{LOG_DATETIME},482\t{level} {rest}", stream)


def _utils(after: float, text: str) -> LogStep:
    return LogStep(after, f"(EngineCore pid=214) INFO {LOG_TIME} [ray_utils.py:389] {text}", "stdout")
