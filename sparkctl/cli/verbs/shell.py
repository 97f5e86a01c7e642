"""Using what runs: ``shell``, ``exec``, ``tunnel`` and ``endpoints`` lead there, ``check`` and ``say`` send requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout, verb_runner
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    WholeNumber,
    accept_silently,
    complete_instances,
    complete_nodes,
    create_context,
    is_profile,
    json_document_option,
    json_option,
    node_option,
    select_configured_nodes,
)
from sparkctl.errors import ExitCode, InvalidInput
from sparkctl.model.node import Node

if TYPE_CHECKING:
    from sparkctl.commands.list_endpoints import ServedEndpoint


def _complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [*complete_nodes(ctx, param, incomplete), *complete_instances(ctx, param, incomplete)]


@click.command(
    "shell",
    short_help="Open a shell on a node, or in an instance's container.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("target", metavar="NODE|INSTANCE", shell_complete=_complete_targets)
@click.argument("words", nargs=-1, metavar="[--] [COMMAND]...", type=click.UNPROCESSED)
@node_option(many=False)
def shell_command(target: str, words: tuple[str, ...], node: str | None) -> int:
    """Open a shell on a node, or in the container of an instance, with your own ssh; or run COMMAND there, as ssh does. The
    exit code is that of the shell or the command.

    \b
    sparkctl shell spark1
    sparkctl shell spark1 docker ps
    sparkctl shell qwen36-vllm
    sparkctl shell minimax-m27 --node spark2      the rank on spark2

    `sparkctl exec` runs a command in a container.
    """
    from sparkctl.config import load_config
    from sparkctl.transport.node_connection import build_container_command, build_ssh_command

    known = load_config().nodes
    here = next((one for one in known if one.name == target), None)
    if here is not None:
        if not words:
            _refuse_in_demo(f"sparkctl status {target}", f"sparkctl top {target}")
        return run_program(build_ssh_command(here, os.environ, words))
    where, container = find_container(target, node, [one.name for one in known])
    _refuse_in_demo(f"sparkctl status {target}", f"sparkctl logs {target}")
    return (
        _run_in_container(where, container, words) if words else run_program(build_container_command(where, container))
    )


@click.command(
    "tunnel", cls=RequestCommand, short_help="Bring an instance's endpoint to localhost, over the SSH connection."
)
@click.argument("instance", shell_complete=complete_instances)
@click.option(
    "--port",
    type=WholeNumber(1, 65535),
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
    Spark's loopback alone, and no port is opened in a firewall. If the connection breaks, it comes back by itself and says so.
    """
    from sparkctl.commands.tunnel import OpenTunnel

    request = OpenTunnel(instance=instance, nodes=select_configured_nodes(node), names_nodes=bool(node), port=port)
    return PreparedVerb(request=request)


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
    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        example = f"sparkctl exec {instance} -- nvidia-smi; a shell: sparkctl shell {instance}"
        raise click.UsageError(f"name the command, as in {example}", click.get_current_context())
    where, container = find_container(instance, node)
    _refuse_in_demo(f"sparkctl status {instance}", f"sparkctl logs {instance}")
    return _run_in_container(where, container, words)


def _refuse_in_demo(*ways: str) -> None:
    """Raise `InvalidInput` where the Sparks are those of the demo."""
    from sparkctl.files import is_demo

    if is_demo():
        raise InvalidInput(
            "the demo's Sparks are simulated: there is no shell on them, nor in their containers", "\n".join(ways)
        )


def _run_in_container(node: Node, container: str, words: Sequence[str]) -> int:
    from sparkctl.transport.node_connection import build_container_command

    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return run_program(build_container_command(node, container, words, is_terminal=is_terminal))


def find_container(instance: str, node: str | None, known: Sequence[str] = ()) -> tuple[Node, str]:
    """Return node and container of a running instance; of ranks the head's, unless ``node`` names one. ``known``: further nodes."""
    from sparkctl.monitor.node_status import read_node_statuses
    from sparkctl.monitor.node_views import choose_instance

    nodes = select_configured_nodes([node] if node else ())
    found = choose_instance(verb_runner.run_async(read_node_statuses(create_context(), nodes)), instance, known)
    return next(one for one in nodes if one.name == found.node), found.container


def run_program(words: Sequence[str]) -> int:
    """Run a program in this terminal and return its exit status, by the rule of shells; Ctrl-C is its own."""
    from sparkctl.transport.node_connection import suggest_install

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = subprocess.run(words, check=False, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    except FileNotFoundError as missing:
        raise InvalidInput(f"{words[0]} is not installed on this machine", suggest_install(words[0])) from missing
    finally:
        signal.signal(signal.SIGINT, before)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


_CLIENT_FORMATS = (
    "env", "claude-code", "continue", "litellm", "llama-swap", "open-webui", "openclaw", "opencode", "json",
)  # fmt: skip


@click.command("endpoints", short_help="Print the URLs of running models, ready for client configs.")
@click.argument("instance", required=False, shell_complete=complete_instances)
@node_option(many=True)
@click.option(
    "--as", "form", type=click.Choice(_CLIENT_FORMATS), default="env", show_default=True, help="The client's format."
)
@click.option("--with-key", is_flag=True, help="Also print the API keys that are known.")
@json_document_option
def endpoints_command(instance: str | None, node: tuple[str, ...], form: str, with_key: bool, as_json: bool) -> int:
    """Print the base URL and model name of every OpenAI-compatible server on the nodes, also of servers that sparkctl did
    not start; with INSTANCE only of that one.

    \b
    eval "$(sparkctl endpoints)"                 OPENAI_BASE_URL, OPENAI_MODEL, OPENAI_API_KEY
    sparkctl endpoints --as litellm > config.yaml
    sparkctl endpoints --as openclaw             for ~/.openclaw/openclaw.json
    sparkctl endpoints --as opencode             for opencode.json
    sparkctl endpoints --as claude-code          for .claude/settings.json; the server needs /v1/messages
    sparkctl endpoints --as continue             for ~/.continue/config.yaml
    sparkctl endpoints --as open-webui           an env file for docker run
    sparkctl endpoints --as llama-swap           starts and stops these models on request

    OPENAI_BASE_URL is the first engine that sparkctl started; another server is used only if there is none.
    Keys are printed only with --with-key; otherwise, if a server needs one, the output names the environment variable to
    put it in.
    Exit 3 if a node could not be read.
    """
    from sparkctl.commands.list_endpoints import choose_default_endpoint, list_endpoints
    from sparkctl.views.endpoint_config import (
        api_key_variable,
        build_endpoints_json,
        caution_local_names,
        format_endpoint_config,
    )
    from sparkctl.views.text.styled_text import TextStyle, sanitize_span

    as_json = as_json or form == "json"
    context = create_context(may_ask=not as_json)
    served, silent = verb_runner.run_async(list_endpoints(context, select_configured_nodes(node)))
    if instance is not None:
        served = tuple(one for one in served if one.instance == instance)
        if not served and not silent:
            what = (
                f"{instance} does not run, or does not answer"
                if is_profile(instance)
                else f"nothing that runs is called {instance}"
            )
            raise InvalidInput(what, "see what runs: sparkctl status")
    if not with_key:
        served = tuple(replace(one, key=None) for one in served)
    if as_json:
        stdout.print_json(build_endpoints_json(served))
    elif served:
        default = choose_default_endpoint(served, silent)
        lines = format_endpoint_config(served, form, default)
        if stdout.is_terminal():
            stdout.print_rows(
                (sanitize_span(line, TextStyle.LABEL if line.startswith("#") else TextStyle.PLAIN),) for line in lines
            )
        else:  # a shell or a file takes it: no colour there, whatever CLICOLOR_FORCE says
            stdout.print_sanitized_lines(lines)
        models = [one for one in served if one.is_model]
        if models and form in ("env", "openclaw", "claude-code"):
            _warn_of_default(models, default)
        if not models and form not in ("env", "open-webui", "llama-swap"):
            stderr.print_message("no language model answers: nothing in this is for a client")
        for one in served:
            if one.started_for is not None:
                stderr.print_message(f"{one.instance} on {one.node} is left out: it runs for {one.started_for}")
        if caution := caution_local_names(served):
            stderr.print_message(caution)
    for failure in silent:
        stderr.print_warning(failure.where, failure.message, failure.hint)
    for reached in served:
        if reached.needs_key and reached.key is None and (as_json or reached.started_for is None):
            stderr.print_warning(
                reached.node,
                f"{reached.instance} needs an API key: put it into {api_key_variable(reached)}",
                None if with_key else "sparkctl endpoints --with-key prints the keys that are known",
            )
    if not served and not silent:
        stderr.print_message("no model answers")
    return int(ExitCode.UNREACHABLE if any(one.is_node for one in silent) else ExitCode.DONE)


def _warn_of_default(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> None:
    if default is None:
        names = ", ".join(f"{one.instance} on {one.node}" for one in served)
        stderr.print_warning(
            None,
            f"no default endpoint is set: only engines that sparkctl did not start answer ({names})",
            "use the variables that begin with the name of one, or try again when every node answers",
        )
    elif not default.ours:
        stderr.print_warning(
            default.node, f"the default endpoint is {default.instance}, which sparkctl did not start", None
        )


@click.command("check", cls=RequestCommand, short_help="Ask a running model whether its answers make sense.")
@click.argument("instance", shell_complete=complete_instances)
@node_option(many=True)
@click.option("--basic", is_flag=True, help="Ask only what `up` asks: one question, and its context.")
@click.option("--strict", is_flag=True, help="Exit 5 if a check fails.")
@json_option
def check_command(instance: str, node: tuple[str, ...], basic: bool, strict: bool, as_json: bool) -> PreparedVerb:
    """Ask INSTANCE a question with a known answer, and check the reply: that it makes sense and stops at max_tokens; that JSON
    mode, tool calls (if it has a tool parser), streaming and its full context work; and that its drafts are accepted.

    \b
    sparkctl check qwen36
    sparkctl check qwen36 --basic --strict && start-my-agents

    It changes nothing and takes about ten requests, one after the other. `up` makes the basic ones once a model is
    ready (`start.check` in its profile). To check a profile's file: sparkctl profiles check.
    """
    from functools import partial

    from sparkctl.cli.event_printers import CheckPrinter
    from sparkctl.commands.ask_instance import CheckInstance, check_instance

    request = CheckInstance(instance=instance, nodes=select_configured_nodes(node), is_full=not basic, is_strict=strict)
    return PreparedVerb(request=lambda ctx: check_instance(ctx, request), printer=partial(CheckPrinter, instance))


@click.command("say", short_help="Speak a text with a speech server, as a WAV file.")
@click.argument("text", nargs=-1, required=True)
@node_option(many=True)
@click.option(
    "--instance",
    metavar="INSTANCE",
    shell_complete=complete_instances,
    help="The speech server, where several run or its profile has no `probe: speech`.",
)
@click.option("--voice", metavar="NAME", help="The voice (default: the server's own).")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the sound to this file. Without it, it goes to stdout, which must not be a terminal.",
)
@click.pass_context
def say_command(
    ctx: click.Context,
    text: tuple[str, ...],
    node: tuple[str, ...],
    instance: str | None,
    voice: str | None,
    output: Path | None,
) -> int:
    """Speak TEXT with the speech server that runs on the nodes. The request goes over the SSH connection.

    \b
    sparkctl say "good evening" --node spark2 -o hello.wav
    sparkctl say "good evening" --node spark2 | aplay
    sparkctl say - --voice leo -o story.wav < story.txt

    Exit 5: it answered, but the answer has no sound. Exit 6: no speech server runs.
    """
    from sparkctl.commands.ask_instance import speak_text
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
