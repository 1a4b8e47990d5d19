"""Plain loops, one client at a time, written from the pseudocode: what the vectorised package must equal.

Every function takes one trial. Samples are sequences with one array per client, so sample counts may differ.
"""

import numpy as np
import scipy.linalg

RANK_TOLERANCE = 1e-12


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


def fedrep_round(
    B,
    W,
    X,
    y,
    active,
    *,
    step_size,
    head_solver="exact",
    head_steps=1,
    head_step_size=None,
    head_ridge=0.0,
    representation_steps=1,
    orthonormalize=True,
    aggregate="mean",
    rotate_heads=False,
):
    """Return (B, W) after one round; X[j], y[j] are the samples of client active[j]."""
    W = W.copy()
    alpha = step_size if head_step_size is None else head_step_size
    local = []
    for i, X_i, y_i in zip(active, X, y, strict=True):
        Z = X_i @ B
        if head_solver == "exact":
            W[i] = least_squares(Z, y_i, head_ridge)
        else:
            for _ in range(head_steps):
                W[i] = W[i] - alpha * gradient(Z, y_i, W[i])
        B_i = B
        # Without a residual B_i stays put; rounding alone would grow with each local step of a large head.
        fitted = head_solver == "exact" and not head_ridge and np.linalg.matrix_rank(Z) == len(y_i)
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


def risk(Theta, Phi, covariance, noise_std):
    risks = [(theta - phi) @ covariance @ (theta - phi) for theta, phi in zip(Theta, Phi, strict=True)]
    return 0.5 * np.mean(risks) + 0.5 * noise_std**2
