"""Plain loops for samples of classes, one client and one sample at a time, written from the pseudocode.

Every function takes one trial. A client's labels are whole numbers; its head (c, k + 1) has a row for each class, the
bias last, and its predictor (c, d + 1) the same of x. `references` holds the loops for squares.
"""

import numpy as np

from tests import references as ref

# --- one client ----------------------------------------------------------------------------------------------


def log_sum_exp(values):
    top = max(values)
    return top + np.log(sum(np.exp(value - top) for value in values))


def logits(theta, x, added=None):
    """Return the logits of one sample, one for each class; `added` is what the samples' logits have beside it."""
    own = [theta[j, :-1] @ x + theta[j, -1] for j in range(len(theta))]
    return np.array(own) if added is None else np.array(own) + added


def residual(theta, x, label, added=None):
    """Return softmax minus the indicator of the label, (c,)."""
    values = logits(theta, x, added)
    total = log_sum_exp(values)
    return np.array([np.exp(value - total) - (j == label) for j, value in enumerate(values)])


def each_added(added, m):
    """Return what is added to the logits of each of m samples: the same for all, one each, or nothing."""
    return [added] * m if added is None or np.ndim(added) == 1 else added


def loss(X, labels, theta, added=None):
    """Return the mean cross-entropy."""
    total = 0.0
    for x, label, more in zip(X, labels, each_added(added, len(X)), strict=True):
        values = logits(theta, x, more)
        total += log_sum_exp(values) - values[int(label)]
    return total / max(len(X), 1)


def gradient(X, labels, theta, added=None):
    """Return the gradient of `loss`, like theta."""
    total = np.zeros(theta.shape)
    for x, label, more in zip(X, labels, each_added(added, len(X)), strict=True):
        total += np.outer(residual(theta, x, label, more), [*x, 1.0])
    return total / max(len(X), 1)


def gradient_of_B(X, labels, B, H, added=None):
    """Return the gradient of the loss of ``H (B'x, 1)`` by B, (d, k)."""
    total = np.zeros(B.shape)
    for x, label, more in zip(X, labels, each_added(added, len(X)), strict=True):
        total += np.outer(x, H[:, :-1].T @ residual(H, B.T @ x, label, more))
    return total / max(len(X), 1)


def predictor(B, H):
    """Return ``B w`` of each class, and its bias, (c, d + 1)."""
    return np.array([[*(B @ row[:-1]), row[-1]] for row in H])


def balanced(labels, c):
    """Return the logarithm of each class's share, (c,)."""
    with np.errstate(divide="ignore"):
        return np.log([np.mean(np.asarray(labels) == j) for j in range(c)])


def accuracy(X, labels, theta, classes=None):
    """Return the share of samples whose largest logit, of all classes or of some, is their label's."""
    right = 0
    for x, label in zip(X, labels, strict=True):
        values = logits(theta, x)
        allowed = range(len(theta)) if classes is None else classes
        best = max(allowed, key=lambda j: (values[j], -j))
        right += best == label
    return right / len(X)


def nc(H, own, size=None):
    """Return NC of one client's rows of classes H (c, k); `own` are its classes, `size` is c unless it is given."""
    c = len(H)
    size = c if size is None else size
    G = np.array([[H[i] @ H[j] for j in range(c)] for i in range(c)])
    T = np.zeros((c, c))
    for i in own:
        for j in own:
            T[i, j] = ((i == j) - 1 / size) / np.sqrt(size - 1)
    return np.sqrt(np.sum((G / np.sqrt(np.sum(G**2)) - T) ** 2))


def nc_gradient(H, own):
    """Return the gradient of `nc` by H, from those of ``||G||`` and of ``||G/||G|| - T||`` by each product G_ij."""
    c = len(H)
    G = H @ H.T
    length = np.linalg.norm(G)
    T = np.zeros((c, c))
    for i in own:
        for j in own:
            T[i, j] = ((i == j) - 1 / c) / np.sqrt(c - 1)
    D = (G / length - T) / np.linalg.norm(G / length - T)
    by_G = np.zeros((c, c))
    for i in range(c):
        for j in range(c):
            by_G[i, j] = D[i, j] / length - np.sum(D * G) * G[i, j] / length**3
    out = np.zeros(H.shape)
    for i in range(c):
        for j in range(c):
            out[i] += (by_G[i, j] + by_G[j, i]) * H[j]
    return out


# --- rounds of the algorithms --------------------------------------------------------------------------------


def gradient_heads(Z, labels, H, heads, step_size, added=None):
    """Return a head after gradient steps at its features Z, from the head H."""
    for _ in range(heads.steps):
        H = H - (step_size if heads.step_size is None else heads.step_size) * gradient(Z, labels, H, added)
    return H


def fine_tuned(B, H, X, labels, heads, step_size):
    """Return each client's head (n, c, k + 1), from the shared H on its own samples."""
    return np.array([gradient_heads(X_i @ B, y_i, H, heads, step_size) for X_i, y_i in zip(X, labels, strict=True)])


def fedrep_round(
    B,
    W,
    X,
    labels,
    active,
    *,
    step_size,
    heads,
    representation_steps=1,
    orthonormalize=True,
    aggregate="mean",
    disjoint_samples=False,
):
    """Return (B, W) after one round; X[j], labels[j] are the samples of client active[j]."""
    W, local = W.copy(), []
    for i, X_i, y_i in zip(active, X, labels, strict=True):
        half = len(y_i) // 2
        first, second = (slice(half), slice(half, 2 * half)) if disjoint_samples else (slice(None), slice(None))
        W[i] = gradient_heads(X_i[first] @ B, y_i[first], W[i], heads, step_size)
        B_i = B
        for _ in range(representation_steps):
            B_i = B_i - step_size * gradient_of_B(X_i[second], y_i[second], B_i, W[i])
        local.append(B_i)
    moved = sum(local) / len(local) if aggregate == "mean" else B + sum(B_i - B for B_i in local)
    return ref.qr_positive(moved)[0] if orthonormalize else moved, W


def two_layer_steps(X_i, y_i, B, H, step_size, steps):
    """Return (B_i, H_i) after simultaneous gradient steps of one client on both layers."""
    for _ in range(steps):
        by_B, by_H = gradient_of_B(X_i, y_i, B, H), gradient(X_i @ B, y_i, H)
        B, H = B - step_size * by_B, H - step_size * by_H
    return B, H


def fedper_round(B, W, X, labels, active, *, step_size, local_steps=1, server_step_size=1.0):
    """Return (B, W) after one round."""
    W, moved = W.copy(), B
    for i, X_i, y_i in zip(active, X, labels, strict=True):
        B_i, W[i] = two_layer_steps(X_i, y_i, B, W[i], step_size, local_steps)
        moved = moved + server_step_size * (B_i - B) / len(active)
    return moved, W


def lgfedavg_round(own, H, X, labels, active, *, step_size, local_steps=1, server_step_size=1.0):
    """Return (own, H) after one round: every client's B_i (n, d, k), and the head that all share."""
    own, moved = own.copy(), H
    for i, X_i, y_i in zip(active, X, labels, strict=True):
        own[i], H_i = two_layer_steps(X_i, y_i, own[i], H, step_size, local_steps)
        moved = moved + server_step_size * (H_i - H) / len(active)
    return own, moved


def fedrod_round(
    B, H, V, X, labels, active, *, personal, step_size, balance=True, local_steps=1, server_step_size=1.0,
    weights="uniform",
):  # fmt: skip
    """Return (B, H, V) after one round: the generic model by averaging, personal heads V beside its head."""
    V, moved_B, moved_H = V.copy(), B, H
    for i, X_i, y_i, share in zip(active, X, labels, ref.shares(labels, weights), strict=True):
        generic = np.array([H[:, :-1] @ (B.T @ x) + H[:, -1] for x in X_i])
        V[i] = gradient_heads(X_i @ B, y_i, V[i], personal, step_size, generic)
        added = balanced(y_i, len(H)) if balance else None
        B_i, H_i = B, H
        for _ in range(local_steps):
            by_B, by_H = gradient_of_B(X_i, y_i, B_i, H_i, added), gradient(X_i @ B_i, y_i, H_i, added)
            B_i, H_i = B_i - step_size * by_B, H_i - step_size * by_H
        moved_B = moved_B + server_step_size * share * (B_i - B)
        moved_H = moved_H + server_step_size * share * (H_i - H)
    return moved_B, moved_H, V


def local_round(Theta, X, labels, active, *, step_size, local_steps=1, ridge=0.0):
    """Return the predictors (n, c, d + 1) after one round of clients alone; biases are not shrunk."""
    Theta = Theta.copy()
    for i, X_i, y_i in zip(active, X, labels, strict=True):
        for _ in range(local_steps):
            slope = gradient(X_i, y_i, Theta[i])
            slope[:, :-1] += ridge * Theta[i][:, :-1]
            Theta[i] = Theta[i] - step_size * slope
    return Theta


def flute_loss(X_i, y_i, B, H, own, feature_penalty, head_penalty, collapse_penalty):
    """Return a client's loss (10)."""
    features = np.mean([np.sum((B.T @ x) ** 2) for x in X_i])
    heads = H[:, :-1]
    penalties = feature_penalty * features + head_penalty * np.sum(heads**2) + collapse_penalty * nc(heads, own)
    return loss(X_i @ B, y_i, H) + penalties


def flute_gradients(X_i, y_i, B, H, own, feature_penalty, head_penalty, collapse_penalty):
    """Return its gradients by B and H."""
    by_B, by_H = gradient_of_B(X_i, y_i, B, H), gradient(X_i @ B, y_i, H)
    for x in X_i:
        by_B += 2 * feature_penalty * np.outer(x, x @ B) / len(X_i)
    by_H[:, :-1] += 2 * head_penalty * H[:, :-1]
    if collapse_penalty:
        by_H[:, :-1] += collapse_penalty * nc_gradient(H[:, :-1], own)
    return by_B, by_H


def flute_round(
    B, W, X, labels, active, own, *, step_size, local_steps=1, head_steps=0, server_step_size=None,
    feature_penalty=0.0, head_penalty=0.0, collapse_penalty=0.1,
):  # fmt: skip
    """Return (B, W) after one round of Algorithm 2; own[j] are the classes of client active[j]."""
    W, local = W.copy(), []
    weights = feature_penalty, head_penalty, collapse_penalty
    server = step_size if server_step_size is None else server_step_size
    for i, X_i, y_i, own_i in zip(active, X, labels, own, strict=True):
        B_i, H_i = B, W[i]
        for _ in range(local_steps):
            by_B, by_H = flute_gradients(X_i, y_i, B_i, H_i, own_i, *weights)
            B_i, H_i = B_i - step_size * by_B, H_i - step_size * by_H
        for _ in range(head_steps):
            H_i = H_i - step_size * flute_gradients(X_i, y_i, B_i, H_i, own_i, *weights)[1]
        local.append(B_i)
        W[i] = H_i
    for i, own_i in zip(active, own, strict=True):  # at the server
        W[i][:, :-1] = W[i][:, :-1] - server * nc_gradient(W[i][:, :-1], own_i)
    return sum(local) / len(local), W


class Family(ref.Family):
    """The averaging family on classes: theta (c, d + 1) class by class, or B (row by row) and the head likewise."""

    classes = 0

    def slope(self, X, y, vector):
        """Return the gradient of a client's cross-entropy."""
        if not self.rank:
            return gradient(X, y, vector.reshape(self.classes, -1)).ravel()
        split = X.shape[1] * self.rank
        B, H = vector[:split].reshape(-1, self.rank), vector[split:].reshape(self.classes, -1)
        return np.concatenate([gradient_of_B(X, y, B, H).ravel(), gradient(X @ B, y, H).ravel()])

    def parameters_of(self, units):
        """Return 1 at the parameters of some units, and at all biases."""
        d = self.X[0].shape[1]
        width = self.rank or d
        row = [float(j in units) for j in range(width)] + [1.0]
        heads = row * self.classes
        if not self.rank:
            return np.array(heads)
        return np.array([float(j in units) for _ in range(d) for j in range(self.rank)] + heads)
