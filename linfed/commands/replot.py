"""``linfed replot``: redraw the figures and judge the claims of saved runs again, within seconds."""

from __future__ import annotations

import argparse

from linfed.commands.options import add_experiments, add_names, add_saved
from linfed.commands.reproduce import add_printed, redraw


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "replot",
        help="redraw figures and judge claims of saved runs",
        description="Redraw the figures and judge the claims again, from saved tables and with the current code. No "
        "cell is computed.",
    )
    add_names(command, "or all for all saved runs")
    add_saved(command)
    add_experiments(command)
    add_printed(command)
    command.set_defaults(run=redraw)
