"""Values that many of these tests need: a plan, an engine's log, a look."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.engines import load_engine
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan, PhaseTimeouts, ReadinessRule
from sparkctl.model.node import NodeName
from sparkctl.model.text.log_line import LogLine
from tests.support.fast_forward import forward_clock

READY = "The server is fired up and ready to roll!"


@pytest.fixture
def forwarded_clock() -> Iterator[None]:
    """Wait for nothing but work: for tests whose event loop waits for timers alone."""
    with forward_clock():
        yield


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A folder that other users reach. Above `tmp_path` is one that every beginning run of pytest closes to them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def plan() -> LaunchPlan:
    return LaunchPlan(
        node=NodeName("spark1"), instance="qwen36", profile="qwen36", profile_hash="0123456789ab", engine="sglang",
        container_name="sglang-qwen36", image="scitrera/dgx-spark-sglang:0.5.12", entrypoint=None,
        command=("python", "-m", "sglang.launch_server"), env=(), mounts=(), gpus="all", shm_size="16g", ipc=None,
        network="host", ulimits=(), devices=(), options=(), labels=(), port=8003, served_model="qwen3.6-27b",
        api_key=None, ready=ReadinessRule(line=READY, health="/health"), timeouts=PhaseTimeouts(), drop_caches=True, stop_grace=30,
        expected_memory=None, floor_memory=None,
    )  # fmt: skip


@pytest.fixture
def read(plan: LaunchPlan) -> Callable[..., LogAnalyzer]:
    """Return a reader that has read these lines of an engine."""

    def reader(*lines: str, engine: str = "sglang", ready: ReadinessRule | None = None) -> LogAnalyzer:
        log = LogAnalyzer(engine=load_engine(engine), ready=ready or plan.ready)
        log.feed_lines(
            LogLine(when="2026-05-01T10:00:00Z", text=text, number=number) for number, text in enumerate(lines, 1)
        )
        return log

    return reader


@pytest.fixture
def container() -> Callable[..., Container]:
    """Return a container of ours, changed as wanted."""
    base = Container(
        id="ab" * 32, name="sglang-qwen36", image="scitrera/dgx-spark-sglang:0.5.12", state=ContainerState.RUNNING,
        status="Up 3 hours", created=1.0,
        labels=((ContainerLabel.INSTANCE, "qwen36"), (ContainerLabel.HASH, "0123456789ab"), (ContainerLabel.PORT, "8003")),
    )  # fmt: skip
    return lambda **changes: replace(base, **changes)
