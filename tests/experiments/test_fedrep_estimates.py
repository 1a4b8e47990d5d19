"""Experiments on starts, moments, recovery and the floor of FedRep: their judges reject what is false."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from experiments.fedrep import fedrep_floor, fedrep_moments, fedrep_recovery, fedrep_start
from experiments.shared.spectral import AVERAGES, MOMENTS, SPECTRAL, TWO, spectral
from linfed.statistics import binomial_share
from linfed.statistics.findings import Verdict
from tests.experiments.judged import searched, verdicts
from tests.helpers import findings

TRIALS = 20
SPREAD = np.exp(np.random.default_rng(0).normal(0.0, 0.05, TRIALS))


# --- predictions and starts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_transition_is_the_closed_form(noise):
    n, d, k = 60, 100, 4
    search = fedrep_moments.Search(method=MOMENTS, n_clients=n, dim=d, rank=k, noise_std=noise)
    fourth = (k + noise**2) ** 2
    found = search.crossing_of("ratio", 1.0)
    assert 0.75 * (d - k) * fourth / (n * found) * (1 - k / (n * found)) == pytest.approx(1.0, rel=1e-3)
    search = replace(search, method=AVERAGES)
    m = search.crossing_of("ratio", 1.0)
    assert (d - k) * (m + 2) * fourth * (1 - k / n) / (n * m**3 * (1 + 1 / m) ** 2) == pytest.approx(1.0, rel=0.02)
    assert np.isnan(replace(search, n_clients=5000).crossing_of("ratio", 1.0))


@pytest.mark.parametrize("name", SPECTRAL)
def test_a_start_is_the_estimate_from_the_same_samples(name):
    problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2, noise_std=0.3)
    options = {"data": lf.FixedSamples(8), "trials": 2}
    estimate = lf.simulate(spectral(2)[name], problem, n_rounds=1, **options).final.B
    fedrep = lf.FedRep(rank=2, step_size=0.5, init=fedrep_start.Estimate(spectral(2)[name]))
    np.testing.assert_allclose(lf.simulate(fedrep, problem, n_rounds=0, **options).final.B, estimate, atol=1e-12)


# --- judges --------------------------------------------------------------------------------------------------


def starts(needed, upload=0.0):
    row = {"n_samples": 10, "noise_std": 0.0, "n_rounds": 300}
    given = [
        {"method": fedrep_start.GIVEN, "delta": delta, "initial": np.full(TRIALS, delta), "needed": 40 * SPREAD}
        for delta in (0.1, 0.9)
    ]
    estimates = [
        {"method": name, "delta": np.nan, "initial": np.full(TRIALS, 0.5), "needed": value * SPREAD}
        for name, value in ({fedrep_start.RANDOM: 50.0} | needed).items()
    ]
    uploads = {AVERAGES: upload}
    return lf.Table([row | one | {"upload": uploads.get(one["method"], 0.0)} for one in estimates + given])


@pytest.mark.parametrize(("upload", "verdict"), [(1.0, Verdict.SUPPORTED), (30.0, Verdict.NOT_SUPPORTED)])
def test_an_upload_can_cost_more_than_a_start_saves(upload, verdict):
    found = {one.claim: one.verdict for one in findings(fedrep_start, {"runs": starts({AVERAGES: 40.0}, upload)})}
    text = "A start from local averages saves rounds of FedRep compared with a random start, its upload included"
    assert found[text] is verdict


@pytest.mark.long
@pytest.mark.parametrize(("needed", "verdict"), [(40.0, Verdict.SUPPORTED), (60.0, Verdict.NOT_SUPPORTED)])
def test_rounds_are_compared_at_the_same_distance(needed, verdict):
    *_, found = findings(fedrep_start, {"runs": starts({AVERAGES: 40.0, TWO: needed})})
    assert found.claim.startswith("The rounds from an estimate equal")
    assert found.verdict is verdict


@pytest.mark.parametrize(("power", "verdict"), [(-0.5, Verdict.SUPPORTED), (-1.0, Verdict.NOT_SUPPORTED)])
def test_the_transition_tells_a_root_from_a_power(power, verdict):
    rows = [searched(100.0 * n**power, n_clients=n, method=AVERAGES) for n in (25, 100, 400)]
    (found,) = findings(fedrep_moments, {"samples": lf.Table(), "transition": lf.Table(rows)})
    assert found.verdict is verdict


@pytest.mark.parametrize(("power", "verdict"), [(2.0, Verdict.SUPPORTED), (3.0, Verdict.NOT_SUPPORTED)])
def test_moments_that_need_more_than_the_theorems_term_are_found(power, verdict):
    settings = [(n, d, k) for n in (20, 80) for d in (50, 200) for k in (1, 4)]
    columns = {"method": MOMENTS, "claim": 100.0, "estimated": np.nan}
    rows = [searched(d * k**power / n, n_clients=n, dim=d, rank=k, **columns) for n, d, k in settings]
    found = verdicts(findings(fedrep_moments, {"samples": lf.Table(rows), "transition": lf.Table()}))
    text = "The smallest m of the moments grows at most like k^2 d/n: in k"
    assert found[text, "8 settings, distance 0.5"] is verdict


# --- fedrep-recovery ---------------------------------------------------------------------------------------------


MANY = 40
"""Trials, more than the fewest that can support a share of 0.9."""


def recovery(distances, *, equations=(0.8, 0.9, 1.1, 1.5), **changes):
    """Return a table of one setting, with the distances from a start near B* for each number of equations."""
    near = fedrep_recovery.TRUTH
    row = {"n_clients": 40, "n_samples": 6, "rank": 2, "dim": 40, "noise_std": 0.0, "setting": "k = 2"}
    row |= {f"{near} risk": np.full(MANY, 1.0), "law": np.full(MANY, np.nan), "radius": np.full(MANY, np.nan)}
    pairs = zip(equations, distances, strict=True)
    return lf.Table([row | {"equations": number, near: np.full(MANY, one)} | changes for number, one in pairs])


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ((0.1, 0.1, 1e-6, 1e-6), ["SUPPORTED", "SUPPORTED", "NOT SUPPORTED"]),
        ((0.1, 0.1, 0.1, 0.1), ["NOT SUPPORTED", "SUPPORTED", "NOT SUPPORTED"]),
        ((1e-6,) * 4, ["SUPPORTED", "NOT SUPPORTED", "SUPPORTED"]),
    ],
)
def test_recovery_is_judged_on_both_sides_of_the_threshold(distances, expected):
    found = findings(fedrep_recovery, {"points": recovery(distances)})
    assert [one.verdict.value for one in found] == expected


@pytest.mark.parametrize(("risk", "expected"), [(1.00005, "SUPPORTED"), (1.01, "NOT SUPPORTED")])
def test_a_start_is_judged_by_its_empirical_risk(risk, expected):
    start = fedrep_recovery.RANDOM
    row = {start: np.full(MANY, 0.5), f"{start} risk": np.full(MANY, risk), "radius": np.full(MANY, 0.5)}
    (found,) = findings(fedrep_recovery, {"points": recovery((0.1,) * 4, noise_std=0.5, **row)})
    assert found.verdict.value == expected


@pytest.mark.parametrize(("reach", "verdict"), [(40, "SUPPORTED"), (34, "INCONCLUSIVE"), (22, "NOT SUPPORTED")])
def test_a_share_is_judged_in_the_worst_number_of_clients(reach, verdict):
    """Trials of all numbers of clients together would hide the one from which few starts arrive."""
    start = fedrep_recovery.RANDOM
    row = {start: np.full(MANY, 0.5), "radius": np.full(MANY, 0.5), "noise_std": 0.5}

    def risk(row):
        return np.where(np.arange(MANY) < (reach if row["n_clients"] == 30 else MANY), 1.0, 2.0)

    points = recovery((0.1,) * 4, equations=(1, 2, 3, 4), **row)
    points = points.assign(n_clients=lambda row: 10 * row["equations"]).assign(**{f"{start} risk": risk})
    (found,) = findings(fedrep_recovery, {"points": points})
    assert (found.estimate, found.verdict.value) == (reach / MANY, verdict)
    worst = 30 if reach < MANY else 10
    assert found.detail == f"{reach} of 40 trials at n = {worst}, of 4 numbers of clients"
    alone = binomial_share(reach, MANY)
    assert found.low == pytest.approx(alone[1])
    assert found.high == pytest.approx(binomial_share(reach, MANY, confidence=1 - 0.05 / 4)[2])


def test_one_trial_without_a_solution_does_not_hide_a_number_of_clients():
    start, radius = fedrep_recovery.RANDOM, np.full(MANY, 0.5)
    radius[0] = np.nan
    row = {start: np.full(MANY, 0.5), f"{start} risk": np.full(MANY, 2.0), "radius": radius, "noise_std": 0.5}
    (found,) = findings(fedrep_recovery, {"points": recovery((0.1,) * 4, **row)})
    assert (found.estimate, found.verdict.value) == (0.0, "NOT SUPPORTED")


def test_few_hits_are_judged_by_the_largest_share():
    points = recovery((0.1, np.where(np.arange(MANY) < 30, 1e-6, 0.1), 0.1, 0.1))
    found = next(one for one in findings(fedrep_recovery, {"points": points}) if "fewer equations" in one.claim)
    assert (found.estimate, found.verdict.value) == (0.75, "NOT SUPPORTED")
    assert found.low == pytest.approx(binomial_share(30, MANY, confidence=1 - 0.05 / 2)[1])


@pytest.mark.parametrize(("law", "expected"), [(0.9, "SUPPORTED"), (0.1, "NOT SUPPORTED")])
def test_the_unstable_solution_is_judged_beyond_the_range_only(law, expected):
    row = {"noise_std": 0.5, "law": np.full(MANY, law)}
    inside = recovery((0.2,), equations=(4.0,), radius=np.full(MANY, 0.5), **row)
    assert not findings(fedrep_recovery, {"points": inside})
    beyond = recovery((0.2,), equations=(2.0,), radius=np.full(MANY, 2.0), **row)
    (found,) = findings(fedrep_recovery, {"points": inside + beyond})
    assert found.verdict.value == expected
    assert found.setting == "k = 2, radius 2"


# --- fedrep-floor ------------------------------------------------------------------------------------------------


def test_the_range_of_the_floor_is_judged_by_settings():
    def settings(factor, radius, law=0.2):
        row = {"dim": 50, "rank": 2, "noise_std": 0.5, "per_unknown": 1.5, "radius": radius, "law": law, "first": 0.1}
        row |= {"gradient": np.full(TRIALS, 1e-9), "distance": np.full(TRIALS, factor * 0.2)}
        return [row] * 40

    lost = settings(3.0, np.nan, np.nan)
    for inside, outside, expected in ((1.0, 0.8, "SUPPORTED"), (1.2, 1.1, "NOT SUPPORTED")):
        found = findings(fedrep_floor, {"points": lf.Table([*settings(inside, 0.5), *settings(outside, 2.0), *lost])})
        verdicts = {one.claim: one.verdict.value for one in found}
        assert verdicts["Inside the declared range, the minimum is at the predicted distance"] == expected
        assert verdicts["Inside the declared range, the minimum is at the predicted distance, on average"] == expected
        assert verdicts["Beyond the declared range, the minimum is nearer to B* than predicted, on average"] == expected
        assert verdicts["Inside the declared range, the minimum is at the distance of first order"] == "NOT SUPPORTED"
        assert verdicts["Without a solution, L-BFGS ends at a distance of at least 0.3"] == "SUPPORTED"
