"""Tables and figures say in one line what is wrong with an argument."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line

TABLE = lf.Table([{"m": m, "error": lf.LabeledArray([[m, 1.0]], round=[0, 1])} for m in (5, 10)])
RUN = lf.Run(
    algorithm=lf.FedRep(rank=1, step_size=0.3, init="random"),
    problem=lf.SharedRepresentation(n_clients=3, dim=4, rank=1),
    data=lf.FreshSamples(6),
    rounds=2,
)


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


TABLES = {
    "rows that are a number": (lambda: lf.Table(5), ["rows = 5 must be a sequence of mappings"], TypeError),
    "a mapping": (lambda: lf.Table({"x": 1}), ["rows = {'x': 1} must be a sequence of mappings"], TypeError),
    "a row that is a number": (lambda: lf.Table([{"x": 1}, 5]), ["rows[1] = 5 must be a mapping"], TypeError),
    "a table and a number": (lambda: TABLE + 5, ["Table", "int"], TypeError),
    "a column that is a number": (lambda: TABLE.assign(x=1), ["x = 1 must be a function"], TypeError),
    "rows by number": (lambda: TABLE[1:3], ["slice(1, 3, None) must be the name of a column", "select()"], TypeError),
    "a list of names": (lambda: TABLE[["m", "error"]], ["must be the name of a column"], TypeError),
    "a file without a name": (lambda: TABLE.to_csv(""), ["path = '' must name a file"], ValueError),
    "a CSV file of a suffix": (lambda: TABLE.to_csv(".csv"), ["path = '.csv' must name a file"], ValueError),
    "an archive without a name": (lambda: TABLE.save(""), ["path = '' must name a file"], ValueError),
    "a result without a name": (lambda: RUN.simulate().save("."), ["path = '.' must name a file"], ValueError),
    "a file that is a number": (lambda: TABLE.to_csv(5), ["path = 5 must be a path"], TypeError),
    "an archive that is a number": (lambda: TABLE.save(5), ["path = 5 must be a path"], TypeError),
    "arrays along axes only": (
        lambda: lf.Table([{"error": lf.LabeledArray([[1.0, 2.0]], round=[0, 1])}]).to_records(),
        ["to_records() requires the name of an axis", "to_records('round')"],
        ValueError,
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_one_line(*TABLES[name])
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_arrays_along_axes_only_are_written_beside_nothing(tmp_path):
    table = lf.Table([{"error": lf.LabeledArray([[1.0, 2.0]], round=[0, 1])}])
    assert [path.name for path in table.to_csv(tmp_path / "t")] == ["t-round.csv"]
    with pytest.raises(ValueError, match="requires the name of an axis"):
        table.to_pandas()


CURVES = {
    "no axes": (
        lambda ax: lf.plot_curves(5, TABLE, "round", "error", by="m"),
        ["ax = 5 must be matplotlib Axes"],
        TypeError,
    ),
    "no table": (
        lambda ax: lf.plot_curves(ax, 5, "round", "error", by="m"),
        ["table = 5 must be a lf.Table"],
        TypeError,
    ),
    "an order that is a number": (
        lambda ax: lf.plot_curves(ax, TABLE, "round", "error", by="m", order=5),
        ["order = 5 must be a sequence of values of 'm'"],
        TypeError,
    ),
    "an order of nothing": (
        lambda ax: lf.plot_curves(ax, TABLE, "round", "error", by="m", order=[]),
        ["order = [] must contain some of the values of 'm': 5, 10"],
        ValueError,
    ),
    "an order of others": (
        lambda ax: lf.plot_curves(ax, TABLE, "round", "error", by="m", order=[1, 2]),
        ["order = [1, 2] must contain some of the values of 'm': 5, 10"],
        ValueError,
    ),
    "a band that is a number": (
        lambda ax: lf.plot_curves(ax, TABLE, "round", "error", by="m", band=5),
        ["band = 5 must be True or False"],
        ValueError,
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves(name, ax):
    call, *said = CURVES[name]
    assert_one_line(lambda: call(ax), *said)
    assert not ax.lines


def test_an_order_of_some_values_draws_them(ax):
    lf.plot_curves(ax, TABLE, "round", "error", by="m", order=[10, 7])
    assert [line.get_label() for line in ax.lines] == ["m = 10"]


def opened(*arguments, **options):
    with lf.panels(*arguments, **options):
        pytest.fail("is drawn")


PAGES = {
    "no table": (lambda: opened(5), ["table = 5 must be a lf.Table"], TypeError),
    "no rows": (lambda: opened(TABLE, row=0), ["row = 0 must be an integer of at least 1"], ValueError),
    "half a row": (lambda: opened(TABLE, row=2.5), ["row = 2.5 must be an integer of at least 1"], ValueError),
    "a negative width": (lambda: opened(TABLE, width=-1), ["width = -1 must be a positive"], ValueError),
    "no height": (lambda: opened(TABLE, height=0), ["height = 0 must be a positive"], ValueError),
    "a title that is a number": (lambda: opened(TABLE, title=5), ["title = 5 must be a text or a function"], TypeError),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages(name):
    before = plt.get_fignums()
    assert_one_line(*PAGES[name])
    assert plt.get_fignums() == before


def test_plots_of_a_result():
    result = RUN.simulate()
    assert_one_line(lambda: result.plot("risk", ax=5), ["ax = 5 must be matplotlib Axes"], TypeError)
    assert_one_line(lambda: result.plot("risk", band=5), ["band = 5 must be True or False"])
    for wrong in (True, result, lf.predict, "lf.predict"):
        words = ["prediction = ", "must be a prediction, such as lf.predict(result)"]
        assert_one_line(lambda wrong=wrong: result.plot("subspace_distance", prediction=wrong), words, TypeError)
    ax = result.plot("risk", band=np.False_)
    assert len(ax.lines) == 1
    plt.close(ax.figure)


THEORY = {
    "a problem as a truth": (lambda: lf.theory.local_drift(RUN.problem, n_samples=9), ["truth = Shared"]),
    "a mapping as a truth": (lambda: lf.theory.single_model_floor({}), ["truth = {} must be a ground truth"]),
    "a text as a result": (lambda: lf.theory.theorem1_run("x"), ["result = 'x' must be a result of lf.simulate"]),
    "a number as data": (lambda: lf.theory.at_exact_heads(1, np.eye(2)), ["data = 1 must be lf.GivenSamples"]),
    "a mapping as rounds": (
        lambda: next(lf.iterate(RUN.algorithm, RUN.problem, data=RUN.data, rounds={})),
        ["rounds = {}"],
    ),
    "a text as a spectrum": (lambda: lf.theory.flute_gap("x", 1), ["spectrum = 'x' must be an array of numbers"]),
    "a number as a spectrum": (lambda: lf.theory.flute_gap(1.0, 1), ["spectrum has shape ()"]),
    "a function as a length": (lambda: lf.theory.largest_sine(len, dim=9, rank=2), ["squared_sine = <built-in"]),
    "a number as values": (lambda: lf.statistics.mean_interval(1.0), ["values has shape ()"]),
    "no values": (lambda: lf.statistics.median_interval([]), ["values has shape (0,)"]),
    "a level above 1": (lambda: lf.statistics.quantile_interval([1.0], 2), ["level = 2 must be", "from 0 to 1"]),
}


@pytest.mark.parametrize("name", THEORY)
def test_theory(name):
    assert_one_line(*THEORY[name], errors=(TypeError, ValueError))
