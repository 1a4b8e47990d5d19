"""Experiments of the FLUTE paper: their judges reject what is false, and one trial of many refutes an identity."""

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.findings import Verdict
from linfed.statistics.intervals import clustered_share
from tests.experiments.judged import committed, computed, module, spoiled, verdicts
from tests.helpers import findings


def test_theorem51_judges_by_the_worst_trial():
    theorem, table = module("flute-theorem51"), committed("flute-theorem51", "floors")
    said = "The floor does not depend on the step size"
    for floors, verdict in (
        (table, Verdict.HOLDS),
        (spoiled(table, "error", 1.0, sweep=theorem.SLOW), Verdict.VIOLATED),
    ):
        found = findings(theorem, {"floors": floors})
        assert {claim.verdict for claim in found if claim.claim == said} == {verdict}


def test_theorem51_judges_reject_what_is_false():
    def grown(column):
        return lambda row: row[column] * ((row["n_samples"] / 300.0) ** 0.3 if row["sweep"] == "m" else 1.0)

    false = committed("flute-theorem51", "floors").assign(error=grown("error"), rms=grown("rms"))
    claims = findings(module("flute-theorem51"), {"floors": false})
    found = verdicts(claims)
    assert found["The error falls at least like m^-1/2", "n = d = 20"] is Verdict.VIOLATED
    assert found["The exponent is that of the first-order prediction", "m: n = d = 20"] is Verdict.VIOLATED
    assert found["The floor is that of the first-order prediction", "m: n = d = 20"] is Verdict.VIOLATED
    (spread,) = [claim for claim in claims if "one constant fits" in claim.claim]
    assert spread.verdict is Verdict.VIOLATED


def test_theorem51_settings_are_the_tables_sizes():
    stays_at = module("flute-theorem51").stays_at
    first, second = ({"n_clients": n, "dim": 30, "noise_std": 0.5} for n in (30, 40))
    assert stays_at(lf.Table([first, second])) == "d = 30"
    assert stays_at(lf.Table([first, first])) == "n = d = 30"
    assert stays_at(lf.Table([second | {"noise_std": 0.0}])) == "n = 40, d = 30, no noise"


@pytest.mark.parametrize(
    ("rows", "changes", "sentence"),
    [
        ({"sweep": "n above d"}, {"dim": 1000}, "With more clients than dimensions"),
        ({"sweep": "d above n"}, {"n_clients": 1000}, "With more dimensions than clients"),
    ],
)
def test_theorem51_claims_are_asked_only_of_the_sizes_that_they_name(rows, changes, sentence):
    part = committed("flute-theorem51", "floors").select(**rows)
    claims = [one for one in module("flute-theorem51").CLAIMS if one.sentence.startswith(sentence)]
    assert lf.claims.judged(claims, {"floors": part})
    assert not lf.claims.judged(claims, {"floors": lf.Table([row | changes for row in part.rows])})


@pytest.mark.long
def test_theorem55_judges_reject_what_is_false():
    theorem = module("flute-theorem55")
    table = computed("flute-theorem55", "runs", name=theorem.BASE, data=theorem.POPULATION)
    key = "The Theta recursion (13) is an identity", theorem.POPULATION
    assert verdicts(findings(theorem, {"runs": table}))[key] is Verdict.HOLDS
    assert verdicts(findings(theorem, {"runs": spoiled(table, "identity", 1e-3)}))[key] is Verdict.VIOLATED


def test_rate_and_floor_judges_reject_what_is_false():
    rate = module("flute-rate-and-floor")

    def twice_the_floor(row):  # in every round, as runs that still fall are not judged
        rms = 0.0 * np.asarray(row["rms"]) + 2.0 * np.reshape(row["floor"], (-1, 1))
        return lf.LabeledArray(rms, round=row["round"])

    table = computed("flute-rate-and-floor", "runs", data=rate.FIXED)
    for runs, violated in ((table, False), (table.assign(rms=twice_the_floor), True)):
        claims = findings(rate, {"runs": runs})
        floors = {one.verdict for one in claims if one.claim.startswith("With m fixed the final error")}
        assert floors
        assert (floors == {Verdict.VIOLATED}) is violated


@pytest.mark.long
def test_phase_lines_are_judged_by_data_set():
    """A trial's points share its data: with few trials not even a perfect share lies above 95 %."""
    table = computed("flute-divergence", "phase")
    phase = table.assign(diverged=lambda row: lf.LabeledArray(row["unbounded"], excess=row["excess"]))
    found = findings(module("flute-divergence"), {"phase": phase})
    same = [one for one in found if one.statistic == "share of (data set, excess) pairs"]
    sets = phase.select(start="far")["threshold"].size
    assert len(same) == 4
    for claim in same:
        assert f"in {sets} data sets" in claim.detail
        if claim.claim.startswith("A run diverges iff"):
            assert (claim.estimate, claim.high) == (1.0, 1.0)
            assert claim.low == pytest.approx(clustered_share(np.ones((sets, 5), dtype=bool))[1])
