"""Every experiment runs in --quick and draws from its saved tables alone."""

import functools
import importlib
import math
import re
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import linfed as lf
from linfed import cli
from linfed.figures import style
from linfed.reproduction.experiments import SHARED, experiment_files, load, shared_modules
from linfed.reproduction.record import ResultsFolder
from linfed.reproduction.run import load_tables
from linfed.statistics.findings import Verdict, by_sentence, judge
from linfed.statistics.gains import factor_ratio
from linfed.statistics.intervals import clustered_share
from tests.conftest import TOGETHER
from tests.helpers import ROOT, findings, png_alone, whole
from tests.reproduction.test_judges import cell_classes

FOLDER = ROOT / "experiments"


AS_A_USER = "fedrep-near-truth"
"""The experiment that runs in worker processes and is drawn as it is for a paper."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of an experiment: that of another's where they have the same cells."""

    @functools.cache
    def made(name):
        return tmp_path_factory.mktemp("out")

    return lambda name: made(TOGETHER.get(name, name))


SHORT = (AS_A_USER,)
"""Experiments whose quick runs are made by default; those of the others with ``--all`` alone."""


def parameter(name):
    """Return an experiment's name as a parameter."""
    return name if name in SHORT else pytest.param(name, marks=pytest.mark.long)


@pytest.fixture(scope="module", params=map(parameter, experiment_files(FOLDER)))
def done(request, folder):
    """An experiment's module, the folder of its quick run, and its figures' keys as they were drawn from the tables.

    All but one are drawn coarsely, as PNG alone and without the automatic layout, which is half of the time; of several
    figures the first is drawn whole.
    """
    name, out = request.param, folder(request.param)
    module, drawn = load(name, FOLDER), []
    plain = module.plot

    def plot(tables):
        figures = plain(tables)
        drawn.extend(figures)
        for index, key in enumerate(drawn if name != AS_A_USER else ()):
            figures[key].set_layout_engine("none")
            for part in figures[key].get_children() if index else ():
                part.set_visible(False)
        return figures

    command = ["reproduce", name, "--quick", "--experiments", str(FOLDER), "--out", str(out), "--workers"]
    with pytest.MonkeyPatch.context() as patch:
        if name != AS_A_USER:
            patch.setitem(style.STYLE, "savefig.dpi", 50)
            patch.setattr(Figure, "savefig", png_alone)
        patch.setattr(module, "plot", plot)
        assert cli.main([*command, "2" if name == AS_A_USER else "1"]) == 0
    return name, module, out, drawn


def speaks_of(name):
    """Return the mark of a test that speaks of one experiment."""
    return pytest.mark.parametrize("done", [parameter(name)], indirect=True, scope="module")


def test_quick_run_is_whole(done):
    name, module, out, drawn = done
    record = ResultsFolder(out).read(name)
    tables = load_tables(record, ResultsFolder(out))
    assert all(len(table) for table in tables.values())
    claims = by_sentence(findings(module, tables))
    assert claims
    assert all(len(claim.source) > 8 and claim.claimed_range for claim in claims)
    assert [claim.verdict.value for claim in claims] == [claim.verdict.value for claim in record.claims]
    for key in drawn:
        stem = f"{name}{'-' + key if key else ''}"
        assert (out / f"{stem}.png").stat().st_size > (1000 if key == drawn[0] else 100)
        assert (out / f"{stem}.pdf").exists()
        caption = record.figures[key]
        assert (out / f"{stem}.txt").read_text(encoding="utf-8") == f"{caption}\n"
        assert caption.startswith(module.CAPTIONS.get(key, "no entry"))
        ranked = any("rank" in table.columns for table in tables.values())  # one layer has no k
        sizes = ("d = ", *(("k = ",) if ranked else ()), "n = ", "trials")
        assert all(re.search(rf"\b{size}", caption) for size in sizes)
    assert list(record.figures) == drawn


def test_a_helper_module_serves_experiments_of_its_room_or_of_several():
    users = defaultdict(list)
    for path in experiment_files(FOLDER).values():
        for helper in shared_modules(path):
            users[helper].append(path)
    helpers = {path for path in FOLDER.rglob("*.py") if path not in experiment_files(FOLDER).values()}
    helpers = {path for path in helpers if path.name != "__init__.py"}
    assert helpers
    assert {path for path in helpers if len(users[path]) < 2} == set()
    for path in helpers:
        rooms = {user.parent for user in users[path]}
        assert rooms == {path.parent} if path.parent.name != SHARED else len(rooms) > 1, path


class Poisoned:
    """In the place of a field's default, or of what makes a cell: reading it is an error."""

    def __get__(self, instance, owner):
        raise AssertionError(f"a judge read a default of {owner.__name__}, or made one")


@pytest.mark.long
def test_claims_and_figures_are_of_the_tables_alone(done, monkeypatch):
    """No default of a cell is read, and no cell is made, once there are tables."""
    name, module, out, _ = done
    record = ResultsFolder(out).read(name)
    tables = load_tables(record, ResultsFolder(out))
    for one in cell_classes():
        for default in [*one.__dataclass_fields__, "__init__"]:
            if default in vars(one) and hasattr(one, default):
                monkeypatch.setattr(one, default, Poisoned())
    claims = by_sentence(findings(module, tables))
    assert [claim.verdict.value for claim in claims] == [claim.verdict.value for claim in record.claims]
    assert [*module.plot(whole(module, tables))] == list(record.figures)
    plt.close("all")


@speaks_of(AS_A_USER)
def test_figures_are_whole_and_pdf_fonts_are_embedded_as_text(done):
    _, _, out, _ = done
    paths = sorted(out.glob("*.pdf"))
    assert len(paths) == 1
    for path in paths:
        assert path.with_suffix(".png").stat().st_size > 10_000
        written = path.read_bytes()
        assert len(written) > 1000
        assert b"/FontFile2" in written
        assert b"/Type3" not in written


PAPERS = {
    "fig1": {"n_clients": {100}, "dim": {20}, "rank": {2}, "n_samples": {5, 10, 20}, "rounds": {500}},
    "fig3": {"n_clients": {10, 100, 1000, 10_000}, "dim": {10}, "rank": {2}, "n_samples": {5}, "participation": {0.1}},
    "fig4": {"n_clients": {100}, "dim": {20}, "rank": {2}, "n_samples": {10}, "participation": {0.1}},
}


@pytest.mark.parametrize("figure", PAPERS)
def test_cells_are_the_papers(figure):
    module = importlib.import_module(f"experiments.fedrep.fedrep_{figure}")
    cells, *_ = module.cells(quick=False).values()
    assert {name: {getattr(cell, name) for cell in cells} for name in PAPERS[figure]} == PAPERS[figure]
    assert {(cell.preset, cell.noise_variance) for cell in cells} == {("paper", 1e-3), ("notebook", 1e-6)}
    assert all(cell.trials >= (50 if cell.n_clients <= 100 else 20) for cell in cells)
    if figure == "fig4":
        assert {cell.n_new for cell in cells} == {(1, 2, 3, 5, 10, 20, 40)}


@pytest.mark.parametrize("figure", PAPERS)
def test_the_noise_of_a_cell_is_the_noise_of_its_run(figure):
    module = importlib.import_module(f"experiments.fedrep.fedrep_{figure}")
    cells, *_ = module.cells(quick=True).values()
    for cell in cells:
        for variance in (cell.noise_variance, 0.04):
            assert replace(cell, noise_variance=variance).problem.noise_std == math.sqrt(variance)


def exchanged(table, one, other):
    """Return a table in which two methods have each other's name."""
    names = {one: other, other: one}
    return table.assign(method=lambda row: names.get(row["method"], row["method"]))


def judged(claims):
    return {(claim.claim, claim.setting): claim.verdict for claim in claims}


def of(done):
    name, module, out, _ = done
    return module, load_tables(ResultsFolder(out).read(name), ResultsFolder(out))


@speaks_of("fedrep-fig1")
def test_fig1_methods_see_the_same_trials(done):
    _, tables = of(done)
    for _, table in tables["clients"].groupby("preset", "n_samples"):
        for row in table:
            np.testing.assert_array_equal(row["single_model_floor"], table["single_model_floor"][0])


@speaks_of("fedrep-fig1")
def test_one_layer_fedavg_is_at_its_fixed_point(done):
    _, tables = of(done)
    table = tables["one_layer"]
    assert np.all(table["rate"] < 1)
    fast = table["rate"] ** table["round"][-1] < 1e-11
    assert fast.mean() > 0.5
    assert table["distance"][fast, -1].max() < 1e-10
    np.testing.assert_allclose(table["curve"][fast, -1], table["fixed_point_squared_error"][fast], rtol=1e-8)


@speaks_of("fedrep-fig1")
def test_single_models_stay_above_the_floor(done):
    """By its definition nothing that all clients share is below it: this would find a wrong floor."""
    _, tables = of(done)
    for table in (tables["one_layer"], tables["clients"].select(method="FedAvg")):
        assert np.all(table["mean"] > table["single_model_floor"])


@pytest.mark.long
def test_fig1_some_trials_stay_away_from_the_truth():
    """At m = 5 and the full run's step, about nine of 50 trials end far from B*, after twice the rounds too.

    Rounding, and so the processor, decides when a trial leaves a plateau.
    """
    cell = importlib.import_module("experiments.fedrep.fedrep_fig1").Clients(n_samples=5)
    run = {"data": lf.FixedSamples(5), "trials": cell.trials, "seed": (cell.seed, 5)}
    result = lf.simulate(
        cell.algorithm(0.3),
        cell.problem,
        rounds=1000,
        metrics=["subspace_distance", "train_loss"],
        record_every=500,
        **run,
    )
    distance, loss = result.metrics["subspace_distance"], result.metrics["train_loss"]
    away = distance[:, 2] > 0.2
    assert 8 <= away.sum() <= 10
    assert 8 <= (distance[:, 1] > 0.2).sum() <= 10
    assert np.all(distance[away, 1] > 0.2)
    assert np.all(distance[~away, 2] < 0.05)
    assert loss[away, 2].min() > 10 * loss[~away, 2].max()


@speaks_of("fedrep-fig1")
def test_fig1_judge_rejects_what_is_false(done):
    module, tables = of(done)
    verdicts = judged(findings(module, {"clients": exchanged(tables["clients"], "FedRep", "FedAvg")}))
    assert verdicts["FedRep has a smaller error than FedAvg", "paper: m = 20"] is Verdict.NOT_SUPPORTED
    smallest = "FedRep has the smallest of the three errors, client by client"
    assert verdicts[smallest, "paper: m = 20"] is Verdict.NOT_SUPPORTED
    hardly = "FedAvg hardly improves with m: by less than a tenth"
    assert verdicts[hardly, "paper: m = 20 against 5, best step"] is Verdict.NOT_SUPPORTED


@speaks_of("fedrep-fig4")
def test_fig4_law_of_new_clients_is_the_measured_one(done):
    """The predicted quantiles know the learned B alone; a quick run has a thousand new clients."""
    _, tables = of(done)
    for row in tables["clients"]:
        errors = row["squared_error"][~row["diverged"]]  # it speaks of trials that completed
        below = np.mean(errors[..., None] <= row["predicted"][:, None, :], axis=(0, 2))
        known = ~np.isnan(row["predicted"])
        assert known.any()
        assert np.abs(below - row["quantile"])[known].max() < 0.075, row


@speaks_of("fedrep-fig4")
def test_fig4_methods_meet_the_same_new_clients(done):
    """Below the rank of B the oracle's and Local only's errors are of one truth: both grow with the same lengths."""
    _, tables = of(done)
    errors = {
        name: row["squared_error"][:, 0] for name, row in tables["clients"].select(preset="paper").groupby("method")
    }
    assert np.corrcoef(errors["LocalOnly"].ravel(), errors["Oracle"].ravel())[0, 1] > 0.2


@speaks_of("fedrep-fig4")
def test_fig4_judge_rejects_what_is_false(done):
    module, tables = of(done)
    verdicts = judged(findings(module, {"clients": exchanged(tables["clients"], "FedRep", "FedAvg")}))
    small = "FedRep's error on a new client is small once m_new >= k"
    assert verdicts[small, "paper: m_new = 20"] is Verdict.NOT_SUPPORTED
    assert verdicts["FedAvg's error on a new client stays high", "paper: m_new = 20"] is Verdict.NOT_SUPPORTED


@speaks_of("fedrep-fig3")
def test_fig3_methods_see_the_same_trials(done):
    _, tables = of(done)
    for _, table in tables["curves"].groupby("preset", "n_clients"):
        for row in table:
            np.testing.assert_array_equal(row["distance"][:, 0], next(iter(table))["distance"][:, 0])


def test_fig3_notebook_preset_is_the_paper_rescaled():
    """With noise, heads, data and QR made equal, the notebook's scaling is a change of units."""
    module = importlib.import_module("experiments.fedrep.fedrep_fig3")
    cell = module.Curve(preset="notebook", n_clients=20, method="GD-GD")
    scaled, problem = cell.at(0.3, 0.2), cell.problem
    truth = problem.truth(0, [0])
    np.testing.assert_allclose(np.linalg.norm(truth.W, axis=-1), 1.0)
    shared = {"rounds": 10, "participation": 0.1, "seed": 0, "data": lf.FreshSamples(5)}
    sizes = {"n_clients": 20, "dim": 10, "rank": 2, "head_norm": 1.0}
    plain = {"rank": 2, "init": "random", "orthonormalize": False}
    units = lf.SharedRepresentation(**sizes, design=lf.Gaussian(covariance=1 / 5))
    steps = {"step_size": scaled.step_size, "heads": scaled.heads}
    notebook = lf.simulate(lf.FedRep(**plain, aggregate="sum", **steps), units, **shared)
    steps = {"step_size": 0.3, "heads": lf.GradientHeads(step_size=0.2)}
    paper = lf.simulate(lf.FedRep(**plain, **steps), lf.SharedRepresentation(**sizes), **shared)
    np.testing.assert_allclose(notebook.final.B, paper.final.B, rtol=0, atol=1e-12)


@speaks_of("fedrep-fig3")
def test_fig3_judge_rejects_what_is_false(done):
    """With the methods' names exchanged, the claims on their order must fail."""
    module, tables = of(done)
    verdicts = judged(findings(module, {"curves": exchanged(tables["curves"], "FedRep", "GD-GD")}))
    assert verdicts["FedRep needs fewer rounds than 10GD-GD", "paper: n = 1,000"] is Verdict.NOT_SUPPORTED


NEVER = np.inf


@pytest.mark.parametrize(
    ("fedrep", "rival", "verdict"),
    [
        ((60, 10), (60, 30), Verdict.SUPPORTED),
        ((60, 30), (60, 10), Verdict.NOT_SUPPORTED),
        ((60, 10), (NEVER, NEVER), Verdict.INCONCLUSIVE),
        ((60, 10), (NEVER, 190), Verdict.INCONCLUSIVE),
        ((60, 10), (150, NEVER), Verdict.SUPPORTED),  # the rival lost rounds, however many
        ((NEVER, 10), (60, 30), Verdict.SUPPORTED),  # a gain of more than 20 against 2
        ((NEVER, NEVER), (60, 30), Verdict.INCONCLUSIVE),
    ],
)
def test_fig3_gain_claims_nothing_that_rests_on_rounds_never_reached(fedrep, rival, verdict):
    jitter = np.random.default_rng(0).integers(0, 3, (2, 2, 50))
    mine, other = np.array([fedrep, rival])[..., None] + jitter
    measured, _ = factor_ratio(mine, other, 200)
    gain = judge(measured, claim="", setting="", statistic="", source="test", claimed_low=1.0, strict=True)
    assert gain.verdict is verdict


@speaks_of("fedrep-fig3")
def test_fig3_notes_are_of_the_setting(done):
    module, tables = of(done)
    table = tables["curves"].select(preset="paper", method=["FedRep", "GD-GD"])
    assert "p = 1 participant" in module.note(table.assign(participants=lambda row: 1))
    assert "Theorem" not in module.note(table.select(n_clients=100))
    changed = table.assign(at_grid_edge=lambda row: "step_size" if row["method"] == "GD-GD" else "")
    found = findings(module, {"curves": changed.select(n_clients=100)})
    assert any("GD-GD lies at the edge" in one.note for one in found)


# --- statements about every run: one trial of many refutes them ----------------------------------------------


def with_values(found, values):
    """Return a column of a row with other values, along the same axes."""
    return lf.LabeledArray(values, **found.axes) if isinstance(found, lf.LabeledArray) else values


def spoiled(table, column, value, **where):
    """Return a table whose first row of the named ones begins with another value."""
    rows = [dict(row) for row in table.rows]
    row = next(row for row in rows if all(row[name] == wanted for name, wanted in where.items()))
    values = np.array(getattr(row[column], "values", row[column]))
    values.flat[0] = value
    row[column] = with_values(row[column], values)
    return lf.Table(rows)


@speaks_of("shortcut-bound")
def test_shortcut_bound_judges_by_the_worst_trial(done):
    module, tables = of(done)
    text, where = "Equation (9), (16), (17) is an identity over (2)-(5)", "noise 0"
    assert judged(findings(module, tables))[text, where] is Verdict.HOLDS
    false = spoiled(tables["terms"], "heads", 1e-3, method=module.CLOSED, noise_std=0.0)
    assert judged(findings(module, {"terms": false}))[text, where] is Verdict.VIOLATED
    printed = "Equation (9) as printed is an identity over (2)-(5)"
    assert judged(findings(module, tables))[printed, where] is Verdict.VIOLATED
    for column, text in (("identity", "The split (19) to (21) of B is an identity"), ("distance", "dist stays below")):
        false = spoiled(tables["terms"], column, 5.0, method=module.CLOSED, noise_std=0.0)
        verdicts = judged(findings(module, {"terms": false}))
        (found,) = [v for (t, w), v in verdicts.items() if t.startswith(text) and w == f"{module.CLOSED}, noise 0"]
        assert found is Verdict.VIOLATED


@speaks_of("flute-theorem51")
def test_theorem51_judges_by_the_worst_trial(done):
    module, tables = of(done)
    said = "The floor does not depend on the step size"
    for table, verdict in (
        (tables["floors"], Verdict.HOLDS),
        (spoiled(tables["floors"], "error", 1.0, sweep=module.SLOW), Verdict.VIOLATED),
    ):
        assert {claim.verdict for claim in findings(module, {"floors": table}) if claim.claim == said} == {verdict}


@speaks_of("flute-theorem51")
def test_theorem51_judges_reject_what_is_false(done):
    module, tables = of(done)

    def grown(column):
        return lambda row: row[column] * ((row["n_samples"] / 300.0) ** 0.3 if row["sweep"] == "m" else 1.0)

    false = tables["floors"].assign(error=grown("error"), rms=grown("rms"))
    claims = findings(module, {"floors": false})
    verdicts = judged(claims)
    assert verdicts["The error falls at least like m^-1/2", "n = d = 20"] is Verdict.VIOLATED
    assert verdicts["The exponent is that of the first-order prediction", "m: n = d = 20"] is Verdict.VIOLATED
    assert verdicts["The floor is that of the first-order prediction", "m: n = d = 20"] is Verdict.VIOLATED
    (spread,) = [claim for claim in claims if "one constant fits" in claim.claim]
    assert spread.verdict is Verdict.VIOLATED


@speaks_of("flute-theorem55")
def test_theorem55_judges_reject_what_is_false(done):
    module, tables = of(done)
    false = spoiled(tables["runs"], "identity", 1e-3, name=module.BASE, data=module.POPULATION)
    verdicts = judged(findings(module, {"runs": false}))
    assert verdicts["The Theta recursion (13) is an identity", module.POPULATION] is Verdict.VIOLATED


@speaks_of("flute-rate-and-floor")
def test_rate_and_floor_judges_reject_what_is_false(done):
    module, tables = of(done)

    def twice_the_floor(row):  # in every round, as runs that still fall are not judged
        rms = 0.0 * np.asarray(row["rms"]) + 2.0 * np.reshape(row["floor"], (-1, 1))
        return lf.LabeledArray(rms, round=row["round"])

    false = tables["runs"].select(data=module.FIXED).assign(rms=twice_the_floor)
    claims = findings(module, {"runs": false})
    floors = {claim.verdict for claim in claims if claim.claim.startswith("With m fixed the final error")}
    assert floors == {Verdict.VIOLATED}


@speaks_of("anisotropy-mechanism")
def test_mechanism_judges_reject_what_is_false(done):
    module, tables = of(done)
    moved = tables["messages"].assign(message=lambda row: np.asarray(row["message"]) + 0.5)
    slower = tables["rates"].assign(measured=lambda row: 1.3 * np.asarray(row["measured"]))
    wrong = findings(module, {"messages": moved, "rates": slower})
    assert len(wrong) > 3
    assert {claim.verdict for claim in wrong} == {Verdict.NOT_SUPPORTED}


@speaks_of("anisotropy")
def test_anisotropy_judges_reject_what_is_false(done):
    module, tables = of(done)
    times = {module.SAME: 100.0, module.SPLIT: 1.0, module.DFW: 1.0}
    worse = tables["runs"].assign(distance=lambda row: times[row["method"]] * np.asarray(row["distance"]))
    text = "FedRep on the same batch fails for mildly non-isotropic x"
    fails = [claim for claim in findings(module, tables | {"runs": worse}) if claim.claim == text]
    assert {claim.verdict for claim in fails} == {Verdict.SUPPORTED}


@speaks_of("fedrep-million")
def test_million_judges_reject_what_is_false(done):
    module, tables = of(done)

    def thrice(factor, values):  # a median is bounded by six trials or more
        return lambda row: lf.LabeledArray(factor * np.tile(values(row), (3, 1)), round=row["round"])

    false = tables["curves"].assign(
        distance=thrice(2.0, lambda row: row["distance"]),
        predicted=thrice(1.0, lambda row: row["predicted"]),
    )
    assert [claim.verdict for claim in findings(module, {"curves": false})] == [Verdict.NOT_SUPPORTED]


@speaks_of("flute-divergence")
def test_phase_lines_are_judged_by_data_set(done):
    """A trial's points share its data: with few trials not even a perfect share lies above 95 %."""
    module, tables = of(done)
    phase = tables["phase"].assign(diverged=lambda row: lf.LabeledArray(row["unbounded"], excess=row["excess"]))
    same = [c for c in findings(module, {"phase": phase}) if c.statistic == "share of (data set, excess) pairs"]
    sets = phase.select(start="far")["threshold"].size
    assert len(same) == 4
    for claim in same:
        assert f"in {sets} data sets" in claim.detail
        if claim.claim.startswith("A run diverges iff"):
            assert (claim.estimate, claim.high) == (1.0, 1.0)
            assert claim.low == pytest.approx(clustered_share(np.ones((sets, 5), dtype=bool))[1])


@speaks_of("shortcut-search")
def test_shortcut_search_judges_the_fit_as_a_rival(done):
    module, tables = of(done)
    better = "The best setting found has a smaller parameter error than one personal fit at FedRep's B"
    keeps = "One personal fit at FedRep's B keeps at least nine tenths of the shortcuts' gain over FedRep"

    def claims(**errors):
        table = tables["search"]
        trial = np.arange(table.rows[0]["trials"])
        false = table.assign(error=lambda row: errors.get(row["method"], 1.0) + 0.0 * trial)
        return {claim.claim: claim for claim in findings(module, {"search": false})}

    for fit, first, second in (
        (2.5, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED),
        (0.9, Verdict.NOT_SUPPORTED, Verdict.SUPPORTED),
    ):
        found = claims(shortcuts=1.0, FedRep=3.0, fit=fit)
        assert found[better].verdict is first
        assert found[keeps].verdict is second
    assert claims(shortcuts=4.0, FedRep=3.0, fit=2.5)[keeps].estimate == np.inf  # the shortcuts gain nothing


@speaks_of("shortcut-search")
def test_shortcut_search_tunes_all_rivals_alike(done):
    module, tables = of(done)
    for cell in module.cells(quick=False)["search"]:
        own, fit, fedrep = (cell.settings(method) for method in (module.OWN, module.FIT, module.FEDREP))
        assert len(own) == len(fit) == 24
        steps = [{setting["step_size"] for setting in settings} for settings in (own, fit, fedrep)]
        assert steps == [set(cell.steps)] * 3
    for _, part in tables["search"].groupby("family", "size", "n_samples"):
        own, fit = (part.select(method=method)["score"] for method in (module.OWN, module.FIT))
        assert len(own) == len(fit)


@speaks_of("shortcut-lost")
def test_shortcut_lost_judges_reject_what_is_false(done):
    module, tables = of(done)
    closed = tables["rounds"].select(method=module.CLOSED, kind=module.FIXED)

    def verdicts(factor):
        false = closed.assign(lost=lambda row: np.full(row["trials"], factor * (1.5 * row["predicted"] + 0.5)))
        return {(claim.claim, claim.verdict) for claim in findings(module, {"rounds": false})}

    constant = "The prediction without a fitted parameter gives the rounds, to a constant between 1 and 2"
    lost = "(2) to (5) lose a B near B*"
    assert {(constant, Verdict.SUPPORTED)} <= verdicts(1.0)
    assert {(constant, Verdict.NOT_SUPPORTED)} <= verdicts(3.0)
    assert {(constant, Verdict.NOT_SUPPORTED), (lost, Verdict.NOT_SUPPORTED)} <= verdicts(np.inf)


@pytest.mark.parametrize(("power", "verdict"), [(0.5, Verdict.SUPPORTED), (1.0, Verdict.NOT_SUPPORTED)])
def test_shortcut_lost_tells_a_root_from_a_straight_line(power, verdict):
    module = importlib.import_module("experiments.shortcut.shortcut_lost")
    cells = module.cells(quick=False)["rounds"]
    found = []
    for c in cells:
        moves = 0.05 * c.n_samples**power * (1.0 / c.step_size - 0.999) * (1 + 0.01 * np.arange(c.trials))
        found.append({"lost": 2 * moves - 1, "predicted": 1.0})
    claims = findings(module, {"rounds": lf.Table.of(cells, found)})
    grows = [c for c in claims if c.claim == "The rounds until B is lost grow like sqrt(m) on fixed samples"]
    assert len(grows) == 6
    assert {claim.verdict for claim in grows} == {verdict}
    slow = [c for c in claims if "(1 - eta)/eta" in c.claim]
    assert {claim.verdict for claim in slow} == {Verdict.SUPPORTED}


@pytest.mark.parametrize(
    ("name", "table", "rows", "changes", "sentence"),
    [
        ("weights", "floors", {"rate": 0.02}, {"share": 0.4}, "Equal weights settle at"),
        ("weights", "floors", {"rate": 0.6}, {"share": 0.1}, "At a large rate"),
        ("anisotropy", "runs", {"series": "base"}, {"condition": 1.0}, "FedRep on the same batch fails for mildly"),
        ("flute-theorem51", "floors", {"sweep": "n above d"}, {"dim": 1000}, "With more clients than dimensions"),
        ("flute-theorem51", "floors", {"sweep": "d above n"}, {"n_clients": 1000}, "With more dimensions than clients"),
    ],
)
def test_a_claim_is_asked_only_of_the_sizes_that_its_sentence_names(name, table, rows, changes, sentence):
    part = lf.Table.load(FOLDER.parent / "results" / "committed" / f"{name}-{table}.npz").select(**rows)
    claims = [one for one in load(name, FOLDER).CLAIMS if one.sentence.startswith(sentence)]
    assert lf.claims.judged(claims, {table: part})
    assert not lf.claims.judged(claims, {table: lf.Table([row | changes for row in part.rows])})


def test_small_and_large_shortcuts_are_asked_of_two_sizes():
    def row(sizes, values):
        dist = lf.LabeledArray(np.full((8, len(sizes), len(values)), 0.3), size=sizes, value=values)
        return lf.Table([{"family": "Algorithm 1", "truth": "orthogonal", "dist": dist}])

    claims = [one for one in load("shortcut-phase", FOLDER).CLAIMS if "B is learned where shortcuts" in one.sentence]
    assert len(lf.claims.judged(claims, {"map": row([0.5, 2.0], [0.01, 0.1])})) == len(claims) == 3
    assert not lf.claims.judged(claims, {"map": row([2.0], [0.01, 0.1])})
    assert not lf.claims.judged(claims, {"map": row([0.5, 2.0], [0.1])})
