"""Which script an engine follows, and how faults bend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.sim import ray_script, sglang_script, small_scripts, vllm_script
from sparkctl.sim.fabric import Loss
from sparkctl.sim.launch import Kind, Launch
from sparkctl.sim.memory import GIB
from sparkctl.sim.node import Fault
from sparkctl.sim.steps import Cut, Exit, Hang, Leak, Listen, Load, Script

BREAKING_POINT = 0.6  # of the weights


@dataclass(frozen=True, slots=True)
class Engine:
    """The scenes of one engine. ``out_of_memory`` takes the bytes wanted, free, and held already.

    Of one that can be spread over several Sparks: ``alone`` where so many ranks of so many came, ``apart`` where a rank
    was lost, ``follow`` what a rank does that only the head tells what to load.
    """

    time_format: str
    start: Callable[[Launch, Callable[[], int], Callable[[], bool]], Script]
    out_of_memory: Callable[[Launch, int, int, int], Script]
    bad_flag: Callable[[Launch], Script]
    farewell: Callable[[Launch], Script]
    alone: Callable[[Launch, int, int], Script] | None = None
    apart: Callable[[Launch, Loss], Script] | None = None
    follow: Callable[[Launch], Script] | None = None
    hears_sigterm: bool = True


ENGINES = {
    Kind.SGLANG: Engine(
        sglang_script.TIME_FORMAT,
        sglang_script.start,
        sglang_script.out_of_memory,
        sglang_script.bad_flag,
        sglang_script.farewell,
        sglang_script.alone,
        sglang_script.apart,
    ),
    Kind.VLLM: Engine(
        vllm_script.TIME_FORMAT,
        vllm_script.start,
        vllm_script.out_of_memory,
        vllm_script.bad_flag,
        vllm_script.farewell,
        vllm_script.alone,
        vllm_script.apart,
    ),
    Kind.LLAMA: Engine(
        small_scripts.LLAMA_TIME,
        small_scripts.start_llama,
        small_scripts.out_of_memory_llama,
        small_scripts.bad_flag_llama,
        small_scripts.farewell_llama,
        small_scripts.alone_llama,
        small_scripts.apart_llama,
    ),
    Kind.RAY: Engine(
        ray_script.TIME_FORMAT,
        ray_script.start_worker,
        ray_script.out_of_memory,
        vllm_script.bad_flag,
        ray_script.farewell,
        ray_script.alone_worker,
        ray_script.lost_head,
        ray_script.follow,
    ),
    Kind.RPC: Engine(
        small_scripts.TIME_FORMAT,
        small_scripts.start_rpc,
        small_scripts.out_of_memory_llama,
        small_scripts.bad_flag_rpc,
        small_scripts.farewell,
        None,
        small_scripts.apart_rpc,
        small_scripts.follow_rpc,
        hears_sigterm=False,
    ),
    Kind.TRTLLM: Engine(
        small_scripts.TRTLLM_TIME,
        small_scripts.start_trtllm,
        small_scripts.out_of_memory_trtllm,
        small_scripts.bad_flag_trtllm,
        small_scripts.farewell,
        small_scripts.alone_trtllm,
        small_scripts.apart_trtllm,
    ),
    Kind.MPI: Engine(
        small_scripts.TRTLLM_TIME,
        small_scripts.start_mpi,
        small_scripts.out_of_memory_trtllm,
        small_scripts.bad_flag_mpi,
        small_scripts.farewell,
        None,
        small_scripts.apart_mpi,
        small_scripts.follow_mpi,
    ),
    Kind.TTS: Engine(
        small_scripts.TIME_FORMAT,
        small_scripts.start_uvicorn,
        sglang_script.out_of_memory,
        small_scripts.bad_flag_uvicorn,
        small_scripts.farewell,
    ),
}


def script_of(launch: Launch, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Return the start of a launch, its fault included."""
    engine = ENGINES[launch.kind]
    if launch.fault is Fault.BAD_FLAG:
        return engine.bad_flag(launch)
    return _faulty(launch, engine.start(launch, available, port_taken), available)


def following(launch: Launch, available: Callable[[], int]) -> Script:
    """Return what a rank does that only its head tells what to load, its fault included."""
    follow = ENGINES[launch.kind].follow
    assert follow is not None
    return _faulty(launch, follow(launch), available)


def _faulty(launch: Launch, script: Script, available: Callable[[], int]) -> Script:
    is_spared = launch.fault is Fault.WORKER_DIES and launch.rank == 0
    if launch.fault in (None, Fault.NO_TOKEN, Fault.BAD_FLAG) or is_spared:
        return script
    return _broken(launch, script, available)


def _broken(launch: Launch, script: Script, available: Callable[[], int]) -> Script:
    """Follow the script up to the breaking point, then the fault."""
    for step in script:
        yield step
        if (isinstance(step, Listen) and step.ready) or (
            isinstance(step, Load) and step.done >= BREAKING_POINT * step.total
        ):
            break
    if launch.fault is Fault.FABRIC_CUT:
        yield Cut()
        yield from script
    elif launch.fault is Fault.WORKER_DIES:
        yield Exit(137)
    elif launch.fault is Fault.CUDA_OOM:
        yield from ENGINES[launch.kind].out_of_memory(
            launch, int(2.25 * GIB), int(1.18 * GIB), int(BREAKING_POINT * launch.weights)
        )
    elif launch.fault is Fault.OOM_KILLED:
        yield Exit(137, oom_killed=True)
    elif launch.fault is Fault.HANG:
        yield Hang()
    elif launch.fault is Fault.MEMORY_RUNAWAY:
        while available() > 0:
            yield Leak(0.1, GIB // 4)
        yield Hang()
    else:
        yield Exit(0)
