"""The verdict: what Docker knows for certain, then the engine's own words, then the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparkctl.model.container import Container, ContainerState
from sparkctl.model.phase import Phase
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.verdict import Cause
from sparkctl.operations import judge
from sparkctl.operations.progress import LogReader

from .conftest import READY

Reader = Callable[..., LogReader]
Make = Callable[..., Container]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 119.64 GiB "
    "of which 1.18 GiB is free."
)


def ended(container: Make, code: int, **more: object) -> Container:
    return container(state=ContainerState.EXITED, exit_code=code, oom_killed=more.pop("oom_killed", False), **more)


def test_a_limits_oom_kill_is_dockers_word_and_names_the_limit(plan: LaunchPlan, read: Reader, container: Make) -> None:
    limited = replace(plan, options=(("memory", "64m"),))
    verdict = judge.of_end(limited, read("Load weight begin."), ended(container, 137, oom_killed=True))
    assert verdict.cause is Cause.OOM_KILLED
    assert "64m" in verdict.summary
    assert any(e.origin == "docker" and "OOMKilled=true" in e.text for e in verdict.evidence)


def test_cuda_out_of_memory_is_proved_by_its_line_whatever_the_exit_code(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    log = read("Load weight begin.", OOM, "Received sigquit from a child process. It usually means the child failed.")
    for code in (0, 1, 137):
        verdict = judge.of_end(plan, log, ended(container, code))
        assert verdict.cause is Cause.CUDA_OUT_OF_MEMORY
        assert verdict.evidence[0].line == 2
        assert "out of memory" in verdict.evidence[0].text
        assert verdict.field == "args.mem-fraction-static"


def test_137_without_a_word_is_killed_and_not_called_oom(plan: LaunchPlan, read: Reader, container: Make) -> None:
    verdict = judge.of_end(plan, read("Load weight begin."), ended(container, 137))
    assert verdict.cause is Cause.KILLED
    assert "dmesg" in verdict.remedy


def test_exit_0_that_nobody_asked_for_is_a_failure(plan: LaunchPlan, read: Reader, container: Make) -> None:
    assert judge.of_end(plan, read("bye"), ended(container, 0)).cause is Cause.EXITED


def test_an_unknown_crash_shows_its_last_error_line(plan: LaunchPlan, read: Reader, container: Make) -> None:
    verdict = judge.of_end(plan, read("frobnication failed: widget", "bye"), ended(container, 3))
    assert verdict.cause is Cause.CRASHED
    assert "frobnication failed" in verdict.summary
    assert verdict.evidence[0].line == 1


def test_a_container_that_is_gone_was_removed_by_somebody(plan: LaunchPlan, read: Reader) -> None:
    assert judge.of_end(plan, read("hello"), None).cause is Cause.STOPPED_BY_OTHERS
    assert judge.of_end(plan, read(), None).evidence == ()


def test_time_names_the_phase_and_the_setting(plan: LaunchPlan, read: Reader) -> None:
    log = read("Load weight begin.", "Multi-thread loading shards:  60% Completed | 6/10 [00:01<00:04,  2.2it/s]")
    verdict = judge.of_time(plan, log, Phase.LOADING, 61.0, "start.timeouts.loading", None)
    assert verdict.cause is Cause.TIMED_OUT
    assert verdict.field == "start.timeouts.loading"
    assert "loading" in verdict.summary
    assert "weights" in verdict.summary


def test_health_without_a_token_is_its_own_cause(plan: LaunchPlan, read: Reader) -> None:
    log = read("[2026-05-01 10:00:00] " + READY)
    verdict = judge.of_time(
        plan, log, Phase.WARMING, 90.0, "start.timeouts.warming", "POST /v1/completions answered 500"
    )
    assert verdict.cause is Cause.NOT_GENERATING
    assert any("answered 500" in e.text for e in verdict.evidence)
