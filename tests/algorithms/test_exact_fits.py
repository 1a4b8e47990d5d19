"""Exact fits of algorithms to given samples: units of columns, dependent columns, trials that overflow, halves."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import basis, normal
from tests.worlds import LEARNERS

pytestmark = pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
N, M, D, K = 6, 30, 4, 2
START = basis(D, K, seed=3)
CLOSED = {"solver": lf.ClosedForm(order="joint"), "ridge": 0.1}


def samples(m=M, trials=None, noise=0.3):
    shape = (N, m, D) if trials is None else (trials, N, m, D)
    X = normal(*shape)
    return X, (X @ normal(N, D, 1, seed=1))[..., 0] + noise * normal(*shape[:-1], seed=2)


def mean_loss(X, y, Theta):
    return np.mean([ref.loss(X_i, y_i, theta) for X_i, y_i, theta in zip(X, y, Theta, strict=True)])


UNITS = [
    (1, 1, 1, 1), (1, 1, 1, 1e-3), (1e-6, 1, 1, 1), (1, 1e-7, 1, 1), (1, 1, 1, 1e6), (1e8, 1, 1, 1e8),
    (1e-8, 1, 1e-8, 1), (1, 1e-8, 1, 1e8), (1e-13, 1e-13, 1e-13, 1e-13), (1e-13, 1, 1, 1e7),
    (1e-20, 1e-20, 1e-19, 1e-20),
]  # fmt: skip


@pytest.mark.parametrize(("units", "m"), [*((units, M) for units in UNITS), *((UNITS[i], 3) for i in (1, 5, 7, 10))])
def test_the_units_of_columns_do_not_matter_to_a_fit_of_all_parameters(units, m):
    X, y = samples(m)
    data = lf.GivenSamples(X * units, y)
    best = [ref.least_squares(X_i, y_i) for X_i, y_i in zip(X, y, strict=True)]
    pooled = ref.least_squares(X.reshape(-1, D), y.ravel())
    ends = {
        "LocalOnly": (lf.LocalOnly(), best),
        "PooledLeastSquares": (lf.PooledLeastSquares(), [pooled] * N),
        "refit": (lf.FedRepShortcut(rank=K, step_size=1e-300, init=START, refit=True, **CLOSED), best),
    }
    if max(units) / min(units) > 1e16:  # the sum of a shortcut and a head of another size does not hold its digits
        del ends["refit"]
    for name, (algorithm, thetas) in ends.items():
        result = lf.simulate(algorithm, data=data, n_rounds=1)
        assert result.status == [lf.Status.COMPLETED], name
        wanted, start = mean_loss(X, y, thetas), mean_loss(X, y, np.zeros((N, D)))
        assert abs(result.metrics["train_loss"][0, -1] - wanted) < 1e-9 * start, name
        if name != "refit" and m > D:
            np.testing.assert_allclose(result.final.S[0] * units, thetas[: len(result.final.S[0])], rtol=1e-7)


@pytest.mark.parametrize("units", UNITS[1:-2:2])
def test_the_units_of_columns_do_not_matter_to_new_clients_with_shortcuts(units):
    X, y = samples()
    start = {"rank": K, "step_size": 1e-300, "init": START}
    trained = lf.simulate(lf.FedRepShortcut(**start), data=lf.GivenSamples(X * units, y), n_rounds=0)
    found = mean_loss(X * units, y, trained.adapt(X * units, y).predictors()[0])
    assert found == pytest.approx(mean_loss(X, y, [ref.least_squares(X_i, y_i) for X_i, y_i in zip(X, y, strict=True)]))


@pytest.mark.parametrize(("units", "k"), [*((units, K) for units in UNITS[:5]), (UNITS[3], 3)])
def test_the_units_of_columns_do_not_matter_to_alternating_minimisation(units, k):
    """Against the least squares of the whole design, at the heads of the first half-round, with columns of length 1.

    With larger ratios of units a head does not hold its digits.
    """
    X, y = samples()
    X, B = X * units, basis(D, k, seed=3)
    result = lf.simulate(lf.AltMin(rank=k, init=B), data=lf.GivenSamples(X, y), n_rounds=1)

    def scaled_least_squares(rows, labels):
        lengths = np.linalg.norm(rows, axis=0)
        return np.linalg.lstsq(rows / lengths, labels, rcond=1e-14)[0] / lengths

    W = np.array([scaled_least_squares(X_i @ B, y_i) for X_i, y_i in zip(X, y, strict=True)])
    Q, _ = np.linalg.qr(W)  # other coordinates of the heads have the same span, and are not nearly parallel
    rows = np.concatenate([np.einsum("md,k->mdk", X_i, q).reshape(M, -1) for X_i, q in zip(X, Q, strict=True)])
    minimiser = scaled_least_squares(rows, y.ravel()).reshape(D, k)
    assert lf.subspace_distance(result.final.B[0], minimiser) < 1e-6
    wanted = mean_loss(X, y, Q @ minimiser.T)
    assert result.metrics["train_loss"][0, -1] == pytest.approx(wanted, rel=1e-7)


# --- dependent columns ---------------------------------------------------------------------------------------

DEPENDENT = {
    "equal": lambda X: X[..., [0, 1, 2, 0]],
    "equal in other units": lambda X: X[..., [0, 1, 2, 0]] * [1.0, 1.0, 1.0, 1e-7],
    "zero": lambda X: X * [1.0, 0.0, 1.0, 1.0],
    "a sum": lambda X: np.concatenate([X[..., :3], X[..., :3].sum(axis=-1, keepdims=True)], axis=-1),
}
FITS = {
    "LocalOnly": lf.LocalOnly(),
    "PooledLeastSquares": lf.PooledLeastSquares(),
    "FedRep": lf.FedRep(rank=D, step_size=0.1, init=np.eye(D)),
    "FedRep, whitened by own samples": lf.FedRep(rank=K, step_size=0.1, init=START, whiten="own"),
    "AltMin": lf.AltMin(rank=D, init=np.eye(D)),
    "fine-tuning": lf.FedAvg(rank=D, step_size=0.1, init=np.eye(D), fine_tune=lf.ExactHeads()),
    "Personalized": lf.Personalized(base=lf.FedPer(rank=D, step_size=0.1, init=np.eye(D)), ridge=0.1),
    "refit": lf.FedRepShortcut(rank=K, step_size=0.1, init=START, refit=True),
    "closed form": lf.FedRepShortcut(rank=K, step_size=0.1, init=START, solver=lf.ClosedForm()),
    "joint": lf.FedRepShortcut(rank=D, step_size=0.1, init=np.eye(D), **CLOSED),
}


@pytest.mark.parametrize("fit", FITS)
def test_exactly_dependent_features_are_reported_by_every_exact_fit(fit):
    for name, some in DEPENDENT.items():
        X, y = samples(trials=3)
        X[1] = some(X[1]) if fit == "PooledLeastSquares" else np.concatenate([X[1, :-1], some(X[1, -1:])])
        result = lf.simulate(FITS[fit], data=lf.GivenSamples(X, y), n_rounds=2)
        assert result.status == [lf.Status.COMPLETED, lf.Status.SINGULAR_HEAD, lf.Status.COMPLETED], name
        assert np.isfinite(result.metrics["train_loss"]).all()


@pytest.mark.parametrize("fit", [name for name in FITS if name != "FedRep, whitened by own samples"])
def test_fewer_samples_than_columns_are_not_dependent_features(fit):
    X, y = samples(m=3)
    if fit == "PooledLeastSquares":
        X, y = X[:1], y[:1]
    given = [lf.GivenSamples(X, y)]
    if fit != "PooledLeastSquares":  # also next to clients with more samples
        many, labels = samples()
        given.append(lf.GivenSamples([*X[:2], *many[2:]], [*y[:2], *labels[2:]]))
    for data in given:
        assert lf.simulate(FITS[fit], data=data, n_rounds=2).status[0] in {lf.Status.COMPLETED, lf.Status.STALLED}


@pytest.mark.parametrize("ridge", [1e-8, 0.1, 10.0])
def test_a_ridge_makes_dependent_features_regular(ridge):
    X, y = samples()
    result = lf.simulate(lf.LocalOnly(ridge=ridge), data=lf.GivenSamples(DEPENDENT["equal"](X), y), n_rounds=1)
    assert result.status == [lf.Status.COMPLETED]


@pytest.mark.parametrize("name", ["zero", "equal", "a sum"])
def test_whitening_by_a_pooled_covariance_takes_its_pseudo_inverse(name):
    X, y = samples()
    X = DEPENDENT[name](X)
    C, B = np.linalg.pinv(np.mean([X_i.T @ X_i / M for X_i in X], axis=0), rcond=1e-12), START
    for _ in range(10):
        heads = [ref.least_squares(X_i @ B, y_i) for X_i, y_i in zip(X, y, strict=True)]
        slopes = [np.outer(ref.gradient(X_i, y_i, B @ w), w) for X_i, y_i, w in zip(X, y, heads, strict=True)]
        B = ref.qr_positive(B - 0.5 * C @ np.mean(slopes, axis=0))[0]
    algorithm = lf.FedRep(rank=K, step_size=0.5, whiten="pooled", init=START)
    found = lf.simulate(algorithm, data=lf.GivenSamples(X, y), n_rounds=10).final.B[0]
    np.testing.assert_allclose(found, B, rtol=0, atol=1e-9)


# --- overflow ------------------------------------------------------------------------------------------------

SOLVERS = ["FedMTL", "FedMTL, tasks", "TwoReplica", "PFedMe, exact", "NuclearNorm", "BurerMonteiro", "MethodOfMoments"]
SOLVERS += ["UStatistic", "LocalGram", "AltGDmin", "PerFedAvg, Hessian"]
ALGORITHMS = FITS | {name: LEARNERS[name].make(init=START) for name in SOLVERS}
ALGORITHMS["FedRep, whitened by pooled samples"] = lf.FedRep(rank=K, step_size=0.1, whiten="pooled")


OVERFLOWS = [(name, *spoil) for name in ALGORITHMS for spoil in ((1e155, "X"), (1e300, "y"))]
OVERFLOWS += [(name, None, "X") for name in ("LocalOnly", "FedRep", "AltMin", "joint")]


@pytest.mark.parametrize(("name", "factor", "spoilt"), OVERFLOWS)
def test_a_trial_that_overflows_costs_the_others_nothing(name, factor, spoilt):
    """With None only two values are huge."""
    X, y = samples(trials=3)
    array = {"X": X, "y": y}[spoilt]
    run = {"algorithm": ALGORITHMS[name], "n_rounds": 2}
    calm = lf.simulate(data=lf.GivenSamples(X[::2], y[::2]), **run)
    if factor is None:
        array[1, 0, 0] = array[1, 1, 1] = 1e9
    else:
        array[1] *= factor
    result = lf.simulate(data=lf.GivenSamples(X, y), **run)
    assert result.status[::2] == [lf.Status.COMPLETED] * 2
    np.testing.assert_allclose(result.metrics["train_loss"][::2], calm.metrics["train_loss"], rtol=1e-12)


# --- separate batches ----------------------------------------------------------------------------------------

SPLIT = [name for name, learner in LEARNERS.items() if "split" in name and learner.kind is not lf.FedRep]


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("m", [pytest.param(12, marks=pytest.mark.long), 13])
def test_separate_batches_use_every_sample(name, m):
    X, y = samples(m)

    def learned(X, y):
        *_, last = lf.iterate(LEARNERS[name].make(init=START, step_size=0.05), data=lf.GivenSamples(X, y), n_rounds=3)
        state = last.before  # before the clients' own steps, which use all samples
        return state.shared if state.B is None else state.B

    plain = learned(X, y)
    for j in range(m):
        other, labels = X.copy(), y.copy()
        other[:, j] += 3.0
        labels[:, j] -= 3.0
        assert not np.array_equal(learned(other, labels), plain), j
