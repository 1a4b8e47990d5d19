"""Synthetic classification data of heterogeneous clients, as in the FedProx paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.checks import check_bool, check_integer, check_number, is_several, short_repr
from linfed.data.given_classes import GivenClasses
from linfed.numerics.streams import Seed, Stream, check_seed, generators
from linfed.system.memory import check_fits

LOG_MEAN, LOG_STD, FEWEST = 4.0, 2.0, 50
"""Published numbers of samples: `FEWEST` plus a lognormal number, rounded down."""


def synthetic_classes(
    alpha: float,
    beta: float,
    *,
    iid: bool = False,
    n_clients: int = 30,
    n_samples: int | Sequence[int] | None = None,
    test_samples: int = 100,
    dim: int = 60,
    n_classes: int = 10,
    trials: int = 1,
    seed: Seed = 0,
) -> GivenClasses:
    """Draw the data Synthetic(alpha, beta) of the FedProx paper: linear classifiers and inputs that differ by client.

    Parameters
    ----------
    alpha : float
        Variance of the means ``u_i`` of the clients' classifiers, at least 0; see the Notes for its effect.
    beta : float
        Variance of the means ``B_i`` of the clients' inputs, at least 0.
    iid : bool, default False
        If True, all clients share one classifier, and all inputs have mean 0. Requires ``alpha = beta = 0``.
    n_clients : int, default 30
        Number of clients n.
    n_samples : int or sequence of n ints, optional
        Number of training samples of each client. By default ``50 + floor(exp(4 + 2 g))`` with a standard Gaussian
        number g for each client and trial.
    test_samples : int, default 100
        Number of held-out samples of each client; 0 for none.
    dim, n_classes : int, default 60 and 10
        Dimension d of the inputs, and number of classes c >= 2.
    trials : int
        Number of independent data sets.
    seed : int or tuple of int
        A trial's data are a function of (seed, trial).

    Returns
    -------
    GivenClasses
        X (trials, n, m, d), and counts (trials, n); m is the largest count of all trials.

    Raises
    ------
    ValueError
        If a value is out of range, or options cannot be combined.
    SizeError
        If the samples do not fit into memory.

    Notes
    -----
    For client i::

        u_i ~ N(0, alpha),   W_i (c, d) and b_i (c,) with entries N(u_i, 1)
        B_i ~ N(0, beta),    v_i (d,) with entries N(B_i, 1)
        x ~ N(v_i, Sigma),   Sigma diagonal, Sigma_jj = j^{-1.2},   y = argmax(W_i x + b_i)

    A client's labels are a function of x, so a linear classifier with biases for each client has accuracy 1. The
    random numbers of a trial do not depend on alpha and beta.

    **alpha has no effect.** u_i adds the same number, ``u_i (1'x + 1)``, to all logits of a sample, so y does not
    depend on it. The classifiers of different clients are independent for every alpha, also at 0; only `iid` makes them
    equal.

    The published numbers of samples vary much: the largest of 30 is about 3,000 in the median, and above 12,000 in one
    of ten trials. X is padded with zeros to the largest number. `n_samples` avoids this.

    **Deviations**: the paper's N(0, alpha) and N(0, beta) are read as variances, as in N(v_i, Sigma). The authors'
    program passes alpha and beta to NumPy as standard deviations: its Synthetic(0.5, 0.5) is
    ``synthetic_classes(0.25, 0.25)``. At 0 and 1 the two agree. The program holds out a tenth of each client's samples;
    here the held-out samples are additional.

    References
    ----------
    T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: Federated optimization in heterogeneous networks,
    MLSys 2020; https://github.com/litian96/FedProx, data/synthetic_1_1/generate_synthetic.py.

    Examples
    --------
    >>> import linfed as lf
    >>> data = lf.synthetic_classes(1.0, 1.0, n_samples=80, trials=2)
    >>> data
    GivenClasses(X of shape (2, 30, 80, 60), samples per client 80, held-out samples per client 100, 10 classes)
    >>> accuracy = lf.simulate(lf.FedAvg(step_size=0.1), data=data, n_rounds=50).metrics["accuracy"]
    >>> bool(accuracy[:, -1].min() > 0.7)
    True
    """
    alpha, beta = check_number("alpha", alpha, minimum=0.0), check_number("beta", beta, minimum=0.0)
    if check_bool("iid", iid) and (alpha or beta):
        raise ValueError(f"iid = True requires alpha = beta = 0; got alpha = {alpha:g}, beta = {beta:g}")
    n, d = check_integer("n_clients", n_clients), check_integer("dim", dim)
    c, trials = check_integer("n_classes", n_classes, minimum=2), check_integer("trials", trials)
    test, seed = check_integer("test_samples", test_samples, minimum=0), check_seed(seed)
    check_fits(
        float(trials) * n * (c + 1) * (d + 1),
        f"trials = {trials} of n_clients = {n} with n_classes = {c} in dimension {d}",
        "use fewer trials, clients or classes, or a smaller dim",
    )
    given = None if n_samples is None else _checked_counts(n_samples, n)
    rngs = generators(seed, Stream.TRUTH, range(trials))
    clients = [_draw_clients(rng, n, d, c, alpha, beta, iid) for rng in rngs]
    counts = np.stack([_draw_counts(rng, n) if given is None else given for rng in rngs])
    largest = int(counts.max())
    check_fits(
        2.0 * trials * n * (largest + test) * (d + 1),
        f"trials = {trials} of n_clients = {n} with up to {largest} samples of dimension {d} each",
        "use fewer trials, or smaller n_samples",
    )
    data = GivenClasses._made(*_draw_samples(clients, counts, generators(seed, Stream.X, range(trials))))
    if test:
        of_test = np.full_like(counts, test)
        data.test = GivenClasses._made(*_draw_samples(clients, of_test, generators(seed, Stream.TEST, range(trials))))
    data.number(c)
    return data


Clients = tuple[Array, Array, Array]
"""Classifiers W (n, c, d) and b (n, c), and means of the inputs (n, d)."""


def _checked_counts(n_samples: object, n: int) -> Indices:
    """Return the numbers of samples, (n,)."""
    if not is_several(n_samples):
        return np.full(n, check_integer("n_samples", n_samples))
    if len(n_samples) != n:
        raise ValueError(
            f"n_samples = {short_repr(n_samples)} has {len(n_samples)} entries, but must be an integer, or "
            f"n_clients = {n} of them"
        )
    return np.array([check_integer(f"n_samples[{i}]", count) for i, count in enumerate(n_samples)], dtype=np.intp)


def _draw_counts(rng: Generator, n: int) -> Indices:
    """Draw the published numbers of samples, (n,)."""
    drawn = np.exp(LOG_MEAN + LOG_STD * rng.standard_normal(n))
    return FEWEST + np.floor(drawn).astype(np.intp)


def _draw_clients(rng: Generator, n: int, d: int, c: int, alpha: float, beta: float, iid: bool) -> Clients:
    """Draw the clients of a trial."""
    u, centre = math.sqrt(alpha) * rng.standard_normal(n), math.sqrt(beta) * rng.standard_normal(n)
    W = u[:, None, None] + rng.standard_normal((n, c, d))
    b = u[:, None] + rng.standard_normal((n, c))
    means = centre[:, None] + rng.standard_normal((n, d))
    if iid:
        return np.broadcast_to(W[0], W.shape), np.broadcast_to(b[0], b.shape), np.zeros((n, d))
    return W, b, means


def _draw_samples(clients: Sequence[Clients], counts: Indices, rngs: Sequence[Generator]) -> tuple[Array, Array, Array]:
    """Draw samples (trials, n, m, d) and labels (trials, n, m), padded with zeros, and return them with the counts."""
    trials, n = counts.shape
    d = clients[0][2].shape[-1]
    std = np.arange(1.0, d + 1) ** -0.6
    X, labels = np.zeros((trials, n, int(counts.max()), d)), np.zeros((trials, n, int(counts.max())))
    for t, (rng, (W, b, means)) in enumerate(zip(rngs, clients, strict=True)):
        for i, count in enumerate(counts[t].tolist()):
            rows = means[i] + std * rng.standard_normal((count, d))
            X[t, i, :count], labels[t, i, :count] = rows, np.argmax(rows @ W[i].T + b[i], axis=-1)
    return X, labels, counts.astype(np.float64)
