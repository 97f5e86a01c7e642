"""``sparkctl profiles export``."""

from __future__ import annotations

import click

from sparkctl.cli.setup import complete_profiles

_FORMS = ("docker", "compose", "systemd", "sparkrun")


@click.command("export", short_help="Print a profile as a docker run line, compose file, unit or recipe.")
@click.argument("name", shell_complete=complete_profiles)
@click.option("--as", "form", type=click.Choice(_FORMS), required=True, help="What it becomes.")
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="As for up.")
def command(name: str, form: str, overrides: tuple[str, ...]) -> int:
    """Print a profile in the form that another tool reads; `profiles import` makes the same profile of it.

    \b
    sparkctl profiles export qwen36 --as compose > compose.yaml
    sparkctl profiles export qwen36 --as systemd | ssh spark1 'sudo tee /etc/systemd/system/qwen36.service'
    """
    from sparkctl.cli import narrate, output
    from sparkctl.core.portable import build_portable_launch
    from sparkctl.core.profiles import ProfileLibrary
    from sparkctl.engines import load_engine

    profile = ProfileLibrary().load(name, overrides=overrides)
    one = build_portable_launch(profile, load_engine(profile.engine))
    if form in ("docker", "systemd"):
        from sparkctl.present import export_lines

        lines = export_lines.export_docker_run(one) if form == "docker" else export_lines.export_systemd_unit(one)
    else:
        from sparkctl.present import export_yaml

        lines = export_yaml.export_compose(one) if form == "compose" else export_yaml.export_sparkrun(one)
    output.print_sanitized_lines(lines)
    for remark in one.remarks:
        narrate.print_warning(None, remark, None)
    return 0
