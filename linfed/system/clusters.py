"""Executors on several machines, where their packages are installed (extra ``cluster``)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from linfed.errors import UsageError


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Return a context with an executor on the Dask cluster whose scheduler has this address."""
    try:
        from dask.distributed import Client
    except ImportError:
        raise UsageError("--dask needs dask.distributed: pip install 'linfed[cluster]'") from None
    try:
        client = Client(address, timeout=10)
    except Exception as error:  # whatever answers there
        raise UsageError(f"--dask {address}: no scheduler there ({' '.join(str(error).split())})") from None
    with client:
        yield client.get_executor(pure=False)


@contextmanager
def mpi_executor() -> Iterator[Executor]:
    """Return a context with an executor on the processes that ``mpiexec`` has started."""
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPIPoolExecutor
    except (ImportError, RuntimeError) as error:
        told = " ".join(str(error).split())
        raise UsageError(f"--mpi needs mpi4py and an MPI library ({told}): pip install 'linfed[cluster]'") from None
    if MPI.COMM_WORLD.size < 2:
        raise UsageError("--mpi has no process to run cells in: mpiexec -n 3 python -m mpi4py.futures -m linfed ..")
    with MPIPoolExecutor() as executor:
        yield executor
