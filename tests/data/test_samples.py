"""Fresh, fixed and given samples of regression: forms, trials, splits over clients, and samples that are held out."""

import numpy as np
import pytest

import linfed as lf
from linfed.data import given_classes, samples, splits, synthetic
from tests.helpers import assert_one_line, assert_same, normal
from tests.worlds import draw_world

RNG = np.random.default_rng(0)
NUMBERS = np.arange(41.0)
X = np.column_stack([NUMBERS, RNG.normal(size=(41, 3))])
KINDS = (lf.GivenSamples, lf.GivenClasses)


def drawn(*shape):
    """Return samples (..., m, 4) and labels (..., m)."""
    return normal(*shape, 4), normal(*shape, seed=1)


def samples_of(part, trial, client):
    """Return the rows and labels of one client, without padding."""
    rows, y, counts = part.of_trials([trial])
    count = int(counts[0, client])
    assert not rows[0, client, count:].any()
    assert not y[0, client, count:].any()
    return rows[0, client, :count], y[0, client, :count]


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


def test_a_run_on_split_samples_is_the_run_on_each_trials_lists():
    y = X[:, 1] - X[:, 2]
    data = lf.GivenSamples.split(X[:, 1:], y, lf.feature_split(X[:, 1], n_clients=3, shares=[3, 2, 1], trials=2))
    fedrep = lf.FedRep(rank=1, step_size=0.3)
    together = lf.simulate(fedrep, data=data, n_rounds=5, trials=2)
    for trial in range(2):
        train, test = (
            list(zip(*(samples_of(part, trial, i) for i in range(3)), strict=True)) for part in (data, data.test)
        )
        alone = lf.simulate(fedrep, data=lf.GivenSamples(*map(list, train), test=tuple(map(list, test))), n_rounds=5)
        for name in ("train_loss", "test_loss"):
            np.testing.assert_allclose(together.metrics[name][trial], alone.metrics[name][0], rtol=1e-9)


def labelled(kind):
    """Data of each form with samples whose first feature is their number, and whose test samples are negative."""
    labels = np.arange(41) % 3
    if kind == "lists":
        parts = [X[:7], X[7:20], X[20:]]
        return lf.GivenSamples(
            parts, [part[:, 0] for part in parts], test=([-part for part in parts], [part[:, 0] for part in parts])
        )
    if kind == "arrays":
        stack = X[:40].reshape(4, 10, 4)
        return lf.GivenSamples(stack, stack[..., 0], test=(-stack, stack[..., 0]))
    if kind == "split":
        return lf.GivenSamples.split(X, NUMBERS, lf.random_split(41, n_clients=4, shares=[1, 1, 1, 2], trials=3))
    clients = lf.dirichlet_split(labels, n_clients=3, concentration=1.0, min_samples=4, trials=3)
    return lf.GivenClasses.split(X, labels, clients)


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


@pytest.mark.parametrize(("trials", "noise"), [(1, 0.3), (3, 0.3), (3, 0.0)])
def test_drawn_samples_are_those_that_a_run_sees(trials, noise):
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=noise, design=lf.Rademacher(covariance=2.0))
    data = lf.FixedSamples(3)
    given = data.draw(problem, trials=trials, seed=(2, 5))
    run = {"n_rounds": 1, "seed": (2, 5)}
    *_, step = lf.iterate(lf.PooledLeastSquares(), problem, data=data, trials=trials, **run)
    assert np.array_equal(given.X, step.batch.X)
    assert np.array_equal(given.y, step.batch.y)
    assert (given.n_trials, given.counts.tolist()) == (trials, [3.0] * 5)
    one, two = (lf.simulate(lf.PooledLeastSquares(), problem, data=d, trials=trials, **run) for d in (given, data))
    assert_same(one, two)
    assert not np.isin(data.draw(problem, trials=trials).y, given.y).any()


@pytest.mark.parametrize("form", ["lists", "array", "trials"])
def test_normal_equations_of_given_samples(form):
    if form == "lists":
        world = draw_world([1, 4, 2, 7], 3, 2, noise=0.3)
        given, X, y = world.data(), [world.X], [world.y]
    else:
        X, y = normal(3, 4, 5, 3), normal(3, 4, 5, seed=1)
        if form == "array":
            X, y = X[:1], y[:1]
        given = lf.GivenSamples(X, y) if form == "trials" else lf.GivenSamples(X[0], y[0])
    A, b = given.normal_equations()
    assert A.ndim == (4 if form == "trials" else 3)
    for t, (rows, labels) in enumerate(zip(X, y, strict=True)):
        for i, (X_i, y_i) in enumerate(zip(rows, labels, strict=True)):
            index = (t, i) if form == "trials" else i
            np.testing.assert_allclose(A[index], X_i.T @ X_i / len(y_i), rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(b[index], X_i.T @ y_i / len(y_i), rtol=1e-10, atol=1e-10)


SPREAD = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.7]])


@pytest.mark.parametrize(
    ("design", "wanted"),
    [
        ("gaussian", np.eye(3)),
        (lf.Gaussian(covariance=SPREAD), SPREAD),
        (lf.Rademacher(covariance=4.0), 4.0 * np.eye(3)),
    ],
)
def test_population_data_have_exactly_the_moments(design, wanted):
    problem = lf.UnderParameterized(n_clients=4, dim=3, design=design, noise_std=0.8)
    A, b = lf.GivenSamples.population(problem, trials=2, seed=7).normal_equations()
    np.testing.assert_allclose(A, np.broadcast_to(wanted, (2, 4, 3, 3)), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(b, problem.truth(7, range(2)).dense() @ wanted, rtol=1e-12, atol=1e-13)


IN_LAW = [
    ({"engine": "explicit"}, "the samples are never drawn"),
    ({"m": 4}, "m = 4 is at most d = 4"),
    ({"design": "rademacher"}, "requires Gaussian x"),
    ({"engine": "projected"}, "fixed samples are used at more than one B"),
    ({"algorithm": lf.FedRep(rank=1, step_size=0.1, init=lf.Moments())}, "in_law = True"),
]


@pytest.mark.parametrize(("changes", "fragment"), IN_LAW)
def test_samples_in_law_are_refused_where_they_cannot_serve(changes, fragment):
    run = {"algorithm": lf.FLUTE(rank=1, step_size=0.01), "m": 30, "design": "gaussian", "n_rounds": 1} | changes
    run["data"] = lf.FixedSamples(run.pop("m"), in_law=True)
    run["problem"] = lf.UnderParameterized(n_clients=3, dim=4, design=run.pop("design"))
    assert_one_line(lambda: lf.simulate(**run), [fragment], (lf.EngineError, ValueError))


def test_samples_in_law_are_not_drawn():
    problem = lf.UnderParameterized(n_clients=3, dim=4)
    with pytest.raises(ValueError, match="with in_law = True no samples are drawn"):
        lf.FixedSamples(30, in_law=True).draw(problem)
    assert lf.FixedSamples(30, in_law=False).draw(problem).X.shape == (1, 3, 30, 4)
    with pytest.raises((ValueError, TypeError), match="in_law"):
        lf.FixedSamples(30, in_law="yes")


def test_one_sample_of_one_client_has_its_label_in_any_number_of_trials():
    """NumPy's einsum sums a single column in another order than several."""
    for rank in (1, 3, 5, 8):
        problem = lf.SharedRepresentation(n_clients=1, dim=9, rank=rank, noise_std=0.1)
        for seed in range(8):
            labels = {lf.FixedSamples(1).draw(problem, trials=trials, seed=seed).y[0].tobytes() for trials in (1, 2, 3)}
            assert len(labels) == 1


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_held_out_samples_may_begin_with_an_empty_one(kind):
    y = np.arange(41) % 2
    for nothing in ([], np.zeros((0, 4))):
        data = kind([X[:3], X[3:8]], [y[:3], y[3:8]], test=([nothing, X[8:12]], [[], y[8:12]]))
        assert data.test.counts.tolist() == [0.0, 4.0]
        assert np.array_equal(data.test.X, [np.zeros((4, 4)), X[8:12]])
        assert np.array_equal(data.test.y, [np.zeros(4), y[8:12]])


WRONG = {
    "test is no pair": (lambda: lf.GivenSamples(*drawn(2, 3), test=drawn(2, 3)[0]), ["test", "(X, y)"]),
    "test is a word": (lambda: lf.GivenSamples(*drawn(2, 3), test="xy"), ["test = 'xy'", "(X, y)"]),
    "test of other clients": (lambda: lf.GivenSamples(*drawn(2, 3), test=drawn(1, 3)), ["test X has shape (1, 3, 4)"]),
    "test of another dimension": (
        lambda: lf.GivenSamples(*drawn(2, 3), test=(np.ones((2, 3, 5)), np.ones((2, 3)))),
        ["test X has shape (2, 3, 5)"],
    ),
    "test of other trials": (
        lambda: lf.GivenSamples(*drawn(3, 2, 5), test=drawn(2, 2, 5)),
        ["test X has arrays for 2 trials", "X for 3"],
    ),
    "test of empty clients": (
        lambda: lf.GivenSamples(*drawn(2, 3), test=([np.zeros((0, 4))] * 2, [np.zeros(0)] * 2)),
        ["test X", "no axis may be empty"],
    ),
    "test of no samples": (
        lambda: lf.GivenSamples(*drawn(2, 3), test=([np.zeros((0, 4)), []], [[], []])),
        ["test X contains no samples"],
    ),
    "test of an empty client of another dimension": (
        lambda: lf.GivenSamples(*drawn(2, 3), test=([np.zeros((0, 3)), X[8:12]], [[], NUMBERS[8:12]])),
        ["test X[0]", "(0, 3)", "(0, 4)"],
    ),
    "test labels of an empty client": (
        lambda: lf.GivenSamples(*drawn(2, 3), test=([np.zeros((0, 4)), X[8:12]], [NUMBERS[:4], NUMBERS[8:12]])),
        ["test y[0]", "(4,)", "(0,)"],
    ),
    "NaN in test": (
        lambda: lf.GivenSamples(*drawn(2, 3), test=(np.ones((2, 3, 4)), [[1.0, 2.0, 3.0], [1.0, np.nan, 2.0]])),
        ["test y holds 1 value ", "(1, 1)"],
    ),
    **{
        f"trials of different {name}": (
            lambda X=X: lf.GivenSamples(X, [[np.ones(len(rows)) for rows in trial] for trial in X]),
            ["X has trials", "different", "(trials, n, m, d)"],
        )
        for name, X in {
            "samples in lists": [[normal(2, 4), normal(3, 4)], [normal(3, 4), normal(4, 4)]],
            "samples in tuples": ((normal(2, 4), normal(3, 4)), (normal(3, 4), normal(4, 4))),
            "samples": [normal(2, 3, 4), normal(2, 4, 4)],
            "clients": [normal(2, 3, 4), normal(3, 3, 4)],
            "samples of one trial": [[normal(2, 4), normal(3, 4)]],
        }.items()
    },
    "labels of different lengths": (
        lambda: lf.GivenSamples(drawn(2, 3)[0], [np.ones(2), np.ones(3)]),
        ["y", "(n, m)", "parts have different sizes"],
    ),
    "labels": (lambda: split(y=NUMBERS[:5]), ["y"]),
    "other numbers of samples": (
        lambda: split([[0] * 40 + [1], [1] * 40 + [0]]),
        ["clients: client 0 has 1 to 40"],
    ),
    "nothing held out": (lambda: split([range(41)]), ["test_share = 0.2 holds out no sample"]),
    "a small share": (lambda: lf.GivenSamples(X[None], NUMBERS[None]).hold_out(0.001), ["share = 0.001 holds out no"]),
    "no share": (lambda: lf.GivenSamples(X[None], NUMBERS[None]).hold_out(0.0), ["share = 0.0 must be"]),
    "client -2": (
        lambda: split([[-2, *range(40)]]),
        ["clients holds -2.0 at index (0, 0)", "from -1 (unassigned) to 40"],
    ),
    "client 41": (lambda: split([[41, *range(40)]]), ["clients holds 41.0 at index (0, 0)", "to 40"]),
    "half a client": (lambda: split([[0.5, *range(40)]]), ["clients holds 0.5 at index (0, 0)"]),
    "nobody": (lambda: split([[-1] * 41]), ["contains only -1 (unassigned)"]),
    "a gap": (lambda: split([[0, 2] * 20 + [0]]), ["no sample of client 1 in trial 0", "n = 3"]),
    "a client left out of a trial": (
        lambda: split([[0, 1] * 20 + [0], [0] * 41]),
        ["clients has no sample of client 1 in trial 1", "n = 2"],
    ),
    "names of other samples": (lambda: split(["a"] * 5), ["clients has shape (5,)", "(samples,)", "(41,)"]),
    "a name is missing": (lambda: split(["a"] * 40 + [None]), ["clients has 1 missing value"]),
    "other samples": (lambda: split([[0] * 5]), ["clients has shape (1, 5)", "(1, 41)"]),
    "X of trials": (lambda: split(rows=X[None]), ["X has shape (1, 41, 4)", "(samples, d)"]),
    "a large share": (lambda: split(test_share=1.2), ["test_share = 1.2", "from 0 to 1"]),
    "a seed": (lambda: split(seed=-1), ["seed = -1", "non-negative"]),
}


def split(clients=([0] * 41,), y=NUMBERS, rows=X, **changes):
    return lf.GivenSamples.split(rows, y, clients, **changes)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name):
    assert_one_line(*WRONG[name])


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
        lambda: lf.classwise_split(np.arange(41) % 3, n_clients=3, classes_per_client=2, trials=4),
        lambda: lf.dirichlet_split(np.arange(41) % 3, n_clients=3, concentration=1.0, trials=4),
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
    classifiers = 2 * 3 * (10 + 1) * (4 + 1)
    assert found == [classifiers, 2 * sum(arrays), data.holds.size, data.test.holds.size]


def test_trials_in_descending_order_are_read_in_this_order():
    data = lf.GivenSamples(normal(4, 3, 5, 2), normal(4, 3, 5))
    for trials in (range(3, -1, -1), range(3, 0, -2), range(0, 4, 2)):
        for part, whole in zip(data.of_trials(trials), data.of_trials(list(trials)), strict=True):
            assert np.array_equal(part, whole)


def test_any_sequence_has_one_number_for_each_client():
    assert lf.FreshSamples(range(5, 8)) == lf.FreshSamples((5, 6, 7)) == lf.FreshSamples(np.array([5, 6, 7]))
    assert_one_line(lambda: lf.FreshSamples(range(0)), ["n_samples = range(0, 0)", "for each client"])
    assert_one_line(lambda: lf.FixedSamples(range(5, 8)), ["n_samples = range(5, 8)", "one integer for all clients"])
