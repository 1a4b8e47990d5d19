"""Predictions: curves over rounds, and quantities with their sources and ranges of validity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices, MaybeNone
from linfed.errors import NoPredictionError
from linfed.figures import curves
from linfed.figures import html as page

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Quantity(np.lib.mixins.NDArrayOperatorsMixin):
    """Predicted quantity of a run, usable like a number or array.

    Parameters
    ----------
    value : ndarray () or (trials,)
        Value, or one value per trial.
    source : str
        Function or argument that gives the value.
    validity : str
        Range in which the value holds.
    metric : str
        Metric that the value predicts, a key of ``lf.METRICS``; empty for a step size.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=100, dim=20, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9))
    >>> rate = lf.predict(algorithm, problem, data=lf.FreshSamples(10), n_rounds=60).rate
    >>> bool(rate < 1), rate.source, rate.metric
    (True, 'theory.near_truth_factor', 'subspace_distance')
    """

    value: Array
    source: str
    validity: str
    metric: str = ""

    def __repr__(self) -> str:
        metric = f", metric={self.metric!r}" if self.metric else ""
        return f"Quantity({_as_text(self.value)}{metric}, source={self.source!r}, validity={self.validity!r})"

    def __float__(self) -> float:
        return float(self.value)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.value, dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        values = [each.value if isinstance(each, Quantity) else each for each in inputs]
        return getattr(ufunc, method)(*values, **kwargs)


class Curves(NamedTuple):
    """Predicted distance in every round, (n_rounds + 1,) or (trials, n_rounds + 1), and its 10 % and 90 % quantiles.

    `facts` are named diagnostics of the prediction, from which `Law.doubts` derives warnings.
    """

    distance: Array
    low: Array | None = None
    high: Array | None = None
    facts: Mapping[str, float] = {}


def joined(curves: Sequence[Curves]) -> Curves:
    """Combine the curves of single trials, with the largest value of each fact."""
    low, high = ([getattr(each, end) for each in curves] for end in ("low", "high"))
    return Curves(
        distance=np.stack([each.distance for each in curves]),
        low=None if low[0] is None else np.stack(low),
        high=None if high[0] is None else np.stack(high),
        facts={name: max(each.facts[name] for each in curves) for name in curves[0].facts},
    )


@dataclass(frozen=True)
class Slow:
    """Quantity that takes long to compute: it is shown only after it was asked for.

    Parameters
    ----------
    compute : callable
        Function that computes the quantity.
    check : callable
        Function that raises a ValueError in a short time if the quantity is not available.
    """

    compute: Callable[[], Quantity]
    check: Callable[[], object]

    def __call__(self) -> Quantity:
        """Compute the quantity."""
        return self.compute()


Asked: TypeAlias = "Callable[[], Quantity] | Slow | Quantity | str"
"""A quantity, a function that computes it, or the message if it is not available."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """Prediction of a run, returned by `predict`.

    Accessing a quantity that is not available raises a `NoPredictionError`.

    Parameters
    ----------
    law : str
        Name of the prediction: "second order", "means", "no movement", ...
    source : str
        Function or argument that gives the prediction.
    validity : str
        Range in which the prediction holds.
    warnings : tuple of str
        Reasons why the prediction may be inaccurate for this run.
    notes : tuple of str
        Exact alternatives of similar cost.
    rounds : ndarray of int (n_rounds + 1,)
        Rounds from 0 to the last, as in the columns of a result's metrics.
    trials : int or None
        Number of predicted trials, from the first one on; arrays then have a trial axis. If None, only the first trial
        is predicted, and arrays have no trial axis.

    Notes
    -----
    ``distance`` describes a typical run. It is exact if B does not move or is the true subspace. Otherwise it is the
    median over runs with the ground truth and initialisation of the trial.

    Pickling and copying compute all available quantities.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=100, dim=20, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9))
    >>> prediction = lf.predict(algorithm, problem, data=lf.FreshSamples(10), n_rounds=60)
    >>> prediction.law, prediction.distance.shape, bool(prediction.best_step < prediction.stability_edge)
    ('second order', (61,), True)
    """

    law: str
    source: str
    validity: str
    rounds: Indices
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _curves: Curves | str
    _quantities: Mapping[str, Asked] = field(default_factory=dict)
    trials: int | None = None
    _computed: dict[str, Quantity] = field(init=False, default_factory=dict)

    @property
    def distance(self) -> Array:
        """Subspace distance in every round from the initial one on, (n_rounds + 1,) or (trials, n_rounds + 1)."""
        return self._available_curves().distance

    @property
    def low(self) -> Array | MaybeNone:
        """10 % quantile of the distance over runs, as `distance`; None if fluctuations are not predicted.

        Its accuracy is part of `validity`. If `low` and `high` differ by a few per cent, the share of runs between them
        can be far from 80 %. In the worst of 28 settings it was 50 %.
        """
        return self._available_curves().low

    @property
    def high(self) -> Array | MaybeNone:
        """90 % quantile of the distance over runs, as `low`; None if fluctuations are not predicted."""
        return self._available_curves().high

    @property
    def floor(self) -> Quantity:
        """Final value of the metric `Quantity.metric`."""
        return self._quantity("floor")

    @property
    def rate(self) -> Quantity:
        """Asymptotic factor per round of the distance from the limit, far above the floor; see `Quantity.validity`.

        For FedRep with a floor, the square of the distance minus the square of the floor falls by the square of this
        factor.
        """
        return self._quantity("rate")

    @property
    def stability_edge(self) -> Quantity:
        """Smallest step size at which the prediction no longer converges; see `Quantity.validity`.

        If it refers to the mean square over runs, single runs may converge at larger step sizes.
        """
        return self._quantity("stability_edge")

    @property
    def best_step(self) -> Quantity:
        """Step size with the smallest `rate`."""
        return self._quantity("best_step")

    def _available_curves(self) -> Curves:
        if isinstance(self._curves, str):
            raise NoPredictionError(self._curves)
        if self.trials is not None:
            return self._curves
        distance, low, high, _ = self._curves
        return Curves(distance[0], None if low is None else low[0], None if high is None else high[0])

    def _quantity(self, name: str) -> Quantity:
        if name not in self._computed:
            quantity = self._quantities.get(
                name, f"no prediction of the {name.replace('_', ' ')} is available for this run"
            )
            if isinstance(quantity, str):
                raise NoPredictionError(quantity)
            try:
                self._computed[name] = quantity if isinstance(quantity, Quantity) else quantity()
            except ValueError as error:
                raise NoPredictionError(str(error)) from None
        found = self._computed[name]
        return replace(found, value=found.value[0]) if self.trials is None else found

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields with the values of all quantities: functions that compute them cannot be pickled."""
        found: dict[str, Asked] = {}
        for name in self._quantities:
            try:
                self._quantity(name)
                found[name] = self._computed[name]
            except (MemoryError, ValueError) as error:
                found[name] = str(error)
        return self.__dict__ | {"_quantities": found, "_computed": {}}

    def __repr__(self) -> str:
        lines = [f"<Prediction {self.law!r}, {self._length()}>"]
        lines += [f"distance: {self._course()}"] if self._course() else []
        lines += [f"{name}: {value}" for name, value, *_ in self._numbers()]
        lines.append(f"range: {self.validity}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings), *(f"note: {t}" for t in self.notes)])

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: predicted quantities, their sources, and a figure of the distance."""
        facts = [
            ("prediction", f"{self.law}, {self._length()}"),
            ("distance", self._course() or str(self._curves)),
            ("source", self.source),
            ("range", self.validity),
            *(("warning", text) for text in self.warnings),
            *(("note", text) for text in self.notes),
        ]
        numbers = self._numbers()
        table = page.table(("", "", "source", "range"), numbers) if numbers else ""
        return page.beside(page.facts(facts) + table, self._figure())

    def _figure(self) -> str:
        """Return a figure of the distance and its band; empty if the distance is not predicted."""
        if isinstance(self._curves, str) or len(self.rounds) < 2:
            return ""
        at = page.points(len(self.rounds))
        distance = self.distance[..., at]
        low, high = (None if each is None else each[..., at] for each in (self.low, self.high))

        def draw(ax: Axes) -> None:
            curves.draw_prediction(ax, self.rounds[at], distance, low, high)
            ax.set(xlabel="round", ylabel="subspace distance", yscale="log" if np.all(distance > 0) else "linear")

        return page.figure(draw)

    def _length(self) -> str:
        """Return the numbers of rounds and trials as text."""
        return f"{self.rounds[-1]} rounds of {curves.describe_trials(self.trials)}"

    def _course(self) -> str:
        """Return the initial and final distance as text; empty if the distance is not predicted."""
        if isinstance(self._curves, str):
            return ""
        first, last = (_as_text(self.distance[..., end]) for end in (0, -1))
        if self.low is None or self.high is None:
            return f"from {first} to {last}"
        low, high = (_as_text(end[..., -1]) for end in (self.low, self.high))
        return f"from {first} to {last} (10 and 90 % quantiles of runs: {low} and {high})"

    def _numbers(self) -> list[tuple[str, str, str, str]]:
        """Return name, value, source and range of the available quantities."""
        lines = []
        for name in ("floor", "rate", "stability_edge", "best_step"):
            asked = self._quantities.get(name)
            try:
                if isinstance(asked, Slow) and name not in self._computed:
                    asked.check()
                    lines.append((name, f"computed when prediction.{name} is read", "", ""))
                    continue
                found = self._quantity(name)
            except ValueError:
                continue
            value = _as_text(found.value) + (f" ({found.metric})" if name == "floor" else "")
            lines.append((name, value, found.source, found.validity))
        return lines


def _as_text(values: npt.ArrayLike) -> str:
    """Format one number, or the smallest and the largest of several."""
    low, high = (f"{float(end(values)):.4g}" for end in (np.min, np.max))
    return low if low == high else f"{low} .. {high}"
