"""The command `ldsu`, also as `python -m ldsu`."""

import _thread
import signal
import sys
import threading
from typing import Any

from ldsu import __version__


def main() -> None:
    """Run the command line, or print how to install it. Ctrl-C and SIGTERM end it with one word and code 130."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        sys.unraisablehook = _interrupt_again
        try:
            from ldsu.cli import cli
        except ModuleNotFoundError as error:
            if error.name not in ("click", "rich"):
                raise
            if sys.argv[1:] == ["--version"]:
                print(f"ldsu {__version__}")
                return
            print(
                f"The command line needs the extra cli ({error.name} is not installed). Install it with: "
                "pip install 'ldsu[cli]'",
                file=sys.stderr,
            )
            sys.exit(2)
        cli(prog_name="ldsu")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        # All is done and said: what comes while the interpreter clears up would only add a traceback.
        for sent in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sent, signal.SIG_IGN)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _interrupt_again(ignored: Any) -> None:
    """An interrupt that came where Python lets no error out, as in a callback, comes again a moment later."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Timer(0.1, _wake_and_interrupt).start()
    else:
        sys.__unraisablehook__(ignored)


def _wake_and_interrupt() -> None:
    if sys.platform == "win32":
        _thread.interrupt_main(signal.SIGTERM)
    else:  # also where it waits for something
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


if __name__ == "__main__":
    main()
