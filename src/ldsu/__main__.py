"""The command `ldsu`, also as `python -m ldsu`."""

import sys


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        from ldsu.cli import cli
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print("Install the command line with: pip install 'ldsu[cli]'", file=sys.stderr)
        sys.exit(2)
    cli(prog_name="ldsu")


if __name__ == "__main__":
    main()
