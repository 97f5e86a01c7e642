"""The size of a model's files in memory, and where they are on the node. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkctl.model.launch_plan import DockerRunSpec, LaunchPlan
from sparkctl.model.memory_fit import CheckpointFiles, EstimatePart, EstimateSource

_SHARD_NUMBER = re.compile(r"-(\d{5,6})-of-(\d{5,6})\.\w+$")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt")
_HUB_CACHE_SUFFIX = "/.cache/huggingface"


@dataclass(frozen=True, slots=True)
class WeightsSize:
    """``size`` None: not known; ``why`` gives the reason. ``obtained`` and ``why`` become the source and the words of
    an `EstimatePart`.
    """

    size: int | None
    obtained: EstimateSource
    why: str


def measure_weights(found: CheckpointFiles | None, told: int | None, of_profile: str = "model.weights") -> WeightsSize:
    """Return the bytes of a model: of its files on the node if all are there, otherwise from the profile."""
    seen = None if found is None else _measure_files(found)
    if seen is not None and seen.size is not None:
        return seen
    if told is not None:
        return WeightsSize(told, EstimateSource.PROFILE, f"{of_profile} of the profile")
    if seen is not None:
        return seen
    where = "its place on the node is not known" if found is None else f"not found in {found.place}"
    return WeightsSize(None, EstimateSource.MEASURED, f"{where}, and the profile has no {of_profile}")


def _measure_files(found: CheckpointFiles) -> WeightsSize | None:
    """Return the size of the files, None if there are none."""
    files = _select_loaded_files(found.files)
    if not files:
        return None
    size, missing = sum(bytes_ for _, bytes_ in files), _count_missing_shards(files)
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    if found.origin is not None and not missing:
        return WeightsSize(size, EstimateSource.HUB, f"{count} of {found.origin}, not here yet")
    if not missing and not found.unfinished:
        return WeightsSize(size, EstimateSource.MEASURED, f"{count} in {found.place}")
    lack = f"{missing} of its files are missing" if missing else "a download has not ended"
    if found.index_total is not None and found.index_total >= size:
        return WeightsSize(found.index_total, EstimateSource.HEADERS, f"by its index; {lack} in {found.place}")
    return WeightsSize(None, EstimateSource.MEASURED, f"{lack} in {found.place}")


def _select_loaded_files(files: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    """Return the files that an engine loads: of one format, without duplicates of the same weights."""
    for kind in _WEIGHT_SUFFIXES:
        some = [one for one in files if one[0].endswith(kind)]
        if kind == ".safetensors" and len(some) > 1:
            some = [one for one in some if not one[0].startswith("consolidated")] or some
        if kind == ".gguf":
            some = [one for one in some if "mmproj" not in one[0]] or some
        if some:
            return some
    return []


def _count_missing_shards(files: list[tuple[str, int]]) -> int:
    """Return how many shards of ``-00001-of-00007`` are missing."""
    of: dict[str, tuple[int, int]] = {}
    for name, _ in files:
        if found := _SHARD_NUMBER.search(name):
            stem = name[: found.start()]
            of[stem] = (of.get(stem, (0, 0))[0] + 1, int(found[2]))
    return sum(max(0, total - seen) for seen, total in of.values())


def map_path_to_node(path: str | None, plan: LaunchPlan | DockerRunSpec) -> str | None:
    """Return where a model's path in the container is on the node, None if not known: through the longest matching
    mount, or for a hub id through the mount of Hugging Face's cache.
    """
    if not path:
        return None
    if path.startswith("/"):
        return _map_through_mounts(path, plan)
    if not _HUB_ID.fullmatch(path):
        return None
    folder = f"models--{path.replace('/', '--')}"
    env = dict(plan.env)
    homes = [env["HF_HUB_CACHE"]] if env.get("HF_HUB_CACHE") else []
    homes += [f"{env['HF_HOME']}/hub"] if env.get("HF_HOME") else []
    homes += [
        f"{one.target.rstrip('/')}/hub" for one in plan.mounts if one.target.rstrip("/").endswith(_HUB_CACHE_SUFFIX)
    ]
    homes += [
        one.target.rstrip("/") for one in plan.mounts if one.target.rstrip("/").endswith(f"{_HUB_CACHE_SUFFIX}/hub")
    ]
    homes += [
        f"{one.target.rstrip('/')}/huggingface/hub" for one in plan.mounts if one.target.rstrip("/").endswith("/.cache")
    ]
    return next((on for home in homes if (on := _map_through_mounts(f"{home}/{folder}", plan)) is not None), None)


def _map_through_mounts(path: str, plan: LaunchPlan | DockerRunSpec) -> str | None:
    held = [one for one in plan.mounts if _is_below(path, one.target) and one.source.startswith("/")]
    if not held or "\n" in path or ".." in path.split("/"):
        return None
    mount = max(held, key=lambda one: len(one.target))
    return mount.source.rstrip("/") + path[len(mount.target.rstrip("/")) :]


def _is_below(path: str, target: str) -> bool:
    return path == target or path.startswith(target.rstrip("/") + "/")


def build_weights_part(name: str, found: WeightsSize, ranks: int = 1, *, within: bool = False) -> EstimatePart:
    """Return the model's part of the estimate, on one of ``ranks`` nodes that share it evenly."""
    shared = "" if ranks == 1 else f", a share of 1/{ranks} on each node"
    size = None if found.size is None else -(-found.size // ranks)
    return EstimatePart(name=name, size=size, obtained=found.obtained, words=f"{found.why}{shared}", within=within)
