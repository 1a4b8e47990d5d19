"""Every notebook runs in a fresh kernel, from the first cell to the last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"


@pytest.mark.filterwarnings("default")  # what the notebook runner itself warns of is not ours to mend
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER.parent)}})
    client.execute()
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert ran
    assert all(cell.execution_count for cell in ran)
