"""What an algorithm is: frozen hyper-parameters, an initial state, and a step from state to state."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices, Mask
from linfed._values import Configuration, says_last
from linfed.algorithms.initial import ChunkSizes, Initial, InitialFactors, Initialisation
from linfed.data.batch import Batch
from linfed.errors import SizeError, check_instance, shown
from linfed.numerics.layers import composed, shape_of_client
from linfed.numerics.linalg import put_clients, take_clients
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class State:
    """What has been learned: predictors ``theta_i = B w_i + s_i``, any part of which may be missing.

    Parameters
    ----------
    B : ndarray (trials, d, k), optional
        Shared representation.
    W : ndarray (trials, n, k) or (trials, 1, k), optional
        Heads, row i = client i; a single row is the head of every client. With c classes (trials, n, c, k + 1): a head
        for each class, its bias last.
    S : ndarray (trials, n, d) or (trials, 1, d), optional
        Full-dimensional part of each client; a single row is that of every client. With c classes (trials, n, c, d +
        1).

    Notes
    -----
    A state is never written into: the loop makes the arrays of every state that it is given read-only. An algorithm
    with more to remember subclasses it, adds array fields (trials first), and names those with a client axis in
    `per_client`. One whose clients predict with something that is made of its arrays says so by `served`.
    """

    B: Array | None = None
    W: Array | None = None
    S: Array | None = None

    per_client: ClassVar[frozenset[str]] = frozenset({"W", "S"})

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {np.shape(array)}" for name, array in self.arrays().items())
        return f"{type(self).__name__}({shapes})"

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        if self.B is not None:
            return int(self.B.shape[1])
        if self.S is not None:
            return int(self.S.shape[-1]) - (self.S.ndim == 4)
        served = self.served()
        return 0 if served is self else served.dim

    @property
    def classes(self) -> int:
        """Classes c that it tells apart; 0 for a state that predicts a number."""
        found = self.S if self.W is None else self.W
        if found is None:
            served = self.served()
            return 0 if served is self else served.classes
        return int(found.shape[2]) if found.ndim == 4 else 0

    def served(self) -> State:
        """Return the state whose B, W, S the clients predict with; by default this one.

        A subclass whose predictors follow from its arrays (a mix, a sum of heads) makes them here, as a plain
        `lf.State`: it is asked where predictors are looked at, at recorded rounds and in a result, and never by a step.
        """
        return self

    def trials(self, chosen: slice) -> Self:
        """Return the state of some trials."""
        changes: dict[str, Any] = {name: array[chosen] for name, array in self.arrays().items()}
        return replace(self, **changes)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays there are, by name."""
        return {name: value for name in _names(type(self)) if (value := getattr(self, name)) is not None}  # type: ignore[arg-type]  # a class is hashable

    def array(self, name: str) -> Array:
        """Return one of the arrays there are.

        Raises
        ------
        ValueError
            If the state has no such array.
        """
        value: Array | None = getattr(self, name, None)
        if value is None:
            raise ValueError(f"{State.__repr__(self)} has no {name}")
        return value

    def update(self, *, active: Indices | None = None, **changes: Array) -> Self:
        """Return a new state with some arrays replaced.

        Parameters
        ----------
        active : ndarray of int (trials, p), optional
            Participants, ascending: then a per-client array among `changes` has p rows, and the clients that are not
            named keep theirs; one whose single row all clients share has one row, as before.
        **changes : ndarray
            New values by name; arrays that are not per client are replaced as a whole.

        Raises
        ------
        ValueError
            For another number of rows.
        """
        if active is not None:
            for name in self.per_client & changes.keys():
                changes[name] = self._scattered(name, active, changes[name])
        return replace(self, **changes)

    def _scattered(self, name: str, active: Indices, new: Array) -> Array:
        """Return a per-client array with the participants' rows replaced, or the one row that all share."""
        held = self.array(name)
        rows = 1 if held.shape[1] == 1 else active.shape[-1]
        if np.shape(new)[1:2] != (rows,):
            wanted = (
                "1 row, which all clients share" if held.shape[1] == 1 else f"a row for each of {rows} participants"
            )
            raise ValueError(f"update(active=) got {name} of shape {np.shape(new)}, expected {wanted}")
        return put_clients(held, active, new) if held.shape[1] > 1 else new

    def of_clients(self, name: str, active: Indices) -> Array:
        """Return the participants' rows of a per-client array, (trials, p, ...), or the one row that all share."""
        held = self.array(name)
        return held if held.shape[1] == 1 else take_clients(held, active)

    def where(self, chosen: Mask, other: Self) -> Self:
        """Return this state in the chosen trials and `other` in the rest."""
        mine, its = self.arrays(), other.arrays()
        mixed = {name: np.where(chosen[(...,) + (None,) * (a.ndim - 1)], a, its[name]) for name, a in mine.items()}
        return replace(self, **mixed)

    def predictors(self, clients: slice | Indices | None = None) -> Array:
        """Return the predictors theta_i as a dense array, (trials, clients, d); (trials, 1, d) where all share one.

        With c classes (trials, clients, c, d + 1): logits are ``theta_i (x, 1)``.

        Parameters
        ----------
        clients : slice or index array, optional
            Which clients; all by default.

        Raises
        ------
        SizeError
            If the dense array would take more than 8 GB: then ask for some clients, or use the factors B, W, S.
        """
        served = self.served()

        def chosen(part: Array) -> Array:
            return part if part.shape[1] == 1 or clients is None else part[:, clients]

        parts = {name: chosen(part) for name, part in served.arrays().items() if name in ("W", "S")}
        trials, rows = (max(part.shape[axis] for part in parts.values()) for axis in (0, 1))
        size = 8 * trials * rows * math.prod(shape_of_client(served.dim, served.classes))
        if size > 8e9:
            raise SizeError(
                f"the dense predictors would take {size / 1e9:.3g} GB: name some clients=, or use the factors B, W, S"
            )
        if served.B is None or "W" not in parts:
            return parts["S"].copy()
        low_rank = composed(served.B, parts["W"])
        return low_rank + parts["S"] if "S" in parts else low_rank


S = TypeVar("S", bound=State)


def frozen(state: S) -> S:
    """Return a state after making its arrays read-only, in place."""
    for array in state.arrays().values():
        array.setflags(write=False)
    return state


@functools.cache
def _names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a state class's arrays."""
    return tuple(field.name for field in fields(cls))


class Start(ChunkSizes, Protocol):
    """What an algorithm may know before the first round; the loop answers, and keeps the truth to itself."""

    @property
    def rng(self) -> TrialRandom:
        """The algorithm's own random numbers."""
        ...

    @property
    def counts(self) -> Array:
        """Samples m_i of each client, (trials, n); per round where they are fresh."""
        ...

    @property
    def classes(self) -> int:
        """Classes c of the samples; 0 where labels are numbers."""
        ...

    def zeros(self, clients: int, columns: int) -> Array:
        """Return heads (or predictors, with d columns) at 0, of so many clients: (trials, clients, columns).

        With c classes (trials, clients, c, columns + 1).
        """
        ...

    def representation(self, init: Initial | str | npt.ArrayLike, rank: int) -> Array:
        """Return the initial representation (trials, d, rank) that `init` describes, or raise if nothing does."""
        ...

    def factors(self, init: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike], rank: int) -> tuple[Array, Array]:
        """Return the initial B (trials, d, rank) and W (trials, n, rank) that `init` describes, or raise."""
        ...


class Asks(IntEnum):
    """What the steps of an algorithm ask of a batch: the less, the cheaper the engines that can serve them exactly."""

    GRADIENTS = 0
    """One ``project(B)`` at the state's B, and both gradients at the heads that the state has."""

    FEATURES = 1
    """One ``project(B)`` at the state's B, heads from it, and one representation gradient a step."""

    QUADRATIC = 2
    """Anything that depends on the samples through their second moments: every full-batch quadratic loss."""

    ROWS = 3
    """The samples themselves."""


class Communication(NamedTuple):
    """Numbers between the server and one participant in a round: `down` to it, and `up` from it."""

    down: float
    up: float


class Algorithm(Configuration, ABC):
    """Base of all algorithms: subclasses are frozen dataclasses whose fields are the hyper-parameters."""

    summary: ClassVar[str]
    """One line for lists."""

    @property
    def asks(self) -> Asks:
        """What its steps ask of a batch; the samples themselves, unless a class says less (`asks_of`)."""
        return Asks.ROWS

    @property
    def columns(self) -> int:
        """Columns k of the representation B it learns; 0 if it learns none. By default its field `rank`."""
        rank: Any = getattr(self, "rank", 0)
        return int(rank)

    @property
    def initial_columns(self) -> int:
        """Columns of what `initialisation` describes; by default those of the B it learns."""
        return self.columns

    @property
    def initialisation(self) -> Initialisation | None:
        """How it begins, where that is one of `linfed.algorithms.initial`: engines and memory depend on it."""
        return None

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if the hyper-parameters do not fit a problem of this size; by default if k exceeds d."""
        if self.columns > dim:
            raise ValueError(f"rank = {self.columns} must be at most dim = {dim}")

    def check_loss(self, classes: int) -> None:
        """Raise if it cannot learn from samples of so many classes, or of none; by default it is of squares alone."""
        if classes:
            raise ValueError(f"{type(self).__name__} is of squares, and the samples are of {classes} classes")

    def for_rounds(self, rounds: int) -> Algorithm:
        """Return the algorithm that a run of so many rounds takes; itself, unless something is told round by round."""
        return self

    @property
    def finishes(self) -> bool:
        """Whether it ends with `finish`, e.g. fine-tuning; the loop records that as one more round."""
        return False

    @abstractmethod
    def initial_state(self, start: Start) -> State:
        """Return the state before the first round."""

    @abstractmethod
    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round with this batch; never writes into `state`."""

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after what is done once, after the last round, with a batch of all clients."""
        return state

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the state of clients that took no part in the training, from a batch of theirs.

        By default they keep the B that clients are served with and fit their heads exactly (of minimum norm where m <
        k); without a B they take the predictor that all clients share. The state has one row for each client of the
        batch, or one for all.

        Raises
        ------
        ValueError
            If the algorithm learns nothing that a new client could take over.
        """
        state = state.served()
        if state.B is not None:
            return State(B=state.B, W=batch.project(state.B).fit().W)
        if state.S is None or state.S.shape[1] > 1:
            raise ValueError(f"{type(self).__name__} learns nothing that a new client could take over")
        return State(S=state.S)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return how many floats a participant and the server exchange in a round; by default B, both ways.

        What is sent before the first round or after the last (an initialisation, fine-tuning) does not count. NaN where
        an algorithm has no B and says nothing. Where clients send unequal amounts it is the mean over all of them. With
        `classes` the model is of so many.
        """
        size = float(self.columns * dim) or np.nan
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return how many numbers one trial's state holds, and what a step adds to it; by default B and W."""
        return self.columns * (n_clients + dim)


def check_algorithm(algorithm: object) -> None:
    """Raise unless it is an algorithm."""
    check_instance("algorithm", algorithm, Algorithm, "an algorithm, e.g. lf.FedRep(rank=2, step_size=0.5)")


def asks_of(algorithm: Algorithm) -> Asks:
    """Return what an algorithm's steps ask of a batch.

    What a class says holds for the steps that it knows: a subclass with a step of its own that says nothing new is
    taken to ask for the samples themselves. Batches refuse the questions that they cannot answer, but nobody would
    refuse a step that reads the rows of a compressed batch as samples, or the entries of B in the chain's frame.
    """
    asks: Any = algorithm.asks
    if not isinstance(asks, Asks):
        allowed = ", ".join(f"lf.Asks.{one.name}" for one in Asks)
        raise TypeError(f"{type(algorithm).__name__}.asks = {shown(asks)} must be one of {allowed}")
    return asks if says_last(type(algorithm), "asks", ("step", "finish")) else Asks.ROWS
