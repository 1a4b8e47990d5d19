"""`lf.choice`: a field of a cell accepts only the declared values, wherever the cell is made."""

import dataclasses
import pickle
import re

import pytest

import linfed as lf


@dataclasses.dataclass(frozen=True)
class Cell:
    method: str = lf.choice(("FedRep", "FedAvg"), "FedRep")
    starts: tuple[str, ...] = lf.choice({"near": 1, "far": 2}, ("near",), several=True)
    fixed: bool = lf.choice((False, True), False)
    order: int = lf.choice((1, 2), 2)

    def run(self):
        return {"value": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Narrower(Cell):
    method: str = lf.choice(("FedAvg",))


def test_a_declared_field_is_a_field():
    assert Cell() == Cell("FedRep", ("near",), False, 2)
    assert repr(Cell(fixed=True)) == "Cell(method='FedRep', starts=('near',), fixed=True, order=2)"
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


def test_a_declaration_is_checked():
    for allowed in ((), "FedRep", 3):
        with pytest.raises((TypeError, ValueError), match="allowed = "):
            lf.choice(allowed)
    with pytest.raises(ValueError, match=r"default = 'c' is unknown; allowed: 'a', 'b'"):
        lf.choice(("a", "b"), "c")
