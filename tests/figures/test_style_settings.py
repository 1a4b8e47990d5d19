"""The style of figures."""

import matplotlib as mpl
import pytest

from linfed.figures import style as plotting


def test_the_style_restores_its_own_settings_alone():
    before = dict(mpl.rcParams)
    try:
        with plotting.style():
            assert mpl.rcParams["font.size"] == plotting.STYLE["font.size"] != before["font.size"]
            mpl.interactive(True)  # as a notebook's backend does when its first figure is made
        assert mpl.is_interactive()
        mpl.interactive(before["interactive"])
        assert dict(mpl.rcParams) == before
        with pytest.raises(ZeroDivisionError), plotting.style():
            _ = 1 / 0
        assert dict(mpl.rcParams) == before
        restoration = plotting.style()  # without a with statement: until further notice
        assert mpl.rcParams["font.size"] == plotting.STYLE["font.size"]
        restoration.close()
        assert dict(mpl.rcParams) == before
    finally:
        mpl.rcParams.update(before)
