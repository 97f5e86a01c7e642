"""A start's log becomes a phase, a step, a ready line and failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkctl.engines import load_engine
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.line_patterns import parse_log_time
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import FailureCause
from sparkctl.monitor.engine_probe import mark_request_path
from tests.unit.conftest import READY

Reader = Callable[..., LogAnalyzer]
STAMP = "[2026-05-01 10:00:00] "


def test_silence_is_starting_and_the_first_word_is_loading(read: Reader) -> None:
    assert read().phase is Phase.STARTING
    assert read("", "  ").phase is Phase.STARTING
    assert read("hello").phase is Phase.LOADING


def test_weights_progress_is_read_from_the_last_state_of_the_bar(read: Reader) -> None:
    log = read(
        STAMP + "Load weight begin. avail mem=111.87 GB",
        "Multi-thread loading shards:  25% Completed | 3/12 [00:01<00:04,  2.2it/s]\r"
        "Multi-thread loading shards:  50% Completed | 6/12 [00:02<00:02,  2.2it/s]",
    )
    assert log.phase is Phase.LOADING
    assert log.step is not None
    assert (log.step.name, log.step.done, log.step.total) == ("weights", 6, 12)


def test_the_weights_of_a_draft_model_are_a_step_of_its_own(read: Reader) -> None:
    log = read(
        STAMP + "Load weight begin. avail mem=111.87 GB",
        STAMP + "Load weight end. elapsed=70.4 s, type=Qwen3ForCausalLM, avail mem=83.10 GB, mem usage=28.7 GB.",
        STAMP + "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 676574, K size: 21.94 GB, V size: 21.94 GB",
        STAMP + "Capture cuda graph begin. This can take up to several minutes. avail mem=27.40 GB",
        STAMP + "Load weight begin. avail mem=27.10 GB",
        "Multi-thread loading shards:  50% Completed | 1/2 [00:01<00:04,  2.2it/s]",
        STAMP + "Load weight end. elapsed=1.4 s, type=Qwen3ForCausalLMMTP, avail mem=25.10 GB, mem usage=2.0 GB.",
        STAMP + "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 676574, K size: 1.1 GB, V size: 1.1 GB",
        STAMP + "Capture draft cuda graph begin. This can take up to several minutes. avail mem=22.9 GB",
    )
    steps = [one.step for one in log.phase_durations if one.step]
    assert steps == ["weights", "profiling", "kv-cache", "graphs", "draft"]


def test_a_phase_is_never_left_backwards(read: Reader) -> None:
    log = read(STAMP + READY, STAMP + "Load weight begin. avail mem=90.00 GB")
    assert log.phase is Phase.WARMING
    assert log.ready_line_seen


def test_the_profiles_own_ready_line_decides(read: Reader) -> None:
    rule = ReadinessRule(line="listening on", health=None)
    assert not read(STAMP + READY, ready=rule).ready_line_seen
    assert read("listening on 0.0.0.0:5005", ready=rule).ready_line_seen
    assert read(ready=ReadinessRule(line=None, health="/health")).ready_line_seen


def test_a_fatal_line_is_found_and_a_retraction_is_none(read: Reader) -> None:
    harmless = read(STAMP + "KV cache pool is full. Retract requests. #retracted_reqs: 1")
    assert harmless.fatal_line is None
    dead = read(
        f"{STAMP}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity"
    )
    assert dead.failures[0].failure is not None
    assert dead.failures[0].failure.cause is FailureCause.CUDA_OUT_OF_MEMORY
    assert dead.failures[0].number == 1


def test_the_last_line_that_sounds_bad_is_kept_for_a_crash_nobody_knows(read: Reader) -> None:
    log = read(
        "all is well",
        "frobnication failed: no such widget",
        "bye",
        engine="container",
        ready=ReadinessRule(line="never", health=None),
    )
    assert log.last_error is not None
    assert log.last_error.number == 2
    assert log.latest_line is not None
    assert log.latest_line.text == "bye"


def test_our_own_questions_are_neither_the_last_word_nor_an_error(read: Reader) -> None:
    asked = f'INFO:     127.0.0.1:4 - "GET {mark_request_path("/health")} HTTP/1.1" 500 Internal Server Error'
    log = read(STAMP + "the last word", f"[2026-05-01 10:00:02] {asked}")
    assert log.latest_line is not None
    assert (log.latest_line.number, log.latest_line.text) == (1, "the last word")
    assert log.last_error is None


def test_a_quoted_ready_line_makes_nothing_ready(read: Reader) -> None:
    default = ReadinessRule(line=load_engine("sglang").defaults.ready_line, health="/health")
    assert read(READY, ready=default).ready_line_seen
    for quoted in (f"Prompt: '{READY}'", f"{READY} said the model"):
        assert not read(quoted, ready=default).ready_line_seen, quoted
    own = ReadinessRule(line="fired up and ready", health="/health")  # a profile's own line is trusted
    assert read(f"Prompt: '{READY}'", ready=own).ready_line_seen


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("INFO 12-31 23:59:30 [a.py:1] x", "INFO 01-01 00:00:45 [a.py:1] x", 75.0),
        ("INFO 02-28 23:59:30 [a.py:1] x", "INFO 03-01 00:00:45 [a.py:1] x", 75.0),
        ("INFO 02-29 23:59:30 [a.py:1] x", "INFO 03-01 00:00:45 [a.py:1] x", 75.0),
        ("INFO 02-28 23:59:30 [a.py:1] x", "INFO 02-29 00:00:45 [a.py:1] x", 75.0),
        ("INFO 05-02 10:00:00 [a.py:1] x", "INFO 05-02 10:02:00 [a.py:1] x", 120.0),
        ("INFO 05-02 10:02:00 [a.py:1] x", "INFO 05-02 10:00:00 [a.py:1] x", None),  # a clock was set back
        ("[2026-12-31 23:59:30] x", "[2027-01-01 00:00:45] x", 75.0),
        ("[2026-12-31 23:59:30] x", "[2026-01-01 00:00:45] x", None),
        ("[2026-12-31 23:59:30] x", "INFO 01-01 00:00:45 [a.py:1] x", None),  # of another clock
    ],
)
def test_the_time_between_two_lines_also_over_a_new_year(earlier: str, later: str, seconds: float | None) -> None:
    began, ended = parse_log_time("", earlier), parse_log_time("", later)
    assert began is not None
    assert ended is not None
    assert ended.seconds_since(began) == seconds
