"""The stationary models of L2GD: mean and covariance, against the moments of all models together and against runs."""

import numpy as np
import pytest

import linfed as lf


@pytest.mark.parametrize("samples", [20, pytest.param(3, marks=pytest.mark.long)])
def test_l2gd_has_the_predicted_mean_and_fluctuation(samples):
    """400 runs with their own coins on the same samples; in a planted law only the steps on the losses fluctuate."""
    problem = lf.SharedRepresentation(n_clients=6, dim=5, rank=2, noise_std=0.5, design=lf.Gaussian(covariance=2.0))
    truth, data = problem.truth(0, [0]), lf.FixedSamples(samples).draw(problem)
    given = lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=0.5, design=problem.design)
    run = {"problem": given, "data": lf.GivenSamples(data.X[0], data.y[0])}
    algorithm = lf.L2GD(step_size=0.1, penalty=2.0, mean_probability=0.3)
    (A,), (b,) = data.normal_equations()
    law = lf.theory.l2gd_stationary_models(A, b, step_size=0.1, penalty=2.0, mean_probability=0.3)
    rounds, trials = {20: 400, 3: 2500}[samples], 400
    assert law.rate**rounds < 1e-4
    result = lf.simulate(algorithm, n_rounds=rounds, trials=trials, metrics=["risk"], record_every=rounds, **run)
    models = result.final.S
    error = models.std(axis=0) / np.sqrt(trials)
    assert np.abs((models.mean(axis=0) - law.models) / error).max() < 4.5
    squares = (models - law.models) ** 2
    expected = np.diagonal(law.covariance, axis1=1, axis2=2)
    assert np.abs((squares.mean(axis=0) - expected) / (squares.std(axis=0) / np.sqrt(trials))).max() < 4.5
    risk, floor = result.metrics["risk"][:, -1], lf.predict(algorithm, n_rounds=10, **run).floor
    error = risk.std(ddof=1) / np.sqrt(trials)
    assert abs(risk.mean() - float(floor)) < 4 * error
    lengths = squares.sum(axis=(1, 2))
    error = lengths.std(ddof=1) / np.sqrt(trials)
    assert abs(lengths.mean() - expected.sum()) < 4 * error < abs(lengths.mean() - 0.7 * expected.sum())


@pytest.mark.parametrize("unseen", [False, True])
def test_the_law_of_l2gd_solves_the_equation_of_all_models_together(unseen):
    """By dense matrices of a round with either coin; a direction that no sample sees changes nothing."""
    rng, (n, d), (step, penalty, q) = np.random.default_rng(0), (3, 2), (0.1, 1.5, 0.3)
    X, y = rng.standard_normal((n, 5, d)), rng.standard_normal((n, 5))
    A, b = lf.GivenSamples(X, y).normal_equations()
    local, mean = np.eye(n * d), np.kron(np.full((n, n), 1 / n), np.eye(d))
    for i in range(n):
        local[d * i : d * i + d, d * i : d * i + d] -= step / (1 - q) * A[i]
    pulled = np.eye(n * d) - step * penalty / q * (np.eye(n * d) - mean)
    whole = (1 - q) * local + q * pulled
    end = np.linalg.solve(np.eye(n * d) - whole, step * b.ravel())
    r0, r1 = local @ end + step / (1 - q) * b.ravel() - end, pulled @ end - end
    drive = (1 - q) * np.outer(r0, r0) + q * np.outer(r1, r1)
    squares = (1 - q) * np.kron(local, local) + q * np.kron(pulled, pulled)
    S = np.linalg.solve(np.eye((n * d) ** 2) - squares, drive.ravel()).reshape(n, d, n, d)
    turn = np.linalg.qr(rng.standard_normal((3, d)))[0] if unseen else np.eye(d)
    found = lf.theory.l2gd_stationary_models(
        turn @ A @ turn.T, b @ turn.T, step_size=step, penalty=penalty, mean_probability=q
    )
    np.testing.assert_allclose(found.models, end.reshape(n, d) @ turn.T, rtol=0, atol=1e-12)
    wanted = [turn @ S[i, :, i] @ turn.T for i in range(n)]
    np.testing.assert_allclose(found.covariance, wanted, rtol=0, atol=1e-8 * np.abs(S).max())
    assert found.rate == pytest.approx(np.abs(np.linalg.eigvals(whole)).max(), rel=1e-9)


def moments_of_l2gd(A, b, step, penalty, q):
    """Return the mean and the covariances of all models after 2^24 rounds from 0; None if the moments overflow."""
    n, d = b.shape
    local, pulled = np.eye(n * d + 1), np.eye(n * d + 1)
    for i in range(n):
        local[d * i : d * i + d, d * i : d * i + d] -= step / (1 - q) * A[i]
    local[:-1, -1] = step / (1 - q) * b.ravel()
    pulled[:-1, :-1] -= step * penalty / q * (np.eye(n * d) - np.kron(np.full((n, n), 1 / n), np.eye(d)))
    squares = (1 - q) * np.kron(local, local) + q * np.kron(pulled, pulled)  # of the models and a 1
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(24):
            squares = squares @ squares
    whole = squares[:, -1].reshape(n * d + 1, -1)
    if not np.isfinite(whole).all() or np.abs(whole).max() > 1e20:
        return None
    mean = whole[:-1, -1]
    S = (whole[:-1, :-1] - np.outer(mean, mean)).reshape(n, d, n, d)
    return mean.reshape(n, d), S[range(n), :, range(n)]


def test_the_law_of_l2gd_is_the_limit_of_its_moments_in_random_settings():
    """With more and with fewer samples than parameters, below and above the stability edge, in any unit."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(150):
        (n, d, m), unit = rng.integers(1, 4, 3), 10 ** rng.uniform(-3, 3)
        X, y = unit * rng.standard_normal((n, m, d)), rng.standard_normal((n, m))
        if rng.random() < 0.2:
            X[0] = 0.0
        A, b = lf.GivenSamples(X, np.where(X.any(axis=-1), y, 0.0)).normal_equations()
        largest = np.linalg.eigvalsh(A).max() or 1.0
        q = rng.uniform(0.1, 0.9)
        step = rng.uniform(0.1, 3.0) * (1 - q) / largest
        penalty = rng.uniform(0.1, 1.0) * q / step
        wanted, options = moments_of_l2gd(A, b, step, penalty, q), {"penalty": penalty, "mean_probability": q}
        kind = "fewer" if n * m < d else "more"
        if wanted is None:
            with pytest.raises(ValueError, match="grows without bound"):
                lf.theory.l2gd_stationary_models(A, b, step_size=step, **options)
            seen.append(f"{kind}, unstable")
            continue
        found = lf.theory.l2gd_stationary_models(A, b, step_size=step, **options)
        scale = np.abs(wanted[0]).max()
        np.testing.assert_allclose(found.models, wanted[0], rtol=0, atol=1e-8 * scale)
        np.testing.assert_allclose(found.covariance, wanted[1], rtol=1e-6, atol=1e-8 * scale**2)
        if kind == "fewer":  # one model fits all samples
            np.testing.assert_allclose(found.covariance, 0.0, atol=1e-20 * scale**2)
        seen.append(f"{kind}, stable")
    assert {one: seen.count(one) > 3 for one in seen} == {
        f"{kind}, {end}": True for kind in ("fewer", "more") for end in ("stable", "unstable")
    }


def test_l2gd_minimises_the_mixture_in_the_mean():
    """The mean models are the minimiser of the mixture of losses, and a tenth of the step a tenth of the variance."""
    problem = lf.SharedRepresentation(n_clients=4, dim=3, rank=2, noise_std=0.3)
    (A,), (b,) = lf.FixedSamples(12).draw(problem).normal_equations()
    big, small = (
        lf.theory.l2gd_stationary_models(A, b, step_size=step, penalty=1.5, mean_probability=0.4)
        for step in (0.01, 0.001)
    )
    slopes = (A @ big.models[..., None])[..., 0] - b + 1.5 * (big.models - big.models.mean(axis=0))
    np.testing.assert_allclose(slopes, 0, atol=1e-12)
    np.testing.assert_allclose(big.models, small.models, rtol=1e-10)
    np.testing.assert_allclose(
        np.trace(big.covariance.mean(axis=0)), 10 * np.trace(small.covariance.mean(axis=0)), rtol=0.05
    )
