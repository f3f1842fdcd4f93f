"""The command `ldsu`, also as `python -m ldsu`."""

import _thread
import signal
import sys
import threading
from typing import Any

from ldsu import __version__

# Signals received that ask the program to end.
_interrupts: list[int] = []


def main() -> None:
    """Run the command line, or print how to install it. Ctrl-C and SIGTERM exit with a short message and code 130."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _retry_interrupt
        sys.meta_path.insert(0, _WithoutPandas())
        try:
            from ldsu.cli import cli
        except ModuleNotFoundError as error:
            if error.name not in ("click", "rich"):
                raise
            if sys.argv[1:] == ["--version"]:
                print(f"ldsu {__version__}")
                return
            print(
                f"The command line requires the extra 'cli' ({error.name} is not installed). Install it with: "
                "pip install 'ldsu[cli]'",
                file=sys.stderr,
            )
            sys.exit(2)
        cli(prog_name="ldsu")
    except (KeyboardInterrupt, Exception) as error:
        # A library written in C that is interrupted while it is imported may raise an error of its own.
        if not isinstance(error, KeyboardInterrupt) and not _interrupts:
            raise
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        # A signal during interpreter shutdown would only add a traceback.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


class _WithoutPandas:
    """Hide pandas, which no command uses: where it is installed, scikit-learn and pyarrow import it, for 0.3 s."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


def _interrupt(number: int, _: object) -> None:
    _interrupts.append(number)
    raise KeyboardInterrupt


def _retry_interrupt(unraisable: Any) -> None:
    """Raise an interrupt again that Python could not propagate, for example from a callback."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(0.1, _wake_and_interrupt).start()
    else:
        sys.__unraisablehook__(unraisable)


def _wake_and_interrupt() -> None:
    if sys.platform == "win32":
        _thread.interrupt_main(signal.SIGTERM)
    else:  # also interrupts a blocking system call
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


if __name__ == "__main__":
    main()
