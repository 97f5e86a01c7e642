"""What a command line says about drafts and ranks, by each engine's own flags."""

from __future__ import annotations

import json
import shlex

import pytest

from sparkctl import engines
from sparkctl.engines.base import DecodingSettings

CONFIG = {"method": "mtp", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--model-path /m --tp 2", DecodingSettings(ranks=2)),
        ("--tp-size=2 --pp-size 2", DecodingSettings(ranks=4)),
        ("--tensor_parallel_size 2", DecodingSettings(ranks=2)),
        ("--tp 2 --tp 1", DecodingSettings(ranks=1)),  # the last one counts, as in argparse
        ("--tp two", DecodingSettings(ranks=1)),
        ("--speculative-num-steps 5", DecodingSettings()),  # without an algorithm there is no speculation
        ("--speculative-algorithm NEXTN --speculative-num-steps 5 --speculative-eagle-topk 4", DecodingSettings(5, 5)),
        (
            "--speculative-algorithm eagle --speculative-num-steps 3 --speculative-num-draft-tokens 4",
            DecodingSettings(3, 3),
        ),
        (
            "--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-num-draft-tokens 9",
            DecodingSettings(8, 5),
        ),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 12", DecodingSettings(11, 0)),
        ("--speculative-algorithm DFLASH --speculative-num-draft-tokens 16", DecodingSettings(15, 1)),
        ("--speculative-algo NEXTN", DecodingSettings()),  # SGLang chooses, and does not say here
        ("--speculative-algorithm HOWL --speculative-num-steps 2", DecodingSettings(2, None)),
    ],
)
def test_sglang_decoding_settings(words: str, expected: DecodingSettings) -> None:
    assert (
        engines.load_engine("sglang").read_decoding_settings(("python", "-m", "sglang.launch_server", *words.split()))
        == expected
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-tp 2", DecodingSettings(ranks=2)),
        ("--tensor-parallel-size 2 -pp 2", DecodingSettings(ranks=4)),
        (f"--speculative-config '{json.dumps(CONFIG)}'", DecodingSettings(3, 3)),
        (f"--speculative-config='{json.dumps(CONFIG)}' -tp 2", DecodingSettings(3, 3, 2)),
        (f"-sc '{json.dumps(CONFIG | {'method': 'ngram', 'num_speculative_tokens': 4})}'", DecodingSettings(4, 0)),
        (f"--speculative_config '{json.dumps(CONFIG | {'method': 'qwen3_next_mtp'})}'", DecodingSettings(3, 3)),
        (f"--speculative-config '{json.dumps(CONFIG | {'method': 'eagle3'})}'", DecodingSettings(3, 3)),
        (f"--speculative-config '{json.dumps(CONFIG | {'method': 'dflash'})}'", DecodingSettings(3, 1)),
        ("--speculative-config.method mtp --speculative-config.num_speculative_tokens 2", DecodingSettings(2, 2)),
        ("--spec-method ngram --spec-tokens 5", DecodingSettings(5, 0)),
        ("--speculative-config {broken", DecodingSettings()),
        ("--speculative-config []", DecodingSettings()),
        ('--speculative-config \'{"method": "mtp"}\'', DecodingSettings()),  # the draft's own config gives the number
        ("--speculative-config '{\"num_speculative_tokens\": 3}'", DecodingSettings(3, None)),
        ("--speculative-config", DecodingSettings()),
    ],
)
def test_vllm_decoding_settings(words: str, expected: DecodingSettings) -> None:
    assert engines.load_engine("vllm").read_decoding_settings(("vllm", "serve", "/m", *shlex.split(words))) == expected


@pytest.mark.parametrize("name", engines.engine_names())
@pytest.mark.parametrize("words", [(), ("bash", "-c", "vllm serve /m -tp 2"), ("--",), ("-",), ("--x=", "=")])
def test_any_command_line_has_an_answer(name: str, words: tuple[str, ...]) -> None:
    assert engines.load_engine(name).read_decoding_settings(words) == DecodingSettings()
