"""Sphinx configuration of the site.

Build the site with ``python -m sphinx -W docs OUT``, in an environment with ``pip install '.[docs]'``; no network is
needed. Before Sphinx reads, `gallery`, `reference` and `tutorials` in ``docs/tools/`` write pages to
``docs/_generated/``.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))
os.environ.setdefault("MPLBACKEND", "Agg")

from docutils import nodes  # noqa: E402
from sphinx import addnodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.config import Config  # noqa: E402

import linfed  # noqa: E402
from docs.tools import formulas, gallery, reference, tutorials  # noqa: E402
from docs.tools.paths import EXPERIMENTS  # noqa: E402
from docs.tools.vocabulary import repository  # noqa: E402
from linfed.reproduction.experiments import experiment_files  # noqa: E402

NAMES_OF_EXPERIMENTS = experiment_files(EXPERIMENTS)

REPOSITORY = repository()

SEARCHED = {
    ("index", "Scope"): ("scope", "limitations", "GPU", "asynchronous", "dropout"),
    ("index", "Citation"): ("citation", "cite", "BibTeX"),
    ("guide/predict", ""): ("how many samples", "sample size", "how many clients", "how many rounds"),
    ("speed", ""): ("memory", "run time"),
}
"""Words that readers search for, by the page and the heading that the search shows first; no heading for the page."""

project = "linfed"
author = "The linfed authors"
copyright = author
version = release = linfed.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["colon_fence", "attrs_block", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 2
nb_execution_mode = "off"
suppress_warnings = ["design.card_legacy"]
highlight_language = "text"
default_role = "literal"

autosummary_generate = False
autodoc_inherit_docstrings = False  # a page does not repeat what a method inherits
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
toc_object_entries = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

mathjax3_config = {"chtml": {"scale": 0.92}}

html_theme = "furo"
html_title = "linfed"
html_js_files = ["site.js"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}


def generate(app: Sphinx, config: Config) -> None:
    """Write the pages that are generated from the committed results, the code and the notebooks."""
    gallery.write(DOCS / "_generated" / "experiments")
    reference.write(DOCS / "_generated" / "reference")
    tutorials.write(DOCS / "_generated" / "tutorials")


def signature(
    app: Sphinx, what: str, name: str, value: object, options: object, arguments: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Return the fields of a dataclass as its arguments; Sphinx would show those of the base class's `__new__`."""
    if what != "class" or not dataclasses.is_dataclass(value):
        return None if arguments is None else (reference.plain_defaults(arguments), returned)
    given = inspect.signature(value.__init__)
    parameters = [one.replace(annotation=one.empty) for one in given.parameters.values() if one.name != "self"]
    text = str(given.replace(parameters=parameters, return_annotation=given.empty))
    made = {one.name: one.default_factory for one in dataclasses.fields(value)}
    text = re.sub(r"(\w+)=<factory>", lambda found: f"{found[1]}={made[found[1]]()!r}", text)
    return reference.plain_defaults(text), ""


def without_last_line(app: Sphinx, page: str, source: list[str]) -> None:
    """Remove the empty line after the output of a doctest at the end of a code block."""
    source[0] = re.sub(r"(?ms)^(```python\n.*?)\n+```$", r"\1\n```", source[0])


def start_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the README in front of the start page's list of pages, with links from the folder of the pages."""
    if page == "index":
        text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](", text.partition("\n\n")[2])
        text = re.sub(r"\]\(([A-Z]\w+\.\w+)\)", rf"]({REPOSITORY}/blob/main/\1)", text)
        source[0] = f"{text}\n{source[0]}"


def index_searched_words(app: Sphinx, page: str, source: list[str]) -> None:
    """Put an index entry for each of the `SEARCHED` words before its heading."""
    for (name, heading), words in SEARCHED.items():
        if name == page:
            entries = ", ".join(f"! {word}" for word in words)
            found = re.search(rf"(?m)^##? {heading}", source[0])
            if found is None:
                raise ValueError(f"{page} has no heading {heading!r}, which SEARCHED in docs/conf.py names")
            source[0] = f"{source[0][: found.start()]}```{{index}} {entries}\n```\n\n{source[0][found.start() :]}"


def link_tutorials(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn links to notebooks of the repository into links to their pages."""
    source[0] = re.sub(r"\]\((?:\.\./)*notebooks/(\w+\.ipynb)\)", r"](/_generated/tutorials/\1)", source[0])


def link_names(app: Sphinx, tree: nodes.document) -> None:
    """Turn names of experiments and of the reference in fixed-width text into links."""
    for literal in list(tree.findall(nodes.literal)):
        if literal.parent.next_node(nodes.reference, include_self=True) or isinstance(
            literal.parent, addnodes.pending_xref
        ):
            continue
        text = literal.astext()
        public = re.match(r"lf\.([\w.]+)(?:\(.*\))?$", text)
        is_parameter = app.env.docname.startswith("_generated/reference") and "-" not in text  # e.g. `weights`
        if text in NAMES_OF_EXPERIMENTS and not is_parameter and not app.env.docname.endswith(f"/{text}"):
            target = {"refdomain": "std", "reftype": "doc", "reftarget": f"/_generated/experiments/{text}"}
        elif public:
            target = {"refdomain": "py", "reftype": "obj", "reftarget": f"linfed.{public[1]}"}
        else:
            continue
        link = addnodes.pending_xref("", refdoc=app.env.docname, refexplicit=True, refwarn=False, **target)
        literal.replace_self(link)
        link += literal


def typeset_formulas(app: Sphinx, tree: nodes.document) -> None:
    """Typeset the formulas that docstrings have in fixed-width text."""
    if not app.env.docname.startswith("_generated/reference"):
        return
    for literal in list(tree.findall(nodes.literal)):
        if (tex := formulas.formula(literal.astext())) and not isinstance(literal.parent, addnodes.pending_xref):
            literal.replace_self(nodes.math(tex, tex))
            app.env.domaindata["math"]["has_equations"][app.env.docname] = True


def open_images(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Link every figure to its file, so that a click opens it in full size."""
    for image in list(tree.findall(nodes.image)):
        stored = app.env.images.get(image["uri"])
        if stored and "sd-card-img-top" not in image["classes"] and not isinstance(image.parent, nodes.reference):
            folder = app.builder.get_relative_uri(page, "_images").removesuffix(".html")
            link = nodes.reference("", "", refuri=f"{folder}/{stored[1]}", classes=["full-size"])
            image.replace_self(link)
            link += image


def break_long_names(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Allow a line break after the separators of long names in tables, and nowhere else in a name."""
    for cell in tree.findall(nodes.entry):
        for literal in list(cell.findall(nodes.literal)):
            parts = re.split(r"(?<=[/._])|(?<=::)", literal.astext())
            if len(literal.astext()) > 24 and len(parts) > 1 and " " not in literal.astext():
                pieces = [[nodes.Text(part), nodes.raw("", "<wbr>", format="html")] for part in parts]
                literal.children = []
                literal += [node for piece in pieces for node in piece][:-1]


def setup(app: Sphinx) -> None:
    """Connect the functions above to Sphinx events."""
    app.connect("config-inited", generate)
    app.connect("source-read", start_page)
    app.connect("source-read", index_searched_words)
    app.connect("source-read", without_last_line)
    app.connect("source-read", link_tutorials)
    app.connect("doctree-read", link_names)
    app.connect("doctree-read", typeset_formulas)
    app.connect("doctree-resolved", open_images)
    app.connect("doctree-resolved", break_long_names)
    app.connect("autodoc-process-signature", signature)
