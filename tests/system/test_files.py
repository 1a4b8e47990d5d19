"""Files that replace others at once, and archives of arrays that are read only if they are whole."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from linfed.errors import WriteError
from linfed.system.files import read, replacing, write, write_json


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(OSError(28, "No space left on device"), WriteError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_file_that_cannot_be_finished_leaves_the_earlier_one(raised, expected, is_read_only, tmp_path, monkeypatch):
    """And an unfinished file that cannot be removed hides no error."""
    path = tmp_path / "file"
    path.write_text("earlier")

    def refuses(*_, **__):
        raise OSError(30, "Read-only file system")

    if is_read_only:
        monkeypatch.setattr(Path, "unlink", refuses)

    def write():
        with replacing(path) as file:
            file.write(b"half")
            raise raised

    with pytest.raises(expected) as caught:
        write()
    assert expected is KeyboardInterrupt or "cannot be written: No space left" in str(caught.value)
    assert path.read_text() == "earlier"
    assert is_read_only or os.listdir(tmp_path) == ["file"]
    with replacing(tmp_path / "new") as file:
        file.write(b"whole")
    assert (tmp_path / "new").read_text() == "whole"


def test_json_is_strict_and_ends_its_line(tmp_path):
    path = write_json(tmp_path / "file.json", {"a": [1, None]})
    assert path.read_text().endswith("}\n")
    assert json.loads(path.read_text()) == {"a": [1, None]}
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": [1, None]}


def test_an_archive_has_its_arrays_and_its_description(tmp_path):
    path = write(tmp_path / "file", {"x": np.arange(3.0), "words": np.array(["a", "b"])}, {"n": 1})
    assert path == tmp_path / "file.npz"
    for name in (path, tmp_path / "file"):
        arrays, described = read(name)
        assert (arrays["x"].tolist(), arrays["words"].tolist(), described) == ([0.0, 1.0, 2.0], ["a", "b"], {"n": 1})
    with pytest.raises(ValueError, match="x must not be an array of objects"):
        write(path, {"x": np.array([None])}, {})


@pytest.mark.parametrize("spoil", [lambda header: header.replace(b"(3,)", b"(2,)"), lambda header: header[:-8]])
def test_an_array_whose_size_contradicts_its_header_is_refused(spoil, tmp_path):
    path = write(tmp_path / "file", {"x": np.arange(3.0)}, {})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["x.npy"] = spoil(parts["x.npy"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"file.npz' is not a result.*x.npy has \d+ bytes"):
        read(path)
