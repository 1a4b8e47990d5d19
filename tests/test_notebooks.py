"""Every notebook runs in a fresh kernel, from the first cell to the last, and shows what it draws."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"


@pytest.mark.filterwarnings("default")  # what the notebook runner itself warns of is not ours to mend
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel then has a notebook's own
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER.parent)}})
    client.execute()
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert ran
    assert all(cell.execution_count for cell in ran)
    check_outputs(ran)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_stored_outputs_are_whole(path):
    """What a reader sees who does not run it."""
    check_outputs([cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"])


def check_outputs(cells):
    """Assert that a cell that draws shows one image, any other none, and that no cell warns."""
    for cell in cells:
        shown = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        draws = re.search(r"\bplt\.\w|\.plot\(", cell.source) is not None
        assert len(shown) == draws, cell.source
        errors = "".join(output.text for output in cell.outputs if output.get("name") == "stderr")
        assert "Warning" not in errors, errors
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
