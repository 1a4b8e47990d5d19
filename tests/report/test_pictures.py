"""The figures of a report: those of the run, reduced, with the captions of its record."""

import io

import numpy as np
import pytest
from PIL import Image

from linfed.errors import UsageError
from linfed.report.pictures import pictures
from linfed.reproduction.record import ResultsFolder, RunRecord


def draw(folder, *stems, suffix=".png"):
    for stem in stems:
        Image.new("RGB", (3, 3)).save(folder / f"{stem}{suffix}")


def found(folder, names=("one",), summary="", **record):
    """Return the stems and captions of the figures of the run ``one``."""
    record = RunRecord(experiment="one", quick=False, **record)
    return [(one.stem, one.caption) for one in pictures(record, ResultsFolder(folder), names, summary)]


def test_large_figures_are_reduced_and_small_ones_kept(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 90, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "one.png", dpi=(300, 300))
    Image.fromarray(noise).save(tmp_path / "one-map.webp", lossless=True)
    record = RunRecord(experiment="one", quick=False, figures={"": "One.", "map": "Two."})
    first, second = pictures(record, ResultsFolder(tmp_path), ["one"])
    assert [(first.width, first.height), (second.width, second.height)] == [(45, 20), (90, 40)]
    with Image.open(io.BytesIO(first.data)) as small:
        assert small.size == (45, 20)
        assert len(small.convert("RGB").getcolors()) <= 48
    assert second.data == (tmp_path / "one-map.webp").read_bytes()


def test_captions_are_those_of_the_record_in_their_order(tmp_path):
    draw(tmp_path, "one", "one-map", "one-new")
    draw(tmp_path, "one-map", suffix=".webp")
    figures = {"map": "what <the> map shows", "": "One.", "gone": "Gone."}
    wanted = [("one-map", "what <the> map shows"), ("one", "One."), ("one-new", "a summary")]
    assert found(tmp_path, summary="a summary", figures=figures) == wanted
    assert found(tmp_path, figures=figures)[-1] == ("one-new", "one")


def test_figures_of_other_experiments_are_left_out(tmp_path):
    draw(tmp_path, "one-new", "one-far", "one-far-map", "ones", "on")
    assert [stem for stem, _ in found(tmp_path, names=("one", "one-far"))] == ["one-new"]


def test_a_torn_picture_is_one_line(tmp_path):
    Image.effect_noise((90, 40), 50).save(tmp_path / "one.png")
    (tmp_path / "one.png").write_bytes((tmp_path / "one.png").read_bytes()[:300])
    told = rf"one\.png' is not a complete picture \(.*\): draw it again with linfed replot one --out {tmp_path}$"
    with pytest.raises(UsageError, match=told):
        found(tmp_path)
