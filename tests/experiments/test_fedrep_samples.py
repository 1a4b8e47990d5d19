"""The experiments on how many samples FedRep needs: sizes, predictions, and claims that reject what is false."""

import dataclasses
import math

import numpy as np
import pytest

import linfed as lf
import linfed.claims as c
from experiments.fedrep import fedrep_near_truth, fedrep_samples
from experiments.shared.smallest import BEST, FIXED, Need
from linfed.statistics.findings import Verdict


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
    need = Need(samples=FIXED, n_clients=40, dim=42, rank=2, n_rounds=100)
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


def searched(needs, smallest):
    """Return the table of some searches, whose crossings are ``smallest(row)``."""
    rows = []
    for need in needs:
        row = {**dataclasses.asdict(need), **need.predictions, "censored": ""}
        m = smallest(row)
        replicates = lf.LabeledArray(m * np.exp(np.random.default_rng(0).normal(0, 0.01, 500)), replicate=range(500))
        ends = {"crossing": m, "low": m, "high": m, "predicted_crossing": m}
        rows.append({**row, **ends, "n_samples": math.ceil(m), "replicates": replicates})
    return lf.Table(rows)


def asked(words, table):
    """Return the findings for the sentences that contain some words."""
    return c.judged([one for one in fedrep_samples.CLAIMS if words in one.sentence], {"samples": table})


def judged(words, factor):
    """Return findings of searches at the theorem's step, which need ``factor(row)`` times what the theorem asks for."""
    needs = [
        Need(panel="kappa" if kappa > 1 else "base", kappa=kappa, n_rounds=math.ceil(40 * kappa**2))
        for kappa in (1.0, 1.5, 2.0, 3.0, 4.0)
    ]
    return asked(words, searched(needs, lambda row: factor(row) * row["claim"]))


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
        (4, Verdict.SUPPORTED, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED),  # times kappa^2 rounds
        (2, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.SUPPORTED),
        (0, Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED),
        (5, Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED),
    ],
)
def test_only_what_is_printed_with_theta_is_judged_from_both_sides(power, bounded, tight, total):
    found = of_kappa(power)
    assert found["Over 40 kappa^2 rounds the smallest m grows in kappa at most as fast as Theorem 1's"] is bounded
    assert found["Theorem 1's m is tight in kappa"] is tight
    assert found["Over rounds that grow like kappa^2 the samples per client grow like kappa^4"] is total


PRINTED, WITHOUT = "k^3 log(n) + k d/n, as (11)", "like k, as (11) without its term k^3 log(n)"


@pytest.mark.parametrize(
    ("growth", "supported"),
    [
        (lambda k, d, p: k, {WITHOUT}),
        (lambda k, d, p: k**3 * math.log(p) + k * d / p, {PRINTED}),
        (lambda k, d, p: k**4, set()),
        (lambda k, d, p: 1, set()),
    ],
    ids=["k", "as printed", "k^4", "constant"],
)
def test_samples_per_client_grow_in_the_rank_as_printed_or_without_one_term(growth, supported):
    needs = [Need(panel="k" if k != 3 else "base", rank=k) for k in (1, 2, 3, 6, 12)]
    table = searched(needs, lambda row: row["rank"] + 1 + 10 * growth(row["rank"], row["dim"], row["p"]))
    found = {words: asked(words, table)[0].verdict for words in (PRINTED, WITHOUT)}
    assert {words for words, verdict in found.items() if verdict is Verdict.SUPPORTED} == supported
    assert {found[words] for words in {*found} - supported} <= {Verdict.NOT_SUPPORTED}
