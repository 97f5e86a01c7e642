"""Where `pull` gets from in the lab: a real registry on a node, and an image that has the Hub's real client."""

from __future__ import annotations

import importlib.metadata
import io
import re
import subprocess
import tarfile
from pathlib import Path

from tests.lab.bed.names import IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true

IMPORT_CLIENT = "from huggingface_hub import HfApi, hf_hub_download"


class Registry:
    """A registry inside a node's network."""

    def __init__(self, node: LabNode, auth: str = "") -> None:
        self.node = node
        config = "version: 0.1\nstorage: {filesystem: {rootdirectory: /tmp/registry}}\nhttp: {addr: '127.0.0.1:5000'}\n"
        node.put("/tmp/registry.yml", config + auth)
        self.process = subprocess.Popen(
            node.enter("sh", "-c", "echo $$ >/tmp/registry.pid; exec docker-registry serve /tmp/registry.yml"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await_true("the registry", self._answers, 20)

    def _answers(self) -> bool:
        answer = self.node.sh("sh", "-c", "busybox wget -S -O- http://127.0.0.1:5000/v2/ 2>&1", check=False)
        return "HTTP/1.1" in answer or "401" in answer

    def close(self) -> None:
        if self.process.poll() is None:
            self.node.sh("sh", "-c", "kill $(cat /tmp/registry.pid)")
            self.process.wait(20)


def list_distributions(name: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Add a distribution and what it requires here."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    found[key] = importlib.metadata.distribution(name)
    for line in found[key].requires or ():
        if "extra ==" not in line:
            match = re.match(r"[\w.-]+", line)
            assert match is not None
            try:
                list_distributions(match[0], found)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform


def pack_hub_client() -> bytes:
    """Return an archive of the Hub's client and what it needs."""
    found: dict[str, importlib.metadata.Distribution] = {}
    list_distributions("huggingface_hub", found)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for one in found.values():
            for file in one.files or ():
                if ".." not in file.parts and file.suffix != ".pyc" and Path(str(file.locate())).is_file():
                    archive.add(str(file.locate()), str(file))
    return data.getvalue()


def put_hub_client(node: LabNode, tag: str, packages: bytes) -> None:
    """Make an image of this name on a node: the engine's with the Hub's client, which is compiled as an installed one is."""
    container = node.docker("create", "--network", "none", IMAGE, "python", "-c", IMPORT_CLIENT)
    subprocess.run(node.enter("docker", "cp", "-", f"{container}:/opt/engine"), input=packages, check=True)
    node.docker("start", "-a", container)
    node.docker("commit", container, tag)
    node.docker("rm", container)
