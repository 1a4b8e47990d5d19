"""Splits of one data set over clients: whose samples are whose, for any number of trials, and who is held out."""

import math
from collections import Counter

import numpy as np
import pytest

import linfed as lf
from linfed.data import splits
from linfed.numerics.streams import Stream, generators
from linfed.system import memory
from tests.helpers import assert_one_line

RNG = np.random.default_rng(0)
NUMBERS = np.arange(41.0)
SIZES = {0: 7, 1: 10, 2: 5, 4: 8}
CLASSES = np.random.default_rng(1).permutation(np.repeat([*SIZES], [*SIZES.values()]))
"""Shuffled labels, with a gap between their numbers."""


KINDS = {
    "random": lambda **more: lf.random_split(30, n_clients=3, shares=[1, 2, 3], **more),
    "by a feature with ties": lambda **more: lf.feature_split(np.arange(30) // 4, n_clients=4, **more),
    "classwise": lambda **more: lf.classwise_split(CLASSES, n_clients=5, classes_per_client=2, **more),
    "classwise, by client": lambda **more: lf.classwise_split(
        CLASSES, n_clients=3, classes_per_client=[1, 2, 4], **more
    ),
    "dirichlet": lambda **more: lf.dirichlet_split(CLASSES, n_clients=3, concentration=0.4, **more),
    "dirichlet, redrawn": lambda **more: lf.dirichlet_split(
        CLASSES, n_clients=3, concentration=0.2, min_samples=6, **more
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_of_a_split_is_the_same_among_any_others(kind):
    split = KINDS[kind]
    few, many = split(trials=3, seed=5), split(trials=30, seed=5)
    assert few.shape == (3, 30)
    assert np.array_equal(few, many[:3])
    assert np.array_equal(few[:1], split(seed=5))
    assert len({trial.tobytes() for trial in many}) > 15
    assert not np.array_equal(few, split(trials=3, seed=6))
    assert np.array_equal(split(trials=3, seed=(5, 1)), split(trials=3, seed=(5, 1)))


# --- random and by a feature ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "wanted"), [(None, [14, 13, 14]), ([1, 2, 3], [7, 13, 21]), ([10, 1, 1], [34, 4, 3])]
)
def test_numbers_of_samples_are_differences_of_rounded_ends(shares, wanted):
    """Ends at 13.67 and 27.33, at 6.83 and 20.5 (to even), and at 34.17 and 37.58 of 41; the same in all trials."""
    for split, values in ((lf.random_split, 41), (lf.feature_split, NUMBERS)):
        for clients in split(values, n_clients=3, shares=shares, trials=3):
            assert np.bincount(clients).tolist() == wanted


def test_a_random_split_is_uniform():
    """Two samples are together with the probability of a random permutation, in pairs and at each place."""
    clients = lf.random_split(6, n_clients=2, trials=4000)
    assert abs(clients.mean(axis=0) - 0.5).max() < 4 * 0.5 / 4000**0.5
    together = np.mean(clients[:, 0] == clients[:, 1])
    assert abs(together - 0.4) < 4 * (0.24 / 4000) ** 0.5


def test_clients_of_a_feature_split_have_intervals():
    feature = RNG.permutation(41) / 7
    (clients,) = lf.feature_split(feature, n_clients=4, shares=[1, 1, 2, 4])
    assert np.array_equal(clients, np.sort(clients)[np.argsort(np.argsort(feature))])
    counts = np.bincount(clients)
    assert counts.sum() == 41
    assert np.abs(counts - 41 * np.array([1, 1, 2, 4]) / 8).max() < 1


def test_ties_of_a_feature_are_broken_at_random():
    clients = lf.feature_split(np.repeat([0.0, 1.0], 10), n_clients=4, trials=50)
    assert (np.sort(clients[:, :10]) == np.repeat([0, 1], 5)).all()
    assert len({tuple(one) for one in clients}) == 50


# --- by labels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "own"), [(6, 2), (5, 1), (3, [1, 2, 4]), (1, 1), (2, 1)])
def test_holders_of_a_class_share_it_evenly(n, own):
    for clients in lf.classwise_split(CLASSES, n_clients=n, classes_per_client=own, trials=6, seed=2):
        table = np.array([[np.sum((clients == i) & (label == CLASSES)) for label in SIZES] for i in range(n)])
        holders = (table > 0).sum(axis=0)
        assert (table > 0).sum(axis=1).tolist() == np.broadcast_to(own, n).tolist()
        assert np.ptp(holders) <= 1
        for label, column, count in zip(SIZES, table.T, holders, strict=True):
            assert column.sum() == (SIZES[label] if count else 0)
            assert sorted(column[column > 0]) == sorted((SIZES[label] + j) // count for j in range(count))
            assert count or (clients[label == CLASSES] == -1).all()


def test_every_client_and_class_meet_equally_often():
    labels, trials = np.repeat(range(5), 8), 2000
    clients = lf.classwise_split(labels, n_clients=4, classes_per_client=2, trials=trials)
    meets = np.array([[np.mean((clients[:, labels == j] == i).any(axis=1)) for j in range(5)] for i in range(4)])
    assert abs(meets - 0.4).max() < 4.9 * np.sqrt(0.24 / trials)
    firsts = np.array([np.mean(clients[:, 0] == i) for i in range(4)])  # and no sample prefers a client
    assert abs(firsts - 0.25).max() < 4.9 * np.sqrt(0.1875 / trials)


def test_no_pair_of_clients_is_nearer_than_another():
    """Of three with two of five classes the first two to choose share none, the last one shares with one of them."""
    labels, trials = np.repeat(range(5), 2), 2000
    clients = lf.classwise_split(labels, n_clients=3, classes_per_client=2, trials=trials)
    has = np.stack([[(clients[:, labels == j] == i).any(axis=1) for j in range(5)] for i in range(3)])
    shared = [np.mean((has[i] & has[j]).any(axis=0)) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert abs(np.array(shared) - 1.0 / 3.0).max() < 4.9 * np.sqrt(2.0 / 9.0 / trials)


def test_what_does_not_come_out_even_is_anybodys():
    trials = 2000
    clients = lf.classwise_split(np.zeros(7), n_clients=4, classes_per_client=1, trials=trials)
    more = np.array([np.mean((clients == i).sum(axis=1) == 2) for i in range(4)])
    assert abs(more - 0.75).max() < 4.9 * np.sqrt(0.75 * 0.25 / trials)


def test_dirichlet_shares_are_rounded_cumulatively():
    """The first draw that gives every client enough samples counts."""
    alpha = np.full(4, 0.6)
    for least in (1, 3):
        clients = lf.dirichlet_split(CLASSES, n_clients=4, concentration=0.6, trials=8, seed=3, min_samples=least)
        for one, rng in zip(clients, generators(3, Stream.SPLIT, range(8)), strict=True):
            table = np.zeros((4, 4))
            while table.sum(axis=0).min() < least:
                for row, p, size in zip(table, rng.dirichlet(alpha, 4), SIZES.values(), strict=True):
                    row[:] = np.diff([0, *(round(size * p[: i + 1].sum()) for i in range(3)), size])
            assert np.array_equal(table, [np.bincount(one[label == CLASSES], minlength=4) for label in SIZES])


@pytest.mark.parametrize("concentration", [1e-300, 1e12])
def test_samples_may_be_just_enough_for_all(concentration):
    clients = lf.dirichlet_split([0, 1, 1, 0], n_clients=2, concentration=1.0, trials=20, min_samples=2)
    assert (clients.sum(axis=1) == 2).all()
    (clients,) = lf.dirichlet_split(CLASSES, n_clients=2, concentration=concentration)
    table = np.array([np.bincount(clients[label == CLASSES], minlength=2) for label in SIZES])
    assert (table.min(axis=1) == 0).all() if concentration < 1 else np.ptp(table, axis=1).max() <= 1


# --- held out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.25, 0.3, 0.5, 1.0])
def test_the_first_samples_of_each_client_and_class_are_held_out(share):
    """In a random order, in which the others keep theirs; nobody's samples are left out."""
    labels, clients = np.arange(41) % 3, lf.random_split(41, n_clients=4, shares=[1, 1, 1, 2], trials=3)
    clients[:, ::7] = -1
    train, test = splits.held_out(clients, labels, share, 5)
    for owner, rng, *found in zip(clients, generators(5, Stream.HELD_OUT, range(3)), train, test, strict=True):
        sizes, seen, wanted = Counter(zip(owner, labels, strict=True)), Counter(), ([], [])
        for j in rng.permutation(41):
            group = owner[j], labels[j]
            if owner[j] >= 0:
                wanted[seen[group] < min(math.floor(share * sizes[group] + 0.5), sizes[group] - 1)].append(j)
            seen[group] += 1
        assert [part.tolist() for part in found] == list(wanted)


def test_places_count_within_groups():
    groups = np.random.default_rng(3).integers(-2, 5, 60)
    place, sizes = splits.places(groups)
    for j, group in enumerate(groups):
        assert place[j] == (groups[:j] == group).sum()
        assert sizes[j] == (groups == group).sum()


# --- wrong arguments -----------------------------------------------------------------------------------------


FEW = np.arange(8) % 2


def classwise(labels=FEW, **changes):
    return lf.classwise_split(labels, **{"n_clients": 2, "classes_per_client": 1} | changes)


def dirichlet(labels=FEW, **changes):
    return lf.dirichlet_split(labels, **{"n_clients": 2, "concentration": 1.0} | changes)


WRONG = {
    "no labels": (lambda: classwise([]), ["labels has shape (0,)", "no axis may be empty"]),
    "a table of labels": (lambda: classwise(np.ones((4, 7))), ["labels has shape (4, 7)", "(samples,)"]),
    "a negative label": (lambda: classwise([0, 1, -1, 1]), ["labels holds -1.0 at index (2,)", "from 0"]),
    "a fraction": (lambda: dirichlet([0, 1, 0.5, 1]), ["labels holds 0.5 at index (2,)", "from 0"]),
    "no clients": (lambda: classwise(n_clients=0), ["n_clients = 0", "at least 1"]),
    "more clients than samples": (lambda: classwise(n_clients=9), ["n_clients = 9", "from 1 to 8"]),
    "more clients than numbers": (lambda: lf.random_split(3, n_clients=4), ["n_clients = 4"]),
    "no classes": (lambda: classwise(classes_per_client=0), ["classes_per_client = 0", "at least 1"]),
    "too many classes": (lambda: classwise(classes_per_client=3), ["classes_per_client = 3", "from 1 to 2"]),
    "too many classes of one": (lambda: classwise(classes_per_client=[1, 3]), ["classes_per_client[1] = 3", "1 to 2"]),
    "other clients": (lambda: classwise(classes_per_client=[1]), ["classes_per_client has 1 entr", "n_clients = 2"]),
    "a word": (lambda: classwise(classes_per_client="two"), ["classes_per_client = 'two'", "integer"]),
    "no sample left": (
        lambda: classwise([0, 1, 1, 1, 1, 1], n_clients=4, classes_per_client=1),
        ["n_clients = 4", "in trial 0 client", "no sample"],
    ),
    "no trials": (lambda: classwise(trials=0), ["trials = 0", "at least 1"]),
    "no seed": (lambda: classwise(seed=None), ["seed = None"]),
    "no concentration": (lambda: dirichlet(concentration=0.0), ["concentration = 0.0", "positive"]),
    "too large a concentration": (lambda: dirichlet(concentration=1e13), ["concentration = 1", "from 0 to 1e+12"]),
    "no least number": (lambda: dirichlet(min_samples=0), ["min_samples = 0", "at least 1"]),
    "too many samples": (lambda: dirichlet(min_samples=5), ["n_clients = 2 with min_samples = 5 require 10 samples"]),
    "too skewed": (
        lambda: dirichlet([0] * 9 + [1], concentration=1e-9, min_samples=3),
        ["concentration = 1e-09", "1000 draws of trial 0", "min_samples = 3"],
    ),
    "shares of other clients": (lambda: lf.random_split(9, n_clients=2, shares=[1]), ["shares has shape (1,)"]),
    "a share of 0": (lambda: lf.random_split(9, n_clients=2, shares=[1, 0]), ["shares = [1, 0]", "positive"]),
    "a negative share": (lambda: lf.random_split(9, n_clients=2, shares=[3, -1]), ["shares = [3, -1]", "positive"]),
    "a small share": (
        lambda: lf.random_split(9, n_clients=2, shares=[1, 1e-3]),
        ["shares", "client 1 of n_clients = 2"],
    ),
    "a table of features": (lambda: lf.feature_split([[1.0]], n_clients=1), ["feature"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name):
    assert_one_line(*WRONG[name])


def test_a_split_that_does_not_fit_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "physical_memory", lambda: 8e6)
    assert_one_line(lambda: classwise(trials=10**12), ["trials = 1000000000000 of 8 samples"], lf.SizeError)


def test_shares_whose_sum_overflows_are_refused():
    assert_one_line(lambda: lf.random_split(10, n_clients=2, shares=[1e308, 1e308]), ["shares = [1e+308", "at most"])
    assert np.bincount(lf.random_split(10, n_clients=2, shares=[1e300, 1e300])[0]).tolist() == [5, 5]


HUGE = {
    "samples": lambda: lf.random_split(10**15, n_clients=2),
    "clients": lambda: lf.random_split(10**15, n_clients=10**15),
    "clients of synthetic data": lambda: lf.synthetic_classes(1.0, 1.0, n_clients=10**15, n_samples=5),
    "dimensions of synthetic data": lambda: lf.synthetic_classes(1.0, 1.0, dim=10**13, n_samples=1, test_samples=0),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_are_checked_before_arrays_are_made(name):
    assert_one_line(HUGE[name], ["half of the memory"], lf.errors.SizeError)


def test_a_row_of_a_split_with_unassigned_samples_is_no_list_of_names():
    (clients,) = lf.classwise_split(np.repeat([0, 1, 2], 4), n_clients=2, classes_per_client=1)
    assert clients.min() == -1
    X, y = np.arange(24.0).reshape(12, 2), np.ones(12)
    assert_one_line(lambda: lf.GivenSamples.split(X, y, clients), ["clients of shape (12,)", "give clients[None]"])
    assert lf.GivenSamples.split(X, y, clients[None], test_share=0).counts.sum() == (clients >= 0).sum()
