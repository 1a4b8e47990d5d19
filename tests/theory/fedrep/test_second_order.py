"""FedRep's state evolution to second order: a round's law against explicit rounds, its moments against draws of it, its
course against runs.

Every comparison with draws is made a second time with laws that are nearly right, and has to tell them apart.
"""

import numpy as np
import pytest
import scipy.stats

import linfed as lf
from linfed.numerics import linalg, trailing
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.rounds import second_order
from linfed.theory.fedrep.rounds.round_moments import (
    Fluctuations,
    HeadTensors,
    OwnWeights,
    Round,
    RoundLaw,
    sine_and_cosine,
)
from tests.helpers import assert_one_line, basis, cleared, normal, some

NAN = float("nan")
SETTING = {"dim": 12, "n_samples": 9, "step_size": 0.5, "rounds": 6, "noise_std": 0.1}


# --- a round at exact heads, drawn without samples and without a solve ------------------------------------------


def client_sums(
    S, G, W, *, n_samples, step_size, runs, rng, noise_std=0.0, participants=None, weights=1.0, law="right"
):
    """Return Y and Phi (runs, k, k) of a round: multivariate t heads, and what their residuals say outside B."""
    (n, k), m = W.shape, n_samples
    p = participants or n
    who = np.argsort(rng.random((runs, n)), axis=1)[:, :p]
    m, noise_std, weights = (
        np.broadcast_to(one, n)[who][..., None] for one in (m, noise_std, weights / np.mean(weights))
    )
    s, a = (W @ S)[who], (W @ G)[who]
    tau = np.sqrt((s**2).sum(axis=-1, keepdims=True) + noise_std**2)
    freedom = {"m": m}.get(law, m - k + 1)
    heads = a + tau * rng.standard_normal(a.shape) / np.sqrt(rng.chisquare(freedom, tau.shape))
    x, h = rng.chisquare(m - k, tau.shape), rng.standard_normal(a.shape)
    if law != "h whole":
        h = h - s * (s * h).sum(axis=-1, keepdims=True) / (tau * (tau + noise_std))
    u = x * s - tau * np.sqrt(x) * h
    f = step_size * weights / (p * m)
    return (f * u).mT @ heads, (heads * (f**2 * tau**2 * x)).mT @ heads


def exact_round(T, W, *, dim, runs, rng, **setting):
    """Return the next T (runs, k, k)."""
    k = len(T)
    S, G = (one[0] for one in sine_and_cosine(T[None]))
    Y, Phi = client_sums(S, G, W, runs=runs, rng=rng, **setting)
    E, N = S - G @ Y, G + S @ Y
    Z = rng.standard_normal((runs, dim - 2 * k, k)) @ np.linalg.cholesky(Phi).mT
    return next_tangents(N, E.mT @ E + Z.mT @ Z)


def next_tangents(N, Q):
    return np.linalg.solve(N.mT, np.linalg.solve(N.mT, Q).mT)


EXPLICIT = {"n_samples": 6, "step_size": 0.9, "noise_std": 0.4, "participants": 2}


@pytest.fixture(scope="module")
def explicit_round():
    """Return T, the heads, and the squared tangents after explicit rounds."""
    W, frame = normal(3, 2, seed=1) * [1.6, 0.7], basis(5, 4, 5)
    B_star, sines = frame[:, :2], np.array([0.7, 0.5])
    B0 = B_star * np.sqrt(1 - sines**2) + frame[:, 2:] * sines
    algorithm = lf.FedRep(rank=2, step_size=EXPLICIT["step_size"], init=B0, orthonormalize=False)
    problem, data = (
        lf.GivenTruth(B=B_star, W=W, noise_std=EXPLICIT["noise_std"]),
        lf.FreshSamples(EXPLICIT["n_samples"]),
    )
    how = {"rounds": 1, "trials": 10_000, "participation": 2, "engine": "explicit", "metrics": []}
    tangents = [tangents_of(B, B_star) for B in (B0[None], lf.simulate(algorithm, problem, data=data, **how).final.B)]
    return tangents[0][0], W, np.linalg.eigvalsh(tangents[1])


def tangents_of(B, B_star):
    N = B_star.T @ B
    outside = B - B_star @ N
    return next_tangents(N, outside.mT @ outside)


@pytest.mark.long
@pytest.mark.parametrize("law", ["right", "m", "h whole"])
def test_explicit_rounds_have_this_law(explicit_round, law):
    """Both angles' distributions, at an error rate of 1 in 5,000."""
    T, W, explicit = explicit_round
    drawn = exact_round(T, W, dim=5, runs=20_000, rng=np.random.default_rng(3), law=law, **EXPLICIT)
    values = np.linalg.eigvalsh(drawn)
    smallest = min(scipy.stats.ks_2samp(values[:, j], explicit[:, j]).pvalue for j in (0, 1))
    assert (smallest < 1e-4) == (law != "right")


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


@pytest.mark.long
@pytest.mark.parametrize("name", MOMENTS)
def test_the_moments_are_those_of_the_draws(name):
    """Means and covariances of Y and Phi, each entry within 5 standard errors; and not those of other settings."""
    n, k, given = MOMENTS[name]
    W, T, runs = normal(n, k, seed=2), squares(k), 40_000
    S, G = sine_and_cosine(T[None])
    given = given | {"step_size": 0.7}
    sums = [
        one.reshape(runs, -1) for one in client_sums(S[0], G[0], W, runs=runs, rng=np.random.default_rng(1), **given)
    ]

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


@pytest.mark.long
@pytest.mark.parametrize("name", ["some", "all differ"])
def test_the_moments_are_those_of_drawn_samples(name):
    """The sums of messages from samples x and labels, with a least-squares fit of each client."""
    n, k, given = MOMENTS[name]
    W, T, d, runs, rng = normal(n, k, seed=2), squares(k), 7, 20_000, np.random.default_rng(5)
    S, G = (one[0] for one in sine_and_cosine(T[None]))
    B = np.concatenate([G, S, np.zeros((d - 2 * k, k))])  # B* has the first axes
    m, noise_std, weights = (np.broadcast_to(given.get(what, 1.0), n) for what in ("n_samples", "noise_std", "weights"))
    p = given["participants"]
    Y, Phi = np.zeros((2, runs, k, k))
    taken = np.argsort(rng.random((runs, n)), axis=1).argsort(axis=1) < p
    for i in range(n):
        x = rng.standard_normal((runs, m[i], d))
        y = x[..., :k] @ W[i] + noise_std[i] * rng.standard_normal((runs, m[i]))
        Z = x @ B
        heads = np.linalg.solve(Z.mT @ Z, (Z.mT @ y[..., None]))[..., 0]
        r = y - np.einsum("rmk,rk->rm", Z, heads)
        f = 0.7 * weights[i] / weights.mean() / (p * m[i]) * taken[:, i]
        message = np.einsum("rmd,rm->rd", x, r)[:, :k]  # along B*: S u
        Y += f[:, None, None] * np.linalg.solve(S, message.T).T[..., None] * heads[:, None]
        Phi += (f**2 * (r**2).sum(axis=1))[:, None, None] * heads[..., None] * heads[:, None]
    law = moments_of(T, W, dim=d, step_size=0.7, **given)
    one, other = ((sums - mean).reshape(runs, -1) for sums, mean in ((Y, law.mean), (Phi, law.gram)))
    for what, values in (("inside", (one, one)), ("cross", (one, other)), ("gram_covariance", (other, other))):
        products = (values[0][:, :, None] * values[1][:, None]).reshape(runs, -1)
        off = (products.mean(axis=0) - getattr(law, what)[0].ravel()) / products.std(axis=0) * np.sqrt(runs)
        assert np.abs(off).max() < 5, what
    for sums in (one, other):
        assert np.abs(sums.mean(axis=0) / sums.std(axis=0)).max() * np.sqrt(runs) < 5


def moments_of(T, W, *, dim, step_size, kind=None, **given):
    clients = Clients.checked(*W.shape, dim, **given)
    kind = kind or (OwnWeights if clients.differ else HeadTensors.of)
    return Fluctuations.of(*sine_and_cosine(T[None]), kind(W[None]), clients, step_size)


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


def along_axes(W, pull=1.0):
    """Return heads whose second moment, with these factors of the clients, is diagonal."""
    return W @ np.linalg.eigh((np.broadcast_to(pull, len(W)) * W.T) @ W / len(W))[1]


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


def test_sums_in_blocks_of_clients_are_those_at_once(monkeypatch):
    n, k, given = MOMENTS["all differ"]
    W, T = normal(2, n, k, seed=2), np.stack([squares(k), squares(k, 8)])
    clients = Clients.checked(n, k, 20, **given)
    whole = OwnWeights(W).sums(T, clients, 0.7)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 6)  # two clients of three packed entries
    for one, other in zip(OwnWeights(W).sums(T, clients, 0.7), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def plain_evolution(W, *, delta, rounds, **given):
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
    for _, (values, mask) in zip(range(rounds), chart.rounds(), strict=False):
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


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize(("k", "participants"), some([(2, 8), (1, 5), (3, 20)], 3))
def test_the_evolution_is_that_of_single_points(k, participants):
    W = normal(20, k, seed=3)
    given = {"dim": 2 * k + 9, "n_samples": k + 8, "step_size": 0.5, "noise_std": 0.2, "participants": participants}
    if k == 2:
        given |= {"n_samples": np.arange(8, 28), "weights": np.linspace(1.0, 3.0, 20)}
    found = lf.theory.second_order_evolution(W, delta=0.8, rounds=3, **given)
    pull = (1 - k / np.asarray(given["n_samples"])) * given.get("weights", np.ones(1))
    expected = plain_evolution(along_axes(W, pull), delta=0.8, rounds=3, **given)
    got = np.array([found.low, found.distance, found.high, found.log_std, [0.0, *found.round_log_variance]])
    np.testing.assert_allclose(got[:, 1:], expected[:, 1:], rtol=1e-10)
    np.testing.assert_allclose(got[:3, 0], 0.8, rtol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("d", [4, 5, 40])
def test_drawn_rounds_have_the_moments_of_their_law(d):
    """The mean of the next T is that of exact rounds; 2k = d and d - 2k < k have fewer outer rows than columns."""
    W, T, runs = normal(60, 2, seed=2), squares(2), 10_000
    given = {"n_samples": 12, "step_size": 0.7, "noise_std": 0.3, "participants": 40}
    exact = exact_round(T, W, dim=d, runs=runs, rng=np.random.default_rng(3), **given).reshape(runs, 4)
    clients = Clients.checked(*W.shape, d, n_samples=12, noise_std=0.3, participants=40)
    values = np.random.default_rng(4).standard_normal((1, runs, RoundLaw.values(2)))
    X = RoundLaw.at(T[None], HeadTensors.of(W[None]), clients, 0.7).next_factors(values.mT, np.eye(2)[None])[0]
    drawn = np.einsum("abn,acn->nbc", X, X).reshape(runs, 4)
    variances = exact.var(axis=0) + drawn.var(axis=0)
    assert np.abs((exact - drawn).mean(axis=0) / np.sqrt(variances / runs)).max() < 5
    for one, other in zip(exact.T, drawn.T, strict=True):
        assert 0.9 < other.std() / one.std() < 1.1


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize(("k", "outside", "noise_std"), [(2, 0, 0.2), (2, 1, 0.0), (1, 0, 0.0)])
def test_rounds_with_few_directions_outside_are_those_of_single_points(k, outside, noise_std):
    W, p = normal(9, k, seed=3), None if outside else 4
    given = {"dim": 2 * k + outside, "n_samples": k + 6, "step_size": 0.4, "noise_std": noise_std, "participants": p}
    found = lf.theory.second_order_evolution(W, delta=0.6, rounds=2, **given)
    expected = plain_evolution(along_axes(W), delta=0.6, rounds=2, **given)
    got = np.array([found.low, found.distance, found.high, found.log_std, [0.0, *found.round_log_variance]])
    np.testing.assert_allclose(got[:, 1:], expected[:, 1:], rtol=1e-8)


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


# --- runs -------------------------------------------------------------------------------------------------------

ROUNDS = [3, 10, 20, 30]

RUNS = {
    "anisotropic, some": ({"dim": 100, "n_samples": 9, "step_size": 0.4, "participants": 80}, (200, 3, 2.0), 0.8),
    "isotropic, noise": ({"dim": 100, "n_samples": 14, "step_size": 0.8, "noise_std": 0.3}, (100, 5, 1.0), 0.9),
    "small": ({"dim": 20, "n_samples": 9, "step_size": 0.7}, (100, 3, 1.0), 0.6),
}
"""Settings, heads (clients, rank and condition number), and the sine of all angles at the start."""

MEASURED = {
    "anisotropic, some": [
        [0.6770, 0.3753, 0.1228, 0.0378],
        [0.7018, 0.4099, 0.1401, 0.0443],
        [0.7248, 0.4455, 0.1588, 0.0517],
    ],
    "isotropic, noise": [
        [0.5760, 0.0739, 0.0698, 0.0698],
        [0.6205, 0.0783, 0.0741, 0.0740],
        [0.6706, 0.0833, 0.0789, 0.0789],
    ],
    "small": [
        [1.5358e-01, 2.3507e-03, 5.6308e-06, 1.3451e-08],
        [1.7174e-01, 2.9147e-03, 7.6148e-06, 1.9477e-08],
        [1.9081e-01, 3.5898e-03, 1.0224e-05, 2.8114e-08],
    ],
}
"""10 %, 50 % and 90 % quantiles of 4,000 runs in these rounds: this file, run as a module, prints them."""


def heads_of(n, k, condition_number):
    problem = lf.SharedRepresentation(n_clients=n, dim=k, rank=k, condition_number=condition_number)
    return problem.truth(0, [0]).W[0]


def measured(name):
    """Return the quantiles of runs of the chain."""
    setting, heads, delta = RUNS[name]
    W = heads_of(*heads)
    truth = lf.GivenTruth(B=basis(setting["dim"], W.shape[1]), W=W, noise_std=setting.get("noise_std", 0.0))
    how = {"rounds": 30, "trials": 4000, "seed": 11, "engine": "chain", "metrics": ["subspace_distance"]}
    result = lf.simulate(
        lf.FedRep(rank=W.shape[1], step_size=setting["step_size"], init=lf.AtDistance(delta)),
        truth,
        data=lf.FreshSamples(setting["n_samples"]),
        participation=setting.get("participants", 1.0),
        **how,
    )
    return np.quantile(result.metrics["subspace_distance"][:, ROUNDS], [0.1, 0.5, 0.9], axis=0)


@pytest.mark.parametrize("name", some(RUNS, 3))
def test_runs_follow_the_median_and_the_band(name):
    """Medians of 4,000 runs have 0.3 to 1 % themselves."""
    setting, heads, delta = RUNS[name]
    W, measured = heads_of(*heads), np.array(MEASURED[name])
    found = lf.theory.second_order_evolution(W, rounds=30, delta=delta, **setting)
    predicted = np.array([found.low, found.distance, found.high])[:, ROUNDS]
    off = np.abs(np.log(predicted / measured)).max(axis=1)
    assert off[1] < 0.05
    assert off[0] < 0.07
    assert off[2] < 0.12
    normal_width = np.log(measured[2] / measured[0]) / 2.563
    np.testing.assert_allclose(found.log_std[ROUNDS], normal_width, rtol=0.15)
    first = lf.theory.state_evolution(W, rounds=30, delta=delta, **setting).distance[ROUNDS]
    assert name == "anisotropic, some" or np.abs(np.log(first / measured[1])).max() > 0.1
    p = setting.get("participants", len(W))
    if name == "isotropic, noise":
        return
    for change in (
        {"participants": p * 3 // 4},
        {"dim": setting["dim"] // 2},
        {"n_samples": setting["n_samples"] + 2},
    ):
        wrong = lf.theory.second_order_evolution(W, rounds=30, delta=delta, **setting | change)
        assert np.abs(np.log(wrong.distance[ROUNDS] / measured[1])).max() > 0.05, change


@pytest.mark.long
def test_without_qr_the_step_anneals_itself():
    """Under label noise ||B||^4 grows by C in a round, and the step that is left makes the distance."""
    sizes = {"dim": 60, "rank": 2, "n_clients": 30, "n_samples": 10, "noise_std": 1.0}
    problem = lf.SharedRepresentation(n_clients=30, dim=60, rank=2, condition_number=1.0, noise_std=1.0)
    truth = problem.truth(0, [0])
    fedrep = lf.FedRep(rank=2, step_size=0.2, init=lf.AtDistance(0.4), orthonormalize=False)
    how = {"rounds": 150, "trials": 60, "engine": "chain", "metrics": ["subspace_distance", fourth_power]}
    given = lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=1.0)
    metrics = lf.simulate(fedrep, given, data=lf.FreshSamples(10), **how).metrics
    setting = {"dim": 60, "n_samples": 10, "rounds": 150, "noise_std": 1.0, "delta": 0.4}
    found = lf.theory.unnormalized_evolution(truth.W[0], step_size=0.2, **setting)
    growth = metrics["fourth_power"].mean(axis=0)
    np.testing.assert_allclose(found.squared_length**2, growth, rtol=0.03)
    assert growth[-1] > 3
    constant = lf.theory.norm_growth(0.2, **sizes)
    assert constant == pytest.approx(2 * 0.2**2 * 0.8 * 58 * (1 + 1 / 7) / (30 * 10))
    assert 1.0 < (growth[-1] - growth[75]) / (75 * constant) < 1.1
    assert lf.theory.norm_growth(0.2, participants=15, **sizes) == pytest.approx(2 * constant)
    median = np.median(metrics["subspace_distance"], axis=0)[[75, 150]]
    kept = lf.theory.state_evolution(truth.W[0], step_size=0.2, **setting).distance[[75, 150]]
    assert (np.abs(np.log(found.distance[[75, 150]] / median)) < 0.2).all()
    assert (kept > 1.1 * median).all()


def test_with_small_noise_b_hardly_grows():
    """Then it is state evolution, whose distance starts where B starts."""
    W, setting = normal(9, 2, seed=1), SETTING | {"noise_std": 0.0, "step_size": 1e-3}
    found = lf.theory.unnormalized_evolution(W, delta=0.3, **setting)
    assert found.squared_length[0] == 1.0
    assert (np.diff(found.squared_length) > 0).all()
    np.testing.assert_allclose(found.distance, lf.theory.state_evolution(W, delta=0.3, **setting).distance, rtol=1e-5)
    starts = np.stack([basis(12, 2)] * 3)
    assert_one_line(
        lambda: lf.theory.unnormalized_evolution(W, B0=starts, B_star=basis(12, 2, 1), **setting), ["3 trials"]
    )


def test_a_trial_at_the_truth_leaves_the_others_alone():
    W, B_star, quiet = normal(9, 2, seed=1), np.eye(12, 2), SETTING | {"noise_std": 0.0}
    starts = np.stack([B_star, basis(12, 2, 11)])
    both = lf.theory.second_order_evolution(W, B0=starts, B_star=B_star, **quiet)
    alone = lf.theory.second_order_evolution(W, B0=starts[1], B_star=B_star, **quiet)
    for name in ("distance", "low", "high", "log_std", "round_log_variance"):
        assert (getattr(both, name)[0] == 0.0).all()
        np.testing.assert_array_equal(getattr(both, name)[1], getattr(alone, name))


def test_without_qr_a_round_has_the_step_divided_by_the_squared_length():
    W, B0, B_star = normal(9, 2, seed=1), basis(12, 2, 3), basis(12, 2, 4)
    setting = SETTING | {"noise_std": 0.7, "participants": 4, "step_size": 0.4}
    found = lf.theory.unnormalized_evolution(W, B0=B0, B_star=B_star, **setting)
    sizes = {name: setting[name] for name in ("dim", "n_samples", "noise_std", "participants")}
    N, length = B_star.T @ B0, 1.0
    Q = np.eye(2) - N.T @ N
    for t in range(6):
        N, Q = lf.theory.one_round_means(N, Q, W, step_size=0.4 / length, **sizes)
        gram = N.T @ N + Q
        length *= np.trace(gram) / 2
        inverse = np.linalg.inv(np.linalg.cholesky(gram)).T
        N, Q = N @ inverse, inverse.T @ Q @ inverse
        assert found.squared_length[t + 1] == pytest.approx(length, rel=1e-10)
        np.testing.assert_allclose(found.N[t + 1], N, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(found.Q[t + 1], Q, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.distance**2, np.linalg.eigvalsh(found.Q)[:, -1], rtol=1e-12)
    sizes = {"dim": 60, "rank": 2, "n_clients": 30, "n_samples": 10, "noise_std": 0.8}
    growth = 2 * 0.3**2 * 0.8 * 58 * 0.64 * (1 + 0.64 / 7) / 10
    assert lf.theory.norm_growth(0.3, **sizes) == pytest.approx(growth / 30, rel=1e-12)
    assert lf.theory.norm_growth(0.3, participants=7, **sizes) == pytest.approx(growth / 7, rel=1e-12)
    quiet = lf.theory.unnormalized_evolution(W, delta=0.3, dim=12, n_samples=9, step_size=0.4, rounds=2)
    same = lf.theory.unnormalized_evolution(W, delta=0.3, **SETTING | {"noise_std": 0.0, "step_size": 0.4, "rounds": 2})
    np.testing.assert_array_equal(quiet.squared_length, same.squared_length)
    for wrong, words in (({"step_size": 0.0}, "step_size = 0.0"), ({"rounds": -1}, "rounds = -1")):
        law = lf.theory.unnormalized_evolution
        assert_one_line(lambda wrong=wrong, law=law: law(W, delta=0.3, **SETTING | wrong), [words])
    assert_one_line(lambda: lf.theory.norm_growth(0.0, **sizes), ["step_size = 0.0"])
    assert lf.theory.unnormalized_evolution(W, delta=0.3, **SETTING | {"rounds": 0}).distance == pytest.approx([0.3])


def test_moments_that_do_not_fit_in_memory_are_refused_at_once():
    with pytest.raises(lf.SizeError, match="the moments of order eight for rank = 200"):
        HeadTensors.of(np.zeros((1, 2, 200)))


def fourth_power(state, truth):
    B = state.array("B")
    return (np.square(B).sum(axis=(-2, -1)) / B.shape[-1]) ** 2


# --- the stationary state ------------------------------------------------------------------------------------------

FLOORS = {
    "small step": ({"dim": 20, "n_samples": 8}, (20, 2, 3.0), 0.1),
    "near the edge": ({"dim": 20, "n_samples": 8}, (20, 2, 3.0), 0.98),
    "near the edge, large d": ({"dim": 200, "n_samples": 12}, (50, 3, 1.5), 0.98),
    "few of many": ({"dim": 20, "n_samples": 8, "participants": 4}, (60, 2, 2.0), 0.95),
    "own weights": ({"dim": 20, "n_samples": 8, "weights": np.geomspace(1.0, 30.0, 12)}, (12, 2, 2.0), 0.9),
    "own samples": ({"dim": 60, "n_samples": np.arange(7, 37), "participants": 15}, (30, 3, 2.0), 0.9),
}
"""Settings, heads (clients, rank and condition number), and the share of the stability edge; noise of 0.03."""

MEASURED_FLOORS = {
    "small step": [0.002459, 0.002924, 0.003448],
    "near the edge": [0.0238, 0.0381, 0.0667],
    "near the edge, large d": [0.0657, 0.0785, 0.0945],
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
    truth = lf.GivenTruth(B=basis(given["dim"], W.shape[1]), W=W, noise_std=0.03)
    algorithm = lf.FedRep(
        rank=W.shape[1], step_size=given["step_size"], init=lf.TrueSubspace(), weights=given.get("weights")
    )
    how = {"rounds": 400, "trials": 600, "seed": 11, "engine": "chain", "metrics": ["subspace_distance"]}
    data, participation = lf.FreshSamples(given["n_samples"]), given.get("participants", 1.0)
    result = lf.simulate(algorithm, truth, data=data, participation=participation, **how)
    return np.quantile(result.metrics["subspace_distance"][:, 200:], [0.1, 0.5, 0.9])


@pytest.mark.parametrize("name", some(FLOORS, 3))
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


def test_the_floor_is_the_end_of_the_evolution():
    """At several step sizes, for clients that differ; from the other side."""
    W, own = normal(2, 20, 2, seed=3), {"n_samples": np.arange(8, 28), "weights": np.linspace(1.0, 3.0, 20)}
    sizes = {"dim": 20, "noise_std": 0.03} | own
    edge = lf.theory.stability_edge(W, dim=20, **own).min()
    for share in (0.3, 0.9):
        found = lf.theory.second_order_floor(W, step_size=share * edge, **sizes)
        late = lf.theory.second_order_evolution(W, step_size=share * edge, rounds=200, delta=0.0, **sizes)
        assert found.distance.shape == (2,)
        for name in ("distance", "low", "high"):
            wanted = np.exp(np.log(getattr(late, name)[:, 100:]).mean(axis=1))
            np.testing.assert_allclose(getattr(found, name), wanted, rtol=0.01)
        np.testing.assert_allclose(found.log_std, late.log_std[:, 100:].mean(axis=1), rtol=0.03)
        np.testing.assert_allclose(found.round_log_variance, late.round_log_variance[:, 100:].mean(axis=1), rtol=0.03)
        alone = lf.theory.second_order_floor(W[1], step_size=share * edge, **sizes)
        assert alone.distance == found.distance[1]


def test_the_floor_without_noise_is_0():
    for W in (normal(20, 2), normal(3, 20, 2)):
        found = lf.theory.second_order_floor(W, dim=20, n_samples=8, step_size=0.1, noise_std=0.0)
        for name in ("distance", "low", "high", "log_std", "round_log_variance"):
            np.testing.assert_array_equal(getattr(found, name), np.zeros(W.shape[:-2]))


# --- what it is asked, and how it answers --------------------------------------------------------------------------


def test_the_start_and_the_axes_do_not_matter():
    """But for the points, which heads in other coordinates may meet mirrored."""
    W, B_star, turn = normal(9, 3, seed=1), basis(12, 3, 2), basis(3, 3, 4)
    by_angle = lf.theory.second_order_evolution(W, delta=0.6, **SETTING)
    complement = np.linalg.qr(np.concatenate([B_star, normal(12, 3, seed=5)], axis=1))[0][:, 3:]
    B0 = (0.8 * B_star + 0.6 * complement) @ turn
    for heads, truth, within in ((W, B_star, 1e-6), (W @ turn, B_star @ turn, 1e-2)):
        by_bases = lf.theory.second_order_evolution(heads, B0=B0, B_star=truth, **SETTING)
        for name in ("distance", "low", "high"):
            np.testing.assert_allclose(getattr(by_bases, name), getattr(by_angle, name), rtol=within)
    sines = np.array([0.9, 0.4, 0.1])
    uneven = B_star * np.sqrt(1 - sines**2) + complement * sines
    one, other = (
        lf.theory.second_order_evolution(heads, B0=uneven, B_star=B_star, **SETTING).distance
        for heads in (W * [2.0, 1.0, 0.5], W * [0.5, 1.0, 2.0])
    )
    assert one[-1] < 0.95 * other[-1]


def test_trials_are_on_their_own_bit_for_bit(monkeypatch):
    monkeypatch.setattr(second_order, "TOGETHER", 2)
    heads, B_star = normal(3, 6, 2, seed=1), basis(12, 2, 2)
    starts = np.stack([basis(12, 2, 10 + t) for t in range(3)])
    together = lf.theory.second_order_evolution(heads, delta=0.6, **SETTING)
    assert together.distance.shape == (3, 7)
    assert together.round_log_variance.shape == (3, 6)
    shared = lf.theory.second_order_evolution(heads[0], B0=starts, B_star=B_star, **SETTING)
    for t in range(3):
        one = lf.theory.second_order_evolution(heads[t], delta=0.6, **SETTING)
        other = lf.theory.second_order_evolution(heads[0], B0=starts[t], B_star=B_star, **SETTING)
        for name in ("distance", "low", "high", "log_std", "round_log_variance"):
            assert np.array_equal(getattr(together, name)[t], getattr(one, name))
            assert np.array_equal(getattr(shared, name)[t], getattr(other, name))


def test_a_step_of_each_round():
    W = normal(9, 2, seed=1)
    steps = np.array([0.9, 0.5, 0.5, 0.3, 0.2, 0.1])
    given = SETTING | {"step_size": steps}
    whole = lf.theory.second_order_evolution(W, delta=0.5, **given).distance
    first = lf.theory.second_order_evolution(W, delta=0.5, **given | {"step_size": steps[:2], "rounds": 2}).distance
    np.testing.assert_array_equal(whole[:3], first)
    same = lf.theory.second_order_evolution(W, delta=0.5, **given | {"step_size": np.full(6, 0.5)}).distance
    np.testing.assert_array_equal(same, lf.theory.second_order_evolution(W, delta=0.5, **SETTING).distance)


@pytest.mark.parametrize("far", [1e-40, 1e-130])
def test_convergence_goes_on_without_cancellation(far):
    """Near B* and without noise a round is homogeneous: from 1e-3, 1e-40 or 1e-130, the same factors."""
    W = normal(60, 2, seed=1)
    setting = SETTING | {"dim": 30, "noise_std": 0.0, "participants": 40}
    small, tiny = (lf.theory.second_order_evolution(W, delta=delta, **setting) for delta in (1e-3, far))
    np.testing.assert_allclose(small.distance / 1e-3, tiny.distance / far, rtol=1e-4)
    np.testing.assert_allclose(small.log_std, tiny.log_std, rtol=1e-3, atol=1e-6)


def test_convergence_goes_on_to_the_end_of_floating_point():
    """The same factor in each round, through 1e-77 and 1e-154 where squares of squares and squares end."""
    found = lf.theory.second_order_evolution(
        np.ones((400, 1)), dim=20, n_samples=200, step_size=1.0, rounds=200, delta=0.5
    )
    logs = np.log10(found.distance[:160])
    assert logs[-1] < -250
    assert np.abs(np.diff(logs)[3:] - np.diff(logs)[3:20].mean()).max() < 0.05
    assert (np.diff(found.high) <= 0).all()
    assert found.distance[-1] == 0.0


def test_a_rounds_own_kick_is_that_of_its_step():
    """Small steps add little; after one round from a start that is known it is all the spread there is."""
    W = normal(60, 2, seed=1)
    setting = SETTING | {"dim": 30, "delta": 1e-3, "noise_std": 0.0, "step_size": [1e-4, 0.5, 1e-4], "rounds": 3}
    kick = lf.theory.second_order_evolution(W, **setting).round_log_variance
    assert kick.shape == (3,)
    assert np.all(kick[[0, 2]] < 1e-3 * kick[1])
    one = lf.theory.second_order_evolution(W, **setting | {"step_size": 0.5, "rounds": 1})
    assert one.round_log_variance[0] == pytest.approx((2.0 * one.log_std[1]) ** 2, rel=1e-4)


def test_the_truth_stays_without_noise_and_is_left_with_it():
    W = normal(9, 2, seed=1)
    for B0 in (None, basis(12, 2)):
        start = {"delta": 0.0} if B0 is None else {"B0": B0, "B_star": B0}
        still = lf.theory.second_order_evolution(W, **start, **SETTING | {"noise_std": 0.0})
        assert (still.distance < 1e-15).all()
        noisy = lf.theory.second_order_evolution(W, **start, **SETTING).distance
        assert noisy[0] < 1e-15
        assert (noisy[1:] > 0.01).all()


@pytest.mark.parametrize(("n", "k", "d"), [(1, 1, 2), (5, 1, 4), (1, 3, 6), (4, 3, 7)])
def test_small_shapes(n, k, d):
    found = lf.theory.second_order_evolution(
        normal(n, k, seed=3), dim=d, n_samples=k + 4, step_size=0.2, rounds=20, delta=0.5
    )
    for name in ("distance", "low", "high", "log_std", "round_log_variance"):
        assert np.isfinite(getattr(found, name)).all()
    assert (found.low <= found.distance).all()
    assert (found.distance <= found.high).all()


WRONG = {
    "m": ({"n_samples": 5}, ["n_samples = 5", "above rank + 3 = 5"]),
    "step": ({"step_size": 0.0}, ["step_size = 0", "positive"]),
    "steps": ({"step_size": [0.1, 0.2]}, ["step_size has 2 values", "rounds = 6"]),
    "a step": ({"step_size": [0.1] * 5 + [-1.0]}, ["step_size[5] = -1"]),
    "nan": ({"step_size": [NAN] * 6}, ["step_size"]),
    "right angle": ({"delta": 1.0}, ["right angle", "delta"]),
    "no start": ({"delta": None}, ["delta", "B0"]),
    "rounds": ({"rounds": -1}, ["rounds = -1"]),
    "participants": ({"participants": 10}, ["participants = 10", "n_clients = 9"]),
    "huge": ({"step_size": 1e200}, ["step_size = 1e+200", "too large"]),
    "trials": (
        {"delta": None, "B0": np.stack([basis(12, 2)] * 2), "B_star": basis(12, 2, 1), "W": normal(3, 9, 2)},
        ["3 and 2 trials"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_line(name):
    changes, fragments = WRONG[name]
    given = {"W": normal(9, 2), "delta": 0.5} | SETTING | changes
    assert_one_line(lambda: lf.theory.second_order_evolution(given.pop("W"), **given), fragments)


@pytest.mark.long
@pytest.mark.usefixtures("few_points")
def test_runs_spread_over_too_many_decades_are_one_line():
    """The step size is far below its edge: the message must not blame it."""
    W = np.random.default_rng(0).standard_normal((12, 2))
    sizes = {"dim": 4, "n_samples": 8, "participants": 12, "delta": 0.5}
    step = 0.3 * lf.theory.stability_edge(W, dim=4, n_samples=8, participants=12)
    assert (lf.theory.second_order_evolution(W, step_size=step, rounds=200, **sizes).distance <= 1).all()
    with pytest.raises(ValueError, match=r"^rounds must be below \d+: .* spread over more than 30 decades"):
        lf.theory.second_order_evolution(W, step_size=step, rounds=20_000, **sizes)


TINY = {"dim": 8, "n_samples": 8, "step_size": 0.5}


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("noise_std", [1e-80, 1e-99, 1e-120, 1e-155, (1e-100,) * 6 + (1e-90,) * 6])
def test_noise_below_the_range_of_floating_point_is_one_line(noise_std):
    """The step size is far below its edge: the message must not blame it."""
    words = [f"noise_std = {np.max(noise_std):.3g} is too small", "1e-75", "0 or larger"]
    assert_one_line(lambda: lf.theory.second_order_floor(normal(12, 2), noise_std=noise_std, **TINY), words)
    if noise_std == 1e-99:
        some = {"delta": 0.5, "rounds": 1200, "noise_std": noise_std}
        assert_one_line(lambda: lf.theory.second_order_evolution(normal(12, 2), **some, **TINY), words)


@pytest.mark.usefixtures("few_points")
def test_noise_within_the_range_of_floating_point_has_its_floor():
    one, ten, none = (lf.theory.second_order_floor(normal(12, 2), noise_std=s, **TINY) for s in (1e-72, 1e-71, 0.0))
    assert ten.distance == pytest.approx(10 * one.distance, rel=1e-9)
    assert none.distance == 0
    from_truth = lf.theory.second_order_evolution(normal(12, 2), delta=0.0, rounds=3, noise_std=0.1, **TINY)
    assert (from_truth.distance[1:] > 0.001).all()


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e150])
def test_the_largest_eigenpair_of_small_and_large_matrices(scale):
    A = normal(3, 2, 2, 50)
    A = A + A.swapaxes(1, 2)
    values, vectors = trailing.largest_eigenpair(scale * A)
    np.testing.assert_allclose(values / scale, np.linalg.eigvalsh(np.moveaxis(A, -1, 1))[..., -1], atol=1e-14)
    image = np.einsum("tabn,tbn->tan", A, vectors)
    np.testing.assert_allclose(image, (values / scale)[:, None] * vectors, atol=1e-14)


if __name__ == "__main__":
    for name in FLOORS:
        print(f'    "{name}": {[float(f"{value:.4g}") for value in measured_floor(name)]},')
    for name in RUNS:
        print(f'    "{name}": np.array({np.array2string(measured(name), separator=", ", precision=4)}),')
