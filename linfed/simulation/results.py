"""The result of a run: its metrics and final state, with methods for evaluation, tables, figures and storage."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linfed._names import axis_label, is_share
from linfed._package import __version__
from linfed._types import Array, Indices, Json
from linfed.algorithms.parts.base import Algorithm, State
from linfed.checks import check_bool, check_choice, check_instance, check_text, short_repr
from linfed.data.explicit import ExplicitBatch
from linfed.data.samples import Data, FixedSamples, GivenSamples, draws_factors
from linfed.errors import EngineError, warn_diverged
from linfed.figures import curves, html
from linfed.figures.style import free_look, line_properties, tell_apart
from linfed.numerics.linalg import quiet
from linfed.numerics.quantiles import quantiles
from linfed.numerics.streams import Seed
from linfed.problems import Problem, n_classes
from linfed.problems.designs import is_gaussian
from linfed.simulation import archive
from linfed.simulation.class_metrics import class_values
from linfed.simulation.client_errors import ClientErrors
from linfed.simulation.engines import open_source, undeclared
from linfed.simulation.evaluation_samples import measured_samples
from linfed.simulation.fitted import FittedClients
from linfed.simulation.job import Job, checked_job
from linfed.simulation.metrics import METRICS, MetricTable, client_losses, client_risks, squared_errors
from linfed.simulation.new_clients import new_client_risks, require_problem
from linfed.simulation.participation import Participation
from linfed.simulation.status import Status
from linfed.system import files
from linfed.system.extras import import_optional
from linfed.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONFIGURATION = ("algorithm", "problem", "data", "seed", "participation")
"""Fields of a result that are configurations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """Result of `simulate`.

    Parameters
    ----------
    algorithm, problem, data, seed
        Arguments of the run.
    participation : float, int or integer array
        Argument of the run.
    participants : int
        Number of participants p per round.
    rounds : ndarray of int (R,)
        Recorded rounds; the first is 0, the initial state. A final step of the algorithm, such as fine-tuning, counts
        as one more round.
    metrics : MetricTable
        Values of each metric, (trials, R); NaN from the round in which a trial diverged.
    status : list of Status
        Outcome of each trial.
    status_round : ndarray of int (trials,)
        Round of divergence, or of the first singular head; otherwise the number of rounds.
    final : State
        Final B, W, S and ``predictors()``; for a diverged trial the last finite ones. If the algorithm has its own
        class of state, `final` is of this class, and ``for_prediction()`` returns the B, W, S of the clients'
        predictors.
    seconds : float
        Wall time of the run.
    engine : str
        Representation of the data (``linfed.simulation.engines.ENGINES``). Under "chain" `final.B` is expressed in a
        frame in which B* spans the first coordinates.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=100, dim=20, rank=2, noise_std=1e-3)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=10), n_rounds=50,
    ...                      participation=0.1, trials=4)
    >>> result.metrics["risk"].shape, result.final.B.shape, float(result.floats_sent[-1])
    ((4, 51), (4, 20, 2), 40000.0)
    >>> result.new_clients([5, 10]).shape
    (4, 2, 100)
    """

    algorithm: Algorithm
    problem: Problem | None
    data: Data
    seed: Seed
    participation: Participation
    participants: int
    rounds: Indices
    metrics: MetricTable
    status: list[Status]
    status_round: Indices
    final: State
    seconds: float
    engine: str

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.status)

    @property
    def name(self) -> str:
        """Name of the algorithm."""
        is_algorithm = isinstance(self.algorithm, Algorithm)
        return type(self.algorithm).__name__ if is_algorithm else str(getattr(self.algorithm, "name", self.algorithm))

    @property
    def floats_sent(self) -> Array:
        """Floats exchanged between the server and all participants up to each recorded round, (R,).

        The number is ``Algorithm.communication`` times participants times rounds, or NaN if the algorithm or the
        dimension is unknown.
        """
        dim = getattr(self.problem, "dim", None) or getattr(self.data, "dim", None)
        if dim is None or not isinstance(self.algorithm, Algorithm):
            return np.full(len(self.rounds), np.nan)
        classes = n_classes(self.problem, self.data)
        # A custom algorithm for regression may take `dim` only.
        model = {"dim": int(dim), "classes": classes} if classes else {"dim": int(dim)}
        last = self.rounds[-1] - self.has_final_step  # the final step of an algorithm sends nothing
        return np.asarray(
            np.minimum(self.rounds, last) * (self.participants * sum(self.algorithm.communication(**model)))
        )

    def summary(self) -> str:
        """Return a short text with the arguments, the outcomes of the trials and the final values of the metrics."""
        lines = [
            one_line_repr(self.algorithm),
            f"{self._problem_text()}, {one_line_repr(self.data)}",
            f"{self.trials} trial{'s' if self.trials > 1 else ''} of {self._length()}, "
            f"{self.participants} clients a round, engine {self.engine}, seed {self.seed}, "
            f"{self.seconds:.2f} s: {self._outcomes()}",
            *filter(None, (self._prepared(), self._undeclared())),
        ]
        width = max([20, *map(len, self.metrics)])
        if self.metrics:
            lines.append(f"{'at the end':<{width}} {'median':>12} {'10 %':>12} {'90 %':>12}")
        for name, *texts in self._last_values():
            lines.append(f"{name:<{width}} {' '.join(f'{text:>12}' for text in texts)}")
        return "\n".join(lines)

    def _prepared(self) -> str:
        """Return how the samples were prepared, as text."""
        preparation = self.data.preparation if isinstance(self.data, GivenSamples) else None
        return "" if preparation is None else f"samples with {preparation}"

    def _undeclared(self) -> str:
        return undeclared(self.engine, self.algorithm, self.problem, self.data)

    def _problem_text(self) -> str:
        return "no ground truth" if self.problem is None else one_line_repr(self.problem)

    def _outcomes(self) -> str:
        """Return the number of trials of each status, as text."""
        return ", ".join(f"{count} {name}" for name, count in self._counts().items())

    def _counts(self) -> Counter[str]:
        """Return the number of trials of each status."""
        return Counter(status.name for status in self.status)

    def _last_values(self) -> list[tuple[str, ...]]:
        """Return each metric's name and the median, 10 % and 90 % quantiles of its last values over trials."""
        ends = {name: quantiles(values[:, -1]) for name, values in self.metrics.items()}
        return [(name, *(f"{value:.4g}" for value in values)) for name, values in ends.items()]

    def _length(self) -> str:
        """Return the number of rounds in words."""
        count = self.rounds[-1] - self.has_final_step
        return f"{count} round{'' if count == 1 else 's'}{' and fine-tuning' if self.has_final_step else ''}"

    @property
    def has_final_step(self) -> bool:
        """True if the last recorded round is a final step of the algorithm, such as fine-tuning."""
        return isinstance(self.algorithm, Algorithm) and self.algorithm.finishes

    def __repr__(self) -> str:
        others = [f"{count} {name}" for name, count in self._counts().items() if name != Status.COMPLETED.name]
        return f"<Result of {self.name}: {', '.join([f'{self.trials} trials', self._length(), *others])}>"

    def _repr_html_(self) -> str:
        """Return the arguments, the final metrics and a figure of the first metric as HTML, for notebooks."""
        facts = [
            ("algorithm", one_line_repr(self.algorithm)),
            ("problem", self._problem_text()),
            ("data", "; ".join(filter(None, (one_line_repr(self.data), self._prepared())))),
            ("run", f"{self._length()}, {self.participants} clients a round, seed {short_repr(self.seed)}"),
            ("engine", "; ".join(filter(None, (f"{self.engine}, {self.seconds:.2f} s", self._undeclared())))),
            ("trials", self._outcomes()),
        ]
        last = html.table(("at the end", "median", "10 %", "90 %"), self._last_values()) if self.metrics else ""
        return html.beside(html.facts(facts) + last, self._html_figure())

    def _html_figure(self) -> str:
        """Return a figure of the first metric, or an empty string if it has no finite values or a single round."""
        name = next(iter(self.metrics), "")
        at = html.points(len(self.rounds))
        values = self.metrics[name][:, at] if name else np.empty((0, 0))
        if len(at) < 2 or not np.isfinite(values).any():
            return ""

        def draw(ax: Axes) -> None:
            curves.draw_curve(self.rounds[at], values, ax=ax, label=self.name, ylabel=name, log=not is_share(name))
            margin = 0.04 * (self.rounds[-1] - self.rounds[0])
            ax.set_xlim(self.rounds[0] - margin, self.rounds[-1] + margin)  # if all trials diverged, too
            ax.set(xlabel="round", ylabel=axis_label(name))

        return html.figure(draw)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record per trial, recorded round and metric, e.g. for ``pandas.DataFrame``.

        The ``status`` of a record is the name of the trial's `Status`. Values of a diverged trial are NaN.
        """
        return [
            {"trial": trial, "round": int(round_), "metric": name, "value": float(value), "status": status.name}
            for name, values in self.metrics.items()
            for trial, (status, row) in enumerate(zip(self.status, values, strict=True))
            for round_, value in zip(self.rounds, row, strict=True)
        ]

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each trial and recorded round and a column for each metric.

        The column ``status`` contains the name of the trial's `Status`. A `DivergenceWarning` is issued if trials
        diverged: their metrics are NaN, and averages in pandas and xarray skip NaN. Requires the extra ``tables``.
        """
        pandas = import_optional("pandas", "tables", "to_pandas()")
        self._warn_of_divergence()
        n_rounds = len(self.rounds)
        index = {
            "trial": np.repeat(np.arange(self.trials), n_rounds),
            "round": np.tile(self.rounds, self.trials),
            "status": np.repeat([status.name for status in self.status], n_rounds),
        }
        return pandas.DataFrame(index | {name: values.ravel() for name, values in self.metrics.items()})

    def to_xarray(self) -> Any:
        """Return an ``xarray.Dataset`` of the metrics over trial and round, with each trial's status.

        Warnings and requirements are as in `to_pandas`.
        """
        xarray = import_optional("xarray", "tables", "to_xarray()")
        self._warn_of_divergence()
        attributes = {
            "algorithm": one_line_repr(self.algorithm),
            "data": one_line_repr(self.data),
            "engine": self.engine,
        }
        if self.problem is not None:
            attributes["problem"] = one_line_repr(self.problem)
        coordinates = {
            "trial": np.arange(self.trials),
            "round": self.rounds,
            "status": ("trial", [status.name for status in self.status]),
        }
        metrics = {name: (("trial", "round"), values.copy()) for name, values in self.metrics.items()}
        return xarray.Dataset(metrics, coords=coordinates, attrs=attributes)

    def _warn_of_divergence(self) -> None:
        """Warn if trials diverged, with the caller of the calling method as the place of the warning."""
        n_diverged = self.status.count(Status.DIVERGED)
        if n_diverged:
            warn_diverged(f"{n_diverged} of {self.trials} trials diverged", stacklevel=3)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to one ``.npz`` file without pickles, atomically.

        Parameters
        ----------
        path : path-like
            Name of the file.

        Returns
        -------
        Path
            Path of the file.

        Raises
        ------
        OSError
            If the file cannot be written; an existing file stays unchanged.
        ValueError
            If a field contains an array of objects, which would require pickles.
        """
        return files.write(path, *_encode(self))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Result:
        """Return the result that `save` wrote.

        Objects of user-defined classes are restored if their module is imported, and otherwise replaced by their text.
        All numbers of the run are loaded in both cases.

        Parameters
        ----------
        path : path-like
            Name of the file.

        Returns
        -------
        Result

        Raises
        ------
        ValueError
            If the file does not contain a result of linfed, or has another format.
        """
        arrays, described = files.read(path)
        if not isinstance(described, dict) or "algorithm" not in described:
            raise files.not_ours(path, KeyError("algorithm"))
        archive.check_format(path, described)
        try:
            fields = _decode(arrays, described)
            return Result(**fields, status=[Status[name] for name in described["status"]])
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise files.not_ours(path, error) from None

    def per_client(self, metric: str) -> Array:
        """Return each training client's value of a metric of its final predictor, (trials, n).

        Parameters
        ----------
        metric : str
            Metric that is a mean over clients: "risk", "mean_client_error", "train_loss" or "test_loss"; in
            classification also "accuracy", "own_class_accuracy", "train_accuracy", "global_nc2" or "local_nc2". The run
            need not have recorded it.

        Returns
        -------
        ndarray (trials, n)
            Values whose mean over clients is the last value of the metric. NaN for a client without such samples and
            for a trial that diverged.

        Raises
        ------
        ValueError
            If the metric has another name or does not apply.
        """
        self._check_coordinates("per_client()")
        check_choice("metric", metric, [name for name in METRICS if METRICS[name].per_client])
        if metric in ("mean_client_error", "risk") and not n_classes(self.problem, self.data):
            problem = require_problem(self.problem, f"per_client({metric!r}) requires the ground truth")
            truth = problem.truth(self.seed, range(self.trials))
            with quiet():
                state = self.final.for_prediction()
                exact = client_risks(state, truth) if metric == "risk" else np.sqrt(squared_errors(state, truth))
            return self._or_nan(exact)
        rounds = int(self.rounds[-1]) - self.has_final_step
        of_rows = METRICS[metric].loss and not n_classes(self.problem, self.data) and not self._in_law
        engine = "explicit" if of_rows else self.engine
        who = (self.problem, self.data, rounds, self.participation, self.trials, self.seed)
        job = checked_job(self.algorithm, *who, [metric], max(1, rounds), engine)
        # Trial by trial, so that memory holds the samples of only one trial.
        parts = [self._measured_clients(job, metric, trial) for trial in range(self.trials)]
        return self._or_nan(np.concatenate(parts))

    @property
    def _in_law(self) -> bool:
        """Whether the run drew factors of fixed samples instead of the samples."""
        if self.engine == "explicit" or self.problem is None or not isinstance(self.data, FixedSamples):
            return False
        return is_gaussian(self.problem.design) and draws_factors(self.data, self.problem.n_clients, self.problem.dim)

    def _measured_clients(self, job: Job, metric: str, trial: int) -> Array:
        """Return one trial's values of a metric that is measured on samples, (1, n)."""
        trials = range(trial, trial + 1)
        state = self.final.for_prediction().trials(slice(trial, trial + 1))
        with quiet():
            truth = None if job.problem is None else job.problem.truth(job.seed, trials)
            source = open_source(job.engine, job.data, truth, job.sizes, job.algorithm.learned_rank, job.seed, trials)
            ((which, batch),) = measured_samples(job, truth, source, trials).items()
            if not isinstance(batch, ExplicitBatch):
                return class_values(state, batch, (metric,), which)[metric]
            return np.where(batch.counts > 0, client_losses(state, batch), np.nan)

    def client_risks(self) -> Array:
        """Return the exact risk of each training client's final predictor, (trials, n), as ``per_client("risk")``."""
        require_problem(self.problem, "client_risks() requires the ground truth")
        return self.per_client("risk")

    def _check_coordinates(self, wanted: str) -> None:
        if self.engine == "chain":
            raise EngineError(
                f"{wanted} requires B itself, but engine = 'chain' keeps it only up to a rotation: use 'projected'"
            )

    def _or_nan(self, values: Array) -> Array:
        """Return values (trials, ...) with NaN for the trials that diverged."""
        values[[status is Status.DIVERGED for status in self.status]] = np.nan
        return values

    def new_clients(
        self,
        n_samples: Sequence[int],
        *,
        clients: int | None = None,
        seed: Seed | None = None,
        problem: Problem | None = None,
    ) -> Array:
        """Return the risks of new clients, each adapted to a few samples.

        Parameters
        ----------
        n_samples : sequence of int
            Numbers of samples m_new per client.
        clients : int, optional
            Number of new clients per trial; 100 by default. With `problem`, all clients of that problem.
        seed : int or tuple of int, optional
            Seed of the new clients and their samples; by default the seed of the run. Algorithms that are run and
            evaluated with one seed get the same new clients and samples.
        problem : Problem, optional
            Problem whose clients are the new ones. By default new clients of the run's problem, with the same B* in
            each trial and heads from the same distribution.

        Returns
        -------
        ndarray (trials, len(n_samples), clients)
            Exact risk ``(1/2)(theta - phi)' Cov (theta - phi) + noise_std^2 / 2`` of each new client; the papers' MSE
            is twice it. NaN for a trial that diverged.

        Raises
        ------
        ValueError
            If `n_samples` contains something other than positive integers, the problem has another dimension or cannot
            draw new clients, or the algorithm learns nothing that new clients could use. Also for classification (see
            `per_client`), and after a run under engine "chain".

        Notes
        -----
        By default a new client keeps the learned B and solves for its head exactly (with minimum norm if m_new < k),
        and a single model is used without adaptation. `ANIL`, `MAML`, `PerFedAvg` and `AllLayers` take their gradient
        steps. `Ditto` and `PFedMe` solve their regularised problem. `FedRepShortcut` and `Personalized` also fit s_i.
        `LocalOnly`, `LGFedAvg` and `APFL` (unless its ``mix`` is fixed at 0) fit all d parameters by least squares. The
        samples of a smaller count are the first samples of a larger one.

        For Gaussian x, risks have an infinite mean at m_new = k - 1, k and k + 1 (unless there is no noise and the span
        of B contains the regressor), so compare medians.

        **Deviations**: the FedRep paper estimates the error on test data.

        References
        ----------
        FedRep paper, section 5.1, "Generalization to new clients", and Figure 4.
        """
        self._check_coordinates("new_clients()")
        trained = (self.problem, self.seed, self.trials)
        return self._or_nan(
            new_client_risks(
                self.algorithm, self.final, trained, n_samples, clients=clients, seed=seed, problem=problem
            )
        )

    def predictions(self, X: Any, clients: Any = None) -> npt.NDArray[Any]:
        """Return the predicted labels of rows, each for its training client.

        Parameters
        ----------
        X : array_like (samples, d), or a table
            Rows as they were given, before any preparation. After `GivenSamples.from_table`, a table with the columns
            of the features that were not left out.
        clients : array_like (samples,), or name of a column of `X`, optional
            Client of each row: its name, or its number if the clients have no names. By default the column with the
            clients of `from_table`.

        Returns
        -------
        ndarray (trials, samples)
            Predictions in the labels' own units, with the clients' intercepts; NaN for a trial that diverged. For
            classes the most likely class, by its name if the data have names; a trial that diverged predicts with its
            last finite state.

        Raises
        ------
        ValueError
            If X does not fit the run, a client is unknown, or the run used engine "chain".

        Notes
        -----
        For new clients see `adapt`, whose result has this method too. For the theory's predictions of a run see
        `lf.predict`.

        Examples
        --------
        >>> import linfed as lf
        >>> import numpy as np
        >>> X, site = np.random.default_rng(0).normal(size=(30, 2)), np.repeat(["a", "b"], 15)
        >>> y = 7 + 3 * X[:, 0] + 20 * (site == "b")
        >>> data = lf.GivenSamples.from_table(X, y, site)
        >>> result = lf.simulate(lf.LocalOnly(), data=data, n_rounds=1)
        >>> result.predictions([[0.0, 0.0], [1.0, 0.0]], clients=["a", "b"]).round(6).tolist()
        [[7.0, 30.0]]
        """
        return self._fitted("predictions()").predictions(X, clients)

    def losses(self, X: Any, y: Any, clients: Any = None) -> Array:
        """Return the loss of each training client's final predictor on new samples.

        Parameters
        ----------
        X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
            Samples; in a sequence, an empty array for a client without samples. With `clients` rows, as in
            `predictions`.
        y : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
            Labels. With `clients` an array (samples,), or the name of a column of `X`.
        clients : array_like (samples,), or name of a column of `X`, optional
            Client of each row, as in `predictions`.

        Returns
        -------
        ndarray (trials, n)
            ``(1/2m_i) ||X_i theta_i - y_i||^2``; NaN for a client without samples, and for a trial that diverged. With
            prepared data it is the loss at the scaled labels, as in the metrics.

        Raises
        ------
        ValueError
            If the sizes of the samples do not match the run, a client is unknown, the run used engine "chain", or the
            task is classification.

        Notes
        -----
        On the training samples, the mean over clients is the metric `train_loss`. The cost is O(n m d) per trial.
        """
        return self._fitted("losses()").losses(X, y, clients)

    def errors(self, X: Any = None, y: Any = None, clients: Any = None) -> Table:
        """Return a table of each training client's errors, in the labels' own units.

        Parameters
        ----------
        X, y, clients : optional
            Samples, as in `losses`. By default the held-out samples of the data.

        Returns
        -------
        Table
            A row for each client: ``client``, its name or number; ``samples``, its number of samples; ``rmse`` and
            ``r2`` with one value per trial, the root mean square error and the share of the client's variance that is
            explained. In classification ``accuracy``, on the held-out samples only. NaN for a client without samples,
            for ``r2`` of equal labels, and in a trial that diverged.

        Raises
        ------
        ValueError
            If the data have no held-out samples, the samples do not fit the run, or the run used engine "chain".

        Notes
        -----
        `lf.error_table` compares methods by means, quantiles and the worst value over clients.

        Examples
        --------
        >>> import linfed as lf
        >>> import numpy as np
        >>> rng, site = np.random.default_rng(0), np.repeat(["a", "b"], 20)
        >>> X = rng.normal(size=(40, 2))
        >>> data = lf.GivenSamples.from_table(X, 100 + 5 * X[:, 0] + rng.normal(size=40), site, trials=3)
        >>> table = lf.simulate(lf.LocalOnly(), data=data, n_rounds=1).errors()
        >>> [(row["client"], row["samples"], row["rmse"].round(1).tolist()) for row in table]
        [('a', 4, [1.1, 1.3, 1.4]), ('b', 4, [1.1, 0.9, 0.8])]
        """
        if X is None and y is None and clients is None:
            return self.client_errors().table()
        return self._fitted("errors()").errors(X, y, clients)

    def client_errors(self) -> ClientErrors:
        """Return the errors of each training client on its held-out samples, from which tables are made."""
        test = self.data.test if isinstance(self.data, GivenSamples) else None
        if test is None and not n_classes(self.problem, self.data):
            raise ValueError(
                "errors() without X requires data with held-out samples: lf.GivenSamples(..., test=(X, y))"
            )
        if test is not None and not self.final.classes:
            return self._fitted("errors()").errors_on(test)
        accuracy = self.per_client("accuracy")
        counts = np.broadcast_to(1.0 if test is None else test.counts, accuracy.shape)
        names = self.data.client_names if isinstance(self.data, GivenSamples) else None
        nothing = np.zeros(accuracy.shape)
        return ClientErrors(
            names=tuple(range(accuracy.shape[1])) if names is None else names,
            counts=counts,
            squares=nothing,
            means=nothing,
            spreads=nothing,
            accuracy=accuracy,
        )

    def _fitted(self, wanted: str) -> FittedClients:
        """Return the training clients with their predictors; `wanted` is the method that needs them."""
        self._check_coordinates(wanted)
        data = self.data if isinstance(self.data, GivenSamples) else None
        return FittedClients(
            state=self.final if self.final.classes else self._without_diverged(self.final),
            trials=self.trials,
            n_clients=self._n_clients(),
            preparation=None if data is None else data.preparation,
            names=None if data is None else data.client_names,
            class_names=getattr(self.data, "class_names", None),
        )

    def _without_diverged(self, state: State) -> State:
        """Return a state with NaN in the trials that diverged."""
        if Status.DIVERGED not in self.status:
            return state
        missing: dict[str, Any] = {name: self._or_nan(array.copy()) for name, array in state.arrays().items()}
        return state.update(**missing)

    def _n_clients(self) -> int | None:
        """Return the number of clients, or None if data, problem and state do not determine it."""
        for source in (self.data, self.problem):
            count: int | None = getattr(source, "n_clients", None)
            if count is not None:
                return count
        rows = (array.shape[1] for name, array in self.final.arrays().items() if name in self.final.per_client)
        return next((count for count in rows if count > 1), None)

    def adapt(self, X: Any, y: Any, clients: Any = None) -> FittedClients:
        """Return new clients, each adapted to its samples.

        Parameters
        ----------
        X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
            Samples of any number n of new clients. With `clients` rows, as in `predictions`.
        y : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
            Labels. With `clients` an array (samples,), or the name of a column of `X`.
        clients : array_like (samples,), or name of a column of `X`, optional
            Name of each row's client. Each different name is one new client.

        Returns
        -------
        FittedClients
            Object with the methods ``predictors()``, which returns the clients' theta_i, (trials, n, d), or (trials, 1,
            d) if all clients share one, and ``predictions``, ``losses`` and ``errors``, as of a `Result`. Its
            `state` is NaN in a trial that diverged.

        Raises
        ------
        ValueError
            If the dimension or the number of trials does not match the run, the run used engine "chain", the task is
            classification, or the algorithm learns nothing that a new client could use.

        Notes
        -----
        Clients adapt as in `new_clients` (`Algorithm.adapt`). If the data are prepared, a new client's intercept comes
        from its own samples, and the scales come from the training clients.

        References
        ----------
        FedRep paper, section 5.1, "Generalization to new clients".

        Examples
        --------
        Adapt four new clients to five samples each, and check the predictions on three held-out samples:

        >>> import linfed as lf
        >>> import numpy as np
        >>> problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2)
        >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FixedSamples(20), n_rounds=100)
        >>> heads, X = np.random.default_rng(0).normal(size=(4, 2)), np.random.default_rng(1).normal(size=(4, 8, 10))
        >>> y = np.einsum("nmd,dk,nk->nm", X, problem.truth(0, [0]).B[0], heads)
        >>> (theta,) = result.adapt(X[:, :5], y[:, :5]).predictors()
        >>> bool(abs(np.einsum("nmd,nd->nm", X, theta) - y)[:, 5:].max() < 1e-3)
        True
        """
        self._check_coordinates("adapt()")
        new = dataclasses.replace(self._fitted("adapt()"), state=self.final).adapt(self.algorithm, X, y, clients)
        return dataclasses.replace(new, state=self._without_diverged(new.state))

    def plot(
        self,
        metric: str,
        *,
        ax: Axes | None = None,
        label: str | None = None,
        band: bool = True,
        prediction: curves.PredictedCurve | None = None,
        **line_options: Any,
    ) -> Axes:
        """Plot a metric against rounds: the median over trials, with a 10-90 % band.

        Parameters
        ----------
        metric : str
            Name of a metric in `metrics`.
        ax : matplotlib Axes, optional
            Axes for the plot; a new figure by default.
        label : str, optional
            Label of the line. By default the algorithm's name; if the axes have another run of this algorithm, the
            labels also contain the arguments that differ.
        band : bool
            If True, draw the 10-90 % band.
        prediction : Prediction, optional
            Prediction of "subspace_distance", such as ``lf.predict(result)``: its median over trials is drawn as a thin
            black line, dashed if it has warnings. Dotted lines are the predicted 10 and 90 % quantiles over runs with
            one ground truth and initialisation. The label says which trials are predicted.
        **line_options
            Options of a matplotlib line: color, linestyle, linewidth, marker, ...

        Returns
        -------
        matplotlib Axes

        Notes
        -----
        The first run of an algorithm has the same line style in all figures. Further runs have line styles that no
        other line of the axes has.
        """
        from matplotlib.axes import Axes

        check_instance("ax", ax, (Axes, NoneType), "matplotlib Axes")
        check_bool("band", band)
        kinds = (curves.PredictedCurve, NoneType)
        check_instance("prediction", prediction, kinds, "a prediction, such as lf.predict(result)")
        check_instance("label", label, (str, NoneType), "a text")
        if check_text("metric", metric) not in self.metrics.absent:
            check_choice("metric", metric, list(self.metrics))
        if prediction is not None and metric != "subspace_distance":
            raise ValueError(f"prediction= requires metric = 'subspace_distance', got {metric!r}: leave it out")
        values = self.metrics[metric]
        distance = None if prediction is None else prediction.distance
        options = free_look(self.name, ax) | line_properties(line_options)
        ax = curves.draw_curve(
            self.rounds,
            values,
            ax=ax,
            label=label or self.name,
            ylabel=metric,
            log=not is_share(metric),
            band=band,
            options=options,
        )
        if not label:
            tell_apart(ax, self.name, self._differences(metric))
        if prediction is not None and distance is not None:
            of, uncertain = curves.describe_trials(prediction.trials), bool(prediction.warnings)
            band_ends = prediction.low, prediction.high
            curves.draw_prediction(ax, prediction.rounds, distance, *band_ends, of=of, uncertain=uncertain)
        return ax

    def _differences(self, metric: str) -> list[dict[str, str]]:
        """Return texts that may distinguish the curve from others of the same algorithm, the most useful first."""
        algorithm = self.algorithm
        has_fields = isinstance(algorithm, Algorithm) and dataclasses.is_dataclass(algorithm)
        names = [field.name for field in dataclasses.fields(algorithm)] if has_fields else []  # type: ignore[arg-type]
        data, problem = one_line_repr(self.data), one_line_repr(self.problem)
        n_rounds = self.rounds[-1] - self.has_final_step
        return [
            {name: short_repr(getattr(algorithm, name)) for name in names} or {"algorithm": short_repr(algorithm)},
            {"metric": metric},
            {"data": data, "problem": problem, "participation": short_repr(self.participation)},
            {"trials": str(self.trials), "n_rounds": str(n_rounds), "seed": short_repr(self.seed)},
            {"engine": self.engine},
        ]


def _encode(result: Result) -> tuple[dict[str, Array], Json]:
    """Return the arrays of a result and a JSON description of its other fields."""
    arrays: dict[str, Any] = {f"metrics/{name}": values for name, values in result.metrics.items()}
    arrays |= {f"final/{name}": values for name, values in result.final.arrays().items()}
    arrays |= {"rounds": result.rounds, "status_round": result.status_round}
    described = {
        "format": archive.FORMAT,
        "version": __version__,
        **{name: archive.encode(getattr(result, name), arrays) for name in CONFIGURATION},
        "participants": result.participants,
        "status": [status.name for status in result.status],
        "absent": result.metrics.absent,
        "metrics": list(result.metrics),
        "state": archive.encode_state(result.final),
        "seconds": result.seconds,
        "engine": result.engine,
    }
    return arrays, described


def _decode(arrays: dict[str, Any], described: Json) -> dict[str, Any]:
    """Return the fields, except the status, of the result that `_encode` described."""
    metrics = {name: arrays[f"metrics/{name}"] for name in described["metrics"]}
    final = {key.removeprefix("final/"): value for key, value in arrays.items() if key.startswith("final/")}
    return {
        **{name: archive.decode(described[name], arrays) for name in CONFIGURATION},
        "participants": described["participants"],
        "rounds": arrays["rounds"],
        "metrics": MetricTable(metrics, described["absent"]),
        "status_round": arrays["status_round"],
        "final": archive.decode_state(described["state"], final),
        "seconds": described["seconds"],
        "engine": described["engine"],
    }


def one_line_repr(value: object) -> str:
    """Return a one-line text of a configuration, without the fields that have their default values."""
    if not dataclasses.is_dataclass(value):
        return short_repr(value)
    fields = []
    for field in dataclasses.fields(value):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if repr(getattr(value, field.name)) != repr(default):
            fields.append(f"{field.name}={short_repr(getattr(value, field.name))}")
    return f"{type(value).__name__}({', '.join(fields)})"
