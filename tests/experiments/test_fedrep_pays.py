"""The judgements of `fedrep-pays-samples`, on risks whose smallest sufficient m is known."""

import math

import numpy as np
import pytest

import linfed as lf
import linfed.claims as c
from experiments.fedrep import _pays_resampled as resampled
from experiments.fedrep import fedrep_pays, fedrep_pays_samples
from linfed.statistics.findings import Verdict
from linfed.theory.fedrep.fixed_samples.cavity import typical_mean

SIZES, CLIENTS = (5, 7, 10, 15, 25, 50, 75, 100, 200), (2, 4, 8, 50, 1000)
DIM, RANK, TRIALS = 50, 3, 20
AIM = RANK / 20
ALONE = 66.0
"""The m at which the risk without federation is at the level."""
TEXT = "A client needs fewer samples with FedRep than with least squares without federation"


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr(resampled, "RESAMPLES", 200)


def table(needed, sizes=SIZES):
    """Return risks that fall like ``1/m^2`` and are at the level at ``needed(n)``; without federation flat below d."""
    rows = []
    for n in CLIENTS:
        spread = np.exp(np.random.default_rng(n).normal(0.0, 0.02, TRIALS))
        for m in sizes:
            alone = AIM * spread * ((ALONE / m) ** 2 if m >= DIM else 8.0)
            fedrep = AIM * spread * (needed(n) / m) ** 2
            row = {"noise_std": 0.3, "dim": DIM, "rank": RANK, "trials": TRIALS, "n_clients": n, "n_samples": m}
            rows.append(row | {"FedRep": fedrep, "LocalOnly": alone, "ridge": alone})
    return lf.Table(rows)


def found(needed, **changes):
    tables = {"map": table(needed, **changes)}
    findings = c.judged(fedrep_pays_samples.CLAIMS, tables | fedrep_pays_samples.derived(tables))
    return {one.setting.split("n = ")[1]: one for one in findings if one.claim == TEXT}, findings


def test_the_smallest_sufficient_samples_are_interpolated_in_logarithms():
    needed = fedrep_pays_samples.complexities(table(lambda n: 20.0 + n / 100), 1 / 10)
    for n in CLIENTS:
        middle, low, high = resampled.interval(needed[n]["FedRep"])
        assert middle == pytest.approx(20.0 + n / 100, rel=0.02)
        assert low < middle < high
        assert resampled.interval(needed[n]["LocalOnly"])[0] == pytest.approx(ALONE, rel=0.02)


def test_federation_helps_though_it_loses_with_fewer_samples_than_it_needs():
    """With m = 5 and 7 FedRep is far worse than without federation: the sentence is on the samples that are needed."""
    rows = table(lambda n: 20.0)
    few = rows.select(n_samples=[5, 7]).rows
    assert all((row["FedRep"] > row["LocalOnly"]).all() for row in few)
    by_size, _ = found(lambda n: 20.0)
    assert {by_size[n].verdict for n in ("8", "50", "1,000")} == {Verdict.SUPPORTED}
    assert by_size["50"].estimate == pytest.approx(20.0 / ALONE, rel=0.03)
    assert "(log(n) + d/n)/d = 0.098" in by_size["50"].detail


def test_federation_that_needs_more_samples_does_not_help():
    by_size, _ = found(lambda n: 90.0)
    assert {by_size[n].verdict for n in ("8", "50", "1,000")} == {Verdict.NOT_SUPPORTED}


@pytest.mark.parametrize("needed", [20.0, 90.0])
def test_few_clients_are_outside_the_sentence(needed):
    by_size, _ = found(lambda n: needed)
    for n in ("2", "4"):
        assert by_size[n].verdict is Verdict.HYPOTHESES_FAIL
        assert by_size[n].estimate == pytest.approx(needed / ALONE, rel=0.03)


@pytest.mark.long
def test_the_ratio_at_which_both_need_as_many_is_found():
    _, findings = found(lambda n: ALONE * 6.0 / n)
    ends = [one for one in findings if one.claim.startswith(TEXT) and one.setting.endswith("a tenth")]
    n = 6.0
    assert ends[0].estimate == pytest.approx((math.log(n) + DIM / n) / DIM, rel=0.03)
    assert ends[0].verdict is Verdict.SUPPORTED
    for needed in (lambda n: ALONE * 40.0 / n, lambda n: 1.2 * ALONE):  # too late, and never
        _, findings = found(needed)
        ends = [one for one in findings if one.claim.startswith(TEXT) and one.setting.endswith("a tenth")]
        assert ends[0].verdict is Verdict.NOT_SUPPORTED


def test_a_risk_that_the_grid_does_not_reach_is_not_judged():
    by_size, _ = found(lambda n: 20.0 if n > 4 else 1e4, sizes=(5, 7, 10, 15, 25, 50, 75))
    assert set(by_size) == {"8", "50", "1,000"}
    assert not found(lambda n: 20.0, sizes=(5, 7))[1]


def test_a_crossing_is_the_last_one():
    values = np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, -1.0, -1.0, -1.0], [-1.0, -1.0, -1.0, 1.0]])
    np.testing.assert_allclose(resampled.crossing([1, 2, 4, 16], values), [8.0, 1.0, np.inf])
    ties = np.array([[-1e-4, -1e-4, -0.2, -0.5], [-0.1, -0.2, -0.5, -1e-5]])
    np.testing.assert_allclose(resampled.crossing([1, 2, 4, 16], ties), [2.0, np.inf])


@pytest.mark.long
def test_a_huge_number_of_clients_takes_no_more_memory():
    """The median over data sets is of at most 10,000 clients, more than enough for a mean."""
    draws = np.random.default_rng(0).exponential(size=(1, 2048))
    assert typical_mean(draws, 10**12) == typical_mean(draws, 10_000) == pytest.approx(draws.mean(), rel=0.01)
    assert 2e8 < lf.theory.fixed_sample_edge(dim=10_000, rank=3, n_samples=10, noise_std=30.0) < 3e8


def test_what_lies_beyond_the_grid_has_a_one_sided_interval():
    """The smallest n, and the smallest m, are bounds: no interval of length 0 ends there."""
    by_size, findings = found(lambda n: 20.0)  # fewer samples for every n
    (end,) = [one for one in findings if one.claim.startswith(f"{TEXT}, if") and one.setting.endswith("a tenth")]
    least = (math.log(2) + DIM / 2) / DIM
    assert (end.estimate, end.low, end.high) == (pytest.approx(least), pytest.approx(least), math.inf)
    assert by_size["50"].low > 0
    by_size, _ = found(lambda n: 2.0)  # the smallest m of the grid is sufficient
    assert (by_size["50"].low, by_size["50"].verdict) == (0.0, Verdict.SUPPORTED)
    assert SIZES[0] / ALONE * 0.9 < by_size["50"].high < SIZES[0] / ALONE * 1.1
    lines = fedrep_pays.measured_lines(table(lambda n: 20.0 * (3.0 if n == 2 else 1.0)))
    of_25, of_50 = (resampled.interval(lines[m], low=resampled.lower(lines[m], 2.0)) for m in (25, 50))
    assert of_25[:2] == (2.0, 0.0)
    assert of_50 == pytest.approx((2.0, 0.0, 2.0))


def test_constants_in_hindsight_are_chosen_in_each_resample():
    """If every resample lies on a line of the rule, though on lines of other constants, no resample has a gap."""
    rows = [
        {"noise_std": 0.3, "n_samples": m, "n_clients": 2, "dim": 50, "rank": 3, "pays_from": 9.0} for m in (10, 15, 25)
    ]
    a, b, n = np.geomspace(0.01, 30, 50)[30], np.geomspace(0.03, 30, 50), np.geomspace(2, 1000, 300)
    on_lines = {
        m: np.array([n[np.argmax(a * np.log(n) + one * 50 / n <= m)] for one in (b[20], b[25], b[28])])
        for m in (10, 15, 25)
    }
    assert len({tuple(line) for line in np.transpose(list(on_lines.values())).tolist()}) == 3
    found = fedrep_pays.lines(lf.Table(rows), on_lines)[fedrep_pays.PAPER]
    for m, line in on_lines.items():
        np.testing.assert_allclose(found[m], line, rtol=1e-12)
    unreached = {m: np.append(line, np.inf if m == 10 else line[0]) for m, line in on_lines.items()}
    found = fedrep_pays.lines(lf.Table(rows), unreached)[fedrep_pays.PAPER]
    np.testing.assert_allclose([found[m][3] for m in (15, 25)], [on_lines[m][0] for m in (15, 25)], rtol=1e-12)
