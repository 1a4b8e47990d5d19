"""What a notebook shows of results, tunings and predictions: well-formed, small, and readable on any background."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

import linfed as lf

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=5, rank=2)
FRESH = lf.FreshSamples(n_samples=8)
FEDREP = lf.FedRep(rank=2, step_size=0.3, init=lf.AtDistance(0.5))


def run(algorithm=FEDREP, n_rounds=6, trials=3, **settings):
    return lf.simulate(algorithm, PROBLEM, **{"data": FRESH, "n_rounds": n_rounds, "trials": trials, **settings})


def tuned(grid, n_rounds=5, **settings):
    return lf.tune(FEDREP, PROBLEM, grid={"step_size": grid}, data=FRESH, n_rounds=n_rounds, trials=3, **settings)


def shown(thing):
    """Return what a notebook shows, checked: well-formed, small, of no colour that one of two pages hides."""
    html = thing._repr_html_()
    ElementTree.fromstring(f"<div>{html}</div>")
    assert len(html) < 30_000
    assert [one for one in ("#000000", "#010203", "#ffffff", "<style") if one in html] == []
    return html


def points(html):
    """Return the number of points of the longest line of a figure."""
    root = ElementTree.fromstring(f"<div>{html}</div>")
    return max((path.get("d").count("L") + 1 for path in root.iter("{http://www.w3.org/2000/svg}path")), default=0)


def test_a_result_shows_its_run_its_ends_and_a_curve():
    result = run(n_rounds=300)
    html = shown(result)
    for text in ("FedRep(rank=2", "n_clients=6", "FreshSamples(n_samples=8)", result.engine, "3 COMPLETED"):
        assert text in html, text
    last = np.sort(result.metrics["subspace_distance"][:, -1])
    assert f"<td>subspace_distance</td><td>{last[1]:.4g}</td><td>{last[0]:.4g}</td><td>{last[2]:.4g}</td>" in html
    assert "currentColor" in html
    assert ">subspace distance</text>" in html
    assert 50 < points(html) < 200


def test_powers_of_ten_are_shown_whole():
    html = shown(run(n_rounds=40))
    assert ">0.01</text>" in html
    assert ">1e-0" in html or ">0.0001</text>" in html


def test_a_result_is_shown_whatever_became_of_its_run():
    diverged = run(lf.FLUTE(rank=2, step_size=100.0), data=lf.FixedSamples(n_samples=8), n_rounds=60)
    assert set(diverged.status) == {lf.Status.DIVERGED}
    assert "3 DIVERGED" in shown(diverged)
    assert "<td>inf</td>" in shown(diverged)
    assert "at the end" not in shown(run(metrics=[]))

    def negative(state, truth):
        return -np.ones(len(state.B))

    for result in (run(trials=1, n_rounds=1), run(record_every=4), run(metrics=[negative])):
        assert "<svg" in shown(result)
    for result in (run(n_rounds=0), run(metrics=[])):
        assert "<svg" not in shown(result)
    samples = np.random.default_rng(0).normal(size=(6, 8, 5))
    data = lf.GivenSamples(samples, samples[..., 0])
    assert "no ground truth" in shown(lf.simulate(lf.LocalOnly(), data=data, n_rounds=2, metrics=["train_loss"]))


def test_text_is_escaped():
    @dataclass(frozen=True, kw_only=True, eq=False)
    class Named(lf.FedRep):
        note: str = ""

    html = shown(run(Named(rank=2, step_size=0.3, note="<script>a & b</script>")))
    assert "&lt;script&gt;a &amp; b" in html
    assert "<script" not in html


def test_showing_changes_no_setting_of_matplotlib():
    before = dict(mpl.rcParams)
    shown(run())
    assert dict(mpl.rcParams) == before


def test_a_tuning_shows_its_best_settings_their_scores_and_curves():
    steps = [0.02 * 1.1**power for power in range(30)]
    tuning = tuned([*steps, 1e6], n_rounds=20, ties_within=0.0)
    html = shown(tuning)
    chosen, score = tuning.best_params["step_size"], tuning.scores[tuning.best]
    assert f"<td>{chosen}</td><td>{score:.4g}</td><td>chosen</td>" in html
    rows = re.findall(r"<tr><td>([^<]+)</td><td>([^<]+)</td><td>([^<]*)</td></tr>", html)
    assert [float(step) for step, _, _ in rows] == [steps[place] for place in sorted(np.argsort(tuning.scores)[:20])]
    assert [sign for _, _, sign in rows].count("chosen") == 1
    assert ">tuned metric</text>" in html
    assert points(html) == 21
    assert repr(tuning) == f"<TuningResult of FedRep: step_size = {chosen}; score {score:.4g}; 31 settings tried>"


def test_the_chosen_setting_is_shown_whatever_its_score():
    """The smallest of those that are as good as the best may have twenty before it."""
    tuning = tuned([0.3 + 0.001 * number for number in range(30)], ties_within=10.0)
    assert np.argsort(tuning.scores).tolist().index(tuning.best) >= 20
    assert shown(tuning).count("<td>chosen</td>") == 1
    assert "<td>0.3</td>" in shown(tuning)


def test_a_tuning_at_an_edge_says_so():
    with pytest.warns(lf.GridEdgeWarning):
        tuning = tuned([0.01, 0.3], n_rounds=1)
    assert "step_size is at the edge" in repr(tuning)
    assert "<svg" in shown(tuning)


def test_a_tuning_without_curves_shows_its_scores_alone():
    ends = {"metric": lambda result: np.full(3, abs(result.algorithm.step_size - 0.3)), "score": "final"}
    assert "<svg" not in shown(tuned([0.1, 0.3, 0.9], **ends))


def test_a_prediction_shows_numbers_with_their_sources():
    prediction = lf.predict(FEDREP, PROBLEM, data=FRESH, n_rounds=30)
    html = shown(prediction)
    assert f"<td>{float(prediction.best_step):.4g}</td><td>{prediction.best_step.source}</td>" in html
    assert prediction.validity.replace(">", "&gt;").replace("<", "&lt;") in html
    assert "currentColor" in html
    assert points(html) == 31
    assert "<svg" in shown(lf.predict(FEDREP, PROBLEM, data=FRESH, n_rounds=30, trials=2))
    floor_alone = shown(lf.predict(FEDREP, PROBLEM, data=lf.FixedSamples(n_samples=8), n_rounds=30))
    assert "rounds share their samples" in floor_alone
    assert "<svg" not in floor_alone
