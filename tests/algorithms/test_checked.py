"""States that an algorithm returns are checked in every round; an error names the method, the array and the shapes."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.checked import check_state
from tests.helpers import normal

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=9, rank=2, noise_std=0.3)
TRIALS = 3
B, W, S = normal(TRIALS, 9, 2), normal(TRIALS, 6, 2), normal(TRIALS, 6, 9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Momentum(lf.State):
    """A state with arrays of its own, one of them the clients'."""

    M: np.ndarray = None
    seen: np.ndarray = None

    per_client = lf.State.per_client | {"seen"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Returns(lf.Algorithm):
    """Returns a given state at the start, another one from a round on, and a last one at the end."""

    first: object = None
    then: object = ...
    last: object = ...
    at: int = 1
    rank: int = 2
    requires = lf.Requires.FEATURES

    @property
    def finishes(self):
        return self.last is not ...

    def initial_state(self, start):
        return self.first

    def step(self, state, batch, rng):
        return self.first if self.then is ... or batch.round < self.at else self.then

    def finish(self, state, batch, rng):
        return self.last


def run(algorithm, data=None, **changes):
    return lf.simulate(algorithm, PROBLEM, data=data or lf.FixedSamples(12), trials=TRIALS, **{"n_rounds": 3} | changes)


RIGHT = {
    "B, W": lf.State(B=B, W=W),
    "B, one head": lf.State(B=B, W=W[:, :1]),
    "B, W, S": lf.State(B=B, W=W, S=S),
    "B, W, one S": lf.State(B=B, W=W, S=S[:, :1]),
    "single precision": lf.State(B=B.astype(np.float32), W=W.astype(np.float32)),
    "a subclass": Momentum(B=B, W=W, M=B[:, 0], seen=np.zeros((TRIALS, 6), dtype=int)),
    "a subclass, one row": Momentum(B=B, W=W, M=B, seen=np.zeros((TRIALS, 1, 4), dtype=bool)),
    "not finite": lf.State(B=B * np.nan, W=W),
}
# what is returned, the error, and what it names
WRONG = {
    "nothing": (None, TypeError, "None"),
    "arrays": (B, TypeError, "expected a lf.State"),
    "a class": (lf.State, TypeError, "expected a lf.State"),
    "no W": (lf.State(B=B), ValueError, "expected a predictor"),
    "no B": (lf.State(W=W), ValueError, "expected a predictor"),
    "no W beside S": (lf.State(B=B, S=S), ValueError, "expected a predictor"),
    "no arrays": (lf.State(), ValueError, "expected a predictor"),
    "S alone": (lf.State(S=S), ValueError, "k = 2 columns"),
    "one trial": (lf.State(B=B[0], W=W), ValueError, r"B .*\(9, 2\).* = \(3, 9, 2\)"),
    "more trials": (lf.State(B=np.tile(B, (2, 1, 1)), W=W), ValueError, r"B .*\(6, 9, 2\).* = \(3, 9, 2\)"),
    "other d": (lf.State(B=B[:, :8], W=W), ValueError, r"B .*\(3, 8, 2\).* = \(3, 9, 2\)"),
    "other k": (lf.State(B=B[..., :1], W=W[..., :1]), ValueError, r"B .*\(3, 9, 1\).* = \(3, 9, 2\)"),
    "W of other k": (lf.State(B=B, W=W[..., :1]), ValueError, r"W .*\(3, 6, 1\).* = \(3, 6, 2\)"),
    "W of participants": (lf.State(B=B, W=W[:, :4]), ValueError, r"W .*\(3, 4, 2\).* = \(3, 6, 2\)"),
    "W of one trial": (lf.State(B=B, W=W[:1]), ValueError, r"W .*\(1, 6, 2\).* = \(3, 6, 2\)"),
    "one head of others": (lf.State(B=B, W=W[:1, :1]), ValueError, r"W .* = \(3, 1, 2\)"),
    "S of other d": (lf.State(B=B, W=W, S=S[..., 1:]), ValueError, r"S .*\(3, 6, 8\).* = \(3, 6, 9\)"),
    "complex": (lf.State(B=B * 1j, W=W), TypeError, "B of dtype complex128"),
    "integers": (lf.State(B=B.astype(int), W=W), TypeError, "B of dtype int64"),
    "objects": (lf.State(B=B, W=W.astype(object)), TypeError, "W of dtype object"),
    "a list": (lf.State(B=B, W=W.tolist()), TypeError, "W = .*, expected an array"),
    "a number": (lf.State(B=3.0, W=W), TypeError, r"B = 3.0, expected an array .* = \(3, 9, 2\)"),
    "own array, one trial": (Momentum(B=B, W=W, M=B[:1]), ValueError, r"M .*\(1, 9, 2\)"),
    "own array, clients": (Momentum(B=B, W=W, seen=W[:, :4]), ValueError, r"seen .* = \(3, 6, 2\)"),
    "own array, complex": (Momentum(B=B, W=W, M=1j * B), TypeError, "M of dtype complex128"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_valid_state_passes(name):
    engine = "projected" if name in ("B, W", "a subclass") else "explicit"
    state = RIGHT[name]
    result = run(Returns(first=state, then=dataclasses.replace(state)), lf.FreshSamples(12), engine=engine)
    assert type(result.final) is type(state)
    run(Returns(first=state, last=state))


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_state_is_named_with_the_method_that_returned_it(name):
    state, error, named = WRONG[name]
    right = RIGHT["a subclass"] if type(state) is Momentum else RIGHT["B, W"]
    other_arrays = isinstance(state, lf.State) and state.arrays().keys() != right.arrays().keys()
    named_later = "the arrays of" if other_arrays else named
    for method, algorithm, fragment in (
        ("initial_state", Returns(first=state), named),
        ("step", Returns(first=right, then=state), named_later),
        ("step", Returns(first=right, then=state, at=3), named_later),
        ("finish", Returns(first=right, last=state), named_later),
    ):
        with pytest.raises((TypeError, error), match=rf"^Returns\.{method} returned .*{fragment}") as caught:
            run(algorithm)
        assert "\n" not in str(caught.value)


def test_rounds_before_an_invalid_state_are_there():
    algorithm = Returns(first=RIGHT["B, W"], then=None, at=3)
    steps = lf.iterate(algorithm, PROBLEM, data=lf.FixedSamples(12), n_rounds=5, trials=TRIALS)
    assert [next(steps).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TypeError, match=r"Returns.step returned None"):
        next(steps)


@pytest.mark.parametrize("name", ["B, one head", "single precision"])
def test_a_valid_state_may_change_its_form(name):
    result = run(Returns(first=RIGHT["B, W"], then=RIGHT[name], at=3), n_rounds=4)
    assert result.final.W.shape == RIGHT[name].W.shape


def test_a_state_keeps_its_class_and_its_arrays():
    plain, more = lf.State(B=B, W=W), lf.State(B=B, W=W, S=S)
    for first, then in ((plain, more), (more, plain), (Momentum(B=B, W=W), plain), (plain, Momentum(B=B, W=W))):
        for algorithm in (Returns(first=first, then=then), Returns(first=first, then=first, last=then)):
            with pytest.raises(TypeError, match="expected the class and the arrays of"):
                run(algorithm)


def test_the_first_round_is_checked_under_the_chain():
    with pytest.raises(ValueError, match=r"Returns.step returned B .* = \(3, 6, 2\)"):
        run(Returns(first=RIGHT["B, W"]), lf.FreshSamples(12), engine="chain")


def check(state, **changes):
    return check_state(state, "f", **{"trials": TRIALS, "n_clients": 6, "dim": 9, "columns": 0} | changes)


def test_the_number_of_columns_may_be_left_open():
    for columns in (1, 2):
        check(lf.State(B=B[..., :columns], W=W[..., :columns]))
    with pytest.raises(ValueError, match=r"W of shape \(3, 6, 1\), .* = \(3, 6, 2\)"):
        check(lf.State(B=B, W=W[..., :1]))
    with pytest.raises(TypeError, match=r"B = 3.0, .* = \(3, 9, 0\)"):
        check(lf.State(B=3.0, W=W))


def test_states_of_classes_have_a_row_and_a_bias_for_each():
    heads, rows = normal(TRIALS, 6, 4, 3), normal(TRIALS, 6, 4, 10)
    for clients in (1, 6):
        check(lf.State(B=B, W=heads[:, :clients], S=rows[:, :clients]), classes=4)
    short = rows[:, :1]
    for state, named in (
        (lf.State(B=B, W=heads[..., 1:]), r"W of shape \(3, 6, 4, 2\), .* = \(3, 6, 4, 3\)"),
        (lf.State(S=short[..., 1:]), r"S of shape \(3, 1, 4, 9\), .* = \(3, 1, 4, 10\)"),
        (lf.State(S=short[:, :, 0]), r"S of shape \(3, 1, 10\), .* = \(3, 6, 4, 10\)"),
    ):
        with pytest.raises(ValueError, match=named):
            check(state, classes=4)
