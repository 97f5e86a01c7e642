"""``sparkctl plan``."""

from __future__ import annotations

import os

import click

from sparkctl.cli.options import (
    complete_profiles,
    create_context,
    json_document_option,
    node_option,
    select_configured_nodes,
    select_rank_nodes,
)


@click.command("plan", short_help="Say whether a profile fits on a node, with the sum written out.")
@click.argument("profile", shell_complete=complete_profiles)
@node_option(many=True)
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field of the profile for this sum."
)
@json_document_option
def command(profile: str, node: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> int:
    """Say whether PROFILE will start on a node, before it starts. Nothing is changed.

    \b
    sparkctl plan qwen36 --node spark1
    sparkctl plan qwen36 --node spark1 --set args.mem-fraction-static=0.9
    sparkctl plan qwen36 -n spark1 --json && sparkctl up qwen36 -n spark1

    What the profile claims, by the rule of its engine's version, against what the node has now. The files of the model are
    measured on the node. Without --node every node is asked, and one that fits is enough; a model over two Sparks needs
    both, with a way to each other, and is given as for `up`.

    Exit 0: `up` would start it, also after dropping the page cache, and where a part of the sum is not known. Exit 6: `up`
    would refuse, also where it fits once something else stops. Exit 3: the node could not be asked.
    """
    from sparkctl.cli.verb_runner import run_verb
    from sparkctl.cli.verbs.fit_teller import EstimateJsonPrinter, EstimatePrinter
    from sparkctl.commands.start.check_fit import CheckFit, check_fit
    from sparkctl.profiles.library import ProfileLibrary

    chosen = ProfileLibrary().load(profile, overrides=overrides)
    nodes = select_rank_nodes(node, chosen) if chosen.nodes > 1 else select_configured_nodes(node)
    words = (profile, *(word for override in overrides for word in ("--set", override)))
    request = CheckFit(chosen, nodes, os.environ, words)
    context = create_context(may_ask=not as_json)
    teller = EstimateJsonPrinter(chosen.name) if as_json else EstimatePrinter()
    return run_verb(context, lambda: check_fit(context, request), teller)
