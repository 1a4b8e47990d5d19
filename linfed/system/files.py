"""Atomic writing of files: a reader finds either the complete new file or the unchanged old one."""

from __future__ import annotations

import json
import math
import os
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Json
from linfed.checks import check_instance
from linfed.errors import WriteError
from linfed.system.memory import check_fits

LARGE = 1_000_000_000
"""Size in bytes above which an array is written with the longer zip headers (required above 2 GB)."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Return a context with an open temporary file, which replaces `path` if the context ends without an error.

    Raises
    ------
    WriteError
        If the file cannot be written, e.g. the disk is full or the folder is read-only. The temporary file is removed.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # a name that is too long, or a read-only file system
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        failed = WriteError(f"{str(path)!r} cannot be written: {error.strerror or repr(error)}")
        failed.errno = error.errno
        raise failed from None


def write_json(path: Path, value: Json) -> Path:
    """Write strict JSON atomically, and return the path."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
    return path


def named_file(path: str | os.PathLike[str], suffix: str, name: str = "path") -> Path:
    """Return a path as a `Path`, or raise if it has no file name before the suffix."""
    check_instance(name, path, (str, os.PathLike), "a path")
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        possible = False
    if not possible:
        raise ValueError(f"{name} = {str(path)!r} must not contain a null character or a lone surrogate")
    if Path(path).name in ("", suffix):
        raise ValueError(f"{name} = {str(path)!r} must name a file")
    return Path(path)


def with_suffix(path: str | os.PathLike[str]) -> Path:
    """Return the path with the suffix ``.npz``, appended if it is missing."""
    return Path(path) if Path(path).suffix == ".npz" else Path(f"{os.fspath(path)}.npz")


def write(
    path: str | os.PathLike[str],
    arrays: dict[str, Array],
    described: Json,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """Write arrays and a description atomically to an npz file, and return its path.

    With `zipfile.ZIP_LZMA` the file is a fifth smaller but slower to write; `read` and `np.load` read both formats.
    """
    target = with_suffix(named_file(path, ".npz"))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path = {str(path)!r}: the folder {str(target.parent)!r} does not exist")
    write_arrays(target, {"description": np.array(json.dumps(described)), **arrays}, compression)
    return target


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], compression: int = zipfile.ZIP_DEFLATED) -> None:
    """Write arrays atomically to one npz file; raise for arrays of objects, which would require pickle."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"{name} must not be an array of objects, which would require pickle")
    # np.savez_compressed of NumPy 2.0 leaves its archive open if the disk is full.
    with replacing(path) as file, zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in arrays.items():
            large = np.asarray(array).nbytes > LARGE
            with archive.open(f"{name}.npy", "w", force_zip64=large) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def refuse_pipe(path: Path) -> None:
    """Raise if a path is a pipe, a socket or a device, whose reader would wait; a folder fails when it is opened."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError("it is not a regular file")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Json]:
    """Return the arrays and the description of a file written by `write`.

    Raises
    ------
    SizeError
        If the arrays do not fit into memory.
    ValueError
        If the file is not an archive of arrays with a description, or an array's size contradicts its header.
    """
    try:
        found = Path(path) if Path(path).exists() else with_suffix(path)
        refuse_pipe(found)
        with found.open("rb") as file, zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            unpacked = sum(part.file_size for part in parts)
            check_fits(unpacked / 8.0, f"reading path = {str(path)!r}", "use a machine with more memory")
            arrays = {part.filename.removesuffix(".npy"): _array(archive, part) for part in parts}
        return arrays, json.loads(str(arrays.pop("description")))
    except Exception as error:  # a damaged archive may raise anything, even an OSError for an offset
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.filename is not None):
            raise
        raise not_ours(path, error) from None


def _array(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read an array of an archive, or raise ValueError if its size contradicts its header."""
    with archive.open(part) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{part.filename} has an unknown version")
        shape, _, dtype = _HEADERS[version](file)
        expected_size, size = math.prod(shape) * dtype.itemsize, part.file_size - file.tell()
        if expected_size != size or dtype.hasobject:
            raise ValueError(
                f"{part.filename} has {size} bytes of data, but {expected_size} bytes of {dtype} in its header"
            )
    with archive.open(part) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def not_ours(path: str | os.PathLike[str], error: Exception) -> ValueError:
    """Return the error for a file that linfed did not write."""
    return ValueError(f"path = {str(path)!r} is not a result written by linfed ({' '.join(str(error).split())})")
