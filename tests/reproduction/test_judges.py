"""Figures and claims depend on an experiment's tables alone: on no default of its cells, and no cell made anew."""

import ast
import functools
import importlib.util
import inspect
import sys
import types
from dataclasses import fields, is_dataclass, replace

import pytest

import linfed as lf
from linfed.reproduction.experiments import experiment_files, load
from tests.helpers import ROOT, cleared, each, findings

FOLDER = ROOT / "experiments"
EXPERIMENTS = tuple(experiment_files(FOLDER))
MARKERS = ("POPULATION",)
"""Numbers that are defaults of cells and stand for a kind: 0 samples for exact moments."""


@functools.cache
def modules():
    """Return all modules of the experiments by name, those that they share too."""
    load(EXPERIMENTS[0], FOLDER)  # their folder becomes importable
    paths = [path.relative_to(FOLDER.parent) for path in FOLDER.rglob("*.py") if path.stem != "__init__"]
    names = [".".join(path.with_suffix("").parts) for path in paths]
    return {name: importlib.import_module(name) for name in names}


@functools.cache
def cell_classes():
    """Return the classes of the experiments' cells, and those that they inherit fields from."""
    found = [one for module in modules().values() for one in vars(module).values() if inspect.isclass(one)]
    mros = [inspect.getmro(one) for one in found if hasattr(one, "run") and one.__module__ in modules()]
    return {one for mro in mros for one in mro if one.__module__ in modules()}


def is_size(value):
    """Return whether a value is a number, or a sequence of them."""
    several = value if isinstance(value, tuple) and value else (value,)
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in several)


def named(node):
    """Return the names that are read in a node."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


@functools.cache
def forbidden(module):
    """Return which names of a module judges may not read, each with the reason.

    Classes of cells; constants that are computed from one; numbers that are the default of a cell's field; and all of
    these where they are imported.
    """
    found = {n: "a class of cells" for n, v in vars(module).items() if inspect.isclass(v) and v in cell_classes()}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            name = importlib.util.resolve_name("." * node.level + node.module, module.__package__)
            theirs = forbidden(modules()[name])
            found |= {one.asname or one.name: theirs[one.name] for one in node.names if one.name in theirs}
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            used = {name for name in named(node.value) if found.get(name, "").endswith("of cells")}
            found |= {one.id: f"computed from {min(used)}" for one in targets if used and isinstance(one, ast.Name)}
        if isinstance(node, ast.ClassDef) and vars(module)[node.name] in cell_classes():
            defaults = [one.value for one in node.body if isinstance(one, ast.AnnAssign) and one.value is not None]
            used = {name for one in defaults for name in named(one) if is_size(vars(module).get(name))}
            found |= dict.fromkeys(used - {*MARKERS}, f"a default of {node.name}")
    return found


def codes(code):
    """Yield a code object and all that lie within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def parts(value, seen=None):
    """Yield a value and what lies within it.

    These are the values of dictionaries, sequences, dataclasses (claims and their statistics) and partial functions,
    and what functions keep: their defaults, and variables of the functions that made them.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, types.FunctionType):
        kept = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        inner = [*kept, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, one.name) for one in fields(value)]
    for one in inner:
        yield from parts(one, seen)


def judged_by(module):
    """Yield the names by which an experiment judges, and each name that the statement of ``CLAIMS`` reads."""
    yield from (one for one in ("CLAIMS", "claims", "derived", "plot") if one in vars(module))
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CLAIMS":
            yield from sorted(named(node.value) & vars(module).keys())


def reads(function, seen):
    """Yield what a function, and those of the experiments that it names, reads and should not."""
    if function in seen:
        return
    seen.add(function)
    module = inspect.getmodule(function)
    for code in codes(function.__code__):
        for name in code.co_names:  # globals, and attributes of modules
            of = [module, *(one for one in map(vars(module).get, code.co_names) if one in modules().values())]
            for owner in of:
                if name in vars(owner):
                    yield from read(function.__qualname__, owner, name, seen)
    yield from within(function.__qualname__, list(parts(function))[1:], "its variables", seen)


def read(reader, module, name, seen):
    """Yield what is wrong with reading a name of a module, and with the functions that are in its value."""
    if name in forbidden(module):
        yield f"{reader} reads {name}, {forbidden(module)[name]}"
    else:
        yield from within(reader, parts(vars(module)[name]), name, seen)


def within(reader, values, name, seen):
    """Yield what is wrong with values: classes of cells, and what functions among them read."""
    for value in values:
        if isinstance(value, types.FunctionType) and value.__module__ in modules():
            yield from reads(value, seen)
        elif inspect.isclass(value) and value in cell_classes():
            yield f"{reader} reads {value.__name__}, in {name}"


@pytest.mark.long
@each("name", EXPERIMENTS)
def test_no_judge_reads_a_default(name):
    module = modules()[load(name, FOLDER).__name__]
    seen = set()
    assert [wrong for one in judged_by(module) for wrong in read("CLAIMS", module, one, seen)] == []
    assert len(seen) > 1


WRONG = """
import functools
from dataclasses import dataclass

import linfed.claims as c

from ..flute.flute_theorem51 import SWEEPS
from .shortcut_lost import Loss
from . import shortcut_lost

FEW = 7
SMALL = 0.1

@dataclass
class Base:
    few: int = FEW

@dataclass
class Cell(Base):
    def run(self):
        return {}

LATE = Base.few + 1

def late(tables):
    return LATE

HOW = {"why": [functools.partial(late, {})]}

def of_a_class(tables):
    return Cell.few

def made(tables):
    return [one for one in (Cell(few=2),)]

def inherited(tables):
    return lambda: Base.few

def imported(tables):
    return Loss.rounds

def in_another_module(tables):
    return shortcut_lost.Loss.rounds

def a_default(tables):
    return max(FEW, 1)

def further_on(tables):
    return HOW

def kept(rate):
    return lambda rows: (rate, FEW)

def of_a_kept_function(tables):
    return CLAIMS

def of_a_default(tables, few=LATE, cell=Cell):
    return few

CLAIMS = [c.Claim("t", c.OWN_PREDICTION, c.measured("s", kept(0.1), c.at_most(1.0)))]

def right(tables):
    return tables["runs"]["few"], SMALL, SWEEPS, shortcut_lost.THEORY
"""


def test_a_default_that_is_read_is_found(monkeypatch, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    name = f"{FOLDER.name}.shortcut.wrong"
    spec = importlib.util.spec_from_file_location(name, tmp_path / "wrong.py")
    module, known = importlib.util.module_from_spec(spec), modules()
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(globals(), "modules", lambda: {**known, name: module})
    functions = [value for value in vars(module).values() if inspect.isfunction(value) and value.__module__ == name]
    with cleared(cell_classes):
        wrong = {function.__name__ for function in functions if list(reads(function, set()))}
        assert wrong == {function.__name__ for function in functions} - {"right"}
        assert [*read("CLAIMS", module, "CLAIMS", set())] == ["kept.<locals>.<lambda> reads FEW, a default of Base"]
        assert {*judged_by(module)} == {"CLAIMS", "c", "kept"}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::linfed.errors.GridEdgeWarning")  # two steps are tried
def test_claims_of_figure_4_are_of_the_tables_sizes():
    """Another k and d: what is said begins at these, and k is among the samples of a new client."""
    module = modules()["experiments.fedrep.fedrep_fig4"]
    cells = [cell for cell in module.cells(True)["clients"] if cell.preset == module.PAPER]
    cells = [replace(cell, dim=7, rank=4, trials=3, rounds=5, steps=cell.steps[:2]) for cell in cells]
    table = lf.Table.of(cells, [cell.run() for cell in cells])
    places = {}
    for claim in findings(module, {"clients": table}):
        places.setdefault(claim.claim, []).append(int(claim.setting.rpartition(" ")[2]))
    tried = [1, 2, 4, 5, 7, 10, 14, 20]
    assert table["n_new"].tolist() == tried
    assert places["FedRep's error on a new client is small once m_new >= k"] == tried[2:]
    assert places["FedAvg's error on a new client stays high"] == tried
    assert places["Local only's error is not small below m_new = d"] == tried[:4]
    assert places["Local only's error is small from m_new = d on"] == tried[4:]


def test_the_sizes_in_theorem_51s_places_are_the_tables():
    module = modules()["experiments.flute.flute_theorem51"]
    sizes = {"n_clients": [30, 40], "dim": [30, 30], "noise_std": [0.5, 0.5]}
    rows = [dict(zip(sizes, row, strict=True)) for row in zip(*sizes.values(), strict=True)]
    assert module.stays_at(lf.Table(rows)) == "d = 30"
    assert module.stays_at(lf.Table([rows[0], rows[0]])) == "n = d = 30"
    assert module.stays_at(lf.Table([rows[1] | {"noise_std": 0.0}])) == "n = 40, d = 30, no noise"
