"""The drawn shortcuts of a shared representation: their distribution, clusters, lengths and independence."""

import numpy as np
import pytest
from scipy import stats

import linfed as lf


def shortcuts(**changes):
    return lf.SharedWithShortcuts(**{"n_clients": 40, "dim": 9, "rank": 3, "shortcut_norm": 0.7} | changes)


KINDS = {
    "dense": {},
    "orthogonal": {"orthogonal": True},
    "sparse": {"sparsity": 2},
    "one entry": {"sparsity": 1},
    "as many entries as there are": {"sparsity": 9},
    "clusters": {"clusters": 4},
    "one cluster": {"clusters": 1},
    "sparse clusters": {"sparsity": 3, "clusters": 7},
    "orthogonal clusters": {"orthogonal": True, "clusters": 7},
    "a cluster for each": {"clusters": 40},
    "uncorrelated": {"uncorrelated": True},
    "orthogonal, uncorrelated": {"orthogonal": True, "uncorrelated": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_shared_part_is_that_of_shared_representation(kind):
    more = {"n_clients": 40, "dim": 9, "rank": 3, "noise_std": 0.3, "head_norm": 2.0, "condition_number": 1.5}
    more["design"] = "cube"
    one, other = shortcuts(**more, **KINDS[kind]), lf.SharedRepresentation(**more)
    truths = [(problem.truth((3, 1), [0, 4])) for problem in (one, other)]
    truths += [problem.new_clients(truth, 6, 5, [0, 4]) for problem, truth in zip((one, other), truths, strict=True)]
    for mine, its in (truths[:2], truths[2:]):
        assert mine.B.tobytes() == its.B.tobytes()
        assert mine.W.tobytes() == its.W.tobytes()
        assert (mine.noise_std, mine.design) == (its.noise_std, its.design)
        assert its.S is None
        np.testing.assert_allclose(mine.dense(), mine.W @ mine.B.mT + mine.S, atol=1e-15)
    assert truths[0].S.shape == (2, 40, 9)
    assert truths[2].S.shape == (2, 6, 9)
    assert one.truth_rank is None
    assert one.subspace_rank == 3
    np.testing.assert_allclose(truths[0].reference(3), truths[0].B, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_of_the_shortcuts(kind):
    """Independent Gaussian entries of variance ``shortcut_norm^2`` over their number, wherever there are any."""
    n, d, k = 4000, 9, 3
    options = KINDS[kind] | ({"clusters": 100 * KINDS[kind]["clusters"]} if "clusters" in KINDS[kind] else {})
    problem = shortcuts(n_clients=n, **options)
    truth = problem.truth(6, [0])
    for S in (truth.S[0], problem.new_clients(truth, n, 7, [0]).S[0]):
        own = S[: options.get("clusters", n)]
        if "orthogonal" in kind:
            np.testing.assert_allclose(own @ truth.B[0], 0, atol=1e-14)
            entries = own @ np.linalg.svd(truth.B[0])[0][:, k:]
        elif "sparsity" in options:
            size = options["sparsity"]
            assert ((own != 0).sum(axis=1) == size).all()
            entries = own[own != 0].reshape(-1, size)
            # Every place is as likely as any other.
            counts = (own != 0).sum(axis=0)
            assert size == d or stats.chisquare(counts).pvalue > 1e-4
        else:
            entries = own
        size = entries.shape[1]
        assert size == {"orthogonal": d - k}.get(kind.replace(",", "").split()[0], options.get("sparsity", d))
        squares = np.sum(entries**2) * size / 0.7**2
        assert 1e-4 < stats.chi2.cdf(squares, entries.size) < 1 - 1e-4
        assert stats.kstest(entries.ravel() * np.sqrt(size) / 0.7, "norm").pvalue > 1e-4
        if size > 1:
            correlation = np.corrcoef(entries, rowvar=False)[np.triu_indices(size, 1)]
            assert np.abs(correlation).max() < 5 / np.sqrt(len(entries))


def test_shortcuts_are_independent_of_the_shared_part():
    truth = shortcuts(n_clients=2, dim=3, rank=1).truth(0, range(1000))
    parts = np.concatenate([truth.B[..., 0], truth.W[..., 0], truth.S[:, 0], truth.S[:, 1]], axis=1)
    correlation = np.corrcoef(parts, rowvar=False)[:5, 5:]
    assert np.abs(correlation).max() < 5 / np.sqrt(1000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "cluster" in kind])
def test_clients_of_a_cluster_share_one_shortcut(kind):
    problem = shortcuts(**KINDS[kind])
    count, truth = problem.clusters, problem.truth(0, range(2))
    for trial in range(2):
        own = {row.tobytes() for row in truth.S[trial]}
        assert len(own) == count
        for i, row in enumerate(truth.S[trial]):
            assert np.array_equal(row, truth.S[trial, i % count])
    for clients in (1, count, 3 * count + 1):  # new clients are of the same clusters, whatever their seed
        new = problem.new_clients(truth, clients, 5, range(2))
        assert np.array_equal(new.S, truth.S[:, np.arange(clients) % count])


def test_new_clients_without_clusters_have_shortcuts_of_their_own():
    problem = shortcuts()
    truth = problem.truth(0, range(2))
    new = [problem.new_clients(truth, 40, seed, range(2)).S for seed in (0, 0, 1)]
    assert np.array_equal(new[0], new[1])
    assert not np.isin(new[0], new[2]).any()
    assert not np.isin(new[0], truth.S).any()
    assert np.array_equal(problem.new_clients(problem.truth(0, [1]), 40, 0, [1]).S, new[0][1:])


@pytest.mark.parametrize("kind", KINDS)
def test_the_length_changes_nothing_else(kind):
    norms = {norm: shortcuts(shortcut_norm=norm, **KINDS[kind]).truth(3, range(2)).S for norm in (0, 0.5, 1, 3.7)}
    assert not norms[0].any()
    assert np.array_equal(2 * norms[0.5], norms[1])
    np.testing.assert_allclose(3.7 * norms[1], norms[3.7], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trials_shortcuts_are_its_own(kind):
    problem = shortcuts(**KINDS[kind])
    together = problem.truth(2, range(3)).S
    for trial in range(3):
        assert together[trial].tobytes() == problem.truth(2, [trial]).S[0].tobytes()
    assert not np.isin(together[0][together[0] != 0], together[1]).any()
    assert not np.isin(together[0][together[0] != 0], problem.truth(1, [0]).S).any()


@pytest.mark.parametrize("orthogonal", [True, False])
def test_uncorrelated_shortcuts_are_so_to_rounding_and_keep_their_lengths(orthogonal):
    drawn = shortcuts(orthogonal=orthogonal).truth(2, range(3))
    truth = shortcuts(orthogonal=orthogonal, uncorrelated=True).truth(2, range(3))
    assert np.abs(drawn.S.mT @ drawn.W).max() > 0.1
    np.testing.assert_allclose(truth.S.mT @ truth.W, 0, atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(truth.S, axis=(1, 2)), np.linalg.norm(drawn.S, axis=(1, 2)))
    if orthogonal:
        np.testing.assert_allclose(truth.S @ truth.B, 0, atol=1e-14)


def test_uncorrelated_shortcuts_of_equal_heads():
    """All heads are equal: the shortcuts lose their mean, and no client loses its own."""
    truth = shortcuts(heterogeneity=0.0, uncorrelated=True).truth(2, range(3))
    drawn = shortcuts(heterogeneity=0.0).truth(2, range(3)).S
    np.testing.assert_allclose(truth.S.mT @ truth.W, 0, atol=1e-13)
    centred = drawn - drawn.mean(axis=1, keepdims=True)
    factors = np.linalg.norm(drawn, axis=(1, 2)) / np.linalg.norm(centred, axis=(1, 2))
    np.testing.assert_allclose(truth.S, centred * factors[:, None, None], atol=1e-14)


def test_labels_are_those_of_the_truth():
    problem = shortcuts(noise_std=0.0, sparsity=2)
    data = lf.FixedSamples(5).draw(problem, trials=2, seed=3)
    wanted = (data.X @ problem.truth(3, range(2)).dense()[..., None])[..., 0]
    np.testing.assert_allclose(data.y, wanted, atol=1e-13)
