"""Every name, address and constant of the lab. One lab per machine: the names are fixed so that remains can be found."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

SCRATCH = Path(os.environ.get("SPARKCTL_LAB_DIR") or Path(tempfile.gettempdir()) / "sparkctl-lab")
LOCK = SCRATCH.with_name(SCRATCH.name + ".lock")
CGROUP = "sparkctl-lab"
BRIDGE = "sctlbr0"
GATEWAY = "10.79.0.1"
LAN = "enP7s7"  # a Spark's own name for its 10 GbE port
FABRIC = "enp1s0f0np0"  # and for the first port of its ConnectX-7
ADDRESSES = {"spark1": ("10.79.0.11", "10.80.0.11"), "spark2": ("10.79.0.12", "10.80.0.12")}
USER = "milo"
JOURNAL = f"/home/{USER}/.local/state/sparkctl/switch.json"
PASSWORD = "correct horse"
IMAGE = "sparkctl-lab/engine:1"
DATA_SIZE = "2g"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN_ENV = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
