"""Samples that are given after the run: losses of its clients, and new clients that adapt."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.simulation.results import Result
from tests import references as ref
from tests.helpers import assert_one_line, normal
from tests.simulation.held_out import DATA, D, N, client_losses, drawn, given, of_trial, run
from tests.worlds import LEARNERS

pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis

FEDREP = lf.FedRep(rank=2, step_size=0.2)
LEARNED = [
    "FedRep",
    "FedRep, gradient heads, no QR",
    "FedAvg",
    "FedAvg, exactly fine-tuned",
    "LocalOnly, ridge",
    "FLUTE",
]


def learner(name):
    return LEARNERS[name].make()


@pytest.mark.parametrize("name", [*LEARNED, "FedRepShortcut"])
def test_losses_on_samples_of_the_training_clients(name):
    for kind in DATA if name == "FedRep" else ["trials, held-out lists"]:
        result = run(learner(name), data=given(kind))
        for samples, metric in zip(DATA[kind], ("train_loss", "test_loss"), strict=True):
            losses = result.losses(*samples)
            assert losses.shape == (3, N)
            for trial, theta in enumerate(result.final.predictors()):
                np.testing.assert_allclose(losses[trial], client_losses(theta, of_trial(samples, trial)), 1e-12, 1e-24)
            np.testing.assert_allclose(np.nanmean(losses, axis=1), result.metrics[metric][:, -1], rtol=1e-12)


def test_a_diverged_trial_has_no_losses_and_no_adapted_predictors():
    X, y = drawn(3, N, 15)
    algorithm = lf.FedPer(rank=2, step_size=0.2, init=normal(D, 2, seed=1) / 3)
    result = run(algorithm, data=lf.GivenSamples(X * np.array([1.0, 30.0, 1.0])[:, None, None, None], y), n_rounds=60)
    assert result.status == [lf.Status.COMPLETED, lf.Status.DIVERGED, lf.Status.COMPLETED]
    assert np.isnan(result.metrics["train_loss"][:, -1]).tolist() == [False, True, False]
    assert np.isnan(result.losses(X, y)).tolist() == [[trial == 1] * N for trial in range(3)]
    adapted = result.adapt(*drawn(3, 2, 5)).predictors()
    assert np.isnan(adapted).any(axis=(1, 2)).tolist() == [False, True, False]
    assert np.isnan(adapted[1]).all()
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())


NEW = {
    "arrays": drawn(4, 9, seed=7),
    "one sample": drawn(4, 1, seed=7),
    "one client": drawn(1, 9, seed=7),
    "trials": drawn(3, 4, 9, seed=7),
    "lists": tuple([part[:m] for part, m in zip(parts, (1, 9, 2, 5), strict=True)] for parts in drawn(4, 9, seed=7)),
}


def adapted_predictor(name, arrays, X, y):
    if name == "LocalOnly, ridge":
        return ref.least_squares(X, y, 0.3)
    return arrays["B"] @ ref.least_squares(X @ arrays["B"], y) if "B" in arrays else arrays["S"][0]


@pytest.mark.parametrize("name", LEARNED)
def test_new_clients_adapt_to_samples_of_their_own(name):
    result = run(learner(name))
    before = {part: array.copy() for part, array in result.final.arrays().items()}
    for samples in NEW.values():
        theta = result.adapt(*samples).predictors()
        for trial in range(3):
            arrays = {part: array[trial] for part, array in result.final.arrays().items()}
            X, y = of_trial(samples, trial)
            expected = [adapted_predictor(name, arrays, *pair) for pair in zip(X, y, strict=True)]
            found = np.broadcast_to(theta[trial], (len(X), D))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert all(np.array_equal(array, before[part]) for part, array in result.final.arrays().items())


@pytest.mark.parametrize("kind", [lf.FedRep, lf.FedRepShortcut])
def test_adapting_is_what_new_clients_of_the_problem_do(kind):
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=3, noise_std=0.2)
    met = []

    class Watched(kind):
        def adapt(self, state, batch):
            met.append((batch.X.copy(), batch.y.copy()))
            return super().adapt(state, batch)

    result = run(Watched(rank=2, step_size=0.05), problem, data=lf.FixedSamples(9))
    risks = result.new_clients([8], clients=5)
    theta = result.adapt(*met[0]).predictors()
    truth = problem.new_clients(problem.truth(4, range(3)), 5, 4, range(3)).dense()
    np.testing.assert_allclose(risks[:, 0], 0.5 * ((theta - truth) ** 2).sum(-1) + 0.02, rtol=1e-9)


def test_a_ridge_and_an_algorithm_of_a_user_adapt_as_they_say():
    X, y = NEW["arrays"]
    result = run(lf.FedRep(rank=2, step_size=0.2, heads=lf.ExactHeads(ridge=0.4)))
    B = result.final.B[0]
    expected = [ref.least_squares(rows @ B, row, 0.4) for rows, row in zip(X, y, strict=True)]
    np.testing.assert_allclose(result.adapt(X, y).state.W[0], expected, rtol=1e-10)

    class Adapting(lf.LocalOnly):
        def adapt(self, state, batch):
            return lf.State(S=np.ones((*batch.active.shape, D)))

    assert np.array_equal(run(Adapting()).adapt(X, y).predictors(), np.ones((3, 4, D)))


def test_losses_of_a_run_with_a_problem_of_a_user(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Own(lf.SharedRepresentation):
        pass

    result = run(FEDREP, Own(n_clients=N, dim=D, rank=2), data=lf.FreshSamples(9))
    loaded = Result.load(result.save(tmp_path / "a.npz"))
    X, y = DATA["arrays"][0]
    assert np.array_equal(loaded.losses(X, y), result.losses(X, y))
    assert_one_line(lambda: loaded.losses(X[:5], y[:5]), ["X has shape (5, 15, 7)", "n = 6 clients"])


# --- invalid arguments ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Personal(lf.Algorithm):
    """A user's algorithm with a predictor for each client, and nothing shared."""

    def initial_state(self, start):
        return lf.State(S=np.zeros((start.trials, start.n_clients, start.dim)))

    def step(self, state, batch, rng):
        return state


def chain():
    problem = lf.SharedRepresentation(n_clients=N, dim=9, rank=2)
    return run(FEDREP, problem, data=lf.FreshSamples(9), engine="chain")


X, Y = DATA["arrays"][0]
CALLS = {
    "losses of other clients": (
        lambda: run(FEDREP).losses(X[:4], Y[:4]),
        ["X has shape (4, 15, 7)", "n = 6 clients of dimension d = 7"],
    ),
    "losses in another dimension": (
        lambda: run(FEDREP).losses(X[..., :5], Y),
        ["X has shape (6, 15, 5)", "n = 6 clients of dimension d = 7"],
    ),
    "losses of other trials": (lambda: run(FEDREP).losses(*drawn(2, N, 5)), ["2 trials", "the run had 3"]),
    "losses of a wrong shape": (lambda: run(FEDREP).losses(X, Y[0]), ["y has shape (15,)"]),
    "losses in a frame": (lambda: chain().losses(X, Y), ["losses() requires B itself", "'chain'", "'projected'"]),
    "adapt in a frame": (lambda: chain().adapt(X, Y), ["adapt() requires B itself", "'chain'", "'projected'"]),
    "adapt in another dimension": (lambda: run(FEDREP).adapt(X[..., :5], Y), ["X has shape (6, 15, 5)", "d = 7"]),
    "adapt in other trials": (lambda: run(FEDREP).adapt(*drawn(2, 4, 5)), ["2 trials", "the run had 3"]),
    "adapt without samples": (
        lambda: run(FEDREP).adapt([np.zeros((0, D)), X[0]], [[], Y[0]]),
        ["X[0]", "no axis may be empty"],
    ),
    "nothing to take over": (lambda: run(Personal()).adapt(X, Y), ["Personal learns nothing"]),
    "other trials of held-out samples": (
        lambda: run(FEDREP, data=given("held out by trial"), trials=2),
        ["trials = 2", "3 trials"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_invalid_arguments_are_named(name):
    assert_one_line(*CALLS[name])


def test_an_algorithm_of_an_unknown_class_does_not_adapt(tmp_path, monkeypatch):
    monkeypatch.setattr("linfed.system.description._users_class", lambda name: None)  # as in another process
    loaded = Result.load(run(Personal()).save(tmp_path / "a.npz"))
    assert_one_line(lambda: loaded.adapt(X, Y), ["algorithm = Personal()"], TypeError)
    assert loaded.losses(X, Y).shape == (3, N)
