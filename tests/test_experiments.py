"""Every experiment runs in --quick and draws from its saved tables alone."""

import importlib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed import cli
from linfed.statistics.findings import Verdict, by_sentence
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
    "fig1": {"n_clients": 100, "dim": 20, "rank": 2, "n_samples": (5, 10, 20), "rounds": 500},
    "fig3": {"n_clients": (10, 100, 1000, 10_000), "dim": 10, "rank": 2, "n_samples": 5, "participation": 0.1},
    "fig4": {"n_clients": 100, "dim": 20, "rank": 2, "n_samples": 10, "participation": 0.1},
}


@pytest.mark.parametrize("figure", PAPERS)
def test_config_defaults_are_the_papers(figure):
    config = importlib.import_module(f"experiments.fedrep_{figure}").Config()
    assert {name: getattr(config, name) for name in PAPERS[figure]} == PAPERS[figure]
    assert config.noise_variance == 1e-3
    assert config.trials >= 50
    if figure == "fig4":
        assert {1, 2, 5, 10, 20} <= set(config.n_new)


def exchanged(table, one, other):
    """Return a table in which two methods have each other's name."""
    names = {one: other, other: one}
    table = table.copy()
    table["method"] = [names.get(method, method) for method in table["method"]]
    return table


def judged(claims):
    return {(claim.text, claim.where): claim.verdict for claim in claims}


def of(done):
    name, module, out = done
    return module, load_tables(name, out)[1]


@speaks_of("fedrep-fig1")
def test_fig1_methods_see_the_same_trials(done):
    _, tables = of(done)
    summary = tables["summary"]
    for preset in ("paper", "notebook"):
        for m in (5, 10, 20):
            chosen = select(summary, preset=preset, n_samples=m)
            floors = [select(chosen, method=method)["single_model_floor"] for method in np.unique(chosen["method"])]
            for floor in floors[1:]:
                np.testing.assert_array_equal(floor, floors[0])


@speaks_of("fedrep-fig1")
def test_fig1_one_layer_fedavg_is_at_its_fixed_point(done):
    _, tables = of(done)
    theory = tables["theory"]
    assert np.all(theory["rate"] < 1)
    end = select(theory, round=theory["round"].max())
    fast = end["rate"] ** end["round"] < 1e-11
    assert fast.mean() > 0.5
    assert end["distance"][fast].max() < 1e-10
    curves = tables["curves"]
    for row in end[fast]:
        where = {name: row[name] for name in ("preset", "n_samples", "method", "trial", "round")}
        np.testing.assert_allclose(
            select(curves, **where)["squared_error"], row["fixed_point_squared_error"], rtol=1e-8
        )


@speaks_of("fedrep-fig1")
def test_fig1_single_models_stay_above_the_floor(done):
    """By its definition nothing that all clients share is below it: this would find a wrong floor."""
    _, tables = of(done)
    for method in ("FedAvg", "FedAvg, one layer", "FedAvg, one layer, K = 10"):
        chosen = select(tables["summary"], preset="paper", method=method)
        assert np.all(chosen["mean"] > chosen["single_model_floor"])


def test_fig1_some_trials_stay_away_from_the_truth():
    """At m = 5 and the full run's step six of 50 trials end far from B*; three times the rounds do not help."""
    config = importlib.import_module("experiments.fedrep_fig1").Config()
    sizes = {"n_clients": config.n_clients, "dim": config.dim, "rank": config.rank}
    problem = lf.SharedRepresentation(**sizes, noise_std=config.noise_variance**0.5)
    fedrep = lf.FedRep(rank=2, step_size=0.3, init="random")
    run = {"data": lf.FixedSamples(5), "trials": config.trials, "seed": (config.seed, 5)}
    result = lf.simulate(
        fedrep, problem, rounds=1500, metrics=["subspace_distance", "train_loss"], record_every=500, **run
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
    false = {name: exchanged(tables[name], "FedRep", "FedAvg") for name in ("clients", "summary", "tuning")}
    verdicts = judged(module.claims({**tables, **false}))
    assert verdicts["FedRep has a smaller error than FedAvg", "paper: m = 20"] is Verdict.NOT_SUPPORTED
    smallest = "FedRep has the smallest of the three errors, client by client"
    assert verdicts[smallest, "paper: m = 20"] is Verdict.NOT_SUPPORTED
    hardly = "FedAvg hardly improves with m: by less than a tenth"
    assert verdicts[hardly, "paper: m = 20 against 5, best step"] is Verdict.NOT_SUPPORTED


@speaks_of("fedrep-fig4")
def test_fig4_law_of_new_clients_is_the_measured_one(done):
    """The predicted quantiles know the learned B alone; a quick run has a thousand new clients."""
    _, tables = of(done)
    clients = tables["clients"]
    for row in tables["predicted"]:
        errors = select(clients, preset=row["preset"], method=row["method"], n_new=row["n_new"])["squared_error"]
        below = np.mean(errors[np.isfinite(errors)] <= row["squared_error"])  # it speaks of trials that completed
        assert abs(below - row["quantile"]) < 0.075, row


@speaks_of("fedrep-fig4")
def test_fig4_methods_meet_the_same_new_clients(done):
    """Below the rank of B the oracle's and Local only's errors are of one truth: both grow with the same lengths."""
    _, tables = of(done)
    local = select(tables["clients"], preset="paper", method="LocalOnly", n_new=1)["squared_error"]
    oracle = select(tables["clients"], preset="paper", method="Oracle", n_new=1)["squared_error"]
    assert np.corrcoef(local, oracle)[0, 1] > 0.2


@speaks_of("fedrep-fig4")
def test_fig4_judge_rejects_what_is_false(done):
    module, tables = of(done)
    false = {name: exchanged(tables[name], "FedRep", "FedAvg") for name in ("summary", "tuning")}
    verdicts = judged(module.claims({**tables, **false}))
    small = "FedRep's error on a new client is small once m_new >= k"
    assert verdicts[small, "paper: m_new = 20"] is Verdict.NOT_SUPPORTED
    assert verdicts["FedAvg's error on a new client stays high", "paper: m_new = 20"] is Verdict.NOT_SUPPORTED


@speaks_of("fedrep-fig3")
def test_fig3_methods_see_the_same_trials(done):
    name, _, out = done
    curves = load_tables(out / f"{name}.npz")["curves"]
    start = curves[curves["round"] == 0]
    for n in np.unique(start["n_clients"]):
        for preset in np.unique(start["preset"]):
            chosen = start[(start["n_clients"] == n) & (start["preset"] == preset)]
            by_method = [chosen["distance"][chosen["method"] == method] for method in np.unique(chosen["method"])]
            for distances in by_method[1:]:
                np.testing.assert_array_equal(distances, by_method[0])


def test_fig3_notebook_preset_is_the_paper_rescaled():
    """With noise, heads, data and QR made equal, the notebook's scaling is a change of units."""
    module = importlib.import_module("experiments.fedrep_fig3")
    config = module.Config(rounds=10)
    cell = module.Cell(preset="notebook", n_clients=20, method="GD-GD", config=config)
    steps = module.scaled(cell, (0.3, 0.2))
    problem, _ = module.setting(cell)
    truth = problem.truth(0, [0])
    np.testing.assert_allclose(np.linalg.norm(truth.W, axis=-1), 1.0)
    shared = {"rounds": 10, "participation": 0.1, "seed": 0, "data": lf.FreshSamples(5)}
    sizes = {"n_clients": 20, "dim": 10, "rank": 2, "head_norm": 1.0}
    heads = {"rank": 2, "init": "random", "head_solver": "gradient", "orthonormalize": False}
    units = lf.SharedRepresentation(**sizes, design=lf.Gaussian(covariance=1 / 5))
    notebook = lf.simulate(lf.FedRep(**heads, aggregate="sum", **steps), units, **shared)
    paper = lf.simulate(
        lf.FedRep(**heads, step_size=0.3, head_step_size=0.2), lf.SharedRepresentation(**sizes), **shared
    )
    np.testing.assert_allclose(notebook.final.B, paper.final.B, rtol=0, atol=1e-12)


@speaks_of("fedrep-fig3")
def test_fig3_judge_rejects_what_is_false(done):
    """With the methods' names exchanged, the claims on their order must fail."""
    name, module, out = done
    tables = load_tables(out / f"{name}.npz")
    summary = tables["summary"].copy()
    names = {"FedRep": "GD-GD", "GD-GD": "FedRep"}
    summary["method"] = [names.get(method, method) for method in summary["method"]]
    order = [claim for claim in module.claims({**tables, "summary": summary}) if "needs fewer" in claim.text]
    judged = {(claim.text, claim.where): claim.verdict for claim in order}
    assert judged["FedRep needs fewer rounds than 10GD-GD", "paper: n = 1,000"] is Verdict.NOT_SUPPORTED


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
    rounds = {("FedRep", n): r for n, r in zip((100, 1000), fedrep, strict=True)}
    rounds |= {("GD-GD", n): r for n, r in zip((100, 1000), rival, strict=True)}
    rng = np.random.default_rng(0)

    def crossing(method, n):
        return rounds[method, n] + rng.integers(0, 3, 50)

    assert module._gain(crossing, "GD-GD", 100, 1000, "paper", 200).verdict is verdict


@speaks_of("fedrep-fig3")
def test_fig3_notes_are_of_the_setting(done):
    name, module, out = done
    tables = load_tables(out / f"{name}.npz")
    assert "p = 1 participant" in module._note(tables, "paper", 10, ["FedRep"])
    assert "Theorem" not in module._note(tables, "paper", 100, ["FedRep"])
    tuning = tables["tuning"].copy()
    tuning["at_edge"][(tuning["method"] == "GD-GD") & (tuning["n_clients"] == 100) & tuning["chosen"]] = True
    changed = {**tables, "tuning": tuning}
    assert "GD-GD lies at the edge" in module._note(changed, "paper", 100, ["FedRep", "GD-GD"])


# --- statements about every run: one trial of many refutes them ----------------------------------------------


def spoiled(table, column, value, **where):
    """Return a table whose first row of the named ones begins with another value."""
    rows = [dict(row) for row in table.rows]
    row = next(row for row in rows if all(row[name] == wanted for name, wanted in where.items()))
    values = np.array(getattr(row[column], "values", row[column]))
    values.flat[0] = value
    row[column] = lf.Along(values, **row[column].axes) if isinstance(row[column], lf.Along) else values
    return lf.Table(rows)


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
    said = "The floor does not depend on the step"
    for table, verdict in (
        (tables["floors"], Verdict.HOLDS),
        (spoiled(tables["floors"], "error", 1.0, sweep=module.SLOW), Verdict.VIOLATED),
    ):
        assert {claim.verdict for claim in module.claims({"floors": table}) if claim.text == said} == {verdict}


@speaks_of("flute-theorem51")
def test_theorem51_judges_reject_what_is_false(done):
    module, tables = of(done)

    def grown(column):
        return lambda row: row[column] * ((row["n_samples"] / 300.0) ** 0.3 if row["sweep"] == "m" else 1.0)

    false = tables["floors"].assign(error=grown("error"), rms=grown("rms"))
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
    false = spoiled(tables["runs"], "identity", 1e-3, name=module.BASE, data=module.POPULATION)
    verdicts = judged(module.claims({"runs": false}))
    assert verdicts["The Theta recursion (13) is an identity", module.POPULATION] is Verdict.VIOLATED


@speaks_of("flute-rate-and-floor")
def test_rate_and_floor_judges_reject_what_is_false(done):
    module, tables = of(done)
    claims = module.claims({"runs": tables["runs"].assign(final=lambda row: 2.0 * row["final"])})
    floors = {claim.verdict for claim in claims if claim.text.startswith("With m fixed the error ends")}
    assert floors == {Verdict.VIOLATED}


@speaks_of("fedrep-million")
def test_million_judges_reject_what_is_false(done):
    module, tables = of(done)
    false = {name: table.copy() for name, table in tables.items()}
    false["curves"]["distance"] *= 2.0
    false["cost"]["seconds"] = 2.0
    false["cost"]["peak_gigabytes"] = 4.3
    assert [claim.verdict for claim in module.claims(false)] == [Verdict.NOT_SUPPORTED] * 3


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
    module, _ = of(done)

    def pairs(same_of):
        """Return pairs that have settled, two on each of many data sets: a quick run has few, and few that settle."""

        def column(value):
            return lf.Along(np.full((60, 2), value), couple=range(2))

        columns = {"settled": column(True), "risk": column(-0.1), "error": column(0.1)}
        kinds = (module.ACROSS, module.MOMENTS, *module.WITHIN.values())
        return lf.Table([{"pair": pair, "same": column(same_of(pair)), **columns} for pair in kinds])

    verdicts = {}
    for claim in module.judged("here", pairs(lambda pair: same), "made up"):
        verdicts.setdefault(claim.text, set()).add(claim.verdict)
    once = verdicts["Two runs on one data set settle at the same minimum"]
    assert once <= {Verdict.INCONCLUSIVE, Verdict.SUPPORTED} if same else once == {Verdict.NOT_SUPPORTED}
    (risk, error) = (
        f"Where they differ, FLUTE's minimum has the lower {n}" for n in ("empirical risk", "mean client error")
    )
    assert verdicts[risk] == {Verdict.VACUOUS if same else Verdict.SUPPORTED}
    assert verdicts[error] == {Verdict.VACUOUS if same else Verdict.NOT_SUPPORTED}
    assert verdicts["From one start FLUTE and FedRep part as often as one method does from two"] == {Verdict.SUPPORTED}
    apart = module.judged("here", pairs(lambda pair: pair != module.ACROSS), "made up")
    (by_method,) = [claim.verdict for claim in apart if claim.text.startswith("From one start")]
    assert by_method is Verdict.NOT_SUPPORTED


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
