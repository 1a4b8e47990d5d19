"""Experiments on estimators and alternating minimisation: their judges reject what is false."""

import numpy as np
import pytest

import linfed as lf
from experiments.others import altmin, estimators, mllam_samples
from experiments.shared.spectral import AVERAGES, MOMENTS, SPECTRAL
from linfed.claims import judged
from linfed.statistics.findings import Verdict
from tests.experiments.judged import searched
from tests.helpers import findings

TRIALS = 20
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


@pytest.mark.parametrize(("power", "verdicts_of"), [(-0.5, "HOLDS SUPPORTED"), (0.5, "VIOLATED NOT SUPPORTED")])
def test_a_growing_number_of_samples_is_found(power, verdicts_of):
    sizes = (20, 80, 320, 1280)
    rows = [searched(5.0 * (n / 20) ** power, n_clients=n, method=mllam_samples.ALTMIN) for n in sizes]
    found = judged(mllam_samples.growth("n", mllam_samples.LOG_N), {"samples": lf.Table(rows)})
    assert " ".join(one.verdict.value for one in found) == verdicts_of


def courses(rounds):
    """Return curves that are at 1e-8 from given rounds on."""
    sizes = {"noise_std": 0.0, "n_clients": 100, "n_samples": 15, "dim": 40, "step_size": 1.0}
    rows = []
    for name, at in rounds.items():
        curve = np.where(np.arange(61) < at, 1.0, 1e-8) * SPREAD[:, None]
        floats = lf.LabeledArray(240.0 * np.arange(61), round=range(61))
        rows.append(sizes | {"method": name, "floats": floats, "distance": lf.LabeledArray(curve, round=range(61))})
    return lf.Table(rows)


def test_rounds_and_floats_of_alternating_minimisation_are_judged():
    table = courses({altmin.ALTMIN: 10, altmin.FEDREP: 5, altmin.ALTGDMIN: 40})
    found = {one.claim: one.verdict for one in findings(altmin, {"curves": table})}
    assert found["AltMin needs fewer rounds than FedRep with a tuned step"] is Verdict.NOT_SUPPORTED
    assert found["AltMin needs fewer rounds than AltGDmin with its published step"] is Verdict.SUPPORTED
    assert found["FedRep sends fewer floats than AltMin"] is Verdict.SUPPORTED
    text = "FedRep sends fewer floats than clients that send their normal equations once"
    assert found[text] is Verdict.NOT_SUPPORTED  # 1200 against 860
