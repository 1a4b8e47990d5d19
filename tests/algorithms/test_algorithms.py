"""All algorithms: shared invariants, equality with plain loops, reductions, and the facts of the theory."""

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import linfed as lf
from linfed.algorithms.initial import as_initial
from linfed.algorithms.representation.fedrod import FedRoDState
from linfed.algorithms.representation.lgfedavg import LGFedAvgState
from linfed.data import sources
from linfed.data.explicit import ExplicitBatch
from linfed.numerics import linalg
from tests import references as ref
from tests.helpers import each
from tests.loops import assert_rounds_are_the_loop
from tests.worlds import LEARNERS, SHAPES, World, draw_participants, draw_world, names

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}

FEDREP = {
    "exact": {},
    "gradient, 1 step": {"heads": lf.GradientHeads(step_size=0.3)},
    "gradient, 10 steps": {"heads": lf.GradientHeads(steps=10, step_size=0.2)},
    "gradient, default step": {"heads": lf.GradientHeads(steps=2)},
    "exact, 3 local steps": {"representation_steps": 3},
    "gradient, 4 local steps": {"heads": lf.GradientHeads(steps=3), "representation_steps": 4},
    "unnormalised": {"orthonormalize": False},
    "gradient, unnormalised": {"orthonormalize": False, "heads": lf.GradientHeads()},
    "sum": {"aggregate": "sum"},
    "sum, 2 local steps": {"aggregate": "sum", "representation_steps": 2},
    "rotated": {"rotate_heads": True, "heads": lf.GradientHeads(steps=3)},
    "exact, rotated": {"rotate_heads": True},
    "ridge": {"heads": lf.ExactHeads(ridge=0.2)},
    "ridge, 2 local steps": {"heads": lf.ExactHeads(ridge=0.2), "representation_steps": 2},
}
LOCAL = {"local only": {}, "local only, ridge": {"ridge": 0.3}}
ONE_LAYER = {
    "FedAvg": {},
    "FedAvg, 3 local steps": {"local_steps": 3, "server_step_size": 0.7},
    "FedAvg, by samples": {"local_steps": 2, "weights": "samples"},
}
TWO_LAYERS = {
    "FedAvg, two layers": {},
    "FedAvg, two layers, 3 local steps, by samples": {
        "local_steps": 3,
        "weights": "samples",
        "server_step_size": 0.8,
    },
    "FedAvg + FT": {"fine_tune": lf.GradientHeads(steps=10)},
    "FedAvg + FT, 3 larger steps": {"fine_tune": lf.GradientHeads(steps=3, step_size=0.2)},
    "FedAvg + FT, ridge": {"fine_tune": lf.ExactHeads(ridge=0.2)},
    "FedAvg + exact FT": {"fine_tune": lf.ExactHeads(), "local_steps": 2},
}
FEDPER = {"FedPer": {}, "FedPer, 3 local steps": {"local_steps": 3, "server_step_size": 0.8}}
LGFEDAVG = {"LG-FedAvg": {}, "LG-FedAvg, 3 local steps": {"local_steps": 3, "server_step_size": 0.8}}
FEDROD = {
    "FedRoD": {"personal": lf.GradientHeads()},
    "FedRoD, gradient, 3 local steps": {
        "personal": lf.GradientHeads(steps=3, step_size=0.2), "local_steps": 3, "server_step_size": 0.8,
    },
    "FedRoD, exact, by samples": {"personal": lf.ExactHeads(), "weights": "samples", "local_steps": 2},
    "FedRoD, ridge": {"personal": lf.ExactHeads(ridge=0.2)},
    "FedRoD + FT": {"personal": lf.GradientHeads(), "fine_tune": lf.GradientHeads(steps=5)},
    "FedRoD + exact FT": {"personal": lf.ExactHeads(ridge=0.2), "fine_tune": lf.ExactHeads()},
}  # fmt: skip
ANIL = {"ANIL": {"adaptation_step_size": 0.2}, "ANIL, Hessian": {"adaptation_step_size": 0.1, "hessian": True}}
MAML = {"MAML": {"adaptation_step_size": 0.05}, "MAML, Hessian": {"adaptation_step_size": 0.05, "hessian": True}}
POOLED = {"pooled": {}, "pooled, by samples": {"weights": "samples"}}
ORACLE = {"oracle": {}, "oracle, ridge": {"ridge": 0.3}}
FLUTE = {
    "FLUTE": {},
    "FLUTE, other weights": {"gamma1": 0.1, "gamma2": 0.2, "server_step_size": 0.02, "gradient_factor": 2},
}
SHORTCUT = {
    "shortcut": {"solver": lf.GradientSteps(head_steps=2, shortcut_steps=2), "representation_steps": 2},
    "shortcut, gauss-seidel, mixing": {"solver": lf.GradientSteps(order="gauss-seidel"), "mixing": 0.4, "ridge": 0.2},
    "shortcut, closed form": {"solver": lf.ClosedForm()},
    "shortcut, closed form, ridge": {"solver": lf.ClosedForm(order="gauss-seidel"), "ridge": 0.3},
    "shortcut, joint": {"solver": lf.ClosedForm(order="joint"), "ridge": 0.3},
}
PERSONALISED = {"personalised": ("exact", 0.3), "personalised FedAvg + FT": ("FedAvg + FT", 0.1)}
OWN_HEADS = [*FEDREP, *FEDPER, *ORACLE]
LOOPED = [*OWN_HEADS, *LOCAL, *ONE_LAYER, *TWO_LAYERS, *POOLED, *PERSONALISED, *LGFEDAVG, *FEDROD, *ANIL, *MAML]
ALL = [*LOOPED, *FLUTE, *SHORTCUT]  # the loops of the last two are in test_flute.py and test_shortcut.py
RATE = 0.1
KINDS = (
    *((lf.FedRep, FEDREP), (lf.FedAvg, TWO_LAYERS), (lf.FedPer, FEDPER)),
    *((lf.LGFedAvg, LGFEDAVG), (lf.FedRoD, FEDROD), (lf.ANIL, ANIL), (lf.MAML, MAML)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromHeadsOfZero(lf.FLUTE):
    """FLUTE from a representation like the others', and heads of zero."""

    begin: object = "random"

    def initial_state(self, start):
        B = start.representation(as_initial(self.begin), self.rank)
        return lf.State(B=B, W=np.zeros((start.trials, start.n_clients, self.rank)))


def make(name, *, rank, init="random", step_size=RATE):
    if name in LOCAL:
        return lf.LocalOnly(**LOCAL[name])
    if name in POOLED:
        return lf.PooledLeastSquares(**POOLED[name])
    if name in ORACLE:
        return lf.Oracle(rank=rank, **ORACLE[name])
    if name in ONE_LAYER:
        return lf.FedAvg(step_size=step_size, **ONE_LAYER[name])
    if name in SHORTCUT:
        return lf.FedRepShortcut(rank=rank, step_size=step_size / 4, init=init, **SHORTCUT[name])
    if name in PERSONALISED:
        base, ridge = PERSONALISED[name]
        return lf.Personalized(base=make(base, rank=rank, init=init, step_size=step_size), ridge=ridge)
    if name in FLUTE:
        return FromHeadsOfZero(rank=rank, step_size=step_size / 5, begin=init, **FLUTE[name])
    kind, options = next((kind, table[name]) for kind, table in KINDS if name in table)
    return kind(rank=rank, step_size=step_size, init=init, **options)


def loop(name, world, participants):
    """Return the states of a run of the loops, the initial one first, each as its arrays by name."""
    X, y = world.X, world.y
    if name in LOCAL:
        return [{"S": S} for S in ref.local_only(X, y, participants, **LOCAL[name])]
    if name in POOLED:
        return [{"S": theta[None]} for theta in ref.pooled(X, y, participants, **POOLED[name])]
    if name in ONE_LAYER:
        return [{"S": theta[None]} for theta in ref.fedavg(X, y, participants, step_size=RATE, **ONE_LAYER[name])]
    if name in PERSONALISED:
        base, ridge = PERSONALISED[name]
        states = loop(base, world, participants)
        W, S = ref.personalised(X, y, states[-1]["B"], ridge)
        ended = states[: len(participants) + 1]  # what the base does at the end is part of the one last round
        return [*ended, {"B": states[-1]["B"], "W": W, "S": S}]
    if name in LGFEDAVG:
        pairs = ref.lgfedavg(X, y, participants, world.B, step_size=RATE, **LGFEDAVG[name])
        return [{"own": own, "W": w[None]} for own, w in pairs]
    if name in FEDROD:
        triples = ref.fedrod(X, y, participants, world.B, step_size=RATE, **FEDROD[name])
        return [{"B": B, "W": w[None], "V": V} for B, w, V in triples]
    if name in (META := ANIL | MAML):
        adapts = "head" if name in ANIL else "both"
        return ref.meta_learner(X, y, participants, world.B, adapts=adapts, step_size=RATE, **META[name])
    if name in ORACLE:
        pairs = ref.oracle(X, y, participants, ref.qr_positive(world.B_star)[0], **ORACLE[name])
    elif name in TWO_LAYERS:
        pairs = ref.fedavg(X, y, participants, world.B, step_size=RATE, **TWO_LAYERS[name])
    else:
        run, options = (ref.fedper, FEDPER) if name in FEDPER else (ref.fedrep, FEDREP)
        pairs = run(X, y, participants, world.B, step_size=RATE, **options[name])
    return [{"B": B, "W": W} for B, W in pairs]


def dense(arrays, n):
    """Return the predictors (n, d) of one trial's arrays; one row serves all clients."""
    if "own" in arrays:
        return np.array([B_i @ arrays["W"][0] for B_i in arrays["own"]])
    Theta = ((arrays["W"] + arrays.get("V", 0.0)) @ arrays["B"].T if "B" in arrays else 0.0) + arrays.get("S", 0.0)
    return np.broadcast_to(Theta, (n, Theta.shape[1]))


def arrays_equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


class Recorded(lf.FedRep):
    """FedRep that keeps a copy of each round's data, and the states that it was given."""

    log: list

    def step(self, state, batch, rng):
        kept = {name: array.copy() for name, array in state.arrays().items()}
        new = super().step(state, batch, rng)
        self.log.append((batch.X.copy(), batch.y.copy(), batch.active.copy(), state, kept))
        return new


def recorded(name, **arguments):
    algorithm = Recorded(**FEDREP[name], **arguments)
    object.__setattr__(algorithm, "log", [])
    return algorithm


# --- invariants ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the 2 trials are identical")
@each("name", ALL)
def test_input_arrays_are_unchanged(name):
    world = draw_world([6] * 5, 7, 2, noise=0.1)
    given = {
        "X": np.array(world.X),
        "y": np.array(world.y),
        "B": world.B.copy(),
        "B_star": world.B_star.copy(),
        "W_star": world.W_star.copy(),
        "participants": draw_participants(5, 3, 4),
    }
    before = {key: array.copy() for key, array in given.items()}
    data, problem = lf.GivenSamples(given["X"], given["y"]), lf.GivenTruth(B=given["B_star"], W=given["W_star"])
    algorithm = make(name, rank=2, init=given["B"])
    result = lf.simulate(algorithm, problem, data=data, rounds=4, participation=given["participants"], trials=2)
    assert arrays_equal(given, before)
    assert all(array.flags.writeable for array in given.values())
    assert np.array_equal(data.X, before["X"])
    assert np.array_equal(data.y, before["y"])
    for array in result.final.arrays().values():
        if array.flags.writeable:  # exact heads are not
            array[...] = 0.0  # the result is its owner's: writing into it reaches nothing that was given
    assert arrays_equal(given, before)
    assert np.array_equal(data.X, before["X"])


@each("p", [2, 4])
@each("name", ALL)
def test_a_step_writes_into_neither_state_nor_batch(name, p):
    world = draw_world([6] * 4, 5, 2, noise=0.1)
    rng = np.random.default_rng(1)
    active = np.array([[1, 3]]) if p == 2 else np.arange(4)[None]
    X, y = np.array(world.X)[active], np.array(world.y)[active]
    heads = 4 if name in [*OWN_HEADS, *LOCAL, *FLUTE, "personalised"] else 1
    if name in [*OWN_HEADS, *TWO_LAYERS, *FLUTE, *PERSONALISED]:
        state = lf.State(B=world.B[None].copy(), W=rng.standard_normal((1, heads, 2)))
    elif name in SHORTCUT:
        state = lf.State(B=world.B[None].copy(), W=rng.standard_normal((1, 4, 2)), S=rng.standard_normal((1, 4, 5)))
    elif name in LGFEDAVG:
        state = LGFedAvgState(own=rng.standard_normal((1, 4, 5, 2)), W=rng.standard_normal((1, 1, 2)))
    elif name in FEDROD:
        W, V = rng.standard_normal((1, 1, 2)), rng.standard_normal((1, 4, 2))
        state = FedRoDState(B=world.B[None].copy(), W=W, V=V)
    elif name in ANIL or name in MAML:
        W = rng.standard_normal((1, 1, 2))
        state = lf.State(B=world.B[None].copy(), W=W, shared=W, S=np.zeros((1, 1, 5)) if name in MAML else None)
    else:
        state = lf.State(S=rng.standard_normal((1, heads, 5)))
    algorithm, batch = make(name, rank=2), ExplicitBatch(X, y, active=active)
    for array in (X, y, active, *state.arrays().values()):
        array.setflags(write=False)  # then any write raises
    new = algorithm.step(state, batch, None)
    for key, array in new.arrays().items():
        assert (key == "B" and name in ORACLE) or not np.shares_memory(array, state.arrays()[key])
    if algorithm.finishes:
        for array in new.arrays().values():
            array.setflags(write=False)
        fitted = "V" if name in FEDROD else "W"
        assert not np.shares_memory(algorithm.finish(new, batch, None).array(fitted), new.array(fitted))


@each("name", FEDREP)
@each("data", [lf.FreshSamples(5), lf.FixedSamples(5)], ids=repr)
def test_earlier_states_survive_a_run(name, data):
    algorithm = recorded(name, rank=2, step_size=0.1, init="random")
    problem = lf.SharedRepresentation(n_clients=6, dim=8, rank=2, noise_std=0.1)
    lf.simulate(algorithm, problem, data=data, rounds=5, participation=3, trials=2)
    assert len(algorithm.log) == 5
    for *_, state, kept in algorithm.log:
        assert arrays_equal(state.arrays(), kept)


@each("data", [lf.FreshSamples(5), lf.FixedSamples(5)], ids=repr)
@each("name", ALL)
def test_same_seed_same_bits(name, data):
    problem = lf.SharedRepresentation(n_clients=6, dim=8, rank=2, noise_std=0.1)
    one, two, other = (
        lf.simulate(
            make(name, rank=2, init="moments"), problem, data=data, rounds=5, participation=0.5, trials=3, seed=seed
        )
        for seed in (7, 7, 8)
    )
    assert arrays_equal(one.final.arrays(), two.final.arrays())
    assert arrays_equal(dict(one.metrics), dict(two.metrics))
    for key, array in one.final.arrays().items():
        assert not np.array_equal(array, other.final.arrays()[key])


@pytest.mark.parametrize(
    "name", [*OWN_HEADS, *LOCAL, *FLUTE, *LGFEDAVG, *(name for name in FEDROD if "FT" not in name)]
)
def test_inactive_clients_keep_theirs(name):
    world = draw_world([6] * 5, 7, 2, noise=0.1)
    participants = np.array([[0, 1, 2], [1, 2, 3], [0, 2, 4]])  # a newcomer in each round
    algorithm, data = make(name, rank=2, init=world.B), world.data()
    states = [
        lf.simulate(algorithm, world.problem(), data=data, rounds=rounds, participation=participants[:rounds]).final
        for rounds in range(1, 4)
    ]
    for active, old, new in zip(participants[1:], states, states[1:], strict=False):
        away = np.setdiff1d(np.arange(5), active)
        kept = next((array for kinds, array in ((LOCAL, "S"), (LGFEDAVG, "own"), (FEDROD, "V")) if name in kinds), "W")
        before, after = old.array(kept), new.array(kept)
        assert not np.array_equal(before[0, active], after[0, active])
        wanted = before[0, away]
        if "rotated" in name:  # everybody's coordinates are those of the new basis
            options = {**FEDREP[name], "rotate_heads": False, "orthonormalize": False}
            chosen = [world.X[i] for i in active], [world.y[i] for i in active]
            moved, _ = ref.fedrep_round(old.B[0], old.W[0], *chosen, active, step_size=0.1, **options)
            np.testing.assert_allclose(after[0, away], wanted @ ref.qr_positive(moved)[1].T, **TOLERANCE)
        else:
            assert np.array_equal(after[0, away], wanted)


EQUIVARIANT = {"all": 5, "some": 3}


@pytest.mark.long
@each("p", EQUIVARIANT.values(), ids=EQUIVARIANT)
@each("counts", [[6] * 5, [1, 9, 4, 2, 6]], ids=["equal", "unequal"])
@each("name", ALL)
def test_equivariance_to_client_permutation(name, counts, p):
    world = draw_world(counts, 7, 2, noise=0.1)
    participants = draw_participants(5, p, 6)
    order = np.array([3, 0, 4, 1, 2])
    place = np.argsort(order)  # client i becomes client place[i]
    moved = World([world.X[i] for i in order], [world.y[i] for i in order], world.B_star, world.W_star[order], world.B)
    algorithm = make(name, rank=2, init=world.B)
    one = lf.simulate(algorithm, world.problem(), data=world.data(), rounds=6, participation=participants)
    two = lf.simulate(algorithm, moved.problem(), data=moved.data(), rounds=6, participation=place[participants])
    for key, array in one.final.arrays().items():
        wanted = array if key == "B" or array.shape[1] == 1 else array[:, order]
        np.testing.assert_allclose(two.final.arrays()[key], wanted, **TOLERANCE)
    for key, values in one.metrics.items():
        np.testing.assert_allclose(two.metrics[key], values, **TOLERANCE)


@each("name", ALL)
def test_equivariance_to_rotation(name):
    world = draw_world([1, 9, 4, 2, 6], 7, 2, noise=0.1)
    participants = draw_participants(5, 3, 6)
    Q = scipy.stats.ortho_group(7, seed=np.random.default_rng(1)).rvs()
    turned = World([X_i @ Q.T for X_i in world.X], world.y, Q @ world.B_star, world.W_star, Q @ world.B)
    one, two = (
        lf.simulate(
            make(name, rank=2, init=each.B), each.problem(), data=each.data(), rounds=6, participation=participants
        )
        for each in (world, turned)
    )
    expected = {
        key: {"B": lambda B: Q @ B, "own": lambda own: Q @ own, "S": lambda S: S @ Q.T}.get(key, np.array)(array)
        for key, array in one.final.arrays().items()
    }
    for key, array in expected.items():
        np.testing.assert_allclose(two.final.arrays()[key], array, **TOLERANCE)
    for key, values in one.metrics.items():
        np.testing.assert_allclose(two.metrics[key], values, **TOLERANCE)


@each("m", [2, 3, 9])
@each("name", [*OWN_HEADS, *LOCAL])
def test_the_noiseless_truth_is_a_fixed_point(name, m):
    d, k, n = 5, 2, 4
    world = draw_world([m] * n, d, k)
    B_star = ref.qr_positive(world.B_star)[0]
    X = np.array(world.X)
    y = X @ B_star[None] @ world.W_star[..., None]
    active = np.array([[0, 2, 3]])
    batch = ExplicitBatch(X[active], y[active][..., 0], active=active)
    truth = world.W_star @ B_star.T
    state = lf.State(S=truth[None]) if name in LOCAL else lf.State(B=B_star[None], W=world.W_star[None])
    for _ in range(3):
        state = make(name, rank=k, step_size=0.3).step(state, batch, None)
    # A ridge shrinks what it fits, and fewer samples than unknowns do not determine it.
    unbiased = "ridge" not in name and (m >= d or name not in LOCAL)
    error = np.abs(state.predictors()[0] - truth).max()
    assert error < 1e-12 if unbiased else error > 1e-3
    if unbiased and name in OWN_HEADS:
        np.testing.assert_allclose(state.B[0], B_star, atol=1e-12)
        np.testing.assert_allclose(state.W[0], world.W_star, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in FEDREP if "gradient" not in name and "ridge" not in name])
def test_a_run_from_the_true_subspace_stays_there(name):
    problem = lf.SharedRepresentation(n_clients=6, dim=9, rank=2)
    algorithm = make(name, rank=2, init=lf.AtDistance(0.0))
    if name == "rotated":
        algorithm = dataclasses.replace(algorithm, heads=lf.ExactHeads())
    result = lf.simulate(algorithm, problem, data=lf.FreshSamples(5), rounds=20, participation=0.5, trials=3)
    assert result.metrics["subspace_distance"].max() < 1e-13


# --- the table of learners -----------------------------------------------------------------------------------


def test_every_algorithm_is_a_learner():
    assert {one.kind for one in LEARNERS.values()} == {*lf.ALGORITHMS.values()}
    assert {*names()} | {*names("classification")} == {*LEARNERS}
    assert all(name.startswith(one.kind.__name__) for name, one in LEARNERS.items())


@pytest.mark.parametrize("name", names(loop=True))
def test_every_round_is_that_of_the_loop(name):
    learner, compared = LEARNERS[name], 0
    for shape in ("some take part", "one takes part", "n == k == d == m", "unequal", "m < k", "k == 1"):
        counts, d, k, p = SHAPES[shape]
        world = draw_world([max(m, learner.least) for m in counts], d, k, noise=0.3, seed=1)
        run = {"data": world.data(), "rounds": 4, "participation": draw_participants(world.n, p, 4)}
        compared += assert_rounds_are_the_loop(
            learner, world.problem(noise_std=0.3), rank=k, init=world.B, worlds=[world], **run
        )
    assert compared >= (10 if learner.kind is lf.AltMin else 24)


# --- equality with the loops ---------------------------------------------------------------------------------

ROUNDS = 12


@each("shape", SHAPES)
@each("name", LOOPED)
def test_runs_equal_the_loops(name, shape):
    counts, d, k, p = SHAPES[shape]
    world = draw_world(counts, d, k, noise=0.3, seed=1)
    participants = draw_participants(world.n, p, ROUNDS)
    algorithm = make(name, rank=k, init=world.B)
    result = lf.simulate(
        algorithm,
        world.problem(noise_std=0.3),
        data=world.data() if len(set(counts)) > 1 else lf.GivenSamples(np.array(world.X), np.array(world.y)),
        rounds=ROUNDS,
        participation=participants,
    )
    few = max(counts) <= k < d  # then B cannot move where heads are exact
    assert result.status[0] in {lf.Status.COMPLETED, lf.Status.STALLED if few else lf.Status.COMPLETED}
    states = loop(name, world, participants)
    assert result.rounds.tolist() == list(range(len(states)))
    assert result.final.arrays().keys() == states[-1].keys()
    for key, array in states[-1].items():
        np.testing.assert_allclose(result.final.arrays()[key][0], array, **TOLERANCE)
    if "B" in states[-1]:
        distances = [ref.subspace_distance(world.B_star, state["B"]) for state in states]
        np.testing.assert_allclose(result.metrics["subspace_distance"][0], distances, **TOLERANCE)
    measures = {
        "parameter_error": ref.parameter_error,
        "mean_client_error": ref.mean_client_error,
        "risk": lambda Theta, Phi: ref.risk(Theta, Phi, np.eye(d), 0.3),
    }
    for key, measure in measures.items():
        values = [measure(dense(state, world.n), world.Phi) for state in states]
        np.testing.assert_allclose(result.metrics[key][0], values, **TOLERANCE)
    predictors = np.broadcast_to(result.final.predictors()[0], (world.n, d))
    np.testing.assert_allclose(predictors, dense(states[-1], world.n), **TOLERANCE)


@pytest.mark.long
@each("p", [2, 5])
@each("name", LOOPED)
def test_every_array_may_have_trials(name, p):
    worlds = [draw_world([6] * 5, 7, 2, noise=0.2, seed=seed) for seed in range(3)]
    participants = np.array([draw_participants(5, p, ROUNDS, seed) for seed in range(3)])
    data = lf.GivenSamples(np.array([world.X for world in worlds]), np.array([world.y for world in worlds]))
    problem = lf.GivenTruth(
        B=np.array([world.B_star for world in worlds]), W=np.array([world.W_star for world in worlds])
    )
    algorithm = make(name, rank=2, init=np.array([world.B for world in worlds]))
    result = lf.simulate(algorithm, problem, data=data, rounds=ROUNDS, participation=participants)
    for t, world in enumerate(worlds):
        wanted = loop(name, world, participants[t])[-1]
        for key, array in wanted.items():
            np.testing.assert_allclose(result.final.arrays()[key][t], array, **TOLERANCE)
        if "B" in wanted:
            distance = ref.subspace_distance(world.B_star, wanted["B"])
            np.testing.assert_allclose(result.metrics["subspace_distance"][t, -1], distance, **TOLERANCE)
        error = ref.parameter_error(dense(wanted, world.n), world.Phi)
        np.testing.assert_allclose(result.metrics["parameter_error"][t, -1], error, **TOLERANCE)


@pytest.mark.parametrize("rows", ["drawn ahead", "drawn when read"])
@pytest.mark.parametrize("data", [lf.FreshSamples(6), lf.FixedSamples(6)], ids=repr)
@pytest.mark.parametrize("name", FEDREP)
def test_drawn_data_replayed_through_the_loops(name, data, rows, monkeypatch):
    if rows == "drawn when read":
        monkeypatch.setattr(sources, "CACHE_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", 2 * 6 * 7)
    trials, n, d, k = 2, 5, 7, 2
    truth = [draw_world([1] * n, d, k, seed=seed) for seed in range(trials)]
    problem = lf.GivenTruth(B=np.array([w.B_star for w in truth]), W=np.array([w.W_star for w in truth]))
    algorithm = recorded(name, rank=k, step_size=0.1, init=np.array([w.B for w in truth]))
    result = lf.simulate(algorithm, problem, data=data, rounds=ROUNDS, participation=3)
    assert len(algorithm.log) == ROUNDS
    for t in range(trials):
        B, W = truth[t].B, np.zeros((n, k))
        for X, y, active, *_ in algorithm.log:
            assert np.allclose(y[t], np.vecdot(X[t], truth[t].Phi[active[t], None]), **TOLERANCE)
            B, W = ref.fedrep_round(B, W, X[t], y[t], active[t], step_size=0.1, **FEDREP[name])
        np.testing.assert_allclose(result.final.B[t], B, **TOLERANCE)
        np.testing.assert_allclose(result.final.W[t], W, **TOLERANCE)
    first, second = algorithm.log[0], algorithm.log[1]
    assert isinstance(data, lf.FixedSamples) or not np.isin(first[0], second[0]).any()


@pytest.mark.parametrize("limit", [None, 1], ids=["one block", "client by client"])
@pytest.mark.parametrize("clients", [None, 4])
@pytest.mark.parametrize("counts", [[9] * 6, [3, 12, 5, 9, 4, 7]], ids=["equal", "unequal"])
def test_moments_init(counts, clients, limit, monkeypatch):
    if limit:
        monkeypatch.setattr(sources, "CACHE_VALUES", limit)
    world = draw_world(counts, 6, 2, noise=0.1)
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=lf.Moments(clients=clients))
    B = lf.simulate(algorithm, data=world.data(), rounds=0).final.B[0]
    np.testing.assert_allclose(B.T @ B, np.eye(2), atol=1e-12)
    assert ref.subspace_distance(ref.moments(world.X[:clients], world.y[:clients], 2), B) < 1e-10
    others = ref.moments(world.X[:3], world.y[:3], 2)
    assert ref.subspace_distance(others, B) > 1e-3


# --- metrics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1e-9, 1e-4, 0.3, 1.0])
def test_a_distance_has_its_relative_accuracy(delta):
    E = np.eye(9)
    B = np.sqrt(1 - delta**2) * E[:, :3] + delta * E[:, 3:6] * [1.0, 0.5, 1.0]
    B[:, 1] = np.sqrt(1 - delta**2 / 4) * E[:, 1] + delta / 2 * E[:, 4]
    problem = lf.GivenTruth(B=E[:, :3], W=np.ones((2, 3)))
    result = lf.simulate(lf.FedRep(rank=3, step_size=0.1, init=B), problem, data=lf.FreshSamples(4), rounds=0)
    np.testing.assert_allclose(result.metrics["subspace_distance"], delta, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("stretch", [1.0, 1 + 4e-14, 1 + 1e-9, 3.0])
def test_a_nearly_orthonormal_basis_costs_no_accuracy(stretch, rank):
    E = np.eye(9)
    init = stretch * np.hstack([E[:, :3] + 1e-14 * E[:, 3:6], E[:, 6:]])[:, :rank]
    problem = lf.GivenTruth(B=E[:, :3] * stretch, W=np.ones((2, 3)))
    result = lf.simulate(lf.FedRep(rank=rank, step_size=0.1, init=init), problem, data=lf.FreshSamples(4), rounds=0)
    np.testing.assert_allclose(result.metrics["subspace_distance"], 1e-14, rtol=0, atol=1e-15)


@pytest.mark.long
def test_distance_falls_to_rounding_in_a_noiseless_run():
    world, rounds, accuracy = draw_world([12] * 8, 6, 2, seed=2), 250, 3e-15
    result = lf.simulate(
        lf.FedRep(rank=2, step_size=0.3, init=world.B), world.problem(), data=world.data(), rounds=rounds
    )
    states = ref.fedrep(world.X, world.y, [range(8)] * rounds, world.B, step_size=0.3)
    wanted = np.array([ref.subspace_distance(world.B_star, B) for B, _ in states])
    got = result.metrics["subspace_distance"][0]
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=accuracy)
    assert ((got < 1e-12) & (got > 10 * accuracy)).sum() >= 10
    falling = got[(got < 1e-2) & (got > 10 * accuracy)]
    assert (np.diff(falling) < 0).all()
    np.testing.assert_allclose(falling[1:] / falling[:-1], 0.853, atol=0.1)  # one rate all the way down
    assert got[-1] < accuracy


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@each("parts", ["BW", "B not orthonormal", "BW+S", "Phi", "Phi, B"])
def test_metrics_of_any_truth_equal_the_dense_ones(parts, rank):
    n, d, r, noise = 5, 8, 3, 0.4
    rng = np.random.default_rng(2)
    world = draw_world([6] * n, d, r)
    B, W, S = world.B_star, world.W_star, rng.standard_normal((n, d))
    if parts == "B not orthonormal":
        B = B @ rng.standard_normal((r, r))
    root = rng.standard_normal((d, d))
    covariance = root @ root.T / d
    arrays, Phi = {
        "BW": ({"B": B, "W": W}, W @ B.T),
        "B not orthonormal": ({"B": B, "W": W}, W @ B.T),
        "BW+S": ({"B": B, "W": W, "S": S}, W @ B.T + S),
        "Phi": ({"Phi": S}, S),
        "Phi, B": ({"Phi": S, "B": B}, S),
    }[parts]
    problem = lf.GivenTruth(**arrays, noise_std=noise, design=lf.Gaussian(covariance=covariance))
    init = rng.standard_normal((d, rank))
    for algorithm in (lf.FedRep(rank=rank, step_size=0.05, init=init, orthonormalize=False), lf.LocalOnly()):
        result = lf.simulate(algorithm, problem, data=world.data(), rounds=3, participation=[[0, 2], [1, 3], [2, 3]])
        Theta = result.final.predictors()[0]
        dense = {
            "parameter_error": ref.parameter_error(Theta, Phi),
            "mean_client_error": ref.mean_client_error(Theta, Phi),
            "risk": ref.risk(Theta, Phi, covariance, noise),
        }
        if isinstance(algorithm, lf.FedRep):
            # a truth of larger rank is held against the subspace of the learned rank and least risk
            best = {"Phi": Phi, "Phi, B": None}.get(parts, W @ B.T if rank < r else None)
            L = np.linalg.cholesky(covariance)
            reference = B if best is None else np.linalg.solve(L.T, ref.top_left_subspace(best @ L, rank))
            dense["subspace_distance"] = ref.subspace_distance(reference, result.final.B[0])
            if rank < r or parts not in ("BW", "B not orthonormal"):
                U = ref.top_left_subspace(Phi, rank)
                dense["mean_truncation_error"] = ref.mean_client_error(Theta, Phi @ U @ U.T)
        assert result.metrics.keys() == dense.keys()
        for key, value in dense.items():
            np.testing.assert_allclose(result.metrics[key][0, -1], value, **TOLERANCE)


# --- reductions ----------------------------------------------------------------------------------------------


def run(world, rounds=1, participation=1.0, **options):
    arguments = {"rank": world.B.shape[1], "step_size": 0.1, "init": world.B, **options}
    return lf.simulate(lf.FedRep(**arguments), data=world.data(), rounds=rounds, participation=participation).final


def assert_same_state(one, other, tolerance=TOLERANCE):
    for key, array in one.arrays().items():
        np.testing.assert_allclose(other.arrays()[key], array, **tolerance)


@pytest.mark.parametrize("counts", [[7] * 5, [2, 9, 4, 3, 7]], ids=["equal", "unequal"])
@pytest.mark.parametrize("heads", [lf.ExactHeads(), lf.GradientHeads(steps=3)], ids=["exact", "gradient"])
def test_one_local_step_is_algorithm_2(heads, counts):
    """Algorithm 1's server averages the B_i; Algorithm 2's takes one step along the averaged gradient."""
    world = draw_world(counts, 6, 2, noise=0.2)
    final = run(world, 20, heads=heads)
    B, W = world.B, np.zeros((5, 2))
    for _ in range(20):
        _, W = ref.fedrep_round(B, W, world.X, world.y, range(5), step_size=0.1, heads=heads)
        gradients = [np.outer(ref.gradient(X, y, B @ w), w) for X, y, w in zip(world.X, world.y, W, strict=True)]
        B = ref.qr_positive(B - 0.1 * np.mean(gradients, axis=0))[0]
    np.testing.assert_allclose(final.B[0], B, **TOLERANCE)
    np.testing.assert_allclose(final.W[0], W, **TOLERANCE)


@pytest.mark.parametrize("orthonormalize", [True, False])
@pytest.mark.parametrize("heads", [lf.ExactHeads(), lf.GradientHeads(step_size=0.2)], ids=["exact", "gradient"])
@pytest.mark.parametrize("p", [1, 3, 5])
def test_sum_with_a_share_of_the_step_is_the_mean(p, heads, orthonormalize):
    """Gradient heads have a step of their own: by default it would shrink with the step on B."""
    world = draw_world([7] * 5, 6, 2, noise=0.2)
    options = {"heads": heads, "orthonormalize": orthonormalize}
    participation = draw_participants(5, p, 20)
    mean = run(world, 20, participation, **options)
    assert_same_state(mean, run(world, 20, participation, aggregate="sum", step_size=0.1 / p, **options))


@pytest.mark.parametrize("orthonormalize", [True, False])
def test_many_gradient_steps_reach_the_exact_heads(orthonormalize):
    world = draw_world([12] * 5, 6, 2, noise=0.2)
    exact = run(world, 3, orthonormalize=orthonormalize)
    errors = []
    for steps in (5, 50, 500):
        state = run(world, 3, heads=lf.GradientHeads(steps=steps, step_size=0.3), orthonormalize=orthonormalize)
        errors.append(max(np.abs(state.B - exact.B).max(), np.abs(state.W - exact.W).max()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-10


@pytest.mark.parametrize("name", [name for name, options in FEDREP.items() if "orthonormalize" not in options])
def test_normalising_takes_the_q_factor_of_the_unnormalised_round(name):
    options = FEDREP[name]
    world = draw_world([7] * 5, 6, 2, noise=0.2)
    plain = {**options, "rotate_heads": False, "orthonormalize": False}
    one, other = run(world, **options), run(world, **plain)
    Q, R = ref.qr_positive(other.B[0])
    np.testing.assert_allclose(one.B[0], Q, **TOLERANCE)
    heads = other.W[0] @ R.T if options.get("rotate_heads") else other.W[0]
    np.testing.assert_allclose(one.W[0], heads, **TOLERANCE)


def test_normalising_changes_the_later_rounds():
    world = draw_world([7] * 5, 6, 2, noise=0.2)
    one, other = run(world, 2, step_size=0.5), run(world, 2, step_size=0.5, orthonormalize=False)
    assert ref.subspace_distance(one.B[0], other.B[0]) > 1e-4


@pytest.mark.parametrize("p", [5, 2], ids=["all", "some"])
def test_rotating_heads_keeps_predictors(p):
    world, participants = draw_world([7] * 5, 6, 2, noise=0.2), draw_participants(5, p, 3)
    options = {"heads": lf.GradientHeads(), "step_size": 0.4}
    before, after = (run(world, r, participants[:r], rotate_heads=True, **options) for r in (2, 3))
    active = participants[2]
    chosen = [world.X[i] for i in active], [world.y[i] for i in active]
    B, W = ref.fedrep_round(before.B[0], before.W[0], *chosen, active, orthonormalize=False, **options)
    np.testing.assert_allclose(after.predictors()[0], W @ B.T, **TOLERANCE)
    np.testing.assert_allclose(after.B[0].T @ after.B[0], np.eye(2), atol=1e-12)
    assert np.abs(B.T @ B - np.eye(2)).max() > 1e-3


def test_rotating_heads_matters_to_gradient_heads_only():
    world = draw_world([7] * 5, 6, 2, noise=0.2)
    for heads, same in ((lf.ExactHeads(), True), (lf.GradientHeads(), False)):
        one, other = (run(world, 10, heads=heads, step_size=0.4, rotate_heads=r) for r in (False, True))
        assert np.allclose(one.B, other.B, **TOLERANCE) is same


def test_a_huge_ridge_leaves_nothing():
    world = draw_world([7] * 5, 6, 2, noise=0.2)
    for ridge in (1e6, 1e12):
        S = lf.simulate(lf.LocalOnly(ridge=ridge), data=world.data(), rounds=1).final.S[0]
        moments = [X.T @ y / len(y) for X, y in zip(world.X, world.y, strict=True)]
        np.testing.assert_allclose(ridge * S, moments, rtol=1e-3 * 1e6 / ridge * 10 + 1e-6)
        state = run(world, heads=lf.ExactHeads(ridge=ridge))
        assert np.abs(state.W).max() < 100 / ridge
        np.testing.assert_allclose(state.B[0], ref.qr_positive(world.B)[0], atol=100 / ridge)


def test_a_vanishing_ridge_is_none():
    world = draw_world([7] * 5, 6, 2, noise=0.2)
    assert_same_state(run(world, 5), run(world, 5, heads=lf.ExactHeads(ridge=1e-13)))


def test_local_only_with_enough_noiseless_samples_is_the_truth():
    problem = lf.SharedRepresentation(n_clients=4, dim=5, rank=2)
    result = lf.simulate(lf.LocalOnly(), problem, data=lf.FixedSamples(5), rounds=1)
    assert result.metrics["parameter_error"][0, -1] < 1e-10
    assert "subspace_distance" not in result.metrics


# --- facts of the theory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[7] * 5, [2, 9, 4, 3, 7]], ids=["equal", "unequal"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_heads_make_the_gradient_orthogonal_to_b(seed, counts):
    eta, world = 0.7, draw_world(counts, 6, 3, noise=0.5, seed=seed)
    world.B = ref.qr_positive(world.B)[0]

    def round_(**options):
        moved = run(world, step_size=eta, orthonormalize=False, **options).B[0]
        return moved, (world.B - moved) / eta

    moved, G = round_()
    assert np.abs(G).max() > 1e-2
    np.testing.assert_allclose(world.B.T @ G, 0, atol=1e-13)
    B = run(world, step_size=eta).B[0]
    R = B.T @ moved
    np.testing.assert_allclose(R, np.triu(R), atol=1e-13)
    assert (np.diag(R) > 0).all()
    np.testing.assert_allclose(R.T @ R, np.eye(3) + eta**2 * G.T @ G, rtol=1e-12, atol=1e-12)
    assert scipy.linalg.svdvals(np.linalg.inv(R))[0] <= 1 + 1e-13
    # Other heads do not solve the normal equations.
    for options in ({"heads": lf.GradientHeads()}, {"heads": lf.ExactHeads(ridge=0.2)}):
        assert np.abs(world.B.T @ round_(**options)[1]).max() > 1e-3


@pytest.mark.long
@each("options", [{}, {"aggregate": "sum"}, {"rotate_heads": True}, {"representation_steps": 3}])
@pytest.mark.parametrize("counts", [[1] * 5, [2] * 5, [3] * 5, [3, 1, 2, 3, 1]], ids=str)
def test_at_most_k_samples_freeze_b(counts, options):
    world = draw_world(counts, 6, 3, noise=0.5)
    options = {**options, "step_size": 5.0}
    participation = draw_participants(5, 3, 50)
    plain = {**options, "rotate_heads": False, "orthonormalize": False}
    unnormalised = run(world, 50, participation, **plain)
    assert np.array_equal(unnormalised.B[0], world.B)
    assert unnormalised.W.any()
    world.B = ref.qr_positive(world.B)[0]
    np.testing.assert_allclose(run(world, 50, participation, **options).B[0], world.B, rtol=0, atol=1e-14)


def test_one_client_with_more_than_k_samples_is_enough_to_move_b():
    world = draw_world([2, 3, 4, 1, 3], 6, 3, noise=0.5)
    assert np.abs(run(world, orthonormalize=False).B[0] - world.B).max() > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_one_step_mean(participation):
    """``E[B_bar] = B + eta c (I - BB')MB``, c = 1 - k/m, for any phi_i and with label noise.

    Judged by the largest t-statistic of the d k entries, Bonferroni-corrected: a right law fails for one seed in 1000.
    """
    n, d, k, m, eta, trials, failure_rate = 1200, 6, 2, 8, 0.5, 300, 1e-3
    rng = np.random.default_rng(5)
    # Few different clients, many times: M is then far from isotropic and the drift large.
    Phi = np.tile(rng.standard_normal((4, d)), (n // 4, 1))
    B = ref.qr_positive(rng.standard_normal((d, k)))[0]
    result = lf.simulate(
        lf.FedRep(rank=k, step_size=eta, init=B, orthonormalize=False),
        lf.GivenTruth(Phi=Phi, noise_std=0.5),
        data=lf.FreshSamples(m),
        rounds=1,
        trials=trials,
        participation=participation,
        seed=3,
        metrics=[],
    )
    drift = (np.eye(d) - B @ B.T) @ (Phi.T @ Phi / n) @ B

    def worst(c):
        difference = result.final.B - (B + eta * c * drift)
        return np.abs(difference.mean(axis=0) / (difference.std(axis=0, ddof=1) / np.sqrt(trials))).max()

    threshold = scipy.stats.t.isf(failure_rate / (2 * d * k), df=trials - 1)
    assert worst(1 - k / m) < threshold
    for wrong in (1.0, 1 - (k + 1) / m, 1 - (k - 1) / m):  # it tells the factor from its neighbours
        assert worst(wrong) > 1.5 * threshold


# --- what steps require of a batch ---------------------------------------------------------------------------

TWO = {"rank": 2, "step_size": 0.1}
OWN = {**TWO, "adaptation_step_size": 0.1}
EACH_COVARIANCE = lf.Gaussian(covariance=np.array([np.eye(3), 2.0 * np.eye(3)]))
REQUIRED = [
    ("GRADIENTS", lf.FLUTE, [TWO]),
    ("FEATURES", lf.FedRep, [TWO, {**TWO, "whiten": lf.Gaussian(covariance=2.0 * np.eye(3))}]),
    ("QUADRATIC", lf.FedRep, [{**TWO, "representation_steps": 2}, {**TWO, "whiten": "own"}]),
    ("QUADRATIC", lf.FedRep, [{**TWO, "whiten": "pooled"}, {**TWO, "whiten": EACH_COVARIANCE}]),
    ("ROWS", lf.FedRep, [{**TWO, "split": True}]),
    ("FEATURES", lf.PrivateFedRep, [TWO]),
    ("COORDINATES", lf.PrivateFedRep, [{**TWO, "message_noise_std": 0.1}]),
    ("QUADRATIC", lf.PrivateFedRep, [{**TWO, "clip": 1.0}, {**TWO, "clip": 1.0, "message_noise_std": 0.1}]),
    ("QUADRATIC", lf.CompressedFedRep, [{**TWO, "levels": 2}]),
    ("FEATURES", lf.GeneralFLUTE, [TWO]),
    ("ROWS", lf.GeneralFLUTE, [{**TWO, "local_steps": 2}, {**TWO, "head_steps": 1}]),
    ("QUADRATIC", lf.AltGDmin, [{"rank": 2}]),
    ("FEATURES", lf.AltGDmin, [TWO]),
    ("ROWS", lf.AltGDmin, [{**TWO, "split": True}]),
    ("QUADRATIC", lf.AltMin, [{"rank": 2}]),
    ("ROWS", lf.AltMin, [{"rank": 2, "split": True}]),
    ("FEATURES", lf.ANIL, [OWN]),
    ("QUADRATIC", lf.ANIL, [{**OWN, "hessian": True}]),
    ("ROWS", lf.ANIL, [{**OWN, "batches": "split"}, {**OWN, "hessian": True, "batches": "split"}]),
    ("QUADRATIC", lf.MAML, [OWN]),
    ("ROWS", lf.MAML, [{**OWN, "batches": "split"}]),
    ("QUADRATIC", lf.PerFedAvg, [{"step_size": 0.1, "adaptation_step_size": 0.1}]),
    ("ROWS", lf.PerFedAvg, [{"step_size": 0.1, "adaptation_step_size": 0.1, "batches": "split"}]),
    ("QUADRATIC", lf.FedAvg, [TWO]),
    ("ROWS", lf.FedAvg, [{**TWO, "local_epochs": 1, "batch_size": 2}]),
]


@each(("level", "kind", "settings"), REQUIRED)
def test_an_algorithm_requires_what_its_steps_use(level, kind, settings):
    for options in settings:
        assert kind(**options).requires is lf.Requires[level], options


def test_requirements_count_up_from_gradients_to_rows():
    assert list(lf.Requires) == list(range(5))
