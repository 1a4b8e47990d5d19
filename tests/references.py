"""Plain loops, one client at a time, written from the pseudocode: what the vectorised package must equal.

Every function takes one trial. Samples are sequences with one array per client, so sample counts may differ.
"""

import numpy as np
import scipy.linalg

import linfed as lf

RANK_TOLERANCE = 1e-12
EXACT = lf.ExactHeads()


def qr_positive(A):
    Q, R = scipy.linalg.qr(A, mode="economic")
    signs = np.where(np.diag(R) < 0, -1.0, 1.0)
    return Q * signs, signs[:, None] * R


def least_squares(A, y, ridge=0.0):
    """Return the minimiser of ``(1/2m)||A v - y||^2 + (ridge/2)||v||^2``, of minimum norm."""
    m, width = A.shape
    if ridge > 0:
        return np.linalg.solve(A.T @ A + ridge * m * np.eye(width), A.T @ y) if m else np.zeros(width)
    return np.linalg.lstsq(A, y, rcond=RANK_TOLERANCE)[0]


def gradient(X, y, theta):
    return X.T @ (X @ theta - y) / max(len(y), 1)


def loss(X, y, theta):
    return np.sum((X @ theta - y) ** 2) / (2 * max(len(y), 1))


# --- algorithms ----------------------------------------------------------------------------------------------


def found_head(Z, y, w, heads, step_size):
    """Return one client's head at its features Z, from the head w; `step_size` is the algorithm's own."""
    if isinstance(heads, lf.ExactHeads):
        return least_squares(Z, y, heads.ridge)
    for _ in range(heads.steps):
        w = w - (step_size if heads.step_size is None else heads.step_size) * gradient(Z, y, w)
    return w


def fedrep_round(
    B,
    W,
    X,
    y,
    active,
    *,
    step_size,
    heads=EXACT,
    representation_steps=1,
    orthonormalize=True,
    aggregate="mean",
    rotate_heads=False,
):
    """Return (B, W) after one round; X[j], y[j] are the samples of client active[j]."""
    W = W.copy()
    local = []
    for i, X_i, y_i in zip(active, X, y, strict=True):
        Z = X_i @ B
        W[i] = found_head(Z, y_i, W[i], heads, step_size)
        B_i = B
        # Without a residual B_i stays put; rounding alone would grow with each local step of a large head.
        fitted = heads == EXACT and np.linalg.matrix_rank(Z) == len(y_i)
        for _ in range(0 if fitted else representation_steps):
            B_i = B_i - step_size * np.outer(gradient(X_i, y_i, B_i @ W[i]), W[i])
        local.append(B_i)
    moved = sum(local) / len(local) if aggregate == "mean" else B + sum(B_i - B for B_i in local)
    if not orthonormalize:
        return moved, W
    Q, R = qr_positive(moved)
    if rotate_heads:
        W = np.array([R @ w for w in W])
    return Q, W


def fedrep(X, y, participants, B, **options):
    """Return the states (B, W) of a run on fixed local data, the initial one first."""
    states = [(B, np.zeros((len(X), B.shape[1])))]
    for active in participants:
        chosen = [X[i] for i in active], [y[i] for i in active]
        states.append(fedrep_round(*states[-1], *chosen, active, **options))
    return states


def local_only(X, y, participants, ridge=0.0):
    """Return the predictors (n, d) of a run on fixed local data, the initial ones first."""
    states = [np.zeros((len(X), X[0].shape[1]))]
    for active in participants:
        Theta = states[-1].copy()
        for i in active:
            Theta[i] = least_squares(X[i], y[i], ridge)
        states.append(Theta)
    return states


def shares(y, weights="uniform"):
    """Return the weights of participants with the labels y: equal, or in proportion to the sample counts."""
    parts = [1.0 if weights == "uniform" else float(len(y_i)) for y_i in y]
    return [part / sum(parts) for part in parts]


def fedavg_round(theta, X, y, *, step_size, local_steps=1, server_step_size=1.0, weights="uniform"):
    """Return theta after one round of the one-layer model; X[j], y[j] are the samples of participant j."""
    moved = theta
    for X_i, y_i, share in zip(X, y, shares(y, weights), strict=True):
        theta_i = theta
        for _ in range(local_steps):
            theta_i = theta_i - step_size * gradient(X_i, y_i, theta_i)
        moved = moved + server_step_size * share * (theta_i - theta)
    return moved


def two_layer_steps(X_i, y_i, B, w, step_size, steps):
    """Return (B_i, w_i) after simultaneous gradient steps of one client on both layers."""
    for _ in range(steps):
        g = gradient(X_i, y_i, B @ w)
        B, w = B - step_size * np.outer(g, w), w - step_size * (B.T @ g)
    return B, w


def fedavg_two_layer_round(B, w, X, y, *, step_size, local_steps=1, server_step_size=1.0, weights="uniform"):
    """Return (B, w) after one round of the two-layer model, whose head w all clients share."""
    moved_B, moved_w = B, w
    for X_i, y_i, share in zip(X, y, shares(y, weights), strict=True):
        B_i, w_i = two_layer_steps(X_i, y_i, B, w, step_size, local_steps)
        moved_B = moved_B + server_step_size * share * (B_i - B)
        moved_w = moved_w + server_step_size * share * (w_i - w)
    return moved_B, moved_w


def fine_tuned(B, w, X, y, heads, step_size):
    """Return each client's head (n, k), from the shared w on its own samples."""
    return np.array([found_head(X_i @ B, y_i, w, heads, step_size) for X_i, y_i in zip(X, y, strict=True)])


def fedavg(X, y, participants, B=None, *, fine_tune=None, **options):
    """Return the states of a run, the initial one first, the fine-tuned one last: theta, or (B, W)."""
    if B is None:
        states = [np.zeros(X[0].shape[1])]
        for active in participants:
            states.append(fedavg_round(states[-1], [X[i] for i in active], [y[i] for i in active], **options))
        return states
    pairs = [(B, np.zeros(B.shape[1]))]
    for active in participants:
        pairs.append(fedavg_two_layer_round(*pairs[-1], [X[i] for i in active], [y[i] for i in active], **options))
    states = [(B, w[None]) for B, w in pairs]
    if fine_tune is not None:
        states.append((pairs[-1][0], fine_tuned(*pairs[-1], X, y, fine_tune, options["step_size"])))
    return states


def fedper_round(B, W, X, y, active, *, step_size, local_steps=1, server_step_size=1.0):
    """Return (B, W) after one round; X[j], y[j] are the samples of client active[j]."""
    W, moved = W.copy(), B
    for i, X_i, y_i in zip(active, X, y, strict=True):
        B_i, W[i] = two_layer_steps(X_i, y_i, B, W[i], step_size, local_steps)
        moved = moved + server_step_size * (B_i - B) / len(active)
    return moved, W


def fedper(X, y, participants, B, **options):
    """Return the states (B, W) of a run on fixed local data, the initial one first."""
    states = [(B, np.zeros((len(X), B.shape[1])))]
    for active in participants:
        states.append(fedper_round(*states[-1], [X[i] for i in active], [y[i] for i in active], active, **options))
    return states


def oracle(X, y, participants, B, ridge=0.0):
    """Return the states (B, W) of a run at the true B, the initial one first."""
    states = [(B, np.zeros((len(X), B.shape[1])))]
    for active in participants:
        W = states[-1][1].copy()
        for i in active:
            W[i] = least_squares(X[i] @ B, y[i], ridge)
        states.append((B, W))
    return states


def personalised(X, y, B, ridge):
    """Return heads (n, k) and full-dimensional parts (n, d) that minimise each client's loss at B, together.

    The loss is ``(1/2m) ||X_i (B w + s) - y_i||^2 + (ridge/2) ||s||^2``; of all minimisers the one of minimum norm.
    """
    W, S = [], []
    for X_i, y_i in zip(X, y, strict=True):
        m, (d, k) = len(y_i), B.shape
        rows = np.block([[X_i @ B, X_i], [np.zeros((d, k)), np.sqrt(ridge * m) * np.eye(d)]])
        both = least_squares(rows, np.concatenate([y_i, np.zeros(d)]))
        W.append(both[:k])
        S.append(both[k:])
    return np.array(W), np.array(S)


def stacked_least_squares(X, y, weights):
    """Return the theta of minimum norm that minimises ``sum_i weights_i (1/2m_i) ||X_i theta - y_i||^2``."""
    scales = [np.sqrt(weight / max(len(y_i), 1)) for weight, y_i in zip(weights, y, strict=True)]
    rows = np.concatenate([scale * X_i for scale, X_i in zip(scales, X, strict=True)])
    labels = np.concatenate([scale * y_i for scale, y_i in zip(scales, y, strict=True)])
    return np.linalg.lstsq(rows, labels, rcond=RANK_TOLERANCE)[0]


def pooled(X, y, participants, weights="uniform"):
    """Return theta of each round, 0 first: the least squares of the round's participants."""
    states = [np.zeros(X[0].shape[1])]
    for active in participants:
        chosen = [y[i] for i in active]
        states.append(stacked_least_squares([X[i] for i in active], chosen, shares(chosen, weights)))
    return states


def moments(X, y, k):
    """Return an orthonormal basis of the top-k eigenspace of ``(1/n) sum_i (1/m_i) sum_j y_ij^2 x_ij x_ij'``."""
    d = X[0].shape[1]
    M = np.zeros((d, d))
    for X_i, y_i in zip(X, y, strict=True):
        for x, label in zip(X_i, y_i, strict=True):
            M += label**2 * np.outer(x, x) / (len(y_i) * len(X))
    return np.linalg.eigh(M)[1][:, -k:]


# --- metrics, from dense arrays ------------------------------------------------------------------------------


def subspace_distance(A, B):
    """Return the sine of the largest principal angle, through an orthonormal basis of the larger one's complement."""
    larger, smaller = (A, B) if A.shape[1] >= B.shape[1] else (B, A)
    complement = scipy.linalg.null_space(larger.T)
    return scipy.linalg.svdvals(complement.T @ scipy.linalg.orth(smaller))[0] if complement.size else 0.0


def top_left_subspace(Phi, k):
    """Return ``U_k`` of ``[phi_1 .. phi_n]``, for Phi (n, d)."""
    return scipy.linalg.svd(Phi.T, full_matrices=False)[0][:, :k]


def parameter_error(Theta, Phi):
    return np.sqrt(sum(np.sum((theta - phi) ** 2) for theta, phi in zip(Theta, Phi, strict=True)))


def mean_client_error(Theta, Phi):
    return np.mean([np.linalg.norm(theta - phi) for theta, phi in zip(Theta, Phi, strict=True)])


def client_risks(Theta, Phi, covariance, noise_std):
    squares = [(theta - phi) @ covariance @ (theta - phi) for theta, phi in zip(Theta, Phi, strict=True)]
    return 0.5 * np.array(squares) + 0.5 * noise_std**2


def risk(Theta, Phi, covariance, noise_std):
    return np.mean(client_risks(Theta, Phi, covariance, noise_std))
