"""Execute the notebooks in this folder, each from top to bottom in a new kernel, and save their outputs.

``python notebooks/execute.py`` executes all notebooks, ``python notebooks/execute.py 4_flute`` one of them. This
requires the extra ``notebooks``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
TIMEOUT = 600
"""Maximum run time of a cell in seconds."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""Metadata saved for the kernel, without versions and paths."""


def executed(path: Path) -> Any:
    """Run a notebook's cells in a new kernel and return the notebook, without times and paths."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    os.environ.pop("MPLBACKEND", None)  # so that the kernel uses the backend for notebooks
    quiet: dict[str, Any] = {"record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(FOLDER.parent)}}, **quiet).execute()
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata = nbformat.from_dict(METADATA)
    return notebook


def main(names: list[str]) -> None:
    """Execute and save the notebooks with these names, all by default."""
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"notebook {unknown[0]!r} is unknown; allowed: {', '.join(known)}")
    for name in names or known:
        started = time.perf_counter()
        nbformat.write(executed(known[name]), known[name])
        size = known[name].stat().st_size / 1000
        print(f"{name}: {time.perf_counter() - started:.0f} s, {size:.0f} kB")


if __name__ == "__main__":
    main([Path(name).stem for name in sys.argv[1:]])
