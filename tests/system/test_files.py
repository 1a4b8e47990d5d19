"""Files that replace others at once: an error on the way leaves the file that was there."""

import os
from pathlib import Path

import pytest

from linfed.errors import WriteError
from linfed.system.files import replacing


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
