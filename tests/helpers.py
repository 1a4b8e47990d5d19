"""What several test modules need of the package itself; plain loops to compare with are in `references`."""

from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def assert_same(one, other, first=slice(None), second=slice(None)):
    """Assert that two results agree bit for bit in the named trials: metrics, states and outcomes."""
    assert list(one.metrics) == list(other.metrics)
    pairs = [(one.metrics[name], other.metrics[name]) for name in one.metrics]
    pairs += [(array, other.final.arrays()[name]) for name, array in one.final.arrays().items()]
    for a, b in pairs:
        assert np.ascontiguousarray(a[first]).tobytes() == np.ascontiguousarray(b[second]).tobytes()
    assert one.status[first] == other.status[second]
    assert np.array_equal(one.status_round[first], other.status_round[second])


def rounds_of(*arguments, **settings):
    """Return an iterator over the rounds of a run, without the initial state."""
    steps = lf.iterate(*arguments, **settings)
    assert next(steps).number == 0
    return steps


def assert_one_line(call, fragments, errors=ValueError):
    """Assert that a call raises one line of text with all the fragments; return the line."""
    with pytest.raises(errors) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message
    return message


@dataclass(frozen=True, kw_only=True)
class Held(lf.Algorithm):
    """A state that never moves."""

    state: lf.State

    def initial_state(self, start):
        return self.state

    def step(self, state, batch, rng):
        return state


@dataclass(frozen=True, kw_only=True, eq=False)
class Wrapped(lf.Algorithm):
    """Starts and ends as another algorithm does; what it does in a step, and keeps, a subclass says."""

    inner: lf.Algorithm

    @property
    def columns(self):
        return self.inner.columns

    @property
    def initialisation(self):
        return self.inner.initialisation

    @property
    def finishes(self):
        return self.inner.finishes

    def initial_state(self, start):
        return self.inner.initial_state(start)
