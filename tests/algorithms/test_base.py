"""States: updates of shared arrays and of participants' rows, predictors of chosen clients, and sizes."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed._values import is_from_linfed
from linfed.algorithms.personal.apfl import APFLState
from linfed.algorithms.representation.lgfedavg import LGFedAvgState
from tests.helpers import Held, normal

TRIALS = 3
ACTIVE = np.array([[0, 3], [1, 2], [4, 5]])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Momentum(lf.State):
    """A state with arrays of its own, one of them the clients'."""

    M: np.ndarray = None
    seen: np.ndarray = None

    per_client = lf.State.per_client | {"seen"}


def full():
    arrays = {"B": normal(TRIALS, 9, 2), "W": normal(TRIALS, 6, 2), "S": normal(TRIALS, 6, 9)}
    return Momentum(**arrays, M=normal(TRIALS, 4), seen=normal(TRIALS, 6))


# --- updates -------------------------------------------------------------------------------------------------


def test_one_update_replaces_what_is_shared_and_scatters_what_is_the_clients():
    state = Momentum(S=normal(TRIALS, 1, 9), M=normal(TRIALS, 9), seen=normal(TRIALS, 6, 4))
    S, M, seen = normal(TRIALS, 1, 9, seed=1), normal(TRIALS, 9, seed=2), normal(TRIALS, 2, 4, seed=3)
    new = state.update(S=S, M=M, seen=seen, active=ACTIVE)
    assert new.S is S
    assert new.M is M
    for t in range(TRIALS):
        for i in range(6):
            expected = seen[t, list(ACTIVE[t]).index(i)] if i in ACTIVE[t] else state.seen[t, i]
            assert np.array_equal(new.seen[t, i], expected)
    assert np.array_equal(new.take_clients("seen", ACTIVE), seen)
    assert new.take_clients("S", ACTIVE) is S


@pytest.mark.parametrize("clients", [1, 6])
def test_one_participant_is_not_everybody(clients):
    state = Momentum(W=normal(TRIALS, clients, 2), seen=normal(TRIALS, clients, 4))
    active, seen = np.zeros((TRIALS, 1), dtype=int), normal(TRIALS, 1, 4, seed=1)
    new = state.update(seen=seen, active=active)
    assert new.seen.shape == (TRIALS, clients, 4)
    assert np.array_equal(new.seen[:, :1], seen)
    assert np.array_equal(new.seen[:, 1:], state.seen[:, 1:])


def test_an_array_that_the_state_has_not_is_named():
    state = Momentum(S=normal(TRIALS, 1, 9), seen=normal(TRIALS, 6, 4))
    with pytest.raises(ValueError, match="has no 'W'"):
        state.update(W=normal(TRIALS, 2, 2), active=ACTIVE)


def test_an_update_of_everything_may_change_sizes():
    new = full().update(B=normal(TRIALS, 7, 3), W=normal(TRIALS, 1, 3), S=normal(TRIALS, 6, 7), M=normal(TRIALS, 8, 8))
    assert (new.dim, new.M.shape) == (7, (3, 8, 8))
    assert full().update(S=None).S is None
    heads = lf.State(B=normal(2, 5, 3), W=normal(2, 4, 3, 4), S=normal(2, 1, 3, 6))
    assert heads.update(W=normal(2, 1, 3, 4), S=normal(2, 4, 3, 6)).classes == 3
    with pytest.raises(ValueError, match="the columns of W must fit B"):
        heads.update(W=normal(2, 1, 3, 3))


WRONG_UPDATES = [
    ({"S": normal(TRIALS, 2, 9), "active": ACTIVE}, r"S of shape \(3, 2, 9\)"),
    ({"seen": normal(TRIALS, 1), "active": ACTIVE}, r"seen of shape \(3, 1\)"),
    ({"seen": normal(TRIALS, 6), "active": ACTIVE}, r"seen of shape \(3, 6\)"),
    ({"seen": normal(TRIALS), "active": ACTIVE}, r"seen of shape \(3,\)"),
    ({"W": normal(TRIALS, 6, 3)}, r"W of shape \(3, 6, 3\), but the columns of W must fit B"),
    ({"W": normal(TRIALS, 1, 1)}, r"W of shape \(3, 1, 1\), but the columns of W must fit B"),
    ({"B": normal(TRIALS, 9, 3)}, r"B of shape \(3, 9, 3\), but the columns of W must fit B"),
    ({"B": normal(TRIALS, 8, 2)}, r"B of shape \(3, 8, 2\), but the columns of S must fit B"),
    ({"S": normal(TRIALS, 6, 8)}, r"S of shape \(3, 6, 8\), but the columns of S must fit B"),
    ({"W": normal(2, 6, 2)}, r"W of shape \(2, 6, 2\), but .* number of trials"),
    ({"M": normal(1, 4)}, r"M of shape \(1, 4\), but .* number of trials"),
    ({"M": 3.0}, r"M of shape \(\), but .* number of trials"),
    ({"B": normal(TRIALS)}, r"B of shape \(3,\)"),
    ({"W": normal(2, 2, 2), "active": ACTIVE}, "2 participants"),
    ({"W": normal(TRIALS, 2, 1), "active": ACTIVE}, "2 participants"),
]


@pytest.mark.parametrize(("changes", "named"), WRONG_UPDATES)
def test_an_update_that_does_not_fit_is_refused(changes, named):
    state = full().update(S=normal(TRIALS, 1, 9)) if "active" in changes and "S" in changes else full()
    with pytest.raises(ValueError, match=named) as caught:
        state.update(**changes)
    assert "\n" not in str(caught.value)


WRONG_ACTIVE = {
    "negative": (ACTIVE - 1, "number -1, allowed: 0 to"),
    "too large": (ACTIVE + 3, "number 6, allowed: 0 to"),
    "twice": (np.zeros((3, 2), dtype=int), "ascending"),
    "descending": (ACTIVE[:, ::-1], "ascending"),
    "all, descending": (np.tile(np.arange(6)[::-1], (3, 1)), "ascending"),
    "of fewer trials": (ACTIVE[:1], r"shape \(1, 2\)"),
    "of one trial": (ACTIVE[0], "integer array"),
    "no integers": (ACTIVE * 1.0, "integer array"),
    "a list": (ACTIVE.tolist(), "integer array"),
    "nothing": (None, "integer array"),
}


@pytest.mark.parametrize("name", WRONG_ACTIVE)
def test_invalid_participants_are_named(name):
    state = Momentum(S=normal(TRIALS, 1, 9), seen=normal(TRIALS, 6, 4))
    active, named = WRONG_ACTIVE[name]
    rows = normal(TRIALS, active.shape[-1] if isinstance(active, np.ndarray) else 2, 4)
    with pytest.raises(ValueError, match=named):
        state.take_clients("seen", active)
    if active is not None:
        with pytest.raises(ValueError, match=named):
            state.update(seen=rows, active=active)


def test_participants_of_a_shared_row_are_checked_as_far_as_they_are_known():
    state = Momentum(S=normal(TRIALS, 1, 9), seen=normal(TRIALS, 6, 4))
    assert state.take_clients("S", ACTIVE + 100) is state.S
    for active in (ACTIVE - 1, ACTIVE[:2], np.zeros((3, 2), dtype=int)):
        with pytest.raises(ValueError, match="active"):
            state.take_clients("S", active)


# --- predictors and sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", ["B, W", "S", "B, W, S", "B, w", "s", "B, w, s", "B, w, S", "B, W, s"])
def test_predictors(parts):
    """One row, in lower case, serves all clients; where nothing is a client's own there is one predictor."""
    arrays = {"B": normal(2, 4, 2), "W": normal(2, 5, 2, seed=1), "S": normal(2, 5, 4, seed=2)}
    rows = {name.upper(): arrays[name.upper()][:, : 1 if name.islower() else None] for name in parts.split(", ")}
    held = {name: np.repeat(rows[name], 5, axis=1) if name.lower() in parts else rows[name] for name in rows}
    for clients in (None, slice(1, 3), slice(None, None, 2), np.array([4, 0])):
        theta = lf.State(**rows).predictors(clients)
        chosen = np.arange(5)[slice(None) if clients is None else clients]
        if parts in ("B, w", "s", "B, w, s"):
            chosen = chosen[:1]
        assert theta.shape == (2, len(chosen), 4)
        for trial, (row, client) in ((t, pair) for t in range(2) for pair in enumerate(chosen)):
            expected = np.zeros(4)
            if "B" in held:
                expected += held["B"][trial] @ held["W"][trial, client]
            if "S" in held:
                expected += held["S"][trial, client]
            np.testing.assert_allclose(theta[trial, row], expected, atol=1e-14)
        theta[:] = 0.0  # a copy: the state stays
        assert all(array.any() for array in rows.values())


def test_clients_and_trials_are_chosen_one_by_one():
    state = full()
    whole = state.predictors()
    for clients in ([5, 0, 2], (1,), np.array([3, 4], dtype=np.uint8), range(2, 4), slice(1, 4), slice(None), None):
        chosen = whole if clients is None else whole[:, clients if isinstance(clients, slice) else list(clients)]
        np.testing.assert_allclose(state.predictors(clients), chosen, rtol=1e-14)
    np.testing.assert_array_equal(state.trials(slice(1, 3)).predictors(), whole[1:])
    one = lf.State(S=state.S[:, :1])
    np.testing.assert_array_equal(one.predictors([7, 3]), one.S)
    for clients, named in (([-1], "number -1, allowed: 0 to"), ([2, 6], "number 6"), ([1, 1], "a client twice")):
        with pytest.raises(ValueError, match=named):
            state.predictors(clients)
    with pytest.raises(ValueError, match="number -1, allowed: 0 or more"):
        one.predictors([7, -1])
    for clients in (2, np.int64(2), np.array(2), [[0, 1]], [0.0], [True, False], "ab", ["a"]):
        with pytest.raises(ValueError, match="must be a slice or a sequence of numbers of clients"):
            state.predictors(clients)
    for wrong in (0, [0], np.array([True, False, True]), None):
        with pytest.raises(TypeError, match="must be a slice"):
            state.trials(wrong)


@pytest.mark.parametrize(
    ("shapes", "dim", "classes"),
    [
        ({"B": (2, 5, 3), "W": (2, 4, 3)}, 5, 0),
        ({"B": (2, 5, 3), "W": (2, 1, 4, 4)}, 5, 4),
        ({"S": (2, 4, 5)}, 5, 0),
        ({"S": (2, 4, 3, 6)}, 5, 3),
        ({"shared": (2, 1, 5)}, 0, 0),
    ],
)
def test_a_state_has_the_sizes_of_its_arrays(shapes, dim, classes):
    state = lf.State(**{name: np.zeros(shape) for name, shape in shapes.items()})
    assert (state.dim, state.classes) == (dim, classes)


def test_a_state_has_the_sizes_of_what_it_serves():
    own = APFLState(own=np.zeros((2, 4, 3, 6)), shared=np.zeros((2, 1, 3, 6)), mix=np.ones((2, 4)))
    assert (own.dim, own.classes) == (5, 3)
    own = LGFedAvgState(own=np.zeros((2, 4, 5, 3)), W=np.zeros((2, 1, 3)))
    assert (own.dim, own.classes) == (5, 0)


def test_dense_predictors_of_more_than_8_gigabytes_are_refused(monkeypatch):
    monkeypatch.setattr("linfed.algorithms.parts.base.composed", lambda B, W: W)
    B = np.broadcast_to(0.0, (2, 10**6, 1))
    some, more = (lf.State(B=B, W=np.broadcast_to(0.0, (2, rows, 1))) for rows in (500, 501))
    assert some.predictors().shape == (2, 500, 1)
    assert more.predictors(slice(500)).shape == (2, 500, 1)
    with pytest.raises(lf.SizeError, match=r"8\.02 GB: pass fewer clients="):
        more.predictors()


def test_new_clients_take_only_what_all_clients_share():
    one, two = (lf.State(S=normal(1, rows, 3)) for rows in (1, 2))
    assert np.array_equal(Held(state=one).adapt(one, None).S, one.S)
    with pytest.raises(ValueError, match="Held learns nothing that new clients can use"):
        Held(state=two).adapt(two, None)


def test_an_algorithm_of_a_users_own_inside_another_is_a_users_own():
    class Own(lf.FedRep):
        pass

    for algorithm, mine in (
        (lf.FedRep(rank=2, step_size=0.1), True),
        (lf.Personalized(base=lf.FedRep(rank=2, step_size=0.1), ridge=0.1), True),
        (Own(rank=2, step_size=0.1), False),
        (lf.Personalized(base=Own(rank=2, step_size=0.1), ridge=0.1), False),
    ):
        assert is_from_linfed(algorithm) == mine
