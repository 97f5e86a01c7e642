"""``sparkctl endpoints``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparkctl.cli import loop
from sparkctl.cli.setup import chosen_nodes, make_context, node_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkctl.model.endpoint import Served

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

    OPENAI_BASE_URL is the first engine that sparkctl started. Somebody else's is that only where none of yours is there.
    A key is never printed: where a server wants one, the form names the variable of your environment to put it in.
    Exit 3 if a node could not be asked.
    """
    from sparkctl.cli import narrate, output
    from sparkctl.errors import ExitCode
    from sparkctl.operations.endpoints import default_endpoint, endpoints
    from sparkctl.present.endpoint_forms import endpoint_document, endpoint_text, key_variable

    as_json = as_json or form == "json"
    context = make_context(may_ask=not as_json)
    served, silent = loop.run(endpoints(context, chosen_nodes(node)))
    if as_json:
        output.document(endpoint_document(served))
    elif served:
        default = default_endpoint(served, silent)
        output.remote(endpoint_text(served, form, default))
        if form in ("env", "openclaw"):
            _warn_of_default(served, default)
    for one in silent:
        narrate.warning(one.where, one.message, one.hint)
    for reached in served:
        if reached.needs_key:
            narrate.warning(reached.node, f"{reached.instance} wants a key: put it into {key_variable(reached)}", None)
    if not served and not silent:
        narrate.say("no model answers")
    return int(ExitCode.UNREACHABLE if any(one.is_node for one in silent) else ExitCode.DONE)


def _warn_of_default(served: Sequence[Served], default: Served | None) -> None:
    from sparkctl.cli import narrate

    if default is None:
        names = ", ".join(f"{one.instance} on {one.node}" for one in served)
        narrate.warning(
            None, f"no default endpoint is set: only engines that sparkctl did not start answer ({names})",
            "use the variables that begin with its name, or try again when every node answers",
        )  # fmt: skip
    elif not default.ours:
        narrate.warning(default.node, f"the default endpoint is {default.instance}, which sparkctl did not start", None)
