"""FedRep with the Gaussian mechanism on its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from linfed._types import Array, Mask
from linfed._values import check_fields, non_negative, one_of, optional, positive
from linfed.algorithms.parts.base import Algorithm, Requires, State
from linfed.algorithms.parts.heads import AtHeads, update_representation
from linfed.algorithms.representation.fedrep import FedRep
from linfed.checks import short_repr
from linfed.data.batch import Batch, Fit
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class PrivateFedRep(FedRep):
    r"""FedRep with clipped messages and Gaussian noise on their mean, as a simulation without a privacy guarantee.

    Parameters
    ----------
    rank, step_size, init, heads, representation_steps, orthonormalize, weights, disjoint_samples, whiten, rotate_heads
        As in `FedRep`.
    aggregate : "mean" or "sum"
        How the server combines the messages, as in `FedRep`, which also has medians.
    message_noise_std : float
        s >= 0, the standard deviation of the noise on each entry of the aggregated message, in units of the message.
        `linfed.theory.gaussian_mechanism_noise` computes it from epsilon and delta.
    clip : float, optional
        Largest Frobenius norm C > 0 of a client's message; longer messages are scaled to it. By default messages are
        not clipped.

    Raises
    ------
    TypeError
        As in `FedRep`.
    ValueError
        As in `FedRep`. Also if `aggregate` is a median, `message_noise_std` is negative, `clip` is not positive, or
        `clip` is combined with `whiten`. In `simulate` also for classification.

    Notes
    -----
    One round, with the heads of `FedRep`, the message ``G_i = (1/m) X_i'(Z_i w_i - y_i) w_i'`` of a participant, and
    independent standard normal entries of N (d, k):

    .. math::

        G &\leftarrow \tfrac{1}{p} \sum_{i \in I} \omega_i \min\Bigl(1, \frac{C}{\|G_i\|_F}\Bigr) G_i + s N \\
        B &\leftarrow \operatorname{qr}(B - \eta G)

    The ``omega_i`` are the weights in `FedRep`. One client changes the clipped mean by at most ``2 C max omega_i / p``,
    and a sum (``aggregate="sum"``) by ``2 C max omega_i``. After several local steps the message is ``(B - B_i)/eta``.
    A message has rank 1, so its norm is a product of the norms of two vectors. Noise does not depend on the samples: it
    comes from the algorithm's random numbers. Without `clip`, the engine "projected" stays available and exact in
    distribution. Clipping requires the message of each client. Noise on each client's message, for a server that is not
    trusted, is noise of standard deviation ``sqrt(p) s`` each.

    **This class does not protect data.** It simulates the accuracy of a private method. It uses floating-point
    noise from a seeded generator, and by default an initial B from unprotected data (`linfed.Moments`). Only the
    messages are noisy; heads stay with the clients.

    **Deviations**: the published code multiplies the loss by 2, and has its own formula for s, which is larger than
    that of `linfed.theory.gaussian_mechanism_noise`. It uses the same samples in every round, here ``lf.FixedSamples``.

    References
    ----------
    Snedeker, Zhou and Bassily 2025, "Private model personalization revisited"; Collins, Hassani, Mokhtari and
    Shakkottai 2021, Algorithm 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=2000, dim=20, rank=2)
    >>> noise = lf.theory.gaussian_mechanism_noise(1.0, 1e-6, sensitivity=2 * 10.0 / 2000, n_rounds=5)
    >>> algorithm = lf.PrivateFedRep(rank=2, step_size=1.5, init="random", message_noise_std=noise, clip=10.0)
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(10), n_rounds=5)
    >>> bool(0.05 < result.metrics["subspace_distance"][0, -1] < 0.9)
    True
    """

    message_noise_std: float = 0.0
    clip: float | None = None

    description: ClassVar[str] = (
        "FedRep with clipped messages and noise on their mean: the Gaussian mechanism, simulated"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, aggregate=one_of("mean", "sum"), message_noise_std=non_negative, clip=optional(positive))
        if self.clip is not None and self.whiten is not None:
            raise ValueError(f"clip = {self.clip:g} requires whiten = None, got {short_repr(self.whiten)}")

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch; clipping requires the message of each client."""
        of_noise = Requires.COORDINATES if self.message_noise_std else Requires.FEATURES
        return max(super().requires, of_noise if self.clip is None else Requires.QUADRATIC)

    def check_loss(self, classes: int) -> None:
        """Raise for classification."""
        Algorithm.check_loss(self, classes)

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials whose last step size exceeds the stability edge; None if messages are clipped."""
        return super().overshoots(state, batch, share, variance) if self.clip is None else None

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the number of floats in one trial's state and temporary arrays, with the messages to be clipped."""
        kept = super().floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)
        return kept + (0 if self.clip is None else participants * dim)

    def _server_update(self, B: Array, fit: Fit | AtHeads, step_size: float, batch: Batch, rng: TrialRandom) -> Array:
        """Return B after clipping, aggregation and noise, before any QR."""
        if self.clip is None:
            moved = super()._server_update(B, fit, step_size, batch, rng)
        else:
            moved = update_representation(
                B,
                fit,
                step_size,
                self.representation_steps,
                summed=self.aggregate == "sum",
                weights=self._weights_of(batch),
                clip=self.clip,
            )
        if not self.message_noise_std:
            return moved
        return moved - step_size * self.message_noise_std * rng.standard_normal(B.shape[1:])
