"""The verdict: what Docker knows for certain, then the engine's own words, then the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkctl.engines import load_engine
from sparkctl.errors import DockerError, GpuRuntimeMissing, PortInUse
from sparkctl.logs import start_verdict, verdict_builder
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.guard_state import GuardAction, GuardMemoryReading, GuardReceipt
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.memory_fit import MemoryHolder
from sparkctl.model.phase import Phase
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import LAST_LINE_ORIGIN, FailureCause
from tests.unit.conftest import READY

Reader = Callable[..., LogAnalyzer]
Make = Callable[..., Container]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 119.64 GiB "
    "of which 1.18 GiB is free."
)


def make_ended_container(container: Make, code: int, **more: object) -> Container:
    return container(state=ContainerState.EXITED, exit_code=code, oom_killed=more.pop("oom_killed", False), **more)


def test_a_limits_oom_kill_is_dockers_word_and_names_the_limit(plan: LaunchPlan, read: Reader, container: Make) -> None:
    limited = replace(plan, options=(("memory", "64m"),))
    verdict = start_verdict.build_exit_verdict(
        limited, read("Load weight begin."), make_ended_container(container, 137, oom_killed=True)
    )
    assert verdict.cause is FailureCause.HOST_OOM_KILL
    assert "64m" in verdict.summary
    assert any(e.origin == "docker" and "OOMKilled=true" in e.text for e in verdict.evidence)


def test_cuda_out_of_memory_is_proved_by_its_line_whatever_the_exit_code(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    log = read("Load weight begin.", OOM, "Received sigquit from a child process. It usually means the child failed.")
    for code in (0, 1, 137):
        verdict = start_verdict.build_exit_verdict(plan, log, make_ended_container(container, code))
        assert verdict.cause is FailureCause.CUDA_OUT_OF_MEMORY
        assert verdict.evidence[0].line == 2
        assert "out of memory" in verdict.evidence[0].text
        assert verdict.field == "args.mem-fraction-static"


@pytest.mark.parametrize("error", ["[ERROR] the node LoadImage failed", "app - ERROR - ValueError: no face"])
def test_an_error_of_a_program_at_work_is_why_its_container_ended_with_one(
    error: str, plan: LaunchPlan, container: Make
) -> None:
    lines = ("To see the GUI go to: http://0.0.0.0:8188", *["got prompt"] * 9, f"2026-05-01 10:00:00,123 - {error}")
    log = LogAnalyzer(engine=load_engine("container"), ready=plan.ready, whole=True, is_unknown=True)
    log.feed_lines(LogLine(when="", text=text, number=at) for at, text in enumerate(lines, 1))
    assert log.end_cause is None
    assert log.last_words is None
    verdict = start_verdict.build_exit_verdict(plan, log, make_ended_container(container, 1))
    assert verdict.cause is FailureCause.CRASHED
    assert error.rpartition("ERROR")[2].strip("] -") in verdict.evidence[0].text


def test_exit_137_without_a_log_line_is_killed_and_not_oom(plan: LaunchPlan, read: Reader, container: Make) -> None:
    verdict = start_verdict.build_exit_verdict(plan, read("Load weight begin."), make_ended_container(container, 137))
    assert verdict.cause is FailureCause.KILLED
    assert f"On {plan.node}: sudo dmesg" in verdict.remedy
    ended_so, last = verdict.evidence
    assert (ended_so.location, last.location, last.line) == ("docker", "its last line, 1", 1), "which proves nothing"


def test_137_is_not_put_down_to_an_error_after_which_the_log_went_on(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    """A worker of Ray that waits for its head complains of that, and joins."""
    early = "[2026-05-01 22:04:12,114 E 1 1] gcs_client.cc:172: Failed to connect to GCS within 5 seconds."
    log = read(early, *(f"line {number}" for number in range(8)))
    verdict = start_verdict.build_exit_verdict(plan, log, make_ended_container(container, 137))
    assert verdict.cause is FailureCause.KILLED
    assert "GCS" not in verdict.summary + "".join(one.text for one in verdict.evidence)
    at_the_end = start_verdict.build_exit_verdict(
        plan, read("line", "frobnication failed: widget", "bye"), make_ended_container(container, 137)
    )
    assert (at_the_end.cause, "frobnication failed" in at_the_end.summary) == (FailureCause.CRASHED, True)


def test_exit_0_that_nobody_asked_for_is_a_failure(plan: LaunchPlan, read: Reader, container: Make) -> None:
    assert (
        start_verdict.build_exit_verdict(plan, read("bye"), make_ended_container(container, 0)).cause
        is FailureCause.EXITED
    )


def test_an_unknown_crash_shows_its_last_error_line(plan: LaunchPlan, read: Reader, container: Make) -> None:
    verdict = start_verdict.build_exit_verdict(
        plan, read("frobnication failed: widget", "bye"), make_ended_container(container, 3)
    )
    assert verdict.cause is FailureCause.CRASHED
    assert "frobnication failed" in verdict.summary
    assert verdict.evidence[0].line == 1


def test_a_container_that_is_gone_was_removed_by_somebody(plan: LaunchPlan, read: Reader) -> None:
    assert start_verdict.build_exit_verdict(plan, read("hello"), None).cause is FailureCause.STOPPED_BY_OTHERS
    assert start_verdict.build_exit_verdict(plan, read(), None).evidence == ()


def test_a_timeout_names_the_phase_and_the_setting(plan: LaunchPlan, read: Reader) -> None:
    log = read("Load weight begin.", "Multi-thread loading shards:  60% Completed | 6/10 [00:01<00:04,  2.2it/s]")
    verdict = start_verdict.build_timeout_verdict(plan, log, Phase.LOADING, 61.0, "start.timeouts.loading", None)
    assert verdict.cause is FailureCause.TIMED_OUT
    assert verdict.field == "start.timeouts.loading"
    assert "loading" in verdict.summary
    assert "weights" in verdict.summary


def test_health_without_a_token_is_its_own_cause(plan: LaunchPlan, read: Reader) -> None:
    log = read("[2026-05-01 10:00:00] " + READY)
    verdict = start_verdict.build_timeout_verdict(
        plan, log, Phase.WARMING, 90.0, "start.timeouts.warming", "POST /v1/completions answered 500"
    )
    assert verdict.cause is FailureCause.WEDGED
    assert any("answered 500" in e.text for e in verdict.evidence)


# the guard


def make_receipt(*curve: tuple[float, float], **more: object) -> GuardReceipt:
    """A receipt with this curve of (seconds before the act, GiB available); the last is what was decided on."""
    samples = tuple(
        GuardMemoryReading(at=1000.0 - before, available=int(gib * GIB), free=GIB, page_cache=GIB, swap_free=0)
        for before, gib in curve
    )
    given = {"available": samples[-1].available if samples else GIB // 4, "floor": GIB // 2, "samples": samples, **more}
    return GuardReceipt(
        container="ab" * 32, at=1000.0, did=GuardAction.KILLED, why="400 MiB are available, under 512 MiB", **given
    )  # type: ignore[arg-type]


def test_the_guards_curve_is_the_proof(plan: LaunchPlan, read: Reader) -> None:
    log = read("Load weight begin.", "Multi-thread loading shards:  60% Completed | 6/10 [00:01<00:04,  2.2it/s]")
    found = make_receipt((30, 12.0), (1.2, 9.9), (0.6, 5.0), (0.0, 0.4), reaction=0.031)
    verdict = start_verdict.build_guard_kill_verdict(plan, log, found, "args.mem-fraction-static", "0.8")
    assert verdict.cause is FailureCause.GUARD_STOPPED
    assert verdict.evidence[0].text == "MemAvailable fell from 9.9 GiB to 410 MiB in 1.2 s"
    assert [e.origin for e in verdict.evidence] == ["guard", "guard", "guard", LAST_LINE_ORIGIN]
    assert "31 ms" in verdict.evidence[2].text
    assert verdict.field == "args.mem-fraction-static"
    assert "(now 0.8)" in verdict.remedy
    assert "start.guard.floor (512 MiB)" in verdict.remedy
    assert "weights" in verdict.summary


def test_without_a_claim_the_guards_remedy_names_no_field(plan: LaunchPlan, read: Reader) -> None:
    verdict = start_verdict.build_guard_kill_verdict(plan, read(), make_receipt(), None, None)
    assert verdict.field is None
    assert "claim less" in verdict.remedy
    assert len(verdict.evidence) == 2


def test_a_curve_that_did_not_fall_is_not_told_as_a_fall() -> None:
    assert (
        start_verdict.describe_memory_drop(make_receipt((5, 0.42), (0, 0.4)))
        == "MemAvailable was 410 MiB, the floor is 512 MiB"
    )
    assert start_verdict.describe_memory_drop(make_receipt()) == "MemAvailable was 256 MiB, the floor is 512 MiB"


def test_above_the_floor_it_is_told_why_the_guard_acted() -> None:
    refused = "the GPU's driver was refused memory 3 times in 5 s (NV_ERR_NO_MEMORY); 900 MiB are available"
    found = replace(make_receipt((2, 3.0), (0, 0.9), available=int(0.9 * GIB)), why=refused)
    assert start_verdict.describe_guard_kill(found).endswith(f" to 922 MiB in 2.0 s; {refused}")
    below = replace(found, available=int(0.4 * GIB))
    assert refused not in start_verdict.describe_guard_kill(below)


def test_what_was_read_after_the_act_is_not_part_of_the_fall() -> None:
    assert start_verdict.describe_memory_drop(
        make_receipt((2, 3.0), (0, 0.3), (-3, 90.0), available=int(0.3 * GIB))
    ).startswith("MemAvailable fell from 3.0 GiB to 307 MiB in 2.0 s")


def test_nothing_before_the_watch_is_part_of_the_fall() -> None:
    found = make_receipt((9, 90.0), (3, 12.0), (2, 5.0), (0, 0.4))
    assert "from 90.0 GiB" in start_verdict.describe_memory_drop(found)
    assert start_verdict.describe_memory_drop(found, within=2.5) == "MemAvailable fell from 5.0 GiB to 410 MiB in 2.0 s"


def test_a_floor_that_is_far_too_high_is_itself_the_reason(plan: LaunchPlan, read: Reader) -> None:
    found = make_receipt((1, 101.0), (0, 99.0), floor=100 * GIB)
    verdict = start_verdict.build_guard_kill_verdict(plan, read(), found, "args.mem-fraction-static", "0.8")
    assert verdict.field == "start.guard.floor"
    assert verdict.remedy == "Lower start.guard.floor (now 100.0 GiB; 512 MiB without it)."
    assert "froze" not in verdict.summary


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (GpuRuntimeMissing("spark1", "Docker on spark1 has no NVIDIA runtime: unknown runtime"), FailureCause.GPU_RUNTIME_MISSING),
        (PortInUse("spark1", "Bind for 0.0.0.0:8003 failed: port is already allocated"), FailureCause.PORT_IN_USE),
        (DockerError("spark1", "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all"),
         FailureCause.GPU_RUNTIME_MISSING),
        (DockerError("spark1", "exec /usr/bin/python: exec format error"), FailureCause.IMAGE_ARCH),
        (DockerError("spark1", "something that nobody has heard of"), FailureCause.DOCKER_REFUSED),
    ],
)  # fmt: skip
def test_what_docker_refuses_has_its_cause_by_kind_or_by_its_words(
    plan: LaunchPlan, error: DockerError, cause: FailureCause
) -> None:
    verdict = start_verdict.build_docker_error_verdict(
        plan, load_engine("sglang"), error, "sparkctl up p --node spark1", old_is_gone=True
    )
    assert verdict.cause is cause
    assert [(proof.text, proof.origin) for proof in verdict.evidence] == [(error.message, "docker")]
    assert verdict.summary.endswith("The one that ran before was stopped.")
    assert verdict.remedy


# what ended on request

HARMLESS = (
    "(APIServer pid=1) WARNING 11-22 10:00:01 [system_utils.py:265] Found ulimit of 20000 and failed to automatically "
    "increase with error current limit exceeds maximum limit."
)


def test_a_warning_is_never_why_it_ended(plan: LaunchPlan, read: Reader, container: Make) -> None:
    for code, cause in (
        (137, FailureCause.KILLED),
        (1, FailureCause.CRASHED),
        (139, FailureCause.CRASHED),
        (143, FailureCause.STOPPED_BY_OTHERS),
    ):
        verdict = start_verdict.build_exit_verdict(plan, read(HARMLESS), make_ended_container(container, code))
        assert verdict.cause is cause, code
        assert "ulimit" not in verdict.summary
        assert all(one.origin in ("docker", LAST_LINE_ORIGIN) for one in verdict.evidence), (
            "the last line proves nothing"
        )
    assert (
        "no line of its log says why"
        in start_verdict.build_exit_verdict(plan, read(HARMLESS), make_ended_container(container, 1)).summary
    )
    assert (
        "139, SIGSEGV"
        in start_verdict.build_exit_verdict(plan, read(HARMLESS), make_ended_container(container, 139)).summary
    )


def test_a_start_that_was_sent_a_signal_to_end_was_stopped_by_somebody(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    interrupted = ("Traceback (most recent call last):", '    raise KeyboardInterrupt("terminated")')
    for last, code in (("KeyboardInterrupt: terminated", 130), ("KeyboardInterrupt", 1), ("SIGTERM received.", 137)):
        verdict = start_verdict.build_exit_verdict(
            plan, read(HARMLESS, *interrupted, last), make_ended_container(container, code), "sparkctl up it"
        )
        assert verdict.cause is FailureCause.STOPPED_BY_OTHERS, last
        assert verdict.summary.startswith(f"Somebody stopped {plan.instance} while it was loading")
        assert verdict.evidence[0].text == last
        assert verdict.remedy.endswith("sparkctl up it")
    for code in (130, 143):
        assert (
            start_verdict.build_exit_verdict(
                plan, read("Load weight begin."), make_ended_container(container, code)
            ).cause
            is FailureCause.STOPPED_BY_OTHERS
        )


def test_a_cause_that_has_a_name_stands_whatever_signal_ended_it(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    for code in (130, 137, 143):
        log = read("Load weight begin.", OOM, "SIGTERM received. Draining requests and shutting down...")
        assert (
            start_verdict.build_exit_verdict(plan, log, make_ended_container(container, code)).cause
            is FailureCause.CUDA_OUT_OF_MEMORY
        )
        asked = start_verdict.build_exit_verdict(
            plan, read("Load weight begin.", OOM), make_ended_container(container, code), requests=(15,)
        )
        assert asked.cause is FailureCause.CUDA_OUT_OF_MEMORY, "whoever ran docker stop afterwards"
    limited = replace(plan, options=(("memory", "64m"),))
    oom = start_verdict.build_exit_verdict(
        limited, read("KeyboardInterrupt"), make_ended_container(container, 137, oom_killed=True)
    )
    assert oom.cause is FailureCause.HOST_OOM_KILL


def test_a_verdict_is_only_an_exit_code_where_no_line_names_a_failure_and_no_signal_ended_it(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    unnamed, named = read("started", "    ERR widget frobnication failed"), read(OOM)
    for log, code, expected in ((unnamed, 1, True), (unnamed, 255, True), (unnamed, 139, False), (named, 1, False)):
        ended = make_ended_container(container, code)
        verdict = start_verdict.build_exit_verdict(plan, log, ended)
        assert start_verdict.is_bare_exit(log, verdict, ended) is expected
        assert "  " not in verdict.summary


def test_an_exit_code_is_a_signal_only_where_there_is_one(plan: LaunchPlan, read: Reader, container: Make) -> None:
    for code, words in ((255, "exit code 255,"), (200, "exit code 200,"), (139, "exit code 139, SIGSEGV")):
        summary = start_verdict.build_exit_verdict(plan, read(HARMLESS), make_ended_container(container, code)).summary
        assert words in summary
        assert "signal" not in summary


@pytest.mark.parametrize("code", [130, 143])
def test_a_signal_that_docker_was_not_asked_to_send_is_not_put_down_to_docker_stop(
    plan: LaunchPlan, read: Reader, container: Make, code: int
) -> None:
    ended = make_ended_container(container, code)
    verdict = start_verdict.build_exit_verdict(plan, read(HARMLESS), ended, requests=())
    assert "nobody asked Docker" in verdict.evidence[0].text
    assert "docker stop" not in verdict.remedy
    unknown = start_verdict.build_exit_verdict(plan, read(HARMLESS), ended)
    assert not any("nobody asked" in one.text for one in unknown.evidence)
    assert "docker stop" in unknown.remedy


def test_two_processes_in_the_line_are_both_named(plan: LaunchPlan, read: Reader, container: Make) -> None:
    """Torch names each process of the GPU; one of them may be this engine."""
    both = f"{OOM} Process 1543 has 70.60 GiB memory in use. Process 2001 has 30.25 GiB memory in use."
    verdict = start_verdict.build_exit_verdict(plan, read(both), make_ended_container(container, 1))
    assert "process 1543 holds 70.60 GiB, process 2001 30.25 GiB" in verdict.summary
    assert "process 1543 " in verdict.remedy
    assert "process 2001, which holds 30.25 GiB" in verdict.remedy


def make_holders(*memory: tuple[str, float, bool]) -> tuple[MemoryHolder, ...]:
    return tuple(MemoryHolder(name=name, ours=ours, held=int(size * GIB)) for name, size, ours in memory)


def test_who_holds_most_of_the_memory_is_named_and_stopped_first(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    found = start_verdict.build_exit_verdict(plan, read(OOM), make_ended_container(container, 1))
    holders = make_holders(("comfy", 8, False), ("qwen36", 96, True), ("tiny", 0.2, True))
    verdict = verdict_builder.add_memory_holders(found, holders, 120 * GIB)
    assert [str(one.text) for one in verdict.evidence[-2:]] == ["qwen36 holds 96.0 GiB", "comfy holds 8.0 GiB"]
    assert verdict.remedy.index("sparkctl down qwen36") < verdict.remedy.index("lower args.mem-fraction-static")
    assert "comfy by what started it" in verdict.remedy
    assert (verdict.edit, verdict.again) == (None, None), "less for itself does not help"


@pytest.mark.parametrize(
    ("remedy", "rest"),
    [
        (
            "Drop it. Stop what else holds memory on the node, or take a smaller model.",
            " Else: Drop it. Take a smaller model.",
        ),
        ("Stop what else holds memory on the node (also an engine core), lower X.", " Else: Lower X."),
        ("Stop whatever else holds memory on the node.", ""),
    ],
)
def test_to_stop_the_others_is_said_once(
    plan: LaunchPlan, read: Reader, container: Make, remedy: str, rest: str
) -> None:
    found = start_verdict.build_exit_verdict(plan, read(OOM), make_ended_container(container, 1))
    found = replace(found, field=None, remedy=remedy)
    verdict = verdict_builder.add_memory_holders(found, make_holders(("qwen36", 96, True)), 120 * GIB)
    assert verdict.remedy.endswith(f"sparkctl down qwen36.{rest}")


def test_small_holders_are_named_after_the_remedy_and_other_causes_have_none(
    plan: LaunchPlan, read: Reader, container: Make
) -> None:
    found = start_verdict.build_exit_verdict(plan, read(OOM), make_ended_container(container, 1))
    verdict = verdict_builder.add_memory_holders(found, make_holders(("voice", 5, True)), 120 * GIB)
    assert verdict.remedy == f"{found.remedy} You can also stop what else holds memory there: sparkctl down voice."
    assert verdict.edit == found.edit
    assert verdict_builder.add_memory_holders(found, (), 120 * GIB) == found
    other = replace(found, cause=FailureCause.UNKNOWN_FLAG)
    assert verdict_builder.add_memory_holders(other, make_holders(("voice", 90, True)), 120 * GIB) == other


def test_a_kill_by_the_kernel_names_the_share_to_lower(plan: LaunchPlan, read: Reader, container: Make) -> None:
    ended = make_ended_container(container, 137, oom_killed=True)
    verdict = start_verdict.build_exit_verdict(plan, read("Load weight begin."), ended)
    assert verdict.field == "args.mem-fraction-static"
    assert "lower args.mem-fraction-static" in verdict.remedy
