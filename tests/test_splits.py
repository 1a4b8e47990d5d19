"""Regression data of one's own: splits of one data set over clients, and samples held out for tuning."""

import numpy as np
import pytest

import linfed as lf
from linfed.simulation.results import Result

RNG = np.random.default_rng(0)
NUMBERS = np.arange(41.0)
X = np.column_stack([NUMBERS, RNG.normal(size=(41, 3))])


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
