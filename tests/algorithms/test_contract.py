"""What passes between loop and algorithm: arrays that cannot be written into, states that are what they should be."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed._values import is_from_linfed
from linfed.algorithms.parts.checked import check_state
from linfed.algorithms.personal.apfl import APFLState
from linfed.algorithms.representation.lgfedavg import LGFedAvgState
from tests.helpers import Held, each, normal, rounds_of

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=9, rank=2, noise_std=0.3)
TRIALS = 3


def run(algorithm, data=None, problem=PROBLEM, **changes):
    arguments = {"rounds": 3, "trials": TRIALS, "seed": 4} | changes
    return lf.simulate(algorithm, problem, data=data or lf.FixedSamples(12), **arguments)


# --- nothing that is handed out can be written into -----------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scribbler(lf.FedRep):
    """FedRep, which first multiplies what it was handed by ten, if that can be done."""

    target: object = None

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        if self.target is not None:
            self.target(state, batch)
        return super().step(state, batch, rng)


def scaled(array):
    array *= 10


def in_place(name):
    return lambda state, batch: scaled(getattr(batch, name))


STATE = {
    "state.B": lambda state, batch: scaled(state.B),
    "state.W": lambda state, batch: scaled(state.W),
    "part of state.B": lambda state, batch: scaled(state.B[:, 0]),
    "state.take_clients": lambda state, batch: scaled(state.take_clients("W", np.tile(np.arange(6), (TRIALS, 1)))),
    "state.update": lambda state, batch: scaled(state.update(W=state.W).B),
}
BATCH = {f"batch.{name}": in_place(name) for name in ("active", "counts")}
BATCH["batch.singular"] = lambda state, batch: np.logical_not(batch.singular, out=batch.singular)
ROWS = {f"batch.{name}": in_place(name) for name in ("X", "y")} | {
    "batch.project(B).Z": lambda state, batch: scaled(batch.project(state.B).Z),
    "half.X": lambda state, batch: scaled(batch.shifted(state.B[:, None, :, 0]).X),
}
SETTINGS = {
    "fixed, explicit": ("explicit", lf.FixedSamples(12), 1.0),
    "fixed, explicit, some": ("explicit", lf.FixedSamples(12), 0.5),
    "fixed, compressed": ("compressed", lf.FixedSamples(12), 1.0),
    "fresh, explicit": ("explicit", lf.FreshSamples(12), 0.5),
    "fresh, compressed": ("compressed", lf.FreshSamples(12), 1.0),
    "fresh, projected": ("projected", lf.FreshSamples(12), 0.5),
    "fresh, chain": ("chain", lf.FreshSamples(12), 1.0),
}
CASES = [
    (setting, target)
    for setting in SETTINGS
    for target in (STATE | BATCH | (ROWS if "projected" not in setting and "chain" not in setting else {}))
]


@each(("setting", "target"), CASES)
def test_an_algorithm_cannot_write_into_what_it_is_handed(setting, target):
    engine, data, participation = SETTINGS[setting]
    write = (STATE | BATCH | ROWS)[target]
    with pytest.raises(ValueError, match="read-only"):
        run(
            Scribbler(rank=2, step_size=0.1, target=write, init="random"),
            data,
            engine=engine,
            participation=participation,
        )


def test_drawn_rows_cannot_be_written_into(monkeypatch):
    monkeypatch.setattr("linfed.data.sources.CACHE_VALUES", 1)  # rows that are drawn when they are read
    with pytest.raises(ValueError, match="read-only"):
        run(Scribbler(rank=2, step_size=0.1, target=in_place("X")), lf.FreshSamples(4), engine="explicit")


def test_given_samples_cannot_be_written_into_through_a_batch():
    data = lf.FixedSamples(12).draw(PROBLEM, trials=TRIALS, seed=4)
    kept = data.X.copy(), data.y.copy()
    for target in ("X", "y", "counts"):
        with pytest.raises(ValueError, match="read-only"):
            scaled(getattr(data, target))
        with pytest.raises(ValueError, match="read-only"):
            run(Scribbler(rank=2, step_size=0.1, target=in_place(target)), data, engine="explicit")
    assert all(np.array_equal(one, other) for one, other in zip(kept, (data.X, data.y), strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keeps(lf.LocalOnly):
    """Writes into the array that it returned a round ago: a state would change behind the loop's back."""

    kept: list = dataclasses.field(default_factory=list, compare=False)

    def step(self, state, batch, rng):
        if self.kept:
            self.kept[-1] *= 0.5
        self.kept.append(batch.least_squares())
        return state.update(S=self.kept[-1])


def test_an_algorithm_cannot_write_into_what_it_returned():
    with pytest.raises(ValueError, match="read-only"):
        run(Keeps())


BUFFER = np.zeros((TRIALS, 6, 9))
VIEWS = {
    "a slice": lambda buffer: buffer[:],
    "a view of a view": lambda buffer: buffer.reshape(-1)[:].reshape(buffer.shape),
    "read-only": lambda buffer: np.broadcast_to(buffer, buffer.shape),
    "memory of others": lambda buffer: np.frombuffer(memoryview(buffer)).reshape(buffer.shape),
    "a transposed view": lambda buffer: buffer.mT.mT,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buffered(lf.Algorithm):
    """Returns views of one buffer, which the next step overwrites; trial 0 diverges in round 3."""

    summary = "one gradient step"
    view: object
    diverges: bool = False

    def initial_state(self, start):
        BUFFER[:] = 0.0
        return lf.State(S=self.view(BUFFER))

    def step(self, state, batch, rng):
        np.copyto(BUFFER, state.S - 0.1 * batch.gradient(state.S))
        if self.diverges and batch.round == 3:
            BUFFER[0] = np.inf
        return lf.State(S=self.view(BUFFER))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain(Buffered):
    def initial_state(self, start):
        return lf.State(S=np.zeros((TRIALS, 6, 9)))

    def step(self, state, batch, rng):
        S = state.S - 0.1 * batch.gradient(state.S)
        if self.diverges and batch.round == 3:
            S[0] = np.inf
        return lf.State(S=S)


@each("view", VIEWS.values(), ids=list(VIEWS))
@pytest.mark.parametrize("diverges", [False, True])
def test_a_buffer_that_is_used_again_changes_no_earlier_state(view, diverges):
    arguments = {"problem": PROBLEM, "data": lf.FreshSamples(8), "rounds": 5, "trials": TRIALS}
    right, found = (list(lf.iterate(kind(view=view, diverges=diverges), **arguments)) for kind in (Plain, Buffered))
    assert len({step.after.S[1, 0, 0] for step in right}) == 6
    for one, other in zip(right, found, strict=True):
        np.testing.assert_array_equal(other.before.S, one.before.S)
        np.testing.assert_array_equal(other.after.S, one.after.S)
    finals = [lf.simulate(kind(view=view, diverges=diverges), **arguments).final.S for kind in (Plain, Buffered)]
    np.testing.assert_array_equal(*finals)


def test_an_algorithm_of_ones_own_inside_another_is_ones_own():
    for algorithm, mine in (
        (lf.FedRep(rank=2, step_size=0.1), True),
        (lf.Personalized(base=lf.FedRep(rank=2, step_size=0.1), ridge=0.1), True),
        (Keeps(), False),
        (lf.Personalized(base=type("Own", (lf.FedRep,), {})(rank=2, step_size=0.1), ridge=0.1), False),
    ):
        assert is_from_linfed(algorithm) == mine


def test_the_end_is_handed_nothing_to_write_into():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Ends(lf.FedAvg):
        write: object = None

        def finish(self, state, batch, rng):
            self.write(state, batch)
            return super().finish(state, batch, rng)

    for target in ("state.B", "state.W", *BATCH, *ROWS):
        write = (STATE | BATCH | ROWS)[target]
        for data in (lf.FixedSamples(12), lf.FreshSamples(12)):
            with pytest.raises(ValueError, match="read-only"):
                run(Ends(rank=2, step_size=0.1, fine_tune=lf.ExactHeads(), write=write), data, engine="explicit")


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
def test_rounds_that_are_looked_at_cannot_be_written_into(engine):
    B, W = 0.3 * normal(TRIALS, 9, 2), 0.3 * normal(TRIALS, 6, 2, seed=1)
    W[1] *= 1e3  # diverges
    flute = lf.FLUTE(rank=2, step_size=0.05, init=(B, W))
    alive = []
    for step in rounds_of(flute, PROBLEM, data=lf.FixedSamples(12), rounds=8, engine=engine):
        arrays = [*step.before.arrays().values(), *step.after.arrays().values(), step.alive]
        arrays += [step.batch.X, step.batch.y, step.batch.counts, step.batch.active]
        assert not any(array.flags.writeable for array in arrays)
        alive.append(step.alive.tolist())
    assert alive[0] == [True, True, True]
    assert alive[-1] == [True, False, True]
    assert B.flags.writeable  # the caller's own arrays stay as they were
    assert W.flags.writeable


@pytest.mark.long
def test_final_states_are_read_only_however_they_were_made(monkeypatch):
    final = [run(lf.FedRep(rank=2, step_size=0.1)).final]
    monkeypatch.setattr("linfed.simulation.job.CHUNK_BYTES", 1.0)
    final += [run(lf.FedRep(rank=2, step_size=0.1), workers=workers).final for workers in (1, 2)]
    for state in final:
        assert not any(array.flags.writeable for array in state.arrays().values())
        assert state.B.tobytes() == final[0].B.tobytes()


def test_the_state_that_is_measured_is_read_only(monkeypatch):
    seen = []

    def measure(self, state):
        seen.extend(array.flags.writeable for array in state.arrays().values())
        return {}

    monkeypatch.setattr("linfed.simulation.metrics.Recorder.measure", measure)
    run(lf.FedRep(rank=2, step_size=0.1))
    assert seen == [False] * 2 * 4


def test_a_gradient_that_is_asked_for_again_is_the_same():
    """The projected batch keeps what it told; changing the answer in place must not change the next one."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Twice(lf.FedRep):
        def step(self, state, batch, rng):
            features = batch.project(state.B)
            fit = features.fit()
            first = fit.representation_gradient()
            kept = first.copy()
            first *= 10
            assert np.array_equal(fit.representation_gradient(), kept)
            return state.update(W=fit.W, active=batch.active)

        requires = lf.Requires.FEATURES

    for engine in ("explicit", "compressed", "projected", "chain"):
        run(Twice(rank=2, step_size=0.1), lf.FreshSamples(12), engine=engine)


# --- what an algorithm returns is a state --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Momentum(lf.State):
    """A state with arrays of its own, one of them the clients'."""

    M: np.ndarray = None
    seen: np.ndarray = None

    per_client = lf.State.per_client | {"seen"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Returns(lf.Algorithm):
    """Returns what it is told to, at the start, from its steps and at the end."""

    first: object = None
    then: object = ...
    last: object = ...
    rank: int = 2
    requires = lf.Requires.FEATURES

    @property
    def finishes(self):
        return self.last is not ...

    def initial_state(self, start):
        return self.first

    def step(self, state, batch, rng):
        return self.first if self.then is ... else self.then

    def finish(self, state, batch, rng):
        return self.last


def test_one_update_replaces_what_is_shared_and_scatters_what_is_the_clients():
    state = Momentum(S=normal(TRIALS, 1, 9), M=normal(TRIALS, 9), seen=normal(TRIALS, 6, 4))
    active = np.array([[0, 3], [1, 2], [4, 5]])
    S, M, seen = normal(TRIALS, 1, 9, seed=1), normal(TRIALS, 9, seed=2), normal(TRIALS, 2, 4, seed=3)
    new = state.update(S=S, M=M, seen=seen, active=active)
    assert new.S is S
    assert new.M is M
    for t in range(TRIALS):
        for i in range(6):
            expected = seen[t, list(active[t]).index(i)] if i in active[t] else state.seen[t, i]
            assert np.array_equal(new.seen[t, i], expected)
    assert np.array_equal(new.take_clients("seen", active), seen)
    assert new.take_clients("S", active) is S


@pytest.mark.parametrize("clients", [1, 6])
def test_one_participant_is_not_everybody(clients):
    state = Momentum(W=normal(TRIALS, clients, 2), seen=normal(TRIALS, clients, 4))
    active, seen = np.zeros((TRIALS, 1), dtype=int), normal(TRIALS, 1, 4, seed=1)
    new = state.update(seen=seen, active=active)
    assert new.seen.shape == (TRIALS, clients, 4)
    assert np.array_equal(new.seen[:, :1], seen)
    assert np.array_equal(new.seen[:, 1:], state.seen[:, 1:])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"S": normal(TRIALS, 2, 9)}, r"S of shape \(3, 2, 9\), expected 1 row, which all clients share"),
        ({"seen": normal(TRIALS, 1, 4)}, r"seen of shape \(3, 1, 4\), expected a row for each of 2 participants"),
        ({"seen": normal(TRIALS, 6, 4)}, r"seen of shape \(3, 6, 4\), expected a row for each of 2 participants"),
        ({"seen": normal(TRIALS)}, r"seen of shape \(3,\), expected a row for each of 2 participants"),
        ({"W": normal(TRIALS, 2, 2)}, r"Momentum\(S .*, seen .*\) has no 'W'"),
    ],
)
def test_an_update_of_other_rows_says_so(changes, said):
    state = Momentum(S=normal(TRIALS, 1, 9), seen=normal(TRIALS, 6, 4))
    with pytest.raises(ValueError, match=said):
        state.update(active=np.array([[0, 3], [1, 2], [4, 5]]), **changes)


ACTIVE = np.array([[0, 3], [1, 2], [4, 5]])
WRONG_ACTIVE = {
    "negative": (ACTIVE - 1, "active contains the number -1, allowed: 0 to n_clients - 1 = 5"),
    "too large": (ACTIVE + 3, "active contains the number 6, allowed: 0 to n_clients - 1 = 5"),
    "twice": (np.zeros((3, 2), dtype=int), "must be ascending in each trial, without repetitions"),
    "descending": (ACTIVE[:, ::-1], "must be ascending in each trial"),
    "all, descending": (np.tile(np.arange(6)[::-1], (3, 1)), "must be ascending in each trial"),
    "of fewer trials": (ACTIVE[:1], r"active has shape \(1, 2\), expected \(trials, p\) = \(3, p\)"),
    "of more trials": (np.tile(ACTIVE, (2, 1)), r"active has shape \(6, 2\), expected"),
    "one trial": (ACTIVE[0], r"active = .* must be an integer array \(trials, p\)"),
    "floats": (ACTIVE + 0.0, "must be an integer array"),
    "truth values": (ACTIVE > 0, "must be an integer array"),
    "a list": (ACTIVE.tolist(), "must be an integer array"),
    "a number": (2, "must be an integer array"),
    "nothing": (None, "must be an integer array"),
}


@each("name", WRONG_ACTIVE)
def test_participants_that_cannot_be_are_named(name):
    state = Momentum(S=normal(TRIALS, 1, 9), seen=normal(TRIALS, 6, 4))
    active, said = WRONG_ACTIVE[name]
    rows = normal(TRIALS, active.shape[-1] if isinstance(active, np.ndarray) else 2, 4)
    asked = [lambda: state.take_clients("seen", active)]
    asked += [lambda: state.update(seen=rows, active=active)] if active is not None else []
    for question in asked:
        with pytest.raises(ValueError, match=said):
            question()


def test_participants_of_a_shared_row_are_checked_as_far_as_they_are_known():
    state = Momentum(S=normal(TRIALS, 1, 9), seen=normal(TRIALS, 6, 4))
    assert state.take_clients("S", ACTIVE + 100) is state.S
    for active in (ACTIVE - 1, ACTIVE[:2], np.zeros((3, 2), dtype=int)):
        with pytest.raises(ValueError, match="active"):
            state.take_clients("S", active)


def full():
    return Momentum(
        B=normal(TRIALS, 9, 2),
        W=normal(TRIALS, 6, 2),
        S=normal(TRIALS, 6, 9),
        M=normal(TRIALS, 4),
        seen=normal(TRIALS, 6),
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"W": normal(TRIALS, 6, 3)}, r"got W of shape \(3, 6, 3\), but the columns of W must fit B: .*Momentum\("),
        ({"W": normal(TRIALS, 1, 1)}, r"got W of shape \(3, 1, 1\), but the columns of W must fit B"),
        ({"B": normal(TRIALS, 9, 3)}, r"got B of shape \(3, 9, 3\), but the columns of W must fit B"),
        ({"B": normal(TRIALS, 8, 2)}, r"got B of shape \(3, 8, 2\), but the columns of S must fit B"),
        ({"S": normal(TRIALS, 6, 8)}, r"got S of shape \(3, 6, 8\), but the columns of S must fit B"),
        ({"W": normal(2, 6, 2)}, r"got W of shape \(2, 6, 2\), but all arrays must have one number of trials"),
        ({"M": normal(1, 4)}, r"got M of shape \(1, 4\), but all arrays must have one number of trials"),
        ({"M": 3.0}, r"got M of shape \(\), but all arrays must have one number of trials"),
        ({"B": normal(TRIALS)}, r"got B of shape \(3,\), but the columns of S must fit B"),
        ({"W": normal(2, 2, 2), "active": ACTIVE}, r"a row for each of 2 participants: \(3, 2, 2\)"),
        ({"W": normal(TRIALS, 2, 1), "active": ACTIVE}, r"a row for each of 2 participants: \(3, 2, 2\)"),
    ],
)
def test_an_update_that_fits_no_more_says_so(changes, said):
    with pytest.raises(ValueError, match=said) as caught:
        full().update(**changes)
    assert "\n" not in str(caught.value)


def test_an_update_of_everything_may_change_sizes():
    new = full().update(B=normal(TRIALS, 7, 3), W=normal(TRIALS, 1, 3), S=normal(TRIALS, 6, 7), M=normal(TRIALS, 8, 8))
    assert (new.dim, new.M.shape) == (7, (3, 8, 8))
    assert full().update(S=None).S is None
    heads = lf.State(B=normal(2, 5, 3), W=normal(2, 4, 3, 4), S=normal(2, 1, 3, 6))
    assert heads.update(W=normal(2, 1, 3, 4), S=normal(2, 4, 3, 6)).classes == 3
    with pytest.raises(ValueError, match="the columns of W must fit B"):
        heads.update(W=normal(2, 1, 3, 3))


@each(
    "clients", [2, np.int64(2), np.array(2), [[0, 1]], [0.0], [True, False], "ab", ["a"], [], None, [[0], [0, 1]]][:-3]
)
def test_clients_are_numbers_in_a_row(clients):
    state = full()
    with pytest.raises(ValueError, match=r"^clients = .* must be a slice or a sequence of numbers of clients$"):
        state.predictors(clients)


def test_clients_are_chosen_one_by_one():
    state = full()
    whole = state.predictors()
    for clients in ([5, 0, 2], (1,), np.array([3, 4], dtype=np.uint8), range(2, 4), slice(1, 4), slice(None), None):
        chosen = whole if clients is None else whole[:, clients if isinstance(clients, slice) else list(clients)]
        np.testing.assert_allclose(state.predictors(clients), chosen, rtol=1e-14)
    for clients, said in (
        ([-1], "number -1, allowed: 0 to n_clients - 1 = 5"),
        ([2, 6], "number 6"),
        ([1, 1], "a client twice"),
    ):
        with pytest.raises(ValueError, match=said):
            state.predictors(clients)
    one = lf.State(S=S[:, :1])
    np.testing.assert_array_equal(one.predictors([7, 3]), one.S)
    with pytest.raises(ValueError, match="number -1, allowed: 0 or more"):
        one.predictors([7, -1])
    for wrong in (0, [0], np.array([True, False, True]), None):
        with pytest.raises(TypeError, match=r"^chosen = .* must be a slice$"):
            state.trials(wrong)
    np.testing.assert_array_equal(state.trials(slice(1, 3)).predictors(), whole[1:])


B, W, S = normal(TRIALS, 9, 2), normal(TRIALS, 6, 2), normal(TRIALS, 6, 9)
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
WRONG = {
    "nothing": (None, TypeError, "None, expected a lf.State"),
    "arrays": (B, TypeError, "expected a lf.State"),
    "a dict": ({"B": B, "W": W}, TypeError, "expected a lf.State"),
    "a class": (lf.State, TypeError, "expected a lf.State"),
    "no W": (lf.State(B=B), ValueError, r"State\(B \(3, 9, 2\)\), expected a predictor: B and W, or S"),
    "no B": (lf.State(W=W), ValueError, r"State\(W \(3, 6, 2\)\), expected a predictor"),
    "no W beside S": (lf.State(B=B, S=S), ValueError, "expected a predictor"),
    "no arrays": (lf.State(), ValueError, r"State\(\), expected a predictor"),
    "S alone": (lf.State(S=S), ValueError, r"expected B and W of k = 2 columns"),
    "one trial": (lf.State(B=B[0], W=W), ValueError, r"B of shape \(9, 2\), expected \(trials, d, k\) = \(3, 9, 2\)"),
    "more trials": (lf.State(B=np.tile(B, (2, 1, 1)), W=W), ValueError, r"B of shape \(6, 9, 2\), expected .* \(3, 9"),
    "other d": (lf.State(B=B[:, :8], W=W), ValueError, r"B of shape \(3, 8, 2\), expected .* = \(3, 9, 2\)"),
    "other k": (lf.State(B=B[..., :1], W=W[..., :1]), ValueError, r"B of shape \(3, 9, 1\), expected .* = \(3, 9, 2\)"),
    "W of other k": (lf.State(B=B, W=W[..., :1]), ValueError, r"W of shape \(3, 6, 1\), expected .* = \(3, 6, 2\)"),
    "W of participants": (lf.State(B=B, W=W[:, :4]), ValueError, r"W of shape \(3, 4, 2\), .*n, k\) = \(3, 6, 2\)"),
    "W of one trial": (lf.State(B=B, W=W[:1]), ValueError, r"W of shape \(1, 6, 2\), expected .* = \(3, 6, 2\)"),
    "one head of others": (lf.State(B=B, W=W[:1, :1]), ValueError, r"W .* expected \(trials, 1, k\) = \(3, 1, 2\)"),
    "S of other d": (lf.State(B=B, W=W, S=S[..., 1:]), ValueError, r"S of shape \(3, 6, 8\), .*n, d\) = \(3, 6, 9\)"),
    "complex": (lf.State(B=B * 1j, W=W), TypeError, "B of dtype complex128, expected real floating-point"),
    "integers": (lf.State(B=B.astype(int), W=W), TypeError, "B of dtype int64, expected real floating-point"),
    "objects": (lf.State(B=B, W=W.astype(object)), TypeError, "W of dtype object, expected real floating-point"),
    "a list": (lf.State(B=B, W=W.tolist()), TypeError, "W = .*, expected an array of shape"),
    "a number": (
        lf.State(B=3.0, W=W),
        TypeError,
        r"B = 3.0, expected an array of shape \(trials, d, k\) = \(3, 9, 2\)",
    ),
    "own array, one trial": (Momentum(B=B, W=W, M=B[:1]), ValueError, r"M of shape \(1, 9, 2\), expected \(trials, "),
    "own array, clients": (Momentum(B=B, W=W, seen=W[:, :4]), ValueError, r"seen .* \(trials, n, ..\) = \(3, 6, 2\)"),
    "own array, complex": (Momentum(B=B, W=W, M=1j * B), TypeError, "M of dtype complex128, expected real"),
}


@each("name", RIGHT)
@pytest.mark.parametrize("engine", ["explicit", "projected"])
def test_states_that_are_right_pass(name, engine):
    state = RIGHT[name]
    result = run(Returns(first=state, then=dataclasses.replace(state)), lf.FreshSamples(12), engine=engine)
    assert type(result.final) is type(state)
    run(Returns(first=state, last=state))


def like_before(state):
    """Return whether a state has the class and the arrays of one with B and W."""
    return not isinstance(state, lf.State) or (type(state) is lf.State and state.arrays().keys() == {"B", "W"})


@each(
    ("name", "method"),
    [(name, "initial_state") for name in WRONG]
    + [(name, method) for name in WRONG for method in ("step", "finish") if like_before(WRONG[name][0])],
)
def test_a_state_that_is_wrong_is_named(name, method):
    state, kind, message = WRONG[name]
    right = RIGHT["B, W"]
    algorithm = {
        "initial_state": Returns(first=state),
        "step": Returns(first=right, then=state),
        "finish": Returns(first=right, last=state),
    }[method]
    with pytest.raises(kind, match=rf"^Returns\.{method} returned .*{message}") as caught:
        run(algorithm)
    assert "\n" not in str(caught.value)


def test_a_state_changes_neither_its_class_nor_its_arrays():
    plain, more = lf.State(B=B, W=W), lf.State(B=B, W=W, S=S)
    for first, then in ((plain, more), (more, plain), (Momentum(B=B, W=W), plain), (plain, Momentum(B=B, W=W))):
        with pytest.raises(TypeError, match=r"Returns.step returned .*, expected the class and the arrays of \w+\("):
            run(Returns(first=first, then=then))
        with pytest.raises(TypeError, match=r"Returns.finish returned .*, expected the class and the arrays of"):
            run(Returns(first=first, then=first, last=then))


def test_a_step_that_forgets_to_return_later_is_named_as_well():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Forgets(lf.LocalOnly):
        kept: list = dataclasses.field(default_factory=list, compare=False)

        def step(self, state, batch, rng):
            self.kept.append(0)
            return state if len(self.kept) < 3 else None

    with pytest.raises(TypeError, match=r"Forgets.step returned None, expected a lf.State"):
        run(Forgets())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Turns(lf.Algorithm):
    """Returns one state until a round, and another from then on."""

    first: object
    later: object
    at: int
    rank: int = 2
    requires = lf.Requires.FEATURES

    def initial_state(self, start):
        return self.first

    def step(self, state, batch, rng):
        return self.first if batch.round < self.at else self.later


@each("name", WRONG)
@pytest.mark.parametrize("at", [2, 3, 5])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_wrong_state_is_named_in_every_round(name, at, one_by_one):
    first = RIGHT["a subclass"] if type(WRONG[name][0]) is Momentum else RIGHT["B, W"]
    algorithm, seen = Turns(first=first, later=WRONG[name][0], at=at), []

    def look():
        steps = lf.iterate(algorithm, PROBLEM, data=lf.FixedSamples(12), rounds=5, trials=TRIALS)
        seen.extend(step.number for step in steps)

    with pytest.raises((TypeError, ValueError), match=r"^Turns\.step returned ") as caught:
        look() if one_by_one else run(algorithm, rounds=5)
    assert "\n" not in str(caught.value)
    assert seen == (list(range(at)) if one_by_one else [])


@pytest.mark.parametrize("name", ["B, one head", "single precision"])
def test_a_right_state_of_another_form_passes_in_every_round(name):
    result = run(Turns(first=RIGHT["B, W"], later=RIGHT[name], at=3), rounds=4)
    assert result.final.W.shape == RIGHT[name].W.shape


def test_the_first_round_is_checked_under_the_chain():
    with pytest.raises(ValueError, match=r"Returns.step returned B of shape \(3, 9, 2\), expected .* = \(3, 6, 2\)"):
        run(Returns(first=RIGHT["B, W"]), lf.FreshSamples(12), engine="chain")


# --- what a state knows of itself ----------------------------------------------------------------------------


@each(
    ("shapes", "dim", "classes"),
    [
        ({"B": (2, 5, 3), "W": (2, 4, 3)}, 5, 0),
        ({"B": (2, 5, 3), "W": (2, 1, 4, 4)}, 5, 4),
        ({"S": (2, 4, 5)}, 5, 0),
        ({"S": (2, 4, 3, 6)}, 5, 3),
        ({"shared": (2, 1, 5)}, 0, 0),
    ],
)
def test_a_state_knows_its_sizes(shapes, dim, classes):
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
    with pytest.raises(lf.SizeError, match=r"would take 8\.02 GB: pass fewer clients="):
        more.predictors()


def test_new_clients_take_only_what_all_clients_share():
    one, two = (lf.State(S=normal(1, rows, 3)) for rows in (1, 2))
    assert np.array_equal(Held(state=one).adapt(one, None).S, one.S)
    with pytest.raises(ValueError, match="Held learns nothing that new clients can use"):
        Held(state=two).adapt(two, None)


def check(state, **changes):
    return check_state(state, "f", **{"trials": TRIALS, "n_clients": 6, "dim": 9, "columns": 0} | changes)


def test_the_number_of_columns_may_be_left_open():
    for columns in (1, 2):
        check(lf.State(B=B[..., :columns], W=W[..., :columns]))
    with pytest.raises(ValueError, match=r"W of shape \(3, 6, 1\), expected \(trials, n, k\) = \(3, 6, 2\)"):
        check(lf.State(B=B, W=W[..., :1]))
    with pytest.raises(TypeError, match=r"B = 3.0, expected an array of shape \(trials, d, k\) = \(3, 9, 0\)"):
        check(lf.State(B=3.0, W=W))


def test_states_of_classes_have_a_row_and_a_bias_for_each():
    heads, rows = normal(TRIALS, 6, 4, 3), normal(TRIALS, 6, 4, 10)
    for clients in (1, 6):
        check(lf.State(B=B, W=heads[:, :clients], S=rows[:, :clients]), classes=4)
    short = rows[:, :1]
    for state, told in (
        (lf.State(B=B, W=heads[..., 1:]), r"W of shape \(3, 6, 4, 2\), .* n, c, k \+ 1\) = \(3, 6, 4, 3\)"),
        (lf.State(S=short[..., 1:]), r"S of shape \(3, 1, 4, 9\), .* 1, c, d \+ 1\) = \(3, 1, 4, 10\)"),
        (lf.State(S=short[:, :, 0]), r"S of shape \(3, 1, 10\), .* n, c, d \+ 1\) = \(3, 6, 4, 10\)"),
    ):
        with pytest.raises(ValueError, match=told):
            check(state, classes=4)
