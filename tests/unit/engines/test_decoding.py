"""What a command line says about drafts and ranks, by each engine's own flags."""

from __future__ import annotations

import json
import shlex

import pytest

from sparkctl import engines
from sparkctl.engines.base import Decoding

CONFIG = {"method": "mtp", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--model-path /m --tp 2", Decoding(ranks=2)),
        ("--tp-size=2 --pp-size 2", Decoding(ranks=4)),
        ("--tensor_parallel_size 2", Decoding(ranks=2)),
        ("--tp 2 --tp 1", Decoding(ranks=1)),  # the last one counts, as in argparse
        ("--tp two", Decoding(ranks=1)),
        ("--speculative-num-steps 5", Decoding()),  # without an algorithm there is no speculation
        ("--speculative-algorithm NEXTN --speculative-num-steps 5 --speculative-eagle-topk 4", Decoding(5, 5)),
        ("--speculative-algorithm eagle --speculative-num-steps 3 --speculative-num-draft-tokens 4", Decoding(3, 3)),
        ("--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-num-draft-tokens 9", Decoding(8, 5)),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 12", Decoding(11, 0)),
        ("--speculative-algorithm DFLASH --speculative-num-draft-tokens 16", Decoding(15, 1)),
        ("--speculative-algo NEXTN", Decoding()),  # SGLang chooses, and does not say here
        ("--speculative-algorithm HOWL --speculative-num-steps 2", Decoding(2, None)),
    ],
)
def test_sglang(words: str, expected: Decoding) -> None:
    assert engines.load("sglang").decoding(("python", "-m", "sglang.launch_server", *words.split())) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-tp 2", Decoding(ranks=2)),
        ("--tensor-parallel-size 2 -pp 2", Decoding(ranks=4)),
        (f"--speculative-config '{json.dumps(CONFIG)}'", Decoding(3, 3)),
        (f"--speculative-config='{json.dumps(CONFIG)}' -tp 2", Decoding(3, 3, 2)),
        (f"-sc '{json.dumps(CONFIG | {'method': 'ngram', 'num_speculative_tokens': 4})}'", Decoding(4, 0)),
        (f"--speculative_config '{json.dumps(CONFIG | {'method': 'qwen3_next_mtp'})}'", Decoding(3, 3)),
        (f"--speculative-config '{json.dumps(CONFIG | {'method': 'eagle3'})}'", Decoding(3, 3)),
        (f"--speculative-config '{json.dumps(CONFIG | {'method': 'dflash'})}'", Decoding(3, 1)),
        ("--speculative-config.method mtp --speculative-config.num_speculative_tokens 2", Decoding(2, 2)),
        ("--spec-method ngram --spec-tokens 5", Decoding(5, 0)),
        ("--speculative-config {broken", Decoding()),
        ("--speculative-config []", Decoding()),
        ('--speculative-config \'{"method": "mtp"}\'', Decoding()),  # the draft's own config gives the number
        ("--speculative-config '{\"num_speculative_tokens\": 3}'", Decoding(3, None)),
        ("--speculative-config", Decoding()),
    ],
)
def test_vllm(words: str, expected: Decoding) -> None:
    assert engines.load("vllm").decoding(("vllm", "serve", "/m", *shlex.split(words))) == expected


@pytest.mark.parametrize("name", engines.names())
@pytest.mark.parametrize("words", [(), ("bash", "-c", "vllm serve /m -tp 2"), ("--",), ("-",), ("--x=", "=")])
def test_any_command_line_has_an_answer(name: str, words: tuple[str, ...]) -> None:
    assert engines.load(name).decoding(words) == Decoding()
