"""Speaks llama-benchy's options, progress and result, and sends its requests; no tokenizer, no statistics.

Like llama-benchy it cuts its prompts from a book in its cache; it fetches none, so without that it fails.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import urllib.request
from itertools import pairwise
from pathlib import Path


def main(words: list[str]) -> int:
    """Send ``--runs`` times ``--concurrency`` requests."""
    if "--version" in words:
        print("llama-benchy 0.4.0")
        return 0
    options = {
        name: value for name, value in pairwise(words) if name.startswith("--") and name != "--extra-body"
    }  # fmt: skip
    runs, tokens = int(options["--runs"]), int(options["--tg"])
    name = hashlib.md5(options["--book-url"].encode(), usedforsecurity=False).hexdigest()
    book = (Path.home() / f".cache/llama-benchy/{name}.txt").read_text(encoding="utf-8")
    rates: list[list[float]] = [[] for _ in range(runs)]
    for number in range(runs * int(options["--concurrency"])):
        body = {
            "model": options["--served-model-name"], "messages": [{"role": "user", "content": book[: int(options["--pp"])]}],
            "max_tokens": tokens, "stream": True,
        }  # fmt: skip
        request = urllib.request.Request(
            f"{options['--base-url']}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        _emit("request_start", request_id=number)
        began, first = time.monotonic(), None
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if line.startswith(b"data: {") and first is None:
                    first = time.monotonic()
                    _emit("request_first_token", request_id=number, ttft_s=first - began)
        _emit("request_end", request_id=number)
        rates[number % runs].append(tokens / max(1e-6, time.monotonic() - (first or began)))
    values = [sum(each) for each in rates]  # of all requests of a run together, as llama-benchy's
    metric = {"mean": sum(values) / len(values), "std": 0.0, "values": values}
    with Path(options["--save-result"]).open("w", encoding="utf-8") as file:
        json.dump({"benchmarks": [{"tg_throughput": metric, "pp_throughput": metric, "e2e_ttft": metric}]}, file)
    return 0


def _emit(kind: str, **fields: object) -> None:
    print(json.dumps({"type": kind, **fields}), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
