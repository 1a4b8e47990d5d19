"""Losses on the clients' own samples and on held-out ones, where no truth is needed to report anything."""

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest

import linfed as lf
from linfed.numerics import linalg
from linfed.simulation import job
from linfed.simulation.metrics import classification
from linfed.simulation.results import Result
from tests import references as ref
from tests.helpers import Held, assert_one_line, assert_same, each, normal

mpl.use("Agg")
from matplotlib import pyplot as plt

N, D = 6, 7
PHI = normal(N, D, seed=9)
COUNTS, TEST_COUNTS = [1, 2, 3, 9, 20, 12], [4, 0, 1, 7, 0, 30]
FEDREP = lf.FedRep(rank=2, step_size=0.2)
FAMILY = {
    "FedRep": FEDREP,
    "FedRep, gradient heads": lf.FedRep(rank=2, step_size=0.2, heads=lf.GradientHeads(), orthonormalize=False),
    "FedAvg": lf.FedAvg(step_size=0.1),
    "FedAvg, two layers": lf.FedAvg(step_size=0.1, rank=2),
    "FedAvg + FT": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads()),
    "shortcuts": lf.FedRepShortcut(rank=2, step_size=0.05),
    "local only": lf.LocalOnly(ridge=0.1),
    "pooled": lf.PooledLeastSquares(),
    "FLUTE": lf.FLUTE(rank=2, step_size=0.02),
}


def drawn(*shape, noise=0.3, seed=0):
    """Return samples (..., n, m, d) and noisy labels."""
    X = normal(*shape, D, seed=seed)
    return X, np.einsum("...nmd,nd->...nm", X, PHI[: shape[-2]]) + noise * normal(*shape, seed=seed + 1)


def ragged(counts, seed=0):
    X, y = drawn(N, max(counts), seed=seed)
    return [rows[:m] for rows, m in zip(X, counts, strict=True)], [row[:m] for row, m in zip(y, counts, strict=True)]


# Each with the samples that trial t's clients have, and those held out.
DATA = {
    "arrays": (drawn(N, 15), drawn(N, 4, seed=5)),
    "arrays of trials": (drawn(3, N, 15), drawn(3, N, 4, seed=5)),
    "held out by trial": (drawn(N, 15), drawn(3, N, 4, seed=5)),
    "lists": (ragged(COUNTS), ragged(TEST_COUNTS, seed=5)),
    "lists, held-out arrays": (ragged(COUNTS), drawn(N, 4, seed=5)),
    "trials, held-out lists": (drawn(3, N, 15), ragged(TEST_COUNTS, seed=5)),
}


def of_trial(samples, trial):
    X, y = samples
    return (X[trial], y[trial]) if np.ndim(X[0]) == 3 else (X, y)


def given(name):
    return lf.GivenSamples(*DATA[name][0], test=DATA[name][1])


pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis


def run(algorithm=FEDREP, problem=None, *, data=None, **changes):
    arguments = {"data": given("arrays") if data is None else data, "rounds": 5, "trials": 3, "seed": 4} | changes
    return lf.simulate(algorithm, problem, **arguments)


def client_losses(theta, samples):
    """Return (1/2m_i)||X_i theta_i - y_i||^2, NaN for a client without samples; theta (n, d) or (1, d)."""
    out = []
    for X, y, one in zip(*samples, np.broadcast_to(theta, (len(samples[0]), D)), strict=True):
        out.append(np.sum((X @ one - y) ** 2) / (2 * len(y)) if len(y) else np.nan)
    return np.array(out)


# --- the metrics, through a loop -----------------------------------------------------------------------------


@each("engine", ["explicit", "compressed"])
@each("name", DATA)
@each("learner", FAMILY)
def test_losses_equal_a_loop_over_clients(learner, name, engine):
    algorithm, data = FAMILY[learner], given(name)
    result = run(algorithm, data=data, engine=engine, participation=0.5 if "FedRep" in learner else 1.0)
    assert list(result.metrics) == ["train_loss", "test_loss"]
    steps = list(lf.iterate(algorithm, data=data, rounds=5, trials=3, seed=4, engine=engine,
                            participation=0.5 if "FedRep" in learner else 1.0))  # fmt: skip
    for column, state in enumerate([step.after for step in steps]):
        for trial, theta in enumerate(state.predictors()):
            for metric, samples in zip(("train_loss", "test_loss"), DATA[name], strict=True):
                expected = np.nanmean(client_losses(theta, of_trial(samples, trial)))
                assert result.metrics[metric][trial, column] == pytest.approx(expected, rel=1e-12, abs=1e-24)
    assert result.metrics["train_loss"].shape == (3, len(result.rounds)) == (3, len(steps))


@pytest.mark.parametrize("parts", ["B, W", "S", "B, W, S", "B, w", "s", "B, w, s", "B, w, S", "B, W, s"])
def test_every_form_of_state(parts):
    """A part in lower case is one row for all clients."""
    arrays = {"B": normal(3, D, 2), "W": normal(3, N, 2, seed=1), "S": normal(3, N, D, seed=2)}
    rows = {name.upper(): arrays[name.upper()][:, : 1 if name.islower() else None] for name in parts.split(", ")}
    state = lf.State(**rows)
    result = run(Held(state=state), data=given("lists"), rounds=0)
    for trial, theta in enumerate(state.predictors()):
        for metric, samples in zip(("train_loss", "test_loss"), DATA["lists"], strict=True):
            assert result.metrics[metric][trial, 0] == pytest.approx(np.nanmean(client_losses(theta, samples)), 1e-12)
    assert_same(
        run(Held(state=state.trials(slice(1))), data=given("lists"), rounds=0, trials=1), result, second=slice(1)
    )


@pytest.mark.parametrize("learner", FAMILY)
def test_compressed_samples_have_the_losses_of_explicit_rows(learner):
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2, noise_std=0.3)
    for data, truth in ((given("lists"), None), (lf.FixedSamples(30), problem)):
        names = ["train_loss", "test_loss"] if truth is None else ["train_loss"]
        one, other = (
            run(FAMILY[learner], truth, data=data, engine=engine, metrics=names)
            for engine in ("explicit", "compressed")
        )
        assert (one.engine, other.engine) == ("explicit", "compressed")
        for name in names:
            np.testing.assert_allclose(one.metrics[name], other.metrics[name], rtol=1e-10, atol=1e-12)


def test_fixed_samples_have_the_loss_of_the_samples_they_draw():
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2, noise_std=0.3)
    result = run(FEDREP, problem, data=lf.FixedSamples(9), metrics=["train_loss", "risk"], engine="explicit")
    drawn = lf.FixedSamples(9).draw(problem, trials=3, seed=4)
    losses = result.losses(drawn.X, drawn.y)
    np.testing.assert_allclose(losses.mean(axis=1), result.metrics["train_loss"][:, -1], rtol=1e-12)
    np.testing.assert_array_equal(result.metrics["risk"], run(FEDREP, problem, data=lf.FixedSamples(9)).metrics["risk"])


def test_factors_that_are_drawn_in_law_have_the_loss_of_the_population():
    """With a million samples the loss at theta is the risk to three digits."""
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2, noise_std=0.3)
    algorithm = dataclasses.replace(FEDREP, init="random")
    result = run(algorithm, problem, data=lf.FixedSamples(10**6, in_law=True), metrics=["train_loss", "risk"])
    np.testing.assert_allclose(result.metrics["train_loss"], result.metrics["risk"], rtol=0.01)


@pytest.mark.parametrize("name", ["arrays", "arrays of trials", "held out by trial", "lists", "trials, held-out lists"])
def test_losses_of_a_trial_do_not_depend_on_the_others(name, monkeypatch):
    whole = run(data=given(name), engine="explicit")
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(run(data=given(name), engine="explicit"), whole)
    one = lf.GivenSamples(*of_trial(DATA[name][0], 0), test=of_trial(DATA[name][1], 0))
    assert_same(run(data=one, engine="explicit", trials=1), whole, second=slice(1))


@pytest.mark.parametrize("learner", ["FedRep", "FedAvg", "local only"])
def test_losses_do_not_depend_on_blocks_of_clients(learner, monkeypatch):
    whole = run(FAMILY[learner], data=given("lists"), engine="explicit")
    monkeypatch.setattr(linalg, "CACHE_VALUES", 50)  # fewer numbers than one client has: it is a block by itself
    cut = run(FAMILY[learner], data=given("lists"), engine="explicit")
    for name, values in whole.metrics.items():
        np.testing.assert_allclose(cut.metrics[name], values, rtol=1e-12)
    assert_same(run(FAMILY[learner], data=given("lists"), engine="explicit", trials=1), cut, second=slice(1))


def test_losses_of_a_diverged_trial_are_missing():
    X, y = drawn(3, N, 15)
    algorithm = lf.FedPer(rank=2, step_size=0.2, init=normal(D, 2, seed=1) / 3)
    result = run(algorithm, data=lf.GivenSamples(X * np.array([1.0, 30.0, 1.0])[:, None, None, None], y), rounds=60)
    assert result.status == [lf.Status.COMPLETED, lf.Status.DIVERGED, lf.Status.COMPLETED]
    assert np.isnan(result.metrics["train_loss"][:, -1]).tolist() == [False, True, False]
    assert np.isnan(result.losses(X, y)).tolist() == [[trial == 1] * N for trial in range(3)]
    adapted = result.adapt(*drawn(3, 2, 5))
    assert [bool(np.isnan(theta).any()) for theta in adapted.predictors()] == [False, True, False]
    assert np.isnan(adapted.predictors()[1]).all()
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())


# --- which are recorded, and what is made of them ------------------------------------------------------------


def test_what_is_recorded():
    X, y = DATA["arrays"][0]
    truth = lf.GivenTruth(Phi=PHI)
    assert list(run(data=lf.GivenSamples(X, y)).metrics) == ["train_loss"]
    of_numbers = [name for name in lf.METRICS if classification not in lf.METRICS[name].needs]
    assert list(run(problem=truth).metrics) == [name for name in of_numbers if "loss" not in name]
    asked = run(problem=truth, metrics=["test_loss", "risk"])
    assert list(asked.metrics) == ["test_loss", "risk"]
    assert list(run(metrics=[]).metrics) == []
    fresh = run(problem=truth, data=lf.FreshSamples(5))
    fixed = run(problem=truth, data=lf.FixedSamples(5))
    for result, name, reason in (
        (run(data=lf.GivenSamples(X, y)), "test_loss", r"no held-out samples .*test=\(X, y\)"),
        (run(data=lf.GivenSamples(X, y)), "risk", "it requires the ground truth"),
        (run(problem=truth), "train_loss", r"it was not requested \(metrics=\)"),
        (run(metrics=["test_loss"]), "train_loss", r"it was not requested \(metrics=\)"),
        (fresh, "train_loss", "samples are fresh.* 'risk' is"),
        (fresh, "test_loss", "samples are fresh.* 'risk' is"),
        (fixed, "train_loss", "it was not requested"),
        (fixed, "test_loss", "no held-out samples"),
    ):
        with pytest.raises(KeyError, match=f"metric '{name}' is absent: .*{reason}"):
            result.metrics[name]


@pytest.mark.parametrize(
    ("data", "name", "reason"),
    [
        (lf.FreshSamples(5), "train_loss", "samples are fresh"),
        (lf.FreshSamples(5), "test_loss", "samples are fresh"),
        (lf.FixedSamples(5), "test_loss", "no held-out samples"),
        (lf.GivenSamples(*DATA["arrays"][0]), "test_loss", "no held-out samples"),
    ],
)
def test_a_loss_that_does_not_apply_is_refused(data, name, reason):
    with pytest.raises(ValueError, match=f"metrics = '{name}' does not apply: .*{reason}"):
        run(problem=lf.GivenTruth(Phi=PHI), data=data, metrics=[name])


def test_losses_leave_the_run_alone():
    asked = run(problem=lf.GivenTruth(Phi=PHI), metrics=["risk", "train_loss", "test_loss"])
    plain = run(problem=lf.GivenTruth(Phi=PHI))
    assert np.array_equal(asked.metrics["risk"], plain.metrics["risk"])
    assert np.array_equal(asked.final.B, plain.final.B)
    assert np.array_equal(asked.final.B, run(metrics=[]).final.B)


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
@pytest.mark.parametrize("metric", ["train_loss", "test_loss"])
def test_losses_are_tuned_drawn_told_and_kept(metric, tmp_path):
    grid = {"step_size": [0.01, 0.3]}
    options = {"rounds": 5, "trials": 3, "metric": metric, "score": "final", "validation_share": 0.0}
    tuning = lf.tune(FEDREP, grid=grid, data=given("arrays"), **options)
    values = [run(dataclasses.replace(FEDREP, step_size=step)).metrics[metric][0, -1] for step in grid["step_size"]]
    np.testing.assert_allclose(tuning.scores, values, rtol=1e-12)
    result = run(data=given("lists"))
    (line,) = (line for line in result.summary().splitlines() if line.startswith(metric))
    assert f"{result.metrics[metric][0, -1]:.4g}" in line
    ax = result.plot(metric)
    assert np.array_equal(ax.lines[0].get_ydata(), np.sort(result.metrics[metric], axis=0)[1])
    assert ax.get_ylabel() == metric.replace("_", " ")
    plt.close("all")
    loaded = Result.load(result.save(tmp_path / "a.npz"))
    assert np.array_equal(loaded.metrics[metric], result.metrics[metric])
    assert repr(loaded.data) == repr(result.data)
    assert "held-out samples per client 0 to 30" in repr(result.data)
    for part in ("X", "y", "counts"):
        array = getattr(loaded.data.test, part)
        assert np.array_equal(array, getattr(result.data.test, part))
        assert not array.flags.writeable
    assert_same(run(data=loaded.data), result)


@pytest.mark.long
def test_held_out_samples_are_told_by_worker_processes_too():
    assert_same(run(data=given("held out by trial"), workers=2), run(data=given("held out by trial")))


# --- samples that are brought later --------------------------------------------------------------------------


@each("name", DATA)
@each("learner", FAMILY)
def test_losses_on_samples_of_the_training_clients(learner, name):
    result = run(FAMILY[learner], data=given(name))
    for samples, metric in zip(DATA[name], ("train_loss", "test_loss"), strict=True):
        losses = result.losses(*samples)
        assert losses.shape == (3, N)
        for trial, theta in enumerate(result.final.predictors()):
            np.testing.assert_allclose(losses[trial], client_losses(theta, of_trial(samples, trial)), 1e-12, 1e-24)
        np.testing.assert_allclose(np.nanmean(losses, axis=1), result.metrics[metric][:, -1], rtol=1e-12)


def test_losses_of_a_run_with_a_truth_of_ones_own_class(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Own(lf.SharedRepresentation):
        pass

    result = run(FEDREP, Own(n_clients=N, dim=D, rank=2), data=lf.FreshSamples(9))
    loaded = Result.load(result.save(tmp_path / "a.npz"))
    X, y = DATA["arrays"][0]
    assert np.array_equal(loaded.losses(X, y), result.losses(X, y))
    with pytest.raises(ValueError, match=r"X has shape \(5, 15, 7\), expected n = 6 clients"):
        loaded.losses(X[:5], y[:5])


NEW = {
    "arrays": drawn(4, 9, seed=7),
    "one sample": drawn(4, 1, seed=7),
    "one client": drawn(1, 9, seed=7),
    "trials": drawn(3, 4, 9, seed=7),
}


def adapted_predictor(learner, arrays, X, y):
    if learner == "local only":
        return ref.least_squares(X, y, 0.1)
    return arrays["B"] @ ref.least_squares(X @ arrays["B"], y) if "B" in arrays else arrays["S"][0]


@each("name", [*NEW, "lists"])
@each("learner", [name for name in FAMILY if name != "shortcuts"])
def test_clients_that_took_no_part_adapt_to_samples_of_their_own(learner, name):
    samples = (
        ([rows[:m] for rows, m in zip(NEW["arrays"][0], (1, 9, 2, 5), strict=True)],
         [row[:m] for row, m in zip(NEW["arrays"][1], (1, 9, 2, 5), strict=True)])
        if name == "lists" else NEW[name]
    )  # fmt: skip
    result = run(FAMILY[learner])
    before = {part: array.copy() for part, array in result.final.arrays().items()}
    state = result.adapt(*samples)
    theta = state.predictors()
    for trial in range(3):
        arrays = {part: array[trial] for part, array in result.final.arrays().items()}
        X, y = of_trial(samples, trial)
        expected = [adapted_predictor(learner, arrays, *pair) for pair in zip(X, y, strict=True)]
        np.testing.assert_allclose(np.broadcast_to(theta[trial], (len(X), D)), expected, rtol=1e-9, atol=1e-9)
    assert all(np.array_equal(array, before[part]) for part, array in result.final.arrays().items())


def test_adapting_is_what_new_clients_of_the_problem_do():
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=3, noise_std=0.2)
    for algorithm in (FEDREP, lf.FedRepShortcut(rank=2, step_size=0.05)):
        met = []

        class Watched(type(algorithm)):
            def adapt(self, state, batch):
                met.append((batch.X.copy(), batch.y.copy()))  # noqa: B023 (used in this pass of the loop)
                return super().adapt(state, batch)

        arguments = {field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)}
        result = run(Watched(**arguments), problem, data=lf.FixedSamples(9))
        risks = result.new_clients([8], clients=5)
        theta = result.adapt(*met[0]).predictors()
        truth = problem.new_clients(problem.truth(4, range(3)), 5, 4, range(3)).dense()
        np.testing.assert_allclose(risks[:, 0], 0.5 * ((theta - truth) ** 2).sum(-1) + 0.02, rtol=1e-9)


def test_a_ridge_and_an_algorithm_of_ones_own_adapt_as_they_say():
    X, y = NEW["arrays"]
    result = run(lf.FedRep(rank=2, step_size=0.2, heads=lf.ExactHeads(ridge=0.4)))
    B = result.final.B[0]
    expected = [ref.least_squares(rows @ B, row, 0.4) for rows, row in zip(X, y, strict=True)]
    np.testing.assert_allclose(result.adapt(X, y).W[0], expected, rtol=1e-10)

    class Adapting(lf.LocalOnly):
        def adapt(self, state, batch):
            return lf.State(S=np.ones((*batch.active.shape, D)))

    assert np.array_equal(run(Adapting()).adapt(X, y).predictors(), np.ones((3, 4, D)))


# --- invalid calls -------------------------------------------------------------------------------------------


def empty():
    return [np.zeros((0, D))] * N, [np.zeros(0)] * N


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
RAGGED = [[normal(2, D), normal(3, D)], [normal(3, D), normal(4, D)]]
CALLS = {
    "test is no pair": (lambda: lf.GivenSamples(X, Y, test=X), ["test", "a pair of arrays, (X, y)"]),
    "test of three": (lambda: lf.GivenSamples(X, Y, test=(X, Y, Y)), ["test", "a pair of arrays, (X, y)"]),
    "test a word": (lambda: lf.GivenSamples(X, Y, test="xy"), ["test = 'xy'", "a pair of arrays, (X, y)"]),
    "test of other clients": (
        lambda: lf.GivenSamples(X, Y, test=(X[:4], Y[:4])),
        ["test X has shape (4, 15, 7)", "n = 6 clients of dimension d = 7"],
    ),
    "test of another dimension": (
        lambda: lf.GivenSamples(X, Y, test=(X[..., :5], Y)),
        ["test X has shape (6, 15, 5)", "n = 6 clients of dimension d = 7"],
    ),
    "test of other trials": (
        lambda: lf.GivenSamples(*drawn(3, N, 15), test=drawn(2, N, 15)),
        ["test X has arrays for 2 trials", "X for 3"],
    ),
    "test of empty clients": (
        lambda: lf.GivenSamples(X, Y, test=empty()),
        ["test X", "no axis may be empty"],
    ),
    "test lists of no samples": (
        lambda: lf.GivenSamples(X, Y, test=([np.zeros((0, D)), []] * 3, [[]] * N)),
        ["test X contains no samples"],
    ),
    "test of an empty client of another dimension": (
        lambda: lf.GivenSamples(X, Y, test=([np.zeros((0, 3)), *X[1:]], [[], *Y[1:]])),
        ["test X[0]", "(0, 3)", "(0, 7)"],
    ),
    "test labels of an empty client": (
        lambda: lf.GivenSamples(X, Y, test=([np.zeros((0, D)), *X[1:]], list(Y))),
        ["test y[0]", "(15,)", "(0,)"],
    ),
    "NaN in test": (
        lambda: lf.GivenSamples(X, Y, test=(X, np.where(Y[1, 2] == Y, np.nan, Y))),
        ["test y holds 1 value ", "(1, 2)"],
    ),
    "trials beside held-out trials": (
        lambda: run(data=given("held out by trial"), trials=2),
        ["trials = 2", "3 trials"],
    ),
    **{
        name: (
            lambda X=X: lf.GivenSamples(X, [[np.ones(len(rows)) for rows in trial] for trial in X]),
            ["X has trials", "different", "(trials, n, m, d)", "separate lf.GivenSamples"],
        )
        for name, X in {
            "ragged trials": RAGGED,
            "ragged trials as tuples": tuple(tuple(trial) for trial in RAGGED),
            "ragged trials as plain lists": [[part.tolist() for part in trial] for trial in RAGGED],
            "trials of unequal counts": [normal(2, 3, D), normal(2, 4, D)],
            "trials of unequal clients": [normal(2, 3, D), normal(3, 3, D)],
            "one ragged trial": RAGGED[:1],
        }.items()
    },
    "ragged held-out trials": (
        lambda: lf.GivenSamples(*drawn(2, 2, 3), test=(RAGGED, [[rows[:, 0] for rows in t] for t in RAGGED])),
        ["test X has trials", "different", "(trials, n, m, d)"],
    ),
    "ragged labels": (
        lambda: lf.GivenSamples(*drawn(2, 2, 3)[:1], [[np.ones(2), np.ones(3)], [np.ones(3), np.ones(4)]]),
        ["y", "(n, m)", "parts have different sizes"],
    ),
    "losses of other clients": (
        lambda: run().losses(X[:4], Y[:4]),
        ["X has shape (4, 15, 7)", "n = 6 clients of dimension d = 7 as the run had"],
    ),
    "losses in another dimension": (
        lambda: run().losses(X[..., :5], Y),
        ["X has shape (6, 15, 5)", "n = 6 clients of dimension d = 7 as the run had"],
    ),
    "losses of other trials": (lambda: run().losses(*drawn(2, N, 5)), ["X has arrays for 2 trials", "the run had 3"]),
    "losses of a wrong shape": (lambda: run().losses(X, Y[0]), ["y has shape (15,)"]),
    "losses in a frame": (lambda: chain().losses(X, Y), ["losses() requires B itself", "'chain'", "'projected'"]),
    "adapt in a frame": (lambda: chain().adapt(X, Y), ["adapt() requires B itself", "'chain'", "'projected'"]),
    "adapt in another dimension": (
        lambda: run().adapt(X[..., :5], Y),
        ["X has shape (6, 15, 5)", "d = 7 as the run had"],
    ),
    "adapt in other trials": (lambda: run().adapt(*drawn(2, 4, 5)), ["X has arrays for 2 trials", "the run had 3"]),
    "adapt without samples": (
        lambda: run().adapt([np.zeros((0, D)), X[0]], [[], Y[0]]),
        ["X[0]", "no axis may be empty"],
    ),
    "nothing to take over": (
        lambda: run(Personal()).adapt(X, Y),
        ["Personal learns nothing that new clients can use"],
    ),
}


@each("name", CALLS)
def test_a_bad_call_says_what_is_wrong_in_one_line(name):
    assert_one_line(*CALLS[name])


def test_a_class_that_only_its_text_was_saved_of_does_not_adapt(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "linfed.system.description._users_class", lambda name: None
    )  # as in a process that never had it
    loaded = Result.load(run(Personal()).save(tmp_path / "a.npz"))
    with pytest.raises(TypeError, match=r"algorithm = Personal\(\) must be an algorithm whose class"):
        loaded.adapt(X, Y)
    assert loaded.losses(X, Y).shape == (3, N)
