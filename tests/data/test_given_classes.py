"""Given samples of classes: forms, who holds which class, splits over clients, and what is refused."""

import copy
import pickle

import numpy as np
import pytest

import linfed as lf
from linfed.data.class_sources import FixedClassSource
from linfed.data.samples import given_batch
from linfed.data.sources import Sizes
from linfed.system import memory
from linfed.system.description import describe
from tests.helpers import assert_one_line, normal

N, D, C = 4, 5, 3


def whole(*shape, classes=C, seed=0):
    return np.random.default_rng(seed).integers(0, classes, shape)


def ragged(counts, seed=0):
    return [normal(m, D, seed=seed + i) for i, m in enumerate(counts)], [
        whole(m, seed=seed + i) for i, m in enumerate(counts)
    ]


FORMS = {
    "arrays": (normal(N, 7, D), whole(N, 7)),
    "arrays of trials": (normal(3, N, 7, D), whole(3, N, 7)),
    "lists": ragged([6, 1, 4, 9]),
}


TESTS = {
    "none": None,
    "arrays": (normal(N, 2, D, seed=5), whole(N, 2, seed=5)),
    "arrays of trials": (normal(3, N, 2, D, seed=5), whole(3, N, 2, seed=5)),
    "lists": ragged([2, 0, 0, 3], seed=5),
}


def own(X, y, counts, trial, client):
    """Return a client's samples and labels in a trial, without padding, of arrays with a trial axis."""
    m = int(counts[trial, client])
    return X[trial, client, :m], y[trial, client, :m]


@pytest.mark.parametrize(
    ("form", "held_out"),
    [("arrays", "none"), ("arrays", "arrays of trials"), ("arrays of trials", "arrays"), ("lists", "lists")],
)
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


@pytest.mark.parametrize("form", FORMS)
def test_holds_says_who_has_which_class(form):
    X, labels = FORMS[form]
    data = lf.GivenClasses(X, labels, n_classes=C + 2, test=TESTS["lists"])
    trials = [data.y] if data.y.ndim == 2 else data.y
    held = [[np.isin(range(C + 2), y[: int(m)]) for y, m in zip(ys, data.counts, strict=True)] for ys in trials]
    assert np.array_equal(data.holds.reshape(len(trials), N, C + 2), held)
    assert data.holds.dtype == bool
    assert data.holds.shape == (*data.y.shape[:-1], C + 2)
    assert data.test.holds.any(axis=1).tolist() == [True, False, False, True]


def test_the_number_of_classes_is_given_or_that_of_all_labels():
    rows, labels = normal(4, 10, 4), np.tile(np.arange(10) % 2, (4, 1))
    for wanted, given in ((2, {}), (2, {"n_classes": 2}), (9, {"n_classes": 9}), (5, {"test": (rows, labels + 3)})):
        data = lf.GivenClasses(rows, labels, **given)
        assert (data.n_classes, data.holds.shape, data.scale.tolist()) == (wanted, (4, wanted), [1.0])
        assert data.holds[:, :2].all()
        assert not data.holds[:, 2:].any()
        assert data.test is None or data.test.holds.tolist() == [[False] * 3 + [True] * 2] * 4
    assert lf.GivenClasses(rows, 0 * labels, n_classes=2).holds.tolist() == [[True, False]] * 4


def test_the_arrays_are_copied_and_cannot_be_written():
    X, y = normal(N, 7, D), whole(N, 7).astype(float)
    data = lf.GivenClasses(X, y, test=(X, y))
    X[:], y[:] = 0.0, 0.0
    assert data.X.any()
    assert data.y.any()
    for part in (data, data.test):
        for name in ("X", "y", "counts", "holds"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(part, name)[...] = 0


def numbered(n=5, **changes):
    """Return 37 samples that know their number, from 1, split over clients of each trial."""
    labels = np.arange(37) % 3
    clients = lf.dirichlet_split(labels, n_clients=n, concentration=1.0, trials=4)
    X = np.arange(1.0, 38)[:, None] * [1.0, -1.0]
    return lf.GivenClasses.split(X, labels, clients, **changes), labels, clients


@pytest.mark.parametrize("trials", [range(4), [3, 0], range(3, 0, -2)])
def test_split_classes_are_held_by_their_clients_and_a_share_of_each_is_held_out(trials):
    data, labels, clients = numbered(n_classes=6, seed=2)
    assert (data.n_trials, data.n_classes, data.test.n_classes, data.scale.tolist()) == (4, 6, 6, [1.0] * 4)
    assert np.ptp(data.counts, axis=0).any()
    for t, trial in enumerate(trials):
        for client in range(5):
            numbers = []
            for part in (data, data.test):
                rows, y = own(*part.of_trials(trials), t, client)
                numbers.extend(found := rows[:, 0].astype(int) - 1)
                assert np.array_equal(rows[:, 1], -rows[:, 0])
                assert np.array_equal(y, labels[found])
                assert np.array_equal(part.holds[trial, client], np.isin(np.arange(6), y))
            assert sorted(numbers) == np.flatnonzero(clients[trial] == client).tolist()
            counts = np.bincount(labels[numbers], minlength=6)
            held = np.minimum(np.floor(0.2 * counts + 0.5), np.maximum(counts - 1, 0))
            assert np.array_equal(np.bincount(y.astype(int), minlength=6), held)  # of each class, and never all
    batch = given_batch(data, trials)
    assert np.array_equal(batch.counts, data.of_trials(trials)[2])
    assert not batch.X[np.arange(batch.X.shape[2]) >= batch.counts[..., None]].any()


def test_it_can_be_copied_sent_and_told_from_others():
    data, more = numbered()[0], numbered(n_classes=4)[0]
    for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert repr(other) == repr(data)
        assert np.array_equal(other.test.counts, data.test.counts)
    texts = [describe(one).text for one in (data, numbered()[0], more)]
    assert texts[0] == texts[1] != texts[2]
    assert "3 classes" in repr(data)


def test_classes_without_samples_are_listed_up_to_three():
    clients = np.zeros((1, 41), dtype=int)
    for empty, listed in ((1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (6, "0, 1, 2 and 3 more")):
        labels = empty + np.arange(41) % 2
        wanted = f"contains no sample of class {listed}: number .* set n_classes={empty + 2}$"
        with pytest.warns(UserWarning, match=wanted) as found:
            lf.GivenClasses.split(normal(41, 2), labels, clients)
        assert found[0].filename == __file__
        lf.GivenClasses.split(normal(41, 2), labels, clients, n_classes=empty + 2)


@pytest.mark.parametrize(("held_out", "features"), [("none", 0), ("arrays", 3)])
def test_memory_is_counted_as_it_is_held(held_out, features):
    """A row has its dimensions, the 1 of the bias, and a label."""
    data = lf.GivenClasses(*FORMS["arrays"], test=TESTS[held_out])
    parts = [FixedClassSource(*part.of_trials([0]), C) for part in (data, data.test) if part is not None]
    held = sum(array.size for part in parts for array in (part._X, part._y))
    sizes = Sizes(n_clients=N, dim=D, participants=N, n_rounds=5, features=features, classes=C)
    assert data.floats_per_trial(sizes) == held + N * 7 * features


# --- wrong arguments -----------------------------------------------------------------------------------------

X, Y = FORMS["arrays"]
FLAT, LABELS, CLIENTS = normal(8, 2), np.arange(8) % 2, np.arange(8)[None] // 4


def spoiled(value, dtype=float):
    labels = Y.astype(dtype)
    labels[2, 3] = value
    return labels


WRONG = {
    "a fraction": (lambda: lf.GivenClasses(X, spoiled(1.5)), ["labels holds 1.5 at index (2, 3)", "from 0"]),
    "a negative label": (lambda: lf.GivenClasses(X, spoiled(-1)), ["labels holds -1.0 at index (2, 3)", "from 0"]),
    "a large label": (
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
    "a large label in test": (
        lambda: lf.GivenClasses(X, Y, n_classes=3, test=(X, spoiled(7))),
        ["test labels holds 7.0 at index (2, 3)", "from 0 to 2 (n_classes = 3)"],
    ),
    "labels of another shape": (lambda: lf.GivenClasses(X, Y[:, :3]), ["labels has shape (4, 3)", "(4, 7)"]),
    "no pair": (lambda: lf.GivenClasses(X, Y, test=X), ["test", "(X, labels)"]),
    "too few lists": (lambda: lf.GivenClasses([X[0], X[1, :2]], [Y[0]]), ["labels must be a sequence of n = 2"]),
    "ragged trials": (
        lambda: lf.GivenClasses([[X[0], X[1, :2]]] * 2, [[Y[0], Y[1, :2]]] * 2),
        ["X has trials", "separate lf.GivenClasses"],
    ),
    "one class": (lambda: lf.GivenClasses(X, Y, n_classes=1), ["n_classes = 1", "at least 2"]),
    "half a class": (lambda: lf.GivenClasses(X, Y, n_classes=2.5), ["n_classes = 2.5", "at least 2"]),
    "one class in the labels": (lambda: lf.GivenClasses(X, 0 * Y), ["only class 0", "n_classes=2"]),
    "a split's labels": (lambda: lf.GivenClasses.split(FLAT, LABELS - 1, CLIENTS), ["labels holds -1.0 at index (0,)"]),
    "a split's fewer labels": (
        lambda: lf.GivenClasses.split(FLAT, LABELS[:5], CLIENTS),
        ["labels has shape (5,)", "(8,)"],
    ),
    "a split's classes": (lambda: lf.GivenClasses.split(FLAT, LABELS, CLIENTS, n_classes=1), ["n_classes = 1"]),
    "a small share": (
        lambda: lf.GivenClasses.split(FLAT, LABELS, CLIENTS, test_share=0.1),
        ["test_share = 0.1 holds out no sample"],
    ),
    **{
        name: (call, [f"{name}() supports only regression"])
        for name, call in {
            "normal_equations": lambda: lf.GivenClasses(X, Y).normal_equations(),
            "compressed": lambda: lf.GivenClasses(X, Y).compressed(),
            "population": lambda: lf.GivenClasses.population(lf.SharedRepresentation(n_clients=N, dim=D, rank=2)),
        }.items()
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name):
    assert_one_line(*WRONG[name])


TOO_LARGE = {
    "labels that number something else": (
        lambda: lf.GivenClasses(X, spoiled(1e13)),
        ["n_classes = 10000000000001 of 4 clients"],
    ),
    "one large client": (
        lambda: lf.GivenClasses.split(np.ones((900, 3)), np.arange(900) % 2, np.maximum(np.arange(900) - 600, 0)[None]),
        ["1 trials of n = 300 clients, padded to", "dimension 3"],
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_does_not_fit_the_memory_is_refused(name, monkeypatch):
    monkeypatch.setattr(memory, "physical_memory", lambda: 8e6)
    assert_one_line(*TOO_LARGE[name], lf.SizeError)
