"""Base classes of algorithms and of their states."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices, Mask, MaybeNone
from linfed._values import Configuration, EqualByValue, declared_last
from linfed.algorithms.initial import ChunkSizes, Initial, InitialFactors, Initialization
from linfed.checks import (
    check_active,
    check_clients,
    check_instance,
    check_integer,
    check_text,
    short_repr,
)
from linfed.data.batch import Batch
from linfed.errors import SizeError
from linfed.numerics.layers import composed, shape_of_client
from linfed.numerics.linalg import put_clients, take_clients
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class State(EqualByValue):
    """State of an algorithm after a round: predictors ``theta_i = B w_i + s_i``, whose parts are all optional.

    Parameters
    ----------
    B : ndarray (trials, d, k), optional
        Shared representation.
    W : ndarray (trials, n, k) or (trials, 1, k), optional
        Heads, row i = client i; a single row is the head of every client. With c classes (trials, n, c, k + 1): a head
        for each class, its bias last.
    S : ndarray (trials, n, d) or (trials, 1, d), optional
        Full-dimensional part of each client; a single row is shared by all clients. With c classes (trials, n, c, d +
        1).
    shared : ndarray (trials, 1, d) or (trials, 1, k), optional
        The server's predictor or head, of an algorithm whose S or W are the clients' own. Predictors do not use it.

    Notes
    -----
    States are immutable: the loop makes all their arrays read-only. An algorithm that stores more arrays subclasses
    `State`, adds array fields (trials first), and names the fields with a client axis in `per_client`. If the clients'
    predictors are computed from these arrays, the subclass overrides `for_prediction`.

    Examples
    --------
    >>> import linfed as lf, numpy as np
    >>> state = lf.State(B=np.ones((1, 3, 2)), W=np.zeros((1, 5, 2)))
    >>> state
    State(B (1, 3, 2), W (1, 5, 2))
    >>> state.update(W=np.ones((1, 5, 2))).predictors().shape
    (1, 5, 3)
    """

    B: Array | MaybeNone = None
    W: Array | MaybeNone = None
    S: Array | MaybeNone = None
    shared: Array | MaybeNone = None

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
        served = self.for_prediction()
        return 0 if served is self else served.dim

    @property
    def classes(self) -> int:
        """Number of classes c; 0 for regression."""
        found = self.S if self.W is None else self.W
        if found is None:
            served = self.for_prediction()
            return 0 if served is self else served.classes
        return int(found.shape[2]) if found.ndim == 4 else 0

    def for_prediction(self) -> State:
        """Return the state whose B, W, S are the clients' predictors; by default this one.

        A subclass whose predictors are computed from its arrays (a mix, a sum of heads) returns them here as a plain
        `lf.State`. The loop calls this method at recorded rounds and for results, never within a step.
        """
        return self

    def trials(self, chosen: slice) -> Self:
        """Return the state of some trials; raises TypeError unless `chosen` is a slice."""
        check_instance("chosen", chosen, slice, "a slice")
        changes: dict[str, Any] = {name: array[chosen] for name, array in self.arrays().items()}
        return replace(self, **changes)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are not None, by name."""
        return {name: value for name in array_names(type(self)) if (value := getattr(self, name)) is not None}  # type: ignore[arg-type]  # a class is hashable

    def array(self, name: str) -> Array:
        """Return the array of a name.

        Raises
        ------
        ValueError
            If the state has no such array.
        """
        value: Array | None = getattr(self, check_text("name", name), None)
        if value is None:
            raise ValueError(f"{State.__repr__(self)} has no {name!r}: name must be one of its arrays")
        return value

    def update(self, *, active: Indices | None = None, **changes: Array) -> Self:
        """Return a new state with some arrays replaced.

        Parameters
        ----------
        active : ndarray of int (trials, p), optional
            Participants, ascending. Each per-client array in `changes` then has p rows, and all other clients keep
            their rows. An array whose single row is shared by all clients must have one row.
        **changes : ndarray
            New values by name; arrays that are not per client are replaced as a whole. Each has one entry per trial,
            and the widths of B, W and S agree.

        Returns
        -------
        State
            A new state of this class.

        Raises
        ------
        ValueError
            If an array has the wrong number of trials, rows or columns, or `active` is invalid.
        """
        if active is not None:
            for name in self.per_client & changes.keys():
                changes[name] = self._scattered(name, active, changes[name])
        new = replace(self, **changes)
        if any(np.shape(array) != np.shape(getattr(self, name)) for name, array in changes.items()):
            new._check_sizes(changes)
        return new

    def _check_sizes(self, changes: Iterable[str]) -> None:
        """Raise unless all arrays have one number of trials, and W and S fit B; the message names the `changes`."""
        shapes = {name: np.shape(array) for name, array in self.arrays().items()}
        lengths = {shape[:1] for shape in shapes.values()}
        wanted = "all arrays must have one number of trials" if len(lengths) > 1 or () in lengths else ""
        if "B" in shapes and not wanted:
            d, k = (0, *shapes["B"])[-2:]
            for name, width in (("W", k), ("S", d)):
                if name in shapes and shapes[name][-1] != width + (len(shapes[name]) == 4):
                    wanted = f"the columns of {name} must fit B"
        if wanted:
            told = ", ".join(f"{name} of shape {shapes[name]}" for name in changes if name in shapes)
            raise ValueError(f"update() got {told}, but {wanted}: the result would be {State.__repr__(self)}")

    def _scattered(self, name: str, active: Indices, new: Array) -> Array:
        """Return a per-client array with the participants' rows replaced, or the single shared row."""
        array = self.array(name)
        _check_participants(active, array)
        rows = 1 if array.shape[1] == 1 else active.shape[-1]
        if np.shape(new) != (expected := (len(array), rows, *array.shape[2:])):
            wanted = (
                "1 row, which all clients share" if array.shape[1] == 1 else f"a row for each of {rows} participants"
            )
            raise ValueError(f"update(active=) got {name} of shape {np.shape(new)}, expected {wanted}: {expected}")
        return put_clients(array, active, new) if array.shape[1] > 1 else new

    def take_clients(self, name: str, active: Indices) -> Array:
        """Return the participants' rows of a per-client array, (trials, p, ...), or the single shared row."""
        array = self.array(name)
        _check_participants(active, array)
        return array if array.shape[1] == 1 else take_clients(array, active)

    def where(self, chosen: Mask, other: Self) -> Self:
        """Return this state in the chosen trials and `other` in the rest."""
        mine, its = self.arrays(), other.arrays()
        mixed = {name: np.where(chosen[(...,) + (None,) * (a.ndim - 1)], a, its[name]) for name, a in mine.items()}
        return replace(self, **mixed)

    def predictors(self, clients: slice | Sequence[int] | Indices | None = None) -> Array:
        """Return the predictors theta_i as a dense array.

        Parameters
        ----------
        clients : slice or sequence of int, optional
            Clients whose predictors to return, each once; all by default.

        Returns
        -------
        ndarray (trials, clients, d)
            (trials, 1, d) if all clients share one predictor. With c classes (trials, clients, c, d + 1): the logits
            are ``theta_i (x, 1)``.

        Raises
        ------
        ValueError
            If `clients` is neither a slice nor a sequence of numbers of clients.
        SizeError
            If the dense array would take more than 8 GB: pass fewer clients, or use the factors B, W, S.
        """
        served = self.for_prediction()
        rows = {name: part for name, part in served.arrays().items() if name in ("W", "S")}
        if clients is not None and not isinstance(clients, slice):
            clients = check_clients(clients, _client_count(*rows.values()))

        def chosen(part: Array) -> Array:
            return part if part.shape[1] == 1 or clients is None else part[:, clients]

        parts = {name: chosen(part) for name, part in rows.items()}
        trials, count = (max(part.shape[axis] for part in parts.values()) for axis in (0, 1))
        size = 8 * trials * count * math.prod(shape_of_client(served.dim, served.classes))
        if size > 8e9:
            raise SizeError(
                f"the dense predictors would take {size / 1e9:.3g} GB: pass fewer clients=, or use the factors B, W, S"
            )
        if served.B is None or "W" not in parts:
            return parts["S"].copy()
        low_rank = composed(served.B, parts["W"])
        return low_rank + parts["S"] if "S" in parts else low_rank


S = TypeVar("S", bound=State)


def frozen(state: S) -> S:
    """Make a state's arrays read-only, in place, and return the state."""
    for array in state.arrays().values():
        array.setflags(write=False)
    return state


def _check_participants(active: object, array: Array) -> None:
    """Raise unless `active` fits a per-client array (trials, n, ..), or (trials, 1, ..) if all clients share a row."""
    check_active(active, array.shape[0], _client_count(array))


def _client_count(*arrays: Array) -> float:
    """Return the number of clients n of per-client arrays; infinity if all have a single row, which clients share."""
    most = max(array.shape[1] for array in arrays)
    return most if most > 1 else math.inf


def separate(state: S, earlier: State | None = None) -> S:
    """Return a state with copies of its arrays, which the algorithm may write into, except arrays of `earlier`."""
    kept = {} if earlier is None else earlier.arrays()
    copies: dict[str, Any] = {
        name: array.copy("K") for name, array in state.arrays().items() if array is not kept.get(name)
    }
    return replace(state, **copies)


@functools.cache
def array_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a state class's arrays."""
    return tuple(field.name for field in fields(cls))


class InitContext(ChunkSizes, Protocol):
    """Sizes, random numbers and initial factors for `Algorithm.initial_state`, without access to the ground truth."""

    @property
    def rng(self) -> TrialRandom:
        """Random numbers reserved for the algorithm."""
        ...

    @property
    def counts(self) -> Array:
        """Samples m_i of each client, (trials, n); per round if the samples are fresh."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes c of the samples; 0 for regression."""
        ...

    def zeros(self, clients: int, columns: int) -> Array:
        """Return heads (or predictors, if `columns` is d) equal to 0, (trials, clients, columns).

        With c classes the shape is (trials, clients, c, columns + 1).
        """
        ...

    def representation(self, init: Initial | str | npt.ArrayLike, rank: int) -> Array:
        """Return the initial representation (trials, d, rank) that `init` describes, or raise if it is invalid."""
        ...

    def factors(self, init: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike], rank: int) -> tuple[Array, Array]:
        """Return the initial B (trials, d, rank) and W (trials, n, rank) that `init` describes.

        Raises ValueError if `init` is invalid.
        """
        ...


class Requires(IntEnum):
    """Operations on a batch that an algorithm's steps require: the fewer, the cheaper the engines that support them.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.FedRep(rank=2, step_size=0.5).requires.name
    'FEATURES'
    >>> lf.Requires.GRADIENTS < lf.Requires.ROWS
    True
    """

    GRADIENTS = 0
    """One ``project(B)`` at the state's B, and both gradients at the state's heads."""

    FEATURES = 1
    """One ``project(B)`` at the state's B, heads fitted from it, and one representation gradient per step."""

    COORDINATES = 2
    """As FEATURES, and the coordinates of x: the step uses the entries of B, e.g. to add noise to each."""

    QUADRATIC = 3
    """Any operation that depends on the samples only through their second moments: every full-batch quadratic loss."""

    ROWS = 4
    """The samples themselves."""


class Communication(NamedTuple):
    """Floats exchanged between the server and one participant in a round: `down` to the client, `up` to the server."""

    down: float
    up: float


def _with_checked_sizes(method: Callable[..., Communication]) -> Callable[..., Communication]:
    """Return the method `communication` of a class with checks of its arguments, which every subclass needs."""

    @functools.wraps(method)
    def communication(self: Algorithm, **sizes: Any) -> Communication:
        return method(self, **{n: check_integer(n, size, minimum=int(n == "dim")) for n, size in sizes.items()})

    return communication


class Algorithm(Configuration, ABC):
    """Base class of all algorithms: subclasses are frozen dataclasses whose fields are the hyper-parameters.

    A subclass defines `description`, `initial_state` and `step`; everything else has a default.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import linfed as lf
    >>> @dataclass(frozen=True, kw_only=True)
    ... class OneGradientStep(lf.Algorithm):
    ...     step_size: float
    ...     description = "one shared predictor, one gradient step per round"
    ...     requires = lf.Requires.QUADRATIC
    ...
    ...     def initial_state(self, start):
    ...         return lf.State(S=start.zeros(1, start.dim))
    ...
    ...     def step(self, state, batch, rng):
    ...         gradient = batch.gradient(state.S).mean(axis=1, keepdims=True)
    ...         return lf.State(S=state.S - self.step_size * gradient)
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=5, rank=2)
    >>> result = lf.simulate(OneGradientStep(step_size=0.5), problem, data=lf.FreshSamples(20), n_rounds=3)
    >>> result.final.S.shape
    (1, 1, 5)
    """

    description: ClassVar[str]
    """One-line description for lists of algorithms."""

    requires: ClassVar[Any] = Requires.ROWS
    """Operations that the steps require of a batch, a `Requires` or a property that returns one (see `requires_of`)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "communication" in vars(cls):
            cls.communication = _with_checked_sizes(cls.communication)  # type: ignore[method-assign]

    @property
    def learned_rank(self) -> int:
        """Columns k of the learned representation B; 0 without one. By default the field `rank`."""
        rank: Any = getattr(self, "rank", 0)
        return int(rank)

    @property
    def initial_columns(self) -> int:
        """Columns of the B that `initialization` describes; by default `learned_rank`."""
        return self.learned_rank

    @property
    def initialization(self) -> Initialization | None:
        """Initialisation of B, if it is one of `linfed.algorithms.initial`: engines and memory depend on it."""
        return None

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if the hyper-parameters do not fit a problem of this size; by default if k exceeds d."""
        if self.learned_rank > dim:
            raise ValueError(f"rank = {self.learned_rank} must be at most dim = {dim}")

    def check_loss(self, classes: int) -> None:
        """Raise if the algorithm does not support samples of `classes` classes (0: regression).

        By default only regression is supported.
        """
        if classes:
            raise ValueError(f"{type(self).__name__} supports only regression, but the samples have {classes} classes")

    def for_rounds(self, n_rounds: int) -> Algorithm:
        """Return the algorithm for a run of `n_rounds` rounds: itself, unless a hyper-parameter is given per round."""
        return self

    @property
    def finishes(self) -> bool:
        """Whether `finish` (e.g. fine-tuning) follows the last round; the loop records it as one more round."""
        return False

    @abstractmethod
    def initial_state(self, start: InitContext) -> State:
        """Return the state before the first round."""

    @abstractmethod
    def step(self, state: Any, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round with this batch; must not modify `state`."""

    def finish(self, state: Any, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after the final step, which follows the last round and uses a batch of all clients."""
        return state

    def adapt(self, state: Any, batch: Batch) -> State:
        """Return the state of new clients, which took no part in the training, from a batch of their samples.

        By default new clients use the trained B and fit their heads exactly (minimum norm if m < k). Without a B they
        use the predictor that all clients share.

        Returns
        -------
        State
            With one row per client of the batch, or one row for all.

        Raises
        ------
        ValueError
            If the algorithm learns nothing that new clients can use.
        """
        state = state.for_prediction()
        if state.B is not None:
            return State(B=state.B, W=batch.project(state.B).fit().W)
        if state.S is None or state.S.shape[1] > 1:
            raise ValueError(f"{type(self).__name__} learns nothing that new clients can use")
        return State(S=state.S)

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials whose last step size exceeds the stability edge, (T,), although all parameters are finite.

        Parameters
        ----------
        state : State
            State after the last round.
        batch : Batch
            Samples of the last round; for fixed samples a batch of all clients.
        share : float
            Share p/n of the clients that participate in a round.
        variance : float or None
            Mean variance of fresh x outside span(B*), given its coordinates inside; None for fixed samples.

        Returns
        -------
        ndarray of bool (T,) or None
            By default None: not known, or parameters of a run with such a step diverge.
        """
        return None

    def unfinished(self, state: State) -> Mask | None:
        """Return the trials in which a minimiser stopped at its largest number of iterations; by default None."""
        return None

    @_with_checked_sizes
    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the number of floats that a participant and the server exchange in a round; by default B, both ways.

        Parameters
        ----------
        dim : int
            Ambient dimension d.
        classes : int, default 0
            Number of classes; 0 for regression.

        Returns
        -------
        Communication
            The mean over all clients if they send unequal amounts. Messages before the first round or after the last
            (initialisation, fine-tuning) do not count. By default NaN for an algorithm without B.
        """
        size = float(self.learned_rank * dim) or np.nan
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the number of floats in one trial's state and in arrays of its size in a step; by default B and W."""
        return self.learned_rank * (n_clients + dim)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the number of floats that a step adds for one trial: copies of samples, and matrices; by default 0.

        The estimate of a run's memory counts them once, and `floats_per_trial` six times. `samples` is the largest
        number of rows of a client.
        """
        return 0


def check_algorithm(algorithm: object, name: str = "algorithm") -> None:
    """Raise unless `algorithm` is an `Algorithm`."""
    check_instance(name, algorithm, Algorithm, "an algorithm, e.g. lf.FedRep(rank=2, step_size=0.5)")


def requires_of(algorithm: Algorithm) -> Requires:
    """Return the operations that an algorithm's steps require of a batch.

    The attribute `requires` of a class describes only the `step` and `finish` that the class defines or inherits. If a
    subclass overrides one of them without a new `requires`, its steps are assumed to require the samples themselves.
    Batches refuse unsupported operations. They cannot detect a step that reads the rows of a compressed batch as
    samples, or the entries of B in the frame of the Markov-chain engine.
    """
    requires: Any = algorithm.requires
    if not isinstance(requires, Requires):
        allowed = ", ".join(f"lf.Requires.{one.name}" for one in Requires)
        raise TypeError(f"{type(algorithm).__name__}.requires = {short_repr(requires)} must be one of {allowed}")
    return requires if declares_requires(algorithm) else Requires.ROWS


def declares_requires(algorithm: Algorithm) -> bool:
    """Return whether the class that defines `step` and `finish`, or a subclass, declares what they require."""
    return declared_last(type(algorithm), "requires", ("step", "finish"))
