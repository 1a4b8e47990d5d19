"""Experiments on estimators and alternating minimisation: their judges reject what is false."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
import linfed.claims as c
from experiments.others import _adaptive as methods
from experiments.others import _adaptive_shown as shown
from experiments.others import (
    adaptive_outliers,
    adaptive_personalisation,
    altmin,
    altmin_ends,
    estimators,
    mllam_samples,
    tripuraneni,
)
from experiments.others._compared_claims import over_best
from experiments.shared.spectral import AVERAGES, MOMENTS, SPECTRAL
from linfed.claims import judged
from linfed.statistics import bootstrap_interval, quantile_interval
from linfed.statistics.findings import Verdict
from tests.experiments.judged import searched
from tests.helpers import findings

TRIALS = 80
SPREAD = np.exp(np.random.default_rng(0).normal(0.0, 0.05, TRIALS))


def point(**distances):
    sizes = {"panel": "few", "n_clients": 50, "n_samples": 12, "noise_std": 1.0, "dim": 50, "rank": 4, "trials": TRIALS}
    predicted = [f"{name} {what}" for name in SPECTRAL for what in ("law", "ratio")]
    row = sizes | {name: np.full(TRIALS, np.nan) for name in (*estimators.LOOKS, *predicted, "moved", "fedrep_moved")}
    return row | {name: value * SPREAD for name, value in distances.items()}


@pytest.mark.parametrize(
    ("factor", "verdict", "counts"),
    [
        (0.5, Verdict.SUPPORTED, "closer at 1, tied at 0, farther at 0"),
        (1.0, Verdict.SUPPORTED, "closer at 0, tied at 1, farther at 0"),
        (1.5, Verdict.NOT_SUPPORTED, "closer at 0, tied at 0, farther at 1"),
    ],
)
def test_a_ranking_shows_ties(factor, verdict, counts):
    table = lf.Table([point(**{AVERAGES: 0.2 * factor, MOMENTS: 0.2})])
    (found,) = findings(estimators, {"points": table})
    assert found.verdict is verdict
    assert counts in found.detail


def test_a_subspace_that_moves_at_m_up_to_k_is_found():
    still = {"n_samples": 4, estimators.UNDETERMINED: np.ones(TRIALS)}
    still |= {name: np.full(TRIALS, 1e-14) for name in ("moved", "fedrep_moved")}
    moves = still | {"fedrep_moved": np.append(np.zeros(TRIALS - 1), 1e-3)}
    for columns, verdict in ((still, Verdict.HOLDS), (moves, Verdict.VIOLATED)):
        found = {one.claim: one.verdict for one in findings(estimators, {"points": lf.Table([point() | columns])})}
        assert found["FedRep keeps its initial subspace where m <= k"] is verdict
        assert found["The minimum of the empirical risk keeps its initial subspace where m <= k"] is Verdict.HOLDS


@pytest.mark.parametrize(("power", "verdict"), [(-0.5, Verdict.SUPPORTED), (0.5, Verdict.NOT_SUPPORTED)])
def test_a_growing_number_of_samples_is_found(power, verdict):
    sizes = (20, 80, 320, 1280)
    rows = [searched(5.0 * (n / 20) ** power, n_clients=n, method=mllam_samples.ALTMIN) for n in sizes]
    found = judged(mllam_samples.growth("n", mllam_samples.LOG_N), {"samples": lf.Table(rows)})
    assert [one.verdict for one in found] == [verdict, verdict]


def courses(rounds):
    """Return curves that are at 1e-8 from given rounds on."""
    sizes = {"noise_std": 0.0, "n_clients": 100, "n_samples": 15, "dim": 40, "step_size": 1.0}
    rows = []
    for name, at in rounds.items():
        curve = np.where(np.arange(61) < at, 1.0, 1e-8) * SPREAD[:, None]
        start = 40.0 if name == altmin.CHEAP else 820.0
        floats = lf.LabeledArray(start + 240.0 * np.arange(61), round=range(61))
        rows.append(sizes | {"method": name, "floats": floats, "distance": lf.LabeledArray(curve, round=range(61))})
    return lf.Table(rows)


def test_rounds_and_floats_of_alternating_minimisation_are_judged():
    table = courses({altmin.ALTMIN: 10, altmin.FEDREP: 5, altmin.CHEAP: 3, altmin.ALTGDMIN: 40})
    found = {one.claim: one.verdict for one in findings(altmin, {"curves": table})}
    assert found["AltMin needs fewer rounds than FedRep with a tuned step"] is Verdict.NOT_SUPPORTED
    assert found["AltMin needs fewer rounds than AltGDmin with its published step"] is Verdict.SUPPORTED
    assert found["FedRep sends fewer floats than AltMin"] is Verdict.SUPPORTED
    text = "FedRep from local averages sends fewer floats than clients that send their normal equations once"
    assert found[text] is Verdict.SUPPORTED  # 760 against 860
    table = courses({altmin.ALTMIN: 10, altmin.CHEAP: 4})
    found = {one.claim: (one.verdict, one.estimate) for one in findings(altmin, {"curves": table})}
    assert found[text] == (Verdict.NOT_SUPPORTED, 1000 / 860)


def test_rounds_to_a_distance_that_is_not_kept_do_not_count():
    curves = np.array([[1.0, 0, 1, 0, 0], [1, 0, 0, 0, 1], [1, 0, 0, 0, np.nan], [0, 0, 0, 0, 0]])
    assert altmin.rounds_to(curves, curves, 0.0).tolist() == [3, np.inf, np.inf, 0]


def test_floats_include_those_of_the_start():
    cell = altmin.Course(method=altmin.FEDREP, n_clients=20, dim=10, rank=2, n_rounds=3, trials=2, steps=(0.7,))
    for method, estimator in ((altmin.FEDREP, lf.MethodOfMoments), (altmin.CHEAP, lf.LocalGram)):
        floats = replace(cell, method=method).run()["floats"].values
        assert floats[0] == estimator(rank=2).communication(dim=10).up
        assert floats[1] - floats[0] == 2 * 10 * 2


@pytest.mark.parametrize(
    ("moving", "verdict", "note"),
    [
        (0, Verdict.NOT_SUPPORTED, ""),
        (40, Verdict.SUPPORTED, "not judged: 40 of 80 trials, in which FedRep or L-BFGS has not converged"),
        (80, Verdict.VACUOUS, "not judged: 80 of 80 trials, in which FedRep or L-BFGS has not converged"),
    ],
)
def test_only_converged_trials_are_at_a_minimum(moving, verdict, note):
    trials = np.arange(TRIALS)
    row = {"n_samples": 6, "law": np.full(TRIALS, 0.3), "FedRep settled": trials >= moving}
    table = lf.Table([row | {"FedRep apart": np.where(trials < 40, 0.1, 1e-6)}])
    (found,) = judged([altmin_ends.same_minimum(altmin_ends.FEDREP)], {"ends": table})
    assert (found.verdict, found.note) == (verdict, note)


class Alternating(altmin_ends.End):
    """A run of FedRep whose step is so large that B alternates between two points."""

    def algorithms(self, n_samples):
        algorithm, rounds = super().algorithms(n_samples)[altmin_ends.FEDREP]
        return {altmin_ends.FEDREP: (replace(algorithm, step_size=3 * algorithm.step_size), rounds)}


def test_a_method_that_alternates_has_not_converged():
    sizes = {"panel": "n", "n_clients": 50, "n_samples": 12, "dim": 10, "rank": 2, "trials": 4, "n_rounds": 20}
    for kind, converged in ((altmin_ends.End, True), (Alternating, False)):
        _, settled = kind(**sizes, most_clients=0).limit(altmin_ends.FEDREP)
        assert settled.all() == converged


@pytest.mark.parametrize(("m", "judges"), [(5, False), (25, True)])
def test_the_minimum_of_the_risk_is_judged_only_if_the_samples_determine_it(m, judges):
    row = {"set": f"m = {m}", "n_clients": 100, "n_samples": m, "rank": 5}
    row |= {f"{name}{what}": SPREAD for name in tripuraneni.NAMES for what in ("", " new")}
    table = tripuraneni.derived({"points": lf.Table([row])})["largest"]
    assert (tripuraneni.RISK in table.unique("method")) == judges
    assert {tripuraneni.MOMENTS, tripuraneni.AVERAGES, tripuraneni.ALONE} <= set(table.unique("method"))


# --- adaptive personalisation --------------------------------------------------------------------------------

SIZES = {"n_clients": 50, "n_samples": 20, "dim": 10, "noise_std": 1.0, "n_rounds": 100, "trials": TRIALS}


def adaptive_tables(**risks):
    """Return the tables of both: local risks 0.5, pooled ones 0.1 + deviation^2, others 0.1 or a given one."""

    def row(method, risk=None, **more):
        pooled = 0.1 + more["deviation"] ** 2
        known = {methods.LOCAL: 0.5, methods.POOLED: pooled}
        excess = (risks.get(method, known.get(method, 0.1)) if risk is None else risk) * SPREAD
        merged = {"merged": np.full(TRIALS, risks.get("merged", 1.0))} if method == methods.ARMUL else {}
        return SIZES | {"method": method, "colluding": False, "excess": excess} | merged | more

    places = [{"outliers": e, "deviation": h} for e in (0.0, 0.2) for h in (0.0, 0.2, 3.0)]
    shares = [{"outliers": e, "deviation": 0.1, "colluding": True} for e in (0.0, 0.2)]
    law = [row("predicted", **place) for place in places]
    colluding = [row("predicted", **place) for place in shares]
    for one in law + colluding:
        one |= {name: np.full(TRIALS, value) for name, value in ((methods.LOCAL, 0.5), (methods.DITTO, 0.1))}
        one[methods.POOLED] = np.full(TRIALS, 0.1 + one["deviation"] ** 2)
    names = methods.methods(1.0)
    tables = {
        "deviations": [row(name, **place) for place in places for name in names],
        "penalties": [
            row(name, risk, fixed_penalty=s, **place)
            for place in places
            for s in (0.1, 1.0)
            for name, risk in ((methods.DITTO, 0.3), (methods.ARMUL, risks.get("one penalty", 0.2)))
        ],
        "law": law,
    }
    others = {"shares": [row(name, **place) for place in shares for name in names], "law": colluding}
    return [{name: lf.Table(rows) for name, rows in some.items()} for some in (tables, others)]


ADAPTIVE = adaptive_personalisation, adaptive_outliers


def adaptive_verdicts(**risks):
    found = {}
    for module, tables in zip(ADAPTIVE, adaptive_tables(**risks), strict=True):
        for one in findings(module, tables | module.derived(tables)):
            found.setdefault(one.claim, set()).add(one.verdict)
    return found


def test_the_runs_without_outliers_are_compared_once():
    """Colluding outliers of share 0 are a setting of the other experiment."""
    _, tables = adaptive_tables()
    found = findings(adaptive_outliers, tables | adaptive_outliers.derived(tables))
    compared = [one.setting for one in found if one.claim == shown.BETTER]
    assert compared == ["share of colluding outliers 0.2, deviation 0.1"]


def test_panels_share_the_row_of_their_base():
    places = (("long", 200, 1.0), ("long", 400, 1.0), ("noise", 200, 0.5), ("noise", 200, 2.0))
    rows = [point() | {"panel": panel, "n_clients": n, "noise_std": noise} for panel, n, noise in places]
    table = estimators.in_panel(lf.Table(rows), "noise")
    assert table["noise_std"].tolist() == [0.5, 1.0, 2.0]
    row = searched(10.0, method=mllam_samples.ALTMIN, counted=5.0)
    sizes = (("base", 40, 160), ("d", 20, 80), ("n", 40, 80))
    table = lf.Table([row | {"panel": panel, "dim": d, "n_clients": n} for panel, d, n in sizes])
    settings = {one.setting for one in findings(mllam_samples, {"samples": table})}
    assert {"d = 20 to 40, n = 4 d", "n = 80 to 160, d = 40"} <= settings


@pytest.mark.long
def test_adaptive_personalisation_is_judged():
    good = adaptive_verdicts(**{methods.RULE: 0.2, methods.ARMUL: 0.05})
    assert all(verdicts == {Verdict.SUPPORTED} for verdicts in good.values()), good


@pytest.mark.parametrize(
    ("risks", "claim"),
    [
        ({methods.RULE: 2.1}, shown.NEVER),
        (
            {"one penalty": 0.35},
            "With its best one penalty, ARMUL has a smaller worst ratio than Ditto with its best one",
        ),
        ({methods.ARMUL: 0.2}, shown.BETTER),
        ({"merged": 0.9}, "Without deviations and outliers, tuned ARMUL's models equal the common one"),
        ({methods.DITTO: 0.13}, "Ditto with its best penalty: the inliers' risk is the predicted one"),
        ({methods.LOCAL: 0.7}, "Local least squares: the inliers' risk is the predicted one"),
    ],
)
def test_what_is_false_of_adaptive_personalisation_is_found(risks, claim, monkeypatch):
    for module in ADAPTIVE:
        monkeypatch.setattr(module, "CLAIMS", [one for one in module.CLAIMS if one.sentence == claim])
    assert Verdict.NOT_SUPPORTED in adaptive_verdicts(**{methods.RULE: 0.2, methods.ARMUL: 0.05} | risks)[claim]


def test_a_method_is_compared_with_every_rival_in_paired_trials():
    """The rival with the smallest median is not the one that is better in most trials."""
    rng = np.random.default_rng(0)
    mine = np.exp(rng.standard_normal(TRIALS))
    excess = {"mine": mine, "often better": 0.9 * mine, "small median": np.sort(mine)[rng.permutation(TRIALS)] * 0.5}
    table = lf.Table([{"method": name, "excess": values} for name, values in excess.items()])
    statistic = over_best(
        "mine", lambda part: part.select(method=["often better", "small median"]), "r", "best", c.at_most(1.0)
    )
    (found,) = c.judged([c.Claim("is best", c.OWN_THRESHOLD, statistic, setting="here")], {"runs": table})
    each = [quantile_interval(mine / values, 0.5) for name, values in excess.items() if name != "mine"]
    assert found.estimate == max(one[0] for one in each)
    assert found.high == max(one[2] for one in each)
    assert found.verdict is Verdict.NOT_SUPPORTED


def test_the_best_penalty_is_chosen_in_each_resample():
    """Of two penalties with equal medians, the trials decide which one is the best."""
    rng = np.random.default_rng(1)
    noise = np.exp(0.5 * rng.standard_normal((2, 20, 1)))
    rows = [
        {"method": methods.ARMUL, "fixed_penalty": s, "ratio": lf.LabeledArray(noise[i], deviation=[0.0])}
        for i, s in enumerate((0.1, 1.0))
    ]
    rows += [
        {"method": methods.DITTO, "fixed_penalty": 1.0, "ratio": lf.LabeledArray(np.ones((20, 1)), deviation=[0.0])}
    ]
    value = adaptive_personalisation.against_one_penalty(lf.Table(rows)).value

    def best(trials):
        return float(np.median(noise[:, trials.astype(int)], axis=1).min())

    wanted = (best(np.arange(20.0)), *bootstrap_interval(best, (np.arange(20.0),)))
    assert value == pytest.approx(wanted, rel=1e-12)


def test_all_grids_of_penalties_are_equally_fine():
    """The one penalty is among those of tuned ARMUL, which cannot lose to it by the grid."""
    grids = [grid for _, grid in methods.methods(0.7).values()]
    penalties = [values for grid in grids for name, values in grid.items() if name in ("penalty", "ridge")]
    for values in (*penalties, *adaptive_personalisation.ALL.values()):
        ratios = np.array(values[1:]) / values[:-1]
        assert 1 < ratios.min() < ratios.max() < 1.9
    assert len(penalties) == 3
    assert 0.7 in methods.methods(0.7)[methods.ARMUL][1]["penalty"]


def test_inliers_are_measured_without_outliers():
    cell = methods.Adaptive(outliers=0.2, deviation=0.3, trials=2)
    truth = cell.problem.truth(0, [0, 1])
    state = lf.State(S=np.zeros((2, 50, 10)))
    wanted = 0.5 * np.square(truth.dense()[:, :40]).sum(axis=-1).mean(axis=-1)
    np.testing.assert_allclose(methods.inlier_risk(state, truth), wanted, rtol=1e-13)


def test_converged_ditto_is_the_limit_of_ditto():
    cell = methods.Adaptive(deviation=0.5, trials=2)
    run = {"data": lf.FixedSamples(20), "trials": 2}
    limit = lf.simulate(methods.ConvergedDitto(penalty=0.7), cell.problem, n_rounds=1, **run).final.S
    ditto = lf.Ditto(step_size=0.4, penalty=0.7, personal_steps=5, personal_step_size=0.2)
    np.testing.assert_allclose(lf.simulate(ditto, cell.problem, n_rounds=600, **run).final.S, limit, rtol=0, atol=1e-10)
