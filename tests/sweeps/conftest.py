"""Each test counts the cells that it computes itself."""

import pytest

from tests.sweeps.some_cells import RAN


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.clear()
