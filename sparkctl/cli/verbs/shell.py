"""``sparkctl shell``: a shell on a node, or in the container of an instance."""

from __future__ import annotations

import click

from sparkctl.cli.options import complete_instances, complete_nodes, node_option


def _complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [*complete_nodes(ctx, param, incomplete), *complete_instances(ctx, param, incomplete)]


@click.command("shell", short_help="Open a shell on a node, or in an instance's container.")
@click.argument("target", metavar="NODE|INSTANCE", shell_complete=_complete_targets)
@node_option(many=False)
def command(target: str, node: str | None) -> int:
    """Open a shell on a node, or in the container of an instance, with your own ssh. The exit code is that of the shell.

    \b
    sparkctl shell spark1
    sparkctl shell qwen36-vllm
    sparkctl shell minimax-m27 --node spark2      the rank on spark2

    For one command in place of a shell, see sparkctl exec.
    """
    import os

    from sparkctl.cli.instance_program import find_container, run_program
    from sparkctl.config import load_config
    from sparkctl.tui.global_actions import build_container_command, build_ssh_command

    here = next((one for one in load_config().nodes if one.name == target), None)
    if here is not None:
        return run_program(build_ssh_command(here, os.environ))
    where, container = find_container(target, node)
    return run_program(build_container_command(where, container))
