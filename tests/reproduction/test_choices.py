"""Fields of words accept only the declared words: in every experiment, before anything is computed."""

import dataclasses
import pickle
import re
import shutil

import pytest

import linfed as lf
from linfed import cli
from linfed.errors import UsageError
from linfed.reproduction.experiments import cells_of, experiment_files, load
from linfed.reproduction.own_settings import check_cells, with_settings
from tests.helpers import ROOT

FOLDER = ROOT / "experiments"

FREE: dict[tuple[str, str], str] = {}
"""Fields that may hold any text, by class and field, with the reason. There is none."""


@dataclasses.dataclass(frozen=True)
class Cell:
    method: str = lf.choice(("FedRep", "FedAvg"), "FedRep")
    starts: tuple[str, ...] = lf.choice({"near": 1, "far": 2}, ("near",), several=True)
    fixed: bool = lf.choice((False, True), False)
    order: int = lf.choice((1, 2), 2)
    panel: str = lf.choice(("n", "d"), "n", label=True)

    def run(self):
        return {"value": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Narrower(Cell):
    method: str = lf.choice(("FedAvg",))


def test_a_declared_field_is_a_field():
    assert Cell() == Cell("FedRep", ("near",), False, 2, "n")
    assert repr(Cell(fixed=True)) == "Cell(method='FedRep', starts=('near',), fixed=True, order=2, panel='n')"
    assert pickle.loads(pickle.dumps(Cell("FedAvg"))) == Cell("FedAvg")
    assert {one.name: one.default for one in dataclasses.fields(Cell)}["order"] == Cell.order == 2
    assert hash(Cell()) == hash(dataclasses.replace(Cell("FedAvg"), method="FedRep"))
    assert not hasattr(Narrower, "method")
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'method'"):
        Narrower()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cell().method = "FedAvg"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("method", "FedPer", "method = 'FedPer' is unknown; allowed: 'FedRep', 'FedAvg'"),
        ("method", None, "method = None is unknown; allowed: 'FedRep', 'FedAvg'"),
        ("method", [1], "method = [1] is unknown; allowed: 'FedRep', 'FedAvg'"),
        ("fixed", 1, "fixed = 1 is unknown; allowed: False, True"),
        ("order", True, "order = True is unknown; allowed: 1, 2"),
        ("order", 2.0, "order = 2.0 is unknown; allowed: 1, 2"),
        ("starts", "near", "starts = 'near' must be a tuple of some of: 'near', 'far'"),
        ("starts", (), "starts = () must be a tuple of some of: 'near', 'far'"),
        ("starts", ("far", "x"), "starts[1] = 'x' is unknown; allowed: 'near', 'far'"),
    ],
)
def test_another_value_is_refused_wherever_the_cell_is_made(field, value, said):
    for made in (
        lambda: Cell(**{field: value}),
        lambda: dataclasses.replace(Cell(), **{field: value}),
        lambda: lf.grid(Cell(), **{field: [value]}),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            made()
    with pytest.raises(UsageError, match=f"^--set: {re.escape(said)}$"):
        with_settings({"runs": [Cell()]}, {field: value})


def test_a_declaration_is_checked():
    for allowed in ((), "FedRep", 3):
        with pytest.raises((TypeError, ValueError), match="allowed = "):
            lf.choice(allowed)
    with pytest.raises(ValueError, match=r"default = 'c' is unknown; allowed: 'a', 'b'"):
        lf.choice(("a", "b"), "c")


def test_a_word_changes_the_cells_that_allow_it():
    lists = {"one": [Cell()], "two": [Narrower(method="FedAvg")]}
    assert with_settings(lists, {"method": "FedRep"}) == lists
    assert with_settings(lists, {"method": "FedAvg"})["one"] == [Cell("FedAvg")]
    with pytest.raises(UsageError, match="method = 'Nonsense' is unknown"):
        with_settings(lists, {"method": "Nonsense"})


def test_a_label_is_not_set():
    lists = {"runs": [Cell(panel="n")]}
    assert with_settings(lists, {"panel": "n"}) == lists
    with pytest.raises(UsageError, match=r"^--set panel: the field only names the values of other fields; set those"):
        with_settings(lists, {"panel": "d"})
    with pytest.raises(UsageError, match=r"panel = 'x' is unknown; allowed: 'n', 'd'$"):
        with_settings(lists, {"panel": "x"})


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


@pytest.mark.parametrize("name", experiment_files(FOLDER))
def test_nonsense_is_refused_in_every_word_field(name):
    """An `lf.Run` checks its own fields by its method ``check()``, before a sweep; all others when they are made."""
    module, of_run = load(name, FOLDER), {field.name for field in dataclasses.fields(lf.Run)}
    for quick in (True, False):
        for key, cells in cells_of(module, quick=quick).items():
            for cell in one_of_each_class(cells):
                for path, value, owner in word_fields(cell):
                    field = path.rpartition(".")[2]
                    if (type(owner).__name__, field) in FREE:
                        continue
                    for wrong in ("Nonsense", ("Nonsense",), -7, 3 if isinstance(value, bool) else True):
                        with pytest.raises(UsageError, match=field) as told:
                            check_cells(with_settings({key: [cell]}, {path: wrong}))
                        assert "\n" not in str(told.value)
                        if isinstance(owner, lf.Run) and field in of_run:
                            continue
                        with pytest.raises((ValueError, TypeError), match=field) as refused:
                            dataclasses.replace(owner, **{field: wrong})
                        assert "\n" not in str(refused.value)


def refused(capsys, *words):
    """Return the one line with which a command refuses."""
    assert cli.main([str(word) for word in words]) in (1, 2)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def test_a_method_of_another_experiment_is_refused_before_anything_is_computed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "reproduce", "fedrep-fig3", "--quick", "--set", "method=FedPer", "--experiments", FOLDER)
    assert "method = 'FedPer' is unknown" in line
    assert "'10GD-GD', 'GD-GD'" in line
    assert not list(tmp_path.rglob("*.*"))


def test_a_method_in_a_copied_file_is_refused_before_anything_is_computed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in ("__init__.py", "_fedrep.py"):
        shutil.copy(FOLDER / "fedrep" / file, copied)
    text = (FOLDER / "fedrep" / "fedrep_fig3.py").read_text(encoding="utf-8")
    methods = 'METHODS = ("FedRep", "10GD-GD", "GD-GD")'
    assert text.count(methods) == 1
    changed = text.replace(methods, 'METHODS = ("FedRep", "10GD-GD", "FedPer")')
    (copied / "mine.py").write_text(changed, encoding="utf-8")
    line = refused(capsys, "reproduce", "copied/mine.py", "--quick")
    assert "method = 'FedPer' is unknown; allowed: 'FedRep', '10GD-GD'" in line
    assert not list(tmp_path.rglob("*.cell"))
    assert not list(tmp_path.rglob("*.csv"))
