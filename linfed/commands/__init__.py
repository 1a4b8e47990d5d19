"""The commands of ``linfed``, one module each.

To add a command:

1. Write ``linfed/commands/NAME.py`` with two functions. ``add(commands)`` adds the parser and calls
   ``set_defaults(run=run)``. ``run(given)`` runs the command and returns the exit status.
2. Add the module to `modules` below, in the order of ``linfed --help``.

At module level a command imports nothing heavier than ``argparse``, so that ``linfed --help`` stays fast; ``run``
imports the rest. For an error in the arguments, ``run`` raises a `linfed.errors.UsageError` with a one-line message.
"""

from __future__ import annotations

from types import ModuleType


def modules() -> list[ModuleType]:
    """Return the modules of the commands, in the order of ``linfed --help``."""
    from linfed.commands import compare, copy, listing, replot, report, reproduce, show

    return [listing, reproduce, replot, show, report, compare, copy]
