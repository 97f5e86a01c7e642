"""What the kernel saw outweighs a log without a cause, adds to one with a cause, and says when it is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import Container, ContainerState
from sparkctl.model.kernel_event import KernelEvent, KernelLine, KernelLog
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.verdict import Confidence, Evidence, FailureCause, Verdict
from sparkctl.monitor.kernel_log import add_kernel_evidence, decode_kernel_line, explain_end

OWN, OTHER = "ab" * 32, "cd" * 32
STARTED, FINISHED = 1_000.0, 2_000.0
OOM = "Out of memory: Killed process 41872 (VLLM::EngineCor) total-vm:158493688kB, anon-rss:1000kB"
FAULT = "NVRM: Xid (PCI:000f:01:00): 31, pid=41872, name=VLLM::EngineCor, Ch 00000008, intr 00000000. MMU Fault"
LOST = "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus."
REFUSED = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned"
ENDED = Container(
    id=OWN, name="sparkctl-qwen36", image="x", state=ContainerState.EXITED, status="", created=1.0, labels=(),
    started=STARTED, finished=FINISHED, exit_code=137,
)  # fmt: skip


def make_event(text: str, at: float, container: str | None = None) -> KernelEvent:
    event = decode_kernel_line(KernelLine(at=at, text=text, container=container), lambda unix: unix)
    assert event is not None
    return event


def judge(cause: FailureCause, *events: KernelEvent, log: KernelLog | None = None, **fields: object) -> Verdict:
    verdict = Verdict(cause=cause, summary="It ended.", evidence=(Evidence("exit code 137", "docker"),), remedy="Look.")
    log = log or KernelLog(now=FINISHED + 5, events=events, source="kmsg", oldest=10.0)
    return add_kernel_evidence(verdict, log, replace(ENDED, **fields), "qwen36")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cause",
    [FailureCause.KILLED, FailureCause.EXITED, FailureCause.CRASHED, FailureCause.WORKER_LOST, FailureCause.NCCL],
)
def test_an_oom_kill_of_its_process_is_the_cause(cause: FailureCause) -> None:
    found = judge(cause, make_event(OOM, FINISHED - 2, OWN))
    assert found.cause is FailureCause.HOST_OOM_KILL
    assert (
        found.summary
        == "qwen36 ended because the kernel's OOM killer ended VLLM::EngineCor: the machine ran out of memory."
    )
    assert found.evidence[0].origin == "kernel"
    assert OOM in found.evidence[0].text
    assert found.evidence[-1].text == "exit code 137"


@pytest.mark.parametrize("cause", [FailureCause.CUDA_OUT_OF_MEMORY, FailureCause.HOST_OOM_KILL])
def test_a_named_cause_stays_and_gets_the_proof(cause: FailureCause) -> None:
    found = judge(cause, make_event(OOM, FINISHED - 2, OWN))
    assert (found.cause, found.summary, found.remedy) == (cause, "It ended.", "Look.")
    assert OOM in found.evidence[0].text


def test_the_kill_of_another_container_is_told_and_is_not_the_cause() -> None:
    found = judge(FailureCause.KILLED, make_event(OOM, FINISHED - 5, OTHER))
    assert found.cause is FailureCause.KILLED
    assert "5 s before it ended" in found.evidence[-1].text
    assert found.remedy == make_event(OOM, FINISHED).remedy


def test_events_of_another_time_are_left_out() -> None:
    found = judge(FailureCause.KILLED, make_event(OOM, STARTED - 500, OWN), make_event(REFUSED, FINISHED - 900))
    assert found.cause is FailureCause.KILLED
    assert found.evidence[-1].text == "the kernel logged no OOM kill and no GPU fault while it ran"
    assert "earlyoom" in found.remedy


def test_what_the_start_before_it_met_is_left_out() -> None:
    """A start that is tried again at once would get the reason of the one before."""
    short = {"started": FINISHED - 6, "finished": FINISHED}
    found = judge(
        FailureCause.WORKER_LOST, make_event(FAULT, FINISHED - 50), make_event(OOM, FINISHED - 58, OTHER), **short
    )
    assert (found.cause, [one.origin for one in found.evidence]) == (FailureCause.WORKER_LOST, ["docker"])
    old = KernelLog(now=FINISHED + 30 * 86400, events=(make_event(FAULT, FINISHED - 50),), source="kmsg", oldest=10.0)
    drifted = judge(FailureCause.WORKER_LOST, log=old, **short)
    assert drifted.cause is FailureCause.GPU_FAULT  # after a month the kernel's clock may be wrong by so much


def test_a_gpu_fault_of_its_process_is_the_cause() -> None:
    found = judge(FailureCause.WORKER_LOST, make_event(FAULT, FINISHED - 3, OWN))
    assert (found.cause, found.confidence) == (FailureCause.GPU_FAULT, Confidence.CERTAIN)
    assert "Xid 31" in found.summary
    nameless = judge(FailureCause.WORKER_LOST, make_event(FAULT, FINISHED - 3))
    assert (nameless.cause, nameless.confidence) == (FailureCause.GPU_FAULT, Confidence.LIKELY)
    other = judge(FailureCause.WORKER_LOST, make_event(FAULT, FINISHED - 3, OTHER))
    assert other.cause is FailureCause.WORKER_LOST


def test_a_lost_gpu_is_the_cause_for_every_container() -> None:
    found = judge(FailureCause.CRASHED, make_event(LOST, FINISHED - 3, OTHER))
    assert found.cause is FailureCause.GPU_FAULT
    assert "Restart" in found.remedy


def test_refused_allocations_before_the_end_are_told() -> None:
    found = judge(FailureCause.CRASHED, make_event(REFUSED, FINISHED - 3))
    assert found.cause is FailureCause.CRASHED
    assert "NV_ERR_NO_MEMORY" in found.evidence[-1].text


CRASH = "VLLM::EngineCor[41872]: segfault at 10 ip 00007f1b2c3d4e5f sp 00007ffd1234 error 4 in libcuda.so.580.95.05[7f1b+2a]"


def test_a_crash_in_the_driver_s_library_is_evidence_for_its_own_container() -> None:
    found = judge(FailureCause.KILLED, make_event(CRASH, FINISHED - 3, OWN))
    assert found.cause is FailureCause.KILLED
    assert "VLLM::EngineCor crashed in libcuda.so.580.95.05" in found.evidence[-1].text
    assert found.remedy == make_event(CRASH, FINISHED).remedy
    assert "crashed in" in judge(FailureCause.CRASHED, make_event(CRASH, FINISHED - 3)).evidence[-1].text
    other = judge(FailureCause.CRASHED, make_event(CRASH, FINISHED - 3, OTHER))
    assert [one.origin for one in other.evidence] == ["docker"]


def test_what_the_smmu_stopped_is_evidence() -> None:
    stopped = "arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:"
    assert "the SMMU stopped it" in judge(FailureCause.CRASHED, make_event(stopped, FINISHED - 3)).evidence[-1].text


def test_many_refused_allocations_before_a_silent_end_say_what_to_do() -> None:
    many = replace(make_event(REFUSED, FINISHED - 3), count=20)
    assert "let the engine claim less memory" in judge(FailureCause.KILLED, many).remedy
    assert judge(FailureCause.KILLED, make_event(REFUSED, FINISHED - 3)).remedy == "Look."


def test_after_a_silent_end_the_remedy_is_that_of_what_failed() -> None:
    gone = make_event("nvme nvme0: Disabling device after reset failure: -19", FINISHED - 3)
    refused = replace(make_event(REFUSED, FINISHED - 9), count=20)
    assert judge(FailureCause.KILLED, gone).remedy == gone.remedy
    assert judge(FailureCause.KILLED, refused, gone).remedy == refused.remedy, "memory first"
    assert judge(FailureCause.CRASHED, gone).remedy == "Look.", "its own log says more"


def test_a_log_that_does_not_reach_back_proves_nothing() -> None:
    found = judge(FailureCause.KILLED, log=KernelLog(now=FINISHED + 5, source="kmsg", oldest=STARTED + 1))
    assert [one.origin for one in found.evidence] == ["docker"]
    flooded = judge(FailureCause.KILLED, log=KernelLog(now=FINISHED + 5, source="kmsg", oldest=10.0, skipped=4))
    assert [one.origin for one in flooded.evidence] == ["docker"]


@pytest.mark.parametrize("source", ["kmsg", None])
def test_what_went_down_with_its_machine_is_not_explained_by_the_next_boot(source: str | None) -> None:
    """Docker calls it ended (255) when it starts again, just after the new boot's own lines."""
    booted = FINISHED - 20
    log = KernelLog(
        now=FINISHED + 60, source=source, oldest=booted, booted=booted, events=(make_event(LOST, FINISHED - 8),)
    )
    found = judge(FailureCause.CRASHED, log=log, exit_code=255)
    assert found.summary.startswith("qwen36 ended because its machine went down while it ran, and was booted again at ")
    assert found.remedy.startswith("sparkctl doctor tells how the boot before ended")
    assert (found.cause, [one.origin for one in found.evidence]) == (FailureCause.CRASHED, ["kernel", "docker"])
    named = judge(FailureCause.CUDA_OUT_OF_MEMORY, log=log)
    assert (named.summary, named.remedy) == ("It ended.", "Look."), "its own log says more"
    for other in (STARTED - 5, FINISHED + 5):  # of this boot; ended in an earlier one
        assert "went down" not in judge(FailureCause.CRASHED, log=replace(log, booted=other)).summary


def test_without_the_right_nothing_is_claimed() -> None:
    found = judge(FailureCause.KILLED, log=KernelLog(now=FINISHED + 5, trouble="/dev/kmsg: Operation not permitted"))
    assert found.cause is FailureCause.KILLED
    assert found.evidence[-1].text.startswith("what the kernel did is not known")
    assert "usermod -aG adm" in found.remedy
    crashed = judge(FailureCause.CRASHED, log=KernelLog(now=FINISHED + 5, trouble="/dev/kmsg: Operation not permitted"))
    assert [one.origin for one in crashed.evidence] == ["docker"]


def test_a_kernel_that_cannot_register_memory_is_named() -> None:
    line = Evidence("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "log", 12)
    verdict = Verdict(cause=FailureCause.NCCL, summary="x", evidence=(line,), remedy="Look at the link.")
    for kernel, is_known in (("7.0.0-1019-nvidia", True), ("6.17.0-1032-nvidia", False)):
        found = add_kernel_evidence(verdict, KernelLog(now=FINISHED + 5, source="kmsg", kernel=kernel), ENDED, "qwen36")
        assert ("kho=off" in found.remedy) is is_known


def test_the_status_names_only_a_kill_of_this_run() -> None:
    log = KernelLog(
        now=FINISHED + 5,
        source="kmsg",
        events=(make_event(OOM, STARTED - 300, OWN), make_event(OOM, FINISHED - 1, OTHER)),
    )
    assert explain_end(log, ENDED) is None
    now = make_event(OOM, FINISHED - 1, OWN)
    assert explain_end(replace(log, events=(*log.events, now)), ENDED) == now.meaning
    assert (explain_end(replace(log, booted=FINISHED - 20), ENDED) or "").startswith("its machine went down")


def test_a_start_that_hangs_since_a_fault_is_explained_by_it() -> None:
    running = {"state": ContainerState.RUNNING, "finished": None, "exit_code": None}
    event = make_event(LOST, STARTED + 60)
    log = KernelLog(now=STARTED + 1_500, events=(event,), source="kmsg", oldest=10.0)
    assert judge(FailureCause.TIMED_OUT, log=log, **running).cause is FailureCause.GPU_FAULT
    ended = judge(FailureCause.CRASHED, log=log, finished=STARTED + 1_400)
    assert ended.cause is FailureCause.CRASHED, "it lived on for long"


def test_a_link_that_went_down_is_evidence_for_a_model_on_two_sparks_alone() -> None:
    down = make_event("mlx5_core 0000:01:00.0 enp1s0f0np0: Link down", FINISHED - 20)
    ranks = {"labels": ((ContainerLabel.RANK, "1/2"),)}
    found = judge(FailureCause.WORKER_LOST, down, **ranks)
    assert found.evidence[-1].text.startswith("the ConnectX port enp1s0f0np0 lost its link, 20 s before it ended")
    assert [one.origin for one in judge(FailureCause.WORKER_LOST, down).evidence] == ["docker"]
    assert [one.origin for one in judge(FailureCause.DISK_FULL, down, **ranks).evidence] == ["docker"]
    early = replace(down, at=FINISHED - 500, last=FINISHED - 500)
    assert [one.origin for one in judge(FailureCause.NCCL, early, **ranks).evidence] == ["docker"]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("mt7925e 0000:01:00.0: Message 00020002 (seq 8) timeout", False),
        ("CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 12)", False),
        (
            "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-... } 6 jiffies s: 85 root: 0x1/.",
            False,
        ),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", True),
        ("pc : mt7925_mac_reset_work+0x118/0x2d0 [mt7925_common]", True),
    ],
)
def test_what_ends_and_starves_nothing_is_no_evidence(text: str, counts: bool) -> None:
    found = judge(FailureCause.KILLED, make_event(text, FINISHED - 100))
    assert any(text in one.text for one in found.evidence) is counts
