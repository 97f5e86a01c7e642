"""What `sparkctl demo` shows of its own accord: a switch that frees a Spark, a start that fails and says why, one that works.

The figures are no part of it: they come out of the simulated engines.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from sparkctl.cli.panel_launcher import DemoOptions
from sparkctl.clock import Clock
from sparkctl.history.expected_durations import compute_model_key
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.phase import Phase, PhaseDuration
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.tui.panel_options import DemoStep

TIME_FACTOR = 8.0  # seconds of the demo in one of ours, while something starts or stops
_DAY_SECONDS = 86400.0
_SGLANG_PHASES = (
    ("dropping-caches", None, 1.7), ("creating", None, 0.5), ("starting", None, 13.0), ("loading", "join", 29.0),
    ("loading", "weights", 190.0), ("loading", "profiling", 6.1), ("loading", "kv-cache", 5.9), ("loading", "graphs", 55.0),
)  # fmt: skip
_DRAFT_MODEL_PHASES = (("loading", "weights", 9.0), ("loading", "profiling", 5.3), ("loading", "draft", 32.0))
_WARMUP_PHASES = (("warming", "http", 2.6), ("warming", "warm-up", 21.6), ("warming", "first token", 1.2))
_VLLM_PHASES = (
    ("dropping-caches", None, 2.0), ("creating", None, 2.0), ("starting", None, 15.1), ("loading", "join", 41.0),
    ("loading", "weights", 91.0), ("loading", "profiling", 7.0), ("loading", "compile", 42.0), ("loading", "kv-cache", 22.0),
    ("loading", "graphs", 11.8), ("warming", "http", 5.3), ("warming", "first token", 1.3),
)  # fmt: skip
_PAST_STARTS = (
    ("qwen36", "spark2", (*_SGLANG_PHASES, *_DRAFT_MODEL_PHASES, *_WARMUP_PHASES), 4.1),
    ("qwen36-vllm", "spark2", _VLLM_PHASES, 2.2),
    ("qwen36-ngram", "spark1", (*_SGLANG_PHASES, *_WARMUP_PHASES), 0.2),
)  # seconds of each part as the simulated engines take them, days ago
_CONNECT_SECONDS = 2.0  # seconds until the first part begins: connecting and looking
_FAILING_OPTIONS = ("--force", "--set", "args.mem-fraction-static=0.95", "--set", "args.speculative-num-draft-tokens=6")

DEMO_STEPS = (
    DemoStep(
        1.5,
        "two simulated Sparks, in this process alone, with directories of their own: nothing of yours is written to. q ends "
        "it, ? shows the keys",
    ),
    DemoStep(
        8,
        "minimax-m27 holds both. A smaller model on one of them does, and the other is free: switch qwen36-ngram",
        ("switch", "qwen36-ngram", "--node", "spark1"),
    ),
    DemoStep(
        14,
        "spark2 is free. Somebody wants a large KV cache: up qwen36 --force --set args.mem-fraction-static=0.95",
        ("up", "qwen36", "--node", "spark2", *_FAILING_OPTIONS),
    ),
    DemoStep(
        14,
        "no room was left for the drafts: j and then enter on spark2 shows the verdict. Now the other stack: up qwen36-vllm",
        ("up", "qwen36-vllm", "--node", "spark2"),
    ),
    DemoStep(
        25,
        "the same model twice: FP8 with NGRAM drafts on spark1, NVFP4 with its own draft head on spark2. It is yours now",
    ),
)


class ScaledClock(Clock, Protocol):
    """A clock that says how many of its seconds go by in one of ours."""

    @property
    def rate(self) -> float:
        """Return that number."""
        ...


def build_demo_options(clock: ScaledClock, *, with_story: bool) -> DemoOptions:
    """Return what the panel needs to know of simulated Sparks."""
    return DemoOptions(
        clock,
        lambda: _format_clock_label(clock),
        DEMO_STEPS if with_story else (),
    )


def _format_clock_label(clock: ScaledClock) -> str:
    """Say whose time this is: how fast it goes, or how far ahead of ours it is since it went faster."""
    if clock.rate != 1:
        return f"simulated, time ×{clock.rate:g}"
    ahead = round((clock.unix_time() - time.time()) / 60)
    return f"simulated, {ahead} min ahead" if ahead else "simulated"


def seed_start_history(state: Path) -> None:
    """Let the operator have started both before: how long that takes is known then."""
    history, library = OperationHistory(state), ProfileLibrary()
    for name, node, took, days in _PAST_STARTS:
        profile = library.load_profile(name)
        parts = [PhaseDuration(Phase(phase), step, seconds) for phase, step, seconds in took]
        history.record_start(
            name, profile.digest, node, _CONNECT_SECONDS + sum(one.seconds for one in parts), time.time() - days * _DAY_SECONDS,
            kind=compute_model_key(profile.image, profile.model.path), parts=parts,
        )  # fmt: skip
