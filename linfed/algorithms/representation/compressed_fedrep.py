"""FedRep whose clients compress their messages at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, one_of, optional
from linfed.algorithms.parts.base import Algorithm, Communication, Requires
from linfed.algorithms.parts.heads import AtHeads, local_messages
from linfed.algorithms.representation.fedrep import FedRep
from linfed.checks import check_bool, check_integer, check_number, short_repr
from linfed.data.batch import Batch, Fit
from linfed.numerics.streams import TrialRandom

BITS = 32
"""Bits of a float in the counts of messages, as in the QSGD paper."""


@dataclass(frozen=True, kw_only=True)
class CompressedFedRep(FedRep):
    r"""FedRep whose clients compress their messages at random and without bias.

    Parameters
    ----------
    rank, step_size, init, heads, representation_steps, orthonormalize, weights, disjoint_samples, rotate_heads
        As in `FedRep`. `whiten` is not supported.
    aggregate : "mean" or "sum"
        How the server combines the messages, as in `FedRep`, which also has medians.
    kept_share : float, optional
        Sparsification: each entry of a message is kept with this probability, in (0, 1], and divided by it.
    levels : int, optional
        Quantisation: each entry is rounded at random to one of ``2 levels + 1`` equally spaced values between plus and
        minus the Frobenius norm of the message. Exactly one of `kept_share` and `levels` is required.
    shared_mask : bool
        If True, all clients of a round keep the same entries. Requires `kept_share`.

    Raises
    ------
    TypeError
        As in `FedRep`.
    ValueError
        As in `FedRep`. Also if `aggregate` is a median, unless exactly one of `kept_share` and `levels` is given, or if
        one is out of range, or if `shared_mask` is combined with `levels`, or if `whiten` is given. In `simulate` also
        for classification.

    Notes
    -----
    The message of a participant is ``G_i = (1/m) X_i'(Z_i w_i - y_i) w_i'`` (d, k), after several local steps
    ``(B - B_i)/eta``. With independent uniform U_i on [0, 1), for each entry g of ``G_i`` and its u:

    .. math::

        \text{sparsification: } & \hat g = g \, 1\{u < q\} / q \\
        \text{quantisation: } & \hat g = \operatorname{sign}(g) \, \|G_i\|_F \,
            \lfloor s |g| / \|G_i\|_F + u \rfloor / s \\
        & B \leftarrow \operatorname{qr}\Bigl(B - \tfrac{\eta}{p} \sum_{i \in I} \hat G_i\Bigr)

    Both are unbiased. The relative variance ``E ||G^ - G||^2 = nu ||G||^2`` is exactly ``1/q - 1`` for
    sparsification. That of quantisation depends on the message. It is at most ``min(d k/s^2, sqrt(d k)/s)``.
    `linfed.theory.near_truth_factor` predicts the effect of nu near B*.

    With exact heads and one local step a message has rank one: the vectors a (d,) and w (k,) transmit ``G_i = a w'``
    without loss in ``d + k`` floats. The server then sees the heads.

    `communication` counts the expected floats that a participant sends: each kept entry is one float. With independent
    masks its index has ``log2(d k)`` bits more, of which 32 count as one float, and a message is never longer than
    ``d k``. A shared mask needs no index, because the server draws it. A mask from a seed that the server knows would
    need none either. A quantised message has its norm and ``d k log2(2 levels + 1)`` bits.

    **Deviations**: the papers compress other algorithms' gradients. QSGD also has a variable-length code, which is not
    counted here.

    References
    ----------
    Alistarh, Grubic, Li, Tomioka and Vojnovic 2017, "QSGD: Communication-efficient SGD via gradient quantization and
    encoding"; Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> algorithm = lf.CompressedFedRep(rank=2, step_size=0.25, kept_share=0.25, shared_mask=True)
    >>> algorithm.communication(dim=20)
    Communication(down=40.0, up=10.0)
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(10), n_rounds=300)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-6)
    True
    """

    kept_share: float | None = None
    levels: int | None = None
    shared_mask: bool = False

    description: ClassVar[str] = "FedRep with sparsified or quantised messages, without bias"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            aggregate=one_of("mean", "sum"),
            kept_share=optional(partial(check_number, positive=True, maximum=1.0)),
            levels=optional(check_integer),
            shared_mask=check_bool,
        )
        if (self.kept_share is None) == (self.levels is None):
            raise ValueError(
                f"exactly one of kept_share and levels is required, got kept_share = {self.kept_share} and levels = "
                f"{self.levels}"
            )
        if self.shared_mask and self.kept_share is None:
            raise ValueError(f"shared_mask = True requires kept_share, got levels = {self.levels}")
        if self.whiten is not None:
            raise ValueError(f"whiten = {short_repr(self.whiten)} must be None: messages are compressed")

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch: the message of each client."""
        return max(super().requires, Requires.QUADRATIC)

    def check_loss(self, classes: int) -> None:
        """Raise for classification."""
        Algorithm.check_loss(self, classes)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a compressed message (up)."""
        down, entries = super().communication(dim=dim, classes=classes)
        if self.kept_share is None:
            assert self.levels is not None
            return Communication(down, 1.0 + entries * math.log2(2 * self.levels + 1) / BITS)
        index = 0.0 if self.shared_mask else math.log2(entries) / BITS
        return Communication(down, entries * min(1.0, self.kept_share * (1.0 + index)))

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the number of floats in one trial's state and temporary arrays, with the messages."""
        kept = super().floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)
        return kept + 3 * participants * dim * self.rank

    def _server_update(self, B: Array, fit: Fit | AtHeads, step_size: float, batch: Batch, rng: TrialRandom) -> Array:
        """Return B after compression and aggregation, before any QR."""
        a = local_messages(B, fit, step_size, self.representation_steps)
        found = self._compressed(a[..., :, None] * fit.W[..., None, :], rng)
        weights, p = self._weights_of(batch), fit.W.shape[1]
        share = 1.0 if self.aggregate == "sum" else 1.0 / p
        factors = np.ones((1, p)) if weights is None else weights
        return np.asarray(B - step_size * share * np.einsum("tp,tpdk->tdk", factors, found))

    def _compressed(self, messages: Array, rng: TrialRandom) -> Array:
        """Return the compressed messages, (T, p, d, k)."""
        _, p, d, k = messages.shape
        u = rng.uniform((1 if self.shared_mask else p, d, k))
        if self.kept_share is not None:
            return np.asarray(messages * (u < self.kept_share) / self.kept_share)
        assert self.levels is not None
        norms = np.linalg.norm(messages, axis=(-2, -1), keepdims=True)
        unit = norms / self.levels
        steps = np.floor(np.abs(messages) / np.where(unit > 0, unit, 1.0) + u)
        return np.asarray(np.sign(messages) * unit * steps)
