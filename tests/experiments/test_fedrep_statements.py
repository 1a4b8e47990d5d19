"""Experiments on single statements of the FedRep paper: cells by other means, and judges that reject what is false."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.findings import Verdict
from tests.experiments.judged import module, searched
from tests.helpers import findings

SUPPORTED, NOT_SUPPORTED = Verdict.SUPPORTED, Verdict.NOT_SUPPORTED
CLIENT, STEPS = module("fedrep-new-client"), module("fedrep-head-steps")
LENGTHS, UPDATES = module("fedrep-unequal-heads"), module("fedrep-local-updates")


def verdicts(experiment, key, rows):
    """Return the set of verdicts of each sentence."""
    found = {}
    for one in findings(experiment, {key: lf.Table(rows)}):
        found.setdefault(one.claim, set()).add(one.verdict)
    return found


# --- a new client's samples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 3])
def test_the_mean_excess_of_an_exact_head_is_the_predicted_one(rank):
    """By least squares on drawn samples; ``k sigma^2 / (2 (m - k - 1))`` is the mean excess risk."""
    rng, m, trials, noise = np.random.default_rng(rank), 12, 20_000, 0.5
    Z, w = rng.standard_normal((trials, m, rank)), rng.standard_normal(rank)
    y = Z @ w + noise * rng.standard_normal((trials, m))
    heads = np.linalg.solve(Z.mT @ Z, (Z.mT @ y[..., None]))[..., 0]
    excess = 0.5 * np.square(heads - w).sum(axis=1)
    assert excess.mean() == pytest.approx(rank * noise**2 / (2 * (m - rank - 1)), abs=4 * excess.std() / trials**0.5)


def test_a_search_finds_k_samples_without_noise_and_the_law_with_noise():
    exact, noisy = (
        CLIENT.NewClient(how=how, rank=3, eps=0.03, noise_std=noise, n_clients=100, dim=4, trials=8).run()
        for how, noise in ((CLIENT.EXACT, 0.0), (CLIENT.NOISY, 0.5))
    )
    assert exact["n_samples"] == exact["law"] == 3
    assert noisy["law"] == pytest.approx(4 + 3 * 0.25 / 0.03)
    assert noisy["crossing"] == pytest.approx(noisy["law"], rel=0.1)


def client_rows(how, size):
    """Return searches whose number of samples is a function of k and eps."""
    rows = [
        searched(size(k, eps), how=how, eps=eps, batch=1, law=float(k), trials=32) | {"rank": k}
        for k in (20, 80)
        for eps in (1e-2, 1e-4)
    ]
    return [row | {"law": row["crossing"]} if how == CLIENT.NOISY else row for row in rows]


def test_the_samples_of_a_new_client_are_judged_by_their_powers():
    at_most, like = (f"A new client's samples grow {words} log(1/eps)" for words in ("at most like", "like"))
    paper = verdicts(CLIENT, "samples", client_rows(CLIENT.FRESH, lambda k, eps: -3 * k * np.log(eps)))
    assert set.union(*paper.values()) == {SUPPORTED}
    few = verdicts(CLIENT, "samples", client_rows(CLIENT.FRESH, lambda k, eps: float(k)))
    assert (few[at_most], few[like]) == ({SUPPORTED}, {NOT_SUPPORTED})
    many = verdicts(CLIENT, "samples", client_rows(CLIENT.NOISY, lambda k, eps: k / eps))
    assert (many[at_most], many[like]) == ({NOT_SUPPORTED}, {NOT_SUPPORTED})


def test_the_laws_of_a_new_client_are_rejected_where_they_are_false():
    rows = client_rows(CLIENT.NOISY, lambda k, eps: k / eps)
    law = next(text for text in verdicts(CLIENT, "samples", rows) if text.startswith("With noise"))
    wrong = verdicts(CLIENT, "samples", [row | {"law": 1.5 * row["law"]} for row in rows])
    assert (verdicts(CLIENT, "samples", rows)[law], wrong[law]) == ({SUPPORTED}, {NOT_SUPPORTED})
    more = verdicts(CLIENT, "samples", client_rows(CLIENT.EXACT, lambda k, eps: k + 2.0))
    assert more["Without noise, k samples suffice and k - 1 do not, for every tested eps below 1/k"] == {NOT_SUPPORTED}


def test_resamples_of_a_search_are_not_told_as_trials():
    """A search with 32 trials gives one number of samples, and one for each resample."""
    table = lf.Table(client_rows(CLIENT.EXACT, lambda k, eps: float(k)))
    found = findings(CLIENT, {"samples": table})
    (detail,) = {one.detail for one in found if one.claim.startswith("Without noise, k samples suffice")}
    assert detail == "one search with 32 trials, and 400 resamples of them"


# --- gradient steps --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stepped():
    """Return the rows of a few clients' gradient steps, at both step sizes."""
    cells = [STEPS.Steps(rule=rule, rank=2, per_rank=8, trials=3, dim=5) for rule in (STEPS.OWN_STEP, STEPS.ONE_STEP)]
    return lf.Table.of(cells, [cell.run() for cell in cells])


def test_the_steps_of_a_head_are_those_of_a_loop_over_clients(stepped):
    """At the step for all clients, by explicit samples."""
    cell = STEPS.Steps(rule=STEPS.ONE_STEP, rank=2, per_rank=8, trials=3, dim=5)
    problem = lf.SharedRepresentation(n_clients=cell.n_clients, dim=5, rank=2, noise_std=0.5, head_norm=1.0)
    truth = problem.truth((0, 2, 16), range(3))
    samples = lf.FixedSamples(16).draw(problem, trials=3, seed=(0, 2, 16))
    needed = []
    for A, b in zip(*(one.reshape(-1, *one.shape[2:]) for one in samples.normal_equations()), strict=True):
        B = truth.B[len(needed) // cell.n_clients]
        best, w, steps = np.linalg.solve(B.T @ A @ B, B.T @ b), np.zeros(2), 0
        while np.linalg.norm(w - best) > 1e-4 * np.linalg.norm(best):
            w, steps = w - (B.T @ A @ B @ w - B.T @ b) / (1 + 1 / 8), steps + 1
        needed.append(steps)
    row = stepped.select(rule=STEPS.ONE_STEP)
    np.testing.assert_array_equal(row["needed"][:, row["eps"] == 1e-4][:, 0], needed)


def test_more_steps_than_the_laws_are_rejected(stepped):
    def slower(row):
        return lf.LabeledArray(row["needed"] ** 2, eps=row["eps"])

    rows = stepped.rows
    true = verdicts(STEPS, "steps", rows)
    false = verdicts(STEPS, "steps", stepped.assign(needed=slower, fall=lambda row: 0.5 * row["fall"]).rows)
    changed = [text for text in true if true[text] == {SUPPORTED} and false[text] == {NOT_SUPPORTED}]
    assert len(changed) == 3
    assert {text.split(" ")[0] for text in changed} == {"The", "At"}


def test_clients_that_do_not_arrive_count():
    """Against the largest number of steps if this is not beyond the tried ones; and in the median of the falls."""
    cell = STEPS.Steps(rank=2, per_rank=2, trials=3, dim=5, most=60)
    (row,) = lf.Table.of([cell], [cell.run()]).rows
    assert 3 < np.isinf(row["needed"].values).any(axis=1).sum() < 30
    np.testing.assert_allclose(row["fall"] / row["law"], 1.0, rtol=1e-6)  # of all clients: k = 2 has two eigenvalues
    most = next(text for text in verdicts(STEPS, "steps", [row]) if "no head needs more" in text)
    assert verdicts(STEPS, "steps", [row])[most] == {SUPPORTED}
    needed = lf.LabeledArray([[1.0, 2.0, 3.0]] * 7 + [[1.0, 2.0, np.inf]], eps=STEPS.LEVELS)
    for law, verdict in ((0.1, SUPPORTED), (1.0, NOT_SUPPORTED)):  # at most 185 or 19 steps, of 60
        changed = row | {"needed": needed} | dict.fromkeys(("kappa", "law", "fall"), np.full(8, law))
        assert verdicts(STEPS, "steps", [changed])[most] == {verdict}


# --- heads of unequal lengths ----------------------------------------------------------------------------------------


def test_the_lengths_of_heads_are_those_of_their_names():
    base = LENGTHS.Unequal(n_clients=40, dim=6, rank=2, trials=2)
    for name, long in ((LENGTHS.EQUAL, 40), (LENGTHS.HALF, 20), (LENGTHS.FEW, 2), (LENGTHS.LEAST, 2)):
        W = np.asarray(replace(base, name=name).problem().W)
        lengths = np.linalg.norm(W, axis=-1) / np.sqrt(2)
        np.testing.assert_allclose(lengths[:, :long], 1.0, rtol=1e-9)
        np.testing.assert_allclose(lengths[:, long:], 1e-3, rtol=1e-9)
        second = np.square(lengths).mean() * np.broadcast_to(np.eye(2), (2, 2, 2))
        np.testing.assert_allclose(W.mT @ W / 40, second, atol=1e-9)
    uniform = np.linalg.norm(replace(base, name=LENGTHS.UNIFORM).problem().W, axis=-1) / np.sqrt(2)
    assert 0.3 < uniform.mean() < 0.7
    assert uniform.max() <= 1.0


@pytest.mark.long
def test_a_few_long_heads_need_more_samples_than_equal_ones():
    cells = lf.grid(
        LENGTHS.Unequal(n_rounds=6, trials=75),
        **{"n_clients, dim": [(20, 20), (80, 80)]},
        name=(LENGTHS.EQUAL, LENGTHS.LEAST),
    )
    table = lf.Table.of(cells, [cell.run() for cell in cells])
    np.testing.assert_allclose(table["effective"], [20, 1, 80, 1], rtol=0.01)
    equal, few = (verdicts(LENGTHS, "lengths", table.select(name=name).rows) for name in (LENGTHS.EQUAL, LENGTHS.LEAST))
    at_one, for_all, effective, simplest = equal
    assert (equal[at_one], few[at_one]) == ({SUPPORTED}, {Verdict.NOT_SUPPORTED})
    assert equal[effective] == few[effective] == equal[simplest] == {SUPPORTED}
    assert equal[for_all] == {SUPPORTED}
    np.testing.assert_array_equal(table.select(name=LENGTHS.EQUAL)["least_low"], 0.0)
    assert (table.select(name=LENGTHS.LEAST)["least_low"] >= 1.0).all()


def test_a_smallest_c_is_known_by_the_intervals_of_the_failures(monkeypatch):
    """5 of 100 failures do not decide whether more than 5 % fail, so C = 8 is tried, too."""
    cell = LENGTHS.Unequal(n_clients=20, dim=20, n_rounds=2)
    needed = cell.constants(cell.problem())[1]

    def failed(cell, problem, step, m):
        return np.arange(cell.trials) < (20 if m < 3.9 * needed else 5 if m < 7.9 * needed else 0)

    monkeypatch.setattr(LENGTHS.Unequal, "failed", failed)
    row = cell.run()
    assert (row["least"], row["least_low"], row["least_high"]) == (4.0, 2.0, 8.0)
    np.testing.assert_array_equal(row["failed"].values, [20, 20, 5, 0])
    row = replace(cell, most=2.0).run()
    assert (row["least"], row["least_low"], row["least_high"]) == (np.inf, 2.0, np.inf)


AT_MOST_1, OPEN = (1.0, 0.0, 1.0), (np.inf, 0.0, np.inf)


@pytest.mark.parametrize(
    ("first", "last", "interval", "verdict"),
    [
        (AT_MOST_1, AT_MOST_1, (0.0, 0.0), SUPPORTED),
        (OPEN, (4.0, 2.0, 4.0), (-np.inf, 0.5), Verdict.INCONCLUSIVE),
        ((4.0, 2.0, 4.0), AT_MOST_1, (-0.5, -0.25), SUPPORTED),
        (AT_MOST_1, (4.0, 2.0, 4.0), (0.25, 0.5), Verdict.INCONCLUSIVE),
        (AT_MOST_1, (8.0, 4.0, 8.0), (0.5, 0.75), NOT_SUPPORTED),
        ((4.0, 2.0, 4.0), (np.inf, 1024.0, np.inf), (2.0, np.inf), NOT_SUPPORTED),
        ((4.0, 2.0, 4.0), (4.0, 2.0, 8.0), (-0.25, 0.5), Verdict.INCONCLUSIVE),
    ],
)
def test_an_open_smallest_c_bounds_its_power_on_one_side(first, last, interval, verdict):
    sizes = {"name": "equal", "rank": 1, "effective": 100.0} | {f"m_{rule}": 10.0 for rule in LENGTHS.RULES}
    sizes |= {f"failed_{rule}": np.full(100, False) for rule in LENGTHS.RULES}
    rows = [
        sizes | {"n_clients": dim, "dim": dim} | dict(zip(("least", "least_low", "least_high"), one, strict=True))
        for dim, one in ((100, first), (1600, last))
    ]
    (found,) = (one for one in findings(LENGTHS, {"lengths": lf.Table(rows)}) if one.claim.startswith("One C"))
    assert found.verdict is verdict
    assert np.isnan(found.estimate) == (not np.isfinite(interval).all())
    np.testing.assert_allclose((found.low, found.high), interval, rtol=1e-12)


# --- local updates ---------------------------------------------------------------------------------------------------


def update_rows(change):
    """Return rows of both methods in which ten updates multiply errors and distances by a factor."""
    error = np.linspace(1.0, 1.2, 30)
    return [
        {"method": method, "at": UPDATES.BEST, "n_samples": 5, "local_updates": updates, "diverged": error < 0}
        | {"error": error * factor, "distance": error * factor, "floor": error}
        for method in ("FedAvg", "FedRep")
        for updates, factor in ((1, 1.0), (10, change))
    ]


def test_local_updates_are_judged_in_both_directions():
    hurt, help_ = (verdicts(UPDATES, "updates", update_rows(factor)) for factor in (1.5, 0.5))
    larger, farther, little, floor, better, harmless = hurt
    assert hurt[larger] == hurt[farther] == help_[better] == help_[harmless] == {SUPPORTED}
    assert help_[larger] == help_[farther] == hurt[better] == hurt[harmless] == {NOT_SUPPORTED}
    assert hurt[little] == help_[little] == hurt[floor] == {NOT_SUPPORTED}
    assert verdicts(UPDATES, "updates", update_rows(1.0))[little] == {SUPPORTED}


def test_local_updates_are_those_of_figure_1():
    figure, *_ = module("fedrep-fig1").cells(quick=False)["clients"]
    for cell in UPDATES.cells(quick=False)["updates"]:
        same = ("n_clients", "dim", "rank", "n_rounds", "participation", "noise_variance", "preset")
        assert [getattr(cell, name) for name in same] == [getattr(figure, name) for name in same]
        algorithm = cell.algorithm(0.1)
        steps = algorithm.local_steps if cell.method == "FedAvg" else algorithm.heads.steps
        assert steps == cell.local_updates
