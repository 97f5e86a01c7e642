"""``sparkctl pull`` on a lab node against what an owner types there: ``docker pull`` of the image, ``hf download`` of the model.

In bytes a second of whole commands. Ours also starts Python, connects and looks at the node, which takes the same time
for 100 GB as for nothing: how long is measured by the same command with nothing to get, right after, shown as a row of its
own, and left out of the rate. The registry is a real one on the node. The Hub is a stand-in beside the node, its client the
real one, in the same image for both: ours also proves the checksum of each file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.bed.names import GATEWAY, IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.support.pull_sources import Registry, pack_hub_client, put_hub_client
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import time_process
from tests.unit.node.hub_stand_in import HubStandIn, run_hub

ROUNDS = 3
IMAGE_BYTES, FILE_BYTES, FILES = 400 << 20, 100 << 20, 4
PUBLISHED, CLIENT_IMAGE = "127.0.0.1:5000/bench/engine:1", "pull-bench/client:1"
REPOSITORY = "acme/bench"
MODELS = "/home/milo/models"
MODEL = f"{MODELS}/bench"
OURS, THEIRS = "sparkctl pull --image-only", "docker pull"
OUR_MODEL, THEIR_MODEL = "sparkctl pull --model-only", "hf download"
CLIENT = "import sys; from huggingface_hub.cli.hf import main; sys.argv[0] = 'hf'; main()"


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes. Image and model are gone before each."""
    hub = HubStandIn()
    hub.files[REPOSITORY] = {
        "config.json": b"{}", "tokenizer.json": b"{}",
        **{f"model-{n:05}-of-{FILES:05}.safetensors": os.urandom(FILE_BYTES) for n in range(1, FILES + 1)},
    }  # fmt: skip
    with open_bed() as bed, run_hub(hub, GATEWAY) as url:
        node, load = bed.lab.nodes["spark1"], LoadMeter()
        with publish_image(node):
            images = _measure_images(bed, node, rounds)
        put_hub_client(node, CLIENT_IMAGE, pack_hub_client())
        try:
            models = _measure_models(bed, node, url, rounds)
        finally:
            node.docker("rmi", "-f", CLIENT_IMAGE, check=False)
            node.sh("rm", "-rf", MODEL, f"{MODEL}.sparkctl-part")
        goals = tuple(
            Goal(f"{ours.name} / {theirs.name}", ours.median / theirs.median, 0.95, at_most=False)
            for ours, theirs, _ in (images, models)
        )
        title = f"an image of {IMAGE_BYTES >> 20} MiB, a model of {FILES} files of {FILE_BYTES >> 20} MiB"
        return Report("pull", title, (*images, *models), goals, load.read())


@contextmanager
def publish_image(node: LabNode) -> Iterator[None]:
    """Serve the engine's image with a layer of random bytes from a registry on a node, which has no such layer itself."""
    registry = Registry(node)
    try:
        container = node.docker("create", IMAGE)
        node.sh("sh", "-c", f"head -c {IMAGE_BYTES} /dev/urandom >/tmp/bench-layer")
        subprocess.run(node.enter("docker", "cp", "/tmp/bench-layer", f"{container}:/layer"), check=True)
        node.docker("commit", container, PUBLISHED)
        node.docker("rm", container)
        subprocess.run(
            node.enter("docker", "push", "-q", PUBLISHED), check=True, stdout=subprocess.DEVNULL
        )  # minutes beside load
        yield
    finally:
        registry.close()
        node.docker("rmi", "-f", PUBLISHED, check=False)
        node.sh("rm", "-rf", "/tmp/registry", "/tmp/registry.yml", "/tmp/bench-layer")


def _measure_images(bed: Bed, node: LabNode, rounds: int) -> tuple[Series, Series, Series]:
    profile = bed.sparkctl.profile("image", image=PUBLISHED)

    def forget() -> None:
        node.docker("rmi", "-f", PUBLISHED, check=False)

    ours = [*_find_sparkctl(), "pull", profile, "--node", "spark1", "--image-only"]
    theirs = node.enter("docker", "pull", PUBLISHED)
    return _compare(rounds, IMAGE_BYTES, forget, (OURS, ours, bed.sparkctl.env), (THEIRS, theirs))


def _measure_models(bed: Bed, node: LabNode, url: str, rounds: int) -> tuple[Series, Series, Series]:
    profile = bed.sparkctl.profile(
        "model", image=CLIENT_IMAGE, engine="vllm", mounts=["~/models:/models"],
        model={"path": "/models/bench", "source": f"hf:{REPOSITORY}"},
    )  # fmt: skip

    def forget() -> None:
        node.sh("rm", "-rf", MODEL)

    ours = [*_find_sparkctl(), "pull", profile, "--node", "spark1", "--model-only"]
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
    theirs = node.enter(
        *by_hand, "-v", f"{MODELS}:{MODELS}", *libgcc, CLIENT_IMAGE, "python3", "-c", CLIENT,
        "download", REPOSITORY, "--local-dir", MODEL,
    )  # fmt: skip
    env = {**bed.sparkctl.env, "HF_ENDPOINT": url}
    return _compare(rounds, FILES * FILE_BYTES, forget, (OUR_MODEL, ours, env), (THEIR_MODEL, theirs))


def _find_sparkctl() -> list[str]:
    return [str(Path(sys.executable).with_name("sparkctl"))]


def _compare(
    rounds: int,
    size: int,
    forget: Callable[[], None],
    ours: tuple[str, list[str], dict[str, str]],
    theirs: tuple[str, list[str]],
) -> tuple[Series, Series, Series]:
    """Return the rate of both commands, and the seconds of ours that get nothing. ``forget``: removes what comes."""
    looked = list[float]()

    def run_ours() -> float:
        forget()
        _, command, env = ours
        whole = time_process(command, env)
        looked.append(time_process(command, env))
        return size / 1e6 / (whole - looked[-1])

    def run_theirs() -> float:
        forget()
        return size / 1e6 / time_process(theirs[1])

    taken = measure_interleaved(rounds, {ours[0]: run_ours, theirs[0]: run_theirs})
    return (
        Series(ours[0], "MB/s", taken[ours[0]]), Series(theirs[0], "MB/s", taken[theirs[0]]),
        Series(f"{ours[0]}, nothing to get", "s", tuple(looked[-rounds:])),
    )  # fmt: skip
