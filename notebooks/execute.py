"""Execute the notebooks in this folder, each from top to bottom in a new kernel, and save their outputs.

``python notebooks/execute.py`` executes all notebooks, ``python notebooks/execute.py 4_flute`` one of them. This
requires the extra ``notebooks``, and notebook 12 also ``digits``.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

FOLDER = Path(__file__).parent
TIMEOUT = 600
"""Maximum run time of a cell in seconds."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""Metadata saved for the kernel, without versions and paths."""
WIDGET = "application/vnd.jupyter.widget-view+json"


def code_hash(notebook: Any) -> str:
    """Return a hash of the code of all cells, saved with the outputs that this code produced."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def small_png(text: str) -> str:
    """Return a PNG, in base64, with a palette of 256 colours: a third of the bytes, and for figures no visible loss."""
    file = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(file, format="PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def executed(notebook: Any) -> Any:
    """Run a notebook's cells in a new kernel and return the notebook, without times, paths and widgets."""
    from nbclient import NotebookClient

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    os.environ.pop("MPLBACKEND", None)  # so that the kernel uses the backend for notebooks
    quiet: dict[str, Any] = {"record_timing": False, "coalesce_streams": True, "store_widget_state": False}
    NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(FOLDER.parent)}}, **quiet).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":  # a saved widget is dead
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = small_png(output.data["image/png"])
    notebook.metadata = nbformat.from_dict(METADATA | {"code_hash": code_hash(notebook)})
    return notebook


def main(names: list[str]) -> None:
    """Execute and save the notebooks with these names, all by default."""
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"notebook {unknown[0]!r} is unknown; allowed: {', '.join(known)}")
    for name in names or known:
        started = time.perf_counter()
        nbformat.write(executed(nbformat.read(known[name], as_version=4)), known[name])
        size = known[name].stat().st_size / 1000
        print(f"{name}: {time.perf_counter() - started:.0f} s, {size:.0f} kB")


if __name__ == "__main__":
    main([Path(name).stem for name in sys.argv[1:]])
