"""Execute the notebooks beside this file, top to bottom in a fresh kernel each, and store their outputs.

``python notebooks/execute.py`` does all of them, ``python notebooks/execute.py 4_flute`` one; it needs the extra
``notebooks``.
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
"""Seconds that one cell may take."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""All that is stored of the kernel: no version, no path."""


def executed(path: Path) -> Any:
    """Return a notebook after running its cells in a fresh kernel, without a trace of when and where."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    os.environ.pop("MPLBACKEND", None)  # the kernel then has a notebook's own
    quiet: dict[str, Any] = {"record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(FOLDER.parent)}}, **quiet).execute()
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata = nbformat.from_dict(METADATA)
    return notebook


def main(names: list[str]) -> None:
    """Execute and store the notebooks of these names, all by default."""
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"unknown notebook {unknown[0]!r}; there are {', '.join(known)}")
    for name in names or known:
        started = time.perf_counter()
        nbformat.write(executed(known[name]), known[name])
        size = known[name].stat().st_size / 1000
        print(f"{name}: {time.perf_counter() - started:.0f} s, {size:.0f} kB")


if __name__ == "__main__":
    main([Path(name).stem for name in sys.argv[1:]])
