"""A parser that answers a mistake with one line, and what is likely meant."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """As of ``argparse``, but one line instead of the usage and a line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and what to do, and exit with status 2."""
        self.exit(2, f"linfed: {self._told(message)}; {self.prog} --help has what there is\n")

    def _told(self, message: str) -> str:
        chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if chosen:
            return f"{chosen[1]!r} is no command{self._command(chosen[1], re.findall(r'[a-z]+', chosen[2]))}"
        if message.startswith("unrecognized arguments: "):
            given = message.partition(": ")[2].split()
            return f"{' '.join(given)}: no such argument{_near(given[0], self._options())}"
        return message.replace("the following arguments are required:", "nothing is given for")

    def _options(self) -> list[str]:
        """Return the options of this parser and of its commands: unknown ones are told by the parser of all."""
        choices = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        parsers = [self, *(parser for found in choices for parser in found.values())]
        return sorted({option for parser in parsers for option in parser._option_string_actions})

    def _command(self, given: str, commands: list[str]) -> str:
        """Return what is likely meant by a word that is no command: one, or an experiment."""
        near = _near(given, commands)
        if near or "-" not in given:
            return near
        return f" (did you mean 'linfed reproduce {given}'?)"


def _near(given: str, allowed: list[str]) -> str:
    """Return a suggestion; not that of `linfed.errors`, which is there with NumPy only."""
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
