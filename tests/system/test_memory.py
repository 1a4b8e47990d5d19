"""Numbers of bytes as text."""

import pytest

from linfed.system.memory import format_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (22_200, "22.2 kB"), (999.4e3, "999 kB"), (999.6e3, "1 MB"), (999.6e9, "1 TB"),
     (5e15, "5e+03 TB")],
)  # fmt: skip
def test_a_unit_has_less_than_a_thousand_after_rounding(count, text):
    assert format_bytes(count) == text
