"""``sparkctl completion``: print the shell completion."""

from __future__ import annotations

import click


@click.command("completion", short_help="Print the shell completion for bash, zsh or fish.")
@click.argument("shell", required=False, type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> int:
    """Print the completion script. It completes verbs, options, nodes, profiles and instances, these as `status` last saw
    them.

    \b
    bash:  eval "$(sparkctl completion bash)"          in ~/.bashrc
    zsh:   eval "$(sparkctl completion zsh)"           in ~/.zshrc
    fish:  sparkctl completion fish > ~/.config/fish/completions/sparkctl.fish
    """
    if shell is None:
        raise click.UsageError("for which shell? bash, zsh or fish", ctx)
    from click.shell_completion import get_completion_class

    from sparkctl.cli import stdout
    from sparkctl.cli.main import sparkctl_command

    kind = get_completion_class(shell)
    assert kind is not None
    stdout.print_line(kind(sparkctl_command, {}, "sparkctl", "_SPARKCTL_COMPLETE").source())
    return 0
