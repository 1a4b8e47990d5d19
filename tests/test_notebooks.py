"""Every notebook runs in a fresh kernel, from the first cell to the last, and shows what it draws."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
DRAWS = re.compile(r"\bplt\.\w|\.plot\(|\blf\.panels\(")
LARGEST = 400_000
"""Bytes of a notebook with its outputs."""


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # what the notebook runner itself warns of is not ours to mend
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel then has a notebook's own
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER.parent)}})
    client.execute()
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert ran
    assert all(cell.execution_count for cell in ran)
    check_outputs(ran)


def test_there_are_eight():
    """Their names begin with their numbers, and the first ends with links to others that exist."""
    assert [path.stem[:2] for path in PATHS] == [f"{number}_" for number in range(1, 9)]
    for path in PATHS:
        links = re.findall(r"\]\((\w+\.ipynb)\)", path.read_text())
        assert all((FOLDER / link).is_file() for link in links), path.stem


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_stored_outputs_are_whole(path):
    """What a reader sees who does not run it, and no trace of where and when it was run."""
    assert path.stat().st_size < LARGEST
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.language_info == {"name": "python"}
    assert all(cell.metadata == {} for cell in notebook.cells)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(place in path.read_text() for place in (str(FOLDER.parent), str(Path.home()), "ipykernel_"))
    check_outputs(cells)
    assert any("assert " in cell.source for cell in cells)


def check_outputs(cells):
    """Assert that a cell that draws shows one image, any other none, and that no cell warns."""
    for cell in cells:
        shown = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        draws = DRAWS.search(cell.source) is not None
        assert len(shown) == draws, cell.source
        errors = "".join(output.text for output in cell.outputs if output.get("name") == "stderr")
        assert "Warning" not in errors, errors
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
