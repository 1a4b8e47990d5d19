"""FedRep with shortcuts: the loops of the draft, what it reduces to, its truths, and why (2)-(5) cannot learn B."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.data.explicit import ExplicitBatch
from linfed.numerics.least_squares import joint_ridge, smallest_shortcut
from linfed.numerics.streams import Stream, generators
from tests import references as ref
from tests.helpers import basis, covering, each, normal, rounds_of

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
STEPS = lf.GradientSteps()
CLOSED = {"solver": lf.ClosedForm()}
SEIDEL = {"solver": lf.ClosedForm(order="gauss-seidel")}
JOINT = {"solver": lf.ClosedForm(order="joint")}


# --- the loops -----------------------------------------------------------------------------------------------


def initial(B, n):
    return B, np.zeros((n, B.shape[1])), np.zeros((n, B.shape[0]))


OPTIONS = {
    "gradient": {},
    "gradient, gauss-seidel": {"solver": lf.GradientSteps(order="gauss-seidel")},
    "gradient, several steps": {"solver": lf.GradientSteps(head_steps=3, shortcut_steps=2), "representation_steps": 3},
    "gradient, own step sizes": {
        "solver": lf.GradientSteps(head_step_size=0.07, shortcut_step_size=0.01),
        "representation_steps": 2,
    },
    "gradient, all of it": {
        "solver": lf.GradientSteps(
            head_steps=2, head_step_size=0.07, shortcut_steps=3, shortcut_step_size=0.01, order="gauss-seidel"
        ),
        "representation_steps": 2,
        "mixing": 0.3,
        "ridge": 0.8,
    },
    "gradient, mixing": {"mixing": 0.7, "solver": lf.GradientSteps(head_steps=2, shortcut_steps=2)},
    "gradient, ridge": {"ridge": 0.5, "solver": lf.GradientSteps(shortcut_steps=3)},
    "gradient, no shortcut steps": {"solver": lf.GradientSteps(shortcut_steps=0)},
    "closed form": CLOSED,
    "closed form, gauss-seidel": SEIDEL,
    "closed form, local steps": CLOSED | {"representation_steps": 3},
    "closed form, ridge": CLOSED | {"ridge": 0.4},
    "closed form, ridge, gauss-seidel": SEIDEL | {"ridge": 0.4},
    "closed form, mixing": CLOSED | {"mixing": 0.3},
    "closed form, mixing, ridge": SEIDEL | {"mixing": 0.6, "ridge": 0.4},
    "joint": JOINT | {"ridge": 0.4},
    "joint, mixing, local steps": JOINT | {"ridge": 0.2, "mixing": 0.4, "representation_steps": 2},
}

# name: samples of each client, d, k, participants a round
SHAPES = {
    "m < k": ([2] * 5, 7, 3, 5),
    "m == k": ([3] * 5, 7, 3, 5),
    "k < m < d": ([5] * 6, 7, 3, 6),
    "m == d": ([7] * 6, 7, 3, 6),
    "m == d + 1": ([8] * 6, 7, 3, 6),
    "m > d": ([16] * 6, 7, 3, 6),
    "some take part": ([12] * 6, 7, 3, 4),
    "few samples, some take part": ([4] * 6, 7, 2, 2),
    "one takes part": ([9] * 5, 6, 2, 1),
    "n == k": ([9] * 3, 6, 3, 3),
    "k == 1": ([9] * 5, 6, 1, 3),
    "n == 1": ([9], 6, 2, 1),
    "k == d": ([6] * 4, 3, 3, 3),
    "d == 1": ([3] * 4, 1, 1, 2),
    "unequal": ([2, 9, 4, 14, 7, 5], 6, 3, 4),
    "unequal, all take part": ([1, 9, 4, 14, 7, 6], 6, 3, 6),
}
ENGINES = [
    (shape, engine)
    for shape, (counts, d, _, _) in SHAPES.items()
    for engine in ("explicit", "compressed")
    if engine == "explicit" or max(counts) > d
]
ROUNDS = 8
RATE = 0.03


def conditioned(rng, m, d):
    """Return rows of which none is nearly a combination of the others: the loops are compared at 1e-10."""
    U, values, Vt = np.linalg.svd(rng.standard_normal((m, d)), full_matrices=False)
    return np.sqrt(max(m, d)) * (U * np.linspace(1.5, 0.7, len(values))) @ Vt


def draw(counts, d, k, noise=0.3, seed=1):
    """Return samples of a truth with shortcuts, one array a client, and an orthonormal B to start from."""
    rng = np.random.default_rng(seed)
    X = [conditioned(rng, m, d) for m in counts]
    B_star = basis(d, k, seed=7)
    Phi = [B_star @ rng.standard_normal(k) + 0.4 * rng.standard_normal(d) for _ in counts]
    y = [X_i @ phi + noise * rng.standard_normal(len(X_i)) for X_i, phi in zip(X, Phi, strict=True)]
    return X, y, basis(d, k, seed=8)


def drawn_participants(n, p, rounds, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([np.sort(rng.permutation(n)[:p]) for _ in range(rounds)])


def make(option, k, B, **changes):
    return lf.FedRepShortcut(**{"rank": k, "step_size": RATE, "init": B} | OPTIONS[option] | changes)


def assert_state(state, trial, wanted, mixing=None):
    """Assert that a state holds the contributions ``a w_i`` and ``c s_i`` of the loops' w_i and s_i."""
    a, c = ref.factors_of(mixing)
    for name, array in zip("BWS", (wanted[0], a * wanted[1], c * wanted[2]), strict=True):
        np.testing.assert_allclose(getattr(state, name)[trial], array, **TOLERANCE, err_msg=name)


def crossed(shape, engine, option):
    """Yield what has to meet in one run: solvers with shapes, and options with engines and kinds of samples."""
    counts, d, k, p = SHAPES[shape]
    sizes = "unequal" if len(set(counts)) > 1 else np.sign([counts[0] - k, counts[0] - d]).tolist()
    yield shape, engine, option.split(",")[0]
    yield option, engine
    yield option, str(sizes)
    yield option, p == len(counts)


COVER = covering([(shape, engine, option) for shape, engine in ENGINES for option in OPTIONS], crossed)


@each(("shape", "engine", "option"), COVER)
def test_every_state_equals_the_loops(shape, engine, option):
    counts, d, k, p = SHAPES[shape]
    n = len(counts)
    X, y, B = draw(counts, d, k)
    participants = drawn_participants(n, p, ROUNDS)
    algorithm, mixing = make(option, k, B), OPTIONS[option].get("mixing")
    wanted = initial(B, n)
    steps = rounds_of(algorithm, data=lf.GivenSamples(X, y), rounds=ROUNDS, participation=participants, engine=engine)
    for number, step in enumerate(steps, start=1):
        assert step.number == number
        assert step.alive.all()
        assert_state(step.before, 0, wanted, mixing)
        active = participants[number - 1]
        chosen = [X[i] for i in active], [y[i] for i in active]
        wanted = ref.shortcut_round(*wanted, *chosen, active, step_size=RATE, **OPTIONS[option])
        assert_state(step.after, 0, wanted, mixing)
        away = np.setdiff1d(np.arange(n), active)
        for name in ("W", "S"):
            old, new = (getattr(state, name)[0, away] for state in (step.before, step.after))
            assert old.tobytes() == new.tobytes()
    assert number == ROUNDS
    assert wanted[1].any()
    assert wanted[2].any() == (option != "gradient, no shortcut steps")


@each("kind", [lf.FreshSamples, lf.FixedSamples])
@each("engine", ["explicit", "compressed"])
@each("p", [5, 3])
@each("option", ["gradient, all of it", "closed form", "joint, mixing, local steps"])
def test_drawn_samples_replayed_through_the_loops(kind, engine, p, option):
    n, d, k, m, trials, rounds = 5, 6, 2, 10, 2, 10
    problem = lf.SharedWithShortcuts(n_clients=n, dim=d, rank=k, noise_std=0.3, shortcut_norm=0.5)
    B, mixing = basis(d, k, seed=4), OPTIONS[option].get("mixing")
    Phi = problem.truth(2, range(trials)).dense()
    states, seen = [initial(B, n)] * trials, []
    for step in rounds_of(
        make(option, k, B),
        problem,
        data=kind(m),
        rounds=rounds,
        participation=p,
        trials=trials,
        seed=2,
        engine=engine,
    ):
        active, rows = step.batch.active, step.batch.X.shape[2]
        assert rows == (m if engine == "explicit" else d + 1)
        # The pseudo-samples stand for m samples: the loops, which divide by their number, see them scaled.
        X, y = (np.sqrt(rows / m) * array for array in (step.batch.X, step.batch.y))
        seen.append(X.copy())
        for trial in range(trials):
            if engine == "explicit":
                noise = step.batch.y[trial] - np.vecdot(step.batch.X[trial], Phi[trial, active[trial], None])
                assert 0.1 < noise.std() < 0.6
            states[trial] = ref.shortcut_round(
                *states[trial], X[trial], y[trial], active[trial], step_size=RATE, **OPTIONS[option]
            )
            assert_state(step.after, trial, states[trial], mixing)
    assert len(seen) == rounds
    again = np.isin(seen[0], seen[1])[seen[0] != 0]  # a triangle is zero below its diagonal
    assert again.any() == (kind is lf.FixedSamples)


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("option", ["gradient, mixing", "closed form", "closed form, ridge", "joint"])
def test_the_refit_is_one_more_round_of_all_clients(option, engine):
    X, y, B = draw([9] * 5, 6, 2)
    data, participants = lf.GivenSamples(X, y), drawn_participants(5, 2, 4)
    plain, refitted = (
        list(rounds_of(make(option, 2, B, refit=refit), data=data, rounds=4, participation=participants, engine=engine))
        for refit in (False, True)
    )
    assert (len(plain), len(refitted)) == (4, 5)
    for one, two in zip(plain, refitted, strict=False):
        for name, array in one.after.arrays().items():
            assert np.array_equal(array, two.after.arrays()[name])
    last = refitted[-1]
    assert last.number == 5
    assert np.array_equal(last.after.B, plain[-1].after.B)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        w, s = ref.shortest(X_i, y_i, last.after.B[0])
        np.testing.assert_allclose(last.after.W[0, i], w, **TOLERANCE)
        np.testing.assert_allclose(last.after.S[0, i], s, **TOLERANCE)


def test_a_state_speaks_of_the_whole_predictor():
    X, y, B = draw([9] * 5, 6, 2)
    final = lf.simulate(make("gradient, mixing", 2, B), data=lf.GivenSamples(X, y), rounds=5).final
    np.testing.assert_allclose(final.predictors()[0], final.W[0] @ final.B[0].T + final.S[0], atol=1e-15)


# --- reductions ----------------------------------------------------------------------------------------------


def assert_same_states(one, other, tolerance):
    one, other = list(one), list(other)
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        for name in ("B", "W"):
            np.testing.assert_allclose(getattr(a.after, name), getattr(b.after, name), rtol=0, atol=tolerance)
    return one


REDUCED = {"m < d": [4] * 6, "m > d": [12] * 6, "unequal": [3, 9, 4, 14, 7, 6]}


@each("counts", REDUCED.values(), ids=REDUCED)
@each("order", ["jacobi", "gauss-seidel"])
@each("mixing", [None, 0.3])
@each("local", [1, 3])
def test_without_shortcut_steps_it_is_fedrep_with_gradient_heads(counts, order, mixing, local):
    X, y, B = draw(counts, 7, 2)
    shared = {"rank": 2, "step_size": 0.05, "init": B, "representation_steps": local}
    arguments = {"data": lf.GivenSamples(X, y), "rounds": 20, "participation": drawn_participants(6, 4, 20)}
    steps = lf.GradientSteps(head_steps=3, head_step_size=0.1, shortcut_steps=0, order=order)
    mine = lf.FedRepShortcut(**shared, solver=steps, mixing=mixing)
    its = lf.FedRep(**shared, heads=lf.GradientHeads(steps=3, step_size=0.1 * ref.factors_of(mixing)[0] ** 2))
    steps = assert_same_states(rounds_of(mine, **arguments), rounds_of(its, **arguments), 1e-13)
    assert not steps[-1].after.S.any()
    assert np.abs(steps[-1].after.B[0] - B).max() > 1e-3


@pytest.mark.long
@each("counts", REDUCED.values(), ids=REDUCED)
@each("order", ["jacobi", "gauss-seidel", "joint"])
@each("local", [1, 3])
@each("mixing", [None, 0.3])
def test_an_infinite_ridge_leaves_fedrep_with_exact_heads(counts, order, local, mixing):
    X, y, B = draw(counts, 7, 2)
    shared = {"rank": 2, "step_size": 0.05, "init": B, "representation_steps": local}
    arguments = {"data": lf.GivenSamples(X, y), "rounds": 20, "participation": drawn_participants(6, 4, 20)}
    mine = lf.FedRepShortcut(**shared, solver=lf.ClosedForm(order=order), ridge=1e12, mixing=mixing)
    steps = assert_same_states(rounds_of(mine, **arguments), rounds_of(lf.FedRep(**shared), **arguments), 1e-9)
    assert np.abs(steps[-1].after.S).max() < 1e-9
    assert np.abs(steps[-1].after.B[0] - B).max() > 1e-3


@pytest.mark.parametrize("m", [1, 3, 6, 7])
def test_few_samples_give_the_shortest_shortcut(m):
    """(3) with m <= d: every sample is explained, and s_i has no part that the samples do not see."""
    X, y, B = draw([m] * 4, 7, 2)
    for step in rounds_of(make("closed form", 2, B), data=lf.GivenSamples(X, y), rounds=3):
        for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
            s, left = step.after.S[0, i], y_i - X_i @ B_of(step.before) @ step.before.W[0, i]
            np.testing.assert_allclose(X_i @ s, left, atol=1e-10)
            np.testing.assert_allclose(s, np.linalg.pinv(X_i) @ left, atol=1e-10)


def B_of(state):
    return state.B[0]


# --- head and shortcut together ------------------------------------------------------------------------------


def stacked(counts, d, k, seed=1):
    """Return A, b, B with one trial, and the samples."""
    X, y, B = draw(counts, d, k, seed=seed)
    A = np.array([X_i.T @ X_i / len(y_i) for X_i, y_i in zip(X, y, strict=True)])[None]
    b = np.array([X_i.T @ y_i / len(y_i) for X_i, y_i in zip(X, y, strict=True)])[None]
    return A, b, B[None], X, y


# name: samples of each client, d, k
TOGETHER = {
    "m < k": ([2] * 4, 7, 3),
    "k < m < d": ([5] * 4, 7, 3),
    "m == d": ([7] * 4, 7, 3),
    "m > d": ([20] * 4, 7, 3),
    "unequal": ([1, 3, 6, 30], 6, 3),
    "k == d": ([2, 9], 3, 3),
    "k == 1": ([3, 9], 4, 1),
    "d == 1": ([1, 5], 1, 1),
}


@pytest.mark.parametrize("shape", TOGETHER)
def test_the_refit_solves_the_least_squares_with_the_shortest_shortcut(shape):
    A, b, B, X, y = stacked(*TOGETHER[shape])
    W, S, _ = smallest_shortcut(A, b, B)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        w, s = ref.shortest(X_i, y_i, B[0])
        np.testing.assert_allclose(S[0, i], s, rtol=0, atol=1e-9)
        np.testing.assert_allclose(W[0, i], w, rtol=0, atol=1e-9)
        best = np.linalg.lstsq(X_i, y_i, rcond=1e-12)[0]
        np.testing.assert_allclose(X_i @ (B[0] @ W[0, i] + S[0, i] - best), 0, atol=1e-9)


@pytest.mark.parametrize("shape", TOGETHER)
def test_the_refit_is_the_limit_of_the_joint_ridge(shape):
    A, b, B, *_ = stacked(*TOGETHER[shape])
    W, S, _ = smallest_shortcut(A, b, B)
    gaps = []
    for ridge in (1e-3, 1e-4, 1e-5):  # rounding errors are about 1e-14 over the ridge
        near_W, near_S, _ = joint_ridge(A, b, B, ridge)
        gaps.append(max(np.abs(near_W - W).max(), np.abs(near_S - S).max()))
        half_W, half_S, _ = joint_ridge(A, b, B, ridge / 2)
    # The difference is linear in the ridge: half of the ridge twice, less the whole, is the limit itself.
    assert gaps[2] < 1e-4
    assert gaps[2] < 0.11 * gaps[1] + 1e-8
    assert gaps[1] < 0.11 * gaps[0] + 1e-8
    np.testing.assert_allclose(2 * half_W - near_W, W, rtol=0, atol=1e-8)
    np.testing.assert_allclose(2 * half_S - near_S, S, rtol=0, atol=1e-8)


@each("ridge", [1e-6, 1e-2, 1.0, 1e3, 1e9])
@each("shape", TOGETHER)
def test_the_joint_minimiser_is_stationary(shape, ridge):
    A, b, B, X, y = stacked(*TOGETHER[shape])
    W, S, _ = joint_ridge(A, b, B, ridge)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        g = ref.gradient(X_i, y_i, B[0] @ W[0, i] + S[0, i])
        np.testing.assert_allclose(B[0].T @ g, 0, atol=1e-10)
        # a shortcut is known to the last bit of the head beside it
        np.testing.assert_allclose(g + ridge * S[0, i], 0, atol=1e-10 + 1e-15 * ridge)


@pytest.mark.long
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize(("d", "k", "m"), [(6, 2, 1), (20, 3, 1), (20, 3, 2)])
def test_the_joint_minimiser_has_the_shortest_head(d, k, m, ridge):
    """Of all heads that explain as much; where m < k they have no part that the samples do not see."""
    A, b, B, X, _ = stacked([m] * 300, d, k)
    W, _, _ = joint_ridge(A, b, B, ridge)
    for i, X_i in enumerate(X):
        Z = X_i @ B[0]
        np.testing.assert_allclose(np.linalg.pinv(Z, rcond=1e-12) @ Z @ W[0, i], W[0, i], rtol=1e-6, atol=1e-6)


def spoilt(trouble, m=12, d=6):
    """Return a client's rows with some trouble, their rank, and the error to be expected of normal equations."""
    X = normal(m, d, seed=3)
    if trouble == "a duplicate column":
        X[:, 4] = X[:, 1]
        return X, d - 1, 1e-9
    if trouble == "a column of zeros":
        X[:, 4] = 0.0
        return X, d - 1, 1e-9
    if trouble == "rank 2":
        return normal(m, 2, seed=4) @ normal(2, d, seed=5), 2, 1e-9
    if trouble == "no samples but zeros":
        return np.zeros((m, d)), 0, 1e-12
    U, _, Vt = np.linalg.svd(X, full_matrices=False)
    condition = float(trouble)
    return (U * np.geomspace(1.0, 1.0 / condition, d)) @ Vt, d, 1e-13 * condition**2


TROUBLES = ["a duplicate column", "a column of zeros", "rank 2", "no samples but zeros", "1e2", "1e3", "1e4"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_head_and_shortcut_of_ill_conditioned_and_deficient_samples(trouble):
    (X, rank, error), y, B = spoilt(trouble), normal(12, seed=9), basis(6, 2, seed=8)
    y = X @ normal(6, seed=10) + 0.1 * y * np.linalg.norm(X) / 10
    A, b = (X.T @ X / 12)[None, None], (X.T @ y / 12)[None, None]
    W, S, _ = smallest_shortcut(A, b, B[None])
    w, s = ref.shortest(X, y, B, rank)
    scale = 1 + np.abs(s).max() + np.abs(w).max()
    np.testing.assert_allclose(S[0, 0], s, rtol=0, atol=scale * error)
    np.testing.assert_allclose(W[0, 0], w, rtol=0, atol=scale * error)
    for ridge in (1e-3, 10.0):
        W, S, _ = joint_ridge(A, b, B[None], ridge)
        rows = np.block([[X @ B, X], [np.zeros((6, 2)), np.sqrt(12 * ridge) * np.eye(6)]])
        both = ref.least_squares(rows, np.concatenate([y, np.zeros(6)]))
        np.testing.assert_allclose(S[0, 0], both[2:], rtol=0, atol=1e-9)
        np.testing.assert_allclose(W[0, 0], both[:2], rtol=0, atol=scale * error + 1e-9)


SOLVERS = {
    "refit": lambda *arrays: smallest_shortcut(*arrays)[:2],
    "joint": lambda *arrays: joint_ridge(*arrays, 0.1)[:2],
}


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("spoil", ["NaN", "infinity", "singular", "singular to the last bit"])
def test_clients_and_trials_do_not_depend_on_their_neighbours(solve, spoil):
    trials = [stacked([9] * 4, 6, 2, seed=seed)[:3] for seed in (1, 2)]
    A, b, B = (np.concatenate(parts) for parts in zip(*trials, strict=True))
    B[1] = basis(6, 2, seed=5)
    W, S = solve(A, b, B)
    spoilt_A = A.copy()
    if spoil == "singular":
        spoilt_A[0, 1] = 0.0
    elif spoil == "singular to the last bit":
        spoilt_A[0, 1] = -0.1 * np.eye(6)  # of which the ridge makes zeros
    else:
        spoilt_A[0, 1, 2, 3] = {"NaN": np.nan, "infinity": np.inf}[spoil]
    with np.errstate(all="ignore"):
        other_W, other_S = solve(spoilt_A, b, B)
    others = np.ones((2, 4), dtype=bool)
    others[0, 1] = False
    for before, after in ((W, other_W), (S, other_S)):
        assert np.isfinite(before).all()
        assert before[others].tobytes() == after[others].tobytes()
        if spoil in ("NaN", "infinity"):
            assert not np.isfinite(after[0, 1]).any()
    for trial in range(2):
        alone = solve(A[trial : trial + 1], b[trial : trial + 1], B[trial : trial + 1])
        assert alone[0][0].tobytes() == W[trial].tobytes()
        assert alone[1][0].tobytes() == S[trial].tobytes()


# --- the objective -------------------------------------------------------------------------------------------


def objective(B, w, s, X, y, mixing, ridge):
    """Return one client's loss at its own w and s."""
    a, c = ref.factors_of(mixing)
    return ref.loss(X, y, a * B @ w + c * s) + 0.5 * ridge * s @ s


def differences(function, point):
    """Return the gradient of a function by central differences."""
    out = np.empty(point.shape)
    for index in np.ndindex(point.shape):
        values = []
        for sign in (1, -1):
            moved = point.copy()
            moved[index] += sign * 1e-5
            values.append(function(moved))
        out[index] = (values[0] - values[1]) / 2e-5
    return out


@each("counts", [[4] * 3, [12] * 3, [1, 9, 14]], ids=str)
@each("order", ["jacobi", "gauss-seidel"])
@each(("mixing", "ridge"), [(None, 0.0), (None, 0.7), (0.3, 0.0), (0.6, 0.7)])
def test_a_round_is_a_gradient_step_of_the_loss(counts, order, mixing, ridge):
    X, y, B = draw(counts, 5, 2)
    steps = lf.GradientSteps(head_step_size=0.04, shortcut_step_size=0.03, order=order)
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.05, init=B, solver=steps, mixing=mixing, ridge=ridge)
    *_, last = rounds_of(algorithm, data=lf.GivenSamples(X, y), rounds=4)
    a, c = ref.factors_of(mixing)
    (B, W, S), (new_B, new_W, new_S) = (
        (state.B[0], state.W[0] / a, state.S[0] / c) for state in (last.before, last.after)
    )
    moved = B.copy()
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        fixed = X_i, y_i, mixing, ridge
        head = differences(lambda w, s=S[i], fixed=fixed: objective(B, w, s, *fixed), W[i])
        np.testing.assert_allclose((new_W[i] - W[i]) / -0.04, head, rtol=1e-6, atol=1e-7)
        seen = new_W[i] if order == "gauss-seidel" else W[i]
        shortcut = differences(lambda s, w=seen, fixed=fixed: objective(B, w, s, *fixed), S[i])
        np.testing.assert_allclose((new_S[i] - S[i]) / -0.03, shortcut, rtol=1e-6, atol=1e-7)
        new = new_W[i], new_S[i]
        moved -= 0.05 / 3 * differences(lambda B, new=new, fixed=fixed: objective(B, *new, *fixed), B)
    assert np.abs(moved - B).max() > 1e-4
    np.testing.assert_allclose(ref.qr_positive(moved)[0], new_B, rtol=0, atol=1e-8)


# --- new clients ---------------------------------------------------------------------------------------------


@each("m", [1, 3, 6, 15])
@each("mixing", [None, 0.4])
@each(("ridge", "refit"), [(0.0, False), (0.0, True), (0.3, False), (0.3, True)])
def test_new_clients_fit_as_the_training_ends(m, mixing, ridge, refit):
    """With the ridge, unless the training refits (or has none): then with the shortest shortcut."""
    X, y, B = draw([m] * 3, 6, 2)
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, ridge=ridge, refit=refit, mixing=mixing)
    batch = ExplicitBatch(np.array(X)[None], np.array(y)[None], active=np.arange(3)[None])
    state = algorithm.adapt(lf.State(B=B[None], W=normal(1, 9, 2), S=normal(1, 9, 6)), batch)
    assert (state.W.shape, state.S.shape) == ((1, 3, 2), (1, 3, 6))
    assert np.array_equal(state.B[0], B)
    a, c = ref.factors_of(mixing)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        if ridge and not refit:
            rows = np.block([[a * X_i @ B, c * X_i], [np.zeros((6, 2)), np.sqrt(ridge * m) * np.eye(6)]])
            both = ref.least_squares(rows, np.concatenate([y_i, np.zeros(6)]))
            w, s = a * both[:2], c * both[2:]
        else:
            w, s = ref.shortest(X_i, y_i, B)
        np.testing.assert_allclose(state.W[0, i], w, rtol=0, atol=1e-9)
        np.testing.assert_allclose(state.S[0, i], s, rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"clusters": 3}, {"sparsity": 2}, {"orthogonal": True}], ids=str)
@pytest.mark.parametrize("refit", [False, True])
def test_risks_of_new_clients_equal_a_loop(options, refit):
    n, d, k, sizes = 5, 6, 2, [2, 4, 9]
    problem = lf.SharedWithShortcuts(n_clients=n, dim=d, rank=k, shortcut_norm=0.5, noise_std=0.2, **options)
    algorithm = lf.FedRepShortcut(rank=k, step_size=0.1, ridge=0.4, refit=refit)
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(8), rounds=3, trials=2, seed=4)
    risks = result.new_clients(sizes, clients=4, seed=9)
    truth = problem.new_clients(problem.truth(4, range(2)), 4, 9, range(2))
    Phi = truth.dense()
    for t in range(2):
        (x_rng,), (noise_rng,) = (generators(9, stream, [t]) for stream in (Stream.NEW_X, Stream.NEW_NOISE))
        X = x_rng.standard_normal((9, 4, d))
        y = np.vecdot(X, Phi[t]) + 0.2 * noise_rng.standard_normal((9, 4))
        for column, m in enumerate(sizes):
            batch = ExplicitBatch(
                X[None, :m].swapaxes(1, 2).copy(), y[None, :m].swapaxes(1, 2).copy(), active=np.arange(4)[None]
            )
            state = algorithm.adapt(lf.State(B=result.final.B[t : t + 1]), batch)
            wanted = ref.client_risks(state.predictors()[0], Phi[t], np.eye(d), 0.2)
            np.testing.assert_allclose(risks[t, column], wanted, rtol=1e-8)


# --- the truths ----------------------------------------------------------------------------------------------


def shortcuts(**changes):
    return lf.SharedWithShortcuts(**{"n_clients": 40, "dim": 9, "rank": 3, "shortcut_norm": 0.7} | changes)


KINDS = {
    "dense": {},
    "orthogonal": {"orthogonal": True},
    "sparse": {"sparsity": 2},
    "one entry": {"sparsity": 1},
    "as many entries as there are": {"sparsity": 9},
    "clusters": {"clusters": 4},
    "one cluster": {"clusters": 1},
    "sparse clusters": {"sparsity": 3, "clusters": 7},
    "orthogonal clusters": {"orthogonal": True, "clusters": 7},
    "a cluster for each": {"clusters": 40},
    "uncorrelated": {"uncorrelated": True},
    "orthogonal, uncorrelated": {"orthogonal": True, "uncorrelated": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_shared_part_is_that_of_shared_representation(kind):
    more = {"n_clients": 40, "dim": 9, "rank": 3, "noise_std": 0.3, "head_norm": 2.0, "condition_number": 1.5}
    more["design"] = "cube"
    one, other = shortcuts(**more, **KINDS[kind]), lf.SharedRepresentation(**more)
    truths = [(problem.truth((3, 1), [0, 4])) for problem in (one, other)]
    truths += [problem.new_clients(truth, 6, 5, [0, 4]) for problem, truth in zip((one, other), truths, strict=True)]
    for mine, its in (truths[:2], truths[2:]):
        assert mine.B.tobytes() == its.B.tobytes()
        assert mine.W.tobytes() == its.W.tobytes()
        assert (mine.noise_std, mine.design) == (its.noise_std, its.design)
        assert its.S is None
        np.testing.assert_allclose(mine.dense(), mine.W @ mine.B.mT + mine.S, atol=1e-15)
    assert truths[0].S.shape == (2, 40, 9)
    assert truths[2].S.shape == (2, 6, 9)
    assert one.truth_rank is None
    assert one.subspace_rank == 3
    np.testing.assert_allclose(truths[0].reference(3), truths[0].B, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_of_the_shortcuts(kind):
    """Independent Gaussian entries of variance ``shortcut_norm^2`` over their number, wherever there are any."""
    n, d, k = 4000, 9, 3
    options = KINDS[kind] | ({"clusters": 100 * KINDS[kind]["clusters"]} if "clusters" in KINDS[kind] else {})
    problem = shortcuts(n_clients=n, **options)
    truth = problem.truth(6, [0])
    for S in (truth.S[0], problem.new_clients(truth, n, 7, [0]).S[0]):
        own = S[: options.get("clusters", n)]
        if "orthogonal" in kind:
            np.testing.assert_allclose(own @ truth.B[0], 0, atol=1e-14)
            entries = own @ np.linalg.svd(truth.B[0])[0][:, k:]
        elif "sparsity" in options:
            size = options["sparsity"]
            assert ((own != 0).sum(axis=1) == size).all()
            entries = own[own != 0].reshape(-1, size)
            # Every place is as likely as any other.
            counts = (own != 0).sum(axis=0)
            assert size == d or stats.chisquare(counts).pvalue > 1e-4
        else:
            entries = own
        size = entries.shape[1]
        assert size == {"orthogonal": d - k}.get(kind.replace(",", "").split()[0], options.get("sparsity", d))
        squares = np.sum(entries**2) * size / 0.7**2
        assert 1e-4 < stats.chi2.cdf(squares, entries.size) < 1 - 1e-4
        assert stats.kstest(entries.ravel() * np.sqrt(size) / 0.7, "norm").pvalue > 1e-4
        if size > 1:
            correlation = np.corrcoef(entries, rowvar=False)[np.triu_indices(size, 1)]
            assert np.abs(correlation).max() < 5 / np.sqrt(len(entries))


def test_shortcuts_are_independent_of_the_shared_part():
    truth = shortcuts(n_clients=2, dim=3, rank=1).truth(0, range(1000))
    parts = np.concatenate([truth.B[..., 0], truth.W[..., 0], truth.S[:, 0], truth.S[:, 1]], axis=1)
    correlation = np.corrcoef(parts, rowvar=False)[:5, 5:]
    assert np.abs(correlation).max() < 5 / np.sqrt(1000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "cluster" in kind])
def test_clients_of_a_cluster_share_one_shortcut(kind):
    problem = shortcuts(**KINDS[kind])
    count, truth = problem.clusters, problem.truth(0, range(2))
    for trial in range(2):
        own = {row.tobytes() for row in truth.S[trial]}
        assert len(own) == count
        for i, row in enumerate(truth.S[trial]):
            assert np.array_equal(row, truth.S[trial, i % count])
    for clients in (1, count, 3 * count + 1):  # new clients are of the same clusters, whatever their seed
        new = problem.new_clients(truth, clients, 5, range(2))
        assert np.array_equal(new.S, truth.S[:, np.arange(clients) % count])


def test_new_clients_without_clusters_have_shortcuts_of_their_own():
    problem = shortcuts()
    truth = problem.truth(0, range(2))
    new = [problem.new_clients(truth, 40, seed, range(2)).S for seed in (0, 0, 1)]
    assert np.array_equal(new[0], new[1])
    assert not np.isin(new[0], new[2]).any()
    assert not np.isin(new[0], truth.S).any()
    assert np.array_equal(problem.new_clients(problem.truth(0, [1]), 40, 0, [1]).S, new[0][1:])


@pytest.mark.parametrize("kind", KINDS)
def test_the_length_changes_nothing_else(kind):
    norms = {norm: shortcuts(shortcut_norm=norm, **KINDS[kind]).truth(3, range(2)).S for norm in (0, 0.5, 1, 3.7)}
    assert not norms[0].any()
    assert np.array_equal(2 * norms[0.5], norms[1])
    np.testing.assert_allclose(3.7 * norms[1], norms[3.7], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trials_shortcuts_are_its_own(kind):
    problem = shortcuts(**KINDS[kind])
    together = problem.truth(2, range(3)).S
    for trial in range(3):
        assert together[trial].tobytes() == problem.truth(2, [trial]).S[0].tobytes()
    assert not np.isin(together[0][together[0] != 0], together[1]).any()
    assert not np.isin(together[0][together[0] != 0], problem.truth(1, [0]).S).any()


@pytest.mark.parametrize("orthogonal", [True, False])
def test_uncorrelated_shortcuts_are_so_to_rounding_and_keep_their_lengths(orthogonal):
    drawn = shortcuts(orthogonal=orthogonal).truth(2, range(3))
    truth = shortcuts(orthogonal=orthogonal, uncorrelated=True).truth(2, range(3))
    assert np.abs(drawn.S.mT @ drawn.W).max() > 0.1
    np.testing.assert_allclose(truth.S.mT @ truth.W, 0, atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(truth.S, axis=(1, 2)), np.linalg.norm(drawn.S, axis=(1, 2)))
    if orthogonal:
        np.testing.assert_allclose(truth.S @ truth.B, 0, atol=1e-14)


def test_labels_are_those_of_the_truth():
    problem = shortcuts(noise_std=0.0, sparsity=2)
    data = lf.FixedSamples(5).draw(problem, trials=2, seed=3)
    wanted = (data.X @ problem.truth(3, range(2)).dense()[..., None])[..., 0]
    np.testing.assert_allclose(data.y, wanted, atol=1e-13)


# --- (2)-(5) cannot learn B ----------------------------------------------------------------------------------

STALLED = lf.SharedWithShortcuts(n_clients=8, dim=7, rank=2, shortcut_norm=0.5, noise_std=0.3)


@pytest.mark.long
@each("data", [lf.FixedSamples, lf.FreshSamples])
@each("participation", [1.0, 0.5])
@each("m", [1, 2, 3, 6, 7, 8, 20])
def test_gauss_seidel_never_moves_the_representation(m, participation, data):
    """Once s_i solves its least squares at w_i, ``X_i'(Z_i w_i + X_i s_i - y_i)`` is 0: for every m and noise."""
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, **SEIDEL, init="random")
    steps = list(rounds_of(algorithm, STALLED, data=data(m), rounds=10, participation=participation, trials=2))
    start = steps[0].before.B
    # Rounding moves it by the square of the heads, which are long where m == k, and shortcuts where m == d.
    np.testing.assert_allclose(steps[-1].after.B, start, rtol=0, atol=1e-11 if m in (2, 7) else 1e-12)
    assert steps[-1].after.W.any()
    assert steps[-1].after.S.any()
    # The ridge is a way out.
    ridge = dataclasses.replace(algorithm, ridge=0.5)
    *_, last = rounds_of(ridge, STALLED, data=data(m), rounds=25, participation=participation, trials=2)
    assert m <= 2 or np.abs(last.after.B - start).max() > 1e-2


@pytest.mark.parametrize("m", [3, 6, 7, 8, 20])
def test_jacobi_moves_it_by_what_the_head_changed(m):
    """Client i's gradient is ``(1/m) X_i' Z_i (w_i^{t+1} - w_i^t) w_i^{t+1}'``: nothing of it knows B*."""
    eta, moved = 0.05, 0.0
    algorithm = lf.FedRepShortcut(rank=2, step_size=eta, **CLOSED, init="random")
    for step in rounds_of(algorithm, STALLED, data=lf.FixedSamples(m), rounds=8, participation=0.5):
        (B,), (W,), (new,) = step.before.B, step.before.W, step.after.W
        (active,), (X,) = step.batch.active, step.batch.X
        G = sum(np.outer(X_i.T @ X_i @ B @ (new[i] - W[i]) / m, new[i]) for i, X_i in zip(active, X, strict=True))
        wanted = ref.qr_positive(B - eta * G / len(active))[0]
        np.testing.assert_allclose(step.after.B[0], wanted, **TOLERANCE)
        moved = max(moved, np.abs(wanted - B).max())
    assert moved > 1e-3


@pytest.mark.parametrize("k", [1, 3])
def test_jacobi_at_the_population_is_a_cycle_of_two(k):
    problem = lf.SharedWithShortcuts(n_clients=8, dim=9, rank=k, shortcut_norm=0.5)
    data = lf.GivenSamples.population(problem, trials=2, seed=1)
    algorithm = lf.FedRepShortcut(rank=k, step_size=0.2, **CLOSED, init="random")
    states = [step.after for step in rounds_of(algorithm, problem, data=data, rounds=40, seed=1)]
    result = lf.simulate(algorithm, problem, data=data, rounds=40, seed=1)
    distance = result.metrics["subspace_distance"]
    assert (distance[:, 0] > 0.1).all()
    np.testing.assert_allclose(distance, np.repeat(distance[:, :1], 41, axis=1), rtol=0, atol=1e-10)
    for before, after in zip(states, states[2:], strict=False):
        np.testing.assert_allclose(before.W, after.W, rtol=0, atol=1e-10)
    assert np.abs(states[0].W - states[1].W).max() > 0.1


@pytest.mark.parametrize("ridge", [0.1, 1.0, 5.0])
def test_jointly_with_a_ridge_the_population_step_is_ojas(ridge):
    """``B_bar = B + eta (ridge / (1 + ridge)) (I - BB') M B``, and the shortcut is ``(I - BB') phi / (1 + ridge)``."""
    d, k, eta = 9, 2, 0.3
    problem = lf.SharedWithShortcuts(n_clients=8, dim=d, rank=k, shortcut_norm=0.3)
    (Phi,) = problem.truth(1, [0]).dense()
    data = lf.GivenSamples.population(problem, trials=1, seed=1)
    algorithm = lf.FedRepShortcut(rank=k, step_size=eta, **JOINT, ridge=ridge, init="random")
    for step in rounds_of(algorithm, problem, data=data, rounds=5, seed=1):
        (B,) = step.before.B
        outside = np.eye(d) - B @ B.T
        drift = outside @ (Phi.T @ Phi / 8) @ B
        wanted = ref.qr_positive(B + eta * ridge / (1 + ridge) * drift)[0]
        np.testing.assert_allclose(step.after.B[0], wanted, **TOLERANCE)
        np.testing.assert_allclose(step.after.W[0], Phi @ B, **TOLERANCE)
        np.testing.assert_allclose(step.after.S[0], Phi @ outside / (1 + ridge), **TOLERANCE)


@pytest.mark.long
def test_both_ways_out_learn_the_leading_subspace():
    """A ridge with the joint order, or few small steps on the shortcut; (2)-(5) as drafted stay where they begin."""
    problem = lf.SharedWithShortcuts(n_clients=30, dim=8, rank=2, shortcut_norm=0.3, orthogonal=True)
    arguments = {"data": lf.FixedSamples(40), "rounds": 200, "metrics": ["subspace_distance", "parameter_error"]}
    ways = {
        "drafted": CLOSED,
        "joint": JOINT | {"ridge": 1.0, "refit": True},
        "gradient": {"solver": lf.GradientSteps(shortcut_step_size=0.01)},
    }
    found = {}
    for name, options in ways.items():
        algorithm = lf.FedRepShortcut(rank=2, step_size=0.3, init="random", **options)
        metrics = lf.simulate(algorithm, problem, **arguments).metrics
        found[name] = [metrics[key][0, [0, -1]] for key in ("subspace_distance", "parameter_error")]
    start, end = found["drafted"][0]
    assert end > 0.5 * start > 0.2
    for name in ("joint", "gradient"):
        start, end = found[name][0]
        assert end < 0.2 < start, name
    assert found["joint"][1][1] < 1e-8  # the refit: without noise and with m > d everything is found
