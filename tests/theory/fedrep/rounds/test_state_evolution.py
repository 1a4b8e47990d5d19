"""FedRep's state evolution: its round against a loop and explicit rounds, its course against the loop.

Every comparison with draws is made a second time with laws that are nearly right, and has to tell them apart.
"""

import tracemalloc

import numpy as np
import pytest
import scipy.stats

import linfed as lf
from linfed.theory.fedrep.rounds.state_evolution import packed, unpacked, weighted_moments
from tests.helpers import assert_one_line, basis, normal
from tests.theory.fedrep.runs import overlaps, run_of

# --- the round, one client at a time, right or wrong ---------------------------------------------------------

WRONG = ["m for m - k - 1", "no complement", "whole complement", "nothing in the plane", "everybody takes part"]


def means_by_loop(N, Q, W, *, dim, n_samples, step_size, noise_std=0.0, participants=None, law="right"):
    """Return the means of ``B*'B_bar`` and ``B_bar'(I - B*B*')B_bar``, the latter from each client's message."""
    (n, k), m, eye = W.shape, n_samples, np.eye(W.shape[1])
    p = participants or n
    P = eye - N @ N.T
    spare = m if law == "m for m - k - 1" else m - k - 1
    D = {"no complement": 0.0, "whole complement": dim - k}.get(law, dim - k - np.trace(Q))
    means, second = [], []
    for w in W:
        a, tau2 = N.T @ w, w @ P @ w + noise_std**2
        q = 0.0 if law == "nothing in the plane" else a @ Q @ a
        length = ((m - k) * (m - k + 2) * q + (m - k) * (tau2 * D - q)) / m**2  # E ||(I - B*B*')X'r||^2 / m^2
        second.append(length * (np.outer(a, a) + tau2 / spare * eye) - ((m - k) / m) ** 2 * q * np.outer(a, a))
        means.append((m - k) / m * np.outer(a, a))
    K = sum(means) / n
    kept = eye - step_size * K
    Q_mean = kept @ Q @ kept + step_size**2 * sum(second) / (n * p)
    if p < n and law != "everybody takes part":
        off = sum((A - K) @ Q @ (A - K) for A in means) / n
        Q_mean = Q_mean + step_size**2 * (n - p) / (p * (n - 1)) * off
    return N + step_size * (m - k) / m * P @ (W.T @ W / n) @ N, Q_mean


def distances_by_loop(W, *, delta, n_rounds, step_size, **setting):
    """Return the distances of the recursion from `means_by_loop`."""
    k = W.shape[1]
    N, Q = np.sqrt(1 - delta**2) * np.eye(k), delta**2 * np.eye(k)
    distances = [delta]
    for step in np.broadcast_to(step_size, n_rounds):
        N, Q = means_by_loop(N, Q, W, step_size=step, **setting)
        inverse = np.linalg.inv(np.linalg.cholesky(N.T @ N + Q))
        N, Q = N @ inverse.T, inverse @ Q @ inverse.T
        distances.append(np.sqrt(np.linalg.eigvalsh(Q)[-1]))
    return np.array(distances)


SHAPES = {"k = 1": (5, 1, 4), "k = 3": (7, 3, 6), "n = k": (3, 3, 6), "n < k": (2, 3, 9), "n = 1": (1, 2, 7)}


@pytest.mark.parametrize("noise_std", [0.0, 0.4])
@pytest.mark.parametrize(
    ("shape", "participants"), [*((shape, None) for shape in SHAPES), ("k = 1", 2), ("k = 3", 2), ("n < k", 2)]
)
def test_the_means_are_those_of_a_loop_over_clients(shape, participants, noise_std):
    n, k, d = SHAPES[shape]
    setting = {"dim": d, "n_samples": k + 4, "step_size": 0.7, "noise_std": noise_std, "participants": participants}
    W, B, B_star = normal(n, k, seed=1), basis(d, k, 2), basis(d, k, 3)
    got = lf.theory.one_round_means(*overlaps(B, B_star), W, **setting)
    for one, other in zip(got, means_by_loop(*overlaps(B, B_star), W, **setting), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("step_size", [0.4, np.linspace(0.6, 0.05, 12)], ids=["constant", "schedule"])
@pytest.mark.parametrize("delta", [0.0, 0.3, 1 - 1e-9, 1.0])
def test_the_recursion_is_that_of_the_loop(delta, step_size):
    W = normal(9, 3, seed=1)
    setting = {"dim": 30, "n_samples": 8, "step_size": step_size, "noise_std": 0.2, "participants": 4}
    predicted = lf.theory.state_evolution(W, n_rounds=12, delta=delta, **setting)
    looped = distances_by_loop(W, n_rounds=12, delta=delta, **setting)
    np.testing.assert_allclose(predicted.distance, looped, rtol=1e-8)
    assert predicted.N.shape == predicted.Q.shape == (13, 3, 3)
    unit = np.swapaxes(predicted.N, -1, -2) @ predicted.N + predicted.Q
    np.testing.assert_allclose(unit, np.tile(np.eye(3), (13, 1, 1)), rtol=0, atol=1e-13)
    np.testing.assert_allclose(predicted.distance**2, np.linalg.eigvalsh(predicted.Q)[:, -1], rtol=1e-12)


# --- one explicit round --------------------------------------------------------------------------------------

ROUND = {"dim": 9, "n_samples": 10, "step_size": 0.9}

ROUND_HEADS = normal(8, 2, seed=1) * [1.6, 0.7]

ROUND_BASES = basis(9, 2, 2), basis(9, 2, 5)


@pytest.fixture(scope="module", params=[(0.3, 3), pytest.param((0.0, 8), marks=pytest.mark.long)], ids=str)
def explicit_rounds(request):
    """Return the setting, and N and Q of simulated explicit rounds before QR."""
    noise_std, participants = request.param
    B0, B_star = ROUND_BASES
    algorithm = lf.FedRep(rank=2, step_size=ROUND["step_size"], init=B0, orthonormalize=False)
    problem = lf.GivenTruth(B=B_star, W=ROUND_HEADS, noise_std=noise_std)
    data = lf.FreshSamples(ROUND["n_samples"])
    how = {"n_rounds": 1, "trials": 7_000, "participation": participants, "engine": "explicit", "metrics": []}
    result = lf.simulate(algorithm, problem, data=data, **how)
    return ROUND | {"noise_std": noise_std, "participants": participants}, overlaps(result.final.B, B_star)


def hotelling(drawn, means):
    """Return the statistic, chi^2 with 7 degrees of freedom, of the draws' mean against the given one."""
    rows, columns = np.triu_indices(2)
    gaps = np.concatenate([(drawn[0] - means[0]).reshape(-1, 4), (drawn[1] - means[1])[:, rows, columns]], axis=1)
    mean = gaps.mean(axis=0)
    return len(gaps) * mean @ np.linalg.solve(np.cov(gaps.T), mean)


CRITICAL = scipy.stats.chi2.isf(1e-4, 7)


def test_explicit_rounds_have_these_means(explicit_rounds):
    """A right law fails at one seed in 10,000."""
    setting, drawn = explicit_rounds
    means = lf.theory.one_round_means(*overlaps(*ROUND_BASES), ROUND_HEADS, **setting)
    assert hotelling(drawn, means) < CRITICAL


@pytest.mark.parametrize("law", WRONG)
def test_explicit_rounds_reject_laws_that_are_nearly_right(explicit_rounds, law):
    setting, drawn = explicit_rounds
    means = means_by_loop(*overlaps(*ROUND_BASES), ROUND_HEADS, law=law, **setting)
    rejected = hotelling(drawn, means) > CRITICAL
    assert rejected == (law != "everybody takes part" or setting["participants"] < 8)


# --- clients that differ -------------------------------------------------------------------------------------

COUNTS, LEVELS, WEIGHTS = (7, 30, 6, 12, 9, 18), (0.1, 0.2, 0.4, 0.8, 1.0, 0.3), (1.0, 3.0, 0.5, 2.0, 0.3, 1.0)
LOUD = tuple(3 * level for level in LEVELS)
DESIGNS = {
    "everybody": {},
    "some": {"participants": 3},
    "one": {"participants": 1, "step_size": 0.1},
    "no noise, no weights": {"noise_std": 0.0, "weights": None, "step_size": 1.0},
    "loud": {"noise_std": LOUD, "step_size": 0.2},
    "few samples": {"n_samples": (7, 7, 8, 9, 40, 7), "participants": 5},
    "d = 2k": {"dim": 4, "participants": 4},
}


def scores(drawn, setting):
    """Return the z-scores of the predicted means, entry by entry."""
    B0, B = drawn
    eye, found = np.eye(setting["dim"], 2), []
    predicted = lf.theory.one_round_means(*overlaps(B0, eye), normal(6, 2, seed=21), **setting)
    for mean, values in zip(predicted, overlaps(B, eye), strict=True):
        found.append((values.mean(axis=0) - mean) / (values.std(axis=0) / np.sqrt(len(values))))
    return np.abs(found)


def explicit_round_of(design, trials=3000, seed=1):
    """Return B before and after explicit rounds (trials, d, k), and the setting."""
    setting = {"dim": 8, "n_samples": COUNTS, "noise_std": LEVELS, "weights": WEIGHTS, "step_size": 0.5} | design
    B0 = basis(setting["dim"], 2, seed=seed)
    run = run_of(normal(6, 2, seed=21), start=B0, n_rounds=1, orthonormalize=False, **setting)
    return (B0, lf.simulate(**run, trials=trials, seed=5, engine="explicit", metrics=[]).final.B), setting


@pytest.mark.long
@pytest.mark.parametrize("name", DESIGNS)
def test_the_means_of_a_round_of_clients_that_differ_are_exact(name):
    """Of eight entries each; |z| > 4.5 occurs in one of 20,000 right designs."""
    assert scores(*explicit_round_of(DESIGNS[name])).max() < 4.5


def test_wrong_means_of_a_round_of_clients_that_differ_are_seen():
    """Clients as their mean, noise or weights of other clients, and everybody in place of some."""
    drawn, setting = explicit_round_of({"participants": 4, "noise_std": LOUD, "step_size": 0.4}, trials=7_000)
    assert scores(drawn, setting).max() < 4.5
    for wrong in (
        {"n_samples": round(np.mean(COUNTS))},
        {"noise_std": float(np.sqrt(np.mean(np.square(LOUD))))},
        {"noise_std": LOUD[::-1]},
        {"weights": None},
        {"weights": np.sqrt(WEIGHTS)},
        {"participants": 6},
        {"n_samples": COUNTS[::-1]},
    ):
        assert scores(drawn, setting | wrong).max() > 6.0, wrong


def test_few_samples_have_the_predicted_mean_of_heads():
    """At m = k + 2 squares have no variance: the mean of N alone, whose variance exists."""
    assert scores(*explicit_round_of({"n_samples": (4, 4, 5, 4, 40, 4)}))[0].max() < 4.5


# --- digits and moments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("participants", [30, None])
def test_the_factor_of_a_round_is_constant_down_to_the_smallest_distances(participants):
    W = lf.SharedRepresentation(n_clients=100, dim=100, rank=4).truth(0, [0]).W[0]
    setting = {"dim": 100, "n_samples": 12, "step_size": 0.8, "participants": participants, "n_rounds": 250}
    whole = lf.theory.state_evolution(W, delta=0.8, **setting).distance
    assert whole[-1] < 1e-14
    late = (whole[1:] / whole[:-1])[whole[1:] < 1e-6]
    np.testing.assert_allclose(late[-20:], late[-1], rtol=1e-4)


def test_the_truth_stays_and_underflow_does_no_harm():
    W = normal(6, 2, seed=1)
    setting = {"dim": 20, "n_samples": 30, "step_size": 0.5, "n_rounds": 300}
    assert (lf.theory.state_evolution(W, delta=0.0, **setting).distance == 0).all()
    path = lf.theory.state_evolution(W, delta=1e-150, **setting).distance
    assert path[0] == pytest.approx(1e-150, rel=1e-12, abs=0)
    assert (np.diff(path) <= 0).all()
    assert 0 <= path[-1] < 1e-158


def test_from_orthogonality_nothing_is_learned():
    predicted = lf.theory.state_evolution(normal(6, 2), dim=20, n_samples=30, step_size=0.5, n_rounds=20, delta=1.0)
    np.testing.assert_allclose(predicted.distance, 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("values", [1, 60, 10**9])
def test_moments_by_blocks_are_those_of_a_loop(monkeypatch, values):
    monkeypatch.setattr("linfed.numerics.linalg.CACHE_VALUES", values)
    W, A = normal(37, 4, seed=1), normal(4, 4, seed=2)
    A = A + A.T
    for weights in (np.array([2.0, 0.5]), normal(2, 37, seed=3)):
        second, fourth = weighted_moments(W, weights, weights)
        for place, one in enumerate(np.broadcast_to(weights.reshape(2, -1), (2, 37))):
            by_pairs = sum(c * np.outer(w, w) for c, w in zip(one, W, strict=True)) / 37
            np.testing.assert_allclose(second[place], by_pairs, rtol=1e-12, atol=1e-14)
            by_fours = sum(c * (w @ A @ w) * np.outer(w, w) for c, w in zip(one, W, strict=True)) / 37
            np.testing.assert_allclose(unpacked(fourth[place] @ packed(A), 4), by_fours, rtol=1e-11, atol=1e-12)


def test_many_clients_need_no_more_memory_than_their_heads():
    W = normal(200_000, 5)
    tracemalloc.start()
    lf.theory.state_evolution(W, dim=200, n_samples=12, step_size=0.8, n_rounds=2, delta=0.9)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * W.nbytes  # one copy, the mask of its check, and blocks; all clients' products would be 3 more


def test_moments_that_do_not_fit_in_memory_are_refused_at_once():
    with pytest.raises(lf.SizeError, match="the fourth moments of the heads for rank = 1000"):
        weighted_moments(np.zeros((1, 1000)), np.ones(1), np.ones(1))


# --- invalid calls -------------------------------------------------------------------------------------------


def means(**changes):
    setting = {"N": 0.8 * np.eye(2), "Q": 0.36 * np.eye(2), "W": normal(4, 2), "dim": 10, "n_samples": 6}
    return lf.theory.one_round_means(**setting | {"step_size": 0.5} | changes)


def test_means_are_those_of_everybody_with_equal_weights_and_no_noise_unless_told():
    told = {
        "noise_std": [0.0] * 4,
        "participants": 4,
        "weights": [3.0] * 4,
        "message_noise_std": 0.0,
        "n_samples": [6] * 4,
    }
    for one, other in zip(means(), means(**told), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    noisy = means(message_noise_std=0.3)[1] - means()[1]
    np.testing.assert_allclose(noisy, 0.5**2 * 8 * 0.3**2 * np.eye(2), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"dim": 3}, ["dim = 3"]),
        ({"n_samples": 3}, ["n_samples = 3"]),
        ({"N": np.eye(3)}, ["N has shape (3, 3)", "(2, 2)"]),
        ({"Q": [[0.36, 0.0]]}, ["Q has shape (1, 2)", "(2, 2)"]),
        ({"N": np.eye(2)}, ["N'N + Q = I"]),
        ({"N": 1.1 * np.eye(2), "Q": -0.21 * np.eye(2)}, ["positive semidefinite"]),
        ({"W": normal(2, 4, 2)}, ["W has shape (2, 4, 2)", "(n, k)"]),
    ],
)
def test_invalid_arguments_of_the_means_are_one_line(changes, fragments):
    assert_one_line(lambda: means(**changes), fragments)
