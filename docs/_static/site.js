// On narrow screens rows of wide tables are cards (site.css); each cell then shows the heading of its column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((one) => one.textContent.trim());
    for (const cell of table.querySelectorAll("tbody td")) cell.dataset.column = heads[cell.cellIndex] ?? "";
  }
});
