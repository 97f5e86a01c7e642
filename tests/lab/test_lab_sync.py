"""Image and model from one node to the other over the second link: real files, real docker, a real cut in the middle."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import FABRIC
from tests.lab.bed.netns import get_namespace_name
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true, ip, run
from tests.lab.support.command_outcomes import assert_ended
from tests.lab.support.sparkctl_process import Ran, Sparkctl

BEGUN = 4 << 20  # bytes that have arrived when a transfer is disturbed: the rest takes five seconds more
MODEL = "/home/milo/models/tiny"
IMAGE = "sync-lab/tiny:1"
CACHE = "/home/milo/.cache/huggingface/hub/models--lab--tiny"
TO = ("--from", "spark1", "--to", "spark2")


@pytest.fixture
def pair(clean_nodes: Lab) -> Iterator[tuple[LabNode, LabNode]]:
    """Both nodes; the first has a model of 3 files and a small image, the second has neither."""
    one, two = clean_nodes.nodes["spark1"], clean_nodes.nodes["spark2"]
    for node in (one, two):
        node.sh("rm", "-rf", MODEL, CACHE, "/home/milo/.local")
        node.remove_images(IMAGE)
    run_as_milo(one, f"mkdir -p {MODEL}; head -c 20000000 /dev/urandom >{MODEL}/model-00001-of-00002.safetensors; "
                 f"head -c 5000001 /dev/urandom >{MODEL}/model-00002-of-00002.safetensors; echo '{{}}' >{MODEL}/config.json")  # fmt: skip
    yield one, two
    for node in (one, two):
        node.sh("rm", "-rf", MODEL, CACHE)
        node.remove_images(IMAGE)
        run("tc", "-n", get_namespace_name(node.name), "qdisc", "del", "dev", FABRIC, "root", check=False)


def run_as_milo(node: LabNode, script: str) -> str:
    return node.sh("sudo", "-u", "milo", "-H", "sh", "-c", script)


def list_checksums(node: LabNode, place: str = MODEL) -> dict[str, str]:
    listed = node.sh("sh", "-c", f"cd {place} 2>/dev/null && find . -type f | sort | xargs -r sha256sum", check=False)
    return {line.split()[1]: line.split()[0] for line in listed.splitlines()}


def write_profile(sparkctl: Sparkctl, **fields: Any) -> str:
    """A profile whose way is the second link, which has no RDMA here: so the config names it."""
    sparkctl.configure(fabric=FABRIC)
    return sparkctl.profile(**{"image": IMAGE, "mounts": ["~/models:/models"], **fields})


def load_image(node: LabNode, size: int = 3_000_000, name: str = IMAGE) -> None:
    node.sh("sh", "-c", f"head -c {size} /dev/urandom >/tmp/blob; tar -C /tmp -c blob | docker import - {name}")


def read_image_id(node: LabNode) -> str:
    return node.find_image(IMAGE)


def list_transfers(ran: Ran) -> list[dict[str, Any]]:
    return [event for event in ran.events if event["event"] == "moved"]


def list_remaining_pids(node: LabNode) -> list[int]:
    return node.pids_with("python3", b"sparkctl-carry")


def test_image_and_model_arrive_and_the_second_time_nothing_is_sent(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    load_image(one)
    name = write_profile(sparkctl)
    dry = sparkctl("sync", name, *TO, "--dry-run", "--json")
    assert_ended(dry, 0, "planned")
    assert "3 files, 23.8 MiB" in dry.result["message"]
    assert list_checksums(two) == {}
    done = sparkctl("sync", name, *TO, "--json")
    assert_ended(done, 0, "done")
    assert FABRIC in done.result["message"]
    assert list_checksums(one) == list_checksums(two)
    assert read_image_id(one) == read_image_id(two)
    assert two.sh("stat", "-c", "%Y %a %U", f"{MODEL}/config.json") == one.sh(
        "stat", "-c", "%Y %a %U", f"{MODEL}/config.json"
    )
    files = [event for event in list_transfers(done) if event["what"] == "files of tiny"]
    assert (files[0]["done"], files[-1]["done"], files[-1]["total"]) == (0, 25000004, 25000004)
    again = sparkctl("sync", name, *TO, "--json")
    assert_ended(again, 0, "done")
    assert "already" in again.result["message"]
    assert list_transfers(again) == []
    await_true("both ends to be gone", lambda: not list_remaining_pids(one) and not list_remaining_pids(two))


def test_words_for_people(pair: tuple[LabNode, LabNode], sparkctl: Sparkctl) -> None:
    name = write_profile(sparkctl)
    code, seen = sparkctl.on_terminal("sync", name, *TO, "--model-only")
    assert code == 0, seen
    assert b"MiB" in seen
    assert b"the checksums of 3 files, 23.8 MiB are equal on both" in seen.replace(b"\r\n  ", b" ").replace(
        b"\r\n", b" "
    )


def slow_link_down(node: LabNode, rate: str) -> None:
    run("tc", "-n", get_namespace_name(node.name), "qdisc", "replace", "dev", FABRIC, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")  # fmt: skip


def list_part_files(node: LabNode) -> dict[str, int]:
    listed = node.sh("sh", "-c", f"cd {MODEL} 2>/dev/null && stat -c '%s %n' .*.sparkctl-part 2>/dev/null", check=False)
    return {line.split()[1]: int(line.split()[0]) for line in listed.splitlines()}


def count_begun_bytes(node: LabNode) -> int:
    """Return how much has arrived of the large file; the smaller one, which goes beside it, is soon whole."""
    return next((size for name, size in list_part_files(node).items() if "model-00001" in name), 0)


def test_after_the_link_was_cut_the_same_command_goes_on(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl, faults: Faults
) -> None:
    one, two = pair
    name = write_profile(sparkctl)
    slow_link_down(one, "24mbit")
    running = sparkctl.start("sync", name, *TO, "--model-only", "--json")
    await_true("some of it to be there", lambda: count_begun_bytes(two) > BEGUN, 30.0)
    ip(f"link set {FABRIC} down", netns=get_namespace_name("spark1"))
    broken = running.end(60)
    ip(f"link set {FABRIC} up", netns=get_namespace_name("spark1"))
    assert_ended(broken, 3, "unreachable")
    assert "continue where it stopped" in broken.result["hint"]
    await_true("both ends to be gone", lambda: not list_remaining_pids(one) and not list_remaining_pids(two))
    left = list_part_files(two)
    assert count_begun_bytes(two) > BEGUN
    assert "./model-00001-of-00002.safetensors" not in list_checksums(two)
    run("tc", "-n", get_namespace_name("spark1"), "qdisc", "del", "dev", FABRIC, "root")
    done = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert_ended(done, 0, "done")
    assert list_transfers(done)[0]["done"] >= max(left.values())
    assert list_checksums(one) == list_checksums(two)
    assert list_part_files(two) == {}


def test_a_link_that_is_down_for_some_seconds_delays_the_transfer_and_no_more(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    slow_link_down(one, "24mbit")
    running = sparkctl.start("sync", write_profile(sparkctl), *TO, "--model-only", "--json")
    await_true("some of it to be there", lambda: count_begun_bytes(two) > BEGUN, 30.0)
    ip(f"link set {FABRIC} down", netns=get_namespace_name("spark2"))
    time.sleep(4)
    ip(f"link set {FABRIC} up", netns=get_namespace_name("spark2"))
    assert_ended(running.end(90), 0, "done")
    assert list_checksums(one) == list_checksums(two)


def test_a_link_that_stays_down_leaves_the_way_through_this_machine(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl, faults: Faults
) -> None:
    one, two = pair
    name = write_profile(sparkctl)
    slow_link_down(one, "24mbit")
    running = sparkctl.start("sync", name, *TO, "--model-only", "--json")
    await_true("some of it to be there", lambda: count_begun_bytes(two) > BEGUN, 30.0)
    faults.cut_fabric(two)
    broken = running.end(60)
    assert_ended(broken, 3, "unreachable")
    assert "the transfer broke off" in broken.result["message"]
    done = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert_ended(done, 0, "done")
    said = [event["message"] for event in done.events if event["event"] == "warning"]
    assert any("through this machine" in words and FABRIC in words for words in said), said
    assert list_transfers(done)[0]["done"] > BEGUN
    assert list_checksums(one) == list_checksums(two)


def test_a_disk_that_becomes_full_on_the_way_is_said_and_the_same_command_goes_on(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    name = write_profile(sparkctl)
    run_as_milo(two, f"mkdir -p {MODEL}")
    two.sh("mount", "-t", "tmpfs", "-o", "size=100m,uid=1000,mode=755", "tmpfs", MODEL)
    try:
        two.sh("chown", "milo:", MODEL)
        slow_link_down(one, "24mbit")
        running = sparkctl.start("sync", name, *TO, "--model-only", "--json")
        await_true("some of it to be there", lambda: count_begun_bytes(two) > BEGUN, 30.0)
        two.sh("sh", "-c", f"head -c 200M /dev/zero >{MODEL}/filler", check=False)
        full = running.end(60)
        assert_ended(full, 6, "refused")
        assert "the disk of spark2 became full" in full.result["message"]
        assert "make room there; then repeat the command to continue" in full.result["hint"]
        left = list_part_files(two)
        assert count_begun_bytes(two) > BEGUN
        assert set(list_checksums(two)) <= {*list_checksums(one), "./filler", *(f"./{part}" for part in left)}
        assert "./model-00001-of-00002.safetensors" not in list_checksums(two)
        await_true("both ends to be gone", lambda: not list_remaining_pids(one) and not list_remaining_pids(two))
        two.sh("rm", f"{MODEL}/filler")
        run("tc", "-n", get_namespace_name("spark1"), "qdisc", "del", "dev", FABRIC, "root")
        done = sparkctl("sync", name, *TO, "--model-only", "--json")
        assert_ended(done, 0, "done")
        assert list_transfers(done)[0]["done"] > BEGUN
        assert list_checksums(one) == list_checksums(two)
    finally:
        two.sh("umount", "-l", MODEL)


def test_a_disk_of_docker_that_becomes_full_on_the_way_is_said(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl, faults: Faults
) -> None:
    one, two = pair
    load_image(one, 40_000_000)
    name = write_profile(sparkctl)
    slow_link_down(one, "60mbit")
    running = sparkctl.start("sync", name, *TO, "--image-only", "--json")
    await_true("docker load to be at work", lambda: bool(list_remaining_pids(two)), 30.0)
    time.sleep(1.5)
    faults.fill_disk(two, 1024)
    full = running.end(60)
    assert_ended(full, 6, "refused")
    assert "docker load failed on spark2" in full.result["message"]
    assert "no space left on device" in full.result["message"]
    assert "docker system df" in full.result["hint"]
    assert read_image_id(two) == ""
    await_true("both ends to be gone", lambda: not list_remaining_pids(one) and not list_remaining_pids(two))
    faults.undo()
    run("tc", "-n", get_namespace_name("spark1"), "qdisc", "del", "dev", FABRIC, "root")
    assert_ended(sparkctl("sync", name, *TO, "--image-only", "--json"), 0, "done")
    assert read_image_id(one) == read_image_id(two)


OTHER = "sync-lab/other:1"
EXTRA = "sync-lab/extra:1"


@pytest.fixture
def other_images(pair: tuple[LabNode, LabNode]) -> Iterator[str]:
    """Images of other names on the source; one of these names has another image on the target; returns that one's id."""
    one, two = pair
    for node in pair:
        load_image(node, 100_000, OTHER)
    one.docker("tag", OTHER, EXTRA)
    yield two.find_image(OTHER)
    for node in pair:
        node.remove_images(OTHER, EXTRA)


def test_a_source_that_sends_more_than_the_wanted_image_changes_no_name(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl, other_images: str, faults: Faults
) -> None:
    one, two = pair
    load_image(one)
    name = write_profile(sparkctl)
    run_as_milo(one, "mkdir -p ~/bin; echo 'PATH=$HOME/bin:$PATH' >~/.bashrc; real=$(command -v docker); "
                 f"""printf '#!/bin/sh\\nif [ "$1" = save ]; then set -- "$@" {OTHER} {EXTRA}; fi\\nexec %s "$@"\\n' $real >~/bin/docker; """
                 "chmod +x ~/bin/docker")  # fmt: skip
    try:
        refused = sparkctl("sync", name, *TO, "--image-only", "--json")
    finally:
        run_as_milo(one, "rm -rf ~/bin ~/.bashrc")
    assert_ended(refused, 1, "failed")
    assert f"spark1 sent more than the image {IMAGE}: {EXTRA}, {OTHER}" in refused.result["message"]
    assert two.find_image(OTHER) == other_images
    assert two.find_image(EXTRA) == ""
    assert read_image_id(two) == ""
    assert_ended(sparkctl("sync", name, *TO, "--image-only", "--json"), 0, "done")


def test_a_name_that_somebody_gives_on_the_target_meanwhile_stays(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl, other_images: str
) -> None:
    one, two = pair
    load_image(one, 20_000_000)
    name = write_profile(sparkctl)
    slow_link_down(one, "60mbit")
    running = sparkctl.start("sync", name, *TO, "--image-only", "--json")
    await_true("the receiver to be at work", lambda: bool(list_remaining_pids(two)), 30.0)
    time.sleep(1.0)
    two.docker("tag", OTHER, EXTRA)
    assert_ended(running.end(60), 0, "done")
    assert two.find_image(EXTRA) == other_images
    assert read_image_id(one) == read_image_id(two)


def test_after_ctrl_c_and_with_a_damaged_part_what_arrives_is_whole(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    name = write_profile(sparkctl)
    slow_link_down(one, "12mbit")
    running = sparkctl.start("sync", name, *TO, "--model-only", "--json")
    await_true("some of it to be there", lambda: count_begun_bytes(two) > BEGUN, 30.0)
    second = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert_ended(second, 6, "refused")
    assert "another sync" in second.result["message"]
    running.interrupt()
    stopped = running.end(20)
    assert_ended(stopped, 130, "interrupted")
    await_true("both ends to be gone", lambda: not list_remaining_pids(one) and not list_remaining_pids(two))
    run("tc", "-n", get_namespace_name("spark1"), "qdisc", "del", "dev", FABRIC, "root")
    largest = max(list_part_files(two), key=lambda part: list_part_files(two)[part])
    two.sh("sh", "-c", f"printf XXXX | dd of={MODEL}/{largest} bs=1 seek=1000 conv=notrunc 2>/dev/null")
    differing = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert_ended(differing, 3, "unreachable")
    assert "not what was sent" in differing.result["message"]
    assert list_part_files(two) == {}
    assert_ended(sparkctl("sync", name, *TO, "--model-only", "--json"), 0, "done")
    assert list_checksums(one) == list_checksums(two)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_sent(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl, faults: Faults
) -> None:
    one, two = pair
    load_image(one)
    faults.fill_disk(two, 65 * 1024)
    name = write_profile(sparkctl)
    refused = sparkctl("sync", name, *TO, "--image-only", "--json")
    assert_ended(refused, 6, "refused")
    assert "no room for the image" in refused.result["message"]
    assert "nothing was sent" in refused.result["message"]
    assert list_transfers(refused) == []
    assert read_image_id(two) == ""


def test_a_file_of_another_time_is_sent_only_where_its_content_differs(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    name = write_profile(sparkctl)
    assert_ended(sparkctl("sync", name, *TO, "--model-only", "--json"), 0, "done")
    run_as_milo(
        one, f"touch {MODEL}/*; printf X | dd of={MODEL}/model-00002-of-00002.safetensors bs=1 seek=99 conv=notrunc"
    )
    time.sleep(1.1)  # times are compared in whole seconds
    run_as_milo(one, f"touch {MODEL}/*")
    done = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert_ended(done, 0, "done")
    assert "1 file, 4.8 MiB" in done.result["message"]
    assert list_checksums(one) == list_checksums(two)
    again = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert "already" in again.result["message"], again


def test_the_layout_of_hugging_faces_cache_survives(pair: tuple[LabNode, LabNode], sparkctl: Sparkctl) -> None:
    one, two = pair
    content = b"weights" * 100_000
    sha = hashlib.sha256(content).hexdigest()
    run_as_milo(one, f"mkdir -p {CACHE}/blobs {CACHE}/refs {CACHE}/snapshots/abc; echo -n abc >{CACHE}/refs/main; "
                 f"yes weights | tr -d '\\n' | head -c 700000 >{CACHE}/blobs/{sha}; echo x >{CACHE}/blobs/y.incomplete; "
                 f"ln -s ../../blobs/{sha} {CACHE}/snapshots/abc/model.safetensors")  # fmt: skip
    name = write_profile(sparkctl, model={"path": "lab/tiny"}, mounts=["~/.cache/huggingface:/root/.cache/huggingface"])
    done = sparkctl("sync", name, *TO, "--model-only", "--json")
    assert_ended(done, 0, "done")
    assert two.sh("readlink", f"{CACHE}/snapshots/abc/model.safetensors").strip() == f"../../blobs/{sha}"
    assert list_checksums(two, CACHE) == {f"./blobs/{sha}": sha, "./refs/main": hashlib.sha256(b"abc").hexdigest()}
    assert "already" in sparkctl("sync", name, *TO, "--model-only", "--json").result["message"]


def test_without_a_way_between_them_it_goes_through_this_machine(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    load_image(one)
    name = write_profile(sparkctl)
    two.sh("iptables", "-I", "INPUT", "-i", FABRIC, "-p", "tcp", "-j", "DROP")
    try:
        done = sparkctl("sync", name, *TO, "--json")
    finally:
        two.sh("iptables", "-D", "INPUT", "-i", FABRIC, "-p", "tcp", "-j", "DROP")
    assert_ended(done, 0, "done")
    assert any(
        "through this machine" in event.get("message", "") for event in done.events if event["event"] == "warning"
    )
    assert list_checksums(one) == list_checksums(two)
    assert read_image_id(one) == read_image_id(two)


def test_an_image_that_is_another_there_is_replaced_and_one_that_is_missing_here_is_said(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    name = write_profile(sparkctl)
    missing = sparkctl("sync", name, *TO, "--json")
    assert_ended(missing, 6, "refused")
    assert "spark1 does not have the image" in missing.result["message"]
    load_image(one)
    load_image(two)
    assert read_image_id(one) != read_image_id(two)
    assert_ended(sparkctl("sync", name, *TO, "--image-only", "--json"), 0, "done")
    assert read_image_id(one) == read_image_id(two)


def test_killed_in_the_middle_nothing_stays_behind_but_the_part(
    pair: tuple[LabNode, LabNode], sparkctl: Sparkctl
) -> None:
    one, two = pair
    slow_link_down(one, "24mbit")
    running = sparkctl.start("sync", write_profile(sparkctl), *TO, "--model-only", "--json")
    await_true("some of it to be there", lambda: count_begun_bytes(two) > BEGUN, 30.0)
    running.process.send_signal(signal.SIGKILL)
    running.end(10)
    await_true("both ends to be gone", lambda: not list_remaining_pids(one) and not list_remaining_pids(two), 10.0)
    assert list_part_files(two)
