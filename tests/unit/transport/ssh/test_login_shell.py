"""A command arrives as it was, whatever login shell is handed the line, and one that was not run is found out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.errors import NodeStarved
from sparkctl.model.node import Node, NodeName
from sparkctl.transport.ssh import ssh_config
from sparkctl.transport.ssh.login_shell import BEGIN_MARK, CommandNotRun, build_remote_command
from sparkctl.transport.ssh.ssh_connection import SshConnection
from tests.unit.transport.ssh.ssh_servers import QUICK, Server, serve_ssh

SHELLS = (
    "sh", "dash", "bash", "rbash", "busybox sh", "zsh", "fish", "tcsh", "csh", "bsd-csh", "mksh", "ksh", "yash", "nu",
    "xonsh",
)  # fmt: skip
NASTY = (
    "", " ", "a b", "it's", "\\", "\\\\", "\\'", "'\\''", '"', "$HOME", "${x}", "`id`", "$(id)", "!x", "=ls", "~", "~root",
    "*", "?", "[a]", "{a,b}", "a;b", "a|b", "a&b", "a>b", "#x", "%self", "@x", "\n",
    "a\nb", "\t", "-n", "--", "é", "😀", "\x7f", "^a", "\udcff",
)  # fmt: skip
words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12) | st.sampled_from(
    NASTY
)
KEY = asyncssh.generate_private_key("ssh-ed25519")


def find_shell_argv(shell: str) -> list[str]:
    """The shell's words; skips where it is not here."""
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"{shell} is not installed")
    return shell.split()


def run_through_shell(shell: list[str], argv: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run it as sshd does: the line is the one argument of the login shell's -c."""
    line, script = build_remote_command(argv)
    return subprocess.run([*shell, "-c", line], input=script + stdin, capture_output=True, timeout=20)


def read_words_back(shell: list[str], argv: list[str]) -> list[str]:
    # NUL-ended words survive any content
    answer = run_through_shell(shell, ["printf", "%s\\0", *argv]).stdout.partition(BEGIN_MARK)[2]
    return answer.decode("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.mark.parametrize("shell", [*SHELLS, "elvish"])  # elvish makes every exit status but 0 a 2
def test_nasty_words_arrive_through_every_shell(shell: str) -> None:
    assert read_words_back(find_shell_argv(shell), list(NASTY)) == list(NASTY)


@pytest.mark.parametrize("shell", SHELLS)
def test_stdin_after_the_command_is_the_commands_to_the_byte(shell: str) -> None:
    done = run_through_shell(find_shell_argv(shell), ["sh", "-c", "cat\nexit 7"], b"echo smuggled\n\x00\xff")
    assert done.stdout.partition(BEGIN_MARK)[2] == b"echo smuggled\n\x00\xff"
    assert BEGIN_MARK in done.stderr
    assert done.returncode == 7


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=8))
def test_any_argv_arrives_unchanged(argv: list[str]) -> None:
    assert read_words_back(["sh"], argv) == argv


@given(st.lists(words, min_size=1, max_size=8))
def test_the_line_is_the_same_for_all_commands_and_needs_no_shell_to_be_clever(argv: list[str]) -> None:
    line, script = build_remote_command(argv)
    assert line.replace(f"bs={len(script)} ", "bs=N ") == build_remote_command(["true"])[0].replace(
        f"bs={len(build_remote_command(['true'])[1])} ", "bs=N "
    )
    assert not set(line) & set("\n\\!"), "what csh, fish and nushell read in single quotes, too"
    assert line.count("'") == 2


def test_what_a_startup_file_read_is_not_run_in_part() -> None:
    line, script = build_remote_command(["echo", "ran"])
    for eaten in (1, len(script) - 4, len(script)):
        stdin = (script + b"echo smuggled\n" * 30)[eaten:]
        done = subprocess.run(["sh", "-c", line], input=stdin, capture_output=True, timeout=20)
        assert (done.stdout, done.stderr) == (b"", b"")


def test_what_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        build_remote_command(["a\0b"])
    with pytest.raises(ValueError, match="at least one"):
        build_remote_command([])


@pytest.fixture
async def server(home: Path) -> AsyncIterator[Server]:
    """An SSH server whose key is known."""
    async with serve_ssh(KEY, KEY) as running:
        (home / "known_hosts").write_text(ssh_config.format_known_hosts_line("127.0.0.1", running.port, KEY) + "\n")
        yield running


@pytest.fixture
async def link(home: Path, server: Server) -> AsyncIterator[SshConnection]:
    """A connected link to it."""
    (home / "key").write_bytes(KEY.export_private_key())
    (home / "key").chmod(0o600)
    node = Node(
        name=NodeName("spark1"), host="127.0.0.1", user="milo", port=server.port, identity=str(home / "key"),
        known_hosts=str(home / "known_hosts"),
    )  # fmt: skip
    opened = SshConnection(node, limits=QUICK)
    await opened.connect()
    yield opened
    await opened.close()


@pytest.mark.parametrize("shell", SHELLS)
async def test_run_and_hold_through_every_shell(link: SshConnection, server: Server, shell: str) -> None:
    server.shell = [*find_shell_argv(shell), "-c"]
    done = await link.run(["printf", "%s|", *NASTY[:-1]], stdin=b"not read")
    assert done.stdout.decode() == "".join(f"{word}|" for word in NASTY[:-1])
    assert (await link.run(["sh", "-s", "--", "a b"], stdin=b'echo "$1"; exit 3\n')).stdout == b"a b\n"
    assert (await link.run(["no-such-command"])).status == 127
    process = await link.start_process(["sh", "-c", 'echo first\nwhile read -r line; do echo "got $line"\ndone'])
    assert await process.readline() == b"first\n"
    await process.write(b"it's $HOME\n")
    assert await process.readline() == b"got it's $HOME\n"
    await process.release()
    assert await process.readline() == b""


async def test_what_a_login_shell_prints_is_not_the_commands(link: SshConnection, server: Server) -> None:
    server.shell = ["sh", "-c", 'echo "@@ end"; echo {\\"probe\\":1}; echo noise >&2; eval "$1"', "login"]
    done = await link.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    process = await link.start_process(["echo", "out"])
    assert await process.readline() == b"out\n"


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (
            ["sh", "-c", "echo This account is currently not available.; exit 1"],
            "This account is currently not available.",
        ),
        (["sh", "-c", "echo 'rbash: sh: command not found' >&2; exit 127"], "rbash: sh: command not found"),
        (["sh", "-c", "echo welcome; echo no >&2"], "`welcome` and `no`"),
        (["true"], "nothing"),
    ],
)
async def test_a_login_that_runs_something_else_is_named(
    link: SshConnection, server: Server, login: list[str], words: str
) -> None:
    server.shell = login
    for attempt in (link.run(["true"]), (await link.start_process(["true"])).readline()):
        with pytest.raises(CommandNotRun, match="the login shell of milo on spark1 did not run our command") as caught:
            await attempt
        assert words in caught.value.message
        assert caught.value.exit_code == 3


async def test_a_login_that_only_repeats_what_it_is_sent_has_not_run_it(link: SshConnection, server: Server) -> None:
    server.shell = ["sh", "-c", "cat"]
    with pytest.raises(CommandNotRun):
        await link.run(["true"])


async def test_a_login_that_gets_nowhere_is_named(link: SshConnection, server: Server) -> None:
    link._limits = replace(QUICK, begin=0.5)
    server.shell = ["sh", "-c", "echo one moment; sleep 60"]
    for attempt in (link.run(["true"], timeout=0.5), (await link.start_process(["true"])).readline()):
        with pytest.raises(NodeStarved, match=r"did not get to our command within .* so far it answered `one moment`"):
            await attempt
    server.shell = ["sh", "-c"]
    assert (await link.run(["echo", "alive"])).stdout == b"alive\n"
