"""Words of the documentation that are counted from records."""

from types import SimpleNamespace

from docs.vocabulary import tied


def test_ties_are_counted_from_the_details():
    details = ["5 of 28 that differ; 5 of all 50 smaller, 23 larger, 22 tied; median", "36 of 50; median", "3 tied"]
    assert tied(SimpleNamespace(detail=detail) for detail in details) == 25
