"""Which script an engine follows, and how faults bend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.engines.sglang import simulated_script as sglang_scenes
from sparkctl.engines.simulation import small_engine_scripts
from sparkctl.engines.simulation.engine_launch import EngineFault, SimEngineKind, SimLaunch
from sparkctl.engines.simulation.rank_network import RankLoss
from sparkctl.engines.simulation.script_steps import (
    CutCableStep,
    ExitStep,
    HangStep,
    LeakMemoryStep,
    ListenStep,
    LoadWeightsStep,
    Script,
)
from sparkctl.engines.simulation.unified_memory import GIB
from sparkctl.engines.vllm import simulated_ray
from sparkctl.engines.vllm import simulated_script as vllm_scenes

FAULT_WEIGHTS_SHARE = 0.6  # of the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScripts:
    """The scenes of one engine. ``out_of_memory`` takes the bytes wanted, free, and held already.

    Of one that can be spread over several Sparks: ``alone`` where so many ranks of so many came, ``apart`` where a rank
    was lost, ``follow`` what a rank does that only the head tells what to load.
    """

    time_format: str
    start: Callable[[SimLaunch, Callable[[], int], Callable[[], bool]], Script]
    out_of_memory: Callable[[SimLaunch, int, int, int], Script]
    bad_flag: Callable[[SimLaunch], Script]
    farewell: Callable[[SimLaunch], Script]
    alone: Callable[[SimLaunch, int, int], Script] | None = None
    apart: Callable[[SimLaunch, RankLoss], Script] | None = None
    follow: Callable[[SimLaunch], Script] | None = None
    hears_sigterm: bool = True


SCRIPTS_BY_ENGINE = {
    SimEngineKind.SGLANG: EngineScripts(
        time_format=sglang_scenes.TIME_FORMAT,
        start=sglang_scenes.script_start,
        out_of_memory=sglang_scenes.script_out_of_memory,
        bad_flag=sglang_scenes.script_bad_flag,
        farewell=sglang_scenes.script_shut_down,
        alone=sglang_scenes.script_peers_missing,
        apart=sglang_scenes.script_peer_lost,
    ),
    SimEngineKind.VLLM: EngineScripts(
        time_format=vllm_scenes.TIME_FORMAT,
        start=vllm_scenes.start,
        out_of_memory=vllm_scenes.out_of_memory,
        bad_flag=vllm_scenes.bad_flag,
        farewell=vllm_scenes.farewell,
        alone=vllm_scenes.alone,
        apart=vllm_scenes.apart,
    ),
    SimEngineKind.LLAMA: EngineScripts(
        time_format=small_engine_scripts.LLAMA_TIME_FORMAT,
        start=small_engine_scripts.script_llama_start,
        out_of_memory=small_engine_scripts.script_llama_out_of_memory,
        bad_flag=small_engine_scripts.script_llama_bad_flag,
        farewell=small_engine_scripts.script_llama_shut_down,
        alone=small_engine_scripts.script_llama_peers_missing,
        apart=small_engine_scripts.script_llama_peer_lost,
    ),
    SimEngineKind.RAY: EngineScripts(
        time_format=simulated_ray.TIME_FORMAT,
        start=simulated_ray.start_worker,
        out_of_memory=simulated_ray.out_of_memory,
        bad_flag=vllm_scenes.bad_flag,
        farewell=simulated_ray.shut_down,
        alone=simulated_ray.report_missing_head,
        apart=simulated_ray.report_lost_head,
        follow=simulated_ray.follow,
    ),
    SimEngineKind.RPC: EngineScripts(
        time_format=small_engine_scripts.TIME_FORMAT,
        start=small_engine_scripts.script_rpc_start,
        out_of_memory=small_engine_scripts.script_llama_out_of_memory,
        bad_flag=small_engine_scripts.script_rpc_bad_flag,
        farewell=small_engine_scripts.script_uvicorn_shut_down,
        alone=None,
        apart=small_engine_scripts.script_rpc_peer_lost,
        follow=small_engine_scripts.script_rpc_load,
        hears_sigterm=False,
    ),
    SimEngineKind.TRTLLM: EngineScripts(
        time_format=small_engine_scripts.TRTLLM_TIME_FORMAT,
        start=small_engine_scripts.script_trtllm_start,
        out_of_memory=small_engine_scripts.script_trtllm_out_of_memory,
        bad_flag=small_engine_scripts.script_trtllm_bad_flag,
        farewell=small_engine_scripts.script_uvicorn_shut_down,
        alone=small_engine_scripts.script_trtllm_peers_missing,
        apart=small_engine_scripts.script_trtllm_peer_lost,
    ),
    SimEngineKind.MPI: EngineScripts(
        time_format=small_engine_scripts.TRTLLM_TIME_FORMAT,
        start=small_engine_scripts.script_mpi_start,
        out_of_memory=small_engine_scripts.script_trtllm_out_of_memory,
        bad_flag=small_engine_scripts.script_mpi_bad_flag,
        farewell=small_engine_scripts.script_uvicorn_shut_down,
        alone=None,
        apart=small_engine_scripts.script_mpi_peer_lost,
        follow=small_engine_scripts.script_mpi_load,
    ),
    SimEngineKind.TTS: EngineScripts(
        time_format=small_engine_scripts.TIME_FORMAT,
        start=small_engine_scripts.script_uvicorn_start,
        out_of_memory=sglang_scenes.script_out_of_memory,
        bad_flag=small_engine_scripts.script_uvicorn_bad_flag,
        farewell=small_engine_scripts.script_uvicorn_shut_down,
    ),
}


def build_start_script(launch: SimLaunch, available: Callable[[], int], port_taken: Callable[[], bool]) -> Script:
    """Return the start of a launch, its fault included."""
    engine = SCRIPTS_BY_ENGINE[launch.kind]
    if launch.fault is EngineFault.BAD_FLAG:
        return engine.bad_flag(launch)
    return _apply_fault(launch, engine.start(launch, available, port_taken), available)


def build_worker_script(launch: SimLaunch, available: Callable[[], int]) -> Script:
    """Return what a rank does that only its head tells what to load, its fault included."""
    follow = SCRIPTS_BY_ENGINE[launch.kind].follow
    assert follow is not None
    return _apply_fault(launch, follow(launch), available)


def _apply_fault(launch: SimLaunch, script: Script, available: Callable[[], int]) -> Script:
    is_spared = launch.fault is EngineFault.WORKER_DIES and launch.rank == 0
    if launch.fault in (None, EngineFault.NO_TOKEN, EngineFault.BAD_FLAG) or is_spared:
        return script
    return _inject_fault(launch, script, available)


def _inject_fault(launch: SimLaunch, script: Script, available: Callable[[], int]) -> Script:
    """Follow the script up to the breaking point, then the fault."""
    for step in script:
        yield step
        if (isinstance(step, ListenStep) and step.ready) or (
            isinstance(step, LoadWeightsStep) and step.done >= FAULT_WEIGHTS_SHARE * step.total
        ):
            break
    if launch.fault is EngineFault.FABRIC_CUT:
        yield CutCableStep()
        yield from script
    elif launch.fault is EngineFault.WORKER_DIES:
        yield ExitStep(137)
    elif launch.fault is EngineFault.CUDA_OOM:
        yield from SCRIPTS_BY_ENGINE[launch.kind].out_of_memory(
            launch, int(2.25 * GIB), int(1.18 * GIB), int(FAULT_WEIGHTS_SHARE * launch.weights)
        )
    elif launch.fault is EngineFault.OOM_KILLED:
        yield ExitStep(137, oom_killed=True)
    elif launch.fault is EngineFault.HANG:
        yield HangStep()
    elif launch.fault is EngineFault.MEMORY_RUNAWAY:
        while available() > 0:
            yield LeakMemoryStep(0.1, GIB // 4)
        yield HangStep()
    else:
        yield ExitStep(0)
