"""How many samples and rounds FedRep needs: predictions, the theorem's claim, judges that reject what is false."""

import dataclasses
import math

import numpy as np
import pytest

import linfed as lf
import linfed.claims as c
from experiments.fedrep import fedrep_near_truth, fedrep_samples
from experiments.shared.smallest import BEST, FIXED, Need
from linfed.statistics.findings import Verdict


@pytest.mark.parametrize(("n", "p"), [(50, 50), (200, 50), (40, 40)])
def test_near_the_truth_the_factor_of_a_round_is_one_at_the_threshold(n, p):
    sizes = {"dim": 2000, "rank": 3, "n_clients": n, "participants": p}
    m = lf.theory.near_truth_threshold(0.25, **sizes)
    below, above = (
        lf.theory.one_round_factor(0.25, n_samples=found, **sizes) for found in (math.floor(m), math.ceil(m))
    )
    assert above < 1.0 < below
    if p == n:
        assert p * m == pytest.approx((2000 - 3 + 1) * 3 / (7 + 3 / m))
    assert lf.theory.near_truth_threshold(0.25, **sizes | {"dim": 20}) == 5
    assert lf.theory.near_truth_threshold(2.0, **sizes) == math.inf
    with pytest.raises(ValueError, match="must be a positive finite number"):
        lf.theory.near_truth_threshold(-1.0, **sizes)


@pytest.mark.parametrize(("eta", "p"), [(0.25, 50), (0.6, 12), (1.3, 30)])
def test_the_threshold_solves_the_equation_of_the_factor(eta, p):
    d, k, n = 2000, 3, 50
    m = lf.theory.near_truth_threshold(eta, dim=d, rank=k, n_clients=n, participants=p)
    c, f, g = 1 - k / m, (k - 1) * (n - p) / (p * (n - 1)), (d - k + 1) * k / (p * m)
    assert (1 - eta * c) ** 2 + eta**2 * c * (c * f + g) == pytest.approx(1.0, rel=1e-12)
    assert m > k + 2


def test_beyond_the_largest_step_few_samples_can_be_better_than_many():
    sizes = {"dim": 20, "rank": 2, "n_clients": 100}
    factors = [lf.theory.one_round_factor(2.2, n_samples=m, **sizes) for m in (4, 5, 8, 20, 1000)]
    assert factors == sorted(factors)
    assert factors[2] < 1 < factors[3]
    assert lf.theory.near_truth_threshold(2.2, **sizes) == 4
    assert lf.theory.near_truth_threshold(2.2, **sizes | {"dim": 200, "n_clients": 20}) == math.inf


def test_the_best_step_is_the_theorys():
    need = Need(step=BEST, participants=20)
    for m in (5, 60):
        run = dataclasses.replace(need, start=m).search.base
        sizes = {"dim": 1000, "rank": 3, "n_clients": 50, "participants": 20, "n_samples": m}
        assert need.step_size(run) == pytest.approx(lf.theory.best_step_size(**sizes))


def test_heads_have_the_eigenvalues_that_the_theorems_step_needs():
    need = Need(kappa=3.0)
    W = need.search.base.problem.truth(0, [0]).W[0]
    values = np.linalg.eigvalsh(W.T @ W / len(W))
    assert values[-1] == pytest.approx(need.largest)
    assert values[0] == pytest.approx(need.smallest)


def test_rounds_of_the_bound_solve_it():
    need = Need(kappa=2.0)
    rate = 1.0 - 0.25 / 4.0 * (1.0 - 0.81) / 2.0
    assert 0.9 * rate ** (need.predictions["bound"] / 2.0) == pytest.approx(0.01)


def test_what_fixed_samples_need_is_the_spectrums():
    """Against eigenvalues of the Gram matrix of ``x (x) w``, drawn."""
    need = Need(samples=FIXED, n_clients=40, dim=42, rank=2, rounds=100)
    rng, d, k, n = np.random.default_rng(0), 42, 2, 40
    W = need.search.base.problem.truth(0, [0]).W[0]

    def excess(m):
        rows = np.einsum("imd,ik->imdk", rng.standard_normal((n, m - k, d - k)), W)
        values = np.linalg.eigvalsh(np.tensordot(rows, rows, ((0, 1), (0, 1))).reshape(80, 80) / (n * (m - k)))
        left = np.mean((1.0 - 0.25 * (1.0 - k / m) * np.maximum(values, 0.0)) ** 200)
        return math.log(math.sqrt(left) * 0.9 / math.sqrt(0.19) / 0.01 * math.sqrt(1 - 1e-4))

    found = next(m for m in range(4, 40) if excess(m) < 0)
    assert found - 1.5 < need.predictions["spectral"] < found + 0.5
    assert found > 6


@pytest.mark.parametrize(
    ("step_size", "rounds", "sizes", "needed"),
    [
        (1.0, 100, {"dim": 60, "rank": 2, "n_clients": 20}, 29.2021),
        (0.1, 5000, {"dim": 1000, "rank": 2, "n_clients": 4}, 573.803),
        (0.25, 1000, {"dim": 200, "rank": 3, "n_clients": 10}, 75.734),
    ],
)
def test_fixed_samples_needed_where_powers_would_underflow_or_overflow(step_size, rounds, sizes, needed):
    found = lf.theory.fixed_samples_needed(step_size, rounds=rounds, delta=0.9, level=0.01, **sizes)
    assert found == pytest.approx(needed, rel=1e-5)
    with pytest.raises(ValueError, match=r"n_clients = 1 must be an integer of at least"):
        lf.theory.fixed_samples_needed(step_size, rounds=9, delta=0.9, level=0.01, **sizes | {"n_clients": 1})


def test_fixed_samples_needed_falls_with_the_rounds_and_rejects_impossible_levels():
    sizes = {"dim": 60, "rank": 2, "n_clients": 20, "delta": 0.9}
    needed = [lf.theory.fixed_samples_needed(0.25, rounds=rounds, level=0.01, **sizes) for rounds in (40, 100, 1000)]
    assert needed[0] > needed[1] > needed[2] > 2
    assert lf.theory.fixed_samples_needed(0.25, rounds=1, level=0.01, **sizes) == math.inf
    with pytest.raises(ValueError, match=r"level = 0\.9 must be below delta = 0\.9"):
        lf.theory.fixed_samples_needed(0.25, rounds=40, level=0.9, **sizes)


def test_the_bounds_rounds_invert_the_bound():
    run = {"step_size": 0.2, "start": 0.8, "smallest": 0.9}
    assert lf.theory.fedrep_bound([lf.theory.fedrep_bound_rounds(0.05, **run)], **run) == pytest.approx(0.05)
    assert lf.theory.fedrep_bound_rounds(0.8, **run) == 0.0
    for wrong in ({"start": 1.0}, {"step_size": 7.0}, {"smallest": 0.0}, {"start": 0.01}):
        with pytest.raises(ValueError, match="must be"):
            lf.theory.fedrep_bound_rounds(0.05, **run | wrong)


def scaled(table, factor):
    """Return a table whose crossings are a multiple of what was measured, at sizes that grow with it."""
    rows = []
    for row in table.rows:
        by = factor(row)
        copies = {name: row[name] * by for name in ("crossing", "low", "high") if np.isfinite(row[name])}
        replicates = lf.LabeledArray(row["replicates"].values * by, **row["replicates"].axes)
        rows.append({**row, **copies, "replicates": replicates})
    return lf.Table(rows)


@pytest.fixture(scope="module")
def near():
    cell = fedrep_near_truth.Threshold(n_clients=10, dim=500, rank=1, trials=16)
    return lf.Table([{**dataclasses.asdict(cell), **cell.run()}])


@pytest.mark.long
def test_the_threshold_near_the_truth_is_judged(near):
    (found,) = c.judged(fedrep_near_truth.CLAIMS, {"near": near})
    assert found.verdict is Verdict.SUPPORTED
    (found,) = c.judged(fedrep_near_truth.CLAIMS, {"near": scaled(near, lambda row: 1.1)})
    assert found.verdict is Verdict.NOT_SUPPORTED


def test_every_panel_moves_what_it_says():
    cells = fedrep_samples.cells(quick=False)["samples"]
    base = cells[0]
    for panel, (field, values, *_) in fedrep_samples.SAMPLES_IN.items():
        moved = [cell for cell in cells if cell.panel == panel and cell.step == base.step]
        assert [getattr(cell, field) for cell in moved] == list(values)
    assert max(cell.n_clients for cell in cells) == 100_000
    assert max(cell.dim for cell in cells) == 10_000


def at_theorems_step(factor):
    """Return searches at the theorem's step, their crossings ``factor(row)`` times what the theorem asks for."""
    rows = []
    for kappa in (1.0, 1.5, 2.0, 3.0, 4.0):
        need = Need(panel="kappa" if kappa > 1 else "base", kappa=kappa, rounds=math.ceil(40 * kappa**2))
        row = {**dataclasses.asdict(need), **need.predictions, "censored": ""}
        m = factor(row) * row["claim"]
        replicates = lf.LabeledArray(m * np.exp(np.random.default_rng(0).normal(0, 0.01, 500)), replicate=range(500))
        rows.append({**row, "n_samples": math.ceil(m), "crossing": m, "low": m, "high": m, "replicates": replicates})
    return lf.Table(rows)


def judged(words, factor):
    """Return the findings for the sentences that contain some words."""
    asked = [one for one in fedrep_samples.CLAIMS if words in one.sentence]
    return c.judged(asked, {"samples": at_theorems_step(factor)})


def constants(factor):
    return [one.verdict for one in judged("in all settings", factor)]


def test_a_sufficient_condition_is_not_refuted_by_needing_less():
    assert constants(lambda row: 0.5) == [Verdict.SUPPORTED, Verdict.SUPPORTED]
    assert constants(lambda row: 0.5 * row["kappa"] ** -4) == [Verdict.SUPPORTED, Verdict.NOT_SUPPORTED]
    assert constants(lambda row: 1.5) == [Verdict.NOT_SUPPORTED, Verdict.SUPPORTED]


def of_kappa(power):
    return {one.claim: one.verdict for one in judged("kappa", lambda row: 0.5 * row["kappa"] ** (power - 4))}


@pytest.mark.parametrize(
    ("power", "bounded", "tight", "total"),
    [
        (4, Verdict.HOLDS, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED),  # times kappa^2 rounds
        (2, Verdict.HOLDS, Verdict.NOT_SUPPORTED, Verdict.SUPPORTED),
        (0, Verdict.HOLDS, Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED),
        (5, Verdict.VIOLATED, Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED),
    ],
)
def test_only_what_is_printed_with_theta_is_judged_from_both_sides(power, bounded, tight, total):
    found = of_kappa(power)
    assert found["The smallest m grows in kappa at most as fast as Theorem 1's"] is bounded
    assert found["Theorem 1's m is tight in kappa"] is tight
    assert found["Over rounds that grow like kappa^2 the samples per client grow like kappa^4"] is total


def test_fixed_samples_needed_with_large_steps_and_near_the_start():
    """With eta = 2.5 many samples diverge, since 1 - eta < -1, but few leave only a part 1 - k/m of the gradient."""
    sizes = {"dim": 60, "rank": 2, "n_clients": 2000, "delta": 0.9}
    found = lf.theory.fixed_samples_needed(2.5, rounds=100, level=0.01, **sizes)
    assert 2 < found < 3
    for m, reached in ((3, True), (30, False)):
        problem = lf.SharedRepresentation(n_clients=2000, dim=60, rank=2, condition_number=1.0)
        algorithm = lf.FedRep(rank=2, step_size=2.5, init=lf.AtDistance(0.9))
        run = lf.simulate(algorithm, problem, data=lf.FixedSamples(m), rounds=100, metrics=["subspace_distance"])
        assert bool(run.metrics["subspace_distance"][0, -1] < 0.01) is reached
    assert lf.theory.fixed_samples_needed(0.25, rounds=100, level=0.8999, **sizes) == 2.0


def test_fixed_samples_needed_after_one_round_and_after_very_many():
    """One round leaves a mean square with two moments of the spectrum; many leave the directions without samples."""
    d, k, n, eta = 60, 2, 20, 0.6
    sizes = {"dim": d, "rank": k, "n_clients": n, "delta": 0.9, "level": 0.7}
    share = (0.49 / 0.51) / (0.81 / 0.19)
    m = lf.theory.fixed_samples_needed(eta, rounds=1, **sizes)
    c, variance = 1 - k / m, (d - k) * k / (n * (m - k))
    assert 1 - 2 * eta * c + (eta * c) ** 2 * (1 + variance) == pytest.approx(share, rel=1e-9)
    m = lf.theory.fixed_samples_needed(0.05, rounds=10**7, **sizes)
    assert m == pytest.approx(k + (d - k) * k * (1 - share) / n, rel=1e-6)
    for wrong in ({"delta": 1.0}, {"rounds": 0}, {"dim": 2}, {"level": 0.0}):
        with pytest.raises(ValueError, match="must be"):
            lf.theory.fixed_samples_needed(eta, **sizes | {"rounds": 1} | wrong)
    with pytest.raises(ValueError, match=r"step_size = 0\.0 must be a positive"):
        lf.theory.fixed_samples_needed(0.0, rounds=1, **sizes)
    assert np.isfinite(lf.theory.fixed_samples_needed(eta, **sizes | {"rounds": 1, "dim": 3}))
