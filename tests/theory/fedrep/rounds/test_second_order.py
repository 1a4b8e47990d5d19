"""FedRep's median and band to second order: the evolution against single points, course and floor against runs."""

import numpy as np
import pytest
import scipy.stats

import linfed as lf
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.rounds import second_order
from linfed.theory.fedrep.rounds.round_moments import HeadTensors, OwnWeights, RoundLaw, sine_and_cosine
from tests.helpers import assert_one_line, basis, cleared, mostly_long, normal
from tests.theory.fedrep.rounds.test_round_moments import next_tangents
from tests.theory.fedrep.runs import distances, heads_of, run_of

# --- one point at a time -----------------------------------------------------------------------------------------

SETTING = {"dim": 12, "n_samples": 9, "step_size": 0.5, "n_rounds": 6, "noise_std": 0.1}


def along_axes(W, pull=1.0):
    """Return heads whose second moment, with these factors of the clients, is diagonal."""
    return W @ np.linalg.eigh((np.broadcast_to(pull, len(W)) * W.T) @ W / len(W))[1]


def plain_evolution(W, *, delta, n_rounds, **given):
    """Return quantiles, spread and kick, (5, rounds + 1), with each point of each round computed by itself."""
    k, d = W.shape[1], given["dim"]
    clients = Clients.checked(*W.shape, **{what: value for what, value in given.items() if what != "step_size"})
    heads = OwnWeights(W[None]) if clients.differ else HeadTensors.of(W[None])
    chart, lower = second_order.CholeskyChart.of(k), np.tril_indices(k)
    tangent = delta / np.sqrt(1 - delta**2)
    points, centre, response = [tangent * np.eye(k)] * chart.draws, tangent**2 * np.eye(k), np.zeros(chart.linear)
    told = []

    def mean_root(T):
        S, G = (one[0] for one in sine_and_cosine(T[None]))
        return cholesky(next_tangents(*lf.theory.one_round_means(G, S @ S, W, **given)))

    def statistics(kick=0.0):
        top = [np.linalg.eigh(L @ L.T) for L in points]
        squared = np.array([values[-1] for values, _ in top])
        distance = np.sqrt(squared / (1 + squared))
        told.append([*np.quantile(distance, [0.1, 0.5, 0.9]), np.log(distance).std(), kick])
        return squared, [vectors[:, -1] for _, vectors in top]

    squared, directions = statistics()
    for _, (values, mask) in zip(range(n_rounds), chart.rounds(), strict=False):
        roots, base = [mean_root(L @ L.T) for L in points], mean_root(centre)
        own = [root.T @ direction for root, direction in zip(roots, directions, strict=True)]
        ranks = np.argsort(np.argsort(squared, kind="stable"))
        drawn = values.T.copy()
        for j, v in enumerate(own):
            along = response.T @ np.array([v[a] * v[b] * (1 if a == b else 2) for a, b in zip(*lower, strict=True)])
            along /= max(np.linalg.norm(along), np.finfo(float).tiny)
            drawn[j] += (chart.scores[chart.reverse[ranks[j]] ^ mask] - along @ drawn[j]) * along
        law = RoundLaw.at(centre[None], heads, clients, given["step_size"])
        S, G, gram, root = law.S[0], law.G[0], law.gram[0], law.root[0]
        halves, sums, roots_of_wishart = [], [], []
        for z in drawn:
            one = root @ z[: len(root)]
            half, factor = np.eye(k), np.zeros((k, k))
            for number, (a, b) in enumerate(zip(*lower, strict=True)):
                half[a, b] = half[b, a] = 0.5 * one[k * k + number] + (a == b)
                factor[b, a] = z[len(root) + number] * (b < d - 2 * k)
            for row in range(min(k, d - 2 * k)):
                width = 2 / (9 * (d - 2 * k - row))
                cubed = max(1 - width + np.sqrt(width) * factor[row, row], 0.0)
                factor[row, row] = np.sqrt(d - 2 * k - row) * cubed**1.5
            sums.append(law.mean[0] + one[: k * k].reshape(k, k))
            halves.append(half)
            roots_of_wishart.append(factor)
        right = (gram @ np.linalg.inv(cholesky(np.mean([half.T @ half for half in halves], axis=0)))).T
        outer = np.mean([R.T @ R for R in roots_of_wishart], axis=0) / (d - 2 * k) if d > 2 * k else np.eye(k)
        scale = np.linalg.inv(cholesky(outer)).T
        relative = []
        for Y, half, R in zip(sums, halves, roots_of_wishart, strict=True):
            X = np.concatenate([S - G @ Y, R @ scale @ half @ right]) @ np.linalg.inv(G + S @ Y) @ np.linalg.inv(base).T
            relative.append(X.T @ X)
        points = [root @ cholesky(one) for root, one in zip(roots, relative, strict=True)]
        chosen = np.array([one[lower] for one in relative])
        response = (chosen - chosen.mean(axis=0)).T @ drawn
        before = np.array([v @ v for v in own])
        inside = np.array([np.linalg.inv(base) @ L for L in points])
        middle = np.tril(inside.mean(axis=0), -1) + np.diag(
            np.exp(np.log(np.diagonal(inside, axis1=1, axis2=2)).mean(axis=0))
        )
        centre = base @ middle @ middle.T @ base.T
        squared, directions = statistics()
        told[-1][-1] = np.log(squared / before).var()
    return np.array(told).T


def cholesky(A):
    k = len(A)
    return np.linalg.cholesky(A + 1e-15 * np.trace(A) / k * np.eye(k))


@pytest.fixture
def few_points(monkeypatch):
    """Let the evolution have 64 points (128 for k = 3), of which one by one is a matter of a second."""
    monkeypatch.setattr(second_order, "DRAWS", 64)
    with cleared(second_order.CholeskyChart.of):
        yield


POINTS = {  # rank, clients, dimensions beyond 2k, participants, initial distance, more options
    "two": (2, 20, 9, 8, 0.8, {"n_samples": np.arange(8, 28), "weights": np.linspace(1.0, 3.0, 20), "noise_std": 0.2}),
    "no direction outside": (2, 9, 0, 4, 0.6, {"n_samples": 8, "noise_std": 0.2}),
    "one direction outside": (2, 9, 1, None, 0.6, {"n_samples": 8}),
    "one": (1, 9, 0, 4, 0.6, {"n_samples": 7}),
    "one of many": (1, 20, 9, 5, 0.8, {"n_samples": 9, "noise_std": 0.2}),
    "three": (3, 20, 9, 20, 0.8, {"n_samples": 11, "noise_std": 0.2}),
}


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("name", mostly_long(POINTS, *list(POINTS)[:4]))
def test_the_evolution_is_that_of_single_points(name):
    k, n, outside, participants, delta, options = POINTS[name]
    W = normal(n, k, seed=3)
    given = {"dim": 2 * k + outside, "step_size": 0.5, "noise_std": 0.0, "participants": participants} | options
    found = lf.theory.second_order_evolution(W, delta=delta, n_rounds=3, **given)
    pull = (1 - k / np.asarray(given["n_samples"])) * given.get("weights", np.ones(1))
    expected = plain_evolution(along_axes(W, pull), delta=delta, n_rounds=3, **given)
    got = np.array([found.low, found.distance, found.high, found.log_std, [0.0, *found.round_log_variance]])
    np.testing.assert_allclose(got[:, 1:], expected[:, 1:], rtol=1e-10 if outside > 1 else 1e-8)
    np.testing.assert_allclose(got[:3, 0], delta, rtol=1e-14)


def test_points_are_antithetic_and_their_scores_even():
    chart = second_order.CholeskyChart.of(2)
    assert chart.draws == 512
    assert chart.linear == (3, 10)
    assert second_order.CholeskyChart.of(8).draws == 1024
    bits = [sum(((number >> bit) & 1) << (8 - bit) for bit in range(9)) for number in range(512)]
    assert chart.reverse.tolist() == bits
    scores = scipy.stats.norm.ppf((np.arange(512) + 0.5) / 512)
    np.testing.assert_allclose(chart.scores, scores / scores.std(), rtol=1e-9)
    (values, mask), (others, _) = (next(rounds) for rounds in [chart.rounds()] for _ in range(2))
    np.testing.assert_allclose(values @ values.T / 512, np.eye(10), atol=1e-12)
    np.testing.assert_allclose(values.sum(axis=1), 0.0, atol=1e-10)
    assert 0 <= mask < 512
    assert np.abs(values - others).max() > 1.0


# --- runs --------------------------------------------------------------------------------------------------------

ROUNDS = [3, 10, 20, 30]

RUNS = {
    "anisotropic, some": ({"dim": 100, "n_samples": 9, "step_size": 0.4, "participants": 80}, (200, 3, 2.0), 0.8),
    "small": ({"dim": 20, "n_samples": 9, "step_size": 0.7}, (100, 3, 1.0), 0.6),
}
"""Settings, heads (clients, rank and condition number), and the sine of all angles at the start."""

MEASURED = {
    "anisotropic, some": [
        [0.6770, 0.3753, 0.1228, 0.0378],
        [0.7018, 0.4099, 0.1401, 0.0443],
        [0.7248, 0.4455, 0.1588, 0.0517],
    ],
    "small": [
        [1.5358e-01, 2.3507e-03, 5.6308e-06, 1.3451e-08],
        [1.7174e-01, 2.9147e-03, 7.6148e-06, 1.9477e-08],
        [1.9081e-01, 3.5898e-03, 1.0224e-05, 2.8114e-08],
    ],
}
"""10 %, 50 % and 90 % quantiles of 4,000 runs in these rounds: this file, run as a module, prints them."""


def measured(name):
    """Return the quantiles of runs of the chain."""
    setting, heads, delta = RUNS[name]
    runs = distances(run_of(heads_of(*heads), start=delta, n_rounds=30, **setting), 4000, seed=11, engine="chain")
    return np.quantile(runs[:, ROUNDS], [0.1, 0.5, 0.9], axis=0)


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_runs_follow_the_median_and_the_band(name):
    """Medians of 4,000 runs have 0.3 to 1 % themselves."""
    setting, heads, delta = RUNS[name]
    W, measured = heads_of(*heads), np.array(MEASURED[name])
    found = lf.theory.second_order_evolution(W, n_rounds=30, delta=delta, **setting)
    predicted = np.array([found.low, found.distance, found.high])[:, ROUNDS]
    off = np.abs(np.log(predicted / measured)).max(axis=1)
    assert off[1] < 0.05
    assert off[0] < 0.07
    assert off[2] < 0.12
    normal_width = np.log(measured[2] / measured[0]) / 2.563
    np.testing.assert_allclose(found.log_std[ROUNDS], normal_width, rtol=0.15)
    first = lf.theory.state_evolution(W, n_rounds=30, delta=delta, **setting).distance[ROUNDS]
    assert name == "anisotropic, some" or np.abs(np.log(first / measured[1])).max() > 0.1
    p = setting.get("participants", len(W))
    for change in (
        {"participants": p * 3 // 4},
        {"dim": setting["dim"] // 2},
        {"n_samples": setting["n_samples"] + 2},
    ):
        wrong = lf.theory.second_order_evolution(W, n_rounds=30, delta=delta, **setting | change)
        assert np.abs(np.log(wrong.distance[ROUNDS] / measured[1])).max() > 0.05, change


# --- the stationary state ----------------------------------------------------------------------------------------

FLOORS = {
    "small step": ({"dim": 20, "n_samples": 8}, (20, 2, 3.0), 0.1),
    "few of many": ({"dim": 20, "n_samples": 8, "participants": 4}, (60, 2, 2.0), 0.95),
    "near the edge": ({"dim": 20, "n_samples": 8}, (20, 2, 3.0), 0.98),
    "own samples": ({"dim": 60, "n_samples": np.arange(7, 37), "participants": 15}, (30, 3, 2.0), 0.9),
    "own weights": ({"dim": 20, "n_samples": 8, "weights": np.geomspace(1.0, 30.0, 12)}, (12, 2, 2.0), 0.9),
}
"""Settings, heads (clients, rank and condition number), and the share of the stability edge; noise of 0.03."""

MEASURED_FLOORS = {
    "small step": [0.002459, 0.002924, 0.003448],
    "near the edge": [0.0238, 0.0381, 0.0667],
    "few of many": [0.0349, 0.0511, 0.0856],
    "own weights": [0.0238, 0.0338, 0.0545],
    "own samples": [0.0227, 0.0296, 0.0405],
}
"""10 %, 50 % and 90 % quantiles of 600 runs from B*, in rounds 200 to 400.

This file, run as a module, prints them.
"""


def at_share(name):
    """Return heads, and arguments of a prediction of the floor."""
    setting, heads, share = FLOORS[name]
    W = heads_of(*heads)
    return W, {**setting, "step_size": share * lf.theory.stability_edge(W, **setting), "noise_std": 0.03}


def measured_floor(name):
    """Return the quantiles of runs of the chain."""
    W, given = at_share(name)
    runs = distances(run_of(W, start=lf.TrueSubspace(), n_rounds=400, **given), 600, seed=11, engine="chain")
    return np.quantile(runs[:, 200:], [0.1, 0.5, 0.9])


@pytest.mark.long
@pytest.mark.parametrize("name", FLOORS)
def test_the_floor_is_the_median_of_runs_up_to_the_edge(name):
    """Where the mean square is above it."""
    W, given = at_share(name)
    found, measured = lf.theory.second_order_floor(W, **given), MEASURED_FLOORS[name]
    assert found.distance == pytest.approx(measured[1], rel=0.04)
    assert found.low == pytest.approx(measured[0], rel=0.04)
    assert found.high == pytest.approx(measured[2], rel=0.04)
    spread = np.log(measured[2] / measured[0]) / 2.563
    assert found.log_std == pytest.approx(spread, rel=0.15)
    mean_square = lf.theory.median_distance(lf.theory.near_truth_floor(W, **given), dim=given["dim"])
    share = FLOORS[name][2]
    assert (mean_square > 1.05 * measured[1]) == (share > 0.1)
    assert share < 0.98 or mean_square > 1.15 * measured[1]


@pytest.mark.long
def test_the_floor_is_the_end_of_the_evolution():
    """For clients that differ; from the other side."""
    W, own = normal(2, 20, 2, seed=3), {"n_samples": np.arange(8, 28), "weights": np.linspace(1.0, 3.0, 20)}
    sizes = {"dim": 20, "noise_std": 0.03} | own
    edge = lf.theory.stability_edge(W, dim=20, **own).min()
    found = lf.theory.second_order_floor(W, step_size=0.9 * edge, **sizes)
    late = lf.theory.second_order_evolution(W[0], step_size=0.9 * edge, n_rounds=100, delta=0.0, **sizes)
    assert found.distance.shape == (2,)
    for name in ("distance", "low", "high"):
        wanted = np.exp(np.log(getattr(late, name)[60:]).mean())
        np.testing.assert_allclose(getattr(found, name)[0], wanted, rtol=0.01)
    np.testing.assert_allclose(found.log_std[0], late.log_std[60:].mean(), rtol=0.03)
    np.testing.assert_allclose(found.round_log_variance[0], late.round_log_variance[60:].mean(), rtol=0.03)
    alone = lf.theory.second_order_floor(W[1], step_size=0.9 * edge, **sizes)
    assert alone.distance == found.distance[1]


# --- digits ------------------------------------------------------------------------------------------------------


def test_convergence_goes_on_to_the_end_of_floating_point():
    """The same factor in each round, through 1e-77 and 1e-154 where squares of squares and squares end."""
    found = lf.theory.second_order_evolution(
        np.ones((400, 1)), dim=20, n_samples=200, step_size=1.0, n_rounds=200, delta=0.5
    )
    logs = np.log10(found.distance[:160])
    assert logs[-1] < -250
    assert np.abs(np.diff(logs)[3:] - np.diff(logs)[3:20].mean()).max() < 0.05
    assert (np.diff(found.high) <= 0).all()
    assert found.distance[-1] == 0.0


def test_a_rounds_own_kick_is_that_of_its_step():
    """Small steps add little; after one round from a start that is known it is all the spread there is."""
    W = normal(60, 2, seed=1)
    setting = SETTING | {"dim": 30, "delta": 1e-3, "noise_std": 0.0, "step_size": [1e-4, 0.5, 1e-4], "n_rounds": 3}
    kick = lf.theory.second_order_evolution(W, **setting).round_log_variance
    assert kick.shape == (3,)
    assert np.all(kick[[0, 2]] < 1e-3 * kick[1])
    one = lf.theory.second_order_evolution(W, **setting | {"step_size": 0.5, "n_rounds": 1})
    assert one.round_log_variance[0] == pytest.approx((2.0 * one.log_std[1]) ** 2, rel=1e-4)


def test_the_truth_stays_without_noise_and_is_left_with_it():
    """Also next to a trial with another start."""
    W, B_star, quiet = normal(9, 2, seed=1), np.eye(12, 2), SETTING | {"noise_std": 0.0}
    starts = np.stack([B_star, basis(12, 2, 11)])
    both = lf.theory.second_order_evolution(W, B0=starts, B_star=B_star, **quiet)
    alone = lf.theory.second_order_evolution(W, B0=starts[1], B_star=B_star, **quiet)
    for name in ("distance", "low", "high", "log_std", "round_log_variance"):
        assert (getattr(both, name)[0] == 0.0).all()
        np.testing.assert_array_equal(getattr(both, name)[1], getattr(alone, name))
    for start in ({"delta": 0.0}, {"B0": basis(12, 2), "B_star": basis(12, 2)}):
        noisy = lf.theory.second_order_evolution(W, **start, **SETTING).distance
        assert noisy[0] < 1e-15
        assert (noisy[1:] > 0.01).all()


@pytest.mark.long
@pytest.mark.usefixtures("few_points")
def test_runs_spread_over_too_many_decades_are_one_line():
    """The step size is far below its edge: the message must not blame it."""
    W = np.random.default_rng(0).standard_normal((12, 2))
    sizes = {"dim": 4, "n_samples": 8, "participants": 12, "delta": 0.5}
    step = 0.3 * lf.theory.stability_edge(W, dim=4, n_samples=8, participants=12)
    assert (lf.theory.second_order_evolution(W, step_size=step, n_rounds=200, **sizes).distance <= 1).all()
    with pytest.raises(ValueError, match=r"^n_rounds must be below \d+: .* spread over more than 30 decades"):
        lf.theory.second_order_evolution(W, step_size=step, n_rounds=20_000, **sizes)


TINY = {"dim": 8, "n_samples": 8, "step_size": 0.5}


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("noise_std", [1e-80, 1e-99, 1e-120, 1e-155, (1e-100,) * 6 + (1e-90,) * 6])
def test_noise_below_the_range_of_floating_point_is_one_line(noise_std):
    """The step size is far below its edge: the message must not blame it."""
    words = [f"noise_std = {np.max(noise_std):.3g} is too small", "1e-75", "0 or larger"]
    assert_one_line(lambda: lf.theory.second_order_floor(normal(12, 2), noise_std=noise_std, **TINY), words)
    if noise_std == 1e-99:
        some = {"delta": 1e-60, "n_rounds": 500, "noise_std": noise_std}
        assert_one_line(lambda: lf.theory.second_order_evolution(normal(12, 2), **some, **TINY), words)


@pytest.mark.usefixtures("few_points")
def test_noise_within_the_range_of_floating_point_has_its_floor():
    one, ten, none = (lf.theory.second_order_floor(normal(12, 2), noise_std=s, **TINY) for s in (1e-72, 1e-71, 0.0))
    assert ten.distance == pytest.approx(10 * one.distance, rel=1e-9)
    assert none.distance == 0
    from_truth = lf.theory.second_order_evolution(normal(12, 2), delta=0.0, n_rounds=3, noise_std=0.1, **TINY)
    assert (from_truth.distance[1:] > 0.001).all()


if __name__ == "__main__":
    for name in FLOORS:
        print(f'    "{name}": {[float(f"{value:.4g}") for value in measured_floor(name)]},')
    for name in RUNS:
        print(f'    "{name}": np.array({np.array2string(measured(name), separator=", ", precision=4)}),')


def test_noise_on_messages_acts_as_its_variance():
    """At B*, one round of noise alone gives the Gaussian tangents; tiny noise is refused, or changes nothing."""
    W, sizes = np.eye(3).repeat(20, axis=0), {"dim": 30, "n_samples": 12, "step_size": 0.5}
    found = lf.theory.second_order_evolution(W, n_rounds=1, delta=0.0, message_noise_std=0.01, **sizes)
    expected = lf.theory.median_distance(27 * (0.5 * 0.01) ** 2 * np.eye(3), dim=30)
    assert found.distance[1] == pytest.approx(expected, rel=0.02)
    plain = lf.theory.second_order_evolution(W, n_rounds=5, delta=0.3, noise_std=0.1, **sizes)
    little = lf.theory.second_order_evolution(W, n_rounds=5, delta=0.3, noise_std=0.1, message_noise_std=1e-9, **sizes)
    np.testing.assert_allclose(little.distance, plain.distance, rtol=1e-9)
    with pytest.raises(ValueError, match="message_noise_std = 1e-90 is too small"):
        lf.theory.second_order_floor(W, noise_std=0.0, message_noise_std=1e-90, **sizes)
