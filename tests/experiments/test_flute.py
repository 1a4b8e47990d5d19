"""Experiments of the FLUTE paper: their judges reject what is false, and one trial of many refutes an identity."""

import numpy as np
import pytest

import linfed as lf
from experiments.flute._flute import FEDREP_RI, FLUTE
from experiments.flute._flute_compared import WAY, measured
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


def test_theorem51_rejects_a_wrong_exponent_in_kappa_and_a_worse_single_round():
    theorem, table = module("flute-theorem51"), committed("flute-theorem51", "floors")
    steep = table.assign(
        error=lambda row: row["error"] * max(row["kappa"], 1.0) ** 3, one_round=lambda row: 1.2 * row["rms"]
    )
    found = verdicts(findings(theorem, {"floors": steep}))
    setting = f"{theorem.KAPPA}: n = d = 20"
    assert (
        found["In the over-parameterised case the error grows at most like kappa^(5/2)", "n = d = 20"]
        is Verdict.VIOLATED
    )
    said = "One round, the truncation of all clients' own least squares, has no larger error than FLUTE"
    assert found[said, setting] is Verdict.NOT_SUPPORTED


def heads(cosine, **columns):
    """Return a row of flute-fig2 for each objective: all trials have one cosine, and `columns` of one value."""
    fig2, values = module("flute-fig2"), {"with_feature": 1.0, "with_other": 1.0, "third": 0.0} | columns
    found = {
        name: lf.LabeledArray(np.full((10, 3), value), client=(1, 2, 3))
        for name, value in {"cosine": cosine, **values}.items()
    }
    return [{"objective": one, "kind": fig2.POINTS, "trials": 10, **found} for one in fig2.OBJECTIVES]


@pytest.mark.parametrize(("cosine", "is_half"), [(-0.5, True), (-1.0, False)])
def test_fig2_judges_take_heads_for_what_they_are(cosine, is_half):
    """Heads of cosine -1/2 are those of Observation B.3, opposite heads are not."""
    rows = [*heads(-1.0)[:1], *heads(cosine)[1:]]
    found = {
        one: verdict
        for (one, _), verdict in verdicts(findings(module("flute-fig2"), {"heads": lf.Table(rows)})).items()
    }
    yes, no = (Verdict.SUPPORTED, Verdict.NOT_SUPPORTED) if is_half else (Verdict.NOT_SUPPORTED, Verdict.SUPPORTED)
    assert found["Trained locally, the two heads of a client are opposite"] is Verdict.SUPPORTED
    assert (
        found["Trained together, the cosine of a client's two heads differs from that of heads trained locally"] is yes
    )
    assert found["Trained together, the two heads of a client have the cosine -1/2"] is yes
    assert found["Without any penalty NC, one head for all classes has the cosine -1/2"] is yes
    assert found["Trained together, the cosine of a client's two heads is -1, as in the limit of (54)"] is no
    assert found["The head of the third class vanishes"] is Verdict.SUPPORTED


def test_fig2_judges_reject_heads_that_are_not_parallel():
    rows = heads(-0.5, with_feature=0.8, with_other=0.5, third=0.3)
    found = {
        one: verdict
        for (one, _), verdict in verdicts(findings(module("flute-fig2"), {"heads": lf.Table(rows)})).items()
    }
    for said in (
        "Trained together, two clients' heads of one class are parallel",
        "Trained together, a head is parallel to its feature",
        "The head of the third class vanishes",
    ):
        assert found[said] is Verdict.NOT_SUPPORTED


def test_lemma_a18_judges_by_the_worst_theta():
    lemma, table = module("flute-lemma-a18"), computed("flute-lemma-a18", "sides", rank=2, n_clients=15)
    setting = "random: n = 15, d = 10, k = 2"
    right = verdicts(findings(lemma, {"sides": table}))
    assert right["Lemma A.18 holds", setting] is Verdict.HOLDS
    wrong = verdicts(findings(lemma, {"sides": spoiled(table, "factor", 0.8, kind=lemma.RANDOM)}))
    assert wrong["Lemma A.18 holds", setting] is Verdict.HOLDS
    assert wrong["Lemma A.18 holds with the factor 1/sqrt(2)", setting] is Verdict.NOT_SUPPORTED
    wrong = verdicts(findings(lemma, {"sides": spoiled(table, "factor", 1.1, kind=lemma.RANDOM)}))
    assert wrong["Lemma A.18 holds", setting] is Verdict.VIOLATED
    low = table.assign(factor=lambda row: 0.9 * row["factor"])
    said = "No smaller factor is possible: 1/sqrt(2) is attained, or approached near the limit"
    assert verdicts(findings(lemma, {"sides": low}))[said, "turned: n = 15, d = 10, k = 2"] is Verdict.NOT_SUPPORTED


def test_start_judges_reject_what_is_false():
    """Singular values that are too large, runs that do not converge, and runs that take longer."""
    start, table = module("flute-start"), committed("flute-start", "starts")
    said = {one.sentence for one in start.CLAIMS}

    def of(**columns):
        return {
            one: verdict for (one, _), verdict in verdicts(findings(start, {"starts": table.assign(**columns)})).items()
        }

    large = of(largest=lambda row: 1e6 * row["bound"] + row["kth"] + 0.0 * row["largest"])
    assert [large[one] for one in sorted(said) if "largest singular value" in one] == [Verdict.NOT_SUPPORTED] * 2
    lost = of(taken=lambda row: row["taken"] + (np.inf if row["alpha"] > 1e-9 else 0.0))
    assert [lost[one] for one in sorted(said) if "global minimum" in one] == [Verdict.NOT_SUPPORTED] * 2
    slow = of(taken=lambda row: row["taken"] * (2.0 if row["alpha"] == 1.0 else 1.0))
    assert slow["A large alpha needs no more rounds than the theorem's"] is Verdict.NOT_SUPPORTED
    no = np.zeros(table.rows[0]["trials"], dtype=bool)
    none = of(small=lambda row: no, diverged=lambda row: no)
    assert none["At the smallest alpha Claim A.3 holds"] is Verdict.VIOLATED
    assert none[next(one for one in said if one.startswith("An alpha for which"))] is Verdict.NOT_SUPPORTED


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
        ({"sweep": "n, noiseless"}, {"dim": 1000}, "Without noise and with more clients than dimensions"),
        ({"sweep": "d above n"}, {"n_clients": 1000}, "With more dimensions than clients"),
    ],
)
def test_theorem51_claims_are_asked_only_of_the_sizes_that_they_name(rows, changes, sentence):
    part = committed("flute-theorem51", "floors").select(**rows)
    claims = [one for one in module("flute-theorem51").CLAIMS if one.sentence.startswith(sentence)]
    assert lf.claims.judged(claims, {"floors": part})
    assert not lf.claims.judged(claims, {"floors": lf.Table([row | changes for row in part.rows])})


def test_theorem51_noiseless_claim_leaves_out_few_clients():
    part = committed("flute-theorem51", "floors").select(sweep="n, noiseless")
    (claim,) = [one for one in module("flute-theorem51").CLAIMS if one.sentence.startswith("Without noise")]
    wrong = part.assign(error=lambda row: row["error"] * (100.0 if row["n_clients"] < row["dim"] else 1.0))
    right, same = (lf.claims.judged([claim], {"floors": one}) for one in (part, wrong))
    assert right == same
    assert right[0].verdict is Verdict.HOLDS


def test_rounds_count_to_the_first_one_from_which_on_a_level_is_kept():
    """A curve that crosses its level and returns, one that keeps it, one that rises at the end, one that diverges."""
    curves = np.array(
        [
            [1.0, 0.1, 0.9, 0.1, 0.1],
            [1.0, 0.1, 0.1, 0.1, 0.1],
            [1.0, 0.1, 0.1, 0.1, 0.9],
            [1.0, 0.1, 0.1, np.nan, np.nan],
        ]
    )
    found = measured(curves, np.ones(4), np.full(4, 0.1))
    for share in WAY:
        np.testing.assert_array_equal(found[f"rounds_to_{share}"], [3.0, 1.0, np.inf, np.inf])
    assert np.isnan(measured(curves, np.ones(4), np.ones(4))["rounds_to_0.95"]).all()


def compared(curve, rival=None, **columns):
    """Return rows of Figure 3 at two ranks: all trials of FLUTE and of FedRep (RI) have one curve each."""
    rows = []
    for rank in (2, 8):
        for method, errors in ((FLUTE, curve), (FEDREP_RI, curve if rival is None else rival)):
            scale, rounds = (1.0, 1.0) if method == FLUTE else (2.0, 11.0 - rank)
            error = scale * np.array([errors] * 20)
            rows.append(
                {"spectrum": "2d/(i+1)", "n_clients": 15, "n_samples": 20, "rank": rank, "speed": "0.03"}
                | {"method": method, "error": lf.LabeledArray(error, round=range(5)), "final": error[:, -1]}
                | {"diverged": np.isnan(error[:, -1]), **{f"rounds_to_{way}": np.full(20, rounds) for way in WAY}}
                | columns
            )
    return lf.Table(rows)


FALLS, RISES, FLAT = (1.0, 0.5, 0.4, 0.4, 0.4), (1.0, 0.5, 0.4, 0.5, 0.6), (1.0, 0.95, 0.92, 0.92, 0.92)
LOST = (1.0, *(np.nan,) * 4)
ROUNDS, LOWER, GAP = (
    f"FLUTE needs fewer rounds than {FEDREP_RI}",
    f"FLUTE has a smaller final error than {FEDREP_RI}",
    f"The gap between the speeds of FLUTE and {FEDREP_RI} shrinks with k",
)


@pytest.mark.parametrize(
    ("rows", "vacuous"),
    [
        (compared(FALLS), set()),
        (compared(RISES), {LOWER}),
        (compared(FLAT), {ROUNDS, GAP}),
        (compared(FALLS, rival=FLAT), {ROUNDS, GAP}),
        (compared(LOST, rival=FALLS), {ROUNDS, GAP}),
    ],
)
def test_fig3_compares_rounds_to_a_real_level_and_converged_errors(rows, vacuous):
    claims = [one for one in module("flute-fig3").CLAIMS if one.sentence in (ROUNDS, LOWER, GAP)]
    found = lf.claims.judged(claims, {"runs": rows})
    assert {one.claim for one in found} == {ROUNDS, LOWER, GAP}
    for one in found:
        assert (one.verdict is Verdict.VACUOUS) is (one.claim in vacuous), one
        if one.claim in vacuous:
            assert one.vacuous.startswith("not converged" if one.claim == LOWER else "no level to compare at k = ")


def test_fig1_does_not_compare_gains_in_errors_that_have_not_converged():
    (claim,) = [
        one
        for one in module("flute-fig1").CLAIMS
        if one.sentence == f"FLUTE's gain in the final error over {FEDREP_RI} is larger for small k"
    ]
    for curve, reason in ((FALLS, ""), (RISES, "not converged: over the second half of the rounds the error of FLUTE")):
        (found,) = lf.claims.judged([claim], {"runs": compared(curve, variation="main")})
        assert found.vacuous.startswith(reason)
        assert (found.verdict is Verdict.VACUOUS) is bool(reason)
        assert found.vacuous.count("not converged") == bool(reason)


def test_fig3_does_not_ask_for_the_gap_at_the_edge_of_the_grid():
    (claim,) = [one for one in module("flute-fig3").CLAIMS if one.sentence == GAP]
    (found,) = lf.claims.judged([claim], {"runs": compared(FALLS, speed="tuned")})
    assert found.note.startswith("step sizes are tuned for the smallest mean of log10 error")
    assert not lf.claims.judged([claim], {"runs": compared(FALLS, speed="tuned", at_grid_edge="step_size")})


@pytest.mark.long
def test_theorem55_judges_reject_what_is_false():
    theorem = module("flute-theorem55")
    table = computed("flute-theorem55", "runs", name=theorem.BASE, data=theorem.POPULATION)
    key = "The Theta recursion (13) is an identity", theorem.POPULATION
    assert verdicts(findings(theorem, {"runs": table}))[key] is Verdict.HOLDS
    assert verdicts(findings(theorem, {"runs": spoiled(table, "identity", 1e-3)}))[key] is Verdict.VIOLATED


@pytest.mark.long
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
        assert f"in {sets} clusters" in claim.detail
        if claim.claim.startswith("A run diverges iff"):
            assert (claim.estimate, claim.high) == (1.0, 1.0)
            assert claim.low == pytest.approx(clustered_share(np.ones((sets, 5), dtype=bool))[1])
