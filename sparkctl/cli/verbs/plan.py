"""``sparkctl plan``: check whether a profile fits on a node."""

from __future__ import annotations

import os

import click

from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_profiles,
    format_overrides,
    json_document_option,
    list_nodes,
    node_option,
    select_configured_nodes,
    select_rank_nodes,
)


@click.command(
    "plan", cls=RequestCommand, short_help="Check whether a profile fits on a node, and show the calculation."
)
@click.argument("profile", shell_complete=complete_profiles)
@node_option(many=True)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field of the profile for this calculation.",
)
@json_document_option
def plan_command(profile: str, node: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> PreparedVerb:
    """Check whether PROFILE can start on a node, without starting it. Nothing is changed.

    \b
    sparkctl plan qwen36 --node spark1
    sparkctl plan qwen36 --node spark1 --set args.mem-fraction-static=0.9
    sparkctl plan qwen36 -n spark1 --json && sparkctl up qwen36 -n spark1
    sparkctl plan hf:Qwen/Qwen3-30B-A3B-FP8 --node spark1     a model without a profile

    Compares the memory that the profile needs, by the rules of its engine's version, with the memory that the node has now.
    What is missing there, and a port that is in use, are named, too.
    The model's files are measured on the node; for a model that is not there yet the Hugging Face Hub is asked for sizes
    and config.json, and no weights are fetched. For hf:ORG/NAME a profile is assumed, and shown; `profiles new NAME --from
    hf:ORG/NAME` saves it.

    Without --node every node is checked, and one that fits is enough; a model over two Sparks needs both, connected, and
    its nodes are named as for `up`. What a profile needs (`needs`) is shown before it, and its memory is counted.

    Exit 0: `up` would start it, even if it must drop the page cache first or part of the estimate is not known. Exit 6:
    `up` would refuse, even if it fits once something else stops. For hf:ORG/NAME, which is not there yet: 0 if it fits and
    can be downloaded, 6 if not, or if the Hub does not say how large it is. Exit 3: the node could not be read.
    """
    from sparkctl.cli.event_printers import EstimateJsonPrinter, EstimatePrinter
    from sparkctl.commands.start.check_fit import CheckFit
    from sparkctl.profiles.env_references import list_unset_secrets
    from sparkctl.profiles.profile_library import ProfileLibrary
    from sparkctl.profiles.profile_lint import list_start_warnings
    from sparkctl.transport.hub_client import HubClient

    is_proposed = profile.startswith("hf:")
    if is_proposed:
        from sparkctl.commands.start.check_fit import propose_profile
        from sparkctl.profiles.yaml_writer import render_profile_yaml

        chosen = propose_profile(profile, overrides)
        assumed = render_profile_yaml(chosen)
    else:
        chosen, assumed = ProfileLibrary().load_profile(profile, overrides=overrides), None
    obstacle = next((one.message for one in list_start_warnings(chosen, ProfileLibrary()) if one.refused_flag), None)
    unset = list_unset_secrets(chosen, os.environ)  # no calculation needs their values
    environ = {**os.environ, **dict.fromkeys(unset, "unset")}
    nodes = select_rank_nodes(node, chosen) if chosen.nodes > 1 else select_configured_nodes(node)
    request = CheckFit(
        profile=chosen, nodes=nodes, environ=environ, words=(profile, *format_overrides(overrides)),
        is_proposal=is_proposed, hub=HubClient(os.environ), known=list_nodes() if chosen.needs else (), names_nodes=bool(node),
    )  # fmt: skip
    return PreparedVerb(
        request=request,
        warnings=[
            f"{name} is not set: the calculation does not need it, `up` does (export {name}=...)" for name in unset
        ],
        printer=lambda: EstimatePrinter(chosen, profile, assumed, obstacle),
        json_printer=lambda: EstimateJsonPrinter(chosen, profile, assumed),
    )
