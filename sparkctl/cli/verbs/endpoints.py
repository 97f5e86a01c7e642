"""``sparkctl endpoints``."""

from __future__ import annotations

import click

from sparkctl.cli import loop
from sparkctl.cli.setup import chosen_nodes, make_context, node_option

_FORMS = ("env", "litellm", "openclaw", "opencode", "json")


@click.command("endpoints", short_help="Print where running models are reached, as clients read it.")
@node_option(many=True)
@click.option("--as", "form", type=click.Choice(_FORMS), default="env", show_default=True, help="Whose form.")
@click.option("--json", "as_json", is_flag=True, help="The same as --as json.")
def command(node: tuple[str, ...], form: str, as_json: bool) -> int:
    """Print base URLs and model names of everything that answers OpenAI's requests on the nodes, others' engines too.

    \b
    eval "$(sparkctl endpoints)"                 OPENAI_BASE_URL, OPENAI_MODEL, OPENAI_API_KEY
    sparkctl endpoints --as litellm > config.yaml
    sparkctl endpoints --as openclaw             for ~/.openclaw/openclaw.json
    sparkctl endpoints --as opencode             for opencode.json

    A key is never printed: where a server wants one, the form names the variable of your environment to put it in.
    Exit 3 if a node could not be asked.
    """
    from sparkctl.cli import narrate, output
    from sparkctl.errors import ExitCode
    from sparkctl.operations.endpoints import endpoints
    from sparkctl.present.endpoint_forms import endpoint_document, endpoint_text, key_variable

    as_json = as_json or form == "json"
    context = make_context(may_ask=not as_json)
    served, silent = loop.run(endpoints(context, chosen_nodes(node)))
    if as_json:
        output.document(endpoint_document(served))
    elif served:
        output.remote(endpoint_text(served, form))
    for one in silent:
        narrate.warning(one.where, one.message, one.hint)
    for reached in served:
        if reached.needs_key:
            narrate.warning(reached.node, f"{reached.instance} wants a key: put it into {key_variable(reached)}", None)
    if not served and not silent:
        narrate.say("no model answers")
    return int(ExitCode.UNREACHABLE if any(one.is_node for one in silent) else ExitCode.DONE)
