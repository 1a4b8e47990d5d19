"""The interface carries: algorithms of other families in a few lines, each held against what theory says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import linfed as lf
from linfed.simulation import archive

PROBLEM = lf.SharedRepresentation(n_clients=12, dim=6, rank=2, noise_std=0.3)
DATA = lf.FixedSamples(20)


def run(algorithm, rounds, problem=PROBLEM, data=DATA, **changes):
    return lf.simulate(algorithm, problem, data=data, rounds=rounds, **({"trials": 3, "seed": 0} | changes))


def local_least_squares():
    return run(lf.LocalOnly(), 1).final.S


# --- what every batch knows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", lf.ENGINES)
def test_a_batch_knows_its_round_and_how_many_clients_there_are(engine):
    for data in (lf.FreshSamples(20), DATA)[: 1 if engine in ("projected", "chain") else 2]:
        for step in lf.iterate(lf.FedRep(rank=2, step_size=0.1), PROBLEM, data=data, rounds=3, engine=engine):
            assert (step.batch.round, step.batch.n_clients) == (step.number, 12)
        for participation in (0.25, 1.0):
            for step in lf.iterate(lf.FLUTE(rank=2, step_size=0.01), PROBLEM, data=data, rounds=3, engine=engine,
                                   participation=participation):  # fmt: skip
                assert (step.batch.round, step.batch.n_clients) == (step.number, 12)
                assert step.batch.active.shape[1] == 12 * participation


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("data", [lf.FreshSamples(20), DATA])
def test_the_end_has_the_next_number_and_what_is_derived_keeps_its_own(engine, data):
    algorithm = lf.FedAvg(rank=2, step_size=0.1, fine_tune="exact")
    steps = list(lf.iterate(algorithm, PROBLEM, data=data, rounds=3, engine=engine, participation=4))
    assert [step.batch.round for step in steps] == [1, 2, 3, 4]
    step = next(lf.iterate(algorithm, PROBLEM, data=data, rounds=3, engine=engine, participation=4))
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

    def served(self):
        return lf.State(S=self.share * self.own + (1 - self.share) * self.shared)


@dataclass(frozen=True, kw_only=True)
class APFL(lf.Algorithm):
    """Adaptive mix of a global and a personal model (Deng, Kamani, Mahdavi 2020)."""

    step_size: float
    share: float = 0.5
    share_step_size: float = 0.0
    asks = lf.Asks.QUADRATIC
    summary = "a mix of a global and a personal model"

    def initial_state(self, start):
        zero = np.zeros((start.trials, start.n_clients, start.dim))
        share = np.full((*zero.shape[:2], 1), self.share)
        return Mixed(shared=zero[:, :1].copy(), own=zero, share=share)

    def step(self, state, batch, rng):
        theta, own, a = (state.of_clients(name, batch.active) for name in ("shared", "own", "share"))
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


def test_the_mix_of_apfl_is_the_local_least_squares():
    result = run(APFL(step_size=0.3), 3000, record_every=1000)
    np.testing.assert_allclose(result.final.served().S, local_least_squares(), atol=1e-9)
    assert np.abs(result.final.own - local_least_squares()).max() > 1e-2
    some = run(APFL(step_size=0.2, share_step_size=0.1), 200, participation=0.25)
    assert 0 <= some.final.share.min() < some.final.share.max() <= 1
    assert some.metrics["risk"][0, -1] < some.metrics["risk"][0, 0]


def test_what_is_served_is_measured_and_told(tmp_path, monkeypatch):
    result = run(APFL(step_size=0.3), 30, participation=0.5)
    mix, truth = result.final.served(), PROBLEM.truth(0, range(3))
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
    monkeypatch.setattr(archive, "_class", lambda described: None)  # as in a process that never had it
    unknown = lf.Result.load(tmp_path / "mixed.npz")
    np.testing.assert_array_equal(unknown.final.own, result.final.own)
    with pytest.raises(ValueError, match="Mixed, which alone knows what the clients predict with: import it"):
        unknown.final.predictors()
    again = lf.Result.load(unknown.save(tmp_path / "again.npz"))
    with pytest.raises(ValueError, match="import it before loading"):
        again.losses(given.X, given.y)


@dataclass(frozen=True, kw_only=True, repr=False)
class Wrong(Mixed):
    """Serves what cannot be predicted with."""

    def served(self):
        return lf.State(S=self.own[..., :3])


@dataclass(frozen=True, kw_only=True, repr=False)
class NoState(Mixed):
    """Serves no state."""

    def served(self):
        return self.own


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [(Wrong, ValueError, r"Wrong.served returned S of shape \(3, 12, 3\)"), (NoState, TypeError, "NoState.served")],
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
        def served(self):
            return lf.State(B=self.B, W=2 * self.W)

    class Serves(lf.FedRep):
        def initial_state(self, start):
            return Doubled(**super().initial_state(start).arrays())

    base = Serves(rank=2, step_size=0.1)
    assert np.array_equal(*(f(run(base, 2).final) for f in (lambda s: s.predictors(), lambda s: 2 * s.W @ s.B.mT)))
    with pytest.raises(ValueError, match=r"base = .*Serves.*serves predictors of its own \(Doubled.served\)"):
        run(lf.Personalised(base=base, ridge=0.1), 2)
