"""`pull` in the lab: a real registry for the image, and the Hub's real client in a real container for the model."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkctl.model.launch_plan import ContainerLabel
from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import FABRIC, GATEWAY, IMAGE, PASSWORD
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.command_outcomes import assert_ended
from tests.lab.support.pull_sources import Registry, pack_hub_client, put_hub_client
from tests.lab.support.sparkctl_process import Sparkctl
from tests.unit.node.hub_stand_in import HubStandIn, run_hub

REGISTRY = "127.0.0.1:5000"
PUBLISHED = f"{REGISTRY}/lab/engine:1"
CLIENT_IMAGE = "pull-lab/client:1"
MODEL = "/home/milo/models/pulled"
REPOSITORY = "acme/tiny"
WEIGHTS = os.urandom(12_000_000)


@pytest.fixture
def registry(spark1: LabNode) -> Iterator[Registry]:
    """An empty registry on spark1."""
    opened = Registry(spark1)
    yield opened
    opened.close()
    spark1.remove_images(PUBLISHED)
    spark1.sh("rm", "-rf", "/tmp/registry", "/tmp/registry.yml", "/home/milo/.docker")


def publish_small_image(node: LabNode, *options: str) -> str:
    """Push an image of a few bytes as PUBLISHED, remove it from the node and return its id."""
    node.sh("sh", "-c", f"echo engine >/tmp/blob && tar c -C /tmp blob | docker import - {PUBLISHED}; rm /tmp/blob")
    made = node.find_image(PUBLISHED)
    node.docker(*options, "push", PUBLISHED)
    node.docker("rmi", PUBLISHED)
    assert not node.find_image(PUBLISHED)
    return made


def publish_random_image(node: LabNode, image: str, size: int) -> None:
    """Push an image with a file that cannot be compressed, and remove it from the node."""
    make = f"cd /tmp && head -c {size} /dev/urandom >blob && tar c blob | docker import - {image}; rm blob"
    node.sh("sh", "-c", make)
    node.docker("push", image)
    node.docker("rmi", image)


def test_an_image_comes_from_its_registry(registry: Registry, spark1: LabNode, sparkctl: Sparkctl) -> None:
    published = publish_small_image(spark1)
    name = sparkctl.profile(image=PUBLISHED)
    refused = sparkctl("up", name, "--node", "spark1", "--json")
    assert_ended(refused, 6, "refused")
    assert refused.result["hint"] == f"sparkctl up {name} --node spark1 --pull"
    pulled = sparkctl("pull", name, "--node", "spark1", "--image-only", "--json")
    assert_ended(pulled, 0, "done")
    assert spark1.find_image(PUBLISHED) == published
    again = sparkctl("pull", name, "--node", "spark1", "--image-only", "--json")
    assert "nothing to get" in again.result["message"]


def test_the_progress_of_an_image_is_its_bytes(registry: Registry, spark1: LabNode, sparkctl: Sparkctl) -> None:
    image, size = f"{REGISTRY}/lab/large:1", 20_000_000
    publish_random_image(spark1, image, size)
    try:
        pulled = sparkctl("pull", sparkctl.profile(image=image), "--node", "spark1", "--image-only", "--json")
        assert_ended(pulled, 0, "done")
        moved = [one for one in map(json.loads, pulled.out.splitlines()) if one.get("what") == f"image {image}"]
        assert moved[-1]["done"] == moved[-1]["total"] > size
        assert [one["done"] for one in moved] == sorted(one["done"] for one in moved)
        # before a byte came the registry told what comes, and what of that is unpacked
        (lacking,) = next(one for one in pulled.events if one["event"] == "missing")["parts"]
        assert lacking["size"] == moved[-1]["total"]
        assert size < lacking["unpacked"] < size + 100_000, "a tar of it"
        shown = json.loads(sparkctl("history", "--json").out)["operations"][0]
        assert (shown["kind"], shown["outcome"], shown["nodes"]) == ("pull", "done", ["spark1"])
        (share,) = shown["shares"]
        assert (share["instance"], share["received"]) == (image, lacking["size"])
        assert share["image_digest"] in spark1.docker("inspect", "--format", "{{.RepoDigests}}", image)
    finally:
        spark1.remove_images(image)


def test_an_image_that_breaks_off_in_the_middle_is_not_there_and_a_lost_registry_costs_no_byte_twice(
    registry: Registry, spark1: LabNode, sparkctl: Sparkctl
) -> None:
    image, size = f"{REGISTRY}/lab/parts:1", 3_000_000
    base = "pull-lab/base:1"  # of a layer that is there all the time
    spark1.sh("mkdir", "-p", "/tmp/parts")
    spark1.sh(
        "sh",
        "-c",
        f"cd /tmp/parts && for at in 0 1 2 3 4 5; do head -c {size} /dev/urandom >$at; done; tar c 5 | docker import - {base}",
    )
    lines = [f"COPY {at} /layer{at}" for at in range(5)]
    spark1.put("/tmp/parts/Dockerfile", "\n".join([f"FROM {base}", *lines]) + "\n")
    spark1.docker("build", "-q", "-t", image, "/tmp/parts")
    spark1.docker("push", image)
    spark1.docker("rmi", image)
    pull = ("pull", sparkctl.profile(image=image), "--node", "spark1", "--image-only", "--json")
    spark1.sh("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "16mbit", "burst", "256kb", "latency", "400ms")
    again: Registry | None = None
    try:  # Docker gets three layers at a time
        running = sparkctl.start(*pull)
        running.await_text(r'"done": ?[2-7]\d{6}\b')
        running.interrupt()
        cut = running.end()
        assert_ended(cut, 130, "interrupted")
        assert cut.result["message"] == "interrupted; Docker keeps an image when it is whole"
        assert not spark1.find_image(image)
        before_it = count_loopback_bytes(spark1)
        whole = sparkctl.start(*pull)
        whole.await_text(r'"done": ?[2-7]\d{6}\b')
        registry.close()
        whole.await_text(r'"state": ?"Retrying in \d+ seconds?"')
        again = Registry(spark1)
        assert_ended(whole.end(120), 0, "done")
        came = count_loopback_bytes(spark1) - before_it
    finally:
        spark1.sh("tc", "qdisc", "del", "dev", "lo", "root")
        spark1.sh("rm", "-rf", "/tmp/parts")
        spark1.remove_images(image, base)
        if again is not None:
            again.close()
    moved = [one for one in map(json.loads, whole.so_far().out.splitlines()) if one["event"] == "moved"]
    assert moved[-1]["done"] == moved[-1]["total"] > 5 * size
    after, before = json.loads(sparkctl("history", "--json").out)["operations"][:2]
    assert (before["kind"], before["outcome"], before["shares"]) == ("pull", "interrupted", [])
    assert after["shares"][0]["received"] == moved[-1]["total"] < came < 1.2 * moved[-1]["total"], (
        "hardly a byte came twice"
    )


def count_loopback_bytes(node: LabNode) -> int:
    return int(node.sh("cat", "/sys/class/net/lo/statistics/rx_bytes"))


def test_a_disk_that_the_image_fills_is_told_and_nothing_of_it_looks_whole(
    registry: Registry, spark1: LabNode, sparkctl: Sparkctl
) -> None:
    image, place = f"{REGISTRY}/lab/wide:1", "/var/lib/docker"
    publish_random_image(spark1, image, 20_000_000)
    pull = ("pull", sparkctl.profile(image=image), "--node", "spark1", "--image-only", "--json")
    size, used = spark1.sh("df", "--output=size,used", "-k", place).split()[-2:]
    spark1.sh("mount", "-o", f"remount,size={int(used) + 10_000}k", place)
    try:
        full = sparkctl(*pull)
        assert_ended(full, 6, "refused")
        assert "no space left on device" in full.result["message"], full
        assert "docker system df" in full.result["hint"]
        assert any("may not hold" in one.get("message", "") for one in full.events)
        assert not spark1.find_image(image)
    finally:
        spark1.sh("mount", "-o", f"remount,size={size}k", place)
    try:
        assert_ended(sparkctl(*pull), 0, "done")
    finally:
        spark1.remove_images(image)


BUILT = "pull-lab/built:1"
ADDRESS = "git://127.0.0.1/source"


@pytest.fixture
def build_source(clean_nodes: Lab) -> Iterator[LabNode]:
    """spark1 with a git repository that its own daemon serves: a Dockerfile in a folder."""
    node = clean_nodes.nodes["spark1"]
    git = "git -c user.name=lab -c user.email=lab@example.org"
    node.sh(
        "sh", "-c",
        f"mkdir -p /tmp/gits/source/docker && cd /tmp/gits/source && printf 'FROM {IMAGE}\\nCOPY word /word\\n' >docker/Dockerfile"
        f" && echo one >docker/word && git init -qb main . && {git} add . && {git} commit -qm one",
    )  # fmt: skip
    daemon = node.enter(
        "sh",
        "-c",
        "echo $$ >/tmp/gits/pid; exec git daemon --reuseaddr --base-path=/tmp/gits --export-all --listen=127.0.0.1",
    )
    process = subprocess.Popen(daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_true("git", lambda: "HEAD" in node.sh("git", "ls-remote", ADDRESS, check=False), 20)
    yield node
    node.sh("sh", "-c", "kill $(cat /tmp/gits/pid)")
    process.wait(20)
    node.remove_images(BUILT)
    node.sh("rm", "-rf", "/tmp/gits")


def read_word(node: LabNode) -> str:
    return node.docker("run", "--rm", "--entrypoint", "cat", BUILT, "/word")


def test_an_image_is_built_from_a_repository_and_again_when_it_moves(build_source: LabNode, sparkctl: Sparkctl) -> None:
    name = sparkctl.profile(image=BUILT, build=f"{ADDRESS}#main:docker")
    pull = ("pull", name, "--node", "spark1", "--image-only", "--json")
    assert_ended(sparkctl(*pull), 0, "done")
    assert read_word(build_source) == "one"
    assert "nothing to get" in sparkctl(*pull).result["message"]
    build_source.sh(
        "sh", "-c",
        "cd /tmp/gits/source && echo two >docker/word && git -c user.name=l -c user.email=l@example.org commit -qam two",
    )  # fmt: skip
    assert_ended(sparkctl(*pull), 0, "done")
    assert read_word(build_source) == "two"
    nowhere = sparkctl.profile("nowhere", image="pull-lab/no:1", build=f"{ADDRESS}#v9")
    refused = sparkctl("pull", nowhere, "--node", "spark1", "--image-only", "--json")
    assert_ended(refused, 6, "refused")
    assert f"{ADDRESS} has no branch or tag v9" in refused.result["message"]


def test_an_image_is_built_from_a_directory_here(build_source: LabNode, sparkctl: Sparkctl, tmp_path: Path) -> None:
    place = tmp_path / "context"  # beside it are sparkctl's own files, which change
    place.mkdir()
    (place / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY word /word\n")
    (place / "word").write_text("three" * 200_000)
    name = sparkctl.profile(image=BUILT, build=str(place))
    pull = ("pull", name, "--node", "spark1", "--image-only", "--json")
    assert_ended(sparkctl(*pull), 0, "done")
    assert len(read_word(build_source)) == 1_000_000
    assert "nothing to get" in sparkctl(*pull).result["message"]
    (place / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY gone /word\n")
    failed = sparkctl(*pull)
    assert_ended(failed, 6, "refused")
    assert "gone" in failed.result["message"]


def build_foreign_image(tag: str) -> bytes:
    """Return an archive of an image for another processor, as `docker save` writes it."""
    layer = io.BytesIO()
    tarfile.open(fileobj=layer, mode="w").close()
    config = {"architecture": "s390x", "os": "linux", "config": {}, "rootfs": {
        "type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]}}  # fmt: skip
    files = {
        "config.json": json.dumps(config).encode(), "layer.tar": layer.getvalue(),
        "manifest.json": json.dumps([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode(),
    }  # fmt: skip
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def test_what_the_registry_says_is_explained(registry: Registry, spark1: LabNode, sparkctl: Sparkctl) -> None:
    subprocess.run(spark1.enter("docker", "load"), input=build_foreign_image(f"{REGISTRY}/lab/other:1"), check=True)
    spark1.docker("push", f"{REGISTRY}/lab/other:1")
    spark1.docker("rmi", f"{REGISTRY}/lab/other:1")
    other = sparkctl(
        "pull", sparkctl.profile("other", image=f"{REGISTRY}/lab/other:1"), "--node", "spark1", "--image-only", "--json"
    )
    assert_ended(other, 6, "refused")
    assert "has no image for" in other.result["message"]
    none = sparkctl(
        "pull", sparkctl.profile("none", image=f"{REGISTRY}/lab/engine:9"), "--node", "spark1", "--image-only", "--json"
    )
    assert_ended(none, 6, "refused")
    assert f"the registry {REGISTRY} has no {REGISTRY}/lab/engine:9" in none.result["message"]
    registry.close()
    gone = sparkctl("pull", sparkctl.profile(image=PUBLISHED), "--node", "spark1", "--image-only", "--json")
    assert_ended(gone, 3, "unreachable")
    assert f"cannot reach the registry {REGISTRY}" in gone.result["message"]


def test_the_login_of_the_nodes_user_counts_and_the_operators_with_login(
    spark1: LabNode, sparkctl: Sparkctl, tmp_path: Path
) -> None:
    words = ["perl", "-e", "print crypt($ARGV[0], $ARGV[1])", PASSWORD, "$2y$05$" + "abcdefghijklmnopqrstuu"]
    hashed = subprocess.run(words, check=True, capture_output=True, text=True).stdout  # Python has no crypt since 3.13
    spark1.put("/tmp/htpasswd", f"milo:{hashed}\n")
    opened = Registry(spark1, "auth: {htpasswd: {realm: lab, path: /tmp/htpasswd}}\n")
    login = base64.b64encode(f"milo:{PASSWORD}".encode()).decode()
    try:
        spark1.sh("mkdir", "-p", "/tmp/docker-login", "/home/milo/.docker")
        spark1.put("/tmp/docker-login/config.json", json.dumps({"auths": {REGISTRY: {"auth": login}}}))
        publish_small_image(spark1, "--config", "/tmp/docker-login")
        name = sparkctl.profile(image=PUBLISHED)
        refused = sparkctl("pull", name, "--node", "spark1", "--image-only", "--json")
        assert_ended(refused, 6, "refused")
        assert f"on spark1: docker login {REGISTRY}" in refused.result["hint"]
        (tmp_path / "config.json").write_text(json.dumps({"auths": {REGISTRY: {"auth": login}}}))
        own = {"DOCKER_CONFIG": str(tmp_path)}
        with_own = sparkctl("pull", name, "--node", "spark1", "--image-only", "--login", "--json", env=own)
        assert_ended(with_own, 0, "done")
        assert login not in with_own.out + with_own.err
        spark1.docker("rmi", PUBLISHED)
        assert sparkctl("pull", name, "--node", "spark1", "--image-only", "--json").code == refused.code
        spark1.put("/home/milo/.docker/config.json", json.dumps({"auths": {REGISTRY: {"auth": login}}}))
        spark1.sh("chown", "-R", "milo", "/home/milo/.docker")
        pulled = sparkctl("pull", name, "--node", "spark1", "--image-only", "--json")
        assert_ended(pulled, 0, "done")
        assert login not in pulled.out + pulled.err
    finally:
        opened.close()
        spark1.remove_images(PUBLISHED)
        spark1.sh("rm", "-rf", "/tmp/registry", "/tmp/docker-login", "/tmp/htpasswd", "/home/milo/.docker")


@pytest.fixture(scope="module")
def client_packages() -> bytes:
    """An archive of the Hub's client and what it needs."""
    return pack_hub_client()


@pytest.fixture
def hub() -> HubStandIn:
    one = HubStandIn()
    one.files[REPOSITORY] = {
        "config.json": b"{}", "tokenizer.json": b"{}", "model-00001-of-00002.safetensors": WEIGHTS,
        "model-00002-of-00002.safetensors": WEIGHTS[::-1], "README.md": b"#",
    }  # fmt: skip
    return one


@pytest.fixture
def hub_url(hub: HubStandIn) -> Iterator[str]:
    with run_hub(hub, GATEWAY) as url:
        yield url


@pytest.fixture(scope="module")
def client_image(lab: Lab, client_packages: bytes) -> Iterator[str]:
    """The name of an image on spark1 that has the Hub's client; no test changes it."""
    put_hub_client(lab.nodes["spark1"], CLIENT_IMAGE, client_packages)
    yield CLIENT_IMAGE
    lab.nodes["spark1"].remove_images(CLIENT_IMAGE)


@pytest.fixture
def prepared(clean_nodes: Lab, client_image: str) -> Iterator[LabNode]:
    """spark1 with an image that has the Hub's client, and no model."""
    node = clean_nodes.nodes["spark1"]
    node.sh("rm", "-rf", MODEL, f"{MODEL}.sparkctl-part")
    yield node
    node.remove_containers()  # a download writes as long as it runs
    node.sh("rm", "-rf", MODEL, f"{MODEL}.sparkctl-part")


def write_profile(sparkctl: Sparkctl, **model: str) -> str:
    return sparkctl.profile(
        image=CLIENT_IMAGE, engine="vllm", mounts=["~/models:/models"],
        model={"path": "/models/pulled", "source": f"hf:{REPOSITORY}", **model},
    )  # fmt: skip


def list_downloads(node: LabNode) -> list[str]:
    return [one["Id"] for one in node.list_containers(stopped=False, label=ContainerLabel.DOWNLOAD)]


def list_model(node: LabNode) -> str:
    return node.sh("sh", "-c", f"cd {MODEL} 2>/dev/null && stat -c '%n %s %U' *", check=False)


def test_a_model_comes_whole_as_its_user(prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl) -> None:
    name = write_profile(sparkctl)
    hub.gated.add(REPOSITORY)
    refused = sparkctl("pull", name, "--node", "spark1", "--json", env={"HF_ENDPOINT": hub_url})
    assert_ended(refused, 6, "refused")
    assert f"accept them on https://huggingface.co/{REPOSITORY}" in refused.result["hint"]
    env = {"HF_ENDPOINT": hub_url, "HF_TOKEN": "hf_right"}
    pulled = sparkctl("pull", name, "--node", "spark1", "--json", env=env)
    assert_ended(pulled, 0, "done")
    assert "each verified with the Hub's checksum" in pulled.result["message"]
    assert list_model(prepared).split("\n")[:4] == [
        "config.json 2 milo", "model-00001-of-00002.safetensors 12000000 milo",
        "model-00002-of-00002.safetensors 12000000 milo", "tokenizer.json 2 milo",
    ]  # fmt: skip
    assert "hf_right" not in pulled.out + pulled.err
    assert not prepared.sh("sh", "-c", "ls -d /dev/shm/sparkctl-token-*", check=False)
    assert not list_downloads(prepared)


def test_a_link_that_the_download_cannot_follow_is_told_before_a_byte_comes(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    env = {"HF_ENDPOINT": hub_url}
    prepared.sh("sh", "-c", f"install -d -o milo /home/milo/large && ln -s /home/milo/large {MODEL}")
    try:
        refused = sparkctl("pull", write_profile(sparkctl), "--node", "spark1", "--json", env=env)
        assert_ended(refused, 6, "refused")
        assert f"cannot be stored in {MODEL}" in refused.result["message"]
        assert "is a link to /home/milo/large" in refused.result["message"]
        assert not [path for _, path, wanted in hub.log if path.startswith("/cdn")]
        assert not prepared.sh("sh", "-c", "ls -d /home/milo/large/* /home/milo/models/*.sparkctl-part", check=False)
        prepared.sh("sh", "-c", f"rm {MODEL} && install -d -o milo {MODEL}-large && ln -s pulled-large {MODEL}")
        assert_ended(sparkctl("pull", write_profile(sparkctl), "--node", "spark1", "--json", env=env), 0, "done")
        assert prepared.sh("readlink", MODEL).strip() == "pulled-large"
        assert "model-00002-of-00002.safetensors 12000000 milo" in list_model(prepared)
    finally:
        prepared.sh("rm", "-rf", MODEL, f"{MODEL}-large", "/home/milo/large")


def test_a_download_outlives_the_operators_machine(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    name, env = write_profile(sparkctl), {"HF_ENDPOINT": hub_url, "HF_TOKEN": "hf_secret"}
    hub.pace.clear()
    running = sparkctl.start("pull", name, "--node", "spark1", "--json", env=env)
    await_true("the download", lambda: bool(list_downloads(prepared)) and any("cdn" in one[1] for one in hub.log), 40)
    running.kill()
    (container,) = list_downloads(prepared)
    assert "hf_secret" not in prepared.docker("inspect", container)
    hub.pace.set()
    again = sparkctl("pull", name, "--node", "spark1", "--json", env=env)
    assert_ended(again, 0, "done")
    assert "12000000" in list_model(prepared)
    assert not list_downloads(prepared)


def test_a_download_waits_while_an_engine_that_is_started_after_it_loads_its_weights(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    name, env = write_profile(sparkctl), {"HF_ENDPOINT": hub_url}
    hub.pace.clear()
    pull = sparkctl.start("pull", name, "--node", "spark1", "--json", env=env)
    await_true("the download", lambda: bool(list_downloads(prepared)) and any("cdn" in one[1] for one in hub.log), 40)
    engine = sparkctl.profile("engine", env={"LAB_LOAD_S": "8"})
    up = sparkctl.start("up", engine, "--node", "spark1", "--json")
    up.await_text("the download of tiny waits until engine has loaded its weights", 60)
    hub.pace.set()
    pull.await_text("the download waits while an engine loads its weights there", 30)
    assert "waits while an engine loads its weights" in sparkctl("status", "--node", "spark1").out
    assert not list_model(prepared), "nothing comes meanwhile"
    assert_ended(up.end(60), 0, "ready")
    assert_ended(pull.end(60), 0, "done")
    assert "12000000" in list_model(prepared)


def test_a_killed_download_continues_and_a_flipped_bit_is_found(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    name, env = write_profile(sparkctl), {"HF_ENDPOINT": hub_url}
    hub.pace.clear()
    running = sparkctl.start("pull", name, "--node", "spark1", "--json", env=env)
    await_true("the download", lambda: bool(list_downloads(prepared)) and any("cdn" in one[1] for one in hub.log), 40)
    prepared.docker("kill", *list_downloads(prepared))
    ended = running.end()
    assert_ended(ended, 3, "unreachable")
    assert "broke off" in ended.result["message"]
    assert list_model(prepared) == ""
    hub.pace.set()
    hub.damaged.add("model-00002-of-00002.safetensors")
    damaged = sparkctl("pull", name, "--node", "spark1", "--json", env=env)
    assert damaged.code != 0
    assert "its checksum is not its source's" in damaged.result["message"]
    assert list_model(prepared) == ""
    hub.damaged.clear()
    assert_ended(sparkctl("pull", name, "--node", "spark1", "--json", env=env), 0, "done")
    assert "12000000" in list_model(prepared)


def test_a_network_that_is_cut_leaves_the_download_to_continue(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl, faults: Faults
) -> None:
    name, env = write_profile(sparkctl), {"HF_ENDPOINT": hub_url}
    hub.pace.clear()
    running = sparkctl.start("pull", name, "--node", "spark1", "--json", env=env)
    await_true("both files", lambda: set(count_sent(hub)) == set(ONCE), 40)  # at the same time
    faults.unplug(prepared)
    lost = running.end()
    assert_ended(lost, 3, "unreachable")
    assert "the download on spark1 continues" in lost.result["message"]
    hub.pace.set()
    faults.plug(prepared)
    assert_ended(sparkctl("pull", name, "--node", "spark1", "--json", env=env), 0, "done")
    assert list_model(prepared).count("12000000") == 2
    sums = prepared.sh("sh", "-c", f"cd {MODEL} && sha256sum model-*")
    assert [line.split()[0] for line in sums.splitlines()] == [
        hashlib.sha256(data).hexdigest() for data in (WEIGHTS, WEIGHTS[::-1])
    ]
    assert not list_downloads(prepared)


def test_a_disk_that_is_full_is_told_before_and_one_that_fills_up_loses_nothing(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    name, env, place = write_profile(sparkctl), {"HF_ENDPOINT": hub_url}, "/home/milo/models"
    pull = ("pull", name, "--node", "spark1", "--json")
    prepared.sh("mkdir", "-p", place)
    prepared.sh("mount", "-t", "tmpfs", "-o", "size=4g,mode=777", "none", place)
    try:
        refused = sparkctl(*pull, "--set", "image=pull-lab/none:1", env=env)
        assert_ended(refused, 6, "refused")
        assert "spark1 has no room for hf:acme/tiny in /home/milo/models" in refused.result["message"]
        assert "and 5.0 GiB must stay free" in refused.result["message"]
        prepared.sh("mount", "-o", "remount,size=6g", place)
        hub.pace.clear()
        running = sparkctl.start(*pull, env=env)
        await_true("both files", lambda: set(count_sent(hub)) == set(ONCE), 40)
        prepared.sh("mount", "-o", "remount,size=15m", place)
        hub.pace.set()
        full = running.end()
        assert full.code != 0
        assert "spark1 has no room for hf:acme/tiny" in full.result["message"], full
        assert list_model(prepared) == ""
        prepared.sh("mount", "-o", "remount,size=6g", place)
        assert_ended(sparkctl(*pull, env=env), 0, "done")
        assert list_model(prepared).count("12000000") == 2
    finally:
        prepared.sh("umount", place)


def test_the_node_itself_copies_where_the_image_has_no_python(prepared: LabNode, sparkctl: Sparkctl) -> None:
    bare, source = "pull-lab/bare:1", "/home/milo/nas"
    prepared.sh("sh", "-c", f"tar c -T /dev/null | docker import - {bare}")
    prepared.sh(
        "sh",
        "-c",
        f"mkdir -p {source}/pulled && (printf GGUF; head -c 29999996 /dev/urandom) >{source}/pulled/a.gguf && chmod -R a+rX {source}",
    )
    name = sparkctl.profile(
        image=bare, engine="llamacpp", mounts=["~/models:/models"],
        model={"path": "/models/pulled", "source": f"hf:{REPOSITORY}"},
    )  # fmt: skip
    try:  # the Hub's client is wanted, and nothing on this node has it
        without = sparkctl("pull", name, "--node", "spark1", "--model-only", "--json")
        assert_ended(without, 6, "refused")
        assert "has no python3 to download with" in without.result["message"]
        assert "uvx hf download acme/tiny" in without.result["hint"]
        gone = sparkctl("pull", name, "--node", "spark1", "--from-cache", f"{source}/gone", "--json")
        assert_ended(gone, 6, "refused")
        assert "has no directory" in gone.result["message"]
        pulled = sparkctl("pull", name, "--node", "spark1", "--from-cache", source, "--json")
        assert_ended(pulled, 0, "done")
        assert list_model(prepared).strip() == "a.gguf 30000000 milo"
        assert not prepared.sh("sh", "-c", "ls -d /dev/shm/sparkctl-pull-*", check=False)
        assert not list_downloads(prepared)
        shown = json.loads(sparkctl("models", "--node", "spark1", "--json").out)
        (model,) = [one for one in shown["nodes"][0]["models"] if one["place"] == MODEL]
        assert (model["is_whole"], model["is_brought"], model["profiles"]) == (True, True, [name])
        assert_ended(sparkctl("models", "remove", "pulled", "--node", "spark1", "--yes", "--json"), 0, "done")
        assert list_model(prepared) == ""
    finally:
        prepared.sh("rm", "-rf", source)
        prepared.remove_images(bare)


def test_a_download_on_the_node_itself_is_found_again_and_ended(
    prepared: LabNode, hub: HubStandIn, hub_url: str, client_packages: bytes, sparkctl: Sparkctl
) -> None:
    """Its image has nothing that runs the program; `hf`, which its user has installed, has."""
    bare, home = "pull-lab/bare:1", "/home/milo"
    prepared.sh("sh", "-c", f"tar c -T /dev/null | docker import - {bare}")
    prepared.sh("mkdir", "-p", f"{home}/client", f"{home}/.local/bin")
    subprocess.run(prepared.enter("tar", "x", "-C", f"{home}/client"), input=client_packages, check=True)
    prepared.put(f"{home}/client/python3", f'#!/bin/sh\nPYTHONPATH={home}/client exec /usr/bin/python3 "$@"\n')
    prepared.put(f"{home}/.local/bin/hf", f"#!{home}/client/python3\nfrom huggingface_hub.cli.hf import main\nmain()\n")
    prepared.sh("chmod", "755", f"{home}/client/python3", f"{home}/.local/bin/hf")
    prepared.sh("chown", "-R", "milo:milo", f"{home}/client", f"{home}/.local")
    hub.gated.add(REPOSITORY)
    name = sparkctl.profile(
        image=bare, engine="vllm", mounts=["~/models:/models"],
        model={"path": "/models/pulled", "source": f"hf:{REPOSITORY}"},
    )  # fmt: skip
    env, pull = (
        {"HF_ENDPOINT": hub_url, "HF_TOKEN": "hf_right"},
        ("pull", name, "--node", "spark1", "--model-only", "--json"),
    )

    def await_both_files() -> None:
        await_true("both files", lambda: set(count_sent(hub)) == set(ONCE), 60)

    def list_left() -> str:
        return prepared.sh("sh", "-c", "ls -d /dev/shm/sparkctl-*; pgrep -f [s]parkctl-pull-", check=False)

    def find_download(verb: str, *words: str) -> dict[str, object]:
        answer = json.loads(sparkctl(verb, "--node", "spark1", *words, "--json").out)
        (one,) = [one for one in answer["nodes"][0]["instances"] if one["phase"] == "pulling"]
        assert (one["profile"], one["ours"]) == (name, False)
        return dict(one)

    try:
        hub.pace.clear()
        running = sparkctl.start(*pull, env=env)
        await_both_files()
        running.kill()
        assert not list_downloads(prepared), "no container"
        leaks = prepared.sh("sh", "-c", "grep -l -a hf_righ[t] /proc/[0-9]*/cmdline /proc/[0-9]*/environ", check=False)
        assert not leaks, "the token is in no command line and no environment"
        assert find_download("status")["status"] == "runs on the node itself"
        watching = sparkctl.start("top", "--node", "spark1", "--json")
        watching.await_text('"phase": ?"pulling"')  # by the monitor that the panel has
        watching.kill()
        other = sparkctl(*pull, "--set", "model.source=hf:acme/other", env=env)
        assert other.code == 6, other
        joined = sparkctl.start(*pull, env=env)
        joined.await_text('"phase": ?"pulling"')
        stopped = sparkctl("pull", name, "--node", "spark1", "--stop", "--json")
        assert_ended(stopped, 0, "done")
        assert "was stopped; what has arrived is kept" in stopped.result["message"]
        assert joined.end().code != 0
        assert list_left() == ""
        assert list_model(prepared) == ""
        assert "no download" in sparkctl("pull", name, "--node", "spark1", "--stop", "--json").result["message"]
        hub.log.clear()
        again = sparkctl.start(*pull, env=env)
        await_both_files()
        prepared.sh("pkill", "-KILL", "-f", "[s]parkctl-pull-.*program.py")
        assert_ended(again.end(), 3, "unreachable")
        hub.pace.set()
        pulled = sparkctl(*pull, env=env)
        assert_ended(pulled, 0, "done")
        assert "each verified with the Hub's checksum" in pulled.result["message"]
        assert list_model(prepared).count(" 12000000 milo") == 2
        assert list_left() == ""
    finally:
        hub.pace.set()
        sparkctl("pull", name, "--node", "spark1", "--stop", "--json")
        prepared.sh("rm", "-rf", f"{home}/client", f"{home}/.local/bin/hf")
        prepared.remove_images(bare)


def count_sent(hub: HubStandIn) -> dict[str, int]:
    """Return how often each large file was asked for, by name."""
    names = [path.rpartition("/")[2] for method, path, _ in hub.log if method == "GET" and path.startswith("/cdn/")]
    return {name: names.count(name) for name in names}


ONCE = {"model-00001-of-00002.safetensors": 1, "model-00002-of-00002.safetensors": 1}


def test_two_pulls_at_the_same_moment_share_one_download(
    prepared: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    name, env = write_profile(sparkctl), {"HF_ENDPOINT": hub_url}
    hub.pace.clear()
    both = [sparkctl.start("pull", name, "--node", "spark1", "--json", env=env) for _ in range(2)]
    await_true("the download", lambda: any("cdn" in one[1] for one in hub.log), 40)
    for one in both:
        one.await_text('"phase": ?"pulling"')
    assert len(list_downloads(prepared)) == 1
    hub.pace.set()
    for one in both:
        assert_ended(one.end(), 0, "done")
    assert count_sent(hub) == ONCE
    assert list_model(prepared).count("12000000") == 2
    assert not list_downloads(prepared)


def test_two_nodes_get_a_model_by_one_download(
    prepared: LabNode, spark2: LabNode, hub: HubStandIn, hub_url: str, sparkctl: Sparkctl
) -> None:
    sparkctl.configure(fabric=FABRIC)
    name, env = write_profile(sparkctl), {"HF_ENDPOINT": hub_url}
    pull = ("pull", name, "--model-only", "--json")
    spark2.sh("rm", "-rf", MODEL)
    try:
        assert_ended(sparkctl(*pull, "--node", "spark1", "--node", "spark2", env=env), 0, "done")
        assert count_sent(hub) == ONCE
        sums = [node.sh("sh", "-c", f"cd {MODEL} && sha256sum *") for node in (prepared, spark2)]
        assert sums[0] == sums[1]
        assert hashlib.sha256(WEIGHTS).hexdigest() in sums[1]
        spark2.sh("rm", "-rf", MODEL)
        hub.log.clear()
        assert_ended(sparkctl(*pull, "--node", "spark2", "--from-cache", "spark1", env=env), 0, "done")
        assert count_sent(hub) == {}
        assert spark2.sh("sh", "-c", f"cd {MODEL} && sha256sum *") == sums[0]
    finally:
        spark2.sh("rm", "-rf", MODEL)


def test_without_the_right_the_pages_of_the_models_files_are_dropped(
    spark1: LabNode, sparkctl: Sparkctl, faults: Faults
) -> None:
    faults.sudo_rule(spark1, "none")
    # a node's home is a tmpfs, whose pages nothing drops; what the machine's own disk holds, the node sees, too
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        file, size = Path(place, "pulled", "model.safetensors"), 100 << 20
        file.parent.mkdir()
        file.write_bytes(os.urandom(size))
        Path(place).chmod(0o755)
        sparkctl.profile(
            image=IMAGE, engine="vllm", mounts=[f"{place}:/models"],
            model={"path": "/models/pulled", "source": f"hf:{REPOSITORY}"},
        )  # fmt: skip

        def count_cached() -> int:
            return int(subprocess.check_output(["fincore", "-b", "-n", "-o", "RES", file]))

        subprocess.run(["sync", file], check=True)
        assert file.read_bytes()
        assert count_cached() > size // 2, "another lab of this machine may drop some, too"
        done = sparkctl("drop-caches", "--node", "spark1")
        assert done.code == 0, done
        assert count_cached() == 0
        said = done.out + done.err
        assert "only the pages of 1 model files were dropped on spark1" in said, done
        assert re.search(r"[\d.]+ [GM]iB came back, [\d.]+ [GM]iB of page cache stay; the sudoers line", said), done
        assert "tee /proc/sys/vm/drop_caches" in said
