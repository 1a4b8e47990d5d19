"""Provenance of results: versions, BLAS, the machine, and the commit of a checkout."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import threadpoolctl

from linfed._package import FOLDER, __version__


def processors() -> int:
    """Return the number of processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def processor_model() -> str:
    """Return the model of the processor, and the widest vectors that it has among AVX2 and AVX-512."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    vectors = ", AVX-512" if "avx512f" in flags else ", AVX2" if "avx2" in flags else ""
    return f"{fields.get('model name', platform.machine())}{vectors}"


@functools.cache
def provenance() -> dict[str, Any]:
    """Return the provenance stored with results: versions, BLAS, kind of machine, and linfed's commit or None."""
    import importlib.metadata  # not imported with linfed: it takes a tenth of the time of NumPy

    import numpy as np  # noqa: F401  loads NumPy's BLAS, so that it is listed

    names = ("numpy", "scipy", "matplotlib")
    return {
        "versions": {
            "linfed": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in names},
        },
        "blas": [
            f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'unknown architecture')})"
            for pool in threadpoolctl.threadpool_info()
            if pool["user_api"] == "blas"
        ],
        "machine": f"{platform.system()} {platform.machine()}, {processors()} processors ({processor_model()})",
        "commit": commit(),
    }


def commit(folder: Path | None = None) -> str | None:
    """Return the commit of a folder's git checkout (by default linfed's), or None.

    If tracked files of the folder or of linfed have uncommitted changes, "and changes" is appended.
    """
    package = FOLDER
    found = _git(folder or package, "rev-parse", "HEAD")
    if not found or not _git(folder or package, "ls-files", "--", "."):  # installed within another project's checkout
        return None
    folders = [package] if folder is None else [folder, package]
    changed = any(_git(one, "status", "--porcelain", "--untracked-files=no", "--", ".") for one in folders)
    return f"{found} and changes" if changed else found


@functools.cache
def commit_date(commit: str) -> str:
    """Return the date of a commit in linfed's git checkout, e.g. ``2026-01-31``, or an empty text if it is unknown."""
    known = re.match("[0-9a-f]{40}", commit)
    return _git(FOLDER, "show", "-s", "--format=%cs", known[0]) if known else ""


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command in a folder, or "" if it fails."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
