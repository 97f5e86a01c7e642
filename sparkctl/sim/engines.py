"""Which script an engine follows, and how faults bend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.sim import sglang_script, small_scripts, vllm_script
from sparkctl.sim.launch import Kind, Launch
from sparkctl.sim.memory import GIB
from sparkctl.sim.node import Fault
from sparkctl.sim.steps import Exit, Hang, Leak, Listen, Load, Script

BREAKING_POINT = 0.6  # of the weights


@dataclass(frozen=True, slots=True)
class Engine:
    """The scenes of one engine. ``out_of_memory`` takes the bytes wanted, free, and held already."""

    time_format: str
    start: Callable[[Launch, Callable[[], int], Callable[[], bool]], Script]
    out_of_memory: Callable[[Launch, int, int, int], Script]
    bad_flag: Callable[[Launch], Script]
    farewell: Callable[[Launch], Script]


ENGINES = {
    Kind.SGLANG: Engine(
        sglang_script.TIME_FORMAT,
        sglang_script.start,
        sglang_script.out_of_memory,
        sglang_script.bad_flag,
        sglang_script.farewell,
    ),
    Kind.VLLM: Engine(
        vllm_script.TIME_FORMAT,
        vllm_script.start,
        vllm_script.out_of_memory,
        vllm_script.bad_flag,
        vllm_script.farewell,
    ),
    Kind.LLAMA: Engine(
        small_scripts.LLAMA_TIME,
        small_scripts.start_llama,
        small_scripts.out_of_memory_llama,
        small_scripts.bad_flag_llama,
        small_scripts.farewell_llama,
    ),
    Kind.TRTLLM: Engine(
        small_scripts.TRTLLM_TIME,
        small_scripts.start_trtllm,
        small_scripts.out_of_memory_trtllm,
        small_scripts.bad_flag_trtllm,
        small_scripts.farewell,
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
    script = engine.start(launch, available, port_taken)
    return script if launch.fault in (None, Fault.NO_TOKEN) else _broken(launch, script, available)


def _broken(launch: Launch, script: Script, available: Callable[[], int]) -> Script:
    """Follow the script up to the breaking point, then the fault."""
    for step in script:
        yield step
        if (isinstance(step, Listen) and step.ready) or (
            isinstance(step, Load) and step.done >= BREAKING_POINT * step.total
        ):
            break
    if launch.fault is Fault.CUDA_OOM:
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
