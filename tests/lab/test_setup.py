"""`setup` on real nodes: real sudo, visudo, usermod, interfaces, netplan and systemd-networkd. No systemd runs there, so one step
of `netplan apply` has a stand-in: it ends systemd-networkd and starts it again itself, and waits for its addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sparkctl.node.setup_program import build_program, call, decode_report
from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.names import FABRIC, PASSWORD, USER
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true, run
from tests.lab.support.sparkctl_process import Sparkctl

SUDOERS = "/etc/sudoers.d/sparkctl"
NETPLAN = "/etc/netplan/90-sparkctl.yaml"
LINE = f"{USER} ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches\n"
OWN_LINE = "# milo's own line, without an end"
STAND_IN = r"""#!/bin/sh
[ "$1" = apply ] || exec /usr/sbin/netplan "$@"
/usr/sbin/netplan generate || exit 1
if [ -e /run/networkd.pid ]; then
  kill "$(cat /run/networkd.pid)"
  while kill -0 "$(cat /run/networkd.pid)"; do sleep 0.05; done
fi 2>/dev/null
mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
chown -R systemd-network /run/systemd/netif
# it waits for no udev where /sys can only be read
unshare --mount sh -c 'mount -o remount,bind,ro /sys && echo $$ >/run/networkd.pid && exec /lib/systemd/systemd-networkd' \
  >/run/networkd.log 2>&1 </dev/null &
for address in $(sed -n 's/^Address=//p' /run/systemd/network/*.network 2>/dev/null); do
  tries=0
  until ip -o addr show dev FABRIC | grep -qF " $address " || [ $tries -gt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
done
if [ -e /run/lab/no-link ] && [ -e /etc/netplan/90-sparkctl.yaml ]; then state=down; else state=up; fi
ip link set FABRIC "$state"
"""


BARE = f"""
mkdir -p /etc/netplan
rm -rf {NETPLAN} /var/lib/sparkctl /run/sparkctl-cable {SUDOERS}
cat >/usr/local/sbin/netplan
chmod 755 /usr/local/sbin/netplan
echo '{USER} ALL=(ALL) ALL' >/etc/sudoers.d/lab
chmod 440 /etc/sudoers.d/lab
ip addr flush dev {FABRIC}
ip link set {FABRIC} mtu 1500
"""
AS_BEFORE = f"""
[ ! -e /run/networkd.pid ] || kill $(cat /run/networkd.pid) || true
rm -rf /etc/sudoers.d/lab {NETPLAN} /var/lib/sparkctl /run/lab/no-link /usr/local/sbin/netplan /run/networkd.pid /run/systemd/network
cat >{SUDOERS}
chmod 440 {SUDOERS}
ip addr flush dev {FABRIC}
ip link set {FABRIC} mtu 9000 up
ip addr replace "$1/24" dev {FABRIC}
"""


@pytest.fixture
def bare(clean_nodes: Lab) -> Iterator[Lab]:
    """Both nodes with a cable that has no addresses, sudo with a password, and netplan without systemd."""
    for node in clean_nodes.nodes.values():
        node.sh("sh", "-ec", BARE, stdin=STAND_IN.replace("FABRIC", FABRIC))
    yield clean_nodes
    for node in clean_nodes.nodes.values():
        node.sh("sh", "-ec", AS_BEFORE, "sh", node.fabric_address, stdin=LINE)


def read_state(node: LabNode) -> tuple[str, ...]:
    """Return what a set-up may change: the files with their modes and owners, the group, and the cable's interface."""
    files = node.sh(
        "sh",
        "-c",
        f"ls -l --time-style=+%s {SUDOERS} {NETPLAN} 2>/dev/null; cat {SUDOERS} {NETPLAN} 2>/dev/null || true",
    )
    return files, node.sh("getent", "group", "docker"), *read_lane(node)


def read_lane(node: LabNode) -> tuple[str, str]:
    return (
        node.sh("sh", "-c", f"ip -o -4 addr show dev {FABRIC} | awk '{{print $4}}'").strip(),
        node.sh("cat", f"/sys/class/net/{FABRIC}/mtu").strip(),
    )


def read_diffs(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what each file is said to be before and after, by node and path, where it was shown last.

    The files are short: a diff of one holds all of it.
    """
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    node, path = "", ""
    last: tuple[list[str], ...] = ()
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").splitlines():
        if match := re.match(r"(spark\d)  ", line):
            node = match[1]
        elif match := re.fullmatch(r"  (?:---|\+\+\+) (/\S+)", line):
            if match[1] != "/dev/null":
                path = match[1]
                found[node, path] = ([], [])
        elif line == r"  \ No newline at end of file":
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        elif match := re.fullmatch(r"  ([ +-])(.*)", line):
            before, after = found[node, path]
            last = tuple({" ": (before, after), "-": (before,), "+": (after,)}[match[1]])
            for side in last:
                side.append(f"{match[2]}\n")
    return {place: ("".join(before), "".join(after)) for place, (before, after) in found.items()}


def test_shown_confirmed_done_twice_is_once_and_undone(bare: Lab, sparkctl: Sparkctl, faults: Faults) -> None:
    nodes = list(bare.nodes.values())
    faults.leave_docker_group(nodes[0])
    nodes[1].put(SUDOERS, OWN_LINE)
    nodes[1].sh("chmod", "400", SUDOERS)
    before = [read_state(node) for node in nodes]
    shown = sparkctl("setup", "--dry-run")
    assert shown.code == 0, shown
    assert [read_state(node) for node in nodes] == before
    password = {b"password on spark1: ": PASSWORD.encode() + b"\n"}
    code, screen = sparkctl.on_terminal("setup", answers={b"Make these changes on spark1 and spark2? [y/N] ": b"n\n"})
    assert code == 6, screen
    assert [read_state(node) for node in nodes] == before
    # The second Spark's file is seen only by root, so it is shown, and asked for, once more: after it, y comes a second time.
    yes = {b"spark1 and spark2? [y/N] ": b"y\n", b"-" + OWN_LINE.encode(): b"y\n"}
    code, screen = sparkctl.on_terminal("setup", answers={**yes, **password}, columns=200)
    assert code == 0, screen.decode(errors="replace")
    assert PASSWORD.encode() not in screen
    assert screen.index(b"+++ /etc/group") < screen.index(b"[y/N]"), "shown before it is asked"
    promised = read_diffs(screen.decode())
    assert read_diffs(shown.out) == {**promised, ("spark2", SUDOERS): ("", LINE)}, "its own line only root can read"
    assert promised["spark2", SUDOERS] == (OWN_LINE, f"{OWN_LINE}\n{LINE}")
    assert {
        (node.name, path): ("", node.sh("cat", path)) for node in nodes for path in (SUDOERS, NETPLAN)
    } | {("spark1", "/etc/group"): (before[0][1], nodes[0].sh("getent", "group", "docker"))} == {
        **promised, ("spark2", SUDOERS): ("", f"{OWN_LINE}\n{LINE}")
    }, "exactly as shown"  # fmt: skip
    assert [node.sh("stat", "-c", "%a %U", SUDOERS, NETPLAN).split("\n")[:2] for node in nodes] == [
        ["440 root", "600 root"]
    ] * 2
    kept = [f"/var/lib/sparkctl/setup/{place}{SUDOERS}" for place in ("before", "written")]
    assert nodes[1].sh("stat", "-c", "%a %U", *kept).split("\n")[:2] == ["400 root", "600 root"]
    assert USER in nodes[0].sh("getent", "group", "docker")
    assert [read_lane(node) for node in nodes] == [("192.168.200.11/24", "9000"), ("192.168.200.12/24", "9000")]
    again = sparkctl("setup")
    assert (again.code, again.err.strip().splitlines()[-1]) == (0, "nothing to do"), again
    for name in bare.nodes:
        for part in ("Docker: milo", "page cache: milo may drop it", "cable: both ends have addresses"):
            assert f"{name}  {part}" in again.err, again
    undo = {b"Make these changes on spark1 and spark2? [y/N] ": b"y\n", **password}
    nodes[0].sh("sh", "-c", f"chmod 640 {SUDOERS} && echo '# mine' >>{SUDOERS} && chmod 440 {SUDOERS}")
    code, screen = sparkctl.on_terminal("setup", "--undo", answers=dict(undo))
    assert code == 6, screen
    assert b"+# mine" in screen
    assert LINE in nodes[1].sh("cat", SUDOERS)
    nodes[0].sh("sh", "-c", f"sed -i '$d' {SUDOERS}")
    code, screen = sparkctl.on_terminal("setup", "--undo", answers=dict(undo))
    assert code == 0, screen
    assert [read_state(node) for node in nodes] == before
    assert nodes[0].sh("sh", "-c", "ls -d /var/lib/sparkctl/setup 2>&1 || true").startswith("ls:")


def read_way_back_seconds(node: LabNode) -> float:
    """Return the time from the moment when the way back was armed to the moment when all was as before (s)."""
    seen = node.sh("stat", "-c", "%.3Y", "/run/sparkctl-cable/pid", "/run/sparkctl-cable/is-back").split()
    return float(seen[1]) - float(seen[0])


def test_a_cable_that_does_not_come_up_goes_back_also_without_us(bare: Lab, sparkctl: Sparkctl) -> None:
    nodes = list(bare.nodes.values())
    for node in nodes:
        node.put(SUDOERS, LINE.replace("/usr/bin/tee /proc/sys/vm/drop_caches", "ALL"))
        node.put("/etc/netplan/40-own.yaml", "network:\n  version: 2\n")
    nodes[1].put("/run/lab/no-link", "")
    before = [read_state(node) for node in nodes]
    ran = sparkctl("setup", "--yes", "--cable-timeout", "14s")
    assert ran.code == 4, ran
    assert re.search(r"has no link|have their old files back", ran.err), ran
    assert [read_state(node) for node in nodes] == before
    assert max(map(read_way_back_seconds, nodes)) <= 14
    going = sparkctl.start("setup", "--yes", "--cable-timeout", "14s")
    await_true("the file", lambda: "network:" in nodes[1].sh("cat", NETPLAN, check=False))
    going.kill()
    await_true("the way back", lambda: [read_state(node) for node in nodes] == before, 30)
    assert min(map(read_way_back_seconds, nodes)) > 10, "not before its time"
    assert max(map(read_way_back_seconds, nodes)) <= 14


def test_a_group_alone_is_undone_and_who_was_in_it_before_stays(bare: Lab, sparkctl: Sparkctl, faults: Faults) -> None:
    node = bare.nodes["spark1"]
    node.put("/etc/sudoers.d/lab", f"{USER} ALL=(ALL) NOPASSWD: ALL\n")  # nothing to set up but the group
    faults.leave_docker_group(node)
    before = read_state(node)
    assert sparkctl("setup", "spark1", "--yes").code == 0
    assert USER in node.sh("getent", "group", "docker")
    node.put("/usr/local/sbin/gpasswd", "#!/bin/sh\necho 'cannot lock /etc/group' >&2; exit 10\n")
    node.sh("chmod", "755", "/usr/local/sbin/gpasswd")
    try:
        failed = sparkctl("setup", "spark1", "--undo", "--yes")
    finally:
        node.sh("rm", "/usr/local/sbin/gpasswd")
    assert (failed.code, "cannot lock" in failed.err) == (6, True), failed
    undone = sparkctl("setup", "spark1", "--undo", "--yes")
    assert undone.code == 0, undone
    assert read_state(node) == before
    node.sh("usermod", "-aG", "docker", USER)
    program = build_program(call("join_group", "docker", USER)).decode()
    assert "@@ done group" in node.sh("sh", "-s", stdin=program)
    assert decode_report(node.sh("sh", "-s", stdin=build_program("records").decode()).encode()).groups == []


def test_a_password_that_sudo_does_not_ask_for_is_no_command(bare: Lab, sparkctl: Sparkctl) -> None:
    node = bare.nodes["spark1"]
    node.put("/etc/sudoers.d/lab", f"{USER} ALL=(ALL) ALL\n{USER} ALL=(ALL) NOPASSWD: /bin/sh, /usr/bin/sh\n")
    trap = f"/usr/local/sbin/{PASSWORD}"
    node.put(trap, "#!/bin/sh\n: >/run/lab/was-run\n")
    node.sh("chmod", "755", trap)
    try:
        answers = {b"password on spark1: ": PASSWORD.encode() + b"\n", b"on spark1? [y/N] ": b"y\n"}
        code, screen = sparkctl.on_terminal("setup", "spark1", answers=answers)
        assert code == 0, screen.decode(errors="replace")
        assert b"password on spark1: " in screen  # sudo wanted one for `true`
        assert node.sh("cat", SUDOERS) == LINE
        assert node.sh("sh", "-c", "ls /run/lab/was-run 2>/dev/null || true") == ""
    finally:
        node.sh("rm", "-f", trap, "/run/lab/was-run")


def test_an_end_of_the_cable_that_was_confirmed_goes_back_with_the_other(bare: Lab, sparkctl: Sparkctl) -> None:
    nodes = list(bare.nodes.values())
    for node in nodes:
        node.put(SUDOERS, LINE.replace("/usr/bin/tee /proc/sys/vm/drop_caches", "ALL"))
    late = (
        STAND_IN.replace("FABRIC", FABRIC)
        + "[ ! -e /etc/netplan/90-sparkctl.yaml ] || mkdir /run/sparkctl-cable/decided\n"
    )
    nodes[1].put("/usr/local/sbin/netplan", late)
    nodes[1].sh("chmod", "755", "/usr/local/sbin/netplan")
    before = read_state(nodes[0])
    ran = sparkctl("setup", "--yes", "--cable-timeout", "20s")
    assert (ran.code, "spark2 had already reverted" in ran.err) == (4, True), ran
    assert read_state(nodes[0]) == before
    assert "no such" in nodes[0].sh("sh", "-c", "ls /var/lib/sparkctl/setup/lanes 2>&1 || true").lower()


def test_ctrl_c_between_the_two_confirmations_leaves_no_half_a_cable(bare: Lab, sparkctl: Sparkctl) -> None:
    """The first Spark takes its time to keep its file: the second is asked, too, before the command ends."""
    nodes = list(bare.nodes.values())
    for node in nodes:
        node.put(SUDOERS, LINE.replace("/usr/bin/tee /proc/sys/vm/drop_caches", "ALL"))
    decides = 'case "$*" in /run/sparkctl-cable/decided) : >/run/lab/is-asked; sleep 3 ;; esac'
    nodes[0].put("/usr/local/sbin/mkdir", f'#!/bin/sh\n{decides}\nexec /bin/mkdir "$@"\n')
    nodes[0].sh("chmod", "755", "/usr/local/sbin/mkdir")
    try:
        going = sparkctl.start("setup", "--yes", "--cable-timeout", "60s")
        await_true("the question", lambda: "asked" in nodes[0].sh("ls", "/run/lab/is-asked", check=False), 40)
        going.interrupt()
        ran = going.end()
        assert ran.code == 130, ran
        decided = {
            ("confirmed" in node.sh("ls", "/run/sparkctl-cable"), "network:" in node.sh("cat", NETPLAN, check=False))
            for node in nodes
        }
        assert decided in ({(True, True)}, {(False, False)}), (
            "both ends keep it, or both went back (too late for a busy machine)"
        )
    finally:
        nodes[0].sh("rm", "-f", "/usr/local/sbin/mkdir", "/run/lab/is-asked")


def test_visudo_refuses_a_bad_line_before_it_counts(bare: Lab) -> None:
    node = bare.nodes["spark1"]
    before = node.sh("ls", "-A", "/etc/sudoers.d")
    bad = build_program(call("put", SUDOERS, "0440", "none", text="milo ALL=(root NOPASSWD: tee\n")).decode()
    report = decode_report(node.sh("sh", "-s", stdin=bad, check=False).encode())
    assert "visudo refuses" in (report.failure or "")
    assert node.sh("ls", "-A", "/etc/sudoers.d") == before


def test_init_installs_the_key_and_ends_with_the_set_up(bare: Lab, sparkctl: Sparkctl) -> None:
    node = bare.nodes["spark2"]
    sparkctl.know("")
    sparkctl.config.unlink()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(sparkctl.home / ".ssh/id_ed25519"))
    entries = node.sh("cat", f"/home/{USER}/.ssh/authorized_keys")
    answers = {
        b"remember the key? [yes/no] ": b"yes\n",
        b"key file for spark2 (empty: none works): ": b"\n",
        b"with your password there? [y/N] ": b"y\n",
        b"password on spark2: ": PASSWORD.encode() + b"\n",
        b"Make these changes on spark2? [y/N] ": b"n\n",
    }
    try:
        code, screen = sparkctl.on_terminal("init", "--node", f"spark2={USER}@{node.address}", answers=answers)
        assert code == 0, screen.decode(errors="replace")
        assert node.address in (sparkctl.home / ".ssh/known_hosts").read_text()
        public = (sparkctl.home / ".ssh/id_ed25519.pub").read_text()
        assert node.sh("cat", f"/home/{USER}/.ssh/authorized_keys") == entries + public
        assert b"not confirmed: nothing was changed" in screen
        assert b"next: sparkctl up" in screen or b"no profile fits" in screen
        assert PASSWORD.encode() not in screen
        assert sparkctl("status", "--node", "spark2").code == 0
    finally:
        node.put(f"/home/{USER}/.ssh/authorized_keys", entries)


def read_ssh(node: LabNode) -> str:
    """Return every file below the user's ~/.ssh, with modes and times."""
    script = (
        f"cd /home/{USER}/.ssh && stat -c '%n %a %U %Y' . * | sed '1s/ [0-9]*$//' && for f in *; do sha256sum $f; done"
    )
    return node.sh("sh", "-c", script)


def test_ssh_between_the_sparks_where_a_profile_wants_it(clean_nodes: Lab, sparkctl: Sparkctl) -> None:
    nodes = list(clean_nodes.nodes.values())
    place = f"/home/{USER}/.ssh"
    kept = [node.sh("cat", f"{place}/authorized_keys") for node in nodes]
    nodes[0].put(f"{place}/authorized_keys", kept[0].rstrip("\n"))
    nodes[1].sh("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", f"{place}/id_rsa")
    for node in nodes:
        node.sh("chown", "-R", f"{USER}:", place)
    try:
        before = [read_ssh(node) for node in nodes]
        shown = sparkctl("setup", "--for", "trtllm-qwen3-235b", "--dry-run")
        assert (shown.code, "+(public part of the key to be made on spark1)" in shown.out) == (0, True), shown
        assert [read_ssh(node) for node in nodes] == before
        done = sparkctl("setup", "--for", "trtllm-qwen3-235b", "--yes")
        assert done.code == 0, done
        for node, peer in zip(nodes, reversed(nodes), strict=True):
            login = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no")
            said = node.sh("su", USER, "-c", " ".join((*login, peer.fabric_address, "id", "-un")))
            assert said.strip() == USER
        assert nodes[0].sh("stat", "-c", "%a %U", f"{place}/id_ed25519").strip() == f"600 {USER}"
        assert "PRIVATE" not in done.out + done.err + shown.out
        again = sparkctl("setup", "--for", "trtllm-qwen3-235b")
        assert (again.code, "nothing to do" in again.err) == (0, True), again
        own = f"{place}/known_hosts"
        nodes[0].sh("sh", "-c", f"echo '10.1.1.1 ssh-ed25519 AAAA' >>{own}")  # as ssh itself does
        undone = sparkctl("setup", "--undo", "--yes")
        assert undone.code == 0, undone
        assert nodes[0].sh("cat", own) == "10.1.1.1 ssh-ed25519 AAAA\n"
        nodes[0].sh("rm", own)
        assert [read_ssh(node) for node in nodes] == before
    finally:
        for node, text in zip(nodes, kept, strict=True):
            node.sh("sh", "-c", f"rm -f {place}/id_* {place}/known_hosts")
            node.put(f"{place}/authorized_keys", text)
            node.sh("chown", "-R", f"{USER}:", place)
