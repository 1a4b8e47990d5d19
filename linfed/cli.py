"""The command line ``linfed``: the top-level parser, the handling of errors and signals, and the exit status."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from linfed.commands import modules
from linfed.commands.interrupts import end, interrupt, signals, stopped
from linfed.commands.parsing import Parser


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``linfed`` with all commands (`linfed.commands`)."""
    top = Parser(
        prog="linfed",
        description="A theory testbed for federated representation learning on linear models.",
        epilog="Run linfed COMMAND --help for the options of a command.",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    top.add_argument("--cite", action="store_true", help="print a BibTeX entry for linfed and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for module in modules():
        module.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The arguments after ``linfed``; by default from ``sys.argv``.

    Returns
    -------
    int
        - 0: success.
        - 1: a file or the output cannot be written, a cell failed, a worker process died, or ``--strict`` found a
          difference.
        - 2: an error in the arguments.
        - 141: the reader of the output closed the pipe.
        - 128 + N: signal N stopped the command (130 for Ctrl-C, 143 for SIGTERM).
    """
    # A signal during imports must end the process at once, because some modules swallow exceptions. If a Python caller
    # passed the arguments, it must get the exception instead.
    with standard_streams(), signals(end if arguments is None else interrupt):
        try:
            try:
                return _run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # no message, as in other command-line tools
            _discard_output()
            return 128 + 13
        except OSError as error:
            if not _output_fails():
                raise
            _discard_output()
            print(f"linfed: the standard output cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        except KeyboardInterrupt as error:
            return stopped("interrupted", 128 + int(error.args[0] if error.args else signal.SIGINT), arguments)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Return a context in which closed standard streams are replaced by the null device.

    Python sets a closed standard stream to None, and the next opened file would get its file descriptor.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    with ExitStack() as opened:
        for name in missing:
            mode = "r" if name == "stdin" else "w"
            setattr(
                sys, name, opened.enter_context(open(os.devnull, mode, encoding="utf-8", errors="backslashreplace"))
            )
        try:
            yield
        finally:
            for name in missing:
                setattr(sys, name, None)


def _output_fails() -> bool:
    """Return whether writing a line to the standard output fails; Python may have dropped the buffered text."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _discard_output() -> None:
    """Redirect the standard output to the null device, because Python flushes it again when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    """Parse the arguments, run the command and return its exit status."""
    top = parser()
    given = top.parse_args(arguments)
    if given.version:
        from linfed._package import __version__

        print(__version__)
        return 0
    if given.cite:
        from linfed.reproduction.citation import bibtex

        print(bibtex())
        return 0
    if given.command is None:
        top.print_help()
        return 2
    from linfed.checks import short_repr
    from linfed.errors import SizeError, UsageError, WorkerError, WriteError

    try:
        check_working_folder()
        return int(given.run(given))
    except (SizeError, UsageError) as error:
        print(f"linfed: {error}", file=sys.stderr)
        return 2
    except SystemExit as error:  # a command returns its status, so this is from the code of an experiment
        print(f"linfed: the experiment ended the command (SystemExit: {error})", file=sys.stderr)
        return 2
    except (WorkerError, WriteError) as error:
        return stopped(str(error), 1, arguments)
    except OSError as error:
        if error.filename is None or error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise
        print(f"linfed: {short_repr(error.filename)} cannot be read: {error.strerror}", file=sys.stderr)
        return 2


def check_working_folder() -> None:
    """Raise `linfed.errors.UsageError` if the working folder has been removed."""
    from linfed.errors import UsageError

    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working folder has been removed: change to an existing folder") from None


if __name__ == "__main__":
    sys.exit(main())
