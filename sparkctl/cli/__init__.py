"""The command line: the front end that scripts and people share."""


def main() -> None:
    """Run ``sparkctl``; the imports wait until it is called so that ``import sparkctl.cli`` stays free."""
    import gc

    # Importing makes a hundred thousand objects that stay: looking through them again and again is a tenth of a start.
    gc.set_threshold(20_000, 50, 50)

    from sparkctl.cli.main import run_and_exit

    run_and_exit()
