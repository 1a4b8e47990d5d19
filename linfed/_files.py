"""Files are written by rename: a reader finds the whole of the new one, or the old one as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from linfed.errors import WriteError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Return a context with a file to write into, which takes the place of `path` once the context has ended well.

    Raises
    ------
    WriteError
        If it cannot be written: the disk is full, the folder is not to be written in. Nothing is left of it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        failed = WriteError(f"{str(path)!r} cannot be written: {error.strerror or repr(error)}")
        failed.errno = error.errno
        raise failed from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
