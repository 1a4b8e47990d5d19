"""Tutorials: the notebooks in ``notebooks/`` with their stored outputs, as pages of the site.

``docs/conf.py`` calls `write` when the site is built; the notebooks are not run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.tools.gallery import changed
from docs.tools.paths import NOTEBOOKS

INDEX = """# Tutorials

Notebooks with their outputs. Each page has a link to download its notebook.

{entries}

```{{toctree}}
:hidden:

{names}
```
"""


def notebooks() -> list[Path]:
    """Return the notebooks in the order of their numbers."""
    return sorted(NOTEBOOKS.glob("*.ipynb"), key=lambda path: int(path.stem.partition("_")[0]))


def opening(notebook: dict[str, Any]) -> tuple[str, str]:
    """Return the title of a notebook and the first paragraph below it."""
    title, _, rest = "".join(notebook["cells"][0]["source"]).partition("\n")
    return title.removeprefix("# "), " ".join(rest.strip().partition("\n\n")[0].split())


def page(path: Path) -> bytes:
    """Return a notebook with a link to its file below the title."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    title, _, rest = "".join(notebook["cells"][0]["source"]).partition("\n")
    link = f"{{download}}`Download this notebook <../../../notebooks/{path.name}>`"
    notebook["cells"][0]["source"] = f"{title}\n\n{link}\n{rest}"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = "".join(cell["source"]).replace("](../docs/", "](../../")
    return json.dumps(notebook).encode()


def write(folder: Path) -> list[str]:
    """Write the tutorials to a folder and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = {}
    for path in notebooks():
        changed(folder / path.name, page(path))
        title, about = opening(json.loads(path.read_text(encoding="utf-8")))
        entries[path.stem] = f"- [{title}]({path.name}): {about}"
    index = INDEX.format(entries="\n".join(entries.values()), names="\n".join(entries))
    changed(folder / "index.md", index.encode())
    return list(entries)
