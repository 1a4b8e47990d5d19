"""What happened: the result of a run, and what it can be asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.base import Algorithm, State
from linfed.data.samples import Data, GivenSamples, Samples, some_samples
from linfed.errors import EngineError
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.simulation import archive, labels, views
from linfed.simulation.communication import floats_sent
from linfed.simulation.metrics import MetricTable
from linfed.simulation.new_clients import adapted, known_problem, losses_on, n_clients_of, new_client_risks
from linfed.simulation.participation import Participation
from linfed.simulation.per_client import client_values
from linfed.simulation.status import Status
from linfed.system import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from linfed.prediction import Prediction


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The outcome of `simulate`.

    Parameters
    ----------
    algorithm, problem, data, seed
        What was run.
    participation : float, int or integer array
        As it was given.
    participants : int
        Clients p in a round.
    rounds : ndarray of int
        Rounds that were recorded; the first is 0, the initial state. What an algorithm does once at the end, such as
        fine-tuning, counts as one more round.
    metrics : MetricTable
        Each metric, (trials, len(rounds)); NaN from the round in which a trial diverged.
    status : list of Status
        Outcome of each trial.
    status_round : ndarray of int (trials,)
        Round of divergence, or of the first singular head; the number of rounds for a trial that ran through.
    final : State
        Final B, W, S and ``predictors()``; for a diverged trial the last finite ones. Of an algorithm with a state of
        its own it is that state, and ``served()`` has the B, W, S that the clients predict with.
    seconds : float
        Wall time of the run.
    engine : str
        How the data were represented (``lf.ENGINES``). Under "chain" `final.B` is told in a frame in which B*
        spans the first coordinates.
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
        known = isinstance(self.algorithm, Algorithm)
        return type(self.algorithm).__name__ if known else str(getattr(self.algorithm, "name", self.algorithm))

    @property
    def floats_sent(self) -> Array:
        """Floats exchanged up to each recorded round, (R,); NaN where it is not known."""
        return floats_sent(self)

    def summary(self) -> str:
        """Return a short text: what was run, how the trials ended, and each metric's last values over trials."""
        return labels.summary(self)

    @property
    def finished(self) -> bool:
        """Whether the last round is what the algorithm does once at the end."""
        return isinstance(self.algorithm, Algorithm) and self.algorithm.finishes

    def __repr__(self) -> str:
        return f"<Result of {self.name}: {self.trials} trials, {labels.length(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what was run, the last metrics, and a figure of the first one."""
        return views.html(self)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record per trial, recorded round and metric: ready for ``pandas.DataFrame``.

        Its ``status`` is the name of the trial's `Status`; values of a diverged trial are NaN.
        """
        return views.to_records(self)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``: a row for each trial and recorded round, a column for each metric.

        The column ``status`` has the name of the trial's `Status`. A `DivergenceWarning` says if trials diverged: their
        metrics are NaN, and averages in pandas and xarray skip NaN. The extra ``tables`` has pandas, and xarray.
        """
        return views.to_pandas(self)

    def to_xarray(self) -> Any:
        """Return an ``xarray.Dataset`` of metrics over trial and round, with each trial's status; see `to_pandas`."""
        return views.to_xarray(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one ``.npz`` file (no pickles), by rename, and return its path.

        Raises
        ------
        OSError
            If it cannot be written; what was there before is still there.
        ValueError
            For an array of objects, which no file can hold without pickles.
        """
        return files.write(path, *archive.encode_result(self))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Result:
        """Return the result that `save` wrote.

        Configurations of classes of one's own come back as what they were where their module has been imported; as
        their text where not, with every number of the run.

        Raises
        ------
        ValueError
            If the file is not one of linfed's results, or one of another format.
        """
        arrays, described = files.read(path)
        if not isinstance(described, dict) or "algorithm" not in described:
            raise files.not_ours(path, KeyError("algorithm"))
        archive.check_format(path, described)
        try:
            fields = archive.decode_result(arrays, described)
            return Result(**fields, status=[Status[name] for name in described["status"]])
        except (KeyError, TypeError) as error:
            raise files.not_ours(path, error) from None

    def clients(self, metric: str) -> Array:
        """Return each training client's value of a metric of its final predictor, (trials, n).

        Parameters
        ----------
        metric : str
            One that is a mean over clients: "risk", "mean_client_error", "train_loss", "test_loss"; with classes
            "accuracy", "own_class_accuracy", "train_accuracy", "global_nc2", "local_nc2". The run need not have
            recorded it.

        Returns
        -------
        ndarray (trials, n)
            Its mean over clients is the last value of the metric. NaN for a client without samples of that kind, and
            for a trial that diverged.

        Raises
        ------
        ValueError
            For other names, and metrics that do not apply.
        """
        self._check_coordinates("clients()")
        return self._or_nan(client_values(self, metric))

    def client_risks(self) -> Array:
        """Return the exact risk of each training client's final predictor, (trials, n): ``clients("risk")``."""
        known_problem(self.problem, "client_risks() needs the truth")
        return self.clients("risk")

    def _check_coordinates(self, wanted: str) -> None:
        if self.engine == "chain":
            raise EngineError(
                f"{wanted} needs B itself, and engine = 'chain' keeps it up to a rotation: use 'projected'"
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
        """Return the risks of clients that took no part, each fitted on few samples of its own.

        Parameters
        ----------
        n_samples : sequence of int
            Sample counts m_new to try.
        clients : int, optional
            New clients of each trial; 100 by default.
        seed : int or tuple of int, optional
            Seed of the new clients and their samples; the run's by default. Algorithms run and evaluated with one seed
            meet the same new clients and samples.
        problem : Problem, optional
            A problem whose clients are the new ones; by default new clients of the run's own problem: the same B* in
            each trial, heads from the same law.

        Returns
        -------
        ndarray (trials, len(n_samples), clients)
            Exact risk ``(1/2)(theta - phi)' Cov (theta - phi) + noise_std^2 / 2`` of each new client; the papers' MSE
            is twice it. NaN for a trial that diverged.

        Raises
        ------
        ValueError
            For counts that are not positive integers, a problem of another dimension or one that says nothing of new
            clients, or an algorithm that learns nothing that they could take over.

        Notes
        -----
        A new client keeps the learned B and fits its head exactly (of minimum norm where m_new < k); a single model is
        taken as it is; Local only fits all d parameters. The samples of a smaller count are the first of a larger one.
        Risks have an infinite mean at m_new = k and k + 1: compare medians.

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

    def losses(self, X: Samples, y: Samples) -> Array:
        """Return the loss of each training client's final predictor on samples that the clients bring.

        Parameters
        ----------
        X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
            Samples; an empty array in a sequence for a client without any.
        y : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
            Labels.

        Returns
        -------
        ndarray (trials, n)
            ``(1/2m_i) ||X_i theta_i - y_i||^2``; NaN for a client without samples, and for a trial that diverged.

        Raises
        ------
        ValueError
            For samples of other sizes than the run's, or a run under engine "chain".

        Notes
        -----
        On the samples of the training its mean over clients is the metric `train_loss`. Cost O(n m d) a trial.

        **Deviations**: none.
        """
        self._check_coordinates("losses()")
        samples = some_samples(X, y)
        samples.check_sizes(n_clients_of(self), self.final.dim, "the run had")
        return self._or_nan(losses_on(self.final, samples, self.trials))

    def adapt(self, X: Samples, y: Samples) -> State:
        """Return the state of clients that took no part in the training, each fitted on samples of its own.

        Parameters
        ----------
        X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
            Samples of any number n of clients.
        y : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
            Labels.

        Returns
        -------
        State
            Its `predictors` are the clients' theta_i, (trials, n, d), or (trials, 1, d) where all share one; NaN in a
            trial that diverged.

        Raises
        ------
        ValueError
            For samples of another dimension or number of trials, a run under engine "chain", or an algorithm that
            learns nothing that a new client could take over.

        Notes
        -----
        A client does what `new_clients` has it do (`Algorithm.adapt`).

        **Deviations**: none.

        References
        ----------
        FedRep paper, section 5.1, "Generalization to new clients".

        Examples
        --------
        Fit four clients on five samples each, and look at the labels that they did not see:

        >>> import linfed as lf
        >>> import numpy as np
        >>> problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2)
        >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FixedSamples(20), rounds=100)
        >>> heads, X = np.random.default_rng(0).normal(size=(4, 2)), np.random.default_rng(1).normal(size=(4, 8, 10))
        >>> y = np.einsum("nmd,dk,nk->nm", X, problem.truth(0, [0]).B[0], heads)
        >>> (theta,) = result.adapt(X[:, :5], y[:, :5]).predictors()
        >>> bool(abs(np.einsum("nmd,nd->nm", X, theta) - y)[:, 5:].max() < 1e-3)
        True
        """
        self._check_coordinates("adapt()")
        state = adapted(self.algorithm, self.final, GivenSamples(X, y), self.trials)
        if Status.DIVERGED not in self.status:
            return state
        missing: dict[str, Any] = {name: self._or_nan(array.copy()) for name, array in state.arrays().items()}
        return state.update(**missing)

    def predict(self, trials: int | None = None) -> Prediction:
        """Return what theory knows of this run: `linfed.predict` with its arguments.

        Parameters
        ----------
        trials : int, optional
            Predict each of the first so many trials; by default the first alone, without a trial axis.

        Raises
        ------
        LawError
            If nothing is known of such a run.
        """
        from linfed.prediction import predict

        setting: dict[str, Any] = {"data": self.data, "participation": self.participation, "seed": self.seed}
        rounds = int(self.rounds[-1]) - self.finished
        return predict(self.algorithm, self.problem, rounds=rounds, trials=trials, **setting)

    def plot(
        self,
        metric: str,
        *,
        ax: Axes | None = None,
        label: str | None = None,
        band: bool = True,
        predicted: bool = False,
        **line_options: Any,
    ) -> Axes:
        """Draw a metric against rounds: the median over trials, with a 10-90 % band.

        Parameters
        ----------
        metric : str
            A name in `metrics`.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        label : str, optional
            Label of the line; by default the algorithm's name, beside another run of it the fields that differ.
        band : bool
            Draw the band.
        predicted : bool
            Draw what `predict` says of "subspace_distance", too, the median over the first five trials: a thin black
            line, dotted ones at the 10 and 90 % of runs of one truth and start.
        **line_options
            What matplotlib takes for a line: color, linestyle, linewidth, marker, ...

        Returns
        -------
        matplotlib Axes

        Notes
        -----
        The first run of an algorithm has the look that it has in every figure; further ones have looks that no line of
        the axes has.
        """
        return views.plotted(self, metric, line_options, ax=ax, label=label, band=band, predicted=predicted)
