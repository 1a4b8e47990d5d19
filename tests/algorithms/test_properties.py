"""Properties of every algorithm at random shapes, types and memory orders of its arrays, participants and seeds.

``python -m pytest tests/algorithms/test_properties.py --all --hypothesis-profile=thorough`` runs many more examples.
"""

from __future__ import annotations

import dataclasses
import functools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

import linfed as lf
from linfed.data import rows
from linfed.numerics import linalg
from linfed.numerics.threads import VARIABLE
from linfed.simulation import job as jobs
from tests import references as ref
from tests.helpers import assert_same
from tests.worlds import LEARNERS, MEMORY_ORDERS, names

pytestmark = pytest.mark.long


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


EIGENVECTORS = (
    *("MethodOfMoments", "UStatistic", "TwoReplica", "LocalGram", "LocalSpectral"),
    *("BurerMonteiro", "AltMin"),
)
"""Algorithms whose result is not unique, or ill-conditioned, at some of these sizes."""


def kinds(keeps=None):
    """Return the classes with a learner that has a symmetry."""
    found = dict.fromkeys(LEARNERS[name].kind.__name__ for name in names(keeps=keeps))
    return [kind for kind in found if kind not in EIGENVECTORS]


def drawn(data, kind, case, keeps=None):
    """Return a learner of a class that fits a case."""
    found = [LEARNERS[name] for name in names(keeps=keeps) if LEARNERS[name].kind.__name__ == kind]
    return data.draw(st.sampled_from(found))


def made(learner, case, B):
    """Return the algorithm of a learner, if it fits a case."""
    assume(learner.least <= min(case.counts) and learner.options.get("clusters", 1) <= case.n)
    return learner.make(case.rank, B, step_size=0.05)


def predictors(algorithm, X, y, active, *, n, truth, **options):
    """Return the clients' final predictors (n, d), or None if the run diverged."""
    run = {"n_rounds": len(active), "participation": np.array(active), "metrics": [], **options}
    result = lf.simulate(algorithm, lf.GivenTruth(B=truth[0], W=truth[1]), data=lf.GivenSamples(X, y), **run)
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


@pytest.mark.parametrize("kind", kinds("rotation"))
@given(data=st.data(), case=cases(), turn=st.integers(0, 10**6))
def test_an_orthogonal_change_of_basis_turns_the_predictors(kind, data, case, turn):
    assume(well_posed(case))
    learner = drawn(data, kind, case, "rotation")
    X, y, B, B_star, W, active = case.arrays
    Q = ref.qr_positive(np.random.default_rng(turn).standard_normal((case.dim, case.dim)))[0]
    one = predictors(made(learner, case, B), X, y, active, n=case.n, truth=(B_star, W))
    turned = [X_i @ Q.T for X_i in X], y, active
    two = predictors(made(learner, case, Q @ B), *turned, n=case.n, truth=(Q @ B_star, W))
    close(two, None if one is None else one @ Q.T)


@pytest.mark.parametrize("kind", kinds("clients"))
@given(data=st.data(), case=cases(), turn=st.integers(0, 10**6))
def test_a_permutation_of_the_clients_permutes_the_predictors(kind, data, case, turn):
    assume(well_posed(case))
    algorithm = made(drawn(data, kind, case, "clients"), case, case.arrays[2])
    X, y, _, B_star, W, active = case.arrays
    order = np.random.default_rng(turn).permutation(case.n)
    one = predictors(algorithm, X, y, active, n=case.n, truth=(B_star, W))
    moved = [X[i] for i in order], [y[i] for i in order], np.argsort(order)[active]
    two = predictors(algorithm, *moved, n=case.n, truth=(B_star, W[order]))
    close(two, None if one is None else one[order])


@pytest.mark.parametrize("kind", kinds("samples"))
@given(data=st.data(), case=cases())
def test_the_order_of_a_clients_samples_does_not_matter(kind, data, case):
    assume(well_posed(case))
    algorithm = made(drawn(data, kind, case, "samples"), case, case.arrays[2])
    X, y, _, *truth, active = case.arrays
    one = predictors(algorithm, X, y, active, n=case.n, truth=truth)
    turned = [X_i[::-1] for X_i in X], [y_i[::-1] for y_i in y], active
    close(predictors(algorithm, *turned, n=case.n, truth=truth), one)


@pytest.mark.parametrize("kind", kinds())
@given(data=st.data(), case=cases())
def test_engines_agree(kind, data, case):
    assume(well_posed(case))
    algorithm = made(drawn(data, kind, case), case, case.arrays[2])
    X, y, _, *truth, active = case.arrays
    run = {"n": case.n, "truth": truth}
    one = predictors(algorithm, X, y, active, engine="explicit", **run)
    least = case.dim / 2 if algorithm.requires == lf.Requires.GRADIENTS else case.dim
    if max(case.counts) > least and algorithm.requires != lf.Requires.ROWS:
        close(predictors(algorithm, X, y, active, engine="compressed", **run), one)
    else:
        with pytest.raises(lf.EngineError):
            predictors(algorithm, X, y, active, engine="compressed", **run)


@pytest.mark.parametrize("kind", kinds())
@given(data=st.data(), case=cases(), others=st.integers(1, 3))
def test_trials_are_independent_bit_for_bit(kind, data, case, others):
    algorithm = made(drawn(data, kind, case), case, case.arrays[2])
    X, y, _, B_star, W, active = case.arrays
    m = min(case.counts)
    X, y = np.array([X_i[:m] for X_i in X]), np.array([y_i[:m] for y_i in y])
    rng = np.random.default_rng(case.seed)
    stacked = np.concatenate([X[None], rng.standard_normal((others, *X.shape))])
    labels = np.concatenate([y[None], rng.standard_normal((others, *y.shape))])
    run = {"problem": lf.GivenTruth(B=B_star, W=W), "n_rounds": 3, "participation": active}
    alone = lf.simulate(algorithm, data=lf.GivenSamples(X, y), **run)
    together = lf.simulate(algorithm, data=lf.GivenSamples(stacked, labels), **run)
    assert_same(alone, together, second=slice(0, 1))


LAYOUTS = MEMORY_ORDERS | {
    "the other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "lists": np.ndarray.tolist,
}
DTYPES = {"float32": np.float32, "float64": np.float64, "int": np.int16, "longdouble": np.longdouble}


@pytest.mark.parametrize("kind", kinds())
@given(data=st.data(), case=cases(), layout=st.sampled_from(list(LAYOUTS)), dtype=st.sampled_from(list(DTYPES)))
def test_types_and_memory_orders_change_no_bit(kind, data, case, layout, dtype):
    learner = drawn(data, kind, case)
    X, y, B, B_star, W, active = case.arrays

    def rounded(array):
        return (4 * array).astype(DTYPES[dtype])

    def laid(array):
        return LAYOUTS[layout](rounded(array))

    X, y = [X_i / 4 for X_i in X], [y_i / 40 for y_i in y]
    plain = lf.GivenSamples([rounded(X_i).astype(float) for X_i in X], [rounded(y_i).astype(float) for y_i in y])
    given_ = lf.GivenSamples([laid(X_i) for X_i in X], [laid(y_i) for y_i in y])
    assert plain.X.tobytes() == given_.X.tobytes()
    assert plain.y.tobytes() == given_.y.tobytes()
    participants = LAYOUTS[layout](active.astype(np.int16))
    run = {"problem": lf.GivenTruth(B=B_star, W=W), "n_rounds": len(active)}
    wanted = lf.simulate(made(learner, case, B), data=plain, participation=active, **run)
    found = lf.simulate(made(learner, case, LAYOUTS[layout](B)), data=given_, participation=participants, **run)
    assert_same(found, wanted)


SCALED = {
    **dict.fromkeys(["LocalOnly", "LocalOnly, ridge", "PooledLeastSquares", "FedAvg", "FedProx", "SCAFFOLD"], 0),
    **dict.fromkeys(["FedVARP", "Ditto", "APFL", "PFedMe", "L2GD", "PerFedAvg", "ClusterFedVARP", "FedSCAVAR"], 0),
    **dict.fromkeys(["FedRep", "FedRep, ridge", "AltGDmin, given step size"], 2),
}
"""Algorithms that are equivariant to the scale c of all labels, with step sizes divided by this power of c."""


@pytest.mark.parametrize("name", SCALED)
@given(case=cases(), scale=st.sampled_from([2.0**-7, 0.3, 5.0, 2.0**9]))
def test_the_scale_of_the_labels_scales_the_predictors(name, case, scale):
    assume(well_posed(case))
    X, y, B, *truth, active = case.arrays
    one, run = made(LEARNERS[name], case, B), {"n": case.n, "truth": truth}
    two = dataclasses.replace(one, step_size=one.step_size / scale ** SCALED[name]) if SCALED[name] else one
    found = predictors(two, X, [scale * y_i for y_i in y], active, **run)
    wanted = predictors(one, X, y, active, **run)
    close(None if found is None else found / scale, wanted)


@pytest.mark.parametrize("name", ["LocalOnly", "PooledLeastSquares", "FedRep", "FedAvg", "SCAFFOLD", "FedVARP"])
@given(case=cases(), scale=st.sampled_from([2.0**-7, 0.3, 5.0, 2.0**9]))
def test_the_scale_of_x_divides_the_predictors(name, case, scale):
    """Of one layer, with step sizes divided by its square; exact heads leave the gradient of B as it is."""
    assume(well_posed(case))
    X, y, B, *truth, active = case.arrays
    one, run = made(LEARNERS[name], case, B), {"n": case.n, "truth": truth}
    steps = name in ("FedAvg", "SCAFFOLD", "FedVARP")
    two = dataclasses.replace(one, step_size=one.step_size / scale**2) if steps else one
    found = predictors(two, [scale * X_i for X_i in X], y, active, **run)
    close(None if found is None else found * scale, predictors(one, X, y, active, **run))


@pytest.mark.parametrize("kind", kinds())
@given(
    data=st.data(),
    case=cases(),
    trials=st.integers(2, 5),
    threads=st.sampled_from(["2", "3"]),
    fresh=st.booleans(),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 2**64) | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_threads_chunks_and_the_number_of_trials_change_no_bit(kind, data, case, trials, threads, fresh, share, seed):
    problem = lf.SharedRepresentation(n_clients=case.n, dim=case.dim, rank=case.rank, noise_std=case.noise)
    algorithm = made(drawn(data, kind, case), case, case.arrays[2])
    samples = lf.FreshSamples(case.counts[0]) if fresh else lf.FixedSamples(case.counts[0])
    run = {"data": samples, "n_rounds": 3, "participation": max(share, 1 / case.n), "seed": seed}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "THREAD_BYTES", 1.0)  # threads pay for the smallest run, and clients come in small blocks
        patch.setattr(jobs, "DRAWN_THREAD_BYTES", 1.0)
        patch.setattr(rows, "LARGE", 1)
        patch.setattr(rows, "FEW_CLIENTS", 1)
        patch.setattr(linalg, "CACHE_VALUES", 20)
        patch.setenv(VARIABLE, "1")
        together = lf.simulate(algorithm, problem, trials=trials, **run)
        patch.setenv(VARIABLE, threads)
        divided = lf.simulate(algorithm, problem, trials=trials, **run)
        first = lf.simulate(algorithm, problem, trials=1, **run)
    assert_same(divided, together)
    assert_same(first, together, second=slice(0, 1))
