"""The shortcut draft's equations on recorded runs: its identities, slips and lemmas, and what B does at population."""

import dataclasses
import itertools

import numpy as np
import pytest

import linfed as lf
from experiments.shortcut import shortcut_bound, shortcut_lost
from linfed.claims import judged
from linfed.numerics.linalg import spectral_norm
from linfed.problems import Truth
from linfed.statistics.findings import Verdict, judge_identity
from linfed.theory import shortcut as theory
from tests import references as ref
from tests.helpers import each, rounds_of

EXACT = 1e-10
SHAPES = {  # n, d, k, m
    "m = k": (6, 8, 2, 2),
    "m = k = 1": (6, 5, 1, 1),
    "k < m < d": (6, 8, 2, 5),
    "m = d": (6, 6, 2, 6),
    "m > d": (6, 8, 3, 20),
    "n = 1": (1, 5, 2, 9),
    "k = 1": (7, 6, 1, 9),
    "k = d": (5, 4, 4, 6),
}
EQUATIONS = {
    "(7)": lambda r: r.head_equation(),
    "(9), (16), (17)": lambda r: r.head_update(),
    "(18)": lambda r: r.shortcut_equation(),
    "(19)": lambda r: r.split(),
    "(20)": lambda r: r.split_outside(),
    "(21)": lambda r: r.split_in_terms(),
    "the stall": lambda r: r.stall(),
    "Lemma 1": lambda r: r.smallest_eigenvalues(),
}


def made(n, d, k, **more):
    return lf.SharedWithShortcuts(**{"n_clients": n, "dim": d, "rank": k, "shortcut_norm": 0.7, **more})


def algorithm_of(k, **more):
    return lf.FedRepShortcut(**{"rank": k, "step_size": 0.1, "solver": lf.ClosedForm(), "init": "random", **more})


def seen_rounds(algorithm, problem, data, *, rounds=5, trials=2, seed=3, engine="explicit", **more):
    """Return the rounds of a run in the draft's symbols."""
    truth = problem.truth(seed, range(trials))
    run = {"data": data, "rounds": rounds, "trials": trials, "seed": seed, "engine": engine, **more}
    return [theory.ShortcutRound.of(step, algorithm, truth) for step in rounds_of(algorithm, problem, **run)]


def worst(rounds, name):
    return max(EQUATIONS[name](r).gap.max() for r in rounds)


# --- identities ----------------------------------------------------------------------------------------------


@pytest.mark.long
@each("fresh", [False, True], ids=["fixed", "fresh"])
@each("participation", [1.0, 0.5])
@each("noise_std", [0.0, 0.5])
@each("shape", SHAPES)
def test_the_drafts_equations_are_identities(shape, noise_std, participation, fresh):
    n, d, k, m = SHAPES[shape]
    data = lf.FreshSamples(m) if fresh else lf.FixedSamples(m)
    rounds = seen_rounds(algorithm_of(k), made(n, d, k, noise_std=noise_std), data, participation=participation)
    for name in EQUATIONS:
        assert worst(rounds, name) < EXACT, name
    assert all((np.abs(r.noise).max() > 1e-2) == (noise_std > 0) for r in rounds)
    for r in rounds:
        terms = r.bound()
        assert (terms.distance <= terms.bound * (1 + EXACT) + 1e-14).all()
        if k < d:
            outside = np.linalg.svd(r.B_star)[0][..., k:]
            found = np.linalg.norm(outside.mT @ r.B_new, ord=2, axis=(-2, -1))
            np.testing.assert_allclose(terms.distance, found, rtol=1e-10, atol=1e-14)
            np.testing.assert_allclose(terms.distance, lf.subspace_distance(r.B_new, r.B_star), rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(terms.inverse, 1 / np.linalg.svd(r.R, compute_uv=False)[..., -1], rtol=1e-9)


def test_the_terms_of_the_bound_by_loops():
    for r in seen_rounds(algorithm_of(2, step_size=0.3), made(6, 8, 2, noise_std=0.5), lf.FreshSamples(20)):
        terms = r.bound()
        for t in range(2):
            outside, (B, B_star) = np.linalg.svd(r.B_star[t])[0][:, 2:], (r.B[t], r.B_star[t])
            sums, moved = np.zeros((4, 8, 2)), B.copy()
            sums[0] = B
            for i in range(6):
                w, missing = r.W[t, i], r.S_star[t, i] - r.S[t, i]
                q = B @ w - B_star @ r.W_star[t, i] - missing
                sums[0] -= 0.3 / 6 * np.outer(B @ w, w)
                sums[1] += 0.3 / 6 * np.outer(r.Pi[t, i] @ q - q, w)
                sums[2] += 0.3 / 6 * np.outer(missing, w)
                sums[3] += 0.3 / 6 * np.outer(r.noise[t, i], w)
                moved -= 0.3 / 6 * np.outer(r.Pi[t, i] @ q - r.noise[t, i], w)
            inverse = np.linalg.norm(np.linalg.inv(ref.qr_positive(moved)[1]), 2)
            wanted = [np.linalg.norm(outside.T @ part, 2) * inverse for part in sums]
            found = [part[t] for part in terms]
            last = np.linalg.norm(outside.T @ r.B_new[t], 2)
            np.testing.assert_allclose(found, [*wanted, inverse, last], rtol=1e-9, atol=1e-12)
            assert terms.bound[t] == pytest.approx(sum(wanted), rel=1e-9)


def test_stale_heads_and_shortcuts_enter():
    rounds = seen_rounds(algorithm_of(2), made(6, 8, 2), lf.FreshSamples(12), participation=0.5, rounds=8)
    before = [np.abs(r.W_old).max(axis=-1) for r in rounds[2:]]
    assert any((sizes > 0).any() and (sizes == 0).any() for sizes in before)  # newcomers beside others
    carried = dataclasses.replace(rounds[-1], S_old=np.zeros_like(rounds[-1].S_old))
    assert carried.head_update().gap.min() > 1e-3


@pytest.mark.parametrize("data", [lf.FixedSamples(20), lf.FreshSamples(20), lf.FixedSamples(20, in_law=True)])
def test_compressed_rounds_answer_too(data):
    rounds = seen_rounds(algorithm_of(2), made(5, 6, 2, noise_std=0.4), data, engine="compressed")
    assert all(worst(rounds, name) < EXACT for name in EQUATIONS)


def test_unequal_sample_counts():
    rng, problem = np.random.default_rng(0), made(3, 5, 2)
    phi = problem.truth(3, range(1)).dense()[0]
    X = [rng.standard_normal((m, 5)) for m in (3, 5, 9)]
    data = lf.GivenSamples(X, [x @ v for x, v in zip(X, phi, strict=True)])
    rounds = seen_rounds(algorithm_of(2), problem, data, trials=1)
    assert all(worst(rounds, name) < EXACT for name in EQUATIONS)
    assert np.abs(rounds[0].noise).max() < 1e-14


@pytest.mark.parametrize("mixing", [None, 0.3])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_the_shortcuts_equation_follows_order_ridge_and_mixing(ridge, mixing):
    for m in (4, 20):
        problem, data = made(5, 6, 2, noise_std=0.3), lf.FixedSamples(m)
        for order in ("jacobi", "gauss-seidel", *(["joint"] if ridge else [])):
            rounds = seen_rounds(
                algorithm_of(2, solver=lf.ClosedForm(order=order), ridge=ridge, mixing=mixing), problem, data
            )
            seen, other = ("old", "new") if order == "jacobi" else ("new", "old")
            assert rounds[0].shortcut_equation(head=other).gap.min() > 1e-2  # later gauss-seidel heads stand still
            for r in rounds:
                assert r.shortcut_equation(head=seen).gap.max() < EXACT
                assert r.stall().gap.max() < EXACT
                assert (r.head_update().gap.max() < EXACT) == (order != "joint")
            assert max(worst(rounds, name) for name in ("(19)", "(20)", "(21)")) < EXACT


@pytest.mark.parametrize("head_steps", [1, 3])
def test_the_split_holds_for_gradient_steps_too_and_the_rest_does_not(head_steps):
    algorithm = algorithm_of(2, solver=lf.GradientSteps(head_steps=head_steps, shortcut_step_size=0.05))
    rounds = seen_rounds(algorithm, made(6, 8, 2, noise_std=0.3), lf.FixedSamples(12))
    assert max(worst(rounds, name) for name in ("(19)", "(20)", "(21)")) < EXACT
    assert min(r.head_update().gap.min() for r in rounds) > 1e-2
    assert min(r.shortcut_equation().gap.min() for r in rounds) > 1e-2


# --- the definitions, block by block -------------------------------------------------------------------------


def literal_blocks(X, B, B_star):
    """Return G, C, D, E of (8) for one trial from the rows X (p, m, d), sum by sum, and C, D as printed."""
    p, m, d = X.shape
    k = B.shape[1]

    def summed(left, right):
        total = np.zeros((p, p))
        for i in range(p):
            for j in range(m):
                A = np.outer(np.eye(p)[i], X[i, j])  # A_ij = e_i x_ij'
                total += np.outer(A @ left, A @ right) / m
        return total

    eye = np.eye(d)
    G = np.block([[summed(B[:, a], B[:, b]) for b in range(k)] for a in range(k)])
    C = np.block([[summed(B[:, a], B_star[:, b]) for b in range(k)] for a in range(k)])
    E = np.block([[summed(B[:, a], eye[l]) for l in range(d)] for a in range(k)])  # noqa: E741
    D = np.block([[B[:, a] @ B_star[:, b] * np.eye(p) for b in range(k)] for a in range(k)])
    summed_D = sum(D / m for _ in range(p) for _ in range(m))
    return (G, C, D, E), (G, G, summed_D, E)


@pytest.mark.parametrize("noise_std", [0.0, 0.4])
def test_the_blocks_are_those_of_8_and_10_to_13(noise_std):
    problem = made(4, 5, 2, noise_std=noise_std)
    X = lf.FixedSamples(6).draw(problem, trials=2, seed=3).X
    for r in seen_rounds(algorithm_of(2), problem, lf.FixedSamples(6), participation=0.75):
        p = r.active.shape[1]
        assert p == 3
        for t in range(2):
            right, printed = literal_blocks(X[t, r.active[t]], r.B[t], r.B_star[t])
            for reading, literal in (("corrected", right), ("printed", printed)):
                for mine, theirs in zip(r.blocks(reading=reading), literal, strict=True):
                    np.testing.assert_allclose(mine[t], theirs, atol=1e-12)
            G, C, D, E = right
            # vec(W') stacks the columns of W': the first entries of all clients, then the second ones.
            w, w_star = r.W[t].T.ravel(), r.W_star[t].T.ravel()
            s, s_star = r.S_old[t].T.ravel(), r.S_star[t].T.ravel()
            e = (r.noise[t] @ r.B[t]).T.ravel()
            f, h = np.linalg.solve(G, (G @ D - C) @ w_star), np.linalg.solve(G, E @ (s_star - s))
            np.testing.assert_allclose(f.reshape(2, p).T, r.f[t], atol=EXACT)
            np.testing.assert_allclose(h.reshape(2, p).T, r.h()[t], atol=EXACT)
            np.testing.assert_allclose(w, np.linalg.solve(G, C @ w_star + E @ (s_star - s) + e), atol=EXACT)
            np.testing.assert_allclose(w, D @ w_star - f + h + np.linalg.solve(G, e), atol=EXACT)
            # The slip in C breaks (9). That in D does not, since D cancels; it breaks (16) and the size of f.
            _, C_bad, D_bad, _ = printed
            assert np.abs(np.linalg.solve(G, C_bad @ w_star + E @ (s_star - s) + e) - w).max() > 1e-2
            f_bad = np.linalg.solve(G, (G @ D_bad - C) @ w_star)
            np.testing.assert_allclose(w, D_bad @ w_star - f_bad + h + np.linalg.solve(G, e), atol=EXACT)
            assert np.abs(D @ w_star - f_bad + h + np.linalg.solve(G, e) - w).max() > 1e-1


def test_lemma_1_holds_with_equality_and_lemma_2_inverts_a_singular_matrix():
    for m in (4, 30):
        for r in seen_rounds(algorithm_of(2), made(5, 6, 2), lf.FreshSamples(m), rounds=2):
            big, least, _ = r.smallest_eigenvalues()
            np.testing.assert_allclose(big, least, rtol=1e-10)
            assert (least > 0).all()
            for alpha in (0.2, 0.5):
                gram = r.extended_gram(alpha)
                assert gram.shape[-2:] == (8, 8)
                values = np.linalg.eigvalsh(gram)
                assert (np.abs(values[..., :2]) < 1e-13 * values[..., -1:]).all()
                assert (np.linalg.matrix_rank(gram, hermitian=True) == min(m, 6)).all()


# --- what must fail ------------------------------------------------------------------------------------------


def test_the_printed_sign_fails():
    for r in seen_rounds(algorithm_of(2), made(6, 8, 2), lf.FreshSamples(20)):
        assert r.head_update(sign="printed").gap.min() > 0.1
        assert r.head_equation(sign="printed").gap.min() > 0.1
        np.testing.assert_allclose(r.h(sign="printed"), -r.h())


def test_without_shortcuts_there_is_no_sign_to_get_wrong_in_the_first_round():
    rounds = seen_rounds(algorithm_of(2), made(6, 8, 2, shortcut_norm=0.0), lf.FreshSamples(20), rounds=1)
    assert rounds[0].head_update(sign="printed").gap.max() < EXACT


def test_the_noises_terms_are_needed():
    for r in seen_rounds(algorithm_of(2), made(6, 8, 2, noise_std=0.5), lf.FreshSamples(12)):
        deaf = dataclasses.replace(r, noise=np.zeros_like(r.noise))
        for name in ("(7)", "(9), (16), (17)", "(18)", "(19)"):
            assert EQUATIONS[name](deaf).gap.min() > 1e-4, name


def test_a_perturbed_representation_or_another_step_fails():
    r = seen_rounds(algorithm_of(2), made(6, 8, 2), lf.FreshSamples(20), rounds=1)[0]
    moved = r.B_new.copy()
    moved[:, 0, 0] += 1e-6
    for wrong in (dataclasses.replace(r, B_new=moved), dataclasses.replace(r, step_size=0.1001)):
        assert min(wrong.split().gap.min(), wrong.split_outside().gap.min(), wrong.split_in_terms().gap.min()) > 1e-8
    flipped = dataclasses.replace(r, B_new=-r.B_new)  # the QR of other signs
    assert flipped.split().gap.min() > 0.1


def test_another_truth_fails():
    problem, algorithm = made(6, 8, 2), algorithm_of(2)
    (step,) = rounds_of(algorithm, problem, data=lf.FixedSamples(20), rounds=1, seed=3, engine="explicit")
    right = problem.truth(3, range(1))
    other = dataclasses.replace(right, W=-right.W)
    r = theory.ShortcutRound.of(step, algorithm, other)
    # What the truth does not explain is taken for noise: only its size tells.
    assert r.head_update().gap.max() < EXACT
    assert np.abs(r.noise).max() > 0.1
    assert np.abs(theory.ShortcutRound.of(step, algorithm, right).noise).max() < 1e-13


def test_bad_input_is_refused():
    problem, algorithm = made(6, 8, 2), algorithm_of(2)
    truth = problem.truth(3, range(1))

    def step(which=algorithm, m=20):
        return next(rounds_of(which, problem, data=lf.FixedSamples(m), rounds=1, seed=3, engine="explicit"))

    several = algorithm_of(2, representation_steps=2)
    with pytest.raises(ValueError, match="representation_steps = 2 must be 1"):
        theory.ShortcutRound.of(step(several), several, truth)
    for wrong in (made(6, 8, 3).truth(3, range(1)), problem.truth(3, range(2)), Truth(S=truth.dense())):
        with pytest.raises(ValueError, match="truth has a B\\* of shape"):
            theory.ShortcutRound.of(step(), algorithm, wrong)
    with pytest.raises(ValueError, match="not orthonormal"):
        theory.ShortcutRound.of(step(), algorithm, dataclasses.replace(truth, B=2 * truth.B))
    short = theory.ShortcutRound.of(step(m=1), algorithm, truth)
    assert max(short.head_equation().gap.max(), short.stall().gap.max(), short.split().gap.max()) < EXACT
    with pytest.raises(ValueError, match="1 samples, fewer than k = 2"):
        short.head_update()
    for call in (
        lambda: short.h(sign="plus"),
        lambda: short.blocks(reading="x"),
        lambda: short.shortcut_equation(head="x"),
    ):
        with pytest.raises(ValueError, match=r"allowed"):
            call()


# --- the stall -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@pytest.mark.parametrize("m", [1, 4, 6, 30])
def test_gauss_seidel_does_not_move_at_all(m, noise_std):
    problem = made(6, 6, 2, noise_std=noise_std)
    for r in seen_rounds(
        algorithm_of(2, solver=lf.ClosedForm(order="gauss-seidel")), problem, lf.FixedSamples(m), participation=0.5
    ):
        assert np.abs(r.messages).max() < 1e-12
        np.testing.assert_allclose(r.B_new, r.B, atol=1e-12)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@pytest.mark.parametrize("m", [2, 4, 6, 30])
def test_with_fixed_samples_the_heads_cycle_for_every_m_and_noise(m, noise_std):
    rounds = seen_rounds(algorithm_of(2), made(6, 6, 2, noise_std=noise_std), lf.FixedSamples(m), rounds=6)
    for previous, r in itertools.pairwise(rounds):
        assert r.head_cycle(previous).gap.max() < EXACT
    size = np.abs(rounds[0].W).max()
    assert all(np.abs(r.W).max() < 1e-9 * size for r in rounds[1::2])  # from 0, every second head is 0
    for r in rounds[::2]:  # while B moves
        np.testing.assert_allclose(r.W, rounds[0].W, atol=1e-9 * size)
        assert np.abs(r.B_new - r.B).max() > 1e-3


def test_the_cycle_needs_the_same_samples_where_there_is_noise_and_the_same_clients():
    problem = made(6, 6, 2, noise_std=0.5)
    one, two = seen_rounds(algorithm_of(2), problem, lf.FreshSamples(20), rounds=2)
    assert two.head_cycle(one).gap.min() > 1e-3
    one, two = seen_rounds(algorithm_of(2), problem, lf.FixedSamples(20), rounds=2, participation=0.5)
    with pytest.raises(ValueError, match="other participants"):
        two.head_cycle(one)


def test_at_population_the_span_stands_still_and_the_heads_are_a_2_cycle():
    problem = made(6, 6, 2)
    data = lf.GivenSamples.population(problem, trials=2, seed=3)
    rounds = seen_rounds(algorithm_of(2, step_size=0.3), problem, data, rounds=40)
    assert np.abs(rounds[0].B_new - rounds[0].B).max() > 1e-2  # B turns within its span
    for before, r in itertools.pairwise(rounds):
        assert lf.subspace_distance(r.B_new, rounds[0].B).max() < 1e-12
        assert r.head_cycle(before).gap.max() < EXACT
        np.testing.assert_allclose(r.W, before.W_old, atol=1e-12)
    np.testing.assert_allclose(rounds[0].W, (rounds[0].W_star @ rounds[0].B_star.mT + rounds[0].S_star) @ rounds[0].B)
    # (22) cannot show less: its first term is never below the old distance.
    for r in rounds[:20]:
        assert (r.bound().contraction >= spectral_norm(r._outside(r.B)) * (1 - 1e-12)).all()
        assert r.bound().shortcut.max() < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("m", [4, 12])
def test_the_first_gradient_drives_B_away_in_the_mean(m):
    # Mean over 40000 clients of the component along the law; 4.5 standard errors: 7e-6 false alarms.
    problem = made(200, 6, 2, noise_std=0.5)
    algorithm = algorithm_of(2, init=lf.AtDistance(0.6))
    (r,) = seen_rounds(algorithm, problem, lf.FreshSamples(m), rounds=1, trials=200)
    gradient = (r.B - r.B_bar) / r.step_size
    outside = gradient - r.B @ (r.B.mT @ gradient)
    expected = theory.shortcut_repulsion(problem.truth(3, range(200)), r.B, m)
    share = (outside * expected).sum(axis=(-2, -1)) / (expected**2).sum(axis=(-2, -1))
    error = share.std(ddof=1) / np.sqrt(200)
    assert abs(share.mean() - 1) < 4.5 * error
    assert error < 0.02
    assert (r.bound().distance > 0.6).mean() > 0.9


@pytest.mark.parametrize("k", [1, 3])
def test_the_repulsion_is_a_share_of_ojas_gradient_by_loops(k):
    truth, B = made(5, 6, 2).truth(3, range(2)), np.linalg.qr(np.random.default_rng(0).standard_normal((2, 6, k)))[0]
    found = theory.shortcut_repulsion(truth, B, 9)
    for t, Phi in enumerate(truth.dense()):
        moment = sum(np.outer(phi, phi) for phi in Phi) / 5
        wanted = (k + 1) / 9 * (np.eye(6) - B[t] @ B[t].T) @ moment @ B[t]
        np.testing.assert_allclose(found[t], wanted, rtol=0, atol=1e-14)


def test_repulsion_refuses_few_samples_and_other_shapes():
    truth = made(4, 6, 2).truth(3, range(2))
    with pytest.raises(ValueError, match="n_samples = 3 must be at least k \\+ 2 = 4"):
        theory.shortcut_repulsion(truth, truth.B, 3)
    assert np.isfinite(theory.shortcut_repulsion(truth, truth.B, 4)).all()
    with pytest.raises(ValueError, match="B has shape"):
        theory.shortcut_repulsion(truth, truth.B[:1], 9)


LAWS = {
    "covariance": lf.Gaussian(covariance=np.geomspace(0.5, 2.0, 6)),
    "scaled": lf.Gaussian(covariance=2.0),
    "rademacher": lf.Rademacher(),
    "cube": lf.UniformCube(),
    "sphere": lf.UniformSphere(),
}


@pytest.mark.parametrize("law", LAWS)
def test_what_holds_for_another_law_of_x_refuses_this_one(law):
    truth = made(4, 6, 2, design=LAWS[law]).truth(3, range(2))
    with pytest.raises(ValueError, match=r"truth has design = .*; the mean of the gradient .* standard Gaussian x"):
        theory.shortcut_repulsion(truth, truth.B, 9)
    if law == "covariance":
        with pytest.raises(ValueError, match=r"truth has design = Gaussian\(cov.*at population requires isotropic x"):
            theory.top_subspace_distance(truth, 2)
        with pytest.raises(ValueError, match=r"truth has design = Gaussian\(cov.*condition requires isotropic x"):
            theory.shortcut_spectrum_hypothesis(truth)
    else:  # second moments are all they ask for
        plain = made(4, 6, 2).truth(3, range(2))
        assert np.array_equal(theory.top_subspace_distance(truth, 2), theory.top_subspace_distance(plain, 2))
        assert theory.shortcut_spectrum_hypothesis(truth) == theory.shortcut_spectrum_hypothesis(plain)


# --- the trace and its judges --------------------------------------------------------------------------------


def traced(algorithm, problem, data, *, rounds=30, trials=3, every=1, seed=3, equations=False, **more):
    truth = problem.truth(seed, range(trials))
    run = {"data": data, "rounds": rounds, "trials": trials, "seed": seed, "engine": "explicit", **more}
    steps = lf.iterate(algorithm, problem, **run)
    return theory.shortcut_trace(steps, algorithm, truth, every=every, equations=equations)


SETTINGS = {
    "closed form": {},
    "closed form with a ridge": {"ridge": 1.0},
    "joint": {"solver": lf.ClosedForm(order="joint"), "ridge": 1.0},
    "gradient": {"solver": lf.GradientSteps(shortcut_step_size=0.01)},
}


def equations(trace):
    """Return the findings of `experiments.shortcut.shortcut_bound` on a trace of (2) to (5)."""
    series = {name: lf.LabeledArray(values, round=trace.rounds) for name, values in trace.series.items()}
    rows = lf.Table([{"method": shortcut_bound.CLOSED, "noise_std": 0.0, **series}])
    return judged(shortcut_bound.CLAIMS[:3], {"terms": rows})


FIELDS = {"claim": "It holds", "setting": "here", "statistic": "largest violation", "source": "our prediction"}


def split(trace):
    """Return the finding on the identities (19) to (21)."""
    return judge_identity(trace.identity, tolerance=theory.IDENTITY_TOLERANCE, **FIELDS)


def bound(trace):
    """Return the finding on the bound (22)."""
    return theory.judge_bound(trace.distance, trace.bound, **FIELDS)


@pytest.mark.long
@pytest.mark.parametrize("noise_std", [0.0, 0.3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_bound_holds_in_every_round_and_is_tight(setting, noise_std):
    algorithm = algorithm_of(2, step_size=0.3, init=lf.AtDistance(0.5), **SETTINGS[setting])
    problem = made(30, 10, 2, noise_std=noise_std)
    trace = traced(algorithm, problem, lf.FixedSamples(25), participation=0.5)
    assert trace.distance.shape == trace.bound.shape == (3, 30)
    assert trace.identity.max() < EXACT
    assert (trace.distance <= trace.bound * (1 + EXACT)).all()
    assert (trace.bound < 3 * trace.distance).mean() > 0.5
    assert (trace.noise > 1e-6).any() == (noise_std > 0)
    assert split(trace).verdict is Verdict.HOLDS
    assert bound(trace).verdict is Verdict.HOLDS
    whole = lf.simulate(
        algorithm, problem, data=lf.FixedSamples(25), rounds=30, trials=3, seed=3, engine="explicit", participation=0.5
    )
    np.testing.assert_allclose(trace.distance, whole.metrics["subspace_distance"][:, 1:], rtol=1e-9)
    thin = traced(algorithm, problem, lf.FixedSamples(25), participation=0.5, every=7)
    assert thin.rounds.tolist() == [7, 14, 21, 28]
    np.testing.assert_array_equal(thin.shortcut, trace.shortcut[:, 6::7])


def test_a_trace_has_the_terms_of_every_recorded_round():
    algorithm, problem = algorithm_of(2, step_size=0.3), made(6, 8, 2, noise_std=0.5)
    rounds = seen_rounds(algorithm, problem, lf.FixedSamples(20), participation=0.5)
    trace = traced(
        algorithm, problem, lf.FixedSamples(20), rounds=5, trials=2, every=2, equations=True, participation=0.5
    )
    assert trace.rounds.tolist() == [2, 4]
    for column, r in enumerate(rounds[1::2]):
        terms = r.bound()._asdict()
        gaps = [r.split().gap, r.split_outside().gap, r.split_in_terms().gap]
        terms |= {"identity": np.max(gaps, axis=0), "heads": r.head_update().gap}
        terms |= {"printed": r.head_update(sign="printed").gap, "shortcuts": r.shortcut_equation().gap}
        assert set(terms) == set(trace.series)
        for name, values in terms.items():
            np.testing.assert_allclose(trace.series[name][:, column], values, rtol=1e-9, atol=1e-12)
    whole = traced(algorithm, problem, lf.FixedSamples(20), rounds=5, trials=2, participation=0.5)
    assert whole.rounds.tolist() == [1, 2, 3, 4, 5]
    assert whole.heads is whole.printed is whole.shortcuts is None


def test_R_can_shrink_what_it_normalises():
    trace = traced(algorithm_of(2, step_size=0.3, init=lf.AtDistance(0.5)), made(30, 10, 2), lf.FixedSamples(25))
    assert trace.inverse.max() > 1.3
    ridge = algorithm_of(2, step_size=0.3, init=lf.AtDistance(0.5), solver=lf.ClosedForm(order="joint"), ridge=1.0)
    assert traced(ridge, made(30, 10, 2), lf.FixedSamples(25)).inverse.max() < 1.01


def test_judges_see_failures():
    trace = traced(algorithm_of(2), made(6, 8, 2), lf.FixedSamples(20), rounds=3)
    broken = dataclasses.replace(trace, distance=trace.bound * 1.01)
    assert bound(broken).verdict is Verdict.VIOLATED
    distance, identity = trace.distance.copy(), trace.identity.copy()
    distance[1, 2], identity[1, 2] = 1.01 * trace.bound[1, 2], 1e-9  # one round of one trial
    assert bound(dataclasses.replace(trace, distance=distance)).verdict is Verdict.VIOLATED
    assert split(dataclasses.replace(trace, identity=identity)).verdict is Verdict.VIOLATED
    loose = dataclasses.replace(trace, contraction=trace.contraction + 9.0)
    assert bound(loose).verdict is Verdict.VACUOUS
    assert split(dataclasses.replace(trace, identity=trace.identity + 1e-9)).verdict is Verdict.VIOLATED
    nothing = dataclasses.replace(trace, identity=np.full_like(trace.identity, np.nan))
    assert split(nothing).verdict is Verdict.VACUOUS


def test_the_equations_are_judged_by_each_trials_worst_round():
    trace = traced(algorithm_of(2), made(6, 8, 2), lf.FixedSamples(20), rounds=4, equations=True)
    found = {claim.claim.split(" is ")[0]: claim for claim in equations(trace)}
    assert [claim.verdict for claim in found.values()] == [Verdict.HOLDS, Verdict.VIOLATED, Verdict.HOLDS]
    assert found["Equation (18)"].detail == "the worst of 3 trials, 3 values"
    shortcuts = trace.shortcuts.copy()
    shortcuts[1, 2], shortcuts[1, 3] = 1e-3, np.nan  # before it diverges
    broken = equations(dataclasses.replace(trace, shortcuts=shortcuts))
    assert [claim.verdict for claim in broken] == [Verdict.HOLDS, Verdict.VIOLATED, Verdict.VIOLATED]
    for solver in (lf.ClosedForm(order="gauss-seidel"), lf.GradientSteps()):
        other = dataclasses.replace(algorithm_of(2), solver=solver)
        with pytest.raises(ValueError, match=r"equations = True requires solver = ClosedForm\(\)"):
            traced(other, made(6, 8, 2), lf.FixedSamples(20), rounds=1, equations=True)


def test_a_diverged_trial_leaves_nan_and_the_others_alone():
    problem, algorithm = made(6, 8, 2), algorithm_of(2)
    truth = problem.truth(3, range(2))

    def steps(alive):
        run = {"data": lf.FixedSamples(20), "rounds": 4, "trials": 2, "seed": 3, "engine": "explicit"}
        for step in lf.iterate(algorithm, problem, **run):
            yield dataclasses.replace(step, alive=np.array([True, alive or step.number < 3]))

    whole, cut = (theory.shortcut_trace(steps(alive), algorithm, truth) for alive in (True, False))
    for name, one in whole.series.items():
        other = cut.series[name]
        assert np.isnan(other[1, 2:]).all()
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1, :2], other[1, :2])
    assert bound(cut).verdict is bound(whole).verdict
    assert split(cut).verdict is Verdict.HOLDS


def test_a_trace_refuses_a_refit_and_nothing():
    problem, refits = made(6, 8, 2), algorithm_of(2, refit=True)
    truth = problem.truth(3, range(1))
    with pytest.raises(ValueError, match="refit = True"):
        theory.shortcut_trace([], refits, truth)
    with pytest.raises(ValueError, match="steps must contain at least one round"):
        theory.shortcut_trace([], algorithm_of(2), truth)


# --- population ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("ridge", [0.05, 1.0, 20.0])
def test_at_population_the_joint_ridge_follows_oja(ridge, participation):
    problem = made(8, 7, 2)
    data = lf.GivenSamples.population(problem, trials=2, seed=3)
    algorithm = algorithm_of(2, solver=lf.ClosedForm(order="joint"), ridge=ridge)
    for r in seen_rounds(algorithm, problem, data, participation=participation):
        sides = r.oja()
        assert sides.gap.max() < 1e-12
        assert np.abs(sides.left).max() > 1e-4
    stale = seen_rounds(
        algorithm_of(2, solver=lf.ClosedForm(order="gauss-seidel"), ridge=ridge), problem, data, rounds=2
    )[1]
    assert stale.oja().gap.min() > 1e-3
    sampled = seen_rounds(algorithm, problem, lf.FixedSamples(20), rounds=1, participation=participation)[0]
    assert sampled.oja().gap.min() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("order", ["joint", "gauss-seidel", "jacobi"])
def test_the_ridge_ends_at_the_top_subspace_of_Phi(order):
    problem = made(8, 7, 2)
    data = lf.GivenSamples.population(problem, trials=2, seed=3)
    algorithm = algorithm_of(2, solver=lf.ClosedForm(order=order), ridge=1.0, step_size=0.3)
    last = seen_rounds(algorithm, problem, data, rounds=500)[-1]
    truth = problem.truth(3, range(2))
    top = np.linalg.svd(truth.dense().mT)[0][..., :2]
    assert lf.subspace_distance(last.B_new, top).max() < 1e-8
    expected = theory.top_subspace_distance(truth, 2)
    np.testing.assert_allclose(last.bound().distance, expected, atol=1e-8)
    assert expected.min() > 0.01
    # Where B stands still the first and third term's matrices balance.
    assert np.abs(last._outside(last._averaged(last.Q))).max() < 1e-8


def hand_made(heads, lengths, n=40):
    """Return a truth with ``B*'S* = 0``, heads and shortcuts exactly uncorrelated, of given second moments."""
    k, extra = len(heads), len(lengths)
    signs = np.linalg.qr(np.random.default_rng(0).standard_normal((n, k + extra)))[0] * np.sqrt(n)
    B = np.eye(k + extra)[:, :k]
    S = np.zeros((n, k + extra))
    S[:, k:] = signs[:, k:] * np.sqrt(lengths)
    return Truth(B=B[None], W=(signs[:, :k] * np.sqrt(heads))[None], S=S[None])


def test_the_eigenvalue_condition_decides_for_uncorrelated_shortcuts_outside_the_span():
    for lengths, visible in (([0.9, 0.5, 0.1], True), ([1.1, 0.5, 0.1], False)):
        truth = hand_made([2.0, 1.0], lengths)
        condition = theory.shortcut_spectrum_hypothesis(truth)
        assert (condition.left, condition.right) == pytest.approx((lengths[0], 1.0))
        assert condition.holds is visible
        distance = theory.top_subspace_distance(truth, 2)[0]
        assert distance < 1e-12 if visible else distance > 1 - 1e-12


def test_without_orthogonality_the_condition_is_not_necessary_and_correlation_defeats_it():
    # s_i* inside the span of B* hides nothing, however long.
    inside = hand_made([2.0, 1.0], [0.5, 0.1])
    inside = dataclasses.replace(inside, S=inside.S + 9.0 * np.roll(inside.W, 1, axis=1) @ inside.B.mT)
    assert not theory.shortcut_spectrum_hypothesis(inside).holds
    # s_i* that follow the heads turn the top subspace, however short.
    follows = hand_made([2.0, 1.0], [0.1, 0.1])
    turned = np.eye(4)[:, 2:]
    follows = dataclasses.replace(follows, S=0.2 * follows.W @ turned.T[None])
    assert theory.shortcut_spectrum_hypothesis(follows).holds
    assert theory.top_subspace_distance(follows, 2)[0] > 0.1
    only = Truth(B=inside.B, W=inside.W, S=9.0 * inside.W @ inside.B.mT)
    assert not theory.shortcut_spectrum_hypothesis(only).holds
    assert theory.top_subspace_distance(only, 2)[0] < 1e-12


def test_the_condition_names_the_worst_trial_and_few_clients_fail_it():
    one, two = hand_made([2.0, 1.0], [0.3, 0.1]), hand_made([3.0, 0.5], [0.4, 0.1])
    both = Truth(**{name: np.concatenate([getattr(one, name), getattr(two, name)]) for name in ("B", "W", "S")})
    found = theory.shortcut_spectrum_hypothesis(both)
    assert (found.left, found.right) == pytest.approx((0.4, 0.5))
    assert theory.top_subspace_distance(both, 2).shape == (2,)
    scaled = dataclasses.replace(one, B=2 * one.B, W=one.W / 2)
    assert theory.shortcut_spectrum_hypothesis(scaled).right == pytest.approx(1.0)
    single = made(1, 5, 2).truth(0, range(1))
    assert theory.shortcut_spectrum_hypothesis(single).right == 0.0
    with pytest.raises(ValueError, match="must have a shared part"):
        theory.top_subspace_distance(Truth(S=one.S), 2)
    with pytest.raises(ValueError, match="shared part and shortcuts"):
        theory.shortcut_spectrum_hypothesis(Truth(B=one.B, W=one.W))


# --- how fast (2) to (5) lose a B near B* --------------------------------------------------------------------

SIZES = {"n_clients": 50, "n_samples": 40, "dim": 20, "rank": 2, "step_size": 0.3}


def test_the_predicted_loss_is_where_mean_and_wander_pass_the_level():
    t = (theory.shortcut_loss_rounds(0.3, **SIZES) + 1.0) / 2.0
    rate, wander = 0.3 * 3 / (40 * 0.7), 0.3 * np.sqrt(2 / (40 * 50)) * (np.sqrt(18) + np.sqrt(2)) / 0.7
    assert 0.09 * np.exp(2 * rate * t) + (wander * t) ** 2 == pytest.approx(0.25)
    assert theory.shortcut_loss_rounds(0.3, **{**SIZES, "step_size": 1.0}) == 1.0
    assert theory.shortcut_loss_rounds(0.5, **SIZES) == 1.0
    later = [theory.shortcut_loss_rounds(0.3, **{**SIZES, "n_samples": m}) for m in (4 * 10**4, 16 * 10**4)]
    assert later[1] / later[0] == pytest.approx(2.0, rel=0.1)  # the wander alone
    for changes, said in (({"rank": 20}, "rank = 20"), ({"step_size": 0.0}, "step_size"), ({"level": 0.2}, "start")):
        with pytest.raises(ValueError, match=said):
            theory.shortcut_loss_rounds(0.3, **{**SIZES, **changes})


def over_predicted(lost, predicted):
    """Return the finding of `experiments.shortcut.shortcut_lost` on the predicted rounds."""
    row = {"method": shortcut_lost.CLOSED, "kind": shortcut_lost.FIXED, "step_size": 0.3, "start": 0.3, "n_clients": 50}
    (found,) = judged(
        shortcut_lost.CLAIMS[-1:], {"rounds": lf.Table([row | {"lost": lost, "predicted": predicted[0]}])}
    )
    return found


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, Verdict.SUPPORTED), (3.0, Verdict.NOT_SUPPORTED)])
def test_the_predicted_loss_is_judged_to_a_factor_of_two(factor, verdict):
    predicted = np.full(16, 40.0)
    assert over_predicted(factor * (predicted + 1) - 1, predicted).verdict is verdict
    assert over_predicted(predicted * np.inf, predicted).detail == "16 of 16 censored"


@pytest.mark.parametrize("step_size", [0.3, 1.4])
@pytest.mark.parametrize("level", [0.5, 0.8, 1.0])
def test_the_predicted_loss_of_generic_sizes(level, step_size):
    """Also beyond a step of 1, which magnifies as one of the same distance from 1."""
    n, m, d, k, start = 30, 25, 11, 3, 0.2
    sizes = {"n_clients": n, "n_samples": m, "dim": d, "rank": k, "step_size": step_size}
    found = theory.shortcut_loss_rounds(start, level=level, **sizes)
    t, shrunk = (found + 1) / 2, abs(1 - step_size)
    rate = step_size * (k + 1) / (m * shrunk)
    wander = step_size * np.sqrt(k / (m * n)) * (np.sqrt(d - k) + np.sqrt(k)) / shrunk
    reached = start**2 * np.exp(2 * rate * t) + (wander * t) ** 2
    assert reached == pytest.approx(level**2, rel=1e-9) or (found == 1.0 and reached > level**2)
    if level == 0.5:
        assert found == theory.shortcut_loss_rounds(start, **sizes)
    with pytest.raises(ValueError, match="level"):
        theory.shortcut_loss_rounds(start, level=1.01, **sizes)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.02, Verdict.SUPPORTED),
        (1.98, Verdict.SUPPORTED),
        (0.98, Verdict.NOT_SUPPORTED),
        (2.02, Verdict.NOT_SUPPORTED),
    ],
)
def test_the_constant_of_the_predicted_loss_is_between_1_and_2(factor, verdict):
    predicted = np.full(16, 5.0)
    assert over_predicted(factor * (predicted + 1) - 1, predicted).verdict is verdict


def test_a_size_counts_if_fifteen_percent_of_its_runs_ended_before():
    spread = 1 + 0.01 * np.arange(20)
    said = {"claim": "it grows", "setting": "here", "last": 600}
    for ended, kept in ((3, True), (4, False)):
        lost = {m: np.sqrt(m) * spread for m in (10, 20, 40)}
        lost[40][:ended] = np.inf
        found = theory.judge_loss_exponent(lost, 0.5, **said)
        assert (found is not None) == kept
    lost = {m: np.minimum(np.sqrt(m) * spread, 600) for m in (10, 20, 40)}
    assert theory.judge_loss_exponent(lost, 0.5, **said).estimate == pytest.approx(0.5, abs=1e-6)


def test_the_exponent_of_the_loss_leaves_out_sizes_at_which_runs_ended_before():
    spread = 1 + 0.01 * np.arange(16)
    said = {"claim": "it grows", "setting": "here", "last": 600}
    lost = {m: 2 * np.sqrt(m) * spread - 1 for m in (10, 20, 40)}
    assert theory.judge_loss_exponent(lost, 0.5, every=2, **said).verdict is Verdict.SUPPORTED
    assert theory.judge_loss_exponent(lost, 1.0, every=2, **said).verdict is Verdict.NOT_SUPPORTED
    more = {**lost, 160: np.where(np.arange(16) < 4, np.inf, 300.0)}
    found = theory.judge_loss_exponent(more, 0.5, every=2, **said)
    assert found.detail == "censored at 160, left out"
    assert found.estimate == theory.judge_loss_exponent(lost, 0.5, every=2, **said).estimate
    assert theory.judge_loss_exponent({m: lost[m] for m in (10, 20)}, 0.5, **said) is None
    steps = {eta: 10 * (1 - eta) / eta * spread for eta in (0.03, 0.1, 0.3)}
    assert theory.judge_loss_exponent(steps, -1.0, in_step=True, **said).estimate == pytest.approx(-1.0)
