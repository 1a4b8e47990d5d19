// On narrow screens rows of wide tables are cards (site.css); each cell then shows the heading of its column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((one) => one.textContent.trim());
    for (const cell of table.querySelectorAll("tbody td")) cell.dataset.column = heads[cell.cellIndex] ?? "";
  }
});

// Excerpts of search results have no code, no arguments of signatures, and formulas as plain text.
const NOT_IN_EXCERPTS = ".highlight, div.math";
const APART = "dt, dd, td, th, li, p, summary, .classifier, .sd-badge"; // a space before each, as on the page
const RELATIONS = { le: "<=", ge: ">=", ll: "<<", to: "->", leftarrow: "<-", sim: "~", Vert: "||", star: "*", cdot: " ", top: "T" };

function plainFormula(tex) {
  return tex
    .replace(/\\[()]/g, "")
    .replace(/\\(?:mathrm|text|operatorname|mathbf|mathcal)\b|\\[,;!{}]|\\(?:left|right)\b/g, "")
    .replace(/\\([A-Za-z]+) ?/g, (_, name) => RELATIONS[name] ?? name)
    .replace(/\{,\}/g, ",")
    .replace(/[{}]/g, "");
}

document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const textOf = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const one of page.querySelectorAll(NOT_IN_EXCERPTS)) one.remove();
    for (const one of page.querySelectorAll("dt.sig")) one.replaceChildren(one.querySelector(".descname")?.textContent ?? "");
    for (const one of page.querySelectorAll(APART)) one.before(" ");
    for (const one of page.querySelectorAll("span.math")) one.textContent = plainFormula(one.textContent);
    return textOf(page.documentElement.outerHTML, anchor).replace(/\s+/g, " ");
  };
});
