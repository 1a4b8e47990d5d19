"""What the loop hands to an algorithm, or took from it, cannot be written into, whatever the engine."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from tests.helpers import normal, rounds_of

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=9, rank=2, noise_std=0.3)
TRIALS = 3


def run(algorithm, data=None, problem=PROBLEM, **changes):
    arguments = {"n_rounds": 3, "trials": TRIALS, "seed": 4} | changes
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


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_algorithm_cannot_write_into_what_it_is_handed(setting):
    engine, data, participation = SETTINGS[setting]
    targets = STATE | BATCH | ({} if engine in ("projected", "chain") else ROWS)
    for write in targets.values():
        algorithm = Scribbler(rank=2, step_size=0.1, target=write, init="random")
        with pytest.raises(ValueError, match="read-only"):
            run(algorithm, data, engine=engine, participation=participation)


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

    description = "one gradient step"
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


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("diverges", [False, True])
def test_a_buffer_that_is_used_again_changes_no_earlier_state(view, diverges):
    arguments = {"problem": PROBLEM, "data": lf.FreshSamples(8), "n_rounds": 5, "trials": TRIALS}
    right, found = (list(lf.iterate(kind(view=view, diverges=diverges), **arguments)) for kind in (Plain, Buffered))
    assert len({step.after.S[1, 0, 0] for step in right}) == 6
    for one, other in zip(right, found, strict=True):
        np.testing.assert_array_equal(other.before.S, one.before.S)
        np.testing.assert_array_equal(other.after.S, one.after.S)
    finals = [lf.simulate(kind(view=view, diverges=diverges), **arguments).final.S for kind in (Plain, Buffered)]
    np.testing.assert_array_equal(*finals)


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
    for step in rounds_of(flute, PROBLEM, data=lf.FixedSamples(12), n_rounds=8, engine=engine):
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


B, W, S = normal(TRIALS, 9, 2), normal(TRIALS, 6, 2), normal(TRIALS, 6, 9)
