"""Clients with fitted predictors: predictions, losses and errors on rows that are given later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed.algorithms.parts.base import Algorithm, State
from linfed.checks import check_array, check_instance, check_shape, short_repr
from linfed.data.columns import Values, check_complete, is_table, listed, named_or_given, numbered, read_table
from linfed.data.preparation import Preparation
from linfed.data.samples import GivenSamples, Samples, given_batch, some_samples
from linfed.numerics.linalg import quiet
from linfed.simulation.client_errors import ClientErrors, regression_errors
from linfed.simulation.metrics import client_losses
from linfed.tables.table import Table

CLASSES = (
    "the samples are for regression, but the run has {} classes: Result.per_client(metric) returns each client's loss "
    "and accuracy on held-out samples"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedClients:
    """Clients with fitted predictors, as `Result.adapt` returns them.

    Parameters
    ----------
    state : State
        State with the clients' predictors; NaN in a trial that diverged.
    trials : int
        Number of trials.
    n_clients : int or None
        Number of clients n, if it is known.
    preparation : Preparation or None
        Preparation of the clients' samples, which new rows get too.
    names : tuple or None
        Names of the clients; without them their numbers count.
    class_names : tuple or None
        Names of the classes.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> rng, slope = np.random.default_rng(0), np.array([1.0, 2.0, 0.0])
    >>> X = rng.normal(size=(6, 10, 3))
    >>> data = lf.GivenSamples(X, 50 + X @ slope, intercept=True)
    >>> result = lf.simulate(lf.FedRep(rank=1, step_size=0.3), data=data, n_rounds=50)
    >>> new = result.adapt(X[:2, :5], 70 + X[:2, :5] @ slope)
    >>> new.predictions([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], clients=[0, 1]).round(3).tolist()
    [[71.0, 72.0]]
    """

    state: State
    trials: int
    n_clients: int | None
    preparation: Preparation | None = None
    names: tuple[Any, ...] | None = None
    class_names: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        count = "" if self.n_clients is None else f"{self.n_clients} clients, "
        return f"<FittedClients: {count}{self.trials} trials, {self.state!r}>"

    def adapt(self, algorithm: Algorithm, X: Any, y: Any, clients: Any) -> FittedClients:
        """Return new clients that adapt to their samples from this state; see `Result.adapt`."""
        check_imported(algorithm)
        names, clients = None, self._named(X, clients)
        if clients is None:
            given = GivenSamples(X, y)
        else:
            rows, values, labels = self._table(X, y, clients)
            owner, names = numbered("clients", values)
            given = by_client(rows, labels, owner, len(names))
        self._check(given, None)
        preparation = self.preparation
        if preparation is not None:
            preparation = preparation.of_clients(*given.with_trials())
            given = given.prepared(preparation)
        with quiet():
            state = algorithm.adapt(self.state, given_batch(given, range(self.trials)))
        return replace(self, state=state, n_clients=given.n_clients, preparation=preparation, names=names)

    def predictors(self) -> Array:
        """Return the predictors, (trials, n, d), or (trials, 1, d) if all clients share one.

        They belong to prepared features, if the data were prepared.
        """
        return self.state.predictors()

    def predictions(self, X: Any, clients: Any = None) -> npt.NDArray[Any]:
        """Return the predicted labels of rows; see `Result.predictions`."""
        rows, values = self._read("X", X, clients)
        if values is None:
            raise ValueError("clients = None must name the client of each row: an array (samples,), or a column of X")
        owner = self._numbers(values)
        theta = self.state.predictors()
        preparation = self.preparation
        place = owner if theta.shape[1] > 1 else np.zeros_like(owner)
        out = np.empty((self.trials, len(rows), *theta.shape[2:-1]))
        with quiet():
            for trial in range(self.trials):
                own = theta[trial, place]
                if preparation is None:
                    prepared, unit, offset = rows, 1.0, np.zeros(len(rows))
                else:
                    prepared, unit, offset = preparation.of_rows(rows, owner, trial)
                if theta.ndim == 4:
                    prepared = np.column_stack([prepared, np.ones(len(rows))])
                    out[trial] = np.einsum("sd,scd->sc", prepared, own)
                else:
                    out[trial] = np.vecdot(prepared, own) * unit + offset
        if theta.ndim < 4:
            return out
        classes = out.argmax(axis=-1)
        return classes if self.class_names is None else np.array(self.class_names)[classes]

    def errors(self, X: Any, y: Any, clients: Any = None) -> Table:
        """Return the errors of each client on new samples; see `Result.errors`."""
        return self.errors_on(self.samples(X, y, clients)).table()

    def errors_on(self, samples: GivenSamples) -> ClientErrors:
        """Return the errors of each client on prepared samples."""
        return regression_errors(self.state, samples, self.trials, self.preparation, self.names)

    def losses(self, X: Any, y: Any, clients: Any = None) -> Array:
        """Return each client's loss on new samples, (trials, n); see `Result.losses`."""
        return self._losses(self.samples(X, y, clients))

    def _losses(self, samples: GivenSamples) -> Array:
        batch = given_batch(samples, range(self.trials))
        with quiet():
            return np.where(batch.counts > 0, client_losses(self.state.for_prediction(), batch), np.nan)

    def samples(self, X: Any, y: Any, clients: Any = None) -> GivenSamples:
        """Return checked and prepared samples of these clients."""
        clients = self._named(X, clients)
        given = some_samples(X, y) if clients is None else self._dealt(X, y, clients)
        self._check(given, self.n_clients)
        return given if self.preparation is None else given.prepared(self.preparation)

    def _check(self, samples: GivenSamples, n_clients: int | None) -> None:
        """Raise unless samples before their preparation fit."""
        if self.state.classes:
            raise ValueError(CLASSES.format(self.state.classes))
        dim = self.state.dim if self.preparation is None else self.preparation.given
        samples.check_sizes(n_clients, dim, "the run had")
        if samples.n_trials not in (None, self.trials):
            raise ValueError(f"X has arrays for {samples.n_trials} trials, but the run had {self.trials}")

    def _dealt(self, X: Any, y: Any, clients: Any) -> GivenSamples:
        """Return the samples of rows that belong to these clients."""
        rows, values, labels = self._table(X, y, clients)
        owner = self._numbers(values)
        return by_client(rows, labels, owner, self.n_clients or int(owner.max()) + 1)

    def _table(self, X: Any, y: Any, clients: Any) -> tuple[Array, Values, Array]:
        """Return the features, clients and labels of rows."""
        rows, values = self._read("X", X, clients)
        assert values is not None
        labels = named_or_given("y", y, read_table("X", X), len(rows))[1]
        return rows, values, check_array("y", labels, [("samples",)])

    def _read(self, argument: str, X: Any, clients: Any) -> tuple[Array, Values | None]:
        """Return the features of rows, (samples, d) before their preparation, and their clients if they are given."""
        columns = None if self.preparation is None else self.preparation.columns
        table = read_table(argument, X)
        dim = self.state.dim if self.preparation is None else self.preparation.given
        if columns is not None and self.preparation is not None:
            rows = columns.features(argument, table, self.preparation.kept)
        else:
            rows = check_array(argument, X, [("samples", "d")])
            check_shape(argument, rows, (len(rows), dim), "(samples, d) as the run had")
        if (clients := self._named(X, clients)) is None:
            return rows, None
        values = named_or_given("clients", clients, table, len(rows))[1]
        check_complete("clients", {"clients": values})
        return rows, values

    def _named(self, X: Any, clients: Any) -> Any:
        """Return the argument `clients`; by default the name of the column of `X` that had the training clients."""
        columns = None if self.preparation is None else self.preparation.columns
        if clients is not None or columns is None or columns.clients is None or not is_table(X):
            return clients
        return columns.clients if columns.clients in read_table("X", X) else None

    def _numbers(self, values: Values) -> Indices:
        """Return the number of the client of each row."""
        names = range(self.n_clients or 1) if self.names is None else self.names
        place = {name: number for number, name in enumerate(names)}
        numbers, found = numbered("clients", values)
        for name in found:
            if name not in place:
                raise ValueError(
                    f"clients contains {short_repr(name)}, which is none of the run's clients; here: "
                    f"{listed(tuple(names))}; new clients need Result.adapt"
                )
        return np.array([place[name] for name in found], dtype=np.intp)[numbers]


def by_client(rows: Array, labels: Array, owner: Indices, count: int) -> GivenSamples:
    """Return rows (samples, d) and labels (samples,) as samples of `count` clients, also of clients without rows."""
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=count))[:-1]
    parts: list[Samples] = [np.split(values[order], ends) for values in (rows, labels)]
    if count == 1:
        parts = [[rows], [labels]]
    return some_samples(*parts)


def check_imported(algorithm: object) -> None:
    """Raise unless an algorithm is not only the text of one whose class is unknown."""
    check_instance("algorithm", algorithm, Algorithm, "an algorithm whose class is imported")
