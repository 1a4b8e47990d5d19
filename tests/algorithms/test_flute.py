"""FLUTE: a round is a gradient step of its objective, and the fixed points of that."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import basis, normal
from tests.worlds import draw_world

OPTIONS = {
    "defaults": {},
    "a server's own step": {"server_step_size": 0.05},
    "no server": {"server_step_size": 0.0},
    "growth alone": {"gamma1": 0.03, "gamma2": 0.0},
    "other weights": {"gamma1": 0.1, "gamma2": 0.3, "server_step_size": 0.01},
    "factor 2, other weights": {"gradient_factor": 2, "gamma1": 0.3, "gamma2": 0.2, "server_step_size": 0.03},
}


def objective(B, W, X, y, ratio, gamma1, gamma2, factor):
    """Return the function (4) of which a round is a gradient step; `ratio` weighs the server's part."""
    loss = sum(factor * np.sum((X_i @ B @ w - y_i) ** 2) / (2 * len(y_i)) for X_i, y_i, w in zip(X, y, W, strict=True))
    grams = np.sum((B.T @ B) ** 2) + np.sum((W.T @ W) ** 2)
    return loss - ratio * (gamma1 * np.sum((B @ W.T) ** 2) - gamma2 * grams)


@pytest.mark.parametrize("counts", [[4] * 5, [1, 8, 3, 12, 5]], ids=["m < d", "unequal"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_round_is_a_gradient_step_of_the_objective(option, counts):
    world = draw_world(counts, 6, 2, noise=0.3)
    X, y, B, W = world.X, world.y, 0.6 * world.B, 0.6 * normal(5, 2)
    options = {"step_size": 0.01, "server_step_size": 0.01, "gamma1": 0.25, "gamma2": 0.125, "gradient_factor": 1}
    options |= OPTIONS[option]
    final = lf.simulate(lf.FLUTE(rank=2, init=(B, W), **options), data=lf.GivenSamples(X, y), n_rounds=1).final
    moved = [(final.B[0] - B) / -options["step_size"], (final.W[0] - W) / -options["step_size"]]
    ratio = options["server_step_size"] / options["step_size"]

    def value(*factors):
        return objective(*factors, X, y, ratio, options["gamma1"], options["gamma2"], options["gradient_factor"])

    for which, gradient in enumerate(moved):
        for index in np.ndindex(gradient.shape):
            values = []
            for sign in (1, -1):
                factors = [B.copy(), W.copy()]
                factors[which][index] += sign * 1e-5
                values.append(value(*factors))
            assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("server", "factor", "wanted"), [(None, 1, 1.0), (None, 2, 0.5), (0.03, 1, 0.3), (0.4, 2, 2.0), (0.0, 1, 0.0)]
)
def test_the_ratio_of_the_steps_counts_the_factor(server, factor, wanted):
    algorithm = lf.FLUTE(rank=1, step_size=0.1, server_step_size=server, gradient_factor=factor)
    assert algorithm.step_ratio == pytest.approx(wanted, rel=1e-15)


# --- fixed points at population ------------------------------------------------------------------------------

LAMBDA = np.array([2.0, 1.3, 0.6, 0.3])
U, V = basis(4, 4, seed=1), basis(6, 4, seed=2)
# X_i = sqrt(d) I, which makes A_i the unit matrix, exactly.
POPULATION = lf.GivenSamples(np.broadcast_to(2.0 * np.eye(4), (6, 4, 4)), 2.0 * (V * LAMBDA) @ U.T)


@pytest.mark.long
@pytest.mark.parametrize(
    ("gamma2", "share", "factor"), [(0.125, 1.0, 1), (0.0, 1.0, 1), (0.25, 0.5, 1), (0.125, 1.0, 2)]
)
def test_the_population_diverges_from_the_threshold_on(gamma2, share, factor):
    """``(eta_r/eta_l)(2 gamma1 - 4 gamma2) >= 1`` leaves nothing that holds the factors back."""

    def run(excess):
        gamma1 = ((1 + excess) * factor / share + 4 * gamma2) / 2  # all numbers are dyadic
        algorithm = lf.FLUTE(
            rank=2,
            step_size=0.03125 / factor,
            server_step_size=0.03125 * share / factor,
            gamma1=gamma1,
            gamma2=gamma2,
            gradient_factor=factor,
            init=lf.SmallRandom(0.1),
        )
        assert 2 * gamma1 - 4 * gamma2 == (1 + excess) / algorithm.step_ratio
        return lf.simulate(algorithm, data=POPULATION, n_rounds=2000, seed=1)

    # Without gamma2 the factors grow at the threshold until rounding holds them.
    for excess in (0.0, 0.25) if gamma2 > 0 else (0.25,):
        result = run(excess)
        assert result.status == [lf.Status.DIVERGED]
        assert 1 < result.status_round[0] < 2000
        assert np.isfinite(result.final.B).all()
    if gamma2 > 0:
        assert run(-0.5).status == [lf.Status.COMPLETED]


def test_a_balanced_truth_is_a_fixed_point():
    """At the default weights and without noise, of any samples; an unbalanced one is none."""
    root = np.sqrt(LAMBDA[:2])
    B, W = U[:, :2] * root, V[:, :2] * root
    for counts in ([9] * 6, [2] * 6, [1, 2, 3, 4, 5, 20]):
        X = [normal(m, 4, seed=m) for m in counts]
        y = [X_i @ B @ w for X_i, w in zip(X, W, strict=True)]
        data = lf.GivenSamples(X, y)
        still = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W)), data=data, n_rounds=5).final
        np.testing.assert_allclose(still.B[0], B, atol=1e-14)
        np.testing.assert_allclose(still.W[0], W, atol=1e-14)
        moved = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(2 * B, W / 2)), data=data, n_rounds=1).final
        assert np.abs(moved.B[0] - 2 * B).max() > 1e-2
