"""Floors of clients by themselves, of the oracle and of minimisers, against loops and runs."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, basis, mostly_long, normal
from tests.prediction.runs import HIGHER, PROBLEM, WITH_PARTS, fedrep, predict, with_part
from tests.problems.test_shared import assert_mean

SERVES = {
    "FedRep": (fedrep(step_size=0.3), lf.FixedSamples(20), 80, 0.06),
    "AltMin": (lf.AltMin(rank=3), lf.FixedSamples(20), 8, 0.06),
    "BurerMonteiro": (lf.BurerMonteiro(rank=3), lf.FixedSamples(20), 1, 0.06),
    "LocalOnly": (lf.LocalOnly(), lf.FixedSamples(15), 1, 0.06),
    "ridge": (lf.LocalOnly(ridge=0.3), lf.FreshSamples(20), 1, 0.06),
    "Oracle": (lf.Oracle(rank=3), lf.FreshSamples(9), 1, 0.06),
    "Oracle of two": (lf.Oracle(rank=2), lf.FixedSamples(9), 1, 0.06),
    "rank 2 of 4": (fedrep(rank=2, step_size=0.2), lf.FreshSamples(10), 30, 0.06),
    "FedAvg": (lf.FedAvg(step_size=0.3, local_steps=2), lf.FixedSamples(20), 60, 1e-6),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SERVES)
def test_runs_end_on_the_floor_that_is_predicted(name):
    algorithm, data, rounds, margin = SERVES[name]
    problem, trials, engine = (HIGHER, 150, "chain") if "of 4" in name else (PROBLEM, 6, "auto")
    floor = predict(algorithm, problem, data=data, n_rounds=0, trials=6).floor
    run = lf.simulate(
        algorithm, problem, data=data, n_rounds=rounds, trials=trials, record_every=rounds, engine=engine
    ).metrics[floor.metric][:, -1]
    typical = np.median if floor.metric == "subspace_distance" else np.mean
    assert typical(run) == pytest.approx(np.mean(floor), rel=margin)


@pytest.mark.long
@pytest.mark.parametrize("data", [lf.FreshSamples(8), lf.FixedSamples(8)])
@pytest.mark.parametrize("name", [*WITH_PARTS, "a subspace"])
def test_predicted_risks_with_a_full_dimensional_part(name, data):
    """The oracle's heads are fitted at the reference subspace, which is not the best one of these regressors."""
    if name == "a subspace":
        Phi = WITH_PARTS["similar"].truth(0, [0]).dense()[0]
        problem = lf.GivenTruth(Phi=Phi, B=np.eye(12, 2), noise_std=0.3)
    else:
        problem = with_part(name)
    for algorithm in (lf.Oracle(rank=2), lf.LocalOnly()):
        floor = lf.predict(algorithm, problem, data=data, n_rounds=1).floor
        risks = lf.simulate(algorithm, problem, data=data, n_rounds=1, trials=600).metrics["risk"][:, -1]
        assert_mean(risks, float(floor))
        assert risks.std() / np.sqrt(600) < 0.02 * risks.mean()


def test_floors_are_means_over_clients():
    sizes, noise = {"n_samples": 15}, 0.4
    Phi = normal(12, 6)
    problem = lf.GivenTruth(Phi=Phi, noise_std=noise)
    run = {"data": lf.FreshSamples(15), "n_rounds": 2}
    lengths = np.linalg.norm(Phi, axis=1)
    for ridge in (0.0, 0.4):
        wanted = lf.theory.local_mean_risk(lengths, noise_std=noise, dim=6, ridge=ridge, **sizes).mean()
        assert lf.predict(lf.LocalOnly(ridge=ridge), problem, **run).floor == pytest.approx(wanted, rel=1e-12)
    top = np.linalg.svd(Phi)[2][:2]
    B, W, S = basis(6, 2), normal(12, 2, seed=1), 0.3 * normal(12, 6, seed=2)
    for kind, regressors, rows in (
        ({"Phi": Phi}, Phi, top),
        ({"Phi": Phi, "B": B}, Phi, B.T),
        ({"B": B, "W": W, "S": S}, W @ B.T + S, B.T),
        ({"B": B, "W": W}, W @ B.T, B.T),
        ({"B": normal(6, 3), "W": normal(12, 3)}, normal(12, 3) @ normal(6, 3).T, None),
    ):
        rows = np.linalg.svd(regressors)[2][:2] if rows is None else rows
        outside = np.linalg.norm(regressors - regressors @ rows.T @ rows, axis=1)
        wanted = lf.theory.new_client_mean_risk(outside, noise_std=noise, rank=2, **sizes).mean()
        found = lf.predict(lf.Oracle(rank=2), lf.GivenTruth(**kind, noise_std=noise), **run)
        assert found.floor == pytest.approx(wanted, rel=1e-12)
        assert found.distance.tolist() == [0.0, 0.0, 0.0]


VARIANCES = {
    "LocalOnly": (lf.LocalOnly(), lf.LocalOnly()),
    "ridge": (lf.LocalOnly(ridge=1.0), lf.LocalOnly(ridge=0.4)),
    "Oracle": (lf.Oracle(rank=3), lf.Oracle(rank=3)),
    "U-statistic": (lf.UStatistic(rank=3), lf.UStatistic(rank=3)),
    "AltMin": (lf.AltMin(rank=3), lf.AltMin(rank=3)),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_x_of_another_variance_is_that_of_longer_regressors(name):
    """The penalty of a ridge is then divided by the variance."""
    B, W = normal(12, 3), normal(40, 3, seed=1) / 3
    scaled = lf.GivenTruth(B=B, W=W, noise_std=0.3, design=lf.Gaussian(covariance=2.5))
    plain = lf.GivenTruth(B=B, W=2.5**0.5 * W, noise_std=0.3)
    one, other = (
        lf.predict(algorithm, problem, data=lf.FixedSamples(60), n_rounds=1).floor
        for algorithm, problem in zip(VARIANCES[name], (scaled, plain), strict=True)
    )
    assert one == pytest.approx(float(other), rel=1e-9)
    heads = 2.5**0.5 * W @ ref.qr_positive(B)[1].T
    sizes = {"dim": 12, "n_samples": 60, "noise_std": 0.3}
    if name == "U-statistic":
        wanted = lf.theory.spectral_floor(VARIANCES[name][0], heads, **sizes).distance
        assert one == pytest.approx(float(wanted), rel=0.01)
    if name == "AltMin":
        assert one == pytest.approx(float(lf.theory.fixed_sample_floor(heads, **sizes).distance), rel=1e-6)


DIM = 8


ALONE = {  # algorithm, number of fresh samples of each client, tolerance
    "least squares": (lf.LocalOnly(), (12, 12, 40, 12), 0.02),
    "fewer samples than dimensions": (lf.LocalOnly(), (3, 6, 4, 5), 0.02),
    "both": (lf.LocalOnly(), (3, 14, 12, 4), 0.02),
    "ridge": (lf.LocalOnly(ridge=0.5), (3, 14, 20, 4), 0.03),
    "oracle": (lf.Oracle(rank=3), (9, 12, 8, 15), 0.02),
    "oracle, fewer samples than columns": (lf.Oracle(rank=3), (1, 1, 9, 1), 0.02),
    "oracle, ridge": (lf.Oracle(rank=3, ridge=2.0), (1, 9, 5, 2), 0.04),
    "oracle of fewer columns": (lf.Oracle(rank=2), (9, 12, 8, 15), 0.02),
}


@pytest.mark.parametrize("name", mostly_long(ALONE, "both", "ridge", "oracle, ridge", "oracle of fewer columns"))
def test_clients_that_differ_have_the_mean_of_their_risks(name):
    """Each has its own length, noise and number of samples; against least squares in a loop over draws."""
    (algorithm, counts, tolerance), rng = ALONE[name], np.random.default_rng(0)
    B, W = np.linalg.qr(rng.standard_normal((DIM, 3)))[0], rng.standard_normal((4, 3)) * [[0.5], [1.0], [2.0], [1.5]]
    noise, draws, measured = (0.2, 1.0, 0.5, 2.0), 6000, []
    problem = lf.GivenTruth(B=B, W=W, noise_std=noise)
    basis = np.eye(DIM) if isinstance(algorithm, lf.LocalOnly) else problem.truth(0, [0]).reference(algorithm.rank)[0]
    for phi, sigma, m in zip(W @ B.T, noise, counts, strict=True):
        X = rng.standard_normal((draws, m, DIM))
        y, Z = X @ phi + sigma * rng.standard_normal((draws, m)), X @ basis
        gram = Z.mT @ Z / m + algorithm.ridge * np.eye(Z.shape[-1])
        theta = np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ (Z.mT @ y[..., None]) / m
        measured.append(0.5 * np.square((basis @ theta)[..., 0] - phi).sum(axis=-1) + 0.5 * sigma**2)
    found = float(lf.predict(algorithm, problem, data=lf.FreshSamples(counts), n_rounds=1).floor)
    mean, error = np.mean(measured), np.std(measured, axis=1).max() / np.sqrt(4 * draws)
    assert abs(found / mean - 1) < tolerance + 3 * error / mean
    alike = np.sqrt(np.mean(np.square(noise)))
    others = lf.GivenTruth(B=B, W=W, noise_std=alike), lf.FreshSamples(round(np.mean(counts)))
    if algorithm.ridge == 0:
        assert abs(float(lf.predict(algorithm, others[0], data=others[1], n_rounds=1).floor) / mean - 1) > 2 * tolerance


def test_an_oracle_with_nearly_as_many_samples_as_columns_has_no_mean_risk():
    problem = lf.SharedRepresentation(n_clients=4, dim=8, rank=3, noise_std=0.1)
    for m in (2, 3, 4):
        assert lf.predict(lf.Oracle(rank=3), problem, data=lf.FreshSamples(m), n_rounds=1).floor == np.inf
    clean = lf.SharedRepresentation(n_clients=4, dim=8, rank=3)
    floors = [lf.predict(lf.Oracle(rank=3), clean, data=lf.FreshSamples(m), n_rounds=1).floor for m in (1, 2, 3, 5)]
    squares = np.square(clean.truth(0, [0]).W).sum() / 4
    np.testing.assert_allclose([float(each) for each in floors], [squares / 3, squares / 6, 0.0, 0.0], rtol=1e-12)


def test_an_oracle_of_more_columns_than_the_regressors_span_is_refused_as_in_a_run():
    W = np.random.default_rng(0).standard_normal((2, 5))
    problem = lf.GivenTruth(B=np.eye(8, 5), W=W, noise_std=0.1)
    run = {"data": lf.FixedSamples(20), "n_rounds": 1}
    assert float(lf.predict(lf.Oracle(rank=2), problem, **run).floor) > 0
    words = ["Oracle requires a reference subspace of rank 4, not 2"]
    assert_one_line(lambda: lf.predict(lf.Oracle(rank=4), problem, **run), words, lf.NoPredictionError)
    assert_one_line(lambda: lf.simulate(lf.Oracle(rank=4), problem, **run), words)


@pytest.mark.parametrize(
    ("algorithm", "m", "size"), [(lf.LocalOnly(ridge=0.04), 21, 20), (lf.Oracle(rank=2, ridge=0.04), 3, 2)]
)
def test_a_small_ridge_is_told_as_it_was_given(algorithm, m, size):
    design = lf.Gaussian(covariance=4.0)
    problem = lf.SharedRepresentation(n_clients=4, dim=20, rank=2, noise_std=0.3, design=design)
    found = lf.predict(algorithm, problem, data=lf.FixedSamples(m), n_rounds=1)
    words = ["ridge = 0.04 is too small", f"n_samples = {m} in {size} dimensions"]
    assert_one_line(lambda: found.floor, words, lf.NoPredictionError)
