"""Combinations of cases: all with ``--all``, and by default a third in which every case occurs."""

import inspect
import itertools

import pytest

from tests.helpers import each


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("sizes", [(4, 7), (5, 2), (3, 1), (2, 3, 4)], ids=str)
def test_every_case_occurs(sizes, everything, monkeypatch):
    ran = []

    def one(**case):
        ran.append(tuple(case[name] for name in sorted(case)))

    test = one
    for level, size in reversed([*enumerate(sizes)]):
        test = each(f"level{level}", range(size))(with_parameters(test, range(len(sizes))))
    monkeypatch.delenv("LINFED_TESTS_ALL", raising=False)
    if everything:
        monkeypatch.setenv("LINFED_TESTS_ALL", "1")
    test()
    everyone = set(itertools.product(*map(range, sizes)))
    assert len(ran) == len(set(ran))
    assert set(ran) <= everyone
    assert (set(ran) == everyone) == (everything or sizes[-1] == 1)
    for level, size in enumerate(sizes):
        assert {case[level] for case in ran} == {*range(size)}


def with_parameters(test, levels):
    """Return the test itself, with a signature that names all levels, as `each` needs it."""
    names = [f"level{level}" for level in levels]
    test.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
    return test
