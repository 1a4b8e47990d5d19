"""FedRolex (Alam et al. 2022): averaging whose clients train rolling parts of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, one_of
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import Communication, State
from linfed.algorithms.parts.models import LinearModel, client_weights, weighted_mean
from linfed.checks import check_number, is_several, short_repr
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom

ROUNDING = 1e-9
"""Added before rounding down, so that 0.29 of 100 units is 29 in spite of floating-point errors."""


def checked_shares(name: str, value: Any) -> float | tuple[float, ...]:
    """Return valid shares of the model in (0, 1], one float or a tuple with one per client, or raise."""
    if not is_several(value):
        return check_number(name, value, positive=True, maximum=1.0)
    shares = tuple(check_number(f"{name}[{i}]", one, positive=True, maximum=1.0) for i, one in enumerate(value))
    if not shares:
        raise ValueError(f"{name} = {short_repr(value)} must have one share for each client")
    return shares


def window_sizes(shares: Array, width: int) -> Array:
    """Return the window size of each share, in units out of `width`; shaped like `shares`."""
    return np.maximum(1.0, np.floor(shares * width + ROUNDING))


def trained_units(shares: Array, width: int, round_: int) -> Array:
    """Return an array (.., width) with 1 at the units that clients with these shares (..) train in a round, else 0.

    Rounds count from 1.
    """
    units = (np.arange(width) - (round_ - 1)) % width < window_sizes(shares, width)[..., None]
    return units.astype(float)


@dataclass(frozen=True, kw_only=True)
class Rolling(Averaging):
    """Base class of algorithms whose clients train windows of the model; its fields are documented in `FedRolex`."""

    model_share: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, model_share=checked_shares)

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if the number of shares is not the number of clients, or k exceeds d."""
        super().check(n_clients=n_clients, dim=dim)
        if isinstance(self.model_share, tuple) and len(self.model_share) != n_clients:
            raise ValueError(
                f"model_share has {len(self.model_share)} values, expected one for each of {n_clients} clients"
            )

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of the model within the window, for both directions."""
        model = LinearModel(dim, self.learned_rank, classes)
        width = model.rank or dim
        share = float(np.mean(window_sizes(np.asarray(self.model_share), width))) / width
        size = share * (model.size - classes) + classes  # biases are in every window
        return Communication(size, size)

    def trained(self, model: LinearModel, batch: Batch) -> Array:
        """Return an array (T, p, P) with 1 at the parameters that each participant trains in this round, else 0."""
        shares = np.asarray(self.model_share)
        active_shares = shares[batch.active] if shares.ndim else np.full(batch.active.shape, shares)
        return model.vector_of_units(trained_units(active_shares, model.rank or model.dim, batch.round))


@dataclass(frozen=True, kw_only=True)
class FedRolex(Rolling):
    """Averaging whose clients train only a window of the model, which moves by one unit per round.

    Parameters
    ----------
    model_share : float or sequence of float (n,)
        beta in (0, 1], the share of the units that a client trains; one for all clients, or one per client. Units are
        the coordinates of theta with one layer, and the columns of B with their entries of w with two layers.
    aggregation : "published" or "zero-filled"
        "published": a parameter changes by the mean change of the clients that trained it. "zero-filled": it changes by
        the sum of p_i times the changes, with 0 for the other participants (pseudocode of the averaging family).
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    TypeError
        As in `FedAvg`.
    ValueError
        As in `FedAvg`, and if a share is outside of (0, 1], or the number of shares is not the number of clients.

    Notes
    -----
    In round r = 1, 2, .. the window contains ``max(1, floor(beta_i u))`` of the u units, starting at unit
    ``(r - 1) mod u`` and wrapping around. All other units are 0 in the client's model, so the client fits its labels
    with the window only. With beta = 1 it is FedAvg.

    **Deviations**: the pseudocode's formula for the window has the number of samples instead of the width of the
    layer. The server step size, full-gradient steps, schedules and fine-tuning are additions.

    References
    ----------
    Alam, Liu, Yan and Zhang 2022, Algorithm 1; the pseudocode of the averaging family, Algorithm 7.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> algorithm = lf.FedRolex(step_size=0.1, rank=4, model_share=0.5)
    >>> lf.simulate(algorithm, problem, data=lf.FixedSamples(30), n_rounds=9, participation=0.5).final.B.shape
    (1, 6, 4)
    """

    aggregation: Literal["published", "zero-filled"] = "published"

    requires = Averaging.requires
    description: ClassVar[str] = "averaging whose clients train rolling parts of the model"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, aggregation=one_of("published", "zero-filled"))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model = LinearModel.of(state)
        server, trained = model.shared(state), self.trained(model, batch)
        change, _ = self.local_change(model, batch, server * trained, rng, lambda g, _: trained * g)
        moved = self.average(batch, change)
        if self.aggregation == "published":
            seen = weighted_mean(trained, client_weights(batch, self.weights))
            moved = np.where(seen > 0, moved / np.where(seen > 0, seen, 1.0), 0.0)
        return state.update(**model.parts(server + self.server_step_size * moved))
