"""Data of one's own: splits of one data set over clients, labels, and samples held out for tuning."""

import math
import sys
import types
from collections import Counter

import numpy as np
import pytest

import linfed as lf
from linfed.data import given_classes, samples, splits, synthetic
from linfed.numerics.streams import Stream, generators
from linfed.simulation.results import Result
from tests.helpers import assert_one_line, normal

RNG = np.random.default_rng(0)
NUMBERS = np.arange(41.0)
X = np.column_stack([NUMBERS, RNG.normal(size=(41, 3))])
KINDS = (lf.GivenSamples, lf.GivenClasses)


def samples_of(part, trial, client):
    """The rows and labels of one client, without padding."""
    rows, y, counts = part.of_trials([trial])
    count = int(counts[0, client])
    assert not rows[0, client, count:].any()
    assert not y[0, client, count:].any()
    return rows[0, client, :count], y[0, client, :count]


@pytest.mark.parametrize("shares", [None, [1.0, 2.0, 3.0], np.array([10, 1, 1])])
def test_random_numbers_are_proportional_and_the_same_in_all_trials(shares):
    clients = lf.random_split(41, n_clients=3, shares=shares, trials=6, seed=5)
    counts = np.array([np.bincount(one) for one in clients])
    weights = np.ones(3) if shares is None else np.asarray(shares)
    assert np.abs(counts[0] - 41 * weights / weights.sum()).max() < 1
    assert not np.ptp(counts, axis=0).any()
    assert len({tuple(one) for one in clients}) == 6
    assert np.array_equal(clients[:2], lf.random_split(41, n_clients=3, shares=shares, trials=2, seed=5))


def test_numbers_of_samples_are_differences_of_rounded_ends():
    """Ends at 13.67 and 27.33, at 6.83 and 20.5 (to even), and at 34.17 and 37.58 of 41."""
    for shares, wanted in ((None, [14, 13, 14]), ([1, 2, 3], [7, 13, 21]), ([10, 1, 1], [34, 4, 3])):
        for clients in (
            lf.random_split(41, n_clients=3, shares=shares),
            lf.feature_split(NUMBERS, n_clients=3, shares=shares),
        ):
            assert np.bincount(clients[0]).tolist() == wanted


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lf.random_split(3, n_clients=4), "n_clients = 4"),
        (lambda: lf.random_split(9, n_clients=2, shares=[1]), r"shares has shape \(1,\), expected"),
        (lambda: lf.random_split(9, n_clients=2, shares=[1, 0]), r"shares = \[1, 0\] must be positive"),
        (
            lambda: lf.random_split(9, n_clients=2, shares=[1, 1e-3]),
            "shares: client 1 of n_clients = 2 would have none",
        ),
        (lambda: lf.feature_split([[1.0]], n_clients=1), "feature"),
        (lambda: lf.GivenSamples.split(X, NUMBERS[:5], [[0] * 41]), "y"),
        (lambda: lf.GivenSamples.split(X, NUMBERS, [[0] * 40 + [1], [1] * 40 + [0]]), "clients: client 0 has 1 to 40"),
        (lambda: lf.GivenSamples.split(X, NUMBERS, [range(41)]), "test_share = 0.2 holds out no sample"),
        (lambda: lf.GivenSamples(X[None], NUMBERS[None]).hold_out(0.001), "share = 0.001 holds out no sample"),
        (lambda: lf.GivenSamples(X[None], NUMBERS[None]).hold_out(0.0), "share = 0.0 must be"),
    ],
)
def test_what_cannot_be_split_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_split_samples_are_those_of_their_clients():
    clients = lf.random_split(41, n_clients=5, shares=[1, 2, 3, 4, 5], trials=3)
    data = lf.GivenSamples.split(X, 2 * NUMBERS, clients, test_share=0.3, seed=4)
    assert data.counts.shape == data.test.counts.shape == (5,)
    for trial, client in np.ndindex(3, 5):
        parts = [samples_of(part, trial, client) for part in (data, data.test)]
        rows, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        numbers = rows[:, 0].astype(int)
        assert sorted(numbers) == np.flatnonzero(clients[trial] == client).tolist()
        assert np.array_equal(rows, X[numbers])
        assert np.array_equal(y, 2.0 * numbers)
        assert len(parts[1][1]) == np.floor(0.3 * len(numbers) + 0.5)


@pytest.mark.parametrize(("share", "count"), [(0.29, 15), (0.57, 29), (0.58, 29), (1 / 6, 8)])
def test_half_a_held_out_sample_counts_as_one(share, count):
    held_out = lf.GivenSamples(np.ones((1, 50, 2)), np.ones((1, 50))).hold_out(share)
    assert held_out.test.counts.tolist() == [count]


def test_a_run_on_split_samples_is_the_run_on_each_trials_lists(tmp_path):
    y = X[:, 1] - X[:, 2]
    data = lf.GivenSamples.split(X[:, 1:], y, lf.feature_split(X[:, 1], n_clients=3, shares=[3, 2, 1], trials=2))
    fedrep = lf.FedRep(rank=1, step_size=0.3)
    together = lf.simulate(fedrep, data=data, rounds=5, trials=2)
    for trial in range(2):
        train, test = (
            list(zip(*(samples_of(part, trial, i) for i in range(3)), strict=True)) for part in (data, data.test)
        )
        alone = lf.simulate(fedrep, data=lf.GivenSamples(*map(list, train), test=tuple(map(list, test))), rounds=5)
        for name in ("train_loss", "test_loss"):
            np.testing.assert_allclose(together.metrics[name][trial], alone.metrics[name][0], rtol=1e-9)
    loaded = Result.load(together.save(tmp_path / "run.npz"))
    assert repr(loaded.data) == repr(data)
    assert np.array_equal(loaded.data.test.X, data.test.X)


def labelled(kind):
    """Data of each form with samples whose first feature is their number, and whose test samples are negative."""
    labels = np.arange(41) % 3
    if kind == "lists":
        parts = [X[:7], X[7:20], X[20:]]
        return lf.GivenSamples(parts, [part[:, 0] for part in parts], test=([-part for part in parts], parts_y(parts)))
    if kind == "arrays":
        stack = X[:40].reshape(4, 10, 4)
        return lf.GivenSamples(stack, stack[..., 0], test=(-stack, stack[..., 0]))
    if kind == "split":
        return lf.GivenSamples.split(X, NUMBERS, lf.random_split(41, n_clients=4, shares=[1, 1, 1, 2], trials=3))
    clients = lf.dirichlet_split(labels, n_clients=3, concentration=1.0, min_samples=4, trials=3)
    return lf.GivenClasses.split(X, labels, clients)


def parts_y(parts):
    return [part[:, 0] for part in parts]


@pytest.mark.parametrize("kind", ["lists", "arrays", "split", "classes"])
def test_samples_are_held_out_of_the_training_samples_alone(kind):
    data = labelled(kind)
    divided = data.hold_out(0.25, seed=3)
    assert type(divided) is type(data)
    assert divided.n_trials == data.n_trials
    for trial, client in np.ndindex(data.n_trials or 1, data.n_clients):
        rows, y = samples_of(data, trial, client)
        parts = [samples_of(part, trial, client) for part in (divided, divided.test)]
        found, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order, expected = np.argsort(found[:, 0]), np.argsort(rows[:, 0])
        assert np.array_equal(found[order], rows[expected])
        assert np.array_equal(labels[order], y[expected])
        if kind == "classes":
            assert set(parts[1][1]) <= set(parts[0][1])
        else:
            assert len(parts[1][1]) == np.floor(0.25 * len(rows) + 0.5)
    if kind == "classes":
        assert divided.n_classes == divided.test.n_classes == 3
    again, other = data.hold_out(0.25, seed=3), data.hold_out(0.25, seed=4)
    assert np.array_equal(again.X, divided.X)
    assert not np.array_equal(other.X, divided.X)


@pytest.mark.parametrize("trials", [range(3), range(1, 3), [2, 0], range(2, 0, -1)])
@pytest.mark.parametrize("kind", ["lists", "arrays", "split", "classes"])
def test_each_trial_has_its_samples_or_those_of_all(kind, trials):
    data = labelled(kind)
    for part in (data, data.test):
        X, y, counts = part.of_trials(trials)
        assert len(X) == len(y) == len(counts) == len(trials)
        for t, trial in enumerate(trials):
            for found, array, whole in ((X, part.X, 4), (y, part.y, 3), (counts, part.counts, 2)):
                assert np.array_equal(found[t], array[trial] if array.ndim == whole else array)


def test_the_scale_is_the_root_mean_square_label():
    lists = lf.GivenSamples([X[:1], X[1:3]], [[3.0], [1.0, 2.0]])
    np.testing.assert_allclose(lists.scale, [(14 / 3) ** 0.5], rtol=1e-14)
    y = RNG.normal(size=(2, 4, 10))
    of_trials = lf.GivenSamples(np.ones((2, 4, 10, 3)), y)
    np.testing.assert_allclose(of_trials.scale, np.sqrt((y**2).mean(axis=(1, 2))), rtol=1e-14)


def test_numbers_of_fresh_samples():
    equal, unequal = lf.FreshSamples(5), lf.FreshSamples(np.array([4, 9, 3]))
    assert (equal.unequal, equal.smallest, equal.largest) == (False, 5, 5)
    assert (unequal.unequal, unequal.smallest, unequal.largest, unequal.n_samples) == (True, 3, 9, (4, 9, 3))


def test_what_is_left_out_is_what_is_documented():
    labels, few = np.arange(41) % 3, {"trials": 1, "seed": 0}
    problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=2)
    several = {"n_clients": 6, "concentration": 0.7, "trials": 20}
    splits_of = [
        (lf.random_split(41, n_clients=3), lf.random_split(41, n_clients=3, shares=[1, 1, 1], **few)),
        (lf.feature_split(labels, n_clients=3), lf.feature_split(labels, n_clients=3, shares=[1, 1, 1], **few)),
        (lf.dirichlet_split(labels, **several), lf.dirichlet_split(labels, **several, seed=0, min_samples=2)),
    ]
    for split, more in (
        (lf.classwise_split, {"n_clients": 4, "classes_per_client": 2}),
        (lf.dirichlet_split, {"n_clients": 3, "concentration": 1.0}),
    ):
        splits_of.append((split(labels, **more), split(labels, **more, **few)))
    for one, other in splits_of:
        assert np.array_equal(one, other)
    clients, data = splits_of[0][0], lf.GivenSamples(X[None], NUMBERS[None])
    pairs = [(kind.split(X, labels, clients), kind.split(X, labels, clients, test_share=0.2, seed=0)) for kind in KINDS]
    pairs += [
        (data.hold_out(0.25), data.hold_out(0.25, seed=0)),
        (lf.FixedSamples(5).draw(problem), lf.FixedSamples(5, in_law=None).draw(problem, **few)),
        (lf.GivenSamples.population(problem), lf.GivenSamples.population(problem, **few)),
    ]
    for one, other in pairs:
        for first, second in ((one, other), (one.test, other.test)) if one.test else ((one, other),):
            assert np.array_equal(first.X, second.X)
            assert np.array_equal(first.y, second.y)


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


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_nobody_are_in_no_part(kind):
    labels, clients = np.arange(41) % 3, np.repeat(lf.random_split(41, n_clients=5), 2, axis=0)
    clients[:, [0, 5, 40]] = -1
    for share in (0.0, 0.3):
        data = kind.split(X, labels, clients, test_share=share)
        assert (data.test is None) == (share == 0)
        parts = [data] if share == 0 else [data, data.test]
        for trial in range(2):
            found = [samples_of(part, trial, client) for part in parts for client in range(5)]
            numbers = np.concatenate([rows[:, 0] for rows, _ in found]).astype(int)
            assert sorted(numbers) == [j for j in range(41) if j not in (0, 5, 40)]
            assert np.array_equal(np.concatenate([y for _, y in found]), labels[numbers])


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_of_several_numbers_holds_out_by_trial(kind):
    """Every trial as `held_out` chooses with the trial's number behind the seed."""
    data = kind(np.repeat(X[None, :40].reshape(1, 4, 10, 4), 3, axis=0), np.tile(np.arange(10) % 2, (3, 4, 1)))
    for seed, numbers in ((7, (7,)), ((7, 2), (7, 2))):
        divided = data.hold_out(0.3, seed=seed)
        for trial in range(3):
            owner, strata = np.repeat(np.arange(4), 10)[None], np.tile(np.arange(10) % 2, 4) * (kind is KINDS[1])
            _, (test,) = splits.held_out(owner, strata, 0.3, (*numbers, trial))
            for client in range(4):
                rows = samples_of(divided.test, trial, client)[0]
                assert np.array_equal(rows[:, 0], test[owner[0, test] == client])


# --- labels --------------------------------------------------------------------------------------------------

SIZES = {0: 7, 1: 10, 2: 5, 4: 8}
CLASSES = np.random.default_rng(1).permutation(np.repeat([*SIZES], [*SIZES.values()]))
"""Shuffled labels, with a gap between their numbers."""


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


def test_split_classes_are_held_by_their_clients():
    clients = lf.dirichlet_split(CLASSES, n_clients=3, concentration=1.0, trials=3, min_samples=5)
    rows = np.column_stack([np.arange(30.0), normal(30, 2)])
    data = lf.GivenClasses.split(rows, CLASSES, clients, n_classes=6, test_share=0.3, seed=4)
    assert (data.n_classes, data.test.n_classes, data.scale.tolist()) == (6, 6, [1.0] * 3)
    for part in (data, data.test):
        for trial, client in np.ndindex(3, 3):
            found, y = samples_of(part, trial, client)
            numbers = found[:, 0].astype(int)
            assert np.array_equal(found, rows[numbers])
            assert np.array_equal(y, CLASSES[numbers])
            assert (clients[trial, numbers] == client).all()
            assert np.array_equal(part.holds[trial, client], np.isin(np.arange(6), y))


def test_the_number_of_classes_is_given_or_that_of_all_labels():
    rows, labels = X[:40].reshape(4, 10, 4), np.tile(np.arange(10) % 2, (4, 1))
    for wanted, given in ((2, {}), (2, {"n_classes": 2}), (9, {"n_classes": 9}), (5, {"test": (rows, labels + 3)})):
        data = lf.GivenClasses(rows, labels, **given)
        assert (data.n_classes, data.holds.shape, data.scale.tolist()) == (wanted, (4, wanted), [1.0])
        assert data.holds[:, :2].all()
        assert not data.holds[:, 2:].any()
        assert data.test is None or data.test.holds.tolist() == [[False] * 3 + [True] * 2] * 4
    assert lf.GivenClasses(rows, 0 * labels, n_classes=2).holds.tolist() == [[True, False]] * 4
    for wrong in ({"n_classes": 1}, {"n_classes": 1.5}):
        assert_one_line(lambda wrong=wrong: lf.GivenClasses(rows, labels, **wrong), ["n_classes = 1", "at least 2"])
    for bad, said in ((labels - 1, "holds -1.0"), (labels / 2, "holds 0.5"), (0 * labels, "only class 0")):
        assert_one_line(lambda bad=bad: lf.GivenClasses(rows, bad), ["labels", said])
    assert_one_line(lambda: lf.GivenClasses(rows, labels + 1, n_classes=2), ["labels holds 2.0", "from 0 to 1"])


def test_classes_without_samples_are_listed_up_to_three():
    clients = np.zeros((1, 41), dtype=int)
    for empty, listed in ((1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (6, "0, 1, 2 and 3 more")):
        labels = empty + np.arange(41) % 2
        wanted = f"contains no sample of class {listed}: number .* set n_classes={empty + 2}$"
        with pytest.warns(UserWarning, match=wanted):
            lf.GivenClasses.split(X, labels, clients)
        lf.GivenClasses.split(X, labels, clients, n_classes=empty + 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_held_out_samples_may_begin_with_an_empty_one(kind):
    y = np.arange(41) % 2
    for nothing in ([], np.zeros((0, 4))):
        data = kind([X[:3], X[3:8]], [y[:3], y[3:8]], test=([nothing, X[8:12]], [[], y[8:12]]))
        assert data.test.counts.tolist() == [0.0, 4.0]
        assert np.array_equal(data.test.X, [np.zeros((4, 4)), X[8:12]])
        assert np.array_equal(data.test.y, [np.zeros(4), y[8:12]])
    wrong = ([np.zeros((0, 3)), X[8:12]], [[], y[8:12]])
    assert_one_line(lambda: kind(X[:8].reshape(2, 4, 4), y[:8].reshape(2, 4), test=wrong), ["test X[0]", "(0, 3)"])


def test_labels_to_be_split_are_whole_numbers_from_0():
    for labels in ([0, 1, -1, 1], [0, 1, 0.5, 1]):
        for call in (
            lambda labels=labels: lf.classwise_split(labels, n_clients=2, classes_per_client=1),
            lambda labels=labels: lf.dirichlet_split(labels, n_clients=2, concentration=1.0),
        ):
            assert_one_line(call, [f"labels holds {labels[2]:.1f} at index (2,)", "from 0"])
    for owners in ([-2, *range(40)], [41, *range(40)]):
        wanted = [f"clients holds {owners[0]}.0 at index (0, 0)", "from -1 (unassigned) to 40"]
        assert_one_line(lambda owners=owners: lf.GivenSamples.split(X, NUMBERS, [owners]), wanted)
    assert_one_line(lambda: lf.GivenSamples.split(X, NUMBERS, [[-1] * 41]), ["contains only -1 (unassigned)"])
    gap = [[0, 2] * 20 + [0]]
    assert_one_line(lambda: lf.GivenSamples.split(X, NUMBERS, gap), ["no sample of client 1 in trial 0"])


def test_digits_are_scaled_to_one(monkeypatch):
    package = types.ModuleType("sklearn.datasets")
    package.load_digits = lambda *, return_X_y: (np.array([[0.0, 4.0, 16.0]]), np.array([3])) if return_X_y else None
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", package)
    rows, labels = lf.load_digits()
    assert (rows.tolist(), labels.tolist(), rows.dtype) == ([[0.0, 0.25, 1.0]], [3], np.float64)


# --- memory --------------------------------------------------------------------------------------------------


def test_the_memory_that_is_checked_is_that_of_the_arrays(monkeypatch):
    """A copy beside what is drawn, and what is held alone."""
    checked = []
    for module in (splits, samples, given_classes, synthetic):
        monkeypatch.setattr(module, "check_fits", lambda values, *texts: checked.append(values))

    def asked(call):
        checked.clear()
        return call(), list(checked)

    problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=2)
    for split in (
        lambda: lf.random_split(41, n_clients=3, trials=4),
        lambda: lf.feature_split(NUMBERS, n_clients=3, trials=4),
        lambda: lf.classwise_split(CLASSES, n_clients=3, classes_per_client=2, trials=4),
        lambda: lf.dirichlet_split(CLASSES, n_clients=3, concentration=1.0, trials=4),
    ):
        clients, found = asked(split)
        assert found == [clients.size]
    clients = lf.random_split(41, n_clients=3, shares=[1, 2, 3], trials=4)
    for kind in KINDS:
        data, found = asked(lambda kind=kind: kind.split(X, np.arange(41) % 5, clients))
        wanted = [part.X.size + part.y.size for part in (data, data.test)]
        assert found == wanted + [part.holds.size for part in (data, data.test) if kind is lf.GivenClasses]
    for draw in (
        lambda: lf.FixedSamples(5).draw(problem, trials=2),
        lambda: lf.GivenSamples.population(problem, trials=2),
    ):
        data, found = asked(draw)
        assert found == [2 * (data.X.size + data.y.size) + 2 * problem.floats_per_trial()]
    data, found = asked(lambda: lf.synthetic_classes(1.0, 1.0, n_clients=3, dim=4, n_samples=[5, 9, 2], trials=2))
    arrays = [data.X.size, data.y.size, data.test.X.size, data.test.y.size]
    assert found == [2 * sum(arrays), data.holds.size, data.test.holds.size]
