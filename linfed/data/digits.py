"""Real labelled data that need no network."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Indices
from linfed.system.extras import optional


def load_digits() -> tuple[Array, Indices]:
    """Return images of handwritten digits, 8 x 8 pixels each, and which digit it is.

    Returns
    -------
    X : ndarray (1797, 64)
        Pixels row by row, from 0 to 1 in steps of 1/16.
    labels : ndarray of int (1797,)
        Digits 0 to 9.

    Raises
    ------
    ImportError
        Without scikit-learn, in whose package the data are: extra ``digits``.

    Notes
    -----
    Its `load_wine` and `load_breast_cancer` serve too; their columns have units, and want to be standardised.

    References
    ----------
    E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI Machine Learning Repository, 1998 (its test
    set).

    Examples
    --------
    >>> import linfed as lf
    >>> X, labels = lf.load_digits()
    >>> clients = lf.dirichlet_split(labels, n_clients=10, concentration=0.5, trials=3)
    >>> data = lf.GivenClasses.split(X, labels, clients)
    >>> data.n_trials, data.n_clients, data.dim, data.n_classes
    (3, 10, 64, 10)
    """
    X, labels = optional("sklearn.datasets", "digits", "load_digits()").load_digits(return_X_y=True)
    return np.asarray(X / 16.0, dtype=np.float64), np.asarray(labels, dtype=np.intp)
