"""Similar representations and outliers: what is promised exactly, their distributions, and runs on them."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from tests.helpers import assert_one_line, assert_same
from tests.problems.test_shared import assert_mean, shared

TRIALS = range(3)


def similar(**changes):
    return lf.SimilarRepresentations(
        **{"n_clients": 20, "dim": 7, "rank": 3, "deviation": 0.3, "outliers": 0.2} | changes
    )


@pytest.mark.parametrize(
    "more", [{}, {"heterogeneity": 0.4}, {"condition_number": 2.0}, {"head_norm": 3.0, "noise_std": 0.2}]
)
def test_without_deviations_and_outliers_it_is_the_shared_representation(more):
    plain, problem = shared(**more), similar(n_clients=12, deviation=0, outliers=0, **more)
    truths = [one.truth((3, 1), [0, 4]) for one in (plain, problem)]
    pairs = [
        truths,
        [one.new_clients(truth, 6, 5, [0, 4]) for one, truth in zip((plain, problem), truths, strict=True)],
    ]
    for its, mine in pairs:
        assert (mine.B.tobytes(), mine.W.tobytes(), mine.S) == (its.B.tobytes(), its.W.tobytes(), None)
        assert (mine.noise_std, mine.design) == (its.noise_std, its.design)
    assert (problem.truth_rank, problem.subspace_rank, problem.n_outliers) == (3, 3, 0)
    assert problem.floats_per_trial() == plain.floats_per_trial()
    run = {"data": lf.FreshSamples(9), "n_rounds": 5, "trials": 2}
    fedrep = lf.FedRep(rank=2, step_size=0.1)
    for engine in ("explicit", "projected"):
        one, other = (lf.simulate(fedrep, each, **run, engine=engine) for each in (plain, problem))
        assert_same(one, other)


def test_the_parts_of_a_ground_truth():
    problem = similar(head_norm=2.0, noise_std=0.5, design="cube")
    truth, base = problem.truth(3, TRIALS), shared(n_clients=20, head_norm=2.0).truth(3, TRIALS)
    assert problem.n_outliers == 4
    assert truth.B.tobytes() == base.B.tobytes()
    assert truth.W[:, :16].tobytes() == base.W[:, :16].tobytes()
    assert not truth.W[:, 16:].any()
    assert truth.S.shape == (3, 20, 7)
    np.testing.assert_allclose(np.linalg.norm(truth.dense()[:, 16:], axis=-1), 2.0, rtol=1e-14)
    assert (truth.noise_std, truth.design, truth.subspace) == (0.5, lf.UniformCube(), None)
    assert (problem.truth_rank, problem.subspace_rank) == (None, 3)
    assert problem.floats_per_trial() == truth.B[0].size + truth.W[0].size + truth.S[0].size
    for rank in (3, 5):
        np.testing.assert_allclose(truth.reference(rank), truth.B, atol=1e-14)


@pytest.mark.parametrize(("n", "share"), [(1, 0.0), (1, 0.49), (7, 0.1), (7, 0.25), (20, 0.05), (20, 0.49)])
def test_the_number_of_outliers(share, n):
    problem = similar(n_clients=n, outliers=share, deviation=0.0)
    assert problem.n_outliers == math.floor(share * n + 0.5)
    truth = problem.truth(0, TRIALS)
    outside = truth.dense() - truth.dense() @ truth.B @ truth.B.mT
    far = np.linalg.norm(outside, axis=-1) > 1e-12
    assert far.tolist() == [[client >= n - problem.n_outliers for client in range(n)]] * 3
    new = problem.new_clients(truth, 13, 0, TRIALS)
    assert similar(n_clients=50, outliers=0.29).n_outliers == similar(n_clients=100, outliers=0.145).n_outliers == 15
    assert (~new.W.any(axis=-1)).sum(axis=-1).tolist() == [math.floor(share * 13 + 0.5)] * 3


def test_sizes_of_the_differences_change_nothing_else():
    """Further outliers leave the other clients as they are; deviations differ by a factor."""
    truths = {share: similar(outliers=share).truth(2, TRIALS) for share in (0, 0.1, 0.4)}
    for share, truth in truths.items():
        near = 20 - round(20 * share)
        assert truth.S[:, :near].tobytes() == truths[0].S[:, :near].tobytes()
        assert truth.W[:, :near].tobytes() == truths[0].W[:, :near].tobytes()
        assert truth.S[:, 18:].tobytes() == truths[0.1].S[:, 18:].tobytes() or share == 0
    once, twice = (similar(deviation=h).truth(2, TRIALS).S for h in (0.3, 0.6))
    np.testing.assert_allclose(once[:, :16] * 2, twice[:, :16], rtol=1e-14)
    assert once[:, 16:].tobytes() == twice[:, 16:].tobytes()


@pytest.mark.parametrize("more", [{"head_norm": 2.0}, {"condition_number": 3.0}, {"heterogeneity": 0.0}])
def test_similar_representations_are_shortcuts(more):
    """A client has one head, so of its deviation only ``h Delta_i w_i`` matters: a Gaussian vector."""
    length = more.get("head_norm", math.sqrt(3))
    mine = similar(outliers=0, **more)
    its = lf.SharedWithShortcuts(n_clients=20, dim=7, rank=3, shortcut_norm=0.3 * length, **more)
    truths = [one.truth(1, TRIALS) for one in (mine, its)]
    np.testing.assert_allclose(truths[0].S, truths[1].S, rtol=1e-12)
    assert truths[0].W.tobytes() == truths[1].W.tobytes()
    new = [one.new_clients(truth, 9, 6, TRIALS).S for one, truth in zip((mine, its), truths, strict=True)]
    np.testing.assert_allclose(new[0], new[1], rtol=1e-12)


def test_a_trial_depends_on_seed_and_trial_alone():
    problem = similar(heterogeneity=0.8)
    truth, alone, other = problem.truth(1, range(8)), problem.truth(1, [7]), problem.truth(2, range(8))
    for part in "BWS":
        assert getattr(truth, part)[7].tobytes() == getattr(alone, part)[0].tobytes()
    assert not np.isclose(truth.S, other.S).any()
    new = problem.new_clients(truth, 12, 6, range(8))
    for part in "BWS":
        assert getattr(problem.new_clients(alone, 12, 6, [7]), part)[0].tobytes() == getattr(new, part)[7].tobytes()
    assert np.array_equal(new.B, truth.B)
    assert not np.isin(new.S, truth.S).any()
    assert not np.isclose(problem.new_clients(truth, 12, 7, range(8)).S, new.S).any()


@pytest.mark.parametrize("new", [False, True])
def test_the_distribution_of_deviations_and_outliers(new):
    n, d, k = 8000, 6, 3
    problem = similar(n_clients=n, dim=d, rank=k, outliers=0.25, heterogeneity=0.5, head_norm=2.0)
    truth = problem.truth(5, [0])
    truth = problem.new_clients(truth, n, 5, [0]) if new else truth
    W, S = truth.W[0, :6000], truth.S[0, :6000]
    lengths = np.linalg.norm(W, axis=1)
    assert np.ptp(lengths) > 0.5
    assert_mean(np.square(S).sum(axis=1) / lengths**2, 0.3**2)
    entries = S / lengths[:, None] * math.sqrt(d) / 0.3
    assert stats.kstest(entries.ravel(), "norm").pvalue > 1e-4
    assert_mean(entries[:, :, None] * W[:, None] / lengths[:, None, None], 0.0)
    far = truth.S[0, 6000:] / 2.0
    assert_mean(far, 0.0)
    assert_mean(far[:, :, None] * far[:, None], np.eye(d) / d)
    assert_mean(far[:, :1] ** 4, 3 / (d * (d + 2)))
    assert stats.kstest(far[:, 0] ** 2, stats.beta(0.5, (d - 1) / 2).cdf).pvalue > 1e-4


MOMENTS = {
    "deviations": {"outliers": 0.0},
    "outliers": {"deviation": 0.0},
    "both": {},
    "both, similar heads": {"heterogeneity": 0.4, "head_norm": 2.0},
    "one model but for outliers": {"heterogeneity": 0.0, "deviation": 0.0},
    "large": {"deviation": 1.5, "outliers": 0.45},
}


@pytest.mark.long
@pytest.mark.parametrize("name", MOMENTS)
def test_the_second_moment(name):
    """Its mean given B*, in the coordinates of B* and of its complement."""
    problem = similar(**MOMENTS[name])
    (d, k), h, e = (problem.dim, problem.rank), problem.deviation, problem.n_outliers / problem.n_clients
    squared, share = (problem.head_norm or math.sqrt(k)) ** 2, problem.heterogeneity**2
    truth = problem.truth(0, range(1500))
    frame = np.linalg.qr(np.concatenate([truth.B, np.random.default_rng(1).standard_normal((1500, d, d - k))], -1))[0]
    frame[..., :k] = truth.B
    phi = truth.dense() @ frame
    M = phi.mT @ phi / problem.n_clients
    inside = share * squared / k * np.eye(k)
    inside[0, 0] += (1 - share) * squared
    mean = ((1 - e) * h**2 + e) * squared / d * np.eye(d)
    mean[:k, :k] += (1 - e) * inside
    assert_mean(M, mean)
    if problem.heterogeneity > 0:  # the top-k subspace of the mean is the span of B*
        values = np.linalg.eigvalsh(mean)[::-1]
        np.testing.assert_allclose(values[k - 1] - values[k], (1 - e) * share * squared / k, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", ["deviations", "outliers", "both"])
def test_the_top_subspace_of_finitely_many_clients(name):
    """To first order in 1/n: each entry of the tangents has the documented variance."""
    problem = similar(n_clients=4000, dim=15, rank=2, **MOMENTS[name])
    (n, d, k), h, e = (4000, 15, 2), problem.deviation, problem.outliers
    tangents = []
    for start in range(0, 120, 20):
        truth = problem.truth(0, range(start, start + 20))
        U = np.linalg.eigh(truth.dense().mT @ truth.dense() / n)[1][..., -k:]
        inside = truth.B.mT @ U
        tangents.append((U - truth.B @ inside) @ np.linalg.inv(inside))
    squares = np.square(np.concatenate(tangents)).sum(axis=(-2, -1))
    v = k**2 / (n * d * (1 - e) ** 2) * ((1 - e) * h**2 * (1 / k + h**2 / d) + e / (d + 2))
    assert_mean(squares, k * (d - k) * v)
    assert squares.std() / math.sqrt(len(squares)) < 0.04 * squares.mean()  # the test has power
    largest = np.linalg.norm(np.concatenate(tangents), 2, axis=(-2, -1))
    assert np.median(largest) == pytest.approx(math.sqrt(v) * (math.sqrt(d - k) + math.sqrt(k)), rel=0.2)


def test_the_risk_of_the_best_heads_at_the_span():
    problem = similar(n_clients=10, dim=6, rank=2, head_norm=2.0, noise_std=0.3)
    data = lf.GivenSamples.population(problem, trials=400)
    risks = lf.simulate(lf.Oracle(rank=2), problem, data=data, n_rounds=1, trials=400).metrics["risk"][:, -1]
    assert_mean(risks, (0.8 * 0.3**2 + 0.2) * (1 - 2 / 6) * 0.5 * 4.0 + 0.045)


RUNS = {
    "explicit": (lf.FedRep(rank=3, step_size=0.1), lf.FreshSamples(9)),
    "compressed": (lf.FedAvg(step_size=0.1, local_steps=2), lf.FixedSamples(9)),
    "projected": (lf.FedRep(rank=3, step_size=0.1), lf.FreshSamples(9)),
}


@pytest.mark.parametrize("engine", RUNS)
def test_runs_are_those_of_the_same_arrays(engine):
    problem = similar(noise_std=0.1)
    truth = problem.truth(0, TRIALS)
    given = lf.GivenTruth(B=truth.B, W=truth.W, S=truth.S, noise_std=0.1)
    algorithm, data = RUNS[engine]
    run = {"data": data, "n_rounds": 4, "trials": 3, "participation": 0.5, "engine": engine}
    one, other = (lf.simulate(algorithm, each, **run) for each in (problem, given))
    assert_same(one, other)
    alone = lf.simulate(algorithm, problem, **run | {"trials": 1})
    assert_same(alone, one, slice(None), slice(1))


WRONG = [
    *(({"heterogeneity": value}, [f"heterogeneity = {value!r}", "from 0 to 1"]) for value in (-0.1, 1.5)),
    ({"heterogeneity": 0.5, "outliers": 0, "condition_number": 2.0}, ["heterogeneity = 0.5", "condition_number = 2"]),
    ({"outliers": 0.5, "condition_number": 2.0}, ["outliers = 0.5 cannot be combined with condition_number = 2"]),
    ({"outliers": 1.0}, ["outliers = 1 would make all n_clients = 20 clients outliers"]),
    ({"outliers": 0.5, "n_clients": 1}, ["outliers = 0.5 would make all n_clients = 1 clients outliers"]),
]


@pytest.mark.parametrize(("changes", "fragments"), WRONG)
def test_wrong_options_are_named(changes, fragments):
    assert_one_line(lambda: similar(**changes), fragments)


def test_it_is_a_value():
    problem = similar(deviation=np.float64(0.25), outliers=np.float32(0.25), heterogeneity=1)
    assert problem == similar(deviation=0.25, outliers=0.25)
    assert dataclasses.replace(problem, outliers=0.0).n_outliers == 0
    assert eval(repr(problem), {name: getattr(lf, name) for name in lf.__all__}) == problem


# --- outliers ------------------------------------------------------------------------------------------------


def test_outliers_have_their_own_length_and_may_share_one_regressor():
    plain, long, one = (similar(**more).truth(3, TRIALS) for more in ({}, {"outlier_norm": 9.0}, {"colluding": True}))
    assert [truth.n_outliers for truth in (plain, long, one)] == [4, 4, 4]
    for truth in (long, one):
        assert truth.dense()[:, :16].tobytes() == plain.dense()[:, :16].tobytes()
    length = np.linalg.norm(plain.dense()[:, 16:], axis=-1, keepdims=True)
    np.testing.assert_allclose(long.dense()[:, 16:], plain.dense()[:, 16:] * 9.0 / length, rtol=1e-13)
    np.testing.assert_array_equal(one.dense()[:, 16:], np.repeat(plain.dense()[:, 16:17], 4, axis=1))
    assert similar(outliers=0.0).truth(3, TRIALS).n_outliers == 0
    problem = similar(outlier_norm=9.0, colluding=True)
    new = problem.new_clients(problem.truth(3, TRIALS), 10, 5, TRIALS)
    assert new.n_outliers == 2
    np.testing.assert_allclose(np.linalg.norm(new.dense()[:, 8:], axis=-1), 9.0, rtol=1e-13)
    np.testing.assert_array_equal(new.dense()[:, 8], new.dense()[:, 9])


@pytest.mark.long
def test_the_tangents_of_long_outliers_have_the_formulas_variance():
    """The variance v in the docstring, at q = 2, against 4,000 ground truths."""
    n, d, k, h, e, q = 60, 8, 2, 0.3, 0.2, 2.0
    problem = lf.SimilarRepresentations(
        n_clients=n, dim=d, rank=k, deviation=h, outliers=e, outlier_norm=q * math.sqrt(k), head_norm=math.sqrt(k)
    )
    truth = problem.truth(0, range(4000))
    Phi = truth.dense()
    M = Phi.mT @ Phi / n
    inside = truth.B.mT @ M @ truth.B
    outside = M @ truth.B - truth.B @ inside
    tangents = outside * k / ((1 - e) * k)
    squares = np.square(tangents).sum(axis=(1, 2)) / (k * (d - k))
    v = k**2 / (n * d * (1 - e) ** 2) * ((1 - e) * h**2 * (1 / k + h**2 / d) + e * q**4 / (d + 2))
    assert squares.mean() == pytest.approx(v, rel=0.03)
    assert v / (k**2 / (n * d * (1 - e) ** 2) * ((1 - e) * h**2 * (1 / k + h**2 / d) + e / (d + 2))) > 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"outlier_norm": 0.0}, ["outlier_norm = 0", "positive"]),
        ({"outlier_norm": np.inf}, ["outlier_norm = inf", "finite"]),
        ({"colluding": 2}, ["colluding = 2"]),
    ],
)
def test_an_invalid_option_of_outliers_is_named(more, words):
    assert_one_line(lambda: similar(**more), words, errors=(ValueError, TypeError))
