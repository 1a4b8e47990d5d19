"""Grids of runs from TOML files: what they mean, what they leave, and what is said of mistakes in them."""

import json
import re
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers import png_alone
from matplotlib.figure import Figure

import linfed as lf
from linfed import cli
from linfed.errors import UsageError
from linfed.figures import style
from linfed.reproduction import overview, swept
from linfed.reproduction.overview import drawn
from linfed.reproduction.recipe import recipe
from linfed.reproduction.swept import report, sweep_file
from linfed.tables.labeled_array import Along

BASE = """
rounds = 5
trials = 3

[problem]
kind = "SharedRepresentation"
n_clients = 12
dim = 8
rank = 2

[data]
kind = "FreshSamples"
n_samples = 6

[algorithms.FedRep]
rank = 2    # of FedRep
step_size = 0.5

[algorithms.tuned]
kind = "FedRep"
rank = 2
tune = { grid = { step_size = [0.1, 0.3] }, trials = 2 }

[axes]
"problem.n_clients" = [12, 16]
"""

PROBLEM = lf.SharedRepresentation(n_clients=12, dim=8, rank=2)
RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5), problem=PROBLEM, data=lf.FreshSamples(n_samples=6), rounds=5, trials=3
)


def written(text, folder, name="grid.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def of(text):
    return recipe("grid", tomllib.loads(text))


def with_axes(axes, *, one=False, figure=""):
    """Return the recipe of other axes, and of the first algorithm alone."""
    return of(f"{BASE[: BASE.index('[algorithms.tuned]' if one else '[axes]')]}\n[axes]\n{axes}\n{figure}")


def assert_same_rows(one, other):
    assert len(one) == len(other)
    for row, twin in zip(one.rows, other.rows, strict=True):
        assert row.keys() == twin.keys()
        for name, value in row.items():
            pair = [part.values if isinstance(part, Along) else part for part in (value, twin[name])]
            assert type(pair[0]) is type(pair[1])
            assert np.array_equal(*pair) if np.ndim(pair[0]) else pair[0] == pair[1], name


@pytest.fixture(autouse=True)
def small_figures(monkeypatch):
    """Coarse ones, and no PDFs: these tests are of which figures there are."""
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 40)
    monkeypatch.setattr(Figure, "savefig", png_alone)


@pytest.fixture
def undrawn(monkeypatch):
    """Write no figures, which take longer than what else a test does."""
    monkeypatch.setattr(swept, "_draw", lambda *_: ([], {}))


@pytest.fixture
def sketches():
    """Draw the figures of a recipe, from a table that nothing was computed for; they are closed at the end."""

    def draw(found, ends=lambda point: 0.1):
        rows = [
            {
                "diverged": np.isnan(ends(point)) & np.ones(2, bool),
                **{found.layout.y: Along(np.outer([1.0, 2.0], [1.0, ends(point)]), round=[0, 1])},
            }
            for point in found.points
        ]
        return list(drawn(lf.Table(rows), found.points, found.layout))

    yield draw
    plt.close("all")


# --- what a file means ---------------------------------------------------------------------------------------


def test_the_cells_are_those_of_the_same_grid_in_python():
    axes = {"problem.n_clients": (12, 16)}
    tuned = lf.Tuned(base=lf.FedRep(rank=2, step_size=0.1), grid={"step_size": (0.1, 0.3)}, trials=2)
    found = of(BASE)
    wanted = [*lf.grid(RUN, **axes), *lf.grid(lf.Run(**{**vars(RUN), "algorithm": tuned}), **axes)]
    assert found.cells == wanted
    assert found.points == [{"method": m, "problem.n_clients": n} for m in ("FedRep", "tuned") for n in (12, 16)]


def test_the_table_is_that_of_the_same_grid_in_python_to_the_last_bit(tmp_path, undrawn):
    done = sweep_file(written(BASE, tmp_path), out=str(tmp_path / "out"))
    with pytest.warns(lf.EdgeWarning):
        wanted = lf.sweep(of(BASE).cells)
    assert done.table["method"].tolist() == ["FedRep", "FedRep", "tuned", "tuned"]
    plain = lf.Table([{name: value for name, value in row.items() if name != "method"} for row in done.table.rows])
    assert_same_rows(plain, wanted)
    assert_same_rows(lf.Table.load(tmp_path / "out" / "grid.npz"), done.table)


@pytest.mark.parametrize(
    ("written_as", "value"),
    [
        ('init = { kind = "AtDistance", delta = 0.5 }', {"init": lf.AtDistance(0.5)}),
        ('init = "random"', {"init": "random"}),
        (
            "init = [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0.5]]",
            {"init": np.eye(8, 2) + 0.5 * np.eye(8)[:, [7, 7]] * [0, 1]},
        ),
        ('heads = { kind = "GradientHeads", steps = 3 }', {"heads": lf.GradientHeads(steps=3)}),
        ('heads.kind = "ExactHeads"\nheads.ridge = 0.1', {"heads": lf.ExactHeads(ridge=0.1)}),
        ("orthonormalize = false", {"orthonormalize": False}),
    ],
)
def test_fields_of_an_algorithm(written_as, value):
    found = of(BASE.replace("step_size = 0.5", f"step_size = 0.5\n{written_as}"))
    assert found.cells[0].algorithm == lf.FedRep(rank=2, step_size=0.5, **value)


def test_classes_within_classes():
    text = """
[algorithms.P]
kind = "Personalised"
ridge = 0.1
[algorithms.P.base]
kind = "FLUTE"
rank = 2
step_size = 0.1
init = { kind = "SmallRandom", alpha = 0.1 }
[algorithms.S]
kind = "FedRepShortcut"
rank = 2
step_size = 0.1
ridge = 0.1
solver = { kind = "ClosedForm", order = "joint" }
[problem.design]
kind = "Rademacher"
covariance = [1, 1, 1, 1, 1, 1, 1, 2]
"""
    found = of(BASE[: BASE.index("[axes]")] + text)
    base = lf.FLUTE(rank=2, step_size=0.1, init=lf.SmallRandom(alpha=0.1))
    assert found.cells[2].algorithm == lf.Personalised(base=base, ridge=0.1)
    solver = lf.ClosedForm(order="joint")
    assert found.cells[3].algorithm == lf.FedRepShortcut(rank=2, step_size=0.1, ridge=0.1, solver=solver)
    assert found.cells[0].problem.design == lf.Rademacher(covariance=[1, 1, 1, 1, 1, 1, 1, 2])


def test_axes_are_those_of_grid_and_may_hold_tables():
    data = '[{ kind = "FreshSamples", n_samples = 3 }, { kind = "FixedSamples", n_samples = 4 }]'
    found = with_axes(f'problem.dim = [8, 9]\n"rounds, trials" = [[3, 2], [4, 5]]\ndata = {data}', one=True)
    axes = {"problem.dim": (8, 9), "rounds, trials": [(3, 2), (4, 5)], "data": (lf.FreshSamples(3), lf.FixedSamples(4))}
    assert found.cells == lf.grid(RUN, **axes)
    assert found.points[1] == {
        "method": "FedRep",
        "problem.dim": 8,
        "rounds, trials": [3, 2],
        "data": {"kind": "FixedSamples", "n_samples": 4},
    }


def test_an_axis_of_algorithms_reaches_into_tuned_ones_and_has_one_column(tmp_path, undrawn):
    text = BASE.replace('"problem.n_clients" = [12, 16]', '"algorithm.rank" = [1, 2]')
    found = of(text)
    assert [cell.algorithm.rank for cell in found.cells[:2]] == [1, 2]
    assert [cell.algorithm.base.rank for cell in found.cells[2:]] == [1, 2]
    table = sweep_file(written(text, tmp_path), out=str(tmp_path / "out")).table
    assert table["algorithm.rank"].tolist() == [1, 2, 1, 2]


def test_an_axis_stands_in_for_a_required_field():
    text = BASE.replace("n_clients = 12\n", "", 1).replace("rounds = 5\n", "").replace("[axes]", "[axes]\nrounds = [5]")
    assert of(text).cells == of(BASE).cells


def test_everything_of_a_tuning_can_be_said():
    tune = """
tune.grid = [
    { step_size = 0.1, heads = { kind = "ExactHeads" } },
    { step_size = 0.2, heads = { kind = "GradientHeads" } },
]
tune.score = { kind = "RoundsTo", level = 0.1 }
tune.metric = "risk"
tune.quantile = 0.9
tune.rounds = 3"""
    found = of(re.sub("tune = .*", tune, BASE)).cells[2].algorithm
    grid = [{"step_size": 0.1, "heads": lf.ExactHeads()}, {"step_size": 0.2, "heads": lf.GradientHeads()}]
    base = lf.FedRep(rank=2, step_size=0.1)
    assert found == lf.Tuned(base=base, grid=grid, score=lf.RoundsTo(0.1), metric="risk", quantile=0.9, rounds=3)


def test_samples_can_be_given_without_a_truth():
    text = """
rounds = 2
[data]
kind = "GivenSamples"
X = [[[1.0, 0.0], [0.5, 1.0]], [[1.0, 1.0], [2.0, 0.0]]]
y = [[1.0, 0.0], [0.5, 2.0]]
[algorithms.FedAvg]
step_size = 0.1
"""
    found = of(text)
    assert found.cells[0].data.y.tolist() == [[1.0, 0.0], [0.5, 2.0]]
    assert found.layout.y == "train_loss"


# --- mistakes ------------------------------------------------------------------------------------------------

MISTAKES = {
    # what is replaced, by what, and what is said of it
    "no rounds": ("rounds = 5", "", ["rounds is missing"]),
    "unknown key": ("rounds = 5", "round = 5", ["round = 5", "did you mean 'rounds'", "'trials'"]),
    "unknown table": ("[problem]", "[problems]", ["[problems]", "did you mean 'problem'"]),
    "no problem": ("[problem]", "[figure]", ["[problem] is missing"]),
    "no table": ("rounds = 5", "rounds = 5\nfigure = 3", ["figure = 3 must be a table, [figure]"]),
    "wrong number": ("rounds = 5", "rounds = -1", ["grid.toml: rounds = -1", "at least 0"]),
    "several rounds": ("rounds = 5", "rounds = [5, 9]", ["rounds = (5, 9)", "[axes] rounds = [5, 9]"]),
    "metric": ("trials = 3", 'metrics = ["risks"]', ["'risks'", "did you mean 'risk'"]),
    "no metric": ("trials = 3", "metrics = []", ["metrics = []"]),
    "metric that does not apply": ("trials = 3", 'metrics = ["train_loss"]', ["'train_loss' does not apply"]),
    "engine": ("trials = 3", 'engine = "chains"', ["engine = 'chains'", "did you mean 'chain'"]),
    "kind": ('"SharedRepresentation"', '"SharedRepresentaton"', ["[problem] kind", "'SharedRepresentation'?"]),
    "kind of another sort": ('"SharedRepresentation"', '"FedRep"', ["[problem] kind = 'FedRep'", "'GivenTruth'"]),
    "no kind": ('kind = "FreshSamples"', "", ["[data] kind is missing", "'FixedSamples'"]),
    "no name of a kind": ('kind = "FreshSamples"', "kind = 1", ["[data] kind = 1 is unknown"]),
    "required field": ("dim = 8", "", ["[problem] dim is missing"]),
    "unknown field": ("n_samples = 6", "n_sample = 6", ["[data] n_sample = 6", "did you mean 'n_samples'"]),
    "wrong value": ("dim = 8", "dim = 1", ["[problem] rank = 2 must be at most dim = 1"]),
    "table where none is": ("dim = 8", 'dim = { kind = "Gaussian" }', ["[problem] dim", "no class is expected"]),
    "several values": ("dim = 8", "dim = [8, 9]", ["[problem] dim = (8, 9)", '[axes] "problem.dim" = [8, 9]']),
    "option below a header": ("dim = 8", "dim = 8\nseed = 3", ["[problem] seed = 3", "above the first [table]"]),
    "name of a law": ("dim = 8", 'dim = 8\ndesign = "cub"', ["[problem] design = 'cub'", "'cube'", "'UniformCube'"]),
    "algorithm": ("[algorithms.FedRep]", "[algorithms.flute]", ["[algorithms.flute] kind", "did you mean 'FLUTE'"]),
    "algorithms without names": ("[algorithms.FedRep]", "[algorithms]", ["[algorithms] rank = 2", "[algorithms.NAME]"]),
    "empty name": ("[algorithms.FedRep]", '[algorithms."a\\nb"]\nkind = "FedRep"', ['[algorithms."a\\nb"]', "name"]),
    "field of an algorithm": (
        "step_size = 0.5",
        "step_sise = 0.5",
        ["[algorithms.FedRep] step_sise = 0.5", "step_size"],
    ),
    "value of an algorithm": ("step_size = 0.5", "step_size = -1", ["[algorithms.FedRep] step_size = -1", "positive"]),
    "class by its name": (
        "step_size = 0.5",
        'heads = "ExactHead"\nstep_size = 0.5',
        ["heads = { kind", "'ExactHeads'"],
    ),
    "field within a field": (
        "step_size = 0.5",
        'step_size = 0.5\nheads = { kind = "GradientHeads", step = 3 }',
        ["[algorithms.FedRep.heads] step = 3", "did you mean 'steps'"],
    ),
    "misfit": ("rank = 2    # of", "rank = 9 #", ["rank = 9 must be at most dim = 8", "(where method = FedRep"]),
    "tune": ("tune = {", "tunes = {", ["[algorithms.tuned.tunes]", "did you mean 'tune'"]),
    "grid": ("grid = { step_size", "grid = { step_sise", ["[algorithms.tuned.tune.grid] step_sise", "step_size"]),
    "no grid": ("grid = { step_size = [0.1, 0.3] }, ", "", ["[algorithms.tuned.tune] grid is missing"]),
    "no table as a grid": ("{ step_size = [0.1, 0.3] }", "3", ["grid = 3 must be a table"]),
    "grid beside tune": ("grid = { step_size = [0.1, 0.3] }", "step_size = [1]", ["tune] step_size", "grid.step_size"]),
    "grid of one value": ("[0.1, 0.3]", "0.1", ["tune.grid] step_size = 0.1 must be an array"]),
    "value of a grid": ("[0.1, 0.3]", "[0.1, -0.3]", ["[algorithms.tuned.tune] step_size = -0.3"]),
    "given and tuned": ("tune =", "step_size = 1\ntune =", ["[algorithms.tuned] step_size = 1 is in the grid"]),
    "metric of a tuning": (
        "trials = 2 }",
        'metric = "risks" }',
        ["tuned.tune] metric = 'risks'", "did you mean 'risk'"],
    ),
    "score": ("trials = 2 }", 'score = "finale" }', ["[algorithms.tuned.tune] score", "did you mean 'final'"]),
    "trials of a tuning": ("trials = 2 }", "trials = 0 }", ["[algorithms.tuned.tune] trials = 0"]),
    "quantile": ("trials = 2 }", "quantile = 2 }", ["[algorithms.tuned.tune] quantile = 2"]),
    "extend": ("trials = 2 }", "extend = 1 }", ["[algorithms.tuned.tune] extend = 1 must be True or False"]),
    "axis": ('"problem.n_clients"', '"problem.n_client"', ["[axes] 'problem.n_client'", "did you mean 'n_clients'"]),
    "short axis": ('"problem.n_clients"', "n_clients", ["[axes] 'n_clients'", "did you mean 'problem.n_clients'"]),
    "axis that is tuned": ('"problem.n_clients"', '"algorithm.step_size"', ["tuned.tune] chooses it already"]),
    "axis that one lacks": ('"problem.n_clients"', '"algorithm.heads.steps"', ["'steps'", "(where method = FedRep)"]),
    "axis of algorithms": ('"problem.n_clients"', "algorithm", ["[axes] algorithm", "[algorithms.NAME]"]),
    "axis of metrics": ('"problem.n_clients"', "metrics", ["[axes] metrics"]),
    "axis of one value": ("[12, 16]", "12", ['[axes] "problem.n_clients" = 12 must be an array']),
    "empty axis": ("[12, 16]", "[]", ['[axes] "problem.n_clients" = [] must be an array of at least one']),
    "value of an axis": (
        "[12, 16]",
        "[12, -1]",
        ["[axes] n_clients = -1", "(where method = FedRep, problem.n_clients"],
    ),
    "value twice": ("[12, 16]", "[12, 12]", ["holds 12 more than once"]),
    "axis twice": ("[12, 16]", "[12]\nproblem.n_clients = [16]", ["is on an axis already"]),
    "short tuple": ("[12, 16]", '[12]\n"rounds, trials" = [[1, 2], [3]]', ["[3] must be an array of 2 values"]),
    "misfit on an axis": (
        "[12, 16]",
        "[12]\nparticipation = [1, 13]",
        ["participation = 13 clients", "participation = 13)"],
    ),
    "figure": ("[axes]", "[figure]\nz = 1\n[axes]", ["[figure] z = 1", "'column'"]),
    "x": ("[axes]", '[figure]\nx = "rounds"\n[axes]', ["[figure] x = 'rounds'", "did you mean 'round'"]),
    "y": ("[axes]", '[figure]\ny = "riks"\n[axes]', ["[figure] y = 'riks'", "did you mean 'risk'"]),
    "column": (
        "[axes]",
        '[figure]\ncolumn = "n_client"\n[axes]',
        ["[figure] column = 'n_client'", "problem.n_clients"],
    ),
    "place taken": ("[axes]", '[figure]\ncolumn = "method"\nby = "method"\n[axes]', ["has a place in the figure"]),
    "many panels": ("[12, 16]", f"{list(range(10, 36))}\n[figure]\nrow = 'n_clients'", ["more values than 24 panels"]),
    "syntax": ("rounds = 5", "rounds == 5", ["is no TOML", "line 2"]),
    "key twice": ("rounds = 5", "rounds = 5\nrounds = 5", ["is no TOML", "line 3"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(name, tmp_path, capsys, monkeypatch):
    old, new, fragments = MISTAKES[name]
    assert old in BASE
    monkeypatch.chdir(tmp_path)
    written(BASE.replace(old, new, 1), tmp_path)
    assert cli.main(["sweep", "grid.toml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("linfed: grid.toml")
    assert err.count("\n") == 1
    for fragment in fragments:
        assert fragment in err
    assert not Path("results").exists()


def test_files_that_cannot_be_read_or_written(tmp_path, capsys):
    path, broken = written(BASE, tmp_path), tmp_path / "broken.toml"
    broken.write_bytes(b"\xff")
    for arguments, said in [
        ([tmp_path / "none.toml"], "No such file"),
        ([tmp_path], "Is a directory"),
        ([broken], "is no TOML"),
        ([path, "--out", path], "cannot be written"),
        ([path, "--workers", "0"], "--workers 0 must be at least 1"),
    ]:
        assert cli.main(["sweep", *map(str, arguments)]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_a_run_that_needs_more_than_the_memory_is_refused_first():
    with pytest.raises(UsageError, match=r"needs about .* \(where method = FedRep"):
        of(
            BASE.replace("n_clients = 12\n", "n_clients = 1000000000000\n")
            .replace("[12, 16]", "[1000000000000]")
            .replace("step_size = 0.5", 'step_size = 0.5\ninit = "random"')
        )


def test_a_cell_that_raises_at_last_is_told_and_the_others_are_kept(tmp_path, capsys):
    text = BASE.replace("grid = { step_size = [0.1, 0.3] }", "grid = { step_size = [1e300] }").replace(
        'kind = "FedRep"\nrank', 'kind = "FedAvg"\nrank'
    )
    path = written(text, tmp_path)
    assert cli.main(["sweep", str(path), "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    *_, failed, last = capsys.readouterr().err.splitlines()
    assert re.match(r"linfed: .*grid.toml: ValueError: every setting of the grid diverged .* in the cell Run", failed)
    assert "2 of 4 cells raised; what was finished is kept" in last
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 2


def test_shards_of_a_file_are_put_together(tmp_path, capsys):
    path, out = str(written(BASE, tmp_path)), str(tmp_path / "out")
    for number in (1, 2):
        assert cli.main(["sweep", path, "--out", out, "--workers", "1", "--shard", f"{number}/2"]) == 0
        printed = capsys.readouterr().out
        assert ("shard 1/2 is done" in printed) is (number == 1)
    assert "grid: 4 cells, 2 of them from an earlier run" in printed


# --- what is left --------------------------------------------------------------------------------------------


def test_the_files_of_a_sweep_and_its_record(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(BASE, tmp_path)
    assert cli.main(["sweep", "grid.toml", "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    names = ["grid.csv", "grid-round.csv", "grid-setting.csv", "grid.npz", "grid.json"]
    names += ["grid.png", "grid.pdf", "grid.txt"]
    assert re.findall(r"wrote (\S+)", printed) == [f"results/grid/{name}" for name in names]
    assert {path.name for path in Path("results/grid").iterdir()} == {*names, "cells"}
    assert re.search(r"^method +n_clients +step_size +subspace_distance", printed, re.M)
    table = lf.Table.load("results/grid/grid.npz")
    median = float(
        np.quantile(table.where(method="FedRep", n_clients=16)["subspace_distance"][:, -1], 0.5, method="inverted_cdf")
    )
    assert re.search(rf"^FedRep +16 +- +{median:.4g}$", printed, re.M)
    assert "note: the best step_size is at the edge of its grid" in printed
    record = json.loads(Path("results/grid/grid.json").read_text())
    assert recipe("grid", record["recipe"]).cells == of(BASE).cells
    assert (record["file"], record["cells"], record["versions"]["linfed"]) == ("grid.toml", 4, lf.__version__)
    assert record["seconds"] > 0


def test_another_file_of_the_same_name_keeps_its_results(tmp_path, monkeypatch, capsys, undrawn):
    monkeypatch.chdir(tmp_path)
    text = BASE[: BASE.index("[algorithms.tuned]")]
    for folder, rounds in (("a", 5), ("b", 4)):
        Path(folder).mkdir()
        written(text.replace("rounds = 5", f"rounds = {rounds}"), Path(folder))
    record = Path("results/grid/grid.json")
    sweep_file("a/grid.toml")
    sweep_file(tmp_path / "a" / "grid.toml")  # the same file
    before = record.read_text()
    assert cli.main(["sweep", "b/grid.toml", "--workers", "1"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for said in (str(Path("results/grid")), "a/grid.toml", "'b/grid.toml'", "--out DIR"):
        assert said in err
    assert record.read_text() == before
    sweep_file("b/grid.toml", out="other")
    Path("a/grid.toml").rename("c.toml")  # whose results would be lost is gone
    sweep_file("b/grid.toml")
    assert json.loads(record.read_text())["recipe"]["rounds"] == 4
    for torn in ("{", "[]", "{}"):
        record.write_text(torn)
        sweep_file("b/grid.toml")


def test_finished_cells_are_kept_whatever_the_figure_and_the_names(tmp_path, monkeypatch, undrawn):
    text = BASE[: BASE.index("[algorithms.tuned]")]
    sweep_file(written(text, tmp_path), out=str(tmp_path / "out"))
    monkeypatch.setattr(lf.Run, "run", None)  # nothing is run again
    other = (
        text.replace("[algorithms.FedRep]", '[algorithms."$another_name"]\nkind = "FedRep"') + '[figure]\ny = "risk"'
    )
    done = sweep_file(written(other, tmp_path), out=str(tmp_path / "out"))
    assert done.table["method"] == "$another_name"


def test_diverging_runs_are_results(tmp_path, undrawn):
    text = BASE[: BASE.index("[algorithms.tuned]")].replace("rounds = 5", "rounds = 12")
    text += '[algorithms.FedAvg]\nrank = 2\nstep_size = 50\n[figure]\ny = "parameter_error"'
    done = sweep_file(written(text, tmp_path), out=str(tmp_path / "out"))
    assert done.table["diverged"].all(axis=1).tolist() == [False, True]
    assert re.search(r"^FedAvg +diverged +3 of 3$", report(done), re.M)
    (figure,) = drawn(done.table, done.recipe.points, done.recipe.layout)
    top = figure.axes[0].get_ylim()[1]
    assert top <= 1e4 * done.table.where(method="FedRep")["parameter_error"][:, 0].max()
    plt.close(figure)


# --- figures -------------------------------------------------------------------------------------------------


def shown(figure):
    """Return the titles of a figure's panels, the words at their left, and the names of the lines."""
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    beside = [ax.get_ylabel().partition("\n")[0] for ax in figure.axes if "\n" in ax.get_ylabel()]
    return titles, beside, [text.get_text() for text in figure.legends[0].get_texts()]


TWO = '"problem.n_clients" = [12, 16]\n"data.n_samples" = [4, 5, 6]'


@pytest.mark.parametrize(
    ("axes", "one", "figure", "wanted"),
    [
        ("", True, "", [([], [], ["FedRep"])]),
        ("", False, "", [([], [], ["FedRep", "tuned"])]),
        ("problem.dim = [8, 9]", True, "", [([], [], ["dim = 8", "dim = 9"])]),
        ("problem.dim = [8, 9]", False, "", [(["dim = 8", "dim = 9"], [], ["FedRep", "tuned"])]),
        (TWO, True, "", [(["n_clients = 12", "n_clients = 16"], [], [f"n_samples = {m}" for m in (4, 5, 6)])]),
        (
            TWO,
            False,
            "",
            [(["n_clients = 12", "n_clients = 16"], [f"n_samples = {m}" for m in (4, 5, 6)], ["FedRep", "tuned"])],
        ),
        (
            TWO,
            False,
            '[figure]\nby = "n_samples"\nrow = "method"\ncolumn = "problem.n_clients"',
            [(["n_clients = 12", "n_clients = 16"], ["FedRep", "tuned"], [f"n_samples = {m}" for m in (4, 5, 6)])],
        ),
        (
            TWO + "\nseed = [0, 1]",
            False,
            '[figure]\ncolumn = "seed"\nrow = "n_clients"',
            [(["seed = 0", "seed = 1"], ["n_clients = 12", "n_clients = 16"], ["FedRep", "tuned"])] * 3,
        ),
        (
            f"problem.dim = {list(range(8, 18))}\n" + '"rounds, trials" = [[2, 3], [3, 3]]',
            False,
            "",
            [(["rounds, trials = (2, 3)", "rounds, trials = (3, 3)"], [], ["FedRep", "tuned"])],
        ),
        (
            TWO,
            False,
            '[figure]\nx = "method"',
            [(["n_clients = 12", "n_clients = 16"], [], ["n_samples = 4", "n_samples = 5", "n_samples = 6"])],
        ),
    ],
)
def test_panels_and_lines(axes, one, figure, wanted, sketches):
    assert [shown(one) for one in sketches(with_axes(axes, one=one, figure=figure))] == wanted


def test_the_last_round_along_an_axis(sketches):
    found = with_axes('"data.n_samples" = [4, 40]', figure='[figure]\nx = "n_samples"')
    (figure,) = sketches(found, ends=lambda point: point["data.n_samples"] / (2 if point["method"] == "tuned" else 1))
    (ax,) = figure.axes
    lines = [bars.lines[0] for bars in ax.containers]
    drawn_at = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in lines]
    assert drawn_at == [([4.0, 40.0], [4.0, 40.0]), ([4.0, 40.0], [2.0, 20.0])]
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "n_samples", "subspace distance, last round")


def test_an_axis_of_words_and_a_method_that_diverged(sketches):
    found = with_axes('"problem.design" = ["gaussian", { kind = "Rademacher" }]', figure='[figure]\nx = "design"')
    (figure,) = sketches(found, ends=lambda point: np.nan if point["method"] == "tuned" else 1.0)
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["gaussian", "Rademacher"]
    assert shown(figure)[2] == ["FedRep", "tuned (diverged)"]


def test_a_metric_that_not_all_have_leaves_the_others_out(sketches):
    local = BASE.replace("[algorithms.tuned]", "[algorithms.LocalOnly]\n[algorithms.tuned]")
    assert of(local).layout.y == "parameter_error"
    found = of(local + '[figure]\ny = "subspace_distance"')
    rows = [{"diverged": np.zeros(2, bool)} for _ in found.points]
    for row, point in zip(rows, found.points, strict=True):
        if point["method"] != "LocalOnly":
            row["subspace_distance"] = Along(np.ones((2, 2)), round=[0, 1])
    (figure,) = drawn(lf.Table(rows), found.points, found.layout)
    assert shown(figure)[2] == ["FedRep", "tuned"]


def test_lines_differ_and_names_are_shown_as_they_are(sketches):
    names = ["FedRep", "_a", "$b$", "c", "FLUTE 2"]
    tables = "".join(f"[algorithms.{json.dumps(name)}]\nkind = 'FedRep'\nrank = 2\nstep_size = 0.5\n" for name in names)
    (figure,) = sketches(of(re.sub(r"\[algorithms.FedRep\](.|\n)*", tables, BASE)))
    assert [text.get_text().replace("\\", "").strip() for text in figure.legends[0].get_texts()] == names
    assert len({line.get_color() for line in figure.axes[0].get_lines()}) == len(names)
    figure.canvas.draw()


def test_many_lines_have_no_bands(sketches):
    (few, many) = (sketches(with_axes(f"seed = {list(range(n))}", one=True))[0] for n in (6, 7))
    assert [len(figure.axes[0].collections) for figure in (few, many)] == [6, 0]
    assert [figure.legends[0].get_title().get_text() for figure in (few, many)] == [
        "median and 10-90 % of 2 trials",
        "median of 2 trials",
    ]


def test_no_more_figures_than_a_person_looks_at(sketches, monkeypatch):
    monkeypatch.setattr(overview, "FIGURES", 3)
    axes = "seed = [0, 1]\nproblem.dim = [8, 9]\nrounds = [1, 2]\ntrials = [1, 2]\nrecord_every = [1, 2]"
    found = with_axes(axes, one=True)
    assert found.layout.rest == ("rounds", "trials")
    assert len(sketches(found)) == 3


# --- the guide -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_file_in_the_guide_runs(tmp_path, undrawn):
    page = Path(__file__).parent.parent / "docs" / "guide" / "sweeps.md"
    (text,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)
    done = sweep_file(written(text, tmp_path, "heads.toml"), out=str(tmp_path / "out"))
    assert len(done.table) == 8
    assert done.notes == []
    assert set(done.table["step_size"]) == {0.3, 0.9}
    assert (done.table["subspace_distance"][..., -1] < 0.1).mean() > 0.9
    assert done.recipe.layout.column == "problem.n_clients"
