"""The law of a round of FedRep to second order, against explicit rounds, drawn samples and sums over clients.

Every comparison with draws is made a second time with laws that are nearly right, and has to tell them apart.
"""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics import linalg
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.rounds.round_moments import (
    Fluctuations,
    HeadTensors,
    OwnWeights,
    Round,
    RoundLaw,
    sine_and_cosine,
)
from tests.helpers import normal
from tests.theory.fedrep.runs import overlaps, run_of


def next_tangents(N, Q):
    return np.linalg.solve(N.mT, np.linalg.solve(N.mT, Q).mT)


# --- the moments of what clients send ---------------------------------------------------------------------------

MOMENTS = {
    "everybody": (8, 2, {"n_samples": 10, "noise_std": 0.3, "participants": None}),
    "some": (9, 3, {"n_samples": 11, "noise_std": 0.2, "participants": 4}),
    "k = 1, no noise": (6, 1, {"n_samples": 8, "noise_std": 0.0, "participants": 2}),
    "all differ": (
        6,
        2,
        {
            "n_samples": np.array([9, 12, 30, 10, 15, 11]),
            "noise_std": np.array([0.0, 0.4, 0.1, 0.3, 0.0, 0.6]),
            "participants": 3,
            "weights": np.array([1.0, 2.0, 0.5, 3.0, 1.5, 0.7]),
        },
    ),
    "other m": (9, 3, {"n_samples": np.arange(9, 18), "noise_std": 0.2, "participants": None}),
}


def squares(k, seed=4):
    A = normal(k, k, seed=seed)
    return 0.5 * A @ A.T + 0.05 * np.eye(k)


def moments_of(T, W, *, dim, step_size, kind=None, **given):
    clients = Clients.checked(*W.shape, dim, **given)
    kind = kind or (OwnWeights if clients.differ else HeadTensors.of)
    return Fluctuations.of(*sine_and_cosine(T[None]), kind(W[None]), clients, step_size)


def sums_of_samples(S, G, W, *, runs, step_size, n_samples, participants, noise_std, weights=1.0):
    """Return the sums of messages along B* and of their squares outside (runs, k, k), from samples and fits."""
    (n, k), d, rng = W.shape, 2 * W.shape[1] + 1, np.random.default_rng(5)
    B = np.concatenate([G, S, np.zeros((1, k))])  # B* has the first axes
    m, noise_std, weights = (np.broadcast_to(one, n) for one in (n_samples, noise_std, weights))
    p = participants or n
    Y, Phi = np.zeros((2, runs, k, k))
    taken = np.argsort(rng.random((runs, n)), axis=1).argsort(axis=1) < p
    for i in range(n):
        x = rng.standard_normal((runs, m[i], d))
        y = x[..., :k] @ W[i] + noise_std[i] * rng.standard_normal((runs, m[i]))
        Z = x @ B
        heads = np.linalg.solve(Z.mT @ Z, (Z.mT @ y[..., None]))[..., 0]
        r = y - np.einsum("rmk,rk->rm", Z, heads)
        f = step_size * weights[i] / weights.mean() / (p * m[i]) * taken[:, i]
        message = np.einsum("rmd,rm->rd", x, r)[:, :k]  # along B*: S u
        Y += f[:, None, None] * np.linalg.solve(S, message.T).T[..., None] * heads[:, None]
        Phi += (f**2 * (r**2).sum(axis=1))[:, None, None] * heads[..., None] * heads[:, None]
    return Y.reshape(runs, -1), Phi.reshape(runs, -1)


@pytest.mark.long
@pytest.mark.parametrize("name", MOMENTS)
def test_the_moments_are_those_of_drawn_samples(name):
    """Means and covariances of Y and Phi, each entry within 5 standard errors; and not those of other settings."""
    n, k, given = MOMENTS[name]
    W, T, runs = normal(n, k, seed=2), squares(k), 40_000
    given = given | {"step_size": 0.7}
    sums = sums_of_samples(*(one[0] for one in sine_and_cosine(T[None])), W, runs=runs, **given)

    def off(**changes):
        law = moments_of(T, W, dim=20, **given | changes)
        Y, Phi = sums[0] - law.mean[0].ravel(), sums[1] - law.gram[0].ravel()
        pairs = {
            "mean": (Y, None),
            "gram": (Phi, None),
            "inside": (Y, Y),
            "gram_covariance": (Phi, Phi),
            "cross": (Y, Phi),
        }
        found = {}
        for what, (one, other) in pairs.items():
            values = one if other is None else (one[:, :, None] * other[:, None, :]).reshape(runs, -1)
            expected = 0.0 if other is None else getattr(law, what)[0].ravel()
            found[what] = np.abs((values.mean(axis=0) - expected) / values.std(axis=0)).max() * np.sqrt(runs)
        return found

    def missed(**changes):
        """Return the smallest deviation from other settings; neither noise nor participants change the mean of Y."""
        found = off(**changes)
        return min(value for what, value in found.items() if what != "mean" or "n_samples" in changes)

    assert max(off().values()) < 5
    for changes in ({"noise_std": 0.8}, {"n_samples": given["n_samples"] + 4}):
        assert missed(**changes) > 5, changes
    if given["participants"]:
        assert missed(participants=given["participants"] + 1) > 5
    for what in ("n_samples", "noise_std", "weights"):
        if np.ndim(given.get(what, 1.0)) and name == "all differ":
            assert max(off(**{what: given[what][::-1]}).values()) > 5, what


def plain_fluctuations(S, G, W, *, step_size, n_samples, noise_std, participants, weights=1.0):
    """Return the moments of `Fluctuations`, client by client, with every tensor written out."""
    (n, k), unit = W.shape, np.eye(W.shape[1])
    p = participants or n
    share = (n - p) / (p * (n - 1))
    drawn, means = {}, {}
    own = [np.broadcast_to(one, n) for one in (n_samples, noise_std, weights / np.mean(weights))]
    for w, m, sigma, weight in zip(W, *own, strict=True):
        left, nu, f = m - k, m - k - 1, step_size * weight / (p * m)
        s, a = S @ w, G @ w
        tau2 = s @ s + sigma**2
        two = np.outer(a, a) + tau2 / nu * unit  # moments of what a client fits
        three = np.einsum("b,c,d->bcd", a, a, a)
        pairs = [("b", "cd"), ("c", "bd"), ("d", "bc")]
        three += tau2 / nu * sum(np.einsum(f"{x},{yz}->bcd", a, unit) for x, yz in pairs)
        four = np.einsum("a,b,c,d->abcd", a, a, a, a)
        for x, y in [("ab", "cd"), ("ac", "bd"), ("ad", "bc")]:
            four += (
                tau2
                / nu
                * (
                    np.einsum(f"{x},{y}->abcd", np.outer(a, a), unit)
                    + np.einsum(f"{x},{y}->abcd", unit, np.outer(a, a))
                )
            )
            four += tau2**2 / (nu * (nu - 2)) * np.einsum(f"{x},{y}->abcd", unit, unit)
        Y, Phi = f * left * np.outer(s, a), f**2 * left * tau2 * two
        moments = {
            "inside": f**2 * left * np.einsum("ac,bd->abcd", (left + 1) * np.outer(s, s) + tau2 * unit, two),
            "cross": f**3 * left * (left + 2) * tau2 * np.einsum("a,bcd->abcd", s, three),
            "gram_covariance": f**4 * left * (left + 2) * tau2**2 * four,
        }
        of = {"inside": (Y, Y), "cross": (Y, Phi), "gram_covariance": (Phi, Phi)}
        for name, (one, other) in of.items():
            product = np.einsum("ab,cd->abcd", one, other)
            drawn.setdefault(name, []).append(moments[name] - product)
            means.setdefault(name, []).append(product)
        means.setdefault("Y", []).append(Y)
        means.setdefault("Phi", []).append(Phi)
    Y, Phi = (np.mean(means[name], axis=0) for name in ("Y", "Phi"))
    whole = {"inside": (Y, Y), "cross": (Y, Phi), "gram_covariance": (Phi, Phi)}
    found = {"mean": p * Y, "gram": p * Phi}
    for name, (one, other) in whole.items():
        chosen = np.mean(means[name], axis=0) - np.einsum("ab,cd->abcd", one, other)
        found[name] = (p * np.mean(drawn[name], axis=0) + p**2 * share * chosen).reshape(k * k, k * k)
    return found


@pytest.mark.parametrize("name", MOMENTS)
def test_the_moments_are_the_sums_over_clients(name):
    n, k, given = MOMENTS[name]
    W, T = normal(n, k, seed=2), squares(k)
    S, G = (one[0] for one in sine_and_cosine(T[None]))
    wanted = plain_fluctuations(S, G, W, step_size=0.7, **given)
    kinds = (OwnWeights,) if np.ndim(given["n_samples"]) else (OwnWeights, HeadTensors.of)
    for kind in kinds:
        got = moments_of(T, W, dim=20, step_size=0.7, kind=kind, **given)
        for what, expected in wanted.items():
            np.testing.assert_allclose(getattr(got, what)[0], expected, rtol=1e-11, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("k", [1, 2, 4])
def test_weighted_moments_of_the_heads(k):
    W, P = normal(2, 30, k, seed=3), np.stack([squares(k), squares(k, 8)])
    q = np.einsum("tni,tij,tnj->tn", W, P, W)
    products = np.einsum("tni,tnj->tnij", W, W).reshape(2, 30, k * k)
    tensors = HeadTensors.of(W)
    for power, got in enumerate(tensors.weighted(P)):
        expected = np.einsum("tn,tna,tnb->tab", q**power, products, products) / 30
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(tensors[1:].weighted(P[1:])[:, 0], tensors.weighted(P)[:, 1])


@pytest.mark.parametrize("name", MOMENTS)
def test_the_mean_map_is_that_of_one_round_means(name):
    n, k, given = MOMENTS[name]
    W, T = normal(2, n, k, seed=5), np.stack([squares(k), squares(k, 8)])
    a_round, turn = Round.of(W, Clients.checked(n, k, 30, **given))
    S, G = sine_and_cosine(T)
    found = a_round.mean_map(T[..., None], 0.8)[..., 0]
    for trial in range(2):
        heads = W[trial] @ turn[trial]
        N, Q = lf.theory.one_round_means(G[trial], S[trial] @ S[trial], heads, dim=30, step_size=0.8, **given)
        np.testing.assert_allclose(found[trial], next_tangents(N, Q), rtol=1e-11)
        np.testing.assert_array_equal(
            a_round[trial : trial + 1].mean_map(T[[trial], ..., None], 0.8)[0, ..., 0], found[trial]
        )


def test_sums_in_blocks_of_clients_are_those_at_once(monkeypatch):
    n, k, given = MOMENTS["all differ"]
    W, T = normal(2, n, k, seed=2), np.stack([squares(k), squares(k, 8)])
    clients = Clients.checked(n, k, 20, **given)
    whole = OwnWeights(W).sums(T, clients, 0.7)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 6)  # two clients of three packed entries
    for one, other in zip(OwnWeights(W).sums(T, clients, 0.7), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("d", [4, 5, 40])
def test_drawn_rounds_have_the_moments_of_explicit_rounds(d):
    """The mean of the next T; 2k = d and d - 2k < k have fewer outer rows than columns."""
    W, T, runs = normal(60, 2, seed=2), squares(2), 10_000
    S, G = (one[0] for one in sine_and_cosine(T[None]))
    start = np.concatenate([G, S, np.zeros((d - 4, 2))])
    sizes = {"dim": d, "n_samples": 12, "noise_std": 0.3, "participants": 40}
    run = run_of(W, step_size=0.7, start=start, n_rounds=1, orthonormalize=False, **sizes)
    after = lf.simulate(**run, trials=runs, engine="explicit", metrics=[]).final.B
    explicit = next_tangents(*overlaps(after, np.eye(d, 2))).reshape(runs, 4)
    values = np.random.default_rng(4).standard_normal((1, runs, RoundLaw.values(2)))
    law = RoundLaw.at(T[None], HeadTensors.of(W[None]), Clients.checked(*W.shape, **sizes), 0.7)
    X = law.next_factors(values.mT, np.eye(2)[None])[0]
    drawn = np.einsum("abn,acn->nbc", X, X).reshape(runs, 4)
    variances = explicit.var(axis=0) + drawn.var(axis=0)
    assert np.abs((explicit - drawn).mean(axis=0) / np.sqrt(variances / runs)).max() < 5
    for one, other in zip(explicit.T, drawn.T, strict=True):
        assert 0.9 < other.std() / one.std() < 1.1


def test_the_law_of_a_round_has_the_covariance_of_its_sums():
    """Of Y, and of Phi in the coordinates in which its mean is I."""
    k, W, T = 3, normal(9, 3, seed=2), squares(3)
    clients = Clients.checked(9, 3, 20, 11, 0.2, 4)
    law = RoundLaw.at(T[None], HeadTensors.of(W[None]), clients, 0.7)
    sums = moments_of(T, W, dim=20, n_samples=11, step_size=0.7, noise_std=0.2, participants=4)
    S, G = law.S[0], law.G[0]
    np.testing.assert_allclose(next_tangents(G, S @ S), T, rtol=1e-10)
    np.testing.assert_allclose(S @ S + G @ G, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(law.mean[0], 0.7 * (1 - 3 / 11) * S @ (W.T @ W / 9) @ G, rtol=1e-12)
    np.testing.assert_allclose(law.gram[0], np.linalg.cholesky(sums.gram[0]), rtol=1e-10, atol=1e-14)
    assert law.outside == 14
    inverse, (rows, columns) = np.linalg.inv(law.gram[0]), np.tril_indices(k)
    relative = np.stack([np.outer(inverse[a], inverse[b]).ravel() for a, b in zip(rows, columns, strict=True)])
    cross = sums.cross[0] @ relative.T
    wanted = np.block([[sums.inside[0], cross], [cross.T, relative @ sums.gram_covariance[0] @ relative.T]])
    np.testing.assert_allclose(law.root[0] @ law.root[0].T, wanted, rtol=0, atol=1e-8 * np.abs(wanted).max())
    assert (np.triu(law.root[0], 1) == 0).all()


def test_moments_that_do_not_fit_in_memory_are_refused_at_once():
    with pytest.raises(lf.SizeError, match="the moments of order eight for rank = 200"):
        HeadTensors.of(np.zeros((1, 2, 200)))
