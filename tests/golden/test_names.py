"""Names that others rely on: config keys, keys of the panel, exit codes, labels, metrics, paths and variables."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparkctl
from sparkctl import errors
from sparkctl.cli.stdout import StdoutWriteFailed
from sparkctl.commands.actions import ACTIONS
from sparkctl.commands.bench.chat_stream import RequestRefused
from sparkctl.commands.bench.load_generator import CellFailed
from sparkctl.commands.drop_page_cache import MissingSudoRight
from sparkctl.commands.node_lock import LockConflict
from sparkctl.commands.setup.setup_nodes import CableRolledBack, SudoRefused
from sparkctl.commands.start.node_fit import InvalidMemoryFlag
from sparkctl.commands.start.rank_start import CreateTimeout
from sparkctl.commands.switch.forward_steps import MemoryNotReleased
from sparkctl.commands.switch.rollback import RollbackFailed
from sparkctl.commands.switch.switch_transaction import OwnershipLost
from sparkctl.commands.transfer.transfer_stream import RouteUnreachable
from sparkctl.config import NODE_FIELDS, load_config
from sparkctl.context import CommandInterrupted
from sparkctl.errors import InvalidInput, SparkctlError
from sparkctl.files import config_file, shipped_profiles_dir, state_dir, user_profiles_dir
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.monitor.recording import load_final_views, read_recording
from sparkctl.monitor.switch_journal_io import SwitchInProgress
from sparkctl.profiles.yaml_reader import InvalidFile
from sparkctl.transport.http_client import InvalidHttpResponse
from sparkctl.transport.hub_client import HubUnreachable
from sparkctl.transport.node_connection import OutputTooLong
from sparkctl.transport.ssh.login_shell import CommandNotRun
from sparkctl.views.prometheus_metrics import render_metrics
from tests.golden.comparison import assert_golden

# What can go wrong, in words that do not follow the names of classes.
ERRORS: dict[type[SparkctlError], str] = {
    errors.SparkctlError: "any failure",
    errors.InvalidInput: "a wrong file, flag or name",
    InvalidMemoryFlag: "a flag that decides about memory has an impossible value",
    InvalidFile: "a wrong file, every fault with its place",
    errors.OperationRefused: "refused after a look",
    CellFailed: "a cell of a benchmark has no figures",
    SudoRefused: "sudo refuses the set-up",
    CableRolledBack: "the cable was not set up and is as it was",
    errors.ServiceUnproved: "a service answers without what it is for",
    errors.ProtocolViolation: "a server breaks its protocol",
    errors.MetricsUnreadable: "metrics cannot be read",
    errors.NodeError: "a node cannot be used",
    errors.NodeUnreachable: "no connection",
    errors.NodeStarved: "SSH is silent",
    errors.LocalStall: "this machine was suspended",
    errors.ConnectionLost: "the connection broke",
    errors.AgentFailed: "the agent does not run",
    errors.GuardUnavailable: "no guard",
    errors.UnreadableAnswer: "an unreadable answer",
    errors.GuardNotResponding: "a silent guard",
    errors.HostKeyUntrusted: "host key not trusted",
    errors.UnknownHostKey: "host key unknown",
    errors.ChangedHostKey: "host key changed",
    errors.TransferTampered: "transfer changed on its way",
    errors.LoginRefused: "login refused",
    errors.DockerError: "Docker failed",
    errors.DockerPermissionDenied: "Docker: no permission",
    errors.DockerUnavailable: "Docker: not running",
    errors.DockerBusy: "Docker: not in time",
    errors.ContainerUnkillable: "Docker: container does not end",
    errors.ForwardingForbidden: "Docker: no forwarding",
    errors.ImageNotFound: "Docker: no such image",
    errors.ContainerNameInUse: "Docker: name in use",
    errors.PortInUse: "Docker: port in use",
    errors.GpuRuntimeMissing: "Docker: no GPU runtime",
    errors.DiskFull: "Docker: disk full",
    errors.LogUnreadable: "Docker: log cannot be read",
    errors.ContainerNotFound: "Docker: no such container",
    StdoutWriteFailed: "stdout cannot be written",
    CommandInterrupted: "interrupted",
    LockConflict: "the node is locked by another operator",
    OwnershipLost: "the node went to another operator in a switch",
    MemoryNotReleased: "no room after the stop in a switch",
    RollbackFailed: "the old one did not come back",
    SwitchInProgress: "a switch goes on, or was left",
    RouteUnreachable: "no way between two nodes",
    CreateTimeout: "creating takes too long",
    HubUnreachable: "the Hub does not answer",
    MissingSudoRight: "no right to drop caches",
    RequestRefused: "an engine that refuses a request",
    InvalidHttpResponse: "an HTTP answer that is none",
    OutputTooLong: "an answer that is too long",
    CommandNotRun: "the login shell ran no command",
}

CONFIG = {
    "name": "spark1", "host": "spark.local", "user": "milo", "port": 22, "identity": "~/.ssh/id", "jump": "gate",
    "memory_bandwidth_gb_s": 273, "models": "~/models", "fabric": "enp1s0f0np0", "known_hosts": "~/.ssh/known_hosts",
}  # fmt: skip
REQUIRED = ("name", "host")


def walk_errors(kind: type[SparkctlError]) -> Iterator[type[SparkctlError]]:
    """Yield a class of errors and those below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from walk_errors(below)


def test_exit_codes_are_unchanged() -> None:
    lines = [f"{int(kind.exit_code):>3}  {words}" for kind, words in ERRORS.items()]
    codes = ", ".join(str(int(code)) for code in sorted(errors.ExitCode))
    assert_golden("exit-codes.txt", "\n".join([codes, "", *sorted(lines)]))


def test_every_error_has_a_golden_exit_code() -> None:
    own = Path(sparkctl.__file__).parent
    tree = {kind for kind in walk_errors(SparkctlError) if own in Path(inspect.getfile(kind)).parents}
    missing = sorted(str(kind) for kind in tree - ERRORS.keys())
    assert not missing


def test_config_keys_are_unchanged(tmp_path: Path) -> None:
    """Every key of the config, and what is read of it."""
    path = tmp_path / "config.yaml"
    own = {"keys": {"up": "U", "log.find": ["f3", "f4"]}, "readonly": True, "theme": "nord"}
    path.write_text(json.dumps({"nodes": [CONFIG], **own, "bench": {"command": "uvx llama-benchy"}}))
    path.chmod(0o600)
    config = load_config(path)
    there = {"nodes": to_json_data(config.nodes), "keys": config.keys, "readonly": config.readonly}
    there |= {"theme": config.theme, "bench.command": config.bench_command}
    assert_golden("config.json", json.dumps(there, indent=1))
    assert set(CONFIG) == set(NODE_FIELDS)


@pytest.mark.parametrize("key", REQUIRED)
def test_required_config_keys_are_unchanged(key: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"nodes": [{name: value for name, value in CONFIG.items() if name in REQUIRED}]}))
    assert len(load_config(path).nodes) == 1
    path.write_text(json.dumps({"nodes": [{name: value for name, value in CONFIG.items() if name != key}]}))
    with pytest.raises(InvalidInput, match=key):
        load_config(path)


def test_keys_of_the_panel_are_unchanged() -> None:
    """Ids that a config may bind anew, and what they are bound to."""
    lines = []
    for one in ACTIONS:
        does = ["changes"] if one.changes else []
        where, keys = ",".join(sorted(one.on)) or "all", ",".join(one.keys) or "-"
        lines.append(" ".join((str(one.id), keys, f"verb={one.verb or '-'}", f"on={where}", *does)))
    assert_golden("keymap.txt", "\n".join(sorted(lines)))


def test_labels_are_unchanged() -> None:
    labels = {value for value in vars(ContainerLabel).values() if isinstance(value, str) and value.startswith("dev.")}
    assert_golden("labels.txt", "\n".join(sorted(labels)))


def test_metrics_are_unchanged() -> None:
    """Names, types and labels of Prometheus metrics, of two recordings together."""
    found: set[str] = set()
    for name in ("failure", "checkup"):
        views = load_final_views(
            read_recording(Path(__file__).parents[1] / f"tools/pictures/recordings/{name}.jsonl.gz"), ()
        )
        page = render_metrics(views, max(view.when for view in views))
        found |= {" ".join(line.split()[2:]) for line in page.splitlines() if line.startswith("# TYPE")}
        for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", page, re.MULTILINE):
            names = re.findall(r"(\w+)=", re.sub(r'"(?:\\.|[^"])*"', "", labels))
            found.add(f"{name}{{{','.join(names)}}}")
    assert_golden("metrics.txt", "\n".join(sorted(found)))


PLACE = re.compile(r"(?:[.$/~][\w$~{}.:/-]*|(?<![\w.-]))sparkctl[-./][a-z]\w*(?:\.(?:json|lock|sock))?")
VARIABLE = re.compile(r"\b_?(?:SPARKCTL|XDG|SIM)_[A-Z]+(?:_[A-Z]+)*\b")


def read_strings() -> Iterator[str]:
    """Yield the strings of the programs in which a name may be, without docstrings and comments."""
    for path in Path(sparkctl.__file__).parent.rglob("*"):
        if path.suffix not in (".py", ".sh"):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".sh":
            yield from (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        elif re.search(r"sparkctl[-/]|[-./]sparkctl|SPARKCTL_|XDG_|SIM_", text):
            tree = ast.parse(text)
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                    yield node.value


def test_names_on_machines_are_unchanged() -> None:
    """Paths, names of processes and environment variables, on the nodes and on this machine."""
    text = "\n".join(read_strings())
    paths = {one for one in PLACE.findall(text) if not one.startswith("sparkctl.") and "://" not in one}
    variables = set(VARIABLE.findall(text))
    assert_golden("machine-names.txt", "\n".join([*sorted(paths), "", *sorted(variables)]))


def test_places_of_files_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, own = tmp_path / "XDG_CONFIG_HOME", tmp_path / "SPARKCTL_STATE"
    assert (config_file(), state_dir()) == (home / "sparkctl/config.yaml", own)
    assert user_profiles_dir() == home / "sparkctl/profiles"
    monkeypatch.delenv("SPARKCTL_STATE")
    assert state_dir() == tmp_path / "XDG_STATE_HOME/sparkctl"
    monkeypatch.setenv("SPARKCTL_CONFIG", str(tmp_path / "other.yaml"))
    assert config_file() == tmp_path / "other.yaml"
    assert_golden(
        "shipped-profiles.txt", "\n".join(sorted(path.stem for path in shipped_profiles_dir().glob("*.yaml")))
    )
