"""Neural collapse: least values of the penalty, and where cross-entropy over free features ends."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp, softmax

import linfed as lf
from linfed.numerics.collapse import nc2
from tests.helpers import assert_one_line, normal
from tests.numerics.test_collapse import gradient, owned


def gram(H):
    return H @ H.swapaxes(-1, -2)


def cosines(H):
    rows = H / np.linalg.norm(H, axis=-1, keepdims=True)
    return gram(rows)


def least(c, holds, k, penalty=nc2, starts=3):
    """Return the least penalty over random starts and its heads; its square is smooth where it is 0."""

    def squared(x):
        H = x.reshape(c, k)
        value = float(penalty(H, holds))
        return value**2, 2 * value * gradient(H, holds).ravel()

    options = {"ftol": 0.0, "gtol": 1e-13, "maxiter": 1000}
    first = [normal(c * k, seed=seed) for seed in range(starts)]
    runs = [minimize(squared, start, jac=True, method="L-BFGS-B", options=options) for start in first]
    best = min(runs, key=lambda run: run.fun)
    return np.sqrt(best.fun), best.x.reshape(c, k)


@pytest.mark.parametrize(
    ("c", "own", "k"),
    [(5, 5, 5), (5, 5, 4), (5, 5, 2), (5, 3, 7), (5, 3, 3), (5, 3, 2), (5, 1, 3), (3, 2, 2), (2, 1, 1), (2, 2, 1)],
)
def test_the_least_penalty(c, own, k):
    holds = owned(c, own)
    value, H = least(c, holds, k)
    told = lf.theory.least_global_nc2(c, own, k)
    assert value == pytest.approx(told, abs=1e-9)
    assert nc2(normal(500, c, k, seed=5), holds).min() > told - 1e-15
    if own < c and k >= own:
        target = [np.sqrt((own - 1 + (1 - own / c) ** 2) / (c - 1))]
        assert told == pytest.approx(1 - target[0], abs=1e-15)
    if k >= min(own, c - 1):
        G = gram(H / np.linalg.norm(H[holds], axis=-1).max())
        np.testing.assert_allclose(G[~holds], 0.0, atol=1e-6)
        np.testing.assert_allclose(G[np.ix_(holds, holds)], np.where(np.eye(own), 1.0, -1 / (c - 1)), atol=1e-6)


def test_local_collapse_is_zero_and_global_collapse_is_not():
    holds = owned(5, 3)
    H = np.zeros((5, 4))
    H[holds] = 0.2 * lf.theory.simplex_etf(3, 4)
    assert nc2(H, holds, local=True) == pytest.approx(0.0, abs=1e-15)
    assert lf.theory.least_global_nc2(5, 3, 2) > lf.theory.least_global_nc2(5, 3, 4) + 0.05
    assert nc2(H, holds) == pytest.approx(lf.theory.least_global_nc2(5, 3, 2), abs=1e-15)  # the best of rank two


def test_figure_2_the_two_structures_of_its_clients():
    """Three classes, three clients with two of them: heads are opposite locally, and globally at 120 degrees."""
    pairs = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)
    for holds in pairs:
        _, H = least(3, holds, 3)
        assert cosines(H[holds])[0, 1] == pytest.approx(-0.5, abs=1e-7)
        assert (H[~holds] ** 2).sum() < 1e-7 * (H**2).sum()  # the square counts, and in its second power
        assert nc2(H, holds, local=True) == pytest.approx(np.sqrt(2 - 3 / np.sqrt(2.5)), abs=1e-7)

        angles = np.linspace(0.0, np.pi, 721)
        fans = np.zeros((len(angles), 3, 2))
        fans[:, holds] = np.stack([np.tile([1.0, 0.0], (721, 1)), np.c_[np.cos(angles), np.sin(angles)]], axis=1)
        assert np.cos(angles[nc2(fans, holds, local=True).argmin()]) == pytest.approx(-1.0)
        assert np.cos(angles[nc2(fans, holds).argmin()]) == pytest.approx(-0.5)
        assert nc2(fans, holds, local=True).min() == pytest.approx(0.0, abs=1e-15)
        assert nc2(fans, holds).min() == pytest.approx(lf.theory.least_global_nc2(3, 2, 2), abs=1e-15)


@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (2, 3), (3, 2), (5, 4), (5, 9), (10, 9)])
def test_a_simplex(classes, dim):
    H = lf.theory.simplex_etf(classes, dim)
    assert H.shape == (classes, dim)
    np.testing.assert_allclose(gram(H), np.where(np.eye(classes), 1.0, -1 / (classes - 1)), atol=4e-16 * classes)
    np.testing.assert_allclose(H.sum(axis=0), 0.0, atol=1e-15 * classes)


WRONG = {
    "dim": (lambda: lf.theory.simplex_etf(4, 2), ["dim = 2", "classes - 1 = 3"]),
    "classes of a simplex": (lambda: lf.theory.simplex_etf(1, 2), ["classes = 1", "at least 2"]),
    "classes": (
        lambda: lf.theory.collapsed_minimum(1, feature_penalty=1.0, head_penalty=1.0),
        ["classes = 1", "at least 2"],
    ),
    "feature_penalty": (
        lambda: lf.theory.collapsed_minimum(3, feature_penalty=0.0, head_penalty=1.0),
        ["feature_penalty = 0.0"],
    ),
    "head_penalty": (
        lambda: lf.theory.collapsed_minimum(3, feature_penalty=1.0, head_penalty=-1.0),
        ["head_penalty = -1.0"],
    ),
    "held": (lambda: lf.theory.least_global_nc2(3, 4, 2), ["held = 4", "from 1 to 3"]),
    "dim of heads": (lambda: lf.theory.least_global_nc2(3, 2, 0), ["dim = 0"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name):
    assert_one_line(*WRONG[name])


def one_client(x, labels, c, k, penalties):
    """Return the objective (54) over features, heads and biases of one client, and its gradient."""
    m = len(labels)
    Z, H, b = np.split(x, [m * k, m * k + c * k])
    Z, H = Z.reshape(m, k), H.reshape(c, k)
    logits = Z @ H.T + b
    slope = (softmax(logits, axis=1) - np.eye(c)[labels]) / m
    entropy = np.mean(logsumexp(logits, axis=1) - logits[np.arange(m), labels])
    loss = entropy + penalties[0] * (Z**2).sum() / m + penalties[1] * (H**2).sum()
    return loss, np.r_[
        (slope @ H + 2 * penalties[0] * Z / m).ravel(),
        (slope.T @ Z + 2 * penalties[1] * H).ravel(),
        slope.sum(axis=0),
    ]


def descend(labels, c, k, penalties, seed=0, iterations=2000, biases=True):
    """Return the loss, features, heads and biases after a descent from random ones; biases may be fixed at 0."""
    m = len(labels)
    free = m * k + c * k + (c if biases else 0)

    def objective(x):
        loss, gradient = one_client(np.r_[x, np.zeros(0 if biases else c)], labels, c, k, penalties)
        return loss, gradient[:free]

    options = {"maxiter": iterations, "maxfun": 4 * iterations, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}
    run = minimize(objective, normal(free, seed=seed), jac=True, method="L-BFGS-B", options=options)
    Z, H, b = np.split(run.x, [m * k, m * k + c * k])
    return run.fun, Z.reshape(m, k), H.reshape(c, k), b


@pytest.mark.parametrize(("c", "k", "penalties"), [(4, 5, (0.01, 0.02)), (4, 3, (0.002, 0.05)), (2, 1, (0.01, 0.02))])
def test_free_features_end_in_the_closed_form(c, k, penalties):
    labels = np.repeat(np.arange(c), 3)
    told = lf.theory.collapsed_minimum(c, feature_penalty=penalties[0], head_penalty=penalties[1])
    loss, Z, H, b = descend(labels, c, k, penalties)
    assert loss == pytest.approx(told.loss, abs=1e-10)
    assert nc2(H, np.ones(c, dtype=bool), local=True) < 1e-4
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), told.head_length, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), told.feature_length, rtol=1e-4)
    logits = Z @ H.T + b
    others = np.arange(c) != labels[:, None]
    np.testing.assert_allclose((logits[np.arange(len(Z)), labels, None] - logits)[others], told.logit_gap, rtol=1e-4)


@pytest.mark.parametrize(("c", "first", "second"), [(2, 0.01, 0.3), (10, 1e-4, 1e-7), (3, 0.08, 1.0)])
def test_the_closed_form_is_the_least_on_its_line(c, first, second):
    """Beside a search along simplices of any length: M = a (I - 11'/c)."""
    told = lf.theory.collapsed_minimum(c, feature_penalty=first, head_penalty=second)
    t = 2 * np.sqrt(first * second / c)
    line = minimize_scalar(
        lambda a: np.log1p((c - 1) * np.exp(-a)) + t * (c - 1) * a,
        bounds=(0.0, 50.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert told.loss == pytest.approx(line.fun, rel=1e-9)
    assert told.logit_gap == pytest.approx(line.x, rel=1e-5, abs=1e-8)
    assert c * second * told.head_length**2 == pytest.approx(first * told.feature_length**2, rel=1e-13)


def test_beyond_the_edge_nothing_is_learned():
    c, first = 4, 0.25
    edge = 1 / (4 * c * first)
    below = lf.theory.collapsed_minimum(c, feature_penalty=first, head_penalty=0.98 * edge)
    above = lf.theory.collapsed_minimum(c, feature_penalty=first, head_penalty=1.02 * edge)
    assert 0 < below.logit_gap < 0.05
    assert below.loss < math.log(c)
    assert above == lf.theory.CollapsedMinimum(loss=math.log(c), logit_gap=0.0, feature_length=0.0, head_length=0.0)
    _, _, H, _ = descend(np.repeat(np.arange(c), 2), c, 5, (first, 1.02 * edge))
    assert np.abs(H).max() < 1e-5
    loss, _, H, _ = descend(np.repeat(np.arange(c), 2), c, 5, (first, 0.98 * edge))
    assert loss == pytest.approx(below.loss, abs=1e-10)
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), below.head_length, rtol=1e-3)


@pytest.mark.long
def test_local_collapse_is_approached_where_classes_are_missing():
    """Three of five classes: their loss is an infimum, and the other heads and biases go on falling."""
    held = np.array([0, 2, 3])
    holds = np.isin(np.arange(5), held)
    told = lf.theory.collapsed_minimum(3, feature_penalty=0.01, head_penalty=0.02)
    runs = [descend(np.repeat(held, 3), 5, 5, (0.01, 0.02), iterations=iterations) for iterations in (15, 1000)]
    early, late = [nc2(H, holds, local=True) for _, _, H, _ in runs]
    loss, _, H, b = runs[1]
    assert told.loss < loss < told.loss + 1e-8
    assert late < 1e-4 < early
    assert np.linalg.norm(H[~holds]) < 1e-5
    assert b[~holds].max() < b[holds].min() - 15


@pytest.mark.parametrize(("penalties", "used"), [((0.01, 0.02), True), ((0.1, 0.1), False)])
def test_without_biases_other_heads_are_used(penalties, used):
    """Unless penalties are strong: heads add up to zero over all classes, not over the client's."""
    held = np.array([0, 2, 3])
    holds = np.isin(np.arange(5), held)
    told = lf.theory.collapsed_minimum(3, feature_penalty=penalties[0], head_penalty=penalties[1])
    loss, _, H, _ = descend(held, 5, 5, penalties, seed=7, biases=False)
    assert loss > told.loss + 0.05
    np.testing.assert_allclose(H.sum(axis=0), 0.0, atol=1e-6)
    assert (np.linalg.norm(H[~holds], axis=1) > 0.1).all() == used
    assert (nc2(H, holds, local=True) < 1e-4) == (not used)


@pytest.mark.parametrize(("penalty", "cosine"), [(1e-5, -0.7237), (0.01, -0.7912), (0.05, -0.8546)])
def test_two_heads_are_opposite_only_with_biases(penalty, cosine):
    """Two of three classes: all three heads add up to zero, and the third vanishes only with a bias."""
    for biases, told in ((False, cosine), (True, -1.0)):
        H = descend(np.array([0, 1]), 3, 3, (penalty, penalty), seed=3, iterations=4000, biases=biases)[2]
        np.testing.assert_allclose(H.sum(axis=0), 0.0, atol=1e-5)
        assert cosines(H[:2])[0, 1] == pytest.approx(told, abs=1e-3)
        assert np.linalg.norm(H[2]) < 1e-4 if biases else np.linalg.norm(H[2]) > 0.4 * np.linalg.norm(H[0])


def shared(x, pairs, k, penalties):
    """Return the clients' sum of (54), whose classes have one feature each, shared by all clients."""
    n, c = pairs.shape
    Z, rest = x[: c * k].reshape(c, k), x[c * k :].reshape(n, c * k + c)
    loss, gradient, heads = 0.0, np.zeros((c, k)), []
    for own, row in zip(pairs, rest, strict=True):
        held = np.flatnonzero(own)
        value, slopes = one_client(np.r_[Z[held].ravel(), row], held, c, k, penalties)
        loss += value
        gradient[held] += slopes[: len(held) * k].reshape(-1, k)
        heads.append(slopes[len(held) * k :])
    return loss, np.r_[gradient.ravel(), *heads]


@pytest.mark.long
def test_shared_features_do_not_bring_the_global_structure():
    """Observation B.3 on Figure 2's clients: their heads are opposite, and so not along their classes' features."""
    pairs = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)
    k, penalties = 3, (0.01, 0.02)
    start = normal(3 * k + 3 * (3 * k + 3), seed=6)
    options = {"maxiter": 2000, "maxfun": 8000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}
    run = minimize(shared, start, args=(pairs, k, penalties), jac=True, method="L-BFGS-B", options=options)
    Z, rest = run.x[: 3 * k].reshape(3, k), run.x[3 * k :].reshape(3, 3 * k + 3)
    np.testing.assert_allclose(cosines(Z)[~np.eye(3, dtype=bool)], -0.5, atol=1e-4)
    for own, row in zip(pairs, rest, strict=True):
        H = row[: 3 * k].reshape(3, k)
        np.testing.assert_allclose(H.sum(axis=0), 0.0, atol=1e-6)
        assert cosines(H[own])[0, 1] == pytest.approx(-1.0, abs=1e-6)
        along = (H[own] * Z[own]).sum(axis=1) / np.linalg.norm(H[own], axis=1) / np.linalg.norm(Z[own], axis=1)
        np.testing.assert_allclose(along, np.sqrt(0.75), atol=1e-4)
        assert nc2(H, own, local=True) < 1e-4
        assert nc2(H, own) == pytest.approx(lf.theory.least_global_nc2(3, 2, 1), abs=1e-6)  # heads of rank one
