"""``python -m sparkctl``: the same command."""

from sparkctl.cli import main

if __name__ == "__main__":
    main()
