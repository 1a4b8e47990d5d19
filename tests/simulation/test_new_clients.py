"""Risks of clients, one by one: those of the training, and new ones that are fitted on a few samples of their own."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

import linfed as lf
from linfed.numerics.streams import Stream, generators
from linfed.simulation import new_clients as evaluation
from linfed.simulation.results import Result
from linfed.system import memory
from tests import references as ref
from tests.helpers import assert_one_line, normal
from tests.worlds import LEARNERS

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
SIZES = [1, 2, 3, 9]
PROBLEM = lf.SharedRepresentation(n_clients=6, dim=7, rank=3, noise_std=0.2)
FAMILY = [
    "FedRep",
    "FedRep, ridge",
    "FedRep, gradient heads",
    "FedRep, no QR",
    "FedPer",
    "FedAvg",
    "FedAvg, two layers",
    "FedAvg, fine-tuned",
    "FedAvg, fine-tuned, ridge",
    "LocalOnly",
    "LocalOnly, ridge",
    "PooledLeastSquares",
    "Oracle",
    "Oracle, ridge",
    "Personalized",
]
RIDGES = {"FedRep, ridge": 0.2, "FedAvg, fine-tuned, ridge": 0.2, "LocalOnly, ridge": 0.3, "Oracle, ridge": 0.3}


def run(name="FedRep", problem=PROBLEM, **changes):
    arguments = {"data": lf.FixedSamples(5), "n_rounds": 3, "trials": 3, "seed": 4} | changes
    algorithm = LEARNERS[name].make(step_size=0.2) if isinstance(name, str) else name
    return lf.simulate(algorithm, problem, **arguments)


def adapted(name, arrays, X, y):
    """Return the predictor of a new client with samples X and y, from one trial's final arrays."""
    ridge = RIDGES.get(name, 0.0)
    if "LocalOnly" in name:
        return ref.least_squares(X, y, ridge)
    if name == "Personalized":
        (w,), (s,) = ref.personalised([X], [y], arrays["B"], 0.3)
        return arrays["B"] @ w + s
    return arrays["B"] @ ref.least_squares(X @ arrays["B"], y, ridge) if "B" in arrays else arrays["S"][0]


def brute_force(name, result, truths, sizes, seed):
    """Return the risks (trials, sizes, clients) by a loop; `truths` has one truth per trial.

    The streams are read sample by sample, all clients at a time.
    """
    out = []
    for t, truth in enumerate(truths):
        (Phi,), d = truth.dense(), truth.dense().shape[-1]
        (x_rng,), (noise_rng,) = (generators(seed, s, [t]) for s in (Stream.NEW_X, Stream.NEW_NOISE))
        X = np.empty((max(sizes), len(Phi), d))
        truth.design.fill(x_rng, X)
        y = np.vecdot(X, Phi) + truth.noise_std * noise_rng.standard_normal(X.shape[:2])
        arrays = {key: array[t] for key, array in result.final.arrays().items()}
        covariance = np.eye(d) if truth.design.covariance is None else truth.design.covariance
        Theta = [[adapted(name, arrays, X[:m, i], y[:m, i]) for i in range(len(Phi))] for m in sizes]
        out.append([ref.client_risks(each, Phi, covariance, truth.noise_std) for each in Theta])
    return np.array(out)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Watched(lf.FedRep):
    """FedRep that keeps the samples of the new clients."""

    log: list = dataclasses.field(default_factory=list)

    def adapt(self, state, batch):
        self.log.append((batch.X.copy(), batch.y.copy()))
        return super().adapt(state, batch)


# --- clients of the training ---------------------------------------------------------------------------------


def test_a_diverged_trial_has_no_risks():
    W = normal(3, 6, 2) * np.array([1.0, 100.0, 1.0])[:, None, None]
    algorithm = lf.FedPer(rank=2, step_size=0.2, init=normal(3, 7, 2, seed=1) / 3)
    result = run(algorithm, lf.GivenTruth(B=np.eye(7)[:, :2], W=W), n_rounds=30)
    assert [status is lf.Status.DIVERGED for status in result.status] == [False, True, False]
    assert np.isnan(result.client_risks()).tolist() == [[trial == 1] * 6 for trial in range(3)]
    risks = result.new_clients([2, 5], problem=PROBLEM)
    assert np.isnan(risks).tolist() == [[[trial == 1] * 6] * 2 for trial in range(3)]
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())


# --- new clients, through a loop -----------------------------------------------------------------------------

FULL = lf.Gaussian(covariance=np.diag(np.arange(1.0, 8.0)) + 0.5)


@pytest.mark.parametrize("name", FAMILY)
def test_risks_of_new_clients_equal_a_loop(name):
    for design, seed, clients in (("gaussian", None, 4), ("cube", 9, 1), (FULL, (1, 2), 8)):
        problem = dataclasses.replace(PROBLEM, design=design)
        result = run(name, problem)
        risks = result.new_clients(SIZES, clients=clients, seed=seed)
        seed = 4 if seed is None else seed
        truths = [problem.new_clients(problem.truth(4, [t]), clients, seed, [t]) for t in range(3)]
        np.testing.assert_allclose(risks, brute_force(name, result, truths, SIZES, seed), **TOLERANCE)


GIVEN = {
    "B, W": {"B": normal(7, 2), "W": normal(5, 2, seed=1)},
    "B, W of trials": {"B": normal(7, 2), "W": normal(3, 5, 2, seed=1)},
    "B, W, S": {"B": normal(7, 2), "W": normal(5, 2, seed=1), "S": normal(5, 7, seed=2)},
    "S": {"S": normal(5, 7, seed=2)},
    "Phi, B": {"Phi": normal(5, 7, seed=2), "B": normal(7, 2)},
    "one client": {"Phi": normal(1, 7)},
}


@pytest.mark.parametrize("form", GIVEN)
def test_new_clients_of_a_given_truth_equal_a_loop(form):
    problem = lf.GivenTruth(**GIVEN[form], noise_std=0.5, design="rademacher")
    truths = [problem.truth(4, [t]) for t in range(3)]
    for name in ("FedRep", "FedAvg", "Personalized"):
        result = run(name)
        risks = result.new_clients(SIZES, problem=problem)
        assert risks.shape == (3, 4, problem.n_clients)
        np.testing.assert_allclose(risks, brute_force(name, result, truths, SIZES, 4), **TOLERANCE)
        assert np.array_equal(result.new_clients(SIZES, problem=problem, clients=problem.n_clients), risks)


def test_new_clients_of_another_problem():
    """Of another family, or of the first problem of a run on given samples."""
    other = lf.SharedRepresentation(n_clients=5, dim=7, rank=2, noise_std=0.1)
    data = lf.GivenSamples(normal(3, 6, 5, 7), normal(3, 6, 5, seed=1))
    for result, seed in ((run(), 4), (run(), 11), (run(problem=None, data=data), 4)):
        risks = result.new_clients(SIZES, problem=other, seed=seed)
        truths = [other.truth(seed, [t]) for t in range(3)]
        np.testing.assert_allclose(risks, brute_force("FedRep", result, truths, SIZES, seed), **TOLERANCE)


# --- which clients these are ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILY)
def test_risks_depend_on_neither_other_sizes_nor_other_trials(name, monkeypatch):
    result = run(name)
    together = result.new_clients([1, 5, 20])
    assert together.shape == (3, 3, 100)
    for column, size in enumerate([1, 5, 20]):
        np.testing.assert_allclose(result.new_clients([size])[:, 0], together[:, column], rtol=1e-10)
    assert np.array_equal(run(name, trials=1).new_clients(np.array([1, 5, 20])), together[:1])
    monkeypatch.setattr(evaluation, "CHUNK_VALUES", 1)
    assert np.array_equal(result.new_clients([1, 5, 20]), together)
    np.testing.assert_allclose(result.new_clients((5, 1, 5)), together[:, [1, 0, 1]], rtol=1e-10)


def test_methods_of_one_seed_meet_the_same_new_clients():
    def met(seed=4, evaluated=None, **changes):
        result = run(Watched(**{"rank": 2, "step_size": 0.2} | changes), seed=seed)
        result.new_clients([3, 8], clients=5, seed=evaluated)
        return result.algorithm.log

    one, other, elsewhere, seeded = met(), met(rank=1, step_size=0.01), met(seed=5), met(evaluated=5)
    for (X, y), size in zip(one, (3, 8), strict=True):
        assert (X.shape, y.shape) == ((3, 5, size, 7), (3, 5, size))
    for pair, same in zip(one, other, strict=True):
        assert all(map(np.array_equal, pair, same))
    for different in (elsewhere, seeded):
        assert not np.isin(different[1][0], one[1][0]).any()
        assert not np.isin(different[1][1], one[1][1]).any()
    assert np.array_equal(elsewhere[1][0], seeded[1][0])  # the samples are of the evaluation's seed,
    assert not np.isclose(elsewhere[1][1], seeded[1][1]).any()  # the truth is of the run's
    training = lf.FixedSamples(5).draw(PROBLEM, trials=3, seed=4)
    assert not np.isin(one[1][0], training.X).any()


def test_the_seed_is_the_runs_by_default():
    for seed in (4, (4, 1)):
        result = run(seed=seed)
        default = result.new_clients([3])
        assert default.shape == (3, 1, evaluation.NEW_CLIENTS) == (3, 1, 100)
        assert np.array_equal(result.new_clients([3], seed=seed), default)
        assert not np.isin(result.new_clients([3], seed=77), default).any()


def test_the_final_state_stays_as_it_is(tmp_path):
    result = run("FedAvg, two layers")
    before = {name: array.copy() for name, array in result.final.arrays().items()}
    risks = result.new_clients(SIZES)
    result.client_risks()
    assert all(np.array_equal(array, before[name]) for name, array in result.final.arrays().items())
    loaded = Result.load(result.save(tmp_path / "a.npz"))
    assert np.array_equal(loaded.new_clients(SIZES), risks)


def test_more_samples_help_all_but_single_models():
    for name in ("FedAvg", "PooledLeastSquares"):
        risks = run(name).new_clients([1, 50])
        assert np.array_equal(risks[:, 0], risks[:, 1])
    for name in ("FedRep", "LocalOnly", "FedAvg, two layers"):
        assert (np.median(run(name).new_clients([7, 50]), axis=(0, 2)) @ [1, -1]) > 0


# --- against theory ------------------------------------------------------------------------------------------


def outside(problem, result, clients):
    """Return ``||(I - BB')phi||`` of each new client, (trials, clients)."""
    trials = range(result.trials)
    Phi = problem.new_clients(problem.truth(result.seed, trials), clients, result.seed, trials).dense()
    B = result.final.B
    return np.linalg.norm(Phi - Phi @ B @ np.swapaxes(B, -1, -2), axis=-1)


@pytest.mark.parametrize("rank", [4, 2], ids=["all inside", "cut"])
def test_mean_and_median_of_the_oracle_are_the_predicted_ones(rank):
    """Within 4 standard errors: a right law fails at one seed in 15,000, for each of the eight numbers."""
    problem = lf.SharedRepresentation(n_clients=20, dim=9, rank=4, noise_std=0.6)
    clients, sizes = 1500, [rank, rank + 1, rank + 6, 5 * rank]
    result = run(lf.Oracle(rank=rank), problem, trials=4)
    rho = outside(problem, result, clients)
    assert (rho.max() > 0.1) == (rank == 2)
    risks = result.new_clients(sizes, clients=clients)
    for column, m in enumerate(sizes):
        law = {"noise_std": 0.6, "rank": rank, "n_samples": m}
        predicted = lf.theory.new_client_mean_risk(rho, **law)
        if m > rank + 4:  # then the variance is finite
            gaps = risks[:, column] - predicted
            assert abs(gaps.mean()) < 4 * gaps.std() / np.sqrt(gaps.size)
        else:
            assert np.isinf(predicted).all()
        for q in (0.2, 0.5, 0.9):
            quantile = lf.theory.new_client_excess_quantile(q, rho, **law)
            share = (risks[:, column] - 0.18 < quantile).mean()
            assert abs(share - q) < 4 * np.sqrt(q * (1 - q) / rho.size)


@pytest.mark.parametrize("head_norm", [None, 3.0])
def test_new_clients_share_the_basis_and_the_length_of_their_heads(head_norm):
    problem = lf.SharedRepresentation(n_clients=6, dim=7, rank=3, head_norm=head_norm, noise_std=0.1, design="cube")
    truth = problem.truth(2, range(3))
    new = problem.new_clients(truth, 50, 8, range(3))
    assert np.array_equal(new.B, truth.B)
    assert new.W.shape == (3, 50, 3)
    np.testing.assert_allclose(np.linalg.norm(new.W, axis=-1), head_norm or np.sqrt(3), rtol=1e-14)
    assert not np.isin(new.W, truth.W).any()
    assert (new.noise_std, new.design) == (0.1, lf.UniformCube())
    # With the true representation and no noise they are fitted exactly.
    exact = dataclasses.replace(problem, noise_std=0.0)
    assert run(lf.Oracle(rank=3), exact).new_clients([3, 4]).max() < 1e-20


def test_directions_of_new_heads_are_uniform():
    """First coordinates of uniform directions in R^3 are uniform; a right law is rejected at one seed in 1000."""
    problem = lf.SharedRepresentation(n_clients=6, dim=7, rank=3)
    (W,) = problem.new_clients(problem.truth(0, [0]), 4000, 1, [0]).W
    for column in W.T:
        assert scipy.stats.kstest(column, scipy.stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)).cdf).pvalue > 1e-3 / 3


# --- memory --------------------------------------------------------------------------------------------------


def test_new_clients_are_evaluated_some_trials_at_a_time(monkeypatch):
    result = run()
    together = result.new_clients([2, 5], clients=4)
    risks = evaluation._risks
    for values, lengths in ((2 * 4 * 5 * 7, [2, 1]), (2 * 4 * 5 * 7 - 1, [1, 1, 1]), (1, [1, 1, 1]), (10**6, [3])):
        seen = []
        monkeypatch.setattr(evaluation, "CHUNK_VALUES", values)
        monkeypatch.setattr(
            evaluation, "_risks", lambda *arguments, seen=seen: seen.append(len(arguments[-1])) or risks(*arguments)
        )
        assert np.array_equal(result.new_clients([2, 5], clients=4), together)
        assert seen == lengths


def test_three_copies_of_the_new_clients_samples_fit_into_memory(monkeypatch):
    result = run()
    needed = 8 * (3 * 4 * 5 * 7 + 3 * 2 * 4)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2.0 * needed)
    assert result.new_clients([2, 5], clients=4).shape == (3, 2, 4)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2.0 * needed - 1)
    wanted = ["n_samples up to 5", "4 new clients in dimension 7"]
    assert_one_line(lambda: result.new_clients([2, 5], clients=4), wanted, lf.SizeError)


# --- algorithms of a user, and invalid arguments -------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Personal(lf.Algorithm):
    """A user's algorithm with a predictor for each client, and nothing shared."""

    def initial_state(self, start):
        return lf.State(S=np.zeros((start.trials, start.n_clients, start.dim)))

    def step(self, state, batch, rng):
        return state.update(S=batch.least_squares(), active=batch.active)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnProblem(lf.SharedRepresentation):
    """A user's problem."""


BARE = lf.GivenSamples(normal(6, 5, 7), normal(6, 5))
CALLS = {
    "no problem": (lambda: run(problem=None, data=BARE, trials=1).new_clients([3]), ["new_clients()", "problem="]),
    "no truth": (lambda: run(problem=None, data=BARE, trials=1).client_risks(), ["client_risks()", "ground truth"]),
    "a given truth": (lambda: run(problem=lf.GivenTruth(Phi=normal(6, 7))).new_clients([3]), ["problem="]),
    "another dimension": (
        lambda: run().new_clients([3], problem=lf.GivenTruth(Phi=normal(6, 8))),
        ["dim = 8", "d = 7"],
    ),
    "clients beside a problem": (
        lambda: run().new_clients([3], clients=5, problem=PROBLEM),
        ["clients = 5", "must be 6"],
    ),
    "fewer trials of a problem": (
        lambda: run().new_clients([3], problem=lf.GivenTruth(Phi=normal(2, 4, 7))),
        ["problem", "2 trials", "3"],
    ),
    "more trials of a problem": (
        lambda: run().new_clients([3], problem=lf.GivenTruth(Phi=normal(5, 4, 7))),
        ["problem", "5 trials", "3"],
    ),
    "a problem's name": (lambda: run().new_clients([3], problem="shared"), ["problem = 'shared'"]),
    "a problem's class": (lambda: run().new_clients([3], problem=lf.GivenTruth), ["problem = <class"]),
    "clients 0": (lambda: run().new_clients([3], clients=0), ["clients = 0"]),
    "clients 2.5": (lambda: run().new_clients([3], clients=2.5), ["clients = 2.5"]),
    "seed": (lambda: run().new_clients([3], seed=-1), ["seed = -1"]),
    "nothing to take over": (lambda: run(Personal()).new_clients([3]), ["Personal learns nothing"]),
    **{
        f"sizes {sizes!r}": (lambda sizes=sizes: run().new_clients(sizes), ["n_samples", "sequence"])
        for sizes in (5, "5", [], None, {3, 4})
    },
    **{
        f"sizes {sizes!r}": (lambda sizes=sizes: run().new_clients(sizes), [f"n_samples[{len(sizes) - 1}] = "])
        for sizes in ([0], [3, -1], [2.0], [1, True])
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_invalid_arguments_are_named(name):
    assert_one_line(*CALLS[name], (ValueError, TypeError))


def test_classes_of_a_user_that_are_unknown_have_no_new_clients(tmp_path, monkeypatch):
    sizes = {"n_clients": 6, "dim": 7, "rank": 3}
    result = run(problem=OwnProblem(**sizes))
    assert Result.load(result.save(tmp_path / "problem.npz")).client_risks().shape == (3, 6)
    monkeypatch.setattr("linfed.system.description._users_class", lambda name: None)  # as in another process
    own = Result.load(tmp_path / "problem.npz")
    for call in (lambda: own.new_clients([3]), own.client_risks):
        assert_one_line(call, ["only the text of OwnProblem(n_clients=6", "give problem="])
    assert own.new_clients([3], problem=PROBLEM).shape == (3, 1, 6)
    users = Result.load(run(Personal()).save(tmp_path / "algorithm.npz"))
    assert users.client_risks().shape == (3, 6)
    assert_one_line(lambda: users.new_clients([3]), ["algorithm = Personal()"], TypeError)


def test_a_users_algorithm_adapts_as_it_says():
    class Adapting(Personal):
        def adapt(self, state, batch):
            return lf.State(S=np.ones((*batch.active.shape, 7)))

    risks = run(Adapting()).new_clients([1, 2], problem=lf.GivenTruth(Phi=np.zeros((4, 7))))
    np.testing.assert_allclose(risks, np.full((3, 2, 4), 3.5), rtol=1e-14)


def test_bytes_are_no_numbers_of_samples():
    result = lf.simulate(lf.FedRep(rank=2, step_size=0.1), PROBLEM, data=lf.FreshSamples(8), n_rounds=2)
    assert_one_line(lambda: result.new_clients(b"\x05\x06"), ["n_samples = b", "sequence of sample counts"])
    assert np.array_equal(result.new_clients(range(5, 7)), result.new_clients([5, 6]))
