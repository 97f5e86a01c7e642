"""``sparkctl endpoints``: print the URLs of running models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli import verb_runner
from sparkctl.cli.options import create_context, json_document_option, node_option, select_configured_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.commands.list_endpoints import ServedEndpoint

_CLIENT_FORMATS = (
    "env", "claude-code", "continue", "litellm", "llama-swap", "open-webui", "openclaw", "opencode", "json",
)  # fmt: skip


@click.command("endpoints", short_help="Print the URLs of running models, ready for client configs.")
@node_option(many=True)
@click.option(
    "--as", "form", type=click.Choice(_CLIENT_FORMATS), default="env", show_default=True, help="The client's format."
)
@click.option("--with-key", is_flag=True, help="Also print the API keys that are known.")
@json_document_option
def endpoints_command(node: tuple[str, ...], form: str, with_key: bool, as_json: bool) -> int:
    """Print the base URL and model name of every OpenAI-compatible server on the nodes, also of servers that sparkctl did
    not start.

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
    from dataclasses import replace

    from sparkctl.cli import stderr, stdout
    from sparkctl.commands.list_endpoints import choose_default_endpoint, list_endpoints
    from sparkctl.errors import ExitCode
    from sparkctl.views.endpoint_config import api_key_variable, build_endpoints_json, format_endpoint_config

    as_json = as_json or form == "json"
    context = create_context(may_ask=not as_json)
    served, silent = verb_runner.run_async(list_endpoints(context, select_configured_nodes(node)))
    if not with_key:
        served = tuple(replace(one, key=None) for one in served)
    if as_json:
        stdout.print_json(build_endpoints_json(served))
    elif served:
        default = choose_default_endpoint(served, silent)
        stdout.print_sanitized_lines(format_endpoint_config(served, form, default))
        models = [one for one in served if one.service is None]
        if models and form in ("env", "openclaw", "claude-code"):
            _warn_of_default(models, default)
    for one in silent:
        stderr.print_warning(one.where, one.message, one.hint)
    for reached in served:
        if reached.needs_key and reached.key is None:
            stderr.print_warning(
                reached.node,
                f"{reached.instance} needs an API key: put it into {api_key_variable(reached)}",
                None if with_key else "sparkctl endpoints --with-key prints the keys that are known",
            )
    if not served and not silent:
        stderr.print_message("no model answers")
    return int(ExitCode.UNREACHABLE if any(one.is_node for one in silent) else ExitCode.DONE)


def _warn_of_default(served: Sequence[ServedEndpoint], default: ServedEndpoint | None) -> None:
    from sparkctl.cli import stderr

    if default is None:
        names = ", ".join(f"{one.instance} on {one.node}" for one in served)
        stderr.print_warning(
            None, f"no default endpoint is set: only engines that sparkctl did not start answer ({names})",
            "use the variables that begin with the name of one, or try again when every node answers",
        )  # fmt: skip
    elif not default.ours:
        stderr.print_warning(
            default.node, f"the default endpoint is {default.instance}, which sparkctl did not start", None
        )
