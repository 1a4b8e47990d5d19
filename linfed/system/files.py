"""Files, arrays among them, are written by rename: a reader finds all of the new one, or the old one as it was."""

from __future__ import annotations

import json
import math
import os
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Json
from linfed.errors import WriteError, check_instance
from linfed.system.memory import check_fits

LARGE = 1_000_000_000
"""Bytes of an array that goes into an archive with the longer headers that those beyond 2 GB need."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Return a context with a file to write into, which takes the place of `path` once the context has ended well.

    Raises
    ------
    WriteError
        If it cannot be written: the disk is full, the folder is not to be written in. Nothing is left of it.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
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


def write_json(path: Path, value: Json) -> Path:
    """Write strict JSON by rename, and return its path."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
    return path


def named_file(path: str | os.PathLike[str], suffix: str) -> Path:
    """Return a path to write to, or raise if it has no name before its suffix."""
    check_instance("path", path, (str, os.PathLike), "a path")
    if Path(path).name in ("", suffix):
        raise ValueError(f"path = {str(path)!r} must name a file")
    return Path(path)


def with_suffix(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``.npz`` at its end."""
    return Path(path) if Path(path).suffix == ".npz" else Path(f"{os.fspath(path)}.npz")


def write(
    path: str | os.PathLike[str],
    arrays: dict[str, Array],
    described: Json,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """Write arrays and a description by rename: the file is whole, or the old one is still there.

    With `zipfile.ZIP_LZMA` it is a fifth smaller, written more slowly, and read by `read` and `np.load` as any other.
    """
    target = with_suffix(named_file(path, ".npz"))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path = {str(path)!r}: the folder {str(target.parent)!r} does not exist")
    write_arrays(target, {"description": np.array(json.dumps(described)), **arrays}, compression)
    return target


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], compression: int = zipfile.ZIP_DEFLATED) -> None:
    """Write arrays into one npz file, by rename; none of objects, which no one could read without pickles."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"{name} is an array of objects, which a file cannot hold without pickles")
    # Not by np.savez_compressed, which under NumPy 2.0 leaves its archive open where a disk is full.
    with replacing(path) as file, zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in arrays.items():
            large = np.asarray(array).nbytes > LARGE
            with archive.open(f"{name}.npy", "w", force_zip64=large) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Json]:
    """Return the arrays and the description of a file that `write` made.

    Raises
    ------
    SizeError
        If they would not fit the memory.
    ValueError
        If the file is not an archive of arrays that are as large as their headers say, with a description.
    """
    try:
        found = Path(path) if Path(path).exists() else with_suffix(path)
        with found.open("rb") as file, zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            unpacked = sum(part.file_size for part in parts)
            check_fits(unpacked / 8.0, f"reading path = {str(path)!r}", "use a machine with more memory")
            arrays = {part.filename.removesuffix(".npy"): _array(archive, part) for part in parts}
        return arrays, json.loads(str(arrays.pop("description")))
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise not_ours(path, error) from None


def _array(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array of an archive, or raise a ValueError before reading one that is not what its header says."""
    with archive.open(part) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{part.filename} has an unknown version")
        shape, _, dtype = _HEADERS[version](file)
        said, held = math.prod(shape) * dtype.itemsize, part.file_size - file.tell()
        if said != held or dtype.hasobject:
            raise ValueError(f"{part.filename} holds {held} bytes of data, and its header says {said} of {dtype}")
    with archive.open(part) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def not_ours(path: str | os.PathLike[str], error: Exception) -> ValueError:
    """Return the error for a file that linfed did not write."""
    return ValueError(f"path = {str(path)!r} is not a result that linfed wrote ({' '.join(str(error).split())})")
