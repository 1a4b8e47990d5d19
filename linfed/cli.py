"""The command line: its parser, what is common to all commands (`linfed.commands`), and their exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

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

    It is 0, 2 for a mistake in the arguments, 1 for a file or an output that cannot be written, a worker process that
    died, or a verdict that --strict does not expect, 141 if nobody reads the output any more, 128 + N if signal N
    stopped it (130 for Ctrl-C, 143 for SIGTERM).
    """
    # While modules are imported the command ends at once, for some of them swallow what is raised. A caller that gave
    # the arguments itself has work of its own, and gets the exception.
    with standard_streams(), signals(end if arguments is None else interrupt):
        try:
            try:
                return _run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # said by the status alone, as other tools do
            _discard_output()
            return 128 + 13
        except OSError as error:
            if not _output_fails():
                raise
            _discard_output()
            print(f"linfed: the standard output cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        except KeyboardInterrupt as error:
            return stopped("interrupted", 128 + int(error.args[0] if error.args else signal.SIGINT))


@contextmanager
def standard_streams() -> Iterator[None]:
    """Return a context in which closed standard streams go to the null device.

    Python sets them to None; and the next file that is opened would get the number of a closed one.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    with ExitStack() as opened:
        for name in missing:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, opened.enter_context(open(os.devnull, mode, encoding="utf-8")))
        try:
            yield
        finally:
            for name in missing:
                setattr(sys, name, None)


def _output_fails() -> bool:
    """Return whether the standard output takes no more, by one more line: Python may have dropped what it held."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _discard_output() -> None:
    """Send the standard output to the null device: Python flushes it once more when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    from linfed.errors import SizeError, UsageError, WorkerError, WriteError

    try:
        check_working_folder()
        return int(given.run(given))
    except (SizeError, UsageError) as error:
        print(f"linfed: {error}", file=sys.stderr)
        return 2
    except (WorkerError, WriteError) as error:
        return stopped(str(error), 1)


def check_working_folder() -> None:
    """Raise if the working folder has been removed."""
    from linfed.errors import UsageError

    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working folder has been removed: change to a folder that exists") from None


if __name__ == "__main__":
    sys.exit(main())
