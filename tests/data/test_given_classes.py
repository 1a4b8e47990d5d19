"""Labelled data of the user's own: what holds them, and how they are split among clients."""

import copy
import pickle
import sys

import numpy as np
import pytest

import linfed as lf
from linfed.data import splits
from linfed.data.class_sources import FixedClassSource
from linfed.data.samples import given_batch
from linfed.data.sources import Sizes
from linfed.system import memory
from linfed.system.description import describe
from tests.helpers import assert_one_line, each, normal

datasets = pytest.importorskip("sklearn.datasets")
pytestmark = pytest.mark.long

N, D, C = 4, 5, 3
COUNTS, TEST_COUNTS = [6, 1, 4, 9], [2, 0, 0, 3]
LOADERS = {
    "digits": lf.load_digits,
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
}
REAL = {name: load() for name, load in LOADERS.items()}
DIGITS, LABELS = REAL["digits"]


def whole(*shape, classes=C, seed=0):
    return np.random.default_rng(seed).integers(0, classes, shape)


def ragged(counts, seed=0):
    return [normal(m, D, seed=seed + i) for i, m in enumerate(counts)], [
        whole(m, seed=seed + i) for i, m in enumerate(counts)
    ]


FORMS = {
    "arrays": (normal(N, 7, D), whole(N, 7)),
    "arrays of trials": (normal(3, N, 7, D), whole(3, N, 7)),
    "lists": ragged(COUNTS),
}
TESTS = {
    "none": None,
    "arrays": (normal(N, 2, D, seed=5), whole(N, 2, seed=5)),
    "arrays of trials": (normal(3, N, 2, D, seed=5), whole(3, N, 2, seed=5)),
    "lists": ragged(TEST_COUNTS, seed=5),
}


def own(X, y, counts, trial, client):
    """Return a client's samples and labels in a trial, without padding, of arrays with a trial axis."""
    m = int(counts[trial, client])
    return X[trial, client, :m], y[trial, client, :m]


def numbered(samples, classes=3, trials=4, n=5, **changes):
    """Return data whose samples know their number, from 1, and the split that they come from."""
    labels = np.arange(samples) % classes
    clients = lf.dirichlet_split(labels, n_clients=n, concentration=1.0, trials=trials)
    X = np.arange(1.0, samples + 1)[:, None] * [1.0, -1.0]
    return lf.GivenClasses.split(X, labels, clients, **changes), labels, clients


# --- what holds them -----------------------------------------------------------------------------------------


@each("form, held_out", [(form, test) for form in FORMS for test in TESTS])
def test_samples_of_every_form_are_held_and_given_by_trial(form, held_out):
    (X, labels), test = FORMS[form], TESTS[held_out]
    data = lf.GivenClasses(X, labels, test=test)
    assert (data.n_clients, data.dim, data.n_classes) == (N, D, C)
    assert data.n_trials == (3 if "arrays of trials" in (form, held_out) else None)
    assert (data.test is None) == (test is None)
    for part, given in [(data, (X, labels)), *([(data.test, test)] if test else [])]:
        assert isinstance(part, lf.GivenClasses)
        assert part.n_classes == C
        assert part.y.dtype == np.float64
        of_trials = part.of_trials(range(1, 3))
        assert [array.shape[:2] for array in of_trials] == [(2, N)] * 3
        for t, trial in enumerate((1, 2)):
            rows, values = (part[trial] if np.ndim(given[0][0]) == 3 else part for part in given)
            for client in range(N):
                x, y = own(*of_trials, t, client)
                assert np.array_equal(x, rows[client])
                assert np.array_equal(y, values[client])
        assert np.array_equal(given_batch(part, range(3)).counts, part.of_trials(range(3))[2])


@each("form", FORMS)
def test_holds_says_who_has_which_class(form):
    X, labels = FORMS[form]
    data = lf.GivenClasses(X, labels, n_classes=C + 2, test=TESTS["lists"])
    trials = [data.y] if data.y.ndim == 2 else data.y
    held = [[np.isin(range(C + 2), y[: int(m)]) for y, m in zip(ys, data.counts, strict=True)] for ys in trials]
    assert np.array_equal(data.holds.reshape(len(trials), N, C + 2), held)
    assert data.holds.dtype == bool
    assert data.holds.shape == (*data.y.shape[:-1], C + 2)
    assert data.test.holds.any(axis=1).tolist() == [True, False, False, True]


def test_padding_holds_no_class():
    data = lf.GivenClasses([normal(1, D), normal(5, D)], [[2], [1, 1, 1, 1, 2]])
    assert data.holds.tolist() == [[False, False, True], [False, True, True]]
    assert data.y.tolist() == [[2, 0, 0, 0, 0], [1, 1, 1, 1, 2]]


def test_the_number_of_classes_is_said_or_found_in_all_labels():
    X, y = FORMS["arrays"]
    assert lf.GivenClasses(X, np.minimum(y, 1)).n_classes == 2
    assert lf.GivenClasses(X, np.minimum(y, 1), n_classes=9).n_classes == 9
    assert lf.GivenClasses(X, np.minimum(y, 1), test=(X, y + 3)).n_classes == C + 3
    assert lf.GivenClasses(X, 0 * y, n_classes=2).holds.tolist() == [[True, False]] * N


def test_a_client_with_one_class_holds_it_alone():
    X, y = FORMS["arrays"]
    y = y.copy()
    y[1] = 2
    assert lf.GivenClasses(X, y).holds[1].tolist() == [False, False, True]


def test_nothing_of_it_can_be_written():
    data = numbered(30)[0]
    for part in (data, data.test):
        for name in ("X", "y", "counts", "holds"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(part, name)[...] = 0


def test_the_given_arrays_are_copied():
    X, y = normal(N, 7, D), whole(N, 7).astype(float)
    data = lf.GivenClasses(X, y)
    X[:], y[:] = 0.0, 0.0
    assert data.X.any()
    assert data.y.any()


@each("form, size", [("arrays", 1), ("lists", 1), ("arrays of trials", 3)])
def test_scale_is_one_however_large_the_labels(form, size):
    assert lf.GivenClasses(FORMS[form][0], [y + 40 for y in FORMS[form][1]]).scale.tolist() == [1.0] * size


def test_what_is_of_squares_is_refused():
    data = lf.GivenClasses(*FORMS["arrays"])
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2)
    calls = {
        "normal_equations": data.normal_equations,
        "compressed": data.compressed,
        "population": lambda: lf.GivenClasses.population(problem),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"^{name}\(\) supports only regression: use "):
            call()


def test_it_says_its_sizes_and_classes():
    data = lf.GivenClasses(*FORMS["lists"], test=TESTS["lists"])
    assert repr(data) == (
        "GivenClasses(X of shape (4, 9, 5), samples per client 1 to 9, held-out samples per client 0 to 3, 3 classes)"
    )


def test_it_can_be_copied_sent_and_told_from_others():
    data, labels, clients = numbered(40)
    for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert repr(other) == repr(data)
        assert np.array_equal(other.test.counts, data.test.counts)
    again = lf.GivenClasses.split(np.arange(1.0, 41)[:, None] * [1.0, -1.0], labels, clients)
    more = lf.GivenClasses.split(np.arange(1.0, 41)[:, None] * [1.0, -1.0], labels, clients, n_classes=4)
    texts = [describe(one).text for one in (data, again, more)]
    assert texts[0] == texts[1] != texts[2]


# --- counts of each trial ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [range(4), range(1, 3), [3, 0], [2], range(3, 0, -2)])
def test_each_trial_has_counts_of_its_own(trials):
    data, _, clients = numbered(37, seed=2)
    assert data.n_trials == 4
    assert data.counts.shape == data.test.counts.shape == (4, 5)
    assert np.ptp(data.counts, axis=0).any()
    assert np.ptp(data.test.counts, axis=0).any()
    train, test = (part.of_trials(trials) for part in (data, data.test))
    both = train[2] + test[2]
    for t, trial in enumerate(trials):
        assert np.array_equal(both[t], np.bincount(clients[trial], minlength=5))
        for client in range(5):
            got = [own(*part, t, client) for part in (train, test)]
            numbers = np.concatenate([rows[:, 0] for rows, _ in got]).astype(int) - 1
            assert sorted(numbers) == np.flatnonzero(clients[trial] == client).tolist()
    batch = given_batch(data, trials)
    assert np.array_equal(batch.counts, train[2])
    assert not batch.X[np.arange(batch.X.shape[2]) >= batch.counts[..., None]].any()


def test_what_each_holds_is_of_each_trial():
    data = numbered(37, seed=2)[0]
    for part in (data, data.test):
        for trial, client in np.ndindex(4, 5):
            y = own(*part.of_trials(range(4)), trial, client)[1]
            assert np.array_equal(part.holds[trial, client], np.isin(range(3), y))


def test_clients_without_held_out_samples_are_served():
    labels = [0, 0, 0, 1, 1, 1, 0, 1]
    data = lf.GivenClasses.split(normal(8, 2), labels, [[0, 0, 0, 0, 0, 0, 1, 1]], test_share=0.4)
    assert data.counts.tolist() == [[4.0, 2.0]]
    assert data.test.counts.tolist() == [[2.0, 0.0]]
    assert data.test.holds.tolist() == [[[True, True], [False, False]]]


# --- training and held-out samples ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_no_sample_is_lost_or_twice_and_the_rounding_is_as_told(name, share):
    X, labels = REAL[name]
    n, c = 6, int(max(labels)) + 1
    clients = lf.dirichlet_split(labels, n_clients=n, concentration=0.5, trials=2)
    clients[:, :7] = -1
    numbers = np.arange(1.0, len(X) + 1)[:, None]
    data = lf.GivenClasses.split(np.hstack([numbers, X]), labels, clients, test_share=share, seed=3)
    assert (data.test is None) == (share == 0.0)
    assert data.n_classes == c
    for trial in range(2):
        seen = []
        for client in range(n):
            per_class = []
            for part in [data, *([data.test] if share else [])]:
                rows, y = own(*part.of_trials(range(2)), trial, client)
                found = rows[:, 0].astype(int) - 1
                assert np.array_equal(rows[:, 1:], X[found])
                assert np.array_equal(y, labels[found])
                assert (clients[trial, found] == client).all()
                seen.extend(found)
                per_class.append(np.bincount(labels[found], minlength=c))
            train = per_class[0]
            count = sum(per_class)
            held = np.minimum(np.floor(share * count + 0.5), np.maximum(count - 1, 0))
            assert np.array_equal(train, count - held)
            assert ((train > 0) | (count == 0)).all()
        assert sorted(seen) == list(range(7, len(X)))


def test_every_sample_is_held_out_equally_often():
    trials, labels = 600, np.zeros(10)
    X, clients = np.arange(10.0)[:, None], np.zeros((trials, 10), dtype=int)
    data = lf.GivenClasses.split(X, labels, clients, n_classes=2, test_share=0.3)
    assert (data.test.counts == 3).all()
    shares = np.bincount(data.test.X.ravel().astype(int), minlength=10) / trials
    assert abs(shares - 0.3).max() < 4.9 * np.sqrt(0.3 * 0.7 / trials)  # ten times 1e-6 by chance
    first = np.bincount(data.X[:, 0, 0, 0].astype(int), minlength=10) / trials  # and the first of those in training
    assert abs(first - 0.1).max() < 4.9 * np.sqrt(0.1 * 0.9 / trials)


def test_the_first_samples_of_a_client_are_of_all_its_classes():
    labels = np.repeat([0, 1], 200)
    data = lf.GivenClasses.split(normal(400, 2), labels, np.zeros((1, 400)), test_share=0.0)
    assert 60 < data.y[0, 0, :200].sum() < 140  # by chance outside of it: 3e-15


def test_classes_that_nobody_has_are_classes():
    labels = np.repeat(range(5), 10)
    clients = lf.classwise_split(labels, n_clients=2, classes_per_client=1)
    data = lf.GivenClasses.split(normal(50, 3), labels, clients)
    assert data.n_classes == 5
    assert data.holds.sum() == 2
    assert data.counts.tolist() == [[8.0, 8.0]]


# --- every trial is a function of the seed and its number ----------------------------------------------------

SPLITS = {
    "classwise": lambda **given: lf.classwise_split(LABELS, n_clients=7, classes_per_client=3, **given),
    "classwise, by client": lambda **given: lf.classwise_split(
        LABELS, n_clients=7, classes_per_client=[1, 2, 3, 4, 5, 6, 10], **given
    ),
    "dirichlet": lambda **given: lf.dirichlet_split(LABELS, n_clients=7, concentration=0.4, **given),
    "dirichlet, redrawn": lambda **given: lf.dirichlet_split(
        LABELS, n_clients=7, concentration=0.2, min_samples=100, **given
    ),
}


@each("name", SPLITS)
def test_a_trial_of_a_split_is_the_same_among_any_others(name):
    split = SPLITS[name]
    few, many = split(trials=3, seed=5), split(trials=50, seed=5)
    assert few.shape == (3, len(LABELS))
    assert np.array_equal(few, many[:3])
    assert np.array_equal(few[:1], split(seed=5))
    assert len({trial.tobytes() for trial in many}) == 50
    assert not np.array_equal(few, split(trials=3, seed=6))
    assert np.array_equal(split(seed=(5, 1)), split(seed=(5, 1)))


def test_a_trial_of_split_samples_is_the_same_among_any_others():
    clients = SPLITS["dirichlet"](trials=50)
    few, many = (lf.GivenClasses.split(DIGITS, LABELS, clients[:trials], seed=5) for trials in (3, 50))
    for one, other in ((few, many), (few.test, many.test)):
        assert np.array_equal(one.counts, other.counts[:3])
        for trial, client in np.ndindex(3, 7):
            a, b = (own(*part.of_trials(range(3)), trial, client) for part in (one, other))
            assert np.array_equal(a[0], b[0])
            assert np.array_equal(a[1], b[1])
    again, another = (lf.GivenClasses.split(DIGITS, LABELS, clients[:3], seed=seed) for seed in (5, 6))
    assert np.array_equal(again.X, few.X)
    assert not np.array_equal(another.X, few.X)


# --- who gets what -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
@each("n, k", [(1, 1), (2, 2), (7, 1), (10, 2), (23, 2)])
def test_classwise_splits_are_balanced(name, n, k):
    labels = REAL[name][1]
    c = int(max(labels)) + 1
    clients = lf.classwise_split(labels, n_clients=n, classes_per_client=k, trials=5)
    assert clients.shape == (5, len(labels))
    for trial in clients:
        table = np.array([[np.sum((trial == i) & (labels == j)) for j in range(c)] for i in range(n)])
        holds = table > 0
        assert (holds.sum(axis=1) == k).all()
        assert np.ptp(holds.sum(axis=0)) <= 1
        for j in range(c):
            if holds[:, j].any():
                dealt = table[holds[:, j], j]
                assert dealt.sum() == np.sum(labels == j)
                assert np.ptp(dealt) <= 1
            else:
                assert (trial[labels == j] == -1).all()


def test_clients_may_take_different_numbers_of_classes():
    wanted = [1, 2, 3, 4, 5, 6, 10]
    for trial in SPLITS["classwise, by client"](trials=4):
        assert [len(np.unique(LABELS[trial == client])) for client in range(7)] == wanted


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


def test_gaps_between_labels_are_no_classes_to_take():
    labels = np.repeat([0, 5, 9], 6)
    (clients,) = lf.classwise_split(labels, n_clients=3, classes_per_client=1)
    assert sorted(np.unique(labels[clients == client]).tolist() for client in range(3)) == [[0], [5], [9]]


@pytest.mark.long
@pytest.mark.parametrize("concentration", [0.05, 0.5, 3.0, 1e5])
@pytest.mark.parametrize("n", [2, 6])
def test_shares_have_the_dirichlet_law(concentration, n):
    classes, size, trials = 20, 4000, 40
    labels = np.repeat(range(classes), size)
    clients = lf.dirichlet_split(labels, n_clients=n, concentration=concentration, trials=trials, min_samples=1)
    tables = [np.bincount(labels * n + one, minlength=classes * n).reshape(-1, n) for one in clients]
    shares = np.concatenate(tables) / size
    squares = (shares**2).sum(axis=1)
    expected = (concentration + 1.0) / (n * concentration + 1.0)
    error = squares.std(ddof=1) / np.sqrt(len(squares)) + n / size**2  # and the rounding to whole samples
    assert abs(squares.mean() - expected) < 4.9 * error
    error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares)) + 1e-9
    assert (abs(shares.mean(axis=0) - 1.0 / n) < 4.9 * error + 0.5 / size).all()


@pytest.mark.parametrize("name", REAL)
def test_a_large_concentration_is_nearly_even_and_a_small_one_skewed(name):
    labels = REAL[name][1]
    c, sizes = int(max(labels)) + 1, np.bincount(labels)

    def largest(concentration):
        clients = lf.dirichlet_split(labels, n_clients=4, concentration=concentration, trials=20, min_samples=1)
        assert clients.min() == 0
        assert clients.max() == 3
        tables = np.array([[np.bincount(one[labels == j], minlength=4) for j in range(c)] for one in clients])
        assert (tables.sum(axis=2) == sizes).all()
        return (tables.max(axis=2) / sizes).mean()

    assert largest(1e9) < 0.25 + 2.0 / sizes.min()
    assert largest(0.1) > 0.6


@each("concentration", [1e-300, 1e12])
def test_the_ends_of_the_concentration_are_served(concentration):
    (clients,) = lf.dirichlet_split(LABELS, n_clients=3, concentration=concentration)
    sizes = np.array([np.bincount(clients[j == LABELS], minlength=3) for j in range(10)])
    if concentration < 1.0:
        assert ((sizes > 0).sum(axis=1) == 1).all()
    else:
        assert np.ptp(sizes, axis=1).max() <= 2


def test_clients_have_at_least_so_many_samples():
    for least in (1, 2, 100):
        clients = lf.dirichlet_split(LABELS, n_clients=7, concentration=0.2, trials=30, min_samples=least)
        fewest = min(np.bincount(one, minlength=7).min() for one in clients)
        assert fewest >= least
        assert least == 100 or fewest < 100
    assert (lf.dirichlet_split([0, 1, 1, 0], n_clients=2, concentration=1.0, trials=50).sum(axis=1) == 2).all()


def test_places_count_within_groups():
    place, sizes = splits.places(np.array([3, 1, 3, 3, 0, 1]))
    assert place.tolist() == [0, 0, 1, 2, 0, 1]
    assert sizes.tolist() == [3, 2, 3, 3, 1, 2]


# --- digits --------------------------------------------------------------------------------------------------


def test_digits_are_scaled_images():
    X, labels = lf.load_digits()
    assert X.shape == (1797, 64)
    assert (X.min(), X.max()) == (0.0, 1.0)
    assert np.array_equal(X * 16, np.round(X * 16))
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert X.dtype == np.float64


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        ImportError, match=r"^load_digits\(\) requires sklearn.datasets: pip install 'linfed\[digits\]'$"
    ):
        lf.load_digits()


# --- bad input -----------------------------------------------------------------------------------------------

X, Y = FORMS["arrays"]
FLAT, FLAT_LABELS = normal(8, 2), np.arange(8) % 2
CLIENTS = np.arange(8)[None] // 4


def spoiled(value, dtype=float):
    labels = Y.astype(dtype)
    labels[2, 3] = value
    return labels


def classwise(labels=FLAT_LABELS, **changes):
    return lf.classwise_split(labels, **{"n_clients": 2, "classes_per_client": 1} | changes)


def dirichlet(labels=FLAT_LABELS, **changes):
    return lf.dirichlet_split(labels, **{"n_clients": 2, "concentration": 1.0} | changes)


def split(X=FLAT, labels=FLAT_LABELS, clients=CLIENTS, **changes):
    return lf.GivenClasses.split(X, labels, clients, **changes)


CALLS = {
    "a fraction": (lambda: lf.GivenClasses(X, spoiled(1.5)), ["labels holds 1.5 at index (2, 3)", "from 0"]),
    "a negative label": (lambda: lf.GivenClasses(X, spoiled(-1)), ["labels holds -1.0 at index (2, 3)", "from 0"]),
    "too large a label": (
        lambda: lf.GivenClasses(X, spoiled(3), n_classes=3),
        ["labels holds 3.0 at index (2, 3)", "from 0 to 2 (n_classes = 3)"],
    ),
    "NaN": (lambda: lf.GivenClasses(X, spoiled(np.nan)), ["labels holds 1 value that is NaN", "(2, 3)"]),
    "a word": (lambda: lf.GivenClasses(X, spoiled("cat", object)), ["labels holds 'cat'"]),
    "truth values": (lambda: lf.GivenClasses(X, Y > 0), ["labels holds True and False"]),
    "a fraction in a list": (
        lambda: lf.GivenClasses([X[0], X[1, :2]], [Y[0], [0, 0.5]]),
        ["labels holds 0.5 at index (1, 1)"],
    ),
    "a fraction in test": (
        lambda: lf.GivenClasses(X, Y, test=(X, spoiled(0.5))),
        ["test labels holds 0.5 at index (2, 3)"],
    ),
    "too large a label in test": (
        lambda: lf.GivenClasses(X, Y, n_classes=3, test=(X, spoiled(7))),
        ["test labels holds 7.0 at index (2, 3)", "from 0 to 2 (n_classes = 3)"],
    ),
    "labels of another shape": (lambda: lf.GivenClasses(X, Y[:, :3]), ["labels has shape (4, 3)", "(4, 7)"]),
    "too few lists of labels": (
        lambda: lf.GivenClasses([X[0], X[1, :2]], [Y[0]]),
        ["labels must be a sequence of n = 2 arrays"],
    ),
    "labels of another length in a list": (
        lambda: lf.GivenClasses([X[0], X[1, :2]], [Y[0], Y[1]]),
        ["labels[1] has shape (7,)", "X[1] has shape (2, 5)"],
    ),
    "a client without samples": (
        lambda: lf.GivenClasses([X[0], np.zeros((0, D))], [Y[0], []]),
        ["X[1] has shape (0, 5)", "no axis may be empty"],
    ),
    "no pair": (lambda: lf.GivenClasses(X, Y, test=X), ["test", "(X, labels)"]),
    "ragged trials": (
        lambda: lf.GivenClasses([[X[0], X[1, :2]]] * 2, [[Y[0], Y[1, :2]]] * 2),
        ["X has trials", "separate lf.GivenClasses"],
    ),
    "test of other clients": (lambda: lf.GivenClasses(X, Y, test=(X[:2], Y[:2])), ["test X has shape (2, 7, 5)"]),
    "one class": (lambda: lf.GivenClasses(X, Y, n_classes=1), ["n_classes = 1", "at least 2"]),
    "half a class": (lambda: lf.GivenClasses(X, Y, n_classes=2.5), ["n_classes = 2.5", "at least 2"]),
    "one class in the labels": (lambda: lf.GivenClasses(X, 0 * Y), ["only class 0", "n_classes=2"]),
    "a split's labels": (lambda: split(labels=FLAT_LABELS - 1), ["labels holds -1.0 at index (0,)"]),
    "a split's fewer labels": (lambda: split(labels=FLAT_LABELS[:5]), ["labels has shape (5,)", "(8,)"]),
    "a split's X": (lambda: split(X=normal(2, 4, 2)), ["X has shape (2, 4, 2)", "(samples, d)"]),
    "clients without trials": (lambda: split(clients=CLIENTS[0]), ["clients has shape (8,)", "(trials, samples)"]),
    "too few clients' numbers": (lambda: split(clients=CLIENTS[:, :5]), ["clients has shape (1, 5)", "(1, 8)"]),
    "half a client": (
        lambda: split(clients=CLIENTS + 0.5),
        ["clients holds 0.5 at index (0, 0)", "-1 (unassigned) to 7"],
    ),
    "client -2": (lambda: split(clients=CLIENTS - 2), ["clients holds -2.0 at index (0, 0)", "-1 (unassigned) to 7"]),
    "a client's name": (lambda: split(clients=CLIENTS * 10**9), ["clients holds 1000000000.0", "-1 (unassigned) to 7"]),
    "nobody": (lambda: split(clients=0 * CLIENTS - 1), ["clients contains only -1 (unassigned)"]),
    "a client left out of a trial": (
        lambda: split(clients=np.vstack([CLIENTS, 0 * CLIENTS])),
        ["clients has no sample of client 1 in trial 1", "n = 2"],
    ),
    "a gap between clients": (lambda: split(clients=2 * CLIENTS), ["no sample of client 1 in trial 0", "n = 3"]),
    "a split's share": (lambda: split(test_share=1.2), ["test_share = 1.2", "from 0 to 1"]),
    "a share of nothing": (lambda: split(test_share=0.1), ["test_share = 0.1 holds out no sample", "increase it"]),
    "a split's seed": (lambda: split(seed=-1), ["seed = -1", "non-negative"]),
    "a split's classes": (lambda: split(n_classes=1), ["n_classes = 1", "at least 2"]),
    "labels of a table": (lambda: classwise(Y), ["labels has shape (4, 7)", "(samples,)"]),
    "no labels": (lambda: classwise([]), ["labels has shape (0,)", "no axis may be empty"]),
    "a fraction to split": (lambda: dirichlet([0, 1, 0.5, 1]), ["labels holds 0.5 at index (2,)", "from 0"]),
    "no clients": (lambda: classwise(n_clients=0), ["n_clients = 0", "at least 1"]),
    "more clients than samples": (lambda: classwise(n_clients=9), ["n_clients = 9", "from 1 to 8"]),
    "no classes": (lambda: classwise(classes_per_client=0), ["classes_per_client = 0", "at least 1"]),
    "too many classes": (lambda: classwise(classes_per_client=3), ["classes_per_client = 3", "from 1 to 2"]),
    "too many classes of one": (lambda: classwise(classes_per_client=[1, 3]), ["classes_per_client[1] = 3", "1 to 2"]),
    "numbers of too few": (
        lambda: classwise(classes_per_client=[1]),
        ["classes_per_client has 1 entr", "n_clients = 2"],
    ),
    "a word for a number": (lambda: classwise(classes_per_client="two"), ["classes_per_client = 'two'", "integer"]),
    "no sample left": (
        lambda: classwise([0, 1, 1, 1, 1, 1], n_clients=4, classes_per_client=1),
        ["n_clients = 4", "in trial 0 client", "no sample", "fewer clients", "classes_per_client"],
    ),
    "no trials": (lambda: classwise(trials=0), ["trials = 0", "at least 1"]),
    "no seed": (lambda: classwise(seed=None), ["seed = None"]),
    "no concentration": (lambda: dirichlet(concentration=0.0), ["concentration = 0.0", "positive"]),
    "too large a concentration": (lambda: dirichlet(concentration=1e13), ["concentration = 1", "from 0 to 1e+12"]),
    "no least number": (lambda: dirichlet(min_samples=0), ["min_samples = 0", "at least 1"]),
    "too many samples wanted": (
        lambda: dirichlet(min_samples=5),
        ["n_clients = 2 with min_samples = 5 require 10 samples", "8", "reduce"],
    ),
    "too skewed": (
        lambda: dirichlet(concentration=1e-9, min_samples=3, n_clients=2, labels=[0] * 9 + [1]),
        ["concentration = 1e-09", "1000 draws of trial 0", "min_samples = 3", "increase concentration"],
    ),
}


@each("name", CALLS)
def test_bad_input_is_named_in_one_line(name):
    call, parts = CALLS[name]
    assert_one_line(call, parts)


@pytest.mark.parametrize("features", [0, 3])
@pytest.mark.parametrize("held_out", ["none", "arrays"])
def test_memory_is_counted_as_it_is_held(held_out, features):
    """A row has its dimensions, the 1 of the bias, and a label."""
    data = lf.GivenClasses(*FORMS["arrays"], test=TESTS[held_out])
    parts = [FixedClassSource(*part.of_trials([0]), C) for part in (data, data.test) if part is not None]
    held = sum(array.size for part in parts for array in (part._X, part._y))
    sizes = Sizes(n_clients=N, dim=D, participants=N, rounds=5, features=features, classes=C)
    assert data.floats_per_trial(sizes) == held + N * 7 * features


TOO_LARGE = {
    "labels that number something else": (
        lambda: lf.GivenClasses(X, spoiled(1e13)),
        ["n_classes = 10000000000001 of 4 clients", "number the classes"],
    ),
    "trials of a split": (lambda: classwise(trials=10**12), ["trials = 1000000000000 of 8 samples", "fewer trials"]),
    "one large client": (
        lambda: split(np.ones((900, 3)), np.arange(900) % 2, np.maximum(np.arange(900) - 600, 0)[None]),
        ["1 trials of n = 300 clients, padded to", "dimension 3", "more equal numbers of samples"],
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_does_not_fit_the_memory_says_so_before(name, monkeypatch):
    monkeypatch.setattr(memory, "physical_memory", lambda: 8e6)
    call, parts = TOO_LARGE[name]
    assert_one_line(call, parts, lf.SizeError)


def test_classes_without_a_sample_are_a_warning():
    X, labels, clients = np.ones((12, 2)), 1 + np.arange(12) % 3, np.arange(12)[None] // 6
    with pytest.warns(UserWarning, match=r"no sample of class 0: number the classes .* or set n_classes=4") as found:
        data = lf.GivenClasses.split(X, labels, clients, test_share=0.0)
    assert (data.n_classes, found[0].filename) == (4, __file__)
    with pytest.warns(UserWarning, match=r"no sample of class 0, 1, 2 and 2 more: number .* or set n_classes=8"):
        lf.GivenClasses.split(X, 2 * labels + 1, clients, test_share=0.0)
    lf.GivenClasses.split(X, labels, clients, n_classes=4, test_share=0.0)
