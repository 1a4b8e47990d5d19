"""The shortcut draft's equations on recorded rounds: its identities, its slips and lemmas, and the stall."""

import dataclasses
import itertools

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.linalg import spectral_norm
from linfed.problems import Truth
from linfed.theory import shortcut as theory
from tests import references as ref
from tests.helpers import assert_one_line, rounds_of
from tests.theory.shortcut.made import algorithm_of, made, seen_rounds

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


def worst(rounds, name):
    return max(EQUATIONS[name](r).gap.max() for r in rounds)


@pytest.mark.long
@pytest.mark.parametrize("fresh", [False, True], ids=["fixed", "fresh"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@pytest.mark.parametrize("shape", SHAPES)
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
    rounds = seen_rounds(algorithm_of(2), made(6, 8, 2), lf.FreshSamples(12), participation=0.5, n_rounds=8)
    before = [np.abs(r.W_old).max(axis=-1) for r in rounds[2:]]
    assert any((sizes > 0).any() and (sizes == 0).any() for sizes in before)  # newcomers beside others
    carried = dataclasses.replace(rounds[-1], S_old=np.zeros_like(rounds[-1].S_old))
    assert carried.head_update().gap.min() > 1e-3


def test_rounds_of_other_engines_and_of_unequal_samples_answer_too():
    problem = made(5, 6, 2, noise_std=0.4)
    for data in (lf.FixedSamples(20), lf.FreshSamples(20), lf.FixedSamples(20, in_law=True)):
        rounds = seen_rounds(algorithm_of(2), problem, data, engine="compressed")
        assert all(worst(rounds, name) < EXACT for name in EQUATIONS)
    rng, phi = np.random.default_rng(0), problem.truth(3, range(1)).dense()[0]
    X = [rng.standard_normal((m, 6)) for m in (3, 5, 9, 4, 7)]
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


# --- the definitions, block by block -----------------------------------------------------------------------------


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
        for r in seen_rounds(algorithm_of(2), made(5, 6, 2), lf.FreshSamples(m), n_rounds=2):
            big, least, _ = r.smallest_eigenvalues()
            np.testing.assert_allclose(big, least, rtol=1e-10)
            assert (least > 0).all()
            for alpha in (0.2, 0.5):
                gram = r.extended_gram(alpha)
                assert gram.shape[-2:] == (8, 8)
                values = np.linalg.eigvalsh(gram)
                assert (np.abs(values[..., :2]) < 1e-13 * values[..., -1:]).all()
                assert (np.linalg.matrix_rank(gram, hermitian=True) == min(m, 6)).all()


# --- what must fail ----------------------------------------------------------------------------------------------


def test_the_printed_sign_fails():
    for r in seen_rounds(algorithm_of(2), made(6, 8, 2), lf.FreshSamples(20)):
        assert r.head_update(sign="printed").gap.min() > 0.1
        assert r.head_equation(sign="printed").gap.min() > 0.1
        np.testing.assert_allclose(r.h(sign="printed"), -r.h())


def test_without_shortcuts_there_is_no_sign_to_get_wrong_in_the_first_round():
    rounds = seen_rounds(algorithm_of(2), made(6, 8, 2, shortcut_norm=0.0), lf.FreshSamples(20), n_rounds=1)
    assert rounds[0].head_update(sign="printed").gap.max() < EXACT


def test_the_noises_terms_are_needed():
    for r in seen_rounds(algorithm_of(2), made(6, 8, 2, noise_std=0.5), lf.FreshSamples(12)):
        deaf = dataclasses.replace(r, noise=np.zeros_like(r.noise))
        for name in ("(7)", "(9), (16), (17)", "(18)", "(19)"):
            assert EQUATIONS[name](deaf).gap.min() > 1e-4, name


def test_a_perturbed_representation_or_another_step_fails():
    r = seen_rounds(algorithm_of(2), made(6, 8, 2), lf.FreshSamples(20), n_rounds=1)[0]
    moved = r.B_new.copy()
    moved[:, 0, 0] += 1e-6
    for wrong in (dataclasses.replace(r, B_new=moved), dataclasses.replace(r, step_size=0.1001)):
        assert min(wrong.split().gap.min(), wrong.split_outside().gap.min(), wrong.split_in_terms().gap.min()) > 1e-8
    flipped = dataclasses.replace(r, B_new=-r.B_new)  # the QR of other signs
    assert flipped.split().gap.min() > 0.1


def test_another_truth_fails():
    problem, algorithm = made(6, 8, 2), algorithm_of(2)
    (step,) = rounds_of(algorithm, problem, data=lf.FixedSamples(20), n_rounds=1, seed=3, engine="explicit")
    right = problem.truth(3, range(1))
    other = dataclasses.replace(right, W=-right.W)
    r = theory.ShortcutRound.of(step, algorithm, other)
    # What the truth does not explain is taken for noise: only its size tells.
    assert r.head_update().gap.max() < EXACT
    assert np.abs(r.noise).max() > 0.1
    assert np.abs(theory.ShortcutRound.of(step, algorithm, right).noise).max() < 1e-13


def test_what_the_draft_does_not_speak_of_is_refused():
    problem, algorithm = made(6, 8, 2), algorithm_of(2)
    truth = problem.truth(3, range(1))

    def seen(which=algorithm, truth=truth, m=20):
        step = next(rounds_of(which, problem, data=lf.FixedSamples(m), n_rounds=1, seed=3, engine="explicit"))
        return theory.ShortcutRound.of(step, which, truth)

    assert_one_line(lambda: seen(algorithm_of(2, representation_steps=2)), ["representation_steps = 2 must be 1"])
    for wrong in (made(6, 8, 3).truth(3, range(1)), problem.truth(3, range(2)), Truth(S=truth.dense())):
        assert_one_line(lambda wrong=wrong: seen(truth=wrong), ["truth has a B* of shape"])
    assert_one_line(lambda: seen(truth=dataclasses.replace(truth, B=2 * truth.B)), ["not orthonormal"])
    short = seen(m=1)
    assert max(short.head_equation().gap.max(), short.stall().gap.max(), short.split().gap.max()) < EXACT
    assert_one_line(short.head_update, ["1 samples, fewer than k = 2"])
    for name, option in (("h", {"sign": "plus"}), ("blocks", {"reading": "x"}), ("shortcut_equation", {"head": "x"})):
        assert_one_line(lambda name=name, option=option: getattr(short, name)(**option), ["allowed"])


# --- the stall ---------------------------------------------------------------------------------------------------


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
    rounds = seen_rounds(algorithm_of(2), made(6, 6, 2, noise_std=noise_std), lf.FixedSamples(m), n_rounds=6)
    for previous, r in itertools.pairwise(rounds):
        assert r.head_cycle(previous).gap.max() < EXACT
    size = np.abs(rounds[0].W).max()
    assert all(np.abs(r.W).max() < 1e-9 * size for r in rounds[1::2])  # from 0, every second head is 0
    for r in rounds[::2]:  # while B moves
        np.testing.assert_allclose(r.W, rounds[0].W, atol=1e-9 * size)
        assert np.abs(r.B_new - r.B).max() > 1e-3


def test_the_cycle_needs_the_same_samples_where_there_is_noise_and_the_same_clients():
    problem = made(6, 6, 2, noise_std=0.5)
    one, two = seen_rounds(algorithm_of(2), problem, lf.FreshSamples(20), n_rounds=2)
    assert two.head_cycle(one).gap.min() > 1e-3
    one, two = seen_rounds(algorithm_of(2), problem, lf.FixedSamples(20), n_rounds=2, participation=0.5)
    with pytest.raises(ValueError, match="other participants"):
        two.head_cycle(one)


def test_at_population_the_span_stands_still_and_the_heads_are_a_2_cycle():
    problem = made(6, 6, 2)
    data = lf.GivenSamples.population(problem, trials=2, seed=3)
    rounds = seen_rounds(algorithm_of(2, step_size=0.3), problem, data, n_rounds=40)
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
