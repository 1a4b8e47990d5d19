"""Checks of the states that algorithms return."""

from __future__ import annotations

import numpy as np

from linfed.algorithms.parts.base import State, array_names
from linfed.checks import check_returned, short_repr
from linfed.numerics.layers import shape_of_client


def check_state(
    state: object,
    source: str,
    *,
    trials: int,
    n_clients: int,
    dim: int,
    columns: int,
    classes: int = 0,
    like: State | None = None,
) -> State:
    """Return the state that a method of an algorithm returned, or raise if it is invalid.

    Parameters
    ----------
    state : object
        Return value of the method.
    source : str
        Name of the method, e.g. ``"FedRep.step"``.
    trials, n_clients, dim : int
        Sizes of the run.
    columns : int
        Columns k of B; 0 if the algorithm does not declare them.
    classes : int
        Number of classes c of the samples; 0 for regression.
    like : State, optional
        The previous state; the class and the names of the arrays must not change.

    Returns
    -------
    State
        The argument `state`.

    Raises
    ------
    TypeError, ValueError
        If `state` is not a `State`, has no predictor, or has arrays of wrong names, types or shapes.
    """
    if not isinstance(state, State):
        raise TypeError(f"{source} returned {short_repr(state)}, expected a lf.State")
    text = State.__repr__(state)  # the `repr` of a dataclass subclass would show the arrays' numbers
    if like is not None and (type(state), state.arrays().keys()) != (type(like), like.arrays().keys()):
        raise TypeError(f"{source} returned {text}, expected the class and the arrays of {State.__repr__(like)}")
    derived = type(state).for_prediction is not State.for_prediction
    for name, array in state.arrays().items():
        if derived or name not in ("B", "W", "S"):
            shape = np.shape(array)
            leading = (trials, n_clients) if name in state.per_client and shape[1:2] != (1,) else (trials,)
            meaning = "(trials, n, ..)" if len(leading) == 2 else "(trials, ..)"
            check_returned(source, name, array, (*leading, *shape[len(leading) :]), meaning, kinds="fiub")
    if derived:
        source = f"{type(state).__name__}.for_prediction"
    served: object = state.for_prediction()
    if not isinstance(served, State):
        raise TypeError(f"{source} returned {short_repr(served)}, expected a lf.State")
    _check_predictor(served, source, trials=trials, n_clients=n_clients, dim=dim, columns=columns, classes=classes)
    return state


def has_form_of(state: object, checked: State) -> bool:
    """Return whether a state has the class of a checked one, and arrays of the same types, shapes and dtypes."""
    if type(state) is not type(checked):
        return False
    for name in array_names(type(checked)):  # type: ignore[arg-type]  # a class is hashable
        one, other = getattr(state, name), getattr(checked, name)
        if one is not other and (type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype):
            return False
    return True


def _check_predictor(
    state: State, source: str, *, trials: int, n_clients: int, dim: int, columns: int, classes: int
) -> None:
    """Raise unless a state holds predictors of the given sizes."""
    text, B, W, S = State.__repr__(state), state.B, state.W, state.S
    if (B is None) != (W is None) or (B is None and S is None):
        raise ValueError(f"{source} returned {text}, expected a predictor: B and W, or S, or all three")
    if B is None and columns:
        raise ValueError(f"{source} returned {text}, expected B and W of k = {columns} columns")
    k = columns
    if B is not None:
        k = columns or (np.shape(B)[-1] if np.ndim(B) else 0)
        check_returned(source, "B", B, (trials, dim, k), "(trials, d, k)")
    for name, array, axis, width in (("W", W, "k", k), ("S", S, "d", dim)):
        if array is not None:
            each = shape_of_client(width, classes)
            meant = f"c, {axis} + 1" if classes else axis
            one = np.ndim(array) == 2 + len(each) and np.shape(array)[1] == 1
            rows, meaning = (1, f"(trials, 1, {meant})") if one else (n_clients, f"(trials, n, {meant})")
            check_returned(source, name, array, (trials, rows, *each), meaning)
