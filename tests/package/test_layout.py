"""The package's layout: a module imports only from its own subpackage and from earlier ones."""

import ast
import re
from pathlib import Path

import pytest

import linfed as lf

PACKAGE = Path(lf.__file__).parent

ORDER = [
    {"_names", "_package", "_sources", "_types", "_values", "checks", "errors"},
    {"system"},
    {"numerics"},
    {"statistics"},
    {"figures"},
    {"tables"},
    {"plotting"},
    {"claims"},
    {"problems"},
    {"data"},
    {"algorithms"},
    {"simulation"},
    {"theory"},
    {"prediction"},
    {"search"},
    {"cells"},
    {"sweeps"},
    {"reproduction"},
    {"report"},
    {"commands"},
    {"cli", "__main__"},
    {""},  # the top level, which no other module imports
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def files(package):
    return sorted(package.rglob("*.py"))


def name_of(path, package):
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(("linfed", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def room_of(module):
    """Return the room of a module's full name; an empty name for the top level itself."""
    return module.split(".")[1] if "." in module else ""


def imported(path, package):
    """Yield the modules of linfed that a file imports, also inside of functions and for types alone."""
    base = name_of(path, package).split(".")
    base = base if path.stem == "__init__" else base[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(base[: len(base) + 1 - node.level]) if node.level else ""
            module = ".".join(part for part in (start, node.module) if part)
            if module == "linfed":  # a room, or a name of the top level
                yield from (f"linfed.{alias.name}" if alias.name in LEVEL else "linfed" for alias in node.names)
            else:
                yield module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def wrong_imports(package):
    """Return (file, module) for every import that goes against the order."""
    found = set()
    for path in files(package):
        room = room_of(name_of(path, package))
        for module in imported(path, package):
            if module.split(".")[0] == "linfed" and LEVEL[room_of(module)] > LEVEL[room]:
                found.add((path.relative_to(package).as_posix(), module))
    return found


def test_every_module_has_a_room():
    rooms = {room_of(name_of(path, PACKAGE)) for path in files(PACKAGE)}
    assert rooms == set(LEVEL)


@pytest.mark.long
def test_imports_go_from_later_rooms_to_earlier_ones():
    assert wrong_imports(PACKAGE) == set()


RAISING = ("solve", "inv", "pinv", "lstsq", "svd", "svdvals", "eig", "eigh", "eigvals", "eigvalsh", "cholesky",
           "matrix_rank", "cond")  # fmt: skip


def test_algorithms_use_kernels_that_keep_the_other_trials():
    """NumPy's decompositions raise for a whole stack if they fail for one matrix; those of `numerics` do not."""
    for path in files(PACKAGE / "algorithms"):
        called = {
            ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        }
        assert not called & {f"{module}.linalg.{name}" for module in ("np", "scipy") for name in RAISING}, path


def test_contributing_has_a_row_for_every_subpackage():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \|", text, flags=re.MULTILINE)
    assert rows == [room for rooms in ORDER for room in rooms if room and (PACKAGE / room).is_dir()]


PLANTED = {
    "at the top": ("numerics/kernel.py", "from linfed.simulation.loop import Round\n", "linfed.simulation.loop"),
    "in a function": ("data/rows.py", "def f():\n    import linfed.theory\n", "linfed.theory"),
    "of the package": ("problems/base.py", "from linfed import search\n", "linfed.search"),
    "of a public name": ("problems/base.py", "from linfed import simulate\n", "linfed"),
    "the top level": ("system/files.py", "def f():\n    import linfed as lf\n", "linfed"),
    "the top level, relative": ("tables/table.py", "from .. import __version__\n", "linfed"),
    "relative": ("algorithms/parts/base.py", "from ...simulation import metrics\n", "linfed.simulation"),
    "relative, in a room": ("data/__init__.py", "from ..search.tuning import tune\n", "linfed.search.tuning"),
    "science in tables": (
        "tables/rows.py",
        "from linfed.simulation.metrics import METRICS\n",
        "linfed.simulation.metrics",
    ),
    "by name": ("errors.py", 'import importlib\nimportlib.import_module("linfed.cli")\n', "linfed.cli"),
    "for types": (
        "statistics/findings.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from linfed.search import tuning\n",
        "linfed.search",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_against_the_order_is_found(name, tmp_path):
    file, source, module = PLANTED[name]
    for path, text in [
        (file, source),
        ("sweeps/fine.py", "import linfed.search.tuning\nfrom linfed.errors import shown\n"),
    ]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "__init__.py").write_text("from linfed.search import tuning\n")
    assert wrong_imports(tmp_path) == {(file, module)}
