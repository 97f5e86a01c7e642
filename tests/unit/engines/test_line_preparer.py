"""From a raw log line to what an engine reads."""

from __future__ import annotations

import pytest

from sparkctl.engines.line_preparer import (
    MAX_LINE_LENGTH,
    LinePreparer,
    ProgressBarState,
    parse_progress_bar,
    strip_log_prefix,
)


@pytest.mark.parametrize(
    ("raw", "level", "text"),
    [
        ("(APIServer pid=3) INFO 04-14 12:41:13 [core.py:105] Hello", "INFO", "Hello"),
        ("(Worker_TP0 pid=1) (Worker_TP1 pid=2) ERROR 04-14 12:41:13 [a.py:1] x", "ERROR", "x"),
        ("(EngineCore pid=1) (RayWorkerWrapper pid=2, ip=10.0.0.2) x", None, "x"),
        ("(EngineCore_DP0 pid=7)     raise ValueError(", None, "    raise ValueError("),
        ("(APIServer pid=3) INFO:     Application startup complete.", None, "INFO:     Application startup complete."),
        ("INFO:     Application startup complete.", None, "INFO:     Application startup complete."),
        (
            "(APIServer pid=3) WARNING 11-20 16:25:06 [core_client.py:1] [shutdown] MPClient: x",
            "WARNING",
            "MPClient: x",
        ),
        ("[2026-05-01 10:00:00] Load weight begin.", None, "Load weight begin."),
        ("2025-05-30 18:28:27.890 |   File x", None, "  File x"),
        ("2025-03-05 08:58:54 ggml_cuda_init: found 1 CUDA devices:", None, "ggml_cuda_init: found 1 CUDA devices:"),
        ("2026-01-18 23:16:55.275 | INFO     | mineru.utils:enable:46 - hello", "INFO", "hello"),
        ("2023-10-06 05:57:22 | ERROR | stderr | ValueError: x", "ERROR", "ValueError: x"),
        ("09:14:37 TimeoutError: x", None, "TimeoutError: x"),
        ("2026-04-05 08:59:13,998    ERROR worker.py:439 -- Unhandled error", "ERROR", "Unhandled error"),
        ("2026-04-05 08:59:13,998\tERR scripts.py:1125 --   raylet [exit code=1]", "ERROR", "  raylet [exit code=1]"),
        ("2026-04-05 08:59:13,998\tSUCC scripts.py:951 -- Ray runtime started.", "INFO", "Ray runtime started."),
        ("[2026-05-01 10:00:00.123 DP1 TP3 EP3] Load weight begin.", None, "Load weight begin."),
        ("0.24.777.216 I srv  llama_server: model loaded", "INFO", "srv  llama_server: model loaded"),
        ("[Gloo] Rank 0 is connected", None, "[Gloo] Rank 0 is connected"),
        ("(a remark) pid=3", None, "(a remark) pid=3"),
        ("12 of 13", None, "12 of 13"),
        ("", None, ""),
    ],
)
def test_prefixes_come_off(raw: str, level: str | None, text: str) -> None:
    assert strip_log_prefix(raw) == (level, text)


def test_every_state_of_a_bar_is_a_line() -> None:
    raw = "\rShards:   0% Completed | 0/4 [00:00<?, ?it/s]\rShards: 100% Completed | 4/4 [00:00<00:00, 41.49it/s]\r"
    lines = LinePreparer().prepare_lines(raw)
    assert [parse_progress_bar(line) for line in lines] == [
        ProgressBarState(title="Shards", fraction=0.0, done=0, total=4),
        ProgressBarState(title="Shards", fraction=1.0, done=4, total=4),
    ]


def test_what_another_process_wrote_behind_a_bar_is_kept() -> None:
    state = parse_progress_bar(
        "Capturing batches:   0%| | 0/11 [00:00<?, ?it/s] (SGLangWorker pid=38138) ValueError: no kernel"
    )
    assert state == ProgressBarState(
        title="Capturing batches", fraction=0.0, done=0, total=11, rest="(SGLangWorker pid=38138) ValueError: no kernel"
    )


def test_colours_and_empty_lines_are_gone() -> None:
    preparer = LinePreparer()
    assert preparer.prepare_lines(
        "\x1b[0;36m(APIServer pid=9)\x1b[0;0m \x1b[32mINFO\x1b[0m 11-20 16:25:06 [a.py:1] Hi\r"
    ) == ["Hi"]
    assert preparer.prepare_lines("(EngineCore pid=3678) \r") == []
    assert preparer.prepare_lines("") == []


def test_a_line_is_read_up_to_a_limit() -> None:
    assert [len(line) for line in LinePreparer().prepare_lines("x" * 1_000_000)] == [MAX_LINE_LENGTH]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Loading safetensors checkpoint shards:  67% Completed | 12/18 [00:40<00:20,  3.3s/it]", (12, 18, 0.67)),
        ("Capturing batches (bs=8 avail_mem=27.40 GB):  12%|█▏        | 1/8 [00:01<00:09,  1.40s/it]", (1, 8, 0.12)),
        ("Capturing CUDA graphs (decode, FULL): 100%|██████████| 19/19 [00:03<00:00,  5.1it/s]", (19, 19, 1.0)),
        ("model-00001.safetensors:  45%|████▌     | 1.2G/4.0G [00:10<00:20, 100MB/s]", (None, None, 0.45)),
    ],
)
def test_bars_are_read(line: str, expected: tuple[int | None, int | None, float]) -> None:
    found = parse_progress_bar(line)
    assert found is not None
    assert (found.done, found.total, found.fraction) == expected


@pytest.mark.parametrize("line", ["GPU KV cache usage: 0.5%, x | y", "50% | half", "a: 12% of | 3/4", "|%"])
def test_other_lines_are_no_progress_bar(line: str) -> None:
    assert parse_progress_bar(line) is None


def test_a_validation_error_is_given_once_more_as_one_line() -> None:
    preparer = LinePreparer()
    raw = [
        "(APIServer pid=5) pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig",
        "(APIServer pid=5) gpu_memory_utilization",
        "(APIServer pid=5)   Input should be less than or equal to 1 [type=less_than_equal, input_value=2.0]",
        "(APIServer pid=5)     For further information visit https://errors.pydantic.dev/2.14/v/less_than_equal",
    ]
    out = [line for each in raw for line in preparer.prepare_lines(each)]
    assert len(out) == 5
    assert out[-1] == (
        "1 validation error for CacheConfig: gpu_memory_utilization: "
        "Input should be less than or equal to 1 [type=less_than_equal, input_value=2.0]"
    )


def test_a_validation_error_that_never_ends_holds_nothing_up() -> None:
    preparer = LinePreparer()
    preparer.prepare_lines("1 validation error for CacheConfig")
    assert [preparer.prepare_lines(f"line {n}") for n in range(100)] == [[f"line {n}"] for n in range(100)]
    assert preparer.prepare_lines("For further information visit x") == ["For further information visit x"]
