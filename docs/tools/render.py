"""Write the pages that contain numbers, from their templates in docs/templates/ and from ``results/committed/``.

Run ``python -m docs.tools.render``; `tests/docs/test_render.py` checks that the pages are up to date. A template is a
Jinja2 template of the page: ``{{ expression }}`` inserts a number or a verdict, and `docs/tools/vocabulary.py` defines
the functions for expressions.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import jinja2

from docs.tools import vocabulary
from docs.tools.paths import TEMPLATES, TOP

SUFFIX = ".jinja"


def pages() -> dict[str, str]:
    """Return the name of the template for each page, by the path of the page in the repository."""
    found = sorted(
        path.relative_to(TEMPLATES).as_posix().removesuffix(SUFFIX) for path in TEMPLATES.rglob(f"*{SUFFIX}")
    )
    top = ("README.md", "paper/")
    return {page if page.startswith(top) else f"docs/{page}": page + SUFFIX for page in found}


def environment(folder: Path = TEMPLATES) -> jinja2.Environment:
    """Return the Jinja2 environment for the templates in a folder."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    functions = {name: one for name, one in vars(vocabulary).items() if callable(one) and not isinstance(one, type)}
    made.globals |= functions | {"lf": vocabulary.lf}
    made.filters |= functions
    made.tests["match"] = lambda text, pattern: vocabulary.matches(pattern, text)
    return made


def render(name: str, folder: Path = TEMPLATES) -> str:
    """Return the page of a template. It begins with a comment that names the template, or with its own metadata.

    Raises
    ------
    ValueError
        If an expression is wrong. The message contains the template, the lines and the error.
    """
    path = folder / name
    try:
        text = environment(folder).get_template(name).render()
        note = f"<!-- written by docs/tools/render.py from docs/templates/{name} -->\n\n"
        return text if text.startswith("---") else note + text
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        numbers = [frame.lineno for frame in frames if frame.filename == str(path) and frame.lineno]
        if isinstance(error, jinja2.TemplateSyntaxError):
            numbers = [error.lineno]
        source = path.read_text(encoding="utf-8").splitlines()
        lines = [f"  line {number}: {source[number - 1].strip()}" for number in dict.fromkeys(numbers)]
        raise ValueError("\n".join([f"{path}:", *lines, f"{type(error).__name__}: {error}"])) from error


def main() -> int:
    """Write all pages, print the names of changed pages, and return 1 if a template is wrong."""
    status = 0
    for page, template in pages().items():
        path = TOP / page
        try:
            text = render(template)
        except ValueError as error:
            print(error, file=sys.stderr)
            status = 1
            continue
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(page)
    return status


if __name__ == "__main__":
    sys.exit(main())
