"""``sparkctl profiles export``."""

from __future__ import annotations

import click

from sparkctl.cli.options import complete_profiles

_EXPORT_FORMATS = ("docker", "compose", "systemd", "sparkrun")


@click.command("export", short_help="Print a profile as a docker run line, compose file, unit or recipe.")
@click.argument("name", shell_complete=complete_profiles)
@click.option("--as", "form", type=click.Choice(_EXPORT_FORMATS), required=True, help="What it becomes.")
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="As for up.")
def command(name: str, form: str, overrides: tuple[str, ...]) -> int:
    """Print a profile in the form that another tool reads; `profiles import` makes the same profile of it.

    \b
    sparkctl profiles export qwen36 --as compose > compose.yaml
    sparkctl profiles export qwen36 --as systemd | ssh spark1 'sudo tee /etc/systemd/system/qwen36.service'
    """
    from sparkctl.cli import stderr, stdout
    from sparkctl.engines import load_engine
    from sparkctl.profiles.exporters.portable_launch import build_portable_launch
    from sparkctl.profiles.profile_library import ProfileLibrary

    profile = ProfileLibrary().load_profile(name, overrides=overrides)
    one = build_portable_launch(profile, load_engine(profile.engine))
    if form in ("docker", "systemd"):
        from sparkctl.profiles.exporters import docker_run_exporter

        lines = (
            docker_run_exporter.export_docker_run(one)
            if form == "docker"
            else docker_run_exporter.export_systemd_unit(one)
        )
    else:
        from sparkctl.profiles.exporters import yaml_exporter

        lines = yaml_exporter.export_compose(one) if form == "compose" else yaml_exporter.export_sparkrun(one)
    stdout.print_sanitized_lines(lines)
    for remark in one.remarks:
        stderr.print_warning(None, remark, None)
    return 0
