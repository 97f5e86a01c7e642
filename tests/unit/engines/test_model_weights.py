"""What a model's files come to, and where on the node they lie."""

from __future__ import annotations

from sparkctl.engines.memory_estimate import map_path_to_node, measure_weights
from sparkctl.model.launch_plan import LaunchPlan, Mount, PhaseTimeouts, ReadinessRule
from sparkctl.model.memory_fit import CheckpointFiles, EstimateSource
from sparkctl.model.node import NodeName


def make_plan(*mounts: Mount, env: tuple[tuple[str, str], ...] = ()) -> LaunchPlan:
    return LaunchPlan(
        node=NodeName("spark1"), instance="q", profile="q", profile_hash="0", engine="vllm", container_name="vllm-q",
        image="i:1", entrypoint=None, command=(), env=env, mounts=mounts, gpus="all", shm_size=None, ipc=None, network="host",
        ulimits=(), devices=(), options=(), labels=(), port=8000, served_model=None, api_key=None,
        ready=ReadinessRule(line=None, health=None), timeouts=PhaseTimeouts(), drop_caches=True, stop_grace=30, expected_memory=None,
        floor_memory=None,
    )  # fmt: skip


def test_files_are_summed_and_nothing_is_counted_twice() -> None:
    shards = tuple((f"model-0000{at}-of-00003.safetensors", 100) for at in (1, 2, 3))
    found = measure_weights(
        CheckpointFiles(place="/m", is_there=True, files=(*shards, ("consolidated.safetensors", 300), ("old.bin", 7))),
        declared=5,
    )
    assert (found.size, found.obtained) == (300, EstimateSource.MEASURED)
    gguf = measure_weights(
        CheckpointFiles(place="/m", is_there=True, files=(("m-Q4.gguf", 40), ("mmproj-m.gguf", 9))), None
    )
    assert gguf.size == 40


def test_a_missing_shard_is_told_by_the_index_else_by_the_profile_else_not_at_all() -> None:
    half = CheckpointFiles(
        place="/m", is_there=True, files=(("model-00001-of-00002.safetensors", 100),), index_total=205
    )
    assert (measure_weights(half, 7).size, measure_weights(half, 7).obtained) == (205, EstimateSource.HEADERS)
    bare = CheckpointFiles(place="/m", is_there=True, files=(("model-00001-of-00002.safetensors", 100),))
    assert (measure_weights(bare, 210).size, measure_weights(bare, 210).obtained) == (210, EstimateSource.PROFILE)
    assert measure_weights(bare, None).size is None
    assert "missing" in measure_weights(bare, None).why
    still = CheckpointFiles(place="/m", is_there=True, files=(("model.safetensors", 100),), unfinished=2)
    assert measure_weights(still, None).size is None


def test_nothing_there_is_what_the_profile_says_or_not_known() -> None:
    assert measure_weights(None, 5).size == 5
    assert measure_weights(CheckpointFiles(place="/m", is_there=False), None).size is None
    assert "/m" in measure_weights(CheckpointFiles(place="/m", is_there=False), None).why


def test_a_path_goes_through_the_longest_mount_that_holds_it() -> None:
    mounts = (Mount("/home/milo/models", "/models"), Mount("/big/q", "/models/q"), Mount("volume", "/data"))
    assert map_path_to_node("/models/m", make_plan(*mounts)) == "/home/milo/models/m"
    assert map_path_to_node("/models/q/x", make_plan(*mounts)) == "/big/q/x"
    assert map_path_to_node("/modelsx/m", make_plan(*mounts)) is None
    assert map_path_to_node("/data/m", make_plan(*mounts)) is None, "a named volume is no path of the node"
    assert map_path_to_node(None, make_plan(*mounts)) is None
    assert map_path_to_node("/models/a\nb", make_plan(*mounts)) is None


def test_a_hub_id_lies_in_the_mounted_cache() -> None:
    folder = "hub/models--Qwen--Qwen3.6-27B-FP8"
    root = make_plan(Mount("/home/milo/.cache/huggingface", "/root/.cache/huggingface"))
    assert map_path_to_node("Qwen/Qwen3.6-27B-FP8", root) == f"/home/milo/.cache/huggingface/{folder}"
    own = make_plan(Mount("/srv/hf", "/hf"), env=(("HF_HOME", "/hf"),))
    assert map_path_to_node("Qwen/Qwen3.6-27B-FP8", own) == f"/srv/hf/{folder}"
    assert map_path_to_node("Qwen/Qwen3.6-27B-FP8", make_plan()) is None
    assert map_path_to_node("Qwen/../../etc", root) is None
