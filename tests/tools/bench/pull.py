"""``sparkctl pull`` on a lab node against what an owner types there: ``docker pull`` of the image, ``hf download`` of the model.

In bytes a second of whole commands. Each of them also starts, connects, looks and makes a container, which takes the same
time for 100 GB as for a kilobyte: how long is measured by the same command for an image and a model of hardly any bytes,
right after, and shown as a row of its own. So the bytes are gigabytes, though an image is 20 of them and a model 80: what
the goal is on, the ratio of whole commands, is still a little worse than an owner's. It is also told without that time on
both sides. The goal for a model is on a line of 1 Gbit/s, which the stand-in keeps to for both: faster ones are no owner's. The
ratio without a limit is told beside it. Then the processor decides, on a machine of two cores that also runs the server, and
the proof by SHA-256 costs what it does: 3 s of processor time for 4 GiB.

The registry is a real one on the node. The Hub is a stand-in beside the node, its client the real one, in the
same image for both: ours also proves the checksum of each file. All of it lies in memory: 12 GB of it are needed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.lab.bed.files import NodeOptions
from tests.lab.bed.names import GATEWAY, IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.pull_sources import Registry, pack_hub_client, put_hub_client
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import time_process
from tests.unit.node.hub_stand_in import HubStandIn, run_hub

ROUNDS = 3
IMAGE_BYTES, FILE_BYTES, FILES, SMALL_BYTES = 3 << 30, 1 << 30, 4, 1 << 10
PUBLISHED, SMALL, CLIENT_IMAGE = "127.0.0.1:5000/bench/engine:1", "127.0.0.1:5000/bench/small:1", "pull-bench/client:1"
MODELS = "/home/milo/models"
OURS, THEIRS = "sparkctl pull --image-only", "docker pull"
OUR_MODEL, THEIR_MODEL = "sparkctl pull --model-only", "hf download"
LINE, LINE_BYTES_PER_SECOND = ", 1 Gbit/s", 125e6
Comparison = tuple[Series, Series, Series, Series]  # our rate, theirs, and the seconds of both for hardly any bytes
CLIENT = "import sys; from huggingface_hub.cli.hf import main; sys.argv[0] = 'hf'; main()"


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes. Image and model are gone before each."""
    with open_bed({"spark1": NodeOptions(gpu=True, data="12g")}) as bed:
        node, load = bed.lab.nodes["spark1"], LoadMeter()
        with publish_images(node):
            images = _measure_images(bed, node, rounds)
        hub = HubStandIn()
        for name, size in (("bench", FILE_BYTES), ("small", SMALL_BYTES)):
            hub.files[f"acme/{name}"] = {
                "config.json": b"{}", "tokenizer.json": b"{}",
                **{f"model-{n:05}-of-{FILES:05}.safetensors": os.urandom(size) for n in range(1, FILES + 1)},
            }  # fmt: skip
        put_hub_client(node, CLIENT_IMAGE, pack_hub_client())
        try:
            with run_hub(hub, GATEWAY) as url:
                models = _measure_models(bed, node, url, rounds)
                hub.rate = LINE_BYTES_PER_SECOND
                of_line = _measure_models(bed, node, url, rounds, LINE)
        finally:
            node.docker("rmi", "-f", CLIENT_IMAGE, check=False)
            _remove_models(node)
        goals = (
            *build_goals(images, IMAGE_BYTES),
            *build_goals(of_line, FILES * FILE_BYTES),
            *build_goals(models, FILES * FILE_BYTES, bound=None),
        )
        title = f"an image of {IMAGE_BYTES >> 20} MiB, a model of {FILES} files of {FILE_BYTES >> 20} MiB"
        return Report("pull", title, (*images, *of_line, *models), goals, load.read())


@contextmanager
def publish_images(node: LabNode) -> Iterator[None]:
    """Serve the engine's image with a layer of random bytes, and with hardly any, from a registry on a node, which has no
    such layer itself.
    """
    registry = Registry(node)
    try:
        for name, size in ((PUBLISHED, IMAGE_BYTES), (SMALL, SMALL_BYTES)):
            container = node.docker("create", IMAGE)
            node.sh("sh", "-c", f"head -c {size} /dev/urandom >/tmp/bench-layer")
            subprocess.run(node.enter("docker", "cp", "/tmp/bench-layer", f"{container}:/layer"), check=True)
            node.docker("commit", container, name)
            node.docker("rm", container)
            node.sh("rm", "/tmp/bench-layer")
            subprocess.run(
                node.enter("docker", "push", "-q", name), check=True, stdout=subprocess.DEVNULL
            )  # minutes beside load
        yield
    finally:
        registry.close()
        node.docker("rmi", "-f", PUBLISHED, SMALL, check=False)
        node.sh("rm", "-rf", "/tmp/registry", "/tmp/registry.yml", "/tmp/bench-layer")


def _measure_images(bed: Bed, node: LabNode, rounds: int) -> Comparison:
    def forget() -> None:
        node.docker("rmi", "-f", PUBLISHED, SMALL, check=False)

    ours, theirs = [], []
    for name, image in (("image", PUBLISHED), ("small-image", SMALL)):
        profile = bed.sparkctl.profile(name, image=image)
        ours.append([*_find_sparkctl(), "pull", profile, "--node", "spark1", "--image-only"])
        theirs.append(node.enter("docker", "pull", image))
    return _compare(rounds, IMAGE_BYTES, forget, {OURS: ours, THEIRS: theirs}, bed.sparkctl.env)


def _remove_models(node: LabNode) -> None:
    node.sh("rm", "-rf", *(f"{MODELS}/{name}{end}" for name in ("bench", "small") for end in ("", ".sparkctl-part")))


def _measure_models(bed: Bed, node: LabNode, url: str, rounds: int, line: str = "") -> Comparison:
    by_hand = [
        "docker",
        "run",
        "--rm",
        "--network",
        "host",
        "-e",
        f"HF_ENDPOINT={url}",
        "-e",
        "HF_HUB_DISABLE_TELEMETRY=1",
    ]
    # its threads end by pthread_exit, which wants a library that the lab's image does not have
    libgcc = [word for one in Path("/lib").glob("*/libgcc_s.so.1") for word in ("-v", f"{one}:{one}:ro")]
    ours, theirs = [], []
    for name in ("bench", "small"):
        profile = bed.sparkctl.profile(
            f"model-{name}", image=CLIENT_IMAGE, engine="vllm", mounts=["~/models:/models"],
            model={"path": f"/models/{name}", "source": f"hf:acme/{name}"},
        )  # fmt: skip
        ours.append([*_find_sparkctl(), "pull", profile, "--node", "spark1", "--model-only"])
        theirs.append(node.enter(
            *by_hand, "-v", f"{MODELS}:{MODELS}", *libgcc, CLIENT_IMAGE, "python3", "-c", CLIENT,
            "download", f"acme/{name}", "--local-dir", f"{MODELS}/{name}",
        ))  # fmt: skip
    env = {**bed.sparkctl.env, "HF_ENDPOINT": url}
    commands = {OUR_MODEL + line: ours, THEIR_MODEL + line: theirs}
    return _compare(rounds, FILES * FILE_BYTES, lambda: _remove_models(node), commands, env)


def _find_sparkctl() -> list[str]:
    return [str(Path(sys.executable).with_name("sparkctl"))]


def build_goals(found: Comparison, size: int, bound: float | None = 0.95) -> tuple[Goal, Goal]:
    """Return the ratio of the rates of whole commands, and that without what each takes for hardly any bytes, which is told.

    ``bound``: of the first; None: it is told, too.
    """
    ours, theirs, *small = found
    our_seconds, their_seconds = (
        statistics.median(size / 1e6 / rate - fixed for rate, fixed in zip(whole.values, each.values, strict=True))
        for whole, each in zip((ours, theirs), small, strict=True)
    )
    what = f"{ours.name} / {theirs.name}"
    return (
        Goal(f"{what}, whole commands", ours.median / theirs.median, bound, at_most=False),
        Goal(f"{what}, without the time for hardly any bytes", their_seconds / our_seconds),
    )


def _compare(
    rounds: int, size: int, forget: Callable[[], None], commands: dict[str, list[list[str]]], env: dict[str, str]
) -> Comparison:
    """Return the rate of both commands, and the seconds of both for hardly any bytes.

    ``commands``: by name the one and the other, ours first; ``forget``: removes what comes; ``env``: of ours.
    """
    fixed: dict[str, list[float]] = {name: [] for name in commands}
    ours, theirs = commands

    def measure(name: str) -> float:
        forget()
        whole, small = (time_process(words, env if name == ours else None) for words in commands[name])
        fixed[name].append(small)
        return size / 1e6 / whole

    taken = measure_interleaved(rounds, {name: partial(measure, name) for name in commands})
    first, second = (Series(name, "MB/s", taken[name]) for name in (ours, theirs))
    ours_small, theirs_small = (
        Series(f"{name}, hardly any bytes", "s", tuple(fixed[name][-rounds:])) for name in (ours, theirs)
    )
    return first, second, ours_small, theirs_small
