"""Every experiment runs in --quick and draws from its saved tables alone."""

import importlib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed import cli
from linfed.statistics.findings import Verdict, by_sentence, judge
from linfed.study.experiments import experiment_files, load
from linfed.study.run import load_tables

FOLDER = Path(__file__).parent.parent / "experiments"


@pytest.fixture(scope="module", params=experiment_files(FOLDER))
def done(request, tmp_path_factory):
    """An experiment's module and the folder of its quick run."""
    out = tmp_path_factory.mktemp("out")
    status = cli.main(["reproduce", request.param, "--quick", "--experiments", str(FOLDER), "--out", str(out)])
    assert status == 0
    return request.param, load(request.param, FOLDER), out


def speaks_of(name):
    """Return the mark of a test that speaks of one experiment."""
    return pytest.mark.parametrize("done", [name], indirect=True, scope="module")


def test_quick_run_is_whole(done):
    name, module, out = done
    described, tables = load_tables(name, out)
    assert all(len(table) for table in tables.values())
    claims = by_sentence(module.claims(tables))
    assert claims
    assert all(len(claim.source) > 8 and claim.said for claim in claims)
    assert [claim.verdict.value for claim in claims] == [claim["verdict"] for claim in described["claims"]]
    figures = module.plot(tables)
    for key, figure in figures.items():
        plt.close(figure)
        for suffix in ("png", "pdf"):
            assert (out / f"{name}{'-' + key if key else ''}.{suffix}").stat().st_size > 1000


def test_pdf_fonts_are_embedded_as_text(done):
    _, _, out = done
    for path in out.glob("*.pdf"):
        written = path.read_bytes()
        assert b"/FontFile2" in written
        assert b"/Type3" not in written


PAPERS = {
    "fig1": {"n_clients": {100}, "dim": {20}, "rank": {2}, "n_samples": {5, 10, 20}, "rounds": {500}},
    "fig3": {"n_clients": {10, 100, 1000, 10_000}, "dim": {10}, "rank": {2}, "n_samples": {5}, "participation": {0.1}},
    "fig4": {"n_clients": {100}, "dim": {20}, "rank": {2}, "n_samples": {10}, "participation": {0.1}},
}


@pytest.mark.parametrize("figure", PAPERS)
def test_cells_are_the_papers(figure):
    module = importlib.import_module(f"experiments.fedrep_{figure}")
    (cells,) = module.cells(quick=False).values()
    assert {name: {getattr(cell, name) for cell in cells} for name in PAPERS[figure]} == PAPERS[figure]
    assert {cell.noise_variance for cell in cells} == {1e-3}
    assert min(cell.trials for cell in cells) >= 50
    if figure == "fig4":
        assert {1, 2, 5, 10, 20} <= set(module.N_NEW)


def exchanged(table, one, other):
    """Return a table in which two methods have each other's name."""
    names = {one: other, other: one}
    return table.assign(method=lambda row: names.get(row["method"], row["method"]))


def judged(claims):
    return {(claim.text, claim.where): claim.verdict for claim in claims}


def of(done):
    name, module, out = done
    return module, load_tables(name, out)[1]


@speaks_of("fedrep-fig1")
def test_fig1_methods_see_the_same_trials(done):
    _, tables = of(done)
    for _, table in tables["clients"].by("preset", "n_samples"):
        for row in table:
            np.testing.assert_array_equal(row["single_model_floor"], table["single_model_floor"][0])


@speaks_of("fedavg-fixed-point")
def test_one_layer_fedavg_is_at_its_fixed_point(done):
    module, tables = of(done)
    table = tables["curves"].where(method=list(module.ONE_LAYER))
    assert np.all(table["rate"] < 1)
    fast = table["rate"] ** table["round"][-1] < 1e-11
    assert fast.mean() > 0.5
    assert table["distance"][fast, -1].max() < 1e-10
    np.testing.assert_allclose(table["curve"][fast, -1], table["fixed_point_squared_error"][fast], rtol=1e-8)


@speaks_of("fedavg-fixed-point")
def test_single_models_stay_above_the_floor(done):
    """By its definition nothing that all clients share is below it: this would find a wrong floor."""
    module, tables = of(done)
    table = tables["curves"].where(method=["FedAvg", *module.ONE_LAYER])
    assert np.all(table["mean"] > table["single_model_floor"])


def test_fig1_some_trials_stay_away_from_the_truth():
    """At m = 5 and the full run's step six of 50 trials end far from B*; three times the rounds do not help."""
    cell = importlib.import_module("experiments._fedrep").Clients(n_samples=5)
    run = {"data": lf.FixedSamples(5), "trials": cell.trials, "seed": (cell.seed, 5)}
    result = lf.simulate(
        cell.algorithm(0.3),
        cell.problem,
        rounds=1500,
        metrics=["subspace_distance", "train_loss"],
        record_every=500,
        **run,
    )
    distance, loss = result.metrics["subspace_distance"], result.metrics["train_loss"]
    away = distance[:, 1] > 0.2
    assert away.sum() == 6
    assert np.all(distance[away, 1:] > 0.2)
    assert np.all(distance[~away, 1:] < 0.05)
    assert loss[away, 3].min() > 10 * loss[~away, 3].max()


@speaks_of("fedrep-fig1")
def test_fig1_judge_rejects_what_is_false(done):
    module, tables = of(done)
    verdicts = judged(module.claims({"clients": exchanged(tables["clients"], "FedRep", "FedAvg")}))
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
    errors = {name: row["squared_error"][:, 0] for name, row in tables["clients"].where(preset="paper").by("method")}
    assert np.corrcoef(errors["LocalOnly"].ravel(), errors["Oracle"].ravel())[0, 1] > 0.2


@speaks_of("fedrep-fig4")
def test_fig4_judge_rejects_what_is_false(done):
    module, tables = of(done)
    verdicts = judged(module.claims({"clients": exchanged(tables["clients"], "FedRep", "FedAvg")}))
    small = "FedRep's error on a new client is small once m_new >= k"
    assert verdicts[small, "paper: m_new = 20"] is Verdict.NOT_SUPPORTED
    assert verdicts["FedAvg's error on a new client stays high", "paper: m_new = 20"] is Verdict.NOT_SUPPORTED


@speaks_of("fedrep-fig3")
def test_fig3_methods_see_the_same_trials(done):
    _, tables = of(done)
    for _, table in tables["curves"].by("preset", "n_clients"):
        for row in table:
            np.testing.assert_array_equal(row["distance"][:, 0], table["distance"][0, :, 0])


def test_fig3_notebook_preset_is_the_paper_rescaled():
    """With noise, heads, data and QR made equal, the notebook's scaling is a change of units."""
    module = importlib.import_module("experiments.fedrep_fig3")
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
    verdicts = judged(module.claims({"curves": exchanged(tables["curves"], "FedRep", "GD-GD")}))
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
    module = importlib.import_module("experiments.fedrep_fig3")
    jitter = np.random.default_rng(0).integers(0, 3, (2, 2, 50))
    mine, other = np.array([fedrep, rival])[..., None] + jitter
    measured, _ = module.censored_gain(mine, other, 200)
    gain = judge(measured, text="", where="", statistic="", source="test", least=1.0, strict=True)
    assert gain.verdict is verdict


@speaks_of("fedrep-fig3")
def test_fig3_notes_are_of_the_setting(done):
    module, tables = of(done)
    table = tables["curves"].where(preset="paper", method=["FedRep", "GD-GD"])
    assert "p = 1 participant" in module.note(table.where(n_clients=10))
    assert "Theorem" not in module.note(table.where(n_clients=100))
    changed = table.assign(at_edge=lambda row: "step_size" if row["method"] == "GD-GD" else "")
    assert "GD-GD lies at the edge" in module.note(changed.where(n_clients=100))


# --- statements about every run: one trial of many refutes them ----------------------------------------------


def spoiled(table, column, value, **where):
    """Return a table whose first row of the named ones has another value."""
    table = table.copy()
    chosen = np.ones(len(table), dtype=bool)
    for name, wanted in where.items():
        chosen &= table[name] == wanted
    table[column][np.flatnonzero(chosen)[0]] = value
    return table


@speaks_of("shortcut-bound")
def test_shortcut_bound_judges_by_the_worst_trial(done):
    module, tables = of(done)
    text, where = "Equation (9), (16), (17) is an identity over (2)-(5)", "noise 0"
    assert judged(module.claims(tables))[text, where] is Verdict.HOLDS
    false = spoiled(tables["equations"], "gap", 1e-3, equation="(9), (16), (17)", noise_std=0.0)
    assert judged(module.claims({**tables, "equations": false}))[text, where] is Verdict.VIOLATED
    printed = "Equation (9) as printed is an identity over (2)-(5)"
    assert judged(module.claims(tables))[printed, where] is Verdict.VIOLATED
    for column, text in (("identity", "The split (19) to (21) of B is an identity"), ("distance", "dist stays below")):
        false = spoiled(tables["terms"], column, 5.0, method=module.CLOSED, noise_std=0.0)
        verdicts = judged(module.claims({**tables, "terms": false}))
        (found,) = [v for (t, w), v in verdicts.items() if t.startswith(text) and w == f"{module.CLOSED}, noise 0"]
        assert found is Verdict.VIOLATED


@speaks_of("flute-theorem51")
def test_theorem51_judges_by_the_worst_trial(done):
    module, tables = of(done)
    (same,) = module._same_floor(tables["floors"])
    assert same.verdict is Verdict.HOLDS
    (false,) = module._same_floor(spoiled(tables["floors"], "error", 1.0, sweep="the theorem's step"))
    assert false.verdict is Verdict.VIOLATED


@speaks_of("flute-theorem51")
def test_theorem51_judges_reject_what_is_false(done):
    module, tables = of(done)
    false = tables["floors"].copy()
    for column in ("error", "rms"):
        false[column] *= np.where(false["sweep"] == "m", (false["at"] / 300.0) ** 0.3, 1.0)
    claims = module.claims({"floors": false})
    verdicts = judged(claims)
    assert verdicts["The error falls at least like m^-1/2", "n = d = 20"] is Verdict.VIOLATED
    assert verdicts["The exponent is that of the first-order law", "m: n = d = 20"] is Verdict.VIOLATED
    assert verdicts["The floor is that of the first-order law", "m: n = d = 20"] is Verdict.VIOLATED
    (spread,) = [claim for claim in claims if "one constant serves" in claim.text]
    assert spread.verdict is Verdict.VIOLATED


@speaks_of("flute-theorem55")
def test_theorem55_judges_reject_what_is_false(done):
    module, tables = of(done)
    false = {**tables, "summary": tables["summary"].copy()}
    false["summary"]["final"] *= 2.0
    for claim in module.claims(false):
        if claim.text.startswith("With m fixed the error ends"):
            assert claim.verdict is Verdict.VIOLATED
    false = spoiled(tables["rounds"], "identity", 1e-3, name=module.BASE, data=module.POPULATION)
    verdicts = judged(module.claims({**tables, "rounds": false}))
    assert verdicts["The Theta recursion (13) is an identity", module.POPULATION] is Verdict.VIOLATED


@speaks_of("fedrep-million")
def test_million_judges_reject_what_is_false(done):
    module, tables = of(done)
    false = tables["curves"].assign(
        distance=lambda row: lf.Along(2.0 * row["distance"], round=row["round"]),
        seconds=lambda row: lf.Along(2.0 * np.broadcast_to(row["round"], row["seconds"].shape), round=row["round"]),
        peak_gigabytes=lambda row: 4.3,
    )
    assert [claim.verdict for claim in module.claims({"curves": false})] == [Verdict.NOT_SUPPORTED] * 3


@speaks_of("flute-fig4")
def test_phase_lines_are_judged_by_data_set(done):
    """A trial's points share its data: with few trials not even a perfect share lies above 95 %."""
    module, tables = of(done)
    phase = tables["phase"].copy()
    phase["diverged"] = phase["unbounded"]
    same = [c for c in module.claims({**tables, "phase": phase}) if c.statistic == "share of (data set, excess) pairs"]
    sets = len(np.unique(phase[["n_samples", "trial"]]))
    for claim in same:
        assert f"in {sets} data sets" in claim.detail
        if claim.text.startswith("Diverging and being"):
            assert (claim.estimate, claim.high) == (1.0, 1.0)
            assert claim.low == pytest.approx(1 - (1 - 0.025 ** (1 / sets)))


@speaks_of("shortcut-phase")
def test_shortcut_phase_judges_the_fit_as_a_rival(done):
    module, tables = of(done)
    better = "The best setting found has a smaller parameter error than one personal fit at FedRep's B"
    keeps = "One personal fit at FedRep's B keeps at least nine tenths of what the shortcuts gain over FedRep"
    for fit, first, second in ((2.5, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED), (1.0, Verdict.NOT_SUPPORTED, "")):
        false = tables["search"].copy()
        false["error"], false["fedrep_error"] = 1.0, 3.0
        false["fit_error"] = fit - 1e-3 * false["trial"]
        for claim in module.claims({**tables, "search": false}):
            if claim.text == better:
                assert claim.verdict is first
            if claim.text == keeps:
                assert claim.verdict is (second or Verdict.SUPPORTED)
    false["error"] = 4.0  # the shortcuts gain nothing
    (kept,) = {claim.estimate for claim in module.claims({**tables, "search": false}) if claim.text == keeps}
    assert kept == np.inf


@speaks_of("shortcut-phase")
def test_shortcut_phase_tunes_all_rivals_alike(done):
    module, tables = of(done)
    for cell in module.cells(module.Config()):
        if cell.search:
            (_, grid), (_, fit), (_, plain) = module.searched(cell).values()
            sizes = [len(g) if isinstance(g, list) else int(np.prod([len(v) for v in g.values()])) for g in (grid, fit)]
            assert sizes[0] == sizes[1] == 24
            assert plain == {"step_size": cell.config.search_steps}
    assert set(tables["search"]["fit_settings"]) == set(tables["search"]["settings"])


@speaks_of("shortcut-lost")
def test_shortcut_lost_judges_reject_what_is_false(done):
    module, tables = of(done)
    rounds = tables["rounds"]
    closed = (rounds["method"] == module.CLOSED) & (rounds["kind"] == module.FIXED)

    def verdicts(**columns):
        false = rounds.copy()
        for name, values in columns.items():
            false[name][closed] = values[closed]
        return {(claim.text, claim.verdict) for claim in module.claims({"rounds": false}) if "fresh" not in claim.where}

    constant = "The prediction without a free parameter tells the rounds, to a constant between 1 and 2"
    lost = "(2) to (5) lose a B near B*"
    told = 1.5 * rounds["predicted"] + 0.5
    assert {(constant, Verdict.SUPPORTED)} <= verdicts(lost=told)
    assert {(constant, Verdict.NOT_SUPPORTED)} <= verdicts(lost=3 * told)
    assert {(constant, Verdict.NOT_SUPPORTED), (lost, Verdict.NOT_SUPPORTED)} <= verdicts(lost=np.inf * told)


@pytest.mark.parametrize(("power", "verdict"), [(0.5, Verdict.SUPPORTED), (1.0, Verdict.NOT_SUPPORTED)])
def test_shortcut_lost_tells_a_root_from_a_straight_line(power, verdict):
    module = importlib.import_module("experiments.shortcut_lost")
    cells = module.cells(module.Config())
    found = []
    for c in cells:
        moves = 0.05 * c.n_samples**power * (1.0 / c.step_size - 0.999) * (1 + 0.01 * np.arange(c.trials))
        found.append({"lost": 2 * moves - 1, "dist": np.full(c.trials, 0.6)})
    claims = module.claims(module.tables(module.Config(), found))
    grows = [c for c in claims if c.text == "The rounds until B is lost grow like sqrt(m) on fixed samples"]
    assert len(grows) == 6
    assert {claim.verdict for claim in grows} == {verdict}
    slow = [c for c in claims if "(1 - eta)/eta" in c.text]
    assert {claim.verdict for claim in slow} == {Verdict.SUPPORTED}


@pytest.mark.parametrize("same", [True, False])
@speaks_of("flute-minima")
def test_minima_judges_tell_one_from_many(done, same):
    module, tables = of(done)
    pairs = np.repeat(tables["pairs"], 10)  # a quick run has few data sets, and few runs that settle
    pairs["trial"] = np.arange(len(pairs)) % 60
    pairs["settled"], pairs["same"], pairs["risk"], pairs["error"] = True, same, -0.1, 0.1
    verdicts = {}
    for claim in module.claims({**tables, "pairs": pairs}):
        verdicts.setdefault(claim.text, set()).add(claim.verdict)
    once = {"Two runs on one data set settle at the same minimum"}
    assert {text for text, found in verdicts.items() if found == {Verdict.NOT_SUPPORTED}} >= (set() if same else once)
    (risk, error) = (
        f"Where they differ, FLUTE's minimum has the lower {n}" for n in ("empirical risk", "mean client error")
    )
    assert verdicts[risk] == {Verdict.VACUOUS if same else Verdict.SUPPORTED}
    assert verdicts[error] == {Verdict.VACUOUS if same else Verdict.NOT_SUPPORTED}
    assert verdicts["From one start FLUTE and FedRep part as often as one method does from two"] == {Verdict.SUPPORTED}
    apart = pairs.copy()
    apart["same"] = apart["pair"] != module.ACROSS
    by_method = [c for c in module.claims({**tables, "pairs": apart}) if c.text.startswith("From one start")]
    assert {claim.verdict for claim in by_method} == {Verdict.NOT_SUPPORTED}


def test_a_line_is_held_against_the_best_threshold_of_all():
    lines = importlib.import_module("experiments._lines")
    outcome = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1]], dtype=bool)
    assert lines.best_threshold(outcome).tolist() == [False, True, True, True]
    rng = np.random.default_rng(0)
    for _ in range(20):
        outcome = rng.random((7, 5)) < np.linspace(0.1, 0.9, 5)
        best = max(np.sum(outcome == (np.arange(5) >= j)) for j in range(6))
        assert np.sum(outcome == lines.best_threshold(outcome)) == best
    edges = rng.integers(1, 6, size=40)
    outcome = (np.arange(7) >= edges[:, None])[:, None]
    rows = lines.line_rows({"map": 1}, outcome, outcome)
    assert rows["line"].tolist() == rows["points"].tolist() == [7] * 40
    assert rows["near_points"].tolist() == rows["near_line"].tolist() == [2] * 40
    good, near = lines.line_findings(rows, fixed="one for all", text="It tells more", where="here")
    assert {good.verdict, near.verdict} == {Verdict.SUPPORTED}
    assert near.estimate > good.estimate > 0
    bad = lines.line_findings(lines.line_rows({}, outcome, ~outcome), fixed="one", text="It tells more", where="here")
    assert {finding.verdict for finding in bad} == {Verdict.NOT_SUPPORTED}
    constant = np.broadcast_to(outcome[:1], outcome.shape)
    known = lines.line_findings(lines.line_rows({}, constant, constant), fixed="one", text="More", where="here")
    assert {finding.verdict for finding in known} == {Verdict.VACUOUS}
