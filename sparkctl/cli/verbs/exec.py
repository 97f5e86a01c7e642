"""``sparkctl exec``: run a command in the container of an instance."""

from __future__ import annotations

import click

from sparkctl.cli.options import complete_instances, node_option


@click.command(
    "exec", short_help="Run a command in an instance's container.", context_settings={"allow_interspersed_args": False}
)
@node_option(many=False)
@click.argument("instance", shell_complete=complete_instances)
@click.argument("words", nargs=-1, required=True, metavar="[--] COMMAND [ARGS]...", type=click.UNPROCESSED)
def command(node: str | None, instance: str, words: tuple[str, ...]) -> int:
    """Run COMMAND in the container of INSTANCE, with your own ssh. Input, output and exit code are those of the command.

    \b
    sparkctl exec qwen36-vllm -- nvidia-smi
    sparkctl exec qwen36-vllm -- pip list | grep torch
    sparkctl exec --node spark2 minimax-m27 -- env      the rank on spark2
    """
    import sys

    from sparkctl.cli.instance_program import find_container, run_program
    from sparkctl.tui.global_actions import build_container_command

    words = words[1:] if words[0] == "--" else words
    if not words:
        raise click.UsageError("name the command after --", click.get_current_context())
    where, container = find_container(instance, node)
    return run_program(
        build_container_command(where, container, words, is_terminal=sys.stdin.isatty() and sys.stdout.isatty())
    )
