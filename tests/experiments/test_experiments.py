"""Every experiment runs in ``--quick``, declares what it shows, and judges and draws from its tables alone."""

import dataclasses
import inspect
import re
import sys
from collections import defaultdict

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

import linfed as lf
from docs.tools import pictures
from linfed import cli
from linfed.errors import UsageError
from linfed.figures import style
from linfed.reproduction.experiments import SHARED, cells_of, experiment_files, load, shared_modules
from linfed.reproduction.own_settings import check_cells, with_settings
from linfed.reproduction.record import ResultsFolder
from linfed.reproduction.run import load_tables
from linfed.statistics.findings import by_sentence
from tests.helpers import ROOT, findings, png_alone, whole

FOLDER = ROOT / "experiments"
FILES = experiment_files(FOLDER)
COMMITTED = ResultsFolder(ROOT / "results" / "committed")


# --- quick runs ------------------------------------------------------------------------------------------------------


def quick_run(name, out, workers):
    """Run an experiment in --quick, check what it wrote, and return its module, its record and its tables."""
    command = ["reproduce", name, "--quick", "--experiments", str(FOLDER), "--out", str(out), "--workers", workers]
    assert cli.main(command) == 0
    folder, module = ResultsFolder(out), load(name, FOLDER)
    record = folder.read(name)
    tables = load_tables(record, folder)
    assert all(len(table) for table in tables.values())
    assert record.claims
    assert all(len(claim.source) > 8 and claim.claimed_range for claim in record.claims)
    for key, caption in record.figures.items():
        assert all(folder.figure(name, key, suffix).exists() for suffix in (".png", ".pdf"))
        assert folder.figure(name, key, ".txt").read_text(encoding="utf-8") == f"{caption}\n"
        assert caption.startswith(module.CAPTIONS[key])
        ranked = any("rank" in table.columns for table in tables.values())  # one layer has no k
        sizes = ("d = ", *(("k = ",) if ranked else ()), "n = ", "trials")
        assert all(re.search(rf"\b{size}", caption) for size in sizes)
    return module, record, tables


class Poisoned:
    """In the place of a default, or of what makes a cell: reading it is an error."""

    def __get__(self, instance, owner):
        raise AssertionError(f"a judge read a default of {owner.__name__}, or made one")


def cell_classes():
    """Return the classes of cells in the imported experiments, and those that they inherit fields from."""
    modules = [module for name, module in sys.modules.items() if name.startswith("experiments.")]
    found = [one for module in modules for one in vars(module).values() if inspect.isclass(one)]
    mros = [inspect.getmro(one) for one in found if dataclasses.is_dataclass(one) and hasattr(one, "run")]
    return {one for mro in mros for one in mro if one.__module__.startswith("experiments.")}


def poison(monkeypatch):
    """Let nobody read a default of a cell, or make a cell."""
    for cell in cell_classes():
        for default in [*cell.__dataclass_fields__, "__init__"]:
            if default in vars(cell) and hasattr(cell, default):
                monkeypatch.setattr(cell, default, Poisoned())


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_a_quick_run_is_whole_and_is_judged_and_drawn_from_its_tables_alone(name, tmp_path, monkeypatch):
    """So claims and figures hold at other sizes."""
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 20)
    monkeypatch.setattr(Figure, "savefig", png_alone)
    module, record, tables = quick_run(name, tmp_path, "1")
    poison(monkeypatch)
    claims = by_sentence(findings(module, tables))
    assert [claim.verdict for claim in claims] == [claim.verdict for claim in record.claims]
    assert [*module.plot(whole(module, tables))] == list(record.figures)
    plt.close("all")


def test_a_default_that_is_read_is_found(monkeypatch):
    cell = type(cells_of(load("fedrep-fig4", FOLDER), quick=True)["clients"][0])
    assert cell().rank == cell.rank == 2
    poison(monkeypatch)
    for reads in (lambda: cell.rank, cell):
        with pytest.raises(AssertionError, match="a judge read a default of NewClients, or made one"):
            reads()


@pytest.mark.long
def test_an_experiment_runs_as_a_user_runs_it(tmp_path):
    """In worker processes, with figures as they are for a paper."""
    quick_run("fedrep-near-truth", tmp_path, "2")
    (path,) = tmp_path.glob("*.pdf")
    written = path.read_bytes()
    assert b"/FontFile2" in written
    assert b"/Type3" not in written


# --- declarations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_committed_findings_are_of_the_declared_claims(name):
    """Each sentence is judged, with its source, to which a judge may add, and whose it is."""
    declared, found = load(name, FOLDER).CLAIMS, COMMITTED.read(name).claims
    assert {one.claim for one in found} == {claim.sentence for claim in declared}
    for one in found:
        sources = [claim.source for claim in declared if claim.sentence == one.claim]
        assert any(one.source.startswith(source) and one.origin is source.origin for source in sources), one


DECIDING = {"fedrep-unequal-heads": {"name"}, "flute-fig2": {"objective", "kind"}, "flute-lemma-a18": {"kind"}}
"""Labels that no other field tells, by experiment: their words decide what is run."""


def is_label(cell, name):
    """Return whether a field is declared to name only what other fields say."""
    return getattr(inspect.getattr_static(cell, name, None), "label", False)


@pytest.mark.parametrize("name", FILES)
def test_no_run_has_two_labels(name):
    """It would be judged twice, or count as two of the settings of a claim."""
    seen = {}
    for key, cells in cells_of(load(name, FOLDER), quick=False).items():
        for cell in cells:
            names = [field.name for field in dataclasses.fields(cell)]
            told = [one for one in names if one in DECIDING.get(name, ()) or not is_label(cell, one)]
            run = type(cell), *(repr(getattr(cell, one)) for one in told)
            assert run not in seen, f"{seen[run]} and {key}: {cell}"
            seen[run] = f"{key}: {cell}"


def test_every_picture_of_the_pages_has_a_caption_and_every_experiment_a_picture():
    shown = defaultdict(set)
    for name, key, _ in pictures.PICTURES.values():
        shown[name].add(key)
    assert shown.keys() == FILES.keys()
    for name, keys in shown.items():
        captions = load(name, FOLDER).CAPTIONS
        assert keys <= captions.keys(), name
        assert all(text.endswith(".") for text in captions.values()), name


def test_a_helper_module_serves_experiments_of_its_room_or_of_several():
    users = defaultdict(list)
    for path in FILES.values():
        for helper in shared_modules(path):
            users[helper].append(path)
    helpers = {path for path in FOLDER.rglob("*.py") if path not in FILES.values() and path.name != "__init__.py"}
    assert helpers
    for path in helpers:
        assert len(users[path]) > 1, path
        rooms = {user.parent for user in users[path]}
        assert rooms == {path.parent} if path.parent.name != SHARED else len(rooms) > 1, path


# --- words -----------------------------------------------------------------------------------------------------------


def one_of_each_class(cells):
    """Return the first cell of each class, and of each class of its fields."""
    return list({(type(cell), *map(type, vars(cell).values())): cell for cell in reversed(cells)}.values())


def word_fields(cell, prefix=""):
    """Yield the path, the value and the owner of each field with words or truth values, also of fields within it."""
    for field in dataclasses.fields(cell):
        value = getattr(cell, field.name)
        parts = value if isinstance(value, tuple) and value else (value,)
        if dataclasses.is_dataclass(value):
            yield from word_fields(value, f"{prefix}{field.name}.")
        elif field.init and (field.type in ("str", "bool") or all(isinstance(one, str | bool) for one in parts)):
            yield f"{prefix}{field.name}", value, cell


@pytest.mark.parametrize("name", FILES)
def test_nonsense_is_refused_in_every_word_field(name):
    """An `lf.Run` checks its own fields by its method ``check()``, before a sweep; all others when they are made."""
    module, of_run = load(name, FOLDER), {field.name for field in dataclasses.fields(lf.Run)}
    for key, cells in cells_of(module, quick=True).items():
        for cell in one_of_each_class(cells):
            for path, value, owner in word_fields(cell):
                field = path.rpartition(".")[2]
                for wrong in ("Nonsense", ("Nonsense",), -7, 3 if isinstance(value, bool) else True):
                    with pytest.raises(UsageError, match=field) as told:
                        check_cells(with_settings({key: [cell]}, {path: wrong}))
                    assert "\n" not in str(told.value)
                    if not (isinstance(owner, lf.Run) and field in of_run):
                        with pytest.raises((ValueError, TypeError), match=field) as refused:
                            dataclasses.replace(owner, **{field: wrong})
                        assert "\n" not in str(refused.value)
