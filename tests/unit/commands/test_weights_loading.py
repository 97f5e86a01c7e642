"""When page cache may be dropped: from the first line about weights to the last shard, as each engine's own log tells it."""

from __future__ import annotations

import pytest

from sparkctl.commands.guard_session import is_loading_weights
from sparkctl.engines import load_engine
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text.log_line import LogLine

VLLM = """\
. (EngineCore pid=9) INFO 04-14 12:41:20 [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='/m'
w (EngineCore pid=9) INFO 04-14 12:41:21 [gpu_model_runner.py:71] Starting to load model /m...
w (EngineCore pid=9) \rLoading safetensors checkpoint shards:  67% Completed | 12/18 [00:40<00:20,  3.3s/it]
. (EngineCore pid=9) \rLoading safetensors checkpoint shards: 100% Completed | 18/18 [01:00<00:00,  3.3s/it]
. (EngineCore pid=9) INFO 04-14 12:42:40 [default_loader.py:384] Loading weights took 84.31 seconds
. (EngineCore pid=9) INFO 04-14 12:42:41 [gpu_model_runner.py:4820] Model loading took 28.1 GiB memory and 86.7 seconds
. (EngineCore pid=9) INFO 04-14 12:43:10 [gpu_worker.py:1] Available KV cache memory: 69.02 GiB
. (EngineCore pid=9) Capturing CUDA graphs (decode, FULL):  10%|#         | 2/19 [00:01<00:09,  1.40it/s]
. (APIServer pid=1) INFO:     Application startup complete.
"""
VLLM_WITHOUT_A_BAR = """\
w (EngineCore pid=9) INFO 04-14 12:41:21 [gpu_model_runner.py:71] Starting to load model /m...
. (EngineCore pid=9) INFO 04-14 12:42:40 [default_loader.py:384] Loading weights took 84.31 seconds
"""
SGLANG = """\
. [2026-06-03 09:18:26] Init torch distributed begin.
w [2026-06-03 09:18:27] Load weight begin. avail mem=104.91 GB
. [2026-06-03 09:18:28] Load weight end. elapsed=84.31 s, type=Qwen3, avail mem=76.1 GB, mem usage=28.2 GB.
. [2026-06-03 09:18:29] KV Cache is allocated. #tokens: 1000, K size: 1.0 GB, V size: 1.0 GB
. [2026-06-03 09:18:30] Capture cuda graph begin. This can take up to several minutes. avail mem=12.1 GB
. [2026-06-03 09:18:31] The server is fired up and ready to roll!
"""


@pytest.mark.parametrize(
    ("engine", "log"),
    [("vllm", VLLM), ("vllm", VLLM_WITHOUT_A_BAR), ("sglang", SGLANG)],
    ids=["bar", "no bar", "sglang"],
)
def test_the_lease_begins_and_ends_with_the_weights(engine: str, log: str) -> None:
    reader = LogAnalyzer(engine=load_engine(engine), ready=ReadinessRule(line=None, health="/health"))
    seen = []
    lines = log.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        reader.feed_lines([LogLine(when="2026-05-01T10:00:00Z", text=line[2:], number=number)])
        seen.append("w" if is_loading_weights(reader.phase, reader.step) else ".")
    assert seen == [line[0] for line in lines]


def test_only_weight_loading_counts_as_loading() -> None:
    assert not is_loading_weights(Phase.LOADING, None)
    assert not is_loading_weights(Phase.WARMING, Step("weights", 3, 7))
    assert not is_loading_weights(Phase.LOADING, Step("weights", 7, 7))
    assert not is_loading_weights(Phase.LOADING, Step("weights", fraction=1.0))
    assert not is_loading_weights(Phase.LOADING, Step("graphs", 3, 7))
    assert is_loading_weights(Phase.LOADING, Step("weights"))
    assert is_loading_weights(Phase.LOADING, Step("weights", 3, 7))
