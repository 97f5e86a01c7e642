"""The command line: the front end that scripts and people share."""


def main() -> None:
    """Run ``sparkctl``; the imports wait until it is called so that ``import sparkctl.cli`` stays free."""
    from sparkctl.cli.app import run

    run()
