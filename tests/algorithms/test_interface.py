"""Algorithms of a user's own: what a batch offers them, states that serve other predictors, undeclared requirements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import linfed as lf
from linfed.simulation.engines import ENGINES
from linfed.system import description
from tests.helpers import rounds_of

PROBLEM = lf.SharedRepresentation(n_clients=12, dim=6, rank=2, noise_std=0.3)
DATA = lf.FixedSamples(20)


def run(algorithm, n_rounds, problem=PROBLEM, data=DATA, **changes):
    return lf.simulate(algorithm, problem, data=data, n_rounds=n_rounds, **({"trials": 3, "seed": 0} | changes))


# --- what every batch knows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_knows_its_round_and_how_many_clients_there_are(engine):
    for data in (lf.FreshSamples(20), DATA)[: 1 if engine in ("projected", "chain") else 2]:
        for step in rounds_of(lf.FedRep(rank=2, step_size=0.1), PROBLEM, data=data, n_rounds=3, engine=engine):
            assert (step.batch.round, step.batch.n_clients) == (step.number, 12)
        for participation in (0.25, 1.0):
            for step in rounds_of(lf.FLUTE(rank=2, step_size=0.01), PROBLEM, data=data, n_rounds=3, engine=engine,
                                   participation=participation):  # fmt: skip
                assert (step.batch.round, step.batch.n_clients) == (step.number, 12)
                assert step.batch.active.shape[1] == 12 * participation


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("data", [lf.FreshSamples(20), DATA])
def test_the_end_has_the_next_number_and_what_is_derived_keeps_its_own(engine, data):
    algorithm = lf.FedAvg(rank=2, step_size=0.1, fine_tune=lf.ExactHeads())
    steps = list(rounds_of(algorithm, PROBLEM, data=data, n_rounds=3, engine=engine, participation=4))
    assert [step.batch.round for step in steps] == [1, 2, 3, 4]
    step = next(rounds_of(algorithm, PROBLEM, data=data, n_rounds=3, engine=engine, participation=4))
    batch, shifted = step.batch, step.batch.shifted(np.zeros((1, 1, 6)))
    derived = [shifted, batch.with_labels(batch.y), batch.project(step.before.B).fit().shifted()]
    if engine == "explicit":
        derived += [*batch.split(), *batch.minibatches(8), *shifted.split()]
    assert {(one.round, one.n_clients) for one in derived} == {(1, 12)}


# --- APFL: what clients predict with is made of what is learned --------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class Mixed(lf.State):
    """A global theta (trials, 1, d), a theta of each client's own (trials, n, d), and its share (trials, n, 1)."""

    shared: np.ndarray
    own: np.ndarray
    share: np.ndarray
    per_client: ClassVar = frozenset({"shared", "own", "share"})

    def for_prediction(self):
        return lf.State(S=self.share * self.own + (1 - self.share) * self.shared)


@dataclass(frozen=True, kw_only=True)
class APFL(lf.Algorithm):
    """Adaptive mix of a global and a personal model (Deng, Kamani, Mahdavi 2020)."""

    step_size: float
    share: float = 0.5
    share_step_size: float = 0.0
    requires = lf.Requires.QUADRATIC
    description = "a mix of a global and a personal model"

    def initial_state(self, start):
        zero = np.zeros((start.trials, start.n_clients, start.dim))
        share = np.full((*zero.shape[:2], 1), self.share)
        return Mixed(shared=zero[:, :1].copy(), own=zero, share=share)

    def step(self, state, batch, rng):
        theta, own, a = (state.take_clients(name, batch.active) for name in ("shared", "own", "share"))
        g = batch.gradient(a * own + (1 - a) * theta)
        slope = np.vecdot(own - theta, g)[..., None]
        return state.update(
            shared=(theta - self.step_size * batch.gradient(theta)).mean(axis=1, keepdims=True),
            own=own - self.step_size * a * g,
            share=np.clip(a - self.share_step_size * slope, 0.0, 1.0),
            active=batch.active,
        )

    def adapt(self, state, batch):
        theta = np.repeat(state.shared, batch.active.shape[1], axis=1)
        return Mixed(shared=state.shared, own=theta, share=np.ones((*theta.shape[:2], 1)))


def test_what_is_served_is_measured_and_told(tmp_path, monkeypatch):
    result = run(APFL(step_size=0.3), 30, participation=0.5)
    mix, truth = result.final.for_prediction(), PROBLEM.truth(0, range(3))
    assert result.final.S is None
    assert result.final.dim == 6
    np.testing.assert_array_equal(result.final.predictors(), mix.S)
    np.testing.assert_array_equal(result.final.predictors([2, 5]), mix.S[:, [2, 5]])
    error = np.linalg.norm(mix.S - truth.dense(), axis=-1)
    np.testing.assert_allclose(result.metrics["mean_client_error"][:, -1], error.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(result.client_risks(), 0.5 * error**2 + 0.045, rtol=1e-12)
    given = DATA.draw(PROBLEM, trials=3)
    residual = np.einsum("tnmd,tnd->tnm", given.X, mix.S) - given.y
    losses = np.vecdot(residual, residual) / 40
    np.testing.assert_allclose(result.losses(given.X, given.y), losses, rtol=1e-12)
    train = run(APFL(step_size=0.3), 30, participation=0.5, metrics=["train_loss"]).metrics["train_loss"]
    np.testing.assert_allclose(train[:, -1], losses.mean(axis=1), rtol=1e-12)
    new = result.adapt(given.X[:, :4], given.y[:, :4])
    np.testing.assert_array_equal(new.predictors(), np.repeat(result.final.shared, 4, axis=1))
    phi = PROBLEM.new_clients(truth, 7, 0, range(3)).dense()
    risks = 0.5 * np.square(result.final.shared - phi).sum(axis=-1) + 0.045
    np.testing.assert_allclose(result.new_clients([3], clients=7)[:, 0], risks, rtol=1e-12)
    loaded = lf.Result.load(result.save(tmp_path / "mixed.npz"))
    np.testing.assert_array_equal(loaded.final.predictors(), mix.S)
    monkeypatch.setattr(description, "_users_class", lambda name: None)  # as in a process that never had it
    unknown = lf.Result.load(tmp_path / "mixed.npz")
    np.testing.assert_array_equal(unknown.final.own, result.final.own)
    with pytest.raises(ValueError, match=r"Mixed of the final state is not imported, .*: import it"):
        unknown.final.predictors()
    again = lf.Result.load(unknown.save(tmp_path / "again.npz"))
    with pytest.raises(ValueError, match="import it before loading"):
        again.losses(given.X, given.y)


@dataclass(frozen=True, kw_only=True, repr=False)
class Wrong(Mixed):
    """Serves what cannot be predicted with."""

    def for_prediction(self):
        return lf.State(S=self.own[..., :3])


@dataclass(frozen=True, kw_only=True, repr=False)
class NoState(Mixed):
    """Serves no state."""

    def for_prediction(self):
        return self.own


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        (Wrong, ValueError, r"Wrong.for_prediction returned S of shape \(3, 12, 3\)"),
        (NoState, TypeError, "NoState.for_prediction"),
    ],
)
def test_what_is_served_is_checked(kind, error, said):
    class Serves(APFL):
        def initial_state(self, start):
            return kind(**super().initial_state(start).arrays())

    with pytest.raises(error, match=said):
        run(Serves(step_size=0.1), 1)


def test_a_personal_fit_has_no_place_beside_what_is_served():
    @dataclass(frozen=True, kw_only=True, repr=False)
    class Doubled(lf.State):
        def for_prediction(self):
            return lf.State(B=self.B, W=2 * self.W)

    class Serves(lf.FedRep):
        def initial_state(self, start):
            return Doubled(**super().initial_state(start).arrays())

    base = Serves(rank=2, step_size=0.1)
    assert np.array_equal(*(f(run(base, 2).final) for f in (lambda s: s.predictors(), lambda s: 2 * s.W @ s.B.mT)))
    with pytest.raises(
        ValueError, match=r"base = .*Serves.*cannot be personalised: its predictors \(Doubled.for_prediction\)"
    ):
        run(lf.Personalized(base=base, ridge=0.1), 2)


# --- softmax: another loss behind the same questions, C rows of heads for each client ----------------------------


@dataclass(frozen=True, kw_only=True)
class Silent(lf.Algorithm):
    """It uses features alone and does not say so."""

    rank: int = 2
    description = "exact heads at one B"

    def initial_state(self, start):
        B = start.representation("random", self.rank)
        return lf.State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state, batch, rng):
        return state.update(W=batch.project(state.B).fit().W, active=batch.active)


class SaysRows(Silent):
    requires = lf.Requires.ROWS


class OwnStep(lf.FedRep):
    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


FRESH = lf.FreshSamples(8)
SPHERE = lf.SharedRepresentation(n_clients=12, dim=6, rank=2, design="sphere")
DECLARED = {
    "nothing declared": (Silent(), PROBLEM, FRESH, True),
    "many fixed samples": (Silent(), PROBLEM, DATA, True),
    "an own step": (OwnStep(rank=2, step_size=0.1), PROBLEM, FRESH, True),
    "rows declared": (SaysRows(), PROBLEM, FRESH, False),
    "features declared": (lf.FedRep(rank=2, step_size=0.1), PROBLEM, FRESH, False),
    "x that is not Gaussian": (Silent(), SPHERE, FRESH, False),
    "few fixed samples": (Silent(), PROBLEM, lf.FixedSamples(5), False),
    "given samples": (Silent(), PROBLEM, DATA.draw(PROBLEM), False),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_summary_says_that_undeclared_requirements_cost_time(name, tmp_path):
    algorithm, problem, data, told = DECLARED[name]
    result = run(algorithm, 1, problem, data, trials=1)
    words = f"{type(algorithm).__name__} declares no `requires`"
    assert (words in result.summary()) is told
    assert (words in result._repr_html_()) is told
    assert (result.engine == "explicit") or not told
    loaded = lf.Result.load(result.save(tmp_path / "run.npz"))
    assert loaded.summary() == result.summary()


def test_a_problem_without_new_clients_says_so():
    class Alone:
        n_clients, dim, noise_std, design, subspace_rank, truth_rank = 12, 6, 0.3, lf.Gaussian(), 2, 2

        def truth(self, seed, trials):
            return PROBLEM.truth(seed, trials)

        def floats_per_trial(self):
            return PROBLEM.floats_per_trial()

    result = run(lf.FedRep(rank=2, step_size=0.1), 1, Alone())
    with pytest.raises(ValueError, match="has no method new_clients: give problem=, of new clients"):
        result.new_clients([3])
    expected = run(lf.FedRep(rank=2, step_size=0.1), 1).new_clients([3], clients=12, problem=PROBLEM)
    np.testing.assert_array_equal(result.new_clients([3], problem=PROBLEM), expected)


def test_what_a_class_says_that_it_asks_must_be_one_of_asks():
    class Careless(lf.FedRep):
        requires = None

    with pytest.raises(TypeError, match=r"Careless.requires = None must be one of lf.Requires.GRADIENTS, "):
        lf.simulate(Careless(rank=2, step_size=0.1), PROBLEM, data=lf.FreshSamples(8), n_rounds=1)


def test_a_metric_of_another_signature_is_named():
    def of_a_result(result):
        return 1.0

    fedrep = lf.FedRep(rank=2, step_size=0.1)
    with pytest.raises(TypeError, match="metrics contains of_a_result, which must be a function of two arguments"):
        lf.simulate(fedrep, PROBLEM, data=lf.FreshSamples(8), n_rounds=1, metrics=[of_a_result])
