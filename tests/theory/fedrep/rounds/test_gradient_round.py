"""A round of FedRep with gradient heads: means against clients' samples, and the state against single messages.

Every comparison with draws is made a second time with formulas that are nearly right, and has to tell them apart.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import linalg

import linfed as lf
from linfed.theory.fedrep.rounds import gradient_round
from linfed.theory.fedrep.rounds.gradient_round import HeadsRound
from linfed.theory.fedrep.rounds.state_evolution import packed, unpacked
from tests.helpers import basis, normal

# --- one round, against samples ------------------------------------------------------------------------------

ROUNDS = {
    "m > k": {"k": 2, "m": 5, "steps": 2, "alpha": 0.3, "noise_std": 0.4},
    "m < k": {"k": 3, "m": 2, "steps": 1, "alpha": 0.2, "noise_std": 0.0},
    "many steps": {"k": 1, "m": 6, "steps": 9, "alpha": 0.3, "noise_std": 0.0},
}

DRAWS = 30_000


@pytest.fixture(scope="module", params=ROUNDS)
def by_samples(request):
    """Return sizes, a client's true head and old head, B, B* and draws of ``X'r w+'/m``, by explicit samples."""
    size = ROUNDS[request.param]
    k, m, d = size["k"], size["m"], 9
    B, B_star = basis(d, k, 2), basis(d, k, 3)
    rng = np.random.default_rng(1)
    true, head = rng.standard_normal(k), rng.standard_normal(k)
    X = rng.standard_normal((DRAWS, m, d))
    y = X @ (B_star @ true) + size["noise_std"] * rng.standard_normal((DRAWS, m))
    w, Z = np.tile(head, (DRAWS, 1)), X @ B
    for _ in range(size["steps"]):
        w -= size["alpha"] / m * np.einsum("rmk,rm->rk", Z, np.einsum("rmk,rk->rm", Z, w) - y)
    sent = np.einsum("rmd,rm->rd", X, np.einsum("rmk,rk->rm", Z, w) - y) / m
    return size, true, head, B, B_star, sent[:, :, None] * w[:, None, :], w


def deviation(by_samples, wrong=""):
    """Return by how many standard errors the means of messages and of B's new parts differ, at most."""
    size, true, head, B, B_star, drawn, w = by_samples
    k, m, d = size["k"], size["m"], len(B)
    N = B_star.T @ B
    rng = np.random.default_rng(2)
    setting = HeadsRound(
        W=np.tile(true, (DRAWS, 1)),
        dim=d,
        n_samples=m,
        participants=DRAWS,
        variance=(0.5 if wrong == "noise" else 1.0) * size["noise_std"] ** 2,
        head_steps=size["steps"] + (wrong == "steps"),
    )
    P, Q = np.eye(k) - N @ N.T, np.eye(k) - N.T @ N
    best = np.tile((N.T @ true)[:, None], DRAWS)
    squares = np.full(DRAWS, true @ P @ true + setting.variance)
    lag = (head[:, None] - best) * (0.0 if wrong == "heads at their best" else 1.0)
    got = setting._messages(best, lag, squares, size["alpha"], rng)
    if wrong:
        change = {"along": got.along * 1.2, "length": got.length * 1.3, "inside": got.inside * 0.7}
        got = dataclasses.replace(got, **({wrong: change[wrong]} if wrong in change else {}))
    if wrong == "lengths and heads apart":
        got = dataclasses.replace(got, length=rng.permutation(got.length))
    outer = got.heads[:, None] * got.heads[None]
    off = got.inside - best * got.along
    dims = d - k - np.trace(Q) - best[:, 0] @ Q @ best[:, 0] / squares[0]
    law = {
        "N": (N @ got.inside + np.outer(P @ true, got.along))[:, None] * got.heads[None],
        "Q": np.einsum("ib,ij,jb->b", off, Q, off) * outer + got.length * dims / m * outer,
        "heads": got.heads[:, None],
    }
    away = drawn - B_star @ (B_star.T @ drawn)
    measured = {"N": B_star.T @ drawn, "Q": np.swapaxes(away, 1, 2) @ away, "heads": w[:, :, None]}
    found = 0.0
    for name, x in measured.items():
        y = np.moveaxis(law[name], -1, 0)
        error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / DRAWS) + 1e-12
        found = max(found, np.max(np.abs(x.mean(axis=0) - y.mean(axis=0)) / error))
    return found


def test_messages_have_the_means_of_samples(by_samples):
    """About B, outside B* and of the new heads; with some 20 entries each, right ones fail at one seed in 7,000."""
    assert deviation(by_samples) < 4.5


WRONG = ["along", "length", "inside", "noise", "steps", "lengths and heads apart", "heads at their best"]


@pytest.mark.parametrize("by_samples", ["m > k"], indirect=True)
@pytest.mark.parametrize("wrong", WRONG)
def test_samples_tell_other_messages_apart(by_samples, wrong):
    assert deviation(by_samples, wrong) > 4.5


# --- one round, message by message -----------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_covariance_of_a_mean_of_participants_is_that_of_all_choices(p):
    clients, values = np.tile(np.arange(3), 2), normal(2, 6, seed=3)
    law = HeadsRound(W=np.zeros((3, 1)), dim=9, n_samples=5, participants=p, variance=0.0, head_steps=1)
    choices = [list(some) for some in itertools.combinations(range(6), p) if len({*clients[list(some)]}) == p]
    apart = np.array([values[:, some].mean(axis=1) for some in choices]) - values.mean(axis=1)
    np.testing.assert_allclose(law._covariance(values, clients), apart.T @ apart / len(apart), rtol=1e-12)


def symmetric_product(M, L):
    """Return the matrix of ``X -> (M X L' + L X M')/2`` on packed symmetric matrices."""
    k = len(M)
    images = [M @ unpacked(unit, k) @ L.T for unit in np.eye(k * (k + 1) // 2)]
    return np.array([packed((image + image.T) / 2) for image in images]).T


def packed_pair(x, y):
    return packed((np.outer(x, y) + np.outer(y, x)) / 2)


def round_by_messages(law, state, eta, sent, clients):
    """Return N, Q, the covariance of D and the kick after a round with these messages, one message at a time."""
    k, p, m, d = law.W.shape[1], law.participants, law.n_samples, law.dim
    N, Q, eye, W = state.N, state.Q, np.eye(k), law.W[clients]
    P = np.eye(k) - N @ N.T
    each = list(zip(W, sent.heads.T, sent.inside.T, sent.along, sent.length, sent.noise, strict=True))

    def mean(values):
        return sum(values) / len(each)

    inside = mean(np.outer(z, h) for _, h, z, *_ in each)
    outside = mean(b * np.outer(w, h) for w, h, _, b, *_ in each)
    K = eye - eta * (inside - N.T @ outside)
    moved = N - eta * (N @ inside + P @ outside)
    turns = [-eta * np.linalg.inv(moved) @ (N @ z + b * P @ w) for w, _, z, b, *_ in each]
    tilts = [-eta * (z - b * N.T @ w) - K @ turn for (w, _, z, b, *_), turn in zip(each, turns, strict=True)]
    both = [[np.outer(x, h), np.outer(e, h)] for x, e, (_, h, *_) in zip(tilts, turns, each, strict=True)]
    spread = law._covariance(np.reshape(both, (len(each), -1)).T, clients).reshape(2, k, k, 2, k, k)
    spread /= 1.0 + sum(spread[1, i, j, 1, i, j] for i in range(k) for j in range(k)) ** 2
    kept = K - np.einsum("ijjl->il", spread[0, :, :, 1])
    squares = [w @ P @ w + law.variance for w in W]
    dims = [d - k - np.trace(Q) - (N.T @ w) @ Q @ (N.T @ w) / square for w, square in zip(W, squares, strict=True)]
    lengths = [eta**2 / (p * m) * length for length in sent.length]
    Q_moved = kept.T @ Q @ kept + np.einsum("ijal,ia->jl", spread[0, :, :, 0], Q)
    Q_moved += mean(a * b * np.outer(h, h) for a, b, (_, h, *_) in zip(lengths, dims, each, strict=True))
    R = np.linalg.cholesky(moved.T @ moved + Q_moved).T
    inverse = np.linalg.inv(R)
    N_after, Q_after = moved @ inverse, inverse.T @ Q_moved @ inverse

    old_root, H = np.linalg.cholesky(Q), linalg.polar(N)[0]
    back = np.linalg.inv(np.linalg.cholesky(Q_after)) @ inverse.T
    left = back @ K.T @ Q
    plane = left @ (N.T + K @ np.linalg.inv(moved) @ P)
    across, old = plane @ H @ np.linalg.inv(old_root).T, back @ K.T @ old_root
    added, absent, step = [], [], []
    for (w, h, *_, noise), tilt, square, free, length in zip(each, tilts, squares, dims, lengths, strict=True):
        s = back @ h
        added.append(length * free * packed_pair(s, s) + 2.0 * packed_pair(left @ tilt, s))
        absent.append(length**0.5 * packed_pair(plane @ w / square**0.5, s))
        towards = packed_pair(old_root.T @ H.T @ w, old_root.T @ H.T @ w) / square
        step.append(eta**2 * free * noise / (p * m) * np.outer(packed_pair(s, s), towards))
    added = law._covariance(np.array(added).T, clients)
    new = mean(length * np.outer(back @ h, back @ h) for length, (_, h, *_) in zip(lengths, each, strict=True))
    rows = 2.0 * np.mean(dims) * symmetric_product(new, new) + 4.0 * symmetric_product(across @ across.T, new)
    rows -= 4.0 * mean(np.outer(one, one) for one in absent)
    step = symmetric_product(old, old) + mean(step)
    values, vectors = np.linalg.eigh(added + rows)
    chance = step @ state.chance @ step.T + (vectors * np.log1p(np.maximum(values, 0.0))) @ vectors.T
    return N_after, Q_after, chance, np.linalg.eigvalsh(added)[-1]


@pytest.mark.parametrize(("participants", "m"), [(7, 6), (3, 5), (1, 2)])
def test_a_round_is_that_of_single_messages(monkeypatch, participants, m):
    monkeypatch.setattr(gradient_round, "MESSAGES", 30)
    kept, messages, covariance = {}, HeadsRound._messages, HeadsRound._covariance

    def recorded(self, best, lag, squares, alpha, rng):
        sent = messages(self, best, lag, squares, alpha, rng)
        kept.update(best=best, lag=lag, squares=squares, sent=sent)
        return sent

    def of_clients(self, values, clients):
        kept["clients"] = clients
        return covariance(self, values, clients)

    monkeypatch.setattr(HeadsRound, "_messages", recorded)
    monkeypatch.setattr(HeadsRound, "_covariance", of_clients)
    W, B0, B_star, rng = normal(7, 2, seed=1), basis(11, 2, 2), basis(11, 2, 3), np.random.default_rng(4)
    law = HeadsRound(W=W, dim=11, n_samples=m, participants=participants, variance=0.3, head_steps=2)
    N = B_star.T @ B0
    state = law.start(N, np.eye(2) - N.T @ N)
    assert state.kick == 0.0
    for eta in (0.2, 0.1):
        new = law.after(state, eta, 0.15, rng)
        clients, sent = kept["clients"], kept["sent"]
        P = np.eye(2) - state.N @ state.N.T
        np.testing.assert_allclose(kept["best"], state.N.T @ W[clients].T, rtol=1e-12)
        np.testing.assert_allclose(kept["squares"], np.vecdot(W @ P, W)[clients] + 0.3, rtol=1e-9)
        N, Q, chance, kick = round_by_messages(law, state, eta, sent, clients)
        np.testing.assert_allclose(new.N, N, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(new.Q, Q, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(new.chance, chance, rtol=1e-7, atol=1e-10 * np.abs(chance).max())
        assert new.kick == pytest.approx(kick, rel=1e-7)
        copies = state.lag.shape[1] // 7
        lag = new.lag - np.tile((state.N - N).T @ W.T, copies)
        gone = np.abs(lag - state.lag).max(axis=0) > 1e-9
        assert (gone.reshape(copies, 7).sum(axis=1) == participants).all()
        assert sorted(np.flatnonzero(gone) % 7) == sorted(clients)
        for found, wanted in ((lag[:, gone], sent.lag), (state.lag[:, gone], kept["lag"])):
            np.testing.assert_allclose(np.sort(found[0]), np.sort(wanted[0]), atol=1e-9)
            np.testing.assert_allclose(np.sort(found[1]), np.sort(wanted[1]), atol=1e-9)
        state = new


@pytest.mark.parametrize("m", [2, 3, 6])
def test_the_noise_of_a_message_is_what_lies_outside_its_features(m):
    """Nothing at m = k; heads of many steps leave nothing else."""
    law = HeadsRound(W=np.zeros((1, 2)), dim=9, n_samples=m, participants=1, variance=0.0, head_steps=300)
    squares = np.full(3000, 1.7)
    sent = law._messages(np.zeros((2, 3000)), normal(2, 3000), squares, 0.2, np.random.default_rng(0))
    assert sent.noise.mean() == pytest.approx(1.7 * (m - 2) / m, rel=0.1)
    assert np.median(np.abs(sent.length - sent.noise)) < 1e-5
    assert (sent.length >= (1 - 1e-12) * sent.noise).all()
    assert np.median(np.abs(sent.along + sent.noise / squares)) < 5e-3


def test_medians_of_one_angle_are_those_of_a_lognormal():
    """Of tiny angles, at a variance of 0.3 of the logarithm of their squares."""
    Q = np.full((2, 1, 1), 1e-12)
    median, spread = gradient_round.medians(np.ones((2, 1, 1)), Q, np.array([[[0.3]], [[0.0]]]))
    np.testing.assert_allclose(median, [1e-6 * np.exp(-0.3 / 4), 1e-6], rtol=1e-3)
    np.testing.assert_allclose(spread, [0.3**0.5 / 2, 0.0], rtol=1e-6)


def test_medians_of_two_angles_are_those_of_draws(monkeypatch):
    monkeypatch.setattr(gradient_round, "DRAWS", 20_000)
    A, N = normal(3, 3, seed=1), np.diag([0.8, 0.6])
    chance, Q, C = 0.05 * A @ A.T, np.eye(2) - N @ N, np.diag([0.6, 0.8])
    found = gradient_round.medians(N[None], Q[None], chance[None])
    x = normal(10_000, 3, seed=2) @ np.linalg.cholesky(chance).T / [1.0, np.sqrt(2.0), 1.0]
    D = x[:, [0, 1, 1, 2]].reshape(-1, 2, 2)
    level = np.trace(D, axis1=1, axis2=2)[:, None, None] / 2
    shapes = np.eye(2) + (D - level * np.eye(2)) / 2
    shapes = shapes @ shapes
    shapes *= np.exp(level - level.var() / 2) * 2 / np.trace(shapes.mean(axis=0))
    sampled = C @ shapes @ C
    sines = np.sqrt(np.linalg.eigvals(np.linalg.solve(sampled + N @ N, sampled)).real.max(axis=1))
    assert found[0][0] == pytest.approx(np.median(sines), rel=0.01)
    assert found[1][0] == pytest.approx(np.log(sines).std(), rel=0.03)


def test_the_population_has_enough_participants(monkeypatch):
    def copies(n, p):
        return HeadsRound(
            W=normal(n, 2, seed=1), dim=9, n_samples=5, participants=p, variance=0.0, head_steps=1
        ).start(np.eye(2), np.zeros((2, 2))).lag.shape[1] / n  # fmt: skip

    assert copies(10, 10) == 800
    assert copies(100, 10) == 800
    assert copies(9000, 9000) == 1
    monkeypatch.setattr(gradient_round, "CLIENTS", 5000)
    assert copies(100, 10) == 50


def test_a_rank_whose_maps_do_not_fit_in_memory_is_refused_at_once():
    rank = 500
    law = HeadsRound(W=np.zeros((rank, rank)), dim=1000, n_samples=600, participants=rank, variance=0.0, head_steps=1)
    with pytest.raises(lf.SizeError, match="the maps of a round for rank = 500"):
        law.start(np.eye(rank), np.zeros((rank, rank)))
