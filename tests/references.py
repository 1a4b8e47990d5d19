"""Plain loops, one client at a time, written from the pseudocode: what the vectorised package must equal.

Every function takes one trial. Samples are sequences with one array per client, so sample counts may differ.
"""

import itertools
from fractions import Fraction

import numpy as np
import scipy.linalg
import scipy.optimize

import linfed as lf

RANK_TOLERANCE = 1e-12
EXACT = lf.ExactHeads()
GRADIENT_STEPS = lf.GradientSteps()


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


def reduced_rank_regression(X, Y, rank):
    """Return the Theta (d, n) of rank `rank` that minimises ``||X Theta - Y||_F`` for X (m, d) of full column rank."""
    Theta = np.linalg.lstsq(X, Y, rcond=None)[0]
    V = np.linalg.svd(X @ Theta)[2][:rank].T
    return Theta @ V @ V.T


def fractions(values):
    """Return an array of floats as exact fractions."""
    return np.vectorize(Fraction, otypes=[object])(values)


def exact_pseudo_inverse(X):
    """Return the pseudo-inverse of a matrix of fractions, from its factors of full rank, and the rank."""

    def reduced(A):
        A, pivots = A.copy(), []
        for column in range(A.shape[1]):
            row = len(pivots)
            nonzero = np.flatnonzero(A[row:, column])
            if nonzero.size:
                A[[row, row + nonzero[0]]] = A[[row + nonzero[0], row]]
                A[row] = A[row] / A[row, column]
                others = np.arange(len(A)) != row
                A[others] = A[others] - np.outer(A[others, column], A[row])
                pivots.append(column)
        return A[: len(pivots)], pivots

    def inverse(A):
        return reduced(np.hstack([A, fractions(np.eye(len(A)))]))[0][:, len(A) :]

    right, pivots = reduced(X)  # X = left @ right
    if not pivots:
        return 0 * X.T, 0
    left = X[:, pivots]
    return right.T @ inverse(right @ right.T) @ inverse(left.T @ left) @ left.T, len(pivots)


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
    weights=None,
    rotate_heads=False,
    disjoint_samples=False,
    whiten=None,
    clip=None,
    noise=0.0,
):
    """Return (B, W) after one round; X[j], y[j] are samples of client active[j]; `noise` is that of the message."""
    W = W.copy()
    local = []
    factors = np.ones(len(W)) if weights is None else np.array(weights) / np.mean(weights)
    halves = [_halves(*one) if disjoint_samples else (one, one) for one in zip(X, y, strict=True)]
    pooled = sum(X_i.T @ X_i / len(y_i) for _, (X_i, y_i) in halves) / len(halves)
    for i, ((X_a, y_a), (X_i, y_i)) in zip(active, halves, strict=True):
        Z = X_a @ B
        W[i] = found_head(Z, y_a, W[i], heads, step_size)
        B_i = B
        if whiten is not None:
            covariances = {"own": X_i.T @ X_i / len(y_i), "pooled": pooled}
            covariance = covariances[whiten] if isinstance(whiten, str) else whiten[i]
            message = np.linalg.solve(covariance, gradient(X_i, y_i, B @ W[i]))
            local.append(B - step_size * factors[i] * np.outer(message, W[i]))
            continue
        # Without a residual B_i stays put; rounding alone would grow with each local step of a large head.
        fitted = heads == EXACT and not disjoint_samples and np.linalg.matrix_rank(Z) == len(y_i)
        for _ in range(0 if fitted else representation_steps):
            B_i = B_i - step_size * np.outer(gradient(X_i, y_i, B_i @ W[i]), W[i])
        length = np.linalg.norm(B - B_i) / step_size
        clipped = 1.0 if clip is None or length <= clip else clip / length
        local.append(B + factors[i] * clipped * (B_i - B))
    moved = B + sum(B_i - B for B_i in local) if aggregate == "sum" else middle(local, aggregate)
    moved = moved - step_size * noise
    if not orthonormalize:
        return moved, W
    Q, R = qr_positive(moved)
    if rotate_heads:
        W = np.array([R @ w for w in W])
    return Q, W


def middle(values, aggregate="mean"):
    """Return the mean, the median of each entry or the geometric median of arrays of one shape."""
    if aggregate == "mean":
        return sum(values) / len(values)
    if aggregate == "median":
        return np.median(np.array(values), axis=0)
    return geometric_median([value.ravel() for value in values]).reshape(values[0].shape)


def geometric_median(points):
    """Return the point with the smallest sum of distances: one of the points, or by Newton's method with halved steps.

    A point is the minimiser if the unit vectors to the others have a sum of at most its multiplicity.
    """
    points = np.array(points)
    for point in points:
        others = [one for one in points if np.any(one != point)]
        if np.linalg.norm(sum((one - point) / np.linalg.norm(one - point) for one in others)) <= len(points) - len(
            others
        ):
            return point

    def total(at):
        return sum(np.linalg.norm(one - at) for one in points)

    at = points.mean(axis=0) + 1e-3 * (points[0] - points[-1])  # not one of the points
    for _ in range(200):
        slope, curvature = np.zeros(len(at)), np.zeros((len(at), len(at)))
        for one in points:
            r = np.linalg.norm(one - at)
            u = (one - at) / r
            slope, curvature = slope + u, curvature + (np.eye(len(at)) - np.outer(u, u)) / r
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        while total(at + step) > total(at) and np.linalg.norm(step) > 1e-15 * np.linalg.norm(at):
            step = step / 2
        at = at + step
    return at


def fedrep(X, y, participants, B, **options):
    """Return the states (B, W) of a run on fixed local data, the initial one first."""
    states = [(B, np.zeros((len(X), B.shape[1])))]
    for active in participants:
        chosen = [X[i] for i in active], [y[i] for i in active]
        states.append(fedrep_round(*states[-1], *chosen, active, **options))
    return states


def compressed(message, u, kept_share=None, levels=None):
    """Return a client's compressed message, entry by entry."""
    out, norm = np.zeros_like(message), np.sqrt((message**2).sum())
    for place in np.ndindex(message.shape):
        g = message[place]
        if kept_share is not None:
            out[place] = g / kept_share if u[place] < kept_share else 0.0
        elif norm > 0:
            low = int(levels * abs(g) / norm)
            up = u[place] >= 1.0 - (levels * abs(g) / norm - low)
            out[place] = np.sign(g) * norm * (low + up) / levels
    return out


def local_round(Theta, X, y, active, *, step_size, local_steps=1, ridge=0.0):
    """Return the predictors (n, d) after gradient steps of clients alone."""
    Theta = Theta.copy()
    for i, X_i, y_i in zip(active, X, y, strict=True):
        for _ in range(local_steps):
            Theta[i] = Theta[i] - step_size * (gradient(X_i, y_i, Theta[i]) + ridge * Theta[i])
    return Theta


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


def fedper_round(B, W, X, y, active, *, step_size, local_steps=1, server_step_size=1.0):
    """Return (B, W) after one round; X[j], y[j] are the samples of client active[j]."""
    W, moved = W.copy(), B
    for i, X_i, y_i in zip(active, X, y, strict=True):
        B_i, W[i] = two_layer_steps(X_i, y_i, B, W[i], step_size, local_steps)
        moved = moved + server_step_size * (B_i - B) / len(active)
    return moved, W


def lgfedavg_round(own, w, X, y, active, *, step_size, local_steps=1, server_step_size=1.0):
    """Return (own, w) after one round: every client's representation B_i (n, d, k), and the head that all share."""
    own, moved = own.copy(), w
    for i, X_i, y_i in zip(active, X, y, strict=True):
        own[i], w_i = two_layer_steps(X_i, y_i, own[i], w, step_size, local_steps)
        moved = moved + server_step_size * (w_i - w) / len(active)
    return own, moved


def fedrod_round(B, w, V, X, y, active, *, personal, step_size, **options):
    """Return (B, w, V) after one round; V (n, k) are the personal heads beside the generic head w."""
    V = V.copy()
    for i, X_i, y_i in zip(active, X, y, strict=True):
        V[i] = found_head(X_i @ B, y_i - X_i @ B @ w, V[i], personal, step_size)
    return *fedavg_two_layer_round(B, w, X, y, step_size=step_size, **options), V


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


def factors_of(mixing):
    """Return what head and shortcut are multiplied by in the predictor."""
    return (1.0, 1.0) if mixing is None else (1.0 - mixing, mixing)


def shortcut_round(
    B,
    W,
    S,
    X,
    y,
    active,
    *,
    step_size,
    solver=GRADIENT_STEPS,
    representation_steps=1,
    mixing=None,
    ridge=0.0,
):
    """Return (B, W, S) after one round of the draft's Algorithm 1, or of its (2) to (5).

    W and S are the w_i and s_i themselves: the predictor is ``a B w_i + c s_i``. X[j], y[j] are of client active[j].
    """
    a, c = factors_of(mixing)
    W, S, local = W.copy(), S.copy(), []
    for i, X_i, y_i in zip(active, X, y, strict=True):
        m, (k, d) = len(y_i), B.T.shape
        w, s = W[i].copy(), S[i].copy()
        if solver.order == "joint":
            rows = np.block([[a * X_i @ B, c * X_i], [np.zeros((d, k)), np.sqrt(ridge * m) * np.eye(d)]])
            both = least_squares(rows, np.concatenate([y_i, np.zeros(d)]))
            W[i], S[i] = both[:k], both[k:]
        elif isinstance(solver, lf.ClosedForm):
            W[i] = least_squares(a * X_i @ B, y_i - c * X_i @ s)
            seen = W[i] if solver.order == "gauss-seidel" else w
            S[i] = least_squares(c * X_i, y_i - a * X_i @ B @ seen, ridge)
        else:
            head_step = step_size if solver.head_step_size is None else solver.head_step_size
            shortcut_step = step_size if solver.shortcut_step_size is None else solver.shortcut_step_size
            for _ in range(solver.head_steps):
                W[i] = W[i] - head_step * a * B.T @ gradient(X_i, y_i, a * B @ W[i] + c * s)
            seen = W[i] if solver.order == "gauss-seidel" else w
            for _ in range(solver.shortcut_steps):
                S[i] = S[i] - shortcut_step * (c * gradient(X_i, y_i, a * B @ seen + c * S[i]) + ridge * S[i])
        B_i = B
        for _ in range(representation_steps):
            B_i = B_i - step_size * np.outer(gradient(X_i, y_i, a * B_i @ W[i] + c * S[i]), a * W[i])
        local.append(B_i)
    return qr_positive(sum(local) / len(local))[0], W, S


def flute_round(
    B, W, X, y, active, *, step_size, server_step_size=None, gamma1=0.25, gamma2=0.125, gradient_factor=1, init=None,
    weights="uniform",
):  # fmt: skip
    """Return (B, W) after one round; X[j], y[j] are the samples of client active[j]."""
    server = step_size if server_step_size is None else server_step_size
    here = W[active]
    total, heads = np.zeros_like(B), here.copy()
    for j, (X_i, y_i, w, share) in enumerate(zip(X, y, here, shares(y, weights), strict=True)):
        g = len(y) * share * gradient_factor * X_i.T @ (X_i @ B @ w - y_i) / len(y_i)
        total += np.outer(g, w)
        heads[j] = w - step_size * B.T @ g
    moved = B - step_size * total
    moved = moved + server * (2 * gamma1 * B @ here.T @ here - 4 * gamma2 * B @ B.T @ B)
    heads = heads + server * (2 * gamma1 * here @ B.T @ B - 4 * gamma2 * here @ here.T @ here)
    W = W.copy()
    W[active] = heads
    return moved, W


def shortest(X, y, B, rank=None):
    """Return (w, s) that solve the least squares of ``[X B, X]``, with the shortest s, and then the shortest w.

    All solutions are one plus the null space; the shortest s among them is one more least squares.
    """
    k = B.shape[1]
    rows = np.hstack([X @ B, X])
    U, values, Vt = np.linalg.svd(rows)
    rank = np.linalg.matrix_rank(X) if rank is None else rank
    start = Vt[:rank].T @ (U[:, :rank].T @ y / values[:rank])
    null = Vt[rank:].T
    s = start[k:] - null[k:] @ np.linalg.lstsq(null[k:], start[k:], rcond=1e-9)[0]
    w = least_squares(X @ B, y - X @ s)
    return w, s


def stacked_least_squares(X, y, weights):
    """Return the theta of minimum norm that minimises ``sum_i weights_i (1/2m_i) ||X_i theta - y_i||^2``."""
    scales = [np.sqrt(weight / max(len(y_i), 1)) for weight, y_i in zip(weights, y, strict=True)]
    rows = np.concatenate([scale * X_i for scale, X_i in zip(scales, X, strict=True)])
    labels = np.concatenate([scale * y_i for scale, y_i in zip(scales, y, strict=True)])
    return np.linalg.lstsq(rows, labels, rcond=RANK_TOLERANCE)[0]


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


# --- the averaging family, client by client on one parameter vector ------------------------------------------


def flat_gradient(X_i, y_i, vector, rank=0):
    """Return the gradient of a client's loss at theta (d,), or at B (row by row) and w, (d k + k,)."""
    if not rank:
        return gradient(X_i, y_i, vector)
    d = X_i.shape[1]
    B, w = vector[: d * rank].reshape(d, rank), vector[d * rank :]
    g = gradient(X_i, y_i, B @ w)
    return np.concatenate([np.outer(g, w).ravel(), B.T @ g])


def local_sgd(begin, batches, slope, *, step_size, passes, mu=0.0, correction=0.0, trained=1.0):
    """Return a client's parameters after passes over its batches (X, y), and the number of its steps.

    `slope` gives the gradient from samples, labels and parameters.
    """
    vector, steps = begin, 0
    for _ in range(passes):
        for X_b, y_b in batches:
            followed = slope(X_b, y_b, vector) + mu * (vector - begin) + correction
            vector = vector - step_size * trained * followed
            steps += 1
    return vector, steps


def window(round_, share, width):
    """Return the units that a client trains in a round, which counts from 1."""
    size = max(1, int(share * width + 1e-9))
    return {(round_ - 1 + j) % width for j in range(size)}


def trained_parameters(units, d, rank=0):
    """Return 1 at the parameters of some units, else 0."""
    if not rank:
        return np.array([float(j in units) for j in range(d)])
    B, w = np.zeros((d, rank)), np.zeros(rank)
    for j in units:
        B[:, j], w[j] = 1.0, 1.0
    return np.concatenate([B.ravel(), w])


class Family:
    """The seven algorithms of the averaging family, as their source prints them, on fixed data of one trial.

    `kind` is the algorithm's name. Of the weights in the update of SCAFFOLD's c, "population" are the clients' shares
    among all clients, "printed" those among the participants times p/n, as the source has them. Another loss is another
    `slope`, and parameters that lie otherwise another `parameters_of`.
    """

    def __init__(
        self, kind, begin, X, y, *, step_size, local_steps=1, local_epochs=None, batch_size=None, server_step_size=1.0,
        weights="uniform", rank=0, mu=0.0, clusters=None, model_share=1.0, aggregation="published",
        controls="change", control_weights="population", aggregate="mean",
    ):  # fmt: skip
        self.kind, self.vector, self.X, self.y, self.rank = kind, begin, X, y, rank
        self.eta, self.K, self.epochs, self.size, self.eta_s = step_size, local_steps, local_epochs, batch_size, None
        self.eta_s, self.weights, self.mu, self.aggregation = server_step_size, weights, mu, aggregation
        self.option, self.control_weights, self.aggregate = controls, control_weights, aggregate
        n, P = len(X), len(begin)
        self.n = n
        counts = np.array([float(len(y_i)) for y_i in y]) if weights == "samples" else np.ones(n)
        self.pi = counts / counts.sum()
        self.cluster = [i % clusters for i in range(n)] if isinstance(clusters, int) else clusters or list(range(n))
        self.beta = [model_share] * n if np.ndim(model_share) == 0 else list(model_share)
        self.memory = {c: np.zeros(P) for c in set(self.cluster)}
        self.c, self.controls = np.zeros(P), [np.zeros(P) for _ in range(n)]

    def slope(self, X, y, vector):
        """Return the gradient of a client's loss."""
        return flat_gradient(X, y, vector, self.rank)

    def parameters_of(self, units):
        """Return 1 at the parameters of some units, else 0."""
        return trained_parameters(units, self.X[0].shape[1], self.rank)

    def batches(self, i, order):
        """Return what a client goes over in one pass."""
        if self.epochs is None:
            return [(self.X[i], self.y[i])]
        own = [j for j in order if j < len(self.y[i])]
        cuts = [own[start : start + self.size] for start in range(0, len(own), self.size)]
        return [(self.X[i][cut], self.y[i][cut]) for cut in cuts]

    def round(self, number, active, orders=None):
        """Go through one round with these participants; `orders` are those of their samples."""
        scaffold, rolling = self.kind in ("SCAFFOLD", "FedSCAVAR"), self.kind in ("FedRolex", "FedSCAVAR")
        d = self.X[0].shape[1]
        weight = np.array([len(self.y[i]) if self.weights == "samples" else 1.0 for i in active])
        weight = weight / weight.sum()
        changes, masks, controls = [], [], []
        for place, i in enumerate(active):
            mask = np.ones(len(self.vector))
            if rolling:
                mask = self.parameters_of(window(number, self.beta[i], self.rank or d))
            begin = self.vector * mask
            end, steps = local_sgd(
                begin,
                self.batches(i, None if orders is None else orders[place]),
                self.slope,
                step_size=self.eta,
                passes=self.K if self.epochs is None else self.epochs,
                mu=self.mu if self.kind in ("FedProx", "FedSCAVAR") else 0.0,
                correction=self.c - self.controls[i] if scaffold else 0.0,
                trained=mask,
            )
            new = self.controls[i] - self.c + (begin - end) / (steps * self.eta)
            if self.option == "gradient":
                new = self.slope(self.X[i], self.y[i], self.vector)
            changes.append(end - begin)
            masks.append(mask)
            controls.append(np.where(mask > 0, new, self.controls[i]))
        moved = sum(w * change for w, change in zip(weight, changes, strict=True))
        if self.aggregate != "mean":
            moved = middle(changes, self.aggregate)
        if self.kind in ("FedVARP", "ClusterFedVARP", "FedSCAVAR"):
            remembered = [mask * self.memory[self.cluster[i]] for i, mask in zip(active, masks, strict=True)]
            moved = moved - sum(w * one for w, one in zip(weight, remembered, strict=True))
            moved = moved + sum(pi * self.memory[c] for pi, c in zip(self.pi, self.cluster, strict=True))
            self._remember(active, changes, masks)
        if self.kind == "FedRolex" and self.aggregation == "published":
            seen = sum(w * mask for w, mask in zip(weight, masks, strict=True))
            moved = np.array([a / b if b > 0 else 0.0 for a, b in zip(moved, seen, strict=True)])
        self.vector = self.vector + self.eta_s * moved
        if scaffold:
            shares = self.pi[active] if self.control_weights == "population" else weight * len(active) / self.n
            for share, i, new in zip(shares, active, controls, strict=True):
                self.c = self.c + share * (new - self.controls[i])
                self.controls[i] = new

    def _remember(self, active, changes, masks):
        for c in self.memory:
            own = [place for place, i in enumerate(active) if self.cluster[i] == c]
            for j in range(len(self.vector)):
                told = [changes[place][j] for place in own if masks[place][j] > 0]
                if told:
                    self.memory[c] = self.memory[c].copy()
                    self.memory[c][j] = sum(told) / len(told)


# --- personalised models: one predictor per client, and a model of the server; `slope` is the loss's gradient ------


def _mean(values):
    return sum(values) / len(values)


def ditto_round(
    theta, V, X, y, active, *, step_size, local_steps=1, penalty=1.0, personal_steps=1, personal_step_size=None,
    weights="uniform", slope=gradient,
):  # fmt: skip
    """Return the server's model and all personal models after a round; X and y are the participants' samples."""
    personal_step_size = step_size if personal_step_size is None else personal_step_size
    V, averaged = V.copy(), []
    for i, X_i, y_i in zip(active, X, y, strict=True):
        for _ in range(personal_steps):
            V[i] = V[i] - personal_step_size * (slope(X_i, y_i, V[i]) + penalty * (V[i] - theta))
        theta_i = theta
        for _ in range(local_steps):
            theta_i = theta_i - step_size * slope(X_i, y_i, theta_i)
        averaged.append(theta_i)
    return sum(p * one for p, one in zip(shares(y, weights), averaged, strict=True)), V


def apfl_round(
    theta, V, a, X, y, active, *, step_size, local_steps=1, mix_step_size=None, variant="paper", slope=gradient
):
    """Return the server's model, the local models and the mixes after a round."""
    V, a, averaged = V.copy(), a.copy(), []
    for i, X_i, y_i in zip(active, X, y, strict=True):
        theta_i = theta
        for number in range(local_steps):
            new = theta_i - step_size * slope(X_i, y_i, theta_i)
            other = new if variant == "framework" else theta_i
            g = slope(X_i, y_i, a[i] * V[i] + (1 - a[i]) * other)
            v = V[i] - step_size * a[i] * g
            if mix_step_size is not None and number == 0:
                change = np.sum((V[i] - other) * g)
                if variant == "framework":
                    change = (a[i] ** 2 + (1 - a[i]) ** 2) * change + 0.02 * a[i]
                a[i] = min(1.0, max(0.0, a[i] - mix_step_size * change))
            V[i], theta_i = v, new
        averaged.append(theta_i)
    return _mean(averaged), V, a


def pfedme_round(
    w, T, X, y, active, *, step_size, local_steps, penalty, inner_steps, inner_step_size=None, server_mix=1.0,
    slope=gradient,
):  # fmt: skip
    """Return the server's model and the personal models after a round."""
    T, averaged = T.copy(), []
    for i, X_i, y_i in zip(active, X, y, strict=True):
        m, d = X_i.shape
        w_i = t = w
        for _ in range(local_steps):
            if inner_steps is None:
                t = np.linalg.solve(X_i.T @ X_i / m + penalty * np.eye(d), X_i.T @ y_i / m + penalty * w_i)
            else:
                for _ in range(inner_steps):
                    t = t - inner_step_size * (slope(X_i, y_i, t) + penalty * (t - w_i))
            w_i = w_i - step_size * penalty * (w_i - t)
        T[i] = t
        averaged.append(w_i)
    return (1 - server_mix) * w + server_mix * _mean(averaged), T


def l2gd_round(V, coin, X, y, active, *, step_size, penalty, mean_probability, slope=gradient):
    """Return the personal models after a step, towards their mean if `coin` is True."""
    V, q = V.copy(), mean_probability
    mean = _mean([V[i] for i in active])
    for i, X_i, y_i in zip(active, X, y, strict=True):
        if coin:
            V[i] = V[i] - step_size * penalty / q * (V[i] - mean)
        else:
            V[i] = V[i] - step_size / (1 - q) * slope(X_i, y_i, V[i])
    return V


def perfedavg_round(
    theta,
    X,
    y,
    *,
    step_size,
    adaptation_step_size,
    local_steps=1,
    hessian=False,
    disjoint_samples=False,
    slope=gradient,
):
    """Return the server's model after a round."""
    averaged = []
    for X_i, y_i in zip(X, y, strict=True):
        number = 3 if hessian else 2
        parts = _parts(X_i, y_i, number) if disjoint_samples else [(X_i, y_i)] * number
        (X_1, y_1), (X_2, y_2), (X_3, _) = (*parts, parts[0])[:3]
        theta_i = theta
        for _ in range(local_steps):
            g = slope(X_2, y_2, theta_i - adaptation_step_size * slope(X_1, y_1, theta_i))
            if hessian:
                g = g - adaptation_step_size * X_3.T @ (X_3 @ g) / len(X_3)
            theta_i = theta_i - step_size * g
        averaged.append(theta_i)
    return _mean(averaged)


def local_spectral(X, y, k, clip_quantile=None):
    """Return the k left singular vectors of the local fits, those above a quantile of their lengths shortened to it."""
    fits = [least_squares(X_i, y_i) for X_i, y_i in zip(X, y, strict=True)]
    if clip_quantile is not None:
        most = np.quantile([np.linalg.norm(fit) for fit in fits], clip_quantile)
        fits = [fit * min(1.0, most / np.linalg.norm(fit)) for fit in fits]
    return np.linalg.svd(np.array(fits).T)[0][:, :k]


def personal_part(X, y, penalty):
    """Return the s that minimises ``(1/2m) ||X s - y||^2 + penalty ||s||``; of minimum norm without a penalty.

    A solution other than 0 solves ``(X'X/m + (penalty/||s||) I) s = X'y/m``: a bracketing search finds its length.
    """
    m, d = X.shape
    A, b = X.T @ X / m, X.T @ y / m
    shortest = least_squares(X, y)
    if penalty == 0:
        return shortest
    if np.linalg.norm(b) <= penalty:
        return np.zeros(d)

    def at(length):
        return np.linalg.solve(length * A + penalty * np.eye(d), length * b)

    limits = 0.0, 2 * np.linalg.norm(shortest)
    return at(scipy.optimize.brentq(lambda r: np.linalg.norm(at(r)) / r - 1 if r else 1.0, *limits, xtol=1e-300))


def head_and_personal_part(X, y, B, penalty):
    """Return the w and s that minimise ``(1/2m) ||X (B w + s) - y||^2 + penalty ||s||``; X loses the span of X B."""
    Z = X @ B
    s = personal_part(X - Z @ least_squares(Z, X), y - Z @ least_squares(Z, y), penalty)
    return least_squares(Z, y - X @ s), s


def proximal_steps(X, y, s, penalty, step_size, steps):
    """Return s after proximal gradient steps on ``(1/2m) ||X s - y||^2 + penalty ||s||``."""
    for _ in range(steps):
        s = s - step_size * gradient(X, y, s)
        length = np.linalg.norm(s)
        s = max(0.0, 1.0 - step_size * penalty / length) * s if length > 0 else s
    return s


def armul_round(
    theta, S, X, y, active, *, step_size, penalty, personal_steps=None, personal_step_size=None, weights="uniform"
):
    """Return the common model and the personal parts after a round of vanilla ARMUL."""
    size, S, slope = personal_step_size or step_size, S.copy(), 0.0
    for i, share, X_i, y_i in zip(active, shares(y, weights), X, y, strict=True):
        rest = y_i - X_i @ theta
        if personal_steps is None:
            S[i] = personal_part(X_i, rest, penalty)
        else:
            S[i] = proximal_steps(X_i, rest, S[i], penalty, size, personal_steps)
        slope = slope + share * gradient(X_i, y_i, theta + S[i])
    return theta - step_size * slope, S


def low_rank_armul_round(
    B, W, S, X, y, active, *, step_size, penalty, personal_steps=None, personal_step_size=None, weights="uniform"
):
    """Return B, the heads and the personal parts after a round of low-rank ARMUL."""
    size, W, S, slope = personal_step_size or step_size, W.copy(), S.copy(), 0.0
    for i, share, X_i, y_i in zip(active, shares(y, weights), X, y, strict=True):
        if personal_steps is None:
            W[i], S[i] = head_and_personal_part(X_i, y_i, B, penalty)
        else:
            W[i] = least_squares(X_i @ B, y_i - X_i @ S[i])
            S[i] = proximal_steps(X_i, y_i - X_i @ B @ W[i], S[i], penalty, size, personal_steps)
        slope = slope + share * np.outer(gradient(X_i, y_i, B @ W[i] + S[i]), W[i])
    return qr_positive(B - step_size * slope)[0], W, S


def fedbabu_round(B, w, X, y, *, step_size, local_steps):
    """Return B after a round at the head w."""
    averaged = []
    for X_i, y_i in zip(X, y, strict=True):
        B_i = B
        for _ in range(local_steps):
            B_i = B_i - step_size * np.outer(gradient(X_i, y_i, B_i @ w), w)
        averaged.append(B_i)
    return _mean(averaged)


# --- alternating methods and empirical risk ------------------------------------------------------------------


def truncated_averages(X, y, k, threshold):
    """Return the top-k left singular vectors of the truncated local averages, and all singular values."""
    mean = sum(np.sum(y_i**2) for y_i in y) / sum(len(y_i) for y_i in y)
    columns = []
    for X_i, y_i in zip(X, y, strict=True):
        column = np.zeros(X_i.shape[1])
        for x, label in zip(X_i, y_i, strict=True):
            if label**2 <= threshold * mean:
                column = column + label * x / len(y_i)
        columns.append(column)
    U, s, _ = np.linalg.svd(np.array(columns).T)
    return U[:, :k], s


def altgdmin_round(B, W, X, y, active, *, step_size, disjoint_samples=False):
    """Return B and W after a round; the gradient is summed over clients and samples."""
    total, W = np.zeros_like(B), W.copy()
    for i, X_i, y_i in zip(active, X, y, strict=True):
        (X_a, y_a), (X_b, y_b) = _parts(X_i, y_i) if disjoint_samples else [(X_i, y_i)] * 2
        W[i] = least_squares(X_a @ B, y_a)
        total = total + np.outer(X_b.T @ (X_b @ B @ W[i] - y_b), W[i])
    return qr_positive(B - step_size * total)[0], W


def altmin_round(B, W, X, y, active, *, disjoint_samples=False, weights="uniform", ridge=0.0):
    """Return B and W after a round: one least-squares problem of all samples for the change of B.

    Returns None if the problem has singular values between 1e-10 and 1e-2 of the largest: it is then ill-conditioned.
    """
    rows, residuals, W = [], [], W.copy()
    parts = [_parts(X_i, y_i) if disjoint_samples else [(X_i, y_i)] * 2 for X_i, y_i in zip(X, y, strict=True)]
    parts_of_B = [y_b for _, (_, y_b) in parts]
    for i, share, ((X_a, y_a), (X_b, y_b)) in zip(active, shares(parts_of_B, weights), parts, strict=True):
        W[i] = least_squares(X_a @ B, y_a, ridge)
        scale = np.sqrt(share * len(parts) / len(y_b))
        for x, label in zip(X_b, y_b, strict=True):
            rows.append(np.outer(x, W[i]).ravel() * scale)
            residuals.append((label - x @ B @ W[i]) * scale)
    change, _, _, s = np.linalg.lstsq(np.array(rows), np.array(residuals), rcond=1e-7)
    if ((s > 1e-10 * s[0]) & (s < 1e-2 * s[0])).any():
        return None
    Q, R = qr_positive(B + change.reshape(B.shape))
    return Q, W @ R.T  # the predictors of the minimiser


def maml_round(B, w, X, y, *, step_size, adaptation_step_size, hessian=False, disjoint_samples=False, adapts="both"):
    """Return B and the shared head after a round, with all parameters as one vector and its matrix of derivatives.

    The clients adapt "both" layers (MAML) or the "head" (ANIL).
    """
    (d, k), total = B.shape, 0.0
    theta = np.concatenate([B.ravel(), w])
    moves = np.arange(d * k + k) >= (0 if adapts == "both" else d * k)
    for X_i, y_i in zip(X, y, strict=True):
        (X_a, y_a), (X_b, y_b) = _parts(X_i, y_i) if disjoint_samples else [(X_i, y_i)] * 2
        slope, curvature = two_layer_derivatives(theta, X_a, y_a, d, k)
        own, _ = two_layer_derivatives(theta - adaptation_step_size * moves * slope, X_b, y_b, d, k)
        total = total + (own - adaptation_step_size * curvature @ (moves * own) if hessian else own)
    theta = theta - step_size * total / len(X)
    return theta[: d * k].reshape(d, k), theta[d * k :]


def two_layer_derivatives(theta, X, y, d, k):
    """Return the gradient and the Hessian of ``(1/2m) ||X B w - y||^2`` at (B row by row, w)."""
    B, w = theta[: d * k].reshape(d, k), theta[d * k :]
    inner = np.hstack([np.kron(np.eye(d), w), B])  # derivatives of B w
    g = gradient(X, y, B @ w)
    hessian = inner.T @ (X.T @ X / len(y)) @ inner
    mixed = np.kron(g[:, None], np.eye(k))  # second derivatives of g'B w
    hessian[: d * k, d * k :] += mixed
    hessian[d * k :, : d * k] += mixed.T
    return inner.T @ g, hessian


def tpgd_round(B, W, X, y, active, *, step_size, penalty):
    """Return B and W after a gradient step on the summed loss, and on ``(1/8)||B'B - W'W||^2`` with the penalty."""
    balance = B.T @ B - W[active].T @ W[active]
    new_B, new_W = B - penalty * step_size * 0.5 * B @ balance, W.copy()
    for i, X_i, y_i in zip(active, X, y, strict=True):
        slope = gradient(X_i, y_i, B @ W[i])
        new_B = new_B - step_size * np.outer(slope, W[i])
        new_W[i] = W[i] - step_size * B.T @ slope + penalty * step_size * 0.5 * W[i] @ balance
    return new_B, new_W


def _halves(X, y):
    half = len(y) // 2
    return (X[:half], y[:half]), (X[half : 2 * half], y[half : 2 * half])


def _parts(X, y, parts=2):
    """Return the first samples, the next ones, and so on; the last part has the rest."""
    ends = [number * (len(y) // parts) for number in range(parts)] + [len(y)]
    return [(X[start:stop], y[start:stop]) for start, stop in itertools.pairwise(ends)]
