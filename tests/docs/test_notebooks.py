"""Every notebook runs in a fresh kernel, its cells are short, and its values are those that its text describes."""

import inspect
import re
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ROOT

nbformat = pytest.importorskip("nbformat")
pytestmark = pytest.mark.long

FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"), key=lambda path: int(path.stem.partition("_")[0]))
LONGEST = 15
"""Lines of a code cell."""

code_hash = runpy.run_path(str(FOLDER / "execute.py"))["code_hash"]


# --- values: each function runs in the notebook's kernel, and its arguments are the notebook's variables -----------


def check_1(factor, large, small, rounds, at_five, distance, needed, predicted):
    assert factor.max() < 2
    assert small[20] > large[20]  # the smaller step size is slower
    assert small[-1] < large[-1]  # and ends lower
    assert 0 < rounds["FedRep"] < rounds["GD-GD"]
    assert at_five["FedRep"] < 2 * at_five["Oracle"]
    assert min(at_five["FedAvg"], at_five["LocalOnly"]) > 100 * at_five["FedRep"]
    assert distance < 1e-12  # no noise: B* itself
    assert needed[1] - 2 <= np.median(predicted) <= needed[2] + 2


def check_2(found, LAWS, fits, errors, answer):
    assert all(row["censored"] == "" for row in found)
    assert all(abs(row["n_samples"] - row["predicted"]) <= 1 for row in found)
    free = [name for name in LAWS if "free exponents" in name]
    assert all(fits[name].max_factor < 1.02 for name in free)
    assert fits["offset, d k/n"].max_factor < 1.05
    assert fits["theorem's shape"].max_factor > 2
    assert all(fit.p_value < 0.05 for fit in fits.values())
    assert abs(errors["lf.predict"]) < 0.01
    assert all(abs(errors["offset, d k/n"]) < abs(errors[name]) for name in free)
    assert abs(answer["n_clients"] - answer["predicted"]) <= 1


def check_3(failing, violations, looseness, required, smallest, errors, predictions):
    assert not failing[250]
    assert failing[12]
    assert violations == 0
    assert min(looseness.values()) > 1e4
    assert smallest < required / 10
    assert errors["large sizes"]["lf.predict"] < 1.02
    assert errors["large sizes"]["state evolution"] < 1.1
    assert all(errors[name]["state evolution"] > 1.1 for name in errors if name.startswith(("5 of", "few", "initial")))
    assert all(by["lf.predict"] <= by["state evolution"] * 1.01 for by in errors.values())
    assert all(by["state evolution"] < by["rate near B*"] for by in errors.values())
    assert all(predictions[name].warnings for name, by in errors.items() if by["lf.predict"] > 1.05)


def check_4(end, floor, slope, rate, finals, gains, errors):
    assert 0.85 < end / floor < 1.05
    assert abs(np.log(slope) / np.log(rate) - 1) < 0.02
    assert max(finals) < 1.01 * min(finals)
    assert gains["0.03"] > 2
    assert gains["tuned"] < 1
    local, known = (np.array(errors[name]) for name in ("local ridge", "U_k known, heads by ridge"))
    assert (local < errors["FLUTE, k = 4"]).all()
    assert (local[2:] < known[2:]).all()  # from m = 8 on
    assert known[0] < local[0]


def check_5(distance, sizes, gaps, multiples, expected, ends):
    assert all((value < 0.2) if name == "FedRep, no shortcut" else (value > 0.9) for name, value in distance.items())
    assert max(gaps.values()) < 1e-10
    assert sizes["(2)-(5), new head"] < 1e-10 < sizes["(2)-(5)"]
    assert all(abs(mean - expected[name]) < 4 * error for name, (mean, error) in multiples.items())
    assert multiples["(2)-(5)"][0] < -5 * multiples["(2)-(5)"][1]
    assert all(end.get("subspace_distance", 0.0) < 0.2 for end in ends.values())
    error = {key: end["parameter_error"] for key, end in ends.items()}
    for samples in (10, 40):
        assert abs(error[samples, "joint ridge"] / error[samples, "FedRep, ridge at the end"] - 1) < 0.05
    assert error[10, "joint ridge"] < 0.5 * error[10, "local least squares"]
    assert error[40, "local least squares"] == min(value for (samples, _), value in error.items() if samples == 40)


def check_6(lf, rounds, floors, ITERATIVE, ONE_ROUND, ends, SAME, last, apart):
    assert rounds["ScaledFedRep"][-1] < 2 * rounds["ScaledFedRep"][0]
    assert rounds["FedRep"][-1] > 10 * rounds["ScaledFedRep"][-1]
    fedrep, fast, slow = floors.values()
    assert fast > 2 * fedrep > 2 * slow
    compared = {type(algorithm).__name__ for algorithm in (ITERATIVE | ONE_ROUND).values()}
    representations = {"ScaledFedRep", "FedRep", "FedRepShortcut", "FedPer", "LGFedAvg", "FedRoD", "FLUTE"}
    assert compared == {*representations, "FedAvg", "Personalized", "PooledLeastSquares", "LocalOnly", "Oracle"}
    assert SAME[0] == "FLUTE"
    assert apart.sum() == 1
    assert (last[0, apart] < 0.2 * last[1:, apart]).all()
    converged = [ends[name] for name in SAME]
    assert max(converged) < 1.1 * min(converged)
    assert min(ends["Personalized"], ends["FedRepShortcut"]) > 2 * max(converged)
    assert ends["LocalOnly, ridge"] > 10 * max(converged)
    assert ends["PooledLeastSquares"] > ends["LocalOnly, ridge"]
    assert abs(ends["FedRoD"] / ends["FedAvg + FT"] - 1) < 0.05  # its B is FedAvg's
    assert ends["LGFedAvg"] > ends["LocalOnly"]  # nor does it share a B


def check_7(result, peak, factor, p_values, p_control):
    assert result.engine == "projected"
    assert peak < 2
    assert factor.max() < 1.05
    assert min(p_values) > 1e-3
    assert min(p_control) < 1e-6


def check_8(loss, gains, best, means):
    for samples in (10, 20, 40, 80):
        gain, error = gains[samples, True]
        assert gain > max(8, 5 * error)  # whitened: surely
        assert abs(gains[samples, False][0]) < 6  # in heights: hardly
        assert -2 < best[samples][0] < 10
        fedrep = loss("FedRep", samples, True).mean()
        assert fedrep < loss("principal components", samples, True).mean()
        assert fedrep < 1.01 * loss("FedRep", samples, False).mean()
    for samples in (10, 20):
        others = [loss(name, samples, True).mean() for name in ("local least squares", "one model for all")]
        assert loss("FedRep", samples, True).mean() < 0.7 * min(others)
    assert means["one model for all"] == min(means.values())


def check_9(findings, exponent):
    verdicts = {setting: finding.verdict.value for setting, finding in findings.items()}
    assert (verdicts[4], verdicts[50]) == ("INCONCLUSIVE", "SUPPORTED")
    assert findings["n = 10"].estimate < findings[50].estimate
    _, low, high = exponent
    assert -0.6 < low < high < -0.4


def check_10(ends, measured, predicted, drift):
    assert ends["all"]["SCAFFOLD"] < 1e-10 > ends["8"]["SCAFFOLD"]
    assert ends["8"]["FedVARP"] < 1.1 * ends["all"]["FedAvg"] < 0.1 * ends["8"]["FedAvg"]
    assert abs(measured / predicted - 1) < 1e-6
    assert drift[0] < 1e-10 < drift[1] < drift[2] < drift[3] < drift[4]


def check_11(floors):
    assert all(np.allclose(np.divide(row[:-1], row[1:]), np.sqrt(2), rtol=0.1) for row in floors.values())
    assert np.allclose(np.divide(floors[50], floors[100]), np.sqrt(2), rtol=0.1)


def check_12(rmse, results, predicted):
    means = {name: values.mean() for name, values in rmse.items()}
    assert means["pooled ridge"] < 1.02 * min(means.values())
    assert max(means, key=means.get) == "local ridge"
    assert results["FedRep"].errors()["samples"].sum() == 110
    assert predicted.shape == (5, 1)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # the notebook runner's warnings are not ours
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    stored = nbformat.read(path, as_version=4)
    check = globals()[f"check_{path.stem.partition('_')[0]}"]
    names = ", ".join(f"{name}={name}" for name in inspect.signature(check).parameters)
    more = ["import numpy as np", f"{inspect.getsource(check)}\n\n{check.__name__}({names})"]
    cells = run([*(cell.source for cell in code_cells(stored)), *more], monkeypatch)
    assert all(cell.execution_count for cell in cells)
    ran = cells[: -len(more)]
    assert [len(images(cell)) for cell in ran] == [len(images(cell)) for cell in code_cells(stored)]
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)


def test_the_names_begin_with_their_numbers():
    assert [path.stem.partition("_")[0] for path in PATHS] == [str(number) for number in range(1, 13)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_whole(path):
    """Its cells are short, and its outputs are those of its code, without a trace of the machine."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    first, last = (notebook.cells[end].source for end in (0, -1))
    assert "After this notebook you can" in first
    assert re.search(r"Reading\s+takes about \d+ minutes, running (one minute|two minutes)\.", first)
    assert "## What to read next" in last
    cells = code_cells(notebook)
    assert any("lf.style()" in cell.source or "lf.panels(" in cell.source for cell in cells)
    for cell in cells:
        assert len(cell.source.splitlines()) <= LONGEST, cell.source
        assert "assert" not in cell.source, cell.source
        assert len(images(cell)) <= 1
        assert not any(output.get("name") == "stderr" for output in cell.outputs)
    assert notebook.metadata.code_hash == code_hash(notebook), f"python notebooks/execute.py {path.stem}"
    assert notebook.metadata.language_info == {"name": "python"}
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    text = path.read_text(encoding="utf-8")
    assert not any(place in text for place in (str(FOLDER.parent), str(Path.home()), "ipykernel_", "widget-view"))
    assert all((FOLDER / link).is_file() for link in re.findall(r"\]\((\w+\.ipynb)\)", text))


def run(sources, monkeypatch):
    """Execute code in a new kernel, as cells, and return the cells."""
    nbclient = pytest.importorskip("nbclient", reason="pip install 'linfed[test-all]'")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel then uses the backend for notebooks
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    place = {"metadata": {"path": str(FOLDER.parent)}}
    client = partial(nbclient.NotebookClient, notebook, timeout=600, resources=place)
    try:
        client().execute()
    except RuntimeError as error:  # two kernels that start at the same time can choose the same port
        if "before replying" not in str(error):
            raise
        client().execute()
    return notebook.cells


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def images(cell):
    """Return the PNG images of a cell, in base64."""
    return [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
