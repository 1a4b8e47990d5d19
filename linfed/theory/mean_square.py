"""Second moments of averaging algorithms with p of n participants, and their stability."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedSCAVAR, FedVARP
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.averaging.clusterfedvarp import Clustering
from linfed.checks import check_array, check_integer, check_shape, check_square, short_repr
from linfed.theory.averaging import local_maps, seen_directions
from linfed.theory.drawn_clients import drawn_moments, set_share

MOST_UNKNOWNS, MOST_ROWS, MOST_LIFTED = 200_000, 300, 900
"""Largest number of unknowns of `OverwrittenMoments`; of `FullMoments`, largest state and largest number of added
entries."""

DENSE, TOLERANCE, OVERFLOWS = 50, 1e-10, 1e200
"""Number of unknowns up to which the map is a dense matrix; tolerance otherwise; growth that counts as overflow."""


def mean_square_rate(
    algorithm: Averaging, A: npt.ArrayLike, *, participants: int, weights: npt.ArrayLike | None = None
) -> float:
    """Return the asymptotic factor per round of the root mean square distance from the fixed point.

    Parameters
    ----------
    algorithm : FedAvg, FedProx, SCAFFOLD, FedVARP, ClusterFedVARP or FedSCAVAR
        Algorithm with one layer and full-gradient steps of one size. FedAvg requires ``aggregate="mean"``, FedSCAVAR
        ``model_share=1``.
    A : array_like (n, d, d)
        ``A_i = X_i'X_i/m_i``, as `linfed.GivenSamples.normal_equations` returns them.
    participants : int
        Number of participants p of n clients, drawn uniformly without replacement in each round.
    weights : array_like (n,), optional
        Numbers of samples of the clients, which are their weights. Required if ``algorithm.weights = "samples"``, and
        only allowed then unless they are equal.

    Returns
    -------
    float
        The square root of the spectral radius of the map of second moments; infinite if the map overflows. If it is
        below 1, runs converge in mean square: SCAFFOLD, FedVARP and FedSCAVAR to a point, the others to a stationary
        distribution. It is at least the spectral radius of the iteration of the mean, with equality if p = n.

    Raises
    ------
    ValueError
        If shapes do not match, if A is not symmetric, if values are out of range, if the algorithm is another one or
        does not fit the number of clients, if `weights` contradicts ``algorithm.weights``, or if the second moments are
        too many to compute.

    Notes
    -----
    A round maps the state z (theta and all memories, minus the fixed point) to ``M_I z``, where I is the set of
    participants. The second moments ``X = E zz'`` therefore follow ``S(X) = E M_I X M_I'`` exactly. With equal weights
    a round adds the mean of ``P_i z`` over the participants, and ::

        S(X) = M X M' + phi (1/n) sum_i (P_i - P) X (P_i - P)',   M = I + P,   phi = (n - p)/(p (n - 1))

    with P the mean of the P_i. If memories are overwritten (FedVARP, SCAFFOLD with ``controls="gradient"`` or
    ``local_steps=1``), no moments between different clients are needed, and the number of unknowns is linear in n.
    Directions in which no sample has a component are excluded, since the model does not move in them.

    **Deviations**: derived here.

    References
    ----------
    Cochran, Sampling Techniques, for the variance of a mean without replacement.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> (A,), (b,) = data.normal_equations()
    >>> algorithm = lf.SCAFFOLD(step_size=0.1, local_steps=2)
    >>> [round(lf.theory.mean_square_rate(algorithm, A, participants=p), 3) for p in (2, 5)]
    [0.881, 0.88]
    """
    A = check_square("A", A, [("n", "d", "d")])
    participants = check_integer("participants", participants, maximum=len(A))
    shares = None if weights is None else check_array("weights", weights, [("n",)])
    if shares is not None:
        check_shape("weights", shares, (len(A),), "(n,)")
        if shares.min() <= 0:
            raise ValueError(f"weights = {short_repr(shares)} must be positive")
    if not isinstance(algorithm, FedAvg | FedProx | SCAFFOLD | FedVARP | ClusterFedVARP | FedSCAVAR):
        raise ValueError(
            f"algorithm = {short_repr(algorithm)} must be FedAvg, FedProx, SCAFFOLD, FedVARP, "
            f"ClusterFedVARP or FedSCAVAR"
        )
    if algorithm.rank is not None or algorithm.local_epochs is not None or not isinstance(algorithm.step_size, float):
        raise ValueError(
            f"algorithm = {short_repr(algorithm)} must have one layer, and full-gradient steps of one size"
        )
    algorithm.check(n_clients=len(A), dim=A.shape[-1])
    if isinstance(algorithm, FedAvg) and algorithm.aggregate != "mean":
        raise ValueError(f"algorithm.aggregate = {algorithm.aggregate!r} must be 'mean'")
    if isinstance(algorithm, FedSCAVAR) and np.min(algorithm.model_share) < 1:
        raise ValueError(f"model_share = {short_repr(algorithm.model_share)} must be 1")
    if algorithm.weights == "samples" and shares is None:
        raise ValueError("weights is missing: algorithm.weights = 'samples' requires the clients' numbers of samples")
    if algorithm.weights == "uniform" and shares is not None and np.ptp(shares) > 0:
        raise ValueError(
            f"weights = {short_repr(shares)} must be equal or omitted for algorithm.weights = 'uniform'; set "
            "algorithm.weights = 'samples'"
        )
    U = seen_directions(A, shares)
    moments = second_moments(algorithm, U.T @ A @ U, algorithm.step_size, participants, shares)
    return float(np.sqrt(spectral_radius(moments)))


def second_moments(
    algorithm: Averaging, A: Array, step_size: float, participants: int, weights: Array | None, b: Array | None = None
) -> OverwrittenMoments | FullMoments:
    """Return the smallest closed set of second moments of an algorithm with one layer, or raise if it is too large.

    ``sum_i p_i A_i`` must have full rank, see `seen_directions`. Only `FullMoments.spread` requires the right-hand
    sides b (n, d).
    """
    n, d = A.shape[:2]
    clusters, controls = clusters_of(algorithm, n), controls_of(algorithm)
    if is_overwritten(algorithm, n, weights):
        kept = 0 if not controls and clusters is None else 3 if not controls or algorithm.local_steps == 1 else 4
        _check_size(algorithm, (1 + kept * n) * d * d, MOST_UNKNOWNS, participants, n)
        return OverwrittenMoments(algorithm, A, step_size, participants)
    memories = 0 if clusters is None else int(clusters.max()) + 1
    _check_size(algorithm, (1 + n * bool(controls) + memories) * d, MOST_ROWS, participants, n)
    _check_size(algorithm, n * d, MOST_LIFTED, participants, n)
    return FullMoments(algorithm, A, step_size, participants, weights, b)


def is_overwritten(algorithm: Averaging, n: int, weights: Array | None) -> bool:
    """Return True if participants overwrite their memories and weights are equal, as `OverwrittenMoments` requires."""
    clusters, controls = clusters_of(algorithm, n), controls_of(algorithm)
    each = clusters is not None and len(np.unique(clusters)) == n
    equal = weights is None or np.ptp(weights) == 0
    return bool(equal and (controls == "gradient" if controls else clusters is None or each))


def clusters_of(algorithm: Averaging, n: int) -> Indices | None:
    """Return the cluster of each client for the server's memories; None if the server has no memory."""
    if isinstance(algorithm, Clustering):
        return np.asarray(algorithm.cluster_of(np.arange(n)))
    return np.arange(n) if isinstance(algorithm, FedVARP) else None


def controls_of(algorithm: Averaging) -> str:
    """Return the kind of control variates of an algorithm: "change", "gradient" (also if both are equal), or ""."""
    if isinstance(algorithm, SCAFFOLD):
        return "gradient" if algorithm.local_steps == 1 else algorithm.controls
    return "change" if isinstance(algorithm, FedSCAVAR) else ""


def _check_size(algorithm: Averaging, size: int, most: int, participants: int, n: int) -> None:
    if size > most:
        raise ValueError(
            f"the mean square of {type(algorithm).__name__} with {participants} of {n} participants is too large to "
            f"compute ({size} unknowns, at most {most}); the mean's stability edge is only an upper bound"
        )


def _unit(A: Array) -> float:
    """Return the unit in which control variates, which are gradients, have the magnitude of theta."""
    return float(np.abs(A).max())


class OverwrittenMoments:
    """Second moments of theta and of one memory c_i per client, which participants overwrite; equal weights.

    In a round a participant sends ``-G_i theta + P_i h + O_i c_i`` and then sets ``c_i = N_i theta``. Theta gains
    server_step_size times the mean message. Here ``h = mean_j H_j c_j``, and ``mean_j O_j c_j = Z h``. The set
    ``T = E theta theta'``, ``X_i = E (theta, h) c_i'``, ``V_i = E c_i c_i'`` is closed. It has ``(1 + (q + 2) n) d^2``
    unknowns, where h contains q = 1 or 2 summaries; without memory, q = 0 and there is only T.
    """

    def __init__(self, algorithm: Averaging, A: Array, step_size: float, participants: int) -> None:
        n, d = A.shape[:2]
        _, Q, _ = local_maps(A, step_size, algorithm.local_steps, getattr(algorithm, "mu", 0.0), None)
        self.unit = _unit(A)
        A, step_size = A / self.unit, step_size * self.unit
        with np.errstate(over="ignore", invalid="ignore"):
            R = step_size * Q
            G, one = R @ A, np.broadcast_to(np.eye(d), (n, d, d))
            if controls_of(algorithm) and algorithm.local_steps == 1:  # R_i = step_size I
                N, O_, P, H, Z = A, R, -R, one, step_size * one[0]
            elif controls_of(algorithm):
                H, P = np.concatenate([one, R], axis=1), np.concatenate([-R, 0.0 * R], axis=2)
                N, O_, Z = A, R, np.concatenate([0.0 * one[0], one[0]], axis=1)
            elif clusters_of(algorithm, n) is not None:
                N, O_, P, H, Z = -G, -one, one, one, -one[0]
            else:
                N, O_, P, H, Z = G[:, :0], G[:, :, :0], G[:, :, :0], G[:, :0, :0], G[0, :, :0]
            server, self._a = algorithm.server_step_size, participants / n
            self._phi = set_share(n, participants)
            q = H.shape[1]
            self._N, self._H = N, H
            self._B = np.zeros((n, d + q, d + q))
            self._B[:, :d, :d], self._B[:, :d, d:] = -server * G, server * P
            self._B[:, d:, :d] = self._a * (H @ N)
            self._E = np.concatenate([server * O_, -self._a * H], axis=1)
            self._K = self._B.mean(axis=0)
            self._K[:d, d:] += server * Z
            self._K[d:, d:] -= self._a * np.eye(q)
        self._d, self._width = d, N.shape[1]
        self.size = d * d + n * self._width * (d + q + self._width)

    @property
    def mean(self) -> Array:
        """Matrix of the mean iteration of (theta, h)."""
        return np.asarray(np.eye(len(self._K)) + self._K)

    def _unpack(self, x: Array) -> tuple[Array, Array, Array]:
        d, c, (n, g) = self._d, self._width, self._B.shape[:2]
        T, X, V = x[: d * d].reshape(d, d), x[d * d : d * d + n * g * c].reshape(n, g, c), x[d * d + n * g * c :]
        return T, X, V.reshape(n, c, c)

    def start(self) -> Array:
        """Return the moments of independent theta and memories with covariance I."""
        n, c = len(self._B), self._width
        X = np.concatenate([np.zeros((n, self._d, c)), self._H / n], axis=1)
        return np.concatenate([np.eye(self._d).ravel(), X.ravel(), np.tile(np.eye(c), (n, 1, 1)).ravel()])

    def apply(self, x: Array) -> Array:
        """Return the moments after a round."""
        d, a, B, E, N, K = self._d, self._a, self._B, self._E, self._N, self._K
        T, X, V = self._unpack(x)
        T, V, M = 0.5 * (T + T.T), 0.5 * (V + V.mT), self.mean
        h = (X @ self._H.mT).mean(axis=0)  # E (theta, h) h'
        F = np.block([[T, h[:d]], [h[:d].T, 0.5 * (h[d:] + h[d:].T)]])
        # a client adds k = B_i (theta, h) + E_i c_i to (theta, h), and N_i theta - c_i to its memory
        with_state = B @ F + E @ X.mT  # E k (theta, h)'
        with_memory = B @ X + E @ V  # E k c_i'
        state_with_change = F[:, :d] @ N.mT - X
        kick_with_change = with_state[:, :, :d] @ N.mT - with_memory
        squares = (with_state[:, :d] @ B[:, :d].mT + with_memory[:, :d] @ E[:, :d].mT).mean(axis=0)
        squares -= (K @ F @ K.T)[:d, :d]
        T1 = (M @ F @ M.T)[:d, :d] + self._phi * squares
        X1 = M @ (X + a * state_with_change) + a * self._phi * (kick_with_change - K @ state_with_change)
        V1 = (1.0 - a) * V + a * N @ T @ N.mT
        return np.concatenate([T1.ravel(), X1.ravel(), V1.ravel()])


class FullMoments:
    """Second moments of the whole state z = (theta, c_1 .. c_n, y_1 .. y_C), for any weights, clusters and controls.

    A round is the sum of a deterministic part ``F z`` and rows ``r_l (L_l z + l_l)``. Each row has a random scalar r_l
    (see `drawn_moments`) and belongs to one block of the state. Hence
    ``S(X) = F X F' + F X E[sum_l r_l L_l]' + its transpose + sum_{l, l'} E[r_l r_l'] L_l X L_l''``. The rows of a
    client depend only on theta, the mean of the c_j, c_i and y_{c(i)}.
    """

    def __init__(
        self,
        algorithm: Averaging,
        A: Array,
        step_size: float,
        participants: int,
        weights: Array | None,
        b: Array | None,
    ) -> None:
        n, d = A.shape[:2]
        clusters, controls = clusters_of(algorithm, n), controls_of(algorithm)
        C, K, server = (
            0 if clusters is None else int(clusters.max()) + 1,
            algorithm.local_steps,
            algorithm.server_step_size,
        )
        _, Q, _ = local_maps(A, step_size, K, getattr(algorithm, "mu", 0.0), None)
        self.unit = _unit(A)
        b = np.zeros((n, d)) if b is None else b / self.unit
        A, step_size = A / self.unit, step_size * self.unit
        self._d, self._n, self._C, self._server = d, n, C, server
        self._clusters, self._controlled = clusters, bool(controls)
        self._shares = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
        everyone, one, zero = np.arange(n), np.broadcast_to(np.eye(d), (n, d, d)), np.zeros((n, d, d))
        first = 1 + n * bool(controls)  # block of the first y_c
        blocks = first + C
        with np.errstate(over="ignore", invalid="ignore"):
            R = step_size * Q
            change = np.concatenate([-R @ A, *([-R, R] if controls else []), *([zero] if C else [])], axis=2)
            change0 = (R @ b[..., None])[..., 0]
            sent = change - np.concatenate([*[zero] * (change.shape[2] // d - 1), one], axis=2) if C else change
            maps, constants, scalars, into = [server * sent], [server * change0], [everyone], [0 * everyone]
            if controls == "gradient":
                maps.append(np.concatenate([A, zero, -one, *([zero] if C else [])], axis=2))
                constants.append(-b)
            elif controls:
                minus = np.concatenate([zero, -one, *[zero] * (change.shape[2] // d - 2)], axis=2)
                maps.append(minus - change / (K * step_size))
                constants.append(-change0 / (K * step_size))
            if controls:
                scalars.append(n + everyone)
                into.append(1 + everyone)
            if clusters is not None:
                maps.append(change)
                constants.append(change0)
                scalars += [2 * n + everyone, 3 * n + np.arange(C)]
                into += [first + clusters, first + np.arange(C)]
                constants.append(np.zeros((C, d)))
        self._maps = np.concatenate(maps, axis=1)
        block = np.concatenate(into)
        self._order = np.argsort(block, kind="stable")
        self._starts = np.searchsorted(block[self._order], np.arange(blocks))
        self._constant = np.concatenate(constants)[self._order]
        mean, second = drawn_moments(participants, np.zeros(n, int) if clusters is None else clusters, weights)
        scalar = np.concatenate(scalars)[self._order]
        self._r, self._second = mean[scalar], second[np.ix_(scalar, scalar)]
        self._N, self.size = blocks * d, (blocks * d) ** 2

    def _rows(self, X: Array) -> Array:
        """Return all ``L_l X``, (l, d, columns), in the order of their blocks."""
        n, d = self._n, self._d
        X = X.reshape(self._N // d, d, -1)
        read, y = [np.broadcast_to(X[:1], (n, *X.shape[1:]))], X[len(X) - self._C :]
        if self._controlled:
            c = X[1 : n + 1]
            read += [np.broadcast_to(np.tensordot(self._shares, c, 1), c.shape), c]
        if self._clusters is not None:
            read.append(y[self._clusters])
        rows = (self._maps @ np.concatenate(read, axis=1)).reshape(n, -1, d, X.shape[2])
        lines = rows.transpose(1, 0, 2, 3).reshape(-1, d, X.shape[2])
        return np.asarray(np.concatenate([lines, y])[self._order])

    def _kept(self, X: Array) -> Array:
        """Return ``F X``, the deterministic part of a round: the state, plus the mean of the memories in theta."""
        out = X.copy()
        if self._clusters is not None:
            y = X[self._N - self._C * self._d :].reshape(self._C, self._d, -1)
            out[: self._d] += self._server * np.tensordot(self._shares, y[self._clusters], 1)
            out[self._N - self._C * self._d :] = 0.0
        return out

    def _add(self, rows: Array) -> Array:
        """Return the sums of the rows (l, d, ..) over each block of the state."""
        return np.asarray(np.add.reduceat(rows, self._starts, axis=0))

    def _pairs(self, Z: Array, moments: Array) -> Array:
        """Return the sums of ``moments_ll' Z_ll'`` over the rows of each pair of blocks, (N, N)."""
        Z = Z.reshape(len(moments), self._d, len(moments), self._d) * moments[:, None, :, None]
        return np.asarray(np.add.reduceat(self._add(Z), self._starts, axis=2).reshape(self._N, self._N))

    @property
    def mean(self) -> Array:
        """Matrix of the mean iteration, (N, N)."""
        identity = np.eye(self._N)
        moved = self._add(self._r[:, None, None] * self._rows(identity))
        return np.asarray(self._kept(identity) + moved.reshape(self._N, self._N))

    def start(self) -> Array:
        """Return the moments of a state with covariance I."""
        return np.eye(self._N).ravel()

    def apply(self, x: Array) -> Array:
        """Return the moments after a round."""
        X = x.reshape(self._N, self._N)
        X = 0.5 * (X + X.T)
        rows = self._rows(X)
        moved = self._add(self._r[:, None, None] * rows).reshape(self._N, self._N)
        across = self._kept(np.ascontiguousarray(moved.T))
        pairs = self._rows(np.ascontiguousarray(rows.reshape(-1, self._N).T))
        kept = self._kept(np.ascontiguousarray(self._kept(X).T))
        return np.asarray((kept + across + across.T + self._pairs(pairs, self._second)).ravel())

    def fixed_point(self) -> Array:
        """Return the fixed point of the mean, (N,): theta, control variates (divided by `unit`), memories."""
        offset = self._add(self._r[:, None] * self._constant).ravel()
        return np.asarray(np.linalg.lstsq(np.eye(self._N) - self.mean, offset, rcond=None)[0])

    def spread(self) -> Array:
        """Return the stationary covariance of theta, (d, d), for step sizes below the stability edge."""
        from scipy.sparse.linalg import LinearOperator, gmres

        x = (self._rows(self.fixed_point()[:, None])[..., 0] + self._constant).ravel()
        noise = self._pairs(np.outer(x, x), self._second - np.outer(self._r, self._r)).ravel()
        rest = LinearOperator((self.size, self.size), matvec=lambda v: v - self.apply(v), dtype=float)
        found, failed = gmres(rest, noise, rtol=1e-12, restart=80, maxiter=50)
        if failed:
            raise ValueError(
                "the stationary covariance did not converge: the step size is too close to the stability edge"
            )
        return np.asarray(found.reshape(self._N, self._N)[: self._d, : self._d])


def spectral_radius(moments: OverwrittenMoments | FullMoments, tolerance: float = TOLERANCE) -> float:
    """Return the spectral radius of the map of second moments, infinite if the map overflows."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    with np.errstate(over="ignore", invalid="ignore"):
        first = moments.apply(moments.start())
        if not np.isfinite(first).all() or np.abs(first).max() > OVERFLOWS * np.abs(moments.start()).max():
            return np.inf
    if moments.size <= DENSE:
        matrix = np.stack([moments.apply(row) for row in np.eye(moments.size)], axis=1)
        return float(np.abs(np.linalg.eigvals(matrix)).max())
    if not moments.apply(first).any():  # the map removes all moments in two rounds
        return 0.0
    operator = LinearOperator((moments.size,) * 2, matvec=moments.apply, dtype=float)
    for subspace in (20, 80):
        try:
            found = eigs(
                operator,
                k=1,
                v0=first,
                ncv=min(subspace, moments.size),
                tol=tolerance,
                maxiter=60,
                return_eigenvectors=False,
            )
            return float(np.abs(found[0]))
        except ArpackNoConvergence:
            continue
    raise ValueError(f"the spectral radius of the map of {moments.size} second moments did not converge")
