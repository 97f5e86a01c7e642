"""``sparkctl shell``, ``exec`` and ``tunnel``: the way into a node, into a container, and to an instance's endpoint."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

import click

from sparkctl.cli import verb_runner
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    accept_silently,
    complete_instances,
    complete_nodes,
    create_context,
    json_option,
    node_option,
    select_configured_nodes,
)
from sparkctl.errors import InvalidInput
from sparkctl.model.node import Node


def _complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [*complete_nodes(ctx, param, incomplete), *complete_instances(ctx, param, incomplete)]


@click.command("shell", short_help="Open a shell on a node, or in an instance's container.")
@click.argument("target", metavar="NODE|INSTANCE", shell_complete=_complete_targets)
@node_option(many=False)
def shell_command(target: str, node: str | None) -> int:
    """Open a shell on a node, or in the container of an instance, with your own ssh. The exit code is that of the shell.

    \b
    sparkctl shell spark1
    sparkctl shell qwen36-vllm
    sparkctl shell minimax-m27 --node spark2      the rank on spark2

    For one command in place of a shell, see sparkctl exec.
    """
    import os

    from sparkctl.config import load_config
    from sparkctl.tui.global_actions import build_container_command, build_ssh_command

    known = load_config().nodes
    here = next((one for one in known if one.name == target), None)
    if here is not None:
        return run_program(build_ssh_command(here, os.environ))
    where, container = find_container(target, node, [one.name for one in known])
    return run_program(build_container_command(where, container))


@click.command(
    "tunnel", cls=RequestCommand, short_help="Bring an instance's endpoint to localhost, over the SSH connection."
)
@click.argument("instance", shell_complete=complete_instances)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The port on this machine (default: the engine's, or a free one).",
)
@node_option(many=True)
@json_option
def tunnel_command(instance: str, port: int | None, node: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Make the endpoint of INSTANCE reachable at 127.0.0.1 of this machine, and nowhere else, until Ctrl-C.

    \b
    sparkctl tunnel qwen36
    sparkctl tunnel qwen36 --port 9000 &
    curl http://127.0.0.1:9000/v1/models

    The address is printed on stdout when the tunnel is open. It goes over the SSH connection: the engine may listen on the
    Spark's loopback alone, and no port is opened in a firewall. After a cut it comes back by itself, and says so.
    """
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.commands.tunnel import OpenTunnel

    request = OpenTunnel(instance=instance, nodes=select_configured_nodes(node), names_nodes=bool(node), port=port)
    return PreparedVerb(request=request, printer=lambda: TextPrinter("closing the tunnel ..."))


@click.command(
    "exec", short_help="Run a command in an instance's container.", context_settings={"allow_interspersed_args": False}
)
@node_option(many=False)
@accept_silently("-i", "--interactive")
@accept_silently("-t", "--tty")
@click.argument("instance", shell_complete=complete_instances)
@click.argument("words", nargs=-1, metavar="[--] COMMAND [ARGS]...", type=click.UNPROCESSED)
def exec_command(node: str | None, instance: str, words: tuple[str, ...]) -> int:
    """Run COMMAND in the container of INSTANCE, with your own ssh. Input, output and exit code are those of the command.

    \b
    sparkctl exec qwen36-vllm -- nvidia-smi
    sparkctl exec qwen36-vllm -- pip list | grep torch
    sparkctl exec --node spark2 minimax-m27 -- env      the rank on spark2
    """
    import sys

    from sparkctl.tui.global_actions import build_container_command

    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        example = f"sparkctl exec {instance} -- nvidia-smi; a shell: sparkctl shell {instance}"
        raise click.UsageError(f"name the command, as in {example}", click.get_current_context())
    where, container = find_container(instance, node)
    return run_program(
        build_container_command(where, container, words, is_terminal=sys.stdin.isatty() and sys.stdout.isatty())
    )


def find_container(instance: str, node: str | None, known: Sequence[str] = ()) -> tuple[Node, str]:
    """Return the node and the container of a running instance; of several ranks that of the head, unless ``node`` names one.

    ``known``: the nodes that the word could name, too.
    """
    from sparkctl.monitor.node_status import read_node_statuses
    from sparkctl.monitor.node_views import choose_instance

    nodes = select_configured_nodes([node] if node else ())
    found = choose_instance(verb_runner.run_async(read_node_statuses(create_context(), nodes)), instance, known)
    return next(one for one in nodes if one.name == found.node), found.container


def run_program(words: Sequence[str]) -> int:
    """Run a program in this terminal and return its exit status, by the rule of shells; Ctrl-C is its own."""
    from sparkctl.tui.global_actions import suggest_install

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = subprocess.run(words, check=False, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    except FileNotFoundError as missing:
        raise InvalidInput(f"{words[0]} is not installed on this machine", suggest_install(words[0])) from missing
    finally:
        signal.signal(signal.SIGINT, before)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
