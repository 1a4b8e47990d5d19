"""The command line: its parser, what is common to all commands (`linfed.commands`), and their exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from linfed.commands import modules
from linfed.commands.interrupts import end, interrupt, signals, stopped
from linfed.commands.parsing import Parser


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    top = Parser(
        prog="linfed",
        description="A theory testbed for federated representation learning on linear models.",
        epilog="linfed COMMAND --help has the options of a command.",
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for module in modules():
        module.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    It is 0, 2 for a mistake in the arguments, 1 for a file that cannot be written, a worker process that died, or a
    verdict that --strict does not expect, 141 if nobody reads the output any more, 128 + N if signal N stopped it (130
    for Ctrl-C, 143 for SIGTERM).
    """
    # While modules are imported the command ends at once, for some of them swallow what is raised. A caller that gave
    # the arguments itself has work of its own, and gets the exception.
    with signals(end if arguments is None else interrupt):
        try:
            try:
                return _run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # said by the status alone, as other tools do
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
            return 128 + 13
        except KeyboardInterrupt as error:
            return stopped("interrupted", 128 + int(error.args[0] if error.args else signal.SIGINT))


def _run(arguments: Sequence[str] | None) -> int:
    top = parser()
    given = top.parse_args(arguments)
    if given.version:
        import linfed

        print(linfed.__version__)
        return 0
    if given.command is None:
        top.print_help()
        return 2
    from linfed.errors import UsageError, WorkerError, WriteError

    try:
        return int(given.run(given))
    except UsageError as error:
        print(f"linfed: {error}", file=sys.stderr)
        return 2
    except (WorkerError, WriteError) as error:
        return stopped(str(error), 1)


if __name__ == "__main__":
    sys.exit(main())
