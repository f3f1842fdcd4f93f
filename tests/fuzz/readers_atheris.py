"""Files grown by what code they reach: coverage-guided fuzzing of the readers and of `load_model`, with atheris.

    python tests/fuzz/readers_atheris.py --seconds 60 [--format csv] [--keep FOLDER]

Starts from a sound file of every format (or of those whose name holds `--format`). Each input is read as a user's file
would be; anything but a usable result or a sentence is a finding. Findings are kept, one of each kind, and the run goes
on; it exits with 1 if there were any. atheris is no dependency of the project: where it is not installed, the script
says so and does nothing.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from importlib.util import find_spec
from pathlib import Path


def main():
    """Fuzz for the seconds asked for, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--format", default="", help="part of a file's name: csv, parquet, png, ldsu; all without it")
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"), help="folder for inputs that were findings")
    arguments = parser.parse_args()
    if find_spec("atheris") is None:
        print("Skipped: atheris is not installed. Install it into an environment of its own: pip install atheris")
        return 0
    return fuzz(arguments)


def fuzz(arguments):
    """Hand inputs of atheris to `try_file` until the time is up; this does not return, as atheris does not."""
    import atheris

    sys.path.insert(0, str(Path(__file__).parents[1]))
    with atheris.instrument_imports(include=["ldsu.tables", "ldsu.io", "zipfile", "csv"]):
        from fuzz.files import IMAGES, WRITERS, sound, try_file

    names = sorted(name for name in WRITERS if arguments.format in name)
    if not names:
        print(f"No file is named like {arguments.format!r}. There are: {', '.join(sorted(WRITERS))}.")
        return 2
    work = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = work / "corpus"
    corpus.mkdir()
    (work / "images").mkdir()
    for number, name in enumerate(names):
        # The first byte says which format the rest is.
        (corpus / name).write_bytes(bytes([number]) + sound(name))
    findings: dict[str, Path] = {}
    started, executions, read = time.monotonic(), 0, 0
    slowest = (0.0, "")

    def one_input(data):
        nonlocal executions, read, slowest
        if time.monotonic() - started > arguments.seconds:
            finish()
        if not data:
            return
        executions += 1
        name = names[data[0] % len(names)]
        path = (work / "images" if name in IMAGES else work) / name
        path.write_bytes(data[1:])
        begun = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read += try_file(path, name) is not None
        except Exception as error:
            keep(error, name, data[1:])
        finally:
            path.unlink()
        slowest = max(slowest, (time.monotonic() - begun, name))

    def keep(error, name, data):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{name}: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {error}"[:300]
        key = f"{type(error).__name__}:{frame.filename}:{frame.lineno}"
        if key not in findings:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            findings[key] = arguments.keep / f"{len(findings)}-{name}"
            findings[key].write_bytes(data)
            print(f"Found: {kind} (kept as {findings[key]})", flush=True)

    def finish():
        print(
            f"{executions:,} inputs in {time.monotonic() - started:.0f} s over {len(names)} files; {read:,} were read, "
            f"{len(findings)} kind(s) of finding. The slowest took {slowest[0]:.2f} s ({slowest[1]}).",
            flush=True,
        )
        shutil.rmtree(work, ignore_errors=True)
        os._exit(1 if findings else 0)

    flags = [f"-max_total_time={int(arguments.seconds) + 60}", "-max_len=20000", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *flags, "-verbosity=0", str(corpus)], one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
