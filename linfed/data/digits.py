"""Real data for classification that require no download."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Indices
from linfed.system.extras import import_optional


def load_digits() -> tuple[Array, Indices]:
    """Return images of handwritten digits, 8 x 8 pixels each, and their labels.

    Returns
    -------
    X : ndarray (1797, 64)
        Pixels row by row, from 0 to 1 in steps of 1/16.
    labels : ndarray of int (1797,)
        Digits 0 to 9.

    Raises
    ------
    ImportError
        If scikit-learn, whose package contains the data, is not installed (extra ``digits``).

    Notes
    -----
    scikit-learn's `load_wine` and `load_breast_cancer` can be used as well; standardise their columns, which have
    different units.

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
    X, labels = import_optional("sklearn.datasets", "digits", "load_digits()").load_digits(return_X_y=True)
    return np.asarray(X / 16.0, dtype=np.float64), np.asarray(labels, dtype=np.intp)
