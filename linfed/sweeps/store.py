"""Store of a sweep: a folder with one file per finished cell, whose content is verified when it is read.

A file is named after the hashes of the cell's configuration (`linfed.system.description`) and of the code that computed
it (`linfed.sweeps.code_key`). It is written under a temporary name and renamed, and begins with a hash of the rest. If
a crash, a copy or another program has damaged a file, this is detected on reading: its cell counts as missing, and the
file is replaced when the cell has been computed. To merge two stores, copy the files of one into the other.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import math
import os
import stat
import uuid
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from linfed.checks import check_bool, short_repr
from linfed.errors import StoreWarning
from linfed.sweeps.code_key import code_key
from linfed.system.description import describe, text_of
from linfed.system.files import replacing
from linfed.tables.grid import Cell, checked_cells
from linfed.tables.table import Table

FORMAT = 2
"""Version of the file format and of the keys."""

ANY_FORMAT = ".cell"
"""End of the name of a cell's file of any version."""

SUFFIX = f".{FORMAT}{ANY_FORMAT}"

MAGIC = f"linfed cell {FORMAT} ".encode()
"""First bytes of a cell's file, before the hash of what follows the first line."""


class CellKey(NamedTuple):
    """Key of a cell: its configuration as text, and the hash of its code."""

    text: str
    code: str

    @property
    def config(self) -> str:
        """The hash of the configuration."""
        return hashlib.sha256(f"{FORMAT} {self.text}".encode()).hexdigest()[:24]

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.config}-{self.code[:12]}{SUFFIX}"


class StoredCell(NamedTuple):
    """A finished cell: its table, and the record of how it was computed."""

    table: Table
    record: dict[str, Any]


class Store:
    """Folder in which a sweep saves finished cells.

    Parameters
    ----------
    folder : path
        The folder, created if it does not exist.

    Raises
    ------
    ValueError
        If the folder cannot be created.

    Notes
    -----
    Each cell has a file with its rows, its configuration as canonical JSON, and hashes of the code and of the file's
    content; its name has the hashes of the configuration and of the code. The file also has a record of the seed,
    linfed's commit, the versions of packages, the BLAS, the machine, the run time and the processor time in seconds,
    and the end time.

    The methods raise `ValueError` if the code that runs is not the code in the files, as `lf.sweep` does.

    Examples
    --------
    >>> import tempfile
    >>> import linfed as lf
    >>> run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.5), data=lf.FreshSamples(n_samples=6), n_rounds=5,
    ...              problem=lf.SharedRepresentation(n_clients=20, dim=6, rank=2))
    >>> cells = lf.grid(run, seed=range(4))
    >>> store = lf.Store(tempfile.mkdtemp())
    >>> table = lf.sweep(cells[:3], store=store)
    >>> [cell.seed for cell in store.missing(cells)]
    [3]
    >>> len(store.table(cells, incomplete=True))
    3
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            if not os.fspath(folder):
                raise NotADirectoryError(errno.ENOTDIR, "the path is empty")
            self.folder = Path(os.fsdecode(folder)).expanduser().absolute()  # a cell may change the working folder
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise ValueError(f"store = {short_repr(folder)} must be a folder: {reason}") from None

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    # --- stored cells ----------------------------------------------------------------------------------------

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that the store does not contain, in their order."""
        cells = checked_cells(cells)
        found = self.read(keys_of(cells))
        return [cell for cell, done in zip(cells, found, strict=True) if done is None]

    def table(self, cells: Sequence[Cell], *, incomplete: bool = False) -> Table:
        """Return the table of cells as `lf.sweep` would, but without computing any.

        Parameters
        ----------
        cells : sequence of cells
        incomplete : bool
            If True, leave out the cells that the store does not contain.

        Raises
        ------
        ValueError
            If cells are missing and `incomplete` is False.
        """
        cells = checked_cells(cells)
        found = self.read(keys_of(cells))
        if not check_bool("incomplete", incomplete) and None in found:
            raise ValueError(
                f"{found.count(None)} of {len(found)} cells are missing in {self!r}; run lf.sweep, or set "
                "incomplete=True"
            )
        return Table.joined(done.table for done in found if done is not None)

    def records(self, cells: Sequence[Cell]) -> list[dict[str, Any] | None]:
        """Return each cell's record: config, seed, versions, commit, BLAS, machine, times; None for missing cells."""
        keys = keys_of(checked_cells(cells))
        return [
            None if done is None else {"config": json.loads(key.text), **done.record}
            for key, done in zip(keys, self.read(keys), strict=True)
        ]

    # --- files -----------------------------------------------------------------------------------------------

    def read(self, keys: Sequence[CellKey], *, reuse_stale: bool = False) -> list[StoredCell | None]:
        """Return the finished cells of the keys, None for missing ones; warn of damaged files, whose cells are missing.

        Parameters
        ----------
        keys : sequence of CellKey
        reuse_stale : bool
            If True, also return cells that other versions of the code computed, the newest one, if the current version
            has not computed them. A warning gives their number.
        """
        others: dict[str, list[str]] = {}
        for name in self._names() if reuse_stale else ():
            if name.endswith(SUFFIX):
                others.setdefault(name.partition("-")[0], []).append(name)
        found: dict[CellKey, StoredCell | None] = {}
        stale = 0
        for key in dict.fromkeys(keys):
            found[key] = self._read(key.name, key)
            if found[key] is None:
                names = sorted(others.get(key.config, ()), key=self._time, reverse=True)
                done = (self._read(name, key) for name in names if name != key.name)
                found[key] = next((one for one in done if one is not None), None)
                stale += found[key] is not None
        if stale:
            warnings.warn(
                f"{self!r}: {stale} of {len(found)} cells were computed by other code, or with other versions of "
                "packages, and are reused",
                StoreWarning,
                stacklevel=2,
            )
        return [found[key] for key in keys]

    def warn_of_others(self, keys: Sequence[CellKey]) -> None:
        """Warn if cells that must be computed have files of other code, and if cells are of an earlier version.

        Warns
        -----
        StoreWarning
        """
        names = self._names()
        others = names - {key.name for key in keys}  # which another sweep may just have finished
        configs = {name.partition("-")[0] for name in others if name.endswith(SUFFIX)}
        if stale := sum(key.config in configs for key in keys):
            warnings.warn(
                f"{self!r}: {stale} of {len(keys)} cells were computed by other code, or with other versions of "
                "packages, and are recomputed; reuse_stale=True reuses them",
                StoreWarning,
                stacklevel=2,
            )
        if earlier := [name for name in names if not name.endswith(SUFFIX)]:
            warnings.warn(
                f"{self!r}: {len(earlier)} cells of an earlier version of linfed (such as {min(earlier)!r}) are not "
                "read, because the keys of cells have changed; the files can be deleted",
                StoreWarning,
                stacklevel=2,
            )

    def write(self, key: CellKey, done: StoredCell) -> None:
        """Write a finished cell into the store.

        Raises
        ------
        WriteError
            If the file cannot be written; an earlier file stays as it is.
        """
        arrays, described = done.table.payload()
        data = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        listed = [[name, array.dtype.str, list(array.shape)] for name, array in data.items()]
        head = {"config": json.loads(key.text), "code": key.code, "arrays": listed, "table": described}
        parts = [json.dumps({**head, "record": done.record}).encode() + b"\n"]
        parts += [array.tobytes() for array in data.values()]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        with replacing(self.folder / key.name) as file:
            file.write(MAGIC + digest.hexdigest().encode() + b"\n")
            file.writelines(parts)

    def remove(self, keys: Sequence[CellKey]) -> None:
        """Remove the files of cells."""
        for key in keys:
            (self.folder / key.name).unlink(missing_ok=True)

    def check_writable(self) -> None:
        """Raise a `WriteError` if the folder cannot be written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        probe = self.folder / f".{uuid.uuid4().hex}"
        with replacing(probe) as file:
            file.write(b"")
        probe.unlink()

    def _names(self) -> set[str]:
        """Return the names of the files of cells, of any version."""
        try:
            return {entry.name for entry in os.scandir(self.folder) if entry.name.endswith(ANY_FORMAT)}
        except OSError:  # the folder has been deleted
            return set()

    def _time(self, name: str) -> float:
        """Return the time at which a file was written; 0 if it has been removed."""
        with suppress(OSError):
            return (self.folder / name).stat().st_mtime
        return 0.0

    def _read(self, name: str, key: CellKey) -> StoredCell | None:
        """Read a file and return its cell; None, with a warning, if it is damaged."""
        path = self.folder / name
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for its writer
                raise ValueError("is not a regular file")
            return _parsed(path.read_bytes(), name, key)
        except FileNotFoundError:
            return None
        except OSError as error:  # the file may be intact and readable later
            reason = f"cannot be read ({error.strerror})"
        except (KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
        warnings.warn(f"{str(path)!r} {reason}: its cell counts as missing", StoreWarning, stacklevel=2)
        return None


def _parsed(content: bytes, name: str, key: CellKey) -> StoredCell:
    """Parse a file's bytes and return the cell; raise if they are damaged or belong to another cell."""
    first, _, rest = content.partition(b"\n")
    if not first.startswith(MAGIC):
        raise ValueError(f"is not a cell of format {FORMAT} written by linfed")
    if hashlib.sha256(rest).hexdigest().encode() != first.removeprefix(MAGIC):
        raise ValueError("is damaged: its content does not match its hash")
    line, _, data = rest.partition(b"\n")
    head = json.loads(line)
    text = text_of(head["config"])
    if text != key.text or key._replace(code=head["code"]).name != name:
        raise ValueError("contains a cell that does not match its name")
    arrays, place = {}, 0
    for column, kind, shape in head["arrays"]:
        dtype = np.dtype(kind)
        size = dtype.itemsize * math.prod(shape)
        arrays[column] = np.frombuffer(data[place : place + size], dtype).reshape(shape).copy()
        place += size
    return StoredCell(Table.from_payload(arrays, head["table"]), head["record"])


def keys_of(cells: Sequence[Cell], code_of: Callable[[frozenset[Any]], str] | None = None) -> list[CellKey]:
    """Return the key of each cell.

    Parameters
    ----------
    cells : sequence of Cell
    code_of : callable, optional
        Function that returns the hash of the code of some classes and functions; by default `code_key`, once for each.

    Raises
    ------
    TypeError
        If a field of a cell has no unique description, such as a lambda.
    ValueError
        If the code of a cell is not in a file, or not the code that runs (`code_key`).
    """
    code_of = code_of or functools.cache(code_key)
    return [CellKey(one.text, code_of(frozenset(one.owners))) for one in map(describe, cells)]
