"""Executors on several machines (extra ``cluster``)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from linfed.errors import UsageError


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Return a context with an executor on the Dask cluster whose scheduler is at `address`."""
    try:
        from dask.distributed import Client
    except ImportError:
        raise UsageError("--dask requires dask.distributed: pip install 'linfed[cluster]'") from None
    try:
        client = Client(address, timeout=10)
    except Exception as error:  # any server may answer at the address
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"--dask {address} must be the address of a Dask scheduler ({reason})") from None
    with client:
        yield client.get_executor(pure=False)


@contextmanager
def mpi_executor() -> Iterator[Executor]:
    """Return a context with an executor on the processes started by ``mpiexec``."""
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPIPoolExecutor
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"--mpi requires mpi4py and an MPI library ({reason}): pip install 'linfed[cluster]'"
        ) from None
    if MPI.COMM_WORLD.size < 2:
        raise UsageError("--mpi requires at least 2 processes: mpiexec -n 3 python -m mpi4py.futures -m linfed ..")
    with MPIPoolExecutor() as executor:
        yield executor
