"""The config: read with every fault, written in one step, and the ways ``--node`` names a Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl import files
from sparkctl.config import Config, find_node, get_only_node, list_ssh_aliases, load_config, render_config, write_config
from sparkctl.errors import ExitCode, InvalidInput
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.yaml_reader import InvalidFile, parse_yaml


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def make_node(name: str, host: str = "h.local") -> Node:
    return Node(name=NodeName(name), host=host)


def test_a_config_with_every_field_of_a_node(config_file: Path) -> None:
    config_file.write_text(
        "nodes:\n"
        "  - {name: spark1, host: spark-2a60.local, user: milo, port: 22, identity: ~/.ssh/id_ed25519, jump: null}\n"
        "  - name: spark2\n    host: local\n    memory_bandwidth_gb_s: 273\n    models: ~/models\n    fabric: enp1s0f0np0\n"
    )
    config = load_config(config_file)
    assert config.path == config_file
    assert config.nodes[0] == Node(
        name=NodeName("spark1"), host="spark-2a60.local", user="milo", port=22, identity="~/.ssh/id_ed25519"
    )
    assert config.nodes[1].is_local
    assert config.nodes[1].fabric == "enp1s0f0np0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2]\n", ["1:1: the config is a map"]),
        ("node: []\n", ["1:1: unknown key `node`; did you mean `nodes`?"]),
        ("theme: Nord Night\n", ["1:8: theme: must be a name as spark-light, not `Nord Night`"]),
        ("bench: uvx\n", ["1:8: bench: must be a map with `command`, not `uvx`"]),
        ("bench: {comand: uvx}\n", ["1:9: unknown key `comand` in bench; did you mean `command`?"]),
        ("bench: {command: 'a \"b'}\n", ["1:18: bench.command: must be the command"]),
        ("nodes: spark1\n", ["1:8: nodes: must be a list of nodes, not `spark1`"]),
        ("nodes: [spark1]\n", ["1:9: nodes[0]: must be a map"]),
        ("nodes:\n  - {hots: b}\n", ["2:5: nodes[0]: `name` is missing", "2:5: nodes[0]: `host`", "2:6: unknown key `hots`"]),
        ("nodes:\n  - {name: a, host: b, port: eighty}\n", ["2:30: port: must be a whole number, not `eighty`"]),
        ("nodes:\n  - {name: a, host: b, port: 0}\n", ["2:30: port: 0 is not a port"]),
        ("nodes:\n  - {name: a, host: b, port: true}\n", ["2:30: port: must be a whole number"]),
        ("nodes:\n  - {name: a b, host: -oProxyCommand=x}\n", ["2:12: name: `a b` is not a name", "2:23: host: "]),
        ("nodes:\n  - {name: a, host: [b]}\n", ["2:21: host: must be a host name"]),
        ("nodes:\n  - {name: a, host: b, memory_bandwidth_gb_s: fast}\n", ["2:47: memory_bandwidth_gb_s: must be a number"]),
        (
            "nodes:\n  - {name: a, host: b}\n  - {name: a, host: c}\n",
            ["3:12: name: `a` is taken by the node in line 2"],
        ),
    ],
)  # fmt: skip
def test_every_fault_at_once_and_in_its_place(config_file: Path, text: str, expected: list[str]) -> None:
    config_file.write_text(text)
    with pytest.raises(InvalidFile) as caught:
        load_config(config_file)
    lines = caught.value.message.splitlines()
    assert len(lines) == len(expected), lines
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(f"{config_file}:{beginning}")
    assert caught.value.exit_code is ExitCode.USAGE


def test_no_config_points_to_init(config_file: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_config(config_file)
    assert caught.value.hint == "sparkctl init"
    assert load_config(config_file, required=False) == Config(nodes=())


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_config_points_to_init_too(config_file: Path, text: str) -> None:
    config_file.write_text(text)
    with pytest.raises(InvalidFile, match="the file is empty") as caught:
        load_config(config_file)
    assert caught.value.hint == "sparkctl init --replace"


def test_a_config_that_others_can_write_is_a_warning(config_file: Path) -> None:
    config_file.write_text("nodes: []\n")
    config_file.chmod(0o666)
    assert "chmod go-w" in load_config(config_file).warnings[0]
    config_file.chmod(0o644)
    assert load_config(config_file).warnings == ()


def test_nodes_are_found_by_name_address_and_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Include sync/*.conf\nHost big *.lab !not\n  HostName 10.0.0.9\n")
    (tmp_path / ".ssh" / "sync").mkdir()
    (tmp_path / ".ssh" / "sync" / "a.conf").write_text('host = "spark-sync"\n')
    config = Config(nodes=(make_node("spark1"), make_node("spark2")))
    assert list_ssh_aliases() == ("spark-sync", "big")
    assert find_node(config, "spark2") == config.nodes[1]
    assert find_node(config, "big") == make_node("big", "big")
    assert find_node(config, "spark-sync").host == "spark-sync"
    assert find_node(config, "local").is_local
    ad_hoc = find_node(config, "milo@[fe80::1]:2222")
    assert (ad_hoc.user, ad_hoc.host, ad_hoc.port) == ("milo", "fe80::1", 2222)
    with pytest.raises(InvalidInput, match=r"spark1, spark2.*did you mean `spark1`"):
        find_node(config, "sparc1")


@pytest.mark.parametrize("text", ["@h", "a@", "a@-h", "-a@h", "a@h:0", "a@h:99999", "a@h:x", "a b@h", "a@h@i"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        find_node(Config(nodes=()), text)


def test_node_may_be_omitted_only_with_one_node() -> None:
    assert get_only_node(Config(nodes=(make_node("a1"),))).name == "a1"
    with pytest.raises(InvalidInput) as caught:
        get_only_node(Config(nodes=(make_node("a1"), make_node("b1"))))
    assert caught.value.hint == "--node a1\n--node b1"
    with pytest.raises(InvalidInput, match="no node is configured"):
        get_only_node(Config(nodes=()))


def test_a_config_is_written_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.yaml"
    write_config([make_node("a1")], path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="it is unchanged"):
        write_config([make_node("b1")], path)
    assert load_config(path).nodes == (make_node("a1"),)
    write_config([make_node("b1")], path, replace=True)
    assert load_config(path).nodes == (make_node("b1"),)
    assert list(path.parent.iterdir()) == [path]


def test_a_config_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_config([], tmp_path / "file" / "config.yaml")


@settings(max_examples=100, deadline=None)
@given(
    identity=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip),
    port=st.integers(1, 65535),
)
def test_a_written_config_reads_back_the_same(identity: str, port: int) -> None:
    text = render_config([Node(name=NodeName("a1"), host="h", port=port, identity=identity)])
    assert parse_yaml(text.encode(), "f").to_plain_data()["nodes"][0]["identity"] == identity
    assert text == render_config([Node(name=NodeName("a1"), host="h", port=port, identity=identity)])


def test_directories_follow_xdg_and_our_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARKCTL_CONFIG", "SPARKCTL_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert files.config_file() == tmp_path / "c" / "sparkctl" / "config.yaml"
    assert files.user_profiles_dir() == tmp_path / "c" / "sparkctl" / "profiles"
    assert files.state_dir() == tmp_path / "s" / "sparkctl"
    monkeypatch.setenv("SPARKCTL_CONFIG", str(tmp_path / "mine.yaml"))
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))
    assert files.config_file() == tmp_path / "mine.yaml"
    assert files.state_dir() == tmp_path / "state"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert files.config_dir().is_absolute()
