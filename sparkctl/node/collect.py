"""Collect every raw reading of a Spark for `doctor --collect`. Sent like the agent, standard library only.

Started as ``python3 -ISu -c BOOT LENGTHS NVML_LENGTH [ROOT]``. Each line of its stdout is a JSON object: a piece of a
reading (``name``, ``text``), or its end (``name``, ``end``; ``why`` if it could not be read, ``cut`` if there was
more). It changes nothing. A command that does not end in time, and a driver that does not answer, are skipped and
reported.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import select
import signal
import subprocess
import time

from sparkctl.node.agent import load_module, read_nvml_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MAX_READING_BYTES = 256 * 1024  # bytes of one reading
MAX_PIECE_CHARS = 8000  # characters of a line: even escaped they fit into what a pipe's reader accepts
ANSWER_TIMEOUT_SECONDS = 10.0  # seconds for a command
LIFETIME_SECONDS = 100  # seconds after which the program ends itself, whatever it waits for
MAX_PATTERN_FILES = 400  # maximum files that one pattern may match


def split_words(text: str) -> list[str]:
    """Return the words of a table."""
    return text.split()


def expand_paths(folder: str, names: str) -> list[str]:
    """Return the paths of these names in a folder."""
    return [f"{folder}/{name}" for name in split_words(names)]


FILE_PATHS = split_words("""
/proc/meminfo /proc/vmstat /proc/buddyinfo /proc/pressure/memory /proc/pressure/cpu /proc/pressure/io /proc/loadavg
/proc/uptime /proc/version /proc/cmdline /proc/swaps /proc/mounts /proc/stat /proc/zoneinfo /proc/net/dev
/proc/sys/kernel/random/boot_id /proc/driver/nvidia/version /proc/driver/nvidia/params
/etc/os-release /etc/dgx-release /etc/default/earlyoom /etc/docker/daemon.json /etc/sysctl.conf
""")
FILE_PATTERNS = {
    "dmi": expand_paths("/sys/class/dmi/id", "product_name product_family board_name bios_version bios_date"),
    "sysctl": split_words(
        "/proc/sys/vm/* /proc/sys/kernel/numa_balancing /proc/sys/kernel/panic* /proc/sys/net/core/*mem*"
    ),
    "sysctl.d": ["/etc/sysctl.d/*.conf"],
    "thermal": expand_paths("/sys/class/thermal/thermal_zone*", "type temp")
    + expand_paths(
        "/sys/class/hwmon/hwmon*", "name temp*_label temp*_input temp*_crit power*_label power*_input fan*_input"
    ),
    "cpufreq": expand_paths(
        "/sys/devices/system/cpu/cpu*/cpufreq", "scaling_cur_freq cpuinfo_max_freq scaling_governor"
    ),
    "net": expand_paths("/sys/class/net/*", "carrier operstate speed mtu duplex")
    + expand_paths("/sys/class/net/*/statistics", "rx_bytes rx_packets rx_errors rx_dropped")
    + expand_paths("/sys/class/net/*/statistics", "tx_bytes tx_packets tx_errors tx_dropped"),
    # Listed one by one: some counters of the directories are slow to read.
    "rdma": expand_paths("/sys/class/infiniband/*", "fw_ver hca_type board_id")
    + expand_paths("/sys/class/infiniband/*/ports/*", "state phys_state rate link_layer")
    + expand_paths("/sys/class/infiniband/*/ports/*", "gids/[0-7] gid_attrs/types/[0-7] gid_attrs/ndevs/[0-7]")
    + expand_paths(
        "/sys/class/infiniband/*/ports/*/counters", "port_rcv_data port_xmit_data port_rcv_packets port_xmit_packets"
    )
    + expand_paths(
        "/sys/class/infiniband/*/ports/*/counters", "port_rcv_errors port_xmit_discards port_xmit_wait symbol_error"
    )
    + expand_paths("/sys/class/infiniband/*/ports/*/counters", "link_downed link_error_recovery")
    + expand_paths(
        "/sys/class/infiniband/*/ports/*/hw_counters", "out_of_sequence packet_seq_err local_ack_timeout_err"
    )
    + expand_paths("/sys/class/infiniband/*/ports/*/hw_counters", "rnr_nak_retry_err np_cnp_sent rp_cnp_handled"),
}
COMMANDS = {
    "uname": "uname -a",
    "df": "df -kP",
    "ip-addr": "ip -brief addr",
    "ip-route": "ip route",
    "processes": "ps -eo pid,ppid,user,stat,rss,pcpu,etimes,comm --sort=-rss",  # without arguments: they contain keys
    "packages": "dpkg-query -W *nvidia* *docker* *containerd* *earlyoom* linux-image-*",
    "services": "systemctl is-active docker containerd earlyoom nvidia-persistenced ssh",
    "dmesg": "dmesg",
    "journal": "journalctl -k -n 500 --no-pager -o short-iso",
    "nvidia-smi": "nvidia-smi",
    "nvidia-smi-q": "nvidia-smi -q",
    "ibdev2netdev": "ibdev2netdev",
}
TAIL_COMMANDS = ("dmesg", "journal")  # for these the end matters

SYSTEM_CALLS = [
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlDeviceGetCount",
]
DEVICE_CALLS = split_words("""
nvmlDeviceGetName nvmlDeviceGetArchitecture nvmlDeviceGetCudaComputeCapability nvmlDeviceGetVbiosVersion
nvmlDeviceGetNumGpuCores nvmlDeviceGetUtilizationRates nvmlDeviceGetMemoryInfo nvmlDeviceGetBAR1MemoryInfo
nvmlDeviceGetMemoryBusWidth nvmlDeviceGetAddressingMode nvmlDeviceGetPowerUsage nvmlDeviceGetPowerManagementLimit
nvmlDeviceGetPowerManagementDefaultLimit nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetTotalEnergyConsumption
nvmlDeviceGetPerformanceState nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetSupportedClocksEventReasons
nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetPersistenceMode
nvmlDeviceGetComputeMode nvmlDeviceGetEccMode nvmlDeviceGetMigMode nvmlDeviceGetFanSpeed
nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetEncoderUtilization
nvmlGpmQueryDeviceSupport
""")
DEVICE_CALL_ARGUMENTS = {
    "nvmlDeviceGetTemperature": (0,),
    "nvmlDeviceGetTemperatureThreshold": (0, 1, 2, 3),
    "nvmlDeviceGetClockInfo": (0, 1, 2, 3),
    "nvmlDeviceGetMaxClockInfo": (0, 1, 2, 3),
    "nvmlDeviceGetApplicationsClock": (0, 2),
    "nvmlDeviceGetProcessUtilization": (0,),
}
FIELD_IDS = (74, 185, 186, 269, 270, 271)


def write_line(name: str, **more: object) -> None:
    """Write one line."""
    line = json.dumps(dict(more, name=name), separators=(",", ":")).encode("ascii") + b"\n"
    while line:
        line = line[os.write(1, line) :]


def write_reading(name: str, text: bytes, why: str | None = None, cut: bool = False) -> None:
    """Write one reading completely."""
    words = text.decode("utf-8", "replace")
    for at in range(0, len(words), MAX_PIECE_CHARS):
        write_line(name, text=words[at : at + MAX_PIECE_CHARS])
    write_line(name, end=True, why=why, cut=cut)


def read_file(path: str) -> tuple[bytes, str | None, bool]:
    """Return a file's content up to the limit, why it could not be read, and whether there is more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return b"", error.strerror, False
    text = b""
    try:
        while len(text) <= MAX_READING_BYTES:
            more = os.read(fd, MAX_READING_BYTES + 1 - len(text))
            if not more:
                break
            text += more
    except OSError as error:
        return text, error.strerror, False
    finally:
        os.close(fd)
    return text[:MAX_READING_BYTES], None, len(text) > MAX_READING_BYTES


def read_files(root: str, patterns: Iterable[str]) -> Iterator[bytes]:
    """Yield a line for each file that matches: its path, and its content or why it cannot be read."""
    for pattern in patterns:
        for path in sorted(glob.glob(root + pattern))[:MAX_PATTERN_FILES]:  # noqa: PTH207  # pathlib is 3 MiB
            if not os.path.isdir(path):  # noqa: PTH112
                text, why, _ = read_file(path)
                content = b"(" + why.encode() + b")" if why else text[:4096].strip()
                yield path[len(root) :].encode("utf-8", "replace") + b": " + content.replace(b"\n", b"\n  ") + b"\n"


def run_command(words: list[str], latest: bool) -> tuple[bytes, str | None, bool]:
    """Return a command's output within its time limit, why it is incomplete, and whether there was more."""
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(os.environ, LC_ALL="C", PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"),
        )
    except OSError as error:
        return b"", error.strerror, False
    assert child.stdout is not None
    text, cut, until, fd = b"", False, time.monotonic() + ANSWER_TIMEOUT_SECONDS, child.stdout.fileno()
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            kill_command(child)
            return text, f"did not end within {ANSWER_TIMEOUT_SECONDS:.0f} s", cut
        more = os.read(fd, 65536)
        if not more:
            break
        text += more
        if len(text) > MAX_READING_BYTES:
            cut = True
            text = text[-MAX_READING_BYTES:] if latest else text[:MAX_READING_BYTES]
            if not latest:
                kill_command(child)
                return text, None, True
    try:
        status = child.wait(1)
    except subprocess.TimeoutExpired:
        kill_command(child)
        return text, "closed its output and did not end", cut
    return text, f"exit status {status}" if status else None, cut


def kill_command(child: subprocess.Popen[bytes]) -> None:
    """Kill a command and its children. One that waits for a driver cannot be killed, and is not waited for."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)


def summarize_cpus(root: str) -> bytes:
    """Return how many cores of each kind there are, and the first of each in full."""
    text, _, _ = read_file(root + "/proc/cpuinfo")
    kinds: dict[bytes, list[bytes]] = {}
    for core in text.split(b"\n\n"):
        if core.strip():
            kind = re.sub(
                rb"(?m)^(processor|core id|cpu MHz|apicid|initial apicid|physical id)\b.*\n?", b"", core + b"\n"
            )
            kinds.setdefault(kind, []).append(core)
    return b"".join(b"%d x\n%s\n\n" % (len(cores), cores[0]) for cores in kinds.values())


def collect_readings(root: str, nvml: bytes) -> None:
    """Write all readings, the quick ones first."""
    for path in FILE_PATHS:
        text, why, cut = read_file(root + path)
        write_reading(path[1:], text, why, cut)
    write_reading("proc/cpuinfo", summarize_cpus(root))
    for name, patterns in FILE_PATTERNS.items():
        text = b"".join(read_files(root, patterns))
        write_reading(
            name, text[:MAX_READING_BYTES], None if text else "there is no such file", len(text) > MAX_READING_BYTES
        )
    if root:
        return  # otherwise the rest would describe another machine
    for name, line in COMMANDS.items():
        text, why, cut = run_command(line.split(), name in TAIL_COMMANDS)
        write_reading("commands/" + name, text, why, cut)
    query_nvml(nvml)


# -- the driver, in a process of its own


def query_nvml(source: bytes) -> None:
    """Write what each NVML call answers, with its error code; if one hangs, it is in the last line."""
    answers, questions = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        try:
            for line in format_driver_answers(source):
                os.write(questions, line.encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(questions)
    text, why, until = b"", None, time.monotonic() + ANSWER_TIMEOUT_SECONDS
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([answers], [], [], left)[0]:
            why = f"no answer within {ANSWER_TIMEOUT_SECONDS:.0f} s"
            break
        more = os.read(answers, 65536)
        if not more or len(text) > MAX_READING_BYTES:
            break
        text += more
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)
    write_reading("nvml", text, why)


def format_driver_answers(source: bytes) -> Iterator[str]:
    """Yield each call, then its answer."""
    if not source:
        yield "no pynvml came along\n"
        return
    nvml = load_module("pynvml", source)
    yield from call_nvml(nvml, "nvmlInit")
    for name in SYSTEM_CALLS:
        yield from call_nvml(nvml, name)
    try:
        count = nvml.nvmlDeviceGetCount()
    except Exception:  # noqa: BLE001  # reported above, with its code
        return
    for index in range(min(count, 16)):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:  # noqa: BLE001  # whatever the library raises is what is asked for
            yield f"nvmlDeviceGetHandleByIndex({index}): {format_error(error)}\n"
            continue
        for name in DEVICE_CALLS:
            yield from call_nvml(nvml, name, handle, shown=f"gpu {index}")
        for name, arguments in DEVICE_CALL_ARGUMENTS.items():
            for one in arguments:
                yield from call_nvml(nvml, name, handle, one, shown=f"gpu {index}, {one}")
        yield from call_nvml(
            nvml, "nvmlDeviceGetFieldValues", handle, list(FIELD_IDS), shown=f"gpu {index}, {FIELD_IDS}"
        )


def call_nvml(nvml: Any, name: str, *arguments: Any, shown: str = "") -> Iterator[str]:
    """Yield the call, then what it returns or its error."""
    yield f"{name}({shown}): "
    try:
        yield format_value(getattr(nvml, name)(*arguments)) + "\n"
    except Exception as error:  # noqa: BLE001  # whatever the library raises is what is asked for
        yield format_error(error) + "\n"


def format_error(error: Exception) -> str:
    """Return an error with NVML's code where it has one."""
    code = getattr(error, "value", None)
    return f"error {code} ({error})" if isinstance(code, int) else f"{type(error).__name__}: {error}"


def format_value(value: Any, deep: int = 0) -> str:
    """Return an answer as text, structures with their fields."""
    if isinstance(value, (list, tuple)) or (hasattr(value, "_length_") and not isinstance(value, (bytes, str))):
        return "[{}]".format(", ".join(format_value(one, deep + 1) for one in list(value)[:64]))
    fields = getattr(value, "_fields_", None)
    if fields is None or deep > 4:
        return repr(value)
    return "{{{}}}".format(
        ", ".join(f"{field[0]}: {format_value(getattr(value, field[0]), deep + 1)}" for field in fields)
    )


def main(words: list[str]) -> None:
    """Run the program: LENGTH of pynvml on stdin, and the root of the node's /proc and /sys."""
    signal.alarm(LIFETIME_SECONDS)
    nvml = read_nvml_source(int(words[0]))
    collect_readings(words[1] if len(words) > 1 else "", nvml)
    write_line("end", end=True)
