"""Samples of four clients, which several files on personal and shared models use."""

import pytest

from tests.worlds import draw_world


@pytest.fixture(scope="module")
def world():
    return draw_world([9] * 4, 3, 2, noise=0.4, seed=3)


@pytest.fixture(scope="module")
def normal(world):
    """Second moments A and b of each client."""
    return world.data().normal_equations()
