"""The store of a sweep: a folder with a file for each finished cell, which says of what it is and is believed only so.

A file's name is the hash of the cell's configuration (`linfed.sweeps.fingerprint`) and of the code that computed it
(`linfed.sweeps.code_hash`). It is written by rename, and begins with a hash of all that follows: a file that a crash, a
copy or another program damaged is detected when it is read, set aside, and recomputed. Two stores merge by copying.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from linfed._types import Json
from linfed.errors import StoreWarning, shown
from linfed.sweeps.code_hash import code_digest
from linfed.sweeps.fingerprint import Description, text_of
from linfed.system.files import replacing
from linfed.tables.grid import Cell, checked_cells, plain
from linfed.tables.table import Table

FORMAT = 1
"""Of a cell's file."""

SUFFIX = ".cell"

MAGIC = b"linfed cell "

STALE = 3600.0
"""Seconds after which a file that was being written is what a killed process left."""


class Key(NamedTuple):
    """What a cell's file is named by: digests of its configuration and of its code; and the configuration's text."""

    config: str
    code: str
    text: str

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.config}-{self.code}{SUFFIX}"


class Done(NamedTuple):
    """A finished cell: its table, and the record of how it was computed."""

    table: Table
    record: dict[str, Any]


class Store:
    """Finished cells in a folder.

    Parameters
    ----------
    folder : path
        Made where it is not there.

    Raises
    ------
    ValueError
        For a folder that cannot be made.

    Notes
    -----
    A file holds the cell's rows; its configuration as canonical JSON; digests of the configuration, the code and the
    rows; and a record: the seed, linfed's commit, versions, BLAS, the machine, the seconds it took, and when it ended.

    Examples
    --------
    >>> import tempfile
    >>> import linfed as lf
    >>> run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.5), data=lf.FreshSamples(n_samples=6), rounds=5,
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
                raise NotADirectoryError(errno.ENOTDIR, "it has no name")
            self.folder = Path(os.fsdecode(folder)).expanduser().absolute()  # a cell may change the working folder
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            told = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise ValueError(f"store = {shown(folder)} is no folder to write in: {told}") from None

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    # --- what is there ---------------------------------------------------------------------------------------

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that are not there, in their order."""
        cells = checked_cells(cells)
        found = self.read(keys_of(cells))
        return [cell for cell, done in zip(cells, found, strict=True) if done is None]

    def table(self, cells: Sequence[Cell], *, incomplete: bool = False) -> Table:
        """Return the table of cells, as `lf.sweep` would, without computing anything.

        Parameters
        ----------
        cells : sequence of cells
        incomplete : bool
            Leave out the cells that are not there.

        Raises
        ------
        ValueError
            If some are not there.
        """
        cells = checked_cells(cells)
        found = self.read(keys_of(cells))
        if None in found and not incomplete:
            raise ValueError(
                f"{found.count(None)} of {len(found)} cells are missing in {self!r}: sweep them, or take "
                "incomplete=True"
            )
        return sum((done.table for done in found if done is not None), Table())

    def records(self, cells: Sequence[Cell]) -> list[dict[str, Any] | None]:
        """Return of each cell its config, seed, versions, commit, BLAS, machine, seconds; None if it is missing."""
        keys = keys_of(checked_cells(cells))
        return [
            None if done is None else {"config": json.loads(key.text), **done.record}
            for key, done in zip(keys, self.read(keys), strict=True)
        ]

    # --- files -----------------------------------------------------------------------------------------------

    def read(self, keys: Sequence[Key], *, keep: bool = False) -> list[Done | None]:
        """Return the finished cells of the keys; a file that is not what its name says is set aside with a warning.

        Parameters
        ----------
        keys : sequence of Key
        keep : bool
            Take what other code computed where there is nothing of the present one, the newest; a warning says so.
        """
        names = self._names()
        known: dict[str, Done | None] = {}
        kept = 0
        for key in keys:
            if key.name in known:
                continue
            done = self._verified(key.name, key) if key.name in names else None
            if done is None and keep:
                others = [name for name in names if name.startswith(f"{key.config}-") and name != key.name]
                for name in sorted(others, key=self._age):
                    done = self._verified(name, key)
                    if done is not None:
                        kept += 1
                        break
            known[key.name] = done
        if kept:
            warnings.warn(
                f"{self!r}: {kept} of {len(known)} cells are of other code than the present, and kept as they are",
                StoreWarning,
                stacklevel=2,
            )
        return [known[key.name] for key in keys]

    def write(self, key: Key, done: Done) -> None:
        """Keep a finished cell.

        Raises
        ------
        WriteError
            If it cannot be written; what was there is still there.
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
            file.write(MAGIC + f"{FORMAT} {digest.hexdigest()}\n".encode())
            file.writelines(parts)

    def set_aside(self, keys: Sequence[Key]) -> None:
        """Move the files of cells where no sweep looks for them."""
        for key in keys:
            if (self.folder / key.name).exists():
                (self.folder / "aside").mkdir(exist_ok=True)
                os.replace(self.folder / key.name, self.folder / "aside" / key.name)

    def remove(self, keys: Sequence[Key]) -> None:
        """Remove the files of cells."""
        for key in keys:
            (self.folder / key.name).unlink(missing_ok=True)

    def prepare(self) -> None:
        """Try whether the folder can be written, and remove what processes that were killed left half written.

        Raises
        ------
        WriteError
            If it cannot.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / f"tried{SUFFIX}.{os.getpid()}") as file:
            file.write(b"")
        (self.folder / f"tried{SUFFIX}.{os.getpid()}").unlink(missing_ok=True)
        for path in self.folder.glob(f".*{SUFFIX}.*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE:
                    path.unlink()

    def _names(self) -> set[str]:
        try:
            return {entry.name for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX)}
        except OSError:  # there is none any more
            return set()

    def _age(self, name: str) -> float:
        with suppress(OSError):
            return -(self.folder / name).stat().st_mtime
        return 0.0

    def _verified(self, name: str, key: Key) -> Done | None:
        """Return what a file holds, or set it aside and return None."""
        path = self.folder / name
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for its writer
                raise ValueError("is not a regular file")
            return _parsed(path.read_bytes(), name, key)
        except FileNotFoundError:
            return None  # another sweep has set it aside
        except OSError as error:  # it may be in order, and be read another time
            told = f"{str(path)!r} cannot be read ({error.strerror}): its cell is missing"
            warnings.warn(told, StoreWarning, stacklevel=2)
            return None
        except (KeyError, TypeError, ValueError) as error:
            told = " ".join(str(error).split())
        aside = self.folder / "aside" / name
        try:
            aside.parent.mkdir(exist_ok=True)
            os.replace(path, aside)
            done = f"set aside in {str(aside.parent)!r}"
        except OSError as error:
            done = f"not to be moved ({error.strerror})"
        warnings.warn(f"{str(path)!r} {told}: {done}, its cell is missing", StoreWarning, stacklevel=2)
        return None


def _parsed(content: bytes, name: str, key: Key) -> Done:
    """Return what a file's bytes say, or raise for what makes it no file of this cell."""
    first, _, rest = content.partition(b"\n")
    words = first.removeprefix(MAGIC).split()
    if not first.startswith(MAGIC) or len(words) != 2:
        raise ValueError("is no cell that linfed wrote")
    if words[0] != str(FORMAT).encode():
        raise ValueError(f"is of format {words[0].decode(errors='replace')}, and this linfed reads {FORMAT}")
    if hashlib.sha256(rest).hexdigest().encode() != words[1]:
        raise ValueError("is torn: it does not hold what was written")
    line, _, data = rest.partition(b"\n")
    head = json.loads(line)
    text = text_of(head["config"])
    if text != key.text or f"{_config_digest(text)}-{head['code']}{SUFFIX}" != name:
        raise ValueError("holds another cell than its name says")
    arrays, place = {}, 0
    for column, kind, shape in head["arrays"]:
        dtype = np.dtype(kind)
        size = dtype.itemsize * math.prod(shape)
        arrays[column] = np.frombuffer(data[place : place + size], dtype).reshape(shape).copy()
        place += size
    return Done(Table.from_payload(arrays, head["table"]), head["record"])


def keys_of(cells: Sequence[Cell], codes: dict[frozenset[Any], str] | None = None) -> list[Key]:
    """Return what names each cell's file.

    Parameters
    ----------
    cells : sequence of Cell
    codes : dict, optional
        Digests of code by what cells are made of: those that are there are taken as they are, others are put in.

    Raises
    ------
    TypeError
        For a cell with a field that cannot be told from others, such as a lambda.
    ValueError
        For a cell whose code is in no file.
    """
    codes = {} if codes is None else codes
    return [_key(cell, codes) for cell in cells]


def _key(cell: Cell, codes: dict[frozenset[Any], str]) -> Key:
    described = Description(cell)
    owners = frozenset(described.owners)
    if owners not in codes:
        codes[owners] = code_digest(owners)[:12]
    text = described.text
    return Key(_config_digest(text), codes[owners], text)


def _config_digest(text: str) -> str:
    return hashlib.sha256(f"{FORMAT} {text}".encode()).hexdigest()[:24]


def seed_of(cell: Cell) -> Json:
    """Return a cell's seed as a record says it, if it has one."""
    return plain(getattr(cell, "seed", None))
