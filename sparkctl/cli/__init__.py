"""The command line of sparkctl."""


def main() -> None:
    """Run ``sparkctl``; imports happen here, so that ``import sparkctl.cli`` stays fast."""
    import gc

    # Imports create a hundred thousand lasting objects; collecting garbage among them takes a tenth of a start.
    gc.set_threshold(200_000, 20, 20)

    try:
        from sparkctl.cli.invocation import run_and_exit
    except KeyboardInterrupt:  # Ctrl-C before there is anything that could be told
        raise SystemExit(130) from None

    run_and_exit()
