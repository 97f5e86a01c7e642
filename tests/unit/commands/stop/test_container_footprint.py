"""Who outlived a container, what it left in /dev/shm, and whether the memory is back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.start.node_fit import list_loose_processes
from sparkctl.commands.stop.release_check import (
    ContainerFootprint,
    capture_footprint,
    compute_missing_memory,
    describe_leftover,
    find_leftover_shm_files,
    find_surviving_processes,
    summarize_shm_files,
)
from sparkctl.model.sample import MemoryBeforeStart, MemoryReading
from sparkctl.model.text.units import GIB, MIB
from sparkctl.node.node_inspection import NodeInspection, ProcessInfo, SharedMemoryFile

ID, OTHER = "a" * 64, "b" * 64
CORE = ProcessInfo(
    pid=812,
    parent=1,
    start=5000,
    name="VLLM::EngineCor",
    is_alive=True,
    words=("VLLM::EngineCore",),
    born=1050.0,
    resident=3 * MIB,
)
WAS = ContainerFootprint(container=ID, started=1000.0)


def make_inspection(*procs: ProcessInfo, **more: object) -> NodeInspection:
    return replace(NodeInspection(procs=procs, pids={}, gpu={}), **more)  # type: ignore[arg-type]


def test_on_the_gpu_what_is_in_no_container_counts_while_it_lives() -> None:
    dead = replace(CORE, pid=813, is_alive=False)
    look = make_inspection(CORE, dead, pids={900: ID}, gpu={812: GIB, 813: GIB, 814: GIB, 900: GIB})
    assert [(one.name, one.held) for one in list_loose_processes(look)] == [("process 812", GIB)]


def test_a_process_it_had_is_its_own_and_the_same_pid_with_another_start_is_another() -> None:
    python = ProcessInfo(
        pid=700,
        parent=699,
        start=4000,
        name="python3",
        is_alive=True,
        words=("python3", "-m", "sglang.launch_server"),
        born=1001.0,
    )
    was = capture_footprint(ID, 1000.0, make_inspection(python, CORE, pids={700: ID, 812: OTHER}), shares_shm=False)
    assert was.processes == {(700, 4000)}
    (left,) = find_surviving_processes(was, make_inspection(python, gpu={700: 5 * GIB}))
    assert describe_leftover(left) == "process 700 (python3 -m sglang.launch_server), which outlived it: 5.0 GiB"
    assert left.remedy.startswith("sudo kill 700")
    assert find_surviving_processes(was, make_inspection(replace(python, start=9000))) == ()
    assert find_surviving_processes(was, make_inspection(replace(python, is_alive=False))) == (), (
        "a zombie holds nothing"
    )


def test_a_process_the_cgroup_still_counts_is_a_survivor() -> None:
    (left,) = find_surviving_processes(WAS, make_inspection(replace(CORE, parent=700), pids={812: ID}))
    assert "outlived it" in left.what


@pytest.mark.parametrize(
    "title",
    [
        "VLLM::EngineCore",
        "VLLM::Worker_TP0",
        "sglang::scheduler_TP0",
        "ray::RayWorkerWrapper",
        "ray::IDLE",
        "/opt/raylet",
    ],
)
def test_an_engine_s_process_that_nobody_looks_after_is_named(title: str) -> None:
    lost = replace(CORE, words=(title,), name=title[:15])
    (left,) = find_surviving_processes(WAS, make_inspection(lost, gpu={812: 11 * GIB}))
    assert left.what == f"process 812 ({title}), which belongs to no container"
    assert left.size == 11 * GIB + 3 * MIB


SESSION = ProcessInfo(pid=40, parent=1, start=9, name="bash", is_alive=True)
MANAGER = ProcessInfo(pid=41, parent=1, start=9, name="systemd", is_alive=True)


@pytest.mark.parametrize(
    "one",
    [
        replace(CORE, born=900.0),
        replace(CORE, born=None),
        replace(CORE, parent=40),
        replace(CORE, words=("python3", "-m", "http.server"), name="python3"),
        replace(CORE, words=("vim", "ray::notes"), name="vim"),
    ],
    ids=[
        "older than the container",
        "of unknown age",
        "with a parent",
        "no engine",
        "an engine's name behind a program",
    ],
)
def test_a_process_of_unknown_origin_is_no_survivor(one: ProcessInfo) -> None:
    assert find_surviving_processes(WAS, make_inspection(SESSION, one)) == ()


def test_a_process_of_another_container_is_not_blamed_and_one_that_a_session_took_in_is() -> None:
    assert find_surviving_processes(WAS, make_inspection(CORE, pids={812: OTHER})) == ()
    assert len(find_surviving_processes(WAS, make_inspection(MANAGER, replace(CORE, parent=41)))) == 1
    assert len(find_surviving_processes(WAS, make_inspection(replace(CORE, parent=40)))) == 1, (
        "its parent is not there any more"
    )


def test_secrets_and_control_characters_of_a_command_line_are_not_shown() -> None:
    lost = replace(CORE, words=("VLLM::EngineCore\x1b[2J", "--api-key", "sk-very-secret-1234567890"))
    (left,) = find_surviving_processes(WAS, make_inspection(lost))
    assert "secret-1234" not in left.what
    assert "\x1b" not in left.what


PSM = SharedMemoryFile(path="/dev/shm/psm_1a2b", inode=(27, 4), size=64 * MIB, born=1020.0)
SHARING = replace(WAS, shares_shm=True, files=frozenset({(27, 4)}))


def test_a_file_that_it_had_mapped_is_certainly_its_and_one_of_such_a_name_seems_so() -> None:
    other = replace(PSM, path="/dev/shm/sem.mp-xyz", inode=(27, 5), size=4096)
    assert find_leftover_shm_files(SHARING, make_inspection(shm=(PSM, other))) == ((PSM,), (other,))
    (memory,) = summarize_shm_files([other, PSM])
    assert memory.what == "psm_1a2b, sem.mp-xyz in /dev/shm, not in use"
    assert (memory.size, memory.counts) == (64 * MIB + 4096, True)
    assert memory.remedy == "sudo rm -- /dev/shm/psm_1a2b /dev/shm/sem.mp-xyz"
    assert [one.counts for one in summarize_shm_files([other])] == [False], "semaphores hold next to nothing"


@pytest.mark.parametrize(
    ("was", "one"),
    [
        (SHARING, replace(PSM, born=900.0)),
        (SHARING, replace(PSM, born=999.5)),
        (SHARING, replace(PSM, born=None)),
        (SHARING, replace(PSM, users=frozenset({77}))),
        (SHARING, replace(PSM, path="/dev/shm/notes", inode=(27, 9))),
        (replace(SHARING, shares_shm=False), PSM),
        (replace(SHARING, started=None), PSM),
    ],
    ids=[
        "was there before",
        "half a second before",
        "of unknown age",
        "in use",
        "no engine's",
        "a /dev/shm of its own",
        "of unknown start",
    ],
)
def test_what_may_be_somebody_else_s_in_dev_shm_is_left_alone(was: ContainerFootprint, one: SharedMemoryFile) -> None:
    assert find_leftover_shm_files(was, make_inspection(shm=(one,))) == ((), ())


def make_memory_reading(available: int) -> MemoryReading:
    return MemoryReading(total=121 * GIB, available=available, free=available, page_cache=0, swap_total=0, swap_free=0)


@pytest.mark.parametrize(
    ("before", "available", "memory", "own", "short"),
    [
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 109 * GIB, 4 * GIB, 80 * GIB, 0),
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 90 * GIB, 4 * GIB, 80 * GIB, 20 * GIB),
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 90 * GIB, 24 * GIB, 80 * GIB, 0),
        (MemoryBeforeStart(110 * GIB, None), 90 * GIB, 24 * GIB, 80 * GIB, 20 * GIB),
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 60 * GIB, 4 * GIB, 30 * GIB, 30 * GIB),
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 60 * GIB, 4 * GIB, 1 * GIB, 0),
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 106 * GIB, 4 * GIB, 90 * GIB, 0),
        (MemoryBeforeStart(110 * GIB, 4 * GIB), 118 * GIB, 4 * GIB, 90 * GIB, 0),
        (None, 90 * GIB, 4 * GIB, 80 * GIB, None),
    ],
    ids=[
        *("as before", "a part is gone", "others have it by now", "whoever may have it", "never more than it held"),
        *("it was too small for that", "near is a twentieth of it", "more than before", "never seen"),
    ],
)
def test_missing_memory_is_counted_from_the_start(
    before: MemoryBeforeStart | None, available: int, memory: int | None, own: int | None, short: int | None
) -> None:
    assert (
        compute_missing_memory(before, make_inspection(memory=make_memory_reading(available), everybody=memory), own)
        == short
    )


INIT = ProcessInfo(pid=1, parent=0, start=1, name="systemd", is_alive=True)


@pytest.mark.parametrize(
    ("procs", "short"),
    [((INIT,), 20), ((INIT, replace(CORE, is_alive=False)), 20), ((INIT, CORE), 0), ((SESSION,), 0)],
    ids=["its process has ended", "it is a zombie", "a process has it", "not every process is to be seen"],
)
def test_what_the_gpu_still_counts_for_an_ended_process_is_not_taken_by_others(
    procs: tuple[ProcessInfo, ...], short: int
) -> None:
    inspection = make_inspection(
        *procs, memory=make_memory_reading(90 * GIB), everybody=24 * GIB, gpu={CORE.pid: 20 * GIB, 900: None}
    )
    assert compute_missing_memory(MemoryBeforeStart(110 * GIB, 4 * GIB), inspection, 80 * GIB) == short * GIB


def test_a_look_without_memory_proves_nothing() -> None:
    assert compute_missing_memory(MemoryBeforeStart(110 * GIB, None), make_inspection(), None) is None


def test_a_survivor_whose_gpu_memory_is_not_known_is_named_without_a_size() -> None:
    (left,) = find_surviving_processes(WAS, make_inspection(CORE, gpu={812: None}))
    assert left.size is None
