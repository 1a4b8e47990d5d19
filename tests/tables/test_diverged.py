"""Trials that diverge are counted and marked wherever numbers leave a sweep."""

import warnings

import numpy as np
import pytest

import linfed as lf

TRIALS = 5


def cell(step_size=0.3):
    return lf.Run(
        algorithm=lf.FedRep(rank=1, step_size=step_size, init="random"),
        problem=lf.SharedRepresentation(n_clients=6, dim=8, rank=1, noise_std=1.0),
        data=lf.FreshSamples(n_samples=3),
        rounds=30,
        trials=TRIALS,
    )


class Jump(lf.FedRep):
    """FedRep whose trials with a random number above a half leave the finite range in the third round."""

    requires = lf.FedRep.requires

    def step(self, state, batch, rng):
        new = super().step(state, batch, rng)
        large = rng.standard_normal((1,))[:, :1] > 0
        return new if batch.round != 3 else new.update(W=np.where(large[..., None], 1e200, new.W))


def some_diverge():
    return lf.grid(cell(), algorithm=[cell().algorithm, Jump(rank=1, step_size=0.3, init="random")])


@pytest.fixture(scope="module")
def table():
    with pytest.warns(lf.DivergenceWarning):
        return lf.sweep(some_diverge())


def test_a_sweep_counts_them_once():
    with pytest.warns(lf.DivergenceWarning) as caught:
        table = lf.sweep(some_diverge())
    count = int((table["status"] == "DIVERGED").sum())
    assert 0 < count < TRIALS
    (said,) = (str(one.message) for one in caught)
    assert said.startswith(f"{count} of {2 * TRIALS} trials diverged, in 1 of 2 rows (column 'status')")
    assert caught[0].filename == __file__


def test_a_sweep_in_which_none_diverges_is_silent():
    table = lf.sweep([cell()])  # a warning would be an error
    assert table["status"].tolist() == ["COMPLETED"] * TRIALS


def test_the_status_is_that_of_each_trial(table):
    result = some_diverge()[1].simulate()
    row = table.select(algorithm="Jump")
    assert row["status"].tolist() == [status.name for status in result.status]
    assert row["diverged"].tolist() == [status is lf.Status.DIVERGED for status in result.status]


@pytest.mark.long
def test_a_frame_over_rounds_marks_them_and_warns(table):
    pytest.importorskip("pandas")
    with pytest.warns(lf.DivergenceWarning, match="averages in pandas and xarray skip NaN") as caught:
        frame = table.to_pandas("round")
    assert caught[0].filename == __file__
    lost = frame[frame["status"] == "DIVERGED"]
    assert lost["risk"].isna().any()
    assert not frame[frame["status"] == "COMPLETED"]["risk"].isna().any()
    assert len(lost) == 31 * int((table["status"] == "DIVERGED").sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.select(algorithm="FedRep").to_pandas("round")
    with pytest.warns(UserWarning, match="columns along round are left out: .*risk") as caught:
        assert len(table.to_pandas()) == 2 * TRIALS
    assert [one.category for one in caught] == [UserWarning]  # it has no metric of a diverged trial


@pytest.mark.long
def test_a_result_as_a_frame_marks_them_and_warns():
    pytest.importorskip("pandas")
    result = some_diverge()[1].simulate()
    with pytest.warns(lf.DivergenceWarning, match=rf"of {TRIALS} trials diverged.* skip NaN"):
        frame = result.to_pandas()
    assert frame.groupby("trial")["status"].first().tolist() == [status.name for status in result.status]
    assert frame[frame["status"] == "COMPLETED"]["risk"].notna().all()
    records = result.to_records()
    assert {(one["trial"], one["status"]) for one in records} == set(enumerate(status.name for status in result.status))


@pytest.mark.long
def test_datasets_mark_them_and_warn(table):
    pytest.importorskip("xarray")
    result = some_diverge()[1].simulate()
    for made in (table.select(algorithm="Jump").to_xarray, result.to_xarray):
        with pytest.warns(lf.DivergenceWarning, match="skip NaN") as caught:
            data = made()
        assert caught[0].filename == __file__
        assert data["status"].values.tolist() == [status.name for status in result.status]


def test_files_mark_them(table, tmp_path):
    path = table.to_csv(tmp_path / "t")[1]
    heading, *lines = path.read_text().splitlines()
    place = heading.split(",").index("status")
    assert {line.split(",")[place] for line in lines} == {"COMPLETED", "DIVERGED", ""}
    assert np.array_equal(lf.Table.load(table.save(tmp_path / "t"))["status"], table["status"])


def test_a_notebook_shows_how_many(table):
    count = int((table["status"] == "DIVERGED").sum())
    assert f"{count} DIVERGED, {TRIALS - count} COMPLETED" in table._repr_html_()
