"""Experiments of the shortcut draft: their judges reject what is false, and rivals are tuned alike."""

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.findings import Verdict
from tests.experiments.judged import committed, computed, module, spoiled, verdicts
from tests.helpers import findings


def test_bound_judges_by_the_worst_trial():
    bound = module("shortcut-bound")
    table = computed("shortcut-bound", "terms", noise_std=0.0)

    def verdict(text, table, setting="noise 0"):
        found = verdicts(findings(bound, {"terms": table}))
        (one,) = [v for (claim, where), v in found.items() if claim.startswith(text) and where == setting]
        return one

    text = "Equation (9), (16), (17), with the sign of h_i corrected, is an identity over (2)-(5)"
    assert verdict(text, table) is Verdict.HOLDS
    assert verdict(text, spoiled(table, "heads", 1e-3, method=bound.CLOSED)) is Verdict.VIOLATED
    assert verdict("Equation (9) as printed is an identity over (2)-(5)", table) is Verdict.VIOLATED
    for column, text in (("identity", "The split (19) to (21) of B is an identity"), ("distance", "dist stays below")):
        false = spoiled(table, column, 5.0, method=bound.CLOSED)
        assert verdict(text, false, f"{bound.CLOSED}, noise 0") is Verdict.VIOLATED


def test_search_judges_the_fit_as_a_rival():
    search, table = module("shortcut-search"), committed("shortcut-search", "search")
    better = "The best setting found has a smaller parameter error than one personal fit at FedRep's B"
    keeps = "One personal fit at FedRep's B keeps at least nine tenths of the shortcuts' gain over FedRep"

    def claims(**errors):
        trial = np.arange(table.rows[0]["trials"])
        false = table.assign(error=lambda row: errors.get(row["method"], 1.0) + 0.0 * trial)
        return {claim.claim: claim for claim in findings(search, {"search": false})}

    for fit, first, second in (
        (2.5, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED),
        (0.9, Verdict.NOT_SUPPORTED, Verdict.SUPPORTED),
    ):
        found = claims(shortcuts=1.0, FedRep=3.0, fit=fit)
        assert found[better].verdict is first
        assert found[keeps].verdict is second
    assert claims(shortcuts=4.0, FedRep=3.0, fit=2.5)[keeps].estimate == np.inf  # the shortcuts gain nothing


def test_search_tunes_all_rivals_alike():
    search = module("shortcut-search")
    for cell in search.cells(quick=False)["search"]:
        own, fit, fedrep = (cell.settings(method) for method in (search.OWN, search.FIT, search.FEDREP))
        assert len(own) == len(fit) == 24
        steps = [{setting["step_size"] for setting in settings} for settings in (own, fit, fedrep)]
        assert steps == [set(cell.steps)] * 3
    for _, part in committed("shortcut-search", "search").groupby("family", "size", "n_samples"):
        own, fit = (part.select(method=method)["score"] for method in (search.OWN, search.FIT))
        assert len(own) == len(fit)


def test_lost_judges_reject_what_is_false():
    lost_b = module("shortcut-lost")
    closed = committed("shortcut-lost", "rounds").select(method=lost_b.CLOSED, kind=lost_b.FIXED)

    def found(factor):
        false = closed.assign(lost=lambda row: np.full(row["trials"], factor * (1.5 * row["predicted"] + 0.5)))
        return {(claim.claim, claim.verdict) for claim in findings(lost_b, {"rounds": false})}

    constant = "The prediction without a fitted parameter gives the rounds, to a constant between 1 and 2"
    lost = "(2) to (5) lose a B near B*"
    assert {(constant, Verdict.SUPPORTED)} <= found(1.0)
    assert {(constant, Verdict.NOT_SUPPORTED)} <= found(3.0)
    assert {(constant, Verdict.NOT_SUPPORTED), (lost, Verdict.NOT_SUPPORTED)} <= found(np.inf)


@pytest.mark.parametrize(("power", "verdict"), [(0.5, Verdict.SUPPORTED), (1.0, Verdict.NOT_SUPPORTED)])
def test_lost_tells_a_root_from_a_straight_line(power, verdict):
    lost = module("shortcut-lost")
    cells = lost.cells(quick=False)["rounds"]
    found = []
    for c in cells:
        moves = 0.05 * c.n_samples**power * (1.0 / c.step_size - 0.999) * (1 + 0.01 * np.arange(c.trials))
        found.append({"lost": 2 * moves - 1, "predicted": 1.0, "mean_alone": 1.0})
    claims = findings(lost, {"rounds": lf.Table.of(cells, found)})
    grows = [c for c in claims if c.claim == "The rounds until B is lost grow like sqrt(m) on fixed samples"]
    assert len(grows) == 6
    assert {claim.verdict for claim in grows} == {verdict}
    slow = [c for c in claims if "(1 - eta)/eta" in c.claim]
    assert {claim.verdict for claim in slow} == {Verdict.SUPPORTED}


def test_lost_asks_only_runs_that_are_long_enough():
    lost, table = module("shortcut-lost"), committed("shortcut-lost", "rounds")
    sentence = "(2) to (5) lose a B near B*"
    settings = [one.setting for one in findings(lost, {"rounds": table}) if one.claim == sentence]
    assert "fixed samples, start 0.05, eta 0.03, m up to 40" in settings  # predicted: 178 of 600 rounds, 253 at m = 80
    assert "fresh samples, start 0.3, eta 0.1, m up to 40" in settings  # 133 of 600 rounds, 267 at m = 80
    short = table.assign(n_rounds=lambda row: 1)
    assert sentence not in {one.claim for one in findings(lost, {"rounds": short})}


@pytest.mark.long
def test_convergence_compares_only_what_can_be_compared():
    convergence, table = module("shortcut-convergence"), committed("shortcut-convergence", "curves")

    def settings(name, rival, table=table):
        sentence = f"{convergence.NAMES[name]} has a smaller parameter error than {convergence.NAMES[rival]}"
        return {one.setting: one for one in findings(convergence, {"curves": table}) if one.claim == sentence}

    local = {"m = 10, noise 0", "m = 10, noise 0.1", "m = 40, noise 0.1", "m = 100, noise 0.1"}
    fixed = local | {"m = 40, noise 0", "m = 100, noise 0"}
    for name in (convergence.DRAFTED, convergence.TWO_STEPS, convergence.JOINT):
        assert settings(name, "LocalOnly").keys() == local
        fresh = {"m = 40, noise 0.1, fresh"} if name == convergence.JOINT else set()
        assert settings(name, "FedRep").keys() == fixed | fresh

    def scaled(factor):
        local = table.select(method="LocalOnly")
        return lf.Table([*local.rows, *(near(row, factor) for row in local.rows)])

    def near(row, factor):
        error = row[convergence.ERROR]
        values = lf.LabeledArray(np.asarray(error.values) * factor, **error.axes)
        return row | {"method": convergence.DRAFTED, convergence.ERROR: values, convergence.DIST: values}

    for factor, verdict in ((0.9995, Verdict.VACUOUS), (0.99, Verdict.SUPPORTED), (1.01, Verdict.NOT_SUPPORTED)):
        found = settings(convergence.DRAFTED, "LocalOnly", scaled(factor))
        assert {one.verdict for one in found.values()} == {verdict}


def test_two_step_sizes_contain_one():
    cell = module("shortcut-convergence").Curve()
    assert {one for one in cell.step_sizes if one <= 1} <= set(cell.shortcut_step_sizes)


def test_small_and_large_shortcuts_are_asked_of_two_sizes():
    def row(sizes, values):
        dist = lf.LabeledArray(np.full((8, len(sizes), len(values)), 0.3), size=sizes, value=values)
        return lf.Table([{"family": "Algorithm 1", "truth": "orthogonal", "dist": dist}])

    claims = [one for one in module("shortcut-phase").CLAIMS if "B is learned where shortcuts" in one.sentence]
    assert len(lf.claims.judged(claims, {"map": row([0.5, 2.0], [0.01, 0.1])})) == len(claims) == 3
    assert not lf.claims.judged(claims, {"map": row([2.0], [0.01, 0.1])})
    assert not lf.claims.judged(claims, {"map": row([0.5, 2.0], [0.1])})
