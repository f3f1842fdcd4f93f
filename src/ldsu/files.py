"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file under another name and rename it at the end: a reader sees the old file or the new one, no half.

    Parameters
    ----------
    path : path-like
        Its folder is made if it is not there.
    mode : {"wb", "w"}, default="wb"
    **options
        As `open` takes them.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.part", dir=path.parent)
    try:
        with os.fdopen(handle, mode, **options) as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
