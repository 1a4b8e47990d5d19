"""Each extra of the package is sufficient by itself: nothing that it does not declare can be imported."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from tests.helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

HIDDEN = """
import sys
allowed, top = {allowed!r}, {top!r}
sys.path.insert(0, top)
from importlib import metadata

owners = metadata.packages_distributions()

class Shown:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        found = owners.get(name.partition(".")[0], [])
        hidden = found and not any(one.lower().replace("_", "-").replace(".", "-") in allowed for one in found)
        return None if hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Shown, sys.meta_path)
import linfed as lf
problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.3), problem=problem, data=lf.FreshSamples(9), n_rounds=3, trials=6)
"""

PROMISES = {
    "": """
result = run.simulate()
lf.predict(result).distance
result.plot("risk").figure.savefig("risk.png")
lf.sweep(lf.grid(run, seed=(0, 1)), workers=2).to_csv("table.csv")
print(lf.sweep([run]).summarize("risk", rows="seed"))
""",
    "tables": """
result, table = run.simulate(), lf.sweep(lf.grid(run, seed=(0, 1)))
result.to_pandas(), result.to_xarray(), table.to_pandas(), table.to_xarray("seed")
summary = table.summarize("risk", rows="seed")
summary.to_pandas(), summary.to_markdown()
assert "toprule" in summary.to_latex(caption="c", label="t")
""",
    "digits": "assert lf.load_digits()[0].shape == (1797, 64)",
    "parallel": """
import __main__
from linfed.system.processes import worker_pool
del __main__.__file__  # as in a notebook
lf.sweep(lf.grid(run, seed=(0, 1)), workers=2)
""",
    "cluster": """
from dask.distributed import Client
with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    lf.sweep(lf.grid(run, seed=(0, 1)), executor=client.get_executor(pure=False))
import mpi4py
""",
    "notebooks": """
import sys
sys.path.insert(0, top + "/notebooks")
import nbformat.v4 as v4
from execute import executed
cell = v4.new_code_cell("import linfed as lf, ipywidgets; print(lf.FedRep.__name__)")
assert "FedRep" in str(executed(v4.new_notebook(cells=[cell])).cells[0].outputs)
""",
}
"""What a user of each extra can do; without a name, of the package alone."""

FOR_DEVELOPERS = {"test", "test-all", "lint", "docs", "privacy", "bench"}
"""Extras that sessions of nox install, each in an environment of its own."""


def name_of(requirement):
    return re.sub(r"[-_.]+", "-", requirement).lower()


def needed(requirements, found):
    """Add the names of installed distributions that requirements need, and of what these need; raise if one misses."""
    for text in requirements:
        requirement = Requirement(text)
        for extra in requirement.extras or {""}:
            key = (name_of(requirement.name), extra)
            if key in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
                continue
            found.add(key)
            further = metadata.requires(requirement.name) or []
            of_extra = [
                each for each in map(Requirement, further) if not each.marker or each.marker.evaluate({"extra": extra})
            ]
            needed([re.sub(r";.*", "", str(each)) for each in of_extra], found)
    return found


def test_every_extra_is_for_users_or_for_developers():
    assert {*PROJECT["optional-dependencies"]} == {*PROMISES} - {""} | FOR_DEVELOPERS


@pytest.mark.long
@pytest.mark.parametrize("extra", PROMISES)
def test_an_extra_is_sufficient_by_itself(extra, tmp_path):
    requirements = PROJECT["dependencies"] + PROJECT["optional-dependencies"].get(extra, [])
    try:
        allowed = {name for name, _ in needed(requirements, set())} | {"linfed"}
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed")
    (tmp_path / "use.py").write_text(
        "if __name__ == '__main__':\n"
        + "".join(
            f"    {line}\n" for line in (HIDDEN.format(allowed=allowed, top=str(ROOT)) + PROMISES[extra]).splitlines()
        ),
        "utf-8",
    )
    done = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
def test_what_an_extra_does_not_declare_is_hidden(tmp_path):
    (tmp_path / "use.py").write_text(
        HIDDEN.format(allowed={"numpy", "linfed"}, top=str(ROOT)) + "import pytest", "utf-8"
    )
    done = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "No module named" in done.stderr
