"""``sparkctl check`` and ``say``: ask a running model whether its answers make sense, or to speak a text."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparkctl.cli import stdout, verb_runner
from sparkctl.cli.options import (
    complete_instances,
    create_context,
    json_option,
    node_option,
    select_configured_nodes,
)


@click.command("check", short_help="Ask a running model whether its answers make sense.")
@click.argument("instance", shell_complete=complete_instances)
@node_option(many=True)
@click.option("--basic", is_flag=True, help="Ask only what `up` asks: one question, and its context.")
@click.option("--strict", is_flag=True, help="Exit 5 if a check fails.")
@json_option
def check_command(instance: str, node: tuple[str, ...], basic: bool, strict: bool, as_json: bool) -> int:
    """Ask INSTANCE a question with a known answer, and check what comes: sense, the end at max_tokens, JSON mode, a tool
    call where it has a tool parser, a stream, its context, and whether its drafts are accepted.

    \b
    sparkctl check qwen36
    sparkctl check qwen36 --basic --strict && start-my-agents

    It changes nothing and takes about ten requests, one after the other. `up` asks the basic ones by itself once a model is
    ready (`start.check` in its profile). To check a profile's file: sparkctl profiles check.
    """
    from sparkctl.cli.event_printers import CheckPrinter, JsonPrinter
    from sparkctl.cli.verb_runner import run_verb
    from sparkctl.commands.ask_instance import CheckInstance, check_instance

    request = CheckInstance(instance=instance, nodes=select_configured_nodes(node), is_full=not basic, is_strict=strict)
    context = create_context(may_ask=not as_json)
    return run_verb(context, lambda ctx: check_instance(ctx, request), JsonPrinter() if as_json else CheckPrinter())


@click.command("say", short_help="Speak a text with a speech server, as a WAV file.")
@click.argument("text", nargs=-1, required=True)
@node_option(many=True)
@click.option(
    "--instance", metavar="INSTANCE", shell_complete=complete_instances,
    help="The speech server, where several run or its profile has no `probe: speech`.",
)  # fmt: skip
@click.option("--voice", metavar="NAME", help="The voice (default: the server's own).")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the sound to this file. Without it, it goes to stdout, which must not be a terminal.",
)  # fmt: skip
@click.pass_context
def say_command(
    ctx: click.Context, text: tuple[str, ...], node: tuple[str, ...], instance: str | None, voice: str | None,
    output: Path | None,
) -> int:  # fmt: skip
    """Speak TEXT with the speech server that runs on the nodes. The request goes over the SSH connection.

    \b
    sparkctl say "good evening" --node spark2 -o hello.wav
    sparkctl say "good evening" --node spark2 | aplay
    sparkctl say - --voice leo -o story.wav < story.txt

    Exit 5: it answered, and there is no sound in the answer. Exit 6: no speech server runs.
    """
    from sparkctl.cli import stderr
    from sparkctl.commands.ask_instance import speak_text
    from sparkctl.errors import InvalidInput
    from sparkctl.model.text.units import format_duration

    to_stdout = output is None or str(output) == "-"
    if to_stdout and stdout.is_terminal():
        raise click.UsageError("a terminal cannot show sound: -o FILE, or a pipe to a player (| aplay)", ctx)
    words = sys.stdin.read() if tuple(text) == ("-",) else " ".join(text)
    spoken = verb_runner.run_async(
        speak_text(create_context(), select_configured_nodes(node), words, instance=instance, voice=voice)
    )
    if to_stdout:
        stdout.write_bytes(spoken.body)
    else:
        assert output is not None
        try:
            output.write_bytes(spoken.body)
        except OSError as error:
            raise InvalidInput(f"{output}: cannot be written: {error.strerror}") from error
    clip = spoken.clip
    rate = f", {clip.seconds / spoken.took:.1f} s of sound per second of work" if spoken.took > 0.05 else ""
    where = "" if to_stdout else f"{output}: "
    stderr.print_message(
        f"{where}{clip.seconds:.1f} s of sound ({clip.form}) by {spoken.instance} on {spoken.node} in "
        f"{format_duration(spoken.took)}{rate}"
    )
    if clip.form != "wav":
        stderr.print_warning(spoken.node, f"{spoken.instance} gave {clip.form}, although WAV was asked for", None)
    return 0
