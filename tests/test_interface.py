"""The interface carries: algorithms of other families in a few lines, each held against what theory says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from helpers import rounds_of

import linfed as lf
from linfed._values import check_fields, converted
from linfed.algorithms.initial import as_initial
from linfed.algorithms.models import LinearModel, zero_model
from linfed.data.samples import given_batch
from linfed.numerics.linalg import orthonormalize, svd
from linfed.simulation import archive
from linfed.simulation.engines import ENGINES

PROBLEM = lf.SharedRepresentation(n_clients=12, dim=6, rank=2, noise_std=0.3)
DATA = lf.FixedSamples(20)


def run(algorithm, rounds, problem=PROBLEM, data=DATA, **changes):
    return lf.simulate(algorithm, problem, data=data, rounds=rounds, **({"trials": 3, "seed": 0} | changes))


def local_least_squares():
    return run(lf.LocalOnly(), 1).final.S


# --- what every batch knows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_knows_its_round_and_how_many_clients_there_are(engine):
    for data in (lf.FreshSamples(20), DATA)[: 1 if engine in ("projected", "chain") else 2]:
        for step in rounds_of(lf.FedRep(rank=2, step_size=0.1), PROBLEM, data=data, rounds=3, engine=engine):
            assert (step.batch.round, step.batch.n_clients) == (step.number, 12)
        for participation in (0.25, 1.0):
            for step in rounds_of(lf.FLUTE(rank=2, step_size=0.01), PROBLEM, data=data, rounds=3, engine=engine,
                                   participation=participation):  # fmt: skip
                assert (step.batch.round, step.batch.n_clients) == (step.number, 12)
                assert step.batch.active.shape[1] == 12 * participation


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("data", [lf.FreshSamples(20), DATA])
def test_the_end_has_the_next_number_and_what_is_derived_keeps_its_own(engine, data):
    algorithm = lf.FedAvg(rank=2, step_size=0.1, fine_tune=lf.ExactHeads())
    steps = list(rounds_of(algorithm, PROBLEM, data=data, rounds=3, engine=engine, participation=4))
    assert [step.batch.round for step in steps] == [1, 2, 3, 4]
    step = next(rounds_of(algorithm, PROBLEM, data=data, rounds=3, engine=engine, participation=4))
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
    summary = "a mix of a global and a personal model"

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


@pytest.mark.long
def test_the_mix_of_apfl_is_the_local_least_squares():
    result = run(APFL(step_size=0.3), 3000, record_every=1000)
    np.testing.assert_allclose(result.final.for_prediction().S, local_least_squares(), atol=1e-9)
    assert np.abs(result.final.own - local_least_squares()).max() > 1e-2
    some = run(APFL(step_size=0.2, share_step_size=0.1), 200, participation=0.25)
    assert 0 <= some.final.share.min() < some.final.share.max() <= 1
    assert some.metrics["risk"][0, -1] < some.metrics["risk"][0, 0]


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
    monkeypatch.setattr(archive, "_class", lambda described: None)  # as in a process that never had it
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


# --- SCAFFOLD: what is shared and what is the clients' in one update ----------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class Controlled(lf.State):
    """A model with control variates, the clients' (trials, n, P) and the server's (trials, 1, P)."""

    controls: np.ndarray
    control: np.ndarray
    per_client: ClassVar = lf.State.per_client | {"controls"}


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(lf.Algorithm):
    """Averaging with control variates (Karimireddy et al. 2020, option II)."""

    step_size: float
    rank: int | None = None
    local_steps: int = 1
    server_step_size: float = 1.0
    init: object = "random"
    requires = lf.Requires.QUADRATIC
    summary = "averaging with control variates"

    def __post_init__(self):
        check_fields(self, init=converted(as_initial))

    @property
    def learned_rank(self):
        return self.rank or 0

    def initial_state(self, start):
        begin = lf.State(**zero_model(start, self.rank, self.init))
        zero = np.zeros((start.trials, start.n_clients, LinearModel.of(begin).size))
        return Controlled(**begin.arrays(), controls=zero, control=zero[:, :1].copy())

    def step(self, state, batch, rng):
        model, c, own = LinearModel.of(state), state.control, state.take_clients("controls", batch.active)
        server = model.shared(state)
        local = model.trained(batch, server, self.step_size, self.local_steps, lambda g, _: g - own + c)
        change = local - server
        moved = server + self.server_step_size * change.mean(axis=1, keepdims=True)
        new = own - c - change / (self.local_steps * self.step_size)
        control = c + (new - own).sum(axis=1, keepdims=True) / batch.n_clients
        return state.update(**model.parts(moved), control=control, controls=new, active=batch.active)


def pooled_least_squares():
    A, b = given_batch(DATA.draw(PROBLEM, trials=3), range(3)).normal_equations()
    return np.linalg.solve(A.sum(axis=1), b.sum(axis=1)[..., None])[..., 0]


@pytest.mark.long
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_scaffold_reaches_the_pooled_least_squares_under_partial_participation(share):
    algorithm = SCAFFOLD(step_size=0.05, local_steps=5)
    result = run(algorithm, 1500, participation=share, record_every=1500)
    np.testing.assert_allclose(result.final.S[:, 0], pooled_least_squares(), atol=1e-12)
    np.testing.assert_allclose(result.final.control, result.final.controls.mean(axis=1, keepdims=True), atol=1e-13)


@pytest.mark.long
def test_scaffold_of_two_layers_reaches_it_too_and_averaging_does_not():
    options = {"step_size": 0.05, "local_steps": 5, "rank": 2}
    result = run(SCAFFOLD(**options), 3000, participation=0.5, record_every=3000)
    np.testing.assert_allclose(result.final.predictors()[:, 0], pooled_least_squares(), atol=1e-8)
    drifting = run(lf.FedAvg(**options), 500, participation=0.5, record_every=500)
    assert np.abs(drifting.final.predictors()[:, 0] - pooled_least_squares()).max() > 1e-2


# --- FedRolex: a step that knows its round -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FedRolex(lf.Algorithm):
    """Averaging of rolling sub-models (Alam et al. 2022): client i trains a window of its share of the units."""

    step_size: float
    share: float | tuple = 1.0
    rank: int | None = None
    local_steps: int = 1
    init: object = "random"
    requires = lf.Requires.QUADRATIC
    summary = "averaging of rolling sub-models"

    def __post_init__(self):
        check_fields(self, init=converted(as_initial))

    @property
    def learned_rank(self):
        return self.rank or 0

    def initial_state(self, start):
        return lf.State(**zero_model(start, self.rank, self.init))

    def window(self, model, batch):
        """Return 1 at the parameters that each participant trains in this round, (T, p, P)."""
        width = model.rank or model.dim
        shares = np.broadcast_to(self.share, batch.n_clients)[batch.active]
        size = np.maximum(1, np.floor(shares * width))[..., None]
        return model.vector_of_units(((np.arange(width) - batch.round + 1) % width < size) * 1.0)

    def step(self, state, batch, rng):
        model = LinearModel.of(state)
        server, mask = model.shared(state), self.window(model, batch)
        local = model.trained(batch, server * mask, self.step_size, self.local_steps, lambda g, _: mask * g)
        trained = mask.sum(axis=1, keepdims=True)
        mean = (mask * local).sum(axis=1, keepdims=True) / np.maximum(trained, 1.0)
        return state.update(**model.parts(np.where(trained > 0, mean, server)))


@pytest.mark.parametrize("rank", [None, 2])
def test_rolling_over_the_whole_model_is_averaging(rank):
    options = {"rank": rank, "step_size": 0.1, "local_steps": 3}
    one, other = (run(kind(**options), 50, participation=0.5).final for kind in (FedRolex, lf.FedAvg))
    for name, array in one.arrays().items():
        np.testing.assert_allclose(array, other.arrays()[name], rtol=0, atol=1e-12)


def test_windows_roll_with_the_round():
    """A sixth of one layer is one coordinate, another one in every round; the others of theta stay."""
    steps = list(rounds_of(FedRolex(step_size=0.1, share=1 / 6), PROBLEM, data=DATA, rounds=8))
    for step in steps:
        moved = np.flatnonzero((step.after.S - step.before.S)[0, 0])
        assert moved.tolist() == [(step.number - 1) % 6]


def test_a_parameter_is_the_mean_of_those_who_train_it():
    shares = np.linspace(0.1, 1, 12)
    one, two = rounds_of(FedRolex(step_size=0.1, share=tuple(shares)), PROBLEM, data=DATA, rounds=2)
    server = one.after.S[0, 0]
    given = given_batch(DATA.draw(PROBLEM), range(1))
    windows = [(np.arange(6) - 1) % 6 < max(1, int(6 * share)) for share in shares]
    local = np.array([window * server for window in windows])
    local = local - 0.1 * np.array(windows) * given.gradient(local[None])[0]
    expected = [
        np.mean([theta[j] for theta, window in zip(local, windows, strict=True) if window[j]]) for j in range(6)
    ]
    np.testing.assert_allclose(two.after.S[0, 0], expected, rtol=1e-12)


# --- the nuclear norm: a step that needs every client's row ------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NuclearNorm(lf.Algorithm):
    """Proximal gradient on ``sum_i f_i(theta_i) + weight ||Theta||_*``; B is the top-k right singular space of Theta.

    The top-k part is held in factors, so that the subspace distance applies, and the rest in S.
    """

    rank: int
    step_size: float
    weight: float
    requires = lf.Requires.QUADRATIC
    summary = "nuclear-norm regularised least squares"

    def initial_state(self, start):
        return self.split(np.zeros((start.trials, start.n_clients, start.dim)))

    def split(self, Theta):
        U, s, Vt = svd(Theta)
        B, W = Vt[:, : self.rank].mT, (U * s[:, None])[..., : self.rank]
        return lf.State(B=B, W=W, S=Theta - W @ B.mT)

    def step(self, state, batch, rng):
        held = lf.State(S=state.predictors())
        theta = held.take_clients("S", batch.active)
        moved = held.update(S=theta - self.step_size * batch.gradient(theta), active=batch.active).S
        U, s, Vt = svd(moved)
        return self.split((U * np.maximum(s - self.step_size * self.weight, 0.0)[:, None]) @ Vt)

    def floats_per_trial(self, *, n_clients, dim, participants):
        return 3 * n_clients * dim


def test_without_a_weight_the_nuclear_norm_is_local_only():
    result = run(NuclearNorm(rank=2, step_size=0.5, weight=0.0), 1000, record_every=1000)
    np.testing.assert_allclose(result.final.predictors(), local_least_squares(), atol=1e-11)


def test_at_its_minimum_the_nuclear_norm_has_no_descent_and_is_better_than_local_only():
    """The gradient is ``-weight (U V' + M)`` with ``U'M = 0``, ``M V = 0`` and a spectral norm of M of at most 1."""
    result = run(NuclearNorm(rank=2, step_size=0.5, weight=0.1), 1500, record_every=1500)
    Theta = result.final.predictors()
    A, b = given_batch(DATA.draw(PROBLEM, trials=3), range(3)).normal_equations()
    slope = -((A @ Theta[..., None])[..., 0] - b) / 0.1
    for G, one in zip(slope, Theta, strict=True):
        U, s, Vt = np.linalg.svd(one, full_matrices=False)
        r = int((s > 1e-9).sum())
        rest = G - U[:, :r] @ Vt[:r]
        assert np.abs(U[:, :r].T @ rest).max() < 1e-8
        assert np.abs(rest @ Vt[:r].T).max() < 1e-8
        assert np.linalg.norm(rest, 2) < 1 + 1e-8
    phi = PROBLEM.truth(0, range(3)).dense()
    local = np.linalg.norm(local_least_squares() - phi, axis=(1, 2))
    assert (result.metrics["parameter_error"][:, -1] < local).all()


# --- softmax: another loss behind the same questions, C rows of heads for each client ----------------------------


class SoftmaxFeatures:
    """Features of a batch with labels in classes, at B."""

    def __init__(self, batch, B):
        self._batch, self._B, self._Z = batch, B, batch.X @ B[:, None]

    def _residual(self, W):
        """Return softmax minus the indicator of the label, (T, p, m, C)."""
        T, p, _, k = self._Z.shape
        scores = self._Z @ W.reshape(T, p, -1, k).mT
        P = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return P / P.sum(axis=-1, keepdims=True) - self._batch.indicator

    def head_gradient(self, W):
        return (self._residual(W).mT @ self._Z / self._Z.shape[2]).reshape(W.shape)

    def representation_gradient(self, W, weights=None):
        return self.gradients(W, weights)[1]

    def gradients(self, W, weights=None):
        T, p, m, _ = self._Z.shape
        messages = (self._residual(W).mT @ self._batch.X / m).reshape(T, -1, self._B.shape[1])  # (T, p C, d)
        return messages @ self._B, messages.mT @ W * (1.0 / p if weights is None else weights)


class SoftmaxBatch:
    """Samples with labels in 0..C-1; the heads of client i are the rows i C to i C + C - 1 of W."""

    def __init__(self, X, labels, classes, clients):
        self.X, self.indicator = X, np.eye(classes)[labels]
        self.active = (classes * clients[..., None] + np.arange(classes)).reshape(len(clients), -1)

    def project(self, B):
        return SoftmaxFeatures(self, B)


T, N, M, D, K, C = 2, 40, 60, 12, 3, 3
GRADIENT_FEDREP = lf.FedRep(rank=K, step_size=1.0, heads=lf.GradientHeads(steps=5, step_size=1.0))


@pytest.fixture(scope="module")
def softmax():
    """Return B*, X, labels, the truth's accuracy, and random numbers."""
    rng = np.random.default_rng(0)
    B_star, W_star = orthonormalize(rng.standard_normal((T, D, K))), 2.0 * rng.standard_normal((T, N * C, K))
    X = rng.standard_normal((T, N, M, D))
    scores = X @ B_star[:, None] @ W_star.reshape(T, N, C, K).mT
    labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=-1)
    return B_star, X, labels, (scores.argmax(axis=-1) == labels).mean(axis=(1, 2)), rng


def test_softmax_gradients_are_those_of_the_loss(softmax):
    _, X, labels, _, rng = softmax
    batch = SoftmaxBatch(X, labels, C, np.broadcast_to(np.arange(N), (T, N)))

    def loss(B, W):
        scores = X @ B[:, None] @ W.reshape(T, N, C, K).mT
        return (np.log(np.exp(scores).sum(-1)) - (scores * batch.indicator).sum(-1)).mean(axis=(1, 2))

    B, W, dB, dW = (rng.standard_normal(shape) for shape in ((T, D, K), (T, N * C, K)) * 2)
    gW, gB = batch.project(B).gradients(W)
    numeric = (loss(B + 1e-5 * dB, W + 1e-5 * dW) - loss(B - 1e-5 * dB, W - 1e-5 * dW)) / 2e-5
    exact = (gB * dB).sum(axis=(1, 2)) + (gW * dW).sum(axis=(1, 2)) / N
    np.testing.assert_allclose(numeric, exact, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", ["FedRep", "FLUTE"])
def test_fedrep_and_flute_learn_the_representation_of_classes(name, softmax):
    B_star, X, labels, best, _ = softmax
    rng = np.random.default_rng(1)
    B, W = orthonormalize(rng.standard_normal((T, D, K))), rng.standard_normal((T, N * C, K))
    if name == "FedRep":
        algorithm, state = GRADIENT_FEDREP, lf.State(B=B, W=0 * W)
    else:
        algorithm, state = lf.FLUTE(rank=K, step_size=0.02), lf.State(B=0.05 * B, W=0.05 * W)
    for _ in range(300):
        clients = np.sort(np.stack([rng.permutation(N)[: N // 2 if name == "FedRep" else N] for _ in range(T)]))
        chosen = np.arange(T)[:, None], clients
        state = algorithm.step(state, SoftmaxBatch(X[chosen], labels[chosen], C, clients), None)
    accuracy = ((X @ state.B[:, None] @ state.W.reshape(T, N, C, K).mT).argmax(-1) == labels).mean(axis=(1, 2))
    assert (lf.subspace_distance(B, B_star) > 0.8).all()
    assert (lf.subspace_distance(state.B, B_star) < 0.25).all()
    assert (accuracy > best - 0.05).all()
    assert (best > 0.6).all()


def test_what_a_class_says_that_it_asks_must_be_one_of_asks():
    class Careless(lf.FedRep):
        requires = None

    with pytest.raises(TypeError, match=r"Careless.requires = None must be one of lf.Requires.GRADIENTS, "):
        lf.simulate(Careless(rank=2, step_size=0.1), PROBLEM, data=lf.FreshSamples(8), rounds=1)


def test_a_metric_of_another_signature_is_named():
    def of_a_result(result):
        return 1.0

    fedrep = lf.FedRep(rank=2, step_size=0.1)
    with pytest.raises(TypeError, match="metrics contains of_a_result, which must be a function of two arguments"):
        lf.simulate(fedrep, PROBLEM, data=lf.FreshSamples(8), rounds=1, metrics=[of_a_result])
