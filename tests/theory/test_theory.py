"""Theory against brute force: fixed points, floors and laws, and the runs that go where they say."""

import functools
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, each, normal
from tests.worlds import draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
NAN, INF = float("nan"), float("inf")


# --- where federated averaging goes --------------------------------------------------------------------------

WEIGHTS = ["uniform", "samples"]
WORLDS = {"n m > d": ([9, 3, 14, 6], 4), "n m < d": ([2, 1, 2, 1], 16)}


def averaging(world, K, weights="uniform"):
    """Return the world, A_i, b_i, and the settings of theory and of the loop."""
    (counts, d), eta = WORLDS[world], 0.06
    drawn = draw_world(counts, d, 2, noise=0.5)
    shares = None if weights == "uniform" else counts
    theory = {"step_size": eta, "local_steps": K, "weights": shares}
    return drawn, *drawn.data().normal_equations(), theory, {"step_size": eta, "local_steps": K, "weights": weights}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("world", WORLDS)
def test_the_fixed_point_is_where_a_round_of_the_loop_stays(world, K, weights):
    drawn, A, b, theory, loop = averaging(world, K, weights)
    theta = lf.theory.fedavg_fixed_point(A, b, **theory)
    for server_step_size in (1.0, 0.4, 1.7):
        moved = ref.fedavg_round(theta, drawn.X, drawn.y, server_step_size=server_step_size, **loop)
        np.testing.assert_allclose(moved, theta, rtol=0, atol=2e-14)
    other = lf.theory.fedavg_fixed_point(A, b, **theory | {"local_steps": K + 1})
    if world == "n m > d":
        pooled = ref.stacked_least_squares(drawn.X, drawn.y, ref.shares(drawn.y, weights))
        assert np.allclose(theta, pooled, **TOLERANCE) == (K == 1)
        assert np.abs(other - theta).max() > 1e-4
    else:  # whatever K, the shortest that explains all samples
        shortest = np.linalg.pinv(np.concatenate(drawn.X)) @ np.concatenate(drawn.y)
        np.testing.assert_allclose(theta, shortest, **TOLERANCE)
        np.testing.assert_allclose(other, shortest, **TOLERANCE)


@pytest.mark.long
@each("server_step_size", [1.0, 0.5, 1.3])
@each("weights", WEIGHTS)
@each("K", [1, 4])
@each("world", WORLDS)
def test_runs_reach_the_fixed_point_from_zero(world, K, weights, server_step_size):
    drawn, A, b, theory, setting = averaging(world, K, weights)
    setting["server_step_size"] = server_step_size
    rates = np.abs(np.linalg.eigvals(lf.theory.fedavg_iteration_matrix(A, server_step_size=server_step_size, **theory)))
    rounds = int(
        25 / -np.log(rates[rates < 1 - 1e-9].max())
    )  # enough to fall by exp(-25); what never falls starts at 0
    result = lf.simulate(lf.FedAvg(**setting), data=drawn.data(), rounds=rounds)
    assert result.status == [lf.Status.COMPLETED]
    theta = lf.theory.fedavg_fixed_point(A, b, **theory)
    np.testing.assert_allclose(result.final.S[0, 0], theta, **TOLERANCE)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("world", WORLDS)
def test_the_iteration_matrix_maps_errors_exactly(world, K, weights):
    drawn, A, b, theory, loop = averaging(world, K, weights)
    fixed = lf.theory.fedavg_fixed_point(A, b, **theory)
    for server_step_size in (1.0, 0.4, 1.7):
        matrix = lf.theory.fedavg_iteration_matrix(A, server_step_size=server_step_size, **theory)
        error = normal(len(fixed), seed=1)
        moved = ref.fedavg_round(fixed + error, drawn.X, drawn.y, server_step_size=server_step_size, **loop)
        np.testing.assert_allclose(moved - fixed, matrix @ error, rtol=0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("radius", [0.97, 1.05])
def test_the_spectral_radius_tells_convergence_from_divergence(radius, K):
    drawn, A, _, theory, setting = averaging("n m > d", K)
    # I - eta_s M has the eigenvalue -radius where eta_s = (1 + radius) / (largest eigenvalue of M).
    largest = 1 - np.linalg.eigvals(lf.theory.fedavg_iteration_matrix(A, **theory)).real.min()
    setting["server_step_size"] = (1 + radius) / largest
    matrix = lf.theory.fedavg_iteration_matrix(A, server_step_size=setting["server_step_size"], **theory)
    assert np.abs(np.linalg.eigvals(matrix)).max() == pytest.approx(radius, rel=1e-12)
    rate = lf.theory.fedavg_rate(A, server_step_size=setting["server_step_size"], **theory)
    assert rate == pytest.approx(radius, rel=1e-12)
    problem = lf.GivenTruth(Phi=np.zeros((4, 4)))
    result = lf.simulate(lf.FedAvg(**setting), problem, data=drawn.data(), rounds=900)
    diverges = radius > 1
    assert result.status == [lf.Status.DIVERGED if diverges else lf.Status.COMPLETED]
    if diverges:
        errors = result.metrics["parameter_error"][0, 300:400]
        np.testing.assert_allclose(errors[1:] / errors[:-1], radius, rtol=1e-3)


def exact_fixed_point(A, b, step, K):
    """Return the fixed point in rational numbers, for two dimensions."""
    matrix, target = [[Fraction(0)] * 2 for _ in range(2)], [Fraction(0)] * 2
    for A_i, b_i in zip(A, b, strict=True):
        for column in range(3):  # K steps on each unit vector without labels, and from 0 with them
            start = [Fraction(int(column == row)) for row in range(2)]
            theta, labels = list(start), [Fraction(float(v)) * (column == 2) for v in b_i]
            for _ in range(K):
                pushed = [sum(Fraction(float(a)) * x for a, x in zip(row, theta, strict=True)) for row in A_i]
                theta = [x - Fraction(step) * (p - q) for x, p, q in zip(theta, pushed, labels, strict=True)]
            for row in range(2):
                if column < 2:
                    matrix[row][column] += start[row] - theta[row]
                else:
                    target[row] += theta[row]
    (a, c), (e, f) = matrix
    return [
        float((target[0] * f - c * target[1]) / (a * f - c * e)),
        float((a * target[1] - e * target[0]) / (a * f - c * e)),
    ]


@each("K", [1, 2, 3, 6, 11])
@each("step", [1e-300, 1e-14, 1e-9, 1e-4, 0.1])
def test_the_fixed_point_keeps_its_digits_however_small_the_step(step, K):
    A, b = lf.GivenSamples(normal(3, 4, 2), normal(3, 4, seed=1)).normal_equations()
    theta = lf.theory.fedavg_fixed_point(A, b, step_size=step, local_steps=K)
    np.testing.assert_allclose(theta, exact_fixed_point(A, b, step, K), rtol=1e-13)
    if step < 1e-13:
        np.testing.assert_allclose(theta, np.linalg.solve(A.sum(axis=0), b.sum(axis=0)), rtol=1e-12)


@pytest.mark.parametrize(("K", "diverging"), [(1, 1.01), (3, 1.01), (4, 1.01), (1, 40.0)])
def test_a_fixed_point_that_is_not_reached_is_refused(K, diverging):
    """A client alone: the edge is at 2 over its largest eigenvalue, whatever K; at an even K the sum turns negative."""
    A, b = lf.GivenSamples(normal(1, 9, 4), normal(1, 9, seed=1)).normal_equations()
    edge = 2.0 / np.linalg.eigvalsh(A[0])[-1]
    wanted = np.linalg.solve(A[0], b[0])
    setting = {"local_steps": K}
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, step_size=0.99 * edge, **setting), wanted, rtol=1e-9)
    step = diverging * edge
    radius = np.abs(np.linalg.eigvals(lf.theory.fedavg_iteration_matrix(A, step_size=step, **setting))).max()
    assert radius > 1
    said = rf"step_size = .* with local_steps = {K} diverges.*radius {radius:.4g}: .*stable=False"
    with pytest.raises(ValueError, match=said):
        lf.theory.fedavg_fixed_point(A, b, step_size=step, **setting)
    point = lf.theory.fedavg_fixed_point(A, b, step_size=step, stable=False, **setting)
    np.testing.assert_allclose(point, wanted, rtol=1e-9)
    both = [np.stack([array, array * scale]) for array, scale in ((A, 1e-3), (b, 1e-3))]
    with pytest.raises(ValueError, match="diverges"):  # in one trial of two
        lf.theory.fedavg_fixed_point(*both, step_size=step, **setting)


def test_a_fixed_point_that_overflows_is_refused():
    A, b = lf.GivenSamples(normal(2, 9, 4), normal(2, 9, seed=1)).normal_equations()
    for stable in (True, False):
        with pytest.raises(ValueError, match=r"step_size = 1e\+200 with local_steps = 9 overflows"):
            lf.theory.fedavg_fixed_point(A, b, step_size=1e200, local_steps=9, stable=stable)


def test_trials_are_an_axis_of_fixed_point_and_matrix():
    X, y = normal(3, 5, 8, 4), normal(3, 5, 8, seed=1)
    A, b = lf.GivenSamples(X, y).normal_equations()
    setting = {"step_size": 0.1, "local_steps": 3, "weights": [1.0, 2.0, 0.0, 1.0, 5.0]}
    points = lf.theory.fedavg_fixed_point(A, b, **setting)
    matrices = lf.theory.fedavg_iteration_matrix(A, server_step_size=0.5, **setting)
    assert (points.shape, matrices.shape) == ((3, 4), (3, 4, 4))
    for t in range(3):
        np.testing.assert_allclose(points[t], lf.theory.fedavg_fixed_point(A[t], b[t], **setting), **TOLERANCE)
        one = lf.theory.fedavg_iteration_matrix(A[t], server_step_size=0.5, **setting)
        np.testing.assert_allclose(matrices[t], one, **TOLERANCE)
        rates = lf.theory.fedavg_rate(A, server_step_size=0.5, **setting)
        assert rates[t] == pytest.approx(np.abs(np.linalg.eigvals(one)).max(), rel=1e-12)
    result = lf.simulate(lf.FedAvg(step_size=0.1, local_steps=3), data=lf.GivenSamples(X, y), rounds=800)
    equal = lf.theory.fedavg_fixed_point(A, b, step_size=0.1, local_steps=3)
    np.testing.assert_allclose(result.final.S[:, 0], equal, **TOLERANCE)


def test_weights_are_shares():
    _, A, b, theory, _ = averaging("n m > d", 3, "samples")
    one = lf.theory.fedavg_fixed_point(A, b, **theory)
    theory["weights"] = np.array(theory["weights"]) / 7
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, **theory), one, **TOLERANCE)
    theory["weights"] = [0, 0, 1, 0]  # one client alone: its own least squares, whatever K
    alone = np.linalg.solve(A[2], b[2])
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, **theory), alone, **TOLERANCE)


def test_by_default_clients_take_one_step_and_count_alike():
    _, A, b, _, _ = averaging("n m > d", 1)
    mean = A.mean(axis=0)
    point = lf.theory.fedavg_fixed_point(A, b, step_size=0.06)
    np.testing.assert_allclose(point, np.linalg.solve(mean, b.mean(axis=0)), rtol=1e-12)
    matrix = np.eye(4) - 0.06 * mean
    np.testing.assert_allclose(lf.theory.fedavg_iteration_matrix(A, step_size=0.06), matrix, rtol=0, atol=1e-15)
    assert lf.theory.fedavg_rate(A, step_size=0.06) == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-13)


def test_where_numbers_overflow_the_rate_is_infinite_and_a_client_without_weight_does_not_count():
    _, A, b, _, _ = averaging("n m > d", 1)
    setting = {"step_size": 0.06, "local_steps": 9}
    rates = lf.theory.fedavg_rate(np.stack([A, 1e200 * A]), **setting)
    assert rates.tolist() == [lf.theory.fedavg_rate(A, **setting), INF]
    large = np.concatenate([1e200 * A[:1], A[1:]])
    point = lf.theory.fedavg_fixed_point(large, b, weights=[0.0, 1.0, 1.0, 1.0], **setting)
    np.testing.assert_allclose(point, lf.theory.fedavg_fixed_point(A[1:], b[1:], **setting), rtol=1e-12)


# --- the floor of a single model -----------------------------------------------------------------------------

FLOORS = {
    "B, W": {"B": normal(3, 5, 2), "W": normal(3, 6, 2, seed=1)},
    "S": {"S": normal(6, 5, seed=2)},
    "B, W, S": {"B": normal(5, 2), "W": normal(6, 2, seed=1), "S": normal(6, 5, seed=2)},
    "Phi, B": {"Phi": normal(3, 6, 5, seed=2), "B": normal(5, 2)},
    "one client": {"Phi": normal(1, 5)},
}
COVARIANCE = np.diag([1.0, 2.0, 0.5, 3.0, 0.2]) + 0.1


@pytest.mark.parametrize("covariance", [None, 2.0, COVARIANCE], ids=["I", "2 I", "full"])
@each("form", FLOORS)
def test_the_floor_is_the_risk_of_the_mean_and_nothing_is_below(form, covariance):
    problem = lf.GivenTruth(**FLOORS[form], noise_std=0.3, design=lf.Gaussian(covariance=covariance))
    truth = problem.truth(0, range(3))
    floors = lf.theory.single_model_floor(truth)
    assert floors.shape == (3,)
    matrix = np.eye(5) * (1.0 if covariance is None else covariance) if np.ndim(covariance) == 0 else covariance
    rng = np.random.default_rng(0)
    for floor, Phi in zip(floors, truth.dense(), strict=True):
        mean = Phi.mean(axis=0)
        risk = functools.partial(ref.risk, Phi=Phi, covariance=matrix, noise_std=0.3)
        np.testing.assert_allclose(floor, risk(Theta=[mean] * len(Phi)), **TOLERANCE)
        for size in (1e-3, 0.1, 10.0):
            for _ in range(5):
                change = size * rng.standard_normal(5)
                above = risk(Theta=[mean + change] * len(Phi)) - floor
                np.testing.assert_allclose(above, 0.5 * change @ matrix @ change, rtol=1e-6, atol=1e-12)


def test_the_floor_of_equal_clients_is_the_noise():
    truth = lf.GivenTruth(Phi=np.tile(normal(5), (6, 1)), noise_std=0.4).truth(0, [0])
    np.testing.assert_allclose(lf.theory.single_model_floor(truth), 0.08, rtol=1e-12)


SINGLE = {
    "FedAvg, 3 local steps": (lf.FedAvg(step_size=0.5, local_steps=3), 60),
    "FedAvg, two layers": (lf.FedAvg(step_size=0.3, rank=2), 300),
    "pooled": (lf.PooledLeastSquares(), 1),
}


@pytest.mark.parametrize("name", SINGLE)
def test_single_models_approach_their_floor_as_samples_grow(name):
    problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2, noise_std=0.3)
    floor, (algorithm, rounds) = lf.theory.single_model_floor(problem.truth(0, range(3))), SINGLE[name]
    gaps = []
    for m in (20, 200, 2000):
        result = lf.simulate(algorithm, problem, data=lf.FixedSamples(m), rounds=rounds, trials=3, metrics=["risk"])
        gaps.append((result.metrics["risk"][:, -1] / floor - 1).mean())
        assert (result.metrics["risk"][:, -1] >= floor).all()
    assert gaps[0] > 3 * gaps[1] > 9 * gaps[2]  # like 1/m
    assert gaps[2] < 3e-3


def test_a_shared_representation_goes_below_the_floor_of_a_single_model():
    problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2, noise_std=0.3)
    floor = lf.theory.single_model_floor(problem.truth(0, range(3)))
    result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FixedSamples(50), rounds=100, trials=3)
    assert (result.metrics["risk"][:, -1] < 0.2 * floor).all()


# --- the law of a new client's risk --------------------------------------------------------------------------


def drawn_excess(rho, *, noise_std, rank, n_samples, seed=0):
    """Return the excess risk of clients with these rho: samples, labels, exact heads and errors, one by one."""
    d, count, rng = rank + 3, len(rho), np.random.default_rng(seed)
    B = ref.qr_positive(rng.standard_normal((d, rank)))[0]
    beyond = rng.standard_normal((count, d))
    beyond -= beyond @ B @ B.T
    beyond *= (rho / np.linalg.norm(beyond, axis=1))[:, None]
    phi = rng.standard_normal((count, rank)) @ B.T + beyond
    X = rng.standard_normal((count, n_samples, d))
    y = np.vecdot(X, phi[:, None]) + noise_std * rng.standard_normal((count, n_samples))
    Q, R = np.linalg.qr(X @ B)
    w = np.linalg.solve(R, (y[:, None, :] @ Q)[:, 0, :, None])[..., 0]
    return 0.5 * np.square(w @ B.T - phi).sum(axis=1)


def distance(excess, rho, **law):
    """Return how far the law's quantiles are off, as shares: at most the Kolmogorov-Smirnov statistic."""
    levels = np.arange(0.02, 0.99, 0.03)
    quantiles = [lf.theory.new_client_excess_quantile(q, rho, **law) for q in levels]
    return max(abs((excess <= x).mean() - q) for q, x in zip(levels, quantiles, strict=True))


K = 3
MIXTURES = {"noise alone": [0.0], "one rho": [0.7], "a mixture": [0.0, 0.01, 0.4, 2.0, 0.4], "no noise": [0.3, 1.0]}


@pytest.mark.long
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("m", [K, K + 1, K + 3, 5 * K])
def test_excess_risks_follow_the_law(mixture, m):
    """One-sample Kolmogorov-Smirnov: a right law is rejected at fewer than one seed in 1000.

    The power is shown by laws that are nearly right: other degrees of freedom, and a longer error outside.
    """
    rho = np.tile(MIXTURES[mixture], 12_000 // len(MIXTURES[mixture]))
    law = {"noise_std": 0.0 if mixture == "no noise" else 0.5, "rank": K}
    excess = drawn_excess(rho, n_samples=m, **law)
    critical = scipy.stats.kstwo.isf(1e-3, len(rho))
    some = np.array(MIXTURES[mixture])
    assert distance(excess, some, n_samples=m, **law) < critical
    assert distance(excess, some, n_samples=m + K - 1, **law) > critical  # (k, m) for (k, m - k + 1)
    if mixture != "noise alone":
        assert distance(excess, 1.2 * some, n_samples=m, **law) > critical


@pytest.mark.long
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("m", [K + 5, 5 * K])
def test_the_mean_risk_is_the_mean_of_the_law(mixture, m):
    """Within 4 standard errors (their variance is finite here): a right mean fails at one seed in 15,000."""
    rho = np.tile(MIXTURES[mixture], 24_000 // len(MIXTURES[mixture]))
    noise = 0.0 if mixture == "no noise" else 0.5
    predicted = lf.theory.new_client_mean_risk(rho, noise_std=noise, rank=K, n_samples=m)
    assert predicted.shape == rho.shape
    gaps = drawn_excess(rho, noise_std=noise, rank=K, n_samples=m, seed=1) + noise**2 / 2 - predicted
    error = gaps.std() / np.sqrt(len(gaps))
    assert abs(gaps.mean()) < 4 * error
    wrong = lf.theory.new_client_mean_risk(rho, noise_std=noise, rank=K, n_samples=m + 1)
    assert abs((gaps + predicted - wrong).mean()) > 4 * error


@pytest.mark.parametrize("m", [K, K + 1])
def test_the_mean_is_infinite_at_k_and_k_plus_one_unless_nothing_is_left_to_explain(m):
    law = {"rank": K, "n_samples": m}
    rho = np.array([[0.0, 0.5]])
    assert lf.theory.new_client_mean_risk(rho, noise_std=0.0, **law).tolist() == [[0.0, INF]]
    assert lf.theory.new_client_mean_risk(rho, noise_std=0.1, **law).tolist() == [[INF, INF]]
    assert lf.theory.new_client_mean_risk(0.5, noise_std=0.0, rank=K, n_samples=K + 2) == pytest.approx(0.5)
    medians = [lf.theory.new_client_excess_quantile(0.5, rho, noise_std=0.1, rank=K, n_samples=n) for n in (m, m + 1)]
    assert 0 < medians[1] < medians[0] < INF


def test_the_mean_risk_of_a_new_client_by_hand():
    rho, sigma, k, m = np.array([[0.0, 0.3], [1.7, 0.9]]), 0.4, 3, 11
    wanted = 0.5 * (rho**2 + 3 * (rho**2 + 0.16) / 7) + 0.08
    found = lf.theory.new_client_mean_risk(rho, noise_std=sigma, rank=k, n_samples=m)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("q", [0.45, 0.7, 0.95])
def test_the_quantile_of_a_mixture_is_where_its_distribution_function_is_q(q, noise):
    rho, k, m = np.array([[0.1, 1.0], [2.0, 0.0], [0.4, 0.4]]), 2, 6
    found = lf.theory.new_client_excess_quantile(q, rho, noise_std=noise, rank=k, n_samples=m)
    law, below = scipy.stats.f(k, m - k + 1), 0.0
    for length in rho.ravel():
        tau2 = length**2 + noise**2
        below += law.cdf((2 * found - length**2) / (tau2 * k / (m - k + 1))) / 6 if tau2 else 1 / 6
    assert below == pytest.approx(q, rel=1e-9)


def test_lengths_outside_are_what_least_squares_leaves():
    B, Phi = normal(3, 6, 2), normal(3, 5, 6, seed=1)
    lengths = lf.theory.outside_length(B, Phi)
    assert lengths.shape == (3, 5)
    for trial, client in np.ndindex(3, 5):
        phi = Phi[trial, client]
        left = phi - B[trial] @ np.linalg.lstsq(B[trial], phi)[0]
        assert lengths[trial, client] == pytest.approx(np.linalg.norm(left), rel=1e-12)
    np.testing.assert_allclose(lf.theory.outside_length(B[1], Phi[1]), lengths[1], **TOLERANCE)
    np.testing.assert_allclose(lf.theory.outside_length(B * [1e-9, 1e9], Phi), lengths, **TOLERANCE)


def test_under_a_covariance_the_mean_risk_is_that_of_whitened_lengths():
    """Against 4,000 fits: 4.5 standard errors are 7e-6 false alarms; the unwhitened length is far off."""
    design = lf.Gaussian(covariance=np.geomspace(0.2, 5.0, 5))
    B, phi, m, sigma = np.linalg.qr(normal(5, 2))[0], normal(5, seed=1), 9, 0.3
    X = normal(4000, m, 5, seed=2) * np.sqrt(design.covariance)
    y = X @ phi + sigma * normal(4000, m, seed=3)
    off = np.linalg.pinv(X @ B) @ y[..., None]
    risks = 0.5 * ((B @ off)[..., 0] - phi) ** 2 @ design.covariance + 0.5 * sigma**2

    def predicted(B, phi):
        rho = np.linalg.norm(phi - B @ np.linalg.lstsq(B, phi)[0])
        return lf.theory.new_client_mean_risk(rho, noise_std=sigma, rank=2, n_samples=m)

    error = 4.5 * risks.std() / np.sqrt(4000)
    assert abs(risks.mean() - predicted(design.root_apply(B), design.root_apply(phi[:, None])[:, 0])) < error
    assert abs(risks.mean() - predicted(B, phi)) > 5 * error


def test_without_noise_and_without_an_outside_nothing_is_lost():
    for q in (0.01, 0.5, 0.99):
        assert lf.theory.new_client_excess_quantile(q, [0.0, 0.0], noise_std=0.0, rank=2, n_samples=2) == 0.0
    assert lf.theory.new_client_mean_risk(0.0, noise_std=0.0, rank=2, n_samples=9) == 0.0
    assert lf.theory.new_client_mean_risk([0.0], noise_std=0.2, rank=2, n_samples=10**9) == pytest.approx(0.02)


@pytest.mark.parametrize("q", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_quantiles_of_equal_clients_are_those_of_fishers_law(q):
    law = {"noise_std": 0.3, "rank": 2, "n_samples": 5}
    wanted = 0.5 * (0.16 + 0.25 * 2 / 4 * scipy.stats.f(2, 4).ppf(q))
    for count in (1, 7):
        got = lf.theory.new_client_excess_quantile(q, np.full(count, 0.4), **law)
        assert got == pytest.approx(wanted, rel=1e-9)
    nearly = lf.theory.new_client_excess_quantile(q, [0.4, 0.4 + 1e-9], **law)
    assert nearly == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_quantiles_scale_with_the_square_of_the_lengths(scale, q):
    rho, law = np.array([0.1, 1.0, 2.0]), {"rank": 2, "n_samples": 5}
    one = lf.theory.new_client_excess_quantile(q, rho, noise_std=0.3, **law)
    other = lf.theory.new_client_excess_quantile(q, scale * rho, noise_std=scale * 0.3, **law)
    assert other == pytest.approx(scale**2 * one, rel=1e-8, abs=0)


@pytest.mark.parametrize(("q", "lost"), [(0.2, False), (0.3, False), (0.7, True)])
def test_a_share_of_clients_may_lose_nothing(q, lost):
    """Half of the clients are fitted exactly, so that the law has an atom at 0."""
    law = {"noise_std": 0.0, "rank": 2, "n_samples": 5}
    got = lf.theory.new_client_excess_quantile(q, [0.0, 1.0], **law)
    wanted = lf.theory.new_client_excess_quantile(2 * q - 1, [1.0], **law) if lost else 0.0
    assert got == pytest.approx(wanted, rel=1e-8)


# --- invalid calls -------------------------------------------------------------------------------------------

A, VECTOR = np.tile(np.eye(3), (4, 1, 1)), np.ones((4, 3))


def point(A=A, b=VECTOR, **changes):
    return lf.theory.fedavg_fixed_point(A, b, **{"step_size": 0.1} | changes)


def matrix(A=A, **changes):
    return lf.theory.fedavg_iteration_matrix(A, **{"step_size": 0.1} | changes)


def mean(outside=1.0, **changes):
    return lf.theory.new_client_mean_risk(outside, **{"noise_std": 0.1, "rank": 3, "n_samples": 8} | changes)


def quantile(q=0.5, outside=1.0, **changes):
    return lf.theory.new_client_excess_quantile(q, outside, **{"noise_std": 0.1, "rank": 3, "n_samples": 8} | changes)


def outside(B=A[0, :, :2], Phi=VECTOR):
    return lf.theory.outside_length(B, Phi)


CALLS = {
    **{
        f"{call.__name__}, {name} = {value!r}": (
            lambda call=call, name=name, value=value: call(**{name: value}),
            [f"{name} = {value!r}"],
        )
        for call in (point, matrix)
        for name, values in {"step_size": (0, -1.0, NAN, "1"), "local_steps": (0, 1.5, True)}.items()
        for value in values
    },
    "stable": (lambda: point(stable=1), ["stable = 1", "True or False"]),
    "server_step_size": (lambda: matrix(server_step_size=0.0), ["server_step_size = 0.0", "positive"]),
    "A of two axes": (lambda: matrix(np.eye(3)), ["A has shape (3, 3)", "(n, d, d)"]),
    "A not square": (lambda: matrix(np.ones((4, 3, 2))), ["A has shape (4, 3, 2)", "square"]),
    "NaN in A": (lambda: point(np.full((4, 3, 3), NAN)), ["A holds 36 values"]),
    "b of one axis": (lambda: point(b=np.ones(3)), ["b has shape (3,)", "(n, d)"]),
    "b of other clients": (lambda: point(b=np.ones((5, 3))), ["b has shape (5, 3)", "(4, 3)"]),
    "b without trials": (lambda: point(np.ones((2, 4, 3, 3))), ["b has shape (4, 3)", "(2, 4, 3)"]),
    "weights of other clients": (lambda: point(weights=np.ones(3)), ["weights has shape (3,)", "(4,)"]),
    "weights of two axes": (lambda: matrix(weights=np.ones((1, 4))), ["weights", "(1, 4)", "(n,)"]),
    "negative weights": (lambda: point(weights=[1, 1, 1, -1]), ["weights must not be negative"]),
    "no weights": (lambda: matrix(weights=np.zeros(4)), ["weights", "at least one must be positive"]),
    **{
        f"{call.__name__}, {name} = {value!r}": (
            lambda call=call, name=name, value=value: call(**{name: value}),
            [f"{name} = {value!r}"],
        )
        for call in (mean, quantile)
        for name, values in {"noise_std": (-0.1, NAN, None), "rank": (0, 2.0), "n_samples": (2, 0, 8.0)}.items()
        for value in values
    },
    **{
        f"{call.__name__}, outside = {value!r}": (
            lambda call=call, value=value: call(outside=value),
            ["outside must contain finite numbers"],
        )
        for call in (mean, quantile)
        for value in (-1.0, [0.5, NAN], INF, [])
    },
    "NaN in B": (lambda: outside(np.full((3, 2), NAN)), ["B holds 6 values"]),
    "B of one axis": (lambda: outside(np.ones(3)), ["B has shape (3,)", "(d, k)"]),
    "Phi of one axis": (lambda: outside(Phi=np.ones(3)), ["Phi has shape (3,)", "(n, d)"]),
    "Phi of another dimension": (lambda: outside(Phi=np.ones((4, 5))), ["Phi has shape (4, 5)", "(4, 3)"]),
    "Phi of other trials": (lambda: outside(Phi=np.ones((2, 4, 3))), ["Phi has shape (2, 4, 3)", "(4, 3)"]),
    **{f"q = {q!r}": (lambda q=q: quantile(q), [f"q = {q!r}"]) for q in (-0.1, 1.1, NAN, "half", 0.0, 1.0)},
}


@each("name", CALLS)
def test_a_bad_call_says_what_is_wrong_in_one_line(name):
    assert_one_line(*CALLS[name])


def test_the_calls_that_the_bad_ones_change_pass():
    assert (point().shape, matrix().shape, mean().shape, outside().shape) == ((3,), (3, 3), (), (4,))
    assert 0 < quantile() < mean(n_samples=5)
    assert mean(n_samples=3) == INF


# --- the empirical risk at exact heads -----------------------------------------------------------------------


def ragged(trials=2, k=2):
    """Return samples of clients with different counts, and a representation for each trial."""
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((m, 5)) for m in (4, 7, 9)]
    y = [rng.standard_normal(len(rows)) for rows in X]
    return X, y, rng.standard_normal((trials, 5, k))


def test_exact_heads_are_those_of_least_squares():
    X, y, B = ragged()
    found = lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    for trial in range(2):
        risks = []
        for client, (rows, labels) in enumerate(zip(X, y, strict=True)):
            theta = B[trial] @ np.linalg.lstsq(rows @ B[trial], labels, rcond=None)[0]
            np.testing.assert_allclose(found.predictors[trial, client], theta, rtol=1e-10)
            risks.append(np.mean((labels - rows @ theta) ** 2) / 2)
        assert found.risk[trial] == pytest.approx(np.mean(risks))


@pytest.mark.long
def test_the_gradient_at_exact_heads_is_the_risks_and_vanishes_where_fedrep_ends():
    X, y, B = ragged()
    data, Q = lf.GivenSamples(X, y), np.linalg.qr(B)[0]
    b = data.normal_equations()[1]

    def risk(Q):
        return lf.theory.at_exact_heads(data, Q).risk

    numeric = np.zeros_like(Q)
    for i, j in np.ndindex(5, 2):
        shift = np.zeros((5, 2))
        shift[i, j] = 1e-6
        numeric[:, i, j] = (risk(Q + shift) - risk(Q - shift)) / 2e-6
    found = lf.theory.at_exact_heads(data, Q)
    W = found.predictors @ Q
    size = (np.linalg.norm(b, axis=-1) * np.linalg.norm(W, axis=-1)).sum(axis=-1)
    np.testing.assert_allclose(found.gradient, 3 * np.linalg.norm(numeric, axis=(1, 2)) / size, rtol=1e-6)
    run = {"data": data, "rounds": 3000, "record_every": 3000}
    end = lf.simulate(lf.FedRep(rank=2, step_size=0.2, init=Q[0]), **run).final
    assert lf.theory.at_exact_heads(data, end.B).gradient < 1e-6 < found.gradient[0]


@pytest.mark.parametrize("k", [2, 4])
def test_the_gradient_at_exact_heads_by_loops(k):
    """At k = 4 of as many columns as a client has samples."""
    X, y, B = ragged(k=k)
    found = lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    for trial in range(2):
        Q, G, size = np.linalg.qr(B[trial])[0], np.zeros((5, k)), 0.0
        for rows, labels in zip(X, y, strict=True):
            w = np.linalg.lstsq(rows @ Q, labels, rcond=None)[0]
            G += np.outer(ref.gradient(rows, labels, Q @ w), w)
            size += np.linalg.norm(rows.T @ labels / len(labels)) * np.linalg.norm(w)
        assert found.gradient[trial] == pytest.approx(np.linalg.norm(G) / size, rel=1e-9)


def test_heads_that_are_not_unique_are_refused():
    X, y, B = ragged(trials=1, k=5)
    with pytest.raises(ValueError, match="B has 5 columns, but a client has only 4 samples"):
        lf.theory.at_exact_heads(lf.GivenSamples(X, y), B)
    with pytest.raises(ValueError, match=r"B has shape \(1, 4, 2\)"):
        lf.theory.at_exact_heads(lf.GivenSamples(X, y), B[:, :4, :2])
