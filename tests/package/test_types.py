"""Types: the documented examples, and classes of users, pass mypy."""

import doctest
import importlib
import pkgutil

import pytest

import linfed
from tests.helpers import ROOT

PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/laws/*.md")]

KNOWN = {
    "sorted(risks, key=risks.get)": "typeshed does not accept it",
    "ax.xaxis.label.get_size()": "matplotlib has no types for aliases",
    "[cell.seed for cell in store.missing(cells)]": "a cell need not have a seed",
}
"""Lines of examples that are right although mypy refuses them, with the reason."""

USE = """
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import linfed as lf
from linfed.algorithms.parts.base import InitContext
from linfed.data.batch import Batch


@dataclass(frozen=True, kw_only=True, repr=False)
class Moving(lf.State):
    direction: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Momentum(lf.Algorithm):
    rank: int
    requires = lf.Requires.FEATURES
    description = "momentum"

    def initial_state(self, start: InitContext) -> Moving:
        B = start.representation("random", self.rank)
        return Moving(B=B, W=np.zeros((start.trials, start.n_clients, self.rank)), direction=np.zeros_like(B))

    def step(self, state: Moving, batch: Batch, rng: object) -> Moving:
        fit = batch.project(state.B).fit()
        return state.update(B=state.B - state.direction, W=fit.W, direction=fit.representation_gradient())


for counts in ([12, 3], (12, 3), np.array([12, 3]), 12):
    lf.FreshSamples(counts)
numbers: Sequence[int] = [1, 2]
lf.FreshSamples(numbers)
problem = lf.SharedRepresentation(n_clients=5, dim=6, rank=2, noise_std=[0.1] * 5)
result = lf.simulate(Momentum(rank=2), problem, data=lf.FreshSamples([9] * 5), n_rounds=3)
lf.predict(result, trials=1)
result.plot("subspace_distance", prediction=lf.predict(result))
result.final.B.shape
problem.truth(0, [0]).W[0] @ problem.truth(0, [0]).B[0].T
grid = {"step_size": [0.1, 0.3]}
tuning = lf.tune(lf.FedRep(rank=2, step_size=0.1), problem, grid=grid, data=lf.FreshSamples(9), n_rounds=3)
lf.simulate(tuning.algorithm, problem, data=lf.FreshSamples(9), n_rounds=tuning.algorithm.rank)
"""

WRONG = [
    'lf.FreshSamples("12")',
    "lf.predict(result, n_rounds=3)",
    "lf.predict(lf.LocalOnly(), problem)",
    'result.plot("risk", prediction=True)',
    "lf.simulate(problem, problem, data=lf.FreshSamples(9), n_rounds=3)",
]
"""Calls that must not pass."""


def written(folder):
    """Write the code of every page and of every docstring as a module, without the calls that raise."""
    texts = {f"page_{page.stem}": doctest.DocTestParser().get_examples(page.read_text("utf-8")) for page in PAGES}
    finder = doctest.DocTestFinder()
    for module in pkgutil.walk_packages(linfed.__path__, "linfed."):
        if module.name.split(".")[1] not in ("__main__", "_shipped", "report", "commands", "cli"):
            texts |= {each.name: each.examples for each in finder.find(importlib.import_module(module.name))}
    for name, examples in texts.items():
        code = "".join(each.source for each in examples if not each.exc_msg)
        if "linfed as lf" in code:
            (folder / f"{name.replace('.', '_').replace('-', '_')}.py").write_text(code, "utf-8")


@pytest.mark.long
def test_documented_calls_and_own_classes_pass_mypy(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api", reason="pip install 'linfed[lint]'")
    written(tmp_path)
    (tmp_path / "use.py").write_text(USE, "utf-8")
    (tmp_path / "wrong.py").write_text(USE + "\n".join(WRONG) + "\n", "utf-8")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    options = ["--python-version=3.11", "--check-untyped-defs", "--ignore-missing-imports", "--follow-imports=silent"]
    found = api.run([".", *options, "--no-error-summary", "--cache-dir=cache", "--config-file="])[0]
    lines = [line.split(":", 2) for line in found.splitlines() if ": error: " in line]
    refused = [(file, (tmp_path / file).read_text("utf-8").splitlines()[int(at) - 1], text) for file, at, text in lines]
    assert {line for file, line, _ in refused if file == "wrong.py"} == {*WRONG}
    # mypy gives all values of a dict of keywords one type, and does not know the names of a docstring's module.
    allowed = ["wrong.py", "**", *KNOWN, "[name-defined]"]
    unexpected = [line for line in map(" | ".join, refused) if not any(text in line for text in allowed)]
    assert not unexpected, "\n".join(unexpected)
    assert len(list(tmp_path.glob("*.py"))) > 200
