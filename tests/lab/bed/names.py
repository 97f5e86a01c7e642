"""Every name, address and constant of the lab. Each pytest worker has a lab of its own; the names are fixed, so that remains can be found."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SUFFIX = str(NUMBER or "")
SCRATCH = Path(os.environ.get("SPARKCTL_LAB_DIR", f"{tempfile.gettempdir()}/sparkctl-lab") + _SUFFIX)
LOCK = SCRATCH.with_name(SCRATCH.name + ".lock")
CGROUP = f"sparkctl-lab{_SUFFIX}"
BRIDGE = f"sctlbr{NUMBER}"
NAMESPACE = f"sctl{_SUFFIX}"  # and what the links' names begin with: at most 15 characters
GATEWAY = f"10.79.{NUMBER}.1"
LAN = "enP7s7"  # a Spark's own name for its 10 GbE port
FABRIC = "enp1s0f0np0"  # and for the first port of its ConnectX-7
ADDRESSES = {
    "spark1": (f"10.79.{NUMBER}.11", f"10.80.{NUMBER}.11"),
    "spark2": (f"10.79.{NUMBER}.12", f"10.80.{NUMBER}.12"),
}
USER = "milo"
JOURNAL = f"/home/{USER}/.local/state/sparkctl/switch.json"
PASSWORD = "correct horse"
IMAGE = "sparkctl-lab/engine:1"
DATA_SIZE = "2g"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN_ENV = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
