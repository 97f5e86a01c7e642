"""Who a node says it is: packages, kernel settings now and after a restart, swap, earlyoom. Machines made of files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparkctl.node import agent
from sparkctl.node.agent_decoder import AgentHello, EarlyoomStatus, SwapDevice, SysctlSetting, decode_agent_line
from tests.unit.node.agent_process import list_pythons, run_agent, write_machine_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has")


def make_dpkg_stanza(name: str, version: str, status: str = "install ok installed") -> str:
    """One stanza, as long as real ones are, so that the list is read in many pieces."""
    text = "".join(f" line {n} of what {name} is about\n" for n in range(400))
    return f"Package: {name}\nStatus: {status}\nArchitecture: arm64\nVersion: {version}\nDescription: x\n{text}\n"


DPKG = "".join([
    *(make_dpkg_stanza(f"lib{n}", f"1.{n}-1") for n in range(40)),
    make_dpkg_stanza("docker-ce", "5:29.2.1-1~ubuntu.24.04~noble"),
    make_dpkg_stanza("docker-ce-cli", "5:1.0-1"),
    make_dpkg_stanza("nvidia-container-toolkit-base", "1.0-1"),
    make_dpkg_stanza("nvidia-container-toolkit", "1.19.0-1"),
    make_dpkg_stanza("docker.io", "20.10.2", "deinstall ok config-files"),
    make_dpkg_stanza("earlyoom", "1.7-2"),
]).removesuffix("\n")  # fmt: skip


@pytest.mark.parametrize("python", list_pythons())
def test_what_a_node_says_of_itself(python: str, tmp_path: Path) -> None:
    root = write_machine_files(tmp_path, {
        "/var/lib/dpkg/status": DPKG,
        "/proc/uptime": "1036812.44 9.1\n",
        "/proc/swaps": "Filename Type Size Used Priority\n/swap.img  file\t16777212\t53986\t-2\n",
        "/proc/sys/vm/swappiness": "60\n",
        "/proc/sys/vm/min_free_kbytes": "45056\n",
        "/etc/sysctl.conf": "# vm.swappiness = 90\n vm.swappiness = 5\nnet.core.rmem_max=1\n",
        "/usr/lib/sysctl.d/10-a.conf": "vm.swappiness=80\nvm/overcommit_memory = 1\n",
        "/usr/lib/sysctl.d/50-hidden.conf": "vm.min_free_kbytes=1\n",
        "/etc/sysctl.d/50-hidden.conf": "-vm.min_free_kbytes = 5242880\n",
        "/etc/sysctl.d/60-last.conf": "vm.swappiness=1\n",
        "/etc/sysctl.d/README": "vm.swappiness=7\n",
        "/etc/default/earlyoom": '# EARLYOOM_ARGS="-x"\nEARLYOOM_ARGS="-m 2 -s 80"\n',
        "/sys/class/dmi/id/bios_version": "5.36_0ACUM018\n",
        "/sys/class/infiniband/rocep1s0f0/fw_ver": "28.45.4028\n",
        "/sys/class/infiniband/rocep1s0f1/fw_ver": "28.45.4028\n",
        "/proc/7/comm": "python3\n",
        "/proc/7/cmdline": "python3\0--api-key\0secret\0",
        "/proc/811/comm": "earlyoom\n",
        "/proc/811/cmdline": "/usr/bin/earlyoom\0-r\x003600\0--avoid\0^(sshd|x y)$\0",
    })  # fmt: skip
    (tmp_path / "etc/sysctl.d/40-linked.conf").symlink_to("../sysctl.conf")
    with run_agent(root=root, python=python, nvml=b"") as running:
        hello = decode_agent_line(running.line())
    assert isinstance(hello, AgentHello)
    assert (hello.docker, hello.toolkit, hello.up) == ("29.2.1", "1.19.0", 1036812.44)
    assert (hello.bios, hello.nic_firmware) == ("5.36_0ACUM018", "28.45.4028")
    assert hello.swaps == (SwapDevice("/swap.img", "file", 16777212 << 10, 53986 << 10),)
    assert dict(hello.sysctl) == dict.fromkeys(agent.SYSCTL_NAMES) | {"swappiness": 60, "min_free_kbytes": 45056}
    assert hello.configured == (
        SysctlSetting("min_free_kbytes", 5242880, "/etc/sysctl.d/50-hidden.conf"),
        SysctlSetting("overcommit_memory", 1, "/usr/lib/sysctl.d/10-a.conf"),
        SysctlSetting("swappiness", 1, "/etc/sysctl.d/60-last.conf"),
    )
    running_as = ("/usr/bin/earlyoom", "-r", "3600", "--avoid", "^(sshd|x y)$")
    assert hello.earlyoom == EarlyoomStatus("1.7", running_as, '"-m 2 -s 80"')


def test_a_machine_without_anything_says_nothing_of_it(tmp_path: Path) -> None:
    with run_agent(root=str(tmp_path), nvml=b"") as running:
        hello = decode_agent_line(running.line())
    assert isinstance(hello, AgentHello)
    assert (hello.docker, hello.toolkit, hello.up, hello.configured, hello.swaps, hello.earlyoom) == (
        None,
        None,
        None,
        (),
        None,
        None,
    )


def test_sysctl_conf_counts_last_where_it_is_not_linked(tmp_path: Path) -> None:
    files = {"/etc/sysctl.conf": "vm.swappiness = 5\n", "/etc/sysctl.d/99-z.conf": "vm.swappiness = 6\n"}
    assert agent.read_configured_sysctls(write_machine_files(tmp_path, files)) == [
        {"name": "swappiness", "value": 5, "file": "/etc/sysctl.conf"}
    ]
