"""The section Parameters of each public docstring names arguments that exist."""

import inspect
import re

import linfed as lf


def public():
    """Yield each public function, class and method of linfed with its name."""
    for module in (lf, lf.theory, lf.statistics, lf.claims):
        for name in sorted(set(dir(module))):
            one = getattr(module, name)
            if name.startswith("_") or not getattr(one, "__module__", "").startswith("linfed"):
                continue
            if inspect.isfunction(one) or inspect.isclass(one):
                yield f"{module.__name__}.{name}", one
            if inspect.isclass(one):
                methods = inspect.getmembers(one, inspect.isfunction)
                yield from ((f"{name}.{key}", method) for key, method in methods if not key.startswith("_"))


def documented(text):
    """Return the names that the section Parameters lists."""
    section = re.search(r"(?ms)^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text)
    entries = re.findall(r"(?m)^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :.*)?$", section[1] if section else "")
    return {name.lstrip("*") for entry in entries for name in entry.split(", ")}


def signature_names(one):
    """Return the names of the arguments of a function, or of the fields of a class; None with ``**options``."""
    if inspect.isclass(one) and issubclass(one, Exception):
        return None
    parameters = inspect.signature(one).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    return {*parameters, *getattr(one, "__dataclass_fields__", ())}


def test_documented_parameters_are_those_of_the_signature():
    checked, wrong = 0, {}
    for name, one in public():
        names, listed = signature_names(one), documented(inspect.getdoc(one) or "")
        if listed and names is not None:
            checked += 1
            wrong |= {name: listed - names} if listed - names else {}
    assert wrong == {}
    assert checked > 200
