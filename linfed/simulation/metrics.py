"""Metrics of a state: distances to the ground truth and errors, computed in factored form.

A metric that does not apply to a run is absent from its result, and accessing it raises an error with the reason.
Custom metrics are functions of state and ground truth that return one number per trial.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._names import axis_label, is_share
from linfed._types import Array
from linfed._values import readonly, takes
from linfed.algorithms.parts.base import State
from linfed.checks import (
    check_array,
    check_choice,
    check_instance,
    check_returned,
    is_several,
    short_repr,
    suggestion,
)
from linfed.data.classes import ClassBatch
from linfed.data.explicit import ExplicitBatch
from linfed.data.projected import ProjectedHeldOut
from linfed.numerics.linalg import column_rank, distance_from, factored_squared_lengths, span_distance
from linfed.problems import Truth
from linfed.simulation.class_metrics import class_values, mean_of_those

MetricFunction: TypeAlias = Callable[[Any, Any], npt.NDArray[Any]]
"""Custom metric: a function of the state of some trials and their ground truth (or None) that returns one number per
trial."""

Measured: TypeAlias = ExplicitBatch | ClassBatch | ProjectedHeldOut
"""Samples on which a metric is measured."""


@dataclass(frozen=True)
class MetricFacts:
    """Facts about a run that decide which metrics apply.

    Parameters
    ----------
    truth : bool
        If True, the run has a ground truth.
    reference : bool
        If True, the ground truth has a reference subspace.
    columns : int
        Number of columns k of the representation B in the state; 0 without a representation.
    truth_rank : int or None
        Rank of the ground truth, if known.
    fixed : bool
        If True, the clients' samples are the same in every round.
    held_out : bool
        If True, there are held-out samples.
    no_reference : str
        Reason why the reference subspace of k columns is not unique; empty if it is unique.
    classes : int
        Number of classes c of the samples; 0 for regression.
    """

    truth: bool
    reference: bool
    columns: int
    truth_rank: int | None
    fixed: bool
    held_out: bool
    no_reference: str = ""
    classes: int = 0


Need: TypeAlias = Callable[[MetricFacts], str]
"""Requirement of a metric: a function that returns why a run does not meet it, or an empty string."""


def classification(run: MetricFacts) -> str:
    """Require classification."""
    return "" if run.classes else "it exists only for classification"


def regression(run: MetricFacts) -> str:
    """Require regression."""
    return f"it exists only for regression, but the samples have {run.classes} classes" if run.classes else ""


def ground_truth(run: MetricFacts) -> str:
    """Require a ground truth."""
    if run.truth:
        return ""
    return "it requires the ground truth, but the data were given without one (problem=lf.GivenTruth(...))"


def representation(run: MetricFacts) -> str:
    """Require an algorithm that learns a representation."""
    return "" if run.columns else "the algorithm learns no representation B"


def reference(run: MetricFacts) -> str:
    """Require a ground truth with a reference subspace."""
    return "" if run.reference else "the ground truth has no reference subspace (give lf.GivenTruth(..., B=...))"


def unique_reference(run: MetricFacts) -> str:
    """Require a unique reference subspace of k columns."""
    return run.no_reference


def truncation(run: MetricFacts) -> str:
    """Require a ground truth of larger rank than the representation."""
    if run.truth_rank is None or run.truth_rank > run.columns:
        return ""
    return f"it equals mean_client_error: the ground truth has rank {run.truth_rank} <= k = {run.columns}"


RISK = "'risk' is the expected loss on new samples"
"""What to use instead of a loss on samples that are fresh in every round."""


def fixed_samples(run: MetricFacts) -> str:
    """Require fixed or given training samples."""
    if run.fixed:
        return ""
    held_out = "use 'test_loss' or 'accuracy', on held-out samples"
    return f"samples are fresh in every round; {held_out if run.classes else RISK}"


def held_out_samples(run: MetricFacts) -> str:
    """Require held-out samples; in regression, only given samples have them."""
    if not run.classes and not run.fixed:
        return fixed_samples(run)
    given = "lf.GivenClasses" if run.classes else "lf.GivenSamples"
    return "" if run.held_out else f"there are no held-out samples ({given}(..., test=(X, y)))"


def shared_heads(run: MetricFacts) -> str:
    """Require heads at a shared representation."""
    return "" if run.columns else "the algorithm learns no heads at a shared representation B"


@dataclass(frozen=True)
class Metric:
    """A metric of the clients' predictors that every run can record; its text is its definition.

    Parameters
    ----------
    name : str
        Name of the metric.
    definition : str
        Formula or explanation.
    needs : tuple of function
        Requirements of the metric, in the order in which they are checked; each returns why a run does not meet it.
    per_client : bool
        If True, the metric is a mean over clients.
    loss : bool
        If True, the metric is measured on all clients' samples even if there is a ground truth, at a cost of O(n m d)
        in each recorded round. Runs of regression with a ground truth record it only on request.

    Examples
    --------
    >>> import linfed as lf
    >>> metric = lf.METRICS["train_accuracy"]
    >>> str(metric), metric.label, metric.is_share
    ('`accuracy` on the training samples', 'train accuracy', True)
    """

    name: str
    definition: str
    needs: tuple[Need, ...]
    per_client: bool = True
    loss: bool = False

    @property
    def label(self) -> str:
        """Label of an axis."""
        return axis_label(self.name)

    @property
    def is_share(self) -> bool:
        """True if the best value is 1; shown on a linear axis."""
        return is_share(self.name)

    def obstacle(self, run: MetricFacts) -> str:
        """Return why the metric does not apply to a run, or an empty string."""
        return next(filter(None, (need(run) for need in self.needs)), "")

    def __str__(self) -> str:
        return self.definition


_MEASURED = (
    Metric(
        "subspace_distance",
        "sine of the largest principal angle between B and B* (FedRep paper, Definition 1)",
        (ground_truth, representation, reference, unique_reference),
        per_client=False,
    ),
    Metric(
        "parameter_error",
        "||B W' + S' - Phi||_F, all clients together",
        (regression, ground_truth),
        per_client=False,
    ),
    Metric(
        "mean_client_error",
        "(1/n) sum_i ||theta_i - phi_i||, unsquared (the metric of FLUTE's figures)",
        (regression, ground_truth),
    ),
    Metric(
        "mean_truncation_error",
        "(1/n) sum_i ||theta_i - (Phi_k)_i||, Phi_k the best approximation of Phi of rank k",
        (regression, ground_truth, representation, truncation, unique_reference),
        per_client=False,
    ),
    Metric(
        "risk",
        "(1/n) sum_i (1/2)(theta_i - phi_i)' Cov (theta_i - phi_i) + noise_std^2 / 2; the papers' MSE is twice it",
        (regression, ground_truth),
    ),
    Metric(
        "train_loss",
        "(1/n) sum_i (1/2m_i) ||X_i theta_i - y_i||^2 on the clients' fixed or given samples; in classification the "
        "mean cross-entropy",
        (fixed_samples,),
        loss=True,
    ),
    Metric(
        "test_loss",
        "`train_loss` on the held-out samples of lf.GivenSamples(..., test=(X, y)), without clients that have none",
        (held_out_samples,),
        loss=True,
    ),
    Metric(
        "accuracy",
        "share of a client's held-out samples that are classified correctly, among all classes; mean over clients",
        (classification, held_out_samples),
    ),
    Metric(
        "own_class_accuracy",
        "`accuracy` if each client chooses only among the classes of its training samples",
        (classification, held_out_samples),
    ),
    Metric("train_accuracy", "`accuracy` on the training samples", (classification, fixed_samples)),
    Metric(
        "global_nc2",
        "(1/n) sum_i ||H_i H_i'/||H_i H_i'||_F - (u u') o (I - 11'/c)/sqrt(c - 1)||_F, row j of H_i the head of class "
        "j, u 1 at the client's classes; without clients whose heads are 0",
        (classification, shared_heads),
    ),
    Metric(
        "local_nc2",
        "`global_nc2` with the client's number of classes c_i instead of c; without clients of one class",
        (classification, shared_heads),
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _MEASURED})
"""The metrics by name."""


class MetricTable(Mapping[str, Array]):
    """Mapping from the name of a metric to its values, (trials, recorded rounds).

    An absent name raises a KeyError with the reason; `absent` maps each absent name to its reason.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=12), n_rounds=3)
    >>> list(result.metrics)
    ['subspace_distance', 'parameter_error', 'mean_client_error', 'risk']
    >>> result.metrics.absent["train_loss"]
    "samples are fresh in every round; 'risk' is the expected loss on new samples"
    """

    def __init__(self, values: dict[str, Array], absent: dict[str, str]) -> None:
        self._values, self.absent = values, absent

    def __getitem__(self, name: str) -> Array:
        if name in self._values:
            return self._values[name]
        if name in self.absent:
            raise KeyError(f"metric {name!r} is absent: {self.absent[name]}")
        listed = ", ".join(repr(key) for key in self._values)
        raise KeyError(f"metric {name!r} is unknown{suggestion(name, [*self._values, *METRICS])}; here: {listed}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {value.shape}" for name, value in self._values.items())
        return f"MetricTable({shapes})"


@dataclass(frozen=True)
class Plan:
    """Names of the metrics that a run records, its custom metrics, and the reasons why others are absent."""

    names: tuple[str, ...]
    absent: dict[str, str]
    functions: dict[str, MetricFunction] = field(default_factory=dict)


def plan_metrics(wanted: Sequence[str | MetricFunction] | None, run: MetricFacts, *, argument: str = "metrics") -> Plan:
    """Return the metrics to record.

    Parameters
    ----------
    wanted : sequence of str or function, or None
        Names and functions; None selects all names that apply, without the losses if a regression has a ground truth.
    run : MetricFacts
        The run.
    argument : str
        Name of the argument in messages: "metrics", or "metric" of a tuning.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError, TypeError
        If a name is unknown or does not apply, or a function is not a valid metric.
    """
    if isinstance(wanted, str) or callable(wanted):
        wanted = [wanted]
    if wanted is not None and not is_several(wanted):
        raise TypeError(
            f"{argument} = {short_repr(wanted)} must be a sequence of names or functions; allowed: {', '.join(METRICS)}"
        )
    absent = {name: reason for name, metric in METRICS.items() if (reason := metric.obstacle(run))}
    if wanted is None:
        only_errors = run.truth and not run.classes
        wanted = [name for name in METRICS if name not in absent and not (only_errors and METRICS[name].loss)]
    names: list[str] = []
    functions: dict[str, MetricFunction] = {}
    for one in wanted:
        if callable(one):
            name = _name_of(one, functions, argument)
            if not takes(one, 2):
                raise TypeError(
                    f"{argument} contains {name}, which must be a function of two arguments: state and truth"
                )
            functions[name] = one
        else:
            name = check_choice(argument, one, METRICS)
            if name in absent:
                tuned = [other for other in METRICS if other not in absent and not METRICS[other].is_share]
                instead = f"; use metric = {' or '.join(map(repr, tuned))}" if argument == "metric" else ""
                raise ValueError(f"{argument} = {name!r} does not apply: {absent[name]}{instead}")
        names.append(name)
    for name in METRICS:
        if name not in names:
            absent.setdefault(name, "it was not requested (metrics=)")
    return Plan(tuple(dict.fromkeys(names)), absent, functions)


def _name_of(metric: MetricFunction, others: Mapping[str, MetricFunction], argument: str) -> str:
    """Return the name under which a function's values are recorded, after checking that it is not taken."""
    name = getattr(metric, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{argument} contains {short_repr(metric)}, which has no name: define a function with def")
    if name in METRICS:
        raise ValueError(
            f"{argument} contains a function named {name!r}, a built-in metric: rename the function, or pass the name"
        )
    if others.get(name, metric) != metric:
        raise ValueError(f"{argument} contains two functions named {name!r}: rename one of them")
    return name


def subspace_distance(B1: npt.ArrayLike, B2: npt.ArrayLike) -> Array:
    """Return the sine of the largest principal angle between two column spaces.

    Parameters
    ----------
    B1, B2 : array_like (d, k1) and (d, k2), or with a leading trial axis
        Bases, orthonormal or not, of full column rank.

    Returns
    -------
    ndarray () or (trials,)
        ``||(I - Q1 Q1') Q2||_2`` in [0, 1]. With unequal ranks, Q2 is the basis of the smaller space.

    Raises
    ------
    ValueError
        If shapes do not match, values are not finite, or a basis does not have full column rank.

    Notes
    -----
    The sine is computed from this residual. Computed from cosines, every angle below about 1e-8 would give 0.

    **Deviations**: Definition 1 covers only equal ranks.

    References
    ----------
    FedRep paper, Definition 1.

    Examples
    --------
    >>> round(float(subspace_distance([[1.0], [0.0]], [[1.0], [1e-9]])), 12)
    1e-09
    """
    shapes = [("d", "k"), ("trials", "d", "k")]
    bases = [check_array(name, value, shapes) for name, value in (("B1", B1), ("B2", B2))]
    if bases[0].shape[-2] != bases[1].shape[-2]:
        raise ValueError(f"B1 and B2 have shapes {bases[0].shape} and {bases[1].shape}; their d must agree")
    if len({len(basis) for basis in bases if basis.ndim == 3} - {1}) > 1:
        raise ValueError(f"B1 and B2 have shapes {bases[0].shape} and {bases[1].shape}; their trials must agree")
    for name, basis in zip(("B1", "B2"), bases, strict=True):
        if np.any(column_rank(basis) < basis.shape[-1]):
            raise ValueError(f"{name} of shape {basis.shape} must have full column rank")
    with np.errstate(over="ignore", invalid="ignore"):  # squares of large lengths overflow
        return span_distance(*bases)


def shortcut_error(state: State, truth: Truth | None) -> Array:
    """Return the shortcut error ``||S - S*||_F`` over all clients, as a metric for `simulate`.

    Parameters
    ----------
    state : State
        State with shortcuts S, those of the clients' predictors (`State.for_prediction`); without shortcuts S counts as
        0. For Local only, S contains the complete predictors.
    truth : Truth
        Ground truth with shortcuts S*.

    Returns
    -------
    ndarray (trials,)

    Raises
    ------
    ValueError
        If the ground truth has no shortcuts.

    Notes
    -----
    **Deviations**: this metric is an addition; the shortcut draft has no experiments.

    References
    ----------
    Shortcut draft, problem (1).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=20, dim=8, rank=2, shortcut_norm=0.5)
    >>> result = lf.simulate(lf.LocalOnly(), problem, data=lf.FixedSamples(n_samples=12), n_rounds=2,
    ...                      metrics=[lf.shortcut_error])
    >>> result.metrics
    MetricTable(shortcut_error: (1, 3))
    """
    check_instance("state", state, State, "the state of a run, such as result.final")
    if not isinstance(truth, Truth) or truth.S is None:
        raise ValueError("shortcut_error requires a ground truth with shortcuts S, such as lf.SharedWithShortcuts")
    S = state.for_prediction().S
    return np.asarray(np.linalg.norm((0.0 if S is None else S) - truth.S, axis=(-2, -1)))


def max_client_error(state: State, truth: Truth | None) -> Array:
    """Return the error of the worst client, ``max_i ||theta_i - phi_i||``, as a metric for `simulate`.

    Parameters
    ----------
    state : State
    truth : Truth

    Returns
    -------
    ndarray (trials,)

    Raises
    ------
    ValueError
        If there is no ground truth.

    References
    ----------
    Duan and Wang 2023, "Adaptive and robust multi-task learning"; Tian, Gu and Feng 2025, "Learning from similar linear
    representations".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
    >>> result = lf.simulate(lf.LocalOnly(), problem, data=lf.FixedSamples(n_samples=12), n_rounds=1,
    ...                      metrics=["mean_client_error", lf.max_client_error])
    >>> bool(result.metrics["max_client_error"][0, 0] > result.metrics["mean_client_error"][0, 0])
    True
    """
    return _client_errors("max_client_error", state, truth).max(axis=-1)


def max_inlier_error(state: State, truth: Truth | None) -> Array:
    """Return `max_client_error` among the clients that are not planted outliers (`SimilarRepresentations`).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SimilarRepresentations(n_clients=20, dim=8, rank=2, outliers=0.1, outlier_norm=9.0)
    >>> result = lf.simulate(lf.PooledLeastSquares(), problem, data=lf.FixedSamples(n_samples=12), n_rounds=1,
    ...                      metrics=[lf.max_client_error, lf.max_inlier_error])
    >>> bool(result.metrics["max_client_error"][0, -1] > 2 * result.metrics["max_inlier_error"][0, -1])
    True
    """
    errors = _client_errors("max_inlier_error", state, truth)
    assert truth is not None
    return errors[:, : errors.shape[1] - truth.n_outliers].max(axis=-1)


def _client_errors(name: str, state: State, truth: Truth | None) -> Array:
    """Return ``||theta_i - phi_i||``, (trials, n)."""
    check_instance("state", state, State, "the state of a run, such as result.final")
    if not isinstance(truth, Truth):
        raise ValueError(f"{name} requires the ground truth, but the data were given without one")
    return np.asarray(np.sqrt(squared_errors(state.for_prediction(), truth)))


def check_sendable(functions: Mapping[str, MetricFunction]) -> None:
    """Raise unless the functions can be sent to worker processes, that is, pickled by module and name."""
    for name, metric in functions.items():
        try:
            pickle.dumps(metric)
        except (AttributeError, TypeError, pickle.PicklingError):
            raise ValueError(
                f"metrics contains {name!r}, which worker processes cannot import: define it at the top level of a "
                "module, or use workers = 1"
            ) from None


class Recorder:
    """Evaluator of the metrics of a chunk of trials.

    Parameters
    ----------
    names : sequence of str
        Metrics to record.
    truth : Truth or None
        Ground truth of the trials.
    rank : int
        Number of columns of the learned representation; 0 without a representation.
    samples : mapping of str to ExplicitBatch, ClassBatch or ProjectedHeldOut, optional
        Samples for losses and classification metrics, under "train" and "test".
    functions : mapping of str to function, optional
        Custom metrics among the names.
    """

    def __init__(
        self,
        names: Sequence[str],
        truth: Truth | None,
        rank: int,
        samples: Mapping[str, Measured] | None = None,
        functions: Mapping[str, MetricFunction] | None = None,
    ) -> None:
        self._names, self._truth, self._samples, self._functions = names, truth, samples or {}, functions or {}
        self._readonly_truth = _unwritable(truth) if truth is not None and self._functions else None
        self._reference = truth.reference(rank) if truth is not None and "subspace_distance" in names else None
        self._errors = any(name in names for name in ("parameter_error", "mean_client_error", "risk"))
        cut = truth is not None and "mean_truncation_error" in names
        self._truncated = truth.truncated(rank) if truth is not None and cut else None

    def measure(self, state: State) -> dict[str, Array]:
        """Return each metric of the clients' predictors, (trials,)."""
        state = state.for_prediction()
        out: dict[str, Array] = {}
        if self._reference is not None:
            assert state.B is not None
            out["subspace_distance"] = distance_from(self._reference, state.B)
        if self._errors and self._truth is not None:
            squared = squared_errors(state, self._truth)
            if "parameter_error" in self._names:
                out["parameter_error"] = np.sqrt(squared.sum(axis=-1))
            if "mean_client_error" in self._names:
                out["mean_client_error"] = np.sqrt(squared).mean(axis=-1)
            if "risk" in self._names:
                out["risk"] = client_risks(state, self._truth, squared).mean(axis=-1)
        if self._truncated is not None:
            out["mean_truncation_error"] = np.sqrt(squared_errors(state, self._truncated)).mean(axis=-1)
        for which, batch in self._samples.items():
            if not isinstance(batch, ExplicitBatch):
                values = class_values(state, batch, self._names, which)
                out |= {name: mean_of_those(each) for name, each in values.items()}
                continue
            # Not by a mask: it changes the memory layout, and sums would depend on the number of trials.
            losses = np.compress(batch.counts[0] > 0, client_losses(state, batch), axis=1)
            out[f"{which}_loss"] = losses.mean(axis=-1)
        for name, metric in self._functions.items():
            out[name] = metric(state, self._readonly_truth)
            trials = len(next(iter(state.arrays().values())))
            check_returned(f"metric {name!r}", "values", out[name], (trials,), "(trials,)", kinds="fiu")
        return out


def _unwritable(truth: Truth) -> Truth:
    """Return a ground truth with read-only views of the arrays; the original, used to make labels, stays writable."""
    parts = {part.name: getattr(truth, part.name) for part in fields(truth)}
    arrays: dict[str, Any] = {name: readonly(part) for name, part in parts.items() if isinstance(part, np.ndarray)}
    return replace(truth, **arrays)


def squared_errors(state: State, truth: Truth, transform: Callable[[Array], Array] | None = None) -> Array:
    """Return ``||theta_i - phi_i||^2`` for each client, (trials, n).

    Parameters
    ----------
    state : State
    truth : Truth
    transform : callable, optional
        Function that maps a matrix M (..., d, c) to ``L'M``; the result is then ``||L'(theta_i - phi_i)||^2``.

    Returns
    -------
    ndarray (trials, n)
    """
    change = transform or (lambda M: M)
    low_rank: list[tuple[Array, Array]] = []
    if state.B is not None and state.W is not None:
        low_rank.append((state.B, state.W))
    if truth.B is not None and truth.W is not None:
        low_rank.append((-truth.B, truth.W))  # the smaller of the two is negated
    if state.S is None and truth.S is None:
        stacked = change(np.concatenate([basis for basis, _ in low_rank], axis=-1))
        return factored_squared_lengths(stacked, [factor for _, factor in low_rank])
    shaped = change(differences(state, truth).mT).mT
    return np.vecdot(shaped, shaped)


def differences(state: State, truth: Truth) -> Array:
    """Return ``theta_i - phi_i`` for each client, (trials, n, d)."""
    difference: Array = np.subtract(0.0 if state.S is None else state.S, 0.0 if truth.S is None else truth.S)
    if state.B is not None and state.W is not None:
        difference = difference + state.W @ state.B.mT
    if truth.B is not None and truth.W is not None:
        difference = difference + truth.W @ -truth.B.mT
    return difference


def client_risks(state: State, truth: Truth, squared: Array | None = None) -> Array:
    """Return each client's exact risk ``(1/2)(theta - phi)' Cov (theta - phi) + noise_std^2 / 2``, (trials, n)."""
    if truth.design.per_client:
        shaped = truth.design.root_apply(differences(state, truth)[..., None])[..., 0]
        squared = np.vecdot(shaped, shaped)
    elif truth.design.covariance is not None:
        squared = squared_errors(state, truth, truth.design.root_apply)
    elif squared is None:
        squared = squared_errors(state, truth)
    return 0.5 * squared + 0.5 * np.square(truth.noise_std)


def client_losses(state: State, batch: ExplicitBatch) -> Array:
    """Return each client's loss ``(1/2m_i) ||X_i theta_i - y_i||^2`` on a batch of all clients, (trials, n).

    Predictors are computed block by block, without an array of shape (n, d). The cost is O(n m d).
    """
    return batch.losses(lambda trials, clients: state.trials(trials).predictors(clients))
