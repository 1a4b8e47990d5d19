"""Properties of every algorithm at random shapes, and of tables, with pandas as the oracle."""

from __future__ import annotations

import dataclasses
import functools

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings

import linfed as lf
from tests import references as ref

pytestmark = pytest.mark.long

often = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes and samples of a run."""

    counts: tuple[int, ...]
    dim: int
    rank: int
    participants: int
    noise: float
    seed: int

    @property
    def n(self) -> int:
        return len(self.counts)

    @functools.cached_property
    def arrays(self):
        """Samples X, y of each client, initial B, true B and heads, and participants of three rounds."""
        rng = np.random.default_rng(self.seed)
        X = [rng.standard_normal((m, self.dim)) for m in self.counts]
        B, B_star = (ref.qr_positive(rng.standard_normal((self.dim, self.rank)))[0] for _ in range(2))
        W = rng.standard_normal((self.n, self.rank))
        y = [X_i @ B_star @ w + self.noise * rng.standard_normal(len(X_i)) for X_i, w in zip(X, W, strict=True)]
        active = np.array([rng.permutation(self.n)[: self.participants] for _ in range(3)])
        return X, y, B, B_star, W, active


@st.composite
def cases(draw, *, most_samples=9):
    dim = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(1, most_samples), min_size=1, max_size=6).map(tuple))
    return Case(
        counts=counts,
        dim=dim,
        rank=draw(st.integers(1, dim)),
        participants=draw(st.integers(1, len(counts))),
        noise=draw(st.sampled_from([0.0, 0.3, 10.0])),
        seed=draw(st.integers(0, 10**6)),
    )


STEP = {"step_size": 0.05}
LOCAL = STEP | {"local_steps": 2}
MADE = {
    "FedRep": lambda k, B: lf.FedRep(rank=k, init=B, **STEP),
    "FedRep, gradient heads": lambda k, B: lf.FedRep(rank=k, init=B, heads=lf.GradientHeads(steps=3), **STEP),
    "FedRep, ridge": lambda k, B: lf.FedRep(rank=k, init=B, heads=lf.ExactHeads(ridge=0.3), **STEP),
    "FedRepShortcut": lambda k, B: lf.FedRepShortcut(rank=k, init=B, ridge=0.3, **STEP),
    "FLUTE": None,  # its initial heads have a row per client
    "FedPer": lambda k, B: lf.FedPer(rank=k, init=B, **LOCAL),
    "FedBABU": lambda k, B: lf.FedBABU(rank=k, init=B, head=np.ones(k), **LOCAL),
    "LGFedAvg": lambda k, B: lf.LGFedAvg(rank=k, init=B, **LOCAL),
    "FedRoD": lambda k, B: lf.FedRoD(rank=k, init=B, **LOCAL),
    "FedAvg": lambda k, B: lf.FedAvg(**LOCAL),
    "FedAvg, two layers": lambda k, B: lf.FedAvg(rank=k, init=B, fine_tune=lf.GradientHeads(steps=2), **LOCAL),
    "FedAvg, all layers": lambda k, B: lf.FedAvg(rank=k, init=B, fine_tune=lf.AllLayers(steps=2), **LOCAL),
    "FedProx": lambda k, B: lf.FedProx(mu=0.5, **LOCAL),
    "SCAFFOLD": lambda k, B: lf.SCAFFOLD(**LOCAL),
    "FedVARP": lambda k, B: lf.FedVARP(**LOCAL),
    "Ditto": lambda k, B: lf.Ditto(strength=0.5, **LOCAL),
    "APFL": lambda k, B: lf.APFL(mix=0.3, **LOCAL),
    "PFedMe": lambda k, B: lf.PFedMe(strength=1.0, inner_steps=None, **LOCAL),
    "L2GD": lambda k, B: lf.L2GD(strength=0.5, coins=(True, False, True), **STEP),
    "PerFedAvg": lambda k, B: lf.PerFedAvg(adaptation_step_size=0.1, hessian=True, **LOCAL),
    "ANIL": lambda k, B: lf.ANIL(rank=k, init=B, adaptation_step_size=0.1, **STEP),
    "MAML": lambda k, B: lf.MAML(rank=k, init=B, adaptation_step_size=0.1, hessian=True, **STEP),
    "AltGDmin": lambda k, B: lf.AltGDmin(rank=k, init=B, **STEP),
    "LocalOnly": lambda k, B: lf.LocalOnly(),
    "LocalOnly, ridge": lambda k, B: lf.LocalOnly(ridge=0.3),
    "PooledLeastSquares": lambda k, B: lf.PooledLeastSquares(),
    "NuclearNorm": lambda k, B: lf.NuclearNorm(weight=0.3),
}


def made(name, case, B):
    """Return the algorithm for a case, and FLUTE's initial heads."""
    if name == "FLUTE":
        heads = np.random.default_rng(case.seed + 1).standard_normal((case.n, case.rank))
        return lf.FLUTE(rank=case.rank, init=(B, heads), step_size=0.01), heads
    return MADE[name](case.rank, B), None


def predictors(algorithm, X, y, active, *, n, **options):
    """Return the clients' final predictors (n, d), or None if the run diverged."""
    run = {"rounds": len(active), "participation": np.array(active), **options}
    result = lf.simulate(algorithm, data=lf.GivenSamples(X, y), **run)
    found = result.final.predictors()[0]
    return np.broadcast_to(found, (n, found.shape[-1])) if result.status[0].name == "COMPLETED" else None


def well_posed(case):
    """Return whether no client's least squares is nearly singular: there, rounding decides."""
    X, _, B, *_ = case.arrays
    values = [np.linalg.svd(part, compute_uv=False) for X_i in X for part in (X_i, X_i @ B)]
    return min(value[-1] / value[0] for value in values) > 1e-3


def close(found, wanted):
    assert (found is None) == (wanted is None)
    if found is not None:
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7 * scale)


@pytest.mark.parametrize("name", MADE)
@often
@given(case=cases(), turn=st.integers(0, 10**6))
def test_an_orthogonal_change_of_basis_turns_the_predictors(name, case, turn):
    assume(well_posed(case))
    X, y, B, _, _, active = case.arrays
    Q = ref.qr_positive(np.random.default_rng(turn).standard_normal((case.dim, case.dim)))[0]
    one = predictors(made(name, case, B)[0], X, y, active, n=case.n)
    two = predictors(made(name, case, Q @ B)[0], [X_i @ Q.T for X_i in X], y, active, n=case.n)
    close(two, None if one is None else one @ Q.T)


@pytest.mark.parametrize("name", MADE)
@often
@given(case=cases(), turn=st.integers(0, 10**6))
def test_a_permutation_of_the_clients_permutes_the_predictors(name, case, turn):
    assume(well_posed(case))
    X, y, B, _, _, active = case.arrays
    order = np.random.default_rng(turn).permutation(case.n)
    algorithm, heads = made(name, case, B)
    one = predictors(algorithm, X, y, active, n=case.n)
    if heads is not None:
        algorithm = dataclasses.replace(algorithm, init=(B, heads[order]))
    moved = [X[i] for i in order], [y[i] for i in order]
    two = predictors(algorithm, *moved, np.argsort(order)[active], n=case.n)
    close(two, None if one is None else one[order])


@pytest.mark.parametrize("name", MADE)
@often
@given(case=cases())
def test_the_order_of_a_clients_samples_does_not_matter(name, case):
    assume(well_posed(case))
    X, y, B, _, _, active = case.arrays
    algorithm = made(name, case, B)[0]
    one = predictors(algorithm, X, y, active, n=case.n)
    close(predictors(algorithm, [X_i[::-1] for X_i in X], [y_i[::-1] for y_i in y], active, n=case.n), one)


@pytest.mark.parametrize("name", MADE)
@often
@given(case=cases())
def test_engines_agree(name, case):
    assume(well_posed(case))
    X, y, B, _, _, active = case.arrays
    algorithm = made(name, case, B)[0]
    one = predictors(algorithm, X, y, active, n=case.n, engine="explicit")
    try:
        two = predictors(algorithm, X, y, active, n=case.n, engine="compressed")
    except lf.EngineError:
        return
    close(two, one)


@pytest.mark.parametrize("name", MADE)
@often
@given(case=cases(), others=st.integers(1, 3))
def test_trials_are_independent_bit_for_bit(name, case, others):
    X, y, B, _, _, active = case.arrays
    m = min(case.counts)
    X, y = np.array([X_i[:m] for X_i in X]), np.array([y_i[:m] for y_i in y])
    rng = np.random.default_rng(case.seed)
    stacked = np.concatenate([X[None], rng.standard_normal((others, *X.shape))])
    labels = np.concatenate([y[None], rng.standard_normal((others, *y.shape))])
    algorithm = made(name, case, B)[0]
    run = {"rounds": 3, "participation": active}
    alone = lf.simulate(algorithm, data=lf.GivenSamples(X, y), **run)
    together = lf.simulate(algorithm, data=lf.GivenSamples(stacked, labels), **run)
    for key, array in alone.final.arrays().items():
        np.testing.assert_array_equal(together.final.arrays()[key][:1], array)


@often
@given(case=cases(), order=st.sampled_from("CF"), dtype=st.sampled_from([np.float32, np.float64, np.int64]))
def test_dtype_and_memory_order_do_not_matter(case, order, dtype):
    X, y, B, _, _, active = case.arrays
    X = [np.round(4 * X_i) if dtype is np.int64 else X_i.astype(dtype) for X_i in X]
    wanted = predictors(
        lf.FedPer(rank=case.rank, init=B, **LOCAL), [X_i.astype(float) for X_i in X], y, active, n=case.n
    )
    laid = [np.asarray(X_i, dtype=dtype, order=order) for X_i in X]
    found = predictors(lf.FedPer(rank=case.rank, init=np.asarray(B, order=order), **LOCAL), laid, y, active, n=case.n)
    close(found, wanted)


@often
@given(case=cases())
def test_metrics_are_those_of_their_definitions(case):
    X, y, B, B_star, W, active = case.arrays
    problem = lf.GivenTruth(B=B_star, W=W, noise_std=case.noise)
    algorithm = lf.FedPer(rank=case.rank, init=B, **LOCAL)
    names = ["subspace_distance", "parameter_error", "risk", "train_loss"]
    run = {"rounds": 3, "participation": active, "metrics": names}
    result = lf.simulate(algorithm, problem, data=lf.GivenSamples(X, y), **run)
    final, phi = result.final, W @ B_star.T
    Theta = final.predictors()[0]
    for name, wanted in {
        "parameter_error": np.linalg.norm(Theta - phi),
        "risk": (np.linalg.norm(Theta - phi, axis=1) ** 2 + case.noise**2).mean() / 2,
        "train_loss": np.mean([np.mean((X_i @ t - y_i) ** 2) for X_i, y_i, t in zip(X, y, Theta, strict=True)]) / 2,
    }.items():
        np.testing.assert_allclose(result.metrics[name][0, -1], wanted, rtol=1e-9, atol=1e-12)
    Q = ref.qr_positive(final.B[0])[0]
    distance = np.linalg.norm((np.eye(case.dim) - Q @ Q.T) @ B_star, 2)
    np.testing.assert_allclose(result.metrics["subspace_distance"][0, -1], distance, rtol=1e-7, atol=1e-12)


# --- tables ------------------------------------------------------------------------------------------------------

rows = st.lists(
    st.fixed_dictionaries(
        {"n": st.integers(0, 3), "rule": st.sampled_from("abc"), "value": st.floats(-1e6, 1e6), "x": st.integers(0, 9)}
    ),
    min_size=1,
    max_size=12,
)


@often
@given(rows=rows, n=st.integers(0, 3), rule=st.sampled_from("abc"))
def test_tables_select_and_group_as_pandas_does(rows, n, rule):
    table, frame = lf.Table(rows), pd.DataFrame(rows)
    wanted = frame[(frame["n"] == n) & (frame["rule"] == rule)].to_dict("records")
    found = [row for row in rows if row["n"] == n and row["rule"] == rule]
    assert found == wanted
    if found:
        assert table.select(n=n, rule=rule).rows == wanted
    assert sorted(table.unique("n")) == sorted(frame["n"].unique())
    groups = {key: part.rows for key, part in table.groupby("n", "rule")}
    assert groups == {key: part.to_dict("records") for key, part in frame.groupby(["n", "rule"])}


@often
@given(rows=rows, trials=st.integers(1, 4), seed=st.integers(0, 99))
def test_saved_tables_come_back_as_they_were(tmp_path_factory, rows, trials, seed):
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("table") / "table.npz"
    rows = [row | {"error": rng.standard_normal(trials), "odd": np.nan} for row in rows]
    table = lf.Table(rows)
    table.save(path)
    loaded = lf.Table.load(path)
    assert loaded.columns == table.columns
    for one, two in zip(table.rows, loaded.rows, strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(two[name], value)
            assert type(two[name]) is type(value)
