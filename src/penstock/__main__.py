"""`penstock` and `python -m penstock`."""

from __future__ import annotations


def main() -> None:
    """The command line; ends the process with 0 fine, 1 failed, 2 wrong usage."""
    from penstock.cli.main import run

    run()


if __name__ == "__main__":
    main()
