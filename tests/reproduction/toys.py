"""Experiments that are small enough for a test, and the commands that run them."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from linfed import cli
from tests.helpers import own_folder

SAVEFIG = Figure.savefig

TOY = '''
"""An experiment small enough for a test."""
from dataclasses import dataclass
import numpy as np
from linfed.tables.grid import grid
from linfed.statistics.findings import judge

SUMMARY = "a toy"

@dataclass(frozen=True)
class Cell:
    number: int = 0
    size: int = 100
    trials: int = 5
    seed: int = 0

    def run(self):
        with open("ran.txt", "a") as file:
            file.write(f"{self.number} ")
        if self.number == 2 and self.seed == 13:
            raise RuntimeError("unlucky")
        return {"value": np.full(self.trials, self.number + self.size)}

def cells(quick):
    return {"values": grid(Cell(size=3 if quick else 100), number=range(3))}

def plot(tables):
    from matplotlib.figure import Figure
    figure = Figure()
    figure.subplots().plot(tables["values"]["value"].ravel())
    return {"": figure, "again": figure}

def claims(tables):
    low = float(tables["values"]["value"].min())
    return [judge((low, low, low), claim="values are large", setting="toy", statistic="least value", source="toy",
                  claimed_low=50.0, strict=True, note="a note")]
'''
"""Each cell that runs writes its number to ``ran.txt``; cell 2 fails with seed 13."""

GRID = """
import linfed as lf

def cells(quick):
    problem = lf.SharedRepresentation(n_clients=12, dim=8, rank=2)
    fedrep = lf.FedRep(rank=2, step_size=0.5)
    run = lf.Run(algorithm=fedrep, problem=problem, data=lf.FreshSamples(8), n_rounds=2 if quick else 5, trials=3)
    return lf.grid(run, algorithm=(fedrep, lf.FedAvg(rank=2, step_size=0.1)), **{"problem.n_clients": (12, 16)})
"""
"""A file with cells alone: it has no claims, and the default figure."""


def write(name, text):
    """Write a file in a folder that need not exist, and return its path."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def package(folder, **modules):
    """Write a folder of experiments, by default with the toy ``toy-one``, and return its path.

    Its name is one of its own, because imported modules are cached by name.
    """
    experiments = folder / f"experiments_{folder.name}"
    write(experiments / "__init__.py", "")
    for name, text in (modules or {"toy_one": TOY}).items():
        write(experiments / f"{name}.py", text)
    return experiments


def run(*arguments):
    """Run a command, and return its exit status."""
    return cli.main([str(argument) for argument in arguments])


def refused(capsys, *arguments, status=2):
    """Run a command that must fail with one line before it prints anything, and return the line."""
    capsys.readouterr()
    try:
        found = run(*arguments)
    except SystemExit as stopped:  # of the parser
        found = stopped.code
    assert found == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules and path are gone afterwards; figures are coarse and have no PDF."""
    with own_folder(tmp_path, monkeypatch):
        yield tmp_path
    plt.close("all")


@pytest.fixture
def toy(folder):
    """A folder of experiments with ``toy-one``, in the current folder."""
    return package(folder)


@pytest.fixture
def pdfs(folder, monkeypatch):
    """Let figures be saved as PDF too; fonts take longer than what else most tests do."""
    monkeypatch.setattr(Figure, "savefig", SAVEFIG)
