"""``linfed replot``: draw and judge anew what earlier runs saved, within seconds."""

from __future__ import annotations

import argparse

from linfed.commands.options import add_experiments, add_names, add_saved
from linfed.commands.reproduce import add_printed, redraw


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "replot",
        help="draw and judge saved runs anew",
        description="Draw and judge the saved tables of earlier runs, with the code as it is now; compute nothing.",
    )
    add_names(command, "or all that are saved")
    add_saved(command)
    add_experiments(command)
    add_printed(command)
    command.set_defaults(run=redraw)
