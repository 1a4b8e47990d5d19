"""The package equals published code to rounding error, and published numbers within their standard errors."""

import json

import numpy as np
import pytest

from tests.validation import comparisons as done

REPLAYS = [(one["run"], one["method"], one["quantity"]) for one in json.loads(done.WRITTEN.read_text())["replays"]]
LONG = [pytest.param(run, marks=pytest.mark.long) for run in done.RUNS if done.is_tested(run) and run not in done.QUICK]


@pytest.fixture(scope="module")
def replays():
    return {(one.run, one.method, one.quantity): one for one in done.replays()}


@pytest.fixture(scope="module")
def wrong():
    """The replays with step sizes of 1.001 times the right ones."""
    return {(one.run, one.method, one.quantity): one for one in done.replays(step=1.001)}


@pytest.fixture(scope="module")
def written():
    """The comparisons of the page docs/validation.md."""
    return json.loads(done.WRITTEN.read_text(encoding="utf-8"))


# --- replays -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", REPLAYS, ids=map(", ".join, REPLAYS))
def test_a_replay_equals_published_code(name, replays, wrong):
    one = replays[name]
    assert one.ours.shape == one.theirs.shape
    assert one.difference < one.tolerance
    assert wrong[name].difference > 1e5 * one.tolerance


def test_the_page_has_every_replay(replays, written):
    assert list(replays) == REPLAYS
    for one in written["replays"]:
        assert one["tolerance"] == replays[one["run"], one["method"], one["quantity"]].tolerance
        assert one["difference"] < one["tolerance"]


# --- statistics ----------------------------------------------------------------------------------------------


def p_values(comparisons):
    return np.array([one["p_value"] for one in comparisons])


@pytest.mark.long
@pytest.mark.parametrize("run", [*sorted(done.QUICK), *LONG], ids=str)
def test_means_equal_stored_numbers(run, written):
    """At the family-wise level of all comparisons; and the page has these numbers."""
    found = done.compare(*run)
    for one in found:
        assert one.p_value > done.LEVEL / len(written["statistics"])
        (same,) = [
            row
            for row in written["statistics"]
            if (row["estimator"], row["quantity"]) == (one.estimator, one.quantity)
            and (row["clients"], row["samples"], row["new_samples"]) == (one.clients, one.samples, one.new_samples)
            and row["theirs"] == list(one.theirs)
        ]
        assert np.allclose(same["ours"], one.ours, rtol=1e-6)
        assert np.allclose([same["z"], same["p_value"]], [one.z, one.p_value], rtol=1e-4)


def test_no_comparison_of_the_page_rejects(written):
    """Of many comparisons, about one in twenty has a p-value below 0.05."""
    p = p_values(written["statistics"])
    assert len(p) == sum(1 if estimator == "local" else 2 for estimator, *_ in done.RUNS)
    assert written["level"] == done.LEVEL
    assert p.min() > done.LEVEL / len(p)
    assert np.mean(p < 0.05) < 0.15


def test_other_numbers_of_samples_are_seen(written):
    """The comparisons detect what differs by a factor of two in the number of clients or samples."""
    rows = [row for row in written["statistics"] if row["quantity"] == "subspace distance" and row["ours"][0] < 0.75]
    assert len(rows) > 8
    for row in rows:
        ours = done.Sample(*row["ours"])
        others = [other for other in rows if other["estimator"] == row["estimator"] and other is not row]
        for other in others:
            ratio = other["clients"] * other["samples"] / (row["clients"] * row["samples"])
            if other["new_samples"] == row["new_samples"] and ratio in (0.5, 2.0):
                mixed = done.Comparison("", "", None, None, 0, done.Sample(*other["theirs"]), ours)
                assert mixed.p_value < done.LEVEL / len(written["statistics"])
