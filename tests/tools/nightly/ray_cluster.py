"""The Ray path on a real Ray: what a vLLM over two Sparks is started with makes one cluster of two nodes, and ends as one.

``python -m tests.tools.nightly.ray_cluster`` installs Ray from the package index (0.3 GB on the disk, once) and runs `sparkctl up`
of a two-node profile in the lab: real SSH, real Docker, the words of `engines.vllm` for ``distributed-executor-backend: ray``.
In vLLM's place a small server asks that Ray for an actor with a GPU on each node, and is ready when both have said where
they are. Exit 0: all was as it should be, or it cannot be run here, which is said.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.lab.bed.lab import Lab, why_not
from tests.lab.bed.names import ADDRESSES, FABRIC, IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.lab.support.sparkctl_process import Sparkctl
from tests.tools.nightly.engines.install import cache_directory
from tests.tools.nightly.lab_job import WITHIN, expect_outcome, judge_play, on_lab, print_step

RAY = "2.60.0"
_HIDDEN = Path("/root")  # an empty one of its own in a node, below which the host's shows again
_UNSEEN = ("/home", "/tmp", "/run", "/mnt")
_SERVED = """\
import sys, time
import ray
from standin import flags, listen, say, stay

ray.init(address="auto", log_to_driver=False)
end = time.monotonic() + 120
while sum(node["Alive"] for node in ray.nodes()) < 2:
    if time.monotonic() > end:
        sys.exit("RuntimeError: one node joined, two were asked for")
    time.sleep(0.2)

@ray.remote(num_gpus=1)
class Worker:
    def where(self):
        return ray.util.get_node_ip_address()

workers = [Worker.remote() for _ in range(2)]
say("the ranks stand on " + " ".join(sorted(ray.get([one.where.remote() for one in workers]))), 1)
listen(flags(sys.argv[1:]), "vllm")
say("INFO:     Application startup complete.")
stay()
"""


def main() -> int:
    """Install, start, look, break, stop."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.nightly.ray_cluster", description=__doc__)
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="where Ray is installed")
    root = parser.parse_args().cache.resolve()  # a link would lead nowhere in a node
    reason = why_not() or why_unseen(root) or install_ray(root)
    if reason:
        print(f"SKIPPED: Ray over two nodes, {reason}")
        return 0
    with on_lab() as (bed, command):
        for node in bed.nodes.values():
            node.sh("umount", "-l", str(_HIDDEN), check=False)
        return judge_play(command, lambda: play_scenes(bed, command, root))


def why_unseen(root: Path) -> str | None:
    """Return why a node could not see what is installed, None where it can."""
    hidden = [path for path in (root, Path(sys.base_prefix).resolve()) if path.is_relative_to("/tmp")]
    hidden += [path for path in (root,) if any(path.is_relative_to(place) for place in _UNSEEN)]
    return f"a node of the lab has a {hidden[0]} of its own: name another --cache" if hidden else None


def install_ray(root: Path) -> str | None:
    """Make a virtual environment with Ray unless it is there; return why it could not be had."""
    home = root / f"ray-{RAY}"
    done = home / ".complete"
    root.mkdir(parents=True, exist_ok=True)
    (root / "ray_served.py").write_text(_SERVED)
    if done.exists():
        return None
    began = time.monotonic()
    for words in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(home / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", f"ray=={RAY}"],
    ):
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        if ran.returncode:
            return f"Ray {RAY} could not be installed: {' '.join(ran.stdout.splitlines()[-3:])}"
    done.touch()
    print(f"Ray {RAY} installed in {time.monotonic() - began:.0f} s")
    return None


def play_scenes(bed: Lab, command: Sparkctl, root: Path) -> None:
    """Start it over both nodes, look, kill the worker, stop it. Raises `Wrong`."""
    command.configure(fabric=FABRIC)
    began = time.monotonic()
    ran = command("up", write_profile(command, root), "--json", timeout=WITHIN)
    expect_outcome(ran.code == 0 and ran.result["outcome"] == "ready", "up is not ready", ran)
    places = " ".join(sorted(cable for _, cable in ADDRESSES.values()))
    log = command("logs", "ray-pair").out
    expect_outcome(f"the ranks stand on {places}" in log, f"the ranks do not stand on {places}", ran)
    print_step(f"up: Ray's cluster of two nodes, the ranks on {places}", began)
    began = time.monotonic()
    status = command("status", "--json")
    there = [one for node in json.loads(status.out)["nodes"] for one in node["instances"] if one["name"] == "ray-pair"]
    phases = [one["phase"] for one in there]
    expect_outcome(phases == ["ready", "ready"], f"status says {phases}", status)
    print_step(f"status: {', '.join(phases)}", began)
    began = time.monotonic()
    down = command("down", "ray-pair", "--json", timeout=WITHIN)
    expect_outcome(down.code == 0, "down did not end well", down)
    expect_outcome(time.monotonic() - began < 20, "a rank did not heed the request to end", down)
    for node in bed.nodes.values():
        await_true(f"no process of Ray on {node.name}", lambda node=node: not list_ray_pids(node))  # type: ignore[misc]
    print_step("down: no container and no process of Ray on either node", began)


def write_profile(command: Sparkctl, root: Path) -> str:
    """Write the profile: vLLM's, with a small server in its place."""
    python = Path(sys.base_prefix).resolve()
    return command.profile(
        "ray-pair",
        engine="vllm",
        nodes=2,
        image=IMAGE,
        command=["python", str(root / "ray_served.py")],
        model=None,
        args={"distributed-executor-backend": "ray"},
        env={"PATH": f"{root}/ray-{RAY}/bin:/usr/bin:/bin", "HOME": "/tmp", "PYTHONPATH": "/opt/engine"},
        mounts=["/usr:/usr:ro", f"{root}:{root}:ro", f"{python}:{python}:ro"],
        container={"gpus": "none", "network": "host"},
    )


def list_ray_pids(node: LabNode) -> list[int]:
    """Return the host pids of Ray's parts on a node."""
    return node.pids("raylet") + node.pids("gcs_server")


if __name__ == "__main__":
    sys.exit(main())
