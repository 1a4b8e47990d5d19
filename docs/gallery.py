"""Gallery of experiments: one page per experiment, from ``results/committed/`` and the experiments' docstrings.

``docs/conf.py`` calls `write` when the site is built. A page contains quotations from the source, the settings and
their differences from the source, the figures, all claims with their verdicts, and the files to download.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pictures
from PIL import Image, ImageOps

from linfed.plotting.captions import caption
from linfed.reproduction.experiments import experiment_files, load

DOCS = Path(__file__).resolve().parent
EXPERIMENTS, COMMITTED = DOCS.parent / "experiments", DOCS.parent / "results" / "committed"

PAPERS = {
    "fedrep": "The FedRep paper",
    "flute": "The FLUTE paper",
    "averaging": "The averaging family",
    "shortcut": "The shortcut draft",
}
"""Title of each section of the gallery, by the first part of an experiment's name."""
COLOURS = {
    "SUPPORTED": "success",
    "HOLDS": "success",
    "NOT SUPPORTED": "danger",
    "VIOLATED": "danger",
    "INCONCLUSIVE": "warning",
    "HYPOTHESES FAIL": "secondary",
    "VACUOUS": "secondary",
}
THUMB = (480, 300)
NO_PICTURE = "The committed tables do not contain all data of its figures. `linfed reproduce {name}` draws them."


def chip(verdict: str, count: int | None = None) -> str:
    """Return a verdict as a badge, with its count."""
    return f"{{bdg-{COLOURS[verdict]}}}`{verdict if count is None else f'{verdict} {count}'}`"


def chips(claims: Iterable[dict[str, Any]]) -> str:
    """Return a badge for each verdict among the claims."""
    found = Counter(claim["verdict"] for claim in claims)
    return " ".join(chip(verdict, found[verdict]) for verdict in COLOURS if verdict in found)


def escaped(text: str) -> str:
    """Return a text on one line, with all special characters of Markdown escaped, also for tables."""
    return re.sub(r"([\\`*_{}\[\]<>|#$~&])", r"\\\1", " ".join(str(text).split()))


def number(value: float | None) -> str:
    """Return a number of a claim as text, "-" for None (not finite)."""
    return "-" if value is None else f"{value:.3g}"


def table(head: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def quoted(claims: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the places and words of the quotations in the sources of the claims, without repetitions."""
    found = (re.match(r'(.*?): "(.*?)"(?:;|$)', claim["source"], re.DOTALL) for claim in claims)
    return list(dict.fromkeys((match[1], match[2]) for match in found if match))


def described(module: ModuleType) -> str:
    """Return a docstring without its first line and the section on figures, as Markdown."""
    text = (module.__doc__ or "").strip().partition("\n")[2].strip()
    return re.sub(r"(?ms)^Figures\n-+\n.*?(?:\n\s*\n|\Z)", "", text)


def picture_caption(picture: str, key: str, module: ModuleType) -> str:
    """Return the caption of a committed picture, with the sizes stored in the picture."""
    with Image.open(DOCS / f"{picture}.png") as image:
        return caption(module, key, image.info[pictures.SIZES])


def figures(name: str, module: ModuleType) -> list[str]:
    """Return the committed pictures with their captions, or the reason why there are none."""
    keys = {picture: key for picture, (experiment, key, _) in pictures.PICTURES.items() if experiment == name}
    if not keys:
        return ["## Figures\n", NO_PICTURE.format(name=name)] if hasattr(module, "plot") else []
    lines = ["## Figures\n"]
    for picture, key in keys.items():
        image = f"![{escaped(module.SUMMARY)}](../../{picture}.png)\n"
        lines += [image, f"*{escaped(picture_caption(picture, key, module))}*\n"]
    return lines


def judged(claims: list[dict[str, Any]]) -> list[str]:
    """Return the claims as tables, one per text and source."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault((claim["claim"], claim["source"]), []).append(claim)
    lines = ["## Claims\n"]
    for (text, source), group in groups.items():
        lines += [f"**{escaped(text)}** {chips(group)}\n", f"Source: {escaped(source)}\n"]
        rows = (
            (
                chip(one["verdict"]),
                escaped(one["setting"]),
                escaped(one["statistic"]),
                f"{number(one['estimate'])} \\[{number(one['low'])}, {number(one['high'])}\\]",
                escaped(one["claimed_range"]),
                escaped("; ".join(word for word in (one["detail"], one["note"], one["vacuous"]) if word)),
            )
            for one in group
        )
        lines += [table(("verdict", "setting", "statistic", "measured", "claimed", "note"), rows), ""]
    return lines


def settings(record: dict[str, Any]) -> list[str]:
    """Return the values that all rows of each table share."""
    lines = ["## Settings\n"]
    for key, one in record["tables"].items():
        shared = ", ".join(f"{name} = {setting_text(value)}" for name, value in one["shared"].items())
        lines.append(f"- table `{key}`, {one['rows']} rows; common to all rows: {escaped(shared) or 'nothing'}")
    return [*lines, ""]


def setting_text(value: Any) -> str:
    """Return a setting as text, lists with parentheses."""
    return f"({', '.join(map(setting_text, value))})" if isinstance(value, list) else str(value)


def as_csv(claims: list[dict[str, Any]]) -> str:
    """Return the claims as CSV."""
    out = io.StringIO()
    columns = (
        "claim",
        "setting",
        "statistic",
        "estimate",
        "low",
        "high",
        "claimed_range",
        "verdict",
        "source",
        "detail",
        "note",
    )
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(claims)
    return out.getvalue()


def downloads(name: str, record: dict[str, Any]) -> list[str]:
    """Return the command that reproduces the run, its environment, and links to its files."""
    committed_url = "../../../results/committed/"
    files = [f"{name}.json", *(f"{name}-{key}{end}" for key in record["tables"] for end in (".csv", ".npz"))]
    links = [f"{{download}}`claims as CSV <{name}-claims.csv>`"]
    links += [f"{{download}}`{file} <{committed_url}{file}>`" for file in files if (COMMITTED / file).exists()]
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    took = f"{record['seconds']:.0f} s of computing, " if "seconds" in record else ""
    return [
        "## Reproduce\n",
        f"```sh\nlinfed reproduce {name}\n```\n",
        f"This run: {took}{escaped(record['machine'])}, {escaped(versions)}, commit "
        f"`{record['commit'][:10]}`. The npz files have reduced tables (read them with `lf.Table.load`); "
        "the claims were judged on the full tables.\n",
        *(f"- {link}" for link in links),
        "",
    ]


def page(name: str, module: ModuleType, record: dict[str, Any]) -> str:
    """Return the page of an experiment."""
    sentences = quoted(record["claims"])
    quotations = [
        "## Claims of the source\n",
        *(f"> “{escaped(words)}” ({escaped(place)})\n" for place, words in sentences),
    ]
    return "\n".join(
        [
            f"# {name}\n",
            f"{escaped(module.SUMMARY)}\n",
            f"{chips(record['claims'])}\n",
            *(quotations if sentences else []),
            "## Setup, and deviations from the source\n",
            described(module) + "\n",
            *settings(record),
            *figures(name, module),
            *judged(record["claims"]),
            *downloads(name, record),
        ]
    )


def thumbnail(name: str, folder: Path) -> str:
    """Write a thumbnail of the experiment's first picture and return its name, or "" if there is no picture."""
    first = next((one for one, (experiment, _, _) in pictures.PICTURES.items() if experiment == name), None)
    if first is None:
        return ""
    with Image.open(DOCS / f"{first}.png") as image:
        small = ImageOps.pad(image.convert("RGB"), THUMB, Image.Resampling.LANCZOS, color="white")
    buffer = io.BytesIO()
    small.quantize(64, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    changed(folder / f"{name}-thumb.png", buffer.getvalue())
    return f"{name}-thumb.png"


def card(name: str, module: ModuleType, record: dict[str, Any], thumb: str) -> str:
    """Return the card of an experiment in the gallery."""
    image = f":img-top: {thumb}\n:img-alt: thumbnail of a figure of {name}\n" if thumb else ""
    head = f":::{{grid-item-card}} {name}\n:link: {name}\n:link-type: doc\n{image}"
    return f"{head}\n{escaped(module.SUMMARY)}\n\n+++\n{chips(record['claims'])}\n:::\n"


def overview(cards: dict[str, str], claims: list[dict[str, Any]]) -> str:
    """Return the index page of the gallery."""
    lines = [
        "# Experiments\n",
        f"{len(claims)} claims in {len(cards)} experiments, each a full run: {chips(claims)}. "
        "[How to read a verdict](../../start.md#how-to-read-a-verdict).\n",
    ]
    for start, title in PAPERS.items():
        cards_of_paper = [one for name, one in cards.items() if paper_of(name) == start]
        lines += [f"## {title}\n", "::::{grid} 1 2 3 3\n:gutter: 3\n", *cards_of_paper, "::::\n"]
    return "\n".join([*lines, "```{toctree}\n:hidden:\n", *cards, "```\n"])


def paper_of(name: str) -> str:
    """Return the section of an experiment."""
    start = name.partition("-")[0]
    return start if start in PAPERS else "fedrep"


def changed(path: Path, content: bytes) -> None:
    """Write a file if its content changes; Sphinx reads only changed files again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def write(folder: Path) -> list[str]:
    """Write the gallery to a folder and return the names of the experiments."""
    folder.mkdir(parents=True, exist_ok=True)
    cards, claims = {}, []
    for name in experiment_files(EXPERIMENTS):
        module = load(name, EXPERIMENTS)
        record = json.loads((COMMITTED / f"{name}.json").read_text(encoding="utf-8"))
        claims += record["claims"]
        changed(folder / f"{name}.md", page(name, module, record).encode())
        changed(folder / f"{name}-claims.csv", as_csv(record["claims"]).encode())
        cards[name] = card(name, module, record, thumbnail(name, folder))
    changed(folder / "index.md", overview(cards, claims).encode())
    return list(cards)
