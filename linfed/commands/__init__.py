"""The commands of ``linfed``, a module each; heavy imports wait until they are needed.

To add one: write ``linfed/commands/NAME.py`` with ``add(commands)``, which gives the command its parser and, by
``set_defaults(run=run)``, its function; write ``run(given)``, which returns the exit status; and name the module in
`modules` below, in the order of ``linfed --help``. At its top a command imports nothing heavier than ``argparse``: what
else it needs, in ``run``. A mistake in the arguments is a `linfed.errors.UsageError`, one line.
"""

from __future__ import annotations

from types import ModuleType


def modules() -> list[ModuleType]:
    """Return the module of each command."""
    from linfed.commands import compare, listing, replot, report, reproduce, show

    return [listing, reproduce, replot, show, report, compare]
