"""An argument parser with one-line errors and suggestions for misspelt words."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` without abbreviated options, whose errors are one line, without the usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the parsed arguments; the parser of the command reports unknown ones."""
        given, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._commands().get(given.command, self).error(f"unrecognized arguments: {' '.join(unknown)}")
        return given

    def error(self, message: str) -> NoReturn:
        """Print the error and the way to the help, and exit with status 2."""
        self.exit(2, f"linfed: {self._rephrase(message)}; see {self.prog} --help\n")

    def _rephrase(self, message: str) -> str:
        """Return a message of `argparse` in linfed's words, with a suggestion."""
        chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if chosen:
            return f"{chosen[1]!r} is not a command{self._command(chosen[1], re.findall(r'[a-z]+', chosen[2]))}"
        if message.startswith("unrecognized arguments: "):
            given = message.partition(": ")[2].split()
            if not given:
                return "'': no such argument"
            return f"{' '.join(given)}: no such argument{self._argument(*given[:2])}"
        names = message.removeprefix("the following arguments are required: ")
        return message if names == message else f"missing {names.replace(', ', ' and ')}"

    def _argument(self, given: str, value: str = "VALUE") -> str:
        """Return a suggestion for an unknown argument: a similar option, or ``--set`` for a field of an experiment."""
        name, _, own = given.removeprefix("--").partition("=")
        if not given.startswith("--"):
            return " (each FIELD=VALUE must follow its own --set)" if own else ""
        options = [option.removeprefix("--") for option in self._option_string_actions]
        field = f" (to replace a field of an experiment, use --set {name}={own or value})" if "set" in options else ""
        return _near(name, options, cutoff=0.6).replace("'", "'--", 1) or field

    def _commands(self) -> dict[str, Parser]:
        """Return the parsers of the commands by name."""
        choices = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return {name: parser for found in choices for name, parser in found.items()}

    def _command(self, given: str, commands: list[str]) -> str:
        """Return a suggestion for an unknown command: a command with a similar name, or an experiment."""
        near = _near(given, commands)
        if near or "-" not in given:
            return near
        return f" (did you mean 'linfed reproduce {given}'?)"


def _near(given: str, allowed: list[str], cutoff: float = 0.5) -> str:
    """Return a suggestion; `linfed.checks.suggestion` would import NumPy."""
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=cutoff)
    return f" (did you mean {close[0]!r}?)" if close else ""
